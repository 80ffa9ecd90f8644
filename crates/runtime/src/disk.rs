//! The store of compiled code: memory in front, files behind. A fault of a file never fails a
//! compilation; it is reported to the user once.

use crate::entry::{self, Damage, FORMAT};
use crate::files;
use crate::memory::{self, Memory};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_support::{ForkLock, Hash128, StableHasher};
use tessera_target::ObjectStore;
use tessera_trust::{Trust, is_unsafe, untrusted};

/// The files are counted anew after this many writes, or one for this many files where those are more: other processes write too,
/// and counting takes a time for each file.
const RECOUNT: u64 = 64;
const ANEW: &str = "nothing need be done: the kernel is compiled anew";

pub struct DiskStore {
    dir: PathBuf,
    pub(crate) root: PathBuf,
    compiler: String,
    limit: u64,
    pub(crate) trust: Trust,
    /// Held for moments only, never while a file is read or written.
    pub(crate) state: ForkLock<DiskState>,
}

#[derive(Default)]
pub(crate) struct DiskState {
    pub memory: Memory,
    /// Set by a write that failed: from then on there is memory only.
    no_writes: bool,
    /// Whether the directory is trusted, once there is one.
    trusted: Option<bool>,
    /// The bytes on disk, as far as this process knows.
    pub used: Option<u64>,
    /// How many writes there are until the files are counted anew.
    writes_left: u64,
    reported: BTreeSet<Trouble>,
    warnings: Diagnostics,
}

/// Kinds of faults; each is reported once.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    Damaged,
    Read,
    Write,
    Untrusted,
}

impl DiskStore {
    /// Keeps at most `limit` bytes of files under `dir`, which is made by the first write.
    /// `compiler` names the build exactly: code of another build is never found.
    pub fn new(dir: &Path, compiler: &str, limit: u64, trust: Trust) -> Self {
        let root = dir.join("objects").join(format!("v{FORMAT}"));
        let (dir, compiler) = (dir.to_path_buf(), compiler.to_string());
        Self { dir, root, compiler, limit, trust, state: ForkLock::default() }
    }

