//! The op table of Graph IR. Numbers are frozen.

use crate::Graph;
use crate::level::{infer_call, verify_call};
use tessera_ir::define_ops;

define_ops! {
    level Graph;
    /// Every op of Graph IR.
    pub enum GraphOp;
    aliases {}

    /// Runs a kernel. `privileges` has one word for each argument; the results are the new versions
    /// of the arguments it writes, in order, and the old versions may not be used again. `config`
    /// holds the values of the kernel's compile-time parameters.
    KernelCall = 0x01 "kernel_call" since "0.1" {
        operands: [],
        groups: [values: Any [0, usize::MAX]],
        attrs: [kernel: Ref required, privileges: Words required, config: Dict optional],
        regions: [],
        results: None, effects: ReadWrite, infer: Some(infer_call), verify: Some(verify_call),
        example: "%y1 = graph.kernel_call %x, %y {kernel = @k, privileges = [read, read_write], config = {B = 64}} : tensor<[n], f32>",
    }
    /// Ends the function and hands back values.
    Return = 0x02 "return" since "0.1" {
        operands: [],
        groups: [values: Any [0, usize::MAX]],
        attrs: [], regions: [],
        results: Some(0), effects: Terminator, infer: None, verify: None,
        example: "graph.return %y",
    }
}
