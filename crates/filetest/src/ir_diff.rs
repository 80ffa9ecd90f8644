//! What a pass changed: two texts of IR, line by line. Values without a name are numbered in the
//! order of the text, so one op more renumbers all that follow; lines that differ by a renaming of
//! values alone, the same renaming throughout, are the same lines.

use std::collections::{BTreeMap, BTreeSet};

/// Lines around a change.
const CONTEXT: usize = 2;

/// The changed lines, `-` before and `+` after, with two lines around them. A line `@@` begins each
/// part and names the ops around it. Texts that are the same give `unchanged`.
pub fn ir_diff(before: &str, after: &str) -> String {
    let (a, b): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let rows = aligned(&a, &b);
    let changed: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].0 != ' ').collect();
    let shown: BTreeSet<usize> = changed
        .iter()
        .flat_map(|&i| i.saturating_sub(CONTEXT)..(i + CONTEXT + 1).min(rows.len()))
        .collect();
    let mut out = String::new();
    for &i in &shown {
        if i == 0 || !shown.contains(&(i - 1)) {
            let first = changed.iter().find(|&&c| c >= i).copied().unwrap_or(i);
            out += format!("@@ {}", path(&rows, first)).trim_end();
            out.push('\n');
        }
        out += format!("{} {}", rows[i].0, rows[i].1).trim_end();
        out.push('\n');
    }
    if out.is_empty() { "unchanged\n".to_string() } else { out }
}

/// Every line of both texts in order: kept, removed or added. The text of a kept line is the new one.
fn aligned<'t>(a: &[&'t str], b: &[&'t str]) -> Vec<(char, &'t str)> {
    let (ka, kb): (Vec<_>, Vec<_>) =
        (a.iter().map(|l| key(l)).collect(), b.iter().map(|l| key(l)).collect());
    // The longest common subsequence of the texts from each pair of lines on.
    let mut best = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            best[i][j] = if ka[i] == kb[j] {
                best[i + 1][j + 1] + 1
            } else {
                best[i + 1][j].max(best[i][j + 1])
            };
        }
    }
    let (mut rows, mut i, mut j) = (Vec::new(), 0, 0);
    let mut renamed = Renamed::default();
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && ka[i] == kb[j] {
            if renamed.agree(a[i], b[j]) {
                rows.push((' ', b[j]));
            } else {
                rows.extend([('-', a[i]), ('+', b[j])]);
            }
            (i, j) = (i + 1, j + 1);
        } else if j == b.len() || (i < a.len() && best[i + 1][j] >= best[i][j + 1]) {
            rows.push(('-', a[i]));
            i += 1;
        } else {
            rows.push(('+', b[j]));
            j += 1;
        }
    }
    rows
}

/// The names of values in a line, `%acc.1` as its text, with their places.
fn values(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices('%').map(|(at, _)| {
        let rest = &line[at + 1..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '.');
        &rest[..end.unwrap_or(rest.len())]
    })
}

/// A line with numbers of values left out.
fn key(line: &str) -> String {
    let mut out = line.to_string();
    for name in values(line) {
        let base = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_number = base.is_empty() || base.ends_with('.');
        if is_number && base.len() < name.len() {
            out = out.replacen(&format!("%{name}"), &format!("%{base}#"), 1);
        }
    }
    out
}

/// Which value of the new text stands for which of the old.
#[derive(Default)]
struct Renamed<'t> {
    to: BTreeMap<&'t str, &'t str>,
    from: BTreeMap<&'t str, &'t str>,
}

impl<'t> Renamed<'t> {
    /// Whether two lines of one key name the same values. A value is paired where it is defined, or,
    /// where its definition changed, at its first use.
    fn agree(&mut self, old: &'t str, new: &'t str) -> bool {
        let pairs: Vec<_> = values(old).zip(values(new)).collect();
        let same = |(a, b): &(&str, &str)| match (self.to.get(a), self.from.get(b)) {
            (None, None) => true,
            (to, from) => to == Some(b) && from == Some(a),
        };
        if !pairs.iter().all(same) {
            return false;
        }
        for (a, b) in pairs {
            self.to.insert(a, b);
            self.from.insert(b, a);
        }
        true
    }
}

/// The ops around a line, outermost first.
fn path(rows: &[(char, &str)], at: usize) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let (mut left, mut names) = (indent(rows[at].1), Vec::new());
    for (mark, line) in rows[..at].iter().rev() {
        if *mark != '-' && !line.trim().is_empty() && indent(line) < left {
            left = indent(line);
            let is_op = |w: &&str| ["tile.", "staged.", "graph."].iter().any(|l| w.starts_with(l));
            names.extend(line.split_whitespace().find(is_op));
        }
    }
    names.reverse();
    names.join(" > ")
}

#[cfg(test)]
mod tests {
    use super::ir_diff;

    const BEFORE: &str = "func @f() {
  %0 = tile.a : f32
  %1 = tile.for %0 do (%i: i64) {
    %2 = tile.b %0 : f32
    %3 = tile.c %2, %0 : f32
    tile.yield %3
  }
  tile.return %1
}
";

    #[test]
    fn an_op_more_is_one_line_though_it_renumbers_the_rest() {
        let after = "func @f() {
  %0 = tile.a : f32
  %1 = tile.for %0 do (%i: i64) {
    %2 = tile.new : f32
    %3 = tile.b %0 : f32
    %4 = tile.c %3, %0 : f32
    tile.yield %4
  }
  tile.return %1
}
";
        let wanted = "@@ tile.for
    %0 = tile.a : f32
    %1 = tile.for %0 do (%i: i64) {
+     %2 = tile.new : f32
      %3 = tile.b %0 : f32
      %4 = tile.c %3, %0 : f32
";
        assert_eq!(ir_diff(BEFORE, after), wanted);
    }

    #[test]
    fn another_operand_is_a_change() {
        let after = BEFORE.replace("tile.c %2, %0", "tile.c %0, %2");
        let wanted = "@@ tile.for
    %1 = tile.for %0 do (%i: i64) {
      %2 = tile.b %0 : f32
-     %3 = tile.c %2, %0 : f32
+     %3 = tile.c %0, %2 : f32
      tile.yield %3
    }
";
        assert_eq!(ir_diff(BEFORE, &after), wanted);
    }

    #[test]
    fn a_replaced_definition_does_not_change_its_uses() {
        let after = BEFORE.replace("%2 = tile.b %0 : f32", "%2 = tile.d %0 : f32");
        let changed = ir_diff(BEFORE, &after);
        assert_eq!(changed.lines().filter(|l| l.starts_with(['-', '+'])).count(), 2, "{changed}");
        assert_eq!(ir_diff(BEFORE, BEFORE), "unchanged\n");
    }
}
