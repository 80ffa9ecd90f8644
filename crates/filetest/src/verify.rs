//! `; test: verify`: all errors of the parser and the verifier, each at its line, and no others.

use crate::header::{Header, LevelName};
use crate::text::{Findings, chunks, without_expectations};
use tessera_graph::Graph;
use tessera_ir::{Level, parse_module, verify};
use tessera_schedule::Schedule;
use tessera_staged::Staged;
use tessera_tile::Tile;

pub fn run(header: &Header, name: &str, text: &str) -> Result<String, String> {
    let bare = without_expectations(text);
    let found = match header.level {
        LevelName::Tile => check::<Tile>(name, &bare),
        LevelName::Graph => check::<Graph>(name, &bare),
        LevelName::Schedule => check::<Schedule>(name, &bare),
        LevelName::Staged => check::<Staged>(name, &bare),
    };
    Ok(found.write_into(&bare))
}

fn check<L: Level>(name: &str, bare: &str) -> Findings {
    let mut found = Findings::default();
    match parse_module::<L>(bare, name) {
        Ok(module) => {
            for func in &module.funcs {
                if let Err(errors) = verify(func) {
                    found.diagnostics(&errors, func.loc.line());
                }
            }
        }
        Err(errors) => {
            found.diagnostics(&errors, 1);
            // The functions that do parse are checked all the same.
            for chunk in chunks(bare) {
                if let Ok(module) = parse_module::<L>(&chunk.text, name)
                    && let Some(Err(errors)) = module.funcs.first().map(verify)
                {
                    found.diagnostics(&errors, chunk.first);
                }
            }
        }
    }
    found
}
