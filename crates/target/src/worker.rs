//! Compiler threads: compilation runs on a thread with a large stack, which continues where the
//! caller stops waiting.
//!
//! The caller's stack may be small (`threading.stack_size`), and parsing, passes and LLVM recurse
//! over what the user wrote. The caller also listens for an interrupt meanwhile, which nothing
//! inside LLVM could do.

use crate::interrupt::{Poll, interruption};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel, sync_channel};
use std::thread::Builder;
use std::time::Duration;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_support::ForkLock;

/// The stack of a compiler thread. Only the used part becomes memory.
pub const STACK: usize = 64 << 20;

/// Address space that must be free before a compilation. The compiler's own small allocations
/// cannot fail gracefully; they end the process.
const ROOM: usize = 128 << 20;

/// How often the host's interrupt check is called.
const LISTEN: Duration = Duration::from_millis(20);

thread_local! {
    /// Whether this is a compiler thread.
    static HERE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` on a compiler thread, and waits for it. An interrupt ends the wait but not the work:
/// `work` itself stores its result where the next caller finds it.
pub fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Diagnostics> + Send + 'static,
) -> Result<T, Diagnostics> {
    if HERE.get() {
        return work();
    }
    if Vec::<u8>::new().try_reserve_exact(ROOM).is_err() {
        return Err(no_room());
    }
    let (send, receive) = sync_channel(1);
    hand_over(Box::new(move || {
        let done = catch_unwind(AssertUnwindSafe(work));
        Box::new(move || {
            // There is no receiver where the caller was interrupted.
            let _ = send.send(done);
        })
    }))?;
    let poll = Poll::start();
    loop {
        match receive.recv_timeout(LISTEN) {
            Ok(Ok(done)) => return done,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(RecvTimeoutError::Timeout) if poll.ask() => return Err(interruption().into()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(lost()),
        }
    }
}

/// Work, which returns the function that reports its completion.
type Job = Box<dyn FnOnce() -> Box<dyn FnOnce() + Send> + Send>;

/// Idle threads, each with the process it belongs to: a forked child has none of them. A new thread
/// for each kernel would get its own part of the heap, and fragment it.
static IDLE: ForkLock<Vec<(u32, Sender<Job>)>> = ForkLock::new(Vec::new());

/// The most idle threads.
const KEPT: usize = 2;

fn hand_over(mut job: Job) -> Result<(), Diagnostics> {
    let process = std::process::id();
    let idle = || IDLE.lock().pop();
    while let Some((of, to)) = idle() {
        if of != process {
            continue;
        }
        match to.send(job) {
            Ok(()) => return Ok(()),
            Err(back) => job = back.0,
        }
    }
    let (to, jobs) = channel::<Job>();
    let serve = {
        let to = to.clone();
        move || {
            HERE.set(true);
            while let Ok(job) = jobs.recv() {
                let tell = job();
                let mut idle = IDLE.lock();
                let stays = idle.len() < KEPT;
                if stays {
                    idle.push((process, to.clone()));
                }
                drop(idle);
                tell();
                if !stays {
                    return;
                }
            }
        }
    };
    helper().spawn(serve).map_err(|e| no_thread(&e))?;
    to.send(job).map_err(|_| lost())
}

/// Runs work that borrows from the caller on such a thread, and waits for its end; on the caller's
/// thread where no other can be created.
pub fn deep<T: Send>(
    work: impl FnOnce() -> Result<T, Diagnostics> + Send,
) -> Result<T, Diagnostics> {
    if HERE.get() {
        return work();
    }
    let (mut work, mut done) = (Some(work), None);
    std::thread::scope(|scope| {
        let (work, done) = (&mut work, &mut done);
        let on_thread = move || {
            HERE.set(true);
            *done = work.take().map(|work| work());
        };
        if let Ok(thread) = helper().spawn_scoped(scope, on_thread)
            && let Err(panic) = thread.join()
        {
            resume_unwind(panic);
        }
    });
    match (done, work) {
        (Some(done), _) => done,
        (None, Some(work)) => work(),
        (None, None) => Err(lost()),
    }
}

/// A further compiler thread of a parallel compilation, with the same stack.
pub fn helper() -> Builder {
    Builder::new().name("tessera compile".into()).stack_size(STACK)
}

/// Marks this thread as one with a large stack, which no caller interrupts.
pub fn is_helper() {
    HERE.set(true);
}

fn no_thread(why: &std::io::Error) -> Diagnostics {
    let message = format!(
        "expected {} MiB of address space for the stack of a thread that compiles, got none: {why}",
        STACK >> 20
    );
    Diagnostic::new(Code::E_OOM, message).into()
}

fn no_room() -> Diagnostics {
    let message = format!("expected {} MiB of memory to compile in, got less", ROOM >> 20);
    Diagnostic::new(Code::E_OOM, message).into()
}

fn lost() -> Diagnostics {
    Diagnostic::new(Code::E_UNKNOWN, "a thread that compiled ended without a result").into()
}
