/* SPDX-License-Identifier: MIT
 *
 * Running a pipeline. The schedule is lowered as far as it is not (lowered.c);
 * binding (bind.c) turns the cells of this rank into a flat list of
 * instructions, in their order, once for each way a batch is split; the executor
 * (execute.c) walks the list.
 *
 * Who owns what, per microbatch and stage, from where to where in the list:
 *
 *   saved             F to B or W
 *   handed            I to W
 *   inputs            RECV_F, or the copy from a stage of this rank, to the last
 *                     backward that reads them
 *   outputs           F to WAIT_SEND_F, or to the last that reads them here
 *   output gradients  RECV_B, or the copy, to the last backward that reads them
 *   input gradients   I or B to WAIT_SEND_B, or to the copy
 *
 * Each has slots of its own, as many as there are at once (slots.c). The list
 * waits nowhere but for what its cells wait for: the checker has seen that this
 * ends. */
#ifndef SL_PIPELINE_RUNTIME_H
#define SL_PIPELINE_RUNTIME_H

#include "pipeline/batch/batch.h"
#include "pipeline/cut/model.h"
#include "comm/comm.h"
#include "sluice/schedule.h"
#include "tensor/program.h"

#include <stdatomic.h>

/* A request in cache lines of its own, for ranks on other cores write to it. */
enum { SL__CACHE_LINE = 64 };
typedef union sl__padded_request {
    sl_request request;
    char lines[2 * SL__CACHE_LINE];
} sl__padded_request;
_Static_assert(sizeof(sl__padded_request) == 2 * SL__CACHE_LINE,
               "a request fits");

typedef enum sl__instruction_kind {
    SL__DO_PACK, /* weights that have changed */
    SL__DO_RUN,
    SL__DO_NOTHING, /* a cell that there is nothing to do for here */
    SL__DO_STATE,   /* UNSHARD, RESHARD, REDUCE_GRAD */
    SL__DO_FEED,    /* copies an argument's microbatch into an input */
    SL__DO_COPY,    /* between stages of this rank */
    SL__DO_SEND,
    SL__DO_RECV,    /* posts */
    SL__DO_WAIT,    /* for what was sent, or received */
    SL__DO_COLLECT, /* what F left: an output, or the loss */
} sl__instruction_kind;

typedef struct sl__instruction {
    sl__instruction_kind kind;
    bool joined; /* runs as one with the next: the halves of an overlap, by a
                    function of the caller's, or W's of a stage */
    bool timed;  /* takes long enough to look at the clock after it */
    sl_action action; /* its cell; of a wait within a compute the RECV */
    union {
        struct {
            const sl_stage *program_stage;
            sl_memory *memory;
            const sl_action_function *function; /* the caller's; NULL: ours */
            sl_program program;
            int slot; /* of the memory: its slots of a microbatch */
        } run;        /* also of a state, and of packing */
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
            sl__padded_request *request;
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
        } collect;
    } u;
} sl__instruction;

typedef struct sl__instructions {
    sl__instruction *data;
    size_t count;
    size_t capacity;
} sl__instructions;

/* When an instruction began, and its message was complete. */
typedef struct sl__stamp {
    sl__event start;
    double done_s;
} sl__stamp;

/* A stage of this rank for one number of rows. */
typedef struct sl__variant {
    int stage;
    int64_t rows;
    const sl_stage *program_stage;
    sl_memory *memory;
    int slots[SL__SLOT_KINDS];
    int microbatches; /* that have them, in both lists */
    int *which;       /* by place in the memory: which microbatch */
} sl__variant;

/* A batch split one way: rows by microbatch, variants of stages, two lists. */
typedef struct sl__binding {
    sl__arena arena;
    struct sl__binding *next;
    int64_t *rows;
    const sl_model *model; /* of the first microbatch's rows */
    sl__variant *variants; /* by stage */
    int variant_count;
    sl__instructions train, eval;
    sl__stamp *stamps; /* by instruction of the latest list, and its end */
    sl__padded_request *requests;
    size_t request_count;
    sl_merge **merges;      /* by output of the model; NULL: not kept here */
    int64_t output_bytes;   /* that they hold */
    int split_dim;          /* of the batch that they are for; -1: several */
    bool dry;               /* to count bytes alone: nothing is allocated */
    double *scales;         /* by microbatch: of the gradient of its loss */
    int *group;             /* room for the slots of a group */
    sl__step_block *blocks; /* room for those of a memory */
} sl__binding;

