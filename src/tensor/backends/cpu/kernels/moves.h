/* SPDX-License-Identifier: MIT
 *
 * Ops that copy and reduce: copies, concat, sums, gradients of embeddings. */

INLINE void add_span(element *out, const element *x, int64_t count)
{
    WALK(count, store(out + i, load(out + i) + load(x + i)),
         store_part(out + i, load_part(out + i, n) + load_part(x + i, n), n));
}

/* Copies the rows of a box (all dimensions but the last), or adds them. */
static void move_rows(const sl__arg *from, const element *source,
                      const sl__arg *to, element *target, bool adds)
{
    int last = from->dims - 1;
    int64_t columns = last < 0 ? 1 : from->shape[last];
    int64_t step = last < 0 ? 1 : from->stride[last];
    int64_t target_step = last < 0 ? 1 : to->stride[last];
    bool plain = columns == 1 || (step == 1 && target_step == 1);
    int64_t rows = sl__arg_count(from) / columns;
    int64_t index[SL_DIMS_MAX] = {0};
    for (int64_t r = 0; r < rows; r++) {
        const element *x = source;
        element *out = target;
        for (int d = 0; d < last; d++) {
            x += index[d] * from->stride[d];
            out += index[d] * to->stride[d];
        }
        if (plain && adds)
            add_span(out, x, columns);
        else if (plain)
            memcpy(out, x, sizeof *out * (size_t)columns);
        else
            for (int64_t c = 0; c < columns; c++)
                put(out + c * target_step,
                    get(x + c * step) +
                        (adds ? get(out + c * target_step) : 0));
        for (int d = last - 1; d >= 0; d--) {
            if (++index[d] < from->shape[d])
                break;
            index[d] = 0;
        }
    }
}

static sl_status copy(ARGS)
{
    (void)run;
    const sl__arg *from = &kernel->args[0], *to = &kernel->args[1];
    int64_t count = sl__arg_count(from);
    if (!sl__arg_is_dense(from) || !sl__arg_is_dense(to))
        move_rows(from, p[0], to, p[1], kernel->adds);
    else if (kernel->adds)
        add_span(p[1], p[0], count);
    else
        memcpy(p[1], p[0], sizeof(element) * (size_t)count);
    return SL_OK;
}

static sl_status concat(ARGS)
{
    (void)run;
    const sl__node *node = kernel->node;
    const sl__arg *out = &kernel->args[kernel->operand_count];
    element *target = p[kernel->operand_count];
    bool gaps = node->attributes.flag;
    if (gaps)
        memset(target, 0, sizeof *target * (size_t)sl__arg_count(out));
    for (int i = 0; i < kernel->operand_count; i++) {
        element *box = target;
        for (int d = 0; d < out->dims; d++)
            box += node->starts[i * SL_DIMS_MAX + d] * out->stride[d];
        if (box != p[i])
            move_rows(&kernel->args[i], p[i], out, box, gaps);
    }
    return SL_OK;
}

/* One vector of columns, summed over a few rows. */
INLINE void reduce_vector(const element *x, int64_t rows, int64_t columns,
                          bool adds, float *out)
{
    vf sum = {0};
    for (int64_t r = 0; r < rows; r++)
        sum += load(x + r * columns);
    store(out, adds ? load(out) + sum : sum);
}

/* Columns from..to, counted in vectors, of the sum of rows. */
static void reduce_columns(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    const element *x = w->p[0];
    const double factor = w->kernel->node->attributes.number;
    const bool adds = w->kernel->adds;
    float *out = w->p[1];
    int64_t columns = sl__arg_count(&w->kernel->args[1]);
    int64_t rows = sl__arg_count(&w->kernel->args[0]) / columns;
    for (int64_t at = from * LANES; at < to * LANES; at += LANES) {
        int64_t n = columns - at < LANES ? columns - at : LANES;
        if (rows <= FEW_ROWS && n == LANES && factor == 1) {
            reduce_vector(x + at, rows, columns, adds, out + at);
            continue;
        }
        double totals[LANES] = {0};
        for (int64_t first = 0; first < rows; first += FEW_ROWS) {
            int64_t end = rows - first < FEW_ROWS ? rows : first + FEW_ROWS;
            vf sum = {0};
            for (int64_t r = first; r < end; r++)
                sum += n == LANES ? load(x + r * columns + at)
                                  : load_part(x + r * columns + at, n);
            add_lanes(totals, sum);
        }
        store_totals(out + at, totals, n, factor, adds);
    }
}

