/* SPDX-License-Identifier: MIT
 *
 * Timing stages. The best of many tries is what counts: noise only adds. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

static sl_program program_of(char letter)
{
    return (sl_program)(strchr("FIWB", letter) - "FIWB");
}

/* Small numbers of either sign. */
static sl_status fill(const bench_subject *subject, sl_port_kind kind)
{
    uint32_t state = 1;
    for (int i = 0; i < sl_stage_port_count(subject->stage, kind); i++) {
        sl_port port;
        CLI_TRY(sl_stage_port_at(subject->stage, kind, i, &port));
        /* What is bf16 is converted. */
        int64_t count = port.bytes / (int64_t)sl_dtype_bytes(port.dtype);
        port.dtype = SL_F32;
        port.bytes = count * (int64_t)sizeof(float);
        float *data = malloc((size_t)port.bytes);
        if (!data)
            return sl_fail(SL_ENOMEM, "out of memory");
        for (int64_t k = 0; k < count; k++) {
            state = state * 1664525 + 1013904223;
            data[k] = ((float)(state >> 8) / 8388608.0f - 1.0f) * 0.1f;
        }
        sl_status status = sl_memory_write(subject->memory, &port, 0, data,
                                           (size_t)port.bytes);
        free(data);
        CLI_TRY(status);
    }
    return SL_OK;
}

sl_status bench_prepare(sl_graph *graph, const bench_request *asked,
                        bench_subject *out)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    options.threads = asked->threads;
    options.recompute = asked->recompute;
    *out = (bench_subject){0};
    sl_status status =
        sl_graph_set_precision(graph, cli_dtype(asked->precision));
    if (!status)
        status = sl_stage_compile(graph, &options, &out->stage);
    sl_graph_destroy(graph);
    CLI_TRY(status);
    CLI_TRY(sl_memory_create(out->stage, 1, &out->memory));
    CLI_TRY(fill(out, SL_PORT_PARAMETER));
    CLI_TRY(fill(out, SL_PORT_INPUT));
    return fill(out, SL_PORT_OUTPUT_GRADIENT);
}

void bench_release(bench_subject *subject)
{
    sl_memory_destroy(subject->memory);
    sl_stage_destroy(subject->stage);
}

static sl_status run(const bench_subject *subject, const char *programs)
{
    for (; *programs; programs++)
        CLI_TRY(sl_stage_run(subject->stage, program_of(*programs),
                             subject->memory, 0, NULL));
    return SL_OK;
}

sl_status bench_time(const bench_subject *subject, const bench_run *what,
                     double seconds, double *out_seconds)
{
    double best = 1e9, start = cli_seconds();
    for (int i = 0; i < 3 || cli_seconds() - start < seconds; i++) {
        CLI_TRY(run(subject, what->before));
        double from = cli_seconds();
        CLI_TRY(run(subject, what->programs));
        double took = cli_seconds() - from;
        CLI_TRY(run(subject, what->after));
        best = took < best ? took : best;
    }
    *out_seconds = best;
    return SL_OK;
}

int bench_ascending(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

sl_status bench_split(const bench_subject *subject, double seconds,
                      double *out_ratio)
{
    enum { ROUNDS_MAX = 20000 };
    static double took[2][ROUNDS_MAX];
    static const char *const ways[2] = {"B", "IW"};
    double start = cli_seconds();
    int rounds = 0;
    while (rounds < ROUNDS_MAX &&
           (rounds < 3 || cli_seconds() - start < seconds)) {
        for (int way = 0; way < 2; way++) {
            CLI_TRY(run(subject, "F"));
            double from = cli_seconds();
            CLI_TRY(run(subject, ways[way]));
            took[way][rounds] = cli_seconds() - from;
        }
        rounds++;
    }
    for (int way = 0; way < 2; way++)
        qsort(took[way], (size_t)rounds, sizeof(double), bench_ascending);
    *out_ratio = took[1][rounds / 2] / took[0][rounds / 2];
    return SL_OK;
}

double bench_flops(const bench_subject *subject, const char *programs)
{
    double flops = 0;
    for (; *programs; programs++)
        flops += sl_stage_flops(subject->stage, program_of(*programs));
    return flops;
}
