//! Thread block clusters with TMA multicast: the CTAs of a cluster take neighbouring tiles and load
//! what they have in common once.
//!
//! `spread` runs before the overlapped epilogue. Input: a valid function with one loop over groups
//! whose results are stored as blocks. Output: the loop gives the CTAs of a cluster neighbouring
//! groups along some axes. Where the grid ends inside a cluster, the remaining CTAs compute the
//! last group again, because the others need their part of the multicast loads. Their stores start
//! before the array's first position, where nothing is written.
//!
//! `share` runs after warp specialization. A TMA load that is the same for all neighbours along an
//! axis is cut into parts. Each CTA loads one part and multicasts it to all of them.

use super::super::{Off, Staging, Step};
use super::Refusal;
use std::collections::BTreeSet;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{Attr, Attrs, BlockId, OpId, Rewriter, Value};
use tessera_numerics::ScalarFn;
use tessera_staged::ops::team::{Team, field_of, part_of, pipeline_of};
use tessera_staged::{Alike, Staged, StagedBuild, StagedFunc, StagedOp, drained_by};
use tessera_tile::{TileFunc, TileOp};

/// Config keys for the cluster shape: CTAs along the first axis of the grid and along the second.
pub const FIELDS: [&str; 2] = ["cluster_m", "cluster_n"];

fn config(attrs: &Attrs) -> Option<&Attrs> {
    attrs.get("config").and_then(Attr::as_dict)
}

/// The requested cluster shape, along each axis of the launch's grid.
pub fn pinned(func: &TileFunc, staging: &Staging<'_>) -> Result<Option<[u32; 3]>, Diagnostics> {
    let mut shape = [1; 3];
    let mut any = false;
    for (axis, name) in FIELDS.into_iter().enumerate() {
        let Some(n) = config(&func.attrs).and_then(|c| c.get(name)).and_then(Attr::as_int) else {
            continue;
        };
        any = true;
        shape[axis] = u32::try_from(n).ok().filter(|n| n.is_power_of_two()).ok_or_else(|| {
            let why = format!("expected `{name}` to be 1, 2, 4 or 8, got {n}");
            wrong(func, why)
        })?;
    }
    let (all, most) = (shape.iter().product::<u32>(), staging.caps.max_cluster.max(1));
    if all > most {
        let why = format!("expected a cluster of at most {most} blocks, got {all}");
        return Err(wrong(func, why));
    }
    Ok(any.then_some(shape))
}

fn wrong(func: &TileFunc, why: String) -> Diagnostics {
    let error = Diagnostic::new(Code::E_ARGUMENT, why).at(func.loc.clone());
    error.help("leave it out, or give the blocks of a cluster that take neighbouring groups").into()
}

/// The loop over groups, and the axis of the launch's grid that each of its axes is.
fn loop_of(func: &StagedFunc) -> Option<(OpId, Vec<usize>)> {
    let tiles = func.walk().into_iter().find(|&id| func.ops[id].code == StagedOp::Tiles)?;
    let axis = |&v: &Value| {
        let op = func.def(v).filter(|op| op.code == StagedOp::Tile(TileOp::NumPrograms))?;
        usize::try_from(op.attr("axis").and_then(Attr::as_int).unwrap_or(0)).ok()
    };
    Some((tiles, func.ops[tiles].group("grid").iter().map(axis).collect::<Option<_>>()?))
}

/// The function with neighbouring groups in clusters of `shape` CTAs along the axes of the launch's
/// grid; or why that is impossible.
pub fn spread(func: &StagedFunc, shape: [u32; 3]) -> Result<StagedFunc, Refusal> {
    let (tiles, axes) = loop_of(func).ok_or("there is no loop over groups")?;
    let team: Vec<u32> = axes.iter().map(|&axis| shape[axis]).collect();
    if team.iter().product::<u32>() != shape.iter().product() {
        return Err("the grid does not have the axes that clusters go along".into());
    }
    for id in func.walk() {
        let op = &func.ops[id];
        let again = match op.code {
            StagedOp::Tile(code) => matches!(
                code,
                TileOp::Scatter
                    | TileOp::Accumulate
                    | TileOp::Atomic
                    | TileOp::Assert
                    | TileOp::Print
                    | TileOp::AsmEffect
            ),
            _ => false,
        };
        if again || is_store(func, id) && op.group("at").is_empty() {
            return Err("a group does more than store blocks, which would be done twice".into());
        }
    }
    let mut spread = Spread {
        tiles,
        body: func.ops[tiles].regions[0],
        team,
        stored: stored(func),
        beyond: None,
        moved: BTreeSet::new(),
    };
    let mut rw = Rewriter::new(func);
    let body = rw.new.body;
    for &id in &func.blocks[func.body].ops {
        spread.emit(&mut rw, id, body);
    }
    let blocks: u32 = shape.iter().product();
    rw.new.attrs.set("cluster", Attr::ints([i64::from(blocks)]));
    Ok(rw.new)
}

