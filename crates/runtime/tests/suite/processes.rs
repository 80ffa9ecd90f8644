//! Many threads and processes on one directory. This program starts itself again as the others.

use crate::folder::{COMPILER, Folder, key, trust, warnings};
use std::path::Path;
use std::process::{Child, Command};
use tessera_runtime::DiskStore;
use tessera_target::ObjectStore;

const DIRECTORY: &str = "STORE_TEST_DIRECTORY";
const KEYS: usize = 16;
const ROUNDS: usize = 150;

/// What belongs to a key: distinguished from any other, and from half of itself.
fn payload(n: usize) -> Vec<u8> {
    (0..5000 + 100 * n).map(|i| (i * (n + 3)) as u8).collect()
}

/// Stores and finds all keys over and over, each time as if in a new process; so small a limit
/// that files are evicted all the time, and now and then all are removed.
fn hammer(dir: &Path, seed: usize) {
    for round in 0..ROUNDS {
        let store = DiskStore::new(dir, COMPILER, 40_000, trust(dir));
        for step in 0..KEYS {
            let n = (step * 7 + round * 3 + seed) % KEYS;
            match store.get(key(&n.to_string())) {
                Some(found) => assert!(found == payload(n), "{n} is not what was stored"),
                None => store.put(key(&n.to_string()), &format!("entry {n}"), &payload(n)),
            }
        }
        if (round + seed).is_multiple_of(50) {
            store.clear();
        }
        assert_eq!(store.entries().warnings.render(), "");
        assert_eq!(warnings(&store), [""; 0]);
    }
}

fn start(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::threads_and_processes_share_a_directory"])
        .env(DIRECTORY, dir)
        .spawn()
        .unwrap()
}

#[test]
fn threads_and_processes_share_a_directory() {
    let given = std::env::var_os(DIRECTORY);
    let folder = Folder::new();
    let dir = given.as_ref().map_or(folder.path(), Path::new);
    let others: Vec<Child> =
        if given.is_some() { Vec::new() } else { (0..2).map(|_| start(dir)).collect() };
    let base = std::process::id() as usize;
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || hammer(dir, base + 5 * thread));
        }
    });
    for mut other in others {
        assert!(other.wait().unwrap().success());
    }
    if given.is_none() {
        assert!(folder.files().iter().all(|f| !f.to_string_lossy().contains(".tmp-")));
    }
}
