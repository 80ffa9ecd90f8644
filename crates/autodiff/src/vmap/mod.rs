//! Batching (`vmap`): adds an axis to a whole function. Inside, a value either has it as its first
//! axis or is the same for all examples; an op without a batched operand is copied.

mod index;
mod products;
mod rules;
mod vmap_control;

use crate::Vmap;
use crate::context::Context;
use crate::emit::{Emit, reshaped};
use tessera_diag::{Code, Diagnostic};
use tessera_graph::walk::returned;
use tessera_graph::{Copier, GraphFunc};
use tessera_ir::{Dim, DimExpr, OpId, Type, Value};
use tessera_support::SideTable;

/// A function with one more axis in front of some parameters and results.
pub struct Batch {
    pub func: GraphFunc,
    /// For each result whether it has the axis.
    pub batched: Vec<bool>,
}

/// A function while the axis goes through it.
pub struct Batched<'s> {
    pub source: &'s GraphFunc,
    pub em: Emit,
    pub copier: Copier<'s>,
    pub size: Dim,
    on: SideTable<Value, bool>,
    /// Values that are the same for all, repeated.
    repeated: SideTable<Value, Option<Value>>,
}

impl Batched<'_> {
    pub fn on(&self, v: Value) -> bool {
        self.on[v]
    }

    pub fn any(&self, values: &[Value]) -> bool {
        values.iter().any(|&v| self.on[v])
    }

    pub fn mask(&self, values: &[Value]) -> Vec<bool> {
        values.iter().map(|&v| self.on[v]).collect()
    }

    /// What stands for a value, with the axis or without.
    pub fn new_value(&self, v: Value) -> Value {
        self.copier.get(v).expect("operands are copied before their users")
    }

    pub fn new_values(&self, values: &[Value]) -> Vec<Value> {
        values.iter().map(|&v| self.new_value(v)).collect()
    }

    pub fn dims(&self, v: Value) -> Vec<Dim> {
        self.source.ty(v).shape().to_vec()
    }

    pub fn with_axis(&self, dims: &[Dim]) -> Vec<Dim> {
        [std::slice::from_ref(&self.size), dims].concat()
    }

    /// The type of a value of the source with the axis.
    pub fn wide(&self, v: Value) -> Type {
        let ty = self.source.ty(v);
        reshaped(ty, self.with_axis(ty.shape()))
    }

    /// The value with the axis, repeated where it is the same for all.
    pub fn full(&mut self, v: Value) -> Result<Value, Diagnostic> {
        let new = self.new_value(v);
        if self.on[v] {
            return Ok(new);
        }
        if let Some(made) = self.repeated[v] {
            return Ok(made);
        }
        let made = self.repeat(new)?;
        self.repeated.set(v, Some(made));
        Ok(made)
    }

    /// One more axis in front of a value that has none.
    pub fn repeat(&mut self, new: Value) -> Result<Value, Diagnostic> {
        let dims = self.with_axis(&self.em.shape(new));
        let axes: Vec<i64> = (1..dims.len() as i64).collect();
        self.em.broadcast(new, &dims, &axes)
    }

    pub fn full_all(&mut self, values: &[Value]) -> Result<Vec<Value>, Diagnostic> {
        values.iter().map(|&v| self.full(v)).collect()
    }

    pub fn set(&mut self, old: Value, new: Value, on: bool) {
        self.copier.set(old, new);
        self.on.set(old, on);
    }

    pub fn set_all(&mut self, id: OpId, new: &[Value]) {
        for (place, &new) in new.iter().enumerate() {
            let old = self.source.ops[id].results[place];
            self.set(old, new, true);
        }
    }

    pub fn copy(&mut self, id: OpId) {
        self.em.b.copy_op(&mut self.copier, id);
    }
}

