//! Loops and branches of one vector of lanes. Where lanes diverge, each path runs under the mask of
//! the lanes that take it, and is skipped where there are none.

use super::uniform::{is_pure, yields};
use super::{Lanes, Repr};
use crate::llvm::{IntCmp, Val};
use tessera_ir::{BlockId, OpId, Value};
use tessera_numerics::{ScalarFn, expansion};
use tessera_support::Entity;
use tessera_tile::TileOp;

/// A shorter region is executed by all lanes under a mask (if-conversion): a branch costs more.
const SHORT: usize = 8;
/// Iterations after which the host may be polled again.
const BRIEF: i64 = 64;

impl<'a> Lanes<'a> {
    /// Emits a region for the lanes of a mask; gives what it yields.
    fn region(&mut self, block: BlockId, mask: Option<Val>) -> Vec<Repr> {
        let outer = std::mem::replace(&mut self.mask, mask);
        self.block(block);
        self.mask = outer;
        yields(self.func, block).into_iter().map(|v| self.repr(v)).collect()
    }

    /// In the form that its uses were planned for: a scalar, or a vector.
    fn formed(&self, like: Value, repr: Repr) -> Val {
        match repr {
            Repr::Uniform(x) if !self.plan.varies(like) => x,
            repr => self.widen(repr),
        }
    }

    fn planned(&self, like: Value, x: Val) -> Repr {
        if self.plan.varies(like) { Repr::Each(x) } else { Repr::Uniform(x) }
    }

    fn formed_all(&self, like: &[Value], reprs: Vec<Repr>) -> Vec<Val> {
        like.iter().zip(reprs).map(|(&v, r)| self.formed(v, r)).collect()
    }

    fn bind(&mut self, values: &[Value], xs: &[Val]) {
        for (&v, &x) in values.iter().zip(xs) {
            self.set(v, self.planned(v, x));
        }
    }

    /// The values after an op with regions, kept where they are wanted.
    fn finish(&mut self, results: &[Value]) {
        results.iter().for_each(|&v| self.keep(v));
    }

    pub fn branch(&mut self, id: OpId) {
        let op = &self.func.ops[id];
        let ir = self.ir;
        match self.repr(op.operands[0]) {
            Repr::Uniform(c) => match ir.as_int(c) {
                Some(known) => {
                    let side = op.regions[usize::from(known == 0)];
                    let out = self.region(side, self.mask);
                    op.results.iter().zip(out).for_each(|(&v, r)| self.set(v, r));
                }
                None => self.together(id, c),
            },
            cond => self.apart(id, self.widen(cond)),
        }
        self.finish(&self.func.ops[id].results);
    }

    /// A uniform branch.
    fn together(&mut self, id: OpId, cond: Val) {
        let op = &self.func.ops[id];
        let ir = self.ir;
        let (yes, no, end) = (ir.block("then"), ir.block("else"), ir.block("end"));
        ir.branch(cond, yes, no);
        let mut arms = Vec::new();
        for (&region, block) in op.regions.iter().zip([yes, no]) {
            ir.goto(block);
            let out = self.region(region, self.mask);
            arms.push((self.formed_all(&op.results, out), ir.here()));
            ir.jump(end);
        }
        ir.goto(end);
        let join = |(&x, &y): (&Val, &Val)| ir.phi(ir.ty(x), &[(x, arms[0].1), (y, arms[1].1)]);
        let xs: Vec<_> = arms[0].0.iter().zip(&arms[1].0).map(join).collect();
        self.bind(&op.results, &xs);
    }

    /// A divergent branch.
    fn apart(&mut self, id: OpId, cond: Val) {
        let op = &self.func.ops[id];
        let ir = self.ir;
        let within = |c: Val| self.mask.map_or(c, |m| ir.and(m, c));
        let (yes, no) = (within(cond), within(ir.not(cond)));
        let a = self.side(op.regions[0], yes, &op.results);
        let b = self.side(op.regions[1], no, &op.results);
        let pick = |(&a, &b): (&Val, &Val)| if a == b { a } else { ir.select(cond, a, b) };
        let xs: Vec<_> = a.iter().zip(&b).map(pick).collect();
        self.bind(&op.results, &xs);
    }

