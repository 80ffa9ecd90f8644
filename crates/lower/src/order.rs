//! Which scalars are known to be less than others at an op: what the conditions of the branches and
//! loops around it imply.

use crate::facts::yielded;
use tessera_ir::{Attr, OpId, Value};
use tessera_numerics::ScalarFn;
use tessera_tile::{TileFunc, TileOp};

/// `less < more`, or `less <= more` where it is not strict.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Order {
    pub less: Value,
    pub more: Value,
    pub strict: bool,
}

/// The most ops of one condition.
const FUEL: usize = 1000;

/// What is known at an op, from the outermost condition inward. What the condition of a `while`
/// loop implies about the values that it tests holds for those that its body takes.
pub(crate) fn order_at(func: &TileFunc, id: OpId) -> Vec<Order> {
    let mut around = Vec::new();
    let mut block = func.ops[id].block;
    while let Some(parent) = func.blocks[block].parent {
        let op = &func.ops[parent];
        match op.code {
            TileOp::If => around.push(implied(func, op.operands[0], op.regions[0] == block)),
            // The body runs where the condition has just held.
            TileOp::While if op.regions[1] == block => {
                let held = yielded(func, op.regions[0]).first();
                around.extend(held.map(|&held| implied(func, held, true)));
            }
            _ => {}
        }
        block = op.block;
    }
    around.into_iter().rev().flatten().collect()
}

/// What a condition that evaluated to `truth` implies.
pub(crate) fn implied(func: &TileFunc, condition: Value, truth: bool) -> Vec<Order> {
    of(func, condition, truth, &mut { FUEL })
}

fn of(func: &TileFunc, condition: Value, truth: bool, fuel: &mut usize) -> Vec<Order> {
    let Some(op) = func.def(condition).filter(|_| *fuel > 0) else { return Vec::new() };
    *fuel -= 1;
    let TileOp::Ew(f) = op.code else {
        return match op.code {
            TileOp::If | TileOp::Select => of_choice(func, condition, truth, fuel),
            _ => Vec::new(),
        };
    };
    let order = |less: usize, more: usize, strict: bool| {
        vec![Order { less: op.operands[less], more: op.operands[more], strict }]
    };
    match (f, truth) {
        (ScalarFn::And, true) | (ScalarFn::Or, false) => {
            let mut out = of(func, op.operands[0], truth, fuel);
            out.extend(of(func, op.operands[1], truth, fuel));
            out
        }
        (ScalarFn::Not, _) => of(func, op.operands[0], !truth, fuel),
        (ScalarFn::Lt, true) | (ScalarFn::Ge, false) => order(0, 1, true),
        (ScalarFn::Gt, true) | (ScalarFn::Le, false) => order(1, 0, true),
        (ScalarFn::Le, true) | (ScalarFn::Gt, false) => order(0, 1, false),
        (ScalarFn::Ge, true) | (ScalarFn::Lt, false) => order(1, 0, false),
        (ScalarFn::Eq, true) | (ScalarFn::Ne, false) => {
            let mut out = order(0, 1, false);
            out.extend(order(1, 0, false));
            out
        }
        _ => Vec::new(),
    }
}

/// The two values of which a choice, a result of `tile.if` or `tile.select`, is one: the first where
/// the condition holds.
pub(crate) fn sides(func: &TileFunc, choice: Value) -> Option<[Value; 2]> {
    let op = func.def(choice)?;
    match op.code {
        TileOp::Select => Some([op.operands[1], op.operands[2]]),
        TileOp::If => {
            let place = op.results.iter().position(|&r| r == choice)?;
            let side = |region: usize| yielded(func, op.regions[region]).get(place).copied();
            Some([side(0)?, side(1)?])
        }
        _ => None,
    }
}

/// What a choice between two conditions implies. Python's `c and d` is `d` where `c` holds and `c`
/// elsewhere; `c or d` is the reverse. If such a choice evaluated to `truth`, one side cannot have
/// been taken, and the other one gives both `c` and `d`.
fn of_choice(func: &TileFunc, choice: Value, truth: bool, fuel: &mut usize) -> Vec<Order> {
    let (Some(op), Some(sides)) = (func.def(choice), sides(func, choice)) else {
        return Vec::new();
    };
    let condition = op.operands[0];
    let mut known: Option<Vec<Order>> = None;
    for (side, held) in sides.into_iter().zip([true, false]) {
        if truth_where(func, side, condition, held) == Some(!truth) {
            continue;
        }
        let mut here = of(func, condition, held, fuel);
        here.extend(of(func, side, truth, fuel));
        known = Some(match known {
            None => here,
            Some(known) => known.into_iter().filter(|o| here.contains(o)).collect(),
        });
    }
    known.unwrap_or_default()
}

/// What a boolean is where `condition` is `held`: a constant, the condition itself, or its negation.
fn truth_where(func: &TileFunc, value: Value, condition: Value, held: bool) -> Option<bool> {
    if value == condition {
        return Some(held);
    }
    let op = func.def(value)?;
    match op.code {
        TileOp::Const => match op.attr("value")? {
            Attr::Bool(b) => Some(*b),
            _ => None,
        },
        TileOp::Ew(ScalarFn::Not) if op.operands[0] == condition => Some(!held),
        _ => None,
    }
}
