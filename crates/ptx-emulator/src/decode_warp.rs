//! Decoding of atomics and warp-collective instructions.

use super::decode::{Decoder, Out};
use super::program::*;
use tessera_ptx::inst::*;

impl Decoder<'_> {
    pub(super) fn atomic(&mut self, inst: &Inst) -> Out<Op> {
        let (space, op, ty, addr) = match inst {
            Inst::Atom { space, op, ty, addr, .. } | Inst::Red { space, op, ty, addr, .. } => {
                (*space, *op, *ty, addr)
            }
            _ => return Err("no atomic operation".to_string()),
        };
        if !super::atomic::exists(op, ty) {
            return Err(format!("{op:?} of {ty:?} is no atomic operation"));
        }
        self.grain(space, ty.bits() / 8);
        let class = ty.class();
        let at = self.at(addr)?;
        let (d, a, b) = match inst {
            Inst::Atom { d, a, b, .. } => {
                if b.is_some() != (op == AtomOp::Cas) {
                    return Err("only cas has two operands, and must have them".to_string());
                }
                let b = b.map(|b| self.opnd(class, b)).transpose()?;
                (Some(self.result(class, *d)?), vec![self.opnd(class, *a)?], b)
            }
            Inst::Red { a, .. } => {
                let a: Out<Vec<Slot>> = a.iter().map(|o| self.opnd(class, *o)).collect();
                (None, a?, None)
            }
            _ => return Err("no atomic operation".to_string()),
        };
        Ok(Op::Atom(Box::new(Atomic { space, op, ty, at, d, a: a.into(), b })))
    }

    pub(super) fn warp(&mut self, inst: &Inst) -> Out<Op> {
        let b32 = Class::B32;
        Ok(match inst {
            Inst::Shfl { kind, d, ok, a, b, c, mask } => Op::Shfl(Box::new(Shuffle {
                kind: *kind,
                d: self.result(b32, *d)?,
                ok: ok.map(|p| self.pred(p)).transpose()?,
                a: self.opnd(b32, *a)?,
                b: self.opnd(b32, *b)?,
                c: self.opnd(b32, *c)?,
                mask: self.opnd(b32, *mask)?,
            })),
            Inst::Vote { kind, d, p, mask } => {
                let class = if *kind == Vote::Ballot { b32 } else { Class::Pred };
                let (d, mask) = (self.result(class, *d)?, self.opnd(b32, *mask)?);
                Op::Vote { kind: *kind, d, p: self.pred(p.reg)?, negated: p.negated, mask }
            }
            Inst::Redux { op, ty, d, a, mask } => {
                let bits = matches!(op, AtomOp::And | AtomOp::Or | AtomOp::Xor);
                let number = matches!(op, AtomOp::Add | AtomOp::Min | AtomOp::Max);
                let int = matches!(ty, Ty::U32 | Ty::S32) || bits && *ty == Ty::B32;
                if !int || !(bits || number) {
                    return Err(format!("{op:?} of {ty:?} is no redux"));
                }
                let (a, mask) = (self.opnd(b32, *a)?, self.opnd(b32, *mask)?);
                let d = self.result(b32, *d)?;
                Op::Redux { op: *op, signed: ty.is_signed(), d, a, mask }
            }
            Inst::Elect { p, mask } => {
                Op::Elect { p: self.pred(*p)?, mask: self.opnd(b32, *mask)? }
            }
            Inst::WarpSync { mask } => Op::WarpSync { mask: self.opnd(b32, *mask)? },
            Inst::Activemask { d } => Op::Activemask { d: self.result(b32, *d)? },
            _ => return Err("not an operation of a warp".to_string()),
        })
    }

    pub(super) fn mma(&mut self, row: MmaRow, [d, a, b, c]: [&Vec<Reg>; 4]) -> Out<Op> {
        super::matrix::check(row)?;
        let want = row.regs();
        if [a.len(), b.len(), c.len()] != want || d.len() != want[2] {
            return Err(format!("expected {want:?} registers for a, b and c"));
        }
        let class = |ty: Ty| if ty == Ty::F64 { Class::B64 } else { Class::B32 };
        Ok(Op::Mma(Box::new(WarpMma {
            row,
            d: self.regs(class(row.c), d)?,
            a: self.regs(class(row.a), a)?,
            b: self.regs(class(row.b), b)?,
            c: self.regs(class(row.c), c)?,
        })))
    }
}
