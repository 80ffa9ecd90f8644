//! Evaluates one op: the reference semantics of each.

use super::World;
use super::array::{Array, convert, store};
use super::dot::{Moves, Sides, conv, dot};
use super::index::{Indexing, inside, ints, scatter, update};
use super::shape::{broadcast, concat, pad, reverse, strided, transpose};
use super::window::Window;
use super::{reduce, sort};
use crate::elementwise::{apply, select};
use crate::fault::{Outcome, broken, fault};
use crate::room::{bytes_of, room};
use crate::value::Data;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::{Code, Loc};
use tessera_graph::dims::{Symbols, substitute, substitute_attrs, substitute_type};
use tessera_graph::ops::{dot::dtypes, index::scatter_op, value::hex_bytes};
use tessera_graph::{GraphFunc, GraphOp, Site, elem, types_of};
use tessera_ir::{Attr, Attrs, DimExpr, OpId, Opcode, Type, Value};
use tessera_numerics::{DType, NumType, ReduceOp, Rounding, Scalar, ScalarFn, cast};

/// Arrays of more elements are refused before they are allocated.
const MOST_ELEMENTS: i64 = 1 << 36;

/// A function that is running.
pub struct Frame<'a> {
    pub func: &'a GraphFunc,
    pub env: BTreeMap<Value, Array>,
    pub symbols: Symbols,
}

impl Frame<'_> {
    pub fn array(&self, value: Value, loc: &Loc) -> Outcome<&Array> {
        self.env.get(&value).ok_or_else(|| broken("a value that was not computed", loc))
    }

    pub fn arrays(&self, values: &[Value], loc: &Loc) -> Outcome<Vec<Array>> {
        values.iter().map(|&v| self.array(v, loc).cloned()).collect()
    }

    pub fn set(&mut self, values: &[Value], arrays: Vec<Array>, loc: &Loc) -> Outcome<()> {
        if values.len() != arrays.len() {
            return Err(broken("a number of results that is not the op's", loc));
        }
        self.env.extend(values.iter().copied().zip(arrays));
        Ok(())
    }

    /// The value of a dimension expression.
    pub fn value_of(&self, e: Option<DimExpr>, loc: &Loc) -> Outcome<i64> {
        let e = e.ok_or_else(|| broken("no dimension expression", loc))?;
        substitute(&e, &self.symbols)
            .eval(&|_| None)
            .map_err(|why| fault(Code::E_SHAPE_MISMATCH, why, loc))
    }
}

/// An op's attributes with every symbol replaced by its value.
struct Given {
    attrs: Attrs,
    rank: usize,
}

impl Given {
    fn ints(&self, name: &str) -> Vec<i64> {
        self.attrs.get(name).and_then(Attr::as_ints).unwrap_or_default()
    }

    /// One number for each axis after the first `skip`.
    fn list(&self, name: &str, skip: usize, default: i64) -> Vec<i64> {
        match self.attrs.get(name) {
            None => vec![default; self.rank.saturating_sub(skip)],
            Some(_) => self.ints(name),
        }
    }

    fn axes(&self, name: &str) -> Vec<usize> {
        self.ints(name).iter().map(|&a| a.max(0) as usize).collect()
    }

    fn int(&self, name: &str, default: i64) -> i64 {
        self.attrs.get(name).and_then(Attr::as_int).unwrap_or(default)
    }

    fn axis(&self) -> usize {
        self.int("axis", 0).max(0) as usize
    }

    fn flag(&self, name: &str) -> bool {
        self.attrs.get(name).and_then(Attr::as_bool).unwrap_or(false)
    }

    fn word(&self, name: &str) -> &str {
        self.attrs.get(name).and_then(Attr::as_word).unwrap_or_default()
    }

    fn dtype(&self, name: &str) -> Option<DType> {
        DType::parse(self.word(name))
    }

    fn operator(&self) -> Option<ReduceOp> {
        ReduceOp::from_name(self.word("op"))
    }
}

/// An op with its operands and result types.
struct Ready<'a> {
    code: GraphOp,
    args: Vec<&'a Array>,
    /// How many of `args` are positional.
    positional: usize,
    given: Given,
    results: Vec<Type>,
}

