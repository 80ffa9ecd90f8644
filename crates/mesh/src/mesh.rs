//! Meshes: named grids of devices. Ranks are row-major over the axes.

use crate::scan::Scan;
use std::fmt;
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic};

/// More ranks than this are a mistake in an extent.
const MOST_RANKS: u64 = 1 << 20;

#[derive(PartialEq, Eq, Hash, Debug)]
struct Whole {
    axes: Vec<String>,
    extents: Vec<u64>,
    /// By rank; one stands for all where they are equal.
    devices: Vec<String>,
}

impl Whole {
    fn device(&self, rank: u64) -> &str {
        match &self.devices[..] {
            [all] => all,
            devices => &devices[rank as usize],
        }
    }
}

/// A mesh, or the part of one where some axes have a fixed coordinate. A value: meshes with the same axes, extents, devices and fixed
/// coordinates are the same.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Mesh {
    whole: Arc<Whole>,
    /// By axis of the whole mesh, its coordinate where it is fixed.
    fixed: Vec<Option<u64>>,
    /// The axes of the whole mesh that are free.
    free: Vec<usize>,
}

impl Mesh {
    /// A mesh of these devices, in row-major order over the axes.
    pub fn new(axes: &[String], extents: &[u64], devices: Vec<String>) -> Result<Mesh, Diagnostic> {
        Mesh::count(axes, extents, devices.len() as u64)?;
        let mut devices = devices;
        if devices.windows(2).all(|pair| pair[0] == pair[1]) {
            devices.truncate(1);
        }
        Ok(Mesh::made(axes, extents, devices))
    }

    /// A mesh of `ranks` ranks that share a device.
    pub fn shared(
        axes: &[String],
        extents: &[u64],
        ranks: u64,
        device: &str,
    ) -> Result<Mesh, Diagnostic> {
        Mesh::count(axes, extents, ranks)?;
        Ok(Mesh::made(axes, extents, vec![device.to_owned()]))
    }

    fn made(axes: &[String], extents: &[u64], devices: Vec<String>) -> Mesh {
        let whole = Whole { axes: axes.to_vec(), extents: extents.to_vec(), devices };
        Mesh {
            fixed: vec![None; axes.len()],
            free: (0..axes.len()).collect(),
            whole: Arc::new(whole),
        }
    }

    /// Refuses a number of devices that is not the product of the extents.
    fn count(axes: &[String], extents: &[u64], n: u64) -> Result<(), Diagnostic> {
        let ranks = Mesh::check(axes, extents)?;
        if n == ranks {
            return Ok(());
        }
        let devices = |n: u64| format!("{n} device{}", if n == 1 { "" } else { "s" });
        let text = format!("expected {}, got {}", arithmetic(extents), devices(n));
        let help = format!("give {}, or extents whose product is {n}", devices(ranks));
        Err(Diagnostic::new(Code::E_MESH, text).help(help))
    }

    /// The number of ranks of axes with these extents.
    fn check(axes: &[String], extents: &[u64]) -> Result<u64, Diagnostic> {
        let wrong = |text: String, help: &str| Err(Diagnostic::new(Code::E_MESH, text).help(help));
        if axes.len() != extents.len() {
            let text = format!(
                "expected one extent for each axis, got {} axes and {} extents",
                axes.len(),
                extents.len()
            );
            return wrong(text, "write `dist.mesh(8, (\"dp\", \"tp\"), (4, 2))`");
        }
        for (at, name) in axes.iter().enumerate() {
            let is_name = !name.starts_with(|c: char| c.is_ascii_digit())
                && name.chars().all(|c| c.is_alphanumeric() || c == '_');
            if name.is_empty() || !is_name {
                return wrong(
                    format!("expected a name of letters and digits for axis {at}, got {name:?}"),
                    "write `axes=(\"dp\", \"tp\")`",
                );
            }
            if axes[..at].contains(name) {
                return wrong(
                    format!("the axis `{name}` is named twice"),
                    "give each axis a name of its own",
                );
            }
        }
        if let Some(at) = extents.iter().position(|n| *n == 0) {
            return wrong(
                format!("expected an extent of at least 1 for the axis `{}`, got 0", axes[at]),
                "an axis that is not used has extent 1",
            );
        }
        let ranks = extents
            .iter()
            .try_fold(1u64, |all, n| all.checked_mul(*n).filter(|n| *n <= MOST_RANKS));
        ranks.ok_or_else(|| {
            let text = format!(
                "expected at most {MOST_RANKS} ranks, got {}",
                extents.iter().map(u64::to_string).collect::<Vec<_>>().join(" × ")
            );
            Diagnostic::new(Code::E_MESH, text).help("give smaller extents")
        })
    }

    /// One device; all axes have extent 1.
    pub fn unit(axes: &[String], device: &str) -> Result<Mesh, Diagnostic> {
        Mesh::shared(axes, &vec![1; axes.len()], 1, device)
    }

    pub fn axes(&self) -> Vec<&str> {
        self.free.iter().map(|a| self.whole.axes[*a].as_str()).collect()
    }

    pub fn extents(&self) -> Vec<u64> {
        self.free.iter().map(|a| self.whole.extents[*a]).collect()
    }

    pub fn size(&self) -> u64 {
        self.extents().iter().product()
    }

    /// The device of each rank.
    pub fn devices(&self) -> Vec<&str> {
        (0..self.size()).map(|r| self.whole.device(self.whole_rank(r))).collect()
    }

