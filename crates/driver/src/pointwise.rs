//! Whether a kernel is pointwise for two of its parameters (LANGUAGE 5): every access to both uses
//! the same index expression, and nothing is read after it was written. Then the same array may
//! stand for both.

use tessera_ir::{Attr, OpId};
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
        // In a loop, the next round would read what this one wrote.
        if in_loop(func, id) || (memory == read && was_written) {
            return false;
        }
        was_written |= memory == written && op.code != TileOp::Load && op.code != TileOp::Gather;
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

    #[test]
    fn one_index_for_both_is_pointwise_and_a_shifted_one_is_not() {
        assert!(is_pointwise(&kernel("%i"), 0, 1));
        assert!(!is_pointwise(&kernel("%j"), 0, 1));
    }
}
