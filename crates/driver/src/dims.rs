//! Dimensions: as annotations write them, and the sizes that arguments give them.

use std::collections::BTreeMap;
pub use tessera_frontend::parse_dim;
use tessera_ir::DimExpr;

/// Sizes by symbol, and by text for products: `(B * H)` binds only the product.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizes {
    pub known: BTreeMap<String, i64>,
}

impl Sizes {
    pub fn get(&self, name: &str) -> Option<i64> {
        self.known.get(name).copied()
    }

    /// The value of an expression. A product whose factors are not known by themselves is looked
    /// up as a whole.
    pub fn eval(&self, expr: &DimExpr) -> Result<i64, String> {
        let DimExpr::Bin(op, a, b) = expr else { return expr.eval(&|name| self.get(name)) };
        if let Some(value) = self.get(&expr.to_string()) {
            return Ok(value);
        }
        op.eval(self.eval(a)?, self.eval(b)?)
            .ok_or_else(|| format!("`{expr}` does not fit 64 bits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_known_as_a_whole_or_by_their_factors() {
        let product = parse_dim("B*H").unwrap();
        assert_eq!(product.to_string(), "(B * H)");
        let mut sizes = Sizes::default();
        assert!(sizes.eval(&product).is_err());
        sizes.known.insert("(B * H)".into(), 12);
        assert_eq!(sizes.eval(&product.clone().ceil_div(5)), Ok(3));
        assert_eq!(parse_dim("?"), None);
        assert_eq!(parse_dim("64"), Some(DimExpr::Const(64)));
    }
}
