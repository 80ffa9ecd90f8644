//! Random plans on several queues: the verifier accepts them, and in whatever order the queues run
//! they give the bits of one queue.

use std::collections::BTreeSet;
use tessera_diag::{Diagnostics, Loc};
use tessera_interp::{HostArray, PlanSteps, QueueOrder, run_schedule};
use tessera_ir::{Module, OpId, verify};
use tessera_numerics::DType;
use tessera_plan::{
    Array, Buffer, BufferId, Origin, Plan, Queues, Step, Written, argument_type, queues,
};
use tessera_schedule::SchedOp;
use tessera_target::speed::Speed;
use tessera_target::{ArgValue, BufferArg, LaunchArgs};
use tessera_tile::TileFunc;

/// Elements of a row; stacks have four.
const ROW: i64 = 8;
const ROWS: i64 = 4;
/// Loops and branches inside each other.
const DEEPEST: usize = 2;

struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % n.max(1) as u64) as usize
    }
}

/// Each written number is a hash of its place and of all that the step reads.
struct Mixes;

fn numbers(array: &BufferArg) -> Vec<*mut i64> {
    let count: i64 = array.dims.iter().product();
    assert!(array.dtype != DType::I64 || array.strides.last().is_none_or(|&s| s == 8));
    (0..count).map(|i| array.data.wrapping_add(8 * i as usize).cast()).collect()
}

impl PlanSteps for Mixes {
    fn run(&mut self, _: OpId, args: &LaunchArgs) -> Result<(), Diagnostics> {
        let arrays = args.params.iter().filter_map(|p| match p {
            ArgValue::Buffer(b) => Some(b),
            ArgValue::Scalar(_) => None,
        });
        let (written, read): (Vec<_>, Vec<_>) = arrays.partition(|b| b.writable);
        let mix =
            |hash: u64, v: u64| (hash ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        // SAFETY: the plan's arrays have these elements.
        let all = read.iter().flat_map(|b| numbers(b)).map(|at| unsafe { at.read_unaligned() });
        let hash = all.fold(17, |hash, v| mix(hash, v as u64));
        for (i, at) in written.iter().flat_map(|b| numbers(b)).enumerate() {
            // SAFETY: as above.
            unsafe { at.write_unaligned(mix(hash, i as u64) as i64) }
        }
        Ok(())
    }

    fn constant(&mut self, _: OpId) -> Result<Vec<u8>, Diagnostics> {
        unreachable!("the plans have no constants")
    }
}

struct Maker {
    draw: Draw,
    plan: Plan,
    /// Buffers that were written on every path so far.
    written: BTreeSet<BufferId>,
    loops: usize,
}

fn whole(buffer: BufferId, rows: i64) -> Array {
    let (dims, strides) = match rows {
        1 => (vec![ROW], vec![8]),
        rows => (vec![rows, ROW], vec![8 * ROW, 8]),
    };
    let (offset, dtype, iterations) = (0, DType::I64, Vec::new());
    Array { buffer, offset, dims, strides, dtype, writes: true, iterations }
}

impl Maker {
    fn new(seed: u64) -> Self {
        let plan = Plan {
            name: "f".into(),
            kernels: (0..3).map(|i| TileFunc::new(format!("k{i}"))).collect(),
            buffers: Vec::new(),
            steps: Vec::new(),
            params: Vec::new(),
            results: Vec::new(),
            fused: Vec::new(),
        };
        let draw = Draw(seed.wrapping_mul(7919) + 17);
        let mut out = Self { draw, plan, written: BTreeSet::new(), loops: 0 };
        for place in 0..3 {
            let ty = match place {
                2 => argument_type(&[], DType::Bool),
                _ => argument_type(&[ROWS, ROW], DType::I64),
            };
            let bytes = if place == 2 { 1 } else { 8 * (ROWS * ROW) as usize };
            let name = format!("a{place}");
            out.plan.buffers.push(Buffer { bytes, origin: Origin::Argument(place), name, ty });
            out.plan.params.push(place);
        }
        out.written.extend([0, 1]);
        out
    }

