//! Kernels whose tiles have unusual layouts over many threads, compiled to PTX and run by the PTX
//! interpreter: the results are those of the interpreter of Tile IR, bit for bit, on every
//! architecture and for every layout of arrays.

use crate::common;
use crate::random::Random;
use tessera_interp::HostArray;
use tessera_ir::{Attr, Attrs, PassContext, PassOptions, Type};
use tessera_numerics::{DType, Profile, Scalar};
use tessera_ptx::PtxCaps;
use tessera_ptx_emulator::Emulated;
use tessera_target::{ArgValue, Backend, BufferArg, CompileOptions, LaunchArgs};
use tessera_tile::TileFunc;

/// The layout of arrays.
#[derive(Copy, Clone, Debug)]
enum Lie {
    Plain,
    /// From the second element of an allocation on.
    Shifted,
    /// Every second element, the last axis backwards.
    Sparse,
}

struct Memory {
    bytes: Vec<u8>,
    dims: Vec<i64>,
    strides: Vec<i64>,
    first: i64,
    dtype: DType,
}

impl Memory {
    fn new(dims: &[i64], dtype: DType, lie: Lie, r: &mut Random) -> Self {
        let size = dtype.bytes() as i64;
        let gap = if let Lie::Sparse = lie { 2 } else { 1 };
        let mut strides = vec![size * gap; dims.len()];
        for i in (1..dims.len()).rev() {
            strides[i - 1] = strides[i] * dims[i] * gap;
        }
        let spread = dims.iter().product::<i64>() * gap.pow(dims.len() as u32);
        let mut first = 0;
        match (lie, strides.last_mut()) {
            (Lie::Shifted, _) => first = size,
            (Lie::Sparse, Some(last)) => {
                first = (dims[dims.len() - 1] - 1).max(0) * *last;
                *last = -*last;
            }
            _ => {}
        }
        let pick =
            [0.0, -0.0, 1.0, -1.5, 0.5, 3.0, -7.0, 2.0, 1e30, f64::INFINITY, f64::NAN, 1e-40];
        let wild = r.chance(3);
        let values: Vec<f64> = (0..spread + 1)
            .map(|_| match dtype {
                _ if dtype.is_float() && r.chance(2) => r.below(2001) as f64 / 8.0 - 125.0,
                _ if dtype.is_float() => pick[r.below(if wild { pick.len() } else { 8 })],
                DType::Bool => r.below(2) as f64,
                _ if dtype.is_unsigned_int() => r.below(9) as f64,
                _ => r.below(17) as f64 - 8.0,
            })
            .collect();
        let bytes = HostArray::new(&[spread + 1], dtype, &values).bytes;
        Memory { bytes, dims: dims.to_vec(), strides, first, dtype }
    }

    fn as_arg(&mut self) -> ArgValue {
        ArgValue::Buffer(BufferArg {
            data: self.bytes.as_mut_ptr().wrapping_offset(self.first as isize),
            dims: self.dims.clone(),
            strides: self.strides.clone(),
            dtype: self.dtype,
            writable: true,
        })
    }
}

struct Case<'a> {
    /// As the test helper of the front end reads them.
    params: &'a str,
    dims: &'a [(&'a str, i64)],
    grid: [i64; 3],
    tunables: &'a [(&'a str, i64)],
    profile: Profile,
    text: String,
}

impl<'a> Case<'a> {
    fn new(params: &'a str, body: &str) -> Self {
        let names: Vec<&str> =
            params.split(';').map(|p| p.split(':').next().unwrap().trim()).collect();
        let body: String = body.trim_matches('\n').lines().map(|l| format!("    {l}\n")).collect();
        let text = format!("def k({}):\n{body}", names.join(", "));
        let profile = Profile::Strict;
        Case { params, dims: &[], grid: [1, 1, 1], tunables: &[], profile, text }
    }

