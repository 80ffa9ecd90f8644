//! Names that people bring from Triton, CUDA, NumPy, JAX and PyTorch, and what to write here.
//!
//! One table answers for unknown attributes of `ts` and `ts.tile`, for functions of modules such as
//! `tl` and `np`, for bare names such as `__syncthreads`, for methods of tiles and arrays, and for
//! keyword arguments. A name that the language has stands in none of the tables: a test says so, and
//! that every function which a fix names exists.

/// How modules of other libraries are called in source, and whose they are.
const MODULES: &[(&str, &str)] = &[
    ("tl", "Triton's"),
    ("triton", "Triton's"),
    ("tlx", "Triton's"),
    ("libdevice", "Triton's"),
    ("gl", "Gluon's"),
    ("cuda", "Numba's"),
    ("numba", "Numba's"),
    ("np", "NumPy's"),
    ("numpy", "NumPy's"),
    ("cp", "CuPy's"),
    ("cupy", "CuPy's"),
    ("jnp", "JAX's"),
    ("jax", "JAX's"),
    ("lax", "JAX's"),
    ("pl", "Pallas's"),
    ("pltpu", "Pallas's"),
    ("plgpu", "Pallas's"),
    ("torch", "PyTorch's"),
    ("F", "PyTorch's"),
    ("wp", "Warp's"),
    ("ct", "cuTile's"),
    ("T", "TileLang's"),
];

