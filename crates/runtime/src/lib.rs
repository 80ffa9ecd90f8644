//! What compiled kernels need around them while programs run: [`DiskStore`], the cache of compiled
//! code, in memory and on disk, shared by all processes of a user; and the platforms of devices
//! (`tessera_target::device`): [`host`], and with the feature `cuda` NVIDIA's driver.
//!
//! ```
//! use std::sync::Arc;
//! use tessera_runtime::DiskStore;
//! use tessera_support::StableHasher;
//! use tessera_target::ObjectStore;
//! use tessera_trust::{Keeper, Trust};
//! let dir = std::env::temp_dir().join(format!("tessera-doc-{}", std::process::id()));
//! // The key that entries are authenticated with is elsewhere, in the user's configuration.
//! let secret = std::env::temp_dir().join(format!("tessera-doc-key-{}", std::process::id()));
//! let trust = Trust::Own(Arc::new(Keeper::new(&secret)));
//! let store = DiskStore::new(&dir, "0.1.0", 1 << 20, trust.clone());
//! let key = StableHasher::of("saxpy");
//! store.put(key, "saxpy for cpu", b"code");
//! // Another store, as in another process, finds it.
//! let other = DiskStore::new(&dir, "0.1.0", 1 << 20, trust);
//! assert_eq!(other.get(key).as_deref(), Some(&b"code"[..]));
//! store.clear();
//! # std::fs::remove_dir_all(&dir).unwrap();
//! # std::fs::remove_dir_all(&secret).unwrap();
//! ```

#[cfg(feature = "cuda")]
pub mod cuda;
mod disk;
mod entry;
mod files;
pub mod host;
mod manage;
mod memory;

pub use disk::DiskStore;
pub use manage::{Cleared, Entry, Listing};
