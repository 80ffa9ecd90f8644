//! Copy elision: the kernel that computes a value writes it directly where a later copy would put
//! it.
//!
//! Loops copy carried values to the next iteration and rows to their stacks. Such a copy can go
//! where its destination is free from the first write of the value on. A kernel that reads the old
//! value may write the new one over it if it reads and writes each element at one place. Its
//! attribute `alias` then lists pairs of parameters: one that is read, and the written one that has
//! the same memory.
//!
//! Input: a plan whose copies are in order. Output: the same results, with fewer copies and
//! buffers.

use crate::planner::{Array, BufferId, Origin, Plan, Step};
use std::collections::BTreeMap;
use tessera_ir::{Attr, Effects, OpId, Opcode, Value};
use tessera_tile::{TileFunc, TileOp};

pub fn forward(plan: &mut Plan) {
    let mut uses = vec![0; plan.buffers.len()];
    for step in &plan.steps {
        visit(step, &mut |a, _| uses[a.buffer] += 1);
    }
    // The caller has these.
    for &(buffer, _) in &plan.results {
        uses[buffer] += 1;
    }
    let mut steps = std::mem::take(&mut plan.steps);
    list(plan, &mut uses, &mut steps);
    let mut kept = BTreeMap::new();
    launched(&mut steps, &mut |kernel| {
        kept.entry(*kernel).or_insert(0);
    });
    // Kernels that were there before the ones in place are launched no more.
    for (place, (before, now)) in kept.iter_mut().enumerate() {
        *now = place;
        plan.kernels.swap(place, *before);
        plan.kernels[place].name = format!("k{place}");
    }
    plan.kernels.truncate(kept.len());
    launched(&mut steps, &mut |kernel| *kernel = kept[kernel]);
    plan.steps = steps;
}

/// Each launch's kernel.
fn launched(steps: &mut [Step], f: &mut dyn FnMut(&mut usize)) {
    for step in steps {
        if let Step::Launch { kernel, .. } = step {
            f(kernel);
        }
        inner_lists(step).into_iter().for_each(|inner| launched(inner, f));
    }
}

/// The lists of steps inside a step.
pub fn inner_lists(step: &mut Step) -> Vec<&mut Vec<Step>> {
    match step {
        Step::Cond { then, otherwise, .. } => vec![then, otherwise],
        Step::While { test, body, .. } => vec![test, body],
        Step::Loop { body, .. } => vec![body],
        Step::Launch { .. }
        | Step::Host { .. }
        | Step::Call { .. }
        | Step::Copy { .. }
        | Step::Collective { .. } => Vec::new(),
    }
}

/// Whether a step reads or writes an array, and inner steps.
pub fn visit(step: &Step, f: &mut dyn FnMut(&Array, bool)) {
    let mut all = |steps: &[Step]| steps.iter().for_each(|s| visit(s, f));
    match step {
        Step::Launch { args, .. } => args.iter().for_each(|a| f(a, a.writes)),
        Step::Host { inputs, outputs, .. } => {
            inputs.iter().for_each(|a| f(a, false));
            outputs.iter().for_each(|a| f(a, true));
        }
        Step::Call { args, .. } => args.iter().for_each(|(a, p)| f(a, p.writes())),
        Step::Copy { from, to, .. } | Step::Collective { from, to, .. } => {
            f(from, false);
            f(to, true);
        }
        Step::Cond { pred, then, otherwise, .. } => {
            all(then);
            all(otherwise);
            f(pred, false);
        }
        Step::While { test, pred, body, .. } => {
            all(test);
            all(body);
            f(pred, false);
        }
        Step::Loop { position, body, .. } => {
            all(body);
            f(position, true);
        }
    }
}

pub fn visit_mut(step: &mut Step, f: &mut dyn FnMut(&mut Array)) {
    let mut all = |steps: &mut [Step]| steps.iter_mut().for_each(|s| visit_mut(s, f));
    match step {
        Step::Launch { args, .. } => args.iter_mut().for_each(f),
        Step::Host { inputs, outputs, .. } => inputs.iter_mut().chain(outputs).for_each(f),
        Step::Call { args, .. } => args.iter_mut().for_each(|(a, _)| f(a)),
        Step::Copy { from, to, .. } | Step::Collective { from, to, .. } => {
            [from, to].into_iter().for_each(f);
        }
        Step::Cond { pred, then, otherwise, .. } => {
            all(then);
            all(otherwise);
            f(pred);
        }
        Step::While { test, pred, body, .. } => {
            all(test);
            all(body);
            f(pred);
        }
        Step::Loop { position, body, .. } => {
            all(body);
            f(position);
        }
    }
}

