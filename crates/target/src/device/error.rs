//! What a device reports when it cannot.

use std::fmt;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};

/// A call of a platform's driver that failed, or what was refused before one.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceError {
    /// Whether every later call on the device fails, in this process.
    pub lost: bool,
    diagnostic: Box<Diagnostic>,
}

impl DeviceError {
    pub fn new(diagnostic: Diagnostic) -> Self {
        Self { lost: false, diagnostic: Box::new(diagnostic) }
    }

    /// One after which the device takes nothing more from this process.
    pub fn lost(diagnostic: Diagnostic) -> Self {
        Self { lost: true, diagnostic: Box::new(diagnostic) }
    }

    /// The same from a box that there is.
    pub fn boxed(diagnostic: Box<Diagnostic>, lost: bool) -> Self {
        Self { lost, diagnostic }
    }

    pub fn code(&self) -> Code {
        self.diagnostic.code
    }

    pub fn diagnostic(&self) -> &Diagnostic {
        &self.diagnostic
    }

    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.diagnostic.notes.push(text.into());
        self
    }

    /// The same error of a kernel's launch: where the kernel stands and what it was called with.
    pub fn at_launch(mut self, kernel: &str, loc: &Loc, args: &str) -> Self {
        let diagnostic = &mut self.diagnostic;
        if !diagnostic.loc.is_known() {
            diagnostic.loc = loc.clone();
        }
        diagnostic.notes.push(format!("in the launch of `{kernel}`"));
        if !args.is_empty() {
            diagnostic.notes.push(format!("its arguments: {args}"));
        }
        if self.lost {
            let doubt = "launches before it that were not waited for may be the cause";
            diagnostic.notes.push(doubt.into());
        }
        self
    }
}

impl From<Diagnostic> for DeviceError {
    fn from(diagnostic: Diagnostic) -> Self {
        Self::new(diagnostic)
    }
}

impl From<DeviceError> for Diagnostic {
    fn from(error: DeviceError) -> Self {
        *error.diagnostic
    }
}

impl From<DeviceError> for Diagnostics {
    fn from(error: DeviceError) -> Self {
        Diagnostic::from(error).into()
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.diagnostic.fmt(f)
    }
}

impl std::error::Error for DeviceError {}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_diag::SourceFile;

    #[test]
    fn an_error_of_a_launch_names_kernel_place_and_arguments() {
        let file = SourceFile::new("k.py", "y[i] = x[i]\n", 3);
        let loc = Loc::span(&file, 3, 1, 3, 5);
        let fault = Diagnostic::new(Code::E_ILLEGAL_ADDRESS, "no memory is there");
        let text =
            DeviceError::lost(fault).at_launch("copy", &loc, "x: f32[8] on cuda:0").to_string();
        for part in [
            "error[E_ILLEGAL_ADDRESS]: no memory is there",
            "k.py:3:1",
            "in the launch of `copy`",
            "its arguments: x: f32[8] on cuda:0",
            "may be the cause",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
}
