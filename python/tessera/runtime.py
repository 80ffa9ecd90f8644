"""Backends and devices: which there are, what they can do, which one runs, with how many threads; and the
memory, streams and recordings of devices."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from . import _core
from ._core import Stream
from .arrays.device_names import device_name
from .base import caller, enclosing_scope
from .dist._mapper import set_mapper
from .trace.execute import oracle

__all__ = [
    "Graph", "Stream", "backends", "capabilities", "capture_graph", "devices", "knobs", "memory_stats", "oracle", "select_backend",
    "set_mapper", "set_threads", "stream", "synchronize", "threads", "trim",
]  # fmt: skip


def backends() -> dict[str, str]:
    """Every backend by name: ``"available"``, or what it misses here."""
    return _core.backends()


def select_backend(name: str | None) -> None:
    """Runs every later call on this backend; ``None`` returns to the default.

    It wins over ``TESSERA_BACKEND``, which wins over where the arrays are. ``"ptx"``, or a device such as
    ``"cuda:1"``, also takes arrays of the host, which are then copied there and back at every call.
    """
    _core.select_backend(name)


def capabilities(device: str | None = None) -> dict[str, Any]:
    """What a device, backend or architecture can do; by default what a call with host arrays would run on.

    For an architecture such as ``"sm90"`` no such device is needed.
    """
    return _core.capabilities(device)


def devices() -> list[dict[str, Any]]:
    """The devices of this machine beside the host, each with its name, architecture, multiprocessors and memory. Where
    none can be used the list is empty; `backends` says what is missing."""
    return _core.devices()


def synchronize(device: Any = None) -> None:
    """Waits until all work that this process has given a device is done: that device's, or every device's.

    What a launch did wrong on the device is raised here at the latest.
    """
    if device is not None:
        name = device_name(device)
        return None if name is None else _core.device_synchronize(name, None)
    for name in _core.device_names():
        _core.device_synchronize(name, None)
    return None


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Memory in use. ``caches`` has the ``entries`` and ``bytes`` of each table in host memory that functions and
    kernels fill: entries of a function or kernel are freed with it, the rest is bounded.

    Of a device, by default the first where there is one: bytes that are ``held`` from it, ``in_use`` by arrays, the ``peak``
    of that, and the device's own figures; with how often memory was ``reused`` and newly ``allocated``."""
    caches = {**_core.kept_in_memory(), **caller.kept(), **enclosing_scope.kept()}
    if device is None:
        device = next(iter(_core.device_names()), None)
    return {"caches": caches} if device is None else {"caches": caches, **_core.device_memory_stats(_beside_host(device))}


def trim(device: Any = "cuda:0") -> int:
    """Gives memory that is kept and not in use back to the device; says how many bytes."""
    return _core.device_trim(_beside_host(device))


def _beside_host(device: Any) -> str:
    name = device_name(device)
    if name is None:
        raise _core.error("E_ARGUMENT", f'expected a device such as "cuda:0", got {device!r}', "`tessera doctor` lists the devices")
    return name


class stream:
    """``with ts.runtime.stream(s):`` puts the calls inside on a stream, whatever the current stream of the arrays'
    library is. The caller then keeps the order between streams.

    ``s`` is a stream of PyTorch, CuPy or any library with ``__cuda_stream__``, a handle as an integer, a
    `Stream`, or nothing for a new one. It holds for calls of this thread.
    """

    def __init__(self, stream: Any = None, device: Any = "cuda:0") -> None:
        #: The stream.
        self.stream = Stream(_beside_host(device)) if stream is None else stream
        self._handle = _handle(self.stream)
        self._before: list[int | None] = []

    def __enter__(self) -> Any:
        self._before.append(_core.set_stream(self._handle))
        return self.stream

    def __exit__(self, *failure: object) -> None:
        _core.set_stream(self._before.pop())


def _handle(stream: Any) -> int:
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        # A method in the final form of the protocol, an attribute in the first.
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("cuda_stream", "ptr", "handle"):
        value = getattr(stream, name, None)
        if isinstance(value, int):
            return value
    raise _core.error(
        "E_ARGUMENT",
        f"expected a CUDA stream, got {stream!r}",
        "pass a stream of PyTorch or CuPy, or the number of one",
    )


class Graph:
    """Launches that were recorded once and are replayed together: the result of `capture_graph`."""

    def __init__(self) -> None:
        self._recorded: Any = None

    def replay(self) -> None:
        """Replays all of it, with the arrays it was recorded with, on the stream that `stream` names or the
        default one."""
        self._graph().replay()

    @property
    def nodes(self) -> int:
        """How many launches and copies it holds."""
        return self._graph().nodes

    @property
    def device(self) -> str:
        """The device it runs on."""
        return self._graph().device

    def _graph(self) -> Any:
        if self._recorded is None:
            raise _core.error(
                "E_CAPTURE",
                "expected a graph whose recording is over, got one that has none",
                "replay it after the `with` block that records it",
            )
        return self._recorded

    def __repr__(self) -> str:
        return "<tessera graph without a recording>" if self._recorded is None else repr(self._recorded)


class capture_graph:
    """``with ts.runtime.capture_graph() as g:`` records the launches inside instead of running them; ``g.replay()``
    runs them all, any number of times, for the price of one launch.

    The arrays must be on the device, and results given, not made: a graph uses the same memory each time, and keeps
    it. Call kernels once before, so that their code is there. Kernels with assertions cannot be recorded.
    """

    def __init__(self, device: Any = "cuda:0") -> None:
        self._device = _beside_host(device)
        self._graph = Graph()
        self._before: int | None = None

    def __enter__(self) -> Graph:
        self._before = _core.set_stream(_core.record_begin(self._device))
        return self._graph

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _core.set_stream(self._before)
        if kind is None:
            self._graph._recorded = _core.record_end()
        else:
            _core.record_drop()


def threads() -> int:
    """How many threads a launch on the CPU may use."""
    return _core.threads()


def set_threads(n: int | None) -> None:
    """Sets how many threads every later launch on the CPU may use; ``None`` for as many as there are cores.

    ``TESSERA_THREADS`` says how many there are at first. In the profile ``strict`` the number changes no bit
    of a result.
    """
    _core.set_threads(n)


def knobs() -> dict[str, str]:
    """The environment variables that Tessera reads, each with a line on what it does."""
    return _core.knobs()
