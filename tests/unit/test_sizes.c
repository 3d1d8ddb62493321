/* SPDX-License-Identifier: MIT
 *
 * Microbatches of uneven sizes: one set of programs per size over shared
 * parameters, and the gradients of the whole batch. */
#include "staged.h"

#include <stdlib.h>
#include <string.h>

/* What the tests build: layers over (rows, 6) with a mask that broadcasts over
 * rows, a transposed detour, and the sum of squares as the loss. */
typedef struct builder {
    int layers, stages;
    int built;
    int odd_rows; /* rows for which something is wrong, */
    int wrong;    /* and what */
} builder;

static void build_graph(const builder *b, int64_t rows, sl_graph *graph)
{
    bool odd = rows == b->odd_rows;
    sl_tensor *x =
        sl_input(graph, "x", SL_F32, SL_SHAPE(rows, 6), SL_NO_GRADIENT);
    if (b->wrong == 6) {
        const float scale[] = {odd ? 2.0f : 1.0f};
        x = sl_mul(x, sl_buffer(graph, "scale", SL_F32, SL_SHAPE(1), scale));
    }
    if (b->wrong == 7)
        x = sl_add(x, sl_input(graph, "more", SL_F32, SL_SHAPE(6),
                               odd ? SL_GRADIENT : SL_NO_GRADIENT));
    sl_tensor *mask =
        sl_input(graph, "mask", SL_BOOL, SL_SHAPE(1, 6), SL_NO_GRADIENT);
    for (int i = 0; i < b->layers; i++) {
        sl_scope_enter(graph, "layers.%d", i);
        int64_t wide = odd && b->wrong == 1 ? 5 : 4;
        sl_tensor *up = sl_parameter(graph, "up", SL_F32, SL_SHAPE(wide, 6));
        sl_tensor *down =
            sl_parameter(graph, "down", SL_F32, SL_SHAPE(6, wide));
        sl_tensor *h = sl_relu(sl_linear(x, up, NULL, SL_OUT_IN));
        if (odd && b->wrong == 2)
            h = sl_relu(h);
        if (b->wrong == 4)
            h = odd ? sl_silu(h) : sl_gelu_tanh(h);
        h = sl_mul(sl_linear(h, down, NULL, SL_OUT_IN), mask);
        /* A copy, unless there is one row. */
        h = sl_reshape(sl_transpose(h, 0, 1), SL_SHAPE(rows * 6));
        h = sl_transpose(sl_reshape(h, SL_SHAPE(6, rows)), 0, 1);
        x = sl_add(x, h);
        sl_scope_leave(graph);
    }
    if (b->wrong == 5) {
        sl_output(graph, "y", x, odd ? SL_NO_GRADIENT : SL_GRADIENT);
        return;
    }
    sl_output(graph, "y", x, SL_NO_GRADIENT);
    sl_loss(graph, sl_sum(sl_mul(x, x), SL_ALL));
}

static sl_status build(void *context, int64_t rows, const sl_model *like,
                       sl_model **out)
{
    builder *b = context;
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    sl_graph *graph;
    sl_status status = sl_graph_create(&graph);
    if (status)
        return status;
    b->built++;
    if (rows == b->odd_rows && b->wrong >= 8) {
        sl_graph_destroy(graph);
        return b->wrong == 8 ? SL_OK : sl_model_create(out);
    }
    build_graph(b, rows, graph);
    options.by = SL_CUT_BY_COST;
    options.inside = true;
    options.stages = b->stages;
    if (rows == b->odd_rows && b->wrong == 3)
        options.stages++;
    else
        options.like = like;
    status = sl_model_cut(graph, &options, out);
    sl_graph_destroy(graph);
    return status;
}

/* A stage for each size, the memory of the second beside that of the first. */
typedef struct sized {
    test_staged staged;
    int64_t rows;
} sized;

static sized make_sized(sl_programs *programs, int64_t rows, const sized *owner)
{
    const sl_model *model;
    assert_ok(sl_programs_model(programs, rows, &model));
    sized out = {{model, sl_model_stage_count(model), NULL, 0.1}, rows};
    out.staged.stages = calloc((size_t)out.staged.count, sizeof(test_stage));
    for (int s = 0; s < out.staged.count; s++) {
        const sl_stage *stage;
        assert_ok(sl_programs_stage(programs, rows, s, &stage));
        out.staged.stages[s].stage = (sl_stage *)stage;
        sl_memory **memory = &out.staged.stages[s].memory;
        if (owner)
            assert_ok(sl_memory_create_shared(
                stage, 1, owner->staged.stages[s].memory, memory));
        else
            assert_ok(sl_memory_create(stage, 1, memory));
    }
    return out;
}

