//! Passes that can be switched off one by one, to measure what each gains. Without one a kernel, or
//! a plan, takes the next best path and computes the same.
//!
//! The names are in the function's `config`, as `off = [epilogue, mma_in_flight]`, and so part of
//! the text that the code is generated from and cached by.

use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{Attr, Attrs, Func, Level};

macro_rules! steps {
    ($($(#[doc = $doc:literal])+ $name:ident = $word:literal,)+) => {
        /// A pass that code can do without.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Step {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Step {
            pub const ALL: &'static [Step] = &[$(Step::$name,)+];

            pub fn name(self) -> &'static str {
                match self {
                    $(Step::$name => $word,)+
                }
            }
        }
    };
}

steps! {
    /// Masks that are known to be true everywhere are dropped.
    MaskElimination = "mask_elimination",
    /// A loop is split where its masks begin to hide elements (index-set splitting).
    LoopSplitting = "loop_splitting",
    /// Arithmetic is simplified as far as the profile allows.
    FastMath = "fast_math",
    /// MMAs run asynchronously (WGMMA); without it warps issue synchronous ones.
    AsyncMma = "async_mma",
    /// A persistent kernel: a block computes one output tile after another.
    TileScheduler = "tile_scheduler",
    /// Output tiles are assigned in raster order.
    Raster = "raster",
    /// A dynamic tile scheduler hands tiles of different length to free blocks, longest first.
    DynamicScheduler = "dynamic_scheduler",
    /// The epilogue stores results through shared memory.
    Epilogue = "epilogue",
    /// The epilogue of a tile overlaps with the main loop of the next.
    OverlappedEpilogue = "overlapped_epilogue",
    /// Operands of MMAs come through pipelines of TMA copies.
    ProducerLoads = "producer_loads",
    /// An MMA stays in flight across iterations.
    MmaInFlight = "mma_in_flight",
    /// Of two dependent MMAs, the second is issued with the next iteration's first.
    InterleavedMmas = "interleaved_mmas",
    /// Consecutive loops of two MMAs share one pipeline, which does not drain between them.
    CrossLoopPipelining = "cross_loop_pipelining",
    /// Loops whose MMAs read registers are unrolled by two.
    UnrollByTwo = "unroll_by_two",
    /// Accumulators keep their registers from loop to loop.
    AccumulatorCoalescing = "accumulator_coalescing",
    /// Ops that few rows need are behind a warp-uniform branch.
    WarpUniformBranch = "warp_uniform_branch",
    /// Warps are specialised: producers load, consumers compute.
    WarpSpecialization = "warp_specialization",
    /// Producers give registers to consumers (`setmaxnreg`).
    RegisterReallocation = "register_reallocation",
    /// Three warpgroups divide the rows of a tile.
    MSplit = "m_split",
    /// Each warpgroup stores its part of a result by itself.
    PerWarpgroupStore = "per_warpgroup_store",
    /// Warpgroups issue the MMAs of a loop in turn.
    WarpgroupPingpong = "warpgroup_pingpong",
    /// Blocks of a cluster multicast what they all read.
    Multicast = "multicast",
    /// Blocks of memory-bound kernels are persistent.
    PersistentBlocks = "persistent_blocks",
    /// Loop-invariant loads are hoisted.
    Hoist = "hoist",
    /// Loads of a loop are pipelined through shared memory (`cp.async`).
    SoftwarePipelining = "software_pipelining",
    /// Loads to registers are issued one iteration early.
    RegisterPrefetch = "register_prefetch",
    /// Sorts, histograms, scans and reductions by a function, and single positions of an axis stay
    /// ops; without it they go through shared buffers.
    TileOps = "tile_ops",
    /// A loop with small iterations is one kernel; without it iterations are launches.
    LoopKernel = "loop_kernel",
    /// Kernels write carried values where the next iteration reads them, without copies.
    CopyElision = "copy_elision",
    /// Independent steps of a function run on several queues of a device.
    Queues = "queues",
    /// Small programs of ranks are one function with a row for each rank; without it they run rank by rank.
    RankRows = "rank_rows",
    /// Ranks that run in one process compute a value that is the same on some of them once; without it each rank does.
    RankShare = "rank_share",
    /// Collectives start as soon as their operands are there; without it, where the program has them.
    Overlap = "overlap",
    /// Small arrays that ranks combine are combined together; without it each by itself.
    Buckets = "buckets",
    /// Operands of MMAs that cannot be copied asynchronously are first copied to aligned rows.
    OperandPadding = "operand_padding",
    /// A loop of MMAs is divided among several groups where there are few.
    SplitK = "split_k",
    /// Clocks around loops are removed; `k.profile()` switches it off, and loops report how long they take.
    NoClocks = "clock_elision",
}

