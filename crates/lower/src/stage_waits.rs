//! Whether a kernel that waits for its copies itself has waited for every stage that it reads.
//!
//! The copies, commits, waits and reads are run for each number of iterations up to a few times the
//! stages. After that nothing new happens: the same groups are in flight in each iteration, and a
//! condition that holds for all but the last iterations fails for the same number of them.

use crate::lift_stages::{Fill, Loop, Read, Unlifted};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tessera_ir::{Attr, BlockId, OpId};
use tessera_tile::{Polynomial, TileFunc, TileOp};

/// How many iterations beyond the reach of a copy are run.
const BEYOND: i64 = 4;

/// A copy: the prologue's by its number, the loop's by its iteration.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Made {
    Before(usize),
    In(i64),
}

struct Run<'f> {
    func: &'f TileFunc,
    around: &'f Loop,
    fill: &'f Fill,
    prologue: &'f [Fill],
    reads: BTreeMap<OpId, &'f Read>,
    /// How many iterations the loop has.
    count: i64,
    /// How often an op of the prologue has copied.
    copied: BTreeMap<OpId, usize>,
    open: Vec<Made>,
    groups: VecDeque<Vec<Made>>,
    complete: BTreeSet<Made>,
}

pub(crate) fn check(
    func: &TileFunc,
    around: &Loop,
    fill: &Fill,
    prologue: &[Fill],
    reads: &[Read],
) -> Result<(), Unlifted> {
    let explicit = |id: &OpId| matches!(func.ops[*id].code, TileOp::CopyCommit | TileOp::CopyWait);
    if !func.walk().iter().any(explicit) {
        return Ok(());
    }
    let furthest = reads.iter().map(|r| r.behind).max().unwrap_or(0);
    let known = around.left[0].0.with(around.iv, &Polynomial::constant(0));
    let counts = match known.and_then(|left| left.as_constant()) {
        Some(left) => (left.div_euclid(around.step) + 1).clamp(0, 2 * furthest + BEYOND),
        None => 2 * furthest + BEYOND,
    };
    for count in 0..=counts {
        let mut run = Run {
            func,
            around,
            fill,
            prologue,
            reads: reads.iter().map(|r| (r.op, r)).collect(),
            count,
            copied: BTreeMap::new(),
            open: Vec::new(),
            groups: VecDeque::new(),
            complete: BTreeSet::new(),
        };
        let home = func.ops[around.op].block;
        for &id in &func.blocks[home].ops {
            if id == around.op {
                break;
            }
            run.op(id, None)?;
        }
        for k in 0..count {
            run.block(around.body, Some(k))?;
        }
    }
    Ok(())
}

fn memory(why: &str, place: OpId) -> Unlifted {
    Unlifted::Memory((why.to_string(), place))
}

