//! Programs of ranks that run rank by rank, against the interpreter, which runs all ranks: collectives of every kind at the top, in loops and
//! in branches, at random.

use super::check::{agree, module, noise};
use tessera_driver::Backends;
use tessera_driver::graph::{
    GraphOptions, GraphProgram, PlanOptions, argument_type, compile_graph,
};
use tessera_graph::GraphModule;
use tessera_interp::{HostArray, NoKernels, run_graph};
use tessera_ir::Type;
use tessera_lower::stage::{Off, Step as Pass};
use tessera_numerics::DType;

/// SplitMix64.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// The text of a program of `ranks` ranks along `tp`, each with a block of [4, 6], and of `beside` such groups along `dp`.
struct Text {
    draw: Draw,
    ranks: usize,
    beside: usize,
    lines: Vec<String>,
    next: usize,
    deep: usize,
}

const T: &str = "tensor<[4, 6], f32>";

impl Text {
    fn line(&mut self, text: &str) {
        let indent = "  ".repeat(self.deep + 2);
        self.lines.push(format!("{indent}{text}"));
    }

    fn name(&mut self) -> String {
        self.next += 1;
        format!("%v{}", self.next)
    }

    fn made(&mut self, what: &str, ty: &str) -> String {
        let name = self.name();
        self.line(&format!("{name} = {what} : {ty}"));
        name
    }

    fn some(&mut self, known: &[String]) -> String {
        // Later values more often.
        let at = self.draw.below(known.len()).max(self.draw.below(known.len()));
        known[at].clone()
    }

    /// The attributes of axes, and how many ranks there are along them.
    fn axes(&self, names: &[&str]) -> (String, usize) {
        let size = |name: &&str| if *name == "dp" { self.beside } else { self.ranks };
        let sizes: Vec<usize> = names.iter().map(size).collect();
        (format!("axes = [{}], sizes = {sizes:?}", names.join(", ")), sizes.iter().product())
    }

    fn collective(&mut self, x: &str) -> String {
        let n = self.ranks;
        let axes = format!("axes = [tp], sizes = [{n}]");
        let tall = format!("tensor<[{}, 6], f32>", 4 * n);
        match self.draw.below(8) {
            7 => {
                let names: &[&str] = [&["dp"][..], &["dp", "tp"]][self.draw.below(2)];
                let (axes, n) = self.axes(names);
                let sum = self.made(&format!("graph.all_reduce {x} {{{axes}, op = sum}}"), T);
                let part = self.made(&format!("graph.const {{value = {:?}}}", 1.0 / n as f64), T);
                self.made(&format!("graph.mul {sum}, {part}"), T)
            }
            0 => {
                let sum = self.made(&format!("graph.all_reduce {x} {{{axes}, op = sum}}"), T);
                let part = self.made(&format!("graph.const {{value = {:?}}}", 1.0 / n as f64), T);
                self.made(&format!("graph.mul {sum}, {part}"), T)
            }
            1 => self.made(&format!("graph.all_reduce {x} {{{axes}, op = max}}"), T),
            2 => {
                let all = self.made(&format!("graph.all_gather {x} {{{axes}, dim = 0}}"), &tall);
                let slice = format!(
                    "graph.slice {all} {{start = [{}, 0], limit = [{}, 6], stride = [1, 1]}}",
                    2 * n - 2,
                    2 * n + 2
                );
                self.made(&slice, T)
            }
            3 => {
                let all = self.made(&format!("graph.all_gather {x} {{{axes}, dim = 0}}"), &tall);
                self.made(&format!("graph.reduce_scatter {all} {{{axes}, dim = 0, op = max}}"), T)
            }
            4 => {
                let pairs: Vec<String> =
                    (0..n).map(|r| format!("[{r}, {}]", (r + 1) % n)).collect();
                let pairs = pairs.join(", ");
                self.made(&format!("graph.permute {x} {{{axes}, pairs = [{pairs}]}}"), T)
            }
            5 => {
                let half = "tensor<[4, 6], f16>";
                let narrow = self.made(&format!("graph.cast {x}"), half);
                let sum =
                    self.made(&format!("graph.all_reduce {narrow} {{{axes}, op = sum}}"), half);
                let wide = self.made(&format!("graph.cast {sum}"), T);
                self.made(&format!("graph.tanh {wide}"), T)
            }
            _ => self.made(&format!("graph.from_rank {x} {{{axes}, root = {}}}", n - 1), T),
        }
    }

