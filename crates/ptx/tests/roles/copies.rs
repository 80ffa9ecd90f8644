//! Warp-specialized kernels that move data through pipelines: every tile order, shared memory
//! layout and dtype, and concurrent consumers.

use super::harness::{Arg, check, code, disassemble, parse};
use super::products::noise;
use std::fmt::Write;
use tessera_interp::HostArray;
use tessera_layout::{Layout, Shared};
use tessera_numerics::DType;
use tessera_ptx::{Code, Inst};

fn laid(shape: &[u32], warps: u32, vector: u32, dtype: DType) -> String {
    let layout = Layout::coalesced(shape, Some(shape.len() - 1), vector, warps, 1, None);
    format!("tile<{}x{dtype}, #{layout}>", dims(shape))
}

fn dims(shape: &[u32]) -> String {
    shape.iter().map(u32::to_string).collect::<Vec<_>>().join("x")
}

/// A field of a pipeline, as its type is written.
fn memory(shape: &[u32], shared: &Shared, dtype: DType) -> String {
    format!("{}x{dtype} #{shared}", dims(shape))
}

/// How a block of an array is copied from one array to another.
#[derive(Clone)]
struct Copy {
    dtype: DType,
    rank: usize,
    /// The block along the last axes; the others have one position.
    block: Vec<u32>,
    shared: Shared,
    stages: u32,
    /// Attributes of `tiles`.
    order: &'static str,
    /// Store by TMA instead of by threads.
    bulk: bool,
    warps: u32,
    load_warps: u32,
    regs: Option<(u32, u32)>,
}

impl Copy {
    fn new(dtype: DType, rank: usize, block: &[u32]) -> Self {
        Self {
            dtype,
            rank,
            block: block.to_vec(),
            shared: Shared::row_major(block, dtype.bytes() as u32),
            stages: 3,
            order: "order = static",
            bulk: false,
            warps: 4,
            load_warps: 1,
            regs: None,
        }
    }

    /// The start of a function: constants and the number of tiles along each axis.
    fn head(&self, out: &mut String) {
        let names = ["x", "y", "z"];
        writeln!(out, "  %zero = staged.const {{value = 0}} : i64").unwrap();
        writeln!(out, "  %one = staged.const {{value = 1}} : i64").unwrap();
        for (axis, n) in names.into_iter().enumerate().take(self.rank) {
            let b = self.extent(axis).max(1);
            writeln!(out, "  %b{axis} = staged.const {{value = {b}}} : i64").unwrap();
            writeln!(out, "  %l{axis} = staged.const {{value = {}}} : i64", b - 1).unwrap();
            writeln!(out, "  %d{axis} = staged.dim {{name = {n}}} : i64").unwrap();
            writeln!(out, "  %u{axis} = staged.add %d{axis}, %l{axis} : i64").unwrap();
            writeln!(out, "  %g{axis} = staged.floordiv %u{axis}, %b{axis} : i64").unwrap();
        }
    }

    /// Of an axis; 0 where the block has one position of it.
    fn extent(&self, axis: usize) -> u32 {
        let before = self.rank - self.block.len();
        axis.checked_sub(before).map_or(0, |dim| self.block[dim])
    }

    fn list(&self, of: impl Fn(usize) -> String) -> String {
        (0..self.rank).map(of).collect::<Vec<_>>().join(", ")
    }

    fn tiles(&self, prefix: &str, out: &mut String) {
        let grid = self.list(|a| format!("%g{a}"));
        let args = self.list(|a| format!("%{prefix}p{a}: i64"));
        writeln!(
            out,
            "      %{prefix}n = staged.tiles grid({grid}) init(%zero) {{{}}} : i64 do ({args}, %{prefix}i: i64) {{",
            self.order
        )
        .unwrap();
        for axis in 0..self.rank {
            writeln!(out, "        %{prefix}a{axis} = staged.mul %{prefix}p{axis}, %b{axis} : i64")
                .unwrap();
        }
        writeln!(out, "        %{prefix}j = staged.add %{prefix}i, %one : i64").unwrap();
    }

    fn place(&self, prefix: &str) -> String {
        let at = self.list(|a| format!("%{prefix}a{a}"));
        let extent = self.list(|a| self.extent(a).to_string());
        format!("at({at}) {{extent = [{extent}]}}")
    }

