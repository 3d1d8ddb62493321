/* SPDX-License-Identifier: MIT
 *
 * The golden models cut where PyTorch's tests cut them, and GPT-2 cut in every
 * way: the stages give what the whole gives, and what PyTorch gave. */
#include "golden_models.h"
#include "staged.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const sl_crossing *find_crossing(const sl_model *model, int producer,
                                        int consumers, const int *expected)
{
    int count;
    const sl_crossing *all = sl_model_crossings(model, &count);
    for (int i = 0; i < count; i++) {
        const sl_crossing *c = &all[i];
        if (c->producer == producer && c->consumer_count == consumers &&
            memcmp(c->consumers, expected,
                   sizeof *expected * (size_t)consumers) == 0)
            return c;
    }
    fail_msg("nothing crosses from stage %d as expected", producer);
    return NULL;
}

static int crossings_of(const sl_model *model)
{
    int count;
    sl_model_crossings(model, &count);
    return count;
}

static void assert_input(const sl_model *model, const char *name, int stage)
{
    int count;
    const sl_model_port *inputs = sl_model_inputs(model, &count);
    for (int i = 0; i < count; i++) {
        if (strcmp(inputs[i].name, name) == 0) {
            assert_int_equal(inputs[i].stage_count, 1);
            assert_int_equal(inputs[i].stages[0], stage);
            return;
        }
    }
    fail_msg("no input '%s'", name);
}

static const sl_tie *only_tie(const sl_model *model)
{
    int count;
    const sl_tie *ties = sl_model_ties(model, &count);
    assert_int_equal(count, 1);
    assert_int_equal(ties->stage_count, 2);
    return ties;
}

static void assert_stages(const sl_tie *tie, int first, int second)
{
    assert_int_equal(tie->stages[0], first);
    assert_int_equal(tie->stages[1], second);
}

/* x@mm1 → skip; relu(skip+y) | @mm1 → lin1 | relu, +skip, @mm2 | lin2, relu. */
static void check_example_code(const sl_model *model)
{
    assert_int_equal(sl_model_stage_count(model), 4);
    assert_int_equal(crossings_of(model), 4);
    const sl_crossing *skip = find_crossing(model, 0, 1, (int[]){2});
    assert_true(skip->gradient);
    find_crossing(model, 0, 1, (int[]){1});
    find_crossing(model, 1, 1, (int[]){2});
    find_crossing(model, 2, 1, (int[]){3});
    int edges;
    sl_model_edges(model, &edges);
    assert_int_equal(edges, 4);
    const sl_tie *tie = only_tie(model);
    assert_stages(tie, 0, 1);
    assert_string_equal(tie->names[0], "mm_param1");
    assert_input(model, "input.x", 0);
    assert_input(model, "input.y", 0);
    assert_input(model, "target", 3);
}

static void check_multi_mlp(const sl_model *model)
{
    int stages = sl_model_stage_count(model), ties;
    assert_int_equal(crossings_of(model), stages - 1);
    sl_model_ties(model, &ties);
    assert_int_equal(ties, 0);
    for (int s = 0; s + 1 < stages; s++)
        assert_true(find_crossing(model, s, 1, (int[]){s + 1})->gradient);
    assert_input(model, "input.x", 0);
    assert_input(model, "input.y", stages - 1);
}

static void check_alias(const sl_model *model)
{
    assert_int_equal(sl_model_stage_count(model), 2);
    const sl_tie *tie = only_tie(model);
    assert_stages(tie, 0, 1);
    assert_int_equal(tie->name_count, 2);
    assert_string_equal(tie->names[0], "mm_param1");
    assert_string_equal(tie->names[1], "mm_param2");
    assert_int_equal(crossings_of(model), 1);
}

/* The gradients of all stages together, against the file's. */
static void assert_golden(const test_staged *staged, const sl_safetensors *file)
{
    for (size_t i = 0; i < sl_safetensors_count(file); i++) {
        const sl_safetensor *golden = sl_safetensors_at(file, i);
        if (strncmp(golden->name, "grad.", 5) != 0 || golden->name[5] == '\0')
            continue;
        size_t count = golden->bytes / sizeof(float);
        float *sum = calloc(count, sizeof *sum),
              *theirs = golden_floats(golden);
        int found = 0;
        for (int s = 0; s < staged->count; s++) {
            sl_port port;
            if (sl_stage_port(staged->stages[s].stage,
                              SL_PORT_PARAMETER_GRADIENT, golden->name + 5,
                              &port))
                continue;
            float *own =
                test_get(&staged->stages[s], SL_PORT_PARAMETER_GRADIENT,
                         golden->name + 5, 0, NULL);
            for (size_t k = 0; k < count; k++)
                sum[k] += own[k];
            free(own);
            found++;
        }
        if (!found || !(test_distance(sum, theirs, count) <= 1e-5))
            fail_msg("'%s' in %d stages is off by %g", golden->name, found,
                     test_distance(sum, theirs, count));
        free(sum);
        free(theirs);
    }
}

