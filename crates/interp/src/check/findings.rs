//! Findings: each mistake once, however often it happens.

use std::collections::BTreeSet;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};

pub struct Findings {
    list: Vec<Found>,
    limit: usize,
    /// Locations beyond the limit of the list.
    omitted: BTreeSet<(Code, usize)>,
}

struct Found {
    site: usize,
    diagnostic: Diagnostic,
    count: u64,
}

impl Findings {
    pub fn new(limit: usize) -> Self {
        Self { list: Vec::new(), limit, omitted: BTreeSet::new() }
    }

    /// Something happened `count` times at one op. It is described only the first time: a location
    /// is an op, and ops at one location of the source (an unrolled loop) are one.
    pub fn report(
        &mut self,
        (code, site, loc): (Code, usize, &Loc),
        count: u64,
        describe: impl FnOnce() -> Diagnostic,
    ) {
        let same = |f: &&mut Found| {
            f.diagnostic.code == code
                && (f.site == site || (loc.is_known() && f.diagnostic.loc == *loc))
        };
        if let Some(found) = self.list.iter_mut().find(same) {
            found.count = found.count.saturating_add(count);
        } else if self.list.len() < self.limit {
            self.list.push(Found { site, diagnostic: describe().at(loc.clone()), count });
        } else {
            self.omitted.insert((code, site));
        }
    }

    /// In the order in which they were found first, and the number of omitted locations.
    pub fn into_diagnostics(self) -> (Diagnostics, usize) {
        let mut out = Diagnostics::new();
        out.extend(self.list.into_iter().map(|f| match f.count {
            0 | 1 => f.diagnostic,
            n => f.diagnostic.note(format!("this happened {n} times in the launch")),
        }));
        (out, self.omitted.len())
    }
}
