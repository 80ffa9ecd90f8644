//! Parameters that are more than one array: fields of records, arrays without axes, and what is said
//! where an optional parameter is not given.

use super::Elab;
use super::val::{BlockRef, Reach, Record, Val};
use crate::foreign;
use ruff_python_ast::Expr;
use tessera_diag::Code;
use tessera_ir::Value;
use tessera_tile::TileBuild;

impl Elab<'_> {
    pub fn field(&mut self, record: &Record, attr: &str) -> Val {
        if let Some((_, value)) = record.fields.iter().find(|(name, _)| name == attr) {
            return value.clone();
        }
        let names = || record.fields.iter().map(|(name, _)| name.as_str());
        let help = match foreign::closest(attr, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!(
                "its fields are {}; a method is no field: write a @ts.func that takes the record",
                names().collect::<Vec<_>>().join(", ")
            ),
        };
        let message = format!("the record `{}` has no field `{attr}`", record.class);
        self.error_help(Code::E_NAME, message, help)
    }

    /// `s[()]`, or `s[...]`: the one element of an array without axes.
    pub fn point_at(&mut self, view: Value, slice: &Expr) -> Val {
        let whole = matches!(slice, Expr::EllipsisLiteral(_))
            || matches!(slice, Expr::Tuple(t) if t.elts.is_empty());
        if !whole {
            let name = self.func.name_of(view).unwrap_or("s").to_string();
            let name = crate::source::shown(&name);
            return self.error_help(
                Code::E_SHAPE_MISMATCH,
                format!("expected no index for `{name}`, which has no axes"),
                format!("write `{name}[()]`"),
            );
        }
        let mut block = BlockRef::new(view);
        let at = self.b().index(0);
        block.push(at, Reach::Point, 1);
        Val::Block(Box::new(block))
    }

    /// A subscript of `None`: an optional array that this call is without.
    pub fn subscript_of_none(&mut self, base: &Expr) -> Val {
        let Some(name) = crate::names::dotted_path(base) else {
            let help = "a function that returns nothing gives no value";
            return self.error_help(
                Code::E_TYPE,
                "expected an array or a tile before `[`, got None",
                help,
            );
        };
        self.error_help(
            Code::E_TYPE,
            format!("expected an array or a tile before `[`, but `{name}` is None here"),
            format!("an optional array may be left out: read it under `if {name} is not None:`"),
        )
    }
}
