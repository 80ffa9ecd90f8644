//! The parser's part for types and dimension expressions.

use crate::cursor::Parsed;
use crate::parse::{MAX_DEPTH, Parser};
use crate::{Dim, DimExpr, DimOp, Privilege, Shape, Type};
use std::sync::Arc;
use tessera_diag::Code;
use tessera_numerics::{DType, NumType};

impl Parser<'_, '_> {
    pub fn expr(&mut self) -> Parsed<DimExpr> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.c.error(format!("expected at most {MAX_DEPTH} nested expressions")));
        }
        let expr = self.expr_inner();
        self.depth -= 1;
        expr
    }

    fn expr_inner(&mut self) -> Parsed<DimExpr> {
        if let Some(v) = self.c.int() {
            return Ok(DimExpr::Const(v));
        }
        if self.c.eat("(") {
            let a = self.expr()?;
            let op = DimOp::ALL[..3].iter().find(|op| self.c.eat(op.text()));
            let Some(&op) = op else { return self.c.expected("`+`, `-` or `*`") };
            let b = self.expr()?;
            self.c.expect(")")?;
            // Kept as written: folding here would make the text read differently when printed.
            return Ok(DimExpr::Bin(op, Arc::new(a), Arc::new(b)));
        }
        let Some(word) = self.c.word() else { return self.c.expected("a dimension") };
        if !self.c.rest().starts_with('(') {
            return Ok(DimExpr::sym(word));
        }
        let Some(&op) = DimOp::ALL[3..].iter().find(|op| op.text() == word) else {
            return Err(self
                .c
                .error(format!("expected one of cdiv floordiv mod min max, got `{word}`")));
        };
        self.c.expect("(")?;
        let a = self.expr()?;
        self.c.expect(",")?;
        let b = self.expr()?;
        self.c.expect(")")?;
        Ok(DimExpr::Bin(op, Arc::new(a), Arc::new(b)))
    }

    pub fn ty(&mut self) -> Parsed<Type> {
        let Some(word) = self.c.word() else { return self.c.expected("a type") };
        match word {
            "tile" | "buf" => {
                self.c.expect("<")?;
                let (shape, dtype) = if self.c.peek() == Some('[') {
                    let shape = self.dims()?;
                    self.c.expect(",")?;
                    (shape, self.dtype()?)
                } else {
                    self.sized()?
                };
                self.c.expect(">")?;
                Ok(if word == "tile" {
                    Type::Tile { shape, dtype }
                } else {
                    Type::Buf { shape, dtype }
                })
            }
            "view" | "tensor" => {
                self.c.expect("<")?;
                let dims = self.dims()?;
                self.c.expect(",")?;
                let elem = self.num_type()?;
                if word == "tensor" {
                    self.c.expect(">")?;
                    return Ok(Type::Tensor { dims, elem });
                }
                self.c.expect(",")?;
                let Some(word) = self.c.word() else { return self.c.expected("a privilege") };
                let Some(privilege) = Privilege::parse(word) else {
                    return Err(self.c.error(format!("expected a privilege, got `{word}`")));
                };
                self.c.expect(">")?;
                Ok(Type::View { dims, elem, privilege })
            }
            word => match DType::parse(word) {
                Some(d) => Ok(Type::Scalar(d)),
                None => Err(self.c.error(format!("expected a type, got `{word}`"))),
            },
        }
    }

    /// `64x32xbf16`
    fn sized(&mut self) -> Parsed<(Shape, DType)> {
        let mut shape = Vec::new();
        while self.c.peek().is_some_and(|c| c.is_ascii_digit()) {
            match self.c.int() {
                Some(v) => shape.push(Dim::Static(v)),
                None => return self.c.expected("an extent below 2^63"),
            }
            self.c.expect("x")?;
        }
        Ok((shape, self.dtype()?))
    }

    fn dims(&mut self) -> Parsed<Shape> {
        self.c.expect("[")?;
        let mut dims = Vec::new();
        if self.c.eat("]") {
            return Ok(dims);
        }
        loop {
            dims.push(if self.c.eat("?") { Dim::Any } else { Dim::from(self.expr()?) });
            if !self.c.eat(",") {
                self.c.expect("]")?;
                return Ok(dims);
            }
        }
    }

    fn dtype(&mut self) -> Parsed<DType> {
        let Some(word) = self.c.word() else { return self.c.expected("a dtype") };
        DType::parse(word).ok_or_else(|| {
            let mut e = self.c.error(format!("expected a dtype, got `{word}`"));
            e.code = Code::E_UNSUPPORTED_DTYPE;
            e
        })
    }

    /// A dtype with its policy items: the text up to the next `,` or `>` outside parentheses.
    fn num_type(&mut self) -> Parsed<NumType> {
        self.c.skip_space();
        let rest = self.c.rest();
        let mut depth = 0;
        let mut len = rest.len();
        for (i, ch) in rest.char_indices() {
            match ch {
                '(' => depth += 1,
                ')' => depth -= 1,
                ',' | '>' | '\n' if depth == 0 => {
                    len = i;
                    break;
                }
                _ => {}
            }
        }
        let text = rest[..len].trim();
        let parsed = text.parse::<NumType>().map_err(|why| {
            let mut e = self.c.error(why.to_string());
            e.code = Code::E_UNSUPPORTED_DTYPE;
            e
        })?;
        self.c.set_pos(self.c.pos() + len);
        Ok(parsed)
    }
}
