//! What kernels print as PTX is what they print on the interpreter, line by line.

use std::sync::Mutex;
use tessera_interp::HostArray;
use tessera_ir::{PassContext, PassOptions, parse_module};
use tessera_numerics::{DType, Profile};
use tessera_ptx::PtxCaps;
use tessera_ptx_emulator::Emulated;
use tessera_target::{Backend, CompileOptions, LaunchArgs};
use tessera_tile::{Tile, TileFunc};

static REPORTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

const KERNEL: &str = r#"
func @reported(%x: view<[24, 40], f32, read>, %h: view<[3], bf16, read>) {kind = group, grid = [2, 3]} {
  %i = tile.program_id {axis = 0} : i64
  %j = tile.program_id {axis = 1} : i64
  %0 = tile.const {value = 0} : i64
  %1 = tile.const {value = 1} : i64
  %2 = tile.const {value = 2} : i64
  %4 = tile.const {value = 4} : i64
  tile.print {text = "begin {{}}"}
  %p = tile.mul %i, %4 : i64
  %t = tile.load %x at(%p, %j) {extent = [4, 5]} : tile<4x5xf32>
  %r = tile.reduce %t {op = sum, axis = 1} : tile<4xf32>
  %c = tile.gt %r, %r : tile<4xbool>
  %n = tile.cast %t : tile<4x5xi32>
  %e = tile.load %h at(%j) {extent = [0]} : bf16
  tile.print %t, %r, %i {text = "{} and {} of {}"}
  tile.for %0, %2, %1 do (%k: i64) {
    %odd = tile.eq %k, %j : bool
    tile.if %odd do {
      tile.print %k, %c, %n, %e {text = "{}: {} {} {}"}
      tile.yield
    } do {
      tile.yield
    }
    tile.yield
  }
  tile.return
}
"#;

fn run(func: &TileFunc, backend: &dyn Backend, seed: usize) -> Vec<String> {
    let values: Vec<f64> = (0..24 * 40).map(|i| (i * 37 + seed) as f64 / 8.0 - 100.0).collect();
    let mut x = HostArray::new(&[24, 40], DType::F32, &values);
    let mut h = HostArray::new(&[3], DType::BF16, &[1.5, f64::NAN, -0.0]);
    let args = LaunchArgs {
        params: vec![x.as_arg(), h.as_arg()],
        dims: Default::default(),
        grid: [2, 3, 1],
        domain: [0; 3],
        lanes: 0,
    };
    REPORTED.lock().unwrap().clear();
    let artifact = backend.compile(func, &CompileOptions::new(Profile::Strict));
    artifact.and_then(|a| a.launch(&args)).unwrap_or_else(|e| panic!("{}", e.render()));
    std::mem::take(&mut *REPORTED.lock().unwrap())
}

#[test]
fn lines_are_those_of_the_interpreter() {
    tessera_target::set_print(|line| REPORTED.lock().unwrap().push(line.to_string()));
    let module =
        parse_module::<Tile>(KERNEL, "reported.tir").unwrap_or_else(|e| panic!("{}", e.render()));
    let source = &module.funcs[0];
    let mut lowered = source.clone();
    let pipeline = tessera_lower::tile_pipeline(PassOptions { verify_each: true, dump_dir: None });
    pipeline
        .run(&mut lowered, &mut PassContext::default())
        .unwrap_or_else(|e| panic!("{}", e.render()));
    let right = run(source, &tessera_interp::Interp, 1);
    assert_eq!(right.len(), 6 * 2 + 4);
    assert_eq!(right[0], "reported[0, 0]: begin {}");
    for sm in [75, 90] {
        let mut gpu = Emulated::new(PtxCaps::of(sm, false).expect("a known target").clone());
        gpu.options.seed = if sm == 75 { 0 } else { 7 };
        gpu.options.shuffled = sm != 75;
        assert_eq!(run(&lowered, &gpu, 1), right, "on sm_{sm}");
    }
}
