//! The table of Tile IR: the kernels of the `; run:` lines, and one kernel of each kind for every
//! elementwise function, on each backend and under each transform.

use super::answer::{Answer, best};
use super::kernel_cases::CASES;
use super::texts::{Texts, each_file};
use super::transforms::Program;
use super::{Column, backends, mark, write_table};
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::Diagnostics;
use tessera_filetest::{Run, Tools, runs};
use tessera_ir::{Opcode, PassContext, PassOptions, Value};
use tessera_lower::{pass_by_name, tile_pipeline};
use tessera_numerics::{DType, Profile, ScalarFn};
use tessera_target::Backend;
use tessera_tile::{KernelKind, Tile, TileFunc, TileOp, kind_of};

/// A kernel that runs, and what was answered about it.
struct Case {
    /// The ops that are left after the pipeline, and those of the file: passes remove some.
    left: BTreeSet<String>,
    written: BTreeSet<String>,
    kind: Option<KernelKind>,
    on: BTreeMap<&'static str, Answer>,
}

/// What the transforms answer to a call of a kernel.
struct Transformed {
    written: BTreeSet<String>,
    /// The ops that something float goes into.
    moved: BTreeSet<String>,
    jvp: Derivative,
    vjp: Derivative,
    vmap: Option<Answer>,
}

/// A refusal is about one op, where it says so by its place.
struct Derivative {
    answer: Option<Answer>,
    about: Option<String>,
}

fn name(op: TileOp) -> String {
    format!("tile.{}", op.mnemonic())
}

fn ops(func: &TileFunc) -> BTreeSet<String> {
    func.walk().into_iter().map(|id| name(func.ops[id].code)).collect()
}

/// The ops with an operand or a result that depends on a float argument.
fn moved(func: &TileFunc) -> BTreeSet<String> {
    let floats = func.params().iter().filter(|&&p| func.ty(p).dtype().is_float());
    let mut reached: BTreeSet<Value> = floats.copied().collect();
    loop {
        let before = reached.len();
        for id in func.walk() {
            let op = &func.ops[id];
            let inner = op.regions.iter().filter_map(|&r| func.terminator(r));
            let mut inputs = op.operands.iter().chain(inner.flat_map(|id| &func.ops[id].operands));
            if inputs.any(|v| reached.contains(v)) {
                reached.extend(&op.results);
                reached.extend(op.regions.iter().flat_map(|&r| &func.blocks[r].args));
                // What is stored is in the memory, which the first operand names.
                reached.extend(op.operands.first().filter(|_| op.results.is_empty()));
            }
        }
        if reached.len() == before {
            break;
        }
    }
    let all = func.walk().into_iter().map(|id| &func.ops[id]);
    all.filter(|op| op.operands.iter().chain(&op.results).any(|v| reached.contains(v)))
        .map(|op| name(op.code))
        .collect()
}

impl Case {
    /// None where the interpreter refuses the call, or its file expects an error.
    fn new(run: &Run) -> Option<Self> {
        let lowered = run.lowered.as_ref().ok()?;
        let on = |backend: &dyn Backend, profile| run.on(backend, profile).expect("a call binds");
        let backends = backends();
        let wanted = on(backends[0].1.as_ref(), Profile::Strict).ok()?;
        let answers = backends.iter().map(|(name, backend)| {
            let answer = match on(backend.as_ref(), Profile::Strict) {
                Ok(got) => {
                    assert_eq!(got, wanted, "{name}:\n{}", run.source);
                    Answer::Yes
                }
                Err(errors) => match on(backend.as_ref(), Profile::Default) {
                    Ok(_) => Answer::Only("default"),
                    Err(_) => Answer::refused(&errors),
                },
            };
            (*name, answer)
        });
        let on = answers.collect();
        let (left, written) = (ops(lowered), ops(&run.source));
        Some(Self { left, written, kind: kind_of(&run.source), on })
    }
}

impl Transformed {
    fn new(source: &TileFunc) -> Self {
        let kernel = differentiable(source);
        let program = Program::calling(&kernel);
        let vmap = || program.vmap().unwrap_or_else(|errors| Answer::refused(&errors));
        Self {
            written: ops(source),
            moved: moved(&kernel),
            jvp: Derivative::new(&kernel, &program, Program::jvp),
            vjp: Derivative::new(&kernel, &program, Program::vjp),
            vmap: program.has_params().then(vmap),
        }
    }
}

