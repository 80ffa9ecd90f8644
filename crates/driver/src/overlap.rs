//! Whether strided views share a byte. The question is whether `Σ aₖ·xₖ = b` has a solution with
//! `0 ≤ xₖ ≤ uₖ`: a bounded search, cut off early by ranges and common divisors. The bytes of one
//! element are a dimension of stride 1.

use tessera_target::BufferArg;

/// After this many steps the views count as overlapping: a refusal is safe, a wrong "disjoint" not.
const BUDGET: usize = 20_000;

/// One unknown: its coefficient (above zero) and its largest value.
type Term = (i128, i128);

/// The first byte of a view and the one after its last; `None` for a view without elements.
fn byte_range(b: &BufferArg) -> Option<(i128, i128)> {
    if b.dims.contains(&0) {
        return None;
    }
    let (mut low, mut high) =
        (b.data as usize as i128, b.data as usize as i128 + b.dtype.bytes() as i128);
    for (&n, &s) in b.dims.iter().zip(&b.strides) {
        let reach = (n as i128 - 1) * s as i128;
        if reach < 0 { low += reach } else { high += reach }
    }
    Some((low, high))
}

pub fn ranges_overlap(a: &BufferArg, b: &BufferArg) -> bool {
    match (byte_range(a), byte_range(b)) {
        (Some((a0, a1)), Some((b0, b1))) => a0 < b1 && b0 < a1,
        _ => false,
    }
}

/// Whether the two views may share a byte.
pub fn views_overlap(a: &BufferArg, b: &BufferArg) -> bool {
    if !ranges_overlap(a, b) {
        return false;
    }
    // A byte of `a` counts up from its first, a byte of `b` down from its last; every stride is
    // taken as positive, which only renumbers the positions.
    let (Some((a0, _)), Some((_, b1))) = (byte_range(a), byte_range(b)) else { return false };
    let mut terms = byte_terms(a);
    terms.extend(byte_terms(b));
    solvable(terms, b1 - 1 - a0)
}

/// Whether two different positions of one view may share a byte.
pub fn overlaps_itself(b: &BufferArg) -> bool {
    if b.dims.contains(&0) {
        return false;
    }
    let mut axes: Vec<Term> = b
        .dims
        .iter()
        .zip(&b.strides)
        .filter(|(n, _)| **n > 1)
        .map(|(&n, &s)| (i128::from(s.unsigned_abs()), n as i128 - 1))
        .collect();
    axes.sort_unstable();
    let size = b.dtype.bytes() as i128;
    // Nested strides, the common case: each steps over everything inside it.
    let mut inside = size;
    if axes.iter().all(|&(stride, last)| {
        let nested = stride >= inside;
        inside += stride * last;
        nested
    }) {
        return false;
    }
    // Otherwise: for the first axis whose positions differ (by 1 + x), any difference of the later
    // ones (x − u), and a gap of less than an element.
    (0..axes.len()).any(|k| {
        let mut terms: Vec<Term> = vec![(axes[k].0, axes[k].1 - 1), (1, 2 * (size - 1))];
        let mut b = size - 1 - axes[k].0;
        for &(stride, last) in &axes[k + 1..] {
            terms.push((stride, 2 * last));
            b += stride * last;
        }
        // A stride of zero repeats elements by itself.
        axes[k].0 == 0 || solvable(terms, b)
    })
}

fn byte_terms(b: &BufferArg) -> Vec<Term> {
    let size = b.dtype.bytes() as i128;
    let axes =
        b.dims.iter().zip(&b.strides).map(|(&n, &s)| (i128::from(s.unsigned_abs()), n as i128 - 1));
    axes.chain([(1, size - 1)]).filter(|&(stride, last)| stride > 0 && last > 0).collect()
}

