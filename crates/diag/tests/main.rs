//! Diagnostics as text and as JSON.

use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc, SourceFile};

#[test]
fn json_escapes_and_nests() {
    let file = SourceFile::new("a\"b.py", "x\n", 1);
    let d = Diagnostic::new(Code::E_NAME, "line\nbreak").at(Loc::span(&file, 1, 1, 1, 2));
    let text = d.to_json();
    assert!(text.contains(r#""message":"line\nbreak""#), "{text}");
    assert!(text.contains(r#""file":"a\"b.py""#), "{text}");
    assert!(text.contains(r#""help":null"#), "{text}");
}

#[test]
fn render_shows_line_carets_chain_notes_and_help() {
    let file = SourceFile::new("k.py", "def f(x):\n    return x + y\nz = f(1)\n", 5);
    let call = Loc::span(&file, 7, 5, 7, 9);
    let inner = Loc::span(&file, 6, 16, 6, 17).inside(&Arc::from("f"), &call);
    let d = Diagnostic::new(Code::E_NAME, "`y` is not defined")
        .at(inner)
        .note("a\nb")
        .help("define `y`");
    let expected = "\
error[E_NAME]: `y` is not defined
  --> k.py:6:16 in `f`
   6 |     return x + y
     |                ^
  --> k.py:7:5
   7 | z = f(1)
     |     ^^^^ `f` is called here
  = note: a
          b
  = help: define `y`";
    assert_eq!(d.render(), expected);
}

#[test]
fn equal_diagnostics_are_kept_once_and_sorted_by_place() {
    let file = SourceFile::new("k.py", "a\nb\n", 1);
    let at = |line| Diagnostic::new(Code::E_NAME, "no").at(Loc::span(&file, line, 1, line, 2));
    let mut all = Diagnostics::new();
    all.extend([at(2), at(1), at(2)]);
    let lines: Vec<_> = all.sorted().iter().map(|d| d.loc.line()).collect();
    assert_eq!(lines, [1, 2]);
}

#[test]
fn range_past_the_line_does_not_break_rendering() {
    let file = SourceFile::new("k.py", "ab\n", 1);
    let d = Diagnostic::new(Code::E_NAME, "no").at(Loc::span(&file, 1, 9, 1, 30));
    assert!(d.render().contains("ab"));
    let d = Diagnostic::new(Code::E_NAME, "no").at(Loc::span(&file, 90, 9, 91, 30));
    assert!(d.render().contains("k.py:90:9"));
}
