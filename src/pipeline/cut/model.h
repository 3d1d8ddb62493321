/* SPDX-License-Identifier: MIT
 *
 * A model in stages. Stages are added in order; each input knows at once which
 * output before it it receives, or that it is an input of the model. Linking
 * then settles where gradients flow and lists what the public header shows.
 *
 * Invariant: a stage receives from earlier stages only. */
#ifndef SL_PIPELINE_MODEL_H
#define SL_PIPELINE_MODEL_H

#include "base/arena.h"
#include "base/device.h"
#include "sluice/pipeline.h"
#include "tensor/graph.h"

/* Which output an input receives. */
typedef struct sl__source {
    int stage; /* -1: it is an input of the model */
    int output;
} sl__source;

typedef struct sl__part {
    sl_graph *graph; /* of leaves alone where the stage is callbacks */
    bool is_callbacks;
    sl_callbacks callbacks;
    void *context;
    sl__source *sources; /* by input */
    sl_stage_info info;
} sl__part;

/* How a graph was cut, to cut others like it. */
typedef struct sl__cut {
    int *starts; /* the number of the first op of each stage */
    int stages;
    uint8_t *ops; /* that compute, by their numbers */
    int op_count;
    sl_route route;
    sl_feed feed;
} sl__cut;

struct sl_model {
    sl__arena arena;
    sl__part *parts;
    size_t part_count;
    size_t part_capacity;
    bool linked;
    bool broken; /* linking failed half way */
    /* What stages so far give, each name by its latest giver. */
    sl__names given;
    sl__source *givers; /* by place in `given` */
    size_t giver_capacity;
    sl__cut cut; /* no stages: none was made */
    sl_crossing *crossings;
    int crossing_count;
    sl_edge *edges;
    int edge_count;
    sl_tie *ties;
    int tie_count;
    sl_model_port *inputs;
    int input_count;
    sl_model_port *outputs;
    int output_count;
};

/* A growing list of numbers. */
typedef struct sl__ints {
    int *data;
    size_t count;
    size_t capacity;
} sl__ints;
sl_status sl__push(sl__ints *ints, int value);

/* ----------------------------------------------------------- model.c -- */

/* Adds a stage, taking its graph on success. An input named in `fed` is an
 * input of the model, whatever stages before may give; NULL: none is. */
sl_status sl__model_add(sl_model *model, const sl__part *part,
                        const sl__names *fed);

/* Whether the stages' parameters, together, have exactly these names. */
sl_status sl__check_parameters(const sl_model *model, const sl__names *known);

/* sl_model_compile; with `loss_alone` the model's outputs are not kept, but for
 * its loss. */
sl_status sl__model_compile(const sl_model *model, int stage, bool loss_alone,
                            const sl_stage_options *options, sl_stage **out);

/* -------------------------------------------------------- programs.c -- */

/* Compiles stages from now on without outputs, but for the loss. */
void sl__programs_leave_outputs_out(sl_programs *programs);

/* ------------------------------------------------------------ link.c -- */

/* Settles gradients and lists crossings, edges, inputs and outputs. Inputs come
 * in the order of `fed`, where there is one. */
sl_status sl__link(sl_model *model, const sl__names *fed);

/* For every tensor of a graph, whether the loss or an output with a gradient
 * depends on it. The caller frees. */
sl_status sl__compute_reached(const sl_graph *graph, bool **out);

/* ----------------------------------------------------------- batch.c -- */

/* Gives a batch the arrays of other arguments, where these are like its own but
 * for their data; false, and nothing done, where they are not. Allocates
 * nothing. */
bool sl__batch_takes(sl_batch *batch, const sl_argument *arguments, int count);

/* The dimension that all arguments are split along that are; -1: several; 0
 * where nothing is. */
int sl__batch_dim(const sl_batch *batch);

/* sl_batch_copy into memory of a device. */
sl_status sl__batch_load(const sl_batch *batch, int index, int microbatch,
                         sl__stream *stream, void *out, size_t bytes);

/* sl_merge_put from memory of a device. */
sl_status sl__merge_collect(sl_merge *merge, int microbatch, sl__stream *stream,
                            const void *data, size_t bytes);

/* ----------------------------------------------------------- merge.c -- */

/* Bytes that a merge holds, or would: a dry one takes nothing. */
int64_t sl__merge_bytes(const sl_merge *merge);
sl_status sl__merge_create(const sl_merge_options *options,
                           const sl_array *parts, const int64_t *rows,
                           int microbatches, bool dry, sl_merge **out);

/* ------------------------------------------------------------ ties.c -- */

sl_status sl__find_ties(sl_model *model);

/* ----------------------------------------------------------- items.c -- */

/* What a cut by cost goes between: a module, or an op in none of them. */
typedef struct sl__item {
    const char *name;
    int first; /* the first of its nodes that compute */
    bool is_module;
    double cost;
    double bytes; /* that cross a boundary before it, per microbatch */
} sl__item;

typedef struct sl__items {
    sl__arena arena;
    const sl_graph *graph;
    bool *live;   /* by node: it computes, and something depends on it */
    int *numbers; /* by node: how many of these come before it */
    int live_count;
    int first_live, live_end;
    sl__item *data; /* in the order of the graph; they fill it */
    size_t count;
    size_t capacity;
} sl__items;

/* Finds the items of a graph; with `inside`, every op is one. Costs are
 * estimated flops. Refuses a graph with nothing to compute. */
sl_status sl__find_items(const sl_graph *graph, bool inside, sl__items *out);
void sl__items_clear(sl__items *items);

/* The first node at or behind `node` that computes; `live_end` for none. */
int sl__next_live(const sl__items *items, int node);

/* The region that a cut before this node would divide; NULL: none. */
const sl__region *sl__divided(const sl__items *items, int node);

/* Whether a node does more than show its operand in another way. */
bool sl__computes(const sl__node *node);

/* "transformer.h.3.add.57": the module of an op, its kind and its number. */
sl_status sl__name_op(const sl__items *items, sl__arena *arena,
                      const sl__node *node, const char **out);

/* The names that exist, as "a, b, c and 9 more"; returns `out`. */
enum { SL__LIST_TEXT = 400 };
const char *sl__list_items(const sl__items *items, char out[SL__LIST_TEXT]);

/* ---------------------------------------------------------- points.c -- */

/* The starts of the stages that points, or the marks of the graph, ask for. */
sl_status sl__starts_at_points(const sl__items *items,
                               const sl_cut_options *options, sl__ints *starts);
sl_status sl__starts_at_marks(const sl__items *items, sl__ints *starts);

/* --------------------------------------------------------- balance.c -- */

/* Divides costs in a row into `stages` runs, none empty, such that the largest
 * sum is as small as can be; among those, up to two million costs times stages,
 * with the fewest bytes over the boundaries, and then with the least sum of
 * squares. `bytes` are over the boundary before each cost; NULL: all the same.
 * `starts` gets the first of each run, `out_largest` the largest sum. */
sl_status sl__balance(const double *costs, const double *bytes, size_t count,
                      int stages, int *starts, double *out_largest);

/* ---------------------------------------------------------- divide.c -- */

/* Adds the stages that begin at these nodes to the model. */
sl_status sl__divide(sl_model *model, const sl__items *items, const int *starts,
                     int stages, sl_route route, sl_feed feed);

#endif
