//! Layouts of pipeline stages.

use tessera_layout::Blocked;
use tessera_layout::Layout;
use tessera_lower::inner::stage_layout;

/// Neither copies along rows nor matrix loads of eight rows have bank conflicts.
#[test]
fn fields_have_no_conflicts() {
    for (shape, bytes) in [
        ([128, 64], 2),
        ([64, 32], 2),
        ([32, 16], 2),
        ([16, 256], 2),
        ([64, 96], 2),
        ([64, 128], 1),
        ([128, 16], 4),
    ] {
        for fast in [0, 1] {
            let shared = stage_layout(&shape, bytes, fast);
            let slow = 1 - fast;
            let run = 16 / bytes;
            let mut vector = vec![1; 2];
            vector[fast] = run;
            let across = 1 << (shape[fast] / run).trailing_zeros().min(5);
            for (lanes_fast, lanes_slow) in [(across, 32 / across), (4, 8), (1, 32)] {
                let mut lanes = vec![1; 2];
                (lanes[fast], lanes[slow]) = (lanes_fast, lanes_slow);
                // Lanes down the rows first, as matrix loads number them.
                let down = lanes_slow >= 8;
                let order = if down { vec![slow, fast] } else { vec![fast, slow] };
                let spec = Blocked {
                    vector: vector.clone(),
                    lanes,
                    warps: vec![1; 2],
                    ctas: vec![1; 2],
                    order,
                };
                if shape[fast] < run * lanes_fast || shape[slow] < lanes_slow {
                    continue;
                }
                let layout = Layout::blocked(&shape, &spec);
                let found = shared.conflicts(&layout, run);
                assert_eq!(found, 0, "{shape:?} of {bytes} bytes along {fast}: {spec:?}");
            }
        }
    }
}
