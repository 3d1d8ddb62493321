/* SPDX-License-Identifier: MIT
 *
 * A trained model on ranks: its config, a schedule, threads or a job. */
#include "infer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

error_t infer_parse(int key, char *arg, infer_request *r)
{
    switch (key) {
    case INFER_SCHEDULE: r->schedule = arg; return 0;
    case 'p':
    case 'v':
    case 'm': return cli_parse_sizes(key, arg, &r->sizes);
    case 't': return cli_parse_size("--threads", arg, &r->threads);
    case INFER_TIMEOUT:
        return cli_parse_number("--timeout", arg, &r->timeout_s);
    default: return ARGP_ERR_UNKNOWN;
    }
}

static bool has_config(const char *folder)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/config.json", folder);
    return access(path, F_OK) == 0;
}

void cli_find_model(const char *named, char *out, size_t size)
{
    char latest[4096];
    snprintf(latest, sizeof latest, "%.4000s/latest", named);
    bool run = named[0] && !has_config(named) && has_config(latest);
    snprintf(out, size, "%s", run ? latest : named);
}

void infer_find_model(infer_request *asked)
{
    if (!asked->model)
        return;
    cli_find_model(asked->model, asked->found, sizeof asked->found);
    asked->model = asked->found;
}

int infer_config(const char *verb, const char *model, sl_gpt2_config *out)
{
    char path[4200], *text;
    size_t length;
    snprintf(path, sizeof path, "%s/config.json", model);
    int exit_status = cli_read_file(verb, path, &text, &length);
    if (exit_status)
        return exit_status;
    sl_status status = sl_gpt2_read_config(text, length, out);
    free(text);
    return status ? cli_failed(verb, status) : CLI_DONE;
}

/* Whether a size that was asked for is not that of a schedule from a file. */
static bool differs(int64_t asked, int found)
{
    return asked && asked != found;
}

int cli_check_sizes(const char *verb, const char *name, const sl_sizes *asked,
                    const sl_schedule *schedule)
{
    sl_extent extent = sl_schedule_extent(schedule);
    if (!differs(asked->ranks, extent.ranks) &&
        !differs(asked->microbatches, extent.microbatches) &&
        !differs((int64_t)asked->stages_per_rank * extent.ranks, extent.stages))
        return CLI_DONE;
    return cli_say(verb, CLI_WRONG,
                   "%.200s has %d ranks, %d stages and %d microbatches, and "
                   "-p, -v or -m says otherwise",
                   name, extent.ranks, extent.stages, extent.microbatches);
}

int cli_choose_schedule(const char *verb, const char *name,
                        const sl_sizes *asked, const sl_sizes *usual,
                        sl_schedule **out)
{
    size_t length = strlen(name);
    cli_schedule_name named;
    sl_sizes sizes = *asked;
    int wrong = cli_parse_schedule(verb, name, &named);
    if (wrong)
        return wrong;
    cli_put_sizes(&named.sizes, &sizes);
    if (length > 4 && strcmp(name + length - 4, ".csv") == 0) {
        int exit_status = cli_read_schedule(verb, name, out);
        return exit_status ? exit_status
                           : cli_check_sizes(verb, name, asked, *out);
    }
    const sl_generator *generator;
    sl_status status = sl_generator_find(named.name, &generator);
    if (status)
        return cli_failed(verb, status);
    sizes.ranks = sizes.ranks ? sizes.ranks : usual->ranks;
    if (!sizes.stages_per_rank)
        sizes.stages_per_rank = generator->default_stages_per_rank;
    if (!sizes.microbatches)
        sizes.microbatches = usual->microbatches;
    status = sl_generate(named.name, &sizes, out);
    return status ? cli_failed(verb, status) : CLI_DONE;
}

int cli_run_passes(const char *verb, const char *passes, sl_schedule **schedule)
{
    sl_schedule *made;
    if (!passes)
        return CLI_DONE;
    sl_status status = sl_lower(*schedule, passes, NULL, &made);
    if (status)
        return cli_failed(verb, status);
    sl_schedule_destroy(*schedule);
    *schedule = made;
    return CLI_DONE;
}

typedef struct job {
    sl_inference_options options;
    infer_fn act;
    void *context;
} job;

static sl_status run_rank(sl_comm *comm, void *context)
{
    const job *own = context;
    return own->act(comm, &own->options, own->context);
}

int infer_run(const char *verb, const infer_request *asked, infer_fn act,
              void *context, bool *out_first)
{
    job own = {.options = {.weights = asked->model,
                           .stage = SL_STAGE_OPTIONS_INIT,
                           .timeout_s = asked->timeout_s},
               .act = act,
               .context = context};
    sl_comm *comm = NULL;
    sl_schedule *schedule = NULL;
    sl_status status = sl_mpi_is_launched() ? sl_mpi_create(&comm) : SL_OK;
    if (status)
        return cli_failed(verb, status);
    *out_first = !comm || sl_comm_rank(comm) == 0;
    int ranks = comm ? sl_comm_size(comm) : 1;
    const sl_sizes usual = {ranks, 0, asked->samples};
    own.options.stage.threads = asked->threads;
    int exit_status = infer_config(verb, asked->model, &own.options.config);
    if (!exit_status)
        exit_status = cli_choose_schedule(verb, asked->schedule, &asked->sizes,
                                          &usual, &schedule);
    if (!exit_status && comm && sl_schedule_ranks(schedule) != ranks)
        exit_status = cli_say(verb, CLI_WRONG,
                              "the schedule has %d ranks, and the job %d",
                              sl_schedule_ranks(schedule), ranks);
    own.options.schedule = schedule;
    if (!exit_status) {
        status =
            comm ? run_rank(comm, &own)
                 : sl_threads_run(sl_schedule_ranks(schedule), run_rank, &own);
        if (status)
            exit_status = cli_failed(verb, status);
    } else if (comm) {
        sl_comm_abort(comm, SL_EINVAL, sl_error_text());
    }
    sl_comm_destroy(comm);
    sl_schedule_destroy(schedule);
    return exit_status;
}
