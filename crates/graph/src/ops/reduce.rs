//! Reductions, scans and sorting along axes.

use crate::dims::{same_shape, show};
use crate::rule::{Refusal, Rule, Ruled, Site, ascending, axis, elem, tensor};
use tessera_numerics::{DType, NumType, ReduceOp};

/// The operator named by a word, where it takes the dtype.
pub fn operator(attr: &str, word: &str, dtype: DType) -> Result<ReduceOp, Refusal> {
    let Some(op) = ReduceOp::ALL.iter().copied().find(|op| op.name() == word) else {
        let all: Vec<_> = ReduceOp::ALL.iter().map(|op| op.name()).collect();
        return Err(Refusal::structure(format!(
            "expected `{attr}` to be one of {}, got `{word}`",
            all.join(" ")
        )));
    };
    if !op.combine().accepts(dtype.carrier()) {
        return Err(Refusal::ty(format!("expected a dtype that `{word}` combines, got {dtype}")));
    }
    Ok(op)
}

pub struct Reduce;

impl Rule for Reduce {
    fn types(s: &Site<'_>) -> Ruled {
        let x = s.operand(0)?;
        let axes = ascending("axes", &s.ints("axes"), x)?;
        operator("op", s.word("op").unwrap_or_default(), x.dtype())?;
        let kept = x.shape().iter().enumerate().filter(|(i, _)| !axes.contains(i));
        Ok(vec![tensor(kept.map(|(_, d)| d.clone()).collect(), elem(x))])
    }
}

pub struct ArgReduce;

impl Rule for ArgReduce {
    fn types(s: &Site<'_>) -> Ruled {
        let x = s.operand(0)?;
        let axis = axis("axis", s.int("axis", -1), x)?;
        let word = s.choice("op", &["max", "min"], "")?;
        operator("op", &word, x.dtype())?;
        if x.shape()[axis].as_static() == Some(0) {
            return Err(Refusal::shape(format!(
                "expected axis {axis} to have elements, got {}",
                show(x.shape())
            )));
        }
        let mut dims = x.shape().to_vec();
        dims.remove(axis);
        Ok(vec![tensor(dims, NumType::plain(DType::I64))])
    }
}

pub struct Scan;

impl Rule for Scan {
    fn types(s: &Site<'_>) -> Ruled {
        let x = s.operand(0)?;
        axis("axis", s.int("axis", -1), x)?;
        operator("op", s.word("op").unwrap_or_default(), x.dtype())?;
        Ok(vec![x.clone()])
    }
}

pub struct Sort;

impl Rule for Sort {
    fn types(s: &Site<'_>) -> Ruled {
        let all = s.group("values");
        let Some(first) = all.first() else {
            return Err(Refusal::structure("expected at least one operand, got 0"));
        };
        axis("axis", s.int("axis", -1), first)?;
        let keys = s.int("keys", 1);
        if keys < 1 || keys > all.len() as i64 {
            return Err(Refusal::structure(format!(
                "expected `keys` to count 1 to {} of the operands, got {keys}",
                all.len()
            )));
        }
        for other in &all[1..] {
            if !same_shape(first.shape(), other.shape()) {
                return Err(Refusal::shape(format!(
                    "expected operands of one shape, got {} and {}",
                    show(first.shape()),
                    show(other.shape())
                )));
            }
        }
        Ok(all.to_vec())
    }
}
