//! Parsed Python: the syntax tree of one function, and the way from its positions back to the
//! user's file. The text may be indented (a method, a function in a function); it is moved to the
//! left for the parser, and columns are moved back when a place is reported.

use ruff_python_ast::{Expr, ExprLambda, Identifier, Stmt, StmtFunctionDef, StmtReturn};
use ruff_text_size::{Ranged, TextRange};
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Loc, SourceFile};

#[derive(Debug)]
pub struct Parsed {
    pub file: Arc<SourceFile>,
    pub def: StmtFunctionDef,
    text: String,
    line_starts: Vec<usize>,
    /// How many characters each line was moved to the left.
    moved: Vec<u32>,
}

/// Takes the indentation of the first line off every line that has it.
fn dedent(text: &str) -> (String, Vec<u32>) {
    let first = text.lines().find(|l| !l.trim().is_empty()).unwrap_or("");
    let indent = &first[..first.len() - first.trim_start().len()];
    let mut out = String::with_capacity(text.len());
    let mut moved = Vec::new();
    for line in text.split_inclusive('\n') {
        match line.strip_prefix(indent) {
            Some(rest) => {
                out.push_str(rest);
                moved.push(indent.chars().count() as u32);
            }
            None => {
                out.push_str(line);
                moved.push(0);
            }
        }
    }
    moved.push(0);
    (out, moved)
}

/// A `lambda` as the function that returns its value.
fn function_of(lambda: ExprLambda) -> StmtFunctionDef {
    let ExprLambda { node_index, range, parameters, body } = lambda;
    let at = body.range();
    let value = StmtReturn { node_index: node_index.clone(), range: at, value: Some(body) };
    StmtFunctionDef {
        node_index,
        range,
        is_async: false,
        decorator_list: Default::default(),
        name: Identifier::new("lambda", range),
        type_params: None,
        parameters: parameters.unwrap_or_default(),
        returns: None,
        body: std::iter::once(Stmt::Return(value)).collect(),
    }
}

impl Parsed {
    pub fn new(file: &Arc<SourceFile>) -> Result<Self, Diagnostic> {
        let (text, moved) = dedent(&file.text);
        let line_starts =
            std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
        let place = Places { file, text: &text, line_starts: &line_starts, moved: &moved };
        let module = ruff_python_parser::parse_module(&text).map_err(|e| {
            Diagnostic::new(Code::E_SYNTAX, format!("the source is not valid Python: {}", e.error))
                .help("Python's own grammar holds inside a kernel")
                .at(place.loc(e.location))
        })?;
        let body = module.into_syntax().body;
        let mut defs = body.into_iter().filter_map(|s| match s {
            Stmt::FunctionDef(def) => Some(def),
            Stmt::Expr(s) => match *s.value {
                Expr::Lambda(lambda) => Some(function_of(lambda)),
                _ => None,
            },
            _ => None,
        });
        let Some(def) = defs.next() else {
            return Err(Diagnostic::new(
                Code::E_SYNTAX,
                "expected the source of a function (`def …`)",
            )
            .at(Loc::span(file, file.first_line, 1, file.first_line, 2))
            .help("decorate a function defined with `def`"));
        };
        if def.is_async {
            return Err(Diagnostic::new(Code::E_SYNTAX, "expected a plain `def`, got `async def`")
                .help("write `def`: a launch is asynchronous by itself on a GPU")
                .at(place.loc(def.range())));
        }
        Ok(Self { file: file.clone(), def, text, line_starts, moved })
    }

    pub fn loc(&self, range: TextRange) -> Loc {
        Places {
            file: &self.file,
            text: &self.text,
            line_starts: &self.line_starts,
            moved: &self.moved,
        }
        .loc(range)
    }

    /// The source of a piece, as the user wrote it, on one line.
    pub fn snippet(&self, range: TextRange) -> String {
        let text = &self.text[range.start().to_usize()..range.end().to_usize()];
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

struct Places<'a> {
    file: &'a Arc<SourceFile>,
    text: &'a str,
    line_starts: &'a Vec<usize>,
    moved: &'a [u32],
}

impl Places<'_> {
    fn loc(&self, range: TextRange) -> Loc {
        let place = |offset: usize| {
            let offset = offset.min(self.text.len());
            let line = self.line_starts.partition_point(|&s| s <= offset) - 1;
            let column = self.text[self.line_starts[line]..offset].chars().count() as u32 + 1;
            let moved = self.moved.get(line).copied().unwrap_or(0);
            (line as u32 + self.file.first_line, column + moved)
        };
        let ((line, column), (end_line, end_column)) =
            (place(range.start().to_usize()), place(range.end().to_usize()));
        Loc::span(self.file, line, column, end_line, end_column)
    }
}
