//! Products of matrices on the interpreter of PTX, against the interpreter of Tile IR.

use tessera_diag::Diagnostics;
use tessera_interp::{HostArray, Interp, StagedOptions, Timing, run_staged};
use tessera_ir::{PassContext, PassOptions};
use tessera_numerics::{DType, Profile};
use tessera_ptx::emulate::Emulated;
use tessera_ptx::interp::Copies;
use tessera_ptx::{ArrayClass, PtxCaps, compile, usual_classes};
use tessera_target::frame::Frame;
use tessera_target::{ArgValue, Backend, CompileOptions, LaunchArgs};
use tessera_tile::TileFunc;

/// Runs a kernel on a machine, and the Staged IR it was made into on its interpreter, and gives what
/// each wrote to the array `out`.
struct Runs {
    text: String,
    dims: Vec<(&'static str, i64)>,
    grid: [i64; 3],
    profile: Profile,
    machine: Emulated,
}

/// An array, its dims and its strides in bytes.
type Array = (HostArray, Vec<i64>, Vec<i64>);

fn plain(dims: &[i64], dtype: DType, values: &[f64]) -> Array {
    let array = HostArray::new(dims, dtype, values);
    let strides = array.strides();
    (array, dims.to_vec(), strides)
}

impl Runs {
    fn new(text: String, dims: Vec<(&'static str, i64)>, grid: [i64; 3]) -> Self {
        let machine = Emulated::new(PtxCaps::of(80, false).unwrap().clone());
        Self { text, dims, grid, profile: Profile::Default, machine }
    }

    fn launch(
        &self,
        arrays: &mut [Array],
        run: impl FnOnce(&LaunchArgs) -> Result<(), Diagnostics>,
    ) {
        let params = arrays.iter_mut().map(|(a, dims, strides)| a.as_strided_arg(dims, strides, 0));
        let args = LaunchArgs {
            params: params.collect(),
            dims: self.dims.iter().map(|&(s, v)| (s.to_string(), v)).collect(),
            grid: self.grid,
            domain: 0,
            lanes: 1,
        };
        run(&args).unwrap_or_else(|e| panic!("{e}\n{}", self.text));
    }

    /// What the interpreter of Tile IR writes to the last array, what the machine does, and the
    /// Staged IR for these arrays.
    fn run(&self, arrays: &[Array]) -> (HostArray, HostArray, String) {
        let func = tile_func(&self.text);
        let options = CompileOptions::new(self.profile);
        let mut staged = String::new();
        let mut out = Vec::new();
        let backends: [&dyn Backend; 2] = [&Interp, &self.machine];
        for backend in backends {
            let mut mine = arrays.to_vec();
            let artifact = backend.compile(&func, &options);
            let artifact = artifact.unwrap_or_else(|e| panic!("{e}\n{}", self.text));
            self.launch(&mut mine, |args| {
                let classes: Vec<ArrayClass> = args.params.iter().map(class_of).collect();
                let code = compile(&func, &self.machine.caps, self.profile, &classes)?;
                staged = code.staged.unwrap_or_default();
                artifact.launch(args)
            });
            out.push(mine.pop().unwrap().0);
        }
        let [wanted, got] = <[_; 2]>::try_from(out).unwrap();
        (wanted, got, staged)
    }

    /// All three agree bit by bit.
    fn check(&self, arrays: &[Array]) -> String {
        let (wanted, got, staged) = self.run(arrays);
        same(&wanted, &got, &self.text);
        let func = tessera_staged::parse(&staged).unwrap_or_else(|e| panic!("{e}\n{staged}"));
        for timing in [Timing::Late, Timing::Early] {
            let mut mine = arrays.to_vec();
            self.launch(&mut mine, |args| {
                run_staged(&func, args, StagedOptions { timing, verify: true })
            });
            same(&wanted, &mine.pop().unwrap().0, &staged);
        }
        staged
    }
}

fn class_of(arg: &ArgValue) -> ArrayClass {
    match arg {
        ArgValue::Buffer(b) => ArrayClass::of(b),
        ArgValue::Scalar(_) => ArrayClass::default(),
    }
}

fn same(wanted: &HostArray, got: &HostArray, text: &str) {
    if wanted == got {
        return;
    }
    let (w, g) = (wanted.values(), got.values());
    let wrong: Vec<usize> = (0..w.len()).filter(|&i| w[i].to_bits() != g[i].to_bits()).collect();
    let at = wrong.first().copied().unwrap_or(0);
    panic!(
        "{} of {} differ, the first at {at}: expected {}, got {}\n{text}",
        wrong.len(),
        w.len(),
        w[at],
        g[at]
    );
}

/// What a product's kernel looks like.
#[derive(Clone, Debug)]
struct Form {
    a: DType,
    b: DType,
    acc: DType,
    out: DType,
    tile: (i64, i64, i64),
    /// `b` is given as n × k and turned in the kernel; `a` as k × m.
    turned: (bool, bool),
    /// Adds to `c` instead of writing it.
    adds: bool,
    stages: Option<i64>,
}

impl Form {
    fn new(dtype: DType, tile: (i64, i64, i64)) -> Self {
        let acc = tessera_tile::ops::mma::accumulator(dtype, dtype).unwrap();
        Self {
            a: dtype,
            b: dtype,
            acc,
            out: acc,
            tile,
            turned: (false, false),
            adds: false,
            stages: None,
        }
    }

