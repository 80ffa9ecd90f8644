//! Plans: the results of steps on several queues, in every order that the plan allows.

use tessera_diag::Diagnostics;
use tessera_interp::{HostArray, Interp, PlanSteps, QueueOrder, run_schedule};
use tessera_ir::{Attr, Func, OpId, parse_module, verify};
use tessera_numerics::{DType, Profile};
use tessera_schedule::{SchedOp, Schedule};
use tessera_target::{ArgValue, Backend, BufferArg, CompileOptions, LaunchArgs};
use tessera_tile::TileFunc;

fn plan(text: &str) -> Func<Schedule> {
    let text = format!("module @m : schedule {{version = 1}}\n\n{text}");
    let module = parse_module::<Schedule>(&text, "plan").unwrap_or_else(|e| panic!("{e}\n{text}"));
    module.funcs[0].clone()
}

/// Kernels in Tile IR.
struct Tiles<'a>(&'a Func<Schedule>, Vec<TileFunc>);

impl PlanSteps for Tiles<'_> {
    fn run(&mut self, step: OpId, args: &LaunchArgs) -> Result<(), Diagnostics> {
        let name = self.0.ops[step].attr("kernel").and_then(Attr::as_ref_name);
        let kernel = self.1.iter().find(|k| Some(&*k.name) == name).expect("the kernel");
        Interp.compile(kernel, &CompileOptions::new(Profile::Strict))?.launch(args)
    }

    fn constant(&mut self, _: OpId) -> Result<Vec<u8>, Diagnostics> {
        Ok([2.0f32, 3.0, 4.0, 5.0].iter().flat_map(|v| v.to_le_bytes()).collect())
    }
}

#[test]
fn a_plan_of_kernels_loops_and_branches_is_run() {
    let add = "func @add(%x: view<[4], f32, read>, %y: view<[4], f32, read>, %z: view<[4], f32, write>) {kind = group, grid = [1]} {
  %0 = tile.const {value = 0} : i64
  %a = tile.load %x at(%0) {extent = [4]} : tile<4xf32>
  %b = tile.load %y at(%0) {extent = [4]} : tile<4xf32>
  %c = tile.add %a, %b : tile<4xf32>
  tile.store %z, %c at(%0) {extent = [4]}
  tile.return
}";
    let twice = "func @twice(%x: view<[n], f32, read_write>) {kind = lane} {
  %i = tile.linear_id : i64
  %v = tile.load %x at(%i) {extent = [0]} : f32
  %w = tile.add %v, %v : f32
  tile.store %x, %w at(%i) {extent = [0]}
  tile.return
}";
    // Each row of the result is the constant and a column of the argument, from the last row on; then
    // all of it twice, if the argument says so.
    let func = plan(
        "func @f(%x: view<[4, 3], f32, read>, %go: view<[], bool, read>) {
  %c = sched.constant : view<[4], f32, read>
  %y = sched.store : view<[3, 4], f32, read_write>
  %a = sched.store {at = 0} : view<[4], f32, read_write>
  %i = sched.store : view<[], i64, read_write>
  sched.loop %i {trip = 3, reverse = true} do (%t: i64) {
    %0 = sched.view %x at(%t) {strides = [12], iteration_bytes = [4]} : view<[4], f32, read>
    %1 = sched.view %y at(%t) {iteration_bytes = [16]} : view<[4], f32, read_write>
    sched.launch %0, %c, %a {kernel = @add, grid = [1], backend = interp, writes = [2]}
    sched.copy %a, %1
    sched.yield
  }
  sched.if %go do {
    %2 = sched.view %y : view<[12], f32, read_write>
    sched.launch %2 {kernel = @twice, domain = 12, lanes = 8, backend = interp, writes = [0]}
    sched.yield
  } do {
    sched.yield
  }
  sched.free %a
  sched.free %i
  sched.return %y
}",
    );
    let kernels = [add, &twice.replace("[n]", "[12]")].map(|k| tessera_tile::parse(k).unwrap());
    let x: Vec<f64> = (0..12).map(f64::from).collect();
    for (go, by) in [(0.0, 1.0), (1.0, 2.0)] {
        let mut inputs =
            [HostArray::new(&[4, 3], DType::F32, &x), HostArray::new(&[], DType::Bool, &[go])];
        let mut tiles = Tiles(&func, kernels.to_vec());
        let got = run_schedule(&func, &mut inputs, &mut tiles, QueueOrder::Program).unwrap();
        let wanted: Vec<f64> =
            (0..12).map(|i| by * (x[i % 4 * 3 + i / 4] + [2.0, 3.0, 4.0, 5.0][i % 4])).collect();
        assert_eq!(got[0].values(), wanted, "{go}");
    }
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let func = plan(
        "func @f(%x: view<[n], f32, read>, %y: view<[n], f32, read_write>) {\n  sched.copy %x, %y\n  sched.return\n}",
    );
    let run = |dims: &[&[i64]]| {
        let mut inputs: Vec<_> = dims.iter().map(|d| HostArray::zeros(d, DType::F32)).collect();
        run_schedule(&func, &mut inputs, &mut Tiles(&func, Vec::new()), QueueOrder::Program)
    };
    assert!(run(&[&[3], &[3]]).is_ok());
    let error = run(&[&[3], &[4]]).unwrap_err().to_string();
    assert!(
        error.contains("expected %y to be view<[n], f32, read_write>, got f32 of shape [4]"),
        "{error}"
    );
    let error = run(&[&[3]]).unwrap_err().to_string();
    assert!(error.contains("expected 2 arguments, got 1"), "{error}");
}

