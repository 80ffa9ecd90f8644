//! The types of all levels. A level admits some of them ([`Level::admits`](crate::Level::admits)).

use crate::DimExpr;
use std::fmt;
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

    pub fn dtype(&self) -> DType {
        match self {
            Type::Scalar(d) | Type::Tile { dtype: d, .. } | Type::Buf { dtype: d, .. } => *d,
            Type::View { elem, .. } | Type::Tensor { elem, .. } => elem.storage,
        }
    }

    /// The extents; none for a scalar.
    pub fn shape(&self) -> &[Dim] {
        match self {
            Type::Scalar(_) => &[],
            Type::Tile { shape, .. } | Type::Buf { shape, .. } => shape,
            Type::View { dims, .. } | Type::Tensor { dims, .. } => dims,
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
        matches!(self, Type::Scalar(_) | Type::Tile { .. })
    }

    pub fn is_memory(&self) -> bool {
        matches!(self, Type::View { .. } | Type::Buf { .. })
    }

    /// The same value type with another dtype.
    pub fn with_dtype(&self, dtype: DType) -> Type {
        Type::value(self.shape().to_vec(), dtype)
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
fn sized(f: &mut fmt::Formatter<'_>, word: &str, shape: &[Dim], dtype: DType) -> fmt::Result {
    write!(f, "{word}<")?;
    if shape.iter().all(|d| d.as_static().is_some()) {
        shape.iter().try_for_each(|d| write!(f, "{d}x"))?;
        write!(f, "{dtype}>")
    } else {
        list(f, shape)?;
        write!(f, ", {dtype}>")
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Scalar(d) => write!(f, "{d}"),
            Type::Tile { shape, dtype } => sized(f, "tile", shape, *dtype),
            Type::Buf { shape, dtype } => sized(f, "buf", shape, *dtype),
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
