//! The adjoint of a kernel: the forward ops are recomputed, then their reverse rules are applied
//! from the last op to the first. The adjoint of a store loads from the cotangent of the written
//! array; the adjoint of a load adds to the cotangent of the array that was read.
//!
//! A cotangent that several groups may add to is a `reduce_sum` parameter; where each element is one
//! group's alone it is read and written in place, so that groups stay independent.

use super::class::{Direction, judge};
use super::combine;
use super::contract;
use super::study::Study;
use super::tidy;
use super::weave::{Weave, moves, wide};
use crate::emit::Out;
use crate::scalar::Scalars;
use std::collections::BTreeMap;
use tessera_diag::Diagnostic;
use tessera_ir::{Attr, BlockId, OpId, OpSpec, Privilege, Type, Value};
use tessera_support::SideTable;
use tessera_tile::{TileBuild, TileFunc, TileOp};

/// What an argument of a made kernel is.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// The value that the source's parameter had before it ran.
    Primal(usize),
    /// The cotangent (or tangent) of a parameter's new value. Written: it is used up.
    Seed { of: usize, written: bool },
    /// Zeros that the derivative by a parameter is added to; `scalar`: one element for a number.
    Grad { of: usize, scalar: bool },
    /// The cotangent of a sum, which has the extents of this parameter: one kernel writes it over
    /// zeros, others read it.
    Between { of: usize, written: bool },
}

pub struct Made {
    pub func: TileFunc,
    pub args: Vec<Arg>,
    /// Which of the source's parameters have no seed that this kernel reads: their cotangent goes
    /// on unchanged (`reduce_sum`).
    pub passed: Vec<usize>,
}

/// Where the cotangent of what a load gave goes.
#[derive(Copy, Clone, PartialEq)]
pub enum Target {
    /// Into memory, at the load's index.
    Memory(Value),
    /// To the loop that adds it up.
    Register,
}

pub struct Reverse<'a, 's> {
    pub w: Weave<'s>,
    pub study: &'a Study<'s>,
    parts: SideTable<Value, Vec<Value>>,
    /// The cotangents of arrays that are written: the parameter, and whether it is used up in place.
    seeds: BTreeMap<Value, (Value, bool)>,
    pub targets: BTreeMap<Value, Target>,
    /// What went to registers.
    pub registers: Vec<Value>,
    /// A loop whose adjoints are other kernels: its store, and where the cotangent of its sum goes.
    cut: Option<(OpId, OpId, Value)>,
    /// Whether stores may be ragged, so that some computed numbers are never stored.
    pub ragged: bool,
}

impl<'a, 's> Reverse<'a, 's> {
    pub fn new(w: Weave<'s>, study: &'a Study<'s>) -> Self {
        let open = |id: OpId| {
            let op = &study.func.ops[id];
            let inside = op.attr("bounds").and_then(Attr::as_list);
            !inside.is_some_and(|b| b.iter().all(|w| w.as_word() == Some("inside")))
        };
        let mut all = study.stores.values().chain(study.folds.values()).flatten();
        let ragged = all.any(|&id| open(id));
        Self {
            w,
            study,
            parts: SideTable::new(Vec::new()),
            seeds: BTreeMap::new(),
            targets: BTreeMap::new(),
            registers: Vec::new(),
            cut: None,
            ragged,
        }
    }

    pub fn give(&mut self, v: Value, part: Value) {
        if self.study.active[v] && moves(self.study.func.ty(v)) {
            self.parts.get_mut(v).push(part);
        }
    }

    /// The complete cotangent of a value: the reverse rules of all its uses have run.
    pub fn take(&mut self, v: Value) -> Result<Option<Value>, Diagnostic> {
        let parts = std::mem::take(self.parts.get_mut(v));
        let mut sum = None;
        for part in parts {
            sum = self.w.sum_of(sum, Some(part))?;
        }
        Ok(sum)
    }

    fn taken(&mut self, v: Value) -> Out {
        match self.take(v)? {
            Some(ct) => Ok(ct),
            None => Ok(self.w.zeros(&wide(self.study.func.ty(v)))),
        }
    }

