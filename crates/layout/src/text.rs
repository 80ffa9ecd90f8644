//! Layouts as text: one line that reads back as itself. The shape is not part of it, because
//! everything with a layout has a shape already.
//!
//! A layout is `[reg 0,1 0,2; lane 0,4 0,8 1,0 2,0 4,0; warp 8,0; cta 16,0; repeat 2,4; order 0,1]`.
//! Parts that are empty, repeats of 1 and a row-major order are left out. Without dims a vector
//! has no numbers and is written as a point. Shared memory is
//! `[order 1,0; swizzle 4,3,3; pad 8; panel 64; blocks 2]`.

use std::fmt::{self, Display};

use crate::layout::{In, Layout, LayoutError};
use crate::shared::{Shared, Swizzle};

fn list<T: Display>(numbers: &[T]) -> String {
    if numbers.is_empty() {
        return ".".to_owned();
    }
    numbers.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

fn is_row_major(order: &[usize]) -> bool {
    order.iter().copied().eq((0..order.len()).rev())
}

impl Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for (name, input) in INPUTS {
            let bases: Vec<String> = self.bases(input).iter().map(|basis| list(basis)).collect();
            if !bases.is_empty() {
                parts.push(format!("{name} {}", bases.join(" ")));
            }
        }
        if self.repeat().iter().any(|&count| count > 1) {
            parts.push(format!("repeat {}", list(self.repeat())));
        }
        if !is_row_major(self.repeat_order()) {
            parts.push(format!("order {}", list(self.repeat_order())));
        }
        write!(f, "[{}]", parts.join("; "))
    }
}

const INPUTS: [(&str, In); 4] =
    [("reg", In::Reg), ("lane", In::Lane), ("warp", In::Warp), ("cta", In::Cta)];

impl Layout {
    /// Reads what `Display` writes, for a tile of `shape`.
    pub fn parse(text: &str, shape: &[u32]) -> Result<Layout, LayoutError> {
        let parts = parts(text, &["reg", "lane", "warp", "cta", "repeat", "order"])?;
        let vectors = |name: &str| -> Result<Vec<Vec<u32>>, LayoutError> {
            let part = parts.iter().find(|part| part.0 == name);
            part.map_or(Ok(Vec::new()), |part| part.1.iter().map(|text| numbers(text)).collect())
        };
        let [reg, lane, warp, cta] = ["reg", "lane", "warp", "cta"].map(vectors);
        let repeat = one(&parts, "repeat")?.unwrap_or_else(|| vec![1; shape.len()]);
        let layout = Layout::new(shape, reg?, lane?, warp?, cta?, repeat)?;
        match one(&parts, "order")? {
            Some(order) => layout.with_order(&dims(order)),
            None => Ok(layout),
        }
    }
}

impl Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[order {}", list(&self.order))?;
        if let Some(Swizzle { base, bits, shift }) = self.swizzle {
            write!(f, "; swizzle {base},{bits},{shift}")?;
        }
        if self.pad > 0 {
            write!(f, "; pad {}", self.pad)?;
        }
        if let Some(panel) = self.panel {
            write!(f, "; panel {panel}")?;
        }
        if self.blocks > 1 {
            write!(f, "; blocks {}", self.blocks)?;
        }
        write!(f, "]")
    }
}

impl Shared {
    /// Reads what `Display` writes, for a tile of `shape` with elements of `elem_bytes` bytes.
    pub fn parse(text: &str, shape: &[u32], elem_bytes: u32) -> Result<Shared, LayoutError> {
        let parts = parts(text, &["order", "swizzle", "pad", "panel", "blocks"])?;
        let wrong = |expected: &str| fault(expected, text);
        if !elem_bytes.is_power_of_two() {
            return Err(wrong("elements of a power of two of bytes"));
        }
        let order = one(&parts, "order")?.ok_or_else(|| wrong("an order of dims"))?;
        let order = dims(order);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..shape.len()) {
            return Err(LayoutError::Order { rank: shape.len() });
        }
        let mut shared = Shared::ordered(shape, &order, elem_bytes);
        shared.swizzle = match one(&parts, "swizzle")?.as_deref() {
            None => None,
            Some(&[base, bits, shift])
                if shift > 0
                    && base >= elem_bytes.ilog2()
                    && [base, bits, shift].iter().fold(0, |sum: u32, n| sum.saturating_add(*n))
                        < 31 =>
            {
                Some(Swizzle { base, bits, shift })
            }
            Some(_) => return Err(wrong("a swizzle of whole elements, a shift of at least 1")),
        };
        let single = |name: &str| match one(&parts, name)?.as_deref() {
            None => Ok(None),
            Some(&[number]) if number > 0 => Ok(Some(number)),
            Some(_) => Err(wrong(&format!("one positive number of `{name}`"))),
        };
        shared.pad = single("pad")?.unwrap_or(0);
        shared.panel = single("panel")?;
        match single("blocks")? {
            None => Ok(shared),
            Some(blocks) => shared
                .divided(blocks)
                .ok_or_else(|| wrong("a power of two of blocks that divide whole panels")),
        }
    }
}

fn fault(expected: &str, got: &str) -> LayoutError {
    LayoutError::Text { expected: expected.to_owned(), got: got.to_owned() }
}

type Part<'t> = (&'t str, Vec<&'t str>);

/// The parts between the brackets, each a name and its words. No name comes twice.
fn parts<'t>(text: &'t str, names: &[&str]) -> Result<Vec<Part<'t>>, LayoutError> {
    let inside = text.trim().strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let inside = inside.ok_or_else(|| fault("a layout in brackets", text))?;
    let mut parts: Vec<Part<'t>> = Vec::new();
    for part in inside.split(';') {
        let mut words = part.split_whitespace();
        let name = words.next().unwrap_or_default();
        if !names.contains(&name) {
            return Err(fault(&format!("one of {}", names.join(", ")), part.trim()));
        }
        if parts.iter().any(|part| part.0 == name) {
            return Err(fault(&format!("`{name}` once"), text));
        }
        parts.push((name, words.collect()));
    }
    Ok(parts)
}

/// The one list of a part, where the part is there.
fn one(parts: &[Part<'_>], name: &str) -> Result<Option<Vec<u32>>, LayoutError> {
    match parts.iter().find(|part| part.0 == name).map(|part| part.1.as_slice()) {
        None => Ok(None),
        Some([list]) => numbers(list).map(Some),
        Some(words) => Err(fault(&format!("one list after `{name}`"), &words.join(" "))),
    }
}

fn numbers(list: &str) -> Result<Vec<u32>, LayoutError> {
    if list == "." {
        return Ok(Vec::new());
    }
    let number = |text: &str| text.parse().map_err(|_| fault("a number", text));
    list.split(',').map(number).collect()
}

fn dims(numbers: Vec<u32>) -> Vec<usize> {
    numbers.into_iter().map(|number| number as usize).collect()
}
