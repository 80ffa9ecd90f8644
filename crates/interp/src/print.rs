//! What a kernel tells the host: lines of text, and assertions that fail.

use crate::fault::{Outcome, broken};
use crate::host::show;
use crate::machine::Machine;
use crate::program::Inst;
use crate::value::Data;
use std::sync::{PoisonError, RwLock};
use tessera_diag::{Code, Diagnostic};
use tessera_tile::KernelKind;

static PRINT: RwLock<Option<fn(&str)>> = RwLock::new(None);

/// Tiles with more elements are shown by their edges.
const MANY: usize = 1000;
/// How much of each edge is shown.
const EDGE: usize = 3;

/// Names the function that gets each printed line; without one they go to standard output. It is
/// called on the thread of the launch.
pub fn set_print(print: fn(&str)) {
    *PRINT.write().unwrap_or_else(PoisonError::into_inner) = Some(print);
}

fn tell(line: &str) {
    match *PRINT.read().unwrap_or_else(PoisonError::into_inner) {
        Some(print) => print(line),
        None => println!("{line}"),
    }
}

impl Machine<'_> {
    /// `k[1, 2]`: the kernel and the group's coordinates, without trailing axes of extent 1.
    fn here(&self) -> String {
        let last = self.grid.iter().rposition(|&g| g > 1).unwrap_or(0);
        let at: Vec<_> = self.group[..=last].iter().map(i64::to_string).collect();
        format!("{}[{}]", self.program.name, at.join(", "))
    }

    /// One line; in a lane kernel one for each lane that runs.
    pub(crate) fn print(
        &self,
        inst: &Inst,
        pieces: &[String],
        shapes: &[Vec<usize>],
    ) -> Outcome<()> {
        let values: Outcome<Vec<_>> = (0..shapes.len()).map(|i| self.value(inst, i)).collect();
        let values = values?;
        let lane = self.program.kind == KernelKind::Lane;
        for i in (0..self.width).filter(|&i| self.mask.lanes()[i]) {
            let mut line = self.here();
            if lane {
                line.push_str(&format!(" lane {i}"));
            }
            line.push_str(": ");
            for (n, piece) in pieces.iter().enumerate() {
                line.push_str(piece);
                if let (Some(value), Some(shape)) = (values.get(n), shapes.get(n)) {
                    let odd = || broken("a value of another shape", &inst.loc);
                    let many = shape.iter().product::<usize>() > MANY;
                    let first = if lane { i } else { 0 };
                    line.push_str(&shown(value, shape, first, many).ok_or_else(odd)?);
                }
            }
            tell(&line);
        }
        Ok(())
    }

    pub(crate) fn assert(&self, inst: &Inst, text: &str) -> Outcome<()> {
        let cond = self.value(inst, 0)?.bools();
        let cond = cond.ok_or_else(|| broken("a condition that is no bool", &inst.loc))?;
        let failed = cond.iter().zip(self.mask.lanes()).position(|(&c, &m)| m && !c);
        let Some(lane) = failed else { return Ok(()) };
        let place = match self.program.kind {
            KernelKind::Lane => format!("in {} lane {lane}", self.here()),
            KernelKind::Group => format!("in {}", self.here()),
        };
        let message = match text {
            "" => "expected the assertion to hold, got a condition that is false".to_string(),
            text => text.to_string(),
        };
        Err(Box::new(Diagnostic::new(Code::E_ASSERT, message).at(inst.loc.clone()).note(place)))
    }
}

/// Nested lists, as Python writes them.
fn shown(data: &Data, shape: &[usize], first: usize, many: bool) -> Option<String> {
    let Some((&len, inner)) = shape.split_first() else { return data.at(first).map(show) };
    let step: usize = inner.iter().product();
    let mut items = Vec::new();
    for i in 0..len {
        if many && len > 2 * EDGE && (EDGE..len - EDGE).contains(&i) {
            if i == EDGE {
                items.push("...".to_string());
            }
            continue;
        }
        items.push(shown(data, inner, first + i * step, many)?);
    }
    Some(format!("[{}]", items.join(", ")))
}
