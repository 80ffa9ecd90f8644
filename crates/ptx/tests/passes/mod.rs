//! Kernels of Tile IR through the passes that stage them for WGMMA and TMA, to PTX: results are
//! those of the oracle.

use crate::assembler::tools;
use crate::gemm::form::{self, Case, Form, Lies, Runs, hopper, integers, plain};
use crate::wgmma::form::{assembled, wgmma_calls};
use tessera_lower::stage::Step;
use tessera_numerics::{DType, Profile};
use tessera_ptx::{PtxCaps, compile, stamps, usual_classes};
use tessera_target::frame::Frame;

/// Runs a matmul of some size, with arrays of these layouts, and returns its Staged IR.
fn check(form: &Form, size: (i64, i64, i64), lies: [Lies; 3]) -> String {
    Case { lies: lies.into(), ..Case::new(form.clone(), size) }.check_on(hopper())
}

fn uses_wgmma(staged: &str) -> bool {
    staged.contains("mma_issue") && staged.contains("name = producer")
}

const ROWS: [Lies; 3] = [Lies::Rows(0); 3];

#[test]
fn matmuls_of_all_transposes() {
    for transposed in [(false, false), (false, true), (true, false), (true, true)] {
        let form = Form { transposed, ..Form::new(DType::BF16, (64, 64, 64)) };
        let staged = check(&form, (128, 64, 192), ROWS);
        assert!(uses_wgmma(&staged), "{staged}");
    }
}

#[test]
fn dtypes_that_must_be_k_major() {
    for dtype in [DType::Tf32, DType::Fp8E4M3, DType::Fp8E5M2, DType::I8] {
        let deep = 128 / dtype.bytes() as i64;
        let form = Form { transposed: (false, true), ..Form::new(dtype, (64, 64, deep)) };
        for size in [(128, 64, 192), (72, 80, 48)] {
            let staged = check(&form, size, ROWS);
            assert!(uses_wgmma(&staged), "{dtype}: {staged}");
        }
        // Along the other axis tf32 goes through registers, as the left operand of the transposed
        // MMA; bytes use `mma.sync`.
        let staged = check(&Form::new(dtype, (64, 64, deep)), (128, 64, 192), ROWS);
        assert_eq!(uses_wgmma(&staged), dtype == DType::Tf32, "{dtype}: {staged}");
    }
}

#[test]
fn edges_and_no_iterations() {
    let form = Form { out: DType::BF16, ..Form::new(DType::BF16, (64, 64, 32)) };
    for size in [(72, 80, 40), (8, 136, 24), (200, 8, 8)] {
        let staged = check(&form, size, ROWS);
        assert!(uses_wgmma(&staged), "{staged}");
    }
    check(&form, (8, 8, 0), ROWS);
}

#[test]
fn arrays_without_tensor_maps() {
    let form = Form { out: DType::BF16, ..Form::new(DType::BF16, (64, 64, 32)) };
    let staged = check(&form, (72, 80, 40), [Lies::Rows(1), Lies::Rows(0), Lies::Rows(0)]);
    assert!(!uses_wgmma(&staged), "{staged}");
    let staged = check(&form, (72, 80, 40), [Lies::Rows(0), Lies::Rows(0), Lies::Rows(1)]);
    assert!(uses_wgmma(&staged) && !staged.contains("bulk_store"), "{staged}");
}

/// A kernel from the passes' own cases, on integers, or close to the oracle where it rounds.
fn case(text: &str) -> String {
    let text = text.split("\n=>\n").next().unwrap_or(text);
    text.lines().filter(|l| !l.starts_with(';')).collect::<Vec<_>>().join("\n")
}

#[test]
fn bias_activation_and_residual() {
    let text = case(include_str!("../../../lower/tests/async_mma/bias_relu.tir"));
    let (m, n, k) = (136, 72, 104);
    let mut runs = Runs::new(text, vec![("m", m), ("n", n), ("k", k)], [3, 2, 1]);
    runs.machine = hopper();
    let ints = |count: i64, seed| integers(count as usize, seed, -3);
    let staged = runs.check(&[
        plain(&[m, k], DType::F16, &ints(m * k, 1)),
        plain(&[k, n], DType::F16, &ints(k * n, 2)),
        plain(&[n], DType::F32, &ints(n, 3)),
        plain(&[m, n], DType::F16, &ints(m * n, 4)),
        plain(&[m, n], DType::F16, &ints(m * n, 5)),
    ]);
    assert!(uses_wgmma(&staged), "{staged}");
}

