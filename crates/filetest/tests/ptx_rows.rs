//! Kernels whose blocks take one row after another, and those whose rows are split over a cluster,
//! compiled to PTX and run by the PTX interpreter in the default profile. All numbers are small
//! whole ones, and all sums of them exact: the order in which they are added makes no difference,
//! and the results are those of the interpreter of Tile IR, bit for bit.

use crate::common;
use tessera_ir::{Attr, Attrs, PassContext, PassOptions, Type};
use tessera_numerics::{DType, Profile};
use tessera_ptx::PtxCaps;
use tessera_ptx_emulator::Emulated;
use tessera_target::{ArgValue, Backend, BufferArg, CompileOptions, LaunchArgs};
use tessera_tile::TileFunc;

struct Case<'a> {
    params: &'a str,
    body: &'a str,
    rows: i64,
    tunables: &'a [(&'a str, i64)],
    /// What its Staged IR must have.
    wants: &'a [&'a str],
}

fn bits(dtype: DType, value: f32) -> Vec<u8> {
    match dtype {
        DType::BF16 => ((value.to_bits() >> 16) as u16).to_le_bytes().to_vec(),
        _ => value.to_le_bytes().to_vec(),
    }
}

impl Case<'_> {
    fn run(&self, func: &TileFunc, on: Option<&dyn Backend>) -> Result<Vec<Vec<u8>>, String> {
        let mut seed = 12345u64;
        let mut arrays = Vec::new();
        for &p in func.params() {
            let Type::View { dims, .. } = func.ty(p) else { return Err("only arrays".into()) };
            let size = |d: String| d.parse().unwrap_or(self.rows);
            let dims: Vec<i64> = dims.iter().map(|d| size(d.to_string())).collect();
            let dtype = func.ty(p).dtype();
            let mut bytes = Vec::new();
            for _ in 0..dims.iter().product::<i64>() {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                bytes.extend(bits(dtype, (seed >> 60) as f32 - 8.0));
            }
            // As 64-bit words, so that they begin where wide accesses may.
            let words = bytes.chunks(8).map(|c| {
                let mut word = [0; 8];
                word[..c.len()].copy_from_slice(c);
                u64::from_le_bytes(word)
            });
            let mut memory: Vec<u128> = vec![0; bytes.len().div_ceil(16)];
            for (i, word) in words.enumerate() {
                memory[i / 2] |= u128::from(word) << (i % 2 * 64);
            }
            arrays.push((memory, dims, dtype, bytes.len()));
        }
        let params = arrays.iter_mut().map(|(memory, dims, dtype, _)| {
            let size = dtype.bytes() as i64;
            let mut strides = vec![size; dims.len()];
            for i in (1..dims.len()).rev() {
                strides[i - 1] = strides[i] * dims[i];
            }
            ArgValue::Buffer(BufferArg {
                data: memory.as_mut_ptr().cast(),
                dtype: *dtype,
                dims: dims.clone(),
                strides,
                writable: true,
            })
        });
        let args = LaunchArgs {
            params: params.collect(),
            dims: [("n".to_string(), self.rows)].into_iter().collect(),
            grid: [self.rows, 1, 1],
            domain: [0; 3],
            lanes: 0,
        };
        let done = match on {
            None => tessera_interp::run(func, &args),
            Some(backend) => backend
                .compile(func, &CompileOptions::new(Profile::Default))
                .and_then(|artifact| artifact.launch(&args)),
        };
        done.map_err(|d| d.render())?;
        let bytes = |(memory, _, _, len): (Vec<u128>, _, _, usize)| {
            let all: Vec<u8> = memory.iter().flat_map(|w| w.to_le_bytes()).collect();
            all[..len].to_vec()
        };
        Ok(arrays.into_iter().map(bytes).collect())
    }
}

fn lowered(case: &Case<'_>) -> (TileFunc, TileFunc) {
    let names: Vec<&str> =
        case.params.split(';').filter_map(|p| p.split(':').next()).map(str::trim).collect();
    let body: String = case.body.lines().map(|l| format!("    {}\n", l.trim())).collect();
    let text = format!("def k({}):\n    i = ts.tile.program_id(0)\n{body}", names.join(", "));
    let k = common::kernel(&text, case.params, case.tunables).map_err(|e| e.render()).unwrap();
    let raw = k.elaborate(&common::config(&k, &[], &[])).map_err(|e| e.render()).unwrap().func;
    let mut lowered = raw.clone();
    let pipeline = tessera_lower::tile_pipeline(PassOptions { verify_each: true, dump_dir: None });
    let done = pipeline.run(&mut lowered, &mut PassContext::default());
    done.map_err(|e| e.render()).unwrap();
    let mut config = Attrs::new();
    case.tunables.iter().for_each(|&(name, v)| config.set(name, Attr::Int(v)));
    lowered.attrs.set("config", Attr::Dict(config));
    (raw, lowered)
}

