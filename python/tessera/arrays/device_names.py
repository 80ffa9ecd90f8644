"""Devices as users name them."""

from __future__ import annotations

from typing import Any

from .. import _core


def ordinal(device: Any) -> int | None:
    """The number of a CUDA device; ``None`` for the host. Takes ``"cuda:1"``, ``"cpu"``, and other libraries' devices."""
    name, _, number = str(device).partition(":")
    if name == "cpu":
        return None
    if name in ("cuda", "gpu") and (not number or number.isdigit()):
        return int(number or 0)
    raise _core.error(
        "E_ARGUMENT",
        f'expected a device such as "cuda:0" or "cpu", got {device!r}',
        "`tessera doctor` lists the devices",
    )


def dlpack_device(x: Any) -> tuple[int, int]:
    """The kind and number of the device that holds an array, as it says itself."""
    try:
        kind, number = x.__dlpack_device__()
        return int(kind), int(number)
    except Exception as error:
        said = f": {error}" if str(error) else ""
        raise _core.error(
            "E_ARGUMENT",
            f"expected an array that can be shared, got a value of type {type(x).__name__} that does not say where it is{said}",
            "`__dlpack_device__()` gives two numbers, of the kind of device and of the device",
        ) from error
