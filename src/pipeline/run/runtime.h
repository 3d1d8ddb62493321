/* SPDX-License-Identifier: MIT
 *
 * Running a pipeline: how a cell of a schedule becomes kernel calls.
 *
 *   lowered.c       checks the schedule and runs the passes that it lacks; the
 *                   result runs, cell for cell
 *   bind.c          prepares one way of splitting a batch into microbatches:
 *                   compiled stages, their memory, two lists of instructions
 *   slots.c         decides which slots of memory each microbatch gets
 *   instructions.c  emits the list: for the cell `2F0`, the copies and waits
 *                   that bring its inputs, one SL__DO_RUN with stage 2, program
 *                   F and the slots of microbatch 0, and sends of its outputs
 *   execute.c       runs the list; for SL__DO_RUN, sl__stage_enqueue (in
 *                   tensor/run.c) enqueues the kernel calls of the program
 *
 * A list is bound once for each way of splitting a batch, and run in every
 * step. The executor waits only where a cell does, and the checker has proven
 * that these waits end.
 *
 * The memory of a microbatch in a stage, and the part of the list in which it
 * is the microbatch's (its lifetime):
 *
 *   saved             F to B or W
 *   handed            I to W
 *   inputs            RECV_F, or the copy from a stage of this rank, to the
 *                     last backward that reads them
 *   outputs           F to WAIT_SEND_F, or to the last that reads them here
 *   output gradients  RECV_B, or the copy, to the last backward that reads them
 *   input gradients   I or B to WAIT_SEND_B, or to the copy
 *
 * Each kind has its own slots, as many as there are lifetimes at once. */
#ifndef SL_PIPELINE_RUNTIME_H
#define SL_PIPELINE_RUNTIME_H

#include "comm/comm.h"
#include "pipeline/batch/batch.h"
#include "pipeline/cut/model.h"
#include "pipeline/pipeline.h"
#include "sluice/schedule.h"
#include "tensor/program.h"

#include <stdatomic.h>

/* A request alone on its cache lines, because ranks on other cores write to
 * it. */
enum { SL__CACHE_LINE = 64 };
typedef union sl__padded_request {
    sl_request request;
    char lines[2 * SL__CACHE_LINE];
} sl__padded_request;
_Static_assert(sizeof(sl__padded_request) == 2 * SL__CACHE_LINE,
               "a request fits into two lines");

typedef enum sl__instruction_kind {
    SL__DO_PACK,    /* pack weights that have changed */
    SL__DO_RUN,     /* F, I, W or B */
    SL__DO_NOTHING, /* a cell that needs no work here */
    SL__DO_STATE,   /* UNSHARD, RESHARD, REDUCE_GRAD */
    SL__DO_FEED,    /* copy an argument's microbatch into an input */
    SL__DO_COPY,    /* between stages of this rank */
    SL__DO_SEND,    /* post */
    SL__DO_RECV,    /* post */
    SL__DO_WAIT,    /* for a send or a receive */
    SL__DO_COLLECT, /* an output of F, or the loss */
} sl__instruction_kind;

typedef struct sl__instruction {
    sl__instruction_kind kind;
    bool joined;      /* runs as one with the next: halves of an overlap, or
                    adjacent W's of a stage */
    bool timed;       /* the clock is read after it */
    sl_action action; /* its cell; for a wait within a compute, the RECV */
    union {
        struct {
            const sl_stage *program_stage;
            sl_memory *memory;
            const sl_action_function *function; /* custom; NULL: kernel calls */
            sl_program program;
            int slot; /* the slot of its microbatch in `memory` */
        } run;        /* also of SL__DO_PACK */
        struct {
            int argument; /* by input of the model */
            void *to;
            size_t bytes;
            int64_t at; /* in the memory of all feeds of a list */
        } feed;
        struct {
            const void *from;
            void *to;
            size_t bytes;
        } copy;
        struct {
            sl__padded_request *request;
            void *memory;
            size_t bytes;
            int peer; /* rank of the transport */
            int tag;
            int peer_stage;
        } message;
        struct {
            int output; /* of the model */
            const void *from;
            size_t bytes;
        } collect;
    } u;
} sl__instruction;

typedef struct sl__instructions {
    sl__instruction *data;
    size_t count;
    size_t capacity;
} sl__instructions;

