"""Optimisers in f64 against their formulas, with every hyperparameter off its default; the defaults; and the ends of every range."""

import dataclasses
import math

import numpy as np
import pytest

import tessera as ts
from tessera import optim

STEPS = 4


def rand(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def params():
    return {"b": rand(5, seed=2), "k": rand(2, 3, 4, seed=3), "square": rand(4, 4, seed=5), "tall": rand(9, 3, seed=1), "w": rand(4, 6)}


def gradient(i):
    return {k: rand(*v.shape, seed=10 + i) * (1 + i) for k, v in params().items()}


def held_against(opt, rule, rtol=1e-12):
    """``rule(w, g, t, s)`` is a step of one parameter, and ``s`` what it keeps."""
    w, state = params(), opt.init(params())
    for i in range(STEPS):
        w, state = opt.update(w, gradient(i), state)
    assert int(state["step"]) == STEPS
    for name, v in params().items():
        s = {}
        for i in range(STEPS):
            v = rule(v, gradient(i)[name], i + 1, s)
        np.testing.assert_allclose(w[name], v, rtol=rtol, atol=1e-13, err_msg=name)
        assert w[name].dtype == np.float64
        for kept, value in s.items():
            np.testing.assert_allclose(state[kept][name], value, rtol=rtol, atol=1e-13, err_msg=f"{kept} of {name}")


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.07])
def test_sgd(nesterov, decay):
    def rule(w, g, t, s):
        g = g + decay * w
        s["m"] = 0.8 * s.get("m", 0) + g
        return w - 0.3 * (g + 0.8 * s["m"] if nesterov else s["m"])

    held_against(optim.SGD(0.3, momentum=0.8, nesterov=nesterov, weight_decay=decay), rule)
    held_against(optim.SGD(0.3, weight_decay=decay), lambda w, g, t, s: w - 0.3 * (g + decay * w))


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.07])
def test_adam(decoupled, decay):
    def rule(w, g, t, s):
        g = g if decoupled else g + decay * w
        s["m"] = 0.7 * s.get("m", 0) + (1 - 0.7) * g
        s["v"] = 0.95 * s.get("v", 0) + (1 - 0.95) * g * g
        move = s["m"] / (1 - 0.7**t) / (np.sqrt(s["v"] / (1 - 0.95**t)) + 0.01)
        return w - 0.3 * (move + (decay * w if decoupled else 0))

    held_against((optim.AdamW if decoupled else optim.Adam)(0.3, b1=0.7, b2=0.95, eps=0.01, weight_decay=decay), rule)


@pytest.mark.parametrize("decay", [0.0, 0.07])
def test_lion(decay):
    def rule(w, g, t, s):
        m = s.get("m", np.zeros_like(w))
        s["m"] = 0.8 * m + (1 - 0.8) * g
        return w - 0.3 * (np.sign(0.4 * m + (1 - 0.4) * g) + decay * w)

    # Gradients grow and change sign, so that the weights of the mixture decide its sign.
    held_against(optim.Lion(0.3, b1=0.4, b2=0.8, weight_decay=decay), rule)


def test_the_mixture_of_lion():
    w, opt = {"w": np.zeros(3)}, optim.Lion(1.0, b1=0.75, b2=0.5)
    state = {**opt.init(w), "m": {"w": np.array([1.0, 1.0, 1.0])}}
    # 0.75 m + 0.25 g is positive, zero, negative.
    new, after = opt.update(w, {"w": np.array([-2.5, -3.0, -3.5])}, state)
    assert new["w"].tolist() == [-1.0, 0.0, 1.0] and after["m"]["w"].tolist() == [-0.75, -1.0, -1.25]


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("momentum, nesterov", [(0.0, False), (0.6, False), (0.6, True)])
@pytest.mark.parametrize("decay", [0.0, 0.07])
def test_rmsprop(centered, momentum, nesterov, decay):
    def rule(w, g, t, s):
        g = g + decay * w
        s["v"] = 0.8 * s.get("v", 0) + (1 - 0.8) * g * g
        spread = s["v"]
        if centered:
            s["mean"] = 0.8 * s.get("mean", 0) + (1 - 0.8) * g
            spread = spread - s["mean"] ** 2
        move = 0.3 * g / np.sqrt(spread + 0.01)
        if momentum:
            s["m"] = momentum * s.get("m", 0) + move
            move = move + momentum * s["m"] if nesterov else s["m"]
        return w - move

    made = optim.RMSProp(0.3, decay=0.8, eps=0.01, momentum=momentum, nesterov=nesterov, centered=centered, weight_decay=decay)
    held_against(made, rule)


