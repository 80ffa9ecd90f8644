"""The items of a program: what it runs one after another, and reports a row of."""

import re
from dataclasses import dataclass
from typing import Callable


@dataclass(frozen=True)
class Item:
    """A row of the report: its name, and what does it. Gives how many cases there were, and other figures."""

    name: str
    run: Callable


def wanted(found, only):
    """The items whose name has the pattern."""
    return [item for item in found if re.search(only, item.name)] if only else list(found)


def first_line(error):
    return next((line for line in str(error).splitlines() if line.strip()), "")
