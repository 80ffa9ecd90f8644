//! The generated code of one kernel beside its instructions: its scratch memory, the sites where it
//! can stop, and what it prints; and the context that it shares with the launch.

use crate::frame;
use crate::llvm::{IntCmp, Ir, Symbol, Val};
use crate::memory::Mem;
use crate::scalar::Scalars;
use tessera_diag::{Code as ErrorCode, Diagnostic, Loc};
use tessera_ir::{Attr, OpId, Type};
use tessera_numerics::DType;
use tessera_tile::ops::host::pieces;
use tessera_tile::{KernelKind, TileFunc, kind_of};

/// A place where a kernel may stop, and what is said then.
#[derive(Clone, Debug)]
pub struct Site {
    pub what: Stop,
    pub loc: Loc,
}

#[derive(Clone, Debug)]
pub enum Stop {
    Assertion(String),
    LoopStep,
    /// Lanes that do not all come to a barrier or a group operation.
    Divergent(&'static str),
    /// The host requests a stop.
    Interrupted,
}

/// What an op `print` shows.
#[derive(Clone, Debug)]
pub struct Printing {
    pub pieces: Vec<String>,
    pub shapes: Vec<Vec<usize>>,
    /// Carriers of the values.
    pub dtypes: Vec<DType>,
}

#[derive(Default)]
pub struct Code {
    used: u64,
    most: u64,
    pub sites: Vec<Site>,
    pub prints: Vec<Printing>,
    /// 8-byte places that each lane of a group has in memory, across barriers.
    pub slots: u64,
    /// Some stores go past the caches: they must be done before the kernel is.
    pub streams: bool,
    /// The kernel divides its work itself: it is run in parts, not in groups.
    pub parts: bool,
    /// Facts for `.explain()`, as they were chosen.
    pub notes: Vec<(&'static str, String)>,
}

/// Padding after the scratch memory: vectors may read past the end of a tile.
const SLACK: u64 = 512;

impl Code {
    /// Room in the scratch memory; gives its offset.
    pub fn reserve(&mut self, bytes: u64) -> u64 {
        let at = self.used;
        self.used += bytes.next_multiple_of(64).max(64);
        self.most = self.most.max(self.used);
        at
    }

    pub fn mark(&self) -> u64 {
        self.used
    }

    /// Gives back what was reserved since the mark.
    pub fn release(&mut self, mark: u64) {
        self.used = mark;
    }

    pub fn scratch_bytes(&self) -> u64 {
        self.most + SLACK
    }

    /// The number that the code returns from there; 0 is the good end.
    pub fn site(&mut self, site: Site) -> i64 {
        self.sites.push(site);
        self.sites.len() as i64
    }

    pub fn printing(&mut self, func: &TileFunc, id: OpId) -> i64 {
        let op = &func.ops[id];
        let text = op.attr("text").and_then(Attr::as_str).and_then(pieces).unwrap_or_default();
        let extents = |ty: &Type| -> Vec<usize> {
            ty.static_shape().unwrap_or_default().into_iter().map(|d| d as usize).collect()
        };
        self.prints.push(Printing {
            pieces: text,
            shapes: op.operands.iter().map(|&v| extents(func.ty(v))).collect(),
            dtypes: op.operands.iter().map(|&v| func.ty(v).dtype().carrier()).collect(),
        });
        self.prints.len() as i64 - 1
    }
}

impl Site {
    pub fn assertion(func: &TileFunc, id: OpId) -> Self {
        let op = &func.ops[id];
        let text = op.attr("text").and_then(Attr::as_str).unwrap_or_default().to_string();
        Self { what: Stop::Assertion(text), loc: op.loc.clone() }
    }

    pub fn loop_step(func: &TileFunc, id: OpId) -> Self {
        Self { what: Stop::LoopStep, loc: func.ops[id].loc.clone() }
    }

    pub fn divergent(func: &TileFunc, id: OpId, what: &'static str) -> Self {
        Self { what: Stop::Divergent(what), loc: func.ops[id].loc.clone() }
    }

    pub fn interrupted() -> Self {
        Self { what: Stop::Interrupted, loc: Loc::unknown() }
    }

    pub fn is_interruption(&self) -> bool {
        matches!(self.what, Stop::Interrupted)
    }

