//! Functions, regions and calls: a position in a function, and how it moves.

use super::array::Array;
use super::eval::Frame;
use super::{KernelCall, World};
use crate::fault::{Outcome, broken, fault};
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::{Code, Loc};
use tessera_graph::dims::{Symbols, same_type, substitute_type};
use tessera_graph::{GraphFunc, GraphOp, elem};
use tessera_ir::{Attr, BlockId, Dim, DimExpr, Op, OpId, Privilege, Type, Value};
use tessera_numerics::{DType, Scalar};

/// A position in a function. Control flow is a stack, so that a program of one rank can stop at a collective and go on later.
pub struct Cursor<'a> {
    /// The function and those that it is called by, the innermost last.
    frames: Vec<Frame<'a>>,
    stack: Vec<Activation>,
}

/// A block that is running. All but the innermost are at the op whose region, or callee, is the next.
struct Activation {
    block: BlockId,
    /// The op that is next.
    at: usize,
    of: Of,
}

/// What a block is of, and what is kept while it runs.
enum Of {
    Function,
    Branch,
    /// The condition of a `while`, with the carried values.
    Test(Vec<Array>),
    Body,
    Loop(Counted),
}

/// A counted loop.
struct Counted {
    trip: usize,
    reverse: bool,
    iteration: usize,
    stacks: Vec<Array>,
    /// One row for each position; positions may be visited from the end.
    rows: Vec<Vec<Array>>,
    carried: usize,
}

impl Counted {
    fn position(&self) -> usize {
        if self.reverse { self.trip - 1 - self.iteration } else { self.iteration }
    }

    /// The arguments of the body.
    fn arguments(&self, carried: Vec<Array>, loc: &Loc) -> Outcome<Vec<Array>> {
        let i = self.position();
        let data = crate::value::Data::fill(Scalar::I64(i as i64), 1);
        let mut args = vec![Array::new(Vec::new(), DType::I64.into(), data)];
        args.extend(carried);
        for x in &self.stacks {
            args.push(step(x, i).ok_or_else(|| broken("a step outside", loc))?);
        }
        Ok(args)
    }
}

/// Where a cursor stops.
pub enum Halt {
    /// The function gave its results.
    Ended(Vec<Array>),
    /// At an op that knows the rank, or that ranks do together: [`Cursor::resume`] takes its results.
    At(OpId),
}

type GraphOps = Op<tessera_graph::Graph>;

impl<'a> Cursor<'a> {
    /// At the beginning of a block.
    pub fn new(frame: Frame<'a>, block: BlockId) -> Self {
        let first = Activation { block, at: 0, of: Of::Function };
        Self { frames: vec![frame], stack: vec![first] }
    }

    /// The function that it is in.
    pub fn frame(&self) -> Outcome<&Frame<'a>> {
        self.frames.last().ok_or_else(|| broken("a function that has ended", &Loc::unknown()))
    }

    fn frame_mut(&mut self) -> Outcome<&mut Frame<'a>> {
        self.frames.last_mut().ok_or_else(|| broken("a function that has ended", &Loc::unknown()))
    }

    /// The op that it is at.
    fn op(&self) -> Outcome<(OpId, &'a GraphOps)> {
        let func = self.frame()?.func;
        let top = self.stack.last();
        let id = top.and_then(|top| func.blocks[top.block].ops.get(top.at).copied());
        let id = id.ok_or_else(|| broken("a block without an end", &func.loc))?;
        Ok((id, &func.ops[id]))
    }

    /// Goes on behind the op that it is at, with its results.
    pub fn resume(&mut self, results: Vec<Array>) -> Outcome<()> {
        let (_, op) = self.op()?;
        self.frame_mut()?.set(&op.results, results, &op.loc)?;
        if let Some(top) = self.stack.last_mut() {
            top.at += 1;
        }
        Ok(())
    }

    fn enter(&mut self, block: BlockId, args: Vec<Array>, of: Of) -> Outcome<()> {
        let frame = self.frame_mut()?;
        let func = frame.func;
        frame.set(&func.blocks[block].args, args, &func.loc)?;
        self.stack.push(Activation { block, at: 0, of });
        Ok(())
    }

    /// A block has ended with these values: goes on with the op that it is of. The results, where it was the function's.
    fn leave(&mut self, values: Vec<Array>) -> Outcome<Option<Vec<Array>>> {
        let Some(ended) = self.stack.pop() else { return Ok(Some(values)) };
        if matches!(ended.of, Of::Function) {
            self.frames.pop();
            if self.stack.is_empty() {
                return Ok(Some(values));
            }
        }
        let (_, op) = self.op()?;
        match ended.of {
            Of::Function | Of::Branch => self.resume(values)?,
            Of::Test(carried) => {
                let test = values.first().ok_or_else(|| broken("no condition", &op.loc))?;
                match truth(test, &op.loc)? {
                    true => self.enter(op.regions[1], carried, Of::Body)?,
                    false => self.resume(carried)?,
                }
            }
            Of::Body => self.enter(op.regions[0], values.clone(), Of::Test(values))?,
            Of::Loop(mut counted) => {
                let mut carried = values;
                let at = counted.position();
                counted.rows[at] = carried.split_off(counted.carried.min(carried.len()));
                counted.iteration += 1;
                self.iterate(counted, carried, op)?;
            }
        }
        Ok(None)
    }

    /// The next iteration of a loop, or what is behind it.
    fn iterate(
        &mut self,
        counted: Counted,
        mut carried: Vec<Array>,
        op: &'a GraphOps,
    ) -> Outcome<()> {
        if counted.iteration < counted.trip {
            let args = counted.arguments(carried, &op.loc)?;
            return self.enter(op.regions[0], args, Of::Loop(counted));
        }
        let frame = self.frame()?;
        let stacked = &op.results[carried.len().min(op.results.len())..];
        for (column, &result) in stacked.iter().enumerate() {
            let ty = substitute_type(frame.func.ty(result), &frame.symbols);
            let made = stack(&counted.rows, column, &ty, counted.trip);
            carried.push(made.ok_or_else(|| broken("steps of two shapes", &op.loc))?);
        }
        self.resume(carried)
    }

    fn start_loop(&mut self, op: &'a GraphOps) -> Outcome<()> {
        let (frame, loc) = (self.frame()?, &op.loc);
        let trip = frame.value_of(op.attr("trip").and_then(Attr::as_expr), loc)?;
        let trip = usize::try_from(trip).map_err(|_| {
            let why = format!("expected a trip count of 0 or more, got {trip}");
            fault(Code::E_SHAPE_MISMATCH, why, loc)
        })?;
        let reverse = op.attr("reverse").and_then(Attr::as_bool).unwrap_or(false);
        let init = frame.arrays(op.group("init"), loc)?;
        let stacks = frame.arrays(op.group("xs"), loc)?;
        if let Some(x) = stacks.iter().find(|x| x.dims.first() != Some(&trip)) {
            let why =
                format!("expected stacked values with a first axis of {trip}, got {:?}", x.dims);
            return Err(fault(Code::E_SHAPE_MISMATCH, why, loc));
        }
        let (rows, carried) = (vec![Vec::new(); trip], init.len());
        let counted = Counted { trip, reverse, iteration: 0, stacks, rows, carried };
        self.iterate(counted, init, op)
    }
}