    fn dims(mut self, dims: &'a [(&'a str, i64)]) -> Self {
        self.dims = dims;
        self
    }

    fn groups(mut self, n: i64) -> Self {
        self.grid = [n, 1, 1];
        self
    }

    fn with(mut self, tunables: &'a [(&'a str, i64)]) -> Self {
        self.tunables = tunables;
        self
    }

    /// Results must be exact in any order then.
    fn by_default(mut self) -> Self {
        self.profile = Profile::Default;
        self
    }

    fn run(
        &self,
        func: &TileFunc,
        lie: Lie,
        on: Option<&dyn Backend>,
    ) -> Result<Vec<Vec<u8>>, String> {
        let mut r = Random(self.text.len() as u64 * 77 + 1);
        let mut arrays: Vec<Option<Memory>> = Vec::new();
        for &p in func.params() {
            arrays.push(match func.ty(p) {
                Type::View { dims, .. } => {
                    let dims: Vec<i64> = dims
                        .iter()
                        .map(|d| {
                            let text = d.to_string();
                            text.parse().ok().or_else(|| {
                                self.dims.iter().find(|(n, _)| *n == text).map(|&(_, v)| v)
                            })
                        })
                        .map(|d| d.expect("a size for every dim"))
                        .collect();
                    Some(Memory::new(&dims, func.ty(p).dtype(), lie, &mut r))
                }
                _ => None,
            });
        }
        let params = func.params().iter().zip(&mut arrays).map(|(&p, array)| match array {
            Some(array) => array.as_arg(),
            None if func.ty(p).dtype() == DType::F32 => ArgValue::Scalar(Scalar::F32(0.75)),
            None => ArgValue::Scalar(Scalar::I64(3)),
        });
        let args = LaunchArgs {
            params: params.collect(),
            dims: self.dims.iter().map(|&(n, v)| (n.to_string(), v)).collect(),
            grid: self.grid,
            domain: [0; 3],
            lanes: 0,
        };
        let done = match on {
            None => tessera_interp::run(func, &args),
            Some(backend) => backend
                .compile(func, &CompileOptions::new(self.profile))
                .and_then(|artifact| artifact.launch(&args)),
        };
        done.map_err(|d| d.render())?;
        Ok(arrays.into_iter().flatten().map(|a| a.bytes).collect())
    }

    /// What is wrong with it.
    fn troubles(&self) -> Vec<String> {
        let refused = |what: &str, why: String| vec![format!("{what}: {why}")];
        let k = match common::kernel(&self.text, self.params, self.tunables) {
            Ok(k) => k,
            Err(e) => return refused("the front end", e.render()),
        };
        let raw = match k.elaborate(&common::config(&k, &[], &[])) {
            Ok(out) => out.func,
            Err(e) => return refused("the front end", e.render()),
        };
        let mut lowered = raw.clone();
        let pipeline =
            tessera_lower::tile_pipeline(PassOptions { verify_each: true, dump_dir: None });
        if let Err(e) = pipeline.run(&mut lowered, &mut PassContext::default()) {
            return refused("the passes", e.render());
        }
        for id in lowered.walk() {
            lowered.ops[id].attrs.remove("bounds");
        }
        // As the driver does.
        let mut config = Attrs::new();
        self.tunables.iter().for_each(|&(name, v)| config.set(name, Attr::Int(v)));
        lowered.attrs.set("config", Attr::Dict(config));
        let mut out = Vec::new();
        for lie in [Lie::Plain, Lie::Shifted, Lie::Sparse] {
            let expected = match self.run(&raw, lie, None) {
                Ok(expected) => expected,
                Err(e) => return refused("the interpreter", e),
            };
            for sm in [75, 80, 90] {
                let caps = PtxCaps::of(sm, false).expect("a known target").clone();
                let mut gpu = Emulated::new(caps);
                // Warps one after another, or in some order.
                gpu.options.seed = if sm == 75 { 0 } else { sm.into() };
                gpu.options.shuffled = sm != 75;
                match self.run(&lowered, lie, Some(&gpu)) {
                    Err(e) => out.push(format!("{lie:?} on sm_{sm}: {e}")),
                    Ok(got) => {
                        for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
                            if let Some(at) = (0..got.len()).find(|&b| got[b] != expected[b]) {
                                let to = (at / 4 * 4 + 4).min(got.len());
                                out.push(format!(
                                    "{lie:?} on sm_{sm}: array {i} differs at byte {at} of {}: \
                                     {:02x?}, expected {:02x?}",
                                    got.len(),
                                    &got[at / 4 * 4..to],
                                    &expected[at / 4 * 4..to]
                                ));
                            }
                        }
                    }
                }
            }
        }
        out
    }
}

fn check(cases: Vec<Case<'_>>) {
    let mut wrong = 0;
    for case in cases {
        let troubles = case.troubles();
        if !troubles.is_empty() {
            wrong += 1;
            println!("--- {}\n{}\n{}", case.params, case.text, troubles.join("\n"));
        }
    }
    assert_eq!(wrong, 0, "{wrong} kernels compute something else");
}

