//! Launches that are replayed with other addresses and numbers.

use super::kernel::as_bytes;
use super::maps::Maps;
use crate::device::{self, About};
use std::cell::RefCell;
use std::sync::Arc;
use tessera_diag::{Diagnostic, Diagnostics};
use tessera_numerics::Scalar;
use tessera_ptx::Code;
use tessera_target::device::{Device, DeviceError, DeviceId, Function, LaunchShape, Prepared};
use tessera_target::frame::{CONTEXT, Frame, ParamKind, bits};
use tessera_target::{Packed, Queue, Settled};

/// A launch as it was.
pub struct Repeatable<'a> {
    pub code: &'a Code,
    pub function: Arc<dyn Function>,
    pub shape: LaunchShape,
    pub device: Arc<dyn Device>,
    pub about: Arc<About>,
}

struct Launch {
    function: Arc<dyn Function>,
    shape: LaunchShape,
    device: Arc<dyn Device>,
    on: DeviceId,
    words: Box<[u64]>,
    maps: Maps,
    starts: Vec<usize>,
    /// Which words are addresses and which numbers.
    addresses: Box<[usize]>,
    scalars: Box<[usize]>,
    about: Arc<About>,
    /// Bytes of the context, which launches leave zero.
    context: u64,
}

thread_local! {
    static WORDS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// `None` for code whose launches must be waited for, or need memory that is set before each
/// launch.
pub fn settle(all: Repeatable<'_>, frame: &Frame, words: &[u64]) -> Option<Arc<dyn Settled>> {
    if all.code.context > 0 && !all.code.leaves_zero() {
        return None;
    }
    let places = |wanted: fn(&ParamKind) -> bool| {
        frame.params.iter().filter(|p| wanted(&p.kind)).map(|p| p.word).collect()
    };
    let maps = Maps::new(all.code, frame, words, &all.about.loc).ok()?;
    Some(Arc::new(Launch {
        function: all.function,
        shape: all.shape,
        on: all.device.id(),
        device: all.device,
        words: words.into(),
        starts: maps.starts(words.len()),
        maps,
        addresses: places(|kind| matches!(kind, ParamKind::Array { .. })),
        scalars: places(|kind| matches!(kind, ParamKind::Scalar(_))),
        about: all.about,
        context: all.code.context.into(),
    }))
}

impl Launch {
    /// # Safety
    /// The words are those of the launch but for addresses and numbers, which are as in a launch that was checked.
    #[inline]
    unsafe fn put(&self, words: &[u64], stream: u64) -> Result<(), Diagnostics> {
        // SAFETY: the caller's promise.
        let words = as_bytes(words);
        unsafe { self.function.launch(&self.shape, words, &self.starts, stream) }
            .map_err(|error| self.failed(error))
    }

    #[cold]
    fn failed(&self, error: DeviceError) -> Diagnostics {
        let (name, loc) = (&self.about.name, &self.about.loc);
        Diagnostic::from(error.at_launch(name, loc, "")).into()
    }
}

impl Settled for Launch {
    fn launch(
        &self,
        addresses: &[u64],
        scalars: &[Scalar],
        stream: u64,
    ) -> Result<(), Diagnostics> {
        WORDS.with_borrow_mut(|words| {
            words.clear();
            words.extend_from_slice(&self.words);
            for (&place, &address) in self.addresses.iter().zip(addresses) {
                words[place] = address;
            }
            for (&place, &value) in self.scalars.iter().zip(scalars) {
                words[place] = bits(value);
            }
            self.maps.push(words, &*self.device, &self.about.loc)?;
            let queue = Queue { device: self.on, stream };
            let mut launch = |context: u64| {
                words[CONTEXT] = context;
                // SAFETY: all but addresses and numbers is as it was in a launch that was checked; the driver of
                // launches has compared the arrays' layouts with those of that one.
                unsafe { self.put(words, stream) }
            };
            match self.context {
                0 => launch(0)?,
                bytes => device::with_workspace(queue, bytes, launch)?,
            }
            device::launched(&self.function, &self.about, queue);
            Ok(())
        })
    }

    fn packed(self: Arc<Self>) -> Option<Box<dyn Packed>> {
        let (words, bytes) = (self.words.to_vec(), size_of_val(&*self.words));
        // What cannot be prepared is launched as before, and says there what is wrong with it.
        let ready = match self.starts.len() {
            0 | 1 => self.function.clone().prepared(&self.shape, bytes).ok().flatten(),
            _ => None,
        };
        Some(Box::new(Kept { words, mapped: Vec::new(), ready, launch: self }))
    }
}

/// The words of a launch, with the tensor maps behind them.
struct Kept {
    launch: Arc<Launch>,
    words: Vec<u64>,
    /// The addresses that the maps are of.
    mapped: Vec<u64>,
    /// Where there are no maps.
    ready: Option<Box<dyn Prepared>>,
}

impl Packed for Kept {
    #[inline]
    fn point(&mut self, array: usize, address: u64) {
        self.words[self.launch.addresses[array]] = address;
    }

    fn context(&self) -> u64 {
        self.launch.context
    }

    #[inline]
    fn launch(&mut self, stream: u64, context: u64) -> Result<(), Diagnostics> {
        if let Some(ready) = &self.ready {
            self.words[CONTEXT] = context;
            // SAFETY: as in `Settled::launch`.
            let done = unsafe { ready.launch(as_bytes(&self.words), stream) };
            return done.map_err(|error| self.launch.failed(error));
        }
        let Launch { maps, device, about, words, .. } = &*self.launch;
        if !maps.are_of(&self.words, &self.mapped) {
            self.words.truncate(words.len());
            self.mapped.clear();
            maps.push(&mut self.words, &**device, &about.loc)?;
            maps.of(&self.words, &mut self.mapped);
        }
        self.words[CONTEXT] = context;
        // SAFETY: as in `Settled::launch`.
        unsafe { self.launch.put(&self.words, stream) }
    }
}
