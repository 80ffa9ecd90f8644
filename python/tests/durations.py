"""Tests of several processes (`pytest -n 2 --dist loadfile`) end together where the longest files start first.

``durations.txt`` has the seconds of each file that takes more than two. ``TESSERA_TEST_TIMES=1`` writes it anew at the end of a run of
all tests.
"""

import os
from collections import Counter
from pathlib import Path

FILE = Path(__file__).with_name("durations.txt")
LEAST = 2


def read():
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    return {name: float(seconds) for seconds, name in map(str.split, lines)}


class Recorder:
    def __init__(self):
        self.seconds = Counter()

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid.split("::")[0].rpartition("/")[2]] += report.duration

    def pytest_sessionfinish(self, session, exitstatus):
        if exitstatus == 0:
            kept = [(round(seconds), name) for name, seconds in self.seconds.items() if seconds >= LEAST]
            FILE.write_text("".join(f"{seconds} {name}\n" for seconds, name in sorted(kept, key=lambda row: (-row[0], row[1]))))


def pytest_configure(config):
    is_worker = hasattr(config, "workerinput")
    if os.environ.get("TESSERA_TEST_TIMES") and not is_worker:
        config.pluginmanager.register(Recorder())


def pytest_collection_modifyitems(config, items):
    if hasattr(config, "workerinput"):
        seconds = read()
        # The sort is stable: the tests of a file stay together and in order.
        items.sort(key=lambda item: -seconds.get(item.path.name, 0))
