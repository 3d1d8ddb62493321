/* SPDX-License-Identifier: MIT
 *
 * Checkpoints: a run resumed from one goes on as if nothing had happened, to
 * the bit on the layout that wrote it, closely on any other; damage is
 * found. */
#include "tensors.h"
#include "train/train.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEPS = 3, ROWS = 4, LENGTH = 6, VOCABULARY = 16 };

static char folder[TEST_FOLDER_MAX];

typedef struct layout {
    const char *schedule;
    sl_sizes sizes;
} layout;

/* What a run does: reads, steps, writes. */
typedef struct run {
    const layout *how;
    const sl_schedule *schedule;
    const char *from; /* a checkpoint; NULL: from the start */
    const char *to;   /* a folder; NULL: none is written */
    int first;        /* step */
    bool twice;       /* as many steps */
    sl_dtype dtype;   /* that the model is saved in */
    double losses[2 * STEPS];
} run;

static const sl_gpt2_config config = {.layers = 4,
                                      .heads = 2,
                                      .width = 8,
                                      .vocabulary = VOCABULARY,
                                      .positions = LENGTH,
                                      .epsilon = 1e-5,
                                      .tied = true};

static sl_status step(sl_pipeline *pipeline, int number, double *out)
{
    int64_t ids[ROWS * LENGTH], labels[ROWS * LENGTH];
    for (int i = 0; i < ROWS * LENGTH; i++) {
        ids[i] = (i * 7 + number * 5) % VOCABULARY;
        labels[i] = (i * 7 + 3 + number * 5) % VOCABULARY;
    }
    const sl_array arrays[] = {{SL_I64, 2, {ROWS, LENGTH}, ids},
                               {SL_I64, 2, {ROWS, LENGTH}, labels}};
    const sl_argument batch[] = {
        {"input_ids", SL_SPREAD_SPLIT, 0, &arrays[0], 1},
        {"labels", SL_SPREAD_SPLIT, 0, &arrays[1], 1}};
    sl_status status = sl_pipeline_step(pipeline, batch, 2, 0);
    return status ? status : sl_pipeline_loss(pipeline, out);
}

static sl_status run_rank(sl_comm *comm, void *context)
{
    run *own = context;
    sl_gpt2_model_spec model = {config, SL_GPT2_OPTIONS_INIT, LENGTH,
                                SL_CUT_OPTIONS_INIT, SL_F32};
    sl_pipeline_options options = SL_PIPELINE_OPTIONS_INIT;
    sl_optimizer_options how = SL_OPTIMIZER_OPTIONS_INIT;
    sl_pipeline *pipeline = NULL;
    sl_optimizer *optimizer = NULL;
    double losses[2 * STEPS] = {0};
    int steps = own->twice ? 2 * STEPS : STEPS;
    model.cut.by = SL_CUT_BY_COST;
    model.cut.inside = true;
    model.cut.stages = sl_schedule_extent(own->schedule).stages;
    options.schedule = own->schedule;
    options.share_losses = true;
    sl_status status =
        sl_pipeline_create(comm, sl_gpt2_model, &model, &options, &pipeline);
    if (!status)
        status = sl_pipeline_prepare(pipeline, ROWS);
    if (!status)
        status = sl_optimizer_create(pipeline, &how, &optimizer);
    if (!status)
        status = own->from ? sl_checkpoint_read(own->from, pipeline, optimizer)
                           : sl_pipeline_init_parameters(pipeline, sl_gpt2_init,
                                                         &config, 3);
    for (int i = 0; i < steps && !status; i++) {
        status = step(pipeline, own->first + i, &losses[i]);
        if (!status)
            status = sl_optimizer_step(optimizer, 0.01, NULL);
    }
    const sl_progress progress = {own->first + STEPS, 77, 3, NAN};
    if (!status && own->to)
        status = sl_checkpoint_write(pipeline, optimizer, &config, &progress,
                                     own->dtype, own->to);
    if (!status && sl_comm_rank(comm) == 0)
        memcpy(own->losses, losses, sizeof losses);
    sl_optimizer_destroy(optimizer);
    sl_pipeline_destroy(pipeline);
    return status;
}

