//! The op table: everything about an op that is not its meaning, declared once.

use crate::{Attr, Attrs, Func, Level, OpErrors, OpId, Type};

/// What kind of type an operand may have. Finer rules are the op's own `verify`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum TypeClass {
    Any,
    /// A scalar or a tile.
    Value,
    Scalar,
    Tile,
    Bool,
    /// A 64-bit index.
    Index,
    /// An index, or a tile of integers.
    Indices,
    View,
    Buf,
    /// A view or a buffer.
    Memory,
    Tensor,
    /// Shared memory with a layout.
    Smem,
    /// An operand of an asynchronous MMA: shared memory, or a tile in registers.
    Operand,
    /// The accumulator of an asynchronous MMA: a tile, or a pending one of an earlier MMA.
    Accumulator,
    Pipeline,
    Stage,
    Pending,
    OrderBarrier,
    Event,
}

impl TypeClass {
    pub fn admits(self, ty: &Type) -> bool {
        match self {
            TypeClass::Any => true,
            TypeClass::Value => ty.is_value(),
            TypeClass::Scalar => matches!(ty, Type::Scalar(_)),
            TypeClass::Tile => ty.is_tile(),
            TypeClass::Bool => *ty == Type::BOOL,
            TypeClass::Index => *ty == Type::INDEX,
            TypeClass::Indices => *ty == Type::INDEX || (ty.is_tile() && ty.dtype().is_int()),
            TypeClass::View => matches!(ty, Type::View { .. }),
            TypeClass::Buf => matches!(ty, Type::Buf { .. }),
            TypeClass::Memory => ty.is_memory(),
            TypeClass::Tensor => matches!(ty, Type::Tensor { .. }),
            TypeClass::Smem => matches!(ty, Type::Smem { .. }),
            TypeClass::Operand => ty.is_tile() || matches!(ty, Type::Smem { .. }),
            TypeClass::Accumulator => ty.is_tile() || matches!(ty, Type::Pending(_)),
            TypeClass::Pipeline => matches!(ty, Type::Pipeline { .. }),
            TypeClass::Stage => matches!(ty, Type::Stage { .. }),
            TypeClass::Pending => matches!(ty, Type::Pending(_)),
            TypeClass::OrderBarrier => *ty == Type::OrderBarrier,
            TypeClass::Event => *ty == Type::Event,
        }
    }

    pub fn describe(self) -> &'static str {
        match self {
            TypeClass::Any => "a value",
            TypeClass::Value => "a scalar or a tile",
            TypeClass::Scalar => "a scalar",
            TypeClass::Tile => "a tile",
            TypeClass::Bool => "a bool scalar",
            TypeClass::Index => "an i64 index",
            TypeClass::Indices => "an i64 index or an integer tile",
            TypeClass::View => "a view",
            TypeClass::Buf => "a buffer",
            TypeClass::Memory => "a view or a buffer",
            TypeClass::Tensor => "a tensor",
            TypeClass::Smem => "shared memory",
            TypeClass::Operand => "shared memory or a tile",
            TypeClass::Accumulator => "a tile or a pending tile",
            TypeClass::Pipeline => "a pipeline",
            TypeClass::Stage => "a stage",
            TypeClass::Pending => "a pending tile",
            TypeClass::OrderBarrier => "an order barrier",
            TypeClass::Event => "an event",
        }
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AttrKind {
    Bool,
    Int,
    /// An integer, a float or a bool: the value of a constant.
    Number,
    Str,
    Word,
    Ref,
    Ints,
    Words,
    /// One dimension expression.
    Expr,
    Exprs,
    /// One dimension expression for one axis, or a list for several.
    Extents,
    Dict,
    /// A list of anything; the op's `verify` says more.
    List,
}

impl AttrKind {
    /// Whether an attribute may be of this kind.
    pub fn admits(self, value: &Attr) -> bool {
        match self {
            AttrKind::Bool => value.as_bool().is_some(),
            AttrKind::Int => value.as_int().is_some(),
            AttrKind::Number => matches!(value, Attr::Int(_) | Attr::Float(_) | Attr::Bool(_)),
            AttrKind::Str => value.as_str().is_some(),
            AttrKind::Word => value.as_word().is_some(),
            AttrKind::Ref => value.as_ref_name().is_some(),
            AttrKind::Ints => value.as_ints().is_some(),
            AttrKind::Words => {
                value.as_list().is_some_and(|l| l.iter().all(|a| a.as_word().is_some()))
            }
            AttrKind::Expr => value.as_expr().is_some(),
            AttrKind::Exprs => value.as_exprs().is_some(),
            AttrKind::Extents => value.as_extents().is_some(),
            AttrKind::Dict => value.as_dict().is_some(),
            AttrKind::List => value.as_list().is_some(),
        }
    }

