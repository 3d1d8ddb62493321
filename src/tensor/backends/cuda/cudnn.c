/* SPDX-License-Identifier: MIT
 *
 * Attention as a graph of cuDNN's operations. What is between two of them is
 * virtual: it never exists in memory. */
#include "tensor/backends/cuda/cudnn.h"

#include "base/memory.h"
#include "base/try.h"

#include <assert.h>
#include <string.h>

#if SL__HAS_CUDNN

enum { OPS_MAX = 40, MADE_MAX = 160, DIMS = 4, CONFIGS_MAX = 8 };

typedef cudnnBackendDescriptor_t descriptor;

/* A graph being made. After a failure nothing more is done. */
typedef struct maker {
    const sl__cudnn_functions *f;
    const sl__cudnn_shape *shape;
    descriptor made[MADE_MAX];
    int made_count;
    descriptor ops[OPS_MAX];
    int op_count;
    int64_t next; /* the number of the next virtual tensor */
    cudnnStatus_t status;
} maker;

/* A tensor of a graph, with its sizes. */
typedef struct tensor {
    descriptor made;
    int64_t dim[DIMS], stride[DIMS];
} tensor;

static descriptor create(maker *m, cudnnBackendDescriptorType_t type)
{
    descriptor made = NULL;
    assert(m->made_count < MADE_MAX);
    if (!m->status)
        m->status = m->f->create(type, &made);
    if (!m->status)
        m->made[m->made_count++] = made;
    return made;
}

static void set(maker *m, descriptor of, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count,
                const void *values)
{
    if (!m->status)
        m->status = m->f->set(of, name, type, count, values);
}

