//! Random functions: whatever is fused, results are those of the definition.

#[path = "../../../filetest/tests/budget/mod.rs"]
mod budget;

use super::check::{arguments, check, compile, module};
use budget::Budget;
use tessera_driver::graph::{HostKernels, PlanOptions};
use tessera_interp::{NoKernels, QueueOrder};

struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % n as u64) as usize
    }
}

struct Maker {
    draw: Draw,
    lines: Vec<String>,
    /// Values and their extents.
    values: Vec<(String, Vec<i64>)>,
}

fn ty(dims: &[i64]) -> String {
    let list: Vec<String> = dims.iter().map(i64::to_string).collect();
    format!("tensor<[{}], f64>", list.join(", "))
}

impl Maker {
    fn add(&mut self, text: String, dims: Vec<i64>) -> usize {
        let name = format!("%t{}", self.lines.len());
        self.lines.push(format!("  {name} = graph.{text} : {}", ty(&dims)));
        self.values.push((name, dims));
        self.values.len() - 1
    }

    fn any(&mut self) -> (String, Vec<i64>) {
        let i = self.draw.below(self.values.len());
        self.values[i].clone()
    }

    fn step(&mut self) {
        let (x, d) = self.any();
        let rank = d.len();
        match self.draw.below(11) {
            0 => {
                let f = ["tanh", "neg", "abs", "sigmoid"][self.draw.below(4)];
                self.add(format!("{f} {x}"), d);
            }
            1 | 2 => {
                let same: Vec<String> =
                    self.values.iter().filter(|v| v.1 == d).map(|v| v.0.clone()).collect();
                let y = same[self.draw.below(same.len())].clone();
                let f = ["add", "sub", "mul", "maximum"][self.draw.below(4)];
                self.add(format!("{f} {x}, {y}"), d);
            }
            3 if rank > 1 => {
                let k = self.draw.below(rank);
                let perm: Vec<usize> = (0..rank).map(|i| (i + k) % rank).collect();
                let dims = perm.iter().map(|&p| d[p]).collect();
                self.add(format!("transpose {x} {{perm = {perm:?}}}"), dims);
            }
            4 => {
                let n: i64 = d.iter().product();
                let split = [2, 3, 4, 6].into_iter().filter(|s| n % s == 0).collect::<Vec<_>>();
                let dims = match split.is_empty() {
                    true => vec![n],
                    false => {
                        let s = split[self.draw.below(split.len())];
                        vec![s, n / s]
                    }
                };
                self.add(format!("reshape {x}"), dims);
            }
            5 if rank > 0 => {
                let axis = self.draw.below(rank);
                let op = ["sum", "max"][self.draw.below(2)];
                let mut left = d.clone();
                left.remove(axis);
                let r = self.add(format!("reduce {x} {{op = {op}, axes = [{axis}]}}"), left);
                let r = self.values[r].0.clone();
                let axes: Vec<usize> = (0..rank).filter(|&i| i != axis).collect();
                let b = self.add(format!("broadcast {r} {{dims = {axes:?}}}"), d.clone());
                let b = self.values[b].0.clone();
                self.add(format!("sub {x}, {b}"), d);
            }
            6 if rank > 0 => {
                let axis = self.draw.below(rank);
                self.add(format!("reverse {x} {{axes = [{axis}]}}"), d);
            }
            7 if rank > 0 => {
                let axis = self.draw.below(rank);
                if d[axis] > 1 {
                    let (mut start, mut dims) = (vec![0; rank], d.clone());
                    start[axis] = 1;
                    dims[axis] -= 1;
                    self.add(format!("slice {x} {{start = {start:?}, limit = {d:?}}}"), dims);
                }
            }
            8 if rank == 2 => {
                let (a, b) = if self.draw.below(2) == 0 { (0, 1) } else { (1, 0) };
                let dims = vec![d[a], d[a]];
                self.add(format!("dot {x}, {x} {{contract_a = [{b}], contract_b = [{b}]}}"), dims);
            }
            9 if rank > 0 => {
                let axis = self.draw.below(rank);
                let mut dims = d.clone();
                dims[axis] *= 2;
                self.add(format!("concat {x}, {x} {{axis = {axis}}}"), dims);
            }
            10 if rank > 0 => {
                let axis = self.draw.below(rank);
                self.add(format!("scan {x} {{op = sum, axis = {axis}}}"), d);
            }
            _ => {}
        }
        // Numbers stay small whatever is multiplied.
        if let Some((v, d)) = self.values.last().cloned()
            && d.iter().product::<i64>() <= 4096
        {
            self.add(format!("tanh {v}"), d);
        }
    }
}

/// A random function of two arrays.
fn function(seed: u64) -> String {
    let mut maker = Maker {
        draw: Draw(seed.wrapping_mul(7919) + 17),
        lines: Vec::new(),
        values: vec![("%x".into(), vec![6, 8]), ("%y".into(), vec![2, 3, 4])],
    };
    for _ in 0..12 {
        maker.step();
    }
    let n = maker.values.len();
    let picks = [n - 1, n / 2, n / 3];
    let results: Vec<String> = picks.iter().map(|&i| maker.values[i].0.clone()).collect();
    let body = maker.lines.join("\n");
    format!(
        "func @f(%x: {}, %y: {}) {{\n{body}\n  graph.return {}\n}}",
        ty(&[6, 8]),
        ty(&[2, 3, 4]),
        results.join(", ")
    )
}

#[test]
fn random_functions() {
    // The same ones each time, and others where a time is given.
    let budget = Budget::new(0);
    let others = (budget.seed << 20..).take_while(|_| budget.left());
    for seed in (0..30).chain(others) {
        check(&function(seed));
    }
}

#[test]
fn random_functions_give_the_same_bits_on_several_queues() {
    let mut used = 0;
    for seed in 0..12 {
        println!("seed {seed}");
        let module = module(&function(seed));
        let args = arguments(&module, "f");
        // Without fusion there are steps that do not depend on each other.
        let plan = |queues| PlanOptions { separate: true, queues, ..PlanOptions::default() };
        let wanted = compile(&module, &args, plan(None)).run(&args).unwrap();
        for most in 2..=4 {
            let program = compile(&module, &args, plan(Some(most)));
            let text = program.plan_text();
            used += usize::from(text.contains("queue = 1"));
            assert_eq!(program.run(&args).unwrap(), wanted, "{text}");
            for draw in 0..4 {
                let mut none = NoKernels;
                let mut kernels = HostKernels(&mut none);
                let order = QueueOrder::Random(draw);
                let got = program.interpret(&args, &mut kernels, order).unwrap();
                assert_eq!(got, wanted, "{text}");
            }
        }
    }
    assert!(used > 20, "{used}");
}