    /// Sums of several values, as of gradients: they may be joined.
    fn several(&mut self, known: &[String]) -> String {
        let n = self.ranks;
        let axes = format!("axes = [tp], sizes = [{n}]");
        let dim = self.draw.below(2);
        let tall = [format!("tensor<[{}, 6], f32>", 4 * n), format!("tensor<[4, {}], f32>", 6 * n)];
        let (tall, scatters) = (tall[dim].clone(), self.draw.below(2) == 0);
        let mut values = Vec::new();
        for _ in 0..2 + self.draw.below(2) {
            let x = self.some(known);
            let (what, ty) = match scatters {
                true => (format!("graph.all_gather {x} {{{axes}, dim = {dim}}}"), &*tall),
                false => (format!("graph.sub {x}, %k"), T),
            };
            let x = self.made(&what, ty);
            values.push(self.made(&format!("graph.tanh {x}"), ty));
        }
        let name = ["all_reduce", "reduce_scatter"][usize::from(scatters)];
        let cut = if scatters { format!(", dim = {dim}") } else { String::new() };
        let sum = format!("{{{axes}{cut}, op = sum}}");
        let sums: Vec<String> =
            values.iter().map(|x| self.made(&format!("graph.{name} {x} {sum}"), T)).collect();
        let (first, rest) = sums.split_at(1);
        rest.iter().fold(first[0].clone(), |all, x| self.made(&format!("graph.sub {all}, {x}"), T))
    }

    /// A condition of which all ranks have the same.
    fn condition(&mut self, x: &str) -> String {
        let (axes, _) = self.axes(&["dp", "tp"]);
        let sum =
            self.made(&format!("graph.reduce {x} {{op = sum, axes = [0, 1]}}"), "tensor<[], f32>");
        let all =
            self.made(&format!("graph.all_reduce {sum} {{{axes}, op = sum}}"), "tensor<[], f32>");
        let zero = self.made("graph.const {value = 0.0}", "tensor<[], f32>");
        self.made(&format!("graph.lt {all}, {zero}"), "tensor<[], bool>")
    }

    /// Values of a block.
    fn steps(&mut self, mut known: Vec<String>, count: usize) -> String {
        for _ in 0..count {
            let (x, y) = (self.some(&known), self.some(&known));
            let made = match self.draw.below(if self.deep < 2 { 9 } else { 6 }) {
                0 => self.made(&format!("graph.sub {x}, {y}"), T),
                1 => {
                    let sum = self.made(&format!("graph.add {x}, {y}"), T);
                    self.made(&format!("graph.tanh {sum}"), T)
                }
                2..=4 => self.collective(&x),
                5 => self.several(&known),
                6 => {
                    let pred = self.condition(&x);
                    let name = self.name();
                    self.line(&format!("{name} = graph.cond {pred} : {T} do {{"));
                    self.branch(&known);
                    self.line("} do {");
                    self.branch(&known);
                    self.line("}");
                    name
                }
                7 => {
                    let (last, all) = (self.name(), self.name());
                    let (i, carry) = (self.name(), self.name());
                    let reverse = ["", ", reverse = true"][self.draw.below(2)];
                    self.line(&format!(
                        "{last}, {all} = graph.loop init({x}) {{trip = 3{reverse}}} : {T}, tensor<[3, 4, 6], f32> do ({i}: tensor<[], i64>, {carry}: {T}) {{"
                    ));
                    self.deep += 1;
                    let inner = [known.clone(), vec![carry.clone()]].concat();
                    let out = self.steps(inner, 2);
                    self.line(&format!("graph.yield {out}, {carry}"));
                    self.deep -= 1;
                    self.line("}");
                    let row = self.made(
                        &format!("graph.slice {all} {{start = [1, 0, 0], limit = [2, 4, 6], stride = [1, 1, 1]}}"),
                        "tensor<[1, 4, 6], f32>",
                    );
                    let row = self.made(&format!("graph.reshape {row}"), T);
                    self.made(&format!("graph.add {last}, {row}"), T)
                }
                _ => self.repeat(&x, &known),
            };
            known.push(made);
        }
        known.pop().unwrap_or_default()
    }

