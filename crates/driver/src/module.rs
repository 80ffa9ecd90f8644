//! IR text of any level.

use tessera_diag::{Code, Diagnostic, Diagnostics, Loc, SourceFile};
use tessera_graph::Graph;
use tessera_ir::{Module, module_level, parse_module};
use tessera_schedule::Schedule;
use tessera_support::Hash128;
use tessera_tile::Tile;

/// A parsed module.
pub enum AnyModule {
    Graph(Module<Graph>),
    Schedule(Module<Schedule>),
    Tile(Module<Tile>),
    /// What the interpreter executes: Tile IR under the target's name.
    Interp(Module<Tile>),
}

const INTERP: &str = "target.interp";
const FILE: &str = "<ir>";
const HELP: &str = "`k.inspect_ir(level)` prints text of the right form";

/// The `module` line says the level; text without one is Tile IR.
pub fn parse(text: &str) -> Result<AnyModule, Diagnostics> {
    read(text).map_err(|found| found.or_help(HELP))
}

fn read(text: &str) -> Result<AnyModule, Diagnostics> {
    if text.trim().is_empty() {
        let message = "expected a module or a function, got no text";
        return Err(Diagnostic::new(Code::E_SYNTAX, message).into());
    }
    match module_level(text).as_deref() {
        Some("graph") => parse_module(text, FILE).map(AnyModule::Graph),
        Some("schedule") => parse_module(text, FILE).map(AnyModule::Schedule),
        Some("tile") | None => parse_module(text, FILE).map(AnyModule::Tile),
        Some(INTERP) => {
            parse_module(&text.replacen(INTERP, "tile", 1), FILE).map(AnyModule::Interp)
        }
        Some(other) => {
            let file = SourceFile::new(FILE, text, 1);
            let column = text.find(other).map_or(1, |at| at as u32 + 1);
            let end = column + other.len() as u32;
            Err(Diagnostic::new(
                Code::E_SYNTAX,
                format!("expected a level (one of graph, schedule, tile, {INTERP}), got `{other}`"),
            )
            .at(Loc::span(&file, 1, column, 1, end))
            .into())
        }
    }
}

impl AnyModule {
    pub fn level(&self) -> &'static str {
        match self {
            AnyModule::Graph(_) => "graph",
            AnyModule::Schedule(_) => "schedule",
            AnyModule::Tile(_) => "tile",
            AnyModule::Interp(_) => INTERP,
        }
    }

    pub fn name(&self) -> &str {
        match self {
            AnyModule::Graph(m) => &m.name,
            AnyModule::Schedule(m) => &m.name,
            AnyModule::Tile(m) | AnyModule::Interp(m) => &m.name,
        }
    }

    pub fn hash(&self) -> Hash128 {
        match self {
            AnyModule::Graph(m) => m.hash(),
            AnyModule::Schedule(m) => m.hash(),
            AnyModule::Tile(m) | AnyModule::Interp(m) => m.hash(),
        }
    }

    /// Checks every rule of the level, beyond what the text itself must satisfy.
    pub fn verify(&self) -> Result<(), Diagnostics> {
        fn all<L: tessera_ir::Level>(module: &Module<L>) -> Result<(), Diagnostics> {
            let mut errors = Diagnostics::new();
            for func in &module.funcs {
                if let Err(found) = tessera_ir::verify(func) {
                    errors.extend(found);
                }
            }
            errors.into_result().map(|_| ())
        }
        match self {
            AnyModule::Graph(m) => all(m),
            AnyModule::Schedule(m) => all(m),
            AnyModule::Tile(m) | AnyModule::Interp(m) => all(m),
        }
    }
}

impl std::fmt::Display for AnyModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AnyModule::Graph(m) => m.fmt(f),
            AnyModule::Schedule(m) => m.fmt(f),
            AnyModule::Tile(m) => m.fmt(f),
            AnyModule::Interp(m) => {
                f.write_str(&m.to_string().replacen(": tile", &format!(": {INTERP}"), 1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "module @m : target.interp {version = 1}\n\nfunc @f(%x: view<[n], f32, read>) {kind = group} {\n  tile.return\n}\n";

    #[test]
    fn every_level_reads_back() {
        for level in ["tile", INTERP] {
            let text = TEXT.replace(INTERP, level);
            let module = parse(&text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!((module.level(), module.to_string()), (level, text));
        }
    }

    #[test]
    fn an_unknown_level_is_reported_with_its_place() {
        let error = parse("module @m : staged {version = 1}\n").err().unwrap();
        let first = error.iter().next().unwrap();
        assert_eq!((first.code, first.loc.line(), first.loc.column()), (Code::E_SYNTAX, 1, 13));
    }
}
