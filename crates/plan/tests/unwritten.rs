//! Plans that read what nothing wrote.

use tessera_diag::Loc;
use tessera_ir::Type;
use tessera_numerics::DType;
use tessera_plan::inner::unwritten;
use tessera_plan::{Array, Buffer, BufferId, Origin, Plan, Step};

fn array(buffer: BufferId) -> Array {
    Array {
        buffer,
        offset: 0,
        dims: vec![4],
        strides: vec![4],
        dtype: DType::F32,
        writes: true,
        iterations: Vec::new(),
    }
}

fn copy(from: BufferId, to: BufferId) -> Step {
    Step::Copy { from: array(from), to: array(to) }
}

/// Buffer 0 is an argument.
fn plan(steps: Vec<Step>, result: BufferId) -> Plan {
    let ty = Type::Scalar(DType::F32);
    let buffer = |i: usize| Buffer {
        bytes: 16,
        origin: if i == 0 { Origin::Argument(0) } else { Origin::Scratch },
        name: format!("v{i}"),
        ty: ty.clone(),
    };
    Plan {
        name: "f".into(),
        kernels: Vec::new(),
        buffers: (0..4).map(buffer).collect(),
        steps,
        params: vec![0],
        results: vec![(result, ty.clone())],
        fused: Vec::new(),
    }
}

#[test]
fn what_is_read_was_written() {
    assert_eq!(unwritten(&plan(vec![copy(0, 1), copy(1, 2)], 2)), None);
    assert_eq!(unwritten(&plan(vec![copy(1, 2), copy(0, 1)], 2)), Some(1));
    assert_eq!(unwritten(&plan(vec![copy(0, 1)], 2)), Some(2));
}

#[test]
fn branches_begin_with_what_was_written_before_them() {
    let cond =
        |then, otherwise| Step::Cond { pred: array(0), then, otherwise, loc: Loc::default() };
    let both = cond(vec![copy(0, 1)], vec![copy(0, 1)]);
    assert_eq!(unwritten(&plan(vec![both, copy(1, 2)], 2)), None);
    let other = cond(vec![copy(0, 1)], vec![copy(1, 2)]);
    assert_eq!(unwritten(&plan(vec![other], 2)), Some(1));
}

#[test]
fn iterations_read_what_an_earlier_step_wrote() {
    let body = vec![copy(2, 3), copy(3, 2)];
    let repeated = Step::Loop { id: 0, trip: 3, reverse: false, position: array(1), body };
    assert_eq!(unwritten(&plan(vec![copy(0, 2), repeated.clone()], 2)), None);
    assert_eq!(unwritten(&plan(vec![repeated], 2)), Some(2));
}