static void go(run *own)
{
    sl_schedule *schedule;
    assert_ok(sl_generate(own->how->schedule, &own->how->sizes, &schedule));
    own->schedule = schedule;
    assert_ok(sl_threads_run(own->how->sizes.ranks, run_rank, own));
    sl_schedule_destroy(schedule);
}

static const layout layouts[] = {{"GPipe", {1, 1, 2}},
                                 {"1F1B", {2, 1, 4}},
                                 {"InterleavedZeroBubble", {2, 2, 2}},
                                 {"ZBVZeroBubble", {2, 2, 4}},
                                 {"1F1B", {4, 1, 4}}};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void a_run_goes_on_on_any_layout(void **state)
{
    (void)state;
    for (int a = 0; a < LAYOUTS; a++) {
        char to[300], from[320];
        snprintf(to, sizeof to, "%s/%d", folder, a);
        snprintf(from, sizeof from, "%s/step-00000003", to);
        run begin = {.how = &layouts[a], .to = to};
        go(&begin);
        run straight = {.how = &layouts[a], .to = to};
        sl_progress progress;
        assert_ok(sl_checkpoint_check(from, &progress));
        assert_int_equal(progress.step, 3);
        assert_int_equal(progress.sequences, 77);
        assert_int_equal(progress.seed, 3);
        assert_true(isnan(progress.validation));
        for (int b = 0; b < LAYOUTS; b++) {
            run on = {.how = &layouts[b], .from = from, .first = STEPS};
            go(&on);
            if (b == 0)
                straight = on;
            run again = {.how = &layouts[b], .from = from, .first = STEPS};
            go(&again);
            assert_memory_equal(on.losses, again.losses, sizeof on.losses);
            for (int i = 0; i < STEPS; i++)
                assert_true(fabs(on.losses[i] / straight.losses[i] - 1) < 1e-5);
        }
    }
}

/* Six steps at once, and three with a checkpoint between them: the same bits. */
static void lose_nothing_between(sl_dtype dtype)
{
    for (int a = 0; a < LAYOUTS; a++) {
        char to[300], from[320];
        snprintf(to, sizeof to, "%s/between%d%d", folder, a, (int)dtype);
        run begin = {.how = &layouts[a], .to = to, .dtype = dtype};
        go(&begin);
        snprintf(from, sizeof from, "%s/step-00000003", to);
        run second = {.how = &layouts[a],
                      .from = from,
                      .to = to,
                      .first = STEPS,
                      .dtype = dtype};
        go(&second);
        snprintf(from, sizeof from, "%s/step-00000006", to);
        run whole = {.how = &layouts[a], .twice = true};
        go(&whole);
        assert_memory_equal(whole.losses, begin.losses,
                            STEPS * sizeof *whole.losses);
        assert_memory_equal(whole.losses + STEPS, second.losses,
                            STEPS * sizeof *whole.losses);
        assert_true(second.losses[STEPS - 1] < begin.losses[0]);
        sl_weights *weights;
        assert_ok(sl_weights_open(from, &weights));
        assert_non_null(sl_weights_find(weights, "lm_head.weight"));
        assert_non_null(sl_weights_find(weights, "transformer.wte.weight"));
        assert_non_null(
            sl_weights_find(weights, "transformer.h.3.mlp.c_proj.bias"));
        assert_null(sl_weights_find(weights, "transformer.h.4.ln_1.bias"));
        sl_weights_close(weights);
    }
}

static void nothing_is_lost_between(void **state)
{
    (void)state;
    lose_nothing_between(SL_F32);
}

static void nothing_is_lost_beside_bf16(void **state)
{
    (void)state;
    lose_nothing_between(SL_BF16);
}

/* All numbers of a weight. */
static void *read_weight(const sl_weights *weights, const char *name,
                         sl_dtype dtype, size_t *out_count)
{
    const sl_safetensor *found = sl_weights_find(weights, name);
    assert_non_null(found);
    assert_int_equal(found->dtype, dtype);
    *out_count = found->bytes / sl_dtype_bytes(dtype);
    void *data = malloc(found->bytes);
    assert_ok(sl_safetensor_read(found, data));
    return data;
}

/* The same run saved in both: a model in bf16 is the f32 model, rounded, and
 * can be started from, without the states beside it, on any layout. */
