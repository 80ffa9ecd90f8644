//! Buffer donation: which arguments may give their memory to results.

use std::collections::BTreeSet;
use tessera_ir::{OpId, Type, Value};
use tessera_plan::{Array, Origin, Plan, Step};
use tessera_tile::{TileFunc, TileOp};

/// Buffer donation: pairs of a result and an argument that may be one array. The caller may pass
/// the argument's memory for the result; the argument is then overwritten. Each is in one pair at
/// most.
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
/// element by element. Steps on several queues have no order that is known here.
fn is_free(plan: &Plan, from: usize, to: usize) -> bool {
    let reads = |a: &Array| a.buffer == from;
    let writes = |a: &Array| a.buffer == to;
    let mut written = false;
    let mut queues = BTreeSet::new();
    for step in &plan.steps {
        if let Step::Launch { args, queue, .. } = step
            && args.iter().any(|a| reads(a) || writes(a))
        {
            queues.insert(*queue);
        }
        if let Step::Copy { from: a, to: b, queue } = step
            && [a, b].into_iter().any(|a| reads(a) || writes(a))
        {
            queues.insert(*queue);
        }
        if let Step::Host { inputs, outputs, .. } = step
            && inputs.iter().chain(outputs).any(|a| reads(a) || writes(a))
        {
            queues.insert(0);
        }
        if queues.len() > 1 {
            return false;
        }
        match step {
            Step::Launch { kernel, args, .. } => {
                let (ri, wi) = (args.iter().position(reads), args.iter().position(writes));
                let (r, w) = (ri.map(|i| &args[i]), wi.map(|i| &args[i]));
                match (r, w) {
                    (Some(_), _) if written => return false,
                    (Some(r), Some(w)) => {
                        let alike =
                            (r.offset, &r.dims, &r.strides) == (w.offset, &w.dims, &w.strides);
                        let once = args.iter().filter(|a| reads(a) || writes(a)).count() == 2;
                        let func = &plan.kernels[*kernel];
                        let param =
                            |i: Option<usize>| i.and_then(|i| func.params().get(i).copied());
                        let by_element = is_pointwise(func)
                            || matches!((param(ri), param(wi)), (Some(r), Some(w)) if is_paired(func, r, w));
                        if !alike || !once || !by_element {
                            return false;
                        }
                    }
                    _ => {}
                }
                written |= w.is_some();
            }
            Step::Copy { from: a, to: b, .. } => {
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
            // A collective is in flight beside other steps.
            Step::Collective { from: a, to: b, .. } => {
                if [a, b].into_iter().any(|a| reads(a) || writes(a)) {
                    return false;
                }
            }
            Step::Cond { .. } | Step::While { .. } | Step::Loop { .. } => return false,
        }
    }
    true
}

/// Whether a kernel reads each element of one array once, and writes the result of that element to
/// the same index of the other array.
fn is_paired(func: &TileFunc, from: Value, to: Value) -> bool {
    let uses = |p: Value| -> Vec<OpId> {
        func.walk().into_iter().filter(|&id| func.ops[id].operands.contains(&p)).collect()
    };
    let (&[load], &[store]) = (&uses(from)[..], &uses(to)[..]) else { return false };
    let (load, store) = (&func.ops[load], &func.ops[store]);
    load.code == TileOp::Load
        && store.code == TileOp::Store
        && load.block == func.body
        && store.block == func.body
        && load.group("at") == store.group("at")
        && load.group("other").is_empty()
        && store.group("mask").is_empty()
        && load.attr("extent") == store.attr("extent")
        && load.attr("step").is_none()
        && store.attr("step").is_none()
        && store.positional().get(1).is_some_and(|&v| is_made_of(func, v, load.result()))
        && is_read_first(func, load.result(), store)
}

/// Whether everything that is computed from a load is written together with `store`, or is in
/// memory before: a later write may load the elements again after they were overwritten.
fn is_read_first(func: &TileFunc, load: Value, store: &tessera_ir::Op<tessera_tile::Tile>) -> bool {
    let shape = |op: &tessera_ir::Op<tessera_tile::Tile>| {
        op.positional().get(1).map(|&v| func.ty(v).shape().to_vec())
    };
    let (mut list, mut seen) = (vec![load], BTreeSet::new());
    while let Some(v) = list.pop() {
        if !seen.insert(v) {
            continue;
        }
        for id in func.walk().into_iter().filter(|&id| func.ops[id].operands.contains(&v)) {
            let user = &func.ops[id];
            match user.code {
                TileOp::Store if shape(user) != shape(store) => return false,
                TileOp::Reduce | TileOp::Scan | TileOp::ArgReduce | TileOp::Mma => {}
                TileOp::ReduceBy | TileOp::ScanBy | TileOp::Sort | TileOp::Histogram => {}
                _ => list.extend(&user.results),
            }
        }
    }
    true
}

/// Whether each element of a tile is computed from that of another.
fn is_made_of(func: &TileFunc, value: Value, from: Value) -> bool {
    let (mut list, mut seen) = (vec![value], BTreeSet::new());
    while let Some(v) = list.pop() {
        if v == from {
            return true;
        }
        let Some(op) = func.def(v).filter(|_| seen.insert(v)) else { continue };
        if matches!(op.code, TileOp::Ew(_) | TileOp::Cast | TileOp::Select) {
            let alike = |o: &&Value| func.ty(**o).shape() == func.ty(v).shape();
            list.extend(op.operands.iter().filter(alike));
        }
    }
    false
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
                | TileOp::Slice
                | TileOp::Concat
                | TileOp::Take
                | TileOp::ReduceBy
                | TileOp::ScanBy
                | TileOp::Sort
                | TileOp::Histogram
                | TileOp::Mma
                | TileOp::For
                | TileOp::Gather
                | TileOp::Scatter
                | TileOp::Accumulate
        )
    });
    stores == 1 && apart
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paired(body: &str) -> bool {
        let text = format!(
            "func @k(%x: view<[8], f32, read>, %g: view<[4, 8], f32, read>, %y: view<[8], f32, write>, %z: view<[8], f32, write>, %h: view<[4, 8], f32, write>) {{kind = group, grid = [2]}} {{
  %p = tile.program_id {{axis = 0}} : i64
  %four = tile.const {{value = 4}} : i64
  %zero = tile.const {{value = 0}} : i64
  %at = tile.mul %p, %four : i64
  %a = tile.load %x at(%at) {{extent = [4]}} : tile<4xf32>
  %b = tile.load %g at(%zero, %at) {{extent = [4, 4]}} : tile<4x4xf32>
  %s = tile.reduce %b {{op = sum, axis = 0}} : tile<4xf32>
  %r = tile.add %a, %s : tile<4xf32>
{body}
  tile.return
}}"
        );
        let func = tessera_tile::parse(&text).unwrap_or_else(|e| panic!("{e}"));
        is_paired(&func, func.params()[0], func.params()[2])
    }

    #[test]
    fn an_element_is_written_where_it_was_read() {
        let other = "  tile.store %z, %s at(%at) {extent = [4]}\n";
        let there = "  tile.store %y, %r at(%at) {extent = [4]}\n";
        assert!(paired(&format!("{other}{there}")));
        // Beside what has another shape and is made of it too.
        let wide = "  %e = tile.expand %a {axis = 0} : tile<1x4xf32>\n  %f = tile.broadcast %e : tile<4x4xf32>\n  tile.store %h, %f at(%zero, %at) {extent = [4, 4]}\n";
        assert!(!paired(&format!("{there}{wide}")));
        // Somewhere else, or without the element, or read again.
        assert!(!paired(&format!("{other}  tile.store %y, %r at(%zero) {{extent = [4]}}\n")));
        assert!(!paired(&format!("{other}  tile.store %y, %s at(%at) {{extent = [4]}}\n")));
        let again = "  %c = tile.load %x at(%zero) {extent = [4]} : tile<4xf32>\n  tile.store %z, %c at(%at) {extent = [4]}\n";
        assert!(!paired(&format!("{there}{again}")));
    }
}
