/* SPDX-License-Identifier: MIT
 *
 * Products: which kernel one gets, ours or oneDNN's. A weight is packed once, and
 * shared by every kernel that likes it the same way; the pack runs when
 * parameters have changed. A result that lies by columns (the gradient of a
 * weight of (out, in)) is computed as its transpose. */
#include "tensor/backends/cpu/gemm/product.h"

#include "base/memory.h"

#include <string.h>

/* What a kernel of oneDNN's keeps: its primitive, and which arg goes where. */
typedef struct dnn_job {
    sl__product product;
    int arg_count;
    struct {
        int name;  /* DNNL_ARG_... */
        int index; /* in the kernel's args */
        const sl__md *md;
    } args[5];
} dnn_job;

/* The same for one slot: oneDNN's handles of the memory. */
typedef struct binding {
    const dnn_job *job;
    dnnl_stream_t stream;
    dnnl_exec_arg_t args[5];
} binding;

/* -------------------------------------------------------------- running -- */

static sl_status execute(const sl__kernel *kernel, void *const *p,
                         const sl__run *run)
{
    (void)p; /* Bound already. */
    const binding *state = run->states[kernel->state_index];
    const dnn_job *job = state->job;
    dnnl_status_t status = dnnl_primitive_execute(
        job->product.primitive, state->stream, job->arg_count, state->args);
    return status ? sl__dnn_fail("dnnl_primitive_execute", status) : SL_OK;
}

/* ReLU is ours: oneDNN's makes 0 of NaN, and a run that diverges would look
 * sound. */
static sl_status execute_relu(const sl__kernel *kernel, void *const *p,
                              const sl__run *run)
{
    sl_status status = execute(kernel, p, run);
    if (status)
        return status;
    int result = kernel->operand_count;
    const sl__kernel relu = {.args = &kernel->args[result],
                             .node = kernel->node};
    void *const in_place[] = {p[result], p[result]};
    return sl__vector_choose()->table[SL__RELU](&relu, in_place, run);
}

void sl__dnn_unbind(void *state)
{
    binding *bound = state;
    for (int i = 0; i < 5; i++) {
        if (bound->args[i].memory)
            dnnl_memory_destroy(bound->args[i].memory);
    }
    dnnl_stream_destroy(bound->stream);
    free(bound);
}

sl_status sl__dnn_bind(sl__device *device, const sl__kernel *kernel,
                       void *const *p, void **out_state)
{
    const sl__dnn_context *dnn = (const sl__dnn_context *)device;
    const dnn_job *job = kernel->private;
    binding *state;
    sl_status status = sl__alloc(1, sizeof *state, &state);
    if (status)
        return status;
    state->job = job;
    dnnl_status_t opened = dnnl_stream_create(&state->stream, dnn->engine,
                                              dnnl_stream_default_flags);
    if (opened) {
        free(state);
        return sl__dnn_fail("dnnl_stream_create", opened);
    }
    for (int i = 0; i < job->arg_count; i++) {
        void *pointer = p[job->args[i].index];
        dnnl_status_t made = dnnl_memory_create(&state->args[i].memory,
                                                sl__md_use(job->args[i].md),
                                                dnn->engine, pointer);
        if (made) {
            sl__dnn_unbind(state);
            return sl__dnn_fail("dnnl_memory_create", made);
        }
        state->args[i].arg = job->args[i].name;
    }
    *out_state = state;
    return SL_OK;
}

void sl__dnn_forget(sl__kernel *kernel)
{
    if (kernel->private && kernel->state_index >= 0) {
        dnn_job *job = kernel->private;
        sl__product_clear(&job->product);
    }
    free(kernel->private);
}

static void add_arg(dnn_job *job, int name, int index, const sl__md *md)
{
    job->args[job->arg_count].name = name;
    job->args[job->arg_count].index = index;
    job->args[job->arg_count].md = md;
    job->arg_count++;
}

/* -------------------------------------------------------------- packing -- */

static sl_status add_pack(sl__packs *packs, const sl__node *node,
                          const sl_tensor *tensor, const sl__panel_pack *how,
                          int64_t bytes)
{
    sl__pack *pack;
    sl__panel_pack *private;
    sl_status status = sl__grow(&packs->data, &packs->capacity,
                                packs->count + 1, sizeof *packs->data);
    if (!status)
        status = sl__alloc(1, sizeof *private, &private);
    if (status)
        return status;
    *private = *how;
    status = sl__alloc(1, sizeof *pack, &pack);
    if (status) {
        free(private);
        return status;
    }
    packs->data[packs->count++] = pack;
    pack->tensor = tensor;
    pack->kernel =
        (sl__kernel){.run = how->vectors ? sl__vector_choose()->pack_panels
                                         : sl__splits_choose(1)->pack,
                     .private = private,
                     .state_index = -1,
                     .args = pack->args,
                     .arg_count = 2,
                     .operand_count = 1,
                     .node = node,
                     .activation = SL__OP_COUNT,
                     .packed_operand = -1};
    pack->bytes = bytes;
    return SL_OK;
}

