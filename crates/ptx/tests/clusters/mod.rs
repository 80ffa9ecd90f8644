//! Clusters in matmuls: blocks that compute neighbouring tiles and load shared operands once (TMA
//! multicast). Results are those of the oracle, with race detection and in every schedule; and the
//! assembler accepts the code without warnings.

use crate::assembler::tools;
use crate::gemm::form::{self, Case, Form, Lies, Runs, hopper, integers, plain};
use crate::wgmma::form::assembled;
use tessera_numerics::{DType, Profile};
use tessera_ptx::{Alu, Code, Inst, PtxCaps, Shape, compile, usual_classes};
use tessera_ptx_emulator::Copies;
use tessera_ptx_emulator::Emulated;
use tessera_target::frame::Frame;

fn check_on(machine: Emulated, form: &Form, size: (i64, i64, i64), lies: [Lies; 3]) -> String {
    Case { lies: lies.into(), ..Case::new(form.clone(), size) }.check_on(machine)
}

fn check(form: &Form, size: (i64, i64, i64), lies: [Lies; 3]) -> String {
    check_on(hopper(), form, size, lies)
}

const ROWS: [Lies; 3] = [Lies::Rows(0); 3];

fn code_of(text: &str) -> Code {
    let func = form::tile_func(text);
    let classes = usual_classes(&Frame::new(&func).unwrap());
    compile(&func, PtxCaps::of(90, true).unwrap(), Profile::Default, &classes).unwrap()
}

fn multicasts(code: &Code) -> usize {
    let shared = |i: &&Inst| matches!(i, Inst::TmaLoad { multicast: Some(_), .. });
    code.kernel().instructions().filter(shared).count()
}

/// Grids that clusters divide and grids that end inside a cluster, operands of either major order.
#[test]
fn neighbours_along_every_axis() {
    for cluster in [[2, 1], [1, 2], [2, 2], [4, 1], [1, 4]] {
        for transposed in [(false, false), (true, true)] {
            let form = Form {
                transposed,
                out: DType::BF16,
                cluster: Some(cluster),
                ..Form::new(DType::BF16, (64, 64, 64))
            };
            for size in [(256, 256, 136), (200, 72, 200)] {
                let staged = check(&form, size, ROWS);
                assert!(staged.contains("multicast = ["), "{staged}");
            }
        }
    }
}

#[test]
fn every_dtype_of_wgmma() {
    for dtype in [DType::F16, DType::Tf32, DType::Fp8E4M3, DType::I8] {
        let deep = 128 / dtype.bytes() as i64;
        let transposed = (false, true);
        let cluster = Some([2, 1]);
        let form = Form { transposed, cluster, ..Form::new(dtype, (64, 128, deep)) };
        let staged = check(&form, (136, 144, 3 * deep), ROWS);
        assert!(staged.contains("multicast = [0]"), "{dtype}: {staged}");
    }
}

/// Overlapped epilogues, others, and loops without any iteration.
#[test]
fn results_of_several_iterations() {
    for off in [
        None,
        Some("overlapped_epilogue"),
        Some("mma_in_flight"),
        Some("per_warpgroup_store"),
        Some("register_reallocation"),
        Some("raster"),
    ] {
        let form = Form {
            out: DType::BF16,
            off,
            cluster: Some([2, 1]),
            ..Form::new(DType::BF16, (128, 128, 64))
        };
        check(&form, (5 * 128 - 8, 256, 328), ROWS);
        check(&form, (300, 8, 0), ROWS);
    }
}

#[test]
fn whatever_comes_first() {
    let form = Form {
        out: DType::BF16,
        cluster: Some([2, 2]),
        stages: Some(2),
        ..Form::new(DType::BF16, (64, 64, 64))
    };
    for copies in [Copies::Early, Copies::Late, Copies::Random] {
        for seed in 0..4 {
            let mut machine = hopper();
            machine.options.copies = copies;
            machine.options.seed = seed;
            check_on(machine, &form, (200, 200, 264), ROWS);
        }
    }
}

