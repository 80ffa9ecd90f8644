//! Meshes and placements, for the package `dist`. Sets of positions are lists of (start, step, count).

use crate::dist_memory as memory;
use crate::enter::enter_call;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_mesh::{
    Combine, Dim, Distribution, Exchange, IndexSet, Kind, Mesh, Placed, Run, Spec, Split,
    collectives,
};
use tessera_region::{Privilege, Use};

type Runs = Vec<(u64, u64, u64)>;
/// Sender, receiver, contribution, and by dim (from, step, to, step, count).
type MoveRow = (u64, u64, u64, Vec<Vec<(u64, u64, u64, u64, u64)>>);
/// The kind, the operator that combines, and the moves.
type ExchangeRow = (&'static str, Option<&'static str>, Vec<MoveRow>);
/// Ranks, positions and contribution.
type BlockRow = (Vec<u64>, Vec<Runs>, u64);
/// Coordinates, positions and blocks.
type PartRow = (Vec<u64>, Vec<Runs>, Vec<usize>);
/// Storage, positions by dim, privilege.
pub type UseRow<'py> = (u64, Bound<'py, Positions>, String);

fn runs(set: &IndexSet) -> Runs {
    set.runs().iter().map(|r| (r.start, r.step, r.count)).collect()
}

fn sets(index: &[IndexSet]) -> Vec<Runs> {
    index.iter().map(runs).collect()
}

fn wrong(code: Code, text: String, help: &str) -> Diagnostics {
    Diagnostic::new(code, text).help(help).into()
}

/// Elements of an array: the combinations of positions of its dims. Made once for each part, and used by many launches.
#[pyclass(frozen, module = "tessera._core")]
pub struct Positions(pub Arc<[IndexSet]>);

#[tessera_entry::entry]
#[pymethods]
impl Positions {
    #[new]
    fn new(py: Python<'_>, index: Vec<Runs>) -> PyResult<Positions> {
        let set = |runs: Runs| {
            let runs = runs.into_iter().map(|(start, step, count)| Run { start, step, count });
            IndexSet::of(runs.collect())
        };
        checked(py, || {
            let index: Option<Arc<[IndexSet]>> = index.into_iter().map(set).collect();
            index.map(Positions).ok_or_else(|| {
                wrong(Code::E_ARGUMENT, "positions are not in order".into(), "give ascending runs")
            })
        })
    }
}

pub fn use_of((storage, index, privilege): UseRow<'_>) -> Result<Use, Diagnostics> {
    let index = index.get().0.clone();
    Ok(Use { storage, index, privilege: privilege_of(&privilege)? })
}

pub fn privilege_of(name: &str) -> Result<Privilege, Diagnostics> {
    Privilege::parse(name).ok_or_else(|| {
        let text = format!("expected a privilege, got `{name}`");
        wrong(Code::E_ARGUMENT, text, "`read`, `write`, `read_write`, `reduce_sum`, …")
    })
}

/// A result, or its error with the caller's line. The interpreter's lock is kept: these answers take microseconds, and another thread
/// that runs Python would hold a released lock for milliseconds.
fn checked<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T, Diagnostics>) -> PyResult<T> {
    work().or_else(|found| enter_call(py, || Err(found)))
}

fn hash(value: impl Hash) -> u64 {
    let mut state = DefaultHasher::new();
    value.hash(&mut state);
    state.finish()
}

/// A mesh of devices, without the devices' state.
#[pyclass(frozen, module = "tessera._core")]
pub struct MeshGrid(Mesh);

#[tessera_entry::entry]
#[pymethods]
impl MeshGrid {
    #[new]
    fn new(
        py: Python<'_>,
        axes: Vec<String>,
        extents: Vec<u64>,
        devices: Vec<String>,
    ) -> PyResult<MeshGrid> {
        checked(py, || Ok(MeshGrid(Mesh::new(&axes, &extents, devices)?)))
    }

    /// Ranks that share the host.
    #[staticmethod]
    fn of_host(
        py: Python<'_>,
        axes: Vec<String>,
        extents: Vec<u64>,
        ranks: u64,
    ) -> PyResult<MeshGrid> {
        checked(py, || Ok(MeshGrid(Mesh::shared(&axes, &extents, ranks, "cpu:0")?)))
    }

    #[getter]
    fn size(&self) -> u64 {
        self.0.size()
    }

    #[staticmethod]
    fn parse(py: Python<'_>, text: &str) -> PyResult<MeshGrid> {
        checked(py, || Ok(MeshGrid(Mesh::parse(text)?)))
    }

    #[getter]
    fn axes(&self) -> Vec<String> {
        self.0.axes().into_iter().map(str::to_owned).collect()
    }

