//! Register moves of accumulators.

use tessera_ptx::inner::accumulators;
use tessera_ptx::*;

const ROW: WgmmaRow = WgmmaRow { n: 8, k: 16, a: Ty::BF16, b: Ty::BF16, c: Ty::F32, sat: false };

fn four(asm: &mut Asm) -> Vec<Reg> {
    (0..4).map(|_| asm.reg(Class::B32)).collect()
}

fn wgmma(asm: &mut Asm, d: &[Reg], a: Option<[Reg; 4]>, add: i64) {
    let b = asm.mov(Ty::B64, Opnd::Int(0));
    asm.emit(Inst::Wgmma {
        row: ROW,
        d: d.to_vec(),
        a: a.map_or(WgmmaA::Shared(b), WgmmaA::Regs),
        b,
        add: Opnd::Int(add),
        neg_a: false,
        neg_b: false,
        trans_a: false,
        trans_b: false,
    });
    asm.emit(Inst::WgmmaCommit);
    asm.emit(Inst::WgmmaWait { groups: 0 });
}

fn store(asm: &mut Asm, regs: &[Reg]) {
    let at = asm.mov(Ty::B32, Opnd::Int(0));
    for &r in regs {
        asm.st(Space::Shared, Ty::B32, &[r.into()], Addr::reg(at, 0), Cache::Usual);
    }
}

fn moves(to: &[Reg], from: &[Reg], asm: &mut Asm) {
    for (&d, &a) in to.iter().zip(from) {
        asm.mov_to(Ty::B32, d, a);
    }
}

/// How many register moves are left.
fn left(asm: Asm) -> usize {
    let mut kernel = asm.kernel;
    accumulators(&mut kernel);
    let reg = |inst: &&Inst| matches!(inst, Inst::Mov { a: Opnd::Reg(_), .. });
    kernel.instructions().filter(reg).count()
}

/// An accumulator that a branch passes on, or zeros, and a last MMA.
fn branch(asm: &mut Asm, read_again: bool) -> [Vec<Reg>; 3] {
    let [first, handed, last] = [four(asm), four(asm), four(asm)];
    let [none, done] = [asm.label(), asm.label()];
    let any = asm.mov(Ty::Pred, Opnd::Int(1));
    asm.when(any, false, |asm| asm.emit(Inst::Bra { to: none, uniform: true }));
    wgmma(asm, &first, None, 0);
    moves(&handed, &first, asm);
    asm.emit(Inst::Bra { to: done, uniform: true });
    asm.place(none);
    handed.iter().for_each(|&r| asm.mov_to(Ty::B32, r, Opnd::Int(0)));
    asm.place(done);
    moves(&last, &handed, asm);
    wgmma(asm, &last, None, 1);
    store(asm, &last);
    if read_again {
        store(asm, &handed);
    }
    [first, handed, last]
}

#[test]
fn accumulators_that_branches_pass_on_stay_in_place() {
    let mut asm = Asm::new(Kernel::new("case", 128));
    branch(&mut asm, false);
    assert_eq!(left(asm), 0);
}

#[test]
fn accumulators_that_are_read_later_keep_their_registers() {
    let mut asm = Asm::new(Kernel::new("case", 128));
    branch(&mut asm, true);
    assert_eq!(left(asm), 4);
}

#[test]
fn register_operands_of_wgmma_are_not_touched() {
    let mut asm = Asm::new(Kernel::new("case", 128));
    let [sums, words, next] = [four(&mut asm), four(&mut asm), four(&mut asm)];
    wgmma(&mut asm, &sums, None, 0);
    moves(&words, &sums, &mut asm);
    wgmma(&mut asm, &next, Some([words[0], words[1], words[2], words[3]]), 0);
    store(&mut asm, &next);
    assert_eq!(left(asm), 4);
}

/// The first WGMMA is in flight where its accumulator is reinitialised, and its result is dead
/// there.
#[test]
fn accumulators_of_a_wgmma_in_flight_are_not_overwritten() {
    for waited in [true, false] {
        let mut asm = Asm::new(Kernel::new("case", 128));
        let [first, last] = [four(&mut asm), four(&mut asm)];
        let [none, done] = [asm.label(), asm.label()];
        let any = asm.mov(Ty::Pred, Opnd::Int(1));
        wgmma(&mut asm, &first, None, 0);
        if !waited {
            asm.kernel.body.pop();
        }
        asm.when(any, false, |asm| asm.emit(Inst::Bra { to: none, uniform: true }));
        asm.emit(Inst::WgmmaWait { groups: 0 });
        moves(&last, &first, &mut asm);
        asm.emit(Inst::Bra { to: done, uniform: true });
        asm.place(none);
        last.iter().for_each(|&r| asm.mov_to(Ty::B32, r, Opnd::Int(0)));
        asm.place(done);
        wgmma(&mut asm, &last, None, 1);
        store(&mut asm, &last);
        assert_eq!(left(asm), if waited { 0 } else { 4 });
    }
}

#[test]
fn one_register_for_the_whole_accumulator_has_no_position() {
    let mut asm = Asm::new(Kernel::new("case", 128));
    let (zero, sums) = (asm.mov(Ty::B32, Opnd::Int(0)), four(&mut asm));
    moves(&sums, &[zero; 4], &mut asm);
    wgmma(&mut asm, &sums, None, 1);
    store(&mut asm, &sums);
    assert_eq!(left(asm), 4);
}

#[test]
fn positions_in_an_accumulator_do_not_change() {
    let mut asm = Asm::new(Kernel::new("case", 128));
    let [first, last] = [four(&mut asm), four(&mut asm)];
    wgmma(&mut asm, &first, None, 0);
    let reversed: Vec<Reg> = first.iter().rev().copied().collect();
    moves(&last, &reversed, &mut asm);
    wgmma(&mut asm, &last, None, 1);
    store(&mut asm, &last);
    assert_eq!(left(asm), 4);
}
