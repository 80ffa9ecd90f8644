//! The interpreter of Graph IR: a function is evaluated op by op on whole arrays. It is slow and
//! exact; every transform and every lowering is tested against it.
//!
//! Values are held in the carrier of their dtype, always exactly representable in it: an op
//! computes in the carrier (or in the accumulator, for sums) and stores once, by the policy of its
//! result. Before an op runs, its rule is applied again with the extents the arrays really have, so
//! symbolic dims are checked too.

mod array;
mod dot;
mod eval;
mod fold;
mod graph_control;
mod index;
mod ranks;
mod reduce;
mod shape;
mod sort;
mod window;

use crate::HostArray;
use crate::fault::{Outcome, fault};
use crate::interrupt::Poll;
use crate::room::{bytes_of, room};
use array::Array;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_graph::{GraphModule, verify_module};
use tessera_ir::{Attrs, Privilege};

/// A kernel that a function calls, and its arguments.
pub struct KernelCall<'a> {
    pub kernel: &'a str,
    pub config: Option<&'a Attrs>,
    pub privileges: &'a [Privilege],
    /// The location of the call.
    pub loc: &'a Loc,
}

/// Runs kernels for [`run_graph`]: writes the new versions into the arguments. A scalar argument is
/// an array without axes.
pub trait Kernels {
    fn call(&mut self, call: &KernelCall<'_>, args: &mut [HostArray]) -> Result<(), Diagnostics>;
}

/// For functions that call no kernels; a call is refused.
pub struct NoKernels;

impl Kernels for NoKernels {
    fn call(&mut self, call: &KernelCall<'_>, _args: &mut [HostArray]) -> Result<(), Diagnostics> {
        let why =
            format!("expected a function that calls no kernel, got a call of @{}", call.kernel);
        Err(Diagnostic::new(Code::E_UNSUPPORTED, why).at(call.loc.clone()).into())
    }
}

/// Evaluates a function of a module; the arrays are its parameters and its results.
///
/// ```
/// use tessera_interp::{HostArray, NoKernels, run_graph};
/// use tessera_numerics::DType;
/// let text = "module @m : graph {version = 1}
///
/// func @mean(%x: tensor<[n], f32>) {
///   %s = graph.reduce %x {op = sum, axes = [0]} : tensor<[], f32>
///   %n = graph.dim {name = n} : tensor<[], i64>
///   %f = graph.cast %n : tensor<[], f32>
///   %m = graph.div %s, %f : tensor<[], f32>
///   graph.return %m
/// }
/// ";
/// let module = tessera_ir::parse_module(text, "mean").unwrap();
/// let x = HostArray::new(&[4], DType::F32, &[1.0, 2.0, 3.0, 4.0]);
/// let out = run_graph(&module, "mean", &[x], &mut NoKernels).unwrap();
/// assert_eq!(out[0].text(), "[2.5]");
/// ```
pub fn run_graph(
    module: &GraphModule,
    func: &str,
    args: &[HostArray],
    kernels: &mut dyn Kernels,
) -> Result<Vec<HostArray>, Diagnostics> {
    verify_module(module)?;
    let Some(func) = module.func(func) else {
        let why = format!("expected a function of the module, got @{func}");
        return Err(Diagnostic::new(Code::E_NAME, why).into());
    };
    let count = |a: &HostArray| a.bytes.len() / a.dtype.bytes();
    room(bytes_of(args.iter().map(count).sum()), &func.loc).map_err(|e| Diagnostics::from(*e))?;
    let args = args.iter().map(Array::from_host).collect();
    let mut world = World { module, kernels, poll: Poll::start(), errors: Diagnostics::new() };
    match world.function(func, args, &func.loc) {
        Ok(results) => {
            let elements = results.iter().map(Array::len).sum();
            room(bytes_of(elements), &func.loc).map_err(|e| Diagnostics::from(*e))?;
            Ok(results.iter().map(Array::to_host).collect())
        }
        Err(fault) if world.errors.is_empty() => Err((*fault).into()),
        Err(_) => Err(world.errors),
    }
}

/// The state that all functions of a run share.
struct World<'a> {
    module: &'a GraphModule,
    kernels: &'a mut dyn Kernels,
    poll: Poll,
    /// The diagnostics of a kernel that failed.
    errors: Diagnostics,
}

impl<'a> World<'a> {
    fn callee(&self, name: &str, loc: &Loc) -> Outcome<&'a tessera_graph::GraphFunc> {
        self.module
            .func(name)
            .ok_or_else(|| fault(Code::E_NAME, format!("expected a function @{name}"), loc))
    }
}
