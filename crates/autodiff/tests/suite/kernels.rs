//! Derivatives of kernels: against finite differences by the interpreter, to second order, as text,
//! and what is refused.

use crate::common::{arguments, check_in, module, run_in};
use crate::kernel_cases::CASES;
use std::fmt::Write;
use std::path::Path;
use tessera_autodiff::{KernelDef, KernelSet, jvp_with, vjp_with};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_graph::GraphModule;
use tessera_interp::{HostArray, KernelCall, Kernels, run};
use tessera_ir::{Attr, Privilege, Type};
use tessera_target::{ArgValue, LaunchArgs};
use tessera_tile::{TileFunc, parse};

/// Runs the kernels of a set by the interpreter of Tile IR.
pub struct Interpreted<'a>(pub &'a KernelSet);

impl Kernels for Interpreted<'_> {
    fn call(&mut self, call: &KernelCall<'_>, args: &mut [HostArray]) -> Result<(), Diagnostics> {
        let Some(def) = self.0.get(call.kernel) else {
            let why = format!("no kernel @{}", call.kernel);
            return Err(Diagnostic::new(Code::E_NAME, why).into());
        };
        launch(&def.func, &def.args, args)
    }
}

fn launch(func: &TileFunc, places: &[usize], args: &mut [HostArray]) -> Result<(), Diagnostics> {
    tessera_ir::verify(func).unwrap_or_else(|e| panic!("{e}\n{func}"));
    let params = func
        .params()
        .iter()
        .zip(places)
        .map(|(&p, &i)| match func.ty(p) {
            Type::View { .. } => args[i].as_arg(),
            _ => ArgValue::Scalar(args[i].scalars()[0]),
        })
        .collect();
    let number = |e: &tessera_ir::DimExpr| e.eval(&|_| None).unwrap();
    let grid = func.attrs.get("grid").and_then(Attr::as_exprs).unwrap_or_default();
    let domain = func.attrs.get("domain").and_then(Attr::as_expr).map_or(0, |e| number(&e));
    let mut extents = [1i64; 3];
    for (to, e) in extents.iter_mut().zip(&grid) {
        *to = number(e);
    }
    if domain > 0 {
        extents[0] = (domain + 3) / 4;
    }
    run(
        func,
        &LaunchArgs {
            params,
            dims: Default::default(),
            grid: extents,
            domain: [domain, 1, 1],
            lanes: 4,
        },
    )
}

/// A function `@f` that calls the kernel: what is only written is zero before.
pub fn calling(text: &str) -> (GraphModule, KernelSet) {
    let func = parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    tessera_ir::verify(&func).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let (mut params, mut body, mut args, mut words, mut outs) =
        (Vec::new(), String::new(), Vec::new(), Vec::new(), Vec::new());
    for &p in func.params() {
        let name = func.name_of(p).unwrap();
        let (ty, how) = match func.ty(p) {
            Type::View { dims, elem, privilege } => {
                let dims: Vec<_> = dims.iter().map(|d| d.to_string()).collect();
                (format!("tensor<[{}], {elem}>", dims.join(", ")), *privilege)
            }
            other => (format!("tensor<[], {}>", other.dtype()), Privilege::Read),
        };
        if how == Privilege::Write {
            writeln!(body, "  %{name} = graph.const {{value = 0.0}} : {ty}").unwrap();
        } else {
            params.push(format!("%{name}: {ty}"));
        }
        args.push(format!("%{name}"));
        words.push(how.name());
        if how.writes() {
            outs.push((format!("%{name}.1"), ty));
        }
    }
    let names: Vec<_> = outs.iter().map(|o| o.0.clone()).collect();
    let types: Vec<_> = outs.iter().map(|o| o.1.clone()).collect();
    let text = format!(
        "func @f({}) {{\n{body}  {} = graph.kernel_call {} {{kernel = @k, privileges = [{}]}} : {}\n  graph.return {}\n}}\n",
        params.join(", "),
        names.join(", "),
        args.join(", "),
        words.join(", "),
        types.join(", "),
        names.join(", ")
    );
    let mut kernels = KernelSet::default();
    let args = (0..func.params().len()).collect();
    kernels.insert("k", KernelDef { func, args, derived: false, placed: false, settled: false });
    (module(&text), kernels)
}

#[test]
fn every_class_to_the_second_order() {
    for case in CASES {
        println!("{}", case.name);
        let (mut m, mut kernels) = calling(case.tile);
        let args = arguments(&m, "f", (0.2, 1.2), 3);
        check_in(&mut m, &mut kernels, &args);
    }
}

