//! Stores that cover an array.

use tessera_ir::DimExpr;
use tessera_lower::{Launched, covers};

/// Whether the one store of a kernel covers an array of these extents, with these sizes.
fn holds(header: &str, body: &str, dims: &[i64], grid: [i64; 3], domain: i64) -> bool {
    let text = format!("func @k(%y: view<{header}}} {{\n{body}\n  tile.return\n}}");
    let func = tessera_tile::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let sizes = [("M", dims[0]), ("N", *dims.last().unwrap())];
    let bind = |name: &str| sizes.iter().find(|s| s.0 == name).map(|s| s.1);
    let eval = |e: &DimExpr| e.eval(&bind).ok();
    let launch = Launched { grid, domain: [domain, 6, 1], eval: &eval };
    covers(&func).iter().any(|c| c.holds(dims, &launch))
}

const GROUP: &str = "[M, N], f32, write>, %v: tile<16x32xf32>, %s: f32) {kind = group";
const IDS: &str = "
  %p = tile.program_id {axis = 0} : i64
  %q = tile.program_id {axis = 1} : i64
  %0 = tile.const {value = 0} : i64
  %1 = tile.const {value = 1} : i64
  %16 = tile.const {value = 16} : i64
  %32 = tile.const {value = 32} : i64
  %M = tile.dim {name = M} : i64
  %N = tile.dim {name = N} : i64
  %m = tile.mul %p, %16 : i64
  %n = tile.mul %q, %32 : i64
";

fn group(body: &str, dims: &[i64], grid: [i64; 3]) -> bool {
    holds(GROUP, &format!("{IDS}{body}"), dims, grid, 0)
}

#[test]
fn adjacent_blocks_cover_what_the_grid_reaches() {
    let body = "  tile.store %y, %v at(%m, %n) {extent = [16, 32]}";
    assert!(group(body, &[40, 64], [3, 2, 1]));
    assert!(!group(body, &[40, 65], [3, 2, 1]));
    assert!(!group(body, &[40, 64], [2, 2, 1]));
    assert!(!group(&body.replace("%m, %n", "%m, %0"), &[40, 64], [3, 2, 1]));
    assert!(!group(&body.replace("%m, %n", "%p, %n"), &[40, 64], [3, 2, 1]));
    assert!(!group(&body.replace("%m, %n", "%n, %n"), &[40, 64], [9, 9, 1]));
    // A gap between blocks.
    let gap = "  %g = tile.mul %p, %32 : i64\n  tile.store %y, %v at(%g, %n) {extent = [16, 32]}";
    assert!(!group(gap, &[40, 64], [3, 2, 1]));
}

#[test]
fn loops_cover_what_they_run_through() {
    let body = "  tile.for %0, %N, %32 do (%k: i64) {
    tile.store %y, %v at(%m, %k) {extent = [16, 32]}
    tile.yield
  }";
    assert!(group(body, &[40, 70], [3, 1, 1]));
    assert!(!group(&body.replace("%0, %N", "%1, %N"), &[40, 70], [3, 1, 1]));
    assert!(!group(&body.replace("%0, %N", "%0, %32"), &[40, 70], [3, 1, 1]));
    let rows = "  tile.for %0, %16, %1 do (%k: i64) {
    tile.for %0, %N, %1 do (%j: i64) {
      %r = tile.add %m, %k : i64
      tile.store %y, %s at(%r, %j) {extent = [0, 0]}
      tile.yield
    }
    tile.yield
  }";
    assert!(group(rows, &[40, 70], [3, 1, 1]));
    assert!(!group(&rows.replace("%0, %16, %1", "%0, %1, %1"), &[40, 70], [3, 1, 1]));
    assert!(!group(&rows.replace("%r, %j", "%r, %k"), &[40, 16], [3, 1, 1]));
}

#[test]
fn a_condition_or_a_while_loop_may_pass_over_it() {
    let body = "  %c = tile.lt %p, %N : bool
  tile.if %c do {
    tile.store %y, %v at(%m, %n) {extent = [16, 32]}
    tile.yield
  } do {
    tile.yield
  }";
    assert!(!group(body, &[16, 32], [1, 1, 1]));
}

