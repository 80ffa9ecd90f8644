//! Forward mode of a kernel: the ops are recomputed, each value has its tangent beside it, and the
//! kernel stores tangents. Loops carry tangents too.

use super::class::{Direction, judge};
use super::reverse::{Arg, Made, finish};
use super::rules::share;
use super::study::Study;
use super::weave::{Weave, compute, moves, wide};
use crate::scalar::Scalars;
use std::collections::BTreeMap;
use tessera_diag::Diagnostic;
use tessera_ir::{Attr, BlockId, OpId, OpSpec, Privilege, Type, Value};
use tessera_numerics::ReduceOp;
use tessera_support::SideTable;
use tessera_tile::{TileBuild, TileFunc, TileOp};

pub(super) struct Tangents<'a, 's> {
    pub(super) w: Weave<'s>,
    pub(super) study: &'a Study<'s>,
    of: SideTable<Value, Option<Value>>,
    /// The tangents of arrays that are read, before the kernel, and of those that are written.
    reads: BTreeMap<Value, Value>,
    writes: BTreeMap<Value, Value>,
}

impl Tangents<'_, '_> {
    /// The tangent of an active value, materialised where it is zero.
    pub(super) fn made(&mut self, v: Value) -> Value {
        match self.of[v] {
            Some(t) => t,
            None => self.w.zeros(&wide(self.study.func.ty(v))),
        }
    }

