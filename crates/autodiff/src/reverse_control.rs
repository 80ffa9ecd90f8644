//! Cotangents through branches, loops and calls. A region is split like any function: the forward
//! part runs in the place of the op and yields the residuals; the backward part runs where the op's
//! reverse rule is applied.

use crate::activity::{callee_name, meaning, own_rule_args};
use crate::context::Context;
use crate::emit::Emit;
use crate::forward_control::pick;
use crate::joint::{Adjoint, Tape};
use crate::scalar::Scalars;
use crate::split::{Halves, Residual};
use tessera_diag::Diagnostic;
use tessera_graph::walk::returned;
use tessera_graph::{GraphOp, tensor};
use tessera_ir::{Attr, OpId, OpSpec, Type, Value};
use tessera_numerics::NumType;

/// Both branches of a cond: their halves, which captures get a cotangent from each, and the
/// residuals of each.
pub struct Branches {
    halves: Vec<Halves>,
    grads: Vec<Vec<bool>>,
    kept: Vec<Vec<Value>>,
}

/// A type whose sums are kept: the carrier where it is stored narrower.
fn sums_of(ty: &Type) -> Type {
    match ty.dtype().carrier() {
        carrier if carrier == ty.dtype() => ty.clone(),
        carrier => tensor(ty.shape().to_vec(), NumType::plain(carrier)),
    }
}