#[test]
fn reductions_along_every_axis() {
    let mut cases = Vec::new();
    for (params, axis) in [
        ("x: 3,130 f32; y: 130 f32; a: 130 i32", 0),
        ("x: 3,130 f32; y: 3 f32; a: 3 i32", 1),
        ("x: 33,9 f32; y: 9 f32; a: 9 i32", 0),
        ("x: 33,9 f32; y: 33 f32; a: 33 i32", 1),
        ("x: 70,65 bf16; y: 70 f32; a: 70 i32", 1),
        ("x: 50,65 f64; y: 65 f64; a: 65 i32", 0),
        ("x: 130,3 i8; y: 130 i32; a: 130 i32", 1),
    ] {
        for f in ["sum", "max", "min", "prod"] {
            let body = format!(
                "t = x[:, :]\ny[:] = ts.tile.{f}(t, axis={axis})\na[:] = ts.tile.argmax(t, axis={axis})"
            );
            let body = match () {
                _ if params.contains("bf16") => {
                    body.replace("t = x[:, :]", "t = ts.tile.cast(x[:, :], ts.f32)")
                }
                _ if params.contains("i8") => {
                    body.replace("t = x[:, :]", "t = ts.tile.cast(x[:, :], ts.i32)")
                }
                _ => body,
            };
            cases.push(Case::new(params, &body));
        }
    }
    for (axis, out) in [(0, "7,9"), (1, "5,9"), (2, "5,7")] {
        let params: &'static str =
            format!("x: 5,7,9 f32; y: {out} f32; a: {out} i32; p: {out} bool").leak();
        let body = format!(
            "t = x[:, :, :]\ny[:, :] = ts.tile.sum(t, axis={axis})\na[:, :] = ts.tile.argmin(t, axis={axis})\n\
             p[:, :] = ts.tile.any(t > 100.0, axis={axis})"
        );
        cases.push(Case::new(params, &body));
    }
    for params in [
        "x: 1000 f32; y: 1 f32; a: 1 i32",
        "x: 200 f64; y: 1 f64; a: 1 i32",
        "x: 5000 f32; y: 1 f32; a: 1 i32",
    ] {
        cases.push(Case::new(
            params,
            "t = x[:]\ny[0] = ts.tile.sum(t) + ts.tile.max(t)\na[0] = ts.tile.argmax(t)",
        ));
    }
    check(cases);
}

#[test]
fn scans_and_shapes() {
    check(vec![
        Case::new("x: 3,130 f32; y: 3,130 f32", "y[:, :] = ts.tile.cumsum(x[:, :], axis=1)"),
        Case::new("x: 3,130 f32; y: 3,130 f32", "y[:, :] = ts.tile.cumprod(x[:, :], axis=0)"),
        Case::new(
            "x: 5,7,9 i32; y: 5,7,9 i32",
            "y[:, :, :] = ts.tile.scan(x[:, :, :], \"max\", axis=1)",
        ),
        Case::new(
            "x: 5,7,9 i64; y: 5,7,9 i64",
            "y[:, :, :] = ts.tile.cumsum(x[:, :, :], axis=2, exclusive=True)",
        ),
        Case::new("x: 1000 f64; y: 1000 f64", "y[:] = ts.tile.cumsum(x[:])"),
        Case::new("x: 3,130 f32; y: 130,3 f32", "y[:, :] = ts.tile.transpose(x[:, :])"),
        Case::new("x: 65,70 bf16; y: 70,65 bf16", "y[:, :] = ts.tile.transpose(x[:, :])"),
        Case::new("x: 5,7,9 f32; y: 9,7,5 f32", "y[:, :, :] = ts.tile.transpose(x[:, :, :])"),
        Case::new("x: 64,64 i8; y: 4096 i8", "y[:] = ts.tile.reshape(x[:, :], (4096,))"),
        Case::new("x: 15,14 f32; y: 6,35 f32", "y[:, :] = ts.tile.reshape(x[:, :], (6, 35))"),
        Case::new("x: 33,70 bf16; y: 10,231 bf16", "y[:, :] = ts.tile.reshape(x[:, :], (10, 231))"),
        Case::new("x: 3,5,7 i64; y: 105 i64", "y[:] = ts.tile.reshape(x[:, :, :] + 1, (105,))"),
        Case::new(
            "x: 33 f32; w: 70 f32; y: 33,70 f32",
            "y[:, :] = x[:][:, None] * w[:][None, :] + ts.tile.sum(x[:])",
        ),
        Case::new(
            "x: 5,7 f32; w: 9 f32; y: 5,7,9 f32",
            "t = ts.tile.broadcast(x[:, :][:, :, None], (5, 7, 9))\ny[:, :, :] = t - w[:][None, None, :]",
        ),
        Case::new(
            "x: 33,70 f32; y: 33,70 f32",
            "t = x[:, :]\nm = ts.tile.max(t, axis=1)\ne = ts.tile.exp(t - m[:, None])\n\
             y[:, :] = e / ts.tile.sum(e, axis=1)[:, None] + ts.tile.sum(t, axis=0)[None, :]",
        ),
    ]);
}

