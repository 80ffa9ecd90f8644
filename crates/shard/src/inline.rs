//! One function without calls, on arguments of known types: what the factor rules read. Composites stay whole, or are replaced by their
//! decompositions, as the caller says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_graph::dims::{Symbols, bind, substitute_attrs, substitute_type};
use tessera_graph::walk::{call_order, called, dce, reached};
use tessera_graph::{GraphFunc, GraphModule, GraphOp};
use tessera_ir::{Attrs, BlockId, Op, OpId, Opcode, Type, Value, ValueData, ValueDef};

/// Where a composite stands: the calls that lead to it, and its op in the function that holds it.
pub type Path = Vec<OpId>;

/// The composites that stay whole.
pub enum Keep<'a> {
    All,
    None,
    But(&'a BTreeSet<Path>),
}

impl Keep<'_> {
    fn has(&self, path: &Path) -> bool {
        match self {
            Keep::All => true,
            Keep::None => false,
            Keep::But(apart) => !apart.contains(path),
        }
    }
}

/// A function without calls, and the composites that it holds.
pub struct Flat {
    pub func: GraphFunc,
    pub composites: BTreeMap<OpId, Path>,
}

/// What is made, and from what.
struct Inline<'m> {
    module: &'m GraphModule,
    keep: &'m Keep<'m>,
    dst: GraphFunc,
    composites: BTreeMap<OpId, Path>,
}

/// The functions that a function runs, itself among them.
pub fn reachable<'m>(module: &'m GraphModule, func: &str) -> Vec<&'m GraphFunc> {
    reached(module, &[func]).iter().filter_map(|name| module.func(name)).collect()
}

/// A function that is copied, and the place of its call.
struct Frame<'m> {
    source: &'m GraphFunc,
    map: BTreeMap<Value, Value>,
    symbols: Symbols,
    call: Option<(Arc<str>, Loc)>,
    path: Path,
}

impl Frame<'_> {
    fn loc(&self, loc: &Loc) -> Loc {
        match &self.call {
            Some((function, site)) => loc.inside(function, site),
            None => loc.clone(),
        }
    }

    /// Tensors without axes are numbers.
    fn ty(&self, ty: &Type) -> Type {
        match substitute_type(ty, &self.symbols) {
            Type::Scalar(dtype) => tessera_graph::scalar(dtype),
            ty => ty,
        }
    }
}

fn refused(message: String, loc: &Loc) -> Diagnostics {
    Diagnostic::new(Code::E_GRAPH_INVALID, message).at(loc.clone()).into()
}

fn symbols(func: &GraphFunc, args: &[Type], loc: &Loc) -> Result<Symbols, Diagnostics> {
    let number = |ty: &Type| match ty {
        Type::Scalar(dtype) => tessera_graph::scalar(*dtype),
        ty => ty.clone(),
    };
    let params: Vec<Type> = func.params().iter().map(|&p| number(func.ty(p))).collect();
    if params.len() != args.len() {
        let (n, got) = (params.len(), args.len());
        let why = format!("expected {n} arguments of @{}, got {got}", func.name);
        return Err(refused(why, loc));
    }
    bind(&params, args).map_err(|(param, arg)| {
        refused(format!("expected an argument of type {param}, got {arg}"), loc)
    })
}

pub fn inline(
    module: &GraphModule,
    func: &str,
    args: &[Type],
    keep: &Keep<'_>,
) -> Result<Flat, Diagnostics> {
    let Some(source) = module.func(func) else {
        return Err(refused(
            format!("expected a function of the module, got @{func}"),
            &Loc::unknown(),
        ));
    };
    if let Err(name) = call_order(module) {
        let why = format!("expected functions that do not call themselves, got @{name}");
        return Err(refused(why, &source.loc));
    }
    let mut dst = GraphFunc::new(func);
    dst.loc = source.loc.clone();
    dst.attrs = source.attrs.clone();
    let symbols = symbols(source, args, &source.loc)?;
    let mut frame = Frame { source, map: BTreeMap::new(), symbols, call: None, path: Vec::new() };
    let body = dst.body;
    for &param in source.params() {
        let data = &source.values[param];
        let value = dst.add_arg(body, frame.ty(&data.ty), data.name.as_deref());
        frame.map.insert(param, value);
    }
    let mut made = Inline { module, keep, dst, composites: BTreeMap::new() };
    made.block(&mut frame, source.body, body, true)?;
    let Inline { dst: mut func, composites, .. } = made;
    dce(&mut func, &|_| true);
    let left: BTreeSet<OpId> = func.walk().into_iter().collect();
    let composites = composites.into_iter().filter(|(id, _)| left.contains(id)).collect();
    Ok(Flat { func, composites })
}

