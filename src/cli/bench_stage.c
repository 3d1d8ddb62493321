/* SPDX-License-Identifier: MIT
 *
 * `sluice bench stage`: whole blocks, forward and backward, beside the packed
 * product of oneDNN at the size of their largest layer. */
#include "bench.h"

#include <stdio.h>
#include <string.h>

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
    double f, b, iw, fb, packed, split;
} times;

static sl_status measure(const bench_request *asked, int rows,
                         const bench_subject *subject, times *out)
{
    const struct {
        bench_run run;
        double *out;
    } tries[] = {{{"", "F", ""}, &out->f},
                 {{"F", "B", ""}, &out->b},
                 {{"F", "IW", ""}, &out->iw},
                 {{"", "FB", ""}, &out->fb}};
    double best = 0;
    sl_status status = SL_OK;
    /* In turns, the yardstick among them, so that a change of the machine's
     * mind meets all alike; the best of each counts. */
    enum { ROUNDS = 8 };
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 4 && !status; i++) {
            double took, packed;
            status = sl_measure_packed_matmul(
                rows, 4 * asked->width, asked->width, asked->threads,
                asked->seconds / ROUNDS / 2, &packed);
            if (!status)
                status = bench_time(subject, &tries[i].run,
                                    asked->seconds / ROUNDS, &took);
            if (status)
                return status;
            best = packed > best ? packed : best;
            if (round == 0 || took < *tries[i].out)
                *tries[i].out = took;
        }
    }
    out->packed = best;
    return bench_split(subject, 2 * asked->seconds, &out->split);
}

/* Before the first figure, when nothing more is to be refused. */
static void print_head(const bench_request *asked)
{
    if (asked->json)
        printf("{\"threads\": %d, \"stages\": [\n  ", asked->threads);
    else
        printf("%-6s %9s %9s %9s %9s %9s %8s %8s   (%d thread%s)\n", "block",
               "F ms", "B ms", "I+W ms", "GFLOP/s", "packed", "F+B", "I+W/B",
               asked->threads, asked->threads > 1 ? "s" : "");
}

static void print_json(const char *model, const bench_subject *subject,
                       const times *t, const char *separator)
{
    double gflops = bench_flops(subject, "FB") / t->fb * 1e-9;
    const sl_plan *plan = sl_stage_plan(subject->stage);
    printf("%s{\"model\": \"%s\", \"f_s\": %.9f, \"b_s\": %.9f, "
           "\"iw_s\": %.9f, \"fb_s\": %.9f, \"gflops\": %.2f, "
           "\"packed_gflops\": %.2f, \"ratio\": %.3f, \"iw_over_b\": %.4f, "
           "\"saved_bytes\": %lld, \"workspace_bytes\": %lld}",
           separator, model, t->f, t->b, t->iw, t->fb, gflops, t->packed,
           gflops / t->packed, t->split, (long long)plan->saved_bytes,
           (long long)plan->workspace_bytes);
}

static void print_text(const char *model, const bench_subject *subject,
                       const times *t)
{
    double gflops = bench_flops(subject, "FB") / t->fb * 1e-9;
    printf("%-6s %9.3f %9.3f %9.3f %9.1f %9.1f %8.2f %8.3f\n", model,
           t->f * 1e3, t->b * 1e3, t->iw * 1e3, gflops, t->packed,
           gflops / t->packed, t->split);
}

static sl_status measure_model(const bench_request *asked, const char *model,
                               bool first)
{
    bool is_mlp = strcmp(model, "mlp") == 0;
    int rows = is_mlp ? asked->rows : asked->sequences * asked->length;
    bench_subject subject = {0};
    sl_graph *graph;
    times found;
    sl_status status = sl_graph_create(&graph);
    if (status)
        return status;
    (is_mlp ? build_mlp : build_gpt2)(graph, asked);
    status = bench_prepare(graph, asked, &subject);
    if (!status)
        status = measure(asked, rows, &subject, &found);
    if (!status && first)
        print_head(asked);
    if (!status && asked->json)
        print_json(model, &subject, &found, first ? "" : ",\n  ");
    else if (!status)
        print_text(model, &subject, &found);
    fflush(stdout);
    bench_release(&subject);
    return status;
}

int bench_stage(const bench_request *asked)
{
    static const char *const models[] = {"mlp", "gpt2"};
    sl_status status = SL_OK;
    int shown = 0;
    for (int i = 0; i < 2 && !status; i++) {
        if (!asked->model || strcmp(asked->model, models[i]) == 0)
            status = measure_model(asked, models[i], shown++ == 0);
    }
    if (status)
        return cli_failed(VERB, status);
    if (asked->json)
        printf("\n]}\n");
    return cli_flush(VERB, SL_OK);
}
