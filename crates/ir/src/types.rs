//! The types of all levels. A level admits some of them ([`Level::admits`](crate::Level::admits)).

use crate::DimExpr;
use std::fmt;
use std::sync::Arc;
use tessera_layout::{Layout, Shared};
use tessera_numerics::{DType, NumType};

/// One extent. Tile shapes of a specialised function are all `Static`; a view keeps the symbols
/// of its run-time dims; `Any` stands where a function is checked before its sizes are known.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Dim {
    Static(i64),
    Expr(DimExpr),
    Any,
}

impl Dim {
    pub fn as_static(&self) -> Option<i64> {
        match self {
            Dim::Static(v) => Some(*v),
            Dim::Expr(_) | Dim::Any => None,
        }
    }

    pub fn is_one(&self) -> bool {
        *self == Dim::Static(1)
    }

    /// Whether the two can be the same extent: unknown extents agree with everything.
    pub fn may_equal(&self, other: &Dim) -> bool {
        match (self, other) {
            (Dim::Static(a), Dim::Static(b)) => a == b,
            _ => true,
        }
    }
}

impl From<i64> for Dim {
    fn from(v: i64) -> Self {
        Dim::Static(v)
    }
}

impl From<DimExpr> for Dim {
    fn from(e: DimExpr) -> Self {
        match e {
            DimExpr::Const(v) => Dim::Static(v),
            e => Dim::Expr(e),
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Static(v) => write!(f, "{v}"),
            Dim::Expr(e) => write!(f, "{e}"),
            Dim::Any => f.write_str("?"),
        }
    }
}

pub type Shape = Vec<Dim>;

/// What a kernel may do with a parameter (LANGUAGE 5).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Privilege {
    Read,
    Write,
    ReadWrite,
    ReduceSum,
    ReduceMax,
    ReduceMin,
    ReduceProd,
}

impl Privilege {
    pub const ALL: [Privilege; 7] = [
        Privilege::Read,
        Privilege::Write,
        Privilege::ReadWrite,
        Privilege::ReduceSum,
        Privilege::ReduceMax,
        Privilege::ReduceMin,
        Privilege::ReduceProd,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Privilege::Read => "read",
            Privilege::Write => "write",
            Privilege::ReadWrite => "read_write",
            Privilege::ReduceSum => "reduce_sum",
            Privilege::ReduceMax => "reduce_max",
            Privilege::ReduceMin => "reduce_min",
            Privilege::ReduceProd => "reduce_prod",
        }
    }

    pub fn parse(text: &str) -> Option<Privilege> {
        match text {
            "update" => Some(Privilege::ReadWrite),
            "reduce" => Some(Privilege::ReduceSum),
            _ => Privilege::ALL.into_iter().find(|p| p.name() == text),
        }
    }

    pub fn reads(self) -> bool {
        self != Privilege::Write
    }

    pub fn writes(self) -> bool {
        self != Privilege::Read
    }

    pub fn reduces(self) -> bool {
        !matches!(self, Privilege::Read | Privilege::Write | Privilege::ReadWrite)
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Type {
    /// One number.
    Scalar(DType),
    /// A value of several numbers, held by a group.
    Tile { shape: Shape, dtype: DType },
    /// A parameter in global memory.
    View { dims: Shape, elem: NumType, privilege: Privilege },
    /// Memory that a group shares.
    Buf { shape: Shape, dtype: DType },
    /// A whole array, at graph level.
    Tensor { dims: Shape, elem: NumType },
    /// A distributed tile: the layout maps elements to registers, lanes, warps and blocks.
    Frag { shape: Shape, dtype: DType, layout: Arc<Layout> },
    /// Shared memory of a block, with a layout of its elements.
    Smem { shape: Shape, dtype: DType, layout: Arc<Shared> },
    /// A software pipeline: stages of shared memory that are filled and released in turn.
    Pipeline { stages: u32, fields: Vec<Field> },
    /// One stage of a pipeline for one iteration, owned by its producer or its consumer.
    Stage { fields: Vec<Field> },
    /// An accumulator with asynchronous MMAs in flight. Used exactly once.
    Pending(Box<Type>),
    /// An order barrier (CUTLASS `OrderedSequenceBarrier`): roles take turns in a fixed order.
    OrderBarrier,
    /// A point in the work of a queue (`cudaEvent_t`), which other queues may wait for.
    Event,
}

/// One of the tiles that each stage of a pipeline holds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Field {
    pub name: String,
    pub shape: Shape,
    pub dtype: DType,
    pub layout: Arc<Shared>,
}

