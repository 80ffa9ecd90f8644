//! Code for arrays of other layouts: what is compiled, when, and by which thread.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use tessera_cpu::{Cpu, Isa};
use tessera_numerics::{DType, Profile};
use tessera_support::Hash128;
use tessera_target::{
    ArgValue, Artifact, Backend, BufferArg, CompileOptions, LaunchArgs, ObjectStore,
};

const COPY: &str = "func @copy(%x: view<[M, N], f32, read>, %y: view<[M, N], f32, write>) {kind = group, grid = [1]} {
  %zero = tile.const {value = 0} : i64
  %t = tile.load %x at(%zero, %zero) {extent = [8, 4]} : tile<8x4xf32>
  tile.store %y, %t at(%zero, %zero) {extent = [8, 4]}
  tile.return
}
";
const SHAPE: [i64; 2] = [8, 4];
const ROWS: [i64; 2] = [16, 4];
const COLUMNS: [i64; 2] = [4, 32];
const EVERY_OTHER: [i64; 2] = [64, 8];

/// Keeps nothing. It is queried before code is generated: compilations end when a number of them has begun.
#[derive(Default)]
struct Gate {
    begun: AtomicUsize,
    together: AtomicUsize,
    late: AtomicUsize,
}

impl ObjectStore for Gate {
    fn get(&self, _: Hash128) -> Option<Vec<u8>> {
        self.begun.fetch_add(1, Ordering::AcqRel);
        let start = Instant::now();
        while self.begun.load(Ordering::Acquire) < self.together.load(Ordering::Acquire) {
            if start.elapsed() > Duration::from_secs(20) {
                self.late.fetch_add(1, Ordering::Relaxed);
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    fn put(&self, _: Hash128, _: &str, _: &[u8]) {}
}

fn array(data: &mut [f32], strides: [i64; 2]) -> BufferArg {
    let (dims, strides) = (SHAPE.to_vec(), strides.to_vec());
    BufferArg { data: data.as_mut_ptr().cast(), dims, strides, dtype: DType::F32, writable: true }
}

fn compile(gate: &Arc<Gate>, call: Vec<Option<BufferArg>>) -> Box<dyn Artifact> {
    let func = tessera_tile::parse(COPY).unwrap_or_else(|e| panic!("{e}"));
    let options =
        CompileOptions { store: gate.clone(), call, ..CompileOptions::new(Profile::Strict) };
    Cpu { isa: Isa::host(), threads: 1 }.compile(&func, &options).unwrap_or_else(|e| panic!("{e}"))
}

/// Copies an array with these strides, and compares.
fn copies(kernel: &dyn Artifact, strides: [i64; 2]) {
    let mut x: Vec<f32> = (0..256).map(|i| i as f32).collect();
    let mut y = vec![0.0; 32];
    let wanted: Vec<f32> =
        (0..32).map(|i| x[((i / 4) * strides[0] + (i % 4) * strides[1]) as usize / 4]).collect();
    let params = [array(&mut x, strides), array(&mut y, ROWS)].map(ArgValue::Buffer).into();
    let dims = BTreeMap::from([("M".to_string(), SHAPE[0]), ("N".to_string(), SHAPE[1])]);
    let args = LaunchArgs { params, dims, grid: [1; 3], domain: [1; 3], lanes: 1 };
    kernel.launch(&args).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(y, wanted, "{strides:?}");
}

fn begun(gate: &Gate) -> usize {
    gate.begun.load(Ordering::Acquire)
}

#[test]
fn what_a_call_needs_is_compiled_and_nothing_else() {
    let (mut x, mut y) = ([0.0; 32], [0.0; 32]);
    let gate = Arc::new(Gate::default());
    let call = vec![Some(array(&mut x, COLUMNS)), Some(array(&mut y, ROWS))];
    let kernel = compile(&gate, call);
    copies(&*kernel, COLUMNS);
    copies(&*kernel, COLUMNS);
    assert_eq!(begun(&gate), 1);
    copies(&*kernel, ROWS);
    assert_eq!(begun(&gate), 2);
    // Without a call it is what most arrays need.
    let gate = Arc::new(Gate::default());
    let kernel = compile(&gate, Vec::new());
    copies(&*kernel, ROWS);
    assert_eq!(begun(&gate), 1);
}

#[test]
fn threads_with_other_layouts_do_not_wait_for_each_other() {
    let gate = Arc::new(Gate::default());
    let kernel = compile(&gate, Vec::new());
    // From here on two must be in the middle of it at a time.
    gate.together.store(3, Ordering::Release);
    std::thread::scope(|scope| {
        scope.spawn(|| copies(&*kernel, COLUMNS));
        scope.spawn(|| copies(&*kernel, EVERY_OTHER));
    });
    assert_eq!((begun(&gate), gate.late.load(Ordering::Relaxed)), (3, 0));
}

#[test]
fn threads_with_one_layout_compile_it_once() {
    let gate = Arc::new(Gate::default());
    let kernel = compile(&gate, Vec::new());
    let start = Barrier::new(6);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                start.wait();
                copies(&*kernel, COLUMNS);
            });
        }
    });
    assert_eq!(begun(&gate), 2);
}
