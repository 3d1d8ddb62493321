/* SPDX-License-Identifier: MIT
 *
 * A training run: from what is asked for to options of the library, on threads,
 * or as one rank of a job. */
#include "train.h"

#include <libgen.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERB "train"

/* What a run needs besides its options. */
typedef struct run {
    const train_request *asked;
    sl_train_options options;
    sl_tokens *tokens, *validation;
    sl_schedule *schedule;
    sl_cut_point *points;
    sl_claim *claim;   /* of the folder of checkpoints, on the first rank */
    char resume[4200]; /* a checkpoint; empty: none */
    char init[4200];   /* likewise, weights */
    train_shown *shown;
    bool job; /* ranks are processes of a job */
    bool first;
    bool prepared;
    int64_t unheld;    /* sequences too few to validate with; -1: none */
    bool said;         /* what it is */
    int64_t done;      /* steps, of a run that is resumed */
    sl_string summary; /* of the last step */
    int traced;        /* whether what shows it could be written */
    int kept;          /* likewise, the options of the run */
    bool reported;
    sl_view_point *losses; /* of the steps so far, for the report */
    size_t loss_count;
} run;

/* ------------------------------------------------------------- interrupts */

/* Set by a signal, on any thread, and read by those of all ranks. */
static atomic_bool interrupted;
_Static_assert(ATOMIC_BOOL_LOCK_FREE == 2, "a signal handler may set it");

static void on_interrupt(int number)
{
    atomic_store(&interrupted, true);
    /* The next one ends the process. */
    signal(number, SIG_DFL);
}

static bool is_interrupted(void *context)
{
    (void)context;
    return atomic_load(&interrupted);
}

/* What runs is said with its first step: until then it may be refused. */
static void say_start(const run *own)
{
    const sl_gpt2_config *config = &own->options.config;
    char sizes[80];
    sl_extent extent = sl_schedule_extent(own->schedule);
    if (own->resume[0]) {
        fprintf(stderr, "continuing from %s\n", own->resume);
        train_print_differences(own->asked, stderr);
    }
    fprintf(stderr, "GPT-2, %d layers of width %d, vocabulary %d; %s\n",
            config->layers, config->width, config->vocabulary,
            cli_extent_text(&extent, sizes));
}

/* The run keeps its options. Of a job it has as many ranks as were started. */
static int keep_options(const run *own)
{
    train_request asked = *own->asked;
    if (own->job && !strchr(asked.schedule, '.'))
        asked.sizes.ranks = sl_schedule_ranks(own->schedule);
    return train_write_stored(&asked);
}

/* Nothing is left out without a word. */
static void say_unheld(const run *own)
{
    if (own->unheld >= 0)
        fprintf(stderr,
                "no validation: --val-fraction %g of the data is %lld "
                "sequence%s, fewer than a batch of %d; all of it is trained "
                "on\n",
                own->asked->fraction, (long long)own->unheld,
                own->unheld == 1 ? "" : "s", own->asked->batch);
}

/* Keeps the losses of a step; there is room up to the next power of two. */
static void keep_losses(run *own, const sl_train_metrics *metrics)
{
    size_t count = own->loss_count;
    if ((count & (count - 1)) == 0) {
        sl_view_point *grown =
            realloc(own->losses, (count ? 2 * count : 1) * sizeof *grown);
        if (!grown)
            return;
        own->losses = grown;
    }
    own->losses[own->loss_count++] =
        (sl_view_point){metrics->step, metrics->loss, metrics->validation};
}

static void print_step(void *context, const sl_train_metrics *metrics)
{
    run *own = context;
    if (!own->said) {
        say_start(own);
        say_unheld(own);
    }
    /* Nobody else writes to the folder now, and this run has a first step. */
    if (!own->said && own->asked->out)
        own->kept = keep_options(own);
    own->said = true;
    train_print_step(own->shown, metrics);
    if (own->asked->report)
        keep_losses(own, metrics);
}