    fn text(&self) -> String {
        let (dtype, regs) = (self.dtype, self.regs);
        let view = self.list(|a| ["x", "y", "z"][a].to_string());
        let field = memory(&self.block, &self.shared, dtype);
        let tile = laid(&self.block, self.warps, 2, dtype);
        let threads = 32 * (self.warps + self.load_warps);
        let pool = |n: Option<u32>| n.map_or(String::new(), |n| format!(", regs = {n}"));
        let mut out = format!(
            "func @copy(%a: view<[{view}], {dtype}, read>, %c: view<[{view}], {dtype}, write>) {{kind = group, threads = {threads}}} {{\n"
        );
        self.head(&mut out);
        writeln!(out, "  %r = staged.pipeline_create : pipeline<{}; t: {field}>", self.stages)
            .unwrap();
        out += "  staged.warp_specialize do {\n";
        let one = if self.bulk { ", one_thread = true" } else { "" };
        let work = pool(regs.map(|r| r.0));
        writeln!(
            out,
            "    staged.warp_role {{name = consumer, warps = {}{work}{one}}} do {{",
            self.warps
        )
        .unwrap();
        self.tiles("w", &mut out);
        writeln!(out, "        %s = staged.wait %r, %wi : stage<t: {field}>").unwrap();
        let smem = field.replacen(" #", ", #", 1);
        writeln!(out, "        %f = staged.field %s {{name = t}} : smem<{smem}>").unwrap();
        if self.bulk {
            writeln!(out, "        staged.bulk_store %f, %c {}", self.place("w")).unwrap();
            out += "        staged.bulk_wait {keep = 0, read = true}\n";
        } else {
            writeln!(out, "        %t = staged.frag_load %f : {tile}").unwrap();
        }
        out += "        staged.release %r, %wi\n";
        if !self.bulk {
            writeln!(out, "        staged.store %c, %t {}", self.place("w")).unwrap();
        }
        out += "        staged.yield %wj\n      }\n";
        if self.bulk {
            out += "      staged.bulk_wait {keep = 0}\n";
        }
        out += "      staged.yield\n    }\n";
        let load = pool(regs.map(|r| r.1));
        writeln!(
            out,
            "    staged.warp_role {{name = producer, warps = {}{load}, one_thread = true}} do {{",
            self.load_warps
        )
        .unwrap();
        self.tiles("l", &mut out);
        writeln!(out, "        %ls = staged.acquire %r, %li : stage<t: {field}>").unwrap();
        let place = self.place("l").replace("{extent", "{field = t, extent");
        writeln!(out, "        staged.fill %ls, %a {place}").unwrap();
        out += "        staged.publish %r, %li\n        staged.yield %lj\n      }\n";
        out += "      staged.drain %r\n      staged.yield\n    }\n    staged.yield\n  }\n  staged.return\n}\n";
        out
    }

    fn check(&self, size: &[i64], blocks: &[i64]) -> Code {
        let n = size.iter().product();
        let a = HostArray::new(size, self.dtype, &noise(n, 3));
        let c = HostArray::new(size, self.dtype, &vec![-1.0; n as usize]);
        check(&self.text(), &[Arg::Array(a), Arg::Array(c)], blocks)
    }
}

#[test]
fn tiles_come_in_every_order() {
    let orders = [
        "order = static",
        "order = dynamic, longest_first = true",
        "order = dynamic, raster = s2, longest_first = true",
        "order = dynamic, raster = n2",
        "order = folded",
        "order = dynamic, raster = s16, section = 7, longest_first = true",
        "raster = s3",
        "raster = s64, longest_first = true",
        "order = pairs",
        "order = pairs, raster = m2",
        "raster = m2",
        "raster = n3, longest_first = true",
        "raster = m16",
        "raster = n1",
    ];
    for order in orders {
        for (rank, size) in [(2, vec![20, 44]), (3, vec![3, 20, 44]), (3, vec![5, 4, 8])] {
            let copy = Copy { order, ..Copy::new(DType::F32, rank, &[4, 8]) };
            copy.check(&size, &[1, 4, 100]);
        }
    }
    for order in [
        "order = static",
        "longest_first = true",
        "order = pairs",
        "order = folded",
        "order = dynamic",
    ] {
        let copy = Copy { order, ..Copy::new(DType::F32, 1, &[32]) };
        copy.check(&[200], &[1, 3, 9]);
    }
}

#[test]
fn stages_of_any_number() {
    for stages in 1..8 {
        let copy = Copy { stages, ..Copy::new(DType::I32, 2, &[8, 8]) };
        copy.check(&[36, 32], &[1, 2]);
    }
}

