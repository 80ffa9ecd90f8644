//! The declaration of a kernel by the caller, and the results: plain data.

use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::{Diagnostics, SourceFile};
use tessera_ir::Privilege;
use tessera_numerics::{DType, NumType, Scalar, decode};
use tessera_tile::TileFunc;

/// What a free name (or dotted path) of the source stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum Capture {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
    DType(NumType),
    Tuple(Vec<Capture>),
    /// An array whose contents are known.
    Table(Arc<Table>),
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
    /// The defaults of its parameters, which Python evaluated at the definition. A kernel's are in
    /// its `ParamSpec`s.
    pub defaults: BTreeMap<String, Capture>,
}

/// A constant array: a parameter that the launch fills in. Row-major.
#[derive(Clone, PartialEq)]
pub struct Table {
    pub dtype: DType,
    pub dims: Vec<i64>,
    /// The contents, in words so that they are aligned.
    words: Vec<u128>,
    len: usize,
}

impl Table {
    /// More than this is to be passed as an argument.
    pub const MOST_BYTES: usize = 4096;

    pub fn new(dtype: DType, dims: Vec<i64>, bytes: &[u8]) -> Self {
        let mut words = vec![0; bytes.len().div_ceil(16)];
        for (word, piece) in words.iter_mut().zip(bytes.chunks(16)) {
            let mut whole = [0; 16];
            whole[..piece.len()].copy_from_slice(piece);
            *word = u128::from_ne_bytes(whole);
        }
        Self { dtype, dims, words, len: bytes.len() }
    }

    /// Of numbers of one dtype.
    pub fn of(dtype: DType, values: &[Scalar]) -> Self {
        let mut bytes = vec![0; values.len() * dtype.bytes()];
        for (value, place) in values.iter().zip(bytes.chunks_mut(dtype.bytes())) {
            place.copy_from_slice(&value.bits().to_le_bytes()[..dtype.bytes()]);
        }
        Self::new(dtype, vec![values.len() as i64], &bytes)
    }

    pub fn data(&self) -> *const u8 {
        self.words.as_ptr().cast()
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|w| w.to_ne_bytes()).take(self.len).collect()
    }

    /// The element at a position, row by row.
    pub fn get(&self, at: usize) -> Option<Scalar> {
        let size = self.dtype.bytes();
        let bytes = self.bytes();
        let mut whole = [0; 8];
        whole[..size].copy_from_slice(bytes.get(at * size..(at + 1) * size)?);
        Some(decode(self.dtype, u64::from_le_bytes(whole)))
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "table of {} {:?} {:x?}", self.dtype, self.dims, self.words)
    }
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
    /// No annotation: an array or a run-time scalar, as the argument is.
    Any,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ParamSpec {
    /// A field of a record, or an element of a list, has a path: `p.x`, `xs.0`.
    pub name: String,
    pub kind: ParamKind,
    /// Whether a call may give `None`: the parameter is then the compile-time value `None`.
    pub optional: bool,
    pub default: Option<Capture>,
}

impl ParamSpec {
    /// The path of a parameter as Python writes it: `xs.0` is `xs[0]`.
    pub fn shown(&self) -> String {
        shown(&self.name)
    }
}

/// The path of a parameter as Python writes it.
pub fn shown(name: &str) -> String {
    let mut parts = name.split('.');
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let item = part.bytes().all(|b| b.is_ascii_digit());
        out.push_str(&if item { format!("[{part}]") } else { format!(".{part}") });
    }
    out
}

/// The symbol of a number in expressions over dims: the text of IR has words for symbols, without dots.
pub fn symbol(param: &str) -> String {
    param.replace('.', "__")
}

/// The symbol of an axis that no annotation names.
pub fn axis_symbol(param: &str, axis: usize) -> String {
    format!("{}_{axis}", symbol(param))
}

/// What a parameter of the Python function consists of, where it is more than one parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Bundle {
    /// By its place among the parameters.
    Param(usize),
    /// A record that was not given.
    None,
    Record {
        class: String,
        fields: Vec<(String, Bundle)>,
    },
    List(Vec<Bundle>),
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
    /// Records and lists, by the name of the Python function's parameter.
    pub bundles: Vec<(String, Bundle)>,
    pub tunables: Tunables,
    /// `@ts.kernel(lanes=256)` or `lanes=(16, 16)`; empty where it does not say.
    pub lanes: Vec<i64>,
    /// Ops that an elaboration may have.
    pub most_ops: usize,
}

impl KernelDecl {
    /// The lanes of a group.
    pub fn group_lanes(&self) -> Option<i64> {
        (!self.lanes.is_empty()).then(|| self.lanes.iter().product())
    }
}

/// The default limit of ops in a kernel. To compile that many takes about ten seconds.
pub const MOST_OPS: usize = 20_000;

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
    /// Values of `Const` and `Function` parameters, and `None` for each optional one that is not given.
    pub consts: BTreeMap<String, Capture>,
    pub tunables: BTreeMap<String, Capture>,
    /// For parameters whose annotation gives no dtype or no shape.
    pub args: BTreeMap<String, ArgType>,
}

/// A kernel as Tile IR, for one configuration, before any pass.
#[derive(Clone, Debug)]
pub struct Elaborated {
    /// Its parameters are the run-time ones of the kernel, in order, and after them its tables.
    pub func: TileFunc,
    /// For each parameter of `func`, its place among the kernel's parameters; tables are counted on.
    pub params: Vec<usize>,
    /// The constant arrays that it reads.
    pub tables: Vec<Arc<Table>>,
    /// Which of the kernel's parameters it returns, in order.
    pub returns: Vec<usize>,
    /// Warnings and notes.
    pub notes: Diagnostics,
    /// The lines of `ts.static_print`.
    pub printed: Vec<String>,
}
