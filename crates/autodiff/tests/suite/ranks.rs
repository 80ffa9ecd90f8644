//! Programs of one rank: derivatives and batches of random ones on random meshes, and all ranks in one
//! function against ranks that are run one by one.

use crate::common::{Numbers, arguments, both, check, first_order, func, module, run};
use crate::programs::budget::Budget;
use tessera_autodiff::{expand_ranks, vmap};
use tessera_graph::{GraphModule, GraphOp};
use tessera_interp::HostArray;
use tessera_ir::Dim;

struct Program {
    numbers: Numbers,
    names: Vec<&'static str>,
    sizes: Vec<usize>,
    text: String,
    values: usize,
}

impl Program {
    fn new(seed: u64) -> Self {
        let mut p = Program {
            numbers: Numbers(seed.wrapping_mul(104729) + 3),
            names: Vec::new(),
            sizes: Vec::new(),
            text: String::new(),
            values: 3,
        };
        let axes = 1 + p.pick(2);
        p.names = ["dp", "tp"][..axes].to_vec();
        p.sizes = (0..axes).map(|_| 1 + p.pick(3)).collect();
        p
    }

    fn pick(&mut self, n: usize) -> usize {
        (self.numbers.next() * n as f64) as usize % n
    }

    fn value(&mut self) -> String {
        let n = self.values;
        format!("%v{}", self.pick(n))
    }

    fn ranks(&self) -> usize {
        self.sizes.iter().product()
    }

    fn block(&self, rows: usize, columns: usize) -> String {
        format!("tensor<[{rows}, {columns}], f64>")
    }

    /// Some axes in any order, as attributes, and how many ranks they have.
    fn axes(&mut self) -> (String, usize) {
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        if order.len() > 1 && self.pick(2) == 0 {
            order.reverse();
        }
        let n = 1 + self.pick(order.len());
        order.truncate(n);
        let names: Vec<_> = order.iter().map(|&i| self.names[i]).collect();
        let sizes: Vec<_> = order.iter().map(|&i| self.sizes[i].to_string()).collect();
        let count = order.iter().map(|&i| self.sizes[i]).product();
        (format!("axes = [{}], sizes = [{}]", names.join(", "), sizes.join(", ")), count)
    }

