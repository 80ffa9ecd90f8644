"""Fixtures of all tests. No test writes into the user's home."""

import gc

import error_help
import pytest

# Hooks: the longest files first where there are several processes.
from durations import pytest_collection_modifyitems, pytest_configure  # noqa: F401


def pytest_collection_finish():
    # Modules and collected tests live to the end: collections of garbage need not look at them again.
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def cache_directory(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TESSERA_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(params=["cpu", "interp"])
def backend(request, monkeypatch):
    """Runs a test once on each backend."""
    monkeypatch.setenv("TESSERA_BACKEND", request.param)
    return request.param


@pytest.fixture(scope="session", autouse=True)
def recorded_errors():
    """Every error and finding that the tests of this process raise."""
    with pytest.MonkeyPatch.context() as patch:
        yield error_help.record(patch)


@pytest.fixture(autouse=True)
def errors_have_help(recorded_errors):
    """Every error that a test raises has a `help`, or a reason in `error_help.REASONS` why it has none."""
    recorded_errors.clear()
    yield
    silent = sorted({f"{d.code}: {d.message}" for d in recorded_errors if error_help.is_missing(d)})
    assert not silent, "errors without a `help` and without a reason in `error_help.REASONS`:\n" + "\n".join(silent)
