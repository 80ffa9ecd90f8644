//! Batching of branches, loops and calls. Where the condition of a branch is batched, both sides
//! run and a select chooses. Where the end of a loop is batched, it runs until the last example is
//! done; the others keep their values.

use super::{Batch, Batched};
use crate::activity::{call_kind, callee_name, is_decomposable, meaning, own_rule_args};
use crate::context::Context;
use crate::emit::Emit;
use crate::region::outline_all;
use crate::scalar::Scalars;
use tessera_diag::Diagnostic;
use tessera_graph::walk::called;
use tessera_graph::{GraphFunc, GraphOp, call_results};
use tessera_ir::{Attr, OpId, OpSpec, Type, Value};
use tessera_numerics::ReduceOp;

/// A choice for each example, spread over whole values.
fn choose(b: &mut Batched<'_>, pred: Value, yes: Value, no: Value) -> Result<Value, Diagnostic> {
    let dims = b.em.shape(yes);
    let pred = b.em.broadcast(pred, &dims, &[0])?;
    b.em.select(pred, yes, no)
}

fn grow(mask: &mut [bool], more: &[bool]) -> bool {
    let before = mask.to_vec();
    mask.iter_mut().zip(more).for_each(|(m, &x)| *m |= x);
    before != mask
}

impl Context<'_> {
    pub fn cond_vmap(&mut self, b: &mut Batched<'_>, id: OpId) -> Result<(), Diagnostic> {
        let op = &b.source.ops[id];
        let bodies = outline_all(b.source, id);
        let on: Vec<Vec<bool>> = bodies.iter().map(|body| b.mask(&body.captures)).collect();
        let pred = op.operands[0];
        let mut either = vec![b.on(pred); op.results.len()];
        let size = b.size.clone();
        for (body, on) in bodies.iter().zip(&on) {
            let batch = self.batch(&body.func, on, &[], &size)?;
            grow(&mut either, &batch.batched);
        }
        let mut made = Vec::new();
        for (body, on) in bodies.iter().zip(&on) {
            made.push(self.batch(&body.func, on, &either, &size)?.func);
        }
        let args: Vec<_> = bodies.iter().map(|body| b.new_values(&body.captures)).collect();
        let new_pred = b.new_value(pred);
        if b.on(pred) {
            let (yes, no) =
                (b.em.put_back(&made[0], &args[0])?, b.em.put_back(&made[1], &args[1])?);
            for ((&old, yes), no) in op.results.iter().zip(yes).zip(no) {
                let new = choose(b, new_pred, yes, no)?;
                b.set(old, new, true);
            }
            return Ok(());
        }
        let loc = b.em.loc.clone();
        b.em.b.open("cond", &[new_pred], &[], op.attrs.clone(), loc)?;
        let yes = b.em.put_back(&made[0], &args[0])?;
        b.em.b.next_region(&yes)?;
        let no = b.em.put_back(&made[1], &args[1])?;
        let results = b.em.b.close(&no)?;
        for ((&old, new), on) in op.results.iter().zip(results).zip(either) {
            b.set(old, new, on);
        }
        Ok(())
    }

    pub fn while_vmap(&mut self, b: &mut Batched<'_>, id: OpId) -> Result<(), Diagnostic> {
        let op = &b.source.ops[id];
        let bodies = outline_all(b.source, id);
        let init = op.group("init").to_vec();
        let outside: Vec<Vec<bool>> = bodies.iter().map(|body| b.mask(&body.captures)).collect();
        let size = b.size.clone();
        let mut carried = b.mask(&init);
        // Until nothing changes: a question that differs makes every carried value differ.
        let (test, step, differs) = loop {
            let requested = [&carried[..], &outside[0]].concat();
            let Batch { func: test, batched } =
                self.batch(&bodies[0].func, &requested, &[], &size)?;
            let differs = batched[0];
            if differs && grow(&mut carried, &vec![true; init.len()]) {
                continue;
            }
            let given = [&carried[..], &outside[1]].concat();
            let Batch { func: step, batched } =
                self.batch(&bodies[1].func, &given, &carried, &size)?;
            if !grow(&mut carried, &batched) {
                break (test, step, differs);
            }
        };
        let mut start = Vec::new();
        for (&v, &on) in init.iter().zip(&carried) {
            start.push(if on { b.full(v)? } else { b.new_value(v) });
        }
        let captured: Vec<_> = bodies.iter().map(|body| b.new_values(&body.captures)).collect();
        let loc = b.em.loc.clone();
        let args = b.em.b.open("while", &[], &[("init", start)], op.attrs.clone(), loc)?;
        let test_of = |b: &mut Batched<'_>, args: &[Value]| {
            b.em.put_back(&test, &[args, &captured[0]].concat())
        };
        let mut goes = test_of(b, &args)?;
        if differs {
            goes = vec![b.em.reduce(ReduceOp::Or, goes[0], &[0])?];
        }
        let args = b.em.b.next_region(&goes)?;
        let mut next = b.em.put_back(&step, &[&args[..], &captured[1]].concat())?;
        if differs {
            let goes = test_of(b, &args)?[0];
            for (next, &before) in next.iter_mut().zip(&args) {
                *next = choose(b, goes, *next, before)?;
            }
        }
        let results = b.em.b.close(&next)?;
        for ((&old, new), on) in op.results.iter().zip(results).zip(carried) {
            b.set(old, new, on);
        }
        Ok(())
    }

    pub fn loop_vmap(&mut self, b: &mut Batched<'_>, id: OpId) -> Result<(), Diagnostic> {
        let op = &b.source.ops[id];
        let bodies = outline_all(b.source, id);
        let body = &bodies[0];
        let (init, xs) = (op.group("init").to_vec(), op.group("xs").to_vec());
        let (steps, outside) = (b.mask(&xs), b.mask(&body.captures));
        let size = b.size.clone();
        let mut carried = b.mask(&init);
        let Batch { func, batched } = loop {
            let on = [&[false][..], &carried, &steps, &outside].concat();
            let batch = self.batch(&body.func, &on, &carried, &size)?;
            if !grow(&mut carried, &batch.batched) {
                break batch;
            }
        };
        let (mut start, mut stacks) = (Vec::new(), Vec::new());
        for (&v, &on) in init.iter().zip(&carried) {
            start.push(if on { b.full(v)? } else { b.new_value(v) });
        }
        // Steps are along the first axis, the examples come after it.
        for (&v, &on) in xs.iter().zip(&steps) {
            let new = b.new_value(v);
            stacks.push(if on { b.em.move_axis(new, 0, 1)? } else { new });
        }
        let captured = b.new_values(&body.captures);
        let groups = [("init", start), ("xs", stacks)];
        let loc = b.em.loc.clone();
        let args = b.em.b.open("loop", &[], &groups, op.attrs.clone(), loc)?;
        let out = b.em.put_back(&func, &[args, captured].concat())?;
        let results = b.em.b.close(&out)?;
        for (place, (&old, new)) in op.results.iter().zip(results).enumerate() {
            let on = batched[place];
            let stacked = place >= init.len();
            let new = if on && stacked { b.em.move_axis(new, 1, 0)? } else { new };
            b.set(old, new, on);
        }
        Ok(())
    }

    pub fn call_vmap(&mut self, b: &mut Batched<'_>, id: OpId) -> Result<(), Diagnostic> {
        let op = &b.source.ops[id];
        let on = b.mask(&op.operands);
        let args = b.new_values(&op.operands);
        if let Some(rule) = self.batch_rule(b, id, &on) {
            let made = self.callee(&rule, &b.em.loc)?;
            let types: Vec<Type> = args.iter().map(|&v| b.em.ty(v)).collect();
            let results = call_results(&made, &types).map_err(|r| r.at(b.em.loc.clone()))?;
            let mut spec = OpSpec::new(GraphOp::Call, &[]).group("values", &args).results(results);
            spec.attrs.set("callee", Attr::Ref(rule));
            let new = b.em.ops(spec)?;
            b.set_all(id, &new);
            return Ok(());
        }
        // The plain definition of the call can be transformed whatever rules it has; they are
        // dropped.
        let plain = is_decomposable(op);
        let kind = if plain { "jit" } else { call_kind(op) }.to_string();
        let size = b.size.clone();
        let callee = self.callee(meaning(op), &b.em.loc)?;
        let own = matches!(kind.as_str(), "custom_vjp" | "custom_jvp");
        let (name, batched) = self.vmap_of(&callee, &on, own, &size)?;
        let made = self.callee(&name, &b.em.loc)?;
        let types: Vec<Type> = args.iter().map(|&v| b.em.ty(v)).collect();
        let results = call_results(&made, &types).map_err(|r| r.at(b.em.loc.clone()))?;
        let mut spec = OpSpec::new(GraphOp::Call, &[]).group("values", &args).results(results);
        if !plain {
            spec.attrs = op.attrs.clone();
        }
        spec.attrs.set("callee", Attr::Ref(name));
        let takes = own_rule_args(b.source, op);
        match kind.as_str() {
            "custom_vjp" => {
                let fwd = self.callee(callee_name(op, "fwd"), &b.em.loc)?;
                let bwd = self.callee(callee_name(op, "bwd"), &b.em.loc)?;
                let (fwd, _) = self.vmap_of(&fwd, &on, true, &size)?;
                let bwd =
                    self.summed_vmap(&bwd, &crate::forward_control::pick(&on, &takes), &size)?;
                spec.attrs.set("fwd", Attr::Ref(fwd));
                spec.attrs.set("bwd", Attr::Ref(bwd));
            }
            "custom_jvp" => {
                let rule = self.callee(callee_name(op, "jvp"), &b.em.loc)?;
                let all = [&on[..], &crate::forward_control::pick(&on, &takes)].concat();
                let (rule, _) = self.vmap_of(&rule, &all, true, &size)?;
                spec.attrs.set("jvp", Attr::Ref(rule));
            }
            _ => {}
        }
        let new = b.em.ops(spec)?;
        for ((&old, new), on) in op.results.iter().zip(new).zip(batched) {
            b.set(old, new, on);
        }
        Ok(())
    }

    /// The function of a composite's own rule. One that is missing is noted, and the decomposition taken meanwhile.
    fn batch_rule(&mut self, b: &Batched<'_>, id: OpId, on: &[bool]) -> Option<String> {
        let op = &b.source.ops[id];
        let known = op.code == GraphOp::Composite && b.size.as_static().is_some();
        let decomposition =
            called(op).filter(|name| known && self.batch_rules.decompositions.contains(*name))?;
        let key = (decomposition.to_string(), on.to_vec());
        match self.batch_rules.funcs.get(&key) {
            Some(func) => func.clone(),
            None => {
                if !self.missing.contains(&key) {
                    self.missing.push(key);
                }
                None
            }
        }
    }

    /// A backward function for all examples: cotangents of unbatched values are summed.
    fn summed_vmap(
        &mut self,
        bwd: &GraphFunc,
        on: &[bool],
        size: &tessera_ir::Dim,
    ) -> Result<String, Diagnostic> {
        let size = super::size_inside(size, bwd);
        let tensors: Vec<bool> =
            bwd.params().iter().map(|&p| matches!(bwd.ty(p), Type::Tensor { .. })).collect();
        let every = vec![true; on.len()];
        let Batch { func, .. } = self.batch(bwd, &tensors, &every, &size)?;
        let mut em = Emit::new(&bwd.name);
        em.loc = bwd.loc.clone();
        let args = em.params_of(&func);
        let mut out = em.put_back(&func, &args)?;
        for (value, &on) in out.iter_mut().zip(on) {
            if !on {
                *value = em.sum(*value, &[0])?;
            }
        }
        let func = em.end(&out);
        Ok(self.add(func, &format!("{}.vmap", bwd.name)))
    }
}
