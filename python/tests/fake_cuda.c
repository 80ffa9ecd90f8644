/* A fake libcuda.so.1: tests of launches without a device. Device memory is host memory, and work on streams runs immediately.
   Kernels do not run, except for `saxpy`, which takes x, y and alpha.

   Tests read what happened through `fake_log`. They may make the next launch fail, and set the state that a stream reports:
   600 for a device that is busy. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 1, OOM = 2, CAPTURE_ISOLATION = 905 };
enum { DEVICES = 2, BLOCKS = 4096, STREAMS = 64, LAUNCHES = 256 };
#define TOTAL ((size_t)1 << 30)

typedef struct { char *at; size_t bytes; int device; } Block;
typedef struct { char name[128]; } Function;
typedef struct { Function *function; unsigned grid, threads, shared; size_t bytes; char params[4096]; } Launch;
typedef struct { int count; Launch all[LAUNCHES]; } Graph;
typedef struct { int used, device; Graph *recording; } Stream;

static Block blocks[BLOCKS];
static Stream streams[STREAMS];
static size_t taken[DEVICES];
static _Thread_local uintptr_t current;
static char text[1 << 16];
static size_t length;
static int next_result, busy;
static double clock_ms;

static void tell(const char *what, uintptr_t stream, const char *name, unsigned grid, unsigned threads) {
    const char *where = current == 2 ? " cuda:1" : "";
    if (length + 256 < sizeof text)
        length += sprintf(text + length, "%s %s stream=%zu grid=%u threads=%u%s\n", what, name, (size_t)stream, grid, threads, where);
}

const char *fake_log(void) { return text; }
static int graph_launches;
int fake_graph_launches(void) { return graph_launches; }
static int links, loads;
int fake_links(void) { return links; }
int fake_loads(void) { return loads; }
void fake_clear(void) { length = 0, text[0] = 0; }
void fake_fail(int result) { next_result = result; }
/* Launches are counted alone, for times of what is around them. */
static int quiet;
static long quiet_launches;
void fake_quiet(int on) { quiet = on, quiet_launches = 0; }
long fake_quiet_launches(void) { return quiet_launches; }
void fake_busy(int result) { busy = result; }

static int number(uintptr_t context) { return (int)context - 1; }
static Stream *stream_of(uintptr_t handle) { return handle >= 16 && handle < 16 + STREAMS ? &streams[handle - 16] : NULL; }

int cuInit(unsigned flags) { (void)flags; return OK; }
int cuDriverGetVersion(int *v) { *v = 13000; return OK; }
int cuDeviceGetCount(int *n) { *n = DEVICES; return OK; }
int cuDeviceGet(int *d, int ordinal) { *d = ordinal; return OK; }
int cuDeviceGetName(char *name, int n, int d) { snprintf(name, n, "Fake GPU %d", d); return OK; }

int cuDeviceGetAttribute(int *v, int attribute, int d) {
    (void)d;
    switch (attribute) {
    case 1: *v = 1024; break;                       /* threads of a block */
    case 5: *v = 0x7fffffff; break;                 /* grid */
    case 6: case 7: *v = 65535; break;
    case 8: *v = 49152; break;                      /* shared memory */
    case 10: *v = 32; break;                        /* warp */
    case 12: *v = 65536; break;                     /* registers of a block */
    case 16: *v = 132; break;                       /* multiprocessors */
    case 38: *v = 50 << 20; break;                  /* L2 */
    case 39: *v = 2048; break;
    case 75: *v = 9; break;                         /* compute capability */
    case 76: *v = 0; break;
    case 81: *v = 233472; break;
    case 82: *v = 65536; break;
    case 97: *v = 232448; break;
    case 106: *v = 32; break;
    case 111: *v = 1024; break;
    case 120: *v = 1; break;                        /* clusters */
    case 127: *v = 1; break;                        /* tensor maps */
    default: *v = 0;
    }
    return OK;
}

int cuDevicePrimaryCtxRetain(uintptr_t *context, int d) { *context = d + 1; return OK; }
int cuCtxGetCurrent(uintptr_t *context) { *context = current; return OK; }
int cuCtxPushCurrent_v2(uintptr_t context) { current = context; return OK; }
int cuCtxPopCurrent_v2(uintptr_t *context) { *context = current; current = 0; return OK; }
int cuCtxSynchronize(void) { return OK; }

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    *total = TOTAL;
    *free_bytes = TOTAL - taken[number(current)];
    return OK;
}

