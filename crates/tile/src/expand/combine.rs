//! Reductions and scans by a combiner.

use super::{Expander, Place, shape};
use crate::{TileBuild, TileOp};
use tessera_ir::{BlockId, OpSpec, Type, Value};
use tessera_numerics::ScalarFn;

impl Expander<'_> {
    /// The balanced tree over neighbours, one level after another: a level is read from its buffer
    /// as its even and its odd elements, and their combinations are written to the other one.
    pub(super) fn reduce_by(
        &mut self,
        at: &Place,
        tiles: &[Value],
        axis: usize,
        combine: BlockId,
    ) -> Vec<Value> {
        let whole = shape(self.ty(tiles[0]));
        let rank = whole.len();
        let mut level: Vec<Value> = tiles.iter().map(|&t| self.stored(at, t)).collect();
        let mut spare: Vec<Value> = Vec::new();
        let mut len = whole[axis];
        let (zero, ones) = (vec![0; rank], vec![1; rank]);
        while len > 1 {
            let (half, odd) = (len / 2, len % 2);
            let mut extents = whole.clone();
            extents[axis] = half;
            let mut steps = ones.clone();
            steps[axis] = 2;
            let mut right = zero.clone();
            right[axis] = 1;
            let mut args: Vec<Value> = Vec::new();
            for start in [&zero, &right] {
                for &buffer in &level {
                    args.push(self.load(at, buffer, start, &steps, &extents));
                }
            }
            let mut last = zero.clone();
            last[axis] = len - 1;
            extents[axis] = 1;
            let lone: Vec<Value> = match odd {
                0 => Vec::new(),
                _ => level.iter().map(|&b| self.load(at, b, &last, &ones, &extents)).collect(),
            };
            let joined = self.apply(at, combine, &args);
            if half + odd == 1 {
                // The axis goes.
                return joined.into_iter().map(|v| self.without_axis(at, v, axis)).collect();
            }
            if spare.is_empty() {
                let mut smaller = whole.clone();
                smaller[axis] = half + odd;
                let dtypes: Vec<_> = tiles.iter().map(|&t| self.ty(t).dtype()).collect();
                spare = dtypes.into_iter().map(|d| self.buffer(&smaller, d)).collect();
            }
            for (&buffer, &value) in spare.iter().zip(&joined) {
                self.store(at, buffer, value, &zero);
            }
            last[axis] = half;
            for (&buffer, &value) in spare.iter().zip(&lone) {
                self.store(at, buffer, value, &last);
            }
            std::mem::swap(&mut level, &mut spare);
            len = half + odd;
        }
        tiles.iter().map(|&t| self.without_axis(at, t, axis)).collect()
    }

    /// A tile of extent 1 along an axis without it.
    fn without_axis(&mut self, at: &Place, v: Value, axis: usize) -> Value {
        let ty = self.ty(v).clone();
        let mut dims = ty.shape().to_vec();
        dims.remove(axis);
        if dims.is_empty() {
            // The sum of one element is the element; a scalar cannot be reshaped to.
            let buffer = self.stored(at, v);
            return self.load(at, buffer, &[0], &[1], &[0]);
        }
        let spec = OpSpec::new(TileOp::Reshape, &[v]).result(Type::value(dims, ty.dtype()));
        self.b(at).value(spec).expect("the result type is given")
    }

    /// The left fold: a loop over the positions of the axis that carries the last results.
    pub(super) fn scan_in_order(
        &mut self,
        at: &Place,
        tiles: &[Value],
        axis: usize,
        reverse: bool,
        combine: BlockId,
    ) -> Vec<Value> {
        let whole = shape(self.ty(tiles[0]));
        let (rank, len) = (whole.len(), whole[axis]);
        // Results are written over the elements, which are not needed any more.
        let buffers: Vec<Value> = tiles.iter().map(|&t| self.stored(at, t)).collect();
        let mut extents = whole.clone();
        extents[axis] = 0;
        let ones = vec![1; rank];
        let mut first = vec![0; rank];
        first[axis] = if reverse { len - 1 } else { 0 };
        let init: Vec<Value> =
            buffers.iter().map(|&b| self.load(at, b, &first, &ones, &extents)).collect();
        let types: Vec<Type> = init.iter().map(|&v| self.ty(v).clone()).collect();
        let bounds = [1, len, 1].map(|v| self.b(at).index(v));
        let spec = OpSpec::new(TileOp::For, &bounds).group("init", &init).results(types.clone());
        let id = self.b(at).op(spec).expect("the result types are given");
        let body = self.rw.new.ops[id].regions[0];
        let inside = Place { block: body, loc: at.loc.clone() };
        let step = self.rw.new.add_arg(body, Type::INDEX, None);
        let before: Vec<Value> =
            types.iter().map(|ty| self.rw.new.add_arg(body, ty.clone(), None)).collect();
        let place = if reverse {
            let last = self.b(&inside).index(len - 1);
            self.b(&inside).ew(ScalarFn::Sub, &[last, step])
        } else {
            step
        };
        let zero = self.b(&inside).index(0);
        let mut start = vec![zero; rank];
        start[axis] = place;
        let here: Vec<Value> =
            buffers.iter().map(|&b| self.load_at(&inside, b, &start, &ones, &extents)).collect();
        let joined = self.apply(&inside, combine, &[before, here].concat());
        for (&buffer, &value) in buffers.iter().zip(&joined) {
            self.store_at(&inside, buffer, value, &start, &extents);
        }
        self.b(&inside).yield_(&joined);
        let zero = vec![0; rank];
        buffers.iter().map(|&b| self.load(at, b, &zero, &ones, &whole)).collect()
    }

    /// Steps of 1, 2, 4, …: each element is combined with that so far before it, where there is one.
    pub(super) fn scan_in_steps(
        &mut self,
        at: &Place,
        tiles: &[Value],
        axis: usize,
        reverse: bool,
        combine: BlockId,
    ) -> Vec<Value> {
        let whole = shape(self.ty(tiles[0]));
        let (rank, len) = (whole.len(), whole[axis]);
        let mut values = tiles.to_vec();
        let buffers: Vec<Value> = tiles.iter().map(|&t| self.stored(at, t)).collect();
        let place = self.positions(at, axis, &whole);
        let mut far = 1;
        while far < len {
            let distance = self.spread(at, if reverse { -far } else { far }, &whole);
            let from = self.b(at).ew(ScalarFn::Sub, &[place, distance]);
            let positions: Vec<Value> = (0..rank)
                .map(|d| if d == axis { from } else { self.positions(at, d, &whole) })
                .collect();
            let earlier: Vec<Value> =
                buffers.iter().map(|&b| self.gather(at, b, &positions, false)).collect();
            let joined = self.apply(at, combine, &[&earlier[..], &values[..]].concat());
            let there = if reverse {
                let end = self.spread(at, len, &whole);
                self.b(at).ew(ScalarFn::Lt, &[from, end])
            } else {
                let none = self.spread(at, 0, &whole);
                self.b(at).ew(ScalarFn::Ge, &[from, none])
            };
            for (value, &new) in values.iter_mut().zip(&joined) {
                *value = self.b(at).select(there, new, *value);
            }
            far *= 2;
            if far < len {
                for (&buffer, &value) in buffers.iter().zip(&values) {
                    self.store(at, buffer, value, &vec![0; rank]);
                }
            }
        }
        values
    }
}