static sl_status write_document(const void *what, sl_write_fn write, void *sink)
{
    return sl_view_write_run(what, write, sink);
}

/* What a report is made from. */
typedef struct report {
    const run *own;
    const sl_trace *trace;
} report;

/* The page of a step: what was planned above what was measured, and losses. */
static sl_status write_report(const void *what, sl_write_fn write, void *sink)
{
    const report *from = what;
    sl_timeline *measured, *planned;
    CLI_TRY(sl_timeline_measured("measured", from->trace, &measured));
    sl_status status = sl_timeline_planned("planned", measured, &planned);
    if (!status) {
        status = sl_view_write_report(
            (const sl_timeline *const[]){planned, measured}, 2,
            from->own->losses, from->own->loss_count, write, sink);
        sl_timeline_destroy(planned);
    }
    sl_timeline_destroy(measured);
    return status;
}

/* The last step in numbers, and as files where these are wanted. */
static void show_last(void *context, const sl_trace *trace)
{
    run *own = context;
    const train_request *asked = own->asked;
    sl_trace_write_summary(trace, sl_write_string, &own->summary);
    if (asked->trace)
        own->traced = cli_write_to(VERB, asked->trace, write_document, trace);
    if (asked->report) {
        const report from = {own, trace};
        int exit_status =
            cli_write_to(VERB, asked->report, write_report, &from);
        own->reported = !exit_status;
        own->traced = own->traced ? own->traced : exit_status;
    }
}

/* --------------------------------------------------------------- the model */

/* The config of a folder of weights, where there is one. */
static int read_config_of(const char *folder, sl_gpt2_config *out)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/config.json", folder);
    return access(path, F_OK) == 0 ? cli_read_config(VERB, path, out)
                                   : CLI_DONE;
}

/* What a config says and an option may say instead. */
typedef struct field {
    const char *option;
    int asked, *place;
} field;

static int override_config(const run *own, const field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const field *f = &fields[i];
        if (!f->asked || f->asked == *f->place)
            continue;
        if (own->resume[0])
            return cli_say(VERB, CLI_WRONG,
                           "the run has %s %d, and cannot continue with %d",
                           f->option, *f->place, f->asked);
        *f->place = f->asked;
    }
    return CLI_DONE;
}

static int choose_model(run *own)
{
    const train_request *r = own->asked;
    sl_gpt2_config *config = &own->options.config;
    bool bytes = sl_tokens_are_bytes(own->tokens);
    cli_find_model(r->init ? r->init : "", own->init, sizeof own->init);
    *config = (sl_gpt2_config)SL_GPT2_CONFIG_INIT;
    config->layers = 4;
    config->width = 128;
    config->heads = 4;
    config->vocabulary = bytes ? 256 : 50304;
    config->positions = r->length;
    config->embedding_dropout = config->residual_dropout = 0;
    config->attention_dropout = 0;
    if (own->resume[0])
        CLI_TRY(read_config_of(own->resume, config));
    else if (r->config)
        CLI_TRY(cli_read_config(VERB, r->config, config));
    else if (own->init[0])
        CLI_TRY(read_config_of(own->init, config));
    const field fields[] = {{"--layers", r->layers, &config->layers},
                            {"--d", r->width, &config->width},
                            {"--heads", r->heads, &config->heads},
                            {"--vocab", r->vocabulary, &config->vocabulary},
                            {"--positions", r->positions, &config->positions}};
    CLI_TRY(override_config(own, fields, sizeof fields / sizeof *fields));
    if (own->resume[0] && r->untied && config->tied)
        return cli_say(VERB, CLI_WRONG,
                       "the run has a tied lm_head, and cannot continue "
                       "--untied");
    config->tied &= !r->untied;
    return cli_check_vocabulary(VERB, own->tokens, r->data, config->vocabulary);
}

/* ---------------------------------------------------------------- the data */