@pytest.mark.parametrize("least", [3, 4, 5, 128])
@pytest.mark.parametrize("momentum, clip, sized, decay", [(0.0, 0.5, True, 0.0), (0.6, 1.0, False, 0.07), (0.6, None, True, 0.07), (0.0, 3.0, True, 0.0)])
def test_adafactor(least, momentum, clip, sized, decay):
    def rule(w, g, t, s):
        part = 1 - t**-0.6
        square = g * g + 0.01
        order = np.argsort(w.shape, kind="stable")
        if w.ndim >= 2 and w.shape[order[-2]] >= least:
            short, long = int(order[-2]), int(order[-1])
            s["rows"] = part * s.get("rows", 0) + (1 - part) * square.mean(long)
            s["columns"] = part * s.get("columns", 0) + (1 - part) * square.mean(short)
            rows = (s["rows"] / s["rows"].mean(short - 1 if short > long else short, keepdims=True)) ** -0.5
            u = g * np.expand_dims(rows, long) * np.expand_dims(s["columns"] ** -0.5, short)
        else:
            s["v"] = part * s.get("v", 0) + (1 - part) * square
            u = g / np.sqrt(s["v"])
        u = u if clip is None else u / max(1.0, np.sqrt((u * u).mean()) / clip)
        u = u * 0.3 * (max(np.sqrt((w * w).mean()), 0.9) if sized else 1.0)
        if momentum:
            s["m"] = momentum * s.get("m", 0) + (1 - momentum) * u
            u = s["m"]
        return w - u - decay * w

    opt = optim.Adafactor(0.3, decay=0.6, eps=0.01, clip=clip, momentum=momentum, scale_by_size=sized, least_size=0.9,
                          factored_from=least, weight_decay=decay)  # fmt: skip
    held_against(opt, rule)
    state = opt.init(params())
    for name, w in params().items():
        factored = w.ndim >= 2 and sorted(w.shape)[-2] >= least
        assert (state["v"][name].shape == ()) == factored and (state["rows"][name].ndim == w.ndim - 1) == (factored or w.ndim == 1)


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("adam_lr, decay", [(None, 0.0), (0.05, 0.07)])
def test_muon(nesterov, adam_lr, decay):
    def rule(w, g, t, s):
        if w.ndim != 2:
            s["m"] = 0.8 * s.get("m", 0) + (1 - 0.8) * g
            s["v"] = 0.95 * s.get("v", 0) + (1 - 0.95) * g * g
            u = s["m"] / (1 - 0.8**t) / (np.sqrt(s["v"] / (1 - 0.95**t)) + 0.01)
            return w - (0.3 if adam_lr is None else adam_lr) * (u + decay * w)
        b = 0.6
        s["m"] = b * s.get("m", 0) + (1 - b) * g
        x = b * s["m"] / (1 - b ** (t + 1)) + (1 - b) * g / (1 - b**t) if nesterov else s["m"] / (1 - b**t)
        flip = x.shape[0] > x.shape[1]
        x = x.T if flip else x
        x = x / (np.linalg.norm(x) + 0.01)
        for _ in range(3):
            a = x @ x.T
            x = 3.0 * x + (-3.2 * a + 1.2 * a @ a) @ x
        x = x.T if flip else x
        return w - 0.3 * (x * np.sqrt(max(1, w.shape[1] / w.shape[0])) + decay * w)

    opt = optim.Muon(0.3, momentum=0.6, nesterov=nesterov, steps=3, factors=(3.0, -3.2, 1.2), eps=0.01, adam_lr=adam_lr, adam_b1=0.8,
                     adam_b2=0.95, weight_decay=decay)  # fmt: skip
    held_against(opt, rule, rtol=1e-9)
    assert opt.init(params())["v"]["w"].shape == () and opt.init(params())["v"]["k"].shape == (2, 3, 4)