    /// The error of a launch that stopped here; `place` names the group and lane.
    pub fn diagnostic(&self, place: &str) -> Diagnostic {
        let error = |code, why: String| Diagnostic::new(code, why).at(self.loc.clone());
        match &self.what {
            Stop::Assertion(text) => {
                let why = match text.as_str() {
                    "" => "expected the assertion to hold, got a condition that is false",
                    text => text,
                };
                error(ErrorCode::E_ASSERT, why.to_string()).note(format!("in {place}"))
            }
            Stop::LoopStep => error(
                ErrorCode::E_ARGUMENT,
                "expected a loop step above 0, got one that is not".into(),
            )
            .note(format!("in {place}")),
            Stop::Divergent(what) => error(
                ErrorCode::E_DIVERGENT_BARRIER,
                format!("{what} was reached by some lanes of the group and not by others"),
            ),
            Stop::Interrupted => tessera_target::interruption(),
        }
    }
}

/// What generated code and its launch share while it runs; the frame's first word points here.
#[repr(C)]
pub struct Context<'a> {
    /// The group that runs, when something is said about it.
    pub group: [i64; 3],
    pub lane: i64,
    /// Iterations of loops until the host is polled again.
    pub countdown: i64,
    /// Whether no other thread changes what this launch does: see `alone.rs`.
    pub alone: i64,
    pub stop: Option<&'a dyn Fn() -> bool>,
    pub shared: &'a Shared<'a>,
}

/// The same for all threads of a launch.
pub struct Shared<'a> {
    pub name: &'a str,
    pub kind: KernelKind,
    pub grid: [i64; 3],
    pub prints: &'a [Printing],
}

impl Shared<'_> {
    /// `k[1, 2]`: the kernel and the group's coordinates, without trailing axes of extent 1.
    pub fn place(&self, group: [i64; 3], lane: i64) -> String {
        let last = self.grid.iter().rposition(|&g| g > 1).unwrap_or(0);
        let at: Vec<_> = group[..=last].iter().map(i64::to_string).collect();
        let here = format!("{}[{}]", self.name, at.join(", "));
        match self.kind {
            KernelKind::Lane => format!("{here} lane {lane}"),
            KernelKind::Group => here,
        }
    }
}

/// How many iterations of loops pass between two polls of the host.
const ROUNDS: i64 = 1 << 12;
const GROUP_OFFSET: i64 = 0;
const LANE_OFFSET: i64 = 24;
const COUNTDOWN_OFFSET: i64 = 32;
const ALONE_OFFSET: i64 = 40;

fn context(ir: &Ir, words: Val) -> Val {
    ir.load(ir.ptr(), ir.offset_const(words, 8 * frame::CONTEXT as i64), 8)
}

/// Writes down which group something is about to be said of.
pub fn note_group(ir: &Ir, words: Val, ids: [Val; 3]) {
    let context = context(ir, words);
    for (i, id) in ids.into_iter().enumerate() {
        ir.store(id, ir.offset_const(context, GROUP_OFFSET + 8 * i as i64), 8);
    }
}

/// The same for a lane.
pub fn note_lane(ir: &Ir, words: Val, lane: Val) {
    ir.store(lane, ir.offset_const(context(ir, words), LANE_OFFSET), 8);
}

/// Whether the launch is alone with its atomics.
pub fn alone(ir: &Ir, words: Val) -> Val {
    let flag = ir.load(ir.i64(), ir.offset_const(context(ir, words), ALONE_OFFSET), 8);
    ir.icmp(IntCmp::LLVMIntNE, flag, ir.c64(0))
}

/// Whether the host wants the kernel to stop. It is polled once in many iterations; this counts
/// `rounds` of them.
pub fn poll(ir: &Ir, words: Val, rounds: i64) -> Val {
    let context = context(ir, words);
    let place = ir.offset_const(context, COUNTDOWN_OFFSET);
    let left = ir.add_const(ir.load(ir.i64(), place, 8), -rounds);
    ir.store(left, place, 8);
    let due = ir.icmp(IntCmp::LLVMIntSLT, left, ir.c64(0));
    let stop = ir.if_then(due, ir.c64(0), |ir| {
        let ask = ir.external("tessera_poll", ir.i64(), &[ir.ptr()]);
        ir.call(ask, &[context])
    });
    ir.icmp(IntCmp::LLVMIntNE, stop, ir.c64(0))
}

/// Shows values, whose addresses are in `list`.
pub fn print(ir: &Ir, words: Val, which: i64, list: Val) {
    let show = ir.external("tessera_print", ir.void(), &[ir.ptr(), ir.i64(), ir.ptr()]);
    ir.call(show, &[context(ir, words), ir.c64(which), list]);
}

/// Our functions that every kernel may call.
pub fn symbols() -> Vec<Symbol> {
    let mut all = crate::scalar::symbols();
    all.push(Symbol { name: "tessera_poll", address: tessera_poll as *const () as usize });
    all.push(Symbol { name: "tessera_print", address: tessera_print as *const () as usize });
    all
}

extern "C" fn tessera_poll(context: *mut Context<'_>) -> i64 {
    // SAFETY: generated code hands over the context that its launch put into the frame, which this
    // thread alone uses.
    let context = unsafe { &mut *context };
    context.countdown = ROUNDS;
    context.stop.is_some_and(|stop| stop()).into()
}

