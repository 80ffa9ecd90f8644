//! The op table of Schedule IR. Numbers are frozen.

use crate::Schedule;
use crate::level::verify_launch;
use crate::steps::{
    verify_call, verify_collective, verify_constant, verify_copy, verify_free, verify_fused,
    verify_host, verify_if, verify_loop, verify_return, verify_store, verify_view, verify_while,
};
use tessera_ir::{InferContext, Type, define_ops};

fn infer_event(_: &InferContext<'_>) -> Result<Vec<Type>, String> {
    Ok(vec![Type::Event])
}

define_ops! {
    level Schedule;
    /// Every op of Schedule IR.
    pub enum SchedOp;
    aliases {}

    /// Launches a kernel on its arguments. A group kernel has `grid`, the number of groups along
    /// each axis; a lane kernel has `domain`, the number of lanes, and `lanes`, the lanes of a
    /// group. With neither, the caller gives the grid. `config` holds the compile-time values, and
    /// `chosen` what the compiler chose where they leave it open: given back as part of `config`,
    /// it is pinned. In the plan of a function `writes` lists the arguments that the kernel writes,
    /// and `of` the ops of the function that it computes. It runs on `queue` of `device`, behind the
    /// earlier work of that queue; both are 0 where they are left out, here and below.
    Launch = 0x01 "launch" since "0.1" {
        operands: [],
        groups: [values: Any [0, usize::MAX]],
        attrs: [kernel: Ref required, grid: Exprs optional, domain: Extents optional, lanes: Extents optional,
                backend: Word required, config: Dict optional, chosen: Dict optional, writes: Ints optional, of: Str optional,
                device: Int optional, queue: Int optional],
        regions: [],
        results: Some(0), effects: ReadWrite, infer: None, verify: Some(verify_launch),
        example: "sched.launch %x, %y {kernel = @k, grid = [cdiv(n, 64)], backend = interp, config = {B = 64}}",
    }
    /// Ends the plan; of a function's, with the memory of its results.
    Return = 0x02 "return" since "0.1" {
        operands: [], groups: [values: View [0, usize::MAX]], attrs: [], regions: [],
        results: Some(0), effects: Terminator, infer: None, verify: Some(verify_return),
        example: "sched.return",
    }
    /// A value of the function with memory of its own, under its name; `op` is the op that computes
    /// it. Changed to `sched.fused`, it may be fused into kernels. The memory is on `device`, in
    /// `space`: `device` (its global memory, where nothing is said), `host` or `pinned`. `at` is its
    /// place in the plan's block of this space, in bytes: memory that is never in use together may
    /// overlap. It is in use from the first step that accesses it to its `sched.free`.
    Store = 0x03 "store" since "0.2" {
        operands: [], groups: [],
        attrs: [op: Word optional, space: Word optional, device: Int optional, at: Int optional],
        regions: [],
        results: Some(1), effects: ReadWrite, infer: None, verify: Some(verify_store),
        example: "%p = sched.store {op = div} : view<[8], f32, read_write>",
    }
    /// A value of the function without memory, which is fused into kernels. Changed to
    /// `sched.store`, it gets memory. Its attributes are those of a `sched.store`, and say nothing.
    Fused = 0x04 "fused" since "0.2" {
        operands: [], groups: [],
        attrs: [op: Word optional, space: Word optional, device: Int optional, at: Int optional],
        regions: [],
        results: Some(1), effects: Pure, infer: None, verify: Some(verify_fused),
        example: "%e = sched.fused {op = exp} : view<[8], f32, read_write>",
    }
    /// Memory with contents known to the compiler.
    Constant = 0x05 "constant" since "0.2" {
        operands: [], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Pure, infer: None, verify: Some(verify_constant),
        example: "%c = sched.constant : view<[8], f32, read>",
    }
    /// A part of memory: `offset` bytes from its beginning, with `strides` in bytes where it is not
    /// row-major. Each iteration of the loop of an index in `at` moves it by `iteration_bytes`.
    View = 0x06 "view" since "0.2" {
        operands: [of: View],
        groups: [at: Index [0, usize::MAX]],
        attrs: [offset: Int optional, strides: Ints optional, iteration_bytes: Ints optional],
        regions: [],
        results: Some(1), effects: Pure, infer: None, verify: Some(verify_view),
        example: "%m = sched.store : view<[8, 4], f32, read_write>\n%row = sched.view %m {offset = 16} : view<[4], f32, read_write>",
    }
    /// The host evaluates one op by its definition, when the queue comes to it.
    Host = 0x07 "host" since "0.2" {
        operands: [],
        groups: [values: View [0, usize::MAX]],
        attrs: [op: Str required, writes: Ints optional, device: Int optional, queue: Int optional],
        regions: [],
        results: Some(0), effects: ReadWrite, infer: None, verify: Some(verify_host),
        example: "%m = sched.store : view<[8], f32, read_write>\nsched.host %x, %m {op = \"sort\", writes = [1]}",
    }
    /// A kernel of the user, launched as it would be outside the function.
    Call = 0x08 "call" since "0.2" {
        operands: [],
        groups: [values: View [0, usize::MAX]],
        attrs: [kernel: Ref required, config: Dict optional, writes: Ints optional, device: Int optional,
                queue: Int optional],
        regions: [],
        results: Some(0), effects: ReadWrite, infer: None, verify: Some(verify_call),
        example: "%m = sched.store : view<[8], f32, read_write>\nsched.call %x, %m {kernel = @k, writes = [1]}",
    }
    /// Copies elements.
    Copy = 0x09 "copy" since "0.2" {
        operands: [from: View, to: View], groups: [], attrs: [device: Int optional, queue: Int optional], regions: [],
        results: Some(0), effects: ReadWrite, infer: None, verify: Some(verify_copy),
        example: "%m = sched.store : view<[8], f32, read_write>\nsched.copy %x, %m",
    }
    /// Runs one of its regions, by a value in memory. The host reads it behind the work of the queue,
    /// and waits for that.
    If = 0x0a "if" since "0.2" {
        operands: [pred: View], groups: [], attrs: [device: Int optional, queue: Int optional], regions: [then, otherwise],
        results: Some(0), effects: Control, infer: None, verify: Some(verify_if),
        example: "%c = sched.constant : view<[], bool, read>\nsched.if %c do {\n  sched.yield\n} do {\n  sched.yield\n}",
    }
    /// Runs its body while the yield of the first region is true, which the host reads as `sched.if`
    /// does.
    While = 0x0b "while" since "0.2" {
        operands: [], groups: [], attrs: [device: Int optional, queue: Int optional], regions: [test, body],
        results: Some(0), effects: Control, infer: None, verify: Some(verify_while),
        example: "%c = sched.constant : view<[], bool, read>\nsched.while do {\n  sched.yield %c\n} do {\n  sched.yield\n}",
    }
    /// Runs its body `trip` times, from the last iteration to the first with `reverse`; `position`
    /// is the memory of the iteration's index, which the queue writes before each iteration.
    Loop = 0x0c "loop" since "0.2" {
        operands: [position: View], groups: [],
        attrs: [trip: Int required, reverse: Bool optional, device: Int optional, queue: Int optional], regions: [body],
        results: Some(0), effects: Control, infer: None, verify: Some(verify_loop),
        example: "%i = sched.store : view<[], i64, read_write>\nsched.loop %i {trip = 4} do (%t: i64) {\n  sched.yield\n}",
    }
    /// Ends a region; the first of a `while` with its condition.
    Yield = 0x0d "yield" since "0.2" {
        operands: [], groups: [values: View [0, usize::MAX]], attrs: [], regions: [],
        results: Some(0), effects: Terminator, infer: None, verify: None,
        example: "sched.yield",
    }
    /// Ends the use of memory, behind the earlier work of the queue. It stands in the block of the
    /// `sched.store`.
    Free = 0x0e "free" since "0.2" {
        operands: [memory: View], groups: [], attrs: [device: Int optional, queue: Int optional], regions: [],
        results: Some(0), effects: ReadWrite, infer: None, verify: Some(verify_free),
        example: "%m = sched.store : view<[8], f32, read_write>\nsched.copy %x, %m\nsched.free %m",
    }
    /// A point in the work of a queue, behind all of it so far.
    Record = 0x0f "record" since "0.2" {
        operands: [], groups: [], attrs: [device: Int optional, queue: Int optional], regions: [],
        results: Some(1), effects: Sync, infer: Some(infer_event), verify: None,
        example: "%e = sched.record : event",
    }
    /// The later work of the queue begins behind the point.
    Wait = 0x10 "wait" since "0.2" {
        operands: [event: Event], groups: [], attrs: [device: Int optional, queue: Int optional], regions: [],
        results: Some(0), effects: Sync, infer: None, verify: None,
        example: "%e = sched.record : event\nsched.wait %e {queue = 1}\n%f = sched.record {queue = 1} : event\nsched.wait %f",
    }
    /// A collective of the ranks along `axes` of a mesh, with the attributes of the op of Graph IR that `kind`
    /// names: reads `from` and writes `to`. It starts when its queue comes to it, and an event behind it is over when
    /// it is complete: what stands between the two runs beside it. All ranks come to their collectives in one order.
    /// `joined` is how many of the program it is, whose arrays are parts of `from` and `to`.
    Collective = 0x11 "collective" since "0.6" {
        operands: [from: View, to: View], groups: [],
        attrs: [kind: Word required, axes: Words required, sizes: Ints required, op: Word optional, dim: Int optional, split: Int optional,
                concat: Int optional, pairs: List optional, root: Int optional, joined: Int optional, device: Int optional, queue: Int optional],
        regions: [],
        results: Some(0), effects: Collective, infer: None, verify: Some(verify_collective),
        example: "%m = sched.store : view<[8], f32, read_write>\nsched.collective %x, %m {kind = all_reduce, axes = [dp], sizes = [4], op = sum}",
    }
}
