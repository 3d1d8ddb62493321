/* SPDX-License-Identifier: MIT
 *
 * Which kernel a product gets, and which weights are packed for it. A weight is
 * packed once per optimizer step, and one pack serves all kernels that read it
 * in the same layout. A column-major result, like the gradient of a weight
 * (out, in), is computed as its transpose. */
#include "tensor/backends/cpu/gemm/gemm.h"

#include "base/memory.h"
#include "base/try.h"
#include "tensor/backends/cpu/cpu.h"

#include <assert.h>
#include <string.h>

/* A product whose result has contiguous rows: out (batch, m, n) = a (batch, m,
 * k) b (batch, k, n); strides in elements. */
typedef struct matmul {
    int64_t batch, m, n, k;
    int64_t a[3], b[3], out[3];
    int a_operand, b_operand;
    bool has_bias, adds;
    bool b_packed; /* b is a weight, to be packed once or read in place */
} matmul;

/* Orients a product so that its result has contiguous rows; false if neither
 * orientation has. */
static bool orient(const sl__kernel *kernel, matmul *p)
{
    sl__matmul_sizes s = sl__matmul_geometry(kernel);
    bool by_rows = s.out[2] == 1 || s.n == 1;
    bool by_columns = s.out[1] == 1 || s.m == 1;
    bool has_bias = kernel->operand_count == 3;
    *p = (matmul){.batch = s.batch,
                  .m = by_rows ? s.m : s.n,
                  .n = by_rows ? s.n : s.m,
                  .k = s.k,
                  .a_operand = by_rows ? 0 : 1,
                  .b_operand = by_rows ? 1 : 0,
                  .has_bias = has_bias,
                  .adds = kernel->adds};
    const int64_t *a = by_rows ? s.a : s.b, *b = by_rows ? s.b : s.a;
    for (int d = 0; d < 3; d++) {
        int from = by_rows || d == 0 ? d : 3 - d;
        p->a[d] = a[from];
        p->b[d] = b[from];
        p->out[d] = s.out[from];
    }
    if (p->n == 1)
        p->out[2] = 1;
    return by_rows || (by_columns && !has_bias);
}

/* The size, in elements, from which a weight is streamed rather than
 * cache-resident, and the one from which a gradient is worth packing its
 * operands for. */
enum { STREAMED_FROM = 1 << 16, GROUPED_FROM = 1 << 13 };
static int64_t streamed_from = STREAMED_FROM, grouped_from = GROUPED_FROM;

void sl__gemm_streamed_from(int64_t numbers)
{
    streamed_from = numbers ? numbers : STREAMED_FROM;
    grouped_from = numbers ? numbers : GROUPED_FROM;
}

static bool is_streamed(int64_t rows, int64_t columns)
{
    return rows * columns >= streamed_from;
}

static bool is_prefetched(int64_t rows, int64_t columns)
{
    return is_streamed(rows, columns) && sl__gemm_uses(SL__USE_PREFETCH);
}

/* How many vectors wide panels of n columns are. Three are faster than two,
 * unless that adds too many columns of padding. */
static int choose_width(int64_t n, int lanes)
{
    int64_t three = 3 * (int64_t)lanes, two = 2 * (int64_t)lanes;
    int64_t rest = n % three;
    if (n <= two || !sl__gemm_uses(SL__USE_WIDE_PANELS))
        return 2;
    int64_t by3 = n - rest + (rest == 0 ? 0 : rest <= two ? two : three);
    int64_t by2 = (n + two - 1) / two * two;
    return by3 <= by2 + n / 32 ? 3 : 2;
}

static int64_t packed_bytes(const sl__panel_pack *pack, int lanes)
{
    int64_t width = pack->vectors * lanes;
    if (pack->vectors < 0)
        return sl__bf16_bytes(pack->n, pack->k);
    if (width == 0)
        return sl__split_bytes(pack->n, pack->k);
    return (pack->n + width - 1) / width * width * pack->k *
           (int64_t)sizeof(float);
}

/* -------------------------------------------------------- packed weights -- */

static sl_status fill_pack(sl__pack *pack, const sl__node *node,
                           const sl_tensor *tensor, const sl__panel_pack *how)
{
    const sl__vector_kernels *vector = sl__vector_choose();
    sl__panel_pack *private;
    SL__TRY(sl__alloc(1, sizeof *private, &private));
    *private = *how;
    pack->tensor = tensor;
    pack->kernel =
        (sl__kernel){.run = how->vectors < 0 ? sl__bf16_choose(1)->pack
                            : how->vectors   ? vector->pack_panels
                                             : sl__split_choose(1)->pack,
                     .private = private,
                     .args = pack->args,
                     .arg_count = 2,
                     .operand_count = 1,
                     .node = node,
                     .activation = SL__OP_COUNT,
                     .packs = {-1, -1, -1}};
    pack->bytes = packed_bytes(how, vector->lanes);
    return SL_OK;
}

