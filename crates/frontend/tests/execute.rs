//! Kernels from Python source to the arrays they leave behind: elaborated, lowered, interpreted.

mod common;
use common::*;
use std::collections::BTreeMap;
use tessera_diag::Diagnostics;
use tessera_frontend::{Capture, Config, Kernel, ParamKind};
use tessera_interp::HostArray;
use tessera_ir::{Attr, PassContext, PassOptions};
use tessera_numerics::Scalar;
use tessera_target::{ArgValue, LaunchArgs};
use tessera_tile::KernelKind;

/// One argument: an array's shape and elements, or a number.
enum Arg {
    Array(Vec<i64>, Vec<f64>),
    Number(f64),
}

fn array(dims: &[i64], values: &[f64]) -> Arg {
    Arg::Array(dims.to_vec(), values.to_vec())
}

fn zeros(dims: &[i64]) -> Arg {
    Arg::Array(dims.to_vec(), Vec::new())
}

/// Runs a kernel of one configuration; gives every array as text.
fn run_config(k: &Kernel, config: &Config, args: Vec<Arg>) -> Result<Vec<String>, Diagnostics> {
    let elaborated = k.elaborate(config)?;
    let mut func = elaborated.func;
    let pipeline =
        tessera_lower::tile_pipeline(PassOptions { verify_each: true, ..PassOptions::default() });
    pipeline.run(&mut func, &mut PassContext::default())?;
    let specs: Vec<_> = elaborated.params.iter().map(|&p| &k.decl().params[p]).collect();
    let mut dims: BTreeMap<String, i64> = config.dims.clone();
    let mut arrays: Vec<Option<HostArray>> = Vec::new();
    let mut params = Vec::new();
    for (spec, arg) in specs.iter().zip(&args) {
        match (&spec.kind, arg) {
            (ParamKind::Tensor { dims: names, elem, .. }, Arg::Array(shape, values)) => {
                for (name, &d) in names.as_ref().unwrap().iter().zip(shape) {
                    dims.insert(name.clone(), d);
                }
                arrays.push(Some(HostArray::new(shape, elem.unwrap().storage, values)));
            }
            (_, Arg::Number(_)) => arrays.push(None),
            _ => panic!("an array for `{}`", spec.name),
        }
    }
    for (a, arg) in arrays.iter_mut().zip(&args) {
        params.push(match (a, arg) {
            (Some(a), _) => a.as_arg(),
            (None, Arg::Number(v)) => ArgValue::Scalar(Scalar::F64(*v)),
            (None, Arg::Array(..)) => unreachable!("made above"),
        });
    }
    let extent = |e: &tessera_ir::DimExpr| e.eval(&|s| dims.get(s).copied()).unwrap();
    let lanes = func.attrs.get("lanes").and_then(Attr::as_int).unwrap_or(4);
    let (mut grid, mut domain) = ([1; 3], 0);
    if k.kind() == KernelKind::Lane {
        domain = func.attrs.get("domain").and_then(Attr::as_expr).map(|e| extent(&e)).unwrap();
        grid[0] = (domain + lanes - 1) / lanes;
    } else {
        let said = func.attrs.get("grid").and_then(Attr::as_exprs).unwrap_or_default();
        said.iter().zip(&mut grid).for_each(|(e, g)| *g = extent(e));
    }
    tessera_interp::run(&func, &LaunchArgs { params, dims, grid, domain, lanes })?;
    Ok(arrays.into_iter().flatten().map(|a| a.text()).collect())
}

/// Runs `def k(…)` with this body over these parameters.
#[track_caller]
fn run(body: &str, spec: &str, args: Vec<Arg>) -> Vec<String> {
    try_run(body, spec, args).unwrap_or_else(|d| panic!("{}", d.render()))
}

fn try_run(body: &str, spec: &str, args: Vec<Arg>) -> Result<Vec<String>, Diagnostics> {
    let names: Vec<_> = params(spec).iter().map(|p| p.name.clone()).collect();
    let lines: String = body.lines().map(|l| format!("    {l}\n")).collect();
    let text = format!("def k({}):\n{lines}", names.join(", "));
    let k = kernel(&text, spec, &[("T", 4)])?;
    let shapes: BTreeMap<String, i64> = k
        .decl()
        .params
        .iter()
        .zip(&args)
        .filter_map(|(p, a)| match (&p.kind, a) {
            (ParamKind::Tensor { dims: Some(names), .. }, Arg::Array(shape, _)) => {
                Some(names.iter().cloned().zip(shape.iter().copied()))
            }
            _ => None,
        })
        .flatten()
        .collect();
    let known: Vec<(&str, i64)> = k.static_dims().iter().map(|d| (d.as_str(), shapes[d])).collect();
    let config = config(&k, &known, &[]);
    run_config(&k, &config, args)
}

#[test]
fn scans_keep_every_step() {
    let out = run(
        "t = x[:, :]\ny[:, :] = ts.tile.cumsum(t, axis=1)\nz[:, :] = ts.tile.scan(t, \"max\", axis=0)",
        "x: M,N f32; y: M,N f32; z: M,N f32",
        vec![array(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 1.0, 6.0]), zeros(&[2, 3]), zeros(&[2, 3])],
    );
    assert_eq!(out[1], "[1.0, 3.0, 6.0, 4.0, 5.0, 11.0]");
    assert_eq!(out[2], "[1.0, 2.0, 3.0, 4.0, 2.0, 6.0]");
    let out = run(
        "y[:] = ts.tile.cumprod(x[:], exclusive=True)",
        "x: n i8; y: n i32",
        vec![array(&[4], &[2.0, 3.0, 4.0, 5.0]), zeros(&[4])],
    );
    assert_eq!(out[1], "[1, 2, 6, 24]");
}

#[test]
fn argmax_without_an_axis_counts_row_major() {
    let out = run(
        "t = x[:, :]\ny[0] = ts.tile.argmax(t)\ny[1] = ts.tile.argmin(t)\nz[:] = ts.tile.argmax(t, axis=-1)",
        "x: M,N f32; y: k i64; z: M i32",
        vec![array(&[2, 3], &[1.0, 2.0, 3.0, 9.0, -1.0, 9.0]), zeros(&[2]), zeros(&[2])],
    );
    assert_eq!(out[1..], ["[3, 4]", "[2, 0]"]);
}
