//! Code belongs to an architecture: devices of one share what is generated and assembled, and threads that compile different
//! kernels do not wait for each other.

use super::rig::{Rig, on_host, scaled, scaled_named};
use super::waits::{arrays, softmax, wanted};
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;
use tessera_diag::{Code, Diagnostics};
use tessera_driver::graph::{GraphProgram, HostKernels, machine_text};
use tessera_driver::{Ask, KernelHandle, Location, NoKernels, Queue, Streams};
use tessera_fake_device::{Call, Order};
use tessera_numerics::Profile;
use tessera_target::{ArgValue, Backend, CompileOptions, LaunchArgs};

const EIGHT: [u32; 8] = [0; 8];

/// Calls of a kind on all of these devices together.
fn calls_of(rigs: &[Rig], call: Call) -> u64 {
    rigs.iter().map(|rig| rig.fake.calls_of(call)).sum()
}

fn run(rig: &Rig, kernel: &KernelHandle) -> Result<Vec<f32>, Diagnostics> {
    let (x, y) = (rig.row(3, 0)?, rig.row(3, 0)?);
    x.write(&[1.0, 2.0, 3.0], rig.queue(0))?;
    rig.launch(kernel, (&x, &y), Streams::default())?;
    y.read(rig.queue(0))
}

fn run_program(rig: &Rig, program: &GraphProgram, capture: bool) -> Result<Vec<f32>, Diagnostics> {
    let (x, y) = arrays(rig, 0)?;
    let (ins, outs) = ([x.view.clone()], [y.view.clone()]);
    let mut none = NoKernels;
    let (streams, mut kernels) = (Streams::default(), HostKernels(&mut none));
    match capture {
        true => program.replay_on(&ins, &outs, rig.id, &streams, &mut kernels)?,
        false => program.run_on(&ins, &outs, rig.id, &streams, &mut kernels)?,
    }
    y.read(rig.queue(0))
}

#[test]
fn devices_of_one_architecture_share_a_kernel() {
    let (rigs, kernel) = (Rig::of_archs(Order::Late, EIGHT), scaled());
    for rig in &rigs {
        for _ in 0..2 {
            assert_eq!(run(rig, &kernel), Ok(vec![3.0, 6.0, 9.0]), "{}", rig.id);
        }
        assert_eq!(rig.fake.calls_of(Call::Load), 1, "{}", rig.id);
    }
    assert_eq!(rigs[0].generated(), 1);
    assert!(calls_of(&rigs, Call::Assemble) <= 1);
    assert!(rigs.iter().all(|rig| rig.fake.hazards().is_empty()));
}

#[test]
fn devices_of_two_architectures_have_code_each() {
    let (rigs, kernel) = (Rig::of_archs(Order::Late, [0, 1, 0, 1, 1]), scaled());
    for rig in &rigs {
        assert_eq!(run(rig, &kernel), Ok(vec![3.0, 6.0, 9.0]), "{}", rig.id);
    }
    assert_eq!((rigs[0].generated(), rigs[1].generated()), (1, 1));
    assert_eq!(calls_of(&rigs, Call::Load), 5);
}

#[test]
fn threads_of_eight_devices_generate_and_assemble_once() {
    let (rigs, kernel) = (Rig::of_archs(Order::Early, EIGHT), scaled());
    thread::scope(|scope| {
        let threads: Vec<_> = rigs.iter().map(|rig| scope.spawn(|| run(rig, &kernel))).collect();
        for thread in threads {
            assert_eq!(thread.join().ok(), Some(Ok(vec![3.0, 6.0, 9.0])));
        }
    });
    assert_eq!((rigs[0].generated(), calls_of(&rigs, Call::Load)), (1, 8));
    assert!(calls_of(&rigs, Call::Assemble) <= 1);
}

