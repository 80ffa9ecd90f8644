//! Whether a kernel is pointwise for two of its parameters (LANGUAGE 5): every access to both uses
//! the same index expression, nothing is read after it was written, and what is written is computed
//! from elements at their own positions. Then the same array may stand for both.

use std::collections::BTreeSet;
use tessera_ir::{Attr, Effects, OpId, Opcode};
use tessera_tile::{Linear, TileFunc, TileOp, linear_of};

/// One access: the positions as linear forms, the extents and the steps.
#[derive(PartialEq)]
struct Access {
    at: Vec<Linear>,
    extent: Option<Vec<i64>>,
    step: Option<Vec<i64>>,
}

/// `read` and `written` are places among the parameters of `func`.
pub fn is_pointwise(func: &TileFunc, read: usize, written: usize) -> bool {
    let [read, written] = [func.params()[read], func.params()[written]];
    let mut first: Option<Access> = None;
    let mut was_written = false;
    let (mut loads, mut writes) = (Vec::new(), Vec::new());
    for id in func.walk() {
        let op = &func.ops[id];
        let Some(&memory) = op.operands.iter().find(|v| **v == read || **v == written) else {
            continue;
        };
        let Some(access) = access(func, id) else { return false };
        if first.get_or_insert_with(|| Access {
            at: access.at.clone(),
            extent: access.extent.clone(),
            step: access.step.clone(),
        }) != &access
        {
            return false;
        }
        // In a loop, the next iteration would read what this one wrote.
        if in_loop(func, id) || (memory == read && was_written) {
            return false;
        }
        if memory == written && op.code != TileOp::Load && op.code != TileOp::Gather {
            was_written = true;
            writes.push(id);
        } else if memory == read {
            loads.push(id);
        }
    }
    loads.iter().all(|&load| writes.iter().all(|&write| is_in_step(func, load, write)))
}

/// Whether a write finds the elements of a tile only at their own positions, and nothing is computed from them after
/// it. Compiled code reads a tile where it is used.
#[deny(clippy::wildcard_enum_match_arm)]
fn is_in_step(func: &TileFunc, load: OpId, write: OpId) -> bool {
    use TileOp::*;
    if func.ty(func.ops[load].result()).rank() == 0 {
        return true;
    }
    let block = func.ops[write].block;
    if func.ops[load].block != block {
        return false;
    }
    let ops = &func.blocks[block].ops;
    // Where in the write's block an op stands, or the op around it.
    let place = |id: OpId| {
        let around = func.ancestors(func.ops[id].block);
        [id].iter().chain(&around).find_map(|id| ops.iter().position(|o| o == id))
    };
    let Some(last) = place(write) else { return false };
    let shape = |id: OpId| func.ops[id].positional().get(1).map(|&v| func.ty(v).shape().to_vec());
    // Of one shape, and nothing but expressions between the two: these are written together.
    let together = |id: OpId| {
        let quiet = |o: &OpId| {
            func.ops[*o].code == Store && shape(*o) == shape(write)
                || func.ops[*o].code.info().effects == Effects::Pure
        };
        func.ops[id].code == Store
            && shape(id) == shape(write)
            && place(id).is_some_and(|at| at > last && ops[last + 1..at].iter().all(quiet))
    };
    let (mut list, mut seen) = (vec![(func.ops[load].result(), true)], BTreeSet::new());
    while let Some((v, straight)) = list.pop() {
        if !seen.insert((v, straight)) {
            continue;
        }
        for id in func.walk().into_iter().filter(|&id| func.ops[id].operands.contains(&v)) {
            let op = &func.ops[id];
            match op.code {
                Ew(_) | Select | Cast | Bitcast | Asm => {
                    list.extend(op.results.iter().map(|&r| (r, straight)));
                }
                Transpose | Broadcast | Expand | Reshape | Gather | Philox | Slice | Concat
                | Take => list.extend(op.results.iter().map(|&r| (r, false))),
                _ if id == write => {
                    if !straight {
                        return false;
                    }
                }
                For | If | While | Yield | Return | SlowPath | ProgramId | NumPrograms
                | LinearId | LocalId | GroupSize | WarpSize | Dim | Origin | Const | Iota
                | Load | Store | Scatter | Accumulate | BufAlloc | CopyAsync | Barrier | Atomic
                | CopyCommit | CopyWait | Mma | GroupReduce | GroupScan | GroupBroadcast
                | GroupShuffle | Print | Assert | Reduce | Scan | ArgReduce | ReduceBy | ScanBy
                | Sort | Histogram | Owned | AsmEffect => {
                    let before = place(id).is_some_and(|at| at < last);
                    if !(before || straight && together(id)) {
                        return false;
                    }
                }
            }
        }
    }
    true
}

