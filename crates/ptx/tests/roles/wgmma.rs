//! A warp-specialized GEMM: one role loads, one issues WGMMAs, tile after tile, and results are
//! stored through shared memory.

use super::harness::{Arg, check, disassemble};
use tessera_interp::HostArray;
use tessera_layout::{Layout, Shared};
use tessera_numerics::DType;
use tessera_ptx::{Code, Inst, Opnd};

struct Gemm {
    tile: [u32; 3],
    warps: u32,
    stages: u32,
    /// One group of WGMMAs stays in flight while the next stage is waited for.
    ahead: bool,
    raster: &'static str,
}

impl Gemm {
    fn text(&self) -> String {
        let [bm, bn, bk] = self.tile;
        let layout = Layout::mma_acc(&[bm, bn], [self.warps, 1]);
        let tile = format!("tile<{bm}x{bn}xf32, #{layout}>");
        let short = tile.replace("xf32", "xbf16");
        let shared = |shape: [u32; 2]| Shared::swizzled(&shape, &[1, 0], 2, 128);
        let (a, b) = (shared([bm, bk]), shared([bk, bn]));
        let c = shared([bm, bn]);
        let fields = format!("a: {bm}x{bk}xbf16 #{a}, b: {bk}x{bn}xbf16 #{b}");
        let (retire, last) = match self.ahead {
            true => (
                format!(
                    "%u = staged.mma_retire %t {{keep = 1}} : pending<{tile}>
          %before = staged.sub %j, %one : i64
          staged.release %r, %before {{unless_first = true}}"
                ),
                "        %back = staged.sub %end, %one : i64\n        staged.release %r, %back\n"
                    .to_string(),
            ),
            false => (
                format!(
                    "%d = staged.mma_retire %t {{keep = 0}} : {tile}
          %u = staged.mma_open %d : pending<{tile}>
          staged.release %r, %j"
                ),
                String::new(),
            ),
        };
        let threads = 32 * (self.warps + 4);
        format!(
            "func @gemm(%a: view<[m, k], bf16, read>, %b: view<[k, n], bf16, read>, %c: view<[m, n], bf16, write>) {{kind = group, threads = {threads}}} {{
  %zero = staged.const {{value = 0}} : i64
  %one = staged.const {{value = 1}} : i64
  %bm = staged.const {{value = {bm}}} : i64
  %bn = staged.const {{value = {bn}}} : i64
  %bk = staged.const {{value = {bk}}} : i64
  %lm = staged.const {{value = {}}} : i64
  %ln = staged.const {{value = {}}} : i64
  %m = staged.dim {{name = m}} : i64
  %n = staged.dim {{name = n}} : i64
  %k = staged.dim {{name = k}} : i64
  %um = staged.add %m, %lm : i64
  %un = staged.add %n, %ln : i64
  %gm = staged.floordiv %um, %bm : i64
  %gn = staged.floordiv %un, %bn : i64
  %r = staged.pipeline_create : pipeline<{}; {fields}>
  %out = staged.smem_alloc : smem<{bm}x{bn}xbf16, #{c}>
  staged.warp_specialize do {{
    staged.warp_role {{name = consumer, warps = {}, regs = 240}} do {{
      %w0 = staged.tiles grid(%gm, %gn) init(%zero) {{order = static, raster = {raster}}} : i64 do (%p0: i64, %p1: i64, %i: i64) {{
        %row = staged.mul %p0, %bm : i64
        %col = staged.mul %p1, %bn : i64
        %empty = staged.const {{value = 0.0}} : {tile}
        %open = staged.mma_open %empty : pending<{tile}>
        %p, %end = staged.for %zero, %k, %bk init(%open, %i) : pending<{tile}>, i64 do (%kk: i64, %q: pending<{tile}>, %j: i64) {{
          %s = staged.wait %r, %j : stage<{fields}>
          %fa = staged.field %s {{name = a}} : smem<{bm}x{bk}xbf16, #{a}>
          %fb = staged.field %s {{name = b}} : smem<{bk}x{bn}xbf16, #{b}>
          %t = staged.mma_issue %fa, %fb, %q : pending<{tile}>
          {retire}
          %next = staged.add %j, %one : i64
          staged.yield %u, %next
        }}
        %acc = staged.mma_retire %p {{keep = 0}} : {tile}
{last}        %short = staged.cast %acc : {short}
        staged.bulk_wait {{keep = 0, read = true}}
        staged.role_barrier
        staged.frag_store %out, %short
        staged.fence_async
        staged.role_barrier
        staged.bulk_store %out, %c at(%row, %col) {{extent = [{bm}, {bn}]}}
        staged.yield %end
      }}
      staged.bulk_wait {{keep = 0}}
      staged.yield
    }}
    staged.warp_role {{name = producer, warps = 4, regs = 24, one_thread = true}} do {{
      %l0 = staged.tiles grid(%gm, %gn) init(%zero) {{order = static, raster = {raster}}} : i64 do (%q0: i64, %q1: i64, %h: i64) {{
        %lrow = staged.mul %q0, %bm : i64
        %lcol = staged.mul %q1, %bn : i64
        %lend = staged.for %zero, %k, %bk init(%h) : i64 do (%lk: i64, %g: i64) {{
          %ls = staged.acquire %r, %g : stage<{fields}>
          staged.fill %ls, %a at(%lrow, %lk) {{field = a, extent = [{bm}, {bk}]}}
          staged.fill %ls, %b at(%lk, %lcol) {{field = b, extent = [{bk}, {bn}]}}
          staged.publish %r, %g
          %lnext = staged.add %g, %one : i64
          staged.yield %lnext
        }}
        staged.yield %lend
      }}
      staged.drain %r
      staged.yield
    }}
    staged.yield
  }}
  staged.return
}}
",
            bm - 1,
            bn - 1,
            self.stages,
            self.warps,
            raster = self.raster,
        )
    }

    /// Small integers, so that the order of additions does not matter.
    fn check(&self, [m, n, k]: [i64; 3], blocks: &[i64]) -> Code {
        let of = |rows: i64, cols: i64, seed: i64| {
            let values: Vec<f64> =
                (0..rows * cols).map(|i| ((i * 37 + seed) % 11 - 5) as f64 / 4.0).collect();
            Arg::Array(HostArray::new(&[rows, cols], DType::BF16, &values))
        };
        let c = Arg::Array(HostArray::zeros(&[m, n], DType::BF16));
        check(&self.text(), &[of(m, k, 1), of(k, n, 4), c], blocks)
    }
}

