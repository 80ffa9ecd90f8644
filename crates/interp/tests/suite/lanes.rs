use super::{args, lanes, refusal, run};
use tessera_interp::HostArray;
use tessera_numerics::{DType, Scalar};
use tessera_target::ArgValue;

pub const SAXPY: &str = "
func @saxpy(%a: f32, %x: view<[n], f32, read>, %y: view<[n], f32, read_write>) {kind = lane} {
  %i = tile.linear_id : i64
  %xv = tile.load %x at(%i) {extent = [0]} : f32
  %yv = tile.load %y at(%i) {extent = [0]} : f32
  %p = tile.mul %a, %xv : f32
  %s = tile.add %p, %yv : f32
  tile.store %y, %s at(%i) {extent = [0]}
  tile.return
}";

#[test]
fn lanes_beyond_the_domain_do_nothing() {
    let mut x = HostArray::new(&[8], DType::F32, &[1.0; 8]);
    let mut y = HostArray::new(&[8], DType::F32, &[1.0; 8]);
    let a = ArgValue::Scalar(Scalar::F32(1.0));
    run(SAXPY, &lanes(vec![a, x.as_arg(), y.as_arg()], 5, 4)).unwrap();
    assert_eq!(y.values(), [2.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0]);
}

/// Each group reverses its part of the array in shared memory.
const REVERSE: &str = "
func @reverse(%x: view<[n], f32, read_write>) {kind = lane} {
  %b = tile.buf_alloc : buf<4xf32>
  %i = tile.linear_id : i64
  %l = tile.local_id : i64
  %v = tile.load %x at(%i) {extent = [0]} : f32
  tile.store %b, %v at(%l) {extent = [0]}
  tile.barrier
  %three = tile.const {value = 3} : i64
  %m = tile.sub %three, %l : i64
  %w = tile.load %b at(%m) {extent = [0]} : f32
  tile.store %x, %w at(%i) {extent = [0]}
  tile.return
}";

#[test]
fn shared_memory_is_the_groups_own() {
    let mut x = HostArray::new(&[8], DType::F32, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    run(REVERSE, &lanes(vec![x.as_arg()], 8, 4)).unwrap();
    assert_eq!(x.values(), [4.0, 3.0, 2.0, 1.0, 8.0, 7.0, 6.0, 5.0]);
}

#[test]
fn reading_what_a_surplus_lane_did_not_write_is_an_error() {
    let mut x = HostArray::new(&[6], DType::F32, &[1.0; 6]);
    let message = refusal(run(REVERSE, &lanes(vec![x.as_arg()], 6, 4)));
    assert_eq!(message, "E_UNINIT element [3] of the buffer is read but was never written");
}

const GUARDED_BARRIER: &str = "
func @f(%x: view<[n], i64, write>, %k: i64) {kind = lane} {
  %i = tile.linear_id : i64
  %c = tile.lt %i, %k : bool
  tile.if %c do {
    tile.barrier
    tile.store %x, %i at(%i) {extent = [0]}
    tile.yield
  } do {
    tile.yield
  }
  tile.return
}";

#[test]
fn barrier_is_met_by_the_lanes_that_exist() {
    let mut x = HostArray::zeros(&[6], DType::I64);
    let bound = |k| ArgValue::Scalar(Scalar::I64(k));
    run(GUARDED_BARRIER, &lanes(vec![x.as_arg(), bound(6)], 6, 4)).unwrap();
    assert_eq!(x.values(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let message = refusal(run(GUARDED_BARRIER, &lanes(vec![x.as_arg(), bound(5)], 6, 4)));
    assert!(message.starts_with("E_DIVERGENT_BARRIER"), "{message}");
}

#[test]
fn lanes_fold_into_one_element_one_after_another() {
    let text = "
func @f(%s: view<[1], bf16, reduce_sum>) {kind = lane} {
  %zero = tile.const {value = 0} : i64
  %one = tile.const {value = 1.0} : f32
  tile.accumulate %s, %one at(%zero) {op = sum, extent = [0]}
  tile.return
}";
    let mut s = HostArray::zeros(&[1], DType::BF16);
    run(text, &lanes(vec![s.as_arg()], 300, 64)).unwrap();
    // In bf16 256 + 1 rounds back to 256: each contribution is stored by itself.
    assert_eq!(s.values(), [256.0]);
}

#[test]
fn lanes_must_be_a_sensible_number() {
    let mut x = HostArray::zeros(&[1], DType::F32);
    for lanes in [0, -1, 1 << 40] {
        let mut launch = args(vec![x.as_arg()], [1; 3]);
        launch.lanes = lanes;
        assert!(refusal(run(REVERSE, &launch)).starts_with("E_ARGUMENT"));
    }
}
