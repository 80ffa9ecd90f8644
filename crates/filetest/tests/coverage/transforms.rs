//! Derivatives and batching: each is applied, and what comes of it is the answer.

use super::answer::Answer;
use tessera_autodiff::{KernelDef, KernelSet, is_float, jvp_with, vjp_with, vmap};
use tessera_diag::Diagnostics;
use tessera_graph::{GraphFunc, GraphModule, GraphOp, verify_module};
use tessera_ir::{Attr, Dim, OpId, Privilege, Type, Value};
use tessera_numerics::DType;
use tessera_tile::TileFunc;

#[derive(Clone)]
pub struct Program {
    pub module: GraphModule,
    pub kernels: KernelSet,
    /// The function to transform.
    pub name: String,
}

impl Program {
    /// A function that calls a kernel; arrays that it only writes are zeros before.
    pub fn calling(kernel: &TileFunc) -> Self {
        let (mut params, mut body, mut args) = (Vec::new(), String::new(), Vec::new());
        let (mut words, mut results, mut types) = (Vec::new(), Vec::new(), Vec::new());
        for &param in kernel.params() {
            let name = format!("%{}", kernel.name_of(param).unwrap_or("p"));
            let (ty, how) = match kernel.ty(param) {
                Type::View { dims, elem, privilege } => {
                    let dims: Vec<String> = dims.iter().map(Dim::to_string).collect();
                    (format!("tensor<[{}], {elem}>", dims.join(", ")), *privilege)
                }
                number => (format!("tensor<[], {}>", number.dtype()), Privilege::Read),
            };
            if how == Privilege::Write {
                let zero = match kernel.ty(param).dtype() {
                    DType::Bool => "false",
                    dtype if dtype.is_float() => "0.0",
                    _ => "0",
                };
                body += &format!("  {name} = graph.const {{value = {zero}}} : {ty}\n");
            } else {
                params.push(format!("{name}: {ty}"));
            }
            args.push(name.clone());
            words.push(how.name());
            if how.writes() {
                results.push(format!("{name}.1"));
                types.push(ty);
            }
        }
        let (results, types) = (results.join(", "), types.join(", "));
        let text = format!(
            "func @f({}) {{\n{body}  {results} = graph.kernel_call {} {{kernel = @k, privileges = [{}]}} : {types}\n  graph.return {results}\n}}",
            params.join(", "),
            args.join(", "),
            words.join(", "),
        );
        let mut kernels = KernelSet::default();
        let args = (0..kernel.params().len()).collect();
        kernels.insert(
            "k",
            KernelDef { func: kernel.clone(), args, derived: false, placed: false, settled: false },
        );
        Self { module: super::graph::parse(&text), kernels, name: "f".to_string() }
    }

    fn func(&self, name: &str) -> &GraphFunc {
        self.module.func(name).expect("the function is in its module")
    }

    fn floats(&self) -> Vec<usize> {
        let func = self.func(&self.name);
        let params = func.params();
        (0..params.len()).filter(|&i| is_float(func.ty(params[i]))).collect()
    }

    /// Whether a derivative has something to be of, and something to be by.
    pub fn has_floats(&self) -> bool {
        let func = self.func(&self.name);
        let results = tessera_graph::walk::returned(func);
        !self.floats().is_empty() && results.iter().any(|&v| is_float(func.ty(v)))
    }

    /// Whether an op takes one of the values; a call of a kernel that ignores its argument does not.
    fn uses(&self, func: &GraphFunc, values: &[Value]) -> bool {
        let takes = |id: OpId| {
            let op = &func.ops[id];
            let name = op.attr("kernel").and_then(Attr::as_ref_name);
            let kernel = name.and_then(|name| self.kernels.get(name));
            let ignores = |place: usize| {
                kernel.is_some_and(|def| {
                    let param = def.args.iter().position(|&arg| arg == place);
                    let param = param.map(|at| def.func.params()[at]);
                    let ops = def.func.walk().into_iter().map(|id| &def.func.ops[id]);
                    !ops.flat_map(|op| &op.operands).any(|v| Some(*v) == param)
                })
            };
            let mut operands = op.operands.iter().enumerate();
            operands.any(|(place, v)| values.contains(v) && !ignores(place))
        };
        func.walk().into_iter().any(takes)
    }

    /// What was made holds by the verifier of its level; the last parameters of the function, which
    /// carry the derivative, may go unused.
    fn judge(&self, made: &str, derivatives: usize) -> Result<Answer, Diagnostics> {
        verify_module(&self.module)?;
        let func = self.func(made);
        let params = func.params();
        let carry = &params[params.len() - derivatives..];
        Ok(if self.uses(func, carry) { Answer::Yes } else { Answer::Only("zero") })
    }

    pub fn jvp(&self) -> Result<Answer, Diagnostics> {
        let (mut this, wrt) = (self.clone(), self.floats());
        let made = jvp_with(&mut this.module, &mut this.kernels, &self.name, &wrt)?;
        this.judge(&made.func, wrt.len())
    }

    pub fn vjp(&self) -> Result<Answer, Diagnostics> {
        let (mut this, wrt) = (self.clone(), self.floats());
        let made = vjp_with(&mut this.module, &mut this.kernels, &self.name, &wrt)?;
        this.judge(&made.pullback, made.cotangents.iter().filter(|&&c| c).count())
    }

    /// Whether there is something to batch.
    pub fn has_params(&self) -> bool {
        !self.func(&self.name).params().is_empty()
    }

    pub fn vmap(&self) -> Result<Answer, Diagnostics> {
        let mut this = self.clone();
        let axes = vec![Some(0); self.func(&self.name).params().len()];
        let made = vmap(&mut this.module, &self.name, &axes, &[], &Dim::Static(2))?;
        verify_module(&this.module)?;
        let loops = |func: &GraphFunc| {
            func.walk().into_iter().filter(|&id| func.ops[id].code == GraphOp::Loop).count()
        };
        let more = loops(this.func(&made.func)) > loops(self.func(&self.name));
        Ok(if more { Answer::Only("loop") } else { Answer::Yes })
    }
}
