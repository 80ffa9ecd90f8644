//! What compiled kernels need around them while programs run: [`DiskStore`], the cache of compiled
//! code, in memory and on disk, shared by all processes of a user; and, with the feature `cuda`,
//! NVIDIA's driver.
//!
//! ```
//! use tessera_runtime::DiskStore;
//! use tessera_support::StableHasher;
//! use tessera_target::ObjectStore;
//! let dir = std::env::temp_dir().join(format!("tessera-doc-{}", std::process::id()));
//! let store = DiskStore::new(&dir, "0.1.0", 1 << 20);
//! let key = StableHasher::of("saxpy");
//! store.put(key, "saxpy for cpu", b"code");
//! // Another store, as in another process, finds it.
//! assert_eq!(DiskStore::new(&dir, "0.1.0", 1 << 20).get(key).as_deref(), Some(&b"code"[..]));
//! store.clear();
//! # std::fs::remove_dir_all(&dir).unwrap();
//! ```

#[cfg(feature = "cuda")]
pub mod cuda;
mod disk;
mod entry;
mod files;
mod manage;
mod memory;

pub use disk::DiskStore;
pub use manage::{Cleared, Entry, Listing};
