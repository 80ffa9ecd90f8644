//! The rule of `graph.kernel_call`: calls of the derived kernels.

use super::reverse::{Arg, Made, adjoint};
use super::tangent::tangent;
use super::{KernelDef, class};
use crate::context::Context;
use crate::emit::{Emit, View};
use crate::forward::Tangents;
use crate::is_float;
use crate::joint::Adjoint;
use crate::rules::Kept;
use std::collections::BTreeMap;
use tessera_diag::{Diagnostic, Loc};
use tessera_graph::ops::kernel::privileges;
use tessera_graph::{Graph, GraphOp, elem, tensor};
use tessera_ir::{Attr, Dim, Op, OpId, OpSpec, Privilege, Value};
use tessera_numerics::NumType;

/// The call in a form that leaves the old versions to be read: it writes over others.
pub fn primal(em: &mut Emit, v: &View<'_>) -> Result<Kept, Diagnostic> {
    let mut operands = v.operands.clone();
    for (v, privilege) in operands.iter_mut().zip(privileges(v.op.attr("privileges"))) {
        if privilege.is_some_and(|p| p.writes() && p.reads()) {
            *v = held(em, *v)?;
        }
    }
    let results = em.ops(v.spec_on(&operands))?;
    Ok(Kept { results, extra: Vec::new() })
}

/// The same array as another version.
fn held(em: &mut Emit, v: Value) -> Result<Value, Diagnostic> {
    let made = em.ops(OpSpec::new(GraphOp::OptBarrier, &[]).group("values", &[v]))?;
    Ok(made[0])
}

struct Call<'a> {
    op: &'a Op<Graph>,
    name: &'a str,
    privileges: Vec<Privilege>,
    def: KernelDef,
}

impl Call<'_> {
    /// The result that holds the new version of an argument.
    fn result_of(&self, arg: usize) -> Option<usize> {
        let writes = |p: &Privilege| p.writes();
        writes(&self.privileges[arg])
            .then(|| self.privileges[..arg].iter().filter(|p| writes(p)).count())
    }

    /// One entry for each parameter of the kernel.
    fn by_param(&self, of: impl Fn(usize) -> bool) -> Vec<bool> {
        self.def.args.iter().map(|&arg| of(arg)).collect()
    }

    /// Says where the kernel was called, beside the line in it.
    fn placed(&self, error: Diagnostic) -> Diagnostic {
        let loc: Loc = self.op.loc.clone();
        if error.loc.is_known() { error.label(loc, "called here") } else { error.at(loc) }
    }
}

