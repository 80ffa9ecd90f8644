//! Arrays of 4-bit elements, two a byte (`"fp4 @packed"`): the element with the even index is in the
//! low half of the byte.
//!
//! During elaboration such an array has its own shape and dtype. A load reads bytes and takes them
//! apart, a store puts whole bytes together; when the body is done, [`settle`] gives the parameter
//! the type of its bytes, so that no later stage knows of packed elements. A byte has two
//! elements, and other lanes or groups may write one of them: what does not write whole bytes is
//! refused. Of an axis of odd extent the last byte has one element; its high half is stored as zero
//! and never read.

use super::Elab;
use super::val::{BlockRef, Reach, Val};
use tessera_diag::Code;
use tessera_ir::{Attr, Dim, OpSpec, Type, Value, ValueDef};
use tessera_numerics::{DType, NumType, ScalarFn};
use tessera_tile::{Atom, Linear, TileBuild, TileOp, linear_of};

/// Gives packed parameters the type of their bytes.
pub fn settle(e: &mut Elab<'_>) {
    for view in e.views.values().copied().collect::<Vec<_>>() {
        if let Type::View { dims, elem, .. } = &mut e.func.values[view].ty
            && elem.packed
        {
            *elem = NumType::plain(DType::U8);
            if let Some(last) = dims.last_mut() {
                *last = halved(last);
            }
        }
    }
}

/// How many bytes hold this many elements.
fn halved(dim: &Dim) -> Dim {
    match dim {
        Dim::Static(v) => Dim::Static(v / 2 + v % 2),
        Dim::Expr(e) => Dim::Expr(e.clone().ceil_div(2)),
        Dim::Any => Dim::Any,
    }
}

