//! Matmuls compared with three plain loops, bit by bit.

mod plain;

use super::contract_plan::{Budget, Shape};
use super::{Kind, workspace_bytes};
use crate::isa::Isa;
use plain::{Compiled, Variant, compile};

/// Memory on a multiple of 64 bytes.
struct Aligned(Vec<u8>);

impl Aligned {
    fn new(bytes: usize) -> Self {
        Self(vec![0xA5; bytes + 64])
    }
    fn ptr(&mut self) -> *mut u8 {
        let at = self.0.as_ptr().align_offset(64);
        self.0[at..].as_mut_ptr()
    }
}

/// The numbers of a kind, and what a sum is.
trait Numbers {
    const KIND: Kind;
    type Left: Copy;
    type Right: Copy;
    type Sum: Copy + Default + std::fmt::Debug;
    fn left(r: u64) -> Self::Left;
    fn right(r: u64) -> Self::Right;
    fn sum(r: u64) -> Self::Sum;
    fn add(a: Self::Left, b: Self::Right, sum: Self::Sum) -> Self::Sum;
    fn bits(sum: Self::Sum) -> u64;
}

macro_rules! numbers {
    ($name:ident, $left:ty, $right:ty, $sum:ty, $some:expr, $add:expr, $bits:expr) => {
        numbers!($name = $name, $left, $right, $sum, $some, $add, $bits);
    };
    ($name:ident = $kind:ident, $left:ty, $right:ty, $sum:ty, $some:expr, $add:expr, $bits:expr) => {
        struct $name;
        impl Numbers for $name {
            const KIND: Kind = Kind::$kind;
            type Left = $left;
            type Right = $right;
            type Sum = $sum;
            fn left(r: u64) -> $left {
                $some(r) as $left
            }
            fn right(r: u64) -> $right {
                $some(r) as $right
            }
            fn sum(r: u64) -> $sum {
                (r >> 50) as $sum
            }
            fn add(a: $left, b: $right, sum: $sum) -> $sum {
                $add(a, b, sum)
            }
            fn bits(sum: $sum) -> u64 {
                $bits(sum) as u64
            }
        }
    };
}

/// A small integer as bf16: products and sums of these are exact in any order.
fn small_bf16(r: u64) -> u16 {
    (((r >> 59) as f32 - 16.0).to_bits() >> 16) as u16
}
fn from_bf16(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}
fn wrapping(a: impl Into<i64>, b: impl Into<i64>, sum: i32) -> i32 {
    (a.into().wrapping_mul(b.into()) as i32).wrapping_add(sum)
}
fn fraction(r: u64) -> f64 {
    (r as i64 >> 40) as f64 / 4099.0
}
fn bits(x: i32) -> u32 {
    x as u32
}

numbers!(F32, f32, f32, f32, fraction, |a: f32, b, c| a.mul_add(b, c), f32::to_bits);
numbers!(F64, f64, f64, f64, fraction, |a: f64, b, c| a.mul_add(b, c), f64::to_bits);
fn small(r: u64) -> f64 {
    (r >> 59) as f64 - 16.0
}
numbers!(SmallF32 = F32, f32, f32, f32, small, |a: f32, b, c| a.mul_add(b, c), f32::to_bits);
numbers!(SmallF64 = F64, f64, f64, f64, small, |a: f64, b, c| a.mul_add(b, c), f64::to_bits);
numbers!(I32, i32, i32, i32, |r| r >> 32, wrapping, bits);
numbers!(I8Amx, i8, i8, i32, |r| r >> 56, wrapping, bits);
numbers!(U8Amx, u8, u8, i32, |r| r >> 56, wrapping, bits);
numbers!(I8U8Amx, i8, u8, i32, |r| r >> 56, wrapping, bits);
numbers!(U8I8Amx, u8, i8, i32, |r| r >> 56, wrapping, bits);
numbers!(
    Bf16Amx,
    u16,
    u16,
    f32,
    small_bf16,
    |a, b, c| from_bf16(a) * from_bf16(b) + c,
    f32::to_bits
);

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let x = self.0 ^ self.0 >> 29;
        x.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
    fn fill<T>(&mut self, n: usize, some: fn(u64) -> T) -> Vec<T> {
        (0..n).map(|_| some(self.next())).collect()
    }
}

