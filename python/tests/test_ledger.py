"""The ledger of GPU runs, without a GPU: the code of every row is emitted again, and its outputs are computed again.

A row whose code has changed is stale. `ledger/stale.txt` lists the stale ones, and no others; `TESSERA_BLESS=1` writes it.
"""

import copy
import json
import re
import sys
import warnings

import numpy as np
import pytest
from doc_blocks import BLESS, ROOT

sys.path.append(str(ROOT))

from bench.gpu.kernels import Bench  # noqa: E402
from gpurun import inputs  # noqa: E402
from gpurun.device import Host  # noqa: E402
from ledger import ledger, op_rows, op_workloads, workloads  # noqa: E402
from ledger.recipe import Recipe  # noqa: E402

# The ledger as it is


@pytest.fixture(scope="module")
def verdicts():
    rows = ledger.load()
    if not rows:
        warnings.warn("ledger/ledger.jsonl has no rows: nothing that ran on a GPU is proven", stacklevel=1)
    return [ledger.verify(row) for row in rows]


def test_every_row_is_proven_or_known_to_be_stale(verdicts):
    if BLESS:
        ledger.bless(verdicts)
    assert not ledger.unlisted(verdicts, ledger.listed())


def test_the_outputs_of_every_row_are_right(verdicts):
    assert not [f"{v.key}: {v.wrong}" for v in verdicts if v.wrong]


def test_rows_come_from_gpus():
    for row in ledger.load():
        assert row["gpu"] and row["driver"] and row["times"] and row["code"], ledger.key(row)
        # Unknown for kernels with pinned tunables: another object ran.
        assert all(code["registers"] is None or code["registers"] > 0 for code in row["code"]), ledger.key(row)


@pytest.mark.parametrize("field, edit, message", [
    ("times", lambda times: [t.update(ours_us=[v / 2 for v in t["ours_us"]]) for t in times.values()], "its times give"),
    ("times", lambda times: [t.update(ours_us=[v / 2 for v in t["ours_us"]], **{n: 2 * t[n] for n in ("ratio", "low", "high")})
                             for t in times.values()], "not what was signed"),
    ("times", lambda times: [t["peer_us"].append(t["peer_us"][0]) for t in times.values()], None),
    ("samples", lambda samples: samples["values"][0].__setitem__(0, samples["values"][0][0] * 1.001 + 1e-4), "not what was signed"),
    ("output", lambda output: output.update(sha256="0" * 64), "not what was signed"),
    ("code", lambda code: code[0].update(registers=1), "not what was signed"),
])  # fmt: skip
def test_no_row_can_be_edited_unnoticed(tmp_path, field, edit, message):
    path = tmp_path / "rows"
    for line in ledger.LEDGER.read_text().splitlines():
        row = json.loads(line)
        edit(row[field])
        path.write_text(json.dumps(row) + "\n")
        with pytest.raises(ledger.Invalid, match=message):
            ledger.load(path)
        with pytest.raises(ledger.Invalid):
            ledger.save([row], tmp_path / "other")


@pytest.mark.parametrize("name, value", {
    "bound": 1e9, "error": 0.0, "gpu": "NVIDIA B200", "driver": "1.0", "commit": "0000000", "date": "2020-01-01", "seed": 0,
    "signature": "0" * 64,
}.items())  # fmt: skip
def test_no_field_can_be_changed_unnoticed(tmp_path, name, value):
    path = tmp_path / "rows"
    rows = [json.loads(line) for line in ledger.LEDGER.read_text().splitlines()]
    for row in rows:
        if row[name] != value:
            path.write_text(json.dumps({**row, name: value}) + "\n")
            with pytest.raises(ledger.Invalid, match="not what was signed"):
                ledger.load(path)
    del rows[0]["signature"]
    path.write_text(json.dumps(rows[0]))
    with pytest.raises(ledger.Invalid, match="no `signature`"):
        ledger.load(path)


def ratios(peers, **fields):
    """The ratios of rows to peers, of those whose fields are these."""
    found = []
    for row in ledger.load():
        known = {**row["more"], "work": row["work"], "dtype": row["dtype"], "shape": row["shape"]}
        if all(value(known[name]) if callable(value) else known.get(name) == value for name, value in fields.items() if name in known):
            found += [t["ratio"] for peer, t in row["times"].items() if peer in peers]
    return found


