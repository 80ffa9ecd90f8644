//! Tests of transports and of programs of ranks on them: against brute force over elements, and every way in which ranks can disagree.

#[allow(dead_code)]
#[path = "../../../mesh/tests/suite/brute.rs"]
mod brute;
mod collectives;
#[cfg(target_os = "linux")]
mod control;
mod desync;
mod exchange;
mod messages;
#[cfg(target_os = "linux")]
mod processes;
mod script;

/// The seed of the day, or of `TESSERA_FUZZ_SEED`; printed, so that a failure can be repeated.
fn seed() -> u64 {
    let given = std::env::var("TESSERA_FUZZ_SEED").ok().and_then(|s| s.parse().ok());
    let days = || std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_secs() / 86400);
    let seed = given.unwrap_or_else(days);
    println!("TESSERA_FUZZ_SEED={seed}");
    seed
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}
