//! Factor rules of composites, read off their decompositions. A dim of a composite may be split where each op of the decomposition that it
//! goes through computes the blocks of it one by one: the ranks then run the composite on their blocks, and planning may give it a kernel.
//! Where another dim of it is split, the composite is replaced by its decomposition before placements are propagated.

use crate::inline::{Flat, Keep, Path, inline};
use crate::partition::wide;
use crate::placement::divides;
use crate::propagate::Placements;
use crate::rules::{Kind, OpRule, rule};
use std::collections::BTreeMap;
use std::rc::Rc;
use tessera_diag::Diagnostics;
use tessera_graph::walk::{called, returned};
use tessera_graph::{FactorRule, Graph, GraphFunc, GraphModule, GraphOp};
use tessera_ir::{Attr, Op, OpId, Type, Value};
use tessera_numerics::ReduceOp;
use tessera_support::SideTable;

/// What a composite may be split by.
#[derive(Debug, Default)]
pub struct Derived {
    pub rule: OpRule,
    /// Dims of operands and then of results that elementwise ops and changes of shape alone connect.
    pub light: Vec<Vec<(usize, usize)>>,
    /// Operands that the decomposition does not read. A kernel may, and nothing says by which dims.
    unread: Vec<usize>,
}

/// The rules of composites by decomposition and operands.
pub type Known = BTreeMap<(String, String), Rc<Derived>>;

/// The factor rules of the ops of a function.
pub struct Rules {
    pub ordered: bool,
    composites: BTreeMap<OpId, Rc<Derived>>,
}

impl Rules {
    /// Where bits count composites have no rule: they run whole, so that the kernel that planning gives them is that of one device.
    pub fn new(
        module: &GraphModule,
        flat: &Flat,
        ordered: bool,
        known: &mut Known,
    ) -> Result<Self, Diagnostics> {
        let mut composites = BTreeMap::new();
        for &id in flat.composites.keys().filter(|_| !ordered) {
            let op = &flat.func.ops[id];
            let types: Vec<Type> = op.operands.iter().map(|&v| flat.func.ty(v).clone()).collect();
            let texts: Vec<String> = types.iter().map(Type::to_string).collect();
            let sharding = op.attr("sharding").and_then(Attr::as_str).unwrap_or_default();
            let key = (called(op).unwrap_or_default().to_string(), texts.join(", ") + sharding);
            let found = match known.get(&key) {
                Some(found) => found.clone(),
                None => Rc::new(derive(module, op, &types)?),
            };
            known.insert(key, found.clone());
            composites.insert(id, found);
        }
        Ok(Self { ordered, composites })
    }

    pub fn of(&self, func: &GraphFunc, id: OpId) -> OpRule {
        match self.composites.get(&id) {
            Some(derived) => derived.rule.clone(),
            None => rule(func, id, self.ordered),
        }
    }

    pub fn light(&self, id: OpId) -> &[Vec<(usize, usize)>] {
        self.composites.get(&id).map_or(&[], |derived| &derived.light)
    }

    /// Composites that no dim can be split of.
    pub fn indivisible(&self, flat: &Flat) -> Vec<Path> {
        let whole = |id: &OpId| self.composites.get(id).is_some_and(|d| d.rule.kinds.is_empty());
        flat.composites.iter().filter(|(id, _)| whole(id)).map(|(_, p)| p.clone()).collect()
    }

    /// Composites that are split by other dims than their blocks are computed by.
    pub fn crossed(&self, flat: &Flat, placements: &Placements) -> Vec<Path> {
        let crossed = |id: &OpId| {
            let Some(derived) = self.composites.get(id) else { return false };
            let op = &flat.func.ops[*id];
            let values = op.operands.iter().chain(&op.results);
            let rows = derived.rule.operands.iter().chain(&derived.rule.results);
            let mut dims = Vec::new();
            for (&value, row) in values.zip(rows) {
                dims.extend(placements.of(&flat.func, value).into_iter().zip(row));
            }
            let is_split = |at: &usize| {
                let dims = placements.of(&flat.func, op.operands[*at]);
                dims.iter().any(|axes| !axes.is_empty())
            };
            if derived.unread.iter().any(is_split) {
                return true;
            }
            let is_cut = |(value, row): (&Value, &Vec<Option<usize>>)| {
                let (dims, ty) = (placements.of(&flat.func, *value), flat.func.ty(*value));
                row.iter().enumerate().any(|(dim, f)| {
                    f.is_some_and(|f| derived.rule.even[f])
                        && !divides(&placements.mesh, ty, dim, &dims[dim])
                })
            };
            if !derived.rule.adds.is_empty()
                && op.operands.iter().zip(&derived.rule.operands).any(is_cut)
            {
                return true;
            }
            let split: Vec<usize> =
                dims.iter().filter(|(_, f)| f.is_some()).flat_map(|(a, _)| a).copied().collect();
            let mut others = dims.iter().filter(|(_, f)| f.is_none()).flat_map(|(axes, _)| axes);
            others.any(|axis| !split.contains(axis))
        };
        flat.composites.iter().filter(|(id, _)| crossed(id)).map(|(_, p)| p.clone()).collect()
    }
}