impl Elab<'_> {
    pub fn is_packed(&self, mem: Value) -> bool {
        matches!(self.ty(mem), Type::View { elem, .. } if elem.packed)
    }

    /// What is not possible with packed elements, in the user's words.
    pub fn refuse_packed(&mut self, block: &BlockRef, why: &str, help: &str) {
        let name = self.func.name_of(block.mem).unwrap_or("array").to_string();
        self.error_help(Code::E_UNSUPPORTED, format!("`{name}` is packed: {why}"), help);
    }

    /// Loads elements of a packed array.
    pub fn load_packed(&mut self, block: &BlockRef, other: Option<Value>) -> Option<Value> {
        let elem = self.ty(block.mem).dtype();
        let dim = self.ty(block.mem).shape().last().cloned().unwrap_or(Dim::Any);
        let last = block.at.len() - 1;
        let shape = self.stored_shape(block);
        let mut bytes = block.clone();
        let position = block.at[last];
        let extent = match &block.reach[last] {
            Reach::Span(extent) => {
                bytes.at[last] = self.first_byte(block, "read")?;
                bytes.reach[last] = Reach::Span(halved(extent));
                Some(extent.clone())
            }
            Reach::Point | Reach::Gather => {
                let ty = self.ty(position).clone();
                let one = self.b().constant(ty, Attr::Int(1));
                bytes.at[last] = self.b().ew(ScalarFn::Shr, &[position, one]);
                None
            }
        };
        let both = other.map(|v| self.doubled(v));
        let mut loaded = self.load_bytes(&bytes, both)?;
        loaded = self.b().cast(loaded, DType::I32);
        // The high half of the last byte is no element where the extent is odd.
        let odd = !matches!(dim, Dim::Static(v) if v % 2 == 0);
        if odd && other.is_none() {
            loaded = self.without_the_end(&bytes, &dim, loaded)?;
        }
        let codes = match &extent {
            Some(extent) => self.taken_apart(loaded, extent),
            None => {
                let ty = self.ty(position).clone();
                let one = self.b().constant(ty.clone(), Attr::Int(1));
                let second = self.b().ew(ScalarFn::And, &[position, one]);
                let two = self.b().constant(ty, Attr::Int(2));
                let far = self.b().ew(ScalarFn::Shl, &[second, two]);
                let far = self.b().cast(far, DType::I32);
                let far = self.b().broadcast(far, shape.clone());
                self.b().ew(ScalarFn::Shr, &[loaded, far])
            }
        };
        let value = self.decoded(codes, elem);
        let Some(other) = other.filter(|_| odd) else { return Some(value) };
        let size = self.dim_index(&dim)?;
        let inside = self.below(block, &shape, size)?;
        let fill = self.b().broadcast(other, shape);
        Some(self.b().select(inside, value, fill))
    }

    /// Bytes with the high half cleared where it is behind the last element. What was read as zero
    /// stays so: reductions over padding are found as those of any array.
    fn without_the_end(&mut self, bytes: &BlockRef, dim: &Dim, loaded: Value) -> Option<Value> {
        let shape = self.stored_shape(bytes);
        let size = self.dim_index(dim)?;
        let one = self.b().index(1);
        // Byte j has two elements where 2 j + 1 < size, which is j < size / 2.
        let whole = self.b().ew(ScalarFn::Shr, &[size, one]);
        let both = self.below(bytes, &shape, whole)?;
        let ty = Type::value(shape, DType::I32);
        let [all, low] = [255, 15].map(|v| self.b().constant(ty.clone(), Attr::Int(v)));
        let kept = self.b().select(both, all, low);
        Some(self.b().ew(ScalarFn::And, &[loaded, kept]))
    }

    fn dim_index(&mut self, dim: &Dim) -> Option<Value> {
        let size = super::names::dim_val(dim);
        self.index_value(&size)
    }

    /// Stores a block of a packed array: whole bytes.
    pub fn store_packed(&mut self, block: &BlockRef, value: Value, mask: Option<Value>) {
        let dim = self.ty(block.mem).shape().last().cloned().unwrap_or(Dim::Any);
        let last = block.at.len() - 1;
        let Reach::Span(extent) = &block.reach[last] else {
            let why = "a single element of it cannot be written, because the other half of its byte may belong to another lane or group";
            self.refuse_packed(block, why, "write slices that begin at a multiple of two: `x[i:i + 32]` with `i = ts.tile.program_id(0) * 32`; or make the array one element a byte, without `@packed`");
            return;
        };
        if mask.is_some() {
            self.refuse_packed(block, "a store with a mask could write half of a byte", "leave the mask out: elements outside the array are not written; or select between the new value and the old one, and store that");
            return;
        }
        let Some(first) = self.first_byte(block, "written") else { return };
        let whole = extent == &dim && linear_of(&self.func, block.at[last]) == Linear::constant(0);
        let odd = matches!(extent, Dim::Static(v) if v % 2 != 0);
        if odd && !whole {
            let why = format!("a slice of {extent} elements ends in the middle of a byte");
            self.refuse_packed(block, &why, "write an even number of elements");
            return;
        }
        let shape = self.stored_shape(block);
        let value = match dim {
            Dim::Static(v) if v % 2 == 0 => value,
            _ if whole && odd => value,
            _ => {
                let Some(size) = self.dim_index(&dim) else { return };
                let Some(inside) = self.below(block, &shape, size) else { return };
                let zero = Elab::zero(self.ty(value).dtype());
                let ty = self.ty(value).clone();
                let zero = self.b().constant(ty, zero);
                self.b().select(inside, value, zero)
            }
        };
        let value = self.put_together(value, extent);
        let mut bytes = block.clone();
        bytes.at[last] = first;
        bytes.reach[last] = Reach::Span(halved(extent));
        let spec = OpSpec::new(TileOp::Store, &[block.mem, value]).group("at", &bytes.at);
        let _ = self.b().op(Self::as_block(spec, &bytes));
    }

    /// The byte that the slice of the last axis begins with. A slice begins with a whole byte.
    fn first_byte(&mut self, block: &BlockRef, what: &str) -> Option<Value> {
        let last = block.at.len() - 1;
        if block.step[last] != 1 {
            let why = format!("slices of its last axis with a step cannot be {what}");
            self.refuse_packed(
                block,
                &why,
                "take all elements of the slice, and every second one of the tile: `t[:, 0:64:2]`",
            );
            return None;
        }
        let start = block.at[last];
        let form = linear_of(&self.func, start);
        if let Some(half) = self.half_of(&form) {
            return Some(half);
        }
        if self.depends_on_open(start) {
            let one = self.b().index(1);
            return Some(self.b().ew(ScalarFn::Shr, &[start, one]));
        }
        let why = format!(
            "a slice of its last axis can be {what} only from a start that is known to be a multiple of two"
        );
        let help = match what {
            "read" => {
                "multiply the start by an even number: `i = ts.tile.program_id(0) * 32`; or gather: `x[i + ts.tile.arange(32)]`"
            }
            _ => "multiply the start by an even number: `i = ts.tile.program_id(0) * 32`",
        };
        self.refuse_packed(block, &why, help);
        None
    }

    /// Half of an even linear form, if it is known to be even.
    fn half_of(&mut self, form: &Linear) -> Option<Value> {
        if form.constant % 2 != 0 {
            return None;
        }
        let even = |e: &Self, atom: &Atom, c: i64| match atom {
            // A product that a parameter has as one dimension is no symbol.
            Atom::Dim(name) => c % 2 == 0 && e.symbols.contains(name),
            Atom::Value(_) | Atom::Program(_) => c % 2 == 0 || e.is_even_atom(atom),
        };
        if form.terms.iter().any(|(atom, &c)| !even(self, atom, c)) {
            return None;
        }
        let mut sum = None;
        for (atom, &c) in &form.terms {
            let value = match atom {
                Atom::Value(v) => self.b().cast(*v, DType::I64),
                Atom::Dim(name) => self.b().dim(name),
                Atom::Program(axis) => {
                    let spec = OpSpec::new(TileOp::ProgramId, &[])
                        .attr("axis", Attr::Int(*axis))
                        .result(Type::INDEX);
                    self.b().value(spec).expect("the result type is given")
                }
            };
            let (value, c) = match c % 2 {
                0 => (value, c / 2),
                _ => {
                    let one = self.b().index(1);
                    (self.b().ew(ScalarFn::Shr, &[value, one]), c)
                }
            };
            let value = match c {
                1 => value,
                _ => {
                    let by = self.b().index(c);
                    self.b().ew(ScalarFn::Mul, &[value, by])
                }
            };
            sum = Some(match sum {
                None => value,
                Some(s) => self.b().ew(ScalarFn::Add, &[s, value]),
            });
        }
        Some(match (sum, form.constant / 2) {
            (None, c) => self.b().index(c),
            (Some(s), 0) => s,
            (Some(s), c) => {
                let c = self.b().index(c);
                self.b().ew(ScalarFn::Add, &[s, c])
            }
        })
    }

    /// An origin with an even extent, and the variable of a loop that begins with an even number and
    /// goes on in even steps.
    fn is_even_atom(&self, atom: &Atom) -> bool {
        let Atom::Value(v) = atom else { return false };
        let is_even = |v: Value| {
            let form = linear_of(&self.func, v);
            form.constant % 2 == 0 && form.terms.values().all(|c| c % 2 == 0)
        };
        match self.func.values[*v].def {
            ValueDef::Result(op, _) => {
                let op = &self.func.ops[op];
                let step = op.attr("step").and_then(Attr::as_int);
                op.code == TileOp::Origin && step.is_some_and(|s| s % 2 == 0)
            }
            ValueDef::Arg(block, 0) => {
                let Some(op) = self.func.blocks[block].parent else { return false };
                let op = &self.func.ops[op];
                op.code == TileOp::For && is_even(op.operands[0]) && is_even(op.operands[2])
            }
            ValueDef::Arg(..) => false,
        }
    }

    fn load_bytes(&mut self, bytes: &BlockRef, other: Option<Value>) -> Option<Value> {
        let gather = bytes.reach.contains(&Reach::Gather);
        let code = if gather { TileOp::Gather } else { TileOp::Load };
        let ty = Type::value(self.stored_shape(bytes), DType::U8);
        let mut spec = OpSpec::new(code, &[bytes.mem]).group("at", &bytes.at).result(ty);
        if let Some(other) = other {
            spec = spec.group("other", &[other]);
        }
        if !gather {
            spec = Self::as_block(spec, bytes);
        }
        if bytes.hint == Some("inbounds") {
            spec = spec.attr("inbounds", Attr::Bool(true));
        }
        self.b().value(spec).ok()
    }

    /// The byte of two equal elements.
    fn doubled(&mut self, v: Value) -> Value {
        let low = self.codes_of(v);
        let four = self.b().constant(Type::Scalar(DType::I32), Attr::Int(4));
        let high = self.b().ew(ScalarFn::Shl, &[low, four]);
        let both = self.b().ew(ScalarFn::Or, &[low, high]);
        self.b().cast(both, DType::U8)
    }

    /// Codes, of which the low four bits count, as elements.
    fn decoded(&mut self, codes: Value, elem: DType) -> Value {
        // Integers wrap: the low bits stay.
        let narrow = self.b().cast(codes, DType::I4);
        match elem {
            DType::I4 => narrow,
            _ => {
                let ty = self.ty(narrow).with_dtype(elem);
                let spec = OpSpec::new(TileOp::Bitcast, &[narrow]).result(ty);
                self.b().value(spec).expect("the result type is given")
            }
        }
    }

    /// Elements as codes of four bits, in i32.
    fn codes_of(&mut self, v: Value) -> Value {
        let narrow = match self.ty(v).dtype() {
            DType::I4 => v,
            _ => {
                let ty = self.ty(v).with_dtype(DType::I4);
                let spec = OpSpec::new(TileOp::Bitcast, &[v]).result(ty);
                self.b().value(spec).expect("the result type is given")
            }
        };
        let wide = self.b().cast(narrow, DType::I32);
        let ty = self.ty(wide).clone();
        let mask = self.b().constant(ty, Attr::Int(15));
        self.b().ew(ScalarFn::And, &[wide, mask])
    }

    /// The shifts of the two elements of a byte, 0 and 4, along a last axis of two.
    fn shifts(&mut self, pairs: Vec<Dim>) -> Value {
        let both = self.b().iota(0, 2);
        let two = self.b().constant(Type::tile(&[2], DType::I32), Attr::Int(2));
        let mut far = self.b().ew(ScalarFn::Shl, &[both, two]);
        for _ in 1..pairs.len() {
            far = self.b().expand(far, 0);
        }
        self.b().broadcast(far, pairs)
    }

    fn reshaped(&mut self, v: Value, shape: Vec<Dim>) -> Value {
        if self.ty(v).shape() == shape {
            return v;
        }
        let ty = Type::value(shape, self.ty(v).dtype());
        let spec = OpSpec::new(TileOp::Reshape, &[v]).result(ty);
        self.b().value(spec).expect("the result type is given")
    }

    /// Bytes along the last axis as codes, two for each; an odd extent leaves out the last one.
    fn taken_apart(&mut self, bytes: Value, extent: &Dim) -> Value {
        let mut pairs = self.ty(bytes).shape().to_vec();
        let rank = pairs.len();
        pairs.push(Dim::Static(2));
        let wide = self.b().expand(bytes, rank);
        let wide = self.b().broadcast(wide, pairs.clone());
        let far = self.shifts(pairs.clone());
        let codes = self.b().ew(ScalarFn::Shr, &[wide, far]);
        pairs.pop();
        let odd = matches!(extent, Dim::Static(v) if v % 2 != 0);
        pairs[rank - 1] = match extent {
            Dim::Static(v) => Dim::Static(v + v % 2),
            other => other.clone(),
        };
        let codes = self.reshaped(codes, pairs.clone());
        if !odd {
            return codes;
        }
        pairs[rank - 1] = extent.clone();
        self.slice_value(codes, &vec![0; rank], &vec![1; rank], pairs)
    }

    /// Elements along the last axis as bytes of two.
    fn put_together(&mut self, value: Value, extent: &Dim) -> Value {
        let codes = self.codes_of(value);
        let shape = self.ty(codes).shape().to_vec();
        let (rank, axis) = (shape.len(), shape.len() - 1);
        let seconds = match extent {
            Dim::Static(v) => Dim::Static(v / 2),
            other => halved(other),
        };
        let part = |e: &mut Self, first: i64, count: Dim| {
            let (mut start, mut step, mut dims) = (vec![0; rank], vec![1; rank], shape.clone());
            (start[axis], step[axis], dims[axis]) = (first, 2, count);
            e.slice_value(codes, &start, &step, dims)
        };
        let low = part(self, 0, halved(extent));
        let mut high = Vec::new();
        if seconds != Dim::Static(0) {
            high.push(part(self, 1, seconds));
        }
        if matches!(extent, Dim::Static(v) if v % 2 != 0) {
            let mut one = shape.clone();
            one[axis] = Dim::Static(1);
            high.push(self.b().constant(Type::value(one, DType::I32), Attr::Int(0)));
        }
        let Val::Rt(high) = crate::api::joined(self, &high, axis) else { return codes };
        let ty = self.ty(low).clone();
        let four = self.b().constant(ty, Attr::Int(4));
        let high = self.b().ew(ScalarFn::Shl, &[high, four]);
        let both = self.b().ew(ScalarFn::Or, &[low, high]);
        self.b().cast(both, DType::U8)
    }

    /// Whether the position of each element of a block along the last axis is below a number.
    fn below(&mut self, block: &BlockRef, shape: &[Dim], size: Value) -> Option<Value> {
        let last = block.at.len() - 1;
        let position = match &block.reach[last] {
            Reach::Point | Reach::Gather => self.b().cast(block.at[last], DType::I64),
            Reach::Span(extent) => {
                let Val::Rt(counted) = crate::api::iota(self, extent) else { return None };
                let counted = self.b().cast(counted, DType::I64);
                let start = self.b().broadcast(block.at[last], vec![extent.clone()]);
                let mut at = self.b().ew(ScalarFn::Add, &[start, counted]);
                for _ in 1..shape.len() {
                    at = self.b().expand(at, 0);
                }
                at
            }
        };
        let position = self.b().broadcast(position, shape.to_vec());
        let size = self.b().broadcast(size, shape.to_vec());
        Some(self.b().ew(ScalarFn::Lt, &[position, size]))
    }
}
