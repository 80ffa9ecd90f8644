//! Functions: values in SSA form, ops in blocks, blocks in structured regions. A region is one
//! block; control flow is nesting, so that "defined before use in an enclosing block" is dominance.

use crate::{Attr, Attrs, Opcode, Type};
use std::borrow::Cow;
use std::sync::Arc;
use tessera_diag::Loc;
use tessera_support::{Arena, entity};

entity!(pub struct OpId, "op");
entity!(pub struct BlockId, "block");
entity!(pub struct Value, "v");

/// One IR level.
pub trait Level: Copy + Clone + Eq + Ord + std::fmt::Debug + Send + Sync + 'static {
    /// What stands in the text of modules: `module @m : tile`.
    const NAME: &'static str;
    /// The prefix of op names, without the dot.
    const PREFIX: &'static str;
    type Op: Opcode<Self>;
    fn admits(ty: &Type) -> bool;
    /// The attributes a function of this level may have, in the order they are printed in.
    const FUNC_ATTRS: &'static [&'static str] = &[];
    /// Rules on a whole function beyond those on each op.
    fn verify_func(_func: &Func<Self>, _errors: &mut crate::OpErrors) {}
}

fn in_order<'a>(attrs: &'a Attrs, names: &[&str]) -> Cow<'a, Attrs> {
    if attrs.is_arranged(names) {
        return Cow::Borrowed(attrs);
    }
    let mut sorted = attrs.clone();
    sorted.arrange(names);
    Cow::Owned(sorted)
}

#[derive(Clone, Debug, PartialEq)]
pub enum ValueDef {
    Result(OpId, usize),
    Arg(BlockId, usize),
}

#[derive(Clone, Debug)]
pub struct ValueData {
    pub ty: Type,
    /// What the user called it; printed, never hashed.
    pub name: Option<Arc<str>>,
    pub def: ValueDef,
}

#[derive(Clone, Debug)]
pub struct Block {
    pub args: Vec<Value>,
    pub ops: Vec<OpId>,
    /// The op whose region this is; `None` for the body of the function.
    pub parent: Option<OpId>,
}

#[derive(Clone, Debug)]
pub struct Op<L: Level> {
    pub code: L::Op,
    /// Positional operands, then each group's.
    pub operands: Vec<Value>,
    /// The length of each group of the op's row.
    pub group_lens: Vec<usize>,
    pub results: Vec<Value>,
    pub attrs: Attrs,
    pub regions: Vec<BlockId>,
    pub loc: Loc,
    /// The block that holds it.
    pub block: BlockId,
}

impl<L: Level> Op<L> {
    pub fn attr(&self, name: &str) -> Option<&Attr> {
        self.attrs.get(name)
    }

    pub fn positional(&self) -> &[Value] {
        &self.operands[..self.operands.len() - self.group_lens.iter().sum::<usize>()]
    }

    /// The operands of a group by name; empty if the op has no such group.
    pub fn group(&self, name: &str) -> &[Value] {
        let specs = self.code.info().groups;
        let mut start = self.positional().len();
        for (spec, len) in specs.iter().zip(&self.group_lens) {
            if spec.name == name {
                return &self.operands[start..start + len];
            }
            start += len;
        }
        &[]
    }

    /// The attributes in the order of the op's row, however they were set: the order that is
    /// printed and hashed.
    pub fn attrs_in_order(&self) -> Cow<'_, Attrs> {
        let names: Vec<_> = self.code.info().attrs.iter().map(|a| a.name).collect();
        in_order(&self.attrs, &names)
    }

    pub fn result(&self) -> Value {
        self.results[0]
    }

    pub fn is_terminator(&self) -> bool {
        self.code.info().effects == crate::Effects::Terminator
    }
}

#[derive(Clone, Debug)]
pub struct Func<L: Level> {
    pub name: String,
    pub attrs: Attrs,
    pub loc: Loc,
    pub ops: Arena<OpId, Op<L>>,
    pub blocks: Arena<BlockId, Block>,
    pub values: Arena<Value, ValueData>,
    pub body: BlockId,
}

