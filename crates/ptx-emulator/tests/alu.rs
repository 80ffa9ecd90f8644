use super::*;
use tessera_ptx_emulator::inner::alu::{AluSpec, arity, eval};
use tessera_ptx_emulator::inner::fast::{self, Row};
use tessera_ptx_emulator::inner::float::Mods;

const PLAIN: Mods = Mods { round: None, ftz: false, sat: false };

fn int(op: Alu, ty: Ty, x: &[u64]) -> u64 {
    let mut a = [0; 4];
    a[..x.len()].copy_from_slice(x);
    assert_eq!(arity(op, ty), Some(x.len()), "{op:?} {ty:?}");
    let bits = match op {
        Alu::MulWide | Alu::MadWide => ty.bits() * 2,
        _ => ty.bits(),
    };
    eval(AluSpec { op, ty, mods: PLAIN }, a) & tessera_ptx_emulator::inner::alu::mask(bits)
}

#[test]
fn integers_wrap_and_multiply() {
    assert_eq!(int(Alu::Add, Ty::U32, &[u32::MAX as u64, 2]), 1);
    assert_eq!(int(Alu::Sub, Ty::S16, &[0, 1]), 0xFFFF);
    assert_eq!(int(Alu::MulLo, Ty::U64, &[u64::MAX, 3]), u64::MAX - 2);
    assert_eq!(int(Alu::MulHi, Ty::U64, &[u64::MAX, u64::MAX]), u64::MAX - 1);
    assert_eq!(int(Alu::MulHi, Ty::S64, &[u64::MAX, 2]), u64::MAX);
    assert_eq!(int(Alu::MulHi, Ty::S32, &[0xFFFF_FFFF, 2]), 0xFFFF_FFFF);
    assert_eq!(int(Alu::MulHi, Ty::U32, &[0xFFFF_FFFF, 2]), 1);
    assert_eq!(int(Alu::MulWide, Ty::S32, &[0xFFFF_FFFF, 2]), -2i64 as u64);
    assert_eq!(int(Alu::MulWide, Ty::U16, &[0xFFFF, 0xFFFF]), 0xFFFE_0001);
    assert_eq!(int(Alu::MadWide, Ty::S32, &[0xFFFF_FFFF, 2, 5]), 3);
    assert_eq!(int(Alu::MadLo, Ty::U16, &[300, 300, 1]), 90001 & 0xFFFF);
    assert_eq!(int(Alu::Div, Ty::S32, &[-7i32 as u32 as u64, 2]), -3i32 as u32 as u64);
    assert_eq!(int(Alu::Rem, Ty::S32, &[-7i32 as u32 as u64, 2]), -1i32 as u32 as u64);
    assert_eq!(int(Alu::Div, Ty::S32, &[0x8000_0000, 0xFFFF_FFFF]), 0x8000_0000);
    assert_eq!(int(Alu::Rem, Ty::S64, &[1 << 63, u64::MAX]), 0);
    assert_eq!(int(Alu::Div, Ty::U32, &[5, 0]), 0xFFFF_FFFF);
    assert_eq!(int(Alu::Min, Ty::S32, &[0xFFFF_FFFF, 1]), 0xFFFF_FFFF);
    assert_eq!(int(Alu::Max, Ty::U32, &[0xFFFF_FFFF, 1]), 0xFFFF_FFFF);
    assert_eq!(int(Alu::Abs, Ty::S32, &[0x8000_0000]), 0x8000_0000);
    assert_eq!(int(Alu::Neg, Ty::S16, &[1]), 0xFFFF);
    let sat = Mods { sat: true, ..PLAIN };
    let add = AluSpec { op: Alu::Add, ty: Ty::S32, mods: sat };
    assert_eq!(eval(add, [0x7FFF_FFFF, 1, 0, 0]) as u32, 0x7FFF_FFFF);
    assert_eq!(eval(add, [0x8000_0000, 0xFFFF_FFFF, 0, 0]) as u32, 0x8000_0000);
}

