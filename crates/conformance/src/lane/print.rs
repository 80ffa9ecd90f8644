//! What lanes print, line by line in the interpreter's order.

use crate::Case;
use crate::harness::*;
use std::cell::RefCell;
use tessera_numerics::DType;

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn keep(line: &str) {
    LINES.with_borrow_mut(|lines| lines.push(line.to_string()));
}

/// Lines before and behind branches, in loops that lanes leave one by one, and of one value for all.
const REPORTED: &str = "
func @reported(%x: view<[n], f32, read>, %y: view<[n], f32, write>, %k: i64) {kind = lane} {
  %i = tile.linear_id : i64
  %0 = tile.const {value = 0} : i64
  %1 = tile.const {value = 1} : i64
  %3 = tile.const {value = 3} : i64
  %v = tile.load %x at(%i) {extent = [0]} : f32
  tile.print %i, %v, %k {text = \"{}: {} of {}\"}
  %zero = tile.const {value = 0.0} : f32
  %c = tile.gt %v, %zero : bool
  %r = tile.if %c : f32 do {
    tile.print {text = \"above\"}
    %a = tile.add %v, %v : f32
    tile.print %a, %c {text = \"{{{}}} {}\"}
    tile.yield %a
  } do {
    %d = tile.lt %i, %3 : bool
    %e = tile.if %d : f32 do {
      tile.print %v {text = \"early {}\"}
      tile.yield %v
    } do {
      tile.yield %zero
    }
    tile.yield %e
  }
  %m = tile.mod %i, %3 : i64
  %s = tile.for %0, %m, %1 init(%r) : f32 do (%j: i64, %p: f32) {
    %q = tile.add %p, %v : f32
    tile.print %j, %q {text = \"round {}: {}\"}
    tile.yield %q
  }
  %w, %u = tile.while init(%m, %s) : i64, f32 do (%f: i64, %g: f32) {
    %h = tile.lt %f, %k : bool
    tile.print %f, %h {text = \"{} {}\"}
    tile.yield %h
  } do (%f2: i64, %g2: f32) {
    %f3 = tile.add %f2, %1 : i64
    %g3 = tile.sub %g2, %v : f32
    tile.print %g3 {text = \"left {}\"}
    tile.yield %f3, %g3
  }
  tile.store %y, %u at(%i) {extent = [0]}
  tile.return
}";

pub fn lines_come_in_the_order_of_the_ops_and_then_of_the_lanes(case: &Case) {
    tessera_target::set_print(keep);
    let kernel = case.kernel(REPORTED);
    for (n, lanes, k) in [(1, 4, 3i64), (40, 17, 2), (16, 16, 0), (35, 64, 4)] {
        let [x, y] = arrays(&[n], DType::F32, Layout::Rows);
        let args = [x, y, scalar(k)];
        LINES.take();
        kernel.reference(&args, n, lanes).unwrap();
        let wanted = LINES.take();
        assert!(!wanted.is_empty());
        for variant in kernel.variants(lanes).iter() {
            let printed = kernel.got(variant, &args, n, lanes).is_some();
            assert!(!printed || LINES.take() == wanted, "{}", variant.name);
        }
        LINES.take();
        kernel.check(&args, n, lanes);
    }
}
