//! Assembly text: what it may say, which registers its placeholders stand for, and the rules of the
//! ops that hold it.
//!
//! A text is typed by its op alone: nothing here knows an instruction. What is checked is what every
//! text needs so that it can be put into a kernel once for each element: placeholders that exist,
//! values that are all named, and braces, quotes and comments that end where the text does.

use super::combine::computes;
use crate::{Tile, TileOp};
use std::ops::Range;
use tessera_ir::{Attr, Func, Level, Op, OpErrors, OpId, Type, Value};
use tessera_numerics::DType;

/// The most bytes of one text: it is put into a kernel once for each element that a thread has.
const LONGEST: usize = 64 << 10;
/// The most elements of one run of a text.
pub const MOST_PACKED: i64 = 16;

/// An assembler that texts are written for.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AsmTarget {
    Ptx,
    /// AT&T syntax.
    X86_64,
}

impl AsmTarget {
    pub const ALL: [AsmTarget; 2] = [AsmTarget::Ptx, AsmTarget::X86_64];

    pub fn name(self) -> &'static str {
        match self {
            AsmTarget::Ptx => "ptx",
            AsmTarget::X86_64 => "x86_64",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.name() == name)
    }
}

/// The least that a text needs of its target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AsmArch {
    /// This compute capability or a later one; `exact` is `sm_90a`: this one alone.
    Sm { sm: u32, exact: bool },
    /// One of the instruction sets that the CPU backend generates code for.
    X86(&'static str),
}

/// Instruction sets of x86_64 from the least to the most.
pub const X86_ARCHS: [&str; 3] = ["avx2", "avx512", "amx"];

impl AsmArch {
    /// `None` for a name that the target does not have.
    pub fn from_name(target: AsmTarget, name: &str) -> Option<Self> {
        match target {
            AsmTarget::Ptx => {
                let digits = name.strip_prefix("sm_").or(name.strip_prefix("sm"))?;
                let exact = digits.ends_with('a');
                let digits = digits.strip_suffix('a').unwrap_or(digits);
                let plain = (2..=3).contains(&digits.len()) && !digits.starts_with('0');
                let sm = digits.parse().ok().filter(|_| plain)?;
                Some(AsmArch::Sm { sm, exact })
            }
            AsmTarget::X86_64 => X86_ARCHS.into_iter().find(|a| *a == name).map(AsmArch::X86),
        }
    }
}

/// A part of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece {
    Text(String),
    /// A register, by its number: those of the results first.
    Register(usize),
}

/// What is wrong with a text, and what to write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    pub message: String,
    pub help: String,
}

fn wrong<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { message: message.into(), help: help.into() })
}

/// The registers of one value in one run of a text that takes `pack` elements: how many, and of how
/// many bits each. A bool is a predicate in PTX, which has one bit. `None` where the dtype has no
/// register.
#[deny(clippy::wildcard_enum_match_arm)]
pub fn registers(dtype: DType, target: AsmTarget, pack: usize) -> Option<(usize, u32)> {
    let bits = match dtype {
        DType::Bool if pack > 1 => return None,
        DType::Bool => return Some((1, if target == AsmTarget::Ptx { 1 } else { 8 })),
        DType::I8 | DType::U8 | DType::Fp8E4M3 | DType::Fp8E5M2 | DType::E8M0 => 8,
        DType::I16 | DType::U16 | DType::F16 | DType::BF16 => 16,
        DType::I32 | DType::U32 | DType::F32 | DType::Tf32 => 32,
        DType::I64 | DType::U64 | DType::F64 => 64,
        // Held several in a byte, or never held by a register of their own.
        DType::I4 | DType::Fp4E2M1 | DType::Fp6E3M2 | DType::Fp6E2M3 => return None,
    };
    match (pack, bits) {
        // PTX has no registers of 8 bits.
        (1, 8) if target == AsmTarget::Ptx => Some((1, 16)),
        (1, bits) => Some((1, bits)),
        (n, 8 | 16) => (n * bits as usize).is_multiple_of(32).then(|| (n * bits as usize / 32, 32)),
        (n, bits) => Some((n, bits)),
    }
}

