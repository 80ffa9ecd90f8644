//! The ops of one vector of lanes, and those that are the same for the whole group.

use super::{Lanes, Repr};
use crate::asm_text::Text;
use crate::code::{Site, note_group, note_lane};
use crate::frame;
use crate::llvm::{IntCmp, Val};
use tessera_ir::{Attr, BlockId, Op, OpId, Value};
use tessera_numerics::{DType, ScalarFn};
use tessera_support::Entity;
use tessera_tile::attrs::{cast_mode, constant_of, grid_axis};
use tessera_tile::{Tile, TileOp};

impl<'a> Lanes<'a> {
    /// The ops of a block, without its terminator.
    pub fn block(&mut self, id: BlockId) {
        let func = self.func;
        for &op in &func.blocks[id].ops {
            if !func.ops[op].is_terminator() {
                self.op(op);
            }
        }
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    pub fn op(&mut self, id: OpId) {
        use TileOp::*;
        let func = self.func;
        let op = &func.ops[id];
        match op.code {
            For => self.counted(id),
            If => self.branch(id),
            While => self.conditional(id),
            Load => self.load(id),
            Store => self.store(id),
            Accumulate => self.accumulate(id),
            Atomic => self.atomic(id),
            Assert => self.assert(id),
            // What is said of memory is for checks.
            Owned => {}
            GroupBroadcast | GroupShuffle => self.shuffle(id),
            AsmEffect => self.text_with_effects(id),
            Yield | Return | SlowPath | ProgramId | NumPrograms | LinearId | LocalId
            | GroupSize | WarpSize | Dim | Origin | Const | Iota | Select | Cast | Bitcast
            | Reshape | Transpose | Broadcast | Expand | Gather | Scatter | BufAlloc
            | CopyAsync | Barrier | CopyCommit | CopyWait | Mma | GroupReduce | GroupScan
            | Philox | Print | Reduce | Scan | ArgReduce | Ew(_) | Slice | Concat | Take
            | ReduceBy | ScanBy | Sort | Histogram | Asm => {
                let result = op.result();
                if self.plan.is_folded(result) {
                    return;
                }
                if matches!(self.env[result.index()], Repr::Absent) {
                    let repr = self.compute(op);
                    self.set(result, repr);
                }
                self.keep(result);
            }
        }
    }

    /// An op that only computes.
    #[deny(clippy::wildcard_enum_match_arm)]
    pub fn compute(&self, op: &Op<Tile>) -> Repr {
        use TileOp::*;
        let ir = self.ir;
        let dtype = |i: usize| self.dtype(op.operands[i]);
        match op.code {
            Const => {
                let dtype = self.dtype(op.result());
                Repr::Uniform(self.s.constant(constant_of(op, dtype), 1))
            }
            LinearId | LocalId => self.lane_id(op),
            ProgramId => Repr::Uniform(self.coordinates(self.number)[grid_axis(op)]),
            NumPrograms => Repr::Uniform(self.word(frame::GRID + grid_axis(op))),
            GroupSize => Repr::Uniform(self.size),
            WarpSize => Repr::Uniform(ir.c64(crate::WARP.into())),
            Dim => {
                let name = op.attr("name").map(Attr::to_string).unwrap_or_default();
                Repr::Uniform(self.word(self.frame.symbol(&name)))
            }
            Ew(f) => match self.in_steps(op, f).or_else(|| self.divided(op, f)) {
                Some(repr) => repr,
                None => self.level(op, |args| self.s.apply(f, dtype(0), args)),
            },
            Select => self.level(op, |args| ir.select(args[0], args[1], args[2])),
            Cast => {
                let to = self.dtype(op.result());
                let (round, saturate) = cast_mode(op, to);
                self.level(op, |args| self.s.cast(args[0], dtype(0), to, round, saturate))
            }
            Bitcast => {
                let to = self.dtype(op.result());
                self.level(op, |args| self.s.bitcast(args[0], dtype(0), to))
            }
            Asm => {
                let text = Text::of(self.func, op);
                let which = tessera_tile::ops::asm::results_of(self.func, op).1.start;
                self.level(op, |args| text.run(&self.s, args, false)[which])
            }
            Philox => {
                let word = op.attr("word").and_then(Attr::as_int).unwrap_or(0) as usize;
                self.level(op, |args| self.s.philox(args[0], args[1], word))
            }
            For | If | While | Yield | Return | SlowPath | Origin | Iota | Reshape | Transpose
            | Broadcast | Expand | Load | Store | Gather | Scatter | Accumulate | BufAlloc
            | CopyAsync | Barrier | Atomic | CopyCommit | CopyWait | Mma | GroupReduce
            | GroupScan | GroupBroadcast | GroupShuffle | Print | Assert | Reduce | Scan
            | ArgReduce | Slice | Concat | Take | ReduceBy | ScanBy | Sort | Histogram | Owned
            | AsmEffect => {
                unreachable!("`is_pure` lists the ops that only compute")
            }
        }
    }

    /// Calls `f` with the operands: scalars where all lanes share them, else vectors.
    fn level(&self, op: &Op<Tile>, f: impl FnOnce(&[Val]) -> Val) -> Repr {
        let reprs: Vec<Repr> = op.operands.iter().map(|&v| self.repr(v)).collect();
        let scalars: Option<Vec<Val>> = reprs.iter().map(uniform).collect();
        match scalars {
            Some(args) => Repr::Uniform(f(&args)),
            None => {
                let args: Vec<Val> = reprs.into_iter().map(|r| self.widen(r)).collect();
                Repr::Each(f(&args))
            }
        }
    }

    /// Arithmetic on positions that keeps their distance the same from lane to lane. It wraps in
    /// every lane as it does in the first.
    fn in_steps(&self, op: &Op<Tile>, f: ScalarFn) -> Option<Repr> {
        let ir = self.ir;
        if self.dtype(op.operands[0]) != DType::I64 {
            return None;
        }
        let reprs: Vec<Repr> = op.operands.iter().map(|&v| self.repr(v)).collect();
        if !reprs.iter().any(|r| matches!(r, Repr::Steps { .. })) {
            return None;
        }
        let part = |r: &Repr| match *r {
            Repr::Uniform(x) => Some((x, 0)),
            Repr::Steps { first, step } => Some((first, step)),
            Repr::Each(_) | Repr::Absent => None,
        };
        let (a, s) = part(&reprs[0])?;
        let (first, step) = match f {
            ScalarFn::Neg => (ir.sub(ir.c64(0), a), s.checked_neg()?),
            ScalarFn::Add => {
                let (b, t) = part(&reprs[1])?;
                (plus(ir, a, b), s.checked_add(t)?)
            }
            ScalarFn::Sub => {
                let (b, t) = part(&reprs[1])?;
                (ir.sub(a, b), s.checked_sub(t)?)
            }
            ScalarFn::Mul => {
                let (b, t) = part(&reprs[1])?;
                let by = |x: Val, step: i64| ir.as_int(x).filter(|_| step == 0);
                let step = match (by(a, s), by(b, t)) {
                    (Some(k), _) => t.checked_mul(k)?,
                    (_, Some(k)) => s.checked_mul(k)?,
                    (None, None) => return None,
                };
                (ir.mul(a, b), step)
            }
            _ => return None,
        };
        Some(if step == 0 { Repr::Uniform(first) } else { Repr::Steps { first, step } })
    }

    fn assert(&mut self, id: OpId) {
        let op = &self.func.ops[id];
        let site = self.code.site(Site::assertion(self.func, id));
        self.fail_where(op.operands[0], site);
    }

    /// Ends the kernel where a condition does not hold in a lane that runs; the first is named.
    fn fail_where(&mut self, cond: Value, site: i64) {
        let ir = self.ir;
        let failed = ir.not(self.vector(cond));
        let failed = self.mask.map_or(failed, |m| ir.and(m, failed));
        let (words, at) = (self.words, self.at);
        ir.when(ir.any(failed), |ir| {
            let (ids, lane) = self.group_and_number(ir.add(at, first_lane(ir, failed)));
            note_group(ir, words, ids);
            note_lane(ir, words, lane);
            ir.ret(Some(ir.c64(site)));
        });
    }

    /// Ends the kernel where the condition holds.
    pub fn fail(&mut self, cond: Val, site: i64) {
        self.ir.when(cond, |ir| {
            note_group(ir, self.words, self.coordinates(self.number));
            ir.ret(Some(ir.c64(site)));
        });
    }

    /// Lets the host stop a long loop.
    pub fn poll(&mut self) {
        let site = match self.interrupted {
            Some(site) => site,
            None => self.code.site(Site::interrupted()),
        };
        self.interrupted = Some(site);
        let stop = crate::code::poll(self.ir, self.words, 1);
        self.ir.when(stop, |ir| ir.ret(Some(ir.c64(site))));
    }

    /// Ends the kernel where a lane that runs would step by zero or backwards.
    pub fn check_step(&mut self, id: OpId, step: Repr) {
        let ir = self.ir;
        let bad = match step {
            Repr::Uniform(x) if ir.as_int(x).is_some_and(|s| s > 0) => return,
            Repr::Uniform(x) => ir.icmp(IntCmp::LLVMIntSLE, x, ir.c64(0)),
            _ => {
                let step = self.widen(step);
                let bad = ir.icmp(IntCmp::LLVMIntSLE, step, ir.zero(ir.ty(step)));
                ir.any(self.mask.map_or(bad, |m| ir.and(m, bad)))
            }
        };
        let site = self.code.site(Site::loop_step(self.func, id));
        self.fail(bad, site);
    }
}

fn uniform(repr: &Repr) -> Option<Val> {
    match *repr {
        Repr::Uniform(x) => Some(x),
        _ => None,
    }
}

/// A sum, or one of the two where the other is nothing.
pub fn plus(ir: &crate::llvm::Ir, a: Val, b: Val) -> Val {
    match (ir.as_int(a), ir.as_int(b)) {
        (Some(0), _) => b,
        (_, Some(0)) => a,
        _ => ir.add(a, b),
    }
}

/// A mask as a number, lane 0 in the lowest bit.
pub fn mask_bits(ir: &crate::llvm::Ir, mask: Val) -> Val {
    let bits = ir.bitcast(mask, ir.int(ir.lanes(ir.ty(mask))));
    ir.zext(bits, ir.i64())
}

/// The first lane that is on, of those that there are.
pub fn first_lane(ir: &crate::llvm::Ir, mask: Val) -> Val {
    let bits = mask_bits(ir, mask);
    ir.intrinsic("llvm.cttz", &[ir.i64()], &[bits, ir.bool(true)])
}

/// How many lanes are on.
pub fn count_lanes(ir: &crate::llvm::Ir, mask: Val) -> Val {
    ir.intrinsic("llvm.ctpop", &[ir.i64()], &[mask_bits(ir, mask)])
}
