/* SPDX-License-Identifier: MIT
 *
 * A model in stages. Stages are added in order. When a stage is added, each of
 * its inputs is bound to the earlier output that it receives, or becomes an
 * input of the model. Linking then decides where gradients flow, and fills the
 * lists of the public header.
 *
 * Invariant: a stage receives from earlier stages only. */
#ifndef SL_PIPELINE_MODEL_H
#define SL_PIPELINE_MODEL_H

#include "base/arena.h"
#include "sluice/pipeline.h"
#include "tensor/graph.h"

/* Which output an input receives. */
typedef struct sl__source {
    int stage; /* -1: it is an input of the model */
    int output;
} sl__source;

typedef struct sl__part {
    sl_graph *graph; /* only leaves where the stage is callbacks */
    bool is_callbacks;
    sl_callbacks callbacks;
    void *context;
    sl__source *sources; /* by input */
    sl_stage_info info;
} sl__part;

/* How a graph was cut, so that others can be cut like it. */
typedef struct sl__cut {
    int *starts; /* the number of the first op of each stage */
    int stages;
    uint8_t *ops; /* the kinds of the ops that compute, in order */
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
    bool broken; /* linking has failed, and left it incomplete */
    /* The outputs of the stages so far: each name, with its latest producer. */
    sl__names produced;
    sl__source *producers; /* by place in `produced` */
    size_t producer_capacity;
    sl__cut cut; /* 0 stages: the model was not cut from a graph */
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

/* ----------------------------------------------------------- lists.c -- */

/* A growing list of numbers, in an arena. */
typedef struct sl__ints {
    int *data;
    int count;
} sl__ints;
sl_status sl__push(sl__arena *arena, sl__ints *ints, int value);

/* Appends an element to an array in this arena. The array must have started as
 * NULL with 0 elements and have grown only through this function. */
sl_status sl__append(sl__arena *arena, void *array_pointer, int *count,
                     size_t size, const void *element);

/* The index of a name in a list; a new name is added. */
sl_status sl__intern(sl__names *names, const char *name, size_t *out_place);

/* ----------------------------------------------------------- model.c -- */

/* Fails unless what two stages have under one name has the same dtype and
 * shape. For the error, `kind` is what it is, `other_does` as in "stage 3 has
 * it". */
sl_status sl__check_alike(size_t stage, const char *kind, const char *name,
                          const sl_tensor *tensor, const sl_tensor *other,
                          int other_stage, const char *other_does);

/* Adds a stage; on success the model owns its graph. An input that is named in
 * `fed`, which may be NULL, is an input of the model even if an earlier stage
 * has an output of that name. */
sl_status sl__model_add(sl_model *model, const sl__part *part,
                        const sl__names *fed);

/* Fails unless the parameters of all stages together have exactly these
 * names. */
sl_status sl__check_parameters(const sl_model *model, const sl__names *known);

/* sl_model_compile; with `loss_alone` no output of the model but its loss is
 * kept. */
sl_status sl__model_compile(const sl_model *model, int stage, bool loss_alone,
                            const sl_stage_options *options, sl_stage **out);

/* -------------------------------------------------------- programs.c -- */

/* Makes stages that are compiled from now on keep no output of the model but
 * its loss. */
void sl__programs_keep_loss_alone(sl_programs *programs);

/* ------------------------------------------------------------ link.c -- */

/* Decides where gradients flow, and lists crossings, edges, inputs and outputs.
 * Inputs are in the order of `fed`, unless that is NULL. */
sl_status sl__link(sl_model *model, const sl__names *fed);

/* Computes for every tensor of a graph whether the loss, or an output with a
 * gradient, depends on it. */
sl_status sl__compute_reached(const sl_graph *graph, sl__arena *arena,
                              bool **out);

/* ------------------------------------------------------------ ties.c -- */

sl_status sl__find_ties(sl_model *model);

/* ----------------------------------------------------------- items.c -- */

/* A unit that a cut by cost goes between: a module, or an op in no module. */
typedef struct sl__item {
    const char *name;
    int first; /* the first of its live nodes */
    bool is_module;
    double cost;
    double bytes; /* that cross the boundary before it, per microbatch */
} sl__item;

typedef struct sl__items {
    sl__arena arena;
    const sl_graph *graph;
    bool *live;   /* by node: it computes, and an output depends on it */
    int *numbers; /* by node: how many live nodes come before it */
    int live_count;
    int first_live, live_end;
    sl__item *data; /* in the order of the graph, which they cover */
    int count;
} sl__items;

/* Finds the items of a graph; with `inside`, every op is one. Costs are
 * estimated flops. Refuses a graph with nothing to compute. */
sl_status sl__find_items(const sl_graph *graph, bool inside, sl__items *out);
void sl__items_clear(sl__items *items);

/* The first live node from `node` on; `live_end` for none. */
int sl__next_live(const sl__items *items, int node);

/* Whether a cut before this node would divide a region that must stay whole. */
bool sl__is_divided(const sl__items *items, int node);

/* Whether a node does more than view or copy its operand. */
bool sl__computes(const sl__node *node);

/* "transformer.h.3.add.57": the module of an op, its kind and its number. */
sl_status sl__name_op(const sl__items *items, sl__arena *arena,
                      const sl__node *node, const char **out);

/* The names that exist, as "a, b, c and 9 more"; returns `out`. */
enum { SL__LIST_TEXT = 400 };
const char *sl__list_items(const sl__items *items, char out[SL__LIST_TEXT]);

/* ---------------------------------------------------------- points.c -- */

/* The first nodes of the stages that the points, or the marks of the graph, ask
 * for; in the arena of the items. */
sl_status sl__starts_at_points(sl__items *items, const sl_cut_options *options,
                               sl__ints *starts);
sl_status sl__starts_at_marks(sl__items *items, sl__ints *starts);

/* --------------------------------------------------------- balance.c -- */

/* Divides a sequence of costs into `stages` runs, none empty, so that the
 * largest sum is as small as possible. If costs times stages is at most two
 * million, it picks among such divisions one with the fewest bytes over the
 * boundaries, and of these the one with the least sum of squares. `bytes` has
 * those over the boundary before each cost; NULL: all the same. `starts` gets
 * the first cost of each run, `out_largest` the largest sum. */
sl_status sl__balance(const double *costs, const double *bytes, size_t count,
                      int stages, int *starts, double *out_largest);

/* ---------------------------------------------------------- divide.c -- */

/* Adds the stages that begin at these nodes to the model. */
sl_status sl__divide(sl_model *model, const sl__items *items,
                     const sl__ints *starts, sl_route route, sl_feed feed);

#endif
