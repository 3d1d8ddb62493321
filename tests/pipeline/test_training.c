/* SPDX-License-Identifier: MIT
 *
 * Optimizers on pipelines: the golden models train as they did in PyTorch,
 * under every schedule, on any number of ranks. */
#include "golden_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_MAX = 64 };

/* A golden with its parameters and its batch. */
typedef struct subject {
    int golden;
    sl_dtype precision;
    const sl_safetensors *file;
    sl_graph *graph;
    test_stage whole;
    sl_argument arguments[4];
    sl_array arrays[4];
    int count;
    int64_t rows;
    const float *losses;
    float *autocast; /* losses of PyTorch under autocast; or NULL */
    int steps;
    sl_optimizer_options optimizer;
    double rate;
} subject;

typedef struct job {
    const subject *subject;
    const sl_schedule *schedule;
    const char *backend;
    double worst;          /* by rank 0: relative */
    double worst_autocast; /* the same, to PyTorch's under autocast */
} job;

static sl_status build(void *context, int64_t rows, const sl_model *like,
                       sl_model **out)
{
    const job *own = context;
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    options.stages = sl_schedule_extent(own->schedule).stages;
    options.like = like;
    return golden_cut(own->subject->golden, own->subject->file,
                      own->subject->precision, rows, &options, out);
}

static void make_subject(int golden, sl_dtype precision,
                         const sl_safetensors *file, subject *out)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    options.backend = "ref";
    bool adamw = sl_safetensors_find(file, "adamw_losses");
    const sl_safetensor *losses =
        golden_find(file, adamw ? "adamw_losses" : "sgd_losses");
    *out = (subject){.golden = golden,
                     .precision = precision,
                     .file = file,
                     .optimizer = SL_OPTIMIZER_OPTIONS_INIT,
                     .losses = golden_floats(losses),
                     .steps = (int)(losses->bytes / sizeof(float)),
                     .rate = adamw ? 1e-3 : 0.05};
    if (adamw && precision == SL_BF16) {
        sl_safetensors *curves = golden_open("gpt2_bf16");
        out->autocast = golden_floats(golden_find(curves, "adamw_losses_bf16"));
        sl_safetensors_close(curves);
    }
    out->optimizer.decay_all = true;
    if (!adamw) {
        out->optimizer.kind = SL_UPDATE_SGD;
        out->optimizer.decay = 0;
        out->optimizer.clip = 0;
    }
    assert_ok(sl_graph_create(&out->graph));
    golden_set_rows(0);
    golden_models[golden].build(out->graph, file, precision);
    out->whole = test_compile(out->graph, &options, 1);
    float *missing = adamw ? golden_missing_biases(file) : NULL;
    golden_load_whole(&out->whole, file, missing);
    free(missing);
    out->count = sl_stage_port_count(out->whole.stage, SL_PORT_INPUT);
    for (int i = 0; i < out->count; i++) {
        sl_port port;
        assert_ok(sl_stage_port_at(out->whole.stage, SL_PORT_INPUT, i, &port));
        sl_array *array = &out->arrays[i];
        *array = (sl_array){.dtype = port.dtype, .dims = port.dims};
        memcpy(array->shape, port.shape, sizeof array->shape);
        array->data = test_get(&out->whole, SL_PORT_INPUT, port.name, 0, NULL);
        out->arguments[i] =
            (sl_argument){port.name, SL_SPREAD_SPLIT, 0, array, 1};
        out->rows = port.shape[0];
    }
}

static void release_subject(subject *old)
{
    for (int i = 0; i < old->count; i++)
        free((void *)old->arrays[i].data);
    free((void *)old->losses);
    free(old->autocast);
    test_release(&old->whole);
    sl_graph_destroy(old->graph);
}

/* Copies the golden's parameters into the stages of a rank. */
static sl_status load(const subject *s, sl_pipeline *pipeline)
{
    int stages;
    const int *all = sl_pipeline_stages(pipeline, &stages);
    sl_status status = SL_OK;
    for (int k = 0; k < stages && !status; k++) {
        const sl_stage *stage;
        sl_memory *memory;
        status = sl_pipeline_stage(pipeline, all[k], &stage, &memory);
        int count = status ? 0 : sl_stage_port_count(stage, SL_PORT_PARAMETER);
        for (int i = 0; i < count && !status; i++) {
            sl_port port, theirs;
            status = sl_stage_port_at(stage, SL_PORT_PARAMETER, i, &port);
            if (!status)
                status = sl_stage_port(s->whole.stage, SL_PORT_PARAMETER,
                                       port.name, &theirs);
            void *data = malloc((size_t)port.bytes);
            if (!status)
                status = sl_memory_read(s->whole.memory, &theirs, 0, data,
                                        (size_t)port.bytes);
            if (!status)
                status =
                    sl_memory_write(memory, &port, 0, data, (size_t)port.bytes);
            free(data);
        }
    }
    return status;
}

