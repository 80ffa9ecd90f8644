//! What is wrong where ranks wait and nothing comes.

use super::collective::{Collective, Group};
use super::in_flight::InFlight;
use super::segment::Segment;
use crate::{Call, Waiting, desync};
use std::collections::BTreeSet;
use std::time::Duration;
use tessera_diag::{Code, Diagnostic};

/// Where a program calls it.
pub fn place(call: &Call) -> String {
    if call.at.is_known() { format!(" at {}", call.at) } else { String::new() }
}

pub fn is_complete(in_flight: &InFlight, waiting: &Waiting) -> bool {
    match waiting {
        Waiting::Ended { .. } | Waiting::For { token: None, .. } => false,
        Waiting::For { token: Some(token), .. } => {
            in_flight.collective(*token).is_none_or(|(_, c)| c.is_complete())
        }
    }
}

/// No rank can go on, and what others send changes nothing: every collective waits for a rank of this process.
pub fn stuck(in_flight: &InFlight, waiting: &[Waiting]) -> Option<Diagnostic> {
    let ended: Vec<usize> =
        waiting.iter().filter(|w| matches!(w, Waiting::Ended { .. })).map(Waiting::rank).collect();
    for one in waiting {
        let Waiting::For { token: Some(token), .. } = one else { continue };
        let Some((group, open)) = in_flight.collective(*token) else { continue };
        // Members of this process that will not come.
        let absent = |(m, rank): (usize, &usize)| open.arrived[m].is_none() && ended.contains(rank);
        if !open.is_open && group.members.iter().enumerate().any(absent) {
            return Some(desync::stuck(waiting));
        }
    }
    let mut all = in_flight.groups.iter().flat_map(|g| g.open.values());
    (!all.any(|c| c.is_open)).then(|| desync::stuck(waiting))
}

/// The processes whose messages ranks wait for, or that do not take theirs.
pub fn missing(in_flight: &InFlight, waiting: &[Waiting]) -> Vec<usize> {
    let tokens = waiting.iter().filter_map(|w| match w {
        Waiting::For { token, .. } => *token,
        Waiting::Ended { .. } => None,
    });
    let waited: Vec<(&Group, &Collective)> =
        tokens.filter_map(|t| in_flight.collective(t)).filter(|(_, c)| c.is_open).collect();
    let all = in_flight.groups.iter().flat_map(|g| g.open.values().map(move |c| (g, c)));
    let of = if waited.is_empty() { all.filter(|(_, c)| c.is_open).collect() } else { waited };
    let mut found = BTreeSet::new();
    for (group, open) in of {
        found.extend(open.incoming.values().map(|i| i.process));
        if open.sends > 0 && open.incoming.is_empty() {
            found.extend(group.others(in_flight.me).iter().map(|(process, _)| *process));
        }
    }
    found.into_iter().collect()
}

fn first(waiting: &[Waiting]) -> Option<&Call> {
    waiting.iter().find_map(|w| match w {
        Waiting::For { token: Some(_), call, .. } => Some(&**call),
        Waiting::For { token: None, .. } | Waiting::Ended { .. } => None,
    })
}

pub fn waits(waiting: &[Waiting]) -> String {
    first(waiting).map_or(String::new(), |call| format!("in {}{}", call, place(call)))
}

fn named(processes: &[usize]) -> String {
    let each: Vec<String> = processes.iter().map(usize::to_string).collect();
    format!("process{} {}", if each.len() == 1 { "" } else { "es" }, each.join(", "))
}

fn with_place(error: Diagnostic, waiting: &[Waiting]) -> Diagnostic {
    match first(waiting) {
        Some(call) => error.at(call.at.clone()),
        None => error,
    }
}

fn shown(waiting: &[Waiting]) -> String {
    first(waiting).map_or("a collective".into(), |call| call.shown().name().to_string())
}

fn does(segment: &Segment, process: usize) -> String {
    match segment.status(process) {
        Some((true, text)) => format!("process {process} waits {text}"),
        Some((false, text)) if !text.is_empty() => {
            format!(
                "process {process} runs its program; of its collectives, the last that is known: {text}"
            )
        }
        Some((false, _)) | None => {
            format!("process {process} runs its program, and has called no collective")
        }
    }
}

/// The time limit is over.
pub fn late(
    segment: &Segment,
    missing: &[usize],
    waiting: &[Waiting],
    limit: Duration,
) -> Diagnostic {
    let text = format!(
        "expected {} in {} within {:.0} s, got nothing",
        named(missing),
        shown(waiting),
        limit.as_secs_f64()
    );
    let mut error = with_place(Diagnostic::new(Code::E_TIMEOUT_COMM, text), waiting);
    for &process in missing {
        error = error.note(does(segment, process));
    }
    error.help("every process must call the same collectives; TESSERA_COMM_TIMEOUT (in seconds) gives slow ones more time")
}

/// Nothing has come for a while: a warning.
pub fn slow(segment: &Segment, missing: &[usize], waiting: &[Waiting], since: Duration) -> String {
    let each: Vec<String> = missing.iter().map(|p| does(segment, *p)).collect();
    format!(
        "tessera: {} has waited {:.0} s for {}: {}",
        shown(waiting),
        since.as_secs_f64(),
        named(missing),
        each.join("; ")
    )
}

/// A process is lost; without a number it is this one, `me`, that does not hear the coordinator any more.
pub fn lost(who: Option<usize>, me: usize, text: &str) -> Diagnostic {
    let message = match who {
        Some(process) => format!("expected process {process} to go on, got its end: {text}"),
        None => {
            format!(
                "expected process {me} to stay connected with the coordinator, got an end: {text}"
            )
        }
    };
    Diagnostic::new(Code::E_RANK_LOST, message)
        .help("its own output says why; start again from the last checkpoint")
}

/// A signal has ended what this process waited for.
pub fn interrupted(me: usize) -> Diagnostic {
    let text = format!("expected process {me} to go on, got an interruption");
    Diagnostic::new(Code::E_RANK_LOST, text).help("a signal handler raised an exception there")
}

/// A process has ended its part while others need it.
pub fn left(process: usize, waiting: &[Waiting]) -> Diagnostic {
    let text =
        format!("expected process {process} in {}, got the end of its program", shown(waiting));
    with_place(Diagnostic::new(Code::E_RANK_LOST, text), waiting)
        .help("every process must call the same collectives")
}

/// Another process has ended all collectives.
pub fn failed(who: usize, code: Code, text: &str) -> Diagnostic {
    match code {
        Code::E_DESYNC | Code::E_TIMEOUT_COMM | Code::E_RANK_LOST => Diagnostic::new(code, text)
            .note(format!("process {who} found it"))
            .help("process 0 to the last print what each found: the first is the cause"),
        _ => Diagnostic::new(
            Code::E_RANK_LOST,
            format!("expected process {who} to go on, got an error there: {}: {text}", code.name()),
        )
        .help("its own output says where"),
    }
}
