//! Lane kernels (SIMT): every value is a scalar per lane, and a thread runs one lane or several.
//!
//! A kernel whose lanes synchronise, or share memory, has one block per group and one thread per
//! lane ([`ids`]). In all others lanes are independent, and a thread takes several lanes if each
//! has little work ([`survey`]): the body is emitted twice, a fast path for threads all of whose
//! lanes exist and are in bounds, with wide accesses and without checks, and a slow path for one
//! lane at a time.
//!
//! Before: a valid lane kernel of Tile IR. After: one PTX kernel.

mod access;
mod asm_text;
mod change;
mod collective;
mod divide;
mod ids;
mod lane_control;
mod memory;
mod shared;
mod survey;
mod uniform;
mod value;

use crate::asm::Asm;
use crate::caps::PtxCaps;
use crate::code::{Classes, Shape, Site};
use crate::inst::*;
use crate::module::{Kernel, Param, Stmt};
use crate::scalar::{Scalars, Unsupported, carrier};
use crate::select::{ARGS, Selected};
use memory::Memory;
use std::collections::BTreeMap;
use survey::{Share, Survey};
use tessera_diag::{Code as ErrorCode, Diagnostic, Diagnostics, Loc};
use tessera_ir::{Attr, BlockId, OpId, Type, Value};
use tessera_numerics::{DType, Profile, Scalar};
use tessera_support::Entity;
use tessera_target::frame::{self, Frame};
use tessera_tile::attrs::grid_axis;
use tessera_tile::{TileFunc, TileOp, lane_axes, lane_axis, lanes_of};
use uniform::Uniform;
use value::Steps;

/// Lanes of a group where the kernel does not say.
const DEFAULT_LANES: i64 = 256;

/// What a value of the function is in the generated code.
#[derive(Clone, Debug)]
enum Repr {
    /// Not computed.
    None,
    /// One register for all lanes of the thread.
    One(Reg),
    /// An i64 that increases by a fixed step from lane to lane.
    Steps(Steps),
    /// A register for each lane of the thread.
    Each(Vec<Reg>),
    Memory(Memory),
}

struct Lanes<'a> {
    func: &'a TileFunc,
    asm: Asm,
    caps: &'a PtxCaps,
    profile: Profile,
    frame: &'a Frame,
    classes: &'a Classes,
    uniform: Uniform,
    /// Lanes of a thread for which code is emitted.
    width: usize,
    env: Vec<Repr>,
    ids: ids::Ids,
    /// For each lane of the thread, whether it exists and is active; all are where there is none.
    guard: Option<Vec<Reg>>,
    /// The whole warp is converged.
    converged: bool,
    survey: Survey,
    shared: shared::Shared,
    /// Quotients known here: of the first by the second.
    quotients: Vec<(Reg, Reg, Reg)>,
    /// Code before everything else.
    head: Vec<Stmt>,
    words: BTreeMap<usize, Reg>,
    /// Scalar parameters, by their words.
    numbers: BTreeMap<usize, Reg>,
    specials: BTreeMap<Special, Reg>,
    sites: Vec<Site>,
    site_of: BTreeMap<OpId, i64>,
}

pub fn select(
    func: &TileFunc,
    frame: &Frame,
    classes: &Classes,
    caps: &PtxCaps,
    profile: Profile,
) -> Result<(Selected, Shape), Diagnostics> {
    let new = || Lanes::new(func, frame, classes, caps, profile);
    let lanes = lanes_of(func).unwrap_or(DEFAULT_LANES).max(1);
    let mut me = new();
    let shape = if me.uniform.together {
        me.in_groups(lanes)?
    } else {
        // The lanes of a thread are along one axis.
        let share = if lane_axes(func) > 1 { Share::ONE } else { new().choose(lanes)? };
        let good = share == Share::ONE || new().suits(share)?;
        me.apart(lanes, if good { share } else { Share::ONE })?
    };
    me.asm.emit(Inst::Ret);
    Ok((me.finish(), shape))
}

