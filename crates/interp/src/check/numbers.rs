//! Wrong numbers: integers that wrap or are divided by zero, and floats that are NaN or infinite.

use super::access::{Spot, Touched, contents, count, position};
use super::arith::{division, integer, overflow};
use super::checker::{Checker, is_active};
use super::origins::{Birth, PADDING, nan};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::program::{Action, Inst};
use crate::value::{Data, Tile};
use tessera_diag::{Code, Diagnostic};
use tessera_tile::KernelKind;

impl Checker {
    pub(super) fn arithmetic(
        &mut self,
        m: &Machine<'_>,
        inst: &Inst,
        operands: &[Tile],
        result: &Data,
    ) {
        let kind = self.plan.kind;
        let active = |i: usize| kind == KernelKind::Group || is_active(&m.mask, i);
        let marks = operands.get(1).and_then(|d| self.origins.of(d));
        if let Some(wrong) = division(&inst.action, operands, marks, active) {
            let place = self.element_of(inst, wrong.i);
            self.findings.report((Code::E_DIV_ZERO, inst.site, &inst.loc), wrong.count, || {
                Diagnostic::new(Code::E_DIV_ZERO, format!("{} divides by zero", wrong.what))
                    .note(format!("in {place}; the result is taken as 0"))
            });
        }
        if !inst.results.first().is_some_and(|&slot| self.plan.feeds[slot]) {
            return;
        }
        if let Some(wrong) = overflow(&inst.action, operands, result, active) {
            let place = self.element_of(inst, wrong.i);
            self.findings.report((Code::E_OVERFLOW, inst.site, &inst.loc), wrong.count, || {
                let left = result.at(wrong.i).map_or(0, integer);
                Diagnostic::new(
                    Code::E_OVERFLOW,
                    format!("{}, and the result is used as an index", wrong.what),
                )
                .note(format!("in {place}; it becomes {left}"))
                .help("compute the index in i64, or check the sizes before the launch")
            });
        }
    }

    /// Values from a buffer keep their marks; integers beyond the edge are padding.
    pub(super) fn loaded(
        &mut self,
        m: &Machine<'_>,
        inst: &Inst,
        slot: usize,
        touched: &Touched,
        result: &Tile,
    ) {
        if let Some(known) = self.origins.buffer(slot) {
            let mut marks = vec![0; result.len()];
            touched.spots.iter().for_each(|s| marks[s.i] = known[s.element]);
            return self.origins.put(result, marks);
        }
        let ints = m.memory(inst, 0).is_ok_and(|memory| memory.dtype.is_int());
        if ints
            && let Action::Load { .. } = inst.action
            && touched.spots.len() < touched.len
            && touched.len == result.len()
            && !self.by_lane()
        {
            let mut marks = vec![PADDING; result.len()];
            touched.spots.iter().for_each(|s| marks[s.i] = 0);
            self.origins.put(result, marks);
        }
    }

    pub(super) fn folded(
        &mut self,
        inst: &Inst,
        memory: &Memory,
        slot: usize,
        touched: &Touched,
        old: &Data,
        value: &Tile,
    ) {
        let new = contents(memory, &touched.spots);
        let finite = |d: &Data, i: usize| d.at(i).is_none_or(|x| x.as_f64().is_finite());
        let marks = self.origins.of(value).map(<[u64]>::to_vec);
        for (j, spot) in touched.spots.iter().enumerate() {
            if finite(&new, j) {
                continue;
            }
            let brought = marks.as_ref().and_then(|m| m.get(spot.i)).copied().unwrap_or(0);
            let number = new.at(j).map_or(f64::NAN, |x| x.as_f64());
            let chosen = number.is_nan() && !nan(old, j) && !nan(value, spot.i) && brought == 0;
            let birth = if chosen || finite(old, j) && finite(value, spot.i) {
                Some(Birth { site: inst.site, i: spot.i, value: number })
            } else if !finite(old, j) {
                None
            } else {
                Birth::of(brought)
            };
            match birth {
                Some(birth) if memory.is_buffer() => {
                    let mark = std::iter::once((spot.element, birth.mark()));
                    self.origins.write(slot, count(&memory.dims), mark);
                }
                Some(birth) => self.born(inst, birth, memory, slot, spot),
                None => {}
            }
        }
    }

    /// A NaN or an infinity reaches an argument.
    pub(super) fn born(
        &mut self,
        store: &Inst,
        birth: Birth,
        memory: &Memory,
        slot: usize,
        spot: &Spot,
    ) {
        let plan = self.plan.clone();
        let site = &plan.sites[birth.site];
        let (name, who) = (self.name(slot), self.who(self.number, Some(spot.i)));
        let operands = self.origins.operands(birth);
        self.findings.report((Code::E_NAN_INF, birth.site, &site.loc), 1, || {
            let numbers: Vec<String> = operands.iter().map(|x| format!("{x:?}")).collect();
            let of = match &numbers[..] {
                [] => "finite numbers".to_string(),
                [one] => one.clone(),
                [most @ .., last] => format!("{} and {last}", most.join(", ")),
            };
            let at = position(&memory.dims, spot.element);
            let value = if birth.value.is_nan() { "NaN".into() } else { birth.value.to_string() };
            let place = match site.result.map(|r| &plan.shapes[r]) {
                Some(shape) if !shape.is_empty() => {
                    format!(" in element {:?} of its result", position(shape, birth.i))
                }
                _ => String::new(),
            };
            Diagnostic::new(
                Code::E_NAN_INF,
                format!("`{}` makes {value} of {of}{place}", site.name),
            )
            .label(store.loc.clone(), format!("stored here into `{name}` at {at:?}"))
            .note(format!("in {who}"))
        });
    }
}
