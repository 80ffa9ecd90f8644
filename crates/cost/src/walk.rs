//! How often each op runs.

use crate::Launch;
use crate::ops::count;
use crate::scalar::{Known, Sizes};
use crate::tally::Tally;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tessera_ir::{Attr, BlockId, OpId, Value};
use tessera_tile::{KernelKind, TileFunc, TileOp, kind_of};

/// The most coordinates and iterations that are followed one by one. Beyond that a sample
/// represents all.
const BUDGET: u64 = 1 << 14;

pub struct Walk<'a> {
    known: Known<'a>,
    /// Values that loop bounds and conditions depend on.
    control: BTreeSet<Value>,
    budget: u64,
    pub exact: bool,
}

impl<'a> Walk<'a> {
    pub fn new(func: &'a TileFunc, launch: Launch<'a>) -> Result<Self, String> {
        let sizes = Sizes(launch.dims);
        for op in func.walk().into_iter().map(|id| &func.ops[id]) {
            if let (TileOp::Dim, Some(name)) = (op.code, op.attr("name").and_then(Attr::as_expr)) {
                sizes.eval(&name)?;
            }
        }
        let known = Known {
            func,
            sizes,
            grid: launch.grid,
            domain: launch.domain,
            lanes: launch.lanes,
            programs: [0; 3],
            variables: BTreeMap::new(),
        };
        let control = control(func);
        Ok(Self { known, control, budget: BUDGET, exact: true })
    }

    /// The whole launch.
    pub fn all(&mut self) -> Tally {
        let func = self.known.func;
        if kind_of(func) == Some(KernelKind::Lane) {
            return self.block(func.body, &(0..self.known.all_lanes()));
        }
        let mut axes = [false; 3];
        for op in self.control.iter().filter_map(|&v| func.def(v)) {
            if let (TileOp::ProgramId, Some(axis)) = (op.code, op.attr("axis")) {
                axes[axis.as_int().unwrap_or(0) as usize % 3] = true;
            }
        }
        self.groups(&axes, 0)
    }

    /// The groups along the axes from this one on: one by one where something depends on them.
    fn groups(&mut self, follow: &[bool; 3], axis: usize) -> Tally {
        let Some(&extent) = self.known.grid.get(axis) else {
            return self.block(self.known.func.body, &(0..1));
        };
        let mut total = self.empty();
        for (at, weight) in self.samples(extent.max(0) as u64, follow[axis]) {
            self.known.programs[axis] = at as i64;
            let one = self.groups(follow, axis + 1);
            total.add(&one, weight);
        }
        total
    }

    fn empty(&self) -> Tally {
        Tally::new(self.known.func.params().len())
    }

    /// The sample of `n`, and how many each of them represents.
    fn samples(&mut self, n: u64, one_by_one: bool) -> Vec<(u64, u64)> {
        let most = if one_by_one { n.min(self.budget.max(1)) } else { n.min(1) };
        if one_by_one && n > 1 {
            self.exact &= most == n;
            self.budget -= most.min(self.budget);
        }
        let start = |i: u64| (u128::from(i) * u128::from(n) / u128::from(most.max(1))) as u64;
        (0..most)
            .map(|i| (start(i) + (start(i + 1) - start(i)) / 2, start(i + 1) - start(i)))
            .collect()
    }

    /// A block as it runs in these lanes; in a group kernel, in one lane for the group.
    fn block(&mut self, block: BlockId, lanes: &Range<i64>) -> Tally {
        let mut total = self.empty();
        if lanes.is_empty() {
            return total;
        }
        let func = self.known.func;
        let mut once = self.empty();
        let mut waits = false;
        for &id in &func.blocks[block].ops {
            let inner = match func.ops[id].code {
                TileOp::For => self.iterations(id, lanes),
                TileOp::If => self.branches(id, lanes),
                TileOp::While => {
                    self.exact = false;
                    let regions = &func.ops[id].regions;
                    regions.iter().fold(self.empty(), |mut sum, &region| {
                        sum.add(&self.block(region, lanes), 1);
                        sum
                    })
                }
                code => {
                    if code == TileOp::Mma {
                        *once.products.entry(id).or_default() += 1;
                    }
                    waits |= matches!(code, TileOp::Load | TileOp::Gather);
                    count(func, &func.ops[id], &mut once);
                    continue;
                }
            };
            total.add(&inner, 1);
        }
        total.add(&once, (lanes.end - lanes.start) as u64);
        total.waits = total.waits.saturating_add(waits.into());
        total
    }

    fn iterations(&mut self, id: OpId, lanes: &Range<i64>) -> Tally {
        let func = self.known.func;
        let op = &func.ops[id];
        let (body, variable) = (op.regions[0], func.blocks[op.regions[0]].args[0]);
        let Some((lo, step, iterations)) = self.bounds(&op.operands, lanes) else {
            self.exact = false;
            return self.block(body, lanes);
        };
        let mut total = self.empty();
        for (iteration, weight) in self.samples(iterations, self.control.contains(&variable)) {
            let at = lo.saturating_add(step.saturating_mul(iteration as i64));
            self.known.variables.insert(variable, at);
            let one = self.block(body, lanes);
            total.add(&one, weight);
        }
        self.known.variables.remove(&variable);
        total
    }

    /// The first value, the step and the number of iterations of a loop.
    fn bounds(&mut self, operands: &[Value], lanes: &Range<i64>) -> Option<(i64, i64, u64)> {
        let at = |lane: i64| -> Option<(i64, i64, u64)> {
            let int = |i: usize| self.known.int(operands[i], lane);
            let (lo, hi, step) = (int(0)?, int(1)?, int(2)?);
            let span = i128::from(hi) - i128::from(lo);
            let iterations =
                if span <= 0 || step <= 0 { 0 } else { (span - 1) / i128::from(step) + 1 };
            Some((lo, step, u64::try_from(iterations).ok()?))
        };
        let (first, last) = (at(lanes.start)?, at(lanes.end - 1)?);
        if first != last || operands[..3].iter().any(|&v| self.known.varies(v, &mut 1000)) {
            let middle = at(lanes.start + (lanes.end - lanes.start) / 2);
            self.exact = false;
            return middle;
        }
        Some(first)
    }

    fn branches(&mut self, id: OpId, lanes: &Range<i64>) -> Tally {
        let op = &self.known.func.ops[id];
        let (then, other) = (op.regions[0], op.regions[1]);
        match self.known.holds(op.operands[0], lanes) {
            Some(holds) => {
                let mut total = self.block(then, &holds);
                total.add(&self.block(other, &(lanes.start..holds.start)), 1);
                total.add(&self.block(other, &(holds.end..lanes.end)), 1);
                total
            }
            None => {
                self.exact = false;
                let (a, b) = (self.block(then, lanes), self.block(other, lanes));
                if a.size() >= b.size() { a } else { b }
            }
        }
    }
}

/// Everything that the bounds of loops and the conditions of branches depend on.
fn control(func: &TileFunc) -> BTreeSet<Value> {
    let mut found = BTreeSet::new();
    let mut open: Vec<Value> = Vec::new();
    for op in func.walk().into_iter().map(|id| &func.ops[id]) {
        match op.code {
            TileOp::For => open.extend(&op.operands[..3]),
            TileOp::If => open.push(op.operands[0]),
            _ => {}
        }
    }
    while let Some(value) = open.pop() {
        if found.insert(value)
            && let Some(op) = func.def(value)
        {
            open.extend(&op.operands);
        }
    }
    found
}