/* ------------------------------------------------------------ preparing -- */

/* Describes a kernel as a product that writes by rows; tells which of its
 * operands are src and weights. False where no orientation does. */
static bool orient(const sl__kernel *kernel, sl__product_spec *spec, int *src,
                   int *weights)
{
    sl__matmul_sizes s = sl__matmul_geometry(kernel);
    bool by_rows = s.out[2] == 1 || s.n == 1;
    bool by_columns = s.out[1] == 1 || s.m == 1;
    bool has_bias = kernel->operand_count == 3;
    *spec = (sl__product_spec){.batch = s.batch,
                               .k = s.k,
                               .type = dnnl_f32,
                               .has_bias = has_bias,
                               .adds = kernel->adds,
                               .activation = kernel->activation};
    *src = by_rows ? 0 : 1;
    *weights = by_rows ? 1 : 0;
    spec->m = by_rows ? s.m : s.n;
    spec->n = by_rows ? s.n : s.m;
    const int64_t *a = by_rows ? s.a : s.b, *b = by_rows ? s.b : s.a;
    for (int d = 0; d < 3; d++) {
        int flipped = d == 0 ? 0 : 3 - d;
        spec->src[d] = a[by_rows ? d : flipped];
        spec->weights[d] = b[by_rows ? d : flipped];
        spec->dst[d] = s.out[by_rows ? d : flipped];
    }
    return by_rows || (by_columns && !has_bias);
}

/* oneDNN counts in int here and there, and divides by what is left of it. */
static bool is_too_large(const sl__product_spec *spec)
{
    return spec->batch > INT32_MAX || spec->m > INT32_MAX ||
           spec->n > INT32_MAX || spec->k > INT32_MAX;
}

/* Shapes that some versions of oneDNN 3 compute wrongly with AVX-512: a row
 * whose elements are not contiguous and a column written with a stride (seen in
 * 3.7), and batches of products of depth 1 (seen in 3.12). They have few
 * operations for what they read, so the plain C of `ref` is good enough. */
static bool is_unsafe(const sl__product_spec *spec)
{
    return (spec->m == 1 && spec->src[2] != 1) ||
           (spec->n == 1 && spec->dst[1] != 1) ||
           (spec->batch > 1 && spec->k == 1);
}

/* Whether a product is the gradient of a weight from a few rows. */
static bool is_flat(const sl__product_spec *spec)
{
    return spec->adds && spec->batch == 1 && !spec->has_bias &&
           spec->k <= SL__FLAT_PRODUCT_DEPTH_MAX && spec->weights[2] == 1 &&
           spec->dst[2] == 1;
}

/* Whether a weight, or its gradient, stays near from one microbatch to the
 * next; and whether a gradient is worth packing factors for. */
enum { FAR_FROM = 1 << 16, GROUP_FROM = 1 << 13 };
static int64_t far_from = FAR_FROM, group_from = GROUP_FROM;
static int tall_forced = -1;

void sl__group_from(int64_t numbers)
{
    far_from = numbers ? numbers : FAR_FROM;
    group_from = numbers ? numbers : GROUP_FROM;
}

void sl__tall_force(int tall)
{
    tall_forced = tall;
}

static bool is_far(int64_t rows, int64_t columns)
{
    return rows * columns >= far_from;
}

/* How many vectors wide panels are: three are some 4% faster than two, unless
 * they have more to multiply then, of columns that there are not. */
static int choose_width(int64_t n, int lanes)
{
    int64_t three = 3 * (int64_t)lanes, two = 2 * (int64_t)lanes;
    int64_t rest = n % three;
    if (n <= two)
        return 2;
    int64_t by3 = n - rest + (rest == 0 ? 0 : rest <= two ? two : three);
    int64_t by2 = (n + two - 1) / two * two;
    return by3 <= by2 + n / 32 ? 3 : 2;
}

/* How many microbatches are packed for one walk: as many rows as are worth it,
 * for the walk is a small part of all then. */
static int choose_together(const sl__product_spec *spec,
                           const sl__kernel *kernel)
{
    enum { ROWS = 512 };
    int64_t most = spec->k > 0 ? ROWS / spec->k : 1;
    if (spec->m * spec->n < group_from)
        return 1;
    return (int)(kernel->group_max < most ? kernel->group_max : most);
}

