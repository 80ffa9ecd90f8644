//! Which lanes of the group run. In a group kernel there is one lane, and it always does.

use crate::value::{Tile, each_data};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mask {
    lanes: Vec<bool>,
    active: usize,
}

impl Mask {
    /// The first `active` of `width` lanes.
    pub fn first(active: usize, width: usize) -> Self {
        Self { lanes: (0..width).map(|i| i < active).collect(), active: active.min(width) }
    }

    /// The lanes of this mask where `keep` holds too.
    pub fn and(&self, keep: impl Fn(usize) -> bool) -> Self {
        let lanes: Vec<bool> = self.lanes.iter().enumerate().map(|(i, &m)| m && keep(i)).collect();
        let active = lanes.iter().filter(|&&m| m).count();
        Self { lanes, active }
    }

    pub fn lanes(&self) -> &[bool] {
        &self.lanes
    }

    pub fn any(&self) -> bool {
        self.active > 0
    }

    pub fn all(&self) -> bool {
        self.active == self.lanes.len()
    }

    /// `new` in the lanes of this mask and `old` in the others. `None` when the two are not vectors
    /// of this many lanes of one type; where all lanes run, `new` may be anything.
    pub fn merge(&self, mut new: Tile, old: &Tile) -> Option<Tile> {
        if self.all() {
            return Some(new);
        }
        if new.len() != self.lanes.len() || old.len() != self.lanes.len() {
            return None;
        }
        each_data!(Arc::make_mut(&mut new), xs => self.keep(xs, old)?);
        Some(new)
    }

    fn keep<T: crate::value::Elem>(&self, new: &mut [T], old: &Tile) -> Option<()> {
        let old = T::of(old)?;
        for ((new, old), &m) in new.iter_mut().zip(old).zip(&self.lanes) {
            if !m {
                *new = *old;
            }
        }
        Some(())
    }
}