/// Tiles that do not fit into shared memory. Each case takes long, so each is a test: tests run concurrently.
#[test]
fn transposes_of_tiles_larger_than_shared_memory() {
    check(vec![Case::new(
        "x: 130,512 f32; y: 512,130 f32",
        "y[:, :] = ts.tile.transpose(x[:, :])",
    )]);
}

/// Sums of several chunks in the canonical order.
#[test]
fn sums_of_tiles_larger_than_shared_memory() {
    check(vec![Case::new("x: 66000 f32; y: 66000 f32", "t = x[:]\ny[:] = t / ts.tile.sum(t)")]);
}

#[test]
fn axes_of_tiles_larger_than_shared_memory() {
    check(vec![Case::new(
        "x: 300,257 f32; y: 300,257 f32",
        "t = x[:, :]\ny[:, :] = t - ts.tile.sum(t, axis=0)[None, :] + ts.tile.sum(t, axis=1)[:, None]",
    )]);
}

#[test]
fn scans_by_all_threads() {
    let mut cases = Vec::new();
    for (shape, axis) in [
        ("1", 0),
        ("37", 0),
        ("5000", 0),
        ("3,700", 1),
        ("70,65", 0),
        ("70,65", 1),
        ("9,5,7", 1),
        ("260,3", 0),
    ] {
        let all = vec![":"; shape.split(',').count()].join(", ");
        let kinds = [("i32", "sum"), ("f32", "max"), ("u64", "prod"), ("bf16", "min")];
        for (i, exclusive) in [(0, "False"), (1, "True")] {
            let (dtype, f) = kinds[(cases.len() / 3 + i) % 4];
            let params: &'static str = format!("x: {shape} {dtype}; y: {shape} {dtype}").leak();
            let body = format!(
                "y[{all}] = ts.tile.scan(x[{all}], \"{f}\", axis={axis}, exclusive={exclusive})"
            );
            cases.push(Case::new(params, &body));
        }
        let params: &'static str = format!("x: {shape} i32; y: {shape} f32").leak();
        let body =
            format!("y[{all}] = ts.tile.cumsum(ts.tile.cast(x[{all}], ts.f32), axis={axis})");
        cases.push(Case::new(params, &body).by_default());
    }
    check(cases);
}

#[test]
fn the_last_of_several_values_stays() {
    check(vec![
        Case::new("x: 1000 f32; i: 1000 i32; y: 9 f32", "y[i[:]] = x[:]"),
        Case::new("x: 40 bf16; i: 40 i64; y: 3 bf16", "y[i[:]] = x[:]"),
        Case::new(
            "x: 33,70 f64; i: 33,70 i32; j: 33,70 i32; y: 5,6 f64",
            "y[i[:, :], j[:, :]] = x[:, :]",
        ),
        // More positions than stages.
        Case::new(
            "x: 6000 i32; i: 6000 i32; y: 7000 i32",
            "k = ts.tile.arange(6000)\ny[k + 8 * i[:]] = x[:]\ny[k // 2] = k",
        ),
        Case::new(
            "x: 500 i8; i: 500 i32; y: 9 i8",
            "k = ts.tile.arange(500)\nts.tile.store(y[i[:]], x[:], mask=k < 300)",
        ),
    ]);
}

