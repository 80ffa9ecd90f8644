"""Derivatives of Python functions. Each transform traces the function in a frame of its own, has the compiler transform it, and
inlines the result into the current trace, so that transforms nest in any order. Outside a trace the result runs immediately."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy

from ..base.promotion import is_float
from ..trace import prim as p
from ..trace.jit import Traced, _name, eager, like
from ..trace.tracer import Tracer, as_tracer, aval, current, fail, is_array, one, splat
from ..tree import pytree
from .batching import vmap
from .composites import complete
from .inner import Inner, inline, outside, unwrap


def _chosen(fn: Callable, args: tuple, argnums: Any, wrt: Any) -> tuple[list[int], bool]:
    """Rule D-13: which arguments, and whether one gradient is given bare."""
    if argnums is not None and wrt is not None:
        raise fail("E_ARGUMENT", "expected `argnums` or `wrt`, got both", "leave out one of them")
    marked = getattr(fn, "_tessera_wrt", None)
    if argnums is None and wrt is None and marked is not None:
        argnums = marked
    given = argnums if argnums is not None else wrt
    if given is not None:
        many = not isinstance(given, (int, str))
        items = list(given) if many else [given]
        names = _parameters(fn)
        out = []
        for item in items:
            if isinstance(item, str):
                if item not in names:
                    raise fail(
                        "E_ARGUMENT",
                        f"expected a parameter of `{_name(fn)}`, got `{item}`",
                        "use the name of a parameter of the function",
                    )
                out.append(names.index(item))
            else:
                if not -len(args) <= item < len(args):
                    raise fail("E_ARGUMENT", f"expected an argument below {len(args)}, got {item}", "arguments count from 0")
                out.append(item % len(args))
        return out, not many
    asking = [i for i, a in enumerate(args) if any(getattr(v, "requires_grad", False) for v in pytree.leaves(a))]
    if asking:
        return asking, len(asking) == 1
    if not args:
        raise fail(
            "E_ARGUMENT",
            f"expected an argument of `{_name(fn)}` to differentiate by, got none",
            "give the function an argument that is an array of floats",
        )
    return [0], True


def _parameters(fn: Callable) -> list[str]:
    try:
        return list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        return []


def _float_leaves(fn: Callable, args: tuple, kwargs: dict, chosen: list[int]) -> list[int]:
    """Places among all array leaves of those that belong to the chosen arguments; integers are refused."""
    out, at = [], 0
    for i, arg in enumerate(args):
        for path, leaf in zip(pytree.paths(arg), pytree.opened(arg)[0], strict=True):
            if not is_array(leaf):
                continue
            if i in chosen:
                dtype = aval(leaf)[1]
                if not is_float(dtype) and not isinstance(leaf, int):
                    raise fail(
                        "E_TYPE",
                        f"expected floats to differentiate by, got {dtype} for argument {i}{path} of `{_name(fn)}`",
                        "convert it to a float, or choose other arguments with `argnums`",
                    )
                out.append(at)
            at += 1
    return out


def _floated(args: tuple, chosen: list[int]) -> tuple:
    """Python's own integers among the chosen arguments mean floats."""
    def one_leaf(v: Any) -> Any:
        return float(v) if isinstance(v, int) and not isinstance(v, bool) else v

    return tuple(pytree.map(one_leaf, a) if i in chosen else a for i, a in enumerate(args))


def _check_scalar(fn: Callable, value: Tracer, place: Any) -> None:
    if value.shape != () or not is_float(value._dtype):
        where = f", made at {place!r}" if place is not None else ""
        raise fail(
            "E_SHAPE_MISMATCH" if value.shape else "E_TYPE",
            f"expected `{_name(fn)}` to give one float to differentiate, got [{', '.join(map(str, value.shape))}] {value._dtype}{where}",
            "reduce it with `.sum()` or `.mean()`, or use `ts.vjp` with a cotangent, or `ts.jacrev`",
        )


def value_and_grad(fn: Callable, argnums: Any = None, wrt: Any = None, has_aux: bool = False) -> Callable:
    """A function that gives ``(value, gradient)``; with ``has_aux`` the function gives ``(value, aux)`` and this
    ``((value, aux), gradient)``."""
    inner_fn = unwrap(fn)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        chosen, bare = _chosen(inner_fn, args, argnums, wrt)
        if current() is None:
            return outside(functools.wraps(inner_fn)(lambda *a, **k: _value_and_grad(inner_fn, chosen, bare, has_aux, a, k)),
                            _floated(args, chosen), kwargs, _name(inner_fn))  # fmt: skip
        return _value_and_grad(inner_fn, chosen, bare, has_aux, _floated(args, chosen), kwargs)

    return call


