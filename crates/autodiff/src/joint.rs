//! Reverse mode: the joint function of forward and backward pass. Ops are copied in order, then
//! their reverse rules are applied from the last to the first.

use crate::activity::{Activity, RegionActivity, call_kind};
use crate::context::{Context, Named};
use crate::emit::{Emit, View};
use crate::is_float;
use crate::reverse_control::Branches;
use crate::rules::{self, Kept};
use crate::split::Halves;
use std::collections::BTreeMap;
use tessera_diag::Diagnostic;
use tessera_graph::walk::returned;
use tessera_graph::{Copier, GraphFunc, GraphOp};
use tessera_ir::{OpId, Value};
use tessera_support::{Entity, SideTable};

/// A function that takes the parameters of its source and then cotangents of some results, and gives
/// the results of its source and then cotangents of parameters.
pub struct Joint {
    pub func: GraphFunc,
    /// How many parameters and results are the source's.
    pub params: usize,
    pub results: usize,
    /// How many of its ops are the forward pass, before the backward pass.
    pub early: usize,
    /// For each parameter of the source whether its cotangent is given.
    pub grads: Vec<bool>,
}

/// Where cotangents of results come from.
#[derive(Copy, Clone, PartialEq)]
pub enum Seed {
    /// From parameters.
    Given,
    /// They are 1.
    One,
}

impl Joint {
    /// Gives one cotangent for each of `wrt`, in that order, zeros where none was found.
    pub fn spell_out(&mut self, source: &GraphFunc, wrt: &[usize]) -> Result<(), Diagnostic> {
        let mut em = Emit::new(&source.name);
        em.loc = source.loc.clone();
        let args = em.params_of(&self.func);
        let out = em.put_back(&self.func, &args)?;
        let mut given = out[self.results..].iter().copied();
        let found: Vec<_> =
            self.grads.iter().map(|&has| if has { given.next() } else { None }).collect();
        let mut returns = out[..self.results].to_vec();
        for &arg in wrt {
            returns.push(match found[arg] {
                Some(grad) => grad,
                None => em.zeros(source.ty(source.params()[arg]))?,
            });
        }
        self.func = em.end(&returns);
        Ok(())
    }
}

/// What the forward pass keeps of one op for its reverse rule.
pub enum Tape {
    Kept(Kept),
    Loop {
        plan: RegionActivity,
        halves: Box<Halves>,
        grads: Vec<bool>,
        stacks: Vec<Value>,
    },
    Cond {
        plan: RegionActivity,
        branches: Branches,
    },
    Call {
        named: Named,
        kept: Vec<Value>,
        args: Vec<Value>,
    },
    Manual(Box<crate::manual::KeptManual>),
    /// The values that `fwd` kept.
    Own {
        kept: Vec<Value>,
    },
}

/// A function during reverse mode.
pub struct Adjoint<'s> {
    pub source: &'s GraphFunc,
    pub flow: Activity,
    pub em: Emit,
    pub copier: Copier<'s>,
    pub tape: BTreeMap<OpId, Tape>,
    parts: SideTable<Value, Vec<Value>>,
}

impl Adjoint<'_> {
    pub fn new_value(&self, v: Value) -> Value {
        self.copier.get(v).expect("operands are copied before their users")
    }

    pub fn new_values(&self, values: &[Value]) -> Vec<Value> {
        values.iter().map(|&v| self.new_value(v)).collect()
    }

    /// Adds to the cotangent of a value that needs one.
    pub fn give(&mut self, v: Value, part: Option<Value>) {
        if let Some(part) = part
            && self.flow.wanted[v]
        {
            self.parts.get_mut(v).push(part);
        }
    }

    /// The complete cotangent of a value: the reverse rules of all its uses have run.
    pub fn take(&mut self, v: Value) -> Result<Option<Value>, Diagnostic> {
        let parts = std::mem::take(self.parts.get_mut(v));
        if parts.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.em.add_all(&parts)?))
    }

    pub fn set_results(&mut self, id: OpId, new: &[Value]) {
        for (&old, &new) in self.source.ops[id].results.iter().zip(new) {
            self.copier.set(old, new);
        }
    }

    /// The cotangent, made where it is zero.
    pub fn made(&mut self, ct: Option<Value>, of: Value) -> Result<Value, Diagnostic> {
        match ct {
            Some(ct) => Ok(ct),
            None => self.em.zeros(self.source.ty(of)),
        }
    }
}

