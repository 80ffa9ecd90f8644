//! Loop nests: the elements of expressions, computed in vectors at the places of a nest's loops.
//!
//! A nest runs over a shape. One of its axes is the vector axis: its loop takes a whole vector of
//! positions at a time. An element of a tile is named by the tile and a [`Map`] that says for each
//! of the tile's axes which axis of the nest it follows, or that it stays at 0. What does not
//! depend on an inner loop is hoisted out of it.

use super::group_plan::same_but_ones;
use super::{Buffer, Group, Repr};
use crate::asm_text::Text;
use crate::llvm::{IntCmp, Val};
use crate::memory::{Access, Mem, Pos, to_index};
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Attr, Op, OpId, Type, Value};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::attrs::{cast_mode, checked_axes};
use tessera_tile::{Tile, TileOp};

/// For each axis of a tile, the axis of the nest that it follows.
pub type Map = Vec<Option<u8>>;
pub type Node = (Value, Map);

pub struct Nest {
    pub dims: Vec<i64>,
    /// The axes in the order of their loops; those of extent 1 have none.
    pub order: Vec<usize>,
    /// The vector axis.
    pub lane: Option<usize>,
    /// The position of each open loop; of the vector axis, of the first lane.
    pub index: Vec<Option<Val>>,
    /// Lanes of the present vector, and which of them are inside the nest where not all are.
    pub lanes: u32,
    pub tail: Option<Val>,
    /// All blocks are known to be inside their memory here.
    pub inside: bool,
    pub memo: Vec<BTreeMap<Node, Val>>,
}

impl Nest {
    /// Over a shape, the last axis longer than 1 being the vector axis.
    pub fn new(dims: &[i64]) -> Self {
        let lane = dims.iter().rposition(|&d| d > 1);
        Self {
            dims: dims.to_vec(),
            order: (0..dims.len()).filter(|&d| dims[d] > 1).collect(),
            lane,
            index: vec![None; dims.len()],
            lanes: 1,
            tail: None,
            inside: false,
            memo: vec![BTreeMap::new()],
        }
    }

    /// The map of a tile with the nest's own shape.
    pub fn identity(&self) -> Map {
        self.dims.iter().enumerate().map(|(i, &d)| (d > 1).then_some(i as u8)).collect()
    }

    /// How many loops must be open for such an element.
    pub fn depth(&self, map: &Map) -> usize {
        let place = |axis: &Option<u8>| match axis {
            Some(a) => self.order.iter().position(|&o| o == *a as usize).map_or(0, |p| p + 1),
            None => 0,
        };
        map.iter().map(place).max().unwrap_or(0)
    }

    pub fn open(&mut self) {
        self.memo.push(BTreeMap::new());
    }

    pub fn close(&mut self) {
        self.memo.pop();
    }

    /// The elements of a node at the present place, computed elsewhere.
    pub fn tell(&mut self, node: Node, v: Val) {
        if let Some(top) = self.memo.last_mut() {
            top.insert(node, v);
        }
    }

    pub fn known(&self, node: &Node) -> Option<Val> {
        self.memo.iter().rev().find_map(|level| level.get(node).copied())
    }

    pub fn pos(&self, group: &Group<'_>, axis: Option<u8>, step: i64) -> Pos {
        let Some(axis) = axis.map(usize::from) else { return Pos::Uniform(group.ir.c64(0)) };
        let at = self.index[axis].unwrap_or_else(|| group.ir.c64(0));
        let first = group.ir.mul_const(at, step);
        if self.lane == Some(axis) && self.lanes > 1 {
            Pos::Steps { first, step }
        } else {
            Pos::Uniform(first)
        }
    }
}

impl<'a> Group<'a> {
    /// The elements of `node` at the present place: a vector, or one value where it does not
    /// follow the vector axis.
    pub fn eval(&mut self, n: &mut Nest, node: &Node) -> Val {
        if let Some(v) = n.known(node) {
            return v;
        }
        let (value, map) = node;
        let result = match self.repr(*value) {
            Repr::Scalar(v) => v,
            Repr::Buffer(b) => self.read_buffer(n, &b, map),
            Repr::Memory(_) => unreachable!("a memory is no value"),
            Repr::Expression => match self.func.def_id(*value) {
                Some(id) => self.compute(n, id, map),
                None => unreachable!("block arguments have a place"),
            },
        };
        if let Some(top) = n.memo.last_mut() {
            top.insert(node.clone(), result);
        }
        result
    }

