/* SPDX-License-Identifier: MIT
 *
 * Schedules: which rank does what, in which order.
 *
 * A schedule is one row of actions per rank. Generators make compute-only
 * schedules by name; passes lower them (add communication, sharding, gradient
 * reduction) and leave their input alone; the checker says whether a schedule
 * is sound and cannot deadlock; the simulator says how long it takes.
 *
 *     sl_schedule *order = NULL, *lowered = NULL;
 *     sl_report *report = NULL;
 *     sl_sizes sizes = {.ranks = 4, .stages_per_rank = 2, .microbatches = 8};
 *     if (sl_generate("ZBVZeroBubble", &sizes, &order) ||
 *         sl_lower(order, SL_LOWER_DEFAULT_PASSES, NULL, &lowered) ||
 *         sl_check(lowered, NULL, &report))
 *         fprintf(stderr, "%s\n", sl_error_text());
 *     else
 *         printf("%s\n", sl_report_is_sound(report) ? "sound" : "unsound");
 *     sl_report_destroy(report);
 *     sl_schedule_destroy(lowered);
 *     sl_schedule_destroy(order);
 *
 * Threads: any number of threads may read a schedule at once; a thread that
 * changes it must be the only one that uses it. The only shared state is the
 * list of generators: register yours before other threads use it. */
#ifndef SLUICE_SCHEDULE_H
#define SLUICE_SCHEDULE_H

#include "sluice/base.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------- actions -- */

typedef enum sl_action_kind {
#define SL_ACTION(name, text, family, microbatch) SL_##name,
#include "sluice/actions.def"
#undef SL_ACTION
    SL_ACTION_KINDS
} sl_action_kind;

typedef enum sl_action_family {
    SL_FAMILY_NOTHING,
    SL_FAMILY_COMPUTE, /* F, I, W, B, OVERLAP_F_B */
    SL_FAMILY_COMM,    /* SEND_F, RECV_F, SEND_B, RECV_B */
    SL_FAMILY_STATE,   /* UNSHARD, RESHARD, REDUCE_GRAD */
    SL_FAMILY_WAIT     /* WAIT_SEND_F, WAIT_SEND_B, WAIT_REDUCE_GRAD */
} sl_action_family;

/* One cell. For OVERLAP_F_B, (stage, microbatch) is its forward half and the
 * b_ fields are its backward half; elsewhere the b_ fields are 0. Microbatch
 * is 0 for the kinds that carry none. Make one with the functions below. */
typedef struct sl_action {
    int32_t microbatch;
    int32_t b_microbatch;
    uint16_t stage;
    uint16_t b_stage;
    uint8_t kind;   /* an sl_action_kind */
    uint8_t b_kind; /* SL_BACKWARD or SL_BACKWARD_INPUT */
} sl_action;

#define SL_MAX_RANKS        4096
#define SL_MAX_STAGES       65536
#define SL_MAX_MICROBATCHES (1 << 24)
#define SL_ACTION_TEXT_MAX  64 /* bytes of the longest action text, with NUL */

/* An action of one stage; `microbatch` is ignored by kinds that carry none. A
 * number out of range gives an invalid action, which sl_schedule_append
 * refuses. */
SL_API sl_action sl_action_make(sl_action_kind kind, int stage, int microbatch);

/* A forward and a backward (B or I) that run as one action. Other kinds give an
 * invalid action. */
SL_API sl_action sl_action_overlap(sl_action forward, sl_action backward);

/* The plain actions in `action`: two for OVERLAP_F_B, one for the others, none
 * for an idle cell. Returns how many. */
SL_API int sl_action_parts(const sl_action *action, sl_action parts[2]);

SL_API bool sl_action_equal(const sl_action *a, const sl_action *b);
SL_API sl_action_family sl_action_kind_family(sl_action_kind kind);

/* The text of a kind, as in `SEND_F`; empty for SL_IDLE. */
SL_API const char *sl_action_kind_text(sl_action_kind kind);

