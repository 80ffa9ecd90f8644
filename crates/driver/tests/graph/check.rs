//! Runs a function compiled and by the interpreter, and compares.

use std::sync::Arc;
use tessera_driver::graph::{
    GraphOptions, GraphProgram, HostKernels, PlanOptions, argument_type, compile_graph,
    compile_graph_for,
};
use tessera_driver::{Backends, Choice};
use tessera_graph::{Graph, GraphModule};
use tessera_interp::{HostArray, NoKernels, QueueOrder, run_graph};
use tessera_ir::{Type, parse_module};
use tessera_numerics::DType;
use tessera_ptx::PtxCaps;
use tessera_ptx_emulator::Emulated;

/// Numbers that differ, small enough that sums of them stay exact for longer.
pub fn noise(dims: &[i64], dtype: DType, seed: i64) -> HostArray {
    let n: i64 = dims.iter().product();
    let values: Vec<f64> = (0..n)
        .map(|i| {
            let x = ((i + seed) * 7919 % 257) as f64 / 257.0;
            match dtype {
                DType::Bool => f64::from(x > 0.5),
                d if d.is_unsigned_int() => (x * 15.0).floor(),
                d if d.is_int() => (x * 14.0 - 7.0).floor(),
                _ => x * 4.0 - 2.0,
            }
        })
        .collect();
    HostArray::new(dims, dtype, &values)
}

pub fn module(body: &str) -> GraphModule {
    let text = format!("module @m : graph {{version = 1}}\n\n{body}\n");
    parse_module::<Graph>(&text, "test").unwrap_or_else(|e| panic!("{e}\n{text}"))
}

pub fn arguments(module: &GraphModule, func: &str) -> Vec<HostArray> {
    let func = module.func(func).expect("the function");
    let each = func.params().iter().enumerate();
    each.map(|(i, &p)| {
        let ty = func.ty(p);
        let dims: Vec<i64> =
            ty.shape().iter().map(|d| d.as_static().unwrap_or(5 + i as i64 % 2)).collect();
        noise(&dims, ty.dtype(), 31 * i as i64)
    })
    .collect()
}

pub fn compile(module: &GraphModule, args: &[HostArray], plan: PlanOptions) -> GraphProgram {
    let types: Vec<Type> = args.iter().map(|a| argument_type(&a.dims, a.dtype)).collect();
    let options = GraphOptions { backend: Some("cpu".into()), plan, ..GraphOptions::default() };
    let name = module.funcs[0].name.clone();
    compile_graph(module, &name, &types, &Backends::default(), &options)
        .unwrap_or_else(|e| panic!("{e}\n{module}"))
}

/// How far results may be apart: other orders of sums, functions within 2 ulp.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 | DType::Tf32 => 2e-5,
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        d if d.is_float() => 0.3,
        _ => 0.0,
    }
}

pub fn agree(got: &HostArray, wanted: &HostArray, what: &str) {
    assert_eq!((&got.dims, got.dtype), (&wanted.dims, wanted.dtype), "{what}");
    let largest =
        wanted.values().iter().filter(|v| v.is_finite()).fold(1.0, |m: f64, v| m.max(v.abs()));
    let bound = tolerance(got.dtype);
    for (i, (a, b)) in got.values().iter().zip(wanted.values()).enumerate() {
        let same = a == &b || (a.is_nan() && b.is_nan());
        let near = (a - b).abs() <= bound * (b.abs() + largest);
        assert!(same || near, "{what}: element {i} is {a}, expected {b}");
    }
}

fn show(program: &GraphProgram) -> String {
    let mut out = format!("{:#?}\n", program.plan().steps);
    for k in &program.plan().kernels {
        out += &k.to_string();
    }
    out
}

