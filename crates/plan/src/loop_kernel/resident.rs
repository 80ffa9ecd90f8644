//! In-place updates of carried arrays: `t.at[i].set(v)`, `dynamic_update_slice`.
//!
//! As tiles these arrays would be copied whole in every iteration. They stay in memory of the group
//! instead: the iteration reads parts of the old array, and then one update is written over it.

use crate::class::axes_of;
use crate::index::dims_of;
use crate::scatter::in_place;
use std::collections::BTreeSet;
use tessera_graph::{GraphFunc, GraphOp, walk};
use tessera_ir::{Attr, BlockId, OpId, Value};

/// The most elements of such an array.
pub const LARGEST: i64 = 1 << 16;

pub struct Resident {
    /// Its index among the carried values.
    pub place: usize,
    pub update: OpId,
}

/// The arrays of a loop that stay in memory.
pub fn of(func: &GraphFunc, id: OpId) -> Vec<Resident> {
    let op = &func.ops[id];
    let carried = op.group("init").len();
    let Some(&body) = op.regions.last() else { return Vec::new() };
    let first = usize::from(op.code == GraphOp::Loop);
    let uses = walk::uses(func);
    let Some(end) = func.terminator(body) else { return Vec::new() };
    let mut out = Vec::new();
    for place in 0..carried {
        let arg = func.blocks[body].args[first + place];
        let yielded = func.ops[end].operands[place];
        let Some(update) = func.def_id(yielded).filter(|&u| func.ops[u].block == body) else {
            continue;
        };
        let ops = &func.blocks[body].ops;
        let at = |id: OpId| ops.iter().position(|&o| o == id);
        let changes = match func.ops[update].code {
            GraphOp::DynamicUpdateSlice => !dims_of(func, func.ops[update].operands[1]).is_empty(),
            GraphOp::Scatter => is_single(func, update),
            _ => false,
        };
        let before = |&(user, i): &(OpId, usize)| {
            user == update && i == 0
                || (func.ops[user].block == body
                    && reads_parts(func, user, i)
                    && matches!((at(user), at(update)), (Some(a), Some(b)) if a < b))
        };
        let tested = op.code != GraphOp::While || only_parts(func, &uses, op.regions[0], place);
        if changes
            && tested
            && func.ops[update].operands[0] == arg
            && uses[yielded].len() == 1
            && uses[arg].iter().all(before)
        {
            out.push(Resident { place, update });
        }
    }
    out
}

type Uses = tessera_support::SideTable<Value, Vec<(OpId, usize)>>;

/// Whether the condition of a loop reads only parts of a carried array.
fn only_parts(func: &GraphFunc, uses: &Uses, test: BlockId, place: usize) -> bool {
    let arg = func.blocks[test].args[place];
    uses[arg].iter().all(|&(user, i)| func.ops[user].block == test && reads_parts(func, user, i))
}

fn reads_parts(func: &GraphFunc, user: OpId, place: usize) -> bool {
    let code = func.ops[user].code;
    place == 0 && matches!(code, GraphOp::DynamicSlice | GraphOp::Gather | GraphOp::Slice)
}

/// The values of a loop, and of those inside it, that are such arrays: the carried ones and their updates.
pub fn all(func: &GraphFunc, id: OpId) -> BTreeSet<Value> {
    let mut out = BTreeSet::new();
    let mut add = |id: OpId| {
        let first = usize::from(func.ops[id].code == GraphOp::Loop);
        for one in of(func, id) {
            out.insert(func.ops[one.update].result());
            out.insert(func.ops[id].results[one.place]);
            for &region in &func.ops[id].regions {
                out.insert(func.blocks[region].args[first + one.place]);
            }
        }
    };
    let repeats = |id: OpId| matches!(func.ops[id].code, GraphOp::Loop | GraphOp::While);
    if repeats(id) {
        add(id);
    }
    for &region in &func.ops[id].regions {
        func.walk_block(region, &mut |inner| {
            if repeats(inner) {
                add(inner);
            }
        });
    }
    out
}

/// Whether a scatter writes one part of an array.
pub fn is_single(func: &GraphFunc, id: OpId) -> bool {
    let op = &func.ops[id];
    let batch = op.attr("batch").and_then(Attr::as_int).unwrap_or(0);
    let lead = dims_of(func, op.operands[1]);
    let rows: i64 = lead[..lead.len().saturating_sub(1)].iter().product();
    let count = lead.last() == Some(&(axes_of(func, id, "axes").len() as i64));
    in_place(func, id) && batch == 0 && rows == 1 && count && !lead.is_empty()
}