/// Whether an op stores a block. The part of it that is outside the array is not written.
fn is_store(func: &StagedFunc, id: OpId) -> bool {
    matches!(
        func.ops[id].code,
        StagedOp::BulkStore | StagedOp::BulkReduce | StagedOp::Tile(TileOp::Store)
    )
}

/// The start positions of stores, each with the extent along its axis.
fn stored(func: &StagedFunc) -> Vec<(Value, i64)> {
    let mut out: Vec<(Value, i64)> = Vec::new();
    for id in func.walk() {
        let op = &func.ops[id];
        if let Some(&at) = op.group("at").first().filter(|_| is_store(func, id)) {
            let extent = extent_of(func, id);
            match out.iter_mut().find(|(v, _)| *v == at) {
                Some((_, most)) => *most = extent.max(*most),
                None => out.push((at, extent)),
            }
        }
    }
    out
}

fn extent_of(func: &StagedFunc, id: OpId) -> i64 {
    let first = |name: &str| {
        let list = func.ops[id].attr(name).and_then(Attr::as_ints).unwrap_or_default();
        list.first().copied().unwrap_or(1).max(1)
    };
    first("extent").saturating_mul(first("step"))
}

struct Spread {
    tiles: OpId,
    body: BlockId,
    team: Vec<u32>,
    stored: Vec<(Value, i64)>,
    /// Whether the coordinates are beyond the grid.
    beyond: Option<Value>,
    /// Positions of stores that are already moved where they are computed, as new values.
    moved: BTreeSet<(Value, Value)>,
}

type Rw<'f> = Rewriter<'f, Staged>;

impl Spread {
    fn emit(&mut self, rw: &mut Rw<'_>, id: OpId, into: BlockId) {
        let old = rw.old;
        let op = &old.ops[id];
        if op.block == self.body && old.blocks[self.body].ops.first() == Some(&id) {
            self.begin(rw, into);
        }
        match op.code {
            _ if self.beyond.is_some() && is_store(old, id) => {
                let at = op.group("at").first().copied();
                let known =
                    at.and_then(|at| self.moved.iter().find(|(v, _)| *v == at)).map(|m| m.1);
                let place = op.positional().len();
                let moved = match (known, at) {
                    (Some(v), _) => Some(v),
                    (None, Some(at)) => Some(self.away(rw, at, extent_of(old, id), into)),
                    (None, None) => None,
                };
                let new = rw.copy_op(id, into);
                if let Some(v) = moved {
                    let new = &mut rw.new.ops[new];
                    new.operands[place] = v;
                    if let Some(mut words) =
                        new.attr("bounds").and_then(Attr::as_list).map(<[_]>::to_vec)
                    {
                        if let Some(first) = words.first_mut() {
                            *first = Attr::word("checked");
                        }
                        new.attrs.set("bounds", Attr::List(words));
                    }
                }
            }
            _ => {
                let mut inner = |rw: &mut Rw<'_>, o: OpId, b: BlockId| self.emit(rw, o, b);
                let new = rw.copy_op_with(id, into, &mut inner);
                if id == self.tiles {
                    let team = Attr::ints(self.team.iter().map(|&n| i64::from(n)));
                    rw.new.ops[new].attrs.set("team", team);
                }
                if op.block == self.body && self.beyond.is_some() {
                    for &v in &op.results {
                        self.move_store(rw, v, into);
                    }
                }
            }
        }
    }

