//! A kernel that is one matmul over the whole grid ([`super::whole`]), as a blocked GEMM.

use super::nest::{Map, Nest};
use super::whole_matmul::{COL, DEPTH, ROW, WholeMatmul, zero_outside};
use super::{Group, Repr};
use crate::contract::{Contraction, Kind, Left, PART, describe, emit, workspace_bytes};
use crate::frame;
use crate::isa::Isa;
use crate::llvm::{IntCmp, Ir, Val};
use crate::memory::Access;
use std::cell::RefCell;
use std::collections::BTreeMap;
use tessera_ir::{Attr, OpId, Value};
use tessera_numerics::{DType, Profile};
use tessera_tile::TileOp;
use tessera_tile::attrs::checked_axes;

/// An axis long enough that no loop over it is taken for one of a single iteration.
const LONG: i64 = 1 << 40;

/// The part of the result that one call computes.
#[derive(Copy, Clone)]
struct Region {
    row: Val,
    col: Val,
    rows: Val,
    cols: Val,
    depth: Val,
    /// Rows and columns of all parts together, and what is known of them.
    all: [Val; 2],
    whole: [Option<i64>; 2],
    /// What the product of padding adds to an accumulator: positive zero where the user's loop
    /// multiplies padding after the end of k, else negative zero, which changes nothing.
    padding: Val,
}

impl<'a> Group<'a> {
    pub fn blocked(&mut self, whole: &WholeMatmul, begin: Val, end: Val) {
        let kind = self.kind(whole);
        self.code.notes.push(("micro_kernel", describe(self.isa, kind)));
        self.trusted = Some(whole.trusted.clone());
        let workspace = self.room(workspace_bytes(self.isa, kind));
        let ir = self.ir;
        // Axes of the grid that are neither rows nor columns are run one after another.
        let batch: Vec<usize> = (0..3).filter(|a| !whole.axes.contains(a)).collect();
        let extent = self.grid(batch[0]);
        ir.for_range(ir.c64(0), extent, 1, &[], |_, at, _| {
            self.ids[batch[0]] = at;
            self.scalars_of(whole);
            let region = self.region(whole, begin, end);
            self.emit_product(whole, kind, region, workspace);
            Vec::new()
        });
    }

    fn kind(&self, whole: &WholeMatmul) -> Kind {
        let op = &self.func.ops[whole.mma];
        let dtype = |i: usize| self.func.ty(op.operands[i]).dtype();
        let in_order = self.in_order(whole);
        let units = self.isa == Isa::Amx;
        match (dtype(0), dtype(1)) {
            // AMX adds in its own order and flushes denormals.
            (DType::BF16, DType::BF16)
                if units && self.profile == Profile::Default && !in_order =>
            {
                Kind::Bf16Amx
            }
            (DType::I8, DType::I8) if units => Kind::I8Amx,
            (DType::U8, DType::U8) if units => Kind::U8Amx,
            (DType::I8, DType::U8) if units => Kind::I8U8Amx,
            (DType::U8, DType::I8) if units => Kind::U8I8Amx,
            (DType::F64, _) => Kind::F64,
            (a, _) if a.carrier() == DType::F32 => Kind::F32,
            _ => Kind::I32,
        }
    }

    /// Whether sums are to be added along k, one position after another.
    fn in_order(&self, whole: &WholeMatmul) -> bool {
        self.func.ops[whole.mma].attr("class").and_then(Attr::as_word) == Some("seq")
    }

    /// Scalars at the first group's corner and the loop's first iteration: accesses continue from
    /// there.
    fn scalars_of(&mut self, whole: &WholeMatmul) {
        let func = self.func;
        let zero = self.ir.c64(0);
        whole.axes.iter().for_each(|&axis| self.ids[axis] = zero);
        for &id in &func.blocks[func.body].ops {
            let op = &func.ops[id];
            if id == whole.loop_op {
                let lo = self.scalar(op.operands[0]);
                self.set(whole.k, Repr::Scalar(lo));
                for &inner in &func.blocks[op.regions[0]].ops {
                    self.scalar_op(inner);
                }
            } else {
                self.scalar_op(id);
            }
        }
    }

    fn scalar_op(&mut self, id: OpId) {
        let op = &self.func.ops[id];
        match op.results.first() {
            Some(&v) if self.func.ty(v).rank() == 0 => self.op(id),
            Some(&v) => self.set(v, Repr::Expression),
            None => {}
        }
    }