static void compare(const sl_graph *graph, const sl_safetensors *file,
                    const sl_model *model, bool golden)
{
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    options.backend = "ref";
    test_stage whole = test_compile(graph, &options, 1);
    test_staged staged = test_stages(model, &options, 1);
    staged.floor = 0;
    golden_load(&whole, file);
    test_staged_copy(&staged, &whole, 0);
    test_run(&whole, "FB", 0);
    test_staged_forward(&staged, 0);
    test_staged_backward(&staged, "B", 0);
    test_staged_assert(&staged, &whole, 0, 0, 1e-6);
    if (golden)
        assert_golden(&staged, file);
    test_staged_release(&staged);
    test_release(&whole);
}

static void goldens_cut_at_their_marks(void **state)
{
    (void)state;
    static void (*const checks[])(const sl_model *) = {
        check_example_code, check_multi_mlp, check_alias};
    for (int m = 0; m < 3; m++) {
        for (int route = 0; route < 2; route++) {
            sl_safetensors *file = golden_open(golden_models[m].name);
            sl_cut_options options = SL_CUT_OPTIONS_INIT;
            sl_graph *graph;
            sl_model *model;
            assert_ok(sl_graph_create(&graph));
            golden_models[m].build(graph, file, SL_F32);
            options.route = route ? SL_ROUTE_HOP : SL_ROUTE_DIRECT;
            assert_ok(sl_model_cut(graph, &options, &model));
            test_model_is_sound(model, graph);
            if (!route)
                checks[m](model);
            compare(graph, file, model, true);
            sl_model_destroy(model);
            sl_graph_destroy(graph);
            sl_safetensors_close(file);
        }
    }
}

/* A tensor that hops passes every stage on its way, and is still one. */
static void a_skip_can_hop(void **state)
{
    (void)state;
    sl_safetensors *file = golden_open("ExampleCode");
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    sl_graph *graph;
    sl_model *model;
    int edges, through = 0;
    assert_ok(sl_graph_create(&graph));
    golden_models[0].build(graph, file, SL_F32);
    options.route = SL_ROUTE_HOP;
    assert_ok(sl_model_cut(graph, &options, &model));
    assert_int_equal(crossings_of(model), 4);
    find_crossing(model, 0, 1, (int[]){2});
    const sl_edge *all = sl_model_edges(model, &edges);
    assert_int_equal(edges, 5);
    for (int i = 0; i < edges; i++) {
        assert_int_equal(all[i].to, all[i].from + 1);
        assert_non_null(all[i].gradient_name);
        for (int k = 0; k < i; k++)
            through += all[k].crossing == all[i].crossing;
    }
    assert_int_equal(through, 1);
    sl_model_destroy(model);
    sl_graph_destroy(graph);
    sl_safetensors_close(file);
}

/* ---------------------------------------------------------------- GPT-2 -- */

/* The first piece of a stage: 0 is the embedding, then come the layers, then
 * the head. */
static int first_piece(int stage, int stages, int pieces)
{
    return stage * pieces / stages;
}

/* GPT-2 piece by piece, with a mark before the first piece of each stage. */
static void build_marked(sl_graph *graph, const sl_gpt2_config *config,
                         int64_t batch, int64_t length, int stages)
{
    int stage = 1, pieces = config->layers + 2;
    sl_tensor *wte, *ids, *labels, *h;
    ids = sl_input(graph, "input_ids", SL_I64, SL_SHAPE(batch, length),
                   SL_NO_GRADIENT);
    labels = sl_input(graph, "labels", SL_I64, SL_SHAPE(batch, length),
                      SL_NO_GRADIENT);
    h = sl_gpt2_embed(graph, config, NULL, ids, &wte);
    for (int piece = 1; piece < pieces; piece++) {
        if (stage < stages && first_piece(stage, stages, pieces) == piece) {
            sl_mark_cut(graph);
            stage++;
        }
        h = piece <= config->layers
                ? sl_gpt2_layer(graph, config, NULL, piece - 1, h)
                : sl_gpt2_head(graph, config, NULL, h, wte);
    }
    sl_output(graph, "logits", h, SL_NO_GRADIENT);
    sl_loss(graph, sl_cross_entropy(h, labels, -100));
}

