//! A plan run from its text by the interpreter of Schedule IR: the oracle of executors.

use super::program::GraphProgram;
use super::rank_run::WithRanks;
use super::run::GraphKernels;
use std::collections::BTreeMap;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_graph::GraphModule;
use tessera_interp::{HostArray, NoKernels, PlanSteps, QueueOrder, run_graph, run_schedule};
use tessera_ir::{OpId, parse_module};
use tessera_plan::{Meaning, Origin};
use tessera_schedule::Schedule;
use tessera_target::{ArgValue, BufferArg, LaunchArgs};

impl GraphProgram {
    /// Runs what [`Self::plan_text`] prints, with the program's compiled kernels, on arrays in host
    /// memory. Steps of different queues run in this order.
    pub fn interpret(
        &self,
        inputs: &[HostArray],
        kernels: &mut dyn GraphKernels,
        order: QueueOrder,
    ) -> Result<Vec<HostArray>, Diagnostics> {
        let module = parse_module::<Schedule>(&self.plan_text(), "<plan>")?;
        let [func] = &module.funcs[..] else { return Err(unknown("a function")) };
        // Op by op the same, under other numbers.
        let (read, written) = (func.walk(), self.written.func.walk());
        if read.len() != written.len() {
            return Err(unknown("as many ops as the plan has"));
        }
        let written = read.into_iter().zip(written).collect();
        let mut kernels = WithRanks { ranks: &self.ranks, kernels };
        let mut steps = Steps { program: self, written, kernels: &mut kernels };
        let mut out = run_schedule(func, &mut inputs.to_vec(), &mut steps, order)?;
        // A result may have the memory of a value of another shape.
        for (array, ty) in out.iter_mut().zip(self.results()) {
            array.dims = ty.static_shape().unwrap_or_default();
        }
        Ok(out)
    }
}

fn unknown(what: &str) -> Diagnostics {
    Diagnostic::new(Code::E_UNKNOWN, format!("expected {what} in the text of a plan")).into()
}

struct Steps<'a> {
    program: &'a GraphProgram,
    /// The ops of the plan, by those of the text.
    written: BTreeMap<OpId, OpId>,
    kernels: &'a mut dyn GraphKernels,
}

fn length(array: &BufferArg) -> usize {
    super::run::bytes_of(&array.dims, array.dtype)
}

/// The bytes of a whole array.
fn read(array: &BufferArg) -> Vec<u8> {
    match length(array) {
        0 => Vec::new(),
        // SAFETY: arrays of host steps are whole and row-major, and one step runs at a time.
        n => unsafe { std::slice::from_raw_parts(array.data, n) }.to_vec(),
    }
}

fn write(array: &BufferArg, bytes: &[u8]) {
    let n = length(array).min(bytes.len());
    // SAFETY: as in `read`.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), array.data, n) }
}

impl PlanSteps for Steps<'_> {
    fn run(&mut self, step: OpId, args: &LaunchArgs) -> Result<(), Diagnostics> {
        let arrays: Vec<&BufferArg> = args
            .params
            .iter()
            .filter_map(|p| if let ArgValue::Buffer(b) = p { Some(b) } else { None })
            .collect();
        match self.written.get(&step).and_then(|id| self.program.written.steps.get(id)) {
            Some(Meaning::Launch { kernel, .. }) => self.program.kernels[*kernel].launch(args),
            Some(Meaning::Host { op, inputs }) => {
                let mut module = GraphModule::new("op");
                module.funcs.push(op.clone());
                let (from, to) = arrays.split_at(*inputs);
                let host = |a: &&BufferArg| HostArray {
                    dims: a.dims.clone(),
                    dtype: a.dtype,
                    bytes: read(a),
                };
                let from: Vec<HostArray> = from.iter().map(host).collect();
                let out = run_graph(&module, "op", &from, &mut NoKernels)?;
                for (array, to) in out.iter().zip(to) {
                    write(to, &array.bytes);
                }
                Ok(())
            }
            Some(Meaning::Call { kernel, config, privileges, loc }) => {
                let arrays: Vec<BufferArg> = arrays.into_iter().cloned().collect();
                self.kernels.call(kernel, config.as_ref(), privileges, &arrays, None, loc)
            }
            Some(Meaning::Collective(_) | Meaning::Control(_)) | None => {
                Err(unknown("a step of the plan of one device"))
            }
        }
    }

    fn constant(&mut self, constant: OpId) -> Result<Vec<u8>, Diagnostics> {
        let written = &self.program.written;
        let value = self.written.get(&constant).map(|&id| written.func.ops[id].result());
        let buffer = value.and_then(|v| written.buffers.get(&v));
        match buffer.map(|&b| &self.program.plan.buffers[b].origin) {
            Some(Origin::Constant(bytes)) => Ok(bytes.clone()),
            _ => Err(unknown("constants of the plan")),
        }
    }
}
