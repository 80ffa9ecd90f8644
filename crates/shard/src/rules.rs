//! Factor rules: which dims of an op are split together, and what splitting them gives. A dim without a factor must be whole.

use tessera_graph::{FactorRule, GraphFunc, GraphOp, elem};
use tessera_ir::{Attr, Op, OpId, Privilege, Type, Value};
use tessera_numerics::{DType, ReduceOp};

/// What splitting a factor gives.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Blocks of the results.
    Pass,
    /// Contributions to the results. An operand in `OpRule::once` counts once.
    Reduce(ReduceOp),
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OpRule {
    pub kinds: Vec<Kind>,
    /// Factors that may only be cut into equal blocks.
    pub even: Vec<bool>,
    /// For each operand, for each dim, its factor.
    pub operands: Vec<Vec<Option<usize>>>,
    pub results: Vec<Vec<Option<usize>>>,
    /// Operands of which one rank's is enough where a `Reduce` factor is split: the others contribute what changes nothing.
    pub once: Vec<usize>,
    /// Factors that pass, and results of which splitting them gives contributions to a sum.
    pub adds: Vec<(usize, usize)>,
    /// Elementwise ops and changes of shape: placements go through them first.
    pub is_light: bool,
}

/// An operand or a result, and a dim of it.
#[derive(Copy, Clone)]
enum At {
    In(usize, usize),
    Out(usize, usize),
}
use At::{In, Out};

struct Build<'a> {
    func: &'a GraphFunc,
    op: &'a Op<tessera_graph::Graph>,
    rule: OpRule,
}

pub fn extent(ty: &Type, dim: usize) -> Option<i64> {
    ty.shape()[dim].as_static()
}

