/* SPDX-License-Identifier: MIT
 *
 * `sluice bench step`: a whole training step, forward, backward and an SGD
 * step, under a schedule, on ranks that are threads or processes. */
#include "bench.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERB "bench step"

typedef struct request {
    enum { MLP, GPT2, EMPTY } model;
    bool untied, recompute, alone, json, no_graph, deterministic;
    const char *device;
    int optimizer; /* a kind, from 1 on; 0: plain descent */
    cli_precision precision;
    enum { THREADS, MPI } transport;
    int width, layers, heads, length, vocabulary;
    const char *schedule;
    const char *passes; /* over it; NULL: none */
    const char *trace;  /* file; NULL: none */
    sl_sizes sizes;     /* 0: not asked for; then, of the schedule */
    int stages;         /* of the schedule */
    int rows, threads, steps, warmup;
} request;

#define MODELS    "mlp|gpt2|empty"
#define AT(field) offsetof(request, field)
static const cli_option options[] = {
    CLI_HEADED("Model:"),
    CLI_VALUED("model", MODELS, CHOICE, model,
               "Model (mlp); empty computes nothing, and shows the overhead of "
               "a step"),
    CLI_OPTION("d", SIZE, width, "Width (512)"),
    CLI_OPTION("layers", SIZE, layers, "Layers (8)"),
    CLI_OPTION("heads", SIZE, heads, "Attention heads of gpt2 (8)"),
    CLI_OPTION("seq", SIZE, length, "Sequence length of gpt2 (128)"),
    CLI_OPTION("vocab", SIZE, vocabulary, "Vocabulary size of gpt2 (1024)"),
    CLI_SWITCH("untied", untied,
               "Give lm_head its own weight, instead of the embedding's"),
    CLI_HEADED("Pipeline:"),
    CLI_VALUED("schedule", "NAME|FILE.csv", TEXT, schedule,
               "Schedule, by name or from a file (1F1B)"),
    CLI_VALUED("passes", "LIST", TEXT, passes, CLI_PASSES_HELP),
    CLI_RANKS("Ranks (2; under mpirun, the number of processes)", sizes),
    CLI_STAGES_PER_RANK(sizes),
    CLI_MICROBATCHES("Microbatches in a step (8)", sizes),
    CLI_OPTION("microbatch-size", SIZE, rows,
               "Rows, or sequences, in a microbatch (4)"),
    CLI_THREADS(threads),
    CLI_VALUED(
        "transport", "threads|mpi", CHOICE, transport,
        "Ranks as threads, or as processes (mpi under mpirun, else threads)"),
    CLI_DEVICE(device),
    CLI_PRECISION(precision),
    CLI_SWITCH("recompute", recompute, CLI_RECOMPUTE_HELP),
    CLI_SWITCH("no-work-stealing", alone, CLI_NO_WORK_STEALING_HELP),
    CLI_NO_GRAPH(no_graph),
    CLI_DETERMINISTIC(deterministic),
    CLI_VALUED("optimizer", "descent|adamw|sgd", CHOICE, optimizer,
               "Optimizer (descent: plain, without momentum or a norm; the "
               "others clip it at 1)"),
    CLI_HEADED("Measurement:"),
    CLI_OPTION("steps", SIZE, steps, "Steps to time (10)"),
    CLI_OPTION("warmup", SIZE, warmup, "Steps to run before these (3)"),
    CLI_VALUED(
        "trace", "FILE", TEXT, trace,
        "Write a step as a Chrome/Perfetto trace; with - write nothing else"),
    CLI_SWITCH("json", json, "Print JSON"),
    {0},
};

static error_t take_step(const char *argument, void *unused)
{
    (void)unused;
    return strcmp(argument, "step") == 0
               ? 0
               : cli_refuse("nothing goes with '%.60s'", argument);
}

static const cli_command command = {
    .options = options,
    .take = take_step,
    .arguments = "step",
    .help = "Time a whole training step of a pipeline: forward and backward of "
            "all microbatches, and an optimizer's step. The figure is the median.\v"
            "  sluice bench step --layers 16 --schedule Interleaved1F1B -p 4 "
            "-v 2 -m 16\n"
            "  sluice bench step --model gpt2 --d 512 --layers 8 --seq 256 -p "
            "4 -t 3\n"
            "  mpirun -n 4 sluice bench step --schedule mine.csv",
};