    pub fn describe(self) -> &'static str {
        match self {
            AttrKind::Bool => "true or false",
            AttrKind::Int => "an integer",
            AttrKind::Number => "a number or bool",
            AttrKind::Str => "a string",
            AttrKind::Word => "a word",
            AttrKind::Ref => "a function reference",
            AttrKind::Ints => "a list of integers",
            AttrKind::Words => "a list of words",
            AttrKind::Expr => "a dimension expression",
            AttrKind::Exprs => "a list of dimension expressions",
            AttrKind::Extents => "a dimension expression or a list of them",
            AttrKind::Dict => "a set of attributes",
            AttrKind::List => "a list",
        }
    }
}

pub struct OperandSpec {
    pub name: &'static str,
    pub class: TypeClass,
}

/// A group of this name stands first, in an op without positional operands, and is printed like them.
pub const BARE_GROUP: &str = "values";

/// A named list of operands after the positional ones, printed `name(%a, %b)`, left out when empty.
pub struct GroupSpec {
    pub name: &'static str,
    pub class: TypeClass,
    pub min: usize,
    pub max: usize,
}

pub struct AttrSpec {
    pub name: &'static str,
    pub kind: AttrKind,
    pub required: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RegionSpec {
    pub name: &'static str,
    /// An op may be without it. Such a region is the only one of its row.
    pub optional: bool,
}

/// What an op does beside giving results.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Effects {
    Pure,
    Read,
    Write,
    ReadWrite,
    /// Orders other effects: barriers, waits.
    Sync,
    /// Prints or asserts: never removed, and kept in order.
    Host,
    /// Synchronises ranks: may be removed like a pure op, since all ranks run one program; never moved
    /// into or out of a branch.
    Collective,
    /// Runs its regions; its effects are theirs.
    Control,
    /// Ends a block.
    Terminator,
}

/// What type inference sees of an op that is being built or parsed.
pub struct InferContext<'a> {
    pub operands: &'a [Type],
    /// How many of `operands` are positional; the groups follow.
    pub groups: &'a [(&'static str, Vec<Type>)],
    pub attrs: &'a Attrs,
}

impl InferContext<'_> {
    pub fn group(&self, name: &str) -> &[Type] {
        self.groups.iter().find(|(n, _)| *n == name).map_or(&[], |(_, t)| t)
    }
}

