/* SPDX-License-Identifier: MIT
 *
 * What the verbs share. Verbs parse, the library acts. Each verb returns the
 * exit status: 0 done, 1 the work failed or the check found faults, 2 the
 * request or the input was wrong. */
#ifndef SL_CLI_H
#define SL_CLI_H

#include "sluice/sluice.h"

#include <argp.h>
#include <stdio.h>

enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_WRONG = 2 };

int verb_schedule(int argc, char **argv);
int verb_lower(int argc, char **argv);
int verb_check(int argc, char **argv);
int verb_simulate(int argc, char **argv);
int verb_view(int argc, char **argv);
int verb_cut(int argc, char **argv);
int verb_bench(int argc, char **argv);
int verb_train(int argc, char **argv);
int verb_eval(int argc, char **argv);
int verb_generate(int argc, char **argv);

/* Says `sluice VERB: sentence` on standard error; returns `status`. */
int cli_say(const char *verb, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Says why a library call failed; returns the exit status that fits. */
int cli_failed(const char *verb, sl_status status);

/* Parses with argp; `--help` leaves from inside. Returns 0, or
 * CLI_WRONG after saying what is wrong, with the nearest option there is. A
 * parser that refuses a value says so with cli_refuse and returns EINVAL. */
int cli_parse(const char *verb, const struct argp *argp, int argc, char **argv,
              void *input);
error_t cli_refuse(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* Help of options that more than one verb has. */
#define CLI_COMM_HELP                                                          \
    "async (the default): messages do not hold the rank; per-edge: those "     \
    "from one rank to another go one after another; ordered: all of a "        \
    "rank's do; blocking: each holds both its ranks. A "                       \
    "schedule without communication gets it first, as `sluice lower --passes " \
    "send-recv` does"
#define CLI_STAGES_HELP "Stages on each rank (1; 2 for zbv and dualpipev)"

/* Options' values; they refuse what is not one. */
error_t cli_parse_int(const char *option, const char *text, int *out);
error_t cli_parse_size(const char *option, const char *text, int *out);
/* -p, -v and -m, which verbs with a layout share; others are unknown. */
error_t cli_parse_sizes(int key, const char *text, sl_sizes *out);
/* A schedule as it is named in an argument. */
typedef struct cli_schedule_name {
    const char *name;  /* of a schedule, in `text`; or the argument, a file */
    const char *words; /* the sizes as they were written; or "" */
    sl_sizes sizes;    /* what it says itself; 0: nothing */
    char text[128];
} cli_schedule_name;

/* Takes NAME:v=2,m=16 apart, sizes for this schedule alone. Returns 0, or
 * CLI_WRONG after saying what is wrong. */
int cli_parse_schedule(const char *verb, const char *argument,
                       cli_schedule_name *out);

/* Puts the sizes that are given over others. */
void cli_put_sizes(const sl_sizes *given, sl_sizes *over);

error_t cli_parse_number(const char *option, const char *text, double *out);
error_t cli_parse_bytes(const char *option, const char *text, int64_t *out);
/* One of several words, in any case; its place in `words`. */
error_t cli_parse_choice(const char *option, const char *text,
                         const char *const *words, size_t count, int *out);
/* One of two words; `*is_b` tells which. */
error_t cli_parse_word(const char *option, const char *text, const char *a,
                       const char *b, bool *is_b);
error_t cli_parse_reading(const char *text, sl_reading *out);

/* Reads a whole text, `-` or NULL standard input; a pipe by name is read to its
 * end. The caller frees. (files.c) */
int cli_read(const char *verb, const char *path, char **out_text,
             size_t *out_length);

/* The same of what must be a file. (files.c) */
int cli_read_file(const char *verb, const char *path, char **out_text,
                  size_t *out_length);

/* Opens a file to write it anew, or behind what is there; a pipe that nobody
 * reads is not waited for. NULL, and errno, where that cannot be. (files.c) */
FILE *cli_open_output(const char *path, bool append);

/* Says why a file could not be opened: errno. Returns CLI_WRONG. (files.c) */
int cli_say_unwritable(const char *verb, const char *path);

/* Opens a file to write behind what is there; NULL after saying why not.
 * (files.c) */
FILE *cli_open_append(const char *verb, const char *path);

/* Reads a schedule from CSV in a file or standard input. */
int cli_read_schedule(const char *verb, const char *path, sl_schedule **out);

/* A schedule by name, with sizes of its own (cli_parse_schedule), or from a file
 * that ends in .csv, which then must be what is asked for; sizes of 0 are not,
 * and `usual`. (infer.c) */
int cli_choose_schedule(const char *verb, const char *name,
                        const sl_sizes *asked, const sl_sizes *usual,
                        sl_schedule **out);

/* Runs passes, as of `sluice lower --passes`, over a schedule; NULL: none.
 * (infer.c) */
int cli_run_passes(const char *verb, const char *passes,
                   sl_schedule **schedule);
#define CLI_PASSES_HELP                                                        \
    "Run these passes over the schedule first, as of `sluice lower "           \
    "--passes`; delay-w=16 adds the weight gradients of 16 microbatches at "   \
    "once"

/* Where messages are to be ordered or to block, there must be some: gives the
 * schedule what `sluice lower --passes send-recv` does, if it has none. */
sl_status cli_add_messages(sl_reading reading, sl_schedule **schedule);

/* Refuses a schedule from a file that is not of the sizes asked for; 0 is any. */
int cli_check_sizes(const char *verb, const char *name, const sl_sizes *asked,
                    const sl_schedule *schedule);

/* On all ranks of a job: bytes of the first, a sum, and whether all were told
 * the same. (job.c) */
sl_status cli_share(sl_comm *comm, void *data, size_t bytes, double timeout_s);
sl_status cli_sum(sl_comm *comm, double *number, double timeout_s);
sl_status cli_agree(sl_comm *comm, const sl_comm_item *items, int count,
                    double timeout_s);

/* Where the model that is named lies: of a run, its latest checkpoint. */
void cli_find_model(const char *named, char *out, size_t size);

/* Refuses text, whose tokens are bytes, for a vocabulary that is another. */
int cli_check_vocabulary(const char *verb, const sl_tokens *tokens,
                         const char *data, int vocabulary);

/* Takes a FILE argument: the first is the input, a second is refused. */
error_t cli_take_file(const char *argument, const char **file);

/* Flushes standard output; a failure (a closed pipe, a full disk) is said. */
int cli_flush(const char *verb, sl_status status);

/* The same for whatever leaves without calling it; for atexit. */
void cli_flush_at_exit(void);

/* Writes a number in the fewest digits that read as the same one. */
void cli_number_text(double number, char *out, size_t size);

/* "12.3 MB"; returns `out`. */
const char *cli_amount(double value, const char *unit, char out[32]);

/* The modules of a stage, "first .. last"; returns `out`. */
const char *cli_modules(const sl_stage_info *stage, char *out, size_t size);

/* Writes "a, b or c" into `out`; returns it. */
const char *cli_join(const char *const *words, size_t count, char *out,
                     size_t size);

/* What writes a document of the caller's to a sink. */
typedef sl_status (*cli_document)(const void *what, sl_write_fn write,
                                  void *sink);

/* Writes it to a file, or to standard output where that is `-`. A file that is
 * there stays as it is until the new one is whole. */
int cli_write_to(const char *verb, const char *path, cli_document document,
                 const void *what);

/* Says so where a file that is written at the end cannot be: its folder is not
 * there, or not ours to write to. NULL is fine. */
int cli_check_writable(const char *verb, const char *path);

#endif