impl Context<'_> {
    /// `wrt` says which parameters need a cotangent, `cotangents` which results have one.
    pub fn joint(
        &mut self,
        source: &GraphFunc,
        wrt: &[bool],
        cotangents: &[bool],
    ) -> Result<Joint, Diagnostic> {
        self.joint_from(source, wrt, cotangents, Seed::Given)
    }

    pub fn joint_from(
        &mut self,
        source: &GraphFunc,
        wrt: &[bool],
        cotangents: &[bool],
        seed: Seed,
    ) -> Result<Joint, Diagnostic> {
        let mut flow = self.flow(source, wrt);
        flow.want(self.module, source, cotangents);
        let mut a = Adjoint {
            source,
            flow,
            em: Emit::new(&source.name),
            copier: Copier::new(source),
            tape: BTreeMap::new(),
            parts: SideTable::new(Vec::new()),
        };
        a.em.loc = source.loc.clone();
        let params = a.em.params_of(source);
        for (&old, &new) in source.params().iter().zip(&params) {
            a.copier.set(old, new);
        }
        let results = returned(source);
        for (&v, _) in results.iter().zip(cotangents).filter(|(_, c)| **c) {
            let ct = match seed {
                Seed::Given => {
                    let name = format!("{}.ct", source.name_of(v).unwrap_or("y"));
                    a.em.b.param(&name, source.ty(v).clone())
                }
                Seed::One => a.em.splat(1.0, source.ty(v))?,
            };
            a.give(v, Some(ct));
        }
        let ops = &source.blocks[source.body].ops;
        for &id in ops.iter().filter(|&&id| !source.ops[id].is_terminator()) {
            a.em.loc = source.ops[id].loc.clone();
            self.keep(&mut a, id)?;
        }
        let mut out = a.new_values(results);
        let kept = a.em.b.func().ops.len();
        for &id in ops.iter().rev().filter(|&&id| !source.ops[id].is_terminator()) {
            a.em.loc = source.ops[id].loc.clone();
            self.answer(&mut a, id)?;
        }
        a.em.loc = source.loc.clone();
        let mut grads = Vec::new();
        for (&param, &wrt) in source.params().iter().zip(wrt) {
            let grad = if wrt { a.take(param)? } else { None };
            grads.push(grad.is_some());
            out.extend(grad);
        }
        let (params, results) = (params.len(), results.len());
        let mut func = a.em.end(&out);
        self.tidy(&mut func);
        let early = func.blocks[func.body].ops.iter().filter(|id| id.index() < kept).count();
        Ok(Joint { func, params, results, early, grads })
    }

    /// The forward pass of one op.
    #[deny(clippy::wildcard_enum_match_arm)]
    fn keep(&mut self, a: &mut Adjoint<'_>, id: OpId) -> Result<(), Diagnostic> {
        use GraphOp::*;
        let op = &a.source.ops[id];
        if !a.flow.requested(&op.results).contains(&true) {
            a.em.b.copy_op(&mut a.copier, id);
            return Ok(());
        }
        match op.code {
            Loop => self.keep_loop(a, id),
            Cond => self.keep_cond(a, id),
            Call | Composite => self.keep_call(a, id),
            Manual => self.keep_manual(a, id),
            While => a.em.refuse(
                "while has no reverse mode: how often it runs is not known before it has run, nor \
                 how much it would have to keep",
                "use a loop with a trip count (fori_loop, scan), forward mode (jvp), or custom_vjp",
            ),
            KernelCall | Return | Yield | Const | Iota | Select | Cast | Bitcast | Dim
            | StopGradient | OptBarrier | Shard | Broadcast | Reshape | Transpose | Slice | Pad
            | Concat | Reverse | DynamicSlice | DynamicUpdateSlice | Gather | Scatter | Reduce
            | ArgReduce | Scan | Sort | Dot | Conv | WindowReduce | WindowArgReduce | Philox
            | Vary | Own | AllReduce | AllGather | ReduceScatter | AllToAll | Permute
            | FromRank | AxisIndex | Ew(_) => {
                let view = View {
                    op,
                    operands: a.new_values(&op.operands),
                    results: Vec::new(),
                    extra: Vec::new(),
                };
                match rules::primal(&mut a.em, &view)? {
                    Some(kept) => {
                        a.set_results(id, &kept.results);
                        a.tape.insert(id, Tape::Kept(kept));
                    }
                    None => {
                        a.em.b.copy_op(&mut a.copier, id);
                    }
                }
                Ok(())
            }
        }
    }

    fn answer(&mut self, a: &mut Adjoint<'_>, id: OpId) -> Result<(), Diagnostic> {
        let op = &a.source.ops[id];
        let mut cts = Vec::with_capacity(op.results.len());
        for &v in &op.results {
            cts.push(a.take(v)?);
        }
        if cts.iter().all(Option::is_none) {
            return Ok(());
        }
        match a.tape.remove(&id) {
            Some(Tape::Loop { plan, halves, grads, stacks }) => {
                self.answer_loop(a, id, &cts, (&plan, &halves, &grads, &stacks))
            }
            Some(Tape::Cond { plan, branches }) => self.answer_cond(a, id, &cts, &plan, branches),
            Some(Tape::Call { named, kept, args }) => {
                self.answer_call(a, id, &cts, (&named, &kept, &args))
            }
            Some(Tape::Manual(kept)) => self.answer_manual(a, id, &cts, &kept),
            Some(Tape::Own { kept }) => self.answer_own(a, id, &cts, &kept),
            None if op.code == GraphOp::Call && call_kind(op) == "checkpoint" => {
                self.answer_checkpoint(a, id, &cts)
            }
            _ if op.code == GraphOp::KernelCall => self.answer_kernel(a, id, &cts),
            kept => {
                let extra = match kept {
                    Some(Tape::Kept(kept)) => kept.extra,
                    _ => Vec::new(),
                };
                let view = View {
                    op,
                    operands: a.new_values(&op.operands),
                    results: a.new_values(&op.results),
                    extra,
                };
                let wanted = a.flow.requested(&op.operands);
                let parts = rules::vjp(&mut a.em, &view, &cts, &wanted)?;
                for (&v, part) in op.operands.iter().zip(parts) {
                    if is_float(a.source.ty(v)) {
                        a.give(v, part);
                    }
                }
                Ok(())
            }
        }
    }
}
