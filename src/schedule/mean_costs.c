/* SPDX-License-Identifier: MIT
 *
 * Costs as measured: sums and counts by stage and kind. */
#include "schedule/mean_costs.h"

#include "base/memory.h"
#include "base/try.h"

typedef struct sums {
    double took[SL_ACTION_KINDS];
    int counts[SL_ACTION_KINDS];
    int64_t bytes, handed; /* of the largest microbatch: F's, and I's */
} sums;

struct sl__means {
    int stages;
    sums all[]; /* by stage */
};

sl_status sl__means_create(int stages, sl__means **out)
{
    sl__means *made;
    SL__TRY(
        sl__alloc(1, sizeof *made + (size_t)stages * sizeof *made->all, &made));
    made->stages = stages;
    *out = made;
    return SL_OK;
}

void sl__means_destroy(sl__means *means)
{
    free(means);
}

void sl__means_add(sl__means *means, const sl_action *action, double took,
                   int64_t bytes)
{
    sl_action parts[2];
    int count = sl_action_parts(action, parts);
    if (sl_action_kind_family(action->kind) != SL_FAMILY_COMPUTE)
        return;
    for (int i = 0; i < count; i++) {
        if (parts[i].stage >= means->stages)
            continue;
        sums *own = &means->all[parts[i].stage];
        own->took[parts[i].kind] += took / count;
        own->counts[parts[i].kind]++;
        bool hands = parts[i].kind == SL_BACKWARD_INPUT;
        int64_t *most = hands ? &own->handed : &own->bytes;
        if ((hands || parts[i].kind == SL_FORWARD) && bytes > *most)
            *most = bytes;
    }
}

static sl_stage_cost cost_of(const sums *own)
{
    double mean[SL_ACTION_KINDS] = {0};
    const int *counts = own->counts;
    for (int kind = 0; kind < SL_ACTION_KINDS; kind++) {
        if (counts[kind])
            mean[kind] = own->took[kind] / counts[kind];
    }
    double input = mean[SL_BACKWARD_INPUT], weight = mean[SL_BACKWARD_WEIGHT];
    double both = counts[SL_BACKWARD] ? mean[SL_BACKWARD] : input + weight;
    return (sl_stage_cost){
        .forward = mean[SL_FORWARD],
        .backward_input = counts[SL_BACKWARD_INPUT] ? input : 0.5 * both,
        .backward_weight = counts[SL_BACKWARD_WEIGHT] ? weight : 0.5 * both,
        .backward = both,
        .activation_bytes = own->bytes,
        .handed_bytes = own->handed};
}

sl_status sl__means_costs(const sl__means *means, sl_costs *out)
{
    sl_costs costs = SL_COSTS_INIT;
    SL__TRY(
        sl__alloc((size_t)means->stages, sizeof *costs.stages, &costs.stages));
    costs.stage_count = (size_t)means->stages;
    for (int s = 0; s < means->stages; s++)
        costs.stages[s] = cost_of(&means->all[s]);
    *out = costs;
    return SL_OK;
}
