//! The partitioner: a function on whole arrays, some of which are placed on a mesh (`graph.shard`), becomes the program of one rank
//! (`graph.manual`). Placements are propagated from the pins by the factor rules of the ops; then each op is rewritten on blocks, and
//! collectives bring operands to where the rule needs them. A placement changes no value; nothing here reads the machine.

mod canonical;
mod composites;
mod explain;
mod inline;
mod partition;
mod placement;
mod propagate;
mod rules;
mod same;

use composites::{Known, Rules};
use inline::{Flat, Keep};
use placement::Dims;
use propagate::Placements;
use std::collections::BTreeSet;
use tessera_diag::Diagnostics;
use tessera_graph::ops::collective::{MeshAxes, Split};
use tessera_graph::walk::returned;
use tessera_graph::{GraphModule, GraphOp};
use tessera_ir::Type;

pub use partition::Partitioned;
pub use same::same;

/// Whether a function has placements: it, or a function that it calls.
pub fn is_placed(module: &GraphModule, func: &str) -> bool {
    inline::reachable(module, func)
        .iter()
        .any(|f| f.ops.iter().any(|(_, op)| op.code == GraphOp::Shard))
}

/// A function without calls, and where its values are.
struct Found {
    flat: Flat,
    rules: Rules,
    placements: Placements,
}

/// Where a block function's arguments and results are; None of a whole function, which has pins.
type Edges<'a> = Option<(&'a MeshAxes, &'a [Dims], &'a [Dims])>;

/// Propagates placements. Composites stay whole unless the ranks cannot run them on blocks; where bits count they always do.
fn find(
    module: &GraphModule,
    (func, args): (&str, &[Type]),
    ordered: bool,
    edges: Edges<'_>,
    known: &mut Known,
) -> Result<Found, Diagnostics> {
    let mut apart = BTreeSet::new();
    loop {
        let keep = if ordered { Keep::All } else { Keep::But(&apart) };
        let flat = inline::inline(module, func, args, &keep)?;
        let rules = Rules::new(module, &flat, ordered, known)?;
        let mut more = rules.indivisible(&flat);
        if more.is_empty() {
            let mut pinned = Vec::new();
            let mesh = match edges {
                None => propagate::mesh(&flat.func)?,
                Some((mesh, ins, outs)) => {
                    let outs = returned(&flat.func).iter().zip(outs);
                    pinned.extend(outs.map(|(&value, dims)| (value, dims.clone())));
                    let ins = flat.func.params().iter().zip(ins);
                    pinned.extend(ins.map(|(&value, dims)| (value, dims.clone())));
                    mesh.clone()
                }
            };
            let placements = propagate::propagate(&flat.func, &mesh, &rules, pinned)?;
            more = rules.crossed(&flat, &placements);
            if more.is_empty() {
                return Ok(Found { flat, rules, placements });
            }
        }
        apart.extend(more);
    }
}

/// The program of a rank for arguments of these types. `ordered`: sums keep the order of one device, so that the bits do too.
/// None where the function has no placements.
pub fn partition(
    module: &GraphModule,
    func: &str,
    args: &[Type],
    ordered: bool,
) -> Result<Option<Partitioned>, Diagnostics> {
    if !is_placed(module, func) {
        return Ok(None);
    }
    let mut known = Known::new();
    let found = find(module, (func, args), ordered, None, &mut known)?;
    partition::partition(module, found, known).map(Some)
}

/// The mesh, and the placements that the results of a function get; None where it has no placements.
pub fn placements(
    module: &GraphModule,
    func: &str,
    args: &[Type],
    ordered: bool,
) -> Result<Option<(MeshAxes, Vec<Split>)>, Diagnostics> {
    if !is_placed(module, func) {
        return Ok(None);
    }
    let Found { flat, placements: found, .. } =
        find(module, (func, args), ordered, None, &mut Known::new())?;
    let results = returned(&flat.func).iter();
    let results = results.map(|&v| placement::named(&found.mesh, &found.of(&flat.func, v)));
    Ok(Some((found.mesh.clone(), results.collect())))
}
