//! MMAs inside larger kernels.

use super::form::{Array, Form, Runs, integers, plain, tile_func};
use tessera_numerics::{DType, Profile};
use tessera_ptx::{PtxCaps, compile, usual_classes};
use tessera_target::frame::Frame;

/// The body of a loop over k that adds an MMA to `%acc`.
fn iterations(load_a: &str, load_b: &str) -> String {
    format!(
        "%r = tile.for %zero, %k, %bk init(%none) : tile<32x32xf32> do (%k0: i64, %acc: tile<32x32xf32>) {{
    {load_a}
    {load_b}
    %d = tile.mma %ta, %tb, %acc : tile<32x32xf32>
    tile.yield %d
  }}"
    )
}

const HEAD: &str = "%zero = tile.const {value = 0} : i64
  %bk = tile.const {value = 16} : i64
  %b = tile.const {value = 32} : i64
  %none = tile.const {value = 0.0} : tile<32x32xf32>
  %k = tile.dim {name = k} : i64";

const LOAD_A: &str = "%ta = tile.load %x at(%m0, %k0) {extent = [32, 16]} : tile<32x16xbf16>";
const LOAD_B: &str = "%tb = tile.load %y at(%k0, %n0) {extent = [16, 32]} : tile<16x32xbf16>";

const PARAMS: &str =
    "%x: view<[m, k], bf16, read>, %y: view<[k, n], bf16, read>, %z: view<[m, n], f32, write>";

fn arrays(m: i64, n: i64, k: i64, dtypes: [DType; 3]) -> [Array; 3] {
    let ints = |count: i64, seed| integers(count as usize, seed, -3);
    [
        plain(&[m, k], dtypes[0], &ints(m * k, 1)),
        plain(&[k, n], dtypes[1], &ints(k * n, 2)),
        plain(&[m, n], dtypes[2], &ints(m * n, 3)),
    ]
}

const BF16: [DType; 3] = [DType::BF16, DType::BF16, DType::F32];

#[test]
fn shared_buffers_and_copies_as_users_write_them() {
    let text = format!(
        "func @f({PARAMS}) {{kind = group}} {{
  {HEAD}
  %pm = tile.program_id {{axis = 0}} : i64
  %pn = tile.program_id {{axis = 1}} : i64
  %m0 = tile.mul %pm, %b : i64
  %n0 = tile.mul %pn, %b : i64
  %sa = tile.buf_alloc {{swizzle = xor}} : buf<32x16xbf16>
  %sb = tile.buf_alloc {{swizzle = xor}} : buf<16x32xbf16>
  {}
  tile.store %z, %r at(%m0, %n0) {{extent = [32, 32]}}
  tile.return
}}",
        iterations(
            "tile.copy_async %sa, %x at(%m0, %k0) {extent = [32, 16]}
    tile.copy_async %sb, %y at(%k0, %n0) {extent = [16, 32]}
    tile.barrier",
            "%ta = tile.load %sa at(%zero, %zero) {extent = [32, 16]} : tile<32x16xbf16>
    %tb = tile.load %sb at(%zero, %zero) {extent = [16, 32]} : tile<16x32xbf16>"
        )
    );
    let runs = Runs::new(text, vec![("m", 70), ("n", 48), ("k", 72)], [3, 2, 1]);
    let staged = runs.check(&arrays(70, 48, 72, BF16));
    assert!(staged.contains("pipeline_create"), "{staged}");
}

/// The counters of a pipeline continue when its loop runs again.
#[test]
fn loops_that_come_again() {
    let inner = iterations(LOAD_A, LOAD_B);
    let text = format!(
        "func @f({PARAMS}) {{kind = group, grid = [cdiv(m, 32)]}} {{
  {HEAD}
  %n = tile.dim {{name = n}} : i64
  %pm = tile.program_id {{axis = 0}} : i64
  %m0 = tile.mul %pm, %b : i64
  tile.for %zero, %n, %b do (%n0: i64) {{
    {inner}
    tile.store %z, %r at(%m0, %n0) {{extent = [32, 32]}}
    tile.yield
  }}
  tile.return
}}"
    );
    for k in [0, 8, 40, 120] {
        let runs = Runs::new(text.clone(), vec![("m", 40), ("n", 104), ("k", k)], [2, 1, 1]);
        let staged = runs.check(&arrays(40, 104, k, BF16));
        // An array without elements has no valid address.
        assert!(k == 0 || staged.contains("pipeline_create"), "{staged}");
    }
}