static void release_sized(sized *old)
{
    for (int s = 0; s < old->staged.count; s++)
        sl_memory_destroy(old->staged.stages[s].memory);
    free(old->staged.stages);
}

/* Gives a microbatch to the stages that take each input. */
static void feed(const sized *own, const sl_batch *batch, int microbatch)
{
    int count;
    const sl_model_port *inputs = sl_model_inputs(own->staged.model, &count);
    for (int i = 0; i < count; i++) {
        sl_array part;
        int argument = sl_batch_find(batch, inputs[i].name);
        assert_ok(sl_batch_part(batch, argument, microbatch, &part));
        for (int k = 0; k < inputs[i].stage_count; k++)
            test_put(&own->staged.stages[inputs[i].stages[k]], SL_PORT_INPUT,
                     inputs[i].name, 0, part.data);
    }
}

enum { ROWS = 7 };

/* New parameters for the uncut model, and its gradients and loss. */
static void run_whole(const test_stage *whole, uint64_t *random)
{
    static const char *const names[] = {"layers.0.up", "layers.0.down",
                                        "layers.1.up", "layers.1.down",
                                        "layers.2.up", "layers.2.down"};
    sl_memory_zero_gradients(whole->memory);
    for (int i = 0; i < 6; i++) {
        float weight[24];
        test_fill(random, SL_F32, weight, 24);
        test_put(whole, SL_PORT_PARAMETER, names[i], 0, weight);
    }
    test_run(whole, "FB", 0);
}

/* The same parameters for a stage, and no gradients. */
static void take_parameters(const test_stage *stage, const test_stage *whole)
{
    int count = sl_stage_port_count(stage->stage, SL_PORT_PARAMETER);
    sl_memory_zero_gradients(stage->memory);
    for (int i = 0; i < count; i++) {
        sl_port port;
        assert_ok(sl_stage_port_at(stage->stage, SL_PORT_PARAMETER, i, &port));
        float *data = test_get(whole, SL_PORT_PARAMETER, port.name, 0, NULL);
        test_put(stage, SL_PORT_PARAMETER, port.name, 0, data);
        free(data);
    }
}

/* Runs all microbatches, each with the programs of its size; their loss. */
static float run_parts(const sized *own, const sl_batch *batch,
                       int microbatches)
{
    float loss = 0;
    for (int m = 0; m < microbatches; m++) {
        const sized *used =
            &own[sl_batch_rows(batch, m) == own[0].rows ? 0 : 1];
        feed(used, batch, m);
        test_staged_forward(&used->staged, 0);
        test_staged_backward(&used->staged, m % 2 ? "IW" : "B", 0);
        loss += test_get_float(&used->staged.stages[used->staged.count - 1],
                               SL_PORT_OUTPUT, "loss", 0);
    }
    return loss;
}

/* Two rounds, as parameters change between them and are packed again. */
static void compare_rounds(const sized *own, const sl_batch *batch,
                           int microbatches, const test_stage *whole,
                           uint64_t *random)
{
    const test_staged *staged = &own[0].staged;
    for (int round = 0; round < 2; round++) {
        run_whole(whole, random);
        for (int s = 0; s < staged->count; s++)
            take_parameters(&staged->stages[s], whole);
        float loss = run_parts(own, batch, microbatches);
        float expected = test_get_float(whole, SL_PORT_OUTPUT, "loss", 0);
        assert_true(test_distance(&loss, &expected, 1) < 1e-5);
        for (int s = 0; s < staged->count; s++)
            test_assert_same(&staged->stages[s], whole,
                             SL_PORT_PARAMETER_GRADIENT, 0, 1e-5);
    }
}

