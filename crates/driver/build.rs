//! Names the build by what it is made of, so that code which one build kept on disk is never taken
//! for code of another: in development the version stays the same while the compiler changes.

use std::path::{Path, PathBuf};
use std::{env, fs};
use tessera_support::StableHasher;

/// Crates of tests and those that come after this one, which have no say in what is compiled.
const ABOVE: [&str; 3] = ["python", "conformance", "filetest"];

fn main() {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let root = package.ancestors().nth(2).unwrap_or(&package);
    let mut hash = StableHasher::new();
    for (name, folder) in sorted(&root.join("crates")) {
        if !ABOVE.contains(&name.as_str()) {
            hash.write_str(&name);
            take(&folder.join("src"), &mut hash);
        }
    }
    // The versions of what others wrote.
    take(&root.join("Cargo.lock"), &mut hash);
    println!("cargo::rustc-env=TESSERA_BUILD_ID={}", hash.finish());
}

/// Adds a file, or all files of a folder, with their names.
fn take(path: &Path, hash: &mut StableHasher) {
    if path.is_dir() {
        println!("cargo::rerun-if-changed={}", path.display());
        for (name, inner) in sorted(path) {
            hash.write_str(&name);
            take(&inner, hash);
        }
    } else if let Ok(bytes) = fs::read(path) {
        println!("cargo::rerun-if-changed={}", path.display());
        hash.write_str(&StableHasher::of_bytes(&bytes).to_string());
    }
}

fn sorted(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut out: Vec<_> =
        entries.map(|e| (e.file_name().to_string_lossy().into_owned(), e.path())).collect();
    out.sort();
    out
}
