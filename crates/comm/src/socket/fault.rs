//! Faults that tests ask for: `rank=2,at=5,do=kill`.

use std::time::Duration;
use tessera_diag::{Code, Diagnostic};

/// What goes wrong.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// The process ends, by SIGKILL.
    Kill,
    /// It stays in the user's code; its heartbeats go on.
    Hang,
    /// It says nothing any more, as one that was stopped.
    Stop,
    /// Its connection of the control plane ends.
    Drop,
    /// It comes late.
    Slow,
    /// A bit of what it sends changes.
    Corrupt,
}

/// A fault at the collective with a number, counted from 0 over all that ranks of the process start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The process.
    pub rank: usize,
    pub at: u64,
    pub what: What,
    /// How late it comes.
    pub time: Duration,
}

impl Fault {
    /// Of a text such as `rank=2,at=5,do=slow,seconds=3`.
    pub fn parse(text: &str) -> Result<Fault, Diagnostic> {
        let refused = || {
            let message = format!(
                "expected a fault such as `rank=2,at=5,do=kill` in TESSERA_FAULT, got {text:?}"
            );
            Diagnostic::new(Code::E_COMM_INIT, message)
                .help("`do` is kill, hang, stop, drop, slow (with `seconds=`) or corrupt")
        };
        let (mut rank, mut at, mut what, mut time) = (None, Some(0), None, Duration::from_secs(35));
        for field in text.split(',') {
            match field.trim().split_once('=').ok_or_else(refused)? {
                ("rank", n) => rank = n.parse().ok(),
                ("at", n) => at = n.parse().ok(),
                ("seconds", n) => {
                    let seconds: Option<f64> = n.parse().ok();
                    let made = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
                    time = made.ok_or_else(refused)?;
                }
                ("do", "kill") => what = Some(What::Kill),
                ("do", "hang") => what = Some(What::Hang),
                ("do", "stop") => what = Some(What::Stop),
                ("do", "drop") => what = Some(What::Drop),
                ("do", "slow") => what = Some(What::Slow),
                ("do", "corrupt") => what = Some(What::Corrupt),
                _ => return Err(refused()),
            }
        }
        match (rank, at, what) {
            (Some(rank), Some(at), Some(what)) => Ok(Fault { rank, at, what, time }),
            _ => Err(refused()),
        }
    }
}