/// Two consecutive loops have a pipeline each.
#[test]
fn two_loops() {
    let one = iterations(LOAD_A, LOAD_B);
    let two = one.replace("%r =", "%s =").replace("init(%none)", "init(%r)");
    let text = format!(
        "func @f({PARAMS}) {{kind = group, grid = [cdiv(m, 32), cdiv(n, 32)]}} {{
  {HEAD}
  %pm = tile.program_id {{axis = 0}} : i64
  %pn = tile.program_id {{axis = 1}} : i64
  %m0 = tile.mul %pm, %b : i64
  %n0 = tile.mul %pn, %b : i64
  {one}
  {two}
  tile.store %z, %s at(%m0, %n0) {{extent = [32, 32]}}
  tile.return
}}"
    );
    let runs = Runs::new(text, vec![("m", 40), ("n", 56), ("k", 72)], [2, 2, 1]);
    let staged = runs.check(&arrays(40, 56, 72, BF16));
    assert_eq!(staged.matches("pipeline_create").count(), 2, "{staged}");
}

/// Positions before the start of an array and beyond its end are zeros, also when loaded ahead.
#[test]
fn blocks_that_begin_outside() {
    for (shift, pipeline) in [(-24, true), (40, true), (-3, false)] {
        let text = format!(
            "func @f({PARAMS}) {{kind = group, grid = [cdiv(m, 32), cdiv(n, 32)]}} {{
  {HEAD}
  %pm = tile.program_id {{axis = 0}} : i64
  %pn = tile.program_id {{axis = 1}} : i64
  %m0 = tile.mul %pm, %b : i64
  %n0 = tile.mul %pn, %b : i64
  %by = tile.const {{value = {shift}}} : i64
  {}
  tile.store %z, %r at(%m0, %n0) {{extent = [32, 32]}}
  tile.return
}}",
            iterations(
                "%k1 = tile.add %k0, %by : i64
    %ta = tile.load %x at(%m0, %k1) {extent = [32, 16]} : tile<32x16xbf16>",
                LOAD_B
            )
        );
        let runs = Runs::new(text, vec![("m", 40), ("n", 40), ("k", 64)], [2, 2, 1]);
        let staged = runs.check(&arrays(40, 40, 64, BF16));
        assert!(staged.contains("pipeline_create"), "{staged}");
        assert_eq!(staged.contains("field = ta"), pipeline, "{staged}");
    }
}

#[test]
fn narrow_weights_are_widened_while_loading() {
    let text = format!(
        "func @f(%x: view<[m, k], bf16, read>, %y: view<[k, n], i8, read>, %z: view<[m, n], f32, write>) {{kind = group, grid = [cdiv(m, 32), cdiv(n, 32)]}} {{
  {HEAD}
  %pm = tile.program_id {{axis = 0}} : i64
  %pn = tile.program_id {{axis = 1}} : i64
  %m0 = tile.mul %pm, %b : i64
  %n0 = tile.mul %pn, %b : i64
  {}
  tile.store %z, %r at(%m0, %n0) {{extent = [32, 32]}}
  tile.return
}}",
        iterations(
            LOAD_A,
            "%q = tile.load %y at(%k0, %n0) {extent = [16, 32]} : tile<16x32xi8>
    %tb = tile.cast %q : tile<16x32xbf16>"
        )
    );
    let runs = Runs::new(text, vec![("m", 40), ("n", 48), ("k", 72)], [2, 2, 1]);
    let staged = runs.check(&arrays(40, 48, 72, [DType::BF16, DType::I8, DType::F32]));
    assert!(staged.contains("field = q"), "{staged}");
}

#[test]
fn batches_are_another_axis_of_the_grid() {
    let text = format!(
        "func @f(%x: view<[h, m, k], f16, read>, %y: view<[h, k, n], f16, read>, %z: view<[h, m, n], f32, write>) {{kind = group, grid = [h, cdiv(m, 32), cdiv(n, 32)]}} {{
  {HEAD}
  %h = tile.program_id {{axis = 0}} : i64
  %pm = tile.program_id {{axis = 1}} : i64
  %pn = tile.program_id {{axis = 2}} : i64
  %m0 = tile.mul %pm, %b : i64
  %n0 = tile.mul %pn, %b : i64
  {}
  tile.store %z, %r at(%h, %m0, %n0) {{extent = [0, 32, 32]}}
  tile.return
}}",
        iterations(
            "%ta = tile.load %x at(%h, %m0, %k0) {extent = [0, 32, 16]} : tile<32x16xf16>",
            "%tb = tile.load %y at(%h, %k0, %n0) {extent = [0, 16, 32]} : tile<16x32xf16>"
        )
    );
    let (h, m, n, k) = (3, 300, 40, 24);
    let dims = vec![("h", h), ("m", m), ("n", n), ("k", k)];
    let runs = Runs::new(text, dims, [h, (m + 31) / 32, (n + 31) / 32]);
    let ints = |count: i64, seed| integers(count as usize, seed, -3);
    let staged = runs.check(&[
        plain(&[h, m, k], DType::F16, &ints(h * m * k, 1)),
        plain(&[h, k, n], DType::F16, &ints(h * k * n, 2)),
        plain(&[h, m, n], DType::F32, &ints(h * m * n, 3)),
    ]);
    assert!(staged.contains("pipeline_create"), "{staged}");
}

