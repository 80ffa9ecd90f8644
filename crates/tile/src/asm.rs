//! Decides which assembly text runs: each text that the target takes stays, as an op without a
//! region; any other is replaced by its other meaning. Every backend that compiles begins with this,
//! so that what follows sees texts of its own target alone. The interpreter runs the other meaning
//! of every text, one element after another.

use crate::expand::Lift;
use crate::ops::asm::{AsmArch, AsmTarget, arch_of, target_of};
use crate::{Tile, TileFunc, TileOp};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{Attr, BlockId, Level, Op, OpId, OpSpec, Rewriter, Value};

/// What takes the texts of a function.
pub struct AsmHost<'a> {
    /// Which assembler it has; `None` runs no text at all.
    pub target: Option<AsmTarget>,
    /// Whether it is at least an architecture.
    pub has: &'a dyn Fn(&AsmArch) -> bool,
    /// As messages name it: "the interpreter", "sm_90a".
    pub name: &'a str,
}

impl AsmHost<'_> {
    fn takes(&self, op: &Op<Tile>) -> bool {
        self.target.is_some()
            && target_of(op) == self.target
            && arch_of(op).is_none_or(|arch| (self.has)(&arch))
    }
}

/// Whether an op is a text of assembly.
pub fn is_asm(code: TileOp) -> bool {
    matches!(code, TileOp::Asm | TileOp::AsmEffect)
}

/// The function with the texts that `host` takes, and no others; `None` where it has no text.
/// A text without another meaning that the host does not take is an error.
pub fn choose_asm(func: &TileFunc, host: &AsmHost<'_>) -> Result<Option<TileFunc>, Diagnostics> {
    let texts = |func: &TileFunc| -> Vec<OpId> {
        func.walk().into_iter().filter(|&id| is_asm(func.ops[id].code)).collect()
    };
    // Those of a region count only where it is chosen.
    let at_top = |func: &TileFunc, id: OpId| {
        let around = func.blocks[func.ops[id].block].parent;
        around.is_none_or(|o| !is_asm(func.ops[o].code))
    };
    if texts(func).is_empty() {
        return Ok(None);
    }
    let mut func = func.clone();
    loop {
        let mut errors = Diagnostics::new();
        for id in texts(&func).into_iter().filter(|&id| at_top(&func, id)) {
            let op = &func.ops[id];
            if !host.takes(op) && op.regions.is_empty() {
                errors.push(no_otherwise(op, host.name));
            }
        }
        errors.into_result()?;
        let pick = |id: OpId| match host.takes(&func.ops[id]) {
            true => Pick::Text,
            false => Pick::Otherwise,
        };
        // What is chosen may hold texts itself.
        let next = replaced(&func, &pick);
        func = next;
        if texts(&func).iter().all(|&id| host.takes(&func.ops[id])) {
            return Ok(Some(func));
        }
    }
}

/// The function with the other meaning of the texts that `which` names; `None` where it names none.
/// Each must have one.
pub fn without_asm(func: &TileFunc, which: &dyn Fn(OpId) -> bool) -> Option<TileFunc> {
    if !func.walk().into_iter().any(which) {
        return None;
    }
    let pick = |id| if which(id) { Pick::Otherwise } else { Pick::Same };
    Some(replaced(func, &pick))
}

/// The function with an op for each result of a text without effects, for targets whose ops have one
/// result; `None` where it has no text of several.
pub fn split_asm(func: &TileFunc) -> Option<TileFunc> {
    let several = |op: &Op<Tile>| op.code == TileOp::Asm && op.results.len() > 1;
    if !func.walk().iter().any(|&id| several(&func.ops[id])) {
        return None;
    }
    let mut rw = Rewriter::new(func);
    let body = rw.new.body;
    for &id in &func.blocks[func.body].ops {
        split(&mut rw, id, body);
    }
    Some(rw.new)
}