    /// Applies the reverse rules of a block, whose ops have been copied, from the last to the
    /// first.
    #[deny(clippy::wildcard_enum_match_arm)]
    pub fn answer(&mut self, block: BlockId) -> Result<(), Diagnostic> {
        use TileOp::*;
        for &id in self.study.func.blocks[block].ops.iter().rev() {
            let op = &self.study.func.ops[id];
            if op.is_terminator() {
                continue;
            }
            self.w.loc = op.loc.clone();
            match op.code {
                Store | Accumulate => self.stored(id)?,
                If => self.branch(id)?,
                For => self.repeat(id)?,
                _ if op.results.len() == 1 || op.code == Sort => {
                    if let Some(ct) = self.take(op.results[0])? {
                        if op.code == Load {
                            self.loaded(id, ct)?;
                        } else {
                            self.rule(id, ct)?;
                        }
                    }
                }
                While | Yield | Return | SlowPath | ProgramId | NumPrograms | LinearId
                | LocalId | GroupSize | WarpSize | Dim | Origin | Const | Iota | Select | Cast
                | Bitcast | Reshape | Transpose | Broadcast | Expand | Load | Gather | Scatter
                | BufAlloc | CopyAsync | Barrier | Atomic | CopyCommit | CopyWait | Mma
                | GroupReduce | GroupScan | GroupBroadcast | GroupShuffle | Philox | Print
                | Assert | Reduce | Scan | ArgReduce | Ew(_) | Slice | Concat | Take | ReduceBy
                | ScanBy | Sort | Histogram | Owned | Asm | AsmEffect => {}
            }
        }
        Ok(())
    }

    /// The op's access on another array, with `value` in front of the positions where there is one.
    fn access(
        &self,
        code: TileOp,
        id: OpId,
        mem: Value,
        value: Option<Value>,
    ) -> OpSpec<tessera_tile::Tile> {
        let op = &self.study.func.ops[id];
        let operands: Vec<Value> = std::iter::once(mem).chain(value).collect();
        let mut spec = OpSpec::new(code, &operands).group("at", &self.w.get_all(op.group("at")));
        for name in ["extent", "step", "bounds"] {
            if let Some(attr) = op.attr(name) {
                spec = spec.attr(name, attr.clone());
            }
        }
        spec
    }

    fn stored(&mut self, id: OpId) -> Result<(), Diagnostic> {
        let op = &self.study.func.ops[id];
        let (param, value) = (op.operands[0], op.operands[1]);
        let Some(&(seed, in_place)) = self.seeds.get(&param) else { return Ok(()) };
        let mask = op.group("mask").first().map(|&m| self.w.get(m));
        let ty = Type::value(self.study.func.ty(value).shape().to_vec(), self.w.ty(seed).dtype());
        if self.study.active[value] {
            let ct = self.w.value(self.access(TileOp::Load, id, seed, None).result(ty.clone()))?;
            let ct = self.w.cast(ct, self.study.func.ty(value).dtype().carrier());
            let ct = match mask {
                Some(mask) => {
                    let zero = self.w.like(0.0, ct)?;
                    self.w.pick(mask, ct, zero)
                }
                None => ct,
            };
            self.give(value, ct);
        }
        // What was there before the store has no part in what is there after it.
        if in_place && op.code == TileOp::Store {
            let zero = self.w.zeros(&ty);
            let mut spec = self.access(TileOp::Store, id, seed, Some(zero));
            if let Some(mask) = mask {
                spec = spec.group("mask", &[mask]);
            }
            self.w.op(spec)?;
        }
        Ok(())
    }

    fn loaded(&mut self, id: OpId, ct: Value) -> Result<(), Diagnostic> {
        let op = &self.study.func.ops[id];
        let target = self.targets.get(&op.operands[0]).copied();
        // The padding value has the cotangent of the elements outside.
        for &other in op.group("other") {
            if self.study.active[other] {
                return Err(super::class::refusal(
                    &self.study.func.name,
                    "differentiates what stands for elements outside an array",
                    &op.loc,
                ));
            }
        }
        match target {
            Some(Target::Memory(mem)) => {
                let spec = self.access(TileOp::Accumulate, id, mem, Some(ct));
                self.w.op(spec.attr("op", Attr::word("sum")))?;
            }
            Some(Target::Register) => self.registers.push(ct),
            None => {}
        }
        Ok(())
    }

