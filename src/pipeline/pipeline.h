/* SPDX-License-Identifier: MIT
 *
 * What training uses of a pipeline besides the public header: this rank's
 * position in it, and the stream and backend of its work. */
#ifndef SL_PIPELINE_PIPELINE_H
#define SL_PIPELINE_PIPELINE_H

#include "comm/comm.h"
#include "sluice/pipeline.h"
#include "tensor/program.h"

/* One rank's position in a pipeline; the pipeline owns what it points to. */
typedef struct sl__pipeline_info {
    sl_comm *comm;
    const sl__backend *backend;
    sl__stream *stream;    /* of all work of this rank */
    sl_programs *programs; /* of all stages */
    const int *rank_of;    /* by stage */
    const int *own_stages; /* of this rank */
    int own_count;
    int rank, ranks; /* this one, and how many the pipeline has */
    int replica;     /* which of the pipelines side by side */
    int microbatches;
    bool shards;  /* a replica keeps only its shard of parameters */
    bool records; /* steps are recorded as graphs */
    double timeout_s;
} sl__pipeline_info;
sl__pipeline_info sl__pipeline_describe(const sl_pipeline *pipeline);

/* The ranks of this pipeline, without those of other replicas; writes them to
 * `ranks`, SL_COMM_MAX_RANKS of them. */
sl_group sl__pipeline_group(const sl_pipeline *pipeline, int *ranks);

/* The tag of collectives between steps. */
enum { SL__TAG_END = SL_COMM_MAX_TAG - 1 };

/* What all ranks of a process enqueue in a step, recorded as one graph when it
 * is first run. */
typedef struct sl__recording {
    bool exists;
    void *graph; /* rank 0 has it */
} sl__recording;

/* Enqueues on all ranks what `enqueue` does, and waits for its end. Where steps
 * are recorded, `enqueue` is called the first time alone. (graph.c) */
sl_status sl__run_recorded(const sl__pipeline_info *at, sl__recording *own,
                           sl_status (*enqueue)(void *context), void *context);
void sl__forget_recording(const sl__backend *backend, sl__recording *own);

/* Adds bytes that an optimizer allocates on this rank (negative: frees) to
 * those that sl_pipeline_bytes reports. */
void sl__pipeline_add_optimizer_bytes(sl_pipeline *pipeline, int64_t bytes);

/* Makes all ranks fail, unless a rank has failed before. Returns the first
 * failure, with its sentence. */
sl_status sl__abort_ranks(sl_comm *comm, sl_status status, const char *text);
sl_status sl__abort_pipeline(sl_pipeline *pipeline, sl_status status);

#endif
