"""What a launch costs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """The work of one launch, counted in its Tile IR, and the time it took where it was launched."""

    #: Arithmetic on floats, and MMAs of any dtype: a fused multiply-add is two operations. A function such as
    #: ``exp`` counts as the basic operations of its expansion. Index arithmetic is not counted, padding is.
    flops: int
    #: The bytes that must be moved: each array once in each direction, and no more of it than is touched.
    bytes: int
    #: The bytes that the loads and stores of the kernel name, padding included. Caches keep most of the
    #: difference to ``bytes`` away from memory.
    traffic: int
    #: Groups along each axis of the grid.
    tiles: tuple[int, int, int]
    #: False where loops or branches depend on data: such a loop is counted once, of a branch the longer side.
    exact: bool
    #: How long the launch took, without the binding of arguments; None where none took place.
    seconds: float | None = None

    @property
    def intensity(self) -> float:
        """Flops for each byte that must be moved."""
        return self.flops / self.bytes if self.bytes else 0.0

    @property
    def gflops(self) -> float | None:
        """Billions of flops in a second."""
        return self.flops / self.seconds / 1e9 if self.seconds else None

    @property
    def gbytes_per_s(self) -> float | None:
        """Billions of bytes that must be moved, in a second."""
        return self.bytes / self.seconds / 1e9 if self.seconds else None

    def __str__(self) -> str:
        about = "" if self.exact else "about "
        work = f"{about}{self.flops} flops, {self.bytes} bytes ({self.traffic} as written), {self.intensity:.3g} flops a byte"
        if self.gflops is None or self.gbytes_per_s is None or self.seconds is None:
            return work
        return f"{work}; {self.seconds * 1e3:.3g} ms, {self.gflops:.3g} Gflop/s, {self.gbytes_per_s:.3g} GB/s"


Cost.__module__ = "tessera"
