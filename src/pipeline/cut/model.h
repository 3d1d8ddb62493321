/* SPDX-License-Identifier: MIT
 *
 * A model in stages. Stages are added in order; for each of its inputs is known
 * at once which earlier output it receives, or that it is an input of the
 * model. Linking then decides where gradients flow, and lists what the public
 * header shows.
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
    /* The outputs of the stages so far, each name by its latest producer. */
    sl__names produced;
    sl__source *producers; /* by place in `produced` */
    size_t producer_capacity;
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

/* ----------------------------------------------------------- lists.c -- */

/* A growing list of numbers, in an arena. */
typedef struct sl__ints {
    int *data;
    int count;
} sl__ints;
sl_status sl__push(sl__arena *arena, sl__ints *ints, int value);

/* Appends an element to an array that has grown in this arena, from NULL and 0
 * elements, through this function alone. */
sl_status sl__append(sl__arena *arena, void *array_pointer, int *count,
                     size_t size, const void *element);

/* The place of a name in a list, to which it is added where it is new. */
sl_status sl__intern(sl__names *names, const char *name, size_t *out_place);

/* ----------------------------------------------------------- model.c -- */

/* Refuses what two stages have under one name, unless dtypes and shapes are the
 * same; `kind` is of what, `other_does` as in "stage 3 has it". */
sl_status sl__check_alike(size_t stage, const char *kind, const char *name,
                          const sl_tensor *tensor, const sl_tensor *other,
                          int other_stage, const char *other_does);

/* Adds a stage, taking its graph on success. An input named in `fed` is an
 * input of the model, whatever earlier stages produce; NULL: none is. */
sl_status sl__model_add(sl_model *model, const sl__part *part,
                        const sl__names *fed);

/* Whether the stages' parameters, together, have exactly these names. */
sl_status sl__check_parameters(const sl_model *model, const sl__names *known);

/* sl_model_compile; with `loss_alone` no output of the model but its loss is
 * kept. */
sl_status sl__model_compile(const sl_model *model, int stage, bool loss_alone,
                            const sl_stage_options *options, sl_stage **out);

/* -------------------------------------------------------- programs.c -- */

/* Stages compiled from now on keep no output of the model but its loss. */
void sl__programs_keep_loss_alone(sl_programs *programs);

/* ------------------------------------------------------------ link.c -- */

/* Decides where gradients flow, and lists crossings, edges, inputs and outputs.
 * Inputs come in the order of `fed`, where there is one. */
sl_status sl__link(sl_model *model, const sl__names *fed);

/* For every tensor of a graph, whether the loss or an output with a gradient
 * depends on it. */
sl_status sl__compute_reached(const sl_graph *graph, sl__arena *arena,
                              bool **out);

/* ------------------------------------------------------------ ties.c -- */

sl_status sl__find_ties(sl_model *model);

/* ----------------------------------------------------------- items.c -- */

/* What a cut by cost goes between: a module, or an op in no module. */
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
    sl__item *data; /* in the order of the graph; together they are all of it */
    int count;
} sl__items;

/* Finds the items of a graph; with `inside`, every op is one. Costs are
 * estimated flops. Refuses a graph with nothing to compute. */
sl_status sl__find_items(const sl_graph *graph, bool inside, sl__items *out);
void sl__items_clear(sl__items *items);

/* The first node at or behind `node` that computes; `live_end` for none. */
int sl__next_live(const sl__items *items, int node);

/* Whether a cut before this node would divide a region that stays whole. */
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

/* The first nodes of the stages that points, or the marks of the graph, ask
 * for; in the arena of the items. */
sl_status sl__starts_at_points(sl__items *items, const sl_cut_options *options,
                               sl__ints *starts);
sl_status sl__starts_at_marks(sl__items *items, sl__ints *starts);

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
sl_status sl__divide(sl_model *model, const sl__items *items,
                     const sl__ints *starts, sl_route route, sl_feed feed);

#endif
