//! Random lane kernels: uniform and divergent loops and branches, accesses inside and outside,
//! barriers, shared memory and group operations in uniform control flow.
//!
//! `TESSERA_FUZZ_SEED` and `TESSERA_FUZZ_SECONDS` say where to begin and how long to go on: see
//! `filetest/tests/budget`.

#[path = "../../../filetest/tests/budget/mod.rs"]
mod budget;

use crate::harness::{Arg, LAYOUTS, Layout, Rng, array, scalar};
use crate::{Case, Target};
use budget::Budget;
use std::fmt::Write;
use tessera_numerics::{DType, Profile};

struct Generator {
    rng: Rng,
    text: String,
    indent: usize,
    count: usize,
    /// Values that can be used here, innermost last.
    values: Vec<(String, &'static str)>,
    /// Control flow is uniform here.
    together: bool,
    /// Lanes of a group that synchronises, and of the shared buffer.
    shared: Option<i64>,
    /// Only what a thread can do for several lanes together.
    wide: bool,
    /// Control flow may diverge here.
    apart: bool,
    /// What depends on the order of lanes, and barriers that some lanes do not reach.
    ordered: bool,
    budget: usize,
}

const TYPES: [&str; 5] = ["i64", "i32", "f32", "f64", "bool"];

impl Generator {
    fn below(&mut self, n: u64) -> usize {
        (self.rng.next() % n) as usize
    }

