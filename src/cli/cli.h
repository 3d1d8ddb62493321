/* SPDX-License-Identifier: MIT
 *
 * What the verbs share. Verbs parse, the library acts. Each verb returns the
 * exit status: 0 done, 1 the work failed or the check found faults, 2 the
 * request or the input was wrong. */
#ifndef SL_CLI_H
#define SL_CLI_H

#include "sluice/sluice.h"

#include <argp.h>
#include <stddef.h>
#include <stdio.h>

enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_WRONG = 2 };

int verb_schedule(int argc, char **argv);
int verb_lower(int argc, char **argv);
int verb_check(int argc, char **argv);
int verb_simulate(int argc, char **argv);
int verb_view(int argc, char **argv);
int verb_cut(int argc, char **argv);
int verb_devices(int argc, char **argv);
int verb_bench(int argc, char **argv);
int verb_train(int argc, char **argv);
int verb_eval(int argc, char **argv);
int verb_generate(int argc, char **argv);

/* Says `sluice VERB: sentence` on standard error; returns `status`. */
int cli_say(const char *verb, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the exit status that fits a library call; says why it failed. */
int cli_result(const char *verb, sl_status status);

/* Returns the exit status, or the sl_status, of a call that failed. */
#define CLI_TRY(call)                                                          \
    do {                                                                       \
        int cli_tried = (int)(call);                                           \
        if (cli_tried)                                                         \
            return cli_tried;                                                  \
    } while (0)

/* -------------------------------------------------------------- options.c */

/* How the value of an option reads, and as what it is stored. */
typedef enum cli_kind {
    CLI_HEADING, /* no option: a title of the help, over those that follow */
    CLI_FLAG,    /* bool; takes no value */
    CLI_TEXT,    /* const char * */
    CLI_INT,
    CLI_SIZE,   /* int from 1 up */
    CLI_COUNT,  /* int from 0 up */
    CLI_NUMBER, /* double from 0 up */
    CLI_BYTES,  /* int64_t from 0 up */
    CLI_CHOICE, /* int: the place of the word in `value`, "a|b|c" */
    CLI_CUSTOM, /* what `parse` makes of it */
} cli_kind;

/* An option of a verb, and where in the verb's request its value goes. A table
 * ends with {0}. */
typedef struct cli_option {
    const char *name;
    char letter;       /* as in -p; 0: none */
    const char *value; /* as the help calls it; NULL: a flag */
    cli_kind kind;
    size_t offset; /* in the request */
    const char *help;
    /* Refuses a value with cli_refuse. */
    error_t (*parse)(const char *text, void *at);
} cli_option;

/* Entries of such a table, where AT(field) is an offset in the request. Those
 * without a value of their own take a plain number: N, or X with a fraction. */
#define CLI_HEADED(title)                                                      \
    {                                                                          \
        .help = title                                                          \
    }
#define CLI_LETTERED(letter, name, value, kind, field, help)                   \
    {                                                                          \
        name, letter, value, CLI_##kind, AT(field), help, NULL                 \
    }
#define CLI_VALUED(name, value, kind, field, help)                             \
    CLI_LETTERED(0, name, value, kind, field, help)
#define CLI_OPTION(name, kind, field, help)                                    \
    CLI_VALUED(name, CLI_##kind == CLI_NUMBER ? "X" : "N", kind, field, help)
#define CLI_SWITCH(name, field, help) CLI_VALUED(name, NULL, FLAG, field, help)
#define CLI_PARSED(name, value, field, help, parse)                            \
    {                                                                          \
        name, 0, value, CLI_CUSTOM, AT(field), help, parse                     \
    }

typedef struct cli_command {
    const cli_option *options;
    /* The argument that is no option, at this offset: a text, which is given
     * once, and called this. Or what `take` makes of each. */
    const char *noun;
    size_t offset;
    error_t (*take)(const char *argument, void *at);
    const char *arguments; /* as the usage line names them; or NULL */
    const char *help;      /* what stands before the options, \v, and after */
} cli_command;

/* Fills in a request; `--help` leaves from inside. Returns 0, or CLI_WRONG
 * after saying what is wrong, with the nearest option there is. */
int cli_parse(const char *verb, const cli_command *command, int argc,
              char **argv, void *request);

/* The first of these options, up to NULL, that the command line parsed last
 * gives; NULL: none. */
const char *cli_given(const char *const *names);
#define CLI_GIVEN(...) cli_given((const char *const[]){__VA_ARGS__, NULL})

/* The option of a name; NULL where there is none. */
const cli_option *cli_find_option(const cli_option *options, const char *name);

/* An option's value as one would type it; "" where it has none. */
void cli_value_text(const cli_option *option, const void *request, char *out,
                    size_t size);

/* Says why a value is not one; returns EINVAL. */
error_t cli_refuse(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* For parsers of values. */
error_t cli_parse_int(const char *option, const char *text, int *out);
error_t cli_parse_number(const char *option, const char *text, double *out);
error_t cli_parse_choice(const char *option, const char *text,
                         const char *words, int *out);

/* What options mean that more than one verb has. */
#define CLI_RECOMPUTE_HELP                                                     \
    "Save only the inputs of a stage, and run its forward again in backward: " \
    "less memory, about a third more compute"
#define CLI_NO_WORK_STEALING_HELP                                              \
    "A rank that waits does not take over work of ranks that compute"

/* Options that more than one verb has. */
#define CLI_RANKS(help, sizes)                                                 \
    CLI_LETTERED('p', "ranks", "N", SIZE, sizes.ranks, help)
#define CLI_STAGES_PER_RANK(sizes)                                             \
    CLI_LETTERED('v', "stages-per-rank", "N", SIZE, sizes.stages_per_rank,     \
                 "Stages on each rank (1; 2 for zbv and dualpipev)")
#define CLI_MICROBATCHES(help, sizes)                                          \
    CLI_LETTERED('m', "microbatches", "N", SIZE, sizes.microbatches, help)
#define CLI_THREADS(field)                                                     \
    CLI_LETTERED('t', "threads", "N", SIZE, field, "Threads of each rank (1)")
#define CLI_PRECISION(field)                                                   \
    CLI_VALUED("precision", "f32|bf16", CHOICE, field,                         \
               "Precision of activations, messages and products; with bf16, "  \
               "weights are kept in f32, and sums and losses are f32 (f32)")
typedef enum cli_precision { CLI_F32, CLI_BF16 } cli_precision;
static inline sl_dtype cli_dtype(cli_precision precision)
{
    return precision == CLI_BF16 ? SL_BF16 : SL_F32;
}
#define CLI_DEVICE(field)                                                      \
    CLI_VALUED(                                                                \
        "device", "cpu|cuda[:N]", TEXT, field,                                 \
        "What computes: the CPU, GPU N, or with cuda GPUs in turn, one "       \
        "for each rank; `sluice devices` lists them (cpu)")
#define CLI_DETERMINISTIC(field)                                               \
    CLI_SWITCH("deterministic", field,                                         \
               "On GPUs, the same bits in every run: attention whose sums "    \
               "have one order, instead of cuDNN's")
#define CLI_NO_GRAPH(field)                                                    \
    CLI_SWITCH(                                                                \
        "no-graph", field,                                                     \
        "On GPUs, enqueue each step anew, instead of replaying the one "       \
        "that was recorded as a graph; with --deterministic, the same bits")
/* Sets what computes, as --device says; NULL: the CPU. Refuses what is not
 * there. */
int cli_choose_device(const char *verb, const char *device,
                      sl_stage_options *out);
/* "bf16 by avx512, products by amx". */
const char *cli_precision_text(cli_precision precision, const char *device,
                               char out[160]);
/* In the order of sl_reading. */
#define CLI_COMM_WORDS "async|per-edge|ordered|blocking"
#define CLI_COMM_HELP                                                          \
    "How messages complete. async (the default): independently, without "      \
    "blocking a rank; per-edge: those from one rank to another in posted "     \
    "order; ordered: all of a rank in posted order; blocking: each blocks "    \
    "sender and receiver. Except for async, a schedule without "               \
    "communication is first lowered as by `sluice lower --passes send-recv`"

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

/* ------------------------------------------------------------ schedules.c */

/* A schedule as it is named in an argument. */
typedef struct cli_schedule_name {
    const char *name;  /* of a schedule, in `text`; or the argument, a file */
    const char *words; /* the sizes as they were written; or "" */
    sl_sizes sizes;    /* what it says itself; 0: nothing */
    char text[128];
} cli_schedule_name;

/* Takes NAME:v=2,m=16 apart, sizes for this schedule alone. */
int cli_parse_schedule(const char *verb, const char *argument,
                       cli_schedule_name *out);

/* Puts the sizes that are given over others. */
void cli_put_sizes(const sl_sizes *given, sl_sizes *over);

/* Reads a schedule from CSV in a file or standard input. */
int cli_read_schedule(const char *verb, const char *path, sl_schedule **out);

/* A schedule by name, with sizes of its own (cli_parse_schedule), or from a
 * file that ends in .csv, which then must be what is asked for; sizes of 0 are
 * not, and `usual`. */
int cli_choose_schedule(const char *verb, const char *name,
                        const sl_sizes *asked, const sl_sizes *usual,
                        sl_schedule **out);

/* Runs passes, as of `sluice lower --passes`, over a schedule; NULL: none. */
int cli_run_passes(const char *verb, const char *passes,
                   sl_schedule **schedule);
#define CLI_PASSES_HELP                                                        \
    "Run these passes over the schedule first, like `sluice lower --passes`; " \
    "delay-w=16 computes weight gradients for 16 microbatches at once"

/* Where messages are to be ordered or to block, there must be some: gives the
 * schedule what `sluice lower --passes send-recv` does, if it has none. */
sl_status cli_add_messages(sl_reading reading, sl_schedule **schedule);

/* Refuses a schedule from a file that is not of the sizes asked
 * for; 0 is any. */
int cli_check_sizes(const char *verb, const char *name, const sl_sizes *asked,
                    const sl_schedule *schedule);

/* Refuses a schedule for another number of ranks than the job has; a `comm` of
 * NULL is no job. */
int cli_check_job(const char *verb, const sl_schedule *schedule,
                  const sl_comm *comm);

/* "4 ranks, 8 stages, 1 microbatch"; returns `out`. */
const char *cli_extent_text(const sl_extent *extent, char out[80]);

/* ------------------------------------------------------------------ job.c */

/* Runs a function on each rank: on this one of a job, or on so many threads. */
sl_status cli_run_ranks(sl_comm *comm, int ranks, sl_rank_fn run,
                        void *context);

/* On all ranks of a job: bytes of the first, a sum, and whether all were given
 * the same. */
sl_status cli_share(sl_comm *comm, void *data, size_t bytes, double timeout_s);
sl_status cli_sum(sl_comm *comm, double *number, double timeout_s);
sl_status cli_agree(sl_comm *comm, const sl_comm_item *items, int count,
                    double timeout_s);

/* Where the model that is named lies: of a run, its latest checkpoint. */
void cli_find_model(const char *named, char *out, size_t size);

/* Refuses text, whose tokens are bytes, for a vocabulary that is another. */
int cli_check_vocabulary(const char *verb, const sl_tokens *tokens,
                         const char *data, int vocabulary);

/* Reads a config.json. */
int cli_read_config(const char *verb, const char *path, sl_gpt2_config *out);

/* Whether a name ends in this, in any case, and has more before it. */
bool cli_ends_in(const char *name, const char *end);

/* Seconds on a clock that only goes forward. */
double cli_seconds(void);

/* Flushes standard output; a failure (a closed pipe, a full disk) is said. */
int cli_flush(const char *verb, sl_status status);

/* The same for whatever leaves without calling it; for atexit. */
void cli_flush_at_exit(void);

/* Writes a number in the fewest digits that read as the same one. */
void cli_number_text(double number, char *out, size_t size);

/* "12.3 MB"; returns `out`. */
const char *cli_amount(double value, const char *unit, char out[32]);

/* The cost of all stages. */
double cli_total_cost(const sl_model *model);

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
