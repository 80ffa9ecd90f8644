"""Runs tests with one faulty module: `python -m mutants.imported MODULE AT REPORT TESTS…`, with its source as the input. Exits with 0 where
all pass."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import pytest

from .groups import PACKAGE
from .operators import mutated


class Faulty(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """Finds the one module, and makes it of the changed tree."""

    def __init__(self, path: Path, at: int, source: str) -> None:
        parts = ("tessera", *path.relative_to(PACKAGE).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        super().__init__(name, str(path))
        self.at, self.source = at, source

    def find_spec(self, fullname, path=None, target=None):
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self) if fullname == self.name else None

    def get_code(self, fullname):
        return compile(mutated(self.source, self.at) if self.at >= 0 else self.source, self.path, "exec")


class First:
    """Tests in the order of the command line, and the name of the one that runs."""

    def __init__(self, report: Path, order: list[str]) -> None:
        self.report, self.order = report, {nodeid: i for i, nodeid in enumerate(order)}

    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if item.nodeid in self.order]
        items.sort(key=lambda item: self.order.get(item.nodeid, 0))

    def pytest_runtest_logstart(self, nodeid):
        self.report.write_text(nodeid)


def main() -> int:
    module, at, report, *tests = sys.argv[1:]
    sys.meta_path.insert(0, Faulty(PACKAGE / module, int(at), sys.stdin.read()))
    files = sorted({nodeid.partition("::")[0] for nodeid in tests})
    done = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *files], plugins=[First(Path(report), tests)]))
    if done == 0:
        Path(report).unlink(missing_ok=True)
    return done


if __name__ == "__main__":
    sys.exit(main())