impl<'a> Lanes<'a> {
    fn new(
        func: &'a TileFunc,
        frame: &'a Frame,
        classes: &'a Classes,
        caps: &'a PtxCaps,
        profile: Profile,
    ) -> Self {
        let mut kernel = Kernel::new(crate::name::entry(&func.name), 32);
        let bytes = 8 * frame.words() as u32;
        kernel.params.push(Param { name: ARGS.into(), bytes, align: 8 });
        let mut me = Self {
            func,
            asm: Asm::new(kernel),
            caps,
            profile,
            frame,
            classes,
            uniform: Uniform::new(func),
            width: 1,
            env: Vec::new(),
            ids: ids::Ids::default(),
            guard: None,
            converged: false,
            survey: Survey::default(),
            shared: shared::Shared::default(),
            quotients: Vec::new(),
            head: Vec::new(),
            words: BTreeMap::new(),
            numbers: BTreeMap::new(),
            specials: BTreeMap::new(),
            sites: Vec::new(),
            site_of: BTreeMap::new(),
        };
        // The head has the location of the kernel as a whole.
        me.asm.at(&func.loc);
        me.head.append(&mut me.asm.kernel.body);
        me
    }

    fn finish(mut self) -> Selected {
        let body = std::mem::replace(&mut self.asm.kernel.body, self.head);
        self.asm.kernel.body.extend(body);
        self.asm.kernel.dynamic_shared = self.shared.bytes();
        Selected {
            greatest: None,
            kernel: self.asm.kernel,
            files: self.asm.files,
            sites: self.sites,
            ordered: false,
            counts: false,
            prints: Vec::new(),
            stamps: Vec::new(),
            maps: Vec::new(),
        }
    }

    /// Forgets all values but the parameters and the group's memory.
    fn begin(&mut self, width: usize) {
        let func = self.func;
        self.width = width;
        self.env = vec![Repr::None; func.values.len()];
        self.guard = None;
        self.converged = false;
        self.quotients.clear();
        for (i, &v) in func.params().iter().enumerate() {
            let word = self.frame.params[i].word;
            let repr = match func.ty(v) {
                Type::Scalar(dtype) => Repr::One(self.scalar_word(word, *dtype)),
                ty => Repr::Memory(Memory::array(ty, word, self.classes[i])),
            };
            self.set(v, repr);
        }
        for (v, memory) in self.shared.buffers() {
            self.set(v, Repr::Memory(memory));
        }
    }

    /// Emits code at the head of the kernel, before everything else.
    fn at_head<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> T {
        std::mem::swap(&mut self.asm.kernel.body, &mut self.head);
        let out = write(self);
        std::mem::swap(&mut self.asm.kernel.body, &mut self.head);
        out
    }

    /// A word of the arguments, read once.
    fn word(&mut self, place: usize) -> Reg {
        if let Some(&r) = self.words.get(&place) {
            return r;
        }
        let addr = Addr::name(ARGS, 8 * place as i64);
        let r = self.at_head(|me| me.asm.ld(Space::Param, Ty::B64, 1, addr, Cache::Usual)[0]);
        self.words.insert(place, r);
        r
    }

    /// A scalar parameter in its carrier.
    fn scalar_word(&mut self, place: usize, dtype: DType) -> Reg {
        let word = self.word(place);
        if carrier(dtype) == Class::B64 {
            return word;
        }
        if let Some(&r) = self.numbers.get(&place) {
            return r;
        }
        let r = self.at_head(|me| match carrier(dtype) {
            Class::Pred => me.asm.setp(Cmp::Ne, Ty::U64, word, Opnd::Int(0)),
            _ => me.asm.cvt(Ty::U32, Ty::U64, None, word),
        });
        self.numbers.insert(place, r);
        r
    }

    fn special(&mut self, s: Special) -> Reg {
        if let Some(&r) = self.specials.get(&s) {
            return r;
        }
        let r = self.at_head(|me| me.asm.special(s));
        self.specials.insert(s, r);
        r
    }

    fn set(&mut self, v: Value, repr: Repr) {
        self.env[v.index()] = repr;
    }

    fn repr(&self, v: Value) -> &Repr {
        &self.env[v.index()]
    }

    fn is_known(&self, v: Value) -> bool {
        !matches!(self.env[v.index()], Repr::None)
    }

    fn memory(&self, v: Value) -> Memory {
        match &self.env[v.index()] {
            Repr::Memory(m) => m.clone(),
            other => unreachable!("expected memory, got {other:?}"),
        }
    }