#[test]
fn each_class_as_text() {
    let bless = std::env::var_os("TESSERA_BLESS").is_some();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/texts");
    let mut faults = Vec::new();
    for case in CASES {
        let (source, kernels) = calling(case.tile);
        let wrt: Vec<usize> = (0..source.func("f").unwrap().params().len()).collect();
        let mut out = format!("# kernel\n{}\n", kernels.get("k").unwrap().func);
        for reverse in [false, true] {
            let (mut m, mut made) = (source.clone(), kernels.clone());
            if reverse {
                vjp_with(&mut m, &mut made, "f", &wrt).unwrap();
            } else {
                jvp_with(&mut m, &mut made, "f", &wrt).unwrap();
            }
            let names: Vec<_> = made.names().filter(|n| *n != "k").map(str::to_string).collect();
            writeln!(out, "# {}", if reverse { "vjp" } else { "jvp" }).unwrap();
            for func in &m.funcs[1..] {
                writeln!(out, "{func}").unwrap();
            }
            for name in names {
                writeln!(out, "{}", made.get(&name).unwrap().func).unwrap();
            }
        }
        let file = folder.join(format!("kernel_{}.txt", case.name));
        if bless {
            std::fs::write(&file, &out).unwrap();
        } else if std::fs::read_to_string(&file).unwrap_or_default() != out {
            faults.push(format!("{}:\n{out}", case.name));
        }
    }
    assert!(faults.is_empty(), "texts differ (TESSERA_BLESS=1 writes them)\n{}", faults.join("\n"));
}

/// Narrow floats: the derivative is that of the f64 kernel, as far as its inputs and results are
/// rounded.
#[test]
fn every_float_dtype() {
    for case in CASES {
        let (m, k) = calling(case.tile);
        let wrt: Vec<usize> = (0..m.func("f").unwrap().params().len()).collect();
        let args = arguments(&m, "f", (0.2, 1.2), 3);
        for (dtype, bound) in [("f32", 1e-5), ("bf16", 0.06), ("f16", 0.01)] {
            let Some(text) = narrowed(case.tile, dtype) else { continue };
            let (low_m, low_k) = calling(&text);
            let low_args: Vec<HostArray> = args
                .iter()
                .map(|a| {
                    HostArray::new(
                        &a.dims,
                        tessera_numerics::DType::parse(dtype).unwrap(),
                        &a.values(),
                    )
                })
                .collect();
            // The same numbers for both, so that only the arithmetic differs.
            let same: Vec<HostArray> = low_args
                .iter()
                .zip(&args)
                .map(|(l, a)| HostArray::new(&a.dims, a.dtype, &l.values()))
                .collect();
            let grads = |m: &GraphModule, k: &KernelSet, args: &[HostArray]| {
                let (mut m, mut k) = (m.clone(), k.clone());
                let made = vjp_with(&mut m, &mut k, "f", &wrt).unwrap();
                let kept = run_in(&m, &k, &made.forward, args);
                let n = kept.len() - made.residuals;
                let ones = kept[..n].iter().map(|r| {
                    let count = r.dims.iter().product::<i64>() as usize;
                    HostArray::new(&r.dims, r.dtype, &vec![1.0; count])
                });
                let inner: Vec<_> = kept[n..].iter().cloned().chain(ones).collect();
                run_in(&m, &k, &made.pullback, &inner)
            };
            let wanted = grads(&m, &k, &same);
            let got = grads(&low_m, &low_k, &low_args);
            for (g, w) in got.iter().zip(&wanted) {
                assert_eq!(g.dtype.name(), dtype, "{}", case.name);
                let scale = w.values().iter().fold(1.0f64, |m, v| m.max(v.abs()));
                for (g, w) in g.values().iter().zip(w.values()) {
                    assert!((g - w).abs() <= bound * scale, "{} {dtype}: {g} and {w}", case.name);
                }
            }
        }
    }
}

/// The kernel with arrays of another dtype: loads are converted to what arithmetic is done in, what
/// is stored back. MMAs take narrow operands without conversion.
fn narrowed(text: &str, dtype: &str) -> Option<String> {
    let mut out = String::new();
    let compute = text.replace("f64", "f32");
    if dtype == "f32" {
        return Some(compute);
    }
    // Numbers that are parameters are f32 there: arrays only.
    if compute.contains("%s: f32") {
        return None;
    }
    for (number, line) in compute.lines().enumerate() {
        let indent = &line[..line.len() - line.trim_start().len()];
        if number == 0 {
            writeln!(out, "{}", line.replace("], f32,", &format!("], {dtype},"))).unwrap();
        } else if let Some((name, rest)) =
            line.trim().split_once(" = ").filter(|(_, r)| r.starts_with("tile.load"))
        {
            let narrow = rest.replace("f32", dtype);
            let ty = rest.rsplit_once(" : ").unwrap().1;
            writeln!(out, "{indent}{name}.n = {narrow}").unwrap();
            writeln!(out, "{indent}{name} = tile.cast {name}.n : {ty}").unwrap();
        } else if line.trim().starts_with("tile.store") {
            let value = line.split([' ', ',']).filter(|w| w.starts_with('%')).nth(1).unwrap();
            let def =
                compute.lines().find(|l| l.trim().starts_with(&format!("{value} = "))).unwrap();
            let ty = def.rsplit_once(" : ").unwrap().1;
            let ty = ty.split(" do").next().unwrap().replace("f32", dtype);
            writeln!(out, "{indent}{value}.n = tile.cast {value} : {ty}").unwrap();
            writeln!(out, "{}", line.replacen(value, &format!("{value}.n"), 1)).unwrap();
        } else {
            writeln!(out, "{line}").unwrap();
        }
    }
    Some(out)
}

