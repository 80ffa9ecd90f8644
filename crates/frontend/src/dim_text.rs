//! Dimensions as annotations write them: an integer, a symbol, `?`, a product such as `B*H`, and for
//! outputs expressions of `+ - * // %`, `min`, `max`, `cdiv` and parentheses.

use tessera_ir::{DimExpr, DimOp};

/// Parentheses that a dimension may have inside each other.
const MOST_DEPTH: usize = 64;

/// `None` for `?`.
pub fn parse_dim(text: &str) -> Option<DimExpr> {
    let text = text.trim();
    if text == "?" {
        return None;
    }
    let mut parser = Parser { rest: text, depth: 0 };
    let whole = parser.sum().filter(|_| parser.rest.trim().is_empty());
    // What is no expression has no size that an argument could give it.
    Some(whole.unwrap_or_else(|| DimExpr::sym(text)))
}

/// Whether a dimension is more than a number, a symbol or a product of those.
pub fn is_expression(dim: &DimExpr) -> bool {
    match dim {
        DimExpr::Const(_) | DimExpr::Sym(_) => false,
        DimExpr::Bin(DimOp::Mul, a, b) => is_expression(a) || is_expression(b),
        DimExpr::Bin(..) => true,
    }
}

/// A dimension in Python's words, with no more parentheses than it needs.
pub fn show_dim(dim: &DimExpr) -> String {
    shown(dim).0
}

/// The text, and how tightly its operator binds.
fn shown(dim: &DimExpr) -> (String, u8) {
    let DimExpr::Bin(op, a, b) = dim else { return (dim.to_string(), 3) };
    let (sign, level) = match op {
        DimOp::Add => (" + ", 1),
        DimOp::Sub => (" - ", 1),
        DimOp::Mul => ("*", 2),
        DimOp::FloorDiv => (" // ", 2),
        DimOp::Mod => (" % ", 2),
        DimOp::CeilDiv | DimOp::Min | DimOp::Max => {
            return (format!("{}({}, {})", op.text(), shown(a).0, shown(b).0), 3);
        }
    };
    let ((a, of_a), (b, of_b)) = (shown(a), shown(b));
    let a = if of_a < level { format!("({a})") } else { a };
    // Operators of one level go from left to right.
    let b = if of_b <= level && !(of_b == level && sign == "*" && !b.contains(' ')) {
        format!("({b})")
    } else {
        b
    };
    (format!("{a}{sign}{b}"), level)
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn eat(&mut self, sign: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn sum(&mut self) -> Option<DimExpr> {
        let mut out = self.product()?;
        loop {
            let op = match () {
                () if self.eat("+") => DimOp::Add,
                () if self.eat("-") => DimOp::Sub,
                () => return Some(out),
            };
            out = DimExpr::bin(op, out, self.product()?);
        }
    }

    fn product(&mut self) -> Option<DimExpr> {
        let mut out = self.factor()?;
        loop {
            let op = match () {
                () if self.eat("//") => DimOp::FloorDiv,
                () if self.eat("*") => DimOp::Mul,
                () if self.eat("%") => DimOp::Mod,
                () => return Some(out),
            };
            out = DimExpr::bin(op, out, self.factor()?);
        }
    }

    fn factor(&mut self) -> Option<DimExpr> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return None;
        }
        let out = self.factor_inside();
        self.depth -= 1;
        out
    }

    fn factor_inside(&mut self) -> Option<DimExpr> {
        if self.eat("-") {
            return Some(DimExpr::bin(DimOp::Sub, DimExpr::Const(0), self.factor()?));
        }
        if self.eat("(") {
            let inner = self.sum()?;
            return self.eat(")").then_some(inner);
        }
        let word = self.word()?;
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            // No array has an extent of more than 64 bits: a number is never a name.
            return Some(DimExpr::Const(word.parse().unwrap_or(i64::MAX)));
        }
        let op = match word {
            "min" => DimOp::Min,
            "max" => DimOp::Max,
            "cdiv" => DimOp::CeilDiv,
            name => return Some(DimExpr::sym(name)),
        };
        if !self.eat("(") {
            return Some(DimExpr::sym(word));
        }
        let mut out = self.sum()?;
        let mut count = 1;
        while self.eat(",") {
            out = DimExpr::bin(op, out, self.sum()?);
            count += 1;
        }
        let arity = if op == DimOp::CeilDiv { count == 2 } else { count >= 2 };
        (self.eat(")") && arity).then_some(out)
    }

    fn word(&mut self) -> Option<&'a str> {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }
}
