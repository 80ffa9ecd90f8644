//! Where a NaN or an infinity comes from.
//!
//! The rule: an infinity is *born* where an op makes it from operands that are all finite, and a
//! NaN where an op makes it from operands without a NaN (`inf - inf`, as in the softmax of a row
//! that is masked completely). It is a finding when it, or a value computed from it, is stored into
//! an argument. So padding beyond an edge, masked elements, and infinities that end as a zero are
//! no findings, and neither are constants, inputs, and infinities made from infinities.
//!
//! A value with such elements has a mark for each of them. The marks are kept by the address of the
//! value with a weak reference, so they disappear when the value is overwritten. Integers that were
//! read outside their array are marked the same way.

use crate::program::Action;
use crate::shape::rearrange;
use crate::value::{Data, Tile};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// What is known about an element: 0 is nothing.
pub type Mark = u64;

/// Read outside an array, or computed from such.
pub const PADDING: Mark = 1;

/// Made from finite operands by the current op.
const BORN: Mark = 2;

/// Births with recorded operands, in one group.
const REMEMBERED: usize = 1024;

#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Birth {
    pub site: usize,
    /// The element of the op's result, or the lane.
    pub i: usize,
    pub value: f64,
}

impl Birth {
    pub fn mark(self) -> Mark {
        let kind = if self.value.is_nan() { 0 } else { 1 + (self.value < 0.0) as u64 };
        (self.site as u64 + 1) << 34 | kind << 32 | self.i as u32 as u64
    }

    pub fn of(mark: Mark) -> Option<Birth> {
        let site = (mark >> 34).checked_sub(1)? as usize;
        let value = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY][(mark >> 32 & 3).min(2) as usize];
        Some(Birth { site, i: mark as u32 as usize, value })
    }
}

#[derive(Default)]
pub struct Origins {
    values: BTreeMap<usize, (Weak<Data>, Arc<[Mark]>)>,
    /// The marks of the group's buffers, by slot.
    buffers: BTreeMap<usize, Vec<Mark>>,
    operands: BTreeMap<Mark, Vec<f64>>,
}

impl Origins {
    pub fn next_group(&mut self) {
        self.values.clear();
        self.buffers.clear();
        self.operands.clear();
    }

    /// The marks of a value, where it has any.
    pub fn of(&self, value: &Tile) -> Option<&[Mark]> {
        if self.values.is_empty() {
            return None;
        }
        let (held, marks) = self.values.get(&address(value))?;
        (held.strong_count() > 0).then_some(marks)
    }

    pub fn put(&mut self, value: &Tile, marks: Vec<Mark>) {
        if marks.iter().all(|&m| m == 0) {
            return;
        }
        if self.values.len() >= 256 {
            self.values.retain(|_, (held, _)| held.strong_count() > 0);
        }
        self.values.insert(address(value), (Arc::downgrade(value), marks.into()));
    }

    pub fn operands(&self, birth: Birth) -> &[f64] {
        self.operands.get(&birth.mark()).map_or(&[], |v| v)
    }

    pub fn forget_buffer(&mut self, slot: usize) {
        self.buffers.remove(&slot);
    }

    /// Elements of a buffer of `len` are written: index and mark of each.
    pub fn write(&mut self, slot: usize, len: usize, marks: impl Iterator<Item = (usize, Mark)>) {
        let known = self.buffers.contains_key(&slot);
        for (element, mark) in marks {
            if known || mark != 0 {
                self.buffers.entry(slot).or_insert_with(|| vec![0; len])[element] = mark;
            }
        }
    }

    pub fn buffer(&self, slot: usize) -> Option<&[Mark]> {
        self.buffers.get(&slot).map(|v| &v[..])
    }

    /// Marks the result of an op on values. `active` says which lanes run.
    pub(crate) fn trace(
        &mut self,
        (action, site): (&Action, usize),
        operands: &[Tile],
        result: &Tile,
        active: impl Fn(usize) -> bool,
    ) {
        if operands.iter().any(|o| Arc::ptr_eq(o, result)) {
            return;
        }
        let marked = !self.values.is_empty() && operands.iter().any(|o| self.of(o).is_some());
        let float = matches!(&**result, Data::F32(_) | Data::F64(_));
        // Integers are followed through elementwise ops only.
        let single = matches!(
            action,
            Action::Ew { .. } | Action::Cast { .. } | Action::Select | Action::Rearrange { .. }
        );
        let follow = if float { !all_finite(result) } else { marked && single };
        if !follow {
            return;
        }
        if let Action::Rearrange { shape, strides } = action {
            if let (true, Some(marks)) = (marked, self.of(&operands[0])) {
                let marks = rearrange(&Data::U64(marks.to_vec()), shape, strides);
                if let Data::U64(marks) = marks {
                    self.put(result, marks);
                }
            }
            return;
        }
        let marks = (0..result.len()).map(|i| {
            if float && finite(result, i) || !active(i) {
                0
            } else {
                self.mark(action, operands, (float, float && nan(result, i)), i)
            }
        });
        let mut marks: Vec<Mark> = marks.collect();
        for (i, mark) in marks.iter_mut().enumerate().filter(|(_, m)| **m == BORN) {
            let value = result.at(i).map_or(f64::NAN, |x| x.as_f64());
            *mark = Birth { site, i, value }.mark();
            if self.operands.len() < REMEMBERED && same_places(action) {
                let numbers = operands.iter().filter_map(|o| Some(o.at(i)?.as_f64()));
                self.operands.insert(*mark, numbers.collect());
            }
        }
        self.put(result, marks);
    }