#[test]
fn batches() {
    let text = case(include_str!("../../../lower/tests/async_mma/batched.tir"));
    let (h, m, n, k) = (2, 72, 136, 72);
    let mut runs = Runs::new(text, vec![("h", h), ("m", m), ("n", n), ("k", k)], [h, 2, 3]);
    runs.machine = hopper();
    let ints = |count: i64, seed| integers(count as usize, seed, -3);
    let staged = runs.check(&[
        plain(&[h, m, k], DType::F16, &ints(h * m * k, 1)),
        plain(&[h, k, n], DType::F16, &ints(h * k * n, 2)),
        plain(&[h, m, n], DType::F32, &ints(h * m * n, 3)),
    ]);
    assert!(uses_wgmma(&staged), "{staged}");
}

/// Two MMAs in a loop: the left operand of the second comes from registers.
#[test]
fn attention() {
    let text = case(include_str!("../../../lower/tests/async_mma/attention.tir"));
    let (h, s) = (2, 200);
    let mut runs = Runs::new(text, vec![("h", h), ("s", s)], [h, 2, 1]);
    runs.machine = hopper();
    let ints = |seed| integers((h * s * 64) as usize, seed, -3);
    let array = |seed| plain(&[h, s, 64], DType::BF16, &ints(seed));
    let (wanted, got, staged) = runs.run(&[array(1), array(2), array(3), array(4)]);
    assert!(uses_wgmma(&staged), "{staged}");
    for (i, (w, g)) in wanted.values().iter().zip(got.values()).enumerate() {
        assert!((w - g).abs() <= 0.02 * w.abs().max(1.0), "element {i} is {g}, not {w}");
    }
}

/// The kernel with this parameter as the last, which is the one that is compared.
fn with_last(text: &str, last: &str) -> String {
    let text = case(text);
    let (name, rest) = text.split_once('(').unwrap();
    let (params, rest) = rest.split_once(") {").unwrap();
    let mut params: Vec<String> =
        params.split(", %").map(|p| format!("%{}", p.trim_start_matches('%'))).collect();
    let place = params.iter().position(|p| p.starts_with(&format!("%{last}:"))).unwrap();
    let own = params.remove(place);
    params.push(own);
    format!("{name}({}) {{{rest}", params.join(", "))
}

/// Four MMAs in a loop that depend on each other, with the gradient of a user's function.
#[test]
fn gradients_of_attention() {
    let (queries, keys) = (100, 136);
    let values = |dims: &[i64], dtype, seed| {
        plain(dims, dtype, &integers(dims.iter().product::<i64>() as usize, seed, -3))
    };
    let same = |dims: &[i64], x: f64| {
        plain(dims, DType::F32, &vec![x; dims.iter().product::<i64>() as usize])
    };
    let (of_queries, of_keys) = ([1, 2, queries, 64], [1, 1, keys, 64]);
    let bf16 = DType::BF16;
    let mut arrays = vec![
        values(&of_queries, bf16, 1),
        values(&of_keys, bf16, 2),
        values(&of_keys, bf16, 3),
        values(&of_queries, bf16, 4),
        same(&[1, 2, queries], 13.0),
        same(&[1, 2, queries], 2.0),
    ];
    let others = vec![same(&[1], 0.0); 4];
    let cases = [
        (include_str!("keys.tir"), "DK", &of_keys, Some(&of_keys), [1, 1, 3]),
        (include_str!("keys.tir"), "DV_", &of_keys, Some(&of_keys), [1, 1, 3]),
        (include_str!("queries.tir"), "DQ", &of_queries, None, [1, 2, 2]),
    ];
    let given = arrays.len();
    for (text, last, written, beside, grid) in cases {
        arrays.truncate(given);
        arrays.extend(beside.map(|dims| values(dims, bf16, 5)));
        arrays.extend(others.iter().cloned());
        arrays.push(values(written, bf16, 6));
        let mut runs = Runs::new(with_last(text, last), vec![], grid);
        runs.machine = hopper();
        let (wanted, got, _) = runs.run(&arrays);
        let most = wanted.values().iter().fold(0.0f64, |m, w| m.max(w.abs()));
        assert!(most > 1.0, "{last} is next to nothing");
        for (i, (w, g)) in wanted.values().iter().zip(got.values()).enumerate() {
            assert!((w - g).abs() <= 0.01 * most, "element {i} of {last} is {g}, not {w}");
        }
    }
}

