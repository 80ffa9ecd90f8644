//! Opens files without following links, and checks the open descriptor.

use crate::owner::{check, distrust};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

/// Flags with which nothing is followed and nothing waits: opening a FIFO would wait for a writer.
#[cfg(unix)]
fn guarded(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
}

#[cfg(not(unix))]
fn guarded(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

#[cfg(unix)]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600)
}

#[cfg(not(unix))]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Opens a regular file of `owner` that nobody else may write, for reading. A `secret` nobody else may
/// read either.
pub(crate) fn open_as(path: &Path, owner: u32, secret: bool) -> io::Result<File> {
    let file = guarded(OpenOptions::new().read(true)).open(path).map_err(|e| reported(path, e))?;
    judged(path, file, owner, secret)
}

/// Opens a regular file of `owner` that nobody else may write, for reading.
pub fn open(path: &Path, owner: u32) -> io::Result<File> {
    open_as(path, owner, false)
}

/// Opens such a file and reads all of it.
pub fn read(path: &Path, owner: u32) -> io::Result<(File, Vec<u8>)> {
    let mut file = open(path, owner)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok((file, bytes))
}

/// Opens a file for writing that only the user can read: a new one, or where `anew` is false the one
/// that is there, to append to it.
pub fn create(path: &Path, anew: bool, owner: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    match anew {
        true => options.write(true).create_new(true),
        false => options.append(true).create(true),
    };
    let file = guarded(private(&mut options)).open(path).map_err(|e| reported(path, e))?;
    if !anew {
        keep_private(&file, owner)?;
    }
    judged(path, file, owner, false)
}

/// What is only appended to may be the user's from before, with a mode that the mask of that time gave.
#[cfg(unix)]
fn keep_private(file: &File, owner: u32) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let data = file.metadata()?;
    if data.is_file() && data.uid() == owner && data.mode() & 0o077 != 0 {
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

#[cfg(not(unix))]
fn keep_private(_: &File, _: u32) -> io::Result<()> {
    Ok(())
}

fn judged(path: &Path, file: File, owner: u32, secret: bool) -> io::Result<File> {
    let data = file.metadata()?;
    if !data.is_file() {
        return Err(distrust(path, None, "is not a regular file"));
    }
    check(path, &data, owner, secret)?;
    Ok(file)
}

/// What the system says of links and of what cannot be opened without waiting, in words.
#[cfg(unix)]
fn reported(path: &Path, error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ELOOP | libc::EMLINK) => distrust(path, None, "is a link"),
        Some(libc::ENXIO | libc::EISDIR) => distrust(path, None, "is not a regular file"),
        _ => error,
    }
}

#[cfg(not(unix))]
fn reported(_: &Path, error: io::Error) -> io::Error {
    error
}
