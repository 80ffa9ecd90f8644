//! Programs of one rank (`manual`) and the collectives in them: types of blocks, and what an op says of
//! the axes of its mesh. Which axes a value varies along is in [`crate::states`].

use crate::dims::{compute, expr_of, show};
use crate::ops::reduce::operator;
use crate::rule::{Refusal, Rule, Ruled, Site, axis, elem, scalar, tensor};
use tessera_diag::Code;
use tessera_ir::{Attr, Attrs, Dim, DimOp, Type};
use tessera_numerics::DType;

/// Named axes with their extents, coarsest first: those of a mesh, or those that an op goes over.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeshAxes {
    pub names: Vec<String>,
    pub sizes: Vec<i64>,
}

impl MeshAxes {
    /// Those of the attributes `axes` and `sizes`.
    pub fn of(attrs: &Attrs) -> Result<Self, Refusal> {
        let names: Vec<String> = attrs
            .get("axes")
            .and_then(Attr::as_list)
            .unwrap_or_default()
            .iter()
            .filter_map(|a| a.as_word().map(str::to_string))
            .collect();
        let sizes = attrs.get("sizes").and_then(Attr::as_ints).unwrap_or_default();
        if names.len() != sizes.len() {
            return Err(Refusal {
                code: Code::E_MESH,
                message: format!(
                    "expected one extent in `sizes` for each of {} axes, got {}",
                    names.len(),
                    sizes.len()
                ),
            });
        }
        if let Some(bad) = sizes.iter().find(|&&n| n < 1) {
            let message = format!("expected extents of at least 1 in `sizes`, got {bad}");
            return Err(Refusal { code: Code::E_MESH, message });
        }
        if let Some(twice) = names.iter().enumerate().find(|(i, n)| names[..*i].contains(n)) {
            let message = format!("expected each mesh axis once, got `{}` twice", twice.1);
            return Err(Refusal { code: Code::E_PLACEMENT, message });
        }
        if sizes.iter().try_fold(1i64, |n, &size| n.checked_mul(size)).is_none() {
            let message = "expected a mesh whose ranks a number of 64 bits counts".to_string();
            return Err(Refusal { code: Code::E_MESH, message });
        }
        // Axes are bits of a word where states are computed.
        if names.len() > 64 {
            let message = format!("expected at most 64 axes of a mesh, got {}", names.len());
            return Err(Refusal { code: Code::E_MESH, message });
        }
        Ok(Self { names, sizes })
    }

    /// How many ranks there are along them.
    pub fn count(&self) -> i64 {
        self.sizes.iter().product()
    }

    pub fn place(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|n| n == name)
    }

    /// The coordinates of a rank, row-major over the axes.
    pub fn coords(&self, rank: usize) -> Vec<usize> {
        let mut rest = rank;
        let mut out = vec![0; self.sizes.len()];
        for (at, &size) in self.sizes.iter().enumerate().rev() {
            out[at] = rest % size as usize;
            rest /= size as usize;
        }
        out
    }

    /// The position of a rank along named axes, row-major in their order, and how many there are.
    pub fn position(&self, rank: usize, names: &[String]) -> (usize, usize) {
        let at = self.coords(rank);
        let places = names.iter().filter_map(|n| self.place(n));
        places.fold((0, 1), |(p, n), i| {
            let size = self.sizes[i] as usize;
            (p * size + at[i], n * size)
        })
    }

    /// The ranks that synchronise with one along named axes, in the order of their positions.
    pub fn group(&self, rank: usize, names: &[String]) -> Vec<usize> {
        let at = self.coords(rank);
        let beside = |other: &usize| {
            let there = self.coords(*other);
            (0..at.len()).all(|i| names.contains(&self.names[i]) || there[i] == at[i])
        };
        let mut all: Vec<usize> = (0..self.count() as usize).filter(beside).collect();
        all.sort_by_key(|&r| self.position(r, names).0);
        all
    }

    /// Where the block of a rank begins in a value with these extents, and the extents of the block.
    pub fn block(&self, split: &Split, dims: &[usize], rank: usize) -> (Vec<usize>, Vec<usize>) {
        let each = dims.iter().zip(split).map(|(&d, axes)| {
            let (p, n) = self.position(rank, axes);
            (p * (d / n), d / n)
        });
        each.unzip()
    }

    /// As attributes of an op.
    pub fn attrs(&self) -> Attrs {
        Attrs::new()
            .with("axes", Attr::words(self.names.iter().cloned()))
            .with("sizes", Attr::ints(self.sizes.iter().copied()))
    }

    /// The axes of these places.
    pub fn pick(&self, places: impl IntoIterator<Item = usize>) -> Self {
        let (names, sizes) =
            places.into_iter().map(|i| (self.names[i].clone(), self.sizes[i])).unzip();
        Self { names, sizes }
    }

    /// Such as `dp=4, tp=9`.
    pub fn text(&self) -> String {
        let each = self.names.iter().zip(&self.sizes).map(|(n, s)| format!("{n}={s}"));
        each.collect::<Vec<_>>().join(", ")
    }
}

