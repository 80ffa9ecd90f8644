"""Devices as users name them."""

from __future__ import annotations

from typing import Any

from .. import _core


def device_name(device: Any) -> str | None:
    """The one name of a device, such as ``"cuda:1"``; ``None`` for the host. Takes what users write (``"gpu"``,
    ``"cpu"``), and other libraries' devices."""
    return _core.device_name(str(device))


def number_of(device: str) -> int:
    """The number in the name of a device."""
    return int(device.partition(":")[2] or 0)


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
