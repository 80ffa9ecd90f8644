use super::lanes::SAXPY;
use super::{args, lanes, run};
use std::time::Instant;
use tessera_interp::HostArray;
use tessera_numerics::{DType, Scalar};
use tessera_target::ArgValue;

/// One group for each block of C; k in steps, zeros beyond every edge.
pub fn gemm(a: DType, b: DType, acc: DType, (bm, bn, bk): (i64, i64, i64)) -> String {
    let zero = if acc.is_float() { "0.0" } else { "0" };
    format!(
        "func @gemm(%a: view<[m, k], {a}, read>, %b: view<[k, n], {b}, read>, %c: view<[m, n], {acc}, write>) {{kind = group}} {{
  %bm = tile.const {{value = {bm}}} : i64
  %bn = tile.const {{value = {bn}}} : i64
  %bk = tile.const {{value = {bk}}} : i64
  %pm = tile.program_id {{axis = 0}} : i64
  %pn = tile.program_id {{axis = 1}} : i64
  %m0 = tile.mul %pm, %bm : i64
  %n0 = tile.mul %pn, %bn : i64
  %k = tile.dim {{name = k}} : i64
  %lo = tile.const {{value = 0}} : i64
  %z = tile.const {{value = {zero}}} : tile<{bm}x{bn}x{acc}>
  %r = tile.for %lo, %k, %bk init(%z) : tile<{bm}x{bn}x{acc}> do (%k0: i64, %acc: tile<{bm}x{bn}x{acc}>) {{
    %ta = tile.load %a at(%m0, %k0) {{extent = [{bm}, {bk}]}} : tile<{bm}x{bk}x{a}>
    %tb = tile.load %b at(%k0, %n0) {{extent = [{bk}, {bn}]}} : tile<{bk}x{bn}x{b}>
    %d = tile.mma %ta, %tb, %acc {{class = seq}} : tile<{bm}x{bn}x{acc}>
    tile.yield %d
  }}
  tile.store %c, %r at(%m0, %n0) {{extent = [{bm}, {bn}]}}
  tile.return
}}"
    )
}

pub fn noise(n: i64, seed: i64, range: f64) -> Vec<f64> {
    let next = |i: i64| ((i + seed) * 7919 % 257) as f64 / 257.0 * 2.0 * range - range;
    (0..n).map(next).collect()
}

#[test]
fn gemm_of_every_legal_row_on_ragged_shapes() {
    let (m, n, k) = (13, 21, 19);
    for &(ta, tb, tc) in tessera_tile::ops::mma::LEGAL {
        let mut a = HostArray::new(&[m, k], ta, &noise(m * k, 1, 100.0));
        let mut b = HostArray::new(&[k, n], tb, &noise(k * n, 2, 100.0));
        let mut c = HostArray::zeros(&[m, n], tc);
        let text = gemm(ta, tb, tc, (8, 16, 8));
        run(&text, &args(vec![a.as_arg(), b.as_arg(), c.as_arg()], [2, 2, 1])).unwrap();
        let (av, bv) = (a.values(), b.values());
        let wanted: Vec<f64> = (0..m * n)
            .map(|at| {
                let pairs = (0..k)
                    .map(|kk| (av[(at / n * k + kk) as usize], bv[(kk * n + at % n) as usize]));
                match tc {
                    // The definition: one fused multiply-add for each k, ascending.
                    DType::F32 => {
                        pairs.fold(0f32, |s, (x, y)| (x as f32).mul_add(y as f32, s)) as f64
                    }
                    _ => pairs.fold(0f64, |s, (x, y)| x.mul_add(y, s)),
                }
            })
            .collect();
        assert_eq!(c.values(), wanted, "{ta} x {tb}");
    }
}

#[test]
fn integer_accumulators_wrap() {
    let mut x = HostArray::new(&[1, 1], DType::I8, &[-128.0]);
    let text = "
func @f(%x: view<[1, 1], i8, read>, %y: view<[1, 1], i32, write>) {kind = group} {
  %z = tile.const {value = 0} : i64
  %t = tile.load %x at(%z, %z) {extent = [1, 1]} : tile<1x1xi8>
  %big = tile.const {value = 2147483647} : tile<1x1xi32>
  %r = tile.mma %t, %t, %big : tile<1x1xi32>
  tile.store %y, %r at(%z, %z) {extent = [1, 1]}
  tile.return
}";
    let mut y = HostArray::zeros(&[1, 1], DType::I32);
    run(text, &args(vec![x.as_arg(), y.as_arg()], [1; 3])).unwrap();
    assert_eq!(y.values(), [-2147467265.0]);
}