/// Launches with a block for each group: alone and in clusters, also where a grid ends inside a
/// cluster, along every axis, with loops of no iterations, and in every schedule.
#[test]
fn one_group_for_each_block() {
    for cluster in [None, Some([2, 1]), Some([1, 2]), Some([2, 2])] {
        let form =
            Form { out: DType::BF16, cluster, once: true, ..Form::new(DType::BF16, (64, 128, 64)) };
        for size in [(200, 400, 200), (64, 128, 1000), (136, 8, 0)] {
            let staged = check(&form, size, ROWS);
            // An empty array has no tensor map.
            let tma = size.2 > 0;
            assert_eq!(staged.contains("order = once"), tma, "{staged}");
            assert!(!staged.contains("raster"), "{staged}");
        }
        for seed in 0..3 {
            let mut machine = hopper();
            machine.options.copies = Copies::Random;
            machine.options.seed = seed;
            check_on(machine, &form, (200, 264, 136), ROWS);
        }
        let code = code_of(&form.text());
        let divisions = |i: &&Inst| matches!(i, Inst::Alu { op: Alu::Div, .. });
        assert_eq!(code.kernel().instructions().filter(divisions).count(), 1);
        assert!(matches!(code.shape, Shape::Once { .. }));
        // mbarriers have a fence of their own, and nothing else was written.
        let slow = |i: &&Inst| matches!(i, Inst::ClusterArrive { release: true });
        assert_eq!(code.kernel().instructions().filter(slow).count(), 0);
    }
}

/// Without multicast neighbouring blocks load separately.
#[test]
fn neighbours_that_share_nothing() {
    let form = |off| {
        let cluster = Some([2, 1]);
        Form { off, cluster, out: DType::BF16, ..Form::new(DType::BF16, (64, 64, 64)) }
    };
    let staged = check(&form(Some("multicast")), (200, 72, 136), ROWS);
    assert!(staged.contains("team = [2, 1]") && !staged.contains("multicast = ["), "{staged}");
    assert_eq!(multicasts(&code_of(&form(Some("multicast")).text())), 0);
    // A box of B is one instruction.
    assert_eq!(multicasts(&code_of(&form(None).text())), 1);
}

/// Threads may store as well; folds would be added twice by the blocks left over.
#[test]
fn stores_of_threads() {
    let form =
        Form { out: DType::BF16, cluster: Some([2, 1]), ..Form::new(DType::BF16, (64, 64, 32)) };
    let lies = [Lies::Rows(0), Lies::Rows(0), Lies::Rows(1)];
    let staged = check(&form, (200, 80, 40), lies);
    assert!(staged.contains("team") && staged.contains("staged.store"), "{staged}");
    let form = Form { adds: true, out: DType::F32, ..form };
    // TMA adds to arrays that it can describe; threads add to others, and take their groups alone.
    let staged = check(&form, (200, 80, 40), ROWS);
    assert!(staged.contains("team") && staged.contains("staged.bulk_reduce"), "{staged}");
    let staged = check(&form, (200, 80, 40), lies);
    assert!(!staged.contains("team") && staged.contains("name = producer"), "{staged}");
}

/// Overlapped stores that may be beyond the grid carry that condition from tile to tile.
#[test]
fn deferred_results_of_turned_sides() {
    let form = Form { cluster: Some([2, 1]), ..Form::new(DType::Tf32, (64, 64, 32)) };
    for size in [(5 * 64 - 8, 128, 96), (8 * 64, 136, 200)] {
        let staged = check(&form, size, ROWS);
        assert!(staged.contains("team = ") && staged.contains("frag_part"), "{staged}");
    }
}

