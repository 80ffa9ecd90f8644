//! *Same* and *varying*: along which axes of the mesh the values of a rank's program differ between ranks.
//!
//! A block that the mesh splits varies along the axes that split it; a copy is same. An op's results
//! vary along every axis that an operand varies along; collectives take axes away (`all_reduce`,
//! `all_gather`, `from_rank`) or add them (`own`, `reduce_scatter`, `axis_index`, …). A same value that
//! is used with a varying one is taken as each rank's own. Control flow is a fixed point: what a branch
//! gives varies where its condition does, and so does what a loop carries.
//!
//! [`check`] refuses programs that could not run or would not mean one value: collectives that not all
//! ranks of a group reach, and results that vary where the placement says copies. [`explicit`] writes
//! every change from same to varying as an op `vary`, after which the operands of every op have one
//! state. Derivatives need that: the transpose of `vary` is `all_reduce`.

use crate::ops::collective::{Manual, MeshAxes};
use crate::walk::home;
use crate::{GraphFunc, GraphModule, GraphOp, Refusal};
use std::collections::BTreeMap;
use tessera_diag::{Code, Diagnostic};
use tessera_ir::{Attr, BlockId, Op, OpId, OpSpec, Value, ValueData, ValueDef};
use tessera_support::SideTable;

/// A set of axes of a mesh, by place.
pub type Axes = u64;

/// The axes of a placement of each dim.
fn axes_of(mesh: &MeshAxes, split: &[Vec<String>]) -> Axes {
    split.iter().flatten().filter_map(|n| mesh.place(n)).fold(0, |all, i| all | 1 << i)
}

fn named(mesh: &MeshAxes, axes: Axes) -> String {
    let held = mesh.names.iter().enumerate().filter(|(i, _)| axes >> i & 1 == 1);
    held.map(|(_, n)| format!("`{n}`")).collect::<Vec<_>>().join(" and ")
}

/// Whether an op synchronises ranks.
pub fn is_collective(code: GraphOp) -> bool {
    tessera_ir::Opcode::<crate::Graph>::info(code).effects == tessera_ir::Effects::Collective
}

/// Whether an op may stand in programs of one rank only.
#[deny(clippy::wildcard_enum_match_arm)]
pub fn is_of_a_rank(code: GraphOp) -> bool {
    use GraphOp::*;
    match code {
        Vary | Own | AllReduce | AllGather | ReduceScatter | AllToAll | Permute | FromRank
        | AxisIndex => true,
        KernelCall | Return | Yield | Cond | While | Loop | Call | Composite | Const | Iota
        | Select | Cast | Bitcast | Dim | StopGradient | OptBarrier | Broadcast | Reshape
        | Transpose | Slice | Pad | Concat | Reverse | DynamicSlice | DynamicUpdateSlice
        | Gather | Scatter | Reduce | ArgReduce | Scan | Sort | Dot | Conv | WindowReduce
        | WindowArgReduce | Philox | Shard | Manual | Ew(_) => false,
    }
}

/// The axes of the collectives in a region and in the functions it calls.
fn collectives(flow: &Flow<'_>, func: &GraphFunc, region: BlockId) -> Axes {
    let mut axes = 0;
    func.walk_block(region, &mut |id| {
        let op = &func.ops[id];
        if is_collective(op.code) {
            axes |= flow.axes(op);
        } else if op.code == GraphOp::Call {
            let callee = op.attr("callee").and_then(Attr::as_ref_name);
            if let Some(callee) = callee.and_then(|n| flow.module?.func(n)) {
                axes |= collectives(flow, callee, callee.body);
            }
        }
    });
    axes
}

/// What is wrong, at which op, and what to write instead.
pub struct Finding {
    pub op: OpId,
    pub refusal: Refusal,
    pub help: &'static str,
}

const OF_MESH: &str = "use the axes of the mesh that the program runs on";

