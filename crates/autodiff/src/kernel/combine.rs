//! Reductions and scans by a function of the user's.
//!
//! Forward mode: the combiner over pairs of value and tangent is associative where the combiner is.
//! Reverse mode: [`unfolded`] writes the reduction as the balanced tree that it is, and the scan as
//! log2(n) steps over ever longer distances (Hillis and Steele, 1986), both with the combiner applied
//! to whole tiles. These are slices, elementwise ops and concatenations, which have reverse rules;
//! what they need of the levels is recomputed. Nothing but associativity is assumed: the left operand
//! stays on the left.

use super::study::Study;
use super::tangent::Tangents;
use super::weave::{compute, wide};
use std::collections::BTreeMap;
use tessera_diag::{Diagnostic, Loc};
use tessera_ir::{Attr, BlockId, Builder, Dim, OpId, OpSpec, Rewriter, Shape, Type, Value};
use tessera_numerics::{DType, ReduceOp};
use tessera_tile::{Tile, TileBuild, TileFunc, TileOp};

fn is_combined(code: TileOp) -> bool {
    matches!(code, TileOp::ReduceBy | TileOp::ScanBy)
}

/// The kernel without reductions and scans by functions of active values; `None` where there is none.
pub fn unfolded(source: &TileFunc, wrt: &[bool]) -> Option<TileFunc> {
    let study = Study::new(source, wrt);
    let found = |&id: &OpId| {
        let op = &source.ops[id];
        is_combined(op.code) && study.any(&op.results) && is_elementwise(source, op.regions[0])
    };
    let which: Vec<OpId> = source.walk().into_iter().filter(found).collect();
    if which.is_empty() {
        return None;
    }
    let mut rw = Rewriter::new(source);
    let body = rw.new.body;
    for &id in &source.blocks[source.body].ops {
        copy(&mut rw, id, body, &which);
    }
    Some(rw.new)
}

fn copy(rw: &mut Rewriter<'_, Tile>, id: OpId, into: BlockId, which: &[OpId]) {
    if which.contains(&id) {
        let loc = rw.old.ops[id].loc.clone();
        Unfold { rw, into, loc }.op(id);
        return;
    }
    rw.copy_op_with(id, into, &mut |rw, inner, block| copy(rw, inner, block, which));
}

/// Whether a combiner can be applied to whole tiles.
fn is_elementwise(func: &TileFunc, region: BlockId) -> bool {
    func.blocks[region].ops.iter().all(|&id| {
        let op = &func.ops[id];
        match op.code {
            TileOp::If => op.regions.iter().all(|&r| is_elementwise(func, r)),
            TileOp::Ew(_)
            | TileOp::Select
            | TileOp::Cast
            | TileOp::Bitcast
            | TileOp::Const
            | TileOp::Yield => true,
            // What takes nothing is the same number for every element.
            _ => op.operands.is_empty() && op.regions.is_empty() && op.results.len() == 1,
        }
    })
}

struct Unfold<'a, 'f> {
    rw: &'a mut Rewriter<'f, Tile>,
    into: BlockId,
    loc: Loc,
}