pub fn check_args(text: &str, args: &[HostArray]) -> Vec<GraphProgram> {
    let module = module(text);
    let name = module.funcs[0].name.clone();
    let wanted =
        run_graph(&module, &name, args, &mut NoKernels).unwrap_or_else(|e| panic!("{e}\n{module}"));
    let mut out = Vec::new();
    check_emulated(text, args);
    for separate in [false, true] {
        let plan = PlanOptions { separate, ..PlanOptions::default() };
        let program = compile(&module, args, plan);
        let options = reads_back(&program);
        if !separate {
            let again = compile(&module, args, options).plan_text();
            assert_eq!(again, program.plan_text(), "{module}");
        }
        let interpreted = interpret(&program, args);
        for iteration in 0..2 {
            let got = program.run(args).unwrap_or_else(|e| panic!("{e}\n{module}"));
            assert_eq!(got, interpreted, "{module}\n{}", program.plan_text());
            assert_eq!(got.len(), wanted.len());
            if std::env::var("SHOW_PLAN").is_ok() {
                println!("{}", show(&program));
            }
            for (i, (g, w)) in got.iter().zip(&wanted).enumerate() {
                agree(
                    g,
                    w,
                    &format!("result {i}, separate {separate}, iteration {iteration}\n{module}"),
                );
            }
        }
        out.push(program);
    }
    out
}

/// What the text of a plan gives, whichever of its queues is late.
fn interpret(program: &GraphProgram, args: &[HostArray]) -> Vec<HostArray> {
    let run = |order| {
        program
            .interpret(args, &mut HostKernels(&mut NoKernels), order)
            .unwrap_or_else(|e| panic!("{e}\n{}", program.plan_text()))
    };
    let wanted = run(QueueOrder::Program);
    assert_eq!(run(QueueOrder::Random(args.len() as u64)), wanted, "{}", program.plan_text());
    wanted
}

/// The text of a plan holds by the verifier of its level, and reads as it was written.
fn reads_back(program: &GraphProgram) -> PlanOptions {
    let text = program.plan_text();
    let parsed = tessera_ir::parse_module::<tessera_schedule::Schedule>(&text, "plan")
        .unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(parsed.to_string(), text);
    tessera_ir::verify(&parsed.funcs[0]).unwrap_or_else(|e| panic!("{e}\n{text}"));
    PlanOptions::from_text(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// The same on a GPU in software.
pub fn emulated(module: &GraphModule, args: &[HostArray], plan: PlanOptions) -> GraphProgram {
    let types: Vec<Type> = args.iter().map(|a| argument_type(&a.dims, a.dtype)).collect();
    let caps = PtxCaps::of(90, true).expect("sm_90a").clone();
    let backend = Arc::new(Emulated::new(caps));
    let choice = Choice { backend, why: "the test" };
    let options = GraphOptions { plan, ..GraphOptions::default() };
    let name = module.funcs[0].name.clone();
    compile_graph_for(module, &name, &types, choice, &options)
        .unwrap_or_else(|e| panic!("{e}\n{module}"))
}

pub fn check_emulated(text: &str, args: &[HostArray]) -> GraphProgram {
    let module = module(text);
    let name = module.funcs[0].name.clone();
    let wanted =
        run_graph(&module, &name, args, &mut NoKernels).unwrap_or_else(|e| panic!("{e}\n{module}"));
    let program = emulated(&module, args, PlanOptions::default());
    reads_back(&program);
    if std::env::var("SHOW_PLAN").is_ok() {
        println!("{}", show(&program));
    }
    let got = program.run(args).unwrap_or_else(|e| panic!("{e}\n{module}\n{}", show(&program)));
    assert_eq!(got, interpret(&program, args), "{module}\n{}", program.plan_text());
    for (i, (g, w)) in got.iter().zip(&wanted).enumerate() {
        agree(g, w, &format!("result {i}, on a GPU\n{module}"));
    }
    program
}

pub fn check(text: &str) -> Vec<GraphProgram> {
    let module = module(text);
    let args = arguments(&module, &module.funcs[0].name.clone());
    check_args(text, &args)
}
