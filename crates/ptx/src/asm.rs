//! An assembler for kernels: virtual registers on demand, one method per instruction.

use crate::inst::*;
use crate::module::{Guard, Kernel, SharedVar, Stmt};
use std::collections::BTreeMap;
use tessera_diag::Loc;

pub struct Asm {
    pub kernel: Kernel,
    /// The guard of every instruction while it is set.
    guard: Option<Guard>,
    /// Registers that hold a constant.
    constants: BTreeMap<Reg, Opnd>,
    /// Source files that locations name, by their number less 1.
    pub files: Vec<String>,
    /// File, line and column of the last location.
    location: Option<(u32, u32, u32)>,
}

impl Asm {
    pub fn new(kernel: Kernel) -> Self {
        Self { kernel, guard: None, constants: BTreeMap::new(), files: Vec::new(), location: None }
    }

    /// A register with this constant. It must not be written again: code may be specialised for the
    /// constant.
    pub fn constant(&mut self, ty: Ty, a: Opnd) -> Reg {
        let d = self.mov(ty, a);
        if self.guard.is_none() {
            self.constants.insert(d, a);
        }
        d
    }

    /// The constant of a register from [`Asm::constant`].
    pub fn known(&self, r: Reg) -> Option<Opnd> {
        self.constants.get(&r).copied()
    }

    pub fn reg(&mut self, class: Class) -> Reg {
        let n = &mut self.kernel.regs[class.place()];
        *n += 1;
        Reg { class, id: *n - 1 }
    }

    pub fn label(&mut self) -> Label {
        self.kernel.labels += 1;
        Label(self.kernel.labels - 1)
    }

    pub fn place(&mut self, label: Label) {
        self.kernel.body.push(Stmt::Label(label));
    }

    /// Records the source location of the next instructions.
    pub fn at(&mut self, loc: &Loc) {
        let Some(source) = loc.file() else { return };
        let known = self.files.iter().position(|f| **f == *source.name);
        let file = known.unwrap_or_else(|| {
            self.files.push(source.name.to_string());
            self.files.len() - 1
        });
        let location = (file as u32 + 1, loc.line(), loc.column());
        if self.location != Some(location) {
            self.location = Some(location);
            let (file, line, column) = location;
            self.kernel.body.push(Stmt::Place { file, line, column });
        }
    }

    /// The next location is recorded also if it is the last one: the code before it is elsewhere.
    pub fn forget_location(&mut self) {
        self.location = None;
    }

    pub fn note(&mut self, text: impl Into<String>) {
        self.kernel.body.push(Stmt::Note(text.into()));
    }

    /// Static shared memory; its name is made unique.
    pub fn shared(&mut self, name: &str, bytes: u32, align: u32) -> String {
        let name = format!("{name}_{}", self.kernel.shared.len());
        self.kernel.shared.push(SharedVar { name: name.clone(), bytes, align });
        name
    }

    pub fn emit(&mut self, inst: Inst) {
        assert!(
            inst.writes().iter().all(|d| !self.constants.contains_key(d)),
            "a constant is written: {inst:?}"
        );
        let guard = self.guard;
        self.kernel.body.push(Stmt::Inst { guard, inst });
    }

    /// What `write` emits is predicated on `p` being `wanted`. Does not nest: combine the
    /// conditions. Only for straight-line code: a branch inside is taken by those threads alone.
    pub fn when<T>(&mut self, p: Reg, wanted: bool, write: impl FnOnce(&mut Self) -> T) -> T {
        assert!(self.guard.is_none(), "guards do not nest");
        let old = self.guard.replace(Guard { reg: p, negated: !wanted });
        let out = write(self);
        self.guard = old;
        out
    }

    /// The same with an optional condition.
    pub fn maybe<T>(&mut self, p: Option<Reg>, write: impl FnOnce(&mut Self) -> T) -> T {
        match p {
            Some(p) => self.when(p, true, write),
            None => write(self),
        }
    }

    pub fn mov(&mut self, ty: Ty, a: impl Into<Opnd>) -> Reg {
        let d = self.reg(ty.class());
        self.emit(Inst::Mov { ty, d, a: a.into() });
        d
    }

    pub fn mov_to(&mut self, ty: Ty, d: Reg, a: impl Into<Opnd>) {
        self.emit(Inst::Mov { ty, d, a: a.into() });
    }

    pub fn special(&mut self, s: Special) -> Reg {
        self.mov(s.ty(), Opnd::Special(s))
    }

    pub fn address_of(&mut self, name: &str) -> Reg {
        let d = self.reg(Class::B32);
        self.emit(Inst::AddressOf { d, name: name.to_string() });
        d
    }

