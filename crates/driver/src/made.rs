//! Kernels without a Python function: what a trace keeps of a kernel that it calls, and the kernels
//! that derivatives make of it.

use crate::artifacts::Artifacts;
use crate::backends::Backends;
use crate::dims::Sizes;
use crate::kernel::KernelHandle;
use crate::mode::{GridFrom, Mode};
use crate::request::Given;
use crate::specialise::{is_passed_over, lanes_or_default, lower, scheduled};
use crate::{cache, knobs};
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_frontend::Table;
use tessera_ir::{Attr, DimExpr, PassContext, PassManager, PassOptions, Privilege, Type};
use tessera_lower::{Bounds, Canonicalise, Launched, covers};
use tessera_numerics::{DType, Profile, Scalar};
use tessera_support::{Flights, StableHasher};
use tessera_target::{ArgValue, Artifact, BufferArg, CompileOptions, LaunchArgs, beside};
use tessera_tile::{KernelKind, TileFunc, kind_of};

/// A kernel as a trace knows it: lowered for sizes, not compiled.
pub struct TracedKernel {
    pub func: TileFunc,
    /// The names of its parameters, as the kernel has them, and of its tables.
    pub params: Vec<String>,
    /// The constant arrays that are its last parameters.
    pub tables: Vec<Arc<Table>>,
    /// Which parameters the kernel returns.
    pub returns: Vec<String>,
    /// Nothing of it is chosen when it is launched: it has one candidate, and runs where its
    /// arrays are.
    pub settled: bool,
}

impl TracedKernel {
    /// What the kernel may do with each of `params`.
    pub fn privileges(&self) -> Vec<Privilege> {
        self.func.params().iter().map(|&p| privilege(self.func.ty(p))).collect()
    }
}

impl TracedKernel {
    /// The parameters that a launch is known to write whole, for arrays of these extents by name.
    pub fn covered(&self, extents: &BTreeMap<String, Vec<i64>>) -> Vec<String> {
        let of = |name: &String| extents.get(name).map_or(&[][..], Vec::as_slice);
        let types = self.func.params().iter().map(|&p| self.func.ty(p));
        let Ok(found) = geometry(&self.func, types.zip(self.params.iter().map(of))) else {
            return Vec::new();
        };
        let Geometry { grid, domain, dims, .. } = found;
        let sizes = Sizes { known: dims };
        let eval = |e: &DimExpr| sizes.eval(e).ok();
        let launch = Launched { grid, domain, eval: &eval };
        let covers = covers(&self.func);
        let whole = |place: usize, name: &String| {
            let mut here = covers.iter().filter(|c| c.param == place);
            here.any(|c| c.holds(of(name), &launch))
        };
        let named = self.params.iter().enumerate();
        named.filter(|&(place, name)| whole(place, name)).map(|(_, name)| name.clone()).collect()
    }
}

fn privilege(ty: &Type) -> Privilege {
    match ty {
        Type::View { privilege, .. } => *privilege,
        _ => Privilege::Read,
    }
}

impl KernelHandle {
    /// The kernel for these sizes and constants, by the first candidate that is legal.
    pub fn traced(
        &self,
        backends: &Backends,
        given: &Given,
        grid: Option<&[i64]>,
        profile: Profile,
    ) -> Result<TracedKernel, Diagnostics> {
        crate::geometry::check_axes(grid, &self.params.loc)?;
        let request = crate::request::read(&self.kernel, &self.params, given)?;
        self.require(&request.sizes)?;
        let choice = backends.to_compile(self.target())?;
        let mode = Mode { profile, grid: GridFrom::caller(grid), ..Mode::default() };
        let mut candidates = self.candidate_list();
        if candidates.is_empty() {
            candidates.push(BTreeMap::new());
        }
        let mut first = None;
        for candidate in candidates {
            let mut config = request.config.clone();
            config.tunables = candidate;
            config.tunables.extend(request.tunables.clone());
            let made = match lower(&self.kernel, &config, &choice, mode) {
                Ok(made) => made,
                Err(errors) if is_passed_over(&errors) => {
                    first.get_or_insert(errors);
                    continue;
                }
                Err(errors) => return Err(errors),
            };
            let (func, places, tables, returned) = made.parts();
            let mut func = scheduled(&func, &config, mode.off).into_owned();
            if let Some(grid) = grid {
                set_grid(&mut func, grid)?;
            }
            let name = |&i: &usize| Some(self.params.items.get(i)?.name.clone());
            let own = |v| func.name_of(v).unwrap_or("table").to_string();
            let rows = places.iter().zip(func.params());
            let params = rows.map(|(i, &v)| name(i).unwrap_or_else(|| own(v))).collect();
            let returns = returned.iter().filter_map(name).collect();
            let settled = !self.has_candidates() && self.target().is_none();
            return Ok(TracedKernel { func, params, tables, returns, settled });
        }
        Err(first.unwrap_or_default())
    }
}

