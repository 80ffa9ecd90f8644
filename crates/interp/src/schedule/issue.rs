//! The host's side of a run: it goes through the plan, gives steps to queues, and waits for values
//! that decide.

use super::queues::{Job, Queues};
use super::{PlanSteps, QueueOrder};
use crate::HostArray;
use crate::fault::broken;
use crate::interrupt::Poll;
use crate::room::room;
use std::collections::BTreeMap;
use tessera_diag::{Diagnostics, Loc};
use tessera_ir::{Attr, BlockId, DimExpr, Func, OpId, Privilege, Type, Value};
use tessera_numerics::Scalar;
use tessera_schedule::{Place, SchedOp, Schedule, Space, accesses, place, space, whole};
use tessera_target::{ArgValue, BufferArg, LaunchArgs};

/// What memory holds that nothing was written to, or that was freed: a NaN of every float type, and
/// a large negative integer.
const POISON: u8 = 0xff;

/// Every allocation of a device begins at a multiple of it.
const ALIGN: usize = 256;

pub(super) struct Host<'a> {
    func: &'a Func<Schedule>,
    dims: BTreeMap<String, i64>,
    steps: &'a mut dyn PlanSteps,
    queues: Queues,
    /// The memory of the plan; it does not move.
    blocks: Vec<Vec<u8>>,
    /// The first byte of each piece of memory.
    bases: BTreeMap<Value, *mut u8>,
    /// Integers: the indices of the loops around, and scalar arguments.
    numbers: BTreeMap<Value, Scalar>,
    /// The extents of arguments that the type leaves open.
    extents: BTreeMap<Value, Vec<i64>>,
    /// The event that a value is now.
    events: BTreeMap<Value, usize>,
    recorded: usize,
    poll: Poll,
}

fn size(ty: &Type) -> usize {
    let count: i64 = ty.static_shape().unwrap_or_default().iter().map(|&d| d.max(0)).product();
    count as usize * ty.dtype().bytes()
}

impl<'a> Host<'a> {
    pub fn new(
        func: &'a Func<Schedule>,
        inputs: &mut [HostArray],
        dims: BTreeMap<String, i64>,
        steps: &'a mut dyn PlanSteps,
        order: QueueOrder,
    ) -> Result<Self, Diagnostics> {
        let mut host = Host {
            func,
            dims,
            steps,
            queues: Queues::new(order),
            blocks: Vec::new(),
            bases: BTreeMap::new(),
            numbers: BTreeMap::new(),
            extents: BTreeMap::new(),
            events: BTreeMap::new(),
            recorded: 0,
            poll: Poll::start(),
        };
        for (&param, input) in func.params().iter().zip(inputs) {
            if matches!(func.ty(param), Type::Scalar(_)) {
                host.numbers.extend(input.scalars().first().map(|&v| (param, v)));
            } else {
                host.bases.insert(param, input.bytes.as_mut_ptr());
                host.extents.insert(param, input.dims.clone());
            }
        }
        host.memory()?;
        Ok(host)
    }

    /// New memory, which begins as that of a device's pool does.
    fn block(&mut self, bytes: usize, loc: &Loc) -> Result<*mut u8, Diagnostics> {
        let bytes = bytes.saturating_add(ALIGN);
        room(bytes, loc).map_err(|e| Diagnostics::from(*e))?;
        let mut block = vec![POISON; bytes];
        let base = block.as_mut_ptr();
        let base = base.wrapping_add(base.align_offset(ALIGN));
        self.blocks.push(block);
        Ok(base)
    }

