//! Dims that are products, against sizes that arrays have. A product binds only itself, and a kernel may
//! not read its factors; yet there must be sizes of the factors that give it: `"n*n"` of 8 elements is no
//! square, and `"2*n"` of 7 is odd.

use std::collections::BTreeMap;
use tessera_ir::{DimExpr, DimOp};

/// A product taken apart: its number, and how often each symbol stands in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Factors {
    number: i128,
    symbols: BTreeMap<String, u32>,
}

/// What a size says of a product.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// It fits, and nothing more follows.
    Fits,
    /// The one symbol that was not known has this size.
    Solved(String, i64),
    /// All factors are known, and their product is another.
    Other(i128),
    /// No whole sizes of the factors give it; what it would have to be.
    Never(String),
}

impl Factors {
    /// `None` for what is no product of numbers and symbols.
    pub fn of(dim: &DimExpr) -> Option<Self> {
        match dim {
            DimExpr::Const(v) => Some(Self { number: (*v).into(), symbols: BTreeMap::new() }),
            DimExpr::Sym(name) => {
                Some(Self { number: 1, symbols: BTreeMap::from([(name.to_string(), 1)]) })
            }
            DimExpr::Bin(DimOp::Mul, a, b) => {
                let (mut out, other) = (Self::of(a)?, Self::of(b)?);
                out.number = out.number.checked_mul(other.number)?;
                for (name, power) in other.symbols {
                    *out.symbols.entry(name).or_default() += power;
                }
                Some(out)
            }
            DimExpr::Bin(..) => None,
        }
    }

    /// Holds a size against the product, with the sizes of symbols as far as they are known.
    pub fn against(&self, got: i64, known: &BTreeMap<String, i64>) -> Found {
        let mut number = self.number;
        let mut open = Vec::new();
        for (name, &power) in &self.symbols {
            match known.get(name) {
                // Beyond 128 bits it is more than any size.
                Some(&size) => number = power_of(size, power).saturating_mul(number),
                None => open.push((name, power)),
            }
        }
        if open.is_empty() {
            return if number == i128::from(got) { Found::Fits } else { Found::Other(number) };
        }
        if number == 0 {
            return if got == 0 { Found::Fits } else { Found::Never("0".into()) };
        }
        if i128::from(got) % number != 0 {
            return Found::Never(format!("a multiple of {number}"));
        }
        let rest = i128::from(got) / number;
        // Sizes that are not known together are some power of one number: the common divisor of theirs.
        let power = open.iter().fold(0, |a, &(_, power)| gcd(a, power));
        let Some(root) = root_of(rest, power) else {
            let times = if number == 1 { String::new() } else { format!("{number} times ") };
            return Found::Never(format!("{times}{}", power_text(power)));
        };
        match open[..] {
            [(name, _)] => {
                i64::try_from(root).map_or(Found::Fits, |r| Found::Solved(name.clone(), r))
            }
            _ => Found::Fits,
        }
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn power_of(size: i64, power: u32) -> i128 {
    i128::from(size).saturating_pow(power)
}

/// The number whose power it is, if there is one.
fn root_of(value: i128, power: u32) -> Option<i128> {
    if power <= 1 {
        return Some(value);
    }
    // Rounded: the powers of its neighbours are compared exactly.
    let near = (value as f64).powf(1.0 / f64::from(power)).round() as i128;
    (near.saturating_sub(1).max(0)..=near + 1).find(|root| root.saturating_pow(power) == value)
}

fn power_text(power: u32) -> String {
    match power {
        2 => "a square".into(),
        3 => "a cube".into(),
        power => format!("a {power}th power"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dims::parse_dim;

    fn against(dim: &str, got: i64, known: &[(&str, i64)]) -> Found {
        let known = known.iter().map(|(n, v)| (n.to_string(), *v)).collect();
        Factors::of(&parse_dim(dim).unwrap()).unwrap().against(got, &known)
    }

    #[test]
    fn products_fit_where_their_factors_have_sizes() {
        let solved = |n: &str, v| Found::Solved(n.into(), v);
        let never = |why: &str| Found::Never(why.into());
        assert_eq!(against("n*n", 9, &[]), solved("n", 3));
        assert_eq!(against("n*n", 0, &[]), solved("n", 0));
        assert_eq!(against("n*n", 8, &[]), never("a square"));
        assert_eq!(against("n*n*n", 27, &[]), solved("n", 3));
        assert_eq!(against("n*n*n", 28, &[]), never("a cube"));
        assert_eq!(against("2*n", 8, &[]), solved("n", 4));
        assert_eq!(against("2*n", 7, &[]), never("a multiple of 2"));
        assert_eq!(against("3*n*n", 12, &[]), solved("n", 2));
        assert_eq!(against("3*n*n", 15, &[]), never("3 times a square"));
        assert_eq!(against("n*m", 7, &[]), Found::Fits);
        assert_eq!(against("n*m", 7, &[("m", 7)]), solved("n", 1));
        assert_eq!(against("n*m", 7, &[("m", 2)]), never("a multiple of 2"));
        assert_eq!(against("n*m", 7, &[("m", 2), ("n", 3)]), Found::Other(6));
        assert_eq!(against("n*n*m*m", 36, &[]), Found::Fits);
        assert_eq!(against("n*n*m*m", 35, &[]), never("a square"));
        assert_eq!(against("n*m", 0, &[("m", 0)]), Found::Fits);
        assert_eq!(against("n*m", 5, &[("m", 0)]), never("0"));
        let big = i64::MAX;
        assert_eq!(against("n*n", big, &[]), never("a square"));
        let root = 3_037_000_499;
        assert_eq!(against("n*n", root * root, &[]), solved("n", root));
        assert_eq!(against("n*n*n", 8, &[("n", big)]), Found::Other(i128::MAX));
    }
}