    /// The place of an axis.
    pub fn axis(&self, name: &str) -> Result<usize, Diagnostic> {
        self.free.iter().position(|a| self.whole.axes[*a] == name).ok_or_else(|| {
            let known = self.axes();
            let mut text = format!(
                "expected an axis of the mesh ({}), got `{name}`",
                if known.is_empty() { "it has none".to_owned() } else { known.join(", ") }
            );
            if self.whole.axes.iter().any(|a| a == name) {
                text = format!(
                    "`{name}` is fixed in this part of the mesh; it has the axes ({})",
                    known.join(", ")
                );
            }
            Diagnostic::new(Code::E_MESH, text).help("`mesh.axes` has the names")
        })
    }

    pub fn coords(&self, rank: u64) -> Vec<u64> {
        let mut rest = rank;
        let mut coords: Vec<u64> = self
            .extents()
            .iter()
            .rev()
            .map(|n| {
                let c = rest % n;
                rest /= n;
                c
            })
            .collect();
        coords.reverse();
        coords
    }

    /// The rank at coordinates that are within the extents.
    pub fn rank(&self, coords: &[u64]) -> u64 {
        coords.iter().zip(self.extents()).fold(0, |rank, (c, n)| rank * n + c)
    }

    /// The ranks that differ only along these axes, for each position along the others; within a group row-major over `axes` as given.
    pub fn groups(&self, axes: &[usize]) -> Vec<Vec<u64>> {
        let extents = self.extents();
        let mut found: Vec<Vec<u64>> = Vec::new();
        for rank in 0..self.size() {
            let coords = self.coords(rank);
            if axes.iter().any(|a| coords[*a] != 0) {
                continue;
            }
            let inside = axes.iter().map(|a| extents[*a]).product();
            let group = (0..inside).map(|i: u64| {
                let (mut at, mut rest) = (coords.clone(), i);
                for a in axes.iter().rev() {
                    at[*a] = rest % extents[*a];
                    rest /= extents[*a];
                }
                self.rank(&at)
            });
            found.push(group.collect());
        }
        found
    }

    /// The part of the mesh where these axes have these coordinates. It remembers the whole.
    pub fn at(&self, fixed: &[(String, i64)]) -> Result<Mesh, Diagnostic> {
        let mut made = self.clone();
        for (name, coord) in fixed {
            let axis = made.free[made.axis(name)?];
            let extent = self.whole.extents[axis];
            let Some(c) = u64::try_from(*coord).ok().filter(|c| *c < extent) else {
                let text = format!(
                    "expected a coordinate of `{name}` from 0 to {}, got {coord}",
                    extent - 1
                );
                return Err(Diagnostic::new(Code::E_MESH, text)
                    .help(format!("`{name}` has the extent {extent}")));
            };
            made.fixed[axis] = Some(c);
            made.free.retain(|a| *a != axis);
        }
        Ok(made)
    }

    /// The mesh that this one is a part of; itself where it is whole.
    pub fn whole(&self) -> Mesh {
        Mesh {
            whole: self.whole.clone(),
            fixed: vec![None; self.fixed.len()],
            free: (0..self.fixed.len()).collect(),
        }
    }

    pub fn is_part(&self) -> bool {
        self.free.len() < self.fixed.len()
    }

    /// The rank in the whole mesh.
    pub fn whole_rank(&self, rank: u64) -> u64 {
        let mut free = self.coords(rank).into_iter();
        let coord = |fixed: &Option<u64>| fixed.or_else(|| free.next()).unwrap_or(0);
        let coords: Vec<u64> = self.fixed.iter().map(coord).collect();
        coords.iter().zip(&self.whole.extents).fold(0, |rank, (c, n)| rank * n + c)
    }

    /// The mesh that a text names; all ranks are on `cpu:0`.
    pub fn parse(text: &str) -> Result<Mesh, Diagnostic> {
        let mut scan = Scan::new(text);
        for mark in ["{", "axes", "=", "["] {
            scan.expect(mark)?;
        }
        let axes = scan.names("]")?;
        for mark in [",", "extents", "=", "["] {
            scan.expect(mark)?;
        }
        let mut extents = Vec::new();
        while !scan.take("]") {
            if !extents.is_empty() {
                scan.expect(",")?;
            }
            extents.push(scan.count()?);
        }
        scan.expect("}")?;
        let ranks = Mesh::check(&axes, &extents)?;
        let whole = Mesh::shared(&axes, &extents, ranks, "cpu:0")?;
        let mut fixed = Vec::new();
        if scan.take("at") {
            scan.expect("{")?;
            while !scan.take("}") {
                if !fixed.is_empty() {
                    scan.expect(",")?;
                }
                let name = scan.name().ok_or_else(|| scan.wrong("an axis"))?.to_owned();
                scan.expect("=")?;
                fixed.push((name, scan.count()? as i64));
            }
        }
        scan.end()?;
        whole.at(&fixed)
    }
}

/// `4 × 9 × 2 = 72 devices`.
fn arithmetic(extents: &[u64]) -> String {
    let ranks: u64 = extents.iter().product();
    let unit = if ranks == 1 { "device" } else { "devices" };
    match extents {
        [] | [_] => format!("{ranks} {unit}"),
        _ => format!(
            "{} = {ranks} {unit}",
            extents.iter().map(u64::to_string).collect::<Vec<_>>().join(" × ")
        ),
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extents: Vec<String> = self.whole.extents.iter().map(u64::to_string).collect();
        write!(
            f,
            "{{axes = [{}], extents = [{}]}}",
            self.whole.axes.join(", "),
            extents.join(", ")
        )?;
        let fixed: Vec<String> = self
            .fixed
            .iter()
            .zip(&self.whole.axes)
            .filter_map(|(c, name)| c.map(|c| format!("{name} = {c}")))
            .collect();
        if fixed.is_empty() { Ok(()) } else { write!(f, " at {{{}}}", fixed.join(", ")) }
    }
}
