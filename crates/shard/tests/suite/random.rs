//! Random functions with random pins on random meshes: partitioned, they give what the interpreter gives for whole arrays.
//! Elements are small whole numbers, so that sums are exact in every order.

use crate::{Random, run, types};
use tessera_diag::Loc;
use tessera_graph::ops::collective::{MeshAxes, Split};
use tessera_graph::{Copier, DotAxes, GraphBuilder, GraphModule, GraphOp, elem, tensor};
use tessera_interp::HostArray;
use tessera_ir::{Attr, Attrs, Dim, DimExpr, OpSpec, Type, Value, ValueDef};
use tessera_numerics::{DType, NumType, ReduceOp, ScalarFn};
use tessera_shard::partition;

const EXTENTS: [i64; 8] = [1, 2, 3, 4, 6, 8, 12, 5];

struct Program {
    random: Random,
    b: GraphBuilder,
    mesh: MeshAxes,
    /// Values that the next op may use.
    values: Vec<Value>,
}

fn mesh(random: &mut Random) -> MeshAxes {
    let shapes: [&[i64]; 10] =
        [&[1], &[2], &[3], &[4], &[6], &[2, 2], &[2, 3], &[3, 2], &[2, 2, 2], &[4, 3]];
    let sizes = random.pick(&shapes).to_vec();
    let names = ["a", "b", "c"][..sizes.len()].iter().map(|n| n.to_string()).collect();
    MeshAxes { names, sizes }
}

impl Program {
    fn dims(&self, v: Value) -> Vec<i64> {
        self.b.ty(v).static_shape().unwrap()
    }

    fn any(&mut self) -> Value {
        self.random.pick(&self.values)
    }

    /// A value of this shape and dtype: one that is there, or a constant.
    fn like(&mut self, ty: &Type) -> Value {
        let alike: Vec<Value> =
            self.values.iter().copied().filter(|&v| self.b.ty(v) == ty).collect();
        match alike.is_empty() || self.random.below(4) == 0 {
            true => self.b.splat(2.0, ty, &Loc::unknown()).unwrap(),
            false => self.random.pick(&alike),
        }
    }

    fn split(&mut self, rank: usize) -> Split {
        let mut split: Split = vec![Vec::new(); rank];
        let mut axes = self.mesh.names.clone();
        while rank > 0 && !axes.is_empty() {
            let axis = axes.swap_remove(self.random.below(axes.len()));
            if self.random.below(3) > 0 {
                split[self.random.below(rank)].push(axis);
            }
        }
        split
    }

    fn pin(&mut self, x: Value) -> Value {
        let rank = self.b.ty(x).rank();
        let split = self.split(rank);
        let row = |d: &Vec<String>| Attr::words(d.clone());
        let mut attrs =
            self.mesh.attrs().with("split", Attr::List(split.iter().map(row).collect()));
        if rank > 0 && self.random.below(3) == 0 {
            attrs.set("open", Attr::ints([self.random.below(rank) as i64]));
        }
        if self.random.below(4) == 0 {
            attrs.set("priority", Attr::Int(self.random.below(3) as i64));
        }
        self.b.value(OpSpec { attrs, ..OpSpec::new(GraphOp::Shard, &[x]) }, Loc::unknown()).unwrap()
    }

    /// Elements from -4 to 4.
    fn small(&mut self, x: Value) -> Value {
        let (ty, at) = (self.b.ty(x).clone(), Loc::unknown());
        let least = self.b.splat(-4.0, &ty, &at).unwrap();
        let most = self.b.splat(4.0, &ty, &at).unwrap();
        let x = self.b.ew(ScalarFn::Maximum, &[x, least], &at).unwrap();
        self.b.ew(ScalarFn::Minimum, &[x, most], &at).unwrap()
    }

    /// Indices into `n` elements, some of them outside, with one more dim of extent 1.
    fn indices(&mut self, count: i64, n: i64) -> Value {
        let at = Loc::unknown();
        let ty = tensor(vec![Dim::Static(count), Dim::Static(1)], NumType::plain(DType::I64));
        let start = self.b.iota(&ty, 0, &at).unwrap();
        let factor = self.b.splat((1 + self.random.below(4)) as f64, &ty, &at).unwrap();
        let scaled = self.b.ew(ScalarFn::Mul, &[start, factor], &at).unwrap();
        let by = self.b.splat((n + 1).max(1) as f64, &ty, &at).unwrap();
        self.b.ew(ScalarFn::Mod, &[scaled, by], &at).unwrap()
    }