static void models_are_saved_in_bf16(void **state)
{
    (void)state;
    static const char *const names[] = {
        "transformer.wte.weight", "lm_head.weight",
        "transformer.h.2.attn.c_attn.weight", "transformer.h.3.ln_2.bias"};
    for (int a = 0; a < 2; a++) {
        char to[300], wide[320], narrow[320];
        sl_weights *f32, *bf16;
        snprintf(to, sizeof to, "%s/wide%d", folder, a);
        snprintf(wide, sizeof wide, "%s/step-00000003", to);
        run first = {.how = &layouts[a], .to = to};
        go(&first);
        snprintf(to, sizeof to, "%s/narrow%d", folder, a);
        snprintf(narrow, sizeof narrow, "%s/step-00000003", to);
        run second = {.how = &layouts[a], .to = to, .dtype = SL_BF16};
        go(&second);
        assert_ok(sl_weights_open(wide, &f32));
        assert_ok(sl_weights_open(narrow, &bf16));
        for (int n = 0; n < 4; n++) {
            size_t count, same;
            float *x = read_weight(f32, names[n], SL_F32, &count);
            uint16_t *y = read_weight(bf16, names[n], SL_BF16, &same);
            assert_int_equal(count, same);
            for (size_t i = 0; i < count; i++) {
                uint32_t bits = (uint32_t)y[i] << 16;
                float rounded;
                memcpy(&rounded, &bits, sizeof rounded);
                assert_true(fabsf(rounded - x[i]) <= ldexpf(fabsf(x[i]), -8));
            }
            free(x);
            free(y);
        }
        sl_weights_close(f32);
        sl_weights_close(bf16);
        run on = {.how = &layouts[1 - a], .from = narrow, .first = STEPS};
        go(&on);
        run straight = {.how = &layouts[1 - a], .from = wide, .first = STEPS};
        go(&straight);
        assert_memory_equal(on.losses, straight.losses, sizeof on.losses);
    }
}

static void models_are_saved_in_two_dtypes(void **state)
{
    (void)state;
    char to[300];
    snprintf(to, sizeof to, "%s/f16", folder);
    run own = {.how = &layouts[0], .to = to, .dtype = SL_F16};
    sl_schedule *schedule;
    assert_ok(sl_generate(own.how->schedule, &own.how->sizes, &schedule));
    own.schedule = schedule;
    assert_fails(sl_threads_run(1, run_rank, &own), SL_EINVAL,
                 "saved in f32 or bf16, not in f16");
    sl_schedule_destroy(schedule);
}

static void tell(void *context, const char *sentence)
{
    (void)sentence;
    ++*(int *)context;
}

/* Every file of a checkpoint, with a byte changed or its end missing. */
static void damage_is_found(void **state)
{
    (void)state;
    char to[300], path[320], file[600];
    snprintf(to, sizeof to, "%s/damage", folder);
    run begin = {.how = &layouts[1], .to = to};
    go(&begin);
    snprintf(path, sizeof path, "%s/step-00000003", to);
    run second = {.how = &layouts[1], .from = path, .to = to, .first = STEPS};
    go(&second);
    snprintf(path, sizeof path, "%s/step-00000006", to);
    DIR *open = opendir(path);
    struct dirent *entry;
    int files = 0;
    while ((entry = readdir(open))) {
        sl_progress progress;
        size_t length;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        char *whole = test_read_file(file, &length);
        for (int way = 0; way < 8; way++) {
            size_t at = length * (size_t)way / 8;
            char *changed = malloc(length);
            memcpy(changed, whole, length);
            changed[at] ^= 1;
            FILE *out = fopen(file, "w");
            fwrite(changed, 1, way % 2 ? at : length, out);
            fclose(out);
            free(changed);
            /* Blanks do not count in JSON. */
            if (sl_checkpoint_check(path, &progress) == SL_OK &&
                !(strstr(file, "training") && strchr(" \n", whole[at] ^ 1)))
                fail_msg("%s: damage at %zu is not found", file, at);
        }
        int told = 0;
        char *found;
        assert_ok(sl_checkpoint_find(to, tell, &told, &found));
        assert_int_equal(told, 1);
        assert_non_null(strstr(found, "step-00000003"));
        free(found);
        FILE *out = fopen(file, "w");
        fwrite(whole, 1, length, out);
        fclose(out);
        free(whole);
        assert_ok(sl_checkpoint_check(path, &progress));
        files++;
    }
    closedir(open);
    /* Two a rank, two indices, config.json and training.json. */
    assert_int_equal(files, 8);
}