def test_rates_may_be_schedules_and_arrays():
    w, g = {"w": np.ones(2)}, {"w": np.ones(2)}
    opt = optim.SGD(optim.linear(1.0, 0.0, 4))
    state = opt.init(w)
    for step, want in enumerate([0.0, -0.75, -1.25]):
        w, state = opt.update(w, g, state)
        assert w["w"].tolist() == [want] * 2, step
    assert optim.SGD(np.float32(0.5)).update({"w": np.ones(2)}, g, {"step": np.int64(0)})[0]["w"].tolist() == [0.5] * 2
    ts.jit(lambda r: optim.SGD(r).update({"w": np.ones(2)}, g, {"step": np.int64(0)})[0]["w"])(np.float32(0.5))


DEFAULTS = {
    optim.SGD: dict(lr=1e-2, weight_decay=0.0, master=True, momentum=0.0, nesterov=False),
    optim.Adam: dict(lr=1e-3, weight_decay=0.0, master=True, b1=0.9, b2=0.999, eps=1e-8),
    optim.AdamW: dict(lr=1e-3, weight_decay=0.01, master=True, b1=0.9, b2=0.999, eps=1e-8),
    optim.Lion: dict(lr=1e-4, weight_decay=0.0, master=True, b1=0.9, b2=0.99),
    optim.RMSProp: dict(lr=1e-3, weight_decay=0.0, master=True, decay=0.9, eps=1e-8, momentum=0.0, nesterov=False, centered=False),
    optim.Adafactor: dict(lr=1e-2, weight_decay=0.0, master=True, decay=0.8, eps=1e-30, clip=1.0, momentum=0.0, scale_by_size=True,
                          least_size=1e-3, factored_from=128),
    optim.Muon: dict(lr=2e-2, weight_decay=0.0, master=True, momentum=0.95, nesterov=True, steps=5, factors=(3.4445, -4.7750, 2.0315),
                     eps=1e-8, adam_lr=None, adam_b1=0.9, adam_b2=0.999),
    optim.LossScaler: dict(start=32768.0, growth=2.0, backoff=0.5, interval=2000),
    optim.EMA: dict(decay=0.999, debias=False),
}  # fmt: skip


@pytest.mark.parametrize("of", DEFAULTS, ids=lambda of: of.__name__)
def test_defaults(of):
    made = of()
    assert {f.name: getattr(made, f.name) for f in dataclasses.fields(of)} == DEFAULTS[of]
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.lr = made.decay = 1.0