    fn scratch(&mut self, dims: &[i64]) -> BufferId {
        let bytes = 8 * dims.iter().product::<i64>() as usize;
        let name = format!("v{}", self.plan.buffers.len());
        let ty = argument_type(dims, DType::I64);
        self.plan.buffers.push(Buffer { bytes, origin: Origin::Scratch, name, ty });
        self.plan.buffers.len() - 1
    }

    /// A row of a buffer, or all of it; in loops sometimes another row in each iteration.
    fn part(&mut self, buffer: BufferId, inside: Option<usize>) -> Array {
        match (self.draw.below(3), inside) {
            (0, Some(number)) => Array { iterations: vec![(number, 8 * ROW)], ..whole(buffer, 1) },
            (1, _) => {
                let row = self.draw.below(ROWS as usize) as i64;
                Array { offset: 8 * ROW * row, ..whole(buffer, 1) }
            }
            _ => whole(buffer, ROWS),
        }
    }

    fn launch(&mut self, inside: Option<usize>) -> Step {
        let readable: Vec<BufferId> = self.written.iter().copied().collect();
        let mut args = Vec::new();
        for _ in 0..1 + self.draw.below(3) {
            let buffer = readable[self.draw.below(readable.len())];
            args.push(Array { writes: false, ..self.part(buffer, inside) });
        }
        let own: Vec<BufferId> = readable.into_iter().filter(|b| *b > 2).collect();
        let new = own.is_empty() || self.draw.below(2) == 0;
        let to = match new {
            true => self.scratch(&[ROWS, ROW]),
            false => own[self.draw.below(own.len())],
        };
        // All of it is written first: parts that nothing wrote would hold poison.
        let to = if new { whole(to, ROWS) } else { self.part(to, inside) };
        args.retain(|a| a.buffer != to.buffer);
        self.written.insert(to.buffer);
        args.push(to);
        Step::Launch {
            kernel: self.draw.below(3),
            args,
            grid: [1 + self.draw.below(4) as i64, 1, 1],
            domain: [0; 3],
            lanes: 1,
            label: "mix".into(),
            loc: Loc::unknown(),
            queue: 0,
        }
    }

    fn steps(&mut self, count: usize, depth: usize, inside: Option<usize>) -> Vec<Step> {
        let mut out = Vec::new();
        for _ in 0..count {
            let step = match self.draw.below(if depth < DEEPEST { 9 } else { 7 }) {
                7 => {
                    let position = self.scratch(&[]);
                    let position =
                        Array { dims: Vec::new(), strides: Vec::new(), ..whole(position, 1) };
                    let number = self.loops;
                    self.loops += 1;
                    let more = 2 + self.draw.below(4);
                    let body = self.steps(more, depth + 1, Some(number));
                    let reverse = self.draw.below(2) == 0;
                    Step::Loop { id: number, trip: ROWS, reverse, position, body }
                }
                8 => {
                    let pred = Array {
                        dims: Vec::new(),
                        strides: Vec::new(),
                        dtype: DType::Bool,
                        writes: false,
                        ..whole(2, 1)
                    };
                    let before = self.written.clone();
                    let more = self.draw.below(5);
                    let then = self.steps(more, depth + 1, inside);
                    let after = std::mem::replace(&mut self.written, before);
                    let otherwise = self.steps(more, depth + 1, inside);
                    self.written.retain(|b| after.contains(b));
                    Step::Cond { pred, then, otherwise, loc: Loc::unknown() }
                }
                5 => {
                    let readable: Vec<BufferId> = self.written.iter().copied().collect();
                    let from = readable[self.draw.below(readable.len())];
                    let to = self.scratch(&[ROWS, ROW]);
                    self.written.insert(to);
                    let from = Array { writes: false, ..whole(from, ROWS) };
                    Step::Copy { from, to: whole(to, ROWS), queue: 0 }
                }
                _ => self.launch(inside),
            };
            out.push(step);
        }
        out
    }

