//! Who runs: ids of groups and lanes, the launch grid, the context.

use super::{Args, Handler::*, Rows, rows};
use crate::elab::Elab;
use crate::elab::val::Val;
use tessera_diag::Code;
use tessera_ir::{Attr, DimExpr, OpSpec, Type};
use tessera_numerics::ScalarFn;
use tessera_tile::{KernelKind, TileOp, launch_extent_of};

pub const ROWS: Rows = rows! {
    Lane "tile.linear_id" "(axis=None)" Call(linear_id),
        "The lane's index over the whole launch, from 0; along `axis` where lanes have several: `@ts.kernel(lanes=(16, 16))`.";
    Lane "tile.local_id" "(axis=None)" Call(local_id),
        "The lane's index in its group; along `axis` where lanes have several.";
    Lane "tile.thread_id" "(axis=None)" Call(local_id),
        "The lane's index in its group; along `axis` where lanes have several.";
    Lane "tile.lane_id" "()" Call(lane_id),
        "The lane's index in its warp. Not portable: warps have 16, 32 or 64 lanes; prefer ts.tile.group.";
    Lane "tile.warp_id" "()" Call(warp_id),
        "The warp's index in its group. Not portable: warps have 16, 32 or 64 lanes; prefer ts.tile.group.";
    Any "tile.group_size" "(axis=None)" Call(group_size), "How many lanes form a group, or are along an axis of it.";
    Any "tile.group_id" "(axis=0)" Call(group_id), "The group's coordinate along an axis of the grid.";
    Any "tile.block_id" "(axis=0)" Call(group_id), "The group's coordinate along an axis of the grid.";
    Any "tile.num_groups" "(axis=0)" Call(num_groups), "The extent of the grid along an axis.";
    Group "tile.program_id" "(axis)" Call(program_id), "The group's coordinate along an axis of the launch grid.";
    Group "tile.num_programs" "(axis)" Call(num_programs), "The extent of the launch grid along an axis.";
    Group "tile.grid" "(*extents)" Call(grid),
        "Sets the launch grid and gives the group's coordinates: `pm, pn = ts.tile.grid(ts.cdiv(M, BM), ts.cdiv(N, BN))`. \
         One extent gives a scalar.";
    Any "tile.context" "()" Call(context), "The tunables and dimensions of this configuration, as attributes.";
    Any "tile.create_mbarrier" "(count)" Reserved("barriers for asynchronous copies are made by the compiler"),
        "Reserved.";
    Any "tile.create_tma_descriptor" "(tensor)" Reserved("bulk copies are chosen by the compiler; use ts.tile.cp_async"),
        "Reserved.";
    Any "tile.tma_load_async" "(dst, src)" Reserved("bulk copies are chosen by the compiler; use ts.tile.cp_async"),
        "Reserved.";
    Any "tile.tma_store_async" "(dst, src)" Reserved("bulk copies are chosen by the compiler; assign to the slice"),
        "Reserved.";
    Any "tile.fence" "()" Reserved("memory order comes from the program; use ts.tile.barrier in lane kernels"),
        "Reserved.";
};

fn index(e: &mut Elab<'_>, spec: OpSpec<tessera_tile::Tile>) -> Val {
    match e.b().value(spec.result(Type::INDEX)) {
        Ok(v) => Val::Rt(v),
        Err(_) => Val::Poison,
    }
}

fn linear_id(e: &mut Elab<'_>, args: &mut Args) -> Val {
    lane_index(e, args, TileOp::LinearId, "linear_id")
}

fn local_id(e: &mut Elab<'_>, args: &mut Args) -> Val {
    lane_index(e, args, TileOp::LocalId, "local_id")
}

/// An index of the lane. Which axis it is along must be said where there are several.
fn lane_index(e: &mut Elab<'_>, args: &Args, code: TileOp, name: &str) -> Val {
    let axes = e.decl.lanes.len().max(1);
    if axes > 1 && !args.has("axis") {
        return e.error_help(
            Code::E_ARGUMENT,
            format!("expected the axis of ts.tile.{name}: the kernel's lanes have {axes} axes"),
            format!(
                "write ts.tile.{name}({}); ts.tile.group.rank is the lane's number in its group, the last axis fastest",
                axes - 1
            ),
        );
    }
    let mut spec = OpSpec::new(code, &[]);
    if args.has("axis") {
        let Some(axis) = lane_axis(e, args) else { return Val::Poison };
        if axes > 1 {
            spec = spec.attr("axis", Attr::Int(axis));
        }
    }
    index(e, spec)
}

