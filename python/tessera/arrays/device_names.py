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