#[test]
fn a_large_gemm() {
    for ahead in [false, true] {
        let large = Gemm { tile: [128, 256, 64], warps: 8, stages: 3, ahead, raster: "m16" };
        let code = large.check([200, 264, 136], &[1]);
        let sass = disassemble(&code);
        // Four steps along k, of m64n256k16.
        assert_eq!(sass.matches("HGMMA.64x256x16").count(), 4, "{sass}");
        let stores = code.kernel().instructions().filter(|i| matches!(i, Inst::TmaStore { .. }));
        assert_eq!(stores.count(), 4);
        // Each of the two warpgroups writes, synchronises and stores independently.
        let synchronises =
            |i: &&Inst| matches!(i, Inst::BarSync { id: Opnd::Reg(_), count: Some(128) });
        assert_eq!(code.kernel().instructions().filter(synchronises).count(), 2);
        assert_eq!(code.maps.last().map(|m| m.extent.clone()), Some(vec![64, 64]));
    }
}

#[test]
fn tiles_wrap_around_the_pipeline() {
    for ahead in [false, true] {
        for (tile, warps) in [([64, 64, 64], 4), ([128, 64, 64], 8)] {
            let gemm = Gemm { tile, warps, stages: 3, ahead, raster: "n2" };
            gemm.check([200, 136, 328], &[1, 3, 20]);
        }
    }
}
