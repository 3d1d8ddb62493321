/* SPDX-License-Identifier: MIT
 *
 * Causal attention, a head at a time, BLOCK rows of queries at a time. Scratch
 * has their scores against all keys that they see, never a T x T matrix. The
 * right operand of a product (tile.h) needs contiguous rows, so keys and values
 * are transposed into scratch, once per head, where they are read by
 * columns. */

enum { BLOCK = SL__ATTENTION_BLOCK };

/* A head of an arg: (T, size) with this row stride. */
typedef struct head {
    float *data;
    int64_t row;
} head;

INLINE head head_of(const work *w, int arg, int64_t batch, int64_t h,
                    int64_t size)
{
    const sl__arg *a = &w->kernel->args[arg];
    float *data = w->p[arg];
    return (head){data ? data + batch * a->stride[0] + h * size : NULL,
                  a->stride[1]};
}

static float *scratch_of(const work *w, int worker, int64_t length,
                         int64_t size)
{
    float *scratch = w->p[w->kernel->arg_count - 1];
    return scratch +
           worker * sl__attention_scratch(w->kernel->node->op, length, size);
}

/* ----------------------------------------------------------- forward -- */

static void attend(head q, head v, const float *k_transposed, head out,
                   float *saved, int64_t length, int64_t size, float *scores)
{
    float scale = 1 / sqrtf((float)size);
    for (int64_t from = 0; from < length; from += BLOCK) {
        int64_t rows = length - from < BLOCK ? length - from : BLOCK;
        int64_t seen = from + rows;
        multiply(&(small_product){q.data + from * q.row, q.row, 1, k_transposed,
                                  length, scores, length, rows, seen, size,
                                  false});
        for (int64_t r = 0; r < rows; r++) {
            float *row = scores + r * length;
            int64_t count = from + r + 1;
            float most = row_max(row, count) * scale;
            float sum = row_exp(row, row, count, scale, most);
            row_scale(row, count, 1 / sum);
            memset(row + count, 0, sizeof *row * (size_t)(seen - count));
            saved[2 * (from + r)] = most;
            saved[2 * (from + r) + 1] = 1 / sum;
        }
        multiply(&(small_product){scores, length, 1, v.data, v.row,
                                  out.data + from * out.row, out.row, rows,
                                  size, seen, false});
    }
}

static void attention_part(void *data, int worker, int64_t from, int64_t to)
{
    const work *w = data;
    int heads = w->kernel->node->attributes.heads;
    int64_t length = w->kernel->args[0].shape[1];
    int64_t size = w->kernel->args[0].shape[2] / heads;
    float *scratch = scratch_of(w, worker, length, size);
    for (int64_t at = from; at < to; at++) {
        int64_t b = at / heads, h = at % heads;
        head k = head_of(w, 1, b, h, size);
        transpose(k.data, k.row, length, size, scratch, length);
        attend(head_of(w, 0, b, h, size), head_of(w, 2, b, h, size), scratch,
               head_of(w, 3, b, h, size), (float *)w->p[4] + 2 * at * length,
               length, size, scratch + length * size);
    }
}

static sl_status spread_heads(ARGS, const sl__arg *q, sl__parallel_fn body)
{
    work shared = {kernel, p, run};
    sl__parallel_few(
        sl__threads_of(run), SL__ATTENTION_WORKERS * sl__threads_of(run),
        q->shape[0] * kernel->node->attributes.heads, 1, body, &shared);
    return SL_OK;
}

static sl_status attention(ARGS)
{
    return spread_heads(kernel, p, run, &kernel->args[0], attention_part);
}

/* ---------------------------------------------------------- backward -- */

/* The operands and results of one head's gradients. */
typedef struct head_grads {
    head dy, q, k, v, out, dq, dk, dv;
    const float *saved;
    float *k_transposed, *v_transposed, *weights, *slopes;
    int64_t length, size;
} head_grads;

static void clear_head(head h, int64_t length, int64_t size)
{
    for (int64_t i = 0; i < length && h.data; i++)
        memset(h.data + i * h.row, 0, sizeof(float) * (size_t)size);
}

