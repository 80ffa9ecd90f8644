//! Selects WGMMA: which MMAs the tensor cores can execute asynchronously, where each operand comes
//! from, and how many warpgroups issue them.
//!
//! An operand that is loaded directly, or loaded and transposed, is read from shared memory where
//! TMA puts it. Elements of 32 bits must be k-major there. A left operand that is not k-major is
//! loaded from shared memory into registers, which have no major order. Every other left operand is
//! a register operand; every other right operand is written to shared memory by the threads.

use super::super::open::Open;
use super::super::seeds::extents;
use super::super::threads::{Team, elements, feeds_product};
use super::super::{MatrixRow, Off, Staging, Step};
use super::{GROUP, LANES, Refusal, pingpong};
use std::sync::Arc;
use tessera_diag::{Diagnostics, Loc};
use tessera_ir::{Attr, BlockId, Builder, Func, Level, OpId, Type, Value};
use tessera_layout::{Layout, Shared};
use tessera_numerics::{DType, Profile};
use tessera_staged::{StagedBuild, StagedOp};
use tessera_target::arrays::ArrayClass;
use tessera_tile::{TileFunc, TileOp};

/// Rows and most columns of one WGMMA instruction, and the most elements of a TMA box along an
/// axis.
pub const ROWS: u32 = 64;
pub const COLUMNS: u32 = 256;
const MOST_BOX: u32 = 256;
/// Elements of one tile that a thread may hold.
const MOST_HELD: u64 = 128;
/// More warps would leave each too few registers, unless each also has fewer columns. `ODD_GROUPS`
/// warpgroups may share a tile that has 64 rows for each.
const MOST_WARPS: u32 = 8;
const ODD_GROUPS: u32 = 3;

/// The warps that hold the accumulators, if all MMAs of the function can be WGMMAs; and into how
/// many replicas `m_split` cuts them, each with its share of the rows.
pub fn team(func: &TileFunc, staging: &Staging<'_>) -> Result<(Team, u32), Refusal> {
    let mut rows = u32::MAX;
    let mut alike = true;
    for id in func.walk() {
        if func.ops[id].code == TileOp::Mma {
            product(func, staging, id)?;
            let own = extents(func.ty(func.ops[id].result()))[0];
            alike &= rows == u32::MAX || rows == own;
            rows = rows.min(own);
        }
    }
    let config = func.attrs.get("config").and_then(Attr::as_dict);
    let pinned = config.and_then(|c| c.get("num_warps").and_then(Attr::as_int)).filter(|&n| n != 0);
    let most = rows / ROWS * GROUP;
    let off = Off::of(func);
    let whole = [Step::MSplit, Step::ProducerLoads, Step::WarpSpecialization]
        .iter()
        .all(|&step| !off.has(step));
    let odd = rows == ODD_GROUPS * ROWS && alike && whole;
    let warps = match pinned.map(u32::try_from) {
        None if pingpong::is_requested(&func.attrs) => most.min(GROUP),
        None if odd => most,
        None => most.min(MOST_WARPS),
        Some(Ok(n)) if n > 0 && n.is_multiple_of(GROUP) && n <= most => n,
        Some(_) => {
            return Err(format!(
                "`num_warps` is not one of {} for {rows} rows",
                (1..=most / GROUP).map(|n| (n * GROUP).to_string()).collect::<Vec<_>>().join(", ")
            ));
        }
    };
    // Layouts divide by powers of two.
    let parts = if odd && warps == ODD_GROUPS * GROUP { ODD_GROUPS } else { 1 };
    let warps = 1 << (warps / parts).ilog2();
    let threads = warps * parts * LANES;
    for id in func.walk() {
        for &v in &func.ops[id].results {
            let fed = func.ops[id].code == TileOp::Load && feeds_product(func, v);
            let each = elements(func.ty(v)).div_ceil(u64::from(threads));
            if each > MOST_HELD && !fed && source(func, v).is_none() {
                return Err(format!("{} is more than {threads} threads hold", func.ty(v)));
            }
        }
    }
    Ok((Team { warps, blocks: 1 }, parts))
}

