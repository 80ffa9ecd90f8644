//! Kernels with known counts.

use std::collections::BTreeMap;
use tessera_cost::{Launch, Work, work};

fn dims(given: &[(&str, i64)]) -> BTreeMap<String, i64> {
    given.iter().map(|(name, v)| (name.to_string(), *v)).collect()
}

fn counted(text: &str, given: &[(&str, i64)], grid: [i64; 3], domain: i64) -> Work {
    let func = tessera_tile::parse(text).unwrap();
    tessera_ir::verify(&func).unwrap();
    work(&func, &Launch { dims: &dims(given), grid, domain: [domain, 1, 1], lanes: 256 }).unwrap()
}

const GEMM: &str = "func @gemm(%A: view<[M, K], bf16, read>, %B: view<[K, N], bf16, read>, %C: view<[M, N], f32, write>) {kind = group, grid = [cdiv(M, 64), cdiv(N, 64)]} {
  %p = tile.program_id {axis = 0} : i64
  %q = tile.program_id {axis = 1} : i64
  %z = tile.const {value = 0} : i64
  %b = tile.const {value = 64} : i64
  %s = tile.const {value = 32} : i64
  %m = tile.mul %p, %b : i64
  %n = tile.mul %q, %b : i64
  %K = tile.dim {name = K} : i64
  %zero = tile.const {value = 0.0} : tile<64x64xf32>
  %acc = tile.for %z, %K, %s init(%zero) : tile<64x64xf32> do (%k: i64, %c: tile<64x64xf32>) {
    %x = tile.load %A at(%m, %k) {extent = [64, 32]} : tile<64x32xbf16>
    %y = tile.load %B at(%k, %n) {extent = [32, 64]} : tile<32x64xbf16>
    %d = tile.mma %x, %y, %c : tile<64x64xf32>
    tile.yield %d
  }
  tile.store %C, %acc at(%m, %n) {extent = [64, 64]}
  tile.return
}";

#[test]
fn a_matmul_is_two_flops_for_each_multiply_add() {
    let (m, n, k) = (128, 192, 96);
    let sizes = [("M", m), ("N", n), ("K", k)];
    let found = counted(GEMM, &sizes, [2, 3, 1], 0);
    assert_eq!(found.flops, (2 * m * n * k) as u64);
    assert_eq!(found.least_read, (2 * (m * k + k * n)) as u64);
    assert_eq!(found.least_written, (4 * m * n) as u64);
    // Each column of tiles reads all of A, each row all of B.
    assert_eq!(found.read, (2 * (3 * m * k + 2 * k * n)) as u64);
    assert!(found.exact);
}

#[test]
fn padding_is_work_and_no_bytes() {
    let found = counted(GEMM, &[("M", 1), ("N", 1), ("K", 1)], [1, 1, 1], 0);
    assert_eq!(found.flops, 2 * 64 * 64 * 32);
    assert_eq!(found.bytes(), 2 + 2 + 4);
    assert_eq!(found.traffic(), 2 * (2 * 64 * 32) + 4 * 64 * 64);
}

#[test]
fn loops_that_depend_on_the_group_are_counted_for_each() {
    let text = "func @f(%x: view<[n], f32, read_write>) {kind = group, grid = [cdiv(n, 8)]} {
  %p = tile.program_id {axis = 0} : i64
  %b = tile.const {value = 8} : i64
  %z = tile.const {value = 0} : i64
  %m = tile.mul %p, %b : i64
  %n = tile.dim {name = n} : i64
  %e = tile.add %m, %b : i64
  %hi = tile.minimum %n, %e : i64
  tile.for %z, %hi, %b do (%k: i64) {
    tile.for %k, %hi, %b do (%j: i64) {
      %v = tile.load %x at(%j) {extent = [8]} : tile<8xf32>
      %w = tile.add %v, %v : tile<8xf32>
      tile.store %x, %w at(%m) {extent = [8]}
      tile.yield
    }
    tile.yield
  }
  tile.return
}";
    // Group p runs p + 1 iterations of the first loop, and iteration k of it p + 1 - k of the second.
    let iterations: i64 = (1..=10).map(|p| p * (p + 1) / 2).sum();
    let found = counted(text, &[("n", 80)], [10, 1, 1], 0);
    assert_eq!(found.flops, (iterations * 8) as u64);
    assert_eq!((found.least_read, found.least_written, found.exact), (320, 320, true));
    // Far more groups than are followed: a sample represents all.
    let many = counted(text, &[("n", 8 << 22)], [1 << 22, 1, 1], 0);
    assert!(!many.exact && many.flops > 0);
}