impl Build<'_> {
    fn factor(&mut self, kind: Kind, places: &[At]) {
        let number = self.rule.kinds.len();
        self.rule.kinds.push(kind);
        self.rule.even.push(false);
        for &place in places {
            match place {
                In(i, d) => self.rule.operands[i][d] = Some(number),
                Out(i, d) => self.rule.results[i][d] = Some(number),
            }
        }
    }

    fn pass(&mut self, places: &[At]) {
        self.factor(Kind::Pass, places);
    }

    /// The factor that was added last is cut into equal blocks only.
    fn evenly(&mut self) {
        if let Some(last) = self.rule.even.last_mut() {
            *last = true;
        }
    }

    fn operand(&self, i: usize) -> &Type {
        self.func.ty(self.op.operands[i])
    }

    fn result(&self, i: usize) -> &Type {
        self.func.ty(self.op.results[i])
    }

    fn ints(&self, name: &str) -> Vec<usize> {
        let all = self.op.attr(name).and_then(Attr::as_ints).unwrap_or_default();
        all.iter().map(|&v| v.max(0) as usize).collect()
    }

    fn int(&self, name: &str) -> usize {
        self.op.attr(name).and_then(Attr::as_int).unwrap_or(0).max(0) as usize
    }

    fn word(&self, name: &str) -> &str {
        self.op.attr(name).and_then(Attr::as_word).unwrap_or_default()
    }

    /// The values of a list of extents; `default` where the attribute is left out or an entry is not known.
    fn extents(&self, name: &str, rank: usize, default: i64) -> Vec<Option<i64>> {
        let Some(attr) = self.op.attr(name) else { return vec![Some(default); rank] };
        if let Some(ints) = attr.as_ints() {
            return ints.iter().map(|&v| Some(v)).collect();
        }
        let known = |e| tessera_ir::Dim::from(e).as_static();
        attr.as_exprs().unwrap_or_default().into_iter().map(known).collect()
    }

    /// All values have one shape but for numbers, which all elements share.
    fn elementwise(&mut self) {
        self.rule.is_light = true;
        let shape = self.result(0).shape().to_vec();
        for dim in 0..shape.len() {
            let alike = |ty: &Type| ty.rank() == shape.len();
            let ins = (0..self.op.operands.len()).filter(|&i| alike(self.operand(i)));
            let outs = (0..self.op.results.len()).filter(|&i| alike(self.result(i)));
            let all: Vec<At> = ins.map(|i| In(i, dim)).chain(outs.map(|i| Out(i, dim))).collect();
            self.pass(&all);
        }
    }

    /// Operand 0 and the results have one shape, and these dims are split freely.
    fn kept(&mut self, is_kept: impl Fn(usize) -> bool) {
        for dim in 0..self.operand(0).rank() {
            if is_kept(dim) {
                let ins = (0..self.op.operands.len())
                    .filter(|&i| self.operand(i).rank() == self.operand(0).rank());
                let outs = 0..self.op.results.len();
                let all: Vec<At> =
                    ins.map(|i| In(i, dim)).chain(outs.map(|i| Out(i, dim))).collect();
                self.pass(&all);
            }
        }
    }

    fn reshape(&mut self) {
        self.rule.is_light = true;
        let dims = |ty: &Type| -> Option<Vec<i64>> {
            ty.shape().iter().map(tessera_ir::Dim::as_static).collect()
        };
        let (Some(from), Some(to)) = (dims(self.operand(0)), dims(self.result(0))) else { return };
        if from.contains(&0) {
            return;
        }
        for (a, b) in aligned(&from, &to) {
            // The leading dims of both sides, when cut evenly, cut the elements at the same places.
            let first = |dims: &[i64], range: std::ops::Range<usize>| {
                range.into_iter().find(|&d| dims[d] > 1)
            };
            if let (Some(i), Some(j)) = (first(&from, a), first(&to, b)) {
                self.pass(&[In(0, i), Out(0, j)]);
                if from[i] != to[j] {
                    self.evenly();
                }
            }
        }
    }

    fn gather(&mut self) {
        let (x, indices) = (self.operand(0).rank(), self.operand(1).rank());
        let (batch, axes) = (self.int("batch"), self.ints("axes"));
        for dim in 0..batch {
            self.pass(&[In(0, dim), In(1, dim), Out(0, dim)]);
        }
        for dim in batch..indices - 1 {
            self.pass(&[In(1, dim), Out(0, dim)]);
        }
        let rest = (batch..x).filter(|d| !axes.contains(d));
        for (at, dim) in rest.enumerate() {
            self.pass(&[In(0, dim), Out(0, indices - 1 + at)]);
        }
        // A lookup: the rank that has the element contributes it, and the others what changes nothing. Each sum has one
        // element, so it is exact.
        let op = match self.operand(0).dtype() {
            DType::Bool => ReduceOp::Or,
            _ => ReduceOp::Sum,
        };
        if self.word("oob") != "fill" && is_free(op, self.operand(0), false) {
            axes.iter().for_each(|&axis| self.factor(Kind::Reduce(op), &[In(0, axis)]));
        }
    }

    fn scatter(&mut self, ordered: bool) {
        let (x, indices) = (self.operand(0).rank(), self.operand(1).rank());
        let (batch, axes) = (self.int("batch"), self.ints("axes"));
        for dim in 0..batch {
            self.pass(&[In(0, dim), In(1, dim), In(2, dim), Out(0, dim)]);
        }
        // Updates that fall on several ranks are contributions.
        let op = Some(ReduceOp::Sum).filter(|_| self.word("op") == "sum");
        if let Some(op) = op.filter(|&op| is_free(op, self.result(0), ordered)) {
            for dim in batch..indices - 1 {
                // An index that nobody may look at would be written to.
                self.factor(Kind::Reduce(op), &[In(1, dim), In(2, dim)]);
                self.evenly();
            }
            self.rule.once.push(0);
        }
        let rest = (batch..x).filter(|d| !axes.contains(d));
        for (at, dim) in rest.enumerate() {
            self.pass(&[In(0, dim), In(2, indices - 1 + at), Out(0, dim)]);
        }
        // A rank writes what falls into its block.
        axes.iter().for_each(|&axis| self.pass(&[In(0, axis), Out(0, axis)]));
    }

    fn dot(&mut self, ordered: bool) {
        let lists = ["batch_a", "batch_b", "contract_a", "contract_b"].map(|n| self.ints(n));
        let [batch_a, batch_b, contract_a, contract_b] = lists;
        for (at, (&a, &b)) in batch_a.iter().zip(&batch_b).enumerate() {
            self.pass(&[In(0, a), In(1, b), Out(0, at)]);
        }
        let mut at = batch_a.len();
        for (i, batch, contract) in [(0, &batch_a, &contract_a), (1, &batch_b, &contract_b)] {
            for dim in 0..self.operand(i).rank() {
                if !batch.contains(&dim) && !contract.contains(&dim) {
                    self.pass(&[In(i, dim), Out(0, at)]);
                    at += 1;
                }
            }
        }
        let is_sequence = self.word("class") == "seq";
        if is_free(ReduceOp::Sum, self.result(0), ordered || is_sequence) {
            for (&a, &b) in contract_a.iter().zip(&contract_b) {
                self.factor(Kind::Reduce(ReduceOp::Sum), &[In(0, a), In(1, b)]);
            }
        }
    }

    fn reduce(&mut self, ordered: bool) {
        let axes = self.ints("axes");
        let op = ReduceOp::from_name(self.word("op"));
        let mut at = 0;
        for dim in 0..self.operand(0).rank() {
            if !axes.contains(&dim) {
                self.pass(&[In(0, dim), Out(0, at)]);
                at += 1;
            } else if let Some(op) = op.filter(|&op| is_free(op, self.operand(0), ordered)) {
                self.factor(Kind::Reduce(op), &[In(0, dim)]);
                if neutral(op, self.operand(0).dtype()).is_none() {
                    self.evenly();
                }
            }
        }
    }

    fn conv(&mut self, ordered: bool) {
        self.pass(&[In(0, 0), Out(0, 0)]);
        if self.op.attr("groups").and_then(Attr::as_int).unwrap_or(1) != 1 {
            return;
        }
        self.pass(&[In(1, 0), Out(0, 1)]);
        let is_sequence = self.word("class") == "seq";
        if is_free(ReduceOp::Sum, self.result(0), ordered || is_sequence) {
            self.factor(Kind::Reduce(ReduceOp::Sum), &[In(0, 1), In(1, 1)]);
        }
    }

    /// What the kernel's declaration says. Blocks are equal: a kernel may look at all elements of a block.
    fn kernel(&mut self, ordered: bool) {
        let text = self.op.attr("sharding").and_then(Attr::as_str);
        let Some(said) = text.and_then(|t| FactorRule::parse(t).ok()) else { return };
        let words = self.op.attr("contract").and_then(Attr::as_list).unwrap_or_default();
        let contract: Vec<&str> = words.iter().filter_map(Attr::as_word).collect();
        let mut names: Vec<&String> = said.operands.iter().flatten().collect();
        names.sort_unstable();
        names.dedup();
        let place = |row: &Vec<String>, name: &String| row.iter().position(|n| n == name);
        for name in names.into_iter().filter(|n| FactorRule::is_named(n)) {
            let ins = said.operands.iter().enumerate();
            let ins = ins.filter_map(|(i, row)| place(row, name).map(|d| In(i, d)));
            let outs = said.results.iter().enumerate();
            let outs: Vec<At> =
                outs.filter_map(|(i, row)| place(row, name).map(|d| Out(i, d))).collect();
            let mut all: Vec<At> = ins.collect();
            let is_split = outs.len() == self.op.results.len();
            all.extend(outs);
            let results = (0..self.op.results.len()).map(|i| self.result(i));
            if contract.contains(&name.as_str()) {
                if results.into_iter().all(|ty| is_free(ReduceOp::Sum, ty, ordered)) {
                    self.factor(Kind::Reduce(ReduceOp::Sum), &all);
                    self.evenly();
                }
            } else if is_split {
                self.pass(&all);
                self.evenly();
            }
        }
        // What an array held before is added once.
        let fresh = self.ints("fresh");
        let words = self.op.attr("privileges").and_then(Attr::as_list).unwrap_or_default();
        let writes =
            |w: &Attr| w.as_word().and_then(Privilege::parse).is_some_and(Privilege::writes);
        let written = words.iter().enumerate().filter(|(_, w)| writes(w)).map(|(i, _)| i);
        self.rule.once.extend(written.filter(|i| !fresh.contains(i)));
    }

    fn windows(&mut self) {
        let rank = self.operand(0).rank();
        let (window, strides) = (self.extents("window", rank, 1), self.extents("strides", rank, 1));
        let (lo, hi) = (self.extents("lo", rank, 0), self.extents("hi", rank, 0));
        self.kept(|d| {
            window[d] == Some(1) && strides[d] == Some(1) && lo[d] == Some(0) && hi[d] == Some(0)
        });
    }
}