    /// A store that has no files and tells why: what is compiled is kept in memory.
    pub fn closed(dir: &Path, compiler: &str, limit: u64, why: Diagnostic) -> Self {
        let store = Self::new(dir, compiler, limit, Trust::Shared);
        store.state.lock().trusted = Some(false);
        store.warn(Trouble::Untrusted, why);
        store
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Why its files are trusted.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// What it has in memory: entries and bytes.
    pub fn in_memory(&self) -> (usize, usize) {
        self.state.lock().memory.census()
    }

    /// Warnings that were not handed out yet.
    pub fn take_warnings(&self) -> Diagnostics {
        std::mem::take(&mut self.state.lock().warnings)
    }

    /// The compiler is part of the name: two builds that share a directory have separate entries.
    fn path(&self, key: Hash128) -> PathBuf {
        let mut name = StableHasher::new();
        name.write_str(&self.compiler);
        name.write_str(&key.to_string());
        files::path(&self.root, name.finish())
    }

    fn warn(&self, trouble: Trouble, warning: Diagnostic) {
        let mut state = self.state.lock();
        if state.reported.insert(trouble) {
            state.warnings.push(warning);
        }
    }

    /// Whether the files may be used. The directory is checked once it exists, and the key once
    /// something was written with it. The reason not to use them is reported.
    pub fn is_trusted(&self) -> bool {
        if let Some(known) = self.state.lock().trusted {
            return known;
        }
        // The folders down to those of entries, each of which is judged when it is read.
        let inside = self.root.join("any");
        let judged = match (self.trust.judge(&self.dir, &inside), &self.trust) {
            (Ok(Some(Ok(()))), Trust::Own(keeper)) => keeper.key().map(drop),
            (Ok(Some(found)), _) => found,
            // A directory that cannot be inspected cannot be read or written either: reported then.
            (Ok(None) | Err(_), _) => return true,
        };
        self.state.lock().trusted = Some(judged.is_ok());
        if let Err(why) = judged {
            self.warn(Trouble::Untrusted, why);
            return false;
        }
        true
    }

    /// The entry of a key as bytes that are trusted.
    fn found(&self, path: &Path, key: Hash128) -> Option<Vec<u8>> {
        let bytes = match files::read(&self.trust, &self.dir, path) {
            Ok(bytes) => bytes,
            Err(e) if files::is_absent(&e) => return None,
            Err(e) => {
                match is_unsafe(&e) {
                    // What is behind a folder that is not trusted is left alone.
                    Some(why) => self.ignored(&why.path, why.to_string()),
                    None => {
                        let message = format!("{} could not be read: {e}", path.display());
                        self.warn(Trouble::Read, warning(message));
                    }
                }
                return None;
            }
        };
        let secret = match &self.trust {
            Trust::Own(keeper) => match keeper.key() {
                Ok(Some(key)) => Some(key),
                // A file that this user wrote without having a key.
                Ok(None) => {
                    self.ignored(path, format!("{} has no key", path.display()));
                    return None;
                }
                Err(why) => {
                    self.warn(Trouble::Untrusted, why);
                    return None;
                }
            },
            Trust::Shared => None,
        };
        match entry::decode(&bytes, secret, &self.compiler, key) {
            Ok(payload) => return Some(payload),
            Err(damage @ Damage::Seal) => {
                self.ignored(path, format!("{}: {damage}", path.display()));
            }
            Err(damage) => {
                self.remove(path);
                let message = format!("{} was not used: {damage}", path.display());
                self.warn(Trouble::Damaged, warning(message).help(ANEW));
            }
        }
        None
    }

    /// Leaves out a file that others could have written.
    fn ignored(&self, path: &Path, why: String) {
        self.remove(path);
        let warning = untrusted(format!("an entry of the cache was not used: {why}"));
        let warning = match path.symlink_metadata() {
            Ok(_) => warning.help(format!("remove {}: nothing in it is used", path.display())),
            Err(_) => warning.help(ANEW),
        };
        self.warn(Trouble::Untrusted, warning);
    }

    /// Where it cannot be removed, it will be found again.
    fn remove(&self, path: &Path) {
        if self.trust.may_write() {
            let _ = files::remove(path);
        }
    }

    /// An entry as it is written.
    fn sealed(&self, key: Hash128, about: &str, bytes: &[u8]) -> Option<Vec<u8>> {
        let Trust::Own(keeper) = &self.trust else { return None };
        match keeper.key_or_new() {
            Ok(secret) => Some(entry::encode(secret, &self.compiler, key, about, bytes)),
            Err(why) => {
                self.state.lock().no_writes = true;
                self.warn(Trouble::Untrusted, why);
                None
            }
        }
    }

    /// Looks after the limit once a file was written.
    fn wrote(&self, bytes: u64) {
        let mut state = self.state.lock();
        let is_new = state.writes_left == 0;
        state.writes_left = state.writes_left.saturating_sub(1);
        state.used = state.used.filter(|_| !is_new).map(|used| used + bytes);
        if state.used.is_some_and(|used| used <= self.limit) {
            return;
        }
        drop(state);
        let counted = files::bound(&self.root, self.limit).ok();
        let mut state = self.state.lock();
        state.used = counted.map(|all| all.bytes);
        state.writes_left = counted.map_or(0, |all| all.files / RECOUNT).max(RECOUNT);
    }
}

impl ObjectStore for DiskStore {
    fn get(&self, key: Hash128) -> Option<Vec<u8>> {
        let kept = self.state.lock().memory.get(key);
        if let Some(bytes) = kept {
            return Some(bytes.to_vec());
        }
        if !self.is_trusted() {
            return None;
        }
        let payload = self.found(&self.path(key), key)?;
        self.state.lock().memory.put(key, Arc::from(&payload[..]), memory::LIMIT);
        Some(payload)
    }

    fn put(&self, key: Hash128, about: &str, bytes: &[u8]) {
        let mut state = self.state.lock();
        state.memory.put(key, Arc::from(bytes), memory::LIMIT);
        if state.no_writes {
            return;
        }
        drop(state);
        if !self.is_trusted() || bytes.len() as u64 > self.limit {
            return;
        }
        let Some(whole) = self.sealed(key, about, bytes) else { return };
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