static bool is_gpt2(const request *r)
{
    return r->model == GPT2;
}

static const char *model_text(const request *r)
{
    static const char *const names[] = {"mlp", "gpt2", "empty"};
    return names[r->model];
}

/* ---------------------------------------------------------------- model -- */

static sl_status build(void *context, int64_t rows, const sl_model *like,
                       sl_model **out)
{
    const request *r = context;
    sl_cut_options cut = SL_CUT_OPTIONS_INIT;
    int stages = r->stages;
    if (r->model == EMPTY)
        return bench_build_empty(stages, rows, out);
    cut.by = SL_CUT_BY_COST;
    cut.stages = stages;
    cut.inside = true;
    if (!is_gpt2(r)) {
        sl_mlp_model_spec mlp = {
            {r->layers, r->width}, cut, cli_dtype(r->precision)};
        return sl_mlp_model(&mlp, rows, like, out);
    }
    sl_gpt2_model_spec gpt2 = {SL_GPT2_CONFIG_INIT, SL_GPT2_OPTIONS_INIT,
                               r->length, cut, cli_dtype(r->precision)};
    gpt2.config.layers = r->layers;
    gpt2.config.width = r->width;
    gpt2.config.heads = r->heads;
    gpt2.config.vocabulary = r->vocabulary;
    gpt2.config.positions = r->length;
    gpt2.config.tied = !r->untied;
    return sl_gpt2_model(&gpt2, rows, like, out);
}

static sl_status fill_parameters(const request *r, sl_pipeline *pipeline)
{
    const sl_gpt2_config config = {.layers = r->layers};
    return is_gpt2(r)
               ? sl_pipeline_init_parameters(pipeline, sl_gpt2_init, &config, 1)
               : sl_pipeline_init_parameters(pipeline, sl_mlp_init, NULL, 1);
}

/* Small numbers of either sign. */
static void fill_floats(float *data, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525 + 1013904223;
        data[i] = ((float)(seed >> 8) / 8388608.0f - 1.0f) * 0.05f;
    }
}

/* The batch: two arguments alike in shape. */
typedef struct data {
    sl_array arrays[2];
    sl_argument arguments[2];
    void *memory[2];
} data;

static sl_status make_data(const request *r, data *out)
{
    int64_t rows = (int64_t)r->rows * r->sizes.microbatches;
    int64_t wide = is_gpt2(r) ? r->length : r->model == EMPTY ? 1 : r->width;
    size_t count = (size_t)(rows * wide);
    size_t size = is_gpt2(r) ? sizeof(int64_t) : sizeof(float);
    static const char *const names[2][2] = {{"x", "target"},
                                            {"input_ids", "labels"}};
    for (int i = 0; i < 2; i++) {
        out->memory[i] = malloc(count * size);
        if (!out->memory[i])
            return sl_fail(SL_ENOMEM, "out of memory");
        if (is_gpt2(r)) {
            for (size_t k = 0; k < count; k++)
                ((int64_t *)out->memory[i])[k] =
                    (int64_t)((k * 7 + (size_t)i * 3) % (size_t)r->vocabulary);
        } else {
            fill_floats(out->memory[i], count, (uint32_t)i + 1);
        }
        out->arrays[i] = (sl_array){
            is_gpt2(r) ? SL_I64 : SL_F32, 2, {rows, wide}, out->memory[i]};
        out->arguments[i] = (sl_argument){names[is_gpt2(r)][i], SL_SPREAD_SPLIT,
                                          0, &out->arrays[i], 1};
    }
    return SL_OK;
}

/* ------------------------------------------------------------ measuring -- */

/* Of so many last steps, the one of median length is shown: any other may be
 * one in which something else wanted the cores. */
enum { CANDIDATES = 9, STEPS_MAX = 10000 };

typedef struct job {
    const request *asked;
    const sl_schedule *schedule;
    sl_stage_options stage;
    double *took;                 /* by step: seconds, on rank 0 */
    sl_trace *traces[CANDIDATES]; /* of the last steps, likewise */
    sl_trace *trace;              /* the one of median length */
} job;