    pub(super) fn set_tangent(&mut self, v: Value, t: Value) {
        self.of.set(v, Some(t));
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    pub(super) fn block(&mut self, block: BlockId) -> Result<(), Diagnostic> {
        use TileOp::*;
        for &id in &self.study.func.blocks[block].ops {
            let op = &self.study.func.ops[id];
            if op.is_terminator() {
                continue;
            }
            self.w.loc = op.loc.clone();
            match op.code {
                Store | Accumulate => self.stored(id)?,
                If | For | While => self.control(id)?,
                ReduceBy | ScanBy => self.combined(id)?,
                Yield | Return | SlowPath | ProgramId | NumPrograms | LinearId | LocalId
                | GroupSize | WarpSize | Dim | Origin | Const | Iota | Select | Cast | Bitcast
                | Reshape | Transpose | Broadcast | Expand | Load | Gather | Scatter | BufAlloc
                | CopyAsync | Barrier | Atomic | CopyCommit | CopyWait | Mma | GroupReduce
                | GroupScan | GroupBroadcast | GroupShuffle | Philox | Print | Assert | Reduce
                | Scan | ArgReduce | Ew(_) | Slice | Concat | Take | Sort | Histogram | Owned
                | Asm | AsmEffect => {
                    let into = self.w.block;
                    compute(&mut self.w.rw, id, into);
                    if (op.results.len() == 1 || op.code == Sort)
                        && self.study.active[op.results[0]]
                    {
                        let t = self.rule(id)?;
                        self.of.set(op.results[0], t);
                    }
                }
            }
        }
        Ok(())
    }

    /// The op on other operands.
    fn on(&self, id: OpId, operands: &[Value]) -> OpSpec<tessera_tile::Tile> {
        let op = &self.study.func.ops[id];
        let n = op.positional().len();
        let mut spec = OpSpec::new(op.code, &operands[..n]);
        let mut at = n;
        let rows = tessera_ir::Opcode::<tessera_tile::Tile>::info(op.code).groups;
        for (row, &len) in rows.iter().zip(&op.group_lens) {
            spec = spec.group(row.name, &operands[at..at + len]);
            at += len;
        }
        spec.attrs = op.attrs.clone();
        spec
    }

    fn stored(&mut self, id: OpId) -> Result<(), Diagnostic> {
        let op = &self.study.func.ops[id];
        let Some(&mem) = self.writes.get(&op.operands[0]) else { return Ok(()) };
        let mut t = self.made(op.operands[1]);
        if op.code == TileOp::Store {
            t = self.w.cast(t, self.study.func.ty(op.operands[0]).dtype());
        }
        let mut operands = self.w.get_all(&op.operands);
        (operands[0], operands[1]) = (mem, t);
        let spec = self.on(id, &operands);
        self.w.op(spec)?;
        Ok(())
    }

    /// Regions of their own, with tangents beside the values they take and give.
    fn control(&mut self, id: OpId) -> Result<(), Diagnostic> {
        let op = &self.study.func.ops[id];
        let moving: Vec<usize> =
            (0..op.results.len()).filter(|&i| self.study.active[op.results[i]]).collect();
        let mut types: Vec<Type> =
            op.results.iter().map(|&v| self.study.func.ty(v).clone()).collect();
        types.extend(moving.iter().map(|&i| wide(self.study.func.ty(op.results[i]))));
        let mut operands = self.w.get_all(&op.operands);
        let mut spec = if op.code == TileOp::If {
            self.on(id, &operands)
        } else {
            let inits = op.group("init");
            for &i in &moving {
                let t = self.made(inits[i]);
                operands.push(t);
            }
            let n = op.positional().len();
            let mut spec = OpSpec::new(op.code, &operands[..n]).group("init", &operands[n..]);
            spec.attrs = op.attrs.clone();
            spec
        };
        spec.results = Some(types.clone());
        let made = self.w.op(spec)?;
        let outer = self.w.block;
        for (place, &region) in op.regions.iter().enumerate() {
            let new = self.w.rw.new.ops[made].regions[place];
            self.w.rw.copy_args(region, new);
            let old_args = self.study.func.blocks[region].args.clone();
            if op.code != TileOp::If {
                let first = old_args.len() - op.results.len();
                for &i in &moving {
                    let ty = wide(self.study.func.ty(op.results[i]));
                    let t = self.w.rw.new.add_arg(new, ty, None);
                    self.of.set(old_args[first + i], Some(t));
                }
            }
            self.w.block = new;
            self.block(region)?;
            self.w.loc = op.loc.clone();
            let yielded = self.study.yielded(region);
            let mut out = self.w.get_all(yielded);
            // The question of a `while` gives one bool and no tangents.
            if op.code != TileOp::While || place == 1 {
                for &i in &moving {
                    let t = self.made(yielded[i]);
                    out.push(t);
                }
            }
            self.w.b().yield_(&out);
        }
        self.w.block = outer;
        let results = self.w.rw.new.ops[made].results.clone();
        for (&old, &new) in op.results.iter().zip(&results) {
            self.w.rw.set(old, new);
        }
        for (&i, &t) in moving.iter().zip(&results[op.results.len()..]) {
            self.of.set(op.results[i], Some(t));
        }
        Ok(())
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn rule(&mut self, id: OpId) -> Result<Option<Value>, Diagnostic> {
        use TileOp::*;
        let op = &self.study.func.ops[id];
        let t = |i: usize| self.of[op.operands[i]];
        let result = wide(self.study.func.ty(op.result()));
        Ok(match op.code {
            Load => {
                let Some(&mem) = self.reads.get(&op.operands[0]) else { return Ok(None) };
                let mut spec =
                    OpSpec::new(Load, &[mem]).group("at", &self.w.get_all(op.group("at")));
                for name in ["extent", "step", "bounds", "inbounds"] {
                    if let Some(attr) = op.attr(name) {
                        spec = spec.attr(name, attr.clone());
                    }
                }
                let t = self.w.value(spec)?;
                Some(self.w.widen(t))
            }
            Ew(f) => {
                let x = self.w.get_all(&op.operands);
                let r = self.w.get(op.result());
                let tangents: Vec<_> = op.operands.iter().map(|&v| self.of[v]).collect();
                self.w.moved(f, &x, r, &tangents)?
            }
            Select => {
                let c = self.w.get(op.operands[0]);
                let (a, b) = (self.made(op.operands[1]), self.made(op.operands[2]));
                Some(self.w.pick(c, a, b))
            }
            Cast => t(0).map(|t| self.w.cast(t, result.dtype())),
            Reshape | Transpose | Expand | Broadcast | Scan | Slice => match t(0) {
                Some(t) => {
                    let mut spec = OpSpec::new(op.code, &[t]).result(result);
                    spec.attrs = op.attrs.clone();
                    Some(self.w.value(spec)?)
                }
                None => None,
            },
            Reduce => {
                let Some(mut t) = t(0) else { return Ok(None) };
                let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
                let sum = op.attr("op").and_then(Attr::as_word).and_then(ReduceOp::from_name);
                if sum != Some(ReduceOp::Sum) {
                    let (x, best) = (self.w.get(op.operands[0]), self.w.get(op.result()));
                    let share = share(&mut self.w, x, best, axis)?;
                    t = self.w.mul(t, share)?;
                }
                Some(self.w.sum(t, axis))
            }
            Concat => {
                let parts: Vec<Value> = op.operands.iter().map(|&v| self.made(v)).collect();
                let mut spec = OpSpec::new(Concat, &[]).group("parts", &parts).result(result);
                spec.attrs = op.attrs.clone();
                Some(self.w.value(spec)?)
            }
            Take | Sort => {
                let Some(t) = t(0) else { return Ok(None) };
                let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
                let index = if op.code == Take { op.operands[1] } else { op.results[1] };
                let index = self.w.get(index);
                Some(self.w.take(t, index, axis)?)
            }
            Mma => {
                let mut acc = self.made(op.operands[2]);
                for place in [0, 1] {
                    let Some(t) = self.of[op.operands[place]] else { continue };
                    let mut operands = self.w.get_all(&op.operands);
                    let dtype = self.study.func.ty(op.operands[place]).dtype();
                    operands[place] = self.w.cast(t, dtype);
                    operands[2] = acc;
                    let spec = self.on(id, &operands);
                    acc = self.w.value(spec.result(result.clone()))?;
                }
                Some(acc)
            }
            // The others have no derivative by nature, or were refused.
            For | If | While | Yield | Return | SlowPath | ProgramId | NumPrograms | LinearId
            | LocalId | GroupSize | WarpSize | Dim | Origin | Const | Iota | Bitcast | Store
            | Gather | Scatter | Accumulate | BufAlloc | CopyAsync | Barrier | Atomic
            | CopyCommit | CopyWait | GroupReduce | GroupScan | GroupBroadcast | GroupShuffle
            | Philox | Print | Assert | ArgReduce | ReduceBy | ScanBy | Histogram | Owned | Asm
            | AsmEffect => None,
        })
    }
}

/// The tangents of the written parameters, from tangents of the parameters `wrt`.
pub fn tangent(source: &TileFunc, wrt: &[bool], name: &str) -> Result<Made, Diagnostic> {
    let meant = super::asm::meant(source, wrt);
    let source = meant.as_ref().unwrap_or(source);
    let study = Study::new(source, wrt);
    judge(&study, Direction::Forward)?;
    let mut t = Tangents {
        w: Weave::reading(source, name),
        study: &study,
        of: SideTable::new(None),
        reads: BTreeMap::new(),
        writes: BTreeMap::new(),
    };
    let params = source.params();
    let mut args: Vec<Arg> = (0..params.len()).map(Arg::Primal).collect();
    for (place, &p) in params.iter().enumerate() {
        let label = format!("{}.t", source.name_of(p).unwrap_or("x"));
        let written = match source.ty(p) {
            Type::View { privilege, .. } => privilege.writes(),
            _ => false,
        };
        if !source.ty(p).dtype().is_float() || !(wrt[place] || written) {
            continue;
        }
        match source.ty(p) {
            Type::View { dims, elem, privilege } => {
                let mem = t.w.param(&label, dims.clone(), elem.storage, *privilege);
                if *privilege == Privilege::Read {
                    t.reads.insert(p, mem);
                } else {
                    t.writes.insert(p, mem);
                    if wrt[place] {
                        t.reads.insert(p, mem);
                    }
                }
            }
            ty if moves(ty) => {
                let body = t.w.rw.new.body;
                let ty = ty.clone();
                let param = t.w.rw.new.add_arg(body, ty, Some(&label));
                t.of.set(p, Some(param));
            }
            _ => continue,
        }
        args.push(Arg::Seed { of: place, written });
    }
    // Numbers that are parameters are widened once, before all else.
    for &p in params.iter().filter(|&&p| moves(source.ty(p))) {
        if let Some(v) = t.of[p] {
            let v = t.w.widen(v);
            t.of.set(p, Some(v));
        }
    }
    t.block(source.body)?;
    t.w.b().return_();
    Ok(finish(t.w.rw.new, args, Vec::new()))
}