#[test]
fn the_parts_of_one_number_are_two_positions() {
    let body = "  %a = tile.floordiv %p, %N : i64
  %b = tile.mod %p, %N : i64
  tile.store %y, %s at(%a, %b) {extent = [0, 0]}";
    assert!(group(body, &[5, 7], [35, 1, 1]));
    assert!(!group(body, &[5, 7], [34, 1, 1]));
    let twice = body.replace("%a, %b", "%b, %b");
    assert!(!group(&twice, &[7, 7], [49, 1, 1]));
    let other = body.replace("tile.mod %p, %N", "tile.mod %p, %16");
    assert!(!group(&other, &[5, 7], [35, 1, 1]));
}

#[test]
fn lanes_below_their_guards() {
    let lane = |body: &str, n: i64, domain: i64| {
        let body =
            format!("  %i = tile.linear_id : i64\n  %N = tile.dim {{name = N}} : i64\n{body}");
        holds("[N], f32, write>, %v: f32) {kind = lane", &body, &[n], [1; 3], domain)
    };
    let plain = "  tile.store %y, %v at(%i) {extent = [0]}";
    assert!(lane(plain, 100, 100) && !lane(plain, 100, 99));
    let guarded = format!(
        "  %c = tile.ge %i, %N : bool\n  tile.if %c do {{\n    tile.yield\n  }} do {{\n{plain}\n    tile.yield\n  }}"
    );
    assert!(lane(&guarded, 100, 128));
    assert!(!lane(&guarded.replace("tile.ge %i, %N", "tile.lt %i, %N"), 100, 128));
    let group = plain.replace("at(%i)", "at(%g)");
    let group = format!("  %g = tile.program_id {{axis = 0}} : i64\n{group}");
    assert!(!lane(&group, 100, 100));
    let two = plain.replace("at(%i)", "at(%j)");
    let doubled = format!("  %j = tile.add %i, %i : i64\n{two}");
    assert!(!lane(&doubled, 100, 100));
}

#[test]
fn index_tiles_with_a_mask_of_the_bounds() {
    let body = |bound: &str| {
        format!(
            "  %p = tile.program_id {{axis = 0}} : i64
  %16 = tile.const {{value = 16}} : i64
  %8 = tile.const {{value = 8}} : i64
  %N = tile.dim {{name = N}} : i64
  %m = tile.mul %p, %16 : i64
  %mb = tile.broadcast %m : tile<16xi64>
  %i = tile.iota {{start = 0}} : tile<16xi32>
  %j = tile.cast %i : tile<16xi64>
  %at = tile.add %mb, %j : tile<16xi64>
  %b = tile.broadcast {bound} : tile<16xi64>
  %c = tile.lt %at, %b : tile<16xbool>
  tile.scatter %y, %v at(%at) mask(%c)"
        )
    };
    let header = "[N], f32, write>, %v: tile<16xf32>) {kind = group";
    assert!(holds(header, &body("%N"), &[100], [7, 1, 1], 0));
    assert!(!holds(header, &body("%N"), &[100], [6, 1, 1], 0));
    assert!(!holds(header, &body("%8"), &[100], [7, 1, 1], 0));
}

#[test]
fn lanes_of_two_axes() {
    let lanes = |at: &str, dims: &[i64]| {
        let body = format!(
            "  %i = tile.linear_id {{axis = 0}} : i64\n  %j = tile.linear_id {{axis = 1}} : i64\n  tile.store %y, %v at({at}) {{extent = [0, 0]}}"
        );
        holds("[M, N], f32, write>, %v: f32) {kind = lane, lanes = [4, 4]", &body, dims, [1; 3], 5)
    };
    assert!(lanes("%i, %j", &[5, 6]) && lanes("%j, %i", &[6, 5]));
    assert!(!lanes("%i, %j", &[6, 5]) && !lanes("%i, %j", &[5, 7]));
    assert!(!lanes("%i, %i", &[5, 5]));
}