/// Whether ranks may each combine a part: the same bits in any order, or the order is free.
#[deny(clippy::wildcard_enum_match_arm)]
fn is_free(op: ReduceOp, ty: &Type, ordered: bool) -> bool {
    let dtype = ty.dtype();
    // What a collective combines, in this dtype or in f32.
    let is_combined = match dtype {
        DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64
        | DType::F16
        | DType::BF16
        | DType::F32
        | DType::F64 => elem(ty) == tessera_numerics::NumType::plain(dtype),
        DType::Tf32
        | DType::I4
        | DType::Fp8E4M3
        | DType::Fp8E5M2
        | DType::Fp6E3M2
        | DType::Fp6E2M3
        | DType::Fp4E2M1
        | DType::E8M0 => false,
    };
    let is_exact = match op {
        ReduceOp::Sum | ReduceOp::Prod => !dtype.is_float(),
        ReduceOp::Max | ReduceOp::Min | ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => true,
    };
    is_combined && (is_exact || !ordered)
}

/// What changes nothing where it is combined, for elements that fill up a block; None where no float has it.
pub fn neutral(op: ReduceOp, dtype: DType) -> Option<f64> {
    match op {
        ReduceOp::Sum if dtype.is_float() => Some(-0.0),
        ReduceOp::Sum | ReduceOp::Or | ReduceOp::Xor => Some(0.0),
        ReduceOp::Prod => Some(1.0),
        ReduceOp::Max if dtype.is_float() => Some(f64::NEG_INFINITY),
        ReduceOp::Min if dtype.is_float() => Some(f64::INFINITY),
        ReduceOp::Max if dtype == DType::I32 => Some(i32::MIN as f64),
        ReduceOp::Min if dtype == DType::I32 => Some(i32::MAX as f64),
        ReduceOp::Max | ReduceOp::Min | ReduceOp::And => None,
    }
}