    fn text(&self) -> String {
        let Form { a, b, acc, out, tile: (bm, bn, bk), turned, .. } = self;
        let zero = if acc.is_float() { "0.0" } else { "0" };
        let config =
            self.stages.map_or(String::new(), |n| format!(", config = {{num_stages = {n}}}"));
        let operand = |name: &str,
                       rows: &str,
                       cols: &str,
                       r: i64,
                       c: i64,
                       dtype: DType,
                       turn: bool| {
            let (dims, at, extent) = match turn {
                false => (format!("{rows}, {cols}"), [rows, cols], [r, c]),
                true => (format!("{cols}, {rows}"), [cols, rows], [c, r]),
            };
            let at = at.map(|d| format!("%{d}0")).join(", ");
            let [x, y] = extent;
            let mut load = format!(
                "    %t{name} = tile.load %{name} at({at}) {{extent = [{x}, {y}]}} : tile<{x}x{y}x{dtype}>\n"
            );
            let mut used = format!("%t{name}");
            if turn {
                load += &format!(
                    "    %u{name} = tile.transpose %t{name} {{perm = [1, 0]}} : tile<{r}x{c}x{dtype}>\n"
                );
                used = format!("%u{name}");
            }
            (format!("%{name}: view<[{dims}], {dtype}, read>"), load, used)
        };
        let (pa, la, ua) = operand("a", "m", "k", *bm, *bk, *a, turned.0);
        let (pb, lb, ub) = operand("b", "k", "n", *bk, *bn, *b, turned.1);
        let privilege = if self.adds { "read_write" } else { "write" };
        let end = if self.adds {
            format!("  tile.accumulate %c, %r at(%m0, %n0) {{op = sum, extent = [{bm}, {bn}]}}\n")
        } else if out == acc {
            format!("  tile.store %c, %r at(%m0, %n0) {{extent = [{bm}, {bn}]}}\n")
        } else {
            format!(
                "  %o = tile.cast %r : tile<{bm}x{bn}x{out}>\n  tile.store %c, %o at(%m0, %n0) {{extent = [{bm}, {bn}]}}\n"
            )
        };
        format!(
            "func @gemm({pa}, {pb}, %c: view<[m, n], {out}, {privilege}>) {{kind = group, grid = [cdiv(m, {bm}), cdiv(n, {bn})]{config}}} {{
  %bm = tile.const {{value = {bm}}} : i64
  %bn = tile.const {{value = {bn}}} : i64
  %bk = tile.const {{value = {bk}}} : i64
  %pm = tile.program_id {{axis = 0}} : i64
  %pn = tile.program_id {{axis = 1}} : i64
  %m0 = tile.mul %pm, %bm : i64
  %n0 = tile.mul %pn, %bn : i64
  %k = tile.dim {{name = k}} : i64
  %lo = tile.const {{value = 0}} : i64
  %z = tile.const {{value = {zero}}} : tile<{bm}x{bn}x{acc}>
  %r = tile.for %lo, %k, %bk init(%z) : tile<{bm}x{bn}x{acc}> do (%k0: i64, %acc: tile<{bm}x{bn}x{acc}>) {{
{la}{lb}    %d = tile.mma {ua}, {ub}, %acc : tile<{bm}x{bn}x{acc}>
    tile.yield %d
  }}
{end}  tile.return
}}"
        )
    }
}

