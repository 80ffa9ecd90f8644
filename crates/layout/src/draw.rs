//! Layouts as pictures: a grid of the tile with the holder of each element.

use crate::layout::{LANES, Layout};
use crate::shared::Shared;

/// Cells drawn along each dim; the rest is cut off.
const MOST_ROWS: u32 = 32;
const MOST_COLS: u32 = 16;

/// Draws a layout: `T<thread>:<register>` in each cell, the thread counted over the warps of a cta,
/// with `C<cta>.` before it where there are several. Of copies the owner's is shown, with a `*`. Of
/// more than two dims the last two are drawn, at position 0 of the others.
pub fn draw(layout: &Layout) -> String {
    let copies = layout.holds(&vec![0; layout.rank()]).len() > 1;
    grid(layout.shape(), |coords| {
        let Some(place) = layout.owner(coords) else { return String::new() };
        let cta = if layout.ctas() > 1 { format!("C{}.", place.cta) } else { String::new() };
        let copied = if copies { "*" } else { "" };
        format!("{cta}T{}:{}{copied}", place.warp * LANES + place.lane, place.reg)
    })
}

/// Draws shared memory: the bank of each element, and after the `+` the index of its 128 bytes.
pub fn draw_shared(shared: &Shared) -> String {
    grid(&shared.shape, |coords| {
        let offset = shared.offset(coords);
        format!("{}+{}", offset / 4 % 32, offset / 128)
    })
}

fn grid(shape: &[u32], cell: impl Fn(&[u32]) -> String) -> String {
    let padded: Vec<u32> = [1, 1].iter().chain(shape).copied().collect();
    let [rows, cols] = padded[padded.len() - 2..] else { unreachable!("two were added") };
    let mut table: Vec<Vec<String>> = Vec::new();
    for row in 0..rows.min(MOST_ROWS) {
        let mut line: Vec<String> = (0..cols.min(MOST_COLS))
            .map(|col| {
                let mut coords = vec![0; padded.len()];
                let last = coords.len() - 1;
                (coords[last - 1], coords[last]) = (row, col);
                cell(&coords[2..])
            })
            .collect();
        if cols > MOST_COLS {
            line.push("…".to_owned());
        }
        table.push(line);
    }
    let width = table.iter().flatten().map(|cell| cell.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for line in table {
        let cells: Vec<String> = line.iter().map(|cell| format!("{cell:width$}")).collect();
        text += cells.join(" ").trim_end();
        text.push('\n');
    }
    if rows > MOST_ROWS {
        text += "…\n";
    }
    text
}
