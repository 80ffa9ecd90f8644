//! Scalar functions over whole values, and selection. The meaning of each function is its kernel in
//! `tessera-numerics`; a loop here only applies it.

use crate::value::{Data, Elem, Tile, each_data};
use std::sync::Arc;
use tessera_numerics::{Kernel, ScalarFn};

/// `None` when the operands are not of the kernel's type.
pub(crate) fn apply(f: ScalarFn, kernel: Kernel, args: Vec<Tile>) -> Option<Tile> {
    let mut args = args.into_iter();
    let mut next = || args.next();
    let x = next()?;
    match kernel {
        // IEEE sums and products inline, so that the loop vectorises: the same as their kernels.
        Kernel::F32B(k) => match f {
            ScalarFn::Add => binary(x, &*next()?, |a: f32, b| a + b),
            ScalarFn::Sub => binary(x, &*next()?, |a: f32, b| a - b),
            ScalarFn::Mul => binary(x, &*next()?, |a: f32, b| a * b),
            _ => binary(x, &*next()?, k),
        },
        Kernel::F32U(k) => unary(x, k),
        Kernel::F32T(k) => ternary(x, &*next()?, &*next()?, k),
        Kernel::F32P(k) => predicate(&x, k),
        Kernel::F32C(k) => compare(&x, &*next()?, k),
        Kernel::F64U(k) => unary(x, k),
        Kernel::F64B(k) => binary(x, &*next()?, k),
        Kernel::F64T(k) => ternary(x, &*next()?, &*next()?, k),
        Kernel::F64P(k) => predicate(&x, k),
        Kernel::F64C(k) => compare(&x, &*next()?, k),
        Kernel::I32U(k) => unary(x, k),
        Kernel::I32B(k) => binary(x, &*next()?, k),
        Kernel::I32T(k) => ternary(x, &*next()?, &*next()?, k),
        Kernel::I32C(k) => compare(&x, &*next()?, k),
        Kernel::I64U(k) => unary(x, k),
        Kernel::I64B(k) => binary(x, &*next()?, k),
        Kernel::I64T(k) => ternary(x, &*next()?, &*next()?, k),
        Kernel::I64C(k) => compare(&x, &*next()?, k),
        Kernel::U32U(k) => unary(x, k),
        Kernel::U32B(k) => binary(x, &*next()?, k),
        Kernel::U32T(k) => ternary(x, &*next()?, &*next()?, k),
        Kernel::U32C(k) => compare(&x, &*next()?, k),
        Kernel::U64U(k) => unary(x, k),
        Kernel::U64B(k) => binary(x, &*next()?, k),
        Kernel::U64T(k) => ternary(x, &*next()?, &*next()?, k),
        Kernel::U64C(k) => compare(&x, &*next()?, k),
        Kernel::BoolU(k) => unary(x, k),
        Kernel::BoolB(k) => binary(x, &*next()?, k),
    }
}

// The first operand is overwritten: in place where this was its last use, else in a copy.

fn unary<T: Elem>(mut x: Tile, k: impl Fn(T) -> T) -> Option<Tile> {
    T::of_mut(Arc::make_mut(&mut x))?.iter_mut().for_each(|x| *x = k(*x));
    Some(x)
}

fn binary<T: Elem>(mut x: Tile, y: &Data, k: impl Fn(T, T) -> T) -> Option<Tile> {
    let (xs, ys) = (T::of_mut(Arc::make_mut(&mut x))?, T::of(y)?);
    xs.iter_mut().zip(ys).for_each(|(x, y)| *x = k(*x, *y));
    Some(x)
}

fn ternary<T: Elem>(mut x: Tile, y: &Data, z: &Data, k: fn(T, T, T) -> T) -> Option<Tile> {
    let (xs, ys, zs) = (T::of_mut(Arc::make_mut(&mut x))?, T::of(y)?, T::of(z)?);
    xs.iter_mut().zip(ys).zip(zs).for_each(|((x, y), z)| *x = k(*x, *y, *z));
    Some(x)
}

fn predicate<T: Elem>(x: &Data, k: fn(T) -> bool) -> Option<Tile> {
    Some(Arc::new(Data::Bool(T::of(x)?.iter().map(|x| k(*x)).collect())))
}

fn compare<T: Elem>(x: &Data, y: &Data, k: fn(T, T) -> bool) -> Option<Tile> {
    let pairs = T::of(x)?.iter().zip(T::of(y)?);
    Some(Arc::new(Data::Bool(pairs.map(|(x, y)| k(*x, *y)).collect())))
}

/// `a` where the condition holds, `b` elsewhere; a scalar condition takes one of them whole.
pub(crate) fn select(cond: &Data, mut a: Tile, b: Tile) -> Option<Tile> {
    let cond = cond.bools()?;
    if cond.len() == 1 {
        return Some(if cond[0] { a } else { b });
    }
    each_data!(Arc::make_mut(&mut a), xs => pick(cond, xs, &b)?);
    Some(a)
}

fn pick<T: Elem>(cond: &[bool], xs: &mut [T], b: &Data) -> Option<()> {
    for ((x, y), &c) in xs.iter_mut().zip(T::of(b)?).zip(cond) {
        *x = if c { *x } else { *y };
    }
    Some(())
}
