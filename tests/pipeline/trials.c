/* SPDX-License-Identifier: MIT
 *
 * See trials.h. */
#include "trials.h"

#include "base/try.h"
#include "pipeline/run/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static sl_status build(void *context, int64_t rows, const sl_model *like,
                       sl_model **out)
{
    const trial *own = context;
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    options.stages = own->stages;
    options.route = own->route;
    options.feed = own->feed;
    options.like = like;
    return golden_cut(own->subject->golden, own->subject->file,
                      own->subject->precision, rows, &options, out);
}

void make_subject(int golden, sl_dtype precision, int64_t rows,
                  const sl_safetensors *file, subject *out)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    options.backend = "ref";
    *out = (subject){
        .golden = golden, .precision = precision, .file = file, .rows = rows};
    assert_ok(sl_graph_create(&out->graph));
    golden_set_rows(rows);
    golden_models[golden].build(out->graph, file, precision);
    golden_set_rows(0);
    out->whole = test_compile(out->graph, &options, 1);
    test_fill_all(&out->whole, 31, 0, 7);
    const sl_stage *stage = out->whole.stage;
    out->count = sl_stage_port_count(stage, SL_PORT_INPUT);
    for (int i = 0; i < out->count; i++) {
        sl_port port;
        assert_ok(sl_stage_port_at(stage, SL_PORT_INPUT, i, &port));
        sl_array *array = &out->arrays[i];
        array->dtype = port.dtype;
        array->dims = port.dims;
        memcpy(array->shape, port.shape, sizeof array->shape);
        array->data = test_get(&out->whole, SL_PORT_INPUT, port.name, 0, NULL);
        out->arguments[i] =
            (sl_argument){port.name, SL_SPREAD_SPLIT, 0, array, 1};
    }
    test_run(&out->whole, "FB", 0);
}

void release_subject(subject *old)
{
    for (int i = 0; i < old->count; i++)
        free((void *)old->arrays[i].data);
    test_release(&old->whole);
    sl_graph_destroy(old->graph);
}

/* ------------------------------------------------------------- comparing -- */

/* |ours / times - theirs| over |theirs|, with a small floor. */
static double distance(const float *ours, const float *theirs, size_t count,
                       double times)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        double off = (double)ours[i] / times - (double)theirs[i];
        difference += off * off;
        norm += (double)theirs[i] * (double)theirs[i];
    }
    return sqrt(difference) / (sqrt(norm) + 1e-4 * sqrt((double)count));
}

/* How far results may be off: the order of sums differs. */
static double tolerance(const trial *own)
{
    /* A GPU also rounds the weights of attention to bf16. */
    double half = test_is_on_gpu() ? 3e-2 : 2e-2;
    return own->subject->precision == SL_BF16 ? half : 1e-5;
}

/* A parameter, or a gradient, of a stage: here and in the uncut model. */
typedef struct pair {
    const trial *own;
    const sl_pipeline *pipeline;
    int stage;
    sl_memory *memory;
    sl_port port;
    void *ours, *theirs; /* values */
} pair;

typedef sl_status (*pair_fn)(const pair *p, void *context);

static sl_status visit(pair *p, sl_port_kind kind, pair_fn call, void *context)
{
    const test_stage *whole = &p->own->subject->whole;
    size_t bytes = (size_t)p->port.bytes;
    sl_port theirs;
    SL__TRY(sl_stage_port(whole->stage, kind, p->port.name, &theirs));
    p->ours = malloc(bytes);
    p->theirs = malloc(bytes);
    sl_status status = sl_memory_read(p->memory, &p->port, 0, p->ours, bytes);
    if (!status)
        status = sl_memory_read(whole->memory, &theirs, 0, p->theirs, bytes);
    if (!status)
        status = call(p, context);
    free(p->ours);
    free(p->theirs);
    return status;
}

/* Calls a function for all ports of a kind of this rank's stages. */
static sl_status for_each(const trial *own, const sl_pipeline *pipeline,
                          sl_port_kind kind, pair_fn call, void *context)
{
    int stages;
    const int *all = sl_pipeline_stages(pipeline, &stages);
    for (int s = 0; s < stages; s++) {
        const sl_stage *stage;
        pair p = {.own = own, .pipeline = pipeline, .stage = all[s]};
        SL__TRY(sl_pipeline_stage(pipeline, all[s], &stage, &p.memory));
        for (int i = 0; i < sl_stage_port_count(stage, kind); i++) {
            SL__TRY(sl_stage_port_at(stage, kind, i, &p.port));
            SL__TRY(visit(&p, kind, call, context));
        }
    }
    return SL_OK;
}

