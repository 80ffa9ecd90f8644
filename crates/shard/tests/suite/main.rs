//! Tests of the partitioner: texts, and random programs against the interpreter of whole arrays.

mod random;
mod texts;

use tessera_graph::{Graph, GraphModule};
use tessera_interp::{HostArray, NoKernels, run_graph};
use tessera_ir::{Type, parse_module};

fn module(text: &str) -> GraphModule {
    let text = format!("module @m : graph {{version = 1}}\n\n{text}");
    parse_module::<Graph>(&text, "test").unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn types(module: &GraphModule) -> Vec<Type> {
    let func = module.func("f").unwrap();
    func.params().iter().map(|&p| func.ty(p).clone()).collect()
}

fn run(module: &GraphModule, args: &[HostArray]) -> Vec<HostArray> {
    run_graph(module, "f", args, &mut NoKernels).unwrap_or_else(|e| panic!("{e}\n{module}"))
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}
