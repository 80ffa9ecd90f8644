//! Control flow: blocks, and loops and branches whose values are in SSA form from the start.

use super::build::{Ir, NO_NAME, Ty, Val, c};
use llvm_sys::LLVMIntPredicate::LLVMIntSLT;
use llvm_sys::core::*;
use llvm_sys::prelude::*;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Blk(LLVMBasicBlockRef);

// SAFETY: as in `build.rs`.
impl Ir {
    /// A new block at the end of the present function.
    pub fn block(&self, name: &str) -> Blk {
        unsafe {
            let f = LLVMGetBasicBlockParent(LLVMGetInsertBlock(self.builder));
            Blk(LLVMAppendBasicBlockInContext(self.ctx, f, c(name).as_ptr()))
        }
    }
    pub fn here(&self) -> Blk {
        Blk(unsafe { LLVMGetInsertBlock(self.builder) })
    }
    pub fn goto(&self, b: Blk) {
        unsafe { LLVMPositionBuilderAtEnd(self.builder, b.0) }
    }
    pub fn jump(&self, to: Blk) {
        unsafe {
            LLVMBuildBr(self.builder, to.0);
        }
    }
    pub fn branch(&self, cond: Val, then: Blk, otherwise: Blk) {
        unsafe {
            LLVMBuildCondBr(self.builder, cond.0, then.0, otherwise.0);
        }
    }
    /// Whether the present block has its last instruction.
    pub fn is_ended(&self) -> bool {
        unsafe { !LLVMGetBasicBlockTerminator(LLVMGetInsertBlock(self.builder)).is_null() }
    }
    pub fn phi(&self, ty: Ty, from: &[(Val, Blk)]) -> Val {
        let phi = Val(unsafe { LLVMBuildPhi(self.builder, ty.0, NO_NAME) });
        from.iter().for_each(|&(v, b)| self.incoming(phi, v, b));
        phi
    }
    pub fn incoming(&self, phi: Val, v: Val, from: Blk) {
        unsafe { LLVMAddIncoming(phi.0, [v.0].as_mut_ptr(), [from.0].as_mut_ptr(), 1) }
    }

    /// Runs `body` for `lo, lo + step, …` below `hi` (i64, signed). It takes the position and the
    /// carried values and gives the next ones; the last ones are the result.
    pub fn for_range(
        &self,
        lo: Val,
        hi: Val,
        step: i64,
        carried: &[Val],
        body: impl FnOnce(&Ir, Val, &[Val]) -> Vec<Val>,
    ) -> Vec<Val> {
        // Loops of zero or one iteration are not emitted as loops.
        if let (Some(a), Some(b)) = (self.as_int(lo), self.as_int(hi)) {
            if a >= b {
                return carried.to_vec();
            }
            if a.checked_add(step).is_none_or(|next| next >= b) {
                return body(self, lo, carried);
            }
        }
        let known = matches!((self.as_int(lo), self.as_int(hi)), (Some(a), Some(b)) if a < b);
        let (before, head, end) = (self.here(), self.block("loop"), self.block("done"));
        if known {
            self.jump(head);
        } else {
            self.branch(self.icmp(LLVMIntSLT, lo, hi), head, end);
        }
        self.goto(head);
        let at = self.phi(self.i64(), &[(lo, before)]);
        let phis: Vec<_> = carried.iter().map(|&v| self.phi(self.ty(v), &[(v, before)])).collect();
        let next = body(self, at, &phis);
        let after = self.add_const(at, step);
        let last = self.here();
        self.incoming(at, after, last);
        phis.iter().zip(&next).for_each(|(&p, &v)| self.incoming(p, v, last));
        self.branch(self.icmp(LLVMIntSLT, after, hi), head, end);
        self.goto(end);
        if known {
            return next;
        }
        let join = |(&first, &v): (&Val, &Val)| self.phi(self.ty(v), &[(first, before), (v, last)]);
        carried.iter().zip(&next).map(join).collect()
    }

    /// One of two branches; both give values of the same types.
    pub fn if_else(
        &self,
        cond: Val,
        then: impl FnOnce(&Ir) -> Vec<Val>,
        otherwise: impl FnOnce(&Ir) -> Vec<Val>,
    ) -> Vec<Val> {
        match self.as_int(cond) {
            Some(0) => return otherwise(self),
            Some(_) => return then(self),
            None => {}
        }
        let (yes, no, end) = (self.block("then"), self.block("else"), self.block("end"));
        self.branch(cond, yes, no);
        self.goto(yes);
        let a = then(self);
        let from_yes = self.here();
        self.jump(end);
        self.goto(no);
        let b = otherwise(self);
        let from_no = self.here();
        self.jump(end);
        self.goto(end);
        let join = |(&a, &b): (&Val, &Val)| self.phi(self.ty(a), &[(a, from_yes), (b, from_no)]);
        a.iter().zip(&b).map(join).collect()
    }

    pub fn when(&self, cond: Val, then: impl FnOnce(&Ir)) {
        match self.as_int(cond) {
            Some(0) => return,
            Some(_) => return then(self),
            None => {}
        }
        let (yes, end) = (self.block("then"), self.block("end"));
        self.branch(cond, yes, end);
        self.goto(yes);
        then(self);
        if !self.is_ended() {
            self.jump(end);
        }
        self.goto(end);
    }

    /// The value of `then` where the condition holds, else `other`.
    pub fn if_then(&self, cond: Val, other: Val, then: impl FnOnce(&Ir) -> Val) -> Val {
        self.if_else(cond, |ir| vec![then(ir)], |_| vec![other])[0]
    }
}
