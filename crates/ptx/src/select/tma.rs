//! TMA: fills of pipeline stages (`cp.async.bulk.tensor`), and bulk stores and reductions from
//! shared memory.
//!
//! A block of an array is copied in boxes, as tensor maps describe them. A box has at most 256
//! elements along each axis and is dense in shared memory, with the array's contiguous axis
//! fastest; where rows are split into swizzle panels, there is a box for each panel. One thread
//! issues the copies. Elements outside the array are zero-filled or not stored; their bytes are
//! counted nevertheless.

use super::per_warpgroup_store::Share;
use super::sync::Smem;
use super::{Repr, Select, View};
use crate::code::{MAP_ALIGN, MAP_BYTES, MapRecipe};
use crate::inst::*;
use crate::module::Param;
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, OpId, Type};
use tessera_layout::Shared;
use tessera_lower::stage::divisor;
use tessera_numerics::{DType, ReduceOp};
use tessera_staged::StagedOp;

/// The most elements of a box along an axis.
const BOX: u32 = 256;
/// The alignment of TMA's shared memory addresses.
pub const ALIGN: u32 = 128;
/// Rows of a box are multiples of this.
const ROW: u32 = 16;

/// How a block of an array is split into boxes.
pub struct Boxes {
    /// The array's axes, fastest first, and the box along them.
    axes: Vec<usize>,
    extent: Vec<u32>,
    span: u32,
    /// The start of each box, along the array's axes and as a byte offset in shared memory.
    pieces: Vec<(Vec<u32>, u32)>,
    /// The array's axis of each dim that has one.
    axis_of: BTreeMap<usize, usize>,
}

/// The swizzle span in bytes, if TMA has this swizzle.
fn span_of(shared: &Shared) -> Option<u32> {
    match shared.swizzle {
        None => Some(0),
        Some(s) if s.base == 4 && s.shift == 3 && (1..=3).contains(&s.bits) => Some(16 << s.bits),
        Some(_) => None,
    }
}

/// Splits a block of an array of size `extent` into boxes that together have the layout `shared`.
/// `contiguous` is the array's contiguous axis. If warpgroups store independently, these are the
/// boxes of the first one.
pub fn cut(
    shared: &Shared,
    extent: &[i64],
    contiguous: usize,
    share: Option<Share>,
) -> Result<Boxes, String> {
    // Dims and axes of one position do not affect addresses.
    let dims = (0..shared.shape.len()).filter(|&d| shared.shape[d] > 1);
    let wide = (0..extent.len()).filter(|&a| extent[a] > 1);
    let axis_of: Vec<(usize, usize)> = dims.zip(wide).collect();
    let mut axes = Vec::new();
    let mut dims = Vec::new();
    for &dim in &shared.order {
        if let Some(&(_, axis)) = axis_of.iter().find(|(d, _)| *d == dim) {
            axes.push(axis);
            dims.push(dim);
        }
    }
    if axes.first() != Some(&contiguous) {
        return Err(format!(
            "expected shared memory whose fastest axis is the array's axis {contiguous} of neighbours"
        ));
    }
    let span = span_of(shared).ok_or("expected a swizzle of 32, 64 or 128 bytes")?;
    if shared.pad != 0 {
        return Err("expected rows without padding between them".into());
    }
    let row = shared.panel.unwrap_or(shared.shape[dims[0]]);
    let bytes = row * shared.elem_bytes;
    if row > BOX || !bytes.is_multiple_of(ROW) || span != 0 && bytes != span {
        return Err(format!(
            "expected rows of at most {BOX} elements, a multiple of {ROW} bytes and as long as the swizzle, got {bytes} bytes"
        ));
    }
    if !shared.shape[dims[0]].is_multiple_of(row) {
        return Err("expected rows of whole panels".into());
    }
    // Whole along the fast axes, a part of the first that is too long, and one of all slower ones.
    let mut box_of = vec![row];
    let mut full = true;
    let share_along = |dim: usize| share.filter(|s| s.dim == dim);
    if share_along(dims[0]).is_some_and(|s| !s.part.is_multiple_of(row)) {
        return Err("expected rows that one warpgroup holds".into());
    }
    for &dim in &dims[1..] {
        let all = shared.shape[dim];
        let n = share_along(dim).map_or(all, |s| s.part.min(all));
        let part = match (full, n <= BOX) {
            (true, true) => n,
            (true, false) => (1..=BOX).rev().find(|b| n.is_multiple_of(*b)).unwrap_or(1),
            (false, _) => 1,
        };
        full &= part == all;
        box_of.push(part);
    }
    let mut starts = vec![vec![0u32; dims.len()]];
    for (i, &dim) in dims.iter().enumerate() {
        let n = shared.shape[dim];
        starts = (0..n)
            .step_by(box_of[i] as usize)
            .filter(|&at| share_along(dim).is_none_or(|s| s.holder(at) == 0))
            .flat_map(|at| {
                starts.iter().map(move |s| {
                    let mut s = s.clone();
                    s[i] = at;
                    s
                })
            })
            .collect();
    }
    let mut pieces = Vec::new();
    for start in starts {
        let mut coords = vec![0; shared.shape.len()];
        let mut along = vec![0; extent.len()];
        for (i, &at) in start.iter().enumerate() {
            coords[dims[i]] = at;
            along[axes[i]] = at;
        }
        let at = shared.offset(&coords);
        if !at.is_multiple_of(shared.align().max(ALIGN)) {
            return Err(format!("expected boxes at multiples of {ALIGN} bytes, got {at}"));
        }
        pieces.push((along, at));
    }
    for axis in (0..extent.len()).rev() {
        if !axes.contains(&axis) {
            axes.push(axis);
            box_of.push(1);
        }
    }
    Ok(Boxes { axes, extent: box_of, span, pieces, axis_of: axis_of.into_iter().collect() })
}