/* Writes the action's text (`2F0`, `1SEND_B3`, `(0F3;3B1)OVERLAP_F_B`) and a
 * NUL into `text`, which has room for SL_ACTION_TEXT_MAX; returns its length.
 */
SL_API size_t sl_action_print(const sl_action *action, char *text);

/* Reads one action. Blanks around it are skipped, and text of blanks alone is
 * SL_IDLE. Anything else that is not exactly one action fails with
 * SL_EPARSE. */
SL_API sl_status sl_action_parse(const char *text, size_t length,
                                 sl_action *out);

/* ----------------------------------------------------------- schedules -- */

typedef struct sl_schedule sl_schedule;

/* A schedule of `ranks` empty rows; the caller destroys it. */
SL_API sl_status sl_schedule_create(int ranks, sl_schedule **out);
SL_API void sl_schedule_destroy(sl_schedule *schedule);

/* Adds an action at the end of a rank's row. */
SL_API sl_status sl_schedule_append(sl_schedule *schedule, int rank,
                                    sl_action action);

SL_API int sl_schedule_ranks(const sl_schedule *schedule);

/* How many cells a rank, from 0 to ranks - 1, has. */
SL_API size_t sl_schedule_length(const sl_schedule *schedule, int rank);

/* A rank's actions, contiguous; valid until the schedule changes. */
SL_API const sl_action *sl_schedule_row(const sl_schedule *schedule, int rank);

/* Which ranks, stages, microbatches and kinds of action a schedule has. */
typedef struct sl_extent {
    int ranks;
    int stages;       /* the highest stage named, plus one */
    int microbatches; /* the highest microbatch named, plus one */
    size_t actions;   /* cells that are not idle */
    size_t cells;     /* all cells */
    size_t longest;   /* cells of the longest row */
    bool has_backward;
    bool has_communication;
    bool has_sharding;
    bool has_reduce_grad;
    bool has_send_waits;   /* WAIT_SEND_F, WAIT_SEND_B */
    bool has_reduce_waits; /* WAIT_REDUCE_GRAD */
} sl_extent;
SL_API sl_extent sl_schedule_extent(const sl_schedule *schedule);

/* --------------------------------------------------------- text forms -- */

/* Reads CSV as PyTorch writes it: one line per rank, cells between commas,
 * blank cells idle, LF or CRLF. Errors name row, column, text and what was
 * expected. */
SL_API sl_status sl_schedule_read_csv(const char *text, size_t length,
                                      sl_schedule **out);
SL_API sl_status sl_schedule_write_csv(const sl_schedule *schedule,
                                       sl_write_fn write, void *context);

/* A table with time down and ranks across, from row `first` to row `last` (0
 * and SIZE_MAX for all). The row of step `marked` ends in `<-- ERROR HERE`;
 * SIZE_MAX marks none. */
SL_API sl_status sl_schedule_write_grid(const sl_schedule *schedule,
                                        size_t first, size_t last,
                                        size_t marked, sl_write_fn write,
                                        void *context);

/* {"ranks", "stages", "microbatches", "placement", "actions"}: actions are rows
 * of action texts with null for an idle cell; placement is the rank of each
 * stage, or null where a stage is on no rank or on two. */
SL_API sl_status sl_schedule_write_json(const sl_schedule *schedule,
                                        sl_write_fn write, void *context);

/* ---------------------------------------------------------- placement -- */

typedef enum sl_placement_style {
    SL_PLACEMENT_LOOP, /* stage s on rank s mod p */
    SL_PLACEMENT_V     /* 0 1 2 | 2 1 0 | 0 1 2; p divides the stages */
} sl_placement_style;

typedef struct sl_placement sl_placement;

SL_API sl_status sl_placement_create(sl_placement_style style, int ranks,
                                     int stages, sl_placement **out);

/* The placement a schedule's compute actions imply. Fails with SL_EUNSOUND
 * where a stage is on two ranks or on none. */
SL_API sl_status sl_placement_derive(const sl_schedule *schedule,
                                     sl_placement **out);
SL_API void sl_placement_destroy(sl_placement *placement);

SL_API int sl_placement_ranks(const sl_placement *placement);
SL_API int sl_placement_stages(const sl_placement *placement);

