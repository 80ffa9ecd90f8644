//! Making Graph IR from plain data.

use crate::{Graph, GraphOp};
use tessera_diag::Loc;
use tessera_ir::{Attr, Attrs, Builder, Func, Module, OpSpec, Privilege, Type};

/// The module of one kernel called on its parameters. A parameter's type may be the view that the
/// kernel sees; here it is the tensor behind it. `config` is left out where it is empty.
pub fn kernel_call_module(
    name: &str,
    params: &[(&str, Type, Privilege)],
    config: Attrs,
) -> Module<Graph> {
    let mut func = Func::<Graph>::new(name);
    let body = func.body;
    let mut values = Vec::new();
    let mut written = Vec::new();
    for (param, ty, privilege) in params {
        let ty = match ty {
            Type::View { dims, elem, .. } => Type::Tensor { dims: dims.clone(), elem: *elem },
            ty => ty.clone(),
        };
        if privilege.writes() {
            written.push((*param, ty.clone()));
        }
        values.push(func.add_arg(body, ty, Some(param)));
    }
    let mut b = Builder::at_end(&mut func, body, Loc::unknown());
    let mut call = OpSpec::new(GraphOp::KernelCall, &[])
        .group("values", &values)
        .attr("kernel", Attr::Ref(name.to_string()))
        .attr("privileges", Attr::words(params.iter().map(|(_, _, p)| p.name())))
        .results(written.iter().map(|(_, ty)| ty.clone()).collect());
    if !config.is_empty() {
        call = call.attr("config", Attr::Dict(config));
    }
    let call = b.op(call).expect("the result types are given");
    let results = b.func.ops[call].results.clone();
    for (&result, (param, _)) in results.iter().zip(&written) {
        b.name(result, param);
    }
    b.op(OpSpec::new(GraphOp::Return, &[]).group("values", &results))
        .expect("the op has no results");
    let mut module = Module::new(name);
    module.funcs.push(func);
    module
}
