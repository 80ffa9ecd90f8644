use super::async_copy::{Line, lines};
use super::*;
use tessera_numerics::{DType, Rounding, Scalar, decode, encode};

/// The layout of an operand of `wide` rows (or columns) and `deep` k in shared memory.
#[derive(Copy, Clone, Debug)]
struct Layout {
    wide: usize,
    deep: usize,
    size: usize,
    span: usize,
    /// MN-major: k is not the contiguous axis.
    trans: bool,
}

impl Layout {
    /// The byte offset of an element, as TMA would place it.
    fn at(self, i: usize, k: usize) -> usize {
        let Layout { wide, deep, size, span, trans } = self;
        let (line, along) = if trans { (k, i) } else { (i, k) };
        let lines = if trans { deep } else { wide };
        if span == 0 {
            // Core matrices of eight rows of 16 bytes; those along a row first.
            let per = 16 / size;
            let bricks = if trans { wide } else { deep } / per;
            return (line / 8 * bricks + along / per) * 128 + line % 8 * 16 + along % per * size;
        }
        // Panels as wide as the swizzle span, one after another.
        let per = span / size;
        let offset = along / per * lines * span + line * span + along % per * size;
        offset ^ (offset >> 7 & (span / 16 - 1)) << 4
    }

    fn bytes(self) -> usize {
        self.wide * self.deep * self.size
    }

    /// The descriptor of the part that begins at `k`, without the tile's own address.
    fn describe(self, k: usize) -> u64 {
        let Layout { wide, deep, size, span, trans } = self;
        let layout = match span {
            0 => 0u64,
            128 => 1,
            64 => 2,
            _ => 3,
        };
        let per = 16 / size;
        let (leading, stride, start) = match (trans, span) {
            (false, 0) => (128, deep / per * 128, k / per * 128),
            (true, 0) => (wide / per * 128, 128, k / 8 * (wide / per * 128)),
            // Within the span the address advances by bytes; the swizzle applies to whole
            // addresses.
            (false, s) => (16, 8 * s, k * size % s + k * size / s * wide * s),
            (true, s) => (deep * s, 8 * s, k * s),
        };
        (start as u64 >> 4)
            | (leading as u64 >> 4) << 16
            | (stride as u64 >> 4) << 32
            | layout << 62
    }
}

struct Case {
    row: WgmmaRow,
    a: Layout,
    b: Layout,
    a_in_registers: bool,
    /// Which of the required instructions is left out.
    without: &'static str,
}

