//! Which files on disk this process may believe. Machine code that a cache holds is executed, so a
//! file counts only if the user, or the administrator, wrote it:
//!
//! - [`Trust::Own`]: the file is the user's and nobody else may write it, and it carries a message
//!   authentication code under a key that only the user can read ([`Keeper`]).
//! - [`Trust::Shared`]: the file is root's, as is every folder above it, and nobody else may write any
//!   of them. Such a cache is read and never written.
//!
//! `SECURITY.md` has the threat model. Files are judged by their open descriptor, so that what was
//! looked at is what is read.

mod files;
mod key;
mod owner;

pub use files::{create, open, read};
pub use key::{Keeper, Key, MAC_BYTES, Mac};
pub use owner::{Distrust, check_above, check_folder, is_unsafe, user};

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic};

/// Why the files of a folder are believed.
#[derive(Clone, Debug)]
pub enum Trust {
    Own(Arc<Keeper>),
    Shared,
}

impl Trust {
    /// Whom files must belong to.
    pub fn owner(&self) -> u32 {
        match self {
            Trust::Own(_) => user(),
            Trust::Shared => 0,
        }
    }

    pub fn may_write(&self) -> bool {
        matches!(self, Trust::Own(_))
    }

    /// Judges the folder of a cache and those between it and a file `inside`; `None` while there is no such
    /// folder.
    pub fn judge(&self, dir: &Path, inside: &Path) -> io::Result<Option<Result<(), Diagnostic>>> {
        let found = match self {
            Trust::Own(keeper) if keeper.is_inside(dir) => return Ok(Some(Err(key_inside(dir)))),
            Trust::Own(_) => {
                owner::through_link(dir, user()).and_then(|dir| check_folder(&dir, user()))
            }
            Trust::Shared => check_above(dir),
        };
        let between = |()| match self.check_between(dir, inside) {
            // The first writer makes the rest.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            found => found,
        };
        match found.and_then(between) {
            Ok(()) => Ok(Some(Ok(()))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => match is_unsafe(&e) {
                Some(found) => Ok(Some(Err(self.refusal(dir, found)))),
                None => Err(e),
            },
        }
    }

    /// Refuses a file below a folder that was judged, unless it and the folders between are trusted:
    /// none is a link, and all have the same owner and no other writer.
    pub fn read(&self, dir: &Path, path: &Path) -> io::Result<(std::fs::File, Vec<u8>)> {
        self.check_between(dir, path)?;
        read(path, self.owner())
    }

    /// The folders between `dir` and a file below it.
    pub fn check_between(&self, dir: &Path, path: &Path) -> io::Result<()> {
        let below = path.strip_prefix(dir).ok().and_then(Path::parent).unwrap_or(Path::new(""));
        let mut folder = PathBuf::from(dir);
        for part in below {
            folder.push(part);
            check_folder(&folder, self.owner())?;
        }
        Ok(())
    }

    fn refusal(&self, dir: &Path, found: &Distrust) -> Diagnostic {
        let place = found.path.display();
        let message = format!("the cache {} is not used: {found}", dir.display());
        let help = match self {
            Trust::Own(_) if found.mode.is_some() => format!(
                "`chmod go-w {place}` if nobody else should write there, or name another directory in TESSERA_CACHE_DIR"
            ),
            Trust::Own(_) => "name a directory of your own in TESSERA_CACHE_DIR".to_string(),
            Trust::Shared => {
                "a shared cache and all folders above it belong to root and only root may write \
                them; unset TESSERA_CACHE_SHARED for a cache of your own"
                    .to_string()
            }
        };
        untrusted(message).help(help)
    }
}

/// A warning that something on disk is not used because others could have written it.
pub fn untrusted(message: String) -> Diagnostic {
    Diagnostic::new(Code::W_CACHE_UNTRUSTED, message)
}

fn key_inside(dir: &Path) -> Diagnostic {
    let message = format!("the cache {} is not used: its key would be in it", dir.display());
    untrusted(message)
        .help("name a directory in TESSERA_CACHE_DIR that the user's configuration is not in")
}