    #[getter]
    fn extents(&self) -> Vec<u64> {
        self.0.extents()
    }

    #[getter]
    fn devices(&self) -> Vec<String> {
        self.0.devices().into_iter().map(str::to_owned).collect()
    }

    #[getter]
    fn is_part(&self) -> bool {
        self.0.is_part()
    }

    fn whole(&self) -> MeshGrid {
        MeshGrid(self.0.whole())
    }

    fn whole_rank(&self, rank: u64) -> u64 {
        self.0.whole_rank(rank)
    }

    fn axis(&self, py: Python<'_>, name: &str) -> PyResult<usize> {
        checked(py, || Ok(self.0.axis(name)?))
    }

    fn coords(&self, rank: u64) -> Vec<u64> {
        self.0.coords(rank)
    }

    fn rank(&self, coords: Vec<u64>) -> u64 {
        self.0.rank(&coords)
    }

    fn groups(&self, py: Python<'_>, axes: Vec<String>) -> PyResult<Vec<Vec<u64>>> {
        checked(py, || {
            let axes = axes.iter().map(|a| self.0.axis(a)).collect::<Result<Vec<_>, _>>()?;
            Ok(self.0.groups(&axes))
        })
    }

    fn at(&self, py: Python<'_>, fixed: Vec<(String, i64)>) -> PyResult<MeshGrid> {
        checked(py, || Ok(MeshGrid(self.0.at(&fixed)?)))
    }

    fn __eq__(&self, other: &MeshGrid) -> bool {
        self.0 == other.0
    }

    fn __hash__(&self) -> u64 {
        hash(&self.0)
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }
}

/// A placement in the words of a user.
#[pyclass(frozen, module = "tessera._core")]
pub struct PlacementSpec(Spec);

#[tessera_entry::entry]
#[pymethods]
impl PlacementSpec {
    /// `splits`: dim as a number or a name, axes, and the block that is dealt in cycles (0: one block a rank).
    #[new]
    fn new(
        py: Python<'_>,
        splits: Vec<(Option<i64>, String, Vec<String>, u64)>,
        combine: Option<(String, Vec<String>)>,
        priority: u32,
        require_even: bool,
    ) -> PyResult<PlacementSpec> {
        checked(py, || {
            let combine = combine.map(|(name, axes)| {
                let op = Combine::parse(&name).ok_or_else(|| {
                    let text = format!("expected an operator for contributions, got {name:?}");
                    wrong(Code::E_PLACEMENT, text, "it is \"sum\", \"max\", \"min\" or \"prod\"")
                })?;
                Ok::<_, Diagnostics>((op, axes))
            });
            let split = |(number, name, axes, block): (Option<i64>, String, _, u64)| Split {
                dim: number.map_or(Dim::Named(name), Dim::At),
                axes,
                how: if block == 0 {
                    Distribution::Block
                } else {
                    Distribution::BlockCyclic(block)
                },
            };
            let splits = splits.into_iter().map(split).collect();
            Ok(PlacementSpec(Spec {
                splits,
                combine: combine.transpose()?,
                priority,
                require_even,
            }))
        })
    }

    #[staticmethod]
    fn parse(py: Python<'_>, text: &str) -> PyResult<PlacementSpec> {
        checked(py, || Ok(PlacementSpec(Spec::parse(text)?)))
    }

    fn __eq__(&self, other: &PlacementSpec) -> bool {
        self.0 == other.0
    }

    fn __hash__(&self) -> u64 {
        hash(&self.0)
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }
}

/// An array of a shape in a placement.
#[pyclass(frozen, module = "tessera._core")]
pub struct PlacedArray {
    placed: Placed,
    blocks: PyOnceLock<Py<PyTuple>>,
    shapes: PyOnceLock<Py<PyTuple>>,
}

#[tessera_entry::entry]
#[pymethods]
impl PlacedArray {
    #[new]
    fn new(
        py: Python<'_>,
        mesh: &MeshGrid,
        spec: &PlacementSpec,
        shape: Vec<u64>,
        names: Vec<String>,
    ) -> PyResult<PlacedArray> {
        checked(py, || {
            let placed = Placed::new(mesh.0.clone(), &spec.0, &shape, &names)?;
            Ok(PlacedArray { placed, blocks: PyOnceLock::new(), shapes: PyOnceLock::new() })
        })
    }

    /// One word an axis of the mesh.
    fn states(&self) -> Vec<String> {
        let states = self.placed.placement().states(self.placed.mesh());
        states.iter().map(ToString::to_string).collect()
    }