    fn step(&mut self) -> Option<Value> {
        let at = Loc::unknown();
        let x = self.any();
        let ty = self.b.ty(x).clone();
        let dims = self.dims(x);
        let rank = dims.len();
        let dim = self.random.below(rank);
        let ints = |v: &[i64]| Attr::ints(v.iter().copied());
        let exprs = |v: Vec<i64>| v.into_iter().map(DimExpr::Const).collect::<Vec<_>>();
        let made = match self.random.below(20) {
            0..=2 => {
                let y = self.like(&ty);
                let f = self.random.pick(&[
                    ScalarFn::Add,
                    ScalarFn::Sub,
                    ScalarFn::Mul,
                    ScalarFn::Maximum,
                ]);
                self.b.ew(f, &[x, y], &at)
            }
            3 => Ok(self.pin(x)),
            4 => {
                let mut perm: Vec<i64> = (0..rank as i64).collect();
                for i in (1..rank).rev() {
                    perm.swap(i, self.random.below(i + 1));
                }
                self.b.transpose(x, &perm, &at)
            }
            5 => {
                // Joins two dims, or cuts one.
                let mut to = dims.clone();
                if rank > 1 && self.random.below(2) == 0 {
                    let i = self.random.below(rank - 1);
                    to[i] *= to.remove(i + 1);
                } else if rank > 0 {
                    let parts: Vec<i64> = (1..=to[dim]).filter(|p| to[dim] % p == 0).collect();
                    let part = self.random.pick(&parts);
                    to[dim] /= part;
                    to.insert(dim, part);
                }
                let to: Vec<Dim> = to.into_iter().map(Dim::Static).collect();
                self.b.reshape(x, &to, &at)
            }
            6 | 7 if rank > 0 => {
                let op = self.random.pick(&[ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min]);
                self.b.reduce(op, x, &[dim as i64], &at)
            }
            8 | 9 if rank > 0 && rank < 4 => {
                let n = self.random.pick(&EXTENTS);
                let weight = tensor(vec![Dim::Static(dims[dim]), Dim::Static(n)], elem(&ty));
                let w = self.like(&weight);
                let w = if self.random.below(2) == 0 { self.pin(w) } else { w };
                let axes = DotAxes {
                    contract_a: vec![dim as i64],
                    contract_b: vec![0],
                    ..DotAxes::default()
                };
                self.b.dot((x, w), &axes, None, &at)
            }
            10 if rank > 1 && rank < 4 => {
                // Paired dims.
                let y = self.like(&ty);
                let other = (dim + 1) % rank;
                let axes = DotAxes {
                    batch_a: vec![other as i64],
                    batch_b: vec![other as i64],
                    contract_a: vec![dim as i64],
                    contract_b: vec![dim as i64],
                };
                self.b.dot((x, y), &axes, None, &at)
            }
            11 if rank < 4 => {
                let place = self.random.below(rank + 1);
                let mut to: Vec<Dim> = dims.iter().map(|&d| Dim::Static(d)).collect();
                to.insert(place, Dim::Static(self.random.pick(&EXTENTS)));
                let kept: Vec<i64> = (0..=rank as i64).filter(|&i| i != place as i64).collect();
                self.b.broadcast(x, &to, &kept, &at)
            }
            12 if rank > 0 => {
                let (mut lo, mut hi) = (vec![0; rank], dims.clone());
                lo[dim] = self.random.below(dims[dim] as usize) as i64;
                hi[dim] = lo[dim] + 1 + self.random.below((dims[dim] - lo[dim]) as usize) as i64;
                self.b.slice(x, &exprs(lo), &exprs(hi), &vec![1; rank], &at)
            }
            13 if rank > 0 => {
                let y = self.like(&ty);
                self.b.concat(&[x, y], dim as i64, &at)
            }
            14 if rank > 0 => {
                let count = self.random.pick(&EXTENTS);
                let ix = self.indices(count, dims[dim]);
                let mut axes = vec![dim as i64];
                let mut ix = ix;
                if rank > 1 && self.random.below(3) == 0 {
                    let other = (dim + 1) % rank;
                    let more = self.indices(count, dims[other]);
                    ix = self.b.concat(&[ix, more], 1, &at).ok()?;
                    axes.push(other as i64);
                }
                let ix = if self.random.below(2) == 0 { self.pin(ix) } else { ix };
                let x = if self.random.below(2) == 0 { self.pin(x) } else { x };
                let spec = OpSpec::new(GraphOp::Gather, &[x, ix])
                    .attr("axes", ints(&axes))
                    .attr("oob", Attr::word(self.random.pick(&["fill", "clamp"])));
                self.b.value(spec, at)
            }
            15 if rank > 0 => {
                let count = self.random.pick(&EXTENTS);
                let ix = self.indices(count, dims[dim]);
                let mut to = vec![count];
                to.extend(dims.iter().enumerate().filter(|(i, _)| *i != dim).map(|(_, d)| *d));
                let to = tensor(to.into_iter().map(Dim::Static).collect(), elem(&ty));
                let updates = self.like(&to);
                let updates = if self.random.below(2) == 0 { self.pin(updates) } else { updates };
                let spec = OpSpec::new(GraphOp::Scatter, &[x, ix, updates])
                    .attr("op", Attr::word("sum"))
                    .attr("axes", ints(&[dim as i64]));
                self.b.value(spec, at)
            }
            16 if rank > 0 => {
                let spec = OpSpec::new(GraphOp::Scan, &[x])
                    .attr("op", Attr::word("sum"))
                    .attr("axis", Attr::Int(dim as i64));
                self.b.value(spec, at)
            }
            17 => {
                let i = self.b.iota(&ty, dim as i64, &at);
                match rank {
                    0 => return None,
                    _ => i.and_then(|i| self.b.ew(ScalarFn::Add, &[x, i], &at)),
                }
            }
            18 => {
                // A loop that carries the value, and stacks it.
                let y = self.like(&ty);
                let attrs = Attrs::new().with("trip", DimExpr::Const(3).into());
                let args = self.b.open(
                    "loop",
                    &[],
                    &[("init", vec![x]), ("xs", vec![])],
                    attrs,
                    at.clone(),
                );
                let args = args.unwrap();
                let sum = self.b.ew(ScalarFn::Sub, &[y, args[1]], &at).unwrap();
                let pinned = if self.random.below(2) == 0 { self.pin(sum) } else { sum };
                let results = self.b.close(&[pinned, sum]).unwrap();
                let stack = self.small(results[1]);
                self.values.push(stack);
                Ok(results[0])
            }
            19 => {
                let y = self.like(&ty);
                let all: Vec<i64> = (0..rank as i64).collect();
                let sum = self.b.reduce(ReduceOp::Max, x, &all, &at).unwrap();
                let zero = self.b.splat(0.0, &tensor(Vec::new(), elem(&ty)), &at).unwrap();
                let test = self.b.ew(ScalarFn::Lt, &[zero, sum], &at).unwrap();
                self.b.open("cond", &[test], &[], Attrs::new(), at.clone()).unwrap();
                let then = self.b.ew(ScalarFn::Add, &[x, y], &at).unwrap();
                let then = self.pin(then);
                self.b.next_region(&[then]).unwrap();
                let otherwise = self.pin(y);
                self.b.close(&[otherwise]).map(|r| r[0])
            }
            _ => return None,
        };
        let made = made.unwrap_or_else(|e| panic!("{e}"));
        let count: i64 = self.dims(made).iter().product();
        (count <= 512).then(|| self.small(made))
    }
}

