//! How large an integer can be: whether sums of positions reach the ends of an i64.

use crate::TileOp;
use tessera_ir::{Attr, DimExpr, DimOp, Func, Level, Value, ValueDef};
use tessera_numerics::{DType, ScalarFn};

/// How far a chain of scalars is followed.
const DEPTH: u32 = 32;
/// Bits of the groups of a launch along an axis, and of the elements of an array.
const PROGRAMS: u32 = 31;
const EXTENT: u32 = 47;

/// A number of bits: the integer scalar is below `2^bits`, and above `-2^bits`. Sizes, group and
/// lane ids are as large as a launch can make them, and other numbers as their types. `known` says
/// which op of the level is one of Tile IR, or how many bits the result of another has.
pub fn magnitude<L: Level>(
    func: &Func<L>,
    value: Value,
    known: &dyn Fn(L::Op) -> Result<TileOp, u32>,
) -> u32 {
    Magnitude { func, known }.of(value, DEPTH)
}

/// The number is below `2^bits`; how far below zero it may be does not matter. The least of two numbers is below each.
pub fn upper_bits<L: Level>(
    func: &Func<L>,
    value: Value,
    known: &dyn Fn(L::Op) -> Result<TileOp, u32>,
) -> u32 {
    Magnitude { func, known }.upper(value, DEPTH)
}

struct Magnitude<'f, L: Level> {
    func: &'f Func<L>,
    known: &'f dyn Fn(L::Op) -> Result<TileOp, u32>,
}

impl<L: Level> Magnitude<'_, L> {
    fn upper(&self, value: Value, depth: u32) -> u32 {
        let all = self.of(value, depth);
        let (Some(depth), Some(op)) = (depth.checked_sub(1), self.func.def(value)) else {
            return all;
        };
        let x = |i: usize| self.upper(op.operands[i], depth);
        let bits = match (self.known)(op.code) {
            Ok(TileOp::Ew(ScalarFn::Minimum)) => x(0).min(x(1)),
            Ok(TileOp::Ew(ScalarFn::Maximum)) => x(0).max(x(1)),
            Ok(TileOp::Select) => x(1).max(x(2)),
            _ => all,
        };
        bits.min(all)
    }

    fn of(&self, value: Value, depth: u32) -> u32 {
        let ty = self.func.ty(value);
        let held = if ty.rank() == 0 && ty.dtype().is_int() { ty.dtype().bits() } else { 64 };
        let Some(depth) = depth.checked_sub(1) else { return held };
        self.computed(value, depth).map_or(held, |bits| bits.min(held))
    }

    /// `None` where only the type is known.
    fn computed(&self, value: Value, depth: u32) -> Option<u32> {
        let func = self.func;
        let of = |v: Value| self.of(v, depth);
        if let ValueDef::Arg(block, place) = func.values[value].def {
            // A loop's position.
            let op = &func.ops[func.blocks[block].parent?];
            let counts = place == 0 && (self.known)(op.code) == Ok(TileOp::For);
            return counts.then(|| of(op.operands[0]).max(of(op.operands[1])));
        }
        let op = func.def(value)?;
        let code = match (self.known)(op.code) {
            Ok(code) => code,
            Err(bits) => return Some(bits),
        };
        let x = |i: usize| of(op.operands[i]);
        let exact = match code {
            TileOp::Const => bits_of(op.attr("value").and_then(Attr::as_int)?),
            TileOp::Dim => self.expr(&op.attr("name").and_then(Attr::as_expr)?),
            TileOp::ProgramId | TileOp::NumPrograms => PROGRAMS,
            TileOp::LinearId | TileOp::LocalId | TileOp::GroupSize | TileOp::WarpSize => EXTENT,
            TileOp::Cast if func.ty(op.operands[0]).dtype().is_int() => x(0),
            TileOp::Select => x(1).max(x(2)),
            TileOp::Ew(f) => match f {
                ScalarFn::Add | ScalarFn::Sub => x(0).max(x(1)) + 1,
                ScalarFn::Mul => x(0) + x(1),
                ScalarFn::Neg | ScalarFn::Abs => x(0),
                ScalarFn::Minimum | ScalarFn::Maximum => x(0).max(x(1)),
                ScalarFn::FloorDiv => x(0) + 1,
                ScalarFn::Mod => x(1),
                _ => return None,
            },
            _ => return None,
        };
        // A result that leaves its type wraps, to any number of it.
        let dtype = func.ty(value).dtype();
        (exact < dtype.bits() || dtype == DType::U64 && exact == 64).then_some(exact)
    }

    fn expr(&self, e: &DimExpr) -> u32 {
        match e {
            DimExpr::Const(v) => bits_of(*v),
            DimExpr::Sym(name) => {
                let named = |p: &&Value| self.func.name_of(**p) == Some(name);
                let param = self.func.params().iter().find(named).map(|&p| self.func.ty(p).dtype());
                param.filter(|d| d.is_int()).map_or(EXTENT, DType::bits)
            }
            DimExpr::Bin(op, a, b) => {
                let (a, b) = (self.expr(a), self.expr(b));
                match op {
                    DimOp::Add | DimOp::Sub => a.max(b) + 1,
                    DimOp::Mul => a + b,
                    DimOp::FloorDiv | DimOp::CeilDiv => a + 1,
                    DimOp::Mod => b,
                    DimOp::Min | DimOp::Max => a.max(b),
                }
            }
        }
    }
}

