//! Random kernels in Python: mostly well typed, so that they reach the passes and the interpreter;
//! now and then not, so that the refusals are reached too.

use crate::random::Random;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Num {
    Float,
    Int,
    Bool,
}

/// A type of the generator: what a number is, and how many axes (the kernel's rows, then its columns).
type Ty = (Num, usize);

pub struct Generator {
    r: Random,
    shape: Shape,
    lane: bool,
    vars: Vec<(String, Ty)>,
    out: String,
    indent: usize,
    next: usize,
    loops: usize,
    buffers: usize,
}

/// The rows and columns of a kernel's tiles.
pub type Shape = (usize, usize);

/// Small most of the time; else such that several warps hold a tile, or parts of it stand empty.
pub fn shape(seed: u64) -> Shape {
    let shapes =
        [(4, 8), (4, 8), (4, 8), (4, 8), (4, 8), (5, 7), (3, 130), (16, 64), (1, 200), (33, 9)];
    shapes[Random(seed.rotate_left(31) | 1).below(shapes.len())]
}

/// The parameters of a generated kernel, as the test helper of the front end reads them.
pub fn params((rows, cols): Shape) -> String {
    format!(
        "x: n f32; h: n bf16; W: {rows},{cols} f32; k: n i32; y: n f32; B: M,{cols} f32; \
         z: M,{cols} bf16; s: f32; m: i64"
    )
}

pub fn kernel(seed: u64) -> String {
    let mut g = Generator {
        r: Random(seed | 1),
        shape: shape(seed),
        lane: false,
        vars: vec![
            ("s".into(), (Num::Float, 0)),
            ("m".into(), (Num::Int, 0)),
            ("n".into(), (Num::Int, 0)),
        ],
        out: "def k(x, h, W, k, y, B, z, s, m):\n".into(),
        indent: 1,
        next: 0,
        loops: 0,
        buffers: 0,
    };
    g.lane = g.r.chance(3);
    if g.lane {
        g.line("i = ts.tile.linear_id()");
    } else {
        g.line("i = ts.tile.program_id(0)");
    }
    g.vars.push(("i".into(), (Num::Int, 0)));
    let count = 3 + g.r.below(8);
    g.statements(count);
    g.store();
    if g.r.chance(2) {
        g.line("return y");
    }
    g.out
}

