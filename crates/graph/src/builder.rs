//! Making a function op by op, as a tracer does: each op is checked when it is added, and what is
//! wrong with it is said at its own place.
//!
//! Ops with regions are opened, filled and closed:
//!
//! ```
//! use tessera_diag::Loc;
//! use tessera_graph::{GraphBuilder, GraphOp, scalar, tensor};
//! use tessera_ir::{Attr, Attrs, DimExpr, OpSpec};
//! use tessera_numerics::{DType, NumType};
//! let mut b = GraphBuilder::new("sum");
//! let x = b.param("x", tensor(vec![4.into(), 8.into()], NumType::plain(DType::F32)));
//! let zero = OpSpec::new(GraphOp::Const, &[])
//!     .attr("value", Attr::Float(0.0))
//!     .result(tensor(vec![8.into()], NumType::plain(DType::F32)));
//! let zero = b.value(zero, Loc::unknown()).unwrap();
//! let attrs = Attrs::new().with("trip", DimExpr::Const(4).into());
//! let args = b.open("loop", &[], &[("init", vec![zero]), ("xs", vec![x])], attrs, Loc::unknown()).unwrap();
//! let next = b.append("add", &[args[1], args[2]], &[], Attrs::new(), None, Loc::unknown()).unwrap();
//! let results = b.close(&next).unwrap();
//! let func = b.finish(&results, Loc::unknown()).unwrap();
//! assert!(func.to_string().contains("graph.loop init(%0) xs(%x) {trip = 4}"));
//! ```

use crate::ops::control_ops::{agree, region_args, region_results, types};
use crate::rule::{Refusal, Site, types_of};
use crate::{Copier, Graph, GraphFunc, GraphOp};
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_ir::{
    Attrs, BlockId, Func, OpId, OpInfo, OpSpec, Opcode, Type, Value, ValueData, ValueDef, verify,
};

/// A function that is being made. The cursor is at the end of the innermost open region.
pub struct GraphBuilder {
    func: GraphFunc,
    /// Ops whose regions are being filled, outermost first, with the place of the region.
    open: Vec<(OpId, usize)>,
}

type Groups<'a> = [(&'a str, Vec<Value>)];

impl GraphBuilder {
    pub fn new(name: &str) -> Self {
        Self { func: Func::new(name), open: Vec::new() }
    }

    pub fn func(&self) -> &GraphFunc {
        &self.func
    }

    /// The function in its present state, for transforms that end and check it themselves.
    pub fn into_func(self) -> GraphFunc {
        self.func
    }

    pub fn param(&mut self, name: &str, ty: Type) -> Value {
        let body = self.func.body;
        self.func.add_arg(body, ty, Some(name))
    }

    pub fn ty(&self, value: Value) -> &Type {
        self.func.ty(value)
    }

    /// What the user calls a value: printed, and nothing else.
    pub fn name(&mut self, value: Value, name: &str) {
        self.func.set_name(value, name);
    }

    /// The block that ops are added to.
    pub fn block(&self) -> BlockId {
        match self.open.last() {
            Some(&(op, region)) => self.func.ops[op].regions[region],
            None => self.func.body,
        }
    }

    /// How many ops are open.
    pub fn depth(&self) -> usize {
        self.open.len()
    }

    /// Adds an op by name. `results` is for ops whose operands do not imply their result types
    /// (`const iota cast bitcast broadcast reshape call`).
    pub fn append(
        &mut self,
        op: &str,
        operands: &[Value],
        groups: &Groups<'_>,
        attrs: Attrs,
        results: Option<Vec<Type>>,
        loc: Loc,
    ) -> Result<Vec<Value>, Diagnostic> {
        let spec = self.spec(op, operands, groups, attrs, results, &loc)?;
        self.push(spec, loc)
    }

    fn spec(
        &self,
        op: &str,
        operands: &[Value],
        groups: &Groups<'_>,
        attrs: Attrs,
        results: Option<Vec<Type>>,
        loc: &Loc,
    ) -> Result<OpSpec<Graph>, Diagnostic> {
        let Some(code) = GraphOp::from_mnemonic(op) else {
            let why = format!("expected an op of level `graph`, got `{op}`");
            return Err(Diagnostic::new(Code::E_NAME, why).at(loc.clone()));
        };
        let mut spec = OpSpec::new(code, operands);
        for (name, values) in groups {
            let Some(row) = code.info().groups.iter().find(|g| g.name == *name) else {
                let why = format!("expected a group of `graph.{op}`, got `{name}`");
                return Err(Refusal::structure(why).at(loc.clone()));
            };
            spec = spec.group(row.name, values);
        }
        spec.attrs = attrs;
        spec.results = results;
        Ok(spec)
    }

