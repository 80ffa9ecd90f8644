"""What all tests share: none of them writes into the user's home."""

import pytest
import repairs

# Hooks: the longest files first where there are several processes.
from durations import pytest_collection_modifyitems, pytest_configure  # noqa: F401


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
    """Every error and finding that the tests of this process make."""
    with pytest.MonkeyPatch.context() as patch:
        yield repairs.record(patch)


@pytest.fixture(autouse=True)
def errors_name_their_repair(recorded_errors):
    """No test may meet an error that neither says what to write nor is known to have no repair."""
    recorded_errors.clear()
    yield
    silent = sorted({f"{d.code}: {d.message}" for d in recorded_errors if repairs.is_missing(d)})
    assert not silent, "errors without a repair (`help`), which `repairs.REASONS` does not explain:\n" + "\n".join(silent)
