//! Resource limits: shared memory for all allocations and pipelines, and registers for the live
//! tiles. Registers are an estimate from layouts; the assembler adds scalars and addresses.

use crate::ops::roles::{role_info, role_of};
use crate::pressure::{Widest, widest};
use crate::{Staged, StagedOp};
use tessera_diag::Code;
use tessera_ir::{Attr, Func, OpErrors, Type};
use tessera_layout::Shared;

/// The bytes of shared memory after an allocation at `at`.
fn place(at: u64, layout: &Shared) -> u64 {
    at.next_multiple_of(layout.align().into()) + u64::from(layout.bytes())
}

/// The bytes of shared memory a function requests: its allocations and pipelines, each aligned.
/// Barriers are not in it, nor are buffers: those that are never in use together share memory.
pub fn shared_bytes(func: &Func<Staged>) -> u64 {
    let mut at = 0;
    for id in func.walk() {
        let op = &func.ops[id];
        if !matches!(op.code, StagedOp::SmemAlloc | StagedOp::PipelineCreate) {
            continue;
        }
        match func.ty(op.result()) {
            Type::Smem { layout, .. } => {
                let replicas = role_of(func, id).map_or(1, |r| role_info(func, r).replicas);
                at = (0..replicas.max(1)).fold(at, |at, _| place(at, layout));
            }
            Type::Pipeline { stages, fields } => {
                for _ in 0..*stages {
                    at = fields.iter().fold(at, |at, f| place(at, &f.layout));
                }
            }
            _ => {}
        }
    }
    at
}

/// The 32-bit registers of a thread that a tile takes: smaller elements are packed.
pub fn registers(ty: &Type) -> u64 {
    let elements = ty.layout().map_or(0, |l| u64::from(l.regs()));
    (elements * u64::from(ty.dtype().bits()).max(1)).div_ceil(32)
}

pub(super) fn check(func: &Func<Staged>, errors: &mut OpErrors) {
    let limit = func.attrs.get("smem").and_then(Attr::as_int);
    let needed = shared_bytes(func);
    if let Some(limit) = limit
        && needed > limit as u64
    {
        errors.push(
            Code::E_TILE_LOWERING,
            format!("expected at most {limit} bytes of shared memory, got {needed}"),
        );
    }
    let regs = func.attrs.get("regs").and_then(Attr::as_int);
    for Widest { role, registers, at } in widest(func) {
        let info = role.map(|r| role_info(func, r));
        let limit = info.as_ref().and_then(|r| r.regs).or(regs);
        if let Some(limit) = limit.filter(|&limit| registers > limit as u64) {
            errors.at_op(func, at);
            let who = info.map_or("a thread".into(), |r| format!("a thread of role `{}`", r.name));
            errors.push(
                Code::E_TILE_LOWERING,
                format!(
                    "expected tiles in at most {limit} registers of {who}, got about {registers}"
                ),
            );
        }
    }
}