#[test]
fn dot_product_of_2_20_ones_is_exact() {
    let k = 1 << 20;
    let mut a = HostArray::new(&[1, k], DType::BF16, &vec![1.0; k as usize]);
    let mut b = HostArray::new(&[k, 1], DType::BF16, &vec![1.0; k as usize]);
    let mut c = HostArray::zeros(&[1, 1], DType::F32);
    let text = gemm(DType::BF16, DType::BF16, DType::F32, (1, 1, 1024));
    run(&text, &args(vec![a.as_arg(), b.as_arg(), c.as_arg()], [1; 3])).unwrap();
    assert_eq!(c.values(), [1048576.0]);
}

#[test]
fn empty_k_leaves_the_zero_accumulator() {
    let mut a = HostArray::zeros(&[2, 0], DType::F16);
    let mut b = HostArray::zeros(&[0, 2], DType::F16);
    let mut c = HostArray::new(&[2, 2], DType::F32, &[5.0; 4]);
    let text = gemm(DType::F16, DType::F16, DType::F32, (4, 4, 4));
    run(&text, &args(vec![a.as_arg(), b.as_arg(), c.as_arg()], [1; 3])).unwrap();
    assert_eq!(c.text(), "[0.0, 0.0, 0.0, 0.0]");
}

/// Online softmax over blocks of keys: the loop carries the output, the row maxima and the sums.
pub const ATTENTION: &str = "
func @attention(%q: view<[h, s, 64], bf16, read>, %k: view<[h, s, 64], bf16, read>, %v: view<[h, s, 64], bf16, read>, %o: view<[h, s, 64], bf16, write>) {kind = group} {
  %zero = tile.const {value = 0} : i64
  %b = tile.const {value = 64} : i64
  %h = tile.program_id {axis = 0} : i64
  %p = tile.program_id {axis = 1} : i64
  %q0 = tile.mul %p, %b : i64
  %s = tile.dim {name = s} : i64
  %si = tile.cast %s : i32
  %sb = tile.broadcast %si : tile<64x64xi32>
  %tq = tile.load %q at(%h, %q0, %zero) {extent = [0, 64, 64]} : tile<64x64xbf16>
  %o0 = tile.const {value = 0.0} : tile<64x64xf32>
  %m0 = tile.const {value = -1.0e30} : tile<64xf32>
  %l0 = tile.const {value = 0.0} : tile<64xf32>
  %scale = tile.const {value = 0.125} : tile<64x64xf32>
  %hidden = tile.const {value = -1.0e30} : tile<64x64xf32>
  %iota = tile.iota : tile<64xi32>
  %row = tile.expand %iota {axis = 0} : tile<1x64xi32>
  %cols = tile.broadcast %row : tile<64x64xi32>
  %out, %mx, %sum = tile.for %zero, %s, %b init(%o0, %m0, %l0) : tile<64x64xf32>, tile<64xf32>, tile<64xf32> do (%k0: i64, %acc: tile<64x64xf32>, %m: tile<64xf32>, %l: tile<64xf32>) {
    %tk = tile.load %k at(%h, %k0, %zero) {extent = [0, 64, 64]} : tile<64x64xbf16>
    %kt = tile.transpose %tk {perm = [1, 0]} : tile<64x64xbf16>
    %raw = tile.mma %tq, %kt, %o0 : tile<64x64xf32>
    %scaled = tile.mul %raw, %scale : tile<64x64xf32>
    %ki = tile.cast %k0 : i32
    %kb = tile.broadcast %ki : tile<64x64xi32>
    %at = tile.add %cols, %kb : tile<64x64xi32>
    %in = tile.lt %at, %sb : tile<64x64xbool>
    %x = tile.select %in, %scaled, %hidden : tile<64x64xf32>
    %rm = tile.reduce %x {op = max, axis = 1} : tile<64xf32>
    %mn = tile.maximum %m, %rm : tile<64xf32>
    %me = tile.expand %mn {axis = 1} : tile<64x1xf32>
    %mb = tile.broadcast %me : tile<64x64xf32>
    %xs = tile.sub %x, %mb : tile<64x64xf32>
    %e = tile.exp %xs : tile<64x64xf32>
    %dm = tile.sub %m, %mn : tile<64xf32>
    %a = tile.exp %dm : tile<64xf32>
    %rs = tile.reduce %e {op = sum, axis = 1} : tile<64xf32>
    %ln = tile.fma %l, %a, %rs : tile<64xf32>
    %ae = tile.expand %a {axis = 1} : tile<64x1xf32>
    %ab = tile.broadcast %ae : tile<64x64xf32>
    %old = tile.mul %acc, %ab : tile<64x64xf32>
    %eb = tile.cast %e : tile<64x64xbf16>
    %tv = tile.load %v at(%h, %k0, %zero) {extent = [0, 64, 64]} : tile<64x64xbf16>
    %new = tile.mma %eb, %tv, %old : tile<64x64xf32>
    tile.yield %new, %mn, %ln
  }
  %se = tile.expand %sum {axis = 1} : tile<64x1xf32>
  %sbc = tile.broadcast %se : tile<64x64xf32>
  %div = tile.div %out, %sbc : tile<64x64xf32>
  %r = tile.cast %div : tile<64x64xbf16>
  tile.store %o, %r at(%h, %q0, %zero) {extent = [0, 64, 64]}
  tile.return
}";