int cuMemAlloc_v2(uintptr_t *address, size_t bytes) {
    int d = number(current);
    if (bytes > TOTAL - taken[d]) return OOM;
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].at) continue;
        if (posix_memalign((void **)&blocks[i].at, 512, bytes)) return OOM;
        blocks[i].bytes = bytes, blocks[i].device = d;
        taken[d] += bytes;
        *address = (uintptr_t)blocks[i].at;
        return OK;
    }
    return OOM;
}

int cuMemFree_v2(uintptr_t address) {
    for (int i = 0; i < BLOCKS; i++) {
        if ((uintptr_t)blocks[i].at != address) continue;
        taken[blocks[i].device] -= blocks[i].bytes;
        free(blocks[i].at);
        blocks[i].at = NULL;
        return OK;
    }
    return INVALID;
}

static Block *holder(uintptr_t address) {
    for (int i = 0; i < BLOCKS; i++) {
        uintptr_t at = (uintptr_t)blocks[i].at;
        if (at && address >= at && address < at + blocks[i].bytes) return &blocks[i];
    }
    return NULL;
}

int cuPointerGetAttribute(void *value, int attribute, uintptr_t address) {
    Block *block = holder(address);
    if (!block) return INVALID;
    *(int *)value = attribute == 2 ? 2 : block->device;
    return OK;
}

int cuMemHostAlloc(void **at, size_t bytes, unsigned flags) { (void)flags; *at = malloc(bytes); return OK; }
int cuMemFreeHost(void *at) { free(at); return OK; }

/* What leaves the memory of the device is refused, as a real one would end the process. */
static int inside(uintptr_t address, size_t bytes) {
    Block *block = holder(address);
    return block && address + bytes <= (uintptr_t)block->at + block->bytes;
}

int cuMemcpyHtoDAsync_v2(uintptr_t to, const void *from, size_t n, uintptr_t s) {
    (void)s;
    if (!inside(to, n)) return INVALID;
    memcpy((void *)to, from, n);
    return OK;
}
int cuMemcpyDtoHAsync_v2(void *to, uintptr_t from, size_t n, uintptr_t s) {
    (void)s;
    if (!inside(from, n)) return INVALID;
    memcpy(to, (void *)from, n);
    return OK;
}
int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t n, uintptr_t s) {
    if (!inside(to, n) || !inside(from, n)) return INVALID;
    Stream *stream = stream_of(s);
    if (stream && stream->recording) {
        /* A node without a function is a copy: to, from, how much. */
        Launch copy = {NULL, 0, 0, 0, 0, {0}};
        memcpy(copy.params, (uintptr_t[]){to, from, n}, 3 * sizeof(uintptr_t));
        if (stream->recording->count < LAUNCHES) stream->recording->all[stream->recording->count++] = copy;
        return OK;
    }
    memcpy((void *)to, (void *)from, n);
    return OK;
}
int cuMemsetD8Async(uintptr_t to, unsigned char v, size_t n, uintptr_t s) {
    (void)s;
    if (!inside(to, n)) return INVALID;
    memset((void *)to, v, n);
    return OK;
}

int cuModuleLoadDataEx(void **module, const void *image, unsigned n, void *options, void **values) {
    (void)image, (void)n, (void)options, (void)values;
    loads++;
    *module = malloc(1);
    return OK;
}
int cuModuleUnload(void *module) { free(module); return OK; }
int cuModuleGetFunction(Function **function, void *module, const char *name) {
    (void)module;
    *function = calloc(1, sizeof **function);
    snprintf((*function)->name, sizeof (*function)->name, "%s", name);
    return OK;
}
int cuFuncLoad(void *function) { (void)function; return OK; }
int cuFuncGetAttribute(int *v, int attribute, void *function) {
    (void)function;
    *v = attribute == 0 ? 1024 : attribute == 4 ? 32 : 0;
    return OK;
}
int cuFuncSetAttribute(void *function, int attribute, int v) { (void)function, (void)attribute, (void)v; return OK; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int threads, size_t shared) {
    (void)f, (void)shared;
    *n = 2048 / threads;
    return OK;
}