#[test]
fn dtypes_and_forms_of_memory() {
    let of = |dtype: DType, block: &[u32], span: u32| {
        let bytes = dtype.bytes() as u32;
        let shared = match span {
            0 => Shared::row_major(block, bytes),
            span => Shared::swizzled(block, &[1, 0], bytes, span),
        };
        Copy { shared, stages: 2, ..Copy::new(dtype, 2, block) }
    };
    let forms = [
        of(DType::BF16, &[16, 64], 128),
        // Rows of two and of three panels.
        of(DType::BF16, &[16, 128], 128),
        of(DType::F16, &[8, 192], 128),
        of(DType::F32, &[16, 16], 64),
        of(DType::F32, &[8, 32], 32),
        of(DType::U8, &[16, 128], 128),
        of(DType::F64, &[8, 4], 0),
        // More rows than a box has.
        of(DType::BF16, &[512, 16], 32),
        of(DType::Fp8E4M3, &[32, 32], 32),
    ];
    for copy in forms {
        for bulk in [false, true] {
            let copy = Copy { bulk, ..copy.clone() };
            // Ragged tiles; rows are multiples of 16 bytes.
            let piece = 16 / copy.dtype.bytes() as i64;
            let size = [i64::from(copy.block[0]) * 2 - 3, i64::from(copy.block[1]) * 2 - piece];
            let code = copy.check(&size, &[1, 3]);
            let boxes =
                code.kernel().instructions().filter(|i| matches!(i, Inst::TmaLoad { .. })).count()
                    as u32;
            let panels = copy.shared.panel.map_or(1, |p| copy.block[1] / p);
            assert_eq!(boxes, panels * copy.block[0].div_ceil(256));
        }
    }
}

#[test]
fn registers_go_from_role_to_role() {
    let copy = Copy {
        warps: 8,
        load_warps: 4,
        regs: Some((240, 24)),
        ..Copy::new(DType::F32, 2, &[32, 32])
    };
    let code = copy.check(&[100, 64], &[2]);
    let sass = disassemble(&code);
    let counts: Vec<_> = sass.lines().filter(|l| l.contains("USETMAXREG")).collect();
    assert_eq!(counts.len(), 2, "{sass}");
    // Requesting more than there are would deadlock: then no registers are reallocated.
    let greedy = Copy { regs: Some((248, 40)), ..copy };
    let code = greedy.check(&[100, 64], &[2]);
    let pools = code.kernel().instructions().filter(|i| matches!(i, Inst::SetMaxRegs { .. }));
    assert_eq!(pools.count(), 0);
}

/// Roles of less than four warps change their registers together, or none does.
#[test]
fn roles_share_the_registers_of_a_warpgroup() {
    let copy = Copy {
        warps: 8,
        load_warps: 4,
        regs: Some((240, 24)),
        ..Copy::new(DType::F32, 2, &[32, 32])
    };
    let (loads, end) = ("name = producer, warps = 4", "    staged.yield\n  }\n  staged.return");
    for (rest, pools) in [(24, 2), (32, 0)] {
        let role = format!(
            "    staged.warp_role {{name = rest, warps = 3, regs = {rest}}} do {{\n      staged.yield\n    }}\n"
        );
        let text = copy.text().replace(loads, "name = producer, warps = 1");
        let text = text.replace(end, &format!("{role}{end}"));
        let a = HostArray::new(&[100, 64], DType::F32, &noise(6400, 3));
        let c = HostArray::new(&[100, 64], DType::F32, &[-1.0; 6400]);
        let code = check(&text, &[Arg::Array(a), Arg::Array(c)], &[2]);
        let found = code.kernel().instructions().filter(|i| matches!(i, Inst::SetMaxRegs { .. }));
        assert_eq!(found.count(), pools, "{rest}");
    }
}

#[test]
fn arrays_without_tensor_maps_are_refused() {
    let copy = Copy::new(DType::F32, 2, &[8, 8]);
    let a = HostArray::new(&[9, 9], DType::F32, &noise(81, 1));
    let c = HostArray::zeros(&[9, 9], DType::F32);
    let error = code(&parse(&copy.text()), &mut [Arg::Array(a), Arg::Array(c)]).err().unwrap();
    assert!(error.to_string().contains("expected an array that is copied in boxes"), "{error}");
}

/// Rows with padding.
#[test]
fn rows_with_room_between_them() {
    let copy = Copy::new(DType::F32, 2, &[8, 8]);
    let a = HostArray::new(&[20, 32], DType::F32, &noise(640, 1));
    let c = HostArray::new(&[20, 32], DType::F32, &vec![7.0; 640]);
    let strided = |x: HostArray| Arg::Strided(x, vec![20, 24], vec![128, 4]);
    check(&copy.text(), &[strided(a), strided(c)], &[1, 4]);
}

