//! Cost model: the work of a launch, arithmetic and bytes, counted in Tile IR without running it.
//!
//! Every op has a count ([`ops`]); loops multiply it ([`walk`]) by their iteration counts, which
//! follow from the dims, the group's coordinates and the variables of outer loops ([`scalar`]).
//! What depends on data is unknown: such a loop is counted once, of such a branch the longer side
//! is taken, and the result says that it is not exact.
//!
//! The same counts ([`Counts`]) give the time of a launch on a machine of a certain
//! [`Speed`](tessera_target::speed::Speed) ([`estimate()`]), and so the best of several schedules;
//! for matmuls that is done before there is any Tile IR ([`matmul`]).
//!
//! ```
//! use tessera_cost::{Launch, work};
//! let text = "func @f(%x: view<[n], f32, read>, %y: view<[n], f32, write>) {kind = lane, domain = n} {
//!   %i = tile.linear_id : i64
//!   %v = tile.load %x at(%i) {extent = [0]} : f32
//!   %w = tile.mul %v, %v : f32
//!   tile.store %y, %w at(%i) {extent = [0]}
//!   tile.return
//! }";
//! let func = tessera_tile::parse(text).unwrap();
//! let dims = [("n".to_string(), 100)].into();
//! let launch = Launch { dims: &dims, grid: [1, 1, 1], domain: [100, 1, 1], lanes: 256 };
//! let found = work(&func, &launch).unwrap();
//! assert_eq!((found.flops, found.bytes(), found.exact), (100, 800, true));
//! ```

mod counts;
mod estimate;
pub mod matmul;
mod ops;
mod scalar;
mod tally;
mod walk;

pub use counts::{Counts, Product, lines, weight};
pub use estimate::{Estimate, Limit, Requested, estimate};

use scalar::Sizes;
use std::collections::BTreeMap;
use tally::Tally;
use tessera_ir::{Dim, Type};
use tessera_tile::TileFunc;
use walk::Walk;

/// The sizes of a launch, beside its arrays.
#[derive(Copy, Clone, Debug)]
pub struct Launch<'a> {
    /// Sizes by symbol, and by text for products of symbols; integers of the caller by name.
    pub dims: &'a BTreeMap<String, i64>,
    pub grid: [i64; 3],
    /// Of a lane kernel: how many lanes there are along each axis, and how many form a group.
    pub domain: [i64; 3],
    pub lanes: i64,
}

/// The work of a launch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Arithmetic on floats, and matmuls of any dtype: two for each fused multiply-add.
    pub flops: u64,
    /// Bytes of global memory that the program's accesses name, padding included.
    pub read: u64,
    pub written: u64,
    /// Bytes that must be moved in any implementation: each array at most once in each direction.
    pub least_read: u64,
    pub least_written: u64,
    /// Whether nothing depended on data.
    pub exact: bool,
}

impl Work {
    /// A copy of `bytes` bytes.
    pub fn moved(bytes: u64) -> Self {
        let (read, written, exact) = (bytes, bytes, true);
        Self { flops: 0, read, written, least_read: bytes, least_written: bytes, exact }
    }

    /// The bytes that must be moved.
    pub fn bytes(&self) -> u64 {
        self.least_read.saturating_add(self.least_written)
    }

    /// The bytes as the program is written.
    pub fn traffic(&self) -> u64 {
        self.read.saturating_add(self.written)
    }
}

/// Counts the work of a launch of `func`, which has been through the tile passes. `Err` names the
/// size that is not given.
pub fn work(func: &TileFunc, launch: &Launch<'_>) -> Result<Work, String> {
    tallied(func, launch).map(|(work, _)| work)
}

/// The work of a launch, and the counts it was computed from.
fn tallied(func: &TileFunc, launch: &Launch<'_>) -> Result<(Work, Tally), String> {
    let sizes = Sizes(launch.dims);
    let arrays = array_bytes(func, sizes)?;
    let mut walk = Walk::new(func, *launch)?;
    let tally = walk.all();
    let least = |moved: &[u64]| -> u64 {
        let one = |(&moved, &array): (&u64, &u64)| match (moved, walk.exact) {
            (0, _) => 0,
            (moved, true) => moved.min(array),
            // Loops that were counted once are underestimated.
            (_, false) => array,
        };
        moved.iter().zip(&arrays).map(one).fold(0, u64::saturating_add)
    };
    let Tally { flops, read, written, .. } = &tally;
    let sum = |bytes: &[u64]| bytes.iter().copied().fold(0, u64::saturating_add);
    let work = Work {
        flops: *flops,
        read: sum(read),
        written: sum(written),
        least_read: least(read),
        least_written: least(written),
        exact: walk.exact,
    };
    Ok((work, tally))
}

/// The bytes of each parameter; none for a scalar.
fn array_bytes(func: &TileFunc, sizes: Sizes<'_>) -> Result<Vec<u64>, String> {
    let bytes = |ty: &Type| -> Result<u64, String> {
        let Type::View { dims, elem, .. } = ty else { return Ok(0) };
        let mut bytes = elem.storage.bytes() as u64;
        for dim in dims {
            let extent = match dim {
                Dim::Static(v) => *v,
                Dim::Expr(e) => sizes.eval(e)?,
                Dim::Any => return Err("an array has an open shape".into()),
            };
            bytes = bytes.saturating_mul(extent.max(0) as u64);
        }
        Ok(bytes)
    };
    func.params().iter().map(|&p| bytes(func.ty(p))).collect()
}