fn attention(h: i64, s: i64) -> (HostArray, Vec<f64>) {
    let count = h * s * 64;
    let array = |seed| HostArray::new(&[h, s, 64], DType::BF16, &noise(count, seed, 1.5));
    let (mut q, mut k, mut v) = (array(3), array(5), array(11));
    let mut o = HostArray::zeros(&[h, s, 64], DType::BF16);
    let blocks = (s + 63) / 64;
    let launch = args(vec![q.as_arg(), k.as_arg(), v.as_arg(), o.as_arg()], [h, blocks, 1]);
    run(ATTENTION, &launch).unwrap();
    let (q, k, v) = (q.values(), k.values(), v.values());
    let mut wanted = vec![0.0; count as usize];
    for row in 0..(h * s) as usize {
        let head = row / s as usize * s as usize;
        let dot =
            |j: usize| (0..64).map(|d| q[row * 64 + d] * k[(head + j) * 64 + d]).sum::<f64>() / 8.0;
        let scores: Vec<f64> = (0..s as usize).map(dot).collect();
        let top = scores.iter().copied().fold(f64::MIN, f64::max);
        let total: f64 = scores.iter().map(|x| (x - top).exp()).sum();
        for (j, x) in scores.iter().enumerate() {
            for d in 0..64 {
                wanted[row * 64 + d] += (x - top).exp() / total * v[(head + j) * 64 + d];
            }
        }
    }
    (o, wanted)
}

#[test]
fn attention_on_a_ragged_length_is_near_the_exact_one() {
    let (o, wanted) = attention(2, 100);
    for (got, wanted) in o.values().iter().zip(&wanted) {
        assert!((got - wanted).abs() < 0.02, "{got} {wanted}");
    }
}

/// Prints timings: run with `--nocapture`.
#[test]
fn timing() {
    let n = 512;
    let array = |seed| HostArray::new(&[n, n], DType::BF16, &noise(n * n, seed, 1.0));
    let (mut a, mut b, mut c) = (array(1), array(2), HostArray::zeros(&[n, n], DType::F32));
    let text = gemm(DType::BF16, DType::BF16, DType::F32, (64, 64, 32));
    let start = Instant::now();
    run(&text, &args(vec![a.as_arg(), b.as_arg(), c.as_arg()], [8, 8, 1])).unwrap();
    println!("gemm bf16 512x512x512: {:?}", start.elapsed());
    let array = |seed| HostArray::new(&[2, 512, 64], DType::BF16, &noise(2 * 512 * 64, seed, 1.0));
    let (mut q, mut k, mut v, mut o) = (array(1), array(2), array(3), array(4));
    let start = Instant::now();
    run(ATTENTION, &args(vec![q.as_arg(), k.as_arg(), v.as_arg(), o.as_arg()], [2, 8, 1])).unwrap();
    println!("attention bf16 2x512x64: {:?}", start.elapsed());
    let ones = vec![1.0; 1 << 20];
    let array = || HostArray::new(&[1 << 20], DType::F32, &ones);
    let (mut x, mut y) = (array(), array());
    let a = ArgValue::Scalar(Scalar::F32(2.0));
    let start = Instant::now();
    run(SAXPY, &lanes(vec![a, x.as_arg(), y.as_arg()], 1 << 20, 256)).unwrap();
    println!("saxpy f32 2^20 lanes: {:?}", start.elapsed());
}