    fn chance(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<'t>(&mut self, all: &[&'t str]) -> &'t str {
        all[self.below(all.len() as u64)]
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "{:1$}{text}", "", 2 * self.indent);
    }

    fn fresh(&mut self) -> String {
        self.count += 1;
        format!("%v{}", self.count)
    }

    fn def(&mut self, ty: &'static str, what: &str) -> String {
        let v = self.fresh();
        self.line(&format!("{v} = tile.{what} : {ty}"));
        self.values.push((v.clone(), ty));
        v
    }

    fn constant(&mut self, ty: &'static str) -> String {
        let value = match ty {
            "bool" => self.pick(&["true", "false"]).to_string(),
            "f32" | "f64" => {
                self.pick(&["0.0", "1.5", "-2.25", "1000.0", "inf", "-0.0"]).to_string()
            }
            _ => (self.below(20) as i64 - 6).to_string(),
        };
        self.def(ty, &format!("const {{value = {value}}}"))
    }

    /// A value of the type, mostly an existing one.
    fn value(&mut self, ty: &'static str) -> String {
        let there: Vec<String> =
            self.values.iter().filter(|v| v.1 == ty).map(|v| v.0.clone()).collect();
        if there.is_empty() || self.chance(12) {
            return self.constant(ty);
        }
        // Late ones more often, so that chains get long.
        let n = there.len();
        let at = self.below(n as u64).max(self.below(n as u64));
        there[at].clone()
    }

    fn compute(&mut self) {
        let ty = TYPES[self.below(5)];
        let (a, b) = (self.value(ty), self.value(ty));
        match (ty, self.below(8)) {
            ("bool", 0) => {
                self.def("bool", &format!("not {a}"));
            }
            ("bool", _) => {
                let f = self.pick(&["and", "or", "xor", "eq"]);
                self.def("bool", &format!("{f} {a}, {b}"));
            }
            (_, 0 | 1) => {
                let f = self.pick(&["lt", "le", "gt", "ge", "eq", "ne"]);
                self.def("bool", &format!("{f} {a}, {b}"));
            }
            (_, 2) => {
                let c = self.value("bool");
                self.def(ty, &format!("select {c}, {a}, {b}"));
            }
            (_, 3) => {
                let to = ["i64", "i32", "f32", "f64"].into_iter().find(|&t| t != ty && t != "bool");
                let to = if self.chance(2) {
                    to.unwrap_or("f32")
                } else if ty == "f32" {
                    "i64"
                } else {
                    "f32"
                };
                self.def(to, &format!("cast {a}"));
            }
            ("f32" | "f64", _) => {
                let f = self.pick(&["add", "sub", "mul", "div", "maximum", "minimum"]);
                self.def(ty, &format!("{f} {a}, {b}"));
            }
            _ => {
                let f = self.pick(&[
                    "add", "sub", "mul", "floordiv", "mod", "and", "xor", "minimum", "maximum",
                ]);
                self.def(ty, &format!("{f} {a}, {b}"));
            }
        }
    }

    fn index(&mut self) -> String {
        if self.wide && !self.chance(8) {
            return match self.below(8) {
                0 => {
                    let k = ["8", "-8", "1", "16"][self.below(4)];
                    let k = self.def("i64", &format!("const {{value = {k}}}"));
                    self.def("i64", &format!("add %i, {k}"))
                }
                1 => self.def("i64", "add %i, %k"),
                _ => "%i".into(),
            };
        }
        match self.below(4) {
            0 => "%i".into(),
            1 => {
                let k = self.value("i64");
                self.def("i64", &format!("add %i, {k}"))
            }
            2 => {
                let f = self.pick(&["floordiv", "mod"]);
                let k = self.value("i64");
                self.def("i64", &format!("{f} %i, {k}"))
            }
            _ => self.value("i64"),
        }
    }

    fn access(&mut self) {
        match self.below(9) {
            0 | 1 => {
                let at = self.index();
                self.def("f32", &format!("load %xf at({at}) {{extent = [0]}}"));
            }
            2 => {
                let (at, other) = (self.index(), self.value("i64"));
                self.def("i64", &format!("load %xl at({at}) other({other}) {{extent = [0]}}"));
            }
            3 => {
                let p = if self.wide { self.value("i64") } else { self.index() };
                let q = self.index();
                self.def("i32", &format!("load %xm at({p}, {q}) {{extent = [0, 0]}}"));
            }
            4 => {
                self.def("f32", "load %of at(%i) {extent = [0]}");
            }
            5 => {
                let x = self.value("f32");
                let mask = match self.chance(2) {
                    true => format!(" mask({})", self.value("bool")),
                    false => String::new(),
                };
                self.line(&format!("tile.store %of, {x} at(%i){mask} {{extent = [0]}}"));
            }
            6 => {
                let x = self.value("i64");
                self.line(&format!("tile.store %ol, {x} at(%i) {{extent = [0]}}"));
            }
            7 => {
                let x = self.value("f32");
                self.line(&format!("tile.accumulate %of, {x} at(%i) {{op = sum, extent = [0]}}"));
            }
            _ if self.ordered && self.chance(2) => self.shared_element(),
            _ if self.chance(2) => self.own_element(),
            _ => {
                let (x, at) = (self.value("i32"), self.index());
                self.line(&format!("tile.accumulate %h, {x} at({at}) {{op = sum, extent = [0]}}"));
            }
        }
    }

    /// Atomics on an element that no other lane accesses.
    fn own_element(&mut self) {
        match self.below(3) {
            0 => {
                let f = self.pick(&["add", "max", "exchange", "xor"]);
                let x = self.value("i64");
                self.def("i64", &format!("atomic %ha, {x} at(%i) {{op = {f}}}"));
            }
            1 => {
                let (x, e) = (self.value("i64"), self.value("i64"));
                self.def("i64", &format!("atomic %ha, {x} at(%i) expected({e}) {{op = cas}}"));
            }
            _ => {
                let (x, at) = (self.value("i32"), self.index());
                let f = self.pick(&["add", "sub"]);
                self.line(&format!(
                    "%a{} = tile.atomic %h, {x} at({at}) {{op = {f}}} : i32",
                    self.count
                ));
                self.count += 1;
            }
        }
    }

    /// Changes of elements that several lanes come to, one after another.
    fn shared_element(&mut self) {
        let at = self.index();
        match self.below(4) {
            0 => {
                let x = self.value("f32");
                self.line(&format!("tile.accumulate %hf, {x} at({at}) {{op = sum, extent = [0]}}"));
            }
            1 => {
                let f = self.pick(&["add", "max", "exchange"]);
                let x = self.value("i32");
                self.def("i32", &format!("atomic %hs, {x} at({at}) {{op = {f}}}"));
            }
            2 => {
                let (x, e) = (self.value("i32"), self.value("i32"));
                self.def("i32", &format!("atomic %hs, {x} at({at}) expected({e}) {{op = cas}}"));
            }
            _ if self.shared.is_some() => {
                let x = self.value("f32");
                self.def("f32", &format!("atomic %buf2, {x} at({at}) {{op = add}}"));
            }
            _ => self.compute(),
        }
    }

    /// A group operation, in uniform control flow.
    fn group_operation(&mut self) {
        let Some(lanes) = self.shared else { return self.compute() };
        if !(self.together || self.ordered && self.chance(6)) {
            return self.access();
        }
        let ty = TYPES[self.below(4)];
        let x = self.value(ty);
        match self.below(6) {
            0 => self.line("tile.barrier"),
            1 => {
                let f = self.pick(&["sum", "max", "min"]);
                self.def(ty, &format!("group_reduce {x} {{op = {f}}}"));
            }
            2 => {
                let f = self.pick(&["sum", "max"]);
                let exclusive = self.pick(&["", ", exclusive = true"]);
                self.def(ty, &format!("group_scan {x} {{op = {f}{exclusive}}}"));
            }
            3 => {
                let at = self.value("i64");
                let f = self.pick(&["group_broadcast", "group_shuffle"]);
                self.def(ty, &format!("{f} {x}, {at}"));
            }
            _ => {
                let x = self.value("f32");
                self.line(&format!("tile.store %buf, {x} at(%l) {{extent = [0]}}"));
                self.line("tile.barrier");
                let size = self.def("i64", &format!("const {{value = {lanes}}}"));
                let at = self.index();
                let at = self.def("i64", &format!("mod {at}, {size}"));
                self.def("f32", &format!("load %buf at({at}) {{extent = [0]}}"));
                self.line("tile.barrier");
            }
        }
    }

    /// A condition, and whether all lanes of the group share it.
    fn condition(&mut self) -> (String, bool) {
        if self.wide && self.chance(3) {
            let (f, k) = (self.pick(&["lt", "ge", "ne", "eq", "le"]), self.value("i64"));
            let first = self.def("bool", &format!("{f} %i, {k}"));
            if self.chance(2) {
                return (first, false);
            }
            let second = self.value("bool");
            let f = self.pick(&["and", "or"]);
            return (self.def("bool", &format!("{f} {first}, {second}")), false);
        }
        if self.chance(3) {
            let k = self.constant("i64");
            return (self.def("bool", &format!("lt %k, {k}")), true);
        }
        (self.value("bool"), false)
    }

    /// Runs `body` as a region, with block arguments; it ends in a yield of values of these types.
    fn region(&mut self, args: &[(String, &'static str)], results: &[&'static str], shared: bool) {
        let (outer, together) = (self.values.len(), self.together);
        self.together &= shared;
        self.values.extend(args.iter().cloned());
        self.indent += 1;
        let n = self.below(5);
        for _ in 0..n {
            self.statement();
        }
        let list: Vec<String> = results.iter().map(|ty| self.value(ty)).collect();
        let end = if list.is_empty() {
            "tile.yield".into()
        } else {
            format!("tile.yield {}", list.join(", "))
        };
        self.line(&end);
        self.indent -= 1;
        self.values.truncate(outer);
        self.together = together;
    }

    fn results(&mut self) -> Vec<&'static str> {
        let n = self.below(3);
        (0..n).map(|_| TYPES[self.below(5)]).collect()
    }

    fn head(
        &mut self,
        op: &str,
        init: &str,
        results: &[&'static str],
    ) -> Vec<(String, &'static str)> {
        let out: Vec<_> = results.iter().map(|&ty| (self.fresh(), ty)).collect();
        let names: Vec<_> = out.iter().map(|o| o.0.clone()).collect();
        let types = results.join(", ");
        let text = match results.is_empty() {
            true => format!("tile.{op}"),
            false => format!("{} = tile.{op}{init} : {types}", names.join(", ")),
        };
        let _ = write!(self.text, "{:1$}{text}", "", 2 * self.indent);
        out
    }

    fn branch(&mut self) {
        let (c, shared) = self.condition();
        let results = self.results();
        let out = self.head(&format!("if {c}"), "", &results);
        let outer = self.apart;
        self.apart |= !shared;
        self.text.push_str(" do {\n");
        self.region(&[], &results, shared);
        self.line("} do {");
        self.region(&[], &results, shared);
        self.line("}");
        self.apart = outer;
        self.values.extend(out);
    }

    fn counted(&mut self) {
        let shared = self.wide || self.chance(2);
        let small = |g: &mut Self, k: i64| {
            let k = g.def("i64", &format!("const {{value = {k}}}"));
            if shared {
                return k;
            }
            let x = g.value("i64");
            g.def("i64", &format!("mod {x}, {k}"))
        };
        let top = self.below(3) as i64 + 1;
        let (lo, hi) = (small(self, 2), small(self, 2 + top));
        let lo = if self.chance(3) && !shared { "%i".into() } else { lo };
        let step = self.pick(&["1", "2"]);
        let step = self.def("i64", &format!("const {{value = {step}}}"));
        let results = self.results();
        let init: Vec<_> = results.iter().map(|ty| self.value(ty)).collect();
        let out = self.head(
            &format!("for {lo}, {hi}, {step}"),
            &format!(" init({})", init.join(", ")),
            &results,
        );
        let mut args = vec![(self.fresh(), "i64")];
        for &ty in &results {
            args.push((self.fresh(), ty));
        }
        let list: Vec<_> = args.iter().map(|(v, ty)| format!("{v}: {ty}")).collect();
        let _ = writeln!(self.text, " do ({}) {{", list.join(", "));
        self.region(&args, &results, shared);
        self.line("}");
        self.values.extend(out);
    }

    fn conditional(&mut self) {
        let mut results = self.results();
        results.insert(0, "i64");
        let mut init: Vec<_> = results.iter().map(|ty| self.value(ty)).collect();
        init[0] = self.def("i64", "const {value = 0}");
        let out = self.head("while", &format!(" init({})", init.join(", ")), &results);
        let args: Vec<_> = results.iter().map(|&ty| (self.fresh(), ty)).collect();
        let shown = |args: &[(String, &str)]| {
            let list: Vec<_> = args.iter().map(|(v, ty)| format!("{v}: {ty}")).collect();
            list.join(", ")
        };
        let _ = writeln!(self.text, " do ({}) {{", shown(&args));
        let outer = self.values.len();
        self.indent += 1;
        self.values.extend(args.iter().cloned());
        let top = self.def("i64", "const {value = 3}");
        let less = self.def("bool", &format!("lt {}, {top}", args[0].0));
        let shared = self.chance(2);
        if !shared {
            let c = self.value("bool");
            let both = self.def("bool", &format!("and {less}, {c}"));
            self.line(&format!("tile.yield {both}"));
        } else {
            self.line(&format!("tile.yield {less}"));
        }
        self.indent -= 1;
        self.values.truncate(outer);
        let args: Vec<_> = results.iter().map(|&ty| (self.fresh(), ty)).collect();
        self.line(&format!("}} do ({}) {{", shown(&args)));
        let together = self.together;
        self.together &= shared;
        self.indent += 1;
        self.values.extend(args.iter().cloned());
        for _ in 0..2 {
            self.statement();
        }
        let one = self.def("i64", "const {value = 1}");
        let next = self.def("i64", &format!("add {}, {one}", args[0].0));
        let mut list: Vec<String> = results.iter().map(|ty| self.value(ty)).collect();
        list[0] = next;
        self.line(&format!("tile.yield {}", list.join(", ")));
        self.indent -= 1;
        self.values.truncate(outer);
        self.together = together;
        self.line("}");
        self.values.extend(out);
    }

    /// The lane's index over all axes, the last one fastest; its indices along each are values too.
    fn lane_of(&mut self, inner: &[i64]) {
        self.line("%i0 = tile.linear_id {axis = 0} : i64");
        let mut all = "%i0".to_string();
        for (axis, extent) in (1..).zip(inner) {
            let next = if axis == inner.len() { "%i".to_string() } else { format!("%n{axis}") };
            self.line(&format!("%i{axis} = tile.linear_id {{axis = {axis}}} : i64"));
            self.line(&format!("%l{axis} = tile.local_id {{axis = {axis}}} : i64"));
            self.line(&format!("%e{axis} = tile.const {{value = {extent}}} : i64"));
            self.line(&format!("%m{axis} = tile.mul {all}, %e{axis} : i64"));
            self.line(&format!("{next} = tile.add %m{axis}, %i{axis} : i64"));
            self.values.push((format!("%i{axis}"), "i64"));
            self.values.push((format!("%l{axis}"), "i64"));
            all = next;
        }
        self.values.push(("%i0".into(), "i64"));
    }

    fn statement(&mut self) {
        if self.budget == 0 {
            return;
        }
        self.budget -= 1;
        match self.below(16) {
            0..=5 => self.compute(),
            6..=9 => self.access(),
            10..=11 => self.group_operation(),
            12..=13 if self.indent < 5 => self.branch(),
            14 if self.indent < 5 && !(self.wide && self.apart) => self.counted(),
            15 if self.indent < 5 && !self.wide => self.conditional(),
            _ => self.compute(),
        }
    }
}

