//! Matmuls: the blocked GEMM with sizes known at run time, emitted at the builder's position, and
//! the small MMA of tiles in memory.
//!
//! Operands come from closures and accumulators go to one: the compiler can fuse any expression
//! into the packing (prologue fusion) and after the accumulation (epilogue fusion). Accumulators of
//! [`Kind::F32`] and [`Kind::F64`] are one fused multiply-add for each `k` in ascending order from
//! the start value, in every block and on every processor: the same bits as three plain loops.
//! Those of [`Kind::I32`] wrap. AMX adds in an order of its own.

mod blocks;
mod contract_plan;
mod few;
mod pack;
mod pack_tiles;
mod registers;
mod small;
mod sums;
#[cfg(test)]
mod tests;
mod tiles;
mod transpose;

use crate::isa::Isa;
use crate::llvm::{Ir, Val};
use blocks::Frame;
use contract_plan::{Budget, Shape};

pub use few::FEW as MOST_FEW;
pub use small::tile_product;
pub use transpose::square;

/// Types of operands and sums, and by what they are multiplied.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    F32,
    F64,
    I32,
    /// bf16 operands in AMX tiles, f32 accumulators.
    Bf16Amx,
    /// 8-bit operands in AMX tiles, i32 accumulators; both signed.
    I8Amx,
    /// Both unsigned.
    U8Amx,
    /// The left one signed, the right one not.
    I8U8Amx,
    /// The left one unsigned, the right one signed.
    U8I8Amx,
}

/// `lanes` elements of an operand from (first index, second index). Lanes where the mask is off are
/// outside the matrix: nothing may be read there, and their values do not matter.
pub type Elements<'a> = dyn Fn(&Ir, Val, Val, u32, Option<Val>) -> Val + 'a;

/// Takes the sums of row `m`, columns from `n`; lanes where the mask is off are to be left alone.
pub type Finish<'a> = dyn Fn(&Ir, Val, Val, Val, Option<Val>) + 'a;

/// Where the left operand is.
pub enum Left<'a> {
    /// Row `m` begins at `base + m * row_bytes` and is contiguous, in the kind's operand type.
    InPlace { base: Val, row_bytes: Val },
    /// Element `(m, k + lane)`: a panel of rows is put into the workspace before it is used, once
    /// for every block of columns.
    Computed(&'a Elements<'a>),
}

impl Left<'_> {
    /// Rows at an address, and the bytes from one to the next.
    pub fn at((base, row_bytes): (Val, Val)) -> Self {
        Left::InPlace { base, row_bytes }
    }
}

/// Parts of one matmul that are computed separately begin at multiples of these rows and columns.
/// The number of columns of every kind of block divides the second, and nearly every number of rows
/// the first.
pub const PART: [i64; 2] = [32, 96];

/// A matmul of `rows` x `depth` by `depth` x `cols`. Sizes are i64 and may be 0.
pub struct Contraction<'a> {
    pub kind: Kind,
    pub rows: Val,
    pub cols: Val,
    pub depth: Val,
    /// Rows and columns of the whole matmul, where they are known when code is emitted. This is
    /// then a part of it that ends where another one may begin ([`PART`]), or where the whole does.
    /// Code for impossible edges is not emitted.
    pub whole: [Option<i64>; 2],
    /// Rows and columns of the whole matmul, when it runs. All parts are computed in one form.
    pub all: [Val; 2],
    /// Whether it may have few rows, or few columns, where their number is not known: code for these is emitted.
    pub few: bool,
    /// Whether the products of an element may be added in any order.
    pub any_order: bool,
    pub a: Left<'a>,
    /// Element `(m + lane, k)`, indices in this order: given where the left operand is computed and
    /// transposed, so that columns are contiguous and rows are not. AMX does not take it.
    pub a_along_m: Option<&'a Elements<'a>>,
    /// Element `(k, n + lane)` of the right operand, in the operand type: i16 for the bits of bf16.
    pub b: &'a Elements<'a>,
    /// Element `(k + lane, n)`, indices in this order: given where the right operand is transposed,
    /// so that rows are contiguous and columns are not. `b` is then unused.
    pub b_along_k: Option<&'a Elements<'a>>,
    /// What the sums of row `m`, columns from `n` begin with, in the type of the sums; zero
    /// otherwise.
    pub start: Option<&'a Elements<'a>>,
    pub finish: &'a Finish<'a>,
    /// At least [`workspace_bytes`], on a multiple of 64 bytes; this thread's alone.
    pub workspace: Val,
}

/// Emits the matmul, which `turned` describes as the product of the transposed operands: the vectors
/// of its closures lie along rows. The closures are called several times each.
///
/// Between its first and last instruction an AMX matmul owns the AMX tile state: `finish` must not
/// call code that uses it.
pub fn emit(ir: &Ir, isa: Isa, c: &Contraction, turned: &Contraction) {
    let general = |ir: &Ir| {
        let computed = matches!(c.a, Left::Computed(_));
        blocks::emit(ir, isa, c, Budget::of(Shape::of(isa, c.kind), computed));
    };
    let few = |ir: &Ir, c: &Contraction, is_turned: bool, otherwise: &dyn Fn(&Ir)| {
        let f = Frame::new(ir, isa, c, Budget::of(Shape::of(isa, c.kind), false));
        if !few::is_for(&f) || !(c.few || c.whole[0].is_some()) {
            return otherwise(ir);
        }
        let then = |_: &Ir| {
            few::emit(&f);
            Vec::new()
        };
        let otherwise = |ir: &Ir| {
            otherwise(ir);
            Vec::new()
        };
        ir.if_else(few::applies(&f, is_turned), then, otherwise);
    };
    few(ir, c, false, &|ir| few(ir, turned, true, &general));
}

/// Bytes of workspace that suffice for every size.
pub fn workspace_bytes(isa: Isa, kind: Kind) -> u64 {
    let shape = Shape::of(isa, kind);
    Budget::of(shape, false).room(shape).bytes as u64
}

/// The block of sums and by what it is computed, for people.
pub fn describe(isa: Isa, kind: Kind) -> String {
    let shape = Shape::of(isa, kind);
    let by = match kind {
        Kind::F32 | Kind::F64 => "fma",
        Kind::I32 => "multiply and add",
        _ => tiles::instruction(kind),
    };
    format!("{}x{} {by}", shape.rows, shape.columns())
}