/// Rows of C end in this many elements that nothing may touch.
const BORDER: usize = 5;

fn check<T: Numbers>(gemm: &Compiled, way: Variant, size: [usize; 3], room: &mut Aligned) {
    let [m, n, k] = size;
    let mut random = Random((m * 1_000_003 + n * 1009 + k) as u64);
    // Rows are longer than the matrix, and nothing behind the last row may be read.
    let lda = if way.transposed_left { m } else { k } + 3;
    let ldc = n + BORDER;
    let (brows, bcols) = if way.transposed_right { (n, k) } else { (k, n) };
    let ldb = bcols + 1;
    let a = random.fill(lda * if way.transposed_left { k } else { m }, T::left);
    let b = random.fill(ldb * brows, T::right);
    let mut c = random.fill(ldc * (m + 2), T::sum);
    let mut want = c.clone();
    for i in 0..m {
        let row = &mut want[(i + 1) * ldc..][..n];
        if !way.start {
            row.fill(T::Sum::default());
        }
        for p in 0..k {
            for (j, sum) in row.iter_mut().enumerate() {
                let y = if way.transposed_right { b[j * ldb + p] } else { b[p * ldb + j] };
                let x = if way.transposed_left { a[p * lda + i] } else { a[i * lda + p] };
                *sum = T::add(x, y, *sum);
            }
        }
    }
    let sizes = [m, n, k, lda, ldb, ldc].map(|x| x as i64);
    // SAFETY: the arrays have these sizes.
    unsafe {
        let c = c[ldc..].as_mut_ptr().cast();
        (gemm.call)(a.as_ptr().cast(), b.as_ptr().cast(), c, &sizes, room.ptr());
    }
    for (at, (x, y)) in c.iter().zip(&want).enumerate() {
        let (i, j) = (at / ldc, at % ldc);
        assert_eq!(
            T::bits(*x),
            T::bits(*y),
            "{way:?} {size:?} at row {i} - 1, column {j}: {x:?} {y:?}"
        );
    }
}

/// Steps of the instruction set that can be run here.
fn here() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|&isa| isa <= Isa::host())
}

fn odd_shapes<T: Numbers>(ways: &[Variant]) {
    const SIZES: [[usize; 3]; 30] = [
        [1, 1, 1],
        [0, 5, 3],
        [5, 0, 3],
        [5, 3, 0],
        [0, 0, 0],
        [2, 7, 1],
        [7, 2, 2],
        [8, 48, 4],
        [8, 8, 8],
        [9, 9, 9],
        [6, 16, 5],
        [7, 17, 15],
        [15, 15, 16],
        [16, 47, 17],
        [17, 49, 31],
        [4, 48, 3],
        [8, 16, 2],
        [8, 32, 7],
        [3, 31, 33],
        [63, 33, 64],
        [64, 65, 63],
        [65, 63, 65],
        [1, 100, 129],
        [129, 1, 100],
        [100, 129, 1],
        [24, 96, 48],
        [25, 97, 47],
        [2, 3, 3000],
        [9, 49, 1025],
        [48, 144, 10],
    ];
    for isa in here().filter(|&isa| isa == Isa::Amx || !Shape::of(isa, T::KIND).is_tiles()) {
        // With the least instruction set every fused multiply-add is a call.
        let most = if isa == Isa::Generic { 40_000 } else { 1_000_000 };
        let mut room = Aligned::new(workspace_bytes(isa, T::KIND) as usize);
        for &way in ways {
            let gemm = compile(isa, T::KIND, way, None);
            // Time to compile follows the length of the code.
            assert!(gemm.instructions < 1500, "{isa} {way:?}: {}", gemm.instructions);
            for size in SIZES.into_iter().filter(|s| s.iter().product::<usize>() < most) {
                check::<T>(&gemm, way, size, &mut room);
            }
        }
    }
}

