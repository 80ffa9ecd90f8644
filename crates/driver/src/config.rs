//! Configurations as cache keys, as attributes in IR, and as text.

use crate::mode::Mode;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_frontend::{ArgType, Capture, Config};
use tessera_ir::{Attr, Attrs};
use tessera_support::{Hash128, StableHasher};
use tessera_target::Backend;
use tessera_target::arrays::Said;

/// The key of everything compile-time. A function is known by its identity: a cache entry holds
/// its configuration, so an address is not used again while the entry lives.
pub fn key(
    config: &Config,
    tunables: &BTreeMap<String, Capture>,
    backend: &dyn Backend,
    mode: Mode,
    said: &Said,
) -> Hash128 {
    let mut h = StableHasher::new();
    h.write_str(backend.name());
    h.write_str(backend.target());
    h.write_u64(mode.tag());
    h.write_u64(config.dims.len() as u64);
    for (name, value) in &config.dims {
        h.write_str(name);
        h.write_u64(*value as u64);
    }
    for values in [&config.consts, tunables] {
        h.write_u64(values.len() as u64);
        for (name, value) in values {
            h.write_str(name);
            write(&mut h, value);
        }
    }
    h.write_u64(said.len() as u64);
    for (name, class) in said {
        h.write_str(name);
        h.write_u64(u64::from(class.contiguous) << 32 | u64::from(class.align));
        h.write_u64(class.tma_compatible.into());
    }
    h.write_u64(config.args.len() as u64);
    for (name, ty) in &config.args {
        h.write_str(name);
        match ty {
            ArgType::Array { elem, rank } => {
                h.write_str(elem.storage.name());
                if !elem.is_plain() {
                    h.write_str(&elem.to_string());
                }
                h.write_u64(*rank as u64);
            }
            ArgType::Scalar(dtype) => h.write_str(dtype.name()),
        }
    }
    h.finish()
}

fn write(h: &mut StableHasher, value: &Capture) {
    match value {
        Capture::Func(f) => {
            h.write_str("func");
            h.write_u64(Arc::as_ptr(f) as usize as u64);
        }
        Capture::Float(v) => {
            h.write_str("float");
            h.write_u64(v.to_bits());
        }
        other => h.write_str(&format!("{other:?}")),
    }
}

/// A value as Python writes it.
pub fn show(value: &Capture) -> String {
    match value {
        Capture::None => "None".into(),
        Capture::Bool(v) => if *v { "True" } else { "False" }.into(),
        Capture::Int(v) => v.to_string(),
        Capture::Float(v) => format!("{v:?}"),
        Capture::Str(s) => format!("{s:?}"),
        Capture::DType(t) => t.to_string(),
        Capture::Tuple(items) => {
            format!("({})", items.iter().map(show).collect::<Vec<_>>().join(", "))
        }
        Capture::Namespace(n) | Capture::Builtin(n) | Capture::Opaque(n) => n.clone(),
        Capture::Func(f) => f.name.clone(),
        Capture::Table(t) => format!("a table of {}", t.dtype),
        Capture::Later => "a value that is not there yet".into(),
    }
}

/// `BM=64, BN=128`.
pub fn show_all(values: &BTreeMap<String, Capture>) -> String {
    values.iter().map(|(n, v)| format!("{n}={}", show(v))).collect::<Vec<_>>().join(", ")
}

/// Everything compile-time in one list: dims, then constants, then tunables.
pub fn entries(config: &Config) -> Vec<(String, Capture)> {
    let dims = config.dims.iter().map(|(n, v)| (n.clone(), Capture::Int((*v).into())));
    let rest = config.consts.iter().chain(&config.tunables).map(|(n, v)| (n.clone(), v.clone()));
    dims.chain(rest).collect()
}

/// The configuration as attributes of Graph and Schedule IR.
pub fn attrs(config: &Config) -> Attrs {
    let mut out = Attrs::new();
    for (name, value) in entries(config) {
        // A product dim is no word; its value is in the types.
        if name.contains(|c: char| !c.is_alphanumeric() && c != '_') {
            continue;
        }
        let attr = match value {
            Capture::Bool(v) => Attr::Bool(v),
            // An attribute has 64 bits; larger ones are only printed.
            Capture::Int(v) => {
                i64::try_from(v).map_or_else(|_| Attr::Str(v.to_string()), Attr::Int)
            }
            Capture::Float(v) => Attr::Float(v),
            Capture::Str(v) => Attr::Str(v),
            Capture::Func(f) => Attr::Ref(f.name.clone()),
            Capture::Tuple(passes) if name == "off" => {
                Attr::words(passes.iter().map(|p| match p {
                    Capture::Str(pass) => pass.clone(),
                    other => show(other),
                }))
            }
            other => Attr::Str(show(&other)),
        };
        out.set(&name, attr);
    }
    out
}
