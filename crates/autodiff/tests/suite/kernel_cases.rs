//! Kernels of every class, as Tile IR after lifting and normalisation.

/// A kernel `@k` with the privileges of its parameters and their types in Graph IR; `Out` arguments
/// are zeros.
pub struct Case {
    pub name: &'static str,
    pub tile: &'static str,
}

pub const CASES: &[Case] = &[
    // K1, lanes, under a guard; one operand twice.
    Case {
        name: "lane_gate",
        tile: "func @k(%a: view<[7], f64, read>, %b: view<[7], f64, read>, %y: view<[7], f64, write>) {kind = lane, domain = 7} {
  %0 = tile.const {value = 7} : i64
  %i = tile.linear_id : i64
  %1 = tile.lt %i, %0 : bool
  tile.if %1 do {
    %2 = tile.load %a at(%i) {extent = [0]} : f64
    %3 = tile.sigmoid %2 : f64
    %4 = tile.mul %2, %3 : f64
    %5 = tile.load %b at(%i) {extent = [0]} : f64
    %6 = tile.mul %4, %5 : f64
    tile.store %y, %6 at(%i) {extent = [0]}
    tile.yield
  } do {
    tile.yield
  }
  tile.return
}",
    },
    // K1, lanes that read their neighbours, and a number that is a parameter.
    Case {
        name: "lane_stencil",
        tile: "func @k(%a: view<[9], f64, read>, %s: f64, %y: view<[9], f64, write>) {kind = lane, domain = 9} {
  %i = tile.linear_id : i64
  %one = tile.const {value = 1} : i64
  %l = tile.sub %i, %one : i64
  %r = tile.add %i, %one : i64
  %2 = tile.load %a at(%l) {extent = [0]} : f64
  %3 = tile.load %a at(%r) {extent = [0]} : f64
  %4 = tile.load %a at(%i) {extent = [0]} : f64
  %5 = tile.add %2, %3 : f64
  %6 = tile.mul %5, %4 : f64
  %7 = tile.mul %6, %s : f64
  tile.store %y, %7 at(%i) {extent = [0]}
  tile.return
}",
    },
    // K1, in place: `y = a * x + y * y`, ragged, with a mask and a branch with results.
    Case {
        name: "in_place",
        tile: "func @k(%x: view<[10], f64, read>, %y: view<[10], f64, read_write>) {kind = group, grid = [3]} {
  %p = tile.program_id {axis = 0} : i64
  %c = tile.const {value = 4} : i64
  %at = tile.mul %p, %c : i64
  %two = tile.const {value = 2} : i64
  %1 = tile.load %x at(%at) {extent = [4]} : tile<4xf64>
  %2 = tile.load %y at(%at) {extent = [4]} : tile<4xf64>
  %k = tile.lt %p, %two : bool
  %3 = tile.if %k : tile<4xf64> do {
    %a = tile.sin %1 : tile<4xf64>
    tile.yield %a
  } do {
    %b = tile.mul %1, %2 : tile<4xf64>
    tile.yield %b
  }
  %4 = tile.fma %2, %2, %3 : tile<4xf64>
  %i = tile.iota : tile<4xi32>
  %3i = tile.const {value = 3} : tile<4xi32>
  %m = tile.lt %i, %3i : tile<4xbool>
  tile.store %y, %4 at(%at) mask(%m) {extent = [4]}
  tile.return
}",
    },
    // K2: softmax of ragged rows.
    Case {
        name: "softmax",
        tile: "func @k(%x: view<[5, 6], f64, read>, %y: view<[5, 6], f64, write>) {kind = group, grid = [3]} {
  %p = tile.program_id {axis = 0} : i64
  %c = tile.const {value = 2} : i64
  %0 = tile.const {value = 0} : i64
  %at = tile.mul %p, %c : i64
  %t = tile.load %x at(%at, %0) {extent = [2, 6], bounds = [checked, inside]} : tile<2x6xf64>
  %m = tile.reduce %t {op = max, axis = 1} : tile<2xf64>
  %1 = tile.expand %m {axis = 1} : tile<2x1xf64>
  %2 = tile.broadcast %1 : tile<2x6xf64>
  %3 = tile.sub %t, %2 : tile<2x6xf64>
  %e = tile.exp %3 : tile<2x6xf64>
  %s = tile.reduce %e {op = sum, axis = 1} : tile<2xf64>
  %4 = tile.expand %s {axis = 1} : tile<2x1xf64>
  %5 = tile.broadcast %4 : tile<2x6xf64>
  %6 = tile.div %e, %5 : tile<2x6xf64>
  tile.store %y, %6 at(%at, %0) {extent = [2, 6], bounds = [checked, inside]}
  tile.return
}",
    },
    // K2: a norm with a scale that all groups share; outside the rows its root is not finite.
    Case {
        name: "norm",
        tile: "func @k(%x: view<[5, 6], f64, read>, %w: view<[6], f64, read>, %y: view<[5, 6], f64, write>, %r: view<[5], f64, write>) {kind = group, grid = [3]} {
  %p = tile.program_id {axis = 0} : i64
  %c = tile.const {value = 2} : i64
  %0 = tile.const {value = 0} : i64
  %at = tile.mul %p, %c : i64
  %t = tile.load %x at(%at, %0) {extent = [2, 6], bounds = [checked, inside]} : tile<2x6xf64>
  %q = tile.mul %t, %t : tile<2x6xf64>
  %s = tile.reduce %q {op = sum, axis = 1} : tile<2xf64>
  %v = tile.rsqrt %s : tile<2xf64>
  %1 = tile.expand %v {axis = 1} : tile<2x1xf64>
  %2 = tile.broadcast %1 : tile<2x6xf64>
  %3 = tile.mul %t, %2 : tile<2x6xf64>
  %4 = tile.load %w at(%0) {extent = [6], bounds = [inside]} : tile<6xf64>
  %5 = tile.expand %4 {axis = 0} : tile<1x6xf64>
  %6 = tile.broadcast %5 : tile<2x6xf64>
  %7 = tile.mul %3, %6 : tile<2x6xf64>
  tile.store %y, %7 at(%at, %0) {extent = [2, 6], bounds = [checked, inside]}
  tile.store %r, %v at(%at) {extent = [2], bounds = [checked]}
  tile.return
}",
    },
    // K2: running sums, a transpose, both kinds of scan, and a fold into a sum of all groups.
    Case {
        name: "scan",
        tile: "func @k(%x: view<[4, 6], f64, read>, %y: view<[6, 4], f64, write>, %z: view<[6], f64, reduce_sum>) {kind = group, grid = [2]} {
  %p = tile.program_id {axis = 0} : i64
  %c = tile.const {value = 2} : i64
  %0 = tile.const {value = 0} : i64
  %at = tile.mul %p, %c : i64
  %t = tile.load %x at(%at, %0) {extent = [2, 6], bounds = [inside, inside]} : tile<2x6xf64>
  %u = tile.sin %t : tile<2x6xf64>
  %a = tile.scan %u {op = sum, axis = 1} : tile<2x6xf64>
  %b = tile.scan %t {op = sum, axis = 1, exclusive = true} : tile<2x6xf64>
  %q = tile.mul %a, %b : tile<2x6xf64>
  %r = tile.transpose %q {perm = [1, 0]} : tile<6x2xf64>
  tile.store %y, %r at(%0, %at) {extent = [6, 2], bounds = [inside, inside]}
  %s = tile.reduce %q {op = sum, axis = 0} : tile<6xf64>
  tile.accumulate %z, %s at(%0) {op = sum, extent = [6]}
  tile.return
}",
    },
    // K3: a matmul with a bias and a non-linear epilogue, everything ragged.
    Case {
        name: "gemm",
        tile: "func @k(%a: view<[5, 7], f64, read>, %b: view<[7, 6], f64, read>, %w: view<[6], f64, read>, %c: view<[5, 6], f64, write>) {kind = group, grid = [2, 2]} {
  %pm = tile.program_id {axis = 0} : i64
  %pn = tile.program_id {axis = 1} : i64
  %0 = tile.const {value = 0} : i64
  %k1 = tile.const {value = 7} : i64
  %s = tile.const {value = 2} : i64
  %t = tile.const {value = 4} : i64
  %m0 = tile.mul %pm, %t : i64
  %n0 = tile.mul %pn, %t : i64
  %z = tile.const {value = 0.0} : tile<4x4xf64>
  %acc = tile.for %0, %k1, %s init(%z) : tile<4x4xf64> do (%k: i64, %c0: tile<4x4xf64>) {
    %1 = tile.load %a at(%m0, %k) {extent = [4, 2]} : tile<4x2xf64>
    %2 = tile.load %b at(%k, %n0) {extent = [2, 4]} : tile<2x4xf64>
    %c1 = tile.mma %1, %2, %c0 : tile<4x4xf64>
    tile.yield %c1
  }
  %3 = tile.load %w at(%n0) {extent = [4]} : tile<4xf64>
  %4 = tile.expand %3 {axis = 0} : tile<1x4xf64>
  %5 = tile.broadcast %4 : tile<4x4xf64>
  %6 = tile.add %acc, %5 : tile<4x4xf64>
  %7 = tile.tanh %6 : tile<4x4xf64>
  tile.store %c, %7 at(%m0, %n0) {extent = [4, 4]}
  tile.return
}",
    },
    // K3: the sum goes on from what was there, and the factors are made of more than one input.
    Case {
        name: "gemm_update",
        tile: "func @k(%a: view<[4, 6], f64, read>, %g: view<[6], f64, read>, %b: view<[6, 4], f64, read>, %c: view<[4, 4], f64, read_write>) {kind = group, grid = [2, 2]} {
  %pm = tile.program_id {axis = 0} : i64
  %pn = tile.program_id {axis = 1} : i64
  %0 = tile.const {value = 0} : i64
  %k1 = tile.const {value = 6} : i64
  %s = tile.const {value = 3} : i64
  %t = tile.const {value = 2} : i64
  %m0 = tile.mul %pm, %t : i64
  %n0 = tile.mul %pn, %t : i64
  %z = tile.load %c at(%m0, %n0) {extent = [2, 2]} : tile<2x2xf64>
  %acc = tile.for %0, %k1, %s init(%z) : tile<2x2xf64> do (%k: i64, %c0: tile<2x2xf64>) {
    %1 = tile.load %a at(%m0, %k) {extent = [2, 3]} : tile<2x3xf64>
    %e = tile.exp %1 : tile<2x3xf64>
    %2 = tile.load %g at(%k) {extent = [3]} : tile<3xf64>
    %3 = tile.expand %2 {axis = 0} : tile<1x3xf64>
    %4 = tile.broadcast %3 : tile<2x3xf64>
    %5 = tile.mul %e, %4 : tile<2x3xf64>
    %6 = tile.load %b at(%k, %n0) {extent = [3, 2]} : tile<3x2xf64>
    %zero = tile.const {value = 0.0} : tile<2x2xf64>
    %7 = tile.mma %5, %6, %zero : tile<2x2xf64>
    %c1 = tile.add %c0, %7 : tile<2x2xf64>
    tile.yield %c1
  }
  tile.store %c, %acc at(%m0, %n0) {extent = [2, 2]}
  tile.return
}",
    },
    // A loop that only carries a number, and writes a part each iteration; a nested sum in it.
    Case {
        name: "iterations",
        tile: "func @k(%x: view<[3, 8], f64, read>, %y: view<[3, 8], f64, write>) {kind = group, grid = [3]} {
  %p = tile.program_id {axis = 0} : i64
  %0 = tile.const {value = 0} : i64
  %end = tile.const {value = 8} : i64
  %s = tile.const {value = 4} : i64
  %one = tile.const {value = 1.0} : f64
  %half = tile.const {value = 0.5} : f64
  %f = tile.for %0, %end, %s init(%one) : f64 do (%j: i64, %c: f64) {
    %1 = tile.load %x at(%p, %j) {extent = [0, 4]} : tile<4xf64>
    %z = tile.const {value = 0.0} : tile<4xf64>
    %sum = tile.for %0, %end, %s init(%z) : tile<4xf64> do (%i: i64, %q: tile<4xf64>) {
      %2 = tile.load %x at(%p, %i) {extent = [0, 4]} : tile<4xf64>
      %3 = tile.mul %2, %1 : tile<4xf64>
      %4 = tile.add %q, %3 : tile<4xf64>
      tile.yield %4
    }
    %5 = tile.broadcast %c : tile<4xf64>
    %6 = tile.mul %sum, %5 : tile<4xf64>
    tile.store %y, %6 at(%p, %j) {extent = [0, 4]}
    %d = tile.mul %c, %half : f64
    tile.yield %d
  }
  tile.return
}",
    },
    // A reduction by a function of two tiles that does not commute, over an odd number of elements, and
    // a scan from the end with a branch and a number from outside.
    Case {
        name: "combined",
        tile: "func @k(%a: view<[3, 5], f64, read>, %b: view<[3, 5], f64, read>, %s: f64, %y: view<[3], f64, write>, %z: view<[3, 5], f64, write>) {kind = group, grid = [2]} {
  %p = tile.program_id {axis = 0} : i64
  %two = tile.const {value = 2} : i64
  %m = tile.mul %p, %two : i64
  %0 = tile.const {value = 0} : i64
  %1 = tile.load %a at(%m, %0) {extent = [2, 5]} : tile<2x5xf64>
  %2 = tile.load %b at(%m, %0) {extent = [2, 5]} : tile<2x5xf64>
  %p1, %q1 = tile.reduce_by x(%1, %2) {axis = 1} : tile<2xf64>, tile<2xf64> do (%e: f64, %f: f64, %g: f64, %h: f64) {
    %eg = tile.mul %e, %g : f64
    %gf = tile.mul %g, %f : f64
    %gfh = tile.add %gf, %h : f64
    tile.yield %eg, %gfh
  }
  %r = tile.add %p1, %q1 : tile<2xf64>
  tile.store %y, %r at(%m) {extent = [2]}
  %t = tile.scan_by x(%2) {axis = 1, reverse = true} : tile<2x5xf64> do (%e: f64, %f: f64) {
    %c = tile.lt %e, %f : bool
    %w = tile.if %c : f64 do {
      %u = tile.mul %e, %f : f64
      %u2 = tile.mul %u, %s : f64
      tile.yield %u2
    } do {
      %v = tile.mul %e, %f : f64
      %v2 = tile.mul %v, %s : f64
      tile.yield %v2
    }
    tile.yield %w
  }
  tile.store %z, %t at(%m, %0) {extent = [2, 5]}
  tile.return
}",
    },
    // Elements by position, with repeats and positions outside.
    Case {
        name: "taken",
        tile: "func @k(%x: view<[4, 3], f64, read>, %y: view<[6, 3], f64, write>) {kind = group, grid = [1]} {
  %0 = tile.const {value = 0} : i64
  %1 = tile.load %x at(%0, %0) {extent = [4, 3]} : tile<4x3xf64>
  %i = tile.iota : tile<6xi32>
  %two = tile.const {value = 2} : tile<6xi32>
  %one = tile.const {value = 1} : tile<6xi32>
  %h = tile.floordiv %i, %two : tile<6xi32>
  %j = tile.mul %h, %two : tile<6xi32>
  %k = tile.sub %j, %one : tile<6xi32>
  %c = tile.expand %k {axis = 1} : tile<6x1xi32>
  %ix = tile.broadcast %c : tile<6x3xi32>
  %s = tile.sin %1 : tile<4x3xf64>
  %t = tile.take %s, %ix {axis = 0} : tile<6x3xf64>
  tile.store %y, %t at(%0, %0) {extent = [6, 3]}
  tile.return
}",
    },
];
