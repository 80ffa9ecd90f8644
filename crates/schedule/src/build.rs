//! Builds Schedule IR from plain data.

use crate::{SchedOp, Schedule};
use tessera_diag::Loc;
use tessera_ir::{Attr, Attrs, Builder, DimExpr, Func, Module, OpSpec, Privilege, Type};

/// The module of one launch. `grid` is for group kernels, `domain` and `lanes` for lane kernels;
/// what is `None` or empty is left out of the text.
#[allow(clippy::too_many_arguments)] // The attributes of a launch, one by one.
pub fn launch_module(
    name: &str,
    params: &[(&str, Type, Privilege)],
    grid: Option<Vec<DimExpr>>,
    domain: Option<Vec<DimExpr>>,
    lanes: Option<&[i64]>,
    backend: &str,
    config: Attrs,
    chosen: Attrs,
) -> Module<Schedule> {
    let mut func = Func::<Schedule>::new(name);
    let body = func.body;
    let mut values = Vec::new();
    for (param, ty, privilege) in params {
        let ty = match ty {
            Type::View { dims, elem, .. } | Type::Tensor { dims, elem } => {
                Type::View { dims: dims.clone(), elem: *elem, privilege: *privilege }
            }
            ty => ty.clone(),
        };
        values.push(func.add_arg(body, ty, Some(param)));
    }
    let mut launch = OpSpec::new(SchedOp::Launch, &[])
        .group("values", &values)
        .attr("kernel", Attr::Ref(name.to_string()))
        .attr("backend", Attr::word(backend));
    if let Some(grid) = grid {
        launch = launch.attr("grid", Attr::exprs(grid));
    }
    if let Some(domain) = domain {
        launch = launch.attr("domain", Attr::extents(domain));
    }
    if let Some(lanes) = lanes {
        launch = launch.attr("lanes", Attr::extents(lanes.iter().map(|&n| DimExpr::Const(n))));
    }
    if !config.is_empty() {
        launch = launch.attr("config", Attr::Dict(config));
    }
    if !chosen.is_empty() {
        launch = launch.attr("chosen", Attr::Dict(chosen));
    }
    let mut b = Builder::at_end(&mut func, body, Loc::unknown());
    b.op(launch).expect("the op has no results");
    b.op(OpSpec::new(SchedOp::Return, &[])).expect("the op has no results");
    let mut module = Module::new(name);
    module.funcs.push(func);
    module
}