FROM_0, BELOW_1, ABOVE_0, FLAG, COUNT = "from 0", "from 0 below 1", "above 0", "flag", "count"
RANGES = {
    FROM_0: ([0, 0.0, 5.0, np.float32(0.5)], [-1e-9, math.nan, math.inf, -1, True, "x", None]),
    BELOW_1: ([0, 0.0, 0.999], [-1e-9, 1, 1.0, 1.5, math.nan, False, "x", None]),
    ABOVE_0: ([1e-9, 3], [0, 0.0, -1, math.nan, math.inf, True, "x"]),
    FLAG: ([True, False], [1, 0, "yes", None]),
    COUNT: ([1, 2, np.int64(3)], [0, -1, 1.0, 2.5, True, "x", None]),
}
FIELDS = {
    optim.SGD: {FROM_0: "lr weight_decay", BELOW_1: "momentum", FLAG: "master"},
    optim.Adam: {FROM_0: "lr weight_decay eps", BELOW_1: "b1 b2", FLAG: "master"},
    optim.AdamW: {FROM_0: "lr weight_decay eps", BELOW_1: "b1 b2", FLAG: "master"},
    optim.Lion: {FROM_0: "lr weight_decay", BELOW_1: "b1 b2", FLAG: "master"},
    optim.RMSProp: {FROM_0: "lr weight_decay eps", BELOW_1: "decay momentum", FLAG: "nesterov centered"},
    optim.Adafactor: {FROM_0: "eps least_size", BELOW_1: "momentum", ABOVE_0: "decay clip", FLAG: "scale_by_size", COUNT: "factored_from"},
    optim.Muon: {FROM_0: "eps adam_lr", BELOW_1: "momentum adam_b1 adam_b2", FLAG: "nesterov", COUNT: "steps"},
    optim.LossScaler: {ABOVE_0: "start", COUNT: "interval"},
    optim.EMA: {BELOW_1: "decay", FLAG: "debias"},
    optim.constant: {FROM_0: "value"},
    optim.clip_norm: {ABOVE_0: "limit"},
    optim.clip_value: {ABOVE_0: "limit"},
    optim.add_weight_decay: {FROM_0: "rate"},
    optim.momentum: {BELOW_1: "decay"},
    lambda start=0.0, end=0.0, steps=1: optim.linear(start, end, steps): {FROM_0: "start end", COUNT: "steps"},
    lambda start=0.0, end=0.0, steps=1: optim.cosine(start, steps, end): {FROM_0: "start end", COUNT: "steps"},
    lambda start=0.0, factor=1.0, every=1: optim.exponential(start, factor, every): {FROM_0: "start", ABOVE_0: "factor", COUNT: "every"},
    lambda peak=0.0, end=0.0, steps=1: optim.warmup_cosine(peak, 0, steps, end): {FROM_0: "peak end", COUNT: "steps"},
    lambda every=1: optim.accumulate(optim.SGD(), every): {COUNT: "every"},
}  # fmt: skip


@pytest.mark.parametrize("make", FIELDS, ids=lambda make: getattr(make, "__name__", ""))
def test_hyperparameters_are_in_their_ranges(make):
    for kind, names in FIELDS[make].items():
        good, bad = RANGES[kind]
        for name in names.split():
            for value in good:
                make(**{name: value})
            for value in bad:
                if value is None and name in ("clip", "adam_lr"):
                    continue  # they may be left out
                with pytest.raises(ts.TesseraError, match=f"expected `{name}`") as raised:
                    make(**{name: value})
                real = isinstance(value, (int, float)) and not isinstance(value, bool)
                assert raised.value.code == ("E_ARGUMENT" if real and kind != FLAG else "E_TYPE"), (name, value)


def test_ranges_that_are_of_one_alone():
    for growth in (1.0, 1, 5.0):
        optim.LossScaler(growth=growth)
    for growth in (0.999, 0, -2.0):
        with pytest.raises(ts.TesseraError, match="expected `growth`"):
            optim.LossScaler(growth=growth)
    for backoff in (0.0, 1.0):
        with pytest.raises(ts.TesseraError, match="a number above 0 and below 1"):
            optim.LossScaler(backoff=backoff)
    with pytest.raises(ts.TesseraError, match="a number of at least 0,"):
        optim.constant(-1)
    with pytest.raises(ts.TesseraError, match="of at least 0, got -1"):
        optim.warmup_cosine(1.0, -1, 5)
    for lr in (np.ones(2), -1e-9, math.inf, True, None):
        with pytest.raises(ts.TesseraError, match="expected `lr`"):
            optim.SGD(lr)
    for factors in ((1.0, 2.0), (1.0, 2.0, 3.0, 4.0)):
        with pytest.raises(ts.TesseraError, match="three `factors`"):
            optim.Muon(factors=factors)
    with pytest.raises(ts.TesseraError, match="a momentum above 0"):
        optim.SGD(nesterov=True)