    /// Adds an op without regions and gives its results.
    pub fn push(&mut self, spec: OpSpec<Graph>, loc: Loc) -> Result<Vec<Value>, Diagnostic> {
        let code = spec.code;
        if !code.info().regions.is_empty() || code == GraphOp::Return || code == GraphOp::Yield {
            let why = format!("expected an op without regions, got `graph.{}`", code.mnemonic());
            return Err(Refusal::structure(why).at(loc));
        }
        let spec = self.checked(spec, &loc)?;
        let id = self.insert(spec, loc)?;
        Ok(self.func.ops[id].results.clone())
    }

    /// Adds an op with one result.
    pub fn value(&mut self, spec: OpSpec<Graph>, loc: Loc) -> Result<Value, Diagnostic> {
        let name = spec.code.mnemonic();
        let results = self.push(spec, loc.clone())?;
        match results[..] {
            [one] => Ok(one),
            _ => {
                let why =
                    format!("expected `graph.{name}` to give one result, got {}", results.len());
                Err(Refusal::structure(why).at(loc))
            }
        }
    }

    fn insert(&mut self, spec: OpSpec<Graph>, loc: Loc) -> Result<OpId, Diagnostic> {
        let block = self.block();
        let place = self.func.blocks[block].ops.len();
        let at = loc.clone();
        self.func.insert(block, place, spec, loc).map_err(|why| Refusal::ty(why).at(at))
    }

    /// The spec with its result types, where the row and the rule have nothing against it.
    fn checked(&self, mut spec: OpSpec<Graph>, loc: &Loc) -> Result<OpSpec<Graph>, Diagnostic> {
        for &value in spec.operands.iter().chain(spec.groups.iter().flat_map(|(_, v)| v)) {
            self.in_scope(value, loc)?;
        }
        let of = |values: &[Value]| types(&self.func, values);
        let operands = of(&spec.operands);
        let groups: Vec<_> = spec.groups.iter().map(|(n, v)| (*n, of(v))).collect();
        let code = spec.code;
        let at = |refusal: Refusal| named(code, refusal).at(loc.clone());
        fits_row(code.info(), &operands, &groups, &spec.attrs).map_err(at)?;
        let written = spec.results.take().unwrap_or_default();
        let site =
            Site { operands: &operands, groups: &groups, attrs: &spec.attrs, results: &written };
        let ruled = types_of(code, &site).map_err(at)?;
        if !written.is_empty() && !agree(&ruled, &written) {
            let show = |t: &[Type]| t.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
            let why = format!("expected results of types {}, got {}", show(&ruled), show(&written));
            return Err(at(Refusal::ty(why)));
        }
        Ok(spec.results(ruled))
    }

    /// A value may be used in the region that defines it and in nested ones.
    fn in_scope(&self, value: Value, loc: &Loc) -> Result<(), Diagnostic> {
        let home = self.func.values.get(value).map(|data| match data.def {
            ValueDef::Result(op, _) => self.func.ops[op].block,
            ValueDef::Arg(block, _) => block,
        });
        match home {
            Some(home) if self.func.block_within(self.block(), home) => Ok(()),
            _ => {
                let name = home.and_then(|_| self.func.name_of(value)).map(str::to_string);
                let name = name.unwrap_or_else(|| value.to_string());
                Err(Diagnostic::new(
                    Code::E_NAME,
                    format!("expected a value of this function that is in scope, got %{name}"),
                )
                .at(loc.clone())
                .help("return the value from the branch or loop that makes it"))
            }
        }
    }

