//! The hash of a function: its structure, types and attributes. Names and places are not in it,
//! so that renaming a variable or moving a kernel down a file changes no cache key. One kind of
//! name is more than a name: that of a parameter which an expression in an attribute speaks of
//! (`grid = [cdiv(N, 64)]`). Those are hashed.

use crate::{Attr, BlockId, Func, IR_VERSION, Level, Module, Opcode, Value};
use std::collections::BTreeSet;
use tessera_support::{Hash128, SideTable, StableHasher};

impl<L: Level> Func<L> {
    pub fn hash(&self) -> Hash128 {
        let mut h = StableHasher::new();
        self.hash_into(&mut h);
        h.finish()
    }

    fn hash_into(&self, h: &mut StableHasher) {
        h.write_str(L::NAME);
        h.write_u64(IR_VERSION as u64);
        h.write_str(&self.name);
        h.write_str(&self.attrs_in_order().to_string());
        let mut symbols = BTreeSet::new();
        self.attrs.iter().for_each(|(_, a)| symbols_of(a, &mut symbols));
        for op in self.walk() {
            self.ops[op].attrs.iter().for_each(|(_, a)| symbols_of(a, &mut symbols));
        }
        for (index, &param) in self.params().iter().enumerate() {
            if let Some(name) = self.name_of(param).filter(|n| symbols.contains(*n)) {
                h.write_u64(index as u64);
                h.write_str(name);
            }
        }
        let mut numbers = SideTable::new(u64::MAX);
        let mut next = 0;
        self.hash_block(self.body, &mut numbers, &mut next, h);
    }

    fn hash_block(
        &self,
        block: BlockId,
        numbers: &mut SideTable<Value, u64>,
        next: &mut u64,
        h: &mut StableHasher,
    ) {
        let block = &self.blocks[block];
        h.write_u64(block.args.len() as u64);
        for &arg in &block.args {
            self.number(arg, numbers, next, h);
        }
        h.write_u64(block.ops.len() as u64);
        for &id in &block.ops {
            let op = &self.ops[id];
            h.write_str(op.code.mnemonic());
            h.write_u64(op.operands.len() as u64);
            op.operands.iter().for_each(|&v| h.write_u64(numbers[v]));
            h.write_u64(op.group_lens.len() as u64);
            op.group_lens.iter().for_each(|&n| h.write_u64(n as u64));
            h.write_str(&op.attrs_in_order().to_string());
            h.write_u64(op.regions.len() as u64);
            for &region in &op.regions {
                self.hash_block(region, numbers, next, h);
            }
            h.write_u64(op.results.len() as u64);
            for &result in &op.results {
                self.number(result, numbers, next, h);
            }
        }
    }

    fn number(
        &self,
        value: Value,
        numbers: &mut SideTable<Value, u64>,
        next: &mut u64,
        h: &mut StableHasher,
    ) {
        numbers.set(value, *next);
        *next += 1;
        h.write_str(&self.ty(value).to_string());
    }
}

/// Every word an attribute holds that may be a dimension symbol. A word from a closed set is taken
/// for one too: then a parameter of that name is hashed with its name, which costs a cache hit and
/// never gives a wrong one.
fn symbols_of(attr: &Attr, out: &mut BTreeSet<String>) {
    match attr {
        Attr::Expr(e) => out.extend(e.symbols().iter().map(|s| s.to_string())),
        Attr::Word(w) => {
            out.insert(w.clone());
        }
        Attr::List(items) => items.iter().for_each(|a| symbols_of(a, out)),
        Attr::Dict(items) => items.iter().for_each(|(_, a)| symbols_of(a, out)),
        Attr::Bool(_)
        | Attr::Int(_)
        | Attr::Float(_)
        | Attr::Str(_)
        | Attr::Ref(_)
        | Attr::Type(_) => {}
    }
}

impl<L: Level> Module<L> {
    pub fn hash(&self) -> Hash128 {
        let mut h = StableHasher::new();
        h.write_str(&self.name);
        h.write_str(&self.attrs.to_string());
        h.write_u64(self.funcs.len() as u64);
        for func in &self.funcs {
            func.hash_into(&mut h);
        }
        h.finish()
    }
}
