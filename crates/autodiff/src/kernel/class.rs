//! Which kernels have a derivative (LANGUAGE 15): pointwise ones (K1), rows (K2), sums of
//! contributions over loops with a K2 epilogue (K3). Everything else is refused at its line, with
//! the reason.

use super::study::Study;
use tessera_diag::{Code, Diagnostic, Loc};
use tessera_ir::{Attr, OpId, Opcode, Privilege, Type, Value};
use tessera_numerics::ReduceOp;
use tessera_tile::{KernelKind, Tile, TileOp, kind_of, lane_axes};

#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Direction {
    Forward,
    Reverse,
}

/// Says why a kernel has no derivative of its own.
pub fn refusal(name: &str, why: &str, loc: &Loc) -> Diagnostic {
    let message = format!("expected a kernel that can be differentiated, got @{name}, which {why}");
    Diagnostic::new(Code::E_UNSUPPORTED, message).at(loc.clone()).help(
        "give the call a derivative of its own with `ts.custom_vjp`, or hold it still with \
         `ts.stop_gradient`",
    )
}

fn param_name<'a>(study: &'a Study<'_>, v: Value) -> &'a str {
    study.func.name_of(v).unwrap_or("an array")
}

/// Checks all active ops.
pub fn judge(study: &Study<'_>, how: Direction) -> Result<(), Diagnostic> {
    for id in study.func.walk() {
        if let Some(why) = objection(study, id, how) {
            return Err(refusal(&study.func.name, &why, &study.func.ops[id].loc));
        }
    }
    for (&param, ids) in &study.stores {
        if let Some((id, why)) = written(study, param, ids, how) {
            return Err(refusal(&study.func.name, &why, &study.func.ops[id].loc));
        }
    }
    Ok(())
}

#[deny(clippy::wildcard_enum_match_arm)]
fn objection(study: &Study<'_>, id: OpId, how: Direction) -> Option<String> {
    let op = &study.func.ops[id];
    let mnemonic = || format!("`tile.{}`", Opcode::<Tile>::mnemonic(op.code));
    let moved = study.any(&op.operands) || study.any(&op.results);
    if !moved {
        return None;
    }
    let reduce = || op.attr("op").and_then(Attr::as_word).and_then(ReduceOp::from_name);
    let reverse = how == Direction::Reverse;
    match op.code {
        // Their rules are in `rules.rs`; each has one.
        TileOp::Ew(_)
        | TileOp::Select
        | TileOp::Cast
        | TileOp::Reshape
        | TileOp::Transpose
        | TileOp::Broadcast
        | TileOp::Expand
        | TileOp::Slice
        | TileOp::Concat
        | TileOp::Mma => None,
        // They have no derivative by nature, or do nothing to values.
        TileOp::Const
        | TileOp::Iota
        | TileOp::ArgReduce
        | TileOp::Histogram
        | TileOp::Owned
        | TileOp::Philox
        | TileOp::ProgramId
        | TileOp::NumPrograms
        | TileOp::LinearId
        | TileOp::LocalId
        | TileOp::GroupSize
        | TileOp::WarpSize
        | TileOp::Dim
        | TileOp::Origin
        | TileOp::Print
        | TileOp::Assert
        | TileOp::If
        | TileOp::Yield
        | TileOp::Return
        | TileOp::Barrier
        | TileOp::CopyCommit
        | TileOp::CopyWait => None,
        // Made by passes for a target, after kernels are differentiated.
        TileOp::SlowPath => Some("has a slow path for rows of what is differentiated".into()),
        TileOp::Bitcast => Some(format!("has {} of what is differentiated", mnemonic())),
        TileOp::Reduce => match reduce() {
            Some(ReduceOp::Prod) => Some("multiplies the elements of a row together".into()),
            _ => None,
        },
        TileOp::Scan => match reduce() {
            Some(ReduceOp::Sum) => None,
            _ => Some("has a running result that is no sum".into()),
        },
        TileOp::Load | TileOp::Store | TileOp::Accumulate
            if matches!(study.func.ty(op.operands[0]), Type::Buf { .. }) =>
        {
            Some("keeps what is differentiated in a shared buffer that is not a value".into())
        }
        TileOp::BufAlloc | TileOp::CopyAsync => {
            Some("keeps what is differentiated in a shared buffer that is not a value".into())
        }
        TileOp::Load | TileOp::Store => None,
        TileOp::Accumulate => match reduce() {
            Some(ReduceOp::Sum) => None,
            _ => Some("folds with another operator than a sum".into()),
        },
        TileOp::Sort | TileOp::Take => None,
        // What is left of them is not of elementwise ops (`combine.rs`).
        TileOp::ReduceBy | TileOp::ScanBy if reverse => {
            Some("combines elements by a function that is not elementwise".into())
        }
        TileOp::ReduceBy | TileOp::ScanBy => None,
        // Where a text has another meaning, that is there in its place (`asm.rs`).
        TileOp::Asm => Some("runs assembly text that has no `otherwise=` to differentiate".into()),
        TileOp::AsmEffect => {
            Some("runs assembly text with effects over what is differentiated".into())
        }
        TileOp::Gather => Some("gathers elements by a tile of positions".into()),
        TileOp::Scatter => Some("scatters elements by a tile of positions".into()),
        TileOp::Atomic => Some("changes memory by `tile.atomic`".into()),
        TileOp::GroupReduce | TileOp::GroupScan | TileOp::GroupBroadcast | TileOp::GroupShuffle => {
            Some(format!("combines lanes by {}", mnemonic()))
        }
        TileOp::While if reverse => {
            Some("has `while` over what is differentiated: how often it runs is not known".into())
        }
        TileOp::While => None,
        TileOp::For if reverse => {
            let place = (0..op.results.len())
                .find(|&i| study.active[op.results[i]] && !study.is_sum(id, i))?;
            let name = study.func.name_of(op.results[place]).unwrap_or("a value");
            let name = name.split('.').next().unwrap_or(name);
            Some(format!(
                "carries `{name}` from iteration to iteration in another way than adding to it"
            ))
        }
        TileOp::For => None,
    }
}