extern "C" fn tessera_print(context: *const Context<'_>, which: i64, list: *const *const u8) {
    // SAFETY: as above; the list holds an address for each of the op's values.
    let context = unsafe { &*context };
    let Some(print) = context.shared.prints.get(which as usize) else { return };
    let mut line = context.shared.place(context.group, context.lane);
    line.push_str(": ");
    for (n, piece) in print.pieces.iter().enumerate() {
        line.push_str(piece);
        if let (Some(shape), Some(&dtype)) = (print.shapes.get(n), print.dtypes.get(n)) {
            let bytes = shape.iter().product::<usize>() * dtype.bytes();
            // SAFETY: a tile of this shape in its carrier is there.
            let data = unsafe { std::slice::from_raw_parts(*list.add(n), bytes) };
            line.push_str(&tessera_target::show_elements(dtype, data, shape));
        }
    }
    tessera_target::tell(&line);
}

/// A parameter's word as a scalar in its carrier.
pub fn scalar_word(s: &Scalars<'_>, word: Val, dtype: DType) -> Val {
    let ir = s.ir;
    match dtype.carrier() {
        DType::Bool => ir.trunc(word, ir.i1()),
        DType::F32 => ir.bitcast(ir.trunc(word, ir.i32()), ir.f32()),
        DType::F64 => ir.bitcast(word, ir.f64()),
        DType::I64 | DType::U64 => word,
        _ => ir.trunc(word, ir.i32()),
    }
}

/// An array parameter: what is known of its sizes and strides is constant, the rest is read.
pub fn array(ir: &Ir, words: Val, first: usize, ty: &Type, layout: u32) -> Mem {
    let word = |place: usize| ir.load(ir.i64(), ir.offset_const(words, 8 * place as i64), 8);
    let rank = ty.rank();
    let bytes = ty.dtype().bytes() as i64;
    let base = ir.load(ir.ptr(), ir.offset_const(words, 8 * first as i64), 8);
    let unit: Vec<bool> = (0..rank).map(|axis| layout & 1 << axis != 0).collect();
    let dim = |axis: usize| match ty.shape()[axis].as_static() {
        Some(d) => ir.c64(d),
        None => word(first + 1 + axis),
    };
    // Only the innermost such axis: a longer axis of one position may have any stride.
    let stride = |axis: usize| match unit[axis] && axis + 1 == rank {
        true => ir.c64(bytes),
        false => word(first + 1 + rank + axis),
    };
    Mem {
        base,
        dims: (0..rank).map(dim).collect(),
        strides: (0..rank).map(stride).collect(),
        unit,
        dtype: ty.dtype(),
        stream: layout & crate::memory::STREAM != 0,
    }
}

/// Elements of one tile or buffer: far above any kernel's, far below what memory holds.
const MAX_ELEMENTS: i64 = 1 << 28;

/// Whether every op of the function is one that code can be generated for.
pub fn supported(func: &TileFunc) -> Result<(), tessera_diag::Diagnostics> {
    use tessera_numerics::Rounding;
    use tessera_tile::TileOp;
    let mut errors = tessera_diag::Diagnostics::new();
    let lane = kind_of(func) == Some(KernelKind::Lane);
    for id in func.walk() {
        let op = &func.ops[id];
        for &v in &op.results {
            let dims: Vec<i64> = func.ty(v).static_shape().unwrap_or_default();
            let size = dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d));
            if size.is_none_or(|n| n > MAX_ELEMENTS) {
                let dims: Vec<_> = dims.iter().map(i64::to_string).collect();
                let why = format!(
                    "expected a tile of at most {MAX_ELEMENTS} elements, got shape ({})",
                    dims.join(", ")
                );
                errors.push(Diagnostic::new(ErrorCode::E_TILE_LOWERING, why).at(op.loc.clone()));
            }
        }
        let mut refuse = |why: &str| {
            errors.push(Diagnostic::new(ErrorCode::E_UNSUPPORTED, why).at(op.loc.clone()));
        };
        match op.code {
            TileOp::Origin => refuse(
                "an implicit tile origin was left in the program: `tile-normalise` replaces it by a \
                 grid coordinate or a loop",
            ),
            TileOp::GroupReduce
            | TileOp::GroupScan
            | TileOp::GroupBroadcast
            | TileOp::GroupShuffle
                if !lane =>
            {
                refuse("a group operation stands in a kernel without lanes");
            }
            _ => {}
        }
        let by_chance = |r: Rounding| r == Rounding::Stochastic;
        let cast = op.attr("round").and_then(Attr::as_word).and_then(Rounding::from_name);
        let folds = matches!(op.code, TileOp::Accumulate | TileOp::Atomic);
        let memory = folds.then(|| func.ty(op.operands[0])).and_then(|ty| match ty {
            Type::View { elem, .. } => Some(elem.rounding()),
            _ => None,
        });
        if cast.is_some_and(by_chance) || memory.is_some_and(by_chance) {
            refuse("stochastic rounding is not supported yet: the op has no seed to draw from");
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}
