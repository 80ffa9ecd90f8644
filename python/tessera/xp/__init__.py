"""Array functions in the shape of the Python array API, on traced values and on arrays.

Inside of a function that is traced (`ts.jit`, `ts.grad`, …) they become a part of it; outside they run at once, and give
NumPy arrays. Python's numbers take the dtype of the array beside them."""

from ._creation import (
    arange, asarray, empty, empty_like, eye, from_dlpack, full, full_like, linspace, meshgrid, ones, ones_like, tril, triu, zeros,
    zeros_like,
)  # fmt: skip
from ._elementwise import (
    abs, acos, acosh, add, asin, asinh, atan, atan2, atanh, bitwise_and, bitwise_invert, bitwise_left_shift, bitwise_or,
    bitwise_right_shift, bitwise_xor, ceil, clip, copysign, cos, cosh, divide, equal, erf, exp, exp2, expm1, floor, floor_divide,
    fma, greater, greater_equal, hypot, isfinite, isinf, isnan, less, less_equal, log, log10, log1p, log2, logaddexp,
    logical_and, logical_not, logical_or, logical_xor, maximum, minimum, multiply, negative, not_equal, positive, pow,
    reciprocal, remainder, round, rsqrt, sigmoid, sign, signbit, sin, sinh, sqrt, square, subtract, tan, tanh, trunc, where,
)  # fmt: skip
from ._index import at, getitem, put_along_axis, take, take_along_axis
from ._linalg import einsum, matmul, matrix_transpose, outer, tensordot, vecdot
from ._manipulate import (
    astype, broadcast_arrays, broadcast_to, concat, expand_dims, flip, moveaxis, pad, permute_dims, repeat, reshape, roll,
    split, squeeze, stack, swapaxes, tile, unstack,
)  # fmt: skip
from ._reduce import (
    all, any, argmax, argmin, argsort, count_nonzero, cumulative_prod, cumulative_sum, logsumexp, max, mean, min, prod,
    searchsorted, sort, std, sum, top_k, var,
)  # fmt: skip
from ._info import __array_namespace_info__
from ._sets import nonzero, unique_all, unique_counts, unique_inverse, unique_values
from ._types import (
    bfloat16, bool, can_cast, e, finfo, float16, float32, float64, iinfo, inf, int8, int16, int32, int64, isdtype, nan,
    newaxis, pi, result_type, uint8, uint16, uint32, uint64,
)  # fmt: skip

concatenate = concat
cumsum = cumulative_sum
cumprod = cumulative_prod
transpose = permute_dims
__array_api_version__ = "2023.12"

from . import _methods  # noqa: E402,F401  (puts operators and methods on tracers)