impl<'a> World<'a> {
    /// An op without regions that calls nothing.
    pub fn op(&self, frame: &Frame<'a>, id: OpId) -> Outcome<Vec<Array>> {
        let op = &frame.func.ops[id];
        let loc = &op.loc;
        let args = op.operands.iter().map(|&v| frame.array(v, loc)).collect::<Outcome<Vec<_>>>()?;
        let attrs = substitute_attrs(&op.attrs, op.code.info(), &frame.symbols);
        let of = |values: &[Value]| -> Outcome<Vec<Type>> {
            values.iter().map(|&v| Ok(frame.array(v, loc)?.ty())).collect()
        };
        let mut groups = Vec::new();
        for row in op.code.info().groups {
            groups.push((row.name, of(op.group(row.name))?));
        }
        let operands = of(op.positional())?;
        let written: Vec<_> =
            op.results.iter().map(|&v| substitute_type(frame.func.ty(v), &frame.symbols)).collect();
        let site = Site { operands: &operands, groups: &groups, attrs: &attrs, results: &written };
        let results = types_of(op.code, &site).map_err(|r| fault(r.code, r.message, loc))?;
        for ty in &results {
            let count = ty.shape().iter().try_fold(1i64, |n, d| n.checked_mul(d.as_static()?));
            if count.is_none_or(|n| n > MOST_ELEMENTS) {
                let why = format!("expected an array that fits into memory, got {ty}");
                return Err(fault(Code::E_OOM, why, loc));
            }
        }
        // Operands may be rearranged or made wider on the way.
        let made = results.iter().map(|ty| ty.static_shape().unwrap_or_default());
        let made = made.map(|dims| dims.iter().map(|&d| d.max(0) as usize).product::<usize>());
        let taken = args.iter().map(|x| x.len());
        room(bytes_of(made.chain(taken).sum()), loc)?;
        let rank = args.first().map_or(0, |x| x.dims.len());
        let ready = Ready {
            code: op.code,
            args,
            positional: operands.len(),
            given: Given { attrs, rank },
            results,
        };
        ready.perform().ok_or_else(|| broken("operands of an unexpected type", loc))
    }
}