    /// One path of a branch for the lanes of a mask, if there are any.
    fn side(&mut self, block: BlockId, mask: Val, results: &[Value]) -> Vec<Val> {
        let ir = self.ir;
        if self.is_short(block) {
            let sure = std::mem::replace(&mut self.sure, false);
            let out = self.region(block, Some(mask));
            self.sure = sure;
            return self.formed_all(results, out);
        }
        let (before, inner, end) = (ir.here(), ir.block("some"), ir.block("end"));
        ir.branch(ir.any(mask), inner, end);
        ir.goto(inner);
        let sure = std::mem::replace(&mut self.sure, true);
        let out = self.region(block, Some(mask));
        self.sure = sure;
        let xs = self.formed_all(results, out);
        let last = ir.here();
        ir.jump(end);
        ir.goto(end);
        let join = |x: &Val| ir.phi(ir.ty(*x), &[(ir.zero(ir.ty(*x)), before), (*x, last)]);
        xs.iter().map(join).collect()
    }

    /// Whether a region is a few ops that do no harm where no lane runs.
    fn is_short(&self, block: BlockId) -> bool {
        let func = self.func;
        let left = func.blocks[block].ops.iter().filter(|&&id| {
            let op = &func.ops[id];
            let known = op.results.iter().any(|v| !matches!(self.env[v.index()], Repr::Absent));
            !op.is_terminator() && !known
        });
        let mut count = 0;
        for &id in left {
            let op = &func.ops[id];
            let quick = match op.code {
                TileOp::Ew(ScalarFn::FloorDiv | ScalarFn::Mod) => false,
                TileOp::Ew(f) => expansion(f).is_none(),
                TileOp::Store => true,
                code => is_pure(code) && code != TileOp::Philox,
            };
            count += 1;
            if !quick || count > SHORT {
                return false;
            }
        }
        true
    }

    pub fn counted(&mut self, id: OpId) {
        let op = &self.func.ops[id];
        let [lo, hi, step] = [0, 1, 2].map(|i| self.repr(op.operands[i]));
        self.check_step(id, step);
        match (lo, hi, step) {
            (Repr::Uniform(lo), Repr::Uniform(hi), Repr::Uniform(step)) => {
                self.in_step(id, lo, hi, step);
            }
            _ => self.each_its_own(id, lo, hi, step),
        }
        self.finish(&self.func.ops[id].results);
    }

    /// A loop whose lanes all run the same iterations.
    fn in_step(&mut self, id: OpId, lo: Val, hi: Val, step: Val) {
        let func = self.func;
        let op = &func.ops[id];
        let ir = self.ir;
        let body = op.regions[0];
        let args = &func.blocks[body].args;
        let inits = op.group("init").iter().map(|&v| self.repr(v)).collect();
        let first = self.formed_all(&op.results, inits);
        let (before, head, end) = (ir.here(), ir.block("for"), ir.block("end"));
        ir.branch(ir.icmp(IntCmp::LLVMIntSLT, lo, hi), head, end);
        ir.goto(head);
        let at = ir.phi(ir.i64(), &[(lo, before)]);
        let phis: Vec<_> = first.iter().map(|&v| ir.phi(ir.ty(v), &[(v, before)])).collect();
        self.set(args[0], Repr::Uniform(at));
        self.bind(&args[1..], &phis);
        let out = self.region(body, self.mask);
        let next = self.formed_all(&op.results, out);
        if !self.is_brief(lo, hi, step) {
            self.poll();
        }
        // At the end of the number range the sum stays there, and no bound is above it.
        let after = ir.intrinsic("llvm.sadd.sat", &[ir.i64()], &[at, step]);
        let last = ir.here();
        ir.incoming(at, after, last);
        phis.iter().zip(&next).for_each(|(&p, &v)| ir.incoming(p, v, last));
        ir.branch(ir.icmp(IntCmp::LLVMIntSLT, after, hi), head, end);
        ir.goto(end);
        let join = |(&a, &b): (&Val, &Val)| ir.phi(ir.ty(a), &[(a, before), (b, last)]);
        let xs: Vec<_> = first.iter().zip(&next).map(join).collect();
        self.bind(&op.results, &xs);
    }

    /// Whether a loop is known to be short, so that it need not poll the host.
    fn is_brief(&self, lo: Val, hi: Val, step: Val) -> bool {
        match [lo, hi, step].map(|v| self.ir.as_int(v)) {
            [Some(lo), Some(hi), Some(step)] => hi.saturating_sub(lo) / step.max(1) <= BRIEF,
            _ => false,
        }
    }