/// Nothing is kept on disk: what the first device assembled is there for the others all the same.
#[test]
fn code_is_assembled_once_where_no_store_keeps_it() {
    let rigs = Rig::of_archs(Order::Late, [0, 0, 0, 1]);
    let text = "func @fill(%y: view<[4], f32, write>) {kind = group, grid = [1]} {
  %v = tile.const {value = 7.0} : tile<[4], f32>
  %o = tile.const {value = 0} : i64
  tile.store %y, %v at(%o) {extent = [4]}
  tile.return
}";
    let func = tessera_tile::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let options = CompileOptions::new(Profile::Strict);
    let compiled = |rig: &Rig| rig.backend().compile(&func, &options);
    let own = [compiled(&rigs[0]).unwrap(), compiled(&rigs[3]).unwrap()];
    for (place, rig) in rigs.iter().enumerate() {
        let code = if place == 3 { &own[1] } else { &own[0] };
        let row = rig.row(4, 0).unwrap();
        let args = LaunchArgs {
            params: vec![ArgValue::Buffer(row.view.clone())],
            dims: Default::default(),
            grid: [1; 3],
            domain: [0; 3],
            lanes: 1,
        };
        for _ in 0..2 {
            code.enqueue(&args, rig.queue(0)).unwrap_or_else(|e| panic!("{e}"));
        }
        assert_eq!(row.read(rig.queue(0)).unwrap(), [7.0; 4]);
    }
    let made = |call: Call| rigs.each_ref().map(|rig| rig.fake.calls_of(call));
    assert_eq!((made(Call::Assemble), made(Call::Load)), ([1, 0, 0, 1], [1; 4]));
    // Code of one architecture is not loaded on another.
    let queue = Queue { device: rigs[3].id, stream: 0 };
    let row = rigs[3].row(4, 0).unwrap();
    let args = LaunchArgs {
        params: vec![ArgValue::Buffer(row.view.clone())],
        dims: Default::default(),
        grid: [1; 3],
        domain: [0; 3],
        lanes: 1,
    };
    let error = own[0].enqueue(&args, queue).expect_err("it is refused");
    assert_eq!(error.errors().next().map(|d| d.code), Some(Code::E_LAUNCH_DEVICE_MISMATCH));
}

#[test]
fn devices_of_one_architecture_share_the_kernels_of_plans() {
    let rigs = Rig::of_archs(Order::Late, [0, 0, 0, 1]);
    let programs = rigs.each_ref().map(|rig| softmax(rig).unwrap_or_else(|e| panic!("{e}")));
    let kernels = programs[0].stats().kernels as u64;
    assert!(kernels > 1);
    assert_eq!((rigs[0].generated(), rigs[3].generated()), (kernels, kernels));
    let compiled: Vec<_> = programs.iter().map(|p| p.stats().compiled).collect();
    assert_eq!(compiled[1..3], [0, 0]);
    for (rig, program) in rigs.iter().zip(&programs) {
        assert_eq!(run_program(rig, program, false), Ok(wanted()), "{}", rig.id);
        assert_eq!(rig.fake.calls_of(Call::Load), kernels, "{}", rig.id);
    }
}

#[test]
fn one_program_runs_on_each_device_of_its_architecture() {
    let rigs = Rig::of_archs(Order::Random(3), [0, 0, 1]);
    let program = softmax(&rigs[0]).unwrap_or_else(|e| panic!("{e}"));
    for capture in [false, true] {
        for _ in 0..4 {
            for rig in &rigs[..2] {
                assert_eq!(run_program(rig, &program, capture), Ok(wanted()), "{}", rig.id);
            }
        }
    }
    for rig in &rigs[..2] {
        assert!(rig.fake.calls_of(Call::GraphLaunch) > 0);
        assert_eq!(rig.fake.hazards(), [""; 0]);
    }
    let error = run_program(&rigs[2], &program, false).expect_err("it has another architecture");
    assert_eq!(error.errors().next().map(|d| d.code), Some(Code::E_LAUNCH_DEVICE_MISMATCH));
    let text = |rig: &Rig| {
        let choice = rig.backends.to_launch(None, Location::Device(rig.id));
        choice.and_then(|choice| machine_text(&choice)).unwrap_or_else(|e| panic!("{e}"))
    };
    assert_eq!(text(&rigs[0]), text(&rigs[1]));
    assert_ne!(text(&rigs[0]), text(&rigs[2]));
}

#[test]
fn arrays_of_the_host_go_to_the_device_that_is_selected() {
    let (rigs, kernel) = (Rig::of_archs(Order::Late, [0, 0]), scaled());
    for rig in &rigs {
        let backends = &rigs[0].backends;
        backends.select(Some(&rig.id.to_string())).unwrap_or_else(|e| panic!("{e}"));
        let (mut x, mut y) = ([1.0, 2.0], [0.0, 0.0]);
        let call = Rig::call(on_host(&mut x), on_host(&mut y));
        let prepared = kernel.prepare(backends, call, Ask::default());
        kernel.launch(prepared.unwrap_or_else(|e| panic!("{e}"))).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(y, [3.0, 6.0]);
        assert_eq!(rig.fake.calls_of(Call::Launch), 1, "{}", rig.id);
    }
    assert_eq!(rigs[0].generated(), 1);
}

