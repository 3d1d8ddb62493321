/* SPDX-License-Identifier: MIT
 *
 * What the files of `sluice train` share: what is asked for, options from a
 * file (train_options.c), the run (train_run.c) and what is shown of it
 * (train_shown.c). */
#ifndef SL_CLI_TRAIN_H
#define SL_CLI_TRAIN_H

#include "cli.h"

typedef struct train_request {
    const char *data, *validation, *config, *init, *schedule, *cut, *out, *log;
    const char *usual_data; /* where DATA is not given */
    const char *trace, *report;
    const char *options; /* the file that was read */
    double fraction;
    int length, stride, batch;
    /* 0: as the config has it, or the default. */
    int layers, width, heads, vocabulary, positions;
    bool untied, recompute, alone, resume;
    sl_sizes sizes; /* 0: not asked for */
    int threads;
    sl_optimizer_options optimizer;
    sl_rate rate;
    int warmup, steps, epochs, seed;
    int eval_every, eval_batches;
    int save_every, keep;
    double timeout_s;
} train_request;

/* ----------------------------------------------------- train_options.c -- */

/* The arguments, with those of an --options file in front, so that the command
 * line wins. Says what is wrong with the file. */
int train_read_options(const struct argp_option *known, int argc, char **argv,
                       char ***out, int *out_count);
/* The file that they are read from; NULL. */
const char *train_options_file(int argc, char **argv);
void train_free_options(char **words, int argc, int count);

/* --------------------------------------------------------- train_run.c -- */

int train_go(const train_request *asked);

/* ------------------------------------------------------- train_shown.c -- */

/* What is shown of a run: one live line on a terminal, plain lines elsewhere,
 * and lines of JSON in a file. */
typedef struct train_shown train_shown;

/* `log` may be NULL. Says why where the file cannot be written. */
int train_show(const char *log, int64_t steps, train_shown **out);
void train_tell(train_shown *shown, const sl_train_news *news);

/* Ends the live line; says whether the log could be written. */
int train_shown_end(train_shown *shown);

#endif