/// The analysis of one function.
struct Flow<'a> {
    module: Option<&'a GraphModule>,
    func: &'a GraphFunc,
    mesh: &'a MeshAxes,
    of: SideTable<Value, Axes>,
    found: Vec<Finding>,
    /// Operands that have to vary along more axes, by op and place.
    wanted: Vec<(OpId, usize, Axes)>,
    /// A condition varies: ranks run different ops.
    diverges: bool,
    /// Errors and wishes are noted: the states are final.
    last: bool,
}

impl<'a> Flow<'a> {
    fn new(module: Option<&'a GraphModule>, func: &'a GraphFunc, mesh: &'a MeshAxes) -> Self {
        let (found, wanted) = (Vec::new(), Vec::new());
        Self {
            module,
            func,
            mesh,
            of: SideTable::new(0),
            found,
            wanted,
            diverges: false,
            last: true,
        }
    }

    fn states(&self, values: &[Value]) -> Vec<Axes> {
        values.iter().map(|&v| self.of[v]).collect()
    }

    fn set(&mut self, values: &[Value], states: &[Axes]) {
        for (&v, &s) in values.iter().zip(states) {
            self.of.set(v, s);
        }
    }

    fn refuse(&mut self, op: OpId, code: Code, message: String, help: &'static str) {
        if self.last {
            self.found.push(Finding { op, refusal: Refusal { code, message }, help });
        }
    }

    /// Notes that an operand is taken as varying along `axes`.
    fn want(&mut self, id: OpId, place: usize, axes: Axes) {
        let more = axes & !self.of[self.func.ops[id].operands[place]];
        if self.last && more != 0 {
            self.wanted.push((id, place, more));
        }
    }

    fn want_all(&mut self, id: OpId, axes: Axes) {
        for place in 0..self.func.ops[id].operands.len() {
            self.want(id, place, axes);
        }
    }

    fn axes(&self, op: &Op<crate::Graph>) -> Axes {
        let names = op.attr("axes").and_then(Attr::as_list).unwrap_or_default();
        let places = names.iter().filter_map(|n| self.mesh.place(n.as_word()?));
        places.fold(0, |all, i| all | 1 << i)
    }