/* Sums stretches in float, and their sums in double. */
static double sum_all(const element *x, int64_t count)
{
    enum { STRETCH = 16 * LANES };
    double sum = 0;
    for (int64_t at = 0; at < count; at += STRETCH) {
        int64_t part = count - at < STRETCH ? count - at : STRETCH;
        vf total = {0};
        WALK(part, total += load(x + at + i),
             total += load_part(x + at + i, n));
        sum += sum_lanes(total);
    }
    return sum;
}

/* The sums of rows from..to. */
static void reduce_rows(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    float *out = w->p[1];
    double factor = w->kernel->node->attributes.number;
    int64_t columns = columns_of(&w->kernel->args[0]);
    for (int64_t r = from; r < to; r++) {
        double sum =
            sum_all((const element *)w->p[0] + r * columns, columns) * factor;
        out[r] = (float)(w->kernel->adds ? out[r] + sum : sum);
    }
}

static sl_status reduce(ARGS)
{
    int64_t columns = sl__arg_count(&kernel->args[1]);
    int64_t count = sl__arg_count(&kernel->args[0]);
    if (columns > 1 && sl__reduces_last(&kernel->args[0], &kernel->args[1]))
        return spread_rows(kernel, p, run, &kernel->args[0], reduce_rows);
    if (columns > 1)
        return spread(kernel, p, run, (columns + LANES - 1) / LANES,
                      GRAIN / (count / columns * LANES) + 1, reduce_columns);
    float *out = p[1];
    double sum = sum_all(p[0], count) * kernel->node->attributes.number;
    *out = (float)(kernel->adds ? *out + sum : sum);
    return SL_OK;
}

static sl_status embedding_grad(ARGS)
{
    const sl__arg *table = &kernel->args[2];
    float *out = p[2];
    int64_t columns = table->shape[1];
    int64_t count = sl__arg_count(&kernel->args[1]);
    if (!kernel->adds)
        memset(out, 0, sizeof *out * (size_t)sl__arg_count(table));
    for (int64_t place = 0; place < count; place++) {
        int64_t id = sl__integer(&kernel->args[1], p[1], place);
        if (id < 0 || id >= table->shape[0]) {
            sl__note_fault(kernel, run->block, id, place);
            continue;
        }
        const element *dy = (const element *)p[0] + place * columns;
        float *row = out + id * columns;
        WALK(columns, store(row + i, load(row + i) + load(dy + i)),
             store_part(row + i, load_part(row + i, n) + load_part(dy + i, n),
                        n));
    }
    return SL_OK;
}

#ifdef ELEMENT_IS_BF16
/* From or to f32, or nowhere. */
static void cast_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    int64_t count = to - from;
    if (w->kernel->args[0].dtype == SL_F32) {
        const float *x = (const float *)w->p[0] + from;
        bf16 *out = (bf16 *)w->p[1] + from;
        WALK(count, store(out + i, load(x + i)),
             store_part(out + i, load_part(x + i, n), n));
        return;
    }
    const bf16 *x = (const bf16 *)w->p[0] + from;
    if (w->kernel->args[1].dtype == SL_BF16) {
        memcpy((bf16 *)w->p[1] + from, x, sizeof *x * (size_t)count);
        return;
    }
    float *out = (float *)w->p[1] + from;
    if (w->kernel->adds)
        WALK(count, store(out + i, load(out + i) + load(x + i)),
             store_part(out + i, load_part(out + i, n) + load_part(x + i, n),
                        n));
    else
        WALK(count, store(out + i, load(x + i)),
             store_part(out + i, load_part(x + i, n), n));
}

static sl_status cast(ARGS)
{
    return spread(kernel, p, run, sl__arg_count(&kernel->args[0]), GRAIN,
                  cast_part);
}

/* Rows of a table of f32. */
static sl_status embedding(ARGS)
{
    const float *table = p[0];
    bf16 *out = p[2];
    int64_t columns = kernel->args[0].shape[1];
    int64_t count = sl__arg_count(&kernel->args[1]);
    for (int64_t place = 0; place < count; place++, out += columns) {
        int64_t id = sl__integer(&kernel->args[1], p[1], place);
        if (id < 0 || id >= kernel->args[0].shape[0]) {
            sl__note_fault(kernel, run->block, id, place);
            memset(out, 0, sizeof *out * (size_t)columns);
            continue;
        }
        const float *row = table + id * columns;
        WALK(columns, store(out + i, load(row + i)),
             store_part(out + i, load_part(row + i, n), n));
    }
    return SL_OK;
}
#endif
