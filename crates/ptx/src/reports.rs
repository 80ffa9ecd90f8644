//! Printed output of kernels: values that a kernel writes to memory, formatted when the launch has
//! ended.
//!
//! A record is its number of bytes, the number of its op, and that of its group; then the elements
//! of each value, row-major in its carrier, each value aligned to eight bytes. Groups run
//! concurrently: lines are printed in the order of the groups' numbers, and within a group in
//! program order.

use crate::code::context;
use tessera_ir::{Attr, Func, Level, OpId, Type};
use tessera_numerics::DType;
use tessera_tile::ops::host::pieces;

/// What a `print` op prints.
#[derive(Clone, Debug)]
pub struct Printing {
    pub pieces: Vec<String>,
    pub shapes: Vec<Vec<usize>>,
    /// Carriers of the values.
    pub dtypes: Vec<DType>,
}

/// Bytes before the values.
pub const HEAD: u32 = 16;

impl Printing {
    pub fn of<L: Level>(func: &Func<L>, id: OpId) -> Self {
        let op = &func.ops[id];
        let extents = |ty: &Type| -> Vec<usize> {
            ty.static_shape().unwrap_or_default().into_iter().map(|d| d as usize).collect()
        };
        Self {
            pieces: op.attr("text").and_then(Attr::as_str).and_then(pieces).unwrap_or_default(),
            shapes: op.operands.iter().map(|&v| extents(func.ty(v))).collect(),
            dtypes: op.operands.iter().map(|&v| func.ty(v).dtype().carrier()).collect(),
        }
    }

    /// The offset of each value in a record, and its size.
    pub fn places(&self) -> (Vec<u32>, u32) {
        let mut at = HEAD;
        let mut out = Vec::new();
        for (shape, dtype) in self.shapes.iter().zip(&self.dtypes) {
            out.push(at);
            let bytes = (shape.iter().product::<usize>() * dtype.bytes()) as u32;
            at += bytes.next_multiple_of(8);
        }
        (out, at)
    }
}

/// Bytes that were printed, from the words of a context; more than the buffer has if some did not
/// fit.
pub fn printed(head: &[u8]) -> u32 {
    let at = context::PRINTED as usize;
    head.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// The lines of a launch. `records` is the memory after the context's words.
pub fn lines(
    name: &str,
    grid: [i64; 3],
    prints: &[Printing],
    records: &[u8],
    printed: u32,
) -> Vec<String> {
    let word = |at: usize| {
        let bytes = records.get(at..at + 4)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    let mut found = Vec::new();
    let mut at = 0;
    while let (Some(bytes), Some(which), Some(group)) = (word(at), word(at + 4), word(at + 8)) {
        // After the last record, and where one did not fit, is nothing.
        if at as u32 >= printed || bytes < HEAD {
            break;
        }
        // Clock records are read by `stamps`.
        if which >= crate::stamps::FIRST {
            at += bytes as usize;
            continue;
        }
        let Some(print) = prints.get(which as usize) else { break };
        found.push((group, at, print));
        at += bytes as usize;
    }
    found.sort_by_key(|&(group, at, _)| (group, at));
    let mut out: Vec<String> = found
        .into_iter()
        .map(|(group, at, print)| {
            let mut line = format!("{}: ", place(name, grid, group));
            let (values, _) = print.places();
            for (n, piece) in print.pieces.iter().enumerate() {
                line.push_str(piece);
                if let (Some(shape), Some(&dtype)) = (print.shapes.get(n), print.dtypes.get(n)) {
                    let bytes = records.get(at + values[n] as usize..).unwrap_or_default();
                    line.push_str(&tessera_target::show_elements(dtype, bytes, shape));
                }
            }
            line
        })
        .collect();
    if printed > context::ROOM {
        out.push(format!(
            "{name}: {} bytes of what is printed are kept, and there were {printed}: the rest is left out",
            context::ROOM
        ));
    }
    out
}

/// A group as lines and errors name it.
fn place(name: &str, grid: [i64; 3], group: u32) -> String {
    let [_, ny, nz] = grid.map(|n| n.max(1));
    let group = i64::from(group);
    let at = [group / nz / ny, group / nz % ny, group % nz];
    let last = grid.iter().rposition(|&g| g > 1).unwrap_or(0);
    let at: Vec<_> = at[..=last].iter().map(i64::to_string).collect();
    format!("{name}[{}]", at.join(", "))
}
