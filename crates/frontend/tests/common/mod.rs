//! Builds kernels from source text without a Python interpreter: parameters are given as
//! `name: dims dtype`, and `ts`, `math` and `ts.<dtype>` mean what Python would resolve them to.

use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::{Diagnostics, SourceFile};
use tessera_frontend::{
    Capture, Config, FuncSource, Kernel, KernelDecl, ParamKind, ParamSpec, Tunables, free_paths,
};
use tessera_numerics::DType;

pub fn source(text: &str, extra: &[(&str, Capture)]) -> Arc<FuncSource> {
    let file = SourceFile::new("kernel.py", text, 1);
    let mut captures = BTreeMap::new();
    for path in free_paths(&file).unwrap_or_default() {
        let root = path.split('.').next().unwrap_or_default().to_string();
        match root.as_str() {
            "ts" => {
                captures.insert("ts".to_string(), Capture::Namespace("tessera".into()));
                if let Some(d) = path.strip_prefix("ts.").and_then(DType::parse) {
                    captures.insert(path, Capture::DType(d.into()));
                }
            }
            "math" => {
                captures.insert("math".to_string(), Capture::Namespace("math".into()));
            }
            _ => {}
        }
    }
    for (name, c) in extra {
        captures.insert(name.to_string(), c.clone());
    }
    let name =
        text.split("def ").nth(1).and_then(|s| s.split('(').next()).unwrap_or("k").to_string();
    Arc::new(FuncSource { name, file, captures, defaults: BTreeMap::new() })
}

/// `x: n f32`, `A: M,K bf16`, `alpha: f32`, `causal: const bool`, `y: any`.
pub fn params(spec: &str) -> Vec<ParamSpec> {
    let one = |text: &str| {
        let (name, rest) = text.split_once(':').expect("name: type");
        let words: Vec<&str> = rest.split_whitespace().collect();
        let kind = match words.as_slice() {
            ["const", ty] => ParamKind::Const(ty.to_string()),
            ["fn"] => ParamKind::Function,
            ["any"] => ParamKind::Any,
            [dtype] => ParamKind::Scalar(DType::parse(dtype).expect("dtype")),
            [dims, dtype, rest @ ..] => ParamKind::Tensor {
                dims: Some(dims.split(',').map(str::to_string).collect()),
                elem: Some(DType::parse(dtype).expect("dtype").into()),
                privilege: rest.first().and_then(|p| tessera_ir::Privilege::parse(p)),
                out: false,
            },
            [] => ParamKind::Any,
        };
        ParamSpec { name: name.trim().to_string(), kind, optional: false, default: None }
    };
    spec.split(';').map(str::trim).filter(|s| !s.is_empty()).map(one).collect()
}

pub fn decl(text: &str, spec: &str, tunables: &[(&str, i64)]) -> KernelDecl {
    let candidate: BTreeMap<String, Capture> =
        tunables.iter().map(|(n, v)| (n.to_string(), Capture::Int((*v).into()))).collect();
    KernelDecl {
        source: source(text, &[]),
        params: params(spec),
        bundles: Vec::new(),
        tunables: Tunables { candidates: vec![candidate] },
        lanes: Vec::new(),
        most_ops: tessera_frontend::MOST_OPS,
    }
}

#[allow(dead_code)]
pub fn kernel(text: &str, spec: &str, tunables: &[(&str, i64)]) -> Result<Kernel, Diagnostics> {
    Kernel::new(decl(text, spec, tunables))
}

#[allow(dead_code)]
pub fn config(k: &Kernel, dims: &[(&str, i64)], consts: &[(&str, Capture)]) -> Config {
    Config {
        dims: dims.iter().map(|(n, v)| (n.to_string(), *v)).collect(),
        consts: consts.iter().map(|(n, v)| (n.to_string(), v.clone())).collect(),
        tunables: k.decl().tunables.candidates.first().cloned().unwrap_or_default(),
        args: BTreeMap::new(),
    }
}

/// Every error as `CODE line:column`.
#[allow(dead_code)]
pub fn codes(d: &Diagnostics) -> Vec<String> {
    d.errors().map(|d| format!("{} {}:{}", d.code, d.loc.line(), d.loc.column())).collect()
}

#[allow(dead_code)]
pub const ATTENTION: &str = "\
@ts.kernel.autotune(space=dict(BLOCK_M=[64, 128], BLOCK_N=[64, 128], num_warps=[4, 8]))
def attention(Q, K, V, O, is_causal=True):
    t = ts.tile.context()
    BM, BN = t.BLOCK_M, t.BLOCK_N
    bh = ts.tile.program_id(0)
    q0 = ts.tile.program_id(1) * BM
    sq = ts.tile.alloc_shared((BM, D), ts.bf16)
    sk = ts.tile.alloc_shared((BN, D), ts.bf16)
    sv = ts.tile.alloc_shared((BN, D), ts.bf16)
    acc = ts.tile.zeros((BM, D), ts.f32)
    m = ts.tile.full((BM,), -math.inf, ts.f32)
    l = ts.tile.zeros((BM,), ts.f32)
    ts.tile.cp_async(sq, Q[bh, q0:q0 + BM, :])
    hi = min(S, q0 + BM) if is_causal else S
    for k0 in ts.tile.range(0, hi, BN):
        ts.tile.cp_async(sk, K[bh, k0:k0 + BN, :])
        ts.tile.cp_async(sv, V[bh, k0:k0 + BN, :])
        ts.tile.barrier()
        s = ts.tile.mma(sq, sk.T) * (1.0 / math.sqrt(D))
        s = ts.tile.bounds_mask(s, cols=S - k0)
        if is_causal:
            s = ts.tile.causal_mask(s, q0, k0)
        m_new = ts.tile.maximum(m, ts.tile.row_max(s))
        alpha = ts.tile.exp(m - m_new)
        p = ts.tile.exp(s - m_new[:, None])
        l = alpha * l + ts.tile.row_sum(p)
        acc = alpha[:, None] * acc + ts.tile.mma(ts.tile.cast(p, ts.bf16), sv)
        m = m_new
    O[bh, q0:q0 + BM, :] = ts.tile.cast(acc / l[:, None], ts.bf16)
    return O
";

#[allow(dead_code)]
pub const ATTENTION_PARAMS: &str =
    "Q: BH,S,D bf16; K: BH,S,D bf16; V: BH,S,D bf16; O: BH,S,D bf16; is_causal: const bool";

/// Errors that say what is wrong and can name no fix, with the reason.
#[allow(dead_code)]
const WITHOUT_HELP: &[(&str, &str)] = &[("E_ASSERT", "the message is the kernel's own")];

/// Whether an error, printed with its code first, is one that can name no fix.
#[allow(dead_code)]
pub fn is_excused(error: &str) -> bool {
    WITHOUT_HELP.iter().any(|(start, _)| error.starts_with(start))
}