/// Dims that are split together; each has the number of the set that it is in.
struct Sets {
    first: SideTable<Value, usize>,
    parent: Vec<usize>,
}

impl Sets {
    fn new(func: &GraphFunc) -> Self {
        let (mut first, mut next) = (SideTable::new(0), 0);
        for value in func.values.ids() {
            first.set(value, next);
            next += func.ty(value).rank();
        }
        Self { first, parent: (0..next).collect() }
    }

    fn find(&mut self, value: Value, dim: usize) -> usize {
        let mut at = self.first[value] + dim;
        while self.parent[at] != at {
            self.parent[at] = self.parent[self.parent[at]];
            at = self.parent[at];
        }
        at
    }

    fn join(&mut self, dims: &[(Value, usize)]) {
        for pair in dims.windows(2) {
            let (a, b) = (self.find(pair[0].0, pair[0].1), self.find(pair[1].0, pair[1].1));
            self.parent[a] = b;
        }
    }
}

/// What the ops of a decomposition say of its dims.
struct Study {
    all: Sets,
    /// What ops that are light connect.
    light: Sets,
    /// Dims that are needed whole.
    whole: Vec<(Value, usize)>,
    /// Dims that are cut into equal blocks only.
    even: Vec<(Value, usize)>,
    /// Dims that are summed, and the result that is the sum: blocks of them give contributions to it.
    sums: Vec<((Value, usize), Value)>,
}

/// Whether a sum is a result of the function and nothing else, in a dtype that contributions have.
fn is_given_back(func: &GraphFunc, value: Value) -> bool {
    let uses = |op: &Op<Graph>| op.operands.iter().filter(|v| **v == value).count();
    let all: usize = func.walk().iter().map(|&id| uses(&func.ops[id])).sum();
    all == 1
        && returned(func).contains(&value)
        && wide(func.ty(value).dtype()) == func.ty(value).dtype()
}

impl Study {
    /// None where the decomposition places values itself.
    fn of(func: &GraphFunc) -> Option<Self> {
        let (all, light) = (Sets::new(func), Sets::new(func));
        let mut study = Self { all, light, whole: Vec::new(), even: Vec::new(), sums: Vec::new() };
        for id in func.walk() {
            let op = &func.ops[id];
            if op.code == GraphOp::Shard {
                return None;
            }
            let values: Vec<Value> = op.operands.iter().chain(&op.results).copied().collect();
            if op.block != func.body || !op.regions.is_empty() {
                let dims = values.iter().flat_map(|&v| (0..func.ty(v).rank()).map(move |d| (v, d)));
                study.whole.extend(dims);
            } else if op.code != GraphOp::Return {
                study.op(func, id, &values);
            }
        }
        // Two dims of one value are not split together.
        for value in func.values.ids() {
            let dims = 0..func.ty(value).rank();
            let roots: Vec<usize> = dims.map(|d| study.all.find(value, d)).collect();
            let twice = (0..roots.len()).filter(|&d| roots[..d].contains(&roots[d]));
            study.whole.extend(twice.map(|d| (value, d)));
        }
        Some(study)
    }

    fn op(&mut self, func: &GraphFunc, id: OpId, values: &[Value]) {
        let op = &func.ops[id];
        let rule = rule(func, id, false);
        let rows: Vec<&Vec<Option<usize>>> = rule.operands.iter().chain(&rule.results).collect();
        let with = |factor: Option<usize>| -> Vec<(Value, usize)> {
            let mut dims = Vec::new();
            for (&value, row) in values.iter().zip(&rows) {
                let of = row.iter().enumerate().filter(|(_, f)| **f == factor);
                dims.extend(of.map(|(dim, _)| (value, dim)));
            }
            dims
        };
        self.whole.extend(with(None));
        for (factor, kind) in rule.kinds.iter().enumerate() {
            let dims = with(Some(factor));
            self.all.join(&dims);
            if rule.is_light {
                self.light.join(&dims);
            }
            let is_sum = *kind == Kind::Reduce(ReduceOp::Sum) && op.code == GraphOp::Reduce;
            if is_sum && is_given_back(func, op.result()) {
                self.sums.extend(dims.iter().map(|&dim| (dim, op.result())));
                // What fills up blocks would be added too.
                self.even.extend(&dims);
            } else if *kind != Kind::Pass {
                self.whole.extend(&dims);
            }
            if rule.even[factor] {
                self.even.extend(&dims);
            }
        }
        if op.code == GraphOp::Iota {
            // A block does not know where it is.
            let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0).max(0) as usize;
            self.whole.push((op.result(), axis));
        }
        if op.code == GraphOp::Scatter {
            // Nor which rows it has.
            let axes = op.attr("axes").and_then(Attr::as_ints).unwrap_or_default();
            self.whole.extend(axes.iter().map(|&axis| (op.result(), axis.max(0) as usize)));
        }
    }
}