/// Ranges of dims of both shapes that hold the same elements, as short as possible.
fn aligned(from: &[i64], to: &[i64]) -> Vec<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let (mut i, mut j, mut out) = (0, 0, Vec::new());
    while i < from.len() && j < to.len() {
        let (start_i, start_j) = (i, j);
        let (mut a, mut b) = (from[i], to[j]);
        (i, j) = (i + 1, j + 1);
        while a != b {
            if a < b && i < from.len() {
                a *= from[i];
                i += 1;
            } else if j < to.len() {
                b *= to[j];
                j += 1;
            } else {
                return out;
            }
        }
        out.push((start_i..i, start_j..j));
    }
    out
}

/// The rule of an op without regions. `ordered`: sums keep the order of one device.
#[deny(clippy::wildcard_enum_match_arm)]
pub fn rule(func: &GraphFunc, id: OpId, ordered: bool) -> OpRule {
    use GraphOp::*;
    let op = &func.ops[id];
    let none = |values: &[Value]| values.iter().map(|&v| vec![None; func.ty(v).rank()]).collect();
    let rule =
        OpRule { operands: none(&op.operands), results: none(&op.results), ..OpRule::default() };
    let mut b = Build { func, op, rule };
    match op.code {
        Ew(_) | Cast | Bitcast | StopGradient | Shard | Philox | Select => b.elementwise(),
        OptBarrier => {
            b.rule.is_light = true;
            for i in 0..op.operands.len() {
                (0..b.operand(i).rank()).for_each(|d| b.pass(&[In(i, d), Out(i, d)]));
            }
        }
        Const if op.attr("data").is_none() => {
            (0..b.result(0).rank()).for_each(|d| b.pass(&[Out(0, d)]));
        }
        Iota => (0..b.result(0).rank()).for_each(|d| b.pass(&[Out(0, d)])),
        Broadcast => {
            b.rule.is_light = true;
            let dims = b.ints("dims");
            for d in 0..b.result(0).rank() {
                let from = dims.iter().position(|&at| at == d);
                let same = |i: &usize| extent(b.operand(0), *i) == extent(b.result(0), d);
                match from.filter(same) {
                    Some(i) => b.pass(&[In(0, i), Out(0, d)]),
                    None => b.pass(&[Out(0, d)]),
                }
            }
        }
        Reshape => b.reshape(),
        Transpose => {
            b.rule.is_light = true;
            let perm = b.ints("perm");
            perm.iter().enumerate().for_each(|(out, &from)| b.pass(&[In(0, from), Out(0, out)]));
        }
        Slice => {
            b.rule.is_light = true;
            let rank = b.operand(0).rank();
            let (start, limit) = (b.extents("start", rank, 0), b.extents("limit", rank, 0));
            let stride = b.extents("stride", rank, 1);
            let whole: Vec<bool> = (0..rank)
                .map(|d| {
                    let n = extent(b.operand(0), d);
                    start[d] == Some(0) && limit[d] == n && n.is_some() && stride[d] == Some(1)
                })
                .collect();
            b.kept(|d| whole[d]);
        }
        Pad => {
            b.rule.is_light = true;
            let rank = b.operand(0).rank();
            let lists = ["lo", "hi", "interior"].map(|n| b.extents(n, rank, 0));
            b.kept(|d| lists.iter().all(|l| l[d] == Some(0)));
        }
        Concat | Scan | Sort | ArgReduce => {
            let axis = b.int("axis");
            if op.code != ArgReduce {
                return {
                    b.kept(|d| d != axis);
                    b.rule
                };
            }
            let kept = (0..b.operand(0).rank()).filter(|&d| d != axis);
            kept.enumerate().for_each(|(out, d)| b.pass(&[In(0, d), Out(0, out)]));
        }
        Reverse => {
            b.rule.is_light = true;
            let axes = b.ints("axes");
            b.kept(|d| !axes.contains(&d));
        }
        DynamicSlice => {
            let rank = b.operand(0).rank();
            let same: Vec<bool> =
                (0..rank).map(|d| extent(b.operand(0), d) == extent(b.result(0), d)).collect();
            for d in (0..rank).filter(|&d| same[d]) {
                b.pass(&[In(0, d), Out(0, d)]);
            }
        }
        DynamicUpdateSlice => {
            let rank = b.operand(0).rank();
            for d in 0..rank {
                if extent(b.operand(0), d) == extent(b.operand(1), d) {
                    b.pass(&[In(0, d), In(1, d), Out(0, d)]);
                }
            }
        }
        Gather => b.gather(),
        Scatter => b.scatter(ordered),
        Reduce => b.reduce(ordered),
        Dot => b.dot(ordered),
        Conv => b.conv(ordered),
        KernelCall => b.kernel(ordered),
        WindowReduce | WindowArgReduce => b.windows(),
        // Whole: what is data, and ops that are no work of one rank's block.
        Const | Dim | Return | Yield | Cond | While | Loop | Call | Composite | Manual | Vary
        | Own | AllReduce | AllGather | ReduceScatter | AllToAll | Permute | FromRank
        | AxisIndex => {}
    }
    b.rule
}
