"""The ledger of GPU runs: what ran, its results, its times, and whether they are still valid.

`ledger/ledger.jsonl` has a row for each kernel, configuration and shape that ran on a GPU. A row is *proven* while the kernel,
compiled again from its recipe, has the same hashes. Otherwise it is *stale*, and `ledger/stale.txt` must list it. Outputs are
checked without a GPU: inputs are generated again (`gpurun/inputs.py`), and the elements that the row keeps are compared with
float64. Where sums are exact, the hash of the whole result is computed too. A row carries a hash of all its fields, which is
checked when it is read. So values that cannot be computed here (times, large results, the GPU's name) cannot be edited unnoticed.

    python -m ledger               list what is proven, stale, wrong
    python -m ledger --bless       write ledger/stale.txt
    python -m ledger merge FILE    add rows; they replace rows of the same workload
"""

import argparse
import hashlib
import json
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpurun import stats
from gpurun.items import first_line

from . import op_workloads, workloads
from .former_names import present
from .recipe import Recipe

LEDGER = Path(__file__).with_name("ledger.jsonl")
STALE = Path(__file__).with_name("stale.txt")

#: The fields of every row, and their types.
FIELDS = {
    "work": str, "shape": list, "dtype": str, "more": dict, "seed": int, "code": list, "gpu": (str, type(None)),
    "driver": (str, type(None)), "commit": str, "date": str, "output": dict, "samples": dict, "error": float, "bound": float,
    "times": dict,
}  # fmt: skip
#: The fields of every kernel of a row: its recipe, its hashes, and the driver's figures.
CODE = {
    "recipe": dict, "tile": str, "plan": (str, type(None)), "ptx": str, "registers": (int, type(None)),
    "spill_bytes": (int, type(None)),
}  # fmt: skip
#: Elements of a result that a row keeps.
KEPT = 64
#: Results are computed again up to this many operations, and inputs up to this many elements, which takes seconds.
#: `TESSERA_LEDGER_ALL` removes the limits.
MOST_FLOPS = 3 * 10**10
MOST_ELEMENTS = 1.6e7


class Invalid(Exception):
    """A malformed row."""


def key(row):
    """The workload of a row: the ledger has at most one row for it."""
    said = {name: value for name, value in row["more"].items() if name != "config" and value} | row["more"].get("config", {})
    config = " ".join(f"{name}={value}" for name, value in sorted(said.items()))
    shape, target = "x".join(map(str, row["shape"])), row["code"][0]["recipe"]["target"]
    return f"{row['work']} {row['dtype']} {shape} {target} {config}".rstrip()


def validate(row):
    for fields, what, found in [(FIELDS, "row", row), *((CODE, "kernel", code) for code in row.get("code", ()))]:
        for name, kind in fields.items():
            if name not in found:
                raise Invalid(f"a {what} has no `{name}`")
            if not isinstance(found[name], kind):
                raise Invalid(f"a {what} has `{name}` = {found[name]!r}")
    if not row["code"]:
        raise Invalid("a row has no kernel")
    if not math.isfinite(row["error"]) or row["error"] > row["bound"]:
        raise Invalid(f"a row has the error {row['error']} beyond its bound {row['bound']}")
    for peer, times in row["times"].items():
        kept = {name: times.get(name, math.nan) for name in ("ratio", "low", "high")}
        found = stats.ratio(times["ours_us"], times["peer_us"])
        # Samples are kept with five digits.
        if not all(math.isclose(kept[name], found[name], rel_tol=1e-3) for name in found):
            raise Invalid(f"a row has the ratio {kept} to {peer}, and its times give {found}")
    work_of(row)