/* The rank of a stage, or -1 when there is no such stage. */
SL_API int sl_placement_rank_of(const sl_placement *placement, int stage);

/* The stages of a rank, ascending, and how many. */
SL_API const int *sl_placement_stages_of(const sl_placement *placement,
                                         int rank, int *count);

/* --------------------------------------------------------- generators -- */

typedef struct sl_sizes {
    int ranks;
    int stages_per_rank;
    int microbatches;
} sl_sizes;

typedef struct sl_generator {
    const char *name;       /* PyTorch's, as in "ZBVZeroBubble" */
    const char *short_name; /* as in "zbv"; may be NULL */
    const char *summary;    /* one line for people; may be NULL */
    sl_placement_style placement;
    int default_stages_per_rank;

    /* Fails through sl_fail, with the reason, for sizes that the generator does
     * not support. To suggest the nearest sizes that it does support, Sluice
     * calls this again with others. NULL supports every size. Sizes are
     * positive and within the limits above. */
    sl_status (*admit)(const sl_sizes *sizes);

    /* Appends compute actions, idle cells included, to `out`, which has
     * sizes->ranks empty rows. */
    sl_status (*generate)(const sl_sizes *sizes, sl_schedule *out);
} sl_generator;

/* Adds a generator. The struct is copied; its strings and functions must stay
 * valid as long as the generator is used. Fails with SL_EINVAL where the name
 * is taken. */
SL_API sl_status sl_generator_register(const sl_generator *generator);

/* Finds by name or short name, case-insensitive, with or without PyTorch's
 * `Schedule` prefix. Fails with SL_ENOTFOUND, and a list of the known names. */
SL_API sl_status sl_generator_find(const char *name, const sl_generator **out);

/* The i-th generator, or NULL past the last. */
SL_API const sl_generator *sl_generator_at(size_t index);

/* Generates the compute-only schedule `name`, with its idle cells. Fails with
 * SL_ENOTFOUND for an unknown name, with SL_EINVAL for sizes that it does not
 * support. */
SL_API sl_status sl_generate(const char *name, const sl_sizes *sizes,
                             sl_schedule **out);

/* ------------------------------------------------------------- passes -- */
/* Each makes a new schedule without idle cells and leaves its input unchanged.
 * It fails with SL_EINVAL where the input already has what the pass adds. */

/* Drops idle cells and does nothing else. For a compute-only schedule, the
 * result is its order. */
SL_API sl_status sl_lower_drop_idle(const sl_schedule *in, sl_schedule **out);

/* Adjacent I and W of one stage and microbatch become B. */
SL_API sl_status sl_lower_merge_bw(const sl_schedule *in, sl_schedule **out);

/* Defers the W's of a stage until those of `together` microbatches are
 * adjacent, or with 0 those of all; B is split into I and W. A pipeline runs
 * adjacent W's of a stage as one matrix product, and the result is the same bit
 * for bit. */
SL_API sl_status sl_lower_delay_w(const sl_schedule *in, int together,
                                  sl_schedule **out);

/* How many stages a rank unshards in advance, from 1 to the window: those that
 * it computes next. */
typedef enum sl_lookahead_kind {
    SL_LOOKAHEAD_FULL, /* the window */
    SL_LOOKAHEAD_AUTO, /* rank + 2, at most the window */
    SL_LOOKAHEAD_EACH  /* a number for each rank */
} sl_lookahead_kind;

typedef struct sl_lookahead {
    sl_lookahead_kind kind;
    const int *of_rank; /* for SL_LOOKAHEAD_EACH, borrowed */
    int ranks;          /* how many numbers there are */
} sl_lookahead;

/* Adds UNSHARD before the compute of a stage and RESHARD after it. At most
 * `window` stages are unsharded at once, one more where the window would
 * otherwise end between the two stages of an overlap. NULL for `lookahead` is
 * SL_LOOKAHEAD_FULL. */
SL_API sl_status sl_lower_unshard(const sl_schedule *in, int window,
                                  const sl_lookahead *lookahead,
                                  sl_schedule **out);

