//! Tangents through branches, loops and calls: each region is transformed as a function and put
//! back, with tangents beside their values.

use crate::activity::{
    RegionActivity, callee_name, forward_kind, is_decomposable, meaning, own_rule_args,
};
use crate::context::Context;
use crate::forward::{Forward, Tangents};
use tessera_diag::Diagnostic;
use tessera_graph::GraphFunc;
use tessera_graph::walk::returned;
use tessera_ir::{OpId, Value};

/// Values of a list that a mask picks.
pub fn pick<T: Clone>(values: &[T], mask: &[bool]) -> Vec<T> {
    values.iter().zip(mask).filter(|(_, m)| **m).map(|(v, _)| v.clone()).collect()
}

/// The results of a transformed body, separated: values, and for each a tangent where it has one.
fn apart(out: &[Value], tangents: &[bool]) -> (Vec<Value>, Vec<Option<Value>>) {
    let n = tangents.len();
    let mut given = out[n..].iter().copied();
    let tangents = tangents.iter().map(|&has| if has { given.next() } else { None }).collect();
    (out[..n].to_vec(), tangents)
}

impl Tangents<'_> {
    fn set_results(&mut self, id: OpId, new: &[Value]) {
        for (&old, &new) in self.source.ops[id].results.iter().zip(new) {
            self.copier.set(old, new);
        }
    }

    /// Tangents of results by a mask, zeros made where a body gives none.
    fn filled(
        &mut self,
        body: &GraphFunc,
        tangents: &[Option<Value>],
        mask: &[bool],
    ) -> Result<Vec<Value>, Diagnostic> {
        let mut out = Vec::new();
        for ((&v, tangent), _) in returned(body).iter().zip(tangents).zip(mask).filter(|(_, m)| **m)
        {
            out.push(match tangent {
                Some(t) => *t,
                None => self.em.zeros(body.ty(v))?,
            });
        }
        Ok(out)
    }
}

