//! Reductions and scans by a region of the program, and what texts of assembly compute by theirs.

use crate::fault::{Outcome, broken};
use crate::machine::Machine;
use crate::program::Inst;
use crate::value::{Data, Elem, Tile, each_data};
use std::sync::Arc;

impl Machine<'_> {
    /// The balanced tree over neighbours, level by level.
    pub(crate) fn reduce_by(
        &mut self,
        inst: &Inst,
        combine: usize,
        len: usize,
        inner: usize,
    ) -> Outcome<()> {
        let tiles = self.carried(inst, 0)?;
        let outer = tiles.first().map_or(0, |t| t.len() / (len * inner));
        let mut out: Vec<Vec<Tile>> = Vec::with_capacity(outer * inner);
        for slab in 0..outer {
            for column in 0..inner {
                let mut level: Vec<Vec<Tile>> =
                    (0..len).map(|i| at(&tiles, (slab * len + i) * inner + column)).collect();
                while level.len() > 1 {
                    let mut next = Vec::with_capacity(level.len().div_ceil(2));
                    let mut elements = level.into_iter();
                    while let Some(left) = elements.next() {
                        next.push(match elements.next() {
                            Some(right) => {
                                self.block(combine, [left, right].concat(), &inst.loc)?
                            }
                            None => left,
                        });
                    }
                    level = next;
                }
                out.extend(level);
            }
        }
        self.give_elements(inst, &out)
    }

    /// The left fold, every step kept.
    pub(crate) fn scan_by(
        &mut self,
        inst: &Inst,
        combine: usize,
        len: usize,
        inner: usize,
        reverse: bool,
    ) -> Outcome<()> {
        let tiles = self.carried(inst, 0)?;
        let count = tiles.first().map_or(0, |t| t.len());
        let mut out: Vec<Vec<Tile>> = vec![Vec::new(); count];
        for slab in 0..count / (len * inner) {
            for column in 0..inner {
                let mut before: Option<Vec<Tile>> = None;
                for step in 0..len {
                    let i = if reverse { len - 1 - step } else { step };
                    let place = (slab * len + i) * inner + column;
                    let here = at(&tiles, place);
                    let value = match before {
                        Some(before) => self.block(combine, [before, here].concat(), &inst.loc)?,
                        None => here,
                    };
                    out[place] = value.clone();
                    before = Some(value);
                }
            }
        }
        self.give_elements(inst, &out)
    }

    /// The region for each element by itself: the branches that it takes are its own.
    pub(crate) fn asm(&mut self, inst: &Inst, otherwise: usize, elements: usize) -> Outcome<()> {
        let tiles = self.carried(inst, 0)?;
        if elements == 1 {
            // Scalars, of all lanes in a lane kernel.
            let results = self.block(otherwise, tiles, &inst.loc)?;
            return self.give(inst, results);
        }
        let out: Outcome<Vec<Vec<Tile>>> =
            (0..elements).map(|i| self.block(otherwise, at(&tiles, i), &inst.loc)).collect();
        self.give_elements(inst, &out?)
    }

    /// Binds the results: one tile of each element of the tuples.
    fn give_elements(&mut self, inst: &Inst, tuples: &[Vec<Tile>]) -> Outcome<()> {
        let odd = || broken("a combiner that yields another type", &inst.loc);
        let results: Outcome<Vec<Tile>> = (0..inst.results.len())
            .map(|k| gathered(tuples, k).map(Arc::new).ok_or_else(odd))
            .collect();
        self.give(inst, results?)
    }
}

/// One element of each tile.
fn at(tiles: &[Tile], place: usize) -> Vec<Tile> {
    tiles.iter().map(|t| Arc::new(each_data!(&**t, xs => Elem::wrap(vec![xs[place]])))).collect()
}

fn gathered(tuples: &[Vec<Tile>], k: usize) -> Option<Data> {
    fn all<T: Elem>(_: &[T], tuples: &[Vec<Tile>], k: usize) -> Option<Data> {
        let one = |tuple: &Vec<Tile>| T::of(tuple.get(k)?)?.first().copied();
        Some(T::wrap(tuples.iter().map(one).collect::<Option<Vec<T>>>()?))
    }
    each_data!(&**tuples.first()?.get(k)?, xs => all(xs, tuples, k))
}