/// As kernels are when they are differentiated.
fn differentiable(source: &TileFunc) -> TileFunc {
    let mut func = source.clone();
    for pass in ["tile-lift", "tile-normalise", "tile-geometry"] {
        let pass = pass_by_name(pass).expect("a pass of the pipeline");
        pass.run(&mut func, &mut PassContext::default()).expect("the pipeline took it");
    }
    func
}

impl Derivative {
    fn new(
        kernel: &TileFunc,
        program: &Program,
        of: fn(&Program) -> Result<Answer, Diagnostics>,
    ) -> Self {
        if !program.has_floats() {
            return Self { answer: None, about: None };
        }
        match of(program) {
            Ok(answer) => Self { answer: Some(answer), about: None },
            Err(errors) => {
                let place = errors.iter().next().map(|d| d.loc.clone());
                let here = |id| place.as_ref() == Some(&kernel.ops[id].loc);
                let at = kernel.walk().into_iter().find(|&id| here(id));
                let about = at.map(|id| name(kernel.ops[id].code));
                Self { answer: Some(Answer::refused(&errors)), about }
            }
        }
    }

    /// What it says about an op: nothing, where another op of the kernel was refused.
    fn of(&self, op: &str) -> Option<Answer> {
        let answer = self.answer.clone()?;
        let is_about = self.about.as_ref().is_none_or(|about| about == op);
        (answer.is_yes() || is_about).then_some(answer)
    }
}

/// A kernel that computes one elementwise function, and its call.
fn elementwise(f: ScalarFn, kind: &str) -> String {
    let dtypes = [DType::F32, DType::I32, DType::Bool];
    let dtype = dtypes.into_iter().find(|&d| f.accepts(d)).unwrap_or(DType::F32);
    let one = |dtype: DType| match dtype {
        DType::Bool => "true",
        d if d.is_float() => "0.5",
        _ => "1",
    };
    let result = f.result(dtype);
    let (place, extent, shape) = match kind {
        "group" => ("tile.const {value = 0}", "8", "tile<8x"),
        _ => ("tile.linear_id", "0", ""),
    };
    let typed = |d: DType| if shape.is_empty() { d.to_string() } else { format!("{shape}{d}>") };
    let names = &["a", "b", "c"][..f.arity()];
    let views: String = names.iter().map(|n| format!("%{n}: view<[8], {dtype}, read>, ")).collect();
    let load = |n: &&str| {
        let ty = typed(dtype);
        format!("  %{n}.1 = tile.load %{n} at(%i) {{extent = [{extent}]}} : {ty}\n")
    };
    let loads: String = names.iter().map(load).collect();
    let operands: Vec<String> = names.iter().map(|n| format!("%{n}.1")).collect();
    let given: String =
        names.iter().map(|n| format!("{n} = fill({}) : [8], ", one(dtype))).collect();
    format!(
        "func @f({views}%o: view<[8], {result}, write>) {{kind = {kind}}} {{\n  %i = {place} : i64\n{loads}  \
         %r = tile.{} {} : {}\n  tile.store %o, %r at(%i) {{extent = [{extent}]}}\n  tile.return\n}}\n\
         ; run: %f({given}o = fill({}) : [8], grid = [1], domain = 8, lanes = 4)\n",
        f.name(),
        operands.join(", "),
        typed(result),
        one(result),
    )
}

fn cases() -> (Vec<Case>, Vec<Transformed>) {
    let pipeline = tile_pipeline(PassOptions::default());
    let pipeline =
        move |func: &mut TileFunc, context: &mut PassContext| pipeline.run(func, context).map(drop);
    let tools = Tools { pipeline: Box::new(pipeline), ..Tools::none() };
    let files = each_file().filter(|(_, text)| text.starts_with("; test: interpret"));
    let made = ScalarFn::ALL.iter().flat_map(|&f| {
        ["group", "lane"].map(|kind| (format!("{} of a {kind}", f.name()), elementwise(f, kind)))
    });
    let mut out = Vec::new();
    // Kernels of every class that has derivatives, of the tests of derivatives.
    let kernels = CASES.iter().map(|c| tessera_tile::parse(c.tile).expect("the kernel reads"));
    let mut transformed: Vec<_> = kernels.map(|k| Transformed::new(&k)).collect();
    for (name, text) in files.chain(made) {
        let runs = runs(&name, &text, &tools).unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
        let mut seen = BTreeSet::new();
        // One call of each function says what there is to say.
        let cases = runs.iter().filter_map(|run| {
            let case = (!seen.contains(&run.source.name)).then(|| Case::new(run)).flatten()?;
            seen.insert(run.source.name.clone());
            transformed.push(Transformed::new(&run.source));
            Some(case)
        });
        out.extend(cases);
    }
    (out, transformed)
}