/// The pieces of a text with these numbers of registers for its results and for its operands.
pub fn read(
    text: &str,
    target: AsmTarget,
    results: usize,
    operands: usize,
) -> Result<Vec<Piece>, Wrong> {
    let count = results + operands;
    if text.len() > LONGEST {
        return wrong(
            format!("expected a text of at most {LONGEST} bytes, got {}", text.len()),
            "call ts.target.asm several times, or write a loop around it",
        );
    }
    if let Some(c) = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t' | '\r')) {
        return wrong(
            format!("expected lines of text, got the control character {c:?}"),
            "leave it out: an assembler reads only tabs and line breaks",
        );
    }
    let pieces = split(text, count, results)?;
    balanced(text, target)?;
    no_reserved(text, target)?;
    let named = |n: usize| pieces.contains(&Piece::Register(n));
    if let Some(n) = (0..count).find(|&n| !named(n)) {
        return match n < results {
            true => wrong(
                format!("expected the text to write ${n}, a result"),
                format!("name ${n} as the destination of an instruction, or leave its dtype out"),
            ),
            false => wrong(
                format!("expected the text to read ${n}, operand {} of the call", n - results),
                format!("name it as ${n}, or leave the operand out"),
            ),
        };
    }
    if !pieces.iter().any(|p| matches!(p, Piece::Text(t) if !t.trim().is_empty())) {
        return wrong("expected instructions, got an empty text", "write at least one instruction");
    }
    Ok(pieces)
}

/// Registers that belong to the code around the text.
fn reserved(target: AsmTarget, name: &str) -> bool {
    match target {
        // Those of the kernel: what the text needs it declares by other names.
        AsmTarget::Ptx => ["p", "h", "r", "rd"].into_iter().any(|prefix| {
            let rest = name.strip_prefix(prefix);
            rest.is_some_and(|r| !r.is_empty() && r.bytes().all(|b| b.is_ascii_digit()))
        }),
        AsmTarget::X86_64 => {
            matches!(name, "rsp" | "esp" | "sp" | "spl" | "rbp" | "ebp" | "bp" | "bpl")
        }
    }
}

fn no_reserved(text: &str, target: AsmTarget) -> Result<(), Wrong> {
    for part in text.split('%').skip(1) {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(part.len());
        // `%r<4>` declares %r0 to %r3.
        let many = part[end..].starts_with('<').then(|| format!("{}0", &part[..end]));
        let name = many.as_deref().unwrap_or(&part[..end]);
        if reserved(target, name) {
            let shown = &part[..end];
            return match target {
                AsmTarget::Ptx => wrong(
                    format!(
                        "expected registers of the text's own, got %{shown}, a name of the kernel's"
                    ),
                    "name values by $0, $1, …, and declare others without `%`: { .reg .b32 t; … }",
                ),
                AsmTarget::X86_64 => wrong(
                    format!("expected a text that leaves the stack alone, got %{shown}"),
                    "take other registers: those that the text names are free for it",
                ),
            };
        }
    }
    Ok(())
}

fn split(text: &str, count: usize, results: usize) -> Result<Vec<Piece>, Wrong> {
    let mut out = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            plain.push('$');
            rest = after;
            continue;
        }
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let Some(n) = rest[..digits].parse::<usize>().ok() else {
            let next: String = rest.chars().take(8).collect();
            return wrong(
                format!("expected a number after `$`, got {next:?}"),
                "write $0, $1, … for results and operands, and $$ for a dollar sign",
            );
        };
        if n >= count {
            let of = |n: usize, what: &str| match n {
                0 => format!("no {what}s"),
                1 => format!("1 {what}"),
                n => format!("{n} {what}s"),
            };
            let (r, o) = (of(results, "result"), of(count - results, "operand"));
            let legal = match count {
                0 => "write $$ for a dollar sign, or pass operands".to_string(),
                1 => "the only placeholder is $0".to_string(),
                n => format!("the placeholders are $0 to ${}: results first, then operands", n - 1),
            };
            return wrong(
                format!("expected placeholders of {r} and {o}, got ${}", &rest[..digits]),
                legal,
            );
        }
        if !plain.is_empty() {
            out.push(Piece::Text(std::mem::take(&mut plain)));
        }
        out.push(Piece::Register(n));
        rest = &rest[digits..];
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        out.push(Piece::Text(plain));
    }
    Ok(out)
}