/// Names, several to a row, and what to write for them.
pub const NAMES: &[(&str, &str)] = &[
    // Compile-time values and loops.
    (
        "constexpr",
        "annotate the parameter with `int`, `float`, `bool` or `str`: those are compile-time values",
    ),
    ("unroll", "write `for i in ts.static_range(n):`, which is unrolled"),
    (
        "device_assert",
        "write `assert condition, \"text\"`; `ts.static_assert` is for compile-time values, and `ts.require(…)` checks sizes when a kernel is called",
    ),
    ("device_print", "write `print(…)` or `ts.tile.print(…)`"),
    (
        "fori_loop while_loop",
        "write a Python loop: `for i in range(lo, hi):` or `while condition:`",
    ),
    (
        "cond switch",
        "write a Python `if` on a scalar, or `ts.tile.where(c, a, b)` for each element",
    ),
    (
        "jit autotune Config heuristics",
        "decorate the kernel with `@ts.kernel` or `@ts.kernel.autotune(space=dict(BM=[64, 128]))`",
    ),
    // The launch.
    (
        "threadIdx grid_dim threads_per_block",
        "write `ts.tile.local_id()`, or `ts.tile.linear_id()` for the index over the whole launch",
    ),
    (
        "blockIdx block_idx",
        "write `ts.tile.program_id(0)`, or `ts.tile.linear_id()` for `blockIdx.x * blockDim.x + threadIdx.x`",
    ),
    ("blockDim", "write `ts.tile.group_size()`; `@ts.kernel(lanes=256)` sets it"),
    ("gridDim gridsize", "write `ts.tile.num_programs(0)`"),
    (
        "warpSize warp_size laneid",
        "write `ts.tile.lane_id()` for the lane's index in its warp; its width depends on the target",
    ),
    ("bid", "write `ts.tile.program_id(axis)`"),
    ("num_blocks", "write `ts.tile.num_programs(axis)`"),
    // Synchronisation and shared memory.
    (
        "__syncthreads syncthreads debug_barrier sync_threads syncwarp __syncwarp",
        "write `ts.tile.barrier()`",
    ),
    ("__shared__ shared smem", "write `ts.tile.alloc_shared((n,), ts.f32)`"),
    (
        "local",
        "lanes keep scalars in variables; what they share goes into `ts.tile.alloc_shared((n,), ts.f32)`",
    ),
    (
        "__threadfence __threadfence_block __threadfence_system threadfence",
        "use the order of an atomic: `ts.tile.atomic_add(x[i], v, order=\"release\")`",
    ),
    (
        "__shfl_sync __shfl_up_sync __shfl_down_sync __shfl_xor_sync shfl_sync shfl_up_sync shfl_down_sync shfl_xor_sync",
        "write `ts.tile.group.shuffle(x, lane)`, which gives the value of that lane of the group",
    ),
    (
        "__ballot_sync ballot_sync __any_sync __all_sync any_sync all_sync ballot __match_any_sync match_any_sync",
        "write `ts.tile.group.any(p)`, `ts.tile.group.all(p)`, `ts.tile.group.ballot(p)` or `ts.tile.group.match(x)`",
    ),
    ("__reduce_add_sync reduce_add_sync", "write `ts.tile.group.reduce(x, \"sum\")`"),
    (
        "cooperative_groups this_thread_block tiled_partition this_grid",
        "write `ts.tile.group`, the lanes of one group",
    ),
    (
        "cp_async_bulk async_copy memcpy_async make_async_copy",
        "write `ts.tile.cp_async(buffer, x[start:start + T])`",
    ),
    (
        "cp_async_wait_all wait_all",
        "write `ts.tile.cp_wait_group(0)`; without explicit groups a read waits by itself",
    ),
    (
        "wmma wgmma tcgen05 mma_sync load_matrix_sync",
        "write `ts.tile.mma(a, b, accumulator=acc)`: the compiler chooses the instruction",
    ),
    // Memory.
    ("__ldg ldg __ldcs __ldca __ldcg", "write `x[i]`: the compiler chooses the load instruction"),
    ("__stcs __stcg __stwt", "write `x[i] = v`: the compiler chooses the store instruction"),
    (
        "make_block_ptr make_tensor_descriptor advance load_tensor_descriptor",
        "slice the array: `x[m:m + BM, k:k + BK]`; a slice that leaves the array reads zeros and writes nothing there",
    ),
    (
        "multiple_of max_contiguous max_constancy assume",
        "leave it out: sizes, strides and alignment are taken from the arguments",
    ),
    ("pointer_type", "annotate the parameter as an array: `x: ts.Tensor[\"n\", ts.f32]`"),
    ("atomic_xchg atomicExch exch", "write `ts.tile.atomic_exchange(x[i], v)`"),
    ("atomicAdd", "write `ts.tile.atomic_add(x[i], v)`"),
    ("atomicSub", "write `ts.tile.atomic_sub(x[i], v)`"),
    ("atomicMax", "write `ts.tile.atomic_max(x[i], v)`"),
    ("atomicMin", "write `ts.tile.atomic_min(x[i], v)`"),
    ("atomicCAS compare_and_swap", "write `ts.tile.atomic_cas(x[i], expected, v)`"),
    ("atomicAnd", "write `ts.tile.atomic_and(x[i], v)`"),
    ("atomicOr", "write `ts.tile.atomic_or(x[i], v)`"),
    ("atomicXor", "write `ts.tile.atomic_xor(x[i], v)`"),
    (
        "gather take",
        "index with a tile of integers: `x[index]`; `ts.tile.take_along_axis(x, index, axis)` takes one for each element",
    ),
    (
        "scatter put index_add scatter_add",
        "store at a tile of integers: `y[index] = v`, or `y[index] += v` to add",
    ),
    ("printf", "write `print(…)` or `ts.tile.print(…)`"),
    ("dynamic_slice", "write `x[start:start + T]` with a compile-time `T`"),
    ("dynamic_update_slice", "write `x[start:start + T] = v` with a compile-time `T`"),
    // Arithmetic.
    (
        "matmul einsum bmm mm inner tensordot dot_general vdot dot_scaled wgmma_gemm gemm",
        "write `ts.tile.mma(a, b, accumulator=acc)`",
    ),
    ("cdiv ceil_div", "write `ts.cdiv(a, b)`"),
    ("next_power_of_2", "tile shapes need not be powers of two: use the size itself"),
    ("fdiv div_rn true_divide divide", "write `a / b`"),
    ("floor_divide floordiv", "write `a // b`"),
    ("mod remainder fmod", "write `a % b`, which rounds down as in Python"),
    ("multiply", "write `a * b`"),
    ("subtract", "write `a - b`"),
    ("negative", "write `-x`"),
    ("square", "write `x * x`"),
    ("absolute fabs fabsf", "write `ts.tile.abs(x)` or `abs(x)`"),
    ("power", "write `ts.tile.pow(a, b)` or `a ** b`"),
    ("logical_and bitwise_and", "write `a & b`"),
    ("logical_or bitwise_or", "write `a | b`"),
    ("logical_not bitwise_not invert", "write `~a`"),
    ("logical_xor bitwise_xor", "write `a ^ b`"),
    ("left_shift", "write `a << b`"),
    ("right_shift", "write `a >> b`"),
    ("fmax fmaxf", "write `ts.tile.maximum(a, b)`, which gives NaN where an operand is NaN"),
    ("fmin fminf", "write `ts.tile.minimum(a, b)`, which gives NaN where an operand is NaN"),
    ("clip", "write `ts.tile.clamp(x, low, high)`"),
    ("sqrt_rn sqrtf __fsqrt_rn", "write `ts.tile.sqrt(x)`"),
    ("rsqrtf __frsqrt_rn", "write `ts.tile.rsqrt(x)`"),
    ("expf __expf fast_expf", "write `ts.tile.exp(x)`"),
    ("logf __logf", "write `ts.tile.log(x)`"),
    ("sinf __sinf", "write `ts.tile.sin(x)`"),
    ("cosf __cosf", "write `ts.tile.cos(x)`"),
    ("tanhf fast_tanh", "write `ts.tile.tanh(x)`"),
    ("powf __powf", "write `ts.tile.pow(a, b)`"),
    ("fmaf __fmaf_rn", "write `ts.tile.fma(a, b, c)`"),
    ("arctan", "write `ts.tile.atan(x)`"),
    ("arctan2", "write `ts.tile.atan2(y, x)`"),
    ("arcsin", "write `ts.tile.asin(x)`"),
    ("arccos", "write `ts.tile.acos(x)`"),
    ("erfc", "write `1.0 - ts.tile.erf(x)`"),
    ("relu", "write `ts.tile.maximum(x, 0.0)`"),
    ("silu swish", "write `x * ts.tile.sigmoid(x)`"),
    ("gelu", "write `0.5 * x * (1.0 + ts.tile.erf(x * 0.7071067811865476))`"),
    ("softplus", "write `ts.tile.log1p(ts.tile.exp(x))`"),
    (
        "softmax",
        "subtract `ts.tile.max(x, axis=1)[:, None]`, take `ts.tile.exp`, divide by its `ts.tile.sum`; over blocks use ts.tile.softmax_online",
    ),
    (
        "log_softmax logsumexp",
        "write `m + ts.tile.log(ts.tile.sum(ts.tile.exp(x - m)))` with `m = ts.tile.max(x)`",
    ),
    (
        "layer_norm rms_norm batch_norm",
        "write it with `ts.tile.mean` and `ts.tile.rsqrt`; whole arrays have ts.op.layernorm and ts.op.rmsnorm",
    ),
    (
        "abs_ maximum_ minimum_",
        "leave out the underscore: tiles are values and are not changed in place",
    ),
    ("popc __popc popcll __popcll bitwise_count population_count", "write `ts.tile.popcount(x)`"),
    ("__clz ffs __ffs __brev", "write `ts.tile.clz(x)`, `ts.tile.ctz(x)` or `ts.tile.brev(x)`"),
    ("umulhi __umulhi __mulhi", "write `ts.tile.mulhi(a, b)`"),
    ("__funnelshift_l __funnelshift_r", "write `ts.tile.funnel_shift(hi, lo, n)`"),
    (
        "__float_as_int __int_as_float float_as_int int_as_float view bitcast_convert_type __float_as_uint __uint_as_float",
        "write `ts.tile.bitcast(x, ts.i32)`",
    ),
    (
        "__float2half __half2float __float2bfloat16 __float2int_rz __int2float_rn",
        "write `ts.tile.cast(x, dtype)`",
    ),
    // Shapes.
    ("zeros_like", "write `ts.tile.fill(x, 0.0)`"),
    ("ones_like", "write `ts.tile.fill(x, 1.0)`"),
    ("full_like", "write `ts.tile.fill(x, value)`"),
    ("empty", "write `ts.tile.zeros(shape, dtype)`: tiles are always initialised"),
    (
        "array asarray tensor",
        "tiles come of slices, `ts.tile.full`, `ts.tile.zeros` and `ts.tile.arange`",
    ),
    ("linspace", "write `start + step * ts.tile.arange(n)`"),
    (
        "iota broadcasted_iota program_ids",
        "write `ts.tile.arange(n)`, with `[:, None]` or `[None, :]` for two axes",
    ),
    ("broadcast_to expand broadcast_in_dim", "write `ts.tile.broadcast(x, shape)`"),
    (
        "trans permute swapaxes moveaxis permute_dims matrix_transpose",
        "write `ts.tile.transpose(x, (1, 0))` with all axes in their new order, or `x.T`, which reverses them",
    ),
    ("unsqueeze newaxis", "write `x[:, None]` or `ts.tile.expand_dims(x, axis)`"),
    ("squeeze", "write `ts.tile.reshape(x, shape)`"),
    ("flatten ravel", "write `ts.tile.reshape(x, -1)`"),
    (
        "cat concatenate hstack vstack join interleave",
        "write `ts.tile.concat((a, b), axis=0)` or `ts.tile.stack((a, b), axis=0)`",
    ),
    (
        "hsplit vsplit chunk",
        "write `ts.tile.split(x, 2, axis=0)`, or slices: `x[:16]` and `x[16:]`",
    ),
    ("fliplr flipud reverse", "write `ts.tile.flip(x, axis=0)` or `x[::-1]`"),
    (
        "tile repeat",
        "index with a tile: `x[ts.tile.arange(n) % 16]`, or broadcast with `x[:, None]`",
    ),
    (
        "pad",
        "slices that leave their array read zeros; `ts.tile.load(x, index, other=v)` reads another value",
    ),
    ("tril", "write `ts.tile.causal_mask(x, 0, 0, value=0.0)`"),
    (
        "triu",
        "compare positions: `ts.tile.where(ts.tile.arange(16)[:, None] <= ts.tile.arange(16)[None, :], x, 0.0)`",
    ),
    (
        "meshgrid ogrid indices",
        "write `ts.tile.arange(16)[:, None]` and `ts.tile.arange(16)[None, :]`",
    ),
    // Reductions and random numbers.
    ("amax nanmax", "write `ts.tile.max(x, axis=…)`"),
    ("amin nanmin", "write `ts.tile.min(x, axis=…)`"),
    ("std var", "write `ts.tile.mean((x - m) * (x - m))` with `m = ts.tile.mean(x)`"),
    ("norm", "write `ts.tile.sqrt(ts.tile.sum(x * x))`"),
    (
        "nonzero argwhere count_nonzero",
        "reduce or scan the condition: `ts.tile.cumsum(ts.tile.cast(c, ts.i32))` numbers the elements that hold",
    ),
    ("xor_sum", "write `ts.tile.reduce(x, \"xor\")`"),
    ("top_k lexsort", "write `ts.tile.topk(x, k)`, `ts.tile.sort(x)` or `ts.tile.argsort(x)`"),
    (
        "bincount unique",
        "write `ts.tile.histogram(x, bins)` or `ts.tile.unique_count(x)`; all groups add at a tile of positions by `h[index] += 1` with `h: ts.Region[ts.reduce_sum, ts.Tensor[\"m\", ts.i32]]`",
    ),
    (
        "rand randn uniform normal random randint rand4x randint4x philox_impl",
        "write `ts.tile.philox(seed, counter)`, which gives a random uint32 for each counter",
    ),
    // Functions of whole arrays.
    (
        "xp",
        "functions of `ts.xp` take whole arrays, outside a kernel: in a kernel `ts.xp.exp(x)` is `ts.tile.exp(x)`",
    ),
    (
        "nn",
        "functions of `ts.nn` take whole arrays, outside a kernel: write them with functions of ts.tile, `ts.tile.maximum(x, 0.0)` for relu",
    ),
    (
        "asinh acosh atanh arcsinh arccosh arctanh cbrt digamma erfinv gammaln i0 lgamma logaddexp logaddexp2 \
         nextafter polygamma sinc",
        "the tile language does not have it; `ts.xp` does, for whole arrays outside a kernel",
    ),
    // Scheduling that kernels do not say.
    (
        "num_warps num_stages num_ctas",
        "pin it with `@ts.kernel.schedule(warps=8, stages=3)`, or tune it: \
         `@ts.kernel.autotune(space=dict(num_warps=[4, 8]))`",
    ),
    (
        "inline_asm_elementwise inline_ptx asm",
        "write `ts.target.asm(\"ex2.approx.ftz.f32 $0, $1;\", x, dtype=ts.f32)`: registers follow from \
         dtypes, without constraints, and `otherwise=` says what other targets run",
    ),
    ("pallas_call BlockSpec", "decorate a function with `@ts.kernel` and slice its parameters"),
    ("launch_bounds __launch_bounds__", "write `@ts.kernel(lanes=256)`"),
    ("stop_gradient detach", "derivatives are taken outside kernels: see ts.custom_vjp"),
    ("block_until_ready synchronize", "call it outside the kernel"),
];

