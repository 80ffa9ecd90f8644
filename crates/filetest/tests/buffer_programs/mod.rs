//! Random group kernels over shared buffers, as text of Tile IR: allocations, blocks with points,
//! steps and masks, gathers, scatters, folds, atomics and copies, in loops and branches.

use crate::random::Random;
use std::fmt::Write;
use tessera_numerics::DType;

/// Elements of each array that is read, and of each that is written.
pub const INPUT: i64 = 512;
pub const OUTPUT: i64 = 1 << 15;

struct Buffer {
    name: String,
    shape: Vec<i64>,
    dtype: DType,
}

/// A kernel under construction.
struct Program {
    r: Random,
    text: String,
    next: usize,
    buffers: Vec<Buffer>,
    /// Positions that are known here: constants, the group, and those of loops.
    positions: Vec<String>,
    dtypes: Vec<DType>,
    /// The next free element of the output of each dtype.
    free: Vec<i64>,
    /// The number of this iteration of all loops around, and how many there may be.
    iteration: String,
    iterations: i64,
    /// Whether the order of atomics on one element is defined.
    ordered: bool,
}

/// What a program needs to run.
pub struct Made {
    pub text: String,
    pub dtypes: Vec<DType>,
}

const SIZES: [&[i64]; 4] =
    [&[1, 3, 8, 17, 32, 64, 100, 200], &[1, 2, 5, 8, 16, 33], &[1, 2, 3, 4, 7], &[1, 2, 3, 4]];

fn shown(shape: &[i64], dtype: DType) -> String {
    let dims: String = shape.iter().map(|d| format!("{d}x")).collect();
    if shape.is_empty() { dtype.name().into() } else { format!("tile<{dims}{}>", dtype.name()) }
}

fn list<T: std::fmt::Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

impl Program {
    fn line(&mut self, text: &str) {
        writeln!(self.text, "  {text}").expect("a string takes it");
    }

    fn fresh(&mut self) -> String {
        self.next += 1;
        format!("%v{}", self.next)
    }

    /// An op with one result.
    fn op(&mut self, text: &str, ty: &str) -> String {
        let name = self.fresh();
        self.line(&format!("{name} = {text} : {ty}"));
        name
    }

    fn index(&mut self, value: i64) -> String {
        self.op(&format!("tile.const {{value = {value}}}"), "i64")
    }

    /// A position along an axis of this extent; some are outside.
    fn position(&mut self, extent: i64) -> String {
        let constant = match self.r.below(6) {
            0 => -1,
            1 => extent,
            _ => self.r.below(extent as usize) as i64,
        };
        match self.r.below(3) {
            0 => self.positions[self.r.below(self.positions.len())].clone(),
            1 => {
                let [a, b] = [self.positions[self.r.below(self.positions.len())].clone(), {
                    self.index(constant / 2)
                }];
                self.op(&format!("tile.add {a}, {b}"), "i64")
            }
            _ => self.index(constant),
        }
    }

    fn number(&self, dtype: DType) -> usize {
        self.dtypes.iter().position(|&d| d == dtype).expect("a drawn dtype")
    }

    /// A value with elements of an input, or all alike.
    fn value(&mut self, shape: &[i64], dtype: DType) -> String {
        let n: i64 = shape.iter().product();
        let at = self.r.below(INPUT as usize - 100) as i64;
        let at = self.index(at);
        let at = self.op(&format!("tile.add {at}, {}", self.iteration.clone()), "i64");
        let from = format!("tile.load %x{} at({at})", self.number(dtype));
        if shape.is_empty() {
            return self.op(&format!("{from} {{extent = [0]}}"), dtype.name());
        }
        let row = self.op(&format!("{from} {{extent = [{n}]}}"), &shown(&[n], dtype));
        if shape.len() == 1 {
            return row;
        }
        self.op(&format!("tile.reshape {row}"), &shown(shape, dtype))
    }

    /// A value in a dtype that arithmetic is done in.
    fn computed(&mut self, shape: &[i64], dtype: DType) -> String {
        let v = self.value(shape, dtype);
        if dtype.compute() == dtype {
            return v;
        }
        self.op(&format!("tile.cast {v}"), &shown(shape, dtype.compute()))
    }

