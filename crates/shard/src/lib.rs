//! The partitioner: a function on whole arrays, some of which are placed on a mesh (`graph.shard`), becomes the program of one rank
//! (`graph.manual`). Placements are propagated from the pins by the factor rules of the ops; then each op is rewritten on blocks, and
//! collectives bring operands to where the rule needs them. A placement changes no value; nothing here reads the machine.

mod canonical;
mod explain;
mod inline;
mod partition;
mod placement;
mod propagate;
mod rules;

use tessera_diag::Diagnostics;
use tessera_graph::GraphModule;
use tessera_graph::ops::collective::{MeshAxes, Split};
use tessera_ir::Type;

pub use partition::Partitioned;

/// Whether a function has placements: it, or a function that it calls.
pub fn is_placed(module: &GraphModule, func: &str) -> bool {
    inline::reachable(module, func)
        .iter()
        .any(|f| f.ops.iter().any(|(_, op)| op.code == tessera_graph::GraphOp::Shard))
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
    let flat = inline::inline(module, func, args, ordered)?;
    partition::partition(module, &flat, ordered).map(Some)
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
    let flat = inline::inline(module, func, args, ordered)?;
    let found = propagate::propagate(&flat, ordered)?;
    let results = tessera_graph::walk::returned(&flat);
    let results = results.iter().map(|&v| placement::named(&found.mesh, &found.of(&flat, v)));
    Ok(Some((found.mesh.clone(), results.collect())))
}