/// `None` for an access whose positions cannot be compared.
fn access(func: &TileFunc, id: OpId) -> Option<Access> {
    let op = &func.ops[id];
    match op.code {
        TileOp::Load | TileOp::Store | TileOp::Accumulate => Some(Access {
            at: op.group("at").iter().map(|&v| linear_of(func, v)).collect(),
            extent: op.attr("extent").and_then(Attr::as_ints),
            step: op.attr("step").and_then(Attr::as_ints),
        }),
        _ => None,
    }
}

fn in_loop(func: &TileFunc, id: OpId) -> bool {
    let outer = func.ancestors(func.ops[id].block);
    outer.iter().any(|&op| matches!(func.ops[op].code, TileOp::For | TileOp::While))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(index: &str) -> TileFunc {
        tessera_tile::parse(&format!(
            "func @f(%x: view<[n], f32, read>, %y: view<[n], f32, write>) {{kind = lane}} {{
               %i = tile.linear_id : i64
               %one = tile.const {{value = 1}} : i64
               %j = tile.add %i, %one : i64
               %v = tile.load %x at(%i) {{extent = [0]}} : f32
               tile.store %y, %v at({index}) {{extent = [0]}}
               tile.return
             }}"
        ))
        .unwrap()
    }

    fn group(body: &str) -> TileFunc {
        tessera_tile::parse(&format!(
            "func @f(%x: view<[8, 8], f32, read>, %y: view<[8, 8], f32, write>, %z: view<[8], f32, write>) {{kind = group}} {{
               %o = tile.const {{value = 0}} : i64
               %a = tile.load %x at(%o, %o) {{extent = [8, 8]}} : tile<8x8xf32>
               {body}
               tile.return
             }}"
        ))
        .unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn elements_move_nowhere_and_are_used_before_they_are_written() {
        let sums = "%s = tile.reduce %a {op = sum, axis = 1} : tile<8xf32>\n";
        let rows = "tile.store %z, %s at(%o) {extent = [8]}\n";
        let store = "tile.store %y, %b at(%o, %o) {extent = [8, 8]}\n";
        let turned = "%b = tile.transpose %a {perm = [1, 0]} : tile<8x8xf32>\n";
        let doubled = "%b = tile.add %a, %a : tile<8x8xf32>\n";
        let scaled = "%e = tile.expand %s {axis = 1} : tile<8x1xf32>\n%f = tile.broadcast %e : tile<8x8xf32>\n%b = tile.mul %a, %f : tile<8x8xf32>\n";
        assert!(is_pointwise(&group(&format!("{doubled}{store}")), 0, 1));
        assert!(is_pointwise(&group(&format!("{sums}{rows}{scaled}{store}")), 0, 1));
        assert!(!is_pointwise(&group(&format!("{turned}{store}")), 0, 1));
        assert!(!is_pointwise(&group(&format!("{doubled}{store}{sums}{rows}")), 0, 1));
    }

    #[test]
    fn one_index_for_both_is_pointwise_and_a_shifted_one_is_not() {
        assert!(is_pointwise(&kernel("%i"), 0, 1));
        assert!(!is_pointwise(&kernel("%j"), 0, 1));
    }
}
