//! What large matmuls assemble to: registers and instructions.

use super::form::{Form, tile_func};
use crate::assembler::{blessing, folder, tools};
use tessera_numerics::{DType, Profile};
use tessera_ptx::count::{count, ratchet};
use tessera_ptx::{Code, PtxCaps, compile, usual_classes, verify};
use tessera_target::frame::Frame;

fn code(form: &Form, sm: u32) -> Code {
    let func = tile_func(&form.text());
    let classes = usual_classes(&Frame::new(&func).unwrap());
    let caps = PtxCaps::of(sm, false).unwrap();
    compile(&func, caps, Profile::Default, &classes).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn large_matmuls_keep_their_accumulators_in_registers() {
    let tools = tools();
    let mut rows = Vec::new();
    let all = [
        (DType::BF16, (128, 128, 64), 80),
        (DType::BF16, (128, 256, 64), 80),
        (DType::BF16, (128, 128, 64), 90),
        (DType::BF16, (128, 256, 64), 90),
        (DType::F32, (128, 128, 16), 80),
        (DType::F64, (64, 64, 16), 90),
        (DType::I8, (128, 128, 64), 80),
    ];
    for (dtype, tile, sm) in all {
        let code = code(&Form::new(dtype, tile), sm);
        verify(&code.module).unwrap_or_else(|errors| panic!("{}", errors.render()));
        let Some(tools) = &tools else { continue };
        let (m, n, k) = tile;
        for c in count(tools, &code.module).unwrap() {
            assert_eq!((c.stack, c.spill_stores), (0, 0), "{dtype} {tile:?} sm_{sm}");
            rows.push(format!("{dtype} {m}x{n}x{k} {c}"));
        }
    }
    if tools.is_some() {
        let file = folder("gemm").join("ratchet.txt");
        ratchet(&file, &rows, blessing()).unwrap_or_else(|e| panic!("{e}"));
    }
}