/// Code that knows the sizes of the whole matmul, run on all of it and on parts that begin and end
/// where parts may.
fn known_sizes<T: Numbers>(isa: Isa) {
    let mut room = Aligned::new(workspace_bytes(isa, T::KIND) as usize);
    let ways =
        [Variant::PLAIN, Variant::EVERYTHING, Variant { transposed_right: true, ..Variant::PLAIN }];
    for (way, rows, cols) in ways.into_iter().flat_map(|way| {
        let rows = [48i64, 65];
        let cols = [16i64, 40, 64, 90, 96, 100, 208];
        rows.into_iter().flat_map(move |m| cols.map(move |n| (way, m, n)))
    }) {
        let known = Variant { whole: [Some(rows), Some(cols)], ..way };
        let gemm = compile(isa, T::KIND, known, None);
        let part = |size: i64, by: i64| [size, by, size - by].into_iter().filter(move |&n| n > 0);
        for m in part(rows, super::PART[0]).filter(|&m| m <= rows) {
            for n in part(cols, super::PART[1]).filter(|&n| n <= cols) {
                for k in [0, 16, 33] {
                    check::<T>(&gemm, known, [m as usize, n as usize, k], &mut room);
                }
            }
        }
    }
}

#[test]
fn code_for_known_sizes_equals_plain_loops() {
    for isa in here().filter(|&isa| isa != Isa::Generic) {
        known_sizes::<F32>(isa);
    }
    if Isa::host() == Isa::Amx {
        known_sizes::<I8Amx>(Isa::Amx);
    }
    let isa = Isa::Avx512;
    if isa <= Isa::host() {
        known_sizes::<F64>(isa);
        let length =
            |whole| compile(isa, Kind::F32, Variant { whole, ..Variant::PLAIN }, None).instructions;
        let (any, even) = (length([None, None]), length([Some(64), Some(96)]));
        assert!(even * 4 < any * 3, "{even} of {any} instructions are left");
    }
}

/// Every number of columns up to several blocks and their edges, of which code is made for those that occur.
#[test]
fn code_for_every_known_number_of_columns_equals_plain_loops() {
    for isa in here().filter(|&isa| isa != Isa::Generic) {
        let mut room = Aligned::new(workspace_bytes(isa, Kind::F64) as usize);
        for n in 1..=100 {
            let way = Variant { whole: [Some(9), Some(n)], ..Variant::PLAIN };
            let gemm = compile(isa, Kind::F64, way, None);
            check::<F64>(&gemm, way, [9, n as usize, 5], &mut room);
        }
    }
}

#[test]
fn parts_begin_where_blocks_do() {
    let kinds = [Kind::F32, Kind::F64, Kind::I32, Kind::Bf16Amx, Kind::I8Amx];
    for (isa, kind) in Isa::ALL.into_iter().flat_map(|isa| kinds.map(|kind| (isa, kind))) {
        assert_eq!(super::PART[1] % i64::from(Shape::of(isa, kind).columns()), 0, "{isa} {kind:?}");
    }
}

#[test]
fn f32_odd_shapes_equal_plain_loops() {
    odd_shapes::<F32>(&Variant::ALL);
}
#[test]
fn f64_odd_shapes_equal_plain_loops() {
    odd_shapes::<F64>(&[Variant::PLAIN, Variant::EVERYTHING]);
}
#[test]
fn i32_odd_shapes_equal_plain_loops() {
    odd_shapes::<I32>(&[Variant::PLAIN, Variant::EVERYTHING]);
}