impl Unfold<'_, '_> {
    fn b(&mut self) -> Builder<'_, Tile> {
        Builder::at_end(&mut self.rw.new, self.into, self.loc.clone())
    }

    fn value(&mut self, spec: OpSpec<Tile>) -> Value {
        self.b().value(spec).expect("the result type is given")
    }

    fn op(&mut self, id: OpId) {
        let old = self.rw.old;
        let op = &old.ops[id];
        let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
        let reverse = op.attr("reverse").and_then(Attr::as_bool) == Some(true);
        let tiles: Vec<Value> = op.group("x").iter().map(|&v| self.rw.get(v)).collect();
        let made = match op.code {
            TileOp::ReduceBy => self.tree(op.regions[0], tiles, axis),
            _ => self.distances(op.regions[0], tiles, axis, reverse),
        };
        for (&result, value) in op.results.iter().zip(made) {
            self.rw.set(result, value);
        }
    }

    fn extent(&self, v: Value, axis: usize) -> i64 {
        self.rw.new.ty(v).shape()[axis].as_static().unwrap_or(1)
    }

    /// The positions `start`, `start + step`, … along an axis, `count` of them.
    fn part(&mut self, v: Value, axis: usize, (start, step, count): (i64, i64, i64)) -> Value {
        let ty = self.rw.new.ty(v).clone();
        let mut shape = ty.shape().to_vec();
        shape[axis] = Dim::Static(count);
        let (mut starts, mut steps) = (vec![0; shape.len()], vec![1; shape.len()]);
        (starts[axis], steps[axis]) = (start, step);
        let spec = OpSpec::new(TileOp::Slice, &[v]).attr("start", Attr::ints(starts));
        let spec = if step == 1 { spec } else { spec.attr("step", Attr::ints(steps)) };
        self.value(spec.result(Type::value(shape, ty.dtype())))
    }

    fn parts(&mut self, tiles: &[Value], axis: usize, what: (i64, i64, i64)) -> Vec<Value> {
        tiles.iter().map(|&v| self.part(v, axis, what)).collect()
    }

    /// One tile after another along an axis, for each of several.
    fn joined(&mut self, first: &[Value], second: &[Value], axis: usize) -> Vec<Value> {
        let mut out = Vec::new();
        for (&a, &b) in first.iter().zip(second) {
            let ty = self.rw.new.ty(a).clone();
            let mut shape = ty.shape().to_vec();
            shape[axis] = Dim::Static(self.extent(a, axis) + self.extent(b, axis));
            let spec = OpSpec::new(TileOp::Concat, &[])
                .group("parts", &[a, b])
                .attr("axis", Attr::Int(axis as i64))
                .result(Type::value(shape, ty.dtype()));
            out.push(self.value(spec));
        }
        out
    }

    /// The balanced tree over neighbours; a last element without one goes up unchanged.
    fn tree(&mut self, region: BlockId, tiles: Vec<Value>, axis: usize) -> Vec<Value> {
        let mut level = tiles;
        loop {
            let n = self.extent(level[0], axis);
            if n <= 1 {
                break;
            }
            let left = self.parts(&level, axis, (0, 2, n / 2));
            let right = self.parts(&level, axis, (1, 2, n / 2));
            let mut next = self.combined(region, &left, &right);
            if n % 2 != 0 {
                let last = self.parts(&level, axis, (n - 1, 1, 1));
                next = self.joined(&next, &last, axis);
            }
            level = next;
        }
        level.into_iter().map(|v| self.dropped(v, axis)).collect()
    }

    /// A tile without an axis of one element.
    fn dropped(&mut self, v: Value, axis: usize) -> Value {
        let ty = self.rw.new.ty(v).clone();
        let mut shape: Shape = ty.shape().to_vec();
        shape.remove(axis);
        if !shape.is_empty() {
            let spec = OpSpec::new(TileOp::Reshape, &[v]);
            return self.value(spec.result(Type::value(shape, ty.dtype())));
        }
        // The reduction of one element is the element.
        let op = if ty.dtype() == DType::Bool { ReduceOp::Or } else { ReduceOp::Sum };
        let wide = self.b().cast(v, ty.dtype().compute());
        let one = match op {
            ReduceOp::Or => self.b().reduce(v, op, axis),
            _ => self.b().reduce(wide, op, axis),
        };
        self.b().cast(one, ty.dtype())
    }

    /// After the step with distance d, every position holds the combination of the last 2d elements.
    fn distances(
        &mut self,
        region: BlockId,
        tiles: Vec<Value>,
        axis: usize,
        reverse: bool,
    ) -> Vec<Value> {
        let n = self.extent(tiles[0], axis);
        let (mut held, mut far) = (tiles, 1);
        while far < n {
            let rest = n - far;
            let (low, high) = ((0, 1, rest), (far, 1, rest));
            let (left, right) = if reverse { (high, low) } else { (low, high) };
            let left = self.parts(&held, axis, left);
            let right = self.parts(&held, axis, right);
            let next = self.combined(region, &left, &right);
            held = if reverse {
                let done = self.parts(&held, axis, (rest, 1, far));
                self.joined(&next, &done, axis)
            } else {
                let done = self.parts(&held, axis, (0, 1, far));
                self.joined(&done, &next, axis)
            };
            far *= 2;
        }
        held
    }

    /// The combiner applied to the elements of tiles.
    fn combined(&mut self, region: BlockId, left: &[Value], right: &[Value]) -> Vec<Value> {
        let shape = self.rw.new.ty(left[0]).shape().to_vec();
        let args = self.rw.old.blocks[region].args.iter();
        let mut local = args.copied().zip(left.iter().chain(right).copied()).collect();
        self.region(region, &shape, &mut local)
    }

    fn region(
        &mut self,
        region: BlockId,
        shape: &Shape,
        local: &mut BTreeMap<Value, Value>,
    ) -> Vec<Value> {
        let old = self.rw.old;
        for &id in &old.blocks[region].ops {
            let op = &old.ops[id];
            if op.is_terminator() {
                return op.group("values").iter().map(|&v| self.whole(v, shape, local)).collect();
            }
            if op.code == TileOp::If {
                let cond = self.whole(op.operands[0], shape, local);
                let yes = self.region(op.regions[0], shape, local);
                let no = self.region(op.regions[1], shape, local);
                for ((&result, a), b) in op.results.iter().zip(yes).zip(no) {
                    let chosen = self.b().select(cond, a, b);
                    local.insert(result, chosen);
                }
                continue;
            }
            if op.operands.is_empty() && op.code != TileOp::Const {
                self.rw.copy_op(id, self.into);
                continue;
            }
            let operands: Vec<Value> =
                op.operands.iter().map(|&v| self.whole(v, shape, local)).collect();
            let ty = Type::value(shape.clone(), old.ty(op.result()).dtype());
            let mut spec = OpSpec::new(op.code, &operands).result(ty);
            spec.attrs = op.attrs.clone();
            let made = self.value(spec);
            local.insert(op.result(), made);
        }
        Vec::new()
    }

    /// A value of the combiner for every element; what comes from outside is the same for all.
    fn whole(&mut self, v: Value, shape: &Shape, local: &BTreeMap<Value, Value>) -> Value {
        match local.get(&v) {
            Some(&tile) => tile,
            None => {
                let one = self.rw.get(v);
                self.b().broadcast(one, shape.clone())
            }
        }
    }
}

