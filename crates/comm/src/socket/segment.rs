//! A segment of shared memory: who sleeps, who failed, what each does, and a channel from each process to each other.

use crate::control::Offer;
use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;
use tessera_diag::{Code, Diagnostic};

const MAGIC: u64 = u64::from_le_bytes(*b"tessrng1");
/// Bytes in front of everything: the magic number, the world, the capacity of a channel, and why it was poisoned.
const FRONT: usize = 4096;
/// Bytes of what is known of a process.
const SLOT: usize = 512;
/// Bytes in front of a channel.
pub const CHANNEL: usize = 256;
/// The most bytes of a text in the front or in a slot.
const TEXT: usize = 1024;
const STATUS: usize = 384;
/// All channels together, and each.
const ALL: usize = 64 << 20;
const MOST: usize = 1 << 20;
const LEAST: usize = 16 << 10;

/// The bytes of a channel of one of `world` processes: a power of two.
fn capacity(world: usize) -> usize {
    let each = ALL / (world * world).max(1);
    let below = (each + 1).next_power_of_two() / 2;
    below.clamp(LEAST, MOST)
}

fn bytes_for(world: usize) -> usize {
    FRONT + world * SLOT + world * world * (CHANNEL + capacity(world))
}

/// A mapping of the segment.
pub struct Segment {
    base: *mut u8,
    bytes: usize,
    world: usize,
    capacity: usize,
}

// SAFETY: it is memory that all threads may use by atomics, and channels whose ends have one user each.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// The name of a segment, which is removed when this is dropped. Mappings stay.
pub struct Name(CString);

impl Drop for Name {
    fn drop(&mut self) {
        // SAFETY: a C string.
        unsafe { libc::shm_unlink(self.0.as_ptr()) };
    }
}

impl Offer for (Name, usize) {
    fn name(&self) -> String {
        self.0.0.to_string_lossy().into_owned()
    }

    fn bytes(&self) -> u64 {
        self.1 as u64
    }
}

fn system(what: &str) -> String {
    format!("{what}: {}", std::io::Error::last_os_error())
}

/// Makes a segment for `world` processes, under a name of its own. Its memory is taken now: a page that could not be had later would end
/// the process that touches it.
pub fn create(world: usize) -> Result<Box<dyn Offer>, String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let random = std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_nanos() as u64);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("/tessera-{}-{number}-{random:x}", std::process::id());
    let name = Name(CString::new(name).unwrap_or_default());
    let how = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_CLOEXEC;
    let bytes = bytes_for(world);
    // SAFETY: a C string; the descriptor is nobody else's.
    let file = unsafe {
        let fd = libc::shm_open(name.0.as_ptr(), how, 0o600);
        if fd < 0 {
            return Err(system("shared memory could not be made"));
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: an open file.
    let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) };
    if error != 0 {
        let why = std::io::Error::from_raw_os_error(error);
        return Err(format!(
            "{bytes} bytes of shared memory in /dev/shm for {world} processes could not be had ({why}): give the container more, such as `--shm-size=256m`"
        ));
    }
    let map = Segment::map(&file, bytes).map_err(|why| why.message)?;
    map.word64(0).store(MAGIC, Ordering::Relaxed);
    map.word(8).store(world as u32, Ordering::Relaxed);
    map.word64(16).store(capacity(world) as u64, Ordering::Release);
    Ok(Box::new((name, bytes)))
}

