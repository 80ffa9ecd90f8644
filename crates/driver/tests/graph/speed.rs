//! Figures for people: `GRAPH_FILE=f.tir cargo test -p tessera-driver --test suite time_of -- --ignored
//! --nocapture` compiles and times the first function of a file.

use super::check::{agree, arguments, compile};
use std::time::Instant;
use tessera_driver::graph::{PlanOptions, compiled_kernels};
use tessera_graph::Graph;
use tessera_interp::{HostArray, NoKernels, run_graph};
use tessera_ir::parse_module;

#[test]
#[ignore = "a figure, not a test"]
fn time_of() {
    let path = std::env::var("GRAPH_FILE").expect("GRAPH_FILE");
    let text = std::fs::read_to_string(&path).expect("the file");
    let mut module = parse_module::<Graph>(&text, "file").unwrap_or_else(|e| panic!("{e}"));
    if let Ok(name) = std::env::var("GRAPH_FUNC") {
        let place = module.funcs.iter().position(|f| f.name == name).expect("the function");
        module.funcs.swap(0, place);
    }
    let threads = std::env::var("GRAPH_THREADS").ok().and_then(|t| t.parse().ok()).unwrap_or(1);
    tessera_driver::set_threads(Some(threads)).unwrap_or_else(|e| panic!("{e}"));
    let mut args = arguments(&module, &module.funcs[0].name.clone());
    // Small numbers, so that nothing on the way is denormal or infinite.
    for a in args.iter_mut().filter(|a| a.dtype.is_float()) {
        let small: Vec<f64> = a.values().iter().map(|v| v * 0.05).collect();
        *a = HostArray::new(&a.dims, a.dtype, &small);
    }
    let start = Instant::now();
    let program = compile(&module, &args, PlanOptions::default());
    println!(
        "compile {:?}: {:#?}, {} in all",
        start.elapsed(),
        program.stats(),
        compiled_kernels()
    );
    println!("host: {:?}", program.host_ops());
    if std::env::var("GRAPH_KERNELS").is_ok() {
        for k in &program.plan().kernels {
            println!("{k}");
        }
    }
    let mut best = f64::MAX;
    let mut got = Vec::new();
    for _ in 0..30 {
        let start = Instant::now();
        got = program.run(&args).unwrap_or_else(|e| panic!("{e}"));
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("best of 30: {:.3} ms", best * 1e3);
    for (label, seconds) in program.times(&args, 10).unwrap_or_else(|e| panic!("{e}")) {
        println!("{:9.1} us  {label}", seconds * 1e6);
    }
    if std::env::var("GRAPH_CHECK").is_ok() {
        let wanted = run_graph(&module, &module.funcs[0].name, &args, &mut NoKernels)
            .unwrap_or_else(|e| panic!("{e}"));
        for (i, (g, w)) in got.iter().zip(&wanted).enumerate() {
            agree(g, w, &format!("result {i}"));
        }
        println!("agrees with the definition");
    }
}
