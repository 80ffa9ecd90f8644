//! The table of Graph IR: the example of every op, compiled for each backend and compared with its
//! definition, differentiated and batched.

use super::answer::Answer;
use super::texts::Texts;
use super::transforms::Program;
use super::{Column, backends, mark, write_table};
use crate::graph_check::{agree, arguments, module};
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_autodiff::{KernelDef, KernelSet};
use tessera_diag::Diagnostics;
use tessera_driver::Choice;
use tessera_driver::graph::{
    GraphOptions, GraphProgram, MadeKernel, MadeKernels, argument_type, compile_graph_for,
};
use tessera_graph::{GraphModule, GraphOp};
use tessera_interp::{HostArray, NoKernels, run_graph};
use tessera_ir::{Opcode, Type};
use tessera_numerics::{DType, ScalarFn};
use tessera_target::Backend;
use tessera_tile::TileFunc;

const PARAMS: &str = "%x: tensor<[4, 8], f32>, %y: tensor<[4, 8], f32>, %z: tensor<[n], f32>, \
    %r8: tensor<[8], f32>, %p: tensor<[], bool>, %i: tensor<[], i64>, %j: tensor<[], i64>, \
    %f: tensor<[], f32>, %ix: tensor<[3, 1], i32>";

/// The kernel that the example of `graph.kernel_call` calls.
const KERNEL: &str = "func @k(%x: view<[4, 8], f32, read>, %z: view<[5], f32, read_write>) {kind = lane, domain = 5} {
  %i = tile.linear_id : i64
  %row = tile.const {value = 0} : i64
  %a = tile.load %x at(%row, %i) {extent = [0, 0]} : f32
  %b = tile.load %z at(%i) {extent = [0]} : f32
  %c = tile.mul %a, %b : f32
  tile.store %z, %c at(%i) {extent = [0]}
  tile.return
}";

fn kernel() -> TileFunc {
    tessera_tile::parse(KERNEL).expect("the kernel reads")
}

pub fn parse(text: &str) -> GraphModule {
    module(text)
}

/// An elementwise function on a dtype that it takes.
fn elementwise(f: ScalarFn) -> String {
    let dtype = [DType::F32, DType::I32, DType::Bool].into_iter().find(|&d| f.accepts(d));
    let t = format!("tensor<[4, 8], {}>", dtype.unwrap_or(DType::F32));
    let names = ["%a", "%b", "%c"];
    let params: Vec<String> = names[..f.arity()].iter().map(|n| format!("{n}: {t}")).collect();
    let args = names[..f.arity()].join(", ");
    let name = f.name();
    format!("func @f({}) {{\n%r = graph.{name} {args}\ngraph.return %r\n}}", params.join(", "))
}

/// A function around the example of an op. Constant floats of the example are parameters, so that
/// there is something to differentiate by.
fn example(op: GraphOp) -> String {
    let example = op.info().example;
    let named = format!("= graph.{}", op.mnemonic());
    // An op of a rank's program is shown inside one, whose results are those of the example.
    let line = match tessera_graph::states::is_of_a_rank(op) {
        true => example.lines().next(),
        false => example.lines().find(|l| l.contains(&named)),
    };
    let line = line.unwrap_or_default();
    let results = line.split(" =").next().unwrap_or_default();
    let (mut params, mut lines) = (PARAMS.to_string(), Vec::new());
    for line in example.lines() {
        match line.split_once(" = graph.const {value = ").zip(line.split_once("} : ")) {
            Some(((name, _), (_, ty)))
                if op != GraphOp::Const && ty.ends_with(", f32>") && !line.starts_with(' ') =>
            {
                params += &format!(", {name}: {ty}");
            }
            _ => lines.push(line),
        }
    }
    let example = lines.join("\n");
    let body = match op {
        GraphOp::Ew(f) => return elementwise(f),
        GraphOp::Return => example,
        GraphOp::Yield => format!(
            "%r = graph.cond %p : tensor<[4, 8], f32> do {{\n{example}\n}} do {{\n{example}\n}}\ngraph.return %r"
        ),
        _ => format!("{example}\ngraph.return {results}"),
    };
    let callee = "\n\nfunc @f(%a: tensor<[4, 8], f32>, %b: tensor<[4, 8], f32>) {\n%c = graph.add %a, %b\ngraph.return %c\n}";
    let more = if matches!(op, GraphOp::Call | GraphOp::Composite) { callee } else { "" };
    format!("func @example({params}) {{\n{body}\n}}{more}")
}

struct Case {
    program: Program,
    args: Vec<HostArray>,
    /// What the op means.
    wanted: Option<Vec<HostArray>>,
    /// On the last of the backends.
    launches: usize,
    on: BTreeMap<&'static str, Answer>,
}