impl Context<'_> {
    pub fn loop_jvp(&mut self, t: &mut Tangents<'_>, id: OpId) -> Result<(), Diagnostic> {
        let Some(RegionActivity { bodies, active, .. }) = t.flow.plans.remove(&id) else {
            return Ok(());
        };
        let op = &t.source.ops[id];
        let (body, active) = (&bodies[0], &active[0]);
        let Forward { func, tangents } = self.forward(&body.func, active)?;
        let (init, xs) = (op.group("init").to_vec(), op.group("xs").to_vec());
        let (nc, nx) = (init.len(), xs.len());
        let carried = active[1..=nc].to_vec();
        let stepped = active[1 + nc..1 + nc + nx].to_vec();
        let outside = active[1 + nc + nx..].to_vec();
        let stacked = tangents[nc..].to_vec();
        let init_t = t.picked(&init, &carried)?;
        let xs_t = t.picked(&xs, &stepped)?;
        let outside_t = t.picked(&body.captures, &outside)?;
        let groups = [
            ("init", [t.new_values(&init), init_t].concat()),
            ("xs", [t.new_values(&xs), xs_t].concat()),
        ];
        let n = groups[0].1.len();
        let loc = t.em.loc.clone();
        let args = t.em.b.open("loop", &[], &groups, op.attrs.clone(), loc)?;
        let (carry, step) = (&args[1..1 + n], &args[1 + n..]);
        let mut inner = vec![args[0]];
        inner.extend(&carry[..nc]);
        inner.extend(&step[..nx]);
        inner.extend(t.new_values(&body.captures));
        inner.extend(&carry[nc..]);
        inner.extend(&step[nx..]);
        inner.extend(outside_t);
        let out = t.em.put_back(&func, &inner)?;
        let (out, moved) = apart(&out, &tangents);
        let mask = [&carried[..], &vec![false; stacked.len()]].concat();
        let next_t = t.filled(&body.func, &moved, &mask)?;
        let mut yields = [&out[..nc], &next_t, &out[nc..]].concat();
        yields.extend(moved[nc..].iter().flatten());
        let results = t.em.b.close(&yields)?;
        let last = [&results[..nc], &results[n..n + stacked.len()]].concat();
        t.set_results(id, &last);
        let mut tangents = results[nc..n].iter().chain(&results[n + stacked.len()..]);
        for (&v, has) in op.results.iter().zip(carried.iter().chain(&stacked)) {
            let tangent = if *has { tangents.next().copied() } else { None };
            t.set(v, tangent);
        }
        Ok(())
    }

    pub fn while_jvp(&mut self, t: &mut Tangents<'_>, id: OpId) -> Result<(), Diagnostic> {
        let Some(RegionActivity { bodies, active, .. }) = t.flow.plans.remove(&id) else {
            return Ok(());
        };
        let op = &t.source.ops[id];
        let Forward { func, tangents } = self.forward(&bodies[1].func, &active[1])?;
        let init = op.group("init").to_vec();
        let nc = init.len();
        let carried = active[1][..nc].to_vec();
        let init_t = t.picked(&init, &carried)?;
        let outside_t = t.picked(&bodies[1].captures, &active[1][nc..])?;
        let groups = [("init", [t.new_values(&init), init_t].concat())];
        let loc = t.em.loc.clone();
        let args = t.em.b.open("while", &[], &groups, op.attrs.clone(), loc)?;
        // The condition depends on the values alone, not on tangents.
        let inner = [&args[..nc], &t.new_values(&bodies[0].captures)].concat();
        let test = t.em.put_back(&bodies[0].func, &inner)?;
        let args = t.em.b.next_region(&test)?;
        let inner = [&args[..nc], &t.new_values(&bodies[1].captures), &args[nc..], &outside_t];
        let out = t.em.put_back(&func, &inner.concat())?;
        let (mut yields, moved) = apart(&out, &tangents);
        yields.extend(t.filled(&bodies[1].func, &moved, &carried)?);
        let results = t.em.b.close(&yields)?;
        t.set_results(id, &results[..nc]);
        let mut tangents = results[nc..].iter().copied();
        for (&v, has) in op.results.iter().zip(carried) {
            let tangent = if has { tangents.next() } else { None };
            t.set(v, tangent);
        }
        Ok(())
    }

    pub fn cond_jvp(&mut self, t: &mut Tangents<'_>, id: OpId) -> Result<(), Diagnostic> {
        let Some(RegionActivity { bodies, active, .. }) = t.flow.plans.remove(&id) else {
            return Ok(());
        };
        let op = &t.source.ops[id];
        let mut forwards = Vec::new();
        let mut either = vec![false; op.results.len()];
        let mut args = Vec::new();
        for (body, active) in bodies.iter().zip(&active) {
            let forward = self.forward(&body.func, active)?;
            either.iter_mut().zip(&forward.tangents).for_each(|(e, &x)| *e |= x);
            let outside = t.picked(&body.captures, active)?;
            args.push([t.new_values(&body.captures), outside].concat());
            forwards.push(forward);
        }
        let loc = t.em.loc.clone();
        let pred = t.new_value(op.operands[0]);
        t.em.b.open("cond", &[pred], &[], op.attrs.clone(), loc)?;
        let mut results = Vec::new();
        for (place, (Forward { func, tangents }, args)) in forwards.iter().zip(args).enumerate() {
            let out = t.em.put_back(func, &args)?;
            let (mut yields, moved) = apart(&out, tangents);
            yields.extend(t.filled(&bodies[place].func, &moved, &either)?);
            if place == 0 {
                t.em.b.next_region(&yields)?;
            } else {
                results = t.em.b.close(&yields)?;
            }
        }
        let n = op.results.len();
        t.set_results(id, &results[..n]);
        let mut tangents = results[n..].iter().copied();
        for (&v, has) in op.results.iter().zip(either) {
            let tangent = if has { tangents.next() } else { None };
            t.set(v, tangent);
        }
        Ok(())
    }

    pub fn call_jvp(&mut self, t: &mut Tangents<'_>, id: OpId) -> Result<(), Diagnostic> {
        let op = &t.source.ops[id];
        // An operand that moves and has no part in the rule: the derivative is that of the meaning.
        let takes = own_rule_args(t.source, op);
        let more = op.operands.iter().zip(&takes).any(|(&v, takes)| t.get(v).is_some() && !takes);
        let decomposed = is_decomposable(op) && more;
        let kind = if decomposed { "jit" } else { forward_kind(op) }.to_string();
        let mut args = t.new_values(&op.operands);
        let (name, tangents) = match kind.as_str() {
            "custom_vjp" if !is_decomposable(op) => {
                let name = callee_name(op, "callee");
                return t.em.refuse(
                    format!(
                        "@{name} has a custom_vjp rule, which goes backwards only: it cannot move \
                         tangents forward"
                    ),
                    "give it a custom_jvp rule, which works in both directions, or use reverse mode",
                );
            }
            "custom_jvp" => {
                args.extend(t.picked(&op.operands, &takes)?);
                let floats = op.results.iter().map(|&v| crate::is_float(t.source.ty(v)));
                (callee_name(op, "jvp").to_string(), floats.collect())
            }
            _ => {
                let active: Vec<_> = op.operands.iter().map(|&v| t.get(v).is_some()).collect();
                args.extend(t.picked(&op.operands, &active)?);
                let callee = self.callee(meaning(op), &t.em.loc)?;
                self.jvp_of(&callee, &active)?
            }
        };
        let kind = if kind == "checkpoint" { "checkpoint" } else { "jit" };
        let out = self.call(&mut t.em, &name, kind, &args)?;
        let (results, moved) = apart(&out, &tangents);
        t.set_results(id, &results);
        for (&v, tangent) in op.results.iter().zip(moved) {
            t.set(v, tangent);
        }
        Ok(())
    }
}
