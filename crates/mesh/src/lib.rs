//! Meshes of devices, placements of arrays on them, and which rank has which elements.
//!
//! A [`Mesh`] is a named grid of devices. A [`Spec`] says how an array is placed along its axes, in the words of a user; bound to a mesh
//! and a rank of arrays it is a [`Placement`], and with a shape a [`Placed`]. Index sets are exact ([`IndexSet`]): a rank's block has the
//! elements that it owns and no others. [`Exchange`] is the plan that brings an array from one placement to another. Everything here is
//! pure: nothing reads the machine.
//!
//! ```
//! use tessera_mesh::{Mesh, Placed, Spec};
//! let mesh = Mesh::parse("{axes = [dp, tp], extents = [2, 3]}").unwrap();
//! let spec = Spec::parse("[{dp}, {tp}]").unwrap();
//! let placed = Placed::new(mesh.clone(), &spec, &[4, 7], &[]).unwrap();
//! assert_eq!(mesh.coords(5), [1, 2]);
//! // Seven columns over three ranks: 3, 3 and 1.
//! let block: Vec<String> = placed.index(5).iter().map(|set| set.to_string()).collect();
//! assert_eq!(block, ["2:4", "6:7"]);
//! ```

mod exchange;
mod intervals;
mod mesh;
mod placement;
mod scan;
mod spec;

pub use exchange::{
    Aside, BlockMove, BlockMoves, Collective, Exchange, Kind, Move, Pieces, between, collectives,
};
pub use intervals::{IndexSet, Piece, Run};
pub use mesh::Mesh;
pub use placement::{Block, Part, Placed, Placement, State};
pub use spec::{Combine, Dim, Distribution, Spec, Split};
