//! Every function on every dtype that it accepts, in every profile: exact where the profile says
//! so, within the promised error otherwise.

use crate::harness::{Arg, Layout, array, codes, parse, with_args};
use crate::values::operands;
use crate::{Case, Failure, Promises, Runner, Target};
use std::fmt::Write;
use tessera_numerics::{DType, Scalar, ScalarFn, decode, eval};

macro_rules! functions_of {
    ($($name:ident $dtype:ident)*) => {
        $(pub fn $name(case: &Case) {
            check(case, DType::$dtype);
        })*
    };
}

functions_of! {
    functions_of_f32 F32
    functions_of_f64 F64
    functions_of_i32 I32
    functions_of_i64 I64
    functions_of_u32 U32
    functions_of_u64 U64
    functions_of_bool Bool
}

/// A lane kernel that stores what each function gives in a row: of `%y`, or of `%p` for bools.
fn text(fs: &[ScalarFn], dtype: DType) -> String {
    let (arity, n) = (fs[0].arity(), fs.len());
    let mut params = String::new();
    let mut body = String::new();
    for k in 0..arity {
        let _ = write!(params, "%a{k}: view<[n], {dtype}, read>, ");
        let _ = writeln!(body, "  %x{k} = tile.load %a{k} at(%i) {{extent = [0]}} : {dtype}");
    }
    let args = ["%x0", "%x0, %x1", "%x0, %x1, %x2"][arity - 1];
    for (row, f) in fs.iter().enumerate() {
        let result = f.result(dtype);
        let out = if result == DType::Bool { "%p" } else { "%y" };
        let _ = writeln!(
            body,
            "  %c{row} = tile.const {{value = {row}}} : i64
  %r{row} = tile.{f} {args} : {result}
  tile.store {out}, %r{row} at(%c{row}, %i) {{extent = [0, 0]}}"
        );
    }
    format!(
        "func @functions({params}%y: view<[{n}, n], {dtype}, write>, %p: view<[{n}, n], bool, write>) {{kind = lane, lanes = 64}} {{
  %i = tile.linear_id : i64
{body}  tile.return
}}"
    )
}

struct Inputs {
    values: Vec<Vec<u64>>,
    args: Vec<Arg>,
}

fn inputs(case: &Case, fs: &[ScalarFn], dtype: DType) -> Inputs {
    let count = if case.subject.compiles_slowly() { 600 } else { 4000 };
    let values = operands(dtype, fs[0].arity(), 7, count);
    let mut args: Vec<Arg> = values.iter().map(|v| codes(dtype, v.iter().copied())).collect();
    let dims = [fs.len() as i64, values[0].len() as i64];
    args.extend([dtype, DType::Bool].map(|d| array(&dims, d, Layout::Rows, 1)));
    Inputs { values, args }
}

/// The bits of each function's results.
fn run(
    case: &Case,
    target: &Target,
    fs: &[ScalarFn],
    dtype: DType,
    inputs: &Inputs,
) -> Result<Vec<Vec<u64>>, Failure> {
    let kernel: Box<dyn Runner> = case.subject.compile(target, &parse(&text(fs, dtype)))?;
    let n = inputs.values[0].len();
    let got = with_args(&inputs.args, n as i64, 64, |launch| kernel.launch(launch))?;
    let out = |k: usize| {
        let place = inputs.args.len() - 2 + k;
        inputs.args[place].array().map_or(vec![], |a| a.codes(&got[place]))
    };
    let [own, bools] = [0, 1].map(out);
    let row = |(k, f): (usize, &ScalarFn)| {
        let all = if f.result(dtype) == DType::Bool { &bools } else { &own };
        all[k * n..][..n].to_vec()
    };
    Ok(fs.iter().enumerate().map(row).collect())
}