impl Field {
    /// The field as memory of its own.
    pub fn as_smem(&self) -> Type {
        Type::Smem { shape: self.shape.clone(), dtype: self.dtype, layout: self.layout.clone() }
    }
}

impl Type {
    /// Indices, ids and loop variables.
    pub const INDEX: Type = Type::Scalar(DType::I64);
    pub const BOOL: Type = Type::Scalar(DType::Bool);

    pub fn tile(shape: &[i64], dtype: DType) -> Type {
        Type::Tile { shape: shape.iter().map(|&d| Dim::Static(d)).collect(), dtype }
    }

    /// A tile of this shape, or a scalar for rank 0.
    pub fn value(shape: Shape, dtype: DType) -> Type {
        if shape.is_empty() { Type::Scalar(dtype) } else { Type::Tile { shape, dtype } }
    }

    /// A tile of this shape and layout.
    pub fn frag(shape: &[i64], dtype: DType, layout: impl Into<Arc<Layout>>) -> Type {
        let shape = shape.iter().map(|&d| Dim::Static(d)).collect();
        Type::Frag { shape, dtype, layout: layout.into() }
    }

    pub fn smem(shape: &[i64], dtype: DType, layout: impl Into<Arc<Shared>>) -> Type {
        let shape = shape.iter().map(|&d| Dim::Static(d)).collect();
        Type::Smem { shape, dtype, layout: layout.into() }
    }

    pub fn pending(tile: Type) -> Type {
        Type::Pending(Box::new(tile))
    }

    /// The number type of the elements. Types without one (a pipeline, a stage) count as bytes.
    pub fn dtype(&self) -> DType {
        match self {
            Type::Scalar(d)
            | Type::Tile { dtype: d, .. }
            | Type::Buf { dtype: d, .. }
            | Type::Frag { dtype: d, .. }
            | Type::Smem { dtype: d, .. } => *d,
            Type::View { elem, .. } | Type::Tensor { elem, .. } => elem.storage,
            Type::Pending(tile) => tile.dtype(),
            Type::Pipeline { .. } | Type::Stage { .. } | Type::OrderBarrier | Type::Event => {
                DType::U8
            }
        }
    }

    /// The extents; none for a scalar, or what is no array.
    pub fn shape(&self) -> &[Dim] {
        match self {
            Type::Scalar(_)
            | Type::Pipeline { .. }
            | Type::Stage { .. }
            | Type::OrderBarrier
            | Type::Event => &[],
            Type::Tile { shape, .. }
            | Type::Buf { shape, .. }
            | Type::Frag { shape, .. }
            | Type::Smem { shape, .. } => shape,
            Type::View { dims, .. } | Type::Tensor { dims, .. } => dims,
            Type::Pending(tile) => tile.shape(),
        }
    }

    /// The extents as integers, where all are known.
    pub fn static_shape(&self) -> Option<Vec<i64>> {
        self.shape().iter().map(Dim::as_static).collect()
    }

    pub fn rank(&self) -> usize {
        self.shape().len()
    }

    /// A scalar or a tile.
    pub fn is_value(&self) -> bool {
        matches!(self, Type::Scalar(_)) || self.is_tile()
    }

    /// A tile, with or without a layout.
    pub fn is_tile(&self) -> bool {
        matches!(self, Type::Tile { .. } | Type::Frag { .. })
    }

    pub fn is_memory(&self) -> bool {
        matches!(self, Type::View { .. } | Type::Buf { .. } | Type::Smem { .. })
    }