    /// Lanes leave the loop one by one, and keep what they carried then.
    fn each_its_own(&mut self, id: OpId, lo: Repr, hi: Repr, step: Repr) {
        let func = self.func;
        let op = &func.ops[id];
        let ir = self.ir;
        let body = op.regions[0];
        let args = &func.blocks[body].args;
        let first: Vec<_> = op.group("init").iter().map(|&v| self.vector(v)).collect();
        let top = self.widen(hi);
        let within = |c: Val| self.mask.map_or(c, |m| ir.and(m, c));
        let running = within(ir.icmp(IntCmp::LLVMIntSLT, self.widen(lo), top));
        // The position stays one number while the lanes are at fixed distances.
        let (start, stride, by) = match (lo, step) {
            (Repr::Uniform(x), Repr::Uniform(s)) => (x, Some(0), s),
            (Repr::Steps { first, step }, Repr::Uniform(s)) => (first, Some(step), s),
            _ => (self.widen(lo), None, self.widen(step)),
        };
        let (before, head, end) = (ir.here(), ir.block("for"), ir.block("end"));
        ir.branch(ir.any(running), head, end);
        ir.goto(head);
        let at = ir.phi(ir.ty(start), &[(start, before)]);
        let on = ir.phi(ir.ty(running), &[(running, before)]);
        let phis: Vec<_> = first.iter().map(|&v| ir.phi(ir.ty(v), &[(v, before)])).collect();
        let place = match stride {
            Some(0) => Repr::Uniform(at),
            Some(step) => Repr::Steps { first: at, step },
            None => Repr::Each(at),
        };
        self.set(args[0], place);
        self.bind(&args[1..], &phis);
        let sure = std::mem::replace(&mut self.sure, true);
        let out = self.region(body, Some(on));
        self.sure = sure;
        let next = self.formed_all(&op.results, out);
        let merge = |(&new, &old): (&Val, &Val)| ir.select(on, new, old);
        let next: Vec<_> = next.iter().zip(&phis).map(merge).collect();
        self.poll();
        // What is left to the bound is above 0 in lanes that run, so no sum can pass the number range.
        let left = ir.sub(top, self.widen(place));
        let wide = if stride.is_some() { ir.splat(by, self.width) } else { by };
        let still = ir.and(on, ir.icmp(IntCmp::LLVMIntULT, wide, left));
        let after = ir.add(at, by);
        let last = ir.here();
        ir.incoming(at, after, last);
        ir.incoming(on, still, last);
        phis.iter().zip(&next).for_each(|(&p, &v)| ir.incoming(p, v, last));
        ir.branch(ir.any(still), head, end);
        ir.goto(end);
        let join = |(&a, &b): (&Val, &Val)| ir.phi(ir.ty(a), &[(a, before), (b, last)]);
        let xs: Vec<_> = first.iter().zip(&next).map(join).collect();
        self.bind(&op.results, &xs);
    }

    pub fn conditional(&mut self, id: OpId) {
        let func = self.func;
        let op = &func.ops[id];
        let ir = self.ir;
        let (cond, body) = (op.regions[0], op.regions[1]);
        let test = yields(func, cond)[0];
        let apart = self.plan.varies(test);
        let inits = op.group("init").iter().map(|&v| self.repr(v)).collect();
        let first = self.formed_all(&op.results, inits);
        let all = || ir.const_first_lanes(self.width, self.width);
        let mask = apart.then(|| self.mask.unwrap_or_else(all));
        let (before, head) = (ir.here(), ir.block("while"));
        let (inner, end) = (ir.block("body"), ir.block("end"));
        ir.jump(head);
        ir.goto(head);
        let on = mask.map(|m| ir.phi(ir.ty(m), &[(m, before)]));
        let phis: Vec<_> = first.iter().map(|&v| ir.phi(ir.ty(v), &[(v, before)])).collect();
        self.bind(&func.blocks[cond].args, &phis);
        let running = on.or(self.mask);
        let answer = self.region(cond, running)[0];
        let still = match (on, answer) {
            (None, Repr::Uniform(c)) => {
                ir.branch(c, inner, end);
                self.mask
            }
            (on, answer) => {
                let c = self.widen(answer);
                let still = on.map_or(c, |on| ir.and(on, c));
                ir.branch(ir.any(still), inner, end);
                Some(still)
            }
        };
        ir.goto(inner);
        self.bind(&func.blocks[body].args, &phis);
        let sure = std::mem::replace(&mut self.sure, true);
        let out = self.region(body, still);
        self.sure = sure;
        let mut next = self.formed_all(&op.results, out);
        if let (true, Some(still)) = (apart, still) {
            let merge = |(&new, &old): (&Val, &Val)| ir.select(still, new, old);
            next = next.iter().zip(&phis).map(merge).collect();
        }
        self.poll();
        let last = ir.here();
        if let (Some(on), Some(still)) = (on, still) {
            ir.incoming(on, still, last);
        }
        phis.iter().zip(&next).for_each(|(&p, &v)| ir.incoming(p, v, last));
        ir.jump(head);
        ir.goto(end);
        self.bind(&op.results, &phis);
        self.finish(&op.results);
    }
}