/// Names that the language has too, where a module of another library means something else by them.
pub const ELSEWHERE: &[(&str, &str)] = &[
    (
        "load",
        "slice the array, `x[m:m + 16]`, or write `ts.tile.load(x, index, mask=…, other=…)`: arrays take the place of pointers",
    ),
    (
        "store",
        "assign to a slice, `y[m:m + 16] = v`, or write `ts.tile.store(y, index, v, mask=…)`: arrays take the place of pointers",
    ),
    ("dot", "write `ts.tile.mma(a, b, accumulator=acc)`"),
    ("range", "write `range(n)` or `ts.tile.range(lo, hi, step)`"),
    ("sum", "write `ts.tile.sum(x, axis=…)`"),
    ("max", "write `ts.tile.max(x, axis=…)`, or `ts.tile.maximum(a, b)` for each element"),
    ("min", "write `ts.tile.min(x, axis=…)`, or `ts.tile.minimum(a, b)` for each element"),
    ("grid", "write `ts.tile.linear_id()`; `ts.tile.grid(…)` sets the extents of the launch"),
];

/// Attributes and methods of tiles and arrays.
pub const METHODS: &[(&str, &str)] = &[
    ("astype to type type_as half bfloat16 convert_element_type", "write `ts.tile.cast(x, dtype)`"),
    ("float double", "write `ts.tile.cast(x, ts.f32)`"),
    ("int long", "write `ts.tile.cast(x, ts.i64)`"),
    ("ndim rank dim", "write `len(x.shape)`"),
    ("size numel nbytes", "multiply the entries of `x.shape`"),
    (
        "item tolist",
        "index it: `x[0]`; tiles become scalars by a reduction such as `ts.tile.sum(x)`",
    ),
    ("copy clone contiguous", "leave it out: tiles are values, and arrays may have any strides"),
    ("at", "write `y[i] = v` or `y[i] += v`; `ts.tile.atomic_add(y[i], v)` where groups overlap"),
    ("set add", "write `y[i] = v` or `y[i] += v`"),
    ("view bitcast", "write `ts.tile.bitcast(x, dtype)`"),
    ("mT transpose t swapaxes permute", "write `x.T` or `ts.tile.transpose(x)`"),
    ("strides stride data_ptr ctypes", "index the array: strides and addresses are the compiler's"),
    (
        "device cuda cpu",
        "a kernel runs where its arrays are; `ts.runtime.select_backend(name)` says otherwise",
    ),
    ("fill fill_", "write `x[:] = value`, or `ts.tile.fill(x, value)` for a tile"),
    ("dot matmul __matmul__ mm", "write `ts.tile.mma(a, b)`"),
    ("flatten ravel squeeze unsqueeze", "write `ts.tile.reshape(x, shape)`"),
    ("masked_fill", "write `ts.tile.where(c, value, x)`"),
    ("real imag conj", "there are no complex numbers: give both parts as arrays of their own"),
    ("backward grad requires_grad", "derivatives are taken outside kernels: see ts.grad"),
    ("handle", "there are no pointers: index the array"),
];