static int open_data(run *own)
{
    const train_request *r = own->asked;
    if (!(r->fraction >= 0 && r->fraction < 1))
        return cli_say(VERB, CLI_WRONG,
                       "--val-fraction is from 0 up to below 1");
    CLI_TRY(cli_result(VERB, sl_tokens_open(r->data, &own->tokens)));
    if (r->validation)
        CLI_TRY(
            cli_result(VERB, sl_tokens_open(r->validation, &own->validation)));
    if (own->validation && sl_tokens_are_bytes(own->validation) !=
                               sl_tokens_are_bytes(own->tokens))
        return cli_say(VERB, CLI_WRONG,
                       "--val is of another kind than the data");
    return CLI_DONE;
}

/* Validation takes whole batches. Where what was held out has none, it is
 * trained on instead, and that is said. */
static int choose_validation(run *own)
{
    const train_request *r = own->asked;
    sl_windows *data = &own->options.data, *held = &own->options.validation;
    int64_t count = sl_windows_count(held);
    if (count >= r->batch || !held->tokens)
        return CLI_DONE;
    if (own->validation)
        return cli_say(VERB, CLI_WRONG,
                       "--val has %lld sequences, fewer than a batch of %d",
                       (long long)count, r->batch);
    own->unheld = r->fraction > 0 && r->eval_every > 0 ? count : -1;
    data->count += held->count;
    held->tokens = NULL;
    return CLI_DONE;
}

static int choose_data(run *own)
{
    const train_request *r = own->asked;
    sl_windows *data = &own->options.data, *held = &own->options.validation;
    int64_t all = sl_tokens_count(own->tokens);
    if (r->length > 1 << 24)
        return cli_say(VERB, CLI_WRONG, "--seq is at most %d", 1 << 24);
    if (r->save_every && !r->out)
        return cli_say(VERB, CLI_WRONG, "--save-every needs --out");
    int64_t kept = own->validation ? 0 : (int64_t)((double)all * r->fraction);
    *data = (sl_windows){.tokens = own->tokens,
                         .count = all - kept,
                         .length = r->length,
                         .stride = r->stride,
                         .vocabulary = own->options.config.vocabulary,
                         .shuffled = true,
                         .seed = own->options.seed};
    *held = *data;
    held->shuffled = false;
    held->tokens = own->validation ? own->validation : own->tokens;
    held->first = own->validation ? 0 : all - kept;
    held->count = own->validation ? sl_tokens_count(own->validation) : kept;
    int64_t windows = sl_windows_count(data);
    if (windows == 0)
        return cli_say(VERB, CLI_WRONG,
                       "%.100s has %lld tokens to train on, fewer than the "
                       "%d of a sequence and its last label",
                       r->data, (long long)data->count, r->length + 1);
    CLI_TRY(choose_validation(own));
    windows = sl_windows_count(data);
    own->options.steps = r->steps;
    if (r->epochs)
        own->options.steps = (windows * r->epochs + r->batch - 1) / r->batch;
    return CLI_DONE;
}

/* --------------------------------------------------------------- the layout */

static int choose_layout(run *own, const sl_comm *comm)
{
    const train_request *r = own->asked;
    const sl_sizes usual = {comm ? sl_comm_size(comm) : 1, 0, 4};
    sl_cut_options *cut = &own->options.cut;
    *cut = (sl_cut_options)SL_CUT_OPTIONS_INIT;
    cut->by = SL_CUT_BY_COST;
    cut->inside = true;
    CLI_TRY(cli_choose_schedule(VERB, r->schedule, &r->sizes, &usual,
                                &own->schedule));
    CLI_TRY(cli_run_passes(VERB, r->passes, &own->schedule));
    CLI_TRY(cli_check_job(VERB, own->schedule, comm));
    if (r->cut) {
        CLI_TRY(cli_result(
            VERB, sl_cut_points_read(r->cut, &own->points, &cut->point_count)));
        cut->by = SL_CUT_AT_NAMES;
        cut->inside = false;
        cut->points = own->points;
    }
    own->options.schedule = own->schedule;
    return CLI_DONE;
}

