"""Statistics of paired samples."""

import statistics

import numpy as np


def ratio(ours, theirs, scale=1.0, draws=2000):
    """Our speedup: the median of the ratios over the rounds, with its 95% bootstrap confidence interval. `scale` is our work
    over theirs."""
    each = scale * np.asarray(theirs) / np.asarray(ours)
    drawn = np.random.default_rng(0).integers(0, each.size, (draws, each.size))
    low, high = np.quantile(np.median(each[drawn], axis=1), (0.025, 0.975))
    return {"ratio": float(np.median(each)), "low": float(low), "high": float(high)}


def median(samples):
    return float(statistics.median(samples))


def micro(samples):
    """Microseconds, with as many digits as they are worth."""
    return [float(f"{1e6 * s:.5g}") for s in samples]