impl Context<'_> {
    /// `on` says which parameters have the axis, `all` that every result shall have it.
    pub fn batch(
        &mut self,
        source: &GraphFunc,
        on: &[bool],
        all: &[bool],
        size: &Dim,
    ) -> Result<Batch, Diagnostic> {
        let mut b = Batched {
            source,
            em: Emit::new(&source.name),
            copier: Copier::new(source),
            size: size.clone(),
            on: SideTable::new(false),
            repeated: SideTable::new(None),
        };
        b.em.loc = source.loc.clone();
        for (&old, &on) in source.params().iter().zip(on) {
            let ty = if on { b.wide(old) } else { source.ty(old).clone() };
            let new = b.em.b.param(source.name_of(old).unwrap_or("x"), ty);
            b.set(old, new, on);
        }
        for &id in &source.blocks[source.body].ops {
            if !source.ops[id].is_terminator() {
                b.em.loc = source.ops[id].loc.clone();
                self.batch_op(&mut b, id)?;
            }
        }
        b.em.loc = source.loc.clone();
        let (mut out, mut batched) = (Vec::new(), Vec::new());
        for (place, &v) in returned(source).iter().enumerate() {
            let wide = b.on(v) || all.get(place) == Some(&true);
            out.push(if wide { b.full(v)? } else { b.new_value(v) });
            batched.push(wide);
        }
        Ok(Batch { func: b.em.end(&out), batched })
    }

    /// A function of the module with the axis in these parameters, and in every result where `all`.
    pub fn vmap_of(
        &mut self,
        callee: &GraphFunc,
        on: &[bool],
        all: bool,
        size: &Dim,
    ) -> Result<(String, Vec<bool>), Diagnostic> {
        let size = size_inside(size, callee);
        let key = (callee.name.clone(), on.to_vec(), all, size.to_string());
        if let Some(made) = self.vmaps.get(&key) {
            return Ok(made.clone());
        }
        let every = vec![all; returned(callee).len()];
        let Batch { func, batched } = self.batch(callee, on, &every, &size)?;
        let name = self.add(func, &format!("{}.vmap", callee.name));
        self.vmaps.insert(key, (name.clone(), batched.clone()));
        Ok((name, batched))
    }

    pub fn public_vmap(
        &mut self,
        source: &GraphFunc,
        in_axes: &[Option<usize>],
        out_axes: &[Option<usize>],
        size: &Dim,
    ) -> Result<Vmap, Diagnostic> {
        let refuse =
            |why: String| Err(Diagnostic::new(Code::E_ARGUMENT, why).at(source.loc.clone()));
        let (n, results) = (source.params().len(), returned(source).to_vec());
        if in_axes.len() != n {
            let got = in_axes.len();
            return refuse(format!(
                "expected one entry of in_axes for each of {n} arguments, got {got}"
            ));
        }
        if !out_axes.is_empty() && out_axes.len() != results.len() {
            let (n, got) = (results.len(), out_axes.len());
            return refuse(format!(
                "expected one entry of out_axes for each of {n} results, got {got}"
            ));
        }
        let mut em = Emit::new(&source.name);
        em.loc = source.loc.clone();
        let mut args = Vec::new();
        for (&param, &axis) in source.params().iter().zip(in_axes) {
            let ty = source.ty(param).clone();
            let name = source.name_of(param).unwrap_or("x");
            let Some(axis) = axis else {
                args.push(em.b.param(name, ty));
                continue;
            };
            if !matches!(ty, Type::Tensor { .. }) || axis > ty.rank() {
                return refuse(format!(
                    "expected an axis of in_axes up to {} for %{name} of type {ty} in each example, got {axis}",
                    ty.rank()
                ));
            }
            let mut dims = ty.shape().to_vec();
            dims.insert(axis, size.clone());
            let wide = em.b.param(name, reshaped(&ty, dims));
            args.push(em.move_axis(wide, axis, 0)?);
        }
        let on: Vec<bool> = in_axes.iter().map(Option::is_some).collect();
        let requested = |place: usize| match out_axes.is_empty() {
            true => Some(0),
            false => out_axes[place],
        };
        let Batch { func, batched } = self.batch(source, &on, &[], size)?;
        let out = em.put_back(&func, &args)?;
        let mut returns = Vec::new();
        for (place, (&v, &value)) in results.iter().zip(&out).enumerate() {
            let ty = source.ty(v);
            returns.push(match (requested(place), batched[place]) {
                (None, false) => value,
                (None, true) => {
                    return Err(Diagnostic::new(
                        Code::E_ARGUMENT,
                        format!("expected result {place} to be the same for all, as out_axes says, got one that depends on a batched argument"),
                    )
                    .at(source.loc.clone())
                    .help("give the axis of out_axes where the examples shall lie"));
                }
                (Some(axis), _) if axis > ty.rank() => {
                    return refuse(format!(
                        "expected an axis of out_axes up to {} for result {place} of type {ty} in each example, got {axis}",
                        ty.rank()
                    ));
                }
                (Some(axis), true) => em.move_axis(value, 0, axis)?,
                (Some(axis), false) => {
                    let mut dims = ty.shape().to_vec();
                    dims.insert(axis, size.clone());
                    let kept: Vec<i64> =
                        (0..dims.len() as i64).filter(|&a| a != axis as i64).collect();
                    em.broadcast(value, &dims, &kept)?
                }
            });
        }
        let func = em.end(&returns);
        Ok(Vmap { func: self.add(func, &format!("{}.vmap", source.name)), batched })
    }
}

/// The extent as a called function names it: its symbols are its own.
fn size_inside(size: &Dim, callee: &GraphFunc) -> Dim {
    if size.as_static().is_some() {
        return size.clone();
    }
    let used: std::collections::BTreeSet<_> = callee
        .values
        .iter()
        .flat_map(|(_, data)| data.ty.shape())
        .filter_map(tessera_graph::dims::expr_of)
        .flat_map(|e| e.symbols())
        .collect();
    let free = |name: &str| !used.iter().any(|u| **u == *name);
    let name = (0..).map(|i| format!("batch{i}")).find(|n| free(n)).unwrap_or_default();
    Dim::Expr(DimExpr::sym(&name))
}