/// Three warpgroups share tiles with three times a warpgroup's rows, whole tiles and others.
/// Without the pass that splits M, and where rows are reduced together, other schedules are used.
#[test]
fn three_warpgroups() {
    let form = Form { out: DType::BF16, ..Form::new(DType::BF16, (192, 64, 64)) };
    for size in [(384, 64, 192), (200, 72, 40)] {
        let staged = check(&form, size, ROWS);
        assert!(uses_wgmma(&staged) && staged.contains("replicas = 3, part = rows"), "{staged}");
        assert!(staged.contains("bulk_store"), "{staged}");
    }
    // Rows of one warpgroup that are not contiguous are stored in pieces, or from registers.
    let panels = Form { out: DType::BF16, ..Form::new(DType::BF16, (192, 128, 64)) };
    for (off, copied) in [(None, true), (Some("overlapped_epilogue"), false)] {
        let staged = check(&Form { off, ..panels }, (200, 136, 40), ROWS);
        assert!(staged.contains("replicas = 3"), "{staged}");
        assert_eq!(staged.contains("bulk_store"), copied, "{staged}");
    }
    let staged = check(&Form { off: Some("m_split"), ..form }, (200, 72, 40), ROWS);
    assert!(!staged.contains("replicas"), "{staged}");
    // Rows longer than a swizzle span are not in one piece.
    let wide = Form { out: DType::BF16, ..Form::new(DType::BF16, (192, 64, 128)) };
    let staged = check(&wide, (200, 72, 136), ROWS);
    assert!(!staged.contains("replicas"), "{staged}");
}

#[test]
fn attention_of_three_warpgroups() {
    let text = case(include_str!("../../../lower/tests/async_mma/three.tir"));
    let (h, s) = (2, 200);
    let mut runs = Runs::new(text, vec![("h", h), ("s", s)], [h, 2, 1]);
    runs.machine = hopper();
    let ints = |seed| integers((h * s * 64) as usize, seed, -3);
    // Scores that exceed the reference maximum in the rows of one warpgroup alone.
    let q: Vec<f64> = ints(1)
        .iter()
        .enumerate()
        .map(|(i, x)| if (64..100).contains(&(i / 64)) { x * 24.0 } else { *x })
        .collect();
    let k: Vec<f64> =
        ints(2).iter().enumerate().map(|(i, x)| x * (1 + i / 64 / 64 * 7) as f64).collect();
    let array = |values: &[f64]| plain(&[h, s, 64], DType::BF16, values);
    let (wanted, got, staged) = runs.run(&[array(&q), array(&k), array(&ints(3)), array(&ints(4))]);
    assert!(uses_wgmma(&staged) && staged.contains("replicas = 3, part = rows"), "{staged}");
    assert!(staged.contains("bulk_store"), "{staged}");
    for (i, (w, g)) in wanted.values().iter().zip(got.values()).enumerate() {
        assert!((w - g).abs() <= 0.03 * w.abs().max(1.0), "element {i} is {g}, not {w}");
    }
}

/// Loops record their clocks on request, and results stay the same.
#[test]
fn clocks_of_roles() {
    let form = Form {
        out: DType::BF16,
        off: Some("clock_elision"),
        ..Form::new(DType::BF16, (128, 128, 64))
    };
    stamps::begin();
    check(&form, (300, 136, 136), ROWS);
    let found = stamps::end();
    assert_eq!(found.left_out, 0);
    // Six tiles, of three iterations each.
    for role in ["consumer", "producer"] {
        let own: Vec<_> = found.list.iter().filter(|s| s.role == role).collect();
        assert_eq!(own.iter().map(|s| s.iterations).sum::<u32>(), 18, "{found:?}");
        assert!(own.iter().all(|s| s.end > s.begin), "{found:?}");
        // 128x128x64 multiply-adds at 2048 per clock.
        let least = if role == "consumer" { 512 } else { 0 };
        assert!(own.iter().all(|s| s.least == least), "{found:?}");
    }
    stamps::begin();
    check(&Form { off: None, ..form }, (300, 136, 136), ROWS);
    assert_eq!(stamps::end().list, []);
}