    fn region(&mut self, whole: &WholeMatmul, begin: Val, end: Val) -> Region {
        let ir = self.ir;
        let first = whole.stores[0];
        let mem = self.memory(self.func.ops[first].operands[0]);
        let bound = |label: u8| {
            let axis = whole.accesses[&first].iter().position(|&l| l == Some(label));
            mem.dims[axis.unwrap_or(0)]
        };
        let side = |group: &Self, label: u8| {
            let groups = group.grid(whole.axes[label as usize]);
            let all = ir.mul_const(groups, whole.tile[label as usize]);
            ir.smin(all, bound(label))
        };
        let (rows, cols) = (side(self, ROW), side(self, COL));
        let all = [rows, cols];
        let whole_sizes = all.map(|size| ir.as_int(size));
        let (depth, padding) = self.depth(whole);
        // The longer side is divided among the parts, at multiples of the block sizes.
        let parts = self.word(frame::PARTS);
        let cut = |total: Val, part: Val, unit: i64| {
            let units = ir.sdiv(ir.add_const(total, unit - 1), ir.c64(unit));
            let at = ir.mul_const(ir.sdiv(ir.mul(units, part), parts), unit);
            ir.smin(at, total)
        };
        let by_cols = ir.icmp(IntCmp::LLVMIntSGE, cols, rows);
        let zero = ir.c64(0);
        let part = |total: Val, unit: i64, divided: Val| {
            let (lo, hi) = (cut(total, begin, unit), cut(total, end, unit));
            (ir.select(divided, lo, zero), ir.select(divided, ir.sub(hi, lo), total))
        };
        let (row, rows) = part(rows, PART[0], ir.not(by_cols));
        let (col, cols) = part(cols, PART[1], by_cols);
        Region { row, col, rows, cols, depth, all, whole: whole_sizes, padding }
    }

    /// The extent of k, and what the padding of the user's loop adds.
    fn depth(&mut self, whole: &WholeMatmul) -> (Val, Val) {
        let ir = self.ir;
        let op = &self.func.ops[whole.loop_op];
        let (lo, hi) = (self.scalar(op.operands[0]), self.scalar(op.operands[1]));
        let step = whole.tile[2];
        let span = ir.smax(ir.sub(hi, lo), ir.c64(0));
        let rounds = ir.sdiv(ir.add_const(span, step - 1), ir.c64(step));
        let padded = ir.mul_const(rounds, step);
        let (plus, minus) = (ir.const_float(ir.f32(), 0.0), ir.const_bits(ir.f32(), 1 << 31));
        let Some((id, axis)) = whole.depth_bound else { return (padded, minus) };
        let access = &self.func.ops[id];
        let mem = self.memory(access.operands[0]);
        let start = self.scalar(access.group("at")[axis]);
        let there = ir.smax(ir.sub(mem.dims[axis], start), ir.c64(0));
        let depth = ir.smin(padded, there);
        let short = ir.icmp(IntCmp::LLVMIntSLT, depth, padded);
        let [a, b] = [0, 1].map(|i| zero_outside(self.func, self.func.ops[whole.mma].operands[i]));
        let plus = if a == b { plus } else { minus };
        (depth, ir.select(short, plus, minus))
    }

