//! From the words of an assembler back to the assembly text of the user's that it refused.

use crate::inst::Inst;
use crate::module::{Module, Stmt};
use tessera_diag::{Code, Diagnostic, Loc};
use tessera_tile::{TileFunc, is_asm};

/// The error at the user's line, where a line of the assembler's log speaks of a text of the user's.
/// The log is of the module's text without places.
pub fn refused_text(module: &Module, func: &TileFunc, log: &[String]) -> Option<Diagnostic> {
    let (line, said) = log.iter().find_map(|line| {
        // `ptxas name, line 14; error   : …`
        let (head, said) = line.lines().next()?.split_once(" : ")?;
        let (_, number) = head.split_once(", line ")?;
        let digits = number.split(|c: char| !c.is_ascii_digit()).next()?;
        let wrong = head.contains("error") || head.contains("fatal");
        Some((digits.parse::<usize>().ok().filter(|_| wrong)?, said.trim().to_string()))
    })?;
    let loc = place_of(module, func, line)?;
    let message = format!("the assembler refused this text for ptx: {said}");
    let mut error = Diagnostic::new(Code::E_TARGET_CODEGEN, message).at(loc).help(
        "correct the instruction; registers have 16 bits for 8- and 16-bit dtypes, 32 or 64 for the others, and a \
         bool is a predicate",
    );
    error.notes = log.to_vec();
    Some(error)
}

/// The place of the text that stands at a line of the module, counted from 1.
fn place_of(module: &Module, func: &TileFunc, line: usize) -> Option<Loc> {
    let kernel = module.kernels.first()?;
    let mut empty = module.clone();
    empty.kernels.truncate(1);
    empty.kernels[0].body.clear();
    // All but the brace that ends the kernel.
    let mut next = empty.text_without_places().lines().count();
    let mut place = None;
    for stmt in &kernel.body {
        match stmt {
            Stmt::Place { file, line, column } => place = Some((*file, *line, *column)),
            Stmt::Note(_) => {}
            Stmt::Label(_) => next += 1,
            Stmt::Inst { inst, .. } => {
                let lines = inst.to_string().lines().count().max(1);
                if (next..next + lines).contains(&line) {
                    let is_text = matches!(inst, Inst::Text { .. });
                    return is_text.then(|| loc_of(module, func, place?)).flatten();
                }
                next += lines;
            }
        }
    }
    None
}

fn loc_of(module: &Module, func: &TileFunc, (file, line, column): (u32, u32, u32)) -> Option<Loc> {
    let name = module.files.get(file as usize - 1)?;
    let here = |loc: &Loc| {
        loc.file().is_some_and(|f| *f.name == **name)
            && (loc.line(), loc.column()) == (line, column)
    };
    let ops = func.walk().into_iter().map(|id| &func.ops[id]);
    ops.filter(|op| is_asm(op.code)).map(|op| op.loc.clone()).find(here)
}
