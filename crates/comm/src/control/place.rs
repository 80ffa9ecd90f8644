//! Where a process is among those of a program, as launchers say it in the environment.

use tessera_diag::{Code, Diagnostic};

/// A process among those of a program. The names are those that torchrun sets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// `RANK`: the number of the process.
    pub rank: usize,
    /// `WORLD_SIZE`: how many there are.
    pub world: usize,
    /// `MASTER_ADDR`: the address of the coordinator.
    pub address: String,
    /// `MASTER_PORT`
    pub port: u16,
    /// `TESSERA_TOKEN`: what every process must know. Without one nobody but this host may ask.
    pub token: String,
    /// Whether this process has the coordinator: rank 0, unless the launcher has it (`TESSERA_COORDINATOR=launcher`).
    pub hosts: bool,
}

const NAMES: [&str; 4] = ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];
/// The most processes of a program on one host.
const MOST: usize = 128;

fn refused(text: String) -> Diagnostic {
    let help = "start the program by `tessera run -n N script.py`, which sets them, or by torchrun";
    Diagnostic::new(Code::E_COMM_INIT, text).help(help)
}

impl Place {
    /// By the environment; `None` where no launcher started the process.
    pub fn read(of: impl Fn(&str) -> Option<String>) -> Result<Option<Place>, Diagnostic> {
        let found = NAMES.map(&of);
        let missing: Vec<&str> =
            NAMES.iter().zip(&found).filter(|(_, v)| v.is_none()).map(|(n, _)| *n).collect();
        let [Some(rank), Some(world), Some(address), Some(port)] = found else {
            // One of them alone is another program's.
            return match missing.len() {
                0 | 3 | 4 => Ok(None),
                _ => Err(refused(format!(
                    "expected RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment, got none of {}",
                    missing.join(", ")
                ))),
            };
        };
        let number = |name: &str, text: &str, least: usize, most: usize| {
            let n = text.parse().ok().filter(|n: &usize| (least..=most).contains(n));
            n.ok_or_else(|| {
                refused(format!(
                    "expected {name} from {least} to {most} in the environment, got {text:?}"
                ))
            })
        };
        let world = number("WORLD_SIZE", &world, 1, MOST)?;
        let rank = number("RANK", &rank, 0, world - 1)?;
        let port = number("MASTER_PORT", &port, 1, 65535)? as u16;
        let hosts = rank == 0 && of("TESSERA_COORDINATOR").as_deref() != Some("launcher");
        let token = of("TESSERA_TOKEN").unwrap_or_default();
        Ok(Some(Place { rank, world, address, port, token, hosts }))
    }

    /// Without a token anybody who reaches the port could join: only this host may.
    pub fn check(&self) -> Result<(), Diagnostic> {
        let is_here =
            matches!(&*self.address, "localhost" | "::1") || self.address.starts_with("127.");
        match is_here || !self.token.is_empty() {
            true => Ok(()),
            false => Err(refused(format!(
                "expected a token for the processes at {}, got none in TESSERA_TOKEN",
                self.address
            ))
            .help("set TESSERA_TOKEN to the same secret for all processes: `export TESSERA_TOKEN=$(openssl rand -hex 16)`")),
        }
    }
}