/// Overlapped epilogues: loops with fewer iterations than a tile has pieces, as many, and more; one
/// group per block and several; results of 16 and 32 bits, of two, three and four pieces.
#[test]
fn results_leave_while_the_next_are_computed() {
    let all = [
        ((64, 64, 64), DType::F32),
        ((64, 128, 64), DType::BF16),
        ((128, 192, 64), DType::BF16),
        ((128, 256, 64), DType::BF16),
        ((128, 128, 32), DType::F32),
    ];
    for (tile, out) in all {
        let form = Form { out, ..Form::new(DType::BF16, tile) };
        for k in [64, 328] {
            let staged = check(&form, (5 * tile.0 - 8, tile.1, k), ROWS);
            assert!(staged.contains("frag_part %before"), "{staged}");
        }
    }
    // The accumulator of 128x256 leaves no registers for as many f32 results.
    let form = Form::new(DType::BF16, (128, 256, 64));
    let staged = check(&form, (130, 264, 64), ROWS);
    assert!(!staged.contains("frag_part") && uses_wgmma(&staged), "{staged}");
    // Nor do 8-bit floats with a promoted accumulator.
    let form = Form { out: DType::BF16, ..Form::new(DType::Fp8E4M3, (128, 256, 128)) };
    let staged = check(&form, (130, 264, 128), [Lies::Rows(0), Lies::Cols(0), Lies::Rows(0)]);
    assert!(!staged.contains("frag_part") && uses_wgmma(&staged), "{staged}");
}

/// Without any one pass the results are the same.
#[test]
fn every_pass_can_be_left_out() {
    for step in Step::ALL {
        let off = Some(step.name());
        let form = Form { out: DType::BF16, off, ..Form::new(DType::BF16, (128, 128, 64)) };
        check(&form, (300, 136, 136), ROWS);
    }
}

/// Scores that exceed the reference maximum of lazy online softmax in some rows, and so in some
/// warps, and in blocks after the first: those rows are rescaled, and NaN stays in its own row.
#[test]
fn attention_of_growing_scores() {
    grows(include_str!("../../../lower/tests/async_mma/attention.tir"), 200);
}

/// The same in two loops: the first has no iteration in the first group, and the second continues
/// with its results.
#[test]
fn attention_of_growing_scores_in_two_loops() {
    let text = include_str!("../../../lower/tests/async_mma/chained_free.tir");
    for s in [100, 200, 300] {
        grows(text, s);
    }
}

/// The first loop has none, an odd and an even number of iterations after the first, as it is
/// unrolled by two; and the same without unrolling.
#[test]
fn attention_unrolled_by_two() {
    let text = include_str!("../../../lower/tests/async_mma/chained_free.tir");
    let short = "  %blocks = tile.floordiv %s, %bn : i64
  %mid = tile.mul %blocks, %bn : i64
  %out1, %mx1";
    // Iterations that mask their scores compute so much that moves do not count: those of the first
    // loop need no mask, and this form of it shows the moves.
    let mask = "    %u_in = tile.lt %u_cb, %u_sb : tile<128x64xbool>";
    let seen = "    %u_left = tile.sub %s, %u_k0 : i64
    %u_c64 = tile.cast %cols : tile<64xi64>
    %u_c2 = tile.expand %u_c64 {axis = 0} : tile<1x64xi64>
    %u_l2 = tile.broadcast %u_left : tile<1x64xi64>
    %u_i2 = tile.lt %u_c2, %u_l2 : tile<1x64xbool>
    %u_in = tile.broadcast %u_i2 : tile<128x64xbool>";
    assert!(text.contains(mask));
    let text = text.replace("  %out1, %mx1", short).replace(mask, seen);
    let text = text.replace("%cols = tile.iota :", "%cols = tile.iota {start = 0} :");
    let text = text.replace("for %zero, %q0,", "for %zero, %mid,");
    let text = text.replace("for %q0, %hi,", "for %mid, %hi,");
    for s in [100, 140, 200, 300] {
        grows(&text, s);
    }
    let off = text.replacen(
        "{kind = group,",
        "{kind = group, config = {off = [unroll_by_two, accumulator_coalescing]},",
        1,
    );
    assert_ne!(off, text);
    grows(&off, 300);
    let iterations = |text: &str| {
        let func = form::tile_func(&case(text));
        let classes = usual_classes(&Frame::new(&func).unwrap());
        let caps = PtxCaps::of(90, true).unwrap();
        wgmma_calls(&compile(&func, caps, Profile::Default, &classes).unwrap())
    };
    assert!(iterations(&text) > iterations(&off), "no loop is unrolled by two");
}