struct sl_pipeline {
    sl__arena arena;
    sl_comm *comm;
    const sl__backend *backend;
    sl__device *device;
    sl__stream *stream; /* of all that this rank does */
    sl_pipeline_options options;
    sl_programs *programs;
    int microbatches;
    int stages;
    int *rank_of;    /* by stage */
    int *own_stages; /* of this rank */
    int own_count;
    int ranks;            /* of the schedule */
    int rank;             /* of these, this one */
    int replica;          /* which of the pipelines side by side this is in */
    bool shards;          /* replicas keep a part of each parameter alone */
    sl_schedule *lowered; /* what a step runs, cell for cell */
    sl_schedule *forward; /* of these, what an eval runs */
    sl_action_function functions[SL_ACTION_KINDS]; /* without: ours */
    sl_memory **owners; /* by stage: memory with its parameters; NULL */
    const sl_stage **owner_stages;
    sl__binding *bindings;
    sl__binding *last; /* of the latest step */
    double *losses;
    double *device_losses; /* as they are made, in memory of the device */
    sl_batch *batch;       /* of the latest step */
    int64_t *rows;         /* likewise, by microbatch */
    bool has_losses;
    /* What this rank is doing, for those who ask. */
    _Atomic(const sl__instructions *) doing; /* NULL: nothing */
    _Atomic size_t at;
    _Atomic double since_s;
    _Atomic uint64_t steps;         /* begun, evals too */
    _Atomic bool in_step;           /* also while its list is being made */
    _Atomic bool beginning;         /* waits for all ranks to be in it */
    const sl__instructions *latest; /* that has ended, with its stamps */
    double next_data_s[2]; /* when the next batch was read; 0: unknown */
    double data_s[2];      /* likewise, the latest */
    double end_s[3];       /* of the latest: list, tied gradients, all ranks */
    bool steals;           /* to other ranks, while it waits */
    double watched_s;      /* since when losses of the core are counted */
    long lost_cores;       /* how many there were then */
    double helping_s;      /* since the latest step began */
    double helped_s;       /* until it ended */
    void (*before)(void);  /* called before every instruction, by tests */
    int *argument_of;      /* by input of the model, in the step at hand */
    char *scratch;         /* for two tied gradients of callbacks, in memory of
                              the device, or NULL; */
    char *scratch_here;    /* and for one in that of the process */
    int64_t scratch_bytes; /* of both */
    int64_t optimizer_bytes; /* that an optimizer has planned */
    sl__holding holding;     /* in memories of this rank */
};

/* Binds a batch split into these rows; `out` is the pipeline's. */
sl_status sl__bind(sl_pipeline *pipeline, const int64_t *rows,
                   sl__binding **out);

/* The same without memory: variants with their slots, and no lists. The caller
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

/* Tells all ranks of a failure, and gives the first there was. */
sl_status sl__abort_ranks(sl_comm *comm, sl_status status, const char *text);

/* The same for a failure that only this rank has seen, with its sentence: the
 * others must not wait. Where it has waited too long, with a report. */
sl_status sl__abort_pipeline(sl_pipeline *pipeline, sl_status status);

/* Walks a list, and ends with all of it done: losses are here, and what kernels
 * have noted is told. */
sl_status sl__execute(sl_pipeline *pipeline, sl__binding *binding,
                      const sl__instructions *list, const sl_batch *batch,
                      uint64_t seed);

/* Appends what every rank does to a text: this one, the `peer` that it waits
 * for (-1: nobody), then all others. */
void sl__append_report(sl_pipeline *pipeline, int peer, char *text,
                       size_t size);

/* What a rank does, in words: an sl_answer_fn whose context is a pipeline. */
void sl__answer(void *pipeline, char *text, size_t size);

/* A rank of this pipeline as the transport counts. */
static inline int sl__comm_rank(const sl_pipeline *pipeline, int rank)
{
    return pipeline->replica * pipeline->ranks + rank;
}

