//! Inlining and shape specialisation: one function without calls and without symbolic dims, from a
//! module's function and the extents of its arguments. Equal ops become one, and unused ones are
//! removed.

use crate::composites::Chosen;
use crate::expand::{Site, expand};
use crate::machine::Machine;
use std::collections::BTreeMap;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_graph::dims::{Symbols, bind, substitute, substitute_attrs, substitute_type};
use tessera_graph::{GraphFunc, GraphModule, GraphOp, walk};
use tessera_ir::{
    Attr, Attrs, BlockId, DimExpr, Effects, Op, OpId, Opcode, Type, Value, ValueData, ValueDef,
};
use tessera_support::SideTable;

/// The function on arguments of these types; every extent of the result is a number.
pub fn flatten(
    module: &GraphModule,
    func: &str,
    args: &[Type],
    machine: Machine,
    ordered: bool,
    chosen: &Chosen,
) -> Result<GraphFunc, Diagnostics> {
    let Some(source) = module.func(func) else {
        let why = format!("expected a function of the module, got @{func}");
        return Err(Diagnostic::new(Code::E_NAME, why).into());
    };
    if let Err(name) = walk::call_order(module) {
        let why = format!("expected functions that do not call themselves, got @{name}");
        return Err(Diagnostic::new(Code::E_UNSUPPORTED, why).at(source.loc.clone()).into());
    }
    let mut dst = GraphFunc::new(func);
    dst.loc = source.loc.clone();
    let params: Vec<_> = source.params().iter().map(|&p| source.ty(p).clone()).collect();
    let symbols = bound(source, &params, args, &source.loc)?;
    let mut copy = Copy { module, dst, machine, ordered, chosen, seen: Vec::new() };
    let mut frame = Frame { source, map: SideTable::new(None), symbols };
    let body = copy.dst.body;
    for &param in source.params() {
        let data = &source.values[param];
        let ty = match substitute_type(&data.ty, &frame.symbols) {
            Type::Scalar(dtype) => tessera_graph::scalar(dtype),
            ty => ty,
        };
        let value = copy.dst.add_arg(body, ty, data.name.as_deref());
        frame.map.set(param, Some(value));
    }
    copy.seen.push(BTreeMap::new());
    let results = copy.block(&mut frame, source.body, body)?;
    let op = Op {
        code: GraphOp::Return,
        group_lens: vec![results.len()],
        operands: results,
        results: Vec::new(),
        attrs: Attrs::new(),
        regions: Vec::new(),
        loc: source.loc.clone(),
        block: body,
    };
    let id = copy.dst.ops.push(op);
    copy.dst.blocks[body].ops.push(id);
    let mut dst = copy.dst;
    walk::dce(&mut dst, &|_| true);
    crate::join::join(&mut dst);
    walk::dce(&mut dst, &|_| true);
    crate::components::take_apart(&mut dst);
    crate::invariant::hoist(&mut dst, machine);
    Ok(dst)
}

pub(crate) fn bound(
    func: &GraphFunc,
    params: &[Type],
    args: &[Type],
    loc: &Loc,
) -> Result<Symbols, Diagnostics> {
    if params.len() != args.len() {
        let why =
            format!("expected {} arguments for @{}, got {}", params.len(), func.name, args.len());
        return Err(Diagnostic::new(Code::E_ARGUMENT, why).at(loc.clone()).into());
    }
    let params: Vec<Type> = params
        .iter()
        .map(|ty| match ty {
            Type::Scalar(dtype) => tessera_graph::scalar(*dtype),
            ty => ty.clone(),
        })
        .collect();
    bind(&params, args).map_err(|(param, arg)| {
        let why = format!("expected an argument of type {param}, got {arg}");
        Diagnostic::new(Code::E_LAUNCH_INVALID_SHAPE, why).at(loc.clone()).into()
    })
}

struct Frame<'s> {
    source: &'s GraphFunc,
    map: SideTable<Value, Option<Value>>,
    symbols: Symbols,
}

type Key = (GraphOp, Vec<Value>, String);

struct Copy<'m> {
    module: &'m GraphModule,
    dst: GraphFunc,
    machine: Machine,
    /// Sums keep the order of the interpreter.
    ordered: bool,
    chosen: &'m Chosen,
    /// Pure ops that were copied, for each open block.
    seen: Vec<BTreeMap<Key, Vec<Value>>>,
}

