//! Assembly text of users in code for x86_64, through LLVM's inline assembly in AT&T syntax: one run
//! for each element of a vector.
//!
//! Registers that a text names are its own: LLVM puts nothing there that is used after it. Those that
//! an instruction changes without naming them must be named too, if only in a comment.

use crate::llvm::{Ir, Ty, Val};
use crate::scalar::Scalars;
use std::collections::BTreeSet;
use tessera_diag::{Code, Diagnostic};
use tessera_ir::{Func, Op};
use tessera_numerics::DType;
use tessera_tile::Tile;
use tessera_tile::ops::asm::{Piece, Wrong, pieces_of, results_of, text_of};

pub struct Text {
    text: String,
    constraints: String,
    results: Vec<DType>,
    operands: Vec<DType>,
}

impl Text {
    pub fn new(func: &Func<Tile>, op: &Op<Tile>) -> Result<Self, Wrong> {
        let mut text = String::new();
        for piece in pieces_of(func, op)? {
            match piece {
                Piece::Text(plain) => text.push_str(&plain.replace('$', "$$")),
                Piece::Register(n) => text.push_str(&format!("${{{n}}}")),
            }
        }
        let results = results_of(func, op).0;
        let operands: Vec<DType> = op.operands.iter().map(|&v| func.ty(v).dtype()).collect();
        // A result must not share a register with an operand: the text may have several
        // instructions.
        let mut constraints: Vec<String> =
            results.iter().map(|&d| format!("=&{}", register(d))).collect();
        constraints.extend(operands.iter().map(|&d| register(d).to_string()));
        let named = named(text_of(op));
        constraints.extend(named.into_iter().map(|r| format!("~{{{r}}}")));
        constraints.extend(["~{dirflag}", "~{fpsr}", "~{flags}"].map(String::from));
        Ok(Self { text, constraints: constraints.join(","), results, operands })
    }

    /// Of an op that was checked before code is made of it.
    pub fn of(func: &Func<Tile>, op: &Op<Tile>) -> Self {
        Self::new(func, op).unwrap_or_else(|why| unreachable!("{}", why.message))
    }

    fn ty(ir: &Ir, dtype: DType) -> Ty {
        match dtype {
            DType::F32 | DType::Tf32 => ir.f32(),
            DType::F64 => ir.f64(),
            _ => ir.int(dtype.bytes() as u32 * 8),
        }
    }

    /// The types of its operands.
    pub fn parameters(&self, ir: &Ir) -> Vec<Ty> {
        self.operands.iter().map(|&d| Self::ty(ir, d)).collect()
    }

    /// One run, of values as registers have them.
    pub fn call(&self, ir: &Ir, args: &[Val], effects: bool) -> Vec<Val> {
        let results: Vec<Ty> = self.results.iter().map(|&d| Self::ty(ir, d)).collect();
        ir.assembly(&self.text, &self.constraints, &results, args, effects)
    }

    /// A run for each lane of vectors in carriers, all of as many lanes.
    pub fn run(&self, s: &Scalars<'_>, args: &[Val], effects: bool) -> Vec<Val> {
        let ir = s.ir;
        let lanes = args.first().map_or(1, |&v| ir.lanes(ir.ty(v)));
        let codes: Vec<Val> =
            self.operands.iter().zip(args).map(|(&d, &x)| code(s, d, x)).collect();
        let mut out: Vec<Val> =
            self.results.iter().map(|&d| ir.undef(ir.vec(Self::ty(ir, d), lanes))).collect();
        for lane in 0..lanes {
            let args: Vec<Val> = codes.iter().map(|&x| ir.extract(x, lane)).collect();
            let made = self.call(ir, &args, effects);
            out.iter_mut().zip(made).for_each(|(out, x)| *out = ir.insert(*out, x, lane));
        }
        self.results.iter().zip(out).map(|(&d, x)| value(s, d, x)).collect()
    }