typedef enum sl_reduce_wait {
    SL_REDUCE_WAIT_NONE, /* REDUCE_GRAD blocks its rank: PyTorch up to 2.14 */
    SL_REDUCE_WAIT_NOW,  /* right after its REDUCE_GRAD */
    SL_REDUCE_WAIT_LATE  /* before the rank's next one, or at the row's end */
} sl_reduce_wait;

/* Adds REDUCE_GRAD after each stage's last B or W, and its WAIT_REDUCE_GRAD. */
SL_API sl_status sl_lower_reduce_grad(const sl_schedule *in,
                                      sl_reduce_wait wait, sl_schedule **out);

/* Adds a WAIT_REDUCE_GRAD for each REDUCE_GRAD that the schedule has; `wait` is
 * NOW or LATE. */
SL_API sl_status sl_lower_wait_reduce(const sl_schedule *in,
                                      sl_reduce_wait wait, sl_schedule **out);

typedef enum sl_recv {
    SL_RECV_ASAP, /* posted when its send is scheduled, as in PyTorch */
    SL_RECV_LATE  /* just before its user */
} sl_recv;

/* Adds sends and receives between stages on different ranks. Where an action
 * can never run, fails with SL_EUNSOUND and names it. */
SL_API sl_status sl_lower_send_recv(const sl_schedule *in, sl_recv recv,
                                    sl_schedule **out);

/* Adds a WAIT_SEND for each SEND: that of a SEND_F right after the B or I of
 * the same stage and microbatch, all others at the end of the row. */
SL_API sl_status sl_lower_wait_send(const sl_schedule *in, sl_schedule **out);

/* Moves each receive to just before the compute that uses it. To avoid
 * deadlock, of two ranks that send to each other, the lower one posts its
 * deferred receives from the other before each send to it. Fails with
 * SL_EUNSOUND for a receive that nothing uses. */
SL_API sl_status sl_lower_defer_recv(const sl_schedule *in, sl_schedule **out);

/* Moves WAIT_SENDs earlier, so that no rank has more than `most` sends pending;
 * with 0 each send is waited for at once. Fails with SL_EUNSOUND where no wait
 * can be moved without a deadlock, or where a send has no wait or a wait no
 * send. */
SL_API sl_status sl_lower_send_budget(const sl_schedule *in, int most,
                                      sl_schedule **out);

/* Drops every WAIT_SEND and WAIT_REDUCE_GRAD, which PyTorch up to 2.14 does not
 * know. */
SL_API sl_status sl_lower_drop_waits(const sl_schedule *in, sl_schedule **out);

typedef struct sl_lower_options {
    int unshard_window;
    sl_recv recv;
    sl_lookahead unshard_lookahead;
    sl_reduce_wait reduce_wait; /* of reduce-grad and wait-reduce */
} sl_lower_options;
#define SL_LOWER_OPTIONS_INIT                                                  \
    {                                                                          \
        3, SL_RECV_ASAP, {SL_LOOKAHEAD_FULL, NULL, 0}, SL_REDUCE_WAIT_NOW      \
    }

/* The form that PyTorch 2.15's runtime executes. The form for PyTorch up to
 * 2.14 lacks wait-send and has SL_REDUCE_WAIT_NONE. */
#define SL_LOWER_DEFAULT_PASSES "unshard,reduce-grad,send-recv,wait-send"

/* Runs the passes named in a comma-separated list, in that order; `options`
 * may be NULL. Names: drop-idle, merge-bw, delay-w=N, unshard, reduce-grad,
 * wait-reduce, send-recv, wait-send, defer-recv, send-budget=N, drop-waits. An
 * empty list only drops idle cells. */
SL_API sl_status sl_lower(const sl_schedule *in, const char *passes,
                          const sl_lower_options *options, sl_schedule **out);

/* ------------------------------------------------------------ checker -- */

