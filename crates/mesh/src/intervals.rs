//! Sets of positions along one dim, as unions of strided intervals. All answers are exact, for blocks, cyclic and block-cyclic sets and
//! any nesting of them.

use std::fmt;

/// The positions `start, start + step, …`, `count` of them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Run {
    pub start: u64,
    pub step: u64,
    pub count: u64,
}

impl Run {
    fn last(&self) -> u64 {
        self.start + (self.count - 1) * self.step
    }

    /// The common positions of two runs.
    fn intersect(&self, other: &Run) -> Option<Run> {
        if self.step == 1 && other.step == 1 {
            // Most sets are blocks, and the general way divides.
            let start = self.start.max(other.start);
            let last = self.last().min(other.last());
            return (start <= last).then(|| Run { start, step: 1, count: last - start + 1 });
        }
        let (a, b) = (i128::from(self.start), i128::from(other.start));
        let (da, db) = (i128::from(self.step), i128::from(other.step));
        let (g, inverse) = gcd_and_inverse(da, db);
        if (b - a) % g != 0 {
            return None;
        }
        // a + da·k = b (mod db), for the smallest k.
        let k = ((b - a) / g % (db / g) * inverse).rem_euclid(db / g);
        let step = da / g * db;
        let met = a + da * k;
        let from = a.max(b);
        let first = if met >= from {
            met - (met - from) / step * step
        } else {
            met + (from - met + step - 1) / step * step
        };
        let to = i128::from(self.last().min(other.last()));
        if first > to {
            return None;
        }
        let count = (to - first) / step + 1;
        // Within u64: the positions are, and a step is used only between two of them.
        let step = if count == 1 { 1 } else { step as u64 };
        Some(Run { start: first as u64, step, count: count as u64 })
    }
}

/// `gcd(a, b)` and `x` with `a·x = gcd (mod b)`.
fn gcd_and_inverse(a: i128, b: i128) -> (i128, i128) {
    let (mut r, mut s) = ((a, b), (1, 0));
    while r.1 != 0 {
        let quotient = r.0 / r.1;
        r = (r.1, r.0 - quotient * r.1);
        s = (s.1, s.0 - quotient * s.1);
    }
    (r.0, s.0)
}

/// Common positions of two sets: where they are in either. The `i`-th is at `from + i·from_step` of the one, at `to + i·to_step` of the
/// other.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    pub from: u64,
    pub from_step: u64,
    pub to: u64,
    pub to_step: u64,
    pub count: u64,
}

/// Positions in ascending order. Runs do not overlap: each ends before the next begins. Sets are equal if they have the same elements.
#[derive(Clone, Debug, Default)]
pub struct IndexSet {
    runs: Vec<Run>,
    len: u64,
}

impl IndexSet {
    pub fn empty() -> IndexSet {
        IndexSet::default()
    }

    /// The positions `from` to `to`, without `to`.
    pub fn range(from: u64, to: u64) -> IndexSet {
        let mut made = IndexSet::empty();
        made.push(Run { start: from, step: 1, count: to.saturating_sub(from) });
        made
    }