fn bits_of(v: i64) -> u32 {
    u64::BITS - v.unsigned_abs().leading_zeros()
}

#[cfg(test)]
mod tests {
    use crate::parse;

    /// The bits of the value that is stored as a position.
    fn bits(body: &str) -> u32 {
        let text = format!(
            "func @f(%x: view<[n], f32, write>, %s: i32, %l: i64, %z: f32) {{kind = group, grid = [1]}} {{
  %one = tile.const {{value = 1}} : i64
  %n = tile.dim {{name = n}} : i64
  %p = tile.program_id {{axis = 0}} : i64
  %w = tile.cast %s : i64
{body}
  tile.store %x, %z at(%at) {{extent = [0]}}
  tile.return
}}"
        );
        let func = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let store = func.walk().into_iter().find(|&id| func.ops[id].code == crate::TileOp::Store);
        let at = func.ops[store.unwrap()].group("at")[0];
        super::magnitude(&func, at, &Ok)
    }

    #[test]
    fn the_least_of_two_is_below_each() {
        let at = |body: &str| {
            let text = format!(
                "func @f(%x: view<[n], f32, write>, %l: i64, %z: f32) {{kind = group, grid = [1]}} {{
  %n = tile.dim {{name = n}} : i64
{body}
  tile.store %x, %z at(%at) {{extent = [0]}}
  tile.return
}}"
            );
            let func = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let all = func.walk();
            let store = all.into_iter().find(|&id| func.ops[id].code == crate::TileOp::Store);
            let at = func.ops[store.unwrap()].group("at")[0];
            super::upper_bits(&func, at, &Ok)
        };
        assert_eq!(at("  %at = tile.minimum %l, %n : i64"), 47);
        assert_eq!(at("  %m = tile.minimum %l, %n : i64\n  %at = tile.maximum %m, %n : i64"), 47);
        assert_eq!(at("  %at = tile.maximum %l, %n : i64"), 64);
        // What is far below zero may come out above it.
        assert_eq!(at("  %m = tile.minimum %l, %n : i64\n  %at = tile.sub %m, %n : i64"), 64);
    }

    #[test]
    fn sizes_and_narrow_numbers_are_far_from_the_ends() {
        assert_eq!(bits("  %at = tile.add %n, %p : i64"), 48);
        assert_eq!(bits("  %at = tile.mul %w, %p : i64"), 63);
        assert_eq!(bits("  %at = tile.add %w, %one : i64"), 33);
        assert_eq!(bits("  %at = tile.minimum %l, %n : i64"), 64);
        assert_eq!(bits("  %at = tile.add %l, %one : i64"), 64);
        assert_eq!(bits("  %m = tile.mul %s, %s : i32\n  %at = tile.cast %m : i64"), 32);
        // Too large a product may be any number.
        assert_eq!(bits("  %at = tile.mul %n, %n : i64"), 64);
    }
}
