/* SPDX-License-Identifier: MIT
 *
 * Which of cuBLASLt's algorithms multiplies the fastest: a few candidates are
 * timed once for each GPU, version of the library and product, and the choice
 * is kept in a file, so that later runs have the same bits. */
#include "tensor/backends/cuda/products.h"

#include "base/memory.h"
#include "base/try.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CANDIDATES = 20, WITH_WORKSPACE = 12, WORKSPACE_MAX = 32 << 20 };

sl_status sl__cublas_check(cublasStatus_t result, const char *what)
{
    if (result == CUBLAS_STATUS_SUCCESS)
        return SL_OK;
    return sl_fail(SL_EFAIL, "cuBLASLt failed: status %d in %s", (int)result,
                   what);
}

/* -------------------------------------------------------------- choices -- */

/* The choice of a product; NULL: none yet. */
static const sl__choice *find(const sl__cublas *cublas, const char *key)
{
    for (size_t i = 0; i < cublas->count; i++) {
        if (strcmp(cublas->choices[i].key, key) == 0)
            return &cublas->choices[i];
    }
    return NULL;
}

static sl_status keep(sl__cublas *cublas, const sl__choice *choice)
{
    SL__TRY(sl__grow(&cublas->choices, &cublas->capacity, cublas->count + 1,
                     sizeof *cublas->choices));
    cublas->choices[cublas->count++] = *choice;
    return SL_OK;
}

/* Whether SLUICE_CUDA_TUNE lets algorithms be compared, and the file be
 * read. */
static bool tunes(void)
{
    const char *how = getenv("SLUICE_CUDA_TUNE");
    return !how || strcmp(how, "never") != 0;
}

/* A line of the file: the key, the workspace, the algorithm's words. */
enum { WORDS = sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t), LINE = 512 };

/* A line that is not one is passed over: the product is timed again. */
static bool parse(char *line, sl__choice *out)
{
    char *at = strchr(line, '\t');
    unsigned long long words[WORDS], workspace;
    int used;
    if (!at || (size_t)(at - line) >= sizeof out->key)
        return false;
    *at++ = '\0';
    memset(out, 0, sizeof *out);
    memcpy(out->key, line, strlen(line));
    if (sscanf(at, "%llu%n", &workspace, &used) != 1 ||
        workspace > WORKSPACE_MAX)
        return false;
    for (int i = 0; i < WORDS; i++) {
        at += used;
        if (sscanf(at, " %llx%n", &words[i], &used) != 1)
            return false;
        out->algorithm.data[i] = words[i];
    }
    out->workspace = (size_t)workspace;
    return true;
}

static void read_file(sl__cublas *cublas)
{
    char line[LINE];
    sl__choice choice;
    FILE *file = cublas->path ? fopen(cublas->path, "re") : NULL;
    while (file && fgets(line, sizeof line, file)) {
        if (parse(line, &choice) && !find(cublas, choice.key))
            (void)keep(cublas, &choice);
    }
    if (file)
        fclose(file);
}

/* One write, so that lines of several processes do not mix. A file that cannot
 * be written only costs time. */
static void append_file(const sl__cublas *cublas, const sl__choice *choice)
{
    char line[LINE];
    int file = cublas->path
                   ? open(cublas->path,
                          O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)
                   : -1;
    if (file < 0)
        return;
    int used =
        snprintf(line, sizeof line, "%s\t%zu", choice->key, choice->workspace);
    for (int i = 0; i < WORDS; i++)
        used += snprintf(line + used, sizeof line - (size_t)used, " %llx",
                         (unsigned long long)choice->algorithm.data[i]);
    used += snprintf(line + used, sizeof line - (size_t)used, "\n");
    ssize_t written = write(file, line, (size_t)used);
    (void)written;
    close(file);
}

/* $SLUICE_CACHE, else sluice/ in the user's folder for caches. */
static char *choose_path(const sl__gpu *gpu, size_t version)
{
    const char *folder = getenv("SLUICE_CACHE");
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char place[1024], *path = NULL;
    if (folder && *folder) {
        snprintf(place, sizeof place, "%s", folder);
    } else if (cache && *cache) {
        snprintf(place, sizeof place, "%s/sluice", cache);
    } else if (home && *home) {
        snprintf(place, sizeof place, "%s/.cache", home);
        mkdir(place, 0777);
        snprintf(place, sizeof place, "%s/.cache/sluice", home);
    } else {
        return NULL;
    }
    mkdir(place, 0777);
    if (asprintf(&path, "%s/products-%s-cublasLt-%zu.txt", place, gpu->name,
                 version) < 0)
        return NULL;
    for (char *at = path + strlen(place) + 1; *at; at++) {
        if (*at == ' ' || *at == '/')
            *at = '-';
    }
    return path;
}

