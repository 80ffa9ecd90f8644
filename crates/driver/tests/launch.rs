//! A kernel from source to results, without Python.

use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::{Code, Diagnostics, SourceFile};
use tessera_driver::frontend::{Capture, FuncSource, KernelDecl, ParamKind, ParamSpec, Tunables};
use tessera_driver::{
    Arg, ArrayArg, Ask, Backends, BufferArg, Call, Compiled, Constraint, Given, KernelHandle,
    Number, Options, Place, Purpose,
};
use tessera_numerics::{DType, NumType, Profile};

const SCALE: &str = "\
@ts.kernel
def scale(x: ts.Tensor['n', ts.f32], alpha: ts.f32):
    i = ts.tile.linear_id()
    x[i] = x[i] * alpha
    return x
";

fn scale(options: Options) -> Arc<KernelHandle> {
    let linear_id = Capture::Builtin("tile.linear_id".into());
    let source = FuncSource {
        name: "scale".into(),
        file: SourceFile::new("scale.py", SCALE, 1),
        captures: [("ts.tile.linear_id".into(), linear_id)].into(),
        defaults: BTreeMap::new(),
    };
    let x = ParamKind::Tensor {
        dims: Some(vec!["n".into()]),
        elem: Some(NumType::plain(DType::F32)),
        privilege: None,
        out: false,
    };
    let param =
        |name: &str, kind| ParamSpec { name: name.into(), kind, optional: false, default: None };
    let decl = KernelDecl {
        source: Arc::new(source),
        params: vec![param("x", x), param("alpha", ParamKind::Scalar(DType::F32))],
        bundles: Vec::new(),
        tunables: Tunables::default(),
        lanes: Vec::new(),
        most_ops: tessera_frontend::MOST_OPS,
    };
    Arc::new(KernelHandle::new(decl, options).unwrap_or_else(|e| panic!("{e}")))
}

fn call(x: &mut [f32], writable: bool) -> Call {
    let buffer = BufferArg {
        data: x.as_mut_ptr().cast(),
        dims: vec![x.len() as i64],
        strides: vec![4],
        dtype: DType::F32,
        writable,
    };
    let alpha = Arg::Number { value: Number::Int(3), dtype: None };
    Call {
        positional: vec![Arg::Array(ArrayArg { buffer, place: Place::Host })],
        keyword: vec![("alpha".into(), alpha)],
    }
}

fn given(dims: [(&str, i64); 1]) -> Given {
    let values = dims.map(|(name, size)| (name.to_string(), Capture::Int(size.into()))).into();
    Given { values, ..Given::default() }
}

/// What is said of one array's layout.
fn laid(name: &str, entries: &[(&str, Capture)]) -> Given {
    let entries: BTreeMap<_, _> =
        entries.iter().map(|(key, value)| (key.to_string(), value.clone())).collect();
    Given { layouts: [(name.to_string(), entries)].into(), ..Given::default() }
}

fn run(kernel: &KernelHandle, call: Call, grid: Option<&[i64]>) -> Result<(), Diagnostics> {
    let ask = Ask { grid: grid.map(<[i64]>::to_vec), ..Ask::default() };
    kernel.launch(kernel.prepare(&Backends::default(), call, ask)?)
}

fn code(result: Result<(), Diagnostics>) -> Option<Code> {
    result.err().and_then(|e| e.errors().next().map(|d| d.code))
}

#[test]
fn a_call_computes_in_place_and_is_explained() {
    let kernel = scale(Options::default());
    let mut x = [1.0, 2.0, 3.0];
    run(&kernel, call(&mut x, true), None).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(x, [3.0, 6.0, 9.0]);
    for _ in 0..2 {
        run(&kernel, call(&mut x, true), Some(&[1])).unwrap_or_else(|e| panic!("{e}"));
    }
    assert_eq!(x, [27.0, 6.0, 9.0]);
    let text = kernel.explain().text;
    assert!(text.contains("lanes: 1 in groups of 256 (from the caller)"), "{text}");
    assert!(text.contains("cache hit"), "{text}");
}

#[test]
fn a_refused_call_writes_nothing() {
    let rule = Constraint::Divisible { dim: "n".into(), by: 2 };
    let kernel = scale(Options { require: vec![rule], ..Options::default() });
    let mut x = [1.0, 2.0];
    assert_eq!(code(run(&kernel, call(&mut x, false), None)), Some(Code::E_READ_ONLY));
    assert_eq!(code(run(&kernel, call(&mut x[..1], true), None)), Some(Code::E_SPECIALIZE));
    assert_eq!(code(run(&kernel, call(&mut x, true), Some(&[]))), Some(Code::E_LAUNCH_GEOMETRY));
    assert_eq!(code(run(&kernel, Call::default(), None)), Some(Code::E_ARGUMENT));
    assert_eq!(x, [1.0, 2.0]);
}

