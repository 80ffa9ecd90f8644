//! Warp roles: which warps do what.

use crate::{Staged, StagedOp};
use std::collections::BTreeSet;
use tessera_ir::{Attr, Func, OpErrors, OpId};
use tessera_tile::TileOp;

/// What the replicas of a role may divide.
pub const PARTS: [&str; 3] = ["rows", "cols", "tiles"];

/// A role's attributes, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleInfo {
    pub name: String,
    pub warps: i64,
    pub replicas: i64,
    /// Whether the replicas take whole tiles in turn.
    pub by_tiles: bool,
    pub regs: Option<i64>,
    pub one_thread: bool,
}

pub fn role_info(func: &Func<Staged>, id: OpId) -> RoleInfo {
    let op = &func.ops[id];
    let int = |name: &str| op.attr(name).and_then(Attr::as_int);
    let word = |name: &str| op.attr(name).and_then(Attr::as_word);
    RoleInfo {
        name: word("name").unwrap_or_default().to_string(),
        warps: int("warps").unwrap_or(1),
        replicas: int("replicas").unwrap_or(1),
        by_tiles: word("part") == Some("tiles"),
        regs: int("regs"),
        one_thread: op.attr("one_thread").and_then(Attr::as_bool).unwrap_or(false),
    }
}

/// The role around an op, if there is one.
pub fn role_of(func: &Func<Staged>, id: OpId) -> Option<OpId> {
    let block = func.ops[id].block;
    func.ancestors(block).into_iter().find(|&o| func.ops[o].code == StagedOp::WarpRole)
}

pub fn verify_roles(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    if func.blocks[op.block].parent.is_some() {
        errors.structure("expected `roles` in the body of the function");
    }
    let mut names = BTreeSet::new();
    let mut warps = 0;
    for &inner in &func.blocks[op.regions[0]].ops {
        match func.ops[inner].code {
            StagedOp::WarpRole => {
                let role = role_info(func, inner);
                warps += role.warps.saturating_mul(role.replicas);
                if !names.insert(role.name.clone()) {
                    errors.structure(format!("expected one role `{}`, got two", role.name));
                }
            }
            StagedOp::Tile(TileOp::Yield) => {}
            code => {
                let name = tessera_ir::Opcode::mnemonic(code);
                errors.structure(format!("expected only roles in `roles`, got `staged.{name}`"));
            }
        }
    }
    if names.is_empty() {
        errors.structure("expected at least one role");
    }
    if let Some(threads) = func.attrs.get("threads").and_then(Attr::as_int)
        && threads != warps.saturating_mul(32)
    {
        errors.structure(format!(
            "expected roles of {} warps for {threads} threads, got {warps}",
            threads / 32
        ));
    }
}

pub fn verify_role(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let around = func.blocks[op.block].parent.map(|o| func.ops[o].code);
    if around != Some(StagedOp::WarpSpecialize) {
        errors.structure("expected `roles` around a role");
    }
    let role = role_info(func, id);
    if role.warps < 1 || role.replicas < 1 {
        errors.structure("expected `warps` and `replicas` of 1 or more");
    }
    if let Some(part) = op.attr("part").and_then(Attr::as_word)
        && !PARTS.contains(&part)
    {
        errors.structure(format!("expected `part` among {}, got {part}", PARTS.join(" ")));
    }
    if role.regs.is_some_and(|r| !(24..=256).contains(&r) || r % 8 != 0) {
        errors.structure("expected `regs` of 24 to 256, a multiple of 8");
    }
}

pub fn verify_replica(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    if role_of(func, id).is_none() {
        errors.structure("expected a role around `replica`");
    }
}
