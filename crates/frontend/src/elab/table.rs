//! Constant tables: captured arrays, and tuples of numbers at positions that are not known at compile
//! time. A table is a parameter that the launch fills in, so reads of it are reads of memory like all
//! others; at a position that is known it is the number that stands there.

use super::val::{BlockRef, Const, Reach, Val};
use super::{Elab, Mode};
use crate::source::{Capture, Table};
use ruff_python_ast::Expr;
use ruff_text_size::Ranged;
use std::sync::Arc;
use tessera_diag::Code;
use tessera_ir::{Dim, Privilege, Type, Value};
use tessera_numerics::{DType, NumType, Scalar};
use tessera_tile::KernelKind;

impl Elab<'_> {
    /// What a captured value stands for; `name` is what the source calls it.
    pub fn captured(&mut self, name: &str, value: &Capture) -> Val {
        match value {
            Capture::Table(table) => Val::View(self.table(name, table)),
            Capture::Tuple(items) => {
                Val::Tuple(items.iter().map(|item| self.captured(name, item)).collect())
            }
            other => Val::from_capture(other),
        }
    }

    /// The parameter that holds a table; one for equal ones.
    fn table(&mut self, name: &str, table: &Arc<Table>) -> Value {
        if let Some((_, view)) = self.tables.iter().find(|(known, _)| known == table) {
            return *view;
        }
        let taken = |name: &str| {
            let args = &self.func.blocks[self.func.body].args;
            args.iter().any(|&a| self.func.name_of(a) == Some(name))
        };
        // Messages show it: the name that the source has, unless a parameter has it too.
        let plain = name.rsplit('.').next().unwrap_or(name);
        let others = (2..).map(|n| format!("{plain}_{n}"));
        let own = std::iter::once(plain.to_string()).chain(others).find(|n| !taken(n));
        let ty = Type::View {
            dims: table.dims.iter().map(|&d| Dim::Static(d)).collect(),
            elem: NumType::plain(table.dtype),
            privilege: Privilege::Read,
        };
        let body = self.func.body;
        let view = self.func.add_arg(body, ty, own.as_deref());
        self.tables.push((table.clone(), view));
        view
    }

    /// Whether a subscript names elements of a table, by a position for each axis.
    pub fn is_table(&self, view: Value, items: &[&Expr]) -> bool {
        let whole = |e: &&Expr| {
            matches!(e, Expr::Slice(_) | Expr::EllipsisLiteral(_) | Expr::NoneLiteral(_))
        };
        self.tables.iter().any(|(_, known)| *known == view)
            && items.len() == self.ty(view).rank()
            && !items.iter().any(whole)
    }

    /// Elements of a table: one that is known is a number.
    pub fn table_at(&mut self, view: Value, items: &[&Expr]) -> Val {
        let dims = self.ty(view).shape().to_vec();
        let places: Vec<Val> = items.iter().map(|e| self.expr(e)).collect();
        let known: Option<Vec<i64>> = places.iter().map(Val::as_const_int).collect();
        if let Some(v) = known.and_then(|at| self.table_constant(view, &at)) {
            return v;
        }
        let mut block = BlockRef::new(view);
        for ((place, item), dim) in places.iter().zip(items).zip(&dims) {
            let here = self.place(item.range());
            let outer = std::mem::replace(&mut self.loc, here);
            let found = self.point_value(place, dim);
            self.loc = outer;
            let Some((at, reach)) = found else { return Val::Poison };
            block.push(at, reach, 1);
        }
        self.gathered(block, &dims)
    }

    /// A block of single positions, or of index tiles.
    fn gathered(&mut self, mut block: BlockRef, dims: &[Dim]) -> Val {
        if block.reach.contains(&Reach::Gather) {
            if self.kind == KernelKind::Lane {
                return self.error_help(
                    Code::E_STYLE_MIX,
                    "expected one scalar index for each axis in a lane kernel, got a tile",
                    "a lane kernel handles one element per lane",
                );
            }
            if !self.join_indices(&mut block, dims) {
                return Val::Poison;
            }
        }
        Val::Block(Box::new(block))
    }

    /// The number at a position of a table that is known, counted from the end where it is negative.
    pub fn table_constant(&self, view: Value, at: &[i64]) -> Option<Val> {
        let (table, _) = self.tables.iter().find(|(_, known)| *known == view)?;
        if at.len() != table.dims.len() {
            return None;
        }
        let mut place = 0;
        for (&i, &n) in at.iter().zip(&table.dims) {
            let i = if i < 0 { i + n } else { i };
            if !(0..n).contains(&i) {
                return None;
            }
            place = place * n + i;
        }
        Some(Val::Const(match table.get(usize::try_from(place).ok()?)? {
            Scalar::Bool(v) => Const::Bool(v),
            Scalar::I32(v) => Const::Int(v.into()),
            Scalar::I64(v) => Const::Int(v.into()),
            Scalar::U32(v) => Const::Int(v.into()),
            Scalar::U64(v) => Const::Int(v.into()),
            Scalar::F32(v) => Const::Float(v.into()),
            Scalar::F64(v) => Const::Float(v),
        }))
    }

    /// Why a tuple takes no index that is known at run time only, and what to write.
    fn no_table(&mut self, parts: &[Val]) -> Val {
        let known = "expected an index that is known at compile time";
        if let Some(why) = too_wide(parts) {
            let help = "write the numbers as floats, or keep those that i64 holds and those that u64 holds in tuples of their own";
            return self.error_help(Code::E_TYPE, format!("{known}: {why}"), help);
        }
        let constant =
            |p: &&Val| matches!(p, Val::Const(Const::Str(_) | Const::DType(_)) | Val::Tuple(_));
        if let Some(part) = parts.iter().find(constant) {
            let what = self.describe(part);
            let help = "tuples of numbers alone take an index that is known at run time";
            return self.error_help(Code::E_TYPE, format!("{known}: the tuple holds {what}"), help);
        }
        if parts.iter().all(|p| matches!(p, Val::Const(_))) {
            let most = Table::MOST_BYTES;
            let help = "pass them as an array";
            return self.error_help(
                Code::E_TYPE,
                format!("{known}: a tuple of {} numbers needs more than {most} bytes", parts.len()),
                help,
            );
        }
        self.error_help(
            Code::E_TYPE,
            format!("{known}: the items of the tuple are computed at run time"),
            "choose among them: `ts.tile.where(i == 0, a, b)`, one in another where there are more",
        )
    }

    /// The element of a tuple at a position that is known, or of a tuple of numbers at any; `name` is
    /// what the source calls the tuple.
    pub fn tuple_at(&mut self, name: &str, parts: &[Val], index: Val) -> Val {
        let len = parts.len() as i64;
        match (&index, index.as_const_int()) {
            (Val::Poison, _) => return Val::Poison,
            (Val::Open(_), _) if self.mode == Mode::Check => return Val::Poison,
            (_, Some(i)) if (-len..len).contains(&i) => {
                return parts[i.rem_euclid(len) as usize].clone();
            }
            (Val::Const(_) | Val::Dim(tessera_ir::DimExpr::Const(_)), _) => {
                let what = self.describe(&index);
                return self.error_help(
                    Code::E_OOB,
                    format!("expected an index from {} to {}, got {what}", -len, len - 1),
                    "positions of a tuple are counted from 0, or from its end below 0",
                );
            }
            _ => {}
        }
        let Some(table) = numbers(parts) else {
            return self.no_table(parts);
        };
        let dims = [Dim::Static(len)];
        let Some((at, reach)) = self.point_value(&index, &dims[0]) else { return Val::Poison };
        let mut block = BlockRef::new(self.table(name, &Arc::new(table)));
        block.push(at, reach, 1);
        self.gathered(block, &dims)
    }
}

