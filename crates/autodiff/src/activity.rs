//! Activity analysis: which values carry tangents, and which need cotangents. In forward mode a
//! float is *active* where it depends on an argument with a tangent; in reverse mode it is *wanted*
//! where a result with a cotangent depends on it. Loops are analysed to a fixed point. Nothing is
//! emitted.

use crate::is_float;
use crate::region::{Outlined, outline_all};
use crate::rules::differentiable;
use std::collections::BTreeMap;
use tessera_graph::walk::{called, returned};
use tessera_graph::{Graph, GraphFunc, GraphModule, GraphOp};
use tessera_ir::{Attr, Op, OpId, Value};
use tessera_support::SideTable;

/// An op with regions: each as a function, and the activity in it.
pub struct RegionActivity {
    pub bodies: Vec<Outlined>,
    /// For each body, which parameters are active.
    pub active: Vec<Vec<bool>>,
    /// For each body, which parameters need a cotangent.
    pub wanted: Vec<Vec<bool>>,
    /// For each body, which results have a cotangent.
    pub cotangents: Vec<Vec<bool>>,
}

pub struct Activity {
    pub active: SideTable<Value, bool>,
    pub wanted: SideTable<Value, bool>,
    pub plans: BTreeMap<OpId, RegionActivity>,
}

/// The kind of a call; `jit` where it does not say. A composite has the kind of its rule for reverse
/// mode.
pub fn call_kind(op: &Op<Graph>) -> &str {
    let has = |name: &str| op.code == GraphOp::Composite && op.attr(name).is_some();
    match op.attr("kind").and_then(Attr::as_word) {
        None if has("fwd") => "custom_vjp",
        None if has("jvp") => "custom_jvp",
        kind => kind.unwrap_or("jit"),
    }
}

/// The same for forward mode.
pub fn forward_kind(op: &Op<Graph>) -> &str {
    let composite = op.code == GraphOp::Composite;
    if composite && op.attr("jvp").is_some() { "custom_jvp" } else { call_kind(op) }
}

pub fn callee_name<'a>(op: &'a Op<Graph>, name: &str) -> &'a str {
    op.attr(name).and_then(Attr::as_ref_name).unwrap_or_default()
}

/// The function that says what a call means, for transforms that the call has no rule for.
pub fn meaning(op: &Op<Graph>) -> &str {
    match op.attr("plain").is_some() {
        true => callee_name(op, "plain"),
        false => called(op).unwrap_or_default(),
    }
}

/// Whether a call with a rule says in other ops what it means, so that the rule need not be taken.
pub fn is_decomposable(op: &Op<Graph>) -> bool {
    op.code == GraphOp::Composite || op.attr("plain").is_some()
}

/// The arguments of a call with a rule of its own that have tangents and cotangents: floats that
/// are not listed in `nondiff`.
pub fn own_rule_args(func: &GraphFunc, op: &Op<Graph>) -> Vec<bool> {
    let nondiff = op.attr("nondiff").and_then(Attr::as_ints).unwrap_or_default();
    let takes = |(i, &v): (usize, &Value)| is_float(func.ty(v)) && !nondiff.contains(&(i as i64));
    op.operands.iter().enumerate().map(takes).collect()
}

fn and(a: &[bool], b: &[bool]) -> Vec<bool> {
    a.iter().zip(b).map(|(x, y)| *x && *y).collect()
}

impl Activity {
    /// What is active where these parameters are.
    pub fn active(module: &GraphModule, func: &GraphFunc, params: &[bool]) -> Activity {
        let mut flow = Activity {
            active: SideTable::new(false),
            wanted: SideTable::new(false),
            plans: BTreeMap::new(),
        };
        for (&param, &active) in func.params().iter().zip(params) {
            flow.active.set(param, active && is_float(func.ty(param)));
        }
        for &id in &func.blocks[func.body].ops {
            flow.forward(module, func, id);
        }
        flow
    }

    pub fn of(&self, values: &[Value]) -> Vec<bool> {
        values.iter().map(|&v| self.active[v]).collect()
    }