def _value_and_grad(fn: Callable, chosen: list[int], bare: bool, has_aux: bool, args: tuple, kwargs: dict) -> Any:
    places = _float_leaves(fn, args, kwargs, chosen)

    def traced(*a: Any, **k: Any) -> Any:
        out = fn(*a, **k)
        if has_aux:
            if not isinstance(out, tuple) or len(out) != 2:
                raise fail(
                    "E_ARGUMENT",
                    f"expected `{_name(fn)}` to give (value, aux), got {type(out).__name__}",
                    "return a pair, or leave out `has_aux=True`",
                )
            return out
        return out, None

    functools.update_wrapper(traced, fn)
    inner = Inner(traced, args, kwargs, name=_name(fn))
    loss = inner.result[0]
    if not (is_array(loss) or pytree.is_opened(loss)):
        raise fail("E_TYPE", f"expected `{_name(fn)}` to give one float to differentiate, got {type(loss).__name__}",
                   "return the loss; more results go with `has_aux=True`")  # fmt: skip
    _check_scalar(fn, inner.results[0], inner.places[0])
    complete(inner.program, inner.func)
    made_func = inner.program.gradient(inner.func, places)
    moving = [aval(v)[2] for i in sorted(set(chosen)) for v in pytree.opened(args[i])[0] if is_array(v)]
    results = inline(inner.program, made_func, inner.arguments(), inner.weak + moving)
    count = len(inner.results)
    value, aux = pytree.unflatten(inner.form, results[:count])
    grads = iter(results[count:])
    # They come in the order of the leaves, whatever the requested order.
    made_for = {}
    for i in sorted(set(chosen)):
        leaves, form = pytree.opened(args[i])
        made_for[i] = pytree.unflatten(form, [next(grads) if is_array(v) else v for v in leaves])
    gradient = made_for[chosen[0]] if bare else tuple(made_for[i] for i in chosen)
    return ((value, aux) if has_aux else value), gradient


def grad(fn: Callable, argnums: Any = None, wrt: Any = None, has_aux: bool = False) -> Callable:
    """The gradient of a function with one float as result. By which arguments: ``argnums`` or ``wrt`` (positions or
    names); else those that say ``requires_grad``; else the only one or the first. With ``has_aux`` it gives
    ``(gradient, aux)``."""
    both = value_and_grad(fn, argnums, wrt, has_aux)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return call


def _flat_args(args: tuple) -> tuple[list, Any]:
    leaves, form = pytree.opened(args)
    return leaves, form


def vjp(fn: Callable, *primals: Any, has_aux: bool = False) -> Any:
    """``(y, pull)``: the result, and a function from a cotangent of it to a tuple of cotangents, one for each argument
    (``None`` in the place of integers, Python's own among them)."""
    fn = unwrap(fn)
    if current() is not None:
        return _vjp_traced(fn, primals, has_aux)
    leaves, form = _flat_args((primals, {}))
    box: dict[str, Any] = {}

    def forward(*args: Any) -> Any:
        y, pull, aux, residuals, inner = _vjp_parts(fn, args, has_aux)
        box.update(pull=pull, inner=inner, form=pytree.opened(y)[1])
        return y, aux, residuals

    made = Traced(forward, _name(fn), leaves, form, [f"x{i}" for i in range(len(leaves))])
    y, aux, residuals = made.run(leaves)

    def pull(cotangent: Any) -> Any:
        def backward(res: list, ct: Any) -> Any:
            return box["pull"](res, ct)

        flat, flat_form = pytree.opened(((residuals, cotangent), {}))
        if current() is not None:
            return backward(residuals, cotangent)
        run = Traced(backward, f"{_name(fn)}_pull", flat, flat_form, [f"c{i}" for i in range(len(flat))], program=made.program)
        return like(run.run(flat), leaves)

    return (y, pull, aux) if has_aux else (y, pull)


