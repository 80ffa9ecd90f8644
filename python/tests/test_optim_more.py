"""Optimisers against their formulas in NumPy, and optimisers that are made of others."""

import numpy as np
import pytest

import tessera as ts
from tessera import optim, xp

STEPS = 5


def rand(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def params():
    return {"w": rand(6, 4), "tall": rand(3, 9, seed=1), "b": rand(5, seed=2), "k": rand(2, 3, 4, seed=3)}


def gradient(i):
    return {k: rand(*v.shape, seed=10 + i) * (1 + i) for k, v in params().items()}


def run(opt, steps=STEPS, jit=True):
    w = params()
    state = opt.init(w)
    update = ts.jit(opt.update) if jit else opt.update
    for i in range(steps):
        w, state = update(w, gradient(i), state)
    return w, state


def by_hand(rule, steps=STEPS):
    """``rule(w, g, t, state)`` for each parameter by itself, in f64."""
    out = {}
    for name, w in params().items():
        w, state = w.astype(np.float64), {}
        for i in range(steps):
            w = rule(w, gradient(i)[name].astype(np.float64), i + 1, state)
        out[name] = w
    return out


def close(got, want, rtol=2e-5, atol=2e-6):
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("momentum,nesterov", [(0.0, False), (0.8, False), (0.8, True)])
def test_rmsprop(centered, momentum, nesterov):
    def rule(w, g, t, s):
        s["v"] = 0.95 * s.get("v", 0) + 0.05 * g * g
        spread = s["v"]
        if centered:
            s["u"] = 0.95 * s.get("u", 0) + 0.05 * g
            spread = spread - s["u"] ** 2
        move = 0.01 * g / np.sqrt(spread + 1e-6)
        if momentum:
            s["m"] = momentum * s.get("m", 0) + move
            move = move + momentum * s["m"] if nesterov else s["m"]
        return w - move

    opt = optim.RMSProp(0.01, decay=0.95, eps=1e-6, momentum=momentum, nesterov=nesterov, centered=centered)
    close(run(opt)[0], by_hand(rule), rtol=1e-4)


@pytest.mark.parametrize("least", [3, 128])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_adafactor(least, momentum):
    def rule(w, g, t, s):
        decay = 1 - t**-0.8
        square = g * g + 1e-30
        order = np.argsort(w.shape, kind="stable")
        if w.ndim >= 2 and w.shape[order[-2]] >= least:
            d1, d0 = int(order[-2]), int(order[-1])
            s["r"] = decay * s.get("r", 0) + (1 - decay) * square.mean(d0)
            s["c"] = decay * s.get("c", 0) + (1 - decay) * square.mean(d1)
            among = d1 - 1 if d1 > d0 else d1
            rows = (s["r"] / s["r"].mean(among, keepdims=True)) ** -0.5
            u = g * np.expand_dims(rows, d0) * np.expand_dims(s["c"] ** -0.5, d1)
        else:
            s["v"] = decay * s.get("v", 0) + (1 - decay) * square
            u = g / np.sqrt(s["v"])
        u = u / max(1.0, np.sqrt((u * u).mean()) / 1.0)
        u = u * 0.05 * max(np.sqrt((w * w).mean()), 1e-3)
        if momentum:
            s["m"] = momentum * s.get("m", 0) + (1 - momentum) * u
            u = s["m"]
        return w - u - 0.01 * w

    opt = optim.Adafactor(0.05, factored_from=least, momentum=momentum, weight_decay=0.01)
    got, state = run(opt)
    close(got, by_hand(rule), rtol=1e-4)
    if least == 3:
        assert state["rows"]["w"].shape == (4,) and state["columns"]["w"].shape == (6,) and state["v"]["w"].shape == ()


@pytest.mark.parametrize("nesterov", [True, False])
def test_muon(nesterov):
    def rule(w, g, t, s):
        if w.ndim != 2:
            s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
            s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
            u = s["m"] / (1 - 0.9**t) / (np.sqrt(s["v"] / (1 - 0.999**t)) + 1e-8)
            return w - 0.02 * (u + 0.1 * w)
        b = 0.95
        s["m"] = b * s.get("m", 0) + (1 - b) * g
        x = b * s["m"] / (1 - b ** (t + 1)) + (1 - b) * g / (1 - b**t) if nesterov else s["m"] / (1 - b**t)
        flip = x.shape[0] > x.shape[1]
        x = x.T if flip else x
        x = x / (np.linalg.norm(x) + 1e-8)
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        x = x.T if flip else x
        return w - 0.02 * (x * np.sqrt(max(1, w.shape[1] / w.shape[0])) + 0.1 * w)

    close(run(optim.Muon(0.02, nesterov=nesterov, weight_decay=0.1))[0], by_hand(rule), rtol=1e-4, atol=1e-5)


def test_muon_moves_by_nearly_orthogonal_matrices():
    w = {"w": rand(8, 8)}
    opt = optim.Muon(1.0, momentum=0.0, nesterov=False, steps=8)
    new, _ = opt.update(w, {"w": rand(8, 8, seed=4)}, opt.init(w))
    values = np.linalg.svd(w["w"] - np.asarray(new["w"]), compute_uv=False)
    assert 0.6 < values.min() and values.max() < 1.3


@pytest.mark.parametrize("opt", [optim.RMSProp(0.05), optim.Adafactor(0.3, factored_from=4), optim.Muon(0.05), optim.RMSProp(0.02, centered=True, momentum=0.9)],
                         ids=lambda o: type(o).__name__)  # fmt: skip
def test_they_find_a_minimum(opt):
    goal, x = rand(6, 4, seed=7) * 0.5, rand(64, 6, seed=8)
    w = {"w": np.zeros((6, 4), np.float32) + 0.1, "b": np.ones(4, np.float32)}
    state = opt.init(w)

    @ts.jit
    def step(w, state):
        loss, g = ts.value_and_grad(lambda v: xp.mean(xp.square(x @ v["w"] + v["b"] - x @ goal)))(w)
        return *opt.update(w, g, state), loss

    first = None
    for _ in range(150):
        w, state, loss = step(w, state)
        first = float(loss) if first is None else first
    assert float(loss) < 0.02 * first


# Made of others


def test_a_chain_changes_gradients_in_order():
    opt = optim.chain(optim.clip_norm(1.0), optim.add_weight_decay(0.1, lambda path, w: w.ndim > 1), optim.SGD(0.5))
    got, _ = run(opt, 3)
    w = params()
    for i in range(3):
        g = gradient(i)
        norm = np.sqrt(sum((v.astype(np.float64) ** 2).sum() for v in g.values()))
        w = {k: v - 0.5 * (g[k] * min(1, 1 / norm) + (0.1 * v if v.ndim > 1 else 0)) for k, v in w.items()}
    close(got, w)


def test_a_chain_without_an_optimiser_adds_what_comes_out():
    opt = optim.chain(optim.clip_value(0.5), optim.momentum(0.9), optim.scale(-0.1))
    got, _ = run(opt, 3)

    def rule(w, g, t, s):
        s["m"] = 0.9 * s.get("m", 0) + np.clip(g, -0.5, 0.5)
        return w - 0.1 * s["m"]

    close(got, by_hand(rule, 3))
    own = optim.chain(optim.stateless(lambda g, w: ts.tree.map(lambda a, b: a * 0 + b, g, w)), optim.SGD(1.0))
    np.testing.assert_allclose(run(own, 1)[0]["w"], 0.0, atol=1e-7)


def test_groups_have_their_own_optimisers():
    label = lambda path, w: "big" if w.ndim > 1 else "small"  # noqa: E731
    opt = optim.groups({"big": optim.Adam(0.1), "small": optim.SGD(0.01)}, label)
    got, state = run(opt)
    adam, sgd = run(optim.Adam(0.1))[0], run(optim.SGD(0.01))[0]
    close(got, {k: (adam if v.ndim > 1 else sgd)[k] for k, v in params().items()}, rtol=1e-6)
    assert set(state) == {"big", "small"} and len(state["big"]["m"]) == 3
    # The same by a tree, and by one above the parameters.
    tree = {"w": "big", "tall": "big", "b": "small", "k": "big"}
    close(run(optim.groups({"big": optim.Adam(0.1), "small": optim.SGD(0.01)}, tree))[0], got, rtol=1e-7)
    nested = {"net": params(), "head": {"w": rand(2, 2)}}
    two = optim.groups({"a": optim.SGD(1.0), "b": optim.Keep()}, {"net": "b", "head": "a"})
    new, _ = two.update(nested, nested, two.init(nested))
    np.testing.assert_array_equal(new["net"]["w"], nested["net"]["w"])
    np.testing.assert_array_equal(new["head"]["w"], 0)


@pytest.mark.parametrize("mask", [lambda path, w: path.startswith("['w']"), {"w": True, "tall": False, "b": False, "k": False}], ids=["function", "tree"])
def test_masked_parameters_stay_as_they_are(mask):
    got, state = run(optim.masked(optim.AdamW(0.1), mask))
    want = run(optim.AdamW(0.1))[0]
    np.testing.assert_array_equal(got["w"], want["w"])
    for name in ("tall", "b", "k"):
        np.testing.assert_array_equal(got[name], params()[name])
    assert len(ts.tree.leaves(state)) == 3  # no moments for the others


def test_composed_optimisers_refuse_what_cannot_be():
    with pytest.raises(ts.KernelTypeError, match="as the last part"):
        optim.chain(optim.SGD(0.1), optim.clip_norm(1.0))
    with pytest.raises(ts.TesseraError, match="one part or more"):
        optim.chain()
    with pytest.raises(ts.TesseraError, match=r"'big', got 'huge' for params\['b'\]"):
        optim.groups({"big": optim.SGD(0.1)}, lambda p, w: "huge" if w.ndim == 1 else "big").init(params())
    with pytest.raises(ts.TesseraError, match="form of the parameters"):
        optim.groups({"big": optim.SGD(0.1)}, {"w": "big"}).init(params())
    opt = optim.chain(optim.clip_norm(1.0), optim.SGD(0.1))
    with pytest.raises(ts.TesseraError, match="form of the parameters"):
        opt.update(params(), {"w": rand(6, 4)}, opt.init(params()))
    with pytest.raises(ts.TesseraError, match="decay"):
        optim.EMA(1.5)
    with pytest.raises(ts.TesseraError, match="every"):
        optim.accumulate(optim.SGD(0.1), 0)


@pytest.mark.parametrize("debias", [False, True])
def test_averages(debias):
    ema = optim.EMA(0.8, debias=debias)
    state = ema.init(params())
    want = {k: v * 0.0 if debias else v for k, v in params().items()}
    update = ts.jit(ema.update)
    for i in range(4):
        now = gradient(i)
        state = update(now, state)
        want = {k: 0.8 * want[k] + 0.2 * now[k] for k in want}
        close(ema.value(state), {k: v / (1 - 0.8 ** (i + 1)) if debias else v for k, v in want.items()})


def test_averages_of_narrow_parameters_are_wide():
    ema = optim.EMA(0.999)
    state = ema.init({"w": np.asarray(ts.xp.ones((3,), dtype=ts.bf16))})
    for _ in range(10):
        state = ema.update({"w": ts.xp.zeros((3,), dtype=ts.bf16)}, state)
    np.testing.assert_allclose(ema.value(state)["w"], 0.999**10, rtol=1e-6)


def test_gathered_gradients_are_one_step():
    opt = optim.accumulate(optim.Adam(0.1), 3)
    w, state = params(), opt.init(params())
    update = ts.jit(opt.update)
    plain, plain_state = params(), optim.Adam(0.1).init(params())
    for step in range(2):
        for i in range(3):
            before = w
            w, state = update(w, gradient(3 * step + i), state)
            if i < 2:
                close(w, before, rtol=0, atol=0)
        mean = {k: sum(gradient(3 * step + i)[k] for i in range(3)) / 3 for k in w}
        plain, plain_state = optim.Adam(0.1).update(plain, mean, plain_state)
        close(w, plain, rtol=1e-5)
    assert int(state["inner"]["step"]) == 2 and int(state["count"]) == 0


def test_composed_states_go_into_checkpoints(tmp_path):
    opt = optim.accumulate(optim.chain(optim.clip_norm(1.0), optim.groups({"a": optim.Muon(), "b": optim.Adafactor()}, lambda p, w: "a" if w.ndim == 2 else "b")), 2)
    w, state = run(opt, 3)
    ts.save(tmp_path / "s.safetensors", {"w": w, "opt": state})
    back = ts.load(tmp_path / "s.safetensors")
    more, _ = opt.update(back["w"], gradient(4), back["opt"])
    want, _ = opt.update(w, gradient(4), state)
    close(more, want, rtol=0, atol=0)


OPTIMISERS = [optim.SGD(0.1, momentum=0.9), optim.AdamW(0.1), optim.Lion(0.1), optim.RMSProp(0.1), optim.Adafactor(0.1), optim.Muon(0.1)]


@pytest.mark.parametrize("opt", OPTIMISERS, ids=lambda o: type(o).__name__)
def test_integers_are_no_parameters(opt):
    """A step of an integer was rounded towards zero: 5 - 0.1 became 4."""
    params = {"w": np.ones((2, 2), np.float32), "n": np.array([5, 7])}
    for run in (lambda: opt.init(params), lambda: opt.update(params, params, opt.init({"w": params["w"], "n": params["w"]}))):
        with pytest.raises(ts.TesseraError, match=r"expected parameters of floats, got i64 for params\['n'\]") as raised:
            run()
        assert raised.value.code == "E_TYPE" and "masked" in raised.value.help
    kept = optim.masked(opt, {"w": True, "n": False})
    new, _ = kept.update(params, params, kept.init(params))
    assert new["n"].tolist() == [5, 7] and new["w"].tolist() != params["w"].tolist()


@pytest.mark.parametrize("opt", OPTIMISERS, ids=lambda o: type(o).__name__)
def test_parameters_without_elements(opt):
    params = {"a": np.ones((0, 3), np.float32), "b": np.ones((3, 0), np.float32), "c": np.ones((0,), np.float32)}
    state = opt.init(params)
    for _ in range(2):
        params, state = opt.update(params, params, state)
    assert ts.tree.map(np.shape, params) == {"a": (0, 3), "b": (3, 0), "c": (0,)} and state["step"] == 2
