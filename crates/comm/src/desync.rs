//! Errors of ranks that disagree.

use crate::{Call, Waiting};
use std::fmt::Write;
use tessera_diag::{Code, Diagnostic};

pub const HELP: &str = "every rank of a group must call the same collectives in the same order, with the same dtype and sizes";

/// Members of a group made different calls: `a` of the rank that came first.
pub fn differ(sequence: u64, a: (usize, &Call), b: (usize, &Call)) -> Diagnostic {
    let ((one, first), (other, second)) = (a, b);
    let message = format!(
        "expected {first} on rank {other}, as rank {one} calls it, got {second}: collective {sequence} of their group"
    );
    let error = Diagnostic::new(Code::E_DESYNC, message).at(second.at.clone()).help(HELP);
    match first.at == second.at {
        true => error,
        false => {
            error.label(first.at.clone(), format!("rank {one} calls {}", first.shown().name()))
        }
    }
}

/// In an `all_to_all`, what one member sends is not what another expects.
pub fn sent(from: (usize, u64), to: (usize, u64), call: &Call) -> Diagnostic {
    let message = format!(
        "expected {} {} from rank {} in the {} of rank {}, got {}",
        to.1,
        call.dtype.name(),
        from.0,
        call.shown().name(),
        to.0,
        from.1
    );
    Diagnostic::new(Code::E_DESYNC, message).at(call.at.clone()).help(HELP)
}

/// Bytes that arrived are not those that were sent.
pub fn corrupted(rank: usize, call: &Call) -> Diagnostic {
    let message = format!(
        "expected the bytes that rank {rank} sent, got others: checksum of rank {rank}'s {}",
        call.shown().name()
    );
    Diagnostic::new(Code::E_DESYNC, message)
        .at(call.at.clone())
        .help("memory was written while the collective had it, or is faulty: run again with one rank fewer on this machine, or test its memory")
}

/// No rank can go on: each waits for one that does something else, or has ended.
pub fn stuck(waiting: &[Waiting]) -> Diagnostic {
    // Ranks that do the same are named together.
    let mut groups: Vec<(String, Option<&Call>, Vec<usize>)> = Vec::new();
    for rank in waiting {
        let (text, call) = match rank {
            Waiting::Ended { .. } => ("its program has ended".to_string(), None),
            Waiting::For { token, call, .. } => {
                let at =
                    if call.at.is_known() { format!(" at {}", call.at) } else { String::new() };
                let number = token
                    .map_or(String::new(), |t| format!(", collective {} of its group", t.sequence));
                (format!("waits in {call}{number}{at}"), Some(call))
            }
        };
        match groups.iter_mut().find(|(known, ..)| *known == text) {
            Some((.., ranks)) => ranks.push(rank.rank()),
            None => groups.push((text, call.map(|c| &**c), vec![rank.rank()])),
        }
    }
    let message = "expected ranks that synchronise in the same collectives, got ranks of which none can go on";
    let mut error = Diagnostic::new(Code::E_DESYNC, message).help(HELP);
    for (text, call, ranks) in &groups {
        error = error.note(format!("{}: {text}", named(ranks)));
        if let Some(call) = call.filter(|c| c.at.is_known()) {
            match error.loc.is_known() {
                false => error.loc = call.at.clone(),
                true if error.loc == call.at || error.labels.iter().any(|l| l.loc == call.at) => {}
                true => error = error.label(call.at.clone(), format!("{} here", named(ranks))),
            }
        }
    }
    error
}

/// Such as `rank 3`, `ranks 0, 2` and `ranks 4 to 71`.
fn named(ranks: &[usize]) -> String {
    let mut text = String::from(if ranks.len() == 1 { "rank" } else { "ranks" });
    let mut at = 0;
    while at < ranks.len() {
        let run = ranks[at..].iter().enumerate().take_while(|(i, r)| **r == ranks[at] + i).count();
        let comma = if at == 0 { "" } else { "," };
        let _ = match run {
            1 | 2 => write!(text, "{comma} {}", ranks[at]),
            n => write!(text, "{comma} {} to {}", ranks[at], ranks[at] + n - 1),
        };
        at += if run > 2 { run } else { 1 };
    }
    text
}
