//! What the caller tells about a kernel, and what it gets back: plain data.

use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::{Diagnostics, SourceFile};
use tessera_ir::Privilege;
use tessera_numerics::{DType, NumType};
use tessera_tile::TileFunc;

/// What a free name (or dotted path) of the source stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum Capture {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    DType(NumType),
    Tuple(Vec<Capture>),
    /// A module or namespace whose members this crate knows: `tessera`, `tessera.tile`, `math`.
    Namespace(String),
    /// A function of the API by the name below `tessera.`: `tile.exp`, `cdiv`.
    Builtin(String),
    /// A `@ts.func`.
    Func(Arc<FuncSource>),
    /// A name without a value so far, which the text around the function binds further down.
    Later,
    /// Anything else; the name of its Python type, for messages.
    Opaque(String),
}

/// The source of one Python function and what its free names stand for, by dotted path
/// (`ts`, `ts.f32`, `cfg.BLOCK`). A path that Python could not resolve is absent.
#[derive(Clone, Debug, PartialEq)]
pub struct FuncSource {
    pub name: String,
    /// The text of the whole `def` with its decorators, as written (it may be indented).
    pub file: Arc<SourceFile>,
    pub captures: BTreeMap<String, Capture>,
    /// The defaults of its parameters, which Python evaluated where the function stands. A kernel's
    /// are in its `ParamSpec`s.
    pub defaults: BTreeMap<String, Capture>,
}

impl FuncSource {
    /// Whether a value that this function or one that it reaches needs is still to come.
    pub fn waits(&self) -> bool {
        self.captures.values().chain(self.defaults.values()).any(Capture::waits)
    }
}

impl Capture {
    fn waits(&self) -> bool {
        match self {
            Capture::Later => true,
            Capture::Tuple(items) => items.iter().any(Capture::waits),
            Capture::Func(f) => f.waits(),
            _ => false,
        }
    }
}

/// How a parameter is annotated.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamKind {
    /// `Tensor[...]`, `Region[...]`, `Out[...]`. `dims` are symbols, integers, `?` or products as
    /// written; `None` where the annotation gives no shape.
    Tensor {
        dims: Option<Vec<String>>,
        elem: Option<NumType>,
        privilege: Option<Privilege>,
        out: bool,
    },
    /// `alpha: ts.f32`: a run-time number.
    Scalar(DType),
    /// `is_causal: bool`: compile-time; the name of the Python type (`bool`, `int`, `float`, `str`).
    Const(String),
    /// `epilogue: ts.Fn`: a `@ts.func` given at specialisation.
    Function,
    /// No annotation: an array or a run-time scalar, told by the argument.
    Any,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ParamSpec {
    pub name: String,
    pub kind: ParamKind,
    pub default: Option<Capture>,
}

/// The tunables of `@ts.kernel.autotune`: each candidate gives every name a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tunables {
    /// In the order they are tried: `itertools.product` in dict order, or the explicit list.
    pub candidates: Vec<BTreeMap<String, Capture>>,
}

/// Everything `@ts.kernel` knows at decoration.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelDecl {
    pub source: Arc<FuncSource>,
    pub params: Vec<ParamSpec>,
    pub tunables: Tunables,
    /// `@ts.kernel(lanes=256)`.
    pub lanes: Option<i64>,
}

/// What is known of an argument whose annotation leaves it open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ArgType {
    Array { elem: NumType, rank: usize },
    Scalar(DType),
}

/// One configuration: everything that is compile-time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Values of dimension symbols, and of products by their text such as `(B * H)`. Those that
    /// reach a tile shape must be here; others may be.
    pub dims: BTreeMap<String, i64>,
    /// Values of `Const` and `Function` parameters.
    pub consts: BTreeMap<String, Capture>,
    pub tunables: BTreeMap<String, Capture>,
    /// For parameters whose annotation gives no dtype or no shape.
    pub args: BTreeMap<String, ArgType>,
}

/// A kernel as Tile IR, for one configuration, before any pass.
#[derive(Clone, Debug)]
pub struct Elaborated {
    /// Its parameters are the run-time ones of the kernel, in order.
    pub func: TileFunc,
    /// For each parameter of `func`, its place among the kernel's parameters.
    pub params: Vec<usize>,
    /// Which of the kernel's parameters it returns, in order.
    pub returns: Vec<usize>,
    /// Warnings and notes.
    pub notes: Diagnostics,
}