impl<'m> Copy<'m> {
    fn block(
        &mut self,
        frame: &mut Frame<'m>,
        from: BlockId,
        to: BlockId,
    ) -> Result<Vec<Value>, Diagnostics> {
        let source = frame.source;
        for &id in &source.blocks[from].ops {
            let op = &source.ops[id];
            let operands = mapped(frame, &op.operands)?;
            match op.code {
                _ if op.is_terminator() => return Ok(operands),
                GraphOp::Call | GraphOp::Composite => {
                    let args: Vec<_> = operands.iter().map(|&v| self.dst.ty(v).clone()).collect();
                    let name = self.chosen.of(op, &args);
                    let Some(callee) = self.module.func(name) else {
                        let why = format!("expected a function of the module, got @{name}");
                        let error = Diagnostic::new(Code::E_NAME, why);
                        return Err(error.at(op.loc.clone()).into());
                    };
                    let params: Vec<_> =
                        callee.params().iter().map(|&p| callee.ty(p).clone()).collect();
                    let symbols = bound(callee, &params, &args, &op.loc)?;
                    let mut inner = Frame { source: callee, map: SideTable::new(None), symbols };
                    for (&param, &arg) in callee.params().iter().zip(&operands) {
                        inner.map.set(param, Some(arg));
                    }
                    let results = self.block(&mut inner, callee.body, to)?;
                    for (&old, new) in op.results.iter().zip(results) {
                        frame.map.set(old, Some(new));
                    }
                }
                GraphOp::StopGradient | GraphOp::Shard => {
                    frame.map.set(op.result(), Some(operands[0]))
                }
                _ => {
                    let results = self.op(frame, id, operands, to)?;
                    for (&old, new) in op.results.iter().zip(results) {
                        frame.map.set(old, Some(new));
                    }
                }
            }
        }
        Ok(Vec::new())
    }

    fn op(
        &mut self,
        frame: &mut Frame<'m>,
        id: OpId,
        operands: Vec<Value>,
        to: BlockId,
    ) -> Result<Vec<Value>, Diagnostics> {
        let old = &frame.source.ops[id];
        let mut attrs = substitute_attrs(&old.attrs, old.code.info(), &frame.symbols);
        let mut code = old.code;
        if code == GraphOp::Dim {
            let name = attrs.get("name").and_then(Attr::as_expr).unwrap_or(DimExpr::Const(0));
            let value = number(&substitute(&name, &frame.symbols), &old.loc)?;
            code = GraphOp::Const;
            attrs = Attrs::new().with("value", Attr::Int(value));
        }
        let mut operands: Vec<Value> = operands.into_iter().map(|v| self.local(v, to)).collect();
        if code == GraphOp::Dot {
            self.align(&mut operands, &mut attrs, &old.loc, to);
        }
        self.compose(code, &mut operands, &mut attrs, to);
        let types: Vec<_> = old
            .results
            .iter()
            .map(|&v| settled(substitute_type(frame.source.ty(v), &frame.symbols), &old.loc))
            .collect::<Result<_, _>>()?;
        let pure = code.info().effects == Effects::Pure && code != GraphOp::OptBarrier;
        if pure && is_identity(code, &attrs, &operands, &types, &self.dst) {
            return Ok(vec![operands[0]]);
        }
        // Constants that are not a splat are memory of the function, which inner blocks capture.
        let dense = code == GraphOp::Const && attrs.get("data").is_some();
        let to = if dense { self.dst.body } else { to };
        let mut site = Site { func: &mut self.dst, block: to, loc: &old.loc };
        if let Some(made) =
            expand(&mut site, self.machine, self.ordered, code, &operands, &attrs, &types)
        {
            let values = made.map_err(|why| {
                let error =
                    Diagnostic::new(Code::E_UNKNOWN, format!("expected windows, got {why}"));
                Diagnostics::from(error.at(old.loc.clone()))
            })?;
            return Ok(values);
        }
        let show: Vec<_> = types.iter().map(Type::to_string).collect();
        let key = (code, operands.clone(), format!("{attrs:?} {show:?} {:?}", old.group_lens));
        let scopes =
            self.seen.iter().rev().take(if is_remade(code, &attrs) { 1 } else { usize::MAX });
        if pure && let Some(found) = scopes.into_iter().find_map(|s| s.get(&key)) {
            return Ok(found.clone());
        }
        let new = self.dst.ops.push(Op {
            code,
            operands,
            group_lens: old.group_lens.clone(),
            results: Vec::new(),
            attrs,
            regions: Vec::new(),
            loc: old.loc.clone(),
            block: to,
        });
        for (index, ty) in types.into_iter().enumerate() {
            let name = frame.source.values[old.results[index]].name.clone();
            let def = ValueDef::Result(new, index);
            let value = self.dst.values.push(ValueData { ty, name, def });
            self.dst.ops[new].results.push(value);
        }
        for &region in &old.regions {
            let inner = self.dst.add_block(Some(new));
            self.dst.ops[new].regions.push(inner);
            for &arg in &frame.source.blocks[region].args {
                let data = &frame.source.values[arg];
                let ty = settled(substitute_type(&data.ty, &frame.symbols), &old.loc)?;
                let value = self.dst.add_arg(inner, ty, data.name.as_deref());
                frame.map.set(arg, Some(value));
            }
            self.seen.push(BTreeMap::new());
            let yields = self.block(frame, region, inner)?;
            self.seen.pop();
            let end = self.dst.ops.push(Op {
                code: GraphOp::Yield,
                group_lens: vec![yields.len()],
                operands: yields,
                results: Vec::new(),
                attrs: Attrs::new(),
                regions: Vec::new(),
                loc: old.loc.clone(),
                block: inner,
            });
            self.dst.blocks[inner].ops.push(end);
        }
        self.dst.blocks[to].ops.push(new);
        let results = self.dst.ops[new].results.clone();
        let scope = if dense { self.seen.first_mut() } else { self.seen.last_mut() };
        if pure && let Some(scope) = scope {
            scope.insert(key, results.clone());
        }
        Ok(results)
    }
}

