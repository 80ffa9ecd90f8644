//! What the code answers to one question about an op, and how several answers become one cell.

use tessera_diag::Diagnostics;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Answer {
    Yes,
    /// Yes in this way only.
    Only(&'static str),
    /// The code of the refusal.
    Refused(&'static str),
}

impl Answer {
    pub fn refused(errors: &Diagnostics) -> Self {
        Self::Refused(errors.iter().next().map_or("an error", |d| d.code.name()))
    }

    pub fn is_yes(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }

    pub fn cell(&self) -> String {
        match self {
            Self::Yes => "yes".to_string(),
            Self::Only(word) => (*word).to_string(),
            Self::Refused(code) => format!("`{code}`"),
        }
    }
}

/// The best of the answers to several examples; none without an example.
pub fn best(answers: impl IntoIterator<Item = Answer>) -> Option<Answer> {
    answers.into_iter().min()
}
