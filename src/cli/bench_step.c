/* SPDX-License-Identifier: MIT
 *
 * `sluice bench step`: a whole training step, forward, backward and gradient
 * descent, under a schedule, on ranks that are threads or processes. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define VERB "bench step"

typedef struct request {
    bool gpt2, empty, untied, recompute, alone, json, mpi, transport_given;
    int width, layers, heads, length, vocabulary;
    const char *schedule;
    const char *passes; /* over it; NULL: none */
    const char *trace;  /* file; NULL: none */
    sl_sizes sizes;     /* 0: not asked for; then, of the schedule */
    int stages;         /* of the schedule */
    int rows, threads, steps, warmup;
} request;

enum {
    KEY_MODEL = 256,
    KEY_WIDTH,
    KEY_LAYERS,
    KEY_HEADS,
    KEY_LENGTH,
    KEY_VOCABULARY,
    KEY_UNTIED,
    KEY_SCHEDULE,
    KEY_PASSES,
    KEY_ROWS,
    KEY_TRANSPORT,
    KEY_RECOMPUTE,
    KEY_ALONE,
    KEY_STEPS,
    KEY_WARMUP,
    KEY_TRACE,
    KEY_JSON,
};

static const struct argp_option options[] = {
    {NULL, 0, NULL, 0, "The model:", 1},
    {"model", KEY_MODEL, "mlp|gpt2|empty", 0,
     "Which one (mlp); empty computes nothing, and shows what a step takes "
     "besides",
     1},
    {"d", KEY_WIDTH, "N", 0, "Width (512)", 1},
    {"layers", KEY_LAYERS, "N", 0, "Layers (8)", 1},
    {"heads", KEY_HEADS, "N", 0, "Heads of gpt2 (8)", 1},
    {"seq", KEY_LENGTH, "N", 0, "Length of gpt2's sequences (128)", 1},
    {"vocab", KEY_VOCABULARY, "N", 0, "Vocabulary of gpt2 (1024)", 1},
    {"untied", KEY_UNTIED, NULL, 0, "lm_head has a weight of its own", 1},
    {NULL, 0, NULL, 0, "The pipeline:", 2},
    {"schedule", KEY_SCHEDULE, "NAME|FILE.csv", 0,
     "Schedule, by name or from a file (1F1B)", 2},
    {"passes", KEY_PASSES, "LIST", 0, CLI_PASSES_HELP, 2},
    {"ranks", 'p', "N", 0, "Ranks (2; under mpirun, as many as it has started)",
     2},
    {"stages-per-rank", 'v', "N", 0, CLI_STAGES_HELP, 2},
    {"microbatches", 'm', "N", 0, "Microbatches (8)", 2},
    {"microbatch-size", KEY_ROWS, "N", 0,
     "Rows, or sequences, of a microbatch (4)", 2},
    {"threads", 't', "N", 0, "Threads of each rank (1)", 2},
    {"transport", KEY_TRANSPORT, "threads|mpi", 0,
     "Ranks as threads, or as processes (mpi under mpirun, else threads)", 2},
    {"recompute", KEY_RECOMPUTE, NULL, 0,
     "Save only the inputs of a stage, and run its forward again in backward",
     2},
    {"no-lending", KEY_ALONE, NULL, 0,
     "Ranks that wait do not help with what others compute", 2},
    {NULL, 0, NULL, 0, "The measurement:", 3},
    {"steps", KEY_STEPS, "N", 0, "Steps to time (10)", 3},
    {"warmup", KEY_WARMUP, "N", 0, "Steps before these (3)", 3},
    {"trace", KEY_TRACE, "FILE", 0,
     "Write a step as a Chrome/Perfetto trace; - writes it alone", 3},
    {"json", KEY_JSON, NULL, 0, "JSON", 3},
    {0},
};

static error_t parse_model(request *r, const char *arg)
{
    r->gpt2 = strcmp(arg, "gpt2") == 0;
    r->empty = strcmp(arg, "empty") == 0;
    if (r->gpt2 || r->empty || strcmp(arg, "mlp") == 0)
        return 0;
    return cli_refuse("--model is mlp, gpt2 or empty, not '%.40s'", arg);
}

