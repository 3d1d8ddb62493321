/* SPDX-License-Identifier: MIT
 *
 * `sluice bench kernels`: how fast linear layers are, forward and backward, and
 * what a kernel call costs beyond its work. */
#include "bench.h"

#include <stdio.h>

#define VERB "bench kernels"

static const struct {
    const char *name;
    bench_run run;
} figures[] = {{"forward", {"", "F", ""}},
               {"dI", {"F", "I", "W"}},
               {"dW", {"FI", "W", ""}}};

static sl_graph *build_linear(const int size[3])
{
    sl_graph *graph;
    if (sl_graph_create(&graph))
        return NULL;
    sl_tensor *x =
        sl_input(graph, "x", SL_F32, SL_SHAPE(size[0], size[2]), SL_GRADIENT);
    sl_tensor *weight =
        sl_parameter(graph, "weight", SL_F32, SL_SHAPE(size[1], size[2]));
    sl_tensor *bias = sl_parameter(graph, "bias", SL_F32, SL_SHAPE(size[1]));
    sl_output(graph, "y", sl_linear(x, weight, bias, SL_OUT_IN), SL_GRADIENT);
    return graph;
}

/* Before the first figure, when nothing more is to be refused. */
static void print_head(const bench_request *asked)
{
    char how[160];
    if (asked->json)
        printf("{\"threads\": %d, \"precision\": \"%s\", \"kernels\": [\n  ",
               asked->threads, sl_dtype_text(cli_dtype(asked->precision)));
    else
        printf("%-16s %21s %9s   (%d thread%s, %s)\n", "linear",
               "rows x out x in", "GFLOP/s", asked->threads,
               asked->threads > 1 ? "s" : "",
               cli_precision_text(asked->precision, NULL, how));
}

static void print_figure(const bench_request *asked, const int size[3],
                         const char *name, double gflops, bool first)
{
    if (first)
        print_head(asked);
    if (asked->json)
        printf("%s{\"kernel\": \"linear %s\", \"rows\": %d, \"out\": %d, "
               "\"in\": %d, \"gflops\": %.2f}",
               first ? "" : ",\n  ", name, size[0], size[1], size[2], gflops);
    else
        printf("%-16s %5d x %5d x %5d %9.1f\n", name, size[0], size[1], size[2],
               gflops);
    fflush(stdout);
}

static sl_status measure_figures(const bench_request *asked,
                                 const bench_subject *subject,
                                 const int size[3], bool first)
{
    for (int i = 0; i < 3; i++) {
        double took;
        CLI_TRY(bench_time(subject, &figures[i].run, asked->seconds, &took));
        print_figure(asked, size, figures[i].name,
                     2e-9 * size[0] * size[1] * size[2] / took,
                     first && i == 0);
    }
    return SL_OK;
}

static sl_status measure_linear(const bench_request *asked, const int size[3],
                                bool first)
{
    bench_subject subject = {0};
    sl_graph *graph = build_linear(size);
    if (!graph)
        return sl_fail(SL_ENOMEM, "out of memory");
    sl_status status = bench_prepare(graph, asked, &subject);
    if (!status)
        status = measure_figures(asked, &subject, size, first);
    bench_release(&subject);
    return status;
}

/* A chain of kernels on a single number: next to nothing but the calls. */
static sl_status measure_overhead(const bench_request *asked, double *out_ns)
{
    enum { KERNELS = 2000 };
    sl_graph *graph;
    bench_subject subject = {0};
    double took = 0;
    CLI_TRY(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(1), SL_NO_GRADIENT);
    for (int i = 0; i < KERNELS; i++)
        x = sl_scale(x, 1.0);
    sl_output(graph, "y", x, SL_NO_GRADIENT);
    bench_request one = *asked;
    one.threads = 1;
    sl_status status = bench_prepare(graph, &one, &subject);
    if (!status)
        status = bench_time(&subject, &(bench_run){"", "F", ""}, asked->seconds,
                            &took);
    bench_release(&subject);
    *out_ns = took / KERNELS * 1e9;
    return status;
}

int bench_kernels(const bench_request *asked)
{
    double overhead_ns = 0;
    for (int i = 0; i < asked->size_count; i++)
        CLI_TRY(
            cli_result(VERB, measure_linear(asked, asked->sizes[i], i == 0)));
    CLI_TRY(cli_result(VERB, measure_overhead(asked, &overhead_ns)));
    if (asked->json)
        printf("\n], \"overhead_ns\": %.1f}\n", overhead_ns);
    else
        printf("\noverhead per kernel: %.0f ns\n", overhead_ns);
    return cli_flush(VERB, SL_OK);
}