/// The kernels that show an op: those that still have it after the pipeline, if there are any.
fn showing<'c>(cases: &'c [Case], op: &str) -> Vec<&'c Case> {
    let left: Vec<_> = cases.iter().filter(|c| c.left.contains(op)).collect();
    if left.is_empty() { cases.iter().filter(|c| c.written.contains(op)).collect() } else { left }
}

fn on_backend(cases: &[Case], op: TileOp, backend: &str) -> String {
    let cases = showing(cases, &name(op));
    let of = |kind: KernelKind| {
        let same = cases.iter().filter(|c| c.kind == Some(kind));
        best(same.map(|c| c.on[backend].clone()))
    };
    match (of(KernelKind::Group), of(KernelKind::Lane)) {
        (None, None) => "-".to_string(),
        (Some(one), None) | (None, Some(one)) => one.cell(),
        (Some(a), Some(b)) if a == b => a.cell(),
        (Some(group), Some(lane)) => match (group.is_yes(), lane.is_yes()) {
            (true, false) => format!("group: {}; lane: {}", group.cell(), lane.cell()),
            _ => format!("lane: {}; group: {}", lane.cell(), group.cell()),
        },
    }
}

fn derivative(cases: &[Transformed], op: TileOp, of: fn(&Transformed) -> &Derivative) -> String {
    let name = name(op);
    let cases = cases.iter().filter(|c| c.moved.contains(&name));
    best(cases.filter_map(|c| of(c).of(&name))).map_or("-".to_string(), |a| a.cell())
}

/// `elementwise.rs` makes the texts of these, and the conformance suite runs each.
fn is_elementwise(op: TileOp) -> bool {
    matches!(op, TileOp::Ew(_))
}

/// Elementwise ops share one set of rules: a refusal of one is a refusal of all.
fn refused(texts: &Texts, op: TileOp) -> String {
    let info = <TileOp as Opcode<Tile>>::info(op);
    if info.verify.is_none() && info.infer.is_none() {
        return "no rule".to_string();
    }
    let same = |other: TileOp| match op {
        TileOp::Ew(_) => matches!(other, TileOp::Ew(_)),
        _ => other == op,
    };
    mark(TileOp::all().into_iter().any(|o| same(o) && texts.refuses(&name(o))))
}

pub fn table() -> String {
    let (texts, (cases, transformed)) = (Texts::read(), cases());
    let (texts, cases, transformed) = (&texts, &cases, &transformed);
    let mut columns: Vec<Column<'_, TileOp>> = vec![
        ("op", Box::new(|op| format!("`{}`", name(op)))),
        ("effects", Box::new(|op| format!("{:?}", <TileOp as Opcode<Tile>>::info(op).effects))),
    ];
    for (backend, _) in backends() {
        columns.push((backend, Box::new(move |op| on_backend(cases, op, backend))));
    }
    let vmap = |op| {
        let with = transformed.iter().filter(|c| c.written.contains(&name(op)));
        best(with.filter_map(|c| c.vmap.clone())).map_or("-".to_string(), |a| a.cell())
    };
    columns.extend::<Vec<Column<'_, TileOp>>>(vec![
        ("JVP", Box::new(|op| derivative(transformed, op, |c| &c.jvp))),
        ("VJP", Box::new(|op| derivative(transformed, op, |c| &c.vjp))),
        ("vmap", Box::new(vmap)),
        ("round trip", Box::new(move |op| mark(is_elementwise(op) || texts.prints(&name(op))))),
        ("run", Box::new(move |op| mark(is_elementwise(op) || texts.runs(&name(op))))),
        ("refused", Box::new(|op| refused(texts, op))),
    ]);
    write_table(&TileOp::all(), &columns)
}