#[test]
fn groups_fold_in_their_order() {
    check(vec![
        Case::new(
            "x: n,40 f32; y: 40 f32 reduce_sum; s: 1 f32 reduce_prod",
            "i = ts.tile.program_id(0)\nt = x[i, :]\ny[:] += t\nts.tile.accumulate(s[0], ts.tile.sum(t))\n\
             y[:] += ts.tile.cumsum(t)",
        )
        .dims(&[("n", 37)])
        .groups(37),
        // A tile so large that several blocks hold it.
        Case::new(
            "x: n,40000 f32; y: 40000 f32 reduce_sum",
            "i = ts.tile.program_id(0)\nt = x[i, :]\ny[:] += t - ts.tile.max(t)",
        )
        .dims(&[("n", 5)])
        .groups(5),
        Case::new(
            "a: n,64,32 bf16; b: n,32,64 bf16; c: 64,64 f32 reduce_sum",
            "i = ts.tile.program_id(0)\nacc = ts.tile.zeros((64, 64), ts.f32)\n\
             c[:, :] += ts.tile.mma(a[i, :, :], b[i, :, :], acc)",
        )
        .dims(&[("n", 7)])
        .groups(7),
    ]);
}

#[test]
fn dtypes() {
    let mut cases = Vec::new();
    for d in [
        "f64", "f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "i8", "u8", "i16", "u16", "i64",
        "u64", "bool",
    ] {
        for shape in ["3,130", "200", "5,7,9", "1"] {
            let all = vec![":"; shape.split(',').count()].join(", ");
            let params: &'static str =
                format!("x: {shape} {d}; y: {shape} {d}; z: {shape} f32").leak();
            let body =
                format!("t = x[{all}]\nz[{all}] = ts.tile.cast(t, ts.f32) * 0.5\ny[{all}] = t\n");
            cases.push(Case::new(params, &body));
        }
    }
    check(cases);
}

#[test]
fn indexed_elements() {
    check(vec![
        Case::new("x: n f32; k: 200 i32; y: 200 f32", "y[:] = x[k[:]]").dims(&[("n", 5)]),
        Case::new(
            "x: n f32; k: 200 i32; y: 200 f32",
            "y[:] = ts.tile.load(x, k[:], other=7.5)",
        )
        .dims(&[("n", 5)]),
        Case::new(
            "x: n i32; k: 200 i32; y: 200 i32",
            "ts.tile.atomic_add(x[k[:]], y[:])\nts.tile.barrier()\ny[:] = x[k[:]]",
        )
        .dims(&[("n", 5)]),
        Case::new("x: n i32; y: 200 i32", "y[:] = ts.tile.atomic_max(x[ts.tile.arange(200)], y[:])").dims(&[("n", 190)]),
        Case::new("x: n f32; y: 200 f32", "ts.tile.atomic_add(x[ts.tile.arange(200) * 2], y[:])\ny[:] = x[ts.tile.arange(200)]")
            .dims(&[("n", 390)]),
        Case::new("x: n bf16; y: 200 bf16", "ts.tile.atomic_add(x[ts.tile.arange(200)], y[:])").dims(&[("n", 190)]),
        Case::new("x: n i32; y: 3 i32", "y[0] = ts.tile.atomic_add(x[1], 5)\ny[1] = x[1]\ny[2] = ts.tile.atomic_cas(x[1], y[1], 9)").dims(&[("n", 9)]),
        Case::new(
            "x: 200 f32; y: n f32",
            "ts.tile.store(y, 199 - ts.tile.arange(200), x[:], unique=True)\nx[:] = y[0:200]",
        )
        .dims(&[("n", 150)]),
    ]);
}

#[test]
fn elements_that_others_of_the_group_wrote() {
    check(vec![
        // Of few elements every thread holds a copy.
        Case::new("x: 4 f32; y: 4 f32", "y[:] = x[:] + 1.0\ny[:] = y[:] * 2.0\nx[:] = y[:]\ny[:] = x[:] + y[:]"),
        Case::new("x: 300 f32", "x[0:299] = x[1:300]\nx[1:300] = x[0:299] * 2.0\nx[0:300:2] = x[1:300:2]"),
        Case::new("x: 40,40 f32", "x[:, :] = ts.tile.transpose(x[:, :])\nx[0:20, :] = x[20:40, :] + x[0:20, :]"),
        Case::new("x: n f32; s: f32", "x[0] += s\nx[1] = x[0] + 1.0\nx[0:200] = x[0:200] * x[1]\nx[0] += x[199]").dims(&[("n", 200)]),
        Case::new("x: n f32", "for c in range(0, 5):\n    x[c + 1:c + 201] = x[c:c + 200] + 1.0").dims(&[("n", 204)]),
        Case::new(
            "x: n f32; y: 200 f32; m: i64",
            "x[0:200] = y[:]\nc = m\nwhile c < 3:\n    c += 1\n    y[:] = ts.tile.cumsum(y[:])\ny[:] = x[200 - ts.tile.arange(200)]",
        )
        .dims(&[("n", 204)]),
        Case::new(
            "x: 200 f32; y: 200 f32; m: i64",
            "t = ts.tile.cumsum(x[:])\nc = m\nwhile c < 5:\n    c += 1\n    t = ts.tile.cumsum(t)\n    if c > 4:\n        t = ts.tile.cumsum(t * 0.5)\ny[:] = ts.tile.cumsum(t)",
        ),
    ]);
}

