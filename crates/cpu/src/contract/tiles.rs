use super::Elements;
use super::blocks::{Block, Frame, Panel, Pass};
use crate::llvm::{Ir, Val};
pub(super) fn configure(_ir: &Ir) {}
pub(super) fn release(_ir: &Ir) {}
pub(super) fn block(_f: &Frame, _pass: &Pass, _block: &Block) {}
pub(super) fn fits_in_place(_f: &Frame, _base: Val, _row_bytes: Val) -> Val { todo!() }
pub(super) fn pack_right(_f: &Frame, _pass: &Pass) {}
pub(super) fn pack_left(_f: &Frame, _pass: &Pass, _m: Val, _live: Val, _a: &Elements) -> Panel { todo!() }
