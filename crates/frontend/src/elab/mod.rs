//! Elaboration: from the syntax tree of a kernel and one configuration to Tile IR. It goes on
//! after an error with the likeliest meaning, or with a value that absorbs what touches it, so
//! that all mistakes are reported together and none is reported twice.

mod after_loop;
pub mod arith;
pub mod call;
mod carried;
pub mod choose;
pub mod expr;
pub mod flow;
pub mod index;
pub mod literal;
pub mod loops;
pub mod names;
pub mod packed;
pub mod record;
pub mod stmt;
pub mod table;
pub mod tile_index;
mod tries;
mod tuple_parts;
pub mod tuples;
pub mod unroll;
pub mod val;

use crate::parsed::Parsed;
use crate::source::{Config, FuncSource, KernelDecl, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc, Severity};
use tessera_ir::{Attr, BlockId, Builder, Dim, DimExpr, DimOp, OpSpec, Type, Value};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::{KernelKind, Tile, TileBuild, TileFunc, TileOp};
use val::{Const, OpenKind, Val};

/// Whether sizes may be open.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Mode {
    /// At decoration: what is not known stays open and agrees with everything.
    Check,
    /// For one configuration: every tile shape is known.
    Full,
}

pub type Env = BTreeMap<String, Val>;

/// A function whose body is being elaborated: the kernel, or one inlined into it.
pub struct Frame {
    pub source: Arc<FuncSource>,
    pub parsed: Arc<Parsed>,
    pub env: Env,
    pub call_site: Loc,
    pub name: Arc<str>,
    pub is_kernel: bool,
    /// Where each variable was last assigned, for messages.
    pub assigned: BTreeMap<String, Loc>,
}

/// What is known of an implicit origin.
#[derive(Clone)]
pub struct Origin {
    pub value: Value,
    pub step: i64,
    pub dim: DimExpr,
}

pub struct Elab<'k> {
    pub decl: &'k KernelDecl,
    pub config: &'k Config,
    pub mode: Mode,
    pub kind: KernelKind,
    pub func: TileFunc,
    pub block: BlockId,
    pub loc: Loc,
    pub frames: Vec<Frame>,
    pub diags: Diagnostics,
    /// Dimension symbols (or products, by text) that reached a tile shape.
    pub static_dims: BTreeSet<String>,
    pub symbols: BTreeSet<String>,
    /// Symbols that stand only in products such as `B*H`, and so have no value of their own.
    pub factors: BTreeSet<String>,
    pub origins: BTreeMap<String, Origin>,
    /// Which parameters the kernel returns, once a `return` said so.
    pub returns: Option<Vec<usize>>,
    /// For each kernel parameter that is an array, its value in the function.
    pub views: BTreeMap<String, Value>,
    /// Arrays without axes: in the function they have one axis of one element.
    pub points: BTreeSet<Value>,
    /// Dimension symbols of optional parameters that are not given, each with its parameter.
    pub absent: BTreeMap<String, String>,
    pub loop_depth: usize,
    /// Values that stand for compile-time numbers that are not known while checking.
    pub open_values: BTreeSet<Value>,
    /// Values that were chosen between literals, and are weakly typed as those are.
    pub weak: BTreeMap<Value, literal::Weak>,
    /// Integers that a literal made wider than the values it met.
    pub widened: BTreeSet<Value>,
    /// The variables of loops, not settled yet, that a weak value was computed from.
    pub weak_roots: BTreeMap<Value, BTreeSet<Value>>,
    /// Weakly typed variables of loops that were used with another type.
    pub weak_used: BTreeSet<Value>,
    /// The variables at each `break` of the loop that is being elaborated.
    pub breaks: Vec<Env>,
    /// The number of errors found; `diags` reports each once for all calls of a function.
    pub found: usize,
    /// Functions that were inlined, each with its syntax tree.
    pub parsed: Vec<(Arc<FuncSource>, Arc<Parsed>)>,
    /// The number of inlined calls.
    pub inlined: usize,
    /// Whether the kernel was found to have too many ops: nothing more is elaborated then.
    pub too_large: bool,
    /// Whether the kernel was said to multiply in wider operands than it has.
    pub emulated: bool,
    /// The lines of `ts.static_print`.
    pub printed: Vec<String>,
    /// The constant arrays that were used so far, each with its parameter of the function.
    pub tables: Vec<(Arc<Table>, Value)>,
}

