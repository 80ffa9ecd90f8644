//! Tuples as Python has them: `*` in calls and displays, slices and `+`. All of it is settled at
//! compile time; what the tuples hold may be tiles, arrays and functions.

use super::val::{Const, Val};
use super::{Elab, Mode};
use ruff_python_ast::{Expr, ExprSlice, ExprStarred};
use ruff_text_size::Ranged;
use tessera_diag::Code;

impl Elab<'_> {
    /// The values of `(a, *b, c)`; `None` where a starred one was refused.
    pub fn display(&mut self, parts: &[Expr]) -> Option<Vec<Val>> {
        let mut out = Vec::with_capacity(parts.len());
        let mut complete = true;
        for part in parts {
            match part {
                Expr::Starred(s) => match self.starred(s) {
                    Some(items) => out.extend(items),
                    None => complete = false,
                },
                one => out.push(self.expr(one)),
            }
        }
        complete.then_some(out)
    }

    /// The values that `*xs` stands for.
    pub fn starred(&mut self, s: &ExprStarred) -> Option<Vec<Val>> {
        let v = self.expr(&s.value);
        self.loc = self.place(s.range());
        if matches!(v, Val::Tuple(_) | Val::Poison | Val::Const(Const::Str(_)) | Val::View(_)) {
            return self.items_of(&v);
        }
        let what = self.describe(&v);
        self.error_help(
            Code::E_TYPE,
            format!("expected a tuple or a list after `*`, got {what}"),
            "write the value without `*`; only what is known at compile time can be unpacked",
        );
        None
    }

    /// `xs[a:b:c]` of a tuple, with Python's meaning.
    pub fn tuple_slice(&mut self, parts: &[Val], s: &ExprSlice) -> Val {
        let mut bounds = [None; 3];
        for (bound, e) in bounds.iter_mut().zip([&s.lower, &s.upper, &s.step]) {
            let Some(e) = e else { continue };
            let v = self.expr(e);
            self.loc = self.place(e.range());
            *bound = match (&v, v.as_const_int()) {
                (Val::None, _) => continue,
                (_, Some(n)) => Some(n),
                (Val::Poison, _) => return Val::Poison,
                (Val::Open(_), _) if self.mode == Mode::Check => return Val::Poison,
                _ => {
                    let what = self.describe(&v);
                    return self.error_help(
                        Code::E_TYPE,
                        format!("expected a compile-time integer in a slice of a tuple, got {what}"),
                        "how many values a tuple has is known at compile time: use a parameter annotated `int`",
                    );
                }
            };
        }
        let [lower, upper, step] = bounds;
        let (len, step) = (parts.len() as i64, step.unwrap_or(1));
        if step == 0 {
            return self.error_help(
                Code::E_ARGUMENT,
                "expected a step other than 0, got 0",
                "leave it out for a step of 1",
            );
        }
        // As Python clamps them: a negative bound counts from the end.
        let (least, most) = if step > 0 { (0, len) } else { (-1, len - 1) };
        let clamp = |n: i64| (if n < 0 { n.saturating_add(len) } else { n }).clamp(least, most);
        let (first, last) = if step > 0 { (least, most) } else { (most, least) };
        let (mut at, end) = (lower.map_or(first, clamp), upper.map_or(last, clamp));
        let mut out = Vec::new();
        while if step > 0 { at < end } else { at > end } {
            out.push(parts[at as usize].clone());
            at = at.saturating_add(step);
        }
        Val::Tuple(out)
    }
}
