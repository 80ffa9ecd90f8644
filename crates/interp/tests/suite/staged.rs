//! Staged IR: correct kernels give their results whatever the timing, and wrong ones are caught.

use super::gemm::{gemm, noise};
use super::{args, run};
use tessera_diag::Diagnostics;
use tessera_interp::{HostArray, StagedOptions, Timing, run_staged};
use tessera_numerics::DType;
use tessera_staged::{StagedFunc, parse};
use tessera_target::ArgValue;

const ELEMENTWISE: &str = include_str!("../../../../filetests/staged/elementwise.tir");
const PIPELINE: &str = include_str!("../../../../filetests/staged/pipeline.tir");
const PARTS: &str = include_str!("../../../../filetests/staged/parts.tir");
const ROLES: &str = include_str!("../../../../filetests/staged/roles.tir");

fn timings() -> Vec<Timing> {
    let seeds = (0..12).map(Timing::Random);
    [Timing::Early, Timing::Late].into_iter().chain(seeds).collect()
}

fn named(text: &str, name: &str) -> String {
    let start = text.find(&format!("func @{name}(")).unwrap();
    let end = text[start..].find("\n}\n").unwrap();
    text[start..start + end + 3].to_string()
}

fn staged(
    func: &StagedFunc,
    params: Vec<ArgValue>,
    grid: [i64; 3],
    timing: Timing,
    verify: bool,
) -> Result<(), Diagnostics> {
    run_staged(func, &args(params, grid), StagedOptions { timing, verify })
}

#[test]
fn elementwise_equals_tile_ir() {
    let func = parse(&named(ELEMENTWISE, "axpy")).unwrap();
    let n = 300;
    for timing in timings() {
        let mut x = HostArray::new(&[n], DType::F32, &noise(n, 1, 3.0));
        let mut y = HostArray::new(&[n], DType::F32, &noise(n, 5, 3.0));
        let wanted: Vec<f64> = (x.values().iter().zip(y.values()))
            .map(|(&x, y)| f64::from(2.5f32.mul_add(x as f32, y as f32)))
            .collect();
        let alpha = ArgValue::Scalar(tessera_numerics::Scalar::F32(2.5));
        staged(&func, vec![x.as_arg(), y.as_arg(), alpha], [3, 1, 1], timing, true).unwrap();
        assert_eq!(y.values(), wanted);
    }
}

/// A matmul as Tile IR gives it; `b` is k × n.
fn product(m: i64, n: i64, a: &mut HostArray, b: &mut HostArray) -> Vec<f64> {
    let mut c = HostArray::zeros(&[m, n], DType::F32);
    let text = gemm(DType::F32, DType::F32, DType::F32, (8, 8, 8));
    let grid = [(m + 7) / 8, (n + 7) / 8, 1];
    run(&text, &args(vec![a.as_arg(), b.as_arg(), c.as_arg()], grid)).unwrap();
    c.values()
}

/// The form of a staged matmul.
#[derive(Copy, Clone, PartialEq)]
enum Form {
    /// One block for each tile.
    Plain,
    /// Two blocks; `b` is n × k.
    Turned,
    /// Two blocks; with `sum` the result is added to zeros.
    Persistent { sum: bool },
}

fn staged_product(
    text: &str,
    form: Form,
    (m, n, k): (i64, i64, i64),
    timing: Timing,
    verify: bool,
) -> Result<(), Diagnostics> {
    let func = parse(text)?;
    let mut a = HostArray::new(&[m, k], DType::F32, &noise(m * k, 1, 2.0));
    let values = noise(k * n, 2, 2.0);
    let mut b = HostArray::new(&[k, n], DType::F32, &values);
    let wanted = product(m, n, &mut a, &mut b);
    let old = if form == (Form::Persistent { sum: true }) { 0.0 } else { 7.0 };
    let mut c = HostArray::new(&[m, n], DType::F32, &vec![old; (m * n) as usize]);
    let grid = if form == Form::Plain { [(m + 7) / 8, (n + 7) / 8, 1] } else { [2, 1, 1] };
    if form == Form::Turned {
        let at = |row: i64, col: i64| values[(col * n + row) as usize];
        let other: Vec<f64> = (0..n).flat_map(|r| (0..k).map(move |c| at(r, c))).collect();
        b = HostArray::new(&[n, k], DType::F32, &other);
    }
    staged(&func, vec![a.as_arg(), b.as_arg(), c.as_arg()], grid, timing, verify)?;
    assert_eq!(c.values(), wanted, "{m}x{n}x{k} {timing:?}");
    Ok(())
}