/// The pass that had this name before passes got the names of the field. Schedules and scripts may hold it for one more release.
fn former(name: &str) -> Option<Step> {
    const NAMES: &[(&str, Step)] = &[
        ("ahead", Step::RegisterPrefetch),
        ("alternate", Step::WarpgroupPingpong),
        ("apart", Step::PerWarpgroupStore),
        ("bare", Step::NoClocks),
        ("chain", Step::CrossLoopPipelining),
        ("defer", Step::OverlappedEpilogue),
        ("divide", Step::MSplit),
        ("encode", Step::AsyncMma),
        ("feeds", Step::ProducerLoads),
        ("forward", Step::CopyElision),
        ("loop_fusion", Step::CrossLoopPipelining),
        ("no_clocks", Step::NoClocks),
        ("order", Step::DynamicScheduler),
        ("pair", Step::InterleavedMmas),
        ("persist", Step::PersistentBlocks),
        ("pools", Step::RegisterReallocation),
        ("relax", Step::FastMath),
        ("rings", Step::SoftwarePipelining),
        ("roles", Step::WarpSpecialization),
        ("rotate", Step::MmaInFlight),
        ("seldom", Step::WarpUniformBranch),
        ("split", Step::LoopSplitting),
        ("stay", Step::AccumulatorCoalescing),
        ("tiles", Step::TileScheduler),
        ("twice", Step::UnrollByTwo),
        ("whole", Step::MaskElimination),
    ];
    NAMES.iter().find(|(former, _)| *former == name).map(|(_, step)| *step)
}

/// A set of passes that are left out.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Off(u64);

impl Off {
    pub fn has(self, step: Step) -> bool {
        self.0 >> step as u32 & 1 == 1
    }

    pub fn with(self, step: Step) -> Self {
        Self(self.0 | 1 << step as u32)
    }

    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Distinct for distinct sets.
    pub fn bits(self) -> u64 {
        self.0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn steps(self) -> impl Iterator<Item = Step> {
        Step::ALL.iter().copied().filter(move |&s| self.has(s))
    }

    /// The passes of these names; `place` says where the names were given.
    pub fn named<'n>(
        names: impl IntoIterator<Item = &'n str>,
        place: &str,
    ) -> Result<Self, Diagnostics> {
        let mut off = Off::default();
        for name in names {
            let found =
                Step::ALL.iter().copied().find(|s| s.name() == name).or_else(|| former(name));
            let Some(step) = found else {
                let known: Vec<_> = Step::ALL.iter().map(|s| s.name()).collect();
                let message = format!(
                    "{place}: expected passes that can be left out ({}), got {name:?}",
                    known.join(", ")
                );
                let error = Diagnostic::new(Code::E_ARGUMENT, message);
                return Err(error.help("name one of them, or none").into());
            };
            off = off.with(step);
        }
        Ok(off)
    }

    /// As an attribute of `config`; none where everything runs.
    pub fn attr(self) -> Option<Attr> {
        (!self.is_empty()).then(|| Attr::words(self.steps().map(Step::name)))
    }

    /// The passes that a function's `config` leaves out. Unknown names are ignored: they are
    /// checked where the attribute is written.
    pub fn of<L: Level>(func: &Func<L>) -> Self {
        Self::in_attrs(&func.attrs)
    }

    pub fn in_attrs(attrs: &Attrs) -> Self {
        let config = attrs.get("config").and_then(Attr::as_dict);
        let Some(words) = config.and_then(|c| c.get("off")).and_then(Attr::as_list) else {
            return Off::default();
        };
        let words = words.iter().filter_map(Attr::as_word);
        let known = words.filter_map(|w| Step::ALL.iter().find(|s| s.name() == w));
        known.fold(Off::default(), |off, &step| off.with(step))
    }
}
