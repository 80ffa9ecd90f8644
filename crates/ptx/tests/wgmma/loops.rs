//! WGMMAs in loops and in sequence.

use super::form::{Case, array, frag, loads, smem, widest};
use tessera_layout::Layout;
use tessera_numerics::{DType, Profile};

/// `k` is split into iterations, each loaded ahead of its MMA. With `kept` one MMA is still in
/// flight when the next iteration begins.
pub fn pipeline(dtype: DType, tile: (u32, u32, u32), iterations: i64, kept: bool) -> Case {
    let (m, n, bk) = tile;
    let warps = m / 16;
    let acc = tessera_tile::ops::mma::accumulator(dtype, dtype).unwrap();
    let bytes = dtype.bytes() as u32;
    let sum = frag([m, n], acc, &Layout::mma_acc(&[m, n], [warps, 1]));
    let sa = smem([m, bk], dtype, &widest([m, bk], [1, 0], bytes));
    // Bytes must be K-major.
    let transposed = bytes == 1;
    let (shape, dims) = if transposed { ([n, bk], "n, k") } else { ([bk, n], "k, n") };
    let sb = smem(shape, dtype, &widest(shape, [1, 0], bytes));
    let field = |smem: &str| smem["smem<".len()..smem.len() - 1].replace(", #", " #");
    let fields = format!("a: {}, b: {}", field(&sa), field(&sb));
    let (at, extent) = match transposed {
        true => ("%i0, %at".to_string(), format!("[{n}, {bk}]")),
        false => ("%at, %i0".to_string(), format!("[{bk}, {n}]")),
    };
    let (view, right) = match transposed {
        true => {
            let st = smem([bk, n], dtype, &widest([bk, n], [0, 1], bytes));
            let line = format!(
                "    %bt = staged.smem_view %bm at(%i0, %i0) {{extent = [{n}, {bk}], perm = [1, 0]}} : {st}\n"
            );
            (line, "%bt")
        }
        false => (String::new(), "%bm"),
    };
    let fill = |counter: &str, stage: &str| {
        format!(
            "    %at = staged.mul {counter}, %bk : i64
    {stage} = staged.acquire %r, {counter} : stage<{fields}>
    staged.fill {stage}, %a at(%i0, %at) {{field = a, extent = [{m}, {bk}]}}
    staged.fill {stage}, %b at({at}) {{field = b, extent = {extent}}}
    staged.publish %r, {counter}
"
        )
    };
    let zero = if acc.is_float() { "0.0" } else { "0" };
    let ahead = if kept { 1 } else { 2 };
    let (open, carried, body, end) = match kept {
        true => (
            format!("  %first = staged.mma_open %z : pending<{sum}>\n"),
            format!("pending<{sum}>"),
            format!(
                "    %t = staged.mma_issue %am, {right}, %q : pending<{sum}>
    %u = staged.mma_retire %t {{keep = 1}} : pending<{sum}>
    %before = staged.sub %j, %one : i64
    staged.release %r, %before {{unless_first = true}}
"
            ),
            format!(
                "  %sum = staged.mma_retire %p {{keep = 0}} : {sum}
  %last = staged.sub %nk, %one : i64
  staged.release %r, %last
"
            ),
        ),
        false => (
            String::new(),
            sum.clone(),
            format!(
                "    %t = staged.mma_issue %am, {right}, %q : pending<{sum}>
    %u = staged.mma_retire %t {{keep = 0}} : {sum}
    staged.release %r, %j
"
            ),
            String::new(),
        ),
    };
    let (init, result) = if kept { ("%first", "%p") } else { ("%z", "%sum") };
    let text = format!(
        "func @pipeline(%a: view<[m, k], {dtype}, read>, %b: view<[{dims}], {dtype}, read>, %c: view<[m, n], {acc}, write>) {{kind = group, grid = [1], threads = {}, smem = 232448, regs = 255}} {{
  %i0 = staged.const {{value = 0}} : i64
  %one = staged.const {{value = 1}} : i64
  %ahead = staged.const {{value = {ahead}}} : i64
  %bk = staged.const {{value = {bk}}} : i64
  %nk = staged.const {{value = {iterations}}} : i64
  %r = staged.pipeline_create : pipeline<3; {fields}>
  staged.for %i0, %ahead, %one do (%i: i64) {{
{}    staged.yield
  }}
  %z = staged.const {{value = {zero}}} : {sum}
{open}  {result} = staged.for %i0, %nk, %one init({init}) : {carried} do (%j: i64, %q: {carried}) {{
    %n = staged.add %j, %ahead : i64
{}    %s = staged.wait %r, %j : stage<{fields}>
    %am = staged.field %s {{name = a}} : {sa}
    %bm = staged.field %s {{name = b}} : {sb}
{view}{body}    staged.yield %u
  }}
{end}  staged.drain %r
  staged.store %c, %sum at(%i0, %i0) {{extent = [{m}, {n}]}}
  staged.return
}}",
        32 * warps,
        fill("%i", "%f"),
        fill("%n", "%w"),
    );
    let (m, n, k) = (i64::from(m), i64::from(n), iterations.max(1) * i64::from(bk));
    let b = if transposed { [n, k] } else { [k, n] };
    Case {
        text,
        arrays: vec![array([m, k], dtype, 1), array(b, dtype, 5), array([m, n], acc, 9)],
        dims: vec![("m", m), ("n", n), ("k", k)],
        profile: Profile::Default,
    }
}