/// An axis of the lanes, reported where there is no such one.
fn lane_axis(e: &mut Elab<'_>, args: &Args) -> Option<i64> {
    let axes = e.decl.lanes.len().max(1) as i64;
    let axis = args.get("axis").as_const_int().filter(|a| (0..axes).contains(a));
    if axis.is_none() {
        let what = e.describe(&args.get("axis"));
        let (wanted, help) = match axes {
            1 => (
                "axis 0, for the lanes have one".to_string(),
                "lanes with two axes: `@ts.kernel(lanes=(16, 16))`",
            ),
            axes => (
                format!("an axis of the lanes from 0 to {}", axes - 1),
                "write a compile-time integer: ts.tile.linear_id(0)",
            ),
        };
        e.error_help(Code::E_ARGUMENT, format!("expected {wanted}, got {what}"), help);
    }
    axis
}

fn in_warps(e: &mut Elab<'_>, f: ScalarFn) -> Val {
    let local = index(e, OpSpec::new(TileOp::LocalId, &[]));
    let width = index(e, OpSpec::new(TileOp::WarpSize, &[]));
    e.apply(f, &[local, width])
}

fn lane_id(e: &mut Elab<'_>, _: &mut Args) -> Val {
    in_warps(e, ScalarFn::Mod)
}

fn warp_id(e: &mut Elab<'_>, _: &mut Args) -> Val {
    in_warps(e, ScalarFn::FloorDiv)
}

fn group_size(e: &mut Elab<'_>, args: &mut Args) -> Val {
    if args.has("axis") {
        let Some(axis) = lane_axis(e, args) else { return Val::Poison };
        if let Some(&extent) = e.decl.lanes.get(axis as usize).filter(|_| e.decl.lanes.len() > 1) {
            return Val::Dim(DimExpr::Const(extent));
        }
    }
    index(e, OpSpec::new(TileOp::GroupSize, &[]))
}

fn group_id(e: &mut Elab<'_>, args: &mut Args) -> Val {
    along(e, args, TileOp::ProgramId)
}

fn num_groups(e: &mut Elab<'_>, args: &mut Args) -> Val {
    along(e, args, TileOp::NumPrograms)
}

/// Along an axis of the grid, or the first where none is given.
fn along(e: &mut Elab<'_>, args: &Args, code: TileOp) -> Val {
    let axis = if args.has("axis") { axis(e, args) } else { Some(0) };
    match axis {
        Some(a) => index(e, OpSpec::new(code, &[]).attr("axis", Attr::Int(a))),
        None => Val::Poison,
    }
}

fn axis(e: &mut Elab<'_>, args: &Args) -> Option<i64> {
    if e.kind == KernelKind::Lane {
        return lane_axis(e, args);
    }
    let axis = args.get("axis").as_const_int().filter(|a| (0..3).contains(a));
    if axis.is_none() {
        let what = e.describe(&args.get("axis"));
        e.error_help(
            Code::E_ARGUMENT,
            format!("expected a grid axis of 0, 1 or 2, got {what}"),
            "write a compile-time integer: ts.tile.program_id(0)",
        );
    }
    axis
}

fn program_id(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(a) = axis(e, args) else { return Val::Poison };
    index(e, OpSpec::new(TileOp::ProgramId, &[]).attr("axis", Attr::Int(a)))
}

fn num_programs(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(a) = axis(e, args) else { return Val::Poison };
    index(e, OpSpec::new(TileOp::NumPrograms, &[]).attr("axis", Attr::Int(a)))
}

fn grid(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let given: Vec<Val> = args.rest.iter().map(|g| g.value.clone()).collect();
    if given.is_empty() || given.len() > 3 {
        return e.error_help(
            Code::E_ARGUMENT,
            format!("expected 1 to 3 grid extents, got {}", given.len()),
            "a grid has up to three axes: fold more into one and take it apart with // and %",
        );
    }
    if e.func.attrs.get("grid").is_some() {
        return e.error_help(
            Code::E_LAUNCH_GEOMETRY,
            "expected one call of ts.tile.grid, got a second",
            "name every axis in one call: pm, pn = ts.tile.grid(ts.cdiv(M, 16), ts.cdiv(N, 16))",
        );
    }
    let mut extents = Vec::new();
    for v in &given {
        let Some(value) = e.index_value(v) else { return Val::Poison };
        match launch_extent_of(&e.func, value) {
            Some(expr) => extents.push(expr),
            None => {
                let what = e.describe(v);
                return e.error_help(
                    Code::E_LAUNCH_GEOMETRY,
                    format!("expected a grid extent that the host can compute, got {what}"),
                    "use dimensions, integer parameters and ts.cdiv: ts.tile.grid(ts.cdiv(M, BM))",
                );
            }
        }
    }
    let count = extents.len();
    e.func.attrs.set("grid", Attr::exprs(extents));
    let ids: Vec<Val> = (0..count as i64)
        .map(|a| index(e, OpSpec::new(TileOp::ProgramId, &[]).attr("axis", Attr::Int(a))))
        .collect();
    if count == 1 { ids[0].clone() } else { Val::Tuple(ids) }
}

fn context(_: &mut Elab<'_>, _: &mut Args) -> Val {
    Val::Context
}
