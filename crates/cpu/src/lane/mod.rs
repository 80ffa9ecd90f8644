//! Lane kernels (SPMD on SIMD): every value is a scalar for each lane, and lanes run as vectors.
//!
//! A kernel whose lanes never synchronise is one loop over vectors of lanes, whatever the groups.
//! One with barriers, group operations or shared memory is cut at these ([`plan`]): group after
//! group, each piece between two cuts is a loop over the group's vectors ([`span`]), and what lives
//! longer is kept in memory. Control flow around a cut belongs to the group ([`group`]), all other
//! control flow to the vector ([`control`]): lanes that do not take part are masked off.
//!
//! Where lanes have several axes, vectors are along the last one, and a piece is a nest of loops over
//! the rows of the group that exist ([`rows`]).

mod access;
mod change;
mod collective;
mod divide;
mod group;
mod lane_control;
mod lane_plan;
mod local;
mod ops;
mod range;
mod rows;
mod span;
mod uniform;

use crate::build::Atomics;
use crate::code::Code;
use crate::frame::{self, Frame};
use crate::isa::Isa;
use crate::llvm::{Ir, Ty, Val};
use crate::memory::Mem;
use crate::scalar::Scalars;
use lane_plan::LanePlan;
use std::collections::BTreeSet;
use tessera_ir::{OpId, Type, Value};
use tessera_numerics::{DType, Profile, expansion};
use tessera_support::Entity;
use tessera_tile::{TileFunc, TileOp};

/// What a value is for the lanes of a vector.
#[derive(Copy, Clone, Debug)]
pub enum Repr {
    /// Not known here.
    Absent,
    /// The same for all lanes.
    Uniform(Val),
    /// An i64: `first, first + step, …`
    Steps { first: Val, step: i64 },
    /// One for each lane.
    Each(Val),
}

/// The lanes that a piece of code is run for: those numbered `lo..hi`, where lane `base + n` of the
/// launch has the number `n`; along the last axis, where there are several.
#[derive(Copy, Clone)]
struct Span {
    lo: Val,
    hi: Val,
    base: Val,
}

/// Which lanes of the group are active at the present point of the group's own control flow.
#[derive(Copy, Clone, Default)]
struct LaneState {
    /// The slot of their mask; all that exist where there is none.
    mask: Option<u64>,
    /// Whether these are all that exist; known where there is none.
    full: Option<Val>,
}

pub struct Lanes<'a> {
    func: &'a TileFunc,
    ir: &'a Ir,
    s: Scalars<'a>,
    isa: Isa,
    /// Lanes of a vector.
    width: u32,
    plan: LanePlan,
    env: Vec<Repr>,
    mems: Vec<Option<Mem>>,
    code: &'a mut Code,
    frame: &'a Frame,
    words: Val,
    scratch: Val,
    /// An address that can always be read.
    safe: Val,
    /// The first slot, and bytes from one to the next.
    slots: Val,
    stride: Val,
    /// Lanes of a full group.
    size: Val,
    /// The group's number.
    number: Val,
    span: Span,
    /// The other axes, where there are several.
    rows: rows::Rows,
    state: LaneState,
    /// The number of the vector's first lane.
    at: Val,
    /// Lanes of the vector that run; all where there is none.
    mask: Option<Val>,
    /// At least one of them does.
    sure: bool,
    /// Accesses that are known to be inside along an axis.
    inside: BTreeSet<(OpId, usize)>,
    /// Whether the launch is alone with its atomics, where it has any.
    alone: Val,
    /// The site of a stop that the host requests.
    interrupted: Option<i64>,
    /// There is more work than a few operations for each element.
    busy: bool,
}

/// Functions that are sequences of operations.
fn is_busy(func: &TileFunc, id: OpId) -> bool {
    let op = &func.ops[id];
    matches!(op.code, TileOp::Ew(f) if func.ty(op.operands[0]).dtype() == DType::F32 && expansion(f).is_some())
}

