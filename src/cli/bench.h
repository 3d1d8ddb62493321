/* SPDX-License-Identifier: MIT
 *
 * What the benchmarks share: a stage filled with noise, and programs
 * timed. */
#ifndef SL_CLI_BENCH_H
#define SL_CLI_BENCH_H

#include "cli.h"

/* What is asked of a benchmark. */
typedef struct bench_request {
    int threads;
    double seconds; /* of trying per figure */
    bool json;
    cli_precision precision;
    /* kernels */
    int sizes[8][3]; /* rows, out, in */
    int size_count;
    /* stage */
    enum { BENCH_BOTH = -1, BENCH_MLP, BENCH_GPT2 } model;
    int width;
    int rows;
    int heads;
    int length;
    int sequences;
    bool recompute;
} bench_request;

int bench_kernels(const bench_request *asked);
int bench_stage(const bench_request *asked);
int bench_step(int argc, char **argv); /* with options of its own */

/* A compiled graph, ready to run on one slot. */
typedef struct bench_subject {
    sl_stage *stage;
    sl_memory *memory;
} bench_subject;

/* Compiles for `asked` and fills parameters and inputs with noise. Takes the
 * graph. */
sl_status bench_prepare(sl_graph *graph, const bench_request *asked,
                        bench_subject *out);
void bench_release(bench_subject *subject);

/* Programs to time ("F", "IW", ...), with those that must run, untimed, before
 * and after them. */
typedef struct bench_run {
    const char *before;
    const char *programs;
    const char *after;
} bench_run;

/* The best seconds of running these. */
sl_status bench_time(const bench_subject *subject, const bench_run *what,
                     double seconds, double *out_seconds);

/* What splitting backward costs: I and W over B, medians of
 * alternating runs. */
sl_status bench_split(const bench_subject *subject, double seconds,
                      double *out_ratio);

/* Orders doubles for qsort. */
int bench_ascending(const void *left, const void *right);

/* Flops of some programs. */
double bench_flops(const bench_subject *subject, const char *programs);

/* A model whose stages do nothing. */
sl_status bench_build_empty(int stages, int64_t rows, sl_model **out);

#endif
