/* SPDX-License-Identifier: MIT
 *
 * Timing stages. The best of many tries is what counts: noise only adds. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static sl_program program_of(char letter)
{
    return (sl_program)(strchr("FIWB", letter) - "FIWB");
}

/* Small numbers of either sign. */
static sl_status fill(const bench_subject *subject, sl_port_kind kind)
{
    sl_status status = SL_OK;
    uint32_t state = 1;
    for (int i = 0; i < sl_stage_port_count(subject->stage, kind); i++) {
        sl_port port;
        status = sl_stage_port_at(subject->stage, kind, i, &port);
        float *data = status ? NULL : malloc((size_t)port.bytes);
        if (!data)
            return status ? status : sl_fail(SL_ENOMEM, "out of memory");
        for (int64_t k = 0; k < port.bytes / (int64_t)sizeof *data; k++) {
            state = state * 1664525 + 1013904223;
            data[k] = ((float)(state >> 8) / 8388608.0f - 1.0f) * 0.1f;
        }
        status = sl_memory_write(subject->memory, &port, 0, data,
                                 (size_t)port.bytes);
        free(data);
        if (status)
            return status;
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
    sl_status status = sl_stage_compile(graph, &options, &out->stage);
    sl_graph_destroy(graph);
    if (!status)
        status = sl_memory_create(out->stage, 1, &out->memory);
    if (!status)
        status = fill(out, SL_PORT_PARAMETER);
    if (!status)
        status = fill(out, SL_PORT_INPUT);
    if (!status)
        status = fill(out, SL_PORT_OUTPUT_GRADIENT);
    return status;
}

void bench_release(bench_subject *subject)
{
    sl_memory_destroy(subject->memory);
    sl_stage_destroy(subject->stage);
}

static sl_status run(const bench_subject *subject, const char *programs)
{
    sl_status status = SL_OK;
    for (; *programs && !status; programs++)
        status = sl_stage_run(subject->stage, program_of(*programs),
                              subject->memory, 0, NULL);
    return status;
}

sl_status bench_time(const bench_subject *subject, const bench_run *what,
                     double seconds, double *out_seconds)
{
    double best = 1e9, start = seconds_now();
    for (int i = 0; i < 3 || seconds_now() - start < seconds; i++) {
        sl_status status = run(subject, what->before);
        double from = seconds_now();
        if (!status)
            status = run(subject, what->programs);
        double took = seconds_now() - from;
        if (!status)
            status = run(subject, what->after);
        if (status)
            return status;
        best = took < best ? took : best;
    }
    *out_seconds = best;
    return SL_OK;
}

static int ascending(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

sl_status bench_split(const bench_subject *subject, double seconds,
                      double *out_ratio)
{
    enum { TURNS_MAX = 20000 };
    static double took[2][TURNS_MAX];
    static const char *const ways[2] = {"B", "IW"};
    double start = seconds_now();
    int turns = 0;
    while (turns < TURNS_MAX &&
           (turns < 3 || seconds_now() - start < seconds)) {
        for (int way = 0; way < 2; way++) {
            sl_status status = run(subject, "F");
            double from = seconds_now();
            if (!status)
                status = run(subject, ways[way]);
            took[way][turns] = seconds_now() - from;
            if (status)
                return status;
        }
        turns++;
    }
    for (int way = 0; way < 2; way++)
        qsort(took[way], (size_t)turns, sizeof(double), ascending);
    *out_ratio = took[1][turns / 2] / took[0][turns / 2];
    return SL_OK;
}

double bench_flops(const bench_subject *subject, const char *programs)
{
    double flops = 0;
    for (; *programs; programs++)
        flops += sl_stage_flops(subject->stage, program_of(*programs));
    return flops;
}
