/* SPDX-License-Identifier: MIT
 *
 * `sluice train`: trains a GPT-2 on text or tokens, on ranks that are threads,
 * or processes that mpirun started. */
#include "train.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERB "train"

/* It was read already. */
static error_t parse_options(const char *text, void *out)
{
    const char **read = out;
    return *read && strcmp(text, *read) == 0
               ? 0
               : cli_refuse("write --options once, and in full");
}

#define AT(field) offsetof(train_request, field)
static const cli_option options[] = {
    CLI_HEADED("Data:"),
    CLI_VALUED("data", "DATA", TEXT, usual_data,
               "The same as DATA, for an --options file"),
    CLI_VALUED("val", "DATA", TEXT, validation, "Validation data"),
    CLI_OPTION("val-fraction", NUMBER, fraction,
               "Without --val: fraction of DATA, at its end, to hold out for "
               "validation (0.05)"),
    CLI_OPTION("seq", SIZE, length, "Sequence length, in tokens (128)"),
    CLI_OPTION("stride", SIZE, stride,
               "Tokens from the start of one sequence to the start of the next "
               "(--seq)"),
    CLI_OPTION("batch", SIZE, batch,
               "Sequences per step, over all microbatches (32)"),
    CLI_HEADED("Model:"),
    CLI_VALUED("config", "FILE", TEXT, config,
               "Hugging Face's config.json; the options below override it"),
    CLI_OPTION("layers", SIZE, layers, "Layers (4)"),
    CLI_OPTION("d", SIZE, width, "Width (128)"),
    CLI_OPTION("heads", SIZE, heads, "Attention heads (4)"),
    CLI_OPTION("vocab", SIZE, vocabulary,
               "Vocabulary size (256 for text, 50304 for tokens)"),
    CLI_OPTION("positions", SIZE, positions,
               "Longest sequence the model can take (--seq)"),
    CLI_SWITCH("untied", untied,
               "Give lm_head its own weight, instead of the embedding's"),
    CLI_VALUED("init", "PATH", TEXT, init,
               "Start from the weights in a Hugging Face folder or a "
               "safetensors file"),
    CLI_HEADED("Layout:"),
    CLI_VALUED("schedule", "NAME|FILE.csv", TEXT, schedule,
               "Schedule, by name or from a file (1F1B)"),
    CLI_VALUED("passes", "LIST", TEXT, passes, CLI_PASSES_HELP),
    CLI_RANKS("Ranks (1; under mpirun, the number of processes)", sizes),
    CLI_STAGES_PER_RANK(sizes),
    CLI_MICROBATCHES("Microbatches in a step (4)", sizes),
    CLI_VALUED("cut", "NAMES", TEXT, cut,
               "Cut before or after these modules: 'transformer.h.2,after "
               "transformer.h.5' (by cost)"),
    CLI_DEVICE(device),
    CLI_PRECISION(precision),
    CLI_SWITCH("recompute", recompute, CLI_RECOMPUTE_HELP),
    CLI_THREADS(threads),
    CLI_SWITCH("no-work-stealing", alone, CLI_NO_WORK_STEALING_HELP),
    CLI_NO_GRAPH(no_graph),
    CLI_DETERMINISTIC(deterministic),
    CLI_HEADED("Optimization:"),
    CLI_VALUED("optimizer", "adamw|sgd", CHOICE, optimizer.kind,
               "Optimizer (adamw)"),
    CLI_OPTION("lr", NUMBER, rate.rate, "Learning rate (0.001)"),
    CLI_VALUED("lr-decay", "constant|linear|cosine", CHOICE, rate.kind,
               "How the learning rate decays after the warm-up (cosine)"),
    CLI_OPTION("lr-last", NUMBER, rate.last,
               "Learning rate at the last step, as a fraction of --lr (0.1)"),
    CLI_OPTION("warmup", COUNT, warmup, "Steps of linear warm-up (20)"),
    CLI_OPTION("weight-decay", NUMBER, optimizer.decay,
               "Decoupled weight decay (0.1)"),
    CLI_SWITCH("decay-all", optimizer.decay_all,
               "Decay biases and norms as well, not only matrices"),
    CLI_OPTION("beta1", NUMBER, optimizer.beta1,
               "AdamW: decay of the first moment (0.9)"),
    CLI_OPTION("beta2", NUMBER, optimizer.beta2,
               "AdamW: decay of the second moment (0.95)"),
    CLI_OPTION("eps", NUMBER, optimizer.epsilon, "AdamW: epsilon (1e-8)"),
    CLI_OPTION("momentum", NUMBER, optimizer.momentum, "SGD: momentum (0.9)"),
    CLI_OPTION("clip", NUMBER, optimizer.clip,
               "Clip the norm of the gradient to this; 0: never (1)"),
    CLI_HEADED("Run:"),
    CLI_OPTION("steps", SIZE, steps, "Optimizer steps (200)"),
    CLI_OPTION("epochs", SIZE, epochs,
               "Passes over the data, instead of --steps"),
    CLI_OPTION("seed", COUNT, seed,
               "Seed for initial weights and data order (1)"),
    CLI_OPTION("eval-every", COUNT, eval_every,
               "Steps between validations; 0: none (100)"),
    CLI_OPTION("eval-batches", SIZE, eval_batches,
               "Batches per validation, at most (10)"),
    CLI_VALUED("out", "DIR", TEXT, out, "Folder for checkpoints"),
    CLI_OPTION("save-every", COUNT, save_every,
               "Steps between checkpoints; 0: only at the end (0)"),
    CLI_VALUED("save-dtype", "f32|bf16", CHOICE, save_dtype,
               "Element type of the models in checkpoints; with bf16 the f32 "
               "parameters are kept for --resume (f32)"),
    CLI_OPTION(
        "keep", SIZE, keep,
        "Checkpoints to keep, besides the one with the lowest validation "
        "loss (3)"),
    CLI_SWITCH(
        "resume", resume,
        "Continue the run in --out from its newest undamaged checkpoint, "
        "with its options; options given here override them"),
    CLI_VALUED("log", "FILE", TEXT, log,
               "Append a line per step: JSON, or CSV if the name ends in .csv"),
    CLI_VALUED("trace", "FILE", TEXT, trace,
               "Write the last step as a Chrome/Perfetto trace"),
    CLI_VALUED(
        "report", "FILE.html", TEXT, report,
        "Write a page of the last step, planned and measured, and of losses"),
    CLI_PARSED("options", "FILE", options,
               "Read options from a JSON object, by their long names",
               parse_options),
    CLI_VALUED("timeout", "S", NUMBER, timeout_s,
               "Seconds that a rank may wait for another (600)"),
    CLI_SWITCH("dry-run", dry_run,
               "Print the layout, the memory of every rank and the messages "
               "between ranks, without training"),
    {0},
};