/// For each dim of a value, the mesh axes that split it, coarsest first.
pub type Split = Vec<Vec<String>>;

/// The placements in the attribute `in` or `out` of a `manual`.
pub fn splits(attr: Option<&Attr>) -> Option<Vec<Split>> {
    let words = |a: &Attr| -> Option<Vec<String>> {
        a.as_list()?.iter().map(|w| w.as_word().map(str::to_string)).collect()
    };
    let value = |a: &Attr| -> Option<Split> { a.as_list()?.iter().map(words).collect() };
    attr?.as_list()?.iter().map(value).collect()
}

/// Placements as an attribute.
pub fn splits_attr(all: &[Split]) -> Attr {
    let value = |split: &Split| Attr::List(split.iter().map(|d| Attr::words(d.clone())).collect());
    Attr::List(all.iter().map(value).collect())
}

fn placement(message: String) -> Refusal {
    Refusal { code: Code::E_PLACEMENT, message }
}

/// How many ranks split each dim; an error where the placement does not fit the value or the mesh.
fn parts(mesh: &MeshAxes, split: &Split, ty: &Type) -> Result<Vec<i64>, Refusal> {
    if split.len() != ty.rank() {
        return Err(placement(format!(
            "expected a placement with one entry for each of {} dims, got {}",
            ty.rank(),
            split.len()
        )));
    }
    let mut used: Vec<&String> = Vec::new();
    let mut out = Vec::new();
    for axes in split {
        let mut n = 1;
        for name in axes {
            let Some(at) = mesh.place(name) else {
                let text = mesh.text();
                let message = format!("expected an axis of the mesh ({text}), got `{name}`");
                return Err(Refusal { code: Code::E_MESH, message });
            };
            if used.contains(&name) {
                return Err(placement(format!(
                    "expected each mesh axis once in a placement, got `{name}` twice"
                )));
            }
            used.push(name);
            n *= mesh.sizes[at];
        }
        out.push(n);
    }
    Ok(out)
}

/// `dim` over `n` ranks.
fn divided(what: &str, dim: &Dim, n: i64) -> Result<Dim, Refusal> {
    if n == 1 {
        return Ok(dim.clone());
    }
    let even = compute(DimOp::Mod, dim, &Dim::Static(n)).as_static() == Some(0);
    if even {
        return Ok(compute(DimOp::FloorDiv, dim, &Dim::Static(n)));
    }
    let got = expr_of(dim).map_or_else(|| dim.to_string(), |e| e.to_string());
    Err(Refusal {
        code: Code::E_UNEVEN,
        message: format!("expected {what} to be a multiple of {n} ranks, got {got}"),
    })
}

/// The block of one rank.
pub fn block_type(mesh: &MeshAxes, split: &Split, ty: &Type) -> Result<Type, Refusal> {
    let parts = parts(mesh, split, ty)?;
    let dims = ty.shape().iter().zip(parts).enumerate();
    let dims = dims.map(|(i, (d, n))| divided(&format!("dim {i} of {}", show(ty.shape())), d, n));
    Ok(tensor(dims.collect::<Result<_, _>>()?, elem(ty)))
}