const SIZES: [(i64, i64, i64); 4] = [(8, 8, 8), (13, 21, 19), (24, 8, 70), (5, 33, 1)];

#[test]
fn product_with_one_role_equals_tile_ir() {
    let text = named(PIPELINE, "gemm");
    for size in SIZES {
        for timing in timings() {
            staged_product(&text, Form::Plain, size, timing, true).unwrap();
        }
    }
}

#[test]
fn product_with_two_roles_equals_tile_ir() {
    let text = named(ROLES, "gemm");
    for size in SIZES {
        for timing in timings() {
            staged_product(&text, Form::Turned, size, timing, true).unwrap();
        }
    }
}

#[test]
fn product_with_replicas_equals_tile_ir() {
    for (name, sum) in [("rows", false), ("pingpong", true)] {
        let text = named(PARTS, name);
        for size in SIZES {
            for timing in timings() {
                staged_product(&text, Form::Persistent { sum }, size, timing, true).unwrap();
            }
        }
    }
}

/// Replaces a line that occurs once.
fn change(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from}");
    text.replacen(from, to, 1)
}

/// Removes the line with `what`, which occurs once.
fn without(text: &str, what: &str) -> String {
    assert_eq!(text.matches(what).count(), 1, "{what}");
    text.lines().filter(|l| !l.contains(what)).map(|l| format!("{l}\n")).collect()
}

/// Both must catch it: the verifier, and the interpreter without it at every timing.
fn caught(name: &str, text: &str, form: Form, verifier: &str, interpreter: &str) {
    let verdict = |r: Result<(), Diagnostics>| match r {
        Ok(()) => "nothing".to_string(),
        Err(e) => {
            e.iter().map(|d| format!("{} {}", d.code, d.message)).collect::<Vec<_>>().join("\n")
        }
    };
    let found = verdict(parse(text).and_then(|f| tessera_ir::verify(&f)));
    assert!(found.contains(verifier), "{name}: the verifier found {found}");
    for timing in timings() {
        let found = verdict(staged_product(text, form, (13, 21, 70), timing, false));
        assert!(found.contains(interpreter), "{name} {timing:?}: the interpreter found {found}");
    }
}

#[test]
fn a_wait_that_is_left_out_is_caught() {
    let text = named(PIPELINE, "gemm");
    // The stage that is being filled is read instead.
    let text = change(&text, "%t = staged.wait %r, %j", "%u = staged.wait %r, %j");
    let text = text.replace("staged.field %t", "staged.field %w");
    caught(
        "no wait",
        &text,
        Form::Plain,
        "between `wait` and `release`",
        "between `wait` and `release`",
    );
}

#[test]
fn a_stage_released_while_an_mma_reads_it_is_caught() {
    let text = named(ROLES, "gemm");
    let text = change(&text, "release %r, %before {unless_first = true}", "release %r, %j2");
    let text = without(&text, "staged.release %r, %back");
    caught(
        "early release",
        &text,
        Form::Turned,
        "to be released when nothing reads it",
        "asynchronous work begun",
    );
}