int cuOccupancyMaxActiveClusters(int *n, void *f, const void *config) { (void)f, (void)config; *n = 66; return OK; }

/* A tensor map says what it is of: a mark, the address, the rank, extents and strides in bytes. What the real one refuses is
   refused. */
#define MARK 0x70616d20656b6166u
int cuTensorMapEncodeTiled(uint64_t *map, int dtype, unsigned rank, void *address, const uint64_t *dims, const uint64_t *strides,
                           const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill) {
    (void)dtype, (void)steps, (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    if ((uintptr_t)map % 64 || (uintptr_t)address % 16 || rank < 1 || rank > 5) return INVALID;
    memset(map, 0, 128);
    map[0] = MARK, map[1] = (uintptr_t)address, map[2] = rank;
    for (unsigned i = 0; i < rank; i++) {
        if (!dims[i] || !box[i] || box[i] > 256 || (i && strides[i - 1] % 16)) return INVALID;
        map[3 + i] = dims[i];
        if (i) map[7 + i] = strides[i - 1];
    }
    tell("encode", 0, "-", rank, box[0]);
    return OK;
}

int cuLinkCreate_v2(unsigned n, void *options, void **values, void **state) {
    (void)n, (void)options, (void)values;
    *state = calloc(1, 64);
    return OK;
}
int cuLinkAddData_v2(void *state, int kind, void *data, size_t n, const char *name, unsigned count, void *o, void **v) {
    (void)state, (void)kind, (void)data, (void)n, (void)name, (void)count, (void)o, (void)v;
    return OK;
}
int cuLinkComplete(void *state, void **cubin, size_t *bytes) {
    links++;
    memcpy(state, "\177ELF", 4);
    *cubin = state, *bytes = 64;
    return OK;
}
int cuLinkDestroy(void *state) { free(state); return OK; }

/* The words of `saxpy`: eight of the launch, then x, y and alpha, each array with its extent and stride. That of `saxpy_one`
   is one. */
static void run(const Launch *launch) {
    /* Log every tensor map among the parameters. */
    for (size_t at = 0; at + 128 <= launch->bytes && at + 128 <= sizeof launch->params; at += 64) {
        const uint64_t *m = (const uint64_t *)(launch->params + at);
        if (m[0] == MARK && length + 256 < sizeof text)
            length += sprintf(text + length, "map address=%zu dims=%zu,%zu stride=%zu\n", (size_t)m[1], (size_t)m[3], (size_t)m[4], (size_t)m[8]);
    }
    if (!strstr(launch->function->name, "saxpy")) return;
    const uint64_t *w = (const uint64_t *)launch->params;
    uint32_t bits = (uint32_t)w[14];
    float alpha = 1.0f;
    if (!strstr(launch->function->name, "saxpy_one")) memcpy(&alpha, &bits, 4);
    for (uint64_t i = 0; i < w[9]; i++) {
        const float *x = (const float *)(w[8] + i * w[10]);
        float *y = (float *)(w[11] + i * w[13]);
        *y += alpha * *x;
    }
}

static int launch(Function *function, unsigned grid, unsigned threads, unsigned shared, uintptr_t s, void **params, void **extra) {
    if (quiet) {
        quiet_launches++;
        return OK;
    }
    if (next_result) {
        int result = next_result;
        next_result = 0;
        return result;
    }
    /* Several parameters are shown one by one, in one structure, with nothing behind the last; maps come last. */
    size_t last = 0;
    while (params && params[last + 1]) last++;
    void *first = params ? params[0] : extra[1];
    size_t bytes = params ? (size_t)((char *)params[last] - (char *)params[0]) + 128 : *(size_t *)extra[3];
    Launch one = {function, grid, threads, shared, bytes, {0}};
    memcpy(one.params, first, one.bytes < sizeof one.params ? one.bytes : sizeof one.params);
    Stream *stream = stream_of(s);
    if (stream && stream->recording) {
        if (stream->recording->count < LAUNCHES) stream->recording->all[stream->recording->count++] = one;
        return OK;
    }
    tell("launch", s, function->name, grid, threads);
    run(&one);
    return OK;
}

int cuLaunchKernel(Function *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   uintptr_t stream, void **params, void **extra) {
    (void)y, (void)z, (void)by, (void)bz;
    return launch(f, x, bx, shared, stream, params, extra);
}

typedef struct { unsigned x, y, z, bx, by, bz, shared; uintptr_t stream; void *attributes; unsigned count; } Config;
int cuLaunchKernelEx(const Config *c, Function *f, void **params, void **extra) {
    return launch(f, c->x, c->bx, c->shared, c->stream, params, extra);
}

int cuStreamCreate(uintptr_t *stream, unsigned flags) {
    (void)flags;
    for (int i = 0; i < STREAMS; i++) {
        if (streams[i].used) continue;
        streams[i].used = 1, streams[i].device = number(current);
        *stream = 16 + i;
        return OK;
    }
    return OOM;
}
int cuStreamDestroy_v2(uintptr_t stream) { stream_of(stream)->used = 0; return OK; }
int cuStreamQuery(uintptr_t stream) { (void)stream; return busy; }
/* Streams that tests make up are of the first device. */
int cuStreamGetCtx(uintptr_t stream, uintptr_t *context) {
    *context = stream_of(stream) ? stream_of(stream)->device + 1 : 1;
    return OK;
}
int cuStreamIsCapturing(uintptr_t stream, unsigned *status) {
    Stream *s = stream_of(stream);
    *status = s && s->recording;
    return OK;
}
int cuStreamBeginCapture_v2(uintptr_t stream, int mode) {
    (void)mode;
    stream_of(stream)->recording = calloc(1, sizeof(Graph));
    return OK;
}
int cuStreamEndCapture(uintptr_t stream, Graph **graph) {
    *graph = stream_of(stream)->recording;
    stream_of(stream)->recording = NULL;
    return OK;
}
int cuThreadExchangeStreamCaptureMode(unsigned *mode) { (void)mode; return OK; }

/* An event remembers its stream and a clock that goes on by a millisecond with each. */
typedef struct { uintptr_t stream; double at; } Event;
int cuEventCreate(Event **event, unsigned flags) { (void)flags; *event = calloc(1, sizeof **event); return OK; }
int cuEventDestroy_v2(Event *event) { free(event); return OK; }
int cuEventRecord(Event *event, uintptr_t stream) { event->stream = stream, event->at = clock_ms += 1; return OK; }
int cuEventQuery(Event *event) { (void)event; return busy; }
int cuEventElapsedTime(float *ms, Event *from, Event *to) { *ms = (float)(to->at - from->at); return OK; }

/* A recording cannot wait for what is not part of it. */
int cuStreamWaitEvent(uintptr_t stream, Event *event, unsigned flags) {
    (void)flags;
    Stream *s = stream_of(stream), *other = stream_of(event->stream);
    if (s && s->recording && !(other && other->recording)) return CAPTURE_ISOLATION;
    tell("wait", stream, "-", (unsigned)event->stream, 0);
    return OK;
}

int cuGraphDestroy(Graph *graph) { (void)graph; return OK; }
int cuGraphGetNodes(Graph *graph, void *nodes, size_t *count) { (void)nodes; *count = graph->count; return OK; }
int cuGraphInstantiateWithFlags(Graph **exec, Graph *graph, unsigned long long flags) { (void)flags; *exec = graph; return OK; }
int cuGraphExecDestroy(Graph *exec) { free(exec); return OK; }
int cuGraphUpload(Graph *exec, uintptr_t stream) { (void)exec, (void)stream; return OK; }
int cuGraphLaunch(Graph *exec, uintptr_t stream) {
    graph_launches++;
    if (quiet) return OK;
    for (int i = 0; i < exec->count; i++) {
        if (!exec->all[i].function) {
            uintptr_t copy[3];
            memcpy(copy, exec->all[i].params, sizeof copy);
            memcpy((void *)copy[0], (void *)copy[1], copy[2]);
            continue;
        }
        tell("replay", stream, exec->all[i].function->name, exec->all[i].grid, exec->all[i].threads);
        run(&exec->all[i]);
    }
    return OK;
}
int cuGetErrorName(int result, const char **name) { *name = result == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_FAKE"; return OK; }
int cuGetErrorString(int result, const char **words) { (void)result; *words = "a failure made for a test"; return OK; }