#[test]
fn loops_that_carry_tiles() {
    check(vec![
        Case::new(
            "x: 3,130 f32; w: 3,130 f32; m: i64",
            "a = x[:, :]\nb = w[:, :]\nfor c in range(0, m):\n    t = a\n    a = b\n    b = t + 1.0\nx[:, :] = a\nw[:, :] = b",
        ),
        Case::new(
            "x: 40,40 f32; w: 40,40 f32; m: i64",
            "a = x[:, :]\nb = w[:, :]\nfor c in range(0, m):\n    t = a\n    a = ts.tile.transpose(b)\n    b = t\nx[:, :] = a\nw[:, :] = b",
        ),
        Case::new(
            "x: 200 f32; y: 200 f32; m: i64",
            "t = x[:]\nfor c in range(0, 4):\n    if c < m:\n        if c > 1:\n            t = t + ts.tile.max(t)\n        else:\n            t = ts.tile.cumsum(t)\n    else:\n        d = 0\n        while d < 2:\n            d += 1\n            t = t * 0.5 + ts.tile.sum(t)\ny[:] = t",
        ),
        Case::new(
            "x: n f32; y: 130 f32",
            "t = ts.tile.zeros((130,), ts.f32)\nfor c in ts.tile.range(0, n, 130):\n    t += x[c:c + 130]\ny[:] = t",
        )
        .dims(&[("n", 1000)]),
        Case::new(
            "x: M,n bf16; y: 4 f32",
            "t = ts.tile.zeros((4,), ts.f32)\nfor c in ts.tile.range(0, n, 512):\n    t += ts.tile.sum(ts.tile.cast(x[0:4, c:c + 512], ts.f32), axis=1)\ny[:] = t",
        )
        .dims(&[("n", 2000), ("M", 3)])
        .with(&[("num_stages", 3)]),
        Case::new(
            "x: n,M f32; y: M f32",
            "t = ts.tile.full((1000,), 0.0, ts.f32)\nfor c in ts.tile.range(0, n, 1):\n    t = t * 0.5 + x[c, 0:1000]\ny[0:1000] = t",
        )
        .dims(&[("n", 7), ("M", 999)])
        .with(&[("num_stages", 3)]),
    ]);
}

#[test]
fn blocks_masks_and_steps() {
    check(vec![
        Case::new("x: n f32; y: n f32", "i = ts.tile.program_id(0)\ny[i * 200:i * 200 + 200] = x[i * 200:i * 200 + 200] + 1.0")
            .dims(&[("n", 555)])
            .groups(3),
        Case::new(
            "x: n f32; y: n f32",
            "i = ts.tile.program_id(0) * 200\nm = ts.tile.arange(200) % 3 == 0\nt = ts.tile.load(x[i:i + 200], mask=m, other=-2.0)\nts.tile.store(y[i:i + 200], t, mask=~m)",
        )
        .dims(&[("n", 555)])
        .groups(3),
        Case::new("x: M,n f32; y: M,n f32", "y[1:8:3, 0:130:2] = x[0:6:2, 3:68] * 2.0").dims(&[("n", 100), ("M", 7)]),
        Case::new("x: M,n i8; y: M,n i8", "y[0:5, 1:131] += x[1:6, 0:130]").dims(&[("n", 100), ("M", 5)]),
        Case::new("x: M,n bf16; y: M,n bf16", "y[0:5, 1:131] += x[1:6, 0:130]").dims(&[("n", 131), ("M", 6)]),
        Case::new("x: M,n f32; y: n f32", "i = ts.tile.program_id(0)\ny[i] = ts.tile.sum(x[0:70, i]) + ts.tile.sum(x[i, 0:70])")
            .dims(&[("n", 6), ("M", 69)])
            .groups(6),
    ]);
}

