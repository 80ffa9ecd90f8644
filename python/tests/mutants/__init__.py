"""Mutation testing: small faults are put into modules one at a time, and the tests must notice each.

`operators.py` lists the faults that a module can have, `plugin.py` runs the tests of a module against each of a sample,
`switch.py` does the same for a Rust crate. `groups.py` says which tests belong to which modules, `equivalent.txt` which faults change
nothing, and why. `docs/testing.md` has the scores. No file of the project is written.

    python -m mutants random --count 200 --seed 1
    python -m mutants random --only "_basic.py:unit"      those whose name begins so, all of them
"""