fn check(case: Case<'_>) {
    let (raw, lowered) = lowered(&case);
    let expected = case.run(&raw, None).unwrap();
    for sm in [80, 90] {
        let caps = PtxCaps::of(sm, false).expect("a known target").clone();
        if sm == 90 {
            let frame = tessera_target::frame::Frame::new(&lowered).unwrap();
            let classes = tessera_ptx::usual_classes(&frame);
            let code = tessera_ptx::compile(&lowered, &caps, Profile::Default, &classes).unwrap();
            let staged = code.staged.unwrap_or_default();
            for want in case.wants {
                assert!(staged.contains(want), "{}: no `{want}` in\n{staged}", case.params);
            }
        }
        let mut gpu = Emulated::new(caps);
        gpu.options.seed = sm.into();
        let got = case.run(&lowered, Some(&gpu)).unwrap();
        for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
            let at = (0..got.len()).find(|&b| got[b] != expected[b]);
            assert_eq!(at, None, "{} on sm_{sm}: array {i} differs at this byte", case.params);
        }
    }
}

/// The mean is taken off, the result scaled and shifted: as norms are made, of exact steps.
const NORM: &str = "t = ts.tile.cast(x[i, :], ts.f32)
    t = t - ts.tile.sum(t) * 0.0001220703125
    t = t + ts.tile.max(t)
    y[i, :] = t * w[:] + s[:]";

/// What is alike in all rows is held: in registers, and where they are full in shared memory.
#[test]
fn scales_are_loaded_once() {
    check(Case {
        params: "x: n,32768 bf16; w: 32768 bf16; s: 32768 bf16; y: n,32768 bf16",
        body: NORM,
        rows: 5,
        tunables: &[],
        wants: &["pipeline_create : pipeline<2;", "frag_store"],
    });
    check(Case {
        params: "x: n,8192 bf16; w: 8192 bf16; s: 8192 bf16; y: n,8192 bf16",
        body: NORM,
        rows: 7,
        tunables: &[("num_stages", 3)],
        wants: &["pipeline_create : pipeline<3;"],
    });
    check(Case {
        params: "x: n,16384 f32; w: 16384 f32; s: 16384 bf16; y: n,16384 f32",
        body: NORM,
        rows: 3,
        tunables: &[],
        wants: &["pipeline_create"],
    });
    // No power of two: the last elements of some threads are none.
    check(Case {
        params: "x: n,25000 bf16; w: 25000 bf16; s: 25000 bf16; y: n,25000 bf16",
        body: NORM,
        rows: 3,
        tunables: &[],
        wants: &["pipeline_create"],
    });
}

/// Blocks of a cluster each copy their part ahead, and hand each other what they add up.
#[test]
fn rows_that_blocks_share() {
    check(Case {
        params: "x: n,65536 bf16; w: 65536 bf16; s: 65536 bf16; y: n,65536 bf16",
        body: NORM,
        rows: 5,
        tunables: &[],
        wants: &["cluster = [2]", "pipeline_create", "blocks 2]"],
    });
    check(Case {
        params: "x: n,131072 bf16; y: n,131072 bf16",
        body: "t = ts.tile.cast(x[i, :], ts.f32)
            t = t - ts.tile.max(t)
            y[i, :] = t * (ts.tile.sum(t) * 0.0000019073486328125)",
        rows: 3,
        tunables: &[],
        wants: &["cluster = [4]", "pipeline_create", "blocks 4]"],
    });
    // One exchange in each iteration, and parts that are not contiguous.
    check(Case {
        params: "x: n,70000 bf16; y: n,70000 bf16",
        body: "t = ts.tile.cast(x[i, :], ts.f32)
            y[i, :] = t - ts.tile.max(t)",
        rows: 4,
        tunables: &[],
        wants: &["cluster = [4]"],
    });
    // Results of several rows together, and where a largest element is.
    check(Case {
        params: "x: 4,30000 bf16; y: 4 f32; z: 4 i32",
        body: "t = ts.tile.cast(x[:, :], ts.f32)
            y[:] = ts.tile.sum(t, axis=1)
            z[:] = ts.tile.argmax(t, axis=1)",
        rows: 1,
        tunables: &[],
        wants: &["cluster = "],
    });
}
