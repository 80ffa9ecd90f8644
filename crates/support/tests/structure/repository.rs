//! The files under test: what git has, or would have at the next commit.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The top of the checkout that cargo runs the tests of. Found at run time: checkouts that share a
/// target directory share this program.
pub fn root() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it for tests");
    Path::new(&package).ancestors().nth(2).unwrap().to_path_buf()
}

/// Every file of the project, as a path from the root with `/` between its parts, sorted.
pub fn files() -> Vec<String> {
    let mut files = from_git().unwrap_or_else(from_disk);
    files.sort();
    files
}

/// The text of a file, or `None` where it is not text or was removed but not yet committed.
pub fn text(file: &str) -> Option<String> {
    fs::read_to_string(root().join(file)).ok()
}

fn from_git() -> Option<Vec<String>> {
    let listing = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .ok()
        .filter(|listing| listing.status.success() && !listing.stdout.is_empty())?;
    let names = String::from_utf8(listing.stdout).ok()?;
    Some(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// For a copy of the sources without git: all but what builds and environments leave behind.
fn from_disk() -> Vec<String> {
    const LEFT_BEHIND: [&str; 5] = ["target", "build", "dist", ".venv", ".git"];
    let mut files = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap().map(Result::unwrap) {
            let name = format!("{folder}{}", entry.file_name().to_string_lossy());
            let is_folder = entry.file_type().unwrap().is_dir();
            if is_folder && !LEFT_BEHIND.contains(&name.as_str()) && !name.ends_with("__pycache__")
            {
                folders.push(name + "/");
            } else if !is_folder {
                files.push(name);
            }
        }
    }
    files
}

#[test]
fn both_listings_find_this_file_and_no_build_output() {
    for files in [files(), from_disk()] {
        assert!(files.iter().any(|file| file == "crates/support/tests/structure/repository.rs"));
        assert!(!files.iter().any(|file| file.starts_with("target/")));
    }
}
