//! Random words.

use crate::dims::{same_shape, show};
use crate::rule::{Refusal, Rule, Ruled, Site, tensor};
use tessera_numerics::{DType, NumType};

pub struct Philox;

impl Rule for Philox {
    /// One key for all counters, or one for each.
    fn types(s: &Site<'_>) -> Ruled {
        let (key, counter) = (s.operand(0)?, s.operand(1)?);
        for (name, ty) in [("key", key), ("counter", counter)] {
            if ty.dtype() != DType::I64 {
                return Err(Refusal::ty(format!(
                    "expected `{name}` to be i64, got {}",
                    ty.dtype()
                )));
            }
        }
        if key.rank() > 0 && !same_shape(key.shape(), counter.shape()) {
            return Err(Refusal::shape(format!(
                "expected one key, or one for each counter, got {} and {}",
                show(key.shape()),
                show(counter.shape())
            )));
        }
        let word = s.int("word", 0);
        if !(0..4).contains(&word) {
            return Err(Refusal::structure(format!("expected `word` to be 0 to 3, got {word}")));
        }
        Ok(vec![tensor(counter.shape().to_vec(), NumType::plain(DType::U32))])
    }
}
