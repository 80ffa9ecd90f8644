//! Which staged buffers may be lifted (LANGUAGE 21): a buffer whose first axis counts stages, which
//! a loop fills ahead of its reads and a prologue before it.
//!
//! In iteration `k` the loop copies into stage `(q·k + w) mod S` and reads stage `(q·k + r) mod S`,
//! where `q` and `S` have no common divisor. What is read was then copied `d` iterations before, with
//! `q·d ≡ w - r`, and for `k < d` by the prologue. If the prologue's copies are those that the loop
//! would have made in iterations `-d … -1`, a read is a load at the positions of iteration `k - d`.

use crate::facts::{extents, int_const, read, subtree, written};
use crate::stage_waits;
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{BlockId, DimExpr, DimOp, OpId, Value, ValueDef};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::{Factor, Polynomial, TileFunc, TileOp};

/// Remainders of remainders that are looked into.
const MOST_NESTED: u32 = 8;
/// Copies of a prologue that are looked at one by one.
const MOST: i64 = 64;

/// Why a buffer stays memory, and where.
pub(crate) type Kept = (String, OpId);

/// Why the reads of a buffer are not loads.
pub(crate) enum Unlifted {
    Memory(Kept),
    /// The kernel waits for its copies itself, and reads a stage before it has waited for this copy.
    Unwaited {
        read: OpId,
        copy: OpId,
    },
}

impl From<Kept> for Unlifted {
    fn from(kept: Kept) -> Self {
        Unlifted::Memory(kept)
    }
}

/// What a read of a stage is: a load of what this copy reads, at these positions.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub copy: OpId,
    pub at: Vec<Polynomial>,
}

/// One copy into a stage, run once: a copy of the prologue, or that of the loop in iteration `k`.
pub(crate) struct Fill {
    pub op: OpId,
    pub stage: Polynomial,
    pub at: Vec<Polynomial>,
    /// It happens where none of these is negative.
    pub guards: Vec<Polynomial>,
}

/// A read, and how many iterations before it the copy was made.
pub(crate) struct Read {
    pub op: OpId,
    pub behind: i64,
    /// For the first iterations, the copy of the prologue.
    pub first: Vec<usize>,
}

/// A loop, and the values that change in it.
pub(crate) struct Loop {
    pub op: OpId,
    pub body: BlockId,
    /// Its position; in polynomials of the analysis, the number of the iteration.
    pub iv: Value,
    pub lo: Polynomial,
    pub step: i64,
    /// Each is not negative in the iterations that run, and in no other, and becomes smaller by
    /// so much from one to the next.
    pub left: Vec<(Polynomial, i64)>,
    varying: BTreeSet<Value>,
}

/// Whether a buffer is filled by stages.
pub(crate) fn is_staged(func: &TileFunc, buffer: Value) -> bool {
    let fills = |id: &OpId| {
        let op = &func.ops[*id];
        op.code == TileOp::CopyAsync && op.operands[0] == buffer && !op.group("into").is_empty()
    };
    func.walk().iter().any(fills)
}

/// The sources of all reads of a staged buffer.
pub(crate) fn sources(func: &TileFunc, buffer: Value) -> Result<BTreeMap<OpId, Source>, Unlifted> {
    let (loads, copies) = accesses(func, buffer)?;
    let Some(&first) = loads.first() else { return Ok(BTreeMap::new()) };
    let around = loop_around(func, first, &copies)?;
    let stages = func.ty(buffer).static_shape().unwrap_or_default()[0];
    let (inside, before): (Vec<OpId>, Vec<OpId>) =
        copies.into_iter().partition(|&id| is_inside(func, id, around.body));
    let [copy] = inside[..] else {
        let why = "the loop that reads it copies into it more than once in an iteration";
        return Err(Unlifted::Memory((why.into(), inside[1])));
    };
    let study = Study { func, around, stages };
    let fill = study.loop_fill(copy)?;
    let view = func.ops[copy].operands[1];
    if let Some(write) = func.walk().into_iter().find(|&id| written(&func.ops[id]) == Some(view)) {
        let why = "the kernel writes the tensor that it is copied from";
        return Err(Unlifted::Memory((why.into(), write)));
    }
    let mut prologue = Vec::new();
    for id in before {
        study.prologue_fills(id, &mut prologue)?;
    }
    let mut reads = Vec::new();
    for load in loads {
        reads.push(study.read(load, &fill, &prologue)?);
    }
    stage_waits::check(func, &study.around, &fill, &prologue, &reads)?;
    let mut out = BTreeMap::new();
    for read in reads {
        let at = fill.at.iter().map(|p| study.at_load(p, read.behind));
        let at: Option<Vec<_>> = at.collect();
        let why = "the positions of its copies do not follow the loop's in whole steps";
        let at = at.ok_or_else(|| (why.to_string(), copy))?;
        out.insert(read.op, Source { copy, at });
    }
    Ok(out)
}