    fn branch(&mut self, known: &[String]) {
        self.deep += 1;
        let count = self.draw.below(3);
        let out = self.steps(known.to_vec(), count);
        self.line(&format!("graph.yield {out}"));
        self.deep -= 1;
    }

    fn repeat(&mut self, x: &str, known: &[String]) -> String {
        let number = "tensor<[], i64>";
        let (zero, one) = (
            self.made("graph.const {value = 0}", number),
            self.made("graph.const {value = 1}", number),
        );
        let trips = self.draw.below(4);
        let most = self.made(&format!("graph.const {{value = {trips}}}"), number);
        let (count, out) = (self.name(), self.name());
        let (i, a, j, b) = (self.name(), self.name(), self.name(), self.name());
        self.line(&format!(
            "{count}, {out} = graph.while init({zero}, {x}) : {number}, {T} do ({i}: {number}, {a}: {T}) {{"
        ));
        self.deep += 1;
        let more = self.made(&format!("graph.lt {i}, {most}"), "tensor<[], bool>");
        self.line(&format!("graph.yield {more}"));
        self.deep -= 1;
        self.line(&format!("}} do ({j}: {number}, {b}: {T}) {{"));
        self.deep += 1;
        let inner = [known.to_vec(), vec![b]].concat();
        let value = self.steps(inner, 2);
        let next = self.made(&format!("graph.add {j}, {one}"), number);
        self.line(&format!("graph.yield {next}, {value}"));
        self.deep -= 1;
        self.line("}");
        out
    }
}

fn program(seed: u64) -> (GraphModule, Vec<HostArray>) {
    let mut draw = Draw(seed);
    let ranks = 1 + draw.below(4);
    let beside = 1 + draw.below(3);
    let mut text = Text { draw, ranks, beside, lines: Vec::new(), next: 0, deep: 0 };
    let (axes, _) = text.axes(&["tp"]);
    let index = text.made(&format!("graph.axis_index {{{axes}}}"), "tensor<[], i64>");
    let index = text.made(&format!("graph.cast {index}"), "tensor<[], f32>");
    let index = text.made(&format!("graph.broadcast {index} {{dims = []}}"), T);
    let own = text.made(&format!("graph.own %w {{{axes}, dim = 0}}"), T);
    // What is the same on all ranks, and what differs along the other axis.
    let slice = "graph.slice %w {start = [0, 0], limit = [4, 6], stride = [1, 1]}";
    let same = text.made(slice, T);
    let (other, _) = text.axes(&["dp"]);
    let row = text.made(&format!("graph.axis_index {{{other}}}"), "tensor<[], i64>");
    let row = text.made(&format!("graph.cast {row}"), "tensor<[], f32>");
    let row = text.made(&format!("graph.broadcast {row} {{dims = []}}"), T);
    let count = 2 + text.draw.below(6);
    let known = vec![index, own, "%c".into(), "%k".into(), row, same];
    let out = text.steps(known, count);
    let out = text.made(&format!("graph.all_reduce {out} {{{other}, op = max}}"), T);
    let out = text.made(&format!("graph.add {out}, %k"), T);
    let (axes, _) = text.axes(&["dp", "tp"]);
    let rows = 4 * ranks;
    let body = format!(
        "func @f(%x: tensor<[{rows}, 6], f32>, %y: tensor<[4, {}], f32>, %z: tensor<[{rows}, 6], f32>) {{\n  %a, %b = graph.manual %x, %y, %z {{{axes}, in = [[[tp], []], [[], [tp]], [[], []]], out = [[[tp], []], [[], [tp]]]}} : tensor<[{rows}, 6], f32>, tensor<[4, {}], f32> do (%k: {T}, %c: {T}, %w: tensor<[{rows}, 6], f32>) {{\n{}\n    graph.yield {out}, {out}\n  }}\n  graph.return %a, %b\n}}",
        6 * ranks,
        6 * ranks,
        text.lines.join("\n"),
    );
    let rows = rows as i64;
    let args = vec![
        noise(&[rows, 6], DType::F32, 3),
        noise(&[4, 6 * ranks as i64], DType::F32, 71),
        noise(&[rows, 6], DType::F32, 113),
    ];
    (module(&body), args)
}

