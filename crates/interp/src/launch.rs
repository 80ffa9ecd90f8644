//! One launch: arguments are checked against the parameters and bound, then the groups run one
//! after another. The order is that of a row-major walk of the grid, axis 2 fastest.

use crate::copies::Copies;
use crate::fault::{Fault, Outcome, fault};
use crate::lanes::Mask;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::program::{Param, ParamKind, Program};
use crate::room::{bytes_of, room};
use crate::value::{Data, Tile};
use std::sync::Arc;
use tessera_diag::{Code, Diagnostics};
use tessera_numerics::{DType, cast};
use tessera_target::{ArgValue, BufferArg, LaunchArgs};
use tessera_tile::KernelKind;

/// Lanes of one group: they are the elements of a vector.
pub(crate) const MAX_LANES: i64 = 1 << 16;

pub(crate) fn launch(program: &Program, args: &LaunchArgs) -> Result<(), Diagnostics> {
    run(&mut Machine::new(program), args).map_err(|e: Fault| (*e).into())
}

pub(crate) fn run(m: &mut Machine<'_>, args: &LaunchArgs) -> Outcome<()> {
    let program = m.program;
    if program.kind == KernelKind::Lane {
        if !(1..=MAX_LANES).contains(&args.lanes) {
            let why = format!("expected 1 to {MAX_LANES} lanes in a group, got {}", args.lanes);
            return Err(fault(Code::E_ARGUMENT, why, &program.loc));
        }
        m.width = args.lanes as usize;
        m.lanes = args.lanes;
        m.shape = shape(program, args)?;
    } else {
        // A group kernel's lanes belong to the schedule, and no value may depend on them.
        m.lanes = args.lanes.max(1);
    }
    m.grid = args.grid;
    m.dims = dims(program, args)?;
    let elements = program.consts.iter().map(|&(_, n)| n).fold(0, usize::saturating_add);
    room(bytes_of(elements.saturating_mul(m.width)), &program.loc)?;
    m.consts = program.consts.iter().map(|&(x, n)| Arc::new(Data::fill(x, n * m.width))).collect();
    let scalars = bind(m, args)?;
    groups(m, args, &scalars)
}

/// The extents of a group along each axis, as the program says; one axis where it does not.
fn shape(program: &Program, args: &LaunchArgs) -> Outcome<[i64; 3]> {
    let mut shape = [1; 3];
    if program.lanes.len() < 2 {
        shape[0] = args.lanes;
        return Ok(shape);
    }
    shape[..program.lanes.len()].copy_from_slice(&program.lanes);
    if shape.iter().product::<i64>() == args.lanes {
        return Ok(shape);
    }
    let (wanted, got) = (&program.lanes, args.lanes);
    let why = format!("expected groups of {wanted:?} lanes, as the kernel says, got {got}");
    Err(fault(Code::E_ARGUMENT, why, &program.loc))
}

fn groups(m: &mut Machine<'_>, args: &LaunchArgs, scalars: &[(usize, Tile)]) -> Outcome<()> {
    let [nx, ny, nz] = args.grid;
    for x in 0..nx {
        for y in 0..ny {
            for z in 0..nz {
                m.poll.poll()?;
                m.group = [x, y, z];
                m.copies = Copies::default();
                if m.program.kind == KernelKind::Lane {
                    place_lanes(m, args.domain);
                }
                // A group without lanes has no effects.
                if m.present.any() {
                    scalars.iter().for_each(|(slot, value)| m.set(*slot, value.clone()));
                    m.body()?;
                }
            }
        }
    }
    Ok(())
}

/// The lanes of the group that exist: those inside the domain along every axis.
fn place_lanes(m: &mut Machine<'_>, domain: [i64; 3]) {
    for axis in 0..3 {
        m.first_lane[axis] = m.group[axis].saturating_mul(m.shape[axis]);
    }
    let axes = m.program.lanes.len().max(1);
    let left: Vec<i64> = (0..axes).map(|a| domain[a].saturating_sub(m.first_lane[a])).collect();
    let there = |i: usize| {
        let at = m.coordinates(i as i64);
        left.iter().zip(at).all(|(&left, at)| at < left)
    };
    m.present = Mask::first(m.width, m.width).and(there);
    m.mask = m.present.clone();
}