impl Context<'_> {
    pub fn keep_loop(&mut self, a: &mut Adjoint<'_>, id: OpId) -> Result<(), Diagnostic> {
        let Some(plan) = a.flow.plans.remove(&id) else { return Ok(()) };
        let op = &a.source.ops[id];
        let body = &plan.bodies[0];
        let joint = self.joint(&body.func, &plan.wanted[0], &plan.cotangents[0])?;
        let halves = Box::new(self.split(&joint, false));
        let (init, xs) = (op.group("init").to_vec(), op.group("xs").to_vec());
        let nc = init.len();
        let groups = [("init", a.new_values(&init)), ("xs", a.new_values(&xs))];
        let loc = a.em.loc.clone();
        let args = a.em.b.open("loop", &[], &groups, op.attrs.clone(), loc)?;
        let inner = [&args[..], &a.new_values(&body.captures)].concat();
        let out = a.em.put_back(&halves.forward, &inner)?;
        let n = op.results.len();
        let mut yields = out[..n].to_vec();
        // Carried values are kept as each step found them; the rest is made by the step.
        for residual in &halves.residuals {
            match *residual {
                Residual::Param(p) if (1..=nc).contains(&p) => yields.push(args[p]),
                Residual::Param(_) => {}
                Residual::Made(k) => yields.push(out[n + k]),
            }
        }
        let results = a.em.b.close(&yields)?;
        a.set_results(id, &results[..n]);
        let stacks = results[n..].to_vec();
        a.tape.insert(id, Tape::Loop { plan, halves, grads: joint.grads, stacks });
        Ok(())
    }

    pub fn answer_loop(
        &mut self,
        a: &mut Adjoint<'_>,
        id: OpId,
        cts: &[Option<Value>],
        (plan, halves, grads, stacks): (
            &crate::activity::RegionActivity,
            &Halves,
            &[bool],
            &[Value],
        ),
    ) -> Result<(), Diagnostic> {
        let op = &a.source.ops[id];
        let body = &plan.bodies[0];
        let (init, xs) = (op.group("init").to_vec(), op.group("xs").to_vec());
        let (nc, nx) = (init.len(), xs.len());
        let outs = &plan.cotangents[0];
        // Carried: cotangents of carried values, then sums for what is captured.
        let carried: Vec<usize> = (0..nc).filter(|&i| outs[i]).collect();
        let outside: Vec<usize> =
            (0..body.captures.len()).filter(|&i| grads[1 + nc + nx + i]).collect();
        let mut start = Vec::new();
        for &i in &carried {
            start.push(a.made(cts[i], op.results[i])?);
        }
        for &i in &outside {
            let ty = sums_of(a.source.ty(body.captures[i]));
            start.push(a.em.zeros(&ty)?);
        }
        // Steps: cotangents of stacked results, what was kept, and the loop's own steps.
        let stacked: Vec<usize> = (nc..outs.len()).filter(|&i| outs[i]).collect();
        let mut steps = Vec::new();
        for &i in &stacked {
            steps.push(a.made(cts[i], op.results[i])?);
        }
        steps.extend(stacks);
        for residual in &halves.residuals {
            if let Residual::Param(p) = *residual
                && (1 + nc..1 + nc + nx).contains(&p)
            {
                steps.push(a.new_value(xs[p - 1 - nc]));
            }
        }
        let reverse = op.attr("reverse").and_then(Attr::as_bool).unwrap_or(false);
        let mut attrs = op.attrs.clone();
        attrs.set("reverse", Attr::Bool(!reverse));
        let groups = [("init", start.clone()), ("xs", steps)];
        let loc = a.em.loc.clone();
        let args = a.em.b.open("loop", &[], &groups, attrs, loc)?;
        let (carry, step) = args[1..].split_at(start.len());
        let mut kept = step[stacked.len()..stacked.len() + stacks.len()].iter().copied();
        let mut own = step[stacked.len() + stacks.len()..].iter().copied();
        let mut inner = Vec::new();
        for residual in &halves.residuals {
            inner.extend(match *residual {
                Residual::Param(0) => Some(args[0]),
                Residual::Param(p) if p <= nc => kept.next(),
                Residual::Param(p) if p <= nc + nx => own.next(),
                Residual::Param(p) => Some(a.new_value(body.captures[p - 1 - nc - nx])),
                Residual::Made(_) => kept.next(),
            });
        }
        inner.extend(&carry[..carried.len()]);
        inner.extend(&step[..stacked.len()]);
        let out = a.em.put_back(&halves.pullback, &inner)?;
        let mut given = out.iter().copied();
        let found: Vec<_> = grads.iter().map(|&g| if g { given.next() } else { None }).collect();
        let mut yields = Vec::new();
        for &i in &carried {
            yields.push(a.made(found[1 + i], init[i])?);
        }
        for (k, &i) in outside.iter().enumerate() {
            let sum = carry[carried.len() + k];
            yields.push(match found[1 + nc + nx + i] {
                Some(part) => {
                    let ty = a.em.ty(sum);
                    let part = a.em.retype(part, &ty)?;
                    a.em.add(sum, part)?
                }
                None => sum,
            });
        }
        let stepped: Vec<usize> = (0..nx).filter(|&i| found[1 + nc + i].is_some()).collect();
        yields.extend(stepped.iter().filter_map(|&i| found[1 + nc + i]));
        let results = a.em.b.close(&yields)?;
        for (k, &i) in carried.iter().enumerate() {
            a.give(init[i], Some(results[k]));
        }
        for (k, &i) in outside.iter().enumerate() {
            let ty = a.source.ty(body.captures[i]).clone();
            let sum = a.em.retype(results[carried.len() + k], &ty)?;
            a.give(body.captures[i], Some(sum));
        }
        for (k, &i) in stepped.iter().enumerate() {
            a.give(xs[i], Some(results[start.len() + k]));
        }
        Ok(())
    }

    pub fn keep_cond(&mut self, a: &mut Adjoint<'_>, id: OpId) -> Result<(), Diagnostic> {
        let Some(plan) = a.flow.plans.remove(&id) else { return Ok(()) };
        let op = &a.source.ops[id];
        let n = op.results.len();
        let (mut halves, mut grads) = (Vec::new(), Vec::new());
        for (place, body) in plan.bodies.iter().enumerate() {
            let joint = self.joint(&body.func, &plan.wanted[place], &plan.cotangents[place])?;
            halves.push(self.split(&joint, false));
            grads.push(joint.grads);
        }
        // What one branch keeps is zero where the other one ran.
        let kept_types: Vec<Vec<Type>> = halves
            .iter()
            .map(|h| {
                let all = returned(&h.forward);
                all[n..].iter().map(|&v| h.forward.ty(v).clone()).collect()
            })
            .collect();
        let pred = a.new_value(op.operands[0]);
        let loc = a.em.loc.clone();
        a.em.b.open("cond", &[pred], &[], op.attrs.clone(), loc)?;
        let mut results = Vec::new();
        for (place, body) in plan.bodies.iter().enumerate() {
            let args = a.new_values(&body.captures);
            let out = a.em.put_back(&halves[place].forward, &args)?;
            let mut yields = out[..n].to_vec();
            for (branch, types) in kept_types.iter().enumerate() {
                for (k, ty) in types.iter().enumerate() {
                    yields.push(if branch == place { out[n + k] } else { a.em.zeros(ty)? });
                }
            }
            if place == 0 {
                a.em.b.next_region(&yields)?;
            } else {
                results = a.em.b.close(&yields)?;
            }
        }
        a.set_results(id, &results[..n]);
        let (first, second) = results[n..].split_at(kept_types[0].len());
        let kept = vec![first.to_vec(), second.to_vec()];
        a.tape.insert(id, Tape::Cond { plan, branches: Branches { halves, grads, kept } });
        Ok(())
    }

    pub fn answer_cond(
        &mut self,
        a: &mut Adjoint<'_>,
        id: OpId,
        cts: &[Option<Value>],
        plan: &crate::activity::RegionActivity,
        branches: Branches,
    ) -> Result<(), Diagnostic> {
        let op = &a.source.ops[id];
        let mut given = Vec::new();
        for (i, &v) in op.results.iter().enumerate() {
            if plan.cotangents[0][i] {
                given.push(a.made(cts[i], v)?);
            }
        }
        // Every value that gets a cotangent from one of the branches.
        let mut answered: Vec<Value> = Vec::new();
        for (body, grads) in plan.bodies.iter().zip(&branches.grads) {
            for v in pick(&body.captures, grads) {
                if !answered.contains(&v) {
                    answered.push(v);
                }
            }
        }
        if answered.is_empty() {
            return Ok(());
        }
        let pred = a.new_value(op.operands[0]);
        let loc = a.em.loc.clone();
        a.em.b.open("cond", &[pred], &[], op.attrs.clone(), loc)?;
        let mut results = Vec::new();
        for (place, body) in plan.bodies.iter().enumerate() {
            let halves = &branches.halves[place];
            let mut args = Vec::new();
            for residual in &halves.residuals {
                args.push(match *residual {
                    Residual::Param(p) => a.new_value(body.captures[p]),
                    Residual::Made(k) => branches.kept[place][k],
                });
            }
            args.extend(&given);
            let out = a.em.put_back(&halves.pullback, &args)?;
            let own = pick(&body.captures, &branches.grads[place]);
            let mut yields = Vec::new();
            for &v in &answered {
                let found = own.iter().position(|&o| o == v).map(|k| out[k]);
                yields.push(a.made(found, v)?);
            }
            if place == 0 {
                a.em.b.next_region(&yields)?;
            } else {
                results = a.em.b.close(&yields)?;
            }
        }
        for (&v, &grad) in answered.iter().zip(&results) {
            a.give(v, Some(grad));
        }
        Ok(())
    }

    pub fn keep_call(&mut self, a: &mut Adjoint<'_>, id: OpId) -> Result<(), Diagnostic> {
        let op = &a.source.ops[id];
        let n = op.results.len();
        let args = a.new_values(&op.operands);
        match a.flow.way(a.source, op) {
            "checkpoint" => {
                a.em.b.copy_op(&mut a.copier, id);
            }
            "custom_vjp" => {
                let mut out = self.call(&mut a.em, callee_name(op, "fwd"), "jit", &args)?;
                let kept = out.split_off(n);
                a.set_results(id, &out);
                a.tape.insert(id, Tape::Own { kept });
            }
            "custom_jvp" => {
                // The rule is linear in the tangents: its derivative by them, anywhere, is the rule.
                let takes = own_rule_args(a.source, op);
                let rule = self.callee(callee_name(op, "jvp"), &a.em.loc)?;
                let mut all = args.clone();
                for &v in pick(&op.operands, &takes).iter() {
                    all.push(a.em.zeros(a.source.ty(v))?);
                }
                let requested = pick(&a.flow.requested(&op.operands), &takes);
                let wrt = [vec![false; args.len()], requested].concat();
                let mut cotangents = vec![false; n];
                for &v in op.results.iter().filter(|&&v| crate::is_float(a.source.ty(v))) {
                    cotangents.push(a.flow.wanted[v]);
                }
                let named = self.vjp_of(&rule, &wrt, &cotangents)?;
                let out = self.call(&mut a.em, &named.forward, "jit", &all)?;
                a.set_results(id, &out[..n]);
                let kept = out[returned(&rule).len()..].to_vec();
                a.tape.insert(id, Tape::Call { named, kept, args: all });
            }
            _ => {
                let callee = self.callee(meaning(op), &a.em.loc)?;
                let (wrt, cts) = (a.flow.requested(&op.operands), a.flow.requested(&op.results));
                let named = self.vjp_of(&callee, &wrt, &cts)?;
                let out = self.call(&mut a.em, &named.forward, "jit", &args)?;
                a.set_results(id, &out[..n]);
                let kept = out[n..].to_vec();
                a.tape.insert(id, Tape::Call { named, kept, args });
            }
        }
        Ok(())
    }

    pub fn answer_call(
        &mut self,
        a: &mut Adjoint<'_>,
        id: OpId,
        cts: &[Option<Value>],
        (named, kept, args): (&crate::context::Named, &[Value], &[Value]),
    ) -> Result<(), Diagnostic> {
        let op = &a.source.ops[id];
        let mut inner: Vec<Value> = named
            .residuals
            .iter()
            .map(|r| match *r {
                Residual::Param(p) => args[p],
                Residual::Made(k) => kept[k],
            })
            .collect();
        for (i, &v) in op.results.iter().enumerate() {
            if a.flow.wanted[v] {
                inner.push(a.made(cts[i], v)?);
            }
        }
        let out = self.call(&mut a.em, &named.pullback, "jit", &inner)?;
        // The pullback of a custom JVP gives cotangents of the tangents, which follow the
        // arguments.
        let answered: Vec<Value> = if a.flow.way(a.source, op) == "custom_jvp" {
            let takes = pick(&op.operands, &own_rule_args(a.source, op));
            pick(&takes, &named.grads[op.operands.len()..])
        } else {
            pick(&op.operands, &named.grads)
        };
        for (v, grad) in answered.into_iter().zip(out) {
            a.give(v, Some(grad));
        }
        Ok(())
    }

    pub fn answer_own(
        &mut self,
        a: &mut Adjoint<'_>,
        id: OpId,
        cts: &[Option<Value>],
        kept: &[Value],
    ) -> Result<(), Diagnostic> {
        let op = &a.source.ops[id];
        let mut inner = kept.to_vec();
        for (i, &v) in op.results.iter().enumerate() {
            if crate::is_float(a.source.ty(v)) {
                inner.push(a.made(cts[i], v)?);
            }
        }
        let out = self.call(&mut a.em, callee_name(op, "bwd"), "jit", &inner)?;
        let takes = pick(&op.operands, &own_rule_args(a.source, op));
        for (v, grad) in takes.into_iter().zip(out) {
            a.give(v, Some(grad));
        }
        Ok(())
    }

    /// The joint function of the callee, behind an optimisation barrier: it is recomputed, and
    /// nothing is reused from the first run.
    pub fn answer_checkpoint(
        &mut self,
        a: &mut Adjoint<'_>,
        id: OpId,
        cts: &[Option<Value>],
    ) -> Result<(), Diagnostic> {
        let op = &a.source.ops[id];
        let callee = self.callee(callee_name(op, "callee"), &a.em.loc)?;
        let (wrt, requested) = (a.flow.requested(&op.operands), a.flow.requested(&op.results));
        let (name, grads) = self.again_of(&callee, &wrt, &requested)?;
        let mut args = a.new_values(&op.operands);
        for (i, &v) in op.results.iter().enumerate() {
            if a.flow.wanted[v] {
                args.push(a.made(cts[i], v)?);
            }
        }
        let out = self.call(&mut a.em, &name, "jit", &args)?;
        for (v, grad) in pick(&op.operands, &grads).into_iter().zip(out) {
            a.give(v, Some(grad));
        }
        Ok(())
    }

    fn again_of(
        &mut self,
        callee: &tessera_graph::GraphFunc,
        wrt: &[bool],
        requested: &[bool],
    ) -> Result<(String, Vec<bool>), Diagnostic> {
        let key = (callee.name.clone(), wrt.to_vec(), requested.to_vec());
        if let Some(made) = self.agains.get(&key) {
            return Ok(made.clone());
        }
        let joint = self.joint(callee, wrt, requested)?;
        let mut em = Emit::new(&callee.name);
        em.loc = callee.loc.clone();
        let args = em.params_of(&joint.func);
        let held: Vec<Value> =
            args.iter().copied().filter(|&v| matches!(em.ty(v), Type::Tensor { .. })).collect();
        let spec = OpSpec::new(GraphOp::OptBarrier, &[]).group("values", &held);
        let mut behind = em.ops(spec)?.into_iter();
        let inner: Vec<Value> = args
            .iter()
            .map(|&v| if held.contains(&v) { behind.next().unwrap_or(v) } else { v })
            .collect();
        let out = em.put_back(&joint.func, &inner)?;
        let func = em.end(&out[joint.results..]);
        let made = (self.add(func, &format!("{}.again", callee.name)), joint.grads);
        self.agains.insert(key, made.clone());
        Ok(made)
    }
}
