//! Code that results come from.

use std::collections::BTreeSet;
use tessera_ptx::inner::part_for;
use tessera_ptx::*;

fn code(write: impl FnOnce(&mut Asm) -> [Reg; 3]) -> (Vec<Stmt>, [Reg; 3]) {
    let mut asm = Asm::new(Kernel::new("case", 32));
    let regs = write(&mut asm);
    (asm.kernel.body, regs)
}

#[test]
fn what_results_come_from_is_left() {
    let (body, [a, b, x]) = code(|asm| {
        let x = asm.reg(Class::B32);
        let y = asm.reg(Class::B32);
        let a = asm.float(Alu::Add, Ty::F32, &[x.into(), x.into()]);
        let b = asm.float(Alu::Add, Ty::F32, &[y.into(), a.into()]);
        [a, b, x]
    });
    let none = BTreeSet::new();
    assert_eq!(part_for(&body, &[a], &none).map(|c| c.len()), Some(1));
    assert_eq!(part_for(&body, &[b], &none).map(|c| c.len()), Some(2));
    assert_eq!(part_for(&body, &[b], &BTreeSet::from([x])), None);
}

#[test]
fn code_that_is_not_straight_stays_whole() {
    let (body, [a, ..]) = code(|asm| {
        let x = asm.reg(Class::B32);
        let label = asm.label();
        let a = asm.float(Alu::Add, Ty::F32, &[x.into(), x.into()]);
        asm.place(label);
        [a, a, x]
    });
    assert_eq!(part_for(&body, &[a], &BTreeSet::new()), None);
}