static void set_tensor(maker *m, descriptor of,
                       cudnnBackendAttributeName_t name, descriptor value)
{
    set(m, of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(maker *m, descriptor of)
{
    if (!m->status)
        m->status = m->f->finalize(of);
}

/* -------------------------------------------------------------- tensors -- */

static tensor make_tensor(maker *m, int64_t id, bool is_virtual, bool by_value,
                          cudnnDataType_t type, const int64_t *dim,
                          const int64_t *stride)
{
    tensor out = {create(m, CUDNN_BACKEND_TENSOR_DESCRIPTOR), {0}, {0}};
    int64_t alignment = 16;
    memcpy(out.dim, dim, sizeof out.dim);
    memcpy(out.stride, stride, sizeof out.stride);
    set(m, out.made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(m, out.made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
        &type);
    set(m, out.made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, DIMS, dim);
    set(m, out.made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, DIMS, stride);
    set(m, out.made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1,
        &alignment);
    set(m, out.made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
        &is_virtual);
    set(m, out.made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1,
        &by_value);
    finalize(m, out.made);
    return out;
}

/* The heads of an operand, (batch, heads, length, size), or turned: (batch,
 * heads, size, length). */
static tensor heads_of(maker *m, int id, bool turned)
{
    const sl__cudnn_shape *s = m->shape;
    const int64_t *at = s->stride[id];
    int64_t dim[] = {s->batch, s->heads, turned ? s->size : s->length,
                     turned ? s->length : s->size};
    int64_t stride[] = {at[0], s->size, turned ? 1 : at[1], turned ? at[1] : 1};
    return make_tensor(m, id, false, false, CUDNN_DATA_BFLOAT16, dim, stride);
}

/* A number for each row, f32. */
static tensor rows(maker *m, int64_t id, bool is_virtual)
{
    const sl__cudnn_shape *s = m->shape;
    int64_t dim[] = {s->batch, s->heads, s->length, 1};
    int64_t stride[] = {s->heads * s->length, s->length, 1, 1};
    return make_tensor(m, id, is_virtual, false, CUDNN_DATA_FLOAT, dim, stride);
}

static tensor virtual_rows(maker *m)
{
    return rows(m, m->next++, true);
}

/* The scores, or what has their shape; turned: (batch, heads, key, query). */
static tensor scores(maker *m, cudnnDataType_t type, bool turned)
{
    const sl__cudnn_shape *s = m->shape;
    int64_t n = s->length;
    int64_t dim[] = {s->batch, s->heads, n, n};
    int64_t stride[] = {s->heads * n * n, n * n, turned ? 1 : n,
                        turned ? n : 1};
    return make_tensor(m, m->next++, true, false, type, dim, stride);
}

/* A number that is given with the pointers. */
static tensor number(maker *m, int id)
{
    static const int64_t ones[DIMS] = {1, 1, 1, 1};
    return make_tensor(m, id, false, true, CUDNN_DATA_FLOAT, ones, ones);
}

/* ----------------------------------------------------------- operations -- */

static void add_op(maker *m, descriptor op)
{
    finalize(m, op);
    assert(m->op_count < OPS_MAX);
    m->ops[m->op_count++] = op;
}

/* out = a (.., M, K) b (.., K, N) */
static tensor matmul(maker *m, tensor a, tensor b, tensor out)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    descriptor how = create(m, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    descriptor op = create(m, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set(m, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    finalize(m, how);
    set_tensor(m, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.made);
    set_tensor(m, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.made);
    set_tensor(m, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, out.made);
    set_tensor(m, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    add_op(m, op);
    return out;
}

/* out = mode(x, y), where t chooses; y and t may have no descriptor. */
static tensor pointwise(maker *m, cudnnPointwiseMode_t mode, tensor x, tensor y,
                        tensor t, cudnnDataType_t type, int64_t axis,
                        tensor out)
{
    descriptor how = create(m, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    descriptor op = create(m, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(m, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(m, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        set(m, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finalize(m, how);
    set_tensor(m, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_tensor(m, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.made);
    if (y.made)
        set_tensor(m, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, y.made);
    if (t.made)
        set_tensor(m, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t.made);
    set_tensor(m, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out.made);
    add_op(m, op);
    return out;
}

static const tensor none = {NULL, {0}, {0}};

static tensor one(maker *m, cudnnPointwiseMode_t mode, tensor x, tensor out)
{
    return pointwise(m, mode, x, none, none, CUDNN_DATA_FLOAT, 0, out);
}

static tensor two(maker *m, cudnnPointwiseMode_t mode, tensor x, tensor y,
                  tensor out)
{
    return pointwise(m, mode, x, y, none, CUDNN_DATA_FLOAT, 0, out);
}

static tensor reduce(maker *m, cudnnReduceTensorOp_t mode, tensor x, tensor out)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    descriptor how = create(m, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    descriptor op = create(m, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set(m, how, CUDNN_ATTR_REDUCTION_OPERATOR,
        CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    set(m, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    finalize(m, how);
    set_tensor(m, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    set_tensor(m, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.made);
    set_tensor(m, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, out.made);
    add_op(m, op);
    return out;
}

/* The same numbers under another shape. */
static tensor reshape(maker *m, tensor x, tensor out)
{
    descriptor op = create(m, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_tensor(m, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.made);
    set_tensor(m, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, out.made);
    add_op(m, op);
    return out;
}

/* Scores of keys after their query become the lowest number. */
static tensor mask(maker *m, tensor x)
{
    const cudnnDataType_t integer = CUDNN_DATA_INT32,
                          boolean = CUDNN_DATA_BOOLEAN;
    tensor row = pointwise(m, CUDNN_POINTWISE_GEN_INDEX, x, none, none, integer,
                           2, scores(m, integer, false));
    tensor column = pointwise(m, CUDNN_POINTWISE_GEN_INDEX, x, none, none,
                              integer, 3, scores(m, integer, false));
    tensor seen = pointwise(m, CUDNN_POINTWISE_CMP_GE, row, column, none,
                            boolean, 0, scores(m, boolean, false));
    return pointwise(m, CUDNN_POINTWISE_BINARY_SELECT, x,
                     number(m, SL__CUDNN_LOWEST), seen, CUDNN_DATA_FLOAT, 0,
                     scores(m, CUDNN_DATA_FLOAT, false));
}

/* ---------------------------------------------------------------- graphs -- */

static tensor float_scores(maker *m)
{
    return scores(m, CUDNN_DATA_FLOAT, false);
}

static void describe_forward(maker *m)
{
    tensor s = matmul(m, heads_of(m, SL__CUDNN_Q, false),
                      heads_of(m, SL__CUDNN_K, true), float_scores(m));
    s = two(m, CUDNN_POINTWISE_MUL, s, number(m, SL__CUDNN_SCALE),
            float_scores(m));
    s = mask(m, s);
    tensor most = reduce(m, CUDNN_REDUCE_TENSOR_MAX, s, virtual_rows(m));
    tensor power = one(m, CUDNN_POINTWISE_EXP,
                       two(m, CUDNN_POINTWISE_SUB, s, most, float_scores(m)),
                       float_scores(m));
    tensor sum = reduce(m, CUDNN_REDUCE_TENSOR_ADD, power, virtual_rows(m));
    two(m, CUDNN_POINTWISE_ADD, most,
        one(m, CUDNN_POINTWISE_LOG, sum, virtual_rows(m)),
        rows(m, SL__CUDNN_STATS, false));
    tensor weights = two(m, CUDNN_POINTWISE_DIV, power, sum,
                         scores(m, CUDNN_DATA_BFLOAT16, false));
    matmul(m, weights, heads_of(m, SL__CUDNN_V, false),
           heads_of(m, SL__CUDNN_OUT, false));
}

static void describe_backward(maker *m)
{
    const sl__cudnn_shape *s = m->shape;
    int64_t n = s->length, d = s->size;
    int64_t dim[] = {s->batch, s->heads, n, d};
    int64_t packed[] = {s->heads * n * d, n * d, d, 1};
    int64_t mixed[] = {s->heads * n * d, d, s->heads * d, 1};
    tensor q = heads_of(m, SL__CUDNN_Q, false);
    tensor k = heads_of(m, SL__CUDNN_K, true);
    tensor v = heads_of(m, SL__CUDNN_V, true);
    tensor dy = heads_of(m, SL__CUDNN_DY, false);
    tensor scale = number(m, SL__CUDNN_SCALE);
    tensor product = two(
        m, CUDNN_POINTWISE_MUL, dy, heads_of(m, SL__CUDNN_OUT, false),
        make_tensor(m, m->next++, true, false, CUDNN_DATA_FLOAT, dim, mixed));
    tensor base =
        two(m, CUDNN_POINTWISE_MUL,
            reduce(m, CUDNN_REDUCE_TENSOR_ADD, product, virtual_rows(m)),
            number(m, SL__CUDNN_ONE), rows(m, SL__CUDNN_ROWS, false));
    tensor x = two(m, CUDNN_POINTWISE_MUL, matmul(m, q, k, float_scores(m)),
                   scale, float_scores(m));
    x = two(m, CUDNN_POINTWISE_SUB, x, rows(m, SL__CUDNN_STATS, false),
            float_scores(m));
    tensor weights = one(m, CUDNN_POINTWISE_EXP, mask(m, x), float_scores(m));
    matmul(m, reshape(m, weights, scores(m, CUDNN_DATA_BFLOAT16, true)), dy,
           heads_of(m, SL__CUDNN_DV, false));
    x = two(m, CUDNN_POINTWISE_SUB, matmul(m, dy, v, float_scores(m)), base,
            float_scores(m));
    x = two(m, CUDNN_POINTWISE_MUL, x, weights, float_scores(m));
    x = two(m, CUDNN_POINTWISE_MUL, x, scale, float_scores(m));
    matmul(m, reshape(m, x, scores(m, CUDNN_DATA_BFLOAT16, true)), q,
           heads_of(m, SL__CUDNN_DK, false));
    int64_t k_stride[] = {k.stride[0], k.stride[1], k.stride[3], k.stride[2]};
    tensor keys = reshape(m, k,
                          make_tensor(m, m->next++, true, false,
                                      CUDNN_DATA_BFLOAT16, dim, k_stride));
    tensor sum = matmul(m, x, keys,
                        make_tensor(m, SL__CUDNN_DQ_SUM, false, false,
                                    CUDNN_DATA_FLOAT, dim, packed));
    one(m, CUDNN_POINTWISE_IDENTITY, sum, heads_of(m, SL__CUDNN_DQ, false));
}

/* ----------------------------------------------------------------- plans -- */

/* Plans with a configuration; false: that does not work. */
static bool try_plan(maker *m, cudnnHandle_t handle, descriptor config,
                     sl__cudnn_plan *out)
{
    descriptor plan;
    int64_t count;
    if (m->f->create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan))
        return false;
    cudnnStatus_t status = m->f->set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                     CUDNN_TYPE_HANDLE, 1, &handle);
    if (!status)
        status = m->f->set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (!status)
        status = m->f->finalize(plan);
    if (!status)
        status = m->f->get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                           CUDNN_TYPE_INT64, 1, &count, &out->workspace);
    if (status)
        m->f->destroy(plan);
    else
        out->plan = plan;
    return !status;
}

static void find_plan(maker *m, cudnnHandle_t handle, sl__cudnn_plan *out)
{
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    descriptor configs[CONFIGS_MAX];
    int64_t found = 0;
    descriptor graph = create(m, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    descriptor heuristic = create(m, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set(m, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        m->op_count, m->ops);
    set(m, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
        &handle);
    finalize(m, graph);
    set_tensor(m, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(m, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
        &mode);
    finalize(m, heuristic);
    for (int i = 0; i < CONFIGS_MAX; i++)
        configs[i] = create(m, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!m->status)
        m->status = m->f->get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                              CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS_MAX,
                              &found, configs);
    for (int i = 0; i < found && i < CONFIGS_MAX && !m->status && !out->plan;
         i++)
        (void)try_plan(m, handle, configs[i], out);
}

static sl_status make_plan(const sl__cudnn_functions *f, cudnnHandle_t handle,
                           const sl__cudnn_shape *shape, bool backward,
                           sl__cudnn_plan *out)
{
    maker *m;
    SL__TRY(sl__alloc(1, sizeof *m, &m));
    *m = (maker){.f = f, .shape = shape, .next = 1000};
    *out = (sl__cudnn_plan){0};
    if (backward)
        describe_backward(m);
    else
        describe_forward(m);
    find_plan(m, handle, out);
    while (m->made_count > 0)
        f->destroy(m->made[--m->made_count]);
    free(m);
    return SL_OK;
}

/* Several layers have the same geometry. */
struct sl__cudnn_planned {
    sl__cudnn_shape shape;
    bool backward;
    sl__cudnn_plan plan;
};

static sl_status add_plan(sl__cudnn *own, const sl__cudnn_shape *shape,
                          bool backward, sl__cudnn_planned **out)
{
    sl__cudnn_planned *made;
    SL__TRY(sl__grow(&own->planned, &own->capacity, own->planned_count + 1,
                     sizeof *own->planned));
    SL__TRY(sl__alloc(1, sizeof *made, &made));
    made->shape = *shape;
    made->backward = backward;
    sl_status status =
        make_plan(&own->f, own->handle, shape, backward, &made->plan);
    if (status) {
        free(made);
        return status;
    }
    own->planned[own->planned_count++] = *out = made;
    return SL_OK;
}

sl_status sl__cudnn_find(sl__gpu *gpu, sl__cudnn *own,
                         const sl__cudnn_shape *shape, bool backward,
                         const sl__cudnn_plan **out)
{
    sl__cudnn_planned *found = NULL;
    sl_status status = sl__gpu_enter(gpu);
    if (status)
        return status;
    pthread_mutex_lock(&own->lock);
    for (size_t i = 0; i < own->planned_count && !found; i++) {
        if (own->planned[i]->backward == backward &&
            memcmp(&own->planned[i]->shape, shape, sizeof *shape) == 0)
            found = own->planned[i];
    }
    if (!found)
        status = add_plan(own, shape, backward, &found);
    pthread_mutex_unlock(&own->lock);
    sl__gpu_leave(gpu);
    if (!status)
        *out = &found->plan;
    return status;
}

/* --------------------------------------------------------------- opening -- */

static sl_status load(sl__cudnn_functions *f)
{
    static const char *const names[] = {"libcudnn.so.9",
                                        SL__CUDA_FOLDER "libcudnn.so.9", NULL};
    static const sl__cuda_name functions[] = {
        {"cudnnCreate", offsetof(sl__cudnn_functions, open)},
        {"cudnnSetStream", offsetof(sl__cudnn_functions, set_stream)},
        {"cudnnBackendCreateDescriptor", offsetof(sl__cudnn_functions, create)},
        {"cudnnBackendDestroyDescriptor",
         offsetof(sl__cudnn_functions, destroy)},
        {"cudnnBackendSetAttribute", offsetof(sl__cudnn_functions, set)},
        {"cudnnBackendGetAttribute", offsetof(sl__cudnn_functions, get)},
        {"cudnnBackendFinalize", offsetof(sl__cudnn_functions, finalize)},
        {"cudnnBackendExecute", offsetof(sl__cudnn_functions, execute)},
    };
    return sl__cuda_library(names, functions,
                            sizeof functions / sizeof *functions, f);
}

static sl__cudnn *open_new(sl__gpu *gpu)
{
    sl__cudnn *own;
    if (sl__alloc(1, sizeof *own, &own))
        return NULL;
    sl_status status = load(&own->f);
    if (!status)
        status = sl__gpu_enter(gpu);
    if (!status) {
        bool opened = own->f.open(&own->handle) == CUDNN_STATUS_SUCCESS;
        sl__gpu_leave(gpu);
        status = opened ? SL_OK : SL_EFAIL;
    }
    if (status) {
        free(own);
        return NULL;
    }
    pthread_mutex_init(&own->lock, NULL);
    return own;
}

void sl__cudnn_open(sl__gpu *gpu, sl__cudnn **out)
{
    pthread_mutex_lock(&gpu->lock);
    if (!gpu->cudnn && !gpu->no_cudnn) {
        gpu->cudnn = open_new(gpu);
        gpu->no_cudnn = !gpu->cudnn;
    }
    *out = gpu->cudnn;
    pthread_mutex_unlock(&gpu->lock);
}

/* --------------------------------------------------------------- running -- */

static cudnnStatus_t execute(sl__cudnn *own, const sl__cuda_stream *stream,
                             const sl__cudnn_plan *plan, int64_t count,
                             const int64_t *ids, void *const *pointers,
                             void *workspace)
{
    const sl__cudnn_functions *f = &own->f;
    descriptor pack;
    cudnnStatus_t status =
        f->create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status)
        return status;
    status = f->set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                    count, ids);
    if (!status)
        status = f->set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                        CUDNN_TYPE_VOID_PTR, count, pointers);
    if (!status)
        status = f->set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                        CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (!status)
        status = f->finalize(pack);
    if (!status)
        status = f->set_stream(own->handle, stream->handle);
    if (!status)
        status = f->execute(own->handle, plan->plan, pack);
    f->destroy(pack);
    return status;
}

sl_status sl__cudnn_run(sl__cudnn *own, const sl__cuda_stream *stream,
                        const sl__cudnn_plan *plan, double scale,
                        void *const pointers[SL__CUDNN_IDS], void *workspace)
{
    float numbers[] = {(float)scale, -1e30f, 1};
    int64_t ids[SL__CUDNN_IDS];
    void *given[SL__CUDNN_IDS];
    int64_t count = 0;
    for (int i = 1; i < SL__CUDNN_IDS; i++) {
        void *at = i == SL__CUDNN_SCALE                           ? &numbers[0]
                   : i == SL__CUDNN_LOWEST                        ? &numbers[1]
                   : i == SL__CUDNN_ONE && pointers[SL__CUDNN_DY] ? &numbers[2]
                                                                  : pointers[i];
        if (!at)
            continue;
        ids[count] = i;
        given[count++] = at;
    }
    SL__TRY(sl__gpu_enter(stream->gpu));
    pthread_mutex_lock(&own->lock);
    cudnnStatus_t status =
        execute(own, stream, plan, count, ids, given, workspace);
    pthread_mutex_unlock(&own->lock);
    sl__gpu_leave(stream->gpu);
    return status ? sl_fail(SL_EFAIL, "cuDNN failed: status %d in attention",
                            (int)status)
                  : SL_OK;
}

#else

void sl__cudnn_open(sl__gpu *gpu, sl__cudnn **out)
{
    gpu->no_cudnn = true;
    *out = NULL;
}

/* Without an sl__cudnn nobody calls these. */
sl_status sl__cudnn_find(sl__gpu *gpu, sl__cudnn *own,
                         const sl__cudnn_shape *shape, bool backward,
                         const sl__cudnn_plan **out)
{
    (void)gpu, (void)own, (void)shape, (void)backward, (void)out;
    return sl_fail(SL_ENOTFOUND, "Sluice was built without cuDNN");
}

sl_status sl__cudnn_run(sl__cudnn *own, const sl__cuda_stream *stream,
                        const sl__cudnn_plan *plan, double scale,
                        void *const pointers[SL__CUDNN_IDS], void *workspace)
{
    (void)own, (void)stream, (void)plan, (void)scale;
    (void)pointers, (void)workspace;
    return sl_fail(SL_ENOTFOUND, "Sluice was built without cuDNN");
}

#endif
