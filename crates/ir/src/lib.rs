//! The substrate of every IR level: functions with structured regions, types, attributes, the op
//! table, one text grammar with printer and parser, the structural verifier, and the pass manager.
//!
//! A level is a closed table of ops ([`define_ops!`]) and a list of the types it admits. Text,
//! structure checks, hashing and passes come from here and know nothing of any one op.
//!
//! # The text form
//! ```text
//! func @scale(%x: view<[n], f32, read_write>, %alpha: f32) {kind = lane} {
//!   %i = tile.linear_id : i64
//!   %v = tile.load %x at(%i) {extent = [0]} : f32
//!   %w = tile.mul %alpha, %v : f32
//!   tile.store %x, %w at(%i) {extent = [0]}
//!   tile.return
//! }
//! ```
//! `results = level.op operands group(operands) {attributes} : result types do (args) { region }`.
//! Operand types are those of their definitions and are not repeated.

mod attr;
mod build;
mod cursor;
mod expr;
mod func;
mod hash;
mod parse;
mod parse_type;
mod pass;
mod print;
mod rewrite;
mod table;
mod types;
mod verify;

pub use attr::{Attr, Attrs};
pub use build::{Builder, OpSpec};
pub use expr::{DimExpr, DimOp};
pub use func::{Block, BlockId, Func, Level, Module, Op, OpId, Value, ValueData, ValueDef};
pub use parse::{module_level, parse_func, parse_module, parse_module_as};
pub use pass::{Changed, Pass, PassContext, PassManager, PassOptions, PassReport};
pub use print::PrintOptions;
pub use rewrite::Rewriter;
pub use table::{
    AttrKind, AttrSpec, Effects, GroupSpec, InferContext, InferFn, OpInfo, Opcode, OperandSpec,
    RegionSpec, TypeClass,
};
pub use types::{Dim, Field, Privilege, Shape, Type};
pub use verify::{OpErrors, render_in_place, verify};

/// The version every module's text carries; a module of another version is refused.
pub const IR_VERSION: i64 = 1;
