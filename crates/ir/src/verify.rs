//! The structural verifier. It holds for every level:
//!
//! 1. every operand is defined before its use, in the same block or one around it;
//! 2. operands, groups, attributes, regions and results fit the op's row;
//! 3. a block ends in its one terminator;
//! 4. types are ones the level admits;
//! 5. where the row can infer result types, they are those written;
//! 6. what the op's own `verify` and the level's `verify_func` ask.
//!
//! All errors are reported, each at its op; an op that fails 1 or 2 is not handed to 5 and 6.
//! Not checked here: anything that needs to know sizes at run time.

use crate::print::print_annotated;
use crate::{BlockId, Func, InferContext, Level, OpId, Opcode, PrintOptions, Type, Value};
use std::collections::BTreeSet;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};

/// Collects what is wrong with ops, each at its place.
#[derive(Default)]
pub struct OpErrors {
    items: Vec<(Option<OpId>, Diagnostic)>,
    loc: Loc,
    op: Option<OpId>,
}

impl OpErrors {
    pub fn push(&mut self, code: Code, message: impl Into<String>) {
        self.items.push((self.op, Diagnostic::new(code, message).at(self.loc.clone())));
    }

    /// An error with what to write instead.
    pub fn push_with_help(&mut self, code: Code, message: impl Into<String>, help: &str) {
        let found = Diagnostic::new(code, message).at(self.loc.clone()).help(help);
        self.items.push((self.op, found));
    }

    pub fn shape(&mut self, message: impl Into<String>) {
        self.push(Code::E_SHAPE_MISMATCH, message);
    }

    pub fn ty(&mut self, message: impl Into<String>) {
        self.push(Code::E_TYPE, message);
    }

