/* SPDX-License-Identifier: MIT */
#include "trials.h"

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
    return golden_cut(own->subject->golden, own->subject->file, rows, &options,
                      out);
}

void make_subject(int golden, int64_t rows, const sl_safetensors *file,
                  subject *out)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    options.backend = "ref";
    *out = (subject){.golden = golden, .file = file, .rows = rows};
    assert_ok(sl_graph_create(&out->graph));
    golden_set_rows(rows);
    golden_models[golden].build(out->graph, file, SL_F32);
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

/* What this replica keeps of a gradient; all of it without sharding. The rest
 * must be zeros. */
static bool keep_part(const trial *own, const sl_pipeline *pipeline, float **a,
                      float **b, size_t *count)
{
    static const int some[] = {0, 1, 2, 3};
    const sl_group group = {some, own->options.replicas};
    size_t first, length;
    bool clean = true;
    if (!pipeline->shards)
        return true;
    sl_group_part(&group, *count, pipeline->replica, &first, &length);
    for (size_t i = 0; i < *count; i++)
        clean &= (i >= first && i < first + length) || (*a)[i] == 0;
    *a += first;
    *b += first;
    *count = length;
    return clean;
}

static sl_status compare_gradients(const trial *own, sl_pipeline *pipeline,
                                   int times)
{
    int stages;
    const int *all = sl_pipeline_stages(pipeline, &stages);
    for (int s = 0; s < stages; s++) {
        const sl_stage *stage;
        sl_memory *memory;
        sl_status status = sl_pipeline_stage(pipeline, all[s], &stage, &memory);
        int count =
            status ? 0 : sl_stage_port_count(stage, SL_PORT_PARAMETER_GRADIENT);
        for (int i = 0; i < count && !status; i++) {
            sl_port port, theirs;
            status =
                sl_stage_port_at(stage, SL_PORT_PARAMETER_GRADIENT, i, &port);
            if (!status)
                status = sl_stage_port(own->subject->whole.stage,
                                       SL_PORT_PARAMETER_GRADIENT, port.name,
                                       &theirs);
            size_t bytes = (size_t)port.bytes;
            float *a = malloc(bytes), *b = malloc(bytes);
            if (!status)
                status = sl_memory_read(memory, &port, 0, a, bytes);
            if (!status)
                status = sl_memory_read(own->subject->whole.memory, &theirs, 0,
                                        b, bytes);
            float *ours = a, *theirs_kept = b;
            size_t kept = bytes / sizeof *a;
            if (!status &&
                !keep_part(own, pipeline, &ours, &theirs_kept, &kept))
                status = sl_fail(SL_EINVAL, "gradient of '%s': parts of others",
                                 port.name);
            double off =
                status ? 0
                       : distance(ours, theirs_kept, kept, times ? times : 1);
            if (!status && times == 0) {
                off = 0;
                for (size_t k = 0; k < bytes / sizeof *a; k++)
                    off += fabs((double)a[k]);
            }
            if (!(off <= 1e-5))
                status = sl_fail(SL_EINVAL,
                                 "gradient of '%s' in stage %d is "
                                 "off by %g",
                                 port.name, all[s], off);
            free(a);
            free(b);
        }
        if (status)
            return status;
    }
    return SL_OK;
}

static sl_status compare_outputs(const trial *own, sl_pipeline *pipeline)
{
    const char *name = strcmp(golden_models[own->subject->golden].name, "gpt2")
                           ? "output"
                           : "logits";
    sl_array found;
    sl_port port;
    if (sl_pipeline_output(pipeline, name, &found))
        return SL_OK; /* On another rank. */
    sl_status status =
        sl_stage_port(own->subject->whole.stage, SL_PORT_OUTPUT, name, &port);
    float *theirs = malloc((size_t)port.bytes);
    if (!status)
        status = sl_memory_read(own->subject->whole.memory, &port, 0, theirs,
                                (size_t)port.bytes);
    double off = distance(found.data, theirs, (size_t)port.bytes / 4, 1);
    free(theirs);
    if (!status && !(off <= 1e-5))
        status = sl_fail(SL_EINVAL, "output '%s' is off by %g", name, off);
    return status;
}

