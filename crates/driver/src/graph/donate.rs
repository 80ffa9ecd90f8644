//! Which arguments may give their memory to results.

use tessera_ir::Type;
use tessera_lower::graph::{Array, Origin, Plan, Step};
use tessera_tile::{TileFunc, TileOp};

/// Pairs of a result and an argument that may be one array: whoever calls may pass the argument's
/// memory for the result, and the argument is gone then. Each is in one pair at most.
pub fn donations(plan: &Plan) -> Vec<(usize, usize)> {
    let mut out: Vec<(usize, usize)> = Vec::new();
    for (result, (buffer, ty)) in plan.results.iter().enumerate() {
        let fits = |argument: usize| {
            let from = plan.params[argument];
            same_memory(&plan.buffers[from].ty, ty)
                && plan.buffers[from].origin == Origin::Argument(argument)
                && !out.iter().any(|(_, a)| *a == argument)
                && is_free(plan, from, *buffer)
        };
        if let Some(argument) = (0..plan.params.len()).find(|&a| fits(a)) {
            out.push((result, argument));
        }
    }
    out
}

fn same_memory(a: &Type, b: &Type) -> bool {
    a.dtype() == b.dtype() && a.static_shape() == b.static_shape()
}

/// Whether nothing reads `from` after `to` is first written, save one kernel that goes through both
/// element by element.
fn is_free(plan: &Plan, from: usize, to: usize) -> bool {
    let reads = |a: &Array| a.buffer == from;
    let writes = |a: &Array| a.buffer == to;
    let mut written = false;
    for step in &plan.steps {
        match step {
            Step::Launch { kernel, args, .. } => {
                let (r, w) = (args.iter().find(|a| reads(a)), args.iter().find(|a| writes(a)));
                match (r, w) {
                    (Some(_), _) if written => return false,
                    (Some(r), Some(w)) => {
                        let alike =
                            (r.offset, &r.dims, &r.strides) == (w.offset, &w.dims, &w.strides);
                        let once = args.iter().filter(|a| reads(a) || writes(a)).count() == 2;
                        if !alike || !once || !is_pointwise(&plan.kernels[*kernel]) {
                            return false;
                        }
                    }
                    _ => {}
                }
                written |= w.is_some();
            }
            Step::Copy { from: a, to: b } => {
                if reads(a) && (written || writes(b)) {
                    return false;
                }
                written |= writes(b);
            }
            // What these do to memory is not looked into.
            Step::Host { inputs, outputs, .. } => {
                if inputs.iter().any(reads) && (written || outputs.iter().any(writes)) {
                    return false;
                }
                written |= outputs.iter().any(writes);
            }
            Step::Call { args, .. } => {
                if args.iter().any(|(a, _)| reads(a) || writes(a)) {
                    return false;
                }
            }
            Step::Cond { .. } | Step::While { .. } | Step::Loop { .. } => return false,
        }
    }
    true
}

/// One store, and nothing that puts elements together.
fn is_pointwise(func: &TileFunc) -> bool {
    let code = |id: &tessera_ir::OpId| func.ops[*id].code;
    let walk = func.walk();
    let stores = walk.iter().filter(|id| code(id) == TileOp::Store).count();
    let apart = walk.iter().all(|id| {
        !matches!(
            code(id),
            TileOp::Reduce
                | TileOp::Scan
                | TileOp::ArgReduce
                | TileOp::Mma
                | TileOp::For
                | TileOp::Gather
                | TileOp::Scatter
                | TileOp::Accumulate
        )
    });
    stores == 1 && apart
}
