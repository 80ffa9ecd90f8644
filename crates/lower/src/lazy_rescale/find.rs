//! Recognises online softmax loops by what they compute: exponentials against a carried running
//! maximum.

use super::PARTS;
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Attr, BlockId, OpId, Type, Value, ValueDef};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::{TileFunc, TileOp};

/// Why a loop keeps its running maximum.
pub type Refusal = String;

/// One loop over blocks of scores `s`:
/// `m' = max(m, top)`, `alpha = e(m - r)`, `p = e(s - r)`, `l' = l·alpha + sum(p)`, and any number of
/// values that are multiplied by `alpha` before they are used. `r` is `m'`, or 0 where that is -inf.
pub struct Online {
    pub id: OpId,
    pub body: BlockId,
    /// Indices of carried values: the reference, the sum, and the other rescaled values
    /// (accumulators).
    pub m: usize,
    pub l: Vec<usize>,
    pub scaled: Vec<usize>,
    /// The largest score of each row, or a bound of it.
    pub top: Value,
    /// `m'`, what it is replaced by where no score was seen, and the weights.
    pub new: Value,
    pub instead: Option<f64>,
    pub p: Value,
    pub s: Value,
    pub base: Base,
    /// Weights as they are used: rounded, or not.
    pub uses: Vec<Value>,
    /// Scaled values after scaling, in the order of `scaled`.
    pub kept: Vec<Value>,
    /// Ops that are replaced.
    pub gone: BTreeSet<OpId>,
    /// Ops that only `top` needs, in order.
    pub only_top: Vec<OpId>,
}

/// `e(x)`: `exp(x·by)` or `exp2(x·by)`.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Base {
    pub f: ScalarFn,
    pub by: f64,
}

impl Base {
    /// How much larger `x` is where `e(x)` is `2^bits` times as large.
    pub fn rise(self, bits: f64) -> f64 {
        let unit = if self.f == ScalarFn::Exp { std::f64::consts::LN_2 } else { 1.0 };
        bits * unit / self.by
    }
}

pub struct Uses(BTreeMap<Value, Vec<OpId>>);

impl Uses {
    pub fn of(func: &TileFunc) -> Self {
        let mut uses: BTreeMap<Value, Vec<OpId>> = BTreeMap::new();
        for id in func.walk() {
            for &v in &func.ops[id].operands {
                uses.entry(v).or_default().push(id);
            }
        }
        Self(uses)
    }

    pub fn get(&self, v: Value) -> &[OpId] {
        self.0.get(&v).map_or(&[], Vec::as_slice)
    }
}

pub fn ew(func: &TileFunc, v: Value, f: ScalarFn) -> Option<[Value; 2]> {
    let op = func.def(v).filter(|op| op.code == TileOp::Ew(f))?;
    Some([op.operands[0], *op.operands.get(1).unwrap_or(&op.operands[0])])
}

/// The number that a value is everywhere.
pub fn number(func: &TileFunc, v: Value) -> Option<f64> {
    let op = func.def(v)?;
    match op.code {
        TileOp::Const => op.attr("value").and_then(Attr::as_float),
        TileOp::Broadcast | TileOp::Expand | TileOp::Reshape => number(func, op.operands[0]),
        _ => None,
    }
}

/// The row values that a tile repeats along its columns.
pub fn rows_of(func: &TileFunc, v: Value) -> Value {
    let mut v = v;
    while let Some(op) = func.def(v) {
        let axis = op.attr("axis").and_then(Attr::as_int);
        match op.code {
            TileOp::Broadcast if func.ty(op.operands[0]).is_tile() => v = op.operands[0],
            TileOp::Expand if axis == Some(1) => v = op.operands[0],
            _ => break,
        }
    }
    v
}

/// The loop in that form; none where it is not an online softmax.
pub fn find(func: &TileFunc, uses: &Uses, id: OpId) -> Option<Result<Online, Refusal>> {
    let op = &func.ops[id];
    if op.code != TileOp::For {
        return None;
    }
    let body = op.regions[0];
    let next = &func.ops[func.terminator(body)?].operands;
    let args = &func.blocks[body].args[1..];
    for (m, (&arg, &new)) in args.iter().zip(next).enumerate() {
        let Some([a, b]) = ew(func, new, ScalarFn::Maximum) else { continue };
        let top = match (a == arg, b == arg) {
            (true, false) => b,
            (false, true) => a,
            _ => continue,
        };
        let ty = func.ty(arg);
        if ty.rank() != 1 || ty.dtype() != DType::F32 || !is_row_maximum(func, body, top) {
            continue;
        }
        let look = Look { func, uses, id, body, args, next };
        if let Some(alpha) = look.alpha(arg, new) {
            return Some(look.rest(m, top, new, alpha));
        }
    }
    None
}

