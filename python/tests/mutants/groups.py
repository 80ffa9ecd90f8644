"""Which modules are tested together, and by which tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parents[1]
PACKAGE = ROOT / "python" / "tessera"


@dataclass(frozen=True)
class Group:
    #: Relative to `python/tessera`; a folder stands for its modules.
    modules: tuple[str, ...]
    #: Files, or single tests as pytest names them.
    tests: tuple[str, ...]

    def files(self) -> list[Path]:
        found = []
        for name in self.modules:
            path = PACKAGE / name
            found += sorted(path.glob("*.py")) if path.is_dir() else [path]
        return found


GROUPS = {
    "checkpoint": Group(
        ("checkpoint",),
        # Of the crashes those in one process: others are not run with the fault.
        ("test_checkpoint.py", "test_checkpoint_hostile.py", "test_checkpoint_more.py", *(f"test_checkpoint_crash.py::test_{name}" for name in (
            "a_power_cut_leaves_the_old_file_or_the_new_one", "the_power_cuts_find_what_is_missing",
            "a_failure_of_any_operation_leaves_the_old_file_and_nothing_else", "a_failed_sync_of_the_folder_is_reported_and_leaves_the_new_file",
            "an_interrupt_leaves_nothing_beside_the_file", "temporaries_are_new_files_of_the_owner_beside_the_target",
            "a_link_is_replaced_and_what_it_leads_to_is_not_written", "relative_paths_and_long_names"))),
    ),
    # Of test_random_more.py what takes no statistics: those are minutes.
    "random": Group(("random",), ("test_random_exact.py", *(f"test_random_more.py::{name}" for name in (
        "test_parameters_that_are_none", "test_an_element_does_not_depend_on_the_parameters_of_others", "test_keys_are_a_type", "test_key_data_and_back",
        "test_keys_go_through_every_transform", "test_bare_keys_keep_working", "test_keys_that_are_none", "test_choice", "test_permutations", "test_classes",
        "test_ranges_that_are_arrays", "test_narrow_floats_stay_below_one", "test_derivatives_by_parameters_of_formulas")))),
    "optim": Group(("optim",), ("test_optim_exact.py", "test_optim_more.py", "test_training.py")),
    "numerics": Group(("numerics.py", "base/numeric_profile.py"), ("test_numerics.py",)),
    "trees": Group(("tree",), ("test_trees.py", "test_tree_names.py", "test_checkpoint.py")),
    "data": Group(("data.py",), ("test_data.py", "test_training.py")),
    "losses": Group(("nn/_losses.py",), ("test_losses.py",)),
}  # fmt: skip


def equivalent() -> dict[str, str]:
    """Faults that change nothing: their names, and why. A line with a name, then an indented one with the reason."""
    found, name = {}, ""
    for line in (Path(__file__).parent / "equivalent.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            found[name] = line.strip()
        elif line and not line.startswith("#"):
            name = line
            found[name] = ""
    return found