/// Two roles of several warps read the same stages concurrently: one sums rows and scans columns,
/// one transposes tiles, both through scratch memory. The last reports a fault in tile `bad`.
fn concurrent_consumers(bad: i64) -> String {
    let tile = laid(&[32, 64], 4, 4, DType::F32);
    let layout = Layout::coalesced(&[32, 64], Some(1), 4, 4, 1, None);
    let transposed = Layout::coalesced(&[32, 64], Some(0), 4, 4, 1, None);
    let rows = layout.reduce(1);
    let field = memory(&[32, 64], &Shared::row_major(&[32, 64], 4), DType::F32);
    let smem = field.replacen(" #", ", #", 1);
    let read = |p: &str| {
        format!(
            "        %{p}y = staged.mul %{p}p, %b : i64
        %{p}s = staged.wait %r, %{p}i : stage<t: {field}>
        %{p}f = staged.field %{p}s {{name = t}} : smem<{smem}>
        %{p}t = staged.frag_load %{p}f : {tile}
        staged.release %r, %{p}i
        %{p}j = staged.add %{p}i, %one : i64
"
        )
    };
    format!(
        "func @beside(%a: view<[m, 64], f32, read>, %s: view<[m], f32, write>, %q: view<[m, 64], f32, write>, %c: view<[m, 64], f32, write>) {{kind = group, threads = 288}} {{
  %zero = staged.const {{value = 0}} : i64
  %one = staged.const {{value = 1}} : i64
  %b = staged.const {{value = 32}} : i64
  %l = staged.const {{value = 31}} : i64
  %bad = staged.const {{value = {bad}}} : i64
  %m = staged.dim {{name = m}} : i64
  %u = staged.add %m, %l : i64
  %g = staged.floordiv %u, %b : i64
  %r = staged.pipeline_create : pipeline<2; t: {field}>
  staged.warp_specialize do {{
    staged.warp_role {{name = producer, warps = 1, one_thread = true}} do {{
      %ln = staged.tiles grid(%g) init(%zero) : i64 do (%lp: i64, %li: i64) {{
        %ly = staged.mul %lp, %b : i64
        %ls = staged.acquire %r, %li : stage<t: {field}>
        staged.fill %ls, %a at(%ly, %zero) {{field = t, extent = [32, 64]}}
        staged.publish %r, %li
        %lj = staged.add %li, %one : i64
        staged.yield %lj
      }}
      staged.drain %r
      staged.yield
    }}
    staged.warp_role {{name = sum, warps = 4}} do {{
      %sn = staged.tiles grid(%g) init(%zero) : i64 do (%sp: i64, %si: i64) {{
{}        %sum = staged.reduce %st {{axis = 1, op = sum}} : tile<32xf32, #{rows}>
        staged.store %s, %sum at(%sy) {{extent = [32]}}
        %run = staged.scan %st {{axis = 0, op = sum}} : {tile}
        staged.store %q, %run at(%sy, %zero) {{extent = [32, 64]}}
        staged.yield %sj
      }}
      staged.yield
    }}
    staged.warp_role {{name = transpose, warps = 4}} do {{
      %tn = staged.tiles grid(%g) init(%zero) : i64 do (%tp: i64, %ti: i64) {{
        %ok = staged.ne %tp, %bad : bool
        staged.assert %ok {{text = \"this tile is bad\"}}
{}        %x = staged.convert_layout %tt : tile<32x64xf32, #{transposed}>
        %y = staged.convert_layout %x : {tile}
        %z = staged.add %y, %tt : {tile}
        staged.store %c, %z at(%ty, %zero) {{extent = [32, 64]}}
        staged.yield %tj
      }}
      staged.yield
    }}
    staged.yield
  }}
  staged.return
}}
",
        read("s"),
        read("t")
    )
}

fn beside(m: i64) -> Vec<Arg> {
    vec![
        Arg::Array(HostArray::new(&[m, 64], DType::F32, &noise(m * 64, 2))),
        Arg::Array(HostArray::zeros(&[m], DType::F32)),
        Arg::Array(HostArray::zeros(&[m, 64], DType::F32)),
        Arg::Array(HostArray::zeros(&[m, 64], DType::F32)),
    ]
}

#[test]
fn roles_work_on_tiles_beside_each_other() {
    check(&concurrent_consumers(-1), &beside(200), &[1, 3]);
}

/// Other roles wait for the role with the fault: it goes on, and the launch reports it.
#[test]
fn a_role_that_finds_fault_keeps_nobody_waiting() {
    for bad in [0, 3, 6] {
        let func = parse(&concurrent_consumers(bad));
        for blocks in [1, 2] {
            let mut args = beside(200);
            let error = super::harness::launch_code(&func, &mut args, blocks).unwrap_err();
            assert!(error.to_string().contains("this tile is bad"), "{error}");
        }
    }
}
