//! `x * sigmoid(t)` becomes `x / (1 + e^-t)`: the gates of models (silu, gelu by tanh).
//!
//! A sigmoid is a quotient that is as exact as the scalar function promises, for small results too.
//! In a product that accuracy is lost in the product's own rounding, and one division does both.
//! Far out the exponential is infinite and the quotient zero; the product would be zero too, or too
//! small for a normal number.
//!
//! For profiles that let functions differ within their bounds. Input: a flat function. Output: the
//! same, with such products as quotients where nothing else uses the sigmoid, which is left without
//! users.

use tessera_graph::{GraphFunc, GraphOp, walk};
use tessera_ir::{Attr, OpId, OpSpec, Value};
use tessera_numerics::{DType, ScalarFn};

pub fn gate(func: &mut GraphFunc) -> Result<(), String> {
    let uses = walk::uses(func);
    for id in func.walk() {
        if func.ops[id].code != GraphOp::Ew(ScalarFn::Mul) {
            continue;
        }
        let Some((x, t)) = gated(func, id, &|v| uses[v].len()) else { continue };
        let (block, loc) = (func.ops[id].block, func.ops[id].loc.clone());
        let ty = func.ty(t).clone();
        let add = |func: &mut GraphFunc, spec| -> Result<Value, String> {
            let place = func.blocks[block].ops.iter().position(|&o| o == id).unwrap_or(0);
            let made = func.insert(block, place, spec, loc.clone())?;
            Ok(func.ops[made].results[0])
        };
        let ew = |f: ScalarFn, args: &[Value]| OpSpec::new(GraphOp::Ew(f), args);
        let minus = add(func, ew(ScalarFn::Neg, &[t]))?;
        let power = add(func, ew(ScalarFn::Exp, &[minus]))?;
        let one = OpSpec::new(GraphOp::Const, &[]).attr("value", Attr::Float(1.0)).result(ty);
        let one = add(func, one)?;
        let divisor = add(func, ew(ScalarFn::Add, &[power, one]))?;
        let op = &mut func.ops[id];
        op.code = GraphOp::Ew(ScalarFn::Div);
        op.operands = vec![x, divisor];
    }
    Ok(())
}

/// The other factor, and the argument of the sigmoid.
fn gated(func: &GraphFunc, id: OpId, users: &dyn Fn(Value) -> usize) -> Option<(Value, Value)> {
    let op = &func.ops[id];
    let wide = matches!(func.ty(op.results[0]).dtype(), DType::F32 | DType::F64);
    let [a, b] = op.operands[..] else { return None };
    let inside = |v: Value| {
        let def = func.def_id(v).filter(|&d| func.ops[d].block == op.block && users(v) == 1)?;
        (func.ops[def].code == GraphOp::Ew(ScalarFn::Sigmoid)).then(|| func.ops[def].operands[0])
    };
    let found = || inside(b).map(|t| (a, t)).or_else(|| inside(a).map(|t| (b, t)));
    wide.then(found).flatten()
}