impl Segment {
    /// Maps the segment with a name, which is for `world` processes.
    pub fn open(name: &str, bytes: u64, world: usize) -> Result<Segment, Diagnostic> {
        let refused = |text: String| {
            Diagnostic::new(Code::E_COMM_INIT, text)
                .help("all processes must see one /dev/shm: start them in one container")
        };
        let wanted = bytes_for(world);
        let is_plain =
            name.strip_prefix('/').is_some_and(|n| !n.is_empty() && !n.contains(['/', '\0']));
        if bytes != wanted as u64 || !is_plain {
            return Err(refused(format!(
                "expected a segment of {wanted} bytes, got {name:?} of {bytes}"
            )));
        }
        let c = CString::new(name).map_err(|e| refused(e.to_string()))?;
        // SAFETY: a C string; the descriptor is nobody else's.
        let file = unsafe {
            let fd = libc::shm_open(c.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC, 0);
            if fd < 0 {
                return Err(refused(system(&format!(
                    "expected the shared memory {name}, got none"
                ))));
            }
            OwnedFd::from_raw_fd(fd)
        };
        // SAFETY: all zeros are a value of it.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: an open file, and a place for what is known of it.
        let known = unsafe { libc::fstat(file.as_raw_fd(), &mut found) } == 0;
        if !known || found.st_size as usize != wanted {
            return Err(refused(format!(
                "expected shared memory of {wanted} bytes, got {}",
                found.st_size
            )));
        }
        let mut map = Self::map(&file, wanted)?;
        let found = (
            map.word64(16).load(Ordering::Acquire),
            map.word64(0).load(Ordering::Relaxed),
            map.word(8).load(Ordering::Relaxed),
        );
        if found != (capacity(world) as u64, MAGIC, world as u32) {
            return Err(refused("expected shared memory of this program, got another's".into()));
        }
        (map.world, map.capacity) = (world, capacity(world));
        Ok(map)
    }