static void compare_split(int microbatches, int stages)
{
    builder b = {.layers = 3, .stages = stages};
    float x[ROWS * 6];
    bool mask[6] = {true, true, false, true, true, true};
    uint64_t random = 4;
    test_fill(&random, SL_F32, x, ROWS * 6);
    const sl_array arrays[] = {{SL_F32, 2, {ROWS, 6}, x},
                               {SL_BOOL, 2, {1, 6}, mask}};
    const sl_argument arguments[] = {
        {"x", SL_SPREAD_SPLIT, 0, &arrays[0], 1},
        {"mask", SL_SPREAD_REPLICATE, 0, &arrays[1], 1}};
    sl_batch *batch;
    sl_programs *programs;
    sl_stage_options options = SL_STAGE_OPTIONS_INIT;
    const sl_model *first;
    assert_ok(sl_programs_create(build, &b, &options, &programs));
    assert_ok(sl_programs_model(
        programs, sl_microbatch_rows(ROWS, microbatches, 0), &first));
    assert_ok(sl_batch_create(first, arguments, 2, microbatches, &batch));
    /* The last microbatches have one row less, if there are two sizes. */
    int64_t rows[2] = {sl_batch_rows(batch, 0),
                       sl_batch_rows(batch, microbatches - 1)};
    int sizes = rows[0] == rows[1] ? 1 : 2;
    sized own[2];
    for (int i = 0; i < sizes; i++)
        own[i] = make_sized(programs, rows[i], i ? &own[0] : NULL);
    /* The whole batch, uncut. */
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    build_graph(&b, ROWS, graph);
    test_stage whole = test_compile(graph, &options, 1);
    test_fill_all(&whole, 21, 0, 1);
    test_put(&whole, SL_PORT_INPUT, "x", 0, x);
    test_put(&whole, SL_PORT_INPUT, "mask", 0, mask);
    compare_rounds(own, batch, microbatches, &whole, &random);
    assert_int_equal(b.built, sizes);
    assert_int_equal(sl_programs_count(programs), sizes);
    assert_true(sizes == (ROWS % microbatches ? 2 : 1));
    test_release(&whole);
    sl_graph_destroy(graph);
    for (int i = sizes; i-- > 0;)
        release_sized(&own[i]);
    sl_batch_destroy(batch);
    sl_programs_destroy(programs);
}

static void uneven_microbatches_add_up_to_the_batch(void **state)
{
    (void)state;
    static const int microbatches[] = {1, 2, 3, 4, 5, 7};
    for (int way = 0; way < 6; way++)
        compare_split(microbatches[way], 1 + way);
}

static void a_size_is_compiled_once(void **state)
{
    (void)state;
    builder b = {.layers = 2, .stages = 2};
    sl_programs *programs;
    const sl_model *first, *again, *other;
    const sl_stage *stage, *same;
    assert_ok(sl_programs_create(build, &b, NULL, &programs));
    assert_int_equal(sl_programs_count(programs), 0);
    assert_ok(sl_programs_model(programs, 3, &first));
    assert_ok(sl_programs_model(programs, 2, &other));
    assert_ok(sl_programs_model(programs, 3, &again));
    assert_ptr_equal(first, again);
    assert_ptr_not_equal(first, other);
    assert_int_equal(b.built, 2);
    assert_ok(sl_programs_stage(programs, 3, 1, &stage));
    assert_ok(sl_programs_stage(programs, 3, 1, &same));
    assert_ptr_equal(stage, same);
    assert_fails(sl_programs_stage(programs, 3, 2, &stage), SL_EINVAL,
                 "stage 2, expected 0 to 1");
    sl_programs_destroy(programs);
}

static void sizes_that_change_more_than_shapes_are_refused(void **state)
{
    (void)state;
    const char *const expected[] = {
        ("the model for 1 rows differs from that for 3: the parameters of "
         "stage 0"),
        "the graph has other ops than the model that it is to be cut like",
        "the model for 1 rows has 3 stages, expected 2 as that for 3 rows",
        "the graph has other ops than the model that it is to be cut like",
        "the model for 1 rows differs from that for 3: the outputs of stage 0",
        "the model for 1 rows differs from that for 3: the buffers of stage 0",
        "the model for 1 rows differs from that for 3: the inputs of stage 0",
        "the model for 1 rows is not there, or not linked",
        "the model for 1 rows is not there, or not linked"};
    for (int wrong = 1; wrong <= 9; wrong++) {
        builder b = {2, 2, 0, 1, wrong};
        sl_programs *programs;
        const sl_model *model;
        assert_ok(sl_programs_create(build, &b, NULL, &programs));
        assert_ok(sl_programs_model(programs, 3, &model));
        const sl_model *before = model;
        assert_fails(sl_programs_model(programs, 1, &model), SL_EINVAL,
                     expected[wrong - 1]);
        assert_ptr_equal(model, before);
        assert_int_equal(sl_programs_count(programs), 1);
        assert_ok(sl_programs_model(programs, 2, &model));
        sl_programs_destroy(programs);
    }
}