    /// Opens an op with regions and gives the arguments of the first: none for `cond`, the carried
    /// values for `while`, position, carried values and steps for `loop`.
    pub fn open(
        &mut self,
        op: &str,
        operands: &[Value],
        groups: &Groups<'_>,
        attrs: Attrs,
        loc: Loc,
    ) -> Result<Vec<Value>, Diagnostic> {
        let spec = self.spec(op, operands, groups, attrs, None, &loc)?;
        if spec.code.info().regions.is_empty() {
            let why = format!("expected an op with regions, got `graph.{op}`");
            return Err(Refusal::structure(why).at(loc));
        }
        let spec = self.checked(spec, &loc)?;
        let code = spec.code;
        let id = self.insert(spec, loc.clone())?;
        let operands = types(&self.func, self.func.ops[id].positional());
        let scalar = [crate::scalar(tessera_numerics::DType::Bool)];
        let wrong = match code {
            GraphOp::Cond if !agree(&scalar, &operands) => Some(Refusal::ty(format!(
                "expected a condition of type {}, got {}",
                scalar[0], operands[0]
            ))),
            GraphOp::Loop => self.stacks(id),
            _ => None,
        };
        if let Some(refusal) = wrong {
            self.func.erase(id);
            return Err(named(code, refusal).at(loc));
        }
        self.open.push((id, 0));
        Ok(self.region_params())
    }

    /// What is wrong with the stacked operands of a loop.
    fn stacks(&self, id: OpId) -> Option<Refusal> {
        let op = &self.func.ops[id];
        let trip = crate::ops::control_ops::trip_of(op.attr("trip"));
        types(&self.func, op.group("xs")).into_iter().find_map(|ty| {
            let fits = ty.shape().first().is_some_and(|d| crate::dims::same(d, &trip));
            let got = crate::dims::show(ty.shape());
            (!fits).then(|| {
                Refusal::shape(format!(
                    "expected stacked values with a first axis of {trip}, got {got}"
                ))
            })
        })
    }

    fn region_params(&mut self) -> Vec<Value> {
        let Some(&(id, region)) = self.open.last() else { return Vec::new() };
        let block = self.func.ops[id].regions[region];
        let wanted = region_args(&self.func, id, region).unwrap_or_default();
        wanted.into_iter().map(|ty| self.func.add_arg(block, ty, None)).collect()
    }

    /// Ends the region with these values and gives the arguments of the next one.
    pub fn next_region(&mut self, yields: &[Value]) -> Result<Vec<Value>, Diagnostic> {
        let Some(&(id, region)) = self.open.last() else { return Err(nothing_open()) };
        let loc = self.func.ops[id].loc.clone();
        if region + 1 >= self.func.ops[id].regions.len() {
            return Err(
                Refusal::structure("expected the op to be closed, it has no more regions").at(loc)
            );
        }
        self.end_region(yields)?;
        if let Some(last) = self.open.last_mut() {
            last.1 += 1;
        }
        Ok(self.region_params())
    }

    /// Ends the last region with these values, and gives the results of the op.
    pub fn close(&mut self, yields: &[Value]) -> Result<Vec<Value>, Diagnostic> {
        let Some(&(id, region)) = self.open.last() else { return Err(nothing_open()) };
        let loc = self.func.ops[id].loc.clone();
        if region + 1 < self.func.ops[id].regions.len() {
            return Err(Refusal::structure("expected the op's next region before its end").at(loc));
        }
        self.end_region(yields)?;
        self.open.pop();
        for (index, ty) in region_results(&self.func, id).into_iter().enumerate() {
            let def = ValueDef::Result(id, index);
            let value = self.func.values.push(ValueData { ty, name: None, def });
            self.func.ops[id].results.push(value);
        }
        Ok(self.func.ops[id].results.clone())
    }

    /// Leaves out the innermost open op, with all that was put into it.
    pub fn abandon(&mut self) {
        if let Some((id, _)) = self.open.pop() {
            self.func.erase(id);
        }
    }

    fn end_region(&mut self, yields: &[Value]) -> Result<(), Diagnostic> {
        let Some(&(id, region)) = self.open.last() else { return Err(nothing_open()) };
        let loc = self.func.ops[id].loc.clone();
        for &value in yields {
            self.in_scope(value, &loc)?;
        }
        let got = types(&self.func, yields);
        let code = self.func.ops[id].code;
        let wanted = match (code, region) {
            (GraphOp::Cond, 1) => region_results(&self.func, id),
            (GraphOp::While, 0) => vec![crate::scalar(tessera_numerics::DType::Bool)],
            (GraphOp::While, _) => types(&self.func, self.func.ops[id].group("init")),
            (GraphOp::Loop, _) => {
                let mut wanted = types(&self.func, self.func.ops[id].group("init"));
                // What follows the carried values is stacked and may be of any type.
                wanted.extend(got.iter().skip(wanted.len()).cloned());
                wanted
            }
            _ => got.clone(),
        };
        if !agree(&wanted, &got) {
            let show = |t: &[Type]| t.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
            let why = format!(
                "expected the region to yield values of types ({}), got ({})",
                show(&wanted),
                show(&got)
            );
            return Err(named(code, Refusal::ty(why)).at(loc));
        }
        let spec = OpSpec::new(GraphOp::Yield, &[]).group("values", yields);
        self.insert(spec, loc)?;
        Ok(())
    }