fn grows(text: &str, s: i64) {
    let h = 1;
    let mut runs = Runs::new(case(text), vec![("h", h), ("s", s)], [h, (s + 127) / 128, 1]);
    runs.machine = hopper();
    let ints = |seed| integers((h * s * 64) as usize, seed, -3);
    let q: Vec<f64> = ints(1)
        .iter()
        .enumerate()
        .map(|(i, x)| match i / 64 {
            150 => f64::NAN,
            // In the first half of a warp's rows, in the second, and in both: a thread has one of
            // each.
            row if row % 32 < 3 || row % 48 == 25 => x * 24.0,
            _ => *x,
        })
        .collect();
    let k: Vec<f64> =
        ints(2).iter().enumerate().map(|(i, x)| x * (1 + i / 64 / 64 * 7) as f64).collect();
    let array = |values: &[f64]| plain(&[h, s, 64], DType::BF16, values);
    let arrays = [array(&q), array(&k), array(&ints(3)), array(&ints(4))];
    let (wanted, got, staged) = runs.run(&arrays);
    assert!(staged.contains("staged.slow_path"), "{staged}");
    for (i, (w, g)) in wanted.values().iter().zip(got.values()).enumerate() {
        let near = (w - g).abs() <= 0.03 * w.abs().max(1.0) || w.is_nan() && g.is_nan();
        assert!(near, "element {i} is {g}, not {w}");
        assert_eq!(w.is_nan(), i / 64 == 150, "element {i} is {w}");
    }
}

/// f16 weights have no range for lazy rescaling, and a note says so.
#[test]
fn why_softmax_rescales_in_every_iteration() {
    let text = case(include_str!("../../../lower/tests/async_mma/attention.tir"));
    let notes = |text: &str| {
        let func = form::tile_func(text);
        let classes = usual_classes(&Frame::new(&func).unwrap());
        let caps = PtxCaps::of(90, true).unwrap();
        compile(&func, caps, Profile::Default, &classes).unwrap().notes
    };
    let reported = |text: &str| {
        notes(text).iter().filter(|(_, note)| note.contains("rescales in every iteration")).count()
    };
    assert_eq!(reported(&text), 0);
    let halves = text.replace("bf16", "f16");
    assert_eq!(reported(&halves), 1, "{:?}", notes(&halves));
}

/// The assembler's view of the largest tiles: no spills, and no WGMMA that is serialised
/// needlessly.
#[test]
fn assembles_without_spills_or_serialised_wgmmas() {
    let Some(tools) = tools() else { return };
    let attention = case(include_str!("../../../lower/tests/async_mma/attention.tir"));
    let three = case(include_str!("../../../lower/tests/async_mma/three.tir"));
    let chained = case(include_str!("../../../lower/tests/async_mma/chained_free.tir"));
    let gemm = |out| Form { out, ..Form::new(DType::BF16, (128, 256, 64)) }.text();
    let plain = Form {
        off: Some("overlapped_epilogue"),
        out: DType::BF16,
        ..Form::new(DType::BF16, (128, 256, 64))
    };
    for text in [gemm(DType::BF16), gemm(DType::F32), plain.text(), attention, three, chained] {
        let func = form::tile_func(&text);
        let caps = PtxCaps::of(90, true).unwrap();
        let classes = usual_classes(&Frame::new(&func).unwrap());
        let code = compile(&func, caps, Profile::Default, &classes).unwrap();
        assert!(uses_wgmma(code.staged.as_deref().unwrap_or_default()), "{:?}", code.notes);
        assembled(&tools, &code);
    }
}

/// Branches, nested loops, tiles with other users, loops whose length is in memory.
#[test]
fn control_flow_and_other_uses() {
    let cases = [
        (include_str!("../../../lower/tests/async_mma/branch.tir"), false),
        (include_str!("../../../lower/tests/async_mma/loops_in_loops.tir"), false),
        (include_str!("../../../lower/tests/async_mma/read_twice.tir"), false),
        (include_str!("../../../lower/tests/async_mma/length_from_memory.tir"), true),
    ];
    let (m, n, k) = (72, 72, 136);
    let ints = |count: i64, seed| integers(count as usize, seed, -3);
    for (text, has_length) in cases {
        let dims = vec![("m", m), ("n", n), ("k", k), ("e", 2)];
        let mut runs = Runs::new(case(text), dims, [2, 2, 1]);
        runs.machine = hopper();
        let mut arrays = vec![
            plain(&[m, k], DType::F16, &ints(m * k, 1)),
            plain(&[k, n], DType::F16, &ints(k * n, 2)),
            plain(&[m, n], DType::F32, &ints(m * n, 3)),
        ];
        if has_length {
            arrays.insert(2, plain(&[2], DType::I64, &[50.0, 1.0]));
        }
        let staged = runs.check(&arrays);
        assert!(uses_wgmma(&staged), "{staged}");
    }
}
