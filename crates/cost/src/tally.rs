//! Sums of counts.

use std::collections::BTreeMap;
use tessera_ir::OpId;

/// Arithmetic, the bytes read and written of each parameter, the bytes requested where short rows
/// are counted in whole sectors, the rows of tiles by their parameter and bytes, and the number of
/// executions of each MMA.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    pub flops: u64,
    pub read: Vec<u64>,
    pub written: Vec<u64>,
    pub requested: u64,
    pub rows: BTreeMap<(usize, u64), u64>,
    pub products: BTreeMap<OpId, u64>,
    /// How often a group waits for loads: those of one pass through a block are in flight together.
    pub waits: u64,
}

impl Tally {
    pub fn new(params: usize) -> Self {
        let (read, written) = (vec![0; params], vec![0; params]);
        let (rows, products) = (BTreeMap::new(), BTreeMap::new());
        Self { flops: 0, read, written, requested: 0, rows, products, waits: 0 }
    }

    /// Adds `other`, `times` times.
    pub fn add(&mut self, other: &Tally, times: u64) {
        let sum = |to: &mut u64, from: u64| *to = to.saturating_add(from.saturating_mul(times));
        sum(&mut self.flops, other.flops);
        sum(&mut self.requested, other.requested);
        sum(&mut self.waits, other.waits);
        for (row, from) in &other.rows {
            sum(self.rows.entry(*row).or_default(), *from);
        }
        for (id, from) in &other.products {
            sum(self.products.entry(*id).or_default(), *from);
        }
        self.read.iter_mut().zip(&other.read).for_each(|(to, from)| sum(to, *from));
        self.written.iter_mut().zip(&other.written).for_each(|(to, from)| sum(to, *from));
    }

    /// One figure by which two branches can be compared.
    pub fn size(&self) -> u64 {
        self.read.iter().chain(&self.written).fold(self.flops, |a, b| a.saturating_add(*b))
    }
}