fn tile_func(text: &str) -> TileFunc {
    let mut func = tessera_tile::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let options = PassOptions { verify_each: true, ..PassOptions::default() };
    let passes = tessera_lower::tile_pipeline(options);
    passes.run(&mut func, &mut PassContext::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    func
}

/// Small integers, so that every sum is exact in any order.
fn integers(n: usize, seed: usize, least: i64) -> Vec<f64> {
    (0..n).map(|i| (((i + seed) * 7919 + (i + seed) / 13 * 31) % 7) as f64 + least as f64).collect()
}

fn noise(n: usize, seed: usize) -> Vec<f64> {
    (0..n).map(|i| (((i + seed) * 7919) % 2003) as f64 / 2003.0 - 0.5).collect()
}

/// How an array of two dims lies in memory.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Lies {
    /// Rows one after another, so many elements of padding between them.
    Rows(i64),
    Cols(i64),
    /// Nothing side by side.
    Apart,
}

impl Lies {
    fn array(self, dims: [i64; 2], dtype: DType, values: &[f64]) -> Array {
        let strides = match self {
            Lies::Rows(pad) => [dims[1] + pad, 1],
            Lies::Cols(pad) => [1, dims[0] + pad],
            Lies::Apart => [2 * dims[1] + 3, 2],
        };
        let len = strides[0] * dims[0].max(1) + strides[1] * dims[1].max(1) + 16;
        let mut spread = vec![f64::from(77); len as usize];
        for i in 0..dims[0] {
            for j in 0..dims[1] {
                spread[(i * strides[0] + j * strides[1]) as usize] =
                    values[(i * dims[1] + j) as usize];
            }
        }
        let bytes = dtype.bytes() as i64;
        let strides = strides.iter().map(|s| s * bytes).collect();
        (HostArray::new(&[len], dtype, &spread), dims.to_vec(), strides)
    }
}

struct Case {
    form: Form,
    size: (i64, i64, i64),
    lies: (Lies, Lies, Lies),
    profile: Profile,
    sm: u32,
    exact: bool,
    copies: Copies,
    seed: u64,
}

impl Case {
    fn new(form: Form, size: (i64, i64, i64)) -> Self {
        let lies = (Lies::Rows(0), Lies::Rows(0), Lies::Rows(0));
        Self {
            form,
            size,
            lies,
            profile: Profile::Default,
            sm: 80,
            exact: true,
            copies: Copies::Late,
            seed: 0,
        }
    }

    fn check(&self) -> String {
        let (m, n, k) = self.size;
        let (bm, bn, _) = self.form.tile;
        let values = |count: i64, seed: usize, dtype: DType| match self.exact {
            true => integers(count as usize, seed, if dtype == DType::U8 { 0 } else { -3 }),
            false => noise(count as usize, seed),
        };
        let turn = |turned: bool, dims: [i64; 2]| if turned { [dims[1], dims[0]] } else { dims };
        let Form { a, b, out, turned, .. } = self.form;
        let (da, db) = (turn(turned.0, [m, k]), turn(turned.1, [k, n]));
        let arrays = [
            self.lies.0.array(da, a, &values(m * k, 1, a)),
            self.lies.1.array(db, b, &values(k * n, 5, b)),
            self.lies.2.array([m, n], out, &values(m * n, 9, out)),
        ];
        let dims = vec![("m", m), ("n", n), ("k", k)];
        let mut runs = Runs::new(self.form.text(), dims, [(m + bm - 1) / bm, (n + bn - 1) / bn, 1]);
        runs.profile = self.profile;
        runs.machine = Emulated::new(PtxCaps::of(self.sm, false).unwrap().clone());
        runs.machine.options.copies = self.copies;
        runs.machine.options.seed = self.seed;
        runs.check(&arrays)
    }
}

