//! Listing and clearing the store, for the command line.

use crate::DiskStore;
use crate::disk::{DiskState, warning};
use crate::entry::{Damage, Head};
use crate::files::{self, Found};
use std::io::{BufReader, Seek};
use std::path::Path;
use std::time::Duration;
use tessera_diag::Diagnostics;
use tessera_support::Hash128;

/// One kernel that is kept on disk, of whichever build.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: Hash128,
    pub about: String,
    /// What it takes on disk.
    pub bytes: u64,
    /// Since it was used last.
    pub age: Duration,
}

#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// What was used last comes first.
    pub entries: Vec<Entry>,
    pub warnings: Diagnostics,
}

#[derive(Clone, Debug, Default)]
pub struct Cleared {
    pub entries: u64,
    pub bytes: u64,
    pub warnings: Diagnostics,
}

impl DiskStore {
    /// What is on disk, read no further than needed to tell what it is: nothing is compared with
    /// its checksum.
    pub fn entries(&self) -> Listing {
        let mut out = Listing::default();
        if !self.is_trusted() {
            out.warnings = self.take_warnings();
            return out;
        }
        for file in self.files(&mut out.warnings) {
            match self.head(&file.path) {
                Ok(Some(head)) => out.entries.push(Entry {
                    key: head.key,
                    about: head.about,
                    bytes: file.bytes,
                    age: file.used.elapsed().unwrap_or_default(),
                }),
                Ok(None) => {}
                Err(why) => {
                    let message = format!("{} is not listed: {why}", file.path.display());
                    out.warnings.push(warning(message));
                }
            }
        }
        out.entries.sort_by_key(|entry| (entry.age, entry.key));
        out
    }

    /// Removes all entries, those of other builds and damaged ones too, from memory and from disk.
    /// The folders stay: another process may be about to write into one.
    pub fn clear(&self) -> Cleared {
        let mut out = Cleared::default();
        if !self.is_trusted() {
            out.warnings = self.take_warnings();
            return out;
        }
        if !self.trust.may_write() {
            let message = format!("the cache {} is shared: it is read only", self.dir().display());
            out.warnings.push(warning(message));
            return out;
        }
        for file in self.files(&mut out.warnings) {
            match files::remove(&file.path) {
                Ok(()) => {
                    out.entries += 1;
                    out.bytes += file.bytes;
                }
                Err(e) => {
                    let message = format!("{} could not be removed: {e}", file.path.display());
                    out.warnings.push(warning(message));
                }
            }
        }
        let DiskState { memory, used, .. } = &mut *self.state.lock();
        (*memory, *used) = Default::default();
        out
    }

    fn files(&self, warnings: &mut Diagnostics) -> Vec<Found> {
        files::list(&self.root).unwrap_or_else(|e| {
            let dir = self.dir().display();
            warnings.push(warning(format!("the cache {dir} could not be read: {e}")));
            Vec::new()
        })
    }

    /// What a file is; `None` where another process removed it meanwhile.
    fn head(&self, path: &Path) -> Result<Option<Head>, String> {
        let trusted = self.trust.check_between(self.dir(), path);
        let file = match trusted.and_then(|()| tessera_trust::open(path, self.trust.owner())) {
            Ok(file) => file,
            Err(e) if files::is_absent(&e) => return Ok(None),
            Err(e) => return Err(e.to_string()),
        };
        let whole = file.metadata().map_err(|e| e.to_string())?.len();
        let mut from = BufReader::new(file);
        let head = Head::read(&mut from).map_err(|damage| damage.to_string())?;
        let read = from.stream_position().map_err(|e| e.to_string())?;
        match read.checked_add(head.payload) {
            Some(expected) if expected == whole => Ok(Some(head)),
            _ => Err(Damage::Short.to_string()),
        }
    }
}
