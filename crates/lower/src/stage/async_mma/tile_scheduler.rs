//! Persistent loop (CUTLASS's persistent tile scheduler): a CTA computes one group of the launch
//! after another.
//!
//! Input: a valid function for one group. Output: the same in a loop op (`tiles`) that gives it the
//! group's coordinates. Ops that do not depend on the coordinates stay before the loop. Where the
//! schedule says that all groups of a launch are resident (`persistent = false`), each CTA takes
//! one group. Then raster order and overlapped epilogue do not apply.

use tessera_ir::{Attr, Attrs, BlockId, OpId, OpSpec, Rewriter, Type, Value};
use tessera_staged::{Staged, StagedBuild, StagedFunc, StagedOp};
use tessera_tile::TileOp;

/// The config key.
const PERSISTENT: &str = "persistent";

/// Whether each CTA takes one group.
pub fn is_alone(attrs: &Attrs) -> bool {
    let config = attrs.get("config").and_then(Attr::as_dict);
    config.and_then(|c| c.get(PERSISTENT)).and_then(Attr::as_bool) == Some(false)
}

pub fn tiles(func: &StagedFunc) -> StagedFunc {
    let mut rw = Rewriter::new(func);
    let (body, loc) = (rw.new.body, func.loc.clone());
    let axes = func.attrs.get("grid").and_then(Attr::as_list).map_or(3, |l| l.len().clamp(1, 3));
    let mut build = rw.builder(body, loc.clone());
    let extents: Vec<Value> = (0..axes)
        .map(|axis| {
            let spec = OpSpec::new(StagedOp::Tile(TileOp::NumPrograms), &[])
                .attr("axis", Attr::Int(axis as i64));
            build.one(spec, Type::INDEX)
        })
        .collect();
    // Constants, sizes and memory come first: the loop is the last op before the end.
    let all = &func.blocks[func.body].ops;
    let once: Vec<OpId> = all.iter().copied().filter(|&id| is_once(func, id)).collect();
    let mut outside = std::collections::BTreeSet::new();
    for &id in &once {
        let ready = func.ops[id].operands.iter().all(|&v| rw.is_mapped(v));
        if ready {
            rw.copy_op(id, body);
            outside.insert(id);
        }
    }
    let mut build = rw.builder(body, loc.clone());
    let spec = OpSpec::new(StagedOp::Tiles, &[]).group("grid", &extents);
    let order = if is_alone(&func.attrs) { "once" } else { "static" };
    let spec = spec.attr("order", Attr::word(order)).results(Vec::new());
    let new = build.op(spec).expect("it has no results");
    let block = rw.new.ops[new].regions[0];
    let ids: Vec<Value> = (0..axes)
        .map(|axis| rw.new.add_arg(block, Type::INDEX, Some(&format!("p{axis}"))))
        .collect();
    for &id in all {
        if !outside.contains(&id) {
            emit(&mut rw, &ids, id, block);
        }
    }
    rw.builder(block, loc.clone()).yield_(&[]);
    rw.builder(body, loc).return_();
    rw.new
}

/// Whether an op gives the same result for every group, provided its operands do.
pub fn is_once(func: &StagedFunc, id: OpId) -> bool {
    let op = &func.ops[id];
    let scalar = op.results.iter().all(|&v| matches!(func.ty(v), Type::Scalar(_)));
    match op.code {
        StagedOp::SmemAlloc => true,
        StagedOp::Tile(code) => {
            scalar
                && matches!(
                    code,
                    TileOp::Const
                        | TileOp::Dim
                        | TileOp::NumPrograms
                        | TileOp::Ew(_)
                        | TileOp::Cast
                        | TileOp::Select
                )
        }
        _ => false,
    }
}

fn emit(rw: &mut Rewriter<'_, Staged>, ids: &[Value], id: OpId, into: BlockId) {
    let op = &rw.old.ops[id];
    match op.code {
        StagedOp::Tile(TileOp::Return) => {}
        StagedOp::Tile(TileOp::ProgramId) => {
            let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
            let value = match ids.get(axis) {
                Some(&id) => id,
                None => rw.builder(into, op.loc.clone()).index(0),
            };
            rw.set(op.result(), value);
        }
        _ => {
            rw.copy_op_with(id, into, &mut |rw, inner, block| emit(rw, ids, inner, block));
        }
    }
}
