//! The text of each IR level.

use crate::config;
use crate::specialise::Specialised;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_frontend::Config;
use tessera_graph::kernel_call_module;
use tessera_ir::{Attr, Attrs, Module, PrintOptions, Privilege, Type};
use tessera_schedule::launch_module;
use tessera_tile::{TileFunc, TileModule};

/// The levels a user may request.
pub const LEVELS: [&str; 5] = ["graph", "schedule", "tile", "staged", "target"];
/// Those that a target makes.
pub const OF_TARGET: [&str; 2] = ["staged", "target"];

pub enum LevelError {
    /// Not a level at all.
    Unknown(String),
    Failed(Diagnostics),
}

/// `sched` is short for `schedule`.
pub fn level(name: &str) -> Result<&'static str, LevelError> {
    match name {
        "sched" => Ok("schedule"),
        _ => LEVELS.into_iter().find(|l| *l == name).ok_or_else(|| {
            LevelError::Unknown(format!(
                "expected a level (one of graph, schedule, tile, target, and staged for GPUs), got {name:?}"
            ))
        }),
    }
}

type ParamRow<'a> = (&'a str, Type, Privilege);

fn params(func: &TileFunc) -> Vec<ParamRow<'_>> {
    let row = |(i, &value): (usize, &tessera_ir::Value)| {
        let ty = func.ty(value).clone();
        let privilege =
            if let Type::View { privilege, .. } = &ty { *privilege } else { Privilege::Read };
        let name = func.name_of(value).unwrap_or(["a", "b", "c", "d"][i % 4]);
        (name, ty, privilege)
    };
    func.params().iter().enumerate().map(row).collect()
}

/// A level of a kernel as Tile IR with this configuration; what targets make is not here but what they chose.
#[allow(clippy::too_many_arguments)] // A kernel, and how it is shown.
pub fn portable(
    func: &TileFunc,
    cfg: &Config,
    level: &str,
    backend: &str,
    lanes: &[i64],
    locs: bool,
    chosen: Attrs,
) -> String {
    let attrs = config::attrs(cfg);
    match level {
        "graph" => {
            kernel_call_module(&func.name, &params(func), attrs).to_text(PrintOptions { locs })
        }
        "schedule" => {
            let grid = func.attrs.get("grid").and_then(Attr::as_exprs);
            let domain = tessera_tile::domain_of(func);
            let lanes = domain.is_some().then_some(lanes);
            launch_module(&func.name, &params(func), grid, domain, lanes, backend, attrs, chosen)
                .to_text(PrintOptions { locs })
        }
        _ => {
            let mut module: TileModule = Module::new(&func.name);
            module.funcs.push(func.clone());
            module.to_text(PrintOptions { locs })
        }
    }
}

pub fn specialised(spec: &Specialised, level_name: &str, locs: bool) -> Result<String, LevelError> {
    Ok(match level(level_name)? {
        "target" => spec.artifact.target_text(),
        "staged" => spec.artifact.staged_text().ok_or_else(|| {
            let message = "this target has no staged level";
            let help = "the levels here are graph, schedule, tile and target";
            LevelError::Failed(Diagnostic::new(Code::E_UNSUPPORTED, message).help(help).into())
        })?,
        level => portable(
            &spec.func,
            &spec.config,
            level,
            spec.choice.backend.name(),
            &spec.lanes(),
            locs,
            crate::schedule::chosen(spec),
        ),
    })
}