/// The lanes of a group, and of the domain along all axes but the first, of kernels whose lanes have
/// several axes. The last groups along an axis are whole, or not.
const SHAPES: [(&[i64], &[i64]); 8] = [
    (&[4, 4], &[8]),
    (&[4, 5], &[10]),
    (&[1, 33], &[33]),
    (&[16, 4], &[8]),
    (&[3, 2, 8], &[4, 8]),
    (&[4, 16], &[19]),
    (&[7, 3], &[4]),
    (&[2, 3, 5], &[4, 11]),
];

/// The number of shapes whose groups are whole.
const WHOLE: usize = 5;

/// The shape of a kernel's lanes, where they have several axes.
fn shape(seed: u64) -> Option<usize> {
    let chosen = (seed / 3 % SHAPES.len() as u64) as usize;
    (seed % 3 == 1).then_some(chosen)
}

/// A kernel, and how many lanes its groups must have. `wide`: a GPU thread can take several lanes.
pub fn draw(seed: u64, wide: bool, ordered: bool) -> (String, Option<i64>) {
    draw_lanes(seed, wide, ordered, None)
}

/// The same for lanes of a shape: the array index is a lane's index along all axes.
fn draw_lanes(seed: u64, wide: bool, ordered: bool, shape: Option<usize>) -> (String, Option<i64>) {
    let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1);
    rng.next();
    let shared =
        (!rng.next().is_multiple_of(3)).then(|| [16, 20, 64, 33][(rng.next() % 4) as usize]);
    let whole = shape.is_none_or(|s| s < WHOLE);
    let shared = shared.filter(|_| !wide && whole);
    let shared = shared.map(|n| shape.map_or(n, |s| SHAPES[s].0.iter().product()));
    let mut g = Generator {
        rng,
        text: String::new(),
        indent: 1,
        count: 0,
        values: vec![("%k".into(), "i64"), ("%f".into(), "f32")],
        together: true,
        shared,
        wide,
        apart: false,
        ordered: ordered && !wide,
        budget: 40,
    };
    match shape {
        None => g.line("%i = tile.linear_id : i64"),
        Some(s) => g.lane_of(SHAPES[s].1),
    }
    g.values.push(("%i".into(), "i64"));
    if shared.is_some() || g.chance(3) {
        g.line("%l = tile.local_id : i64");
        g.line("%p = tile.program_id {axis = 0} : i64");
        g.values.push(("%l".into(), "i64"));
        g.values.push(("%p".into(), "i64"));
    }
    if let Some(lanes) = shared {
        g.line(&format!("%buf = tile.buf_alloc : buf<{lanes}xf32>"));
        g.line(&format!("%buf2 = tile.buf_alloc : buf<{lanes}xf32>"));
        g.line("tile.store %buf2, %f at(%l) {extent = [0]}");
        g.line("tile.barrier");
    }
    while g.budget > 0 {
        g.statement();
    }
    let x = g.value("f32");
    g.line(&format!("tile.accumulate %of, {x} at(%i) {{op = sum, extent = [0]}}"));
    let x = g.value("i64");
    g.line(&format!("tile.store %ol, {x} at(%i) {{extent = [0]}}"));
    g.line("tile.return");
    let text = format!(
        "func @random(%xf: view<[n], f32, read>, %xl: view<[m], i64, read>, %xm: view<[a, b], i32, read>, \
         %of: view<[n], f32, read_write>, %ol: view<[n], i64, read_write>, %h: view<[c], i32, reduce_sum>, \
         %ha: view<[n], i64, read_write>, %hf: view<[c], f32, reduce_sum>, %hs: view<[c], i32, read_write>, %k: i64, %f: f32) {{kind = lane{}}} {{\n{}}}\n",
        shape.map_or(String::new(), |s| format!(", lanes = {:?}", SHAPES[s].0)),
        g.text
    );
    (text, shared)
}

