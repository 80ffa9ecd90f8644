//! What is counted in machine code.

use tessera_ptx::Target;
use tessera_ptx::count::{Count, from_code, from_words};

#[test]
fn counts_are_read_from_the_assemblers_words() {
    let words = "ptxas info    : 0 bytes gmem\n\
        ptxas info    : Compiling entry function 'one' for 'sm_90a'\n\
        ptxas info    : Function properties for one\n    \
        8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n\
        ptxas info    : Used 168 registers, used 1 barriers, 1024 bytes smem, 400 bytes cmem[0]\n\
        ptxas info    : Compiling entry function 'two' for 'sm_90a'\n\
        ptxas info    : Used 10 registers, used 0 barriers\n";
    let target = Target { sm: 90, exact: true };
    let rows: Vec<String> = from_words(words, target).iter().map(Count::to_string).collect();
    let one = "one sm_90a: 168 registers, 8 bytes of stack, 4 bytes spilled, \
        12 bytes filled, 1024 bytes shared";
    assert_eq!(rows, [one, "two sm_90a: 10 registers"]);
}

#[test]
fn mnemonics_are_read_from_a_listing() {
    let listing = "\t.section\t.text.k,\"ax\"\n.text.k:\n\
                /*0000*/                   LDC R1, c[0x0][0x28] ;\n\
                /*0010*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;\n\
                /*0020*/                   EXIT ;\n\
        .L_x_0:\n\
                /*0030*/                   BRA `(.L_x_0);\n\
                /*0040*/                   NOP;\n";
    let code = from_code(listing);
    let seen: Vec<_> = code["k"].iter().map(|(m, n)| format!("{m} {n}")).collect();
    assert_eq!(seen, ["BRA 1", "EXIT 1", "LDC 1", "LDG 1"]);
}
