"""Schedules: how a kernel runs, as data. The compiler chooses every field that is not pinned, and reports its choice."""

from __future__ import annotations

import ast
import dataclasses
import sys
import textwrap
from typing import Any, Iterator, Mapping

from .. import _core
from ..base.deprecation import warn
from .capture import capture

#: The fields that every kernel has, by their names in `Schedule`, and the compiler's names for them.
FIELDS = {
    "warps": "num_warps",
    "stages": "num_stages",
    "raster": "raster",
    "cluster": "cluster",
    "cluster_m": "cluster_m",
    "cluster_n": "cluster_n",
    "multicast": "multicast",
    "persistent": "persistent",
    "warp_specialization": "warp_specialization",
    "lazy_rescale": "lazy_rescale",
    "operand_padding": "operand_padding",
    "k_splits": "k_splits",
    "off": "off",
}
_NAMES = {name: field for field, name in FIELDS.items()}
#: Names that fields and passes had in the last release.
FORMER_FIELDS = {"roles": "warp_specialization", "free_reference": "lazy_rescale"}
#: Keyword arguments of attention that had other names until 0.4.
FORMER_KEYWORDS = {"free_reference": "lazy_rescale"}
FORMER_PASSES = {
    "ahead": "register_prefetch", "alternate": "warpgroup_pingpong", "apart": "per_warpgroup_store", "bare": "clock_elision",
    "chain": "cross_loop_pipelining", "defer": "overlapped_epilogue", "divide": "m_split", "encode": "async_mma", "feeds": "producer_loads",
    "forward": "copy_elision", "loop_fusion": "cross_loop_pipelining", "no_clocks": "clock_elision", "order": "dynamic_scheduler", "pair": "interleaved_mmas", "persist": "persistent_blocks",
    "pools": "register_reallocation", "relax": "fast_math", "rings": "software_pipelining", "roles": "warp_specialization",
    "rotate": "mma_in_flight", "seldom": "warp_uniform_branch", "split": "loop_splitting", "stay": "accumulator_coalescing",
    "tiles": "tile_scheduler",
    "twice": "unroll_by_two", "whole": "mask_elimination",
}  # fmt: skip


class Schedule(Mapping[str, Any]):
    """The pinned fields of how a kernel runs. None of them changes results.

    ``warps``: warps that compute a group. ``stages``: the pipeline depth. ``raster``: rows of output tiles that are assigned
    together, so that they share loads in the L2 cache. ``cluster``: CTAs that share one group, where tiles are combined.
    ``cluster_m``, ``cluster_n``: the shape of a cluster of CTAs with adjacent output tiles, in kernels with MMAs on tensor
    cores. ``multicast``: with ``False`` each of them loads the operands that they share. ``warp_specialization``: ``"cooperative"``, where
    warpgroups divide each tile, or ``"pingpong"``, where they take whole tiles in turn. ``persistent``: ``False`` gives each block
    one output tile, which is faster where all blocks are resident. ``lazy_rescale``: ``False`` rescales the accumulator of an
    online softmax in every iteration. ``operand_padding``: whether operands of MMAs whose rows cannot be copied asynchronously
    are first copied to aligned rows. ``k_splits``: into how many parts a loop that only adds up is divided, and 1 for none. ``off``: passes of the compiler that are switched off. Any other name is a tunable or a
    constant of the kernel.

    ``Schedule(text)`` reads the text that ``inspect_ir("schedule")`` prints, with what the compiler chose.
    """

    def __init__(self, text: str | None = None, /, **fields: Any) -> None:
        found: dict[str, Any] = {}
        if text is not None:
            if not isinstance(text, str):
                help = "names are given by keyword: `ts.Schedule(warps=8)`"
                raise _core.error("E_TYPE", f"expected the text of a schedule, got {type(text).__name__}", help)
            self.kernel, given = _core.schedule_fields(text)
            found = {_field(name): value for name, value in given.items()}
        else:
            self.kernel = None
        for name, value in fields.items():
            name = _field(name)
            found[name] = _checked(name, value)
        self._fields = found

    def derive(self, **fields: Any) -> Schedule:
        """A copy with some fields changed; ``None`` leaves one to the compiler."""
        left = [_field(name) for name, value in fields.items() if value is None]
        kept = {name: value for name, value in self._fields.items() if name not in left}
        return _of(kept, self.kernel) | Schedule(**{name: value for name, value in fields.items() if value is not None})

    def __or__(self, other: Schedule) -> Schedule:
        """The fields of both; the other's value where both have one."""
        if not isinstance(other, Schedule):
            return NotImplemented
        return _of({**self._fields, **other._fields}, self.kernel)

    def __getitem__(self, name: str) -> Any:
        return self._fields[_field(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._fields.items())))

    def __repr__(self) -> str:
        return f"Schedule({', '.join(f'{name}={value!r}' for name, value in self._fields.items())})"

    def for_compiler(self) -> dict[str, Any]:
        """The fields by the compiler's names."""
        return {FIELDS.get(name, name): value for name, value in self._fields.items()}


