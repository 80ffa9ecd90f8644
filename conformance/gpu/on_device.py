"""A plugin of pytest: tests of `python/tests` that run once on each backend run on the device instead.

    PYTHONPATH=build/gpu python3 -m pytest -q -p conformance.gpu.on_device python/tests/test_lane_axes.py

Of a test with the fixture `backend` or `everywhere` the case of the interpreter is taken, and kernels that it calls with NumPy's
arrays run on the device (`redirected_calls`). Other tests are left out, and so are tests of what a message or report says about
a host.
"""

import os

import pytest

import tessera as ts
from gpurun.device import Skip, best

from . import redirected_calls

#: Fixtures whose case `interp` becomes the device.
FIXTURES = ("backend", "everywhere")
#: By pattern of the test's name: what is not about results of a device.
LEFT_OUT = {
    "test_backends_give_the_same_bits": "it names the backends that it compares",
    "test_groups_run_in_order_where_their_order_shows": "a GPU refuses such kernels outside `default`",
    "test_a_scan_from_the_end_gives_its_result_first": "its operation is not associative, and a GPU combines in another order",
    "test_what_was_there_is_given_back": "groups draw their tickets in any order",
}
DEVICE = None


def pytest_configure(config):
    # A kernel that runs on the host all the same.
    config.addinivalue_line("filterwarnings", "error:W_HOST_COPY")
    # Kernels run where their arrays are.
    ts.runtime.select_backend = lambda name: None


def pytest_collection_modifyitems(config, items):
    kept, left = [], []
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        names = [params.get(name) for name in FIXTURES if name in params]
        known = any(pattern in item.nodeid for pattern in LEFT_OUT) or params.get("threads", 1) != 1
        (kept if names == ["interp"] and not known else left).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    global DEVICE
    DEVICE = DEVICE or best("TESSERA_DRY_RUN" in os.environ)
    with redirected_calls.poisoned(DEVICE), redirected_calls.on(DEVICE):
        try:
            return (yield)
        except Skip as reason:
            pytest.skip(str(reason))
