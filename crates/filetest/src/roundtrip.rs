//! `; test: roundtrip`: printing what was parsed gives the text without its comments.

use crate::header::{Header, LevelName};
use crate::text::without_comments;
use tessera_graph::Graph;
use tessera_ir::{Level, PrintOptions, module_level, parse_module};
use tessera_schedule::Schedule;
use tessera_staged::Staged;
use tessera_tile::Tile;

pub fn run(header: &Header, name: &str, text: &str) -> Result<String, String> {
    let canonical = without_comments(text);
    let printed = match header.level {
        LevelName::Tile => print::<Tile>(name, &canonical, header.locs),
        LevelName::Graph => print::<Graph>(name, &canonical, header.locs),
        LevelName::Schedule => print::<Schedule>(name, &canonical, header.locs),
        LevelName::Staged => print::<Staged>(name, &canonical, header.locs),
    }?;
    // Equal text passes the file as it is, comments and all.
    Ok(if printed == canonical { text.to_string() } else { printed })
}

fn print<L: Level>(name: &str, text: &str, locs: bool) -> Result<String, String> {
    let module = parse_module::<L>(text, name).map_err(|e| e.render())?;
    let options = PrintOptions { locs };
    let hash = module.hash();
    let printed = if module_level(text).is_some() {
        module.to_text(options)
    } else {
        let funcs: Vec<_> = module.funcs.iter().map(|f| f.to_text(options)).collect();
        funcs.join("\n")
    };
    let again = parse_module::<L>(&printed, name).map_err(|e| e.render())?;
    if again.hash() != hash {
        return Err("expected the printed text to have the hash of the parsed one".into());
    }
    Ok(printed)
}
