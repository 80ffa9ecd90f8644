//! One diagnostic, and a list of them.

use crate::{Code, Kind, Loc, Severity};

/// A second place that matters, with a word on why.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    pub loc: Loc,
    pub text: String,
}

/// `message` is the one line to show if only one can be: "expected X, got Y".
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostic {
    pub code: Code,
    pub message: String,
    pub loc: Loc,
    pub labels: Vec<Label>,
    pub notes: Vec<String>,
    pub help: Option<String>,
}

impl Diagnostic {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            loc: Loc::unknown(),
            labels: Vec::new(),
            notes: Vec::new(),
            help: None,
        }
    }

    pub fn at(mut self, loc: Loc) -> Self {
        self.loc = loc;
        self
    }

    pub fn label(mut self, loc: Loc, text: impl Into<String>) -> Self {
        self.labels.push(Label { loc, text: text.into() });
        self
    }

    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// What to write instead.
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    /// Its own help, or what the code says for all its errors.
    pub fn fix(&self) -> Option<&str> {
        self.help.as_deref().or_else(|| self.code.general_help())
    }

    pub fn severity(&self) -> Severity {
        self.code.severity()
    }
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.render())
    }
}

/// Several diagnostics: what a stage that goes on after an error hands back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnostics {
    items: Vec<Diagnostic>,
    /// How a host raises them, where it is not by the first error's code.
    kind: Option<Kind>,
}

impl Diagnostics {
    pub fn new() -> Self {
        Self::default()
    }

    /// The same message at the same place is kept once: two paths to one mistake are one mistake,
    /// also where they are two calls of the function that it is in.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let is_reported = |reported: &Diagnostic| {
            let same_words = (reported.code, &reported.message, &reported.labels, &reported.help)
                == (diagnostic.code, &diagnostic.message, &diagnostic.labels, &diagnostic.help);
            same_words && reported.loc.is_place_of(&diagnostic.loc)
        };
        if !self.items.iter().any(is_reported) {
            self.items.push(diagnostic);
        }
    }

    pub fn extend(&mut self, more: impl IntoIterator<Item = Diagnostic>) {
        more.into_iter().for_each(|d| self.push(d));
    }

    pub fn has_errors(&self) -> bool {
        self.errors().next().is_some()
    }

    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.items.iter().filter(|d| d.severity() == Severity::Error)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.items.iter()
    }

    /// The same diagnostics with the first error changed: what concerns all of them is said once.
    pub fn with_first(mut self, change: impl FnOnce(Diagnostic) -> Diagnostic) -> Self {
        let first = self.items.iter().position(|d| d.severity() == Severity::Error);
        if let Some(place) = first {
            let found = self.items[place].clone();
            self.items[place] = change(found);
        }
        self
    }

    /// The same diagnostics, with a fix for those that name none.
    pub fn or_help(mut self, help: &str) -> Self {
        for d in self.items.iter_mut().filter(|d| d.fix().is_none()) {
            d.help = Some(help.to_string());
        }
        self
    }

    /// The same diagnostics, raised as another kind: what a checker found is a check's error,
    /// whatever each finding's code.
    pub fn raised_as(mut self, kind: Kind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// The same from inside a kernel: there `E_ARGUMENT` is no fault of a launch but of the body that
    /// was read (`Kind::Type`) or of the code that ran (`Kind::Check`).
    pub fn inside_kernel(self, kind: Kind) -> Self {
        let first = self.errors().next().map(|d| d.code);
        if self.kind.is_none() && first == Some(crate::Code::E_ARGUMENT) {
            return self.raised_as(kind);
        }
        self
    }

    /// The exception class that a host raises: that of the first error, unless one was set.
    pub fn kind(&self) -> Option<Kind> {
        self.kind.or_else(|| self.errors().next().map(|d| d.code.kind()))
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// `Err(self)` when an error is among them.
    pub fn into_result(self) -> Result<Diagnostics, Diagnostics> {
        if self.has_errors() { Err(self) } else { Ok(self) }
    }

    /// In the order of the source, errors of unknown place last; stable for equal places.
    pub fn sorted(mut self) -> Self {
        self.items.sort_by_key(|d| (!d.loc.is_known(), d.loc.line(), d.loc.column()));
        self
    }

    pub fn render(&self) -> String {
        self.items.iter().map(Diagnostic::render).collect::<Vec<_>>().join("\n")
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Self { items: vec![diagnostic], kind: None }
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;
    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl std::fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.render())
    }
}
