//! A folder for one run of a tool, for this user alone.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const ATTEMPTS: usize = 16;

/// Removed at the end.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// A new folder: one that is there already may be another's, and is not used.
    pub fn new() -> io::Result<Self> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let mut last = io::Error::from(ErrorKind::AlreadyExists);
        for _ in 0..ATTEMPTS {
            let count = COUNTER.fetch_add(1, Ordering::Relaxed);
            let name = format!("tessera-ptxas-{}-{count}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match builder.create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => last = e,
                Err(e) => return Err(e),
            }
        }
        Err(last)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
