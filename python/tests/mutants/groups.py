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
    tests: tuple[str, ...]

    def files(self) -> list[Path]:
        found = []
        for name in self.modules:
            path = PACKAGE / name
            found += sorted(path.glob("*.py")) if path.is_dir() else [path]
        return found


GROUPS = {
    "checkpoint": Group(
        ("_checkpoint.py", "_tree_format.py", "_tree_values.py", "_tree_classes.py", "_tree_leaves.py", "_safetensors.py", "_durable.py",
         "_json.py"),
        ("test_checkpoint.py", "test_checkpoint_hostile.py", "test_checkpoint_crash.py", "test_checkpoint_more.py"),
    ),
    # Without test_random_more.py, whose statistics take minutes: what survives here is looked for there by hand.
    "random": Group(("random",), ("test_random_exact.py",)),
    "optim": Group(("optim",), ("test_optim_exact.py", "test_optim_more.py", "test_training.py")),
    "numerics": Group(("numerics.py", "_profile.py"), ("test_numerics.py",)),
    "trees": Group(("tree.py", "_tree.py"), ("test_trees.py", "test_tree_names.py", "test_checkpoint.py")),
    "data": Group(("data.py",), ("test_data.py", "test_training.py")),
    "losses": Group(("_losses.py",), ("test_losses.py",)),
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