static const char *model_text(const request *r)
{
    return r->gpt2 ? "gpt2" : r->empty ? "empty" : "mlp";
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    request *r = state->input;
    switch (key) {
    case KEY_MODEL: return parse_model(r, arg);
    case KEY_WIDTH: return cli_parse_size("--d", arg, &r->width);
    case KEY_LAYERS: return cli_parse_size("--layers", arg, &r->layers);
    case KEY_HEADS: return cli_parse_size("--heads", arg, &r->heads);
    case KEY_LENGTH: return cli_parse_size("--seq", arg, &r->length);
    case KEY_VOCABULARY: return cli_parse_size("--vocab", arg, &r->vocabulary);
    case KEY_UNTIED: r->untied = true; return 0;
    case KEY_SCHEDULE: r->schedule = arg; return 0;
    case KEY_PASSES: r->passes = arg; return 0;
    case 'p':
    case 'v':
    case 'm': return cli_parse_sizes(key, arg, &r->sizes);
    case KEY_ROWS: return cli_parse_size("--microbatch-size", arg, &r->rows);
    case 't': return cli_parse_size("--threads", arg, &r->threads);
    case KEY_TRANSPORT:
        r->transport_given = true;
        return cli_parse_word("--transport", arg, "threads", "mpi", &r->mpi);
    case KEY_RECOMPUTE: r->recompute = true; return 0;
    case KEY_ALONE: r->alone = true; return 0;
    case KEY_STEPS: return cli_parse_size("--steps", arg, &r->steps);
    case KEY_WARMUP: return cli_parse_size("--warmup", arg, &r->warmup);
    case KEY_TRACE: r->trace = arg; return 0;
    case KEY_JSON: r->json = true; return 0;
    case ARGP_KEY_ARG:
        return strcmp(arg, "step") == 0
                   ? 0
                   : cli_refuse("nothing goes with '%.60s'", arg);
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    options,
    parse_option,
    "step",
    "Time a whole training step of a pipeline: forward and backward of all "
    "microbatches, and plain gradient descent. The figure is the median.\v"
    "  sluice bench step --layers 16 --schedule Interleaved1F1B -p 4 -v 2 -m "
    "16\n"
    "  sluice bench step --model gpt2 --d 512 --layers 8 --seq 256 -p 4 -t 3\n"
    "  mpirun -n 4 sluice bench step --schedule mine.csv",
    NULL,
    NULL,
    NULL};

/* ---------------------------------------------------------------- model -- */

static sl_status build(void *context, int64_t rows, const sl_model *like,
                       sl_model **out)
{
    const request *r = context;
    sl_cut_options cut = SL_CUT_OPTIONS_INIT;
    int stages = r->stages;
    if (r->empty)
        return bench_build_empty(stages, rows, out);
    cut.by = SL_CUT_BY_COST;
    cut.stages = stages;
    cut.inside = true;
    if (!r->gpt2) {
        sl_mlp_model_spec mlp = {{r->layers, r->width}, cut};
        return sl_mlp_model(&mlp, rows, like, out);
    }
    sl_gpt2_model_spec gpt2 = {SL_GPT2_CONFIG_INIT, SL_GPT2_OPTIONS_INIT,
                               r->length, cut};
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
    return r->gpt2 ? sl_pipeline_start(pipeline, sl_gpt2_start, &config, 1)
                   : sl_pipeline_start(pipeline, sl_mlp_start, NULL, 1);
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
    int64_t wide = r->gpt2 ? r->length : r->empty ? 1 : r->width;
    size_t count = (size_t)(rows * wide);
    size_t size = r->gpt2 ? sizeof(int64_t) : sizeof(float);
    static const char *const names[2][2] = {{"x", "target"},
                                            {"input_ids", "labels"}};
    for (int i = 0; i < 2; i++) {
        out->memory[i] = malloc(count * size);
        if (!out->memory[i])
            return sl_fail(SL_ENOMEM, "out of memory");
        if (r->gpt2) {
            for (size_t k = 0; k < count; k++)
                ((int64_t *)out->memory[i])[k] =
                    (int64_t)((k * 7 + (size_t)i * 3) % (size_t)r->vocabulary);
        } else {
            fill_floats(out->memory[i], count, (uint32_t)i + 1);
        }
        out->arrays[i] = (sl_array){
            r->gpt2 ? SL_I64 : SL_F32, 2, {rows, wide}, out->memory[i]};
        out->arguments[i] = (sl_argument){names[r->gpt2][i], SL_SPREAD_SPLIT, 0,
                                          &out->arrays[i], 1};
    }
    return SL_OK;
}

/* ------------------------------------------------------------ measuring -- */

/* Of so many last steps, the one of median length is shown: any other may be one
 * in which something else wanted the cores. */
enum { CANDIDATES = 9, STEPS_MAX = 10000 };

typedef struct job {
    const request *asked;
    const sl_schedule *schedule;
    double *took;                 /* by step: seconds, on rank 0 */
    sl_trace *traces[CANDIDATES]; /* of the last steps, likewise */
    sl_trace *trace;              /* the one of median length */
} job;

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

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
    return NULL;
}