fn derive(module: &GraphModule, op: &Op<Graph>, types: &[Type]) -> Result<Derived, Diagnostics> {
    let func = inline(module, called(op).unwrap_or_default(), types, &Keep::None)?.func;
    let Some(Study { mut all, mut light, whole, even, sums }) = Study::of(&func) else {
        return Ok(Derived::default());
    };
    let mut roots = |dims: &[(Value, usize)]| -> Vec<usize> {
        dims.iter().map(|&(value, dim)| all.find(value, dim)).collect()
    };
    let (whole, even) = (roots(&whole), roots(&even));
    let (summed, results): (Vec<(Value, usize)>, Vec<Value>) = sums.into_iter().unzip();
    let sums: Vec<(usize, Value)> = roots(&summed).into_iter().zip(results).collect();
    let ends: Vec<Value> = func.params().iter().chain(returned(&func)).copied().collect();
    let declared = op.attr("sharding").and_then(Attr::as_str).map(FactorRule::parse);
    let declared = declared.and_then(Result::ok);
    let declared: Option<Vec<Vec<String>>> =
        declared.map(|r| r.operands.into_iter().chain(r.results).collect());
    let mut factors: Vec<(usize, Vec<(usize, usize)>)> = Vec::new();
    for (at, &value) in ends.iter().enumerate() {
        for dim in 0..func.ty(value).rank() {
            let root = all.find(value, dim);
            if whole.contains(&root) {
                continue;
            }
            match factors.iter_mut().find(|(known, _)| *known == root) {
                Some((_, places)) => places.push((at, dim)),
                None => factors.push((root, vec![(at, dim)])),
            }
        }
    }
    // Ranks have a result alike, or each its block of it, or what it adds to it.
    let n = func.params().len();
    let adds = |root: usize, at: usize| sums.contains(&(root, ends[at]));
    factors.retain(|(root, places)| {
        (n..ends.len()).all(|at| places.iter().any(|(p, _)| *p == at) || adds(*root, at))
    });
    let mut read: Vec<Value> = Vec::new();
    func.walk().iter().for_each(|&id| read.extend(&func.ops[id].operands));
    let mut unread: Vec<usize> = (0..n).filter(|&at| !read.contains(&ends[at])).collect();
    // The user says which dims must be whole, which are split apart, and what an operand that is not read is split by.
    if let Some(names) = declared {
        for (_, places) in &mut factors {
            let named = places.iter().map(|&(at, dim)| &names[at][dim]);
            let mut of: Vec<String> = named.filter(|n| FactorRule::is_named(n)).cloned().collect();
            of.sort();
            of.dedup();
            if of.len() > 1 || of.iter().any(|n| FactorRule::is_whole(n)) {
                places.clear();
            } else if let [name] = &of[..] {
                for &at in &unread {
                    let dim = names[at].iter().position(|n| n == name);
                    places.extend(dim.map(|dim| (at, dim)));
                }
            }
        }
        unread.clear();
        factors.retain(|(_, places)| !places.is_empty());
    }
    let none = |values: &[Value]| values.iter().map(|&v| vec![None; func.ty(v).rank()]).collect();
    let mut rule =
        OpRule { operands: none(&ends[..n]), results: none(&ends[n..]), ..OpRule::default() };
    let mut connected = Vec::new();
    for (number, (root, places)) in factors.into_iter().enumerate() {
        rule.kinds.push(Kind::Pass);
        rule.even.push(even.contains(&root));
        let sums = (n..ends.len()).filter(|&at| adds(root, at)).map(|at| (number, at - n));
        rule.adds.extend(sums);
        let mut parts: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
        for (at, dim) in places {
            let row = if at < n { &mut rule.operands[at] } else { &mut rule.results[at - n] };
            row[dim] = Some(number);
            parts.entry(light.find(ends[at], dim)).or_default().push((at, dim));
        }
        connected.extend(parts.into_values().filter(|part| part.len() > 1));
    }
    Ok(Derived { rule, light: connected, unread })
}