    /// The same value type with another dtype; a layout stays.
    pub fn with_dtype(&self, dtype: DType) -> Type {
        match self {
            Type::Frag { shape, layout, .. } => {
                Type::Frag { shape: shape.clone(), dtype, layout: layout.clone() }
            }
            _ => Type::value(self.shape().to_vec(), dtype),
        }
    }

    /// Where the elements of a tile are, if the type says so.
    pub fn layout(&self) -> Option<&Arc<Layout>> {
        match self {
            Type::Frag { layout, .. } => Some(layout),
            Type::Pending(tile) => tile.layout(),
            _ => None,
        }
    }

    /// The tile with this layout; a scalar has none and stays.
    pub fn with_layout(&self, layout: impl Into<Arc<Layout>>) -> Type {
        match self.shape() {
            [] => self.clone(),
            shape => {
                let layout = layout.into();
                Type::Frag { shape: shape.to_vec(), dtype: self.dtype(), layout }
            }
        }
    }

    /// The same value without a layout.
    pub fn without_layout(&self) -> Type {
        match self {
            Type::Frag { shape, dtype, .. } => Type::Tile { shape: shape.clone(), dtype: *dtype },
            ty => ty.clone(),
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, dims: &[Dim]) -> fmt::Result {
    f.write_str("[")?;
    for (i, d) in dims.iter().enumerate() {
        write!(f, "{}{d}", if i == 0 { "" } else { ", " })?;
    }
    f.write_str("]")
}

/// `64x32xbf16` where every extent is known, else `[64, D], bf16`.
fn sized(f: &mut fmt::Formatter<'_>, shape: &[Dim], dtype: DType) -> fmt::Result {
    if shape.iter().all(|d| d.as_static().is_some()) {
        shape.iter().try_for_each(|d| write!(f, "{d}x"))?;
        write!(f, "{dtype}")
    } else {
        list(f, shape)?;
        write!(f, ", {dtype}")
    }
}

fn fields(f: &mut fmt::Formatter<'_>, fields: &[Field]) -> fmt::Result {
    for (i, field) in fields.iter().enumerate() {
        write!(f, "{}{}: ", if i == 0 { "" } else { ", " }, field.name)?;
        sized(f, &field.shape, field.dtype)?;
        write!(f, " #{}", field.layout)?;
    }
    Ok(())
}

/// `word<64x32xbf16, #[…]>`, the last part where there is a layout.
fn array(
    f: &mut fmt::Formatter<'_>,
    word: &str,
    (shape, dtype): (&[Dim], DType),
    layout: Option<&dyn fmt::Display>,
) -> fmt::Result {
    write!(f, "{word}<")?;
    sized(f, shape, dtype)?;
    if let Some(layout) = layout {
        write!(f, ", #{layout}")?;
    }
    f.write_str(">")
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Scalar(d) => write!(f, "{d}"),
            Type::Tile { shape, dtype } => array(f, "tile", (shape, *dtype), None),
            Type::Buf { shape, dtype } => array(f, "buf", (shape, *dtype), None),
            Type::Frag { shape, dtype, layout } => array(f, "tile", (shape, *dtype), Some(layout)),
            Type::Smem { shape, dtype, layout } => array(f, "smem", (shape, *dtype), Some(layout)),
            Type::Pipeline { stages, fields: all } => {
                write!(f, "pipeline<{stages}; ")?;
                fields(f, all)?;
                f.write_str(">")
            }
            Type::Stage { fields: all } => {
                f.write_str("stage<")?;
                fields(f, all)?;
                f.write_str(">")
            }
            Type::Pending(tile) => write!(f, "pending<{tile}>"),
            Type::OrderBarrier => f.write_str("order_barrier"),
            Type::Event => f.write_str("event"),
            Type::View { dims, elem, privilege } => {
                f.write_str("view<")?;
                list(f, dims)?;
                write!(f, ", {elem}, {}>", privilege.name())
            }
            Type::Tensor { dims, elem } => {
                f.write_str("tensor<")?;
                list(f, dims)?;
                write!(f, ", {elem}>")
            }
        }
    }
}
