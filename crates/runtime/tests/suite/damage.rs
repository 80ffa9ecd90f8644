//! Files that are not what they should be: ignored, removed, reported once.

use crate::folder::{Folder, key, warnings};
use std::fs;
use std::path::PathBuf;
use tessera_target::ObjectStore;

/// A directory with one entry, its file, and what the file holds.
fn one_entry() -> (Folder, PathBuf, Vec<u8>) {
    let folder = Folder::new();
    folder.store().put(key("a"), "a", b"code");
    let file = folder.files().remove(0);
    let bytes = fs::read(&file).unwrap();
    (folder, file, bytes)
}

/// A store that reads these bytes returns nothing, says why, removes them, and stays usable.
fn refused(folder: &Folder, file: &PathBuf, bytes: &[u8]) -> String {
    fs::write(file, bytes).unwrap();
    let store = folder.store();
    assert_eq!(store.get(key("a")), None);
    assert!(!file.exists());
    assert_eq!(store.get(key("a")), None);
    let mut reported = warnings(&store);
    assert_eq!(reported.len(), 1);
    store.put(key("a"), "a", b"code");
    assert_eq!(folder.store().get(key("a")).as_deref(), Some(&b"code"[..]));
    reported.remove(0)
}

#[test]
fn a_changed_byte_anywhere_is_ignored() {
    let (folder, file, good) = one_entry();
    for place in 0..good.len() {
        let mut bad = good.clone();
        bad[place] ^= 0x40;
        refused(&folder, &file, &bad);
    }
}

#[test]
fn a_file_cut_anywhere_is_ignored() {
    let (folder, file, good) = one_entry();
    for length in 0..good.len() {
        refused(&folder, &file, &good[..length]);
    }
    assert!(refused(&folder, &file, &good[..good.len() - 1]).ends_with("it is cut short"));
}

#[test]
fn a_foreign_file_and_one_of_another_format_are_ignored() {
    let (folder, file, good) = one_entry();
    let reported = refused(&folder, &file, b"#!/bin/sh\nexit 0\n");
    assert!(
        reported.starts_with("W_CACHE_IO: ") && reported.ends_with("it is not a compiled kernel")
    );
    let mut other = good.clone();
    other[8] = 9;
    assert!(refused(&folder, &file, &other).ends_with("expected format 2, got 9"));
}

#[test]
fn an_entry_under_another_name_is_ignored() {
    let (folder, file, good) = one_entry();
    folder.store().put(key("b"), "b", b"other");
    let other = folder.files().into_iter().find(|f| *f != file).unwrap();
    let reported = refused(&folder, &file, &fs::read(&other).unwrap());
    assert!(reported.ends_with("it belongs under another name"), "{reported}");
    fs::write(&other, good).unwrap();
    assert_eq!(folder.store().get(key("b")), None);
}

#[test]
fn many_damaged_files_are_reported_of_once() {
    let folder = Folder::new();
    for name in ["a", "b", "c"] {
        folder.store().put(key(name), name, b"code");
    }
    for file in folder.files() {
        fs::write(file, "damaged").unwrap();
    }
    let store = folder.store();
    assert_eq!(store.entries().warnings.len(), 3, "a listing tells of each");
    for name in ["a", "b", "c"] {
        assert_eq!(store.get(key(name)), None);
    }
    assert_eq!(warnings(&store).len(), 1);
    assert!(folder.files().is_empty());
}
