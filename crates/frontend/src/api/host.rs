//! Prints and assertions; and `identity`, which does nothing.

use super::{Args, Handler::*, Rows, rows};
use crate::elab::expr::Truth;
use crate::elab::val::{Const, Val};
use crate::elab::{Elab, Mode};
use tessera_diag::Code;
use tessera_ir::{Attr, OpSpec};
use tessera_tile::TileOp;

pub const ROWS: Rows = rows! {
    Any "tile.print" "(*values)" Call(print), "Prints strings, scalars and tiles on one line, with the group's coordinates; in a lane kernel one line for each lane.";
    Any "tile.assert_" "(cond, text=None)" Call(assert), "Stops the launch with an error here where the condition does not hold. `assert cond, text` is the same.";
    Any "identity" "(x)" Call(identity), "The value itself: the default of a function parameter.";
};

fn print(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let mut text: Vec<String> = Vec::new();
    let mut values = Vec::new();
    for given in std::mem::take(&mut args.rest) {
        let literal = |s: &str| s.replace('{', "{{").replace('}', "}}");
        match &given.value {
            Val::Const(Const::Str(s)) => text.push(literal(s)),
            Val::Const(Const::DType(t)) => text.push(literal(&t.to_string())),
            Val::None => text.push("None".into()),
            v => match e.runtime(v) {
                Some(v) => {
                    text.push("{}".into());
                    values.push(v);
                }
                None => return Val::Poison,
            },
        }
    }
    let spec = OpSpec::new(TileOp::Print, &[]).group("values", &values);
    let _ = e.b().op(spec.attr("text", Attr::Str(text.join(" "))));
    Val::None
}

fn assert(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let (cond, text) = (args.get("cond"), args.get("text"));
    e.assertion(&cond, &text);
    Val::None
}

fn identity(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let _ = e;
    args.get("x")
}

impl Elab<'_> {
    pub fn assertion(&mut self, cond: &Val, text: &Val) {
        let text = match text {
            Val::None => String::new(),
            Val::Const(Const::Str(s)) => s.clone(),
            Val::Poison => return,
            other => {
                let what = self.describe(other);
                self.error_help(
                    Code::E_TYPE,
                    format!("expected a string to tell, got {what}"),
                    "write the text in quotes: assert condition, \"text\"",
                );
                return;
            }
        };
        match self.truth(cond) {
            None | Some(Truth::Known(true) | Truth::Open) => {}
            // At decoration another configuration may still hold it.
            Some(Truth::Known(false)) if self.mode == Mode::Check => {}
            Some(Truth::Known(false)) => {
                let reported = if text.is_empty() {
                    "expected the assertion to hold, got a compile-time condition that is false"
                        .into()
                } else {
                    text
                };
                self.error(Code::E_ASSERT, reported);
            }
            Some(Truth::Run(c)) => {
                let mut spec = OpSpec::new(TileOp::Assert, &[c]);
                if !text.is_empty() {
                    spec = spec.attr("text", Attr::Str(text));
                }
                let _ = self.b().op(spec);
            }
        }
    }
}
