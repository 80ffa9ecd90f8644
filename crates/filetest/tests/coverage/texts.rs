//! What the file tests do with ops: the lines of each kind of test.

use std::path::{Path, PathBuf};
use tessera_filetest::files_under;

#[derive(Default)]
pub struct Texts {
    roundtrip: Vec<String>,
    refused: Vec<String>,
    run: Vec<String>,
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests")
}

/// The file tests of one kind: their paths below the folder, and their texts.
pub fn each_file() -> impl Iterator<Item = (String, String)> {
    let paths = files_under(&root()).expect("the file tests are there");
    paths.into_iter().map(|path| {
        let text = std::fs::read_to_string(&path).expect("a file test is text");
        (path.strip_prefix(root()).unwrap_or(&path).display().to_string(), text)
    })
}

impl Texts {
    pub fn read() -> Self {
        let mut out = Self::default();
        for (_, text) in each_file() {
            let kind = text.lines().next().unwrap_or_default().to_string();
            for line in text.lines().filter(|l| !l.trim_start().starts_with(';')) {
                if kind.contains("roundtrip") {
                    out.roundtrip.push(line.to_string());
                } else if kind.contains("verify") && line.contains("; error:") {
                    out.refused.push(line.to_string());
                } else if kind.contains("interpret") {
                    out.run.push(line.to_string());
                }
            }
        }
        out
    }

    pub fn prints(&self, op: &str) -> bool {
        mentions(&self.roundtrip, op)
    }

    pub fn runs(&self, op: &str) -> bool {
        mentions(&self.run, op)
    }

    pub fn refuses(&self, op: &str) -> bool {
        mentions(&self.refused, op)
    }
}

/// Whether a line has the op of this whole name, `tile.add` and not `tile.add_more`.
fn mentions(lines: &[String], name: &str) -> bool {
    lines.iter().any(|line| {
        line.match_indices(name).any(|(at, _)| {
            let after = line[at + name.len()..].chars().next();
            !after.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.')
        })
    })
}
