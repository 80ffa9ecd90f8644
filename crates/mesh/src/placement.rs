//! A spec bound to a mesh and the shape of an array: what each rank has.

use crate::intervals::IndexSet;
use crate::mesh::Mesh;
use crate::spec::{Combine, Dim, Distribution, Spec, Split};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock};
use tessera_diag::{Code, Diagnostic};

/// What an array is along one axis of a mesh.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Copies.
    Replicated,
    /// This dim is split.
    Split(usize),
    /// Contributions.
    Partial(Combine),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Replicated => f.write_str("R"),
            State::Split(dim) => write!(f, "S({dim})"),
            State::Partial(op) => write!(f, "P({})", op.name()),
        }
    }
}

/// A spec bound to a mesh and a number of dims. Axes are numbers of the mesh.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Placement {
    /// By dim: the axes that it is split over, coarsest first.
    dims: Vec<(Vec<usize>, Distribution)>,
    /// The axes along which ranks hold contributions, in the order of the mesh.
    combine: Option<(Combine, Vec<usize>)>,
}

impl Placement {
    pub fn new(
        mesh: &Mesh,
        spec: &Spec,
        ndim: usize,
        names: &[String],
    ) -> Result<Placement, Diagnostic> {
        let mut dims = vec![(Vec::new(), Distribution::Block); ndim];
        let mut seen = BTreeSet::new();
        let mut claim = |name: &String| {
            let axis = mesh.axis(name).map_err(|d| Diagnostic { code: Code::E_PLACEMENT, ..d })?;
            if !seen.insert(axis) {
                let text = format!("the mesh axis `{name}` is used twice in {spec}");
                return Err(Diagnostic::new(Code::E_PLACEMENT, text)
                    .help("an axis splits one dim, or holds contributions, once"));
            }
            Ok(axis)
        };
        for split in spec.splits.iter().filter(|s| !s.axes.is_empty()) {
            let dim = split.dim.number(ndim, names)?;
            if !dims[dim].0.is_empty() {
                let text = format!("dim {dim} is split twice in {spec}");
                return Err(Diagnostic::new(Code::E_PLACEMENT, text)
                    .help("give the dim a tuple of axes, coarsest first: `(\"dp\", \"tp\")`"));
            }
            let axes = split.axes.iter().map(&mut claim).collect::<Result<_, _>>()?;
            dims[dim] = (axes, split.how);
        }
        let combine = match &spec.combine {
            Some((op, axes)) if !axes.is_empty() => {
                let mut axes: Vec<usize> = axes.iter().map(claim).collect::<Result<_, _>>()?;
                axes.sort_unstable();
                Some((*op, axes))
            }
            _ => None,
        };
        Ok(Placement { dims, combine })
    }

    /// By axis of the mesh.
    pub fn states(&self, mesh: &Mesh) -> Vec<State> {
        let mut found = vec![State::Replicated; mesh.axes().len()];
        for (dim, (axes, _)) in self.dims.iter().enumerate() {
            axes.iter().for_each(|a| found[*a] = State::Split(dim));
        }
        if let Some((op, axes)) = &self.combine {
            axes.iter().for_each(|a| found[*a] = State::Partial(*op));
        }
        found
    }

    pub fn combine(&self) -> Option<Combine> {
        self.combine.as_ref().map(|(op, _)| *op)
    }

    /// By dim: the axes that it is split over, and how.
    pub fn dims(&self) -> &[(Vec<usize>, Distribution)] {
        &self.dims
    }

    pub fn contributed(&self) -> &[usize] {
        self.combine.as_ref().map_or(&[], |(_, axes)| axes)
    }

    /// The spec that binds to this placement, with dims by number.
    pub fn spec(&self, mesh: &Mesh) -> Spec {
        let names = mesh.axes();
        let called = |axes: &[usize]| axes.iter().map(|a| names[*a].to_owned()).collect::<Vec<_>>();
        let splits = self.dims.iter().enumerate().filter(|(_, (axes, _))| !axes.is_empty());
        Spec {
            splits: splits
                .map(|(dim, (axes, how))| Split {
                    dim: Dim::At(dim as i64),
                    axes: called(axes),
                    how: *how,
                })
                .collect(),
            combine: self.combine.as_ref().map(|(op, axes)| (*op, called(axes))),
            ..Spec::default()
        }
    }
}

/// Elements that ranks hold copies of.
#[derive(Clone, Debug)]
pub struct Block {
    /// Lowest first.
    pub ranks: Vec<u64>,
    pub index: Vec<IndexSet>,
    /// By dim, which of the sets that it is split into ([`Placed::along`]).
    pub places: Vec<usize>,
    /// Row-major over the axes that hold contributions; 0 where none does.
    pub contribution: u64,
}

/// What is at one coordinate along axes: all blocks there, and the elements of all of them together.
#[derive(Clone, Debug)]
pub struct Part {
    pub coords: Vec<u64>,
    pub index: Vec<IndexSet>,
    /// Places in `Placed::blocks`.
    pub blocks: Vec<usize>,
}