/// Keyword arguments: of which functions (a prefix, empty for all), the names, and what to write.
pub const KEYWORDS: &[(&str, &str, &str)] = &[
    ("", "keep_dims keepdim", "write `keepdims=`"),
    ("", "dim axes", "write `axis=`"),
    ("tile.reshape", "newshape new_shape", "write `shape=`"),
    ("tile.full", "fill_value", "write `value=`"),
    (
        "tile.load",
        "cache_modifier eviction_policy volatile is_volatile evict cache",
        "leave it out: the compiler chooses how lines are cached",
    ),
    (
        "tile.store",
        "cache_modifier eviction_policy evict cache",
        "leave it out: the compiler chooses how lines are cached",
    ),
    (
        "tile.load",
        "boundary_check padding_option",
        "leave it out: a slice that leaves its array reads zeros there; `other=` says what else",
    ),
    (
        "tile.store",
        "boundary_check",
        "leave it out: a slice that leaves its array writes nothing there",
    ),
    (
        "tile.atomic",
        "sem",
        "write `order=`: \"relaxed\", \"acquire\", \"release\", \"acq_rel\" or \"seq_cst\"",
    ),
    (
        "tile.atomic",
        "mask",
        "put the atomic under `if`, or give an index of -1 where nothing is to happen",
    ),
    (
        "tile.atomic",
        "val value",
        "write `v=`, or give it by place: `ts.tile.atomic_add(x[i], value)`",
    ),
    ("tile.mma", "acc c out", "write `accumulator=`"),
    ("tile.dot", "acc c out", "write `accumulator=`"),
    (
        "tile.mma",
        "allow_tf32 input_precision max_num_imprecise_acc",
        "write `precision=\"tf32\"`; without it f32 operands keep all bits",
    ),
    (
        "tile.dot",
        "allow_tf32 input_precision max_num_imprecise_acc",
        "write `precision=\"tf32\"`; without it f32 operands keep all bits",
    ),
    (
        "tile.mma",
        "out_dtype dtype preferred_element_type",
        "write `accumulator=ts.f32`, and `ts.tile.cast` the result",
    ),
    (
        "tile.dot",
        "out_dtype dtype preferred_element_type",
        "write `accumulator=ts.f32`, and `ts.tile.cast` the result",
    ),
    ("tile.mma", "trans_a transA", "write `transpose_a=True`"),
    ("tile.mma", "trans_b transB", "write `transpose_b=True`"),
    (
        "tile.range",
        "num_stages loop_unroll_factor unroll warp_specialize flatten disallow_acc_multi_buffer",
        "leave it out, or pin it for the kernel: `@ts.kernel.schedule(stages=3)`",
    ),
    ("tile.cast", "fp_downcast_rounding rounding", "casts round to nearest even"),
    ("tile.cast", "bitcast", "write `ts.tile.bitcast(x, dtype)`"),
    ("tile.cum", "dtype", "cast the tile first: `ts.tile.cast(x, dtype)`"),
    ("tile.scan", "combine_fn", "write `op=`: a name such as \"sum\", or a @ts.func"),
    ("tile.reduce", "combine_fn", "write `op=`: a name such as \"sum\", or a @ts.func"),
    (
        "tile.max",
        "propagate_nan initial where",
        "leave it out: NaN always propagates; choose elements with `ts.tile.where(c, x, 0.0)`",
    ),
    (
        "tile.min",
        "propagate_nan initial where",
        "leave it out: NaN always propagates; choose elements with `ts.tile.where(c, x, 0.0)`",
    ),
    ("tile.maximum", "propagate_nan", "leave it out: NaN propagates"),
    ("tile.minimum", "propagate_nan", "leave it out: NaN propagates"),
    (
        "tile.arg",
        "tie_break_left return_indices",
        "leave it out: of equal elements the first is taken",
    ),
    ("tile", "dtype", "cast the result: `ts.tile.cast(x, dtype)`"),
    (
        "tile",
        "out where initial",
        "leave it out: the result is a value; choose elements with `ts.tile.where(c, x, 0.0)`",
    ),
    ("tile.alloc_shared", "size n", "write `shape=`"),
];

