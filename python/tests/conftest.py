"""What all tests share: none of them writes into the user's home."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache_directory(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TESSERA_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(params=["cpu", "interp"])
def backend(request, monkeypatch):
    """Runs a test once on each backend."""
    monkeypatch.setenv("TESSERA_BACKEND", request.param)
    return request.param
