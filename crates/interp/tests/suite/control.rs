use super::{args, lanes, refusal, run};
use std::cell::Cell;
use tessera_interp::HostArray;
use tessera_numerics::{DType, Scalar};
use tessera_target::ArgValue;

/// Collatz steps of each lane's number: lanes leave the loop at different times, and inside it take
/// different branches.
const COLLATZ: &str = "
func @collatz(%x: view<[n], i64, read>, %y: view<[n], i64, write>) {kind = lane} {
  %i = tile.linear_id : i64
  %v = tile.load %x at(%i) {extent = [0]} : i64
  %zero = tile.const {value = 0} : i64
  %one = tile.const {value = 1} : i64
  %two = tile.const {value = 2} : i64
  %three = tile.const {value = 3} : i64
  %last, %steps = tile.while init(%v, %zero) : i64, i64 do (%a: i64, %s: i64) {
    %c = tile.gt %a, %one : bool
    tile.yield %c
  } do (%a: i64, %s: i64) {
    %m = tile.mod %a, %two : i64
    %odd = tile.eq %m, %one : bool
    %next = tile.if %odd : i64 do {
      %t = tile.mul %a, %three : i64
      %u = tile.add %t, %one : i64
      tile.yield %u
    } do {
      %h = tile.floordiv %a, %two : i64
      tile.yield %h
    }
    %t = tile.add %s, %one : i64
    tile.yield %next, %t
  }
  tile.store %y, %steps at(%i) {extent = [0]}
  tile.return
}";

#[test]
fn diverging_lanes_keep_their_values() {
    let mut x = HostArray::new(&[6], DType::I64, &[1.0, 2.0, 3.0, 6.0, 7.0, 27.0]);
    let mut y = HostArray::zeros(&[6], DType::I64);
    run(COLLATZ, &lanes(vec![x.as_arg(), y.as_arg()], 6, 4)).unwrap();
    assert_eq!(y.values(), [0.0, 1.0, 7.0, 8.0, 16.0, 111.0]);
}

#[test]
fn side_effects_happen_in_active_lanes_only() {
    let text = "
func @f(%y: view<[n], i64, read_write>) {kind = lane} {
  %i = tile.linear_id : i64
  %zero = tile.const {value = 0} : i64
  %one = tile.const {value = 1} : i64
  %s = tile.for %zero, %i, %one init(%zero) : i64 do (%k: i64, %acc: i64) {
    %n = tile.add %acc, %k : i64
    tile.store %y, %n at(%i) {extent = [0]}
    tile.yield %n
  }
  tile.return
}";
    let mut y = HostArray::new(&[5], DType::I64, &[-1.0; 5]);
    run(text, &lanes(vec![y.as_arg()], 5, 8)).unwrap();
    assert_eq!(y.values(), [-1.0, 0.0, 1.0, 3.0, 6.0]);
}

const COUNT: &str = "
func @f(%y: view<[1], i64, write>, %lo: i64, %hi: i64, %step: i64) {kind = group} {
  %zero = tile.const {value = 0} : i64
  %one = tile.const {value = 1} : i64
  %n = tile.for %lo, %hi, %step init(%zero) : i64 do (%i: i64, %acc: i64) {
    %next = tile.add %acc, %one : i64
    tile.yield %next
  }
  tile.store %y, %n at(%zero) {extent = [0]}
  tile.return
}";

#[test]
fn loops_count_up_to_their_bound_and_never_past_the_number_range() {
    let mut y = HostArray::zeros(&[1], DType::I64);
    let mut count = |lo: i64, hi: i64, step: i64| {
        let scalar = |v| ArgValue::Scalar(Scalar::I64(v));
        let launch = args(vec![y.as_arg(), scalar(lo), scalar(hi), scalar(step)], [1; 3]);
        run(COUNT, &launch).map(|()| y.values()[0])
    };
    assert_eq!(count(0, 10, 3), Ok(4.0));
    assert_eq!(count(5, 5, 1), Ok(0.0));
    assert_eq!(count(5, -5, 1), Ok(0.0));
    assert_eq!(count(i64::MAX - 1, i64::MAX, 10), Ok(1.0));
    assert_eq!(count(i64::MIN, i64::MAX, i64::MAX), Ok(3.0));
    assert_eq!(
        refusal(count(0, 10, 0).map(drop)),
        "E_ARGUMENT expected a loop step above 0, got 0"
    );
    assert!(refusal(count(10, 0, -1).map(drop)).starts_with("E_ARGUMENT"));
}

#[test]
fn group_branch_runs_one_side() {
    let text = "
func @f(%x: view<[2], f32, read_write>) {kind = group} {
  %p = tile.program_id {axis = 2} : i64
  %zero = tile.const {value = 0} : i64
  %c = tile.eq %p, %zero : bool
  %r = tile.if %c : tile<1xf32> do {
    %a = tile.const {value = 5.0} : tile<1xf32>
    tile.yield %a
  } do {
    %b = tile.buf_alloc : buf<1xf32>
    %a = tile.const {value = 7.0} : tile<1xf32>
    tile.store %b, %a at(%zero) {extent = [1]}
    %v = tile.load %b at(%zero) {extent = [1]} : tile<1xf32>
    tile.yield %v
  }
  tile.store %x, %r at(%p) {extent = [1]}
  tile.return
}";
    let mut x = HostArray::zeros(&[2], DType::F32);
    run(text, &args(vec![x.as_arg()], [1, 1, 2])).unwrap();
    assert_eq!(x.values(), [5.0, 7.0]);
}

#[test]
fn empty_grids_launch_nothing() {
    let mut y = HostArray::new(&[1], DType::I64, &[9.0]);
    let one = || ArgValue::Scalar(Scalar::I64(1));
    for grid in [[0, 1, 1], [1, 0, 1], [5, 5, 0]] {
        run(COUNT, &args(vec![y.as_arg(), one(), one(), one()], grid)).unwrap();
    }
    assert_eq!(y.values(), [9.0]);
}

#[test]
fn groups_run_in_row_major_order() {
    let text = "
func @f(%y: view<[1], i64, read_write>) {kind = group} {
  %zero = tile.const {value = 0} : i64
  %ten = tile.const {value = 10} : i64
  %a = tile.program_id {axis = 0} : i64
  %b = tile.program_id {axis = 1} : i64
  %old = tile.load %y at(%zero) {extent = [0]} : i64
  %x = tile.mul %old, %ten : i64
  %y1 = tile.mul %a, %ten : i64
  %two = tile.const {value = 5} : i64
  %y2 = tile.floordiv %y1, %two : i64
  %z = tile.add %y2, %b : i64
  %w = tile.add %x, %z : i64
  tile.store %y, %w at(%zero) {extent = [0]}
  tile.return
}";
    let mut y = HostArray::zeros(&[1], DType::I64);
    run(text, &args(vec![y.as_arg()], [2, 2, 1])).unwrap();
    assert_eq!(y.values(), [123.0]);
}

#[test]
fn a_host_check_stops_an_endless_loop() {
    // The check is called on the thread of the launch, so other tests do not see this one's answer.
    thread_local!(static STOP: Cell<bool> = const { Cell::new(false) });
    let text = "
func @f() {kind = group} {
  tile.while do {
    %c = tile.const {value = true} : bool
    tile.yield %c
  } do {
    tile.yield
  }
  tile.return
}";
    STOP.set(true);
    tessera_interp::set_interrupt_check(|| STOP.get());
    let errors = run(text, &args(vec![], [1; 3])).unwrap_err();
    assert!(tessera_interp::is_interrupt(&errors), "{errors}");
}