    fn map(file: &OwnedFd, bytes: usize) -> Result<Segment, Diagnostic> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of an open file of that many bytes.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, rights, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(Diagnostic::new(
                Code::E_COMM_INIT,
                system("shared memory could not be mapped"),
            ));
        }
        Ok(Segment { base: base.cast(), bytes, world: 0, capacity: 0 })
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at + 4 <= self.bytes && at.is_multiple_of(4));
        // SAFETY: inside the mapping and aligned; everybody uses it as an atomic.
        unsafe { AtomicU32::from_ptr(self.base.add(at).cast()) }
    }

    fn word64(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= self.bytes && at.is_multiple_of(8));
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.base.add(at).cast()) }
    }

    pub fn world(&self) -> usize {
        self.world
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Where the channel from one process to another begins: [`CHANNEL`] bytes, then its data.
    pub fn channel(&self, from: usize, to: usize) -> *mut u8 {
        assert!(from < self.world && to < self.world);
        let at = FRONT + self.world * SLOT + (from * self.world + to) * (CHANNEL + self.capacity);
        self.base.wrapping_add(at)
    }

    fn slot(&self, process: usize) -> usize {
        assert!(process < self.world);
        FRONT + process * SLOT
    }

    /// Counts what happened for a process: a futex.
    fn bell(&self, process: usize) -> &AtomicU32 {
        self.word(self.slot(process))
    }

    fn sleeps(&self, process: usize) -> &AtomicU32 {
        self.word(self.slot(process) + 4)
    }

    /// Tells a process that something happened that it may wait for. Comes after what happened.
    pub fn strike_bell(&self, process: usize) {
        let bell = self.bell(process);
        bell.fetch_add(1, Ordering::SeqCst);
        if self.sleeps(process).load(Ordering::SeqCst) != 0 {
            futex(bell, libc::FUTEX_WAKE, i32::MAX as u32, None);
        }
    }

    /// Sleeps until the bell of a process is struck, at most for this long; not at all where `happened` finds something. What happens after
    /// `happened` looked strikes the bell, which was read before.
    pub fn sleep(&self, process: usize, most: Duration, happened: impl FnOnce() -> bool) {
        self.sleeps(process).fetch_add(1, Ordering::SeqCst);
        let bell = self.bell(process);
        let before = bell.load(Ordering::SeqCst);
        if !happened() {
            futex(bell, libc::FUTEX_WAIT, before, Some(most));
        }
        self.sleeps(process).fetch_sub(1, Ordering::SeqCst);
    }

    /// Ends all collectives of all processes; the first reason counts.
    pub fn poison(&self, process: usize, code: Code, text: &str) {
        let who = self.word(24);
        let taken = who.compare_exchange(0, process as u32 + 1, Ordering::SeqCst, Ordering::SeqCst);
        if taken.is_ok() {
            let number = Code::ALL.iter().position(|c| *c == code).unwrap_or(0) as u32;
            self.word(32).store(number, Ordering::Relaxed);
            self.write_text(36, 40, text, TEXT);
            self.word(28).store(1, Ordering::Release);
        }
        for other in 0..self.world {
            self.strike_bell(other);
        }
    }

    /// Who poisoned it, and why.
    pub fn poisoned(&self) -> Option<(usize, Code, String)> {
        // Who took it first may not have written yet; it strikes again when it has.
        if self.word(28).load(Ordering::Acquire) == 0 {
            return None;
        }
        let who = self.word(24).load(Ordering::Relaxed) as usize;
        let code = Code::ALL.get(self.word(32).load(Ordering::Relaxed) as usize).copied();
        Some((
            who.saturating_sub(1),
            code.unwrap_or(Code::E_RANK_LOST),
            self.read_text(36, 40, TEXT),
        ))
    }

    /// Says what a process does, for others that wait for it: one writer, in its own slot. `waits` is whether it is in a collective.
    pub fn publish(&self, process: usize, waits: bool, text: &[u8]) {
        let slot = self.slot(process);
        let version = self.word(slot + 8);
        let before = version.load(Ordering::Relaxed);
        version.store(before.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.word(slot + 12).store(u32::from(waits), Ordering::Relaxed);
        self.write_bytes(slot + 16, slot + 20, text, STATUS);
        version.store(before.wrapping_add(2), Ordering::Release);
    }

    /// What a process does; `None` where it just changes.
    pub fn status(&self, process: usize) -> Option<(bool, String)> {
        let slot = self.slot(process);
        let version = self.word(slot + 8);
        let before = version.load(Ordering::Acquire);
        let waits = self.word(slot + 12).load(Ordering::Relaxed) != 0;
        let text = self.read_text(slot + 16, slot + 20, STATUS);
        fence(Ordering::Acquire);
        (before.is_multiple_of(2) && version.load(Ordering::Relaxed) == before)
            .then_some((waits, text))
    }

    fn write_text(&self, len: usize, at: usize, text: &str, most: usize) {
        self.write_bytes(len, at, text.as_bytes(), most);
    }

    /// By words: what another process reads meanwhile is old, new or mixed, and never undefined.
    fn write_bytes(&self, len: usize, at: usize, bytes: &[u8], most: usize) {
        let bytes = &bytes[..bytes.len().min(most)];
        for (i, four) in bytes.chunks(4).enumerate() {
            let mut word = [0; 4];
            word[..four.len()].copy_from_slice(four);
            self.word(at + 4 * i).store(u32::from_ne_bytes(word), Ordering::Relaxed);
        }
        self.word(len).store(bytes.len() as u32, Ordering::Relaxed);
    }

    fn read_text(&self, len: usize, at: usize, most: usize) -> String {
        let len = (self.word(len).load(Ordering::Relaxed) as usize).min(most);
        let words = (0..len.div_ceil(4)).map(|i| self.word(at + 4 * i).load(Ordering::Relaxed));
        let bytes: Vec<u8> = words.flat_map(u32::to_ne_bytes).take(len).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

fn futex(word: &AtomicU32, op: libc::c_int, value: u32, most: Option<Duration>) {
    let most = most.map(|d| libc::timespec {
        tv_sec: d.as_secs() as libc::time_t,
        tv_nsec: d.subsec_nanos() as libc::c_long,
    });
    let most = most.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
    // SAFETY: a word of shared memory, and a time or none. It may return early for any reason.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, value, most) };
}
