//! What a measurement holds for.

use super::machine;
use crate::backends::Choice;
use crate::bind::{Bound, Slot};
use crate::cache::COMPILER;
use crate::config::{self, show};
use crate::kernel::KernelHandle;
use crate::location::Location;
use crate::mode::Mode;
use crate::params::show_dim;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_frontend::{Capture, FuncSource};
use tessera_ir::DimExpr;
use tessera_support::{Hash128, StableHasher};
use tessera_target::arrays::Said;
use tessera_tune::Subject;

/// A hash of what distinguishes subjects within this process: cheap, since every call computes it.
pub fn quick(
    kernel: &KernelHandle,
    bound: &Bound,
    location: Location,
    choice: &Choice,
    mode: Mode,
) -> Result<Hash128, Diagnostics> {
    let mut h = StableHasher::new();
    let config = config::key(&bound.config, &BTreeMap::new(), &*choice.backend, mode, &Said::new());
    for half in config.0.chunks(8) {
        h.write_u64(half.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)));
    }
    each_size(kernel, bound, |_, size| h.write_u64(size as u64));
    h.write_str(&machine::kind(choice, location)?);
    h.write_u64(crate::processor::threads()? as u64);
    Ok(h.finish())
}

pub fn of(
    kernel: &KernelHandle,
    bound: &Bound,
    location: Location,
    choice: &Choice,
    mode: Mode,
) -> Result<Subject, Diagnostics> {
    let mut sizes = bound.config.dims.clone();
    each_size(kernel, bound, |name, size| _ = sizes.insert(name.to_string(), size));
    let mut types = BTreeMap::new();
    for (param, slot) in kernel.params.items.iter().zip(&bound.slots) {
        let ty = match slot {
            Slot::Array(array) => array.buffer.dtype.name().to_string(),
            Slot::Missing { elem, .. } => elem.storage.name().to_string(),
            Slot::Scalar(_) | Slot::Static => continue,
        };
        types.insert(param.name.clone(), ty);
    }
    let text = |value: &Capture| match value {
        Capture::Func(f) => format!("{} {}", f.name, source(f)),
        other => show(other),
    };
    let consts = bound.config.consts.iter().map(|(name, value)| (name.clone(), text(value)));
    let caps = choice.caps()?;
    Ok(Subject {
        kernel: kernel.name().to_string(),
        source: source(&kernel.kernel.decl().source).to_string(),
        compiler: COMPILER.to_string(),
        backend: choice.backend.name().to_string(),
        target: caps.arch,
        device: machine::name(choice, location)?,
        profile: mode.profile.name().to_string(),
        sizes,
        types,
        consts: consts.collect(),
    })
}

/// The sizes that a choice depends on: those that the decorator names, else of all dims.
fn each_size(kernel: &KernelHandle, bound: &Bound, mut tell: impl FnMut(&str, i64)) {
    if let Some(key) = &kernel.tuning.options.key {
        for name in key {
            let size = bound.sizes.get(name).or_else(|| {
                let dim = tessera_frontend::parse_dim(name)?;
                bound.sizes.eval(&dim).ok()
            });
            tell(name, size.unwrap_or(-1));
        }
        return;
    }
    for dim in kernel.params.dims().filter(|d| !matches!(d, DimExpr::Const(_))) {
        let size = bound.sizes.eval(dim).unwrap_or(-1);
        match dim {
            DimExpr::Sym(name) => tell(name, size),
            other => tell(&show_dim(other), size),
        }
    }
}

/// The hash of a function from its `def` on (what decorators list is not its meaning), and of all
/// that it captures.
fn source(func: &Arc<FuncSource>) -> Hash128 {
    let mut h = StableHasher::new();
    write_func(&mut h, func, &mut Vec::new());
    h.finish()
}

fn write_func(h: &mut StableHasher, func: &Arc<FuncSource>, seen: &mut Vec<Arc<FuncSource>>) {
    if seen.iter().any(|s| Arc::ptr_eq(s, func)) {
        return;
    }
    seen.push(func.clone());
    h.write_str(&func.name);
    for line in func.file.text.lines().skip_while(|line| !line.trim_start().starts_with("def ")) {
        h.write_str(line);
    }
    for (name, value) in &func.captures {
        h.write_str(name);
        write_capture(h, value, seen);
    }
}

fn write_capture(h: &mut StableHasher, value: &Capture, seen: &mut Vec<Arc<FuncSource>>) {
    match value {
        Capture::Func(func) => write_func(h, func, seen),
        Capture::Tuple(items) => {
            h.write_u64(items.len() as u64);
            items.iter().for_each(|item| write_capture(h, item, seen));
        }
        other => h.write_str(&format!("{other:?}")),
    }
}