/* Route and feed are those of the model that is cut like. */
static void a_cut_like_another_takes_its_route(void **state)
{
    (void)state;
    builder b = {.layers = 3};
    sl_cut_options options = SL_CUT_OPTIONS_INIT, like = SL_CUT_OPTIONS_INIT;
    sl_model *first, *second;
    options.by = SL_CUT_BY_COST;
    options.stages = 3;
    options.route = SL_ROUTE_HOP;
    options.feed = SL_FEED_FIRST;
    for (int i = 0; i < 2; i++) {
        sl_graph *graph;
        assert_ok(sl_graph_create(&graph));
        build_graph(&b, 3 - 2 * i, graph);
        like.like = first;
        assert_ok(
            sl_model_cut(graph, i ? &like : &options, i ? &second : &first));
        sl_graph_destroy(graph);
    }
    int edges, others, crossings;
    const sl_edge *a = sl_model_edges(first, &edges);
    const sl_edge *c = sl_model_edges(second, &others);
    sl_model_crossings(first, &crossings);
    assert_true(edges > crossings); /* The mask hops. */
    assert_int_equal(edges, others);
    for (int i = 0; i < edges; i++) {
        assert_int_equal(a[i].to, a[i].from + 1);
        assert_int_equal(a[i].from, c[i].from);
        assert_int_equal(a[i].to, c[i].to);
        assert_string_equal(a[i].name, c[i].name);
    }
    sl_model_destroy(first);
    sl_model_destroy(second);
}

static void what_was_not_cut_cannot_be_cut_like(void **state)
{
    (void)state;
    sl_model *hand, *model;
    sl_graph *graph;
    builder b = {.layers = 1};
    sl_cut_options options = SL_CUT_OPTIONS_INIT;
    assert_ok(sl_model_create(&hand));
    assert_ok(sl_graph_create(&graph));
    build_graph(&b, 2, graph);
    options.like = hand;
    assert_fails(sl_model_cut(graph, &options, &model), SL_EINVAL,
                 "was not cut itself");
    sl_model_destroy(hand);
    /* What is to stay whole does, also alike. */
    options.like = NULL;
    options.by = SL_CUT_BY_COST;
    options.inside = true;
    options.stages = 2;
    sl_model *first;
    assert_ok(sl_model_cut(graph, &options, &first));
    sl_graph_destroy(graph);
    assert_ok(sl_graph_create(&graph));
    sl_whole_enter(graph);
    build_graph(&b, 2, graph);
    sl_whole_leave(graph);
    options.like = first;
    assert_fails(sl_model_cut(graph, &options, &model), SL_EINVAL,
                 "divides what is to stay whole");
    sl_model_destroy(first);
    sl_graph_destroy(graph);
}

/* ---------------------------------------------------------------- beside -- */

static sl_graph *small(int64_t rows, int64_t width, const char *name)
{
    sl_graph *graph;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(rows, 3), SL_GRADIENT);
    sl_tensor *w = sl_parameter(graph, name, SL_F32, SL_SHAPE(width, 3));
    sl_output(graph, "y", sl_linear(x, w, NULL, SL_OUT_IN), SL_GRADIENT);
    return graph;
}

static void shared_memory_needs_the_same_parameters(void **state)
{
    (void)state;
    sl_stage_options ref = SL_STAGE_OPTIONS_INIT;
    ref.backend = "ref";
    sl_graph *graphs[] = {small(2, 4, "w"), small(2, 5, "w"), small(2, 4, "v"),
                          small(3, 4, "w")};
    const char *const expected[] = {
        "", "has 'w' of f32 (5, 3) where the owner has 'w' of f32 (4, 3)",
        "has 'v' of f32 (4, 3) where the owner has 'w'", "backend"};
    test_stage owner = test_compile(graphs[0], NULL, 1);
    for (int i = 1; i < 4; i++) {
        sl_stage *stage;
        sl_memory *memory = NULL;
        assert_ok(sl_stage_compile(graphs[i], i == 3 ? &ref : NULL, &stage));
        assert_fails(sl_memory_create_shared(stage, 1, owner.memory, &memory),
                     SL_EINVAL, expected[i]);
        assert_null(memory);
        sl_stage_destroy(stage);
    }
    /* Sharing with one that itself shares with another. */
    sl_stage *stage;
    sl_memory *second, *third;
    assert_ok(sl_stage_compile(graphs[3], NULL, &stage));
    assert_ok(sl_memory_create_shared(stage, 1, owner.memory, &second));
    assert_ok(sl_memory_create_shared(stage, 1, second, &third));
    float weight[12], found[12];
    uint64_t random = 1;
    test_fill(&random, SL_F32, weight, 12);
    test_stage last = {stage, third};
    test_put(&last, SL_PORT_PARAMETER, "w", 0, weight);
    sl_port port;
    assert_ok(sl_stage_port(owner.stage, SL_PORT_PARAMETER, "w", &port));
    assert_ok(sl_memory_read(owner.memory, &port, 0, found, sizeof found));
    assert_memory_equal(found, weight, sizeof found);
    /* Whoever writes, everybody packs again. */
    for (int round = 0; round < 3; round++) {
        const test_stage *const users[] = {&owner, &last};
        for (int i = 0; i < 2; i++) {
            const float ones[9] = {1, 0, 0, 1, 0, 0, 1, 0, 0};
            test_put(users[i], SL_PORT_INPUT, "x", 0, ones);
            test_run(users[i], "F", 0);
            float *y = test_get(users[i], SL_PORT_OUTPUT, "y", 0, NULL);
            for (int k = 0; k < 4; k++)
                assert_true(y[k] == weight[3 * k]);
            free(y);
        }
        test_fill(&random, SL_F32, weight, 12);
        test_put(round ? &last : &owner, SL_PORT_PARAMETER, "w", 0, weight);
    }
    sl_memory_destroy(third);
    sl_memory_destroy(second);
    sl_stage_destroy(stage);
    test_release(&owner);
    for (int i = 0; i < 4; i++)
        sl_graph_destroy(graphs[i]);
}

