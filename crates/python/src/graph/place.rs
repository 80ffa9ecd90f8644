//! Places in the user's source. Python makes one object for each place and keeps it: a traced loop
//! uses the same line many times.

use pyo3::prelude::*;
use std::sync::Arc;
use tessera_diag::{Loc, SourceFile};

/// The text of a file, which errors quote.
#[pyclass(frozen, module = "tessera._core")]
pub struct SourceText(Arc<SourceFile>);

#[tessera_entry::entry]
#[pymethods]
impl SourceText {
    #[new]
    fn new(name: &str, text: &str) -> Self {
        Self(SourceFile::new(name, text, 1))
    }
}

/// A range of source; columns are in characters, from 1.
#[pyclass(frozen, module = "tessera._core")]
pub struct Place(pub Loc);

#[tessera_entry::entry]
#[pymethods]
impl Place {
    #[new]
    fn new(source: &SourceText, line: u32, column: u32, end_line: u32, end_column: u32) -> Self {
        Self(Loc::span(&source.0, line, column, end_line, end_column))
    }

    #[getter]
    fn file(&self) -> Option<String> {
        self.0.file().map(|f| f.name.clone())
    }

    #[getter]
    fn line(&self) -> u32 {
        self.0.line()
    }

    fn __repr__(&self) -> String {
        match self.0.file() {
            Some(file) => format!("{}:{}", file.name, self.0.line()),
            None => "<unknown>".into(),
        }
    }
}

/// The place of an op, where Python knows one.
pub fn loc(place: Option<&Place>) -> Loc {
    place.map_or_else(Loc::unknown, |p| p.0.clone())
}
