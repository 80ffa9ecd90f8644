"""Paired timing: two contenders alternate, so that both see the same load of the machine."""

import gc
import math
import time
from contextlib import contextmanager
from dataclasses import dataclass

#: A sample is the time of as many calls as take this long.
SAMPLE_SECONDS = 2e-3


@dataclass(frozen=True)
class Paired:
    """Seconds of one call of each of two contenders, round by round."""

    ours: list
    theirs: list

    def ratios(self, scale=1.0):
        """How many times as fast ours was in each round; `scale` is our work over theirs."""
        return [scale * theirs / ours for ours, theirs in zip(self.ours, self.theirs)]


def seconds(run, count, clock=time.perf_counter):
    """Seconds of one call, over `count` of them."""
    start = clock()
    for _ in range(count):
        run()
    return (clock() - start) / count


def calls_for(run, target=SAMPLE_SECONDS):
    """How many calls take `target` seconds; the first ones, which compile and allocate, do not count. The least of three tries
    counts: where the processor was away for a moment, samples of a call or two would follow, whose caches are another's."""
    run()
    run()
    count = 1
    while (taken := count * min(seconds(run, count) for _ in range(3))) < target:
        count = max(2 * count, math.ceil(count * target / taken))
    return count


@contextmanager
def quiet():
    """No garbage collection within."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def alternate(samplers, rounds):
    """Calls each sampler once a round, in an order that is reversed every round; gives their samples."""
    samples = [[] for _ in samplers]
    order = list(range(len(samplers)))
    for _ in range(rounds):
        for i in order:
            samples[i].append(samplers[i]())
        order.reverse()
    return samples


def paired(ours, theirs, rounds, clock=time.perf_counter):
    """Times two functions alternately. A round is ours, theirs, theirs, ours: the second one finds the caches as the
    first one left them, and each is second once a round."""

    def sampler(run, count):
        return lambda: seconds(run, count, clock)

    with quiet():
        samples = alternate([sampler(run, calls_for(run)) for run in (ours, theirs)], 2 * rounds)
    return Paired(*([sum(two) / 2 for two in zip(s[::2], s[1::2])] for s in samples))


def fastest(runs, rounds=5):
    """The index of the fastest of several functions, and the least seconds of each."""
    with quiet():
        counts = [calls_for(run) for run in runs]
        samples = alternate([lambda r=r, c=c: seconds(r, c) for r, c in zip(runs, counts)], rounds)
    least = [min(s) for s in samples]
    return least.index(min(least)), least


def interval(samples, confidence=0.95):
    """The order statistics that hold the true median with this confidence, or all samples if they are few."""
    n, below, rank = len(samples), 0.0, 0
    # A sample is below the median with probability one half.
    while (below := below + math.comb(n, rank) / 2**n) <= (1 - confidence) / 2:
        rank += 1
    rank = max(rank, 1)
    ordered = sorted(samples)
    return ordered[rank - 1], ordered[n - rank]