/// A module with a function of some arrays, and the arrays.
fn program(seed: u64) -> (GraphModule, Vec<HostArray>) {
    let mut random = Random(seed);
    let mesh = mesh(&mut random);
    let dtype = random.pick(&[DType::F32, DType::F32, DType::I32, DType::F64]);
    let mut p = Program { random, b: GraphBuilder::new("f"), mesh, values: Vec::new() };
    let mut args = Vec::new();
    for i in 0..1 + p.random.below(3) {
        let rank = 1 + p.random.below(3);
        let dims: Vec<i64> = (0..rank).map(|_| p.random.pick(&EXTENTS)).collect();
        let ty = tensor(dims.iter().map(|&d| Dim::Static(d)).collect(), NumType::plain(dtype));
        let x = p.b.param(&format!("x{i}"), ty);
        let n: i64 = dims.iter().product();
        let values: Vec<f64> = (0..n).map(|_| p.random.below(7) as f64 - 3.0).collect();
        args.push(HostArray::new(&dims, dtype, &values));
        let x = if i == 0 || p.random.below(3) > 0 { p.pin(x) } else { x };
        p.values.push(x);
    }
    for _ in 0..1 + p.random.below(12) {
        if let Some(made) = p.step() {
            p.values.push(made);
        }
    }
    let first = p.values.len().saturating_sub(3);
    let results = p.values[first..].to_vec();
    let func = p.b.finish(&results, Loc::unknown()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let mut module = GraphModule::new("m");
    module.funcs.push(func);
    (module, args)
}

/// The ops of a part of the function as a composite; the function itself where that part is empty.
fn composed(module: &mut GraphModule, random: &mut Random, name: &str) {
    let func = module.func("f").unwrap().clone();
    let ops = &func.blocks[func.body].ops;
    let ops = &ops[..ops.len() - 1];
    let first = random.below(ops.len());
    let part = &ops[first..(first + 1 + random.below(8)).min(ops.len())];
    let mut inside = Vec::new();
    for &id in part {
        inside.push(id);
        let regions = func.ops[id].regions.iter();
        regions.for_each(|&r| func.walk_block(r, &mut |inner| inside.push(inner)));
    }
    let is_made = |v: Value| match func.values[v].def {
        ValueDef::Result(id, _) => inside.contains(&id),
        ValueDef::Arg(block, _) => inside.iter().any(|&id| func.ops[id].regions.contains(&block)),
    };
    let (mut inputs, mut outputs): (Vec<Value>, Vec<Value>) = Default::default();
    for id in func.walk() {
        for &v in &func.ops[id].operands {
            let list = match (inside.contains(&id), is_made(v)) {
                (true, false) => &mut inputs,
                (false, true) => &mut outputs,
                _ => continue,
            };
            if !list.contains(&v) {
                list.push(v);
            }
        }
    }
    let mut b = GraphBuilder::new(name);
    let mut copier = Copier::new(&func);
    for &v in &inputs {
        copier.set(v, b.param("x", func.ty(v).clone()));
    }
    for &id in part {
        b.copy_op(&mut copier, id);
    }
    let results: Vec<Value> = outputs.iter().map(|&v| copier.get(v).unwrap()).collect();
    let inner = b.finish(&results, Loc::unknown()).unwrap();
    let mut b = GraphBuilder::new("f");
    let mut copier = Copier::new(&func);
    for &v in func.params() {
        copier.set(v, b.param("x", func.ty(v).clone()));
    }
    for &id in ops {
        if id == part[0] {
            // Inputs that later ops of the part need are there before its first op.
            let values: Vec<Value> = inputs.iter().map(|&v| copier.get(v).unwrap()).collect();
            let mut spec = OpSpec::new(GraphOp::Composite, &[])
                .group("values", &values)
                .attr("name", Attr::word("part"))
                .attr("decomposition", Attr::Ref(name.to_string()));
            spec.results = Some(outputs.iter().map(|&v| func.ty(v).clone()).collect());
            let made = b.push(spec, Loc::unknown()).unwrap();
            outputs.iter().zip(made).for_each(|(&old, new)| copier.set(old, new));
        }
        if !part.contains(&id) {
            b.copy_op(&mut copier, id);
        }
    }
    let results = tessera_graph::walk::returned(&func).iter();
    let results: Vec<Value> = results.map(|&v| copier.get(v).unwrap()).collect();
    let outer = b.finish(&results, Loc::unknown()).unwrap();
    module.funcs = module.funcs.drain(..).filter(|f| f.name != "f").collect();
    module.funcs.extend([outer, inner]);
}

/// How many composites run on blocks.
fn check(seed: u64) -> usize {
    let (mut module, args) = program(seed);
    let wanted = run(&module, &args);
    let mut random = Random(seed ^ 0x5eed);
    for name in ["g", "h", "i"] {
        if random.below(2) == 0 {
            composed(&mut module, &mut random, name);
        }
    }
    let mut on_blocks = 0;
    for ordered in [false, true] {
        let made = partition(&module, "f", &types(&module), ordered)
            .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{module}"))
            .unwrap();
        let func = made.module.func("f").unwrap();
        tessera_graph::verify_module(&made.module)
            .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{module}\n{func}"));
        on_blocks += func.walk().iter().filter(|&&id| func.ops[id].attr("whole").is_some()).count();
        let found = run(&made.module, &args);
        for (i, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            let (found, wanted) = (found.values(), wanted.values());
            assert!(
                found == wanted,
                "seed {seed}, result {i}, ordered {ordered}:\n{module}\n{func}\n{found:?}\n{wanted:?}"
            );
        }
    }
    on_blocks
}

#[test]
fn random_programs() {
    let given = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let day = || std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_secs() / 86400);
    let seed = given("TESSERA_FUZZ_SEED").unwrap_or_else(day);
    let seconds = given("TESSERA_FUZZ_SECONDS").unwrap_or(3);
    println!("TESSERA_FUZZ_SEED={seed}");
    let on_blocks: usize = (0..200).map(check).sum();
    assert!(on_blocks > 20, "{on_blocks} composites run on blocks");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    let first = seed << 20;
    let more = (first..).take_while(|_| std::time::Instant::now() < until);
    let found: Vec<usize> = more.map(check).collect();
    println!("{} programs, {} composites on blocks", found.len(), found.iter().sum::<usize>());
}