static sl_status time_steps(sl_comm *comm, job *own, sl_pipeline *pipeline,
                            const data *batch)
{
    const request *r = own->asked;
    int ranks[SL_COMM_MAX_RANKS], rank = sl_comm_rank(comm);
    sl_trace *none = NULL;
    sl_group all = {ranks, sl_comm_size(comm)};
    for (int i = 0; i < all.count; i++)
        ranks[i] = i;
    sl_status status = SL_OK;
    for (int i = 0; i < r->warmup + r->steps && !status; i++) {
        status = sl_comm_barrier(comm, &all, SL_COMM_MAX_TAG - 2, 600);
        double start = seconds_now();
        if (!status)
            status = sl_pipeline_step(pipeline, batch->arguments,
                                      r->empty ? 1 : 2, (uint64_t)i);
        if (!status)
            status = sl_pipeline_descend(pipeline, 1e-3);
        if (!status)
            status = sl_comm_barrier(comm, &all, SL_COMM_MAX_TAG - 2, 600);
        if (rank == 0 && i >= r->warmup)
            own->took[i - r->warmup] = seconds_now() - start;
        int candidate = i - (r->warmup + r->steps - candidates(r));
        if (!status && candidate >= 0)
            status = sl_pipeline_trace(
                pipeline, rank == 0 ? &own->traces[candidate] : &none);
    }
    if (!status && rank == 0)
        own->trace = find_typical(own);
    return status;
}

static sl_status run_rank(sl_comm *comm, void *context)
{
    job *own = context;
    const request *r = own->asked;
    sl_pipeline_options how = SL_PIPELINE_OPTIONS_INIT;
    sl_pipeline *pipeline = NULL;
    data batch = {0};
    how.schedule = own->schedule;
    how.stage.threads = r->threads;
    how.stage.recompute = r->recompute;
    how.lend = r->alone ? SL_LEND_NEVER : SL_LEND_AUTO;
    sl_status status =
        sl_pipeline_create(comm, build, (void *)r, &how, &pipeline);
    if (!status)
        status = sl_pipeline_prepare(pipeline,
                                     (int64_t)r->rows * r->sizes.microbatches);
    if (!status)
        status = fill_parameters(r, pipeline);
    if (!status)
        status = make_data(r, &batch);
    if (!status)
        status = time_steps(comm, own, pipeline, &batch);
    sl_pipeline_destroy(pipeline);
    free(batch.memory[0]);
    free(batch.memory[1]);
    return status;
}

static int ascending(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
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
    printf("{\"model\": \"%s\", \"schedule\": \"%s\", \"ranks\": %d, "
           "\"stages_per_rank\": %d, \"stages\": %d, \"microbatches\": %d, "
           "\"microbatch_size\": %d, \"threads\": %d, \"transport\": "
           "\"%s\", \"median_s\": %.9f, \"min_s\": %.9f, "
           "\"bubble_planned\": %.4f, \"bubble_measured\": %.4f, "
           "\"lent\": %.4f, "
           "\"bytes_planned\": %lld, \"bytes_measured\": %lld, "
           "\"action_s\": %.9f, \"%s_per_s\": %.1f}\n",
           model_text(r), r->schedule, r->sizes.ranks, r->sizes.stages_per_rank,
           r->stages, r->sizes.microbatches, r->rows, r->threads,
           r->mpi ? "mpi" : "threads", median, least, all->bubble_planned,
           all->bubble_measured, all->lent, (long long)all->bytes_planned,
           (long long)all->bytes_measured, per_action(own, median),
           r->gpt2 ? "tokens" : "rows", rows / median);
}

static double median_of(double *numbers, int count)
{
    qsort(numbers, (size_t)count, sizeof *numbers, ascending);
    return numbers[count / 2];
}

/* The step that is shown, but shares of time are medians of the last steps. */
static sl_status summarize(const job *own, sl_trace_summary *out)
{
    double planned[CANDIDATES], measured[CANDIDATES], lent[CANDIDATES];
    int count = candidates(own->asked);
    sl_status status = SL_OK;
    for (int i = 0; i < count && !status; i++) {
        status = sl_trace_summarize(own->traces[i], out);
        planned[i] = out->bubble_planned;
        measured[i] = out->bubble_measured;
        lent[i] = out->lent;
    }
    if (!status)
        status = sl_trace_summarize(own->trace, out);
    if (status)
        return status;
    out->bubble_planned = median_of(planned, count);
    out->bubble_measured = median_of(measured, count);
    out->lent = median_of(lent, count);
    return SL_OK;
}

