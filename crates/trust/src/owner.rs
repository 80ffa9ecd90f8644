//! Who may write a file or a folder.

use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// What speaks against a file or folder. It travels as the payload of an [`io::Error`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distrust {
    pub path: PathBuf,
    /// The permissions, where they are what is wrong.
    pub mode: Option<u32>,
    why: String,
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path.display(), self.why)
    }
}

impl std::error::Error for Distrust {}

/// The reason, where an error is one of trust and not of reading.
pub fn is_unsafe(error: &io::Error) -> Option<&Distrust> {
    error.get_ref()?.downcast_ref()
}

pub(crate) fn distrust(path: &Path, mode: Option<u32>, why: impl Into<String>) -> io::Error {
    io::Error::other(Distrust { path: path.to_path_buf(), mode, why: why.into() })
}

/// Whom this process acts for.
#[cfg(unix)]
pub fn user() -> u32 {
    // SAFETY: it returns a number and cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(not(unix))]
pub fn user() -> u32 {
    0
}

/// Others than the owner may write.
const WRITABLE: u32 = 0o022;
/// Others than the owner may read or write.
const REACHABLE: u32 = 0o077;

/// That the owner of what was opened is `owner` and nobody else may write it, or read it either if it is
/// a `secret`.
#[cfg(unix)]
pub(crate) fn check(path: &Path, data: &Metadata, owner: u32, secret: bool) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    if data.uid() != owner {
        let why = format!("belongs to another user (expected uid {owner}, got {})", data.uid());
        return Err(distrust(path, None, why));
    }
    let mode = data.mode() & 0o7777;
    if mode & WRITABLE != 0 {
        return Err(distrust(
            path,
            Some(mode),
            format!("can be written by others (mode {mode:o})"),
        ));
    }
    if secret && mode & REACHABLE != 0 {
        return Err(distrust(path, Some(mode), format!("can be read by others (mode {mode:o})")));
    }
    Ok(())
}

/// Where files have no owner of this kind, the authentication code alone decides.
#[cfg(not(unix))]
pub(crate) fn check(_: &Path, _: &Metadata, _: u32, _: bool) -> io::Result<()> {
    Ok(())
}

/// That a folder belongs to `owner`, is no link, and nobody else may write it.
pub fn check_folder(folder: &Path, owner: u32) -> io::Result<()> {
    let data = fs::symlink_metadata(folder)?;
    if data.is_symlink() {
        return Err(distrust(folder, None, "is a link"));
    }
    if !data.is_dir() {
        return Err(io::Error::from(io::ErrorKind::NotADirectory));
    }
    check(folder, &data, owner, false)
}

/// Where a folder is, if it is a link: one that the user or root made is followed, and no other.
pub(crate) fn through_link(folder: &Path, owner: u32) -> io::Result<PathBuf> {
    let data = fs::symlink_metadata(folder)?;
    if !data.is_symlink() {
        return Ok(folder.to_path_buf());
    }
    if !is_link_of(&data, owner) {
        return Err(distrust(folder, None, "is a link that another user made"));
    }
    fs::canonicalize(folder)
}

#[cfg(unix)]
fn is_link_of(data: &Metadata, owner: u32) -> bool {
    use std::os::unix::fs::MetadataExt;
    data.uid() == owner || data.uid() == 0
}

#[cfg(not(unix))]
fn is_link_of(_: &Metadata, _: u32) -> bool {
    true
}

/// That a folder and all folders above it are root's, and nobody else may write any of them. The path
/// must be one without links.
pub fn check_above(folder: &Path) -> io::Result<()> {
    if cfg!(not(unix)) {
        return Err(distrust(folder, None, "is on a system where folders have no owner"));
    }
    for part in folder.ancestors().filter(|part| !part.as_os_str().is_empty()) {
        check_folder(part, 0)?;
    }
    Ok(())
}