def test_schedules_step_by_step():
    at = lambda s, *steps: [float(s(np.int64(t))) for t in steps]  # noqa: E731
    assert optim.constant(0.3)(7) == 0.3
    assert at(optim.linear(0.2, 1.0, 4), 0, 1, 3, 4, 9) == pytest.approx([0.2, 0.4, 0.8, 1.0, 1.0])
    assert at(optim.linear(0.2, 1.0, 1), 0, 1, 2) == pytest.approx([0.2, 1.0, 1.0])
    half = lambda part: 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * part))  # noqa: E731
    assert at(optim.cosine(1.0, 4, 0.1), 0, 1, 2, 3, 4, 5, 9) == pytest.approx([1, half(0.25), half(0.5), half(0.75), 0.1, 0.1, 0.1])
    assert at(optim.cosine(1.0, 1), 0, 1, 2) == pytest.approx([1, 0, 0], abs=1e-6)
    assert at(optim.exponential(0.5, 0.25, 4), 0, 1, 2, 4, 8) == pytest.approx([0.5, 0.5 * 0.25**0.25, 0.25, 0.125, 0.03125])
    assert at(optim.exponential(0.5, 0.25), 0, 1, 2) == pytest.approx([0.5, 0.125, 0.03125])
    warm = optim.warmup_cosine(1.0, 4, 8, 0.1)
    assert at(warm, 0, 1, 3, 4, 5, 6, 8, 20) == pytest.approx([0, 0.25, 0.75, 1, half(0.25), half(0.5), 0.1, 0.1])
    assert at(optim.warmup_cosine(1.0, 0, 4), 0, 2, 4) == pytest.approx([1, 0.5, 0], abs=1e-6)
    assert at(optim.warmup_cosine(1.0, 1, 3), 0, 1, 2, 3) == pytest.approx([0, 1, 0.5, 0], abs=1e-6)
    # All steps are for warming up: one is left for the fall.
    assert at(optim.warmup_cosine(1.0, 4, 4), 2, 4, 5) == pytest.approx([0.5, 1, 0], abs=1e-6)
    assert ts.jit(warm)(np.int64(5)) == pytest.approx(half(0.25))


def test_a_scale_that_grows_and_falls():
    scaler = optim.LossScaler(start=8.0, growth=4.0, backoff=0.25, interval=3)
    state, seen = scaler.init(), []
    for ok in (True, True, False, True, True, True, True, False):
        state = scaler.update(state, ok)
        seen.append((float(state["scale"]), int(state["good"])))
    assert seen == [(8, 1), (8, 2), (2, 0), (2, 1), (2, 2), (8, 0), (8, 1), (2, 0)]
    assert state["scale"].dtype == np.float32
    state = scaler.init()
    grads, ok = scaler.unscale({"a": np.full(2, 4.0), "b": np.full(2, 16.0, np.float16)}, state)
    assert ok and grads["a"].dtype == np.float64 and grads["b"].dtype == np.float32 and grads["a"].tolist() == [0.5] * 2
    assert scaler.scale(np.float16(2), state).dtype == np.float16 and scaler.scale(np.float16(2), state) == 16
    for bad in (np.nan, np.inf, -np.inf):
        for where in ("a", "b"):
            grads = {"a": np.ones(2, np.float32), "b": np.ones(2, np.float32)}
            grads[where][1] = bad
            assert not scaler.unscale(grads, state)[1]
    assert scaler.choose(True, {"a": np.ones(2)}, {"a": np.zeros(2)})["a"].tolist() == [1, 1]
    assert scaler.choose(False, {"a": np.ones(2)}, {"a": np.zeros(2)})["a"].tolist() == [0, 0]


