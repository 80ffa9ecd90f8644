//! How many groups or lanes a launch has: what the caller says, else what the kernel says
//! (LANGUAGE 3).

use crate::dims::Sizes;
use crate::specialise::Specialised;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};

#[derive(Clone, Debug, PartialEq)]
pub struct Geometry {
    pub grid: [i64; 3],
    /// The lanes along each axis of a lane kernel.
    pub domain: [i64; 3],
    /// The lanes of a group.
    pub lanes: i64,
    pub from_caller: bool,
}

impl Geometry {
    /// An empty grid launches nothing.
    pub fn is_empty(&self) -> bool {
        self.grid.contains(&0)
    }
}

/// Refuses a caller's grid with no axes or too many, before anything is made of it.
pub fn check_axes(grid: Option<&[i64]>, loc: &Loc) -> Result<(), Diagnostics> {
    let Some(grid) = grid.filter(|g| !(1..=3).contains(&g.len())) else { return Ok(()) };
    let shown: Vec<String> = grid.iter().map(i64::to_string).collect();
    let message =
        format!("expected a grid of one to three axes, got {}: ({})", grid.len(), shown.join(", "));
    let help = "a grid has at most three axes: launch the product of two of them as one, and take it \
                apart in the kernel with `//` and `%`";
    Err(Diagnostic::new(Code::E_LAUNCH_GEOMETRY, message).at(loc.clone()).help(help).into())
}

/// Refuses a caller's grid for lanes of several axes that has another number of them.
pub fn check_lane_axes(axes: usize, got: usize, loc: &Loc) -> Result<(), Diagnostics> {
    if axes == got {
        return Ok(());
    }
    let message = format!("expected a grid of {axes} axes, as the kernel's lanes have, got {got}");
    let help = "count the lanes along each axis: `k[height, width](…)`";
    Err(Diagnostic::new(Code::E_LAUNCH_GEOMETRY, message).at(loc.clone()).help(help).into())
}

pub fn geometry(
    spec: &Specialised,
    sizes: &Sizes,
    caller: Option<&[i64]>,
    loc: &Loc,
) -> Result<Geometry, Diagnostics> {
    let fail = |message: String, help: &str| -> Diagnostics {
        Diagnostic::new(Code::E_LAUNCH_GEOMETRY, message).at(loc.clone()).help(help).into()
    };
    let extents: Vec<i64> = match caller {
        Some(grid) => {
            check_axes(caller, loc)?;
            grid.to_vec()
        }
        None => {
            let exprs = if spec.is_lane() { spec.domain() } else { spec.grid() };
            let exprs = exprs
                .ok_or_else(|| Diagnostics::from(tessera_lower::geometry_error(&spec.func)))?;
            exprs.iter().map(|e| sizes.eval(e)).collect::<Result<_, _>>().map_err(|why| {
                let message = format!("the launch grid cannot be computed: {why}");
                fail(message, "say it at the call: `k[grid](…)`")
            })?
        }
    };
    if let Some(bad) = extents.iter().find(|e| **e < 0) {
        let message = format!("expected grid extents of at least 0, got {bad}");
        return Err(fail(
            message,
            "count groups, or lanes in a lane kernel: `k[ts.cdiv(n, 64)](…)`",
        ));
    }
    let from_caller = caller.is_some();
    let Some(total) = extents.iter().try_fold(1i64, |a, b| a.checked_mul(*b)) else {
        let message = format!("the grid {extents:?} has more than 2^63 places");
        return Err(fail(message, "launch parts of it one after another"));
    };
    let by = spec.lanes();
    let lanes = by.iter().product();
    if spec.is_lane() {
        // Lanes of one axis are numbered through the caller's grid.
        let domain = if by.len() == 1 { vec![total] } else { extents };
        check_lane_axes(by.len(), domain.len(), loc)?;
        let (grid, domain) = tessera_tile::lane_grid(&by, &domain);
        return Ok(Geometry { grid, domain, lanes, from_caller });
    }
    let axis = |i: usize| extents.get(i).copied().unwrap_or(1);
    Ok(Geometry { grid: [axis(0), axis(1), axis(2)], domain: [0; 3], lanes, from_caller })
}