def _vjp_parts(fn: Callable, primals: tuple, has_aux: bool) -> tuple:
    def traced(*a: Any) -> Any:
        out = fn(*a)
        return out if has_aux else (out, None)

    functools.update_wrapper(traced, fn)
    inner = Inner(traced, primals, {}, name=_name(fn))
    wrt = [i for i, (_, dtype, _) in enumerate(inner.avals) if is_float(dtype)]
    complete(inner.program, inner.func)
    forward, pullback, residual_count, takes = inner.program.vjp(inner.func, wrt)
    results = inline(inner.program, forward, inner.arguments(), inner.weak)
    count = len(inner.results)
    y, aux = pytree.unflatten(inner.form, results[:count])
    residuals = results[count:]
    y_leaves, y_form = pytree.opened(y)
    y_types = [aval(v) for v in y_leaves]
    leaves, form = pytree.opened(primals)
    program = inner.program

    def pull(res: list, cotangent: Any) -> Any:
        given, ct_form = pytree.opened(cotangent)
        if ct_form != y_form and pytree.closed(ct_form) != pytree.closed(y_form):
            raise fail(
                "E_ARGUMENT",
                f"expected a cotangent of the form of the result, {pytree.difference(y_form, ct_form)}",
                "give a tree of the same containers, keys and lengths",
            )
        cts = []
        for (shape, dtype, weak), ct, path in zip(y_types, given, pytree.paths(cotangent), strict=True):
            if not is_float(dtype):
                continue
            got = aval(ct)
            if got[0] != shape and got[0] != ():
                raise fail(
                    "E_SHAPE_MISMATCH",
                    f"expected a cotangent of shape {list(shape)} at result{path}, got {list(got[0])}",
                    "a cotangent has the shape of the result: `xp.ones_like(result)`",
                )
            if not got[2] and got[1] != dtype and not (weak and is_float(got[1])):
                raise fail(
                    "E_TYPE",
                    f"expected a cotangent of {dtype} at result{path}, got {got[1]}",
                    "cast it to the dtype of the result",
                )
            cts.append(p.broadcast_to(p.cast(ct, dtype), shape))
        # Results beside `y` (aux) have no cotangent: zero.
        for (shape, dtype, _), takes_one in list(zip(inner_types, takes, strict=True))[len(y_types):]:
            if takes_one:
                cts.append(splat(0.0, shape, dtype))
        moved = [w for _, dtype, w in inner.avals if is_float(dtype)]
        made = iter(inline(program, pullback, [*(as_tracer(r) for r in res), *cts], moved))
        out, at = [], 0
        for leaf in leaves:
            if not is_array(leaf):
                out.append(leaf)
                continue
            out.append(next(made) if at in wrt else None)
            at += 1
        return pytree.unflatten(form, out)

    inner_types = [aval(v) for v in inner.results]
    return y, pull, aux, residuals, inner


def _vjp_traced(fn: Callable, primals: tuple, has_aux: bool) -> Any:
    y, pull, aux, residuals, _ = _vjp_parts(fn, primals, has_aux)

    def bound(cotangent: Any) -> Any:
        return pull(residuals, cotangent)

    return (y, bound, aux) if has_aux else (y, bound)


def jvp(fn: Callable, primals: Any, tangents: Any) -> tuple:
    """``(y, dy)``: the result, and how it moves when the arguments move along ``tangents``."""
    fn = unwrap(fn)
    primals = tuple(primals) if isinstance(primals, (tuple, list)) else (primals,)
    tangents = tuple(tangents) if isinstance(tangents, (tuple, list)) else (tangents,)
    primals = _floated(primals, list(range(len(primals))))
    if current() is None:
        return outside(lambda a, t: _jvp(fn, a, t), (primals, tangents), {}, _name(fn))
    return _jvp(fn, primals, tangents)


def _jvp(fn: Callable, primals: tuple, tangents: tuple) -> tuple:
    leaves, form = pytree.opened(primals)
    moved, moved_form = pytree.opened(tangents)
    if form != moved_form and pytree.closed(form) != pytree.closed(moved_form):
        raise fail(
            "E_ARGUMENT",
            f"expected tangents of the form of the arguments, {pytree.difference(form, moved_form)}",
            "give a tree of the same containers, keys and lengths",
        )
    inner = Inner(fn, primals, {})
    wrt, given = [], []
    places = iter(range(len(inner.leaves)))
    for leaf, tangent in zip(leaves, moved, strict=True):
        if not is_array(leaf):
            continue
        at = next(places)
        shape, dtype, _ = inner.avals[at]
        if is_float(dtype) and tangent is not None:
            if aval(tangent)[0] not in (shape, ()):
                raise fail(
                    "E_SHAPE_MISMATCH",
                    f"expected a tangent of shape {list(shape)}, got {list(aval(tangent)[0])}",
                    "a tangent has the shape of its argument: `xp.ones_like(x)`",
                )
            wrt.append(at)
            given.append(p.broadcast_to(p.cast(tangent, dtype), shape))
    complete(inner.program, inner.func)
    func, has = inner.program.jvp(inner.func, wrt)
    moving = [w for w, h in zip(inner.weak, has, strict=True) if h]
    results = inline(inner.program, func, inner.arguments() + given, inner.weak + moving)
    count = len(inner.results)
    rest = iter(results[count:])
    dy = [next(rest) if h else p.zeros_like(r) for h, r in zip(has, results[:count], strict=True)]
    return pytree.unflatten(inner.form, results[:count]), pytree.unflatten(inner.form, dy)