/// The reads and the copies of a buffer, if all of them are of whole stages.
fn accesses(func: &TileFunc, buffer: Value) -> Result<(Vec<OpId>, Vec<OpId>), Kept> {
    let whole = func.ty(buffer).static_shape().unwrap_or_default();
    let (mut loads, mut copies) = (Vec::new(), Vec::new());
    for id in func.walk() {
        let op = &func.ops[id];
        if written(op) == Some(buffer) {
            match op.code {
                TileOp::CopyAsync if op.group("into").len() == 1 => copies.push(id),
                TileOp::CopyAsync => return Err(("it is not copied into by stages".into(), id)),
                _ => return Err(("a stage is written, not copied into".into(), id)),
            }
        } else if read(op) == Some(buffer) {
            let stage = extents(op);
            let one = stage.first() == Some(&0) && stage[1..] == whole[1..];
            let start = op.group("at").iter().skip(1).all(|&at| int_const(func, at) == Some(0));
            let plain = op.attr("step").is_none() && op.group("mask").is_empty();
            if op.code != TileOp::Load || !one || !start || !plain {
                return Err(("it is read in another way than by whole stages".into(), id));
            }
            loads.push(id);
        }
    }
    Ok((loads, copies))
}

/// The block ops around an op, from the inside.
fn ancestors(func: &TileFunc, id: OpId) -> impl Iterator<Item = OpId> {
    std::iter::successors(func.blocks[func.ops[id].block].parent, |&up| {
        func.blocks[func.ops[up].block].parent
    })
}

fn is_inside(func: &TileFunc, id: OpId, block: BlockId) -> bool {
    func.ops[id].block == block || ancestors(func, id).any(|up| func.ops[up].block == block)
}

/// The op of a block that is, or holds, another one.
fn in_block(func: &TileFunc, id: OpId, block: BlockId) -> Option<usize> {
    let top =
        std::iter::once(id).chain(ancestors(func, id)).find(|&o| func.ops[o].block == block)?;
    func.blocks[block].ops.iter().position(|&o| o == top)
}

fn loop_around(func: &TileFunc, load: OpId, copies: &[OpId]) -> Result<Loop, Kept> {
    let fills = |up: &OpId| {
        func.ops[*up].code == TileOp::For
            && copies.iter().any(|&c| is_inside(func, c, func.ops[*up].regions[0]))
    };
    let Some(id) = ancestors(func, load).find(fills) else {
        return Err(("it is read outside the loop that copies into it".into(), load));
    };
    of_loop(func, id).ok_or_else(|| {
        ("the bounds of the loop that copies into it are not known well enough".into(), id)
    })
}

fn of_loop(func: &TileFunc, id: OpId) -> Option<Loop> {
    let op = &func.ops[id];
    let body = op.regions[0];
    let iv = func.blocks[body].args[0];
    let step = int_const(func, op.operands[2]).filter(|&s| s > 0)?;
    let mut varying: BTreeSet<Value> = func.blocks[body].args.iter().copied().collect();
    for inner in subtree(func, id) {
        if inner != id {
            varying.extend(&func.ops[inner].results);
            for &region in &func.ops[inner].regions {
                varying.extend(&func.blocks[region].args);
            }
        }
    }
    let known = |v| Polynomial::of(func, v, &BTreeSet::new());
    let (lo, hi) = (known(op.operands[0])?, known(op.operands[1])?);
    let here = lo.plus(&Polynomial::constant(step).times(&number(iv))?)?;
    let mut left = vec![(hi.minus(&here)?.minus(&Polynomial::constant(1))?, step)];
    left.extend(divided_bound(func, &hi, &here, step));
    Some(Loop { op: id, body, iv, lo, step, left, varying })
}

