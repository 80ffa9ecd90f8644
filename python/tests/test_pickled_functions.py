"""Functions of `xp`, `nn` and `op` are pickled by name: `multiprocessing`, `functools.partial`, modules that hold an activation."""

import pickle

import pytest
from tessera import nn, op, xp


@pytest.mark.parametrize("space", [xp, nn, op], ids=["xp", "nn", "op"])
def test_every_public_function_is_found_again(space):
    public = {n: v for n, v in vars(space).items() if not n.startswith("_") and callable(v) and not isinstance(v, type) and hasattr(v, "__name__")}
    assert len(public) > 20
    lost = []
    for name, function in sorted(public.items()):
        try:
            again = pickle.loads(pickle.dumps(function))
        except (pickle.PicklingError, AttributeError) as error:
            lost.append(f"{name}: {error}")
        else:
            assert again is function, name
    assert not lost, lost