/* -------------------------------------------------------------- checkpoints */

static void say_damaged(void *context, const char *sentence)
{
    (void)context;
    cli_say(VERB, 0, "%s; trying the one before", sentence);
}

/* A folder that has checkpoints of another run in it. */
static int refuse_used(const run *own)
{
    char *found = NULL;
    sl_status status = sl_checkpoint_find(own->asked->out, NULL, NULL, &found);
    if (status)
        return status == SL_ENOTFOUND ? CLI_DONE : cli_result(VERB, status);
    int exit_status =
        cli_say(VERB, CLI_WRONG,
                "%.200s is there: --resume to continue that run, or another "
                "folder",
                found);
    free(found);
    return exit_status;
}

/* Where a run continues, as the first rank broadcasts it. */
typedef struct start {
    char path[4200];
    sl_progress progress;
} start;

/* On the first rank, with the folder claimed: nobody adds to it, or takes from
 * it, what is found here. */
static int find_start(run *own, start *out)
{
    const train_request *r = own->asked;
    char *found = NULL;
    if (!r->out)
        return CLI_DONE;
    if (!r->dry_run)
        CLI_TRY(cli_result(VERB, sl_claim_create(r->out, &own->claim)));
    if (!r->resume)
        return refuse_used(own);
    CLI_TRY(cli_result(VERB,
                       sl_checkpoint_find(r->out, say_damaged, NULL, &found)));
    sl_status status = sl_checkpoint_check(found, &out->progress);
    snprintf(out->path, sizeof out->path, "%s", found);
    free(found);
    return cli_result(VERB, status);
}

static int choose_start(run *own, sl_comm *comm)
{
    const train_request *r = own->asked;
    start there = {.path = ""};
    if (r->resume && !r->out)
        return cli_say(VERB, CLI_WRONG, "--resume needs --out");
    if (r->resume && r->init)
        return cli_say(VERB, CLI_WRONG,
                       "--resume and --init: one or the other");
    if (r->resume && r->config)
        return cli_say(VERB, CLI_WRONG, "--resume has its own config");
    own->options.seed = r->seed < 0 ? 1 : (uint64_t)r->seed;
    if (own->first)
        CLI_TRY(find_start(own, &there));
    if (!r->resume)
        return CLI_DONE;
    if (comm)
        CLI_TRY(cli_result(
            VERB, cli_share(comm, &there, sizeof there, r->timeout_s)));
    memcpy(own->resume, there.path, sizeof own->resume);
    if (r->seed >= 0 && (uint64_t)r->seed != there.progress.seed)
        return cli_say(VERB, CLI_WRONG,
                       "the run has seed %llu, and cannot continue with %d",
                       (unsigned long long)there.progress.seed, r->seed);
    own->options.seed = there.progress.seed;
    own->done = there.progress.step;
    return CLI_DONE;
}

/* ---------------------------------------------------------------- the job */

/* Processes have each their own command line: they compare. */
static int agree(const train_request *asked, sl_comm *comm)
{
    sl_comm_item items[TRAIN_ITEMS_MAX + 1];
    train_item *own = calloc(TRAIN_ITEMS_MAX, sizeof *own);
    if (!own)
        return cli_say(VERB, CLI_FAILED, "out of memory");
    int count = train_items(asked, own);
    items[0] = (sl_comm_item){"the version of Sluice", sl_version()};
    for (int i = 0; i < count; i++)
        items[i + 1] = (sl_comm_item){own[i].name, own[i].value};
    sl_status status = cli_agree(comm, items, count + 1, asked->timeout_s);
    free(own);
    return cli_result(VERB, status);
}

/* -------------------------------------------------------------- its files */

/* Whether two names are of one file. */
static bool is_same_file(const char *a, const char *b)
{
    struct stat first, second;
    if (!a || !b || strcmp(a, "-") == 0 || strcmp(b, "-") == 0)
        return false;
    return strcmp(a, b) == 0 ||
           (stat(a, &first) == 0 && stat(b, &second) == 0 &&
            first.st_dev == second.st_dev && first.st_ino == second.st_ino);
}