fn split(rw: &mut Rewriter<'_, Tile>, id: OpId, into: BlockId) {
    let old = rw.old;
    let op = &old.ops[id];
    if op.code != TileOp::Asm || op.results.len() < 2 {
        rw.copy_op_with(id, into, &mut |rw, inner, block| split(rw, inner, block));
        return;
    }
    let operands: Vec<Value> = op.operands.iter().map(|&v| rw.get(v)).collect();
    let outs = Attr::words(op.results.iter().map(|&v| old.ty(v).dtype().name()));
    for (which, &result) in op.results.iter().enumerate() {
        let mut spec = OpSpec::new(TileOp::Asm, &[]).group("values", &operands);
        spec.attrs = op.attrs.clone();
        let spec = spec.attr("outs", outs.clone()).attr("result", Attr::Int(which as i64));
        let value = rw
            .builder(into, op.loc.clone())
            .value(spec.result(old.ty(result).clone()))
            .expect("the result type is given");
        rw.new.values[value].name = old.values[result].name.clone();
        rw.set(result, value);
    }
}

enum Pick {
    Same,
    /// The text alone.
    Text,
    Otherwise,
}

fn replaced(func: &TileFunc, pick: &dyn Fn(OpId) -> Pick) -> TileFunc {
    let mut chooser = Chooser { rw: Rewriter::new(func), pick };
    let into = chooser.rw.new.body;
    for &id in &func.blocks[func.body].ops {
        chooser.op(id, into);
    }
    chooser.rw.new
}

struct Chooser<'f, 'p> {
    rw: Rewriter<'f, Tile>,
    pick: &'p dyn Fn(OpId) -> Pick,
}

impl Chooser<'_, '_> {
    fn op(&mut self, id: OpId, into: BlockId) {
        let old = self.rw.old;
        let op = &old.ops[id];
        let pick = if is_asm(op.code) { (self.pick)(id) } else { Pick::Same };
        match (pick, op.regions.first()) {
            (Pick::Otherwise, Some(&region)) => self.otherwise(id, region, into),
            (Pick::Text, _) => {
                let new = self.rw.copy_op_with(id, into, &mut |_, _, _| {});
                self.rw.new.ops[new].regions.clear();
            }
            (Pick::Same | Pick::Otherwise, _) => {
                let mut inner: Vec<(OpId, BlockId)> = Vec::new();
                self.rw.copy_op_with(id, into, &mut |_, id, block| inner.push((id, block)));
                // Regions are filled after the op is there, in order.
                inner.into_iter().for_each(|(id, block)| self.op(id, block));
            }
        }
    }

    fn otherwise(&mut self, id: OpId, region: BlockId, into: BlockId) {
        let old = self.rw.old;
        let op = &old.ops[id];
        let args: Vec<Value> = op.operands.iter().map(|&v| self.rw.get(v)).collect();
        let value = op.operands.iter().chain(&op.results).next();
        let dims = value.map(|&v| old.ty(v).shape().to_vec()).unwrap_or_default();
        let results = if dims.is_empty() {
            self.scalars(region, &args, into)
        } else {
            Lift::new(&mut self.rw, into, None, dims).apply(region, &args)
        };
        for (&from, to) in op.results.iter().zip(results) {
            if self.rw.new.values[to].name.is_none() {
                self.rw.new.values[to].name = old.values[from].name.clone();
            }
            self.rw.set(from, to);
        }
    }

    /// The ops of a region as they are, branches included.
    fn scalars(&mut self, region: BlockId, args: &[Value], into: BlockId) -> Vec<Value> {
        let old = self.rw.old;
        for (&arg, &value) in old.blocks[region].args.iter().zip(args) {
            self.rw.set(arg, value);
        }
        for &id in &old.blocks[region].ops {
            let op = &old.ops[id];
            if op.code == TileOp::Yield {
                return op.operands.iter().map(|&v| self.rw.get(v)).collect();
            }
            self.rw.copy_op(id, into);
        }
        Vec::new()
    }
}

/// The error for a text that cannot run on `host` and says nothing else that could.
pub fn no_otherwise<L: Level>(op: &Op<L>, host: &str) -> Diagnostic {
    let word = |name: &str| op.attr(name).and_then(Attr::as_word).unwrap_or_default();
    let arch = match word("arch") {
        "" => String::new(),
        arch => format!(" from {arch} on"),
    };
    Diagnostic::new(
        Code::E_UNSUPPORTED,
        format!("this assembly text is for {}{arch}, and has no other meaning for {host}", word("target")),
    )
    .at(op.loc.clone())
    .help(
        "give `otherwise=`, a @ts.func over the same operands that computes the same: it runs wherever the \
         text does not",
    )
}