/* What cannot be read now may be sound: it is neither passed over nor renamed.
 * A folder where a file should be stands for a disk that fails. */
static void what_cannot_be_read_is_left_alone(void **state)
{
    (void)state;
    static const char *const names[] = {"training.json",
                                        "model.safetensors.index.json"};
    char to[300], file[500], away[520], *found = NULL;
    struct stat about;
    snprintf(to, sizeof to, "%s/unread", folder);
    run begin = {.how = &layouts[0], .to = to};
    go(&begin);
    begin.first = STEPS;
    go(&begin);
    for (int i = 0; i < 2; i++) {
        int told = 0;
        snprintf(file, sizeof file, "%s/step-%08d/%s", to, 2 * STEPS, names[i]);
        if (stat(file, &about))
            continue; /* One rank has no index. */
        snprintf(away, sizeof away, "%s.away", file);
        assert_int_equal(rename(file, away), 0);
        assert_int_equal(mkdir(file, 0700), 0);
        assert_int_equal(sl_checkpoint_find(to, tell, &told, &found), SL_EIO);
        assert_int_equal(told, 0);
        assert_int_equal(sl__checkpoint_set_aside(to, STEPS), SL_EIO);
        assert_int_equal(stat(file, &about), 0);
        rmdir(file);
        assert_int_equal(rename(away, file), 0);
    }
    /* Nor is one that is sound, and newer than what is asked for. */
    assert_fails(sl__checkpoint_set_aside(to, STEPS), SL_EINVAL,
                 "is newer than what the run goes on from, and sound");
    assert_ok(sl_checkpoint_find(to, NULL, NULL, &found));
    assert_non_null(strstr(found, "step-00000006"));
    free(found);
}

static void old_ones_go_and_the_best_stays(void **state)
{
    (void)state;
    char to[300], path[400], target[300];
    struct stat about;
    snprintf(to, sizeof to, "%s/prune", folder);
    run begin = {.how = &layouts[0], .to = to};
    for (int i = 0; i < 4; i++) {
        begin.first = i * STEPS;
        go(&begin);
    }
    snprintf(path, sizeof path, "%s/.step-00000099.partial", to);
    mkdir(path, 0700);
    assert_ok(sl_checkpoint_prune(to, 2));
    assert_int_not_equal(stat(path, &about), 0);
    static const int steps[] = {3, 6, 9, 12};
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/step-%08d", to, steps[i]);
        assert_int_equal(stat(path, &about) == 0, i >= 2);
    }
    snprintf(path, sizeof path, "%s/latest", to);
    ssize_t length = readlink(path, target, sizeof target - 1);
    assert_true(length > 0);
    target[length] = '\0';
    assert_string_equal(target, "step-00000012");
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    sl_weights *weights;
    sl_progress progress;
    char *found;
    assert_fails(sl_checkpoint_find("/nowhere/at/all", NULL, NULL, &found),
                 SL_ENOTFOUND, "cannot read the folder");
    assert_fails(sl_checkpoint_check("/nowhere/at/all", &progress), SL_EIO,
                 "training.json");
    assert_true(sl_weights_open("/nowhere/at/all", &weights) != SL_OK);
    run own = {.how = &layouts[0], .to = "/proc/no/such/place"};
    sl_schedule *schedule;
    assert_ok(sl_generate("GPipe", &layouts[0].sizes, &schedule));
    own.schedule = schedule;
    assert_fails(sl_threads_run(1, run_rank, &own), SL_EFAIL,
                 "cannot make the folder");
    sl_schedule_destroy(schedule);
}

static int set_up(void **state)
{
    (void)state;
    return test_make_folder(folder) ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    test_remove_folder(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_goes_on_on_any_layout),
        cmocka_unit_test(nothing_is_lost_between),
        cmocka_unit_test(nothing_is_lost_beside_bf16),
        cmocka_unit_test(models_are_saved_in_bf16),
        cmocka_unit_test(models_are_saved_in_two_dtypes),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(what_cannot_be_read_is_left_alone),
        cmocka_unit_test(old_ones_go_and_the_best_stays),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
