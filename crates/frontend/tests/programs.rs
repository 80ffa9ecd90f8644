//! The canonical programs, from source to verified Tile IR.

use crate::common::*;
use tessera_frontend::{Capture, Kernel, ParamKind};
use tessera_ir::{PassContext, PassOptions};

pub const SAXPY: &str = "\
@ts.kernel
def saxpy(x, y, alpha):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = alpha * x[i] + y[i]
    return y
";

pub const GEMM: &str = "\
@ts.kernel
def gemm(A, B, C):
    t = ts.tile.context()
    m0 = ts.tile.program_id(0) * t.BM
    n0 = ts.tile.program_id(1) * t.BN
    a = ts.tile.alloc_shared((t.BM, t.BK), ts.bf16, swizzle=\"xor\")
    b = ts.tile.alloc_shared((t.BK, t.BN), ts.bf16, swizzle=\"xor\")
    acc = ts.tile.zeros((t.BM, t.BN), ts.f32)
    for k0 in ts.tile.range(0, K, t.BK):
        ts.tile.cp_async(a, A[m0:m0 + t.BM, k0:k0 + t.BK])
        ts.tile.cp_async(b, B[k0:k0 + t.BK, n0:n0 + t.BN])
        ts.tile.barrier()
        acc = ts.tile.mma(a, b, accumulator=acc)
    C[m0:m0 + t.BM, n0:n0 + t.BN] += acc
    return C
";

const SEED_GEMM: &str = "\
@ts.kernel
def gemm(A, B, C):
    \"\"\"Matrix multiplication using tensor cores\"\"\"
    smem_a = ts.tile.alloc_shared((64, 32), ts.bf16, swizzle=\"xor\")
    smem_b = ts.tile.alloc_shared((32, 64), ts.bf16, swizzle=\"xor\")
    ts.tile.cp_async(smem_a, A[tile_m:tile_m+64, tile_k:tile_k+32])
    ts.tile.cp_async(smem_b, B[tile_k:tile_k+32, tile_n:tile_n+64])
    ts.tile.barrier()
    acc = ts.tile.mma(smem_a, smem_b, accumulator=ts.f32)
    C[tile_m:tile_m+64, tile_n:tile_n+64] += acc
    return C
";

fn lowered(k: &tessera_frontend::Kernel, config: &tessera_frontend::Config) -> String {
    let out = k.elaborate(config).unwrap_or_else(|d| panic!("{d}"));
    let mut func = out.func;
    tessera_ir::verify(&func)
        .unwrap_or_else(|d| panic!("{d}\n{}", tessera_ir::render_in_place(&func)));
    let options = PassOptions { verify_each: true, dump_dir: None };
    let pipeline = tessera_lower::tile_pipeline(options);
    pipeline.run(&mut func, &mut PassContext::default()).unwrap_or_else(|d| panic!("{d}\n{func}"));
    func.to_string()
}

#[test]
fn saxpy_elaborates_and_lowers() {
    let k = kernel(SAXPY, "x: n f32; y: n f32; alpha: f32", &[]).unwrap_or_else(|d| panic!("{d}"));
    let text = lowered(&k, &config(&k, &[], &[]));
    println!("{text}");
    assert!(text.contains("domain = n"), "{text}");
    assert_eq!(k.returns(), [1]);
}

#[test]
fn explicit_gemm_elaborates_and_lowers() {
    let k =
        kernel(GEMM, "A: M,K bf16; B: K,N bf16; C: M,N f32", &[("BM", 64), ("BN", 64), ("BK", 32)])
            .unwrap_or_else(|d| panic!("{d}"));
    let text = lowered(&k, &config(&k, &[], &[]));
    println!("{text}");
    assert!(text.contains("grid = [cdiv(M, 64), cdiv(N, 64)]"), "{text}");
    assert!(!text.contains("buf<"), "{text}");
}

#[test]
fn seed_gemm_elaborates_and_lowers() {
    let k = kernel(SEED_GEMM, "A: M,K bf16; B: K,N bf16; C: M,N f32", &[])
        .unwrap_or_else(|d| panic!("{d}"));
    let text = lowered(&k, &config(&k, &[], &[]));
    println!("{text}");
    assert!(text.contains("grid = [cdiv(M, 64), cdiv(N, 64)]"), "{text}");
    assert!(k.notes().iter().any(|d| d.code == tessera_diag::Code::N_IMPLICIT_TILE));
}

#[test]
fn attention_elaborates_and_lowers() {
    let k =
        kernel(ATTENTION, ATTENTION_PARAMS, &[("BLOCK_M", 64), ("BLOCK_N", 64), ("num_warps", 4)])
            .unwrap_or_else(|d| panic!("{d}"));
    assert_eq!(k.static_dims(), ["D"]);
    println!("{}", k.symbolic());
    for causal in [true, false] {
        let c = config(&k, &[("D", 64)], &[("is_causal", Capture::Bool(causal))]);
        let text = lowered(&k, &c);
        println!("{text}");
        assert!(text.contains("grid = [BH, cdiv(S, 64)]"), "{text}");
    }
}

#[test]
fn products_take_their_class_from_types_or_precision() {
    let product = |more: &str, dtypes: [&str; 2]| {
        let text = format!(
            "@ts.kernel\ndef product(A, B, C):\n    C[:, :] = ts.tile.mma(A[:, :], B[:, :].T{more})\n    return C\n"
        );
        let mut d = decl(&text, "A: 16,32 f32; B: 8,32 f32; C: 16,8 f32", &[]);
        for (param, dtype) in d.params.iter_mut().zip(dtypes) {
            if let ParamKind::Tensor { elem, .. } = &mut param.kind {
                *elem = dtype.parse().ok();
            }
        }
        let k = Kernel::new(d).map_err(|d| codes(&d))?;
        Ok(lowered(&k, &config(&k, &[], &[])))
    };
    let has = |more: &str, dtypes: [&str; 2], what: &str| {
        let text = product(more, dtypes).unwrap_or_else(|d: Vec<String>| panic!("{d:?}"));
        assert_eq!(text.contains("class = "), !what.is_empty(), "{text}");
        assert!(text.contains(what), "{what}: {text}");
    };
    let (plain, fast) = ("fp8_e4m3", "fp8_e4m3 @accum(fp32_fast)");
    has("", [plain; 2], "");
    has("", [fast; 2], "class = fast");
    // Both must say so.
    has("", [fast, plain], "");
    has(", precision=\"fast\"", [plain; 2], "class = fast");
    has(", precision=\"f32\"", [fast; 2], "class = f32");
    has(", precision=\"default\"", ["bf16"; 2], "");
    has("", ["tf32"; 2], "");
    let text = product(", precision=\"tf32\"", ["f32"; 2]).unwrap_or_default();
    assert_eq!(text.matches("tile.cast").count(), 2, "{text}");
    let refused = product(", precision=\"tf32\"", ["bf16"; 2]);
    assert_eq!(refused, Err(vec!["E_TYPE 3:27".into()]));
    assert!(product(", precision=\"tf16\"", ["f32"; 2]).is_err());
}