/// Threads write images of both tiles to shared memory, multiply, and store their accumulator
/// registers.
fn build(case: &Case) -> Asm {
    let row = case.row;
    let mut asm = kernel(128, 3);
    let tid = asm.special(Special::TidX);
    let tiles = [("a", case.a.bytes()), ("b", case.b.bytes())].map(|(name, bytes)| {
        let tile = asm.shared(name, bytes as u32, 1024);
        let base = asm.address_of(&tile);
        let from = arg(&mut asm, if name == "a" { 0 } else { 1 });
        let to = asm.int(Alu::MadLo, Ty::U32, &[tid.into(), 4.into(), base.into()]);
        let at = asm.int(Alu::MadWide, Ty::U32, &[tid.into(), 4.into(), from.into()]);
        for i in 0..bytes as i64 / 512 {
            let x = asm.ld(Space::Global, Ty::B32, 1, Addr::reg(at, 512 * i), Cache::Usual)[0];
            asm.st(Space::Shared, Ty::B32, &[x.into()], Addr::reg(to, 512 * i), Cache::Usual);
        }
        base
    });
    if case.without != "proxy fence" {
        asm.emit(Inst::FenceProxyAsync);
    }
    asm.barrier();
    let d: Vec<Reg> = (0..row.regs()).map(|_| asm.mov(Ty::B32, 0)).collect();
    let steps = case.a.deep / row.k as usize;
    let fragments: Vec<[Reg; 4]> = (0..steps)
        .map(|step| {
            if !case.a_in_registers {
                return [d[0]; 4];
            }
            // By hand, from unswizzled rows after the image.
            let from = arg(&mut asm, 0);
            let lane = asm.special(Special::LaneId);
            let warp = asm.int(Alu::Shr, Ty::U32, &[tid.into(), 5.into()]);
            let g = asm.int(Alu::Shr, Ty::U32, &[lane.into(), 2.into()]);
            let t = asm.int(Alu::And, Ty::B32, &[lane.into(), 3.into()]);
            let r = asm.int(Alu::MadLo, Ty::U32, &[warp.into(), 16.into(), g.into()]);
            let pitch = (case.a.deep * case.a.size) as i64;
            let at = asm.int(Alu::MulLo, Ty::U32, &[r.into(), pitch.into()]);
            let at = asm.int(Alu::MadLo, Ty::U32, &[t.into(), 4.into(), at.into()]);
            let at = asm.int(Alu::MadWide, Ty::U32, &[at.into(), 1.into(), from.into()]);
            let first = case.a.bytes() as i64 + 32 * step as i64;
            std::array::from_fn(|i| {
                let offset = first + pitch * 8 * (i as i64 % 2) + 16 * (i as i64 / 2);
                asm.ld(Space::Global, Ty::B32, 1, Addr::reg(at, offset), Cache::Usual)[0]
            })
        })
        .collect();
    if case.without != "fence" {
        asm.emit(Inst::WgmmaFence);
    }
    let describe = |asm: &mut Asm, base: Reg, bits: u64| {
        let low = asm.int(Alu::And, Ty::B32, &[base.into(), 0x3FFFF.into()]);
        let low = asm.int(Alu::Shr, Ty::U32, &[low.into(), 4.into()]);
        let wide = asm.cvt(Ty::U64, Ty::U32, None, low);
        asm.int(Alu::Add, Ty::U64, &[wide.into(), Opnd::Int(bits as i64)])
    };
    for (step, regs) in fragments.iter().enumerate() {
        let k = step * row.k as usize;
        let a = match case.a_in_registers {
            true => WgmmaA::Regs(*regs),
            false => WgmmaA::Shared(describe(&mut asm, tiles[0], case.a.describe(k))),
        };
        let b = describe(&mut asm, tiles[1], case.b.describe(k));
        asm.emit(Inst::Wgmma {
            row,
            d: d.clone(),
            a,
            b,
            add: Opnd::Int((step > 0) as i64),
            neg_a: false,
            neg_b: false,
            trans_a: case.a.trans,
            trans_b: case.b.trans,
        });
    }
    asm.emit(Inst::WgmmaCommit);
    if case.without == "tile" {
        let zero = [Opnd::Int(0)];
        asm.st(Space::Shared, Ty::B32, &zero, Addr::reg(tiles[1], 0), Cache::Usual);
    }
    if case.without != "wait" {
        asm.emit(Inst::WgmmaWait { groups: 0 });
    }
    let at = element(&mut asm, 2, 4);
    for (i, d) in d.iter().enumerate() {
        asm.st(Space::Global, Ty::B32, &[(*d).into()], Addr::reg(at, 512 * i as i64), Cache::Usual);
    }
    asm
}

fn value(ty: Ty, code: u64) -> f32 {
    let dt = match ty {
        Ty::F16 => DType::F16,
        Ty::BF16 => DType::BF16,
        Ty::E4M3 => DType::Fp8E4M3,
        Ty::E5M2 => DType::Fp8E5M2,
        Ty::S8 => DType::I8,
        Ty::U8 => DType::U8,
        _ => return f32::from_bits(code as u32),
    };
    decode(dt, code).as_f64() as f32
}

fn code_of(ty: Ty, x: f64) -> u64 {
    let dt = match ty {
        Ty::F16 => DType::F16,
        Ty::BF16 => DType::BF16,
        Ty::E4M3 => DType::Fp8E4M3,
        Ty::E5M2 => DType::Fp8E5M2,
        Ty::S8 => return x as i64 as u8 as u64,
        Ty::U8 => return x.abs() as u64,
        _ => return (x as f32).to_bits() as u64,
    };
    encode(dt, Scalar::F64(x), Rounding::Rne, true)
}

/// The bytes of a tile, and its codes.
fn image(draw: &mut Draw, ty: Ty, layout: Layout) -> (Vec<u8>, Vec<u64>) {
    let mut bytes = vec![0; layout.bytes()];
    let mut codes = vec![0; layout.wide * layout.deep];
    for (i, k) in (0..layout.wide).flat_map(|i| (0..layout.deep).map(move |k| (i, k))) {
        let code = code_of(ty, (draw.next() % 33) as f64 / 4.0 - 4.0);
        codes[i * layout.deep + k] = code;
        let at = layout.at(i, k);
        bytes[at..at + layout.size].copy_from_slice(&code.to_le_bytes()[..layout.size]);
    }
    (bytes, codes)
}