#[test]
fn amx_odd_shapes_equal_plain_loops() {
    let in_rows: Vec<Variant> = Variant::ALL.into_iter().filter(|w| !w.transposed_left).collect();
    odd_shapes::<Bf16Amx>(&in_rows);
    odd_shapes::<I8Amx>(&[Variant::PLAIN, Variant::EVERYTHING]);
    odd_shapes::<U8Amx>(&[Variant::PLAIN]);
    odd_shapes::<I8U8Amx>(&[Variant::PLAIN]);
    odd_shapes::<U8I8Amx>(&[Variant::PLAIN]);
}

/// Fractions are within the bound of any order of f32 additions.
#[test]
fn bf16_fractions_are_within_the_bound() {
    if Isa::host() < Isa::Amx {
        return;
    }
    let [m, n, k] = [37, 45, 333];
    let mut random = Random(3);
    let some = |r: u64| ((fraction(r) as f32).to_bits() >> 16) as u16;
    let (a, b) = (random.fill(m * k, some), random.fill(k * n, some));
    let mut c = vec![0f32; m * n];
    let mut room = Aligned::new(workspace_bytes(Isa::Amx, Kind::Bf16Amx) as usize);
    let gemm = compile(Isa::Amx, Kind::Bf16Amx, Variant::PLAIN, None);
    let sizes = [m, n, k, k, n, n].map(|x| x as i64);
    // SAFETY: the arrays have these sizes.
    unsafe {
        let (a, b, c) = (a.as_ptr().cast(), b.as_ptr().cast(), c.as_mut_ptr().cast());
        (gemm.call)(a, b, c, &sizes, room.ptr());
    }
    for (at, &sum) in c.iter().enumerate() {
        let (i, j) = (at / n, at % n);
        let product = |p| f64::from(from_bf16(a[i * k + p])) * f64::from(from_bf16(b[p * n + j]));
        let exact: f64 = (0..k).map(product).sum();
        let size: f64 = (0..k).map(|p| product(p).abs()).sum();
        let bound = (k + 2) as f64 * 2f64.powi(-24) * size;
        assert!((f64::from(sum) - exact).abs() <= bound, "at {i}, {j}: {sum} {exact}");
    }
}

/// Small budgets make many blocks of columns and rows and several passes over k.
fn many_blocks<T: Numbers>(isa: Isa) {
    let shape = Shape::of(isa, T::KIND);
    let depth = i64::from(shape.step.max(32));
    let (right, sums) = (3 * depth * shape.panel_bytes(), 6 * shape.block_bytes());
    let budget = Budget { depth, right, sums };
    let mut room = Aligned::new(budget.room(shape).bytes as usize);
    for way in [Variant::PLAIN, Variant { start: true, ..Variant::PLAIN }, Variant::EVERYTHING] {
        let gemm = compile(isa, T::KIND, way, Some((depth, right, sums)));
        for size in [[70, 300, 100], [33, 145, 32], [33, 145, 33], [9, 7, 1000], [64, 96, 64]] {
            check::<T>(&gemm, way, size, &mut room);
        }
    }
}

#[test]
fn many_blocks_and_passes_equal_plain_loops() {
    for isa in here().filter(|&isa| isa != Isa::Generic) {
        many_blocks::<F32>(isa);
    }
    if Isa::host() == Isa::Amx {
        many_blocks::<Bf16Amx>(Isa::Amx);
        many_blocks::<I8Amx>(Isa::Amx);
    }
}