/// Where WGMMA takes an operand from.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Variant {
    /// Shared memory, where TMA puts it.
    Memory,
    /// Registers, loaded from shared memory where TMA puts it.
    Through,
    /// Registers, as the threads have it.
    Threads,
}

/// The WGMMA instruction for an MMA and where it takes its left operand from, or why there is none.
fn product(
    func: &TileFunc,
    staging: &Staging<'_>,
    id: OpId,
) -> Result<(MatrixRow, Variant), Refusal> {
    let op = &func.ops[id];
    let [a, b] = [0, 1].map(|i| func.ty(op.operands[i]).dtype());
    let sums = func.ty(op.result());
    if staging.profile == Profile::Strict && sums.dtype().is_float() {
        return Err("the profile is `strict`, where products are added one by one".into());
    }
    let row = staging.caps.async_mma.iter().copied();
    let row =
        row.into_iter().find(|r| (r.a, r.b, r.acc) == (a, b, sums.dtype())).ok_or_else(|| {
            format!("there is no asynchronous MMA of {a} by {b} into {}", sums.dtype())
        })?;
    // The tensor cores accumulate 8-bit floats with fewer bits than f32 between promotions.
    let narrow = matches!(a, DType::Fp8E4M3 | DType::Fp8E5M2);
    match op.attr("class").and_then(Attr::as_word) {
        Some("seq") => return Err("the class of an MMA is `seq`, one by one".into()),
        Some("f32") if narrow => {
            return Err(
                "asynchronous MMAs accumulate 8-bit floats in fewer bits than the class `f32`"
                    .into(),
            );
        }
        _ => {}
    }
    let (shape, k) = (extents(sums), extents(func.ty(op.operands[0]))[1]);
    let columns = shape[1].is_multiple_of(8)
        && shape[1] <= COLUMNS
        && (sums.dtype().is_float() || shape[1] <= 24 || shape[1].is_multiple_of(16));
    if !shape[0].is_multiple_of(ROWS) || !columns || !k.is_multiple_of(row.k) {
        return Err(format!(
            "{}x{}x{k} is not made of {ROWS} rows, {} columns up to {COLUMNS}, {} deep",
            shape[0],
            shape[1],
            if sums.dtype().is_float() { 8 } else { 16 },
            row.k
        ));
    }
    let left = operand(func, staging, op.operands[0], 1, Side::Left)?;
    operand(func, staging, op.operands[1], 0, Side::Right)?;
    Ok((row, left))
}