fn run_case(case: &Case, options: &Options) -> Result<(), Fault> {
    let row = case.row;
    let mut draw = Draw(17);
    let (mut a_bytes, a) = image(&mut draw, row.a, case.a);
    let (b_bytes, b) = image(&mut draw, row.b, case.b);
    a_bytes.extend(a.iter().flat_map(|c| c.to_le_bytes()[..case.a.size].to_vec()));
    let (a_lines, b_lines): (Vec<Line>, Vec<Line>) = (lines(&a_bytes), lines(&b_bytes));
    let mut out = vec![0u32; 128 * row.regs()];
    let mut memory = Memory::new();
    let words = [memory.share(&a_lines), memory.share(&b_lines), memory.lend(&mut out)];
    launch(build(case), 1, &words, &memory, options)?;
    drop(memory);
    let (n, deep) = (row.n as usize, case.a.deep);
    for (r, c) in (0..64).flat_map(|r| (0..n).map(move |c| (r, c))) {
        // Row r belongs to warp r / 16; pairs of columns belong to the threads of a quad.
        let lane = (r % 8) * 4 + c % 8 / 2;
        let thread = r / 16 * 32 + lane;
        let i = c / 8 * 4 + r % 16 / 8 * 2 + c % 2;
        let pairs =
            (0..deep).map(|k| (value(row.a, a[r * deep + k]), value(row.b, b[c * deep + k])));
        let (got, want) = match row.c {
            Ty::S32 => {
                let sum: i32 = pairs.map(|(x, y)| x as i32 * y as i32).sum();
                (out[i * 128 + thread], sum as u32)
            }
            Ty::F16 => {
                // Rounded after every instruction.
                let mut sum = 0f32;
                for (k, (x, y)) in pairs.enumerate() {
                    sum = x.mul_add(y, sum);
                    if (k + 1).is_multiple_of(row.k as usize) {
                        sum = value(Ty::F16, encode(DType::F16, sum.into(), Rounding::Rne, false));
                    }
                }
                let word = out[i / 2 * 128 + thread];
                (word >> (16 * (i % 2)) & 0xFFFF, code_of(Ty::F16, sum as f64) as u32)
            }
            _ => {
                let sum = pairs.fold(0f32, |s, (x, y)| x.mul_add(y, s));
                (out[i * 128 + thread], sum.to_bits())
            }
        };
        assert_eq!(got, want, "{row:?} {:?} {:?} at {r}, {c}", case.a, case.b);
    }
    Ok(())
}

fn case(ty: Ty, c: Ty, n: u32, span: usize, trans: (bool, bool)) -> Case {
    let size = ty.bits() as usize / 8;
    let k = 256 / ty.bits();
    let deep = 2 * k as usize * (128 / 64);
    let row = WgmmaRow { n, k, a: ty, b: ty, c, sat: false };
    let a = Layout { wide: 64, deep, size, span, trans: trans.0 };
    let b = Layout { wide: n as usize, deep, size, span, trans: trans.1 };
    Case { row, a, b, a_in_registers: false, without: "" }
}

#[test]
fn warpgroups_multiply_from_every_layout() {
    let options = Options { races: true, ..Options::default() };
    let early = Options { copies: Copies::Early, ..options.clone() };
    for span in [128, 64, 32, 0] {
        for trans in [(false, false), (true, false), (false, true), (true, true)] {
            let case = case(Ty::BF16, Ty::F32, 64, span, trans);
            run_case(&case, &options).unwrap_or_else(|f| panic!("{span} {trans:?} {f}"));
        }
        for (ty, c) in
            [(Ty::E4M3, Ty::F32), (Ty::S8, Ty::S32), (Ty::U8, Ty::S32), (Ty::Tf32, Ty::F32)]
        {
            let case = case(ty, c, 32, span, (false, false));
            run_case(&case, &options).unwrap_or_else(|f| panic!("{ty:?} {span} {f}"));
        }
    }
    for n in [8, 24, 256] {
        run_case(&case(Ty::F16, Ty::F16, n, 128, (false, false)), &early)
            .unwrap_or_else(|f| panic!("{f}"));
    }
    for ty in [Ty::F16, Ty::E5M2, Ty::Tf32] {
        let case = Case { a_in_registers: true, ..case(ty, Ty::F32, 16, 128, (false, false)) };
        run_case(&case, &options).unwrap_or_else(|f| panic!("{f}"));
    }
}

#[test]
fn registers_of_a_wgmma_in_flight_are_not_touched() {
    for (without, kind) in [
        ("proxy fence", FaultKind::Unfenced),
        ("fence", FaultKind::Unfenced),
        ("wait", FaultKind::InFlight),
        ("tile", FaultKind::InFlight),
    ] {
        for copies in [Copies::Late, Copies::Early] {
            let case = Case { without, ..case(Ty::BF16, Ty::F32, 16, 128, (false, false)) };
            let f = run_case(&case, &Options { copies, ..Options::default() });
            let f = f.err().unwrap_or_else(|| panic!("{without}"));
            assert_eq!(f.kind, kind, "{without}: {f}");
        }
    }
}