    /// At the head of the loop's body: clamps the coordinates to the grid and records whether they
    /// were beyond it.
    fn begin(&mut self, rw: &mut Rw<'_>, into: BlockId) {
        let old = rw.old;
        let loc = old.ops[self.tiles].loc.clone();
        let args = old.blocks[self.body].args.clone();
        let grid = old.ops[self.tiles].group("grid").to_vec();
        for (axis, (&arg, &extent)) in args.iter().zip(&grid).enumerate() {
            if self.team[axis] == 1 {
                continue;
            }
            let (p, extent) = (rw.get(arg), rw.get(extent));
            let mut build = rw.builder(into, loc.clone());
            let one = build.index(1);
            let last = build.ew(ScalarFn::Sub, &[extent, one]);
            let out = build.ew(ScalarFn::Gt, &[p, last]);
            let inside = build.ew(ScalarFn::Minimum, &[p, last]);
            self.beyond = Some(match self.beyond {
                None => out,
                Some(other) => build.ew(ScalarFn::Or, &[other, out]),
            });
            rw.set(arg, inside);
        }
        for &arg in &args {
            self.move_store(rw, arg, into);
        }
    }

    /// Where a value is the position of a store, also computes its position beyond the grid.
    fn move_store(&mut self, rw: &mut Rw<'_>, v: Value, into: BlockId) {
        let Some(&(_, extent)) = self.stored.iter().find(|(at, _)| *at == v) else { return };
        let away = self.away(rw, v, extent, into);
        self.moved.insert((v, away));
    }

    /// A position; beyond the grid, one where the whole extent is before the array's begin.
    fn away(&self, rw: &mut Rw<'_>, v: Value, extent: i64, into: BlockId) -> Value {
        let loc = rw.old.ops[self.tiles].loc.clone();
        let (own, beyond) = (rw.get(v), self.beyond);
        let Some(beyond) = beyond else { return own };
        let mut build = rw.builder(into, loc);
        let before = build.index(-extent);
        build.select(beyond, before, own)
    }
}

/// The function with TMA loads that neighbours share replaced by multicast loads.
pub fn share(mut func: StagedFunc) -> StagedFunc {
    let team = Team::of(&func);
    if team.blocks() == 1 || Off::of(&func).has(Step::Multicast) || !is_allowed(&func) {
        return func;
    }
    let all = func.walk();
    let alike = Alike::new(&func);
    let mut found: Vec<(OpId, Vec<usize>)> = Vec::new();
    for &id in all.iter().filter(|&&id| func.ops[id].code == StagedOp::Fill) {
        let op = &func.ops[id];
        let role = tessera_staged::ops::roles::role_of(&func, id);
        let Some(pipeline) = pipeline_of(&func, id) else { continue };
        if role.is_none() || !drained_by(&func, pipeline, role) {
            continue;
        }
        let mut axes: Vec<usize> = Vec::new();
        for axis in (0..3).filter(|&axis| team.shape[axis] > 1) {
            let mut with = axes.clone();
            with.push(axis);
            let bits = team.bits(&with);
            let run = (bits >> bits.trailing_zeros()).wrapping_add(1).is_power_of_two();
            let parts = 1 << bits.count_ones();
            let iterations = all.iter().all(|&o| {
                let takes = matches!(func.ops[o].code, StagedOp::Acquire | StagedOp::Wait)
                    && func.ops[o].operands[0] == pipeline;
                !takes || alike.is(o, &func.ops[o].operands[1..2], &[axis])
            });
            let whole = field_of(&func, id).is_some_and(|field| part_of(field, parts).is_some());
            if run && whole && iterations && alike.is(id, op.group("at"), &[axis]) {
                axes = with;
            }
        }
        if !axes.is_empty() {
            found.push((id, axes));
        }
    }
    for (id, axes) in found {
        let axes = Attr::ints(axes.into_iter().map(|axis| axis as i64));
        func.ops[id].attrs.set("multicast", axes);
    }
    func
}

/// Users can request clusters without multicast.
fn is_allowed(func: &StagedFunc) -> bool {
    let said = config(&func.attrs).and_then(|c| c.get("multicast")).and_then(Attr::as_bool);
    said != Some(false)
}