/// A kernel that makes its last operand of the others and of its own number.
struct Mix<'a>(&'a Func<Schedule>);

fn numbers(of: &BufferArg) -> &mut [i64] {
    let count: i64 = of.dims.iter().product();
    // SAFETY: a whole array of i64 of a run, one step at a time.
    unsafe { std::slice::from_raw_parts_mut(of.data.cast::<i64>(), count as usize) }
}

impl PlanSteps for Mix<'_> {
    fn run(&mut self, step: OpId, args: &LaunchArgs) -> Result<(), Diagnostics> {
        assert_eq!(self.0.ops[step].code, SchedOp::Launch);
        let buffers: Vec<&BufferArg> = args
            .params
            .iter()
            .filter_map(|p| if let ArgValue::Buffer(b) = p { Some(b) } else { None })
            .collect();
        let (to, from) = buffers.split_last().expect("an operand");
        let mut sum = args.grid[0];
        for (place, one) in from.iter().enumerate() {
            for &v in numbers(one).iter() {
                sum = sum.wrapping_mul(31).wrapping_add(v.wrapping_mul(2 * place as i64 + 3));
            }
        }
        numbers(to).iter_mut().enumerate().for_each(|(i, v)| *v = sum.wrapping_add(i as i64));
        Ok(())
    }

    fn constant(&mut self, _: OpId) -> Result<Vec<u8>, Diagnostics> {
        unreachable!("the plans have none")
    }
}

struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % n as u64) as usize
    }
}

const QUEUES: usize = 3;
const BUFFERS: usize = 4;

/// A random plan of steps on several queues, in which everything waits for what it needs.
struct Maker {
    draw: Draw,
    lines: Vec<String>,
    events: usize,
    steps: usize,
    /// The queue and the event of the last write of each buffer, and of the reads since.
    written: Vec<Option<(usize, usize)>>,
    read: Vec<Vec<(usize, usize)>>,
}

impl Maker {
    fn record(&mut self, queue: usize) -> usize {
        self.events += 1;
        self.lines.push(format!("%e{} = sched.record {{queue = {queue}}} : event", self.events));
        self.events
    }

    fn wait(&mut self, event: usize, queue: usize) {
        self.lines.push(format!("sched.wait %e{event} {{queue = {queue}}}"));
    }

    /// All queues begin behind queue 0.
    fn fork(&mut self) {
        let event = self.record(0);
        (1..QUEUES).for_each(|q| self.wait(event, q));
        self.written.iter_mut().for_each(|w| *w = w.map(|_| (0, event)));
        self.read.iter_mut().for_each(Vec::clear);
    }

    /// Queue 0 goes on behind all of them.
    fn join(&mut self) {
        for q in 1..QUEUES {
            let event = self.record(q);
            self.wait(event, 0);
        }
    }

    fn step(&mut self, position: bool) {
        let queue = self.draw.below(QUEUES);
        let to = self.draw.below(BUFFERS);
        let known: Vec<usize> =
            (0..BUFFERS).filter(|&b| b != to && self.written[b].is_some()).collect();
        let mut from: Vec<usize> = Vec::new();
        for _ in 0..2 {
            if !known.is_empty() {
                from.push(known[self.draw.below(known.len())]);
            }
        }
        let mut needed: Vec<(usize, usize)> =
            from.iter().filter_map(|&b| self.written[b]).collect();
        needed.extend(self.written[to]);
        needed.extend(&self.read[to]);
        needed.sort_unstable();
        needed.dedup();
        for (other, event) in needed {
            if other != queue {
                self.wait(event, queue);
            }
        }
        self.steps += 1;
        let mut operands: Vec<String> = from.iter().map(|b| format!("%b{b}, ")).collect();
        operands.push("%x, ".into());
        if position {
            operands.push("%i, ".into());
        }
        let place = operands.len();
        self.lines.push(format!(
            "sched.launch {}%b{to} {{kernel = @mix, grid = [{}], backend = interp, writes = [{place}], queue = {queue}}}",
            operands.concat(),
            self.steps
        ));
        let event = self.record(queue);
        from.iter().for_each(|&b| self.read[b].push((queue, event)));
        self.read[to].clear();
        self.written[to] = Some((queue, event));
    }

