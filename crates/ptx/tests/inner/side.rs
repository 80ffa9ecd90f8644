//! Addresses along k.

use tessera_layout::Shared;
use tessera_ptx::inner::{Moves, moves};

/// Stepping along k reaches the address of every line and k.
#[test]
fn places_move_as_is_said() {
    let mut kinds = [0; 2];
    for (shape, bytes) in
        [([128, 32], 4), ([64, 64], 4), ([32, 256], 4), ([16, 16], 8), ([64, 32], 2)]
    {
        for (fast, k, span) in (0..2)
            .flat_map(|fast| (0..2).flat_map(move |k| [0, 32, 64, 128].map(|span| (fast, k, span))))
        {
            let order = [fast, 1 - fast];
            if span > 0 && shape[fast] * bytes % span != 0 {
                continue;
            }
            let shared = match span {
                0 => Shared::ordered(&shape, &order, bytes),
                span => Shared::swizzled(&shape, &order, bytes, span),
            };
            let at = |line: u32, n: u32| {
                let mut at = [line; 2];
                at[k] = n;
                shared.offset(&at)
            };
            let moves = moves(&shared, k);
            for (line, n) in (0..shape[1 - k]).flat_map(|l| (0..shape[k]).map(move |n| (l, n))) {
                let (kind, found) = match moves {
                    Moves::Evenly { each, multiple } => {
                        let first = n % multiple;
                        (0, at(line, first) + (n - first) * each)
                    }
                    Moves::Exchanged { panel, bytes: apart } => {
                        (1, (at(line, 0) ^ (n % panel * bytes)) + n / panel * apart)
                    }
                    Moves::No => continue,
                };
                kinds[kind] += 1;
                assert_eq!(found, at(line, n), "{shared:?} at {line}, {n} along {k}");
            }
            // The layouts that pipelines have along k.
            let pipeline = k == fast && span.min(shape[k] * bytes) == 128.min(shape[k] * bytes);
            assert!(!pipeline || moves != Moves::No, "{shared:?} along {k}");
        }
    }
    assert!(kinds.iter().all(|&n| n > 0));
}
