//! The hash of a function: its structure, types and attributes. Names and places are not in it,
//! so that renaming a variable or moving a kernel down a file changes no cache key.

use crate::{BlockId, Func, IR_VERSION, Level, Module, Opcode, Value};
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
        h.write_str(&self.attrs.to_string());
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
            h.write_str(&op.attrs.to_string());
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

    fn number(&self, value: Value, numbers: &mut SideTable<Value, u64>, next: &mut u64, h: &mut StableHasher) {
        numbers.set(value, *next);
        *next += 1;
        h.write_str(&self.ty(value).to_string());
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
