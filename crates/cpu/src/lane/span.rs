//! The loop over vectors of lanes of one segment.
//!
//! Its body is emitted twice: for whole vectors of lanes that need no masks ([`super::range`]), and
//! under masks for all others.

use super::uniform::is_pure;
use super::{Lanes, Repr};
use crate::isa::Isa;
use crate::llvm::{IntCmp, Val};
use std::collections::BTreeSet;
use tessera_ir::{OpId, Value};
use tessera_numerics::{DType, ScalarFn, expansion};
use tessera_support::Entity;
use tessera_tile::TileOp;

/// Segments heavier than this are emitted under masks only, where masks are cheap.
const HEAVY: usize = 2000;

/// What is done in each vector after the segment's ops.
pub type Finish<'f, 'a> = &'f mut dyn FnMut(&mut Lanes<'a>);

impl<'a> Lanes<'a> {
    /// Emits ops for all lanes that are here, vector after vector; `finish` comes after them in each
    /// and sees the values that it wants.
    pub fn vectors(&mut self, items: &[OpId], wants: &[Value], finish: Option<Finish<'_, 'a>>) {
        if finish.is_none() && !items.iter().any(|&id| self.does_something(id)) {
            return;
        }
        let mut nothing = |_: &mut Self| {};
        let finish = finish.unwrap_or(&mut nothing);
        let outside = self.env.clone();
        let nested = self.nested(items);
        for &id in &nested {
            let op = &self.func.ops[id];
            if self.plan.is_group(id) && !op.is_terminator() && !self.is_known(op.result()) {
                let repr = self.compute(op);
                self.set(op.result(), repr);
            }
        }
        let foreign = self.foreign(&nested, wants);
        for &v in &foreign {
            if !self.plan.varies(v) {
                let repr = self.repr(v);
                self.set(v, repr);
            }
        }
        let heavy = self.isa >= Isa::Avx512 && self.weight(&nested) > HEAVY;
        self.each_row(&mut |lanes| match lanes.state.mask {
            Some(slot) => lanes.masked_vectors(items, &foreign, Some(slot), finish),
            None if heavy => lanes.masked_vectors(items, &foreign, None, finish),
            None => lanes.all_vectors(items, &foreign, finish),
        });
        self.env = outside;
        (self.mask, self.sure) = (None, true);
    }

    fn is_known(&self, v: Value) -> bool {
        !matches!(self.env[v.index()], Repr::Absent)
    }

    /// Whether anything is left of an op when its segment is over.
    fn does_something(&self, id: OpId) -> bool {
        let op = &self.func.ops[id];
        !is_pure(op.code) || op.results.iter().any(|&v| self.plan.slot(v).is_some())
    }

    /// The ops and all that their regions hold.
    fn nested(&self, items: &[OpId]) -> Vec<OpId> {
        let mut out = Vec::new();
        for &id in items {
            out.push(id);
            for &region in &self.func.ops[id].regions {
                self.func.walk_block(region, &mut |inner| out.push(inner));
            }
        }
        out
    }

