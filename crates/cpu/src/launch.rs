//! One launch: arguments become words, groups are divided among the threads.

use crate::backend::Kernel;
use crate::build::Variant;
use crate::code::{Context, Shared};
use crate::frame;
use std::cell::RefCell;
use std::sync::Mutex;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_target::LaunchArgs;
use tessera_tile::{KernelKind, kind_of};

/// Lanes of one group.
const MAX_LANES: i64 = 1 << 16;

thread_local! {
    /// Kept between launches: making room anew each time costs more than a small kernel.
    static ROOM: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

/// Calls `f` with at least so many bytes that belong to this thread.
fn with_room<R>(bytes: u64, f: impl FnOnce(*mut u8) -> R) -> R {
    ROOM.with(|room| {
        let lines = bytes.div_ceil(64) as usize;
        match room.try_borrow_mut() {
            Ok(mut room) => {
                if room.len() < lines {
                    room.resize(lines, Line([0; 64]));
                }
                f(room.as_mut_ptr().cast())
            }
            // A launch inside of a launch on one thread.
            Err(_) => f(vec![Line([0; 64]); lines].as_mut_ptr().cast()),
        }
    })
}

pub fn launch(kernel: &Kernel, args: &LaunchArgs) -> Result<(), Diagnostics> {
    let func = &kernel.func;
    let kind = kind_of(func).unwrap_or(KernelKind::Group);
    if kind == KernelKind::Lane && !(1..=MAX_LANES).contains(&args.lanes) {
        let why = format!("expected 1 to {MAX_LANES} lanes in a group, got {}", args.lanes);
        return Err(Diagnostic::new(Code::E_ARGUMENT, why).at(func.loc.clone()).into());
    }
    let (mut words, mut layouts) = (Vec::new(), Vec::new());
    kernel.frame.fill(func, args, &mut words, &mut layouts)?;
    let groups = args.grid.iter().try_fold(1i64, |n, &g| n.checked_mul(g.max(0))).unwrap_or(i64::MAX);
    if groups == 0 {
        return Ok(());
    }
    let variant = kernel.variant(&layouts)?;
    let shared =
        Shared { name: &func.name, kind, grid: args.grid, prints: &variant.prints };
    let run = Run { variant: &variant, words: &words, shared: &shared, failure: Mutex::new(None) };
    run.all(groups, args.lanes);
    match run.failure.into_inner().unwrap_or_default() {
        Some(failure) => Err(failure.into()),
        None => Ok(()),
    }
}

struct Run<'a> {
    variant: &'a Variant,
    words: &'a [u64],
    shared: &'a Shared<'a>,
    failure: Mutex<Option<Diagnostic>>,
}

impl Run<'_> {
    fn all(&self, groups: i64, lanes: i64) {
        let total = if self.variant.parts { 1 } else { groups };
        self.chunk(0, total, lanes);
    }

    /// Runs some groups on this thread; false where the kernel stopped.
    fn chunk(&self, begin: i64, end: i64, lanes: i64) -> bool {
        let slots = self.variant.slots * (lanes.max(64) as u64) * 8;
        let fixed = self.variant.scratch_bytes.next_multiple_of(64);
        with_room(fixed + slots + 512, |room| {
            let mut context = Context {
                group: [0; 3],
                lane: 0,
                countdown: 0,
                stop: None,
                shared: self.shared,
            };
            let mut words = self.words.to_vec();
            words[frame::CONTEXT] = &raw mut context as u64;
            words[frame::SLOTS] = room as u64 + fixed;
            // SAFETY: the words are what the code was generated for, checked against the types by
            // `Frame::fill`; arrays are the caller's for the launch; the room is large enough.
            let site = unsafe { (self.variant.entry)(words.as_ptr(), room, begin, end) };
            if site == 0 {
                return true;
            }
            let place = self.shared.place(context.group, context.lane);
            let failure = self.variant.sites.get(site as usize - 1).map(|s| s.diagnostic(&place));
            *self.failure.lock().unwrap_or_else(|e| e.into_inner()) = failure;
            false
        })
    }
}