impl Inline<'_> {
    /// Copies the ops of a block; the terminator too where `whole`. Returns the operands of the terminator.
    fn block(
        &mut self,
        frame: &mut Frame<'_>,
        from: BlockId,
        to: BlockId,
        whole: bool,
    ) -> Result<Vec<Value>, Diagnostics> {
        let source = frame.source;
        for &id in &source.blocks[from].ops {
            let op = &source.ops[id];
            let loc = frame.loc(&op.loc);
            let mut operands = Vec::with_capacity(op.operands.len());
            for value in &op.operands {
                let Some(&known) = frame.map.get(value) else {
                    return Err(refused(format!("expected %{value} to be computed before"), &loc));
                };
                operands.push(known);
            }
            if op.is_terminator() && !whole {
                return Ok(operands);
            }
            let mut path = frame.path.clone();
            path.push(id);
            let is_kept = op.code == GraphOp::Composite && self.keep.has(&path);
            if let Some(name) = called(op).filter(|_| !is_kept) {
                let Some(callee) = self.module.func(name) else {
                    let why = format!("expected a function of the module, got @{name}");
                    return Err(refused(why, &loc));
                };
                let args: Vec<Type> = operands.iter().map(|&v| self.dst.ty(v).clone()).collect();
                let symbols = symbols(callee, &args, &loc)?;
                let map = callee.params().iter().copied().zip(operands).collect();
                let call = Some((Arc::from(callee.name.as_str()), loc));
                let mut inner = Frame { source: callee, map, symbols, call, path };
                let made = self.block(&mut inner, callee.body, to, false)?;
                frame.map.extend(op.results.iter().copied().zip(made));
                continue;
            }
            let new = self.op(frame, (id, loc), operands, to)?;
            if is_kept {
                self.composites.insert(new, path);
            }
        }
        Ok(Vec::new())
    }

    fn op(
        &mut self,
        frame: &mut Frame<'_>,
        (id, loc): (OpId, Loc),
        operands: Vec<Value>,
        to: BlockId,
    ) -> Result<OpId, Diagnostics> {
        let source = frame.source;
        let op = &source.ops[id];
        let mut attrs = substitute_attrs(&op.attrs, op.code.info(), &frame.symbols);
        let mut code = op.code;
        if let (GraphOp::Dim, Some(tessera_ir::DimExpr::Const(n))) =
            (op.code, attrs.get("name").and_then(tessera_ir::Attr::as_expr))
        {
            code = GraphOp::Const;
            attrs = Attrs::new().with("value", tessera_ir::Attr::Int(n));
        }
        let new = self.dst.ops.push(Op {
            code,
            operands,
            group_lens: op.group_lens.clone(),
            results: Vec::new(),
            attrs,
            regions: Vec::new(),
            loc,
            block: to,
        });
        for (index, &result) in op.results.iter().enumerate() {
            let data = &source.values[result];
            let (ty, name) = (frame.ty(&data.ty), data.name.clone());
            let def = ValueDef::Result(new, index);
            let value = self.dst.values.push(ValueData { ty, name, def });
            self.dst.ops[new].results.push(value);
            frame.map.insert(result, value);
        }
        for &region in &op.regions {
            let inner = self.dst.add_block(Some(new));
            self.dst.ops[new].regions.push(inner);
            for &arg in &source.blocks[region].args {
                let data = &source.values[arg];
                let value = self.dst.add_arg(inner, frame.ty(&data.ty), data.name.as_deref());
                frame.map.insert(arg, value);
            }
            self.block(frame, region, inner, true)?;
        }
        self.dst.blocks[to].ops.push(new);
        Ok(new)
    }
}