/// Braces, quotes and comments that are closed within the text; of x86_64, no labels but numbers and no
/// directives that outlast it.
fn balanced(text: &str, target: AsmTarget) -> Result<(), Wrong> {
    let close = "close it within the text: every text is put into the code by itself";
    let mut depth = 0u32;
    let mut rest = text;
    // Without comments, and with quotations empty.
    let mut code = String::new();
    while let Some(c) = rest.chars().next() {
        let line_comment = match target {
            AsmTarget::Ptx => rest.starts_with("//"),
            AsmTarget::X86_64 => c == '#' || rest.starts_with("//"),
        };
        if line_comment {
            let Some(end) = rest.find('\n') else { break };
            rest = &rest[end..];
            continue;
        }
        if let Some(inside) = rest.strip_prefix("/*") {
            let Some(end) = inside.find("*/") else {
                return wrong("expected a comment to end, got `/*` without `*/`", close);
            };
            rest = &inside[end + 2..];
            code.push(' ');
            continue;
        }
        if let Some(inside) = rest.strip_prefix('"') {
            let Some(end) = inside.find(['"', '\n']).filter(|&e| inside[e..].starts_with('"'))
            else {
                return wrong("expected a quotation to end, got `\"` without another", close);
            };
            rest = &inside[end + 1..];
            code.push_str("\"\"");
            continue;
        }
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                return wrong(
                    "expected every `}` to close a `{` of the text, got one more",
                    "balance the braces: `{ .reg .b32 t; … }` is a scope of the text",
                );
            }
            '}' => depth -= 1,
            _ => {}
        }
        code.push(c);
        rest = &rest[c.len_utf8()..];
    }
    if depth > 0 {
        return wrong(
            "expected every `{` of the text to be closed by `}`",
            "balance the braces: `{ .reg .b32 t; … }` is a scope of the text",
        );
    }
    match target {
        AsmTarget::Ptx => Ok(()),
        AsmTarget::X86_64 => code.split([';', '\n']).try_for_each(statement),
    }
}

/// Directives for x86_64 that act where they stand. Any other outlasts the text: the code of the kernel
/// that comes after it would be in another section, in another syntax, or define a name twice.
const DIRECTIVES: [&str; 24] = [
    ".byte", ".2byte", ".4byte", ".8byte", ".short", ".value", ".word", ".int", ".long", ".quad",
    ".ascii", ".asciz", ".string", ".zero", ".fill", ".skip", ".space", ".align", ".balign",
    ".p2align", ".nops", ".rept", ".endr", ".error",
];

/// A statement of a text for x86_64: its labels, and the directive that it may be.
fn statement(mut code: &str) -> Result<(), Wrong> {
    loop {
        code = code.trim_start();
        let ends = |c: char| !c.is_alphanumeric() && !matches!(c, '_' | '.' | '$' | '"');
        let (word, rest) = code.split_at(code.find(ends).unwrap_or(code.len()));
        if let Some(rest) = rest.trim_start().strip_prefix(':').filter(|_| !word.is_empty()) {
            if word.bytes().all(|b| b.is_ascii_digit()) {
                code = rest;
                continue;
            }
            return wrong(
                format!("expected labels that are numbers, got `{word}:`"),
                "the text is put into the code once for each element, and a name can be defined once: \
                 write `1:`, and `jmp 1b` or `jmp 1f`",
            );
        }
        if word.starts_with('.') && !DIRECTIVES.contains(&word.to_ascii_lowercase().as_str()) {
            return wrong(
                format!("expected directives that end with the text, got `{word}`"),
                "the code of the kernel comes after the text: write instructions, data such as `.byte` and \
                 `.long`, alignment, or `.rept`; pass constants as values",
            );
        }
        return Ok(());
    }
}

/// The target of an op's text.
pub fn target_of<L: Level>(op: &Op<L>) -> Option<AsmTarget> {
    AsmTarget::from_name(op.attr("target").and_then(Attr::as_word)?)
}

/// What an op's text needs of its target; `None` where it runs on all of them.
pub fn arch_of<L: Level>(op: &Op<L>) -> Option<AsmArch> {
    AsmArch::from_name(target_of(op)?, op.attr("arch").and_then(Attr::as_word)?)
}

pub fn pack_of<L: Level>(op: &Op<L>) -> usize {
    op.attr("pack").and_then(Attr::as_int).map_or(1, |n| n.clamp(1, MOST_PACKED) as usize)
}

pub fn text_of<L: Level>(op: &Op<L>) -> &str {
    op.attr("text").and_then(Attr::as_str).unwrap_or_default()
}

fn dtypes<L: Level>(func: &Func<L>, values: &[Value]) -> Vec<DType> {
    values.iter().map(|&v| func.ty(v).dtype()).collect()
}

