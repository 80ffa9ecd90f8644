//! Runs candidates and takes their times: on the host by its clock, on a device by events around
//! the launch, with the device's cache emptied before.

use super::candidates::Candidate;
use super::hook::{self, Moment, Phase};
use super::memory::Copy;
use crate::device;
use crate::kernel::KernelHandle;
use crate::launch::Prepared;
use crate::specialise::{Specialised, first_message};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::sync::Arc;
use std::time::Instant;
use tessera_diag::{Code, Diagnostics};
use tessera_target::device::DeviceId;
use tessera_target::{ArgValue, LaunchArgs, Poll, Queue, is_interrupt};
use tessera_tune::search::{self, Failure, Progress};
use tessera_tune::{Record, RecordState, Row, Store};

pub struct Runner<'a> {
    kernel: &'a KernelHandle,
    entries: Vec<Entry>,
    clock: Clock,
    poll: Poll,
    /// Whether the host requested to stop.
    stopped: bool,
    /// By the kernel's parameter: memory that is written instead of the caller's arrays.
    copies: BTreeMap<usize, Written>,
    /// Where a candidate that is about to run is noted, lest it take the process with it.
    journal: Option<(Store, Record)>,
}

struct Written {
    copy: Copy,
    /// Whether what is there when a launch begins matters to it.
    is_read: bool,
}

struct Entry {
    text: String,
    /// What is launched, or why it cannot be.
    launch: Result<(Arc<Specialised>, LaunchArgs, bool), String>,
}

enum Clock {
    /// With the device that works on copies, where the backend has devices.
    Host(DeviceId),
    Device {
        queue: Queue,
        flush: device::Memory,
        iteration: u8,
        driver: String,
    },
}

impl<'a> Runner<'a> {
    pub fn new(
        kernel: &'a KernelHandle,
        call: &Prepared,
        all: &[Candidate],
        places: &[usize],
    ) -> Result<Self, Diagnostics> {
        let queue = call.queue();
        let clock = match queue {
            Some(queue) => {
                device::wait_for(queue, &call.streams.after)?;
                let there = device::open(queue.device)?;
                let (l2, driver) = (there.info().l2_bytes, there.info().driver.clone());
                // Twice as much as the cache holds.
                let flush = device::Memory::new(queue, (2 * l2).max(1))?;
                Clock::Device { queue, flush, iteration: 0, driver }
            }
            None => Clock::Host(call.copied_to),
        };
        let mut copies = BTreeMap::new();
        let mut entries = Vec::new();
        for &place in places {
            let Some(ready) = &all[place].compiled else { continue };
            let (text, spec) = (all[place].text.clone(), ready.spec.clone());
            let launch = arguments(kernel, call, spec, queue, &mut copies);
            let launch = launch.map_err(|errors| first_message(&errors));
            entries.push(Entry { text, launch });
        }
        let subject = super::subject::of(
            kernel,
            &call.bound,
            call.location,
            &call.spec.choice,
            call.spec.mode,
        )?;
        // Only a device is lost with all that runs on it.
        let store = kernel.store().filter(|_| queue.is_some());
        let journal = store.map(|store| (store, Record::new(subject)));
        let poll = Poll::start();
        Ok(Self { kernel, entries, clock, poll, stopped: false, copies, journal })
    }

    /// Whose clock it was.
    pub fn provenance(&self) -> BTreeMap<String, String> {
        let rows = match &self.clock {
            Clock::Host(_) => vec![("clock", "host".to_string())],
            Clock::Device { driver, .. } => {
                vec![("clock", "device events, cache emptied".into()), ("driver", driver.clone())]
            }
        };
        rows.into_iter().map(|(name, text)| (name.to_string(), text)).collect()
    }
}

/// The launch of one candidate, on copies of what it writes.
fn arguments(
    kernel: &KernelHandle,
    call: &Prepared,
    spec: Arc<Specialised>,
    queue: Option<Queue>,
    copies: &mut BTreeMap<usize, Written>,
) -> Result<(Arc<Specialised>, LaunchArgs, bool), Diagnostics> {
    let ready = kernel.ready(call.clone().with(spec.clone(), true))?;
    let mut args = ready.args;
    for (place, arg) in args.params.iter_mut().enumerate() {
        let ArgValue::Buffer(buffer) = arg else { continue };
        let privilege = spec.privilege(place);
        if !privilege.writes() {
            continue;
        }
        let param = spec.params[place];
        let written = match copies.entry(param) {
            Slot::Occupied(slot) => slot.into_mut(),
            Slot::Vacant(slot) => {
                slot.insert(Written { copy: Copy::of(buffer, queue)?, is_read: false })
            }
        };
        buffer.data = written.copy.address() as *mut u8;
        written.is_read |= privilege.reads();
    }
    Ok((spec, args, ready.geometry.is_empty()))
}

impl search::Runner for Runner<'_> {
    fn sample(&mut self, candidate: usize) -> Result<f64, Failure> {
        if self.stopped || self.poll.is_interrupted() {
            return Err(Failure::Interrupted);
        }
        let launch = &self.entries[candidate].launch;
        let (spec, args, is_empty) = launch.as_ref().map_err(|e| Failure::Candidate(e.clone()))?;
        let renewed =
            self.copies.values_mut().filter(|w| w.is_read).try_for_each(|w| w.copy.renew());
        let clock = &mut self.clock;
        let timed = renewed.and_then(|()| if *is_empty { Ok(0.0) } else { clock.time(spec, args) });
        timed.map_err(|errors| failure(&errors, &self.clock))
    }

    fn first(&mut self, candidate: usize) {
        if let Some((store, record)) = &mut self.journal {
            record.rows.clear();
            record.set(Row::new(&self.entries[candidate].text, RecordState::Started, "is running"));
            // Where it cannot be written, a crash is merely met again.
            let _ = store.add(record.clone(), false);
        }
    }

    fn progress(&mut self, progress: Progress) {
        let best = progress.best.map(|(place, time)| (self.entries[place].text.as_str(), time));
        let go_on = hook::tell(&Moment {
            kernel: self.kernel.name(),
            phase: Phase::Measuring,
            part: progress.spent.min(1.0),
            left: progress.left,
            best,
        });
        self.stopped |= !go_on;
    }
}

impl Clock {
    fn time(&mut self, spec: &Specialised, args: &LaunchArgs) -> Result<f64, Diagnostics> {
        match self {
            Clock::Host(there) => {
                let start = Instant::now();
                spec.artifact.launch_on(args, *there)?;
                Ok(start.elapsed().as_secs_f64())
            }
            Clock::Device { queue, flush, iteration, .. } => {
                *iteration = iteration.wrapping_add(1);
                flush.fill(*iteration, queue.stream)?;
                let start = device::Mark::new(*queue, true)?;
                spec.artifact.enqueue(args, *queue)?;
                let end = device::Mark::new(*queue, true)?;
                end.synchronize()?;
                end.seconds_since(&start)
            }
        }
    }
}

fn failure(errors: &Diagnostics, clock: &Clock) -> Failure {
    if is_interrupt(errors) {
        return Failure::Interrupted;
    }
    // After these a device takes nothing more from the process.
    let sticky = [Code::E_ILLEGAL_ADDRESS, Code::E_MISALIGNED_ACCESS, Code::E_TIMEOUT];
    let lost =
        matches!(clock, Clock::Device { .. }) && errors.errors().any(|d| sticky.contains(&d.code));
    let text = first_message(errors);
    if lost { Failure::Device(text) } else { Failure::Candidate(text) }
}