/* Numbers of a piece. Pieces at multiples of a page would be in each other's way
 * in the nearest cache: a panel more keeps them apart. */
static int64_t choose_piece(const sl__panel_pack *pack, int lanes)
{
    enum { PAGE = 4096 / sizeof(float) };
    int64_t width = pack->vectors * lanes, panel = width * pack->room;
    int64_t numbers = (pack->n + width - 1) / width * panel;
    return numbers % PAGE == 0 ? numbers + panel : numbers;
}

/* Lays out the packed factors of several microbatches; returns the room for
 * them. */
static int64_t place_factors(sl__flat_product *flat, int lanes)
{
    int64_t pieces = (flat->together + flat->per_piece - 1) / flat->per_piece;
    flat->a_piece = choose_piece(&flat->a_pack, lanes);
    flat->b_piece = choose_piece(&flat->b_pack, lanes);
    return pieces * (flat->a_piece + flat->b_piece) * (int64_t)sizeof(float);
}

static sl_status prepare_flat(const sl__product_spec *spec, int src,
                              int weights, sl__kernel *kernel)
{
    sl__flat_product *flat;
    sl_status status = sl__alloc(1, sizeof *flat, &flat);
    if (status)
        return status;
    *flat = (sl__flat_product){.m = spec->m,
                               .n = spec->n,
                               .k = spec->k,
                               .a_row = spec->src[1],
                               .a_column = spec->src[2],
                               .b_row = spec->weights[1],
                               .out_row = spec->dst[1],
                               .a = src,
                               .b = weights,
                               .is_far = is_far(spec->m, spec->n)};
    flat->together = choose_together(spec, kernel);
    kernel->groups = kernel->group_max > 1;
    if (flat->together > 1) {
        const sl__vector_kernels *vector = sl__vector_choose();
        enum { PIECE = 16 };
        int64_t most = spec->k < PIECE ? PIECE / spec->k : 1;
        flat->per_piece = most < flat->together ? (int)most : flat->together;
        int64_t room = flat->per_piece * spec->k;
        flat->a_pack = (sl__panel_pack){
            spec->k, spec->m, spec->src[2], spec->src[1], 1, false, room};
        flat->b_pack = (sl__panel_pack){spec->k,
                                        spec->n,
                                        spec->weights[1],
                                        1,
                                        choose_width(spec->n, vector->lanes),
                                        false,
                                        room};
        kernel->scratch_bytes = place_factors(flat, vector->lanes);
    }
    kernel->private = flat;
    kernel->run = sl__vector_choose()->add_product;
    return SL_OK;
}

static bool is_parameter(const sl_tensor *tensor)
{
    return tensor->base->leaf == SL__PARAMETER;
}

/* --------------------------------------------------------------- panels -- */

/* Whether a product is of a few rows with a weight. */
static bool is_thin(const sl__product_spec *spec)
{
    enum { MOST = 64 };
    return spec->packed && spec->m <= MOST;
}

/* Whether our kernels for panels can do it. */
static bool fits_panels(const sl__product_spec *spec)
{
    return spec->batch == 1 && spec->m > 0 && spec->n > 0 && spec->k > 0 &&
           spec->dst[2] == 1;
}

/* Finds a weight packed as `wanted` says, or adds it. */
static sl_status find_pack(sl__packs *packs, const sl__node *node, int operand,
                           const sl__panel_pack *wanted, int64_t bytes,
                           int *out)
{
    const sl_tensor *tensor = node->operands[operand];
    for (size_t i = 0; i < packs->count; i++) {
        const sl__pack *known = packs->data[i];
        if (known->tensor->base == tensor->base &&
            known->tensor->offset == tensor->offset &&
            memcmp(known->kernel.private, wanted, sizeof *wanted) == 0) {
            *out = (int)i;
            return SL_OK;
        }
    }
    sl_status status = add_pack(packs, node, tensor, wanted, bytes);
    if (!status)
        *out = (int)packs->count - 1;
    return status;
}

static int64_t packed_bytes(const sl__panel_pack *pack, int lanes)
{
    int64_t width = pack->vectors * lanes;
    if (width == 0)
        return sl__split_bytes(pack->n, pack->k);
    return (pack->n + width - 1) / width * width * pack->k *
           (int64_t)sizeof(float);
}

static bool takes_two_turns(void)
{
    return tall_forced < 0 ? sl__takes_two_turns() : tall_forced;
}

