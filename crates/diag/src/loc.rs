//! Places in the user's source. A [`Loc`] holds its file, so that an error can be shown long
//! after the compiler is done, and in another thread, without a table at hand.

use std::fmt;
use std::sync::Arc;

/// Source text as the user wrote it. `first_line` is the number of the first line of `text` in
/// its file: a kernel's source is often a part of one (a notebook cell, a function in a module).
#[derive(Debug, PartialEq, Eq)]
pub struct SourceFile {
    pub name: String,
    pub text: String,
    pub first_line: u32,
}

impl SourceFile {
    pub fn new(name: impl Into<String>, text: impl Into<String>, first_line: u32) -> Arc<Self> {
        Arc::new(Self { name: name.into(), text: text.into(), first_line })
    }

    /// The text of one line, by its number in the file.
    pub fn line(&self, number: u32) -> Option<&str> {
        self.text.lines().nth(number.checked_sub(self.first_line)? as usize)
    }
}

/// A range of source, 1-based lines and columns (in characters), end exclusive; with the function
/// it stands in and, inside an inlined function, the place of the call.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Loc(Option<Arc<LocData>>);

#[derive(PartialEq, Eq)]
struct LocData {
    file: Arc<SourceFile>,
    line: u32,
    column: u32,
    end_line: u32,
    end_column: u32,
    function: Option<Arc<str>>,
    call_site: Loc,
}

impl Loc {
    /// No place: something the compiler made that stands for no single piece of source.
    pub const fn unknown() -> Self {
        Self(None)
    }

    pub fn span(
        file: &Arc<SourceFile>,
        line: u32,
        column: u32,
        end_line: u32,
        end_column: u32,
    ) -> Self {
        Self(Some(Arc::new(LocData {
            file: file.clone(),
            line,
            column,
            end_line,
            end_column,
            function: None,
            call_site: Loc::unknown(),
        })))
    }

    /// The same range, said to be inside `function`, itself inlined at `call_site`.
    pub fn inside(&self, function: &Arc<str>, call_site: &Loc) -> Self {
        let Some(d) = &self.0 else { return Self(None) };
        Self(Some(Arc::new(LocData {
            file: d.file.clone(),
            line: d.line,
            column: d.column,
            end_line: d.end_line,
            end_column: d.end_column,
            function: Some(function.clone()),
            call_site: call_site.clone(),
        })))
    }

    /// Whether both are one piece of source, whatever called it.
    pub fn is_place_of(&self, other: &Loc) -> bool {
        let same_file = match (self.file(), other.file()) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
            _ => return self == other,
        };
        let span = |loc: &Loc| (loc.line(), loc.column(), loc.end());
        same_file && span(self) == span(other)
    }

    pub fn is_known(&self) -> bool {
        self.0.is_some()
    }
    pub fn file(&self) -> Option<&Arc<SourceFile>> {
        self.0.as_ref().map(|d| &d.file)
    }
    pub fn line(&self) -> u32 {
        self.0.as_ref().map_or(0, |d| d.line)
    }
    pub fn column(&self) -> u32 {
        self.0.as_ref().map_or(0, |d| d.column)
    }
    pub fn end(&self) -> (u32, u32) {
        self.0.as_ref().map_or((0, 0), |d| (d.end_line, d.end_column))
    }
    pub fn function(&self) -> Option<&Arc<str>> {
        self.0.as_ref().and_then(|d| d.function.as_ref())
    }
    /// Where the function that holds this place was called, if it was inlined.
    pub fn call_site(&self) -> Option<&Loc> {
        self.0.as_ref().map(|d| &d.call_site).filter(|l| l.is_known())
    }
}

impl fmt::Display for Loc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(d) => write!(f, "{}:{}:{}", d.file.name, d.line, d.column),
            None => write!(f, "unknown place"),
        }
    }
}

impl fmt::Debug for Loc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
