//! Products.

use tessera_interp::inner::f32_rows;

#[test]
fn fused_instructions_give_the_bits_of_the_definition() {
    for (m, k, n) in [(3, 5, 1), (2, 7, 13), (1, 33, 64), (4, 3, 150)] {
        let noise = |i: usize| ((i * 2654435761) % 1009) as f32 / 7.0 - 70.0;
        let a: Vec<f32> = (0..m * k).map(noise).collect();
        let b: Vec<f32> = (0..k * n).map(|i| noise(i + 5)).collect();
        let mut acc: Vec<f32> = (0..m * n).map(|i| noise(i + 9)).collect();
        let mut wanted = acc.clone();
        for (at, sum) in wanted.iter_mut().enumerate() {
            for kk in 0..k {
                *sum = a[at / n * k + kk].mul_add(b[kk * n + at % n], *sum);
            }
        }
        f32_rows(&a, &b, &mut acc, k, n);
        assert_eq!(acc, wanted, "{m}x{n}x{k}");
    }
}
