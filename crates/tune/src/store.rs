//! Records in a directory, one file for each subject, shared by processes. A file is complete from
//! the moment it has its name. A process that adds to a record holds the directory's lock from
//! reading to writing, so that no measurement of another process is lost.
//!
//! A record decides what code runs, so it is trusted as compiled code is: the file belongs to the user,
//! and its first field is an authentication code, under the user's key, of its name and the rest.

use crate::record::{Record, Subject};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use tessera_trust::{Key, MAC_BYTES, Trust, is_unsafe};

const LOCK: &str = ".lock";
const TEMPORARY: &str = ".tmp-";
const EXTENSION: &str = "json";
/// What the file begins with, up to the code in hexadecimal digits, and what follows the code.
const LEAD: &str = "{\"mac\": \"";
const TRAIL: &str = "\",";
/// What a code is for.
const PURPOSE: &str = "tessera tuning record 1";

#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    trust: Trust,
}

impl Store {
    pub fn new(dir: &Path, trust: Trust) -> Self {
        Self { dir: dir.to_path_buf(), trust }
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
        match self.read(&path)? {
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
        let reported = |e: io::Error| format!("{} could not be written: {e}", self.dir.display());
        let Trust::Own(keeper) = &self.trust else {
            return Err(format!("{} is shared: it is read only", self.dir.display()));
        };
        let _lock = self.lock().map_err(reported)?;
        let key = keeper.key_or_new().map_err(|why| why.message)?;
        let path = self.path(&record.subject);
        // A damaged file is of no use to anybody.
        let mut whole =
            self.read(&path).ok().flatten().filter(|found| found.subject == record.subject);
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
        let text = sealed(key, &path, &whole.text());
        write(&path, text.as_bytes(), true).map_err(reported)?;
        Ok(whole)
    }

    /// All records, in the order of their subjects, with what could not be read.
    pub fn all(&self) -> (Vec<Record>, Vec<String>) {
        let (mut records, mut faults) = (Vec::new(), Vec::new());
        for path in self.files() {
            match self.read(&path) {
                Ok(found) => records.extend(found),
                Err(why) => faults.push(why),
            }
        }
        records.sort_by(|a, b| a.subject.cmp(&b.subject));
        (records, faults)
    }

    /// Removes all records; says how many.
    pub fn clear(&self) -> usize {
        if !self.trust.may_write() {
            return 0;
        }
        self.files().into_iter().filter(|path| fs::remove_file(path).is_ok()).count()
    }

    fn files(&self) -> Vec<PathBuf> {
        if tessera_trust::check_folder(&self.dir, self.trust.owner()).is_err() {
            return Vec::new();
        }
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
        tessera_trust::check_folder(&self.dir, tessera_trust::user())?;
        let file = tessera_trust::create(&self.dir.join(LOCK), false, tessera_trust::user())?;
        match file.lock() {
            // A file system without locks: a file is whole all the same.
            Err(e) if e.kind() == ErrorKind::Unsupported => Ok(file),
            Err(e) => Err(e),
            Ok(()) => Ok(file),
        }
    }

    fn read(&self, path: &Path) -> Result<Option<Record>, String> {
        let trusted = tessera_trust::check_folder(&self.dir, self.trust.owner());
        let bytes = match trusted.and_then(|()| tessera_trust::read(path, self.trust.owner())) {
            Ok((_, bytes)) => bytes,
            // A file where a folder should be is reported when something is written.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(e) => {
                return Err(match is_unsafe(&e) {
                    Some(why) => format!("a tuning record was not used: {why}"),
                    None => format!("{} could not be read: {e}", path.display()),
                });
            }
        };
        let wrong = |why: &str| format!("{} is no record: {why}", path.display());
        let text = String::from_utf8(bytes).map_err(|_| wrong("it is not text"))?;
        let (mac, text) = opened(&text).ok_or_else(|| wrong("it has no authentication code"))?;
        if let Trust::Own(keeper) = &self.trust {
            let key = keeper.key().map_err(|why| why.message)?;
            if key.is_none_or(|key| mac != code(key, path, &text)) {
                return Err(wrong("it was not written with the user's key"));
            }
        }
        Record::parse(&text).map(Some).map_err(|why| wrong(&why))
    }
}

/// The code of a record's text under a name, in hexadecimal digits.
fn code(key: &Key, path: &Path, text: &str) -> String {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let mac = key.mac(PURPOSE, &[name, text.as_bytes()]);
    mac.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A record's text, an object, with a first field more: it is still JSON.
fn sealed(key: &Key, path: &Path, text: &str) -> String {
    let rest = text.strip_prefix('{').unwrap_or(text);
    format!("{LEAD}{}{TRAIL}{rest}", code(key, path, text))
}

/// The code of a file, and the text that it is of.
fn opened(file: &str) -> Option<(&str, String)> {
    let (mac, rest) = file.strip_prefix(LEAD)?.split_at_checked(2 * MAC_BYTES)?;
    Some((mac, format!("{{{}", rest.strip_prefix(TRAIL)?)))
}

/// Readers see what was there before, or all of `bytes`. What is `private` only the user can read.
pub(crate) fn write(path: &Path, bytes: &[u8], private: bool) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    let (temporary, mut file) = temporary(folder, private)?;
    let written = file.write_all(bytes);
    drop(file);
    let done = written.and_then(|()| fs::rename(&temporary, path));
    if done.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    done
}

