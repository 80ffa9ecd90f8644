//! The store itself: memory in front, files behind. Nothing that goes wrong with a file ends a
//! compilation; the user is told once.

use crate::entry::{self, FORMAT};
use crate::files;
use crate::memory::{self, Memory};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_support::{ForkLock, Hash128, StableHasher};
use tessera_target::ObjectStore;

/// After so many writes the files are counted anew: other processes write too.
const RECOUNT: u32 = 64;

pub struct DiskStore {
    dir: PathBuf,
    pub(crate) root: PathBuf,
    compiler: String,
    limit: u64,
    /// Held for moments only, never while a file is read or written.
    pub(crate) state: ForkLock<State>,
}

#[derive(Default)]
pub(crate) struct State {
    pub memory: Memory,
    /// Set by a write that failed: from then on there is memory only.
    no_writes: bool,
    /// The bytes on disk, as far as this process knows.
    pub used: Option<u64>,
    writes: u32,
    told: BTreeSet<Trouble>,
    warnings: Diagnostics,
}

/// What is told once each.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    Damaged,
    Read,
    Write,
}

impl DiskStore {
    /// Keeps at most `limit` bytes of files under `dir`, which is made by the first write.
    /// `compiler` names the build exactly: code of another build is never found.
    pub fn new(dir: &Path, compiler: &str, limit: u64) -> Self {
        let root = dir.join("objects").join(format!("v{FORMAT}"));
        let (dir, compiler) = (dir.to_path_buf(), compiler.to_string());
        Self { dir, root, compiler, limit, state: ForkLock::default() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Warnings that were not handed out yet.
    pub fn take_warnings(&self) -> Diagnostics {
        std::mem::take(&mut self.state.lock().warnings)
    }

    /// The compiler is part of the name: two builds that share a directory do not meet.
    fn path(&self, key: Hash128) -> PathBuf {
        let mut name = StableHasher::new();
        name.write_str(&self.compiler);
        name.write_str(&key.to_string());
        files::path(&self.root, name.finish())
    }

    fn warn(&self, trouble: Trouble, warning: Diagnostic) {
        let mut state = self.state.lock();
        if state.told.insert(trouble) {
            state.warnings.push(warning);
        }
    }

    /// Looks after the limit once a file was written.
    fn wrote(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.writes += 1;
        let known = state.used.filter(|_| !state.writes.is_multiple_of(RECOUNT));
        state.used = known.map(|used| used + bytes);
        if state.used.is_some_and(|used| used <= self.limit) {
            return;
        }
        drop(state);
        let used = files::bound(&self.root, self.limit).ok();
        self.state.lock().used = used;
    }
}

impl ObjectStore for DiskStore {
    fn get(&self, key: Hash128) -> Option<Vec<u8>> {
        let kept = self.state.lock().memory.get(key);
        if let Some(bytes) = kept {
            return Some(bytes.to_vec());
        }
        let path = self.path(key);
        let bytes = match files::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if files::is_absent(&e) => return None,
            Err(e) => {
                let message = format!("{} could not be read: {e}", path.display());
                self.warn(Trouble::Read, warning(message));
                return None;
            }
        };
        match entry::decode(&bytes, &self.compiler, key) {
            Ok(payload) => {
                let kept = Arc::from(&payload[..]);
                self.state.lock().memory.put(key, kept, memory::LIMIT);
                Some(payload)
            }
            Err(damage) => {
                // Where it cannot be removed, it will be found damaged again.
                let _ = files::remove(&path);
                let message = format!("{} was not used: {damage}", path.display());
                let help = "nothing need be done: the kernel is compiled anew";
                self.warn(Trouble::Damaged, warning(message).help(help));
                None
            }
        }
    }

    fn put(&self, key: Hash128, about: &str, bytes: &[u8]) {
        let mut state = self.state.lock();
        state.memory.put(key, Arc::from(bytes), memory::LIMIT);
        if state.no_writes {
            return;
        }
        drop(state);
        let whole = entry::encode(&self.compiler, key, about, bytes);
        if whole.len() as u64 > self.limit {
            return;
        }
        match files::write(&self.path(key), &whole) {
            Ok(()) => self.wrote(whole.len() as u64),
            Err(e) => {
                self.state.lock().no_writes = true;
                let message = format!("the cache {} could not be written: {e}", self.dir.display());
                self.warn(Trouble::Write, warning(message));
            }
        }
    }
}

pub(crate) fn warning(message: String) -> Diagnostic {
    Diagnostic::new(Code::W_CACHE_IO, message)
}
