//! Derivatives and batching of programs of one rank. The program is transformed as a function and put
//! back into a `manual` with more operands and results: tangents and cotangents lie as their values do.
//! What the reverse pass keeps is stacked along a new first axis, one row for each rank that may have a
//! value of its own.

use crate::activity::RegionActivity;
use crate::context::Context;
use crate::forward::{Forward, Tangents};
use crate::joint::{Adjoint, Tape};
use crate::region::outline_all;
use crate::split::{Halves, Residual};
use crate::vmap::Batched;
use tessera_diag::Diagnostic;
use tessera_graph::ops::collective::{Manual, MeshAxes, Split};
use tessera_graph::states::{self, Axes};
use tessera_graph::walk::returned;
use tessera_ir::{Dim, OpId, Value};

/// The program's mesh and placements; the verifier has read them before.
fn of(attrs: &tessera_ir::Attrs, loc: &tessera_diag::Loc) -> Result<Manual, Diagnostic> {
    Manual::of(attrs).map_err(|r| r.at(loc.clone()))
}

/// Copies everywhere.
fn copies(rank: usize) -> Split {
    vec![Vec::new(); rank]
}

/// One row for each rank along these axes, then the dims.
fn rows(mesh: &MeshAxes, axes: Axes, rank: usize) -> Split {
    let names = (0..mesh.names.len()).filter(|i| axes >> i & 1 == 1);
    let mut split = vec![names.map(|i| mesh.names[i].clone()).collect()];
    split.extend(copies(rank));
    split
}

/// What a program keeps for its reverse pass.
pub struct KeptManual {
    plan: RegionActivity,
    halves: Box<Halves>,
    grads: Vec<bool>,
    /// What was made, with its placement, and whether it has the axis of rows.
    kept: Vec<(Value, Split, bool)>,
}