    fn branch(&mut self, id: OpId) -> Result<(), Diagnostic> {
        let op = &self.study.func.ops[id];
        let captured = self.study.captured(&op.regions);
        let mut cts = Vec::new();
        for &r in &op.results {
            cts.push(self.take(r)?);
        }
        if cts.iter().all(Option::is_none) && !self.touches(&op.regions) {
            return Ok(());
        }
        let types: Vec<Type> = captured.iter().map(|&v| wide(self.study.func.ty(v))).collect();
        let cond = self.w.get(op.operands[0]);
        let made = self.w.op(OpSpec::new(TileOp::If, &[cond]).results(types))?;
        let outer = self.w.block;
        let aside: Vec<_> =
            captured.iter().map(|&v| std::mem::take(self.parts.get_mut(v))).collect();
        for (place, &region) in op.regions.iter().enumerate() {
            self.w.block = self.w.rw.new.ops[made].regions[place];
            self.w.again(region);
            for (&y, &ct) in self.study.yielded(region).iter().zip(&cts) {
                if let Some(ct) = ct {
                    self.give(y, ct);
                }
            }
            self.answer(region)?;
            self.w.loc = op.loc.clone();
            let mut out = Vec::new();
            for &v in &captured {
                out.push(self.taken(v)?);
            }
            self.w.b().yield_(&out);
        }
        self.w.block = outer;
        for ((&v, parts), place) in captured.iter().zip(aside).zip(0..) {
            *self.parts.get_mut(v) = parts;
            let part = self.w.rw.new.ops[made].results[place];
            self.give(v, part);
        }
        Ok(())
    }

    /// Whether something in the regions reads or writes memory whose cotangents are wanted.
    fn touches(&self, regions: &[BlockId]) -> bool {
        let mut found = false;
        for &region in regions {
            self.study.func.walk_block(region, &mut |id| {
                let op = &self.study.func.ops[id];
                found |= matches!(op.code, TileOp::Store | TileOp::Accumulate)
                    && self.seeds.contains_key(&op.operands[0]);
            });
        }
        found
    }

