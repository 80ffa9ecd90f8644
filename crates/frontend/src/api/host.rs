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
    Any "static_assert" "(cond, text=None)" Call(static_assert), "An error while the kernel is compiled where a compile-time condition does not hold.";
    Any "static_print" "(*values)" Call(static_print), "Prints values while the kernel is compiled: compile-time values, and the types of others.";
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

fn static_assert(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let text = match args.get("text") {
        Val::Const(Const::Str(s)) => format!(": {s}"),
        _ => String::new(),
    };
    match e.truth(&args.get("cond")) {
        Some(Truth::Known(true) | Truth::Open) => Val::None,
        Some(Truth::Known(false)) => {
            let shown = args.text("cond");
            e.error_help(
                Code::E_ASSERT,
                format!("expected `{shown}` to hold at compile time{text}"),
                "the kernel says that it is not for such values",
            )
        }
        // While checking, what is made of open constants is not known.
        Some(Truth::Run(v)) if e.mode == Mode::Check && e.depends_on_open(v) => Val::None,
        Some(Truth::Run(_)) => e.error_help(
            Code::E_TYPE,
            "expected a condition that is known at compile time",
            "a condition of run time is asserted by `assert cond, text`",
        ),
        None => Val::Poison,
    }
}

fn static_print(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let values = std::mem::take(&mut args.rest);
    // Once for each configuration, not while the kernel is checked.
    if e.mode == Mode::Check {
        return Val::None;
    }
    let shown: Vec<String> = values.iter().map(|g| shown(e, &g.value)).collect();
    e.printed.push(shown.join(" "));
    Val::None
}

/// A value as `static_print` shows it.
fn shown(e: &Elab<'_>, v: &Val) -> String {
    match v {
        Val::None => "None".into(),
        Val::Const(Const::Bool(b)) => if *b { "True" } else { "False" }.into(),
        Val::Const(Const::Int(i)) => i.to_string(),
        Val::Const(Const::Float(x)) => format!("{x:?}"),
        Val::Const(Const::Str(s)) => s.clone(),
        Val::Const(Const::DType(t)) => t.to_string(),
        Val::Dim(d) => d.to_string(),
        Val::Tuple(items) => {
            let items: Vec<String> = items.iter().map(|v| shown(e, v)).collect();
            match &items[..] {
                [one] => format!("({one},)"),
                _ => format!("({})", items.join(", ")),
            }
        }
        Val::Rt(v) => e.ty(*v).to_string(),
        other => e.describe(other),
    }
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