def test_norms_and_clips_keep_their_dtypes():
    grads = {"a": np.array([3.0, 0.0]), "b": ts.array([4.0], "f16")}
    assert optim.global_norm(grads).dtype == np.float64 and float(optim.global_norm(grads)) == 5.0
    assert optim.global_norm({"b": grads["b"]}).dtype == np.float32 and float(optim.global_norm({})) == 0.0
    clipped = optim.clip_by_global_norm(grads, 2.5)
    assert clipped["a"].tolist() == [1.5, 0.0] and clipped["b"].dtype == np.float16 and clipped["b"].tolist() == [2.0]
    same = optim.clip_by_global_norm(grads, 5.5)
    assert same["a"].tolist() == [3.0, 0.0] and same["b"].tolist() == [4.0]
    zero = optim.clip_by_global_norm({"a": np.zeros(3)}, 1.0)
    assert zero["a"].tolist() == [0.0] * 3
    tiny = optim.clip_by_global_norm({"a": np.array([3e-13, 4e-13])}, 1e-15)
    np.testing.assert_allclose(tiny["a"], [3e-16, 4e-16], rtol=1e-6)
    assert optim.clip_by_value({"a": np.array([-3.0, 0.5, 2.0])}, 1.5)["a"].tolist() == [-1.5, 0.5, 1.5]


def test_changes_of_gradients():
    w, g = {"a": np.array([1.0, -2.0])}, {"a": np.array([0.5, 0.25])}
    for nesterov, want in ((False, [0.5, 0.75]), (True, [0.75, 0.875])):
        change = optim.momentum(0.5, nesterov=nesterov)
        state = change.init(w)
        assert state["a"].tolist() == [0.0, 0.0]
        one, state = change.change(g, state, w)
        two, state = change.change(g, state, w)
        assert [one["a"][0], two["a"][0]] == ([0.5, 0.75] if not nesterov else [0.75, 0.875]) == want
    assert optim.momentum().change(g, w, w)[0]["a"].tolist() == [0.5 + 0.9, 0.25 - 1.8]
    assert optim.scale(3.0).change(g, (), w)[0]["a"].tolist() == [1.5, 0.75]
    assert optim.add_weight_decay(0.5).change(g, (), w)[0]["a"].tolist() == [1.0, -0.75]
    for mask, want in (({"a": True}, [1.0, -0.75]), ({"a": False}, [0.5, 0.25]), (False, [0.5, 0.25]), (lambda path, w: path == "['a']", [1.0, -0.75])):
        assert optim.add_weight_decay(0.5, mask).change(g, (), w)[0]["a"].tolist() == want
    assert optim.clip_norm(10.0).init(w) == ()
    # One change alone, whose result is added.
    opt = optim.chain(optim.scale(-0.5))
    moved, state = opt.update({"a": ts.array([1.0, 2.0], "f16")}, {"a": np.array([1.0, 1.0], np.float32)}, opt.init(w))
    assert moved["a"].tolist() == [0.5, 1.5] and moved["a"].dtype == np.float16 and state == ((),)


def test_chains_refuse_what_does_not_fit():
    w = {"a": np.ones(2)}
    for opt in (optim.chain(optim.scale(-1.0)), optim.chain(optim.clip_norm(1.0), optim.SGD()), optim.groups({"a": optim.Keep()}, "a"),
                optim.accumulate(optim.Keep(), 2)):  # fmt: skip
        with pytest.raises(ts.TesseraError, match="expected gradients of the form of the parameters"):
            opt.update(w, {"b": np.ones(2)}, opt.init(w))
    opt = optim.chain(optim.clip_norm(1.0), optim.momentum(), optim.SGD())
    state = opt.init(w)
    for bad, message in ((state[:2], "one of 2"), ((*state, ()), "one of 4"), ({}, "type dict")):
        with pytest.raises(ts.TesseraError, match=f"the state of 3 parts, got .*{message}"):
            opt.update(w, w, bad)