static sl_status train_rank(sl_comm *comm, void *context)
{
    job *own = context;
    const subject *s = own->subject;
    sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
    sl_pipeline *pipeline = NULL;
    sl_optimizer *optimizer = NULL;
    options.schedule = own->schedule;
    options.share_losses = true;
    options.stage.backend = own->backend;
    options.timeout_s = 30;
    sl_status status =
        sl_pipeline_create(comm, build, own, &options, &pipeline);
    if (!status)
        status = sl_pipeline_prepare(pipeline, s->rows);
    if (!status)
        status = load(s, pipeline);
    if (!status)
        status = sl_optimizer_create(pipeline, &s->optimizer, &optimizer);
    for (int i = 0; i < s->steps && !status; i++) {
        double loss = 0, norm;
        status = sl_pipeline_step(pipeline, s->arguments, s->count, 0);
        if (!status)
            status = sl_pipeline_loss(pipeline, &loss);
        double off = fabs(loss / (double)s->losses[i] - 1);
        if (sl_comm_rank(comm) == 0 && off > own->worst)
            own->worst = off;
        off = s->autocast ? fabs(loss / (double)s->autocast[i] - 1) : 0;
        if (sl_comm_rank(comm) == 0 && off > own->worst_autocast)
            own->worst_autocast = off;
        if (!status)
            status = sl_optimizer_step(optimizer, s->rate, &norm);
        if (!status && !(norm > 0))
            status = sl_fail(SL_EINVAL, "the gradient's norm is %g", norm);
    }
    sl_optimizer_destroy(optimizer);
    sl_pipeline_destroy(pipeline);
    return status;
}

/* Under a sanitizer every second model, another one in each precision. */
static bool is_left_out(int golden, sl_dtype precision)
{
    return TEST_IS_SANITIZED && golden % 2 == (precision == SL_BF16);
}

static void train_everywhere(int golden, sl_dtype precision, int *runs)
{
    /* The loss of each step, relative. */
    double tolerance = precision == SL_BF16 ? 5e-3 : 1e-4;
    sl_safetensors *file = golden_open(golden_models[golden].name);
    subject s;
    make_subject(golden, precision, file, &s);
    for (size_t k = 0; sl_generator_at(k); k++) {
        for (int p = 1; p <= 4; p *= 2) {
            const sl_generator *generator = sl_generator_at(k);
            const sl_sizes one = {p, 1, 4}, two = {p, 2, 4};
            sl_schedule *schedule;
            if (sl_generate(generator->name, &one, &schedule) &&
                sl_generate(generator->name, &two, &schedule))
                continue;
            bool trains = sl_schedule_extent(schedule).has_backward &&
                          sl_schedule_extent(schedule).microbatches <= s.rows;
            job own = {&s, schedule, *runs % 2 ? "ref" : "cpu", 0, 0};
            if (trains && sl_threads_run(p, train_rank, &own))
                fail_msg("%s in %s, %s on %d ranks: %s",
                         golden_models[golden].name, sl_dtype_text(precision),
                         generator->name, p, sl_error_text());
            if (!(own.worst < tolerance && own.worst_autocast < tolerance))
                fail_msg("%s in %s, %s on %d ranks: off by %g",
                         golden_models[golden].name, sl_dtype_text(precision),
                         generator->name, p,
                         fmax(own.worst, own.worst_autocast));
            *runs += trains;
            sl_schedule_destroy(schedule);
        }
    }
    release_subject(&s);
    sl_safetensors_close(file);
}

static void goldens_train_as_in_pytorch(void **state)
{
    (void)state;
    int runs = 0;
    for (int g = 0; g < GOLDEN_MODELS; g++) {
        if (!is_left_out(g, SL_F32))
            train_everywhere(g, SL_F32, &runs);
    }
    assert_true(runs > (TEST_IS_SANITIZED ? 20 : 60));
}

static void goldens_train_in_bf16(void **state)
{
    (void)state;
    int runs = 0;
    for (int g = 0; g < GOLDEN_MODELS; g++) {
        if (!is_left_out(g, SL_BF16))
            train_everywhere(g, SL_BF16, &runs);
    }
    assert_true(runs > (TEST_IS_SANITIZED ? 20 : 60));
}

static void rates_go_up_and_down(void **state)
{
    (void)state;
    sl_rate rate = {SL_RATE_COSINE, 2, 0.1, 10, 110};
    assert_true(fabs(sl_rate_at(&rate, 1) - 0.2) < 1e-12);
    assert_true(fabs(sl_rate_at(&rate, 10) - 2) < 1e-12);
    assert_true(fabs(sl_rate_at(&rate, 60) - 1.1) < 1e-12);
    assert_true(fabs(sl_rate_at(&rate, 110) - 0.2) < 1e-12);
    assert_true(fabs(sl_rate_at(&rate, 500) - 0.2) < 1e-12);
    rate.kind = SL_RATE_LINEAR;
    assert_true(fabs(sl_rate_at(&rate, 35) - 1.55) < 1e-12);
    rate.kind = SL_RATE_CONSTANT;
    assert_true(fabs(sl_rate_at(&rate, 500) - 2) < 1e-12);
    rate.warmup = 0;
    assert_true(fabs(sl_rate_at(&rate, 1) - 2) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_go_up_and_down),
        cmocka_unit_test(goldens_train_as_in_pytorch),
        cmocka_unit_test(goldens_train_in_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
