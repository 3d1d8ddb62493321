/* SPDX-License-Identifier: MIT
 *
 * A trained model on ranks: its config, a schedule, threads or a job. */
#include "infer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

int infer_find_model(const char *verb, infer_request *asked)
{
    char path[4300];
    cli_find_model(asked->model, asked->found, sizeof asked->found);
    asked->model = asked->found;
    snprintf(path, sizeof path, "%s/config.json", asked->found);
    return cli_read_config(verb, path, &asked->config);
}

typedef struct job {
    sl_inference_options options;
    infer_fn act;
    void *context;
    bool ready; /* what is asked for can be run */
} job;

static sl_status run_rank(sl_comm *comm, void *context)
{
    const job *own = context;
    return own->act(comm, &own->options, own->context);
}

static int choose_and_run(const char *verb, const infer_request *asked,
                          sl_comm *comm, job *own, sl_schedule **schedule)
{
    const sl_sizes usual = {comm ? sl_comm_size(comm) : 1, 0, asked->samples};
    CLI_TRY(cli_choose_schedule(verb, asked->schedule, &asked->sizes, &usual,
                                schedule));
    CLI_TRY(cli_check_job(verb, *schedule, comm));
    own->options.schedule = *schedule;
    own->ready = true;
    return cli_result(
        verb, cli_run_ranks(comm, sl_schedule_ranks(*schedule), run_rank, own));
}

int infer_run(const char *verb, const infer_request *asked, infer_fn act,
              void *context, bool *out_first)
{
    job own = {.options = {.config = asked->config,
                           .weights = asked->model,
                           .stage = SL_STAGE_OPTIONS_INIT,
                           .precision = cli_dtype(asked->precision),
                           .timeout_s = asked->timeout_s},
               .act = act,
               .context = context};
    sl_comm *comm = NULL;
    sl_schedule *schedule = NULL;
    own.options.stage.threads = asked->threads;
    CLI_TRY(cli_choose_device(verb, asked->device, &own.options.stage));
    if (sl_mpi_is_launched())
        CLI_TRY(cli_result(verb, sl_mpi_create(&comm)));
    *out_first = !comm || sl_comm_rank(comm) == 0;
    int exit_status = choose_and_run(verb, asked, comm, &own, &schedule);
    if (!own.ready && comm)
        sl_comm_abort(comm, SL_EINVAL, sl_error_text());
    sl_comm_destroy(comm);
    sl_schedule_destroy(schedule);
    return exit_status;
}