/* Finds the weight packed as `how` says, or adds it to the packs. */
static sl_status find_pack(sl__packs *packs, const sl__node *node, int operand,
                           const sl__panel_pack *how, int *out)
{
    const sl_tensor *tensor = node->operands[operand];
    sl__pack *pack;
    for (size_t i = 0; i < packs->count; i++) {
        const sl__pack *known = packs->data[i];
        if (known->tensor->base == tensor->base &&
            known->tensor->offset == tensor->offset &&
            memcmp(known->kernel.private, how, sizeof *how) == 0) {
            *out = (int)i;
            return SL_OK;
        }
    }
    SL__TRY(sl__grow(&packs->data, &packs->capacity, packs->count + 1,
                     sizeof *packs->data));
    SL__TRY(sl__alloc(1, sizeof *pack, &pack));
    sl_status status = fill_pack(pack, node, tensor, how);
    if (status) {
        free(pack);
        return status;
    }
    *out = (int)packs->count;
    packs->data[packs->count++] = pack;
    return SL_OK;
}

/* ---------------------------------------------------------- rank updates -- */

static bool is_rank_update(const matmul *p)
{
    return p->adds && p->batch == 1 && !p->has_bias && p->k <= SL__RANK_MAX &&
           p->b[2] == 1 && p->out[2] == 1 &&
           sl__gemm_uses(SL__USE_RANK_UPDATES);
}

/* How many microbatches are packed for one pass over the gradient: enough rows
 * that the pass is a small part of the work. */
static int choose_grouped(const matmul *p, const sl__kernel *kernel)
{
    enum { ROWS = 512 };
    int64_t most = ROWS / p->k;
    if (p->m * p->n < grouped_from || !sl__gemm_uses(SL__USE_GROUPED))
        return 1;
    return (int)(kernel->group_max < most ? kernel->group_max : most);
}

/* Elements of a piece. Pieces that are a multiple of a page apart would compete
 * for the same lines of the first-level cache, so these get one more panel. */
static int64_t choose_piece(const sl__panel_pack *pack, int lanes)
{
    enum { PAGE = 4096 / sizeof(float) };
    int64_t width = pack->vectors * lanes, panel = width * pack->depth;
    int64_t numbers = (pack->n + width - 1) / width * panel;
    return numbers % PAGE == 0 ? numbers + panel : numbers;
}

/* Lays out the packed operands of the microbatches that one pass adds. */
static void group_operands(const matmul *p, sl__rank_update *update,
                           sl__kernel *kernel)
{
    enum { PIECE_ROWS = 16 };
    int lanes = sl__vector_choose()->lanes;
    int64_t most = p->k < PIECE_ROWS ? PIECE_ROWS / p->k : 1;
    update->per_piece = most < update->grouped ? (int)most : update->grouped;
    int64_t depth = update->per_piece * p->k;
    update->a_pack =
        (sl__panel_pack){p->k, p->m, p->a[2], p->a[1], 1, false, depth};
    update->b_pack = (sl__panel_pack){
        p->k, p->n, p->b[1], 1, choose_width(p->n, lanes), false, depth};
    update->a_piece = choose_piece(&update->a_pack, lanes);
    update->b_piece = choose_piece(&update->b_pack, lanes);
    int64_t pieces =
        (update->grouped + update->per_piece - 1) / update->per_piece;
    kernel->scratch_bytes =
        pieces * (update->a_piece + update->b_piece) * (int64_t)sizeof(float);
}

static sl_status prepare_rank_update(const matmul *p, sl__kernel *kernel)
{
    sl__rank_update *update;
    SL__TRY(sl__alloc(1, sizeof *update, &update));
    *update = (sl__rank_update){.m = p->m,
                                .n = p->n,
                                .k = p->k,
                                .a_row = p->a[1],
                                .a_column = p->a[2],
                                .b_row = p->b[1],
                                .out_row = p->out[1],
                                .a = p->a_operand,
                                .b = p->b_operand,
                                .out_streamed = is_prefetched(p->m, p->n),
                                .grouped = choose_grouped(p, kernel)};
    if (update->grouped > 1)
        group_operands(p, update, kernel);
    kernel->private = update;
    kernel->groups = kernel->group_max > 1;
    kernel->run = sl__vector_choose()->add_rank_update;
    return SL_OK;
}

/* ---------------------------------------------------------------- panels -- */