static int candidates(const request *r)
{
    return r->steps < CANDIDATES ? r->steps : CANDIDATES;
}

/* Which of the last steps is of median length. */
static sl_trace *find_typical(const job *own)
{
    int count = candidates(own->asked);
    const double *took = own->took + own->asked->steps - count;
    for (int i = 0; i < count; i++) {
        int shorter = 0;
        for (int k = 0; k < count; k++)
            shorter += took[k] < took[i] || (took[k] == took[i] && k < i);
        if (shorter == count / 2)
            return own->traces[i];
    }
    assert(!"one of them is of median length");
    return NULL;
}

static sl_status barrier(sl_comm *comm)
{
    int ranks[SL_COMM_MAX_RANKS];
    sl_group all = {ranks, sl_comm_size(comm)};
    for (int i = 0; i < all.count; i++)
        ranks[i] = i;
    return sl_comm_barrier(comm, &all, SL_COMM_MAX_TAG - 2, 600);
}

static sl_status time_steps(sl_comm *comm, job *own, sl_pipeline *pipeline,
                            sl_optimizer *optimizer, const data *batch)
{
    const request *r = own->asked;
    int rank = sl_comm_rank(comm);
    sl_trace *none = NULL;
    for (int i = 0; i < r->warmup + r->steps; i++) {
        CLI_TRY(barrier(comm));
        double start = cli_seconds();
        CLI_TRY(sl_pipeline_step(pipeline, batch->arguments,
                                 r->model == EMPTY ? 1 : 2, (uint64_t)i));
        CLI_TRY(optimizer ? sl_optimizer_step(optimizer, 1e-4, NULL)
                          : sl_pipeline_descend(pipeline, 1e-3));
        CLI_TRY(barrier(comm));
        if (rank == 0 && i >= r->warmup)
            own->took[i - r->warmup] = cli_seconds() - start;
        int candidate = i - (r->warmup + r->steps - candidates(r));
        if (candidate >= 0)
            CLI_TRY(sl_pipeline_trace(
                pipeline, rank == 0 ? &own->traces[candidate] : &none));
    }
    if (rank == 0)
        own->trace = find_typical(own);
    return SL_OK;
}

static sl_status prepare_and_time(sl_comm *comm, job *own,
                                  sl_pipeline *pipeline, data *batch)
{
    const request *r = own->asked;
    sl_optimizer_options how = SL_OPTIMIZER_OPTIONS_INIT;
    sl_optimizer *optimizer = NULL;
    CLI_TRY(sl_pipeline_prepare(pipeline,
                                (int64_t)r->rows * r->sizes.microbatches));
    CLI_TRY(fill_parameters(r, pipeline));
    CLI_TRY(make_data(r, batch));
    if (r->optimizer) {
        how.kind = r->optimizer == 1 ? SL_UPDATE_ADAMW : SL_UPDATE_SGD;
        CLI_TRY(sl_optimizer_create(pipeline, &how, &optimizer));
    }
    sl_status status = time_steps(comm, own, pipeline, optimizer, batch);
    sl_optimizer_destroy(optimizer);
    return status;
}

static sl_status run_rank(sl_comm *comm, void *context)
{
    job *own = context;
    const request *r = own->asked;
    sl_pipeline_options how = SL_PIPELINE_OPTIONS_INIT;
    sl_pipeline *pipeline;
    data batch = {0};
    how.schedule = own->schedule;
    how.stage = own->stage;
    how.stage.deterministic = r->deterministic;
    how.no_graph = r->no_graph;
    how.stage.recompute = r->recompute;
    how.work_stealing = r->alone ? SL_STEAL_NEVER : SL_STEAL_AUTO;
    CLI_TRY(sl_pipeline_create(comm, build, (void *)r, &how, &pipeline));
    sl_status status = prepare_and_time(comm, own, pipeline, &batch);
    sl_pipeline_destroy(pipeline);
    free(batch.memory[0]);
    free(batch.memory[1]);
    return status;
}

