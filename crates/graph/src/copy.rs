//! Copying ops from one function into another with other operands, other symbols and other places:
//! what inlining and every transform is made of.

use crate::dims::{Symbols, bind, substitute_attrs, substitute_type};
use crate::rule::Refusal;
use crate::{Graph, GraphFunc};
use std::sync::Arc;
use tessera_diag::Loc;
use tessera_ir::{BlockId, Op, OpId, Opcode, Type, Value, ValueData, ValueDef};
use tessera_support::SideTable;

/// Copies ops: maps the values of `source` to values of the target function.
pub struct Copier<'s> {
    source: &'s GraphFunc,
    map: SideTable<Value, Option<Value>>,
    symbols: Symbols,
    /// The function that is inlined, and where it is called.
    call: Option<(Arc<str>, Loc)>,
}

impl<'s> Copier<'s> {
    pub fn new(source: &'s GraphFunc) -> Self {
        Self { source, map: SideTable::new(None), symbols: Symbols::new(), call: None }
    }

    /// A copier whose symbols stand for the extents of arguments of these types.
    pub fn bound(source: &'s GraphFunc, args: &[Type]) -> Result<Self, Refusal> {
        let params: Vec<_> = source.params().iter().map(|&p| source.ty(p).clone()).collect();
        if params.len() != args.len() {
            return Err(Refusal::structure(format!(
                "expected {} arguments for @{}, got {}",
                params.len(),
                source.name,
                args.len()
            )));
        }
        let symbols = bind(&params, args).map_err(|(param, arg)| {
            Refusal::shape(format!("expected an argument of type {param}, got {arg}"))
        })?;
        Ok(Self { symbols, ..Self::new(source) })
    }

    /// Places of copied ops are said to be inside `function`, called at `call_site`.
    pub fn called_at(mut self, function: Arc<str>, call_site: Loc) -> Self {
        self.call = Some((function, call_site));
        self
    }

    pub fn set(&mut self, old: Value, new: Value) {
        self.map.set(old, Some(new));
    }

    /// The new value of an old one; `None` where it is not mapped.
    pub fn get(&self, old: Value) -> Option<Value> {
        self.map[old]
    }

    /// The value for an old one, which must have been set or copied.
    fn mapped(&self, old: Value) -> Value {
        self.map[old].unwrap_or_else(|| {
            panic!("%{old} of @{} is copied before what it stands for is set", self.source.name)
        })
    }

    pub fn ty(&self, ty: &Type) -> Type {
        substitute_type(ty, &self.symbols)
    }

    /// Where a copied op stands.
    pub fn loc(&self, loc: &Loc) -> Loc {
        match &self.call {
            Some((function, site)) => loc.inside(function, site),
            None => loc.clone(),
        }
    }

    /// Copies an op with its regions to the end of a block.
    pub fn copy_op(&mut self, id: OpId, dst: &mut GraphFunc, block: BlockId) -> OpId {
        let old: &Op<Graph> = &self.source.ops[id];
        let new = dst.ops.push(Op {
            code: old.code,
            operands: old.operands.iter().map(|&v| self.mapped(v)).collect(),
            group_lens: old.group_lens.clone(),
            results: Vec::new(),
            attrs: substitute_attrs(&old.attrs, old.code.info(), &self.symbols),
            regions: Vec::new(),
            loc: self.loc(&old.loc),
            block,
        });
        for (index, &result) in old.results.iter().enumerate() {
            let data = &self.source.values[result];
            let value = dst.values.push(ValueData {
                ty: self.ty(&data.ty),
                name: data.name.clone(),
                def: ValueDef::Result(new, index),
            });
            dst.ops[new].results.push(value);
            self.set(result, value);
        }
        for &region in &self.source.ops[id].regions {
            let inner = dst.add_block(Some(new));
            dst.ops[new].regions.push(inner);
            for &arg in &self.source.blocks[region].args {
                let data = &self.source.values[arg];
                let value = dst.add_arg(inner, self.ty(&data.ty), data.name.as_deref());
                self.set(arg, value);
            }
            for &op in &self.source.blocks[region].ops {
                self.copy_op(op, dst, inner);
            }
        }
        dst.blocks[block].ops.push(new);
        new
    }

    /// Copies the ops of a block except its terminator, and returns the terminator's operands.
    pub fn copy_block(&mut self, from: BlockId, dst: &mut GraphFunc, block: BlockId) -> Vec<Value> {
        for &op in &self.source.blocks[from].ops {
            if self.source.ops[op].is_terminator() {
                return self.source.ops[op].operands.iter().map(|&v| self.mapped(v)).collect();
            }
            self.copy_op(op, dst, block);
        }
        Vec::new()
    }
}

/// A copy of a function under another name, with symbols replaced.
pub fn clone_with(func: &GraphFunc, name: &str, symbols: &Symbols) -> GraphFunc {
    let mut out = GraphFunc::new(name);
    out.attrs = func.attrs.clone();
    out.loc = func.loc.clone();
    let mut copier = Copier { symbols: symbols.clone(), ..Copier::new(func) };
    let body = out.body;
    for &param in func.params() {
        let data = &func.values[param];
        let value = out.add_arg(body, copier.ty(&data.ty), data.name.as_deref());
        copier.set(param, value);
    }
    for &op in &func.blocks[func.body].ops {
        copier.copy_op(op, &mut out, body);
    }
    out
}
