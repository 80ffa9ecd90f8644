"""The tools of `make mutants`: which faults they find, and that each is what its name says."""

import ast
import textwrap

import pytest
from mutants import groups, operators, rust_slots, switch

SOURCE = textwrap.dedent('''
    """Doc 1."""
    __all__ = ["f", 2]
    LIMIT = 3

    def f(x: "int > 2", y=1.5, *, z=False):
        """Doc 2."""
        if not x or y < LIMIT:
            raise ValueError(f"more than {LIMIT + 1}")
        total = 0
        for item in [i for i in x if i]:
            if item:
                continue
            total += item * 2
        return -total if z else g(total)[0]
''')


def test_faults_of_python():
    found = operators.mutants("m.py", SOURCE)
    changes = [(m.place, m.before, m.after) for m in found]
    for wanted in [
        ("<module>", "LIMIT = 3", "LIMIT = 4"), ("f", "y < LIMIT", "y <= LIMIT"), ("f", "y < LIMIT", "not y < LIMIT"), ("f", "not x or y < LIMIT", "not x and y < LIMIT"),
        ("f", "not x", "x"), ("f", "total = 0", "total = 1"), ("f", "total = 0", "total = -1"), ("f", "continue", "break"), ("f", "total += item * 2", "pass"),
        ("f", "item * 2", "item / 2"), ("f", "item", "not item"), ("f", "i", "True"), ("f", "-total", "total"), ("f", "g(total)[0]", "g(total)[1]"),
        ("f", "return -total if z else g(total)[0]", "return None"), ("f", "-total if z else g(total)[0]", "g(total)[0] if z else -total"),
    ]:  # fmt: skip
        assert wanted in changes, wanted
    texts = [m.before for m in found]
    assert not any("Doc" in text or "__all__" in text or "int >" in text or text == "LIMIT + 1" for text in texts)
    assert len({m.name for m in found}) == len(found)
    for m in found:
        tree = operators.mutated(SOURCE, m.at)
        compile(tree, "m.py", "exec")
        assert ast.dump(tree) != ast.dump(ast.parse(SOURCE)), m.name
    # Defaults and tables are made while the module is imported.
    assert {m.in_function for m in found if m.after in ("LIMIT = 4", "True") and m.place != "f"} == {False}


def test_groups_name_files_that_are_there():
    for name, group in groups.GROUPS.items():
        assert group.files() and all(path.exists() for path in group.files()), name
        assert all((groups.TESTS / test.partition("::")[0]).exists() for test in group.tests), name


def test_equivalent_faults_have_reasons_and_exist():
    names = {m.name for group in groups.GROUPS.values() for path in group.files()
             for m in operators.mutants(str(path.relative_to(groups.PACKAGE)), path.read_text())}  # fmt: skip
    names |= {m.name.rpartition(" [")[0] for crate in switch.CRATES for m in switch.Crate(crate).mutants}
    for name, reason in groups.equivalent().items():
        assert reason, f"no reason for {name}"
        assert name in names, f"there is no such fault any more: {name}"


RUST = """
const N: usize = 4;
const fn c(x: u32) -> u32 { x + 1 }
#[cfg(test)]
mod tests { fn t() { assert!(1 + 1 == 2); } }
fn f(xs: &[i64], on: bool) -> Option<i64> {
    let mut sum = 0;
    for x in xs.iter() {
        if *x > 2 && !on {
            sum += x * 3;
        }
    }
    note(sum);
    let Some(first) = xs.first() else { return None };
    match first {
        0 => Some(1),
        n if on => Some(n - 1),
        _ => {
            let g = |a: i64| { a + 7 };
            Some(g(sum))
        }
    }
}
"""


def changes(text):
    return {(text[f.start : f.end], f.after, s.kind) for s in rust_slots.all_of(rust_slots.Reader(text).read()) for f in s.faults}


def test_faults_of_rust():
    found = changes(RUST)
    for wanted in [
        (">", ">=", "condition"), ("&&", "||", "condition"), ("!", "", "condition"), ("2", "3", "condition"), ("0", "1", "value"), ("1", "0", "value"),
        ("-", "+", "value"), ("on", "!(on)", "condition"), ("+", "-", "value"), ("7", "8", "value"), ("", "None", "entry"),
        ("sum += x * 3;", "", "statement"), ("note(sum);", "", "statement"),
    ]:  # fmt: skip
        assert wanted in found, wanted
    shown = " ".join(a for a, _, _ in found)
    # Constants, tests and references are left alone.
    assert "assert" not in shown and ("4", "5", "value") not in found and ("*", "+", "condition") not in found


def test_a_switch_is_behind_its_number_and_nests():
    slots = rust_slots.Reader(RUST).read()
    every = [f for s in rust_slots.all_of(slots) for f in s.faults]
    for number, fault in enumerate(every, 1):
        fault.number = number
    made = switch.rendered(RUST, slots, 0, len(RUST))
    for number in range(1, len(every) + 1):
        assert made.count(f"crate::__mutant({number})") >= 1, every[number - 1]
    assert made.count("{") == made.count("}") and made.count("(") == made.count(")")
    for fault in every:
        fault.number = 0
    assert switch.rendered(RUST, slots, 0, len(RUST)) == RUST


@pytest.mark.parametrize("crate", switch.CRATES)
def test_crates_have_faults(crate):
    made = switch.Crate(crate)
    assert len(made.mutants) > 200
    assert [m.name for m in made.choose(5, 1)] == [m.name for m in switch.Crate(crate).choose(5, 1)]