impl Copy<'_> {
    /// A value for ops of this block. Captured values are in memory; constants, positions, and
    /// broadcasts and views of them are made again instead, where they cost nothing.
    fn local(&mut self, v: Value, to: BlockId) -> Value {
        let Some(id) = self.dst.def_id(v) else { return v };
        let op = &self.dst.ops[id];
        if op.block == to || !self.is_made_of_nothing(v) {
            return v;
        }
        let (code, attrs, loc) = (op.code, op.attrs.clone(), op.loc.clone());
        let (operands, group_lens) = (op.operands.clone(), op.group_lens.clone());
        let operands: Vec<Value> = operands.into_iter().map(|v| self.local(v, to)).collect();
        let ty = self.dst.ty(v).clone();
        let key =
            (code, operands.clone(), format!("{attrs:?} {:?} {group_lens:?}", [ty.to_string()]));
        if let Some(found) = self.seen.last().and_then(|s| s.get(&key)) {
            return found[0];
        }
        let new = self.dst.ops.push(Op {
            code,
            operands,
            group_lens,
            results: Vec::new(),
            attrs,
            regions: Vec::new(),
            loc,
            block: to,
        });
        let def = ValueDef::Result(new, 0);
        let value = self.dst.values.push(ValueData { ty, name: None, def });
        self.dst.ops[new].results.push(value);
        self.dst.blocks[to].ops.push(new);
        if let Some(scope) = self.seen.last_mut() {
            scope.insert(key, vec![value]);
        }
        value
    }

    /// A transpose of a transpose is a transpose of the original array, and likewise for reshape.
    fn compose(&self, code: GraphOp, operands: &mut [Value], attrs: &mut Attrs, to: BlockId) {
        if !matches!(code, GraphOp::Transpose | GraphOp::Reshape) {
            return;
        }
        let perm = |attrs: &Attrs| attrs.get("perm").and_then(Attr::as_ints).unwrap_or_default();
        while let Some(id) = self.dst.def_id(operands[0])
            && self.dst.ops[id].code == code
            && self.dst.ops[id].block == to
        {
            let inner = &self.dst.ops[id];
            if code == GraphOp::Transpose {
                let before = perm(&inner.attrs);
                let both = perm(attrs).into_iter().map(|a| before[a as usize]);
                attrs.set("perm", Attr::ints(both));
            }
            operands[0] = inner.operands[0];
        }
    }

    /// Whether a value is one number many times, or positions, under any shape.
    fn is_made_of_nothing(&self, v: Value) -> bool {
        let Some(id) = self.dst.def_id(v) else { return false };
        let op = &self.dst.ops[id];
        match op.code {
            GraphOp::Broadcast | GraphOp::Reshape => self.is_made_of_nothing(op.operands[0]),
            code => is_remade(code, &op.attrs),
        }
    }

    /// Brings contracted axes that do not follow each other to the end of their operand.
    fn align(&mut self, operands: &mut [Value], attrs: &mut Attrs, loc: &Loc, to: BlockId) {
        let ints = |attrs: &Attrs, name: &str| -> Vec<i64> {
            attrs.get(name).and_then(Attr::as_ints).unwrap_or_default()
        };
        for (side, [batch, contract]) in
            [["batch_a", "contract_a"], ["batch_b", "contract_b"]].into_iter().enumerate()
        {
            let (paired, summed) = (ints(attrs, batch), ints(attrs, contract));
            if summed.windows(2).all(|w| w[1] == w[0] + 1) {
                continue;
            }
            let ty = self.dst.ty(operands[side]).clone();
            let free = (0..ty.rank() as i64).filter(|a| !paired.contains(a) && !summed.contains(a));
            let perm: Vec<i64> = paired.iter().copied().chain(free).chain(summed.clone()).collect();
            let dims = perm.iter().map(|&p| ty.shape()[p as usize].clone()).collect();
            let ty = tessera_graph::tensor(dims, tessera_graph::elem(&ty));
            let place = |axis: &i64| perm.iter().position(|p| p == axis).unwrap_or(0) as i64;
            attrs.set(batch, Attr::ints(paired.iter().map(place)));
            attrs.set(contract, Attr::ints(summed.iter().map(place)));
            let id = self.dst.ops.push(Op {
                code: GraphOp::Transpose,
                operands: vec![operands[side]],
                group_lens: Vec::new(),
                results: Vec::new(),
                attrs: Attrs::new().with("perm", Attr::ints(perm.iter().copied())),
                regions: Vec::new(),
                loc: loc.clone(),
                block: to,
            });
            let def = ValueDef::Result(id, 0);
            let value = self.dst.values.push(ValueData { ty, name: None, def });
            self.dst.ops[id].results.push(value);
            self.dst.blocks[to].ops.push(id);
            operands[side] = value;
        }
    }
}