impl Run<'_> {
    fn block(&mut self, block: BlockId, k: Option<i64>) -> Result<(), Unlifted> {
        let func = self.func;
        func.blocks[block].ops.iter().try_for_each(|&id| self.op(id, k))
    }

    fn op(&mut self, id: OpId, k: Option<i64>) -> Result<(), Unlifted> {
        let func = self.func;
        let op = &func.ops[id];
        match op.code {
            TileOp::CopyCommit => {
                let group = std::mem::take(&mut self.open);
                self.groups.push_back(group);
            }
            TileOp::CopyWait => {
                let Some(newest) = op.attr("n").and_then(Attr::as_int) else {
                    return Err(memory("the kernel waits for its copies by stage", id));
                };
                while self.groups.len() as i64 > newest {
                    self.complete.extend(self.groups.pop_front().into_iter().flatten());
                }
            }
            TileOp::CopyAsync if id == self.fill.op => self.open.extend(k.map(Made::In)),
            TileOp::CopyAsync => {
                let nth = self.copied.entry(id).or_default();
                let all = self.prologue.iter().enumerate().filter(|(_, f)| f.op == id);
                let made = all.map(|(i, _)| Made::Before(i)).nth(*nth);
                *nth += 1;
                self.open.extend(made);
            }
            TileOp::Load => self.read(id, k)?,
            TileOp::If => self.branch(id, k)?,
            TileOp::For if k.is_none() => self.repeat(id)?,
            // An inner loop may read a stage any number of times, and do nothing else here.
            TileOp::For | TileOp::While => {
                for inner in crate::facts::subtree(func, id) {
                    match func.ops[inner].code {
                        TileOp::CopyCommit | TileOp::CopyWait | TileOp::CopyAsync => {
                            let why = "copies are begun or waited for in a loop inside";
                            return Err(memory(why, inner));
                        }
                        TileOp::Load => self.read(inner, k)?,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn read(&self, id: OpId, k: Option<i64>) -> Result<(), Unlifted> {
        let (Some(read), Some(k)) = (self.reads.get(&id), k) else { return Ok(()) };
        let made = match usize::try_from(k).ok().filter(|_| k < read.behind) {
            Some(first) => Made::Before(read.first[first]),
            None => Made::In(k - read.behind),
        };
        if self.complete.contains(&made) {
            return Ok(());
        }
        let copy = match made {
            Made::Before(i) => self.prologue[i].op,
            Made::In(_) => self.fill.op,
        };
        Err(Unlifted::Unwaited { read: id, copy })
    }

    /// A loop of the prologue: its copies were counted one by one.
    fn repeat(&mut self, id: OpId) -> Result<(), Unlifted> {
        let body = self.func.ops[id].regions[0];
        let inside = crate::facts::subtree(self.func, id);
        let ours = |op: &OpId| self.prologue.iter().filter(|f| f.op == *op).count();
        let times = inside.iter().map(ours).max().unwrap_or(0);
        let other =
            |op: &OpId| matches!(self.func.ops[*op].code, TileOp::CopyCommit | TileOp::CopyWait);
        if times == 0 && inside.iter().any(other) {
            return Err(memory("copies are committed in a loop before", id));
        }
        (0..times).try_for_each(|_| self.block(body, None))
    }

    fn branch(&mut self, id: OpId, k: Option<i64>) -> Result<(), Unlifted> {
        let func = self.func;
        let matters = |op: &OpId| {
            let code = func.ops[*op].code;
            let counts = matches!(code, TileOp::CopyCommit | TileOp::CopyWait);
            counts || self.reads.contains_key(op) || self.fills(*op)
        };
        let inside = crate::facts::subtree(func, id);
        if !inside.iter().any(matters) {
            return Ok(());
        }
        // The guard of a copy inside says what the condition is.
        let guards = inside.iter().find_map(|&op| match op == self.fill.op {
            true => Some(&self.fill.guards),
            false => self.prologue.iter().find(|f| f.op == op).map(|f| &f.guards),
        });
        let nested = inside[1..].iter().any(|&op| func.ops[op].code == TileOp::If);
        let unknown = || memory("copies are begun or waited for under a condition", id);
        let guards = guards.filter(|_| !nested).ok_or_else(unknown)?;
        let holds: Option<Vec<bool>> = guards.iter().map(|g| self.holds(g, k)).collect();
        let region =
            func.ops[id].regions[usize::from(!holds.ok_or_else(unknown)?.iter().all(|h| *h))];
        self.block(region, k)
    }

    fn fills(&self, op: OpId) -> bool {
        op == self.fill.op || self.prologue.iter().any(|f| f.op == op)
    }

    /// Whether a number that counts down with the iterations left is not negative.
    fn holds(&self, guard: &Polynomial, k: Option<i64>) -> Option<bool> {
        let at = |p: &Polynomial| p.with(self.around.iv, &Polynomial::constant(k.unwrap_or(0)));
        let guard = at(guard)?;
        if let Some(known) = guard.as_constant() {
            return Some(known >= 0);
        }
        self.around.left.iter().find_map(|(left, step)| {
            let surplus = guard.minus(&at(left)?)?.as_constant().filter(|s| s % step == 0)?;
            Some(self.count - 1 - k.unwrap_or(0) + surplus / step >= 0)
        })
    }
}