    fn mask(&mut self, shape: &[i64]) -> String {
        if !self.r.chance(3) {
            return String::new();
        }
        let [a, b] = [0, 1].map(|_| self.indices(shape, 16));
        let m = self.op(&format!("tile.lt {a}, {b}"), &shown(shape, DType::Bool));
        format!(" mask({m})")
    }

    /// A tile of positions; for long axes they repeat.
    fn indices(&mut self, shape: &[i64], extent: i64) -> String {
        let n: i64 = shape.iter().product();
        let at = self.r.below(INPUT as usize - 250) as i64;
        let at = self.index(at);
        let row = format!("tile.load %ix at({at}) {{extent = [{n}]}}");
        let row = self.op(&row, &shown(&[n], DType::I32));
        let mut tile = match shape.len() {
            1 => row,
            _ => self.op(&format!("tile.reshape {row}"), &shown(shape, DType::I32)),
        };
        if extent > 24 && self.r.chance(2) {
            tile = self.op(&format!("tile.mul {tile}, {tile}"), &shown(shape, DType::I32));
        }
        tile
    }

    /// Writes a value to the output, at a place of its own in every iteration.
    fn show(&mut self, value: &str, shape: &[i64], dtype: DType) {
        let n: i64 = shape.iter().product();
        let d = self.number(dtype);
        let from = self.free[d];
        if from + n * self.iterations > OUTPUT / 2 {
            return;
        }
        self.free[d] += n * self.iterations;
        let [size, from] = [n, from].map(|v| self.index(v));
        let far = self.op(&format!("tile.mul {}, {size}", self.iteration.clone()), "i64");
        let at = self.op(&format!("tile.add {far}, {from}"), "i64");
        let at = self.op(&format!("tile.add {at}, %base"), "i64");
        if shape.is_empty() {
            return self.line(&format!("tile.store %y{d}, {value} at({at}) {{extent = [0]}}"));
        }
        let row = match shape.len() {
            1 => value.to_string(),
            _ => self.op(&format!("tile.reshape {value}"), &shown(&[n], dtype)),
        };
        self.line(&format!("tile.store %y{d}, {row} at({at}) {{extent = [{n}]}}"));
    }

    fn alloc(&mut self) {
        let dtype = self.dtypes[self.r.below(self.dtypes.len())];
        let rank = 1 + self.r.below(4);
        let sizes = SIZES[rank - 1];
        let shape: Vec<i64> = (0..rank).map(|_| sizes[self.r.below(sizes.len())]).collect();
        let name = self.fresh();
        let ty = shown(&shape, dtype).replacen("tile", "buf", 1);
        self.line(&format!("{name} = tile.buf_alloc : {ty}"));
        // Nothing may be read that was not written.
        let zero = self.positions[0].clone();
        let at = vec![zero; rank];
        let (to, extent) = (format!("{name} at({})", list(&at)), list(&shape));
        let size: i64 = shape.iter().product();
        if rank == 1 && self.r.chance(2) {
            let at = self.r.below(INPUT as usize) as i64;
            let at = self.index(at);
            let from = format!("%x{} at({at})", self.number(dtype));
            self.line(&format!("tile.copy_async {name}, {from} {{extent = [{size}]}}"));
        } else {
            let v = self.value(&shape, dtype);
            let to = to.replacen(" at", &format!(", {v} at"), 1);
            self.line(&format!("tile.store {to} {{extent = [{extent}]}}"));
        }
        self.buffers.push(Buffer { name, shape, dtype });
    }

    /// Positions, attributes and shape of a block of a buffer.
    fn block(&mut self, b: usize) -> (String, String, Vec<i64>) {
        let shape = self.buffers[b].shape.clone();
        if self.r.chance(3) {
            let at = vec![self.positions[0].clone(); shape.len()];
            return (list(&at), format!("extent = [{}]", list(&shape)), shape);
        }
        let (mut at, mut extent, mut step, mut kept) = (vec![], vec![], vec![], vec![]);
        for &d in &shape {
            at.push(self.position(d));
            let n = if self.r.chance(4) { 0 } else { 1 + self.r.below(d as usize) as i64 };
            extent.push(n);
            step.push(if self.r.chance(4) { 1 + self.r.below(3) } else { 1 });
            kept.extend(Some(n).filter(|&n| n != 0));
        }
        let mut attrs = format!("extent = [{}]", list(&extent));
        if step.iter().any(|&s| s != 1) {
            write!(attrs, ", step = [{}]", list(&step)).expect("a string takes it");
        }
        (list(&at), attrs, kept)
    }