    /// The error for a text that names what the process does not have.
    pub fn unlinked(&self, op: &Op<Tile>, why: &str) -> Diagnostic {
        let mut error = Diagnostic::new(
            Code::E_TARGET_CODEGEN,
            "this text for x86_64 names a symbol that nothing defines",
        )
        .at(op.loc.clone())
        .help("a text calls no functions and has no names of data: pass addresses and constants as values");
        error.notes.extend(why.lines().filter(|l| !l.trim().is_empty()).map(String::from));
        error
    }

    /// The error for a text that LLVM's assembler refused.
    pub fn refused(&self, op: &Op<Tile>, why: &str) -> Diagnostic {
        let mut error = Diagnostic::new(
            Code::E_TARGET_CODEGEN,
            "the assembler refused this text for x86_64, which is in AT&T syntax",
        )
        .at(op.loc.clone())
        .help(
            "correct the instruction; registers are written %eax and constants $$1, and the destination \
             comes last",
        );
        error.notes.extend(why.lines().filter(|l| !l.trim().is_empty()).map(String::from));
        error
    }
}

/// The register of a value: its bits in memory, or of a float the number.
fn code(s: &Scalars<'_>, dtype: DType, x: Val) -> Val {
    match dtype {
        DType::F32 | DType::F64 | DType::Tf32 => x,
        _ => s.encode(x, dtype),
    }
}

fn value(s: &Scalars<'_>, dtype: DType, x: Val) -> Val {
    match dtype {
        DType::F32 | DType::F64 | DType::Tf32 => x,
        // Only the lowest bit counts.
        DType::Bool => {
            let one = s.ir.const_int(s.ir.ty(x), 1);
            s.decode(s.ir.and(x, one), dtype)
        }
        _ => s.decode(x, dtype),
    }
}

/// LLVM's letter for the registers of a dtype.
fn register(dtype: DType) -> &'static str {
    match (dtype, dtype.bytes()) {
        (DType::F32 | DType::F64 | DType::Tf32, _) => "x",
        (_, 1) => "q",
        _ => "r",
    }
}

/// Registers that a text names by themselves, each by its widest name.
fn named(text: &str) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for part in text.split('%').skip(1) {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(part.len());
        let name = part[..end].to_ascii_lowercase();
        out.extend(widest(&name));
    }
    out
}

/// The name of a whole register by that of a part of it. None for registers that a text only reads:
/// the instruction pointer, segments, and the stack.
fn widest(name: &str) -> Option<String> {
    for wide in ["ax", "bx", "cx", "dx"] {
        let letter = &wide[..1];
        let parts = [wide.to_string(), format!("{letter}l"), format!("{letter}h")];
        if parts.contains(&name.to_string())
            || [format!("e{wide}"), format!("r{wide}")].contains(&name.to_string())
        {
            return Some(format!("r{wide}"));
        }
    }
    for wide in ["si", "di"] {
        if [wide.to_string(), format!("{wide}l"), format!("e{wide}"), format!("r{wide}")]
            .contains(&name.to_string())
        {
            return Some(format!("r{wide}"));
        }
    }
    let digits = |rest: &str| rest.parse::<u32>().ok();
    if let Some(rest) = name.strip_prefix('r') {
        let number = digits(rest.trim_end_matches(['b', 'w', 'd']))?;
        return (8..16).contains(&number).then(|| format!("r{number}"));
    }
    for kind in ["xmm", "ymm", "zmm"] {
        if let Some(number) = name.strip_prefix(kind).and_then(digits) {
            return (number < 32).then(|| format!("xmm{number}"));
        }
    }
    let mask = name.strip_prefix('k').and_then(digits).filter(|n| (1..8).contains(n));
    mask.map(|n| format!("k{n}"))
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn registers_that_a_text_names_are_found_by_their_widest_names() {
        let text =
            "movl ${1}, %ecx; rorb %cl, %R9b; vaddps %ymm3, %xmm2, %zmm31{%k2}; mov %rip, %fs:0";
        let found: Vec<String> = named(text).into_iter().collect();
        assert_eq!(found, ["k2", "r9", "rcx", "xmm2", "xmm3", "xmm31"]);
        assert!(named("pushfq; pop %rsp; foo %rbp").is_empty());
        assert_eq!(named("xchg %ah, %dil").into_iter().collect::<Vec<_>>(), ["rax", "rdi"]);
    }
}