impl Context<'_> {
    pub fn manual_jvp(&mut self, t: &mut Tangents<'_>, id: OpId) -> Result<(), Diagnostic> {
        let Some(RegionActivity { bodies, active, .. }) = t.flow.plans.remove(&id) else {
            return Ok(());
        };
        let op = &t.source.ops[id];
        let manual = of(&op.attrs, &t.em.loc)?;
        let Forward { func, tangents } = self.forward(&bodies[0].func, &active[0])?;
        let mut operands = t.new_values(&op.operands);
        operands.extend(t.picked(&op.operands, &active[0])?);
        let mut new = Manual { mesh: manual.mesh, ins: manual.ins, outs: manual.outs };
        let pick = |all: &[Split], mask: &[bool]| crate::forward_control::pick(all, mask);
        new.ins.extend(pick(&new.ins, &active[0]));
        new.outs.extend(pick(&new.outs, &tangents));
        let loc = t.em.loc.clone();
        let args = t.em.b.open("manual", &[], &[("values", operands)], new.attrs(), loc)?;
        let out = t.em.put_back(&func, &args)?;
        let results = t.em.b.close(&out)?;
        let n = op.results.len();
        let mut given = results[n..].iter().copied();
        for (place, (&old, has)) in op.results.iter().zip(tangents).enumerate() {
            t.copier.set(old, results[place]);
            let tangent = if has { given.next() } else { None };
            t.set(old, tangent);
        }
        Ok(())
    }

    pub fn keep_manual(&mut self, a: &mut Adjoint<'_>, id: OpId) -> Result<(), Diagnostic> {
        let Some(plan) = a.flow.plans.remove(&id) else { return Ok(()) };
        let op = &a.source.ops[id];
        let manual = of(&op.attrs, &a.em.loc)?;
        let mesh = manual.mesh.clone();
        let body = &plan.bodies[0];
        let joint = self.joint(&body.func, &plan.wanted[0], &plan.cotangents[0])?;
        let halves = Box::new(self.split(&joint, false));
        let n = op.results.len();
        let states = states::of_blocks(self.module, &halves.forward, &manual);
        let mut new = Manual { mesh: mesh.clone(), ins: manual.ins, outs: manual.outs };
        let mut places = Vec::new();
        for (&v, &axes) in returned(&halves.forward)[n..].iter().zip(&states[n..]) {
            let rank = halves.forward.ty(v).rank();
            let split = if axes == 0 { copies(rank) } else { rows(&mesh, axes, rank) };
            new.outs.push(split.clone());
            places.push((split, axes != 0));
        }
        let operands = a.new_values(&op.operands);
        let loc = a.em.loc.clone();
        let args = a.em.b.open("manual", &[], &[("values", operands)], new.attrs(), loc)?;
        let mut out = a.em.put_back(&halves.forward, &args)?;
        for (value, (_, row)) in out[n..].iter_mut().zip(&places) {
            if *row {
                let dims = [&[Dim::Static(1)][..], &a.em.shape(*value)].concat();
                *value = a.em.reshape(*value, &dims)?;
            }
        }
        let results = a.em.b.close(&out)?;
        a.set_results(id, &results[..n]);
        let kept = results[n..].iter().zip(places).map(|(&v, (split, row))| (v, split, row));
        let kept = kept.collect();
        a.tape.insert(
            id,
            Tape::Manual(Box::new(KeptManual { plan, halves, grads: joint.grads, kept })),
        );
        Ok(())
    }

    pub fn answer_manual(
        &mut self,
        a: &mut Adjoint<'_>,
        id: OpId,
        cts: &[Option<Value>],
        tape: &KeptManual,
    ) -> Result<(), Diagnostic> {
        let op = &a.source.ops[id];
        let manual = of(&op.attrs, &a.em.loc)?;
        let mut operands = Vec::new();
        let mut rowed = Vec::new();
        let mut new = Manual { mesh: manual.mesh.clone(), ins: Vec::new(), outs: Vec::new() };
        for residual in &tape.halves.residuals {
            let (value, split, row) = match *residual {
                Residual::Param(p) => (a.new_value(op.operands[p]), manual.ins[p].clone(), false),
                Residual::Made(k) => tape.kept[k].clone(),
            };
            operands.push(value);
            rowed.push(row);
            new.ins.push(split);
        }
        for (i, &has) in tape.plan.cotangents[0].iter().enumerate() {
            if has {
                operands.push(a.made(cts[i], op.results[i])?);
                rowed.push(false);
                new.ins.push(manual.outs[i].clone());
            }
        }
        let places: Vec<usize> = (0..tape.grads.len()).filter(|&i| tape.grads[i]).collect();
        if places.is_empty() {
            return Ok(());
        }
        new.outs = places.iter().map(|&i| manual.ins[i].clone()).collect();
        let loc = a.em.loc.clone();
        let mut args = a.em.b.open("manual", &[], &[("values", operands)], new.attrs(), loc)?;
        for (arg, row) in args.iter_mut().zip(rowed) {
            if row {
                let dims = a.em.shape(*arg)[1..].to_vec();
                *arg = a.em.reshape(*arg, &dims)?;
            }
        }
        let out = a.em.put_back(&tape.halves.pullback, &args)?;
        let results = a.em.b.close(&out)?;
        for (&i, &grad) in places.iter().zip(&results) {
            a.give(op.operands[i], Some(grad));
        }
        Ok(())
    }

    /// One more axis in front of the blocks, which no axis of the mesh splits.
    pub fn manual_vmap(&mut self, b: &mut Batched<'_>, id: OpId) -> Result<(), Diagnostic> {
        let op = &b.source.ops[id];
        let mut manual = of(&op.attrs, &b.em.loc)?;
        let bodies = outline_all(b.source, id);
        let on = b.mask(&op.operands);
        let size = b.size.clone();
        let made = self.batch(&bodies[0].func, &on, &[], &size)?;
        let lead = |splits: &mut [Split], mask: &[bool]| {
            for (split, _) in splits.iter_mut().zip(mask).filter(|(_, m)| **m) {
                split.insert(0, Vec::new());
            }
        };
        lead(&mut manual.ins, &on);
        lead(&mut manual.outs, &made.batched);
        let operands = b.new_values(&op.operands);
        let loc = b.em.loc.clone();
        let args = b.em.b.open("manual", &[], &[("values", operands)], manual.attrs(), loc)?;
        let out = b.em.put_back(&made.func, &args)?;
        let results = b.em.b.close(&out)?;
        for ((&old, new), on) in op.results.iter().zip(results).zip(made.batched) {
            b.set(old, new, on);
        }
        Ok(())
    }
}