fn compiled(module: &GraphModule, args: &[HostArray], off: Off) -> GraphProgram {
    let types: Vec<Type> = args.iter().map(|a| argument_type(&a.dims, a.dtype)).collect();
    let plan = PlanOptions { off: off.with(Pass::RankRows), ..PlanOptions::default() };
    let options = GraphOptions { backend: Some("cpu".into()), plan, ..GraphOptions::default() };
    compile_graph(module, "f", &types, &Backends::default(), &options)
        .unwrap_or_else(|e| panic!("{e}\n{module}"))
}

#[test]
fn random_programs_of_ranks_agree_with_the_interpreter() {
    let given = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let seed = given("TESSERA_FUZZ_SEED").unwrap_or(20_261);
    let count = given("TESSERA_FUZZ_CASES").unwrap_or(25);
    println!("TESSERA_FUZZ_SEED={seed}");
    let mut joined = 0;
    for case in 0..count {
        let (module, args) = program(seed.wrapping_mul(1_000_003).wrapping_add(case));
        let wanted = run_graph(&module, "f", &args, &mut NoKernels)
            .unwrap_or_else(|e| panic!("case {case}: {e}\n{module}"));
        let all = Off::default();
        for off in [Pass::Overlap, Pass::RankShare, Pass::Buckets]
            .map(|p| all.with(p))
            .into_iter()
            .chain([all])
        {
            let program = compiled(&module, &args, off);
            assert_eq!(program.rank_plans().len(), 1, "it ran as rows:\n{module}");
            let parts = program.collectives().iter().filter(|c| c.bucket.is_some()).count();
            assert!(parts == 0 || !off.has(Pass::Buckets));
            joined += parts;
            for time in 0..2 {
                let got = program.run(&args).unwrap_or_else(|e| panic!("{e}\n{module}"));
                for (i, (g, w)) in got.iter().zip(&wanted).enumerate() {
                    let what = format!("case {case}, run {time}, result {i}");
                    agree(g, w, &format!("{what}\n{module}\n{}", program.rank_plans().join("\n")));
                }
            }
        }
    }
    assert!(joined > 0 || count < 25, "no sums were joined");
}

/// The places of lines that hold these words, one for each.
fn places(text: &str, words: &[&str]) -> Vec<usize> {
    let place = |w: &&str| text.lines().position(|line| line.contains(w));
    words.iter().map(|w| place(w).unwrap_or_else(|| panic!("no {w} in\n{text}"))).collect()
}

/// A collective starts behind its operand, and what does not read it runs beside it.
#[test]
fn collectives_run_beside_what_does_not_read_them() {
    let t = "tensor<[64, 64], f32>";
    let text = format!(
        "func @f(%x: tensor<[128, 64], f32>, %w: {t}, %v: {t}) {{
  %a = graph.manual %x, %w, %v {{axes = [tp], sizes = [2], in = [[[tp], []], [[], []], [[], []]], out = [[[tp], []]]}} : tensor<[128, 64], f32> do (%k: {t}, %m: {t}, %n: {t}) {{
    %first = graph.dot %k, %m {{contract_a = [1], contract_b = [0]}} : {t}
    %beside = graph.dot %k, %n {{contract_a = [1], contract_b = [0]}} : {t}
    %sum = graph.all_reduce %first {{axes = [tp], sizes = [2], op = sum}} : {t}
    %last = graph.dot %sum, %beside {{contract_a = [1], contract_b = [0]}} : {t}
    graph.yield %last
  }}
  graph.return %a
}}"
    );
    let module = module(&text);
    let args = [
        noise(&[128, 64], DType::F32, 1),
        noise(&[64, 64], DType::F32, 2),
        noise(&[64, 64], DType::F32, 3),
    ];
    let plan = compiled(&module, &args, Off::default()).rank_plans().join("\n");
    let is_step = |line: &&str| {
        ["sched.launch", "sched.collective", "sched.wait"].iter().any(|w| line.contains(w))
    };
    let steps: Vec<&str> = plan.lines().filter(is_step).collect();
    let steps = steps.join("\n");
    let order = places(&steps, &["%first", "sched.collective %first, %sum", "%beside", "%last"]);
    assert!(order.is_sorted(), "{plan}");
    // The last one alone waits for it.
    let waits: Vec<usize> = steps
        .lines()
        .enumerate()
        .filter(|(_, line)| line.contains("sched.wait") && !line.contains("queue = 1"))
        .map(|(place, _)| place)
        .collect();
    assert_eq!(waits.len(), 1, "{plan}");
    assert!(order[2] < waits[0] && waits[0] < order[3], "{plan}");
}
