"""The functions of the tile language as Python objects.

Inside a kernel the compiler knows their names; outside, calling one is an error that says so.
"""

from __future__ import annotations

from typing import Any, NoReturn

from .. import _core


class ApiFunction:
    """A function that works inside kernels."""

    def __init__(self, api_name: str, signature: str, doc: str) -> None:
        self.api_name = api_name
        self.signature = signature
        self.__name__ = self.__qualname__ = api_name.rpartition(".")[2]
        above = api_name.partition(".")[0] if "." in api_name else ""
        self.__module__ = f"tessera.{above}" if above in ("tile", "target") else "tessera"
        self.__doc__ = f"{self.__name__}{signature}\n\n{doc}"

    def __repr__(self) -> str:
        return f"<tessera function {self.api_name}{self.signature}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return by_name, (self.api_name,)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        raise outside(f"ts.{self.api_name}")


class Cdiv(ApiFunction):
    """``cdiv``, which also computes on plain integers."""

    def __call__(self, a: int, b: int) -> int:  # type: ignore[override]
        return -(-a // b)


def outside(name: str) -> Exception:
    """The error for something that has a meaning inside kernels only."""
    return _core.error(
        "E_UNSUPPORTED",
        f"`{name}` works only inside a kernel",
        "call it in the body of a function decorated with `@ts.kernel` or `@ts.func`",
    )


FUNCTIONS: dict[str, ApiFunction] = {
    name: (Cdiv if name == "cdiv" else ApiFunction)(name, signature, doc)
    for name, signature, doc in _core.api()
    # Python's own functions that kernels know are Python's outside kernels.
    if not name.startswith(("py.", "math."))
}


def by_name(api_name: str) -> ApiFunction:
    return FUNCTIONS[api_name]


def members(prefix: str) -> dict[str, ApiFunction]:
    """The functions directly below ``prefix``; the top level for an empty one."""
    out = {}
    for name, function in FUNCTIONS.items():
        above, _, last = name.rpartition(".")
        if above == prefix:
            out[last] = function
    return out


class ApiNamespace:
    """A namespace of the language, such as ``ts.tile.group``."""

    def __init__(self, api_name: str) -> None:
        self.api_path = api_name
        self.__name__ = f"tessera.{api_name}"
        self.__doc__ = f"Functions: {', '.join(members(api_name))}."
        self.__dict__.update(members(api_name))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        unknown(self.api_path, name)

    def __repr__(self) -> str:
        return f"<tessera namespace {self.api_path}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return namespace, (self.api_path,)


NAMESPACES: dict[str, ApiNamespace] = {}


def namespace(api_name: str) -> ApiNamespace:
    return NAMESPACES[api_name]


for _name in FUNCTIONS:
    _above = _name.rpartition(".")[0]
    if _above.count(".") == 1 and _above not in NAMESPACES:
        NAMESPACES[_above] = ApiNamespace(_above)


def unknown(namespace: str, name: str) -> NoReturn:
    """``ts.tile.foo``: an AttributeError that names what is near."""
    raise AttributeError(f"`tessera.{namespace}` has no function `{name}`{hint(name, list(members(namespace)))}")


def hint(name: str, known: list[str]) -> str:
    """What an unknown name may mean: a name of another library, or a misspelt one of ours."""
    import difflib

    instead = _core.instead_of(name)
    if instead is not None:
        return f"; {instead}"
    near = difflib.get_close_matches(name, known, n=3)
    return f"; did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else ""
