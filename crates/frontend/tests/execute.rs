//! Kernels from Python source to the arrays they leave behind: elaborated, lowered, interpreted.

use crate::common::*;
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
    let mut by = tessera_tile::lane_extents(&func);
    by.resize(by.len().max(1), 4);
    let lanes = by.iter().product();
    let (mut grid, mut domain) = ([1; 3], [0; 3]);
    if k.kind() == KernelKind::Lane {
        let said: Vec<i64> = tessera_tile::domain_of(&func).unwrap().iter().map(extent).collect();
        (grid, domain) = tessera_tile::lane_grid(&by, &said);
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

#[test]
fn atomics_give_the_old_value_and_every_contribution_counts() {
    let out = run(
        "p = ts.tile.program_id(0)\no[p] = ts.tile.atomic_add(c[0], 2, order=\"acq_rel\", scope=\"group\" if False else \"device\")",
        "c: m i32; o: n i32",
        vec![array(&[1], &[5.0]), zeros(&[3])],
    );
    assert_eq!(out, ["[11]", "[5, 7, 9]"]);
    let out = run(
        "idx = x[:]\nh[idx] += 1.0\no[:] = ts.tile.atomic_max(h[idx], 3.0)",
        "x: n i32; h: m f32; o: n f32",
        vec![array(&[4], &[1.0, 0.0, 1.0, 7.0]), zeros(&[2]), zeros(&[4])],
    );
    assert_eq!(out[1..], ["[3.0, 3.0]", "[2.0, 1.0, 3.0, 0.0]"]);
    // A reduction parameter takes them from any number of groups.
    let out = run(
        "p = ts.tile.grid(ts.cdiv(n, T))\nidx = ts.tile.bounds_mask(x[p * T : p * T + T], cols=n - p * T, value=-1)\nh[idx] += 1"
            .replace("T", "4")
            .as_str(),
        "x: n i32; h: m i32 reduce_sum",
        vec![array(&[8], &[0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 9.0, 9.0]), zeros(&[2])],
    );
    assert_eq!(out[1], "[2, 4]");
    let out = run(
        "i = ts.tile.linear_id()\nif i < n:\n    o[i] = ts.tile.atomic_cas(c[0], i, i + 1)",
        "c: m i64; o: n i64",
        vec![zeros(&[1]), zeros(&[3])],
    );
    assert_eq!(out, ["[3]", "[0, 1, 2]"]);
}

#[test]
fn dropout_depends_on_the_place_in_the_tensor_alone() {
    let ones = vec![1.0; 32];
    let spec = "x: M,N f32; y: M,N f32";
    let whole = run(
        "y[:, :] = ts.tile.dropout(x[:, :], 0.5, 7)",
        spec,
        vec![array(&[4, 8], &ones), zeros(&[4, 8])],
    );
    let tiled = run(
        "pm, pn = ts.tile.grid(2, 2)\nm0 = pm * 2\nn0 = pn * 4\n\
         y[m0:m0+2, n0:n0+4] = ts.tile.dropout(x[m0:m0+2, n0:n0+4], 0.5, 7, at=(m0, n0), shape=(M, N))",
        spec,
        vec![array(&[4, 8], &ones), zeros(&[4, 8])],
    );
    assert_eq!(whole, tiled);
    assert!(whole[1].contains("2.0") && whole[1].contains("0.0"), "{}", whole[1]);
    let rule = tessera_numerics::Dropout::new(0.5).unwrap();
    let kept: Vec<String> = (0..32)
        .map(|i| {
            let keeps = u64::from(tessera_numerics::philox(7, i)) >= rule.threshold;
            (if keeps { "2.0" } else { "0.0" }).to_string()
        })
        .collect();
    assert_eq!(whole[1], format!("[{}]", kept.join(", ")));
    let run_time = run(
        "y[:, :] = ts.tile.dropout(x[:, :], p, 7)",
        "x: M,N f32; y: M,N f32; p: f32",
        vec![array(&[4, 8], &ones), zeros(&[4, 8]), Arg::Number(0.5)],
    );
    assert_eq!(whole[1], run_time[1]);
    let words = run(
        "a, b, c, d = ts.tile.philox4(0, 0)\no[0] = a\no[1] = b\no[2] = c\no[3] = d",
        "o: n u32",
        vec![zeros(&[4])],
    );
    assert_eq!(words[0], "[1713891541, 3781805453, 3159862348, 2600524760]");
}

#[test]
fn assertions_stop_at_their_line() {
    let spec = "x: n f32; y: n f32";
    let body =
        "p = ts.tile.program_id(0)\nv = x[p]\nassert v > 0.0, \"x must be positive\"\ny[p] = v";
    let out = run(body, spec, vec![array(&[2], &[1.0, 2.0]), zeros(&[2])]);
    assert_eq!(out[1], "[1.0, 2.0]");
    let failed = try_run(body, spec, vec![array(&[2], &[1.0, -2.0]), zeros(&[2])]).unwrap_err();
    assert_eq!(codes(&failed), ["E_ASSERT 4:5"]);
    assert!(failed.render().contains("x must be positive"), "{}", failed.render());
    assert!(failed.render().contains("in k[1]"), "{}", failed.render());
    let known =
        try_run("assert T == 5, \"five\"\ny[0] = 1.0", spec, vec![zeros(&[2]), zeros(&[2])]);
    assert!(known.is_err());
}

#[test]
fn lanes_of_a_group_work_together() {
    let out = run(
        "g = ts.tile.group\ni = ts.tile.linear_id()\nv = x[i]\ns[i] = g.reduce(v, \"sum\")\n\
         c[i] = g.scan(v, \"sum\", exclusive=True) + 0.0\nb[i] = ts.tile.group.broadcast(v, g.size - 3)\n\
         w[i] = g.shuffle(v, g.rank + 1)\ng.sync()",
        "x: n f32; s: n f32; c: n f32; b: n f32; w: n f32",
        vec![
            array(&[6], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            zeros(&[6]),
            zeros(&[6]),
            zeros(&[6]),
            zeros(&[6]),
        ],
    );
    assert_eq!(out[1], "[10.0, 10.0, 10.0, 10.0, 11.0, 11.0]");
    assert_eq!(out[2], "[0.0, 1.0, 3.0, 6.0, 0.0, 5.0]");
    assert_eq!(out[3], "[2.0, 2.0, 2.0, 2.0, 6.0, 6.0]");
    assert_eq!(out[4], "[2.0, 3.0, 4.0, 0.0, 6.0, 0.0]");
}

#[test]
fn explicit_copy_groups_are_waited_for() {
    let body = |wait: &str| {
        format!(
            "a = ts.tile.alloc_shared((4,), ts.f32)\nts.tile.cp_async(a, x[0:4])\nts.tile.cp_commit_group()\n{wait}\ny[0:4] = a * 2.0"
        )
    };
    let args = || vec![array(&[4], &[1.0, 2.0, 3.0, 4.0]), zeros(&[4])];
    let out = run(&body("ts.tile.cp_wait_group(0)"), "x: n f32; y: n f32", args());
    assert_eq!(out[1], "[2.0, 4.0, 6.0, 8.0]");
    let early = try_run(&body("ts.tile.barrier()"), "x: n f32; y: n f32", args()).unwrap_err();
    assert_eq!(codes(&early), ["E_UNWAITED 6:14"]);
    assert!(early.render().contains("ts.tile.cp_wait_group(0)"), "{}", early.render());
}

#[test]
fn function_parameters_are_inlined_and_have_a_default() {
    let text = "def k(x, y, epilogue):\n    y[0:4] = epilogue(x[0:4])\n";
    let mut d = decl(text, "x: n f32; y: n f32; epilogue: fn", &[]);
    let args = || vec![array(&[4], &[1.0, 2.0, 3.0, 4.0]), zeros(&[4])];
    let missing = Kernel::new(d.clone()).unwrap_or_else(|e| panic!("{e}"));
    let errors = run_config(&missing, &config(&missing, &[], &[]), args()).unwrap_err();
    assert_eq!(codes(&errors), ["E_SPECIALIZE 1:13"]);
    d.params[2].default = Some(Capture::Builtin("identity".into()));
    let k = Kernel::new(d).unwrap_or_else(|e| panic!("{e}"));
    let given = |c: Capture| run_config(&k, &config(&k, &[], &[("epilogue", c)]), args());
    let same = given(Capture::Builtin("identity".into())).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(same[1], "[1.0, 2.0, 3.0, 4.0]");
    let twice = source("def twice(v):\n    return v * 2.0\n", &[]);
    let twice = given(Capture::Func(twice)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(twice[1], "[2.0, 4.0, 6.0, 8.0]");
    let builtin = given(Capture::Builtin("tile.exp".into())).unwrap_or_else(|e| panic!("{e}"));
    assert!(builtin[1].starts_with("[2.718"), "{}", builtin[1]);
    assert_eq!(codes(&given(Capture::Int(3)).unwrap_err()), ["E_TYPE 1:13"]);
}

#[test]
fn functions_that_must_be_pure_are_held_to_it_at_their_own_lines() {
    let text = "def k(x, y, f):\n    t = x[0:4]\n    y[0:4] = ts.tile.pure(f, t, like=t)\n";
    let mut d = decl(text, "x: n f32; y: n f32; f: fn", &[]);
    d.params[2].default = Some(Capture::Builtin("identity".into()));
    let args = || vec![array(&[4], &[1.0, -2.0, 3.0, 4.0]), zeros(&[4])];
    let k = Kernel::new(d).unwrap_or_else(|e| panic!("{e}"));
    let given = |c: Capture| run_config(&k, &config(&k, &[], &[("f", c)]), args());
    let function = |text: &str| given(Capture::Func(source(text, &[])));
    let same = given(Capture::Builtin("identity".into())).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(same[1], "[1.0, -2.0, 3.0, 4.0]");
    let builtin = given(Capture::Builtin("tile.abs".into())).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(builtin[1], "[1.0, 2.0, 3.0, 4.0]");
    let twice = function("def twice(v):\n    return v * 2.0\n").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(twice[1], "[2.0, -4.0, 6.0, 8.0]");
    for (text, code) in [
        ("def f(v):\n    return ts.tile.sum(v)\n", "E_SHAPE_MISMATCH 2:12"),
        ("def f(v):\n    return ts.tile.cast(v, ts.f64)\n", "E_TYPE 2:12"),
        ("def f(v):\n    t = v\n", "E_TYPE 1:5"),
        ("def f(v, w):\n    return v\n", "E_ARGUMENT 1:5"),
        ("def f(v):\n    ts.tile.barrier()\n    return v\n", "E_PRIVILEGE 2:5"),
    ] {
        assert_eq!(codes(&function(text).unwrap_err()), [code], "{text}");
    }
    assert_eq!(
        codes(&given(Capture::Builtin("tile.sum".into())).unwrap_err()),
        ["E_SHAPE_MISMATCH 3:14"]
    );
}

#[test]
fn while_loops_run_in_both_kinds() {
    let out = run(
        "i = 0\ns = 0.0\nwhile x[i] > 0.0:\n    s += x[i]\n    i += 1\ny[0] = s\ny[1] = i",
        "x: n f32; y: m f32",
        vec![array(&[4], &[1.0, 2.0, 3.0, 0.0]), zeros(&[2])],
    );
    assert_eq!(out[1], "[6.0, 3.0]");
    // Each lane halves its own number as often as it can.
    let out = run(
        "i = ts.tile.linear_id()\nv = x[i]\nc = 0\nwhile v % 2 == 0:\n    v = v // 2\n    c += 1\ny[i] = c",
        "x: n i32; y: n i32",
        vec![array(&[5], &[1.0, 2.0, 8.0, 12.0, 7.0]), zeros(&[5])],
    );
    assert_eq!(out[1], "[0, 1, 3, 2, 0]");
}

#[test]
fn slices_may_have_a_step() {
    let x: Vec<f64> = (0..8).map(f64::from).collect();
    let out = run(
        "y[0:4] = x[1:8:2]\nz[::3] = x[0:3]\nz[1:8:3] += x[0:3]",
        "x: n f32; y: m f32; z: n f32",
        vec![array(&[8], &x), zeros(&[4]), zeros(&[8])],
    );
    assert_eq!(out[1], "[1.0, 3.0, 5.0, 7.0]");
    assert_eq!(out[2], "[0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 2.0, 2.0]");
    // The grid is that of the whole slice, and a copy with gaps is read and put there.
    let out = run(
        "p = ts.tile.program_id(0)\nb = ts.tile.alloc_shared((2,), ts.f32)\nts.tile.cp_async(b, x[p*4:p*4+4:2])\n\
         y[p*4:p*4+4:2] = b * 10.0",
        "x: n f32; y: n f32",
        vec![array(&[8], &x), zeros(&[8])],
    );
    assert_eq!(out[1], "[0.0, 0.0, 20.0, 0.0, 40.0, 0.0, 60.0, 0.0]");
}

#[test]
fn parameters_are_accessed_transposed() {
    let x: Vec<f64> = (0..6).map(f64::from).collect();
    let out = run(
        "y[:, :] = A.T[:, :]\nz[0:2] = A.T[1, 0:2]\nB.T[0:3, 0:2] = A.T[0:3, 0:2]\nB.T[2, 1] += 100.0\n\
         B.T[:, :] += ts.tile.ones((3, 2), ts.f32)\nw[0] = ts.tile.load(A.T, (2, 1))\nw[1] = A.T.shape[0]",
        "A: M,N f32; y: N,M f32; z: M f32; B: M,N f32; w: k f32",
        vec![array(&[2, 3], &x), zeros(&[3, 2]), zeros(&[2]), zeros(&[2, 3]), zeros(&[2])],
    );
    assert_eq!(out[1], "[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]");
    assert_eq!(out[2], "[1.0, 4.0]");
    assert_eq!(out[3], "[1.0, 2.0, 3.0, 4.0, 5.0, 106.0]");
    assert_eq!(out[4], "[5.0, 3.0]");
}

#[test]
fn subscripts_count_from_the_end_and_leave_out_axes() {
    let x: Vec<f64> = (0..6).map(f64::from).collect();
    let out = run(
        "y[0] = A[-1, -2]\nz[...] = A[..., -1]\nt = A[:, :]\nv = t[..., None]\nu = t[None, ...]\n\
         B[:, :] = ts.tile.reshape(v + ts.tile.reshape(u, (2, 3, 1)), (2, 3))\ny[1] = ts.tile.sum(A[-1, -2:])",
        "A: M,N f32; y: k f32; z: M f32; B: M,N f32",
        vec![array(&[2, 3], &x), zeros(&[2]), zeros(&[2]), zeros(&[2, 3])],
    );
    assert_eq!(out[1..], ["[4.0, 9.0]", "[2.0, 5.0]", "[0.0, 2.0, 4.0, 6.0, 8.0, 10.0]"]);
}

#[test]
fn hints_change_nothing() {
    let out = run(
        "i = ts.tile.load(x, (ts.tile.arange(4),), inbounds=True)\nts.tile.store(y, (i,), i * 2, unique=True)",
        "x: n i32; y: n i32",
        vec![array(&[4], &[3.0, 2.0, 1.0, 0.0]), zeros(&[4])],
    );
    assert_eq!(out[1], "[0, 2, 4, 6]");
}

#[test]
fn reductions_into_parameters_fold_with_their_operator() {
    let out = run(
        "p = ts.tile.grid(n)\ns[0] += x[p]\nts.tile.accumulate(hi[0], x[p])\nts.tile.accumulate(lo[0], x[p])\n\
         ts.tile.accumulate(pr[0], x[p])",
        "x: n f32; s: k f32 reduce_sum; hi: k f32 reduce_max; lo: k f32 reduce_min; pr: k f32 reduce_prod",
        vec![
            array(&[3], &[2.0, -3.0, 4.0]),
            array(&[1], &[1.0]),
            array(&[1], &[1.0]),
            array(&[1], &[1.0]),
            array(&[1], &[1.0]),
        ],
    );
    assert_eq!(out[1..], ["[4.0]", "[4.0]", "[-3.0]", "[-24.0]"]);
}