/// The whole of which every rank has a block of this type.
pub fn whole_type(mesh: &MeshAxes, split: &Split, ty: &Type) -> Result<Type, Refusal> {
    let parts = parts(mesh, split, ty)?;
    let dims = ty.shape().iter().zip(parts);
    let dims = dims.map(|(d, n)| compute(DimOp::Mul, d, &Dim::Static(n)));
    Ok(tensor(dims.collect(), elem(ty)))
}

/// The mesh of a `manual` and the placements of its operands and results.
pub struct Manual {
    pub mesh: MeshAxes,
    pub ins: Vec<Split>,
    pub outs: Vec<Split>,
}

impl Manual {
    pub fn of(attrs: &Attrs) -> Result<Self, Refusal> {
        let mesh = MeshAxes::of(attrs)?;
        let read = |name: &str| {
            splits(attrs.get(name)).ok_or_else(|| {
                Refusal::structure(format!(
                    "expected `{name}` to hold, for each value, for each dim, a list of mesh axes"
                ))
            })
        };
        Ok(Self { mesh, ins: read("in")?, outs: read("out")? })
    }

    pub fn attrs(&self) -> Attrs {
        let mesh = self.mesh.attrs();
        mesh.with("in", splits_attr(&self.ins)).with("out", splits_attr(&self.outs))
    }

    /// The types of the blocks of values of these types.
    pub fn blocks(&self, types: &[Type]) -> Result<Vec<Type>, Refusal> {
        if types.len() != self.ins.len() {
            return Err(placement(format!(
                "expected one placement in `in` for each of {} operands, got {}",
                types.len(),
                self.ins.len()
            )));
        }
        types.iter().zip(&self.ins).map(|(ty, s)| block_type(&self.mesh, s, ty)).collect()
    }

    /// The types of the wholes of blocks of these types.
    pub fn wholes(&self, types: &[Type]) -> Result<Vec<Type>, Refusal> {
        if types.len() != self.outs.len() {
            return Err(placement(format!(
                "expected one placement in `out` for each of {} results, got {}",
                types.len(),
                self.outs.len()
            )));
        }
        types.iter().zip(&self.outs).map(|(ty, s)| whole_type(&self.mesh, s, ty)).collect()
    }
}

pub struct ManualRule;

impl Rule for ManualRule {
    fn types(s: &Site<'_>) -> Ruled {
        Manual::of(s.attrs)?.blocks(s.group("values"))?;
        Ok(s.results.to_vec())
    }
}

/// The placement that a `shard` pins.
pub struct Pin {
    pub mesh: MeshAxes,
    pub split: Split,
    /// The dims that may be split over more axes.
    pub open: Vec<usize>,
    pub priority: i64,
}

impl Pin {
    pub fn of(attrs: &Attrs, ty: &Type) -> Result<Self, Refusal> {
        let mesh = MeshAxes::of(attrs)?;
        let one = Attr::List(attrs.get("split").cloned().into_iter().collect());
        let split = splits(Some(&one)).and_then(|mut all| all.pop()).ok_or_else(|| {
            Refusal::structure(
                "expected `split` to hold, for each dim, a list of mesh axes".to_string(),
            )
        })?;
        parts(&mesh, &split, ty)?;
        let listed = attrs.get("open").and_then(Attr::as_ints).unwrap_or_default();
        let open = listed.iter().map(|&d| axis("open", d, ty)).collect::<Result<_, _>>()?;
        let priority = attrs.get("priority").and_then(Attr::as_int).unwrap_or(0);
        if priority < 0 {
            let message = format!("expected a `priority` of at least 0, got {priority}");
            return Err(placement(message));
        }
        Ok(Self { mesh, split, open, priority })
    }
}

pub struct Sharded;

impl Rule for Sharded {
    fn types(s: &Site<'_>) -> Ruled {
        let x = s.operand(0)?;
        Pin::of(s.attrs, x)?;
        Ok(vec![x.clone()])
    }
}

/// Ops whose result has the type of the operand: `vary`, `all_reduce`, `permute`, `from_rank`.
pub struct Kept;

