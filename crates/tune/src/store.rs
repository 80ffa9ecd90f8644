//! Records in a directory, one file for each subject, shared by processes. A file is whole from the
//! moment it has its name; who adds to one holds the directory's lock from reading to writing, so
//! that nothing another process measured is lost.

use crate::record::{Record, Subject};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const LOCK: &str = ".lock";
const TEMPORARY: &str = ".tmp-";
const EXTENSION: &str = "json";

#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn path(&self, subject: &Subject) -> PathBuf {
        self.dir.join(subject.key().to_string()).with_extension(EXTENSION)
    }

    /// What is known of a subject. `Err` says what is wrong with its file.
    pub fn get(&self, subject: &Subject) -> Result<Option<Record>, String> {
        let path = self.path(subject);
        match read(&path)? {
            // Two subjects with one hash do not happen; a file that was renamed does.
            Some(record) if record.subject != *subject => {
                Err(format!("{} is the record of something else", path.display()))
            }
            found => Ok(found),
        }
    }

    /// Adds what a record knows to what is kept, and gives all of it. With `replace` its rows take
    /// the place of those of the same candidates.
    pub fn add(&self, record: Record, replace: bool) -> Result<Record, String> {
        let told = |e: io::Error| format!("{} could not be written: {e}", self.dir.display());
        let _lock = self.lock().map_err(told)?;
        let path = self.path(&record.subject);
        // A damaged file is of no use to anybody.
        let mut whole = read(&path).ok().flatten().filter(|found| found.subject == record.subject);
        match &mut whole {
            Some(whole) if replace => {
                for row in record.rows.into_values() {
                    whole.set(row);
                }
            }
            Some(whole) => whole.merge(record),
            None => whole = Some(record),
        }
        let whole = whole.unwrap_or_default();
        write(&path, whole.text().as_bytes()).map_err(told)?;
        Ok(whole)
    }

    /// All records, in the order of their subjects, with what could not be read.
    pub fn all(&self) -> (Vec<Record>, Vec<String>) {
        let (mut records, mut faults) = (Vec::new(), Vec::new());
        for path in self.files() {
            match read(&path) {
                Ok(found) => records.extend(found),
                Err(why) => faults.push(why),
            }
        }
        records.sort_by(|a, b| a.subject.cmp(&b.subject));
        (records, faults)
    }

    /// Removes all records; says how many.
    pub fn clear(&self) -> usize {
        self.files().into_iter().filter(|path| fs::remove_file(path).is_ok()).count()
    }

    fn files(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
        paths.retain(|p| p.extension().is_some_and(|e| e == EXTENSION));
        paths.sort();
        paths
    }

    /// Held until the file is dropped, by one process at a time.
    fn lock(&self) -> io::Result<File> {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&self.dir)?;
        let path = self.dir.join(LOCK);
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        match file.lock() {
            // A file system without locks: a file is whole all the same.
            Err(e) if e.kind() == ErrorKind::Unsupported => Ok(file),
            Err(e) => Err(e),
            Ok(()) => Ok(file),
        }
    }
}

fn read(path: &Path) -> Result<Option<Record>, String> {
    match fs::read_to_string(path) {
        Ok(text) => {
            let record = Record::parse(&text);
            record.map(Some).map_err(|why| format!("{} is no record: {why}", path.display()))
        }
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("{} could not be read: {e}", path.display())),
    }
}

/// Readers see what was there before, or all of `bytes`.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let folder = path.parent().unwrap_or(path);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!("{TEMPORARY}{}-{count}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&temporary)?;
    let written = file.write_all(bytes);
    drop(file);
    let done = written.and_then(|()| fs::rename(&temporary, path));
    if done.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    done
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::State;
    use crate::record::tests::{measured, subject};

    /// A directory that goes with the test.
    pub struct Dir(pub PathBuf);

    impl Dir {
        pub fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("tessera-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            Dir(dir)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn writers_at_once_lose_nothing() {
        let dir = Dir::new("tune-writers");
        let store = Store::new(&dir.0);
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let store = &store;
                scope.spawn(move || {
                    for turn in 0..8 {
                        let mut record = Record::new(subject());
                        record.set(measured(&format!("BM={writer}, BN={turn}"), &[1.0]));
                        store.add(record, false).unwrap();
                    }
                });
            }
        });
        assert_eq!(store.get(&subject()).unwrap().unwrap().rows.len(), 64);
        let left: Vec<_> = fs::read_dir(&dir.0).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[test]
    fn new_rows_replace_old_ones_only_where_that_is_asked_for() {
        let dir = Dir::new("tune-replace");
        let store = Store::new(&dir.0);
        let one = |samples: &[f64]| {
            let mut record = Record::new(subject());
            record.set(measured("BM=1", samples));
            record
        };
        store.add(one(&[1.0, 1.0]), false).unwrap();
        assert_eq!(store.add(one(&[3.0]), false).unwrap().rows["BM=1"].samples.len(), 2);
        assert_eq!(store.add(one(&[3.0]), true).unwrap().rows["BM=1"].samples, [3.0]);
        assert_eq!(store.clear(), 1);
        assert_eq!(store.get(&subject()), Ok(None));
    }

    #[test]
    fn a_damaged_file_is_told_and_written_anew() {
        let dir = Dir::new("tune-damage");
        let store = Store::new(&dir.0);
        let mut record = Record::new(subject());
        record.set(measured("BM=1", &[1.0]));
        store.add(record.clone(), false).unwrap();
        fs::write(store.path(&subject()), "{\"format\": 1").unwrap();
        assert!(store.get(&subject()).unwrap_err().contains("is no record"));
        assert_eq!(store.all().1.len(), 1);
        store.add(record, false).unwrap();
        assert_eq!(store.get(&subject()).unwrap().unwrap().rows["BM=1"].state, State::Measured);
    }
}