    pub fn read_buffer(&mut self, n: &Nest, b: &Buffer, map: &Map) -> Val {
        let mem = self.buffer_mem(b);
        let at: Vec<_> = map.iter().map(|&axis| n.pos(self, axis, 1)).collect();
        // A read past the end of a row reads the next one, or the padding after the scratch memory.
        let checked = vec![false; at.len()];
        let access = Access { mem: &mem, at: &at, checked: &checked, lanes: n.lanes, mask: None };
        access.load(&self.s, None, self.safe)
    }

    /// The nodes that an element of an expression is computed from.
    #[deny(clippy::wildcard_enum_match_arm)]
    pub fn inputs(&self, id: OpId, map: &Map) -> Vec<Node> {
        use TileOp::*;
        let func = self.func;
        let op = &func.ops[id];
        let same = |v: &Value| {
            let map = if func.ty(*v).rank() == 0 { Map::new() } else { map.clone() };
            (*v, map)
        };
        match op.code {
            Ew(_) | Select | Cast | Bitcast | Philox | Asm => {
                op.operands.iter().map(same).collect()
            }
            Gather => op.operands[1..].iter().map(same).collect(),
            Load => op.operands[1..].iter().map(|&v| (v, Map::new())).collect(),
            Broadcast => {
                let x = op.operands[0];
                let stretched = func.ty(x).shape().iter().zip(map);
                vec![(x, stretched.map(|(d, &m)| if d.is_one() { None } else { m }).collect())]
            }
            Expand => {
                let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
                let mut map = map.clone();
                map.remove(axis);
                vec![(op.operands[0], map)]
            }
            Transpose => {
                let perm = op.attr("perm").and_then(Attr::as_ints).unwrap_or_default();
                let mut inner = vec![None; map.len()];
                perm.iter().zip(map).for_each(|(&p, &m)| inner[p as usize] = m);
                vec![(op.operands[0], inner)]
            }
            // Its elements have other positions: the operand is in memory, outside the nest.
            Reshape if !same_but_ones(func.ty(op.operands[0]), func.ty(op.result())) => {
                let x = op.operands[0];
                vec![(x, vec![None; func.ty(x).rank()])]
            }
            Reshape => {
                // The long axes are the same ones, in order.
                let x = op.operands[0];
                let to = func.ty(op.result()).shape();
                let mut long = map.iter().zip(to).filter(|(_, d)| !d.is_one()).map(|(&m, _)| m);
                let one =
                    |d: &tessera_ir::Dim| if d.is_one() { None } else { long.next().flatten() };
                vec![(x, func.ty(x).shape().iter().map(one).collect())]
            }
            For | If | While | Yield | Return | SlowPath | ProgramId | NumPrograms | LinearId
            | LocalId | GroupSize | WarpSize | Dim | Origin | Const | Iota | Store | Scatter
            | Accumulate | BufAlloc | CopyAsync | Barrier | Atomic | CopyCommit | CopyWait
            | Mma | GroupReduce | GroupScan | GroupBroadcast | GroupShuffle | Print | Assert
            | Reduce | Scan | ArgReduce | Slice | Concat | Take | ReduceBy | ScanBy | Sort
            | Histogram | Owned | AsmEffect => Vec::new(),
        }
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn compute(&mut self, n: &mut Nest, id: OpId, map: &Map) -> Val {
        use TileOp::*;
        let func = self.func;
        let op = &func.ops[id];
        let ty = func.ty(op.result());
        let dtype = |i: usize| func.ty(op.operands[i]).dtype();
        match op.code {
            Const => self.constant(op),
            Iota => {
                let start = op.attr("start").and_then(Attr::as_int).unwrap_or(0);
                let ir = self.ir;
                match n.pos(self, map[0], 1) {
                    Pos::Uniform(p) => ir.add_const(ir.trunc(p, ir.i32()), start),
                    Pos::Steps { first, .. } => {
                        let first = ir.splat(ir.trunc(first, ir.i32()), n.lanes);
                        ir.add(first, ir.const_steps(ir.vec(ir.i32(), n.lanes), start, 1))
                    }
                    Pos::Each(p) => p,
                }
            }
            Reshape if !same_but_ones(func.ty(op.operands[0]), ty) => {
                let Repr::Buffer(b) = self.repr(op.operands[0]) else {
                    unreachable!("the plan keeps what is given another shape")
                };
                let b = Buffer { shape: ty.static_shape().unwrap_or_default(), ..b };
                self.read_buffer(n, &b, map)
            }
            Broadcast | Expand | Transpose | Reshape => {
                let from = self.inputs(id, map).swap_remove(0);
                self.eval(n, &from)
            }
            Load => self.load(n, id, map),
            Gather => self.gather(n, id, map),
            Ew(ScalarFn::Div) if dtype(0) == DType::F32 => {
                let inputs = self.inputs(id, map);
                let (x, by) = (self.eval(n, &inputs[0]), self.eval(n, &inputs[1]));
                self.divide(x, by)
            }
            Ew(ScalarFn::Neg) if let Some(product) = self.only_product(op.operands[0]) => {
                let args = self.level_inputs(n, product, map);
                // One instruction: adding -0 changes no bit of what the negated product would be.
                let nothing = self.ir.const_float(self.ir.ty(args[0]), -0.0);
                self.ir.fma(self.ir.fneg(args[0]), args[1], nothing)
            }
            Ew(f) => {
                let args = self.level_inputs(n, id, map);
                self.s.apply(f, dtype(0), &args)
            }
            Select => {
                let args = self.level_inputs(n, id, map);
                self.ir.select(args[0], args[1], args[2])
            }
            Cast => {
                let (round, saturate) = cast_mode(op, ty.dtype());
                let x = self.level_inputs(n, id, map)[0];
                self.s.cast(x, dtype(0), ty.dtype(), round, saturate)
            }
            Bitcast => {
                let x = self.level_inputs(n, id, map)[0];
                self.s.bitcast(x, dtype(0), ty.dtype())
            }
            Asm => {
                let args = self.level_inputs(n, id, map);
                let text = Text::of(func, op);
                let all = text.run(&self.s, &args, false);
                all[tessera_tile::ops::asm::results_of(func, op).1.start]
            }
            Philox => {
                let seed = self.eval(n, &(op.operands[0], Map::new()));
                let counter = self.inputs(id, map).swap_remove(1);
                let counter = self.eval(n, &counter);
                let word = op.attr("word").and_then(Attr::as_int).unwrap_or(0) as usize;
                self.s.philox(seed, counter, word)
            }
            For | If | While | Yield | Return | SlowPath | ProgramId | NumPrograms | LinearId
            | LocalId | GroupSize | WarpSize | Dim | Origin | Store | Scatter | Accumulate
            | BufAlloc | CopyAsync | Barrier | Atomic | CopyCommit | CopyWait | Mma
            | GroupReduce | GroupScan | GroupBroadcast | GroupShuffle | Print | Assert | Reduce
            | Scan | ArgReduce | Slice | Concat | Take | ReduceBy | ScanBy | Sort | Histogram
            | Owned | AsmEffect => {
                unreachable!("`is_expression` lists these ops")
            }
        }
    }

    /// The product of f32 that a value is, where it is computed for one user and the machine has
    /// fused operations.
    pub fn only_product(&self, v: Value) -> Option<OpId> {
        let func = self.func;
        let id = func.def_id(v).filter(|_| matches!(self.repr(v), Repr::Expression))?;
        let alone = self.plan.users(v).len() == 1 && !self.plan.kept.contains(&v);
        let product = func.ops[id].code == TileOp::Ew(ScalarFn::Mul);
        let single = func.ty(v).dtype() == DType::F32;
        (alone && product && single && self.isa.has_fma()).then_some(id)
    }

    /// The operands, all with as many lanes as the widest.
    fn level_inputs(&mut self, n: &mut Nest, id: OpId, map: &Map) -> Vec<Val> {
        let inputs = self.inputs(id, map);
        let args: Vec<_> = inputs.iter().map(|node| self.eval(n, node)).collect();
        self.level(&args)
    }

    /// Division of f32. Of a vector by one number it takes the number's reciprocal and two fused
    /// corrections, which give the correctly rounded quotient as long as neither operand is near the
    /// ends of the range; a vector with such an element, or a zero, is divided by the instruction.
    fn divide(&self, x: Val, by: Val) -> Val {
        let ir = self.ir;
        let lanes = ir.lanes(ir.ty(x));
        let plain = |ir: &crate::llvm::Ir| {
            let args = self.level(&[x, by]);
            ir.fdiv(args[0], args[1])
        };
        if lanes == 1 || ir.lanes(ir.ty(by)) > 1 || ir.is_const(by) || !self.isa.has_fma() {
            return plain(ir);
        }
        // Between 2^-60 and 2^60, whatever the sign.
        let (low, span) = (67 << 23, 120 << 23);
        let in_range = |v: Val| {
            let ty = ir.like(ir.ty(v), ir.i32());
            let size = ir.and(ir.bitcast(v, ty), ir.const_int(ty, 0x7fff_ffff));
            ir.icmp(IntCmp::LLVMIntULT, ir.add_const(size, -low), ir.const_int(ty, span))
        };
        let common = ir.and(ir.all(in_range(x)), in_range(by));
        let quick = |ir: &crate::llvm::Ir| {
            let inverse = ir.fdiv(ir.const_float(ir.f32(), 1.0), by);
            let (by, inverse) = (ir.splat(by, lanes), ir.splat(inverse, lanes));
            let near = ir.fmul(x, inverse);
            let rest = ir.fma(ir.fneg(near), by, x);
            ir.fma(rest, inverse, near)
        };
        ir.if_else(common, |ir| vec![quick(ir)], |ir| vec![plain(ir)])[0]
    }

    pub fn level(&self, args: &[Val]) -> Vec<Val> {
        let ir = self.ir;
        let lanes = args.iter().map(|&v| ir.lanes(ir.ty(v))).max().unwrap_or(1);
        let one = |&v: &Val| if ir.lanes(ir.ty(v)) == lanes { v } else { ir.splat(v, lanes) };
        args.iter().map(one).collect()
    }

    /// As many lanes as the nest's vectors have now.
    pub fn widen(&self, n: &Nest, v: Val) -> Val {
        let ir = self.ir;
        if ir.lanes(ir.ty(v)) == n.lanes { v } else { ir.splat(v, n.lanes) }
    }

    fn load(&mut self, n: &mut Nest, id: OpId, map: &Map) -> Val {
        let op = &self.func.ops[id];
        let mem = self.memory(op.operands[0]);
        let (at, checked) = self.block_positions(n, op, map);
        let other = op.group("other").first().map(|&v| self.eval(n, &(v, Map::new())));
        let along = |p: &Pos| matches!(p, Pos::Steps { .. });
        let mask = n.tail.filter(|_| n.lanes == 1 || at.iter().any(along));
        let access = Access { mem: &mem, at: &at, checked: &checked, lanes: n.lanes, mask };
        if n.inside
            && let Some(&ahead) = self.ahead.now.get(&id)
            && let Some(p) = access.row(self.ir)
        {
            // One for each line.
            let bytes = i64::from(n.lanes) * mem.dtype.bytes() as i64;
            for line in 0..(bytes / 64).max(1) {
                let p = self.ir.offset_const(p, 64 * line);
                self.ir.prefetch(self.ir.offset(p, ahead.0), false, ahead.1);
            }
        }
        access.load(&self.s, other, self.safe)
    }

    /// Where the elements of a block access are along each axis of the memory.
    pub fn block_positions(&mut self, n: &Nest, op: &Op<Tile>, map: &Map) -> (Vec<Pos>, Vec<bool>) {
        let ir = self.ir;
        let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
        let steps = op.attr("step").and_then(Attr::as_ints);
        let mut axes = map.iter();
        let mut at = Vec::new();
        for (axis, (&start, &e)) in op.group("at").iter().zip(&extent).enumerate() {
            let start = self.scalar(start);
            let step = steps.as_ref().map_or(1, |s| s[axis]);
            let follow = if e == 0 { None } else { axes.next().copied().flatten() };
            at.push(match n.pos(self, follow, step) {
                Pos::Uniform(p) => Pos::Uniform(ir.add(start, p)),
                Pos::Steps { first, step } => Pos::Steps { first: ir.add(start, first), step },
                Pos::Each(p) => Pos::Each(p),
            });
        }
        (at, if n.inside { vec![false; extent.len()] } else { self.checked(op, extent.len()) })
    }

    /// The axes of a block access that must be held against the extents here.
    fn checked(&self, op: &Op<Tile>, rank: usize) -> Vec<bool> {
        let mut axes = checked_axes(op, rank);
        if let Some(trusted) = &self.trusted {
            let here = |(access, axis): &(OpId, usize)| (&self.func.ops[*access], *axis);
            for (access, axis) in trusted.iter().map(here) {
                if std::ptr::eq(access, op) {
                    axes[axis] = false;
                }
            }
        }
        axes
    }

    fn gather(&mut self, n: &mut Nest, id: OpId, map: &Map) -> Val {
        let op = &self.func.ops[id];
        let mem = self.memory(op.operands[0]);
        let at = self.each_position(n, op, map);
        let other = op.group("other").first().map(|&v| self.eval(n, &(v, Map::new())));
        let sure = op.attr("inbounds").and_then(Attr::as_bool) == Some(true);
        let checked = vec![!sure; at.len()];
        let access = Access { mem: &mem, at: &at, checked: &checked, lanes: n.lanes, mask: n.tail };
        access.load(&self.s, other, self.safe)
    }

    /// The positions of an indexed access: one for each element.
    pub fn each_position(&mut self, n: &mut Nest, op: &Op<Tile>, map: &Map) -> Vec<Pos> {
        let func = self.func;
        let mut out = Vec::new();
        for &v in op.group("at") {
            let own = if func.ty(v).rank() == 0 { Map::new() } else { map.clone() };
            if let Some((first, step)) = self.steps(n, &(v, own.clone()))
                && step != 0
            {
                out.push(Pos::Steps { first, step });
                continue;
            }
            let p = self.eval(n, &(v, own));
            let p = to_index(self.ir, p, func.ty(v).dtype());
            out.push(if self.ir.lanes(self.ir.ty(p)) > 1 { Pos::Each(p) } else { Pos::Uniform(p) });
        }
        out
    }

    /// The index of the first lane and the stride between lanes, where an index is affine along the
    /// vector axis: an iota that is broadcast, and offset and scaled by values that all lanes
    /// share. An index whose computation overflows 32 bits does not count.
    fn steps(&mut self, n: &mut Nest, node: &Node) -> Option<(Val, i64)> {
        let (func, ir) = (self.func, self.ir);
        let lane = n.lane.filter(|_| n.lanes > 1)?;
        let (value, map) = node;
        let dtype = func.ty(*value).dtype();
        if !map.contains(&Some(lane as u8)) {
            let p = self.eval(n, node);
            return Some((to_index(ir, p, dtype), 0));
        }
        if !matches!(self.repr(*value), Repr::Expression) {
            return None;
        }
        let id = func.def_id(*value)?;
        let op = &func.ops[id];
        match op.code {
            TileOp::Iota => {
                let start = op.attr("start").and_then(Attr::as_int).unwrap_or(0);
                match n.pos(self, map[0], 1) {
                    Pos::Steps { first, step } => Some((ir.add_const(first, start), step)),
                    Pos::Uniform(_) | Pos::Each(_) => None,
                }
            }
            TileOp::Reshape if !same_but_ones(func.ty(op.operands[0]), func.ty(op.result())) => {
                None
            }
            TileOp::Broadcast | TileOp::Expand | TileOp::Transpose | TileOp::Reshape => {
                let from = self.inputs(id, map).swap_remove(0);
                self.steps(n, &from)
            }
            TileOp::Cast if dtype == DType::I64 && self.counts(op.operands[0]) => {
                let from = self.inputs(id, map).swap_remove(0);
                self.steps(n, &from)
            }
            TileOp::Ew(f @ (ScalarFn::Add | ScalarFn::Sub | ScalarFn::Mul))
                if dtype == DType::I64 =>
            {
                let inputs = self.inputs(id, map);
                let (a, by_a) = self.steps(n, &inputs[0])?;
                let (b, by_b) = self.steps(n, &inputs[1])?;
                match f {
                    ScalarFn::Add => Some((ir.add(a, b), by_a + by_b)),
                    ScalarFn::Sub => Some((ir.sub(a, b), by_a - by_b)),
                    _ => match (
                        ir.as_int(a).filter(|_| by_a == 0),
                        ir.as_int(b).filter(|_| by_b == 0),
                    ) {
                        (Some(k), _) => Some((ir.mul_const(b, k), by_b.checked_mul(k)?)),
                        (_, Some(k)) => Some((ir.mul_const(a, k), by_a.checked_mul(k)?)),
                        (None, None) => None,
                    },
                }
            }
            _ => None,
        }
    }

    /// Whether a value is an iota, perhaps broadcast.
    fn counts(&self, v: Value) -> bool {
        let Some(op) = self.func.def_id(v).map(|id| &self.func.ops[id]) else { return false };
        match op.code {
            TileOp::Iota => true,
            TileOp::Broadcast | TileOp::Expand => self.counts(op.operands[0]),
            _ => false,
        }
    }

    /// Every node that is computed for the roots.
    pub fn reached(&self, roots: &[Node]) -> BTreeSet<Node> {
        let (mut list, mut seen) = (roots.to_vec(), BTreeSet::new());
        while let Some(node) = list.pop() {
            if !seen.insert(node.clone()) {
                continue;
            }
            if let (Repr::Expression, Some(id)) = (self.repr(node.0), self.func.def_id(node.0)) {
                list.extend(self.inputs(id, &node.1));
            }
        }
        seen
    }

    /// Whether all blocks that the nest reads or writes are inside their memory; `None` where that
    /// is known, or where not all accesses are blocks.
    pub fn all_inside(&mut self, roots: &[Node], writes: &[OpId]) -> Option<Val> {
        let mut ops: BTreeSet<OpId> = writes.iter().copied().collect();
        for (v, _) in self.reached(roots) {
            if let (Repr::Expression, Some(id)) = (self.repr(v), self.func.def_id(v))
                && self.func.ops[id].code == TileOp::Load
            {
                ops.insert(id);
            }
        }
        let mut all: Option<Val> = None;
        for id in ops {
            let op = &self.func.ops[id];
            let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
            let step = op.attr("step").and_then(Attr::as_ints);
            let mem = self.memory(op.operands[0]);
            for (axis, checked) in checked_axes(op, extent.len()).into_iter().enumerate() {
                if !checked {
                    continue;
                }
                let ir = self.ir;
                let at = self.scalar(op.group("at")[axis]);
                let span = (extent[axis].max(1) - 1) * step.as_ref().map_or(1, |s| s[axis]);
                // Positions are compared without a sum that could overflow: at <= dim - span - 1.
                let last = ir.add_const(mem.dims[axis], -span - 1);
                let low = ir.icmp(IntCmp::LLVMIntSGE, at, ir.c64(0));
                let high = ir.icmp(IntCmp::LLVMIntSLE, at, last);
                let both = ir.and(low, high);
                all = Some(all.map_or(both, |a| ir.and(a, both)));
            }
        }
        all.filter(|&v| self.ir.as_int(v) != Some(1))
    }

    pub fn buffer_mem(&self, b: &Buffer) -> Mem {
        let ir = self.ir;
        let bytes = b.dtype.bytes() as i64;
        let mut strides = vec![bytes; b.shape.len()];
        for axis in (0..b.shape.len().saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1] * b.shape[axis + 1];
        }
        Mem {
            base: b.ptr,
            dims: b.shape.iter().map(|&d| ir.c64(d)).collect(),
            unit: strides.iter().map(|&s| s == bytes).collect(),
            strides: strides.into_iter().map(|s| ir.c64(s)).collect(),
            dtype: b.dtype,
            stream: false,
        }
    }
}

/// The extents of a value; none for a scalar.
pub fn shape_of(ty: &Type) -> Vec<i64> {
    ty.static_shape().unwrap_or_default()
}