/* An assumption about how a runtime completes messages. */
typedef enum sl_reading {
    SL_ASYNC,    /* only its user or its WAIT_SEND waits for a message */
    SL_PER_EDGE, /* messages of one rank to another complete in order */
    SL_ORDERED,  /* each rank's messages complete in posted order */
    SL_BLOCKING  /* a send or receive blocks its rank until both are posted */
} sl_reading;
#define SL_READINGS 4
SL_API const char *sl_reading_text(sl_reading reading);

typedef enum sl_finding_code {
#define SL_FINDING(name, code, meaning) SL_FINDING_##name,
#include "sluice/findings.def"
#undef SL_FINDING
    SL_FINDING_CODES
} sl_finding_code;
SL_API const char *sl_finding_code_text(sl_finding_code code);
SL_API const char *sl_finding_code_meaning(sl_finding_code code);

/* One wait: the action at (rank, step) waits for the one at (on_rank, on_step).
 * A step is an index into the row of a rank. on_rank is -1 where no rank has
 * the action that is waited for. */
typedef struct sl_wait {
    int rank;
    int step;
    int on_rank;
    int on_step;
} sl_wait;

#define SL_WAIT_TEXT_MAX 240

/* Writes a wait as a clause, like "rank 0 at step 3 (0SEND_F1) waits for rank
 * 1's step 4 (1RECV_F1)", into `text`, which has room for SL_WAIT_TEXT_MAX. */
SL_API void sl_wait_print(const sl_schedule *schedule, const sl_wait *wait,
                          char *text);

/* One fault. Rank and step are -1 where the fault is not at one action. */
typedef struct sl_finding {
    sl_finding_code code;
    int rank;
    int step;
    const char *text;
    const sl_wait *waits; /* for SL_FINDING_DEADLOCK: the cycle, in order */
    size_t wait_count;
} sl_finding;

typedef struct sl_check_options {
    int ranks;           /* expected; 0 takes the schedule's own */
    int stages;          /* expected; 0 takes the schedule's own */
    int microbatches;    /* expected; 0 takes the schedule's own */
    sl_reading reading;  /* a deadlock under this one is a finding */
    size_t max_findings; /* to keep; the others are only counted */
} sl_check_options;
#define SL_CHECK_OPTIONS_INIT                                                  \
    {                                                                          \
        0, 0, 0, SL_ASYNC, 100                                                 \
    }

typedef struct sl_report sl_report;

/* Checks a compute-only or lowered schedule; `options` may be NULL. Faults are
 * data in the report, not a failure of this call. */
SL_API sl_status sl_check(const sl_schedule *schedule,
                          const sl_check_options *options, sl_report **out);
SL_API void sl_report_destroy(sl_report *report);

SL_API bool sl_report_is_sound(const sl_report *report);

/* The first max_findings findings, in order of rank and step. A deadlock is
 * always among them, unless max_findings is 0. */
SL_API const sl_finding *sl_report_findings(const sl_report *report,
                                            size_t *count);

/* How many findings there are in all, kept or not. */
SL_API size_t sl_report_total(const sl_report *report);

/* Whether the checker looked for deadlocks. It does not where most of the
 * actions are missing. */
SL_API bool sl_report_deadlock_known(const sl_report *report);

/* How the schedule deadlocks under a reading, or NULL when it cannot. */
SL_API const sl_finding *sl_report_deadlock(const sl_report *report,
                                            sl_reading reading);

/* {"sound", "ranks", ..., "findings", "deadlock": {"async": null, ...}}; the
 * schedule is the one that was checked. */
SL_API sl_status sl_report_write_json(const sl_report *report,
                                      const sl_schedule *schedule,
                                      sl_write_fn write, void *context);

/* ---------------------------------------------------------- simulator -- */

typedef struct sl_stage_cost {
    double forward;
    double backward_input;
    double backward_weight;
    double backward;
    double reduce_grad;
    int64_t activation_bytes;  /* held from F's start to the end of W or B */
    int64_t input_freed_bytes; /* the part of these freed at the end of I */
    int64_t handed_bytes; /* held in addition from I's start to the end of W */
} sl_stage_cost;

/* The boundary between two neighbouring stages, either way. A message costs
 * latency + bytes / bandwidth; between stages on one rank, nothing. */
