//! How much the process keeps of what it compiled.

use crate::{cache, graph, kernel, made, processor};

/// One kind of what is kept.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub name: &'static str,
    pub entries: usize,
    pub bytes: usize,
}

/// All kinds. What functions and kernels hold goes with them; `store` has a limit.
pub fn kept() -> Vec<Kept> {
    let rows = [
        ("kernels", kernel::census()),
        ("functions", graph::functions_alive()),
        ("function_kernels", graph::kernels_alive()),
        ("derived_kernels", made::census()),
        ("code", processor::mapped_code()),
        ("store", cache::in_memory()),
    ];
    rows.map(|(name, (entries, bytes))| Kept { name, entries, bytes }).to_vec()
}
