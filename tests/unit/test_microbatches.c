/* SPDX-License-Identifier: MIT
 *
 * Splitting batches and merging outputs: one is the inverse of the other. */
#include "pipeline/batch/batch.h"
#include "tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t bytes_of(const sl_array *array)
{
    size_t bytes = sl_dtype_bytes(array->dtype);
    for (int i = 0; i < array->dims; i++)
        bytes *= (size_t)array->shape[i];
    return bytes;
}

static sl_array random_array(uint64_t *random, int dim, int64_t rows)
{
    static const sl_dtype dtypes[] = {SL_F32, SL_F64, SL_I32, SL_I64, SL_BOOL};
    sl_array array = {.dtype = dtypes[test_random_int(random, 0, 4)]};
    array.dims = test_random_int(random, dim + 1, SL_DIMS_MAX);
    for (int i = 0; i < array.dims; i++)
        array.shape[i] = i == dim ? rows : test_random_int(random, 1, 4);
    unsigned char *data = malloc(bytes_of(&array));
    for (size_t i = 0; i < bytes_of(&array); i++)
        data[i] = (unsigned char)test_random_int(random, 0, 255);
    array.data = data;
    return array;
}

/* The element-wise truth of a slice, by indices. */
static void assert_slice(const sl_array *whole, int dim, int64_t first,
                         const sl_array *part, const unsigned char *data)
{
    size_t size = sl_dtype_bytes(whole->dtype);
    size_t count = bytes_of(part) / size;
    for (size_t i = 0; i < count; i++) {
        size_t rest = i, at = 0, stride = 1;
        for (int d = whole->dims; d-- > 0;) {
            size_t index = rest % (size_t)part->shape[d];
            rest /= (size_t)part->shape[d];
            at += (index + (d == dim ? (size_t)first : 0)) * stride;
            stride *= (size_t)whole->shape[d];
        }
        assert_memory_equal(data + i * size,
                            (const unsigned char *)whole->data + at * size,
                            size);
    }
}

static void rows_are_those_of_tensor_split(void **state)
{
    (void)state;
    const int64_t expected[] = {2, 2, 1, 1};
    for (int i = 0; i < 4; i++)
        assert_int_equal(sl_microbatch_rows(6, 4, i), expected[i]);
    for (int64_t rows = 1; rows < 40; rows++) {
        for (int count = 1; count <= rows; count++) {
            int64_t sum = 0;
            for (int i = 0; i < count; i++) {
                int64_t own = sl_microbatch_rows(rows, count, i);
                assert_true(own == rows / count || own == rows / count + 1);
                assert_true(i == 0 ||
                            own <= sl_microbatch_rows(rows, count, i - 1));
                sum += own;
            }
            assert_int_equal(sum, rows);
        }
    }
}

/* Any shape, dimension, count and spread: merged, it is what it was; and each
 * part is what the indices say. */
