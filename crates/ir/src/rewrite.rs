//! Rewriting by rebuilding: copy a function op by op into a new one, changing what is to change on
//! the way. Nothing dangles, and the old function stays as it was if the pass gives up.

use crate::{BlockId, Func, Level, Op, OpId, Type, Value, ValueData, ValueDef};
use tessera_diag::Loc;
use tessera_support::SideTable;

/// Copies from `old` into `new`; `map` says which new value stands for an old one.
pub struct Rewriter<'f, L: Level> {
    pub old: &'f Func<L>,
    pub new: Func<L>,
    map: SideTable<Value, Option<Value>>,
    /// A value that no op and no block gives: it stands for old values that were never mapped.
    nowhere: Value,
}

impl<'f, L: Level> Rewriter<'f, L> {
    /// A new function with the same name, attributes and parameters, and an empty body.
    pub fn new(old: &'f Func<L>) -> Self {
        let mut new = Func::new(old.name.clone());
        new.attrs = old.attrs.clone();
        new.loc = old.loc.clone();
        let nowhere = new.values.push(ValueData {
            ty: Type::BOOL,
            name: Some("nowhere".into()),
            def: ValueDef::Arg(new.body, usize::MAX),
        });
        let mut this = Self { old, new, map: SideTable::new(None), nowhere };
        this.copy_args(old.body, this.new.body);
        this
    }

    /// The new value for an old one. An old value that was never mapped is a fault of the pass;
    /// the verifier then reports the use.
    pub fn get(&self, old: Value) -> Value {
        self.map[old].unwrap_or(self.nowhere)
    }

    pub fn set(&mut self, old: Value, new: Value) {
        self.map.set(old, Some(new));
    }

    pub fn is_mapped(&self, old: Value) -> bool {
        self.map[old].is_some()
    }

    pub fn copy_args(&mut self, from: BlockId, to: BlockId) {
        for &arg in &self.old.blocks[from].args {
            let data = &self.old.values[arg];
            let value = self.new.add_arg(to, data.ty.clone(), data.name.as_deref());
            self.set(arg, value);
        }
    }

    /// Copies one op with its regions, unchanged but for its operands.
    pub fn copy_op(&mut self, id: OpId, into: BlockId) -> OpId {
        self.copy_op_with(id, into, &mut |this, inner, block| {
            this.copy_op(inner, block);
        })
    }

    /// Copies one op; `each` decides what becomes of every op in its regions.
    pub fn copy_op_with(
        &mut self,
        id: OpId,
        into: BlockId,
        each: &mut dyn FnMut(&mut Self, OpId, BlockId),
    ) -> OpId {
        let old = &self.old.ops[id];
        let operands = old.operands.iter().map(|&v| self.get(v)).collect();
        let new_id = self.new.ops.push(Op {
            code: old.code,
            operands,
            group_lens: old.group_lens.clone(),
            results: Vec::new(),
            attrs: old.attrs.clone(),
            regions: Vec::new(),
            loc: old.loc.clone(),
            block: into,
        });
        for (index, &result) in old.results.iter().enumerate() {
            let data = &self.old.values[result];
            let value = self.new.values.push(ValueData {
                ty: data.ty.clone(),
                name: data.name.clone(),
                def: ValueDef::Result(new_id, index),
            });
            self.new.ops[new_id].results.push(value);
            self.set(result, value);
        }
        for &region in &old.regions {
            let block = self.new.add_block(Some(new_id));
            self.new.ops[new_id].regions.push(block);
            self.copy_args(region, block);
            for &inner in &self.old.blocks[region].ops {
                each(self, inner, block);
            }
        }
        self.new.blocks[into].ops.push(new_id);
        new_id
    }

    /// A builder at the end of a block of the new function.
    pub fn builder(&mut self, block: BlockId, loc: Loc) -> crate::Builder<'_, L> {
        crate::Builder::at_end(&mut self.new, block, loc)
    }
}

impl<L: Level> Func<L> {
    /// Replaces every use of one value by another.
    pub fn replace_uses(&mut self, old: Value, new: Value) {
        for id in self.walk() {
            for operand in &mut self.ops[id].operands {
                if *operand == old {
                    *operand = new;
                }
            }
        }
    }

    /// Takes an op out of its block. Its results must have no uses left.
    pub fn erase(&mut self, id: OpId) {
        let block = self.ops[id].block;
        self.blocks[block].ops.retain(|&op| op != id);
    }
}
