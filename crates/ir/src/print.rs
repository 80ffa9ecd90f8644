//! The printer. Value names come from the user where there are any, made unique by a suffix, so
//! that parsing the text and printing it again gives the same text.

use crate::table::BARE_GROUP;
use crate::{BlockId, Func, IR_VERSION, Level, Module, OpId, Opcode, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use tessera_support::SideTable;

#[derive(Copy, Clone, Debug, Default)]
pub struct PrintOptions {
    /// Appends `loc("file":line:column)` to each op.
    pub locs: bool,
}

struct Printer<'f, L: Level> {
    func: &'f Func<L>,
    names: SideTable<Value, String>,
    /// Each name in use, with the suffix to try next for a value with the same name.
    taken: BTreeMap<String, usize>,
    next: usize,
    options: PrintOptions,
    /// Lines to put under an op: what a verifier found.
    under: &'f dyn Fn(OpId) -> Vec<String>,
    out: String,
}

impl<L: Level> Func<L> {
    pub fn to_text(&self, options: PrintOptions) -> String {
        print_annotated(self, options, &|_| Vec::new())
    }
}

pub(crate) fn print_annotated<L: Level>(
    func: &Func<L>,
    options: PrintOptions,
    under: &dyn Fn(OpId) -> Vec<String>,
) -> String {
    let mut p = Printer {
        func,
        names: SideTable::new(String::new()),
        taken: BTreeMap::new(),
        next: 0,
        options,
        under,
        out: String::new(),
    };
    p.function();
    p.out
}

impl<L: Level> Module<L> {
    pub fn to_text(&self, options: PrintOptions) -> String {
        self.to_text_as(L::NAME, options)
    }

    /// The text with another level name on its `module` line; see `parse_module_as`.
    pub fn to_text_as(&self, level_name: &str, options: PrintOptions) -> String {
        let mut attrs = self.attrs.clone();
        attrs.set("version", crate::Attr::Int(IR_VERSION));
        attrs.arrange(&["version"]);
        let mut out = format!("module @{} : {level_name} {attrs}\n", self.name);
        for func in &self.funcs {
            out.push('\n');
            out.push_str(&func.to_text(options));
        }
        out
    }
}

impl<L: Level> fmt::Display for Func<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(PrintOptions::default()))
    }
}

impl<L: Level> fmt::Display for Module<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(PrintOptions::default()))
    }
}

/// A name the parser reads: what Python allows in one and the grammar does not becomes `_`.
fn readable(hint: &str) -> Cow<'_, str> {
    let good = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    if hint.chars().all(good) {
        return Cow::Borrowed(hint);
    }
    Cow::Owned(hint.chars().map(|c| if good(c) { c } else { '_' }).collect())
}

impl<L: Level> Printer<'_, L> {
    /// Gives a value its printed name at its definition.
    fn define(&mut self, value: Value) -> String {
        // A name of digits is the printer's own numbering read back: it is not kept.
        let hint = self.func.name_of(value).filter(|n| !n.bytes().all(|b| b.is_ascii_digit()));
        let name = match hint {
            Some(hint) => {
                let hint = readable(hint);
                let mut name = hint.to_string();
                let mut n = self.taken.get(&*hint).copied().unwrap_or(1);
                while self.taken.contains_key(&name) {
                    name = format!("{hint}.{n}");
                    n += 1;
                }
                self.taken.insert(name.clone(), 1);
                self.taken.insert(hint.into_owned(), n);
                name
            }
            None => {
                self.next += 1;
                (self.next - 1).to_string()
            }
        };
        self.names.set(value, name.clone());
        name
    }

    fn function(&mut self) {
        let _ = write!(self.out, "func @{}(", self.func.name);
        self.args(self.func.body);
        self.out.push(')');
        if !self.func.attrs.is_empty() {
            let _ = write!(self.out, " {}", self.func.attrs_in_order());
        }
        self.out.push_str(" {\n");
        self.block(self.func.body, 1);
        self.out.push_str("}\n");
    }

    fn args(&mut self, block: BlockId) {
        for (i, &arg) in self.func.blocks[block].args.iter().enumerate() {
            let name = self.define(arg);
            let _ = write!(
                self.out,
                "{}%{name}: {}",
                if i == 0 { "" } else { ", " },
                self.func.ty(arg)
            );
        }
    }

    fn block(&mut self, block: BlockId, depth: usize) {
        for &op in &self.func.blocks[block].ops {
            self.op(op, depth);
        }
    }

    fn list(&mut self, values: &[Value]) {
        for (i, &value) in values.iter().enumerate() {
            self.out.push_str(if i == 0 { "%" } else { ", %" });
            // A use before its definition is an error the verifier reports; the text still shows it.
            match self.names[value].as_str() {
                "" => self.out.push_str(&value.to_string()),
                name => self.out.push_str(name),
            }
        }
    }

    fn op(&mut self, id: OpId, depth: usize) {
        let op = &self.func.ops[id];
        let indent = "  ".repeat(depth);
        self.out.push_str(&indent);
        // Results are named after the regions would be too late for reading order, and region
        // arguments may not capture the names of results: define results first.
        for (i, &result) in op.results.iter().enumerate() {
            let name = self.define(result);
            let _ = write!(self.out, "{}%{name}", if i == 0 { "" } else { ", " });
        }
        if !op.results.is_empty() {
            self.out.push_str(" = ");
        }
        let _ = write!(self.out, "{}.{}", L::PREFIX, op.code.mnemonic());
        let positional = op.positional();
        if !positional.is_empty() {
            self.out.push(' ');
            self.list(positional);
        }
        for spec in op.code.info().groups {
            let group = op.group(spec.name);
            if !group.is_empty() && spec.name == BARE_GROUP {
                self.out.push(' ');
                self.list(group);
            } else if !group.is_empty() {
                let _ = write!(self.out, " {}(", spec.name);
                self.list(group);
                self.out.push(')');
            }
        }
        if !op.attrs.is_empty() {
            let _ = write!(self.out, " {}", op.attrs_in_order());
        }
        for (i, &result) in op.results.iter().enumerate() {
            let _ =
                write!(self.out, "{}{}", if i == 0 { " : " } else { ", " }, self.func.ty(result));
        }
        if self.options.locs && op.loc.is_known() {
            let file = op.loc.file().map_or("", |f| &f.name);
            let _ = write!(self.out, " loc({file:?}:{}:{})", op.loc.line(), op.loc.column());
        }
        for &region in &op.regions {
            self.out.push_str(" do");
            if !self.func.blocks[region].args.is_empty() {
                self.out.push_str(" (");
                self.args(region);
                self.out.push(')');
            }
            self.out.push_str(" {\n");
            self.block(region, depth + 1);
            let _ = write!(self.out, "{indent}}}");
        }
        self.out.push('\n');
        for line in (self.under)(id) {
            let _ = writeln!(self.out, "{indent}; {line}");
        }
    }
}