#[test]
fn rows_one_after_another() {
    let body = "i = ts.tile.grid(M)\nt = x[i, :]\ne = ts.tile.exp(t - ts.tile.max(t))\ny[i, :] = e / ts.tile.sum(e)";
    check(vec![
        Case::new("x: M,4096 f32; y: M,4096 f32", body).dims(&[("M", 5)]).groups(5).with(&[("num_stages", 2)]),
        Case::new("x: M,1000 f32; y: M,1000 f32", body).dims(&[("M", 5)]).groups(5).with(&[("num_stages", 3)]),
        Case::new("x: M,13000 f32; y: M,13000 f32", body).dims(&[("M", 3)]).groups(3),
        Case::new("x: M,1000 bf16; y: M,1000 f32", "i = ts.tile.grid(M)\nt = ts.tile.cast(x[i, :], ts.f32)\ny[i, :] = t * ts.tile.sum(t * t)")
            .dims(&[("M", 5)])
            .groups(5)
            .with(&[("num_stages", 2)]),
        Case::new("x: M,1000 f32; y: M,1000 f32", "i = ts.tile.grid(M)\nx[i, :] = ts.tile.cumsum(x[i, :])\ny[i, :] = x[i, :] + x[i, 999]")
            .dims(&[("M", 5)])
            .groups(5)
            .with(&[("num_stages", 2)]),
    ]);
}

#[test]
fn any_number_of_warps() {
    let mut cases = Vec::new();
    for warps in [[("num_warps", 1)], [("num_warps", 2)], [("num_warps", 16)]] {
        let warps: &'static [(&'static str, i64)] = Box::leak(Box::new(warps));
        for (params, body) in [
            ("x: 3,130 f32; y: 3 f32", "y[:] = ts.tile.sum(x[:, :], axis=1)"),
            ("x: 130,3 f32; y: 3 f32", "y[:] = ts.tile.sum(x[:, :], axis=0)"),
            ("x: 5,7,9 f32; y: 5,9 f32", "y[:, :] = ts.tile.sum(x[:, :, :], axis=1)"),
            (
                "x: 2,1000 f32; y: 2,1000 f32",
                "t = x[:, :]\ny[:, :] = t - ts.tile.sum(t, axis=1)[:, None]",
            ),
            (
                "x: 70 f32; y: 70 f32",
                "t = x[:]\ny[:] = ts.tile.sum(t) + ts.tile.cumsum(t) + ts.tile.max(t)",
            ),
            ("x: 3,130 f32; y: 3 i32", "y[:] = ts.tile.argmin(x[:, :], axis=1)"),
            ("x: 40,20 f32; y: 20,40 f32", "y[:, :] = ts.tile.transpose(x[:, :] * 2.0)"),
            (
                "x: 7 f32; y: 7 f32; a: 7 i32",
                "y[:] = x[:] + y[:]\nx[:] = y[:] * 2.0\na[:] = ts.tile.atomic_add(a[6 - ts.tile.arange(7)], 1)",
            ),
            (
                "x: 20,33 f32; w: 33,9 f32; y: 20,9 f32",
                "y[:, :] = ts.tile.mma(x[:, :], w[:, :]) + ts.tile.sum(x[:, :], axis=1)[:, None]",
            ),
        ] {
            cases.push(Case::new(params, body).with(warps));
        }
    }
    check(cases);
}

#[test]
fn rows_that_several_blocks_hold() {
    check(vec![
        Case::new(
            "x: M,40000 f32; y: M f32",
            "i = ts.tile.program_id(0)\ny[i] = ts.tile.max(x[i, :])",
        )
        .dims(&[("M", 2)])
        .groups(2),
        Case::new(
            "x: M,40000 f32; y: M f32",
            "i = ts.tile.program_id(0)\ny[i] = ts.tile.sum(x[i, :])",
        )
        .dims(&[("M", 2)])
        .groups(2),
        Case::new(
            "x: M,40000 f32; y: M,40000 f32",
            "i = ts.tile.program_id(0)\nt = x[i, :]\ny[i, :] = t - ts.tile.sum(t) / ts.tile.max(t)",
        )
        .dims(&[("M", 2)])
        .groups(2),
        Case::new(
            "x: M,40000 f32; y: M i32",
            "i = ts.tile.program_id(0)\ny[i] = ts.tile.argmax(x[i, :])",
        )
        .dims(&[("M", 2)])
        .groups(2),
    ]);
}

