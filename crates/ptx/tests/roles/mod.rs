//! Warp-specialized functions of Staged IR, as PTX: results are those of the interpreter of Staged
//! IR, and the assembler accepts the code.

mod copies;
mod harness;
mod products;
mod wgmma;