    /// The mark of one element of a result: that of the first marked operand element it is computed
    /// from. An op that only moves numbers, or is unknown, gives birth to nothing.
    fn mark(
        &self,
        action: &Action,
        operands: &[Tile],
        (float, is_nan): (bool, bool),
        i: usize,
    ) -> Mark {
        let (mut mark, mut sources_seen, mut inherited) = (0, false, false);
        for (o, places) in operands.iter().zip(sources(action, operands, i)) {
            let known = self.of(o);
            for j in places {
                sources_seen = true;
                if float && finite(o, j) {
                    continue;
                }
                // A NaN does not inherit from infinities that the program chose.
                inherited |= !is_nan || nan(o, j);
                if let (0, Some(known)) = (mark, known) {
                    mark = known[j];
                }
            }
        }
        // A scan begins with the identity, which has no operands.
        let born = float && births(action) && sources_seen && !inherited && mark == 0;
        if born { BORN } else { mark }
    }
}

fn address(value: &Tile) -> usize {
    Arc::as_ptr(value) as usize
}

/// Ops that compute; the others only move bits.
fn births(action: &Action) -> bool {
    matches!(
        action,
        Action::Ew { .. }
            | Action::Cast { .. }
            | Action::Mma { .. }
            | Action::Reduce { .. }
            | Action::Scan { .. }
    )
}

/// Whether element `i` of the result is computed from the elements `i` of the operands.
fn same_places(action: &Action) -> bool {
    matches!(action, Action::Ew { .. } | Action::Cast { .. })
}

/// A range with a step: the elements of one operand that an element of the result is computed from.
type Places = std::iter::StepBy<std::ops::Range<usize>>;

fn sources(action: &Action, operands: &[Tile], i: usize) -> Vec<Places> {
    let none = || (0..0).step_by(1);
    let one = |i: usize| (i..i + 1).step_by(1);
    match action {
        Action::Ew { .. } | Action::Cast { .. } | Action::Bitcast { .. } => {
            operands.iter().map(|_| one(i)).collect()
        }
        Action::Select => match operands[0].bools() {
            Some(c) if c[i.min(c.len() - 1)] => vec![none(), one(i), none()],
            Some(_) => vec![none(), none(), one(i)],
            None => vec![],
        },
        Action::Mma { k, n } => {
            let (row, column) = (i / n, i % n);
            let b = (column..k * n).step_by(*n);
            vec![(row * k..(row + 1) * k).step_by(1), b, one(i)]
        }
        Action::Reduce { len, inner, .. } => {
            let start = i / inner * len * inner + i % inner;
            vec![(start..start + len * inner).step_by(*inner)]
        }
        Action::Scan { len, inner, exclusive, .. } => {
            let (start, along) = (i / (len * inner) * len * inner + i % inner, i / inner % len);
            let count = if *exclusive { along } else { along + 1 };
            vec![(start..start + count * inner).step_by(*inner)]
        }
        _ => vec![],
    }
}

fn finite(data: &Data, i: usize) -> bool {
    match data {
        Data::F32(xs) => xs.get(i).is_none_or(|x| x.is_finite()),
        Data::F64(xs) => xs.get(i).is_none_or(|x| x.is_finite()),
        _ => true,
    }
}

pub(crate) fn nan(data: &Data, i: usize) -> bool {
    match data {
        Data::F32(xs) => xs.get(i).is_some_and(|x| x.is_nan()),
        Data::F64(xs) => xs.get(i).is_some_and(|x| x.is_nan()),
        _ => false,
    }
}

/// Without an early exit, so that it vectorises.
pub(crate) fn all_finite(data: &Data) -> bool {
    match data {
        Data::F32(xs) => xs.iter().fold(true, |all, x| all & x.is_finite()),
        Data::F64(xs) => xs.iter().fold(true, |all, x| all & x.is_finite()),
        _ => true,
    }
}
