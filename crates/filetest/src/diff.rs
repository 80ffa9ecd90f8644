//! A small line diff for failures.

/// The lines that differ, with two lines around them: `-` is the file, `+` is what came out.
pub fn diff(old: &str, new: &str) -> String {
    let (a, b): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let mut rows = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            rows.push((' ', a[i]));
            (i, j) = (i + 1, j + 1);
            continue;
        }
        // The nearest place where both go on alike; the files are small.
        let (di, dj) = resync(&a[i..], &b[j..]);
        rows.extend(a[i..i + di].iter().map(|l| ('-', *l)));
        rows.extend(b[j..j + dj].iter().map(|l| ('+', *l)));
        (i, j) = (i + di, j + dj);
    }
    let near =
        |at: usize| rows[at.saturating_sub(2)..(at + 3).min(rows.len())].iter().any(|r| r.0 != ' ');
    let shown = (0..rows.len()).filter(|&at| near(at));
    shown.map(|at| format!("{} {}\n", rows[at].0, rows[at].1)).collect()
}

fn resync(a: &[&str], b: &[&str]) -> (usize, usize) {
    for total in 1..a.len() + b.len() {
        for di in 0..=total.min(a.len()) {
            let dj = total - di;
            if dj <= b.len() && di < a.len() && dj < b.len() && a[di] == b[dj] {
                return (di, dj);
            }
        }
    }
    (a.len(), b.len())
}

#[cfg(test)]
mod tests {
    #[test]
    fn diff_shows_the_changed_lines_and_their_neighbours() {
        let d = super::diff("a\nb\nc\nd\ne\nf\n", "a\nb\nc\nX\ne\nf\n");
        assert_eq!(d, "  b\n  c\n- d\n+ X\n  e\n  f\n");
        assert_eq!(super::diff("a\n", "a\nb\n"), "  a\n+ b\n");
    }
}