/// Integers that neither i64 nor u64 holds all of.
fn too_wide(parts: &[Val]) -> Option<String> {
    let int = |p: &Val| match p {
        Val::Const(Const::Int(v)) => Some(*v),
        Val::Const(Const::Bool(v)) => Some(i128::from(*v)),
        _ => None,
    };
    let all: Vec<i128> = parts.iter().map(int).collect::<Option<_>>()?;
    let (least, most) = (*all.iter().min()?, *all.iter().max()?);
    let fits = |v: i128| i64::try_from(v).is_ok() || u64::try_from(v).is_ok();
    match [least, most].into_iter().find(|&v| !fits(v)) {
        Some(v) => Some(format!("no dtype holds {v}")),
        None if least < 0 && i64::try_from(most).is_err() => {
            Some(format!("no dtype holds both {least} and {most}"))
        }
        None => None,
    }
}

/// Numbers of one type: integers are i64 (u64 where they need it), and floats, or both, f32.
fn numbers(parts: &[Val]) -> Option<Table> {
    let all = |is: fn(&Const) -> bool| parts.iter().all(|p| matches!(p, Val::Const(c) if is(c)));
    if parts.is_empty() {
        return None;
    }
    if all(|c| matches!(c, Const::Bool(_))) {
        return table(DType::Bool, parts, |c| match c {
            Const::Bool(v) => Some(Scalar::Bool(*v)),
            _ => None,
        });
    }
    if all(|c| matches!(c, Const::Int(_) | Const::Bool(_))) {
        let int = |c: &Const| match c {
            Const::Int(v) => Some(*v),
            Const::Bool(v) => Some(i128::from(*v)),
            _ => None,
        };
        let signed = |c: &Const| i64::try_from(int(c)?).ok().map(Scalar::I64);
        let unsigned = |c: &Const| u64::try_from(int(c)?).ok().map(Scalar::U64);
        return table(DType::I64, parts, signed).or_else(|| table(DType::U64, parts, unsigned));
    }
    table(DType::F32, parts, |c| match c {
        Const::Int(v) => Some(Scalar::F32(*v as f32)),
        Const::Float(v) => Some(Scalar::F32(*v as f32)),
        Const::Bool(v) => Some(Scalar::F32(f32::from(u8::from(*v)))),
        Const::Str(_) | Const::DType(_) => None,
    })
}

fn table(dtype: DType, parts: &[Val], of: impl Fn(&Const) -> Option<Scalar>) -> Option<Table> {
    let values: Option<Vec<Scalar>> = parts
        .iter()
        .map(|p| match p {
            Val::Const(c) => of(c),
            _ => None,
        })
        .collect();
    let values = values.filter(|v| v.len() * dtype.bytes() <= Table::MOST_BYTES)?;
    Some(Table::of(dtype, &values))
}