impl Rule for Kept {
    fn types(s: &Site<'_>) -> Ruled {
        let axes = MeshAxes::of(s.attrs)?;
        let x = s.operand(0)?;
        if s.attr("op").is_some() {
            operator("op", s.word("op").unwrap_or_default(), x.dtype())?;
        }
        if s.attr("root").is_some() {
            rank("root", s.int("root", 0), &axes)?;
        }
        if let Some(attr) = s.attr("pairs") {
            pairs(attr, &axes)?;
        }
        Ok(vec![x.clone()])
    }
}

fn rank(name: &str, value: i64, axes: &MeshAxes) -> Result<(), Refusal> {
    let n = axes.count();
    if (0..n).contains(&value) {
        return Ok(());
    }
    let message = format!(
        "expected `{name}` to be a rank from 0 to {} along {}, got {value}",
        n - 1,
        axes.text()
    );
    Err(Refusal { code: Code::E_MESH, message })
}

/// Who sends to whom in a `permute`: each at most once.
pub fn pairs(attr: &Attr, axes: &MeshAxes) -> Result<Vec<(i64, i64)>, Refusal> {
    let pair = |a: &Attr| match a.as_ints()?[..] {
        [source, target] => Some((source, target)),
        _ => None,
    };
    let all: Option<Vec<_>> = attr.as_list().and_then(|l| l.iter().map(pair).collect());
    let all = all.ok_or_else(|| {
        Refusal::structure(format!("expected `pairs` to hold pairs (source, target), got {attr}"))
    })?;
    for (i, &(source, target)) in all.iter().enumerate() {
        rank("pairs", source, axes)?;
        rank("pairs", target, axes)?;
        for &(s, t) in &all[..i] {
            if s == source {
                return Err(placement(format!(
                    "expected each rank to send once in `pairs`, got {s} twice"
                )));
            }
            if t == target {
                return Err(placement(format!(
                    "expected each rank to receive once in `pairs`, got {t} twice"
                )));
            }
        }
    }
    Ok(all)
}

/// `own` and `reduce_scatter`: one block of `dim` for each rank.
pub struct Scattered;

impl Rule for Scattered {
    fn types(s: &Site<'_>) -> Ruled {
        let axes = MeshAxes::of(s.attrs)?;
        let x = s.operand(0)?;
        if s.attr("op").is_some() {
            operator("op", s.word("op").unwrap_or_default(), x.dtype())?;
        }
        let at = axis("dim", s.int("dim", -1), x)?;
        let mut dims = x.shape().to_vec();
        dims[at] = divided(&format!("dim {at} of {}", show(x.shape())), &dims[at], axes.count())?;
        Ok(vec![tensor(dims, elem(x))])
    }
}

pub struct AllGather;

impl Rule for AllGather {
    fn types(s: &Site<'_>) -> Ruled {
        let axes = MeshAxes::of(s.attrs)?;
        let x = s.operand(0)?;
        let at = axis("dim", s.int("dim", -1), x)?;
        let mut dims = x.shape().to_vec();
        dims[at] = compute(DimOp::Mul, &dims[at], &Dim::Static(axes.count()));
        Ok(vec![tensor(dims, elem(x))])
    }
}

pub struct AllToAll;

impl Rule for AllToAll {
    fn types(s: &Site<'_>) -> Ruled {
        let axes = MeshAxes::of(s.attrs)?;
        let x = s.operand(0)?;
        let (from, to) =
            (axis("split", s.int("split", -1), x)?, axis("concat", s.int("concat", -1), x)?);
        let mut dims = x.shape().to_vec();
        dims[from] =
            divided(&format!("dim {from} of {}", show(x.shape())), &dims[from], axes.count())?;
        dims[to] = compute(DimOp::Mul, &dims[to], &Dim::Static(axes.count()));
        Ok(vec![tensor(dims, elem(x))])
    }
}

pub struct AxisIndex;

impl Rule for AxisIndex {
    fn types(s: &Site<'_>) -> Ruled {
        MeshAxes::of(s.attrs)?;
        Ok(vec![scalar(DType::I64)])
    }
}