/* When an instruction started, and when its message was complete. */
typedef struct sl__stamp {
    sl__event start;
    double done_s;
} sl__stamp;

/* A stage of this rank, compiled for microbatches of one number of rows. */
typedef struct sl__variant {
    int stage;
    int64_t rows;
    const sl_stage *program_stage;
    sl_memory *memory;
    int slots[SL__SLOT_KINDS]; /* how many */
    int microbatches;          /* with these rows, summed over both lists */
    int *which;                /* by slot of `memory`: its microbatch */
} sl__variant;

/* One way of splitting a batch, ready to run. */
typedef struct sl__binding {
    sl__arena arena;
    struct sl__binding *next;
    int64_t *rows;         /* by microbatch */
    const sl_model *model; /* for the rows of the first microbatch */
    sl__variant *variants; /* ordered by stage */
    int variant_count;
    sl__instructions train, eval; /* of a step, and of an eval */
    sl__stamp *stamps; /* by instruction of the latest list, and its end */
    sl__padded_request *requests;
    size_t request_count;
    sl_merge **merges;      /* by output of the model; NULL: not kept here */
    int64_t output_bytes;   /* that `merges` hold */
    int split_dim;          /* along which `merges` concatenate; -1: several */
    bool dry;               /* a dry run: only counts bytes */
    double *scales;         /* by microbatch: the scale of its loss */
    int *group;             /* scratch: the slots of joined W's */
    sl__step_block *blocks; /* scratch: by slot of one memory */
    /* Only on a device that works on by itself: what is fed in a step, in host
     * memory and on the device; the clock readings of a list, as the device
     * writes them; a recording of each list (eval, train). */
    int64_t feed_bytes;
    char *feed_host;
    void *feed_device;
    volatile uint64_t *times;
    sl__recording recordings[2];
} sl__binding;

typedef struct sl__lowering sl__lowering;

struct sl_pipeline {
    sl__arena arena;
    sl_comm *comm;
    const sl__backend *backend;
    sl__device *device;
    sl__stream *stream; /* of all work of this rank */
    sl_pipeline_options options;
    sl_programs *programs;
    int microbatches;
    int stages;
    int *rank_of;    /* by stage */
    int *own_stages; /* of this rank */
    int own_count;
    int ranks;   /* of the schedule */
    int rank;    /* this one's number among these */
    int replica; /* which of the pipelines side by side this is in */
    bool shards;  /* each replica keeps only its shard of parameters */
    bool records; /* steps are recorded as graphs, if a binding allows it */
    sl__lowering *lowering;     /* shared by ranks; has the next two */
    const sl_schedule *lowered; /* what a step runs */
    const sl_schedule *forward; /* the part of it that an eval runs */
    sl_action_function functions[SL_ACTION_KINDS]; /* custom ones */
    sl_memory **owners; /* by stage: memory with its parameters, or NULL */
    const sl_stage **owner_stages;
    sl__binding *bindings;
    sl__binding *last; /* of the latest step */
    double *losses;
    double *device_losses; /* as they are computed, in device memory */
    sl_batch *batch;       /* of the latest step */
    int64_t *rows;         /* of the current batch, by microbatch */
    bool has_losses;
    /* What this rank is doing, for sl__answer. */
    _Atomic(const sl__instructions *) doing; /* the list that runs, or NULL */
    _Atomic size_t at;                       /* its current instruction */
    _Atomic double since_s;
    _Atomic uint64_t steps;         /* steps and evals started */
    _Atomic bool in_step;           /* or its list is being made */
    _Atomic bool beginning;         /* waits for all ranks to start it */
    const sl__instructions *latest; /* the list of `stamps`; NULL: it failed */
    double next_data_s[2]; /* when the next batch was read: start, end; or 0 */
    double data_s[2];      /* the same of the latest batch */
    double end_s[3]; /* when the latest list, tied gradients, all ranks ended */
    bool steals;     /* computes for other ranks while it waits */
    double watched_s;      /* when `lost_cores` was read */
    long lost_cores;       /* involuntary context switches up to `watched_s` */
    double helping_s;      /* work stealing since the latest step started */
    double helped_s;       /* the same, up to the end of that step */
    void (*before)(void);  /* tests: called before every instruction */
    int *argument_of;      /* by input of the model, in the current step */
    char *scratch;         /* for two tied gradients of callbacks, in device
                              memory; or NULL */
    char *scratch_host;    /* for one tied gradient, in host memory */
    int64_t scratch_bytes; /* of both, and of `device_losses` */
    int64_t optimizer_bytes; /* that an optimizer has planned */
    sl__holding holding;     /* bytes in the memories of this rank */
};

