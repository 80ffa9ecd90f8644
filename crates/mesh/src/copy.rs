//! Copies the elements that a move names from one block to another. Blocks are row-major bytes.

use crate::exchange::Pieces;
use crate::intervals::Piece;

/// A block in memory, by its extents.
#[derive(Copy, Clone, Debug)]
pub struct Shape<'a> {
    pub extents: &'a [u64],
    /// Bytes of an element.
    pub item: usize,
}

impl Shape<'_> {
    pub fn bytes(&self) -> usize {
        self.extents.iter().product::<u64>() as usize * self.item
    }

    /// Bytes from one position of a dim to the next.
    fn step(&self, dim: usize) -> usize {
        self.extents[dim + 1..].iter().product::<u64>() as usize * self.item
    }
}

/// Copies all combinations of the pieces of the dims. `from` and `to` have the bytes of their shapes.
pub fn copy(dims: &[Pieces], from: (&[u8], Shape<'_>), to: (&mut [u8], Shape<'_>)) {
    let (from, here) = from;
    let (to, there) = to;
    // Dims at the end that are copied whole are one run of bytes.
    let whole = |dim: usize| {
        let n = here.extents[dim];
        let all = Piece { from: 0, from_step: 1, to: 0, to_step: 1, count: n };
        n == there.extents[dim] && (dims[dim][..] == [all] || n == 1 && dims[dim].len() == 1)
    };
    let depth = (0..dims.len()).rev().find(|dim| !whole(*dim)).map_or(0, |dim| dim + 1);
    let inner = here.extents[depth..].iter().product::<u64>() as usize * here.item;
    let steps: Vec<(usize, usize)> = (0..depth).map(|d| (here.step(d), there.step(d))).collect();
    go(&dims[..depth], &steps, inner, (from, 0), to, 0);
}

fn go(
    dims: &[Pieces],
    steps: &[(usize, usize)],
    inner: usize,
    from: (&[u8], usize),
    to: &mut [u8],
    at: usize,
) {
    let (from, start) = from;
    let (Some((pieces, dims)), Some(((here, there), steps))) =
        (dims.split_first(), steps.split_first())
    else {
        to[at..at + inner].copy_from_slice(&from[start..start + inner]);
        return;
    };
    for piece in &**pieces {
        let n = piece.count as usize;
        let (mut a, mut b) = (start + piece.from as usize * here, at + piece.to as usize * there);
        let (da, db) = (piece.from_step as usize * here, piece.to_step as usize * there);
        if dims.is_empty() {
            match inner {
                _ if n == 1 || da == inner && db == inner => {
                    to[b..b + n * inner].copy_from_slice(&from[a..a + n * inner]);
                }
                1 => elements::<1>((from, a, da), (to, b, db), n),
                2 => elements::<2>((from, a, da), (to, b, db), n),
                4 => elements::<4>((from, a, da), (to, b, db), n),
                8 => elements::<8>((from, a, da), (to, b, db), n),
                _ => {
                    for i in 0..n {
                        let (a, b) = (a + i * da, b + i * db);
                        to[b..b + inner].copy_from_slice(&from[a..a + inner]);
                    }
                }
            }
            continue;
        }
        for _ in 0..n {
            go(dims, steps, inner, (from, a), to, b);
            a += da;
            b += db;
        }
    }
}

/// Single elements, whose size the compiler knows.
fn elements<const N: usize>(
    from: (&[u8], usize, usize),
    to: (&mut [u8], usize, usize),
    count: usize,
) {
    let (from, a, da) = from;
    let (to, b, db) = to;
    for i in 0..count {
        let (a, b) = (a + i * da, b + i * db);
        to[b..b + N].copy_from_slice(&from[a..a + N]);
    }
}