fn compiled(
    module: &GraphModule,
    args: &[HostArray],
    backend: Arc<dyn Backend>,
) -> Result<GraphProgram, Diagnostics> {
    let types: Vec<Type> = args.iter().map(|a| argument_type(&a.dims, a.dtype)).collect();
    let choice = Choice { backend, why: "the test" };
    let kernels = MadeKernels::from([(
        "k".to_string(),
        MadeKernel { func: kernel(), args: vec![0, 1], required: true },
    )]);
    let options = GraphOptions { kernels, ..GraphOptions::default() };
    compile_graph_for(module, &module.funcs[0].name, &types, choice, &options)
}

impl Case {
    fn new(op: GraphOp) -> Self {
        let module = module(&example(op));
        let name = module.funcs[0].name.clone();
        let mut args = arguments(&module, &name);
        if let [_, _, _, _, _, i, j, ..] = &mut args[..] {
            // Positions and counts: a loop from one to the other ends.
            *i = HostArray::new(&[], DType::I64, &[1.0]);
            *j = HostArray::new(&[], DType::I64, &[3.0]);
        }
        // The kernel is not there for the definition; the interpreter's plan says what it does.
        let wanted = (op != GraphOp::KernelCall).then(|| {
            run_graph(&module, &name, &args, &mut NoKernels).unwrap_or_else(|e| panic!("{e}"))
        });
        let mut kernels = KernelSet::default();
        kernels.insert(
            "k",
            KernelDef {
                func: kernel(),
                args: vec![0, 1],
                derived: false,
                placed: false,
                settled: false,
            },
        );
        let program = Program { module, kernels, name };
        let mut this = Self { program, args, wanted, launches: 0, on: BTreeMap::new() };
        for (name, backend) in backends() {
            let answer = this.answer(op, backend);
            this.on.insert(name, answer.unwrap_or_else(|errors| Answer::refused(&errors)));
        }
        this
    }

    /// Runs it and compares.
    fn answer(&mut self, op: GraphOp, backend: Arc<dyn Backend>) -> Result<Answer, Diagnostics> {
        let program = compiled(&self.program.module, &self.args, backend)?;
        self.launches = program.stats().launches;
        let got = program.run(&self.args)?;
        for (g, w) in got.iter().zip(self.wanted.as_ref().unwrap_or(&got)) {
            agree(g, w, &format!("{op:?}\n{}", self.program.module));
        }
        self.wanted.get_or_insert(got);
        Ok(if program.host_ops().is_empty() { Answer::Yes } else { Answer::Only("host") })
    }
}

fn cell(answer: Result<Answer, Diagnostics>) -> String {
    answer.unwrap_or_else(|errors| Answer::refused(&errors)).cell()
}

fn name(op: GraphOp) -> String {
    format!("graph.{}", op.mnemonic())
}

/// Elementwise ops share one set of rules: a refusal of one is a refusal of all.
fn refused(texts: &Texts, op: GraphOp) -> String {
    let info = op.info();
    if info.verify.is_none() && info.infer.is_none() {
        return "no rule".to_string();
    }
    let same = |other: GraphOp| match op {
        GraphOp::Ew(_) => matches!(other, GraphOp::Ew(_)),
        _ => other == op,
    };
    mark(GraphOp::all().into_iter().any(|o| same(o) && texts.refuses(&name(o))))
}

pub fn table() -> String {
    let texts = Texts::read();
    let ops = GraphOp::all();
    let cases: BTreeMap<String, Case> = ops.iter().map(|&op| (name(op), Case::new(op))).collect();
    let case = |op: GraphOp| &cases[&name(op)];
    let derivative = |op: GraphOp, of: fn(&Program) -> Result<Answer, Diagnostics>| {
        let program = &case(op).program;
        if program.has_floats() { cell(of(program)) } else { "-".to_string() }
    };
    let mut columns: Vec<Column<'_, GraphOp>> = vec![
        ("op", Box::new(|op| format!("`{}`", name(op)))),
        ("effects", Box::new(|op| format!("{:?}", op.info().effects))),
    ];
    for (backend, _) in backends() {
        columns.push((backend, Box::new(move |op| case(op).on[backend].cell())));
    }
    columns.extend::<Vec<Column<'_, GraphOp>>>(vec![
        ("launches", Box::new(|op| case(op).launches.to_string())),
        ("JVP", Box::new(|op| derivative(op, Program::jvp))),
        ("VJP", Box::new(|op| derivative(op, Program::vjp))),
        ("vmap", Box::new(|op| cell(case(op).program.vmap()))),
        ("round trip", Box::new(|op| mark(texts.prints(&name(op))))),
        ("refused", Box::new(|op| refused(&texts, op))),
    ]);
    write_table(&ops, &columns)
}
