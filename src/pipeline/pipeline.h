/* SPDX-License-Identifier: MIT
 *
 * What training needs to know of a pipeline besides the public header: where this
 * rank stands in it, and what its work runs on. */
#ifndef SL_PIPELINE_PIPELINE_H
#define SL_PIPELINE_PIPELINE_H

#include "comm/comm.h"
#include "sluice/pipeline.h"
#include "tensor/program.h"

/* One rank's place in a pipeline; what it points to is the pipeline's. */
typedef struct sl__pipeline_info {
    sl_comm *comm;
    const sl__backend *backend;
    sl__stream *stream;    /* of all work of this rank */
    sl_programs *programs; /* of all stages */
    const int *rank_of;    /* by stage */
    const int *own_stages; /* of this rank */
    int own_count;
    int rank, ranks; /* this one, of so many in the pipeline */
    int replica;     /* which of the pipelines beside each other */
    int microbatches;
    bool shards; /* a replica keeps only its shard of parameters */
    double timeout_s;
} sl__pipeline_info;
sl__pipeline_info sl__pipeline_describe(const sl_pipeline *pipeline);

/* The ranks of this pipeline, without those of other replicas; writes them to
 * `ranks`, SL_COMM_MAX_RANKS of them. */
sl_group sl__pipeline_group(const sl_pipeline *pipeline, int *ranks);

/* The tag of collectives between steps. */
enum { SL__TAG_END = SL_COMM_MAX_TAG - 1 };

/* Counts bytes that an optimizer allocates (or, negative, frees) on this rank,
 * for sl_pipeline_bytes. */
void sl__pipeline_add_optimizer_bytes(sl_pipeline *pipeline, int64_t bytes);

/* Fails on all ranks, where none has failed before. Returns the first failure,
 * with its sentence. */
sl_status sl__abort_ranks(sl_comm *comm, sl_status status, const char *text);
sl_status sl__abort_pipeline(sl_pipeline *pipeline, sl_status status);

#endif