/// Built-in functions of Python that people try and kernels do not have.
pub const PYTHON: &[(&str, &str)] = &[
    ("divmod", "write `a // b` and `a % b`"),
    ("map filter iter next", "loops count: `for i in range(n):`, then index with `i`"),
    ("sum", "write `ts.tile.sum(x)` for a tile, and a loop for anything else"),
    ("any", "write `ts.tile.any(c)` for a tile, and `a or b` for scalars"),
    ("all", "write `ts.tile.all(c)` for a tile, and `a and b` for scalars"),
    ("sorted", "write `ts.tile.sort(x)` for a tile"),
    (
        "list tuple dict set",
        "write a tuple, `(a, b)`, whose length is known; arrays are parameters",
    ),
    (
        "isinstance type hasattr getattr",
        "types are known when a kernel is compiled: `x.dtype` is a constant to compare with",
    ),
    ("str repr format", "print the value itself: `print(\"x\", x)`"),
    ("open input eval exec", "do it on the host, and pass the result as a parameter"),
    ("complex", "keep the real and the imaginary part in variables of their own"),
    ("slice", "write `x[start:start + T]` with a compile-time `T`"),
    ("super object id hash", "kernels have no objects: numbers, tiles and arrays only"),
];

fn find(table: &[(&'static str, &'static str)], name: &str) -> Option<&'static str> {
    table.iter().find(|(names, _)| names.split(' ').any(|n| n == name)).map(|(_, write)| *write)
}

