/* SPDX-License-Identifier: MIT
 *
 * `sluice train`: a GPT-2 on text or tokens, on ranks that are threads, or
 * processes where it was launched as some of a job's. */
#include "train.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
};

static const struct argp_option options[] = {
    {NULL, 0, NULL, 0, "Data:", 1},
    {"data", KEY_DATA, "DATA", 0, "The same as DATA, for an --options file", 1},
    {"val", KEY_VALIDATION, "DATA", 0, "Data to validate with", 1},
    {"val-fraction", KEY_FRACTION, "X", 0,
     "Part of DATA to validate with instead, from its end (0.05)", 1},
    {"seq", KEY_LENGTH, "N", 0, "Tokens of a sequence (128)", 1},
    {"stride", KEY_STRIDE, "N", 0,
     "Tokens from one sequence to the next (--seq)", 1},
    {"batch", KEY_BATCH, "N", 0, "Sequences of a step (32)", 1},
    {NULL, 0, NULL, 0, "Model:", 2},
    {"config", KEY_CONFIG, "FILE", 0,
     "Hugging Face's config.json; options below win over it", 2},
    {"layers", KEY_LAYERS, "N", 0, "Layers (4)", 2},
    {"d", KEY_WIDTH, "N", 0, "Width (128)", 2},
    {"heads", KEY_HEADS, "N", 0, "Heads (4)", 2},
    {"vocab", KEY_VOCABULARY, "N", 0,
     "Vocabulary (256 for text, 50304 for tokens)", 2},
    {"positions", KEY_POSITIONS, "N", 0, "Longest sequence (--seq)", 2},
    {"untied", KEY_UNTIED, NULL, 0, "lm_head has a weight of its own", 2},
    {"init", KEY_INIT, "PATH", 0,
     "Start with the weights of a folder or safetensors file", 2},
    {NULL, 0, NULL, 0, "Layout:", 3},
    {"schedule", KEY_SCHEDULE, "NAME|FILE.csv", 0, "Schedule (1F1B)", 3},
    {"ranks", 'p', "N", 0, "Ranks (1; of a job, its ranks)", 3},
    {"stages-per-rank", 'v', "N", 0, "Stages on each (1)", 3},
    {"microbatches", 'm', "N", 0, "Microbatches (4)", 3},
    {"cut", KEY_CUT, "NAMES", 0,
     "Cut before or after modules, like 'transformer.h.2' (by cost)", 3},
    {"recompute", KEY_RECOMPUTE, NULL, 0,
     "Save inputs alone, run forward again in backward", 3},
    {"threads", 't', "N", 0, "Threads of each rank (1)", 3},
    {"no-lending", KEY_ALONE, NULL, 0,
     "Threads of a rank that waits do not help the others", 3},
    {NULL, 0, NULL, 0, "Learning:", 4},
    {"optimizer", KEY_OPTIMIZER, "adamw|sgd", 0, "Which one (adamw)", 4},
    {"lr", KEY_RATE, "X", 0, "Rate (0.001)", 4},
    {"lr-decay", KEY_DECAY_RATE, "constant|linear|cosine", 0,
     "How the rate goes down after the warm-up (cosine)", 4},
    {"lr-last", KEY_LAST_RATE, "X", 0, "To which part of it (0.1)", 4},
    {"warmup", KEY_WARMUP, "N", 0, "Steps of warm-up (20)", 4},
    {"weight-decay", KEY_WEIGHT_DECAY, "X", 0, "Decoupled decay (0.1)", 4},
    {"decay-all", KEY_DECAY_ALL, NULL, 0,
     "Decay biases and norms too, not matrices alone", 4},
    {"beta1", KEY_BETA1, "X", 0, "Of adamw (0.9)", 4},
    {"beta2", KEY_BETA2, "X", 0, "Of adamw (0.95)", 4},
    {"eps", KEY_EPSILON, "X", 0, "Of adamw (1e-8)", 4},
    {"momentum", KEY_MOMENTUM, "X", 0, "Of sgd (0.9)", 4},
    {"clip", KEY_CLIP, "X", 0, "Largest norm of the gradient; 0: any (1)", 4},
    {NULL, 0, NULL, 0, "Run:", 5},
    {"steps", KEY_STEPS, "N", 0, "Steps (200)", 5},
    {"epochs", KEY_EPOCHS, "N", 0, "Times through the data, instead", 5},
    {"seed", KEY_SEED, "N", 0, "Of first weights and the data's order (1)", 5},
    {"eval-every", KEY_EVAL_EVERY, "N", 0,
     "Steps between validations; 0: none (100)", 5},
    {"eval-batches", KEY_EVAL_BATCHES, "N", 0, "Batches of one, at most (10)",
     5},
    {"out", KEY_OUT, "DIR", 0, "Folder of checkpoints", 5},
    {"save-every", KEY_SAVE_EVERY, "N", 0,
     "Steps between checkpoints; 0: at the end alone (0)", 5},
    {"keep", KEY_KEEP, "N", 0, "Checkpoints to keep, and the best (3)", 5},
    {"resume", KEY_RESUME, NULL, 0,
     "Go on from the newest checkpoint in --out that is sound", 5},
    {"log", KEY_LOG, "FILE", 0, "Append a line of JSON per step", 5},
    {"trace", KEY_TRACE, "FILE", 0,
     "Write the last step as a Chrome/Perfetto trace", 5},
    {"report", KEY_REPORT, "FILE.html", 0,
     "Write the last step as a page, planned above measured", 5},
    {"options", KEY_OPTIONS, "FILE", 0,
     "JSON with any of these options, by their long names", 5},
    {"timeout", KEY_TIMEOUT, "S", 0,
     "Seconds that a rank may wait for another (600)", 5},
    {0},
};

