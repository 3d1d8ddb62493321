/* SPDX-License-Identifier: MIT
 *
 * See staged.h. */
#include "staged.h"

#include "base/dtype.h"
#include "pipeline/cut/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

test_staged test_stages(const sl_model *model, const sl_stage_options *options,
                        int slots)
{
    test_staged out = {model, sl_model_stage_count(model), NULL, 0.1};
    out.stages = calloc((size_t)out.count, sizeof *out.stages);
    for (int s = 0; s < out.count; s++) {
        assert_ok(sl_model_compile(model, s, options, &out.stages[s].stage));
        assert_ok(sl_memory_create(out.stages[s].stage, slots,
                                   &out.stages[s].memory));
    }
    return out;
}

void test_staged_release(test_staged *staged)
{
    for (int s = 0; s < staged->count; s++)
        test_release(&staged->stages[s]);
    free(staged->stages);
    *staged = (test_staged){0};
}

/* Copies every port of a kind from the whole that the stage has too. */
static void copy_kind(const test_stage *stage, const test_stage *whole,
                      sl_port_kind kind, int slot)
{
    for (int i = 0; i < sl_stage_port_count(stage->stage, kind); i++) {
        sl_port own, port;
        assert_ok(sl_stage_port_at(stage->stage, kind, i, &own));
        if (sl_stage_port(whole->stage, kind, own.name, &port))
            continue;
        void *data = test_get(whole, kind, own.name, slot, NULL);
        test_put(stage, kind, own.name, slot, data);
        free(data);
    }
}

void test_staged_copy(const test_staged *staged, const test_stage *whole,
                      int slot)
{
    for (int s = 0; s < staged->count; s++) {
        copy_kind(&staged->stages[s], whole, SL_PORT_PARAMETER, slot);
        copy_kind(&staged->stages[s], whole, SL_PORT_INPUT, slot);
        copy_kind(&staged->stages[s], whole, SL_PORT_OUTPUT_GRADIENT, slot);
    }
}

static void carry(const test_stage *from, sl_port_kind given, const char *name,
                  const test_stage *to, sl_port_kind taken,
                  const char *taken_name, int slot)
{
    void *data = test_get(from, given, name, slot, NULL);
    test_put(to, taken, taken_name, slot, data);
    free(data);
}

void test_staged_forward(const test_staged *staged, int slot)
{
    int count;
    const sl_edge *edges = sl_model_edges(staged->model, &count);
    for (int s = 0; s < staged->count; s++) {
        for (int i = 0; i < count; i++) {
            const sl_edge *edge = &edges[i];
            if (edge->to == s)
                carry(&staged->stages[edge->from], SL_PORT_OUTPUT, edge->name,
                      &staged->stages[s], SL_PORT_INPUT, edge->name, slot);
        }
        test_run(&staged->stages[s], "F", slot);
    }
}

void test_staged_backward(const test_staged *staged, const char *backward,
                          int slot)
{
    int count;
    const sl_edge *edges = sl_model_edges(staged->model, &count);
    for (int s = staged->count; s-- > 0;) {
        for (int i = 0; i < count; i++) {
            const sl_edge *edge = &edges[i];
            if (edge->from == s && edge->gradient_name)
                carry(&staged->stages[edge->to], SL_PORT_INPUT_GRADIENT,
                      edge->name, &staged->stages[s], SL_PORT_OUTPUT_GRADIENT,
                      edge->gradient_name, slot);
        }
        test_run(&staged->stages[s], backward, slot);
    }
}

/* ----------------------------------------------------------- comparing -- */

static double value_at(sl_dtype dtype, const void *data, size_t i)
{
    switch (dtype) {
    case SL_F32: return (double)((const float *)data)[i];
    case SL_F64: return ((const double *)data)[i];
    case SL_BF16:
    case SL_F16: return sl__float_at(dtype, data, (int64_t)i);
    case SL_I32: return (double)((const int32_t *)data)[i];
    case SL_I64: return (double)((const int64_t *)data)[i];
    default: return (double)((const uint8_t *)data)[i];
    }
}

/* The sum over all stages that have a port; false where none has. */
static bool sum_port(const test_staged *staged, sl_port_kind kind,
                     const char *name, int slot, size_t count, double *out)
{
    bool found = false;
    memset(out, 0, count * sizeof *out);
    for (int s = 0; s < staged->count; s++) {
        sl_port port;
        if (sl_stage_port(staged->stages[s].stage, kind, name, &port))
            continue;
        size_t own;
        void *data = test_get(&staged->stages[s], kind, name, slot, &own);
        assert_int_equal(own, count);
        for (size_t i = 0; i < count; i++) {
            double value = value_at(port.dtype, data, i);
            out[i] = found ? out[i] + value : value; /* -0 stays -0 */
        }
        free(data);
        found = true;
    }
    return found;
}

/* |ours - theirs| over |theirs|, with a floor under the latter. */
static double distance(const double *ours, sl_dtype dtype, const void *theirs,
                       size_t count, double floor_each)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        double value = value_at(dtype, theirs, i);
        difference += (ours[i] - value) * (ours[i] - value);
        norm += value * value;
    }
    double scale = sqrt(norm) + floor_each * sqrt((double)count);
    return difference == 0 ? 0 : sqrt(difference) / scale;
}

