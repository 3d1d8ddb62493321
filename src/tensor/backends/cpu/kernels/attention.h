/* SPDX-License-Identifier: MIT
 *
 * Causal attention, a head at a time, BLOCK rows of queries at a time. Scratch
 * has their scores against all keys that they see, never a T x T matrix. The
 * right operand of a product (tile.h) needs contiguous rows, so keys and values
 * are transposed into scratch, once per head, where they are read by
 * columns. bf16 is widened into scratch too: a block of queries, and all keys
 * and values. */

enum { BLOCK = SL__ATTENTION_BLOCK };
#ifdef ELEMENT_IS_BF16
enum { IS_BF16 = true };
#else
enum { IS_BF16 = false };
#endif

/* A head of an arg: (T, size) with this row stride. */
typedef struct head {
    element *data;
    int64_t row;
} head;

/* Some rows of a head as f32. */
typedef struct row_span {
    float *data;
    int64_t row;
} row_span;

INLINE head head_of(const work *w, int arg, int64_t batch, int64_t h,
                    int64_t size)
{
    const sl__arg *a = &w->kernel->args[arg];
    element *data = w->p[arg];
    return (head){data ? data + batch * a->stride[0] + h * size : NULL,
                  a->stride[1]};
}

static float *scratch_of(const work *w, int worker, int64_t length,
                         int64_t size)
{
    float *scratch = w->p[w->kernel->arg_count - 1];
    return scratch + worker * sl__attention_scratch(w->kernel->node->op, length,
                                                    size, IS_BF16);
}

/* Takes so many numbers of the scratch of bf16; f32 needs none. */
INLINE float *take(float **scratch, int64_t count)
{
    float *taken = *scratch;
    *scratch += IS_BF16 ? count : 0;
    return taken;
}

#ifdef ELEMENT_IS_BF16
/* Widens rows into `room`. */
static row_span read_rows(head h, int64_t from, int64_t count, int64_t size,
                          float *room)
{
    for (int64_t r = 0; r < count; r++) {
        const element *x = h.data + (from + r) * h.row;
        float *out = room + r * size;
        WALK(size, store(out + i, load(x + i)),
             store_part(out + i, load_part(x + i, n), n));
    }
    return (row_span){room, size};
}

/* Where rows are computed, before write_rows puts them into the head. */
static row_span result_rows(head h, int64_t from, int64_t size, float *room)
{
    (void)from;
    return (row_span){h.data ? room : NULL, size};
}

static void write_rows(row_span computed, head h, int64_t from, int64_t count,
                       int64_t size)
{
    for (int64_t r = 0; r < count && h.data; r++) {
        const float *x = computed.data + r * computed.row;
        element *out = h.data + (from + r) * h.row;
        WALK(size, store(out + i, load(x + i)),
             store_part(out + i, load_part(x + i, n), n));
    }
}
#else
/* f32 is read and written in place. */
static row_span read_rows(head h, int64_t from, int64_t count, int64_t size,
                          float *room)
{
    (void)count;
    (void)size;
    (void)room;
    return (row_span){h.data + from * h.row, h.row};
}

static row_span result_rows(head h, int64_t from, int64_t size, float *room)
{
    (void)size;
    (void)room;
    return (row_span){h.data ? h.data + from * h.row : NULL, h.row};
}

static void write_rows(row_span computed, head h, int64_t from, int64_t count,
                       int64_t size)
{
    (void)computed;
    (void)h;
    (void)from;
    (void)count;
    (void)size;
}
#endif

/* ----------------------------------------------------------- forward -- */

/* The operands and results of one head. */
typedef struct attended {
    head q, k, v, out;
    float *saved, *k_transposed, *scores, *scratch;
    int64_t length, size;
} attended;

