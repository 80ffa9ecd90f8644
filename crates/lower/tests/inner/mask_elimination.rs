//! Masks that hide nothing.

use tessera_lower::inner::always;
use tessera_numerics::ScalarFn;
use tessera_tile::TileOp;

/// Whether the mask of a loop over blocks, up to some end, hides nothing.
fn hides_nothing(block: i64, by: i64, end: &str) -> bool {
    let text = format!(
        "func @f(%x: view<[n], f32, read>, %y: view<[{block}], f32, write>, %i: i64) {{kind = group, grid = [1]}} {{
  %zero = tile.const {{value = 0}} : i64
  %block = tile.const {{value = {block}}} : i64
  %by = tile.const {{value = {by}}} : i64
  %n = tile.dim {{name = n}} : i64
  %least = tile.maximum %i, %zero : i64
  %q = tile.floordiv %{end}, %by : i64
  %whole = tile.mul %q, %by : i64
  %none = tile.const {{value = 0.0}} : tile<{block}xf32>
  %at = tile.iota {{start = 0}} : tile<{block}xi32>
  %r = tile.for %zero, %whole, %block init(%none) : tile<{block}xf32> do (%k: i64, %sum: tile<{block}xf32>) {{
    %t = tile.load %x at(%k) {{extent = [{block}]}} : tile<{block}xf32>
    %left = tile.sub %{end}, %k : i64
    %wide = tile.cast %at : tile<{block}xi64>
    %ends = tile.broadcast %left : tile<{block}xi64>
    %in = tile.lt %wide, %ends : tile<{block}xbool>
    %m = tile.select %in, %t, %none : tile<{block}xf32>
    %s = tile.add %sum, %m : tile<{block}xf32>
    tile.yield %s
  }}
  tile.store %y, %r at(%zero) {{extent = [{block}]}}
  tile.return
}}"
    );
    first_comparison_holds(&text)
}

fn first_comparison_holds(text: &str) -> bool {
    let func = tessera_tile::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut lt = func.walk().into_iter().filter(|&o| func.ops[o].code == TileOp::Ew(ScalarFn::Lt));
    always(&func, func.ops[lt.next().unwrap()].result())
}

/// Whether the mask of blocks that a table lists hides nothing, where `%at` is the start of
/// one.
fn listed_hides_nothing(iterations: &str, at: &str) -> bool {
    let text = format!(
        "func @f(%x: view<[n], f32, read>, %t: view<[m], i64, read>, %y: view<[64], f32, write>, %count: i64) {{kind = group, grid = [1]}} {{
  %zero = tile.const {{value = 0}} : i64
  %one = tile.const {{value = 1}} : i64
  %block = tile.const {{value = 64}} : i64
  %n = tile.dim {{name = n}} : i64
  %whole = tile.floordiv %n, %block : i64
  %end = tile.mul %whole, %block : i64
  %last = tile.sub %end, %block : i64
  %iterations = tile.minimum %count, %whole : i64
  %none = tile.const {{value = 0.0}} : tile<64xf32>
  %places = tile.iota {{start = 0}} : tile<64xi32>
  %r = tile.for %zero, %{iterations}, %one init(%none) : tile<64xf32> do (%i: i64, %sum: tile<64xf32>) {{
    %j = tile.load %t at(%i) {{extent = [0]}} : i64
    %k = tile.mul %j, %block : i64
    %below = tile.minimum %k, %last : i64
    %within = tile.maximum %below, %zero : i64
    %v = tile.load %x at(%{at}) {{extent = [64]}} : tile<64xf32>
    %left = tile.sub %n, %{at} : i64
    %wide = tile.cast %places : tile<64xi64>
    %ends = tile.broadcast %left : tile<64xi64>
    %in = tile.lt %wide, %ends : tile<64xbool>
    %m = tile.select %in, %v, %none : tile<64xf32>
    %s = tile.add %sum, %m : tile<64xf32>
    tile.yield %s
  }}
  tile.store %y, %r at(%zero) {{extent = [64]}}
  tile.return
}}"
    );
    first_comparison_holds(&text)
}

#[test]
fn whole_blocks_that_a_table_names() {
    assert!(listed_hides_nothing("iterations", "within"));
    assert!(listed_hides_nothing("count", "below"));
    // Without a whole block the first one is not whole.
    assert!(!listed_hides_nothing("count", "within"));
    assert!(!listed_hides_nothing("iterations", "k"));
}

#[test]
fn whole_blocks_of_any_size() {
    for (block, by) in [(128, 128), (96, 96), (96, 192), (48, 96)] {
        assert!(hides_nothing(block, by, "n"), "{block} of {by}");
        assert!(hides_nothing(block, by, "least"), "{block} of {by}");
    }
    // A number that may be negative may wrap, but not at powers of two; other steps do not hit
    // the end.
    assert!(hides_nothing(128, 128, "i"));
    assert!(!hides_nothing(96, 96, "i"));
    assert!(!hides_nothing(96, 128, "n"));
}
