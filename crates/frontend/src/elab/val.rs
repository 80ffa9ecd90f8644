//! The value of an expression during elaboration: compile-time, run-time or unknown.

use crate::api::ApiRow;
use crate::source::{Capture, FuncSource};
use std::sync::Arc;
use tessera_diag::Loc;
use tessera_ir::{Dim, DimExpr, Value};
use tessera_numerics::{NumType, Rounding};

/// A compile-time value.
#[derive(Clone, Debug, PartialEq)]
pub enum Const {
    Bool(bool),
    /// Exact, as Python's are: its type is decided where it is used with a typed value.
    Int(i128),
    Float(f64),
    Str(String),
    DType(NumType),
}

/// The type of a compile-time value that is not known while a kernel is only checked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum OpenKind {
    Bool,
    Int,
    Float,
    Other,
}

/// How far a block reaches along one axis of memory.
#[derive(Clone, Debug, PartialEq)]
pub enum Reach {
    /// One position; the axis is dropped.
    Point,
    Span(Dim),
    /// Positions from an index tile.
    Gather,
}

/// A place in memory that an index expression names: loaded when used as a value, written when
/// assigned to.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockRef {
    pub mem: Value,
    pub at: Vec<Value>,
    pub reach: Vec<Reach>,
    /// How far apart the positions of each span are.
    pub step: Vec<i64>,
    /// The value has the axes of the memory in reverse: `A.T[…]`.
    pub transposed: bool,
    /// `load(…, inbounds=True)` and `store(…, unique=True)`.
    pub hint: Option<&'static str>,
}

impl BlockRef {
    pub fn new(mem: Value) -> Self {
        let (at, reach, step) = (Vec::new(), Vec::new(), Vec::new());
        Self { mem, at, reach, step, transposed: false, hint: None }
    }

    pub fn push(&mut self, at: Value, reach: Reach, step: i64) {
        self.at.push(at);
        self.reach.push(reach);
        self.step.push(step);
    }

    /// Axes were given in the reverse order of the memory's.
    pub fn reverse(&mut self) {
        self.at.reverse();
        self.reach.reverse();
        self.step.reverse();
        // Index tiles have an order of their own.
        let spans = self.reach.iter().filter(|r| matches!(r, Reach::Span(_))).count();
        self.transposed = spans > 1;
    }

    pub fn is_plain(&self) -> bool {
        !self.transposed && self.step.iter().all(|&s| s == 1)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Val {
    /// The result of something already reported: absorbs whatever touches it, without a word.
    Poison,
    None,
    Const(Const),
    /// An integer made of dimension symbols.
    Dim(DimExpr),
    Open(OpenKind),
    /// A scalar or tile in the function.
    Rt(Value),
    View(Value),
    /// A whole parameter with its axes in reverse.
    ViewT(Value),
    Block(Box<BlockRef>),
    Buf {
        buf: Value,
        transposed: bool,
    },
    /// A private array of a lane: its column in a buffer.
    Local {
        buf: Value,
        own: Value,
    },
    Tuple(Vec<Val>),
    /// How a conversion rounds, to be applied to a dtype with `@`.
    Rounding(Box<RoundingRule>),
    /// A dtype to which values are rounded at random.
    Drawn(Box<Drawn>),
    /// A record parameter: its fields are read, never assigned.
    Record(Arc<Record>),
    Context,
    Namespace(String),
    Api(&'static ApiRow),
    Func(Arc<FuncSource>),
    /// An unbound `tile_*` name.
    Origin(String),
    /// A Python object that means nothing here; the name of its type.
    Opaque(String),
    /// A variable that some path leaves unassigned; where it is assigned on others.
    Unset(Loc),
    /// A variable of a loop's body whose value counts only where the loop was left by `break`.
    Maybe(Value, Loc),
    /// A variable that has two types on two paths, in words: an error where it is read.
    Clash(Box<(String, String)>),
    /// The variable of a finished `for` loop; its value is computed where it is read.
    After(Box<AfterLoop>),
}

/// `ts.round(mode)` and `ts.stochastic_round(seed, at=…)` in the body of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum RoundingRule {
    Mode(Rounding),
    Stochastic { seed: Val, at: Val },
}

/// A dtype with the seed and the counters of its stochastic rounding.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    pub dtype: NumType,
    pub seed: Val,
    pub at: Val,
}

/// A record that a kernel takes as one parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The name of its class.
    pub class: String,
    pub fields: Vec<(String, Val)>,
}

/// What a loop left in its variable: the last position of the range, or what it was before a loop
/// without an iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct AfterLoop {
    pub lo: Value,
    pub hi: Value,
    /// The value after the last iteration.
    pub last: Last,
    /// What the name meant before the loop.
    pub before: Option<Val>,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Last {
    /// The last position of the range with this step: no iteration changed or cut it short.
    Position(Value),
    /// The position of the last iteration, of a loop that counts them: the first number, and the step.
    Scaled(Value, Value),
    /// A result of the loop.
    Carried(Value),
}

impl Val {
    pub fn int(v: i64) -> Val {
        Val::Const(Const::Int(v.into()))
    }

    pub fn as_const_int(&self) -> Option<i64> {
        match self {
            Val::Const(Const::Int(v)) => i64::try_from(*v).ok(),
            Val::Dim(DimExpr::Const(v)) => Some(*v),
            _ => None,
        }
    }

    pub fn from_capture(c: &Capture) -> Val {
        match c {
            Capture::None => Val::None,
            Capture::Bool(v) => Val::Const(Const::Bool(*v)),
            Capture::Int(v) => Val::Const(Const::Int(*v)),
            Capture::Float(v) => Val::Const(Const::Float(*v)),
            Capture::Str(s) => Val::Const(Const::Str(s.clone())),
            Capture::DType(t) => Val::Const(Const::DType(*t)),
            Capture::Tuple(items) => Val::Tuple(items.iter().map(Val::from_capture).collect()),
            Capture::Namespace(n) => Val::Namespace(n.clone()),
            Capture::Builtin(name) if name == "tile.group" => {
                Val::Namespace("tessera.tile.group".into())
            }
            Capture::Builtin(name) => match crate::api::find(name) {
                Some(row) => Val::Api(row),
                None => Val::Opaque(name.clone()),
            },
            Capture::Func(f) => Val::Func(f.clone()),
            // Nothing is known of it, so nothing is said of it.
            Capture::Later => Val::Poison,
            Capture::Table(_) => Val::Opaque("constant table".into()),
            Capture::Opaque(name) => Val::Opaque(name.clone()),
        }
    }
}