static sl_status compare_loss(const trial *own, sl_pipeline *pipeline)
{
    double loss;
    int count;
    if (!sl_pipeline_losses(pipeline, &count))
        return own->options.share_losses
                   ? sl_fail(SL_EINVAL, "the losses were not shared")
                   : SL_OK;
    sl_status status = sl_pipeline_loss(pipeline, &loss);
    sl_port port;
    float theirs = 0;
    if (!status)
        status = sl_stage_port(own->subject->whole.stage, SL_PORT_OUTPUT,
                               "loss", &port);
    if (!status)
        status = sl_memory_read(own->subject->whole.memory, &port, 0, &theirs,
                                sizeof theirs);
    if (!status &&
        !(fabs(loss - (double)theirs) <= 1e-5 * (fabs((double)theirs) + 1e-3)))
        status = sl_fail(SL_EINVAL, "the loss is %.8g, expected %.8g", loss,
                         (double)theirs);
    return status;
}

/* FNV-1a over the gradients of all stages of a rank. */
static sl_status hash_gradients(sl_pipeline *pipeline, uint64_t *out)
{
    int stages;
    const int *all = sl_pipeline_stages(pipeline, &stages);
    sl_status status = SL_OK;
    *out = 14695981039346656037u;
    for (int s = 0; s < stages && !status; s++) {
        const sl_stage *stage;
        sl_memory *memory;
        status = sl_pipeline_stage(pipeline, all[s], &stage, &memory);
        int count =
            status ? 0 : sl_stage_port_count(stage, SL_PORT_PARAMETER_GRADIENT);
        for (int i = 0; i < count && !status; i++) {
            sl_port port;
            status =
                sl_stage_port_at(stage, SL_PORT_PARAMETER_GRADIENT, i, &port);
            unsigned char *data = malloc((size_t)port.bytes);
            if (!status)
                status =
                    sl_memory_read(memory, &port, 0, data, (size_t)port.bytes);
            for (int64_t k = 0; k < port.bytes && !status; k++)
                *out = (*out ^ data[k]) * 1099511628211u;
            free(data);
        }
    }
    return status;
}

/* --------------------------------------------------------------- running -- */