#[test]
fn a_compiled_kernel_takes_only_its_sizes() {
    let kernel = scale(Options::default());
    let given = given([("n", 2)]);
    let compiled = Compiled::new(&kernel, &Backends::default(), &given, None, Profile::Default);
    let compiled = compiled.unwrap_or_else(|e| panic!("{e}"));
    let mut x = [1.0, 2.0, 3.0];
    assert!(compiled.prepare(&Backends::default(), call(&mut x, true), Ask::default()).is_err());
    let prepared = compiled.prepare(&Backends::default(), call(&mut x[..2], true), Ask::default());
    kernel.launch(prepared.unwrap_or_else(|e| panic!("{e}"))).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(x, [3.0, 6.0, 3.0]);
}

#[test]
fn code_is_made_for_arrays_that_lie_as_is_said() {
    let kernel = scale(Options::default());
    let made = |given: &Given| {
        let backends = Backends::default();
        let made = Compiled::new(&kernel, &backends, given, Some("sm90"), Profile::Default);
        made.map(|c| c.inspect_ir("target", false).unwrap_or_default())
    };
    let text = |given: &Given| made(given).unwrap_or_else(|e| panic!("{e}"));
    let usual = text(&Given::default());
    assert!(usual.contains("ld.global.v4.b32"), "{usual}");
    assert_eq!(usual, text(&laid("x", &[("axis", Capture::Int(-1)), ("align", Capture::Int(16))])));
    let misaligned = text(&laid("x", &[("align", Capture::Int(4))]));
    assert!(!misaligned.contains(".v4"), "{misaligned}");
    let apart = text(&laid("x", &[("axis", Capture::None)]));
    assert!(apart != usual && apart != misaligned);
    for (name, entries, words) in [
        ("y", vec![], "expected an array (one of x), got `y`"),
        ("alpha", vec![], "expected an array (one of x), got `alpha`"),
        (
            "x",
            vec![("axis", Capture::Int(1))],
            "expected an axis from -1 to 0, or None, as `axis`, got 1",
        ),
        (
            "x",
            vec![("align", Capture::Int(2))],
            "expected a power of two from 4 to 16 as `align`, got 2",
        ),
        ("x", vec![("align", Capture::Int(12))], "got 12"),
        ("x", vec![("order", Capture::Int(0))], "expected `axis` or `align`, got `order`"),
    ] {
        let errors = made(&laid(name, &entries)).expect_err(words);
        assert!(errors.render().contains(words), "{errors}");
        assert_eq!(errors.errors().next().map(|e| e.code), Some(Code::E_ARGUMENT));
    }
}

#[test]
fn nothing_that_rests_on_the_kernels_grid_is_used_for_the_callers() {
    let kernel = scale(Options::default());
    let given = given([("n", 2)]);
    let backends = Backends::default();
    let compiled = Compiled::new(&kernel, &backends, &given, None, Profile::Default);
    let compiled = compiled.unwrap_or_else(|e| panic!("{e}"));
    let tile = |c: &Compiled| c.inspect_ir("tile", false).unwrap_or_default();
    assert!(tile(&compiled).contains("bounds = [inside]"), "{}", tile(&compiled));
    // With more lanes than elements the surplus ones must write nothing.
    let mut x = [1.0, 2.0, 3.0];
    let ask = Ask { grid: Some(vec![3]), ..Ask::default() };
    let prepared = compiled.prepare(&Backends::default(), call(&mut x[..2], true), ask);
    kernel.launch(prepared.unwrap_or_else(|e| panic!("{e}"))).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(x, [3.0, 6.0, 3.0]);
    let text = kernel.explain().text;
    assert!(text.contains("compiled: now") && text.contains("from the caller"), "{text}");
}

#[test]
fn a_check_finds_nothing_here_and_writes_nothing() {
    let kernel = scale(Options::default());
    let mut x = [1.0, 2.0];
    let ask = Ask { purpose: Purpose::Check, ..Ask::default() };
    let prepared = kernel.prepare(&Backends::default(), call(&mut x, true), ask);
    let report = kernel.check(prepared.unwrap_or_else(|e| panic!("{e}")));
    assert!(report.is_ok_and(|r| r.findings.is_empty()));
    assert_eq!(x, [1.0, 2.0]);
}