    fn emit_product(&mut self, whole: &WholeMatmul, kind: Kind, r: Region, workspace: Val) {
        let func = self.func;
        let ir = self.ir;
        let isa = self.isa;
        let op = &func.ops[whole.mma];
        let (a, b) = (op.operands[0], op.operands[1]);
        let zero = ir.c64(0);
        let from_zero = self.is_zero(whole.init);
        let in_place = [(a, ROW, r.row), (b, COL, r.col)]
            .map(|(v, label, from)| self.in_place(whole, kind, v, label, from));
        // Whether an operand is contiguous along k alone, and whether along its other axis alone.
        let lies = [(a, ROW), (b, COL)].map(|(v, label)| {
            [[DEPTH, label], [label, DEPTH]].map(|[x, y]| self.is_transposed(whole, v, x, y))
        });
        let any_order = self.profile == Profile::Default && !self.in_order(whole);
        let sum_type = func.ty(whole.sums).dtype();
        let group = RefCell::new(self);
        let operand = |v: Value, ij: [Val; 2], from: [Val; 2], lane, lanes, mask| {
            let mut group = group.borrow_mut();
            let mut n = place(ir, ij, from, lane, lanes, mask);
            group.operand(&mut n, kind, v)
        };
        let left =
            |ij: [Val; 2], lane, lanes, mask| operand(a, ij, [r.row, zero], lane, lanes, mask);
        let right =
            |ij: [Val; 2], lane, lanes, mask| operand(b, ij, [zero, r.col], lane, lanes, mask);
        let begin = |ij: [Val; 2], lane, lanes, mask| {
            let mut group = group.borrow_mut();
            let mut n = place(ir, ij, [r.row, r.col], lane, lanes, mask);
            let x = group.eval(&mut n, &(whole.init, both()));
            group.widen(&n, x)
        };
        let end = |ij: [Val; 2], lane, sums: Val, mask: Option<Val>| {
            let lanes = ir.lanes(ir.ty(sums));
            let mut n = place(ir, ij, [r.row, r.col], lane, lanes, mask);
            let sums = match sum_type {
                DType::F32 => ir.fadd(sums, ir.splat(r.padding, lanes)),
                DType::F64 => {
                    let padding = ir.fpext(r.padding, ir.f64());
                    ir.fadd(sums, ir.splat(padding, lanes))
                }
                _ => sums,
            };
            n.memo = vec![BTreeMap::from([((whole.sums, both()), sums)])];
            for &store in &whole.stores {
                let mut group = group.borrow_mut();
                match func.ops[store].code {
                    TileOp::Accumulate => group.fold(&mut n, store),
                    _ => group.store(&mut n, store),
                }
            }
        };
        // Of the matmul and of the transposed one, the operands along k and along their other axis,
        // and the sums.
        let (left_k, left_m) = (
            |_: &Ir, m, k, lanes, mask| left([m, k], 1, lanes, mask),
            |_: &Ir, m, k, lanes, mask| left([m, k], 0, lanes, mask),
        );
        let (right_n, right_k) = (
            |_: &Ir, k, n, lanes, mask| right([k, n], 1, lanes, mask),
            |_: &Ir, k, n, lanes, mask| right([k, n], 0, lanes, mask),
        );
        let (start, finish) = (
            |_: &Ir, m, n, lanes, mask| begin([m, n], 1, lanes, mask),
            |_: &Ir, m, n, sums, mask| end([m, n], 1, sums, mask),
        );
        let (turned_left_k, turned_left_n) = (
            |_: &Ir, n, k, lanes, mask| right([k, n], 0, lanes, mask),
            |_: &Ir, n, k, lanes, mask| right([k, n], 1, lanes, mask),
        );
        let (turned_right_m, turned_right_k) = (
            |_: &Ir, k, m, lanes, mask| left([m, k], 0, lanes, mask),
            |_: &Ir, k, m, lanes, mask| left([m, k], 1, lanes, mask),
        );
        let (turned_start, turned_finish) = (
            |_: &Ir, n, m, lanes, mask| begin([m, n], 0, lanes, mask),
            |_: &Ir, n, m, sums, mask| end([m, n], 0, sums, mask),
        );
        let [[a_along_k, a_along_m], [b_along_k, b_along_n]] = lies;
        let plain = Contraction {
            kind,
            rows: r.rows,
            cols: r.cols,
            depth: r.depth,
            whole: r.whole,
            all: r.all,
            few: group.borrow().few,
            any_order,
            a: in_place[0].map_or(Left::Computed(&left_k), Left::at),
            a_along_m: if a_along_m { Some(&left_m) } else { None },
            b: &right_n,
            b_along_k: if b_along_k { Some(&right_k) } else { None },
            start: if from_zero { None } else { Some(&start) },
            finish: &finish,
            workspace,
        };
        let turned = Contraction {
            rows: r.cols,
            cols: r.rows,
            whole: [r.whole[1], r.whole[0]],
            all: [r.all[1], r.all[0]],
            a: in_place[1].map_or(Left::Computed(&turned_left_k), Left::at),
            a_along_m: if b_along_n { Some(&turned_left_n) } else { None },
            b: &turned_right_m,
            b_along_k: if a_along_k { Some(&turned_right_k) } else { None },
            start: if from_zero { None } else { Some(&turned_start) },
            finish: &turned_finish,
            ..plain
        };
        emit(ir, isa, &plain, &turned);
    }

    /// Elements of an operand in the type that the kind multiplies.
    fn operand(&mut self, n: &mut Nest, kind: Kind, v: Value) -> Val {
        let dtype = self.func.ty(v).dtype();
        let codes = !matches!(kind, Kind::F32 | Kind::F64 | Kind::I32);
        let lanes = n.lanes;
        if codes
            && let Some(id) = self.func.def_id(v)
            && self.func.ops[id].code == TileOp::Load
            && self.func.ops[id].group("other").is_empty()
        {
            return self.load_codes(n, id);
        }
        let x = self.eval(n, &(v, both()));
        let x = if self.ir.lanes(self.ir.ty(x)) == lanes { x } else { self.ir.splat(x, lanes) };
        if codes { self.s.encode(x, dtype) } else { x }
    }