    /// Every iteration adds to the same sums: their cotangent is the same in each, and iterations
    /// can be reversed in any order. The loop runs in the original order, so that other carried
    /// values follow.
    fn repeat(&mut self, id: OpId) -> Result<(), Diagnostic> {
        let op = &self.study.func.ops[id];
        let captured = self.study.captured(&op.regions);
        let mut cts = Vec::new();
        for &r in &op.results {
            cts.push(self.take(r)?);
        }
        let inits = op.group("init");
        for (&init, &ct) in inits.iter().zip(&cts) {
            if let Some(ct) = ct {
                self.give(init, ct);
            }
        }
        if let Some((_, store, mem)) = self.cut.filter(|(cut, ..)| *cut == id) {
            if let Some(ct) = cts[0] {
                let mut spec = self.access(TileOp::Store, store, mem, Some(ct));
                spec.attrs.remove("step");
                self.w.op(spec)?;
            }
            return Ok(());
        }
        if cts.iter().all(Option::is_none) && !self.touches(&op.regions) {
            return Ok(());
        }
        // Active values that are not sums have been refused; the rest is carried unchanged.
        let plain: Vec<usize> =
            (0..inits.len()).filter(|&i| !self.study.active[op.results[i]]).collect();
        let mut init: Vec<Value> = plain.iter().map(|&i| self.w.get(inits[i])).collect();
        let mut aside = Vec::new();
        for &v in &captured {
            aside.push(std::mem::take(self.parts.get_mut(v)));
            let zero = self.w.zeros(&wide(self.study.func.ty(v)));
            init.push(zero);
        }
        let types: Vec<Type> = init.iter().map(|&v| self.w.ty(v).clone()).collect();
        let bounds = self.w.get_all(&op.operands[..3]);
        let spec = OpSpec::new(TileOp::For, &bounds).group("init", &init).results(types.clone());
        let made = self.w.op(spec)?;
        let (outer, old) = (self.w.block, op.regions[0]);
        let body = self.w.rw.new.ops[made].regions[0];
        self.w.block = body;
        let old_args = &self.study.func.blocks[old].args;
        let name = self.study.func.name_of(old_args[0]);
        let position = self.w.rw.new.add_arg(body, Type::INDEX, name);
        self.w.rw.set(old_args[0], position);
        let args: Vec<Value> =
            types.iter().map(|ty| self.w.rw.new.add_arg(body, ty.clone(), None)).collect();
        for (&place, &arg) in plain.iter().zip(&args) {
            self.w.rw.set(old_args[place + 1], arg);
        }
        for place in (0..inits.len()).filter(|i| !plain.contains(i)) {
            // Nothing but the sum itself is made of it.
            let zero = self.w.zeros(self.study.func.ty(old_args[place + 1]));
            self.w.rw.set(old_args[place + 1], zero);
        }
        self.w.again(old);
        let yielded = self.study.yielded(old);
        for (&y, &ct) in yielded.iter().zip(&cts) {
            if let Some(ct) = ct {
                self.give(y, ct);
            }
        }
        self.answer(old)?;
        self.w.loc = op.loc.clone();
        for &arg in &old_args[1..] {
            self.take(arg)?;
        }
        let mut out: Vec<Value> = plain.iter().map(|&i| self.w.get(yielded[i])).collect();
        for (&v, &arg) in captured.iter().zip(&args[plain.len()..]) {
            let part = self.take(v)?;
            out.push(match part {
                Some(part) => self.w.add(arg, part)?,
                None => arg,
            });
        }
        self.w.b().yield_(&out);
        self.w.block = outer;
        for ((&v, parts), place) in captured.iter().zip(aside).zip(plain.len()..) {
            *self.parts.get_mut(v) = parts;
            let part = self.w.rw.new.ops[made].results[place];
            self.give(v, part);
        }
        Ok(())
    }
}

/// The adjoint of a kernel by the parameters `wrt`, given cotangents of the written ones in `seeded`:
/// kernels to be called one after another.
pub fn adjoint(
    source: &TileFunc,
    wrt: &[bool],
    seeded: &[bool],
    name: &str,
) -> Result<Vec<Made>, Diagnostic> {
    let meant = super::asm::meant(source, wrt);
    let source = meant.as_ref().unwrap_or(source);
    let unfolded = combine::unfolded(source, wrt);
    let source = unfolded.as_ref().unwrap_or(source);
    let study = Study::new(source, wrt);
    judge(&study, Direction::Reverse)?;
    let contraction = contract::find(&study, wrt, seeded);
    let mut r = Reverse::new(Weave::reading(source, name), &study);
    let params = source.params();
    let mut args: Vec<Arg> = (0..params.len()).map(Arg::Primal).collect();
    let mut passed = Vec::new();
    for (place, &p) in params.iter().enumerate() {
        let Type::View { dims, elem, privilege } = source.ty(p) else { continue };
        if !seeded[place] {
            continue;
        }
        let moved = |id: &OpId| study.active[source.ops[*id].operands[1]];
        let stores = study.list(&study.stores, p);
        let folds = study.list(&study.folds, p);
        let keeps = *privilege == Privilege::ReadWrite && wrt[place];
        if privilege.reduces() && wrt[place] {
            passed.push(place);
        }
        if !keeps && !stores.iter().chain(folds).any(moved) {
            continue;
        }
        let in_place = keeps || (stores.len() + folds.len() > 1 && !privilege.reduces());
        let how = if in_place { Privilege::ReadWrite } else { Privilege::Read };
        let label = format!("{}.ct", source.name_of(p).unwrap_or("y"));
        let seed = r.w.param(&label, dims.clone(), elem.storage, how);
        r.seeds.insert(p, (seed, in_place));
        args.push(Arg::Seed { of: place, written: in_place });
        if keeps {
            r.targets.insert(p, Target::Memory(seed));
        }
    }
    let apart = |p: usize| contraction.as_ref().is_some_and(|c| c.inputs.iter().any(|i| i.0 == p));
    add_targets(&mut r, wrt, &mut args, &|p| !apart(p));
    if let Some(c) = &contraction {
        let mem = contract::between(&mut r, c, Privilege::ReadWrite);
        r.cut = Some((c.id, c.store, mem));
        args.push(Arg::Between { of: c.out, written: true });
    }
    r.w.again(source.body);
    r.answer(source.body)?;
    scalars(&mut r, wrt, &args)?;
    r.w.b().return_();
    let mut made = vec![finish(r.w.rw.new, args, passed)];
    if let Some(c) = &contraction {
        for &place in &c.inputs {
            made.push(contract::input(&study, c, place, name)?);
        }
    }
    Ok(made)
}