/// Warpgroups that take tiles in turn, alone and in clusters; more tiles than warpgroups and fewer.
#[test]
fn warpgroups_take_turns() {
    for cluster in [None, Some([2, 1]), Some([1, 2])] {
        for (tile, out) in
            [((64, 64, 64), DType::BF16), ((128, 128, 64), DType::BF16), ((64, 64, 32), DType::F32)]
        {
            let form =
                Form { out, cluster, roles: Some("pingpong"), ..Form::new(DType::BF16, tile) };
            for (rows, k) in [(5, 328), (2, 64), (1, 200), (3, 0)] {
                let staged = check(&form, (rows * tile.0 - 8, 2 * tile.1, k), ROWS);
                // Empty matrices have no tensor map.
                let pingpong = staged.contains("part = tiles") && staged.contains("order_wait");
                assert_eq!(pingpong, k > 0, "{staged}");
            }
        }
    }
    for copies in [Copies::Early, Copies::Random] {
        for seed in 0..3 {
            let mut machine = hopper();
            machine.options.copies = copies;
            machine.options.seed = seed;
            let form = Form {
                out: DType::BF16,
                roles: Some("pingpong"),
                cluster: Some([2, 1]),
                stages: Some(2),
                ..Form::new(DType::BF16, (64, 64, 64))
            };
            check_on(machine, &form, (328, 128, 264), ROWS);
        }
    }
}

#[test]
fn clusters_that_no_chip_has_are_refused() {
    for cluster in [[3, 1], [8, 4]] {
        let form = Form { cluster: Some(cluster), ..Form::new(DType::BF16, (64, 64, 64)) };
        let func = form::tile_func(&form.text());
        let classes = usual_classes(&Frame::new(&func).unwrap());
        let caps = PtxCaps::of(90, true).unwrap();
        let errors = compile(&func, caps, Profile::Default, &classes).unwrap_err();
        let error = errors.errors().next().unwrap();
        assert_eq!(error.code.to_string(), "E_ARGUMENT");
        assert!(error.message.contains("cluster"), "{}", error.message);
    }
}

/// Rows of causal attention have loops of different lengths: their blocks run together, and none
/// waits for the iterations of another.
#[test]
fn loops_of_different_lengths_share_nothing() {
    let text = include_str!("../../../lower/tests/async_mma/attention.tir");
    let text = text.split("\n=>\n").next().unwrap();
    let text: Vec<_> = text.lines().filter(|l| !l.starts_with(';')).collect();
    let text = text.join("\n").replace("128)]}", "128)], config = {cluster_n = 2}}");
    let (h, s) = (2, 300);
    let mut runs = Runs::new(text, vec![("h", h), ("s", s)], [h, 3, 1]);
    runs.machine = hopper();
    let ints = |seed| integers((h * s * 64) as usize, seed, -3);
    let array = |seed| plain(&[h, s, 64], DType::BF16, &ints(seed));
    let (wanted, got, staged) = runs.run(&[array(1), array(2), array(3), array(4)]);
    assert!(staged.contains("team = ") && !staged.contains("multicast = ["), "{staged}");
    for (i, (w, g)) in wanted.values().iter().zip(got.values()).enumerate() {
        assert!((w - g).abs() <= 0.02 * w.abs().max(1.0), "element {i} is {g}, not {w}");
    }
}

#[test]
fn assembles_without_spills_or_serialised_wgmmas() {
    let Some(tools) = tools() else { return };
    let all = [([2, 1], (128, 256, 64)), ([1, 2], (256, 128, 64)), ([2, 2], (128, 128, 64))];
    for (cluster, tile) in all {
        for (out, roles) in
            [(DType::BF16, None), (DType::F32, None), (DType::BF16, Some("pingpong"))]
        {
            let form = Form { out, roles, cluster: Some(cluster), ..Form::new(DType::BF16, tile) };
            let code = code_of(&form.text());
            // Warpgroups that take tiles in turn load separately.
            assert!(multicasts(&code) > 0 || roles.is_some(), "{cluster:?} {tile:?} {out}");
            assembled(&tools, &code);
        }
    }
}
