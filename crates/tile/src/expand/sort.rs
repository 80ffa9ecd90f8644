//! Sorting as a bitonic network over the next power of two of positions (Batcher 1968). Pairs of an
//! element and its place are compared, so that the order is total and equal elements keep theirs.

use super::{Expander, Place, shape};
use crate::{TileBuild, TileOp};
use tessera_ir::{Attr, OpSpec, Type, Value};
use tessera_numerics::{DType, ScalarFn};

impl Expander<'_> {
    pub(super) fn sort(
        &mut self,
        at: &Place,
        x: Value,
        axis: usize,
        descending: bool,
    ) -> Vec<Value> {
        let extents = shape(self.ty(x));
        let (rank, dtype, len) = (extents.len(), self.ty(x).dtype(), extents[axis]);
        let mut padded = extents.clone();
        padded[axis] = (len as u64).next_power_of_two() as i64;
        let zero = vec![0; rank];
        let ones = vec![1; rank];
        let places = self.positions(at, axis, &padded);
        let mut keys = x;
        if padded != extents {
            // The contents of the padding do not matter: its places are above all others.
            let buffer = self.buffer(&padded, dtype);
            let nothing = zero_of(dtype);
            let fill = self.b(at).constant(Type::tile(&padded, dtype), nothing);
            self.store(at, buffer, fill, &zero);
            self.store(at, buffer, x, &zero);
            keys = self.load(at, buffer, &zero, &ones, &padded);
        }
        let levels = padded[axis].ilog2() as i64;
        let sorted = self.network(at, keys, places, axis, len, levels, descending);
        if padded == extents {
            return sorted;
        }
        let cut = |e: &mut Self, v: Value| {
            let buffer = e.stored(at, v);
            e.load(at, buffer, &zero, &ones, &extents)
        };
        sorted.into_iter().map(|v| cut(self, v)).collect()
    }

    /// Two loops: over the lengths 2, 4, … of sorted runs, and over the distances of the elements
    /// that are compared, from half the length down to 1.
    #[allow(clippy::too_many_arguments)]
    fn network(
        &mut self,
        at: &Place,
        keys: Value,
        places: Value,
        axis: usize,
        len: i64,
        levels: i64,
        descending: bool,
    ) -> Vec<Value> {
        let types = vec![self.ty(keys).clone(), self.ty(places).clone()];
        let extents = shape(&types[0]);
        let buffers: Vec<Value> = types
            .iter()
            .map(|ty| {
                let dtype = ty.dtype();
                self.buffer(&extents, dtype)
            })
            .collect();
        let bounds = [1, levels + 1, 1].map(|v| self.b(at).index(v));
        let (outer, level, carried) = self.repeat(at, &bounds, &[keys, places], &types);
        let bounds = [self.b(&outer).index(0), level, self.b(&outer).index(1)];
        let (inner, step, carried) = self.repeat(&outer, &bounds, &carried, &types);
        // distance = 1 << (level - 1 - step), run = 1 << level
        let one = self.b(&inner).index(1);
        let far = self.b(&inner).ew(ScalarFn::Sub, &[level, one]);
        let far = self.b(&inner).ew(ScalarFn::Sub, &[far, step]);
        let distance = self.b(&inner).ew(ScalarFn::Shl, &[one, far]);
        let run = self.b(&inner).ew(ScalarFn::Shl, &[one, level]);
        let [distance, run] = [distance, run].map(|v| {
            let narrow = self.b(&inner).cast(v, DType::I32);
            self.b(&inner).broadcast(narrow, types[1].shape().to_vec())
        });
        let own = self.positions(&inner, axis, &extents);
        let other = self.b(&inner).ew(ScalarFn::Xor, &[own, distance]);
        let positions: Vec<Value> = (0..extents.len())
            .map(|d| if d == axis { other } else { self.positions(&inner, d, &extents) })
            .collect();
        let partners: Vec<Value> = buffers
            .iter()
            .zip(&carried)
            .map(|(&buffer, &value)| {
                self.store(&inner, buffer, value, &vec![0; extents.len()]);
                self.gather(&inner, buffer, &positions, true)
            })
            .collect();
        let before = self.comes_first(&inner, &carried, &partners, len, descending);
        // The lower of a pair keeps what comes first, where the run ascends.
        let none = self.spread(&inner, 0, &extents);
        let [low, up] = [distance, run].map(|bit| {
            let set = self.b(&inner).ew(ScalarFn::And, &[own, bit]);
            self.b(&inner).ew(ScalarFn::Eq, &[set, none])
        });
        let keeps_first = self.b(&inner).ew(ScalarFn::Eq, &[low, up]);
        let keeps = self.b(&inner).ew(ScalarFn::Eq, &[before, keeps_first]);
        let next: Vec<Value> = carried
            .iter()
            .zip(&partners)
            .map(|(&own, &other)| self.b(&inner).select(keeps, own, other))
            .collect();
        self.b(&inner).yield_(&next);
        let done = self.results(&inner);
        self.b(&outer).yield_(&done);
        self.results(&outer)
    }

    /// Begins a loop: where its body is, its position and the carried values.
    fn repeat(
        &mut self,
        at: &Place,
        bounds: &[Value; 3],
        init: &[Value],
        types: &[Type],
    ) -> (Place, Value, Vec<Value>) {
        let spec = OpSpec::new(TileOp::For, bounds).group("init", init).results(types.to_vec());
        let id = self.b(at).op(spec).expect("the result types are given");
        let body = self.rw.new.ops[id].regions[0];
        let position = self.rw.new.add_arg(body, Type::INDEX, None);
        let carried = types.iter().map(|ty| self.rw.new.add_arg(body, ty.clone(), None)).collect();
        (Place { block: body, loc: at.loc.clone() }, position, carried)
    }

    /// The results of the loop around a place.
    fn results(&self, inside: &Place) -> Vec<Value> {
        let around = self.rw.new.blocks[inside.block].parent;
        around.map_or(Vec::new(), |id| self.rw.new.ops[id].results.clone())
    }

    /// Whether an element and its place come before another: real ones before padding, then by
    /// value with NaN above all, then by place.
    fn comes_first(
        &mut self,
        at: &Place,
        own: &[Value],
        other: &[Value],
        len: i64,
        descending: bool,
    ) -> Value {
        let ([a, place_a], [b, place_b]) = ([own[0], own[1]], [other[0], other[1]]);
        let (smaller, larger) = if descending { (b, a) } else { (a, b) };
        let less = self.is_less(at, smaller, larger);
        let more = self.is_less(at, larger, smaller);
        let earlier = self.b(at).ew(ScalarFn::Lt, &[place_a, place_b]);
        let no_more = self.b(at).ew(ScalarFn::Not, &[more]);
        let tie = self.b(at).ew(ScalarFn::And, &[no_more, earlier]);
        let by_value = self.b(at).ew(ScalarFn::Or, &[less, tie]);
        let extents = shape(self.ty(a));
        if extents.iter().all(|&e| e != 0) && len as u64 == (len as u64).next_power_of_two() {
            return by_value;
        }
        let end = self.spread(at, len, &extents);
        let [real_a, real_b] = [place_a, place_b].map(|p| self.b(at).ew(ScalarFn::Lt, &[p, end]));
        let both = self.b(at).ew(ScalarFn::And, &[real_a, real_b]);
        // Of padding the order is that of the places, and real elements have lower ones.
        self.b(at).select(both, by_value, earlier)
    }

    /// `a < b`, with NaN above every number.
    fn is_less(&mut self, at: &Place, a: Value, b: Value) -> Value {
        let dtype = self.ty(a).dtype();
        if dtype == DType::Bool {
            let not = self.b(at).ew(ScalarFn::Not, &[a]);
            return self.b(at).ew(ScalarFn::And, &[not, b]);
        }
        let less = self.b(at).ew(ScalarFn::Lt, &[a, b]);
        if !dtype.is_float() {
            return less;
        }
        let [nan_a, nan_b] = [a, b].map(|v| self.b(at).ew(ScalarFn::IsNan, &[v]));
        let number = self.b(at).ew(ScalarFn::Not, &[nan_a]);
        let only = self.b(at).ew(ScalarFn::And, &[number, nan_b]);
        self.b(at).ew(ScalarFn::Or, &[less, only])
    }
}

fn zero_of(dtype: DType) -> Attr {
    match dtype {
        DType::Bool => Attr::Bool(false),
        _ if dtype.is_float() => Attr::Float(0.0),
        _ => Attr::Int(0),
    }
}