    /// `nested`: with loops and branches.
    fn made(seed: u64, nested: bool) -> Plan {
        let mut maker = Maker::new(seed);
        let count = 4 + maker.draw.below(20);
        let mut steps = maker.steps(count, if nested { 0 } else { DEEPEST }, None);
        // What is returned depends on everything, in memory of its own.
        let all: Vec<BufferId> = maker.written.iter().copied().collect();
        let result = maker.scratch(&[ROWS, ROW]);
        let mut args: Vec<Array> =
            all.into_iter().map(|b| Array { writes: false, ..whole(b, ROWS) }).collect();
        args.push(whole(result, ROWS));
        let mut last = maker.launch(None);
        if let Step::Launch { args: old, .. } = &mut last {
            *old = args;
        }
        steps.push(last);
        let mut plan = maker.plan;
        plan.steps = steps;
        plan.results = vec![(result, argument_type(&[ROWS, ROW], DType::I64))];
        plan
    }
}

fn inputs(seed: u64) -> Vec<HostArray> {
    let stack = |first: u64| {
        let numbers = (0..ROWS * ROW).flat_map(|i| (first + 31 * i as u64).to_le_bytes());
        HostArray { dims: vec![ROWS, ROW], dtype: DType::I64, bytes: numbers.collect() }
    };
    let choice = HostArray { dims: Vec::new(), dtype: DType::Bool, bytes: vec![(seed % 2) as u8] };
    vec![stack(seed), stack(seed ^ 0xabcd), choice]
}

fn run(written: &Written, seed: u64, order: QueueOrder) -> Vec<HostArray> {
    run_schedule(&written.func, &mut inputs(seed), &mut Mixes, order)
        .unwrap_or_else(|e| panic!("{e}\n{}", shown(written)))
}

fn shown(written: &Written) -> String {
    let mut module = Module::new("f");
    module.funcs.push(written.func.clone());
    module.to_string()
}

#[test]
fn random_plans_give_the_same_on_any_number_of_queues() {
    let (mut on_others, mut waits) = (0, 0);
    for seed in 0..150 {
        println!("seed {seed}");
        let plan = Maker::made(seed, true);
        let one = plan.write("any");
        verify(&one.func).unwrap_or_else(|e| panic!("{e}\n{}", shown(&one)));
        let wanted = run(&one, seed, QueueOrder::Program);
        for most in 1..=4 {
            let mut several = plan.clone();
            queues(&mut several, &Queues { most, speed: None })
                .unwrap_or_else(|e| panic!("{e}\n{:#?}", several.steps));
            let written = several.write("any");
            let text = shown(&written);
            assert!(!text.contains(&format!("queue = {most}")), "{text}");
            on_others += usize::from(text.contains("queue = 1"));
            waits += text.matches("sched.wait").count();
            assert_eq!(run(&written, seed, QueueOrder::Program), wanted, "{text}");
            for draw in 0..6 {
                assert_eq!(run(&written, seed, QueueOrder::Random(draw)), wanted, "{text}");
            }
        }
    }
    assert!(on_others > 100 && waits > 1000, "{on_others} {waits}");
}

/// Inside loops and branches a queue may know more than the events of a list say.
#[test]
fn a_plan_without_one_of_its_events_is_refused() {
    let mut left_out = 0;
    for seed in 0..40 {
        let mut plan = Maker::made(seed, false);
        queues(&mut plan, &Queues { most: 3, speed: None }).unwrap();
        let written = plan.write("any");
        for id in written.func.walk() {
            if written.func.ops[id].code == SchedOp::Wait {
                let mut func = written.func.clone();
                let block = func.ops[id].block;
                func.blocks[block].ops.retain(|op| *op != id);
                assert!(verify(&func).is_err(), "seed {seed}, {id:?}\n{}", shown(&written));
                left_out += 1;
            }
        }
    }
    assert!(left_out > 200, "{left_out}");
}

const MACHINE: Speed = Speed {
    processors: 132,
    clock: 1.6e9,
    matrix: 4096.0,
    scalar: 128.0,
    warps: 3.0,
    local_bytes: 1 << 18,
    shared_bytes: 227 << 10,
    l2_lines_per_s: 4096.0 * 1.6e9 / 24.0,
    memory: 3.4e12,
    memory_latency: 2048.0,
    group: 1.5e-6,
    max_resident_blocks: 16,
    fetch: 2e-9,
    wait: 4.5e-7,
    epilogue_overhead: 96.0,
    launch: 3.9e-6,
};

/// Chains of launches that do not depend on each other, each a long copy by a number of groups.
fn chains(count: usize, length: usize, groups: i64, elements: i64) -> Plan {
    let text = format!(
        "func @k0(%x: view<[{elements}], f32, read>, %y: view<[{elements}], f32, write>) {{kind = group, grid = [{groups}]}} {{
  %zero = tile.const {{value = 0}} : i64
  %a = tile.load %x at(%zero) {{extent = [{elements}]}} : tile<{elements}xf32>
  tile.store %y, %a at(%zero) {{extent = [{elements}]}}
  tile.return
}}"
    );
    let kernel = tessera_tile::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    let ty = argument_type(&[elements], DType::F32);
    let bytes = 4 * elements as usize;
    let mut plan = Plan {
        name: "f".into(),
        kernels: vec![kernel],
        buffers: vec![Buffer {
            bytes,
            origin: Origin::Argument(0),
            name: "x".into(),
            ty: ty.clone(),
        }],
        steps: Vec::new(),
        params: vec![0],
        results: Vec::new(),
        fused: Vec::new(),
    };
    let array = |buffer: BufferId, writes: bool| Array {
        buffer,
        offset: 0,
        dims: vec![elements],
        strides: vec![4],
        dtype: DType::F32,
        writes,
        iterations: Vec::new(),
    };
    for _ in 0..count {
        let mut from = 0;
        for _ in 0..length {
            let name = format!("v{}", plan.buffers.len());
            plan.buffers.push(Buffer { bytes, origin: Origin::Scratch, name, ty: ty.clone() });
            let to = plan.buffers.len() - 1;
            plan.steps.push(Step::Launch {
                kernel: 0,
                args: vec![array(from, false), array(to, true)],
                grid: [groups, 1, 1],
                domain: [0; 3],
                lanes: 1,
                label: "copy".into(),
                loc: Loc::unknown(),
                queue: 0,
            });
            from = to;
        }
        plan.results.push((from, ty.clone()));
    }
    plan
}