    pub fn structure(&mut self, message: impl Into<String>) {
        self.push(Code::E_GRAPH_INVALID, message);
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The errors that follow are about the function as a whole.
    pub fn at_func<L: Level>(&mut self, func: &Func<L>) {
        self.op = None;
        self.loc = func.loc.clone();
    }

    /// The errors that follow are about this op.
    pub fn at_op<L: Level>(&mut self, func: &Func<L>, op: OpId) {
        self.op = Some(op);
        self.loc = func.ops[op].loc.clone();
    }
}

/// Checks a function; `Err` holds every error.
pub fn verify<L: Level>(func: &Func<L>) -> Result<(), Diagnostics> {
    let errors = collect(func);
    if errors.is_empty() {
        return Ok(());
    }
    let mut out = Diagnostics::new();
    out.extend(errors.items.into_iter().map(|(_, d)| d));
    Err(out)
}

/// The function as text with each error under the op it is about.
pub fn render_in_place<L: Level>(func: &Func<L>) -> String {
    let errors = collect(func);
    print_annotated(func, PrintOptions::default(), &|op| {
        let about = errors.items.iter().filter(|(o, _)| *o == Some(op));
        about.map(|(_, d)| format!("error: {} {}", d.code, d.message)).collect()
    })
}

fn collect<L: Level>(func: &Func<L>) -> OpErrors {
    let mut errors = OpErrors { loc: func.loc.clone(), ..OpErrors::default() };
    let mut defined = BTreeSet::new();
    for &param in func.params() {
        if !L::admits(func.ty(param)) {
            errors.ty(format!("expected a type of level `{}`, got {}", L::NAME, func.ty(param)));
        }
    }
    block(func, func.body, &mut defined, &mut errors);
    errors.at_func(func);
    if errors.is_empty() {
        L::verify_func(func, &mut errors);
    }
    errors
}

fn block<L: Level>(
    func: &Func<L>,
    id: BlockId,
    defined: &mut BTreeSet<Value>,
    errors: &mut OpErrors,
) {
    let mut here = func.blocks[id].args.clone();
    defined.extend(&here);
    let ops = &func.blocks[id].ops;
    for (place, &op) in ops.iter().enumerate() {
        errors.at_op(func, op);
        let before = errors.len();
        structure(func, op, defined, errors);
        let last = place + 1 == ops.len();
        match (func.ops[op].is_terminator(), last) {
            (true, false) => {
                errors.structure("expected the terminator to be the last op of its block")
            }
            (false, true) => errors.structure("expected the block to end in a terminator"),
            _ => {}
        }
        if errors.len() == before {
            types(func, op, errors);
        }
        let sound = errors.len() == before;
        for &region in &func.ops[op].regions {
            block(func, region, defined, errors);
        }
        if sound && let Some(own) = func.ops[op].code.info().verify {
            errors.at_op(func, op);
            own(func, op, errors);
        }
        here.extend(&func.ops[op].results);
        defined.extend(&func.ops[op].results);
    }
    if ops.is_empty() {
        match func.blocks[id].parent {
            Some(op) => errors.at_op(func, op),
            None => errors.op = None,
        }
        errors.structure("expected the block to end in a terminator, got an empty block");
    }
    for value in here {
        defined.remove(&value);
    }
}

/// Rules 1 and 2.
fn structure<L: Level>(func: &Func<L>, id: OpId, defined: &BTreeSet<Value>, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let info = op.code.info();
    for &value in &op.operands {
        if !defined.contains(&value) {
            let name = func.name_of(value).map_or(value.to_string(), str::to_string);
            errors.push(Code::E_NAME, format!("%{name} is not defined before this use"));
        }
    }
    let positional = op.positional();
    if positional.len() != info.operands.len() {
        let names: Vec<_> = info.operands.iter().map(|o| o.name).collect();
        errors.structure(format!(
            "expected {} operands ({}), got {}",
            names.len(),
            names.join(", "),
            positional.len()
        ));
        return;
    }
    for (spec, &value) in info.operands.iter().zip(positional) {
        if !spec.class.admits(func.ty(value)) {
            errors.ty(format!(
                "expected `{}` to be {}, got {}",
                spec.name,
                spec.class.describe(),
                func.ty(value)
            ));
        }
    }
    for spec in info.groups {
        let group = op.group(spec.name);
        if group.len() < spec.min || group.len() > spec.max {
            let wanted = match (spec.min, spec.max) {
                (a, usize::MAX) => format!("at least {a}"),
                (a, b) if a == b => a.to_string(),
                (a, b) => format!("{a} to {b}"),
            };
            errors.structure(format!(
                "expected {wanted} operands in `{}(…)`, got {}",
                spec.name,
                group.len()
            ));
        }
        for &value in group {
            if !spec.class.admits(func.ty(value)) {
                errors.ty(format!(
                    "expected `{}(…)` to hold {}, got {}",
                    spec.name,
                    spec.class.describe(),
                    func.ty(value)
                ));
            }
        }
    }
    for spec in info.attrs {
        match op.attrs.get(spec.name) {
            None if spec.required => {
                errors.structure(format!("expected attribute `{}`", spec.name))
            }
            Some(value) if !spec.kind.admits(value) => errors.structure(format!(
                "expected attribute `{}` to be {}, got {value}",
                spec.name,
                spec.kind.describe()
            )),
            _ => {}
        }
    }
    for (name, _) in op.attrs.iter() {
        if !info.attrs.iter().any(|a| a.name == name) {
            errors.structure(format!("expected an attribute of the op, got `{name}`"));
        }
    }
    let least = info.regions.iter().filter(|r| !r.optional).count();
    if !(least..=info.regions.len()).contains(&op.regions.len()) {
        errors.structure(format!(
            "expected {} regions, got {}",
            info.regions.len(),
            op.regions.len()
        ));
    }
    if info.results.is_some_and(|n| n != op.results.len()) {
        errors.structure(format!(
            "expected {} results, got {}",
            info.results.unwrap_or(0),
            op.results.len()
        ));
    }
}

/// Rules 4 and 5.
fn types<L: Level>(func: &Func<L>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    for &value in op.results.iter().chain(op.regions.iter().flat_map(|&r| &func.blocks[r].args)) {
        if !L::admits(func.ty(value)) {
            errors.ty(format!("expected a type of level `{}`, got {}", L::NAME, func.ty(value)));
        }
    }
    let Some(infer) = op.code.info().infer else { return };
    let of =
        |values: &[Value]| -> Vec<Type> { values.iter().map(|&v| func.ty(v).clone()).collect() };
    let groups: Vec<_> =
        op.code.info().groups.iter().map(|g| (g.name, of(op.group(g.name)))).collect();
    let context =
        InferContext { operands: &of(op.positional()), groups: &groups, attrs: &op.attrs };
    match infer(&context) {
        // The op's own verify says it better where it has one.
        Err(why) if op.code.info().verify.is_none() => errors.ty(why),
        Err(_) => {}
        Ok(expected) => {
            let got = of(&op.results);
            for (want, have) in expected.iter().zip(&got) {
                if want != have {
                    errors.ty(format!("expected the result type {want}, got {have}"));
                }
            }
        }
    }
}