/// The dtypes of all results of a text, and which of them the op's results are.
pub fn results_of<L: Level>(func: &Func<L>, op: &Op<L>) -> (Vec<DType>, Range<usize>) {
    let outs = op.attr("outs").and_then(Attr::as_list).map(|words| -> Vec<DType> {
        words.iter().filter_map(|w| w.as_word()?.parse().ok()).collect()
    });
    match outs {
        None => (dtypes(func, &op.results), 0..op.results.len()),
        Some(all) => {
            let which = op.attr("result").and_then(Attr::as_int).unwrap_or(0) as usize;
            (all, which..which.saturating_add(1))
        }
    }
}

/// The pieces of the text of a verified op.
pub fn pieces_of<L: Level>(func: &Func<L>, op: &Op<L>) -> Result<Vec<Piece>, Wrong> {
    check(
        text_of(op),
        target_of(op).unwrap_or(AsmTarget::Ptx),
        pack_of(op),
        &results_of(func, op).0,
        &dtypes(func, &op.operands),
    )
}

/// The pieces of a text over values of these dtypes: every rule on the text itself.
pub fn check(
    text: &str,
    target: AsmTarget,
    pack: usize,
    results: &[DType],
    operands: &[DType],
) -> Result<Vec<Piece>, Wrong> {
    let mut counts = [0, 0];
    for (count, dtypes) in counts.iter_mut().zip([results, operands]) {
        for &dtype in dtypes {
            let Some((n, _)) = registers(dtype, target, pack) else {
                return match pack {
                    1 => wrong(
                        format!("expected dtypes that have registers, got {dtype}"),
                        "bitcast it to ts.u8, or cast it to ts.f32 before and after",
                    ),
                    _ => wrong(
                        format!("expected {pack} elements of {dtype} to fill registers of 32 bits"),
                        "take pack=2 for 16-bit and pack=4 for 8-bit dtypes",
                    ),
                };
            };
            *count += n;
        }
    }
    read(text, target, counts[0], counts[1])
}

pub fn verify_asm(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let Some(target) = target_of(op) else {
        let known: Vec<_> = AsmTarget::ALL.iter().map(|t| t.name()).collect();
        errors.structure(format!("expected `target` among {}", known.join(" ")));
        return;
    };
    if op.attr("arch").is_some() && arch_of(op).is_none() {
        errors.structure(format!("expected `arch` to name an architecture of {}", target.name()));
    }
    let packs = op.attr("pack").and_then(Attr::as_int);
    let legal = |n: i64| (2..=MOST_PACKED).contains(&n) && target == AsmTarget::Ptx;
    if packs.is_some_and(|n| !legal(n) || op.code == TileOp::AsmEffect) {
        errors.structure(format!(
            "expected `pack` of 2 to {MOST_PACKED}, in a text for ptx without effects"
        ));
    }
    let (all, which) = results_of(func, op);
    if all.get(which) != Some(&dtypes(func, &op.results)[..]) {
        errors.structure(
            "expected `result` to name one of `outs`, of the dtype of the op's one result",
        );
    }
    if op.attr("outs").is_some() && !op.regions.is_empty() {
        errors.structure("expected one result of a text without another meaning");
    }
    if op.code == TileOp::Asm && op.results.is_empty() {
        errors.structure("expected results: a text without effects is there for them");
    }
    let mut values = op.operands.iter().chain(&op.results).map(|&v| func.ty(v));
    if let Some(first) = values.next()
        && let Some(other) = values.find(|t| t.shape() != first.shape())
    {
        errors
            .shape(format!("expected operands and results of one shape, got {first} and {other}"));
    }
    if let Err(why) = pieces_of(func, op) {
        errors.structure(why.message);
    }
    let Some(&region) = op.regions.first() else { return };
    let scalars = |values: &[Value]| -> Vec<Type> {
        values.iter().map(|&v| Type::Scalar(func.ty(v).dtype())).collect()
    };
    let types =
        |values: &[Value]| -> Vec<Type> { values.iter().map(|&v| func.ty(v).clone()).collect() };
    let args = types(&func.blocks[region].args);
    super::combine::expect(errors, "arguments of the other meaning", &scalars(&op.operands), &args);
    if let Some(end) = func.terminator(region) {
        let got = types(func.ops[end].group("values"));
        super::combine::expect(
            errors,
            "the other meaning to yield values",
            &scalars(&op.results),
            &got,
        );
    }
    computes(func, region, "another meaning", errors);
}