/// Puts the caller's grid where the kernel's own would be.
fn set_grid(func: &mut TileFunc, grid: &[i64]) -> Result<(), Diagnostics> {
    if kind_of(func) == Some(KernelKind::Lane) {
        let axes = tessera_tile::lane_axes(func);
        let several = axes > 1;
        if several {
            crate::geometry::check_lane_axes(axes, grid.len(), &func.loc)?;
        }
        let total = grid.iter().fold(1i64, |a, &b| a.saturating_mul(b));
        let domain = if several { grid } else { &[total] };
        func.attrs.set("domain", Attr::extents(domain.iter().map(|&n| DimExpr::Const(n))));
    } else {
        func.attrs.set("grid", Attr::exprs(grid.iter().map(|&n| DimExpr::Const(n))));
    }
    Ok(())
}

static COMPILED: Artifacts = Artifacts::new();
static BUILDING: Flights<String> = Flights::new();

/// Those that are alive, and the bytes of their code.
pub fn census() -> (usize, usize) {
    COMPILED.census()
}

/// The code of a generated kernel. A caller that calls it again keeps it: this cache is small.
pub fn compile_made(
    func: &TileFunc,
    backends: &Backends,
    backend: Option<&str>,
    profile: Profile,
) -> Result<Arc<dyn Artifact>, Diagnostics> {
    let choice = backends.to_compile(backend)?;
    choice.caps()?;
    let mut h = StableHasher::new();
    h.write_str(&func.hash().to_string());
    h.write_str(choice.backend.name());
    h.write_str(&choice.backend.caps().arch);
    h.write_u64(profile as u64);
    let key = h.finish().to_string();
    if let Some(artifact) = COMPILED.get(&key) {
        return Ok(artifact);
    }
    let mut func = func.clone();
    beside(move || {
        let make = || {
            // What would be refused in a user's kernel was settled when this one was made.
            let options =
                PassOptions { verify_each: knobs::VERIFY.is_on(), dump_dir: knobs::dump_dir() };
            let passes = PassManager::new(options).with(Bounds).with(Canonicalise);
            passes.run(&mut func, &mut PassContext::default())?;
            let (store, arrays) = (cache::store()?, Default::default());
            let options = CompileOptions { profile, store, arrays, call: Vec::new() };
            let made: Arc<dyn Artifact> = Arc::from(choice.backend.compile(&func, &options)?);
            COMPILED.insert(key.clone(), &made);
            Ok::<_, Diagnostics>(made)
        };
        Ok(BUILDING.once(&key, || COMPILED.get(&key), make)?.0)
    })
}

/// Runs a made kernel on arrays in host memory, one for each parameter; a number is an array of one
/// element.
pub fn launch_made(
    func: &TileFunc,
    artifact: &dyn Artifact,
    args: &[BufferArg],
) -> Result<(), Diagnostics> {
    let launch = arguments(func, args)?;
    if launch.grid.contains(&0) {
        return Ok(());
    }
    artifact.launch(&launch)
}