#[test]
fn shifts_clamp_at_the_width() {
    assert_eq!(int(Alu::Shl, Ty::B32, &[1, 31]), 0x8000_0000);
    assert_eq!(int(Alu::Shl, Ty::B32, &[1, 32]), 0);
    assert_eq!(int(Alu::Shl, Ty::B64, &[1, 63]), 1 << 63);
    assert_eq!(int(Alu::Shl, Ty::B16, &[1, 16]), 0);
    assert_eq!(int(Alu::Shr, Ty::U32, &[0x8000_0000, 33]), 0);
    assert_eq!(int(Alu::Shr, Ty::S32, &[0x8000_0000, 200]), 0xFFFF_FFFF);
    assert_eq!(int(Alu::Shr, Ty::S16, &[0x8000, 4]), 0xF800);
    assert_eq!(int(Alu::Shr, Ty::S64, &[1 << 63, 64]), u64::MAX);
    assert_eq!(int(Alu::ShfL, Ty::B32, &[0x8000_0000, 1, 1]), 3);
    assert_eq!(int(Alu::ShfL, Ty::B32, &[5, 7, 32]), 7, "amounts wrap");
    assert_eq!(int(Alu::ShfR, Ty::B32, &[1, 1, 1]), 0x8000_0000);
}

#[test]
fn bits_are_counted_extracted_and_permuted() {
    assert_eq!(int(Alu::Popc, Ty::B64, &[u64::MAX]), 64);
    assert_eq!(int(Alu::Clz, Ty::B32, &[0]), 32);
    assert_eq!(int(Alu::Clz, Ty::B64, &[1]), 63);
    assert_eq!(int(Alu::Brev, Ty::B32, &[1]), 0x8000_0000);
    assert_eq!(int(Alu::Bfe, Ty::U32, &[0xABCD_1234, 4, 8]), 0x23);
    assert_eq!(int(Alu::Bfe, Ty::S32, &[0x80, 4, 4]), 0xFFFF_FFF8);
    assert_eq!(int(Alu::Bfe, Ty::S32, &[0x8000_0000, 28, 8]), 0xFFFF_FFF8, "sign at the top");
    assert_eq!(int(Alu::Bfe, Ty::U32, &[0xFFFF_FFFF, 40, 8]), 0);
    assert_eq!(int(Alu::Bfe, Ty::S32, &[0xFFFF_FFFF, 40, 8]), 0xFFFF_FFFF);
    assert_eq!(int(Alu::Bfe, Ty::U64, &[u64::MAX, 0, 64]), u64::MAX);
    assert_eq!(int(Alu::Bfi, Ty::B32, &[0xF, 0, 28, 8]), 0xF000_0000);
    assert_eq!(int(Alu::Bfi, Ty::B32, &[0, 0xFFFF_FFFF, 8, 8]), 0xFFFF_00FF);
    assert_eq!(int(Alu::Prmt, Ty::B32, &[0x0706_0504, 0x8B0A_0908, 0x7041]), 0x8B04_0805);
    assert_eq!(int(Alu::Prmt, Ty::B32, &[0, 0x8000_0000, 0xFF8F]), 0xFFFF_00FF, "signs");
    assert_eq!(int(Alu::Lop3(0xE8), Ty::B32, &[0b1100, 0b1010, 0b0110]), 0b1110);
    assert_eq!(int(Alu::Dp4a, Ty::S32, &[0xFF01_0203, 0x0101_0101, 10]), 15);
    assert_eq!(int(Alu::Dp4a, Ty::U32, &[0xFF01_0203, 0x0101_0101, 10]), 271);
}

#[test]
fn carries_go_from_word_to_word() {
    let out = map([0xFFFF_FFFF; 32], |asm, x| {
        asm.int(Alu::AddCc, Ty::U32, &[x.into(), 1.into()]);
        asm.int(Alu::Addc, Ty::U32, &[5.into(), 0.into()])
    });
    assert_eq!(out, [6; 32]);
}

