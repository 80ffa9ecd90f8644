"""A pytest plugin for the array API's own test suite: lets it be imported for a namespace without complex numbers.

The suite takes the widest complex dtype of a namespace while it is imported, and ends where there is none. Here it gets a
real one in its place; tests of complex numbers fail, as they must.
"""

import builtins

from tessera import xp

_max = builtins.max


def _widest(*args, **kwargs):
    if len(args) == 1 and args[0] == []:
        return (xp.float64, 64)
    return _max(*args, **kwargs)


builtins.max = _widest
try:
    import array_api_tests.dtype_helpers  # noqa: F401
finally:
    builtins.max = _max