    /// One more value of two rows and a column for each rank.
    fn grow(&mut self) {
        let (a, b) = (self.value(), self.value());
        let (n, i) = (self.ranks(), self.values);
        let (r, t) = (format!("%v{i}"), self.block(2, n));
        let (axes, m) = self.axes();
        let (tall, thin) = (self.block(2 * m, n), self.block(2, n / m));
        let step = match self.pick(12) {
            0 => format!("{r} = graph.sin {a} : {t}"),
            1 => format!("{r} = graph.mul {a}, {b} : {t}"),
            2 => format!("{r} = graph.all_reduce {a} {{{axes}, op = sum}} : {t}"),
            3 => format!(
                "%s{i} = graph.all_reduce {a} {{{axes}, op = max}} : {t}\n  {r} = graph.sub %s{i}, {b} : {t}"
            ),
            4 => format!(
                "%s{i} = graph.all_gather {a} {{{axes}, dim = 0}} : {tall}\n  %t{i} = graph.tanh %s{i} : {tall}\n  {r} = graph.reduce_scatter %t{i} {{{axes}, dim = 0, op = sum}} : {t}"
            ),
            5 => format!(
                "%s{i} = graph.all_to_all {a} {{{axes}, split = 1, concat = 0}} : {}\n  %t{i} = graph.sigmoid %s{i} : {}\n  {r} = graph.reshape %t{i} : {t}",
                self.block(2 * m, n / m),
                self.block(2 * m, n / m)
            ),
            6 => {
                let pairs: Vec<String> = (0..m)
                    .filter(|k| k % 3 != 1)
                    .map(|k| format!("[{k}, {}]", (k + 1) % m))
                    .collect();
                format!(
                    "%s{i} = graph.permute {a} {{{axes}, pairs = [{}]}} : {t}\n  {r} = graph.add %s{i}, {b} : {t}",
                    pairs.join(", ")
                )
            }
            7 => format!(
                "%s{i} = graph.from_rank {a} {{{axes}, root = {}}} : {t}\n  {r} = graph.mul %s{i}, {b} : {t}",
                m - 1
            ),
            8 => format!(
                "%s{i} = graph.all_reduce {a} {{{axes}, op = sum}} : {t}\n  %t{i} = graph.own %s{i} {{{axes}, dim = 1}} : {thin}\n  %u{i} = graph.cos %t{i} : {thin}\n  {r} = graph.all_gather %u{i} {{{axes}, dim = 1}} : {t}"
            ),
            9 => format!(
                "%n{i} = graph.axis_index {{{axes}}} : tensor<[], i64>\n  %f{i} = graph.cast %n{i} : tensor<[], f64>\n  %b{i} = graph.broadcast %f{i} {{dims = []}} : {t}\n  %c{i} = graph.sin %b{i} : {t}\n  {r} = graph.mul %c{i}, {a} : {t}"
            ),
            10 => format!(
                "{r} = graph.loop init({a}) {{trip = 2}} : {t} do (%i{i}: tensor<[], i64>, %c{i}: {t}) {{\n    %m{i} = graph.mul %c{i}, {b} : {t}\n    %s{i} = graph.all_reduce %m{i} {{{axes}, op = sum}} : {t}\n    %n{i} = graph.sigmoid %s{i} : {t}\n    graph.yield %n{i}\n  }}"
            ),
            _ => format!(
                "%s{i} = graph.reduce_scatter {a} {{{axes}, dim = 1, op = min}} : {thin}\n  {r} = graph.all_gather %s{i} {{{axes}, dim = 1}} : {t}"
            ),
        };
        self.text += &format!("  {step}\n");
        self.values += 1;
    }

    /// A function of a split, a partly split and a copied argument.
    fn function(&mut self) -> String {
        let (n, names) = (self.ranks(), self.names.join(", "));
        let sizes: Vec<_> = self.sizes.iter().map(usize::to_string).collect();
        let (a, b) = (self.value(), format!("%v{}", self.values - 1));
        let t = self.block(2, n);
        let (x, y) = (self.block(2, n * n), self.block(2 * self.sizes[0], n));
        let first = self.names[0];
        let every = format!("axes = [{names}], sizes = [{}]", sizes.join(", "));
        let results = format!("{}, tensor<[], f64>", self.block(2 * n, n));
        let body = format!(
            "  %r, %q = graph.manual %x, %y, %z {{{every}, in = [[[], [{names}]], [[{first}], []], [[], []]], out = [[[{names}], []], []]}} : {results} do (%v0: {t}, %v1: {t}, %v2: {t}) {{\n{}  %last = graph.mul {a}, {b} : {t}\n  %flat = graph.reduce {b} {{op = sum, axes = [0, 1]}} : tensor<[], f64>\n  %sum = graph.all_reduce %flat {{{every}, op = sum}} : tensor<[], f64>\n  graph.yield %last, %sum\n  }}\n  graph.return %r, %q",
            self.text
        );
        func(&format!("%x: {x}, %y: {y}, %z: {t}"), &body)
    }
}

fn random(seed: u64, steps: usize) -> String {
    let mut p = Program::new(seed);
    for _ in 0..steps {
        p.grow();
    }
    p.function()
}

/// The results are the same bits where all ranks are one function.
fn same_expanded(m: &GraphModule, name: &str, args: &[HostArray]) {
    let mut all = m.clone();
    assert!(expand_ranks(&mut all).unwrap_or_else(|e| panic!("{e}\n{m}")));
    let left = all.funcs.iter().flat_map(|f| f.walk().into_iter().map(|id| f.ops[id].code));
    assert!(!left.into_iter().any(|c| c == GraphOp::Manual));
    let (one, many) = (run(m, name, args), run(&all, name, args));
    assert_eq!(one, many, "\n{}\n{}", m.func(name).unwrap(), all);
}