#[test]
fn a_retire_that_keeps_too_much_is_caught() {
    let text =
        change(&named(ROLES, "gemm"), "mma_retire %t {keep = 1}", "mma_retire %t {keep = 2}");
    caught(
        "keep 2",
        &text,
        Form::Turned,
        "to be released when nothing reads it",
        "asynchronous work begun",
    );
    let text =
        change(&named(ROLES, "gemm"), "mma_retire %p {keep = 0}", "mma_retire %p {keep = 1}");
    caught("keep 1", &text, Form::Turned, "a tile only of groups", "a tile only of groups");
}

#[test]
fn a_product_that_is_never_retired_is_caught() {
    let text = without(&named(ROLES, "gemm"), "%sum = staged.mma_retire");
    let text = change(&text, "staged.frag_store %out, %sum", "staged.frag_store %out, %empty");
    let verifier = "used once, got no use";
    caught("no retire", &text, Form::Turned, verifier, "asynchronous work begun");
}

#[test]
fn a_publication_before_its_copies_is_caught() {
    let text = named(ROLES, "gemm");
    let line = "          staged.publish %r, %j\n";
    let text = change(&text, line, "");
    let fill = "          staged.fill %s, %b at(%col, %at) {field = b, extent = [8, 8]}\n";
    let text = change(&text, fill, &format!("{line}{fill}"));
    caught(
        "early publish",
        &text,
        Form::Turned,
        "between `acquire` and `publish`",
        "`acquire` and `publish`",
    );
}

#[test]
fn a_publication_that_is_left_out_is_caught() {
    let text = named(ROLES, "gemm");
    let text = without(&text, "staged.publish %r, %j");
    caught(
        "no publish",
        &text,
        Form::Turned,
        "acquired to be published",
        "waits for counter 0 of pipeline %r to be published",
    );
}

#[test]
fn a_release_that_is_left_out_is_caught() {
    let text = without(&named(ROLES, "gemm"), "staged.release %r, %back");
    caught("no release", &text, Form::Turned, "to be released, got", "got all waiting");
}

#[test]
fn a_wrong_counter_is_caught() {
    let text =
        change(&named(PIPELINE, "gemm"), "staged.acquire %r, %ahead", "staged.acquire %r, %j");
    caught(
        "counter",
        &text,
        Form::Plain,
        "expected counter 2 of pipeline %r, got 0",
        "expected counter 2 of pipeline %r, got 0",
    );
    let text =
        change(&named(ROLES, "gemm"), "staged.release %r, %back", "staged.release %r, %end2");
    caught(
        "release counter",
        &text,
        Form::Turned,
        "to be waited for before",
        "to be waited for before",
    );
}

#[test]
fn a_missing_fence_is_caught() {
    let text = without(&named(ROLES, "gemm"), "staged.fence_async");
    caught(
        "no fence",
        &text,
        Form::Turned,
        "`fence_async` and a barrier",
        "`fence_async` and then a barrier",
    );
}

#[test]
fn a_missing_barrier_is_caught() {
    let text = named(ROLES, "gemm");
    let pair = "        staged.fence_async\n        staged.role_barrier\n";
    let text = change(&text, pair, "        staged.fence_async\n");
    caught(
        "no barrier",
        &text,
        Form::Turned,
        "expected a barrier between what threads wrote",
        "a barrier",
    );
}

#[test]
fn memory_written_again_before_it_is_read_is_caught() {
    let text = without(&named(ROLES, "gemm"), "staged.bulk_wait {keep = 0, read = true}");
    caught(
        "no bulk wait",
        &text,
        Form::Turned,
        "expected memory that nothing reads",
        "asynchronous work begun",
    );
}

#[test]
fn a_field_that_is_never_filled_is_caught() {
    let text = without(&named(ROLES, "gemm"), "field = b, extent");
    caught("no fill", &text, Form::Turned, "to be filled, got nothing", "was never written");
}

#[test]
fn a_pipeline_that_is_left_full_is_caught() {
    let text = without(&named(PIPELINE, "gemm"), "staged.drain %r");
    caught(
        "no drain",
        &text,
        Form::Plain,
        "`drain` the pipeline",
        "expected this copy to be waited for",
    );
}