/* -------------------------------------------------------------- opening -- */

static sl_status load(sl__cublas_functions *f)
{
    static const char *const names[] = {
        "libcublasLt.so." SL__WORDS(CUBLAS_VER_MAJOR),
        SL__CUDA_FOLDER "libcublasLt.so." SL__WORDS(CUBLAS_VER_MAJOR), NULL};
    static const sl__cuda_name functions[] = {
        {"cublasLtCreate", offsetof(sl__cublas_functions, create)},
        {"cublasLtGetVersion", offsetof(sl__cublas_functions, version)},
        {"cublasLtMatmul", offsetof(sl__cublas_functions, multiply)},
        {"cublasLtMatmulDescInit_internal",
         offsetof(sl__cublas_functions, init_product)},
        {"cublasLtMatmulDescSetAttribute",
         offsetof(sl__cublas_functions, set_product)},
        {"cublasLtMatrixLayoutInit_internal",
         offsetof(sl__cublas_functions, init_layout)},
        {"cublasLtMatrixLayoutSetAttribute",
         offsetof(sl__cublas_functions, set_layout)},
        {"cublasLtMatmulPreferenceInit_internal",
         offsetof(sl__cublas_functions, init_preference)},
        {"cublasLtMatmulPreferenceSetAttribute",
         offsetof(sl__cublas_functions, set_preference)},
        {"cublasLtMatmulAlgoGetHeuristic",
         offsetof(sl__cublas_functions, candidates)},
        {"cublasLtMatmulAlgoCheck", offsetof(sl__cublas_functions, check)},
    };
    return sl__cuda_library(names, functions,
                            sizeof functions / sizeof *functions, f);
}

static sl_status open_new(sl__gpu *gpu, sl__cublas **out)
{
    sl__cublas *own;
    SL__TRY(sl__alloc(1, sizeof *own, &own));
    sl_status status = load(&own->f);
    if (!status)
        status = sl__gpu_enter(gpu);
    if (!status) {
        status =
            sl__cublas_check(own->f.create(&own->handle), "cublasLtCreate");
        sl__gpu_leave(gpu);
    }
    if (status) {
        free(own);
        return status;
    }
    pthread_mutex_init(&own->lock, NULL);
    own->path = choose_path(gpu, own->f.version());
    if (tunes())
        read_file(own);
    *out = own;
    return SL_OK;
}

sl_status sl__cublas_open(sl__gpu *gpu, sl__cublas **out)
{
    sl_status status = SL_OK;
    pthread_mutex_lock(&gpu->lock);
    if (!gpu->cublas)
        status = open_new(gpu, &gpu->cublas);
    *out = gpu->cublas;
    pthread_mutex_unlock(&gpu->lock);
    return status;
}

/* --------------------------------------------------------------- timing -- */

/* Memory to time a product in, and a stream with its events. */
typedef struct bench {
    CUdeviceptr memory[3], workspace;
    CUstream stream;
    CUevent start, end;
} bench;

static void close_bench(bench *b)
{
    for (int i = 0; i < 3; i++)
        sl__cuda.cuMemFree_(b->memory[i]);
    sl__cuda.cuMemFree_(b->workspace);
    if (b->start)
        sl__cuda.cuEventDestroy_(b->start);
    if (b->end)
        sl__cuda.cuEventDestroy_(b->end);
    if (b->stream)
        sl__cuda.cuStreamDestroy_(b->stream);
}

static sl_status open_bench(const sl__cublas *cublas, sl__cuda_product *product,
                            bench *b)
{
    enum { SOME = 0x3c }; /* 0.0115 in bf16 and f32 */
    SL__CUDA(
        cuStreamCreateWithPriority_(&b->stream, CU_STREAM_NON_BLOCKING, 0));
    SL__CUDA(cuEventCreate_(&b->start, CU_EVENT_DEFAULT));
    SL__CUDA(cuEventCreate_(&b->end, CU_EVENT_DEFAULT));
    SL__CUDA(cuMemAlloc_(&b->workspace, WORKSPACE_MAX));
    for (int i = 0; i < 3; i++) {
        size_t bytes = (size_t)product->bytes[i] + 256;
        SL__CUDA(cuMemAlloc_(&b->memory[i], bytes));
        SL__CUDA(cuMemsetD8Async_(b->memory[i], SOME, bytes, b->stream));
    }
    const void *bias = (const void *)b->memory[2];
    if (product->has_bias)
        cublas->f.set_product(&product->description,
                              CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                              sizeof bias);
    return SL_OK;
}

