//! Speeds of targets.

use tessera_ptx::PtxCaps;
use tessera_ptx::caps::TARGETS;

#[test]
fn every_target_has_a_speed_and_parts_of_a_chip_are_slower() {
    for (target, _) in TARGETS {
        let caps = PtxCaps::of(target.sm, target.exact).unwrap();
        let (whole, half) = (caps.gpu.speed, caps.gpu.on_device(40).speed);
        assert!(whole.matrix > whole.scalar && whole.memory > 1e11, "{target}");
        assert_eq!(half.processors, 40);
        assert!(
            half.memory < whole.memory && half.l2_lines_per_s < whole.l2_lines_per_s,
            "{target}"
        );
    }
}
