//! Linear algebra over bits: vectors are the bits of a `u64`, addition is XOR.

/// The span of vectors that were inserted one after another, kept so that any vector of the span
/// can be written as a sum of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Span {
    /// Reduced vectors, each with its own highest bit, and which inserted vectors sum to it.
    rows: Vec<(u64, u64)>,
    /// Sums of inserted vectors that are zero, one for each dependent vector.
    kernel: Vec<u64>,
    inserted: u32,
}

impl Span {
    pub fn of(vectors: impl IntoIterator<Item = u64>) -> Span {
        let mut span = Span::default();
        for vector in vectors {
            span.insert(vector);
        }
        span
    }

    /// Adds the next vector; false when it is a sum of earlier ones.
    pub fn insert(&mut self, vector: u64) -> bool {
        let (rest, combination) = self.reduce(vector);
        let combination = combination | 1 << self.inserted;
        self.inserted += 1;
        if rest == 0 {
            self.kernel.push(combination);
        } else {
            self.rows.push((rest, combination));
            self.rows.sort_unstable_by(|a, b| b.cmp(a));
        }
        rest != 0
    }

    pub fn rank(&self) -> u32 {
        self.rows.len() as u32
    }

    /// Sums of inserted vectors that are zero. Each has one dependent vector, its highest bit.
    pub fn kernel(&self) -> &[u64] {
        &self.kernel
    }

    /// Which inserted vectors sum to `vector`. Dependent ones are never among them.
    pub fn solve(&self, vector: u64) -> Option<u64> {
        let (rest, combination) = self.reduce(vector);
        (rest == 0).then_some(combination)
    }

    fn reduce(&self, mut vector: u64) -> (u64, u64) {
        let mut combination = 0;
        for &(row, of) in &self.rows {
            if vector >> row.ilog2() & 1 == 1 {
                vector ^= row;
                combination ^= of;
            }
        }
        (vector, combination)
    }
}

/// The positions of the ones in `word`, lowest first.
pub(crate) fn ones(word: u64) -> impl Iterator<Item = usize> {
    (0..64).filter(move |bit| word >> bit & 1 == 1)
}