static bool multiply(const sl__cublas *cublas, sl__cuda_product *product,
                     const bench *b, const cublasLtMatmulHeuristicResult_t *how)
{
    const float one = 1;
    return cublas->f.multiply(
               cublas->handle, &product->description, &one,
               (const void *)b->memory[0], &product->a,
               (const void *)b->memory[1], &product->b, &product->beta,
               (const void *)b->memory[2], &product->d, (void *)b->memory[2],
               &product->d, &how->algo, (void *)b->workspace,
               how->workspaceSize, b->stream) == CUBLAS_STATUS_SUCCESS;
}

/* Milliseconds of what `begin` to `end` is around; FAILS if it failed. */
#define FAILS 1e30f
static float elapsed(const bench *b)
{
    float ms;
    return sl__cuda.cuEventSynchronize_(b->end) ||
                   sl__cuda.cuEventElapsedTime_(&ms, b->start, b->end)
               ? FAILS
               : ms;
}

/* Of one product. */
static float time_once(const sl__cublas *cublas, sl__cuda_product *product,
                       const bench *b,
                       const cublasLtMatmulHeuristicResult_t *how)
{
    sl__cuda.cuEventRecord_(b->start, b->stream);
    if (!multiply(cublas, product, b, how))
        return FAILS;
    sl__cuda.cuEventRecord_(b->end, b->stream);
    return elapsed(b);
}

/* How often a graph clears memory. */
static int count_clears(CUgraph graph)
{
    enum { NODES_MAX = 128 };
    CUgraphNode nodes[NODES_MAX];
    size_t count = NODES_MAX;
    int clears = 0;
    if (sl__cuda.cuGraphGetNodes_(graph, nodes, &count))
        return 0;
    for (size_t i = 0; i < count && i < NODES_MAX; i++) {
        CUgraphNodeType type;
        clears += !sl__cuda.cuGraphNodeGetType_(nodes[i], &type) &&
                  type == CU_GRAPH_NODE_TYPE_MEMSET;
    }
    return clears;
}

/* Launches a graph. */
static bool launch(const bench *b, CUgraphExec made)
{
    return sl__cuda.cuGraphLaunch_(made, b->stream) == CUDA_SUCCESS;
}

/* Milliseconds of a product, from several in a graph: a step is a graph, too.
 * Some algorithms clear memory first; in a step, between other kernels, that
 * takes longer than here. */
static float time_in_graph(const sl__cublas *cublas, sl__cuda_product *product,
                           const bench *b,
                           const cublasLtMatmulHeuristicResult_t *how,
                           int times)
{
    CUgraph graph = NULL;
    CUgraphExec made = NULL;
    const float clear_ms = 0.006f;
    float ms = FAILS;
    bool runs = true;
    if (sl__cuda.cuStreamBeginCapture_(b->stream,
                                       CU_STREAM_CAPTURE_MODE_RELAXED))
        return FAILS;
    for (int i = 0; i < times && runs; i++)
        runs = multiply(cublas, product, b, how);
    if (!sl__cuda.cuStreamEndCapture_(b->stream, &graph) && runs &&
        !sl__cuda.cuGraphInstantiate_(&made, graph, 0)) {
        /* The first launch of a graph takes longer. */
        runs = times == 1 || launch(b, made);
        sl__cuda.cuEventRecord_(b->start, b->stream);
        runs = runs && launch(b, made);
        sl__cuda.cuEventRecord_(b->end, b->stream);
        if (runs)
            ms = elapsed(b) + clear_ms * (float)count_clears(graph);
    }
    if (made)
        sl__cuda.cuGraphExecDestroy_(made);
    if (graph)
        sl__cuda.cuGraphDestroy_(graph);
    return ms < FAILS ? ms / (float)times : FAILS;
}

static int least_of(const float *ms, int count)
{
    int which = 0;
    for (int i = 1; i < count; i++) {
        if (ms[i] < ms[which])
            which = i;
    }
    return which;
}

/* The fastest candidate; -1: none runs. All run once, which also warms up; then
 * each is timed in several rounds, of which the best counts. What takes long is
 * timed once more, and of what takes very long the first runs of a few must do;
 * so must they where no graph can be recorded. */
static int fastest(const sl__cublas *cublas, sl__cuda_product *product,
                   const cublasLtMatmulHeuristicResult_t *found, int count,
                   const bench *b)
{
    enum { ROUNDS = 4, FEW = 4, TIMES_MAX = 32 };
    const float round_ms = 0.5f, long_ms = 2, very_long_ms = 50;
    float once[CANDIDATES] = {0}, best[CANDIDATES], least = FAILS;
    for (int i = 0; i < count; i++) {
        once[i] = time_once(cublas, product, b, &found[i]);
        best[i] = FAILS;
        least = once[i] < least ? once[i] : least;
        if (i + 1 >= FEW && least < FAILS && least > very_long_ms)
            count = i + 1;
    }
    int rounds = least > very_long_ms ? 0 : least > long_ms ? 1 : ROUNDS;
    int times = least < FAILS ? 1 + (int)(round_ms / (least + 1e-3f)) : 1;
    times = times < TIMES_MAX ? times : TIMES_MAX;
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < count; i++) {
            if (once[i] == FAILS)
                continue;
            float ms = time_in_graph(cublas, product, b, &found[i], times);
            best[i] = ms < best[i] ? ms : best[i];
        }
    }
    int which = least_of(best, count);
    if (best[which] == FAILS)
        which = least_of(once, count);
    return once[which] < FAILS ? which : -1;
}