/// A place where threads overlap that generate code.
#[derive(Default)]
struct Meeting {
    names: Mutex<BTreeSet<String>>,
    came: Condvar,
}

impl Meeting {
    /// Lets a kernel's code begin only when that of this number is being generated. A thread that waits for another one's code
    /// never comes, and the others give up.
    fn before_kernels_of(rig: &Rig, count: usize) -> Arc<Self> {
        let meeting = Arc::new(Self::default());
        let there = meeting.clone();
        rig.before_kernels(move |name| {
            let mut names = there.names.lock().unwrap();
            let (text, thread) = (name.to_string(), thread::current().id());
            names.insert(format!("{text} on {thread:?}"));
            there.came.notify_all();
            let limit = Duration::from_secs(20);
            let _ = there.came.wait_timeout_while(names, limit, |n| n.len() < count).unwrap();
        });
        meeting
    }

    fn count(&self) -> usize {
        self.names.lock().unwrap().len()
    }
}

#[test]
fn threads_do_not_wait_for_each_others_kernels() {
    let rig = Rig::new(Order::Late);
    let meeting = Meeting::before_kernels_of(&rig, 2);
    let (one, other) = (scaled_named("one"), scaled_named("other"));
    let began = std::time::Instant::now();
    thread::scope(|scope| {
        for kernel in [&one, &other] {
            let rig = &rig;
            scope.spawn(move || assert_eq!(run(rig, kernel), Ok(vec![3.0, 6.0, 9.0])));
        }
    });
    assert_eq!(meeting.count(), 2);
    assert!(began.elapsed() < Duration::from_secs(20), "one waited for the other");
}

#[test]
fn threads_do_not_wait_for_other_configurations_of_a_kernel() {
    let (rig, kernel) = (Rig::new(Order::Late), scaled());
    let meeting = Meeting::before_kernels_of(&rig, 2);
    let began = std::time::Instant::now();
    thread::scope(|scope| {
        for profile in [Profile::Default, Profile::Strict] {
            let (rig, kernel) = (&rig, &kernel);
            scope.spawn(move || rig.compile(kernel, profile).unwrap_or_else(|e| panic!("{e}")));
        }
    });
    assert_eq!((meeting.count(), rig.generated()), (2, 2));
    assert!(began.elapsed() < Duration::from_secs(20), "one waited for the other");
}

#[test]
fn threads_do_not_wait_for_the_kernels_of_other_plans() {
    let rigs = Rig::of_archs(Order::Late, [0, 1]);
    // The kernels of one architecture are generated while those of the other are held up.
    let (done, waits) = (Arc::new((Mutex::new(false), Condvar::new())), Duration::from_secs(20));
    let held = done.clone();
    rigs[0].before_kernels(move |_| {
        let (lock, came) = &*held;
        let _ = came.wait_timeout_while(lock.lock().unwrap(), waits, |done| !*done).unwrap();
    });
    let began = std::time::Instant::now();
    thread::scope(|scope| {
        let slow = scope.spawn(|| softmax(&rigs[0]).map(|_| ()));
        softmax(&rigs[1]).unwrap_or_else(|e| panic!("{e}"));
        *done.0.lock().unwrap() = true;
        done.1.notify_all();
        slow.join().unwrap().unwrap_or_else(|e| panic!("{e}"));
    });
    assert!(began.elapsed() < waits, "one waited for the other");
}

#[test]
fn kernels_of_a_plan_are_generated_in_parallel() {
    if thread::available_parallelism().is_ok_and(|n| n.get() < 2) {
        // Where nothing runs in parallel, the plan is compiled by its caller alone.
        return;
    }
    let rig = Rig::new(Order::Late);
    let meeting = Meeting::before_kernels_of(&rig, 2);
    let began = std::time::Instant::now();
    softmax(&rig).unwrap_or_else(|e| panic!("{e}"));
    assert!(meeting.count() > 1);
    assert!(began.elapsed() < Duration::from_secs(20), "one kernel waited for another");
}