    /// Positions of elements of a buffer, at least one of them a tile of this shape.
    fn elements(&mut self, b: usize) -> (String, Vec<i64>) {
        let shape = self.buffers[b].shape.clone();
        let n = [1i64, 7, 16, 64, 130][self.r.below(5)];
        let tile = if n % 2 == 0 && self.r.chance(2) { vec![2, n / 2] } else { vec![n] };
        let one = self.r.below(shape.len());
        let mut at = Vec::new();
        for (axis, &d) in shape.iter().enumerate() {
            at.push(match axis == one || self.r.chance(2) {
                true => self.indices(&tile, d),
                false => self.position(d),
            });
        }
        (list(&at), tile)
    }

    fn access(&mut self) {
        let b = self.r.below(self.buffers.len());
        let (name, dtype) = (self.buffers[b].name.clone(), self.buffers[b].dtype);
        let compute = dtype.compute();
        match self.r.below(12) {
            0..=2 => {
                let (at, attrs, shape) = self.block(b);
                let v = self.value(&shape, dtype);
                let mask = self.mask_of(&shape);
                self.line(&format!("tile.store {name}, {v} at({at}){mask} {{{attrs}}}"));
            }
            3..=5 => {
                let (at, attrs, shape) = self.block(b);
                let other = self.other(dtype);
                let load = format!("tile.load {name} at({at}){other} {{{attrs}}}");
                let v = self.op(&load, &shown(&shape, dtype));
                self.show(&v, &shape, dtype);
            }
            6 | 7 => {
                let (at, shape) = self.elements(b);
                let other = self.other(dtype);
                let v =
                    self.op(&format!("tile.gather {name} at({at}){other}"), &shown(&shape, dtype));
                self.show(&v, &shape, dtype);
            }
            8 => {
                let (at, shape) = self.elements(b);
                let v = self.value(&shape, dtype);
                let mask = self.mask_of(&shape);
                let unique = if self.ordered { "" } else { " {unique = true}" };
                if self.ordered || shape == [1] {
                    self.line(&format!("tile.scatter {name}, {v} at({at}){mask}{unique}"));
                }
            }
            9 => {
                let op = self.r.pick(&["sum", "max", "min", "prod"]);
                let (at, attrs, shape) = self.block(b);
                let v = self.computed(&shape, dtype);
                let mask = self.mask_of(&shape);
                let to = format!("{name}, {v} at({at}){mask}");
                self.line(&format!("tile.accumulate {to} {{op = {op}, {attrs}}}"));
            }
            _ => {
                let bits = ["and", "or", "xor"];
                let op = self
                    .r
                    .pick(&["add", "sub", "max", "min", "exchange", "cas", "and", "or", "xor"]);
                let op = if bits.contains(&op) && compute.is_float() { "max" } else { op };
                let is_old = matches!(op, "exchange" | "cas");
                let (at, shape) = match self.r.chance(4) {
                    false => self.elements(b),
                    true => {
                        let shape = self.buffers[b].shape.clone();
                        let at: Vec<String> = shape.iter().map(|&d| self.position(d)).collect();
                        (list(&at), Vec::new())
                    }
                };
                if !self.ordered && !shape.is_empty() && (is_old || compute.is_float()) {
                    return;
                }
                let v = match is_old {
                    true => self.value(&shape, dtype),
                    false => self.computed(&shape, dtype),
                };
                let expected = match op {
                    "cas" => {
                        let e = self.value(&shape, dtype);
                        format!(" expected({e})")
                    }
                    _ => String::new(),
                };
                let what = format!("tile.atomic {name}, {v} at({at}){expected} {{op = {op}}}");
                let old = self.op(&what, &shown(&shape, dtype));
                if self.r.chance(2) && (self.ordered || shape.is_empty()) {
                    self.show(&old, &shape, dtype);
                }
            }
        }
    }

