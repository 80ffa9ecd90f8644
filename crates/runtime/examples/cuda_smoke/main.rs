//! A check of the CUDA driver's side on a machine with a device: one line for each thing, and an
//! exit status that tells. `cargo run --release -p tessera-runtime --example cuda_smoke`.

mod code;
mod launches;
mod memory;
mod processes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tessera_diag::Code;
use tessera_runtime::cuda::*;
use tessera_target::set_interrupt_check;

const KERNELS: &str = include_str!("kernels.ptx");
const TMA: &str = include_str!("tma.ptx");

type Check = fn(&Rig) -> Checked;
type Checked = Result<String, Box<dyn std::error::Error>>;

struct Rig {
    device: Arc<Device>,
    module: Arc<Module>,
    stream: Stream,
}

static STOP: AtomicBool = AtomicBool::new(false);

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("stray") => std::process::exit(processes::stray()),
        Some(other) => {
            eprintln!("unknown argument {other}");
            std::process::exit(2);
        }
        None => {}
    }
    set_interrupt_check(|| STOP.load(Ordering::Relaxed));
    let rig = match rig() {
        Ok(rig) => rig,
        Err(error) => {
            println!("FAIL device: {error}");
            std::process::exit(1);
        }
    };
    let checks: &[(&str, Check)] = &[
        ("info", info),
        ("attributes", attributes),
        ("vector add", vector_add),
        ("cached cubin", code::cached),
        ("launch overhead", launches::overhead),
        ("launch attributes", launches::launch_attributes),
        ("shared memory", launches::shared_memory),
        ("refused launches", launches::refused),
        ("events", launches::events),
        ("threads", threads),
        ("copies", memory::copies),
        ("graph", launches::graph),
        ("capture errors", launches::capture_errors),
        ("pool reuse", memory::pool_reuse),
        ("out of memory", memory::out_of_memory),
        ("assembler's log", code::log),
        ("tensor map", memory::tensor_map),
        ("pointers", memory::pointers),
        ("interrupt", launches::interrupt),
        ("ptxas", code::ptxas),
        ("fork", processes::fork),
        ("illegal address", processes::illegal_address),
    ];
    let mut failed = 0;
    for (name, check) in checks {
        match check(&rig) {
            Ok(detail) => println!("ok   {name}: {detail}"),
            Err(error) => {
                failed += 1;
                println!("FAIL {name}: {error}");
            }
        }
    }
    println!("{} checks, {failed} failed", checks.len());
    std::process::exit(i32::from(failed > 0));
}

fn rig() -> Result<Rig, CudaError> {
    let device = Device::get(0)?;
    let module = Module::load(&device, KERNELS.as_bytes(), &LoadOptions::default())?;
    let stream = Stream::new(&device)?;
    Ok(Rig { device, module, stream })
}

impl Rig {
    fn alloc(&self, bytes: usize) -> Result<DeviceBuffer, CudaError> {
        self.device.pool().alloc(bytes as u64, self.stream.handle())
    }
}

/// An error unless it holds.
fn ensure(holds: bool, what: impl Into<String>) -> Result<(), Box<dyn std::error::Error>> {
    if holds { Ok(()) } else { Err(what.into().into()) }
}

/// The code that a call must be refused with.
fn refuses<T>(code: Code, result: Result<T, CudaError>) -> Result<CudaError, String> {
    match result {
        Ok(_) => Err(format!("expected {code}, got success")),
        Err(error) if error.code() == code => Ok(error),
        Err(error) => Err(format!("expected {code}, got {error}")),
    }
}

fn words(parts: &[u64]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.to_le_bytes()).collect()
}

fn floats(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed | 1;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 65_536.0 - 128.0
    };
    std::iter::repeat_with(next).take(n).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn info(rig: &Rig) -> Checked {
    let (info, memory) = (rig.device.info(), rig.device.memory()?);
    ensure(info.multiprocessors > 0 && memory.free <= memory.total, "no sense")?;
    Ok(format!("{info:?}, free {}", memory.free))
}

fn attributes(rig: &Rig) -> Checked {
    let add = rig.module.function("add")?;
    let (all, blocks) = (*add.attributes(), add.occupancy(256, 0)?);
    ensure(all.registers > 0 && all.local_bytes == 0 && blocks > 0, format!("{all:?}"))?;
    ensure(all.param_bytes.is_none_or(|bytes| bytes == 8), format!("{all:?}"))?;
    refuses(Code::E_DRIVER, rig.module.function("absent"))?;
    Ok(format!("{all:?}, {blocks} blocks of 256 threads"))
}

/// Adds on the stream; gives how many elements are wrong.
fn add(rig: &Rig, stream: &Stream, n: usize, seed: u32) -> Result<usize, CudaError> {
    let add = rig.module.function("add")?;
    let (a, b) = (floats(n, seed), floats(n, seed + 7));
    let s = stream.handle();
    let alloc = || rig.device.pool().alloc(4 * n as u64, s);
    let (da, db, dc) = (alloc()?, alloc()?, alloc()?);
    da.write(0, &bytes(&a), s)?;
    db.write(0, &bytes(&b), s)?;
    dc.set(0, dc.len(), 0xff, s)?;
    let mut params = words(&[da.address(), db.address(), dc.address(), n as u64]);
    params.truncate(28);
    let shape = LaunchShape::new([n.div_ceil(256) as u32, 1, 1], 256);
    // SAFETY: the parameters are three arrays of n floats and n.
    unsafe { add.launch(&shape, &params, &[], s) }?;
    let mut out = vec![0; 4 * n];
    dc.read(0, &mut out, s)?;
    let sums = a.iter().zip(&b).map(|(a, b)| (a + b).to_le_bytes());
    Ok(sums.zip(out.chunks_exact(4)).filter(|(sum, got)| sum != got).count())
}

fn vector_add(rig: &Rig) -> Checked {
    for n in [1, 255, 1 << 20, (1 << 22) + 3] {
        let wrong = add(rig, &rig.stream, n, n as u32)?;
        ensure(wrong == 0, format!("{wrong} of {n} elements are wrong"))?;
    }
    // SAFETY: the legacy default stream always exists.
    let legacy = unsafe { Stream::borrow(&rig.device, 0) }?;
    ensure(add(rig, &legacy, 1000, 3)? == 0, "wrong on the legacy stream")?;
    Ok("all elements right at four sizes, and on the legacy stream".into())
}

fn threads(rig: &Rig) -> Checked {
    let wrong = std::thread::scope(|scope| {
        let work = |t: u32| {
            move || {
                let stream = Stream::new(&rig.device)?;
                let each = (0..20).map(|i| add(rig, &stream, 10_000 + i, 100 * t + i as u32));
                each.sum::<Result<usize, CudaError>>()
            }
        };
        let started: Vec<_> = (0..4).map(|t| scope.spawn(work(t))).collect();
        started.into_iter().map(|t| t.join().expect("no panic")).sum::<Result<usize, _>>()
    })?;
    ensure(wrong == 0, format!("{wrong} elements are wrong"))?;
    Ok(format!("4 threads on their own streams, pool {:?}", rig.device.pool().stats()))
}