static sl_status print(const job *own)
{
    const request *r = own->asked;
    sl_trace_summary all = {0};
    sl_status status = summarize(own, &all);
    if (status)
        return status;
    qsort(own->took, (size_t)r->steps, sizeof *own->took, ascending);
    double median = own->took[r->steps / 2], least = own->took[0];
    double rows = (double)r->rows * r->sizes.microbatches;
    if (r->gpt2)
        rows *= r->length;
    if (r->json) {
        print_json(own, median, least, rows, &all);
        return SL_OK;
    }
    printf("%s, %s, %d rank%s, %d stage%s, %d microbatch%s of %d, %d thread%s "
           "a rank, %s\nmedian %.3f ms, least %.3f ms, %.3f us an action, %.0f "
           "%s/s\nbubble %.3f planned, %.3f measured (medians of the last %d "
           "steps)\n\n"
           "Of a step of median length:\n",
           model_text(r), r->schedule, r->sizes.ranks,
           r->sizes.ranks > 1 ? "s" : "", r->stages, r->stages > 1 ? "s" : "",
           r->sizes.microbatches, r->sizes.microbatches > 1 ? "es" : "",
           r->rows, r->threads, r->threads > 1 ? "s" : "",
           r->mpi ? "mpi" : "threads", median * 1e3, least * 1e3,
           per_action(own, median) * 1e6, rows / median,
           r->gpt2 ? "tokens" : "rows", all.bubble_planned, all.bubble_measured,
           candidates(r));
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
    int exit_status =
        cli_choose_schedule(VERB, asked->schedule, &asked->sizes, &usual, out);
    if (!exit_status)
        exit_status = cli_run_passes(VERB, asked->passes, out);
    if (exit_status)
        return exit_status;
    sl_extent extent = sl_schedule_extent(*out);
    if (comm && extent.ranks != sl_comm_size(comm))
        exit_status = cli_say(VERB, CLI_WRONG,
                              "the schedule has %d ranks, and the job %d",
                              extent.ranks, sl_comm_size(comm));
    if (!comm && extent.ranks > SL_COMM_MAX_RANKS)
        exit_status = cli_say(VERB, CLI_WRONG, "at most %d ranks, not %d",
                              SL_COMM_MAX_RANKS, extent.ranks);
    if (!extent.has_backward)
        exit_status =
            cli_say(VERB, CLI_WRONG, "%.100s has no backward: there is no step",
                    asked->schedule);
    asked->sizes = (sl_sizes){extent.ranks, extent.stages / extent.ranks,
                              extent.microbatches};
    asked->stages = extent.stages;
    return exit_status;
}

/* The step that was timed, in numbers or as a trace. */
static int show(const job *own)
{
    const char *trace = own->asked->trace;
    int exit_status =
        trace ? cli_write_to(VERB, trace, write_document, own->trace)
              : CLI_DONE;
    if (exit_status || (trace && strcmp(trace, "-") == 0))
        return exit_status;
    return cli_flush(VERB, print(own));
}

static int time_schedule(request *asked, sl_comm *comm)
{
    double took[STEPS_MAX];
    sl_schedule *schedule = NULL;
    int exit_status = choose_schedule(asked, comm, &schedule);
    job own = {.asked = asked, .schedule = schedule, .took = took};
    if (!exit_status) {
        sl_status status =
            comm ? run_rank(comm, &own)
                 : sl_threads_run(asked->sizes.ranks, run_rank, &own);
        if (status)
            exit_status = cli_failed(VERB, status);
        else if (!comm || sl_comm_rank(comm) == 0)
            exit_status = show(&own);
    } else if (comm) {
        sl_comm_abort(comm, SL_EINVAL, sl_error_text());
    }
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
    int exit_status = cli_parse(VERB, &argp, argc, argv, &asked);
    if (exit_status)
        return exit_status;
    cli_schedule_name named;
    exit_status = cli_parse_schedule(VERB, asked.schedule, &named);
    if (exit_status)
        return exit_status;
    asked.schedule = named.name;
    cli_put_sizes(&named.sizes, &asked.sizes);
    if (asked.json && asked.trace && strcmp(asked.trace, "-") == 0)
        return cli_say(VERB, CLI_WRONG,
                       "--json and --trace - both want standard output");
    if (asked.steps > STEPS_MAX || asked.warmup > 1000000)
        return cli_say(VERB, CLI_WRONG,
                       "at most %d steps, and 1000000 before them", STEPS_MAX);
    if (!asked.transport_given)
        asked.mpi = sl_mpi_is_launched();
    sl_status status = asked.mpi ? sl_mpi_create(&comm) : SL_OK;
    if (status)
        return cli_failed(VERB, status);
    exit_status = time_schedule(&asked, comm);
    sl_comm_destroy(comm);
    return exit_status;
}