    fn other(&mut self, dtype: DType) -> String {
        if !self.r.chance(3) {
            return String::new();
        }
        let v = self.value(&[], dtype);
        format!(" other({v})")
    }

    fn mask_of(&mut self, shape: &[i64]) -> String {
        if shape.is_empty() { String::new() } else { self.mask(shape) }
    }

    fn body(&mut self, statements: usize, depth: usize) {
        let (buffers, positions) = (self.buffers.len(), self.positions.len());
        for _ in 0..statements {
            match self.r.below(12) {
                0 => self.alloc(),
                1 => self.line("tile.barrier"),
                2 if depth < 2 => self.repeated(depth),
                3 if depth < 2 => {
                    let at = self.positions[self.r.below(self.positions.len())].clone();
                    let two = self.index(2);
                    let c = self.op(&format!("tile.lt {at}, {two}"), "bool");
                    self.line(&format!("tile.if {c} do {{"));
                    self.body(1 + statements / 3, depth + 1);
                    self.line("tile.yield\n  } do {");
                    self.body(statements / 4, depth + 1);
                    self.line("tile.yield\n  }");
                }
                _ => self.access(),
            }
        }
        self.buffers.truncate(buffers);
        self.positions.truncate(positions);
    }

    fn repeated(&mut self, depth: usize) {
        let n = self.r.below(4) as i64;
        let [hi, most] = [n, 3].map(|v| self.index(v));
        let (zero, one) = (self.positions[0].clone(), self.positions[1].clone());
        let i = self.fresh();
        self.line(&format!("tile.for {zero}, {hi}, {one} do ({i}: i64) {{"));
        let before = (self.iteration.clone(), self.iterations, self.positions.len());
        let all = self.op(&format!("tile.mul {}, {most}", self.iteration.clone()), "i64");
        self.iteration = self.op(&format!("tile.add {all}, {i}"), "i64");
        self.iterations *= 3;
        self.positions.push(i);
        self.body(5, depth + 1);
        (self.iteration, self.iterations) = (before.0, before.1);
        self.positions.truncate(before.2);
        self.line("tile.yield\n  }");
    }
}

/// The kernel of a seed. Where `ordered` is not set, nothing depends on the order of atomics.
pub fn program(seed: u64, ordered: bool) -> Made {
    let mut r = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    r.below(2);
    let count = 1 + r.below(2);
    let mut dtypes: Vec<DType> = Vec::new();
    while dtypes.len() < count {
        let dtype = DType::ALL[r.below(DType::ALL.len())];
        if !dtypes.contains(&dtype) {
            dtypes.push(dtype);
        }
    }
    let mut params = vec![format!("%ix: view<[{INPUT}], i32, read>")];
    for (i, d) in dtypes.iter().map(|d| d.name()).enumerate() {
        params.push(format!("%x{i}: view<[{INPUT}], {d}, read>"));
        params.push(format!("%y{i}: view<[{OUTPUT}], {d}, read_write>"));
    }
    let text = format!("func @k({}) {{kind = group, grid = [2]}} {{\n", list(&params));
    let free = vec![0; dtypes.len()];
    let mut p = Program {
        r,
        text,
        next: 0,
        buffers: Vec::new(),
        positions: Vec::new(),
        dtypes,
        free,
        iteration: String::new(),
        iterations: 1,
        ordered,
    };
    let constants = [0, 1].map(|v| p.index(v));
    p.positions.extend(constants);
    p.iteration = p.positions[0].clone();
    p.line("%p = tile.program_id {axis = 0} : i64");
    let half = p.index(OUTPUT / 2);
    p.line(&format!("%base = tile.mul %p, {half} : i64"));
    p.positions.push("%p".into());
    p.alloc();
    let statements = 4 + p.r.below(12);
    p.body(statements, 0);
    p.line("tile.return\n}");
    Made { text: p.text, dtypes: p.dtypes }
}
