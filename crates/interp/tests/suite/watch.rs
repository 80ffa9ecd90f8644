//! What a host is shown of a run.

use super::{args, lanes};
use tessera_interp::{HostArray, Lines, Moment, Watch, lines_of, watch};
use tessera_numerics::DType;

const LOOP: &str = r#"func @f(%x: view<[2], f32, write>, %hi: i64) {kind = group} {
  %p = tile.program_id {axis = 0} : i64 loc("k.py":2:5)
  %lo = tile.const {value = 0} : i64 loc("k.py":3:5)
  %one = tile.const {value = 1} : i64 loc("k.py":3:9)
  %acc = tile.const {value = 0.5} : f32 loc("k.py":3:5)
  %acc.1 = tile.for %lo, %hi, %one init(%acc) : f32 loc("k.py":4:5) do (%k: i64, %acc.2: f32) {
    %0 = tile.add %acc.2, %acc.2 : f32 loc("k.py":5:9)
    %acc.3 = tile.add %0, %acc.2 : f32 loc("k.py":5:9)
    tile.yield %acc.3 loc("k.py":4:5)
  }
  tile.store %x, %acc.1 at(%p) {extent = [0]} loc("k.py":6:5)
  tile.return
}"#;

fn moments(text: &str, launch: &tessera_target::LaunchArgs, wanted: &Watch) -> Vec<Moment> {
    let mut out = Vec::new();
    let func = tessera_tile::parse(text).unwrap();
    watch(&func, launch, wanted, &mut |m| {
        out.push(m);
        true
    })
    .unwrap();
    out
}

fn lines(first: u32, last: u32) -> Lines {
    Lines { file: "k.py".into(), first, last }
}

fn f32_of(m: &Moment, name: &str) -> f32 {
    f32::from_le_bytes(m.values[name].bytes[..].try_into().unwrap())
}

#[test]
fn stops_come_before_the_line_once_a_round_and_with_what_is_bound() {
    let mut x = HostArray::zeros(&[2], DType::F32);
    let hi = tessera_target::ArgValue::Scalar(tessera_numerics::Scalar::I64(2));
    let launch = args(vec![x.as_arg(), hi], [2, 1, 1]);
    let stops = moments(LOOP, &launch, &Watch::Before(vec![lines(5, 5)]));
    let seen: Vec<_> = stops.iter().map(|m| (m.line, m.group[0], f32_of(m, "acc"))).collect();
    assert_eq!(seen, [(5, 0, 0.5), (5, 0, 1.5), (5, 1, 0.5), (5, 1, 1.5)]);
    assert!(stops[0].values.contains_key("p") && !stops[0].values.contains_key("hi"));
    // The arrays are written as by any launch.
    assert_eq!(x.values(), [4.5, 4.5]);
}

#[test]
fn assignments_are_reported_in_order_and_a_loop_binds_its_variable() {
    let mut x = HostArray::zeros(&[2], DType::F32);
    let hi = tessera_target::ArgValue::Scalar(tessera_numerics::Scalar::I64(2));
    let launch = args(vec![x.as_arg(), hi], [1, 1, 1]);
    let wanted = Watch::Assigned(lines(5, 5), vec!["acc".into()]);
    let values: Vec<_> = moments(LOOP, &launch, &wanted).iter().map(|m| f32_of(m, "acc")).collect();
    assert_eq!(values, [1.5, 4.5]);
    let wanted = Watch::Assigned(lines(4, 4), vec!["k".into()]);
    let rounds = moments(LOOP, &launch, &wanted);
    let k = |m: &Moment| i64::from_le_bytes(m.values["k"].bytes[..].try_into().unwrap());
    assert_eq!(rounds.iter().map(k).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn lanes_are_distinguished_and_a_host_can_end_the_run() {
    let text = r#"func @f(%x: view<[5], i64, write>) {kind = lane} {
      %i = tile.linear_id : i64 loc("k.py":2:5)
      tile.store %x, %i at(%i) {extent = [0]} loc("k.py":3:5)
      tile.return
    }"#;
    let mut x = HostArray::new(&[5], DType::I64, &[9.0; 5]);
    let launch = lanes(vec![x.as_arg()], 5, 4);
    let wanted = Watch::Before(vec![lines(3, 3)]);
    let stops = moments(text, &launch, &wanted);
    assert_eq!(stops[1].active, Some(vec![true, false, false, false]));
    assert_eq!(stops[1].values["i"].shape, [4]);
    let func = tessera_tile::parse(text).unwrap();
    let mut y = HostArray::new(&[5], DType::I64, &[9.0; 5]);
    let launch = lanes(vec![y.as_arg()], 5, 4);
    let ended = watch(&func, &launch, &wanted, &mut |m| m.group[0] == 0).unwrap_err();
    assert!(tessera_interp::is_interrupt(&ended));
    assert_eq!(y.values(), [0.0, 1.0, 2.0, 3.0, 9.0]);
    assert_eq!(lines_of(&func)["k.py"], [2, 3]);
}