fn list(plan: &mut Plan, uses: &mut [usize], steps: &mut Vec<Step>) {
    for inner in steps.iter_mut().flat_map(inner_lists) {
        list(plan, uses, inner);
    }
    let mut place = 0;
    while place < steps.len() {
        match found(plan, uses, steps, place) {
            Some(found) => {
                apply(plan, uses, steps, place, found);
                // What is before has changed: a copy there may go now.
                place = 0;
            }
            None => place += 1,
        }
    }
}

/// A copy that can be removed.
struct Found {
    /// The step that writes the value first.
    first: usize,
    /// Parameters of that step's kernel that will have one memory: read and written.
    alias: Vec<(usize, usize)>,
}

fn found(plan: &Plan, uses: &[usize], steps: &[Step], place: usize) -> Option<Found> {
    let Step::Copy { from, to, .. } = &steps[place] else { return None };
    let (s, t) = (from.buffer, to.buffer);
    let buffer = &plan.buffers[s];
    let local = buffer.origin == Origin::Scratch && s != t && is_dense(from) && is_dense(to);
    let whole = from.offset == 0 && from.iterations.is_empty() && from.dims == to.dims;
    let bytes = from.dims.iter().product::<i64>().max(0) as usize * from.dtype.bytes();
    if !local || !whole || bytes != buffer.bytes || from.dtype != to.dtype {
        return None;
    }
    let count = |step: &Step, b: BufferId| {
        let mut n = 0;
        visit(step, &mut |a, _| n += usize::from(a.buffer == b));
        n
    };
    if steps.iter().map(|step| count(step, s)).sum::<usize>() != uses[s] {
        return None;
    }
    let first = steps.iter().position(|step| count(step, s) > 0).filter(|&first| first < place)?;
    if steps[first + 1..place].iter().any(|step| count(step, t) > 0) {
        return None;
    }
    // Afterwards both share memory: neither may be written while the other is still needed.
    let mut overwritten = false;
    for step in &steps[place + 1..] {
        let mut written = [false; 2];
        visit(step, &mut |a, writes| {
            written[0] |= writes && a.buffer == s;
            written[1] |= writes && a.buffer == t;
        });
        overwritten |= written[1];
        if written[0] || (overwritten && count(step, s) > 0) {
            return None;
        }
    }
    let alias =
        if count(&steps[first], t) > 0 { in_place(plan, &steps[first], s, to)? } else { vec![] };
    Some(Found { first, alias })
}

/// Row by row without gaps.
pub fn is_dense(a: &Array) -> bool {
    let mut next = a.dtype.bytes() as i64;
    a.dims.iter().zip(&a.strides).rev().all(|(&d, &stride)| {
        let right = d == 1 || stride == next;
        next *= d.max(1);
        right
    })
}

/// The parameters of a launch that read the memory which it would write, where each element is read
/// before it is written and by no other group.
fn in_place(plan: &Plan, step: &Step, s: BufferId, to: &Array) -> Option<Vec<(usize, usize)>> {
    let (kernel, args) = match step {
        Step::Launch { kernel, args, .. } => (*kernel, args),
        // A copy of the old value, which will be there already.
        Step::Copy { from, to: value, .. } => {
            let same = value.buffer == s && from == &Array { writes: from.writes, ..to.clone() };
            return (same && value.dims == to.dims && value.offset == 0).then(Vec::new);
        }
        _ => return None,
    };
    let func = &plan.kernels[kernel];
    let mut writes = args.iter().enumerate().filter(|(_, a)| a.buffer == s && a.writes);
    let (w, write) = writes.next()?;
    if writes.next().is_some() {
        return None;
    }
    let mut out = Vec::new();
    for (r, read) in args.iter().enumerate().filter(|(_, a)| a.buffer == to.buffer) {
        let alike = read.offset == to.offset + write.offset
            && (&read.dims, &read.strides, &read.iterations)
                == (&write.dims, &write.strides, &to.iterations)
            && read.dtype == write.dtype;
        let params = func.params();
        if read.writes || !alike || !is_paired(func, *params.get(r)?, *params.get(w)?) {
            return None;
        }
        out.push((r, w));
    }
    Some(out)
}

