//! The store of compiled code that this process uses, as the environment says. Opened when
//! something is compiled or asked about, never at import.

use crate::{knobs, warnings};
use std::path::PathBuf;
use std::sync::Arc;
use tessera_diag::{Diagnostic, Diagnostics};
use tessera_runtime::DiskStore;
use tessera_support::{ForkLock, StableHasher};
use tessera_target::{NoStore, ObjectStore};

pub use tessera_runtime::Entry;

/// Names this build: the version, and a hash of the sources it was made of.
pub(crate) const COMPILER: &str = concat!(env!("CARGO_PKG_VERSION"), " ", env!("TESSERA_BUILD_ID"));

/// Kept for its memory and its warnings; another one takes its place when the environment changes.
static OPEN: ForkLock<Option<Arc<DiskStore>>> = ForkLock::new(None);

/// What is kept, for people.
pub struct Listing {
    /// `None` where there is no place to keep anything.
    pub dir: Option<PathBuf>,
    /// The most bytes that may be kept.
    pub limit: u64,
    pub entries: Vec<Entry>,
    pub warnings: Vec<String>,
}

pub struct Cleared {
    pub dir: Option<PathBuf>,
    pub entries: u64,
    pub bytes: u64,
    pub warnings: Vec<String>,
}

/// Where backends keep what they compile.
pub(crate) fn store() -> Result<Arc<dyn ObjectStore>, Diagnostics> {
    if knobs::CACHE.is_off() {
        return Ok(Arc::new(NoStore));
    }
    Ok(match open()? {
        Some(store) => store,
        None => Arc::new(NoStore),
    })
}

/// What went wrong with the store and was not told yet.
pub(crate) fn take_warnings() -> impl Iterator<Item = Diagnostic> {
    let store = OPEN.lock().clone();
    store.map(|store| store.take_warnings()).unwrap_or_default().into_iter().map(advised)
}

fn open() -> Result<Option<Arc<DiskStore>>, Diagnostics> {
    let limit = knobs::cache_bytes()?;
    let Some(dir) = knobs::cache_dir() else { return Ok(None) };
    let mut open = OPEN.lock();
    if let Some(store) = &*open
        && store.dir() == dir
        && store.limit() == limit
    {
        return Ok(Some(store.clone()));
    }
    *open = Some(Arc::new(DiskStore::new(&dir, COMPILER, limit)));
    Ok(open.clone())
}

/// What is kept on disk, whether or not it is used.
pub fn entries() -> Result<Listing, Diagnostics> {
    let (store, limit) = (open()?, knobs::cache_bytes()?);
    let found = store.as_ref().map(|store| store.entries()).unwrap_or_default();
    let dir = store.map(|store| store.dir().to_path_buf());
    Ok(Listing { dir, limit, entries: found.entries, warnings: told(found.warnings) })
}

/// Removes all of it.
pub fn clear() -> Result<Cleared, Diagnostics> {
    let store = open()?;
    let done = store.as_ref().map(|store| store.clear()).unwrap_or_default();
    let dir = store.map(|store| store.dir().to_path_buf());
    Ok(Cleared { dir, entries: done.entries, bytes: done.bytes, warnings: told(done.warnings) })
}

/// For tests of Tessera itself: keeps bytes under the hash of `name`, as a backend would.
pub fn put(name: &str, about: &str, bytes: &[u8]) -> Result<(), Diagnostics> {
    store()?.put(StableHasher::of(name), about, bytes);
    Ok(())
}

/// For tests of Tessera itself: what is kept under the hash of `name`.
pub fn get(name: &str) -> Result<Option<Vec<u8>>, Diagnostics> {
    Ok(store()?.get(StableHasher::of(name)))
}

fn told(found: Diagnostics) -> Vec<String> {
    found.into_iter().map(|d| warnings::text(&advised(d))).collect()
}

/// The store does not know the environment, so what to set is said here.
fn advised(warning: Diagnostic) -> Diagnostic {
    if warning.help.is_some() {
        return warning;
    }
    let (dir, off) = (knobs::CACHE_DIR.name, knobs::CACHE.name);
    warning.help(format!(
        "name another directory in {dir}, or set {off}=0 to keep nothing between processes"
    ))
}
