/* SPDX-License-Identifier: MIT
 *
 * `sluice train`: a GPT-2 on text or tokens, on ranks that are threads, or
 * processes where it was launched as some of a job's. */
#include "train.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERB "train"

/* --------------------------------------------------------------- options -- */

enum {
    KEY_VALIDATION = 256,
    KEY_FRACTION,
    KEY_LENGTH,
    KEY_STRIDE,
    KEY_BATCH,
    KEY_CONFIG,
    KEY_LAYERS,
    KEY_WIDTH,
    KEY_HEADS,
    KEY_VOCABULARY,
    KEY_POSITIONS,
    KEY_UNTIED,
    KEY_INIT,
    KEY_SCHEDULE,
    KEY_CUT,
    KEY_RECOMPUTE,
    KEY_ALONE,
    KEY_PASSES,
    KEY_OPTIMIZER,
    KEY_RATE,
    KEY_DECAY_RATE,
    KEY_LAST_RATE,
    KEY_WARMUP,
    KEY_WEIGHT_DECAY,
    KEY_DECAY_ALL,
    KEY_BETA1,
    KEY_BETA2,
    KEY_EPSILON,
    KEY_MOMENTUM,
    KEY_CLIP,
    KEY_STEPS,
    KEY_EPOCHS,
    KEY_SEED,
    KEY_EVAL_EVERY,
    KEY_EVAL_BATCHES,
    KEY_OUT,
    KEY_SAVE_EVERY,
    KEY_KEEP,
    KEY_RESUME,
    KEY_LOG,
    KEY_DATA,
    KEY_TRACE,
    KEY_REPORT,
    KEY_OPTIONS,
    KEY_TIMEOUT,
    KEY_DRY,
};