/* A rank of this pipeline as the transport numbers it. */
static inline int sl__comm_rank(const sl_pipeline *pipeline, int rank)
{
    return pipeline->replica * pipeline->ranks + rank;
}

static inline bool sl__is_own(const sl_pipeline *pipeline, int stage)
{
    return pipeline->rank_of[stage] == pipeline->rank;
}

/* Tags of collectives, which messages do not use: for tied gradients, and by
 * stage for parameters over replicas. SL__TAG_END is the last. */
enum {
    SL__TAG_TIES = SL_COMM_MAX_TAG / 2,
    SL__TAG_REPLICAS = SL__TAG_TIES + SL_COMM_MAX_TAG / 8,
};
_Static_assert(SL__TAG_REPLICAS + SL_MAX_STAGES <= SL_COMM_OWN_TAG,
               "every stage has a tag, below those of the caller");

/* ----------------------------------------------------------- lowered.c -- */

/* Checks and lowers the schedule of the options, and sets what follows from it:
 * ranks, stages, which backward programs are compiled. */
sl_status sl__lower_schedule(sl_pipeline *pipeline);
void sl__lowering_release(sl__lowering *lowering);

/* Copies a schedule, with each OVERLAP_F_B as its two halves; with
 * `forward_alone`, only the cells that an eval runs. */
sl_status sl__copy_cells(const sl_schedule *from, bool forward_alone,
                         sl_schedule **out);

/* ---------------------------------------------------------- pipeline.c -- */

/* Adds what a collective was for to the error of a timeout. */
sl_status sl__explain(const sl_pipeline *pipeline, sl_status status,
                      const char *what);

/* Splits a batch of `rows` rows evenly; the result is in pipeline->rows. */
sl_status sl__split_rows(sl_pipeline *pipeline, int64_t rows);

/* -------------------------------------------------------------- bind.c -- */

/* Binds a batch that is split into microbatches of these rows, or finds the
 * binding of an earlier one. The pipeline owns `out`. */
sl_status sl__bind(sl_pipeline *pipeline, const int64_t *rows,
                   sl__binding **out);

/* The same without memory: variants with their slots, but no lists. The caller
 * unbinds it. */
sl_status sl__bind_dry(sl_pipeline *pipeline, const int64_t *rows,
                       sl__binding **out);
void sl__unbind(const sl_pipeline *pipeline, sl__binding *binding);

/* The variant of a stage of this rank for a microbatch. */
static inline sl__variant *sl__variant_of(const sl__binding *binding, int stage,
                                          int microbatch)
{
    sl__variant *variant = binding->variants;
    while (variant->stage != stage ||
           variant->rows != binding->rows[microbatch])
        variant++;
    return variant;
}

/* ----------------------------------------------------------- execute.c -- */

/* Runs a list of the binding and waits for its end: with what comes before and
 * after it in a step, on tied gradients. Afterwards losses are in
 * pipeline->losses. Fails where a kernel found invalid data. */
sl_status sl__execute(sl_pipeline *pipeline, sl__binding *binding,
                      const sl__instructions *list, const sl_batch *batch,
                      uint64_t seed);

/* ------------------------------------------------------------- graph.c -- */

/* Allocates what a binding needs on a device that works on by itself; frees
 * it. */
sl_status sl__make_device_side(sl_pipeline *pipeline, sl__binding *binding);
void sl__free_device_side(const sl_pipeline *pipeline, sl__binding *binding);

/* Whether a list of the binding can be recorded as a graph. */
bool sl__can_record(const sl_pipeline *pipeline, const sl__binding *binding);

/* Copies what a list feeds to the device, from the batch. */
sl_status sl__write_feeds(const sl_pipeline *pipeline,
                          const sl__binding *binding,
                          const sl__instructions *list, const sl_batch *batch);

/* Converts the clock readings of the device, after a list has ended. */
void sl__read_times(sl_pipeline *pipeline, sl__binding *binding,
                    const sl__instructions *list);

