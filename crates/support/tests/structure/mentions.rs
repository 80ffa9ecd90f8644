//! The files speak of the project only: nothing of one machine or of one package mirror.

use crate::repository::{files, text};

/// Folders of one machine. Each is cut in two so that this file may hold it.
const PATHS: [(&str, &str); 3] = [("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/")];

/// Hosts of package registries: packages are requested by name, the client knows the host.
const HOSTS: [(&str, &str); 8] = [
    ("index.", "crates.io"),
    ("static.", "crates.io"),
    ("static.", "rust-lang.org"),
    ("pypi", ".org"),
    ("python", "hosted.org"),
    ("deb.", "debian.org"),
    ("archive.", "ubuntu.com"),
    ("registry.", "npmjs.org"),
];

#[test]
fn files_mention_no_machine_path_and_no_registry_host() {
    let mut mentions = Vec::new();
    for file in files() {
        // A file that is not UTF-8 is not text.
        let text = text(&file).unwrap_or_default();
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(mention) = mention(line) {
                mentions.push(format!("{file}:{number}: {mention}"));
            }
        }
    }
    assert!(mentions.is_empty(), "take these out of the files: {mentions:#?}");
}

fn mention(line: &str) -> Option<String> {
    let path = PATHS.map(|(a, b)| format!("{a}{b}")).into_iter().find(|path| {
        // Inside a longer path the same letters are an ordinary folder.
        line.match_indices(path.as_str()).any(|(at, _)| {
            !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-*}".contains(c))
        })
    });
    path.or_else(|| {
        HOSTS.map(|(a, b)| format!("{a}{b}")).into_iter().find(|host| line.contains(host.as_str()))
    })
}

#[test]
fn a_folder_inside_a_path_is_not_a_machine_path() {
    let [(a, b), ..] = PATHS;
    assert!(mention(&format!("see {a}{b}notes")).is_some());
    assert!(mention(&format!("see docs{a}{b}notes")).is_none());
}
