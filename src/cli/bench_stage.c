/* SPDX-License-Identifier: MIT
 *
 * `sluice bench stage`: whole blocks, forward and backward. */
#include "bench.h"

#include <stdio.h>

#define VERB "bench stage"

static void build_mlp(sl_graph *graph, const bench_request *asked)
{
    const sl_mlp_config config = {1, asked->width};
    sl_tensor *x = sl_input(graph, "x", SL_F32,
                            SL_SHAPE(asked->rows, asked->width), SL_GRADIENT);
    sl_output(graph, "y", sl_mlp_layer(graph, &config, 0, x), SL_GRADIENT);
}

static void build_gpt2(sl_graph *graph, const bench_request *asked)
{
    sl_gpt2_config config = SL_GPT2_CONFIG_INIT;
    config.width = asked->width;
    config.heads = asked->heads;
    sl_tensor *x = sl_input(
        graph, "x", SL_F32,
        SL_SHAPE(asked->sequences, asked->length, asked->width), SL_GRADIENT);
    sl_output(graph, "y", sl_gpt2_layer(graph, &config, NULL, 0, x),
              SL_GRADIENT);
}

typedef struct times {
    double f, b, iw, fb, split;
} times;

static sl_status measure(const bench_request *asked,
                         const bench_subject *subject, times *out)
{
    const struct {
        bench_run run;
        double *out;
    } tries[] = {{{"", "F", ""}, &out->f},
                 {{"F", "B", ""}, &out->b},
                 {{"F", "IW", ""}, &out->iw},
                 {{"", "FB", ""}, &out->fb}};
    /* In turn, so that a change of the machine's clock meets all of them alike;
     * the best of each counts. */
    enum { ROUNDS = 8 };
    double seconds = asked->seconds / ROUNDS;
    for (int i = 0; i < 4; i++)
        *tries[i].out = 1e9;
    for (int i = 0; i < 4 * ROUNDS; i++) {
        double took, *best = tries[i % 4].out;
        CLI_TRY(bench_time(subject, &tries[i % 4].run, seconds, &took));
        *best = took < *best ? took : *best;
    }
    return bench_split(subject, 2 * asked->seconds, &out->split);
}

/* Before the first figure, when nothing more is to be refused. */
static void print_head(const bench_request *asked)
{
    char how[160];
    if (asked->json)
        printf("{\"threads\": %d, \"precision\": \"%s\", \"stages\": [\n  ",
               asked->threads, sl_dtype_text(cli_dtype(asked->precision)));
    else
        printf("%-6s %9s %9s %9s %9s %8s   (%d thread%s, %s)\n", "block",
               "F ms", "B ms", "I+W ms", "GFLOP/s", "I+W/B", asked->threads,
               asked->threads > 1 ? "s" : "",
               cli_precision_text(asked->precision, NULL, how));
}

static void print_json(const char *model, const bench_subject *subject,
                       const times *t, const char *separator)
{
    double gflops = bench_flops(subject, "FB") / t->fb * 1e-9;
    const sl_plan *plan = sl_stage_plan(subject->stage);
    printf("%s{\"model\": \"%s\", \"f_s\": %.9f, \"b_s\": %.9f, "
           "\"iw_s\": %.9f, \"fb_s\": %.9f, \"gflops\": %.2f, "
           "\"iw_over_b\": %.4f, "
           "\"saved_bytes\": %lld, \"workspace_bytes\": %lld}",
           separator, model, t->f, t->b, t->iw, t->fb, gflops, t->split,
           (long long)plan->saved_bytes, (long long)plan->workspace_bytes);
}

static void print_text(const char *model, const bench_subject *subject,
                       const times *t)
{
    double gflops = bench_flops(subject, "FB") / t->fb * 1e-9;
    printf("%-6s %9.3f %9.3f %9.3f %9.1f %8.3f\n", model, t->f * 1e3,
           t->b * 1e3, t->iw * 1e3, gflops, t->split);
}

static sl_status measure_model(const bench_request *asked, bool is_mlp,
                               bool first)
{
    const char *name = is_mlp ? "mlp" : "gpt2";
    bench_subject subject = {0};
    sl_graph *graph;
    times found = {0};
    CLI_TRY(sl_graph_create(&graph));
    (is_mlp ? build_mlp : build_gpt2)(graph, asked);
    sl_status status = bench_prepare(graph, asked, &subject);
    if (!status)
        status = measure(asked, &subject, &found);
    if (!status && first)
        print_head(asked);
    if (!status && asked->json)
        print_json(name, &subject, &found, first ? "" : ",\n  ");
    else if (!status)
        print_text(name, &subject, &found);
    fflush(stdout);
    bench_release(&subject);
    return status;
}

int bench_stage(const bench_request *asked)
{
    bool mlp = asked->model != BENCH_GPT2, gpt2 = asked->model != BENCH_MLP;
    if (mlp)
        CLI_TRY(cli_result(VERB, measure_model(asked, true, true)));
    if (gpt2)
        CLI_TRY(cli_result(VERB, measure_model(asked, false, !mlp)));
    if (asked->json)
        printf("\n]}\n");
    return cli_flush(VERB, SL_OK);
}