static const struct argp_option options[] = {
    {NULL, 0, NULL, 0, "Data:", 1},
    {"data", KEY_DATA, "DATA", 0, "The same as DATA, for an --options file", 1},
    {"val", KEY_VALIDATION, "DATA", 0, "Data to validate with", 1},
    {"val-fraction", KEY_FRACTION, "X", 0,
     "Without --val: the fraction of DATA, from its end, that is held out for "
     "validation (0.05)",
     1},
    {"seq", KEY_LENGTH, "N", 0, "Tokens of a sequence (128)", 1},
    {"stride", KEY_STRIDE, "N", 0,
     "Tokens from the start of one sequence to the start of the next (--seq)",
     1},
    {"batch", KEY_BATCH, "N", 0,
     "Sequences in a step, of all microbatches (32)", 1},
    {NULL, 0, NULL, 0, "Model:", 2},
    {"config", KEY_CONFIG, "FILE", 0,
     "Hugging Face's config.json; the options below override it", 2},
    {"layers", KEY_LAYERS, "N", 0, "Layers (4)", 2},
    {"d", KEY_WIDTH, "N", 0, "Width (128)", 2},
    {"heads", KEY_HEADS, "N", 0, "Attention heads (4)", 2},
    {"vocab", KEY_VOCABULARY, "N", 0,
     "Vocabulary size (256 for text, 50304 for tokens)", 2},
    {"positions", KEY_POSITIONS, "N", 0,
     "Longest sequence the model can take (--seq)", 2},
    {"untied", KEY_UNTIED, NULL, 0,
     "Give lm_head a weight of its own, not that of the embedding", 2},
    {"init", KEY_INIT, "PATH", 0,
     "Start from the weights in a Hugging Face folder or a safetensors file",
     2},
    {NULL, 0, NULL, 0, "Layout:", 3},
    {"schedule", KEY_SCHEDULE, "NAME|FILE.csv", 0,
     "Schedule, by name or from a file (1F1B)", 3},
    {"passes", KEY_PASSES, "LIST", 0, CLI_PASSES_HELP, 3},
    {"ranks", 'p', "N", 0, "Ranks (1; under mpirun, as many as it has started)",
     3},
    {"stages-per-rank", 'v', "N", 0, CLI_STAGES_HELP, 3},
    {"microbatches", 'm', "N", 0, "Microbatches in a step (4)", 3},
    {"cut", KEY_CUT, "NAMES", 0,
     "Cut before or after these modules: 'transformer.h.2,after "
     "transformer.h.5' (by cost)",
     3},
    {"recompute", KEY_RECOMPUTE, NULL, 0,
     "Save only the inputs of a stage, and run its forward again in backward: "
     "less memory, about a third more compute",
     3},
    {"threads", 't', "N", 0, "Threads of each rank (1)", 3},
    {"no-lending", KEY_ALONE, NULL, 0,
     "Ranks that wait do not help with what others compute", 3},
    {NULL, 0, NULL, 0, "Optimization:", 4},
    {"optimizer", KEY_OPTIMIZER, "adamw|sgd", 0, "Optimizer (adamw)", 4},
    {"lr", KEY_RATE, "X", 0, "Learning rate (0.001)", 4},
    {"lr-decay", KEY_DECAY_RATE, "constant|linear|cosine", 0,
     "How the learning rate decays after the warm-up (cosine)", 4},
    {"lr-last", KEY_LAST_RATE, "X", 0,
     "Learning rate at the last step, as a fraction of --lr (0.1)", 4},
    {"warmup", KEY_WARMUP, "N", 0, "Steps of linear warm-up (20)", 4},
    {"weight-decay", KEY_WEIGHT_DECAY, "X", 0, "Decoupled weight decay (0.1)",
     4},
    {"decay-all", KEY_DECAY_ALL, NULL, 0,
     "Decay biases and norms as well, not only matrices", 4},
    {"beta1", KEY_BETA1, "X", 0, "AdamW: decay of the first moment (0.9)", 4},
    {"beta2", KEY_BETA2, "X", 0, "AdamW: decay of the second moment (0.95)", 4},
    {"eps", KEY_EPSILON, "X", 0, "AdamW: epsilon (1e-8)", 4},
    {"momentum", KEY_MOMENTUM, "X", 0, "SGD: momentum (0.9)", 4},
    {"clip", KEY_CLIP, "X", 0,
     "Clip the norm of the gradient to this; 0: never (1)", 4},
    {NULL, 0, NULL, 0, "Run:", 5},
    {"steps", KEY_STEPS, "N", 0, "Optimizer steps (200)", 5},
    {"epochs", KEY_EPOCHS, "N", 0, "Passes over the data, instead of --steps",
     5},
    {"seed", KEY_SEED, "N", 0, "Seed for initial weights and data order (1)",
     5},
    {"eval-every", KEY_EVAL_EVERY, "N", 0,
     "Steps between validations; 0: none (100)", 5},
    {"eval-batches", KEY_EVAL_BATCHES, "N", 0,
     "Batches of a validation, at most (10)", 5},
    {"out", KEY_OUT, "DIR", 0, "Folder for checkpoints", 5},
    {"save-every", KEY_SAVE_EVERY, "N", 0,
     "Steps between checkpoints; 0: only at the end (0)", 5},
    {"keep", KEY_KEEP, "N", 0,
     "Checkpoints to keep, besides the one with the least validation loss (3)",
     5},
    {"resume", KEY_RESUME, NULL, 0,
     "Continue the run in --out from its newest sound checkpoint, with its "
     "options; others given here override them",
     5},
    {"log", KEY_LOG, "FILE", 0,
     "Append a line per step: JSON, or CSV where the name ends in .csv", 5},
    {"trace", KEY_TRACE, "FILE", 0,
     "Write the last step as a Chrome/Perfetto trace", 5},
    {"report", KEY_REPORT, "FILE.html", 0,
     "Write a page of the last step, planned above measured", 5},
    {"options", KEY_OPTIONS, "FILE", 0,
     "Read options from JSON, an object with their long names", 5},
    {"timeout", KEY_TIMEOUT, "S", 0,
     "Seconds that a rank may wait for another (600)", 5},
    {"dry-run", KEY_DRY, NULL, 0,
     "Print the layout, the memory of every rank and the messages between "
     "them, and end",
     5},
    {0},
};