typedef struct sl_edge_cost {
    double latency;
    double bandwidth; /* bytes per unit of time; 0 is infinite */
    int64_t bytes;
} sl_edge_cost;

typedef struct sl_costs {
    sl_stage_cost stage; /* for every stage not in `stages` */
    sl_edge_cost edge;   /* for every boundary not in `edges` */
    double unshard;
    double reshard;
    double overlap;        /* OVERLAP_F_B costs overlap * (F + B) */
    sl_stage_cost *stages; /* by stage; owned; NULL when all are alike */
    size_t stage_count;
    sl_edge_cost *edges; /* edges[s] lies between s and s + 1; likewise */
    size_t edge_count;
} sl_costs;
#define SL_COSTS_INIT                                                          \
    {                                                                          \
        {1, 1, 1, 2, 0, 1, 0, 0}, {0, 0, 1}, 0, 0, 1, NULL, 0, NULL, 0         \
    }

/* Reads costs from JSON. Keys that are absent keep their values in `costs`, and
 * a failure changes nothing; docs/simulating.md lists the keys. */
SL_API sl_status sl_costs_read_json(const char *text, size_t length,
                                    sl_costs *costs);
SL_API void sl_costs_clear(sl_costs *costs);

typedef struct sl_simulation sl_simulation;

/* Simulates one step; `costs` may be NULL for SL_COSTS_INIT. Where the schedule
 * has no communication, messages are implied. Fails with SL_EUNSOUND where the
 * schedule cannot complete: the sentence says which ranks are stuck, and
 * where. */
SL_API sl_status sl_simulate(const sl_schedule *schedule, const sl_costs *costs,
                             sl_reading reading, sl_simulation **out);
SL_API void sl_simulation_destroy(sl_simulation *simulation);

SL_API double sl_simulation_makespan(const sl_simulation *simulation);

/* The reading that it was simulated under. */
SL_API sl_reading sl_simulation_reading(const sl_simulation *simulation);

/* 1 - busy / (ranks * makespan), 0 for an empty schedule. */
SL_API double sl_simulation_bubble(const sl_simulation *simulation);

typedef struct sl_rank_usage {
    double busy;
    double idle; /* makespan - busy */
    int64_t peak_bytes;
    int activation_slots; /* most microbatches in flight at once, over all
                             stages of the rank: from F to the end of W or B */
} sl_rank_usage;
SL_API sl_rank_usage sl_simulation_rank(const sl_simulation *simulation,
                                        int rank);

/* When an action ran. A send or receive runs while its message is in transit; a
 * receive that is posted after its message arrived takes no time. */
typedef struct sl_interval {
    double start;
    double end;
} sl_interval;
SL_API sl_interval sl_simulation_action(const sl_simulation *simulation,
                                        int rank, size_t step);

/* Activation bytes the rank holds while an action runs, and once it has. */
typedef struct sl_held_bytes {
    int64_t during;
    int64_t after;
} sl_held_bytes;
SL_API sl_held_bytes sl_simulation_bytes(const sl_simulation *simulation,
                                         int rank, size_t step);

/* The critical path: a chain of actions from time 0 to the makespan. Each
 * starts when the one before it ends, or when its implied message arrives. */
typedef struct sl_place {
    int rank;
    int step;
} sl_place;
SL_API const sl_place *
sl_simulation_critical_path(const sl_simulation *simulation, size_t *count);

/* {"makespan", "bubble", "ranks", "critical_path", ...}; with `actions`, also
 * the start and end of each action. `steps`, from sl_dry_run, is written unless
 * it is 0. The schedule is the one that was simulated. */
SL_API sl_status sl_simulation_write_json(const sl_simulation *simulation,
                                          const sl_schedule *schedule,
                                          size_t steps, bool actions,
                                          sl_write_fn write, void *context);

/* Counts the steps of a run in which every action takes one step, as PyTorch's
 * dry run does for a schedule with communication. */
SL_API sl_status sl_dry_run(const sl_schedule *schedule, size_t *out_steps);

#ifdef __cplusplus
}
#endif
#endif