/// What writes nothing is launched for its effects: it prints, or checks.
#[test]
fn launches_that_write_nothing_keep_their_order() {
    let mut plan = chains(3, 2, 8, 1 << 20);
    let only_reads = |step: &mut Step, loc: &str| {
        let Step::Launch { args, label, .. } = step else { panic!("a launch") };
        args.truncate(1);
        *label = loc.to_string();
    };
    // The last launch of each chain is of a result.
    for (chain, name) in [(0, "a"), (1, "b"), (2, "c")] {
        let mut step = plan.steps[3 * chain + 1].clone();
        only_reads(&mut step, name);
        plan.steps.insert(3 * chain + 2, step);
    }
    queues(&mut plan, &Queues { most: 3, speed: None }).unwrap_or_else(|e| panic!("{e}"));
    let labels = plan.steps.iter().filter_map(|step| match step {
        Step::Launch { label, .. } if label != "copy" => Some(label.as_str()),
        _ => None,
    });
    assert_eq!(labels.collect::<String>(), "abc");
    assert!(!plan.module("any").to_string().contains("queue = 3"));
}

#[test]
fn queues_are_used_where_it_pays() {
    let how = Queues { most: 4, speed: Some(&MACHINE) };
    let used = |mut plan: Plan| {
        queues(&mut plan, &how).unwrap_or_else(|e| panic!("{e}"));
        let all = plan.steps.iter().map(|step| match step {
            Step::Launch { queue, .. } => *queue,
            _ => 0,
        });
        all.collect::<BTreeSet<usize>>().len()
    };
    // Long launches of a few groups have room beside each other.
    assert_eq!(used(chains(3, 4, 8, 1 << 20)), 3);
    // One chain, launches that fill the machine, and launches shorter than it takes to give them out.
    assert_eq!(used(chains(1, 12, 8, 1 << 20)), 1);
    assert_eq!(used(chains(3, 4, 132, 1 << 20)), 1);
    assert_eq!(used(chains(2, 1, 1, 64)), 1);
}
