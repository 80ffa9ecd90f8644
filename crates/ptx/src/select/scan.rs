//! Scans (running sums and the like). Where the order shows in the result (`strict`, sums and
//! products of floats) one thread scans a row sequentially, through shared memory.

use super::{Repr, Select};
use crate::inst::*;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, OpId};
use tessera_layout::Shared;
use tessera_numerics::Profile;

impl Select<'_> {
    pub fn scan(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let (x, result) = (op.operands[0], op.result());
        let name = op.attr("op").and_then(Attr::as_word).unwrap_or("sum").to_string();
        let exclusive = op.attr("exclusive").and_then(Attr::as_bool) == Some(true);
        let dtype = self.dtype(x);
        let axis = self.axis(id);
        let layout = self.layout(x);
        if layout.ctas() > 1 {
            return self.unsupported(id, "a scan does not go across the blocks of a cluster");
        }
        let in_order = self.profile == Profile::Strict
            && dtype.is_float()
            && matches!(name.as_str(), "sum" | "add" | "prod");
        if !in_order {
            return self.scan_by_all(id, (&name, exclusive), dtype, axis);
        }
        let xs = self.regs(x);
        let m = self.spread(&layout, dtype, &xs);
        let shape: Vec<u32> = layout.shape().to_vec();
        let bytes = dtype.bytes() as u32;
        // Row-major: a row along the axis begins at (outer, inner) and steps by `inner` elements.
        let inner: u32 = shape[axis + 1..].iter().product();
        let outer: u32 = shape[..axis].iter().product();
        let len = shape[axis];
        let base = self.smem_base(&m);
        let threads = self.warps * 32;
        let row = self.tid();
        let row = self.asm.mov(Ty::B32, row);
        let [rows, rows_done] = [self.asm.label(), self.asm.label()];
        self.asm.place(rows);
        let none = self.asm.setp(Cmp::Ge, Ty::U32, row, Opnd::Int((outer * inner).into()));
        self.asm.bra_if(none, true, rows_done);
        let n = Opnd::Int(inner.into());
        let hi = self.asm.int(Alu::Div, Ty::U32, &[row.into(), n]);
        let lo = self.asm.int(Alu::Rem, Ty::U32, &[row.into(), n]);
        let step = i64::from(inner * len * bytes);
        let at = self.asm.int(Alu::MadLo, Ty::U32, &[hi.into(), Opnd::Int(step), base.into()]);
        let at =
            self.asm.int(Alu::MadLo, Ty::U32, &[lo.into(), Opnd::Int(bytes.into()), at.into()]);
        let at = self.asm.mov(Ty::B32, at);
        let class = crate::scalar::carrier(dtype);
        let acc = self.asm.reg(class);
        let i = self.asm.mov(Ty::B32, Opnd::Int(0));
        // The first element is taken as it is, not combined with the identity.
        let start = self.identity(&name, dtype);
        self.move_all(&[acc], &[start]);
        let again = self.asm.label();
        self.asm.place(again);
        let x = self.load_run(Space::Shared, dtype, Addr::reg(at, 0), 1, None, Cache::Usual)[0];
        let next = self.combine(id, &name, dtype, acc, x)?;
        let first = self.asm.setp(Cmp::Eq, Ty::U32, i, Opnd::Int(0));
        let next = self.choose(first, x, next);
        let kept = if exclusive { acc } else { next };
        self.store_run(Space::Shared, dtype, Addr::reg(at, 0), &[kept], None);
        self.move_all(&[acc], &[next]);
        let stepped =
            self.asm.int(Alu::Add, Ty::U32, &[at.into(), Opnd::Int((inner * bytes).into())]);
        self.asm.mov_to(Ty::B32, at, stepped);
        let j = self.asm.int(Alu::Add, Ty::U32, &[i.into(), Opnd::Int(1)]);
        self.asm.mov_to(Ty::B32, i, j);
        let more = self.asm.setp(Cmp::Lt, Ty::U32, i, Opnd::Int(len.into()));
        self.asm.bra_if(more, true, again);
        let stepped = self.asm.int(Alu::Add, Ty::U32, &[row.into(), Opnd::Int(threads.into())]);
        self.asm.mov_to(Ty::B32, row, stepped);
        self.asm.bra(rows);
        self.asm.place(rows_done);
        self.barrier();
        let to = self.layout(result);
        let m = super::sync::Smem { layout: Arc::new(Shared::row_major(&shape, bytes)), ..m };
        let out = self.read_shared(&m, &to);
        self.reading(m.region);
        self.set(result, Repr::Tile(out));
        Ok(())
    }
}
