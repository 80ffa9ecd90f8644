"""``tessera tune``: measures the candidates of a kernel without a program around it, and handles records."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy

from .. import tuning
from ..arrays import create as _create
from ..base.annotations import names_in
from ..base.dtypes import DType, dtype
from ..base.numeric_profile import PROFILES, profile
from ..kernel.kernel_fn import KernelFn
from .arguments import Failure, kernel_of, value_of


def add(commands: Any) -> None:
    """Puts the command among the others."""
    one = commands.add_parser("tune", help="measures the candidates of a kernel, or handles the records of it")
    one.add_argument("kernel", nargs="?", metavar="FILE.py:KERNEL", help="or MODULE:KERNEL")
    one.add_argument("values", nargs="*", metavar="NAME=VALUE", help="sizes of dims, constants and numbers")
    one.add_argument("--shape", action="append", default=[], metavar="M=64,N=64", help="sizes of dims, as NAME=VALUE")
    one.add_argument("--dtype", action="append", default=[], metavar="NAME=f32", help="of a parameter that leaves it open")
    one.add_argument("--device", help="where the arrays are: cpu (the default), or such as cuda:0")
    one.add_argument("--profile", choices=PROFILES, default="default", help="default or deterministic")
    one.add_argument("--budget-ms", type=float, metavar="MS", help="how long it may take; 10000 by default")
    one.add_argument("--force", action="store_true", help="measure again what has been measured")
    one.add_argument("--svg", metavar="PATH", help="write a picture of all samples")
    one.add_argument("--json", action="store_true", help="print the record instead of a table")
    what = one.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="list the records that are kept")
    what.add_argument("--clear", action="store_true", help="remove them")
    what.add_argument("--export", metavar="PATH", help="write them into a file")
    what.add_argument("--import", dest="load", metavar="PATH", help="add those of a file")
    what.add_argument("--merge", nargs="+", metavar="PATH", help="make the first file of the others")
    one.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.list:
        return list_records(options.json)
    for done, count in (
        ("removed", tuning.clear if options.clear else None),
        ("wrote", options.export and (lambda: tuning.export(options.export))),
        ("added", options.load and (lambda: tuning.load(options.load))),
        ("wrote", options.merge and (lambda: tuning.merge(*options.merge))),
    ):
        if count:
            number = count()
            print(f"{done} {number} record{'s' * (number != 1)}")
            return 0
    if not options.kernel:
        raise Failure("expected FILE.py:KERNEL, or one of --list, --clear, --export, --import and --merge")
    return tune(options)


def tune(options: argparse.Namespace) -> int:
    kernel = (_of_module(options.kernel) or kernel_of(options.kernel)).flat
    given = [*options.values, *(part for text in options.shape for part in text.split(",") if part)]
    values = dict(value_of(item) for item in given)
    dtypes = {name: dtype(str(value)) for name, value in map(value_of, options.dtype)}
    arguments = arguments_for(kernel, values, dtypes, options.device, Failure)
    with profile(options.profile):
        kernel.tune(budget_ms=options.budget_ms, force=options.force, **arguments)
    report = kernel.tuning_report()
    if options.svg:
        report.svg(options.svg)
    print(report.json if options.json else report, end="" if options.json else "\n")
    return 0


def list_records(as_json: bool) -> int:
    found = tuning.records()
    if as_json:
        print(json.dumps(found, indent=2))
        return 0
    for record in found:
        subject, rows = record["subject"], record["rows"]
        sizes = ", ".join(f"{name}={size}" for name, size in subject["sizes"].items())
        measured = sum(row["state"] == "measured" for row in rows)
        print(f"{subject['kernel']}  {sizes or 'any size'}  {subject['device']}  {measured} of {len(rows)} candidates measured")
    print(f"{len(found)} record{'s' * (len(found) != 1)}")
    return 0


def _of_module(text: str) -> KernelFn | None:
    """The kernel that ``MODULE:KERNEL`` names; none where no module is called so."""
    place, colon, name = text.rpartition(":")
    if not colon or not place or os.path.exists(place) or place.endswith(".py"):
        return None
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.insert(0, os.getcwd())  # as `python -m` does
    try:
        found = importlib.util.find_spec(place)
    except (ImportError, ValueError):
        found = None
    if found is None:
        return None
    try:
        module = importlib.import_module(place)
    except Exception:
        raise Failure(f"{place} could not be imported:\n{traceback.format_exc()}") from None
    kernels = {key: value for key, value in vars(module).items() if isinstance(value, KernelFn)}
    if name not in kernels:
        raise Failure(f"{place} has no kernel `{name}`. Its kernels: {', '.join(kernels) or 'none'}")
    return kernels[name]


def arguments_for(
    kernel: KernelFn, values: dict[str, Any], dtypes: dict[str, DType], device: str | None, failure: Callable[[str], Exception]
) -> dict[str, Any]:
    """Random arrays and the given numbers, by parameter."""
    rng = numpy.random.default_rng(0)
    used: set[str] = set()
    out: dict[str, Any] = {}
    for name, kind, detail, default in kernel.spec.params:
        if name in kernel.spec.optional and name not in values and name not in dtypes:
            out[name] = None
        elif kind == "tensor":
            dims, elem, _, is_out = detail
            if is_out and elem is not None:
                by_name = [n for n in names_in(" ".join(dims)) if n in values and not _is_given(kernel, n)]
                used.update(by_name)
                out.update({n: values[n] for n in by_name})
                continue
            elem = dtypes.get(name, elem)
            if dims is None or "?" in dims or elem is None:
                raise failure(f"`{name}` has no dtype or shape: annotate it, or give --dtype {name}=f32")
            shape = tuple(_extent(name, dim, values, used, failure) for dim in dims)
            out[name] = _random(rng, shape, elem, device)
        elif name in values:
            used.add(name)
            out[name] = values[name]
        elif not default:
            if kind == "scalar":
                out[name] = 1
            else:
                raise failure(f"expected a value for `{name}`: give {name}=VALUE")
    strange = [name for name in dtypes if name not in {param[0] for param in kernel.spec.params if param[1] == "tensor"}]
    if strange:
        raise failure(f"expected an array of `{kernel.name}` in --dtype, got `{strange[0]}`")
    unused = [name for name in values if name not in used]
    if unused:
        raise failure(f"expected a dim, number or constant of `{kernel.name}`, got `{unused[0]}`")
    return out


def _is_given(kernel: KernelFn, size: str) -> bool:
    """Whether an argument gives the size, or is it."""
    rows = kernel.spec.params
    return any(n == size or kind == "tensor" and not info[3] and size in names_in(" ".join(info[0] or ())) for n, kind, info, _ in rows)


def _extent(name: str, dim: str, values: dict[str, Any], used: set[str], failure: Callable[[str], Exception]) -> int:
    extent = 1
    for factor in dim.split("*"):
        factor = factor.strip()
        size = int(factor) if factor.isdigit() else values.get(factor)
        used.add(factor)
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise failure(f"expected the size of `{factor}`, a dim of `{name}`: give --shape {factor}=64")
        extent *= size
    return extent


def _random(rng: numpy.random.Generator, shape: tuple[int, ...], elem: DType, device: str | None) -> Any:
    kind = numpy.dtype(elem.numpy_name).kind if elem.numpy_name in numpy.sctypeDict else "f"
    if kind == "b":
        return _create.array(rng.integers(0, 2, shape), elem, device)
    if kind in "iu":
        return _create.array(rng.integers(0, 8, shape), elem, device)
    return _create.array(rng.standard_normal(shape), elem, device)