/// Whether WGMMA cannot take the operands of an MMA as they are, but could with the operands
/// exchanged.
pub fn wants_other_sides(func: &TileFunc, staging: &Staging<'_>, id: OpId) -> bool {
    let [a, b] = [0, 1].map(|i| func.ops[id].operands[i]);
    operand(func, staging, b, 0, Side::Right).is_err()
        && operand(func, staging, b, 0, Side::Left) == Ok(Variant::Through)
        && operand(func, staging, a, 1, Side::Right) == Ok(Variant::Memory)
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// Where WGMMA takes an operand whose dim `deep` is k from; an error where it cannot.
fn operand(
    func: &TileFunc,
    staging: &Staging<'_>,
    v: Value,
    deep: usize,
    side: Side,
) -> Result<Variant, Refusal> {
    let Some((load, perm)) = source(func, v) else { return Ok(Variant::Threads) };
    let op = &func.ops[load];
    let name = func.name_of(op.operands[0]).unwrap_or("an array").to_string();
    let param = func.params().iter().position(|&p| p == op.operands[0]);
    let Some(param) = param else { return Err(format!("`{name}` is not a parameter")) };
    let plain = op.group("other").is_empty() && op.attr("step").is_none();
    let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
    let view = func.ty(op.operands[0]);
    if !plain || view.dtype() != func.ty(op.result()).dtype() {
        return Err(format!(
            "`{name}` is read in steps, converted, or with something in place of what is outside"
        ));
    }
    if func
        .walk()
        .iter()
        .any(|&o| writes(func.ops[o].code) && func.ops[o].operands[0] == op.operands[0])
    {
        return Err(format!("the kernel writes `{name}`, which it reads"));
    }
    if func.ancestors(op.block).iter().any(|&o| func.ops[o].code == TileOp::While) {
        return Err(format!("`{name}` is read in a loop of unknown length"));
    }
    let shape = extents(func.ty(op.result()));
    let shared = boxed(staging.classes[param], &extent, &shape, view.dtype().bytes() as u32)
        .map_err(|why| format!("`{name}` {why}"))?;
    // Which dim of the operand is contiguous in memory.
    let fast = perm.iter().position(|&d| d == shared.order[0]);
    match (fast == Some(deep), view.dtype().bits()) {
        (true, _) | (_, 16) => Ok(Variant::Memory),
        // A register is one element; of narrower ones it would be several from different rows.
        (false, 32) if side == Side::Left => Ok(Variant::Through),
        (false, bits) => Err(format!(
            "`{name}` is not contiguous along k, as it must be for elements of {bits} bits"
        )),
    }
}

fn writes(code: TileOp) -> bool {
    matches!(code, TileOp::Store | TileOp::Scatter | TileOp::Accumulate | TileOp::Atomic)
}

/// The load that a tile comes from through transpositions, and the load's dims in the tile's order.
fn source(func: &TileFunc, v: Value) -> Option<(OpId, Vec<usize>)> {
    let mut perm: Vec<usize> = (0..func.ty(v).rank()).collect();
    let mut v = v;
    loop {
        let id = func.def_id(v)?;
        let op = &func.ops[id];
        match op.code {
            TileOp::Load if func.ty(v).rank() == 2 && func.ty(v).is_tile() => {
                return Some((id, perm));
            }
            TileOp::Transpose => {
                let order = permutation_of(func, id);
                perm = perm.iter().map(|&p| order[p]).collect();
                v = op.operands[0];
            }
            // TMA rounds while it copies.
            TileOp::Cast if is_rounding(func, id) => v = op.operands[0],
            _ => return None,
        }
    }
}

/// Whether an op rounds f32 to tf32 for an MMA. TMA can do that too.
pub fn is_rounding<L: Level>(func: &Func<L>, id: OpId) -> bool {
    let op = &func.ops[id];
    (func.ty(op.operands[0]).dtype(), func.ty(op.result()).dtype()) == (DType::F32, DType::Tf32)
}

/// The operand's dims in the order of the result of a transposition.
pub fn permutation_of<L: Level>(func: &Func<L>, id: OpId) -> Vec<usize> {
    let perm = func.ops[id].attr("perm").and_then(Attr::as_ints).unwrap_or_default();
    perm.iter().map(|&p| p as usize).collect()
}

/// The layout of a block of an array in shared memory as TMA writes it and WGMMA reads it: in the
/// array's order, with the widest swizzle that divides its rows.
pub fn boxed(
    class: ArrayClass,
    extent: &[i64],
    shape: &[u32],
    elem_bytes: u32,
) -> Result<Shared, Refusal> {
    if !class.tma_compatible {
        return Err("is not aligned to 16 bytes with one contiguous axis".into());
    }
    let axes: Vec<usize> = (0..extent.len()).filter(|&a| extent[a] != 0).collect();
    let Some(fast) = axes.iter().position(|&a| class.is_contiguous(a)) else {
        return Err("is not taken along its contiguous axis".into());
    };
    let order: Vec<usize> =
        [fast].into_iter().chain((0..shape.len()).rev().filter(|&d| d != fast)).collect();
    let row = shape[fast] * elem_bytes;
    let Some(span) = [128, 64, 32].into_iter().find(|span| row.is_multiple_of(*span)) else {
        return Err(format!("is taken in rows of {row} bytes, which are no multiple of 32"));
    };
    if (0..shape.len()).any(|d| d != fast && shape[d] > MOST_BOX) {
        return Err(format!("is taken in blocks of more than {MOST_BOX} rows"));
    }
    Ok(Shared::swizzled(shape, &order, elem_bytes, span))
}

impl Open<'_> {
    /// An MMA as a WGMMA. Operands in shared memory are written there first; `producer_loads`
    /// replaces those writes by TMA loads where an operand is loaded for MMAs alone.
    pub(in super::super) fn async_mma(
        &mut self,
        id: OpId,
        block: BlockId,
    ) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let [a, b, acc] = [0, 1, 2].map(|i| op.operands[i]);
        let shape = extents(func.ty(op.result()));
        let place = Arc::new(Layout::mma_acc(&[shape[0], shape[1]], [self.team.warps, 1]));
        let sums = self.at(acc, &place, block, &op.loc);
        // `product` was called for this MMA before, and succeeded.
        let variant =
            product(func, self.staging, id).map_or(Variant::Threads, |(_, variant)| variant);
        let (k, dtype) = (extents(func.ty(a))[1], func.ty(a).dtype());
        let held = Arc::new(Layout::mma_a(&place, k, dtype.bits()));
        let mut left = match variant {
            Variant::Memory => self.written(a, 1, block, &op.loc),
            // Transposed in memory: rows along the other dim.
            Variant::Through => self.written(a, 0, block, &op.loc),
            Variant::Threads => self.at(a, &held, block, &op.loc),
        };
        let b = self.written(b, 0, block, &op.loc);
        let mut build = self.build(block, &op.loc);
        build.sync(StagedOp::FenceAsync);
        build.sync(StagedOp::BlockBarrier);
        if variant == Variant::Through {
            let ty = Type::Frag { shape: func.ty(a).shape().to_vec(), dtype, layout: held };
            left = build.frag_load(left, ty);
        }
        let a = left;
        let open = build.mma_open(sums);
        let pending = build.mma_issue(a, b, open);
        let done = build.mma_retire(pending, 0, false);
        // The next iteration of a loop writes the same memory.
        build.sync(StagedOp::BlockBarrier);
        if let (Some(class), Some(issue)) = (op.attr("class"), self.out.def_id(pending)) {
            self.out.ops[issue].attrs.set("class", class.clone());
        }
        self.settle(op.result(), done, block, &op.loc);
        Ok(())
    }

    /// Writes a tile to shared memory in a layout that WGMMA reads; `deep` is its k dim.
    fn written(&mut self, v: Value, deep: usize, block: BlockId, loc: &Loc) -> Value {
        let (shape, dtype) = (extents(self.func.ty(v)), self.func.ty(v).dtype());
        let bytes = dtype.bytes() as u32;
        let fits = |fast: usize| {
            [128, 64, 32].into_iter().find(|s| (shape[fast] * bytes).is_multiple_of(*s))
        };
        // k-major, which every dtype may have; else along the other dim.
        let fast = if bytes == 2 && fits(1).is_some() { 1 } else { deep };
        let order = [fast, 1 - fast];
        let shared = match fits(fast) {
            Some(span) => Shared::swizzled(&shape, &order, bytes, span),
            None => Shared::ordered(&shape, &order, bytes),
        };
        let ty =
            Type::Smem { shape: self.func.ty(v).shape().to_vec(), dtype, layout: Arc::new(shared) };
        let tile = self.map[&v];
        let body = self.out.body;
        let mem = Builder::before(&mut self.out, body, 0, loc.clone()).smem_alloc(ty);
        self.build(block, loc).frag_store(mem, tile);
        mem
    }
}
