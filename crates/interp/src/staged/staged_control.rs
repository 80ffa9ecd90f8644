//! Blocks, loops and branches of an agent, one op at a time.

use super::agent::{Agent, Frame, Kind, Progress, Val};
use super::world::World;
use crate::fault::{Outcome, broken, fault};
use tessera_diag::{Code, Loc};
use tessera_ir::{BlockId, OpId, Value};
use tessera_staged::StagedOp;
use tessera_staged::ops::tiles::order_of;
use tessera_tile::TileOp;

impl<'p> Agent<'p> {
    /// Runs the current op, or says what it waits for.
    pub fn step(&mut self, world: &mut World<'p>) -> Outcome<Progress> {
        let func = world.prepared.func;
        let Some(frame) = self.frames.last() else { return Ok(Progress::Done) };
        let Some(&id) = func.blocks[frame.block].ops.get(frame.pc) else {
            return Err(broken("a block without an end", &func.loc));
        };
        let op = &func.ops[id];
        match op.code {
            StagedOp::Tile(TileOp::Return) => {
                self.frames.clear();
                Ok(Progress::Done)
            }
            StagedOp::Tile(TileOp::Yield) => {
                let values: Outcome<Vec<_>> =
                    op.group("values").iter().map(|&v| self.get(v, &op.loc)).collect();
                self.end_block(world, values?, &op.loc)?;
                Ok(if self.frames.is_empty() { Progress::Done } else { Progress::Ran })
            }
            StagedOp::Tile(TileOp::For) => self.begin_for(world, id).map(|()| Progress::Ran),
            StagedOp::Tile(TileOp::While) => {
                let carried: Outcome<Vec<_>> =
                    op.group("init").iter().map(|&v| self.get(v, &op.loc)).collect();
                self.iteration_while(world, id, carried?, true);
                Ok(Progress::Ran)
            }
            StagedOp::Tile(TileOp::If) => {
                let cond = self.tile(op.operands[0], &op.loc)?;
                let Some(&[yes]) = cond.bools() else {
                    return Err(broken("a condition that is no bool", &op.loc));
                };
                self.enter(op.regions[usize::from(!yes)], Kind::Branch { op: id });
                Ok(Progress::Ran)
            }
            StagedOp::Tile(TileOp::SlowPath) => {
                let bad = self.tile(op.operands[0], &op.loc)?;
                let Some(bad) = bad.bools().map(|bad| bad.contains(&true)) else {
                    return Err(broken("a condition that is no bool", &op.loc));
                };
                if bad {
                    self.enter(op.regions[0], Kind::Branch { op: id });
                } else {
                    let values: Outcome<Vec<_>> =
                        op.group("init").iter().map(|&v| self.get(v, &op.loc)).collect();
                    self.leave(world, id, values?);
                }
                Ok(Progress::Ran)
            }
            StagedOp::Tiles => self.begin_tiles(world, id).map(|()| Progress::Ran),
            StagedOp::WarpSpecialize => Ok(Progress::Fork(id)),
            _ => {
                let progress = self.perform(world, id)?;
                if matches!(progress, Progress::Ran) {
                    self.advance();
                }
                Ok(progress)
            }
        }
    }