    /// The values that come from other segments.
    fn foreign(&self, nested: &[OpId], wants: &[Value]) -> Vec<Value> {
        let func = self.func;
        let mut own: BTreeSet<Value> = BTreeSet::new();
        for &id in nested {
            own.extend(&func.ops[id].results);
            for &region in &func.ops[id].regions {
                own.extend(&func.blocks[region].args);
            }
        }
        let used = nested.iter().flat_map(|&id| func.ops[id].operands.iter()).chain(wants);
        let foreign = used
            .copied()
            .filter(|&v| !func.ty(v).is_memory() && !own.contains(&v) && !self.is_known(v));
        foreign.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// About how many instructions a segment is.
    fn weight(&self, nested: &[OpId]) -> usize {
        let one = |id: &OpId| {
            let op = &self.func.ops[*id];
            match op.code {
                TileOp::Ew(ScalarFn::FloorDiv | ScalarFn::Mod) => 20,
                TileOp::Ew(f) if expansion(f).is_some() => 60,
                TileOp::Philox => 100,
                TileOp::Load | TileOp::Store | TileOp::Accumulate => 10,
                _ => 2,
            }
        };
        nested.iter().map(one).sum()
    }

    fn masked_vectors(
        &mut self,
        items: &[OpId],
        foreign: &[Value],
        slot: Option<u64>,
        finish: Finish<'_, 'a>,
    ) {
        let ir = self.ir;
        let (lo, hi) = (self.span.lo, self.span.hi);
        ir.for_range(lo, hi, self.width.into(), &[], |ir, at, _| {
            self.at = at;
            let mut mask = ir.first_lanes(ir.sub(hi, at), self.width);
            match slot {
                None => self.masked_body(items, foreign, mask, finish),
                Some(slot) => {
                    mask = ir.and(mask, self.read_slot(slot, DType::Bool));
                    if items.is_empty() {
                        // A value that is only stored is stored for all lanes: the mask may be old.
                        self.masked_body(items, foreign, mask, finish);
                    } else {
                        ir.when(ir.any(mask), |_| self.masked_body(items, foreign, mask, finish));
                    }
                }
            }
            Vec::new()
        });
    }

    fn masked_body(
        &mut self,
        items: &[OpId],
        foreign: &[Value],
        mask: Val,
        finish: Finish<'_, 'a>,
    ) {
        let before = self.env.clone();
        (self.mask, self.sure) = (Some(mask), !items.is_empty());
        self.body(items, foreign, finish);
        self.env = before;
    }

    fn body(&mut self, items: &[OpId], foreign: &[Value], finish: Finish<'_, 'a>) {
        foreign.iter().for_each(|&v| self.bring(v));
        items.iter().for_each(|&id| self.op(id));
        finish(self);
    }

    /// Makes a value of another segment known: read from its slot, or computed again.
    fn bring(&mut self, v: Value) {
        if self.is_known(v) {
            return;
        }
        match (self.plan.slot(v), self.func.def(v)) {
            (Some(slot), _) if !self.plan.again(v) => {
                let x = self.read_slot(slot, self.dtype(v));
                self.set(v, Repr::Each(x));
            }
            (_, Some(op)) => {
                op.operands.iter().for_each(|&x| self.bring(x));
                let repr = self.compute(op);
                self.set(v, repr);
            }
            (_, None) => unreachable!("what has no op and varies has a slot"),
        }
    }

    fn all_vectors(&mut self, items: &[OpId], foreign: &[Value], finish: Finish<'_, 'a>) {
        let ir = self.ir;
        let width = i64::from(self.width);
        let mut range = self.range(items);
        let (lo, hi) = (self.span.lo, self.span.hi);
        // The last place where a whole vector is in the range.
        let least = ir.c64(i64::MIN + width);
        let last = ir.add_const(ir.smax(range.hi, least), -width);
        let (before, head) = (ir.here(), ir.block("lanes"));
        let (some, main) = (ir.block("some"), ir.block("whole"));
        let (edge, done) = (ir.block("masked"), ir.block("done"));
        ir.jump(head);
        ir.goto(head);
        let at = ir.phi(ir.i64(), &[(lo, before)]);
        ir.branch(ir.icmp(IntCmp::LLVMIntSLT, at, hi), some, done);
        ir.goto(some);
        self.at = at;
        let mut plain = ir.icmp(IntCmp::LLVMIntSLE, at, last);
        if range.lo != lo {
            plain = ir.and(plain, ir.icmp(IntCmp::LLVMIntSGE, at, range.lo));
        }
        let condition = self.vector_condition(&mut range, items);
        plain = condition.map_or(plain, |test| ir.and(plain, test));
        let some = ir.here();
        ir.branch(plain, main, edge);

        ir.goto(main);
        // Without a test of each vector, and positions found for it, unmasked vectors follow one another.
        let each = condition.is_some() || range.locals.values().any(Option::is_some);
        let run = (!each).then(|| ir.phi(ir.i64(), &[(at, some)]));
        self.at = run.unwrap_or(at);
        (self.mask, self.sure) = (None, true);
        let fresh = self.env.clone();
        self.assume(&range);
        self.body(items, foreign, finish);
        self.env.clone_from(&fresh);
        self.inside = BTreeSet::new();
        let next = ir.add_const(self.at, width);
        let end = ir.here();
        match run {
            Some(run) => {
                ir.incoming(run, next, end);
                ir.branch(ir.icmp(IntCmp::LLVMIntSLE, next, last), main, head);
            }
            None => ir.jump(head),
        }
        ir.incoming(at, next, end);

        ir.goto(edge);
        self.at = at;
        let mask = ir.first_lanes(ir.sub(hi, at), self.width);
        self.masked_body(items, foreign, mask, finish);
        let next = ir.add_const(at, width);
        ir.incoming(at, next, ir.here());
        ir.jump(head);
        ir.goto(done);
    }
}