pub type InferFn = fn(&InferContext<'_>) -> Result<Vec<Type>, String>;

/// One row.
pub struct OpInfo<L: Level> {
    /// Frozen: a number is never given to another op.
    pub number: u16,
    pub since: &'static str,
    pub doc: &'static str,
    pub example: &'static str,
    pub operands: &'static [OperandSpec],
    pub groups: &'static [GroupSpec],
    pub attrs: &'static [AttrSpec],
    pub regions: &'static [RegionSpec],
    /// `None`: any number (loops, branches, calls).
    pub results: Option<usize>,
    pub effects: Effects,
    pub infer: Option<InferFn>,
    pub verify: Option<fn(&Func<L>, OpId, &mut OpErrors)>,
}

/// The closed set of a level's ops.
pub trait Opcode<L: Level>:
    Copy + Eq + Ord + std::hash::Hash + std::fmt::Debug + Send + Sync + 'static
{
    /// Without the level's prefix.
    fn mnemonic(self) -> &'static str;
    /// Also takes accepted old or foreign spellings.
    fn from_mnemonic(text: &str) -> Option<Self>;
    fn info(self) -> &'static OpInfo<L>;
    fn all() -> Vec<Self>;
}

/// Declares a level's op table. See `tessera-tile` for a full use.
///
/// A `family` is one row for a whole set of ops over another table (elementwise functions): the
/// variant carries which one, and a function gives its mnemonic and row.
#[macro_export]
macro_rules! define_ops {
    (
        level $level:ty; $(#[$meta:meta])* pub enum $name:ident;
        $(family $fam:ident($famty:ty) { all: $famall:expr, name: $famname:expr, parse: $famparse:expr, info: $faminfo:expr })*
        aliases { $($alias:literal => $aliased:ident),* $(,)? }
        $(
            $(#[doc = $doc:literal])*
            $var:ident = $number:literal $mnemonic:literal since $since:literal {
                operands: [$($oname:ident : $oclass:ident),* $(,)?],
                groups: [$($gname:ident : $gclass:ident [$gmin:expr, $gmax:expr]),* $(,)?],
                attrs: [$($aname:ident : $akind:ident $areq:ident),* $(,)?],
                regions: [$($rname:ident $($ropt:ident)?),* $(,)?],
                results: $results:expr,
                effects: $effects:ident,
                infer: $infer:expr,
                verify: $verify:expr,
                example: $example:literal $(,)?
            }
        )*
    ) => {
        $(#[$meta])*
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($(#[doc = $doc])* $var,)* $($fam($famty),)* }

        impl $crate::Opcode<$level> for $name {
            fn mnemonic(self) -> &'static str {
                match self { $($name::$var => $mnemonic,)* $($name::$fam(f) => ($famname)(f),)* }
            }
            fn from_mnemonic(text: &str) -> Option<Self> {
                match text {
                    $($mnemonic => Some($name::$var),)*
                    $($alias => Some($name::$aliased),)*
                    _ => { $(if let Some(f) = ($famparse)(text) { return Some($name::$fam(f)); })* None }
                }
            }
            fn info(self) -> &'static $crate::OpInfo<$level> {
                match self {
                    $($name::$var => {
                        static INFO: $crate::OpInfo<$level> = $crate::OpInfo {
                            number: $number, since: $since, doc: concat!($($doc, "\n"),*), example: $example,
                            operands: &[$($crate::OperandSpec { name: stringify!($oname), class: $crate::TypeClass::$oclass }),*],
                            groups: &[$($crate::GroupSpec { name: stringify!($gname), class: $crate::TypeClass::$gclass, min: $gmin, max: $gmax }),*],
                            attrs: &[$($crate::AttrSpec { name: stringify!($aname), kind: $crate::AttrKind::$akind, required: $crate::define_ops!(@req $areq) }),*],
                            regions: &[$($crate::RegionSpec {
                                name: stringify!($rname), optional: $crate::define_ops!(@opt $($ropt)?),
                            }),*],
                            results: $results, effects: $crate::Effects::$effects, infer: $infer, verify: $verify,
                        };
                        &INFO
                    })*
                    $($name::$fam(f) => ($faminfo)(f),)*
                }
            }
            fn all() -> Vec<Self> {
                let mut all = vec![$($name::$var),*];
                $(all.extend(($famall).iter().map(|f| $name::$fam(*f)));)*
                all
            }
        }
    };
    (@opt optional) => { true };
    (@opt) => { false };
    (@req required) => { true };
    (@req optional) => { false };
}
