//! Static analysis of scalars in a Staged function: divisibility, sign and upper bounds.

use tessera_ir::{Attr, Value, ValueDef};
use tessera_numerics::ScalarFn;
use tessera_staged::{StagedFunc, StagedOp};
use tessera_tile::TileOp;

/// How far a chain of scalars is followed.
const FUEL: u32 = 32;

/// A number that certainly divides a scalar; 0 is divisible by everything.
pub fn divisor(func: &StagedFunc, v: Value) -> u64 {
    divisor_within(func, v, FUEL)
}

fn divisor_within(func: &StagedFunc, v: Value, fuel: u32) -> u64 {
    let Some(fuel) = fuel.checked_sub(1) else { return 1 };
    let of = |v| divisor_within(func, v, fuel);
    let Some(op) = func.def(v) else {
        // The position of a loop is its lower end plus a multiple of the step.
        return loop_of(func, v).map_or(1, |op| gcd(of(op[0]), of(op[2])));
    };
    let StagedOp::Tile(code) = op.code else { return 1 };
    let sure = match code {
        TileOp::Const => {
            return op.attr("value").and_then(Attr::as_int).unwrap_or(1).unsigned_abs();
        }
        TileOp::Cast | TileOp::Ew(ScalarFn::Neg) => of(op.operands[0]),
        TileOp::Ew(ScalarFn::Add | ScalarFn::Sub) => gcd(of(op.operands[0]), of(op.operands[1])),
        TileOp::Ew(ScalarFn::Mul) => of(op.operands[0]).saturating_mul(of(op.operands[1])),
        TileOp::Ew(ScalarFn::Minimum | ScalarFn::Maximum) => {
            gcd(of(op.operands[0]), of(op.operands[1]))
        }
        TileOp::Select => gcd(of(op.operands[1]), of(op.operands[2])),
        _ => 1,
    };
    // Sums and products wrap at powers of two: only such factors remain then.
    if sure == 0 { 0 } else { 1 << sure.trailing_zeros().min(30) }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Lower end, upper end and step of the loop that a value is the position of.
fn loop_of(func: &StagedFunc, v: Value) -> Option<[Value; 3]> {
    let ValueDef::Arg(block, 0) = func.values[v].def else { return None };
    let op = &func.ops[func.blocks[block].parent?];
    (op.code == StagedOp::Tile(TileOp::For)).then(|| [0, 1, 2].map(|i| op.operands[i]))
}

/// Whether a position is never negative: computed from group indices, extents and positions of
/// loops, and too small to wrap.
pub fn is_from_zero(func: &StagedFunc, v: Value) -> bool {
    most(func, v, FUEL).is_some()
}

/// The most groups of a launch, and elements of memory.
const MOST_PROGRAMS: u64 = 1 << 31;
const MOST_EXTENT: u64 = 1 << 47;
const MOST: u64 = 1 << 62;

/// An upper bound of a value that is never negative.
fn most(func: &StagedFunc, v: Value, fuel: u32) -> Option<u64> {
    let fuel = fuel.checked_sub(1)?;
    let of = |v| most(func, v, fuel);
    let Some(op) = func.def(v) else {
        let [lo, hi, _] = loop_of(func, v)?;
        of(lo)?;
        return of(hi);
    };
    let StagedOp::Tile(code) = op.code else { return None };
    let both = |f: fn(u64, u64) -> Option<u64>| f(of(op.operands[0])?, of(op.operands[1])?);
    let bound = match code {
        TileOp::Const => u64::try_from(op.attr("value").and_then(Attr::as_int)?).ok(),
        TileOp::ProgramId | TileOp::NumPrograms => Some(MOST_PROGRAMS),
        TileOp::Dim => Some(MOST_EXTENT),
        TileOp::Ew(ScalarFn::Add) => both(u64::checked_add),
        TileOp::Ew(ScalarFn::Mul) => both(u64::checked_mul),
        TileOp::Ew(ScalarFn::FloorDiv) => both(|a, _| Some(a)).filter(|_| {
            let by = func.def(op.operands[1]).and_then(|d| d.attr("value")?.as_int());
            by.is_some_and(|n| n > 0)
        }),
        TileOp::Ew(ScalarFn::Minimum | ScalarFn::Maximum) => both(|a, b| Some(a.max(b))),
        _ => None,
    };
    bound.filter(|&n| n <= MOST)
}