/* ------------------------------------------------------------ report.c -- */

/* Makes all ranks fail as sl__abort_ranks does. The sentence is `where` and
 * then this rank's sl_error_text. After a timeout it ends with what every rank
 * is doing, `peer` first unless that is -1. */
sl_status sl__abort_where(sl_pipeline *pipeline, sl_status status,
                          const char *where, int peer);

/* Writes what a rank is doing: an sl_answer_fn whose context is a pipeline. */
void sl__answer(void *pipeline, char *text, size_t size);

/* ----------------------------------------------------------- outputs.c -- */

/* Copies how the caller wants outputs merged. */
sl_status sl__copy_merge_options(sl_pipeline *pipeline);

/* Creates merges for the outputs of this rank, in place of earlier ones, for
 * batches that are split along a dimension; -1: along several. */
sl_status sl__make_merges(const sl_pipeline *pipeline, sl__binding *binding,
                          int split_dim);
void sl__destroy_merges(sl__binding *binding);

/* ------------------------------------------------------------- bytes.c -- */

/* Bytes that the transport reserves for sums over ranks: enough for the largest
 * tied gradient, the largest gradient that replicas sum, and a few numbers. */
int64_t sl__sum_bytes(const sl_pipeline *pipeline, const sl_model *model);

/* ----------------------------------------------------- work_stealing.c -- */

/* Called at creation, before each step, and at destruction. */
void sl__start_stealing(sl_pipeline *pipeline);
void sl__begin_stealing(sl_pipeline *pipeline);
void sl__stop_stealing(sl_pipeline *pipeline);

/* Called after each step: counts how often this thread lost its core, and tells
 * the transport whether other processes compete for it. */
void sl__watch_core(sl_pipeline *pipeline);

/* Whether `losses` of a core in `seconds` mean that other processes compete for
 * it. A competing process takes it every few milliseconds, the kernel only now
 * and then. */
bool sl__is_crowded(double seconds, long losses);

/* ---------------------------------------------------- tied_gradients.c -- */

/* Tied gradients accumulate over steps. Before a step, the first stage of a tie
 * keeps the sum so far and the others are cleared, so that it counts once;
 * after the step, all stages get the new sum. */
sl_status sl__clear_tied_copies(sl_pipeline *pipeline, const sl_model *model);
sl_status sl__sum_tied_gradients(sl_pipeline *pipeline, const sl_model *model);

/* The ranks of a tie, numbered as the transport does, in order of its stages;
 * returns how many. */
int sl__tie_ranks(const sl_pipeline *pipeline, const sl_tie *tie,
                  int ranks[SL_COMM_MAX_RANKS]);

/* Allocates scratch memory: for sums over ranks, for the losses of a step, and
 * for the largest tied gradient of callbacks on this rank, which is not in
 * device memory. The second function returns the bytes of the last two. */
sl_status sl__make_scratch(sl_pipeline *pipeline, const sl_model *model);
int64_t sl__scratch_bytes(const sl_pipeline *pipeline, const sl_model *model);

/* ---------------------------------------------------------- replicas.c -- */

/* Refuses replicas of stages of callbacks, unless custom functions do their
 * reductions. */
sl_status sl__check_replicas(const sl_pipeline *pipeline);

/* sl_memory_descend on this replica's shard of a stage. */
sl_status sl__descend_shard(sl_pipeline *pipeline, int stage, double rate);

/* Before a step, the first replica keeps the gradients accumulated so far and
 * the others clear theirs, so that they count once. */
void sl__clear_replica_gradients(sl_pipeline *pipeline);

/* Which bytes of a parameter or gradient this replica keeps: all, unless
 * parameters are sharded. */
typedef struct sl__shard {
    size_t first;
    size_t bytes;
} sl__shard;
sl__shard sl__own_shard(const sl_pipeline *pipeline, sl_dtype dtype,
                        int64_t bytes);

/* Bytes of a stage's parameters or gradients that only other replicas keep. */
sl_status sl__count_others(const sl_pipeline *pipeline, const sl_stage *stage,
                           sl_port_kind kind, int64_t *out);

/* UNSHARD, RESHARD or REDUCE_GRAD of a stage, over the replicas, or by a custom
 * function. */
sl_status sl__run_state(sl_pipeline *pipeline, const sl_action *action);

#endif