/* Seconds of a step per action of the busiest rank. */
static double per_action(const job *own, double median)
{
    const sl_schedule *plan = sl_trace_plan(own->trace);
    size_t most = 1;
    for (int r = 0; r < sl_schedule_ranks(plan); r++) {
        size_t length = sl_schedule_length(plan, r);
        most = length > most ? length : most;
    }
    return median / (double)most;
}

static void print_json(const job *own, double median, double least, double rows,
                       const sl_trace_summary *all)
{
    const request *r = own->asked;
    printf("{\"model\": \"%s\", \"device\": \"%s\", \"precision\": \"%s\", \"schedule\": \"%s\", "
           "\"ranks\": %d, "
           "\"stages_per_rank\": %d, \"stages\": %d, \"microbatches\": %d, "
           "\"microbatch_size\": %d, \"threads\": %d, \"transport\": "
           "\"%s\", \"median_s\": %.9f, \"min_s\": %.9f, "
           "\"bubble_planned\": %.4f, \"bubble_measured\": %.4f, "
           "\"helped\": %.4f, "
           "\"bytes_planned\": %lld, \"bytes_measured\": %lld, "
           "\"action_s\": %.9f, \"%s_per_s\": %.1f}\n",
           model_text(r), r->device ? r->device : "cpu",
           sl_dtype_text(cli_dtype(r->precision)), r->schedule,
           r->sizes.ranks, r->sizes.stages_per_rank, r->stages,
           r->sizes.microbatches, r->rows, r->threads,
           r->transport == MPI ? "mpi" : "threads", median, least,
           all->bubble_planned, all->bubble_measured, all->helped,
           (long long)all->bytes_planned, (long long)all->bytes_measured,
           per_action(own, median), is_gpt2(r) ? "tokens" : "rows",
           rows / median);
}

static double median_of(double *numbers, int count)
{
    qsort(numbers, (size_t)count, sizeof *numbers, bench_ascending);
    return numbers[count / 2];
}

/* The step that is shown, but shares of time are medians of the last steps. */
static sl_status summarize(const job *own, sl_trace_summary *out)
{
    double planned[CANDIDATES], measured[CANDIDATES], helped[CANDIDATES];
    int count = candidates(own->asked);
    for (int i = 0; i < count; i++) {
        CLI_TRY(sl_trace_summarize(own->traces[i], out));
        planned[i] = out->bubble_planned;
        measured[i] = out->bubble_measured;
        helped[i] = out->helped;
    }
    CLI_TRY(sl_trace_summarize(own->trace, out));
    out->bubble_planned = median_of(planned, count);
    out->bubble_measured = median_of(measured, count);
    out->helped = median_of(helped, count);
    return SL_OK;
}

static sl_status print(const job *own)
{
    const request *r = own->asked;
    sl_trace_summary all = {0};
    char sizes[80], how[160];
    CLI_TRY(summarize(own, &all));
    double median = median_of(own->took, r->steps), least = own->took[0];
    double rows = (double)r->rows * r->sizes.microbatches;
    if (is_gpt2(r))
        rows *= r->length;
    if (r->json) {
        print_json(own, median, least, rows, &all);
        return SL_OK;
    }
    sl_extent extent = {.ranks = r->sizes.ranks,
                        .stages = r->stages,
                        .microbatches = r->sizes.microbatches};
    printf("%s, %s, %s of %d, %d thread%s a rank, %s, %s\n"
           "median %.3f ms, least %.3f ms, %.3f us an action, %.0f %s/s\n"
           "bubble %.3f planned, %.3f measured (medians of the last %d "
           "steps)\n\n"
           "Of a step of median length:\n",
           model_text(r), r->schedule, cli_extent_text(&extent, sizes), r->rows,
           r->threads, r->threads > 1 ? "s" : "",
           r->transport == MPI ? "mpi" : "threads",
           cli_precision_text(r->precision, r->device, how), median * 1e3, least * 1e3,
           per_action(own, median) * 1e6, rows / median,
           is_gpt2(r) ? "tokens" : "rows", all.bubble_planned,
           all.bubble_measured, candidates(r));
    return sl_trace_write_summary(own->trace, sl_write_stdio, stdout);
}

