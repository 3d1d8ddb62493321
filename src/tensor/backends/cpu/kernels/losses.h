/* SPDX-License-Identifier: MIT
 *
 * Losses and their gradients. */

static sl_status mse(ARGS)
{
    enum { STRETCH = 16 * LANES };
    (void)run;
    const element *x = p[0];
    const float *target = p[1];
    int64_t count = sl__arg_count(&kernel->args[0]);
    double sum = 0;
    for (int64_t at = 0; at < count; at += STRETCH) {
        int64_t part = count - at < STRETCH ? count - at : STRETCH;
        vf total = {0};
        WALK(
            part,
            {
                vf d = load(x + at + i) - load(target + at + i);
                total += d * d;
            },
            {
                vf d = load_part(x + at + i, n) - load_part(target + at + i, n);
                total += d * d;
            });
        sum += sum_lanes(total);
    }
    *(float *)p[2] = (float)(sum / (double)count);
    return SL_OK;
}

static void mse_grad_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    const element *x = (const element *)w->p[1] + from;
    const float *target = (const float *)w->p[2] + from;
    element *out = (element *)w->p[3] + from;
    int64_t count = sl__arg_count(&w->kernel->args[1]);
    float factor = (float)(2.0 * *(const float *)w->p[0] / (double)count);
    if (w->kernel->node->attributes.operand == 1)
        factor = -factor;
    WALK(to - from, store(out + i, factor * (load(x + i) - load(target + i))),
         store_part(out + i,
                    factor * (load_part(x + i, n) - load_part(target + i, n)),
                    n));
}

static sl_status mse_grad(ARGS)
{
    return spread(kernel, p, run, sl__arg_count(&kernel->args[1]), GRAIN,
                  mse_grad_part);
}

static void cross_entropy_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    int64_t columns = columns_of(&w->kernel->args[0]);
    float *saved = w->p[3];
    for (int64_t r = from; r < to; r++) {
        const element *x = (const element *)w->p[0] + r * columns;
        float most = row_max(x, columns);
        saved[2 * r] = most;
        saved[2 * r + 1] = logf(row_exp_sum(x, columns, most));
    }
}

static sl_status cross_entropy(ARGS)
{
    const sl__arg *logits = &kernel->args[0], *labels = &kernel->args[1];
    const element *x = p[0];
    const float *saved = p[3];
    int64_t columns = columns_of(logits), rows = sl__arg_count(labels);
    int64_t counted = 0;
    double loss = 0;
    spread_rows(kernel, p, run, logits, cross_entropy_part);
    for (int64_t r = 0; r < rows; r++) {
        int64_t label = sl__integer(labels, p[1], r);
        if (label == kernel->node->attributes.integer)
            continue;
        if (label < 0 || label >= columns) {
            sl__note_fault(kernel, run->block, label, r);
            continue;
        }
        loss += (double)saved[2 * r] - get(x + r * columns + label) +
                saved[2 * r + 1];
        counted++;
    }
    *(float *)p[2] = (float)(loss / (double)counted);
    return SL_OK;
}

static void cross_entropy_grad_part(void *data, int worker, int64_t from,
                                    int64_t to)
{
    (void)worker;
    const work *w = data;
    const sl__arg *labels = &w->kernel->args[2];
    const float *saved = w->p[3];
    int64_t ignore = w->kernel->node->attributes.integer;
    int64_t columns = columns_of(&w->kernel->args[1]);
    float factor = (float)(*(const float *)w->p[0] /
                           (double)sl__count_labels(labels, w->p[2], ignore));
    for (int64_t r = from; r < to; r++) {
        const element *x = (const element *)w->p[1] + r * columns;
        element *out = (element *)w->p[4] + r * columns;
        int64_t label = sl__integer(labels, w->p[2], r);
        if (label == ignore || label < 0 || label >= columns) {
            memset(out, 0, sizeof *out * (size_t)columns);
            continue;
        }
        float most = saved[2 * r], scale = factor * expf(-saved[2 * r + 1]);
        vf at_label = exp_lanes(at_most_0(splat(get(x + label)) - most));
        WALK(columns,
             store(out + i, exp_lanes(at_most_0(load(x + i) - most)) * scale),
             store_part(
                 out + i,
                 exp_lanes(at_most_0(load_part(x + i, n) - most)) * scale, n));
        put(out + label, at_label[0] * scale - factor);
    }
}

static sl_status cross_entropy_grad(ARGS)
{
    const sl__arg *labels = &kernel->args[2];
    int64_t columns = columns_of(&kernel->args[1]);
    for (int64_t r = 0; r < sl__arg_count(labels); r++) {
        int64_t label = sl__integer(labels, p[2], r);
        if (label != kernel->node->attributes.integer &&
            (label < 0 || label >= columns))
            sl__note_fault(kernel, run->block, label, r);
    }
    return spread_rows(kernel, p, run, &kernel->args[1],
                       cross_entropy_grad_part);
}