/// Whose module a name usually stands for: `tl` is Triton's.
pub fn module(name: &str) -> Option<&'static str> {
    MODULES.iter().find(|(n, _)| *n == name).map(|(_, whose)| *whose)
}

/// What to write for a name that the language does not have.
pub fn name(name: &str) -> Option<&'static str> {
    find(NAMES, name)
}

/// What to write for a built-in function of Python that kernels do not have.
pub fn python(name: &str) -> Option<&'static str> {
    find(PYTHON, name)
}

/// What to write for a dotted path of another library: `np.dot`, `tl.math.exp`, `cuda.threadIdx.x`.
/// The last part decides; where it says nothing, as in `threadIdx.x`, the one before it does.
pub fn path(path: &str) -> Option<String> {
    for (place, part) in path.split('.').rev().enumerate() {
        if let Some(write) = find(ELSEWHERE, part).or_else(|| name(part)) {
            return Some(write.to_string());
        }
        if place == 0 {
            let row = crate::api::find(&format!("tile.{part}"));
            if let Some(row) = row.or_else(|| crate::api::find(part)) {
                return Some(format!("write `ts.{}{}`", row.name, row.signature));
            }
            if tessera_numerics::DType::parse(part).is_some() {
                return Some(format!("write `ts.{part}`"));
            }
        }
    }
    None
}