/* Where values go; what is not listed has a parser of its own. */
#define AT(field) offsetof(train_request, field)
static const struct {
    int key;
    enum { SIZE, COUNT, NUMBER, TEXT, FLAG } kind;
    size_t offset;
} fields[] = {
    {KEY_DATA, TEXT, AT(usual_data)},
    {KEY_VALIDATION, TEXT, AT(validation)},
    {KEY_FRACTION, NUMBER, AT(fraction)},
    {KEY_LENGTH, SIZE, AT(length)},
    {KEY_STRIDE, SIZE, AT(stride)},
    {KEY_BATCH, SIZE, AT(batch)},
    {KEY_CONFIG, TEXT, AT(config)},
    {KEY_LAYERS, SIZE, AT(layers)},
    {KEY_WIDTH, SIZE, AT(width)},
    {KEY_HEADS, SIZE, AT(heads)},
    {KEY_VOCABULARY, SIZE, AT(vocabulary)},
    {KEY_POSITIONS, SIZE, AT(positions)},
    {KEY_UNTIED, FLAG, AT(untied)},
    {KEY_INIT, TEXT, AT(init)},
    {KEY_SCHEDULE, TEXT, AT(schedule)},
    {KEY_PASSES, TEXT, AT(passes)},
    {'p', SIZE, AT(sizes.ranks)},
    {'v', SIZE, AT(sizes.stages_per_rank)},
    {'m', SIZE, AT(sizes.microbatches)},
    {KEY_CUT, TEXT, AT(cut)},
    {KEY_RECOMPUTE, FLAG, AT(recompute)},
    {'t', SIZE, AT(threads)},
    {KEY_ALONE, FLAG, AT(alone)},
    {KEY_RATE, NUMBER, AT(rate.rate)},
    {KEY_LAST_RATE, NUMBER, AT(rate.last)},
    {KEY_WARMUP, COUNT, AT(warmup)},
    {KEY_WEIGHT_DECAY, NUMBER, AT(optimizer.decay)},
    {KEY_DECAY_ALL, FLAG, AT(optimizer.decay_all)},
    {KEY_BETA1, NUMBER, AT(optimizer.beta1)},
    {KEY_BETA2, NUMBER, AT(optimizer.beta2)},
    {KEY_EPSILON, NUMBER, AT(optimizer.epsilon)},
    {KEY_MOMENTUM, NUMBER, AT(optimizer.momentum)},
    {KEY_CLIP, NUMBER, AT(optimizer.clip)},
    {KEY_STEPS, SIZE, AT(steps)},
    {KEY_EPOCHS, SIZE, AT(epochs)},
    {KEY_SEED, COUNT, AT(seed)},
    {KEY_EVAL_EVERY, COUNT, AT(eval_every)},
    {KEY_EVAL_BATCHES, SIZE, AT(eval_batches)},
    {KEY_OUT, TEXT, AT(out)},
    {KEY_SAVE_EVERY, COUNT, AT(save_every)},
    {KEY_KEEP, SIZE, AT(keep)},
    {KEY_RESUME, FLAG, AT(resume)},
    {KEY_LOG, TEXT, AT(log)},
    {KEY_TRACE, TEXT, AT(trace)},
    {KEY_REPORT, TEXT, AT(report)},
    {KEY_TIMEOUT, NUMBER, AT(timeout_s)},
    {KEY_DRY, FLAG, AT(dry_run)},
};
enum { FIELDS = sizeof fields / sizeof *fields };

static const char *const decays[] = {"constant", "linear", "cosine"};
static const char *const optimizers[] = {"adamw", "sgd"};

static const char *name_of(int key)
{
    for (const struct argp_option *o = options; o->name || o->doc; o++) {
        if (o->name && o->key == key)
            return o->name;
    }
    return "";
}