/// Emits the groups `begin..end` into the function that was begun, up to its return.
#[allow(clippy::too_many_arguments)]
pub fn emit(
    ir: &Ir,
    isa: Isa,
    profile: Profile,
    func: &TileFunc,
    frame: &Frame,
    layouts: &[u32],
    code: &mut Code,
    [words, scratch, begin, end]: [Val; 4],
) {
    let zero = ir.c64(0);
    let mut lanes = Lanes {
        func,
        ir,
        s: Scalars { ir, isa, quick: profile == Profile::Default },
        isa,
        width: isa.lanes(),
        plan: LanePlan::new(func, profile),
        env: vec![Repr::Absent; func.values.len()],
        mems: vec![None; func.values.len()],
        code,
        frame,
        words,
        scratch,
        safe: scratch,
        slots: scratch,
        stride: zero,
        size: zero,
        number: zero,
        span: Span { lo: zero, hi: zero, base: zero },
        rows: rows::Rows::new(ir, func),
        state: LaneState::default(),
        at: zero,
        mask: None,
        sure: true,
        inside: BTreeSet::new(),
        alone: ir.bool(false),
        interrupted: None,
        busy: func.walk().into_iter().any(|id| is_busy(func, id)),
    };
    // The first line of the scratch memory is what `safe` points to.
    lanes.code.reserve(64);
    lanes.bind_params(layouts);
    if Atomics::of(func) == Atomics::Bounded {
        lanes.alone = crate::code::alone(ir, words);
    }
    lanes.groups(begin, end);
    lanes.code.slots = lanes.plan.slots;
    if lanes.code.streams {
        ir.intrinsic("llvm.x86.sse.sfence", &[], &[]);
    }
    ir.ret(Some(zero));
}

impl<'a> Lanes<'a> {
    fn word(&self, place: usize) -> Val {
        let p = self.ir.offset_const(self.words, 8 * place as i64);
        self.ir.load(self.ir.i64(), p, 8)
    }

    fn bind_params(&mut self, layouts: &[u32]) {
        let func = self.func;
        for (i, &v) in func.params().iter().enumerate() {
            let first = self.frame.params[i].word;
            match func.ty(v) {
                Type::Scalar(dtype) => {
                    let word = self.word(first);
                    let x = crate::code::scalar_word(&self.s, word, *dtype);
                    self.set(v, Repr::Uniform(x));
                }
                ty => {
                    let mem = crate::code::array(self.ir, self.words, first, ty, layouts[i]);
                    self.mems[v.index()] = Some(mem);
                }
            }
        }
    }

    fn groups(&mut self, begin: Val, end: Val) {
        let (ir, func) = (self.ir, self.func);
        self.size = self.word(frame::LANES);
        if self.rows.axes() > 1 {
            return self.groups_of_rows(begin, end);
        }
        let domain = self.word(frame::DOMAIN);
        if self.plan.flat {
            let (lo, hi) = (ir.mul(begin, self.size), ir.mul(end, self.size));
            self.span = Span { lo, hi: ir.smin(hi, domain), base: ir.c64(0) };
            return self.group_block(func.body, &[], None);
        }
        self.find_slots();
        ir.for_range(begin, end, 1, &[], |ir, number, _| {
            let base = ir.mul(number, self.size);
            let hi = ir.smin(ir.sub(domain, base), self.size);
            self.span = Span { lo: ir.c64(0), hi, base };
            self.number = number;
            // A group without lanes has no effects.
            let there = ir.icmp(crate::llvm::IntCmp::LLVMIntSGT, hi, ir.c64(0));
            let outside = self.env.clone();
            ir.when(there, |_| self.group_block(func.body, &[], None));
            self.env = outside;
            Vec::new()
        });
    }

    fn find_slots(&mut self) {
        let ir = self.ir;
        let slots = ir.offset_const(self.words, 8 * frame::SLOTS as i64);
        self.slots = ir.load(ir.ptr(), slots, 8);
        self.stride = ir.mul_const(ir.smax(self.size, ir.c64(64)), 8);
    }

    /// The place of a group in the grid: numbers count along the last axis first.
    fn coordinates(&self, number: Val) -> [Val; 3] {
        let ir = self.ir;
        let [ny, nz] = [1, 2].map(|axis| self.word(frame::GRID + axis));
        let (z, rest) = (ir.urem(number, nz), ir.udiv(number, nz));
        [ir.udiv(rest, ny), ir.urem(rest, ny), z]
    }

    fn set(&mut self, v: Value, repr: Repr) {
        self.env[v.index()] = repr;
    }

    fn dtype(&self, v: Value) -> DType {
        self.func.ty(v).dtype()
    }

