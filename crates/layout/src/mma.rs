//! Fragments of the MMA instructions of a warp (PTX ISA, `mma`).
//!
//! Registers here are elements; several narrow ones share a machine register. Lane bits 0 and 1
//! (`t`, the index in a group of four) and 2 to 4 (`g`, the group) are what the PTX ISA calls
//! thread-in-group and group.

use crate::layout::{In, Layout};

/// The accumulator of one instruction: adjacent columns of a thread, then rows 8 apart.
#[derive(Clone, Copy)]
struct Atom {
    rows: u32,
    cols: u32,
}

const M16N8: Atom = Atom { rows: 16, cols: 8 };
const M8N8: Atom = Atom { rows: 8, cols: 8 };

impl Atom {
    /// 8 x 8 elements, and more rows in register bits.
    fn regs(self) -> Vec<Vec<u32>> {
        let more_rows = (3..self.rows.ilog2()).map(|bit| vec![1 << bit, 0]);
        [vec![0, 1]].into_iter().chain(more_rows).collect()
    }
}

/// `g` along rows and `t` along columns, `step` columns apart.
fn lanes(step: u32, rows_are_groups: bool) -> Vec<Vec<u32>> {
    let places = [[0, step], [0, 2 * step], [1, 0], [2, 0], [4, 0]];
    let ordered = |[a, b]: [u32; 2]| if rows_are_groups { vec![a, b] } else { vec![b, a] };
    places.map(ordered).to_vec()
}

/// The extent of each warp along one dim, and how far all warps reach.
fn warp_bits(dim: usize, first: u32, extent: u32, warps: u32) -> Vec<Vec<u32>> {
    assert!(warps.is_power_of_two(), "{warps} warps along a dim are no power of two");
    (0..warps.ilog2())
        .map(|bit| {
            let mut basis = vec![0; 2];
            // Warps beyond the tile hold copies.
            basis[dim] = if first << bit < extent { first << bit } else { 0 };
            basis
        })
        .collect()
}

fn accumulator(atom: Atom, shape: &[u32; 2], warps: [u32; 2], contiguous: bool) -> Layout {
    let block = |dim: usize, atom: u32| {
        let own = shape[dim] / warps[dim];
        let whole = contiguous && shape[dim].is_multiple_of(warps[dim]) && own.is_power_of_two();
        if whole { own.max(atom) } else { atom }
    };
    let (rows, cols) = (block(0, atom.rows), block(1, atom.cols));
    let mut reg = atom.regs();
    reg.extend((atom.cols.ilog2()..cols.ilog2()).map(|bit| vec![0, 1 << bit]));
    reg.extend((atom.rows.ilog2()..rows.ilog2()).map(|bit| vec![1 << bit, 0]));
    let mut warp = warp_bits(0, rows, shape[0], warps[0]);
    warp.extend(warp_bits(1, cols, shape[1], warps[1]));
    Layout::tiled(shape, reg, lanes(2, true), warp, Vec::new()).expect("a covered tile")
}

/// The fragment of an operand: `dim` is the dim of the accumulator, the other one is k.
fn operand(acc: &Layout, atom: Atom, dim: usize, k: u32, mut reg: Vec<Vec<u32>>, t: u32) -> Layout {
    let of = |basis: &[u32]| {
        let mut kept = vec![0; 2];
        kept[dim] = basis[dim];
        kept
    };
    // The extent of each warp beyond one instruction is in register bits after those of the atom.
    let blocks = &acc.bases(In::Reg)[atom.regs().len()..];
    reg.extend(blocks.iter().map(|basis| of(basis)).filter(|basis| basis[dim] != 0));
    let shape = if dim == 0 { [acc.shape()[0], k] } else { [k, acc.shape()[1]] };
    let threads = [In::Warp, In::Cta].map(|i| acc.bases(i).iter().map(|basis| of(basis)).collect());
    let [warp, cta] = threads;
    Layout::tiled(&shape, reg, lanes(t, dim == 0), warp, cta).expect("a covered tile")
}

/// Elements along k that share a machine register of 32 bits.
fn packed(bits: u32) -> u32 {
    assert!(bits.is_power_of_two() && bits <= 32, "no fragments of {bits} bits");
    32 / bits
}

impl Layout {
    /// The accumulator of m16n8 instructions: a warp's next instruction is `warps` instructions
    /// further in each dim, so any extent is divided evenly.
    pub fn mma_acc(shape: &[u32; 2], warps: [u32; 2]) -> Layout {
        accumulator(M16N8, shape, warps, false)
    }

    /// The same with one contiguous block for each warp in the dims where the block is a power of
    /// two; as [`Layout::mma_acc`] in the others.
    pub fn mma_acc_blocks(shape: &[u32; 2], warps: [u32; 2]) -> Layout {
        accumulator(M16N8, shape, warps, true)
    }

    /// The left operand, `rows x k` elements of `bits` bits, of the instructions with the
    /// accumulator `acc`, which must come from [`Layout::mma_acc`] or [`Layout::mma_acc_blocks`].
    /// Warps that differ only in columns hold copies.
    pub fn mma_a(acc: &Layout, k: u32, bits: u32) -> Layout {
        let packed = packed(bits);
        let mut reg: Vec<_> = (0..packed.ilog2()).map(|bit| vec![0, 1 << bit]).collect();
        reg.extend([vec![8, 0], vec![0, 4 * packed]]);
        operand(acc, M16N8, 0, k, reg, packed)
    }

    /// The right operand, `k x columns`. Warps that differ only in rows hold copies.
    pub fn mma_b(acc: &Layout, k: u32, bits: u32) -> Layout {
        let packed = packed(bits);
        let mut reg: Vec<_> = (0..packed.ilog2()).map(|bit| vec![1 << bit, 0]).collect();
        reg.push(vec![4 * packed, 0]);
        operand(acc, M16N8, 1, k, reg, packed)
    }

    /// The accumulator of m8n8k4 instructions of f64.
    pub fn mma_acc_f64(shape: &[u32; 2], warps: [u32; 2]) -> Layout {
        accumulator(M8N8, shape, warps, false)
    }

    /// The same with one contiguous block for each warp, see [`Layout::mma_acc_blocks`].
    pub fn mma_acc_f64_blocks(shape: &[u32; 2], warps: [u32; 2]) -> Layout {
        accumulator(M8N8, shape, warps, true)
    }

    /// The left operand of m8n8k4.
    pub fn mma_a_f64(acc: &Layout, k: u32) -> Layout {
        operand(acc, M8N8, 0, k, Vec::new(), 1)
    }

    /// The right operand of m8n8k4.
    pub fn mma_b_f64(acc: &Layout, k: u32) -> Layout {
        operand(acc, M8N8, 1, k, Vec::new(), 1)
    }
}
