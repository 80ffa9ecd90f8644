//! Gathers of runs.

use tessera_ir::Rewriter;
use tessera_lower::inner::gathered;

/// The text of a gather's rewriting, with positions computed by `body` and memory of these
/// dims.
fn rewritten(dims: &str, body: &str, at: &str, shape: &str) -> String {
    let text = format!(
        "func @f(%x: view<[{dims}], f32, read>, %y: view<[m, n], f32, write>) {{kind = group, grid = [1, 1, 1]}} {{
  %zero = tile.const {{value = 0}} : i64
  %b = tile.program_id {{axis = 0}} : i64
{body}
  %g = tile.gather %x at({at}) : tile<{shape}xf32>
  tile.store %y, %g at(%zero, %zero) {{extent = [{}]}}
  tile.return
}}",
        shape.replace('x', ", ")
    );
    let old = tessera_tile::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    let mut rw = Rewriter::new(&old);
    let body = rw.new.body;
    for &id in &old.blocks[old.body].ops {
        if !gathered(&mut rw, id, body) {
            rw.copy_op_with(id, body, &mut |rw, inner, block| {
                rw.copy_op_with(inner, block, &mut |_, _, _| {});
            });
        }
    }
    rw.new.to_string()
}

const COLUMNS: &str = "  %i = tile.iota {start = 0} : tile<8xi32>
  %e = tile.expand %i {axis = 0} : tile<1x8xi32>
  %w = tile.cast %e : tile<1x8xi64>
  %s = tile.broadcast %b : tile<1x8xi64>
  %c = tile.add %s, %w : tile<1x8xi64>";

#[test]
fn a_run_of_positions_is_a_block() {
    let text = rewritten("n", COLUMNS, "%c", "1x8");
    assert!(text.contains("tile.load %x at(%b) {extent = [8], bounds = [checked]}"), "{text}");
    assert!(text.contains("tile.expand") && !text.contains("gather"), "{text}");
}

#[test]
fn rows_and_columns_are_a_block_of_a_matrix() {
    let body = format!(
        "{COLUMNS}
  %j = tile.iota {{start = 2}} : tile<4xi64>
  %f = tile.expand %j {{axis = 1}} : tile<4x1xi64>
  %r = tile.broadcast %f : tile<4x8xi64>
  %d = tile.broadcast %c : tile<4x8xi64>"
    );
    let text = rewritten(
        "k, m, n",
        &format!("{body}\n  %h = tile.broadcast %b : tile<4x8xi64>"),
        "%h, %r, %d",
        "4x8",
    );
    assert!(
        text.contains("{extent = [0, 4, 8], bounds = [checked, checked, checked]} : tile<4x8xf32>"),
        "{text}"
    );
    // Transposed: columns of the tile are rows of memory.
    let text = rewritten("m, n", &body, "%d, %r", "4x8");
    assert!(text.contains("tile.gather"), "{text}");
    // The diagonal.
    let text = rewritten("m, n", &body, "%d, %d", "4x8");
    assert!(text.contains("tile.gather"), "{text}");
}

#[test]
fn what_is_no_run_stays() {
    for last in ["  %c = tile.mul %s, %w : tile<1x8xi64>", "  %c = tile.add %w, %w : tile<1x8xi64>"]
    {
        let body = COLUMNS.replace("  %c = tile.add %s, %w : tile<1x8xi64>", last);
        let text = rewritten("n", &body, "%c", "1x8");
        assert!(text.contains("tile.gather"), "{text}");
    }
}