    /// Runs in ascending order, each behind the one before; `None` where they are not.
    pub fn of(runs: Vec<Run>) -> Option<IndexSet> {
        let mut made = IndexSet::empty();
        for run in runs.into_iter().filter(|r| r.count > 0) {
            let span = (run.count - 1).checked_mul(run.step)?;
            run.start.checked_add(span)?;
            if run.step == 0 || made.runs.last().is_some_and(|r| r.last() >= run.start) {
                return None;
            }
            made.push(run);
        }
        Some(made)
    }

    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first position and the last.
    pub fn span(&self) -> Option<(u64, u64)> {
        Some((self.runs.first()?.start, self.runs.last()?.last()))
    }

    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.runs.iter().flat_map(|r| (0..r.count).map(|i| r.start + i * r.step))
    }

    /// Slices joined by `+`, as they are printed: `0:2 + 6:11:2`.
    pub fn parse(text: &str) -> Option<IndexSet> {
        let mut made = IndexSet::empty();
        for slice in text.split('+') {
            let numbers: Vec<u64> =
                slice.split(':').map(|n| n.trim().parse().ok()).collect::<Option<_>>()?;
            let (start, end, step) = match numbers[..] {
                [start, end] => (start, end, 1),
                [start, end, step] => (start, end, step),
                _ => return None,
            };
            let behind = made.runs.last().is_none_or(|r| r.last() < start);
            if end < start || step == 0 || !behind {
                return None;
            }
            made.push(Run { start, step, count: (end - start).div_ceil(step) });
        }
        Some(made)
    }

    /// Appends positions behind all others; joined with the last run where both are one progression.
    pub(crate) fn push(&mut self, run: Run) {
        if run.count == 0 {
            return;
        }
        let mut run = run;
        if run.count == 1 {
            run.step = 1;
        }
        self.len += run.count;
        let Some(last) = self.runs.last_mut() else {
            self.runs.push(run);
            return;
        };
        let gap = run.start - last.last();
        let follows = (last.count == 1 || last.step == gap) && (run.count == 1 || run.step == gap);
        if follows {
            *last = Run { start: last.start, step: gap, count: last.count + run.count };
        } else {
            self.runs.push(run);
        }
    }

    /// The elements at these positions of the set: `positions` are places in the ascending order of its elements.
    pub fn select(&self, positions: &IndexSet) -> IndexSet {
        let mut made = IndexSet::empty();
        for piece in positions.pieces(&self.places()) {
            let (at, offset) = self.run_at(piece.to);
            // A piece lies within a run of `places`, which has one for all: cut it where runs of this set end.
            let mut done = 0;
            let (mut at, mut offset) = (at, offset);
            while done < piece.count {
                let run = self.runs[at];
                let place = piece.to + done * piece.to_step;
                if place >= offset + run.count {
                    offset += run.count;
                    at += 1;
                    continue;
                }
                let inside = (offset + run.count - 1 - place) / piece.to_step + 1;
                let count = inside.min(piece.count - done);
                made.push(Run {
                    start: run.start + (place - offset) * run.step,
                    step: run.step * piece.to_step,
                    count,
                });
                done += count;
            }
        }
        made
    }

    fn places(&self) -> IndexSet {
        IndexSet::range(0, self.len)
    }

    /// The run that has an element, and the place of its first.
    fn run_at(&self, place: u64) -> (usize, u64) {
        let mut offset = 0;
        for (at, run) in self.runs.iter().enumerate() {
            if place < offset + run.count {
                return (at, offset);
            }
            offset += run.count;
        }
        (self.runs.len(), offset)
    }

    pub fn contains(&self, position: u64) -> bool {
        let at = self.runs.partition_point(|r| r.last() < position);
        self.runs
            .get(at)
            .is_some_and(|r| position >= r.start && (position - r.start).is_multiple_of(r.step))
    }

    pub fn intersect(&self, other: &IndexSet) -> IndexSet {
        let mut made = IndexSet::empty();
        self.each_common(other, |_, _, run| {
            made.push(run);
            true
        });
        made
    }

    pub fn is_disjoint(&self, other: &IndexSet) -> bool {
        let mut disjoint = true;
        self.each_common(other, |_, _, _| {
            disjoint = false;
            false
        });
        disjoint
    }

    pub fn is_subset(&self, other: &IndexSet) -> bool {
        let within = |a: &Run, last: &Run, b: &Run, end: &Run| {
            b.start <= a.start && last.last() <= end.last()
        };
        match (&self.runs[..], &other.runs[..]) {
            ([], _) => true,
            (_, []) => false,
            (mine, theirs) if mine == theirs => true,
            ([a, ..], [b, ..]) => {
                let (last, end) =
                    (&self.runs[self.runs.len() - 1], &other.runs[other.runs.len() - 1]);
                self.len <= other.len
                    && within(a, last, b, end)
                    && self.intersect(other).len == self.len
            }
        }
    }

    /// All elements of sets that have none in common.
    pub fn union(sets: &[IndexSet]) -> IndexSet {
        let mut filled: Vec<&IndexSet> = sets.iter().filter(|s| !s.is_empty()).collect();
        filled.sort_by_key(|s| s.runs[0].start);
        let mut made = IndexSet::empty();
        if filled
            .windows(2)
            .all(|pair| pair[0].runs.last().is_some_and(|r| r.last() < pair[1].runs[0].start))
        {
            filled.iter().flat_map(|s| &s.runs).for_each(|r| made.push(*r));
            return made;
        }
        let mut elements: Vec<u64> = filled.iter().flat_map(|s| s.iter()).collect();
        elements.sort_unstable();
        elements.dedup();
        elements.into_iter().for_each(|start| made.push(Run { start, step: 1, count: 1 }));
        made
    }

    /// The common elements, with their places in this set and in the other.
    pub fn pieces(&self, other: &IndexSet) -> Vec<Piece> {
        let offsets = |set: &IndexSet| {
            let mut next = 0;
            let place = |r: &Run| {
                next += r.count;
                next - r.count
            };
            set.runs.iter().map(place).collect::<Vec<u64>>()
        };
        let (here, there) = (offsets(self), offsets(other));
        let mut found = Vec::new();
        self.each_common(other, |i, j, run| {
            let (a, b) = (self.runs[i], other.runs[j]);
            let steps = |r: Run| if run.count == 1 { 1 } else { run.step / r.step };
            found.push(Piece {
                from: here[i] + (run.start - a.start) / a.step,
                from_step: steps(a),
                to: there[j] + (run.start - b.start) / b.step,
                to_step: steps(b),
                count: run.count,
            });
            true
        });
        joined(found)
    }

    /// Visits the common progressions of two sets in ascending order, until one says false.
    fn each_common(&self, other: &IndexSet, mut visit: impl FnMut(usize, usize, Run) -> bool) {
        let (mut i, mut j) = (0, 0);
        while i < self.runs.len() && j < other.runs.len() {
            let (a, b) = (&self.runs[i], &other.runs[j]);
            if a.start <= b.last()
                && b.start <= a.last()
                && let Some(run) = a.intersect(b)
                && !visit(i, j, run)
            {
                return;
            }
            if a.last() <= b.last() { i += 1 } else { j += 1 }
        }
    }
}