def _basis(x: Any) -> Any:
    """One tangent for each element of an array."""
    shape, dtype, _ = aval(x)
    n = int(numpy.prod(shape, dtype=numpy.int64))
    return p.reshape(p.cast(p.ew("eq", p.iota((n, n), 0), p.iota((n, n), 1)), dtype), (n, *shape))


def _jacobian(fn: Callable, argnums: Any, forward: bool) -> Callable:
    inner_fn = unwrap(fn)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        chosen, bare = _chosen(inner_fn, args, argnums, None)
        whole = _floated(args, chosen)
        if current() is None:
            return outside(lambda *a, **k: _jac(inner_fn, chosen, bare, forward, a, k), whole, kwargs, _name(inner_fn))
        return _jac(inner_fn, chosen, bare, forward, whole, kwargs)

    return call


def _jac(fn: Callable, chosen: list[int], bare: bool, forward: bool, args: tuple, kwargs: dict) -> Any:
    _float_leaves(fn, args, kwargs, chosen)
    out = []
    for i in chosen:
        x_leaves, x_form = pytree.opened(args[i])
        x_leaves = [as_tracer(v) for v in x_leaves]

        def of_leaves(*flat: Any, i: int = i, x_form: Any = x_form) -> Any:
            full = list(args)
            full[i] = pytree.unflatten(x_form, flat)
            return fn(*full, **kwargs)

        if forward:
            columns = []
            y_form = None
            for k, leaf in enumerate(x_leaves):
                def push(t: Any, k: int = k) -> Any:
                    tangents = tuple(t if j == k else p.zeros_like(v) for j, v in enumerate(x_leaves))
                    return _jvp(of_leaves, tuple(x_leaves), tangents)[1]

                dy = vmap(push)(_basis(leaf))
                parts, y_form = pytree.opened(dy)
                columns.append([p.reshape(p.transpose(d, [*range(1, d.ndim), 0]), (*d.shape[1:], *leaf.shape)) for d in parts])
            rows = [pytree.unflatten(x_form, [c[r] for c in columns]) for r in range(len(columns[0]))]
            out.append(pytree.unflatten(y_form, rows))
        else:
            y, pull = _vjp_traced(of_leaves, tuple(x_leaves), False)
            parts, y_form = pytree.opened(y)
            rows = []
            for r, part in enumerate(parts):
                def back(t: Any, r: int = r) -> Any:
                    cts = [t if j == r else p.zeros_like(v) for j, v in enumerate(parts)]
                    return pull(pytree.unflatten(y_form, cts))

                made = vmap(back)(_basis(part))
                rows.append(pytree.unflatten(x_form, [p.reshape(m, (*part.shape, *v.shape)) for m, v in zip(made, x_leaves, strict=True)]))
            out.append(pytree.unflatten(y_form, rows))
    return out[0] if bare else tuple(out)


def jacfwd(fn: Callable, argnums: Any = None) -> Callable:
    """The Jacobian by forward mode: a column for each element of the argument."""
    return _jacobian(fn, argnums, True)


def jacrev(fn: Callable, argnums: Any = None) -> Callable:
    """The Jacobian by reverse mode: a row for each element of the result."""
    return _jacobian(fn, argnums, False)


def hessian(fn: Callable, argnums: Any = None) -> Callable:
    """Second derivatives: forward over reverse."""
    return jacfwd(grad(fn, argnums), argnums)


def hvp(fn: Callable, primals: Any, tangents: Any) -> Any:
    """The Hessian of a scalar function times a vector: forward over reverse."""
    primals = tuple(primals) if isinstance(primals, (tuple, list)) else (primals,)
    tangents = tuple(tangents) if isinstance(tangents, (tuple, list)) else (tangents,)
    numbers = tuple(range(len(primals)))
    return jvp(grad(fn, argnums=numbers if len(numbers) > 1 else 0), primals, tangents)[1]


def stop_gradient(x: Any) -> Any:
    """The same values, without derivative."""
    return pytree.map(eager(lambda v: one("stop_gradient", [as_tracer(v)])), x)