impl Context<'_> {
    fn called<'a>(&self, em: &Emit, op: &'a Op<Graph>) -> Result<Call<'a>, Diagnostic> {
        let name = op.attr("kernel").and_then(Attr::as_ref_name).unwrap_or("kernel");
        let all = privileges(op.attr("privileges")).into_iter().flatten().collect();
        match self.kernels.get(name) {
            Some(def) => Ok(Call { op, name, privileges: all, def: def.clone() }),
            None => Err(class::refusal(name, "is known by its name only", &em.loc)),
        }
    }

    /// The reverse rule of a call: calls of its adjoint kernels.
    pub fn answer_kernel(
        &mut self,
        a: &mut Adjoint<'_>,
        id: OpId,
        cts: &[Option<Value>],
    ) -> Result<(), Diagnostic> {
        let op = &a.source.ops[id];
        let call = self.called(&a.em, op)?;
        let requested = a.flow.requested(&op.operands);
        let wrt = call.by_param(|arg| requested[arg] && call.privileges[arg] != Privilege::Write);
        let seeded = call.by_param(|arg| call.result_of(arg).is_some_and(|r| cts[r].is_some()));
        let base = format!("{}.vjp", call.name);
        let made = adjoint(&call.def.func, &wrt, &seeded, &base).map_err(|e| call.placed(e))?;
        let ct_of = |param: usize| call.result_of(call.def.args[param]).and_then(|r| cts[r]);
        let (mut outs, mut between) = (Vec::new(), None);
        for made in made {
            for &param in &made.passed {
                if let Some(ct) = ct_of(param) {
                    a.give(op.operands[call.def.args[param]], Some(ct));
                }
            }
            for (arg, value) in self.launch(a, &call, made, &base, &ct_of, between)? {
                match arg {
                    Arg::Between { .. } => between = Some(value),
                    _ => outs.push((arg, value)),
                }
            }
        }
        for (arg, value) in outs {
            let (Arg::Seed { of, .. } | Arg::Grad { of, .. }) = arg else { continue };
            let old = op.operands[call.def.args[of]];
            if requested[call.def.args[of]] && is_float(a.source.ty(old)) {
                let ty = a.source.ty(old).clone();
                let value = a.em.reshape(value, ty.shape())?;
                let value = a.em.retype(value, &ty)?;
                a.give(old, Some(value));
            }
        }
        Ok(())
    }

    /// Calls a made kernel; gives what it wrote.
    fn launch(
        &mut self,
        a: &mut Adjoint<'_>,
        call: &Call<'_>,
        made: Made,
        base: &str,
        ct_of: &dyn Fn(usize) -> Option<Value>,
        between: Option<Value>,
    ) -> Result<Vec<(Arg, Value)>, Diagnostic> {
        let operands = a.new_values(&call.op.operands);
        let mut values = Vec::new();
        for (place, arg) in made.args.iter().enumerate() {
            values.push(match *arg {
                Arg::Primal(param) => operands[call.def.args[param]],
                Arg::Seed { of, written } => {
                    let old = call.op.operands[call.def.args[of]];
                    let ct = a.made(ct_of(of), old)?;
                    if written { held(&mut a.em, ct)? } else { ct }
                }
                Arg::Grad { of, scalar } => {
                    let old = call.op.operands[call.def.args[of]];
                    let ty = a.source.ty(old);
                    let dims = if scalar { vec![Dim::Static(1)] } else { ty.shape().to_vec() };
                    let dtype = elem(ty).storage.carrier();
                    a.em.zeros(&tensor(dims, NumType::plain(dtype)))?
                }
                Arg::Between { of, .. } => match between {
                    Some(value) => value,
                    None => {
                        let old = call.op.operands[call.def.args[of]];
                        let dims = a.source.ty(old).shape().to_vec();
                        let dtype = made.func.ty(made.func.params()[place]).dtype();
                        a.em.zeros(&tensor(dims, NumType::plain(dtype)))?
                    }
                },
            });
        }
        let name = self.kernels.add(made.func, base);
        self.emit_call(&mut a.em, &name, &values, &made.args)
    }

    fn emit_call(
        &self,
        em: &mut Emit,
        name: &str,
        values: &[Value],
        args: &[Arg],
    ) -> Result<Vec<(Arg, Value)>, Diagnostic> {
        let Some(def) = self.kernels.get(name) else { return Ok(Vec::new()) };
        let privilege = |&p: &Value| match def.func.ty(p) {
            tessera_ir::Type::View { privilege, .. } => *privilege,
            _ => Privilege::Read,
        };
        let how: Vec<Privilege> = def.func.params().iter().map(privilege).collect();
        let words = how.iter().map(|p| Attr::word(p.name())).collect();
        let written: Vec<Arg> =
            args.iter().zip(&how).filter(|(_, p)| p.writes()).map(|(a, _)| a.clone()).collect();
        if written.is_empty() {
            return Ok(Vec::new());
        }
        let spec = OpSpec::new(GraphOp::KernelCall, &[])
            .group("values", values)
            .attr("kernel", Attr::Ref(name.to_string()))
            .attr("privileges", Attr::List(words));
        let made = em.ops(spec)?;
        Ok(written.into_iter().zip(made).collect())
    }

    /// The forward rule of a call.
    pub fn kernel_jvp(&mut self, t: &mut Tangents<'_>, id: OpId) -> Result<(), Diagnostic> {
        let op = &t.source.ops[id];
        let call = self.called(&t.em, op)?;
        let view = View {
            op,
            operands: t.new_values(&op.operands),
            results: Vec::new(),
            extra: Vec::new(),
        };
        let kept = primal(&mut t.em, &view)?;
        for (&old, &new) in op.results.iter().zip(&kept.results) {
            t.copier.set(old, new);
        }
        let moving: Vec<bool> = op.operands.iter().map(|&v| t.get(v).is_some()).collect();
        let wrt = call.by_param(|arg| moving[arg] && call.privileges[arg] != Privilege::Write);
        let base = format!("{}.jvp", call.name);
        let made = tangent(&call.def.func, &wrt, &base).map_err(|e| call.placed(e))?;
        let mut values = Vec::new();
        for arg in &made.args {
            values.push(match *arg {
                Arg::Primal(param) => view.operands[call.def.args[param]],
                Arg::Seed { of, written } => {
                    let v = t.made(op.operands[call.def.args[of]])?;
                    if written { held(&mut t.em, v)? } else { v }
                }
                Arg::Grad { .. } | Arg::Between { .. } => {
                    return Err(super::weave::internal("a gradient going forward", &t.em.loc));
                }
            });
        }
        let name = self.kernels.add(made.func, &base);
        let outs: BTreeMap<usize, Value> = self
            .emit_call(&mut t.em, &name, &values, &made.args)?
            .into_iter()
            .filter_map(|(arg, v)| match arg {
                Arg::Seed { of, .. } => Some((call.def.args[of], v)),
                _ => None,
            })
            .collect();
        for arg in 0..op.operands.len() {
            if let (Some(r), Some(&v)) = (call.result_of(arg), outs.get(&arg)) {
                t.set(op.results[r], Some(v));
            }
        }
        Ok(())
    }
}