#[test]
fn programs_of_ranks_at_random() {
    let budget = Budget::new(0);
    println!("seed {}", budget.seed);
    let others = (budget.seed << 20..).take_while(|_| budget.left());
    for seed in (0..40).chain(others) {
        check(&random(seed, 5), (-0.8, 0.8));
    }
}

#[test]
fn all_ranks_in_one_function_have_the_same_bits() {
    let budget = Budget::new(0);
    println!("seed {}", budget.seed);
    let others = (budget.seed << 20..).take_while(|_| budget.left());
    for seed in (1000..1060).chain(others) {
        let mut m = module(&random(seed, 6));
        let args = arguments(&m, "f", (-0.8, 0.8), seed);
        same_expanded(&m, "f", &args);
        let back = first_order(&mut m, "f", &args);
        let grads = both(&mut m, "f", &back);
        let args = arguments(&m, &grads, (-0.8, 0.8), seed + 1);
        same_expanded(&m, &grads, &args);
        let n = m.func("f").unwrap().params().len();
        let mut axes = vec![Some(0); n];
        axes[1] = None;
        let wide = vmap(&mut m, "f", &axes, &[], &Dim::Static(2)).unwrap().func;
        let args = arguments(&m, &wide, (-0.8, 0.8), seed + 2);
        same_expanded(&m, &wide, &args);
    }
}

/// Conditions that differ between ranks, and functions that are called.
#[test]
fn control_flow_and_calls() {
    let body = "  %r = graph.manual %x, %z {axes = [tp], sizes = [3], in = [[[tp]], [[]]], out = [[[tp]]]} : tensor<[6], f64> do (%b: tensor<[2], f64>, %c: tensor<[2], f64>) {
    %s = graph.reduce %b {op = sum, axes = [0]} : tensor<[], f64>
    %zero = graph.const {value = 0.0} : tensor<[], f64>
    %p = graph.lt %s, %zero : tensor<[], bool>
    %y = graph.cond %p : tensor<[2], f64> do {
      %m = graph.mul %b, %c : tensor<[2], f64>
      graph.yield %m
    } do {
      graph.yield %c
    }
    %t = graph.call %y, %c {callee = @g} : tensor<[2], f64>
    %u = graph.call %b, %t {callee = @g, kind = checkpoint} : tensor<[2], f64>
    %v = graph.mul %u, %y : tensor<[2], f64>
    graph.yield %v
  }
  graph.return %r";
    let callee = "func @g(%a: tensor<[2], f64>, %b: tensor<[2], f64>) {
  %m = graph.mul %a, %b : tensor<[2], f64>
  %s = graph.all_reduce %m {axes = [tp], sizes = [3], op = sum} : tensor<[2], f64>
  %t = graph.tanh %s : tensor<[2], f64>
  graph.return %t
}";
    let text = format!("{}\n{callee}\n", func("%x: tensor<[6], f64>, %z: tensor<[2], f64>", body));
    check(&text, (-0.9, 0.9));
    let mut m = module(&text);
    let args = arguments(&m, "f", (-0.9, 0.9), 9);
    same_expanded(&m, "f", &args);
    let back = first_order(&mut m, "f", &args);
    let grads = both(&mut m, "f", &back);
    let args = arguments(&m, &grads, (-0.9, 0.9), 10);
    same_expanded(&m, &grads, &args);
}

#[test]
fn products_over_ranks_have_no_derivative() {
    let text = func(
        "%x: tensor<[4], f64>",
        "  %r = graph.manual %x {axes = [tp], sizes = [2], in = [[[tp]]], out = [[[]]]} : tensor<[2], f64> do (%b: tensor<[2], f64>) {
    %s = graph.all_reduce %b {axes = [tp], sizes = [2], op = prod} : tensor<[2], f64>
    graph.yield %s
  }
  graph.return %r",
    );
    let refused = tessera_autodiff::vjp(&mut module(&text), "f", &[0]).unwrap_err().to_string();
    assert!(refused.contains("`all_reduce` with `prod` has no derivative"), "{refused}");
}
