//! Tests of interference and order between tasks, against brute force over elements.

use std::collections::{BTreeMap, BTreeSet};
use tessera_mesh::{Combine, Distribution, IndexSet};
use tessera_region::{Conflict, Privilege, TaskId, Tasks, Use, conflict};

fn seed() -> u64 {
    let given = std::env::var("TESSERA_FUZZ_SEED").ok().and_then(|s| s.parse().ok());
    let days = || std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_secs() / 86400);
    let seed = given.unwrap_or_else(days);
    println!("TESSERA_FUZZ_SEED={seed}");
    seed
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    fn set(&mut self, n: u64) -> IndexSet {
        let how = self.pick(&[
            Distribution::Block,
            Distribution::BlockCyclic(1),
            Distribution::BlockCyclic(2),
        ]);
        let ranks = 1 + self.below(4);
        how.positions(n, ranks, self.below(ranks))
    }

    fn use_(&mut self) -> Use {
        let storage = self.below(3);
        let privileges = [
            Privilege::Read,
            Privilege::Read,
            Privilege::Write,
            Privilege::ReadWrite,
            Privilege::Reduce(Combine::Sum),
            Privilege::Reduce(Combine::Max),
        ];
        Use {
            storage,
            index: (0..storage).map(|_| self.set(7)).collect(),
            privilege: self.pick(&privileges),
        }
    }

    fn uses(&mut self) -> Vec<Use> {
        (0..self.below(4)).map(|_| self.use_()).collect()
    }
}

fn elements(u: &Use) -> BTreeSet<Vec<u64>> {
    u.index.iter().fold(BTreeSet::from([Vec::new()]), |all, set| {
        all.into_iter()
            .flat_map(|e: Vec<u64>| set.iter().map(move |i| [e.clone(), vec![i]].concat()))
            .collect()
    })
}

/// By the definition, element by element.
fn interfere(a: &Use, b: &Use) -> bool {
    let harmless =
        a.privilege == b.privilege && matches!(a.privilege, Privilege::Read | Privilege::Reduce(_));
    !harmless && a.storage == b.storage && !elements(a).is_disjoint(&elements(b))
}

#[test]
fn interference_is_that_of_elements() {
    let mut random = Random(seed());
    for _ in 0..5000 {
        let (a, b) = (random.use_(), random.use_());
        assert_eq!(a.interferes(&b), interfere(&a, &b), "{a} and {b}");
        assert_eq!(b.interferes(&a), a.interferes(&b), "{a} and {b}");
        let same = a.storage == b.storage;
        assert_eq!(a.covers(&b), same && elements(&b).is_subset(&elements(&a)), "{a} and {b}");
        assert_eq!(Use::parse(&a.to_string()).unwrap(), a);
    }
}

#[test]
fn conflicts_within_a_launch_are_found() {
    let mut random = Random(seed() ^ 1);
    for _ in 0..3000 {
        let tasks: Vec<Vec<Use>> = (0..random.below(5)).map(|_| random.uses()).collect();
        let all: Vec<(usize, usize)> =
            (0..tasks.len()).flat_map(|t| (0..tasks[t].len()).map(move |u| (t, u))).collect();
        let mut expected = None;
        'found: for (j, second) in all.iter().enumerate() {
            for first in &all[..j] {
                if interfere(&tasks[first.0][first.1], &tasks[second.0][second.1]) {
                    expected = Some(Conflict { first: *first, second: *second });
                    break 'found;
                }
            }
        }
        assert_eq!(conflict(&tasks), expected, "{tasks:?}");
    }
}

#[test]
fn tasks_wait_for_what_interferes_and_nothing_else() {
    let mut random = Random(seed() ^ 2);
    for case in 0..1500 {
        let mut tasks = Tasks::default();
        let mut uses: Vec<Vec<Use>> = Vec::new();
        // By task: all that it waits for, also through others.
        let mut waits: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        let mut done = BTreeSet::new();
        for n in 0..12 {
            let new = random.uses();
            let (id, before) = tasks.add(new.clone());
            assert_eq!(id, TaskId(n));
            let interfering: BTreeSet<u64> = (0..n)
                .filter(|t| uses[*t as usize].iter().any(|a| new.iter().any(|b| interfere(a, b))))
                .collect();
            let direct: BTreeSet<u64> = before.iter().map(|t| t.0).collect();
            assert!(
                direct.is_subset(&interfering),
                "case {case}: {n} waits for {direct:?}, and interferes with {interfering:?}"
            );
            assert!(direct.is_disjoint(&done), "case {case}");
            let through: BTreeSet<u64> =
                direct.iter().flat_map(|t| waits[t].iter().copied().chain([*t])).collect();
            for t in interfering.difference(&done) {
                assert!(
                    through.contains(t),
                    "case {case}: {n} does not wait for {t}: {:?} and {new:?}",
                    uses[*t as usize]
                );
            }
            waits.insert(n, through);
            uses.push(new);
            // Some task that waits for nothing finishes.
            let free: Vec<u64> =
                (0..=n).filter(|t| !done.contains(t) && waits[t].is_subset(&done)).collect();
            if random.below(2) == 0 {
                let t = random.pick(&free);
                tasks.done(TaskId(t));
                done.insert(t);
            }
        }
        let wanted = random.use_();
        let found: BTreeSet<u64> = tasks
            .waits(&wanted)
            .iter()
            .flat_map(|t| waits[&t.0].iter().copied().chain([t.0]))
            .collect();
        for t in (0..12).filter(|t| {
            !done.contains(t) && uses[*t as usize].iter().any(|u| interfere(u, &wanted))
        }) {
            assert!(found.contains(&t), "case {case}");
        }
        (0..12).for_each(|t| tasks.done(TaskId(t)));
        assert!(tasks.is_empty());
    }
}

#[test]
fn texts_that_are_no_uses() {
    for text in [
        "",
        "read",
        "read x[0:1]",
        "own 1[0:1]",
        "read 1[0:1",
        "read 1[1]",
        "read 1[4:2]",
        "read 1[0:2 + 1:3]",
        "reduce_mean 1[]",
    ] {
        let found = Use::parse(text).expect_err(text);
        assert!(found.help.is_some(), "{text}");
    }
    assert_eq!(Use::parse("reduce_prod 7[]").unwrap().to_string(), "reduce_prod 7[]");
}