/* Whether a weight is read for a few rows alone, as many as tall tiles have. */
static bool is_tall(const sl__product_spec *spec, int tall_rows)
{
    return tall_rows > 0 && takes_two_turns() && is_thin(spec) &&
           is_far(spec->k, spec->n) && spec->m % tall_rows == 0;
}

/* Whether a weight can be read where it lies: rows of whole panels, the last of
 * which may have two vectors, all of them near. */
static bool is_in_place(const sl__product_spec *spec, int vectors, int lanes)
{
    int64_t rest = spec->n % ((int64_t)vectors * lanes);
    return spec->packed && !is_far(spec->k, spec->n) && spec->weights[2] == 1 &&
           (rest == 0 || (vectors == 3 && rest == 2 * lanes));
}

/* How many vectors wide the panels of a product are. */
static int choose_vectors(const sl__product_spec *spec,
                          const sl__vector_kernels *vector)
{
    if (is_tall(spec, vector->tall_rows))
        return 1;
    int vectors = choose_width(spec->n, vector->lanes);
    if (vectors == 3 && !is_in_place(spec, 3, vector->lanes) &&
        is_in_place(spec, 2, vector->lanes))
        return 2; /* Not to be packed is worth more. */
    return vectors;
}

/* A product by panels or, where there are `splits`, by pieces. */
static sl_status prepare_panels(sl__packs *packs, const sl__product_spec *spec,
                                int src, int weights,
                                const sl__split_kernels *splits,
                                sl__kernel *kernel)
{
    const sl__vector_kernels *vector = sl__vector_choose();
    int vectors = splits ? 0 : choose_vectors(spec, vector);
    bool packs_a = splits || vectors == 1 || !spec->packed;
    bool far = spec->packed && is_far(spec->k, spec->n);
    sl__panel_product *product;
    sl_status status = sl__alloc(1, sizeof *product, &product);
    if (status)
        return status;
    *product = (sl__panel_product){
        .m = spec->m,
        .n = spec->n,
        .k = spec->k,
        .a_row = spec->src[1],
        .a_column = spec->src[2],
        .out_row = spec->dst[1],
        .vectors = vectors,
        .adds = spec->adds,
        .is_far = far,
        .adds_far = spec->adds && is_far(spec->m, spec->n),
        .packs_a = packs_a,
        .packs_b = !spec->packed,
        .a_pack = {spec->k, spec->m, spec->src[2], spec->src[1], splits ? 0 : 1,
                   false, spec->k},
        .b_pack = {spec->k, spec->n, spec->weights[1], spec->weights[2],
                   vectors, far, spec->k},
        .a = src,
        .b = weights,
        .bias = spec->has_bias ? 2 : -1};
    if (!splits && is_in_place(spec, vectors, vector->lanes))
        product->b_row = spec->weights[1];
    kernel->private = product;
    kernel->run = splits ? splits->multiply : vector->multiply_panels;
    int64_t bytes = packed_bytes(&product->b_pack, vector->lanes);
    if (product->packs_a)
        kernel->scratch_bytes = packed_bytes(&product->a_pack, vector->lanes);
    if (product->packs_b) {
        kernel->scratch_bytes += bytes;
        return SL_OK;
    }
    if (product->b_row)
        return SL_OK;
    kernel->packed_operand = weights;
    return find_pack(packs, kernel->node, weights, &product->b_pack, bytes,
                     &kernel->pack);
}

/* --------------------------------------------------------------- turned -- */

/* Finds a far weight in panels for the transpose of this product, which is of a
 * few rows; -1: there is none. */
static int find_turned(const sl__packs *packs, const sl__product_spec *spec,
                       const sl__kernel *kernel, int weights)
{
    const sl_tensor *weight = kernel->node->operands[weights];
    int lanes = sl__vector_choose()->lanes;
    enum { MOST = 16 }; /* More are worth a pack of their own. */
    if (!spec->packed || spec->m > MOST || spec->m % lanes != 0 ||
        !is_far(spec->k, spec->n) || spec->has_bias || spec->adds ||
        spec->src[2] != 1 || kernel->activation != SL__OP_COUNT)
        return -1;
    for (size_t i = 0; i < packs->count; i++) {
        const sl__pack *known = packs->data[i];
        const sl__panel_pack *how = known->kernel.private;
        if (known->tensor->base == weight->base &&
            known->tensor->offset == weight->offset && how->k == spec->n &&
            how->n == spec->k && how->row == spec->weights[2] &&
            how->column == spec->weights[1] && how->vectors > 1)
            return (int)i;
    }
    return -1;
}