impl Generator {
    fn line(&mut self, text: &str) {
        self.out.push_str(&"    ".repeat(self.indent));
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn statements(&mut self, count: usize) {
        let known = self.vars.len();
        for _ in 0..count {
            self.statement();
        }
        if count == 0 {
            self.line("pass");
        }
        // What an inner block defines is not used outside it, most of the time.
        if self.indent > 1 && !self.r.chance(12) {
            self.vars.truncate(known);
        }
    }

    fn rank(&mut self) -> usize {
        if self.lane { 0 } else { self.r.below(3) }
    }

    fn ty(&mut self) -> Ty {
        let num = [Num::Float, Num::Float, Num::Int, Num::Bool][self.r.below(4)];
        (num, self.rank())
    }

    fn statement(&mut self) {
        match self.r.below(14) {
            0..=4 => {
                let ty = self.ty();
                let value = self.expr(ty, 3);
                let name = self.new_name();
                self.line(&format!("{name} = {value}"));
                self.vars.push((name, ty));
            }
            5 | 6 => self.change(),
            7 | 8 => self.store(),
            9 => self.branch(),
            10 | 11 => self.repeat(),
            12 if !self.lane => self.buffer(),
            12 => self.store(),
            _ => self.leave(),
        }
    }

    fn new_name(&mut self) -> String {
        self.next += 1;
        format!("v{}", self.next)
    }

    /// Assigns to a variable that is there, keeping its type.
    fn change(&mut self) {
        let own: Vec<(String, Ty)> =
            self.vars.iter().filter(|(n, _)| n.starts_with('v')).cloned().collect();
        if own.is_empty() {
            return self.store();
        }
        let (name, ty) = own[self.r.below(own.len())].clone();
        let value = self.expr(ty, 2);
        if ty.0 != Num::Bool && self.r.chance(3) {
            let op = self.r.pick(&["+", "-", "*"]);
            self.line(&format!("{name} {op}= {value}"));
        } else {
            self.line(&format!("{name} = {value}"));
        }
    }

    fn store(&mut self) {
        if self.lane {
            let value = self.expr((Num::Float, 0), 2);
            let op = self.r.pick(&["=", "=", "+="]);
            return self.line(&format!("y[i] {op} {value}"));
        }
        let (rows, cols) = self.shape;
        let op = self.r.pick(&["=", "=", "+="]);
        match self.r.below(5) {
            4 => {
                let value = self.expr((Num::Float, 1), 2);
                let at = format!("ts.tile.arange({rows}) * 2 + i");
                if op == "=" && self.r.chance(2) {
                    self.line(&format!("ts.tile.store(y, {at}, {value}, unique=True)"));
                } else {
                    self.line(&format!("y[{at}] {op} {value}"));
                }
            }
            0 => {
                let value = self.expr((Num::Float, 0), 2);
                self.line(&format!("y[i] {op} {value}"));
            }
            1 => {
                let value = self.expr((Num::Float, 1), 3);
                self.line(&format!("y[i * {rows}:i * {rows} + {rows}] {op} {value}"));
            }
            2 => {
                let value = self.expr((Num::Float, 2), 3);
                self.line(&format!("B[i * {rows}:i * {rows} + {rows}, :] {op} {value}"));
            }
            _ => {
                let value = self.expr((Num::Float, 2), 2);
                self.line(&format!(
                    "z[i * {rows}:i * {rows} + {rows}, 0:{cols}] = ts.tile.cast({value}, ts.bf16)"
                ));
            }
        }
    }

    fn branch(&mut self) {
        let c = self.expr((Num::Bool, 0), 2);
        self.line(&format!("if {c}:"));
        self.indent += 1;
        let count = 1 + self.r.below(3);
        self.statements(count);
        self.indent -= 1;
        if self.r.chance(2) {
            self.line("else:");
            self.indent += 1;
            let count = 1 + self.r.below(2);
            self.statements(count);
            self.indent -= 1;
        }
    }

    fn repeat(&mut self) {
        if self.loops >= 2 {
            return self.store();
        }
        self.loops += 1;
        // Counters have names of their own, which nothing else assigns: every loop ends.
        self.next += 1;
        let name = format!("c{}", self.next);
        if self.r.chance(4) {
            let count = 1 + self.r.below(4);
            self.line(&format!("{name} = 0"));
            self.line(&format!("while {name} < {count}:"));
            self.indent += 1;
            self.line(&format!("{name} += 1"));
        } else {
            let head = match self.r.below(3) {
                0 => format!("range({})", self.r.below(4)),
                1 => format!("ts.tile.range(0, n, {})", 1 + self.r.below(6)),
                _ => "range(1, 5, 2)".into(),
            };
            self.line(&format!("for {name} in {head}:"));
            self.indent += 1;
        }
        self.vars.push((name, (Num::Int, 0)));
        let count = 1 + self.r.below(3);
        self.statements(count);
        self.indent -= 1;
        self.loops -= 1;
    }

    /// A shared buffer: written whole, then read, possibly in a loop.
    fn buffer(&mut self) {
        self.buffers += 1;
        let name = format!("b{}", self.buffers);
        let (rows, cols) = self.shape;
        self.line(&format!("{name} = ts.tile.alloc_shared(({rows}, {cols}), ts.f32)"));
        if self.r.chance(2) {
            let block = format!("B[i * {rows}:i * {rows} + {rows}, 0:{cols}]");
            self.line(&format!("ts.tile.cp_async({name}, {block})"));
        } else {
            let value = self.expr((Num::Float, 2), 2);
            self.line(&format!("{name}[:, :] = {value}"));
        }
        if self.r.chance(2) {
            self.line("ts.tile.barrier()");
        }
        self.vars.push((name, (Num::Float, 2)));
    }

    fn leave(&mut self) {
        let c = self.expr((Num::Bool, 0), 1);
        let word = match (self.loops > 0 && !self.lane, self.r.below(3)) {
            (true, 0) => "break",
            (true, 1) => "continue",
            _ => "return",
        };
        self.line(&format!("if {c}:"));
        self.indent += 1;
        self.line(word);
        self.indent -= 1;
    }

    fn expr(&mut self, ty: Ty, depth: usize) -> String {
        // Now and then something of another type: most such kernels are refused.
        let ty = if self.r.chance(150) { self.ty() } else { ty };
        if depth == 0 || self.r.chance(4) {
            return self.leaf(ty);
        }
        match ty.0 {
            Num::Float => self.float(ty, depth - 1),
            Num::Int => self.int(ty, depth - 1),
            Num::Bool => self.boolean(ty, depth - 1),
        }
    }

    fn leaf(&mut self, ty: Ty) -> String {
        let fitting: Vec<String> =
            self.vars.iter().filter(|(_, t)| *t == ty).map(|(n, _)| n.clone()).collect();
        if !fitting.is_empty() && !self.r.chance(3) {
            return fitting[self.r.below(fitting.len())].clone();
        }
        let (rows, cols) = self.shape;
        let text = match ty {
            (Num::Float, 0) => {
                self.r.pick(&["1.5", "-0.0", "0.25", "s", "x[i]", "h[i]", "3", "y[i]", "x[-1]"])
            }
            (Num::Float, 1) => self.r.pick(&[
                "x[i * R:i * R + R]",
                "h[0:R]",
                "W[:, 3]",
                "ts.tile.zeros((R,), ts.f32)",
                "x[i * 2:i * 2 + 2 * R:2]",
                "W.T[2, :]",
                "x[ts.tile.arange(R) * 2]",
            ]),
            (Num::Float, _) => self.r.pick(&[
                "W[:, :]",
                "B[i * R:i * R + R, :]",
                "z[0:R, :]",
                "ts.tile.full((R, C), 2.0, ts.f32)",
            ]),
            (Num::Int, 0) => self.r.pick(&["1", "7", "i", "m", "n", "k[i]", "-3", "ts.cdiv(n, 4)"]),
            (Num::Int, 1) => self.r.pick(&["ts.tile.arange(R)", "k[i * R:i * R + R]"]),
            (Num::Int, _) => "(ts.tile.arange(R)[:, None] * ts.tile.arange(C)[None, :])",
            (Num::Bool, 0) => self.r.pick(&["(i < n)", "(s > 0.0)", "(m != 3)"]),
            (Num::Bool, 1) => "(ts.tile.arange(R) < 2)",
            (Num::Bool, _) => "(W[:, :] > 0.5)",
        };
        text.replace('R', &rows.to_string()).replace('C', &cols.to_string())
    }

    fn two(&mut self, ty: Ty, depth: usize) -> (String, String) {
        // Scalars join tiles.
        let other = if ty.1 > 0 && self.r.chance(3) { (ty.0, 0) } else { ty };
        (self.expr(ty, depth), self.expr(other, depth))
    }

    fn float(&mut self, ty: Ty, depth: usize) -> String {
        match self.r.below(11) {
            9 if ty.1 > 0 => {
                let a = self.expr(ty, depth);
                let f = self.r.pick(&["cumsum", "cumprod"]);
                format!("ts.tile.{f}({a}, axis={})", ty.1 - 1)
            }
            9 if self.lane && self.indent == 1 => {
                let a = self.expr(ty, depth);
                let op = self.r.pick(&["sum", "max", "min"]);
                format!("ts.tile.group.reduce({a}, \"{op}\")")
            }
            10 if ty.1 > 0 => {
                let a = self.expr(ty, depth);
                format!("ts.tile.clamp({a}, -2.0, 3.0)")
            }
            0..=2 => {
                let (a, b) = self.two(ty, depth);
                let op = self.r.pick(&["+", "-", "*", "/"]);
                format!("({a} {op} {b})")
            }
            3 => {
                let a = self.expr(ty, depth);
                let f = self.r.pick(&[
                    "exp", "abs", "sqrt", "tanh", "floor", "sign", "rsqrt", "sigmoid", "log1p",
                ]);
                format!("ts.tile.{f}({a})")
            }
            4 => {
                let (a, b) = self.two(ty, depth);
                let f = self.r.pick(&["maximum", "minimum"]);
                format!("ts.tile.{f}({a}, {b})")
            }
            5 => {
                let c = self.expr((Num::Bool, ty.1), depth);
                let (a, b) = self.two(ty, depth);
                format!("ts.tile.where({c}, {a}, {b})")
            }
            6 => {
                let a = self.expr((Num::Int, ty.1), depth);
                format!("ts.tile.cast({a}, ts.f32)")
            }
            7 if ty.1 == 1 && !self.lane => {
                let a = self.expr((Num::Float, 2), depth);
                let f = self.r.pick(&["row_sum", "row_max", "row_mean"]);
                format!("ts.tile.{f}({a})")
            }
            7 if ty.1 == 0 && !self.lane => {
                let a = self.expr((Num::Float, 1), depth);
                let f = self.r.pick(&["sum", "max", "min"]);
                format!("ts.tile.{f}({a})")
            }
            7 if ty.1 == 2 => {
                let a = self.expr((Num::Float, 1), depth);
                let b = self.expr((Num::Float, 2), depth);
                format!("({a}[:, None] + {b})")
            }
            8 if ty.1 == 2 => {
                let (a, b) = (self.expr((Num::Float, 2), depth), self.expr((Num::Float, 2), depth));
                format!("ts.tile.mma(ts.tile.mma({a}, ts.tile.transpose({b})), W[:, :])")
            }
            _ => {
                let a = self.expr(ty, depth);
                format!("(-{a})")
            }
        }
    }

    fn int(&mut self, ty: Ty, depth: usize) -> String {
        match self.r.below(5) {
            4 if ty.1 < 2 && !self.lane => {
                let a = self.expr((Num::Float, ty.1 + 1), depth);
                let f = self.r.pick(&["argmax", "argmin"]);
                format!("ts.tile.{f}({a}, axis={})", ty.1)
            }
            0 | 1 => {
                let (a, b) = self.two(ty, depth);
                let op = self.r.pick(&["+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>"]);
                format!("({a} {op} {b})")
            }
            2 => {
                let a = self.expr((Num::Float, ty.1), depth);
                format!("ts.tile.cast({a}, ts.i32)")
            }
            _ => {
                let c = self.expr((Num::Bool, ty.1), depth);
                let (a, b) = self.two(ty, depth);
                format!("ts.tile.where({c}, {a}, {b})")
            }
        }
    }

    fn boolean(&mut self, ty: Ty, depth: usize) -> String {
        match self.r.below(4) {
            0 | 1 => {
                let num = if self.r.chance(2) { Num::Float } else { Num::Int };
                let (a, b) = self.two((num, ty.1), depth);
                let op = self.r.pick(&["<", "<=", ">", ">=", "==", "!="]);
                format!("({a} {op} {b})")
            }
            2 => {
                let (a, b) = (self.expr(ty, depth), self.expr(ty, depth));
                let op = self.r.pick(&["&", "|"]);
                format!("({a} {op} {b})")
            }
            _ => {
                let a = self.expr(ty, depth);
                format!("(~{a})")
            }
        }
    }
}
