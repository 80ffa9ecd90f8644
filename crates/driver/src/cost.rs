//! What a launch costs: the work as Tile IR has it, and the time it took.

use crate::dims::{Sizes, parse_dim};
use crate::explain::{Launch, Record};
use crate::geometry::{Geometry, geometry};
use crate::params::{Params, show_dim};
use crate::specialise::Specialised;
use std::collections::{BTreeMap, BTreeSet};
use tessera_cost::{Work, work};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_frontend::Capture;

/// The work of a launch, and how long it took where there was one.
#[derive(Clone, Debug)]
pub struct Cost {
    pub work: Work,
    /// Groups along each axis.
    pub grid: [i64; 3],
    pub seconds: Option<f64>,
}

/// The work of a launch that took place.
pub fn of_launch(spec: &Specialised, launch: &Launch) -> Result<Cost, Diagnostics> {
    let found = count(spec, &launch.dims, &launch.geometry)?;
    Ok(Cost { seconds: launch.time.map(|t| t.as_secs_f64()), ..found })
}

/// The work of a launch with these sizes.
pub fn of_sizes(
    spec: &Specialised,
    params: &Params,
    given: &BTreeMap<String, Capture>,
) -> Result<Cost, Diagnostics> {
    let mut sizes = Sizes { known: spec.config.dims.clone() };
    add(&mut sizes, params, given)?;
    if let Some(missing) = params.dims().find_map(|d| sizes.eval(d).err()) {
        return Err(unknown(missing));
    }
    let geometry = geometry(spec, &sizes, None, &params.loc)?;
    count(spec, &sizes.known, &geometry)
}

pub fn of_last(record: Option<&Record>) -> Result<Cost, Diagnostics> {
    let launched = record.and_then(|r| r.launch.as_ref().map(|launch| (&r.spec, launch)));
    let Some((spec, launch)) = launched else {
        return Err(Diagnostic::new(Code::E_ARGUMENT, "nothing was launched yet")
            .help("call the kernel first, or count without data: `k.jit().cost(n=1000)`")
            .into());
    };
    of_launch(spec, launch)
}

fn count(
    spec: &Specialised,
    dims: &BTreeMap<String, i64>,
    geometry: &Geometry,
) -> Result<Cost, Diagnostics> {
    let &Geometry { grid, domain, lanes, .. } = geometry;
    let launch = tessera_cost::Launch { dims, grid, domain, lanes };
    let work = work(&spec.func, &launch).map_err(unknown)?;
    Ok(Cost { work, grid, seconds: None })
}

fn unknown(why: String) -> Diagnostics {
    Diagnostic::new(Code::E_ARGUMENT, format!("the work cannot be counted: {why}"))
        .help("give the sizes of all dims: `k.jit().cost(n=1000)`")
        .into()
}

/// Takes sizes by the names of dims; those that were compiled for must be as they are.
fn add(
    sizes: &mut Sizes,
    params: &Params,
    given: &BTreeMap<String, Capture>,
) -> Result<(), Diagnostics> {
    let symbols: BTreeSet<String> = params
        .dims()
        .flat_map(|d| d.symbols().into_iter().map(|s| s.to_string()).chain([d.to_string()]))
        .collect();
    let mut errors = Diagnostics::new();
    for (name, value) in given {
        let dim = parse_dim(name).map(|d| d.to_string()).unwrap_or_default();
        let size = match value {
            Capture::Int(size) if (0..=i64::MAX.into()).contains(size) => *size as i64,
            other => {
                let shown = crate::config::show(other);
                let message = format!("expected a size of at least 0 for `{name}`, got {shown}");
                let help = format!("write `{name}=1024`");
                errors.push(Diagnostic::new(Code::E_ARGUMENT, message).help(help));
                continue;
            }
        };
        if !symbols.contains(&dim) {
            let mut known: Vec<String> = params.dims().map(show_dim).collect();
            known.retain(|d| d.parse::<i64>().is_err());
            known.sort_unstable();
            known.dedup();
            let message = format!("expected a dim (one of {}), got `{name}`", known.join(", "));
            let help = match tessera_frontend::closest(name, known.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("leave out `{name}=`"),
            };
            errors.push(Diagnostic::new(Code::E_ARGUMENT, message).help(help));
        } else if let Some(fixed) = sizes.known.insert(dim, size).filter(|&fixed| fixed != size) {
            let message =
                format!("expected {name} = {fixed}, got {size}: the kernel was compiled for it");
            errors.push(
                Diagnostic::new(Code::E_SPECIALIZE, message)
                    .help("compile it for that size: `k.jit(…)`"),
            );
        }
    }
    errors.into_result().map(|_| ())
}