fn mapped(frame: &Frame<'_>, values: &[Value]) -> Result<Vec<Value>, Diagnostics> {
    let one = |&v: &Value| {
        frame.map[v].ok_or_else(|| {
            let why = format!("a value of @{} is used before it is made", frame.source.name);
            Diagnostics::from(Diagnostic::new(Code::E_GRAPH_INVALID, why))
        })
    };
    values.iter().map(one).collect()
}

fn number(e: &DimExpr, loc: &Loc) -> Result<i64, Diagnostics> {
    let error = |why: String| Diagnostic::new(Code::E_SHAPE_MISMATCH, why).at(loc.clone()).into();
    e.eval(&|_| None).map_err(error)
}

/// The type with its extents as numbers.
pub(crate) fn settled(ty: Type, loc: &Loc) -> Result<Type, Diagnostics> {
    let Type::Tensor { dims, elem } = ty else { return Ok(ty) };
    let dims = dims
        .into_iter()
        .map(|d| match d {
            tessera_ir::Dim::Expr(e) => number(&e, loc).map(tessera_ir::Dim::Static),
            tessera_ir::Dim::Any => {
                let why = "expected extents that are known, got `?`";
                Err(Diagnostic::new(Code::E_SHAPE_MISMATCH, why).at(loc.clone()).into())
            }
            d => Ok(d),
        })
        .collect::<Result<_, _>>()?;
    Ok(Type::Tensor { dims, elem })
}

/// Whether each block makes it for itself.
fn is_remade(code: GraphOp, attrs: &Attrs) -> bool {
    match code {
        GraphOp::Const => attrs.get("data").is_none(),
        GraphOp::Iota => true,
        _ => false,
    }
}

/// Whether the op returns its operands unchanged.
#[deny(clippy::wildcard_enum_match_arm)]
fn is_identity(
    code: GraphOp,
    attrs: &Attrs,
    operands: &[Value],
    types: &[Type],
    dst: &GraphFunc,
) -> bool {
    use GraphOp::*;
    let same = || operands.len() == 1 && types.len() == 1 && *dst.ty(operands[0]) == types[0];
    let ints = |name: &str| attrs.get(name).and_then(Attr::as_ints).unwrap_or_default();
    let ascending = |list: Vec<i64>| list.iter().enumerate().all(|(i, &v)| v == i as i64);
    match code {
        Broadcast | Reshape | Slice => {
            same() && (code != Slice || ints("stride").iter().all(|&s| s == 1))
        }
        Cast => same(),
        Transpose => same() && ascending(ints("perm")),
        Reverse => same() && ints("axes").is_empty(),
        KernelCall | Return | Yield | Cond | While | Loop | Call | Composite | Const | Iota
        | Select | Bitcast | Dim | StopGradient | OptBarrier | Shard | Pad | Concat
        | DynamicSlice | DynamicUpdateSlice | Gather | Scatter | Reduce | ArgReduce | Scan
        | Sort | Dot | Conv | WindowReduce | WindowArgReduce | Philox | Manual | Vary | Own
        | AllReduce | AllGather | ReduceScatter | AllToAll | Permute | FromRank | AxisIndex
        | Ew(_) => false,
    }
}