    /// Advances past the current op.
    pub fn advance(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            frame.pc += 1;
        }
    }

    fn enter(&mut self, block: BlockId, kind: Kind) {
        self.frames.push(Frame { block, pc: 0, kind });
    }

    fn give(&mut self, to: &[Value], values: Vec<Val>) {
        for (&v, value) in to.iter().zip(values) {
            self.set(v, value);
        }
    }

    /// The loop or branch on top of the stack has ended.
    fn leave(&mut self, world: &World<'p>, op: OpId, values: Vec<Val>) {
        self.give(&world.prepared.func.ops[op].results, values);
        self.advance();
    }

    fn end_block(&mut self, world: &mut World<'p>, values: Vec<Val>, loc: &Loc) -> Outcome<()> {
        let Some(frame) = self.frames.pop() else { return Ok(()) };
        match frame.kind {
            Kind::Body => {}
            Kind::Branch { op } => self.leave(world, op, values),
            Kind::For { op, at, hi, step, .. } => {
                self.iteration_for(world, op, (at.saturating_add(step), hi, step), values, false);
            }
            Kind::WhileCond { op, carried, first } => {
                let goes_on = match values.first() {
                    Some(Val::Tile(answer)) => answer.bools() == Some(&[true]),
                    _ => return Err(broken("a loop condition without a value", loc)),
                };
                if goes_on {
                    let body = world.prepared.func.ops[op].regions[1];
                    self.enter(body, Kind::WhileBody { op, first });
                    self.give(&world.prepared.func.blocks[body].args, carried);
                } else {
                    self.leave(world, op, carried);
                }
            }
            Kind::WhileBody { op, .. } => self.iteration_while(world, op, values, false),
            Kind::Tiles { op, list, next, .. } => {
                self.iteration_tiles(world, op, list, next, values, false)
            }
        }
        Ok(())
    }

    fn begin_for(&mut self, world: &World<'p>, id: OpId) -> Outcome<()> {
        let op = &world.prepared.func.ops[id];
        let range = self.indices(&op.operands[..3], &op.loc)?;
        if range[2] <= 0 {
            let why = format!("expected a loop step above 0, got {}", range[2]);
            return Err(fault(Code::E_ARGUMENT, why, &op.loc));
        }
        let carried: Outcome<Vec<_>> =
            op.group("init").iter().map(|&v| self.get(v, &op.loc)).collect();
        self.iteration_for(world, id, (range[0], range[1], range[2]), carried?, true);
        Ok(())
    }

    fn iteration_for(
        &mut self,
        world: &World<'p>,
        op: OpId,
        (at, hi, step): (i64, i64, i64),
        carried: Vec<Val>,
        first: bool,
    ) {
        if at >= hi {
            return self.leave(world, op, carried);
        }
        let func = world.prepared.func;
        let body = func.ops[op].regions[0];
        let args = &func.blocks[body].args;
        self.set_index(args[0], at);
        self.give(&args[1..], carried);
        self.enter(body, Kind::For { op, at, hi, step, first });
    }

    fn iteration_while(&mut self, world: &World<'p>, op: OpId, carried: Vec<Val>, first: bool) {
        let cond = world.prepared.func.ops[op].regions[0];
        self.give(&world.prepared.func.blocks[cond].args, carried.clone());
        self.enter(cond, Kind::WhileCond { op, carried, first });
    }

    fn begin_tiles(&mut self, world: &World<'p>, id: OpId) -> Outcome<()> {
        let func = world.prepared.func;
        let op = &func.ops[id];
        let grid = self.indices(op.group("grid"), &op.loc)?;
        let order = order_of(func, id).map_err(|why| broken(&why, &op.loc))?;
        let total = order.teams(&grid).iter().product();
        let mine = world.tiles(total, order);
        let in_turns = self.role.as_ref().filter(|(_, r)| r.by_tiles).map(|(_, r)| r.replicas);
        let taken = |place: usize| in_turns.is_none_or(|n| place as i64 % n.max(1) == self.replica);
        let list: Vec<Vec<i64>> = mine
            .into_iter()
            .enumerate()
            .filter(|(place, _)| taken(*place))
            .map(|(_, number)| order.tile(&grid, number, world.cluster.rank))
            .collect();
        let carried: Outcome<Vec<_>> =
            op.group("init").iter().map(|&v| self.get(v, &op.loc)).collect();
        self.iteration_tiles(world, id, list, 0, carried?, true);
        Ok(())
    }

    fn iteration_tiles(
        &mut self,
        world: &World<'p>,
        op: OpId,
        list: Vec<Vec<i64>>,
        next: usize,
        carried: Vec<Val>,
        first: bool,
    ) {
        let Some(at) = list.get(next) else { return self.leave(world, op, carried) };
        let func = world.prepared.func;
        let body = func.ops[op].regions[0];
        let (axes, args) = func.blocks[body].args.split_at(at.len());
        for (&axis, &x) in axes.iter().zip(at) {
            self.set_index(axis, x);
        }
        self.give(args, carried);
        self.enter(body, Kind::Tiles { op, list, next: next + 1, first });
    }
}
