//! The level: its types and the rules of a launch.

use crate::SchedOp;
use crate::flow::verify_flow;
use crate::parts::{DEVICES, verify_devices};
use crate::steps::verify_writes;
use std::collections::BTreeSet;
use tessera_diag::Code;
use tessera_ir::{Attr, Dim, DimExpr, Func, Level, OpErrors, OpId, Type};

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Schedule;

impl Level for Schedule {
    const NAME: &'static str = "schedule";
    const PREFIX: &'static str = "sched";
    type Op = SchedOp;

    const FUNC_ATTRS: &'static [&'static str] = &[DEVICES];

    fn admits(ty: &Type) -> bool {
        matches!(ty, Type::Scalar(_) | Type::View { .. } | Type::Event)
    }

    fn verify_func(func: &Func<Self>, errors: &mut OpErrors) {
        for (name, _) in func.attrs.iter().filter(|(name, _)| *name != DEVICES) {
            errors
                .structure(format!("expected no function attribute but `{DEVICES}`, got `{name}`"));
        }
        let before = errors.len();
        verify_devices(func, errors);
        if errors.len() == before {
            verify_flow(func, errors);
        }
    }
}

/// The symbols of a launch's geometry: the dims of its arguments, and its integers.
fn symbols(func: &Func<Schedule>, id: OpId) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for &value in &func.ops[id].operands {
        let ty = func.ty(value);
        if matches!(ty, Type::Scalar(d) if d.is_int()) {
            out.extend(func.name_of(value).map(str::to_string));
        }
        for dim in ty.shape() {
            if let Dim::Expr(e) = dim {
                out.extend(e.symbols().iter().map(|s| s.to_string()));
            }
        }
    }
    out
}

pub fn verify_launch(func: &Func<Schedule>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let grid = op.attr("grid").and_then(Attr::as_exprs);
    let domain = op.attr("domain").and_then(Attr::as_extents);
    let lanes = op.attr("lanes").and_then(Attr::as_extents);
    if grid.is_some() && domain.is_some() {
        errors.structure("expected `grid` or `domain`, got both");
    }
    if domain.is_some() != lanes.is_some() {
        errors.structure("expected `domain` and `lanes` together, got one of them");
    }
    if let Some(axes) = grid.as_ref().map(Vec::len)
        && !(1..=3).contains(&axes)
    {
        errors.structure(format!("expected a grid of 1 to 3 axes, got {axes}"));
    }
    if let (Some(domain), Some(lanes)) = (&domain, &lanes)
        && (domain.len() != lanes.len() || !(1..=3).contains(&lanes.len()))
    {
        let (d, l) = (domain.len(), lanes.len());
        errors.structure(format!(
            "expected `domain` and `lanes` to have the same 1 to 3 axes, got {d} and {l}"
        ));
    }
    for lanes in lanes.iter().flatten() {
        if !matches!(lanes, DimExpr::Const(n) if *n > 0) {
            errors.structure(format!("expected a positive number of lanes, got {lanes}"));
        }
    }
    verify_writes(func, id, errors);
    let known = symbols(func, id);
    for symbol in grid.iter().chain(&domain).flatten().flat_map(|e| e.symbols()) {
        if !known.contains(&*symbol) {
            errors.push(
                Code::E_NAME,
                format!("expected a dimension or an integer of an argument, got `{symbol}`"),
            );
        }
    }
}
