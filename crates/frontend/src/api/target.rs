//! `ts.target`: what is written for one target alone.

use super::combine::{impure, is_function};
use super::reduce::flag;
use super::{Args, Handler::*, Rows, rows};
use crate::elab::Elab;
use crate::elab::call::Given;
use crate::elab::val::{Const, Val};
use tessera_diag::{Code, Diagnostic, Loc};
use tessera_ir::{Attr, OpSpec, Opcode, Type, Value};
use tessera_numerics::DType;
use tessera_tile::ops::asm::{AsmArch, AsmTarget, MOST_PACKED, X86_ARCHS, check, registers};
use tessera_tile::{TileBuild, TileOp};

pub const ROWS: Rows = rows! {
    Any "target.asm" "(text, *values, dtype=None, target=\"ptx\", otherwise=None, pure=True, arch=None, pack=1)" Call(asm),
        "Assembly text, for each element: `$0`, `$1`, … are the registers of the results, whose dtypes `dtype` names (one, a tuple, or None), then those of the values. `otherwise` is a @ts.func that computes the same, for targets that the text is not for. A wrong text can break memory safety.";
};

/// The text and everything about it that is known at compile time.
struct Request {
    text: String,
    target: AsmTarget,
    arch: Option<String>,
    pure: bool,
    pack: usize,
    dtypes: Vec<DType>,
    /// `dtype` is a tuple: so is the result.
    several: bool,
}

fn asm(e: &mut Elab<'_>, args: &mut Args) -> Val {
    // What is not known at decoration is checked for each configuration.
    let named = ["text", "dtype", "target", "arch", "pure", "pack"].map(|n| args.get(n));
    if named.iter().any(|v| matches!(v, Val::Open(_))) {
        return Val::Poison;
    }
    let Some(request) = request(e, args) else { return Val::Poison };
    let given = std::mem::take(&mut args.rest);
    let mut values = Vec::new();
    for g in &given {
        let Some(v) = e.runtime(&g.value) else { return Val::Poison };
        let dtype = e.ty(v).dtype();
        if registers(dtype, request.target, 1).is_none() {
            return no_registers(e, dtype, &g.loc);
        }
        values.push(v);
    }
    let Some(values) = e.unify_shapes(&values) else { return Val::Poison };
    let operands: Vec<DType> = values.iter().map(|&v| e.ty(v).dtype()).collect();
    if let Err(why) = check(&request.text, request.target, request.pack, &request.dtypes, &operands)
    {
        let error = Diagnostic::new(Code::E_ARGUMENT, why.message).help(why.help);
        return e.report(error.at(args.loc("text")));
    }
    let shape = values.first().map_or(Vec::new(), |&v| e.ty(v).shape().to_vec());
    let results = request.dtypes.iter().map(|&d| Type::value(shape.clone(), d)).collect();
    let code = if request.pure { TileOp::Asm } else { TileOp::AsmEffect };
    let otherwise = args.get("otherwise");
    let mut spec = OpSpec::new(code, &[])
        .group("values", &values)
        .attr("text", Attr::Str(request.text.clone()))
        .attr("target", Attr::word(request.target.name()))
        .results(results)
        .optional_region(otherwise != Val::None);
    if let Some(arch) = &request.arch {
        spec = spec.attr("arch", Attr::word(arch.clone()));
    }
    if request.pack > 1 {
        spec = spec.attr("pack", Attr::Int(request.pack as i64));
    }
    let op = e.b().op(spec).expect("the result types are given");
    if otherwise != Val::None && meaning(e, op, &request, &operands, &otherwise).is_none() {
        return Val::Poison;
    }
    let results = e.func.ops[op].results.clone();
    match (request.several, &results[..]) {
        (true, _) => Val::Tuple(results.into_iter().map(Val::Rt).collect()),
        (false, [one]) => Val::Rt(*one),
        (false, _) => Val::None,
    }
}

fn no_registers(e: &mut Elab<'_>, dtype: DType, loc: &Loc) -> Val {
    e.report(
        Diagnostic::new(
            Code::E_UNSUPPORTED_DTYPE,
            format!("expected a dtype that has registers, got {dtype}"),
        )
        .at(loc.clone())
        .help("cast it to ts.f32 or ts.i32 before the call, and back after it"),
    )
}