    /// Runs a part of the analysis without notes.
    fn quietly<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let last = std::mem::replace(&mut self.last, false);
        let made = work(self);
        self.last = last;
        made
    }

    /// The states of what a block hands on.
    fn block(&mut self, block: BlockId) -> Vec<Axes> {
        let func = self.func;
        for &id in &func.blocks[block].ops {
            let op = &func.ops[id];
            if op.is_terminator() {
                return self.states(&op.operands);
            }
            let states = self.op(id);
            self.set(&op.results, &states);
        }
        Vec::new()
    }

    /// What a region hands on, taken as varying along these axes.
    fn hand_on(&mut self, region: BlockId, states: &[Axes]) {
        if let Some(end) = self.func.terminator(region) {
            for (place, &axes) in states.iter().enumerate() {
                if place < self.func.ops[end].operands.len() {
                    self.want(end, place, axes);
                }
            }
        }
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn op(&mut self, id: OpId) -> Vec<Axes> {
        use GraphOp::*;
        let func = self.func;
        let op = &func.ops[id];
        let axes = self.axes(op);
        if is_of_a_rank(op.code) {
            self.check_axes(id);
        }
        let operand = || op.operands.first().map_or(0, |&v| self.of[v]);
        let all = |s: Axes| vec![s; op.results.len()];
        match op.code {
            Vary | Own => {
                let have = operand();
                let twice = have & axes;
                if twice != 0 {
                    let message = format!(
                        "expected a value that is the same along {}, got one that varies",
                        named(self.mesh, twice)
                    );
                    let help = "a block is each rank's own already; `all_gather` joins blocks";
                    self.refuse(id, Code::E_PLACEMENT, message, help);
                }
                all(have | axes)
            }
            AllReduce | AllGather | FromRank => {
                self.want(id, 0, axes);
                all(operand_state(self, op) & !axes)
            }
            ReduceScatter | AllToAll | Permute => {
                self.want(id, 0, axes);
                all(operand_state(self, op) | axes)
            }
            AxisIndex => all(axes),
            // Each value by itself.
            OptBarrier => self.states(&op.operands),
            Cond => self.cond(id),
            While => self.while_(id),
            Loop => self.loop_(id),
            Call => self.call(id),
            Manual => {
                let message = "expected no `manual` in the program of a rank".to_string();
                let help = "name all axes in one mesh, and use them in one program";
                self.refuse(id, Code::E_PLACEMENT, message, help);
                all(0)
            }
            KernelCall | Composite | Return | Yield | Const | Iota | Select | Cast | Bitcast
            | Dim | StopGradient | Broadcast | Reshape | Transpose | Slice | Pad | Concat
            | Reverse | DynamicSlice | DynamicUpdateSlice | Gather | Scatter | Reduce
            | ArgReduce | Scan | Sort | Dot | Conv | WindowReduce | WindowArgReduce | Philox
            | Shard | Ew(_) => {
                let joined = self.states(&op.operands).into_iter().fold(0, |a, b| a | b);
                self.want_all(id, joined);
                all(joined)
            }
        }
    }

    /// The axes of an op are axes of the mesh, with its extents.
    fn check_axes(&mut self, id: OpId) {
        let Ok(given) = MeshAxes::of(&self.func.ops[id].attrs) else { return };
        for (name, size) in given.names.iter().zip(&given.sizes) {
            let text = self.mesh.text();
            match self.mesh.place(name) {
                None => {
                    let message = format!("expected an axis of the mesh ({text}), got `{name}`");
                    self.refuse(id, Code::E_MESH, message, OF_MESH);
                }
                Some(at) if self.mesh.sizes[at] != *size => {
                    let message = format!("expected the mesh ({text}), got `{name}` of {size}");
                    self.refuse(id, Code::E_MESH, message, OF_MESH);
                }
                Some(_) => {}
            }
        }
    }

    /// A region that not all ranks run may hold no collective of theirs with the others.
    fn check_collectives(&mut self, id: OpId, condition: Axes, regions: &[BlockId]) {
        self.diverges |= condition != 0;
        for &region in regions {
            let met = collectives(self, self.func, region) & condition;
            if met != 0 {
                let name = tessera_ir::Opcode::<crate::Graph>::mnemonic(self.func.ops[id].code);
                let axes = named(self.mesh, met);
                let message = format!(
                    "expected a condition of `{name}` that is the same along {axes}, along which its \
                     body holds a collective: ranks that do not run it would never arrive"
                );
                let help = "combine the condition over the ranks first, with `all_reduce` and `max`, or move \
                            the collective out of the body";
                self.refuse(id, Code::E_PLACEMENT, message, help);
            }
        }
    }

    fn cond(&mut self, id: OpId) -> Vec<Axes> {
        let op = &self.func.ops[id];
        let regions = op.regions.clone();
        let pred = op.operands.first().map_or(0, |&v| self.of[v]);
        let mut states = vec![pred; op.results.len()];
        for &region in &regions {
            let out = self.block(region);
            join(&mut states, &out);
        }
        self.check_collectives(id, pred, &regions);
        for &region in &regions {
            self.hand_on(region, &states);
        }
        states
    }

    fn while_(&mut self, id: OpId) -> Vec<Axes> {
        let op = &self.func.ops[id];
        let regions = op.regions.clone();
        let mut carried = self.states(op.group("init"));
        let run = |flow: &mut Self, carried: &[Axes]| {
            let func = flow.func;
            let mut pred = 0;
            let mut next = Vec::new();
            for (place, &region) in regions.iter().enumerate() {
                flow.set(&func.blocks[region].args, carried);
                let out = flow.block(region);
                match place {
                    0 => pred = out.first().copied().unwrap_or(0),
                    _ => next = out,
                }
            }
            (pred, next)
        };
        loop {
            let before = carried.clone();
            let (pred, next) = self.quietly(|flow| run(flow, &carried));
            join(&mut carried, &next);
            carried.iter_mut().for_each(|s| *s |= pred);
            if carried == before {
                break;
            }
        }
        let (pred, _) = run(self, &carried);
        self.check_collectives(id, pred, &regions);
        for (place, &state) in carried.iter().enumerate() {
            self.want(id, place, state);
        }
        if let Some(&body) = regions.get(1) {
            self.hand_on(body, &carried);
        }
        carried
    }

    fn loop_(&mut self, id: OpId) -> Vec<Axes> {
        let op = &self.func.ops[id];
        let Some(&region) = op.regions.first() else { return Vec::new() };
        let mut carried = self.states(op.group("init"));
        let steps = self.states(op.group("xs"));
        let n = carried.len();
        let run = |flow: &mut Self, carried: &[Axes]| {
            let func = flow.func;
            let args = [&[0][..], carried, &steps].concat();
            flow.set(&func.blocks[region].args, &args);
            flow.block(region)
        };
        loop {
            let before = carried.clone();
            let out = self.quietly(|flow| run(flow, &carried));
            join(&mut carried, &out[..n.min(out.len())]);
            if carried == before {
                break;
            }
        }
        let out = run(self, &carried);
        for (place, &state) in carried.iter().enumerate() {
            self.want(id, place, state);
        }
        self.hand_on(region, &carried);
        [&carried[..], out.get(n..).unwrap_or_default()].concat()
    }

    fn call(&mut self, id: OpId) -> Vec<Axes> {
        let op = &self.func.ops[id];
        let states = self.states(&op.operands);
        let joined = states.iter().fold(0, |a, b| a | b);
        let callee = op.attr("callee").and_then(Attr::as_ref_name);
        let callee = callee.and_then(|n| self.module?.func(n));
        let (Some(callee), true) = (callee, is_transparent(op)) else {
            self.want_all(id, joined);
            let kept = callee.map(|c| inside(self, c, &vec![joined; states.len()]));
            return kept.map_or_else(|| vec![joined; op.results.len()], |(out, _)| out);
        };
        let (out, found) = inside(self, callee, &states);
        for found in found {
            self.refuse(id, found.refusal.code, found.refusal.message, found.help);
        }
        out
    }
}

