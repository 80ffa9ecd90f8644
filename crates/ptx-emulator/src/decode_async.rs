//! Decoding of asynchronous copies, mbarriers and WGMMA.

use super::atomic;
use super::decode::{Decoder, Out};
use super::program::*;
use tessera_ptx::inst::*;
use tessera_ptx::module::Stmt;

impl Decoder<'_> {
    pub(super) fn mbarrier(&mut self, inst: &Inst) -> Out<Op> {
        let word = Class::B32;
        Ok(match inst {
            Inst::MbarInit { addr, count } => {
                Op::MbarInit { at: self.at(addr)?, count: self.opnd(word, *count)? }
            }
            Inst::MbarInval { addr } => Op::MbarInval { at: self.at(addr)? },
            Inst::MbarArrive { space, addr, count } => {
                let count = count.map(|c| self.opnd(word, c)).transpose()?;
                let at = self.at(addr)?;
                Op::Mbar { space: *space, at, count, bytes: None, arrives: true }
            }
            Inst::MbarArriveExpect { space, addr, bytes } => {
                let bytes = Some(self.opnd(word, *bytes)?);
                let at = self.at(addr)?;
                Op::Mbar { space: *space, at, count: None, bytes, arrives: true }
            }
            Inst::MbarExpect { addr, bytes } => {
                let bytes = Some(self.opnd(word, *bytes)?);
                let at = self.at(addr)?;
                Op::Mbar { space: Space::Shared, at, count: None, bytes, arrives: false }
            }
            Inst::MbarWait { d, addr, parity, block } => Op::MbarWait {
                d: self.pred(*d)?,
                at: self.at(addr)?,
                parity: self.opnd(word, *parity)?,
                block: *block,
            },
            _ => return Err("not an operation of a barrier".to_string()),
        })
    }

    pub(super) fn async_copy(&mut self, inst: &Inst) -> Out<Bulk> {
        let word = Class::B32;
        let words = |this: &mut Self, all: &[Opnd]| -> Out<Box<[Slot]>> {
            let all: Out<Vec<Slot>> = all.iter().map(|o| this.opnd(word, *o)).collect();
            Ok(all?.into())
        };
        Ok(match inst {
            Inst::BulkLoad { dst, src, bytes, bar, multicast, .. } => Bulk::Load {
                dst: self.at(dst)?,
                src: self.at(src)?,
                bytes: self.opnd(word, *bytes)?,
                bar: self.at(bar)?,
                multicast: multicast.map(|m| self.opnd(Class::B16, m)).transpose()?,
            },
            Inst::TmaLoad { dst, map, coords, bar, multicast, .. } => Bulk::TensorLoad {
                dst: self.at(dst)?,
                map: self.result(Class::B64, *map)?,
                coords: words(self, coords)?,
                bar: self.at(bar)?,
                multicast: multicast.map(|m| self.opnd(Class::B16, m)).transpose()?,
            },
            Inst::BulkStore { dst, src, bytes, .. } => {
                self.program.async_copies = true;
                let (dst, src) = (self.at(dst)?, self.at(src)?);
                Bulk::Store { dst, src, bytes: self.opnd(word, *bytes)?, reduce: None }
            }
            Inst::BulkReduce { op, ty, dst, src, bytes, .. } => {
                self.program.async_copies = true;
                folds(*op, *ty)?;
                let (dst, src) = (self.at(dst)?, self.at(src)?);
                Bulk::Store { dst, src, bytes: self.opnd(word, *bytes)?, reduce: Some((*op, *ty)) }
            }
            Inst::TmaStore { map, coords, src, .. } => {
                self.program.async_copies = true;
                let (map, coords) = (self.result(Class::B64, *map)?, words(self, coords)?);
                Bulk::TensorStore { map, coords, src: self.at(src)?, reduce: None }
            }
            Inst::TmaReduce { op, map, coords, src, .. } => {
                self.program.async_copies = true;
                let (map, coords) = (self.result(Class::B64, *map)?, words(self, coords)?);
                Bulk::TensorStore { map, coords, src: self.at(src)?, reduce: Some(*op) }
            }
            Inst::BulkSend { dst, src, bytes, bar } => {
                self.program.async_copies = true;
                let bytes = self.opnd(word, *bytes)?;
                Bulk::Send { dst: self.at(dst)?, src: self.at(src)?, bytes, bar: self.at(bar)? }
            }
            Inst::StAsync { ty, addr, a, bar } => {
                let a: Out<Vec<Slot>> = a.iter().map(|o| self.stored(*ty, *o)).collect();
                let (addr, bar) = (self.at(addr)?, self.at(bar)?);
                let bytes = ty.bits() / 8;
                self.grain(Space::Shared, bytes);
                Bulk::Put { addr, a: a?.into(), bytes, bar, reduce: None }
            }
            Inst::RedAsync { op, ty, addr, a, bar } => {
                folds(*op, *ty)?;
                let a = vec![self.stored(*ty, *a)?].into();
                let (addr, bar) = (self.at(addr)?, self.at(bar)?);
                Bulk::Put { addr, a, bytes: ty.bits() / 8, bar, reduce: Some((*op, *ty)) }
            }
            Inst::CpAsyncArrive { addr } => Bulk::CopyArrive { bar: self.at(addr)? },
            _ => return Err("not an asynchronous copy".to_string()),
        })
    }

    pub(super) fn group_mma(&mut self, inst: &Inst) -> Out<Op> {
        let Inst::Wgmma { row, d, a, b, add, neg_a, neg_b, trans_a, trans_b } = inst else {
            return Err("not a WGMMA".to_string());
        };
        let known = row.n >= 8
            && row.n <= 256
            && row.n.is_multiple_of(8)
            && row.k * row.a.bits() == 256
            && match (row.a, row.b) {
                (Ty::F16, Ty::F16) => matches!(row.c, Ty::F16 | Ty::F32),
                (Ty::BF16, Ty::BF16) | (Ty::Tf32, Ty::Tf32) => row.c == Ty::F32,
                (Ty::E4M3 | Ty::E5M2, Ty::E4M3 | Ty::E5M2) => matches!(row.c, Ty::F16 | Ty::F32),
                (Ty::S8 | Ty::U8, Ty::S8 | Ty::U8) => row.c == Ty::S32,
                _ => false,
            };
        if !known || d.len() != row.regs() {
            return Err(format!("{row:?} into {} registers is no WGMMA", d.len()));
        }
        let halves = row.a.bits() == 16;
        if (*trans_a || *trans_b) && !halves {
            return Err("only elements of 16 bits can lie transposed".to_string());
        }
        self.program.async_copies = true;
        let d = self.regs(Class::B32, d)?;
        let a = match a {
            WgmmaA::Shared(a) => GroupA::Shared(self.result(Class::B64, *a)?),
            WgmmaA::Regs(a) => {
                let a = self.regs(Class::B32, a)?;
                GroupA::Regs([a[0], a[1], a[2], a[3]])
            }
        };
        self.program.group_regs.extend(d.iter().map(|s| s.row()));
        if let GroupA::Regs(a) = &a {
            self.program.group_regs.extend(a.iter().map(|s| s.row()));
        }
        Ok(Op::Wgmma(Box::new(GroupMma {
            row: *row,
            d,
            a,
            b: self.result(Class::B64, *b)?,
            add: self.opnd(Class::Pred, *add)?,
            neg_a: *neg_a,
            neg_b: *neg_b,
            trans_a: *trans_a,
            trans_b: *trans_b,
        })))
    }

    /// Marks the steps, other than WGMMAs, that touch WGMMA registers.
    pub(super) fn watch(&mut self) {
        if self.program.group_regs.is_empty() {
            return;
        }
        for pc in 0..self.program.steps.len() {
            let stmt = self.kernel.body.get(self.program.origin[pc] as usize);
            let Some(Stmt::Inst { inst, .. }) = stmt else { continue };
            if matches!(inst, Inst::Wgmma { .. }) {
                continue;
            }
            let used = inst.reads().into_iter().chain(inst.writes());
            let rows: Vec<u32> = used
                .filter_map(|r| match self.reg(r) {
                    Ok(Slot::N(row)) if self.program.group_regs.contains(&row) => Some(row),
                    _ => None,
                })
                .collect();
            if !rows.is_empty() {
                self.program.steps[pc].watched = true;
                self.program.watch.insert(pc as u32, rows);
            }
        }
    }
}

fn folds(op: AtomOp, ty: Ty) -> Out<()> {
    if atomic::exists(op, ty) { Ok(()) } else { Err(format!("{op:?} of {ty:?} is no fold")) }
}