/// The arguments that are known at compile time; reports what does not fit.
fn request(e: &mut Elab<'_>, args: &Args) -> Option<Request> {
    let text = match args.get("text") {
        Val::Const(Const::Str(s)) => s,
        other => {
            let what = e.describe(&other);
            let error = Diagnostic::new(
                Code::E_ARGUMENT,
                format!("expected assembly text, known at compile time, got {what}"),
            )
            .help("write a string, or the name of one: ts.target.asm(\"ex2.approx.ftz.f32 $0, $1;\", x, dtype=ts.f32)");
            e.report(error.at(args.loc("text")));
            return None;
        }
    };
    let (dtypes, several) = dtypes(e, args)?;
    let pure = !args.has("pure") || flag(e, args, "pure")?;
    let name = word(e, args, "target")?.unwrap_or("ptx".into());
    let Some(target) = AsmTarget::from_name(&name) else {
        let known: Vec<String> = AsmTarget::ALL.iter().map(|t| format!("{:?}", t.name())).collect();
        let error = Diagnostic::new(
            Code::E_ARGUMENT,
            format!("expected `target` among {}, got {name:?}", known.join(" ")),
        );
        let help = match name.as_str() {
            "cpu" | "x86" | "x86-64" | "amd64" => "write target=\"x86_64\"",
            name if name.starts_with("sm") => "write target=\"ptx\", and the architecture as arch=",
            _ => "write target=\"ptx\" for NVIDIA GPUs, target=\"x86_64\" for the CPU",
        };
        e.report(error.at(args.loc("target")).help(help));
        return None;
    };
    let arch = word(e, args, "arch")?;
    if let Some(name) = arch.as_deref().filter(|n| AsmArch::from_name(target, n).is_none()) {
        let error = Diagnostic::new(
            Code::E_ARGUMENT,
            format!("expected an architecture of {}, got {name:?}", target.name()),
        );
        let help = match target {
            AsmTarget::Ptx => "write for example arch=\"sm_90\", or arch=\"sm_90a\"".to_string(),
            AsmTarget::X86_64 => format!("write one of {}", X86_ARCHS.join(", ")),
        };
        e.report(error.at(args.loc("arch")).help(help));
        return None;
    }
    if dtypes.is_empty() && pure {
        e.error_help(
            Code::E_ARGUMENT,
            "expected results: a text without effects is there for them, and `dtype` names none",
            "name their dtypes, dtype=ts.f32; or say that the text has effects, pure=False",
        );
        return None;
    }
    let pack = pack(e, args, target, pure)?;
    if let Some(&dtype) = dtypes.iter().find(|&&d| registers(d, target, 1).is_none()) {
        no_registers(e, dtype, &args.loc("dtype"));
        return None;
    }
    Some(Request { text, target, arch, pure, pack, dtypes, several })
}

fn dtypes(e: &mut Elab<'_>, args: &Args) -> Option<(Vec<DType>, bool)> {
    let one = |e: &mut Elab<'_>, v: Val| {
        super::create::dtype_of(e, &args.with("dtype", v), "dtype", DType::F32)
    };
    match args.get("dtype") {
        Val::None => Some((Vec::new(), false)),
        Val::Tuple(items) => {
            if items.contains(&Val::None) {
                e.error_help(
                    Code::E_TYPE,
                    "expected a dtype for each result, got None",
                    "for example dtype=(ts.u32, ts.u32)",
                );
                return None;
            }
            let all: Option<Vec<DType>> = items.into_iter().map(|v| one(e, v)).collect();
            Some((all?, true))
        }
        v => Some((vec![one(e, v)?], false)),
    }
}

fn word(e: &mut Elab<'_>, args: &Args, name: &str) -> Option<Option<String>> {
    match args.get(name) {
        Val::None => Some(None),
        Val::Const(Const::Str(s)) => Some(Some(s)),
        other => {
            let what = e.describe(&other);
            let error = Diagnostic::new(
                Code::E_ARGUMENT,
                format!("expected `{name}` to be a string, got {what}"),
            );
            let example = if name == "arch" { "arch=\"sm_90\"" } else { "target=\"ptx\"" };
            e.report(error.at(args.loc(name)).help(format!("write for example {example}")));
            None
        }
    }
}