/* Row r of a block: turns scores into weights, and the gradients of the weights
 * into those of the scores. */
INLINE void slope_row(const head_grads *g, int64_t query, float *weights,
                      float *slopes, int64_t seen, float scale)
{
    int64_t count = query + 1;
    row_exp(weights, weights, count, scale, g->saved[2 * query]);
    row_scale(weights, count, g->saved[2 * query + 1]);
    memset(weights + count, 0, sizeof *weights * (size_t)(seen - count));
    if (!slopes)
        return;
    float base = row_dot(g->dy.data + query * g->dy.row,
                         g->out.data + query * g->out.row, g->size);
    WALK(seen,
         store(slopes + i,
               load(weights + i) * (load(slopes + i) - base) * scale),
         store_part(slopes + i,
                    load_part(weights + i, n) *
                        (load_part(slopes + i, n) - base) * scale,
                    n));
}

static void differentiate_block(const head_grads *g, int64_t from)
{
    int64_t length = g->length, size = g->size;
    int64_t rows = length - from < BLOCK ? length - from : BLOCK;
    int64_t seen = from + rows;
    float scale = 1 / sqrtf((float)size);
    bool sloped = g->dq.data || g->dk.data;
    const float *q = g->q.data + from * g->q.row;
    const float *dy = g->dy.data + from * g->dy.row;
    multiply(&(small_product){q, g->q.row, 1, g->k_transposed, length,
                              g->weights, length, rows, seen, size, false});
    if (sloped)
        multiply(&(small_product){dy, g->dy.row, 1, g->v_transposed, length,
                                  g->slopes, length, rows, seen, size, false});
    for (int64_t r = 0; r < rows; r++)
        slope_row(g, from + r, g->weights + r * length,
                  sloped ? g->slopes + r * length : NULL, seen, scale);
    if (g->dv.data)
        multiply(&(small_product){g->weights, 1, length, dy, g->dy.row,
                                  g->dv.data, g->dv.row, seen, size, rows,
                                  true});
    if (g->dq.data)
        multiply(&(small_product){g->slopes, length, 1, g->k.data, g->k.row,
                                  g->dq.data + from * g->dq.row, g->dq.row,
                                  rows, size, seen, false});
    if (g->dk.data)
        multiply(&(small_product){g->slopes, 1, length, q, g->q.row, g->dk.data,
                                  g->dk.row, seen, size, rows, true});
}

static void attention_grad_part(void *data, int worker, int64_t from,
                                int64_t to)
{
    const work *w = data;
    int heads = w->kernel->node->attributes.heads;
    int64_t length = w->kernel->args[1].shape[1];
    int64_t size = w->kernel->args[1].shape[2] / heads;
    float *scratch = scratch_of(w, worker, length, size);
    for (int64_t at = from; at < to; at++) {
        int64_t b = at / heads, h = at % heads;
        head_grads g = {
            .dy = head_of(w, 0, b, h, size),
            .q = head_of(w, 1, b, h, size),
            .k = head_of(w, 2, b, h, size),
            .v = head_of(w, 3, b, h, size),
            .out = head_of(w, 4, b, h, size),
            .dq = head_of(w, 6, b, h, size),
            .dk = head_of(w, 7, b, h, size),
            .dv = head_of(w, 8, b, h, size),
            .saved = (const float *)w->p[5] + 2 * at * length,
            .k_transposed = scratch,
            .v_transposed = scratch + length * size,
            .weights = scratch + 2 * length * size,
            .slopes = scratch + (2 * size + BLOCK) * length,
            .length = length,
            .size = size,
        };
        transpose(g.k.data, g.k.row, length, size, g.k_transposed, length);
        transpose(g.v.data, g.v.row, length, size, g.v_transposed, length);
        clear_head(g.dk, length, size);
        clear_head(g.dv, length, size);
        for (int64_t block = 0; block < length; block += BLOCK)
            differentiate_block(&g, block);
    }
}

static sl_status attention_grad(ARGS)
{
    return spread_heads(kernel, p, run, &kernel->args[1], attention_grad_part);
}
