//! Transposes squares of lanes in registers.

use crate::llvm::{Ir, Val};

/// Row `i` of the result holds lane `i` of every given row; as many rows as lanes, a power of two.
/// Each step exchanges the two quarters off the diagonal, in squares twice as large each time.
pub fn square(ir: &Ir, mut rows: Vec<Val>) -> Vec<Val> {
    let n = rows.len() as u32;
    let mut s = 1;
    while s < n {
        let upper: Vec<_> = (0..n).map(|l| if l & s == 0 { l } else { (l ^ s) + n }).collect();
        let lower: Vec<_> = (0..n).map(|l| if l & s == 0 { l ^ s } else { l + n }).collect();
        for i in (0..n).filter(|i| i & s == 0) {
            let (i, j) = (i as usize, (i | s) as usize);
            let (a, b) = (rows[i], rows[j]);
            rows[i] = ir.shuffle(a, b, &upper);
            rows[j] = ir.shuffle(a, b, &lower);
        }
        s *= 2;
    }
    rows
}
