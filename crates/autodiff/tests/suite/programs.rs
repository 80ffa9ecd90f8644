//! Random programs: rules are combined with each other, to second order and in batches.

#[path = "../../../filetest/tests/budget/mod.rs"]
pub mod budget;

use crate::common::{Numbers, check, func};
use budget::Budget;

const T: &str = "tensor<[3, 2], f64>";

struct Program {
    numbers: Numbers,
    text: String,
    /// How many values of the shape there are: `%v0`, `%v1`, ….
    values: usize,
}

impl Program {
    fn pick(&mut self, n: usize) -> usize {
        (self.numbers.next() * n as f64) as usize % n
    }

    fn value(&mut self) -> String {
        let n = self.values;
        format!("%v{}", self.pick(n))
    }

    /// One more value by some composition; names inside end in the value's number.
    fn grow(&mut self) {
        let (a, b) = (self.value(), self.value());
        let i = self.values;
        let r = format!("%v{i}");
        let step = match self.pick(14) {
            0 => format!("{r} = graph.sin {a} : {T}"),
            1 => format!("{r} = graph.tanh {a} : {T}"),
            2 => format!("{r} = graph.mul {a}, {b} : {T}"),
            3 => format!("{r} = graph.add {a}, {b} : {T}"),
            4 => format!("%s{i} = graph.reduce {a} {{op = sum, axes = [0]}} : tensor<[2], f64>
  {r} = graph.broadcast %s{i} {{dims = [1]}} : {T}"),
            5 => format!("%s{i} = graph.reduce {a} {{op = max, axes = [1]}} : tensor<[3], f64>
  %b{i} = graph.broadcast %s{i} {{dims = [0]}} : {T}
  {r} = graph.sub {b}, %b{i} : {T}"),
            6 => format!("{r} = graph.dot {a}, %w {{contract_a = [1], contract_b = [1]}} : {T}"),
            7 => format!("%s{i} = graph.slice {a} {{start = [0, 0], limit = [3, 2], stride = [2, 1]}} : tensor<[2, 2], f64>
  {r} = graph.pad %s{i}, %u {{lo = [1, 0], hi = [0, 0]}} : {T}"),
            8 => format!("{r} = graph.gather {a}, %at {{axes = [0]}} : {T}"),
            9 => format!("{r}, %o{i} = graph.sort {a}, {b} {{axis = 0}} : {T}, {T}"),
            10 => format!("{r} = graph.scatter {a}, %at, {b} {{op = sum, axes = [0]}} : {T}"),
            11 => format!("{r} = graph.loop init({a}) {{trip = 2}} : {T} do (%i{i}: tensor<[], i64>, %c{i}: {T}) {{
    %m{i} = graph.mul %c{i}, {b} : {T}
    %n{i} = graph.sigmoid %m{i} : {T}
    graph.yield %n{i}
  }}"),
            12 => format!("%s{i} = graph.reduce {a} {{op = sum, axes = [0, 1]}} : tensor<[], f64>
  %p{i} = graph.lt %s{i}, %u : tensor<[], bool>
  {r} = graph.cond %p{i} : {T} do {{
    %m{i} = graph.mul {a}, {b} : {T}
    graph.yield %m{i}
  }} do {{
    graph.yield {b}
  }}"),
            _ => format!("{r} = graph.scan {a} {{op = sum, axis = 0, reverse = true}} : {T}"),
        };
        self.text += &format!("  {step}\n");
        self.values += 1;
    }
}

#[test]
fn programs_at_random() {
    // The same ones each time, and others where a time is given.
    let budget = Budget::new(0);
    let others = (budget.seed << 20..).take_while(|_| budget.left());
    for seed in (0..40).chain(others) {
        let mut p = Program {
            numbers: Numbers(seed.wrapping_mul(7919) + 1),
            text: String::new(),
            values: 2,
        };
        for _ in 0..9 {
            p.grow();
        }
        let (a, b) = (p.value(), format!("%v{}", p.values - 1));
        let body = format!(
            "  %at = graph.const {{data = \"{}\"}} : tensor<[3, 1], i32>\n{}  %last = graph.mul {a}, {b} : {T}\n  graph.return %last, {b}",
            "020000000000000002000000", p.text
        );
        let params = format!("%v0: {T}, %v1: {T}, %w: tensor<[2, 2], f64>, %u: tensor<[], f64>");
        check(&func(&params, &body), (-0.8, 0.8));
    }
}