/// Vectorised operations equal their definition.
#[test]
fn fast_rows_agree_with_the_definition() {
    let mut draw = Draw(7);
    let tys = [Ty::B16, Ty::B32, Ty::U32, Ty::S32, Ty::B64, Ty::U64, Ty::S64, Ty::F32, Ty::F64];
    let mut seen = 0;
    for ty in tys {
        for op in all_alu() {
            for ftz in [false, true] {
                let round = ty.is_float().then_some(Round::Rn);
                let spec = AluSpec { op, ty, mods: Mods { round, ftz, sat: false } };
                let (Some(row), Some(_)) = (fast::alu(spec), arity(op, ty)) else { continue };
                seen += 1;
                for _ in 0..200 {
                    check_row(spec, row, &mut draw);
                }
            }
        }
    }
    assert!(seen > 80, "{seen}");
}

fn check_row(spec: AluSpec, row: Row, draw: &mut Draw) {
    let narrow = |d: &mut Draw| {
        let m = tessera_ptx_emulator::inner::alu::mask(spec.ty.bits().min(32)) as u32;
        [(); 32].map(|()| d.word() as u32 & m)
    };
    let wide = |d: &mut Draw| [(); 32].map(|()| d.word());
    let (n, v) = ([narrow(draw), narrow(draw), narrow(draw)], [wide(draw), wide(draw), wide(draw)]);
    let (mut on, mut ov) = ([0; 32], [0; 32]);
    let up = |x: [u32; 32]| x.map(u64::from);
    let (inputs, bits) = match row {
        Row::N1(f) => {
            f(&n[0], &mut on);
            ([up(n[0]); 3], 32)
        }
        Row::N2(f) => {
            f(&n[0], &n[1], &mut on);
            ([up(n[0]), up(n[1]), up(n[1])], 32)
        }
        Row::N3(f) => {
            f(&n[0], &n[1], &n[2], &mut on);
            ([up(n[0]), up(n[1]), up(n[2])], 32)
        }
        Row::W1(f) => {
            f(&v[0], &mut ov);
            ([v[0]; 3], 64)
        }
        Row::W2(f) => {
            f(&v[0], &v[1], &mut ov);
            ([v[0], v[1], v[1]], 64)
        }
        Row::W3(f) => {
            f(&v[0], &v[1], &v[2], &mut ov);
            (v, 64)
        }
        Row::WN(f) => {
            f(&v[0], &n[1], &mut ov);
            ([v[0], up(n[1]), v[0]], 64)
        }
        Row::Widen(f) => {
            f(&n[0], &mut ov);
            ([up(n[0]); 3], 64)
        }
        Row::NnW(f) => {
            f(&n[0], &n[1], &mut ov);
            ([up(n[0]), up(n[1]), v[0]], 64)
        }
        Row::NnwW(f) => {
            f(&n[0], &n[1], &v[2], &mut ov);
            ([up(n[0]), up(n[1]), v[2]], 64)
        }
        Row::Narrow(f) => {
            f(&v[0], &mut on);
            ([v[0]; 3], 32)
        }
    };
    let m =
        tessera_ptx_emulator::inner::alu::mask(bits.min(if bits == 32 && spec.ty.bits() == 16 {
            16
        } else {
            bits
        }));
    for lane in 0..32 {
        let x = inputs.map(|i| i[lane]);
        let want = eval(spec, [x[0], x[1], x[2], 0]) & m;
        let got = if bits == 32 { on[lane] as u64 } else { ov[lane] };
        assert_eq!(got, want, "{spec:?} of {x:x?}");
    }
}

fn all_alu() -> Vec<Alu> {
    use Alu::*;
    vec![
        Add,
        Sub,
        Mul,
        MulLo,
        MulHi,
        MulWide,
        MadLo,
        MadWide,
        Fma,
        Div,
        Rem,
        Neg,
        Abs,
        Min,
        Max,
        MinNan,
        MaxNan,
        And,
        Or,
        Xor,
        Not,
        Shl,
        Shr,
        Sqrt,
        Rcp,
        Popc,
        Clz,
        Brev,
        Bfe,
        Prmt,
        ShfL,
        ShfR,
        Lop3(0x80),
        Lop3(0x96),
        Lop3(0xEA),
        Lop3(0xF8),
        CopySign,
    ]
}
