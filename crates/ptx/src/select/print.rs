//! `print`: a group reserves space for a record, and its threads write their elements there. The
//! host formats the lines when the launch has ended; see `reports`.

use super::Select;
use crate::code::context;
use crate::inst::*;
use crate::reports::Printing;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::{OpId, Type};
use tessera_numerics::DType;
use tessera_target::frame;

impl Select<'_> {
    pub fn print(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let print = Printing::of(func, id);
        let (places, bytes) = print.places();
        let dtypes = print.dtypes.clone();
        let which = self.prints.len() as i64;
        self.prints.push(print);
        let context = self.word(frame::CONTEXT);
        let first = self.first_thread();
        let at = self.asm.mov(Ty::B32, Opnd::Int(0));
        self.asm.when(first, true, |asm| {
            asm.emit(Inst::Atom {
                space: Space::Global,
                sem: Sem::Relaxed,
                scope: Scope::Gpu,
                op: AtomOp::Add,
                ty: Ty::U32,
                d: at,
                addr: Addr::reg(context, context::PRINTED),
                a: Opnd::Int(bytes.into()),
                b: None,
            });
        });
        let at = self.broadcast_first(at);
        // A record that does not fit is dropped, and counted.
        let end = (context::ROOM + 1).saturating_sub(bytes);
        let [past, fits] = [self.asm.label(), self.asm.label()];
        let room = self.asm.setp(Cmp::Lt, Ty::U32, at, Opnd::Int(end.into()));
        self.asm.when(room, true, |asm| asm.emit(Inst::Bra { to: fits, uniform: true }));
        self.asm.emit(Inst::Bra { to: past, uniform: true });
        self.asm.place(fits);
        let wide = self.asm.cvt(Ty::U64, Ty::U32, None, at);
        let record = self.asm.int(Alu::Add, Ty::S64, &[context.into(), wide.into()]);
        let start = i64::from(context::BYTES);
        let group = self.group_number();
        let which = self.asm.mov(Ty::B32, Opnd::Int(which));
        let size = self.asm.mov(Ty::B32, Opnd::Int(bytes.into()));
        self.asm.when(first, true, |asm| {
            for (place, word) in [(0, size), (4, which), (8, group)] {
                let addr = Addr::reg(record, start + place);
                asm.st(Space::Global, Ty::B32, &[word.into()], addr, Cache::Usual);
            }
        });
        for ((&v, place), dtype) in op.operands.iter().zip(places).zip(dtypes) {
            let place = start + i64::from(place);
            let Type::Scalar(_) = func.ty(v) else {
                self.put_tile(v, dtype, record, place);
                continue;
            };
            let x = self.scalar(v);
            self.store_run(Space::Global, dtype, Addr::reg(record, place), &[x], Some(first));
        }
        self.asm.place(past);
        Ok(())
    }

    /// A tile's elements, row-major.
    fn put_tile(&mut self, v: tessera_ir::Value, dtype: DType, record: Reg, place: i64) {
        let layout: Arc<_> = self.layout(v);
        let xs = self.regs(v);
        let owner = self.owner(&layout);
        for reg in 0..layout.regs() {
            let valid = match self.valid(&layout, reg) {
                Ok(false) => continue,
                valid => valid.err(),
            };
            let when = self.both(valid, owner);
            let number = self.row_major_number(&layout, reg);
            let by = Opnd::Int(dtype.bytes() as i64);
            let addr = self.asm.int(Alu::MadWide, Ty::U32, &[number.into(), by, record.into()]);
            // Row-major numbers start at one.
            let addr = Addr::reg(addr, place - dtype.bytes() as i64);
            self.store_run(Space::Global, dtype, addr, &xs[reg as usize..][..1], when);
        }
    }

    /// The group's number, last axis fastest.
    fn group_number(&mut self) -> Reg {
        let mut number = self.asm.mov(Ty::B64, Opnd::Int(0));
        for axis in 0..3 {
            let extent = self.word(frame::GRID + axis);
            let id = self.program_id(axis);
            number = self.asm.int(Alu::MadLo, Ty::S64, &[number.into(), extent.into(), id.into()]);
        }
        self.asm.cvt(Ty::U32, Ty::U64, None, number)
    }
}
