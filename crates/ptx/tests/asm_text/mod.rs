//! Assembly text of users: what is emitted for it, what the assembler makes of that, and where an
//! error of the assembler's belongs.

use crate::assembler::tools;
use std::fmt::Write;
use tessera_numerics::{DType, Profile};
use tessera_ptx::inst::Inst;
use tessera_ptx::module::Module;
use tessera_ptx::{PtxCaps, compile, compile_emulated, refused_text, usual_classes, verify};
use tessera_target::frame::Frame;
use tessera_tile::TileFunc;

/// A text for each dtype with registers, and how many elements it takes.
const TEXTS: &[(DType, &str, u32)] = &[
    (DType::Bool, "not.pred $0, $1;", 1),
    (DType::I8, "add.s16 $0, $1, 1;", 1),
    (DType::U8, "prmt.b32 $0, $1, 0, 0x0123;", 4),
    (DType::I16, "neg.s16 $0, $1;", 1),
    (DType::U16, "{ .reg .b32 t; mov.b32 t, $1; not.b32 $0, t; }", 2),
    (DType::F16, "neg.f16 $0, $1;", 1),
    (DType::F16, "mul.f16x2 $0, $1, $1;", 2),
    (DType::BF16, "neg.bf16x2 $0, $1;", 2),
    (DType::Fp8E4M3, "xor.b16 $0, $1, 128;", 1),
    (DType::Fp8E5M2, "xor.b32 $0, $1, 0x80808080;", 4),
    (DType::I32, "popc.b32 $0, $1;", 1),
    (DType::F32, "tanh.approx.f32 $0, $1; // a comment {", 1),
    (DType::F32, "add.f32 $0, $2, $3; mul.f32 $1, $2, $3;", 2),
    (DType::I64, "neg.s64 $0, $1;", 1),
    (DType::F64, "sqrt.rn.f64 $0, $1;", 1),
];

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

/// A kernel that stores what a text makes of a tile, or of a lane's element.
fn kernel(kind: &str, dtype: DType, text: &str, pack: u32, op: &str) -> TileFunc {
    let pack = if pack > 1 { format!(", pack = {pack}") } else { String::new() };
    let (at, extent, ty) = match kind {
        "lane" => ("tile.linear_id", 0, dtype.to_string()),
        _ => ("tile.program_id {axis = 0}", 97, format!("tile<97x{dtype}>")),
    };
    let mut body = format!("  %p = {at} : i64\n");
    let _ = match kind {
        "lane" => writeln!(body, "  %one = tile.const {{value = 1}} : i64"),
        _ => writeln!(body, "  %one = tile.const {{value = 97}} : i64"),
    };
    let _ = writeln!(
        body,
        "  %i = tile.mul %p, %one : i64
  %t = tile.load %x at(%i) {{extent = [{extent}]}} : {ty}
  %r = tile.{op} %t {{text = {}, target = ptx{pack}}} : {ty}
  tile.store %y, %r at(%i) {{extent = [{extent}]}}
  tile.return",
        quoted(text)
    );
    let geometry = if kind == "lane" { "domain = n" } else { "grid = [cdiv(n, 97)]" };
    let func = format!(
        "func @k(%x: view<[n], {dtype}, read>, %y: view<[n], {dtype}, write>) {{kind = {kind}, {geometry}}} {{\n{body}}}\n"
    );
    tessera_tile::parse(&func).unwrap_or_else(|e| panic!("{func}\n{e}"))
}

fn code(func: &TileFunc, caps: &PtxCaps) -> Module {
    let frame = Frame::new(func).unwrap();
    let code = compile(func, caps, Profile::Default, &usual_classes(&frame));
    code.unwrap_or_else(|e| panic!("{func}\n{e}")).module
}

fn targets() -> [&'static PtxCaps; 3] {
    [(80, false), (90, true), (100, true)].map(|(sm, exact)| PtxCaps::of(sm, exact).unwrap())
}

fn texts(module: &Module) -> usize {
    module.kernels[0].instructions().filter(|i| matches!(i, Inst::Text { .. })).count()
}

#[test]
fn texts_of_every_dtype_are_valid_and_assembled() {
    let tools = tools();
    for caps in targets() {
        for &(dtype, text, pack) in TEXTS {
            for kind in ["group", "lane"] {
                for op in ["asm", "asm_effect"] {
                    if op == "asm_effect" && pack > 1 {
                        continue;
                    }
                    let func = kernel(kind, dtype, text, pack, op);
                    let module = code(&func, caps);
                    verify::verify(&module).unwrap();
                    assert!(texts(&module) > 0, "{}", module.text());
                    if let Some(tools) = &tools {
                        let done = tools.assemble(&module).unwrap();
                        assert!(done.cubin.is_some(), "{}\n{}", done.words, module.text());
                    }
                }
            }
        }
    }
}

/// The emulated GPU runs no text, and neither does `strict`.
#[test]
fn texts_are_for_gpus_alone() {
    let func = kernel("lane", DType::F32, "neg.f32 $0, $1;", 1, "asm");
    let classes = usual_classes(&Frame::new(&func).unwrap());
    for caps in targets() {
        let refused = [
            compile_emulated(&func, caps, Profile::Default, &classes),
            compile(&func, caps, Profile::Strict, &classes),
        ];
        for (made, name) in refused.into_iter().zip(["the emulated GPU", "strict"]) {
            let error = made.err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(name) && error.contains("E_UNSUPPORTED"), "{error}");
        }
    }
}

#[test]
fn packed_texts_take_fewer_runs() {
    let caps = targets()[1];
    let count = |pack, text| texts(&code(&kernel("group", DType::F16, text, pack, "asm"), caps));
    let (single, double) = (count(1, "neg.f16 $0, $1;"), count(2, "neg.f16x2 $0, $1;"));
    assert_eq!(single.div_ceil(2), double);
}

/// A line of the assembler's log is one of the kernel: it is that of the text that stands there.
#[test]
fn an_error_of_the_assembler_is_at_the_text() {
    let func = kernel("lane", DType::I32, "neg.s32 $0, $1;\n  popcount.b32 $0, $1;", 1, "asm");
    let module = code(&func, targets()[0]);
    let shown = module.text_without_places();
    let line = shown.lines().position(|l| l.contains("popcount")).unwrap() + 1;
    let log = format!(
        "ptxas k.ptx, line {line}; error   : Not a name of any known instruction: 'popcount'"
    );
    let error = refused_text(&module, &func, &[log]).expect("the line is the text's");
    assert!(error.message.contains("'popcount'"), "{error}");
    let asm = shown.lines().count();
    for other in [1, 2, asm, asm + 7] {
        let log = format!("ptxas k.ptx, line {other}; error   : something");
        assert!(refused_text(&module, &func, &[log]).is_none(), "line {other}");
    }
    let Some(tools) = tools() else { return };
    let done = tools.assemble_text(&shown, module.target, &[]).unwrap();
    let log: Vec<String> = done.words.lines().map(String::from).collect();
    assert!(refused_text(&module, &func, &log).is_some(), "{}", done.words);
}
