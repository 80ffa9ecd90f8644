//! How long the attention kernel takes from decoration to Tile IR, for the budget of
//! ARCHITECTURE: 20 ms. Prints medians and spread; nothing depends on them.
//!
//! `cargo run -p tessera-frontend --example frontend_speed`

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};
use tessera_frontend::{Capture, Kernel};

const ATTENTION: &str = "\
@ts.kernel.autotune(space=dict(BLOCK_M=[64, 128], BLOCK_N=[64, 128], num_warps=[4, 8]))
def attention(Q, K, V, O, is_causal=True):
    t = ts.tile.context()
    BM, BN = t.BLOCK_M, t.BLOCK_N
    bh = ts.tile.program_id(0)
    q0 = ts.tile.program_id(1) * BM
    sq = ts.tile.alloc_shared((BM, D), ts.bf16)
    sk = ts.tile.alloc_shared((BN, D), ts.bf16)
    sv = ts.tile.alloc_shared((BN, D), ts.bf16)
    acc = ts.tile.zeros((BM, D), ts.f32)
    m = ts.tile.full((BM,), -math.inf, ts.f32)
    l = ts.tile.zeros((BM,), ts.f32)
    ts.tile.cp_async(sq, Q[bh, q0:q0 + BM, :])
    hi = min(S, q0 + BM) if is_causal else S
    for k0 in ts.tile.range(0, hi, BN):
        ts.tile.cp_async(sk, K[bh, k0:k0 + BN, :])
        ts.tile.cp_async(sv, V[bh, k0:k0 + BN, :])
        ts.tile.barrier()
        s = ts.tile.mma(sq, sk.T) * (1.0 / math.sqrt(D))
        s = ts.tile.bounds_mask(s, cols=S - k0)
        if is_causal:
            s = ts.tile.causal_mask(s, q0, k0)
        m_new = ts.tile.maximum(m, ts.tile.row_max(s))
        alpha = ts.tile.exp(m - m_new)
        p = ts.tile.exp(s - m_new[:, None])
        l = alpha * l + ts.tile.row_sum(p)
        acc = alpha[:, None] * acc + ts.tile.mma(ts.tile.cast(p, ts.bf16), sv)
        m = m_new
    O[bh, q0:q0 + BM, :] = ts.tile.cast(acc / l[:, None], ts.bf16)
    return O
";


const PARAMS: &str =
    "Q: BH,S,D bf16; K: BH,S,D bf16; V: BH,S,D bf16; O: BH,S,D bf16; is_causal: const bool";

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!("{what:<44} median {:6.2} ms   10%..90% {:.2}..{:.2} ms", at(0.5), at(0.1), at(0.9));
}

fn main() {
    let tunables = [("BLOCK_M", 64), ("BLOCK_N", 64), ("num_warps", 4)];
    let (mut decorate, mut elaborate, mut lower) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..50 {
        let decl = common::decl(ATTENTION, PARAMS, &tunables);
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
    let total = decorate.iter().zip(&elaborate).zip(&lower).map(|((a, b), c)| *a + *b + *c).collect();
    report("attention: decoration, with its checks", decorate);
    report("attention: one configuration to Tile IR", elaborate);
    report("attention: the tile passes", lower);
    report("attention: all of it (budget 20 ms)", total);
}