def signature(row):
    """The hash of all fields, as they are written."""
    text = json.dumps(rounded({name: value for name, value in row.items() if name != "signature"}), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def signed(row):
    """A row with its signature. A row with another signature was changed after it was measured."""
    found = signature(row)
    if row.get("signature", found) != found:
        raise Invalid(f"the row of {key(row)} is not what was signed: a field was changed after the run")
    return {**row, "signature": found}


def work_of(row):
    if row["work"] not in op_workloads.MAKERS:
        raise Invalid(f"there is no work `{row['work']}`")
    return op_workloads.of(row["work"], row["shape"], row["dtype"], **row["more"])


def load(path=LEDGER):
    """The rows of a file; none if it does not exist."""
    if not Path(path).exists():
        return []
    rows = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            try:
                row = json.loads(line)
                validate(row)
                if "signature" not in row:
                    raise Invalid("a row has no `signature`")
                signed(row)
            except (ValueError, TypeError, KeyError, AttributeError, Invalid) as error:
                raise Invalid(f"{path}, line {number}: {error}") from error
            rows.append(row)
    keys = [key(row) for row in rows]
    if twice := sorted({k for k in keys if keys.count(k) > 1}):
        raise Invalid(f"{path}: more than one row for {', '.join(twice)}")
    return rows


def save(rows, path=LEDGER):
    text = "".join(json.dumps(rounded(signed(row)), sort_keys=True) + "\n" for row in sorted(rows, key=key))
    Path(path).write_text(text, encoding="utf-8")


def merged(old, new):
    """The rows of both, the new one where both have one."""
    return list(({key(row): row for row in old} | {key(row): row for row in new}).values())


def rounded(value):
    """The row with measured numbers rounded to six digits. Outputs stay exact: they are compared."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: item if name in ("samples", "recipe") else rounded(item) for name, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


# The part of a result that a row keeps


def output_hash(result):
    """Of the elements in row-major order, as they are stored."""
    text = f"{result.dtype} {'x'.join(map(str, result.shape))} "
    return hashlib.sha256(text.encode() + np.ascontiguousarray(result).tobytes()).hexdigest()


def sampled(grid, seed):
    """Rows and columns of the elements that are kept: the corners, and random ones."""
    height, width = grid
    columns = min(width, 8 if width > 1 else 1)
    rng = np.random.Generator(np.random.PCG64(seed))
    return _chosen(rng, height, KEPT // columns), _chosen(rng, width, columns)


def _chosen(rng, size, count):
    """Up to `count` places, sorted, with the first and the last."""
    if size <= count:
        return list(range(size))
    drawn = (int(v) for v in rng.bit_generator.random_raw(4 * count) % np.uint64(size))
    inner = [place for place in dict.fromkeys(drawn) if place not in (0, size - 1)]
    return sorted([0, size - 1, *inner[: count - 2]])


# Verification


@dataclass(frozen=True)
class Verdict:
    """`stale`: why the code differs now. `wrong`: which outputs of the row are wrong. `left`: what was too expensive to
    compute here."""

    key: str
    stale: str = ""
    wrong: str = ""
    left: str = ""

    @property
    def word(self):
        return "wrong" if self.wrong else "stale" if self.stale else "proven"


def verify(row, everything=False):
    work = work_of(row)
    wrong, left = check_outputs(row, work, everything or bool(os.environ.get("TESSERA_LEDGER_ALL")))
    return Verdict(key(row), why_stale(row, work), wrong, left)


def why_stale(row, work):
    """Which level of which kernel differs now, or an empty text."""
    if [present(code["recipe"]) for code in row["code"]] != [step.recipe.as_dict() for step in work.steps]:
        return "the work is done by other kernels, or in another configuration"
    for code in row["code"]:
        recipe = Recipe.of(code["recipe"])
        try:
            now = recipe.emit().as_dict()
        except Exception as error:  # whatever the error is, the code cannot be emitted any more
            return f"{recipe.name} cannot be emitted: {type(error).__name__}: {first_line(error)}"
        # The first level that differs says where to look; PTX alone decides.
        if now["ptx"] != code["ptx"]:
            level = next(level for level in ("tile", "plan", "ptx") if now[level] != code[level])
            return f"{recipe.name}: another {level}"
    return ""


def check_outputs(row, work, everything=False):
    """What is wrong with the outputs of a row, and what was left out."""
    wrong, left = [], []
    inputs = workloads.Generated(work, row["seed"])
    samples = row["samples"]
    elements = work.row_cost * len(samples["rows"])
    if everything or elements <= MOST_ELEMENTS:
        wrong += _wrong_samples(work, inputs, samples)
    else:
        left.append(f"{len(samples['rows'])} sampled rows")
    if work.exact:
        elements = sum(math.prod(work.arrays[name].shape) for name in work.inputs)
        if everything or (work.flops <= MOST_FLOPS and elements <= MOST_ELEMENTS):
            result = whole(work, inputs)
            if output_hash(result) != row["output"]["sha256"]:
                wrong.append("the hash of the result is not that of the right one")
        else:
            left.append("the hash of the result")
    return "; ".join(wrong), ", ".join(left)


def _wrong_samples(work, inputs, samples):
    rows, columns = samples["rows"], samples["columns"]
    found = np.array(samples["values"], np.float64)
    height, width = work.grid
    if found.shape != (len(rows), len(columns)) or not found.size or found.size > KEPT:
        return [f"{found.shape} samples for {len(rows)} rows and {len(columns)} columns"]
    if not all(0 <= r < height for r in rows) or not all(0 <= c < width for c in columns):
        return [f"samples outside a result of {height}x{width}"]
    values, bound = work.reference(workloads.NumpyMath, inputs, rows, None if width == 1 else columns)
    error, allowed = work.judge(workloads.NumpyMath, found, values, bound)
    if (error <= allowed).all():
        return []
    return [worst(found, values, error, allowed, (rows, columns))]


def worst(found, values, error, allowed, places):
    """Describes the element that exceeds its bound most."""
    with np.errstate(divide="ignore", invalid="ignore"):
        beyond = np.where(error == 0, 0.0, error / allowed)
    beyond = np.where(np.isnan(beyond), np.inf, beyond)
    at = np.unravel_index(int(np.argmax(beyond)), beyond.shape)
    place = tuple(int(axis[i]) for axis, i in zip(places, at))
    count = int((~(error <= allowed)).sum())
    return f"{count} of {error.size} elements: at {place} {found[at]:.9g}, right is {values[at]:.9g}, allowed {allowed[at]:.3g}"


def whole(work, inputs):
    """The whole result of a workload with exact sums: f32 holds them in any order."""
    if work.kind == "transpose":
        x = inputs.at("x", range(inputs.rows_of("x")))
        return workloads.rounded(x.T, work.arrays["y"].dtype)
    a, b = (inputs.at(name, range(inputs.rows_of(name))).astype(np.float32) for name in ("A", "B"))
    return workloads.rounded(a @ b, work.arrays["C"].dtype)


# The ratchet


def listed(path=STALE):
    """The rows that are known to be stale."""
    lines = Path(path).read_text(encoding="utf-8").splitlines() if Path(path).exists() else []
    return [line for line in lines if line.strip() and not line.startswith("#")]


def bless(verdicts, path=STALE):
    head = "# Rows of ledger/ledger.jsonl whose code has changed: run them again on a GPU. Empty at a release.\n"
    Path(path).write_text(head + "".join(f"{v.key}\n" for v in verdicts if v.stale), encoding="utf-8")


def unlisted(verdicts, known):
    """What is wrong with `ledger/stale.txt`: rows that are stale and not listed, and listed ones that are not stale."""
    stale = {v.key: v.stale for v in verdicts if v.stale}
    news = [f"stale, and not in ledger/stale.txt: {k} ({why})" for k, why in stale.items() if k not in known]
    return news + [f"in ledger/stale.txt, and not stale: {k}" for k in known if k not in stale]


def main():
    parser = argparse.ArgumentParser(prog="python -m ledger", description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=["verify", "merge"], default="verify")
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--bless", action="store_true", help="write ledger/stale.txt")
    parser.add_argument("--all", action="store_true", help="recompute every output, however long it takes")
    options = parser.parse_args()
    rows = load()
    if options.what == "merge":
        for path in options.files:
            rows = merged(rows, load(path))
        if dry := [key(row) for row in rows if row["gpu"] is None]:
            sys.exit(f"error: rows that did not run on a GPU do not belong in the ledger: {', '.join(dry)}")
        save(rows)
    verdicts = [verify(row, options.all) for row in rows]
    for v in verdicts:
        print(f"{v.word:<7} {v.key}  {v.wrong or v.stale}{f'  (not computed: {v.left})' if v.left else ''}".rstrip())
    if options.bless:
        bless(verdicts)
    print(f"{len(rows)} rows, " + ", ".join(f"{sum(v.word == w for v in verdicts)} {w}" for w in ("proven", "stale", "wrong")))
    return any(v.wrong for v in verdicts)