static sl_status prepare_turned(const sl__packs *packs, int pack,
                                const sl__product_spec *spec, int src,
                                int weights, sl__kernel *kernel)
{
    const sl__panel_pack *how = packs->data[pack]->kernel.private;
    sl__turned_product *product;
    sl_status status = sl__alloc(1, sizeof *product, &product);
    if (status)
        return status;
    *product = (sl__turned_product){.m = spec->m,
                                    .n = spec->n,
                                    .k = spec->k,
                                    .a_row = spec->src[1],
                                    .out_row = spec->dst[1],
                                    .vectors = (int)how->vectors,
                                    .a = src,
                                    .b = weights};
    kernel->private = product;
    kernel->run = sl__vector_choose()->multiply_turned;
    kernel->scratch_bytes =
        spec->m * (spec->n + spec->k) * (int64_t)sizeof(float);
    kernel->packed_operand = weights;
    kernel->pack = pack;
    return SL_OK;
}

/* ----------------------------------------------------------------- dots -- */

/* Whether a product is of so few rows that a near weight is best left as it
 * lies, in columns. Where a vector takes two turns, to add up its lanes takes
 * longer than to multiply short columns. */
static bool is_few(const sl__product_spec *spec)
{
    enum { MOST = 8, LONG = 8 }; /* Rows; vectors of a column. */
    int lanes = sl__vector_choose()->lanes;
    bool pays = !takes_two_turns() || spec->k >= (int64_t)LONG * lanes;
    return pays && spec->packed && spec->m <= MOST &&
           !is_far(spec->k, spec->n) && !spec->adds && spec->src[2] == 1 &&
           spec->weights[1] == 1 && spec->n % lanes == 0 &&
           spec->k % lanes == 0;
}

static sl_status prepare_dots(const sl__product_spec *spec, int src,
                              int weights, sl__kernel *kernel)
{
    sl__dot_product *product;
    sl_status status = sl__alloc(1, sizeof *product, &product);
    if (status)
        return status;
    *product = (sl__dot_product){.m = spec->m,
                                 .n = spec->n,
                                 .k = spec->k,
                                 .a_row = spec->src[1],
                                 .b_column = spec->weights[2],
                                 .out_row = spec->dst[1],
                                 .a = src,
                                 .b = weights,
                                 .bias = spec->has_bias ? 2 : -1};
    kernel->private = product;
    kernel->run = sl__vector_choose()->multiply_dots;
    return SL_OK;
}

/* ------------------------------------------------------------- choosing -- */

/* Whether a product is large enough to be worth packing its factors. */
static bool is_fat(const sl__product_spec *spec)
{
    enum { LEAST = 32 };
    return fits_panels(spec) && spec->m >= LEAST && spec->n >= LEAST &&
           spec->k >= LEAST;
}

sl_status sl__dnn_prepare_matmul(sl__dnn_context *context, sl__packs *packs,
                                 sl__kernel *kernel)
{
    sl__product_spec spec;
    int src, weights;
    if (!orient(kernel, &spec, &src, &weights) || is_too_large(&spec))
        return SL_OK;
    if (is_flat(&spec))
        return prepare_flat(&spec, src, weights, kernel);
    spec.packed =
        fits_panels(&spec) && is_parameter(kernel->node->operands[weights]);
    int turned = find_turned(packs, &spec, kernel, weights);
    if (turned >= 0)
        return prepare_turned(packs, turned, &spec, src, weights, kernel);
    if (is_few(&spec))
        return prepare_dots(&spec, src, weights, kernel);
    bool fat = is_fat(&spec) && !is_thin(&spec);
    if (spec.packed || fat)
        return prepare_panels(packs, &spec, src, weights,
                              fat ? sl__splits_choose(context->threads) : NULL,
                              kernel);
    if (is_unsafe(&spec))
        return SL_OK;
    dnn_job *job;
    sl_status status = sl__alloc(1, sizeof *job, &job);
    if (status)
        return status;
    kernel->private = job;
    kernel->run = kernel->activation == SL__RELU ? execute_relu : execute;
    kernel->state_index = 0;
    sl__product *product = &job->product;
    status = sl__product_create(context->engine, &spec, product);
    if (status)
        return status;
    add_arg(job, DNNL_ARG_SRC, src, &product->src);
    add_arg(job, DNNL_ARG_WEIGHTS, weights, &product->weights);
    add_arg(job, DNNL_ARG_DST, kernel->operand_count, &product->dst);
    if (spec.has_bias)
        add_arg(job, DNNL_ARG_BIAS, 2, &product->bias);
    if (product->scratch.set)
        add_arg(job, DNNL_ARG_SCRATCHPAD, kernel->arg_count, &product->scratch);
    kernel->scratch_bytes = product->scratch_bytes;
    return SL_OK;
}
