//! How long a fuzzer runs and where it begins. Each has a share of what `make test` spends on random
//! testing (ARCHITECTURE, "Tests"); `TESSERA_FUZZ_SECONDS` sets another time, and `make fuzz` does.
//! `TESSERA_FUZZ_SEED` is the first seed, by default the day; a failing case names its seed.

use std::time::{Duration, Instant};

pub struct Budget {
    start: Instant,
    limit: Duration,
    pub seed: u64,
}

impl Budget {
    /// `share` is how many seconds it runs where nothing else is said.
    pub fn new(share: u64) -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
        let limit = Duration::from_secs(number("TESSERA_FUZZ_SECONDS").unwrap_or(share));
        let seed = number("TESSERA_FUZZ_SEED").unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(1, |d| d.as_secs() / 86400)
        });
        println!("TESSERA_FUZZ_SEED={seed} TESSERA_FUZZ_SECONDS={}", limit.as_secs());
        Self { start: Instant::now(), limit, seed }
    }

    pub fn left(&self) -> bool {
        self.start.elapsed() < self.limit
    }
}
