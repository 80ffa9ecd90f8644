"""Batches of arrays: every example once an epoch, the same order from the same key, and exactly on from a state."""

import threading

import numpy as np
import pytest

import tessera as ts

X, Y = np.arange(23 * 3).reshape(23, 3), np.arange(23)


def loader(**more):
    return ts.data.Loader({"x": X, "y": Y}, 5, **more)


def seen(batches):
    return [b["y"].tolist() for b in batches]


def test_batches_are_in_order_without_a_key():
    made = loader()
    assert len(made) == 4 and seen(made) == [list(range(i, i + 5)) for i in (0, 5, 10, 15)]
    last = list(loader(drop_last=False))
    assert len(last) == 5 and last[-1]["y"].tolist() == [20, 21, 22]
    # A batch is a copy: what is done to it does not reach the arrays.
    next(iter(loader()))["x"][:] = -1
    assert X[0, 0] == 0


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_every_example_once_an_epoch_in_an_order_of_the_key(prefetch):
    made = loader(key=ts.random.key(4), drop_last=False, prefetch=prefetch)
    first, second = seen(made), seen(made)
    assert sorted(sum(first, [])) == sorted(sum(second, [])) == list(range(23))
    assert first != second and sum(first, []) != list(range(23))
    again = loader(key=ts.random.key(4), drop_last=False)
    assert seen(again) == first and seen(again) == second
    assert seen(loader(key=ts.random.key(5), drop_last=False)) != first
    for batch in loader(key=4):
        np.testing.assert_array_equal(batch["x"], X[batch["y"]])


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("stop", [1, 3, 4, 6])
def test_a_state_goes_on_where_it_was_taken(prefetch, stop, tmp_path):
    whole = loader(key=ts.random.key(1))
    want = seen(whole) + seen(whole) + seen(whole)
    part, got = loader(key=ts.random.key(1), prefetch=prefetch), []
    while len(got) < stop:
        for batch in part:
            got.append(batch["y"].tolist())
            if len(got) == stop:
                break
    ts.save(tmp_path / "state.safetensors", part.state())
    rest = loader(key=ts.random.key(1), prefetch=prefetch)
    rest.restore(ts.load(tmp_path / "state.safetensors"))
    while len(got) < len(want):
        got += seen(rest)
    assert got == want


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_loop_that_was_left_early_does_not_go_on_in_the_next(prefetch):
    want = [seen(whole) for whole in [loader(key=ts.random.key(1))] for _ in range(3)]
    made = loader(key=ts.random.key(1), prefetch=prefetch)
    for batch in made:
        assert batch["y"].tolist() == want[0][0]
        break
    assert made.state() == {"epoch": 0, "step": 1}
    # A whole epoch in an order of its own, and the one after it.
    assert seen(made) == want[1] and seen(made) == want[2]
    plain = loader()
    assert [next(iter(plain))["y"][0] for _ in range(3)] == [0, 0, 0]
    # Only the loop after `restore` begins in the middle.
    made.restore({"epoch": 0, "step": 3})
    assert seen(made) == want[0][3:] and seen(made) == want[1]
    made.restore({"epoch": 0, "step": 3})
    next(iter(made))
    made.restore({"epoch": 0, "step": 1})
    next(iter(made))
    assert seen(made) == want[1]


def test_a_thread_makes_batches_ahead_and_ends():
    ready, names = threading.Event(), set()

    def transform(batch):
        names.add(threading.current_thread().name)
        if batch["y"][0] == 10:
            ready.set()
        return {**batch, "z": batch["y"] * 2}

    made = iter(loader(transform=transform, prefetch=2))
    first = next(made)
    assert first["z"].tolist() == [0, 2, 4, 6, 8]
    assert ready.wait(20)  # the third batch is made although only one was taken
    assert names == {"tessera-loader"}
    made.close()
    assert not [t for t in threading.enumerate() if t.name == "tessera-loader"]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_errors_of_a_transform_come_out(prefetch):
    def broken(batch):
        if batch["y"][0] == 5:
            raise KeyError("here")
        return batch

    got = []
    with pytest.raises(KeyError, match="here"):
        for batch in loader(transform=broken, prefetch=prefetch):
            got.append(batch)
    assert len(got) == 1
    assert not [t for t in threading.enumerate() if t.name == "tessera-loader"]


def test_trees_and_arrays_of_the_library():
    made = ts.data.Loader((ts.array(X.astype(np.float32)), [Y]), 4, drop_last=False)
    x, (y,) = next(iter(made))
    assert x.shape == (4, 3) and y.tolist() == [0, 1, 2, 3]


def test_what_a_loader_refuses():
    with pytest.raises(ts.ShapeError, match="one extent"):
        ts.data.Loader((X, Y[:5]), 2)
    with pytest.raises(ts.TesseraError, match="at most 23"):
        ts.data.Loader(X, 24)
    with pytest.raises(ts.TesseraError, match="`batch`"):
        ts.data.Loader(X, 0)
    with pytest.raises(ts.TesseraError, match="below 4"):
        loader().restore({"epoch": 0, "step": 4})
    with pytest.raises(ts.TesseraError, match="below 4"):
        loader().at(0, 4)
