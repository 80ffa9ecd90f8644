//! What staging chose of a schedule, read from the Staged IR, under the names that pin it.

use tessera_ir::{Attr, Attrs, Type};
use tessera_staged::{StagedFunc, StagedOp};

/// The name of producer roles; where there are several, with their numbers.
const PRODUCER: &str = "producer";

pub fn of(func: &StagedFunc) -> Attrs {
    let (mut warps, mut stages, mut raster) = (0, 0, None);
    let all = func.walk();
    let has_roles = all.iter().any(|&id| func.ops[id].code == StagedOp::WarpSpecialize);
    for &id in &all {
        let op = &func.ops[id];
        let int = |name: &str| op.attr(name).and_then(Attr::as_int);
        let produces =
            op.attr("name").and_then(Attr::as_word).is_some_and(|n| n.starts_with(PRODUCER));
        if op.code == StagedOp::WarpRole && !produces {
            warps += int("warps").unwrap_or(0) * int("replicas").unwrap_or(1);
        }
        if let Some(Type::Pipeline { stages: depth, .. }) = op.results.first().map(|&v| func.ty(v))
        {
            stages = stages.max(i64::from(*depth));
        }
        if op.code == StagedOp::Tiles {
            let word = op.attr("raster").and_then(Attr::as_word);
            raster = word.and_then(|w| w.trim_start_matches(char::is_alphabetic).parse().ok());
        }
    }
    if !has_roles {
        warps = func.attrs.get("threads").and_then(Attr::as_int).unwrap_or(0) / 32;
    }
    let cluster = func.attrs.get("cluster").and_then(Attr::as_ints);
    let cluster = cluster.map_or(1, |sides| sides.iter().product());
    let mut out = Attrs::new();
    // Without roles a pipeline's depth follows from more than its number of stages.
    let rows = [
        ("num_warps", warps),
        ("num_stages", if has_roles { stages } else { 0 }),
        ("raster", raster.unwrap_or(0)),
        ("cluster", if cluster > 1 { cluster } else { 0 }),
    ];
    for (name, value) in rows.into_iter().filter(|(_, n)| *n > 0) {
        out.set(name, Attr::Int(value));
    }
    out
}