static void splitting_then_merging_is_the_identity(void **state)
{
    (void)state;
    uint64_t random = 17;
    for (int round = 0; round < 3000; round++) {
        enum { MOST = 4 };
        int count = test_random_int(&random, 1, MOST);
        int64_t rows = test_random_int(&random, 1, 9);
        int microbatches = test_random_int(&random, 1, (int)rows);
        sl_argument arguments[MOST];
        sl_array arrays[MOST], split[MOST][9];
        for (int i = 0; i < count; i++) {
            sl_argument init = SL_ARGUMENT_INIT;
            int dim = test_random_int(&random, 0, 3);
            arrays[i] = random_array(&random, dim, rows);
            arguments[i] = init;
            arguments[i].dim =
                test_random_int(&random, 0, 1) ? dim : dim - arrays[i].dims;
            arguments[i].spread = test_random_int(&random, 0, 2)
                                      ? SL_SPREAD_SPLIT
                                      : SL_SPREAD_REPLICATE;
            arguments[i].arrays = &arrays[i];
        }
        sl_batch *batch;
        assert_ok(
            sl_batch_create(NULL, arguments, count, microbatches, &batch));
        for (int i = 0; i < count; i++) {
            bool is_split = arguments[i].spread == SL_SPREAD_SPLIT;
            int dim = (arguments[i].dim + arrays[i].dims) % arrays[i].dims;
            sl_merge_options options = {
                is_split ? SL_MERGE_CONCAT : SL_MERGE_SAME, arguments[i].dim};
            bool outermost = true;
            for (int d = 0; d < dim; d++)
                outermost &= arrays[i].shape[d] == 1;
            for (int m = 0; m < microbatches; m++) {
                assert_ok(sl_batch_part(batch, i, m, &split[i][m]));
                /* Nothing is copied where it need not be. */
                if (outermost || !is_split)
                    assert_non_null(split[i][m].data);
            }
            sl_merge *merge;
            assert_ok(sl_merge_create(&options, split[i], NULL, microbatches,
                                      &merge));
            int64_t first = is_split ? rows : 0;
            for (int m = microbatches; m-- > 0;) {
                size_t bytes = bytes_of(&split[i][m]);
                unsigned char *data = malloc(bytes);
                assert_ok(sl_batch_copy(batch, i, m, data, bytes));
                if (is_split)
                    first -= sl_batch_rows(batch, m);
                assert_slice(&arrays[i], dim, first, &split[i][m], data);
                if (split[i][m].data)
                    assert_memory_equal(split[i][m].data, data, bytes);
                void *place = sl_merge_place(merge, m);
                if (outermost || !is_split)
                    assert_non_null(place);
                if (place && round % 2) {
                    memcpy(place, data, bytes);
                    assert_ok(sl_merge_put(merge, m, place, bytes));
                } else {
                    assert_ok(sl_merge_put(merge, m, data, bytes));
                }
                free(data);
            }
            sl_array whole;
            assert_ok(sl_merge_finish(merge, &whole));
            assert_int_equal(whole.dims, arrays[i].dims);
            assert_memory_equal(whole.shape, arrays[i].shape,
                                sizeof *whole.shape * (size_t)whole.dims);
            assert_memory_equal(whole.data, arrays[i].data,
                                bytes_of(&arrays[i]));
            sl_merge_destroy(merge);
        }
        sl_batch_destroy(batch);
        for (int i = 0; i < count; i++)
            free((void *)arrays[i].data);
    }
}

static void zero_copy_points_into_the_caller(void **state)
{
    (void)state;
    float data[6 * 2];
    sl_array array = {SL_F32, 2, {6, 2}, data};
    sl_argument argument = SL_ARGUMENT_INIT;
    sl_batch *batch;
    argument.arrays = &array;
    assert_ok(sl_batch_create(NULL, &argument, 1, 4, &batch));
    const int first[] = {0, 2, 4, 5};
    for (int m = 0; m < 4; m++) {
        sl_array part;
        assert_ok(sl_batch_part(batch, 0, m, &part));
        assert_ptr_equal(part.data, data + first[m] * 2);
    }
    assert_int_equal(sl_batch_microbatches(batch), 4);
    sl_batch_destroy(batch);
}

static void arguments_may_come_split(void **state)
{
    (void)state;
    float data[6] = {0, 1, 2, 3, 4, 5}, whole[6];
    sl_array parts[3] = {{SL_F32, 1, {3}, data},
                         {SL_F32, 1, {1}, data + 3},
                         {SL_F32, 1, {2}, data + 4}};
    sl_argument argument = {"x", SL_SPREAD_GIVEN, 0, parts, 3};
    sl_batch *batch;
    assert_ok(sl_batch_create(NULL, &argument, 1, 3, &batch));
    for (int m = 0; m < 3; m++)
        assert_int_equal(sl_batch_rows(batch, m), parts[m].shape[0]);
    sl_array part;
    assert_ok(sl_batch_part(batch, 0, 1, &part));
    assert_ptr_equal(part.data, data + 3);
    assert_ok(sl_batch_copy(batch, 0, 2, whole, 2 * sizeof *whole));
    assert_true(whole[1] == 5);
    sl_batch_destroy(batch);
    argument.array_count = 2;
    assert_fails(sl_batch_create(NULL, &argument, 1, 3, &batch), SL_EINVAL,
                 "argument 'x' comes in 2 arrays, expected 3");
    parts[2].dims = 2;
    parts[2].shape[1] = 1;
    argument.array_count = 3;
    assert_fails(sl_batch_create(NULL, &argument, 1, 3, &batch), SL_EINVAL,
                 "argument 'x': microbatch 2 is f32 (2, 1), expected f32");
}

