//! Random kernels with parts of tiles, combiners, sorting and counting: the interpreter runs these
//! ops by themselves, the CPU runs their expansions, PTX has some by itself and the expansions of the
//! others (of all without the pass `tile_ops`), and all give the same bits in `strict`.

use crate::budget::Budget;
use crate::buffer_programs::{INPUT, Made, OUTPUT};
use crate::fuzz_buffers::check_made;
use crate::random::Random;
use std::collections::BTreeMap;
use std::fmt::Write;
use tessera_numerics::{DType, Profile};

const DTYPES: [DType; 4] = [DType::F32, DType::I32, DType::F64, DType::U64];
const EXTENTS: [i64; 9] = [1, 2, 3, 4, 5, 8, 11, 16, 23];

#[derive(Clone)]
struct Tile {
    name: String,
    shape: Vec<i64>,
    dtype: DType,
}

impl Tile {
    fn ty(&self) -> String {
        let dims: String = self.shape.iter().map(|d| format!("{d}x")).collect();
        if self.shape.is_empty() {
            self.dtype.name().into()
        } else {
            format!("tile<{dims}{}>", self.dtype.name())
        }
    }

    fn count(&self) -> i64 {
        self.shape.iter().product()
    }
}

struct Program {
    r: Random,
    text: String,
    next: usize,
    tiles: Vec<Tile>,
    dtypes: Vec<DType>,
    free: Vec<i64>,
    drawn: BTreeMap<&'static str, usize>,
}

impl Program {
    fn fresh(&mut self, shape: &[i64], dtype: DType) -> Tile {
        self.next += 1;
        Tile { name: format!("%v{}", self.next), shape: shape.to_vec(), dtype }
    }

    fn line(&mut self, text: &str) {
        writeln!(self.text, "  {text}").expect("a string takes it");
    }

    fn op(&mut self, text: &str, shape: &[i64], dtype: DType) -> Tile {
        let out = self.fresh(shape, dtype);
        self.line(&format!("{} = {text} : {}", out.name, out.ty()));
        out
    }

    fn reshaped(&mut self, t: &Tile, shape: &[i64]) -> Tile {
        if t.shape == shape {
            return t.clone();
        }
        self.op(&format!("tile.reshape {}", t.name), shape, t.dtype)
    }

    /// A tile of the input of a dtype, or of positions.
    fn loaded(&mut self, shape: &[i64], dtype: DType, array: &str) -> Tile {
        let count: i64 = shape.iter().product();
        let at = self.r.below((INPUT - count) as usize) as i64;
        let at = self.op(&format!("tile.const {{value = {at}}}"), &[], DType::I64);
        let flat = self.op(
            &format!("tile.load {array} at({}) {{extent = [{count}]}}", at.name),
            &[count],
            dtype,
        );
        self.reshaped(&flat, shape)
    }

    fn shape(&mut self) -> Vec<i64> {
        let rank = 1 + self.r.below(3);
        (0..rank).map(|_| EXTENTS[self.r.below(if rank == 3 { 5 } else { 9 })]).collect()
    }

    fn new_tile(&mut self) {
        let (shape, which) = (self.shape(), self.r.below(self.dtypes.len()));
        let dtype = self.dtypes[which];
        let t = self.loaded(&shape, dtype, &format!("%x{which}"));
        self.tiles.push(t);
    }

    fn slice(&mut self, t: &Tile) -> Tile {
        let (mut start, mut step, mut extents) = (vec![], vec![], vec![]);
        for &n in &t.shape {
            let extent = 1 + self.r.below(n as usize) as i64;
            let most = if extent == 1 { 3 } else { (n - 1) / (extent - 1) };
            let by = 1 + self.r.below(most.min(3) as usize) as i64;
            let span = (extent - 1) * by;
            let low = self.r.below((n - span) as usize) as i64;
            let back = self.r.below(3) == 0;
            start.push(if back { low + span } else { low });
            step.push(if back { -by } else { by });
            extents.push(extent);
        }
        let text = format!("tile.slice {} {{start = {start:?}, step = {step:?}}}", t.name);
        self.op(&text, &extents, t.dtype)
    }

