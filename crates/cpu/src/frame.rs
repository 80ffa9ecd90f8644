//! Which layouts of arrays code is generated for; the words themselves are `target`'s.

use crate::contract::MOST_FEW;
use tessera_diag::Diagnostics;
use tessera_ir::Privilege;
use tessera_target::arrays::{ArrayClass, classes_said};
use tessera_target::frame::ParamKind;
use tessera_target::{BufferArg, CompileOptions, LaunchArgs};
use tessera_tile::{TileFunc, TileOp};

pub use tessera_target::frame::{CONTEXT, DOMAIN, Frame, GRID, LANES, PARTS, SLOTS, bits};

/// For each parameter, the axes along which it is contiguous. Code is specialised for them, beside
/// the types.
pub type Layouts = Vec<u32>;

/// The layouts to compile for first: those of the call's arrays; without a call the declared ones, and row-major contiguous, as most
/// are, where nothing is declared.
pub fn layouts_first(frame: &Frame, options: &CompileOptions, matmul: bool) -> Layouts {
    let said = classes_said(frame, &options.arrays);
    let mut out: Layouts = said.iter().map(|class| class.contiguous).collect();
    for (layout, param) in out.iter_mut().zip(&frame.params) {
        if let ParamKind::Array { dims, .. } = &param.kind
            && matmul
            && is_result(&param.kind)
            && dims.iter().flatten().any(|&n| n <= MOST_FEW)
        {
            *layout |= crate::memory::FEW;
        }
    }
    for ((layout, param), array) in out.iter_mut().zip(&frame.params).zip(&options.call) {
        if let (ParamKind::Array { .. }, Some(array)) = (&param.kind, array) {
            *layout = layout_of(&param.kind, array, matmul);
        }
    }
    out
}

/// Whether the function has a matmul: code for few rows of one with open extents is as long as the rest, and is
/// generated where such arrays come.
pub fn has_matmul(func: &TileFunc) -> bool {
    func.walk().iter().any(|&id| func.ops[id].code == TileOp::Mma)
}

fn layout_of(kind: &ParamKind, b: &BufferArg, matmul: bool) -> u32 {
    ArrayClass::of(b).contiguous | stream(kind, b) | if matmul { few(kind, b) } else { 0 }
}

/// Whether the array is a result with few rows or columns.
fn few(kind: &ParamKind, b: &BufferArg) -> u32 {
    let is_few = is_result(kind) && b.dims.iter().any(|&n| n <= MOST_FEW);
    if is_few { crate::memory::FEW } else { 0 }
}

fn is_result(kind: &ParamKind) -> bool {
    match kind {
        ParamKind::Array { privilege, .. } => *privilege != Privilege::Read,
        ParamKind::Scalar(_) => false,
    }
}

/// The words of a launch and its layouts; both are written over.
pub fn fill(
    frame: &Frame,
    func: &TileFunc,
    args: &LaunchArgs,
    matmul: bool,
    (words, layouts): (&mut Vec<u64>, &mut Layouts),
) -> Result<(), Diagnostics> {
    layouts.clear();
    layouts.resize(frame.params.len(), 0);
    frame.fill(func, args, words, |place, kind, b| {
        layouts[place] = layout_of(kind, b, matmul);
    })
}

/// From this size on an array that is only written does not fit the caches beside what is read.
const STREAM_BYTES: i64 = 32 << 20;

/// Whether whole cache lines of the array may be written with non-temporal stores.
fn stream(kind: &ParamKind, b: &BufferArg) -> u32 {
    let ParamKind::Array { privilege: Privilege::Write, .. } = kind else { return 0 };
    let bytes = b.dtype.bytes() as i64;
    let long = || (0..b.dims.len()).filter(|&axis| b.dims[axis] > 1);
    // Elements of a view may share memory: what counts is the span of its addresses.
    let reach = |axis: usize| b.strides[axis].saturating_abs().saturating_mul(b.dims[axis] - 1);
    let size = long().fold(bytes, |n, axis| n.saturating_add(reach(axis)));
    // Every row of a view begins on a line: one axis is contiguous, the strides of all others are
    // whole lines.
    let rows = long().filter(|&axis| b.strides[axis] == bytes).count();
    let moves = |axis: usize| b.strides[axis] == bytes || b.strides[axis] % 64 == 0;
    let lines = (b.data as usize).is_multiple_of(64) && rows <= 1 && long().all(moves);
    if cfg!(target_arch = "x86_64") && size >= STREAM_BYTES && lines {
        crate::memory::STREAM
    } else {
        0
    }
}
