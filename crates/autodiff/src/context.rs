//! The module that transforms add to, and the transformed functions so far: a function that is
//! called from many places is transformed once for each combination of active arguments and
//! results.

use crate::activity::Activity;
use crate::emit::Emit;
use crate::forward::Forward;
use crate::split::Halves;
use crate::{Jvp, KernelSet, Vjp, is_float};
use std::collections::BTreeMap;
use tessera_diag::{Diagnostic, Loc};
use tessera_graph::walk::{called, dce, fresh_name, pure_functions, returned};
use tessera_graph::{GraphFunc, GraphModule, GraphOp, call_results};
use tessera_ir::{Attr, OpSpec, Type, Value};

/// A function that was made, and a mask of its results or of its source's parameters.
type Found = (String, Vec<bool>);
/// A function, the parameters that need cotangents, and the results that have one.
type Used = (String, Vec<bool>, Vec<bool>);
/// A function, the parameters with the axis, whether all results shall have it, and its extent.
type Spread = (String, Vec<bool>, bool, String);

pub struct Context<'m> {
    pub module: &'m mut GraphModule,
    /// The kernels that its functions call.
    pub kernels: &'m mut KernelSet,
    jvps: BTreeMap<(String, Vec<bool>), Found>,
    vjps: BTreeMap<Used, Named>,
    /// Joint functions of callees, for checkpoints.
    pub(crate) agains: BTreeMap<Used, Found>,
    pub(crate) vmaps: BTreeMap<Spread, Found>,
    /// The batching rules of composites, and those that were looked for and are not there.
    pub(crate) batch_rules: crate::BatchRules,
    pub(crate) missing: Vec<(String, Vec<bool>)>,
    /// The mesh whose ranks are the axis that batching adds.
    pub(crate) ranks: Option<tessera_graph::ops::collective::MeshAxes>,
}

/// Two functions of the module, as [`Halves`] describes them.
#[derive(Clone)]
pub struct Named {
    pub forward: String,
    pub pullback: String,
    pub residuals: Vec<crate::split::Residual>,
    pub grads: Vec<bool>,
}

impl<'m> Context<'m> {
    pub fn new(module: &'m mut GraphModule, kernels: &'m mut KernelSet) -> Self {
        Self {
            module,
            kernels,
            jvps: BTreeMap::new(),
            vjps: BTreeMap::new(),
            agains: BTreeMap::new(),
            vmaps: BTreeMap::new(),
            batch_rules: crate::BatchRules::default(),
            missing: Vec::new(),
            ranks: None,
        }
    }

    pub fn flow(&self, func: &GraphFunc, params: &[bool]) -> Activity {
        Activity::active(self.module, func, params)
    }

    /// Eliminates dead code, and adds the function to the module under a fresh name.
    pub fn add(&mut self, mut func: GraphFunc, name: &str) -> String {
        self.tidy(&mut func);
        func.name = fresh_name(self.module, name);
        let name = func.name.clone();
        self.module.funcs.push(func);
        name
    }

    pub fn tidy(&self, func: &mut GraphFunc) {
        let calls = func.walk().iter().any(|&id| called(&func.ops[id]).is_some());
        let pure = if calls { pure_functions(self.module) } else { Default::default() };
        dce(func, &|name| pure.contains(name));
    }

    pub fn callee(&self, name: &str, loc: &Loc) -> Result<GraphFunc, Diagnostic> {
        self.module.func(name).cloned().ok_or_else(|| {
            let why = format!("expected a function of the module, got @{name}");
            Diagnostic::new(tessera_diag::Code::E_NAME, why).at(loc.clone())
        })
    }

    /// A call of a function of the module.
    pub fn call(
        &self,
        em: &mut Emit,
        name: &str,
        kind: &str,
        args: &[Value],
    ) -> Result<Vec<Value>, Diagnostic> {
        let callee = self.callee(name, &em.loc)?;
        let types: Vec<Type> = args.iter().map(|&v| em.ty(v)).collect();
        let results = call_results(&callee, &types).map_err(|r| r.at(em.loc.clone()))?;
        let spec = OpSpec::new(GraphOp::Call, &[])
            .group("values", args)
            .attr("callee", Attr::Ref(name.to_string()))
            .attr("kind", Attr::word(kind))
            .results(results);
        em.ops(spec)
    }

    /// The JVP of a callee, and which results have a tangent.
    pub fn jvp_of(
        &mut self,
        callee: &GraphFunc,
        active: &[bool],
    ) -> Result<(String, Vec<bool>), Diagnostic> {
        let key = (callee.name.clone(), active.to_vec());
        if let Some(made) = self.jvps.get(&key) {
            return Ok(made.clone());
        }
        let Forward { func, tangents } = self.forward(callee, active)?;
        let name = self.add(func, &format!("{}.jvp", callee.name));
        self.jvps.insert(key, (name.clone(), tangents.clone()));
        Ok((name, tangents))
    }