/// Adds parameters for the cotangents of those parameters in `wrt` that are read and `requested`.
pub fn add_targets(
    r: &mut Reverse<'_, '_>,
    wrt: &[bool],
    args: &mut Vec<Arg>,
    requested: &dyn Fn(usize) -> bool,
) {
    let source = r.study.func;
    for (place, &p) in source.params().iter().enumerate() {
        if !wrt[place] || r.targets.contains_key(&p) || !requested(place) {
            continue;
        }
        let label = format!("{}.grad", source.name_of(p).unwrap_or("x"));
        let dtype = source.ty(p).dtype().carrier();
        match source.ty(p) {
            Type::View { dims, privilege: Privilege::Read, .. } => {
                if r.study.list(&r.study.loads, p).is_empty() {
                    continue;
                }
                let owned = r.study.is_owned(p);
                let how = if owned { Privilege::ReadWrite } else { Privilege::ReduceSum };
                let grad = r.w.param(&label, dims.clone(), dtype, how);
                r.targets.insert(p, Target::Memory(grad));
                args.push(Arg::Grad { of: place, scalar: false });
            }
            ty if moves(ty) => {
                let grad = r.w.param(&label, vec![1.into()], dtype, Privilege::ReduceSum);
                r.targets.insert(p, Target::Memory(grad));
                args.push(Arg::Grad { of: place, scalar: true });
            }
            _ => {}
        }
    }
}

/// Numbers that are parameters: every group (or lane) adds its part.
pub fn scalars(r: &mut Reverse<'_, '_>, wrt: &[bool], args: &[Arg]) -> Result<(), Diagnostic> {
    let source = r.study.func;
    for (place, &p) in source.params().iter().enumerate() {
        let requested = args.contains(&Arg::Grad { of: place, scalar: true });
        if !wrt[place] || !requested {
            continue;
        }
        if let (Some(ct), Some(&Target::Memory(mem))) = (r.take(p)?, r.targets.get(&p)) {
            let zero = r.w.b().index(0);
            let spec = OpSpec::new(TileOp::Accumulate, &[mem, ct]).group("at", &[zero]);
            let spec = spec.attr("op", Attr::word("sum")).attr("extent", Attr::ints([0]));
            r.w.op(spec)?;
        }
    }
    Ok(())
}

/// Takes out what is not needed.
pub fn finish(mut func: TileFunc, args: Vec<Arg>, passed: Vec<usize>) -> Made {
    tidy::join_products(&mut func);
    tidy::sweep(&mut func);
    let types: Vec<Type> = func.params().iter().map(|&p| func.ty(p).clone()).collect();
    // An extent that is no number is known by the arrays that have it.
    let open = |ty: &Type| ty.shape().iter().any(|d| d.as_static().is_none());
    let left =
        tidy::drop_params(&mut func, &|i| !matches!(args[i], Arg::Primal(_)) || open(&types[i]));
    let args = args.into_iter().zip(left).filter(|(_, l)| *l).map(|(a, _)| a).collect();
    Made { func, args, passed }
}