def test_readme_says_what_the_ledger_says():
    text = " ".join((ROOT / "README.md").read_text().split())

    def said(before, form, after=""):
        number = r"(\d+\.\d+)"
        found = re.findall(re.escape(before) + form.replace("N", number) + re.escape(after), text)
        assert len(found) == 1, f"README says {before!r} {len(found)} times"
        return list(found[0])

    def ends(values):
        return [f"{min(values):.2f}", f"{max(values):.2f}"]

    cublas = ("cublas", "cublaslt")
    large = lambda shape: min(shape) >= 1024 and max(shape) >= 4096 and not any(n % 8 for n in shape)  # noqa: E731
    assert said("`ts.op.matmul` reaches ", "N to N", " times the speed of cuBLAS for large bf16 matrices") == ends(
        ratios(cublas, work="matmul", dtype="bf16", shape=large, epilogue=False)
    )
    assert said("a gemm of fifteen lines ", "N and N") == ends(ratios(("eager",), work="gemm", dtype="bf16", shape=large))
    plain = dict(work="attention", dtype="bf16", ramp=False, cap=False, std=1, window=None, shape=lambda s: s[-1] == 128 and s[1] == s[2])
    assert said("attention ", "N to N", " times that of cuDNN at head dim 128 without a mask") == ends(
        ratios(("cudnn",), **plain, causal=False)
    )
    assert said("without a mask, ", "N to N", " where causal") == ends(ratios(("cudnn",), **plain, causal=True))


# The ledger's own machinery, on rows that the host makes


@pytest.fixture(scope="module")
def made():
    """Rows by kind of work, as a run would write them."""
    about = {"gpu": None, "driver": None, "commit": "none"}
    bench = Bench(Host(), seed=7, rounds=2, keep=True, about=about)
    small = [workloads.softmax(24, 96, "bf16"), workloads.layernorm(5, 200, "f32"), workloads.sum_all(20, 2048, "f32")]
    small += [workloads.transpose(33, 9, "f32"), workloads.gemm(33, 40, 17, "bf16"), workloads.saxpy(8, 64, "f32")]
    rows = {}
    for work in small:
        found = bench.work(work)["rows"]
        assert all(row["status"] == "pass" for row in found), found
        rows[work.kind] = next(row["ledger"] for row in found if "ledger" in row)
    return rows


@pytest.fixture(scope="module")
def operations():
    """Rows of library operations, as a run on the host would write them."""
    keeper = op_rows.Keeper(Host(), 7, {"gpu": None, "driver": None, "commit": "none"})
    small = [
        op_workloads.matmul(70, 48, 96, "bf16", b="column"), op_workloads.matmul(33, 17, 40, "f32", a="column"),
        op_workloads.matmul(16, 256, 4096, "bf16"), op_workloads.matmul(300, 290, 301, "bf16"), op_workloads.matmul(40, 24, 16, "bf16", epilogue=True),
        op_workloads.matmul(64, 64, 64, "fp8_e4m3", b="column", mode="fast"), op_workloads.matmul(32, 48, 64, "int8", b="column"),
        op_workloads.matmul(64, 64, 64, "tf32", b="column"),
        op_workloads.attention(1, 2, 1, 40, 70, 64, "bf16", causal=True), op_workloads.attention(2, 2, 2, 33, 33, 32, "bf16", window=8, causal=True),
        op_workloads.attention(1, 1, 1, 64, 300, 128, "bf16", ramp=True), op_workloads.attention(1, 1, 1, 64, 128, 64, "bf16", cap=True),
        op_workloads.attention(1, 2, 2, 300, 300, 64, "bf16", documents=4), op_workloads.attention(1, 1, 1, 64, 128, 64, "bf16", std=16),
    ]  # fmt: skip
    return [keeper.row(work, {}) for work in small]


def test_operations_have_rows_that_are_proven(operations, tmp_path):
    for row in operations:
        found = ledger.verify(row)
        assert (found.word, found.left) == ("proven", ""), found
    ledger.save(operations, tmp_path / "rows")
    assert len(ledger.load(tmp_path / "rows")) == len(operations)


def test_operations_name_every_launch_as_a_gpu_makes_it(operations):
    """Chunks of K are combined, and rows at odd addresses are copied first, though no GPU is here."""
    names = [[code["recipe"]["kernel"].partition(":")[2] for code in row["code"]] for row in operations]
    assert names[0] == ["product"] and names[2] == ["parts", "combined"] and names[3] == ["two", "product"]
    assert names[-1] == ["forward"]
    assert operations[0]["code"][0]["recipe"]["layouts"] == {"B": {"axis": 0, "align": 16}}
    epilogue = operations[4]["code"][0]["recipe"]["config"]["epilogue.of"]
    assert epilogue["function"] == "tessera.kernels.matmul:epilogue_of" and epilogue["of"][1:] == [True, False, False]