/* A plain value; ARGP_ERR_UNKNOWN where the option has none. */
static error_t parse_field(int key, const char *arg, train_request *r)
{
    char name[40];
    for (size_t i = 0; i < FIELDS; i++) {
        if (fields[i].key != key)
            continue;
        void *at = (char *)r + fields[i].offset;
        snprintf(name, sizeof name, "--%s", name_of(key));
        switch (fields[i].kind) {
        case NUMBER: return cli_parse_number(name, arg, at);
        case SIZE: return cli_parse_size(name, arg, at);
        case TEXT: *(const char **)at = arg; return 0;
        case FLAG: *(bool *)at = true; return 0;
        case COUNT: break;
        }
        error_t error = cli_parse_int(name, arg, at);
        if (!error && *(const int *)at < 0)
            error = cli_refuse("%s is 0 or more, not %s", name, arg);
        return error;
    }
    return ARGP_ERR_UNKNOWN;
}

/* -------------------------------------------------------------- as texts -- */

/* The value of an option as one would type it; "" where it is not given and has
 * no default. */
static void show_field(const train_request *r, int key, char *out, size_t size)
{
    out[0] = '\0';
    if (key == KEY_OPTIMIZER)
        snprintf(out, size, "%s", optimizers[r->optimizer.kind]);
    if (key == KEY_DECAY_RATE)
        snprintf(out, size, "%s", decays[r->rate.kind]);
    for (size_t i = 0; i < FIELDS; i++) {
        if (fields[i].key != key)
            continue;
        const void *at = (const char *)r + fields[i].offset;
        int number = fields[i].kind <= COUNT ? *(const int *)at : 0;
        const char *text =
            fields[i].kind == TEXT ? *(const char *const *)at : NULL;
        switch (fields[i].kind) {
        case NUMBER: cli_number_text(*(const double *)at, out, size); break;
        case FLAG:
            snprintf(out, size, "%s", *(const bool *)at ? "true" : "");
            break;
        case TEXT: snprintf(out, size, "%s", text ? text : ""); break;
        case SIZE:
        case COUNT:
            if (number > 0 || (fields[i].kind == COUNT && number == 0))
                snprintf(out, size, "%d", number);
            break;
        }
    }
}

int train_items(const train_request *r, train_item *out)
{
    int count = 0;
    for (const struct argp_option *o = options; o->name || o->doc; o++) {
        if (!o->name || o->key == KEY_OPTIONS)
            continue;
        assert(count < TRAIN_ITEMS_MAX);
        out[count].name = o->name;
        out[count].is_flag = !o->arg;
        show_field(r, o->key, out[count].value, sizeof out[count].value);
        count++;
    }
    return count;
}

static error_t parse_decay(const char *arg, sl_rate *rate)
{
    for (int i = 0; i < 3; i++) {
        if (strcmp(arg, decays[i]) == 0) {
            rate->kind = (sl_rate_kind)i;
            return 0;
        }
    }
    return cli_refuse("--lr-decay is constant, linear or cosine, not '%.40s'",
                      arg);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    train_request *r = state->input;
    bool sgd;
    error_t error;
    switch (key) {
    case KEY_STEPS: r->steps_given = true; return parse_field(key, arg, r);
    case KEY_REPORT:
        r->report = arg;
        if (strlen(arg) > 5 && strcmp(arg + strlen(arg) - 5, ".html") == 0)
            return 0;
        return cli_refuse("--report writes a page: a name that ends in .html, "
                          "not '%.60s'",
                          arg);
    case KEY_OPTIONS: /* Read already. */
        return r->options && strcmp(arg, r->options) == 0
                   ? 0
                   : cli_refuse("write --options once, and in full");
    case KEY_DECAY_RATE: return parse_decay(arg, &r->rate);
    case KEY_OPTIMIZER:
        error = cli_parse_word("--optimizer", arg, optimizers[0], optimizers[1],
                               &sgd);
        if (!error)
            r->optimizer.kind = sgd ? SL_UPDATE_SGD : SL_UPDATE_ADAMW;
        return error;
    case ARGP_KEY_ARG:
        if (r->data)
            return cli_refuse("one DATA at a time: '%.60s' and '%.60s'",
                              r->data, arg);
        r->data = arg;
        return 0;
    default: return parse_field(key, arg, r);
    }
}

