//! The op table of Graph IR: one row an op. Numbers are frozen.
//!
//! Every value is a tensor; rank 0 is a number. Nothing is stretched or converted silently:
//! `broadcast` and `cast` are ops. Where a dtype is stored narrower than it is computed, an op computes
//! in the carrier and stores once. Sums are kept in the accumulator of the operand's policy.

use crate::Graph;
use crate::ops::{
    collective, dot, elementwise, index, kernel, random, reduce, shape, value, window,
};
use crate::rule::{infer, verify};
use tessera_ir::define_ops;
use tessera_numerics::ScalarFn;

define_ops! {
    level Graph;
    /// Every op of Graph IR.
    pub enum GraphOp;

    family Ew(ScalarFn) {
        all: ScalarFn::ALL,
        name: |f: ScalarFn| f.name(),
        parse: ScalarFn::from_name,
        info: elementwise::info
    }

    aliases {}

    /// Runs a kernel. `privileges` has one word for each argument; the results are the new versions
    /// of the arguments it writes, in order, and the old versions may not be used again. `config`
    /// holds the values of the kernel's compile-time parameters. `fresh` lists arguments of `write`
    /// that hold nothing yet: they get memory, and their contents are never computed. `views`:
    /// arrays that it reads may be views of other arrays, with strides of their own. `sharding` is the factor rule of its
    /// dims; ranks that split a factor in `contract` give results that are to be added.
    KernelCall = 0x01 "kernel_call" since "0.1" {
        operands: [],
        groups: [values: Any [0, usize::MAX]],
        attrs: [kernel: Ref required, privileges: Words required, config: Dict optional, fresh: Ints optional, views: Bool optional, sharding: Str optional, contract: Words optional],
        regions: [],
        results: None, effects: ReadWrite, infer: Some(infer::<kernel::Call>), verify: Some(kernel::verify_call),
        example: "%z1 = graph.kernel_call %x, %z {kernel = @k, privileges = [read, read_write], config = {B = 64}} : tensor<[n], f32>",
    }
    /// Ends the function and hands back values.
    Return = 0x02 "return" since "0.1" {
        operands: [],
        groups: [values: Any [0, usize::MAX]],
        attrs: [], regions: [],
        results: Some(0), effects: Terminator, infer: None, verify: None,
        example: "graph.return %y",
    }
    /// Ends a region and hands its values to the op around it.
    Yield = 0x03 "yield" since "0.1" {
        operands: [],
        groups: [values: Tensor [0, usize::MAX]],
        attrs: [], regions: [],
        results: Some(0), effects: Terminator, infer: None, verify: None,
        example: "graph.yield %y",
    }
    /// Runs one of its two regions: the first where the condition holds. Both yield values of the
    /// result types. Regions see the values around them.
    Cond = 0x04 "cond" since "0.1" {
        operands: [pred: Tensor], groups: [], attrs: [], regions: [then, otherwise],
        results: None, effects: Control, infer: None, verify: Some(verify),
        example: "%r = graph.cond %p : tensor<[4, 8], f32> do {\n  graph.yield %x\n} do {\n  graph.yield %y\n}",
    }
    /// Runs its second region while its first yields true. Both take the carried values; the results
    /// are the last ones.
    While = 0x05 "while" since "0.1" {
        operands: [], groups: [init: Tensor [0, usize::MAX]], attrs: [], regions: [cond, body],
        results: None, effects: Control, infer: None, verify: Some(verify),
        example: "%r = graph.while init(%i) : tensor<[], i64> do (%a: tensor<[], i64>) {\n  %k = graph.lt %a, %j : tensor<[], bool>\n  graph.yield %k\n} do (%b: tensor<[], i64>) {\n  %m = graph.add %b, %j : tensor<[], i64>\n  graph.yield %m\n}",
    }
    /// Runs its body `trip` times. The body takes the position (i64), the carried values, and one
    /// step of each of `xs`, which have `trip` as first extent; it yields the next carried values and
    /// then steps that are stacked. Results: the last carried values, then the stacks. `reverse` runs
    /// from the last position to the first; steps keep their positions.
    Loop = 0x06 "loop" since "0.1" {
        operands: [],
        groups: [init: Tensor [0, usize::MAX], xs: Tensor [0, usize::MAX]],
        attrs: [trip: Expr required, reverse: Bool optional], regions: [body],
        results: None, effects: Control, infer: None, verify: Some(verify),
        example: "%last, %all = graph.loop init(%r8) xs(%x) {trip = 4} : tensor<[8], f32>, tensor<[4, 8], f32> do (%i2: tensor<[], i64>, %acc: tensor<[8], f32>, %row: tensor<[8], f32>) {\n  %m = graph.add %acc, %row : tensor<[8], f32>\n  graph.yield %m, %acc\n}",
    }
    /// Calls a function of the module. `kind` says why it is a call: `jit` (a boundary that keeps
    /// its name), `checkpoint` (what is inside is computed again for the reverse pass),
    /// `custom_vjp` (`fwd` gives the results and then what `bwd` needs; `bwd` takes that and the
    /// cotangents), `custom_jvp` (`jvp` takes arguments and tangents). `nondiff` lists arguments
    /// without derivative. `plain` is what the call means in other ops: transforms for which the
    /// call has no rule use it in place of the callee, which may be kernels that cannot be
    /// transformed. With `plain`, a derivative by an argument in `nondiff` is that of `plain`:
    /// there the rule is not taken.
    Call = 0x07 "call" since "0.1" {
        operands: [],
        groups: [values: Any [0, usize::MAX]],
        attrs: [callee: Ref required, kind: Word optional, fwd: Ref optional, bwd: Ref optional, jvp: Ref optional, nondiff: Ints optional, plain: Ref optional],
        regions: [],
        results: None, effects: Control, infer: None, verify: Some(verify),
        example: "%r = graph.call %x, %y {callee = @f, kind = checkpoint} : tensor<[4, 8], f32>",
    }
    /// An operation with a name, which planning may give to a kernel: `decomposition` is a function with
    /// the same signature that says what it computes in other ops, and `config` are its static
    /// attributes. Without a kernel the decomposition takes its place. `fwd` and `bwd`, or `jvp`, are a
    /// derivative rule as `call` has them; where there is no rule, and for a derivative by an operand in
    /// `nondiff`, the derivative is that of the decomposition. `sharding` is the factor rule of its
    /// dims. The decomposition holds no op of a rank. In a program of ranks, `whole` names the decomposition of
    /// the composite whose block this is.
    Composite = 0x08 "composite" since "0.6" {
        operands: [],
        groups: [values: Tensor [0, usize::MAX]],
        attrs: [name: Word required, decomposition: Ref required, config: Dict optional, fwd: Ref optional, bwd: Ref optional, jvp: Ref optional, nondiff: Ints optional, sharding: Str optional, whole: Word optional],
        regions: [],
        results: None, effects: Control, infer: None, verify: Some(verify),
        example: "%r = graph.composite %x, %y {name = sum_of_two, decomposition = @f, config = {eps = 0.5}} : tensor<[4, 8], f32>",
    }
    /// A constant: every element is `value`, or `data` holds the elements in row-major order,
    /// little-endian and unpacked, in hexadecimal digits.
    Const = 0x10 "const" since "0.1" {
        operands: [], groups: [], attrs: [value: Number optional, data: Str optional], regions: [],
        results: Some(1), effects: Pure, infer: None, verify: Some(verify),
        example: "%c0 = graph.const {value = 0.0} : tensor<[4, 8], f32>\n%c1 = graph.const {data = \"0100feff\"} : tensor<[2], i16>",
    }
    /// Each element's position along an axis, converted to the dtype.
    Iota = 0x11 "iota" since "0.1" {
        operands: [], groups: [], attrs: [axis: Int required], regions: [],
        results: Some(1), effects: Pure, infer: None, verify: Some(verify),
        example: "%r = graph.iota {axis = 1} : tensor<[4, 8], i32>",
    }
    /// Takes `a` where the condition holds and `b` elsewhere. A condition without axes takes one whole.
    Select = 0x12 "select" since "0.1" {
        operands: [cond: Tensor, a: Tensor, b: Tensor], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<value::Select>), verify: Some(verify),
        example: "%r = graph.select %p, %x, %y : tensor<[4, 8], f32>",
    }
    /// Converts to the dtype of the result (LANGUAGE 9): to a smaller float it rounds to nearest
    /// even unless `round` says otherwise, saturating for fp8, fp6 and fp4; float to integer
    /// truncates and saturates; integers wrap unless `saturate`. What the attributes leave open the
    /// result's policy says.
    Cast = 0x13 "cast" since "0.1" {
        operands: [x: Tensor], groups: [], attrs: [round: Word optional, saturate: Bool optional], regions: [],
        results: Some(1), effects: Pure, infer: None, verify: Some(verify),
        example: "%r = graph.cast %x : tensor<[4, 8], bf16>",
    }
    /// The same bits as another dtype of the same width.
    Bitcast = 0x14 "bitcast" since "0.1" {
        operands: [x: Tensor], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Pure, infer: None, verify: Some(verify),
        example: "%r = graph.bitcast %x : tensor<[4, 8], i32>",
    }
    /// The run-time value of a dimension expression over the symbols of the parameters.
    Dim = 0x15 "dim" since "0.1" {
        operands: [], groups: [], attrs: [name: Expr required], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<value::DimOf>), verify: Some(verify),
        example: "%r = graph.dim {name = n} : tensor<[], i64>",
    }
    /// The same value; its derivative is zero.
    StopGradient = 0x16 "stop_gradient" since "0.1" {
        operands: [x: Tensor], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<value::Same>), verify: Some(verify),
        example: "%r = graph.stop_gradient %x : tensor<[4, 8], f32>",
    }
    /// The same values, which no rewrite may see through: what comes after is not merged with what
    /// was computed from the operands before.
    OptBarrier = 0x17 "opt_barrier" since "0.1" {
        operands: [], groups: [values: Tensor [0, usize::MAX]], attrs: [], regions: [],
        results: None, effects: Pure, infer: Some(infer::<value::SameAll>), verify: Some(verify),
        example: "%r, %q = graph.opt_barrier %x, %p : tensor<[4, 8], f32>, tensor<[], bool>",
    }
    /// Repeats elements: axis `i` of the operand is axis `dims[i]` of the result, with the same
    /// extent or stretched from 1; the other axes of the result are new.
    Broadcast = 0x20 "broadcast" since "0.1" {
        operands: [x: Tensor], groups: [], attrs: [dims: Ints required], regions: [],
        results: Some(1), effects: Pure, infer: None, verify: Some(verify),
        example: "%r = graph.broadcast %r8 {dims = [1]} : tensor<[4, 8], f32>",
    }
    /// The same elements in row-major order under another shape.
    Reshape = 0x21 "reshape" since "0.1" {
        operands: [x: Tensor], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Pure, infer: None, verify: Some(verify),
        example: "%r = graph.reshape %x : tensor<[2, 16], f32>",
    }
    /// Permutes the axes: result axis `i` is operand axis `perm[i]`.
    Transpose = 0x22 "transpose" since "0.1" {
        operands: [x: Tensor], groups: [], attrs: [perm: Ints required], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<shape::Transpose>), verify: Some(verify),
        example: "%r = graph.transpose %x {perm = [1, 0]} : tensor<[8, 4], f32>",
    }
    /// The elements from `start` up to but not including `limit` along each axis, every `stride`th.
    Slice = 0x23 "slice" since "0.1" {
        operands: [x: Tensor], groups: [],
        attrs: [start: Exprs required, limit: Exprs required, stride: Ints optional], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<shape::Slice>), verify: Some(verify),
        example: "%r = graph.slice %x {start = [0, 1], limit = [4, 8], stride = [1, 2]} : tensor<[4, 4], f32>",
    }
    /// Puts `value` before, after and between the elements along each axis: `lo`, `hi` and `interior`
    /// many. Negative `lo` and `hi` leave elements out, after the others are put in.
    Pad = 0x24 "pad" since "0.1" {
        operands: [x: Tensor, value: Tensor], groups: [],
        attrs: [lo: Exprs required, hi: Exprs required, interior: Ints optional], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<shape::Pad>), verify: Some(verify),
        example: "%r = graph.pad %x, %f {lo = [1, 0], hi = [1, -2], interior = [0, 1]} : tensor<[6, 13], f32>",
    }
    /// Joins arrays along an axis.
    Concat = 0x25 "concat" since "0.1" {
        operands: [], groups: [values: Tensor [1, usize::MAX]], attrs: [axis: Int required], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<shape::Concat>), verify: Some(verify),
        example: "%r = graph.concat %x, %y {axis = 0} : tensor<[8, 8], f32>",
    }
    /// Iterations the order of the elements around along some axes.
    Reverse = 0x26 "reverse" since "0.1" {
        operands: [x: Tensor], groups: [], attrs: [axes: Ints required], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<shape::Reverse>), verify: Some(verify),
        example: "%r = graph.reverse %x {axes = [1]} : tensor<[4, 8], f32>",
    }
    /// The part of these extents that begins at `at`. A part that would leave the array is moved back
    /// inside.
    DynamicSlice = 0x28 "dynamic_slice" since "0.1" {
        operands: [x: Tensor], groups: [at: Tensor [0, usize::MAX]], attrs: [extent: Exprs required], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<index::DynamicSlice>), verify: Some(verify),
        example: "%r = graph.dynamic_slice %x at(%i, %j) {extent = [1, 8]} : tensor<[1, 8], f32>",
    }
    /// The array with a part replaced by `update`, placed as `dynamic_slice` places it.
    DynamicUpdateSlice = 0x29 "dynamic_update_slice" since "0.1" {
        operands: [x: Tensor, update: Tensor], groups: [at: Tensor [0, usize::MAX]], attrs: [], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<index::DynamicUpdateSlice>), verify: Some(verify),
        example: "%u = graph.const {value = 1.0} : tensor<[1, 8], f32>\n%r = graph.dynamic_update_slice %x, %u at(%i, %j) : tensor<[4, 8], f32>",
    }
    /// Reads at computed positions. The last axis of `indices` holds one index for each of `axes` of
    /// `x`; the first `batch` axes of both are paired. Result: the axes of `indices` but the last, then
    /// the axes of `x` that are neither paired nor indexed. An index outside is `clamp`ed, or the
    /// elements are `other`, zero if not given (`fill`). Negative indices are outside.
    Gather = 0x2A "gather" since "0.1" {
        operands: [x: Tensor, indices: Tensor], groups: [other: Tensor [0, 1]],
        attrs: [axes: Ints required, batch: Int optional, oob: Word optional], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<index::Gather>), verify: Some(verify),
        example: "%r = graph.gather %x, %ix {axes = [0], oob = fill} : tensor<[3, 8], f32>",
    }
    /// The array with updates put at computed positions, placed as `gather` reads: `op` is `set` or
    /// joins what is there with what comes (`sum prod max min and or xor`). Updates are taken in
    /// row-major order, and joined in the accumulator before they are stored. An index outside is
    /// `drop`ped or `clamp`ed. `unique`: no element is named twice.
    Scatter = 0x2B "scatter" since "0.1" {
        operands: [x: Tensor, indices: Tensor, updates: Tensor], groups: [],
        attrs: [op: Word required, axes: Ints required, batch: Int optional, oob: Word optional, unique: Bool optional], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<index::Scatter>), verify: Some(verify),
        example: "%u = graph.const {value = 1.0} : tensor<[3, 8], f32>\n%r = graph.scatter %x, %ix, %u {op = sum, axes = [0]} : tensor<[4, 8], f32>",
    }
    /// Combines the elements along axes in the canonical order of LANGUAGE 14; a position is that in
    /// row-major order over the axes. The axes go. Over no elements it is the operator's identity, or
    /// the dtype's least or greatest value for `max` and `min`.
    Reduce = 0x30 "reduce" since "0.1" {
        operands: [x: Tensor], groups: [], attrs: [op: Word required, axes: Ints required], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<reduce::Reduce>), verify: Some(verify),
        example: "%r = graph.reduce %x {op = sum, axes = [1]} : tensor<[4], f32>",
    }
    /// Where along an axis the largest (`max`) or smallest (`min`) element is, as i64; the axis goes.
    /// Of equal elements the first counts, and a NaN before any number.
    ArgReduce = 0x31 "argreduce" since "0.1" {
        operands: [x: Tensor], groups: [], attrs: [op: Word required, axis: Int required], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<reduce::ArgReduce>), verify: Some(verify),
        example: "%r = graph.argreduce %x {op = max, axis = 1} : tensor<[4], i64>",
    }
    /// Combines the elements along an axis one after another, in the accumulator, and stores every
    /// step: result `i` is the fold up to `i`, or of what is before it where `exclusive`, which begins
    /// with the identity. `reverse` begins at the end.
    Scan = 0x32 "scan" since "0.1" {
        operands: [x: Tensor], groups: [],
        attrs: [op: Word required, axis: Int required, exclusive: Bool optional, reverse: Bool optional], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<reduce::Scan>), verify: Some(verify),
        example: "%r = graph.scan %x {op = sum, axis = 1} : tensor<[4, 8], f32>",
    }
    /// Orders the elements along an axis by the first operand, then by the next ones up to `keys`
    /// (1 if not given); the other operands follow. Equal elements keep their order, also where
    /// `descending`. A NaN is greater than any number; -0 equals +0.
    Sort = 0x33 "sort" since "0.1" {
        operands: [], groups: [values: Tensor [1, usize::MAX]],
        attrs: [axis: Int required, descending: Bool optional, keys: Int optional], regions: [],
        results: None, effects: Pure, infer: Some(infer::<reduce::Sort>), verify: Some(verify),
        example: "%r, %q = graph.sort %x, %y {axis = 1} : tensor<[4, 8], f32>, tensor<[4, 8], f32>",
    }
    /// Contraction, such as a matmul: sums of products over the contracted axes, for each position
    /// of the batch axes. Result: batch axes, then the other axes of `a`, then those of `b`. The
    /// accumulator is in `accum` (else the policy of `a`, else its compute type), stored as `out`
    /// (else the operands' dtype). `class` is the accumulation class of LANGUAGE 13; `seq` is one
    /// fused multiply-add for each position of the contracted axes, row-major in the order they are
    /// listed, from zero.
    Dot = 0x40 "dot" since "0.1" {
        operands: [a: Tensor, b: Tensor], groups: [],
        attrs: [batch_a: Ints optional, batch_b: Ints optional, contract_a: Ints required, contract_b: Ints required, accum: Word optional, out: Word optional, class: Word optional],
        regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<dot::Dot>), verify: Some(verify),
        example: "%r = graph.dot %x, %y {contract_a = [1], contract_b = [1]} : tensor<[4, 4], f32>",
    }
    /// Convolution of `x` [batch, channels, …] with `w` [out, channels / groups, …]: windows move by
    /// `strides` over `x`, whose elements stand `dilate_x` apart with `lo` and `hi` zeros around (less
    /// than none leaves elements out); those of `w` stand `dilate_w` apart. Channels and outputs fall
    /// into `groups`. Sums as in `dot`, over channels and then the window, row-major.
    Conv = 0x41 "conv" since "0.1" {
        operands: [x: Tensor, w: Tensor], groups: [],
        attrs: [strides: Ints optional, lo: Exprs optional, hi: Exprs optional, dilate_x: Ints optional, dilate_w: Ints optional, groups: Int optional, accum: Word optional, out: Word optional, class: Word optional],
        regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<dot::Conv>), verify: Some(verify),
        example: "%im = graph.const {value = 1.0} : tensor<[2, 4, 8, 8], f32>\n%w = graph.const {value = 1.0} : tensor<[6, 2, 3, 3], f32>\n%r = graph.conv %im, %w {strides = [1, 2], lo = [1, 1], hi = [1, 1], groups = 2} : tensor<[2, 6, 8, 4], f32>",
    }
    /// Combines the elements of each window, row-major, in the accumulator. Lists have one entry for
    /// each axis: the windows' extents, how far apart they begin and their elements stand, and how
    /// many identities stand around.
    WindowReduce = 0x42 "window_reduce" since "0.1" {
        operands: [x: Tensor], groups: [],
        attrs: [op: Word required, window: Ints required, strides: Ints optional, lo: Exprs optional, hi: Exprs optional, dilate: Ints optional], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<window::Reduce>), verify: Some(verify),
        example: "%r = graph.window_reduce %x {op = max, window = [2, 2], strides = [2, 2]} : tensor<[2, 4], f32>",
    }
    /// Where in each window the largest or smallest element is, as a row-major position in the window
    /// (i64). Padding never counts; 0 where there is nothing else. Of equal elements the first
    /// counts, and a NaN before any number.
    WindowArgReduce = 0x43 "window_argreduce" since "0.1" {
        operands: [x: Tensor], groups: [],
        attrs: [op: Word required, window: Ints required, strides: Ints optional, lo: Exprs optional, hi: Exprs optional, dilate: Ints optional], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<window::ArgReduce>), verify: Some(verify),
        example: "%r = graph.window_argreduce %x {op = max, window = [2, 2], strides = [2, 2]} : tensor<[2, 4], i64>",
    }
    /// One word of Philox4x32-10 for each counter: `key` is the key, the counter the low half of the
    /// 128-bit counter; `word` is 0 to 3. The values are those of `tile.philox`.
    Philox = 0x50 "philox" since "0.1" {
        operands: [key: Tensor, counter: Tensor], groups: [], attrs: [word: Int optional], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<random::Philox>), verify: Some(verify),
        example: "%r = graph.philox %i, %j : tensor<[], u32>",
    }
    /// The same value, placed on a mesh with these axes and extents: `split` has for each dim the axes that
    /// split it, coarsest first; axes that are not named hold copies. Dims in `open` may be split over more
    /// axes. Where placements contradict each other, those of the lower `priority` count (0 if not given).
    /// A placement changes no value.
    Shard = 0x60 "shard" since "0.6" {
        operands: [x: Tensor], groups: [],
        attrs: [axes: Words required, sizes: Ints required, split: List required, open: Ints optional, priority: Int optional], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<collective::Sharded>), verify: Some(verify),
        example: "%r = graph.shard %x {axes = [dp, tp], sizes = [2, 3], split = [[dp], []], open = [1]} : tensor<[4, 8], f32>",
    }
    /// The program of one rank of a mesh with these axes and extents. `in` and `out` have an entry for each
    /// operand and result: for each dim the mesh axes that split it, coarsest first; axes that are not
    /// named hold copies. The region takes the block of each operand, yields the block of each result, and
    /// uses nothing from outside. A value in it is *varying* along some axes and *same* along the others;
    /// a same value that is used with a varying one is taken as each rank's own. A result may vary only
    /// along axes that split it.
    Manual = 0x61 "manual" since "0.3" {
        operands: [], groups: [values: Tensor [0, usize::MAX]],
        attrs: [axes: Words required, sizes: Ints required, in: List required, out: List required], regions: [body],
        results: None, effects: Control, infer: None, verify: Some(verify),
        example: "%r = graph.manual %x {axes = [tp], sizes = [2], in = [[[tp], []]], out = [[[tp], []]]} : tensor<[4, 8], f32> do (%k: tensor<[2, 8], f32>) {\n  %s = graph.mul %k, %k : tensor<[2, 8], f32>\n  graph.yield %s\n}",
    }
    /// The same value, taken as each rank's own along axes. In programs of one rank only, like the ops below.
    Vary = 0x62 "vary" since "0.3" {
        operands: [x: Tensor], groups: [], attrs: [axes: Words required, sizes: Ints required], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<collective::Kept>), verify: Some(verify),
        example: "%r = graph.manual %x {axes = [tp], sizes = [2], in = [[[tp], []]], out = [[[tp], []]]} : tensor<[4, 8], f32> do (%k: tensor<[2, 8], f32>) {\n  %c = graph.const {value = 2.0} : tensor<[2, 8], f32>\n  %v = graph.vary %c {axes = [tp], sizes = [2]} : tensor<[2, 8], f32>\n  %m = graph.mul %v, %k : tensor<[2, 8], f32>\n  graph.yield %m\n}",
    }
    /// Each rank's own block of `dim` of a value that is same along the axes.
    Own = 0x63 "own" since "0.3" {
        operands: [x: Tensor], groups: [], attrs: [axes: Words required, sizes: Ints required, dim: Int required], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<collective::Scattered>), verify: Some(verify),
        example: "%r = graph.manual %x {axes = [tp], sizes = [2], in = [[[], []]], out = [[[tp], []]]} : tensor<[4, 8], f32> do (%k: tensor<[4, 8], f32>) {\n  %o = graph.own %k {axes = [tp], sizes = [2], dim = 0} : tensor<[2, 8], f32>\n  graph.yield %o\n}",
    }
    /// Combines the values of all ranks along axes, in the canonical order of LANGUAGE 14 over their
    /// row-major positions, in the accumulator; stored once. The result is same along the axes.
    AllReduce = 0x64 "all_reduce" since "0.3" {
        operands: [x: Tensor], groups: [], attrs: [axes: Words required, sizes: Ints required, op: Word required], regions: [],
        results: Some(1), effects: Collective, infer: Some(infer::<collective::Kept>), verify: Some(verify),
        example: "%r = graph.manual %x {axes = [tp], sizes = [2], in = [[[tp], []]], out = [[[], []]]} : tensor<[2, 8], f32> do (%k: tensor<[2, 8], f32>) {\n  %s = graph.all_reduce %k {axes = [tp], sizes = [2], op = sum} : tensor<[2, 8], f32>\n  graph.yield %s\n}",
    }
    /// Joins the blocks of all ranks along `dim`. The result is same along the axes.
    AllGather = 0x65 "all_gather" since "0.3" {
        operands: [x: Tensor], groups: [], attrs: [axes: Words required, sizes: Ints required, dim: Int required], regions: [],
        results: Some(1), effects: Collective, infer: Some(infer::<collective::AllGather>), verify: Some(verify),
        example: "%r = graph.manual %x {axes = [tp], sizes = [2], in = [[[tp], []]], out = [[[], []]]} : tensor<[4, 8], f32> do (%k: tensor<[2, 8], f32>) {\n  %s = graph.all_gather %k {axes = [tp], sizes = [2], dim = 0} : tensor<[4, 8], f32>\n  graph.yield %s\n}",
    }
    /// Combines as `all_reduce`; each rank takes its own block of `dim`.
    ReduceScatter = 0x66 "reduce_scatter" since "0.3" {
        operands: [x: Tensor], groups: [], attrs: [axes: Words required, sizes: Ints required, dim: Int required, op: Word required], regions: [],
        results: Some(1), effects: Collective, infer: Some(infer::<collective::Scattered>), verify: Some(verify),
        example: "%r = graph.manual %x {axes = [tp], sizes = [2], in = [[[tp], []]], out = [[[tp], []]]} : tensor<[2, 8], f32> do (%k: tensor<[2, 8], f32>) {\n  %s = graph.reduce_scatter %k {axes = [tp], sizes = [2], dim = 0, op = sum} : tensor<[1, 8], f32>\n  graph.yield %s\n}",
    }
    /// Cuts the block along `split`, one part for each rank, and joins what comes from each rank along
    /// `concat`.
    AllToAll = 0x67 "all_to_all" since "0.3" {
        operands: [x: Tensor], groups: [], attrs: [axes: Words required, sizes: Ints required, split: Int required, concat: Int required], regions: [],
        results: Some(1), effects: Collective, infer: Some(infer::<collective::AllToAll>), verify: Some(verify),
        example: "%r = graph.manual %x {axes = [tp], sizes = [2], in = [[[tp], []]], out = [[[], [tp]]]} : tensor<[4, 8], f32> do (%k: tensor<[2, 8], f32>) {\n  %s = graph.all_to_all %k {axes = [tp], sizes = [2], split = 1, concat = 0} : tensor<[4, 4], f32>\n  graph.yield %s\n}",
    }
    /// Sends the value along pairs (source, target) of positions along the axes; who receives nothing has
    /// zeros.
    Permute = 0x68 "permute" since "0.3" {
        operands: [x: Tensor], groups: [], attrs: [axes: Words required, sizes: Ints required, pairs: List required], regions: [],
        results: Some(1), effects: Collective, infer: Some(infer::<collective::Kept>), verify: Some(verify),
        example: "%r = graph.manual %x {axes = [tp], sizes = [2], in = [[[tp], []]], out = [[[tp], []]]} : tensor<[4, 8], f32> do (%k: tensor<[2, 8], f32>) {\n  %s = graph.permute %k {axes = [tp], sizes = [2], pairs = [[0, 1], [1, 0]]} : tensor<[2, 8], f32>\n  graph.yield %s\n}",
    }
    /// The value of the rank at position `root` along the axes, for all of them.
    FromRank = 0x69 "from_rank" since "0.3" {
        operands: [x: Tensor], groups: [], attrs: [axes: Words required, sizes: Ints required, root: Int required], regions: [],
        results: Some(1), effects: Collective, infer: Some(infer::<collective::Kept>), verify: Some(verify),
        example: "%r = graph.manual %x {axes = [tp], sizes = [2], in = [[[tp], []]], out = [[[], []]]} : tensor<[2, 8], f32> do (%k: tensor<[2, 8], f32>) {\n  %s = graph.from_rank %k {axes = [tp], sizes = [2], root = 1} : tensor<[2, 8], f32>\n  graph.yield %s\n}",
    }
    /// The rank's position along axes, row-major.
    AxisIndex = 0x6C "axis_index" since "0.3" {
        operands: [], groups: [], attrs: [axes: Words required, sizes: Ints required], regions: [],
        results: Some(1), effects: Pure, infer: Some(infer::<collective::AxisIndex>), verify: Some(verify),
        example: "%r = graph.manual %x {axes = [tp], sizes = [2], in = [[[tp], []]], out = [[[tp], []]]} : tensor<[4, 8], f32> do (%k: tensor<[2, 8], f32>) {\n  %n = graph.axis_index {axes = [tp], sizes = [2]} : tensor<[], i64>\n  %g = graph.cast %n : tensor<[], f32>\n  %h = graph.broadcast %g {dims = []} : tensor<[2, 8], f32>\n  %m = graph.mul %h, %k : tensor<[2, 8], f32>\n  graph.yield %m\n}",
    }
}
