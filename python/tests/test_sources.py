"""Kernels work wherever they are written, and survive pickling, threads and forks."""

import copy
import importlib
import linecache
import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tessera as ts
from kernels import saxpy

TEXT = '''@ts.kernel
def double(x: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    x[i] = x[i] * FACTOR
    return x
'''


def doubled(kernel):
    return kernel(np.arange(4, dtype=np.float32)).tolist() == [0, 2, 4, 6]


def run(text, name, register, **names):
    if register:
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope = {"ts": ts, "FACTOR": 2.0, **names}
    exec(compile(text, name, "exec"), scope)
    return scope["double"]


def test_a_cell_of_a_notebook():
    assert doubled(run(TEXT, "<ipython-input-7-0123456789ab>", True))


def test_a_prompt_that_keeps_no_source_asks_for_it():
    with pytest.raises(ts.KernelSyntaxError, match="source=") as e:
        run(TEXT, "<stdin>", False)
    assert e.value.code == "E_SYNTAX"


EDITED = '''import tessera as ts

def make():
    @ts.kernel
    def double(x: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        if x[i] in (1.0, 2.0, 3.0):
            x[i] = x[i] * 2
        return x

    return double
'''


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("* 2\n", "* 3\n"),
        lambda text: text.replace("* 2\n", "* 2.0\n"),
        lambda text: "# A line more.\n" + text,
        lambda text: text.replace("        return x\n", ""),
        lambda text: text + "x = (\n",
    ],
)
def test_a_file_that_was_edited_after_it_was_imported_is_refused(tmp_path, monkeypatch, change):
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "edited_module.py"
    file.write_text(EDITED)
    monkeypatch.delitem(sys.modules, "edited_module", raising=False)
    module = importlib.import_module("edited_module")
    assert doubled(module.make())
    file.write_text(change(EDITED))
    os.utime(file, (0, 0))  # caches look at the time, which may be the same
    with pytest.raises(ts.KernelSyntaxError, match="changed since") as e:
        module.make()
    assert e.value.code == "E_SYNTAX"
    file.write_text(EDITED + "# Nothing that Python runs.\n")
    os.utime(file, (1, 1))
    assert doubled(module.make())


def test_source_can_be_given():
    body = TEXT.partition("\n")[2]
    text = f"@ts.kernel(source={body!r})\n{body}"
    assert doubled(run(text, "<stdin>", False))


def test_annotations_may_be_text():
    text = f"from __future__ import annotations\n{TEXT}"
    assert doubled(run(text, "<future-annotations>", True))


def test_annotations_as_text_see_local_names():
    def make():
        elem = ts.f32

        @ts.kernel
        def double(x: 'ts.Tensor["n", elem]'):
            i = ts.tile.linear_id()
            x[i] = x[i] * 2.0
            return x

        return double

    assert doubled(make())
    with pytest.raises(ts.KernelSyntaxError, match="nothing"):
        @ts.kernel
        def k(x: 'ts.Tensor["n", nothing]'):
            x[0] = 1.0

    with pytest.raises(ts.KernelTypeError, match="fp7"):
        @ts.kernel
        def k(x: 'ts.Tensor["n", "fp7"]'):
            x[0] = 1.0


def test_closures_attributes_and_constants_are_captured():
    class Config:
        factor = 1.0

    def make(factor, config):
        @ts.kernel
        def double(x: ts.Tensor["n", ts.f32]):
            i = ts.tile.linear_id()
            x[i] = x[i] * factor * config.factor
            return x

        return double

    assert doubled(make(2, Config)) and doubled(make(np.float32(2), Config()))


class Holder:
    @ts.kernel
    def double(x: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        x[i] = x[i] * 2.0
        return x


def test_a_kernel_in_a_class_is_no_method():
    assert doubled(Holder.double) and doubled(Holder().double)


@ts.func
def scaled(v, by):
    return v * by


@ts.kernel
def through_functions(x: ts.Tensor["n", ts.f32], f: ts.Fn = ts.identity):
    i = ts.tile.linear_id()
    x[i] = f(scaled(x[i], 2.0))
    return x


@ts.func
def plus_one(v):
    return v + 1.0


def test_functions_are_inlined_and_taken_as_parameters():
    assert doubled(through_functions)
    assert through_functions(np.zeros(2, np.float32), plus_one).tolist() == [1, 1]
    with pytest.raises(ts.LaunchError, match="ts.func"):
        through_functions(np.zeros(2, np.float32), len)


def test_kernels_are_pickled_by_source_and_copied():
    assert doubled(pickle.loads(pickle.dumps(Holder.double)))
    again = pickle.loads(pickle.dumps(through_functions))
    assert doubled(again) and again.name == "through_functions"
    assert copy.deepcopy(saxpy) is saxpy
    assert saxpy.__name__ == saxpy.name == "saxpy" and saxpy.__wrapped__ and "SAXPY" in saxpy.__doc__


def test_one_kernel_in_several_threads():
    saxpy.cache_clear()

    def work(seed):
        x, y = np.full(1000, seed, np.float32), np.ones(1000, np.float32)
        return (saxpy(x, y, 1) == seed + 1).all()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(64)))


def test_a_forked_process_goes_on():
    saxpy(np.ones(4, np.float32), np.ones(4, np.float32), 1)
    child = os.fork()
    if child == 0:
        y = saxpy(np.ones(4, np.float32), np.ones(4, np.float32), 1)
        os._exit(0 if (y == 2).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_kernel_cannot_take_any_number_of_arguments():
    with pytest.raises(ts.KernelSyntaxError, match=r"\*rest"):
        @ts.kernel
        def k(x: ts.Tensor["n", ts.f32], *rest):
            x[0] = 1.0


def test_an_annotation_that_means_nothing_is_refused():
    with pytest.raises(ts.KernelTypeError, match="`x`"):
        @ts.kernel
        def k(x: [1, 2]):
            x[0] = 1.0


def test_generated_sources_are_fresh():
    from pathlib import Path

    from tessera.tools.stubs import real_module, target_stub, tile_stub

    package = Path(ts.__file__).parent
    assert (package / "tile.pyi").read_text() == tile_stub(), "run `python -m tessera.tools.stubs`"
    assert (package / "target.pyi").read_text() == target_stub(), "run `python -m tessera.tools.stubs`"
    assert (package / "xp/_real.py").read_text() == real_module(), "run `python -m tessera.tools.stubs`"