impl<'a> World<'a> {
    /// Runs a function on arguments; `loc` is the location of the call.
    pub fn function(
        &mut self,
        func: &'a GraphFunc,
        args: Vec<Array>,
        loc: &Loc,
    ) -> Outcome<Vec<Array>> {
        let mut cursor = Cursor::new(self.entered(func, args, loc)?, func.body);
        match self.advance(&mut cursor)? {
            Halt::Ended(results) => Ok(results),
            Halt::At(_) => {
                let (_, op) = cursor.op()?;
                let name = tessera_ir::Opcode::<tessera_graph::Graph>::mnemonic(op.code);
                let why = format!("expected `{name}` in the program of a rank, got it outside");
                Err(fault(Code::E_PLACEMENT, why, &op.loc))
            }
        }
    }

    /// A function that is about to run.
    pub fn entered(&self, func: &'a GraphFunc, args: Vec<Array>, loc: &Loc) -> Outcome<Frame<'a>> {
        let symbols = bind(func, &args, loc)?;
        let mut frame = Frame { func, env: BTreeMap::new(), symbols };
        for (&param, mut arg) in func.params().iter().zip(args) {
            arg.elem = elem(func.ty(param));
            frame.env.insert(param, arg);
        }
        Ok(frame)
    }

    /// Runs to the next op that ranks do together, or to the end.
    #[deny(clippy::wildcard_enum_match_arm)]
    pub fn advance(&mut self, cursor: &mut Cursor<'a>) -> Outcome<Halt> {
        use GraphOp::*;
        loop {
            let (id, op) = cursor.op()?;
            let loc = &op.loc;
            if op.is_terminator() {
                let values = cursor.frame()?.arrays(&op.operands, loc)?;
                match cursor.leave(values)? {
                    Some(results) => return Ok(Halt::Ended(results)),
                    None => continue,
                }
            }
            self.poll.poll()?;
            match op.code {
                Cond => {
                    let cond = cursor.frame()?.array(op.operands[0], loc)?;
                    let place = if truth(cond, loc)? { 0 } else { 1 };
                    cursor.enter(op.regions[place], Vec::new(), Of::Branch)?;
                }
                While => {
                    let carried = cursor.frame()?.arrays(op.group("init"), loc)?;
                    cursor.enter(op.regions[0], carried.clone(), Of::Test(carried))?;
                }
                Loop => cursor.start_loop(op)?,
                // A composite is what its decomposition says, whatever kernel planning would choose.
                Call | Composite => {
                    let name = tessera_graph::walk::called(op).unwrap_or_default();
                    let callee = self.callee(name, loc)?;
                    let args = cursor.frame()?.arrays(&op.operands, loc)?;
                    cursor.frames.push(self.entered(callee, args, loc)?);
                    let (block, of) = (callee.body, Of::Function);
                    cursor.stack.push(Activation { block, at: 0, of });
                }
                Vary | Own | AllReduce | AllGather | ReduceScatter | AllToAll | Permute
                | FromRank | AxisIndex => return Ok(Halt::At(id)),
                KernelCall => {
                    let results = self.kernel(cursor.frame()?, op)?;
                    cursor.resume(results)?;
                }
                Manual => {
                    let results = self.manual(cursor.frame()?, id)?;
                    cursor.resume(results)?;
                }
                Return | Yield | Const | Iota | Select | Cast | Bitcast | Dim | StopGradient
                | OptBarrier | Shard | Broadcast | Reshape | Transpose | Slice | Pad | Concat
                | Reverse | DynamicSlice | DynamicUpdateSlice | Gather | Scatter | Reduce
                | ArgReduce | Scan | Sort | Dot | Conv | WindowReduce | WindowArgReduce
                | Philox | Ew(_) => {
                    let results = self.op(cursor.frame()?, id)?;
                    cursor.resume(results)?;
                }
            }
        }
    }

    fn kernel(
        &mut self,
        frame: &Frame<'a>,
        op: &'a Op<tessera_graph::Graph>,
    ) -> Outcome<Vec<Array>> {
        let arrays = frame.arrays(&op.operands, &op.loc)?;
        let mut args: Vec<_> = arrays.iter().map(Array::to_host).collect();
        let words = op.attr("privileges").and_then(Attr::as_list).unwrap_or_default();
        let privileges: Vec<Privilege> =
            words.iter().filter_map(|w| w.as_word().and_then(Privilege::parse)).collect();
        let call = KernelCall {
            kernel: op.attr("kernel").and_then(Attr::as_ref_name).unwrap_or_default(),
            config: op.attr("config").and_then(Attr::as_dict),
            privileges: &privileges,
            loc: &op.loc,
        };
        if let Err(errors) = self.kernels.call(&call, &mut args) {
            self.errors = errors;
            return Err(broken("a kernel that failed", &op.loc));
        }
        let written = args.iter().zip(&arrays).zip(&privileges).filter(|(_, p)| p.writes());
        Ok(written
            .map(|((host, old), _)| Array { elem: old.elem, ..Array::from_host(host) })
            .collect())
    }
}

pub fn truth(x: &Array, loc: &Loc) -> Outcome<bool> {
    x.scalar().map(Scalar::truth).ok_or_else(|| broken("a condition without a value", loc))
}

pub fn step(x: &Array, i: usize) -> Option<Array> {
    let dims = &x.dims[1..];
    let n = dims.iter().product::<usize>();
    x.take(dims, &(i * n..(i + 1) * n).collect::<Vec<_>>(), None)
}

pub fn stack(rows: &[Vec<Array>], column: usize, ty: &Type, trip: usize) -> Option<Array> {
    let Some(first) = rows.first() else {
        let dims = ty.static_shape()?.iter().map(|&d| d.max(0) as usize).collect();
        return Some(Array::new(
            dims,
            elem(ty),
            crate::value::Data::fill(Scalar::zero(ty.dtype()), 0),
        ));
    };
    let first = first.get(column)?;
    let mut data = (*first.data).clone();
    for row in &rows[1..] {
        let next = row.get(column).filter(|x| x.dims == first.dims)?;
        data = super::shape::append(data, &next.data)?;
    }
    let dims = std::iter::once(trip).chain(first.dims.iter().copied()).collect();
    Some(Array::new(dims, first.elem, data))
}

/// The values of a function's symbols on these arguments.
fn bind(func: &GraphFunc, args: &[Array], loc: &Loc) -> Outcome<Symbols> {
    if func.params().len() != args.len() {
        let (wanted, got) = (func.params().len(), args.len());
        let why = format!("expected {wanted} arguments for @{}, got {got}", func.name);
        return Err(fault(Code::E_ARGUMENT, why, loc));
    }
    let mut symbols = Symbols::new();
    let dims = |param: &Value| func.ty(*param).shape().to_vec();
    for (param, arg) in func.params().iter().zip(args) {
        for (dim, &extent) in dims(param).iter().zip(&arg.dims) {
            if let Dim::Expr(DimExpr::Sym(name)) = dim {
                let name: Arc<str> = name.clone();
                symbols.entry(name).or_insert(DimExpr::Const(extent as i64));
            }
        }
    }
    for (&param, arg) in func.params().iter().zip(args) {
        let wanted = match func.ty(param) {
            Type::Scalar(d) => tessera_graph::scalar(*d),
            ty => substitute_type(ty, &symbols),
        };
        if !same_type(&wanted, &arg.ty()) {
            let name = func.name_of(param).unwrap_or("argument");
            let why = format!("expected %{name} to be {}, got {}", func.ty(param), arg.ty());
            return Err(fault(Code::E_LAUNCH_INVALID_SHAPE, why, loc));
        }
    }
    Ok(symbols)
}
