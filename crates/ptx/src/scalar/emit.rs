//! Code of one scalar operation while it is emitted: instructions are collected here, so that
//! values can be `Copy` with operators ([`Val`]), and go to the kernel at the end.

use super::Features;
use super::val::Val;
use crate::asm::Asm;
use crate::inst::{Class, Inst, Label, Opnd, Reg, Ty};
use crate::module::{Guard, Stmt};
use std::cell::{Cell, RefCell};

pub(crate) struct Emit {
    pub has: Features,
    /// Whether results must be those of `numerics`, bit for bit.
    pub strict: bool,
    regs: Cell<[u32; 4]>,
    labels: Cell<u32>,
    body: RefCell<Vec<Stmt>>,
}

impl Emit {
    pub fn new(asm: &Asm, has: Features, strict: bool) -> Self {
        let (regs, labels) = (Cell::new(asm.kernel.regs), Cell::new(asm.kernel.labels));
        Self { has, strict, regs, labels, body: RefCell::default() }
    }

    /// Appends the collected instructions to the kernel, under its current guard.
    pub fn finish(self, asm: &mut Asm) {
        asm.kernel.regs = self.regs.get();
        asm.kernel.labels = self.labels.get();
        for stmt in self.body.into_inner() {
            match stmt {
                Stmt::Inst { guard: None, inst } => asm.emit(inst),
                Stmt::Inst { guard: Some(g), inst } => {
                    asm.when(g.reg, !g.negated, |asm| asm.emit(inst));
                }
                other => asm.kernel.body.push(other),
            }
        }
    }

    pub fn reg(&self, class: Class) -> Reg {
        let mut regs = self.regs.get();
        let id = regs[class.place()];
        regs[class.place()] += 1;
        self.regs.set(regs);
        Reg { class, id }
    }

    pub fn push(&self, inst: Inst) {
        self.body.borrow_mut().push(Stmt::Inst { guard: None, inst });
    }

    /// A register read as a number of this type.
    pub fn val(&self, r: Reg, ty: Ty) -> Val<'_> {
        Val::new(self, Opnd::Reg(r), ty)
    }

    pub fn f32(&self, x: f32) -> Val<'_> {
        Val::new(self, Opnd::F32(x.to_bits()), Ty::F32)
    }

    pub fn f64(&self, x: f64) -> Val<'_> {
        Val::new(self, Opnd::F64(x.to_bits()), Ty::F64)
    }

    /// An integer or bits; `ty` is at most as wide as an `i64`.
    pub fn int(&self, ty: Ty, x: i64) -> Val<'_> {
        // Words are printed as signed numbers: every assembler reads those alike.
        let x = if ty.bits() == 32 { i64::from(x as i32) } else { x };
        Val::new(self, Opnd::Int(x), ty)
    }

    pub fn label(&self) -> Label {
        let label = self.labels.get();
        self.labels.set(label + 1);
        Label(label)
    }

    pub fn place(&self, label: Label) {
        self.body.borrow_mut().push(Stmt::Label(label));
    }

    /// Branches to `to` where the condition is as wanted.
    pub fn branch(&self, cond: Val<'_>, wanted: bool, to: Label) {
        let guard = Some(Guard { reg: cond.reg(), negated: !wanted });
        let inst = Inst::Bra { to, uniform: false };
        self.body.borrow_mut().push(Stmt::Inst { guard, inst });
    }

    /// A mutable register with this initial value, for loops.
    pub fn variable(&self, x: Val<'_>) -> Val<'_> {
        let d = self.reg(x.ty().class());
        self.assign(d, x);
        self.val(d, x.ty())
    }

    /// Assigns to a variable.
    pub fn assign(&self, d: Reg, x: Val<'_>) {
        self.push(Inst::Mov { ty: x.ty(), d, a: x.opnd() });
    }
}
