//! Where a parameter stands in the source of its kernel, for errors about arguments.

use std::sync::Arc;
use tessera_diag::{Loc, SourceFile};

/// The name of the function in its `def` line.
pub fn of_function(file: &Arc<SourceFile>, name: &str) -> Loc {
    let start = file.text.find(&format!("def {name}")).map(|at| at + 4);
    start.map_or(Loc::unknown(), |at| span(file, at, name.len()))
}

/// The parameter in the signature; the function's name if it is not found there.
pub fn of_param(file: &Arc<SourceFile>, function: &str, param: &str) -> Loc {
    let Some(start) = file.text.find(&format!("def {function}")).map(|at| at + 4 + function.len())
    else {
        return Loc::unknown();
    };
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    for (offset, _) in file.text[start..].match_indices(param) {
        let at = start + offset;
        let before = file.text[..at].trim_end().chars().next_back();
        let after = file.text[at + param.len()..].chars().next();
        // A parameter follows the parenthesis or a comma; an annotation or a string never does so
        // with this very name before a colon, comma, sign of equality or the end.
        let rest = file.text[at + param.len()..].trim_start();
        let glued = file.text[..at].chars().next_back().is_some_and(part_of_name)
            || after.is_some_and(part_of_name);
        if !glued
            && matches!(before, Some('(' | ',' | '*'))
            && rest.starts_with([':', ',', '=', ')'])
        {
            return span(file, at, param.len());
        }
    }
    of_function(file, function)
}

fn span(file: &Arc<SourceFile>, at: usize, len: usize) -> Loc {
    let before = &file.text[..at];
    let line = file.first_line + before.matches('\n').count() as u32;
    let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) as u32 + 1;
    Loc::span(file, line, column, line, column + len as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_in_the_signature() {
        let text = "@ts.kernel\ndef f(x: T[\"n\", a],\n      alpha: f32 = 1.0, n=2): pass\n";
        let file = SourceFile::new("k.py", text, 10);
        let at = |name| {
            let loc = of_param(&file, "f", name);
            (loc.line(), loc.column())
        };
        assert_eq!(at("x"), (11, 7));
        assert_eq!(at("alpha"), (12, 7));
        assert_eq!(at("n"), (12, 25));
        assert_eq!(at("missing"), (11, 5));
    }
}
