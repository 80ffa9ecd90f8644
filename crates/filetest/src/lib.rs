//! Tests that are IR text. A file says in its first lines what is done with it; what must come out
//! stands in the same file as comments. The grammar of these files is in `filetests/README.md`.
//!
//! Every kind of test works the same way: what came out is written into the text, and the text must
//! not change by that. So a failure is a diff, and blessing is writing the file.
//!
//! ```
//! use tessera_filetest::{Outcome, Tools, run_text};
//! let text = "\
//! ; test: verify
//! func @f(%x: f32) {kind = group} {
//!   %y = tile.not %x : f32  ; error: E_TYPE expected an operand that `not` takes, got f32
//!   tile.return
//! }
//! ";
//! assert_eq!(run_text("f.tir", text, &Tools::none()), Outcome::Passed);
//! ```

mod args;
mod array;
mod diff;
mod header;
mod interpret;
mod ir_diff;
mod passes;
mod roundtrip;
mod text;
mod tools;
mod verify;

pub use diff::diff;
pub use header::{Header, Kind};
pub use interpret::{Run, runs};
pub use ir_diff::ir_diff;
pub use tools::Tools;

use std::path::{Path, PathBuf};

#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    Passed,
    /// What the file would read if what came out were right.
    Differs {
        wanted: String,
    },
    /// The file cannot be run: no header, an unknown pass, a `; run:` line that does not parse.
    Broken {
        why: String,
    },
}

/// Runs one file's text.
pub fn run_text(name: &str, text: &str, tools: &Tools) -> Outcome {
    let result = Header::parse(text).and_then(|header| match &header.kind {
        Kind::Roundtrip => roundtrip::run(&header, name, text),
        Kind::Verify => verify::run(&header, name, text),
        Kind::Pass(passes) => passes::run(name, text, passes, tools),
        Kind::Pipeline => passes::run_pipeline(name, text, tools),
        Kind::Interpret => interpret::run(name, text, tools),
    });
    match result {
        Ok(actual) if actual == text => Outcome::Passed,
        Ok(wanted) => Outcome::Differs { wanted },
        Err(why) => Outcome::Broken { why },
    }
}

/// Every `.tir` file under a folder, in order of their paths.
pub fn files_under(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let path = entry?.path();
        if path.is_dir() {
            out.extend(files_under(&path)?);
        } else if path.extension().is_some_and(|e| e == "tir") {
            out.push(path);
        }
    }
    out.sort();
    Ok(out)
}

#[derive(Default)]
pub struct Summary {
    pub passed: usize,
    pub blessed: usize,
    /// A path and what is wrong, for each failure.
    pub failed: Vec<(String, String)>,
}

/// Runs every file under `root`. With `bless`, a file that differs is rewritten instead; a
/// roundtrip is never blessed, for its text is what the author means.
pub fn run_all(root: &Path, tools: &Tools, bless: bool) -> std::io::Result<Summary> {
    let mut summary = Summary::default();
    for path in files_under(root)? {
        let text = std::fs::read_to_string(&path)?;
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        match run_text(&name, &text, tools) {
            Outcome::Passed => summary.passed += 1,
            Outcome::Broken { why } => summary.failed.push((name, why)),
            Outcome::Differs { wanted } => {
                let fixed = Header::parse(&text).is_ok_and(|h| h.kind != Kind::Roundtrip);
                if bless && fixed {
                    std::fs::write(&path, wanted)?;
                    summary.blessed += 1;
                } else {
                    summary.failed.push((name, diff(&text, &wanted)));
                }
            }
        }
    }
    Ok(summary)
}
