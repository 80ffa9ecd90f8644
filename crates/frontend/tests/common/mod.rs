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
    Arc::new(FuncSource { name, file, captures })
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
        ParamSpec { name: name.trim().to_string(), kind, default: None }
    };
    spec.split(';').map(str::trim).filter(|s| !s.is_empty()).map(one).collect()
}

pub fn decl(text: &str, spec: &str, tunables: &[(&str, i64)]) -> KernelDecl {
    let candidate: BTreeMap<String, Capture> =
        tunables.iter().map(|(n, v)| (n.to_string(), Capture::Int(*v))).collect();
    KernelDecl {
        source: source(text, &[]),
        params: params(spec),
        tunables: Tunables { candidates: vec![candidate] },
        lanes: None,
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