static const cli_command command = {
    .options = options,
    .noun = "DATA",
    .offset = AT(data),
    .arguments = "DATA\n--out DIR --resume",
    .help = "Train a GPT-2. DATA is a text file, whose bytes are the tokens; a "
            "folder of such files; or a .bin file of token ids as nanoGPT and "
            "llm.c write them.\v"
            "  sluice train book.txt --out run\n"
            "  sluice train --out run --resume --steps 500\n"
            "  sluice train src -p 4 -v 2 -m 8 --schedule Interleaved1F1B "
            "--dry-run\n"
            "  mpirun -n 4 sluice train tokens.bin --out run\n\n"
            "With the same seed, a run reads the same data on any layout. "
            "Ctrl-C finishes the step, writes a checkpoint and ends with "
            "status 130; a second one ends at once. Training runs without "
            "dropout, whatever the rates in a config.",
};

int train_items(const train_request *r, train_item *out)
{
    int count = 0;
    for (const cli_option *o = options; o->name || o->help; o++) {
        if (!o->name || o->kind == CLI_CUSTOM)
            continue;
        assert(count < TRAIN_ITEMS_MAX);
        train_item *item = &out[count++];
        item->name = o->name;
        item->is_flag = o->kind == CLI_FLAG;
        cli_value_text(o, r, item->value, sizeof item->value);
    }
    return count;
}

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
    CLI_TRY(cli_parse(VERB, &command, words->count, words->data, out));
    if (out->report && !cli_ends_in(out->report, ".html"))
        return cli_say(VERB, CLI_WRONG,
                       "--report writes a page: a name that ends in .html, not "
                       "'%.60s'",
                       out->report);
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
    CLI_TRY(train_make_words(options, NULL, argc, argv, &words[0]));
    CLI_TRY(parse_words(&words[0], argc, argv, asked));
    if (!asked->resume || !asked->out)
        return CLI_DONE;
    json_t *stored = NULL, *had = NULL;
    int exit_status = train_read_stored(asked, usual.schedule, &had, &stored);
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
