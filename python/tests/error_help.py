"""Every error has a ``help`` that says what to write, or an entry here with the reason why it has none.

``conftest.py`` checks every error that a test raises against this table; ``test_error_help.py`` checks the calls in the package.
"""

from __future__ import annotations

import re

import tessera as ts
from tessera.kernel import check_report

#: A code, a pattern of the message, and why there is no help.
REASONS = [
    ("E_ASSERT", r"", "the message is the kernel's own, and says what its author wanted"),
    ("E_ARGUMENT", r"^expected .*( in --\w+|warps|registers in all threads)", "an option of a command: the message lists what it takes"),
    ("E_ARGUMENT", r"^expected a loop step above 0", "the message says what a step must be"),
    ("E_LAUNCH_GEOMETRY", r"^the kernel @\w+ failed", "what failed in it stands beside this"),
]


def is_missing(d: ts.Diagnostic) -> bool:
    """Whether an error has no help though it could have one."""
    if not d.code.startswith("E_") or d.help:
        return False
    return not any(d.code == code and re.search(pattern, d.message) for code, pattern, _ in REASONS)


def record(patch) -> list[ts.Diagnostic]:
    """Returns a list to which every error and finding is appended from now on."""
    found: list[ts.Diagnostic] = []
    raised, reported = ts.TesseraError.__init__, check_report.CheckReport.__init__

    def on_error(self, text, diagnostics=()):
        raised(self, text, diagnostics)
        found.extend(diagnostics)

    def on_report(self, *args, **kwargs):
        reported(self, *args, **kwargs)
        found.extend(self.findings)

    patch.setattr(ts.TesseraError, "__init__", on_error)
    patch.setattr(check_report.CheckReport, "__init__", on_report)
    return found
