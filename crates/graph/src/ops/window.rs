//! Reductions over windows that move along every axis.

use super::dot::{at_least_one, windows};
use super::reduce::operator;
use crate::dims::compute;
use crate::rule::{Refusal, Rule, Ruled, Site, elem, tensor};
use tessera_ir::{Dim, DimOp};
use tessera_numerics::{DType, NumType};

fn moved(s: &Site<'_>) -> Result<Vec<Dim>, Refusal> {
    let x = s.operand(0)?;
    let n = x.rank();
    let list = |name: &str| at_least_one(s, name, n);
    let (window, strides, dilate) = (list("window")?, list("strides")?, list("dilate")?);
    let (lo, hi) = (s.exprs("lo", n)?, s.exprs("hi", n)?);
    Ok((0..n)
        .map(|i| {
            let have = compute(DimOp::Add, &compute(DimOp::Add, &x.shape()[i], &lo[i]), &hi[i]);
            let reach = (window[i] - 1).saturating_mul(dilate[i]).saturating_add(1);
            windows(&have, &Dim::Static(reach), strides[i])
        })
        .collect())
}

pub struct Reduce;

impl Rule for Reduce {
    fn types(s: &Site<'_>) -> Ruled {
        let x = s.operand(0)?;
        operator("op", s.word("op").unwrap_or_default(), x.dtype())?;
        Ok(vec![tensor(moved(s)?, elem(x))])
    }
}

pub struct ArgReduce;

impl Rule for ArgReduce {
    fn types(s: &Site<'_>) -> Ruled {
        let word = s.choice("op", &["max", "min"], "")?;
        operator("op", &word, s.operand(0)?.dtype())?;
        Ok(vec![tensor(moved(s)?, NumType::plain(DType::I64))])
    }
}
