//! Derivatives of kernels (LANGUAGE 15): from the Tile IR of a kernel the Tile IR of kernels that
//! compute its cotangents or tangents, and the calls of them in Graph IR.
//!
//! | file | what |
//! |---|---|
//! | `study.rs` | activity analysis, where memory is read and written, what is a sum |
//! | `class.rs` | which kernels are refused, and why |
//! | `reverse.rs`, `rules.rs` | the adjoint of a kernel, in one kernel |
//! | `contract.rs` | the adjoints of a contraction, one kernel for each input (K3) |
//! | `tangent.rs` | forward mode |
//! | `combine.rs` | reductions and scans by functions of the user's |
//! | `asm.rs` | texts of assembly |
//! | `parts.rs` | slices, concatenation, elements by position, sorting |
//! | `value_and_grad.rs` | the derivative of a function that a kernel calls, inside the kernel |
//! | `tidy.rs` | dead code elimination |
//! | `calls.rs` | the rule of `graph.kernel_call` |

mod asm;
mod calls;
mod class;
mod combine;
mod contract;
mod parts;
mod reverse;
mod rules;
mod study;
mod tangent;
mod tidy;
mod value_and_grad;
mod weave;

pub use calls::primal as primal_call;
pub use value_and_grad::value_and_grad;

use std::collections::BTreeMap;
use tessera_tile::TileFunc;

/// A kernel that functions of a module call.
#[derive(Clone, Debug)]
pub struct KernelDef {
    /// After lifting, normalisation and geometry: where it runs is in its attributes.
    pub func: TileFunc,
    /// For each of its parameters, the argument of the call.
    pub args: Vec<usize>,
    /// Whether it was made here: it has no Python function.
    pub derived: bool,
    /// Whether it belongs to the code of the functions that call it, and has no name of its own for
    /// users.
    pub placed: bool,
    /// Nothing of it is chosen when it is launched: a call may be a launch of the function's plan.
    pub settled: bool,
}

/// The kernels that a module calls, by the name in the call.
#[derive(Clone, Debug, Default)]
pub struct KernelSet {
    all: BTreeMap<String, KernelDef>,
}

impl KernelSet {
    pub fn get(&self, name: &str) -> Option<&KernelDef> {
        self.all.get(name)
    }

    pub fn insert(&mut self, name: &str, def: KernelDef) {
        self.all.insert(name.to_string(), def);
    }

    /// Names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all.keys().map(String::as_str)
    }

    /// Puts a made kernel in; one with the same text keeps its name.
    fn add(&mut self, mut func: TileFunc, base: &str) -> String {
        for number in 0.. {
            let name = if number == 0 { base.to_string() } else { format!("{base}.{number}") };
            func.name = name.clone();
            match self.all.get(&name) {
                Some(there) if there.derived && there.func.to_string() == func.to_string() => {
                    return name;
                }
                Some(_) => continue,
                None => {
                    let args = (0..func.params().len()).collect();
                    self.all.insert(
                        name.clone(),
                        KernelDef { func, args, derived: true, placed: true, settled: true },
                    );
                    return name;
                }
            }
        }
        base.to_string()
    }
}