fn tiles<T: Numbers>() {
    const SIZES: [[u32; 3]; 10] = [
        [1, 1, 1],
        [3, 5, 0],
        [8, 48, 16],
        [64, 64, 64],
        [16, 100, 9],
        [7, 31, 5],
        [13, 129, 2],
        [33, 16, 33],
        [5, 47, 8],
        [2, 300, 3],
    ];
    let size = std::mem::size_of::<T::Sum>();
    for isa in here() {
        for (sizes, zero) in SIZES.into_iter().flat_map(|s| [(s, false), (s, true)]) {
            let [m, n, k] = sizes.map(|x| x as usize);
            let (lda, ldb, ldc) = (k + 1, n + 2, n + BORDER);
            let ir = crate::llvm::Ir::new("tiles");
            let fun = ir.function("product", ir.void(), &[ir.ptr(); 3]);
            let tile = |i, ld| (ir.param(fun, i), (ld * size) as i64);
            let (a, b, c) = (tile(0, lda), tile(1, ldb), tile(2, ldc));
            super::tile_product(&ir, isa, T::KIND, sizes, a, b, c, zero);
            ir.ret(None);
            let (address, _code) = plain::load(&ir, isa, "product");
            let mut random = Random(7);
            let (a, b) = (random.fill(lda * m, T::left), random.fill(ldb * k, T::right));
            let mut c = random.fill(ldc * m, T::sum);
            let mut want = c.clone();
            for (i, row) in want.chunks_mut(ldc).enumerate() {
                if zero {
                    row[..n].fill(T::Sum::default());
                }
                for p in 0..k {
                    for (j, sum) in row[..n].iter_mut().enumerate() {
                        *sum = T::add(a[i * lda + p], b[p * ldb + j], *sum);
                    }
                }
            }
            type Product = unsafe extern "C" fn(*const u8, *const u8, *mut u8);
            // SAFETY: emitted with this signature for arrays of these sizes.
            unsafe {
                let call = std::mem::transmute::<usize, Product>(address);
                call(a.as_ptr().cast(), b.as_ptr().cast(), c.as_mut_ptr().cast());
            }
            let bits = |v: &[T::Sum]| v.iter().map(|&x| T::bits(x)).collect::<Vec<_>>();
            assert_eq!(bits(&c), bits(&want), "{isa} {sizes:?} {zero}");
        }
    }
}

#[test]
fn tile_products_equal_plain_loops() {
    tiles::<F32>();
    tiles::<F64>();
    tiles::<I32>();
}

/// Matmuls of up to the most rows that the form for few rows takes, and of as many as fill its sums.
fn few_rows<T: Numbers>(any_order: bool) {
    let plain = Variant { few: Some(any_order), ..Variant::PLAIN };
    let ways = [
        plain,
        Variant { start: true, ..plain },
        Variant { computed_left: true, ..plain },
        Variant { computed_left: true, transposed_left: true, long_finish: true, ..plain },
    ];
    let ways = ways.map(|way| Variant {
        transposed_right: any_order,
        transposed_left: way.transposed_left && !any_order,
        ..way
    });
    for isa in here() {
        let mut room = Aligned::new(workspace_bytes(isa, T::KIND) as usize);
        let most = if isa == Isa::Generic { 40_000 } else { 1_000_000 };
        for way in ways {
            let gemm = compile(isa, T::KIND, way, None);
            assert!(gemm.instructions < 2000, "{isa} {way:?}: {}", gemm.instructions);
            let some = (0..=super::few::FEW as usize).flat_map(|m| {
                [
                    [m, 1, 1],
                    [m, 3, 7],
                    [m, 70, 0],
                    [m, 67, 129],
                    [m, 100, 8],
                    [m, 2500, 3],
                    [m, 5, 1100],
                ]
            });
            for size in some.filter(|s| s.iter().product::<usize>() < most) {
                check::<T>(&gemm, way, size, &mut room);
            }
        }
    }
}

#[test]
fn few_rows_equal_plain_loops() {
    few_rows::<F32>(false);
    few_rows::<F64>(false);
    few_rows::<I32>(false);
}

/// Sums of small integers are exact in any order.
#[test]
fn few_rows_in_any_order_equal_plain_loops() {
    few_rows::<SmallF32>(true);
    few_rows::<SmallF64>(true);
    few_rows::<I32>(true);
}