const SHIFT: &str =
    "func @shift(%x: view<[n], f32, read>, %y: view<[n], f32, write>) {kind = lane, domain = n} {
  %i = tile.linear_id : i64
  %n = tile.dim {name = n} : i64
  %one = tile.const {value = 1} : i64
  %z = tile.const {value = 0} : i64
  %j = tile.add %i, %one : i64
  %a = tile.lt %j, %n : bool
  %b = tile.gt %i, %z : bool
  %c = tile.and %a, %b : bool
  tile.if %c do {
    %v = tile.load %x at(%j) {extent = [0]} : f32
    %w = tile.exp %v : f32
    tile.store %y, %w at(%i) {extent = [0]}
    tile.yield
  } do {
    %d = tile.load %x at(%i) {extent = [0]} : f32
    tile.store %y, %d at(%i) {extent = [0]}
    tile.yield
  }
  tile.return
}";

#[test]
fn lanes_are_counted_on_the_side_of_a_branch_they_take() {
    let one = counted(SHIFT, &[("n", 3)], [1, 1, 1], 3).flops;
    assert!(one > 10, "an exponential has several operations, got {one}");
    let found = counted(SHIFT, &[("n", 1000)], [4, 1, 1], 1000);
    assert_eq!(
        (found.flops, found.read, found.written, found.exact),
        (998 * one, 4000, 4000, true)
    );
    assert_eq!(counted(SHIFT, &[("n", 0)], [0, 1, 1], 0).flops, 0);
}

#[test]
fn what_depends_on_data_is_said_to_be_an_estimate() {
    let text = "func @f(%x: view<[n], f32, read>, %e: view<[1], i64, read>, %y: view<[n], f32, write>) {kind = group, grid = [1]} {
  %z = tile.const {value = 0} : i64
  %one = tile.const {value = 1} : i64
  %hi = tile.load %e at(%z) {extent = [0]} : i64
  tile.for %z, %hi, %one do (%k: i64) {
    %v = tile.load %x at(%k) {extent = [16]} : tile<16xf32>
    %s = tile.reduce %v {op = sum, axis = 0} : f32
    tile.store %y, %s at(%k) {extent = [0]}
    tile.yield
  }
  tile.return
}";
    let found = counted(text, &[("n", 1000)], [1, 1, 1], 0);
    assert_eq!((found.flops, found.exact), (15, false));
    // All of an array that is touched at all.
    assert_eq!((found.read, found.least_read), (64 + 8, 4000 + 8));
}

#[test]
fn an_array_that_is_read_in_part_counts_in_part() {
    let text = "func @f(%w: view<[n, 4], f32, read>, %ids: view<[8], i32, read>, %y: view<[8], f32, write>) {kind = group, grid = [1]} {
  %z = tile.const {value = 0} : i64
  %i = tile.load %ids at(%z) {extent = [8]} : tile<8xi32>
  %c = tile.const {value = 0} : tile<8xi32>
  %v = tile.gather %w at(%i, %c) : tile<8xf32>
  tile.store %y, %v at(%z) {extent = [8]}
  tile.return
}";
    let found = counted(text, &[("n", 1_000_000)], [1, 1, 1], 0);
    assert_eq!((found.flops, found.bytes()), (0, 32 + 32 + 32));
}

#[test]
fn a_size_that_is_missing_is_named() {
    let func = tessera_tile::parse(GEMM).unwrap();
    let given = dims(&[("M", 64), ("N", 64)]);
    let launch = Launch { dims: &given, grid: [1, 1, 1], domain: [0; 3], lanes: 256 };
    assert_eq!(work(&func, &launch).unwrap_err(), "`K` has no value");
}