impl Tangents<'_, '_> {
    /// The op over pairs of value and tangent.
    pub fn combined(&mut self, id: OpId) -> Result<(), Diagnostic> {
        let op = &self.study.func.ops[id];
        let moving: Vec<usize> =
            (0..op.results.len()).filter(|&i| self.study.active[op.results[i]]).collect();
        if moving.is_empty() {
            let into = self.w.block;
            compute(&mut self.w.rw, id, into);
            return Ok(());
        }
        let func = self.study.func;
        let mut tiles = self.w.get_all(op.group("x"));
        let mut types: Vec<Type> = op.results.iter().map(|&v| func.ty(v).clone()).collect();
        for &i in &moving {
            tiles.push(self.made(op.group("x")[i]));
            types.push(wide(func.ty(op.results[i])));
        }
        let mut spec = OpSpec::new(op.code, &[]).group("x", &tiles).results(types);
        spec.attrs = op.attrs.clone();
        let made = self.w.op(spec)?;
        let (outer, region) = (self.w.block, op.regions[0]);
        let new = self.w.rw.new.ops[made].regions[0];
        let old_args = &func.blocks[region].args;
        for side in old_args.chunks(op.results.len()) {
            for &arg in side {
                let value = self.w.rw.new.add_arg(new, func.ty(arg).clone(), func.name_of(arg));
                self.w.rw.set(arg, value);
            }
            for &i in &moving {
                let t = self.w.rw.new.add_arg(new, wide(func.ty(side[i])), None);
                self.set_tangent(side[i], t);
            }
        }
        self.w.block = new;
        self.block(region)?;
        self.w.loc = op.loc.clone();
        let yielded = self.study.yielded(region);
        let mut out = self.w.get_all(yielded);
        for &i in &moving {
            out.push(self.made(yielded[i]));
        }
        self.w.b().yield_(&out);
        self.w.block = outer;
        let results = self.w.rw.new.ops[made].results.clone();
        for (&old, &new) in op.results.iter().zip(&results) {
            self.w.rw.set(old, new);
        }
        for (&i, &t) in moving.iter().zip(&results[op.results.len()..]) {
            self.set_tangent(op.results[i], t);
        }
        Ok(())
    }
}