/* Whether a has so few rows that it is read where it lies. */
static bool is_skinny(const matmul *p)
{
    enum { ROWS_MAX = 64 };
    return p->b_packed && p->m <= ROWS_MAX;
}

/* Whether splitting is little work compared with the product itself. */
static bool is_large(const matmul *p)
{
    enum { LEAST = 32 };
    return p->batch == 1 && p->m >= LEAST && p->n >= LEAST && p->k >= LEAST &&
           !is_skinny(p);
}

/* Whether a weight can be read in place: it stays in cache, its rows are
 * contiguous, and it is whole panels wide, of which the last may have two
 * vectors instead of three. */
static bool is_in_place(const matmul *p, int vectors, int lanes)
{
    int64_t rest = p->n % ((int64_t)vectors * lanes);
    return p->b_packed && !is_streamed(p->k, p->n) && p->b[2] == 1 &&
           (rest == 0 || (vectors == 3 && rest == 2 * lanes)) &&
           sl__gemm_uses(SL__USE_IN_PLACE);
}

/* Prefers a width that can be read in place to a larger one. */
static int choose_vectors(const matmul *p, int lanes)
{
    int vectors = choose_width(p->n, lanes);
    bool narrower = vectors == 3 && !is_in_place(p, 3, lanes);
    return narrower && is_in_place(p, 2, lanes) ? 2 : vectors;
}

/* Gives each worker scratch of its own where there are products for all. */
static void divide_batch(sl__panel_product *product, int threads,
                         sl__kernel *kernel)
{
    int workers = 2 * threads;
    if (product->batch < workers || product->batch == 1)
        return;
    kernel->scratch_bytes = sl__aligned(kernel->scratch_bytes);
    product->workers = workers;
    product->worker_scratch = kernel->scratch_bytes / (int64_t)sizeof(float);
    kernel->scratch_bytes *= workers;
}

/* A product by panels or, given `splits`, by pieces of bf16. */
static sl_status prepare_panels(const matmul *p, int threads, sl__packs *packs,
                                const sl__split_kernels *splits,
                                sl__kernel *kernel)
{
    const sl__vector_kernels *vector = sl__vector_choose();
    int vectors = splits ? 0 : choose_vectors(p, vector->lanes);
    bool streamed = p->b_packed && is_prefetched(p->k, p->n);
    sl__panel_product *product;
    SL__TRY(sl__alloc(1, sizeof *product, &product));
    *product = (sl__panel_product){
        .batch = p->batch,
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .a_batch = p->a[0],
        .b_batch = p->b[0],
        .out_batch = p->out[0],
        .a_row = p->a[1],
        .a_column = p->a[2],
        .out_row = p->out[1],
        .vectors = vectors,
        .adds = p->adds,
        .b_streamed = streamed,
        .out_streamed = p->adds && is_prefetched(p->m, p->n),
        .packs_a = splits || !p->b_packed,
        .packs_b = !p->b_packed,
        .a_pack = {p->k, p->m, p->a[2], p->a[1], splits ? 0 : 1, false, p->k},
        .b_pack = {p->k, p->n, p->b[1], p->b[2], vectors, streamed, p->k},
        .a = p->a_operand,
        .b = p->b_operand,
        .bias = p->has_bias ? 2 : -1};
    kernel->private = product;
    kernel->run = splits ? splits->multiply : vector->multiply_panels;
    if (product->packs_a)
        kernel->scratch_bytes = packed_bytes(&product->a_pack, vector->lanes);
    if (product->packs_b) {
        kernel->scratch_bytes += packed_bytes(&product->b_pack, vector->lanes);
        divide_batch(product, threads, kernel);
        return SL_OK;
    }
    if (!splits && is_in_place(p, vectors, vector->lanes)) {
        product->b_row = p->b[1];
        return SL_OK;
    }
    return find_pack(packs, kernel->node, p->b_operand, &product->b_pack,
                     &kernel->packs[p->b_operand]);
}

/* ---------------------------------------------------------- dot products -- */

static bool is_dot_product(const matmul *p)
{
    enum { ROWS_MAX = 8 };
    int lanes = sl__vector_choose()->lanes;
    return p->b_packed && p->m <= ROWS_MAX && !is_streamed(p->k, p->n) &&
           !p->adds && p->a[2] == 1 && p->b[1] == 1 && p->n % lanes == 0 &&
           p->k % lanes == 0 && sl__gemm_uses(SL__USE_DOT_PRODUCTS);
}