    fn dtype(&self, v: Value) -> DType {
        self.func.ty(v).dtype()
    }

    fn scalars(&mut self) -> Scalars<'_> {
        Scalars { asm: &mut self.asm, caps: self.caps, profile: self.profile }
    }

    fn constant(&mut self, value: Scalar) -> Reg {
        self.scalars().constant(value.dtype(), value)
    }

    fn zero(&mut self, dtype: DType) -> Reg {
        self.scalars().constant(dtype, Scalar::zero(dtype))
    }

    fn and(&mut self, a: Reg, b: Reg) -> Reg {
        self.asm.int(Alu::And, Ty::Pred, &[a.into(), b.into()])
    }

    fn or(&mut self, a: Reg, b: Reg) -> Reg {
        self.asm.int(Alu::Or, Ty::Pred, &[a.into(), b.into()])
    }

    fn not(&mut self, a: Reg) -> Reg {
        self.asm.int(Alu::Not, Ty::Pred, &[a.into()])
    }

    /// The conjunction of two optional conditions.
    fn both(&mut self, a: Option<Reg>, b: Option<Reg>) -> Option<Reg> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.and(a, b)),
            (a, b) => a.or(b),
        }
    }

    fn add64(&mut self, a: Reg, b: impl Into<Opnd>) -> Reg {
        self.asm.int(Alu::Add, Ty::S64, &[a.into(), b.into()])
    }

    fn unsupported<T>(&self, op: OpId, why: impl Into<String>) -> Result<T, Diagnostics> {
        let loc: Loc = self.func.ops[op].loc.clone();
        Err(Diagnostic::new(ErrorCode::E_UNSUPPORTED, why.into()).at(loc).into())
    }

    /// Reports an unsupported operation at the op.
    fn sure<T>(&self, op: OpId, made: Result<T, Unsupported>) -> Result<T, Diagnostics> {
        made.or_else(|u| self.unsupported(op, u.to_string()))
    }

    /// The ops of a block, without its terminator.
    fn block(&mut self, id: BlockId) -> Result<(), Diagnostics> {
        let func = self.func;
        let known = self.quotients.len();
        for &op in &func.blocks[id].ops {
            if !func.ops[op].is_terminator() {
                self.asm.at(&func.ops[op].loc);
                self.op(op)?;
            }
        }
        self.quotients.truncate(known);
        Ok(())
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn op(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        match op.code {
            TileOp::For => self.counted(id),
            TileOp::If => self.branch(id),
            TileOp::SlowPath => self.unsupported(id, "expected no slow paths in a lane kernel"),
            TileOp::While => self.conditional(id),
            TileOp::Load => self.load(id),
            TileOp::Store => self.store(id),
            TileOp::Accumulate => self.accumulate(id),
            TileOp::Atomic => self.atomic(id),
            TileOp::Assert => self.assertion(id),
            TileOp::Barrier => {
                self.synchronise();
                Ok(())
            }
            TileOp::GroupReduce => self.group_reduce(id),
            TileOp::GroupScan => self.group_scan(id),
            TileOp::GroupBroadcast => self.group_broadcast(id),
            TileOp::GroupShuffle => self.group_shuffle(id),
            // Shared memory is allocated for the whole kernel.
            TileOp::BufAlloc => Ok(()),
            // What is said of memory is for checks.
            TileOp::Owned => Ok(()),
            TileOp::Const
            | TileOp::Ew(_)
            | TileOp::Select
            | TileOp::Cast
            | TileOp::Bitcast
            | TileOp::Philox
            | TileOp::ProgramId
            | TileOp::NumPrograms
            | TileOp::LinearId
            | TileOp::LocalId
            | TileOp::GroupSize
            | TileOp::WarpSize
            | TileOp::Dim => {
                if self.is_known(op.result()) || self.is_settled(op.result()) {
                    return Ok(());
                }
                let repr = self.compute(id)?;
                self.set(op.result(), repr);
                Ok(())
            }
            TileOp::Asm => self.text(id),
            TileOp::AsmEffect => self.text_with_effects(id),
            TileOp::Print => self.unsupported(
                id,
                "printing is not supported on the GPU yet: use the interp or the cpu backend",
            ),
            TileOp::Origin
            | TileOp::Iota
            | TileOp::Reshape
            | TileOp::Transpose
            | TileOp::Broadcast
            | TileOp::Expand
            | TileOp::Gather
            | TileOp::Scatter
            | TileOp::CopyAsync
            | TileOp::CopyCommit
            | TileOp::CopyWait
            | TileOp::Mma
            | TileOp::Reduce
            | TileOp::Scan
            | TileOp::ArgReduce
            | TileOp::Slice
            | TileOp::Concat
            | TileOp::Take
            | TileOp::ReduceBy
            | TileOp::ScanBy
            | TileOp::Sort
            | TileOp::Histogram
            | TileOp::Yield
            | TileOp::Return => self.unsupported(id, "this op does not stand in a lane kernel"),
        }
    }

    /// Ops that read the launch or the lane's index in it.
    fn id_op(&mut self, id: OpId) -> Repr {
        let op = &self.func.ops[id];
        let one = match op.code {
            TileOp::LinearId | TileOp::LocalId => {
                match lane_axis(op).and_then(|a| self.ids.axes.get(a)) {
                    Some(axis) if op.code == TileOp::LinearId => axis.linear,
                    Some(axis) => axis.local,
                    None if op.code == TileOp::LinearId => return self.ids.linear.clone(),
                    None => return self.ids.local.clone(),
                }
            }
            TileOp::ProgramId if self.ids.axes.get(grid_axis(op)).is_some() => {
                self.ids.axes[grid_axis(op)].group
            }
            // The groups of a lane kernel of one axis are all along the first.
            TileOp::ProgramId if self.ids.axes.is_empty() && grid_axis(op) == 0 => {
                self.group_number()
            }
            TileOp::ProgramId => self.constant(Scalar::I64(0)),
            TileOp::NumPrograms => self.word(frame::GRID + grid_axis(op)),
            TileOp::GroupSize => self.word(frame::LANES),
            TileOp::WarpSize => self.constant(Scalar::I64(32)),
            _ => {
                let name = op.attr("name").map(Attr::to_string).unwrap_or_default();
                self.word(self.frame.symbol(&name))
            }
        };
        Repr::One(one)
    }

    /// The number of a fault site; the same for every copy of the op.
    fn site(&mut self, id: OpId, message: impl FnOnce() -> String) -> i64 {
        if let Some(&site) = self.site_of.get(&id) {
            return site;
        }
        self.sites.push(Site { message: message(), loc: self.func.ops[id].loc.clone() });
        let site = self.sites.len() as i64;
        self.site_of.insert(id, site);
        site
    }

    fn assertion(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let text = op.attr("text").and_then(Attr::as_str).unwrap_or_default();
        let site = self.site(id, || match text {
            "" => "expected the assertion to hold, got a condition that is false".into(),
            text => text.into(),
        });
        let fine = match self.repr(op.operands[0]) {
            Repr::One(p) => vec![*p; self.width],
            _ => self.each(op.operands[0]),
        };
        let guard = self.guard.clone();
        let mut failed = None;
        for (k, &p) in fine.iter().enumerate() {
            let no = self.not(p);
            let no = guard.as_ref().map_or(no, |g| self.and(no, g[k]));
            failed = Some(failed.map_or(no, |f| self.or(f, no)));
        }
        if let Some(failed) = failed {
            self.stop_where(failed, site);
        }
        Ok(())
    }

    /// Reports to the host where a condition holds, and ends the thread. Barriers do not wait for
    /// threads that have ended.
    fn stop_where(&mut self, failed: Reg, site: i64) {
        let status = self.word(frame::CONTEXT);
        let past = self.asm.label();
        self.asm.bra_if(failed, false, past);
        // The first fault is reported.
        let d = self.asm.reg(Class::B32);
        self.asm.emit(Inst::Atom {
            space: Space::Global,
            sem: Sem::Relaxed,
            scope: Scope::Gpu,
            op: AtomOp::Cas,
            ty: Ty::B32,
            d,
            addr: Addr::reg(status, 0),
            a: Opnd::Int(0),
            b: Some(Opnd::Int(site)),
        });
        self.asm.emit(Inst::Ret);
        self.asm.place(past);
        self.converged = false;
    }
}