/// Pieces that go on where the one before ends are one.
fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut made: Vec<Piece> = Vec::with_capacity(pieces.len());
    for next in pieces {
        if let Some(last) = made.last_mut() {
            let gap = |from: u64, step: u64, to: u64| to - (from + (last.count - 1) * step);
            let (here, there) =
                (gap(last.from, last.from_step, next.from), gap(last.to, last.to_step, next.to));
            let fits = |p: &Piece| p.count == 1 || (p.from_step, p.to_step) == (here, there);
            if fits(last) && fits(&next) {
                *last = Piece {
                    from_step: here,
                    to_step: there,
                    count: last.count + next.count,
                    ..*last
                };
                continue;
            }
        }
        made.push(next);
    }
    made
}

impl PartialEq for IndexSet {
    fn eq(&self, other: &IndexSet) -> bool {
        self.len == other.len && self.is_subset(other)
    }
}

impl Eq for IndexSet {}

/// Slices as Python writes them, joined by `+`: `0:4`, `1:8:3`, `0:2 + 6:8`; nothing is `0:0`.
impl fmt::Display for IndexSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.runs.is_empty() {
            return f.write_str("0:0");
        }
        for (at, run) in self.runs.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { " + " })?;
            write!(f, "{}:{}", run.start, run.last() + 1)?;
            if run.step > 1 {
                write!(f, ":{}", run.step)?;
            }
        }
        Ok(())
    }
}
