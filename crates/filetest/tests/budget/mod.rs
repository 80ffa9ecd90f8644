//! How long a fuzzer runs and where it begins. `TESSERA_FUZZ_SECONDS` sets the time of each,
//! `TESSERA_FUZZ_SEED` the first seed; both are printed, and a failing case names its seed.

use std::time::{Duration, Instant};

pub struct Budget {
    start: Instant,
    limit: Duration,
    pub seed: u64,
}

impl Budget {
    pub fn new() -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
        let limit = Duration::from_secs(number("TESSERA_FUZZ_SECONDS").unwrap_or(60));
        let seed = number("TESSERA_FUZZ_SEED").unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(1, |d| d.as_nanos() as u64)
        });
        println!("TESSERA_FUZZ_SEED={seed} TESSERA_FUZZ_SECONDS={}", limit.as_secs());
        Self { start: Instant::now(), limit, seed }
    }

    pub fn left(&self) -> bool {
        self.start.elapsed() < self.limit
    }
}