/// Whether a kernel reads one array only where it writes the other, a group for itself.
fn is_paired(func: &TileFunc, from: Value, to: Value) -> bool {
    let uses = |p: Value| -> Vec<OpId> {
        func.walk().into_iter().filter(|&id| func.ops[id].operands.contains(&p)).collect()
    };
    let (loads, &[store]) = (uses(from), &uses(to)[..]) else { return false };
    let before = |load: OpId| {
        let ops = &func.blocks[func.body].ops;
        let place = |id: OpId| ops.iter().position(|&o| o == id);
        matches!((place(load), place(store)), (Some(a), Some(b)) if a < b)
    };
    if !loads.iter().all(|&load| before(load)) {
        return false;
    }
    let store = &func.ops[store];
    // Accumulators of a matmul may be stored in the memory of its result meanwhile.
    if func.walk().iter().any(|&id| func.ops[id].code == TileOp::Mma) {
        return false;
    }
    let plain = store.code == TileOp::Store
        && store.block == func.body
        && store.group("mask").is_empty()
        && store.attr("step").is_none();
    plain
        && loads.iter().map(|&id| &func.ops[id]).all(|load| {
            load.code == TileOp::Load
                && load.block == func.body
                && load.group("at") == store.group("at")
                && load.attr("extent") == store.attr("extent")
                && load.attr("step").is_none()
        })
}

fn apply(plan: &mut Plan, uses: &mut [usize], steps: &mut Vec<Step>, place: usize, found: Found) {
    let Step::Copy { from, to, .. } = steps.remove(place) else { return };
    let (s, t) = (from.buffer, to.buffer);
    for step in &mut *steps {
        visit_mut(step, &mut |a| {
            if a.buffer == s {
                a.buffer = t;
                a.offset += to.offset;
                a.iterations.splice(0..0, to.iterations.iter().copied());
            }
        });
    }
    uses[t] += uses[s] - 2;
    uses[s] = 0;
    if steps_onto_itself(plan, &steps[found.first]) {
        steps.remove(found.first);
        uses[t] -= 2;
        return;
    }
    if let (false, Some(Step::Launch { kernel, .. })) =
        (found.alias.is_empty(), steps.get_mut(found.first))
    {
        let mut func = plan.kernels[*kernel].clone();
        let before = func.attrs.get("alias").and_then(Attr::as_ints).unwrap_or_default();
        let pairs = found.alias.iter().flat_map(|&(r, w)| [r as i64, w as i64]);
        func.attrs.set("alias", Attr::ints(before.into_iter().chain(pairs)));
        let known = plan.kernels.iter().position(|k| k.hash() == func.hash());
        *kernel = known.unwrap_or_else(|| {
            func.name = format!("k{}", plan.kernels.len());
            plan.kernels.push(func);
            plan.kernels.len() - 1
        });
    }
}

/// A copy of memory to where it is.
fn steps_onto_itself(plan: &Plan, step: &Step) -> bool {
    let same = |from: &Array, to: &Array| *from == Array { writes: from.writes, ..to.clone() };
    match step {
        Step::Copy { from, to, .. } => same(from, to),
        Step::Launch { kernel, args, .. } => {
            let [a, b] = &args[..] else { return false };
            a.writes != b.writes && same(a, b) && is_copy(&plan.kernels[*kernel], a.writes)
        }
        Step::Host { .. }
        | Step::Call { .. }
        | Step::Collective { .. }
        | Step::Cond { .. }
        | Step::While { .. }
        | Step::Loop { .. } => false,
    }
}

/// Whether a kernel of two arrays does nothing but store what it loads from the same place of the other.
fn is_copy(func: &TileFunc, first_is_written: bool) -> bool {
    let &[a, b] = func.params() else { return false };
    let (from, to) = if first_is_written { (b, a) } else { (a, b) };
    let stores = func.walk().into_iter().filter(|&id| func.ops[id].operands.contains(&to));
    let [store] = stores.collect::<Vec<_>>()[..] else { return false };
    let loaded = func.walk().into_iter().any(|id| {
        let op = &func.ops[id];
        op.code == TileOp::Load
            && op.operands.first() == Some(&from)
            && func.ops[store].operands.get(1) == Some(&op.result())
    });
    // An assertion of a user's kernel stays.
    let quiet = func.walk().into_iter().filter(|id| *id != store).all(|id| {
        let effects = func.ops[id].code.info().effects;
        matches!(effects, Effects::Pure | Effects::Read | Effects::Terminator)
    });
    loaded && quiet && is_paired(func, from, to)
}