/// The values of the symbols that the program uses: as given, else as the arrays show them.
pub(crate) fn dims(program: &Program, args: &LaunchArgs) -> Outcome<Vec<i64>> {
    let shown = |name: &String| {
        program.params.iter().zip(&args.params).find_map(|(param, arg)| match (&param.kind, arg) {
            (ParamKind::View { symbols, .. }, ArgValue::Buffer(b)) => {
                let axis = symbols.iter().position(|s| s.as_ref() == Some(name))?;
                b.dims.get(axis).copied()
            }
            _ => None,
        })
    };
    let value = |name: &String| {
        args.dims.get(name).copied().or_else(|| shown(name)).ok_or_else(|| {
            let why = format!("expected a value for the dimension `{name}`, got none");
            fault(Code::E_ARGUMENT, why, &program.loc)
        })
    };
    program.dims.iter().map(value).collect()
}

/// Binds views for the launch; returns the scalars, which every group gets anew.
pub(crate) fn bind(m: &mut Machine<'_>, args: &LaunchArgs) -> Outcome<Vec<(usize, Tile)>> {
    let program = m.program;
    let error = |code, why: String| Err(fault(code, why, &program.loc));
    if args.params.len() != program.params.len() {
        let (wanted, got) = (program.params.len(), args.params.len());
        let why = format!("expected {wanted} arguments for @{}, got {got}", program.name);
        return error(Code::E_ARGUMENT, why);
    }
    let mut scalars = Vec::new();
    for (param, arg) in program.params.iter().zip(&args.params) {
        match (&param.kind, arg) {
            (ParamKind::Scalar(dtype), ArgValue::Scalar(x)) => {
                let x = cast(*x, x.dtype(), *dtype);
                scalars.push((param.slot, Arc::new(Data::fill(x, m.width))));
            }
            (ParamKind::View { elem, .. }, ArgValue::Buffer(b)) => {
                check_array(program, param, b)?;
                m.set_memory(param.slot, Memory::array(b, elem.storage));
            }
            (ParamKind::Scalar(dtype), ArgValue::Buffer(_)) => {
                let why = format!("expected {dtype} for `{}`, got an array", param.name);
                return error(Code::E_ARGUMENT, why);
            }
            (ParamKind::View { .. }, ArgValue::Scalar(_)) => {
                return error(
                    Code::E_ARGUMENT,
                    format!("expected an array for `{}`, got a scalar", param.name),
                );
            }
        }
    }
    Ok(scalars)
}

fn check_array(program: &Program, param: &Param, b: &BufferArg) -> Outcome<()> {
    let ParamKind::View { dims, elem, privilege, .. } = &param.kind else { return Ok(()) };
    let name = &param.name;
    let error = |code, why: String| Err(fault(code, why, &program.loc));
    let fits = |(&dim, wanted): (&i64, &Option<i64>)| wanted.is_none_or(|w| w == dim);
    if b.dims.len() != dims.len() || !b.dims.iter().zip(dims).all(fits) {
        let wanted: Vec<_> = dims.iter().map(|d| d.map_or("?".into(), |d| d.to_string())).collect();
        let why = format!(
            "expected an array of shape [{}] for `{name}`, got {:?}",
            wanted.join(", "),
            b.dims
        );
        return error(Code::E_LAUNCH_INVALID_SHAPE, why);
    }
    if b.strides.len() != b.dims.len() {
        let why =
            format!("expected {} strides for `{name}`, got {}", b.dims.len(), b.strides.len());
        return error(Code::E_LAUNCH_BAD_LAYOUT, why);
    }
    // tf32 is f32 in memory.
    let stored = |d: DType| if d == DType::Tf32 { DType::F32 } else { d };
    if stored(b.dtype) != stored(elem.storage) {
        let why = format!("expected {} elements for `{name}`, got {}", elem.storage, b.dtype);
        return error(Code::E_ARGUMENT, why);
    }
    if privilege.writes() && !b.writable {
        return error(
            Code::E_READ_ONLY,
            format!("expected an array that may be written for `{name}`"),
        );
    }
    Ok(())
}