/* ------------------------------------------------------------- the model -- */

/* Inputs x (4, 3) of f32 and ids (4) of i64. */
static sl_model *small_model(void)
{
    sl_graph *graph;
    sl_model *model;
    assert_ok(sl_graph_create(&graph));
    sl_tensor *x = sl_input(graph, "x", SL_F32, SL_SHAPE(4, 3), SL_NO_GRADIENT);
    sl_tensor *ids =
        sl_input(graph, "ids", SL_I64, SL_SHAPE(4), SL_NO_GRADIENT);
    sl_tensor *h = sl_relu(x);
    sl_mark_cut(graph);
    sl_tensor *table = sl_parameter(graph, "table", SL_F32, SL_SHAPE(5, 3));
    sl_output(graph, "y", sl_add(h, sl_embedding(table, ids)), SL_NO_GRADIENT);
    assert_ok(sl_model_cut(graph, NULL, &model));
    sl_graph_destroy(graph);
    return model;
}

static void wrong_arguments_are_refused_in_a_sentence(void **state)
{
    (void)state;
    sl_model *model = small_model();
    static const float x[8 * 3];
    static const int64_t ids[8];
    const sl_array good_x = {SL_F32, 2, {8, 3}, x};
    const sl_array good_ids = {SL_I64, 1, {8}, ids};
    const sl_array wide = {SL_F32, 2, {8, 2}, x};
    const sl_array flat = {SL_F32, 1, {8}, x};
    const sl_array narrow_ids = {SL_I32, 1, {8}, ids};
    const sl_array few_ids = {SL_I64, 1, {7}, ids};
    const sl_array empty = {SL_F32, 2, {0, 3}, x};
    const sl_array no_type = {(sl_dtype)9, 1, {8}, x};
    const sl_array deep = {SL_F32, 7, {1}, x};
    const struct {
        sl_argument arguments[3];
        int count, microbatches;
        const char *expected;
    } cases[] = {
        {{{NULL, 0, 0, &good_x, 1}}, 1, 4, "input 'ids' is not given"},
        {{{NULL, 0, 0, &good_x, 1},
          {NULL, 0, 0, &good_ids, 1},
          {NULL, 0, 0, &good_ids, 1}},
         3,
         4,
         "3 arguments, and the model has 2 inputs"},
        {{{"ids", 0, 0, &good_ids, 1}, {NULL, 0, 0, &good_x, 1}},
         2,
         4,
         "argument 1 has no name and comes after one that has"},
        {{{NULL, 0, 0, &good_x, 1}, {"x", 0, 0, &good_x, 1}},
         2,
         4,
         "input 'x' is given twice"},
        {{{NULL, 0, 0, &good_x, 1}, {"labels", 0, 0, &good_ids, 1}},
         2,
         4,
         "the model has no input 'labels'; it has x, ids"},
        {{{NULL, 0, 0, &wide, 1}, {NULL, 0, 0, &good_ids, 1}},
         2,
         4,
         "stage 0: input 'x' is f32 (8, 2), expected f32 (8, 3)"},
        {{{NULL, 0, 0, &flat, 1}, {NULL, 0, 0, &good_ids, 1}},
         2,
         4,
         "stage 0: input 'x' is f32 (8), expected f32 (4, 3)"},
        {{{NULL, 0, 0, &good_x, 1}, {NULL, 0, 0, &narrow_ids, 1}},
         2,
         4,
         "stage 1: input 'ids' is i32 (8), expected i64 (8)"},
        {{{NULL, 0, 0, &good_x, 1}, {NULL, 0, 0, &few_ids, 1}},
         2,
         4,
         "argument 'ids' has 1 rows in microbatch 3, expected 2 as "
         "argument 'x' has"},
        {{{NULL, 0, 0, &good_x, 1}, {NULL, 0, 0, &good_ids, 1}},
         2,
         9,
         "argument 'x' has 8 rows in dimension 0, fewer than the 9 "
         "microbatches"},
        {{{NULL, 0, 0, &good_x, 1}, {NULL, 0, 0, &good_ids, 1}},
         2,
         0,
         "0 microbatches, expected 1 to"},
        {{{NULL, 0, 2, &good_x, 1}, {NULL, 0, 0, &good_ids, 1}},
         2,
         4,
         "argument 'x' is f32 (8, 3) and has no dimension 2 to be split "
         "along"},
        {{{NULL, 0, -3, &good_x, 1}, {NULL, 0, 0, &good_ids, 1}},
         2,
         4,
         "no dimension -3"},
        {{{NULL, SL_SPREAD_REPLICATE, 0, &good_x, 1},
          {NULL, 0, 0, &good_ids, 1}},
         2,
         4,
         "stage 0: input 'x' is f32 (8, 3), expected f32 (4, 3)"},
        {{{NULL, 0, 0, &empty, 1}, {NULL, 0, 0, &good_ids, 1}},
         2,
         4,
         "argument 'x': size 0 in dimension 0"},
        {{{NULL, 0, 0, &no_type, 1}, {NULL, 0, 0, &good_ids, 1}},
         2,
         4,
         "argument 'x': dtype 9 does not exist"},
        {{{NULL, 0, 0, &deep, 1}, {NULL, 0, 0, &good_ids, 1}},
         2,
         4,
         "argument 'x': 7 dimensions"},
        {{{NULL, 0, 0, NULL, 1}, {NULL, 0, 0, &good_ids, 1}},
         2,
         4,
         "argument 'x' comes in 0 arrays, expected 1"},
        {{{NULL, (sl_spread)5, 0, &good_x, 1}, {NULL, 0, 0, &good_ids, 1}},
         2,
         4,
         "argument 'x': there is no way 5 to spread it"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sl_batch *batch = NULL;
        sl_status status =
            sl_batch_create(model, cases[i].arguments, cases[i].count,
                            cases[i].microbatches, &batch);
        assert_null(batch);
        assert_true(status == SL_EINVAL || status == SL_ENOTFOUND);
        if (!strstr(sl_error_text(), cases[i].expected))
            fail_msg("case %zu: '%s', expected '%s'", i, sl_error_text(),
                     cases[i].expected);
    }
    sl_model_destroy(model);
}

static void arguments_are_found_by_input(void **state)
{
    (void)state;
    sl_model *model = small_model();
    static const float x[8 * 3];
    static const int64_t ids[8];
    const sl_array x_array = {SL_F32, 2, {8, 3}, x};
    const sl_array ids_array = {SL_I64, 1, {8}, ids};
    const sl_argument arguments[] = {{"ids", SL_SPREAD_SPLIT, 0, &ids_array, 1},
                                     {"x", SL_SPREAD_SPLIT, 0, &x_array, 1}};
    sl_batch *batch;
    assert_ok(sl_batch_create(model, arguments, 2, 2, &batch));
    assert_int_equal(sl_batch_find(batch, "x"), 1);
    assert_int_equal(sl_batch_find(batch, "ids"), 0);
    assert_int_equal(sl_batch_find(batch, "y"), -1);
    sl_array part;
    float out[12];
    assert_fails(sl_batch_part(batch, 2, 0, &part), SL_EINVAL,
                 "argument 2, expected 0 to 1");
    assert_fails(sl_batch_part(batch, 0, 2, &part), SL_EINVAL,
                 "microbatch 2, expected 0 to 1");
    assert_fails(sl_batch_copy(batch, 1, 0, out, 3), SL_EINVAL,
                 "argument 'x' has 48 bytes in microbatch 0, found 3");
    assert_int_equal(sl_batch_rows(batch, 7), 0);
    sl_batch_destroy(batch);
    sl_model_destroy(model);
}

static void next_step_brings_data_of_the_same_shapes(void **state)
{
    (void)state;
    static const float x[8 * 3], next_x[8 * 3];
    sl_array array = {SL_F32, 2, {8, 3}, x};
    sl_argument argument = {"x", SL_SPREAD_SPLIT, -2, &array, 1}, other;
    sl_array part;
    sl_batch *batch;
    assert_ok(sl_batch_create(NULL, &argument, 1, 2, &batch));
    array.data = next_x;
    assert_true(sl__batch_reuse(batch, &argument, 1));
    assert_ok(sl_batch_part(batch, 0, 0, &part));
    assert_ptr_equal(part.data, next_x);
    array.data = x;
    assert_false(sl__batch_reuse(NULL, &argument, 1));
    assert_false(sl__batch_reuse(batch, &argument, 0));
    for (int i = 0; i < 6; i++) {
        other = argument;
        array = (sl_array){i == 0 ? SL_F64 : SL_F32, 2, {8, i == 1 ? 4 : 3}, x};
        other.name = i == 2 ? "y" : i == 3 ? NULL : "x";
        other.spread = i == 4 ? SL_SPREAD_REPLICATE : SL_SPREAD_SPLIT;
        other.dim = i == 5 ? 0 : -2; /* The same, said in another way. */
        assert_false(sl__batch_reuse(batch, &other, 1));
    }
    assert_ok(sl_batch_part(batch, 0, 0, &part));
    assert_ptr_equal(part.data, next_x);
    sl_batch_destroy(batch);
}

/* ---------------------------------------------------------------- merging -- */

static void sums_and_means_do_not_depend_on_order(void **state)
{
    (void)state;
    const float losses[] = {1, 2, 4, 16777216};
    const int64_t rows[] = {3, 2, 2, 1};
    sl_array parts[4], out;
    for (int i = 0; i < 4; i++)
        parts[i] = (sl_array){SL_F32, 0, {0}, NULL};
    for (int by = 0; by < 2; by++) {
        for (int turn = 0; turn < 3; turn++) {
            sl_merge_options options = {by ? SL_MERGE_MEAN : SL_MERGE_SUM, 0};
            sl_merge *merge;
            assert_ok(sl_merge_create(&options, parts, turn == 2 ? NULL : rows,
                                      4, &merge));
            for (int round = 0; round < 2; round++) {
                for (int i = 0; i < 4; i++) {
                    int m = turn ? 3 - i : i;
                    assert_ok(sl_merge_put(merge, m, &losses[m], 4));
                }
                assert_ok(sl_merge_finish(merge, &out));
                double sum = 16777223, weighted = 3 + 4 + 8 + 16777216;
                float expected = (float)(by == 0     ? sum
                                         : turn == 2 ? sum / 4
                                                     : weighted / 8);
                assert_true(*(const float *)out.data == expected);
            }
            sl_merge_destroy(merge);
        }
    }
}

static void integers_are_summed(void **state)
{
    (void)state;
    const int32_t a[] = {-5, INT32_MAX};
    const int32_t b[] = {7, -1};
    const sl_array parts[] = {{SL_I32, 1, {2}, NULL}, {SL_I32, 1, {2}, NULL}};
    const sl_merge_options options = {SL_MERGE_SUM, 0};
    sl_merge *merge;
    sl_array out;
    assert_ok(sl_merge_create(&options, parts, NULL, 2, &merge));
    assert_ok(sl_merge_put(merge, 1, b, sizeof b));
    assert_ok(sl_merge_put(merge, 0, a, sizeof a));
    assert_ok(sl_merge_finish(merge, &out));
    assert_int_equal(((const int32_t *)out.data)[0], 2);
    assert_int_equal(((const int32_t *)out.data)[1], INT32_MAX - 1);
    sl_merge_destroy(merge);
}

static void a_list_keeps_each(void **state)
{
    (void)state;
    const float a[] = {1, 2}, b[] = {3};
    const sl_array parts[] = {{SL_F32, 1, {2}, NULL}, {SL_F32, 1, {1}, NULL}};
    const sl_merge_options options = {SL_MERGE_LIST, 0};
    sl_merge *merge;
    sl_array out;
    assert_ok(sl_merge_create(&options, parts, NULL, 2, &merge));
    assert_ok(sl_merge_put(merge, 1, b, sizeof b));
    assert_fails(sl_merge_part(merge, 0, &out), SL_EINVAL,
                 "microbatch 0 has given nothing yet");
    assert_ok(sl_merge_put(merge, 0, a, sizeof a));
    assert_ok(sl_merge_part(merge, 0, &out));
    assert_memory_equal(out.data, a, sizeof a);
    assert_ok(sl_merge_part(merge, 1, &out));
    assert_memory_equal(out.data, b, sizeof b);
    assert_fails(sl_merge_finish(merge, &out), SL_EINVAL,
                 "a list has no whole");
    sl_merge_destroy(merge);
}

static void wrong_merges_are_refused(void **state)
{
    (void)state;
    const sl_array rows = {SL_F32, 2, {2, 3}, NULL};
    const sl_array other = {SL_F32, 2, {2, 4}, NULL};
    const sl_array flags = {SL_BOOL, 1, {2}, NULL};
    const sl_array whole = {SL_I64, 1, {2}, NULL};
    const sl_array huge = {SL_I64, 1, {INT64_MAX / 8}, NULL};
    const struct {
        sl_merge_options options;
        sl_array parts[2];
        int64_t rows[2];
        int count;
        const char *expected;
    } cases[] = {
        {{SL_MERGE_CONCAT, 0},
         {rows, other},
         {1, 1},
         2,
         "microbatch 1 gives f32 (2, 4), expected f32 (2, 3)"},
        {{SL_MERGE_SUM, 0}, {rows, other}, {1, 1}, 2, "microbatch 1 gives"},
        {{SL_MERGE_CONCAT, 2}, {rows, rows}, {1, 1}, 2, "has no dimension 2"},
        {{SL_MERGE_MEAN, 0},
         {whole, whole},
         {1, 1},
         2,
         "a mean is of floats, found i64"},
        {{SL_MERGE_SUM, 0},
         {flags, flags},
         {1, 1},
         2,
         "a sum is of numbers, found bool"},
        {{SL_MERGE_MEAN, 0},
         {rows, rows},
         {1, 0},
         2,
         "microbatch 1 has 0 rows"},
        {{SL_MERGE_SUM, 0}, {huge, huge}, {1, 1}, 2, "what memory holds"},
        {{(sl_merge_by)8, 0}, {rows, rows}, {1, 1}, 2, "no way 8 to merge"},
        {{SL_MERGE_SUM, 0}, {rows, rows}, {1, 1}, 0, "0 microbatches"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sl_merge *merge;
        assert_fails(sl_merge_create(&cases[i].options, cases[i].parts,
                                     cases[i].rows, cases[i].count, &merge),
                     SL_EINVAL, cases[i].expected);
    }
    sl_merge_options same = {SL_MERGE_SAME, 0};
    sl_merge *merge;
    sl_array out;
    const float data[6] = {0}, changed[6] = {0, 1};
    assert_ok(
        sl_merge_create(&same, (sl_array[]){rows, rows}, NULL, 2, &merge));
    assert_fails(sl_merge_put(merge, 2, data, sizeof data), SL_EINVAL,
                 "microbatch 2, expected 0 to 1");
    assert_fails(sl_merge_put(merge, 0, data, 4), SL_EINVAL,
                 "microbatch 0 gives 24 bytes, found 4");
    assert_ok(sl_merge_put(merge, 0, data, sizeof data));
    assert_fails(sl_merge_put(merge, 0, data, sizeof data), SL_EINVAL,
                 "microbatch 0 is there already");
    assert_fails(sl_merge_finish(merge, &out), SL_EINVAL,
                 "microbatch 1 has given nothing yet");
    /* A step that failed half way is forgotten. */
    sl_merge_restart(merge);
    assert_ok(sl_merge_put(merge, 0, data, sizeof data));
    assert_ok(sl_merge_put(merge, 1, changed, sizeof changed));
    assert_fails(sl_merge_finish(merge, &out), SL_EINVAL,
                 "microbatch 1 differs from microbatch 0");
    sl_merge_destroy(merge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_tensor_split),
        cmocka_unit_test(splitting_then_merging_is_the_identity),
        cmocka_unit_test(zero_copy_points_into_the_caller),
        cmocka_unit_test(arguments_may_come_split),
        cmocka_unit_test(wrong_arguments_are_refused_in_a_sentence),
        cmocka_unit_test(arguments_are_found_by_input),
        cmocka_unit_test(next_step_brings_data_of_the_same_shapes),
        cmocka_unit_test(sums_and_means_do_not_depend_on_order),
        cmocka_unit_test(integers_are_summed),
        cmocka_unit_test(a_list_keeps_each),
        cmocka_unit_test(wrong_merges_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
