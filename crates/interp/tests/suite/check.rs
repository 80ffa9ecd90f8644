//! Checked mode: memory and groups. Every broken kernel is next to its correct twin.

use super::gemm::{ATTENTION, gemm, noise};
use super::lanes::SAXPY;
use super::{args, lanes};
use std::time::Instant;
use tessera_diag::{Code, Diagnostics};
use tessera_interp::{CheckOptions, CheckReport, CheckedInterp, HostArray};
use tessera_numerics::{DType, Profile, Scalar};
use tessera_target::{ArgValue, Backend, CompileOptions, LaunchArgs};

pub fn check(text: &str, args: &LaunchArgs) -> CheckReport {
    let func = tessera_tile::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    tessera_interp::check(&func, args, &CheckOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// Each finding as `CODE line`, and `CODE line < line` with the line of the other place.
pub fn places(report: &CheckReport) -> Vec<String> {
    let place = |d: &tessera_diag::Diagnostic| {
        let others: Vec<_> = d.labels.iter().map(|l| format!(" < {}", l.loc.line())).collect();
        format!("{} {}{}", d.code, d.loc.line(), others.concat())
    };
    report.findings.iter().map(place).collect()
}

/// The broken kernel has exactly this finding; the one with `from` replaced by `to` has none.
pub fn broken(
    text: &str,
    wanted: &str,
    (from, to): (&str, &str),
    mut launch: impl FnMut() -> LaunchArgs,
) -> String {
    let report = check(text, &launch());
    assert_eq!(places(&report), [wanted], "{}", report.findings);
    assert!(text.contains(from), "{from}");
    let repaired = check(&text.replace(from, to), &launch());
    assert!(repaired.is_clean(), "{}", repaired.findings);
    report.findings.render()
}

/// A group kernel over `x` with `body`; groups along axis 0 have the number `%p`.
fn group(params: &str, body: &str) -> String {
    format!(
        "func @f({params}) {{kind = group}} {{
  %zero = tile.const {{value = 0}} : i64
  %one = tile.const {{value = 1}} : i64
  %four = tile.const {{value = 4}} : i64
  %p = tile.program_id {{axis = 0}} : i64
  {body}
  tile.return
}}"
    )
}