/// What is written must be written once by each group or lane, and not read back.
fn written(
    study: &Study<'_>,
    param: Value,
    ids: &[OpId],
    how: Direction,
) -> Option<(OpId, String)> {
    let func = study.func;
    let Type::View { privilege, .. } = func.ty(param) else { return None };
    let moved = study.active[param] || ids.iter().any(|&id| study.active[func.ops[id].operands[1]]);
    if !moved {
        return None;
    }
    let name = param_name(study, param);
    let order = func.walk();
    let place = |id: OpId| order.iter().position(|&o| o == id);
    for &load in study.list(&study.loads, param) {
        for &store in ids {
            // A loop around both reads in a later iteration what an earlier one wrote.
            let (a, b) = (study.around(func.ops[load].block), study.around(func.ops[store].block));
            let looped = a.iter().any(|id| b.contains(id) && func.ops[*id].code != TileOp::If);
            if looped || place(load) > place(store) {
                return Some((load, format!("reads `{name}` again after it was written")));
            }
        }
    }
    if how == Direction::Forward {
        return None;
    }
    if *privilege == Privilege::ReadWrite {
        let keys: Vec<_> = ids.iter().filter_map(|&id| study.key(id)).collect();
        for &load in study.list(&study.loads, param) {
            if study.key(load).is_none_or(|k| !keys.contains(&k)) {
                let why = format!("reads `{name}` elsewhere than where it writes it");
                return Some((load, why));
            }
        }
    }
    for &id in ids {
        let op = &func.ops[id];
        let Some(key) = study.key(id) else { continue };
        for around in study.around(op.block) {
            if func.ops[around].code != TileOp::If && !study.parts_in(&key, around) {
                return Some((
                    id,
                    format!("may write an element of `{name}` in several iterations"),
                ));
            }
        }
        let looped = study.around(op.block).iter().any(|o| func.ops[*o].code == TileOp::For);
        for &other in ids.iter().filter(|_| looped) {
            if study.key(other).is_none_or(|k| !Study::apart_or_same(&key, &k)) {
                return Some((
                    other,
                    format!("may write an element of `{name}` in several iterations"),
                ));
            }
        }
        let lanes = kind_of(func) == Some(KernelKind::Lane);
        let axes = lane_axes(func);
        let shared = |&axis: &usize| !op.group("at").iter().any(|&v| study.by_lane(v, axis));
        if let Some(axis) = (0..axes).find(shared).filter(|_| lanes) {
            let which = if axes == 1 { String::new() } else { format!(" along axis {axis}") };
            return Some((
                id,
                format!("lets every lane{which} write the same element of `{name}`"),
            ));
        }
    }
    None
}