/* Where plain numbers go. */
#define AT(field) offsetof(train_request, field)
static const struct {
    int key;
    enum { SIZE, COUNT, NUMBER } kind;
    size_t offset;
} numbers[] = {
    {KEY_FRACTION, NUMBER, AT(fraction)},
    {KEY_LENGTH, SIZE, AT(length)},
    {KEY_STRIDE, SIZE, AT(stride)},
    {KEY_BATCH, SIZE, AT(batch)},
    {KEY_LAYERS, SIZE, AT(layers)},
    {KEY_WIDTH, SIZE, AT(width)},
    {KEY_HEADS, SIZE, AT(heads)},
    {KEY_VOCABULARY, SIZE, AT(vocabulary)},
    {KEY_POSITIONS, SIZE, AT(positions)},
    {'p', SIZE, AT(sizes.ranks)},
    {'v', SIZE, AT(sizes.stages_per_rank)},
    {'m', SIZE, AT(sizes.microbatches)},
    {'t', SIZE, AT(threads)},
    {KEY_RATE, NUMBER, AT(rate.rate)},
    {KEY_LAST_RATE, NUMBER, AT(rate.last)},
    {KEY_WARMUP, COUNT, AT(warmup)},
    {KEY_WEIGHT_DECAY, NUMBER, AT(optimizer.decay)},
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
    {KEY_SAVE_EVERY, COUNT, AT(save_every)},
    {KEY_KEEP, SIZE, AT(keep)},
    {KEY_TIMEOUT, NUMBER, AT(timeout_s)},
};

static const char *name_of(int key)
{
    for (const struct argp_option *o = options; o->name || o->doc; o++) {
        if (o->name && o->key == key)
            return o->name;
    }
    return "";
}