    /// Adds the body of a function in place of a call, and gives what it returns. Its symbols stand
    /// for the extents of the arguments.
    pub fn inline(
        &mut self,
        callee: &GraphFunc,
        args: &[Value],
        call_site: &Loc,
    ) -> Result<Vec<Value>, Diagnostic> {
        for &value in args {
            self.in_scope(value, call_site)?;
        }
        let name: Arc<str> = Arc::from(callee.name.as_str());
        let mut copier = Copier::bound(callee, &types(&self.func, args))
            .map_err(|r| r.at(call_site.clone()))?
            .called_at(name, call_site.clone());
        for (&param, &arg) in callee.params().iter().zip(args) {
            copier.set(param, arg);
        }
        let block = self.block();
        Ok(copier.copy_block(callee.body, &mut self.func, block))
    }

    /// Copies one op of another function, with its regions, to the cursor, and gives its results.
    pub fn copy_op(&mut self, copier: &mut Copier<'_>, id: OpId) -> Vec<Value> {
        let block = self.block();
        let new = copier.copy_op(id, &mut self.func, block);
        self.func.ops[new].results.clone()
    }

    /// Ends the function and checks it as a whole.
    pub fn finish(mut self, results: &[Value], loc: Loc) -> Result<GraphFunc, Diagnostics> {
        if let Some(&(id, _)) = self.open.last() {
            let at = self.func.ops[id].loc.clone();
            return Err(Refusal::structure("expected every branch and loop to be closed")
                .at(at)
                .into());
        }
        for &value in results {
            self.in_scope(value, &loc)?;
        }
        self.insert(OpSpec::new(GraphOp::Return, &[]).group("values", results), loc)?;
        verify(&self.func)?;
        Ok(self.func)
    }
}

fn nothing_open() -> Diagnostic {
    Refusal::structure("expected an open branch or loop, got none").at(Loc::unknown())
}

/// The op's name before what is wrong with it: a user of the tracer sees no IR text.
fn named(code: GraphOp, refusal: Refusal) -> Refusal {
    Refusal { message: format!("{}: {}", code.mnemonic(), refusal.message), ..refusal }
}

/// Whether operands and attributes fit the row, which rules take for granted in what they say.
fn fits_row(
    info: &OpInfo<Graph>,
    operands: &[Type],
    groups: &[(&'static str, Vec<Type>)],
    attrs: &Attrs,
) -> Result<(), Refusal> {
    if operands.len() != info.operands.len() {
        let (wanted, got) = (info.operands.len(), operands.len());
        return Err(Refusal::structure(format!("expected {wanted} operands, got {got}")));
    }
    for (row, ty) in info.operands.iter().zip(operands) {
        if !row.class.admits(ty) {
            let why = format!("expected `{}` to be {}, got {ty}", row.name, row.class.describe());
            return Err(Refusal::ty(why));
        }
    }
    for row in info.groups {
        let given: Vec<_> =
            groups.iter().filter(|(n, _)| *n == row.name).flat_map(|(_, t)| t).collect();
        if given.len() < row.min || given.len() > row.max {
            let why =
                format!("expected at least {} of `{}`, got {}", row.min, row.name, given.len());
            return Err(Refusal::structure(why));
        }
        if let Some(ty) = given.iter().find(|ty| !row.class.admits(ty)) {
            let why = format!("expected `{}` to hold {}, got {ty}", row.name, row.class.describe());
            return Err(Refusal::ty(why));
        }
    }
    for row in info.attrs {
        match attrs.get(row.name) {
            None if row.required => {
                return Err(Refusal::structure(format!("expected attribute `{}`", row.name)));
            }
            Some(value) if !row.kind.admits(value) => {
                return Err(Refusal::structure(format!(
                    "expected attribute `{}` to be {}, got {value}",
                    row.name,
                    row.kind.describe()
                )));
            }
            _ => {}
        }
    }
    match attrs.iter().find(|(name, _)| !info.attrs.iter().any(|a| a.name == *name)) {
        Some((name, _)) => {
            Err(Refusal::structure(format!("expected an attribute of the op, got `{name}`")))
        }
        None => Ok(()),
    }
}