/* The first candidate that runs: the library proposes some that do not. */
static int first_that_runs(const sl__cublas *cublas, sl__cuda_product *product,
                           const cublasLtMatmulHeuristicResult_t *found,
                           int count, const bench *b)
{
    for (int i = 0; i < count; i++) {
        if (time_once(cublas, product, b, &found[i]) < FAILS)
            return i;
    }
    return -1;
}

/* Whether candidates are compared: not those of a product so small that they
 * hardly differ. */
static bool compares(const sl__cuda_product *product)
{
    const double small = 1e6;
    return tunes() && product->multiplies > small;
}

/* Adds the library's proposals with at most so much workspace to a list of
 * them; none is no failure. */
static sl_status propose(const sl__cublas *cublas, sl__cuda_product *product,
                         uint64_t workspace, int most,
                         cublasLtMatmulHeuristicResult_t *list, int *count)
{
    cublasLtMatmulPreferenceOpaque_t preference;
    /* Parts of a sum are added in f32. In place they would be added in the
     * order in which blocks happen to end. */
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    int added = 0;
    SL__TRY(sl__cublas_check(
        cublas->f.init_preference(&preference, sizeof preference),
        "a preference"));
    cublas->f.set_preference(&preference,
                             CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                             &workspace, sizeof workspace);
    cublas->f.set_preference(&preference,
                             CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                             &reductions, sizeof reductions);
    for (int i = 0; i < 4; i++)
        cublas->f.set_preference(&preference, alignments[i],
                                 &product->alignment[i < 3 ? i : 2],
                                 sizeof *product->alignment);
    if (!cublas->f.candidates(
            cublas->handle, &product->description, &product->a, &product->b,
            &product->d, &product->d, &preference, most, list + *count, &added))
        *count += added;
    return SL_OK;
}

/* Also asks for algorithms without workspace: they have no counters in it to
 * clear before they start. */
static sl_status choose(sl__gpu *gpu, const sl__cublas *cublas,
                        sl__cuda_product *product, sl__choice *out,
                        bool *out_compared)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    bench b = {0};
    int count = 0, which = 0;
    SL__TRY(
        propose(cublas, product, WORKSPACE_MAX, WITH_WORKSPACE, found, &count));
    product->fits = false;
    if (count == 0)
        return SL_OK;
    if (compares(product))
        SL__TRY(propose(cublas, product, 0, CANDIDATES - count, found, &count));
    SL__TRY(sl__gpu_enter(gpu));
    sl_status status = open_bench(cublas, product, &b);
    *out_compared = !status && tunes();
    if (!status)
        which = compares(product)
                    ? fastest(cublas, product, found, count, &b)
                    : first_that_runs(cublas, product, found, count, &b);
    close_bench(&b);
    sl__gpu_leave(gpu);
    /* Where there is no memory to try any, the first must do. */
    product->fits = which >= 0;
    if (which < 0)
        return SL_OK;
    out->algorithm = found[which].algo;
    out->workspace = found[which].workspaceSize;
    return SL_OK;
}

sl_status sl__cublas_choose(sl__gpu *gpu, sl__cublas *cublas,
                            sl__cuda_product *product)
{
    sl__choice made = {0};
    sl_status status = SL_OK;
    pthread_mutex_lock(&cublas->lock);
    const sl__choice *known = find(cublas, product->key);
    cublasLtMatmulHeuristicResult_t still;
    /* A file that is damaged may name what this library cannot do. */
    if (known && cublas->f.check(cublas->handle, &product->description,
                                 &product->a, &product->b, &product->d,
                                 &product->d, &known->algorithm, &still))
        known = NULL;
    product->fits = known;
    if (known) {
        made = *known;
    } else {
        bool compared = false;
        status = choose(gpu, cublas, product, &made, &compared);
        memcpy(made.key, product->key, sizeof made.key);
        if (!status && product->fits) {
            status = keep(cublas, &made);
            /* One that was not tried is not for later runs. */
            if (compared)
                append_file(cublas, &made);
        }
    }
    pthread_mutex_unlock(&cublas->lock);
    product->algorithm = made.algorithm;
    product->workspace = made.workspace;
    return status;
}
