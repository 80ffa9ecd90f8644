//! Teams: CTAs of a cluster that take neighbouring tiles walk the same grid in the same order. A
//! multicast load is the same for all of them, and executed equally often by each. A CTA that sends
//! to others waits until they have read it before it ends, so that no CTA accesses one that has
//! exited.

use crate::alike::{Alike, drained_by};
use crate::ops::roles::role_of;
use crate::ops::team::{Team, field_of, part_of, pipeline_of, shared_axes};
use crate::ops::tiles::order_of;
use crate::{Staged, StagedOp};
use std::collections::BTreeSet;
use tessera_ir::{Attr, Func, OpErrors};

pub(super) fn check(func: &Func<Staged>, errors: &mut OpErrors) {
    let all = func.walk();
    let tiles: Vec<_> =
        all.iter().copied().filter(|&o| func.ops[o].code == StagedOp::Tiles).collect();
    let cluster = func.attrs.get("cluster").and_then(Attr::as_ints);
    let blocks = cluster.map_or(1, |list| list.iter().product::<i64>());
    let team = Team::of(func);
    for &id in &tiles {
        errors.at_op(func, id);
        let Ok(order) = order_of(func, id) else { continue };
        if order.team.blocks() > 1 && i64::from(order.team.blocks()) != blocks {
            errors.structure(format!(
                "expected a team of all {blocks} blocks of a cluster, got {}",
                order.team.blocks()
            ));
        }
        let first = order_of(func, tiles[0]).unwrap_or_default();
        let grid = |o| func.ops[o].group("grid");
        if team.blocks() > 1 && (order != first || grid(id) != grid(tiles[0])) {
            errors.structure("expected all roles of a team to walk one grid in one order");
        }
    }
    let alike = Alike::new(func);
    let mut shared: Vec<(tessera_ir::Value, BTreeSet<usize>)> = Vec::new();
    for &id in all.iter().filter(|&&o| func.ops[o].attr("multicast").is_some()) {
        let op = &func.ops[id];
        errors.at_op(func, id);
        let axes = shared_axes(func, id);
        let said = op.attr("multicast").and_then(Attr::as_ints).unwrap_or_default();
        let sorted = axes.windows(2).all(|w| w[0] < w[1]) && axes.len() == said.len();
        if !sorted || axes.is_empty() || axes.iter().any(|&a| team.shape[a] < 2) {
            errors.structure(
                "expected `multicast` to name axes along which a team has several blocks",
            );
            continue;
        }
        // Parts are counted by one run of bits of the rank.
        let bits = team.bits(&axes);
        if !(bits >> bits.trailing_zeros()).wrapping_add(1).is_power_of_two() {
            errors.structure("expected `multicast` along adjacent axes");
        }
        let parts = 1 << bits.count_ones();
        if field_of(func, id).is_none_or(|shared| part_of(shared, parts).is_none()) {
            errors.structure(format!("expected a field that {parts} blocks can fill in parts"));
        }
        let Some(pipeline) = pipeline_of(func, id) else { continue };
        if role_of(func, id).is_none() || !drained_by(func, pipeline, role_of(func, id)) {
            errors.structure(
                "expected a role that drains the pipeline around a fill with `multicast`",
            );
        }
        if !alike.is(id, op.group("at"), &axes) {
            errors.structure(
                "expected a block that is the same for all neighbours of a cluster, got one that \
                 depends on which of them it is",
            );
        }
        match shared.iter_mut().find(|(r, _)| *r == pipeline) {
            Some((_, known)) => known.extend(axes),
            None => shared.push((pipeline, axes.into_iter().collect())),
        }
    }
    // Stages of such a pipeline advance together in all blocks.
    for (pipeline, axes) in shared {
        let axes: Vec<usize> = axes.into_iter().collect();
        for &id in &all {
            let op = &func.ops[id];
            let takes = matches!(op.code, StagedOp::Acquire | StagedOp::Wait);
            if takes && op.operands[0] == pipeline && !alike.is(id, &op.operands[1..2], &axes) {
                errors.at_op(func, id);
                errors.structure(
                    "expected all neighbours of a cluster to take equally many stages of a pipeline that \
                     they fill for each other",
                );
            }
        }
    }
}