#[test]
fn groups_that_write_one_tile_race() {
    let text = group(
        "%x: view<[n], f32, write>",
        "%v = tile.const {value = 1.0} : tile<4xf32>
         %at = tile.mul %p, %four : i64
         tile.store %x, %v at(%zero) {extent = [4]} loc(\"k.py\":7:5)",
    );
    let mut x = HostArray::zeros(&[8], DType::F32);
    let shown = broken(&text, "E_RACE 7 < 7", ("at(%zero)", "at(%at)"), || {
        args(vec![x.as_arg()], [2, 1, 1])
    });
    assert!(
        shown.contains("group 1 writes element [0] of `x`, which group 0 has written"),
        "{shown}"
    );
    assert!(shown.contains("written here by group 0"), "{shown}");
    assert!(shown.contains("this happened 4 times"), "{shown}");
    assert_eq!(x.values(), [1.0; 8]);
}

#[test]
fn tiles_that_overlap_race_where_they_do() {
    let text = group(
        "%x: view<[m, n], f32, write>",
        "%v = tile.const {value = 1.0} : tile<2x4xf32>
         %three = tile.const {value = 3} : i64
         %q = tile.program_id {axis = 1} : i64
         %at = tile.mul %q, %three : i64
         %row = tile.mul %p, %one : i64
         %i = tile.add %row, %row : i64
         tile.store %x, %v at(%i, %at) {extent = [2, 4]} loc(\"k.py\":9:1)",
    );
    let mut x = HostArray::zeros(&[4, 6], DType::F32);
    let shown = broken(&text, "E_RACE 9 < 9", ("value = 3", "value = 4"), || {
        args(vec![x.as_arg()], [2, 2, 1])
    });
    assert!(
        shown.contains("group (0, 1) writes element [0, 3] of `x`, which group (0, 0)"),
        "{shown}"
    );
    assert!(shown.contains("4 times"), "{shown}");
}

#[test]
fn a_group_that_reads_what_another_writes_races_in_either_order() {
    let text = |read: &str| {
        group(
            "%x: view<[n], f32, read_write>",
            &format!(
                "%n = tile.dim {{name = n}} : i64
                 %m = tile.sub %n, %one : i64
                 %back = tile.sub %m, %p : i64
                 %prev = tile.sub %p, %one : i64
                 %next = tile.add %p, %one : i64
                 %v = tile.load %x at({read}) {{extent = [1]}} : tile<1xf32> loc(\"k.py\":3:9)
                 tile.store %x, %v at(%p) {{extent = [1]}} loc(\"k.py\":4:5)"
            ),
        )
    };
    let mut x = HostArray::zeros(&[4], DType::F32);
    let mut launch = || args(vec![x.as_arg()], [4, 1, 1]);
    let shown = broken(&text("%prev"), "E_RACE 3 < 4", ("at(%prev)", "at(%p)"), &mut launch);
    assert!(
        shown.contains("group 1 reads element [0] of `x`, which group 0 has written"),
        "{shown}"
    );
    let shown = broken(&text("%next"), "E_RACE 4 < 3", ("at(%next)", "at(%p)"), &mut launch);
    assert!(shown.contains("read here by group 0"), "{shown}");
}

#[test]
fn folding_into_a_plain_parameter_from_many_groups_races() {
    let text = group(
        "%c: view<[1], f32, read_write>",
        "%v = tile.const {value = 1.0} : tile<1xf32>
         tile.accumulate %c, %v at(%zero) {op = sum, extent = [1]} loc(\"k.py\":5:5)",
    );
    let mut c = HostArray::zeros(&[1], DType::F32);
    let shown = broken(&text, "E_RACE 5 < 5", ("read_write", "reduce_sum"), || {
        args(vec![c.as_arg()], [3, 1, 1])
    });
    assert!(shown.contains("ts.Region[ts.reduce_sum]"), "{shown}");
    assert_eq!(c.values(), [6.0]);
}

#[test]
fn scattered_elements_race_between_groups() {
    let text = group(
        "%x: view<[n], i32, write>, %ix: view<[m], i32, read>",
        "%at = tile.mul %p, %four : i64
         %i = tile.load %ix at(%at) {extent = [4]} : tile<4xi32>
         tile.scatter %x, %i at(%i) loc(\"k.py\":6:5)",
    );
    let run = |index: [f64; 8]| {
        let mut x = HostArray::zeros(&[8], DType::I32);
        let mut ix = HostArray::new(&[8], DType::I32, &index);
        places(&check(&text, &args(vec![x.as_arg(), ix.as_arg()], [2, 1, 1])))
    };
    assert_eq!(run([0.0, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 6.0]), ["E_RACE 6 < 6"]);
    // Repeats inside one group are allowed for scatter.
    assert_eq!(run([0.0, 1.0, 1.0, 3.0, 7.0, 4.0, 5.0, 6.0]), [""; 0]);
}

#[test]
fn a_buffer_is_read_where_it_was_written() {
    let text = group(
        "%x: view<[n], f32, write>",
        "%b = tile.buf_alloc : buf<2x4xf32>
         %v = tile.const {value = 1.0} : tile<4xf32>
         tile.store %b, %v at(%zero, %zero) {extent = [0, 4]} loc(\"k.py\":3:1)
         %t = tile.load %b at(%one, %zero) {extent = [0, 4]} : tile<4xf32> loc(\"k.py\":4:9)
         tile.store %x, %t at(%zero) {extent = [4]} loc(\"k.py\":5:1)",
    );
    let mut x = HostArray::new(&[4], DType::F32, &[9.0; 4]);
    let slow_path = ("tile.load %b at(%one, %zero)", "tile.load %b at(%zero, %zero)");
    let shown = broken(&text, "E_UNINIT 4", slow_path, || args(vec![x.as_arg()], [1; 3]));
    assert!(shown.contains("element [1, 0] of `b` is read but was never written"), "{shown}");
    check(&text, &args(vec![x.as_arg()], [1; 3]));
    assert_eq!(x.values(), [0.0; 4], "taken as zero");
}

#[test]
fn a_buffer_in_a_loop_is_new_each_time() {
    let text = group(
        "%x: view<[n], f32, write>",
        "%v = tile.const {value = 1.0} : tile<4xf32>
         %b0 = tile.buf_alloc : buf<4xf32>
         tile.for %zero, %four, %one do (%i: i64) {
           %b = tile.buf_alloc : buf<4xf32>
           %first = tile.eq %i, %zero : bool
           tile.if %first do {
             tile.store %b, %v at(%zero) {extent = [4]}
             tile.store %b0, %v at(%zero) {extent = [4]}
             tile.yield
           } do {
             tile.yield
           }
           %t = tile.load %b at(%zero) {extent = [4]} : tile<4xf32> loc(\"k.py\":8:9)
           tile.store %x, %t at(%zero) {extent = [4]}
           tile.yield
         }",
    );
    let mut x = HostArray::zeros(&[4], DType::F32);
    broken(&text, "E_UNINIT 8", ("tile.load %b at", "tile.load %b0 at"), || {
        args(vec![x.as_arg()], [1; 3])
    });
}

#[test]
fn a_position_of_its_own_outside_is_found_but_no_edge_of_a_slice() {
    let text = group(
        "%x: view<[h, n], f32, read>, %y: view<[g, n], f32, write>",
        "%t = tile.load %x at(%p, %four) {extent = [0, 4]} : tile<4xf32> loc(\"k.py\":3:9)
         tile.store %y, %t at(%p, %four) {extent = [0, 4]} loc(\"k.py\":4:5)",
    );
    let mut x = HostArray::zeros(&[2, 6], DType::F32);
    let mut y = HostArray::zeros(&[3, 6], DType::F32);
    let slow_path = ("tile.load %x at(%p,", "tile.load %x at(%one,");
    let shown =
        broken(&text, "E_OOB 3", slow_path, || args(vec![x.as_arg(), y.as_arg()], [3, 1, 1]));
    assert!(shown.contains("index 2 is outside `x`, which has 2 elements along axis 0"), "{shown}");
    assert!(shown.contains("group 2 reads `x` at [2, 4]"), "{shown}");
}

#[test]
fn gathered_and_scattered_elements_outside_are_found() {
    let text = group(
        "%x: view<[n], f32, read>, %ix: view<[4], i32, read>, %y: view<[n], f32, write>",
        "%i = tile.load %ix at(%zero) {extent = [4]} : tile<4xi32>
         %z = tile.const {value = 0.0} : f32
         %m = tile.dim {name = n} : i64
         %n = tile.cast %m : i32
         %nt = tile.broadcast %n : tile<4xi32>
         %in = tile.lt %i, %nt : tile<4xbool>
         %v = tile.gather %x at(%i) : tile<4xf32> loc(\"k.py\":3:9)
         tile.scatter %y, %v at(%i) mask(%in) loc(\"k.py\":4:5)",
    );
    let mut x = HostArray::zeros(&[5], DType::F32);
    let mut y = HostArray::zeros(&[5], DType::F32);
    let mut ix = HostArray::new(&[4], DType::I32, &[0.0, 7.0, 1.0, 5.0]);
    let mut launch = || args(vec![x.as_arg(), ix.as_arg(), y.as_arg()], [1; 3]);
    let gather = ("at(%i) : tile<4xf32>", "at(%i) other(%z) : tile<4xf32>");
    let shown = broken(&text, "E_OOB 3", gather, &mut launch);
    assert!(shown.contains("index 7") && shown.contains("2 times"), "{shown}");
    let text = text.replace(gather.0, gather.1).replace(" mask(%in)", "");
    let shown = broken(&text, "E_OOB 4", ("at(%i) loc", "at(%i) mask(%in) loc"), &mut launch);
    assert!(shown.contains("is not written"), "{shown}");
}

#[test]
fn a_read_under_a_mask_is_not_made() {
    // As the front end writes `load(x, i, mask=i < n)`.
    let text = "
func @f(%x: view<[n], bf16, read>, %y: view<[m], f32, write>) {kind = lane} {
  %i = tile.linear_id : i64
  %n = tile.dim {name = n} : i64
  %z = tile.const {value = 0.0} : f32
  %in = tile.lt %i, %n : bool
  %v = tile.load %x at(%i) {extent = [0]} : bf16 loc(\"k.py\":3:9)
  %w = tile.cast %v : f32
  %r = tile.select %in, %w, %z : f32
  tile.store %y, %r at(%i) {extent = [0]}
  tile.return
}";
    let mut x = HostArray::zeros(&[5], DType::BF16);
    let mut y = HostArray::zeros(&[8], DType::F32);
    let mut launch = || lanes(vec![x.as_arg(), y.as_arg()], 8, 4);
    let unmasked = text.replace("store %y, %r", "store %y, %w");
    broken(&unmasked, "E_OOB 3", ("store %y, %w", "store %y, %r"), &mut launch);
}

#[test]
fn canonical_programs_are_clean() {
    let (m, n, k) = (100, 70, 50);
    let array = |r, c, seed| HostArray::new(&[r, c], DType::BF16, &noise(r * c, seed, 1.0));
    let (mut a, mut b, mut c) =
        (array(m, k, 1), array(k, n, 2), HostArray::zeros(&[m, n], DType::F32));
    let mut wanted = c.clone();
    let text = gemm(DType::BF16, DType::BF16, DType::F32, (64, 64, 32));
    let report = check(&text, &args(vec![a.as_arg(), b.as_arg(), c.as_arg()], [2, 2, 1]));
    assert!(report.is_clean(), "{}", report.findings);
    super::run(&text, &args(vec![a.as_arg(), b.as_arg(), wanted.as_arg()], [2, 2, 1])).unwrap();
    assert_eq!(c, wanted, "a checked launch computes what any other does");

    // With infinities as masks, and rows beyond the edge that divide zero by zero.
    for fill in ["-1.0e30", "-inf"] {
        let text = ATTENTION.replace("-1.0e30", fill);
        let array = |seed| HostArray::new(&[2, 100, 64], DType::BF16, &noise(12800, seed, 1.5));
        let (mut q, mut k, mut v) = (array(3), array(5), array(11));
        let mut o = HostArray::zeros(&[2, 100, 64], DType::BF16);
        let launch = args(vec![q.as_arg(), k.as_arg(), v.as_arg(), o.as_arg()], [2, 2, 1]);
        let report = check(&text, &launch);
        assert!(report.is_clean(), "{}", report.findings);
    }

    let (mut x, mut y) =
        (HostArray::zeros(&[100], DType::F32), HostArray::zeros(&[100], DType::F32));
    let alpha = ArgValue::Scalar(Scalar::F32(2.0));
    let report = check(SAXPY, &lanes(vec![alpha, x.as_arg(), y.as_arg()], 100, 32));
    assert!(report.is_clean(), "{}", report.findings);
}

#[test]
fn the_checked_backend_fails_with_the_findings_and_writes_the_results() {
    let text = group(
        "%x: view<[1], f32, write>",
        "%v = tile.const {value = 3.0} : tile<1xf32>
         tile.store %x, %v at(%zero) {extent = [1]} loc(\"k.py\":2:1)",
    );
    let func = tessera_tile::parse(&text).unwrap();
    let options = CompileOptions::new(Profile::Default);
    let artifact = CheckedInterp::default().compile(&func, &options).unwrap();
    let mut x = HostArray::zeros(&[1], DType::F32);
    let launched = artifact.launch(&args(vec![x.as_arg()], [2, 1, 1]));
    let codes = |d: Diagnostics| d.iter().map(|d| d.code).collect::<Vec<_>>();
    assert_eq!(launched.map_err(codes), Err(vec![Code::E_RACE]));
    assert_eq!(x.values(), [3.0]);
    assert_eq!(artifact.launch(&args(vec![x.as_arg()], [1; 3])), Ok(()));
    let plain = tessera_interp::Interp.compile(&func, &options).unwrap();
    assert_eq!((artifact.target_text(), artifact.hash()), (plain.target_text(), plain.hash()));
    assert_eq!(artifact.resources(), plain.resources());
}

#[test]
fn no_more_is_described_than_requested() {
    let stores: String = (1..=5)
        .map(|i| format!("tile.store %x, %v at(%zero) {{extent = [1]}} loc(\"k.py\":{i}:1)\n"))
        .collect();
    let text = group(
        "%x: view<[1], f32, write>",
        &format!("%v = tile.const {{value = 3.0}} : tile<1xf32>\n{stores}"),
    );
    let func = tessera_tile::parse(&text).unwrap();
    let mut x = HostArray::zeros(&[1], DType::F32);
    let launch = args(vec![x.as_arg()], [2, 1, 1]);
    let report = tessera_interp::check(&func, &launch, &CheckOptions { limit: 3 }).unwrap();
    assert_eq!((report.findings.len(), report.omitted), (3, 2));
}

/// Prints timings: run with `--nocapture`.
#[test]
fn timing_of_checked_launches() {
    let n = 512;
    let array = |seed| HostArray::new(&[n, n], DType::BF16, &noise(n * n, seed, 1.0));
    let (mut a, mut b, mut c) = (array(1), array(2), HostArray::zeros(&[n, n], DType::F32));
    let text = gemm(DType::BF16, DType::BF16, DType::F32, (64, 64, 32));
    let start = Instant::now();
    let report = check(&text, &args(vec![a.as_arg(), b.as_arg(), c.as_arg()], [8, 8, 1]));
    println!("checked gemm bf16 512x512x512: {:?}", start.elapsed());
    assert!(report.is_clean());
    let array = |seed| HostArray::new(&[2, 512, 64], DType::BF16, &noise(2 * 512 * 64, seed, 1.0));
    let (mut q, mut k, mut v, mut o) = (array(1), array(2), array(3), array(4));
    for fill in ["-1.0e30", "-inf"] {
        let launch = args(vec![q.as_arg(), k.as_arg(), v.as_arg(), o.as_arg()], [2, 8, 1]);
        let start = Instant::now();
        let report = check(&ATTENTION.replace("-1.0e30", fill), &launch);
        println!("checked attention bf16 2x512x64, masked with {fill}: {:?}", start.elapsed());
        assert!(report.is_clean());
    }
    let (mut x, mut y) =
        (HostArray::zeros(&[1 << 20], DType::F32), HostArray::zeros(&[1 << 20], DType::F32));
    let alpha = ArgValue::Scalar(Scalar::F32(2.0));
    let start = Instant::now();
    let report = check(SAXPY, &lanes(vec![alpha, x.as_arg(), y.as_arg()], 1 << 20, 256));
    println!("checked saxpy f32 2^20 lanes: {:?}", start.elapsed());
    assert!(report.is_clean());
}

#[test]
fn groups_touch_only_what_is_theirs() {
    let params = "%x: view<[n], f32, read>, %y: view<[n], f32, read_write>";
    let launch = || {
        let (mut x, mut y) =
            (HostArray::zeros(&[16], DType::F32), HostArray::zeros(&[16], DType::F32));
        let list = vec![x.as_arg(), y.as_arg()];
        std::mem::forget((x, y));
        args(list, [4, 1, 1])
    };
    let body = "%at = tile.mul %p, %four : i64
         tile.owned %y at(%at) {extent = [EXTENT]}
         %v = tile.load %x at(%at) {extent = [4]} : tile<4xf32>
         tile.store %y, %v at(%at) {extent = [4]}";
    // Group 1 says that it owns what group 0 said.
    let text = group(params, body).replace("EXTENT", "5");
    let report = check(&text, &launch());
    assert_eq!(places(&report), ["E_RACE 7 < 7", "E_RACE 9 < 7"], "{}", report.findings);
    assert!(check(&text.replace("extent = [5]", "extent = [4]"), &launch()).is_clean());
    let shown = report.findings.render();
    assert!(shown.contains("group 1 owns element [4] of `y`, which group 0 owns"), "{shown}");
    // What was read before the claim, and after it.
    let reads = group(
        params,
        "%first = tile.eq %p, %zero : bool
         tile.if %first do {
           tile.owned %y at(%zero) {extent = [4]}
           tile.yield
         } do {
           tile.yield
         }
         %v = tile.load MEM at(%zero) {extent = [4]} : tile<4xf32>",
    );
    let shown =
        broken(&reads.replace("MEM", "%y"), "E_RACE 13 < 8", ("load %y", "load %x"), launch);
    assert!(shown.contains("group 1 reads element [0] of `y`, which group 0 owns"), "{shown}");
    let late = group(
        params,
        "%last = tile.eq %p, %one : bool
         %v = tile.load MEM at(%zero) {extent = [4]} : tile<4xf32>
         tile.if %last do {
           tile.owned %y at(%zero) {extent = [4]}
           tile.yield
         } do {
           tile.yield
         }",
    );
    let report = check(&late.replace("MEM", "%y"), &launch());
    assert!(places(&report).contains(&"E_RACE 9 < 7".into()), "{}", report.findings);
    assert!(check(&late.replace("MEM", "%x"), &launch()).is_clean());
}

#[test]
fn a_unique_store_is_the_only_one() {
    let text = group(
        "%x: view<[n], f32, write>, %i: view<[n], i32, read>",
        "%at = tile.mul %p, %four : i64
         %ix = tile.load %i at(%at) {extent = [4]} : tile<4xi32>
         %v = tile.const {value = 1.0} : tile<4xf32>
         tile.scatter %x, %v at(%ix) {unique = true}",
    );
    let launch = |values: &[f64]| {
        let (mut x, mut i) =
            (HostArray::zeros(&[8], DType::F32), HostArray::new(&[8], DType::I32, values));
        let list = vec![x.as_arg(), i.as_arg()];
        std::mem::forget((x, i));
        args(list, [2, 1, 1])
    };
    let report = check(&text, &launch(&[0.0, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 6.0]));
    let shown = report.findings.render();
    assert!(shown.contains("element [3] of `x`") && shown.contains("unique=True"), "{shown}");
    let apart = [0.0, 1.0, 2.0, 3.0, 7.0, 4.0, 5.0, 6.0];
    assert!(check(&text, &launch(&apart)).is_clean());
}
