//! Texts of assembly: a derivative is that of the other meaning, which takes the place of the text
//! before a kernel is differentiated. Texts over values that do not move stay.

use super::study::Study;
use tessera_ir::OpId;
use tessera_tile::{TileFunc, is_asm, without_asm};

/// The kernel with the other meaning of every text over active values that has one; `None` where
/// there is no such text.
pub fn meant(source: &TileFunc, wrt: &[bool]) -> Option<TileFunc> {
    let mut made: Option<TileFunc> = None;
    loop {
        let func = made.as_ref().unwrap_or(source);
        let study = Study::new(func, wrt);
        let found = |id: OpId| {
            let op = &func.ops[id];
            is_asm(op.code) && !op.regions.is_empty() && study.any(&op.results)
        };
        // What takes the place of a text may hold texts itself.
        match without_asm(func, &found) {
            Some(next) => made = Some(next),
            None => return made,
        }
    }
}