/// An array of a shape in a placement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    mesh: Mesh,
    placement: Placement,
    shape: Vec<u64>,
    known: Known,
}

/// What follows from the rest, found when it is first needed.
#[derive(Clone, Default)]
struct Known(Arc<OnceLock<Vec<Block>>>);

impl PartialEq for Known {
    fn eq(&self, _: &Known) -> bool {
        true
    }
}

impl Eq for Known {}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Known")
    }
}

impl Placed {
    /// `names` are those of the dims, where they have names.
    pub fn new(
        mesh: Mesh,
        spec: &Spec,
        shape: &[u64],
        names: &[String],
    ) -> Result<Placed, Diagnostic> {
        let placement = Placement::new(&mesh, spec, shape.len(), names)?;
        let made = Placed { mesh, placement, shape: shape.to_vec(), known: Known::default() };
        if spec.require_even {
            made.check_even()?;
        }
        Ok(made)
    }

    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Refuses blocks of different extents.
    pub fn check_even(&self) -> Result<(), Diagnostic> {
        let (names, extents) = (self.mesh.axes(), self.mesh.extents());
        for (dim, (axes, how)) in self.placement.dims.iter().enumerate() {
            let mut whole = IndexSet::range(0, self.shape[dim]);
            for axis in axes {
                let (n, ranks) = (whole.len(), extents[*axis]);
                let counts: Vec<u64> =
                    (0..ranks).map(|r| how.positions(n, ranks, r).len()).collect();
                if counts.iter().any(|c| *c != counts[0]) {
                    let text = format!(
                        "expected equal blocks, got {n} elements of dim {dim} over {}={ranks}: {}",
                        names[*axis],
                        counted(&counts)
                    );
                    let help = "give an extent that the ranks divide, or leave `require_even` out: uneven blocks are allowed";
                    return Err(Diagnostic::new(Code::E_UNEVEN, text).help(help));
                }
                whole = IndexSet::range(0, counts[0]);
            }
        }
        Ok(())
    }

    /// What a rank has of each dim.
    pub fn index(&self, rank: u64) -> Vec<IndexSet> {
        let (coords, extents) = (self.mesh.coords(rank), self.mesh.extents());
        let dim = |(dim, (axes, how)): (usize, &(Vec<usize>, Distribution))| {
            let mut set = IndexSet::range(0, self.shape[dim]);
            for a in axes {
                set = set.select(&how.positions(set.len(), extents[*a], coords[*a]));
            }
            set
        };
        self.placement.dims.iter().enumerate().map(dim).collect()
    }

    /// Which contribution a rank holds: row-major over the axes.
    pub fn contribution(&self, rank: u64) -> u64 {
        let (coords, extents) = (self.mesh.coords(rank), self.mesh.extents());
        self.placement.contributed().iter().fold(0, |c, a| c * extents[*a] + coords[*a])
    }

    /// How many contributions make the value.
    pub fn contributions(&self) -> u64 {
        let extents = self.mesh.extents();
        self.placement.contributed().iter().map(|a| extents[*a]).product()
    }

    /// The axes along which ranks have different blocks.
    fn distinguishing(&self) -> Vec<usize> {
        let split = self.placement.dims.iter().flat_map(|(axes, _)| axes.iter().copied());
        split.chain(self.placement.contributed().iter().copied()).collect()
    }

    /// Different blocks, in the order of their lowest ranks. Blocks without elements are among them.
    pub fn blocks(&self) -> &[Block] {
        self.known.0.get_or_init(|| self.find_blocks())
    }

    fn find_blocks(&self) -> Vec<Block> {
        let (axes, extents) = (self.distinguishing(), self.mesh.extents());
        let along: Vec<Vec<IndexSet>> = (0..self.shape.len()).map(|dim| self.along(dim)).collect();
        let mut at = BTreeMap::new();
        let mut found: Vec<Block> = Vec::new();
        for rank in 0..self.mesh.size() {
            let coords = self.mesh.coords(rank);
            let key: Vec<u64> = axes.iter().map(|a| coords[*a]).collect();
            let place = *at.entry(key).or_insert(found.len());
            if place == found.len() {
                let of = |(axes, _): &(Vec<usize>, Distribution)| {
                    axes.iter().fold(0, |n, a| n * extents[*a] + coords[*a]) as usize
                };
                let places: Vec<usize> = self.placement.dims.iter().map(of).collect();
                let set = |(sets, place): (&Vec<IndexSet>, &usize)| sets[*place].clone();
                found.push(Block {
                    ranks: Vec::new(),
                    index: along.iter().zip(&places).map(set).collect(),
                    places,
                    contribution: self.contribution(rank),
                });
            }
            found[place].ranks.push(rank);
        }
        found
    }