/// Where loads cannot be pipelined, loops are unchanged, and a note says why.
#[test]
fn loops_that_stay_say_why() {
    let note = |form: &Form, sm: u32, align: u32| {
        let func = tile_func(&form.text());
        let mut classes = usual_classes(&Frame::new(&func).unwrap());
        classes.iter_mut().for_each(|c| c.align = align);
        let caps = PtxCaps::of(sm, false).unwrap();
        let code = compile(&func, caps, Profile::Default, &classes).unwrap();
        assert!(!code.staged.unwrap().contains("pipeline_create"));
        let notes = code.notes.into_iter().filter(|(name, _)| *name == "note");
        notes.map(|(_, text)| text).collect::<Vec<_>>().join("\n")
    };
    let form = Form::new(DType::F16, (32, 32, 16));
    let said = note(&form, 75, 16);
    assert!(
        said.contains("`ta` is not copied ahead of the loop's iterations: this target has no"),
        "{said}"
    );
    let said = note(&form, 80, 2);
    assert!(
        said.contains("`tb` is not copied ahead of the loop's iterations: copies of 2 bytes"),
        "{said}"
    );
}

/// Two MMAs in a loop, with a softmax between them: rows stay in their warps, keys and values come
/// through one pipeline.
#[test]
fn attention() {
    let text = "func @f(%q: view<[s, 32], bf16, read>, %k: view<[s, 32], bf16, read>, %v: view<[s, 32], bf16, read>, %o: view<[s, 32], f32, write>) {kind = group, grid = [cdiv(s, 64)]} {
  %zero = tile.const {value = 0} : i64
  %b = tile.const {value = 64} : i64
  %bk = tile.const {value = 32} : i64
  %p = tile.program_id {axis = 0} : i64
  %q0 = tile.mul %p, %b : i64
  %s = tile.dim {name = s} : i64
  %tq = tile.load %q at(%q0, %zero) {extent = [64, 32]} : tile<64x32xbf16>
  %none = tile.const {value = 0.0} : tile<64x32xf32>
  %l0 = tile.const {value = 0.0} : tile<64xf32>
  %out, %sum = tile.for %zero, %s, %bk init(%none, %l0) : tile<64x32xf32>, tile<64xf32> do (%k0: i64, %acc: tile<64x32xf32>, %l: tile<64xf32>) {
    %tk = tile.load %k at(%k0, %zero) {extent = [32, 32]} : tile<32x32xbf16>
    %kt = tile.transpose %tk {perm = [1, 0]} : tile<32x32xbf16>
    %x = tile.mma %tq, %kt, %none : tile<64x32xf32>
    %rs = tile.reduce %x {op = sum, axis = 1} : tile<64xf32>
    %ln = tile.add %l, %rs : tile<64xf32>
    %e = tile.cast %x : tile<64x32xbf16>
    %tv = tile.load %v at(%k0, %zero) {extent = [32, 32]} : tile<32x32xbf16>
    %new = tile.mma %e, %tv, %acc : tile<64x32xf32>
    tile.yield %new, %ln
  }
  %le = tile.expand %sum {axis = 1} : tile<64x1xf32>
  %lb = tile.broadcast %le : tile<64x32xf32>
  %r = tile.add %out, %lb : tile<64x32xf32>
  tile.store %o, %r at(%q0, %zero) {extent = [64, 32]}
  tile.return
}";
    let s = 100;
    let ints = |seed| integers((s * 32) as usize, seed, -3);
    let runs = Runs::new(text.to_string(), vec![("s", s)], [2, 1, 1]);
    let staged = runs.check(&[
        plain(
            &[s, 32],
            DType::BF16,
            &ints(1).iter().map(|x| x / 3.0).map(f64::trunc).collect::<Vec<_>>(),
        ),
        plain(&[s, 32], DType::BF16, &ints(2)),
        plain(&[s, 32], DType::BF16, &ints(3)),
        plain(&[s, 32], DType::F32, &ints(4)),
    ]);
    assert!(staged.contains("field = tk") && staged.contains("field = tv"), "{staged}");
}
