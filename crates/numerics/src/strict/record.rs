//! Symbols that write down what is done with them.

use super::expansion::{ExpOp, Expansion, Slot};
use super::real::{Cond, Int, Real, Word};
use crate::dtype::DType;
use crate::scalar_fn::ScalarFn;
use std::cell::RefCell;
use std::ops::{Add, Div, Mul, Neg, Sub};

thread_local! {
    /// The expansion being written on this thread. Symbols are bare numbers so that they can be
    /// `Copy` and have operators, like the floats they stand for.
    static CURRENT: RefCell<Expansion> = const { RefCell::new(EMPTY) };
}

const EMPTY: Expansion = Expansion { arity: 0, ops: Vec::new(), types: Vec::new() };

fn push(op: ExpOp, ty: DType) -> Slot {
    CURRENT.with_borrow_mut(|e| {
        // The same operation on the same slots is the same value.
        if let Some(i) = e.ops.iter().position(|seen| *seen == op) {
            return Slot(i as u32);
        }
        e.ops.push(op);
        e.types.push(ty);
        Slot(e.ops.len() as u32 - 1)
    })
}

fn apply(f: ScalarFn, args: &[Slot], ty: DType) -> Slot {
    push(ExpOp::Apply { f, args: args.to_vec() }, ty)
}

fn select(cond: SymB, then: Slot, other: Slot, ty: DType) -> Slot {
    push(ExpOp::Select { cond: cond.0, then, other }, ty)
}

/// Writes down `f` of symbolic operands.
pub fn record(arity: usize, f: impl FnOnce(&[SymF]) -> SymF) -> Expansion {
    CURRENT.set(EMPTY);
    let inputs: Vec<SymF> =
        (0..arity).map(|i| SymF(push(ExpOp::Input(i as u32), DType::F32))).collect();
    let result = f(&inputs).0;
    let mut e = CURRENT.replace(EMPTY);
    e.arity = arity;
    without_dead(e, result)
}

/// Only the operations the result needs, in their order, which leaves the result's last.
fn without_dead(e: Expansion, result: Slot) -> Expansion {
    let mut live = vec![false; e.ops.len()];
    live[result.0 as usize] = true;
    for i in (0..e.ops.len()).rev() {
        if live[i] {
            e.ops[i].operands().iter().for_each(|s| live[s.0 as usize] = true);
        }
    }
    let mut place = vec![Slot(0); e.ops.len()];
    let mut out = Expansion { arity: e.arity, ..EMPTY };
    for (i, (op, ty)) in e.ops.into_iter().zip(e.types).enumerate() {
        if !live[i] {
            continue;
        }
        place[i] = Slot(out.ops.len() as u32);
        let at = |s: Slot| place[s.0 as usize];
        out.ops.push(match op {
            ExpOp::Input(_) | ExpOp::Const(_) => op,
            ExpOp::Apply { f, args } => {
                ExpOp::Apply { f, args: args.into_iter().map(at).collect() }
            }
            ExpOp::Select { cond, then, other } => {
                ExpOp::Select { cond: at(cond), then: at(then), other: at(other) }
            }
            ExpOp::Cast { to, value } => ExpOp::Cast { to, value: at(value) },
            ExpOp::Bitcast { to, value } => ExpOp::Bitcast { to, value: at(value) },
        });
        out.types.push(ty);
    }
    out
}

#[derive(Copy, Clone)]
pub struct SymF(Slot);
#[derive(Copy, Clone)]
pub struct SymI(Slot);
#[derive(Copy, Clone)]
pub struct SymU(Slot);
#[derive(Copy, Clone)]
pub struct SymB(Slot);

macro_rules! methods {
    ($sym:ident, $ty:ident: $($name:ident($($arg:ident),*) = $f:ident -> $out:ident $oty:ident;)*) => {$(
        fn $name(self $(, $arg: $sym)*) -> $out {
            $out(apply(ScalarFn::$f, &[self.0 $(, $arg.0)*], DType::$oty))
        }
    )*};
}

macro_rules! operators {
    ($($trait:ident $name:ident = $f:ident;)*) => {$(
        impl $trait for SymF {
            type Output = SymF;
            fn $name(self, b: SymF) -> SymF {
                SymF(apply(ScalarFn::$f, &[self.0, b.0], DType::F32))
            }
        }
    )*};
}