impl<L: Level> Func<L> {
    pub fn new(name: impl Into<String>) -> Self {
        let mut blocks = Arena::new();
        let body = blocks.push(Block { args: Vec::new(), ops: Vec::new(), parent: None });
        Self {
            name: name.into(),
            attrs: Attrs::new(),
            loc: Loc::unknown(),
            ops: Arena::new(),
            blocks,
            values: Arena::new(),
            body,
        }
    }

    /// The function's attributes in the level's order.
    pub fn attrs_in_order(&self) -> Cow<'_, Attrs> {
        in_order(&self.attrs, L::FUNC_ATTRS)
    }

    pub fn params(&self) -> &[Value] {
        &self.blocks[self.body].args
    }

    pub fn ty(&self, value: Value) -> &Type {
        &self.values[value].ty
    }

    pub fn name_of(&self, value: Value) -> Option<&str> {
        self.values[value].name.as_deref()
    }

    pub fn set_name(&mut self, value: Value, name: &str) {
        self.values[value].name = Some(Arc::from(name));
    }

    /// The op that gives `value`, unless it is a block argument.
    pub fn def(&self, value: Value) -> Option<&Op<L>> {
        self.def_id(value).map(|id| &self.ops[id])
    }

    pub fn def_id(&self, value: Value) -> Option<OpId> {
        match self.values[value].def {
            ValueDef::Result(op, _) => Some(op),
            ValueDef::Arg(..) => None,
        }
    }

    pub fn add_block(&mut self, parent: Option<OpId>) -> BlockId {
        self.blocks.push(Block { args: Vec::new(), ops: Vec::new(), parent })
    }

    pub fn add_arg(&mut self, block: BlockId, ty: Type, name: Option<&str>) -> Value {
        let index = self.blocks[block].args.len();
        let value = self.values.push(ValueData {
            ty,
            name: name.map(Arc::from),
            def: ValueDef::Arg(block, index),
        });
        self.blocks[block].args.push(value);
        value
    }

    pub fn terminator(&self, block: BlockId) -> Option<OpId> {
        self.blocks[block].ops.last().copied().filter(|&op| self.ops[op].is_terminator())
    }

    /// Every op that is in a block, outer before inner, in order.
    pub fn walk(&self) -> Vec<OpId> {
        let mut out = Vec::with_capacity(self.ops.len());
        self.walk_block(self.body, &mut |op| out.push(op));
        out
    }

    pub fn walk_block(&self, block: BlockId, visit: &mut dyn FnMut(OpId)) {
        for &op in &self.blocks[block].ops {
            visit(op);
            for &region in &self.ops[op].regions {
                self.walk_block(region, visit);
            }
        }
    }

    /// The chain of ops whose regions hold `block`, innermost first.
    pub fn ancestors(&self, block: BlockId) -> Vec<OpId> {
        let mut out = Vec::new();
        let mut at = self.blocks[block].parent;
        while let Some(op) = at {
            out.push(op);
            at = self.blocks[self.ops[op].block].parent;
        }
        out
    }

    /// Whether `inner` is `outer` or nested in one of its regions.
    pub fn block_within(&self, inner: BlockId, outer: BlockId) -> bool {
        let mut at = inner;
        loop {
            if at == outer {
                return true;
            }
            match self.blocks[at].parent {
                Some(op) => at = self.ops[op].block,
                None => return false,
            }
        }
    }
}

/// Functions of one level under a name: what is printed, parsed and hashed as a whole.
#[derive(Clone, Debug)]
pub struct Module<L: Level> {
    pub name: String,
    pub attrs: Attrs,
    pub funcs: Vec<Func<L>>,
}

impl<L: Level> Module<L> {
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), attrs: Attrs::new(), funcs: Vec::new() }
    }

    pub fn func(&self, name: &str) -> Option<&Func<L>> {
        self.funcs.iter().find(|f| f.name == name)
    }
}
