//! Sums of counts.

/// Arithmetic, and the bytes read and written of each parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    pub flops: u64,
    pub read: Vec<u64>,
    pub written: Vec<u64>,
}

impl Tally {
    pub fn new(params: usize) -> Self {
        Self { flops: 0, read: vec![0; params], written: vec![0; params] }
    }

    /// Adds `other`, so many times.
    pub fn add(&mut self, other: &Tally, times: u64) {
        let sum = |to: &mut u64, from: u64| *to = to.saturating_add(from.saturating_mul(times));
        sum(&mut self.flops, other.flops);
        self.read.iter_mut().zip(&other.read).for_each(|(to, from)| sum(to, *from));
        self.written.iter_mut().zip(&other.written).for_each(|(to, from)| sum(to, *from));
    }

    /// One figure by which two branches can be compared.
    pub fn size(&self) -> u64 {
        self.read.iter().chain(&self.written).fold(self.flops, |a, b| a.saturating_add(*b))
    }
}
