"""What the plans of library kernels depend on of a machine: capabilities and sizes, never its name."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from .. import _core
from . import arrays


@dataclass(frozen=True)
class Machine:
    """A GPU, or the processors of the host."""

    #: Multiprocessors of a GPU; 0 on the host.
    processors: int = 0
    #: Bytes of shared memory that a group may request.
    shared_bytes: int = 0
    #: Whether warpgroups issue asynchronous MMAs (WGMMA), and take registers from producer warps.
    warpgroup_mma: bool = False

    @property
    def is_gpu(self) -> bool:
        return self.processors > 0

    @property
    def groups(self) -> int:
        """Groups that keep it busy: with fewer, each group takes a smaller tile. The host's are enough for many threads to share."""
        return 2 * (self.processors or 132)


HOST = Machine()


def of(x: Any) -> Machine:
    """The machine that computes with an array."""
    if not arrays.on_device(x):
        return HOST
    # CuPy says `id`. Stand-ins of tests say nothing, and count as the first device.
    device = getattr(x, "device", None)
    index = getattr(device, "index", getattr(device, "id", 0))
    return gpu(index if type(index) is int else 0)


@functools.lru_cache(maxsize=None)
def gpu(ordinal: int = 0) -> Machine:
    """A CUDA device by its number; where there is none, the one that code is made for by default."""
    return target(f"cuda:{ordinal}")


@functools.lru_cache(maxsize=None)
def target(name: str) -> Machine:
    """An architecture or a device by its name."""
    caps = _core.capabilities(name)
    return Machine(caps["processors"], caps["shared_bytes_per_block"], caps["wgmma"])


def groups(x: Any) -> int:
    """Groups that keep the machine busy that computes with an array."""
    return of(x).groups
