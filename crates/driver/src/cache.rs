//! The store of compiled code of this process, as the environment sets it. It is opened when
//! something is compiled or the cache is inspected, never at import.

use crate::{knobs, warnings};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tessera_diag::{Diagnostic, Diagnostics};
use tessera_runtime::DiskStore;
use tessera_support::{ForkLock, StableHasher};
use tessera_target::{NoStore, ObjectStore};
use tessera_trust::{Keeper, Trust};

pub use tessera_runtime::Entry;

/// Names this build: the version, and a hash of the sources it was made of.
pub const COMPILER: &str = concat!(env!("CARGO_PKG_VERSION"), " ", env!("TESSERA_BUILD_ID"));

/// Kept for its memory and its warnings; another one takes its place when the environment changes.
static OPEN: ForkLock<Option<(Wanted, Arc<DiskStore>)>> = ForkLock::new(None);

/// What the environment says.
#[derive(PartialEq)]
struct Wanted {
    dir: PathBuf,
    limit: u64,
    shared: bool,
    config: Option<PathBuf>,
}

impl Wanted {
    /// `None` where there is no place to keep anything.
    fn now() -> Result<Option<Self>, Diagnostics> {
        knobs::check()?;
        let (limit, shared) = (knobs::cache_bytes()?, knobs::cache_is_shared()?);
        let config = knobs::config_dir();
        Ok(knobs::cache_dir().map(|dir| Self { dir, limit, shared, config }))
    }

    fn store(&self) -> DiskStore {
        let Self { dir, limit, shared, config } = self;
        match (shared, config) {
            // What is judged is where links lead, and so it is what is read.
            (true, _) => {
                let real = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.clone());
                DiskStore::new(&real, COMPILER, *limit, Trust::Shared)
            }
            (false, Some(config)) => DiskStore::new(dir, COMPILER, *limit, own(config)),
            (false, None) => {
                let why = "there is no home directory for the key that its entries are authenticated with";
                let message = format!("the cache {} is not used: {why}", dir.display());
                let help = "set HOME, or name a folder in XDG_CONFIG_HOME";
                let why = tessera_trust::untrusted(message).help(help);
                DiskStore::closed(dir, COMPILER, *limit, why)
            }
        }
    }
}

fn own(config: &Path) -> Trust {
    Trust::Own(Arc::new(Keeper::new(config)))
}

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

/// What the store has in memory: entries and bytes.
pub(crate) fn in_memory() -> (usize, usize) {
    let store = OPEN.lock().as_ref().map(|(_, store)| store.clone());
    store.map_or((0, 0), |store| store.in_memory())
}

/// What went wrong with the store and was not reported yet.
pub(crate) fn take_warnings() -> impl Iterator<Item = Diagnostic> {
    let store = OPEN.lock().as_ref().map(|(_, store)| store.clone());
    store.map(|store| store.take_warnings()).unwrap_or_default().into_iter().map(advised)
}

/// The same as texts, for what compiles without a kernel's record of warnings.
pub fn pending() -> Vec<String> {
    take_warnings().map(|d| warnings::text(&d)).collect()
}

fn open() -> Result<Option<Arc<DiskStore>>, Diagnostics> {
    let Some(wanted) = Wanted::now()? else { return Ok(None) };
    let mut open = OPEN.lock();
    if let Some((by, store)) = &*open
        && *by == wanted
    {
        return Ok(Some(store.clone()));
    }
    let store = Arc::new(wanted.store());
    *open = Some((wanted, store.clone()));
    Ok(Some(store))
}

/// The directory of the cache, and why its files are trusted; none where they are not, which the store
/// tells.
pub(crate) fn trusted() -> Option<(PathBuf, Trust)> {
    let store = open().ok()??;
    store.is_trusted().then(|| (store.dir().to_path_buf(), store.trust().clone()))
}

/// Why files are trusted in a directory that a program names for itself: only what the user wrote is.
pub(crate) fn trust_of_named() -> Option<Trust> {
    knobs::config_dir().map(|config| own(&config))
}

/// What is kept on disk, whether or not it is used.
pub fn entries() -> Result<Listing, Diagnostics> {
    let (store, limit) = (open()?, knobs::cache_bytes()?);
    let found = store.as_ref().map(|store| store.entries()).unwrap_or_default();
    let dir = store.map(|store| store.dir().to_path_buf());
    Ok(Listing { dir, limit, entries: found.entries, warnings: reported(found.warnings) })
}

/// Removes all of it.
pub fn clear() -> Result<Cleared, Diagnostics> {
    let store = open()?;
    let done = store.as_ref().map(|store| store.clear()).unwrap_or_default();
    let dir = store.map(|store| store.dir().to_path_buf());
    Ok(Cleared { dir, entries: done.entries, bytes: done.bytes, warnings: reported(done.warnings) })
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

fn reported(found: Diagnostics) -> Vec<String> {
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