static void assert_kind(const test_staged *staged, const test_stage *whole,
                        sl_port_kind kind, int slot, double tolerance)
{
    for (int i = 0; i < sl_stage_port_count(whole->stage, kind); i++) {
        sl_port port;
        assert_ok(sl_stage_port_at(whole->stage, kind, i, &port));
        size_t count;
        void *theirs = test_get(whole, kind, port.name, slot, &count);
        double *ours = malloc(count * sizeof *ours);
        bool found = sum_port(staged, kind, port.name, slot, count, ours);
        /* An input that nothing uses is in no stage. */
        if (!found && kind != SL_PORT_INPUT_GRADIENT)
            fail_msg("no stage has '%s' (kind %d)", port.name, (int)kind);
        double off = distance(ours, port.dtype, theirs, count, staged->floor);
        for (size_t k = 0; k < count && tolerance == 0; k++) {
            double value = value_at(port.dtype, theirs, k);
            if (memcmp(&ours[k], &value, sizeof value) != 0 &&
                !(isnan(ours[k]) && isnan(value)))
                off = 1;
        }
        if (!(off <= tolerance))
            fail_msg("'%s' (kind %d) differs by %g", port.name, (int)kind, off);
        free(theirs);
        free(ours);
    }
}

void test_staged_assert(const test_staged *staged, const test_stage *whole,
                        int slot, double outputs, double gradients)
{
    assert_kind(staged, whole, SL_PORT_OUTPUT, slot, outputs);
    assert_kind(staged, whole, SL_PORT_PARAMETER_GRADIENT, slot, gradients);
    assert_kind(staged, whole, SL_PORT_INPUT_GRADIENT, slot, gradients);
}

/* --------------------------------------------------------------- sound -- */

static void check_names(const sl_model *model, const sl_graph *graph)
{
    for (size_t i = 0; i < graph->parameters.count; i++) {
        const char *name = graph->parameters.data[i].name;
        bool found = false;
        for (size_t s = 0; s < model->part_count; s++)
            found |=
                sl__find_name(&model->parts[s].graph->parameters, name) != NULL;
        if (!found)
            fail_msg("'%s' is in no stage", name);
    }
    for (size_t s = 0; s < model->part_count; s++) {
        const sl__names *own = &model->parts[s].graph->parameters;
        for (size_t i = 0; i < own->count; i++) {
            const sl__named *theirs =
                sl__find_name(&graph->parameters, own->data[i].name);
            if (!theirs)
                fail_msg("'%s' is a new name", own->data[i].name);
            assert_true(sl__same_shape(theirs->tensor, own->data[i].tensor));
        }
    }
}

static bool has_edge(const sl_model *model, int crossing, int to)
{
    int found = 0;
    for (int i = 0; i < model->edge_count; i++)
        found +=
            model->edges[i].crossing == crossing && model->edges[i].to == to;
    assert_true(found <= 1);
    return found;
}

static void check_crossings(const sl_model *model)
{
    for (int i = 0; i < model->crossing_count; i++) {
        const sl_crossing *c = &model->crossings[i];
        assert_true(c->consumer_count > 0);
        for (int k = 0; k < c->consumer_count; k++) {
            assert_true(c->consumers[k] > c->producer);
            assert_true(k == 0 || c->consumers[k] > c->consumers[k - 1]);
            assert_true(has_edge(model, i, c->consumers[k]));
        }
        for (int k = 0; k < i; k++)
            assert_string_not_equal(c->name, model->crossings[k].name);
    }
    bool gradient[4096] = {false};
    for (int i = 0; i < model->edge_count; i++) {
        const sl_edge *edge = &model->edges[i];
        assert_true(edge->from < edge->to);
        has_edge(model, edge->crossing, edge->to);
        if (edge->crossing < 4096)
            gradient[edge->crossing] |= edge->gradient_name != NULL;
        /* No two gradients land in one place. */
        for (int k = 0; k < i && edge->gradient_name; k++)
            assert_false(model->edges[k].from == edge->from &&
                         model->edges[k].gradient_name &&
                         strcmp(model->edges[k].gradient_name,
                                edge->gradient_name) == 0);
    }
    for (int i = 0; i < model->crossing_count && i < 4096; i++)
        assert_int_equal(model->crossings[i].gradient, gradient[i]);
}

/* How many stages have a parameter of this name. */
static int count_users(const sl_model *model, const char *name)
{
    int users = 0;
    for (size_t s = 0; s < model->part_count; s++)
        users +=
            sl__find_name(&model->parts[s].graph->parameters, name) != NULL;
    return users;
}

static void check_ties(const sl_model *model, const sl_graph *graph)
{
    for (size_t i = 0; i < graph->parameters.count; i++) {
        const char *name = graph->parameters.data[i].name;
        const sl_tie *found = NULL;
        for (int t = 0; t < model->tie_count; t++) {
            for (int k = 0; k < model->ties[t].name_count; k++) {
                if (strcmp(model->ties[t].names[k], name) == 0) {
                    assert_null(found);
                    found = &model->ties[t];
                }
            }
        }
        int users = count_users(model, name);
        assert_int_equal(found ? found->stage_count : 1, users);
    }
}

void test_model_is_sound(const sl_model *model, const sl_graph *graph)
{
    check_names(model, graph);
    check_crossings(model);
    check_ties(model, graph);
}