/// `here < a // b + rest` without the division, and so for its negative and for `cdiv`.
fn divided_bound(
    func: &TileFunc,
    hi: &Polynomial,
    here: &Polynomial,
    step: i64,
) -> Option<(Polynomial, i64)> {
    let quotient = |f: &Factor| match f {
        Factor::Dim(DimExpr::Bin(op, a, b)) => match (op, &**b) {
            (DimOp::FloorDiv, DimExpr::Const(b)) => Some((Polynomial::of_dim(a)?, *b, false)),
            (DimOp::CeilDiv, DimExpr::Const(b)) => Some((Polynomial::of_dim(a)?, *b, true)),
            _ => None,
        },
        Factor::Value(v) => {
            let op = func.def(*v).filter(|op| op.code == TileOp::Ew(ScalarFn::FloorDiv))?;
            let a = Polynomial::of(func, op.operands[0], &BTreeSet::new())?;
            Some((a, int_const(func, op.operands[1])?, false))
        }
        Factor::Dim(_) | Factor::Program(_) => None,
    };
    let (factor, sign, (a, b, up)) = hi.terms().find_map(|(term, by)| match term {
        [f] if by == 1 || by == -1 => Some((f.clone(), by, quotient(f).filter(|q| q.1 > 0)?)),
        _ => None,
    })?;
    let rest = hi.minus(&Polynomial::constant(sign).times(&Polynomial::factor(factor))?)?;
    let far = Polynomial::constant(b).times(&here.minus(&rest)?)?;
    // h < a // b where a - b·h - b is not negative, h < -(a // b) where -a - b·h - 1 is not.
    let left = match (sign, up) {
        (1, false) => a.minus(&far)?.minus(&Polynomial::constant(b))?,
        (1, true) => a.minus(&far)?.minus(&Polynomial::constant(1))?,
        (_, false) => Polynomial::constant(-1).minus(&a)?.minus(&far)?,
        (_, true) => return None,
    };
    Some((left, step.checked_mul(b)?))
}

fn number(v: Value) -> Polynomial {
    Polynomial::factor(Factor::Value(v))
}

impl Loop {
    /// A value by the number of the iteration; `None` where it depends on something else that
    /// changes in the loop.
    fn by_iteration(&self, func: &TileFunc, value: Value) -> Option<Polynomial> {
        let here = self.lo.plus(&Polynomial::constant(self.step).times(&number(self.iv))?)?;
        reduced(func, value, (self.iv, &here), &self.varying)
    }
}

/// The polynomial of a value with another one in the place of a loop's position. Divisions without
/// a remainder are carried out.
fn reduced(
    func: &TileFunc,
    value: Value,
    (iv, by): (Value, &Polynomial),
    varying: &BTreeSet<Value>,
) -> Option<Polynomial> {
    let mut out = Polynomial::of(func, value, &BTreeSet::new())?;
    let factors: BTreeSet<Value> = out
        .terms()
        .flat_map(|(term, _)| term)
        .filter_map(|f| match f {
            Factor::Value(v) => Some(*v),
            Factor::Dim(_) | Factor::Program(_) => None,
        })
        .collect();
    // First the position, so that it is not replaced again in what replaces the others.
    out = out.with(iv, by)?;
    for v in factors.into_iter().filter(|v| *v != iv && varying.contains(v)) {
        let op = func.def(v).filter(|op| op.code == TileOp::Ew(ScalarFn::FloorDiv))?;
        let divisor = int_const(func, op.operands[1]).filter(|&c| c > 0)?;
        let quotient = reduced(func, op.operands[0], (iv, by), varying)?.divided(divisor)?;
        out = out.with(v, &quotient)?;
    }
    Some(out)
}

struct Study<'f> {
    func: &'f TileFunc,
    around: Loop,
    stages: i64,
}

