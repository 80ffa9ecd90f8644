//! Split-K of a kernel, compiled: the groups of one launch share the loops of those of the kernel,
//! and a second launch adds their sums (`lower/src/split_k.rs`).

use crate::backends::Choice;
use crate::cache;
use crate::dims::Sizes;
use std::sync::{Arc, OnceLock};
use tessera_lower::{GROUPS, SPLITS, SplitK, split_k};
use tessera_numerics::Profile;
use tessera_target::frame::Frame;
use tessera_target::speed::LINE;
use tessera_target::{ArgValue, Artifact, BufferArg, CompileOptions, LaunchArgs};
use tessera_tile::TileFunc;

/// The fewest iterations of a part: shorter loops are over before their pipeline is full.
const LEAST: i64 = 4;
/// The most parts of a loop.
const MOST: i64 = 64;

pub struct Divided {
    found: SplitK,
    pub parts: Frame,
    pub rest: Frame,
    compiled: OnceLock<Option<[Arc<dyn Artifact>; 2]>>,
}

impl Divided {
    pub fn of(func: &TileFunc) -> Option<Self> {
        let found = split_k(func)?;
        let (parts, rest) = (Frame::new(&found.parts).ok()?, Frame::new(&found.rest).ok()?);
        Some(Self { found, parts, rest, compiled: OnceLock::new() })
    }

    pub fn funcs(&self) -> [(&TileFunc, &Frame); 2] {
        [(&self.found.parts, &self.parts), (&self.found.rest, &self.rest)]
    }

    /// The numbers of parts that a launch may have; none where its loop's length is not known.
    pub fn numbers(&self, args: &LaunchArgs, processors: u64) -> Vec<i64> {
        let sizes = Sizes { known: args.dims.clone() };
        let bound = |i: usize| sizes.eval(self.found.bounds[i].as_ref()?).ok();
        let (Some(first), Some(last), Some(step)) = (bound(0), bound(1), bound(2)) else {
            return Vec::new();
        };
        let groups = groups(args);
        if step <= 0 || groups <= 0 || args.grid[2] != 1 {
            return Vec::new();
        }
        let iterations = (last - first + step - 1) / step;
        let processors = i64::try_from(processors).unwrap_or(i64::MAX);
        // Whole waves, and powers of two.
        let waves = (1..=2).map(|waves| waves * processors / groups);
        let powers = (1..).map(|i| 1 << i).take_while(|&n| n <= MOST);
        let most = (iterations / LEAST).min(MOST).min(4 * processors / groups);
        let mut all: Vec<i64> = waves.chain(powers).filter(|&n| (2..=most).contains(&n)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Bytes of the sums of this number of parts.
    pub fn bytes(&self, args: &LaunchArgs, splits: i64) -> u64 {
        self.sizes(args, splits).iter().map(|bytes| bytes.next_multiple_of(LINE)).sum()
    }

    fn sizes(&self, args: &LaunchArgs, splits: i64) -> Vec<u64> {
        let count = (splits * groups(args)) as u64;
        let one = |(shape, dtype): &(Vec<i64>, tessera_numerics::DType)| {
            shape.iter().product::<i64>() as u64 * dtype.bytes() as u64 * count
        };
        self.found.sums.iter().map(one).collect()
    }

    /// The two launches, with the sums at an address.
    pub fn args(&self, args: &LaunchArgs, splits: i64, base: u64) -> [LaunchArgs; 2] {
        let groups = groups(args);
        let mut both = args.clone();
        both.dims.insert(SPLITS.into(), splits);
        both.dims.insert(GROUPS.into(), groups);
        let mut at = base;
        for ((shape, dtype), bytes) in self.found.sums.iter().zip(self.sizes(args, splits)) {
            let dims: Vec<i64> =
                [splits, groups].into_iter().chain(shape.iter().copied()).collect();
            both.params.push(ArgValue::Buffer(BufferArg {
                data: std::ptr::with_exposed_provenance_mut(at as usize),
                strides: crate::pack::row_major(&dims, *dtype),
                dims,
                dtype: *dtype,
                writable: true,
            }));
            at += bytes.next_multiple_of(LINE);
        }
        let mut parts = both.clone();
        parts.grid[2] = splits;
        [parts, both]
    }

    /// The code of both, for arrays like those of a launch; none where they cannot be compiled.
    pub fn code(&self, choice: &Choice, args: &[LaunchArgs; 2]) -> Option<&[Arc<dyn Artifact>; 2]> {
        let compile = |func: &TileFunc, args: &LaunchArgs| -> Option<Arc<dyn Artifact>> {
            let call = args.params.iter().map(|arg| match arg {
                ArgValue::Buffer(b) => Some(b.clone()),
                ArgValue::Scalar(_) => None,
            });
            let (store, call) = (cache::store().ok()?, call.collect());
            let options = CompileOptions { store, call, ..CompileOptions::new(Profile::Default) };
            Some(Arc::from(choice.backend.compile(func, &options).ok()?))
        };
        let make =
            || Some([compile(&self.found.parts, &args[0])?, compile(&self.found.rest, &args[1])?]);
        self.compiled.get_or_init(make).as_ref()
    }
}

fn groups(args: &LaunchArgs) -> i64 {
    args.grid[0].saturating_mul(args.grid[1])
}
