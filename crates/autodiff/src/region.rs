//! Outlining: regions of loops and branches become functions, are transformed like any function,
//! and are put back.

use crate::emit::Emit;
use tessera_diag::Diagnostic;
use tessera_graph::walk::captures;
use tessera_graph::{Copier, GraphFunc, GraphOp};
use tessera_ir::{BlockId, OpId, OpSpec, Value};

/// A region taken out: the function takes the arguments of the region, then `captures`, values of
/// the function around it.
#[derive(Clone)]
pub struct Outlined {
    pub func: GraphFunc,
    pub captures: Vec<Value>,
}

pub fn outline(source: &GraphFunc, region: BlockId) -> Outlined {
    let outside = captures(source, region);
    let mut func = GraphFunc::new(format!("{}.region", source.name));
    func.loc = source.loc.clone();
    let mut copier = Copier::new(source);
    let body = func.body;
    for &v in source.blocks[region].args.iter().chain(&outside) {
        let data = &source.values[v];
        let new = func.add_arg(body, data.ty.clone(), data.name.as_deref());
        copier.set(v, new);
    }
    let yields = copier.copy_block(region, &mut func, body);
    finish(&mut func, &yields);
    Outlined { func, captures: outside }
}

/// Ends a function that is known to be well formed.
pub fn finish(func: &mut GraphFunc, results: &[Value]) {
    let (body, loc) = (func.body, func.loc.clone());
    let place = func.blocks[body].ops.len();
    let spec = OpSpec::new(GraphOp::Return, &[]).group("values", results);
    func.insert(body, place, spec, loc).expect("a return has no results to infer");
}

/// Every region of an op, taken out.
pub fn outline_all(source: &GraphFunc, id: OpId) -> Vec<Outlined> {
    source.ops[id].regions.iter().map(|&region| outline(source, region)).collect()
}

impl Emit {
    /// Puts the ops of a function at the cursor, with these values for its parameters. Symbols and
    /// places stay: the function was taken out of this one.
    pub fn put_back(&mut self, func: &GraphFunc, args: &[Value]) -> Result<Vec<Value>, Diagnostic> {
        let mut copier = Copier::new(func);
        for (&param, &arg) in func.params().iter().zip(args) {
            copier.set(param, arg);
        }
        for &id in &func.blocks[func.body].ops {
            if func.ops[id].is_terminator() {
                let handed = func.ops[id].operands.iter();
                return Ok(handed.filter_map(|&v| copier.get(v)).collect());
            }
            self.b.copy_op(&mut copier, id);
        }
        Ok(Vec::new())
    }
}