static void attend(const attended *a)
{
    int64_t length = a->length, size = a->size;
    float scale = 1 / sqrtf((float)size), *scratch = a->scratch;
    float *room = take(&scratch, length * size);
    row_span k = read_rows(a->k, 0, length, size, room);
    transpose(k.data, k.row, length, size, a->k_transposed, length);
    row_span v = read_rows(a->v, 0, length, size, room);
    float *q_room = take(&scratch, BLOCK * size);
    float *out_room = take(&scratch, BLOCK * size);
    for (int64_t from = 0; from < length; from += BLOCK) {
        int64_t count = length - from < BLOCK ? length - from : BLOCK;
        int64_t seen = from + count;
        row_span q = read_rows(a->q, from, count, size, q_room);
        row_span out = result_rows(a->out, from, size, out_room);
        multiply(&(small_product){q.data, q.row, 1, a->k_transposed, length,
                                  a->scores, length, count, seen, size, false});
        for (int64_t r = 0; r < count; r++) {
            float *row = a->scores + r * length;
            int64_t visible = from + r + 1;
            float most = row_max_f32(row, visible) * scale;
            float sum = row_exp_f32(row, row, visible, scale, most);
            row_scale_f32(row, visible, 1 / sum);
            memset(row + visible, 0, sizeof *row * (size_t)(seen - visible));
            a->saved[2 * (from + r)] = most;
            a->saved[2 * (from + r) + 1] = 1 / sum;
        }
        multiply(&(small_product){a->scores, length, 1, v.data, v.row, out.data,
                                  out.row, count, size, seen, false});
        write_rows(out, a->out, from, count, size);
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
        attend(&(attended){
            .q = head_of(w, 0, b, h, size),
            .k = head_of(w, 1, b, h, size),
            .v = head_of(w, 2, b, h, size),
            .out = head_of(w, 3, b, h, size),
            .saved = (float *)w->p[4] + 2 * at * length,
            .k_transposed = scratch,
            .scores = scratch + length * size,
            .scratch = scratch + length * (size + BLOCK),
            .length = length,
            .size = size,
        });
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
    float *k_transposed, *v_transposed, *weights, *slopes, *scratch;
    row_span k_rows, dk_rows, dv_rows;
    int64_t length, size;
} head_grads;

static void clear_rows(row_span all, int64_t length, int64_t size)
{
    for (int64_t i = 0; i < length && all.data; i++)
        memset(all.data + i * all.row, 0, sizeof(float) * (size_t)size);
}

/* Row r of a block: turns scores into weights, and the gradients of the weights
 * into those of the scores. */
INLINE void slope_row(const head_grads *g, int64_t query, const float *dy,
                      const float *out, float *weights, float *slopes,
                      int64_t seen, float scale)
{
    int64_t count = query + 1;
    row_exp_f32(weights, weights, count, scale, g->saved[2 * query]);
    row_scale_f32(weights, count, g->saved[2 * query + 1]);
    memset(weights + count, 0, sizeof *weights * (size_t)(seen - count));
    if (!slopes)
        return;
    float base = row_dot_f32(dy, out, g->size);
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
    int64_t count = length - from < BLOCK ? length - from : BLOCK;
    int64_t seen = from + count;
    float scale = 1 / sqrtf((float)size), *scratch = g->scratch;
    bool sloped = g->dq.data || g->dk.data;
    row_span q =
        read_rows(g->q, from, count, size, take(&scratch, BLOCK * size));
    row_span dy =
        read_rows(g->dy, from, count, size, take(&scratch, BLOCK * size));
    row_span out =
        read_rows(g->out, from, count, size, take(&scratch, BLOCK * size));
    row_span dq = result_rows(g->dq, from, size, take(&scratch, BLOCK * size));
    multiply(&(small_product){q.data, q.row, 1, g->k_transposed, length,
                              g->weights, length, count, seen, size, false});
    if (sloped)
        multiply(&(small_product){dy.data, dy.row, 1, g->v_transposed, length,
                                  g->slopes, length, count, seen, size, false});
    for (int64_t r = 0; r < count; r++)
        slope_row(g, from + r, dy.data + r * dy.row, out.data + r * out.row,
                  g->weights + r * length,
                  sloped ? g->slopes + r * length : NULL, seen, scale);
    if (g->dv.data)
        multiply(&(small_product){g->weights, 1, length, dy.data, dy.row,
                                  g->dv_rows.data, g->dv_rows.row, seen, size,
                                  count, true});
    if (g->dq.data)
        multiply(&(small_product){g->slopes, length, 1, g->k_rows.data,
                                  g->k_rows.row, dq.data, dq.row, count, size,
                                  seen, false});
    if (g->dk.data)
        multiply(&(small_product){g->slopes, 1, length, q.data, q.row,
                                  g->dk_rows.data, g->dk_rows.row, seen, size,
                                  count, true});
    write_rows(dq, g->dq, from, count, size);
}

static void differentiate_head(head_grads *g)
{
    int64_t length = g->length, size = g->size, all = length * size;
    float *k_room = take(&g->scratch, all), *dk_room = take(&g->scratch, all);
    float *dv_room = take(&g->scratch, all);
    row_span v = read_rows(g->v, 0, length, size, k_room);
    transpose(v.data, v.row, length, size, g->v_transposed, length);
    g->k_rows = read_rows(g->k, 0, length, size, k_room);
    transpose(g->k_rows.data, g->k_rows.row, length, size, g->k_transposed,
              length);
    g->dk_rows = result_rows(g->dk, 0, size, dk_room);
    g->dv_rows = result_rows(g->dv, 0, size, dv_room);
    clear_rows(g->dk_rows, length, size);
    clear_rows(g->dv_rows, length, size);
    for (int64_t block = 0; block < length; block += BLOCK)
        differentiate_block(g, block);
    write_rows(g->dk_rows, g->dk, 0, length, size);
    write_rows(g->dv_rows, g->dv, 0, length, size);
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
        differentiate_head(&(head_grads){
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
            .scratch = scratch + 2 * (size + BLOCK) * length,
            .length = length,
            .size = size,
        });
    }
}

static sl_status attention_grad(ARGS)
{
    return spread_heads(kernel, p, run, &kernel->args[1], attention_grad_part);
}
