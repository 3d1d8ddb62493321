/* SPDX-License-Identifier: MIT
 *
 * Ops that go element by element, and dropout. */

/* out[i] = EXPRESSION of x = p[0][i]. */
#define MAP(name, EXPRESSION)                                                  \
    static void name##_part(void *data, int worker, int64_t i, int64_t to)     \
    {                                                                          \
        (void)worker;                                                          \
        const work *w = data;                                                  \
        const element *a = w->p[0];                                            \
        element *out = w->p[1];                                                \
        const float number = (float)w->kernel->node->attributes.number;        \
        (void)number;                                                          \
        for (; i + LANES <= to; i += LANES) {                                  \
            vf x = load(a + i);                                                \
            store(out + i, EXPRESSION);                                        \
        }                                                                      \
        if (i < to) {                                                          \
            vf x = load_part(a + i, to - i);                                   \
            store_part(out + i, EXPRESSION, to - i);                           \
        }                                                                      \
    }                                                                          \
    static sl_status name(ARGS)                                                \
    {                                                                          \
        return spread(kernel, p, run, sl__arg_count(&kernel->args[0]), GRAIN,  \
                      name##_part);                                            \
    }

/* out[i] = EXPRESSION of dy = p[0][i] and z = p[1][i]. */
#define MAP2(name, EXPRESSION)                                                 \
    static void name##_part(void *data, int worker, int64_t i, int64_t to)     \
    {                                                                          \
        (void)worker;                                                          \
        const work *w = data;                                                  \
        const element *a = w->p[0], *b = w->p[1];                              \
        element *out = w->p[2];                                                \
        for (; i + LANES <= to; i += LANES) {                                  \
            vf dy = load(a + i), z = load(b + i);                              \
            store(out + i, EXPRESSION);                                        \
        }                                                                      \
        if (i < to) {                                                          \
            vf dy = load_part(a + i, to - i), z = load_part(b + i, to - i);    \
            store_part(out + i, EXPRESSION, to - i);                           \
        }                                                                      \
    }                                                                          \
    static sl_status name(ARGS)                                                \
    {                                                                          \
        return spread(kernel, p, run, sl__arg_count(&kernel->args[0]), GRAIN,  \
                      name##_part);                                            \
    }

INLINE vf gelu_inner(vf x)
{
    return x * (0.7978845608f + 0.0356774081f * x * x);
}

INLINE vf gelu_tanh_of(vf x)
{
    return 0.5f * x * (1.0f + tanh_lanes(gelu_inner(x)));
}

/* Beyond these limits slopes and sigmoids are exactly 0 or 1, and the factors
 * from which they are computed would overflow. */
INLINE vf within(vf x, float most)
{
    x = choose(x > splat(most), splat(most), x);
    return choose(x < splat(-most), splat(-most), x);
}

INLINE vf gelu_tanh_slope(vf x)
{
    x = within(x, 30);
    vf t = tanh_lanes(gelu_inner(x));
    vf inner = 0.7978845608f + 3 * 0.0356774081f * x * x;
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner;
}

INLINE vf gelu_erf_slope(vf x)
{
    x = within(x, 30);
    return 0.5f * (1.0f + erf_lanes(x * 0.7071067812f)) +
           x * exp_lanes(-0.5f * x * x) * 0.3989422804f;
}

INLINE vf sigmoid_lanes(vf x)
{
    return 1.0f / (1.0f + exp_lanes(-x));
}

INLINE vf silu_slope(vf x)
{
    x = within(x, 88);
    vf s = sigmoid_lanes(x);
    return s * (1.0f + x * (1.0f - s));
}

MAP(scale, x *number)
MAP(relu, choose(x <= splat(0), splat(0), x))
MAP(gelu_tanh, gelu_tanh_of(x))
MAP(gelu_erf, 0.5f * x * (1.0f + erf_lanes(x * 0.7071067812f)))
MAP(silu, choose(x < splat(-88), splat(0), x *sigmoid_lanes(x)))
MAP2(relu_grad, choose(z > splat(0), dy, splat(0)))
MAP2(gelu_tanh_grad, dy *gelu_tanh_slope(z))
MAP2(gelu_erf_grad, dy *gelu_erf_slope(z))
MAP2(silu_grad, dy *silu_slope(z))
#undef MAP
#undef MAP2

/* After how many elements an operand repeats: all of them, or those of the
 * dimensions after the broadcast ones. */
static int64_t period_of(const sl__arg *arg)
{
    int64_t period = 1;
    for (int d = arg->dims - 1; d >= 0; d--) {
        if (arg->shape[d] > 1 && arg->stride[d] == 0)
            break;
        period *= arg->shape[d];
    }
    return period;
}

INLINE vf apply(sl__op op, vf a, vf b)
{
    return op == SL__ADD ? a + b : op == SL__SUB ? a - b : a * b;
}

/* `a` and `b` advance with out, or stay if their step is 0. */
#define BINARY_SPAN(name, B)                                                   \
    INLINE void name(sl__op op, const element *a, int64_t a_step, const B *b,  \
                     int64_t b_step, element *out, int64_t count)              \
    {                                                                          \
        vf a_all = splat(get(a)), b_all = splat(get(b));                       \
        WALK(count,                                                            \
             store(out + i, apply(op, a_step ? load(a + i) : a_all,            \
                                  b_step ? load(b + i) : b_all)),              \
             store_part(out + i,                                               \
                        apply(op, a_step ? load_part(a + i, n) : a_all,        \
                              b_step ? load_part(b + i, n) : b_all),           \
                        n));                                                   \
    }
BINARY_SPAN(binary_span, element)
BINARY_SPAN(binary_span_f32, float)
#undef BINARY_SPAN

/* Multiplies by a bool mask. */
INLINE void mask_span(const element *a, int64_t a_step, const uint8_t *mask,
                      int64_t mask_step, element *out, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        put(out + i, get(a + i * a_step) * (float)(mask[i * mask_step] != 0));
}

/* Processes from..to in spans that end where an operand repeats; one of period
 * 1 does not end a span. */
INLINE void binary_part(sl__op op, const work *w, int64_t from, int64_t to)
{
    const sl__arg *args = w->kernel->args;
    element *out = w->p[2];
    int64_t pa = period_of(&args[0]), pb = period_of(&args[1]);
    while (from < to) {
        int64_t ia = from % pa, ib = from % pb, count = to - from;
        if (pa > 1 && count > pa - ia)
            count = pa - ia;
        if (pb > 1 && count > pb - ib)
            count = pb - ib;
        const element *a = (const element *)w->p[0] + ia;
        if (args[1].dtype == SL_BOOL)
            mask_span(a, pa > 1, (const uint8_t *)w->p[1] + ib, pb > 1,
                      out + from, count);
        else if (args[1].dtype == args[0].dtype)
            binary_span(op, a, pa > 1, (const element *)w->p[1] + ib, pb > 1,
                        out + from, count);
        else
            binary_span_f32(op, a, pa > 1, (const float *)w->p[1] + ib, pb > 1,
                            out + from, count);
        from += count;
    }
}

#define BINARY(name, OP)                                                       \
    static void name##_part(void *data, int worker, int64_t from, int64_t to)  \
    {                                                                          \
        (void)worker;                                                          \
        binary_part(OP, data, from, to);                                       \
    }                                                                          \
    static sl_status name(ARGS)                                                \
    {                                                                          \
        return spread(kernel, p, run, sl__arg_count(&kernel->args[2]), GRAIN,  \
                      name##_part);                                            \
    }
BINARY(add, SL__ADD)
BINARY(sub, SL__SUB)
BINARY(mul, SL__MUL)
#undef BINARY

static void dropout_part(void *data, int worker, int64_t from, int64_t to)
{
    (void)worker;
    const work *w = data;
    const sl__attributes *attributes = &w->kernel->node->attributes;
    const element *x = w->p[0];
    element *out = w->p[1];
    uint64_t key = sl__dropout_key(w->run->block->seed, attributes->integer);
    uint64_t threshold = sl__dropout_threshold(attributes->number);
    float factor = (float)(1 / (1 - attributes->number));
    for (int64_t i = from; i < to; i++) {
        float kept =
            sl__dropout_keeps(key, (uint64_t)i, threshold) ? factor : 0;
        put(out + i, kept != 0 ? get(x + i) * kept : 0);
    }
}

static sl_status dropout(ARGS)
{
    return spread(kernel, p, run, sl__arg_count(&kernel->args[0]), GRAIN / 4,
                  dropout_part);
}
