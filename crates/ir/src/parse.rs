//! The parser: one grammar for every level. It checks what the text itself must satisfy (names
//! defined, ops known, types well formed); everything else is the verifier's.

use crate::cursor::{Cursor, Parsed};
use crate::table::BARE_GROUP;
use crate::{Attr, Attrs, BlockId, Func, IR_VERSION, Level, Module, OpSpec, Opcode, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc, SourceFile};

/// Blocks nested deeper than this are refused: the text is not from our printer, and following it
/// would end the stack.
pub(crate) const MAX_DEPTH: usize = 200;

/// Parses a module, with or without its `module` line. Every function that does not parse gives
/// its first error.
pub fn parse_module<L: Level>(text: &str, file_name: &str) -> Result<Module<L>, Diagnostics> {
    parse_module_as(text, file_name, L::NAME)
}

/// Parses a module whose `module` line names `level_name`: target IR that is a level's functions
/// under a name of its own, such as `target.interp`.
pub fn parse_module_as<L: Level>(
    text: &str,
    file_name: &str,
    level_name: &str,
) -> Result<Module<L>, Diagnostics> {
    let file = SourceFile::new(file_name, text, 1);
    let mut cursor = Cursor::new(text, file);
    let mut errors = Diagnostics::new();
    let mut module = Module::new("module");
    if let Err(e) = header(&mut cursor, &mut module, level_name) {
        return Err(e.into());
    }
    while !cursor.at_end() {
        match (Parser { c: &mut cursor, depth: 0 }).func::<L>() {
            Ok(func) if module.func(&func.name).is_some() => errors.push(
                Diagnostic::new(
                    Code::E_GRAPH_INVALID,
                    format!("expected one function @{}, got two", func.name),
                )
                .at(func.loc.clone()),
            ),
            Ok(func) => module.funcs.push(func),
            Err(e) => {
                errors.push(e);
                // Go on at the next function: a line that begins with the word.
                match cursor.rest().find("\nfunc ") {
                    Some(offset) => cursor.set_pos(cursor.pos() + offset + 1),
                    None => break,
                }
            }
        }
    }
    if errors.is_empty() { Ok(module) } else { Err(errors) }
}

/// Parses one function.
pub fn parse_func<L: Level>(text: &str, file_name: &str) -> Result<Func<L>, Diagnostics> {
    let module = parse_module::<L>(text, file_name)?;
    let count = module.funcs.len();
    module.funcs.into_iter().next().filter(|_| count == 1).ok_or_else(|| {
        Diagnostic::new(Code::E_SYNTAX, format!("expected one function, got {count}")).into()
    })
}

/// The level a module's text says it is of, if it has a `module` line.
pub fn module_level(text: &str) -> Option<String> {
    let mut c = Cursor::new(text, SourceFile::new("", "", 1));
    if !c.eat_word("module") {
        return None;
    }
    c.expect("@").ok()?;
    c.dotted()?;
    c.expect(":").ok()?;
    c.dotted().map(str::to_string)
}

fn header<L: Level>(c: &mut Cursor<'_>, module: &mut Module<L>, wanted: &str) -> Parsed<()> {
    if !c.eat_word("module") {
        return Ok(());
    }
    c.expect("@")?;
    let Some(name) = c.dotted() else { return c.expected("a module name") };
    module.name = name.to_string();
    c.expect(":")?;
    let start = c.pos();
    let level = c.dotted().unwrap_or_default();
    if level != wanted {
        return Err(Diagnostic::new(
            Code::E_GRAPH_INVALID,
            format!("expected a module of level `{wanted}`, got `{level}`"),
        )
        .at(c.loc_at(start, c.pos())));
    }
    if c.peek() == Some('{') {
        let start = c.pos();
        module.attrs = Parser { c, depth: 0 }.attrs()?;
        let version = module.attrs.remove("version").and_then(|v| v.as_int());
        if version != Some(IR_VERSION) {
            let got = version.map_or("none".to_string(), |v| v.to_string());
            return Err(Diagnostic::new(
                Code::E_GRAPH_INVALID,
                format!("expected IR version {IR_VERSION}, got {got}"),
            )
            .at(c.loc_at(start, c.pos()))
            .help("print the module again with this version of Tessera"));
        }
    }
    Ok(())
}