impl Study<'_> {
    /// `x` of `x % S`, or an integer that is a stage itself.
    fn stage(
        &self,
        value: Value,
        poly: &dyn Fn(Value) -> Option<Polynomial>,
    ) -> Option<Polynomial> {
        // Casts to types that hold every stage.
        let holds = |dtype: DType| keeps_up_to(dtype, self.stages - 1);
        let mut value = value;
        while let Some(op) = self.func.def(value).filter(|op| op.code == TileOp::Cast) {
            let [from, to] = [op.operands[0], value].map(|v| self.func.ty(v).dtype());
            if !from.is_int() || !holds(to) {
                return None;
            }
            value = op.operands[0];
        }
        if let Some(carried) = self.carried(value) {
            return Some(carried);
        }
        if let Some(x) = self.modulo(value) {
            return self.congruent(x, poly, MOST_NESTED);
        }
        let constant = poly(value)?;
        constant.as_constant().filter(|v| (0..self.stages).contains(v))?;
        Some(constant)
    }

    /// A number by the iteration, up to multiples of `S`, which a remainder and what it is the
    /// remainder of differ by.
    fn congruent(
        &self,
        value: Value,
        poly: &dyn Fn(Value) -> Option<Polynomial>,
        depth: u32,
    ) -> Option<Polynomial> {
        let depth = depth.checked_sub(1)?;
        if let Some(known) = poly(value) {
            return Some(known);
        }
        let mut out = Polynomial::of(self.func, value, &BTreeSet::new())?;
        let factors: BTreeSet<Value> = out
            .terms()
            .flat_map(|(term, _)| term)
            .filter_map(|f| match f {
                Factor::Value(v) => Some(*v),
                Factor::Dim(_) | Factor::Program(_) => None,
            })
            .collect();
        // First the position, so that it is not replaced again in what replaces the others.
        if factors.contains(&self.around.iv) {
            out = out.with(self.around.iv, &poly(self.around.iv)?)?;
        }
        for v in factors.into_iter().filter(|v| *v != self.around.iv) {
            let by = match (self.carried(v), self.modulo(v)) {
                (Some(stage), _) => stage,
                (None, Some(x)) => self.congruent(x, poly, depth)?,
                (None, None) if self.around.varying.contains(&v) => poly(v)?,
                (None, None) => continue,
            };
            out = out.with(v, &by)?;
        }
        Some(out)
    }

    fn modulo(&self, value: Value) -> Option<Value> {
        let op = self.func.def(value).filter(|op| op.code == TileOp::Ew(ScalarFn::Mod))?;
        (int_const(self.func, op.operands[1]) == Some(self.stages)).then(|| op.operands[0])
    }

    /// A stage that the loop carries: `s = (s + 1) % S`.
    fn carried(&self, value: Value) -> Option<Polynomial> {
        let ValueDef::Arg(block, i) = self.func.values[value].def else { return None };
        if block != self.around.body || i == 0 {
            return None;
        }
        let op = &self.func.ops[self.around.op];
        let init = Polynomial::of(self.func, op.group("init")[i - 1], &BTreeSet::new())?;
        init.as_constant().filter(|v| (0..self.stages).contains(v))?;
        let next = crate::facts::yielded(self.func, block)[i - 1];
        let next = Polynomial::of(self.func, self.modulo(next)?, &BTreeSet::new())?;
        let by = next.minus(&number(value))?.as_constant()?;
        init.plus(&Polynomial::constant(by).times(&number(self.around.iv))?)
    }

    /// The conditions of the branches between an op and a block, as numbers that are not negative.
    fn guards(
        &self,
        id: OpId,
        block: BlockId,
        poly: &dyn Fn(Value) -> Option<Polynomial>,
    ) -> Option<Vec<Polynomial>> {
        let mut out = Vec::new();
        let mut inner = id;
        while self.func.ops[inner].block != block {
            let here = self.func.ops[inner].block;
            let up = self.func.blocks[here].parent?;
            let op = &self.func.ops[up];
            if op.code != TileOp::If || op.regions[0] != here {
                return None;
            }
            conditions(self.func, op.operands[0], poly, &mut out)?;
            inner = up;
        }
        Some(out)
    }

    fn fill(
        &self,
        id: OpId,
        block: BlockId,
        poly: &dyn Fn(Value) -> Option<Polynomial>,
    ) -> Option<Fill> {
        let op = &self.func.ops[id];
        let at: Option<Vec<_>> = op.group("at").iter().map(|&v| poly(v)).collect();
        Some(Fill {
            op: id,
            stage: self.stage(op.group("into")[0], poly)?,
            at: at?,
            guards: self.guards(id, block, poly)?,
        })
    }

    fn loop_fill(&self, id: OpId) -> Result<Fill, Kept> {
        let poly = |v| self.around.by_iteration(self.func, v);
        let why =
            "the stage or the positions of this copy do not follow the number of the iteration";
        self.fill(id, self.around.body, &poly).ok_or_else(|| (why.into(), id))
    }

    /// The copies that one op of the prologue makes, in their order.
    fn prologue_fills(&self, id: OpId, out: &mut Vec<Fill>) -> Result<(), Kept> {
        let func = self.func;
        let home = func.ops[self.around.op].block;
        let place = |id| in_block(func, id, home);
        if place(id).is_none_or(|at| Some(at) >= place(self.around.op)) {
            return Err(("it is copied into outside the loop and what comes before it".into(), id));
        }
        let why = || ("the stage or the positions of this copy are not known".to_string(), id);
        let outer = ancestors(func, id)
            .find(|&up| func.ops[up].code == TileOp::For && is_inside(func, up, home));
        let Some(outer) = outer else {
            let known = |v| Polynomial::of(func, v, &BTreeSet::new());
            out.push(self.fill(id, home, &known).ok_or_else(why)?);
            return Ok(());
        };
        let first = of_loop(func, outer).ok_or_else(why)?;
        // Copies of one loop are made in the order of its iterations.
        let again = out.iter().any(|fill| is_inside(func, fill.op, first.body));
        let bounds = (first.lo.as_constant(), int_const(func, func.ops[outer].operands[1]));
        let (Some(lo), Some(hi)) = bounds else { return Err(why()) };
        let many = hi.saturating_sub(lo) / first.step > MOST;
        if again || many || func.ops[outer].block != home {
            return Err(why());
        }
        let mut at = lo;
        while at < hi {
            let here = Polynomial::constant(at);
            let poly = |v| reduced(func, v, (first.iv, &here), &first.varying);
            out.push(self.fill(id, first.body, &poly).ok_or_else(why)?);
            at += first.step;
        }
        Ok(())
    }

    /// Finds the copy that a read reads, in every iteration.
    fn read(&self, load: OpId, fill: &Fill, prologue: &[Fill]) -> Result<Read, Kept> {
        let (func, around) = (self.func, &self.around);
        let kept = |why: &str| (why.to_string(), load);
        if !is_inside(func, load, around.body) {
            return Err(kept("it is read outside the loop that copies into it"));
        }
        let poly = |v| around.by_iteration(func, v);
        let stage = self.stage(func.ops[load].group("at")[0], &poly);
        let odd = || kept("the stage that is read does not follow the number of the iteration");
        let stage = stage.ok_or_else(odd)?;
        let (q, w) = rate(&fill.stage, around.iv).ok_or_else(odd)?;
        let (q_read, r) = rate(&stage, around.iv).ok_or_else(odd)?;
        let apart = w.minus(&r).and_then(|d| d.as_constant()).ok_or_else(odd)?;
        if (q - q_read).rem_euclid(self.stages) != 0 {
            return Err(odd());
        }
        // The only d in 0..S with q·d ≡ w - r, where one stage has one copy in S iterations.
        let found: Vec<i64> = (0..self.stages)
            .filter(|d| {
                (i128::from(q) * i128::from(*d) - i128::from(apart)).rem_euclid(self.stages.into())
                    == 0
            })
            .collect();
        let [behind] = found[..] else {
            return Err(kept("the loop does not go through all stages, one after another"));
        };
        let places = [load, fill.op].map(|id| in_block(func, id, around.body));
        if places[0] == places[1] {
            return Err(kept("it is read in the branch or loop that copies into it"));
        }
        let behind = if behind == 0 && places[0] < places[1] { self.stages } else { behind };
        self.happens(&fill.guards, behind, None)
            .ok_or_else(|| kept("the copy that it reads is made under a condition"))?;
        let mut first = Vec::new();
        for k in 0..behind {
            first.push(self.prologue_copy(load, &stage, fill, behind, k, prologue)?);
        }
        Ok(Read { op: load, behind, first })
    }

    /// The prologue's copy that iteration `k` reads, if it is the one that the loop would have made.
    fn prologue_copy(
        &self,
        load: OpId,
        stage: &Polynomial,
        fill: &Fill,
        behind: i64,
        k: i64,
        prologue: &[Fill],
    ) -> Result<usize, Kept> {
        let iv = self.around.iv;
        let at = |p: &Polynomial, k: i64| p.with(iv, &Polynomial::constant(k));
        let odd = |id| ("the stages that are filled before the loop are not known".to_string(), id);
        let here = at(stage, k).ok_or_else(|| odd(load))?;
        for (i, copy) in prologue.iter().enumerate().rev() {
            let apart = copy.stage.minus(&here).and_then(|d| d.as_constant());
            if apart.ok_or_else(|| odd(copy.op))?.rem_euclid(self.stages) != 0 {
                continue;
            }
            let (ours, loops) = (&self.func.ops[copy.op], &self.func.ops[fill.op]);
            let same = ours.operands[1] == loops.operands[1]
                && extents(ours) == extents(loops)
                && fill.at.iter().zip(&copy.at).all(|(a, b)| at(a, k - behind).as_ref() == Some(b));
            if !same {
                let why = "the loop would have copied another block into this stage";
                return Err((why.into(), copy.op));
            }
            return match self.happens(&copy.guards, 0, Some(k)) {
                Some(()) => Ok(i),
                None => Err(("a stage is filled under a condition".into(), copy.op)),
            };
        }
        Err(("a stage is read that nothing was copied into".into(), load))
    }

    /// Shows that a copy happens: its guards hold because the iteration that reads it runs.
    fn happens(&self, guards: &[Polynomial], behind: i64, k: Option<i64>) -> Option<()> {
        let iv = self.around.iv;
        let left = self.around.left.iter().map(|(left, _)| match k {
            Some(k) => left.with(iv, &Polynomial::constant(k)),
            None => Some(left.clone()),
        });
        let left = left.collect::<Option<Vec<_>>>()?;
        let then = number(iv).minus(&Polynomial::constant(behind))?;
        for guard in guards {
            let guard = guard.with(iv, &then)?;
            let surplus = |left: &Polynomial| guard.minus(left)?.as_constant();
            let known = left.iter().find_map(surplus).or(guard.as_constant());
            if known.is_none_or(|v| v < 0) {
                return None;
            }
        }
        Some(())
    }

    /// A position by the iteration, `behind` iterations before, by the loop's position.
    fn at_load(&self, p: &Polynomial, behind: i64) -> Option<Polynomial> {
        let (iv, lo) = (self.around.iv, &self.around.lo);
        let (by, rest) = rate(p, iv)?;
        if by % self.around.step != 0 {
            return None;
        }
        let by = Polynomial::constant(by / self.around.step);
        let back = Polynomial::constant(self.around.step.checked_mul(behind)?);
        let here = number(iv).minus(lo)?.minus(&back)?;
        rest.plus(&by.times(&here)?)
    }
}

