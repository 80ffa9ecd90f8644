//! Text that is nearly right is refused or taken, and nothing panics: numbers are swapped for ones at
//! the ends of their range, words and lines for others of the same file.

use tessera_graph::Graph;
use tessera_ir::{parse_module, verify};

struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n.max(1)
    }
}

const NUMBERS: [&str; 9] =
    ["0", "1", "-1", "3", "64", "9223372036854775807", "-9223372036854775808", "n", "(n - 1)"];

/// Where numbers and words of a line begin and end.
fn tokens(line: &str) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    let mut start = None;
    for (i, c) in line.char_indices().chain([(line.len(), ' ')]) {
        let inside = c.is_ascii_alphanumeric() || c == '_' || c == '-';
        match (inside, start) {
            (true, None) => start = Some(i),
            (false, Some(s)) => {
                out.push((s, i));
                start = None;
            }
            _ => {}
        }
    }
    out
}

#[test]
fn mutated_text_never_panics() {
    let mut text = String::new();
    for name in ["roundtrip_ops.tir", "verify/ops.tir", "verify/control.tir"] {
        let path = format!("{}/../../filetests/graph/{name}", env!("CARGO_MANIFEST_DIR"));
        text.push_str(&std::fs::read_to_string(path).unwrap());
        text.push('\n');
    }
    let funcs: Vec<&str> =
        text.split_inclusive("\n}\n").filter_map(|f| f.find("func @").map(|at| &f[at..])).collect();
    assert!(funcs.len() > 12);
    let mut draw = Draw(7);
    let mut sound = 0;
    for _ in 0..6000 {
        let func = funcs[draw.below(funcs.len())];
        let mut lines: Vec<String> = func.lines().map(str::to_string).collect();
        for _ in 0..1 + draw.below(3) {
            let at = draw.below(lines.len());
            let places = tokens(&lines[at]);
            let Some(&(from, to)) = places.get(draw.below(places.len())) else { continue };
            let new = match draw.below(4) {
                0 | 1 => NUMBERS[draw.below(NUMBERS.len())].to_string(),
                2 => {
                    let &(f, t) = &places[draw.below(places.len())];
                    lines[at][f..t].to_string()
                }
                _ => String::new(),
            };
            lines[at].replace_range(from..to, &new);
        }
        let mutated = lines.join("\n") + "\n";
        if let Ok(module) = parse_module::<Graph>(&mutated, "mutated") {
            sound += module.funcs.iter().filter(|f| verify::<Graph>(f).is_ok()).count();
        }
    }
    assert!(sound > 0, "every mutation was refused: the test sees nothing");
}
