/* SPDX-License-Identifier: MIT
 *
 * What the files of `sluice train` share: the request, options from a
 * file (train_options.c), the run (train_run.c) and what is shown of it
 * (train_shown.c). */
#ifndef SL_CLI_TRAIN_H
#define SL_CLI_TRAIN_H

#include "cli.h"

#include <jansson.h>
#include <stdio.h>

typedef struct train_request {
    const char *data, *validation, *config, *init, *schedule, *passes, *cut,
        *out, *log;
    const char *usual_data; /* where DATA is not given */
    const char *trace, *report;
    const char *device;
    const char *options; /* the file that was read */
    json_t *stored;      /* what the run that is resumed has kept; or NULL */
    double fraction;
    int length, stride, batch;
    /* 0: as the config has it, or the default. */
    int layers, width, heads, vocabulary, positions;
    bool untied, recompute, alone, resume, dry_run, no_graph, deterministic;
    sl_sizes sizes; /* 0: not asked for */
    int threads;
    sl_optimizer_options optimizer;
    sl_rate rate;
    int warmup, steps, epochs, seed;
    int eval_every, eval_batches;
    int save_every, keep;
    cli_precision precision, save_dtype;
    double timeout_s;
} train_request;

/* An option and its value as one would type it; "" for none, "true" for a
 * switch that is on. */
typedef struct train_item {
    const char *name;
    bool is_flag;
    char value[4200];
} train_item;

/* ---------------------------------------------------------- verb_train.c -- */

/* All options but --options, always as many in the same order; how many. */
enum { TRAIN_ITEMS_MAX = 64 };
int train_items(const train_request *asked, train_item *out);

/* ----------------------------------------------------- train_options.c -- */

/* The words of a command line with those of files in front, so that the command
 * line wins. */
typedef struct train_words {
    char **data;
    int count;
    char **made; /* those that came from files */
    int made_count;
    const char *path; /* of the --options file; NULL: none */
} train_words;

/* Puts what a run has kept (NULL: nothing) before what an --options file has,
 * before what was typed. Says what is wrong with a file. */
int train_make_words(const cli_option *known, json_t *stored, int argc,
                     char **argv, train_words *out);
void train_free_words(train_words *words);

/* What the run in --out has kept, and that without what cannot go with the
 * request; NULL where it has kept nothing. */
int train_read_stored(const train_request *asked, const char *usual_schedule,
                      json_t **out_had, json_t **out);

/* Keeps the options in --out. */
int train_write_stored(const train_request *asked);

/* Says which options a resumed run does not have as it had them. */
void train_print_differences(const train_request *asked, FILE *file);

/* --------------------------------------------------------- train_run.c -- */

int train_go(const train_request *asked);

/* ------------------------------------------------------ train_layout.c -- */

/* What a run would be: stages, messages, and the memory of every rank. */
void train_show_layout(const sl_train_options *options,
                       const sl_train_layout *layout);

/* ------------------------------------------------------- train_shown.c -- */

/* What is shown of a run: one live line on a terminal, plain lines elsewhere,
 * and lines of JSON or CSV in a file. */
typedef struct train_shown train_shown;

/* Opens the log, if there is one; that of a run which is resumed after `done`
 * steps loses the lines of later ones, which are done again. Says why where it
 * cannot be written. */
int train_show(const train_request *asked, int64_t steps, int64_t done,
               train_shown **out);
void train_print_step(train_shown *shown, const sl_train_metrics *metrics);

/* Ends the live line; says whether the log could be written. */
int train_shown_end(train_shown *shown);

#endif