/// A call without a rule of its own: it means what its callee does.
pub fn is_transparent(op: &Op<crate::Graph>) -> bool {
    !matches!(op.attr("kind").and_then(Attr::as_word), Some("custom_vjp" | "custom_jvp"))
}

/// The states that a callee returns, and what is wrong in it.
fn inside(flow: &mut Flow<'_>, callee: &GraphFunc, states: &[Axes]) -> (Vec<Axes>, Vec<Finding>) {
    let mut inner = Flow::new(flow.module, callee, flow.mesh);
    inner.last = flow.last;
    inner.set(callee.params(), states);
    let out = inner.block(callee.body);
    flow.diverges |= inner.diverges;
    let loc = |id: OpId| callee.ops[id].loc.line();
    let named = inner.found.into_iter().map(|found| {
        let message = match loc(found.op) {
            0 => found.refusal.message,
            line => format!("{} (in @{}, line {line})", found.refusal.message, callee.name),
        };
        Finding { refusal: Refusal { message, ..found.refusal }, ..found }
    });
    (out, named.collect())
}

fn operand_state(flow: &Flow<'_>, op: &Op<crate::Graph>) -> Axes {
    op.operands.first().map_or(0, |&v| flow.of[v])
}

fn join(states: &mut [Axes], more: &[Axes]) {
    states.iter_mut().zip(more).for_each(|(s, &m)| *s |= m);
}