    /// The kind of a call for derivatives: where a value is active that its custom rule does not
    /// cover, and the call has a plain definition, the rule is not used.
    pub fn way<'o>(&self, func: &GraphFunc, op: &'o Op<Graph>) -> &'o str {
        let kind = call_kind(op);
        if !matches!(kind, "custom_vjp" | "custom_jvp") || !is_decomposable(op) {
            return kind;
        }
        let takes = own_rule_args(func, op);
        let more = op.operands.iter().zip(takes).any(|(&v, takes)| self.active[v] && !takes);
        if more { "jit" } else { kind }
    }

    pub fn requested(&self, values: &[Value]) -> Vec<bool> {
        values.iter().map(|&v| self.wanted[v]).collect()
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn forward(&mut self, module: &GraphModule, func: &GraphFunc, id: OpId) {
        use GraphOp::*;
        let op = &func.ops[id];
        let results: Vec<bool> = match op.code {
            Loop => {
                let bodies = outline_all(func, id);
                let (init, xs) = (self.of(op.group("init")), self.of(op.group("xs")));
                let outside = self.of(&bodies[0].captures);
                let mut carried = init.clone();
                let stacked = loop {
                    let params = [&[false][..], &carried, &xs, &outside].concat();
                    let out = Activity::active(module, &bodies[0].func, &params)
                        .of(returned(&bodies[0].func));
                    if !grow(&mut carried, &out) {
                        self.plan(id, bodies, vec![params]);
                        break out[carried.len()..].to_vec();
                    }
                };
                [carried, stacked].concat()
            }
            While => {
                let bodies = outline_all(func, id);
                let mut carried = self.of(op.group("init"));
                let outside: Vec<_> = bodies.iter().map(|b| self.of(&b.captures)).collect();
                loop {
                    let params: Vec<_> =
                        outside.iter().map(|o| [&carried[..], o].concat()).collect();
                    let out = Activity::active(module, &bodies[1].func, &params[1])
                        .of(returned(&bodies[1].func));
                    if !grow(&mut carried, &out) {
                        self.plan(id, bodies, params);
                        break;
                    }
                }
                carried
            }
            Cond => {
                let bodies = outline_all(func, id);
                let params: Vec<_> = bodies.iter().map(|b| self.of(&b.captures)).collect();
                let mut out = vec![false; op.results.len()];
                for (body, params) in bodies.iter().zip(&params) {
                    let flow = Activity::active(module, &body.func, params);
                    grow(&mut out, &flow.of(returned(&body.func)));
                }
                self.plan(id, bodies, params);
                out
            }
            Manual => {
                let bodies = outline_all(func, id);
                let params = self.of(&op.operands);
                let out = Activity::active(module, &bodies[0].func, &params)
                    .of(returned(&bodies[0].func));
                self.plan(id, bodies, vec![params]);
                out
            }
            Call | Composite => {
                let args = self.of(&op.operands);
                match self.way(func, op) {
                    "custom_vjp" | "custom_jvp" => {
                        let any = and(&args, &own_rule_args(func, op)).contains(&true);
                        vec![any; op.results.len()]
                    }
                    _ => match module.func(meaning(op)) {
                        Some(callee) if args.contains(&true) => {
                            Activity::active(module, callee, &args).of(returned(callee))
                        }
                        _ => vec![false; op.results.len()],
                    },
                }
            }
            code @ (KernelCall | Return | Yield | Const | Iota | Select | Cast | Bitcast | Dim
            | StopGradient | OptBarrier | Shard | Broadcast | Reshape | Transpose
            | Slice | Pad | Concat | Reverse | DynamicSlice | DynamicUpdateSlice
            | Gather | Scatter | Reduce | ArgReduce | Scan | Sort | Dot | Conv
            | WindowReduce | WindowArgReduce | Philox | Vary | Own | AllReduce
            | AllGather | ReduceScatter | AllToAll | Permute | FromRank | AxisIndex
            | Ew(_)) => {
                let any = differentiable(code) && self.of(&op.operands).contains(&true);
                vec![any; op.results.len()]
            }
        };
        for (&v, active) in op.results.iter().zip(results) {
            self.active.set(v, active && is_float(func.ty(v)));
        }
    }

    fn plan(&mut self, id: OpId, bodies: Vec<Outlined>, active: Vec<Vec<bool>>) {
        let none: Vec<Vec<bool>> = active.iter().map(|a| vec![false; a.len()]).collect();
        let results: Vec<Vec<bool>> =
            bodies.iter().map(|b| vec![false; returned(&b.func).len()]).collect();
        self.plans.insert(id, RegionActivity { bodies, active, wanted: none, cotangents: results });
    }

    /// What is wanted where these results have cotangents; gives it for the parameters.
    pub fn want(&mut self, module: &GraphModule, func: &GraphFunc, results: &[bool]) -> Vec<bool> {
        for (&v, &wanted) in returned(func).iter().zip(results) {
            self.ask(v, wanted);
        }
        for &id in func.blocks[func.body].ops.iter().rev() {
            if !func.ops[id].is_terminator() {
                self.backward(module, func, id);
            }
        }
        self.requested(func.params())
    }

    /// Only what is active can be wanted.
    fn ask(&mut self, v: Value, wanted: bool) {
        if wanted && self.active[v] {
            self.wanted.set(v, true);
        }
    }

    fn ask_all(&mut self, values: &[Value], wanted: &[bool]) {
        for (&v, &w) in values.iter().zip(wanted) {
            self.ask(v, w);
        }
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn backward(&mut self, module: &GraphModule, func: &GraphFunc, id: OpId) {
        use GraphOp::*;
        let op = &func.ops[id];
        let requested = self.requested(&op.results);
        if !requested.contains(&true) {
            return;
        }
        match op.code {
            Loop => {
                let Some(mut plan) = self.plans.remove(&id) else { return };
                let (init, xs) = (op.group("init"), op.group("xs"));
                let mut carried = requested[..init.len()].to_vec();
                loop {
                    let results = [&carried, &requested[init.len()..]].concat();
                    let body = &plan.bodies[0].func;
                    let wanted = Activity::active(module, body, &plan.active[0])
                        .want(module, body, &results);
                    if !grow(&mut carried, &wanted[1..=init.len()]) {
                        (plan.wanted[0], plan.cotangents[0]) = (wanted, results);
                        break;
                    }
                }
                let wanted = &plan.wanted[0];
                self.ask_all(init, &wanted[1..]);
                self.ask_all(xs, &wanted[1 + init.len()..]);
                // The last carried values of a loop that never runs are the first ones.
                self.ask_all(init, &carried);
                self.ask_all(&plan.bodies[0].captures, &wanted[1 + init.len() + xs.len()..]);
                self.plans.insert(id, plan);
            }
            Cond => {
                let Some(mut plan) = self.plans.remove(&id) else { return };
                for place in 0..plan.bodies.len() {
                    let body = &plan.bodies[place].func;
                    let mut flow = Activity::active(module, body, &plan.active[place]);
                    let wanted = flow.want(module, body, &requested);
                    self.ask_all(&plan.bodies[place].captures, &wanted);
                    plan.wanted[place] = wanted;
                    plan.cotangents[place] = requested.clone();
                }
                self.plans.insert(id, plan);
            }
            Manual => {
                let Some(mut plan) = self.plans.remove(&id) else { return };
                let body = &plan.bodies[0].func;
                let wanted =
                    Activity::active(module, body, &plan.active[0]).want(module, body, &requested);
                self.ask_all(&op.operands, &wanted);
                (plan.wanted[0], plan.cotangents[0]) = (wanted, requested);
                self.plans.insert(id, plan);
            }
            Call | Composite if !matches!(self.way(func, op), "custom_vjp" | "custom_jvp") => {
                let Some(callee) = module.func(meaning(op)) else { return };
                let mut flow = Activity::active(module, callee, &self.of(&op.operands));
                let wanted = flow.want(module, callee, &requested);
                self.ask_all(&op.operands, &wanted);
            }
            Call | Composite => self.ask_all(&op.operands, &own_rule_args(func, op)),
            // A while loop has no reverse mode; the caller reports it where a cotangent is needed.
            KernelCall | Return | Yield | While | Const | Iota | Select | Cast | Bitcast | Dim
            | StopGradient | OptBarrier | Shard | Broadcast | Reshape | Transpose | Slice | Pad
            | Concat | Reverse | DynamicSlice | DynamicUpdateSlice | Gather | Scatter | Reduce
            | ArgReduce | Scan | Sort | Dot | Conv | WindowReduce | WindowArgReduce | Philox
            | Vary | Own | AllReduce | AllGather | ReduceScatter | AllToAll | Permute
            | FromRank | AxisIndex | Ew(_) => {
                self.ask_all(&op.operands, &vec![true; op.operands.len()])
            }
        }
    }
}

/// Adds what is set in `more`; whether anything changed.
fn grow(mask: &mut [bool], more: &[bool]) -> bool {
    let mut changed = false;
    for (m, &x) in mask.iter_mut().zip(more) {
        changed |= x && !*m;
        *m |= x;
    }
    changed
}