def test_marks_of_lists_and_parts():
    nested = [{"x": np.ones(1), "y": np.ones(1)}, np.ones(1)]
    for labels in (["a", "b"], ("a", "b"), [{"x": "a", "y": "a"}, "b"], lambda path, w: "a" if path.startswith("[0]") else "b"):
        opt = optim.groups({"a": optim.SGD(1.0), "b": optim.Keep()}, labels)
        new, _ = opt.update(nested, nested, opt.init(nested))
        assert [float(v[0]) for v in ts.tree.leaves(new)] == [0.0, 0.0, 1.0]
    whole = optim.groups({"a": optim.SGD(1.0)}, "a")
    assert [float(v[0]) for v in ts.tree.leaves(whole.update(nested, nested, whole.init(nested))[0])] == [0.0] * 3
    with pytest.raises(ts.TesseraError, match="form of the parameters"):
        optim.groups({"a": optim.SGD()}, ["a"]).init(nested)
    for bad in ({"a": 3}, [optim.SGD()], {"a": optim.scale(1.0)}):
        with pytest.raises(ts.TesseraError, match="a dict of optimisers"):
            optim.groups(bad, "a")
    for bad in (3, optim.SGD):
        with pytest.raises(ts.TesseraError, match="as the last part"):
            optim.chain(bad if bad == 3 else optim.SGD(), optim.SGD())


def test_averages_in_f64():
    for debias in (False, True):
        ema = optim.EMA(0.5, debias=debias)
        state = ema.init({"w": np.array([8.0])})
        assert state["average"]["w"].dtype == np.float64 and state["average"]["w"].tolist() == [0.0 if debias else 8.0]
        assert ema.value(state)["w"].tolist() == [0.0 if debias else 8.0]
        state = ema.update({"w": np.array([4.0])}, state)
        assert ema.value(state)["w"].tolist() == [4.0 if debias else 6.0]
        state = ema.update({"w": np.array([1.0])}, state)
        assert int(state["step"]) == 2 and ema.value(state)["w"].tolist() == [2.0 if debias else 3.5]
    gathered = optim.accumulate(optim.SGD(1.0), 2)
    w = {"a": np.array([1.0]), "b": ts.array([1.0], "f16")}
    state = gathered.init(w)
    assert state["sum"]["a"].dtype == np.float64 and state["sum"]["b"].dtype == np.float32
    g = {"a": np.array([0.5]), "b": ts.array([0.25], "f16")}
    w, state = gathered.update(w, g, state)
    assert (w["a"][0], int(state["count"]), state["sum"]["a"][0]) == (1.0, 1, 0.5)
    w, state = gathered.update(w, {"a": np.array([0.25]), "b": g["b"]}, state)
    assert (w["a"][0], w["b"][0], int(state["count"]), state["sum"]["a"][0]) == (0.625, 0.75, 0, 0.0)


def test_narrow_parameters_without_a_master_and_mixed_trees():
    w = {"h": ts.array([1.0, 2.0], "bf16"), "w": np.array([1.0]), "s": np.array([1.0], np.float32)}
    g = {k: np.full(v.shape, 0.5, np.float32) for k, v in w.items()}
    for opt in (optim.SGD(0.5, momentum=0.5), optim.SGD(0.5, momentum=0.5, master=False)):
        state = opt.init(w)
        assert ("master" in state) == opt.master
        assert [str(state["m"][k].dtype) for k in ("h", "s", "w")] == ["float32", "float32", "float64"]
        new, state = opt.update(w, g, state)
        assert [str(new[k].dtype) for k in ("h", "s", "w")] == ["bfloat16", "float32", "float64"]
        assert [float(new[k][0]) for k in ("h", "s", "w")] == [0.75] * 3
        if opt.master:
            assert [str(state["master"][k].dtype) for k in ("h", "s", "w")] == ["float32", "float32", "float64"]
    assert "master" not in optim.SGD().init({"w": np.ones(2)})
    with pytest.raises(ts.TesseraError, match=r"expected a gradient of shape \[2\], got \[1\]"):
        optim.SGD().update({"w": np.ones(2)}, {"w": np.ones(1)}, optim.SGD().init({"w": np.ones(2)}))
    with pytest.raises(ts.TesseraError, match="expected gradients of the form of the parameters"):
        optim.SGD().update({"w": np.ones(2)}, {"v": np.ones(2)}, optim.SGD().init({"w": np.ones(2)}))