#[test]
fn loops_that_read_ahead() {
    const STAGES: &[(&str, i64)] = &[("num_stages", 3)];
    let mut cases = Vec::new();
    for n in [0, 1, 130, 1000] {
        let dims: &'static [(&'static str, i64)] = Box::leak(Box::new([("n", n)]));
        for (params, body) in [
            // What the loop writes is read later by it.
            (
                "x: n f32; y: 130 f32",
                "t = y[:]\nfor c in ts.tile.range(0, n, 65):\n    t = t * 0.5 + x[c:c + 130]\n    x[c + 65:c + 195] = t\ny[:] = t",
            ),
            (
                "x: n f32; w: n f32; y: 256 f32",
                "t = y[:]\nfor c in ts.tile.range(0, n, 256):\n    t += x[c:c + 256] * w[c:c + 256]\ny[:] = t",
            ),
            (
                "x: n f32; y: 256 f32; m: i64",
                "t = y[:]\nfor c in ts.tile.range(0, n, 256):\n    if c > 300:\n        t += x[c:c + 256]\n    else:\n        t = t * 0.5\ny[:] = t",
            ),
            (
                "x: n f32; y: 256 f32; m: i64",
                "t = y[:]\nfor d in range(0, m):\n    for c in ts.tile.range(0, n, 256):\n        t = ts.tile.maximum(t * 0.125, x[c:c + 256])\n    t = t * 0.5\ny[:] = t",
            ),
            (
                "x: n i8; y: 256 i32",
                "t = y[:]\nfor c in ts.tile.range(0, n, 256):\n    t += ts.tile.cast(x[c:c + 256], ts.i32)\ny[:] = t",
            ),
            (
                "x: n f32; y: 256 f32",
                "t = y[:]\nfor c in ts.tile.range(0, n, 512):\n    t += x[c:c + 512:2]\ny[:] = t",
            ),
            (
                "x: n f32; y: 256 f32",
                "t = y[:]\nfor c in ts.tile.range(0, n, 256):\n    t += ts.tile.load(x[c:c + 256], mask=t > 0.0, other=1.0)\ny[:] = t",
            ),
            (
                "x: n,64 f32; y: 64 f32",
                "t = y[:]\nfor c in ts.tile.range(0, n, 16):\n    t += ts.tile.sum(x[c:c + 16, :], axis=0)\ny[:] = t",
            ),
            // Tiles that are large enough for a pipeline of their own.
            (
                "x: n f32; w: n f32; y: 2048 f32",
                "t = y[:]\nfor c in ts.tile.range(0, n, 2048):\n    t += x[c:c + 2048] * w[c:c + 2048]\ny[:] = t",
            ),
            (
                "x: 3,n f32; w: 3,n i64; y: 2048 f32",
                "t = y[:]\nfor p in ts.tile.range(0, 3):\n    for c in ts.tile.range(0, n, 2048):\n        t += x[p, c:c + 2048] * ts.tile.cast(w[p, c:c + 2048], ts.f32)\ny[:] = t",
            ),
            (
                "x: n bf16; y: 4096 f32",
                "t = y[:]\nfor c in ts.tile.range(0, n, 64):\n    t += x[c:c + 4096]\ny[:] = t",
            ),
            (
                "x: 48,n bf16; w: n,40 bf16; y: 48,40 f32",
                "t = y[:, :]\nfor c in ts.tile.range(0, n, 32):\n    t = ts.tile.mma(x[:, c:c + 32], w[c:c + 32, :], t)\ny[:, :] = t",
            ),
            (
                "x: n f32; y: 256 f32; m: i64",
                "t = y[:]\nc = 0\nwhile c < n:\n    t += x[c:c + 256]\n    if x[c] > 100.0:\n        break\n    c += 256\ny[:] = t",
            ),
        ] {
            cases.push(Case::new(params, body).dims(dims).with(STAGES));
        }
    }
    check(cases);
}

#[test]
fn groups_of_two_axes() {
    let body = "i, j = ts.tile.grid(M, n)\nt = x[i, j, :]\ny[i, j, :] = t - ts.tile.max(t) + ts.tile.sum(t)";
    for stages in [[("num_stages", 1)], [("num_stages", 2)]] {
        let mut case =
            Case::new("x: M,n,1000 f32; y: M,n,1000 f32", body).dims(&[("M", 2), ("n", 3)]);
        case.grid = [2, 3, 1];
        check(vec![case.with(&stages)]);
    }
}
