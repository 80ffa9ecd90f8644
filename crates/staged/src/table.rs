//! The op table of Staged IR: the ops of Tile IR as one family, and the ops for threads, shared
//! memory, asynchronous copies and MMAs, and roles. Numbers are frozen.

use crate::ops::{bulk, family, mma, order_barrier, pipeline, roles, smem, tiles};
use crate::{Staged, family as rows};
use tessera_ir::define_ops;
use tessera_tile::TileOp;

define_ops! {
    level Staged;
    /// Every op of Staged IR.
    pub enum StagedOp;

    family Tile(TileOp) {
        all: rows::all(),
        name: rows::name,
        parse: rows::parse,
        info: rows::info
    }

    aliases {}

    /// The same elements in another layout: the one op that moves the elements of a tile between
    /// threads without explicit shared memory.
    ConvertLayout = 0x200 "convert_layout" since "0.2" {
        operands: [x: Tile], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Pure, infer: None, verify: Some(family::verify_convert),
        example: "%c = staged.convert_layout %t : LAID",
    }
    /// Shared memory for the whole kernel, not initialised; in a role, for each of its replicas.
    SmemAlloc = 0x210 "smem_alloc" since "0.2" {
        operands: [], groups: [], attrs: [alignment: Int optional], regions: [],
        results: Some(1), effects: Write, infer: None, verify: Some(smem::verify_alloc),
        example: "%m2 = staged.smem_alloc : SMEM",
    }
    /// A block of shared memory: no bytes move. An extent of 0 takes one position and drops the
    /// axis; `perm` then permutes the axes as in `transpose`.
    SmemView = 0x211 "smem_view" since "0.2" {
        operands: [mem: Smem],
        groups: [at: Index [0, usize::MAX]],
        attrs: [extent: Ints required, perm: Ints optional], regions: [],
        results: Some(1), effects: Pure, infer: Some(smem::infer_view), verify: Some(smem::verify_view),
        example: "%w = staged.smem_view %m at(%i, %i) {extent = [8, 8]} : SMEM",
    }
    /// Reads the whole of shared memory into a tile.
    FragLoad = 0x212 "frag_load" since "0.2" {
        operands: [mem: Smem], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Read, infer: None, verify: Some(smem::verify_load),
        example: "%l = staged.frag_load %m : LAID",
    }
    /// Writes a tile over the whole of shared memory.
    FragStore = 0x213 "frag_store" since "0.2" {
        operands: [mem: Smem, value: Tile], groups: [], attrs: [], regions: [],
        results: Some(0), effects: Write, infer: None, verify: Some(smem::verify_store),
        example: "staged.frag_store %m, %t",
    }
    /// A block of a tile that consists of whole atoms of its layout: each thread keeps its
    /// elements, and no data moves.
    FragPart = 0x214 "frag_part" since "0.3" {
        operands: [x: Tile], groups: [], attrs: [at: Ints required, extent: Ints required], regions: [],
        results: Some(1), effects: Pure, infer: Some(smem::infer_part), verify: Some(smem::verify_part),
        example: "%q = staged.frag_part %t {at = [0, 0], extent = [8, 8]} : LAID",
    }
    /// A pipeline with as many stages as its type says, all free. Counter `i` of a pipeline op
    /// refers to stage `i mod n`; instruction selection derives mbarriers and phases from it.
    PipelineCreate = 0x220 "pipeline_create" since "0.2" {
        operands: [], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Write, infer: None, verify: Some(pipeline::verify_create),
        example: "%r2 = staged.pipeline_create : PIPELINE",
    }
    /// Waits until the stage of counter `i` is free, and acquires it to be filled. A producer takes
    /// the counters 0, 1, 2, … in order.
    Acquire = 0x221 "acquire" since "0.2" {
        operands: [pipeline: Pipeline, i: Index], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Sync, infer: Some(pipeline::infer_stage), verify: None,
        example: "%s2 = staged.acquire %r, %i : STAGE",
    }
    /// Starts an asynchronous copy of a block of global memory to a field of an acquired stage;
    /// positions outside become zero. It is complete when a `wait` for the counter returns. With
    /// `multicast = [0]` the CTAs of a cluster that are neighbours along axis 0 of the grid copy
    /// the same block: each copies a part of it to all of them. `acquire` then waits until all of
    /// them have released the stage.
    Fill = 0x222 "fill" since "0.2" {
        operands: [stage: Stage, src: View],
        groups: [at: Index [0, usize::MAX]],
        attrs: [field: Word required, extent: Ints required, bounds: Words optional, multicast: Ints optional], regions: [],
        results: Some(0), effects: ReadWrite, infer: None, verify: Some(pipeline::verify_fill),
        example: "staged.fill %s, %v at(%i, %i) {field = a, extent = [8, 8]}",
    }
    /// Says that all copies and writes of counter `i` have been issued: `wait` returns when they
    /// are complete.
    Publish = 0x223 "publish" since "0.2" {
        operands: [pipeline: Pipeline, i: Index], groups: [], attrs: [], regions: [],
        results: Some(0), effects: Sync, infer: None, verify: None,
        example: "staged.publish %r, %i",
    }
    /// Waits until the stage of counter `i` is filled, and acquires it to be read.
    Wait = 0x224 "wait" since "0.2" {
        operands: [pipeline: Pipeline, i: Index], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Sync, infer: Some(pipeline::infer_stage), verify: None,
        example: "%s2 = staged.wait %r, %i : STAGE",
    }
    /// The memory of one field: written between `acquire` and `publish`, or read between `wait` and
    /// `release`.
    Field = 0x225 "field" since "0.2" {
        operands: [stage: Stage], groups: [], attrs: [name: Word required], regions: [],
        results: Some(1), effects: Pure, infer: Some(pipeline::infer_field), verify: Some(pipeline::verify_field),
        example: "%f = staged.field %s {name = a} : SMEM",
    }
    /// Says that this role's replica has read the stage of counter `i`: it is free when every
    /// consumer has. With `unless_first` it does nothing in the first iteration of the loop around
    /// it, which has no counter before.
    Release = 0x226 "release" since "0.2" {
        operands: [pipeline: Pipeline, i: Index], groups: [], attrs: [unless_first: Bool optional], regions: [],
        results: Some(0), effects: Sync, infer: None, verify: Some(pipeline::verify_release),
        example: "staged.release %r, %i",
    }
    /// The producer's end: waits until no copy is in flight and every other reader has released all
    /// that was published, so that the memory can be reused or the block can end. The role may
    /// leave unread what it filled for itself.
    Drain = 0x227 "drain" since "0.2" {
        operands: [pipeline: Pipeline], groups: [], attrs: [], regions: [],
        results: Some(0), effects: Sync, infer: None, verify: None,
        example: "staged.drain %r",
    }
    /// An accumulator with no MMA in flight yet, so that a loop can carry it.
    MmaOpen = 0x230 "mma_open" since "0.2" {
        operands: [acc: Tile], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Pure, infer: Some(mma::infer_open), verify: None,
        example: "%p2 = staged.mma_open %t : PENDING",
    }
    /// Issues one group of asynchronous MMAs (WGMMA): `a` (m×k) times `b` (k×n) into `acc`. Its
    /// operands in shared memory and registers are borrowed until a `mma_retire` covers it.
    MmaIssue = 0x231 "mma_issue" since "0.2" {
        operands: [a: Operand, b: Smem, acc: Accumulator], groups: [], attrs: [class: Word optional], regions: [],
        results: Some(1), effects: Read, infer: Some(mma::infer_issue), verify: Some(mma::verify_issue),
        example: "%q = staged.mma_issue %m, %m, %p : PENDING",
    }
    /// Waits until at most the `keep` newest groups of this role's replica are in flight. The
    /// result is the tile where the groups of `p` are complete, and is still pending otherwise.
    MmaRetire = 0x232 "mma_retire" since "0.2" {
        operands: [p: Pending], groups: [], attrs: [keep: Int required], regions: [],
        results: Some(1), effects: Sync, infer: None, verify: Some(mma::verify_retire),
        example: "%t2 = staged.mma_retire %p {keep = 0} : LAID",
    }
    /// Starts an asynchronous copy of shared memory to a block of global memory (TMA store);
    /// positions outside are not written.
    BulkStore = 0x240 "bulk_store" since "0.2" {
        operands: [mem: Smem, dst: View],
        groups: [at: Index [0, usize::MAX]],
        attrs: [extent: Ints required, bounds: Words optional], regions: [],
        results: Some(0), effects: ReadWrite, infer: None, verify: Some(bulk::verify_store),
        example: "staged.bulk_store %m, %v at(%i, %i) {extent = [8, 8]}",
    }
    /// Starts an asynchronous reduction of shared memory into a block of global memory, atomically
    /// for each element.
    BulkReduce = 0x241 "bulk_reduce" since "0.2" {
        operands: [mem: Smem, dst: View],
        groups: [at: Index [0, usize::MAX]],
        attrs: [op: Word required, extent: Ints required, bounds: Words optional], regions: [],
        results: Some(0), effects: ReadWrite, infer: None, verify: Some(bulk::verify_reduce),
        example: "staged.bulk_reduce %m, %v at(%i, %i) {op = sum, extent = [8, 8]}",
    }
    /// Waits until at most the `keep` newest bulk stores of this role's replica are in flight; with
    /// `read` only until they have read their shared memory.
    BulkWait = 0x242 "bulk_wait" since "0.2" {
        operands: [], groups: [], attrs: [keep: Int required, read: Bool optional], regions: [],
        results: Some(0), effects: Sync, infer: None, verify: Some(bulk::verify_wait),
        example: "staged.bulk_wait {keep = 0}",
    }
    /// An order barrier: the replicas of one role pass through a section in turn, beginning with
    /// the first (CUTLASS's `OrderedSequenceBarrier`).
    OrderBarrierCreate = 0x250 "order_barrier_create" since "0.2" {
        operands: [], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Write, infer: Some(order_barrier::infer_order_barrier), verify: Some(order_barrier::verify_create),
        example: "%u = staged.order_barrier_create : order_barrier",
    }
    /// Waits until the previous replica has arrived.
    OrderWait = 0x251 "order_wait" since "0.2" {
        operands: [order: OrderBarrier], groups: [], attrs: [], regions: [],
        results: Some(0), effects: Sync, infer: None, verify: Some(order_barrier::verify_order_barrier),
        example: "staged.order_wait %order",
    }
    /// Passes the order barrier on to the next replica.
    OrderArrive = 0x252 "order_arrive" since "0.2" {
        operands: [order: OrderBarrier], groups: [], attrs: [], regions: [],
        results: Some(0), effects: Sync, infer: None, verify: Some(order_barrier::verify_order_barrier),
        example: "staged.order_arrive %order",
    }
    /// Synchronises the threads of this role's replica, or with `all` those of all replicas of the
    /// role; they see each other's writes to shared memory.
    RoleBarrier = 0x260 "role_barrier" since "0.2" {
        operands: [], groups: [], attrs: [all: Bool optional], regions: [],
        results: Some(0), effects: Sync, infer: None, verify: None,
        example: "staged.role_barrier",
    }
    /// Synchronises all threads of the cluster.
    ClusterBarrier = 0x261 "cluster_barrier" since "0.2" {
        operands: [], groups: [], attrs: [], regions: [],
        results: Some(0), effects: Sync, infer: None, verify: None,
        example: "staged.cluster_barrier",
    }
    /// Synchronises all threads of the block; they see each other's writes to shared memory.
    BlockBarrier = 0x262 "block_barrier" since "0.2" {
        operands: [], groups: [], attrs: [], regions: [],
        results: Some(0), effects: Sync, infer: None, verify: None,
        example: "staged.block_barrier",
    }
    /// Makes these threads' writes to shared memory visible to asynchronous operations (TMA, WGMMA)
    /// from the next barrier on.
    FenceAsync = 0x263 "fence_async" since "0.2" {
        operands: [], groups: [], attrs: [], regions: [],
        results: Some(0), effects: Sync, infer: None, verify: None,
        example: "staged.fence_async",
    }
    /// Runs its roles concurrently; ends when all have ended. Its region holds `role` ops and a
    /// `yield`.
    WarpSpecialize = 0x270 "warp_specialize" since "0.2" {
        operands: [], groups: [], attrs: [], regions: [body],
        results: Some(0), effects: Control, infer: None, verify: Some(roles::verify_roles),
        example: "staged.warp_specialize do {\n  staged.warp_role {name = all, warps = 4} do {\n    staged.yield\n  }\n  staged.yield\n}",
    }
    /// The body of `replicas` times `warps` warps. `part` says what the replicas divide: `rows` or
    /// `cols` of a tile, or whole `tiles`; without it each picks its part by its index. `regs` are
    /// the registers of a thread; with `one_thread` a single thread runs the body.
    WarpRole = 0x271 "warp_role" since "0.2" {
        operands: [], groups: [],
        attrs: [name: Word required, warps: Int required, replicas: Int optional, part: Word optional, regs: Int optional, one_thread: Bool optional],
        regions: [body],
        results: Some(0), effects: Control, infer: None, verify: Some(roles::verify_role),
        example: "staged.warp_specialize do {\n  staged.warp_role {name = all, warps = 4} do {\n    staged.yield\n  }\n  staged.yield\n}",
    }
    /// The index of this replica in its role.
    Replica = 0x272 "replica" since "0.2" {
        operands: [], groups: [], attrs: [], regions: [],
        results: Some(1), effects: Pure, infer: Some(tessera_tile::ops::ids::infer_index), verify: Some(roles::verify_replica),
        example: "staged.warp_specialize do {\n  staged.warp_role {name = all, warps = 4} do {\n    %k = staged.replica : i64\n    staged.yield\n  }\n  staged.yield\n}",
    }
    /// The index of this block, or cluster of blocks, among the resident ones. Their number is
    /// arbitrary: what a function computes must not depend on it. With `axis = 1` the index of its
    /// phase: each phase has as many workers, and those of a later one begin where others have
    /// ended.
    Worker = 0x273 "worker" since "0.2" {
        operands: [], groups: [], attrs: [axis: Int optional], regions: [],
        results: Some(1), effects: Pure, infer: Some(tessera_tile::ops::ids::infer_index), verify: None,
        example: "%w = staged.worker : i64",
    }
    /// The number of blocks, or clusters of them, in a phase; with `axis = 1` the number of phases.
    Workers = 0x274 "workers" since "0.2" {
        operands: [], groups: [], attrs: [axis: Int optional], regions: [],
        results: Some(1), effects: Pure, infer: Some(tessera_tile::ops::ids::infer_index), verify: None,
        example: "%w = staged.workers : i64",
    }
    /// The persistent loop: runs its body for the tiles of a grid that are assigned to this block,
    /// with the tile's coordinates and the carried values. `order` is the tile scheduler: `static`
    /// (block b of B takes the tiles b, b + B, …), `pairs` (2b and 2b + 1, then both 2B further on,
    /// …: where neighbours add up to the same work), `folded` (the same, with the last axis from
    /// both ends to its middle), `dynamic` (the next free block takes the next tile) or `once` (a
    /// launch has a block for each tile, without a loop).
    ///
    /// `raster = m8` walks the grid in bands of 8 along its first axis, that axis first; `n8` along
    /// its second; `s8` in sections of 8 positions of all axes but the last, these first, then the
    /// last; with `section = 64` of as many positions as give about 64 tiles, from 2 to 8, in equal
    /// sections. `longest_first` walks the first axis, or with sections the last, from its end. In
    /// a role whose replicas divide `tiles`, they take them in turn.
    ///
    /// With `team = [2, 1]` the blocks of a cluster take neighbours, two along the first axis;
    /// where the grid ends inside a team, the body also runs for coordinates beyond it.
    Tiles = 0x280 "tiles" since "0.2" {
        operands: [],
        groups: [grid: Index [1, 3], init: Any [0, usize::MAX]],
        attrs: [order: Word optional, raster: Word optional, section: Int optional, longest_first: Bool optional, team: Ints optional],
        regions: [body],
        results: None, effects: Control, infer: None, verify: Some(tiles::verify_tiles),
        example: "%n = staged.tiles grid(%i, %i) init(%i) : i64 do (%pm: i64, %pn: i64, %c: i64) {\n  staged.yield %c\n}",
    }
}
