"""Rows of the ledger for library operations. An operation runs once on the ledger's inputs, its launches are recorded, and its
result is checked before it becomes a row."""

import datetime

from gpurun.compare import Mismatch

from . import ledger, workloads
from .recorded_launches import recorded

#: This many first and last rows of a result are checked, beside those that the ledger keeps.
ENDS = 32


class Keeper:
    def __init__(self, device, seed, about):
        self.device, self.seed = device, seed
        self.about = {name: about[name] for name in ("gpu", "driver", "commit")}
        self.xp = workloads.TorchMath(device.torch) if device.is_cuda else workloads.NumpyMath

    def arrays(self, work):
        return {n: self.device.generated(a, self.seed, n) for n, a in work.arrays.items() if a.kind}

    def row(self, work, times):
        """The row of a workload with known times. What ran must be what its recipes emit."""
        arrays = self.arrays(work)
        with recorded() as launches:
            arrays[work.output] = work.call(arrays)
        self.device.synchronize()
        rows, columns = ledger.sampled(work.grid, self.seed)
        error, allowed = self.checked(work, arrays, rows)
        result = arrays[work.output].reshape(work.grid)
        kept = self.device.wide(result[rows][:, columns])
        whole = self.device.to_host(arrays[work.output])
        row = {
            "work": work.kind, "shape": list(work.shape), "dtype": work.dtype, "more": work.more, "seed": self.seed,
            "code": self.code(work, launches), **self.about, "date": datetime.date.today().isoformat(),
            "output": {"sha256": ledger.output_hash(whole), "exact": work.exact},
            "samples": {"rows": rows, "columns": columns, "values": kept.tolist()}, "error": error, "bound": allowed,
            "times": times,
        }  # fmt: skip
        ledger.validate(row)
        return row

    def try_to_keep(self, path, work, times):
        """Puts the row of a workload into a file, where it replaces an older one. Returns an empty text, or why there is no row."""
        try:
            row = self.row(work, times)
        except (Mismatch, ledger.Invalid) as error:
            return str(error)
        ledger.save(ledger.merged(ledger.load(path), [row]), path)
        return ""

    def checked(self, work, arrays, rows):
        """The worst error of the rows that are checked, and its bound."""
        height, _ = work.grid
        checked_rows = sorted({*rows, *range(min(ENDS, height)), *range(max(0, height - ENDS), height)})
        held = workloads.Held(work, {name: self.indexable(x) for name, x in arrays.items()}, self.device)
        found = self.device.wide(arrays[work.output].reshape(work.grid)[checked_rows])
        values, bound = work.reference(self.xp, held, checked_rows, None)
        error, allowed = work.judge(self.xp, found, values, bound)
        used = self.xp.without_nan(error / (allowed + 1e-300)).reshape(-1)
        at = int(used.argmax())
        numbers = [float(x.reshape(-1)[at]) for x in (error, allowed, found, values)]
        if not float(used[at]) <= 1.0:
            place = (checked_rows[at // work.grid[1]], at % work.grid[1])
            raise Mismatch(f"at {place} {numbers[2]:.9g}, right is {numbers[3]:.9g}, allowed {numbers[1]:.3g}")
        return numbers[0], numbers[1]

    def indexable(self, x):
        """PyTorch cannot index fp8 matrices by rows."""
        return x.float() if self.device.is_cuda and "float8" in str(x.dtype) else x

    def code(self, work, launches):
        """The kernels that ran, as the ledger keeps them."""
        predicted, ran = ([each.recipe.as_dict() for each in list_] for list_ in (work.steps, launches))
        if self.device.is_cuda and predicted != ran:
            raise Mismatch(f"{work.name} launched {ran}, and without a GPU {predicted}")
        rows = []
        for step, launch in zip(work.steps, launches if self.device.is_cuda else work.steps):
            emitted, resources = step.recipe.emit(), {}
            if self.device.is_cuda:
                resources = launch.resources
                if launch.ran != emitted:
                    raise Mismatch(f"{step.recipe.name}: what ran is {launch.ran}, what its recipe emits {emitted}")
            number = lambda name: int(resources[name]) if name in resources else None  # noqa: B023, E731
            figures = {"registers": number("registers"), "spill_bytes": number("local_bytes")}
            rows.append({"recipe": step.recipe.as_dict(), **emitted.as_dict(), **figures})
        return rows
