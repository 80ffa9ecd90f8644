//! Lane kernels.
use crate::{code::Code, frame::Frame, isa::Isa, llvm::{Ir, Val}};
use tessera_numerics::Profile;
use tessera_tile::TileFunc;
#[allow(clippy::too_many_arguments)]
pub fn emit(ir: &Ir, _: Isa, _: Profile, _: &TileFunc, _: &Frame, _: &[u32], _: &mut Code, _: [Val; 4]) {
    ir.ret(Some(ir.c64(0)));
}