    /// The two halves of a callee's derivative, as functions of the module.
    pub fn vjp_of(
        &mut self,
        callee: &GraphFunc,
        wrt: &[bool],
        cotangents: &[bool],
    ) -> Result<Named, Diagnostic> {
        let key = (callee.name.clone(), wrt.to_vec(), cotangents.to_vec());
        if let Some(made) = self.vjps.get(&key) {
            return Ok(made.clone());
        }
        let joint = self.joint(callee, wrt, cotangents)?;
        let Halves { forward, pullback, residuals } = self.split(&joint, true);
        let named = Named {
            forward: self.add(forward, &format!("{}.fwd", callee.name)),
            pullback: self.add(pullback, &format!("{}.bwd", callee.name)),
            residuals,
            grads: joint.grads,
        };
        self.vjps.insert(key, named.clone());
        Ok(named)
    }

    pub fn public_jvp(&mut self, source: &GraphFunc, wrt: &[usize]) -> Result<Jvp, Diagnostic> {
        let mask = mask(source, wrt);
        let Forward { func, tangents } = self.forward(source, &mask)?;
        // The signature: tangents in the order of `wrt`, and one for every float result.
        let mut em = Emit::new(&source.name);
        em.loc = source.loc.clone();
        let params = em.params_of(source);
        let mut args = params.clone();
        let places: Vec<usize> = (0..mask.len()).filter(|&i| mask[i]).collect();
        let mut moved = vec![None; mask.len()];
        for &arg in wrt {
            let param = source.params()[arg];
            let name = format!("{}.t", source.name_of(param).unwrap_or("x"));
            moved[arg] = Some(em.b.param(&name, source.ty(param).clone()));
        }
        args.extend(places.iter().filter_map(|&i| moved[i]));
        let out = em.put_back(&func, &args)?;
        let results = returned(source);
        let mut given = out[results.len()..].iter().copied();
        let mut returns = out[..results.len()].to_vec();
        let mut floats = Vec::new();
        for (&v, has) in results.iter().zip(tangents) {
            let ty = source.ty(v);
            floats.push(is_float(ty));
            let tangent = if has { given.next() } else { None };
            if is_float(ty) {
                returns.push(match tangent {
                    Some(t) => t,
                    None => em.zeros(ty)?,
                });
            }
        }
        let func = em.end(&returns);
        Ok(Jvp { func: self.add(func, &format!("{}.jvp", source.name)), tangents: floats })
    }

    pub fn public_vjp(&mut self, source: &GraphFunc, wrt: &[usize]) -> Result<Vjp, Diagnostic> {
        let cotangents: Vec<bool> =
            returned(source).iter().map(|&v| is_float(source.ty(v))).collect();
        let mut joint = self.joint(source, &mask(source, wrt), &cotangents)?;
        joint.spell_out(source, wrt)?;
        let Halves { forward, pullback, residuals } = self.split(&joint, true);
        let forward = crate::split::with_params(forward, &residuals);
        Ok(Vjp {
            forward: self.add(forward, &format!("{}.fwd", source.name)),
            pullback: self.add(pullback, &format!("{}.bwd", source.name)),
            residuals: residuals.len(),
            cotangents,
        })
    }

    pub fn public_gradient(
        &mut self,
        source: &GraphFunc,
        wrt: &[usize],
    ) -> Result<String, Diagnostic> {
        let mut cotangents = vec![false; returned(source).len()];
        cotangents[0] = true;
        let mut joint =
            self.joint_from(source, &mask(source, wrt), &cotangents, crate::joint::Seed::One)?;
        joint.spell_out(source, wrt)?;
        Ok(self.add(joint.func, &format!("{}.grad", source.name)))
    }
}

fn mask(func: &GraphFunc, wrt: &[usize]) -> Vec<bool> {
    (0..func.params().len()).map(|i| wrt.contains(&i)).collect()
}

impl Emit {
    /// Parameters like those of a function.
    pub fn params_of(&mut self, source: &GraphFunc) -> Vec<Value> {
        let param =
            |&p: &Value| self.b.param(source.name_of(p).unwrap_or("x"), source.ty(p).clone());
        source.params().iter().map(param).collect()
    }

    /// The function, ended with these values.
    pub fn end(self, results: &[Value]) -> GraphFunc {
        let mut func = self.b.into_func();
        func.loc = self.loc;
        crate::region::finish(&mut func, results);
        func
    }
}