/// A new file. Another user who may write the folder could have put a link under the name, so no
/// existing file is opened.
fn temporary(folder: &Path, private: bool) -> io::Result<(PathBuf, File)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    loop {
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{TEMPORARY}{}-{count}", std::process::id()));
        let file = match private {
            true => tessera_trust::create(&path, true, tessera_trust::user()),
            false => OpenOptions::new().write(true).create_new(true).open(&path),
        };
        match file {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            file => return file.map(|file| (path, file)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::RecordState;
    use crate::record::tests::{measured, subject};
    use std::sync::Arc;
    use tessera_trust::Keeper;

    /// A directory that goes with the test.
    pub struct Dir(pub PathBuf);

    impl Dir {
        pub fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("tessera-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            Dir(dir)
        }

        /// The records in it, with a key beside them.
        fn store(&self) -> Store {
            let keeper = Arc::new(Keeper::new(&self.0.join("key")));
            Store::new(&self.0.join("records"), Trust::Own(keeper))
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn concurrent_writers_lose_nothing() {
        let dir = Dir::new("tune-writers");
        let store = dir.store();
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let store = &store;
                scope.spawn(move || {
                    for iteration in 0..8 {
                        let mut record = Record::new(subject());
                        record.set(measured(&format!("BM={writer}, BN={iteration}"), &[1.0]));
                        store.add(record, false).unwrap();
                    }
                });
            }
        });
        assert_eq!(store.get(&subject()).unwrap().unwrap().rows.len(), 64);
        let left: Vec<_> =
            fs::read_dir(store.dir()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[test]
    fn new_rows_replace_old_ones_only_where_that_is_requested() {
        let dir = Dir::new("tune-replace");
        let store = dir.store();
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
    fn a_damaged_file_is_reported_and_written_anew() {
        let dir = Dir::new("tune-damage");
        let store = dir.store();
        let mut record = Record::new(subject());
        record.set(measured("BM=1", &[1.0]));
        store.add(record.clone(), false).unwrap();
        fs::write(store.path(&subject()), "{\"format\": 1").unwrap();
        assert!(store.get(&subject()).unwrap_err().contains("is no record"));
        assert_eq!(store.all().1.len(), 1);
        store.add(record, false).unwrap();
        assert_eq!(
            store.get(&subject()).unwrap().unwrap().rows["BM=1"].state,
            RecordState::Measured
        );
    }

    #[test]
    fn a_record_that_others_changed_or_put_under_another_name_is_not_used() {
        let dir = Dir::new("tune-forged");
        let store = dir.store();
        let one = |kernel: &str| {
            let mut record = Record::new(Subject { kernel: kernel.into(), ..subject() });
            record.set(measured("BM=1", &[1.0]));
            record
        };
        let (a, b) = (one("a"), one("b"));
        store.add(a.clone(), false).unwrap();
        store.add(b.clone(), false).unwrap();
        let (at, other) = (store.path(&a.subject), store.path(&b.subject));
        let good = fs::read_to_string(&at).unwrap();
        for forged in [
            good.replacen("BM=1", "BM=2", 1),
            fs::read_to_string(&other).unwrap(),
            format!("{{{}", &good[LEAD.len() + 2 * MAC_BYTES + TRAIL.len()..]),
            String::new(),
        ] {
            fs::write(&at, &forged).unwrap();
            let why = store.get(&a.subject).unwrap_err();
            assert!(why.contains("is no record: "), "{why}");
        }
        fs::write(&at, good).unwrap();
        assert!(store.get(&a.subject).unwrap().is_some());
        assert!(Dir::new("tune-other").store().get(&a.subject).unwrap().is_none());
    }

    #[cfg(unix)]
    #[test]
    fn links_fifos_and_files_that_others_can_write_are_not_used() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = Dir::new("tune-kinds");
        let store = dir.store();
        let mut record = Record::new(subject());
        record.set(measured("BM=1", &[1.0]));
        store.add(record.clone(), false).unwrap();
        let at = store.path(&subject());
        assert_eq!(fs::metadata(&at).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&at, fs::Permissions::from_mode(0o620)).unwrap();
        assert!(store.get(&subject()).unwrap_err().contains("can be written by others (mode 620)"));
        fs::set_permissions(&at, fs::Permissions::from_mode(0o600)).unwrap();
        let elsewhere = dir.0.join("elsewhere");
        fs::rename(&at, &elsewhere).unwrap();
        symlink(&elsewhere, &at).unwrap();
        assert!(store.get(&subject()).unwrap_err().ends_with("is a link"));
        // It is written anew, and the link is not followed.
        let before = fs::read(&elsewhere).unwrap();
        store.add(record, false).unwrap();
        assert!(store.get(&subject()).unwrap().is_some());
        assert_eq!(fs::read(&elsewhere).unwrap(), before);
        fs::remove_file(&at).unwrap();
        fifo(&at);
        assert!(store.get(&subject()).unwrap_err().ends_with("is not a regular file"));
    }

    #[cfg(unix)]
    fn fifo(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }
}