/* The shard of a gradient that this replica keeps, all of it without shards.
 * The rest must be zeros. */
static sl_status compare_gradient(const pair *p, void *context)
{
    static const int some[] = {0, 1, 2, 3};
    const sl_group group = {some, p->own->options.replicas};
    const int times = *(const int *)context;
    const float *ours = p->ours, *theirs = p->theirs;
    size_t count = (size_t)p->port.bytes / sizeof *ours;
    size_t first = 0, length = count;
    double off = 0;
    if (p->pipeline->shards)
        sl_group_part(&group, count, p->pipeline->replica, &first, &length);
    for (size_t i = 0; i < count; i++) {
        bool kept = i >= first && i < first + length;
        if (!kept && ours[i] != 0)
            return sl_fail(SL_EINVAL, "gradient of '%s': shards of others",
                           p->port.name);
        off += times ? 0 : fabs((double)ours[i]);
    }
    if (times)
        off = distance(ours + first, theirs + first, length, times);
    return off <= tolerance(p->own)
               ? SL_OK
               : sl_fail(SL_EINVAL, "gradient of '%s' in stage %d is off by %g",
                         p->port.name, p->stage, off);
}

/* Gradients are those of so many steps; of none, zeros. */
static sl_status compare_gradients(const trial *own,
                                   const sl_pipeline *pipeline, int times)
{
    return for_each(own, pipeline, SL_PORT_PARAMETER_GRADIENT, compare_gradient,
                    &times);
}

static sl_status compare_outputs(const trial *own, sl_pipeline *pipeline)
{
    const test_stage *whole = &own->subject->whole;
    const char *name = strcmp(golden_models[own->subject->golden].name, "gpt2")
                           ? "output"
                           : "logits";
    sl_array found;
    if (sl_pipeline_output(pipeline, name, &found))
        return SL_OK; /* On another rank. */
    size_t count;
    float *theirs = test_get(whole, SL_PORT_OUTPUT, name, 0, &count);
    double off = distance(found.data, theirs, count, 1);
    free(theirs);
    return off <= tolerance(own)
               ? SL_OK
               : sl_fail(SL_EINVAL, "output '%s' is off by %g", name, off);
}

static sl_status compare_loss(const trial *own, sl_pipeline *pipeline)
{
    double loss;
    int count;
    if (!sl_pipeline_losses(pipeline, &count))
        return own->options.share_losses
                   ? sl_fail(SL_EINVAL, "the losses were not shared")
                   : SL_OK;
    SL__TRY(sl_pipeline_loss(pipeline, &loss));
    float *theirs =
        test_get(&own->subject->whole, SL_PORT_OUTPUT, "loss", 0, NULL);
    double expected = (double)*theirs;
    free(theirs);
    return fabs(loss - expected) <= tolerance(own) * (fabs(expected) + 1e-3)
               ? SL_OK
               : sl_fail(SL_EINVAL, "the loss is %.8g, expected %.8g", loss,
                         expected);
}

/* FNV-1a over the gradients of all stages of a rank. */
static sl_status hash_gradient(const pair *p, void *context)
{
    uint64_t *hash = context;
    const unsigned char *data = p->ours;
    for (int64_t i = 0; i < p->port.bytes; i++)
        *hash = (*hash ^ data[i]) * 1099511628211u;
    return SL_OK;
}

/* --------------------------------------------------------------- running -- */

static sl_status load(const pair *p, void *context)
{
    (void)context;
    return sl_memory_write(p->memory, &p->port, 0, p->theirs,
                           (size_t)p->port.bytes);
}

/* Sleeps now and then, for as long as chance has it. */
static void be_late(void)
{
    static _Thread_local uint64_t state;
    if (!state)
        state = (uint64_t)(uintptr_t)&state;
    if (test_random_int(&state, 0, 5) == 0)
        usleep((useconds_t)test_random_int(&state, 1, 300));
}

/* The batch of a replica: its share of the rows. */
static void share_rows(const trial *own, const sl_pipeline *pipeline,
                       sl_array arrays[4], sl_argument arguments[4])
{
    const subject *s = own->subject;
    int64_t rows = s->rows / own->options.replicas;
    for (int i = 0; i < s->count; i++) {
        arrays[i] = s->arrays[i];
        arguments[i] = s->arguments[i];
        arguments[i].arrays = &arrays[i];
        size_t row = sl_dtype_bytes(arrays[i].dtype);
        for (int d = 1; d < arrays[i].dims; d++)
            row *= (size_t)arrays[i].shape[d];
        arrays[i].shape[0] = rows;
        arrays[i].data = (const char *)arrays[i].data +
                         (size_t)(pipeline->replica * rows) * row;
    }
}