def test_another_plan_makes_the_row_of_an_operation_stale(operations, monkeypatch):
    from tessera.kernels import gemm_plan

    row = copy.deepcopy(operations[0])
    monkeypatch.setattr(gemm_plan, "plan", lambda *args, **named: gemm_plan.Plan((64, 64, 64)))
    assert "in another configuration" in ledger.verify(row).stale


def test_wrong_results_of_operations_are_found(operations):
    for row in copy.deepcopy(operations):
        values = row["samples"]["values"]
        values[0][0] += 0.1 + abs(values[0][0])
        assert "elements: at" in ledger.verify(row).wrong, ledger.key(row)


def test_what_ran_otherwise_changes_no_recipe():
    """The kernel that runs and the one whose code is kept are separate: layouts of calls do not change the kept code."""
    (step,) = workloads.sum_rows(6, 300, "f32").steps
    before = step.recipe.emit()
    x, y = np.ones((1, 300, 6), np.float32).swapaxes(1, 2), np.zeros((1, 6), np.float32)
    step.recipe.make()(x, y, 0.0, 1, **step.recipe.constants())
    assert step.recipe.emit() == before and step.recipe.make() is not step.recipe.compiled().kernel


@pytest.fixture
def rows(made):
    return copy.deepcopy(made)


def test_what_a_run_writes_is_proven(rows, tmp_path):
    for row in rows.values():
        found = ledger.verify(row)
        assert (found.word, found.left) == ("proven", ""), found
    assert len(rows["softmax"]["times"]["copy"]["ours_us"]) == 2
    ledger.save(rows.values(), tmp_path / "rows")
    again = ledger.load(tmp_path / "rows")
    assert len(again) == len(rows) and all(ledger.verify(row).word == "proven" for row in again)
    assert len(ledger.merged(again, [rows["gemm"]])) == len(rows)


@pytest.mark.parametrize("level", ["tile", "plan", "ptx"])
def test_another_code_makes_a_row_stale_and_says_from_which_level_on(rows, level):
    row = rows["softmax"]
    for changed in ("tile", "plan", "ptx")[("tile", "plan", "ptx").index(level) :]:
        row["code"][0][changed] = "0" * 32
    assert ledger.verify(row).stale == f"rows_whole: another {level}"


def test_a_later_kernel_of_a_row_counts_too(rows):
    assert len(rows["sum"]["code"]) == 2
    rows["sum"]["code"][1]["ptx"] = "0" * 32
    assert "another ptx" in ledger.verify(rows["sum"]).stale


def test_other_tiles_and_kernels_that_are_gone_make_a_row_stale(rows, monkeypatch):
    rows["softmax"]["code"][0]["recipe"]["config"]["R"] = 4
    assert "in another configuration" in ledger.verify(rows["softmax"]).stale
    work = op_workloads.of("saxpy", rows["saxpy"]["shape"], "f32")
    monkeypatch.setattr(Recipe, "emit", lambda self: 1 / 0)
    assert "cannot be emitted: ZeroDivisionError" in ledger.why_stale(rows["saxpy"], work)


def test_a_hash_that_is_not_that_of_the_right_result_is_found(rows):
    for name in ("gemm", "transpose"):
        rows[name]["output"]["sha256"] = "0" * 64
        assert "the hash of the result" in ledger.verify(rows[name]).wrong
    # Sums in f32 depend on their order: their hashes are only kept.
    rows["softmax"]["output"]["sha256"] = "0" * 64
    assert not ledger.verify(rows["softmax"]).wrong


def test_a_sample_that_is_not_right_is_found(rows):
    for name, row in rows.items():
        values = row["samples"]["values"]
        values[-1][0] += max(abs(values[-1][0]), 1.0) * 2.0**-6
        place = (row["samples"]["rows"][-1], row["samples"]["columns"][0])
        assert f"1 of {len(values) * len(values[0])} elements: at {place}" in ledger.verify(row).wrong, name
        values[-1][0] = float("nan")
        assert ledger.verify(row).wrong, name


def test_other_inputs_are_found(rows):
    for name, row in rows.items():
        row["seed"] += 1
        assert ledger.verify(row).wrong, name


def test_samples_that_say_less_are_refused(rows):
    samples = rows["softmax"]["samples"]
    samples["values"] = samples["values"][:-1]
    assert "samples for 8 rows" in ledger.verify(rows["softmax"]).wrong
    rows["layernorm"]["samples"]["rows"][-1] = 10**6
    assert "samples outside" in ledger.verify(rows["layernorm"]).wrong


