"""Array functions in the shape of the Python array API, on traced values and on arrays.

Inside a function that is traced (`ts.jit`, `ts.grad`, …) they become a part of it; outside they run immediately, and give `ts` arrays,
which on the host are NumPy arrays too. Python's numbers take the dtype of the array beside them."""

import sys as _sys
import typing as _typing

import numpy as _numpy

from ..arrays.host import Array as _Array

from ._creation import (
    arange, asarray, empty, empty_like, eye, from_dlpack, full, full_like, linspace, meshgrid, ones, ones_like, tril, triu, zeros,
    zeros_like,
)  # fmt: skip
from ._elementwise import (
    abs, acosh, add, asinh, atanh, bitwise_and, bitwise_invert, bitwise_left_shift, bitwise_or, bitwise_right_shift,
    bitwise_xor, ceil, clip, copysign, divide, equal, floor, floor_divide, fma, greater, greater_equal, hypot, isfinite, isinf,
    isnan, less, less_equal, logaddexp, logical_and, logical_not, logical_or, logical_xor, maximum, minimum, multiply,
    negative, not_equal, positive, pow, reciprocal, remainder, sign, signbit, sqrt, square, subtract, trunc,
)  # fmt: skip
from ._index import at, getitem, put_along_axis, take, take_along_axis
from ._linalg import einsum, matmul, matrix_transpose, outer, tensordot, vecdot
from ._manipulate import (
    astype, broadcast_arrays, broadcast_to, concat, expand_dims, flip, moveaxis, pad, permute_dims, repeat, reshape, roll,
    split, squeeze, stack, swapaxes, tile, unstack,
)  # fmt: skip
from ._real import *  # noqa: F403
from ._reduce import (
    all, any, argmax, argmin, argpartition, argsort, count_nonzero, cumlogsumexp, cummax, cummin, cumprod, cumsum, cumulative_prod,
    cumulative_sum, lexsort, max, mean, min, partition, prod, searchsorted, sort, std, sum, top_k, var,
)  # fmt: skip
from ._info import __array_namespace_info__
from ._calculus import (
    convolve, correlate, cross, diff, dot, ediff1d, gradient, inner, interp, kron, matvec, polyadd, polyder, polyint, polymul,
    polysub, polyval, trapezoid, unwrap, vander, vdot, vecmat,
)  # fmt: skip
from ._diagonals import (
    array, bartlett, blackman, copy, diag, diag_indices, diag_indices_from, diagflat, diagonal, fill_diagonal, fromfunction,
    geomspace, hamming, hanning, identity, indices, ix_, kaiser, logspace, mask_indices, mgrid, ogrid, ravel_multi_index, trace,
    tri, tril_indices, tril_indices_from, triu_indices, triu_indices_from, unravel_index,
)  # fmt: skip
from ._joins import (
    append, apply_along_axis, apply_over_axes, array_split, atleast_1d, atleast_2d, atleast_3d, block, column_stack, delete,
    dsplit, dstack, fliplr, flipud, hsplit, hstack, insert, packbits, ravel, resize, rollaxis, rot90, unpackbits, vsplit, vstack,
)  # fmt: skip
from ._numbers import (
    allclose, around, array_equal, array_equiv, bitwise_count, broadcast_shapes, cbrt, choose, deg2rad, divmod, fabs, fix,
    float_power, fmax, fmin, fmod, frexp, gcd, heaviside, isclose, iscomplex, iscomplexobj, isneginf, isposinf, isreal, isrealobj,
    isscalar, issubdtype, iterable, lcm, ldexp, logaddexp2, modf, nan_to_num, ndim, nextafter, piecewise, promote_types, rad2deg,
    rint, round, select, shape, size, spacing, vectorize,
)  # fmt: skip
from ._sets import (
    argwhere, compress, extract, flatnonzero, intersect1d, isin, nonzero, setdiff1d, setxor1d, union1d, unique, unique_all,
    unique_counts, unique_inverse, unique_values, where,
)  # fmt: skip
from ._softmax import logsumexp
from ._special import digamma, erfinv, i0, lgamma, polygamma, sinc
from ._statistics import (
    average, bincount, corrcoef, cov, digitize, histogram, histogram2d, histogram_bin_edges, median, nanargmax, nanargmin,
    nancumprod, nancumsum, nanmax, nanmean, nanmedian, nanmin, nanpercentile, nanprod, nanquantile, nanstd, nansum, nanvar,
    percentile, ptp, quantile, segment_max, segment_min, segment_prod, segment_sum,
)  # fmt: skip
from ._types import (
    bfloat16, bool, can_cast, e, finfo, float16, float32, float64, iinfo, inf, int8, int16, int32, int64, isdtype, nan,
    newaxis, pi, result_type, uint8, uint16, uint32, uint64,
)  # fmt: skip

concatenate = concat
transpose = permute_dims
absolute, power, true_divide, mod, invert, bitwise_not = abs, pow, divide, remainder, bitwise_invert, bitwise_invert
left_shift, right_shift = bitwise_left_shift, bitwise_right_shift
arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh = acos, acosh, asin, asinh, atan, atan2, atanh
amax, amin = max, min
degrees, radians = rad2deg, deg2rad
gammaln = lgamma
bool_, euler_gamma = bool, 0.5772156649015329
# For `issubdtype` and `isinstance`, as users of NumPy and JAX write them.
floating, inexact, integer, number = _numpy.floating, _numpy.inexact, _numpy.integer, _numpy.number
signedinteger, unsignedinteger, s_, index_exp = _numpy.signedinteger, _numpy.unsignedinteger, _numpy.s_, _numpy.index_exp
ndarray = _Array
__array_api_version__ = "2023.12"

from . import _mesh_methods, _methods  # noqa: E402  (put operators and methods on tracers and arrays)

_methods.give_namespace(_sys.modules[__name__])

if not _typing.TYPE_CHECKING:  # a checker would take every name for one that is there

    def __getattr__(name: str) -> object:
        from ..base.foreign_names import missing

        raise missing(__name__, name, list(globals()))
