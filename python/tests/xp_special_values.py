"""Writes ``xp_special.npz``: arguments and values of special functions in 50 digits, rounded to f64. It needs mpmath:
``python -m pip install mpmath && python python/tests/xp_special_values.py``."""

from pathlib import Path

import mpmath as mp
import numpy as np

mp.mp.dps = 50
rng = np.random.default_rng(5)


def lgamma(x):
    return mp.log(abs(mp.gamma(x))) if abs(x) < 1e6 else mp.loggamma(x)


def powers(low, high, count):
    return 10 ** rng.uniform(low, high, count)


POINTS = {
    "lgamma": (lgamma, [powers(-300, 300, 12), rng.uniform(0, 12, 24), [0.5, 1.5, 2.5, 8.0, 1 + 1e-9, 2 - 1e-9, 1e-310]]),
    "lgamma_below": (lgamma, [-rng.uniform(0, 30, 16), -powers(-200, 0, 6), [-2.4570247382208006]]),
    "digamma": (mp.digamma, [powers(-300, 300, 12), rng.uniform(0, 12, 24), [1.4616321449683622, 1.46163214, 1.0, 2.0, 10.0]]),
    "digamma_below": (mp.digamma, [-rng.uniform(0, 30, 16)]),
    "polygamma_1": (lambda x: mp.polygamma(1, x), [powers(-100, 100, 8), rng.uniform(0, 12, 16), -rng.uniform(0, 9, 8)]),
    "polygamma_3": (lambda x: mp.polygamma(3, x), [powers(-40, 40, 8), rng.uniform(0, 20, 16)]),
    "erfinv": (mp.erfinv, [rng.uniform(-1, 1, 24), 1 - powers(-15.5, 0, 16), powers(-300, 0, 6), [0.75, 1 - 2**-53]]),
    "i0": (lambda x: mp.besseli(0, x), [rng.uniform(-20, 20, 16), powers(-5, 2.8, 12), [8.0]]),
    "sinc": (mp.sincpi, [rng.uniform(-20, 20, 16), [1e-5, 2.9e-3, 3.1e-3, 19.999870668849958]]),
}

if __name__ == "__main__":
    kept = {}
    for name, (function, parts) in POINTS.items():
        x = np.concatenate(parts)
        kept[name] = np.array([x, [float(function(mp.mpf(float(v)))) for v in x]])
    np.savez(Path(__file__).with_name("xp_special.npz"), **kept)