impl Elab<'_> {
    pub fn error(&mut self, code: Code, message: impl Into<String>) -> Val {
        self.report(Diagnostic::new(code, message))
    }

    pub fn error_help(
        &mut self,
        code: Code,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Val {
        self.report(Diagnostic::new(code, message).help(help))
    }

    /// Reports at the current place unless the diagnostic has one.
    pub fn report(&mut self, diagnostic: Diagnostic) -> Val {
        let diagnostic =
            if diagnostic.loc.is_known() { diagnostic } else { diagnostic.at(self.loc.clone()) };
        self.found += usize::from(diagnostic.severity() == Severity::Error);
        self.diags.push(diagnostic);
        Val::Poison
    }

    pub fn b(&mut self) -> Builder<'_, Tile> {
        Builder::at_end(&mut self.func, self.block, self.loc.clone())
    }

    pub fn ty(&self, v: Value) -> &Type {
        self.func.ty(v)
    }

    pub fn frame(&self) -> &Frame {
        self.frames.last().expect("elaboration is always inside a function")
    }

    pub fn env(&mut self) -> &mut Env {
        &mut self.frames.last_mut().expect("elaboration is always inside a function").env
    }

    /// Where a variable was last assigned.
    pub fn assigned_at(&self, name: &str) -> Loc {
        self.frame().assigned.get(name).cloned().unwrap_or(self.loc.clone())
    }

    /// The place of a piece of the current function's source, with the chain of calls it is in.
    pub fn place(&self, range: ruff_text_size::TextRange) -> Loc {
        let frame = self.frame();
        let loc = frame.parsed.loc(range);
        if frame.is_kernel { loc } else { loc.inside(&frame.name, &frame.call_site) }
    }

    /// A dimension expression as an index in the function.
    pub fn materialise_dim(&mut self, e: &DimExpr) -> Value {
        match e {
            DimExpr::Const(v) => self.b().index(*v),
            DimExpr::Sym(name) => self.b().dim(name),
            // A product that a parameter has as one dimension is bound as a whole, not its factors.
            DimExpr::Bin(..) if self.is_product_dim(e) => {
                let spec = OpSpec::new(TileOp::Dim, &[])
                    .attr("name", Attr::from(e.clone()))
                    .result(Type::INDEX);
                self.b().value(spec).expect("the result type is given")
            }
            DimExpr::Bin(op, a, b) => {
                let (x, y) = (self.materialise_dim(a), self.materialise_dim(b));
                let f = match op {
                    DimOp::Add => ScalarFn::Add,
                    DimOp::Sub => ScalarFn::Sub,
                    DimOp::Mul => ScalarFn::Mul,
                    DimOp::FloorDiv => ScalarFn::FloorDiv,
                    DimOp::Mod => ScalarFn::Mod,
                    DimOp::Min => ScalarFn::Minimum,
                    DimOp::Max => ScalarFn::Maximum,
                    DimOp::CeilDiv => {
                        // ceil(x / y) = -floor(-x / y), for any signs.
                        let neg = self.b().ew(ScalarFn::Neg, &[x]);
                        let q = self.b().ew(ScalarFn::FloorDiv, &[neg, y]);
                        return self.b().ew(ScalarFn::Neg, &[q]);
                    }
                };
                self.b().ew(f, &[x, y])
            }
        }
    }

    /// The default dtype of a compile-time number, where no typed operand decides it.
    pub fn default_dtype(c: &Const) -> Option<DType> {
        match c {
            Const::Bool(_) => Some(DType::Bool),
            Const::Int(v) => literal::default_int(*v, *v),
            Const::Float(_) => Some(DType::F32),
            Const::Str(_) | Const::DType(_) => None,
        }
    }

    /// A scalar or tile in the function for anything that is a number; `None` (reported) else.
    pub fn runtime(&mut self, v: &Val) -> Option<Value> {
        match v {
            Val::Rt(value) => Some(self.settled(*value)),
            Val::Dim(e) => Some(self.materialise_dim(e)),
            Val::Const(c) => {
                match Self::default_dtype(c) {
                    Some(dtype) => self.scalar(c, dtype),
                    None if matches!(c, Const::Int(_)) => {
                        let what = self.describe(v);
                        self.error_help(
                        Code::E_TYPE,
                        format!("expected an integer that 64 bits hold, got {what}"),
                        "constant expressions of integers are exact; their result must fit i64 or u64 where it is used",
                    );
                        None
                    }
                    None => {
                        let what = self.describe(v);
                        self.error_help(Code::E_TYPE, format!("expected a number or a tile, got {what}"), "take a slice of an array, index a tuple, or call a function of ts.tile");
                        None
                    }
                }
            }
            Val::Open(kind) => Some(self.open_constant(*kind)),
            Val::Block(block) => self.load_block(block),
            Val::After(_) => match self.read_after(v, true) {
                Val::Rt(v) => Some(v),
                _ => None,
            },
            Val::Buf { buf, transposed } => Some(self.load_buf(*buf, *transposed)),
            Val::Poison => None,
            Val::Origin(name) => {
                self.error_help(
                    Code::E_NAME,
                    format!("`{name}` is not defined here"),
                    format!("a tile origin is used as a slice only: `{name}:{name}+64`"),
                );
                None
            }
            other => {
                let what = self.describe(other);
                let d = Diagnostic::new(
                    Code::E_TYPE,
                    format!("expected a number or a tile, got {what}"),
                );
                self.report(match other {
                    Val::Opaque(name) if name == "ndarray" => {
                        d.help(
                            "pass the array as a parameter; a read-only one of at most 4 KiB is a constant \
                             that can be captured: `x.setflags(write=False)`",
                        )
                    }
                    Val::Opaque(_) => d.help(
                        "make it a parameter: what a kernel captures is numbers, strings, tuples, dtypes and @ts.func functions",
                    ),
                    Val::View(_) => {
                        d.help("index it: `x[i0:i0 + T]` is a slice, `x[offsets]` a gather, `x[:]` all of a static size")
                    }
                    Val::ViewT(_) => d.help("take a slice of it: `x.T[i0:i0 + T, :]`"),
                    Val::Tuple(_) => d.help("take one of its values: `t[0]`"),
                    Val::Record(record) => d.help(match record.fields.first() {
                        Some((field, _)) => format!("take one of its fields: `p.{field}`"),
                        None => "a record without fields has no value".into(),
                    }),
                    Val::None => d.help("a function that returns nothing gives no value"),
                    Val::Api(_) | Val::Func(_) => d.help("call it: add parentheses"),
                    _ => d.help("values are numbers, tiles and slices of arrays"),
                });
                None
            }
        }
    }

    /// Stands for a compile-time number that is not known while checking.
    fn open_constant(&mut self, kind: OpenKind) -> Value {
        let value = match kind {
            OpenKind::Bool => self.b().constant(Type::BOOL, Attr::Bool(false)),
            OpenKind::Float => self.b().constant(Type::Scalar(DType::F32), Attr::Float(0.0)),
            OpenKind::Int | OpenKind::Other => self.b().index(0),
        };
        self.open_values.insert(value);
        value
    }

    /// Whether a value is made of compile-time numbers that are not known while checking.
    pub fn depends_on_open(&self, value: Value) -> bool {
        let (mut list, mut seen) = (vec![value], BTreeSet::new());
        while let Some(v) = list.pop() {
            if self.open_values.contains(&v) {
                return true;
            }
            if seen.insert(v) {
                list.extend(self.func.def(v).into_iter().flat_map(|op| &op.operands));
            }
        }
        false
    }

    /// Whether the kernel has more ops than it may have, which is reported once.
    pub fn is_too_large(&mut self) -> bool {
        let most = self.decl.most_ops;
        if !self.too_large && self.func.ops.len().max(self.inlined) > most {
            self.too_large = true;
            self.error_help(
                Code::E_TOO_LARGE,
                format!("expected at most {most} operations in a kernel, got more up to here"),
                "every call of a function is a copy of its body: write a loop where code repeats, or several kernels; \
                 TESSERA_MAX_OPS says how many operations there may be",
            );
        }
        self.too_large
    }

    /// A 64-bit index.
    pub fn index_value(&mut self, v: &Val) -> Option<Value> {
        let value = self.runtime(v)?;
        let ty = self.ty(value).clone();
        match &ty {
            Type::Scalar(d) if d.is_int() => Some(self.b().cast(value, DType::I64)),
            _ => {
                let what = self.describe(v);
                self.error_help(
                    Code::E_TYPE,
                    format!("expected an integer, got {what}"),
                    "cast it: ts.tile.cast(x, ts.i64); `//` divides integers",
                );
                None
            }
        }
    }

    /// The start of a slice. A number that only u64 holds is beyond the end of every array, and of
    /// its slice every element is.
    pub fn slice_start(&mut self, v: &Val) -> Option<Value> {
        let value = self.runtime(v)?;
        if *self.ty(value) != Type::Scalar(DType::U64) {
            return self.index_value(&Val::Rt(value));
        }
        let far = self.b().constant(Type::Scalar(DType::U64), Attr::Int(i64::MAX / 2));
        let start = self.b().ew(ScalarFn::Minimum, &[value, far]);
        Some(self.b().cast(start, DType::I64))
    }

    /// An extent that must be known at compile time. While checking, symbols stay open and are
    /// remembered as ones a configuration must give.
    pub fn extent(&mut self, v: &Val, what: &str) -> Option<Dim> {
        match v {
            Val::Const(Const::Int(n)) if *n >= 0 && i64::try_from(*n).is_ok() => {
                Some(Dim::Static(*n as i64))
            }
            Val::Const(Const::Int(n)) => {
                self.error_help(
                    Code::E_SHAPE_MISMATCH,
                    format!("expected {what} to be at least 0, got {n}"),
                    "write an extent of at least 0",
                );
                None
            }
            Val::Dim(e) => self.static_dim(e),
            Val::Open(_) => Some(Dim::Any),
            Val::Poison => None,
            other => {
                let shown = self.describe(other);
                self.error_help(
                    Code::E_DYNAMIC_EXTENT,
                    format!("expected {what} to be a compile-time integer, got {shown}"),
                    "use an integer, a tunable from ts.tile.context(), or a dimension of a parameter",
                );
                None
            }
        }
    }

    /// Makes a dimension expression static: its symbols must be in the configuration.
    pub fn static_dim(&mut self, e: &DimExpr) -> Option<Dim> {
        let text = e.to_string();
        if let Some(v) = self.config.dims.get(&text) {
            return Some(Dim::Static(*v));
        }
        let bound = e.substitute(&|s| self.config.dims.get(s).copied());
        if let DimExpr::Const(v) = bound {
            if v >= 0 || self.mode == Mode::Check {
                return Some(Dim::Static(v));
            }
            self.error_help(
                Code::E_SHAPE_MISMATCH,
                format!("expected `{e}` to be at least 0, got {v}"),
                "the extents of a tile are at least 0: check the sizes of the arguments",
            );
            return None;
        }
        if self.is_product_dim(e) {
            self.static_dims.insert(text);
        } else {
            self.static_dims.extend(bound.symbols().iter().map(|s| s.to_string()));
        }
        match self.mode {
            Mode::Check => Some(Dim::Expr(bound)),
            Mode::Full => {
                self.error_help(
                    Code::E_SPECIALIZE,
                    format!("expected a value for `{bound}`, which reaches a tile shape"),
                    format!("give it: `.jit({}=…)`", bound.symbols().first().map_or("D", |s| s)),
                );
                None
            }
        }
    }

    /// Whether the expression is a product that a parameter has as one dimension.
    fn is_product_dim(&self, e: &DimExpr) -> bool {
        matches!(e, DimExpr::Bin(..))
            && !crate::dim_text::is_expression(e)
            && self.views.values().any(|v| self.func.ty(*v).shape().contains(&Dim::Expr(e.clone())))
    }

    /// A value in the user's words, for messages.
    pub fn describe(&self, v: &Val) -> String {
        match v {
            Val::Rounding(_) => "a rounding".into(),
            Val::Local { .. } => "a private array of the lane".into(),
            Val::Drawn(how) => format!("the dtype {} with stochastic rounding", how.dtype.storage),
            Val::Poison => "a value with an error".into(),
            Val::None => "None".into(),
            Val::Const(Const::Bool(b)) => (if *b { "True" } else { "False" }).into(),
            Val::Const(Const::Int(i)) => format!("the integer {i}"),
            Val::Const(Const::Float(f)) => format!("the number {f:?}"),
            Val::Const(Const::Str(s)) => format!("the string {s:?}"),
            Val::Const(Const::DType(t)) => format!("the dtype {t}"),
            Val::Dim(e) => format!("the dimension `{e}`"),
            Val::Open(_) => crate::unknown::DESCRIBED.into(),
            Val::Rt(value) => describe_type(self.func.ty(*value)),
            Val::View(value) => {
                format!("the whole parameter `{}`", self.func.name_of(*value).unwrap_or("?"))
            }
            Val::ViewT(value) => {
                format!("the transposed parameter `{}`", self.func.name_of(*value).unwrap_or("?"))
            }
            Val::Block(b) => format!("a slice of `{}`", self.func.name_of(b.mem).unwrap_or("?")),
            Val::Buf { buf, .. } => {
                let ty = self.func.ty(*buf);
                format!(
                    "a shared buffer of shape {} and dtype {}",
                    show_shape(ty.shape()),
                    ty.dtype()
                )
            }
            Val::Tuple(items) => format!("a tuple of {}", items.len()),
            Val::Record(record) => format!("a record `{}`", record.class),
            Val::Context => "the context".into(),
            Val::Namespace(n) => format!("the module `{n}`"),
            Val::Api(row) => format!("the function `ts.{}`", row.name),
            Val::Func(f) => format!("the function `{}`", f.name),
            Val::Origin(n) => format!("the tile origin `{n}`"),
            Val::Opaque(name) => format!("a Python object of type `{name}`"),
            Val::Unset(_) | Val::Maybe(..) => "a variable without a value".into(),
            Val::Clash(both) => format!("{} or {}", both.0, both.1),
            Val::After(_) => "a scalar of dtype i64".into(),
        }
    }
}

pub fn show_shape(shape: &[Dim]) -> String {
    let dims: Vec<_> = shape.iter().map(Dim::to_string).collect();
    if dims.len() == 1 { format!("({},)", dims[0]) } else { format!("({})", dims.join(", ")) }
}

pub fn describe_type(ty: &Type) -> String {
    match ty {
        Type::Scalar(d) => format!("a scalar of dtype {d}"),
        other => {
            format!("a tile of shape {} and dtype {}", show_shape(other.shape()), other.dtype())
        }
    }
}