    /// The largest block over the mean, where there are elements.
    pub fn imbalance(&self) -> Option<f64> {
        // As floats: the product of extents may be more than 64 bits hold.
        let volume = |b: &Block| b.index.iter().map(|set| set.len() as f64).product::<f64>();
        let volumes: Vec<f64> = self.blocks().iter().map(volume).collect();
        let total: f64 = volumes.iter().sum();
        let largest = volumes.iter().copied().fold(0.0, f64::max);
        (total > 0.0).then(|| largest * volumes.len() as f64 / total)
    }

    /// How the extents of blocks come about, for messages: `8192 over tp=9: 8 × 911 + 904`.
    pub fn extents_text(&self) -> String {
        let (names, extents) = (self.mesh.axes(), self.mesh.extents());
        let dim = |(dim, (axes, how)): (usize, &(Vec<usize>, Distribution))| {
            let ranks: u64 = axes.iter().map(|a| extents[*a]).product();
            let over: Vec<String> =
                axes.iter().map(|a| format!("{}={}", names[*a], extents[*a])).collect();
            let counts = match axes.len() {
                1 => (0..ranks).map(|r| how.positions(self.shape[dim], ranks, r).len()).collect(),
                _ => self.along(dim).iter().map(IndexSet::len).collect::<Vec<_>>(),
            };
            (!axes.is_empty()).then(|| {
                format!("{} over {}: {}", self.shape[dim], over.join(", "), counted(&counts))
            })
        };
        let texts: Vec<String> = self.placement.dims.iter().enumerate().filter_map(dim).collect();
        texts.join("; ")
    }

    /// The sets of a dim, row-major over the axes that it is split over.
    pub fn along(&self, dim: usize) -> Vec<IndexSet> {
        let (axes, how) = &self.placement.dims[dim];
        let extents = self.mesh.extents();
        axes.iter().fold(vec![IndexSet::range(0, self.shape[dim])], |sets, a| {
            let ranks = extents[*a];
            let split = |set: IndexSet| -> Vec<IndexSet> {
                (0..ranks).map(|r| set.select(&how.positions(set.len(), ranks, r))).collect()
            };
            sets.into_iter().flat_map(split).collect()
        })
    }

    /// What is at each coordinate along these axes, row-major over them as given.
    pub fn parts(&self, axes: &[String]) -> Result<Vec<Part>, Diagnostic> {
        let wanted = axes.iter().map(|a| self.mesh.axis(a)).collect::<Result<Vec<_>, _>>()?;
        if let Some(twice) = (1..wanted.len()).find(|i| wanted[..*i].contains(&wanted[*i])) {
            let text = format!("the axis `{}` is named twice", axes[twice]);
            return Err(Diagnostic::new(Code::E_MESH, text).help("name each axis once"));
        }
        let used = self.distinguishing();
        if !used.is_empty() && !wanted.iter().any(|a| used.contains(a)) {
            let names = self.mesh.axes();
            let others: Vec<String> = used.iter().map(|a| format!("`{}`", names[*a])).collect();
            let text = format!(
                "expected an array with parts along `{}`, got {}: it has parts along {}",
                axes.join("`, `"),
                self.placement.spec(&self.mesh),
                others.join(", ")
            );
            return Err(Diagnostic::new(Code::E_PLACEMENT, text)
                .help("name the axes that the array is split over, or reshard it"));
        }
        let blocks = self.blocks();
        let extents = self.mesh.extents();
        let count: u64 = wanted.iter().map(|a| extents[*a]).product();
        let mut here: Vec<Vec<usize>> = vec![Vec::new(); count as usize];
        for (at, block) in blocks.iter().enumerate() {
            for rank in &block.ranks {
                let coords = self.mesh.coords(*rank);
                let number = wanted.iter().fold(0, |n, a| n * extents[*a] + coords[*a]);
                let known = &mut here[number as usize];
                if known.last() != Some(&at) {
                    known.push(at);
                }
            }
        }
        let part = |(number, blocks_here): (usize, Vec<usize>)| {
            let (mut coords, mut rest) = (vec![0; wanted.len()], number as u64);
            for (at, a) in wanted.iter().enumerate().rev() {
                coords[at] = rest % extents[*a];
                rest /= extents[*a];
            }
            let union = |dim: usize| {
                let mut sets: Vec<IndexSet> = Vec::new();
                for set in blocks_here.iter().map(|b| &blocks[*b].index[dim]) {
                    if !sets.contains(set) {
                        sets.push(set.clone());
                    }
                }
                IndexSet::union(&sets)
            };
            Part { index: (0..self.shape.len()).map(union).collect(), coords, blocks: blocks_here }
        };
        Ok(here.into_iter().enumerate().map(part).collect())
    }
}

/// `8 × 911 + 904`: equal neighbours are counted.
fn counted(counts: &[u64]) -> String {
    let mut groups: Vec<(u64, u64)> = Vec::new();
    for c in counts {
        match groups.last_mut() {
            Some((n, value)) if value == c => *n += 1,
            _ => groups.push((1, *c)),
        }
    }
    let words: Vec<String> = groups
        .iter()
        .map(|(n, c)| if *n == 1 { c.to_string() } else { format!("{n} × {c}") })
        .collect();
    words.join(" + ")
}
