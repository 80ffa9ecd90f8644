//! The op table of Tile IR: one row an op. Numbers are frozen.

use crate::Tile;
use crate::lanes;
use crate::ops::{
    asm, atomic, combine, control_ops, elementwise, group, host, ids, memory, mma, parts, reduce,
    shape, sort, value,
};
use tessera_ir::define_ops;
use tessera_numerics::ScalarFn;

define_ops! {
    level Tile;
    /// Every op of Tile IR.
    pub enum TileOp;

    family Ew(ScalarFn) {
        all: ScalarFn::ALL,
        name: |f: ScalarFn| f.name(),
        parse: ScalarFn::from_name,
        info: elementwise::info
    }

    aliases { "mma.sync" => Mma, "cp.async" => CopyAsync, "ldmatrix" => Load }

    /// Runs its body for `lo, lo + step, …` below `hi`. The body takes the position and the carried
    /// values and yields the next ones; the results are the last ones.
    For = 0x01 "for" since "0.1" {
        operands: [lo: Index, hi: Index, step: Index],
        groups: [init: Value [0, usize::MAX]],
        attrs: [prefetch: Int optional],
        regions: [body],
        results: None, effects: Control, infer: None, verify: Some(control_ops::verify_for),
        example: "%s = tile.for %lo, %hi, %step init(%x) : f32 do (%i: i64, %acc: f32) {\n  %n = tile.add %acc, %x : f32\n  tile.yield %n\n}",
    }
    /// Runs one of its two regions; both yield values of the result types. `select` marks a
    /// conditional expression: where its regions only compute, targets may run both and select.
    If = 0x02 "if" since "0.1" {
        operands: [cond: Bool],
        groups: [], attrs: [select: Bool optional], regions: [then, otherwise],
        results: None, effects: Control, infer: None, verify: Some(control_ops::verify_if),
        example: "%r = tile.if %c : f32 do {\n  tile.yield %x\n} do {\n  tile.yield %y\n}",
    }
    /// Runs its body while its first region yields true. Both regions take the carried values.
    While = 0x03 "while" since "0.1" {
        operands: [],
        groups: [init: Value [0, usize::MAX]],
        attrs: [], regions: [cond, body],
        results: None, effects: Control, infer: None, verify: Some(control_ops::verify_while),
        example: "%r = tile.while init(%x) : f32 do (%a: f32) {\n  %k = tile.lt %a, %y : bool\n  tile.yield %k\n} do (%b: f32) {\n  %n = tile.add %b, %x : f32\n  tile.yield %n\n}",
    }
    /// Ends a region and hands its values to the op around it.
    Yield = 0x04 "yield" since "0.1" {
        operands: [],
        groups: [values: Value [0, usize::MAX]],
        attrs: [], regions: [], results: Some(0), effects: Terminator, infer: None, verify: None,
        example: "tile.yield %x",
    }
    /// Ends the kernel.
    Return = 0x05 "return" since "0.1" {
        operands: [], groups: [], attrs: [], regions: [],
        results: Some(0), effects: Terminator, infer: None, verify: None,
        example: "tile.return",
    }
    /// A slow path for some rows. The region reads values from outside, has no effects, and yields
    /// the results. A row is an index of the first axis: a row of the results depends only on the
    /// same row of what the region reads. Where the condition is false in all of a row, that row
    /// equals the row of `init`. Targets therefore run the region only for those parts of the rows
    /// in which the condition holds anywhere; to run it for more rows gives the same results.
    SlowPath = 0x06 "slow_path" since "0.2" {
        operands: [bad: Tile],
        groups: [init: Value [1, usize::MAX]],
        attrs: [], regions: [body],
        results: None, effects: Control, infer: None, verify: Some(control_ops::verify_slow_path),
        example: "%bad = tile.gt %t, %t : tile<8x2xbool>\n%r = tile.slow_path %bad init(%t) : tile<8x2xf32> do {\n  %h = tile.add %t, %t : tile<8x2xf32>\n  %f = tile.select %bad, %h, %t : tile<8x2xf32>\n  tile.yield %f\n}",
    }
    /// The group's coordinate in the launch grid.
    ProgramId = 0x10 "program_id" since "0.1" {
        operands: [], groups: [], attrs: [axis: Int required], regions: [],
        results: Some(1), effects: Pure, infer: Some(ids::infer_index), verify: Some(ids::verify_axis),
        example: "%p = tile.program_id {axis = 0} : i64",
    }
    /// The extent of the launch grid along an axis.
    NumPrograms = 0x11 "num_programs" since "0.1" {
        operands: [], groups: [], attrs: [axis: Int required], regions: [],
        results: Some(1), effects: Pure, infer: Some(ids::infer_index), verify: Some(ids::verify_axis),
        example: "%p = tile.num_programs {axis = 0} : i64",
    }
    /// The lane's index over the whole launch, along an axis where the lanes have several.
    LinearId = 0x12 "linear_id" since "0.1" {
        operands: [], groups: [], attrs: [axis: Int optional], regions: [],
        results: Some(1), effects: Pure, infer: Some(ids::infer_index), verify: Some(lanes::verify_lane_id),
        example: "%i = tile.linear_id : i64",
    }
    /// The lane's index in its group: along an axis, or its number, where the last axis counts
    /// fastest.
    LocalId = 0x13 "local_id" since "0.1" {
        operands: [], groups: [], attrs: [axis: Int optional], regions: [],
        results: Some(1), effects: Pure, infer: Some(ids::infer_index), verify: Some(lanes::verify_lane_id),
        example: "%i = tile.local_id : i64",
    }
    /// How many lanes form a group.
    GroupSize = 0x14 "group_size" since "0.1" {
        operands: [], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Pure, infer: Some(ids::infer_index), verify: None,
        example: "%i = tile.group_size : i64",
    }
    /// How many lanes run in lock step on the target. Differs between targets: what a kernel computes
    /// should not depend on it.
    WarpSize = 0x17 "warp_size" since "0.1" {
        operands: [], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Pure, infer: Some(ids::infer_index), verify: None,
        example: "%i = tile.warp_size : i64",
    }
    /// The run-time value of a dimension: a symbol, or a product that a parameter has as one.
    Dim = 0x15 "dim" since "0.1" {
        operands: [], groups: [], attrs: [name: Expr required], regions: [],
        results: Some(1), effects: Pure, infer: Some(ids::infer_index), verify: Some(ids::verify_dim),
        example: "%n = tile.dim {name = n} : i64",
    }
    /// An implicit tile origin (LANGUAGE 4): 0, step, 2·step … below the dimension. The pass
    /// `tile-normalise` replaces it by a grid coordinate or a loop.
    Origin = 0x16 "origin" since "0.1" {
        operands: [], groups: [], attrs: [name: Word required, dim: Exprs required, step: Int required], regions: [],
        results: Some(1), effects: Pure, infer: Some(ids::infer_index), verify: Some(ids::verify_origin),
        example: "%m = tile.origin {name = tile_m, dim = [n], step = 64} : i64",
    }
    /// A constant; of a tile type, every element is the value. `unset` marks the zero that stands for
    /// a variable that no iteration of its loop gave a value: checked mode reports it.
    Const = 0x20 "const" since "0.1" {
        operands: [], groups: [], attrs: [value: Number required, unset: Bool optional], regions: [],
        results: Some(1), effects: Pure, infer: None, verify: Some(value::verify_const),
        example: "%z = tile.const {value = 0.0} : tile<64x64xf32>",
    }
    /// `start, start + 1, …` as a rank-1 tile of i32.
    Iota = 0x21 "iota" since "0.1" {
        operands: [], groups: [], attrs: [start: Int optional], regions: [],
        results: Some(1), effects: Pure, infer: None, verify: Some(value::verify_iota),
        example: "%r = tile.iota {start = 0} : tile<64xi32>",
    }
    /// Takes `a` where the condition holds and `b` elsewhere.
    Select = 0x22 "select" since "0.1" {
        operands: [cond: Value, a: Value, b: Value], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Pure, infer: Some(value::infer_select), verify: Some(value::verify_select),
        example: "%r = tile.select %c, %x, %y : f32",
    }
    /// Converts to the dtype of the result (LANGUAGE 9): to a smaller float it rounds to nearest
    /// even unless `round` says otherwise, saturating for fp8, fp6 and fp4; float to integer
    /// truncates and saturates; integers wrap unless `saturate`.
    Cast = 0x23 "cast" since "0.1" {
        operands: [x: Value], groups: [], attrs: [round: Word optional, saturate: Bool optional], regions: [],
        results: Some(1), effects: Pure, infer: None, verify: Some(value::verify_cast),
        example: "%r = tile.cast %x : bf16",
    }
    /// The same bits as another dtype of the same width.
    Bitcast = 0x24 "bitcast" since "0.1" {
        operands: [x: Value], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Pure, infer: None, verify: Some(value::verify_bitcast),
        example: "%r = tile.bitcast %x : i32",
    }
    /// The same elements in row-major order under another shape.
    Reshape = 0x30 "reshape" since "0.1" {
        operands: [x: Tile], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Pure, infer: None, verify: Some(shape::verify_reshape),
        example: "%r = tile.reshape %t : tile<16xf32>",
    }
    /// Permutes the axes: result axis `i` is operand axis `perm[i]`.
    Transpose = 0x31 "transpose" since "0.1" {
        operands: [x: Tile], groups: [], attrs: [perm: Ints required], regions: [],
        results: Some(1), effects: Pure, infer: Some(shape::infer_transpose), verify: Some(shape::verify_transpose),
        example: "%r = tile.transpose %t {perm = [1, 0]} : tile<2x8xf32>",
    }
    /// Stretches a scalar to a tile, or axes of extent 1 to the result's extents.
    Broadcast = 0x32 "broadcast" since "0.1" {
        operands: [x: Value], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Pure, infer: None, verify: Some(shape::verify_broadcast),
        example: "%r = tile.broadcast %x : tile<8x2xf32>",
    }
    /// Inserts an axis of extent 1.
    Expand = 0x33 "expand" since "0.1" {
        operands: [x: Tile], groups: [], attrs: [axis: Int required], regions: [],
        results: Some(1), effects: Pure, infer: Some(shape::infer_expand), verify: Some(shape::verify_expand),
        example: "%r = tile.expand %t {axis = 0} : tile<1x8x2xf32>",
    }
    /// A part of a tile: along each axis the positions `start`, `start + step`, … as many as the
    /// result has. A step below zero runs backwards.
    Slice = 0x34 "slice" since "0.4" {
        operands: [x: Tile], groups: [], attrs: [start: Ints required, step: Ints optional], regions: [],
        results: Some(1), effects: Pure, infer: None, verify: Some(parts::verify_slice),
        example: "%r = tile.slice %t {start = [2, 0]} : tile<4x2xf32>",
    }
    /// Tiles one after another along an axis.
    Concat = 0x35 "concat" since "0.4" {
        operands: [], groups: [parts: Tile [1, usize::MAX]], attrs: [axis: Int required], regions: [],
        results: Some(1), effects: Pure, infer: Some(parts::infer_concat), verify: Some(parts::verify_concat),
        example: "%r = tile.concat parts(%t, %t) {axis = 0} : tile<16x2xf32>",
    }
    /// Elements by their positions along one axis (NumPy's `take_along_axis`): `index` has the rank
    /// of `x`, and its extents along the other axes. A position outside gives zero.
    Take = 0x36 "take" since "0.4" {
        operands: [x: Tile, index: Tile], groups: [], attrs: [axis: Int required], regions: [],
        results: Some(1), effects: Pure, infer: Some(parts::infer_take), verify: Some(parts::verify_take),
        example: "%e8 = tile.const {value = 1.0} : tile<4xf32>\n%r = tile.take %e8, %ix {axis = 0} : tile<8xf32>",
    }
    /// Reads the block of memory that begins at `at`; an extent of 0 takes one position and drops
    /// the axis, and `step` takes every so manyth position along each axis. Positions outside read as
    /// zero, or as `other`. `bounds` says for each axis whether the access is known to be `inside`;
    /// `inbounds` that the user says so; `owned` that the group alone touches what it reads.
    Load = 0x40 "load" since "0.1" {
        operands: [mem: Memory],
        groups: [at: Index [0, usize::MAX], other: Scalar [0, 1]],
        attrs: [extent: Ints required, step: Ints optional, bounds: Words optional, inbounds: Bool optional, owned: Bool optional], regions: [],
        results: Some(1), effects: Read, infer: Some(memory::infer_load), verify: Some(memory::verify_access),
        example: "%r = tile.load %v at(%lo) {extent = [64]} : tile<64xf32>",
    }
    /// Writes a block of memory; positions outside, or where the mask is false, are not written.
    /// `unique`: no other group writes what it writes.
    Store = 0x41 "store" since "0.1" {
        operands: [mem: Memory, value: Value],
        groups: [at: Index [0, usize::MAX], mask: Value [0, 1]],
        attrs: [extent: Ints required, step: Ints optional, bounds: Words optional, unique: Bool optional], regions: [],
        results: Some(0), effects: Write, infer: None, verify: Some(memory::verify_access),
        example: "tile.store %v, %x at(%lo) {extent = [0]}",
    }
    /// Reads one element for each position of the index tiles; outside reads zero, or `other`.
    Gather = 0x42 "gather" since "0.1" {
        operands: [mem: Memory],
        groups: [at: Indices [1, usize::MAX], other: Scalar [0, 1]],
        attrs: [inbounds: Bool optional], regions: [],
        results: Some(1), effects: Read, infer: Some(memory::infer_gather), verify: Some(memory::verify_indexed),
        example: "%r = tile.gather %v at(%ix) : tile<8xf32>",
    }
    /// Writes one element for each position of the index tiles, in row-major order. `unique`: the
    /// user says that no element is named twice, and that no other group writes one of them; `owned`:
    /// no other group does, and an element may be named twice.
    Scatter = 0x43 "scatter" since "0.1" {
        operands: [mem: Memory, value: Value],
        groups: [at: Indices [1, usize::MAX], mask: Value [0, 1]],
        attrs: [unique: Bool optional, owned: Bool optional], regions: [],
        results: Some(0), effects: Write, infer: None, verify: Some(memory::verify_indexed),
        example: "%t8 = tile.const {value = 1.0} : tile<8xf32>\ntile.scatter %v, %t8 at(%ix)",
    }
    /// Folds a value into a block of memory: read, combine in the value's dtype, convert, write.
    /// On a `reduce_*` parameter any number of groups may fold into one element.
    Accumulate = 0x44 "accumulate" since "0.1" {
        operands: [mem: Memory, value: Value],
        groups: [at: Index [0, usize::MAX], mask: Value [0, 1]],
        attrs: [op: Word required, extent: Ints required, step: Ints optional, bounds: Words optional, unique: Bool optional], regions: [],
        results: Some(0), effects: ReadWrite, infer: None, verify: Some(memory::verify_access),
        example: "tile.accumulate %v, %x at(%lo) {op = sum, extent = [0]}",
    }
    /// Says that from here on this group alone touches a block of memory; it does nothing. The pass
    /// `tile-ownership` makes the writes into the block `unique` (a scatter `owned`), and reads of what
    /// is written there `owned`; checked mode compares it with what groups touch.
    Owned = 0x4b "owned" since "0.5" {
        operands: [mem: View],
        groups: [at: Index [0, usize::MAX]],
        attrs: [extent: Ints required, step: Ints optional], regions: [],
        results: Some(0), effects: Host, infer: None, verify: Some(memory::verify_access),
        example: "tile.owned %v at(%lo) {extent = [64]}",
    }
    /// Memory that the group shares, for the whole kernel, not initialised.
    BufAlloc = 0x45 "buf_alloc" since "0.1" {
        operands: [], groups: [], attrs: [swizzle: Word optional, alignment: Int optional], regions: [],
        results: Some(1), effects: Write, infer: None, verify: Some(memory::verify_buf_alloc),
        example: "%b = tile.buf_alloc {swizzle = xor} : buf<64x32xbf16>",
    }
    /// Copies a block of global memory over a whole buffer, or over that part of it which has the
    /// positions `into` on its first axes (a stage); positions outside the source become zero.
    CopyAsync = 0x46 "copy_async" since "0.1" {
        operands: [dst: Buf, src: View],
        groups: [at: Index [0, usize::MAX], into: Index [0, usize::MAX]],
        attrs: [extent: Ints required, stage: Int optional], regions: [],
        results: Some(0), effects: ReadWrite, infer: None, verify: Some(memory::verify_copy),
        example: "%b = tile.buf_alloc : buf<64xf32>\ntile.copy_async %b, %v at(%lo) {extent = [64]}",
    }
    /// All lanes of the group reach it before any goes on, and see each other's writes to shared
    /// memory.
    Barrier = 0x47 "barrier" since "0.1" {
        operands: [], groups: [], attrs: [], regions: [],
        results: Some(0), effects: Sync, infer: None, verify: None,
        example: "tile.barrier",
    }
    /// Changes one element for each position in one step that nothing else comes between, and gives
    /// what was there before; a position outside is left alone and gives zero. `exchange` puts the
    /// value there; `cas` does so where memory holds `expected` (the same bits); the others read,
    /// combine in the value's dtype, convert and write. Elements of one tile are taken in row-major
    /// order.
    Atomic = 0x48 "atomic" since "0.1" {
        operands: [mem: Memory, value: Value],
        groups: [at: Indices [0, usize::MAX], expected: Value [0, 1]],
        attrs: [op: Word required, order: Word optional, scope: Word optional, unique: Bool optional], regions: [],
        results: Some(1), effects: ReadWrite, infer: Some(atomic::infer_atomic), verify: Some(atomic::verify_atomic),
        example: "%r = tile.atomic %v, %x at(%lo) {op = add} : f32",
    }
    /// Ends a group of asynchronous copies: those begun since the last one.
    CopyCommit = 0x49 "copy_commit" since "0.1" {
        operands: [], groups: [], attrs: [], regions: [],
        results: Some(0), effects: Sync, infer: None, verify: None,
        example: "tile.copy_commit",
    }
    /// Waits until at most the `n` newest groups of copies are in flight, or until the copies
    /// of a `stage` are complete. In a kernel with explicit groups nothing else waits.
    CopyWait = 0x4A "copy_wait" since "0.1" {
        operands: [], groups: [], attrs: [n: Int optional, stage: Int optional], regions: [],
        results: Some(0), effects: Sync, infer: None, verify: Some(memory::verify_wait),
        example: "tile.copy_wait {n = 0}",
    }
    /// Multiplies `a` (m×k) by `b` (k×n) and adds `acc` (m×n). `class` is the accumulation class of
    /// LANGUAGE 13: `seq` is one fused multiply-add for each k, ascending, from the accumulator.
    Mma = 0x50 "mma" since "0.1" {
        operands: [a: Tile, b: Tile, acc: Tile], groups: [], attrs: [class: Word optional], regions: [],
        results: Some(1), effects: Pure, infer: Some(mma::infer_mma), verify: Some(mma::verify_mma),
        example: "%p = tile.const {value = 0.0} : tile<8x4xf32>\n%q = tile.const {value = 0.0} : tile<2x4xf32>\n%r = tile.mma %t, %q, %p : tile<8x4xf32>",
    }
    /// Combines the values of all lanes of the group in the canonical order of LANGUAGE 14, by the
    /// lane's index in the group; lanes that do not exist give the operator's identity. All lanes
    /// take part and get the result.
    GroupReduce = 0x60 "group_reduce" since "0.1" {
        operands: [x: Scalar], groups: [], attrs: [op: Word required], regions: [],
        results: Some(1), effects: Pure, infer: Some(group::infer_same), verify: Some(group::verify_combine),
        example: "%r = tile.group_reduce %x {op = sum} : f32",
    }
    /// Combines the values of the lanes up to each lane, one after another, or of those before it
    /// where `exclusive`, which begins with the operator's identity.
    GroupScan = 0x61 "group_scan" since "0.1" {
        operands: [x: Scalar], groups: [], attrs: [op: Word required, exclusive: Bool optional], regions: [],
        results: Some(1), effects: Pure, infer: Some(group::infer_same), verify: Some(group::verify_combine),
        example: "%r = tile.group_scan %x {op = sum} : f32",
    }
    /// The value of one lane, the same for all; of a lane that does not exist, zero.
    GroupBroadcast = 0x62 "group_broadcast" since "0.1" {
        operands: [x: Scalar, src: Index], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Pure, infer: Some(group::infer_same), verify: None,
        example: "%r = tile.group_broadcast %x, %lo : f32",
    }
    /// The value of the lane that each lane chooses; of a lane that does not exist, zero.
    GroupShuffle = 0x63 "group_shuffle" since "0.1" {
        operands: [x: Scalar, src: Index], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Pure, infer: Some(group::infer_same), verify: None,
        example: "%r = tile.group_shuffle %x, %lo : f32",
    }
    /// One word of Philox4x32-10 for each counter: the seed is the key, the counter the low half of
    /// the 128-bit counter; `word` is 0 to 3.
    Philox = 0x54 "philox" since "0.1" {
        operands: [seed: Index, counter: Value], groups: [], attrs: [word: Int optional], regions: [],
        results: Some(1), effects: Pure, infer: Some(value::infer_philox), verify: Some(value::verify_philox),
        example: "%r = tile.philox %lo, %hi : u32",
    }
    /// Prints values, with the group's coordinates. In `text`, `{}` stands for one value
    /// after another; `{{` and `}}` are braces.
    Print = 0x70 "print" since "0.1" {
        operands: [],
        groups: [values: Value [0, usize::MAX]],
        attrs: [text: Str required], regions: [],
        results: Some(0), effects: Host, infer: None, verify: Some(host::verify_print),
        example: "tile.print %x {text = \"x = {}\"}",
    }
    /// Stops the launch with an error at this place where the condition does not hold.
    Assert = 0x71 "assert" since "0.1" {
        operands: [cond: Bool], groups: [], attrs: [text: Str optional], regions: [],
        results: Some(0), effects: Host, infer: None, verify: None,
        example: "tile.assert %c {text = \"out of range\"}",
    }
    /// Combines the elements along an axis in the canonical order of LANGUAGE 14; the axis goes.
    /// `whole` says that the number of elements matters (a mean), so that no padding may be among them.
    Reduce = 0x51 "reduce" since "0.1" {
        operands: [x: Tile], groups: [], attrs: [op: Word required, axis: Int required, whole: Bool optional], regions: [],
        results: Some(1), effects: Pure, infer: Some(reduce::infer_reduce), verify: Some(reduce::verify_reduce),
        example: "%r = tile.reduce %t {op = max, axis = 1} : tile<8xf32>",
    }
    /// Combines the elements along an axis one after another, ascending, and keeps every step:
    /// result `i` is the fold of the elements up to `i`, or of those before `i` where `exclusive`,
    /// which begins with the operator's identity.
    Scan = 0x52 "scan" since "0.1" {
        operands: [x: Tile], groups: [], attrs: [op: Word required, axis: Int required, exclusive: Bool optional], regions: [],
        results: Some(1), effects: Pure, infer: Some(reduce::infer_scan), verify: Some(reduce::verify_scan),
        example: "%r = tile.scan %t {op = sum, axis = 1} : tile<8x2xf32>",
    }
    /// Where along an axis the largest (`max`) or smallest (`min`) element is, as i32; the axis goes.
    /// Of equal elements the first counts, and a NaN before any number.
    ArgReduce = 0x53 "argreduce" since "0.1" {
        operands: [x: Tile], groups: [], attrs: [op: Word required, axis: Int required], regions: [],
        results: Some(1), effects: Pure, infer: Some(reduce::infer_argreduce), verify: Some(reduce::verify_argreduce),
        example: "%r = tile.argreduce %t {op = max, axis = 1} : tile<8xi32>",
    }
    /// Combines the elements of several tiles along an axis by its region; the axis goes. The region
    /// takes the elements of all tiles on the left, then those on the right, and yields their
    /// combination. The order is the balanced tree over neighbours: (0, 1), (2, 3), …, level by
    /// level; a last element without a neighbour goes up unchanged.
    ReduceBy = 0x55 "reduce_by" since "0.4" {
        operands: [], groups: [x: Tile [1, usize::MAX]],
        attrs: [axis: Int required], regions: [combine],
        results: None, effects: Control, infer: None, verify: Some(combine::verify_reduce_by),
        example: "%r = tile.reduce_by x(%t) {axis = 1} : tile<8xf32> do (%a: f32, %b: f32) {\n  %s = tile.mul %a, %b : f32\n  tile.yield %s\n}",
    }
    /// Combines the elements up to each position along an axis by its region, as `reduce_by` does,
    /// and keeps every step: the left fold, ascending; with `reverse` from the end, descending.
    ScanBy = 0x56 "scan_by" since "0.4" {
        operands: [], groups: [x: Tile [1, usize::MAX]],
        attrs: [axis: Int required, reverse: Bool optional], regions: [combine],
        results: None, effects: Control, infer: None, verify: Some(combine::verify_scan_by),
        example: "%r = tile.scan_by x(%t) {axis = 1} : tile<8x2xf32> do (%a: f32, %b: f32) {\n  %s = tile.mul %a, %b : f32\n  tile.yield %s\n}",
    }
    /// Sorts along an axis: the elements, and where each was, as i32. Equal elements keep their
    /// order. A NaN is above every number: last, or first where `descending`. `whole` says that every
    /// element counts, so that no padding may be among them, whatever it is.
    Sort = 0x57 "sort" since "0.4" {
        operands: [x: Tile], groups: [], attrs: [axis: Int required, descending: Bool optional, whole: Bool optional], regions: [],
        results: Some(2), effects: Pure, infer: Some(sort::infer_sort), verify: Some(sort::verify_sort),
        example: "%r, %places = tile.sort %t {axis = 0} : tile<8x2xf32>, tile<8x2xi32>",
    }
    /// How often each of the numbers 0, 1, … below the extent of the result is in a tile of
    /// integers; other numbers count nowhere.
    Histogram = 0x58 "histogram" since "0.4" {
        operands: [x: Tile], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Pure, infer: None, verify: Some(sort::verify_histogram),
        example: "%r = tile.histogram %ix : tile<16xi32>",
    }
    /// Assembly text, for each element: `$0`, `$1`, … are the registers of the results, then those of
    /// the operands, which have one shape. `target` and `arch` say where the text may run; anywhere
    /// else its region does, which takes one element of each operand and yields one of each result.
    /// Without a region the op is refused there. A text has no effects: it may be removed, moved, and
    /// run twice, or where the program does not reach it. For targets whose ops have one result,
    /// `outs` has the dtypes of all results of the text, and `result` says which one the op gives.
    Asm = 0x59 "asm" since "0.6" {
        operands: [], groups: [values: Value [0, usize::MAX]],
        attrs: [text: Str required, target: Word required, arch: Word optional, pack: Int optional, outs: Words optional, result: Int optional], regions: [otherwise optional],
        results: None, effects: Pure, infer: None, verify: Some(asm::verify_asm),
        example: "%r = tile.asm %x {text = \"ex2.approx.ftz.f32 $0, $1;\", target = ptx} : f32 do (%a: f32) {\n  %e = tile.exp2 %a : f32\n  tile.yield %e\n}",
    }
    /// The same for a text with effects: it runs once for each element, in the order of the program,
    /// and is never removed.
    AsmEffect = 0x5A "asm_effect" since "0.6" {
        operands: [], groups: [values: Value [0, usize::MAX]],
        attrs: [text: Str required, target: Word required, arch: Word optional, pack: Int optional], regions: [otherwise optional],
        results: None, effects: Host, infer: None, verify: Some(asm::verify_asm),
        example: "tile.asm_effect %x {text = \"{ .reg .u32 t; cvt.rzi.u32.f32 t, $0; nanosleep.u32 t; }\", target = ptx} do (%a: f32) {\n  tile.yield\n}",
    }
}