fn arguments(func: &TileFunc, args: &[BufferArg]) -> Result<LaunchArgs, Diagnostics> {
    let mut params = Vec::with_capacity(args.len());
    for (&p, arg) in func.params().iter().zip(args) {
        let ty = func.ty(p);
        if !matches!(ty, Type::View { .. }) {
            params.push(ArgValue::Scalar(number(arg)));
            continue;
        }
        let writable = privilege(ty).writes();
        params.push(ArgValue::Buffer(BufferArg { writable, ..arg.clone() }));
    }
    let extents = func.params().iter().zip(args).map(|(&p, arg)| (func.ty(p), &arg.dims[..]));
    let Geometry { grid, domain, lanes, dims } = geometry(func, extents)?;
    Ok(LaunchArgs { params, dims, grid, domain, lanes })
}

/// How a kernel is launched on arrays of given extents.
pub struct Geometry {
    pub grid: [i64; 3],
    pub domain: [i64; 3],
    pub lanes: i64,
    /// Extents that the kernel has names for.
    pub dims: BTreeMap<String, i64>,
}

/// By the grid that the kernel says; `extents` are the types of parameters and what they have.
pub fn geometry<'a>(
    func: &TileFunc,
    extents: impl Iterator<Item = (&'a Type, &'a [i64])>,
) -> Result<Geometry, Diagnostics> {
    let mut sizes = Sizes::default();
    for (ty, dims) in extents.filter(|(ty, _)| matches!(ty, Type::View { .. })) {
        for (dim, &extent) in ty.shape().iter().zip(dims) {
            if dim.as_static().is_none() {
                sizes.known.insert(dim.to_string(), extent);
            }
        }
    }
    let known = |e: &DimExpr| {
        sizes.eval(e).map_err(|why| {
            let why = format!("the launch grid of @{} cannot be computed: {why}", func.name);
            Diagnostics::from(Diagnostic::new(Code::E_LAUNCH_GEOMETRY, why))
        })
    };
    let by = lanes_or_default(func);
    let mut grid = [1i64; 3];
    let mut domain = [0; 3];
    if kind_of(func) == Some(KernelKind::Lane) {
        let exprs = tessera_tile::domain_of(func).unwrap_or(vec![DimExpr::Const(0); by.len()]);
        let extents = exprs.iter().map(known).collect::<Result<Vec<_>, _>>()?;
        (grid, domain) = tessera_tile::lane_grid(&by, &extents);
    } else {
        let exprs = func.attrs.get("grid").and_then(Attr::as_exprs).unwrap_or_default();
        for (to, e) in grid.iter_mut().zip(&exprs) {
            *to = known(e)?;
        }
    }
    Ok(Geometry { grid, domain, lanes: by.iter().product(), dims: sizes.known })
}

fn number(arg: &BufferArg) -> Scalar {
    // SAFETY: the caller's arrays are whole and alive, and this one has an element.
    let bytes = unsafe { std::slice::from_raw_parts(arg.data, arg.dtype.bytes()) };
    let host = tessera_interp::HostArray { dims: vec![1], dtype: arg.dtype, bytes: bytes.to_vec() };
    host.scalars().first().copied().unwrap_or(Scalar::zero(DType::F32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_kernel_runs_by_its_own_grid() {
        let func = tessera_tile::parse(
            "func @k(%x: view<[n], f32, read>, %s: f32, %y: view<[n], f32, reduce_sum>) {kind = lane, domain = n} {
  %i = tile.linear_id : i64
  %v = tile.load %x at(%i) {extent = [0]} : f32
  %w = tile.mul %v, %s : f32
  tile.accumulate %y, %w at(%i) {op = sum, extent = [0]}
  tile.return
}",
        )
        .unwrap();
        let array =
            |values: &[f64], dims: &[i64]| tessera_interp::HostArray::new(dims, DType::F32, values);
        let mut arrays =
            [array(&[1., 2., 3.], &[3]), array(&[2.], &[]), array(&[1., 1., 1.], &[3])];
        let args: Vec<BufferArg> = arrays
            .iter_mut()
            .map(|a| BufferArg {
                data: a.bytes.as_mut_ptr(),
                dims: a.dims.clone(),
                strides: a.strides(),
                dtype: a.dtype,
                writable: true,
            })
            .collect();
        compile_made(&func, &Backends::default(), Some("interp"), Profile::Default)
            .and_then(|code| launch_made(&func, &*code, &args))
            .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(arrays[2].values(), [3., 5., 7.]);
    }
}
