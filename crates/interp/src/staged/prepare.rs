//! A function prepared to run: its Tile IR ops as the interpreter's own, and the participants of
//! each pipeline.

use super::pipeline::Seat;
use super::world::Sides;
use crate::fault::{Outcome, broken, fault};
use crate::prepare::{action_of, parameters};
use crate::program::{Arg, Inst, Program};
use std::collections::BTreeMap;
use tessera_diag::Code;
use tessera_ir::{Attr, Func, OpId, Value};
use tessera_staged::ops::roles::{RoleInfo, role_info, role_of};
use tessera_staged::{StagedFunc, StagedOp, kind_of, tile_alone};
use tessera_support::Entity;
use tessera_tile::{KernelKind, TileOp};

pub(super) struct Prepared<'f> {
    pub func: &'f StagedFunc,
    pub program: Program,
    pub insts: BTreeMap<OpId, Inst>,
    /// In the order of their ops; agent numbers count their replicas, from 1 on.
    pub roles: Vec<(OpId, RoleInfo)>,
    pub pipelines: BTreeMap<Value, Sides>,
}

pub(super) fn prepare(func: &StagedFunc) -> Outcome<Prepared<'_>> {
    if kind_of(func) != Some(KernelKind::Group) {
        let why = "a staged lane kernel is not supported by the interpreter: run its Tile IR";
        return Err(fault(Code::E_UNSUPPORTED, why, &func.loc));
    }
    let mut shell = Func::new(func.name.clone());
    shell.attrs.set("kind", Attr::word("group"));
    shell.loc = func.loc.clone();
    for &param in func.params() {
        shell.add_arg(shell.body, func.ty(param).clone(), func.name_of(param));
    }
    let mut program = parameters(&shell)?;
    program.slots = func.values.len();
    for (param, v) in program.params.iter_mut().zip(func.params()) {
        param.slot = v.index();
    }
    let mut insts = BTreeMap::new();
    let mut roles = Vec::new();
    for id in func.walk() {
        let op = &func.ops[id];
        match op.code {
            StagedOp::WarpRole => roles.push((id, role_info(func, id))),
            // Agents run control flow themselves.
            StagedOp::Tile(
                TileOp::For
                | TileOp::If
                | TileOp::While
                | TileOp::SlowPath
                | TileOp::Yield
                | TileOp::Return,
            ) => {}
            StagedOp::Tile(TileOp::ReduceBy | TileOp::ScanBy) => {
                let why = "combiners in Staged IR are not run by its interpreter: run Tile IR";
                return Err(fault(Code::E_UNSUPPORTED, why, &op.loc));
            }
            StagedOp::Tile(_) => {
                let (alone, at) = tile_alone(func, id).map_err(|why| broken(&why, &op.loc))?;
                let action = action_of(&mut program, &alone, at)?;
                let arg = |v: &Value| Arg { slot: v.index(), last: false };
                insts.insert(
                    id,
                    Inst {
                        action,
                        args: op.operands.iter().map(arg).collect(),
                        results: op.results.iter().map(|v| v.index()).collect(),
                        drops: Vec::new(),
                        elements: 0,
                        site: 0,
                        loc: op.loc.clone(),
                    },
                );
            }
            _ => {}
        }
    }
    let pipelines = sides(func, &roles);
    Ok(Prepared { func, program, insts, roles, pipelines })
}

/// The seats of a role: one for each replica, or one where they take tiles in turn.
pub(super) fn seats(role: usize, info: Option<&RoleInfo>) -> Vec<Seat> {
    let count = info.map_or(1, |r| if r.by_tiles { 1 } else { r.replicas });
    (0..count).map(|replica| Seat { role, replica }).collect()
}

/// Which roles fill and read each pipeline, by the ops there are. Role 0 is the block itself.
fn sides(func: &StagedFunc, roles: &[(OpId, RoleInfo)]) -> BTreeMap<Value, Sides> {
    let mut out: BTreeMap<Value, Sides> = BTreeMap::new();
    for id in func.walk() {
        let op = &func.ops[id];
        let fills = match op.code {
            StagedOp::Acquire => true,
            StagedOp::Wait => false,
            _ => continue,
        };
        let role = role_of(func, id);
        let place = roles.iter().position(|(r, _)| Some(*r) == role);
        let seats = seats(place.map_or(0, |p| p + 1), place.map(|p| &roles[p].1));
        let sides = out.entry(op.operands[0]).or_default();
        if fills { &mut sides.producers } else { &mut sides.consumers }.extend(seats);
    }
    out
}
