//! Runs functions of a module, and compares derivatives with finite differences.

use crate::kernels::Interpreted;
use tessera_autodiff::{KernelSet, Vjp, is_float, jvp_with, vjp_with};
use tessera_diag::Loc;
use tessera_graph::walk::returned;
use tessera_graph::{Graph, GraphBuilder, GraphModule};
use tessera_interp::{HostArray, run_graph};
use tessera_ir::{Dim, Type, parse_module};

pub fn module(text: &str) -> GraphModule {
    let text = format!("module @m : graph {{version = 1}}\n\n{text}");
    parse_module::<Graph>(&text, "test").unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// One function `@f` of a body that ends in its return.
pub fn func(params: &str, body: &str) -> String {
    format!("func @f({params}) {{\n{body}\n}}\n")
}

pub fn run(module: &GraphModule, name: &str, args: &[HostArray]) -> Vec<HostArray> {
    run_in(module, &KernelSet::default(), name, args)
}

pub fn run_in(
    module: &GraphModule,
    kernels: &KernelSet,
    name: &str,
    args: &[HostArray],
) -> Vec<HostArray> {
    run_graph(module, name, args, &mut Interpreted(kernels))
        .unwrap_or_else(|e| panic!("{e}\n{}", module.func(name).unwrap()))
}

/// Numbers that look random and are the same in every run.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn array(&mut self, ty: &Type, (lo, hi): (f64, f64)) -> HostArray {
        // Every symbol stands for 3.
        let extent = |d: &Dim| match d {
            Dim::Static(n) => *n,
            Dim::Expr(e) => e.eval(&|_| Some(3)).unwrap(),
            Dim::Any => 3,
        };
        let dims: Vec<i64> = ty.shape().iter().map(extent).collect();
        let n = dims.iter().product::<i64>();
        let float = ty.dtype().is_float();
        let values: Vec<f64> = (0..n)
            .map(|_| {
                let x = lo + (hi - lo) * self.next();
                if float { x } else { x.floor() }
            })
            .collect();
        HostArray::new(&dims, ty.dtype(), &values)
    }
}

pub fn arguments(module: &GraphModule, name: &str, range: (f64, f64), seed: u64) -> Vec<HostArray> {
    let func = module.func(name).unwrap();
    let mut numbers = Numbers(seed);
    func.params().iter().map(|&p| numbers.array(func.ty(p), range)).collect()
}

fn floats(module: &GraphModule, name: &str) -> Vec<usize> {
    let func = module.func(name).unwrap();
    (0..func.params().len()).filter(|&i| is_float(func.ty(func.params()[i]))).collect()
}

fn like(x: &HostArray, numbers: &mut Numbers) -> HostArray {
    let n = x.dims.iter().product::<i64>();
    let values: Vec<f64> = (0..n).map(|_| 2.0 * numbers.next() - 1.0).collect();
    HostArray::new(&x.dims, x.dtype, &values)
}

fn inner(a: &[HostArray], b: &[HostArray]) -> f64 {
    let one = |(x, y): (&HostArray, &HostArray)| -> f64 {
        x.values().iter().zip(y.values()).map(|(x, y)| x * y).sum()
    };
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(one).sum()
}

fn moved(x: &HostArray, by: &HostArray, step: f64) -> HostArray {
    let values: Vec<f64> = x.values().iter().zip(by.values()).map(|(x, d)| x + step * d).collect();
    HostArray::new(&x.dims, x.dtype, &values)
}

pub fn close(a: f64, b: f64, bound: f64, what: &str) {
    let scale = 1.0f64.max(a.abs()).max(b.abs());
    assert!((a - b).abs() <= bound * scale, "{what}: {a} and {b}");
}

/// Forward mode against differences, and reverse mode against forward mode, by every float
/// argument. Gives the reverse functions.
pub fn first_order(module: &mut GraphModule, name: &str, args: &[HostArray]) -> Vjp {
    first_order_in(module, &mut KernelSet::default(), name, args)
}