/* Whether a path, which may not be there yet, lies in a folder or is it. */
static bool is_in_folder(const char *path, const char *folder)
{
    char inner[4096], outer[4096], copy[4200];
    if (!path || !folder || strcmp(path, "-") == 0 || !realpath(folder, outer))
        return false;
    snprintf(copy, sizeof copy, "%.4000s", path);
    if (!realpath(path, inner) && !realpath(dirname(copy), inner))
        return false;
    size_t length = strlen(outer);
    return strncmp(inner, outer, length) == 0 &&
           (inner[length] == '/' || inner[length] == '\0');
}

/* Whether a path is one of the files that a run keeps in its folder. */
static bool is_own_file(const char *path, const char *folder)
{
    static const char *const own[] = {"options.json", "latest", "best",
                                      ".lock"};
    const char *slash = path ? strrchr(path, '/') : NULL;
    for (int i = 0; slash && i < 4; i++) {
        if (strcmp(slash + 1, own[i]) == 0)
            return is_in_folder(path, folder);
    }
    return false;
}

/* What a run writes must not be its data the next time, nor may its files
 * replace each other, or what it reads. */
static int check_files(const train_request *asked)
{
    const struct {
        const char *option;
        const char *path;
    } files[] = {{"DATA", asked->data},           {"--val", asked->validation},
                 {"--config", asked->config},     {"--options", asked->options},
                 {"--schedule", asked->schedule}, {"--init", asked->init},
                 {"--log", asked->log},           {"--trace", asked->trace},
                 {"--report", asked->report},     {"--out", asked->out}};
    enum { COUNT = sizeof files / sizeof *files, FIRST_WRITTEN = 6 };
    struct stat about;
    bool folder = stat(asked->data, &about) == 0 && S_ISDIR(about.st_mode);
    for (int i = FIRST_WRITTEN; i < COUNT; i++) {
        const char *option = files[i].option, *path = files[i].path;
        for (int k = 0; k < i && path != asked->out; k++) {
            if (is_same_file(path, files[k].path))
                return cli_say(VERB, CLI_WRONG,
                               "%s and %s name one file, %.200s",
                               files[k].option, option, path);
        }
        if (folder && is_in_folder(path, asked->data))
            return cli_say(VERB, CLI_WRONG,
                           "%s is in %.200s, all files of which are trained "
                           "on: the next run would read it",
                           option, asked->data);
        if (path != asked->out && is_own_file(path, asked->out))
            return cli_say(VERB, CLI_WRONG,
                           "%s %.200s is a file that the run keeps itself",
                           option, path);
    }
    CLI_TRY(cli_check_writable(VERB, asked->trace));
    return cli_check_writable(VERB, asked->report);
}

/* ------------------------------------------------------------------ the run */

static int fill_options(run *own)
{
    const train_request *r = own->asked;
    sl_train_options *options = &own->options;
    options->stage = (sl_stage_options)SL_STAGE_OPTIONS_INIT;
    options->stage.threads = r->threads;
    options->stage.deterministic = r->deterministic;
    options->no_graph = r->no_graph;
    options->stage.recompute = r->recompute;
    options->precision = cli_dtype(r->precision);
    options->optimizer = r->optimizer;
    options->rate = r->rate;
    options->rate.warmup = r->warmup;
    options->rate.steps = options->steps;
    options->batch = r->batch;
    options->validate_every = r->eval_every;
    options->validation_batches = r->eval_batches;
    options->folder = r->out;
    options->save_every = r->save_every;
    options->keep = r->keep;
    options->save_dtype = cli_dtype(r->save_dtype);
    options->resume = own->resume[0] ? own->resume : NULL;
    options->claim = own->claim;
    options->init = own->init[0] ? own->init : NULL;
    options->timeout_s = r->timeout_s;
    options->work_stealing = r->alone ? SL_STEAL_NEVER : SL_STEAL_AUTO;
    options->report = print_step;
    options->stop = is_interrupted;
    options->trace = show_last;
    options->context = own;
    return cli_choose_device(VERB, r->device, &options->stage);
}

