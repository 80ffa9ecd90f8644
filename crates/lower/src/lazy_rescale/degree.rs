//! Checks that lazy rescaling does not change results: how each value changes with the choice of
//! the reference (the number that an online softmax subtracts).
//!
//! With another reference, all weights of a row are multiplied by one positive factor t. A value
//! that becomes t^d times what it was is homogeneous of degree d; one that grows by a·log t is
//! additive. The reference itself is additive: weights are e(s - reference). Results must be of
//! degree 0.

use super::find::{Online, Refusal, has_range, number};
use std::collections::BTreeMap;
use std::f64::consts::{LOG2_E, LOG10_E};
use tessera_ir::{Attr, BlockId, Effects, OpId, Opcode, Value};
use tessera_numerics::{Basic, FnKind, Real, ScalarFn};
use tessera_tile::{TileFunc, TileOp};

#[derive(Copy, Clone, PartialEq, Debug)]
enum Degree {
    /// It is multiplied by t to this power.
    Power(i32),
    /// It grows by this multiple of the natural logarithm of t.
    Log(f64),
}

const NONE: Degree = Degree::Power(0);

fn log(a: f64) -> Degree {
    if a.abs() < 1e-9 { NONE } else { Degree::Log(a) }
}

/// Checks everything that the loops of one reference leave.
pub fn holds(func: &TileFunc, family: &[&Online]) -> Result<(), Refusal> {
    let mut walk = Walk { func, family, degrees: BTreeMap::new() };
    walk.block(func.body)
}

struct Walk<'f> {
    func: &'f TileFunc,
    family: &'f [&'f Online],
    degrees: BTreeMap<Value, Degree>,
}

