"""Annotations of kernel parameters: ``Tensor[...]``, ``Region[...]``, ``Out[...]``."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from .. import _core
from .caller import here
from .dtypes import DType, dtype

#: A word like this in the last place is meant as a dtype, even if it names none.
_LIKE_A_DTYPE = re.compile(r"(?:fp|bf|tf|float|bfloat|int|uint|mxfp|nvfp)\d\w*|[fiu](?:4|8|16|32|64|128)|[^@]*@.*")
_SYMBOL = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"[0-9]+")
#: Sizes are 64-bit integers.
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Privilege:
    """What a kernel may do with a parameter."""

    name: str

    def __repr__(self) -> str:
        return self.name


read = Privilege("read")
write = Privilege("write")
read_write = Privilege("read_write")
update = read_write
reduce_sum = Privilege("reduce_sum")
reduce = reduce_sum
reduce_max = Privilege("reduce_max")
reduce_min = Privilege("reduce_min")
reduce_prod = Privilege("reduce_prod")

_PRIVILEGES = {p.name: p for p in (read, write, read_write, reduce_sum, reduce_max, reduce_min, reduce_prod)}
_PRIVILEGES |= {"update": read_write, "reduce": reduce_sum}


@dataclass(frozen=True)
class TensorType:
    """An array parameter. ``dims`` and ``dtype`` are ``None`` where anything fits."""

    dims: tuple[str, ...] | None = None
    dtype: DType | None = None
    privilege: Privilege | None = None
    out: bool = False

    def __str__(self) -> str:
        items = [d if d.isdigit() else f'"{d}"' for d in self.dims or ()]
        if self.dtype is not None:
            items.append(str(self.dtype) if self.dtype.is_plain else f"'{self.dtype}'")
        inner = f"{'Out' if self.out else 'Tensor'}[{', '.join(items)}]"
        if self.privilege is None or self.out:
            return inner
        return f"Region[{self.privilege}]" if not items else f"Region[{self.privilege}, {inner}]"

    __repr__ = __str__

    def __or__(self, other: object) -> OptionalType:
        return optional(self, other)

    __ror__ = __or__

    def __call__(self, *args: object, **kwargs: object) -> Any:
        # `typing.Optional` takes only what can be called, before Python 3.11.
        help = "arrays are made by `ts.empty(shape, dtype)` or `ts.array(values)`"
        raise _core.error("E_TYPE", f"`{self}` is the type of a parameter, and makes no array", help, place=here())


@dataclass(frozen=True)
class OptionalType:
    """A parameter that may be ``None``: ``ts.Tensor["n", ts.f32] | None``."""

    inner: Any

    def __or__(self, other: object) -> OptionalType:
        return optional(self.inner, other)

    __ror__ = __or__

    def __repr__(self) -> str:
        return f"{self.inner} | None"


def optional(inner: Any, other: object) -> OptionalType:
    """``inner | other``, where ``other`` can only be ``None``."""
    if other is not None and other is not type(None):
        help = "a parameter has one type; `| None` says that it may be left out"
        raise _core.error("E_TYPE", f"expected `{inner} | None`, got {other!r} beside it", help, place=here())
    return OptionalType(inner)


DType.__or__ = optional  # type: ignore[attr-defined]
DType.__ror__ = optional  # type: ignore[attr-defined]


def _dim(item: object, out: bool = False) -> str:
    if item is Ellipsis:
        return "?"
    if isinstance(item, int) and not isinstance(item, bool):
        if item < 0:
            help = 'write a name, such as "M", where the size varies'
            raise _core.error("E_SHAPE_MISMATCH", f"expected a dimension of at least 0, got {item}", help, place=here())
        return _size(item)
    if isinstance(item, str):
        text = item.strip()
        factors = [f.strip() for f in text.split("*")]
        if text == "?" or all(_NUMBER.fullmatch(f) or _SYMBOL.fullmatch(f) for f in factors):
            product = 1
            for factor in filter(_NUMBER.fullmatch, factors):
                # Python refuses to read numbers of thousands of digits.
                product *= int(factor) if len(factor) < 1000 else 2**64
            _size(product)
            return "*".join(factors) if len(factors) > 1 else text
        if any(sign in text for sign in "+-*/%("):
            return _expression(text, out)
    raise _core.error(
        "E_TYPE",
        f"expected a dimension, got {item!r}",
        'a dimension is a name such as "M", an integer, "?", or a product such as "B*H"; a dtype comes last',
        place=here(),
    )


_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
#: More than this is no size that a person writes.
_LONGEST = 1000


def _expression(text: str, out: bool) -> str:
    """A size that is computed from others. The caller's arrays give sizes; only those that are made for a call are computed."""
    if not out:
        help = f'only `ts.Out[...]` has sizes by expression: name the size, such as "m", or write `{text!r}` for an output'
        raise _core.error("E_TYPE", f"expected the name of a size or a product, got the expression {text!r}", help, place=here())
    try:
        wrong = "is too long" if len(text) > _LONGEST else _not_allowed(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        wrong = "is no expression"
    if wrong:
        help = 'a size is made of names, integers, `+ - * // %`, `min`, `max`, `ts.cdiv` as `cdiv` and parentheses: "(N + BLOCK - 1) // BLOCK"'
        raise _core.error("E_TYPE", f"expected a size, but {text!r} {wrong}", help, place=here())
    return text


def _not_allowed(node: ast.expr) -> str | None:
    """What of an expression is not part of the grammar of sizes."""
    if isinstance(node, ast.Name) or isinstance(node, ast.Constant) and type(node.value) is int and node.value <= _LARGEST:
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, _OPERATORS):
        return _not_allowed(node.left) or _not_allowed(node.right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _not_allowed(node.operand)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        name, count = node.func.id, len(node.args)
        if name in ("min", "max") and count >= 2 or name == "cdiv" and count == 2:
            return next(filter(None, map(_not_allowed, node.args)), None)
        return f"calls `{name}` with {count} argument{'' if count == 1 else 's'}"
    return f"has `{ast.unparse(node)}`"


def names_in(dim: str) -> list[str]:
    """The names that a dimension is made of."""
    return [word for word in re.findall(r"[^\W\d]\w*", dim) if word not in ("min", "max", "cdiv")]


def is_expression(dim: str) -> bool:
    """Whether a dimension is more than a name, a number or a product of those."""
    return any(sign in dim for sign in "+-/%(")


def _size(size: int) -> str:
    """A size that an array can have: one beyond 64 bits was taken for a name."""
    if size > _LARGEST:
        help = 'write a name, such as "M", where the size varies'
        text = f"expected a dimension below 2**63, got one of {size.bit_length()} bits"
        raise _core.error("E_SHAPE_MISMATCH", text, help, place=here())
    return str(size)


def _tensor(items: object, *, out: bool = False) -> TensorType:
    parts = list(items) if isinstance(items, tuple) else [items]
    elem = None
    if parts and isinstance(parts[-1], DType):
        elem = parts.pop()
    elif parts and isinstance(parts[-1], str) and _names_a_dtype(parts[-1]):
        elem = dtype(parts.pop())
    return TensorType(tuple(_dim(p, out) for p in parts), elem, None, out)


def _names_a_dtype(text: str) -> bool:
    text = text.strip()
    return bool(_LIKE_A_DTYPE.fullmatch(text)) or _core.is_dtype_name(text)


class Tensor:
    """``Tensor["M", "K", ts.bf16]``: an array of this shape and dtype.

    Dims are names, integers, ``"?"`` or products such as ``"B*H"``; a name that occurs twice must
    have one size. Without a dtype any fits. Names of dims are integers inside the kernel. ``Tensor[ts.f32]`` has no
    axes: its element is ``s[()]``. ``Tensor[...] | None`` may be left out.
    """

    def __class_getitem__(cls, items: object) -> Any:
        return _tensor(items)


class Out:
    """``Out["M", "N", ts.bf16]``: a written array that the caller may leave out; it is returned. Elements that the
    launch does not write are then zero. A size may be an expression of others: ``Out["(N + BLOCK - 1) // BLOCK", ts.f32]``."""

    def __class_getitem__(cls, items: object) -> Any:
        tensor = _tensor(items, out=True)
        if tensor.dtype is None or "?" in (tensor.dims or ()):
            raise _core.error(
                "E_TYPE", "expected `Out[...]` to give every dimension and the dtype", 'write `Out["M", "N", ts.f32]`', place=here()
            )
        return TensorType(tensor.dims, tensor.dtype, write, True)


class Region:
    """``Region[read]``, ``Region[reduce_sum, Tensor["n", ts.f32]]``: an array and its privilege."""

    def __class_getitem__(cls, items: object) -> Any:
        mode, *rest = items if isinstance(items, tuple) else (items,)
        privilege = mode if isinstance(mode, Privilege) else _PRIVILEGES.get(mode) if isinstance(mode, str) else None
        if privilege is None:
            near = _core.closest(mode, list(_PRIVILEGES)) if isinstance(mode, str) else None
            help = f"did you mean `ts.{near}`?" if near else 'write `ts.Region[ts.read, ts.Tensor["n", ts.f32]]`'
            said = f"expected a privilege (one of {', '.join(_PRIVILEGES)}), got {mode!r}"
            raise _core.error("E_ARGUMENT", said, help, place=here())
        if not rest:
            return TensorType(privilege=privilege)
        if len(rest) == 1 and isinstance(rest[0], TensorType):
            return TensorType(rest[0].dims, rest[0].dtype, privilege, rest[0].out)
        return TensorType(*_shape_and_dtype(rest), privilege)


def _shape_and_dtype(items: list[object]) -> tuple[tuple[str, ...] | None, DType | None]:
    tensor = _tensor(tuple(items))
    return tensor.dims, tensor.dtype


class Fn:
    """``epilogue: ts.Fn = ts.identity``: a ``@ts.func`` that the caller gives."""