/* --------------------------------------------------------------- buffers -- */

static void buffers_hold_what_they_were_given(void **state)
{
    (void)state;
    const char *const backends[] = {"ref", "cpu"};
    for (int i = 0; i < 2; i++) {
        sl_stage_options options = SL_STAGE_OPTIONS_INIT;
        options.backend = backends[i];
        const float table[] = {1, 2, 3};
        sl_graph *graph;
        assert_ok(sl_graph_create(&graph));
        sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(3), SL_GRADIENT);
        sl_scope_enter(graph, "rotary");
        sl_tensor *b = sl_buffer(graph, "table", SL_F32, SL_SHAPE(3), table);
        sl_tensor *z = sl_buffer(graph, "zeros", SL_F32, SL_SHAPE(3), NULL);
        sl_scope_leave(graph);
        sl_tensor *w = sl_parameter(graph, "w", SL_F32, SL_SHAPE(3));
        sl_output(graph, "y", sl_add(sl_mul(sl_mul(x, b), w), z), SL_GRADIENT);
        test_stage stage = test_compile(graph, &options, 1);
        assert_int_equal(sl_stage_port_count(stage.stage, SL_PORT_BUFFER), 2);
        assert_int_equal(sl_stage_port_count(stage.stage, SL_PORT_PARAMETER),
                         1);
        assert_int_equal(
            sl_stage_port_count(stage.stage, SL_PORT_PARAMETER_GRADIENT), 1);
        const float ones[] = {1, 1, 1}, other[] = {5, 5, 5};
        test_put(&stage, SL_PORT_INPUT, "x", 0, ones);
        test_put(&stage, SL_PORT_PARAMETER, "w", 0, ones);
        test_put(&stage, SL_PORT_OUTPUT_GRADIENT, "y", 0, ones);
        test_run(&stage, "FB", 0);
        float *dw = test_get(&stage, SL_PORT_PARAMETER_GRADIENT, "w", 0, NULL);
        assert_memory_equal(dw, table, sizeof table);
        free(dw);
        test_put(&stage, SL_PORT_BUFFER, "rotary.table", 0, other);
        test_run(&stage, "F", 0);
        float *y = test_get(&stage, SL_PORT_OUTPUT, "y", 0, NULL);
        assert_memory_equal(y, other, sizeof other);
        free(y);
        sl_port port;
        assert_fails(sl_stage_port(stage.stage, SL_PORT_PARAMETER,
                                   "rotary.table", &port),
                     SL_ENOTFOUND, "no parameter named 'rotary.table'");
        test_release(&stage);
        /* One name, one thing. */
        sl_parameter(graph, "rotary.table", SL_F32, SL_SHAPE(3));
        assert_fails(sl_graph_status(graph), SL_EINVAL,
                     "parameter: there is already one named 'rotary.table'");
        sl_graph_destroy(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uneven_microbatches_add_up_to_the_batch),
        cmocka_unit_test(a_size_is_compiled_once),
        cmocka_unit_test(sizes_that_change_more_than_shapes_are_refused),
        cmocka_unit_test(a_cut_like_another_takes_its_route),
        cmocka_unit_test(what_was_not_cut_cannot_be_cut_like),
        cmocka_unit_test(shared_memory_needs_the_same_parameters),
        cmocka_unit_test(buffers_hold_what_they_were_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