static int prepare(run *own, sl_comm *comm)
{
    const train_request *r = own->asked;
    if (comm)
        CLI_TRY(agree(r, comm));
    if (own->first)
        CLI_TRY(check_files(r));
    CLI_TRY(open_data(own));
    CLI_TRY(choose_start(own, comm));
    CLI_TRY(choose_model(own));
    CLI_TRY(choose_data(own));
    CLI_TRY(choose_layout(own, comm));
    if (own->resume[0] && own->done >= own->options.steps)
        return cli_say(VERB, CLI_WRONG,
                       "%.200s is at step %lld already: give more --steps",
                       own->resume, (long long)own->done);
    CLI_TRY(fill_options(own));
    if (own->first && !r->dry_run)
        CLI_TRY(train_show(r, own->options.steps, own->done, &own->shown));
    own->prepared = true;
    return CLI_DONE;
}

static void show_layout(void *context, const sl_train_layout *layout)
{
    const run *own = context;
    train_show_layout(&own->options, layout);
}

static sl_status train_rank(sl_comm *comm, void *context)
{
    const run *own = context;
    return own->asked->dry_run
               ? sl_train_dry_run(comm, &own->options, show_layout)
               : sl_train(comm, &own->options);
}

/* Whether any rank of a job was interrupted: then all of them were. */
static bool was_interrupted(sl_comm *comm, double timeout_s)
{
    double any = atomic_load(&interrupted);
    if (comm && cli_sum(comm, &any, timeout_s))
        return atomic_load(&interrupted);
    return any > 0;
}

/* What is left to say of a run that ended well. */
static int end_well(run *own)
{
    char how[160];
    const char *trace = own->asked->trace;
    if (own->first && own->summary.data)
        fprintf(trace && strcmp(trace, "-") == 0 ? stderr : stdout,
                "Of the last step, in %s:\n%s",
                cli_precision_text(own->asked->precision,
                                   own->asked->device, how),
                own->summary.data);
    if (own->reported)
        printf("Report: %s\n", own->asked->report);
    CLI_TRY(own->traced);
    CLI_TRY(own->kept);
    return cli_flush(VERB, SL_OK);
}

/* As one rank of a job, or on threads of this process. */
static int train(run *own, sl_comm *comm)
{
    enum { INTERRUPTED = 130 };
    /* Planning has no step to finish. */
    if (!own->asked->dry_run) {
        signal(SIGINT, on_interrupt);
        signal(SIGTERM, on_interrupt);
    }
    sl_status status =
        cli_run_ranks(comm, sl_schedule_ranks(own->schedule), train_rank, own);
    int exit_status = own->first ? train_shown_end(own->shown) : CLI_DONE;
    CLI_TRY(cli_result(VERB, status));
    if (was_interrupted(comm, own->asked->timeout_s))
        return INTERRUPTED;
    int ended = end_well(own);
    return exit_status ? exit_status : ended;
}

int train_go(const train_request *asked)
{
    run own = {.asked = asked, .job = sl_mpi_is_launched(), .unheld = -1};
    sl_comm *comm = NULL;
    if (own.job)
        CLI_TRY(cli_result(VERB, sl_mpi_create(&comm)));
    own.first = !comm || sl_comm_rank(comm) == 0;
    int exit_status = prepare(&own, comm);
    if (own.prepared)
        exit_status = train(&own, comm);
    else if (comm)
        sl_comm_abort(comm, SL_EINVAL, sl_error_text());
    sl_comm_destroy(comm);
    sl_tokens_close(own.tokens);
    sl_tokens_close(own.validation);
    sl_schedule_destroy(own.schedule);
    free(own.points);
    free(own.losses);
    sl_string_clear(&own.summary);
    sl_claim_destroy(own.claim);
    return exit_status;
}
