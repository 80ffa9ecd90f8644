//! A plan run from its text by the interpreter of Schedule IR: the oracle of executors.

use super::program::GraphProgram;
use super::run::GraphKernels;
use std::collections::BTreeMap;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_graph::GraphModule;
use tessera_interp::{HostArray, NoKernels, PlanSteps, QueueOrder, run_graph, run_schedule};
use tessera_ir::{Attr, Func, OpId, Privilege, parse_module};
use tessera_plan::{Origin, Step};
use tessera_schedule::{SchedOp, Schedule};
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
        let mut own = Vec::new();
        collect(&self.plan.steps, &mut own);
        let of = |codes: &[SchedOp]| -> Vec<OpId> {
            func.walk().into_iter().filter(|&id| codes.contains(&func.ops[id].code)).collect()
        };
        let own = of(&[SchedOp::Host, SchedOp::Call]).into_iter().zip(own).collect();
        let constants = self.plan.buffers.iter().filter_map(|b| match &b.origin {
            Origin::Constant(bytes) => Some(&**bytes),
            Origin::Argument(_) | Origin::Scratch => None,
        });
        let constants = of(&[SchedOp::Constant]).into_iter().zip(constants).collect();
        let mut steps = Steps { program: self, func, own, constants, kernels };
        let mut out = run_schedule(func, &mut inputs.to_vec(), &mut steps, order)?;
        // A result may have the memory of a value of another shape.
        for (array, ty) in out.iter_mut().zip(self.results()) {
            array.dims = ty.static_shape().unwrap_or_default();
        }
        Ok(out)
    }
}

/// The steps whose meaning is not in the text, in its order.
fn collect<'a>(steps: &'a [Step], out: &mut Vec<&'a Step>) {
    for step in steps {
        match step {
            Step::Host { .. } | Step::Call { .. } => out.push(step),
            Step::Launch { .. } | Step::Copy { .. } => {}
            Step::Cond { then, otherwise, .. } => {
                collect(then, out);
                collect(otherwise, out);
            }
            Step::While { test, body, .. } => {
                collect(test, out);
                collect(body, out);
            }
            Step::Loop { body, .. } => collect(body, out),
        }
    }
}

fn unknown(what: &str) -> Diagnostics {
    Diagnostic::new(Code::E_UNKNOWN, format!("expected {what} in the text of a plan")).into()
}

struct Steps<'a> {
    program: &'a GraphProgram,
    func: &'a Func<Schedule>,
    own: BTreeMap<OpId, &'a Step>,
    constants: BTreeMap<OpId, &'a [u8]>,
    kernels: &'a mut dyn GraphKernels,
}

/// The bytes of a whole array.
fn bytes(array: &BufferArg) -> &mut [u8] {
    let count: i64 = array.dims.iter().map(|&d| d.max(0)).product();
    let len = count as usize * array.dtype.bytes();
    let data = if len == 0 { std::ptr::NonNull::dangling().as_ptr() } else { array.data };
    // SAFETY: arrays of host steps are whole and row-major, and one step runs at a time.
    unsafe { std::slice::from_raw_parts_mut(data, len) }
}

impl PlanSteps for Steps<'_> {
    fn run(&mut self, step: OpId, args: &LaunchArgs) -> Result<(), Diagnostics> {
        let arrays: Vec<&BufferArg> = args
            .params
            .iter()
            .filter_map(|p| if let ArgValue::Buffer(b) = p { Some(b) } else { None })
            .collect();
        match self.own.get(&step) {
            None => {
                let name = self.func.ops[step].attr("kernel").and_then(Attr::as_ref_name);
                let place = self.program.plan.kernels.iter().position(|k| Some(&*k.name) == name);
                let place = place.ok_or_else(|| unknown("kernels of the program"))?;
                self.program.kernels[place].launch(args)
            }
            Some(Step::Host { op, inputs, .. }) => {
                let mut module = GraphModule::new("op");
                module.funcs.push(op.clone());
                let (from, to) = arrays.split_at(inputs.len());
                let host = |a: &&BufferArg| HostArray {
                    dims: a.dims.clone(),
                    dtype: a.dtype,
                    bytes: bytes(a).to_vec(),
                };
                let from: Vec<HostArray> = from.iter().map(host).collect();
                let out = run_graph(&module, "op", &from, &mut NoKernels)?;
                for (array, to) in out.iter().zip(to) {
                    bytes(to).copy_from_slice(&array.bytes);
                }
                Ok(())
            }
            Some(Step::Call { kernel, config, args, loc }) => {
                let privileges: Vec<Privilege> = args.iter().map(|(_, p)| *p).collect();
                let arrays: Vec<BufferArg> = arrays.into_iter().cloned().collect();
                self.kernels.call(kernel, config.as_ref(), &privileges, &arrays, None, loc)
            }
            Some(_) => Err(unknown("a step of the host, or a call")),
        }
    }

    fn constant(&mut self, constant: OpId) -> Result<Vec<u8>, Diagnostics> {
        let bytes = self.constants.get(&constant);
        bytes.map(|b| b.to_vec()).ok_or_else(|| unknown("constants of the program"))
    }
}
