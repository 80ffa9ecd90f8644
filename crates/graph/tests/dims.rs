//! Extents.

use tessera_graph::dims::{bind, compute, count, same, substitute_type};
use tessera_ir::{Dim, DimExpr, DimOp, Type};

fn n() -> Dim {
    Dim::Expr(DimExpr::sym("n"))
}

#[test]
fn extents_that_are_equal_look_equal() {
    let twice = compute(DimOp::Add, &n(), &n());
    assert_eq!(twice.to_string(), "(2 * n)");
    let back = compute(DimOp::Sub, &compute(DimOp::Add, &n(), &3.into()), &3.into());
    assert_eq!(back, n());
    let by_hand = DimExpr::Bin(DimOp::Mul, DimExpr::sym("n").into(), DimExpr::Const(2).into());
    assert!(same(&twice, &Dim::Expr(by_hand)));
    assert!(!same(&twice, &n()) && !same(&n(), &4.into()) && same(&Dim::Any, &n()));
    let half = compute(DimOp::CeilDiv, &compute(DimOp::Add, &twice, &3.into()), &2.into());
    assert_eq!(half.to_string(), "(n + 2)");
    let m = Dim::Expr(DimExpr::sym("m"));
    assert!(same(&count(&[n(), 2.into(), m.clone()]), &count(&[m.clone(), n(), 2.into()])));
    let less = compute(DimOp::Sub, &4.into(), &n());
    assert_eq!(less.to_string(), "((-1 * n) + 4)");
    assert_eq!(compute(DimOp::Max, &half, &0.into()), half);
    let many = count(&[n(), 6.into(), m.clone()]);
    let few = count(&[n(), 2.into()]);
    assert!(same(&compute(DimOp::FloorDiv, &many, &few), &count(&[3.into(), m.clone()])));
    assert_eq!(compute(DimOp::Mod, &many, &few), 0.into());
    assert_eq!(compute(DimOp::Mod, &n(), &m).as_static(), None);
    // Nothing is divided by 0.
    assert_eq!(compute(DimOp::FloorDiv, &n(), &0.into()).as_static(), None);
    assert_eq!(compute(DimOp::Max, &less, &0.into()).to_string(), "max(((-1 * n) + 4), 0)");
}

#[test]
fn symbols_bind_by_position_and_substitute() {
    let f32 = tessera_numerics::NumType::plain(tessera_numerics::DType::F32);
    let ty = |dims: &[Dim]| Type::Tensor { dims: dims.to_vec(), elem: f32 };
    let twice = compute(DimOp::Add, &n(), &n());
    let params = [ty(&[n(), twice.clone()])];
    let symbols = bind(&params, &[ty(&[4.into(), 8.into()])]).unwrap();
    assert_eq!(substitute_type(&params[0], &symbols).static_shape(), Some(vec![4, 8]));
    assert!(bind(&params, &[ty(&[4.into(), 9.into()])]).is_err());
    assert!(bind(&params, &[ty(&[4.into()])]).is_err());
}
