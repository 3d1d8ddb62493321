/* SPDX-License-Identifier: MIT
 *
 * Running a pipeline. Binding (bind.c) turns the order of this rank's actions
 * into a flat list of instructions, once for each way a batch is split; the
 * executor (execute.c) walks the list.
 *
 * Who owns what, per microbatch: a slot of a lane (a stage compiled for one
 * number of rows) from its F to its B or W. Its messages lie in the slot:
 *
 *   inputs            received, or copied from a stage of this rank before F;
 *                     read until B or W
 *   outputs           written by F, sent right after
 *   output gradients  received, or copied here right after the consumer's I or
 *                     B; read until B or W
 *   input gradients   written by I or B, sent right after
 *
 * Receives are posted as soon as the slot is free, so a send finds its receive
 * unless the receiver has no memory for it yet. */
#ifndef SL_PIPELINE_RUNTIME_H
#define SL_PIPELINE_RUNTIME_H

#include "pipeline/model.h"
#include "sluice/comm.h"
#include "sluice/schedule.h"

/* A request that may not have been posted yet. */
typedef struct sl__mail {
    sl_request request;
    bool posted;
    int tag; /* of what is posted, while binding tries a list out */
} sl__mail;

typedef enum sl__instruction_kind {
    SL__DO_RUN,
    SL__DO_FEED, /* copies an argument's microbatch into an input */
    SL__DO_COPY, /* between stages of this rank */
    SL__DO_SEND,
    SL__DO_RECV, /* posts */
    SL__DO_WAIT,
    SL__DO_TAKE, /* what F left: an output, or the loss */
} sl__instruction_kind;

typedef struct sl__instruction {
    sl__instruction_kind kind;
    int stage;
    int microbatch;
    union {
        struct {
            const sl_stage *program_stage;
            sl_memory *memory;
            sl_program program;
            int slot;
        } run;
        struct {
            int argument;
            void *to;
            size_t bytes;
        } feed;
        struct {
            const void *from;
            void *to;
            size_t bytes;
        } copy;
        struct {
            sl__mail *mail;
            void *memory;
            size_t bytes;
            int peer;
            int tag;
            int peer_stage;
        } message;
        struct {
            int output; /* of the model */
            const void *from;
            size_t bytes;
        } take;
    } u;
} sl__instruction;

typedef struct sl__instructions {
    sl__instruction *data;
    size_t count;
    size_t capacity;
} sl__instructions;

/* A stage for one number of rows; programs and memory where it is on this
 * rank. */
typedef struct sl__lane {
    int stage;
    int64_t rows;
    const sl_stage *program_stage;
    sl_memory *memory;
    int slots;
    size_t mails; /* where its first lies */
} sl__lane;

/* A batch split one way: rows by microbatch, lanes, and two lists. */
typedef struct sl__bound {
    sl__arena arena;
    struct sl__bound *next;
    int64_t *rows;
    const sl_model *model; /* of the first microbatch's rows */
    sl__lane *lanes;
    int lane_count;
    sl__instructions train, eval;
    sl__mail *mails;
    size_t mail_count;
    sl_merge **merges; /* by output of the model; NULL: not kept here */
    double *scales;    /* by microbatch: of the gradient of its loss */
} sl__bound;

struct sl_pipeline {
    sl__arena arena;
    sl_comm *comm;
    sl_pipeline_options options;
    sl_programs *programs;
    int microbatches;
    int stages;
    int *rank_of;    /* by stage */
    int *own_stages; /* of this rank */
    int own_count;
    sl_action **orders; /* by rank: its compute actions, overlaps apart */
    size_t *order_counts;
    sl_memory **owners; /* by stage: memory with its parameters; NULL */
    const sl_stage **owner_stages;
    sl__bound *bounds;
    sl__bound *last; /* of the latest step */
    double *losses;
    sl_batch *batch; /* of the latest step */
    int64_t *rows;   /* likewise, by microbatch */
    bool has_losses;
    double busy_s;        /* that programs ran */
    void (*before)(void); /* called before every instruction, by tests */
    int *argument_of;     /* by input of the model, in the step at hand */
    char *scratch;        /* for two tied gradients */
};

/* Binds a batch split into these rows; `out` is the pipeline's. */
sl_status sl__bind(sl_pipeline *pipeline, const int64_t *rows, sl__bound **out);
void sl__unbind(const sl_pipeline *pipeline, sl__bound *bound);

/* Tells all ranks of a failure, and gives the first there was. */
sl_status sl__fail_all(sl_comm *comm, sl_status status, const char *text);

/* Walks a list. */
sl_status sl__execute(sl_pipeline *pipeline, sl__bound *bound,
                      const sl__instructions *list, const sl_batch *batch,
                      uint64_t seed);

#endif