/// The arguments of a launch of a drawn kernel, and its lanes: of the domain, and of a group.
pub fn launch(
    seed: u64,
    iteration: usize,
    wide: bool,
    shared: Option<i64>,
) -> (Vec<Arg>, i64, i64) {
    let mut rng = Rng(seed + 77 + iteration as u64);
    rng.next();
    let lanes = shared.unwrap_or([7, 32, 256, if wide { 128 } else { 1 }][iteration]);
    let groups = if wide { [30, 12, 2, 5] } else { [1, 3, 2, 5] }[iteration];
    let domain = lanes * groups - if shared.is_some() { 0 } else { (rng.next() % 7) as i64 };
    let n = (domain + [0, 3, -4, 0][iteration]).max(0);
    let layout = if wide { Layout::Rows } else { LAYOUTS[iteration] };
    let args = vec![
        array(&[n], DType::F32, layout, seed),
        array(&[n / 2 + 1], DType::I64, layout, seed + 1),
        array(&[3, n / 3 + 1], DType::I32, layout, seed + 2),
        array(&[n], DType::F32, layout, seed + 3),
        array(&[n], DType::I64, layout, seed + 4),
        array(&[9], DType::I32, Layout::Rows, seed + 5),
        array(&[n], DType::I64, Layout::Rows, seed + 7),
        array(&[9], DType::F32, Layout::Rows, seed + 6),
        array(&[9], DType::I32, Layout::Rows, seed + 8),
        scalar((rng.next() % 20) as i64 - 3),
        scalar(1.25f32),
    ];
    (args, domain.max(0), lanes)
}