pub(crate) struct Parser<'c, 's> {
    pub c: &'c mut Cursor<'s>,
    pub depth: usize,
}

/// The names that may be used: those of this block and the blocks around it.
type Scope<'s> = BTreeMap<&'s str, Value>;

impl<'s> Parser<'_, 's> {
    fn func<L: Level>(&mut self) -> Parsed<Func<L>> {
        if !self.c.eat_word("func") {
            return self.c.expected("`func`");
        }
        let start = self.c.pos();
        self.c.expect("@")?;
        let Some(name) = self.c.dotted() else { return self.c.expected("a function name") };
        let mut func = Func::<L>::new(name);
        func.loc = self.c.loc_at(start, self.c.pos());
        let mut scope = Scope::new();
        self.c.expect("(")?;
        let body = func.body;
        // A function's names end with its scope: they need not be removed.
        self.args(&mut func, body, &mut scope, &mut Vec::new())?;
        self.c.expect("{")?;
        // Both attributes and the body begin with a brace: attributes are `{name = …`.
        let mark = self.c.pos();
        let is_attrs = self.c.peek() == Some('}')
            || (self.c.word().is_some()
                && self.c.peek() == Some('=')
                && !self.c.rest().starts_with("=="));
        self.c.set_pos(mark);
        if is_attrs && self.looks_like_attrs() {
            func.attrs = self.attr_items()?;
            self.c.expect("{")?;
        }
        self.block(&mut func, body, &mut scope, Vec::new())?;
        Ok(func)
    }

    /// After `{`: an empty body `{ }` is no attribute list unless a second brace follows.
    fn looks_like_attrs(&mut self) -> bool {
        let mark = self.c.pos();
        let result = !self.c.eat("}") || self.c.peek() == Some('{');
        self.c.set_pos(mark);
        result
    }

    /// `%a: type, …)`
    fn args<L: Level>(
        &mut self,
        func: &mut Func<L>,
        block: BlockId,
        scope: &mut Scope<'s>,
        own: &mut Vec<&'s str>,
    ) -> Parsed<()> {
        if self.c.eat(")") {
            return Ok(());
        }
        loop {
            self.c.skip_space();
            let start = self.c.pos();
            let name = self.c.value_name()?;
            let end = self.c.pos();
            self.c.expect(":")?;
            let ty = self.ty()?;
            let value = func.add_arg(block, ty, Some(name));
            self.define(scope, name, value, (start, end))?;
            own.push(name);
            if !self.c.eat(",") {
                return self.c.expect(")");
            }
        }
    }

    /// `at` is where the name stands in the text.
    fn define(
        &self,
        scope: &mut Scope<'s>,
        name: &'s str,
        value: Value,
        at: (usize, usize),
    ) -> Parsed<()> {
        match scope.insert(name, value) {
            None => Ok(()),
            Some(_) => Err(Diagnostic::new(
                Code::E_NAME,
                format!("expected a new name, got %{name} again"),
            )
            .at(self.c.loc_at(at.0, at.1))),
        }
    }

    /// Ops up to the closing brace. Names defined here, and those in `own`, end with the block.
    fn block<L: Level>(
        &mut self,
        func: &mut Func<L>,
        block: BlockId,
        scope: &mut Scope<'s>,
        mut own: Vec<&'s str>,
    ) -> Parsed<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.c.error(format!("expected at most {MAX_DEPTH} nested blocks")));
        }
        while !self.c.eat("}") {
            self.op(func, block, scope, &mut own)?;
        }
        for name in own {
            scope.remove(name);
        }
        self.depth -= 1;
        Ok(())
    }

    fn op<L: Level>(
        &mut self,
        func: &mut Func<L>,
        block: BlockId,
        scope: &mut Scope<'s>,
        own: &mut Vec<&'s str>,
    ) -> Parsed<()> {
        self.c.skip_space();
        let start = self.c.pos();
        let mut names = Vec::new();
        if self.c.peek() == Some('%') {
            loop {
                self.c.skip_space();
                let from = self.c.pos();
                let name = self.c.value_name()?;
                names.push((name, (from, self.c.pos())));
                if !self.c.eat(",") {
                    break;
                }
            }
            self.c.expect("=")?;
        }
        self.c.skip_space();
        let from = self.c.pos();
        let Some(full) = self.c.dotted() else { return self.c.expected("an op") };
        let mnemonic = full.strip_prefix(L::PREFIX).and_then(|m| m.strip_prefix('.'));
        let Some(code) = mnemonic.and_then(L::Op::from_mnemonic) else {
            return Err(Diagnostic::new(
                Code::E_SYNTAX,
                format!("expected an op of level `{}`, got `{full}`", L::NAME),
            )
            .at(self.c.loc_at(from, self.c.pos())));
        };
        let mut spec = OpSpec::<L>::new(code, &[]);
        let info = code.info();
        let end = self.c.pos();
        if self.c.peek() == Some('%') && !self.next_op_begins(end) {
            let values = self.uses(scope)?;
            match info.groups.first() {
                Some(g) if g.name == BARE_GROUP => spec.groups.push((BARE_GROUP, values)),
                _ => spec.operands = values,
            }
        }
        loop {
            let mark = self.c.pos();
            let Some(word) = self.c.word() else { break };
            match info.groups.iter().find(|g| g.name == word) {
                Some(group) if self.c.eat("(") => {
                    let values = self.uses(scope)?;
                    self.c.expect(")")?;
                    spec.groups.push((group.name, values));
                }
                _ => {
                    self.c.set_pos(mark);
                    break;
                }
            }
        }
        if self.c.peek() == Some('{') {
            spec.attrs = self.attrs()?;
        }
        if self.c.eat(":") {
            let mut types = vec![self.ty()?];
            while self.c.eat(",") {
                types.push(self.ty()?);
            }
            spec.results = Some(types);
        }
        let text_loc = self.c.loc_at(start, self.c.pos());
        let loc = if self.c.eat_word("loc") { self.loc()? } else { text_loc.clone() };
        if info.regions.iter().any(|r| r.optional) {
            let mark = self.c.pos();
            spec.optional_region = self.c.eat_word("do");
            self.c.set_pos(mark);
        }
        let place = func.blocks[block].ops.len();
        let id = func
            .insert(block, place, spec, loc)
            .map_err(|why| Diagnostic::new(Code::E_TYPE, why).at(text_loc.clone()))?;
        let results = func.ops[id].results.clone();
        if results.len() != names.len() {
            return Err(Diagnostic::new(
                Code::E_SYNTAX,
                format!("expected {} result names before `=`, got {}", results.len(), names.len()),
            )
            .at(text_loc));
        }
        // Results are in scope only after the regions; region arguments take names of their own.
        for region in func.ops[id].regions.clone() {
            if !self.c.eat_word("do") {
                return self.c.expected("`do` and a region");
            }
            let mut inner = Vec::new();
            if self.c.eat("(") {
                self.args(func, region, scope, &mut inner)?;
            }
            self.c.expect("{")?;
            self.block(func, region, scope, inner)?;
        }
        for ((name, at), value) in names.into_iter().zip(results) {
            func.set_name(value, name);
            self.define(scope, name, value, at)?;
            own.push(name);
        }
        Ok(())
    }

    /// Whether the names that stand here are results of the next op (`%a, %b = …`) and not operands
    /// of the one that ended at `end`. Results begin a line, so it looks further only after a line
    /// break.
    fn next_op_begins(&mut self, end: usize) -> bool {
        let mark = self.c.pos();
        if !self.c.between(end, mark).contains('\n') {
            return false;
        }
        while self.c.value_name().is_ok() && self.c.eat(",") {}
        let begins = self.c.peek() == Some('=');
        self.c.set_pos(mark);
        begins
    }

    fn uses(&mut self, scope: &Scope<'s>) -> Parsed<Vec<Value>> {
        let mut out = Vec::new();
        loop {
            self.c.skip_space();
            let start = self.c.pos();
            let name = self.c.value_name()?;
            match scope.get(name) {
                Some(&value) => out.push(value),
                None => {
                    return Err(Diagnostic::new(
                        Code::E_NAME,
                        format!("%{name} is not defined before this use"),
                    )
                    .at(self.c.loc_at(start, self.c.pos())));
                }
            }
            if !self.c.eat(",") {
                return Ok(out);
            }
        }
    }

    /// `("file":line:column)`
    fn loc(&mut self) -> Parsed<Loc> {
        self.c.expect("(")?;
        let name = self.c.string()?;
        let mut number = || -> Parsed<u32> {
            self.c.expect(":")?;
            match self.c.int().and_then(|v| u32::try_from(v).ok()) {
                Some(v) => Ok(v),
                None => self.c.expected("a line or column number"),
            }
        };
        let (line, column) = (number()?, number()?);
        self.c.expect(")")?;
        let file: Arc<SourceFile> = SourceFile::new(name, "", 1);
        Ok(Loc::span(&file, line, column, line, column.saturating_add(1)))
    }

    fn attrs(&mut self) -> Parsed<Attrs> {
        self.c.expect("{")?;
        self.attr_items()
    }

    fn attr_items(&mut self) -> Parsed<Attrs> {
        let mut attrs = Attrs::new();
        if self.c.eat("}") {
            return Ok(attrs);
        }
        loop {
            let Some(name) = self.c.word() else { return self.c.expected("an attribute name") };
            if attrs.get(name).is_some() {
                return Err(self
                    .c
                    .error(format!("expected attribute `{name}` once, got it twice")));
            }
            self.c.expect("=")?;
            let value = self.attr()?;
            attrs.set(name, value);
            if !self.c.eat(",") {
                self.c.expect("}")?;
                return Ok(attrs);
            }
        }
    }

    fn attr(&mut self) -> Parsed<Attr> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.c.error(format!("expected at most {MAX_DEPTH} nested attributes")));
        }
        let attr = self.attr_inner();
        self.depth -= 1;
        attr
    }

    fn attr_inner(&mut self) -> Parsed<Attr> {
        if let Some(text) = self.c.number() {
            if let Ok(v) = text.parse::<i64>() {
                return Ok(Attr::Int(v));
            }
            if text.bytes().all(|b| b.is_ascii_digit() || b == b'-') {
                return Err(self.c.error(format!("expected an integer of 64 bits, got `{text}`")));
            }
            return text
                .parse()
                .map(Attr::Float)
                .map_err(|_| self.c.error(format!("expected a number, got `{text}`")));
        }
        match self.c.peek() {
            Some('"') => Ok(Attr::Str(self.c.string()?)),
            Some('{') => Ok(Attr::Dict(self.attrs()?)),
            Some('(') => Ok(self.expr()?.into()),
            Some('@') => {
                self.c.expect("@")?;
                match self.c.dotted() {
                    Some(name) => Ok(Attr::Ref(name.to_string())),
                    None => self.c.expected("a name after `@`"),
                }
            }
            Some('[') => {
                self.c.expect("[")?;
                let mut items = Vec::new();
                if self.c.eat("]") {
                    return Ok(Attr::List(items));
                }
                loop {
                    items.push(self.attr()?);
                    if !self.c.eat(",") {
                        self.c.expect("]")?;
                        return Ok(Attr::List(items));
                    }
                }
            }
            _ => {
                let mark = self.c.pos();
                let Some(word) = self.c.word() else {
                    return self.c.expected("an attribute value");
                };
                let next = self.c.rest().chars().next();
                self.c.set_pos(mark);
                match (word, next) {
                    (
                        "tile" | "view" | "buf" | "tensor" | "smem" | "pipeline" | "slot"
                        | "pending",
                        Some('<'),
                    ) => Ok(Attr::Type(self.ty()?)),
                    (_, Some('(')) => Ok(self.expr()?.into()),
                    _ => {
                        self.c.word();
                        Ok(match word {
                            "true" => Attr::Bool(true),
                            "false" => Attr::Bool(false),
                            word => Attr::Word(word.to_string()),
                        })
                    }
                }
            }
        }
    }
}