static sl_status load(const trial *own, sl_pipeline *pipeline)
{
    int stages;
    const int *all = sl_pipeline_stages(pipeline, &stages);
    sl_status status = SL_OK;
    for (int s = 0; s < stages && !status; s++) {
        const sl_stage *stage;
        sl_memory *memory;
        status = sl_pipeline_stage(pipeline, all[s], &stage, &memory);
        int count = status ? 0 : sl_stage_port_count(stage, SL_PORT_PARAMETER);
        for (int i = 0; i < count && !status; i++) {
            sl_port port, theirs;
            status = sl_stage_port_at(stage, SL_PORT_PARAMETER, i, &port);
            if (!status)
                status = sl_stage_port(own->subject->whole.stage,
                                       SL_PORT_PARAMETER, port.name, &theirs);
            void *data = malloc((size_t)port.bytes);
            if (!status)
                status = sl_memory_read(own->subject->whole.memory, &theirs, 0,
                                        data, (size_t)port.bytes);
            if (!status)
                status =
                    sl_memory_write(memory, &port, 0, data, (size_t)port.bytes);
            free(data);
        }
    }
    return status;
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

/* Parameters that are in parts come together, and fall apart again. */
static sl_status compare_parameters(const trial *own, sl_pipeline *pipeline)
{
    int stages;
    const int *all = sl_pipeline_stages(pipeline, &stages);
    sl_status status = sl_pipeline_unshard(pipeline);
    for (int s = 0; s < stages && !status; s++) {
        const sl_stage *stage;
        sl_memory *memory;
        status = sl_pipeline_stage(pipeline, all[s], &stage, &memory);
        int count = status ? 0 : sl_stage_port_count(stage, SL_PORT_PARAMETER);
        for (int i = 0; i < count && !status; i++) {
            sl_port port, theirs;
            status = sl_stage_port_at(stage, SL_PORT_PARAMETER, i, &port);
            if (!status)
                status = sl_stage_port(own->subject->whole.stage,
                                       SL_PORT_PARAMETER, port.name, &theirs);
            void *a = malloc((size_t)port.bytes);
            void *b = malloc((size_t)port.bytes);
            if (!status)
                status =
                    sl_memory_read(memory, &port, 0, a, (size_t)port.bytes);
            if (!status)
                status = sl_memory_read(own->subject->whole.memory, &theirs, 0,
                                        b, (size_t)port.bytes);
            if (!status && memcmp(a, b, (size_t)port.bytes))
                status =
                    sl_fail(SL_EINVAL, "'%s' came back as another", port.name);
            free(a);
            free(b);
        }
    }
    return status ? status : sl_pipeline_reshard(pipeline);
}

static sl_status run_steps(sl_comm *comm, trial *own, sl_pipeline *pipeline)
{
    const subject *s = own->subject;
    sl_array arrays[4];
    sl_argument arguments[4];
    bool alone = own->options.replicas == 1;
    sl_status status = SL_OK;
    share_rows(own, pipeline, arrays, arguments);
    /* An eval before, one between and one after touch no gradient. */
    for (int step = 0; step <= own->steps && !status; step++) {
        status = sl_pipeline_eval(pipeline, arguments, s->count);
        if (!status && alone)
            status = compare_outputs(own, pipeline);
        if (!status && alone)
            status = compare_loss(own, pipeline);
        if (!status)
            status = compare_gradients(own, pipeline, step);
        if (step == own->steps || status)
            break;
        status = sl_pipeline_step(pipeline, arguments, s->count, 1);
        if (!status && alone)
            status = compare_loss(own, pipeline);
        if (!status && alone)
            status = compare_outputs(own, pipeline);
        if (!status && step == 0)
            status = trace_and_check(comm, pipeline, own->most_sends);
    }
    if (!status)
        status = trace_and_check(comm, pipeline, 0);
    return status ? status : compare_gradients(own, pipeline, own->steps);
}

sl_status run_trial_rank(sl_comm *comm, void *context)
{
    trial *own = context;
    sl_pipeline *pipeline = NULL;
    sl_pipeline_options options = own->options;
    options.schedule = own->schedule;
    sl_status status =
        sl_pipeline_create(comm, build, own, &options, &pipeline);
    if (!status && own->noise)
        pipeline->before = be_late;
    if (!status)
        status = sl_pipeline_prepare(pipeline, own->subject->rows /
                                                   own->options.replicas);
    if (!status)
        status = load(own, pipeline);
    if (!status)
        status = run_steps(comm, own, pipeline);
    if (own->helped && pipeline && pipeline->helped_s > 0)
        atomic_store(own->helped, true);
    if (!status)
        status = compare_parameters(own, pipeline);
    if (!status && own->bits)
        status = hash_gradients(pipeline, &own->bits[sl_comm_rank(comm)]);
    if (!status) {
        sl_pipeline_zero_gradients(pipeline);
        status = compare_gradients(own, pipeline, 0);
    }
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
#ifdef SLUICE_TSAN
    /* Which does not see into oneDNN. */
    out.options.stage.backend = "ref";
#endif
    out.options.stage.recompute = way % 5 == 0;
    out.options.keep_outputs = true;
    out.options.share_losses = way % 2;
    out.options.timeout_s = 15;
    /* There is nothing to steal on ref. */
    bool steals = way % 3 ? way % 8 == 1 : way % 4;
    out.options.work_stealing = steals ? SL_STEAL_ALWAYS : SL_STEAL_NEVER;
    return out;
}