/// An MMA whose accumulator, cast, is the left operand of the next: `c = cast(a · b) · d`.
pub fn chained(dtype: DType, m: u32, n: u32, p: u32, k: u32) -> Case {
    let warps = m / 16;
    let bytes = dtype.bytes() as u32;
    let acc = Layout::mma_acc(&[m, n], [warps, 1]);
    let end = Layout::mma_acc(&[m, p], [warps, 1]);
    let (first, last) = (frag([m, n], DType::F32, &acc), frag([m, p], DType::F32, &end));
    let narrow = frag([m, n], dtype, &acc);
    let left = frag([m, n], dtype, &Layout::mma_a(&end, n, dtype.bits()));
    let mut memory = String::new();
    for (name, shape) in [("a", [m, k]), ("b", [k, n]), ("d", [n, p])] {
        let smem = smem(shape, dtype, &widest(shape, [1, 0], bytes));
        let tile = frag(shape, dtype, &loads(shape, dtype, warps));
        let [x, y] = shape;
        memory += &format!(
            "  %m{name} = staged.smem_alloc : {smem}
  %t{name} = staged.load %{name} at(%i, %i) {{extent = [{x}, {y}]}} : {tile}
  staged.frag_store %m{name}, %t{name}
"
        );
    }
    let text = format!(
        "func @chained(%a: view<[m, k], {dtype}, read>, %b: view<[k, n], {dtype}, read>, %d: view<[n, p], {dtype}, read>, %c: view<[m, p], f32, write>) {{kind = group, grid = [1], threads = {}, smem = 232448, regs = 255}} {{
  %i = staged.const {{value = 0}} : i64
{memory}  staged.fence_async
  staged.block_barrier
  %z = staged.const {{value = 0.0}} : {first}
  %p0 = staged.mma_issue %ma, %mb, %z : pending<{first}>
  %s = staged.mma_retire %p0 {{keep = 0}} : {first}
  %x = staged.cast %s : {narrow}
  %y = staged.convert_layout %x : {left}
  %z1 = staged.const {{value = 0.0}} : {last}
  %p1 = staged.mma_issue %y, %md, %z1 : pending<{last}>
  %o = staged.mma_retire %p1 {{keep = 0}} : {last}
  staged.store %c, %o at(%i, %i) {{extent = [{m}, {p}]}}
  staged.return
}}",
        32 * warps
    );
    let [m, n, p, k] = [m, n, p, k].map(i64::from);
    Case {
        text,
        arrays: vec![
            array([m, k], dtype, 1),
            array([k, n], dtype, 5),
            array([n, p], dtype, 3),
            array([m, p], DType::F32, 9),
        ],
        dims: vec![("m", m), ("n", n), ("p", p), ("k", k)],
        profile: Profile::Default,
    }
}

/// Two accumulators that swap in every iteration; one of them gets a second MMA in some iterations:
/// `c = x + y` of both.
pub fn swapped(iterations: i64) -> Case {
    let (m, n, k, dtype) = (64, 16, 16, DType::BF16);
    let sum = frag([m, n], DType::F32, &Layout::mma_acc(&[m, n], [4, 1]));
    let pending = format!("pending<{sum}>");
    let mut memory = String::new();
    for (name, shape) in [("a", [m, k]), ("b", [k, n])] {
        let smem = smem(shape, dtype, &widest(shape, [1, 0], 2));
        let tile = frag(shape, dtype, &loads(shape, dtype, 4));
        let [x, y] = shape;
        memory += &format!(
            "  %m{name} = staged.smem_alloc : {smem}
  %t{name} = staged.load %{name} at(%i, %i) {{extent = [{x}, {y}]}} : {tile}
  staged.frag_store %m{name}, %t{name}
"
        );
    }
    let text = format!(
        "func @swapped(%a: view<[m, k], {dtype}, read>, %b: view<[k, n], {dtype}, read>, %c: view<[m, n], f32, write>) {{kind = group, grid = [1], threads = 128, smem = 232448, regs = 255}} {{
  %i = staged.const {{value = 0}} : i64
  %step = staged.const {{value = 1}} : i64
  %iterations = staged.const {{value = {iterations}}} : i64
{memory}  staged.fence_async
  staged.block_barrier
  %z = staged.const {{value = 0.0}} : {sum}
  %e = staged.const {{value = 1.0}} : {sum}
  %p0 = staged.mma_open %z : {pending}
  %q0 = staged.mma_open %e : {pending}
  %x, %y = staged.for %i, %iterations, %step init(%p0, %q0) : {pending}, {pending} do (%j: i64, %u: {pending}, %v: {pending}) {{
    %w = staged.mma_issue %ma, %mb, %u : {pending}
    %first = staged.eq %j, %i : bool
    %t = staged.if %first : {pending} do {{
      %again = staged.mma_issue %ma, %mb, %w : {pending}
      staged.yield %again
    }} do {{
      staged.yield %w
    }}
    staged.yield %v, %t
  }}
  %r = staged.mma_retire %x {{keep = 0}} : {sum}
  %s = staged.mma_retire %y {{keep = 0}} : {sum}
  %twice = staged.add %s, %s : {sum}
  %both = staged.add %r, %twice : {sum}
  staged.store %c, %both at(%i, %i) {{extent = [{m}, {n}]}}
  staged.return
}}"
    );
    let [m, n, k] = [m, n, k].map(i64::from);
    Case {
        text,
        arrays: vec![
            array([m, k], dtype, 1),
            array([k, n], dtype, 5),
            array([m, n], DType::F32, 9),
        ],
        dims: vec![("m", m), ("n", n), ("k", k)],
        profile: Profile::Default,
    }
}
