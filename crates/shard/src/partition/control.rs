//! Branches, loops and programs of ranks inside the function.

use super::{Local, Partition};
use crate::placement::{Dims, copies, numbered};
use std::collections::BTreeMap;
use tessera_diag::Diagnostic;
use tessera_graph::ops::collective::Manual;
use tessera_graph::{Copier, GraphOp};
use tessera_ir::{OpId, Opcode, Value};

impl Partition<'_> {
    fn set(&mut self, old: Value, value: Value, dims: Dims) {
        self.of.set(old, Some(Local { value, dims }));
    }

    /// A result of an op with regions: it is brought to where propagation has it.
    fn result(&mut self, old: Value, value: Value, dims: Dims) -> Result<(), Diagnostic> {
        let func = self.func;
        self.set(old, value, dims);
        let wanted = self.placements.of(func, old);
        let loc = func.def(old).map_or_else(tessera_diag::Loc::unknown, |op| op.loc.clone());
        let value = self.placed(old, &wanted, &loc)?;
        self.set(old, value, wanted);
        Ok(())
    }

    pub(super) fn control(&mut self, id: OpId) -> Result<(), Diagnostic> {
        let func = self.func;
        let op = &func.ops[id];
        let loc = op.loc.clone();
        let name = op.code.mnemonic();
        // Where values are carried as the arguments of the last region say; stacks are whole along the steps.
        let carried: Vec<Dims> = match op.code {
            GraphOp::Cond => op.results.iter().map(|&v| self.placements.of(func, v)).collect(),
            _ => {
                let last = op.regions.last().copied().unwrap_or(func.body);
                let skip = usize::from(op.code == GraphOp::Loop);
                let args = &func.blocks[last].args;
                let carried = args[skip..skip + op.group("init").len()].iter();
                carried.map(|&v| self.placements.of(func, v)).collect()
            }
        };
        let mut operands = Vec::new();
        for &value in op.positional() {
            operands.push(self.placed(value, &copies(func.ty(value).rank()), &loc)?);
        }
        let mut init = Vec::new();
        for (&value, dims) in op.group("init").iter().zip(&carried) {
            init.push(self.placed(value, dims, &loc)?);
        }
        let mut steps: Vec<Dims> = Vec::new();
        let mut xs = Vec::new();
        if op.code == GraphOp::Loop {
            let args = &func.blocks[op.regions[0]].args[1 + init.len()..];
            for (&value, &arg) in op.group("xs").iter().zip(args) {
                let step = self.placements.of(func, arg);
                let mut whole = vec![Vec::new()];
                whole.extend(step.iter().cloned());
                xs.push(self.placed(value, &whole, &loc)?);
                steps.push(step);
            }
        }
        let groups = match op.code {
            GraphOp::Cond => vec![],
            GraphOp::While => vec![("init", init)],
            _ => vec![("init", init), ("xs", xs)],
        };
        let mut args = self.b.open(name, &operands, &groups, op.attrs.clone(), loc.clone())?;
        let stacked: Vec<Dims> = match op.code {
            GraphOp::Loop => op.results[carried.len()..]
                .iter()
                .map(|&v| self.placements.of(func, v)[1..].to_vec())
                .collect(),
            _ => Vec::new(),
        };
        let mut results = Vec::new();
        for (at, &region) in op.regions.iter().enumerate() {
            let is_test = op.code == GraphOp::While && at == 0;
            let skip = usize::from(op.code == GraphOp::Loop);
            let olds = func.blocks[region].args.clone();
            for (place, (&old, &new)) in olds.iter().zip(&args).enumerate() {
                let dims = match place.checked_sub(skip) {
                    None => Vec::new(),
                    Some(i) if i < carried.len() => carried[i].clone(),
                    Some(i) => steps[i - carried.len()].clone(),
                };
                self.set(old, new, dims);
            }
            self.moved.push(BTreeMap::new());
            let yields = self.block(region)?;
            let wanted: Vec<Dims> = match is_test {
                true => vec![Vec::new()],
                false => carried.iter().chain(&stacked).cloned().collect(),
            };
            let mut values = Vec::new();
            for (&value, dims) in yields.iter().zip(&wanted) {
                values.push(self.placed(value, dims, &loc)?);
            }
            self.moved.pop();
            if at + 1 < op.regions.len() {
                args = self.b.next_region(&values)?;
            } else {
                results = self.b.close(&values)?;
            }
        }
        let whole = stacked.into_iter().map(|dims| {
            let mut all = vec![Vec::new()];
            all.extend(dims);
            all
        });
        let dims: Vec<Dims> = carried.into_iter().chain(whole).collect();
        for ((&old, new), dims) in op.results.iter().zip(results).zip(dims) {
            self.result(old, new, dims)?;
        }
        Ok(())
    }

    /// A program of a rank on the same mesh: its ops become a part of this one.
    pub(super) fn manual(&mut self, id: OpId) -> Result<(), Diagnostic> {
        let func = self.func;
        let op = &func.ops[id];
        let loc = op.loc.clone();
        let manual = Manual::of(&op.attrs).map_err(|r| r.at(loc.clone()))?;
        let region = op.regions[0];
        let mut copier = Copier::new(func);
        for ((&value, split), &arg) in
            op.operands.iter().zip(&manual.ins).zip(&func.blocks[region].args)
        {
            let dims = numbered(self.mesh(), func.ty(value), split);
            copier.set(arg, self.placed(value, &dims, &loc)?);
        }
        let mut yields = Vec::new();
        for &inner in &func.blocks[region].ops {
            if func.ops[inner].is_terminator() {
                let known = func.ops[inner].operands.iter().map(|&v| copier.get(v));
                yields = known.collect::<Option<Vec<_>>>().unwrap_or_default();
            } else {
                self.b.copy_op(&mut copier, inner);
            }
        }
        for ((&old, new), split) in op.results.iter().zip(yields).zip(&manual.outs) {
            let dims = numbered(self.mesh(), func.ty(old), split);
            self.result(old, new, dims)?;
        }
        Ok(())
    }
}
