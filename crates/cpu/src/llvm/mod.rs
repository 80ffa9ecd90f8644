//! The part of LLVM's C interface that code generation uses, behind handles that are cheap to copy.
//! Everything `unsafe` about LLVM itself is in this folder.
//!
//! Handles belong to the [`Ir`] that gave them; an `Ir` is one module under construction, with its
//! own context, on one thread. Using a handle with another `Ir` is a fault of the compiler.

mod build;
mod flow;
mod jit;
mod machine;

pub use build::{Ir, Ty, Val};
pub use flow::Blk;
pub use jit::{Loaded, Symbol, census, version};
pub use llvm_sys::{
    LLVMAtomicRMWBinOp as AtomicChange, LLVMIntPredicate as IntCmp, LLVMRealPredicate as RealCmp,
};
pub use machine::Machine;