static sl_status write_document(const void *what, sl_write_fn write, void *sink)
{
    return sl_view_write_run(what, write, sink);
}

/* The schedule that is timed, and the sizes that it has. */
static int choose_schedule(request *asked, sl_comm *comm, sl_schedule **out)
{
    const sl_sizes usual = {comm ? sl_comm_size(comm) : 2, 0, 8};
    CLI_TRY(
        cli_choose_schedule(VERB, asked->schedule, &asked->sizes, &usual, out));
    CLI_TRY(cli_run_passes(VERB, asked->passes, out));
    CLI_TRY(cli_check_job(VERB, *out, comm));
    sl_extent extent = sl_schedule_extent(*out);
    if (!comm && extent.ranks > SL_COMM_MAX_RANKS)
        return cli_say(VERB, CLI_WRONG, "at most %d ranks, not %d",
                       SL_COMM_MAX_RANKS, extent.ranks);
    if (!extent.has_backward)
        return cli_say(VERB, CLI_WRONG,
                       "%.100s has no backward: there is no step",
                       asked->schedule);
    asked->sizes = (sl_sizes){extent.ranks, extent.stages / extent.ranks,
                              extent.microbatches};
    asked->stages = extent.stages;
    return CLI_DONE;
}

/* The step that was timed, in numbers or as a trace. */
static int show(const job *own)
{
    const char *trace = own->asked->trace;
    if (trace)
        CLI_TRY(cli_write_to(VERB, trace, write_document, own->trace));
    if (trace && strcmp(trace, "-") == 0)
        return CLI_DONE;
    return cli_flush(VERB, print(own));
}

static int run_and_show(job *own, sl_comm *comm)
{
    CLI_TRY(cli_result(
        VERB, cli_run_ranks(comm, own->asked->sizes.ranks, run_rank, own)));
    return !comm || sl_comm_rank(comm) == 0 ? show(own) : CLI_DONE;
}

static int time_schedule(request *asked, sl_comm *comm)
{
    double took[STEPS_MAX];
    sl_schedule *schedule = NULL;
    int exit_status = choose_schedule(asked, comm, &schedule);
    job own = {.asked = asked,
               .schedule = schedule,
               .stage = SL_STAGE_OPTIONS_INIT,
               .took = took};
    own.stage.threads = asked->threads;
    if (!exit_status)
        exit_status = cli_choose_device(VERB, asked->device, &own.stage);
    if (!exit_status)
        exit_status = run_and_show(&own, comm);
    else if (comm)
        sl_comm_abort(comm, SL_EINVAL, sl_error_text());
    sl_schedule_destroy(schedule);
    for (int i = 0; i < CANDIDATES; i++)
        sl_trace_destroy(own.traces[i]);
    return exit_status;
}

int bench_step(int argc, char **argv)
{
    request asked = {.width = 512,
                     .layers = 8,
                     .heads = 8,
                     .length = 128,
                     .vocabulary = 1024,
                     .schedule = "1F1B",
                     .rows = 4,
                     .threads = 1,
                     .steps = 10,
                     .warmup = 3};
    sl_comm *comm = NULL;
    cli_schedule_name named;
    CLI_TRY(cli_parse(VERB, &command, argc, argv, &asked));
    CLI_TRY(cli_parse_schedule(VERB, asked.schedule, &named));
    asked.schedule = named.name;
    cli_put_sizes(&named.sizes, &asked.sizes);
    if (asked.json && asked.trace && strcmp(asked.trace, "-") == 0)
        return cli_say(VERB, CLI_WRONG,
                       "--json and --trace - both want standard output");
    if (asked.steps > STEPS_MAX || asked.warmup > 1000000)
        return cli_say(VERB, CLI_WRONG,
                       "at most %d steps, and 1000000 before them", STEPS_MAX);
    if (!CLI_GIVEN("transport"))
        asked.transport = sl_mpi_is_launched() ? MPI : THREADS;
    if (asked.transport == MPI)
        CLI_TRY(cli_result(VERB, sl_mpi_create(&comm)));
    int exit_status = time_schedule(&asked, comm);
    sl_comm_destroy(comm);
    return exit_status;
}