impl Select<'_> {
    /// The bytes that a fill brings: of all boxes, including elements outside the array.
    pub fn fill_bytes(&self, id: OpId) -> u32 {
        let op = &self.func.ops[id];
        let name = op.attr("field").and_then(Attr::as_word);
        let Type::Stage { fields } = self.func.ty(op.operands[0]) else { return 0 };
        let field = fields.iter().find(|f| Some(f.name.as_str()) == name);
        field.map_or(0, |f| f.layout.shape.iter().product::<u32>() * f.layout.elem_bytes)
    }

    /// The boxes of a block of a parameter, and the address of their tensor map.
    fn boxes(
        &mut self,
        id: OpId,
        view: &View,
        m: &Smem,
        share: Option<Share>,
    ) -> Result<(Boxes, Reg), Diagnostics> {
        let op = &self.func.ops[id];
        let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
        if !view.class.tma_compatible {
            return self.unsupported(
                id,
                "expected an array that is copied in boxes: one axis of neighbours, all else at \
                 multiples of 16 bytes, got another",
            );
        }
        let contiguous = view.class.contiguous.trailing_zeros() as usize;
        let found =
            cut(&m.layout, &extent, contiguous, share).or_else(|why| self.unsupported(id, why))?;
        let start = m.moving.map_or(0, |r| self.granule(r)) | m.offset;
        if start != 0 && start.trailing_zeros() < ALIGN.trailing_zeros() {
            let why = format!("expected shared memory at a multiple of {ALIGN} bytes");
            return self.unsupported(id, why + ", got a part of some");
        }
        let recipe = MapRecipe {
            param: view.param,
            axes: found.axes.clone(),
            extent: found.extent.clone(),
            span: found.span,
            dtype: match (op.code, view.dtype, m.dtype) {
                // Rounded on load, and never on store.
                (StagedOp::Fill, _, DType::Tf32) => DType::Tf32,
                (_, DType::Tf32, _) => DType::F32,
                (_, dtype, _) => dtype,
            },
        };
        let map = self.map(recipe);
        Ok((found, map))
    }

    /// The address of a tensor map among the kernel's parameters.
    fn map(&mut self, recipe: MapRecipe) -> Reg {
        let number = match self.maps.iter().position(|m| *m == recipe) {
            Some(n) => n,
            None => {
                let name = format!("map{}", self.maps.len());
                self.asm.kernel.params.push(Param { name, bytes: MAP_BYTES, align: MAP_ALIGN });
                self.maps.push(recipe);
                self.maps.len() - 1
            }
        };
        if let Some(&r) = self.map_addresses.get(&number) {
            return r;
        }
        if self.instance.role.is_some() {
            self.early_maps.insert((!self.instance.one_thread, number));
        }
        let r = self.head(|me| me.asm.param_address(&format!("map{number}")));
        self.map_addresses.insert(number, r);
        r
    }

    /// Prefetches the tensor maps that roles use, at a point before any wait: the prefetch overlaps
    /// with barrier initialisation. Maps of pipeline fills come first. A map for stores would
    /// otherwise be waited for at the end, when nothing else is in flight.
    pub fn fetch_maps_at(&mut self, place: usize) {
        let early = std::mem::take(&mut self.early_maps);
        if early.is_empty() {
            return;
        }
        let rest = self.asm.kernel.body.split_off(place);
        let tid = self.tid();
        let first = self.below(tid, 1);
        self.by_leader(Some(first), |asm| {
            let mut requested = BTreeSet::new();
            for (_, number) in early.into_iter().filter(|(_, n)| requested.insert(*n)) {
                let map = asm.param_address(&format!("map{number}"));
                asm.emit(Inst::PrefetchMap { map });
            }
        });
        self.asm.kernel.body.extend(rest);
    }

    /// The coordinates of boxes along the map's axes: equal registers where the same is added.
    fn box_coords(&mut self, id: OpId, found: &Boxes, own: Option<(usize, Reg)>) -> Vec<Vec<Opnd>> {
        let mut at: Vec<Reg> = self.func.ops[id]
            .group("at")
            .to_vec()
            .iter()
            .map(|&v| {
                let r = self.scalar(v);
                self.asm.cvt(Ty::U32, Ty::U64, None, r)
            })
            .collect();
        if let Some((axis, more)) = own {
            at[axis] = self.asm.int(Alu::Add, Ty::U32, &[at[axis].into(), more.into()]);
        }
        let mut known = BTreeMap::new();
        let mut out = Vec::new();
        for (along, _) in &found.pieces {
            let mut coords = Vec::new();
            for &axis in &found.axes {
                let r = *known.entry((axis, along[axis])).or_insert_with(|| match along[axis] {
                    0 => at[axis],
                    n => self.asm.int(Alu::Add, Ty::U32, &[at[axis].into(), Opnd::Int(n.into())]),
                });
                coords.push(r.into());
            }
            out.push(coords);
        }
        out
    }

    pub fn tma_fill(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let (stage, view) = (op.operands[0], self.view(op.operands[1]));
        let name = op.attr("field").and_then(Attr::as_word).unwrap_or_default();
        let Some(m) = self.field_of(stage, name) else {
            return self.unsupported(id, "expected a field of the stage");
        };
        let part = self.part_of_cluster(id, &m)?;
        let (found, map) = self.boxes(id, &view, &m, part.as_ref().map(|p| p.share))?;
        let Some((bar, reported)) = self.full_barrier(stage) else {
            return self.unsupported(id, "expected a stage that this role acquired");
        };
        let own = part.as_ref().and_then(|p| Some((*found.axis_of.get(&p.share.dim)?, p.first)));
        let coords = self.box_coords(id, &found, own);
        let mut base = self.smem_address(&m);
        if let Some(part) = &part {
            base = self.asm.int(Alu::Add, Ty::U32, &[base.into(), part.bytes.into()]);
        }
        let multicast = part.map(|p| p.blocks);
        let who = self.leader();
        let bytes = Opnd::Int(self.fill_bytes(id).into());
        self.by_leader(who, |asm| {
            if !reported {
                asm.emit(Inst::MbarExpect { addr: bar.clone(), bytes });
            }
            for ((_, at), coords) in found.pieces.iter().zip(coords) {
                let dst = Addr::reg(base, (m.offset + at).into());
                let bar = bar.clone();
                asm.emit(Inst::TmaLoad { dst, map, coords, bar, multicast, hint: None });
            }
        });
        Ok(())
    }

    /// A bulk store or reduction: one bulk group.
    pub fn bulk(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let (m, view) = (self.smem(op.operands[0]), self.view(op.operands[1]));
        let fold = match op.code {
            StagedOp::BulkReduce => {
                let name = op.attr("op").and_then(Attr::as_word).unwrap_or_default();
                match ReduceOp::from_name(name).and_then(|r| folds(r, view.dtype)) {
                    Some(op) => Some(op),
                    None => {
                        let why = format!("TMA does not reduce {} by `{name}`", view.dtype);
                        return self.unsupported(id, why);
                    }
                }
            }
            _ => None,
        };
        let share = self.share_of(id);
        let (found, map) = self.boxes(id, &view, &m, share)?;
        let mut base = self.smem_address(&m);
        let (mut who, mut own) = (self.leader(), None);
        if let Some(share) = share {
            let group = self.warpgroup();
            let mut first = vec![0; m.layout.shape.len()];
            first[share.dim] = share.part;
            let bytes = Opnd::Int(m.layout.offset(&first).into());
            base = self.asm.int(Alu::MadLo, Ty::U32, &[group.into(), bytes, base.into()]);
            let part = Opnd::Int(share.part.into());
            let moved = self.asm.int(Alu::MulLo, Ty::U32, &[group.into(), part]);
            own = found.axis_of.get(&share.dim).map(|&axis| (axis, moved));
            who = Some(self.speaks_for_warpgroup());
        }
        let inside = self.reaches_the_array(id);
        let coords = self.box_coords(id, &found, own);
        self.by_leader(who, |asm| {
            for ((_, at), coords) in found.pieces.iter().zip(coords) {
                let src = Addr::reg(base, (m.offset + at).into());
                let store = match fold {
                    None => Inst::TmaStore { map, coords, src, hint: None },
                    Some(op) => Inst::TmaReduce { op, map, coords, src, hint: None },
                };
                asm.maybe(inside, |asm| asm.emit(store));
            }
            // Bulk groups are counted, and an empty one counts as well.
            asm.emit(Inst::BulkCommit);
        });
        Ok(())
    }

    /// Threads that issued none have none to wait for.
    pub fn bulk_wait(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let groups = op.attr("keep").and_then(Attr::as_int).unwrap_or(0).max(0) as u32;
        let read = op.attr("read").and_then(Attr::as_bool).unwrap_or(false);
        self.asm.emit(Inst::BulkWait { groups, read });
        Ok(())
    }

    // Parts of shared memory.

    /// A block of shared memory with the layout that a separate allocation would have.
    pub fn smem_part(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let m = self.smem(op.operands[0]);
        let Type::Smem { layout, .. } = func.ty(op.result()) else {
            return self.unsupported(id, "expected shared memory");
        };
        let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
        let perm = op.attr("perm").and_then(Attr::as_ints);
        let kept: Vec<usize> = (0..extent.len()).filter(|&a| extent[a] != 0).collect();
        let axes: Vec<usize> = match perm {
            None => kept,
            Some(perm) => perm.iter().filter_map(|&p| kept.get(p as usize).copied()).collect(),
        };
        let plain = |s: &Shared| Shared { swizzle: None, ..s.clone() };
        let (whole, part) = (plain(&m.layout), plain(layout));
        // Along each axis the last position has the same offset in both, and so has each panel in
        // between.
        let panel = part.panel.unwrap_or(1);
        let same = axes.iter().enumerate().all(|(dim, &axis)| {
            (1..part.shape[dim]).all(|n| {
                if n > 1 && n + 1 < part.shape[dim] && !n.is_multiple_of(panel) {
                    return true;
                }
                let mut from = vec![0; whole.shape.len()];
                let mut to = vec![0; part.shape.len()];
                (from[axis], to[dim]) = (n, n);
                whole.offset(&from) == part.offset(&to)
            })
        });
        if !same {
            return self.unsupported(
                id,
                "expected a part of shared memory that is whole along its fast axes, got one with \
                 gaps",
            );
        }
        // What the position adds, and its known alignment.
        let atom = m.layout.swizzle.map_or(1, |s| 1u32 << (s.base + s.shift + s.bits));
        let mut granule = 0u32;
        let mut moves: Option<Reg> = m.moving;
        if let Some(r) = m.moving {
            granule = self.granule(r);
        }
        for (axis, &v) in op.group("at").to_vec().iter().enumerate() {
            let known = divisor(func, v);
            if known == 0 || m.layout.shape[axis] == 1 {
                continue;
            }
            let mut unit = vec![0; whole.shape.len()];
            let cut = m.layout.order.first() == Some(&axis) && whole.panel.is_some();
            let step = if cut { panel } else { 1 };
            unit[axis] = step.min(whole.shape[axis] - 1);
            let bytes = whole.offset(&unit);
            let multiple = u64::from(bytes) * known / u64::from(step);
            let fine = !known.is_multiple_of(step.into()) || !multiple.is_multiple_of(atom.into());
            if fine || unit[axis] != step {
                return self.unsupported(
                    id,
                    "expected a part of shared memory that begins where its swizzle does, got another",
                );
            }
            granule |= 1u32 << multiple.trailing_zeros().min(30);
            let at = self.scalar(v);
            let mut at = self.asm.cvt(Ty::U32, Ty::U64, None, at);
            if step > 1 {
                let by = Opnd::Int(step.trailing_zeros().into());
                at = self.asm.int(Alu::Shr, Ty::U32, &[at.into(), by]);
            }
            let bytes = Opnd::Int(bytes.into());
            let far = self.asm.int(Alu::MulLo, Ty::U32, &[at.into(), bytes]);
            moves = Some(match moves {
                None => far,
                Some(r) => self.asm.int(Alu::Add, Ty::U32, &[r.into(), far.into()]),
            });
        }
        let mut out = Smem { layout: layout.clone(), ..m };
        if moves != out.moving
            && let Some(moving) = moves
        {
            let base = self.region(out.region);
            let address = self.asm.int(Alu::Add, Ty::U32, &[base.into(), moving.into()]);
            self.know_stage([moving, address]);
            self.granules.insert(moving, granule);
            out.moving = Some(moving);
        }
        self.set(op.result(), Repr::Smem(out));
        Ok(())
    }

    /// The alignment of a run-time offset: all lower bits are zero.
    fn granule(&self, moving: Reg) -> u32 {
        // Stages have a larger alignment than TMA needs.
        self.granules.get(&moving).copied().unwrap_or(0)
    }
}

/// TMA's reduction operator, where it gives the same bits.
#[deny(clippy::wildcard_enum_match_arm)]
fn folds(r: ReduceOp, dtype: DType) -> Option<AtomOp> {
    let word = matches!(dtype, DType::I32 | DType::U32 | DType::I64 | DType::U64);
    let float = matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64);
    match r {
        ReduceOp::Sum if word || float => Some(AtomOp::Add),
        ReduceOp::Min if word => Some(AtomOp::Min),
        ReduceOp::Max if word => Some(AtomOp::Max),
        ReduceOp::Sum
        | ReduceOp::Max
        | ReduceOp::Min
        | ReduceOp::Prod
        | ReduceOp::And
        | ReduceOp::Or
        | ReduceOp::Xor => None,
    }
}