    /// The generic address of a parameter, for instructions that take a pointer to it.
    pub fn param_address(&mut self, name: &str) -> Reg {
        let d = self.reg(Class::B64);
        self.emit(Inst::AddressOf { d, name: name.to_string() });
        d
    }

    /// An operation on integers or bits; results as wide as `ty` (twice that for the `Wide` ones).
    pub fn int(&mut self, op: Alu, ty: Ty, a: &[Opnd]) -> Reg {
        let class = match (op, ty.class()) {
            (Alu::MulWide | Alu::MadWide, Class::B32) => Class::B64,
            (Alu::MulWide | Alu::MadWide, Class::B16) => Class::B32,
            (Alu::Popc | Alu::Clz, _) => Class::B32,
            (_, class) => class,
        };
        let d = self.reg(class);
        self.emit(Inst::Alu { op, ty, round: None, ftz: false, sat: false, d, a: a.to_vec() });
        d
    }

    /// A floating-point operation, rounded to nearest even where it rounds.
    pub fn float(&mut self, op: Alu, ty: Ty, a: &[Opnd]) -> Reg {
        let rounds = matches!(
            op,
            Alu::Add | Alu::Sub | Alu::Mul | Alu::Fma | Alu::Div | Alu::Sqrt | Alu::Rcp
        );
        let d = self.reg(ty.class());
        let round = rounds.then_some(Round::Rn);
        self.emit(Inst::Alu { op, ty, round, ftz: false, sat: false, d, a: a.to_vec() });
        d
    }

    /// A hardware approximation, which also flushes subnormal numbers.
    pub fn approx(&mut self, op: Alu, ty: Ty, a: &[Opnd]) -> Reg {
        let d = self.reg(ty.class());
        let ftz = match ty {
            Ty::F32 => op != Alu::TanhApprox,
            Ty::BF16 | Ty::BF16x2 => op == Alu::Ex2Approx,
            _ => op == Alu::RcpApprox,
        };
        self.emit(Inst::Alu { op, ty, round: None, ftz, sat: false, d, a: a.to_vec() });
        d
    }

    pub fn cvt(&mut self, to: Ty, from: Ty, round: Option<Round>, a: impl Into<Opnd>) -> Reg {
        let d = self.reg(to.class());
        let a = a.into();
        self.emit(Inst::Cvt { d, to, a, b: None, from, round, ftz: false, sat: false });
        d
    }

    pub fn setp(&mut self, cmp: Cmp, ty: Ty, a: impl Into<Opnd>, b: impl Into<Opnd>) -> Reg {
        let d = self.reg(Class::Pred);
        self.emit(Inst::Setp { cmp, ty, ftz: false, d, a: a.into(), b: b.into() });
        d
    }

    pub fn selp(&mut self, ty: Ty, p: Reg, a: impl Into<Opnd>, b: impl Into<Opnd>) -> Reg {
        let d = self.reg(ty.class());
        self.emit(Inst::Selp { ty, d, a: a.into(), b: b.into(), p });
        d
    }

    pub fn pack(&mut self, class: Class, parts: &[Reg]) -> Reg {
        let d = self.reg(class);
        self.emit(Inst::Pack { d, parts: parts.to_vec() });
        d
    }

    pub fn unpack(&mut self, class: Class, n: usize, a: Reg) -> Vec<Reg> {
        let parts: Vec<Reg> = (0..n).map(|_| self.reg(class)).collect();
        self.emit(Inst::Unpack { parts: parts.clone(), a });
        parts
    }

    /// Plain loads and stores.
    pub fn ld(&mut self, space: Space, ty: Ty, n: usize, addr: Addr, cache: Cache) -> Vec<Reg> {
        let d: Vec<Reg> = (0..n).map(|_| self.reg(ty.class())).collect();
        let (sem, scope) = (Sem::Weak, Scope::Gpu);
        self.emit(Inst::Ld { space, ty, d: d.clone(), addr, cache, sem, scope });
        d
    }

    pub fn st(&mut self, space: Space, ty: Ty, a: &[Opnd], addr: Addr, cache: Cache) {
        let (sem, scope) = (Sem::Weak, Scope::Gpu);
        self.emit(Inst::St { space, ty, a: a.to_vec(), addr, cache, sem, scope });
    }

    pub fn bra(&mut self, to: Label) {
        self.emit(Inst::Bra { to, uniform: false });
    }

    pub fn bra_if(&mut self, p: Reg, wanted: bool, to: Label) {
        self.when(p, wanted, |asm| asm.bra(to));
    }

    pub fn barrier(&mut self) {
        self.emit(Inst::BarSync { id: Opnd::Int(0), count: None });
    }
}
