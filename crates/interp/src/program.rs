//! A function prepared to run: attributes decoded, operands as slots of the environment, and for
//! each operand whether this is its last use.

use tessera_diag::Loc;
use tessera_ir::Privilege;
use tessera_numerics::{DType, Kernel, NumType, ReduceOp, Rounding, Scalar, ScalarFn};
use tessera_tile::KernelKind;

#[derive(Debug)]
pub(crate) struct Program {
    pub name: String,
    pub loc: Loc,
    pub kind: KernelKind,
    /// The extents of a group along the axes of its lanes; empty where the launch says.
    pub lanes: Vec<i64>,
    pub params: Vec<Param>,
    /// Block 0 is the body.
    pub blocks: Vec<Block>,
    pub slots: usize,
    /// The number of ops: each has an index, its `site`.
    pub sites: usize,
    /// The symbols that `dim` ops read, in the order of their indices.
    pub dims: Vec<String>,
    /// The constants and how many elements each has (one for each lane in a lane kernel).
    pub consts: Vec<(Scalar, usize)>,
    /// The constants, by number, that stand for variables without a value.
    pub unset: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Param {
    pub slot: usize,
    pub name: String,
    pub kind: ParamKind,
}

#[derive(Debug)]
pub(crate) enum ParamKind {
    Scalar(DType),
    View {
        /// `Some` where the extent is static.
        dims: Vec<Option<i64>>,
        /// The symbol each axis is, where it is just one.
        symbols: Vec<Option<String>>,
        elem: NumType,
        privilege: Privilege,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Block {
    pub args: Vec<usize>,
    pub insts: Vec<Inst>,
    /// The values that the block yields.
    pub yields: Vec<Arg>,
}

#[derive(Copy, Clone, Debug)]
pub(crate) struct Arg {
    pub slot: usize,
    /// Nothing uses the value after this op: the op may take it and write into it.
    pub last: bool,
}

#[derive(Debug)]
pub(crate) struct Inst {
    pub action: Action,
    pub args: Vec<Arg>,
    pub results: Vec<usize>,
    /// Values to drop after the op.
    pub drops: Vec<usize>,
    /// Elements of its results and of what it takes, in a group kernel or for a lane.
    pub elements: usize,
    /// The op's number in the program.
    pub site: usize,
    pub loc: Loc,
}

/// An op with its attributes. `rank` is that of the memory, so operands are found by position.
#[derive(Debug)]
pub(crate) enum Action {
    For {
        body: usize,
    },
    If {
        then: usize,
        otherwise: usize,
    },
    SlowPath {
        body: usize,
    },
    While {
        cond: usize,
        body: usize,
    },
    ProgramId(usize),
    NumPrograms(usize),
    /// Along an axis of the lanes.
    LinearId(usize),
    /// Along an axis, or the number in the group.
    LocalId(Option<usize>),
    GroupSize,
    WarpSize,
    Dim(usize),
    Const(usize),
    Iota {
        start: i32,
        len: usize,
    },
    Select,
    Cast {
        from: DType,
        to: DType,
        round: Rounding,
        saturate: bool,
    },
    Bitcast {
        from: DType,
        to: DType,
    },
    /// Reshape and expand: the elements keep their order.
    Same,
    /// Transpose and broadcast: result element by position in the operand.
    Rearrange {
        shape: Vec<usize>,
        strides: Vec<usize>,
    },
    Load {
        extent: Vec<i64>,
        /// Along each axis; empty where all are 1.
        step: Vec<i64>,
        dtype: DType,
    },
    Store {
        extent: Vec<i64>,
        step: Vec<i64>,
        unique: bool,
    },
    Owned {
        extent: Vec<i64>,
        step: Vec<i64>,
    },
    Gather {
        rank: usize,
        dtype: DType,
    },
    Scatter {
        rank: usize,
        /// The program promises that no position repeats.
        unique: bool,
    },
    Accumulate {
        extent: Vec<i64>,
        step: Vec<i64>,
        fold: Fold,
    },
    BufAlloc {
        dims: Vec<i64>,
        dtype: DType,
    },
    CopyAsync {
        extent: Vec<i64>,
        /// The block of the buffer: 0 for the leading axes with a position, the others whole.
        part: Vec<i64>,
        dtype: DType,
        /// Whether the kernel waits for its copies itself.
        explicit: bool,
        stage: Option<i64>,
    },
    CopyCommit,
    CopyWait(Wait),
    Atomic {
        rank: usize,
        dtype: DType,
        change: Change,
        /// Atomic among all groups.
        wide: bool,
        /// How it orders other accesses.
        acquire: bool,
        release: bool,
    },
    GroupReduce(ReduceOp),
    GroupScan {
        op: ReduceOp,
        exclusive: bool,
    },
    /// Broadcast and shuffle: the value of another lane.
    GroupTake,
    Philox {
        word: usize,
    },
    Print {
        /// The text around the values, and the shapes of the values.
        pieces: Vec<String>,
        shapes: Vec<Vec<usize>>,
    },
    Assert {
        text: String,
    },
    Barrier,
    Mma {
        k: usize,
        n: usize,
    },
    Reduce {
        op: ReduceOp,
        len: usize,
        inner: usize,
    },
    Scan {
        op: ReduceOp,
        len: usize,
        inner: usize,
        exclusive: bool,
    },
    ArgReduce {
        max: bool,
        len: usize,
        inner: usize,
    },
    Ew {
        f: ScalarFn,
        kernel: Kernel,
    },
    /// A part of a tile: result element by position in the operand, from `first` on.
    Slice {
        shape: Vec<usize>,
        first: usize,
        strides: Vec<isize>,
    },
    /// The parts as outer × len × inner, with the `len` of each.
    Concat {
        lens: Vec<usize>,
        inner: usize,
    },
    /// The operand as outer × len × inner, the positions as outer × count × inner.
    Take {
        len: usize,
        count: usize,
        inner: usize,
    },
    ReduceBy {
        combine: usize,
        len: usize,
        inner: usize,
    },
    ScanBy {
        combine: usize,
        len: usize,
        inner: usize,
        reverse: bool,
    },
    Sort {
        len: usize,
        inner: usize,
        descending: bool,
    },
    Histogram {
        bins: usize,
    },
    /// A text of assembly, by its other meaning: a block over one element of each operand.
    Asm {
        otherwise: usize,
        elements: usize,
    },
}

/// What an atomic op does with an element.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Change {
    Exchange,
    CompareExchange,
    Fold(Fold),
}

/// Which copies are waited for.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Wait {
    /// All groups but this many, the newest.
    Groups(usize),
    Stage(i64),
}

/// How a value is folded into memory.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Fold {
    pub f: ScalarFn,
    pub kernel: Kernel,
    /// The dtype the value has and the folding is done in.
    pub compute: DType,
    /// How the result is brought back to the memory's dtype.
    pub round: Rounding,
    pub saturate: bool,
}