static sl_model *cut_at_names(const sl_graph *graph, int layers, int stages)
{
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    sl_cut_point points[64];
    char names[64][40];
    for (int i = 1; i < stages; i++) {
        int piece = first_piece(i, stages, layers + 2);
        bool after = i % 2 && piece > 1;
        if (after)
            snprintf(names[i], sizeof *names, "transformer.h.%d", piece - 2);
        else if (piece <= layers)
            snprintf(names[i], sizeof *names, "transformer.h.%d", piece - 1);
        else
            snprintf(names[i], sizeof *names, "transformer.ln_f");
        points[i - 1] = (sl_cut_point){names[i], after};
    }
    options.by = SL_CUT_AT_NAMES;
    options.points = points;
    options.point_count = stages - 1;
    sl_model *model;
    assert_ok(sl_model_cut(graph, &options, &model));
    return model;
}

static sl_model *cut_by_cost(const sl_graph *graph, int stages)
{
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    options.by = SL_CUT_BY_COST;
    options.stages = stages;
    sl_model *model;
    assert_ok(sl_model_cut(graph, &options, &model));
    return model;
}

/* One tensor between neighbours; the table at both ends, tied. */
static void check_gpt2(const sl_model *model, int stages, bool tied)
{
    int ties;
    const sl_tie *tie = sl_model_ties(model, &ties);
    assert_int_equal(sl_model_stage_count(model), stages);
    assert_int_equal(crossings_of(model), stages - 1);
    assert_int_equal(ties, tied && stages > 1);
    if (ties) {
        assert_stages(only_tie(model), 0, stages - 1);
        assert_int_equal(tie->name_count, 2);
        assert_string_equal(tie->names[0], "transformer.wte.weight");
        assert_string_equal(tie->names[1], "lm_head.weight");
    }
    assert_input(model, "input_ids", 0);
    assert_input(model, "labels", stages - 1);
}

static void gpt2_cuts_into_any_number_in_every_way(void **state)
{
    (void)state;
    const struct {
        int layers, heads, width, vocabulary;
        bool tied;
    } sizes[] = {{1, 1, 4, 3, true},
                 {2, 2, 8, 50, true},
                 {3, 3, 12, 17, false},
                 {5, 2, 6, 1000, true}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        sl_gpt2_config config = SL_GPT2_CONFIG_INIT;
        config.layers = sizes[i].layers;
        config.heads = sizes[i].heads;
        config.width = sizes[i].width;
        config.vocabulary = sizes[i].vocabulary;
        config.tied = sizes[i].tied;
        config.positions = 9;
        for (int stages = 1; stages <= config.layers + 2; stages++) {
            sl_graph *graph;
            sl_model *models[3];
            assert_ok(sl_graph_create(&graph));
            build_marked(graph, &config, 2, 7, stages);
            assert_ok(sl_model_cut(graph, NULL, &models[0]));
            models[1] = cut_at_names(graph, config.layers, stages);
            models[2] = cut_by_cost(graph, stages);
            sl_stage_options options = SL_STAGE_OPTIONS_INIT;
            options.backend = "ref";
            test_stage whole = test_compile(graph, &options, 1);
            test_fill_all(&whole, 3, 0, 3);
            test_run(&whole, "FB", 0);
            for (int way = 0; way < 3; way++) {
                check_gpt2(models[way], stages, config.tied);
                test_model_is_sound(models[way], graph);
                test_staged staged = test_stages(models[way], &options, 1);
                test_staged_copy(&staged, &whole, 0);
                test_staged_forward(&staged, 0);
                test_staged_backward(&staged, way ? "IW" : "B", 0);
                staged.floor = 1e-3;
                test_staged_assert(&staged, &whole, 0, 0, 1e-6);
                test_staged_release(&staged);
                sl_model_destroy(models[way]);
            }
            test_release(&whole);
            sl_graph_destroy(graph);
        }
    }
}

static void golden_gpt2_cuts_into_any_number(void **state)
{
    (void)state;
    sl_safetensors *file = golden_open("gpt2");
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    golden_models[GOLDEN_MODELS - 1].build(graph, file, SL_F32);
    int layers = 0;
    for (char name[64];; layers++) {
        snprintf(name, sizeof name, "param.transformer.h.%d.ln_1.weight",
                 layers);
        if (!sl_safetensors_find(file, name))
            break;
    }
    for (int stages = 1; stages <= layers + 2; stages++) {
        sl_model *model = cut_by_cost(graph, stages);
        check_gpt2(model, stages, true);
        compare(graph, file, model, false);
        sl_model_destroy(model);
    }
    sl_graph_destroy(graph);
    sl_safetensors_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens_cut_at_their_marks),
        cmocka_unit_test(a_skip_can_hop),
        cmocka_unit_test(gpt2_cuts_into_any_number_in_every_way),
        cmocka_unit_test(golden_gpt2_cuts_into_any_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
