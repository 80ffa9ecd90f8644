//! A plan's text that was given back with its steps in another order, on other queues, or with
//! memory in other places: what runs is the text, where it computes what the plan does.
//!
//! Each step of the plan is in the text once, in the block that it had, and of two steps that access
//! the same bytes, one of them writing, the order stays. Queues, events, frees and places are those of
//! the text; its verifier has checked that they keep that order.

use crate::places::{ALIGN, Places};
use crate::planner::{BufferId, Origin, Plan};
use crate::text::{FILE, Written};
use std::collections::{BTreeMap, VecDeque};
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_ir::{Attr, BlockId, Func, Module, OpId, Value, parse_module};
use tessera_schedule::{Part, SchedOp, Schedule, Space, accesses, part, space, step_text};

const HELP: &str = "steps follow from what has memory: their order, queues and places may change; leave the rest as it was \
                    printed for these arguments and this machine";

/// The text as what runs. `made` is what the planner wrote for the same values in memory.
pub fn rearranged(
    text: &str,
    plan: &Plan,
    made: &Written,
    backend: &str,
) -> Result<Written, Diagnostics> {
    let one = |mut module: Module<Schedule>| module.funcs.pop();
    let mut printed = Module::new(&*plan.name);
    printed.funcs.push(made.func.clone());
    // Read again, so that values have the names that the text has.
    let read = one(parse_module::<Schedule>(&printed.to_string(), FILE)?);
    let (Some(read), Some(func)) = (read, one(parse_module::<Schedule>(text, FILE)?)) else {
        return Err(refused(
            Code::E_ARGUMENT,
            "expected a plan of one function".into(),
            &made.func.loc,
        ));
    };
    let same = read.walk().into_iter().zip(made.func.walk()).collect();
    let mut names = BTreeMap::new();
    let memory = |func: &Func<Schedule>| -> Vec<Value> {
        let results = func
            .walk()
            .into_iter()
            .filter(|&id| matches!(func.ops[id].code, SchedOp::Store | SchedOp::Constant));
        func.params().iter().copied().chain(results.map(|id| func.ops[id].result())).collect()
    };
    for (theirs, ours) in memory(&read).into_iter().zip(memory(&made.func)) {
        if let (Some(name), Some(&buffer)) = (read.name_of(theirs), made.buffers.get(&ours)) {
            names.insert(name.to_string(), (buffer, read.ty(theirs).clone()));
        }
    }
    let mut out = Written {
        buffers: BTreeMap::new(),
        steps: BTreeMap::new(),
        places: Places { offsets: vec![None; plan.buffers.len()], bytes: 0, unshared: 0 },
        func,
    };
    let func = out.func.clone();
    for v in memory(&func) {
        let loc = func.def(v).map_or(func.loc.clone(), |op| op.loc.clone());
        let name = func.name_of(v).unwrap_or_default();
        let Some((buffer, _)) = names.get(name).filter(|(_, ty)| ty == func.ty(v)) else {
            let why = format!("expected memory of @{}, got %{name}: {}", plan.name, func.ty(v));
            return Err(refused(Code::E_NAME, why, &loc));
        };
        out.buffers.insert(v, *buffer);
        if space(&func, v) != (Space::Device, 0) {
            let why =
                format!("expected memory of the device that the function runs on, got %{name}");
            return Err(refused(Code::E_UNSUPPORTED, why, &loc));
        }
    }
    placed(&func, plan, &mut out)?;
    let mut matcher = Matcher { func: &func, read: &read, same, made, out: &mut out };
    matcher.blocks(func.body, read.body)?;
    for id in func.walk() {
        if func.ops[id].code == SchedOp::Launch {
            out.func.ops[id].attrs.set("backend", Attr::word(backend));
        }
    }
    Ok(out)
}

fn refused(code: Code, why: String, loc: &Loc) -> Diagnostics {
    Diagnostic::new(code, why).at(loc.clone()).help(HELP).into()
}

/// Places of memory: those that the text has, and behind them memory without one.
fn placed(func: &Func<Schedule>, plan: &Plan, out: &mut Written) -> Result<(), Diagnostics> {
    let mut left: Vec<BufferId> = Vec::new();
    for (&v, &buffer) in &out.buffers {
        let Some(op) = func.def(v).filter(|op| op.code == SchedOp::Store) else { continue };
        let bytes = plan.buffers[buffer].bytes;
        let is_result = plan.results.iter().any(|(b, _)| *b == buffer);
        match op.attr("at").and_then(Attr::as_int).and_then(|at| usize::try_from(at).ok()) {
            Some(at) if at % ALIGN != 0 => {
                let why = format!("expected a place that is a multiple of {ALIGN} bytes, got {at}");
                return Err(refused(Code::E_ARGUMENT, why, &op.loc));
            }
            Some(at) => {
                out.places.offsets[buffer] = Some(at);
                out.places.bytes = out.places.bytes.max(at.saturating_add(bytes));
            }
            None if is_result || plan.buffers[buffer].origin != Origin::Scratch => continue,
            None => left.push(buffer),
        }
        out.places.unshared = out.places.unshared.saturating_add(bytes);
    }
    for buffer in left {
        let at = out.places.bytes.next_multiple_of(ALIGN);
        out.places.offsets[buffer] = Some(at);
        out.places.bytes = at.saturating_add(plan.buffers[buffer].bytes);
    }
    Ok(())
}

