//! The store stays within its limit.

use crate::folder::{COMPILER, Folder, key, warnings};
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tessera_runtime::DiskStore;
use tessera_target::ObjectStore;

const PAYLOAD: usize = 10_000;

fn on_disk(folder: &Folder) -> u64 {
    folder.files().iter().map(|f| fs::metadata(f).unwrap().len()).sum()
}

fn age(file: &PathBuf, seconds: u64) {
    let time = SystemTime::now() - Duration::from_secs(seconds);
    File::open(file).unwrap().set_modified(time).unwrap();
}

#[test]
fn what_was_not_used_for_longest_is_evicted_first() {
    let folder = Folder::new();
    let names: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    let store = folder.store();
    let mut known = Vec::new();
    for (n, name) in names.iter().enumerate() {
        store.put(key(name), name, &[0; PAYLOAD]);
        let file = folder.files().into_iter().find(|f| !known.contains(f)).unwrap();
        age(&file, 1000 - 10 * n as u64);
        known.push(file);
    }
    // The oldest is used, and so is the newest for the moment.
    assert!(folder.store().get(key("0")).is_some());

    let full = on_disk(&folder);
    let store = DiskStore::new(folder.path(), COMPILER, full, folder.trust());
    store.put(key("m"), "m", &[0; PAYLOAD]);
    // Eleven were there, ten may be, and a tenth below that is nine.
    let left = folder.store();
    let found: Vec<bool> = names.iter().map(|n| left.get(key(n)).is_some()).collect();
    let expected: Vec<bool> = (0..10).map(|n| n != 1 && n != 2).collect();
    assert_eq!(found, expected);
    assert!(left.get(key("m")).is_some());
    assert!(on_disk(&folder) <= full - full / 10);
}

#[test]
fn a_store_that_goes_on_writing_stays_within_the_limit() {
    let folder = Folder::new();
    let limit = 20 * PAYLOAD as u64;
    let store = DiskStore::new(folder.path(), COMPILER, limit, folder.trust());
    for n in 0..200 {
        store.put(key(&n.to_string()), "one of many", &[0; PAYLOAD]);
        assert!(on_disk(&folder) <= limit);
    }
    assert!(on_disk(&folder) > limit / 2);
}

#[test]
fn an_entry_larger_than_the_limit_stays_in_memory() {
    let folder = Folder::new();
    let store = DiskStore::new(folder.path(), COMPILER, 100, folder.trust());
    store.put(key("large"), "large", &[0; PAYLOAD]);
    assert!(folder.files().is_empty());
    assert_eq!(store.get(key("large")).map(|b| b.len()), Some(PAYLOAD));
    assert_eq!(warnings(&store), [""; 0]);
}

#[test]
fn files_of_dead_writers_are_removed_in_time() {
    let folder = Folder::new();
    folder.store().put(key("a"), "a", b"code");
    let shard = folder.files()[0].parent().unwrap().to_path_buf();
    let (dead, alive) = (shard.join(".tmp-1-1"), shard.join(".tmp-1-2"));
    for file in [&dead, &alive] {
        fs::write(file, "half of an entry").unwrap();
    }
    age(&dead, 2 * 60 * 60);
    folder.store().put(key("b"), "b", b"code");
    assert!(!dead.exists() && alive.exists());
}

/// A folder for each beginning of a name, with as many files of other processes, and one of a dead writer.
fn filled(folder: &Folder, each: usize, bytes: usize) -> Vec<PathBuf> {
    folder.store().put(key("first"), "first", b"code");
    let root = folder.files()[0].parent().unwrap().parent().unwrap().to_path_buf();
    let mut dead = Vec::new();
    for first in 0..256 {
        let shard = root.join(format!("{first:02x}"));
        fs::create_dir_all(&shard).unwrap();
        for n in 0..each {
            fs::write(shard.join(format!("{first:02x}{n:030x}")), vec![0; bytes]).unwrap();
        }
        dead.push(shard.join(".tmp-1-1"));
        fs::write(&dead[first], "half of an entry").unwrap();
        age(&dead[first], 2 * 60 * 60);
    }
    dead
}

#[test]
fn of_many_files_a_part_is_looked_at_where_there_is_room() {
    let folder = Folder::new();
    let dead = filled(&folder, 20, 16);
    folder.store().put(key("b"), "b", b"code");
    // Those of dead writers are removed where it looks.
    assert_eq!(dead.iter().filter(|f| !f.exists()).count(), 8);
    // Each time it looks somewhere else, so that in time all are gone. Tests beside this one take turns too.
    for n in 0..96 {
        folder.store().put(key(&n.to_string()), "b", b"code");
    }
    assert_eq!(dead.iter().filter(|f| f.exists()).count(), 0);
}

#[test]
fn many_files_stay_within_the_limit() {
    let folder = Folder::new();
    filled(&folder, 20, 100);
    let full = on_disk(&folder);
    let store = DiskStore::new(folder.path(), COMPILER, full / 2, folder.trust());
    store.put(key("b"), "b", b"code");
    assert!(on_disk(&folder) <= full / 2);
    assert!(store.get(key("b")).is_some());
}