    /// The bits in memory, as they are.
    fn load_codes(&mut self, n: &mut Nest, id: OpId) -> Val {
        let op = &self.func.ops[id];
        let mut mem = self.memory(op.operands[0]);
        let (at, checked) = self.block_positions(n, op, &both());
        mem.dtype = match mem.dtype.bytes() {
            1 => DType::U8,
            _ => DType::U16,
        };
        let access = Access { mem: &mem, at: &at, checked: &checked, lanes: n.lanes, mask: n.tail };
        let x = access.load(&self.s, None, self.safe);
        let x = self.widen(n, x);
        self.ir.trunc(x, self.s.stored(mem.dtype, n.lanes))
    }

    /// The address of an operand's rows and their distance, if they are in memory as the matmul reads
    /// them. A row follows the axis of the result that `label` names, and is contiguous along k.
    fn in_place(
        &mut self,
        whole: &WholeMatmul,
        kind: Kind,
        v: Value,
        label: u8,
        from: Val,
    ) -> Option<(Val, Val)> {
        let func = self.func;
        let id = func.def_id(v).filter(|&id| func.ops[id].code == TileOp::Load)?;
        let op = &func.ops[id];
        let fits = match kind {
            Kind::F32 => func.ty(v).dtype() == DType::F32,
            Kind::F64 => func.ty(v).dtype() == DType::F64,
            Kind::I32 => func.ty(v).dtype() == DType::I32,
            Kind::Bf16Amx | Kind::I8Amx | Kind::U8Amx | Kind::I8U8Amx | Kind::U8I8Amx => true,
        };
        let follows = &whole.accesses[&id];
        let axis = |label: u8| follows.iter().position(|&l| l == Some(label));
        let (row, depth) = (axis(label)?, axis(DEPTH)?);
        let mem = self.memory(op.operands[0]);
        let sure = whole.trusted.contains(&(id, row)) && whole.trusted.contains(&(id, depth));
        // Along the other axes it is at one position, which must be known to be inside.
        let others = checked_axes(op, follows.len());
        let inside = (0..follows.len()).all(|i| i == row || i == depth || !others[i]);
        if !fits || !sure || !inside || !mem.unit[depth] {
            return None;
        }
        let ir = self.ir;
        let mut base = mem.base;
        for (i, &at) in op.group("at").iter().enumerate() {
            let at = self.scalar(at);
            let at = if i == row { ir.add(at, from) } else { at };
            base = ir.offset(base, ir.mul(at, mem.strides[i]));
        }
        Some((base, mem.strides[row]))
    }

    /// Whether an operand's elements are contiguous along the one axis of the matmul, and not along
    /// the other.
    fn is_transposed(&self, whole: &WholeMatmul, v: Value, along: u8, other: u8) -> bool {
        let (mut list, mut found) = (vec![v], false);
        while let Some(v) = list.pop() {
            let Some(id) = self.func.def_id(v) else { continue };
            let op = &self.func.ops[id];
            if op.code == TileOp::Load
                && let Some(follows) = whole.accesses.get(&id)
            {
                let mem = self.memory(op.operands[0]);
                let unit = |label: u8| {
                    follows.iter().position(|&l| l == Some(label)).is_some_and(|a| mem.unit[a])
                };
                found |= unit(along) && !unit(other);
            } else if self.func.ty(v).rank() > 0 {
                list.extend(&op.operands);
            }
        }
        found
    }
}

/// The map of a tile whose axes are the two of a place.
fn both() -> Map {
    vec![Some(0), Some(1)]
}

/// A place in a product as a nest: two indices, vectors along one of them.
fn place(
    ir: &Ir,
    ij: [Val; 2],
    from: [Val; 2],
    lane: usize,
    lanes: u32,
    mask: Option<Val>,
) -> Nest {
    let mut n = Nest::new(&[LONG, LONG]);
    n.lane = Some(lane);
    n.lanes = lanes;
    n.tail = mask;
    for axis in 0..2 {
        n.index[axis] = Some(match ir.as_int(from[axis]) {
            Some(0) => ij[axis],
            _ => ir.add(ij[axis], from[axis]),
        });
    }
    n
}
