//! Compiled code that outlives a process.

use tessera_support::Hash128;

/// Where backends keep compiled code between processes. Losing an entry costs time, never a result.
///
/// A key covers all that the bytes depend on, apart from the compiler itself, which the store
/// adds: the IR's hash, the options, the architecture, and the versions of libraries and drivers.
pub trait ObjectStore: Send + Sync {
    fn get(&self, key: Hash128) -> Option<Vec<u8>>;
    /// `about` is one line for people: kernel, target, size class.
    fn put(&self, key: Hash128, about: &str, bytes: &[u8]);
}

/// Never finds, keeps nothing.
#[derive(Copy, Clone, Debug, Default)]
pub struct NoStore;

impl ObjectStore for NoStore {
    fn get(&self, _: Hash128) -> Option<Vec<u8>> {
        None
    }

    fn put(&self, _: Hash128, _: &str, _: &[u8]) {}
}
