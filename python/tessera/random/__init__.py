"""Random arrays by Philox4x32-10: the same key gives the same values on every backend, eager, jitted and under `ts.vmap`.

    key = ts.random.key(0)
    first, second = ts.random.split(key)
    x = ts.random.normal(first, (3, 4))

New keys are made with `split` and `fold_in`, never by using one twice. Element i of a result is made of (key, i) alone."""

import typing as _typing

from ._basic import bernoulli, bits, lognormal, normal, rademacher, randint, truncated_normal, uniform
from ._choice import categorical, choice, permutation, shuffle
from ._formulas import (
    cauchy,
    double_sided_maxwell,
    exponential,
    geometric,
    gumbel,
    laplace,
    logistic,
    maxwell,
    multivariate_normal,
    orthogonal,
    pareto,
    rayleigh,
    triangular,
    wald,
    weibull_min,
)
from ._keys import Key, PRNGKey, clone, fold_in, key, key_data, split, wrap_key_data
from ._rejection import (
    ball,
    beta,
    binomial,
    chisquare,
    dirichlet,
    f,
    gamma,
    generalized_normal,
    loggamma,
    poisson,
    t,
)

__all__ = [
    "Key", "PRNGKey", "ball", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy", "chisquare", "choice", "clone",
    "dirichlet", "double_sided_maxwell", "exponential", "f", "fold_in", "gamma", "generalized_normal", "geometric", "gumbel",
    "key", "key_data", "laplace", "loggamma", "logistic", "lognormal", "maxwell", "multivariate_normal", "normal", "orthogonal",
    "pareto", "permutation", "poisson", "rademacher", "randint", "rayleigh", "shuffle", "split", "t", "triangular",
    "truncated_normal", "uniform", "wald", "weibull_min", "wrap_key_data",
]  # fmt: skip

if not _typing.TYPE_CHECKING:  # a checker would take every name for one that is there

    def __getattr__(name: str) -> object:
        from ..base.foreign_names import missing

        raise missing(__name__, name, list(globals()))
