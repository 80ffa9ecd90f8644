//! Padding in parts of tiles, in sorted tiles and in combinations by functions of the user's.

use super::ragged_flow::{Flow, State, spoil};
use super::ragged_state::{Axis, Spread};
use tessera_ir::{Attr, OpId};
use tessera_tile::TileOp;
use tessera_tile::ops::parts::slice_steps;

impl Flow<'_> {
    /// The state of each result of an op that takes tiles apart or puts their elements together.
    pub(super) fn parts(&self, id: OpId) -> Vec<State> {
        let op = &self.func.ops[id];
        let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
        match op.code {
            TileOp::Slice => vec![self.sliced(id)],
            TileOp::Concat => vec![self.joined(id, axis)],
            TileOp::Take => vec![self.taken(id, axis)],
            // Zeros are sorted to zeros; where they were is a number like any other.
            TileOp::Sort => {
                let state = self.state(op.operands[0]);
                let kept = |a: Axis| if a.is_zero() { a } else { spoil(a) };
                let values = state.iter().map(|&a| kept(a)).collect();
                vec![values, state.into_iter().map(spoil).collect()]
            }
            TileOp::ReduceBy => {
                let all = op.group("x").iter().map(|&v| self.state(v)).reduce(join);
                let mut state = all.unwrap_or_default();
                state.remove(axis);
                vec![state.into_iter().map(spoil).collect(); op.results.len()]
            }
            TileOp::ScanBy => {
                let all = op.group("x").iter().map(|&v| self.state(v)).reduce(join);
                let state: State = all.unwrap_or_default().into_iter().map(spoil).collect();
                vec![state; op.results.len()]
            }
            _ => {
                let rank = |&v| self.func.ty(v).rank();
                op.results.iter().map(|v| vec![Axis::Clean; rank(v)]).collect()
            }
        }
    }

    /// A part of an axis has its padding anywhere.
    fn sliced(&self, id: OpId) -> State {
        let op = &self.func.ops[id];
        let (from, to) = (self.func.ty(op.operands[0]), self.func.ty(op.result()));
        let step = slice_steps(op.attr("step"), from.rank());
        let state = self.state(op.operands[0]).into_iter().enumerate();
        state
            .map(|(d, axis)| match from.shape()[d] == to.shape()[d] && step[d] == 1 {
                true => axis,
                false => axis.spread(Spread::Reshaped),
            })
            .collect()
    }

    fn joined(&self, id: OpId, axis: usize) -> State {
        let parts = self.func.ops[id].group("parts");
        let all = parts.iter().map(|&v| self.state(v)).reduce(join).unwrap_or_default();
        let anywhere = |(d, a): (usize, Axis)| match d == axis && parts.len() > 1 {
            true => a.spread(Spread::Reshaped),
            false => a,
        };
        all.into_iter().enumerate().map(anywhere).collect()
    }

    fn taken(&self, id: OpId, axis: usize) -> State {
        let op = &self.func.ops[id];
        let (from, index) = (self.state(op.operands[0]), self.state(op.operands[1]));
        let one = |(d, (x, at)): (usize, (Axis, Axis))| {
            if d == axis {
                return spoil(x.join(at)).spread(Spread::Reshaped);
            }
            // The padding of both is at the same places.
            if x.root().is_some() { x } else { spoil(at) }
        };
        from.into_iter().zip(index).enumerate().map(one).collect()
    }
}

fn join(a: State, b: State) -> State {
    a.into_iter().zip(b).map(|(a, b)| a.join(b)).collect()
}
