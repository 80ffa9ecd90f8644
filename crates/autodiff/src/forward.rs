//! Forward mode: every op is copied, followed by the ops that compute the tangents of its results.

use crate::activity::Activity;
use crate::context::Context;
use crate::emit::{Emit, View};
use crate::{is_float, rules};
use tessera_diag::Diagnostic;
use tessera_graph::walk::returned;
use tessera_graph::{Copier, GraphFunc, GraphOp};
use tessera_ir::{OpId, Value};
use tessera_support::SideTable;

/// A function that takes the parameters of its source and then tangents of the active ones, and
/// gives the results of its source and then the tangents that are not zero.
pub struct Forward {
    pub func: GraphFunc,
    /// For each result of the source whether it has a tangent.
    pub tangents: Vec<bool>,
}

/// A function during forward mode.
pub struct Tangents<'s> {
    pub source: &'s GraphFunc,
    pub flow: Activity,
    pub em: Emit,
    pub copier: Copier<'s>,
    of: SideTable<Value, Option<Value>>,
}

impl Tangents<'_> {
    pub fn get(&self, v: Value) -> Option<Value> {
        self.of[v]
    }

    pub fn set(&mut self, v: Value, tangent: Option<Value>) {
        if is_float(self.source.ty(v)) {
            self.of.set(v, tangent);
        }
    }

    /// The new value for a value of the source.
    pub fn new_value(&self, v: Value) -> Value {
        self.copier.get(v).expect("operands are copied before their users")
    }

    pub fn new_values(&self, values: &[Value]) -> Vec<Value> {
        values.iter().map(|&v| self.new_value(v)).collect()
    }

    /// The tangent of an active value, made where it is zero.
    pub fn made(&mut self, v: Value) -> Result<Value, Diagnostic> {
        match self.of[v] {
            Some(t) => Ok(t),
            None => self.em.zeros(self.source.ty(v)),
        }
    }

    /// Tangents of those values that a mask picks.
    pub fn picked(&mut self, values: &[Value], mask: &[bool]) -> Result<Vec<Value>, Diagnostic> {
        let picked = values.iter().zip(mask).filter(|(_, m)| **m);
        picked.map(|(&v, _)| self.made(v)).collect()
    }
}

impl Context<'_> {
    pub fn forward(&mut self, source: &GraphFunc, active: &[bool]) -> Result<Forward, Diagnostic> {
        let mut t = Tangents {
            source,
            flow: self.flow(source, active),
            em: Emit::new(&source.name),
            copier: Copier::new(source),
            of: SideTable::new(None),
        };
        t.em.loc = source.loc.clone();
        let params = t.em.params_of(source);
        for (&old, &new) in source.params().iter().zip(&params) {
            t.copier.set(old, new);
        }
        for (&old, _) in source.params().iter().zip(active).filter(|(_, a)| **a) {
            let name = format!("{}.t", source.name_of(old).unwrap_or("x"));
            let tangent = t.em.b.param(&name, source.ty(old).clone());
            t.of.set(old, Some(tangent));
        }
        for &id in &source.blocks[source.body].ops {
            if !source.ops[id].is_terminator() {
                t.em.loc = source.ops[id].loc.clone();
                self.forward_op(&mut t, id)?;
            }
        }
        let results = returned(source);
        let tangents: Vec<bool> = results.iter().map(|&v| t.get(v).is_some()).collect();
        let mut out = t.new_values(results);
        out.extend(results.iter().filter_map(|&v| t.get(v)));
        t.em.loc = source.loc.clone();
        Ok(Forward { func: t.em.end(&out), tangents })
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn forward_op(&mut self, t: &mut Tangents<'_>, id: OpId) -> Result<(), Diagnostic> {
        use GraphOp::*;
        let op = &t.source.ops[id];
        let moves = match t.flow.plans.get(&id) {
            Some(plan) => plan.active.iter().flatten().any(|&a| a),
            None => op.operands.iter().any(|&v| t.get(v).is_some()),
        };
        if !moves {
            t.em.b.copy_op(&mut t.copier, id);
            return Ok(());
        }
        match op.code {
            Loop => self.loop_jvp(t, id),
            While => self.while_jvp(t, id),
            Cond => self.cond_jvp(t, id),
            Call | Composite => self.call_jvp(t, id),
            KernelCall => self.kernel_jvp(t, id),
            Manual => self.manual_jvp(t, id),
            Return | Yield | Const | Iota | Select | Cast | Bitcast | Dim | StopGradient
            | OptBarrier | Shard | Broadcast | Reshape | Transpose | Slice | Pad | Concat
            | Reverse | DynamicSlice | DynamicUpdateSlice | Gather | Scatter | Reduce
            | ArgReduce | Scan | Sort | Dot | Conv | WindowReduce | WindowArgReduce | Philox
            | Vary | Own | AllReduce | AllGather | ReduceScatter | AllToAll | Permute
            | FromRank | AxisIndex | Ew(_) => {
                let along: Vec<_> = op.operands.iter().map(|&v| t.get(v)).collect();
                let mut view = View {
                    op,
                    operands: t.new_values(&op.operands),
                    results: Vec::new(),
                    extra: Vec::new(),
                };
                match rules::primal(&mut t.em, &view)? {
                    Some(kept) => {
                        for (&old, &new) in op.results.iter().zip(&kept.results) {
                            t.copier.set(old, new);
                        }
                        (view.results, view.extra) = (kept.results, kept.extra);
                    }
                    None => view.results = t.em.b.copy_op(&mut t.copier, id),
                }
                let tangents = rules::jvp(&mut t.em, &view, &along)?;
                for (&v, tangent) in op.results.iter().zip(tangents) {
                    t.set(v, tangent);
                }
                Ok(())
            }
        }
    }
}