/// How many of four launches came to their end.
fn try_seed(case: &Case, seed: u64) -> usize {
    // One variant of each kernel where compiling takes long: by a hash, so that all are tried.
    let number = (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize;
    let wide = seed.is_multiple_of(2);
    let targets = case.subject.targets();
    let slow = case.subject.compiles_slowly();
    // The order of several ops on one element is promised by strict alone.
    let is_ordered =
        |t: &Target| t.profile == Profile::Strict && case.subject.promises(t.profile).lane_order;
    let ordered = match slow {
        true => is_ordered(&targets[number % (2 * targets.len()) / 2]),
        false => targets.iter().all(is_ordered),
    };
    let shape = shape(seed);
    let (text, shared) = draw_lanes(seed, wide, ordered, shape);
    let kernel = case.kernel(&text).rotate(number);
    let mut good = 0;
    for iteration in 0..4 {
        let by = shape.map(|s| SHAPES[s]);
        let shared = by.map_or(shared, |(by, _)| Some(by.iter().product()));
        let (args, all, lanes) = launch(seed, iteration, wide, shared);
        let (mut domain, mut extents) = (vec![all], vec![lanes]);
        if let Some((by, inner)) = by {
            // As many lanes, in rows: whole groups of them where the shape is one of these.
            let rows = all / inner.iter().product::<i64>();
            let up = (rows.max(1) + by[0] - 1) / by[0] * by[0];
            let first = if shape < Some(WHOLE) { up } else { rows };
            domain = [&[first], inner].concat();
            extents = by.to_vec();
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let (domain, extents) = (&domain[..], &extents[..]);
            kernel.compare(&args, domain, extents, |v| wide || v.promises.sum_order)
        }));
        match outcome {
            Ok(result) => good += usize::from(result.is_ok()),
            Err(_) => panic!("seed {seed}, launch {iteration}\n{text}"),
        }
    }
    good
}

pub fn random_kernels_give_what_the_interpreter_gives(case: &Case) {
    let budget = Budget::new(case.subject.random_seconds());
    let (mut seed, mut good) = (budget.seed, 0);
    while budget.left() {
        good += try_seed(case, seed);
        seed += 1;
    }
    println!("seeds {} to {}: {good} launches to the end", budget.seed, seed - 1);
}