@pytest.mark.parametrize("change, message", [
    (lambda row: row.pop("seed"), "a row has no `seed`"),
    (lambda row: row["code"][0].pop("ptx"), "a kernel has no `ptx`"),
    (lambda row: row.update(code=[]), "a row has no kernel"),
    (lambda row: row.update(dtype=3), "`dtype` = 3"),
    (lambda row: row.update(error=2.0, bound=1.0), "the error 2.0 beyond its bound"),
    (lambda row: row.update(error=float("nan")), "the error nan beyond its bound"),
    (lambda row: row.update(work="dance"), "there is no work `dance`"),
])  # fmt: skip
def test_rows_that_are_none_are_refused(rows, tmp_path, change, message):
    change(rows["softmax"])
    with pytest.raises(ledger.Invalid, match=message):
        ledger.validate(rows["softmax"])


def test_files_name_the_line_and_have_one_row_for_each_work(rows, tmp_path):
    path = tmp_path / "rows"
    assert ledger.load(path) == []
    path.write_text('{"work": "softmax"}\n')
    with pytest.raises(ledger.Invalid, match="line 1: a row has no"):
        ledger.load(path)
    ledger.save([rows["gemm"], rows["gemm"]], path)
    with pytest.raises(ledger.Invalid, match="more than one row for gemm bf16 33x40x17"):
        ledger.load(path)


def test_the_list_of_stale_rows_is_a_ratchet(rows, tmp_path):
    rows["gemm"]["code"][0]["ptx"] = "0" * 32
    found = [ledger.verify(row) for row in rows.values()]
    (stale,) = [v.key for v in found if v.stale]
    assert ledger.unlisted(found, [stale]) == []
    assert ledger.unlisted(found, []) == [f"stale, and not in ledger/stale.txt: {stale} (gemm: another ptx)"]
    other = ledger.key(rows["softmax"])
    assert ledger.unlisted(found, [stale, other]) == [f"in ledger/stale.txt, and not stale: {other}"]
    ledger.bless(found, tmp_path / "stale")
    assert ledger.listed(tmp_path / "stale") == [stale]


def test_what_takes_long_is_left_out_and_reported(rows, monkeypatch):
    monkeypatch.setattr(ledger, "MOST_FLOPS", 0)
    monkeypatch.setattr(ledger, "MOST_ELEMENTS", 0)
    assert ledger.verify(rows["gemm"]).left == "8 sampled rows, the hash of the result"
    assert ledger.verify(rows["gemm"], everything=True).left == ""


# Inputs


def mixed(place, key):
    """The same numbers in Python's own integers."""
    mask = (1 << 64) - 1
    z = (place * 0x9E3779B97F4A7C15 + key) & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31


def test_inputs_are_the_same_numbers_for_ever():
    places = np.array([0, 1, 5, 2**40, 2**62], np.int64)
    found = inputs.words(places, 3, "x").view(np.uint64).tolist()
    assert found == [mixed(int(p), inputs._key(3, "x")) for p in places]
    assert inputs._key(1, "x") == -8944436489170885481
    work = workloads.gemm(3, 4, 5, "bf16")
    assert workloads.Generated(work, 1).at("A", range(3)).astype(int).tolist() == [
        [-1, 0, -1, 0, 3], [2, -3, 3, 1, 3], [0, -3, -2, 3, 3]
    ]  # fmt: skip
    bell = workloads.Generated(workloads.softmax(100, 1000, "f32"), 1).at("x", range(100))
    assert abs(bell.mean()) < 0.01 and abs(bell.std() - 1.155) < 0.01 and np.abs(bell).max() < 4
    assert np.array_equal(bell, Host().generated(workloads.softmax(100, 1000, "f32").arrays["x"], 1, "x"))


def test_samples_have_the_corners_and_no_more_than_64_elements():
    for grid in ((1, 1), (5, 1), (1000, 1), (1, 1000), (3, 5), (4096, 4096)):
        rows, columns = ledger.sampled(grid, 1)
        assert len(rows) * len(columns) <= 64 and rows == sorted(set(rows)) and columns == sorted(set(columns))
        assert (rows[0], rows[-1], columns[0], columns[-1]) == (0, grid[0] - 1, 0, grid[1] - 1)


def test_a_recipe_emits_what_runs():
    """The Tile IR of a call with data is that of its recipe."""
    work = workloads.rmsnorm(6, 300, "f16")
    (step,) = work.steps
    bench = Bench(Host(), seed=1, rounds=1, keep=False, about={})
    bench.checked(work)
    assert step.recipe.make().explain().tile_hash == step.recipe.emit().tile
    with pytest.raises(ValueError, match="no field stages"):
        Recipe.of({"kernel": "ledger.kernels:gemm", "stages": 3})
