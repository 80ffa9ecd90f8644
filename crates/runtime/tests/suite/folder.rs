//! A directory of a test, and the files that a store has in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tessera_runtime::DiskStore;
use tessera_support::{Hash128, StableHasher};
use tessera_trust::{Keeper, Trust};

pub const COMPILER: &str = "0.1.0 test";
pub const LARGE: u64 = 1 << 30;

/// Removed at the end of the test. The user's key is beside it.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tessera-store-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).unwrap();
        Self(path)
    }

    pub fn trust(&self) -> Trust {
        trust(&self.0)
    }

    /// Where the key is.
    pub fn secret(&self) -> PathBuf {
        secret(&self.0)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A store with nothing in memory, as a process has that begins.
    pub fn store(&self) -> DiskStore {
        DiskStore::new(&self.0, COMPILER, LARGE, self.trust())
    }

    /// Every file below, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        let (mut files, mut folders) = (Vec::new(), vec![self.0.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let list =
                    if entry.file_type().unwrap().is_dir() { &mut folders } else { &mut files };
                list.push(entry.path());
            }
        }
        files.sort();
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        let _ = fs::remove_dir_all(self.secret());
    }
}

fn secret(dir: &Path) -> PathBuf {
    dir.with_extension("key")
}

/// As the user has it whose cache is `dir`.
pub fn trust(dir: &Path) -> Trust {
    Trust::Own(Arc::new(Keeper::new(&secret(dir))))
}

pub fn key(name: &str) -> Hash128 {
    StableHasher::of(name)
}

/// The messages of the warnings that were not handed out yet.
pub fn warnings(store: &DiskStore) -> Vec<String> {
    store.take_warnings().iter().map(|d| format!("{}: {}", d.code, d.message)).collect()
}