static const struct argp argp = {
    options,
    parse_option,
    "DATA\n--out DIR --resume",
    "Train a GPT-2. DATA is a text file, whose bytes are the tokens, a folder "
    "of such files, or a .bin file of token ids as nanoGPT and llm.c write "
    "them.\v"
    "  sluice train book.txt --out run\n"
    "  sluice train --out run --resume --steps 500\n"
    "  sluice train src -p 4 -v 2 -m 8 --schedule Interleaved1F1B --dry-run\n"
    "  mpirun -n 4 sluice train tokens.bin --out run\n"
    "\n"
    "The same seed sees the same data on any layout. Ctrl-C finishes the step, "
    "writes a checkpoint and ends with status 130; a second one ends at once. "
    "Dropout rates in a config are ignored: training runs without dropout.",
    NULL,
    NULL,
    NULL};

/* Whether a text is part of the command line, not of an --options file. */
static bool is_among(const char *text, int argc, char **argv)
{
    for (int i = 0; text && i < argc; i++) {
        if (text >= argv[i] && text <= argv[i] + strlen(argv[i]))
            return true;
    }
    return false;
}

static const train_request usual = {.fraction = 0.05,
                                    .length = 128,
                                    .batch = 32,
                                    .schedule = "1F1B",
                                    .threads = 1,
                                    .optimizer = SL_OPTIMIZER_OPTIONS_INIT,
                                    .rate = {SL_RATE_COSINE, 1e-3, 0.1, 0, 0},
                                    .warmup = 20,
                                    .steps = 200,
                                    .seed = -1,
                                    .eval_every = 100,
                                    .eval_batches = 10,
                                    .keep = 3,
                                    .timeout_s = 600};

/* Parses what was typed behind what comes from files. */
static int parse_words(const train_words *words, int argc, char **argv,
                       train_request *out)
{
    *out = usual;
    out->options = words->path;
    int exit_status = cli_parse(VERB, &argp, words->count, words->data, out);
    if (exit_status)
        return exit_status;
    if (out->data && is_among(out->usual_data, argc, argv))
        return cli_say(VERB, CLI_WRONG,
                       "one DATA at a time: '%.60s' and '%.60s'",
                       out->usual_data, out->data);
    if (!out->data)
        out->data = out->usual_data;
    out->usual_data = out->data;
    return CLI_DONE;
}

/* The request; a run that is resumed has the options that it had, but for those
 * that are given now. */
static int read_request(int argc, char **argv, train_words words[2],
                        train_request *asked)
{
    int exit_status = train_make_words(options, NULL, argc, argv, &words[0]);
    if (!exit_status)
        exit_status = parse_words(&words[0], argc, argv, asked);
    if (exit_status || !asked->resume || !asked->out)
        return exit_status;
    json_t *stored = NULL, *had = NULL;
    exit_status = train_read_stored(asked, usual.schedule, &had, &stored);
    if (!exit_status && stored)
        exit_status = train_make_words(options, stored, argc, argv, &words[1]);
    if (!exit_status && stored)
        exit_status = parse_words(&words[1], argc, argv, asked);
    asked->stored = had;
    json_decref(stored);
    return exit_status;
}

static int refuse_no_data(const train_request *asked)
{
    if (!asked->resume || !asked->out)
        return cli_say(VERB, CLI_WRONG,
                       "say what to train on: a file or a folder");
    if (access(asked->out, F_OK) != 0)
        return cli_say(VERB, CLI_WRONG, "there is no run in %.200s",
                       asked->out);
    return cli_say(VERB, CLI_WRONG,
                   "%.200s has no options.json: say what to train on, a file "
                   "or a folder",
                   asked->out);
}

int verb_train(int argc, char **argv)
{
    train_request asked = usual;
    train_words words[2] = {{0}};
    int exit_status = read_request(argc, argv, words, &asked);
    if (!exit_status && !asked.data)
        exit_status = refuse_no_data(&asked);
    if (!exit_status)
        exit_status = train_go(&asked);
    train_free_words(&words[0]);
    train_free_words(&words[1]);
    json_decref(asked.stored);
    return exit_status;
}
