/* SPDX-License-Identifier: MIT
 *
 * `sluice cut`: how a model falls into stages. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define VERB "cut"

typedef struct request {
    const char *model; /* NULL: not said */
    const char *config;
    int layers, width, heads, length, vocabulary, rows;
    bool untied;
    int ranks, stages_per_rank;
    const char *at;
    bool whole, measure, hop, json;
    int threads;
} request;

enum {
    KEY_MODEL = 256,
    KEY_CONFIG,
    KEY_LAYERS,
    KEY_WIDTH,
    KEY_HEADS,
    KEY_LENGTH,
    KEY_VOCABULARY,
    KEY_ROWS,
    KEY_UNTIED,
    KEY_AT,
    KEY_WHOLE,
    KEY_MEASURE,
    KEY_ROUTE,
    KEY_JSON,
};

static const struct argp_option options[] = {
    {NULL, 0, NULL, 0, "The model:", 1},
    {"model", KEY_MODEL, "gpt2|mlp", 0, "Model (gpt2)", 1},
    {"config", KEY_CONFIG, "FILE", 0,
     "A GPT-2 with the sizes of this config.json", 1},
    {"layers", KEY_LAYERS, "N", 0, "Layers (12; mlp: 16)", 1},
    {"d", KEY_WIDTH, "N", 0, "Width (768; mlp: 512)", 1},
    {"heads", KEY_HEADS, "N", 0, "Heads (12)", 1},
    {"vocab", KEY_VOCABULARY, "N", 0, "Vocabulary (50257)", 1},
    {"untied", KEY_UNTIED, NULL, 0, "Give lm_head a weight of its own", 1},
    {"seq", KEY_LENGTH, "N", 0,
     "Length of a sequence (1024; the config's most)", 1},
    {"microbatch-size", KEY_ROWS, "N", 0,
     "Sequences in a microbatch (1; mlp: rows, 16)", 1},
    {NULL, 0, NULL, 0, "The cut:", 2},
    {"ranks", 'p', "N", 0, "Cut into ranks times stages per rank, by cost", 2},
    {"stages-per-rank", 'v', "N", 0, "Stages on each rank (1)", 2},
    {"at", KEY_AT, "NAMES", 0,
     "Cut at modules: transformer.h.4,after transformer.h.8", 2},
    {"whole", KEY_WHOLE, NULL, 0,
     "Cut between modules alone, even where a cut inside of one would gain", 2},
    {"measure", KEY_MEASURE, NULL, 0,
     "Balance the seconds that modules take here, not their flops", 2},
    {"threads", 't', "N", 0, "Threads to measure with (1)", 2},
    {"route", KEY_ROUTE, "direct|hop", 0,
     "How tensors reach a stage that is not the next (direct)", 2},
    {NULL, 0, NULL, 0, "Output:", 3},
    {"json", KEY_JSON, NULL, 0, "Print JSON", 3},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    request *asked = state->input;
    bool other;
    switch (key) {
    case KEY_MODEL:
        asked->model = arg;
        return cli_parse_word("--model", arg, "gpt2", "mlp", &other);
    case KEY_CONFIG: asked->config = arg; return 0;
    case KEY_LAYERS: return cli_parse_size("--layers", arg, &asked->layers);
    case KEY_WIDTH: return cli_parse_size("--d", arg, &asked->width);
    case KEY_HEADS: return cli_parse_size("--heads", arg, &asked->heads);
    case KEY_LENGTH: return cli_parse_size("--seq", arg, &asked->length);
    case KEY_VOCABULARY:
        return cli_parse_size("--vocab", arg, &asked->vocabulary);
    case KEY_ROWS:
        return cli_parse_size("--microbatch-size", arg, &asked->rows);
    case KEY_UNTIED: asked->untied = true; return 0;
    case 'p': return cli_parse_size("--ranks", arg, &asked->ranks);
    case 'v':
        return cli_parse_size("--stages-per-rank", arg,
                              &asked->stages_per_rank);
    case KEY_AT: asked->at = arg; return 0;
    case KEY_WHOLE: asked->whole = true; return 0;
    case KEY_MEASURE: asked->measure = true; return 0;
    case 't': return cli_parse_size("--threads", arg, &asked->threads);
    case KEY_ROUTE:
        return cli_parse_word("--route", arg, "direct", "hop", &asked->hop);
    case KEY_JSON: asked->json = true; return 0;
    case ARGP_KEY_ARG:
        return cli_refuse("nothing goes with '%.60s'; --config takes a file",
                          arg);
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    options,
    parse_option,
    NULL,
    "Show how a model falls into pipeline stages: which modules, parameters "
    "and "
    "floating point operations each has, what crosses between them per "
    "microbatch, which parameters are tied, and how even it is.\v"
    "A cut by cost makes the largest stage as small as it can be; it goes "
    "through a module where that makes it at least 3% smaller. Of cuts that "
    "are as good it is the one with the fewest bytes between stages. `sluice "
    "train` cuts the same way. Balance is the mean stage over the largest.\n\n"
    "  sluice cut -p 4\n"
    "  sluice cut --config config.json -p 4 -v 2 --microbatch-size 4\n"
    "  sluice cut --at transformer.h.4,transformer.h.8\n"
    "  sluice cut --model mlp -p 4 --measure --json",
    NULL,
    NULL,
    NULL};

/* ------------------------------------------------------------- refusing -- */

static bool is_mlp(const request *asked)
{
    return asked->model && strcmp(asked->model, "mlp") == 0;
}

static int refuse_idle_options(const request *asked)
{
    if (is_mlp(asked) && (asked->heads || asked->vocabulary || asked->length ||
                          asked->untied || asked->config))
        return cli_say(VERB, CLI_WRONG,
                       "--heads, --vocab, --seq, --untied and --config go with "
                       "gpt2");
    if (asked->config && (asked->layers || asked->width || asked->heads ||
                          asked->vocabulary || asked->untied))
        return cli_say(VERB, CLI_WRONG,
                       "--config says what --layers, --d, --heads, --vocab and "
                       "--untied would");
    if (!asked->ranks && !asked->at)
        return cli_say(VERB, CLI_WRONG,
                       "say how many stages: -p RANKS, or where: --at NAMES");
    if (asked->at && (asked->ranks || asked->stages_per_rank || asked->whole ||
                      asked->measure))
        return cli_say(VERB, CLI_WRONG,
                       "--at says where; -p, -v, --whole and --measure go "
                       "with a cut by cost");
    if (asked->threads && !asked->measure)
        return cli_say(VERB, CLI_WRONG, "--threads goes with --measure");
    int per_rank = asked->stages_per_rank ? asked->stages_per_rank : 1;
    if ((int64_t)asked->ranks * per_rank > INT32_MAX)
        return cli_say(VERB, CLI_WRONG, "%d ranks of %d stages are too many",
                       asked->ranks, per_rank);
    return 0;
}

/* ---------------------------------------------------------------- model -- */

static void override(int given, int *value)
{
    if (given)
        *value = given;
}

/* Fills in the sizes of a GPT-2; returns the exit status. */
static int read_gpt2(const request *asked, sl_gpt2_config *config)
{
    if (!asked->config) {
        override(asked->layers, &config->layers);
        override(asked->width, &config->width);
        override(asked->heads, &config->heads);
        override(asked->vocabulary, &config->vocabulary);
        config->tied = !asked->untied;
        if (asked->length > config->positions)
            config->positions = asked->length;
        return 0;
    }
    char *text;
    size_t length;
    int exit_status = cli_read_file(VERB, asked->config, &text, &length);
    if (exit_status)
        return exit_status;
    sl_status status = sl_gpt2_read_config(text, length, config);
    free(text);
    if (status)
        return cli_say(VERB, CLI_WRONG, "%.200s: %s", asked->config,
                       sl_error_text());
    if (asked->length > config->positions)
        return cli_say(VERB, CLI_WRONG,
                       "--seq is %d, and the config has %d positions",
                       asked->length, config->positions);
    return 0;
}

/* Builds what was asked for, and says what it is in a line. */
static int build(const request *asked, sl_graph *graph, char *title,
                 size_t size)
{
    if (is_mlp(asked)) {
        sl_mlp_config config = SL_MLP_CONFIG_INIT;
        int rows = asked->rows ? asked->rows : 16;
        override(asked->layers, &config.layers);
        override(asked->width, &config.width);
        sl_mlp_build(graph, &config, rows);
        snprintf(title, size,
                 "mlp: %d layers of width %d; microbatch of %d "
                 "rows",
                 config.layers, config.width, rows);
    } else {
        sl_gpt2_config config = SL_GPT2_CONFIG_INIT;
        int exit_status = read_gpt2(asked, &config);
        if (exit_status)
            return exit_status;
        int rows = asked->rows ? asked->rows : 1;
        int length = asked->length ? asked->length : config.positions;
        sl_gpt2_build(graph, &config, NULL, rows, length);
        snprintf(title, size,
                 "gpt2: %d layers of width %d, %d heads, vocabulary %d%s; "
                 "microbatch of %d x %d",
                 config.layers, config.width, config.heads, config.vocabulary,
                 config.tied ? ", tied" : "", rows, length);
    }
    sl_status status = sl_graph_status(graph);
    return status ? cli_failed(VERB, status) : 0;
}

/* -------------------------------------------------------------- cutting -- */

static void show_progress(void *context, int done, int count)
{
    (void)context;
    fprintf(stderr, "\rmeasuring module %d of %d%s", done, count,
            done == count ? "\n" : "");
}

typedef struct found {
    sl_model *model;
    double seconds;   /* that cutting took */
    const char *unit; /* of costs */
} found;

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static sl_status cut(const request *asked, const sl_graph *graph, found *out)
{
    sl_cut_options how = SL_CUT_OPTIONS_INIT;
    sl_cut_point *points = NULL;
    sl_module_cost *costs = NULL;
    sl_status status = SL_OK;
    how.route = asked->hop ? SL_ROUTE_HOP : SL_ROUTE_DIRECT;
    if (asked->at) {
        how.by = SL_CUT_AT_NAMES;
        status = sl_cut_points_read(asked->at, &points, &how.point_count);
        how.points = points;
    } else {
        how.by = SL_CUT_BY_COST;
        how.inside = !asked->whole && !asked->measure;
        how.stages = asked->ranks *
                     (asked->stages_per_rank ? asked->stages_per_rank : 1);
    }
    if (!status && asked->measure) {
        sl_stage_options stage = SL_STAGE_OPTIONS_INIT;
        stage.threads = asked->threads ? asked->threads : 1;
        bool watched = isatty(STDERR_FILENO);
        status =
            sl_measure_modules(graph, &stage, watched ? show_progress : NULL,
                               NULL, &costs, &how.cost_count);
        how.costs = costs;
    }
    double start = seconds_now();
    if (!status)
        status = sl_model_cut(graph, &how, &out->model);
    out->seconds = seconds_now() - start;
    out->unit = asked->measure ? "seconds" : "flops";
    free(points);
    free(costs);
    return status;
}

/* -------------------------------------------------------------- showing -- */

/* Bytes of a microbatch over the boundary behind a stage, either way. */
static void sum_boundary(const sl_model *model, int stage, int64_t *forward,
                         int64_t *backward)
{
    int edge_count, crossing_count;
    const sl_edge *edges = sl_model_edges(model, &edge_count);
    const sl_crossing *crossings = sl_model_crossings(model, &crossing_count);
    *forward = *backward = 0;
    for (int i = 0; i < edge_count; i++) {
        if (edges[i].from > stage || edges[i].to <= stage)
            continue;
        int64_t bytes = crossings[edges[i].crossing].bytes;
        *forward += bytes;
        *backward += edges[i].gradient_name ? bytes : 0;
    }
}

static int largest_stage(const sl_model *model)
{
    int largest = 0;
    for (int s = 1; s < sl_model_stage_count(model); s++) {
        if (sl_model_stage(model, s)->cost >
            sl_model_stage(model, largest)->cost)
            largest = s;
    }
    return largest;
}

static double total_cost(const sl_model *model)
{
    double sum = 0;
    for (int s = 0; s < sl_model_stage_count(model); s++)
        sum += sl_model_stage(model, s)->cost;
    return sum;
}

static void print_stage(const sl_model *model, int s, bool seconds)
{
    char flops[32], parameters[32], cost[32] = "", modules[96];
    const sl_stage_info *info = sl_model_stage(model, s);
    double total = total_cost(model);
    cli_modules(info, modules, sizeof modules);
    if (seconds)
        snprintf(cost, sizeof cost, "  %8.3f ms", info->cost * 1e3);
    printf("%5d  %11s  %11s%s  %5.1f%%  %s\n", s,
           cli_amount((double)info->parameters, "", parameters),
           cli_amount(info->flops, "FLOP", flops), cost,
           total > 0 ? 100 * info->cost / total : 0, modules);
}

static void print_boundaries(const sl_model *model)
{
    for (int s = 0; s + 1 < sl_model_stage_count(model); s++) {
        int64_t forward, backward;
        char there[32], back[32];
        sum_boundary(model, s, &forward, &backward);
        printf("%5d -> %-5d  %s forward, %s backward\n", s, s + 1,
               cli_amount((double)forward, "B", there),
               cli_amount((double)backward, "B", back));
    }
}

static void print_ties(const sl_model *model)
{
    int count;
    const sl_tie *ties = sl_model_ties(model, &count);
    for (int i = 0; i < count; i++) {
        char bytes[32];
        printf("tied: ");
        for (int k = 0; k < ties[i].name_count; k++)
            printf("%s%s", k ? " = " : "", ties[i].names[k]);
        printf(" in stages");
        for (int k = 0; k < ties[i].stage_count; k++)
            printf("%s %d", k ? "," : "", ties[i].stages[k]);
        printf(", %s each\n", cli_amount((double)ties[i].bytes, "B", bytes));
    }
}

static void print_text(const found *cut, const char *title)
{
    const sl_model *model = cut->model;
    bool seconds = strcmp(cut->unit, "seconds") == 0;
    printf("%s\n\n", title);
    printf("stage   parameters      compute%s   share  modules\n",
           seconds ? "     measured" : "");
    for (int s = 0; s < sl_model_stage_count(model); s++)
        print_stage(model, s, seconds);
    printf("\n");
    print_boundaries(model);
    print_ties(model);
    printf("balance %.3f: the mean stage over the largest, stage %d\n",
           sl_model_balance(model), largest_stage(model));
}

static void print_json_stages(const sl_model *model)
{
    printf("\"stages\": [");
    for (int s = 0; s < sl_model_stage_count(model); s++) {
        const sl_stage_info *info = sl_model_stage(model, s);
        printf("%s\n  {\"stage\": %d, \"modules\": [", s ? "," : "", s);
        for (int i = 0; i < info->module_count; i++)
            printf("%s\"%s\"", i ? ", " : "", info->modules[i]);
        printf("], \"parameters\": %lld, \"parameter_bytes\": %lld, "
               "\"flops\": %.0f, \"cost\": %.17g}",
               (long long)info->parameters, (long long)info->parameter_bytes,
               info->flops, info->cost);
    }
    printf("],\n");
}

static void print_json_crossings(const sl_model *model)
{
    int count, edge_count;
    const sl_crossing *crossings = sl_model_crossings(model, &count);
    const sl_edge *edges = sl_model_edges(model, &edge_count);
    printf("\"boundaries\": [");
    for (int s = 0; s + 1 < sl_model_stage_count(model); s++) {
        int64_t forward, backward;
        sum_boundary(model, s, &forward, &backward);
        printf("%s\n  {\"from\": %d, \"to\": %d, \"forward_bytes\": %lld, "
               "\"backward_bytes\": %lld}",
               s ? "," : "", s, s + 1, (long long)forward, (long long)backward);
    }
    printf("],\n\"crossings\": [");
    for (int i = 0; i < count; i++) {
        const sl_crossing *c = &crossings[i];
        printf("%s\n  {\"name\": \"%s\", \"producer\": %d, \"consumers\": [",
               i ? "," : "", c->name, c->producer);
        for (int k = 0; k < c->consumer_count; k++)
            printf("%s%d", k ? ", " : "", c->consumers[k]);
        printf("], \"dtype\": \"%s\", \"shape\": [", sl_dtype_text(c->dtype));
        for (int k = 0; k < c->dims; k++)
            printf("%s%lld", k ? ", " : "", (long long)c->shape[k]);
        printf("], \"bytes\": %lld, \"gradient\": %s}", (long long)c->bytes,
               c->gradient ? "true" : "false");
    }
    printf("],\n\"edges\": [");
    for (int i = 0; i < edge_count; i++)
        printf("%s\n  {\"crossing\": %d, \"from\": %d, \"to\": %d, "
               "\"gradient\": %s}",
               i ? "," : "", edges[i].crossing, edges[i].from, edges[i].to,
               edges[i].gradient_name ? "true" : "false");
    printf("],\n");
}

static void print_json_ties(const sl_model *model)
{
    int count;
    const sl_tie *ties = sl_model_ties(model, &count);
    printf("\"ties\": [");
    for (int i = 0; i < count; i++) {
        printf("%s\n  {\"names\": [", i ? "," : "");
        for (int k = 0; k < ties[i].name_count; k++)
            printf("%s\"%s\"", k ? ", " : "", ties[i].names[k]);
        printf("], \"stages\": [");
        for (int k = 0; k < ties[i].stage_count; k++)
            printf("%s%d", k ? ", " : "", ties[i].stages[k]);
        printf("], \"bytes\": %lld}", (long long)ties[i].bytes);
    }
    printf("],\n");
}

static void print_json(const found *cut, const char *title)
{
    const sl_model *model = cut->model;
    printf("{\"model\": \"%s\", \"cost_unit\": \"%s\",\n", title, cut->unit);
    print_json_stages(model);
    print_json_crossings(model);
    print_json_ties(model);
    printf("\"balance\": %.17g, \"largest_stage\": %d, \"cut_s\": %.6f}\n",
           sl_model_balance(model), largest_stage(model), cut->seconds);
}

int verb_cut(int argc, char **argv)
{
    request asked = {0};
    char title[256];
    found shown = {0};
    int exit_status = cli_parse(VERB, &argp, argc, argv, &asked);
    if (!exit_status)
        exit_status = refuse_idle_options(&asked);
    if (exit_status)
        return exit_status;
    sl_graph *graph;
    sl_status status = sl_graph_create(&graph);
    if (status)
        return cli_failed(VERB, status);
    exit_status = build(&asked, graph, title, sizeof title);
    if (!exit_status)
        status = cut(&asked, graph, &shown);
    sl_graph_destroy(graph);
    if (exit_status || status)
        return exit_status ? exit_status : cli_failed(VERB, status);
    (asked.json ? print_json : print_text)(&shown, title);
    sl_model_destroy(shown.model);
    return cli_flush(VERB, SL_OK);
}