    fn memory(&self, v: Value) -> Mem {
        match &self.mems[v.index()] {
            Some(mem) => mem.clone(),
            None => unreachable!("the verifier sees to it that this is a memory"),
        }
    }

    /// What a value is here. One that all lanes share and another segment computed is read.
    fn repr(&self, v: Value) -> Repr {
        match (self.env[v.index()], self.plan.slot(v)) {
            (Repr::Absent, Some(slot)) if !self.plan.varies(v) => {
                let dtype = self.dtype(v);
                let p = self.slot_address(slot);
                let x = self.ir.load(self.slot_type(dtype, 1), p, slot_align(dtype));
                Repr::Uniform(self.slot_value(x, dtype))
            }
            (Repr::Absent, _) => unreachable!("{v:?} is used where it was not computed"),
            (repr, _) => repr,
        }
    }

    /// The value that all lanes share.
    fn scalar(&self, v: Value) -> Val {
        match self.repr(v) {
            Repr::Uniform(x) => x,
            repr => unreachable!("{v:?} is {repr:?}, not one for all lanes"),
        }
    }

    /// The value in every lane.
    fn vector(&self, v: Value) -> Val {
        self.widen(self.repr(v))
    }

    fn widen(&self, repr: Repr) -> Val {
        let ir = self.ir;
        match repr {
            Repr::Each(x) => x,
            Repr::Uniform(x) => ir.splat(x, self.width),
            Repr::Steps { first, step } => {
                let steps = ir.const_steps(ir.vec(ir.i64(), self.width), 0, step);
                ir.add(ir.splat(first, self.width), steps)
            }
            Repr::Absent => unreachable!("a value is used where it was not computed"),
        }
    }

    fn slot_address(&self, slot: u64) -> Val {
        self.ir.offset(self.slots, self.ir.mul_const(self.stride, slot as i64))
    }

    /// The place of lane `number` in a slot.
    fn slot_element(&self, slot: u64, dtype: DType, number: Val) -> Val {
        let bytes = dtype.carrier().bytes() as i64;
        self.ir.offset(self.slot_address(slot), self.ir.mul_const(number, bytes))
    }

    /// Slots hold carriers unchanged, and bools as bytes.
    fn slot_type(&self, dtype: DType, lanes: u32) -> Ty {
        match dtype.carrier() {
            DType::Bool => self.ir.vec(self.ir.i8(), lanes),
            carrier => self.s.carrier(carrier, lanes),
        }
    }

    fn to_slot(&self, x: Val, dtype: DType) -> Val {
        let ir = self.ir;
        match dtype.carrier() {
            DType::Bool => ir.zext(x, ir.like(ir.ty(x), ir.i8())),
            _ => x,
        }
    }

    fn slot_value(&self, x: Val, dtype: DType) -> Val {
        let ir = self.ir;
        match dtype.carrier() {
            DType::Bool => ir.trunc(x, ir.like(ir.ty(x), ir.i1())),
            _ => x,
        }
    }

    /// Reads the vector's lanes from a slot.
    fn read_slot(&self, slot: u64, dtype: DType) -> Val {
        let p = self.slot_element(slot, dtype, self.lane_number());
        let x = self.ir.load(self.slot_type(dtype, self.width), p, slot_align(dtype));
        self.slot_value(x, dtype)
    }

    /// Writes the vector's lanes that run to a slot.
    fn write_slot(&self, slot: u64, dtype: DType, x: Val) {
        let ir = self.ir;
        let p = self.slot_element(slot, dtype, self.lane_number());
        let x = self.to_slot(x, dtype);
        // This thread alone uses the slot, so the others are written back as they were.
        let x = match self.mask {
            Some(mask) => ir.select(mask, x, ir.load(ir.ty(x), p, slot_align(dtype))),
            None => x,
        };
        ir.store(x, p, slot_align(dtype));
    }

    /// Keeps a value that another segment uses.
    fn keep(&mut self, v: Value) {
        let Some(slot) = self.plan.slot(v) else { return };
        let dtype = self.dtype(v);
        if self.plan.varies(v) {
            self.write_slot(slot, dtype, self.vector(v));
        } else {
            let x = self.to_slot(self.scalar(v), dtype);
            self.ir.store(x, self.slot_address(slot), slot_align(dtype));
        }
    }
}

fn slot_align(dtype: DType) -> u32 {
    dtype.carrier().bytes() as u32
}
