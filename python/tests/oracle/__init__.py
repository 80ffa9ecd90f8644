"""The oracle of the front end: Python itself executes a kernel's source.

Names, order of evaluation, control flow, literals and places are Python's own. Python compiles and runs the text of a kernel,
group by group; the lanes of a group are coroutines that synchronise at barriers. The text is changed only where Python cannot
execute it otherwise (`rewrite`). Values are ours: scalars and tiles follow LANGUAGE 9
(`values`), arrays give a copy at every subscript in an expression (`memory`), and `ts.tile.*` is written here over
NumPy (`tile`). Nothing comes from the compiler's front end.
"""

from .values import OracleError, Val

__all__ = ["OracleError", "Val"]
