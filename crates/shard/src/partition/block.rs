//! Composites on blocks: the decomposition becomes a function on the blocks of a rank, in which no rank needs another.

use super::{Chosen, Local, Partition, added};
use crate::composites::Known;
use crate::placement::Dims;
use crate::rules::OpRule;
use crate::{Found, find};
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::{Diagnostic, Diagnostics};
use tessera_graph::walk::{called, dce, fresh_name, returned};
use tessera_graph::{GraphBuilder, GraphModule, GraphOp, states};
use tessera_ir::{Attr, Attrs, OpId, Type, Value};
use tessera_support::SideTable;

/// A composite, the types of its operands, the placements of operands and results, and which results are sums over ranks.
type Key = (String, Vec<String>, Vec<Dims>, Vec<usize>);

/// The functions that were made.
#[derive(Default)]
pub struct Blocks {
    pub known: Known,
    pub made: BTreeMap<Key, Option<String>>,
}

impl Partition<'_> {
    /// The function of a composite on the blocks of a rank; None where blocks do not do.
    pub(super) fn on_blocks(
        &mut self,
        id: OpId,
        rule: &OpRule,
        chosen: &Chosen,
    ) -> Result<Option<String>, Diagnostic> {
        let op = &self.func.ops[id];
        let axes = |row: &Vec<Option<usize>>| -> Dims {
            row.iter().map(|f| f.map_or_else(Vec::new, |f| chosen[f].clone())).collect()
        };
        let ins: Vec<Dims> = rule.operands.iter().map(axes).collect();
        let outs: Vec<Dims> = rule.results.iter().map(axes).collect();
        let types: Vec<Type> = op.operands.iter().map(|&v| self.func.ty(v).clone()).collect();
        let name = called(op).unwrap_or_default().to_string();
        let texts = types.iter().map(Type::to_string).collect();
        // Results that ranks have contributions to.
        let sums = (0..outs.len()).filter(|&at| !added(rule, chosen, at).is_empty());
        let sums: Vec<usize> = sums.collect();
        let key = (name.clone(), texts, ins.iter().chain(&outs).cloned().collect(), sums.clone());
        if let Some(made) = self.blocks.made.get(&key) {
            return Ok(made.clone());
        }
        // What a decomposition is refused for was refused when it was read.
        let made = self.function((&name, &types), &ins, &outs, &sums).map_err(first)?;
        self.blocks.made.insert(key, made.clone());
        Ok(made)
    }

    fn function(
        &mut self,
        (name, types): (&str, &[Type]),
        ins: &[Dims],
        outs: &[Dims],
        sums: &[usize],
    ) -> Result<Option<String>, Diagnostics> {
        let mesh = self.mesh().clone();
        let edges = Some((&mesh, ins, outs));
        let found = find(&self.module, (name, types), false, edges, &mut self.blocks.known)?;
        let Found { flat, rules, placements } = found;
        let func = &flat.func;
        let base = format!("{name}.block");
        let mut p = Partition {
            func,
            placements,
            rules,
            module: std::mem::replace(&mut self.module, GraphModule::new("")),
            blocks: std::mem::take(&mut self.blocks),
            b: GraphBuilder::new(&base),
            of: SideTable::new(None),
            moved: vec![BTreeMap::new()],
            gathered: BTreeSet::new(),
            kept: sums.iter().map(|&at| returned(func)[at]).collect(),
        };
        let built = p.blocks_of(ins, outs);
        let Partition { b, module, blocks, .. } = p;
        (self.module, self.blocks) = (module, blocks);
        let mut made = b.finish(&built?, func.loc.clone())?;
        dce(&mut made, &|_| true);
        let is_alone = |op: GraphOp| !states::is_of_a_rank(op) && op != GraphOp::Manual;
        let fits =
            returned(func).iter().zip(outs).zip(returned(&made)).all(|((&old, dims), &new)| {
                crate::placement::block(&mesh, func.ty(old), dims) == *made.ty(new)
            });
        if !fits || !made.walk().iter().all(|&id| is_alone(made.ops[id].code)) {
            return Ok(None);
        }
        made.name = fresh_name(&self.module, &base);
        let name = made.name.clone();
        self.module.funcs.push(made);
        Ok(Some(name))
    }

    fn blocks_of(&mut self, ins: &[Dims], outs: &[Dims]) -> Result<Vec<Value>, Diagnostic> {
        let func = self.func;
        for (&param, dims) in func.params().iter().zip(ins) {
            let name = func.name_of(param).unwrap_or("x").to_string();
            let value = self.b.param(&name, self.block_of(param, dims));
            self.of.set(param, Some(Local { value, dims: dims.clone() }));
        }
        let yields = self.block(func.body)?;
        yields.iter().zip(outs).map(|(&v, dims)| self.placed(v, dims, &func.loc)).collect()
    }

    /// The composite on blocks.
    pub(super) fn composite(
        &mut self,
        id: OpId,
        operands: &[Value],
        dims: &[Dims],
        on_blocks: Option<String>,
    ) -> Result<Vec<Value>, Diagnostic> {
        let op = &self.func.ops[id];
        let types = op.results.iter().zip(dims).map(|(&v, d)| self.block_of(v, d)).collect();
        let whole = op.attr("whole").cloned();
        let whole = whole.or_else(|| called(op).map(Attr::word)).unwrap_or(Attr::word(""));
        let mut attrs = Attrs::new().with("whole", whole);
        for name in ["name", "config"] {
            if let Some(value) = op.attr(name) {
                attrs.set(name, value.clone());
            }
        }
        attrs.set("decomposition", Attr::Ref(on_blocks.unwrap_or_default()));
        let loc = op.loc.clone();
        self.copy(id, operands, attrs, types, &loc)
    }
}

fn first(errors: Diagnostics) -> Diagnostic {
    errors.into_iter().next().unwrap_or_else(|| {
        Diagnostic::new(
            tessera_diag::Code::E_UNKNOWN,
            "a decomposition was refused without a reason",
        )
    })
}