/// Whether row values come from a maximum along rows in this block.
fn is_row_maximum(func: &TileFunc, body: BlockId, v: Value) -> bool {
    let Some(op) = func.def(v).filter(|op| op.block == body) else { return false };
    match op.code {
        TileOp::Reduce => {
            op.attr("op").and_then(Attr::as_word) == Some("max")
                && op.attr("axis").and_then(Attr::as_int) == Some(1)
                && func.ty(op.operands[0]).rank() == 2
        }
        TileOp::Ew(ScalarFn::Mul | ScalarFn::Add) => {
            op.operands.iter().any(|&v| is_row_maximum(func, body, v))
        }
        _ => false,
    }
}

struct Look<'f> {
    func: &'f TileFunc,
    uses: &'f Uses,
    id: OpId,
    body: BlockId,
    args: &'f [Value],
    next: &'f [Value],
}

/// `e(a - b)` and the ops that it is made of.
struct Power {
    base: Base,
    a: Value,
    b: Value,
    made: Vec<OpId>,
}

/// The rescaling factor `alpha`, and the ops that compute it.
struct Alpha {
    value: Value,
    base: Base,
    instead: Option<f64>,
    reference: Value,
    gone: BTreeSet<OpId>,
}

impl Look<'_> {
    fn power(&self, v: Value) -> Option<Power> {
        let func = self.func;
        let id = func.def_id(v).filter(|&id| func.ops[id].block == self.body)?;
        let f = match func.ops[id].code {
            TileOp::Ew(f @ (ScalarFn::Exp | ScalarFn::Exp2)) => f,
            _ => return None,
        };
        let mut made = vec![id];
        let mut x = func.ops[id].operands[0];
        let mut by = 1.0;
        if let Some([a, b]) = ew(func, x, ScalarFn::Mul) {
            made.push(func.def_id(x)?);
            (x, by) = match (number(func, a), number(func, b)) {
                (_, Some(k)) => (a, k),
                (Some(k), None) => (b, k),
                (None, None) => return None,
            };
        }
        let [a, b] = ew(func, x, ScalarFn::Sub)?;
        made.push(func.def_id(x)?);
        (by > 0.0 && by.is_finite()).then_some(Power { base: Base { f, by }, a, b, made })
    }

    /// `new` itself, or `new` with a number where it is -inf.
    fn is_reference(&self, v: Value, new: Value) -> Option<(Option<f64>, Vec<OpId>)> {
        let func = self.func;
        if v == new {
            return Some((None, vec![]));
        }
        let id = func.def_id(v)?;
        let op = &func.ops[id];
        if op.code != TileOp::Select || op.operands[2] != new {
            return None;
        }
        let [a, b] = ew(func, op.operands[0], ScalarFn::Eq)?;
        let low = |v: Value| number(func, v) == Some(f64::NEG_INFINITY);
        let instead = number(func, op.operands[1]).filter(|n| n.is_finite())?;
        let asks = a == new && low(b) || b == new && low(a);
        asks.then_some((Some(instead), vec![id, func.def_id(op.operands[0])?]))
    }

    fn alpha(&self, m: Value, new: Value) -> Option<Alpha> {
        for &id in self.uses.get(m) {
            let op = &self.func.ops[id];
            if op.code != TileOp::Ew(ScalarFn::Sub) || op.operands[0] != m {
                continue;
            }
            let mut value = op.result();
            for _ in 0..2 {
                let [user] = self.uses.get(value) else { break };
                value = self.func.ops[*user].results.first().copied()?;
                let Some(power) = self.power(value) else { continue };
                if power.a != m {
                    break;
                }
                let (instead, made) = self.is_reference(power.b, new)?;
                let gone = made.into_iter().chain(power.made).collect();
                return Some(Alpha { value, base: power.base, instead, reference: power.b, gone });
            }
        }
        None
    }

    /// The multiplications of carried values by a row factor, through its broadcasts.
    fn scales(&self, v: Value, gone: &mut BTreeSet<OpId>) -> Result<Vec<OpId>, Refusal> {
        let func = self.func;
        let mut found = Vec::new();
        for &user in self.uses.get(v) {
            let op = &func.ops[user];
            match op.code {
                TileOp::Expand | TileOp::Broadcast if op.block == self.body => {
                    gone.insert(user);
                    found.extend(self.scales(op.result(), gone)?);
                }
                TileOp::Ew(ScalarFn::Mul) if op.block == self.body => found.push(user),
                _ => {
                    return Err("the factor of what was summed before is used otherwise".into());
                }
            }
        }
        Ok(found)
    }

    fn rest(&self, m: usize, top: Value, new: Value, alpha: Alpha) -> Result<Online, Refusal> {
        let func = self.func;
        let mut gone = alpha.gone.clone();
        gone.extend(func.def_id(new));
        let (s, p) = self.weights(&alpha, new, &mut gone)?;
        let mut l = Vec::new();
        let mut scaled = Vec::new();
        let mut kept = Vec::new();
        let sums = self.sums(p);
        for id in self.scales(alpha.value, &mut gone)? {
            let op = &func.ops[id];
            let carried = |v: Value| self.args.iter().position(|&a| a == v);
            let Some(i) = op.operands.iter().find_map(|&v| carried(v)) else {
                return Err("something that no iteration before left is scaled".into());
            };
            if self.uses.get(self.args[i]) != [id] || l.contains(&i) || scaled.contains(&i) {
                return Err("what is scaled is also used as it was".into());
            }
            gone.insert(id);
            match self.sum_of(i, op.result(), &sums) {
                Some(made) => {
                    gone.extend(made);
                    l.push(i);
                }
                None => {
                    scaled.push(i);
                    kept.push(op.result());
                }
            }
        }
        if l.is_empty() {
            return Err(
                "there is no sum of the weights, which would show where they outgrow".into()
            );
        }
        if sums.iter().any(|sum| !gone.contains(sum)) {
            return Err("a sum of weights is used otherwise".into());
        }
        let uses = self.used(p, &mut gone)?;
        let Some(n) = func.ty(p).shape()[1].as_static().filter(|n| n % PARTS == 0 && *n > PARTS)
        else {
            return Err(format!("rows are not made of {PARTS} columns"));
        };
        assert!(n > 0, "it is more than the parts");
        // The reference is private to the loop: nothing else may use it.
        for v in [self.args[m], new, alpha.reference] {
            let own = |id: &OpId| gone.contains(id) || Some(*id) == func.terminator(self.body);
            if !self.uses.get(v).iter().all(own) {
                return Err("the maximum is used otherwise".into());
            }
        }
        if self.next.iter().enumerate().any(|(i, &v)| {
            let own = [new, alpha.value, alpha.reference].contains(&v);
            own && i != m || v == p
        }) {
            return Err("the maximum or the weights are carried otherwise".into());
        }
        let only_top = self.only_top(top, s, &gone);
        // These values are recomputed in the new form; nothing else may remain that uses the old
        // ones.
        let handed: BTreeSet<Value> =
            l.iter().map(|&i| self.next[i]).chain(uses.iter().chain(&kept).copied()).collect();
        let own = |id: &OpId| gone.contains(id) || only_top.contains(id);
        for id in gone.iter().chain(&only_top) {
            let v = func.ops[*id].result();
            if v != new && !handed.contains(&v) && !self.uses.get(v).iter().all(own) {
                return Err("something on the way to the weights is used otherwise".into());
            }
        }
        let online = Online {
            id: self.id,
            body: self.body,
            m,
            l,
            scaled,
            top,
            new,
            instead: alpha.instead,
            p,
            s,
            base: alpha.base,
            uses,
            kept,
            gone,
            only_top,
        };
        self.in_order(&online)?;
        Ok(online)
    }

    /// The scores and the weights: `e(s - r)` with the same `e` as the factor's.
    fn weights(
        &self,
        alpha: &Alpha,
        new: Value,
        gone: &mut BTreeSet<OpId>,
    ) -> Result<(Value, Value), Refusal> {
        let func = self.func;
        let mut found = None;
        for &id in &func.blocks[self.body].ops {
            let Some(power) = func.ops[id].results.first().and_then(|&v| self.power(v)) else {
                continue;
            };
            let p = func.ops[id].result();
            if func.ty(p).rank() != 2 || rows_of(func, power.b) != alpha.reference {
                continue;
            }
            if found.is_some() || power.base != alpha.base || func.ty(p).dtype() != DType::F32 {
                return Err("several weights, or other powers than the factor's".into());
            }
            gone.extend(power.made);
            let mut v = power.b;
            while v != alpha.reference {
                let id = func.def_id(v).expect("the reference is spread by ops");
                gone.insert(id);
                v = func.ops[id].operands[0];
            }
            found = Some((power.a, p));
        }
        assert!(self.is_reference(alpha.reference, new).is_some(), "it was before");
        found.ok_or_else(|| "no weights are made with the maximum".into())
    }

    /// Sums of the weights along rows.
    fn sums(&self, p: Value) -> Vec<OpId> {
        let is_sum = |id: &&OpId| {
            let op = &self.func.ops[**id];
            op.code == TileOp::Reduce
                && op.block == self.body
                && op.attr("op").and_then(Attr::as_word) == Some("sum")
                && op.attr("axis").and_then(Attr::as_int) == Some(1)
        };
        self.uses.get(p).iter().filter(is_sum).copied().collect()
    }

    /// The ops of `l' = l·alpha + sum(p)`, where the carried value `i` is such an `l`.
    fn sum_of(&self, i: usize, before: Value, sums: &[OpId]) -> Option<Vec<OpId>> {
        let func = self.func;
        let next = self.next[i];
        let [a, b] = ew(func, next, ScalarFn::Add)?;
        let sum = match (a == before, b == before) {
            (true, false) => b,
            (false, true) => a,
            _ => return None,
        };
        let sum = func.def_id(sum).filter(|id| sums.contains(id))?;
        let alone = |v: Value| self.uses.get(v).len() == 1;
        let own = alone(before) && alone(next) && alone(func.ops[sum].result());
        own.then_some(vec![func.def_id(next)?, sum])
    }

    /// The weights as other ops take them.
    fn used(&self, p: Value, gone: &mut BTreeSet<OpId>) -> Result<Vec<Value>, Refusal> {
        let func = self.func;
        let mut out = Vec::new();
        for &id in self.uses.get(p) {
            let op = &func.ops[id];
            if gone.contains(&id) {
                continue;
            }
            match op.code {
                TileOp::Cast if op.block == self.body => {
                    let to = func.ty(op.result()).dtype();
                    if !has_range(to) {
                        return Err(format!(
                            "weights are rounded to {to}, which has not the range"
                        ));
                    }
                    gone.insert(id);
                    out.push(op.result());
                }
                _ if !out.contains(&p) => out.push(p),
                _ => {}
            }
        }
        Ok(out)
    }

    /// The ops that only `top` needs; the weights need the scores too.
    fn only_top(&self, top: Value, s: Value, gone: &BTreeSet<OpId>) -> Vec<OpId> {
        let func = self.func;
        let mut found: BTreeSet<OpId> = BTreeSet::new();
        let mut open = vec![top];
        while let Some(v) = open.pop() {
            let Some(id) = func.def_id(v).filter(|&id| func.ops[id].block == self.body) else {
                continue;
            };
            let op = &func.ops[id];
            let small = matches!(
                op.code,
                TileOp::Reduce | TileOp::Ew(_) | TileOp::Broadcast | TileOp::Expand
            );
            let own = |user: &OpId| found.contains(user) || gone.contains(user);
            if small && v != s && self.uses.get(v).iter().all(own) && found.insert(id) {
                open.extend(&op.operands);
            }
        }
        func.blocks[self.body].ops.iter().copied().filter(|id| found.contains(id)).collect()
    }

    /// Whether all that the weights need is computed before them, and nothing before them needs
    /// them.
    fn in_order(&self, online: &Online) -> Result<(), Refusal> {
        let func = self.func;
        let skipped = |id: &OpId| online.gone.contains(id) || online.only_top.contains(id);
        for &id in &func.blocks[self.body].ops {
            if func.ops[id].results.first() == Some(&online.p) {
                return Ok(());
            }
            let mut takes = Vec::new();
            takes.extend(&func.ops[id].operands);
            for &region in &func.ops[id].regions {
                func.walk_block(region, &mut |o| takes.extend(&func.ops[o].operands));
            }
            let early = takes.iter().any(|&v| func.def_id(v).is_some_and(|d| skipped(&d)));
            if !skipped(&id) && early {
                return Err("something before the weights needs what comes with them".into());
            }
        }
        Err("the weights are not made in the loop itself".into())
    }
}

/// Whether a dtype has numbers as large and as small as f32's.
pub fn has_range(dtype: DType) -> bool {
    matches!(dtype, DType::BF16 | DType::Tf32 | DType::F32 | DType::F64)
}

/// The carried value that a loop begins with, where it is what another loop leaves.
pub fn follows(func: &TileFunc, online: &Online) -> Option<(OpId, usize)> {
    match func.values[func.ops[online.id].group("init")[online.m]].def {
        ValueDef::Result(id, i) if func.ops[id].code == TileOp::For => Some((id, i)),
        _ => None,
    }
}

/// The f32 type with these rows and `PARTS` columns.
pub fn parts_type(ty: &Type) -> Type {
    Type::Tile { shape: vec![ty.shape()[0].clone(), PARTS.into()], dtype: DType::F32 }
}