    #[getter]
    fn combine(&self) -> Option<&'static str> {
        self.placed.placement().combine().map(Combine::name)
    }

    #[getter]
    fn contributions(&self) -> u64 {
        self.placed.contributions()
    }

    /// The spec by the numbers of dims.
    fn spec(&self) -> PlacementSpec {
        PlacementSpec(self.placed.placement().spec(self.placed.mesh()))
    }

    fn index(&self, rank: u64) -> Vec<Runs> {
        sets(&self.placed.index(rank))
    }

    /// Ranks, positions by dim and contribution of each block.
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let find = || {
            let row = |b: &tessera_mesh::Block| (b.ranks.clone(), sets(&b.index), b.contribution);
            let rows: Vec<BlockRow> = self.placed.blocks().iter().map(row).collect();
            PyTuple::new(py, rows).map(Bound::unbind)
        };
        Ok(self.blocks.get_or_try_init(py, find)?.bind(py).clone())
    }

    /// The extents of each block.
    fn shapes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let find = || {
            let shape =
                |b: &tessera_mesh::Block| PyTuple::new(py, b.index.iter().map(|set| set.len()));
            let shapes = self.placed.blocks().iter().map(shape).collect::<PyResult<Vec<_>>>()?;
            PyTuple::new(py, shapes).map(Bound::unbind)
        };
        Ok(self.shapes.get_or_try_init(py, find)?.bind(py).clone())
    }

    fn imbalance(&self) -> Option<f64> {
        self.placed.imbalance()
    }

    fn check_even(&self, py: Python<'_>) -> PyResult<()> {
        checked(py, || Ok(self.placed.check_even()?))
    }

    fn extents_text(&self) -> String {
        self.placed.extents_text()
    }

    fn parts(&self, py: Python<'_>, axes: Vec<String>) -> PyResult<Vec<PartRow>> {
        checked(py, || {
            let parts = self.placed.parts(&axes)?;
            Ok(parts.into_iter().map(|p| (p.coords, sets(&p.index), p.blocks)).collect())
        })
    }

    /// Fills blocks of another placement, from blocks of this one; all are row-major arrays of one dtype in host memory, in the order of
    /// `blocks`. Contributions are combined where the other placement has other ones. Gives the kind of the exchange, and which blocks
    /// were filled: to others nothing goes.
    fn fill(
        &self,
        py: Python<'_>,
        to: &PlacedArray,
        sources: Vec<Bound<'_, PyAny>>,
        targets: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<(&'static str, Vec<bool>)> {
        let here = sources.iter().map(memory::Block::of).collect::<PyResult<Vec<_>>>()?;
        let there = targets.iter().map(memory::Block::of).collect::<PyResult<Vec<_>>>()?;
        enter_call(py, || memory::fill(&self.placed, &to.placed, None, here, there))
    }

    /// As `fill`, where other processes have some of the blocks, for which None stands; elements have `item` bytes. With `everyone` each
    /// process gets all blocks. All processes call it together.
    fn fill_between(
        &self,
        py: Python<'_>,
        to: &PlacedArray,
        sources: Vec<Bound<'_, PyAny>>,
        targets: Vec<Bound<'_, PyAny>>,
        item: usize,
        everyone: bool,
    ) -> PyResult<(&'static str, Vec<bool>)> {
        let here = memory::Block::all(&self.placed, &sources, item)?;
        let there = memory::Block::all(&to.placed, &targets, item)?;
        enter_call(py, || memory::fill(&self.placed, &to.placed, Some(everyone), here, there))
    }

    /// The plan that brings it to another placement.
    fn exchange(&self, py: Python<'_>, to: &PlacedArray, once: bool) -> PyResult<ExchangeRow> {
        checked(py, || {
            let plan = Exchange::new(&self.placed, &to.placed, once)?;
            let (kind, op) = match plan.kind {
                Kind::Values => ("values", None),
                Kind::Kept => ("kept", None),
                Kind::Combined(op) => ("combined", Some(op.name())),
            };
            let moves = plan.moves.into_iter().map(|m| {
                let dim = |pieces: tessera_mesh::Pieces| {
                    let row =
                        |p: &tessera_mesh::Piece| (p.from, p.from_step, p.to, p.to_step, p.count);
                    pieces.iter().map(row).collect()
                };
                (m.from, m.to, m.contribution, m.dims.into_iter().map(dim).collect())
            });
            Ok((kind, op, moves.collect()))
        })
    }

    /// What the change is called: a kind and its axes.
    fn collectives(&self, to: &PlacedArray) -> Vec<(&'static str, Vec<String>)> {
        let found = collectives(self.placed.mesh(), &self.placed, &to.placed);
        found.into_iter().map(|c| (c.kind, c.axes)).collect()
    }

    fn __eq__(&self, other: &PlacedArray) -> bool {
        self.placed == other.placed
    }
}
