//! Output of a kernel to the host: lines of text, and failed assertions.

use crate::fault::{Outcome, broken};
use crate::machine::Machine;
use crate::program::Inst;
use tessera_diag::{Code, Diagnostic};
use tessera_target::{show_tile, tell};
use tessera_tile::KernelKind;

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
                    let first = if lane { i } else { 0 };
                    let text = show_tile(shape, &|j| value.at(first + j));
                    line.push_str(&text.ok_or_else(odd)?);
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
