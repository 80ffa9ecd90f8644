//! How long the attention kernel takes from decoration to Tile IR, for the budget of
//! ARCHITECTURE: 20 ms. Prints medians and spread; nothing depends on them.
//!
//! `cargo run -p tessera-frontend --example frontend_speed`

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};
use tessera_frontend::{Capture, Kernel};

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!("{what:<44} median {:6.2} ms   10%..90% {:.2}..{:.2} ms", at(0.5), at(0.1), at(0.9));
}

fn main() {
    let tunables = [("BLOCK_M", 64), ("BLOCK_N", 64), ("num_warps", 4)];
    let (mut decorate, mut elaborate, mut lower) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..50 {
        let decl = common::decl(common::ATTENTION, common::ATTENTION_PARAMS, &tunables);
        let start = Instant::now();
        let Ok(kernel) = Kernel::new(decl) else { return println!("the kernel was refused") };
        decorate.push(start.elapsed());
        let config = common::config(&kernel, &[("D", 64)], &[("is_causal", Capture::Bool(true))]);
        let start = Instant::now();
        let Ok(out) = kernel.elaborate(&config) else { return println!("the kernel was refused") };
        elaborate.push(start.elapsed());
        let mut func = out.func;
        let pipeline = tessera_lower::tile_pipeline(tessera_ir::PassOptions::default());
        let start = Instant::now();
        if pipeline.run(&mut func, &mut tessera_ir::PassContext::default()).is_err() {
            return println!("a pass failed");
        }
        lower.push(start.elapsed());
    }
    let total =
        decorate.iter().zip(&elaborate).zip(&lower).map(|((a, b), c)| *a + *b + *c).collect();
    report("attention: decoration, with its checks", decorate);
    report("attention: one configuration to Tile IR", elaborate);
    report("attention: the tile passes", lower);
    report("attention: all of it (budget 20 ms)", total);
}