fn refused(tile: &str, reverse: bool) -> String {
    let (mut m, mut kernels) = calling(tile);
    let made = if reverse {
        vjp_with(&mut m, &mut kernels, "f", &[0]).map(|_| ())
    } else {
        jvp_with(&mut m, &mut kernels, "f", &[0]).map(|_| ())
    };
    let errors = made.expect_err("refused");
    let first = errors.iter().next().unwrap();
    assert_eq!(first.code, Code::E_UNSUPPORTED);
    assert!(first.loc.is_known(), "{first:?}");
    assert!(first.help.as_deref().is_some_and(|h| h.contains("custom_vjp")));
    first.message.clone()
}

#[test]
fn what_is_no_class_is_refused_with_the_reason() {
    let group = |params: &str, body: &str| {
        format!(
            "func @k(%x: view<[8], f32, read>, {params}) {{kind = group, grid = [1]}} {{\n  %0 = tile.const {{value = 0}} : i64\n  %e = tile.const {{value = 8}} : i64\n  %s = tile.const {{value = 4}} : i64\n  %t = tile.load %x at(%0) {{extent = [8]}} : tile<8xf32>\n{body}\n  tile.return\n}}"
        )
    };
    let y = "%y: view<[8], f32, write>";
    let store = "  tile.store %y, %r at(%0) {extent = [8]}";
    let online = group(
        y,
        &format!(
            "  %r = tile.for %0, %e, %s init(%t) : tile<8xf32> do (%i: i64, %m: tile<8xf32>) {{\n    %n = tile.maximum %m, %t : tile<8xf32>\n    tile.yield %n\n  }}\n{store}"
        ),
    );
    assert!(refused(&online, true).contains("carries `r` from iteration to iteration"));
    let prod = group(
        "%y: view<[1], f32, write>",
        "  %r = tile.reduce %t {op = prod, axis = 0} : f32\n  tile.store %y, %r at(%0) {extent = [0]}",
    );
    for reverse in [true, false] {
        assert!(refused(&prod, reverse).contains("multiplies the elements"));
    }
    let back = group(
        "%y: view<[8], f32, read_write>",
        "  tile.store %y, %t at(%0) {extent = [8]}\n  %a = tile.load %y at(%0) {extent = [8]} : tile<8xf32>\n  %r = tile.mul %a, %a : tile<8xf32>\n  tile.store %y, %r at(%0) {extent = [8]}",
    );
    for reverse in [true, false] {
        assert!(refused(&back, reverse).contains("reads `y` again after it was written"));
    }
    let over = group(
        y,
        "  tile.for %0, %e, %s do (%i: i64) {\n    tile.store %y, %t at(%0) {extent = [8]}\n    tile.yield\n  }",
    );
    assert!(refused(&over, true).contains("in several iterations"));
    let gather = "func @k(%x: view<[8], f32, read>, %i: view<[8], i32, read>, %y: view<[8], f32, write>) {kind = group, grid = [1]} {\n  %0 = tile.const {value = 0} : i64\n  %i0 = tile.load %i at(%0) {extent = [8]} : tile<8xi32>\n  %t = tile.gather %x at(%i0) : tile<8xf32>\n  tile.store %y, %t at(%0) {extent = [8]}\n  tile.return\n}";
    assert!(refused(gather, true).contains("gathers elements"));
    let lanes = "func @k(%x: view<[8], f32, read>, %y: view<[8], f32, write>) {kind = lane, domain = 8} {\n  %0 = tile.const {value = 0} : i64\n  %t = tile.load %x at(%0) {extent = [0]} : f32\n  tile.store %y, %t at(%0) {extent = [0]}\n  tile.return\n}";
    assert!(refused(lanes, true).contains("lets every lane write the same element"));
    let sum = "func @k(%x: view<[8], f32, read>, %y: view<[8], f32, write>) {kind = lane, domain = 8} {\n  %i = tile.linear_id : i64\n  %t = tile.load %x at(%i) {extent = [0]} : f32\n  %r = tile.group_reduce %t {op = sum} : f32\n  tile.store %y, %r at(%i) {extent = [0]}\n  tile.return\n}";
    assert!(refused(sum, true).contains("combines lanes"));
    let atomic = "func @k(%x: view<[8], f32, read>, %y: view<[8], f32, read_write>) {kind = lane, domain = 8} {\n  %i = tile.linear_id : i64\n  %t = tile.load %x at(%i) {extent = [0]} : f32\n  %r = tile.atomic %y, %t at(%i) {op = add} : f32\n  tile.return\n}";
    assert!(refused(atomic, true).contains("tile.atomic"));
}