/* A plain number; ARGP_ERR_UNKNOWN where the option takes none. */
static error_t parse_number(int key, const char *arg, train_request *r)
{
    char name[40];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].key != key)
            continue;
        void *at = (char *)r + numbers[i].offset;
        snprintf(name, sizeof name, "--%s", name_of(key));
        if (numbers[i].kind == NUMBER)
            return cli_parse_number(name, arg, at);
        if (numbers[i].kind == SIZE)
            return cli_parse_size(name, arg, at);
        error_t error = cli_parse_int(name, arg, at);
        if (!error && *(const int *)at < 0)
            error = cli_refuse("%s is 0 or more, not %s", name, arg);
        return error;
    }
    return ARGP_ERR_UNKNOWN;
}

static error_t parse_decay(const char *arg, sl_rate *rate)
{
    static const char *const words[] = {"constant", "linear", "cosine"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(arg, words[i]) == 0) {
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
    case KEY_VALIDATION: r->validation = arg; return 0;
    case KEY_CONFIG: r->config = arg; return 0;
    case KEY_UNTIED: r->untied = true; return 0;
    case KEY_INIT: r->init = arg; return 0;
    case KEY_SCHEDULE: r->schedule = arg; return 0;
    case KEY_CUT: r->cut = arg; return 0;
    case KEY_RECOMPUTE: r->recompute = true; return 0;
    case KEY_ALONE: r->alone = true; return 0;
    case KEY_DECAY_ALL: r->optimizer.decay_all = true; return 0;
    case KEY_OUT: r->out = arg; return 0;
    case KEY_RESUME: r->resume = true; return 0;
    case KEY_LOG: r->log = arg; return 0;
    case KEY_DATA: r->usual_data = arg; return 0;
    case KEY_TRACE: r->trace = arg; return 0;
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
        error = cli_parse_word("--optimizer", arg, "adamw", "sgd", &sgd);
        if (!error)
            r->optimizer.kind = sgd ? SL_UPDATE_SGD : SL_UPDATE_ADAMW;
        return error;
    case ARGP_KEY_ARG:
        if (r->data)
            return cli_refuse("one DATA at a time: '%.60s' and '%.60s'",
                              r->data, arg);
        r->data = arg;
        return 0;
    default: return arg ? parse_number(key, arg, r) : ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    options,
    parse_option,
    "DATA",
    "Train a GPT-2. DATA is a text file, whose bytes are the tokens, a folder "
    "of such, or a .bin file of tokens as nanoGPT and llm.c write them.\v"
    "  sluice train book.txt --out run\n"
    "  sluice train src -p 4 -v 2 -m 8 --schedule Interleaved1F1B --steps 500\n"
    "  sluice train book.txt --out run --resume\n"
    "  mpirun -n 4 sluice train tokens.bin --out run\n"
    "\n"
    "The same seed sees the same data on any layout. Ctrl-C finishes the step, "
    "writes a checkpoint and leaves with status 130; once more leaves at once. "
    "Rates of dropout in a config are not used: training is without.",
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

int verb_train(int argc, char **argv)
{
    train_request asked = {.fraction = 0.05,
                           .length = 128,
                           .batch = 32,
                           .schedule = "1F1B",
                           .sizes = {0, 0, 0},
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
    char **words = NULL;
    int count = 0;
    int exit_status =
        train_read_options(argp.options, argc, argv, &words, &count);
    asked.options = train_options_file(argc, argv);
    if (!exit_status)
        exit_status = cli_parse(VERB, &argp, count, words, &asked);
    if (!exit_status && asked.data && is_among(asked.usual_data, argc, argv))
        exit_status =
            cli_say(VERB, CLI_WRONG, "one DATA at a time: '%.60s' and '%.60s'",
                    asked.usual_data, asked.data);
    if (!asked.data)
        asked.data = asked.usual_data;
    if (!exit_status && !asked.data)
        exit_status = cli_say(VERB, CLI_WRONG,
                              "say what to train on: a file or a folder");
    if (!exit_status)
        exit_status = train_go(&asked);
    train_free_options(words, argc, count);
    return exit_status;
}