impl Ready<'_> {
    #[deny(clippy::wildcard_enum_match_arm)]
    fn perform(&self) -> Option<Vec<Array>> {
        let one = |x: Option<Array>| x.map(|x| vec![x]);
        let g = &self.given;
        let x = || self.args.first().copied();
        let arg = |i: usize| self.args.get(i).copied();
        match self.code {
            // `World::advance` runs these.
            GraphOp::KernelCall
            | GraphOp::Return
            | GraphOp::Yield
            | GraphOp::Cond
            | GraphOp::While
            | GraphOp::Loop
            | GraphOp::Call
            | GraphOp::Composite
            | GraphOp::Manual
            | GraphOp::Vary
            | GraphOp::Own
            | GraphOp::AllReduce
            | GraphOp::AllGather
            | GraphOp::ReduceScatter
            | GraphOp::AllToAll
            | GraphOp::Permute
            | GraphOp::FromRank
            | GraphOp::AxisIndex => None,
            GraphOp::Const => one(self.constant()),
            GraphOp::Iota => one(self.iota()),
            GraphOp::Select => {
                let (cond, a, b) = (x()?, arg(1)?, arg(2)?);
                // A condition of one element is also one for one element.
                let data = select(&cond.data, a.data.clone(), b.data.clone())?;
                one(Some(Array { elem: self.elem()?, data, ..a.clone() }))
            }
            GraphOp::Cast => one(self.cast()),
            GraphOp::Bitcast => {
                let from = x()?;
                let elem = self.elem()?;
                let data = crate::convert::bitcast(&from.data, from.dtype(), elem.storage);
                one(Some(Array::new(from.dims.clone(), elem, data)))
            }
            GraphOp::Dim => {
                let value = g.attrs.get("name").and_then(Attr::as_int)?;
                one(Some(Array::new(Vec::new(), self.elem()?, Data::I64(vec![value]))))
            }
            // A placement changes no value.
            GraphOp::StopGradient | GraphOp::Shard => one(x().cloned()),
            GraphOp::OptBarrier => Some(self.args.iter().map(|&x| x.clone()).collect()),
            GraphOp::Broadcast => one(broadcast(x()?, &self.dims()?, &g.ints("dims"))),
            GraphOp::Reshape => one(Some(Array { dims: self.dims()?, ..x()?.clone() })),
            GraphOp::Transpose => one(transpose(x()?, &g.axes("perm"))),
            GraphOp::Slice => {
                let (start, step) = (g.ints("start"), g.list("stride", 0, 1));
                one(strided(x()?, &self.dims()?, &start, &step, None))
            }
            GraphOp::Pad => {
                let fill = arg(1)?.scalar()?;
                one(pad(x()?, &self.dims()?, &g.ints("lo"), &g.list("interior", 0, 0), fill))
            }
            GraphOp::Concat => one(concat(&self.args, &self.dims()?, g.axis())),
            GraphOp::Reverse => one(reverse(x()?, &g.axes("axes"))),
            GraphOp::DynamicSlice => {
                let (x, dims) = (x()?, self.dims()?);
                let starts = inside(&self.starts()?, &dims, &x.dims);
                one(strided(x, &dims, &starts, &vec![1; dims.len()], None))
            }
            GraphOp::DynamicUpdateSlice => one(update(x()?, arg(1)?, &self.starts()?)),
            GraphOp::Gather => {
                let (x, dims) = (x()?, self.dims()?);
                let places = self.indexing("clamp").places(x, arg(1)?, &dims)?;
                let fill = match arg(2) {
                    Some(other) => other.scalar()?,
                    None => Scalar::zero(x.dtype()),
                };
                one(x.take(&dims, &places, Some(fill)))
            }
            GraphOp::Scatter => {
                let (x, updates) = (x()?, arg(2)?);
                let places = self.indexing("drop").places(x, arg(1)?, &updates.dims)?;
                one(scatter(x, updates, &places, scatter_op(g.word("op"))))
            }
            GraphOp::Reduce => one(reduce::reduce(x()?, g.operator()?, &g.axes("axes"))),
            GraphOp::ArgReduce => one(reduce::arg_reduce(x()?, g.word("op") == "max", g.axis())),
            GraphOp::Scan => {
                let (exclusive, back) = (g.flag("exclusive"), g.flag("reverse"));
                one(reduce::scan(x()?, g.operator()?, g.axis(), exclusive, back))
            }
            GraphOp::Sort => {
                let keys = g.int("keys", 1).max(1) as usize;
                sort::sort(&self.args, g.axis(), keys, g.flag("descending"))
            }
            GraphOp::Dot => one(self.dot()),
            GraphOp::Conv => one(self.conv()),
            GraphOp::WindowReduce => one(self.window().reduce(x()?, g.operator()?, &self.dims()?)),
            GraphOp::WindowArgReduce => {
                one(self.window().arg_reduce(x()?, g.word("op") == "max", &self.dims()?))
            }
            GraphOp::Philox => {
                let word = g.int("word", 0).clamp(0, 3) as usize;
                let (key, counter) = (x()?, arg(1)?);
                let data = crate::philox::philox(&key.data, &counter.data, word)?;
                one(Some(Array::new(counter.dims.clone(), self.elem()?, data)))
            }
            GraphOp::Ew(f) => one(self.elementwise(f)),
        }
    }

    fn dims(&self) -> Option<Vec<usize>> {
        let shape = self.results.first()?.static_shape()?;
        shape.iter().map(|&d| usize::try_from(d).ok()).collect()
    }

    fn elem(&self) -> Option<NumType> {
        self.results.first().map(elem)
    }

    fn constant(&self) -> Option<Array> {
        let (dims, elem) = (self.dims()?, self.elem()?);
        let dtype = elem.storage;
        if let Some(text) = self.given.attrs.get("data").and_then(Attr::as_str) {
            return Some(Array::new(dims, elem, Data::decode(dtype, &hex_bytes(text)?)));
        }
        let value = match self.given.attrs.get("value")? {
            Attr::Bool(v) => Scalar::Bool(*v),
            // Values above i64::MAX are written as the i64 with the same bits.
            Attr::Int(v) if dtype == DType::U64 => Scalar::U64(*v as u64),
            Attr::Int(v) => Scalar::I64(*v),
            Attr::Float(v) => Scalar::F64(*v),
            _ => return None,
        };
        let n = dims.iter().product();
        Some(Array::new(dims, elem, Data::fill(cast(value, value.dtype(), dtype), n)))
    }

    fn iota(&self) -> Option<Array> {
        let (dims, elem) = (self.dims()?, self.elem()?);
        let axis = self.given.axis();
        let (_, len, inner) = reduce::around(&dims, axis);
        let n: usize = dims.iter().product();
        let places: Vec<i64> = (0..n).map(|i| (i / inner % len) as i64).collect();
        let data = convert(&Arc::new(Data::I64(places)), DType::I64, elem.storage)?;
        Some(Array { dims, elem, data })
    }

    fn cast(&self) -> Option<Array> {
        let (x, elem) = (*self.args.first()?, self.elem()?);
        let g = &self.given;
        let round = match Rounding::from_name(g.word("round")).unwrap_or(elem.rounding()) {
            // Stochastic rounding has no random draw here; round to nearest is its expectation.
            Rounding::Stochastic => Rounding::Rne,
            round => round,
        };
        let saturate = g.attrs.get("saturate").and_then(Attr::as_bool).unwrap_or(elem.saturates());
        let data = crate::convert::cast(x.data.clone(), x.dtype(), elem.storage, round, saturate)?;
        Some(Array { dims: x.dims.clone(), elem, data })
    }

    fn elementwise(&self, f: ScalarFn) -> Option<Array> {
        let first = *self.args.first()?;
        let carrier = first.dtype().carrier();
        let args = self.args.iter().map(|x| x.data.clone()).collect();
        let data = apply(f, f.kernel(carrier)?, args)?;
        let elem = self.elem()?;
        let data = store(data, f.result(carrier), elem, false)?;
        Some(Array { dims: first.dims.clone(), elem, data })
    }

    /// The positions of a dynamic slice.
    fn starts(&self) -> Option<Vec<i64>> {
        self.args[self.positional..].iter().map(|x| ints(x)?.first().copied()).collect()
    }

    fn indexing(&self, default: &str) -> Indexing {
        let outside = match self.given.word("oob") {
            "" => default,
            word => word,
        };
        Indexing {
            axes: self.given.axes("axes"),
            batch: self.given.int("batch", 0).max(0) as usize,
            clamp: outside == "clamp",
        }
    }

    fn window(&self) -> Window {
        let g = &self.given;
        Window {
            extent: g.axes("window"),
            strides: g.list("strides", 0, 1),
            lo: g.list("lo", 0, 0),
            dilate: g.list("dilate", 0, 1),
        }
    }

    fn sums(&self) -> Option<(DType, NumType)> {
        let (a, b) = (self.args.first()?.ty(), self.args.get(1)?.ty());
        let (accum, _) = dtypes(&a, &b, self.given.dtype("accum"), self.given.dtype("out")).ok()?;
        Some((accum, self.elem()?))
    }

    fn dot(&self) -> Option<Array> {
        let g = &self.given;
        let sides = Sides {
            batch: [g.axes("batch_a"), g.axes("batch_b")],
            contract: [g.axes("contract_a"), g.axes("contract_b")],
        };
        let (accum, out) = self.sums()?;
        dot(self.args[0], self.args[1], &sides, accum, out)
    }

    fn conv(&self) -> Option<Array> {
        let g = &self.given;
        let moves = Moves {
            strides: g.list("strides", 2, 1),
            lo: g.list("lo", 2, 0),
            hi: g.list("hi", 2, 0),
            dilate_x: g.list("dilate_x", 2, 1),
            dilate_w: g.list("dilate_w", 2, 1),
            groups: g.int("groups", 1).max(1) as usize,
        };
        let (accum, out) = self.sums()?;
        conv(self.args[0], self.args[1], &moves, &self.dims()?, accum, out)
    }
}