pub fn first_order_in(
    module: &mut GraphModule,
    kernels: &mut KernelSet,
    name: &str,
    args: &[HostArray],
) -> Vjp {
    let wrt = floats(module, name);
    let source = module.func(name).unwrap().clone();
    let made = jvp_with(module, kernels, name, &wrt).unwrap_or_else(|e| panic!("{e}\n{source}"));
    let mut numbers = Numbers(17);
    let tangents: Vec<_> = wrt.iter().map(|&i| like(&args[i], &mut numbers)).collect();
    let results = run_in(module, kernels, name, args);
    let out = run_in(module, kernels, &made.func, &[args, &tangents].concat());
    assert_eq!(&out[..results.len()], &results[..], "the results stay what they are\n{source}");
    let moves = &out[results.len()..];
    let float_results: Vec<_> =
        results.iter().zip(&made.tangents).filter(|(_, f)| **f).map(|(r, _)| r.clone()).collect();
    assert_eq!(moves.len(), float_results.len());
    let step = 1e-5;
    let at = |sign: f64| -> Vec<HostArray> {
        let mut args = args.to_vec();
        for (&i, t) in wrt.iter().zip(&tangents) {
            args[i] = moved(&args[i], t, sign * step);
        }
        run_in(module, kernels, name, &args)
    };
    let (up, down) = (at(1.0), at(-1.0));
    let ups = up.iter().zip(&down).zip(&made.tangents).filter(|(_, f)| **f);
    for (((up, down), _), t) in ups.zip(moves) {
        assert_eq!(up.dims, t.dims);
        for ((u, d), t) in up.values().iter().zip(down.values()).zip(t.values()) {
            close(
                (u - d) / (2.0 * step),
                t,
                2e-6,
                &format!("difference and tangent\n{source}\n{}", module.func(&made.func).unwrap()),
            );
        }
    }
    let back = vjp_with(module, kernels, name, &wrt).unwrap_or_else(|e| panic!("{e}\n{source}"));
    let cotangents: Vec<_> = float_results.iter().map(|r| like(r, &mut numbers)).collect();
    let kept = run_in(module, kernels, &back.forward, args);
    assert_eq!(&kept[..results.len()], &results[..], "the results stay what they are\n{source}");
    assert_eq!(kept.len(), results.len() + back.residuals);
    let inner_args = [&kept[results.len()..], &cotangents].concat();
    let grads = run_in(module, kernels, &back.pullback, &inner_args);
    for (grad, &i) in grads.iter().zip(&wrt) {
        assert_eq!((&grad.dims, grad.dtype), (&args[i].dims, args[i].dtype));
    }
    let show =
        || format!("<Jv, w> and <v, JTw>\n{source}\n{}", module.func(&back.pullback).unwrap());
    close(inner(moves, &cotangents), inner(&tangents, &grads), 1e-10, &show());
    back
}

/// One function of a forward and a pullback: arguments and cotangents in, cotangents out.
pub fn both(module: &mut GraphModule, name: &str, back: &Vjp) -> String {
    let (forward, pullback) =
        (module.func(&back.forward).unwrap(), module.func(&back.pullback).unwrap());
    let mut b = GraphBuilder::new(&format!("{name}.both"));
    let mut types: Vec<Type> = forward.params().iter().map(|&p| forward.ty(p).clone()).collect();
    let n = types.len();
    types.extend(pullback.params()[back.residuals..].iter().map(|&p| pullback.ty(p).clone()));
    let params: Vec<_> =
        types.iter().enumerate().map(|(i, ty)| b.param(&format!("p{i}"), ty.clone())).collect();
    let out = b.inline(forward, &params[..n], &Loc::unknown()).unwrap();
    let kept = &out[out.len() - back.residuals..];
    let inner = [kept, &params[n..]].concat();
    let grads = b.inline(pullback, &inner, &Loc::unknown()).unwrap();
    let made = b.finish(&grads, Loc::unknown()).unwrap();
    let name = made.name.clone();
    module.funcs.push(made);
    name
}

/// First order, then the same of the reverse pass: forward over reverse and reverse over reverse.
pub fn check(text: &str, range: (f64, f64)) {
    let mut m = module(text);
    let args = arguments(&m, "f", range, 1);
    check_with(&mut m, &args);
    batches(&mut m, "f", range);
    batches(&mut m, "f.both", range);
}