static sl_status prepare_dot_product(const matmul *p, sl__kernel *kernel)
{
    sl__dot_product *product;
    SL__TRY(sl__alloc(1, sizeof *product, &product));
    *product = (sl__dot_product){.m = p->m,
                                 .n = p->n,
                                 .k = p->k,
                                 .a_row = p->a[1],
                                 .b_column = p->b[2],
                                 .out_row = p->out[1],
                                 .a = p->a_operand,
                                 .b = p->b_operand,
                                 .bias = p->has_bias ? 2 : -1};
    kernel->private = product;
    kernel->run = sl__vector_choose()->multiply_dots;
    return SL_OK;
}

sl_status sl__gemm_prepare(int threads, sl__packs *packs, sl__kernel *kernel)
{
    matmul p;
    assert(kernel->node->op == SL__MATMUL && !kernel->private);
    if (!orient(kernel, &p) || p.out[2] != 1)
        return SL_OK;
    if (is_rank_update(&p))
        return prepare_rank_update(&p, kernel);
    const sl_tensor *b = kernel->node->operands[p.b_operand];
    p.b_packed = p.batch == 1 && b->base->leaf == SL__PARAMETER &&
                 sl__gemm_uses(SL__USE_PACKED_WEIGHTS);
    if (is_dot_product(&p))
        return prepare_dot_product(&p, kernel);
    return prepare_panels(&p, threads, packs,
                          is_large(&p) ? sl__split_choose(threads) : NULL,
                          kernel);
}

/* ------------------------------------------------------------------ bf16 -- */

/* How many microbatches are packed for one pass over a gradient. */
static int choose_grouped_bf16(const matmul *p, const sl__kernel *kernel)
{
    enum { ROWS = 512 };
    int64_t most = ROWS / p->k;
    if (!p->adds || p->batch > 1 || most < 2 || kernel->group_max < 2 ||
        !sl__gemm_uses(SL__USE_GROUPED))
        return 1;
    return (int)(kernel->group_max < most ? kernel->group_max : most);
}

static bool is_f32(const sl__kernel *kernel, int arg)
{
    return kernel->args[arg].dtype == SL_F32;
}

static bool is_f32_or_bf16(const sl__kernel *kernel, int arg)
{
    return is_f32(kernel, arg) || kernel->args[arg].dtype == SL_BF16;
}

sl_status sl__gemm_prepare_bf16(sl__packs *packs, sl__kernel *kernel)
{
    matmul p;
    int result = kernel->operand_count;
    assert(kernel->node->op == SL__MATMUL && !kernel->private);
    if (!orient(kernel, &p) || p.out[2] != 1 || !is_f32_or_bf16(kernel, 0) ||
        !is_f32_or_bf16(kernel, 1) || !is_f32_or_bf16(kernel, result) ||
        (p.has_bias && !is_f32(kernel, 2)) ||
        (p.adds && !is_f32(kernel, result)))
        return SL_OK;
    const sl_tensor *b = kernel->node->operands[p.b_operand];
    bool packed = p.batch == 1 && b->base->leaf == SL__PARAMETER &&
                  b->dtype == SL_F32 && sl__gemm_uses(SL__USE_PACKED_WEIGHTS);
    sl__bf16_product *product;
    SL__TRY(sl__alloc(1, sizeof *product, &product));
    *product = (sl__bf16_product){.batch = p.batch,
                                  .m = p.m,
                                  .n = p.n,
                                  .k = p.k,
                                  .a_batch = p.a[0],
                                  .b_batch = p.b[0],
                                  .out_batch = p.out[0],
                                  .a_row = p.a[1],
                                  .a_column = p.a[2],
                                  .b_row = p.b[1],
                                  .b_column = p.b[2],
                                  .out_row = p.out[1],
                                  .a_is_float = is_f32(kernel, p.a_operand),
                                  .b_is_float = is_f32(kernel, p.b_operand),
                                  .out_is_float = is_f32(kernel, result),
                                  .adds = p.adds,
                                  .packs_b = !packed,
                                  .a = p.a_operand,
                                  .b = p.b_operand,
                                  .bias = p.has_bias ? 2 : -1,
                                  .grouped = choose_grouped_bf16(&p, kernel)};
    kernel->private = product;
    kernel->run = sl__bf16_choose(p.m)->multiply;
    kernel->groups = kernel->group_max > 1 && p.adds;
    kernel->scratch_bytes = product->grouped * sl__bf16_bytes(p.m, p.k);
    if (!packed) {
        kernel->scratch_bytes += product->grouped * sl__bf16_bytes(p.n, p.k);
        return SL_OK;
    }
    const sl__panel_pack how = {p.k, p.n, p.b[1], p.b[2], -1, false, p.k};
    return find_pack(packs, kernel->node, p.b_operand, &how,
                     &kernel->packs[p.b_operand]);
}