def _of(fields: dict[str, Any], kernel: str | None) -> Schedule:
    made = Schedule()
    made._fields, made.kernel = fields, kernel
    return made


def _field(name: str) -> str:
    """The name of a field in `Schedule`, by that name, the compiler's or a former one."""
    return _present(_NAMES.get(name, name), FORMER_FIELDS)


def _present(name: str, former: dict[str, str]) -> str:
    """The present name of a field or a pass; a former one warns."""
    now = former.get(name, name)
    if now != name:
        warn(name, now)
    return now


def _checked(name: str, value: Any) -> Any:
    """A value of a field as it is kept."""

    def wrong(expected: str, help: str) -> Exception:
        return _core.error("E_ARGUMENT", f"`{name}`: expected {expected}, got {value!r}", help, *caller())

    is_int = isinstance(value, int) and not isinstance(value, bool)
    if name in ("warps", "stages", "raster", "k_splits") and not (is_int and 1 <= value <= 1024):
        raise wrong("a positive integer", "leave it out: the compiler chooses")
    if name in ("cluster", "cluster_m", "cluster_n") and not (is_int and value in (1, 2, 4, 8, 16)):
        raise wrong("1, 2, 4, 8 or 16 blocks", "leave it out: the compiler chooses")
    if name == "warp_specialization" and value not in ("cooperative", "pingpong"):
        raise wrong('"cooperative" or "pingpong"', "leave it out: the compiler chooses")
    if name in ("lazy_rescale", "multicast", "persistent") and not isinstance(value, bool):
        raise wrong("True or False", "leave it out: True where that is legal")
    if name == "operand_padding" and not isinstance(value, bool):
        raise wrong("True or False", "leave it out: a cost model decides")
    if name == "off":
        names = [value] if isinstance(value, str) else value
        known = _core.pass_names()
        if isinstance(names, (list, tuple, set, frozenset)):
            names = [_present(one, FORMER_PASSES) if isinstance(one, str) else one for one in names]
        if not isinstance(names, (list, tuple, set, frozenset)) or not all(one in known for one in names):
            raise wrong(f"passes that can be left out ({', '.join(known)})", "name some of them, or none")
        return tuple(one for one in known if one in names)
    return value


def caller() -> tuple[str, int] | tuple[None, None]:
    """The file and the line outside this package that called into it."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "tessera":
        frame = frame.f_back  # type: ignore[assignment]
    return (None, None) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def pinned(spec: Any, schedule: Schedule) -> Any:
    """The data of a kernel with a schedule pinned: tunables in every candidate, and constants as their defaults."""
    kinds = {param[0]: param[1] for param in spec.params}
    dims = {dim for param in spec.params if param[1] == "tensor" for dim in param[2][0] or () if isinstance(dim, str)}
    tunables = {name for candidate in spec.candidates for name in candidate} | _attributes(spec.source.text)
    constants = {name for name, kind in kinds.items() if kind == "const"}
    values = schedule.for_compiler()
    # The sizes and functions in the text of a plan only identify the call, and pin nothing.
    if schedule.kernel is not None:
        if schedule.kernel != spec.source.name:
            what = f"expected the schedule of `{spec.source.name}`, got that of `{schedule.kernel}`"
            raise _core.error("E_ARGUMENT", what, "print the kernel's own: `k.jit(…).inspect_ir(\"schedule\")`", *caller())
        values = {name: value for name, value in values.items() if name not in dims or name in constants}
    for name in values:
        if name not in constants and name not in tunables and name not in _NAMES:
            known = ", ".join([*FIELDS, *sorted(constants | {n for c in spec.candidates for n in c} - set(_NAMES))])
            what = f"`{spec.source.name}`: expected fields of a schedule ({known}), got `{name}`"
            raise _core.error("E_ARGUMENT", what, "a tunable is read as `ts.tile.context().NAME` in the kernel", *caller())
    fixed = {name: value for name, value in values.items() if name in constants}
    free = {name: capture(value) for name, value in values.items() if name not in constants}
    candidates: list[dict[str, Any]] = []
    for candidate in spec.candidates or [{}]:
        merged = {**candidate, **free}
        if merged not in candidates:
            candidates.append(merged)
    params = [(name, kind, about, (capture(fixed[name]),) if name in fixed else default) for name, kind, about, default in spec.params]
    return dataclasses.replace(spec, params=params, candidates=candidates if candidates != [{}] else [])


def _attributes(source: str) -> set[str]:
    """The attribute names that a function reads: its tunables are among them."""
    tree = ast.parse(textwrap.dedent(source))
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def given(schedule: Any, fields: Mapping[str, Any]) -> Schedule:
    """The schedule that a caller gives: a `Schedule`, its text, or fields by name."""
    if isinstance(schedule, str):
        schedule = Schedule(schedule)
    if schedule is not None and not isinstance(schedule, Schedule):
        help = "write `ts.Schedule(warps=8)`, or the fields by name"
        raise _core.error("E_TYPE", f"expected a schedule or its text, got {type(schedule).__name__}", help, *caller())
    return (schedule or Schedule()) | Schedule(**fields)