/// What is wrong with the program of a rank; calls are followed where there is a module.
pub fn check(module: Option<&GraphModule>, func: &GraphFunc, id: OpId) -> Vec<Finding> {
    let op = &func.ops[id];
    let (Ok(manual), Some(&region)) = (Manual::of(&op.attrs), op.regions.first()) else {
        return Vec::new();
    };
    let mut flow = Flow::new(module, func, &manual.mesh);
    let states: Vec<_> = manual.ins.iter().map(|s| axes_of(&manual.mesh, s)).collect();
    flow.set(&func.blocks[region].args, &states);
    let out = flow.block(region);
    for (place, (&state, split)) in out.iter().zip(&manual.outs).enumerate() {
        let more = state & !axes_of(&manual.mesh, split);
        if more != 0 {
            let axes = named(&manual.mesh, more);
            let message = format!(
                "expected result {place} to be the same along {axes}, along which its placement says \
                 copies, got a value that varies"
            );
            let help = "combine it over the ranks with `all_reduce` or `all_gather`, or split a dim of \
                        the result over the axis";
            flow.refuse(id, Code::E_PLACEMENT, message, help);
        }
    }
    flow.found
}

/// Whether the ranks of a program run different ops: a condition in it varies.
pub fn diverges(module: &GraphModule, func: &GraphFunc, id: OpId) -> bool {
    let op = &func.ops[id];
    let (Ok(manual), Some(&region)) = (Manual::of(&op.attrs), op.regions.first()) else {
        return false;
    };
    let mut flow = Flow::new(Some(module), func, &manual.mesh);
    let states: Vec<_> = manual.ins.iter().map(|s| axes_of(&manual.mesh, s)).collect();
    flow.set(&func.blocks[region].args, &states);
    flow.block(region);
    flow.diverges
}

/// [`check`] of every `manual` of a module, calls included, and of collectives that no rank runs.
pub fn check_module(module: &GraphModule) -> Vec<Diagnostic> {
    let mut out = Vec::new();
    for func in &module.funcs {
        for id in func.walk().into_iter().filter(|&id| func.ops[id].code == GraphOp::Manual) {
            let found = check(Some(module), func, id).into_iter();
            out.extend(found.map(|f| f.refusal.at(func.ops[f.op].loc.clone()).help(f.help)));
        }
    }
    out
}

/// Whether calls decide about the states of a region.
pub fn has_calls(func: &GraphFunc, region: BlockId) -> bool {
    let mut any = false;
    func.walk_block(region, &mut |id| any |= func.ops[id].code == GraphOp::Call);
    any
}

/// The state of each result of a function of the blocks of a `manual`.
pub fn of_blocks(module: &GraphModule, func: &GraphFunc, manual: &Manual) -> Vec<Axes> {
    let mut flow = Flow::new(Some(module), func, &manual.mesh);
    let states: Vec<_> = manual.ins.iter().map(|s| axes_of(&manual.mesh, s)).collect();
    flow.set(func.params(), &states);
    flow.block(func.body)
}

/// Writes every change from same to varying in the programs of ranks as `vary`. Functions that they call
/// become one function for each combination of states. `true` if there are such programs.
pub fn explicit(module: &mut GraphModule) -> bool {
    let mut any = false;
    for at in 0..module.funcs.len() {
        let manuals = |f: &GraphFunc| -> Vec<OpId> {
            f.walk().into_iter().filter(|&id| f.ops[id].code == GraphOp::Manual).collect()
        };
        for id in manuals(&module.funcs[at]) {
            let source = module.funcs[at].clone();
            let op = &source.ops[id];
            let Ok(manual) = Manual::of(&op.attrs) else { continue };
            any = true;
            let region = op.regions[0];
            let mut flow = Flow::new(Some(module), &source, &manual.mesh);
            let states = |all: &[Vec<Vec<String>>]| -> Vec<Axes> {
                all.iter().map(|s| axes_of(&manual.mesh, s)).collect()
            };
            flow.set(&source.blocks[region].args, &states(&manual.ins));
            flow.block(region);
            flow.hand_on(region, &states(&manual.outs));
            let (wanted, of) = (flow.wanted, flow.of);
            let mut inner = Vec::new();
            source.walk_block(region, &mut |id| inner.push(id));
            let mut made = BTreeMap::new();
            let mesh = &manual.mesh;
            let new =
                Explicit { module, mesh, made: &mut made }.rewrite(&source, wanted, &of, &inner);
            module.funcs[at] = new;
        }
    }
    any
}