/// Batching against running the examples one by one: all arguments batched, and each alone.
pub fn batches(m: &mut GraphModule, name: &str, range: (f64, f64)) {
    let n = m.func(name).unwrap().params().len();
    let mut masks = vec![vec![true; n]];
    if n > 1 {
        masks.extend((0..n).map(|i| (0..n).map(|j| i == j).collect()));
    }
    for mask in masks {
        batch(m, name, range, &mask, 3);
    }
}

fn stack(rows: &[HostArray], axis: usize) -> HostArray {
    let dims = &rows[0].dims;
    let inner: usize = dims[axis..].iter().product::<i64>() as usize;
    let outer: usize = dims[..axis].iter().product::<i64>() as usize;
    let width = inner * rows[0].dtype.bytes();
    let mut bytes = Vec::new();
    for o in 0..outer {
        for row in rows {
            bytes.extend_from_slice(&row.bytes[o * width..(o + 1) * width]);
        }
    }
    let mut all = dims.clone();
    all.insert(axis, rows.len() as i64);
    HostArray { dims: all, dtype: rows[0].dtype, bytes }
}

pub fn batch(m: &mut GraphModule, name: &str, range: (f64, f64), mask: &[bool], size: usize) {
    let source = m.func(name).unwrap().clone();
    let ranks: Vec<usize> = source.params().iter().map(|&p| source.ty(p).rank()).collect();
    // In front in one argument, at the end in the next.
    let axes: Vec<Option<usize>> = mask
        .iter()
        .enumerate()
        .map(|(i, &on)| on.then(|| if i % 2 == 0 { 0 } else { ranks[i] }))
        .collect();
    let out_axes: Vec<Option<usize>> = returned(&source)
        .iter()
        .enumerate()
        .map(|(i, &v)| Some(if i % 2 == 0 { source.ty(v).rank() } else { 0 }))
        .collect();
    let made = tessera_autodiff::vmap(m, name, &axes, &out_axes, &Dim::Static(size as i64))
        .unwrap_or_else(|e| panic!("{e}\n{source}"));
    let examples: Vec<Vec<HostArray>> =
        (0..size).map(|i| arguments(m, name, range, 100 + i as u64)).collect();
    let args: Vec<HostArray> = (0..mask.len())
        .map(|i| match axes[i] {
            Some(axis) => {
                let rows: Vec<_> = examples.iter().map(|e| e[i].clone()).collect();
                stack(&rows, axis)
            }
            None => examples[0][i].clone(),
        })
        .collect();
    let out = run(m, &made.func, &args);
    let each: Vec<Vec<HostArray>> = examples
        .iter()
        .map(|e| {
            let own: Vec<_> = (0..mask.len())
                .map(|i| if mask[i] { e[i].clone() } else { examples[0][i].clone() })
                .collect();
            run(m, name, &own)
        })
        .collect();
    for (place, (got, axis)) in out.iter().zip(&out_axes).enumerate() {
        let rows: Vec<_> = each.iter().map(|e| e[place].clone()).collect();
        let wanted = stack(&rows, axis.unwrap());
        assert_eq!((&got.dims, got.dtype), (&wanted.dims, wanted.dtype), "\n{source}");
        for (a, b) in got.values().iter().zip(wanted.values()) {
            let text = || format!("batch {mask:?}\n{source}\n{}", m.func(&made.func).unwrap());
            if a.is_finite() || b.is_finite() {
                close(*a, b, 1e-11, &text());
            } else {
                assert!(*a == b || (a.is_nan() && b.is_nan()), "{}", text());
            }
        }
    }
}

pub fn check_with(m: &mut GraphModule, args: &[HostArray]) {
    check_in(m, &mut KernelSet::default(), args);
}

pub fn check_in(m: &mut GraphModule, kernels: &mut KernelSet, args: &[HostArray]) {
    let back = first_order_in(m, kernels, "f", args);
    let second = both(m, "f", &back);
    let results: Vec<HostArray> = run_in(m, kernels, "f", args);
    let mut numbers = Numbers(5);
    let mut all = args.to_vec();
    for (r, _) in results.iter().zip(&back.cotangents).filter(|(_, c)| **c) {
        all.push(like(r, &mut numbers));
    }
    first_order_in(m, kernels, &second, &all);
}

pub fn returned_count(m: &GraphModule, name: &str) -> usize {
    returned(m.func(name).unwrap()).len()
}
