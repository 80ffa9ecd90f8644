//! The parser's part for types and dimension expressions.

use crate::cursor::Parsed;
use crate::parse::{MAX_DEPTH, Parser};
use crate::{Dim, DimExpr, DimOp, Field, Privilege, Shape, Type};
use std::sync::Arc;
use tessera_diag::Code;
use tessera_layout::{Layout, LayoutError, Shared};
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
                if word == "tile" && self.c.eat(",") {
                    let layout = self.layout(&shape, Layout::parse)?;
                    self.c.expect(">")?;
                    return Ok(Type::Frag { shape, dtype, layout });
                }
                self.c.expect(">")?;
                Ok(if word == "tile" {
                    Type::Tile { shape, dtype }
                } else {
                    Type::Buf { shape, dtype }
                })
            }
            "smem" => {
                self.c.expect("<")?;
                let (shape, dtype) = self.sized()?;
                self.c.expect(",")?;
                let layout = self.shared(&shape, dtype)?;
                self.c.expect(">")?;
                Ok(Type::Smem { shape, dtype, layout })
            }
            "pipeline" => {
                self.c.expect("<")?;
                let Some(stages) = self.c.int().and_then(|n| u32::try_from(n).ok()) else {
                    return self.c.expected("a number of stages");
                };
                self.c.expect(";")?;
                Ok(Type::Pipeline { stages, fields: self.fields()? })
            }
            "stage" => {
                self.c.expect("<")?;
                Ok(Type::Stage { fields: self.fields()? })
            }
            "pending" => {
                self.c.expect("<")?;
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(self.c.error(format!("expected at most {MAX_DEPTH} nested types")));
                }
                let tile = self.ty()?;
                self.depth -= 1;
                self.c.expect(">")?;
                Ok(Type::pending(tile))
            }
            "order_barrier" => Ok(Type::OrderBarrier),
            "event" => Ok(Type::Event),
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

    /// `a: 128x64xbf16 #[…], b: …>`
    fn fields(&mut self) -> Parsed<Vec<Field>> {
        let mut fields: Vec<Field> = Vec::new();
        loop {
            let Some(name) = self.c.word() else { return self.c.expected("the name of a field") };
            if fields.iter().any(|f| f.name == name) {
                return Err(self.c.error(format!("expected a new field, got `{name}` again")));
            }
            self.c.expect(":")?;
            let (shape, dtype) = self.sized()?;
            let layout = self.shared(&shape, dtype)?;
            fields.push(Field { name: name.to_string(), shape, dtype, layout });
            if !self.c.eat(",") {
                self.c.expect(">")?;
                return Ok(fields);
            }
        }
    }

    fn shared(&mut self, shape: &[Dim], dtype: DType) -> Parsed<Arc<Shared>> {
        let bytes = dtype.bytes() as u32;
        let layout = self.layout(shape, |text, shape| Shared::parse(text, shape, bytes))?;
        // Offsets are 32-bit numbers; what no memory holds is refused before anyone computes them.
        if !fits_32_bits(&layout) {
            return Err(self.c.error("expected shared memory of less than 2^31 bytes"));
        }
        Ok(layout)
    }

    /// `#[…]`, which the layout itself reads.
    fn layout<T>(
        &mut self,
        shape: &[Dim],
        parse: impl Fn(&str, &[u32]) -> Result<T, LayoutError>,
    ) -> Parsed<Arc<T>> {
        if self.c.peek() != Some('#') {
            return self.c.expected("a layout `#[…]`");
        }
        let extent = |d: &Dim| d.as_static().and_then(|d| u32::try_from(d).ok()).filter(|&d| d > 0);
        let Some(shape) = shape.iter().map(extent).collect::<Option<Vec<_>>>() else {
            return Err(self.c.error("expected known extents of 1 or more before a layout"));
        };
        let rest = self.c.rest();
        let mut depth = 0;
        let end = rest.char_indices().find_map(|(i, c)| {
            depth += i32::from(c == '[') - i32::from(c == ']');
            (c == '\n' || (c == ']' && depth == 0)).then_some(i + 1)
        });
        let Some(end) = end else { return self.c.expected("`]` at the end of the layout") };
        let layout = parse(&rest[1..end], &shape).map_err(|why| self.c.error(why.to_string()))?;
        self.c.set_pos(self.c.pos() + end);
        Ok(Arc::new(layout))
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

fn fits_32_bits(layout: &Shared) -> bool {
    let Some(&fast) = layout.order.first() else { return true };
    let extent = u64::from(layout.shape[fast]);
    let panel = layout.panel.map_or(extent, u64::from);
    let row =
        (panel + u64::from(layout.pad)) * extent.div_ceil(panel) * u64::from(layout.elem_bytes);
    let slow = layout.order[1..].iter().map(|&dim| u64::from(layout.shape[dim]));
    slow.into_iter().try_fold(row, u64::checked_mul).is_some_and(|bytes| bytes < 1 << 31)
}
