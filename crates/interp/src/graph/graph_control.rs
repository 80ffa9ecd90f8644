//! Functions, regions and calls.

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

impl<'a> World<'a> {
    /// Runs a function on arguments; `loc` is the location of the call.
    pub fn function(
        &mut self,
        func: &'a GraphFunc,
        args: Vec<Array>,
        loc: &Loc,
    ) -> Outcome<Vec<Array>> {
        let mut frame = self.entered(func, args, loc)?;
        self.block(&mut frame, func.body)
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

    /// Runs the ops of a block and returns what its terminator yields.
    pub fn block(&mut self, frame: &mut Frame<'a>, block: BlockId) -> Outcome<Vec<Array>> {
        let func = frame.func;
        for &id in &func.blocks[block].ops {
            let op = &func.ops[id];
            if op.is_terminator() {
                return frame.arrays(&op.operands, &op.loc);
            }
            self.poll.poll()?;
            let results = self.op(frame, id)?;
            frame.set(&op.results, results, &op.loc)?;
        }
        Err(broken("a block without an end", &func.loc))
    }

    fn region(
        &mut self,
        frame: &mut Frame<'a>,
        region: BlockId,
        args: Vec<Array>,
    ) -> Outcome<Vec<Array>> {
        let func = frame.func;
        frame.set(&func.blocks[region].args, args, &func.loc)?;
        self.block(frame, region)
    }

    /// An op with regions, or one that runs something else; `None` for all others.
    #[deny(clippy::wildcard_enum_match_arm)]
    pub fn structured(&mut self, frame: &mut Frame<'a>, id: OpId) -> Outcome<Option<Vec<Array>>> {
        use GraphOp::*;
        let op = &frame.func.ops[id];
        let loc = &op.loc;
        Ok(Some(match op.code {
            Cond => {
                let cond = frame.array(op.operands[0], loc)?;
                let place = if truth(cond, loc)? { 0 } else { 1 };
                self.region(frame, op.regions[place], Vec::new())?
            }
            While => {
                let mut carried = frame.arrays(op.group("init"), loc)?;
                loop {
                    let test = self.region(frame, op.regions[0], carried.clone())?;
                    let test = test.first().ok_or_else(|| broken("no condition", loc))?;
                    if !truth(test, loc)? {
                        break carried;
                    }
                    carried = self.region(frame, op.regions[1], carried)?;
                }
            }
            Loop => self.counted(frame, op)?,
            // A composite is what its decomposition says, whatever kernel planning would choose.
            Call | Composite => {
                let name = tessera_graph::walk::called(op).unwrap_or_default();
                let callee = self.callee(name, loc)?;
                let args = frame.arrays(&op.operands, loc)?;
                self.function(callee, args, loc)?
            }
            KernelCall => self.kernel(frame, op)?,
            Manual => self.manual(frame, id)?,
            Vary | Own | AllReduce | AllGather | ReduceScatter | AllToAll | Permute | FromRank
            | AxisIndex => {
                let name = tessera_ir::Opcode::<tessera_graph::Graph>::mnemonic(op.code);
                let why = format!("expected `{name}` in the program of a rank, got it outside");
                return Err(fault(Code::E_PLACEMENT, why, loc));
            }
            Return | Yield | Const | Iota | Select | Cast | Bitcast | Dim | StopGradient
            | OptBarrier | Broadcast | Reshape | Transpose | Slice | Pad | Concat | Reverse
            | DynamicSlice | DynamicUpdateSlice | Gather | Scatter | Reduce | ArgReduce | Scan
            | Sort | Dot | Conv | WindowReduce | WindowArgReduce | Philox | Ew(_) => {
                return Ok(None);
            }
        }))
    }

    fn counted(
        &mut self,
        frame: &mut Frame<'a>,
        op: &'a Op<tessera_graph::Graph>,
    ) -> Outcome<Vec<Array>> {
        let loc = &op.loc;
        let trip = frame.value_of(op.attr("trip").and_then(Attr::as_expr), loc)?;
        let trip = usize::try_from(trip).map_err(|_| {
            fault(
                Code::E_SHAPE_MISMATCH,
                format!("expected a trip count of 0 or more, got {trip}"),
                loc,
            )
        })?;
        let reverse = op.attr("reverse").and_then(Attr::as_bool).unwrap_or(false);
        let mut carried = frame.arrays(op.group("init"), loc)?;
        let stacks = frame.arrays(op.group("xs"), loc)?;
        for x in &stacks {
            if x.dims.first() != Some(&trip) {
                let why = format!(
                    "expected stacked values with a first axis of {trip}, got {:?}",
                    x.dims
                );
                return Err(fault(Code::E_SHAPE_MISMATCH, why, loc));
            }
        }
        // One row for each position; positions may be visited from the end.
        let mut rows: Vec<Vec<Array>> = vec![Vec::new(); trip];
        for iteration in 0..trip {
            let i = if reverse { trip - 1 - iteration } else { iteration };
            let mut args = vec![Array::new(
                Vec::new(),
                DType::I64.into(),
                crate::value::Data::fill(Scalar::I64(i as i64), 1),
            )];
            let n = carried.len();
            args.append(&mut carried);
            for x in &stacks {
                args.push(step(x, i).ok_or_else(|| broken("a step outside", loc))?);
            }
            carried = self.region(frame, op.regions[0], args)?;
            rows[i] = carried.split_off(n);
        }
        let stacked = &op.results[carried.len().min(op.results.len())..];
        for (column, &result) in stacked.iter().enumerate() {
            let ty = substitute_type(frame.func.ty(result), &frame.symbols);
            carried.push(
                stack(&rows, column, &ty, trip)
                    .ok_or_else(|| broken("steps of two shapes", loc))?,
            );
        }
        Ok(carried)
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
