use crate::brute::{Random, seed};
use proptest::prelude::*;
use std::collections::BTreeSet;
use tessera_mesh::{Distribution, IndexSet};

fn dealt(n: u64, splits: &[(u64, u64, u64)]) -> IndexSet {
    splits.iter().fold(IndexSet::range(0, n), |set, (block, ranks, r)| {
        let how = if *block == 0 { Distribution::Block } else { Distribution::BlockCyclic(*block) };
        set.select(&how.positions(set.len(), *ranks, r % ranks))
    })
}

/// Sets that come of one to three nested splits.
fn sets() -> impl Strategy<Value = IndexSet> {
    let split = (0u64..5, 1u64..8, 0u64..8);
    (0u64..200, prop::collection::vec(split, 0..4)).prop_map(|(n, splits)| dealt(n, &splits))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn sets_answer_as_sets_of_elements(a in sets(), b in sets()) {
        let (x, y): (BTreeSet<u64>, BTreeSet<u64>) = (a.iter().collect(), b.iter().collect());
        prop_assert!(a.iter().is_sorted() && x.len() as u64 == a.len());
        let both: Vec<u64> = x.intersection(&y).copied().collect();
        prop_assert_eq!(a.intersect(&b).iter().collect::<Vec<_>>(), both.clone());
        prop_assert_eq!(a.is_disjoint(&b), both.is_empty());
        prop_assert_eq!(a.is_subset(&b), x.is_subset(&y));
        prop_assert_eq!(a == b, x == y);
        let again = IndexSet::parse(&a.to_string()).unwrap();
        prop_assert_eq!((again.to_string(), again), (a.to_string(), a.clone()));
        for i in 0..210 {
            prop_assert_eq!(a.contains(i), x.contains(&i));
        }
        let (here, there): (Vec<u64>, Vec<u64>) = (a.iter().collect(), b.iter().collect());
        let mut met = Vec::new();
        for p in a.pieces(&b) {
            for k in 0..p.count {
                let at = here[(p.from + k * p.from_step) as usize];
                prop_assert_eq!(at, there[(p.to + k * p.to_step) as usize]);
                met.push(at);
            }
        }
        prop_assert_eq!(met, both);
    }

    #[test]
    fn unions_and_selections(a in sets(), places in sets(), ranks in 1u64..6) {
        let chosen = a.select(&places);
        let all: Vec<u64> = a.iter().collect();
        let expected: Vec<u64> = places.iter().filter_map(|p| all.get(p as usize).copied()).collect();
        prop_assert_eq!(chosen.iter().collect::<Vec<_>>(), expected);
        let parts: Vec<IndexSet> = (0..ranks).map(|r| a.select(&Distribution::BlockCyclic(2).positions(a.len(), ranks, r))).collect();
        prop_assert_eq!(IndexSet::union(&parts), a);
    }
}

#[test]
fn printed_forms_are_slices() {
    let text = |n, splits: &[(u64, u64, u64)]| dealt(n, splits).to_string();
    assert_eq!(text(10, &[]), "0:10");
    assert_eq!(text(10, &[(0, 4, 3)]), "9:10");
    assert_eq!(text(10, &[(0, 7, 6)]), "0:0");
    assert_eq!(text(10, &[(1, 3, 1)]), "1:8:3");
    assert_eq!(text(10, &[(2, 3, 0)]), "0:2 + 6:8");
    // Halves of a cyclic block, and a cyclic half.
    assert_eq!(text(12, &[(1, 2, 0), (0, 2, 1)]), "6:11:2");
    assert_eq!(text(12, &[(0, 2, 1), (1, 2, 1)]), "7:12:2");
}

#[test]
fn large_extents_are_exact() {
    let n = u64::MAX / 4;
    let (a, b) = (dealt(n, &[(1, 1_000_003, 17)]), dealt(n, &[(1, 999_983, 5)]));
    let both = a.intersect(&b);
    let step = 1_000_003u64 * 999_983;
    let first = both.iter().next().unwrap();
    assert_eq!((first % 1_000_003, first % 999_983), (17, 5));
    assert_eq!(both.len(), (n - 1 - first) / step + 1);
    assert_eq!(dealt(n, &[(0, 9, 8)]).len(), n - n.div_ceil(9) * 8);
}

#[test]
fn blocks_follow_the_ceil_rule() {
    let mut random = Random(seed());
    for _ in 0..500 {
        let (n, ranks) = (random.below(100), 1 + random.below(12));
        let c = n.div_ceil(ranks);
        for r in 0..ranks {
            assert_eq!(
                Distribution::Block.positions(n, ranks, r),
                IndexSet::range(n.min(r * c), n.min((r + 1) * c)),
                "{n} over {ranks}"
            );
        }
    }
}
