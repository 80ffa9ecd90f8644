//! Measures the strict functions: `cargo run --release -p tessera-numerics --example sweep -- <fn>
//! [options]`.
//!
//! `<fn>` is a name such as `exp`, or `all`. Options: `--all` every f32 (one operand), `--step N`
//! every N-th bit pattern (default 4099), `--pairs N` random pairs (two operands, default 2^24),
//! `--threads N` (default 1), `--quick` the sequences of the default profile, `--normal` leaves subnormal results out, `--ops` only prints how many
//! operations each expansion has.

mod reference;

use std::time::Instant;
use tessera_numerics::{
    DType, ExpOp, Kernel, STRICT, ScalarFn, expansion, quick_expansion, quick_f32,
};

#[derive(Clone, Default)]
struct Tally {
    count: u64,
    nearest: u64,
    undecided: u64,
    worst: f64,
    at: [f32; 2],
}

impl Tally {
    fn add(&mut self, f: ScalarFn, args: [f32; 2], got: f32, o: &Options) {
        let truth = reference::truth(f, &args);
        if o.normal && truth.abs() < f32::MIN_POSITIVE as f64 {
            return;
        }
        let error = reference::error(got, truth);
        self.count += 1;
        self.nearest += (error <= 0.5) as u64;
        self.undecided += reference::undecided(truth) as u64;
        if error > self.worst {
            (self.worst, self.at) = (error, args);
        }
    }

    fn join(mut self, other: &Tally) -> Tally {
        self.count += other.count;
        self.nearest += other.nearest;
        self.undecided += other.undecided;
        if other.worst > self.worst {
            (self.worst, self.at) = (other.worst, other.at);
        }
        self
    }
}

/// Every `step`-th bit pattern, the threads taking turns.
fn sweep_one(f: ScalarFn, k: fn(f32) -> f32, o: &Options, thread: u64) -> Tally {
    let mut tally = Tally::default();
    let mut bits = thread * o.step;
    while bits < 1 << 32 {
        let x = f32::from_bits(bits as u32);
        tally.add(f, [x, 0.0], k(x), o);
        bits += o.step * o.threads;
    }
    tally
}

/// Random pairs by a linear generator: a quarter have any bits, a quarter are of near magnitude,
/// and half lie where the result is in range (pow: y times log2 x within ±150).
fn sweep_two(f: ScalarFn, k: fn(f32, f32) -> f32, o: &Options, thread: u64) -> Tally {
    let mut tally = Tally::default();
    let mut state = 0x9E37_79B9_7F4A_7C15u64.wrapping_mul(thread + 1);
    let mut word = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (state ^ (state >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (mixed >> 32) as u32
    };
    let mut i = thread;
    while i < o.pairs {
        let (a, b) = (word(), word());
        let any = f32::from_bits(a);
        let args = match (i % 4, f == ScalarFn::Pow) {
            (0, _) => [any, f32::from_bits(b)],
            (1, false) => [any, f32::from_bits((b & 0x807f_ffff) | (a & 0x7f80_0000))],
            (1, true) => [f32::from_bits(0x3f00_0000 + (a & 0x00ff_ffff)), f32::from_bits(b)],
            (_, false) => {
                let spread = b as i32 % 20;
                [any, f32::from_bits(word() & 0x807f_ffff | a & 0x7f80_0000) * 2f32.powi(spread)]
            }
            (_, true) => {
                let x = any.abs();
                let share = b as f64 / 2f64.powi(31) - 1.0;
                [x, (share * 152.0 / (x as f64).log2()) as f32]
            }
        };
        tally.add(f, args, k(args[0], args[1]), o);
        i += o.threads;
    }
    tally
}

struct Options {
    step: u64,
    pairs: u64,
    threads: u64,
    normal: bool,
    quick: bool,
}

fn measure(f: ScalarFn, o: &Options) -> Tally {
    let kernel = match quick_f32(f) {
        Some(k) if o.quick => Kernel::F32U(k),
        _ => f.kernel(DType::F32).expect("every strict function takes f32"),
    };
    let parts: Vec<Tally> = std::thread::scope(|scope| {
        let run = |t: u64| {
            scope.spawn(move || match kernel {
                Kernel::F32U(k) => sweep_one(f, k, o, t),
                Kernel::F32B(k) => sweep_two(f, k, o, t),
                _ => unreachable!("strict functions have one or two operands"),
            })
        };
        let handles: Vec<_> = (0..o.threads).map(run).collect();
        handles.into_iter().map(|h| h.join().expect("a sweep does not panic")).collect()
    });
    parts.iter().fold(Tally::default(), Tally::join)
}

fn print_ops(f: ScalarFn, quick: bool) {
    let short = quick_expansion(f).filter(|_| quick);
    let e = short.or(expansion(f)).expect("strict functions have expansions");
    let work = e.ops.iter().filter(|op| !matches!(op, ExpOp::Input(_) | ExpOp::Const(_))).count();
    println!("{f}: {work} operations");
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default: u64| {
        let at = args.iter().position(|a| a == name);
        at.and_then(|i| args.get(i + 1)).and_then(|v| v.parse().ok()).unwrap_or(default).max(1)
    };
    let flag = |name: &str| args.iter().any(|a| a == name);
    let options = Options {
        step: if flag("--all") { 1 } else { number("--step", 4099) },
        pairs: number("--pairs", 1 << 24),
        threads: number("--threads", 1),
        normal: flag("--normal"),
        quick: flag("--quick"),
    };
    let name = args.first().map_or("all", |s| s.as_str());
    let chosen: Vec<ScalarFn> =
        STRICT.iter().copied().filter(|f| name == "all" || f.name() == name).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = STRICT.iter().map(|f| f.name()).collect();
        eprintln!("no strict function {name:?}; there are: all {}", names.join(" "));
        std::process::exit(2);
    }
    for f in chosen {
        if flag("--ops") {
            print_ops(f, options.quick);
            continue;
        }
        let start = Instant::now();
        let t = measure(f, &options);
        let at: Vec<String> =
            t.at[..f.arity()].iter().map(|x| format!("{x:e} ({:#010x})", x.to_bits())).collect();
        let share = 100.0 * t.nearest as f64 / t.count as f64;
        println!(
            "| {f} | {:.4} | {} | {share:.3} % | {} | {} | {:.0} s |",
            t.worst,
            at.join(", "),
            t.undecided,
            t.count,
            start.elapsed().as_secs_f64()
        );
    }
}
