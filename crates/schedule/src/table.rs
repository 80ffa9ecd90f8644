//! The op table of Schedule IR. Numbers are frozen.

use crate::Schedule;
use crate::level::verify_launch;
use tessera_ir::define_ops;

define_ops! {
    level Schedule;
    /// Every op of Schedule IR.
    pub enum SchedOp;
    aliases {}

    /// Launches a kernel on its arguments. A group kernel has `grid`, the number of groups along
    /// each axis; a lane kernel has `domain`, the number of lanes, and `lanes`, how many form a
    /// group. With neither, the caller gives the grid. `config` holds the compile-time values, and `chosen`
    /// what the compiler found where they leave it open: handed back as part of `config`, it is pinned.
    Launch = 0x01 "launch" since "0.1" {
        operands: [],
        groups: [values: Any [0, usize::MAX]],
        attrs: [kernel: Ref required, grid: Exprs optional, domain: Expr optional, lanes: Int optional,
                backend: Word required, config: Dict optional, chosen: Dict optional],
        regions: [],
        results: Some(0), effects: ReadWrite, infer: None, verify: Some(verify_launch),
        example: "sched.launch %x, %y {kernel = @k, grid = [cdiv(n, 64)], backend = interp, config = {B = 64}}",
    }
    /// Ends the plan.
    Return = 0x02 "return" since "0.1" {
        operands: [], groups: [], attrs: [], regions: [],
        results: Some(0), effects: Terminator, infer: None, verify: None,
        example: "sched.return",
    }
}
