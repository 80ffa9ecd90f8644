"""What the kernels of this folder share: running cases and comparing with NumPy.

Each file has `run(*args)`, `reference(*args)`, `cases()`, `TOLERANCE` and `main()`.
"""

import numpy as np


def outputs(value):
    """One result or several, as float64 arrays."""
    values = value if isinstance(value, tuple) else (value,)
    return [np.asarray(v).astype(np.float64) for v in values]


def largest_error(run, reference, args):
    """The largest error of one case: absolute for expected values below 1, relative above."""
    expected = outputs(reference(*args))  # first, for some kernels update their arguments
    results = outputs(run(*args))
    assert len(results) == len(expected)
    worst = 0.0
    for result, wanted in zip(results, expected):
        assert result.shape == wanted.shape, f"expected shape {wanted.shape}, got {result.shape}"
        same = (result == wanted) | (np.isnan(result) & np.isnan(wanted))  # infinities too
        with np.errstate(invalid="ignore"):
            error = np.where(same, 0.0, np.abs(result - wanted) / np.maximum(np.abs(wanted), 1.0))
        worst = max(worst, float(np.max(error, initial=0.0)))  # a NaN that is not expected stays a NaN
    return worst


def check(name, run, reference, cases, tolerance):
    """Runs every case and prints one line."""
    errors = [largest_error(run, reference, args) for args in cases]
    assert all(error <= tolerance for error in errors), (name, errors)
    print(f"{name:<20} {len(errors):>2} cases   largest error {max(errors):.1e}   allowed {tolerance:.0e}")
