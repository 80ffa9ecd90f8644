//! The cost of an assembled kernel: registers, spills, memory, instructions by mnemonic. One row of
//! text per kernel, in a file that only `TESSERA_BLESS` changes, so that a change of the compiler
//! shows its effect on every kernel.

use crate::module::{Module, Target};
use crate::tools::Tools;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::{fs, io};

/// The mnemonics that rows show: data movement, MMAs, and signs of trouble.
pub const SHOWN: &[&str] = &[
    "HMMA", "IMMA", "DMMA", "QMMA", "HGMMA", "QGMMA", "IGMMA", "LDSM", "STSM", "LDGSTS", "UTMALDG",
    "UTMASTG", "UTMAREDG", "UBLKCP", "SYNCS", "LDG", "STG", "LDS", "STS", "LDL", "STL", "ATOM",
    "ATOMG", "ATOMS", "RED", "REDG", "SHFL", "BAR", "MUFU", "FFMA", "FMUL", "FADD", "DFMA", "IMAD",
    "LOP3", "PRMT", "BRA", "CALL",
];

#[derive(Clone, PartialEq, Debug)]
pub struct Count {
    pub kernel: String,
    pub target: Target,
    pub registers: u32,
    pub stack: u32,
    pub spill_stores: u32,
    pub spill_loads: u32,
    /// Fixed shared memory.
    pub shared: u32,
    /// Instructions by mnemonic up to the first dot; none where there is no disassembler (sm_70).
    pub mnemonics: BTreeMap<String, u32>,
}

impl Count {
    pub fn instructions(&self) -> u32 {
        self.mnemonics.values().sum()
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {} registers", self.kernel, self.target, self.registers)?;
        let rest = [
            ("bytes of stack", self.stack),
            ("bytes spilled", self.spill_stores),
            ("bytes filled", self.spill_loads),
            ("bytes shared", self.shared),
            ("instructions", self.instructions()),
        ];
        for (what, n) in rest.into_iter().filter(|(_, n)| *n > 0) {
            write!(f, ", {n} {what}")?;
        }
        for shown in SHOWN {
            if let Some(n) = self.mnemonics.get(*shown) {
                write!(f, ", {shown} {n}")?;
            }
        }
        Ok(())
    }
}

/// Assembles a module and counts each of its kernels.
pub fn count(tools: &Tools, module: &Module) -> io::Result<Vec<Count>> {
    let said = tools.assemble(module)?;
    let Some(cubin) = said.cubin else { return Err(io::Error::other(said.words)) };
    let mut counts = from_words(&said.words, module.target);
    if module.target.sm > 70 {
        let mut code = from_code(&tools.disassemble(&cubin)?);
        for count in &mut counts {
            count.mnemonics = code.remove(&count.kernel).unwrap_or_default();
        }
    }
    // In the module's order, whatever the assembler's.
    let place = |name: &str| module.kernels.iter().position(|k| k.name == name);
    counts.sort_by_key(|c| place(&c.kernel));
    Ok(counts)
}

/// From the output of `ptxas -v`.
pub fn from_words(words: &str, target: Target) -> Vec<Count> {
    let mut counts: Vec<Count> = Vec::new();
    for line in words.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let kernel = rest.split('\'').next().unwrap_or_default().to_string();
            counts.push(Count {
                kernel,
                target,
                registers: 0,
                stack: 0,
                spill_stores: 0,
                spill_loads: 0,
                shared: 0,
                mnemonics: BTreeMap::new(),
            });
        }
        let Some(count) = counts.last_mut() else { continue };
        let number = |what: &str| number_before(line, what);
        count.registers = number(" registers").unwrap_or(count.registers);
        count.stack = number(" bytes stack frame").unwrap_or(count.stack);
        count.spill_stores = number(" bytes spill stores").unwrap_or(count.spill_stores);
        count.spill_loads = number(" bytes spill loads").unwrap_or(count.spill_loads);
        count.shared = number(" bytes smem").unwrap_or(count.shared);
    }
    counts
}

fn number_before(line: &str, what: &str) -> Option<u32> {
    let (before, _) = line.split_once(what)?;
    before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Instructions by kernel and mnemonic, from a disassembly.
pub fn from_code(listing: &str) -> BTreeMap<String, BTreeMap<String, u32>> {
    let mut out = BTreeMap::<String, BTreeMap<String, u32>>::new();
    let mut kernel = None;
    for line in listing.lines() {
        if let Some(name) = line.strip_prefix(".text.").and_then(|l| l.strip_suffix(':')) {
            kernel = Some(name.to_string());
        }
        let (Some(kernel), Some(mnemonic)) = (&kernel, mnemonic(line)) else { continue };
        // Fills the last line of the instruction cache.
        if mnemonic != "NOP" {
            let counts = out.entry(kernel.clone()).or_default();
            *counts.entry(mnemonic.to_string()).or_default() += 1;
        }
    }
    out
}

/// The mnemonic of a line like `/*0010*/ @!P0 LDG.E R2, desc[UR4][R2.64] ;`.
fn mnemonic(line: &str) -> Option<&str> {
    let (_, code) = line.trim_start().strip_prefix("/*")?.split_once("*/")?;
    let mut words = code.split_whitespace().filter(|w| !w.starts_with('@') && !w.starts_with('{'));
    let word = words.next()?.split(['.', ';']).next()?;
    let good = word.starts_with(|c: char| c.is_ascii_uppercase());
    good.then_some(word)
}

/// Compares rows with those of a file; each row starts with a name and a colon. With `bless` the
/// rows are written to the file.
pub fn ratchet(file: &Path, rows: &[String], bless: bool) -> Result<(), String> {
    let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
    if bless {
        return fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()));
    }
    let old = fs::read_to_string(file).unwrap_or_default();
    if old == text {
        return Ok(());
    }
    let named = |text: &str| -> BTreeMap<String, String> {
        text.lines().filter_map(|l| l.split_once(": ")).map(|(n, r)| (n.into(), r.into())).collect()
    };
    let (old, new) = (named(&old), named(&text));
    let mut out = format!("{} is not what the kernels are now:\n", file.display());
    for name in old.keys().chain(new.keys().filter(|n| !old.contains_key(*n))) {
        let (was, is) = (old.get(name), new.get(name));
        if was != is {
            let show = |row: Option<&String>| row.map_or("nothing", |r| r.as_str()).to_string();
            out += &format!("{name}\n  was {}\n  is  {}\n", show(was), show(is));
        }
    }
    Err(out + "TESSERA_BLESS=1 accepts what is.")
}