fn check(case: &Case, dtype: DType) {
    let mut faults = Vec::new();
    for arity in 1..=3 {
        let accepts = |f: &&ScalarFn| f.arity() == arity && f.accepts(dtype);
        let all: Vec<ScalarFn> = ScalarFn::ALL.iter().filter(accepts).copied().collect();
        for target in case.subject.scalar_targets() {
            let refused = |f: ScalarFn| case.part(f.name()).refused(target.profile);
            for (f, code) in all.iter().filter_map(|&f| Some((f, refused(f)?))) {
                let got = run(case, &target, &[f], dtype, &inputs(case, &[f], dtype));
                let is = matches!(&got, Err(Failure::Refused(got, _)) if *got == code);
                assert!(is, "{f} of {dtype} is not refused with {code} by {}", target.name);
            }
            let fs: Vec<ScalarFn> = all.iter().copied().filter(|&f| refused(f).is_none()).collect();
            if fs.is_empty() {
                continue;
            }
            let inputs = inputs(case, &fs, dtype);
            let got = run(case, &target, &fs, dtype, &inputs)
                .unwrap_or_else(|e| panic!("{} {}: {e:?}", target.name, target.profile.name()));
            let promises = case.subject.promises(target.profile);
            for (f, got) in fs.iter().zip(&got) {
                if let Some(fault) = fault(*f, dtype, &inputs.values, got, &promises) {
                    faults.push(format!("{} {}: {fault}", target.name, target.profile.name()));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

/// The first result that is wrong.
fn fault(
    f: ScalarFn,
    dtype: DType,
    inputs: &[Vec<u64>],
    got: &[u64],
    promises: &Promises,
) -> Option<String> {
    // The functions without an exact bound.
    let is_math = f.bound().starts_with('2');
    for (i, &code) in got.iter().enumerate() {
        let args: Vec<Scalar> = inputs.iter().map(|x| decode(dtype, x[i])).collect();
        let (got, wanted) = (decode(f.result(dtype), code), eval(f, &args).unwrap());
        let both_nan = |a: Scalar, b: Scalar| a.as_f64().is_nan() && b.as_f64().is_nan();
        let same = got.bits() == wanted.bits() || dtype.is_float() && both_nan(got, wanted);
        if same || is_math && is_near(f, &args, got, promises) {
            continue;
        }
        return Some(format!("{f}({args:?}) = {got:?}, not {wanted:?}"));
    }
    None
}

/// Whether a result of a function of real numbers has at most the promised error.
fn is_near(f: ScalarFn, args: &[Scalar], got: Scalar, promises: &Promises) -> bool {
    if promises.ulp == 0.0 {
        return false;
    }
    // In f64, where the reference of f32 is exact, and that of f64 has an error of 1 ulp.
    let wide: Vec<Scalar> = args.iter().map(|x| Scalar::F64(x.as_f64())).collect();
    let truth = eval(f, &wide).unwrap().as_f64();
    let (largest, slack) = match got {
        Scalar::F32(_) => (f64::from(f32::MAX), 0.0),
        _ => (f64::MAX, 1.0),
    };
    let ulp = |x: f64| match got {
        Scalar::F32(_) => {
            let exponent = (x.abs().to_bits() >> 52) as i32 - 1023;
            2f64.powi(exponent.clamp(-126, 127) - 23)
        }
        _ => x.abs() - x.abs().next_down(),
    };
    let bound = promises.ulp + slack;
    let is_f32 = matches!(got, Scalar::F32(_));
    let got = got.as_f64();
    if got.is_nan() || truth.is_nan() {
        return got.is_nan() && truth.is_nan();
    }
    // One of them is out of range, where the error may bring the other.
    if got.is_infinite() || truth.abs() > largest {
        let same_sign = got.is_sign_negative() == truth.is_sign_negative();
        return same_sign && got.abs().min(truth.abs()) >= largest - bound * ulp(largest);
    }
    if truth == 0.0 {
        return got == 0.0;
    }
    let off = (got - truth).abs();
    off <= bound * ulp(truth) || is_f32 && off <= promises.absolute
}
