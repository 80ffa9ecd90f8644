//! One MMA of whole tiles, which threads write to shared memory first.

use super::form::{Case, array, frag, loads, smem, widest};
use tessera_layout::{Layout, Shared};
use tessera_numerics::{DType, Profile};
use tessera_ptx::Code;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum From {
    Shared,
    Registers,
}

#[derive(Clone, Debug)]
pub struct Single {
    pub a: DType,
    pub b: DType,
    pub acc: DType,
    pub shape: (u32, u32, u32),
    /// Whether an operand is MN-major in shared memory, not K-major.
    pub transposed: (bool, bool),
    pub from: From,
    pub warps: u32,
    pub layout: Option<Layout>,
    /// Results are cast and stored through shared memory, row-major or column-major.
    pub out: Option<(DType, bool)>,
    pub class: Option<&'static str>,
    pub profile: Profile,
    /// Unswizzled rows of shared memory.
    pub plain: bool,
    /// The number of WGMMA instructions, where it is not that of `expected`.
    pub calls: Option<usize>,
}

impl Single {
    pub fn new(m: u32, n: u32, k: u32) -> Self {
        Self {
            a: DType::BF16,
            b: DType::BF16,
            acc: DType::F32,
            shape: (m, n, k),
            transposed: (false, false),
            from: From::Shared,
            warps: 4,
            layout: None,
            out: None,
            class: None,
            profile: Profile::Default,
            plain: false,
            calls: None,
        }
    }

    pub fn of(dtype: DType, m: u32, n: u32, k: u32) -> Self {
        let acc = tessera_tile::ops::mma::accumulator(dtype, dtype).unwrap();
        Self { a: dtype, b: dtype, acc, ..Self::new(m, n, k) }
    }

    fn acc_layout(&self) -> Layout {
        let (m, n, _) = self.shape;
        self.layout.clone().unwrap_or_else(|| Layout::mma_acc(&[m, n], [self.warps, 1]))
    }

    /// The number of WGMMA instructions where warpgroups split M.
    pub fn expected(&self) -> usize {
        let (m, n, k) = self.shape;
        let integers = self.acc == DType::I32;
        let mut columns = 0;
        let mut left = n;
        while left > 0 {
            let even = (left / 8).div_ceil(left.div_ceil(256)) * 8;
            left -= if integers && even > 24 && even % 16 != 0 { even - 8 } else { even };
            columns += 1;
        }
        let rows = (m / 64).div_ceil(self.warps / 4);
        (rows * columns * k * self.a.bytes() as u32 / 32) as usize
    }

    pub fn case(&self) -> Case {
        let Self { a, b, acc, shape: (m, n, k), transposed, warps, .. } = *self;
        let layout = self.acc_layout();
        let sum = frag([m, n], acc, &layout);
        let order = |transposed: bool| if transposed { [0, 1] } else { [1, 0] };
        // Bytes are K-major, and k is the first dim of `b`.
        let form = |shape: [u32; 2], order: [usize; 2], dtype: DType| match self.plain {
            true => Shared::ordered(&shape, &order, dtype.bytes() as u32),
            false => widest(shape, order, dtype.bytes() as u32),
        };
        let sa = smem([m, k], a, &form([m, k], order(transposed.0), a));
        let sb = smem([k, n], b, &form([k, n], order(!transposed.1), b));
        let la = match self.from {
            From::Shared => loads([m, k], a, warps),
            From::Registers => Layout::mma_a(&layout, k, a.bits()),
        };
        let (ta, tb) = (frag([m, k], a, &la), frag([k, n], b, &loads([k, n], b, warps)));
        let (left, stored) = match self.from {
            From::Shared => ("%ma", "  staged.frag_store %ma, %ta\n"),
            From::Registers => ("%ta", ""),
        };
        let zero = if acc.is_float() { "0.0" } else { "0" };
        let class = self.class.map_or(String::new(), |c| format!(" {{class = {c}}}"));
        let out = self.out.map_or(acc, |(dtype, _)| dtype);
        let (memory, end) = match self.out {
            None => (
                String::new(),
                format!("  staged.store %c, %r at(%i, %i) {{extent = [{m}, {n}]}}\n"),
            ),
            Some((dtype, transposed)) => {
                let so = smem([m, n], dtype, &form([m, n], order(transposed), dtype));
                let narrow = frag([m, n], dtype, &layout);
                let rows = frag([m, n], dtype, &loads([m, n], dtype, warps));
                (
                    format!("  %mo = staged.smem_alloc : {so}\n"),
                    format!(
                        "  %x = staged.cast %r : {narrow}
  staged.frag_store %mo, %x
  staged.block_barrier
  %o = staged.frag_load %mo : {rows}
  staged.store %c, %o at(%i, %i) {{extent = [{m}, {n}]}}
"
                    ),
                )
            }
        };
        let text = format!(
            "func @product(%a: view<[m, k], {a}, read>, %b: view<[k, n], {b}, read>, %c: view<[m, n], {out}, write>) {{kind = group, grid = [1], threads = {}, smem = 232448, regs = 255}} {{
  %i = staged.const {{value = 0}} : i64
  %ma = staged.smem_alloc : {sa}
  %mb = staged.smem_alloc : {sb}
{memory}  %ta = staged.load %a at(%i, %i) {{extent = [{m}, {k}]}} : {ta}
  %tb = staged.load %b at(%i, %i) {{extent = [{k}, {n}]}} : {tb}
{stored}  staged.frag_store %mb, %tb
  staged.fence_async
  staged.block_barrier
  %z = staged.const {{value = {zero}}} : {sum}
  %open = staged.mma_open %z : pending<{sum}>
  %p = staged.mma_issue {left}, %mb, %open{class} : pending<{sum}>
  %r = staged.mma_retire %p {{keep = 0}} : {sum}
{end}  staged.return
}}",
            32 * warps
        );
        let dims = [m, n, k].map(i64::from);
        let arrays = vec![
            array([dims[0], dims[2]], a, 1),
            array([dims[2], dims[1]], b, 5),
            array([dims[0], dims[1]], out, 9),
        ];
        let dims = vec![("m", dims[0]), ("n", dims[1]), ("k", dims[2])];
        Case { text, arrays, dims, profile: self.profile }
    }

    pub fn check(&self) -> Code {
        self.case().check(self.calls.unwrap_or_else(|| self.expected()))
    }
}