struct Explicit<'a> {
    module: &'a mut GraphModule,
    mesh: &'a MeshAxes,
    /// Functions by name and states of parameters.
    made: &'a mut BTreeMap<(String, Vec<Axes>), String>,
}

impl Explicit<'_> {
    /// The function with what is wanted made to vary, and its calls among `ops` of functions for the
    /// states of their arguments.
    fn rewrite(
        &mut self,
        source: &GraphFunc,
        wanted: Vec<(OpId, usize, Axes)>,
        of: &SideTable<Value, Axes>,
        ops: &[OpId],
    ) -> GraphFunc {
        let mut func = source.clone();
        let mut varied: BTreeMap<(Value, Axes), Value> = BTreeMap::new();
        for (id, place, axes) in wanted {
            let value = source.ops[id].operands[place];
            let new =
                *varied.entry((value, axes)).or_insert_with(|| self.vary(&mut func, value, axes));
            func.ops[id].operands[place] = new;
        }
        for &id in ops.iter().filter(|&&id| source.ops[id].code == GraphOp::Call) {
            let op = &source.ops[id];
            let callee = op.attr("callee").and_then(Attr::as_ref_name);
            let Some(callee) = callee.and_then(|n| self.module.func(n)).cloned() else { continue };
            if !is_transparent(op) {
                continue;
            }
            let given: Vec<_> = op.operands.iter().map(|&v| of[v]).collect();
            let name = self.callee(&callee, &given);
            func.ops[id].attrs.set("callee", Attr::Ref(name));
        }
        func
    }

    /// A function for parameters of these states.
    fn callee(&mut self, callee: &GraphFunc, states: &[Axes]) -> String {
        let key = (callee.name.clone(), states.to_vec());
        if let Some(name) = self.made.get(&key) {
            return name.clone();
        }
        let mut flow = Flow::new(Some(self.module), callee, self.mesh);
        flow.set(callee.params(), states);
        flow.block(callee.body);
        let (wanted, of) = (flow.wanted, flow.of);
        let mut new = self.rewrite(callee, wanted, &of, &callee.walk());
        if new.to_string() == callee.to_string() {
            self.made.insert(key, callee.name.clone());
            return callee.name.clone();
        }
        new.name = crate::walk::fresh_name(self.module, &format!("{}.varying", callee.name));
        let name = new.name.clone();
        self.module.funcs.push(new);
        self.made.insert(key, name.clone());
        name
    }

    /// `vary` right after the value is made, so that one serves all uses.
    fn vary(&self, func: &mut GraphFunc, value: Value, axes: Axes) -> Value {
        let block = home(func, value);
        let (place, loc) = match func.values[value].def {
            ValueDef::Result(op, _) => {
                let at = func.blocks[block].ops.iter().position(|&o| o == op);
                (at.map_or(0, |i| i + 1), func.ops[op].loc.clone())
            }
            ValueDef::Arg(..) => (0, func.loc.clone()),
        };
        let along = self.mesh.pick((0..self.mesh.names.len()).filter(|i| axes >> i & 1 == 1));
        let ty = func.ty(value).clone();
        let mut spec = OpSpec::new(GraphOp::Vary, &[value]).result(ty.clone());
        spec.attrs = along.attrs();
        let id = func.insert(block, place, spec, loc).expect("the operand is of this function");
        match func.ops[id].results.first() {
            Some(&new) => new,
            None => func.values.push(ValueData { ty, name: None, def: ValueDef::Result(id, 0) }),
        }
    }
}
