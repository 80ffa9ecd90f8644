"""Models on meshes: the collectives that placements of the literature ask for, counted, and training that gives what one device gives."""

from __future__ import annotations

import functools
from collections import Counter

import numpy as np
import pytest

import tessera as ts
from tessera import dist, nn, xp

BATCH, LENGTH, SIZE, HEADS, LAYERS, WORDS = 8, 16, 32, 4, 2, 48


def block(p, x, sequence=None):
    """A transformer block whose queries, keys and values have weights of their own. ``sequence`` places what is between the products."""

    def between(h):
        return h if sequence is None else dist.constrain(h, sequence)

    b, t, size = x.shape
    h = between(nn.layernorm(x, p["norm1"]["scale"], p["norm1"]["shift"]))

    def heads(w):
        return xp.transpose(xp.reshape(h @ w, (b, t, HEADS, size // HEADS)), (0, 2, 1, 3))

    q, k, v = heads(p["q"]), heads(p["k"]), heads(p["v"])
    scores = q @ xp.swapaxes(k, 2, 3) / np.float32(np.sqrt(size // HEADS))
    mask = xp.tril(xp.ones((t, t), "bool"))
    mixed = nn.softmax(xp.where(mask, scores, np.float32(-1e30))) @ v
    joined = xp.reshape(xp.transpose(mixed, (0, 2, 1, 3)), (b, t, size))
    x = x + between(joined @ p["out"])
    h = between(nn.layernorm(x, p["norm2"]["scale"], p["norm2"]["shift"]))
    return x + between(xp.tanh(h @ p["up"]) @ p["down"])


def model(params, tokens, sequence=None):
    x = params["table"][tokens]
    if sequence is not None:
        x = dist.constrain(x, sequence)
    for p in params["blocks"]:
        x = block(p, x, sequence)
    return x


def loss(params, tokens, targets, sequence=None):
    logits = model(params, tokens, sequence) @ params["table"].T
    return nn.cross_entropy(logits, targets)


def arrays(seed=0):
    rng = np.random.default_rng(seed)

    def w(*shape):
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    def norm():
        return {"scale": np.ones(SIZE, np.float32), "shift": np.zeros(SIZE, np.float32)}

    one = lambda: {  # noqa: E731
        "q": w(SIZE, SIZE), "k": w(SIZE, SIZE), "v": w(SIZE, SIZE), "out": w(SIZE, SIZE), "up": w(SIZE, 4 * SIZE),
        "down": w(4 * SIZE, SIZE), "norm1": norm(), "norm2": norm(),
    }  # fmt: skip
    return {"table": w(WORDS, SIZE), "blocks": [one() for _ in range(LAYERS)]}


def batch(seed=1):
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(0, WORDS, (BATCH, LENGTH)).astype(np.int32) for _ in range(2))


COLUMNS, ROWS = dist.spec(None, "tp"), dist.spec("tp", None)
MEGATRON = {"q": COLUMNS, "k": COLUMNS, "v": COLUMNS, "up": COLUMNS, "out": ROWS, "down": ROWS}


def placed(tree, mesh, specs, name=""):
    if isinstance(tree, dict):
        return {k: placed(v, mesh, specs, k) for k, v in tree.items()}
    if isinstance(tree, list):
        return [placed(v, mesh, specs, name) for v in tree]
    return dist.shard(tree, specs(name, tree), mesh)


def megatron(name, _):
    return MEGATRON.get(name, dist.spec())


def counted(compiled, at_least=0):
    """How many collectives there are by kind and axis, of values of some size."""
    return Counter((c.kind, c.axis) for c in compiled.collectives if c.nbytes >= at_least)


def test_tensor_parallel_blocks_have_the_collectives_of_the_paper():
    """Two all_reduces a layer forward, two more backward; the embedding is in copies."""
    mesh = dist.mesh(2, ("tp",), (2,))
    params, (tokens, targets) = placed(arrays(), mesh, megatron), batch()
    forward = counted(ts.jit(lambda p, t: model(p, t)).compiled(params, tokens))
    assert forward == {("all_reduce", "tp"): 2 * LAYERS}
    both = ts.jit(ts.value_and_grad(loss, argnums=0)).compiled(params, tokens, targets)
    assert counted(both) == {("all_reduce", "tp"): 4 * LAYERS}
    # Each of them is of one array of activations.
    assert {c.nbytes for c in both.collectives} == {BATCH * LENGTH * SIZE * 4}


def test_sequence_parallel_blocks_gather_and_scatter():
    """With activations split along the sequence each all_reduce is a reduce_scatter and an all_gather."""
    mesh = dist.mesh(2, ("tp",), (2,))
    # Fewer tokens than a weight has rows: it is the activations that are gathered.
    params, (tokens, _) = placed(arrays(), mesh, megatron), [x[:2, :8] for x in batch()]
    sequence = dist.spec(None, "tp", None)
    forward = counted(ts.jit(lambda p, t: model(p, t, sequence)).compiled(params, tokens))
    assert forward == {("reduce_scatter", "tp"): 2 * LAYERS, ("all_gather", "tp"): 2 * LAYERS}


def test_ranks_add_to_their_rows_of_a_table():
    """The gradient of an embedding whose rows are split: each rank has a block, and no whole table."""
    mesh = dist.mesh(8, ("dp", "tp"), (2, 4))
    rng = np.random.default_rng(2)
    table, targets = (rng.standard_normal(s).astype(np.float32) for s in ((WORDS + 2, SIZE), (BATCH, LENGTH, SIZE)))
    # Words outside are those at the ends.
    tokens = rng.integers(-3, WORDS + 5, (BATCH, LENGTH)).astype(np.int32)

    def cost(table, tokens, targets):
        return xp.sum((xp.take(table, tokens, axis=0, mode="clip") - targets) ** 2)

    for profile in ("default", "strict"):
        step = ts.jit(ts.grad(cost, argnums=0), numerics=profile)
        placed = dist.shard(table, dist.spec("tp"), mesh), *(dist.shard(x, dist.spec("dp"), mesh) for x in (tokens, targets))
        made = step.compiled(*placed)
        scatters = [line for line in made.spmd.splitlines() if "graph.scatter" in line]
        rows = -(-(WORDS + 2) // 4)
        assert len(scatters) == 1 and f"tensor<[{rows}, {SIZE}], f32>" in scatters[0]
        assert not any(f"[{WORDS + 2}, {SIZE}]" in line for line in made.spmd.splitlines() if "scatter" in line or "const" in line)
        got, want = step(*placed).numpy(), np.asarray(step(table, tokens, targets))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        assert profile == "default" or got.tobytes() == want.tobytes()


def test_data_parallel_steps_sum_gradients_once():
    mesh = dist.mesh(4, ("dp",), (4,))
    params = placed(arrays(), mesh, lambda *_: dist.spec())
    tokens, targets = (dist.shard(x, dist.spec("dp"), mesh) for x in batch())
    both = ts.jit(ts.value_and_grad(loss, argnums=0)).compiled(params, tokens, targets)
    sizes = Counter(c.nbytes for c in both.collectives if c.nbytes > 8)
    assert {c.kind for c in both.collectives} == {"all_reduce"}
    wanted = Counter(x.nbytes for x in ts.tree.leaves(arrays()))
    # The table has two gradients, of what it embeds and of what it scores, which are added before.
    assert sizes == wanted


def test_fully_sharded_steps_gather_weights_and_scatter_gradients():
    mesh = dist.mesh(4, ("dp",), (4,))
    params = placed(arrays(), mesh, lambda _, x: dist.spec("dp", priority=2))
    tokens, targets = (dist.shard(x, dist.spec("dp"), mesh) for x in batch())
    both = ts.jit(ts.value_and_grad(loss, argnums=0)).compiled(params, tokens, targets)
    assert {c.kind for c in both.collectives if c.nbytes > 8} == {"all_gather", "reduce_scatter"}
    scattered = Counter(c.nbytes for c in both.collectives if c.kind == "reduce_scatter")
    assert scattered == Counter(x.nbytes for x in ts.tree.leaves(arrays()))
    # Each weight is gathered once.
    gathered = Counter(c.nbytes for c in both.collectives if c.kind == "all_gather")
    assert gathered == Counter(x.nbytes for x in ts.tree.leaves(arrays()))


def test_collectives_are_steps_of_the_plan_and_a_track_of_the_profile(monkeypatch):
    """Where ranks run one by one: collectives start before what does not read them, and each rank's are a track of their own."""
    monkeypatch.setenv("TESSERA_OFF", "rank_rows")
    mesh = dist.mesh(2, ("tp",), (2,))
    params, (tokens, targets) = placed(arrays(), mesh, megatron), batch()
    step = ts.jit(ts.value_and_grad(loss, argnums=0))
    made = step.compiled(params, tokens, targets)
    assert all(made.stats[name] > 0 for name in ("partition_s", "plan_s", "compile_s"))
    plan = made.rank_plan
    steps = [line.split("{")[0].split() for line in plan.splitlines() if "sched." in line]
    kinds = [next(word for word in words if word.startswith("sched.")) for words in steps]
    started = [place for place, kind in enumerate(kinds) if kind == "sched.collective"]
    assert len(started) == 4 * LAYERS
    # Behind a collective is its event, and then a launch that does not wait for it, somewhere.
    assert any("sched.launch" in kinds[place : kinds.index("sched.wait", place)] for place in started if "sched.wait" in kinds[place:])
    step(params, tokens, targets)
    with ts.profile() as profile:
        step(params, tokens, targets)
    found = [e for e in profile.trace()["traceEvents"] if e.get("cat") == "collective"]
    assert Counter((e["name"], e["tid"]) for e in found) == {("all_reduce over tp", rank): 4 * LAYERS for rank in range(2)}
    assert all(e["dur"] > 0 and e["args"]["bytes (counted)"] == 2 * BATCH * LENGTH * SIZE * 4 for e in found)


def fully_sharded(_, x):
    return dist.spec("dp", priority=2)


@pytest.mark.parametrize("profile", ["default", "deterministic", "strict"])
@pytest.mark.parametrize("specs", [lambda *_: dist.spec(), megatron, fully_sharded], ids=["dp", "dp and tp", "fsdp"])
def test_gradients_are_combined_in_buckets(specs, profile, monkeypatch):
    """Fewer collectives, of the same bytes and with the same bits. Gradients are results too, which the caller keeps one by one."""
    mesh = dist.mesh(4, ("dp", "tp"), (2, 2) if specs is megatron else (4, 1))
    params, given = placed(arrays(), mesh, specs), [dist.shard(x, dist.spec("dp"), mesh) for x in batch()]
    optimiser = ts.optim.AdamW(lr=1e-2)
    state, found = optimiser.init(params), []

    def step(params, state, tokens, targets):
        value, grads = ts.value_and_grad(loss, argnums=0)(params, tokens, targets)
        return value, grads, optimiser.update(params, grads, state)

    for off in ("rank_rows,buckets", "rank_rows"):
        monkeypatch.setenv("TESSERA_OFF", off)
        run = ts.jit(step, numerics=profile)
        made = run.compiled(params, state, *given)
        with dist.count() as c:
            out = run(params, state, *given)
        bits = [np.asarray(x).tobytes() for x in ts.tree.leaves(out)]
        found.append((bits, counted(made), c.nbytes, sum(c[kind] for kind in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all"))))
        steps = [line for line in made.rank_plan.splitlines() if "sched.collective" in line]
        joined = Counter(x.bucket for x in made.collectives if x.bucket is not None)
        assert len(steps) == found[-1][-1] == len(made.collectives) - sum(joined.values()) + len(joined)
        assert sorted(joined.values()) == sorted(int(line.split("joined = ")[1].split(",")[0]) for line in steps if "joined" in line)
    (apart, programs, nbytes, before), (together, same, again, after) = found
    assert apart == together and programs == same and nbytes == again
    if profile == "strict":
        # Sums of floats are not combined over ranks: operands are gathered.
        assert before == after
    else:
        # One bucket for each kind of gradients: those that are alike along `tp`, and those that are not.
        assert before - after == sum(joined.values()) - len(joined) >= 20 and len(joined) == (2 if specs is megatron else 1)
        assert f"bucket {max(joined)}" in run.explain(params, state, *given)


def test_what_is_needed_before_the_next_is_combined_by_itself(monkeypatch):
    """A sum that the next one is computed from is in no bucket with it; nor are sums of another operator, dtype or axis."""
    monkeypatch.setenv("TESSERA_OFF", "rank_rows")
    mesh = dist.mesh(4, ("dp", "tp"), (2, 2))

    @functools.partial(dist.shard_map, mesh=mesh, in_specs=dist.spec(("dp", "tp")), out_specs=dist.spec(("dp", "tp")))
    def chained(x):
        a = dist.all_reduce(x, "dp")
        b = dist.all_reduce(xp.tanh(a), "dp")
        return a + b + x

    @functools.partial(dist.shard_map, mesh=mesh, in_specs=dist.spec(("dp", "tp")), out_specs=dist.spec(("dp", "tp")))
    def others(x):
        sums = dist.all_reduce(x, "dp"), dist.all_reduce(xp.tanh(x), "tp"), dist.all_reduce(xp.sin(x), "dp", op="max")
        wide = dist.all_reduce(xp.astype(x, "float64"), "dp")
        return sums[0] + sums[1] + sums[2] + xp.astype(wide, "float32")

    @functools.partial(dist.shard_map, mesh=mesh, in_specs=dist.spec(("dp", "tp")), out_specs=dist.spec(("dp", "tp")))
    def alike(x):
        return dist.all_reduce(xp.cos(x), "dp") + dist.all_reduce(xp.tanh(x), "dp") + x

    x = np.random.default_rng(3).standard_normal((8, 6)).astype(np.float32)
    for f, buckets in ((chained, set()), (others, set()), (alike, {0})):
        assert {c.bucket for c in ts.jit(f).compiled(x).collectives} - {None} == buckets
        rows = x.reshape(2, 2, 2, 6)
        both = lambda v: v.sum(0, keepdims=True)  # noqa: E731
        want = {
            chained: both(rows) + both(np.tanh(both(rows) + 0 * rows)) + rows,
            others: both(rows) + np.tanh(rows).sum(1, keepdims=True) + np.sin(rows).max(0, keepdims=True) + both(rows),
            alike: both(np.cos(rows)) + both(np.tanh(rows)) + rows,
        }[f]
        np.testing.assert_allclose(np.asarray(ts.jit(f)(x)), want.reshape(8, 6), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("shape", [(4, 2), (2, 3), (1, 4)])
def test_training_gives_the_losses_of_one_device(shape, rows, monkeypatch):
    """Data and tensor parallel, with heads that three ranks do not divide; the same bits under `strict`. As rows of one function, and rank by rank."""
    if not rows:
        monkeypatch.setenv("TESSERA_OFF", "rank_rows")
    mesh = dist.mesh(int(np.prod(shape)), ("dp", "tp"), shape)
    optimiser = ts.optim.AdamW(lr=1e-2)
    data = [batch(seed) for seed in range(3)]

    def losses(profile, on_mesh):
        @ts.jit(numerics=profile)
        def step(params, state, tokens, targets):
            value, grads = ts.value_and_grad(loss, argnums=0)(params, tokens, targets)
            params, state = optimiser.update(params, grads, state)
            return value, params, state

        params = placed(arrays(), mesh, megatron) if on_mesh else arrays()
        state, out = optimiser.init(params), []
        for given in data:
            given = [dist.shard(x, dist.spec("dp"), mesh) for x in given] if on_mesh else given
            value, params, state = step(params, state, *given)
            out.append(float(np.asarray(value)))
        return np.array(out)

    np.testing.assert_allclose(losses("default", True), losses("default", False), rtol=0, atol=1e-5)
    assert (losses("strict", True) == losses("strict", False)).all()


# Composites on blocks


@pytest.fixture
def rank_by_rank(monkeypatch):
    monkeypatch.setenv("TESSERA_OFF", "rank_rows")
    ts.runtime.select_backend("cpu")
    yield
    ts.runtime.select_backend(None)


@ts.kernel
def tripled_rows(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["M", "N", ts.f32]):
    i = ts.tile.grid(M)
    y[i, :] = x[i, :] * 3.0


ROWS = np.arange(48, dtype=np.float32).reshape(6, 8)


def launched(f, *args):
    return [line for line in f.compiled(*args).rank_plan.splitlines() if "sched.launch" in line]


@pytest.mark.parametrize(("split", "whole"), [((4, "dp"), True), ((3, "dp"), True), ((2, None, "tp"), False)])
def test_a_kernel_computes_the_blocks_of_a_composite(rank_by_rank, split, whole):
    """Where its rows are blocks; where the sum of a row is of several ranks, it is decomposed."""

    @ts.composite
    def tripled(x):
        return x / xp.sum(x * 0.0 + 1.0, 1, keepdims=True) * 24.0

    tripled.kernel(tripled_rows)
    n, *dims = split
    axis = next(d for d in dims if d)
    x = dist.shard(ROWS, dist.spec(*dims), dist.mesh(n, (axis,), (n,)))
    f = ts.jit(lambda x: tripled(x + 0.0))
    np.testing.assert_allclose(f(x).numpy(), ROWS * 3.0, rtol=1e-6)
    assert any("tripled_rows" in line for line in launched(f, x)) == whole
    assert ("whole = tripled" in f.compiled(x).spmd) == whole


@ts.kernel
def scaled_and_summed(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["M", "N", ts.f32], s: ts.Out["N", ts.f32]):
    """One group: it adds the rows up."""
    total = ts.tile.zeros((N,), ts.f32)
    for i in ts.tile.range(M):
        y[i, :] = x[i, :] * 3.0
        total = total + x[i, :]
    s[:] = total


@pytest.mark.parametrize(("n", "whole"), [(3, True), (2, True), (4, False)])
def test_a_result_that_is_a_sum_over_blocks_is_combined(rank_by_rank, n, whole):
    """As of the gradient of a scale: each rank's kernel sums its rows. Blocks that are not equal are not for kernels."""

    @ts.composite
    def both(x):
        return x * 3.0, xp.sum(x, axis=0)

    both.kernel(scaled_and_summed)
    x = dist.shard(ROWS, dist.spec("dp"), dist.mesh(n, ("dp",), (n,)))
    f = ts.jit(lambda x: both(x + 0.0))
    y, s = f(x)
    np.testing.assert_array_equal(y.numpy(), ROWS * 3.0)
    np.testing.assert_array_equal(s.numpy(), ROWS.sum(0))
    assert any("scaled_and_summed" in line for line in launched(f, x)) == whole
    assert [c.kind for c in f.compiled(x).collectives] == ["all_reduce"] and y.placements == ("S(0)",) and s.placements == ("R",)

    # Read by another op of the decomposition, a sum is one of all rows.
    @ts.composite
    def normed(x):
        s = xp.sum(x, axis=0)
        return x - s, s

    g = ts.jit(lambda x: normed(x + 0.0))
    y, s = g(x)
    np.testing.assert_array_equal(y.numpy(), ROWS - ROWS.sum(0))
    np.testing.assert_array_equal(s.numpy(), ROWS.sum(0))
    with ts.numerics.profile("strict"):
        assert f(x)[1].numpy().tobytes() == ROWS.sum(0).tobytes()


def test_a_block_of_a_function_of_extents_is_its_decomposition(rank_by_rank):
    """A kernel for the block would count the rows of the block."""

    @ts.composite
    def counted_rows(x):
        return x * 3.0 + float(x.shape[0])

    counted_rows.kernel(tripled_rows)
    mesh = dist.mesh(3, ("dp",), (3,))
    f = ts.jit(lambda x: counted_rows(x))
    x = dist.shard(ROWS, dist.spec("dp"), mesh)
    np.testing.assert_array_equal(f(x).numpy(), ROWS * 3.0 + 6.0)
    assert "whole = counted_rows" in f.compiled(x).spmd
    # Of the whole array it is what a user registered.
    np.testing.assert_array_equal(np.asarray(f(ROWS)), ROWS * 3.0)


def test_a_rule_says_more_than_the_decomposition(rank_by_rank):
    """What must be whole, and what an argument is split by that only the kernel reads."""

    @ts.composite
    def tripled(x, hint):
        return x * 3.0

    tripled.kernel(lambda x, hint: tripled_rows(x))
    mesh = dist.mesh(3, ("dp",), (3,))
    x, hint = (dist.shard(a, dist.spec("dp"), mesh) for a in (ROWS, ROWS[:, 0]))
    f = ts.jit(lambda x, hint: tripled(x, hint))
    np.testing.assert_array_equal(f(x, hint).numpy(), ROWS * 3.0)
    assert "whole = " not in f.compiled(x, hint).spmd
    for rule, whole in (("r _, r -> r _", True), ("R c, R -> R c", False)):
        tripled.shard(rule)
        f = ts.jit(lambda x, hint: tripled(x, hint))
        np.testing.assert_array_equal(f(x, hint).numpy(), ROWS * 3.0)
        assert ("whole = tripled" in f.compiled(x, hint).spmd) == whole
        assert not f.compiled(x, hint).collectives


def test_attention_of_split_heads_runs_its_kernels():
    """Attention is a composite: its kernels run on the heads and batches of a rank, also backward."""
    ts.runtime.select_backend("cpu")
    try:
        shape = 2, 4, 1024, 32
        q, k, v = (np.random.default_rng(i).standard_normal(shape, dtype=np.float32) for i in range(3))

        def attend(q, k, v):
            return nn.attention(q, k, v, causal=True)

        mesh = dist.mesh(4, ("dp", "tp"), (2, 2))
        args = [dist.shard(a, dist.spec("dp", "tp"), mesh) for a in (q, k, v)]
        both = ts.jit(ts.value_and_grad(lambda *a: xp.sum(attend(*a) * attend(*a)), argnums=(0, 1, 2)))
        for got, wanted in zip(both(*args)[1], both(q, k, v)[1], strict=True):
            np.testing.assert_allclose(got.numpy(), np.asarray(wanted), rtol=1e-4, atol=1e-4)
        made = both.compiled(*args)
        assert "whole = attention_forward" in made.spmd and "whole = attention_backward" in made.spmd
        assert {c.kind for c in made.collectives} == {"all_reduce"} and all(c.nbytes <= 8 for c in made.collectives)
        assert any("@forward" in line for line in made.rank_plan.splitlines())
    finally:
        ts.runtime.select_backend(None)
