//! A function on a mesh as the program of a rank, before it is compiled.

use super::calls::MadeKernels;
use super::ranks::{RankPrograms, is_for_cursors};
use std::time::{Duration, Instant};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_graph::{Collective, GraphFunc, GraphModule, GraphOp};
use tessera_ir::{Attr, Type};
use tessera_numerics::Profile;
use tessera_plan::{Chosen, Site, Step};

/// Names the kernel for arrays of these types.
pub type OnBlocks<'a, E> = &'a mut dyn FnMut(&str, &[Type]) -> Result<String, E>;

/// A function on a mesh as the program of a rank.
#[derive(Debug)]
pub struct OnMesh {
    pub module: GraphModule,
    pub(super) collectives: Vec<Collective>,
    /// Why values are where they are, and what requested the collectives; None where nothing was partitioned.
    pub(super) explained: Option<String>,
    /// How long it took.
    pub(super) took: Duration,
}

impl OnMesh {
    /// Its module with the functions that stand for composites.
    pub fn with_chosen(&self, module: &GraphModule, chosen: &Chosen) -> GraphModule {
        let mut all = self.module.clone();
        let roots: Vec<&str> = chosen.names().collect();
        let reached = tessera_graph::walk::reached(module, &roots);
        let missing =
            |f: &&GraphFunc| reached.contains(&f.name) && self.module.func(&f.name).is_none();
        all.funcs.extend(module.funcs.iter().filter(missing).cloned());
        all
    }

    /// Puts the kernels for the blocks of a rank in place of those for whole arrays: `on_blocks(kernel, types of its arrays)` names them.
    pub fn specialise<E>(&mut self, on_blocks: OnBlocks<'_, E>) -> Result<(), E> {
        for func in &mut self.module.funcs {
            for id in func.walk() {
                let op = &func.ops[id];
                let kernel = op.attr("kernel").and_then(Attr::as_ref_name);
                let Some(kernel) = kernel.filter(|_| op.attr("sharding").is_some()) else {
                    continue;
                };
                let types: Vec<Type> = op.operands.iter().map(|&v| func.ty(v).clone()).collect();
                let name = on_blocks(kernel, &types)?;
                let attrs = &mut func.ops[id].attrs;
                attrs.set("kernel", Attr::Ref(name));
                attrs.remove("sharding");
                attrs.remove("contract");
            }
        }
        Ok(())
    }

    /// Refuses kernels for whole arrays that are called on blocks.
    pub(super) fn check_kernels(&self) -> Result<(), Diagnostics> {
        for op in self.module.funcs.iter().flat_map(|f| f.ops.iter()).map(|(_, op)| op) {
            let kernel = op.attr("kernel").and_then(Attr::as_ref_name);
            if let Some(kernel) = kernel.filter(|_| op.attr("sharding").is_some()) {
                let message = format!(
                    "expected a kernel for the blocks of a rank, got @{kernel} for whole arrays"
                );
                let help = "compile the traced function, not its text: only that knows the kernel for other extents";
                let error = Diagnostic::new(Code::E_UNSUPPORTED, message).help(help);
                return Err(error.at(op.loc.clone()).into());
            }
        }
        Ok(())
    }

    /// The composites that nobody has decided about. Programs of ranks that run as one function have their decompositions.
    pub fn undecided(
        &self,
        module: &GraphModule,
        (func, args): (&str, &[Type]),
        chosen: &Chosen,
        kernels: &MadeKernels,
        is_on_device: bool,
    ) -> Result<Vec<Site>, Diagnostics> {
        let (all, off) = (self.with_chosen(module, chosen), crate::knobs::off()?);
        let is_planned =
            |f: &GraphFunc, id| !is_on_device && is_for_cursors(&all, f, id, kernels, off);
        tessera_plan::undecided(&all, func, args, chosen, &is_planned)
    }
}

/// The function as the program of a rank: partitioned where values of it are placed on a mesh, itself where it has such programs. None
/// of a function without a mesh.
pub fn on_mesh(
    module: &GraphModule,
    func: &str,
    args: &[Type],
    profile: Profile,
) -> Result<Option<OnMesh>, Diagnostics> {
    let start = Instant::now();
    if let Some(made) = tessera_shard::partition(module, func, args, profile == Profile::Strict)? {
        let took = start.elapsed();
        tessera_graph::verify_module(&made.module)?;
        let (module, collectives) = (made.module, made.collectives);
        return Ok(Some(OnMesh { module, collectives, explained: Some(made.explained), took }));
    }
    let mut of = module.funcs.iter().flat_map(|f| f.ops.iter());
    Ok(of.any(|(_, op)| op.code == GraphOp::Manual).then(|| {
        let mut all = module.clone();
        tessera_graph::walk::dce_module(&mut all, &[func]);
        let collectives = tessera_graph::collectives(&all, func);
        OnMesh { module: all, collectives, explained: None, took: Duration::ZERO }
    }))
}

/// Collectives with the numbers of the buckets that plans of ranks have them in.
pub(super) fn in_buckets(all: &[Collective], programs: &RankPrograms) -> Vec<Collective> {
    let (mut all, mut count) = (all.to_vec(), 0);
    for program in programs.values() {
        joined(&program.program.plan().steps, &mut |how| {
            for member in &how.members {
                let found = all.iter_mut().find(|c| {
                    // A program of one rank may say a narrower dtype than it is combined in.
                    let is_as_large = [c.nbytes, 2 * c.nbytes].contains(&member.bytes);
                    let is_same = c.kind == how.name() && c.axes == how.axes.names;
                    c.bucket.is_none() && is_same && is_as_large && c.loc == member.loc
                });
                if let Some(found) = found {
                    found.bucket = Some(count);
                }
            }
            count += 1;
        });
    }
    all
}

/// The collectives of steps that are several of the program.
fn joined(steps: &[Step], with: &mut dyn FnMut(&tessera_plan::Collective)) {
    for step in steps {
        match step {
            Step::Collective { how, .. } if !how.members.is_empty() => with(how),
            Step::Cond { then, otherwise, .. } => {
                joined(then, with);
                joined(otherwise, with);
            }
            Step::While { test, body, .. } => {
                joined(test, with);
                joined(body, with);
            }
            Step::Loop { body, .. } => joined(body, with),
            Step::Launch { .. }
            | Step::Host { .. }
            | Step::Call { .. }
            | Step::Copy { .. }
            | Step::Collective { .. } => {}
        }
    }
}