static inline bool sl__is_own(const sl_pipeline *pipeline, int stage)
{
    return pipeline->rank_of[stage] == pipeline->rank;
}

/* Tags that messages do not use: of tied gradients, of parameters over replicas
 * by stage, the caller's own, and the last for the end of a step. */
enum {
    SL__TAG_TIES = SL_COMM_MAX_TAG / 2,
    SL__TAG_REPLICAS = SL__TAG_TIES + SL_COMM_MAX_TAG / 8,
    SL__TAG_END = SL_COMM_MAX_TAG - 1,
};
_Static_assert(SL__TAG_REPLICAS + SL_MAX_STAGES <= SL_COMM_OWN_TAG,
               "every stage has a tag, below those of the caller");

/* --------------------------------------------------------- lowered.c -- */

/* Checks and lowers the schedule of the options, and notes what it says of
 * ranks, stages and backward programs. */
sl_status sl__lower_schedule(sl_pipeline *pipeline);

/* --------------------------------------------------------- outputs.c -- */

/* Copies how the caller wants outputs. */
sl_status sl__copy_merge_options(sl_pipeline *pipeline);

/* Makes room for the outputs of this rank, of batches that are split along a
 * dimension; -1: along several. What was there before goes. */
sl_status sl__make_merges(const sl_pipeline *pipeline, sl__binding *binding,
                          int split_dim);
void sl__destroy_merges(sl__binding *binding);

/* ----------------------------------------------------------- bytes.c -- */

/* Bytes that the transport takes for sums over ranks: of the largest tied
 * gradient, or the largest that replicas sum, at least of a few numbers. */
int64_t sl__sum_bytes(const sl_pipeline *pipeline, const sl_model *model);

/* ------------------------------------------------------------ work_stealing.c -- */

/* From creation to destruction; what it helped counts anew from each step. */
void sl__start_stealing(sl_pipeline *pipeline);
void sl__begin_stealing(sl_pipeline *pipeline);
void sl__stop_stealing(sl_pipeline *pipeline);

/* At the end of a step: looks how often this thread lost its core, and tells
 * the transport where that is too often. */
void sl__watch_core(sl_pipeline *pipeline);

/* Whether so many losses of a core in so many seconds mean that others want it:
 * a competitor takes it after every few milliseconds, the system now and then. */
bool sl__is_crowded(double seconds, long losses);

/* -------------------------------------------------- tied_gradients.c -- */

/* Sums before a step stand in the first stage alone, so that what the step adds
 * to them is counted once; afterwards every stage of a tie has the sum. */
sl_status sl__clear_tied_copies(sl_pipeline *pipeline, const sl_model *model);
sl_status sl__sum_tied_gradients(sl_pipeline *pipeline, const sl_model *model);

/* Room for sums over ranks, for the losses of a step, and for the largest tied
 * gradient that callbacks here have, which is not in memory of the device; and how
 * much the latter two are. */
int64_t sl__scratch_bytes(const sl_pipeline *pipeline, const sl_model *model);
sl_status sl__make_scratch(sl_pipeline *pipeline, const sl_model *model);

/* -------------------------------------------------------- replicas.c -- */

/* Refuses stages whose parameters cannot be reached. */
sl_status sl__check_replicas(const sl_pipeline *pipeline);

/* sl_memory_descend on what this replica keeps of a stage. */
sl_status sl__descend_shard(sl_pipeline *pipeline, int stage, double rate);

/* What gradients hold before a step stands in the first replica alone. */
void sl__clear_replica_gradients(sl_pipeline *pipeline);

/* What this replica keeps of a parameter, or gradient, of so many bytes: from
 * where, and how much. All of it, unless parameters are kept in parts. */
typedef struct sl__shard {
    size_t first;
    size_t bytes;
} sl__shard;
sl__shard sl__own_shard(const sl_pipeline *pipeline, sl_dtype dtype,
                        int64_t bytes);

/* UNSHARD, RESHARD or REDUCE_GRAD of a stage, over the replicas; by a function
 * of the caller's where there is one. */
sl_status sl__run_state(sl_pipeline *pipeline,
                        const sl_action_function *function,
                        const sl_action *action);

#endif