/// What to write for an attribute or method of a tile or an array.
pub fn method(attr: &str) -> Option<&'static str> {
    find(METHODS, attr).or_else(|| name(attr))
}

/// What to write for a keyword argument of a function, by the function's name below `tessera.`.
pub fn keyword(function: &str, keyword: &str) -> Option<&'static str> {
    let fits = |names: &str| names.split(' ').any(|n| n == keyword);
    KEYWORDS
        .iter()
        .filter(|(of, names, _)| function.starts_with(of) && fits(names))
        .max_by_key(|(of, ..)| of.len())
        .map(|(.., write)| *write)
}

/// The known name nearest to a misspelt one, if any is near. A transposition counts as one slip.
pub fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = match name.chars().count() {
        // Short names are near to everything.
        0..=2 => 0,
        n => n.div_ceil(3),
    };
    known
        .into_iter()
        .filter(|k| *k != name)
        .map(|k| (distance(name, k), k))
        .filter(|(d, _)| *d <= most)
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}

/// How many letters must be put in, taken out, replaced or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) =
        (a.to_lowercase().chars().collect(), b.to_lowercase().chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (0, n) | (n, 0) => n,
                _ => {
                    let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                    let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                    if swapped { best.min(rows[i - 2][j - 2] + 1) } else { best }
                }
            };
        }
    }
    rows[a.len()][b.len()]
}
