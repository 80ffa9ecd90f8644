//! Batching of matmuls: an axis of both operands is one more batch axis, of one of them one more
//! free axis.

use super::Batched;
use super::rules::each;
use crate::emit::{View, ints};
use tessera_diag::Diagnostic;
use tessera_graph::dims::compute;
use tessera_ir::{Attr, Dim, DimOp, OpId, Value};

pub fn dot(b: &mut Batched<'_>, id: OpId, view: &View<'_>) -> Result<(), Diagnostic> {
    let op = view.op;
    let on = [b.on(op.operands[0]), b.on(op.operands[1])];
    let operands = b.new_values(&op.operands);
    let mut spec = view.spec_on(&operands);
    let batch = view.ints("batch_a").len();
    for (side, on) in ["a", "b"].iter().zip(on) {
        for kind in ["batch", "contract"] {
            let name = format!("{kind}_{side}");
            let by = if on { 1 } else { 0 };
            let mut axes: Vec<i64> = view.ints(&name).iter().map(|a| a + by).collect();
            if kind == "batch" && on_both(&op.operands, b) {
                axes.insert(0, 0);
            }
            if kind == "contract" || !axes.is_empty() {
                spec = spec.attr(&name, ints(axes));
            }
        }
    }
    let result = b.em.op(spec)?;
    // Where only one has it, it is the first of that operand's free axes.
    let own = view.ints("batch_a").len() + view.ints("contract_a").len();
    let free_a = b.source.ty(op.operands[0]).rank() - own;
    let at = match on {
        [true, true] => 0,
        [true, false] => batch,
        _ => batch + free_a,
    };
    let result = b.em.move_axis(result, at, 0)?;
    b.set_all(id, &[result]);
    Ok(())
}

fn on_both(operands: &[Value], b: &Batched<'_>) -> bool {
    b.on(operands[0]) && b.on(operands[1])
}

fn times(a: &Dim, b: &Dim) -> Dim {
    compute(DimOp::Mul, a, b)
}

pub fn conv(b: &mut Batched<'_>, id: OpId, view: &View<'_>) -> Result<(), Diagnostic> {
    let op = view.op;
    let (x, w) = (op.operands[0], op.operands[1]);
    let (xd, wd) = (b.dims(x), b.dims(w));
    let out = b.dims(op.result());
    let groups = view.int("groups", 1);
    let (size, g) = (b.size.clone(), Dim::Static(groups));
    let (nx, nw) = (b.new_value(x), b.new_value(w));
    let space = |first: Vec<Dim>, dims: &[Dim]| [&first[..], &dims[2..]].concat();
    let result = match (b.on(x), b.on(w)) {
        // More images.
        (true, false) => {
            let joined = space(vec![times(&size, &xd[0]), xd[1].clone()], &xd);
            let joined = b.em.reshape(nx, &joined)?;
            let y = b.em.op(view.spec_on(&[joined, nw]))?;
            b.em.reshape(y, &b.with_axis(&out))?
        }
        // More outputs, in each group.
        (false, _) => {
            let per = compute(DimOp::FloorDiv, &wd[0], &g);
            let split = space(vec![size.clone(), g.clone(), per.clone(), wd[1].clone()], &wd);
            let w = b.em.reshape(nw, &split)?;
            let w = b.em.move_axis(w, 1, 0)?;
            let joined = space(vec![times(&size, &wd[0]), wd[1].clone()], &wd);
            let w = b.em.reshape(w, &joined)?;
            let y = b.em.op(view.spec_on(&[nx, w]))?;
            let apart = space(vec![out[0].clone(), g, size, per], &out);
            let y = b.em.reshape(y, &apart)?;
            let y = b.em.move_axis(y, 2, 0)?;
            b.em.reshape(y, &b.with_axis(&out))?
        }
        // Every example is a group of its own.
        (true, true) => {
            let Some(n) = size.as_static() else { return each(b, id) };
            if n == 0 {
                let ty = b.wide(op.result());
                let y = b.em.zeros(&ty)?;
                b.set_all(id, &[y]);
                return Ok(());
            }
            let x = b.em.move_axis(nx, 0, 1)?;
            let joined = space(vec![xd[0].clone(), times(&size, &xd[1])], &xd);
            let x = b.em.reshape(x, &joined)?;
            let joined = space(vec![times(&size, &wd[0]), wd[1].clone()], &wd);
            let w = b.em.reshape(nw, &joined)?;
            let spec = view.spec_on(&[x, w]).attr("groups", Attr::Int(groups * n));
            let y = b.em.op(spec)?;
            let apart = space(vec![out[0].clone(), size, out[1].clone()], &out);
            let y = b.em.reshape(y, &apart)?;
            b.em.move_axis(y, 1, 0)?
        }
    };
    b.set_all(id, &[result]);
    Ok(())
}
