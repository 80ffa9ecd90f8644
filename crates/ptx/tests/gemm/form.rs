//! How matmul tests run: a kernel on the interpreter of Tile IR, on that of PTX, and its Staged IR
//! on a third; all must agree bit by bit.

use tessera_diag::Diagnostics;
use tessera_interp::{HostArray, Interp, StagedOptions, Timing, run_staged};
use tessera_ir::{PassContext, PassOptions};
use tessera_numerics::{DType, Profile};
use tessera_ptx::{ArrayClass, PtxCaps, compile};
use tessera_ptx_emulator::Copies;
use tessera_ptx_emulator::Emulated;
use tessera_target::frame::Frame;
use tessera_target::{Backend, CompileOptions, LaunchArgs};
use tessera_tile::TileFunc;

/// Runs a kernel as PTX, and its Staged IR on the interpreter of that, and returns what each wrote
/// to the array `out`.
pub struct Runs {
    pub text: String,
    pub dims: Vec<(&'static str, i64)>,
    pub grid: [i64; 3],
    pub profile: Profile,
    pub machine: Emulated,
}

pub fn hopper() -> Emulated {
    Emulated::new(PtxCaps::of(90, true).unwrap().clone())
}

/// An array, its dims and its strides in bytes.
pub type Array = (HostArray, Vec<i64>, Vec<i64>);

pub fn plain(dims: &[i64], dtype: DType, values: &[f64]) -> Array {
    let array = HostArray::new(dims, dtype, values);
    let strides = array.strides();
    (array, dims.to_vec(), strides)
}

impl Runs {
    pub fn new(text: String, dims: Vec<(&'static str, i64)>, grid: [i64; 3]) -> Self {
        let machine = Emulated::new(PtxCaps::of(80, false).unwrap().clone());
        Self { text, dims, grid, profile: Profile::Default, machine }
    }

    pub fn launch(
        &self,
        arrays: &mut [Array],
        run: impl FnOnce(&LaunchArgs) -> Result<(), Diagnostics>,
    ) {
        let params = arrays.iter_mut().map(|(a, dims, strides)| a.as_strided_arg(dims, strides, 0));
        let args = LaunchArgs {
            params: params.collect(),
            dims: self.dims.iter().map(|&(s, v)| (s.to_string(), v)).collect(),
            grid: self.grid,
            domain: [0; 3],
            lanes: 1,
        };
        run(&args).unwrap_or_else(|e| panic!("{e}\n{}", self.text));
    }

    /// What the interpreters of Tile IR and of PTX write to the last array, and the Staged IR for
    /// these arrays.
    pub fn run(&self, arrays: &[Array]) -> (HostArray, HostArray, String) {
        let func = tile_func(&self.text);
        let frame = Frame::new(&func).unwrap_or_else(|e| panic!("{e}\n{}", self.text));
        let mut wanted = arrays.to_vec();
        let artifact = Interp.compile(&func, &CompileOptions::new(self.profile));
        let artifact = artifact.unwrap_or_else(|e| panic!("{e}\n{}", self.text));
        self.launch(&mut wanted, |args| artifact.launch(args));
        let mut got = arrays.to_vec();
        let mut staged = String::new();
        // As `Emulated` launches, with one compilation, for these arrays.
        self.launch(&mut got, |args| {
            let mut words = Vec::new();
            let mut classes = vec![ArrayClass::default(); frame.params.len()];
            frame.fill(&func, args, &mut words, |place, _, b| {
                classes[place] = ArrayClass::of_param(&frame.params[place].kind, b);
            })?;
            let code = compile(&func, &self.machine.caps, self.profile, &classes)?;
            staged = code.staged.clone().unwrap_or_default();
            let blocks = u32::try_from(code.blocks(args, 1)).unwrap();
            tessera_ptx_emulator::launch(&code, &frame, args, words, blocks, &self.machine.options)
        });
        (wanted.pop().unwrap().0, got.pop().unwrap().0, staged)
    }

    /// All three agree bit by bit.
    pub fn check(&self, arrays: &[Array]) -> String {
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

pub fn same(wanted: &HostArray, got: &HostArray, text: &str) {
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

/// The form of a matmul kernel.
#[derive(Clone, Debug)]
pub struct Form {
    pub a: DType,
    pub b: DType,
    pub acc: DType,
    pub out: DType,
    pub tile: (i64, i64, i64),
    /// `b` is given as n × k and transposed in the kernel; `a` as k × m.
    pub transposed: (bool, bool),
    /// Adds to `c` instead of writing it.
    pub adds: bool,
    pub stages: Option<i64>,
    /// A pass that is disabled.
    pub off: Option<&'static str>,
    /// The cluster along both axes of the grid, where that is pinned.
    pub cluster: Option<[i64; 2]>,
    /// How warpgroups share the work, where that is pinned.
    pub roles: Option<&'static str>,
    /// Whether each block takes one group.
    pub once: bool,
}

impl Form {
    pub fn new(dtype: DType, tile: (i64, i64, i64)) -> Self {
        let acc = tessera_tile::ops::mma::accumulator(dtype, dtype).unwrap();
        Self {
            a: dtype,
            b: dtype,
            acc,
            out: acc,
            tile,
            transposed: (false, false),
            adds: false,
            stages: None,
            off: None,
            cluster: None,
            roles: None,
            once: false,
        }
    }

    pub fn text(&self) -> String {
        let Form { a, b, acc, out, tile: (bm, bn, bk), transposed, .. } = self;
        let zero = if acc.is_float() { "0.0" } else { "0" };
        let stages = self.stages.map(|n| format!("num_stages = {n}"));
        let off = self.off.map(|name| format!("off = [{name}]"));
        let roles = self.roles.map(|word| format!("warp_specialization = {word}"));
        let cluster = self.cluster.map(|[m, n]| format!("cluster_m = {m}, cluster_n = {n}"));
        let once = self.once.then(|| "persistent = false".to_string());
        let pins = [stages, cluster, roles, once, off];
        let said: Vec<String> = pins.into_iter().flatten().collect();
        let config = match said.is_empty() {
            true => String::new(),
            false => format!(", config = {{{}}}", said.join(", ")),
        };
        let operand = |name: &str,
                       rows: &str,
                       cols: &str,
                       r: i64,
                       c: i64,
                       dtype: DType,
                       transpose: bool| {
            let (dims, at, extent) = match transpose {
                false => (format!("{rows}, {cols}"), [rows, cols], [r, c]),
                true => (format!("{cols}, {rows}"), [cols, rows], [c, r]),
            };
            let at = at.map(|d| format!("%{d}0")).join(", ");
            let [x, y] = extent;
            let mut load = format!(
                "    %t{name} = tile.load %{name} at({at}) {{extent = [{x}, {y}]}} : tile<{x}x{y}x{dtype}>\n"
            );
            let mut used = format!("%t{name}");
            if transpose {
                load += &format!(
                    "    %u{name} = tile.transpose %t{name} {{perm = [1, 0]}} : tile<{r}x{c}x{dtype}>\n"
                );
                used = format!("%u{name}");
            }
            (format!("%{name}: view<[{dims}], {dtype}, read>"), load, used)
        };
        let (pa, la, ua) = operand("a", "m", "k", *bm, *bk, *a, transposed.0);
        let (pb, lb, ub) = operand("b", "k", "n", *bk, *bn, *b, transposed.1);
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

pub fn tile_func(text: &str) -> TileFunc {
    let mut func = tessera_tile::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let options = PassOptions { verify_each: true, ..PassOptions::default() };
    let passes = tessera_lower::tile_pipeline(options);
    passes.run(&mut func, &mut PassContext::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    func
}

/// Small integers, so that every sum is exact in any order.
pub fn integers(n: usize, seed: usize, least: i64) -> Vec<f64> {
    (0..n).map(|i| (((i + seed) * 7919 + (i + seed) / 13 * 31) % 7) as f64 + least as f64).collect()
}

pub fn noise(n: usize, seed: usize) -> Vec<f64> {
    (0..n).map(|i| (((i + seed) * 7919) % 2003) as f64 / 2003.0 - 0.5).collect()
}

/// The layout of a two-dimensional array in memory.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Lies {
    /// Row-major, with this many elements of padding between rows.
    Rows(i64),
    Cols(i64),
    /// No contiguous axis.
    Apart,
}

impl Lies {
    pub fn array(self, dims: [i64; 2], dtype: DType, values: &[f64]) -> Array {
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

pub struct Case {
    pub form: Form,
    pub size: (i64, i64, i64),
    pub lies: (Lies, Lies, Lies),
    pub profile: Profile,
    pub sm: u32,
    pub exact: bool,
    pub copies: Copies,
    pub seed: u64,
}

impl Case {
    pub fn new(form: Form, size: (i64, i64, i64)) -> Self {
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

    pub fn check(&self) -> String {
        let mut machine = Emulated::new(PtxCaps::of(self.sm, false).unwrap().clone());
        machine.options.copies = self.copies;
        machine.options.seed = self.seed;
        self.check_on(machine)
    }

    /// Runs on a machine, and returns the Staged IR.
    pub fn check_on(&self, machine: Emulated) -> String {
        let (m, n, k) = self.size;
        let (bm, bn, _) = self.form.tile;
        let values = |count: i64, seed: usize, dtype: DType| match self.exact {
            true => integers(count as usize, seed, if dtype == DType::U8 { 0 } else { -3 }),
            false => noise(count as usize, seed),
        };
        let transpose = |yes: bool, dims: [i64; 2]| if yes { [dims[1], dims[0]] } else { dims };
        let Form { a, b, out, transposed, .. } = self.form;
        let (da, db) = (transpose(transposed.0, [m, k]), transpose(transposed.1, [k, n]));
        let arrays = [
            self.lies.0.array(da, a, &values(m * k, 1, a)),
            self.lies.1.array(db, b, &values(k * n, 5, b)),
            self.lies.2.array([m, n], out, &values(m * n, 9, out)),
        ];
        let dims = vec![("m", m), ("n", n), ("k", k)];
        let mut runs = Runs::new(self.form.text(), dims, [(m + bm - 1) / bm, (n + bn - 1) / bn, 1]);
        runs.profile = self.profile;
        runs.machine = machine;
        runs.check(&arrays)
    }
}
