//! `tile-check-profile`: refuses what a profile with reproducible bits cannot run (SPEC 4.3).
//!
//! Sums of floats depend on the order of additions, and atomic additions come in any order. The old
//! value that an atomic returns, and a value that a later atomic may overwrite, depend on the order
//! of groups. The interpreter and, in these profiles, the CPU run groups one after another in
//! row-major order; a GPU does not, and there every write that follows from it must be to what the
//! kernel says its group owns, and what it writes must follow from one ticket alone. A buffer belongs to one group, which changes its elements in
//! row-major order on every backend.

use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_ir::{Attr, Changed, OpId, Pass, PassContext, Type};
use tessera_lower::{Differs, Shows};
use tessera_numerics::Profile;
use tessera_tile::{KernelKind, Tile, TileFunc, TileOp, kind_of, ops};

pub struct Reproducible {
    pub profile: Profile,
    /// Whether it is to run on a GPU.
    pub gpu: bool,
}

impl Pass<Tile> for Reproducible {
    fn name(&self) -> &'static str {
        "tile-check-profile"
    }

    fn run(&self, func: &mut TileFunc, context: &mut PassContext) -> Result<Changed, Diagnostics> {
        let mut errors = Diagnostics::new();
        for id in func.walk() {
            if let Some(error) = self.refused(func, id, &context.beyond) {
                errors.push(error.at(func.ops[id].loc.clone()));
            }
        }
        errors.into_result().map(|_| Changed::No)
    }
}

/// Where such a kernel runs.
const ELSEWHERE: &str = "run it on the CPU, where groups run one after another in this profile \
                         (`ts.runtime.select_backend(\"cpu\")`), or use the default profile";

impl Reproducible {
    fn refused(&self, func: &TileFunc, id: OpId, beyond: &[(Loc, Loc)]) -> Option<Diagnostic> {
        let (op, profile) = (&func.ops[id], self.profile);
        let what = op.attr("op").and_then(Attr::as_word).filter(|_| op.code == TileOp::Atomic)?;
        let is_buffer = matches!(func.ty(op.operands[0]), Type::Buf { .. });
        if is_buffer && kind_of(func) == Some(KernelKind::Group) {
            return None;
        }
        let name = tessera_lower::user_name(func, op.operands[0]);
        let name = name.unwrap_or("the array");
        if matches!(what, "add" | "sub") && func.ty(op.operands[1]).dtype().is_float() {
            let message = format!(
                "expected sums in a fixed order in the {profile} profile, got atomic additions of floats to `{name}`"
            );
            return Some(Diagnostic::new(Code::E_NONDETERMINISTIC, message).help(
                "fold whole slices of a `ts.Region[ts.reduce_sum]` parameter instead of single elements, or \
                 use the default profile",
            ));
        }
        let how = match what {
            "exchange" | "cas" => format!("an atomic {what} of `{name}`"),
            _ if ops::atomic::is_used(func, id) => {
                format!("a use of what an atomic {what} found in `{name}`")
            }
            _ => return None,
        };
        let (write, shows) = tessera_lower::order_shows(func, id).filter(|_| self.gpu)?;
        let message = format!(
            "expected results that do not depend on the order of groups in the {profile} profile, got {how}"
        );
        let found = Diagnostic::new(Code::E_NONDETERMINISTIC, message)
            .note("groups run in no order on a GPU");
        let place = func.ops[write].loc.clone();
        Some(match shows {
            Shows::Unowned => unowned(func, found, write, beyond),
            Shows::Differs(why) => {
                let (label, help) = because(why);
                found.label(place, label).help(format!("{help}; or {ELSEWHERE}"))
            }
        })
    }
}

/// The write may be to what other groups touch.
fn unowned(func: &TileFunc, found: Diagnostic, write: OpId, beyond: &[(Loc, Loc)]) -> Diagnostic {
    let op = &func.ops[write];
    let found =
        found.label(op.loc.clone(), "this write follows from it, and others may write there");
    if let Some((claim, _)) = beyond.iter().find(|(_, at)| *at == op.loc) {
        let block = claimed(claim).map_or("a block".to_string(), |text| format!("`{text}`"));
        let line = claim.line();
        return found
            .label(claim.clone(), "this owns a block of the same array")
            .note(format!(
                "line {line} owns {block}, but what this writes could not be shown to lie in it"
            ))
            .help(format!(
                "let `ts.tile.owned` name all that is written, in the terms of the write: positions are compared \
                 as sums of the same variables, with offsets of known range; or {ELSEWHERE}"
            ));
    }
    if op.code == TileOp::Atomic {
        return found.help(format!(
            "an atomic is for memory that other groups touch too, which `ts.tile.owned` would deny: what a \
             group finds there depends on who came first; {ELSEWHERE}"
        ));
    }
    found.help(format!(
        "if the group alone touches what it writes from then on, and no other group reads it, say so \
         (`ts.tile.owned(y[i:i + 16])`); else {ELSEWHERE}"
    ))
}