/// Sizes: whole tiles, ragged everywhere, one element, nothing to add, more turns than slots.
const SIZES: [(i64, i64, i64); 6] =
    [(64, 64, 32), (100, 70, 50), (96, 40, 200), (1, 1, 1), (70, 70, 0), (33, 65, 7)];

#[test]
fn every_dtype_and_size_is_exact() {
    for &(a, b, acc) in tessera_tile::ops::mma::LEGAL {
        for sm in [75, 80, 89, 90] {
            for size in SIZES {
                let form = Form { b, acc, out: acc, ..Form::new(a, (32, 32, 32)) };
                Case { sm, ..Case::new(form, size) }.check();
            }
        }
    }
}

#[test]
fn every_way_to_lie_in_memory() {
    use Lies::{Apart, Cols, Rows};
    // Rows of 64 and 56 elements begin at multiples of 16 bytes; 50 elements cut a run.
    let ways = [Rows(0), Rows(6), Rows(14), Cols(0), Cols(4), Cols(28), Apart];
    for dtype in [DType::BF16, DType::F32, DType::I8, DType::F64] {
        for a in ways {
            for b in ways {
                for turned in [(false, false), (true, true)] {
                    let form = Form { turned, ..Form::new(dtype, (64, 32, 32)) };
                    let lies = (a, b, Rows(0));
                    Case { lies, ..Case::new(form, (100, 70, 50)) }.check();
                }
            }
        }
    }
}

#[test]
fn tiles_of_every_shape() {
    let tiles =
        [(128, 128, 32), (16, 8, 16), (64, 96, 48), (48, 24, 64), (128, 64, 16), (32, 256, 16)];
    for tile in tiles {
        for dtype in [DType::BF16, DType::F16, DType::F32] {
            Case::new(Form::new(dtype, tile), (130, 140, 90)).check();
        }
    }
}

#[test]
fn stages_as_asked() {
    for stages in [1, 2, 3, 5, 8] {
        for dtype in [DType::BF16, DType::F32] {
            let form = Form { stages: Some(stages), ..Form::new(dtype, (32, 32, 16)) };
            for k in [0, 16, 33, 200] {
                Case::new(form.clone(), (40, 40, k)).check();
            }
        }
    }
}

#[test]
fn results_that_are_added_or_rounded() {
    for (adds, out) in [(true, DType::F32), (false, DType::BF16), (false, DType::F16)] {
        for tile in [(64, 64, 32), (128, 32, 16)] {
            let form = Form { adds, out, ..Form::new(DType::BF16, tile) };
            for size in [(128, 128, 64), (100, 72, 50), (100, 70, 50)] {
                Case::new(form.clone(), size).check();
            }
        }
    }
}

#[test]
fn strict_results_are_the_interpreters_bits() {
    for dtype in [DType::F32, DType::BF16, DType::F16, DType::F64, DType::Fp8E4M3] {
        for tile in [(32, 32, 16), (64, 64, 32), (16, 16, 128)] {
            let case = Case::new(Form::new(dtype, tile), (70, 50, 90));
            Case { profile: Profile::Strict, exact: false, ..case }.check();
        }
    }
}

#[test]
fn copies_may_land_at_any_time() {
    for copies in [Copies::Early, Copies::Late, Copies::Random] {
        for seed in [0, 1, 2] {
            for dtype in [DType::BF16, DType::F32] {
                let form = Form { stages: Some(3), ..Form::new(dtype, (64, 64, 16)) };
                Case { copies, seed, ..Case::new(form, (100, 72, 100)) }.check();
            }
        }
    }
}

/// The body of a loop over k that adds a product to `%acc`.
fn turns(load_a: &str, load_b: &str) -> String {
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
        turns(
            "tile.copy_async %sa, %x at(%m0, %k0) {extent = [32, 16]}
    tile.copy_async %sb, %y at(%k0, %n0) {extent = [16, 32]}
    tile.barrier",
            "%ta = tile.load %sa at(%zero, %zero) {extent = [32, 16]} : tile<32x16xbf16>
    %tb = tile.load %sb at(%zero, %zero) {extent = [16, 32]} : tile<16x32xbf16>"
        )
    );
    let runs = Runs::new(text, vec![("m", 70), ("n", 48), ("k", 72)], [3, 2, 1]);
    let staged = runs.check(&arrays(70, 48, 72, BF16));
    assert!(staged.contains("ring_create"), "{staged}");
}