    /// Memory of all stores and constants: one block for those with a place in each space, and one
    /// for each of the others.
    fn memory(&mut self) -> Result<(), Diagnostics> {
        let func = self.func;
        let mut placed: BTreeMap<(Space, i64), Vec<(Value, usize)>> = BTreeMap::new();
        for id in func.walk() {
            let op = &func.ops[id];
            match op.code {
                SchedOp::Constant => {
                    let bytes = self.steps.constant(id)?;
                    if bytes.len() != size(func.ty(op.result())) {
                        return Err((*broken("a constant of another size", &op.loc)).into());
                    }
                    let base = self.block(bytes.len(), &op.loc)?;
                    // SAFETY: the block is as long.
                    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), base, bytes.len()) }
                    self.bases.insert(op.result(), base);
                }
                SchedOp::Store => match op.attr("at").and_then(Attr::as_int) {
                    Some(at) => {
                        let all = placed.entry(space(func, op.result())).or_default();
                        all.push((op.result(), at as usize));
                    }
                    None => {
                        let base = self.block(size(func.ty(op.result())), &op.loc)?;
                        self.bases.insert(op.result(), base);
                    }
                },
                _ => {}
            }
        }
        for all in placed.into_values() {
            let bytes = all.iter().map(|(v, at)| at.saturating_add(size(func.ty(*v)))).max();
            let base = self.block(bytes.unwrap_or(0), &func.loc)?;
            for (v, at) in all {
                self.bases.insert(v, base.wrapping_add(at));
            }
        }
        Ok(())
    }

    pub fn run(mut self) -> Result<Vec<HostArray>, Diagnostics> {
        let func = self.func;
        self.steps_of(func.body)?;
        while !self.queues.is_over() {
            self.one()?;
        }
        let Some(end) = func.terminator(func.body) else { return Ok(Vec::new()) };
        let results = func.ops[end].group("values");
        Ok(results.iter().map(|&v| self.array(v)).collect())
    }

    fn array(&self, v: Value) -> HostArray {
        let ty = self.func.ty(v);
        let bytes = size(ty);
        // SAFETY: the verifier lets a plan return memory of its own, of the type's size.
        let bytes = unsafe { std::slice::from_raw_parts(self.bases[&v], bytes) }.to_vec();
        let dims = ty.static_shape().unwrap_or_default();
        HostArray { dims, dtype: ty.dtype(), bytes }
    }

    fn steps_of(&mut self, block: BlockId) -> Result<(), Diagnostics> {
        let func = self.func;
        for &id in &func.blocks[block].ops {
            self.step(id)?;
        }
        Ok(())
    }

    fn step(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let on = place(op);
        match op.code {
            SchedOp::Store
            | SchedOp::Fused
            | SchedOp::Constant
            | SchedOp::View
            | SchedOp::Yield
            | SchedOp::Return => Ok(()),
            SchedOp::Launch | SchedOp::Call | SchedOp::Host | SchedOp::Collective => {
                let args = Box::new(self.launch(id)?);
                self.give(on, Job::Run(id, args))
            }
            SchedOp::Copy => {
                let (from, to) = (self.buffer(op.operands[0]), self.buffer(op.operands[1]));
                self.give(on, Job::Copy(from, to))
            }
            SchedOp::Free => {
                let memory = self.buffer(op.operands[0]);
                self.give(on, Job::Free(memory))
            }
            SchedOp::Record => {
                self.recorded += 1;
                self.events.insert(op.result(), self.recorded);
                self.give(on, Job::Record(self.recorded))
            }
            SchedOp::Wait => match self.events.get(&op.operands[0]) {
                Some(&event) => self.give(on, Job::Wait(event)),
                None => Err((*broken("an event that was not recorded", &op.loc)).into()),
            },
            SchedOp::If => {
                let region = if self.truth(op.operands[0], on)? { 0 } else { 1 };
                self.steps_of(op.regions[region])
            }
            SchedOp::While => loop {
                self.steps_of(op.regions[0])?;
                let end = func.terminator(op.regions[0]).map(|end| func.ops[end].operands[0]);
                match end {
                    Some(pred) if self.truth(pred, on)? => self.steps_of(op.regions[1])?,
                    _ => return Ok(()),
                }
            },
            SchedOp::Loop => {
                let trip = op.attr("trip").and_then(Attr::as_int).unwrap_or(0);
                let reverse = op.attr("reverse").and_then(Attr::as_bool).unwrap_or(false);
                let body = op.regions[0];
                for iteration in 0..trip {
                    let i = if reverse { trip - 1 - iteration } else { iteration };
                    let index = func.blocks[body].args[0];
                    self.numbers.insert(index, Scalar::I64(i));
                    let position = self.buffer(op.operands[0]);
                    self.give(on, Job::Index(position, i))?;
                    self.steps_of(body)?;
                }
                Ok(())
            }
        }
    }

    fn give(&mut self, on: Place, job: Job) -> Result<(), Diagnostics> {
        self.poll.poll().map_err(|e| Diagnostics::from(*e))?;
        self.queues.give(on, job);
        while self.queues.is_due() {
            self.one()?;
        }
        Ok(())
    }

    /// Reads a value behind the work of a queue.
    fn truth(&mut self, v: Value, on: Place) -> Result<bool, Diagnostics> {
        while !self.queues.is_empty(on) {
            self.one()?;
        }
        // SAFETY: the verifier lets one bool in memory decide.
        Ok(unsafe { self.buffer(v).data.read() } != 0)
    }

    fn one(&mut self) -> Result<(), Diagnostics> {
        let Some(job) = self.queues.next() else {
            return Err((*broken("queues that wait for each other", &self.func.loc)).into());
        };
        match job {
            Job::Run(id, args) => self.steps.run(id, &args)?,
            Job::Copy(from, to) => write(&to, &read(&from)),
            Job::Index(to, i) => write(&to, &i.to_le_bytes()),
            Job::Free(memory) => {
                let poison = vec![POISON; read(&memory).len()];
                write(&memory, &poison);
            }
            Job::Record(_) | Job::Wait(_) => {}
        }
        Ok(())
    }

    /// Where a value is now, in the iterations of the loops around.
    fn buffer(&self, v: Value) -> BufferArg {
        let func = self.func;
        let root = whole(func, v);
        let mut data = self.bases.get(&root).copied().unwrap_or(std::ptr::null_mut());
        let mut at = v;
        while at != root
            && let Some(op) = func.def(at)
        {
            let mut offset = op.attr("offset").and_then(Attr::as_int).unwrap_or(0);
            let moves = op.attr("iteration_bytes").and_then(Attr::as_ints).unwrap_or_default();
            for (index, by) in op.group("at").iter().zip(moves) {
                if let Some(Scalar::I64(i)) = self.numbers.get(index) {
                    offset += i * by;
                }
            }
            data = data.wrapping_offset(offset as isize);
            at = op.operands[0];
        }
        let ty = func.ty(v);
        let dims = ty.static_shape().or_else(|| self.extents.get(&v).cloned()).unwrap_or_default();
        let strides = func.def(v).and_then(|op| op.attr("strides")).and_then(Attr::as_ints);
        let width = ty.dtype().bytes() as i64;
        let strides = strides.unwrap_or_else(|| {
            (0..dims.len())
                .map(|i| width * dims[i + 1..].iter().map(|d| d.max(&1)).product::<i64>())
                .collect()
        });
        let writable = matches!(ty, Type::View { privilege, .. } if *privilege != Privilege::Read);
        BufferArg { data, dims, strides, dtype: ty.dtype(), writable }
    }

    fn launch(&self, id: OpId) -> Result<LaunchArgs, Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let written: Vec<Value> =
            accesses(func, id).into_iter().filter(|a| a.writes).map(|a| a.value).collect();
        let listed = op.attr("writes").is_some();
        let params = op.operands.iter().map(|v| match self.numbers.get(v) {
            Some(&number) => ArgValue::Scalar(number),
            None => {
                let buffer = self.buffer(*v);
                let writable = if listed { written.contains(v) } else { buffer.writable };
                ArgValue::Buffer(BufferArg { writable, ..buffer })
            }
        });
        let symbol = |name: &str| self.dims.get(name).copied();
        let broken = |what| Diagnostics::from(*broken(what, &op.loc));
        let extents = |name: &str| -> Result<Vec<i64>, Diagnostics> {
            let list = op.attr(name).and_then(|a| a.as_exprs().or_else(|| a.as_extents()));
            let eval = |e: &DimExpr| e.eval(&symbol).map_err(|_| broken("an extent without value"));
            list.unwrap_or_default().iter().map(eval).collect()
        };
        let mut out = LaunchArgs {
            params: params.collect(),
            dims: self.dims.clone(),
            grid: [1; 3],
            domain: [0; 3],
            lanes: 1,
        };
        let (grid, domain) = (extents("grid")?, extents("domain")?);
        out.grid.iter_mut().zip(grid).for_each(|(to, n)| *to = n);
        if !domain.is_empty() {
            out.domain = [1; 3];
            for (axis, (n, lanes)) in domain.into_iter().zip(extents("lanes")?).enumerate() {
                out.domain[axis] = n;
                out.grid[axis] = n.div_euclid(lanes) + i64::from(n % lanes != 0);
                out.lanes *= lanes;
            }
        }
        Ok(out)
    }
}

/// Calls `each` with the address of every element, in row-major order.
fn elements(array: &BufferArg, axis: usize, at: *mut u8, each: &mut dyn FnMut(*mut u8)) {
    match array.dims.get(axis) {
        None => each(at),
        Some(&extent) => {
            for i in 0..extent {
                elements(
                    array,
                    axis + 1,
                    at.wrapping_offset((i * array.strides[axis]) as isize),
                    each,
                );
            }
        }
    }
}

fn read(from: &BufferArg) -> Vec<u8> {
    let width = from.dtype.bytes();
    let mut out = Vec::new();
    elements(from, 0, from.data, &mut |at| {
        // SAFETY: the verifier keeps parts inside their memory.
        out.extend_from_slice(unsafe { std::slice::from_raw_parts(at, width) });
    });
    out
}

fn write(to: &BufferArg, bytes: &[u8]) {
    let mut elements_left = bytes.chunks_exact(to.dtype.bytes());
    elements(to, 0, to.data, &mut |at| {
        if let Some(one) = elements_left.next() {
            // SAFETY: as in `read`.
            unsafe { std::ptr::copy_nonoverlapping(one.as_ptr(), at, one.len()) }
        }
    });
}
