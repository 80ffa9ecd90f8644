//! Plans that read what nothing wrote.

use tessera_diag::Loc;
use tessera_numerics::DType;
use tessera_plan::inner::check;
use tessera_plan::{Array, Buffer, BufferId, Origin, Plan, Step, argument_type, assign};

fn array(buffer: BufferId) -> Array {
    Array {
        buffer,
        offset: 0,
        dims: vec![1],
        strides: vec![4],
        dtype: DType::F32,
        writes: true,
        iterations: Vec::new(),
    }
}

fn copy(from: BufferId, to: BufferId) -> Step {
    Step::Copy { from: array(from), to: array(to), queue: 0 }
}

/// Buffer 0 is an argument.
fn plan(steps: Vec<Step>, result: BufferId) -> Plan {
    let ty = argument_type(&[1], DType::F32);
    let buffer = |i: usize| Buffer {
        bytes: 4,
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
    assert!(check(&plan(vec![copy(0, 1), copy(1, 2)], 2)).is_ok());
    let refused = |steps, result| check(&plan(steps, result)).unwrap_err().to_string();
    let error = refused(vec![copy(1, 2), copy(0, 1)], 2);
    assert!(error.contains("expected %v1 to be written before it is read"), "{error}");
    let error = refused(vec![copy(0, 1)], 2);
    assert!(error.contains("expected %v2 to be written before it is read"), "{error}");
}

#[test]
fn buffers_share_places_where_they_are_not_in_use_together() {
    let three = plan(vec![copy(0, 1), copy(1, 2), copy(2, 3)], 3);
    let places = assign(&three);
    assert_eq!(places.offsets, [None, Some(0), Some(64), None]);
    let back = plan(vec![copy(0, 1), copy(0, 3), copy(0, 2), copy(2, 3)], 3);
    let places = assign(&back);
    assert_eq!((places.offsets, places.bytes), (vec![None, Some(0), Some(0), None], 64));
    check(&back).unwrap();
    // Memory of a branch is used in it alone, and that of a loop in all of it.
    let branch = Step::Cond {
        pred: Array { dims: Vec::new(), strides: Vec::new(), dtype: DType::Bool, ..array(0) },
        then: vec![copy(0, 1), copy(1, 3)],
        otherwise: vec![copy(0, 2), copy(2, 3)],
        loc: Loc::unknown(),
    };
    let branches = plan(vec![branch], 3);
    assert_eq!(assign(&branches).bytes, 64);
    let text = branches.module("any").to_string();
    assert!(
        text.contains("\n    %v2 = sched.store {at = 0} : view<[1], f32, read_write>"),
        "{text}"
    );
    assert!(text.contains("\n    sched.free %v2\n"), "{text}");
    let position = Array { dims: Vec::new(), strides: Vec::new(), dtype: DType::I64, ..array(3) };
    let body = vec![copy(0, 1), copy(0, 2)];
    let again = Step::Loop { id: 0, trip: 2, reverse: false, position, body };
    assert_eq!(assign(&plan(vec![again], 0)).bytes, 128 + 64);
}