static sl_status compare_parameter(const pair *p, void *context)
{
    (void)context;
    return memcmp(p->ours, p->theirs, (size_t)p->port.bytes)
               ? sl_fail(SL_EINVAL, "'%s' came back as another", p->port.name)
               : SL_OK;
}

static sl_status compare_results(const trial *own, sl_pipeline *pipeline)
{
    if (own->options.replicas > 1)
        return SL_OK;
    SL__TRY(compare_outputs(own, pipeline));
    return compare_loss(own, pipeline);
}

static sl_status run_steps(sl_comm *comm, trial *own, sl_pipeline *pipeline)
{
    const int count = own->subject->count;
    sl_array arrays[4];
    sl_argument arguments[4];
    share_rows(own, pipeline, arrays, arguments);
    /* An eval before, one between and one after touch no gradient. */
    for (int step = 0; step <= own->steps; step++) {
        SL__TRY(sl_pipeline_eval(pipeline, arguments, count));
        SL__TRY(compare_results(own, pipeline));
        SL__TRY(compare_gradients(own, pipeline, step));
        if (step == own->steps)
            break;
        SL__TRY(sl_pipeline_step(pipeline, arguments, count, 1));
        SL__TRY(compare_results(own, pipeline));
        if (step == 0)
            SL__TRY(trace_and_check(comm, pipeline, own->most_sends));
    }
    SL__TRY(trace_and_check(comm, pipeline, 0));
    return compare_gradients(own, pipeline, own->steps);
}

static sl_status try_trial(sl_comm *comm, trial *own, sl_pipeline *pipeline)
{
    SL__TRY(sl_pipeline_prepare(pipeline,
                                own->subject->rows / own->options.replicas));
    SL__TRY(for_each(own, pipeline, SL_PORT_PARAMETER, load, NULL));
    SL__TRY(run_steps(comm, own, pipeline));
    /* Shards of parameters are gathered, and freed again. */
    SL__TRY(sl_pipeline_unshard(pipeline));
    SL__TRY(
        for_each(own, pipeline, SL_PORT_PARAMETER, compare_parameter, NULL));
    SL__TRY(sl_pipeline_reshard(pipeline));
    if (own->bits) {
        uint64_t *hash = &own->bits[sl_comm_rank(comm)];
        *hash = 14695981039346656037u;
        SL__TRY(for_each(own, pipeline, SL_PORT_PARAMETER_GRADIENT,
                         hash_gradient, hash));
    }
    sl_pipeline_zero_gradients(pipeline);
    return compare_gradients(own, pipeline, 0);
}

sl_status run_trial_rank(sl_comm *comm, void *context)
{
    trial *own = context;
    sl_pipeline *pipeline;
    sl_pipeline_options options = own->options;
    options.schedule = own->schedule;
    SL__TRY(sl_pipeline_create(comm, build, own, &options, &pipeline));
    if (own->noise)
        pipeline->before = be_late;
    sl_status status = try_trial(comm, own, pipeline);
    if (own->helped && pipeline->helped_s > 0)
        atomic_store(own->helped, true);
    sl_pipeline_destroy(pipeline);
    return status;
}

trial make_trial(const subject *s, const sl_schedule *schedule, unsigned way)
{
    sl_extent extent = sl_schedule_extent(schedule);
    trial out = {.subject = s,
                 .schedule = schedule,
                 .stages = extent.stages,
                 .route = way % 2 ? SL_ROUTE_HOP : SL_ROUTE_DIRECT,
                 .feed = way / 2 % 2 ? SL_FEED_FIRST : SL_FEED_USERS,
                 .options = SL_PIPELINE_OPTIONS_INIT,
                 .steps = 2};
    out.options.stage.backend = way % 3 ? "ref" : "cpu";
    out.options.stage.recompute = way % 5 == 0;
    /* Without, a GPU's steps are recorded as a graph. */
    out.options.keep_outputs = !test_is_on_gpu() || way % 2;
    out.options.share_losses = way % 2;
    out.options.timeout_s = 15;
    /* There is nothing to steal on ref. */
    bool steals = way % 3 ? way % 8 == 1 : way % 4;
    out.options.work_stealing = steals ? SL_STEAL_ALWAYS : SL_STEAL_NEVER;
    return out;
}