operators! { Add add = Add; Sub sub = Sub; Mul mul = Mul; Div div = Div; }

impl Neg for SymF {
    type Output = SymF;
    fn neg(self) -> SymF {
        SymF(apply(ScalarFn::Neg, &[self.0], DType::F32))
    }
}

impl Real for SymF {
    type Int = SymI;
    type Cond = SymB;

    methods! { SymF, F32:
        fma(b, c) = Fma -> SymF F32;
        sqrt() = Sqrt -> SymF F32;
        abs() = Abs -> SymF F32;
        lt(b) = Lt -> SymB Bool;
        eq(b) = Eq -> SymB Bool;
        ne(b) = Ne -> SymB Bool;
    }
    fn c(x: f32) -> SymF {
        SymF(push(ExpOp::Const(x.into()), DType::F32))
    }
    fn pick(cond: SymB, then: SymF, other: SymF) -> SymF {
        SymF(select(cond, then.0, other.0, DType::F32))
    }
    fn bits(self) -> SymI {
        SymI(push(ExpOp::Bitcast { to: DType::I32, value: self.0 }, DType::I32))
    }
    fn to_int(self) -> SymI {
        SymI(push(ExpOp::Cast { to: DType::I32, value: self.0 }, DType::I32))
    }
}

impl Int for SymI {
    type Real = SymF;
    type Word = SymU;

    methods! { SymI, I32:
        add(b) = Add -> SymI I32;
        sub(b) = Sub -> SymI I32;
        and(b) = And -> SymI I32;
        or(b) = Or -> SymI I32;
        xor(b) = Xor -> SymI I32;
        lt(b) = Lt -> SymB Bool;
        eq(b) = Eq -> SymB Bool;
    }
    fn c(x: i32) -> SymI {
        SymI(push(ExpOp::Const(x.into()), DType::I32))
    }
    fn shl(self, count: i32) -> SymI {
        SymI(apply(ScalarFn::Shl, &[self.0, SymI::c(count).0], DType::I32))
    }
    fn shr(self, count: i32) -> SymI {
        SymI(apply(ScalarFn::Shr, &[self.0, SymI::c(count).0], DType::I32))
    }
    fn pick(cond: SymB, then: SymI, other: SymI) -> SymI {
        SymI(select(cond, then.0, other.0, DType::I32))
    }
    fn float(self) -> SymF {
        SymF(push(ExpOp::Bitcast { to: DType::F32, value: self.0 }, DType::F32))
    }
    fn to_real(self) -> SymF {
        SymF(push(ExpOp::Cast { to: DType::F32, value: self.0 }, DType::F32))
    }
    fn to_word(self) -> SymU {
        SymU(push(ExpOp::Cast { to: DType::U64, value: self.0 }, DType::U64))
    }
}

impl Word for SymU {
    type Real = SymF;

    methods! { SymU, U64:
        add(b) = Add -> SymU U64;
        sub(b) = Sub -> SymU U64;
        mul(b) = Mul -> SymU U64;
        or(b) = Or -> SymU U64;
        shl(count) = Shl -> SymU U64;
        shr(count) = Shr -> SymU U64;
    }
    fn c(x: u64) -> SymU {
        SymU(push(ExpOp::Const(x.into()), DType::U64))
    }
    fn pick(cond: SymB, then: SymU, other: SymU) -> SymU {
        SymU(select(cond, then.0, other.0, DType::U64))
    }
    fn to_int(self) -> SymI {
        SymI(push(ExpOp::Cast { to: DType::I32, value: self.0 }, DType::I32))
    }
    fn signed_to_real(self) -> SymF {
        let signed = push(ExpOp::Bitcast { to: DType::I64, value: self.0 }, DType::I64);
        SymF(push(ExpOp::Cast { to: DType::F32, value: signed }, DType::F32))
    }
    fn from_whole(x: SymF) -> SymU {
        let signed = push(ExpOp::Cast { to: DType::I64, value: x.0 }, DType::I64);
        SymU(push(ExpOp::Bitcast { to: DType::U64, value: signed }, DType::U64))
    }
}

impl Cond for SymB {
    methods! { SymB, Bool:
        and(b) = And -> SymB Bool;
        or(b) = Or -> SymB Bool;
        xor(b) = Xor -> SymB Bool;
        not() = Not -> SymB Bool;
    }
}