    fn concat(&mut self, t: &Tile) -> Tile {
        let axis = self.r.below(t.shape.len());
        let other = self.slice(t);
        // The other axes must be whole.
        let mut shape = t.shape.clone();
        shape[axis] = other.shape[axis].min(3);
        let start = vec![0; shape.len()];
        let part =
            self.op(&format!("tile.slice {} {{start = {start:?}}}", t.name), &shape, t.dtype);
        shape[axis] += t.shape[axis];
        let (a, b) = if self.r.below(2) == 0 { (&part, t) } else { (t, &part) };
        let text = format!("tile.concat parts({}, {}) {{axis = {axis}}}", a.name, b.name);
        self.op(&text, &shape, t.dtype)
    }

    fn take(&mut self, t: &Tile) -> Tile {
        let axis = self.r.below(t.shape.len());
        let mut shape = t.shape.clone();
        shape[axis] = EXTENTS[self.r.below(6)];
        let index = self.loaded(&shape, DType::I32, "%ix");
        let text = format!("tile.take {}, {} {{axis = {axis}}}", t.name, index.name);
        self.op(&text, &shape, t.dtype)
    }

    /// `reduce_by` or `scan_by` of one tile or of two, by combiners that do not commute.
    fn combine(&mut self, t: &Tile) -> Vec<Tile> {
        let axis = self.r.below(t.shape.len());
        let scan = self.r.below(2) == 0;
        let mut shape = t.shape.clone();
        if !scan {
            shape.remove(axis);
        }
        let two = self.r.below(2) == 0;
        let outs: Vec<Tile> =
            (0..1 + usize::from(two)).map(|_| self.fresh(&shape, t.dtype)).collect();
        let names: Vec<&str> = outs.iter().map(|o| o.name.as_str()).collect();
        let types: Vec<String> = outs.iter().map(Tile::ty).collect();
        let reverse = if scan && self.r.below(2) == 0 { ", reverse = true" } else { "" };
        let n = self.next;
        let dtype = t.dtype.name();
        let args = if two { "abcd" } else { "ab" };
        let args: Vec<String> = args.chars().map(|c| format!("%{c}{n}: {dtype}")).collect();
        let given = vec![t.name.as_str(); outs.len()].join(", ");
        self.line(&format!(
            "{} = tile.{} x({given}) {{axis = {axis}{reverse}}} : {} do ({}) {{",
            names.join(", "),
            if scan { "scan_by" } else { "reduce_by" },
            types.join(", "),
            args.join(", "),
        ));
        match (two, self.r.below(2)) {
            (true, _) => {
                self.line(&format!("  %m{n} = tile.mul %a{n}, %c{n} : {dtype}"));
                self.line(&format!("  %p{n} = tile.mul %c{n}, %b{n} : {dtype}"));
                self.line(&format!("  %s{n} = tile.add %p{n}, %d{n} : {dtype}"));
                self.line(&format!("  tile.yield %m{n}, %s{n}"));
            }
            (false, 0) => {
                self.line(&format!("  %s{n} = tile.sub %a{n}, %b{n} : {dtype}"));
                self.line(&format!("  tile.yield %s{n}"));
            }
            _ => {
                self.line(&format!("  %c{n} = tile.lt %a{n}, %b{n} : bool"));
                self.line(&format!("  %r{n} = tile.if %c{n} : {dtype} do {{"));
                self.line(&format!("    tile.yield %b{n}"));
                self.line("  } do {");
                self.line(&format!("    %k{n} = tile.add %a{n}, %b{n} : {dtype}"));
                self.line(&format!("    tile.yield %k{n}"));
                self.line("  }");
                self.line(&format!("  tile.yield %r{n}"));
            }
        }
        self.line("}");
        outs
    }

