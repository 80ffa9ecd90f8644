//! The user's key, and what is authenticated with it.

use crate::files::open_as;
use crate::owner::{check_folder, is_unsafe, through_link, user};
use crate::{create, untrusted};
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use tessera_diag::Diagnostic;

pub const MAC_BYTES: usize = 32;
/// A message authentication code.
pub type Mac = [u8; MAC_BYTES];

const KEY_BYTES: usize = 32;
const NAME: &str = "cache-key";

/// A secret of the user's. It is in no output: there is no way to print it.
pub struct Key([u8; KEY_BYTES]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// Of parts that are distinguished by their lengths, for one purpose: the same parts for another purpose
    /// have another code.
    pub fn mac(&self, purpose: &str, parts: &[&[u8]]) -> Mac {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in std::iter::once(purpose.as_bytes()).chain(parts.iter().copied()) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }

    /// Whether a code is that of the parts. It takes as long whatever differs.
    pub fn is_mac(&self, mac: &Mac, purpose: &str, parts: &[&[u8]]) -> bool {
        blake3::Hash::from_bytes(self.mac(purpose, parts)) == blake3::Hash::from_bytes(*mac)
    }
}

/// Where the key is kept: a folder of the user's configuration.
#[derive(Debug)]
pub struct Keeper {
    folder: PathBuf,
    /// Read once. Who removes the key while a process runs makes it keep what others will not believe.
    key: OnceLock<Key>,
}

impl Keeper {
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), key: OnceLock::new() }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the key would be below `dir`.
    pub(crate) fn is_inside(&self, dir: &Path) -> bool {
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        // The folder may not be there yet, and one above it a link.
        self.folder.starts_with(dir)
            || self.folder.ancestors().any(|above| real(above) == real(dir))
    }

    /// The key, or `None` where there is none yet: then nothing was written with it.
    pub fn key(&self) -> Result<Option<&Key>, Diagnostic> {
        if let Some(key) = self.key.get() {
            return Ok(Some(key));
        }
        match self.read() {
            Ok(key) => Ok(Some(self.key.get_or_init(|| key))),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.refusal(&e)),
        }
    }

    /// The key, which is made where there is none.
    pub fn key_or_new(&self) -> Result<&Key, Diagnostic> {
        if let Some(key) = self.key()? {
            return Ok(key);
        }
        let made = self.make().and_then(|()| self.read());
        made.map(|key| self.key.get_or_init(|| key)).map_err(|e| self.refusal(&e))
    }

    fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    fn read(&self) -> io::Result<Key> {
        check_folder(&through_link(&self.folder, user())?, user())?;
        let mut file = open_as(&self.path(), user(), true)?;
        let mut key = [0; KEY_BYTES];
        file.read_exact(&mut key)?;
        if file.read(&mut [0])? != 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(Key(key))
    }

    /// Makes a key. Of several processes that do so concurrently one wins, and none reads half a
    /// key: the file gets its name when it is complete, and only if no other file has it.
    fn make(&self) -> io::Result<()> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&self.folder)?;
        check_folder(&through_link(&self.folder, user())?, user())?;
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let temporary = self.folder.join(format!(".{NAME}-{}-{count}", std::process::id()));
        let written = create(&temporary, true, user()).and_then(|mut f| f.write_all(&key));
        let linked = written.and_then(|()| fs::hard_link(&temporary, self.path()));
        let _ = fs::remove_file(&temporary);
        match linked {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
            // A file system without such links: half a key is then possible, and refused by its length.
            Err(e) if matches!(e.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied) => {
                match create(&self.path(), true, user()) {
                    Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
                    file => file?.write_all(&key),
                }
            }
            other => other,
        }
    }

    fn refusal(&self, error: &io::Error) -> Diagnostic {
        let path = self.path();
        let path = path.display();
        if error.kind() == ErrorKind::UnexpectedEof {
            let message =
                format!("no cache is used: the key {path} does not have {KEY_BYTES} bytes");
            return untrusted(message).help(format!("remove {path}: another is made"));
        }
        match is_unsafe(error) {
            Some(found) if found.path == self.path() => {
                untrusted(format!("no cache is used: the key {found}"))
                    .help(format!("remove {path}: another is made, and kernels are compiled anew"))
            }
            Some(found) => {
                let place = found.path.display();
                untrusted(format!("no cache is used: {found}, and its key is there")).help(format!(
                    "`chmod 700 {place}` if it is yours, or name another folder in XDG_CONFIG_HOME"
                ))
            }
            None => untrusted(format!(
                "no cache is used: its key {path} cannot be read or made: {error}"
            ))
            .help("name a folder in XDG_CONFIG_HOME that can be written, or set TESSERA_CACHE=0"),
        }
    }
}
