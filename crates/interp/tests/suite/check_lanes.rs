//! Checked mode in lane kernels: races between barriers, and divergent barriers.

use super::check::{broken, check, places};
use super::lanes;
use tessera_interp::HostArray;
use tessera_numerics::DType;
use tessera_target::LaunchArgs;

/// A lane kernel with the lane's numbers `%i` and `%l`, and constants.
fn lane(params: &str, body: &str) -> String {
    format!(
        "func @f({params}) {{kind = lane}} {{
  %i = tile.linear_id : i64
  %l = tile.local_id : i64
  %zero = tile.const {{value = 0}} : i64
  %one = tile.const {{value = 1}} : i64
  %two = tile.const {{value = 2}} : i64
  %three = tile.const {{value = 3}} : i64
  {body}
  tile.return
}}"
    )
}

const X: &str = "%x: view<[n], i64, read_write>";

fn on(x: &mut HostArray, per_group: i64) -> LaunchArgs {
    let n = x.dims[0];
    lanes(vec![x.as_arg()], n, per_group)
}

fn numbers(n: i64) -> HostArray {
    HostArray::new(&[n], DType::I64, &(0..n).map(|i| i as f64).collect::<Vec<_>>())
}

const REVERSE: &str = "%b = tile.buf_alloc : buf<4xi64>
  %v = tile.load %x at(%i) {extent = [0]} : i64
  tile.store %b, %v at(%l) {extent = [0]} loc(\"k.py\":5:5)
  tile.barrier loc(\"k.py\":6:5)
  %m = tile.sub %three, %l : i64
  %w = tile.load %b at(%m) {extent = [0]} : i64 loc(\"k.py\":7:9)
  tile.store %x, %w at(%i) {extent = [0]} loc(\"k.py\":8:5)";

#[test]
fn a_missing_barrier_before_a_read_is_found() {
    let text = lane(
        X,
        &REVERSE.replace("tile.barrier loc", "tile.store %b, %v at(%l) {extent = [0]} loc"),
    );
    let mut x = numbers(8);
    let slow_path = ("tile.store %b, %v at(%l) {extent = [0]} loc(\"k.py\":6:5)", "tile.barrier");
    let shown = broken(&text, "E_RACE 7 < 5", slow_path, || on(&mut x, 4));
    let wanted =
        "lane 0 of group 0 reads element [3] of `b`, which lane 3 has written with no barrier";
    assert!(shown.contains(wanted), "{shown}");
    assert!(shown.contains("written here by lane 3") && shown.contains("8 times"), "{shown}");
    assert!(shown.contains("call `ts.tile.barrier()` between the two"), "{shown}");
}

#[test]
fn shared_memory_that_surplus_lanes_did_not_write_is_found() {
    let text = lane(X, REVERSE);
    let mut x = numbers(6);
    let report = check(&text, &on(&mut x, 4));
    assert_eq!(places(&report), ["E_UNINIT 7"]);
    let shown = report.findings.render();
    assert!(shown.contains("lane 0 of group 1 reads it"), "{shown}");
    assert_eq!(x.values(), [3.0, 2.0, 1.0, 0.0, 0.0, 0.0]);
    assert!(check(&text, &on(&mut numbers(8), 4)).is_clean());
}

#[test]
fn neighbours_in_global_memory_need_a_barrier_and_one_group() {
    let text = lane(
        X,
        "%n = tile.dim {name = n} : i64
  %s = tile.add %i, %one : i64
  %next = tile.mod %s, %n : i64
  %v = tile.load %x at(%next) {extent = [0]} : i64 loc(\"k.py\":4:9)
  %no = tile.add %v, %v : i64
  tile.store %x, %v at(%i) {extent = [0]} loc(\"k.py\":5:5)",
    );
    let mut x = numbers(8);
    let slow_path = ("%no = tile.add %v, %v : i64", "tile.barrier");
    let shown = broken(&text, "E_RACE 5 < 4", slow_path, || on(&mut x, 8));
    assert!(shown.contains("which lane 7 has read"), "{shown}");
    // The barrier orders one group, and no other.
    let text = text.replace(slow_path.0, slow_path.1);
    let report = check(&text, &on(&mut numbers(8), 4));
    let shown = report.findings.render();
    assert_eq!(places(&report), ["E_RACE 4 < 5", "E_RACE 5 < 4"], "{shown}");
    assert!(
        shown.contains("group 1 reads element [0] of `x`, which group 0 has written"),
        "{shown}"
    );
}

/// Halves the number of lanes that add, with one barrier in each iteration.
const TREE: &str = "%b = tile.buf_alloc : buf<8xi64>
  %v = tile.load %x at(%i) {extent = [0]} : i64
  tile.store %b, %v at(%l) {extent = [0]} loc(\"k.py\":4:5)
  tile.barrier loc(\"k.py\":5:5)
  %four = tile.const {value = 4} : i64
  %h = tile.while init(%four) : i64 do (%h: i64) {
    %go = tile.gt %h, %zero : bool
    tile.yield %go
  } do (%h: i64) {
    %mine = tile.lt %l, %h : bool
    tile.if %mine do {
      %o = tile.add %l, %h : i64
      %a = tile.load %b at(%l) {extent = [0]} : i64 loc(\"k.py\":8:13)
      %c = tile.load %b at(%o) {extent = [0]} : i64 loc(\"k.py\":8:20)
      %s = tile.add %a, %c : i64
      tile.store %b, %s at(%l) {extent = [0]} loc(\"k.py\":9:9)
      tile.yield
    } do {
      tile.yield
    }
    tile.barrier loc(\"k.py\":10:9)
    %half = tile.floordiv %h, %two : i64
    tile.yield %half
  }
  %first = tile.eq %l, %zero : bool
  tile.if %first do {
    %t = tile.load %b at(%zero) {extent = [0]} : i64 loc(\"k.py\":13:9)
    tile.store %x, %t at(%i) {extent = [0]} loc(\"k.py\":14:9)
    tile.yield
  } do {
    tile.yield
  }";

#[test]
fn a_tree_needs_a_barrier_in_each_round() {
    let text = lane(X, TREE);
    let mut x = numbers(16);
    let without = text.replace("    tile.barrier loc(\"k.py\":10:9)\n", "    ;here\n");
    let slow_path = ("    ;here\n", "    tile.barrier\n");
    let shown = broken(&without, "E_RACE 8 < 9", slow_path, || on(&mut x, 8));
    assert!(shown.contains("k.py:8:20") && shown.contains("k.py:9:9"), "{shown}");
    let mut x = numbers(16);
    assert!(check(&text, &on(&mut x, 8)).is_clean());
    assert_eq!((x.values()[0], x.values()[8]), (28.0, 92.0));
}

#[test]
fn lanes_that_store_different_values_race_and_equal_ones_do_not() {
    let text = lane(X, "tile.store %x, %i at(%zero) {extent = [0]} loc(\"k.py\":3:5)");
    let mut x = numbers(4);
    let shown = broken(&text, "E_RACE 3 < 3", ("%x, %i at", "%x, %two at"), || on(&mut x, 4));
    assert!(shown.contains("lane 1 of group 0 writes element [0] of `x`, which lane 0"), "{shown}");
    assert!(shown.contains("written by one lane"), "{shown}");
    // The same between groups.
    let text = lane(
        X,
        "%p = tile.program_id {axis = 0} : i64
  tile.store %x, %p at(%zero) {extent = [0]} loc(\"k.py\":3:5)",
    );
    let mut x = numbers(8);
    broken(&text, "E_RACE 3 < 3", ("%x, %p at", "%x, %two at"), || on(&mut x, 4));
}

#[test]
fn lanes_of_two_groups_race_for_one_element() {
    let text = lane(
        X,
        "%h = tile.floordiv %i, %three : i64
  %g = tile.floordiv %i, %two : i64
  tile.store %x, %h at(%g) {extent = [0]} loc(\"k.py\":3:5)",
    );
    let mut x = numbers(8);
    broken(&text, "E_RACE 3 < 3", ("tile.store %x, %h", "tile.store %x, %g"), || on(&mut x, 4));
}

#[test]
fn folding_by_lanes_needs_a_reduction() {
    let text =
        lane(X, "tile.accumulate %x, %i at(%zero) {op = sum, extent = [0]} loc(\"k.py\":3:5)");
    let mut x = numbers(4);
    broken(&text, "E_RACE 3 < 3", ("read_write", "reduce_sum"), || on(&mut x, 4));
}

#[test]
fn a_lane_must_not_read_what_others_fold() {
    // In two steps: the second group reads, in a kernel that may, what the first has written.
    let text = lane(
        X,
        "%v = tile.load %x at(%zero) {extent = [0]} : i64 loc(\"k.py\":3:9)
  %w = tile.add %v, %one : i64
  tile.store %x, %w at(%i) {extent = [0]} loc(\"k.py\":4:5)",
    );
    let mut x = numbers(4);
    let slow_path = ("tile.load %x at(%zero)", "tile.load %x at(%i)");
    let shown = broken(&text, "E_RACE 4 < 3", slow_path, || on(&mut x, 4));
    assert!(shown.contains("which lane 1 has read"), "{shown}");
}

#[test]
fn indices_of_lanes_outside_are_found() {
    let text = lane(
        X,
        "%n = tile.dim {name = n} : i64
  %s = tile.add %i, %one : i64
  %in = tile.lt %s, %n : bool
  %yes = tile.le %i, %i : bool
  tile.if %yes do {
    tile.store %x, %i at(%s) {extent = [0]} loc(\"k.py\":4:9)
    tile.yield
  } do {
    tile.yield
  }",
    );
    let mut x = numbers(6);
    let shown = broken(&text, "E_OOB 4", ("tile.if %yes", "tile.if %in"), || on(&mut x, 4));
    assert!(shown.contains("lane 1 of group 1 writes `x` at [6]"), "{shown}");
    let text = text.replace(
        "tile.store %x, %i at(%s) {extent = [0]}",
        "%v = tile.load %x at(%s) {extent = [0]} : i64",
    );
    broken(&text, "E_OOB 4", ("tile.if %yes", "tile.if %in"), || on(&mut x, 4));
}

#[test]
fn a_negative_index_at_run_time_is_outside() {
    let text = lane(
        "%x: view<[n], i64, read>, %y: view<[n], i64, write>",
        "%s = tile.sub %i, %one : i64
  %v = tile.load %x at(%s) {extent = [0]} : i64 loc(\"k.py\":3:9)
  tile.store %y, %v at(%i) {extent = [0]}",
    );
    let (mut x, mut y) = (numbers(4), numbers(4));
    let mut launch = || lanes(vec![x.as_arg(), y.as_arg()], 4, 4);
    let slow_path = ("at(%s) {extent", "at(%s) other(%zero) {extent");
    let shown = broken(&text, "E_OOB 3", slow_path, &mut launch);
    assert!(shown.contains("index -1 is outside `x`"), "{shown}");
}

#[test]
fn barriers_that_some_lanes_miss_are_found() {
    let text = lane(
        X,
        "%c = tile.lt %l, %three : bool
  %all = tile.le %l, %l : bool
  tile.if %c do {
    tile.barrier loc(\"k.py\":4:9)
    tile.store %x, %i at(%i) {extent = [0]}
    tile.yield
  } do {
    tile.yield
  }",
    );
    let mut x = numbers(6);
    let shown =
        broken(&text, "E_DIVERGENT_BARRIER 4", ("tile.if %c", "tile.if %all"), || on(&mut x, 4));
    assert!(shown.contains("in group 0 lane 0 reaches it, lane 3 of group 0 does not"), "{shown}");
}

#[test]
fn barriers_in_loops_of_different_length_are_found() {
    let text = lane(
        X,
        "tile.for %zero, %l, %one do (%k: i64) {
    tile.barrier loc(\"k.py\":3:9)
    tile.yield
  }",
    );
    let mut x = numbers(4);
    broken(&text, "E_DIVERGENT_BARRIER 3", ("%zero, %l,", "%zero, %three,"), || on(&mut x, 4));
}
