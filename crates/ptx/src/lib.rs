//! NVIDIA GPUs: PTX as typed data, its text, and the lowering from Tile IR.
//!
//! Nothing here needs a GPU, a driver or an assembler. The runtime passes the text to the driver.

pub mod asm;
mod asm_text;
mod atomic;
pub mod caps;
mod chosen;
mod coalesce;
pub mod code;
mod compile;
pub mod count;
pub mod flow;
mod footprint;
#[doc(hidden)]
pub mod inner;
pub mod inst;
mod lane;
pub mod legal;
mod maps;
mod matrix_caps;
pub mod module;
mod name;
pub mod operands;
pub mod print;
mod refusal;
pub mod reports;
pub mod scalar;
mod select;
pub mod speed;
mod spell;
pub mod stamps;
pub mod tools;
pub mod verify;

pub use asm::Asm;
pub use caps::{Feature, PtxCaps};
pub use code::{
    ArrayClass, Classes, Code, MAP_ALIGN, MAP_BYTES, MapRecipe, Placed, Shape, Site, classes_said,
    map_word, push_map, usual_classes,
};
pub use compile::{compile, compile_emulated, compile_staged};
pub use footprint::footprint;
pub use inst::*;
pub use module::*;
pub use refusal::refused_text;
pub use verify::verify;
