"""`python -m mutants GROUP…`: the score of a sample, its survivors, and the tests that noticed the rest."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter

import pytest

from .groups import GROUPS, PACKAGE, TESTS, equivalent
from .operators import mutants
from .plugin import STATE, Loop


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(GROUPS)}; all where none is named")
    parser.add_argument("--count", type=int, default=200, help="mutants of each group")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", action="append", default=[], help="mutants whose names begin so")
    parser.add_argument("--list", action="store_true", help="print names and run nothing")
    parser.add_argument("--at-least", type=float, default=0.0, help="fail below this score, in percent")
    options = parser.parse_args()
    os.environ.setdefault("TESSERA_FUZZ_SEED", "1")
    os.environ.setdefault("TESSERA_FUZZ_SECONDS", "2")
    if unknown := sorted(set(options.groups) - set(GROUPS)):
        parser.error(f"expected groups among {', '.join(GROUPS)}, got {', '.join(unknown)}")
    low = False
    for name in options.groups or GROUPS:
        low |= one(name, options) < options.at_least
    return int(low)


def one(name: str, options: argparse.Namespace) -> float:
    group = GROUPS[name]
    every = [m for path in group.files() for m in mutants(str(path.relative_to(PACKAGE)), path.read_text(encoding="utf-8"))]
    known = equivalent()
    meant = [m for m in every if m.name not in known]
    if options.only:
        sample = [m for m in meant if any(m.name.startswith(prefix) for prefix in options.only)]
    else:
        # Drawn among all, so that a line more in `equivalent.txt` does not change the rest of the sample.
        drawn = random.Random(f"{name} {options.seed}").sample(every, min(options.count, len(every)))
        sample = [m for m in drawn if m.name not in known]
    if options.list:
        print(*(m.name for m in sample), sep="\n")
        return 100.0
    start = time.monotonic()
    print(f"{name}: {len(sample)} mutants of {len(every)}, seed {options.seed}, {len(every) - len(meant)} known to be equivalent", flush=True)
    loop = Loop(group, sample, options.jobs, lambda text: print(text, file=sys.__stdout__, flush=True))
    tests = [str(TESTS / test) for test in group.tests]
    pytest.main(["-q", "-p", "no:cacheprovider", "--capture=no", *tests], plugins=[loop])
    words = Counter(outcome.word for outcome in loop.outcomes)
    noticed = words["killed"] + words["stopped"]
    score = 100.0 * noticed / max(len(sample), 1)
    print(f"{name}: {score:.1f} % ({noticed} of {len(sample)}; {words['stopped']} ran too long or died), {time.monotonic() - start:.0f} s")
    for outcome in sorted(loop.outcomes, key=lambda o: (o.mutant.module, o.mutant.line)):
        if outcome.word in ("survived", "unreached"):
            print(f"  {outcome.word:9} {outcome.mutant.name}    [{outcome.mutant.operator}, line {outcome.mutant.line}]")
    rows = [{"name": o.mutant.name, "word": o.word, "by": o.by} for o in loop.outcomes]
    (STATE / f"{name}.json").write_text(json.dumps({"seed": options.seed, "score": score, "mutants": rows}, indent=1))
    return score


if __name__ == "__main__":
    sys.exit(main())