/// The counters of a ring go on when its loop comes again.
#[test]
fn loops_that_come_again() {
    let inner = turns(LOAD_A, LOAD_B);
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
        // An array without elements is nowhere in particular.
        assert!(k == 0 || staged.contains("ring_create"), "{staged}");
    }
}

/// Two loops one after the other have a ring each.
#[test]
fn two_loops() {
    let one = turns(LOAD_A, LOAD_B);
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
    assert_eq!(staged.matches("ring_create").count(), 2, "{staged}");
}

/// Positions before the begin of an array and beyond its end are zeros, also a turn ahead.
#[test]
fn blocks_that_begin_outside() {
    for (shift, ring) in [(-24, true), (40, true), (-3, false)] {
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
            turns(
                "%k1 = tile.add %k0, %by : i64
    %ta = tile.load %x at(%m0, %k1) {extent = [32, 16]} : tile<32x16xbf16>",
                LOAD_B
            )
        );
        let runs = Runs::new(text, vec![("m", 40), ("n", 40), ("k", 64)], [2, 2, 1]);
        let staged = runs.check(&arrays(40, 40, 64, BF16));
        assert!(staged.contains("ring_create"), "{staged}");
        assert_eq!(staged.contains("field = ta"), ring, "{staged}");
    }
}

#[test]
fn narrow_weights_are_widened_on_the_way() {
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
        turns(
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
        turns(
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
    assert!(staged.contains("ring_create"), "{staged}");
}

/// Where copies cannot run ahead, loops stay, and the code says why.
#[test]
fn loops_that_stay_say_why() {
    let note = |form: &Form, sm: u32, align: u32| {
        let func = tile_func(&form.text());
        let mut classes = usual_classes(&Frame::new(&func).unwrap());
        classes.iter_mut().for_each(|c| c.align = align);
        let caps = PtxCaps::of(sm, false).unwrap();
        let code = compile(&func, caps, Profile::Default, &classes).unwrap();
        assert!(!code.staged.unwrap().contains("ring_create"));
        let notes = code.notes.into_iter().filter(|(name, _)| *name == "note");
        notes.map(|(_, text)| text).collect::<Vec<_>>().join("\n")
    };
    let form = Form::new(DType::F16, (32, 32, 16));
    let said = note(&form, 75, 16);
    assert!(
        said.contains("`ta` is not copied ahead of the loop's turns: this target has no"),
        "{said}"
    );
    let said = note(&form, 80, 2);
    assert!(
        said.contains("`tb` is not copied ahead of the loop's turns: copies of 2 bytes"),
        "{said}"
    );
}

#[test]
#[ignore = "prints code"]
fn show() {
    let var =
        |name: &str, or: i64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(or);
    let dtype = std::env::var("DTYPE").ok().and_then(|d| DType::parse(&d)).unwrap_or(DType::BF16);
    let mut form = Form::new(dtype, (var("BM", 128), var("BN", 128), var("BK", 64)));
    form.stages = Some(var("STAGES", 0)).filter(|&n| n > 0);
    form.adds = var("ADDS", 0) > 0;
    form.turned.1 = var("TURN", 0) > 0;
    if let Some(out) = std::env::var("OUT_DTYPE").ok().and_then(|d| DType::parse(&d)) {
        form.out = out;
    }
    let func = tile_func(&form.text());
    let caps = PtxCaps::of(var("SM", 80) as u32, false).unwrap();
    let classes = usual_classes(&Frame::new(&func).unwrap());
    let profile = if var("STRICT", 0) > 0 { Profile::Strict } else { Profile::Default };
    let code = compile(&func, caps, profile, &classes).unwrap_or_else(|e| panic!("{e}"));
    let to = std::env::var("TO").unwrap_or("/tmp/g/out".into());
    std::fs::write(format!("{to}.ptx"), code.module.text()).unwrap();
    std::fs::write(format!("{to}.staged"), code.staged.clone().unwrap_or_default()).unwrap();
    println!("{:?}", code.notes);
    println!("dynamic {} threads {}", code.kernel().dynamic_shared, code.kernel().threads);
}