fn solvable(mut terms: Vec<Term>, target: i128) -> bool {
    terms.retain(|&(a, u)| a > 0 && u > 0);
    terms.sort_unstable_by(|x, y| y.cmp(x));
    // Equal coefficients are one unknown.
    terms.dedup_by(|later, first| {
        let same = later.0 == first.0;
        if same {
            first.1 += later.1;
        }
        same
    });
    // For each suffix: the largest sum, and what every sum is a multiple of.
    let mut rest = vec![(0i128, 0i128)];
    for &(a, u) in terms.iter().rev() {
        let &(sum, divisor) = rest.last().unwrap_or(&(0, 0));
        rest.push((sum + a * u, gcd(a, divisor)));
    }
    rest.reverse();
    let mut budget = BUDGET;
    search(&terms, &rest, target, &mut budget)
}

fn search(terms: &[Term], rest: &[(i128, i128)], target: i128, budget: &mut usize) -> bool {
    let (largest, divisor) = rest[0];
    if target < 0 || target > largest || (divisor > 0 && target % divisor != 0) {
        return false;
    }
    let Some(&(a, u)) = terms.first() else { return target == 0 };
    let below = rest[1].0;
    let first = ((target - below).max(0) + a - 1) / a;
    let last = (target / a).min(u);
    let mut x = first;
    while x <= last {
        if *budget == 0 {
            return true;
        }
        *budget -= 1;
        if search(&terms[1..], &rest[1..], target - a * x, budget) {
            return true;
        }
        x += 1;
    }
    false
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_numerics::DType;

    /// A view of f32 at an offset in bytes of a block that is never touched.
    fn view(offset: usize, dims: &[i64], strides: &[i64]) -> BufferArg {
        let data = (0x10000 + offset) as *mut u8;
        BufferArg {
            data,
            dims: dims.into(),
            strides: strides.into(),
            dtype: DType::F32,
            writable: true,
        }
    }

    #[test]
    fn interleaved_and_adjacent_views_are_disjoint() {
        assert!(!views_overlap(&view(0, &[10], &[8]), &view(4, &[10], &[8])));
        assert!(views_overlap(&view(0, &[10], &[8]), &view(8, &[10], &[8])));
        // The left and right halves of the columns of a 100 x 64 matrix.
        assert!(!views_overlap(&view(0, &[100, 32], &[256, 4]), &view(128, &[100, 32], &[256, 4])));
        assert!(views_overlap(&view(0, &[100, 33], &[256, 4]), &view(128, &[100, 32], &[256, 4])));
        // Two views that run in opposite directions and overlap, and two that are only close.
        assert!(views_overlap(&view(0, &[10], &[4]), &view(40, &[2], &[-4])));
        assert!(!views_overlap(&view(0, &[10], &[4]), &view(48, &[3], &[-4])));
        // Half an element is an overlap too.
        assert!(views_overlap(&view(0, &[1], &[4]), &view(2, &[1], &[4])));
        assert!(!views_overlap(&view(0, &[0], &[4]), &view(0, &[4], &[4])));
    }

    #[test]
    fn overlap_agrees_with_listing_every_byte() {
        let bytes = |v: &BufferArg| {
            let mut out = std::collections::BTreeSet::new();
            for i in 0..v.dims[0] {
                for j in 0..v.dims[1] {
                    let at = v.data as i64 + i * v.strides[0] + j * v.strides[1];
                    (0..4).for_each(|k| {
                        out.insert(at + k);
                    });
                }
            }
            out
        };
        let mut seed = 1u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for _ in 0..2000 {
            let mut one = || {
                let dims = [next(4) as i64 + 1, next(4) as i64 + 1];
                let strides = [next(40) as i64 - 20, next(40) as i64 - 20];
                view(next(64) as usize, &dims, &strides)
            };
            let (a, b) = (one(), one());
            assert_eq!(views_overlap(&a, &b), !bytes(&a).is_disjoint(&bytes(&b)), "{a:?} {b:?}");
            let distinct = bytes(&a).len() as i64 == 4 * a.dims[0] * a.dims[1];
            assert_eq!(overlaps_itself(&a), !distinct, "{a:?}");
        }
    }
}