/// The block in a statement `ts.tile.owned(y[s:s + 16])`, as the user wrote it.
fn claimed(at: &Loc) -> Option<String> {
    let text = at.file()?.line(at.line())?;
    let inside = text.split_once("owned(")?.1;
    let (block, _) = inside.rsplit_once(')')?;
    (at.end().0 == at.line() && block.ends_with(']')).then(|| block.to_string())
}

/// What a write shows, and what to write instead.
fn because(why: Differs) -> (&'static str, &'static str) {
    match why {
        Differs::Order => (
            "what this writes, or where, depends on which group came first",
            "`ts.tile.owned` and `unique=True` say who touches an element, not what is stored there: store what \
             follows from a ticket alone (the old value of `ts.tile.atomic_add(t[0], 1)`), and read only arrays \
             that the kernel does not write, or blocks that the group owns",
        ),
        Differs::Who => (
            "this write mixes a ticket with which group or lane took it",
            "`ts.tile.owned` and `unique=True` say who touches an element, not what is stored there: let the \
             position, the value and the condition follow from the ticket alone (`s = ticket * 16`, \
             `y[s:s + 16] = 2.0 * x[s:s + 16]`), without `program_id`, and without what earlier iterations left",
        ),
        Differs::Tickets => (
            "this write mixes two tickets, and which group gets both depends on the order",
            "`ts.tile.owned` and `unique=True` say who touches an element, not what is stored there: let the \
             position, the value and the condition follow from one ticket",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(op: &str, used: bool, gpu: bool) -> Vec<String> {
        let extra = if op == "cas" { " expected(%v)" } else { "" };
        let store = if used { "  tile.store %y, %old at(%p) {extent = [0]}\n" } else { "" };
        let text = format!(
            "func @k(%n: view<[m], i32, read_write>, %y: view<[m], i32, write>, %v: i32) {{kind = group}} {{
  %p = tile.program_id {{axis = 0}} : i64
  %z = tile.const {{value = 0}} : i64
  %old = tile.atomic %n, %v at(%z){extra} {{op = {op}}} : i32
{store}  tile.return
}}"
        );
        let mut func = tessera_tile::parse(&text).unwrap_or_else(|e| panic!("{e}"));
        let pass = Reproducible { profile: Profile::Strict, gpu };
        match pass.run(&mut func, &mut PassContext::default()) {
            Ok(_) => Vec::new(),
            Err(errors) => errors.iter().map(|e| e.message.clone()).collect(),
        }
    }

    #[test]
    fn a_group_changes_its_own_buffer_in_order() {
        let text =
            "func @k(%y: view<[8], f32, write>, %i: tile<8xi32>, %v: tile<8xf32>) {kind = group} {
  %z = tile.const {value = 0} : i64
  %b = tile.buf_alloc : buf<8xf32>
  tile.store %b, %v at(%z) {extent = [8]}
  %old = tile.atomic %b, %v at(%i) {op = add} : tile<8xf32>
  tile.store %y, %old at(%z) {extent = [8]}
  tile.return
}";
        let mut func = tessera_tile::parse(text).unwrap_or_else(|e| panic!("{e}"));
        let pass = Reproducible { profile: Profile::Strict, gpu: true };
        assert!(pass.run(&mut func, &mut PassContext::default()).is_ok());
    }

    #[test]
    fn order_shows_in_old_values_and_in_what_is_exchanged() {
        for op in ["add", "max", "xor"] {
            assert!(refused(op, false, true).is_empty(), "{op}");
            assert_eq!(refused(op, true, true).len(), 1, "{op}");
        }
        for op in ["exchange", "cas"] {
            assert_eq!(refused(op, true, true).len(), 1, "{op}");
        }
        for (op, used) in [("add", true), ("cas", true), ("exchange", false)] {
            assert!(refused(op, used, false).is_empty(), "{op}");
        }
    }
}