struct Matcher<'a> {
    /// The text, and the plan as its own text reads.
    func: &'a Func<Schedule>,
    read: &'a Func<Schedule>,
    /// The ops of the plan, by those of its text.
    same: BTreeMap<OpId, OpId>,
    made: &'a Written,
    out: &'a mut Written,
}

/// The steps of a block: not memory, queues and lifetimes.
fn steps(func: &Func<Schedule>, block: BlockId) -> Vec<OpId> {
    let is_step = |id: &OpId| {
        !matches!(
            func.ops[*id].code,
            SchedOp::Store
                | SchedOp::Fused
                | SchedOp::Constant
                | SchedOp::View
                | SchedOp::Free
                | SchedOp::Record
                | SchedOp::Wait
        )
    };
    func.blocks[block].ops.iter().copied().filter(is_step).collect()
}

impl Matcher<'_> {
    fn blocks(&mut self, block: BlockId, of: BlockId) -> Result<(), Diagnostics> {
        let (mine, theirs) = (steps(self.func, block), steps(self.read, of));
        let mut left: BTreeMap<String, VecDeque<usize>> = BTreeMap::new();
        for (place, &id) in theirs.iter().enumerate() {
            left.entry(step_text(self.read, id)).or_default().push_back(place);
        }
        // For each step of the text its place in the plan, or none.
        let found: Vec<Option<usize>> = mine
            .iter()
            .map(|&id| left.get_mut(&step_text(self.func, id)).and_then(VecDeque::pop_front))
            .collect();
        let missing = left.values().flatten().min().copied();
        let strange = found.iter().position(Option::is_none);
        if missing.is_some() || strange.is_some() {
            let wanted =
                missing.map_or("no other step".into(), |p| step_text(self.read, theirs[p]));
            let got =
                strange.map_or("the end of its block".into(), |p| step_text(self.func, mine[p]));
            let at = strange.or(mine.len().checked_sub(1)).map(|p| mine[p]);
            let loc = at.map_or(self.func.loc.clone(), |id| self.func.ops[id].loc.clone());
            let why = format!("expected `{wanted}`, got `{got}`");
            return Err(refused(Code::E_ARGUMENT, why, &loc));
        }
        let found: Vec<usize> = found.into_iter().flatten().collect();
        self.order(&mine, &found)?;
        for (&id, &place) in mine.iter().zip(&found) {
            let theirs = theirs[place];
            if let Some(meaning) = self.same.get(&theirs).and_then(|id| self.made.steps.get(id)) {
                self.out.steps.insert(id, meaning.clone());
            }
            let pairs = self.func.ops[id].regions.iter().zip(&self.read.ops[theirs].regions);
            for (&region, &of) in pairs.collect::<Vec<_>>() {
                self.blocks(region, of)?;
            }
        }
        Ok(())
    }

    /// Steps that depend on each other stay in the plan's order.
    fn order(&self, mine: &[OpId], found: &[usize]) -> Result<(), Diagnostics> {
        if found.is_sorted() {
            return Ok(());
        }
        let all: Vec<Vec<(Part, bool)>> = mine.iter().map(|&id| touched(self.func, id)).collect();
        for (later, place) in found.iter().enumerate() {
            for earlier in (0..later).filter(|&e| found[e] > *place) {
                let shared = all[earlier].iter().find(|(a, writes)| {
                    all[later].iter().any(|(b, also)| (*writes || *also) && overlap(a, b))
                });
                if let Some((part, _)) = shared {
                    let name = self.func.name_of(part.of).unwrap_or_default();
                    let (first, then) = (mine[later], mine[earlier]);
                    let why = format!(
                        "expected `{}` before `{}`: both access %{name}",
                        step_text(self.func, first),
                        step_text(self.func, then)
                    );
                    return Err(refused(Code::E_ARGUMENT, why, &self.func.ops[first].loc));
                }
            }
        }
        Ok(())
    }
}

fn overlap(a: &Part, b: &Part) -> bool {
    a.of == b.of
        && match (a.bytes, b.bytes) {
            (Some(a), Some(b)) => a.0 < b.1 && b.0 < a.1,
            _ => true,
        }
}

/// What a step accesses, with all that is in it.
fn touched(func: &Func<Schedule>, id: OpId) -> Vec<(Part, bool)> {
    let own = |id: OpId| accesses(func, id).into_iter().map(|a| (part(func, a.value), a.writes));
    let mut out: Vec<(Part, bool)> = own(id).collect();
    for &region in &func.ops[id].regions {
        func.walk_block(region, &mut |inner| out.extend(own(inner)));
    }
    out
}
