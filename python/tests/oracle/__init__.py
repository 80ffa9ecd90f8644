"""The oracle of the front end: Python itself executes a kernel's source.

Names, order of evaluation, control flow, literals and places are Python's own: the text of a kernel is compiled by
Python and run, group by group, the lanes of a group as coroutines that meet at barriers. What stands in the text is
changed only where Python has no other way to do it (`rewrite`). Values are ours: scalars and tiles follow LANGUAGE 9
(`values`), arrays give a copy at every subscript in an expression (`memory`), and `ts.tile.*` is written here over
NumPy (`tile`). Nothing comes from the compiler's front end.
"""

from .values import OracleError, Val

__all__ = ["OracleError", "Val"]
