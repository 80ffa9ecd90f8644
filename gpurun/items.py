"""Items of a program: it runs them one after another and reports a row for each."""

import re
from dataclasses import dataclass
from typing import Callable


@dataclass(frozen=True)
class Item:
    """A row of the report: its name, and a function that returns the number of cases and other figures."""

    name: str
    run: Callable


def wanted(found, only):
    """The items whose name matches the pattern."""
    return [item for item in found if re.search(only, item.name)] if only else list(found)


def first_line(error):
    return next((line for line in str(error).splitlines() if line.strip()), "")