/// Whether an integer type has the numbers from 0 to this one.
fn keeps_up_to(dtype: DType, most: i64) -> bool {
    let bits = dtype.bits() - u32::from(dtype.is_signed_int());
    dtype.is_int() && (bits >= 63 || most < 1 << bits)
}

/// `q` and the rest of `q·k + rest`.
pub(crate) fn rate(p: &Polynomial, iv: Value) -> Option<(i64, Polynomial)> {
    let alone = [Factor::Value(iv)];
    let q = p.terms().find(|(term, _)| *term == alone).map_or(0, |(_, by)| by);
    let rest = p.minus(&Polynomial::constant(q).times(&number(iv))?)?;
    let depends = rest.terms().any(|(term, _)| term.contains(&alone[0]));
    (!depends).then_some((q, rest))
}

/// What a condition says, as numbers that are not negative.
fn conditions(
    func: &TileFunc,
    value: Value,
    poly: &dyn Fn(Value) -> Option<Polynomial>,
    out: &mut Vec<Polynomial>,
) -> Option<()> {
    let op = func.def(value)?;
    let TileOp::Ew(f) = op.code else { return None };
    let one = Polynomial::constant(1);
    let side = |i: usize| poly(op.operands[i]);
    match f {
        ScalarFn::Lt => out.push(side(1)?.minus(&side(0)?)?.minus(&one)?),
        ScalarFn::Gt => out.push(side(0)?.minus(&side(1)?)?.minus(&one)?),
        ScalarFn::Le => out.push(side(1)?.minus(&side(0)?)?),
        ScalarFn::Ge => out.push(side(0)?.minus(&side(1)?)?),
        ScalarFn::And if func.ty(value).dtype() == DType::Bool => {
            conditions(func, op.operands[0], poly, out)?;
            conditions(func, op.operands[1], poly, out)?;
        }
        _ => return None,
    }
    Some(())
}
