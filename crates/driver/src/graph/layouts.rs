//! Layouts of the arrays of a plan's kernels, so that code is compiled for them once, before
//! anything runs.
//!
//! The plan's own memory and its arguments are aligned and row-major; the views that kernels get
//! have offsets and strides that the plan knows. A kernel that is launched with several layouts is
//! compiled for the first.

use tessera_plan::{Array, Plan, Step};
use tessera_target::BufferArg;
use tessera_target::arrays::{ArrayClass, Said};
use tessera_target::frame::{Frame, Param};

/// One for each kernel of the plan.
pub fn layouts(plan: &Plan) -> Vec<Said> {
    let mut out = vec![None; plan.kernels.len()];
    visit(plan, &plan.steps, &mut out);
    out.into_iter().map(Option::unwrap_or_default).collect()
}

fn visit(plan: &Plan, steps: &[Step], out: &mut [Option<Said>]) {
    for step in steps {
        match step {
            Step::Launch { kernel, args, .. } => {
                out[*kernel].get_or_insert_with(|| said(plan, *kernel, args));
            }
            Step::Cond { then, otherwise, .. } => {
                visit(plan, then, out);
                visit(plan, otherwise, out);
            }
            Step::While { test, body, .. } => {
                visit(plan, test, out);
                visit(plan, body, out);
            }
            Step::Loop { body, .. } => visit(plan, body, out),
            Step::Host { .. } | Step::Call { .. } | Step::Copy { .. } | Step::Collective { .. } => {
            }
        }
    }
}

fn said(plan: &Plan, kernel: usize, args: &[Array]) -> Said {
    let Ok(frame) = Frame::new(&plan.kernels[kernel]) else { return Said::new() };
    let one = |(param, array): (&Param, &Array)| {
        // In a loop the address of an array goes from row to row of a stacked array.
        let moves = array.iterations.iter().fold(array.offset, |all, (_, by)| all | by);
        let buffer = BufferArg {
            data: std::ptr::null_mut::<u8>().wrapping_add(BASE | moves as usize),
            dims: array.dims.clone(),
            strides: array.strides.clone(),
            dtype: array.dtype,
            writable: array.writes,
        };
        (param.name.clone(), ArrayClass::of_param(&param.kind, &buffer))
    };
    frame.params.iter().zip(args).map(one).collect()
}

/// A multiple of what every allocation begins at.
const BASE: usize = 1 << 40;