impl Walk<'_> {
    fn get(&self, v: Value) -> Degree {
        self.degrees.get(&v).copied().unwrap_or(NONE)
    }

    fn set(&mut self, v: Value, degree: Degree) {
        if degree != NONE {
            self.degrees.insert(v, degree);
        }
    }

    fn block(&mut self, block: BlockId) -> Result<(), Refusal> {
        self.ops(block, &|_| true)
    }

    fn ops(&mut self, block: BlockId, wanted: &dyn Fn(OpId) -> bool) -> Result<(), Refusal> {
        for &id in &self.func.blocks[block].ops {
            if wanted(id) {
                self.op(id)?;
            }
        }
        Ok(())
    }

    fn op(&mut self, id: OpId) -> Result<(), Refusal> {
        let func = self.func;
        let op = &func.ops[id];
        if let Some(online) = self.family.iter().find(|o| o.id == id) {
            return self.online(online);
        }
        let yields = |region: BlockId| {
            func.terminator(region).map_or(&[][..], |end| func.ops[end].operands.as_slice())
        };
        match op.code {
            TileOp::For | TileOp::While => {
                let leading = usize::from(op.code == TileOp::For);
                let inits: Vec<Degree> = op.group("init").iter().map(|&v| self.get(v)).collect();
                for &region in &op.regions {
                    let args = func.blocks[region].args.iter().skip(leading);
                    for (&arg, &degree) in args.zip(&inits) {
                        self.set(arg, degree);
                    }
                    self.block(region)?;
                }
                let last = op.regions[op.regions.len() - 1];
                for (i, &degree) in inits.iter().enumerate() {
                    if self.get(yields(last)[i]) != degree {
                        return Err(
                            "a loop scales what depends on the maximum in its own way".into()
                        );
                    }
                    self.set(op.results[i], degree);
                }
                Ok(())
            }
            TileOp::If => {
                for &region in &op.regions {
                    self.block(region)?;
                }
                for (i, &result) in op.results.iter().enumerate() {
                    let [a, b] = [0, 1].map(|r| yields(op.regions[r])[i]);
                    let degree = self.same(a, b).ok_or("branches give other powers of a weight")?;
                    self.set(result, degree);
                }
                Ok(())
            }
            TileOp::Yield => Ok(()),
            _ => {
                let degree = self.result(id);
                let Some(degree) = degree else {
                    return Err(format!("`{}` sees how the maximum is chosen", op.code.mnemonic()));
                };
                for &v in &op.results {
                    self.set(v, degree);
                }
                Ok(())
            }
        }
    }

    fn online(&mut self, online: &Online) -> Result<(), Refusal> {
        let func = self.func;
        let op = &func.ops[online.id];
        let args = &func.blocks[online.body].args[1..];
        let own = |i: usize| i == online.m || online.l.contains(&i) || online.scaled.contains(&i);
        let inits = op.group("init").to_vec();
        for (i, &init) in inits.iter().enumerate() {
            let degree = self.get(init);
            let is_first = self.get(inits[online.m]) == NONE;
            let wanted = match () {
                () if is_first || !own(i) => NONE,
                () if i == online.m => self.reference(online),
                () => Degree::Power(1),
            };
            if degree != wanted {
                return Err("a loop begins with other powers of a weight than it leaves".into());
            }
        }
        self.set(online.p, Degree::Power(1));
        for &v in online.uses.iter().chain(&online.kept) {
            self.set(v, Degree::Power(1));
        }
        for &i in &online.l {
            let next = func.terminator(online.body).map(|end| func.ops[end].operands[i]);
            next.into_iter().for_each(|v| self.set(v, Degree::Power(1)));
        }
        assert!(args.iter().all(|&arg| self.get(arg) == NONE), "they are not looked at");
        self.ops(online.body, &|id| !online.gone.contains(&id))?;
        let end = func.terminator(online.body).map(|end| func.ops[end].operands.clone());
        for (i, v) in end.into_iter().flatten().enumerate() {
            let degree = match () {
                () if i == online.m => self.reference(online),
                () if own(i) => Degree::Power(1),
                () => NONE,
            };
            let zero = degree != NONE && i != online.m && number(func, v) == Some(0.0);
            if i != online.m && self.get(v) != degree && !zero {
                return Err("what a loop carries is no sum of weights".into());
            }
            self.set(op.results[i], degree);
        }
        Ok(())
    }

    /// The reference shrinks by log t, in its own unit.
    fn reference(&self, online: &Online) -> Degree {
        log(-online.base.rise(1.0) / std::f64::consts::LN_2)
    }

    /// The common degree of two values; numbers that every factor leaves unchanged go with any.
    fn same(&self, a: Value, b: Value) -> Option<Degree> {
        let func = self.func;
        let any = |v: Value, with: Degree| match (number(func, v), with) {
            (Some(n), Degree::Power(_)) => n == 0.0,
            (Some(n), Degree::Log(_)) => n.is_infinite(),
            (None, _) => false,
        };
        let (x, y) = (self.get(a), self.get(b));
        match () {
            () if x == y => Some(x),
            () if any(b, x) => Some(x),
            () if any(a, y) => Some(y),
            () => None,
        }
    }

    fn result(&self, id: OpId) -> Option<Degree> {
        use Degree::Power;
        let func = self.func;
        let op = &func.ops[id];
        let of = |i: usize| self.get(op.operands[i]);
        let plain = op.operands.iter().all(|&v| self.get(v) == NONE);
        if plain {
            return Some(NONE);
        }
        match op.code {
            TileOp::Broadcast | TileOp::Expand | TileOp::Reshape | TileOp::Transpose => Some(of(0)),
            TileOp::Cast => has_range(func.ty(op.result()).dtype()).then(|| of(0)),
            TileOp::Reduce => match (of(0), op.attr("op").and_then(Attr::as_word)?) {
                (d, "max" | "min") => Some(d),
                (Power(d), "sum") => Some(Power(d)),
                _ => None,
            },
            TileOp::Mma => match (of(0), of(1), of(2)) {
                (Power(a), Power(b), Power(c)) => {
                    let zero = number(func, op.operands[2]) == Some(0.0);
                    (zero || a + b == c).then_some(Power(a + b))
                }
                _ => None,
            },
            TileOp::Select if self.get(op.operands[0]) == NONE => {
                let [a, b] = [op.operands[1], op.operands[2]];
                self.same(a, b).or_else(|| self.safe(op.operands[0], a, b))
            }
            TileOp::Ew(f) => self.elementwise(f, id),
            _ => {
                assert!(
                    !matches!(op.code.info().effects, Effects::Terminator),
                    "ends of regions are looked at by what is around them"
                );
                None
            }
        }
    }

    /// A value where it is not 0, and any number where it is: quotients by it are zeros there, or
    /// are replaced.
    fn safe(&self, cond: Value, a: Value, b: Value) -> Option<Degree> {
        let func = self.func;
        let cond = super::find::rows_of(func, cond);
        let [x, y] = super::find::ew(func, cond, ScalarFn::Eq)?;
        let zero = |v: Value| number(func, v) == Some(0.0);
        let tested = match (zero(x), zero(y)) {
            (false, true) => x,
            (true, false) => y,
            _ => return None,
        };
        (number(func, a).is_some() && b == tested).then(|| self.get(b))
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn elementwise(&self, f: ScalarFn, id: OpId) -> Option<Degree> {
        use Basic::*;
        use Degree::{Log, Power};
        let func = self.func;
        let op = &func.ops[id];
        let of = |i: usize| self.get(op.operands[i]);
        let fixed = |i: usize| number(func, op.operands[i]);
        let by_log = |unit: f64| match of(0) {
            Power(d) => Some(log(f64::from(d) * unit)),
            Log(_) => None,
        };
        let f = match f.kind() {
            FnKind::Basic(f) => f,
            FnKind::Real(Real::Log) => return by_log(1.0),
            FnKind::Real(Real::Log2) => return by_log(LOG2_E),
            FnKind::Real(Real::Log10) => return by_log(LOG10_E),
            FnKind::Real(_) => return None,
        };
        match f {
            Add | Sub => {
                let sign = if f == Add { 1.0 } else { -1.0 };
                match (of(0), of(1)) {
                    (Log(a), Log(b)) => Some(log(a + sign * b)),
                    (Log(a), Power(0)) => Some(Log(a)),
                    (Power(0), Log(b)) => Some(Log(sign * b)),
                    (Power(_), Power(_)) => self.same(op.operands[0], op.operands[1]),
                    _ => None,
                }
            }
            Maximum | Minimum => self.same(op.operands[0], op.operands[1]),
            Neg => match of(0) {
                Log(a) => Some(Log(-a)),
                d => Some(d),
            },
            Abs => match of(0) {
                Log(_) => None,
                d => Some(d),
            },
            Mul => match (of(0), of(1)) {
                (Power(a), Power(b)) => Some(Power(a + b)),
                (Log(a), Power(0)) => fixed(1).map(|k| log(a * k)),
                (Power(0), Log(b)) => fixed(0).map(|k| log(b * k)),
                _ => None,
            },
            Div => match (of(0), of(1)) {
                (Power(a), Power(b)) => Some(Power(a - b)),
                (Log(a), Power(0)) => fixed(1).map(|k| log(a / k)),
                _ => None,
            },
            Fma => match (of(0), of(1), of(2)) {
                (Power(a), Power(b), Power(c)) => (a + b == c).then_some(Power(c)),
                _ => None,
            },
            // Signs, zeros and infinities do not change.
            Eq | Ne | Lt | Le | Gt | Ge => {
                let (n, d) = match (fixed(0), fixed(1)) {
                    (_, Some(n)) => (n, of(0)),
                    (Some(n), None) => (n, of(1)),
                    (None, None) => return None,
                };
                let kept = match d {
                    Power(_) => n == 0.0,
                    Log(_) => n.is_infinite(),
                };
                kept.then_some(NONE)
            }
            IsNan => Some(NONE),
            FloorDiv | Mod | Sqrt | Recip | Floor | Ceil | Round | Trunc | Sign | Clamp | And
            | Or | Xor | Not | Shl | Shr | Popcount | Clz | Ctz | Brev | MulHi | FunnelShift
            | IsInf | IsFinite => None,
        }
    }
}
