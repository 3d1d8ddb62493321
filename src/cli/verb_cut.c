/* SPDX-License-Identifier: MIT
 *
 * `sluice cut`: how a model is cut into stages. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERB "cut"

typedef struct request {
    enum { GPT2, MLP } model;
    const char *config;
    int layers, width, heads, length, vocabulary, rows;
    bool untied;
    sl_sizes sizes;
    const char *at;
    bool whole, measure, json;
    int hop;
    int threads;
    cli_precision precision;
} request;

#define AT(field) offsetof(request, field)
static const cli_option options[] = {
    CLI_HEADED("Model:"),
    CLI_VALUED("model", "gpt2|mlp", CHOICE, model, "Model (gpt2)"),
    CLI_VALUED("config", "FILE", TEXT, config,
               "A GPT-2 with the sizes of this config.json"),
    CLI_OPTION("layers", SIZE, layers, "Layers (12; mlp: 16)"),
    CLI_OPTION("d", SIZE, width, "Width (768; mlp: 512)"),
    CLI_OPTION("heads", SIZE, heads, "Attention heads (12)"),
    CLI_OPTION("vocab", SIZE, vocabulary, "Vocabulary size (50257)"),
    CLI_SWITCH("untied", untied,
               "Give lm_head its own weight, instead of the embedding's"),
    CLI_OPTION("seq", SIZE, length,
               "Sequence length (1024; with --config: its longest)"),
    CLI_OPTION("microbatch-size", SIZE, rows,
               "Sequences in a microbatch (1; mlp: rows, 16)"),
    CLI_PRECISION(precision),
    CLI_HEADED("Cut:"),
    CLI_RANKS("Cut into ranks times stages per rank, by cost", sizes),
    CLI_LETTERED('v', "stages-per-rank", "N", SIZE, sizes.stages_per_rank,
                 "Stages on each rank (1)"),
    CLI_VALUED("at", "NAMES", TEXT, at,
               "Cut before or after these modules: 'transformer.h.4,after "
               "transformer.h.8'"),
    CLI_SWITCH(
        "whole", whole,
        "Cut only between modules, even if a cut inside one would be more "
        "even"),
    CLI_SWITCH("measure", measure,
               "Balance measured times of modules on this machine, not flops"),
    CLI_LETTERED('t', "threads", "N", SIZE, threads,
                 "Threads to measure with (1)"),
    CLI_VALUED(
        "route", "direct|hop", CHOICE, hop,
        "Send a tensor straight to a later stage, or from stage to stage "
        "(direct)"),
    CLI_HEADED("Output:"),
    CLI_SWITCH("json", json, "Print JSON"),
    {0},
};

static error_t refuse_argument(const char *argument, void *unused)
{
    (void)unused;
    return cli_refuse("nothing goes with '%.60s'; --config takes a file",
                      argument);
}

static const cli_command command = {
    .options = options,
    .take = refuse_argument,
    .help =
        "Show how a model is cut into pipeline stages: the modules, parameters "
        "and floating point operations of each, what crosses between them per "
        "microbatch, which parameters are tied, and how even the cut is.\v"
        "A cut by cost makes the largest stage as small as possible; it cuts "
        "inside a module only if that makes it at least 3% smaller. Among "
        "equally good cuts it takes the one that sends the fewest bytes "
        "between stages. `sluice train` cuts the same way. Balance is the cost "
        "of the mean stage over that of the largest.\n\n"
        "  sluice cut -p 4\n"
        "  sluice cut --config config.json -p 4 -v 2 --microbatch-size 4\n"
        "  sluice cut --at transformer.h.4,transformer.h.8\n"
        "  sluice cut --model mlp -p 4 --measure --json",
};

/* ------------------------------------------------------------- refusing -- */

