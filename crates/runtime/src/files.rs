//! The files of the store. Any number of processes may add, replace and remove them at any moment:
//! a file is whole from the moment it has its name, and one that is gone is no error.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tessera_support::Hash128;
use tessera_trust::Trust;

/// Names of files that are being written. No key begins with it.
const TEMPORARY: &str = ".tmp-";
/// A file being written is taken for one that a dead process left after this long.
const ABANDONED: Duration = Duration::from_secs(60 * 60);
/// How often a write begins again when another process is in its way.
const ATTEMPTS: usize = 16;

/// An entry's file.
pub struct Found {
    pub path: PathBuf,
    pub bytes: u64,
    pub used: SystemTime,
}

/// Two hex digits a folder, so that no folder becomes large.
pub fn path(root: &Path, name: Hash128) -> PathBuf {
    let name = name.to_string();
    root.join(&name[..2]).join(name)
}

/// Whether an error only says that there is no such file.
pub fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Reads a file below `dir` that is trusted, and marks it as used now. The mark is for eviction only,
/// and may fail: a cache that is shared read-only is a cache.
pub fn read(trust: &Trust, dir: &Path, path: &Path) -> io::Result<Vec<u8>> {
    let (file, bytes) = trust.read(dir, path)?;
    if trust.may_write() {
        let _ = file.set_modified(SystemTime::now());
    }
    Ok(bytes)
}

/// Writes a file whole: readers see what was there before, or all of `bytes`. Nothing is flushed
/// to the medium, since a file that a power cut damaged is found by its checksum.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    let mut last = io::Error::from(ErrorKind::AlreadyExists);
    for _ in 0..ATTEMPTS {
        match attempt(folder, path, bytes) {
            Ok(()) => return Ok(()),
            // A name that another machine's process of the same id has, or a folder that went away.
            Err(e) if matches!(e.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => {
                last = e;
            }
            Err(e) => return Err(e),
        }
    }
    Err(last)
}

fn attempt(folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    make_folder(folder)?;
    let (process, count) = (std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
    let temporary = folder.join(format!("{TEMPORARY}{process}-{count}"));
    let mut file = tessera_trust::create(&temporary, true, tessera_trust::user())?;
    let written = file.write_all(bytes);
    drop(file);
    let done = written.and_then(|()| fs::rename(&temporary, path));
    if done.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    done
}

/// Code that is loaded and run must not be others' to change: folders are made for the user alone.
fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Every entry's file, in the order of their names. Files that are not the store's are left out;
/// those that dead processes left behind are removed.
pub fn list(root: &Path) -> io::Result<Vec<Found>> {
    let mut out: Vec<Found> = folders(root)?.iter().flat_map(|folder| entries(folder)).collect();
    out.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(out)
}

fn folders(root: &Path) -> io::Result<Vec<PathBuf>> {
    let is_one = |folder: &fs::DirEntry| {
        is_hex(&folder.file_name().to_string_lossy(), 2)
            && folder.file_type().is_ok_and(|t| t.is_dir())
    };
    let mut out: Vec<PathBuf> =
        read_folder(root)?.iter().filter(|f| is_one(f)).map(fs::DirEntry::path).collect();
    out.sort();
    Ok(out)
}

/// One that cannot be read or went away holds nothing to count.
fn entries(folder: &Path) -> Vec<Found> {
    read_folder(folder).unwrap_or_default().iter().filter_map(found).collect()
}

fn found(file: &fs::DirEntry) -> Option<Found> {
    let (name, path) = (file.file_name(), file.path());
    let name = name.to_string_lossy();
    let data = file.metadata().ok().filter(|data| data.is_file())?;
    let used = data.modified().ok()?;
    if name.starts_with(TEMPORARY) && used.elapsed().is_ok_and(|age| age > ABANDONED) {
        let _ = fs::remove_file(&path);
    }
    is_hex(&name, 32).then_some(Found { path, bytes: data.len(), used })
}

fn read_folder(folder: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(folder) {
        Ok(entries) => Ok(entries.flatten().collect()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

fn is_hex(name: &str, digits: usize) -> bool {
    name.len() == digits && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Removes a file; that it was removed already is as good.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if !is_absent(&e) => Err(e),
        _ => Ok(()),
    }
}

/// What the files are together.
#[derive(Copy, Clone, Default, Debug)]
pub struct Total {
    pub bytes: u64,
    pub files: u64,
}

/// Up to this many files are counted one by one.
const FEW: u64 = 4096;
/// Of more files those of one folder in this many are counted: names are hashes, so folders are alike.
const SAMPLE: usize = 32;

/// Gives what is on disk after removing what was not used for longest, if it was more than `limit`. It goes a tenth below the
/// limit, so that the next write need not do it again. Where files are many and there is room, it is estimated: to look at each
/// of 100 000 files takes half a second, and a minute where none of them is in the system's memory.
pub fn bound(root: &Path, limit: u64) -> io::Result<Total> {
    if let Some(estimated) = estimate(root)?.filter(|e| e.bytes <= limit - limit / 4) {
        return Ok(estimated);
    }
    let mut files = list(root)?;
    let mut left = total(&files);
    if left.bytes <= limit {
        return Ok(left);
    }
    files.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
    let goal = limit - limit / 10;
    for file in files {
        if left.bytes <= goal {
            break;
        }
        if remove(&file.path).is_ok() {
            left.bytes -= file.bytes;
            left.files -= 1;
        }
    }
    Ok(left)
}

fn total(files: &[Found]) -> Total {
    Total { bytes: files.iter().map(|f| f.bytes).sum(), files: files.len() as u64 }
}

/// What the files are together by those of some folders, each time of others; none where they are few.
fn estimate(root: &Path) -> io::Result<Option<Total>> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let folders = folders(root)?;
    if folders.len() < SAMPLE {
        return Ok(None);
    }
    let first = u64::from(std::process::id()) + COUNT.fetch_add(1, Ordering::Relaxed);
    let sample: Vec<Found> = folders
        .iter()
        .skip((first % SAMPLE as u64) as usize)
        .step_by(SAMPLE)
        .flat_map(|folder| entries(folder))
        .collect();
    let Total { bytes, files } = total(&sample);
    let all = Total { bytes: bytes * SAMPLE as u64, files: files * SAMPLE as u64 };
    Ok(Some(all).filter(|all| all.files > FEW))
}
