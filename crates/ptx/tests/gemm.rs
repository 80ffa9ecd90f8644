//! Products of matrices on the interpreter of PTX, against the interpreter of Tile IR.

use tessera_interp::{HostArray, Interp};
use tessera_ir::{PassContext, PassOptions};
use tessera_numerics::{DType, Profile};
use tessera_ptx::emulate::Emulated;
use tessera_ptx::interp::Copies;
use tessera_ptx::{PtxCaps, compile, usual_classes};
use tessera_target::frame::Frame;
use tessera_target::{Backend, CompileOptions, LaunchArgs};
use tessera_tile::TileFunc;

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
    fn array(self, dims: [i64; 2], dtype: DType, values: &[f64]) -> (HostArray, [i64; 2]) {
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
        (HostArray::new(&[len], dtype, &spread), strides.map(|s| s * bytes))
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

    /// Runs the kernel on both machines; returns what each wrote, and the code's notes.
    fn run(&self) -> (Vec<u8>, Vec<u8>, String) {
        let text = self.form.text();
        let func = tile_func(&text);
        let (m, n, k) = self.size;
        let values = |count: i64, seed: usize, dtype: DType| match self.exact {
            true => integers(count as usize, seed, if dtype == DType::U8 { 0 } else { -3 }),
            false => noise(count as usize, seed),
        };
        let turn = |turned: bool, dims: [i64; 2]| if turned { [dims[1], dims[0]] } else { dims };
        let (da, db) = (turn(self.form.turned.0, [m, k]), turn(self.form.turned.1, [k, n]));
        let (mut a, sa) = self.lies.0.array(da, self.form.a, &values(m * k, 1, self.form.a));
        let (mut b, sb) = self.lies.1.array(db, self.form.b, &values(k * n, 5, self.form.b));
        let (c, sc) = self.lies.2.array([m, n], self.form.out, &values(m * n, 9, self.form.out));
        let mut written = Vec::new();
        let mut notes = String::new();
        let mut machine = Emulated::new(PtxCaps::of(self.sm, false).unwrap().clone());
        machine.options.copies = self.copies;
        machine.options.seed = self.seed;
        let backends: [&dyn Backend; 2] = [&Interp, &machine];
        for backend in backends {
            let mut c = c.clone();
            let args = LaunchArgs {
                params: vec![
                    a.as_strided_arg(&da, &sa, 0),
                    b.as_strided_arg(&db, &sb, 0),
                    c.as_strided_arg(&[m, n], &sc, 0),
                ],
                dims: [("m", m), ("n", n), ("k", k)].map(|(s, v)| (s.to_string(), v)).into(),
                grid: [
                    (m + self.form.tile.0 - 1) / self.form.tile.0,
                    (n + self.form.tile.1 - 1) / self.form.tile.1,
                    1,
                ],
                domain: 0,
                lanes: 1,
            };
            let artifact = backend
                .compile(&func, &CompileOptions::new(self.profile))
                .unwrap_or_else(|e| panic!("{e}\n{text}"));
            artifact
                .launch(&args)
                .unwrap_or_else(|e| panic!("{e}\n{text}\n{}", artifact.target_text()));
            notes = format!("{:?}", artifact.resources());
            written.push(c.bytes.clone());
        }
        let [wanted, got] = <[_; 2]>::try_from(written).unwrap();
        (wanted, got, notes)
    }

    fn check(&self) {
        let (wanted, got, _) = self.run();
        let out = |bytes: Vec<u8>| {
            let n = bytes.len() / self.form.out.bytes();
            HostArray { dims: vec![n as i64], dtype: self.form.out, bytes }
        };
        let (wanted, got) = (out(wanted), out(got));
        if wanted != got {
            let (w, g) = (wanted.values(), got.values());
            let at = (0..w.len()).find(|&i| w[i].to_bits() != g[i].to_bits()).unwrap_or(0);
            let wrong = (0..w.len()).filter(|&i| w[i].to_bits() != g[i].to_bits()).count();
            panic!(
                "{:?} {:?} {:?}: {wrong} of {} differ, the first at {at}: expected {}, got {}",
                self.form,
                self.size,
                self.lies,
                w.len(),
                w[at],
                g[at]
            );
        }
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