/// How many elements one run of the text takes.
fn pack(e: &mut Elab<'_>, args: &Args, target: AsmTarget, pure: bool) -> Option<usize> {
    let given = args.get("pack");
    let n = match (&given, given.as_const_int()) {
        (Val::None, _) => return Some(1),
        (_, Some(n)) if (1..=MOST_PACKED).contains(&n) => n as usize,
        _ => {
            let what = e.describe(&given);
            let error = Diagnostic::new(
                Code::E_ARGUMENT,
                format!("expected `pack` to be 1 to {MOST_PACKED}, got {what}"),
            )
            .help("write pack=2 for 16-bit and pack=4 for 8-bit elements in registers of 32 bits");
            e.report(error.at(args.loc("pack")));
            return None;
        }
    };
    let why = match target {
        AsmTarget::X86_64 => "`pack` is of texts for ptx: a text for x86_64 takes one element",
        AsmTarget::Ptx if !pure => {
            "a text with effects runs once for each element, and takes no packed ones"
        }
        AsmTarget::Ptx => return Some(n),
    };
    if n == 1 {
        return Some(1);
    }
    let error = Diagnostic::new(Code::E_UNSUPPORTED, why).at(args.loc("pack"));
    e.report(error.help("leave out `pack=`"));
    None
}

/// Puts the function that says what the text computes into the op's region, over scalars.
fn meaning(
    e: &mut Elab<'_>,
    op: tessera_ir::OpId,
    request: &Request,
    operands: &[DType],
    f: &Val,
) -> Option<()> {
    if !is_function(f) {
        let what = e.describe(f);
        e.error_help(
            Code::E_TYPE,
            format!("expected `otherwise` to be a @ts.func, got {what}"),
            "write a function of the same values that computes the same, and decorate it with @ts.func",
        );
        return None;
    }
    let region = e.func.ops[op].regions[0];
    let loc = e.loc.clone();
    let given: Vec<Given> = operands
        .iter()
        .map(|&dtype| Given {
            name: None,
            value: Val::Rt(e.func.add_arg(region, Type::Scalar(dtype), None)),
            loc: loc.clone(),
            text: "an element".into(),
        })
        .collect();
    let outer = std::mem::replace(&mut e.block, region);
    let found = e.found;
    let result = match f {
        Val::Func(source) => e.inline(source, given),
        Val::Api(row) => e.call_api(row, given),
        _ => Val::Poison,
    };
    e.loc = loc;
    let out = yielded(e, request, result, found);
    if let Some(out) = &out {
        e.b().yield_(out);
    }
    e.block = outer;
    out?;
    if let Some(code) = impure(e, region) {
        let what = code.mnemonic();
        let help = match code {
            TileOp::For | TileOp::While => {
                "write `ts.static_range`, which is unrolled, in place of a loop"
            }
            _ => {
                "it stands for the text on other targets, one element at a time: pass what it needs as values"
            }
        };
        let message = format!(
            "expected `otherwise` to be a function that only computes on its arguments, got `tile.{what}`"
        );
        e.error_help(Code::E_UNSUPPORTED, message, help);
        return None;
    }
    Some(())
}

/// What the function returned, as the results of the text.
fn yielded(e: &mut Elab<'_>, request: &Request, result: Val, found: usize) -> Option<Vec<Value>> {
    let n = request.dtypes.len();
    let parts = match &result {
        Val::Poison => return None,
        Val::None => Vec::new(),
        Val::Tuple(parts) => parts.clone(),
        one => vec![one.clone()],
    };
    if parts.len() != n {
        if e.found == found {
            let what = e.describe(&result);
            let wanted = match n {
                0 => "nothing".to_string(),
                1 => "1 value".to_string(),
                n => format!("{n} values"),
            };
            e.error_help(
                Code::E_TYPE,
                format!(
                    "expected `otherwise` to return {wanted}, as the text has results, got {what}"
                ),
                "return a value for each dtype of `dtype=`, in their order",
            );
        }
        return None;
    }
    let mut out = Vec::new();
    for (part, &dtype) in parts.iter().zip(&request.dtypes) {
        let fits = match part {
            Val::Rt(v) if !e.weak.contains_key(v) => *e.ty(*v) == Type::Scalar(dtype),
            _ => true,
        };
        if !fits {
            let what = e.describe(part);
            e.error_help(
                Code::E_TYPE,
                format!("expected `otherwise` to return {dtype}, as `dtype=` says, got {what}"),
                format!("cast it: ts.tile.cast(v, ts.{dtype})"),
            );
            return None;
        }
        out.push(e.convert(part, dtype, &[])?);
    }
    Some(out)
}