    fn plan(seed: u64) -> String {
        let mut m = Maker {
            draw: Draw(seed),
            lines: Vec::new(),
            events: 0,
            steps: 0,
            written: vec![None; BUFFERS],
            read: vec![Vec::new(); BUFFERS],
        };
        for b in 0..BUFFERS {
            m.lines.push(format!("%b{b} = sched.store : view<[2], i64, read_write>"));
        }
        m.lines.push("%i = sched.store : view<[], i64, read_write>".into());
        m.fork();
        (0..4 + m.draw.below(6)).for_each(|_| m.step(false));
        m.join();
        m.lines.push("sched.loop %i {trip = 3} do (%t: i64) {".into());
        m.fork();
        (0..2 + m.draw.below(4)).for_each(|_| m.step(true));
        m.join();
        m.lines.push("sched.yield\n}".into());
        m.fork();
        (0..BUFFERS * 4).for_each(|_| {
            if m.written.iter().any(Option::is_none) {
                m.step(false);
            }
        });
        m.join();
        let kept: Vec<usize> = (0..BUFFERS).filter(|&b| m.written[b].is_some()).collect();
        let freed = if kept.len() > 1 { kept[m.draw.below(kept.len())] } else { BUFFERS };
        let returned: Vec<String> =
            kept.iter().filter(|&&b| b != freed).map(|b| format!("%b{b}")).collect();
        if freed < BUFFERS {
            m.lines.push(format!("sched.free %b{freed}"));
        }
        m.lines.push("sched.free %i".into());
        m.lines.push(format!("sched.return {}", returned.join(", ")));
        let body = m.lines.join("\n");
        format!("func @f(%x: view<[2], i64, read>) {{\n{body}\n}}")
    }
}

fn results(func: &Func<Schedule>, order: QueueOrder) -> Vec<HostArray> {
    let mut inputs = [HostArray::new(&[2], DType::I64, &[5.0, 7.0])];
    run_schedule(func, &mut inputs, &mut Mix(func), order).unwrap_or_else(|e| panic!("{e}\n{func}"))
}

/// Plans that the verifier accepts give the same results in every order. Each wait of a plan is left
/// out in turn: the verifier refuses what is left, or the results are still the same; and of those
/// that it refuses, most orders are seen to give others.
#[test]
fn the_verifier_accepts_plans_whose_results_no_order_changes() {
    let (mut refused, mut seen, mut unneeded) = (0, 0, 0);
    for seed in 0..40 {
        let text = Maker::plan(seed);
        let func = plan(&text);
        verify(&func).unwrap_or_else(|e| panic!("{e}\n{func}"));
        let wanted = results(&func, QueueOrder::Program);
        for order in 0..8 {
            assert_eq!(results(&func, QueueOrder::Random(order)), wanted, "{order}\n{func}");
        }
        let waits: Vec<usize> = text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.starts_with("sched.wait"))
            .map(|(place, _)| place)
            .collect();
        for &gone in &waits {
            let lines = text.lines().enumerate().filter(|(place, _)| *place != gone);
            let less: Vec<&str> = lines.map(|(_, line)| line).collect();
            let func = plan(&less.join("\n"));
            let accepted = verify(&func).is_ok();
            let mut differs = false;
            for order in 0..12 {
                differs |= unverified(&func, order) != wanted;
            }
            assert!(!(accepted && differs), "line {gone} of\n{text}");
            refused += usize::from(!accepted);
            seen += usize::from(!accepted && differs);
            unneeded += usize::from(accepted);
        }
    }
    println!("{refused} refused, of these {seen} seen; {unneeded} not needed");
    assert!(refused > 100 && unneeded > 20, "{refused} refused, {unneeded} not needed");
    assert!(2 * seen > refused, "{refused} refused, {seen} seen");
}

/// The results of a plan that the verifier may refuse.
fn unverified(func: &Func<Schedule>, order: u64) -> Vec<HostArray> {
    let mut inputs = [HostArray::new(&[2], DType::I64, &[5.0, 7.0])];
    let order = QueueOrder::Random(order);
    tessera_interp::inner::run_unverified(func, &mut inputs, &mut Mix(func), order)
        .unwrap_or_else(|e| panic!("{e}\n{func}"))
}
