//! The tests of what the levels of IR share. Their own crates test the levels.

use tessera_ir::{DimExpr, DimOp};

#[test]
fn expressions_fold_print_and_evaluate() {
    let m = DimExpr::sym("M");
    let e = DimExpr::bin(DimOp::Mul, m.clone().ceil_div(64), DimExpr::Const(2));
    assert_eq!(e.to_string(), "(cdiv(M, 64) * 2)");
    assert_eq!(e.eval(&|_| Some(65)), Ok(4));
    assert_eq!(e.eval(&|_| None), Err("`M` has no value".into()));
    assert_eq!(e.substitute(&|_| Some(1)), DimExpr::Const(2));
    assert_eq!(DimExpr::bin(DimOp::Add, m.clone(), DimExpr::Const(0)), m);
    assert_eq!(m.clone().ceil_div(32).ceil_div(2), m.clone().ceil_div(64));
    for (n, a, b) in [(-9, 4, 3), (7, 2, 8), (64, 32, 2), (65, 32, 2)] {
        let twice = |op: DimOp| op.eval(op.eval(n, a).unwrap(), b);
        assert_eq!(twice(DimOp::CeilDiv), DimOp::CeilDiv.eval(n, a * b));
        assert_eq!(twice(DimOp::FloorDiv), DimOp::FloorDiv.eval(n, a * b));
    }
    assert_eq!(DimOp::Mod.eval(-7, 3), Some(2));
    assert_eq!(DimOp::CeilDiv.eval(-7, 3), Some(-2));
    assert_eq!(DimOp::Mul.eval(i64::MAX, 2), None);
}
