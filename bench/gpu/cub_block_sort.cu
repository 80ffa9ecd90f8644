// The peer of bench/gpu/tile_ops.py: rows of 1024 keys, each sorted by one block with CUB's block-wide sorts.
//
//     nvcc -O3 -arch=sm_90 -std=c++17 -Xcompiler -fPIC -shared -o cub_block_sort.so bench/gpu/cub_block_sort.cu

#include <cub/block/block_load.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_store.cuh>

constexpr int KEYS = 1024;

struct Less {
    template <typename T> __device__ bool operator()(const T &a, const T &b) const { return a < b; }
};

template <typename T, int THREADS> __global__ __launch_bounds__(THREADS) void radix(const T *x, T *y) {
    constexpr int EACH = KEYS / THREADS;
    using Load = cub::BlockLoad<T, THREADS, EACH, cub::BLOCK_LOAD_VECTORIZE>;
    using Sort = cub::BlockRadixSort<T, THREADS, EACH>;
    using Store = cub::BlockStore<T, THREADS, EACH, cub::BLOCK_STORE_VECTORIZE>;
    __shared__ union {
        typename Load::TempStorage load;
        typename Sort::TempStorage sort;
        typename Store::TempStorage store;
    } memory;
    T keys[EACH];
    const size_t row = size_t(blockIdx.x) * KEYS;
    Load(memory.load).Load(x + row, keys);
    Sort(memory.sort).Sort(keys);
    __syncthreads();
    Store(memory.store).Store(y + row, keys);
}

template <typename T, int THREADS> __global__ __launch_bounds__(THREADS) void merge(const T *x, T *y) {
    constexpr int EACH = KEYS / THREADS;
    using Load = cub::BlockLoad<T, THREADS, EACH, cub::BLOCK_LOAD_VECTORIZE>;
    using Sort = cub::BlockMergeSort<T, THREADS, EACH>;
    using Store = cub::BlockStore<T, THREADS, EACH, cub::BLOCK_STORE_VECTORIZE>;
    __shared__ union {
        typename Load::TempStorage load;
        typename Sort::TempStorage sort;
        typename Store::TempStorage store;
    } memory;
    T keys[EACH];
    const size_t row = size_t(blockIdx.x) * KEYS;
    Load(memory.load).Load(x + row, keys);
    Sort(memory.sort).Sort(keys, Less());
    __syncthreads();
    Store(memory.store).Store(y + row, keys);
}

#define ENTRY(kind, type, threads)                                                                                     \
    extern "C" int kind##_##type##_##threads(const void *x, void *y, int rows, void *stream) {                         \
        kind<type, threads><<<rows, threads, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const type *>(x),     \
                                                                                     static_cast<type *>(y));          \
        return cudaGetLastError();                                                                                     \
    }

ENTRY(radix, float, 64)
ENTRY(radix, float, 128)
ENTRY(radix, float, 256)
ENTRY(merge, float, 64)
ENTRY(merge, float, 128)
ENTRY(merge, float, 256)
ENTRY(radix, int, 64)
ENTRY(radix, int, 128)
ENTRY(radix, int, 256)
ENTRY(merge, int, 64)
ENTRY(merge, int, 128)
ENTRY(merge, int, 256)
