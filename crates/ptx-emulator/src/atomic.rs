//! Atomic read-modify-write operations.

use super::alu::{mask, sign_extend};
use super::fault::Res;
use super::float::{self, Mods};
use super::machine::Machine;
use super::program::Atomic;
use super::races::Use;
use super::warp::{Warp, lanes};
use tessera_ptx::inst::{Alu, AtomOp, Round, Space, Ty};

/// Whether PTX has the operation for the type.
pub(super) fn exists(op: AtomOp, ty: Ty) -> bool {
    let int = matches!(ty, Ty::U32 | Ty::S32 | Ty::U64 | Ty::S64);
    let bits = int || matches!(ty, Ty::B32 | Ty::B64);
    let half = matches!(ty, Ty::F16 | Ty::F16x2 | Ty::BF16 | Ty::BF16x2);
    match op {
        AtomOp::Add => bits || half || matches!(ty, Ty::F32 | Ty::F64),
        AtomOp::Min | AtomOp::Max => int || half,
        AtomOp::And | AtomOp::Or | AtomOp::Xor => bits,
        AtomOp::Exch => bits || matches!(ty, Ty::F32 | Ty::F64),
        AtomOp::Cas => {
            bits || matches!(
                ty,
                Ty::B16 | Ty::U16 | Ty::S16 | Ty::F16 | Ty::BF16 | Ty::F32 | Ty::F64
            )
        }
        AtomOp::Inc | AtomOp::Dec => ty == Ty::U32,
    }
}

/// The new value. Subnormal f32 sums are kept in shared memory and flushed in global memory, as the
/// ISA says of `atom.add.f32`.
pub(super) fn apply(op: AtomOp, ty: Ty, flush: bool, old: u64, a: u64, b: u64) -> u64 {
    let w = ty.bits();
    let wide = |x: u64| {
        if ty.is_signed() { sign_extend(x, w) as i128 } else { (x & mask(w)) as i128 }
    };
    if float::format(ty).is_some() && !matches!(op, AtomOp::Exch | AtomOp::Cas) {
        let ftz = flush && ty == Ty::F32;
        let mods = Mods { round: Some(Round::Rn), ftz, sat: false };
        let op = match op {
            AtomOp::Min => Alu::Min,
            AtomOp::Max => Alu::Max,
            _ => Alu::Add,
        };
        return float::eval(op, ty, mods, [old, a, 0]);
    }
    let new = match op {
        AtomOp::Add => old.wrapping_add(a),
        AtomOp::Min => wide(old).min(wide(a)) as u64,
        AtomOp::Max => wide(old).max(wide(a)) as u64,
        AtomOp::And => old & a,
        AtomOp::Or => old | a,
        AtomOp::Xor => old ^ a,
        AtomOp::Exch => a,
        AtomOp::Cas => {
            if old & mask(w) == a & mask(w) {
                b
            } else {
                old
            }
        }
        AtomOp::Inc => {
            if old & mask(w) >= a & mask(w) {
                0
            } else {
                old.wrapping_add(1)
            }
        }
        AtomOp::Dec => {
            let (old, a) = (old & mask(w), a & mask(w));
            if old == 0 || old > a { a } else { old - 1 }
        }
    };
    new & mask(w)
}

impl Machine<'_> {
    /// Lanes execute one after another, in lane order.
    pub(super) fn atomic(&mut self, w: &mut Warp, mask: u32, atom: &Atomic) -> Res<()> {
        for lane in lanes(mask) {
            self.atomic_lane(w, lane, atom).map_err(|t| t.lane(lane))?;
        }
        Ok(())
    }

    fn atomic_lane(&mut self, w: &mut Warp, lane: usize, atom: &Atomic) -> Res<()> {
        let bytes = atom.ty.bits() / 8;
        let whole = bytes as u64 * atom.a.len() as u64;
        let address = w.address(atom.at, lane);
        let b = atom.b.map_or(0, |b| w.get(b, lane));
        let place = match atom.space {
            Space::Shared | Space::SharedCluster => {
                let named = atom.at.base.is_some();
                let (block, offset) = self.find(w, address, atom.space, named)?;
                let shared = &self.blocks[block].shared;
                let at = shared.place(offset, whole)?;
                shared.readable(at, whole as usize)?;
                shared.writable(at, whole as usize)?;
                self.used(w, lane, block, at, whole as usize, Use::Atomic)?;
                self.wrote(w, lane, block, at, whole as usize);
                Some((block, at))
            }
            Space::Global | Space::Param | Space::Local => {
                self.memory.check(address, whole, true)?;
                None
            }
        };
        for (i, a) in atom.a.iter().enumerate() {
            let step = i * bytes as usize;
            let a = w.get(*a, lane);
            let old = match place {
                Some((block, at)) => self.blocks[block].shared.load(at + step, bytes),
                None => self.memory.load(address + step as u64, bytes)?,
            };
            let new = apply(atom.op, atom.ty, place.is_none(), old, a, b);
            match place {
                Some((block, at)) => self.blocks[block].shared.store(at + step, bytes, new),
                None => self.memory.store(address + step as u64, bytes, new)?,
            }
            if let Some(d) = atom.d {
                w.set(d, lane, old);
            }
        }
        Ok(())
    }
}
