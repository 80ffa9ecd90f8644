//! What a kernel is compiled for beside its configuration.

use crate::reproducible::Reproducible;
use tessera_diag::Diagnostics;
use tessera_ir::{Changed, DimExpr, Pass, PassContext, PassManager, PassOptions};
use tessera_lower::stage::Off;
use tessera_lower::{TILE_PASSES, lane_races, races, tile_pipeline};
use tessera_numerics::Profile;
use tessera_tile::{KernelKind, Tile, TileFunc, kind_of};

/// Part of the key of everything compiled.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    pub profile: Profile,
    pub grid: GridFrom,
    pub form: Form,
    /// Passes that are left out.
    pub off: Off,
}

/// Who says how many groups or lanes there are. What is known of the kernel's own grid (an access
/// that stays inside) need not hold for the caller's.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum GridFrom {
    #[default]
    Kernel,
    /// Along which axes there is more than one group: what can be a race depends on no more.
    Caller { several: [bool; 3] },
}

impl GridFrom {
    pub fn caller(grid: Option<&[i64]>) -> Self {
        let Some(grid) = grid else { return GridFrom::Kernel };
        let several = |axis: usize| grid.get(axis).is_some_and(|&n| n > 1);
        GridFrom::Caller { several: [several(0), several(1), several(2)] }
    }
}

/// How far a kernel is taken from its source.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// All of the tile pipeline.
    #[default]
    Lowered,
    /// Only what running it needs: every name and line of the source is still there.
    Source,
    /// Without what runs more than the program says, and so could be found fault with.
    Checked,
}

/// Passes that make code better and leave its meaning; they also lose names.
const OPTIMISING: [&str; 3] = ["tile-if-convert", "tile-bounds", "tile-canonicalise"];

impl Mode {
    /// `gpu` says whether the code is for one.
    pub fn pipeline(&self, options: PassOptions, gpu: bool) -> PassManager<Tile> {
        if *self == Mode::default() {
            return tile_pipeline(options);
        }
        let mut manager = PassManager::new(options);
        for (name, make) in TILE_PASSES {
            manager = match (*name, self.grid) {
                ("tile-geometry", GridFrom::Caller { several }) => {
                    manager.with(CallerGrid(several))
                }
                _ if self.form == Form::Source && OPTIMISING.contains(name) => manager,
                ("tile-if-convert" | "tile-ownership", _) if self.form == Form::Checked => manager,
                _ => manager.with(Boxed(make())),
            };
        }
        match self.profile {
            Profile::Default => manager,
            Profile::Deterministic | Profile::Strict => {
                manager.with(Reproducible { profile: self.profile, gpu })
            }
        }
    }

    /// Distinct for distinct modes.
    pub fn tag(&self) -> u64 {
        let grid = match self.grid {
            GridFrom::Kernel => 0,
            GridFrom::Caller { several } => {
                several.iter().fold(1, |bits, &s| bits << 1 | u64::from(s))
            }
        };
        self.off.bits() << 16 | (self.profile as u64) << 8 | (self.form as u64) << 4 | grid
    }
}

/// Replaces `tile-geometry` where the caller gives the grid: nothing may depend on the kernel's own
/// grid, and an element that several groups or lanes of the caller's grid write is a race.
struct CallerGrid([bool; 3]);

impl Pass<Tile> for CallerGrid {
    fn name(&self) -> &'static str {
        "tile-take-grid"
    }

    fn run(&self, func: &mut TileFunc, _: &mut PassContext) -> Result<Changed, Diagnostics> {
        let stated = ["grid", "domain"].map(|name| func.attrs.remove(name).is_some());
        let extents = self.0.map(|several| DimExpr::Const(if several { 2 } else { 1 }));
        match kind_of(func) {
            Some(KernelKind::Group) => races(func, &extents),
            Some(KernelKind::Lane) => lane_races(func, &extents),
            None => Diagnostics::new(),
        }
        .into_result()?;
        Ok(if stated.contains(&true) { Changed::Yes } else { Changed::No })
    }
}

/// The manager takes passes by type; the table holds them boxed.
struct Boxed(Box<dyn Pass<Tile>>);

impl Pass<Tile> for Boxed {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn run(&self, func: &mut TileFunc, context: &mut PassContext) -> Result<Changed, Diagnostics> {
        self.0.run(func, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_mode_has_a_tag_of_its_own() {
        let mut tags = BTreeSet::new();
        let grids = [None, Some(&[1i64][..]), Some(&[2]), Some(&[1, 2]), Some(&[2, 2, 2])];
        for &profile in Profile::ALL {
            for form in [Form::Lowered, Form::Source, Form::Checked] {
                for grid in grids {
                    for off in [&[][..], &["epilogue"], &["epilogue", "warp_specialization"]] {
                        let off = Off::named(off.iter().copied(), "off").unwrap();
                        let mode = Mode { profile, form, grid: GridFrom::caller(grid), off };
                        assert!(tags.insert(mode.tag()), "{mode:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_source_form_and_a_callers_grid_leave_passes_out() {
        let names = |mode: Mode| mode.pipeline(PassOptions::default(), false).names();
        let source = names(Mode { form: Form::Source, ..Mode::default() });
        assert!(!source.contains(&"tile-canonicalise") && source.contains(&"tile-geometry"));
        let caller = names(Mode { grid: GridFrom::caller(Some(&[4])), ..Mode::default() });
        assert!(!caller.contains(&"tile-geometry") && caller.contains(&"tile-take-grid"));
    }
}
