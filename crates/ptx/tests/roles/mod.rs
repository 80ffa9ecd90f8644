//! Functions of Staged IR with roles, as PTX: what they compute is what the interpreter of Staged IR
//! says, and the assembler takes them.

mod copies;
mod engine;
mod harness;
mod products;