static int refuse_idle_options(const request *asked)
{
    if (asked->model == MLP &&
        CLI_GIVEN("heads", "vocab", "seq", "untied", "config"))
        return cli_say(VERB, CLI_WRONG,
                       "--heads, --vocab, --seq, --untied and --config go with "
                       "gpt2");
    if (asked->config && CLI_GIVEN("layers", "d", "heads", "vocab", "untied"))
        return cli_say(VERB, CLI_WRONG,
                       "--config says what --layers, --d, --heads, --vocab and "
                       "--untied would");
    if (!asked->sizes.ranks && !asked->at)
        return cli_say(VERB, CLI_WRONG,
                       "say how many stages: -p RANKS, or where: --at NAMES");
    if (asked->at && CLI_GIVEN("ranks", "stages-per-rank", "whole", "measure"))
        return cli_say(VERB, CLI_WRONG,
                       "--at says where; -p, -v, --whole and --measure go "
                       "with a cut by cost");
    if (asked->threads && !asked->measure)
        return cli_say(VERB, CLI_WRONG, "--threads goes with --measure");
    int per_rank = asked->sizes.stages_per_rank;
    if ((int64_t)asked->sizes.ranks * per_rank > INT32_MAX)
        return cli_say(VERB, CLI_WRONG, "%d ranks of %d stages are too many",
                       asked->sizes.ranks, per_rank);
    return CLI_DONE;
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
    CLI_TRY(cli_read_config(VERB, asked->config, config));
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
    if (asked->model == MLP) {
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
        CLI_TRY(read_gpt2(asked, &config));
        int rows = asked->rows ? asked->rows : 1;
        int length = asked->length ? asked->length : config.positions;
        sl_gpt2_build(graph, &config, NULL, rows, length);
        snprintf(title, size,
                 "gpt2: %d layers of width %d, %d heads, vocabulary %d%s; "
                 "microbatch of %d x %d",
                 config.layers, config.width, config.heads, config.vocabulary,
                 config.tied ? ", tied" : "", rows, length);
    }
    return cli_result(
        VERB, sl_graph_set_precision(graph, cli_dtype(asked->precision)));
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

static sl_status measure_modules(const request *asked, const sl_graph *graph,
                                 sl_module_cost **out, int *out_count)
{
    sl_stage_options stage = SL_STAGE_OPTIONS_INIT;
    stage.threads = asked->threads ? asked->threads : 1;
    return sl_measure_modules(graph, &stage,
                              isatty(STDERR_FILENO) ? show_progress : NULL,
                              NULL, out, out_count);
}

/* How to cut, in names or costs that the caller frees. */
static sl_status choose_cut(const request *asked, const sl_graph *graph,
                            sl_cut_options *how, sl_cut_point **points,
                            sl_module_cost **costs)
{
    how->route = asked->hop ? SL_ROUTE_HOP : SL_ROUTE_DIRECT;
    if (asked->at) {
        how->by = SL_CUT_AT_NAMES;
        CLI_TRY(sl_cut_points_read(asked->at, points, &how->point_count));
        how->points = *points;
        return SL_OK;
    }
    how->by = SL_CUT_BY_COST;
    how->inside = !asked->whole && !asked->measure;
    how->stages = asked->sizes.ranks * asked->sizes.stages_per_rank;
    if (asked->measure)
        CLI_TRY(measure_modules(asked, graph, costs, &how->cost_count));
    how->costs = *costs;
    return SL_OK;
}

static sl_status cut(const request *asked, const sl_graph *graph, found *out)
{
    sl_cut_options how = SL_CUT_OPTIONS_INIT;
    sl_cut_point *points = NULL;
    sl_module_cost *costs = NULL;
    sl_status status = choose_cut(asked, graph, &how, &points, &costs);
    double start = cli_seconds();
    if (!status)
        status = sl_model_cut(graph, &how, &out->model);
    out->seconds = cli_seconds() - start;
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

static void print_stage(const sl_model *model, int s, bool seconds)
{
    char flops[32], parameters[32], cost[32] = "", modules[96];
    const sl_stage_info *info = sl_model_stage(model, s);
    double total = cli_total_cost(model);
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

/* "a", "b": what stands between the brackets of a list. */
static void print_names(const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        printf("%s\"%s\"", i ? ", " : "", names[i]);
}

static void print_numbers(const int *numbers, int count)
{
    for (int i = 0; i < count; i++)
        printf("%s%d", i ? ", " : "", numbers[i]);
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
        printf(" in stages ");
        print_numbers(ties[i].stages, ties[i].stage_count);
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
        print_names(info->modules, info->module_count);
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
        print_numbers(c->consumers, c->consumer_count);
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
        print_names(ties[i].names, ties[i].name_count);
        printf("], \"stages\": [");
        print_numbers(ties[i].stages, ties[i].stage_count);
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

static int build_and_cut(const request *asked, sl_graph *graph)
{
    char title[256];
    found shown = {0};
    CLI_TRY(build(asked, graph, title, sizeof title));
    CLI_TRY(cli_result(VERB, cut(asked, graph, &shown)));
    (asked->json ? print_json : print_text)(&shown, title);
    sl_model_destroy(shown.model);
    return cli_flush(VERB, SL_OK);
}

int verb_cut(int argc, char **argv)
{
    request asked = {.model = GPT2};
    sl_graph *graph;
    CLI_TRY(cli_parse(VERB, &command, argc, argv, &asked));
    if (!asked.sizes.stages_per_rank)
        asked.sizes.stages_per_rank = 1;
    CLI_TRY(refuse_idle_options(&asked));
    CLI_TRY(cli_result(VERB, sl_graph_create(&graph)));
    int exit_status = build_and_cut(&asked, graph);
    sl_graph_destroy(graph);
    return exit_status;
}
