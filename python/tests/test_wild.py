"""The programs of `bench/wild.py`: drawn alike from one seed, and right on the CPU."""

import json
import sys

import pytest
from doc_blocks import ROOT

import tessera as ts

sys.path.append(str(ROOT))

from bench import wild  # noqa: E402
from bench.drawn import families, programs, report  # noqa: E402
from bench.drawn.cpu import Cpu  # noqa: E402
from bench.drawn.machine import Wrong, watched  # noqa: E402

SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def cpu():
    return Cpu()


def result(on, program, **pinned):
    arrays, out = on.arrays(program), on.empty(program.out)
    return arrays, on.ours(program, arrays, out, **pinned)()


@pytest.mark.parametrize("family", families.DRAWN)
def test_programs_of_a_family_are_right(family, cpu):
    for seed in SEEDS:
        program = programs.draw(seed, 0, programs.TINY, family)
        cpu.check(program, *result(cpu, program))


def test_every_candidate_is_right(cpu):
    program = next(p for p in (programs.draw(5, i, programs.TINY, "textbook matmul") for i in range(99)) if len(p.space["BM"]) > 1)
    for pinned in wild.candidates(program)[:3]:
        assert all(f"{name}=[{value}]" in program.text(**pinned) for name, value in pinned.items())
        cpu.check(program, *result(cpu, program, **pinned))


def test_a_wrong_result_is_found(cpu):
    for family in families.DRAWN:
        program = programs.draw(1, 0, programs.TINY, family)
        arrays, found = result(cpu, program)
        cpu.check(program, arrays, found)
        worse = found.copy()
        worse.reshape(-1)[-1] += abs(worse).max() + 1
        with pytest.raises(Wrong, match="1 of "):
            cpu.check(program, arrays, worse)


def test_a_seed_says_everything_that_is_drawn():
    for limits in (programs.GPU, programs.CPU):
        first, again = ([programs.draw(7, i, limits).as_dict() for i in range(40)] for _ in range(2))
        assert json.dumps(first) == json.dumps(again)
        assert json.dumps(first) != json.dumps([programs.draw(8, i, limits).as_dict() for i in range(40)])
    # A family that is left out changes no other program.
    whole = [p for p in (programs.draw(7, i, programs.GPU) for i in range(60)) if p.family == "matmul"]
    options = wild.parse(["--seed", "7", "--family", "^matmul$", "--count", str(len(whole))])
    assert [wild.drawn(options, i) for i in wild.chosen(options)] == whole


def test_programs_stay_within_their_limits():
    seen = [programs.draw(3, i, programs.GPU) for i in range(300)]
    assert {p.family for p in seen} == set(families.DRAWN)
    low, high = programs.GPU.bytes
    for p in seen:
        assert p.flops <= programs.GPU.flops
        if p.family in ("rows", "textbook rows", "elementwise", "stencil", "row reduction", "column reduction"):
            assert low / 4 <= p.bytes <= 1.5 * high, p.title
    sides = [n for p in seen if p.family == "matmul" and p.dtype != "fp8_e4m3" for n in p.shape if n >= 8]
    assert 0.5 < sum(n % 8 == 0 for n in sides) / len(sides) < 0.8
    assert {p.kind.split()[0] for p in seen if p.family == "matmul"} == {"NN", "NT", "TN", "TT"}


def row(name, ratio, **more):
    launch = {"kernel": "k", "grid": [20, 1, 1], "config": "{'BM': 64}", "resources": {"local_bytes": "8"}, "tuned": ""}
    return {"name": name, "family": "rows", "title": name, "status": "timed", "ratio": ratio, "peer": "eager", "peer_us": 100.0, "ours_us": 200.0,
            "roof": 0.1, "bound": "memory", "of_copy": ratio, "pitches": {"x": 34}, "launches": [launch], **more}  # fmt: skip


def test_the_report_gives_distributions_and_reasons():
    rows = [row(f"1/{i}", (i + 1) / 10) for i in range(20)]
    rows += [row("1/20", 0.01, peer_us=5.0, ours_us=6.5), {**row("1/21", 1.0), "status": "wrong", "why": "1 of 3 elements"}]
    found = report.summary(rows)["rows"]
    assert found["programs"] == 22 and found["failed"] == 1 and found["short"] == {"count": 1, "median_us": 1.5}
    assert found["peer"]["count"] == 20 and abs(found["peer"]["median"] - 1.05) < 1e-9 and abs(found["peer"]["p5"] - 0.195) < 1e-9
    text = report.show(rows, 132)
    assert text.count(" of eager (") == 10 and "1/21  1/21: wrong: 1 of 3 elements" in text
    assert "20 groups on 132 SMs; 8 bytes of spills; k BM=64; pitches off 16 bytes: x 34" in text


def test_launches_are_watched(cpu):
    program = programs.draw(1, 0, programs.TINY, "rows")
    with watched() as launches:
        result(cpu, program)
    assert launches and all(launch["kernel"] and launch["grid"] for launch in launches)
    assert ts.kernel is not None