    fn sort(&mut self, t: &Tile) -> Vec<Tile> {
        let axis = self.r.below(t.shape.len());
        let (values, places) = (self.fresh(&t.shape, t.dtype), self.fresh(&t.shape, DType::I32));
        let falls = if self.r.below(2) == 0 { ", descending = true" } else { "" };
        self.line(&format!(
            "{}, {} = tile.sort {} {{axis = {axis}{falls}}} : {}, {}",
            values.name,
            places.name,
            t.name,
            values.ty(),
            places.ty()
        ));
        vec![values, places]
    }

    fn step(&mut self) {
        let t = self.tiles[self.r.below(self.tiles.len())].clone();
        let (kind, made) = match self.r.below(7) {
            0 => ("slice", vec![self.slice(&t)]),
            1 => ("concat", vec![self.concat(&t)]),
            2 => ("take", vec![self.take(&t)]),
            3 | 4 => ("combine", self.combine(&t)),
            5 => ("sort", self.sort(&t)),
            _ => {
                let shape = self.shape();
                let index = self.loaded(&shape, DType::I32, "%ix");
                let bins = EXTENTS[self.r.below(9)];
                let text = format!("tile.histogram {}", index.name);
                ("histogram", vec![self.op(&text, &[bins], DType::I32)])
            }
        };
        *self.drawn.entry(kind).or_default() += 1;
        for t in made {
            self.stored(&t);
            if !t.shape.is_empty() && t.count() <= 400 && self.dtypes.contains(&t.dtype) {
                self.tiles.push(t);
            }
        }
    }

    fn stored(&mut self, t: &Tile) {
        let which = self.dtypes.iter().position(|&d| d == t.dtype).expect("every dtype is there");
        let count = t.count().max(1);
        if self.free[which] + count > OUTPUT {
            return;
        }
        let at = self.free[which];
        self.free[which] += count;
        let at = self.op(&format!("tile.const {{value = {at}}}"), &[], DType::I64);
        let (value, extent) =
            if t.shape.is_empty() { (t.clone(), 0) } else { (self.reshaped(t, &[count]), count) };
        self.line(&format!(
            "tile.store %y{which}, {} at({}) {{extent = [{extent}]}}",
            value.name, at.name
        ));
    }
}

fn program(seed: u64) -> (Made, BTreeMap<&'static str, usize>) {
    let mut r = Random(seed | 1);
    let mut dtypes = vec![DType::I32];
    let other = DTYPES[r.below(4)];
    if other != DType::I32 {
        dtypes.push(other);
    }
    let free = vec![0; dtypes.len()];
    let mut p = Program {
        r,
        text: String::new(),
        next: 0,
        tiles: Vec::new(),
        dtypes,
        free,
        drawn: BTreeMap::new(),
    };
    let mut params = format!("%ix: view<[{INPUT}], i32, read>");
    for (k, dtype) in p.dtypes.clone().iter().enumerate() {
        let name = dtype.name();
        write!(params, ", %x{k}: view<[{INPUT}], {name}, read>").expect("a string takes it");
        write!(params, ", %y{k}: view<[{OUTPUT}], {name}, write>").expect("a string takes it");
    }
    p.new_tile();
    p.new_tile();
    for _ in 0..2 + p.r.below(4) {
        p.step();
    }
    let text = format!("func @k({params}) {{kind = group}} {{\n{}  tile.return\n}}", p.text);
    (Made { text, dtypes: p.dtypes }, p.drawn)
}

#[test]
fn random_kernels_with_parts_of_tiles_compute_the_same_everywhere() {
    let budget = Budget::new(6);
    let (mut ran, mut large) = (0, 0);
    let mut drawn: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut seed = budget.seed;
    while budget.left() {
        let (made, ops) = program(seed);
        match check_made(seed, &made, Profile::Strict) {
            true => ran += 1,
            false => large += 1,
        }
        for (op, n) in ops {
            *drawn.entry(op).or_default() += n;
        }
        seed = seed.wrapping_add(1);
    }
    println!("{ran} kernels ran, {large} were too large; drawn: {drawn:?}");
    assert!(ran > large, "most kernels must fit");
}
