//! Runs every file under `tests/cases`: the passes named on the first line over the function below
//! it, and compares what they changed with the text after the line `=>`; for `all` passes, the whole
//! output. `TESSERA_BLESS=1` rewrites that text.

use crate::ir_diff::ir_diff;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{PassContext, PassOptions, verify};

const SPLIT: &str = "\n=>\n";

fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() { files(&path, out) } else { out.push(path) }
    }
}

fn show(out: &mut String, d: &Diagnostic) {
    let _ = writeln!(out, "{} at {}:{}: {}", d.code, d.loc.line(), d.loc.column(), d.message);
    for label in &d.labels {
        let _ = writeln!(out, "  at {}:{}: {}", label.loc.line(), label.loc.column(), label.text);
    }
    if let Some(help) = &d.help {
        let _ = writeln!(out, "  help: {help}");
    }
}

/// The function after the passes, or the errors of the first that fails; then the notes.
fn run(passes: &str, text: &str) -> String {
    let mut func = tessera_tile::parse(text).unwrap_or_else(|e| panic!("{e}"));
    verify(&func).unwrap_or_else(|e| panic!("input: {e}"));
    let mut context = PassContext::default();
    let mut out = String::new();
    let mut failed: Option<Diagnostics> = None;
    for name in passes.split_whitespace() {
        if name == "geometry-error" {
            show(&mut out, &tessera_lower::geometry_error(&func));
            continue;
        }
        let pass = tessera_lower::pass_by_name(name).unwrap_or_else(|| panic!("no pass {name}"));
        match pass.run(&mut func, &mut context) {
            Ok(_) => verify(&func).unwrap_or_else(|e| panic!("after {name}:\n{func}\n{e}")),
            Err(errors) => {
                failed = Some(errors);
                break;
            }
        }
    }
    match failed {
        Some(errors) => errors.iter().for_each(|e| show(&mut out, e)),
        None => out.push_str(&func.to_string()),
    }
    context.notes.iter().for_each(|n| show(&mut out, n));
    out
}

/// What passes changed; what they refused, and their notes, as they are.
fn changes(input: &str, output: &str) -> String {
    let at = output.starts_with("func ").then_some(0);
    let Some(start) = at.or_else(|| Some(output.find("\nfunc ")? + 1)) else {
        return output.to_string();
    };
    let end = output.rfind("\n}\n").map_or(output.len(), |at| at + 3);
    let before = tessera_tile::parse(input).unwrap_or_else(|e| panic!("{e}")).to_string();
    let changed = ir_diff(&before, &output[start..end]);
    format!("{}{changed}{}", &output[..start], &output[end..])
}

#[test]
fn cases_give_their_expected_text() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let bless = std::env::var_os("TESSERA_BLESS").is_some();
    let mut paths = Vec::new();
    files(&root, &mut paths);
    let mut wrong = String::new();
    for path in &paths {
        let text = std::fs::read_to_string(path).unwrap();
        let (input, expected) = text.split_once(SPLIT).unwrap_or((text.trim_end(), ""));
        let passes = input.lines().next().and_then(|l| l.strip_prefix("; pass: ")).unwrap();
        let all: Vec<_> = tessera_lower::TILE_PASSES.iter().map(|p| p.0).collect();
        // The pipeline changes most of a function, a pass some of it.
        let got = match passes {
            "all" => run(&all.join(" "), input),
            passes => changes(input, &run(passes, input)),
        };
        if bless {
            std::fs::write(path, format!("{input}{SPLIT}{got}")).unwrap();
        } else if got != expected {
            let _ = writeln!(wrong, "--- {}\nexpected:\n{expected}\ngot:\n{got}", path.display());
        }
    }
    assert!(paths.len() > 30, "only {} cases found", paths.len());
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn canonicalise_twice_changes_nothing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut paths = Vec::new();
    files(&root, &mut paths);
    for path in &paths {
        let text = std::fs::read_to_string(path).unwrap();
        let input = text.split_once(SPLIT).map_or(text.as_str(), |s| s.0);
        let once = run("tile-canonicalise", input);
        assert_eq!(run("tile-canonicalise", &once), once, "{}", path.display());
    }
}

/// Every case goes through all passes: the output verifies, or the function is refused for a user
/// error with a location and a help.
#[test]
fn pipeline_gives_verified_functions_or_user_errors() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut paths = Vec::new();
    files(&root, &mut paths);
    let options = PassOptions { verify_each: true, ..PassOptions::default() };
    let pipeline = tessera_lower::tile_pipeline(options);
    for path in &paths {
        let text = std::fs::read_to_string(path).unwrap();
        let input = text.split_once(SPLIT).map_or(text.as_str(), |s| s.0);
        let mut func = tessera_tile::parse(input).unwrap();
        if let Err(errors) = pipeline.run(&mut func, &mut PassContext::default()) {
            for e in errors.iter() {
                let reported = e.code != Code::E_UNKNOWN && e.loc.is_known() && e.help.is_some();
                assert!(reported && !e.message.contains("tile."), "{}: {e}", path.display());
            }
        }
    }
}

#[test]
fn pipeline_has_the_passes_of_the_table_in_order() {
    let names = tessera_lower::tile_pipeline(PassOptions::default()).names();
    assert_eq!(
        names,
        [
            "tile-ownership",
            "tile-lift",
            "tile-normalise",
            "tile-geometry",
            "tile-empty",
            "tile-ragged",
            "tile-check",
            "tile-if-convert",
            "tile-bounds",
            "tile-canonicalise"
        ]
    );
}
