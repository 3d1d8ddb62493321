/* SPDX-License-Identifier: MIT
 *
 * Writing a checkpoint: every rank its files, then the first what is around
 * them, and the rename. */
#include "train/checkpoint.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/try.h"
#include "pipeline/run/runtime.h"
#include "tensor/program.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* -------------------------------------------------------- a rank's files -- */

/* What a rank tells the first of a file that it wrote. */
typedef struct written {
    char name[64];
    int64_t bytes;
    uint64_t sum;
} written;

/* Both files of a rank; a status, so that all know. */
typedef struct share {
    written files[2]; /* model, optimizer */
    int64_t status;
    char why[300];
} share;

static void name_file(const char *stem, int rank, int ranks, char *out,
                      size_t size)
{
    if (ranks == 1)
        snprintf(out, size, "%s.safetensors", stem);
    else
        snprintf(out, size, "%s-%05d-of-%05d.safetensors", stem, rank + 1,
                 ranks);
}

/* Tensors being collected, with names and data of their own. */
typedef struct collection {
    sl__arena arena;
    sl_safetensor *tensors;
    size_t count;
    size_t capacity;
} collection;

/* Where the bytes of a tensor are: in memory of a device, or, of callbacks,
 * copied out. */
typedef struct source {
    sl__stream *stream;
    const char *data;
} source;

static sl_status read_source(void *context, size_t first, void *out,
                             size_t bytes)
{
    const source *from = context;
    return sl__device_read(from->stream, out, from->data + first, bytes);
}

/* A source that is there as long as the collection. */
static sl_status add_source(collection *c, sl__stream *stream, const void *data,
                            source **out)
{
    SL__TRY(sl__arena_take(&c->arena, 1, sizeof **out, out));
    **out = (source){stream, data};
    return SL_OK;
}

static sl_status collect(collection *c, const char *name, const sl_port *port,
                         source *from)
{
    const char *kept;
    sl_status status =
        sl__grow(&c->tensors, &c->capacity, c->count + 1, sizeof *c->tensors);
    if (!status)
        status = sl__arena_text(&c->arena, name, strlen(name), &kept);
    if (status)
        return status;
    sl_safetensor *new = &c->tensors[c->count++];
    *new = (sl_safetensor){.name = kept,
                           .dtype = port->dtype,
                           .dims = port->dims,
                           .read = read_source,
                           .context = from,
                           .bytes = (size_t)port->bytes};
    memcpy(new->shape, port->shape, sizeof new->shape);
    return SL_OK;
}

static void clear(collection *c)
{
    free(c->tensors);
    sl__arena_clear(&c->arena);
}

/* Whether a stage has this name for a parameter. */
static bool has_name(const sl_stage *stage, const sl_port *port,
                     const char *name)
{
    const sl__names *names = &stage->graph->parameters;
    const sl__named *found = sl__find_name(names, name);
    return found && found->tensor->leaf_index == port->index;
}

typedef struct collecting {
    collection *into;
    const sl_model *model;
} collecting;

/* A parameter of callbacks, which they copy out. */
static sl_status copy_out(collection *c, const sl__parameter *own, source *out)
{
    char *data;
    size_t bytes = (size_t)own->port.bytes;
    SL__TRY(sl__arena_take(&c->arena, bytes, 1, &data));
    *out = (source){&sl__host, data};
    return sl_memory_read(own->memory, &own->port, 0, data, bytes);
}

/* A parameter under all of its names, as a state dict has it: those that its
 * stage has, and those that others have. */
static sl_status collect_parameter(void *context, const sl__parameter *own)
{
    const collecting *how = context;
    const sl_port *port = &own->port;
    bool first;
    const sl_tie *tie =
        sl__find_tie(how->model, own->stage, port->name, &first);
    collection *c = how->into;
    source *from;
    if (!first)
        return SL_OK;
    /* Where it lies: a copy of the model is memory that nobody planned. */
    SL__TRY(add_source(c, sl__memory_stream(own->memory),
                       sl__port_memory(own->memory, port, 0), &from));
    if (!from->data)
        SL__TRY(copy_out(c, own, from));
    const sl__names *names = &own->program_stage->graph->parameters;
    for (size_t i = 0; i < names->count; i++) {
        if (names->data[i].tensor->leaf_index == port->index)
            SL__TRY(collect(c, names->data[i].name, port, from));
    }
    for (int i = 0; tie && i < tie->name_count; i++) {
        if (!has_name(own->program_stage, port, tie->names[i]))
            SL__TRY(collect(c, tie->names[i], port, from));
    }
    return SL_OK;
}

static sl_status collect_model(collection *c, const sl_pipeline *pipeline)
{
    collecting how = {c, sl_pipeline_model(pipeline)};
    return sl__each_parameter(pipeline, SL_PORT_PARAMETER, collect_parameter,
                              &how);
}

static sl_status collect_optimizer(collection *c, const sl_optimizer *optimizer)
{
    for (int i = 0; i < sl__optimizer_state_count(optimizer); i++) {
        const sl__optimizer_state *state = sl__optimizer_state_at(optimizer, i);
        char name[512];
        source *from;
        snprintf(name, sizeof name, "%s.%s", state->kind, state->parameter);
        if (!state->first)
            continue;
        SL__TRY(add_source(c, state->stream, state->data, &from));
        SL__TRY(collect(c, name, &state->port, from));
    }
    return SL_OK;
}

static sl_status check_tensor(const sl_safetensor *own)
{
    _Alignas(double) char piece[1 << 14];
    for (size_t at = 0; at < own->bytes; at += sizeof piece) {
        size_t left = own->bytes - at;
        size_t now = left < sizeof piece ? left : sizeof piece;
        SL__TRY(own->read(own->context, at, piece, now));
        if (!sl__is_finite(own->dtype, piece, now))
            return sl_fail(SL_EFAIL,
                           "'%.100s' has numbers that are not finite: nothing "
                           "is saved",
                           own->name);
    }
    return SL_OK;
}

/* What is not finite is never written: it might take the place of what was good. */
static sl_status check_finite(const collection *c)
{
    for (size_t i = 0; i < c->count; i++)
        SL__TRY(check_tensor(&c->tensors[i]));
    return SL_OK;
}

/* Writes a collection, and notes what became of it. */
static sl_status write_collection(const collection *c, const char *folder,
                                  written *out)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    char *path = sl__join_path(folder, out->name);
    if (!path)
        return sl_fail(SL_ENOMEM, "out of memory");
    sl_status status =
        sl_safetensors_write(path, c->tensors, c->count, metadata);
    if (!status)
        status = sl__sum_file(path, &out->bytes, &out->sum);
    free(path);
    return status;
}

static sl_status write_share(const sl_pipeline *pipeline,
                             const sl_optimizer *optimizer, const char *folder,
                             share *out)
{
    collection model = {0}, state = {0};
    name_file("model", pipeline->rank, pipeline->ranks, out->files[0].name,
              sizeof out->files[0].name);
    name_file("optimizer", pipeline->rank, pipeline->ranks, out->files[1].name,
              sizeof out->files[1].name);
    sl_status status = collect_model(&model, pipeline);
    if (!status)
        status = collect_optimizer(&state, optimizer);
    if (!status)
        status = check_finite(&model);
    if (!status)
        status = check_finite(&state);
    if (!status)
        status = write_collection(&model, folder, &out->files[0]);
    if (!status)
        status = write_collection(&state, folder, &out->files[1]);
    clear(&model);
    clear(&state);
    return status;
}

/* ------------------------------------------------------------------ JSON -- */

static sl_status write_json(const json_t *root, const char *folder,
                            const char *name)
{
    char *path = sl__join_path(folder, name);
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS);
    sl_status status = path && text ? sl__write_file(path, text, strlen(text))
                                    : sl_fail(SL_ENOMEM, "out of memory");
    free(path);
    free(text);
    return status;
}

/* Which file has which tensor, as Hugging Face tells it. */
static sl_status write_index(const share *shares, int ranks, int which,
                             const char *folder, const char *name)
{
    json_t *map = json_object();
    int64_t total = 0;
    sl_status status = map ? SL_OK : sl_fail(SL_ENOMEM, "out of memory");
    for (int r = 0; r < ranks && !status; r++) {
        const char *file = shares[r].files[which].name;
        char *path = sl__join_path(folder, file);
        sl_safetensors *tensors = NULL;
        status = path ? sl_safetensors_open(path, &tensors)
                      : sl_fail(SL_ENOMEM, "out of memory");
        size_t count = status ? 0 : sl_safetensors_count(tensors);
        for (size_t i = 0; i < count; i++) {
            const sl_safetensor *tensor = sl_safetensors_at(tensors, i);
            json_object_set_new(map, tensor->name, json_string(file));
            total += (int64_t)tensor->bytes;
        }
        sl_safetensors_close(tensors);
        free(path);
    }
    json_t *root = json_pack("{s:{s:I}, s:o}", "metadata", "total_size",
                             (json_int_t)total, "weight_map", map);
    if (!status)
        status = write_json(root, folder, name);
    json_decref(root);
    return status;
}

static void add_sum(json_t *files, const char *name, int64_t bytes,
                    uint64_t sum)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, sum);
    json_object_set_new(
        files, name,
        json_pack("{s:I, s:s}", "bytes", (json_int_t)bytes, "sum", text));
}

/* The files around the ranks'. */
static sl_status add_rest(json_t *files, const char *folder)
{
    static const char *const names[] = {"config.json",
                                        "model.safetensors.index.json",
                                        "optimizer.safetensors.index.json"};
    sl_status status = SL_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && !status; i++) {
        char *path = sl__join_path(folder, names[i]);
        int64_t bytes;
        uint64_t sum;
        if (!path)
            status = sl_fail(SL_ENOMEM, "out of memory");
        else if (access(path, F_OK) == 0)
            status = sl__sum_file(path, &bytes, &sum);
        if (!status && access(path, F_OK) == 0)
            add_sum(files, names[i], bytes, sum);
        free(path);
    }
    return status;
}

static sl_status write_training(const share *shares, int ranks,
                                const sl_optimizer *optimizer,
                                const sl_progress *progress, const char *folder)
{
    char text[32], sum[17];
    json_t *files = json_object();
    for (int i = 0; i < 2 * ranks; i++) {
        const written *file = &shares[i / 2].files[i % 2];
        add_sum(files, file->name, file->bytes, file->sum);
    }
    sl_status status = add_rest(files, folder);
    snprintf(text, sizeof text, "%" PRIu64, progress->seed);
    json_t *root = json_pack(
        "{s:i, s:I, s:I, s:s, s:o, s:I, s:o}", "version",
        SL__CHECKPOINT_VERSION, "step", (json_int_t)progress->step, "sequences",
        (json_int_t)progress->sequences, "seed", text, "validation",
        isfinite(progress->validation) ? json_real(progress->validation)
                                       : json_null(),
        "optimizer_steps", (json_int_t)sl_optimizer_steps(optimizer), "files",
        files);
    if (!status)
        status = root ? sl__sum_json(root, sum)
                      : sl_fail(SL_ENOMEM, "out of memory");
    if (!status)
        json_object_set_new(root, "sum", json_string(sum));
    if (!status)
        status = write_json(root, folder, "training.json");
    json_decref(root);
    return status;
}

/* --------------------------------------------------------------- writing -- */

static sl_status write_config(const sl_gpt2_config *config, const char *folder)
{
    sl_string text = SL_STRING_INIT;
    char *path = sl__join_path(folder, "config.json");
    sl_status status =
        path ? sl_gpt2_write_config(config, sl_write_string, &text)
             : sl_fail(SL_ENOMEM, "out of memory");
    if (!status)
        status = sl__write_file(path, text.data, text.length);
    sl_string_clear(&text);
    free(path);
    return status;
}

static sl_status make_folder(const char *path)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return SL_OK;
    return sl_fail(SL_EFAIL, "cannot make the folder '%.300s': %s", path,
                   strerror(errno));
}

/* The first rank's part: everything around the files, and then the rename. */
static sl_status finish(const share *shares, int ranks,
                        const sl_optimizer *optimizer,
                        const sl_gpt2_config *config,
                        const sl_progress *progress, const char *folder,
                        const char *partial, const char *final)
{
    sl_status status = write_config(config, partial);
    if (!status && ranks > 1)
        status = write_index(shares, ranks, 0, partial,
                             "model.safetensors.index.json");
    if (!status && ranks > 1)
        status = write_index(shares, ranks, 1, partial,
                             "optimizer.safetensors.index.json");
    if (!status)
        status = write_training(shares, ranks, optimizer, progress, partial);
    if (!status)
        status = sl__sync_folder(partial);
    /* One of this step may be there, from a run that was resumed earlier. */
    char *old = sl__join_path(folder, ".step.old");
    if (!status && old) {
        sl__remove_folder(old);
        rename(final, old);
    }
    if (!status && rename(partial, final))
        status = sl_fail(SL_EFAIL, "cannot rename to '%.300s': %s", final,
                         strerror(errno));
    if (old)
        sl__remove_folder(old);
    free(old);
    return status ? status : sl__sync_folder(folder);
}

/* Whether all ranks have come here without a failure; tells them of one. */
static sl_status agree(sl_pipeline *pipeline, share *shares, sl_status status)
{
    int ranks[SL_COMM_MAX_RANKS];
    char *why = shares[pipeline->rank].why;
    snprintf(why, sizeof shares->why, "%s", status ? sl_error_text() : "");
    for (int r = 0; r < pipeline->ranks; r++)
        ranks[r] = sl__comm_rank(pipeline, r);
    const sl_group group = {ranks, pipeline->ranks};
    shares[pipeline->rank].status = status;
    sl_status shared = sl_comm_allgather(
        pipeline->comm, &group, SL__TAG_END, sizeof *shares, shares,
        (size_t)pipeline->ranks, pipeline->options.timeout_s);
    if (shared)
        return shared;
    if (status)
        return sl_fail(status, "%s", why);
    for (int r = 0; r < pipeline->ranks; r++) {
        if (shares[r].status)
            return sl_fail((sl_status)shares[r].status, "rank %d: %.290s", r,
                           shares[r].why);
    }
    return SL_OK;
}

sl_status sl_checkpoint_write(sl_pipeline *pipeline,
                              const sl_optimizer *optimizer,
                              const sl_gpt2_config *config,
                              const sl_progress *progress, const char *folder)
{
    SL__NEED(pipeline, optimizer, config, progress, folder);
    char name[64];
    share *shares = NULL;
    char *partial = NULL, *final = NULL;
    bool first = pipeline->rank == 0;
    if (pipeline->replica > 0)
        return SL_OK; /* They are all alike. */
    snprintf(name, sizeof name, ".step-%08lld.partial",
             (long long)progress->step);
    partial = sl__join_path(folder, name);
    snprintf(name, sizeof name, "step-%08lld", (long long)progress->step);
    final = sl__join_path(folder, name);
    sl_status status =
        sl__alloc((size_t)pipeline->ranks, sizeof *shares, &shares);
    if (!status && (!partial || !final))
        status = sl_fail(SL_ENOMEM, "out of memory");
    if (!status) {
        if (first) {
            status = make_folder(folder);
            sl__remove_folder(partial);
            if (!status)
                status = make_folder(partial);
        }
        status = agree(pipeline, shares, status);
        if (!status)
            status = agree(pipeline, shares,
                           write_share(pipeline, optimizer, partial,
                                       &shares[pipeline->rank]));
        if (!status)
            status =
                agree(pipeline, shares,
                      first ? finish(shares, pipeline->ranks, optimizer, config,
                                     progress, folder, partial, final)
                            : SL_OK);
        if (status && first)
            sl__remove_folder(partial);
    }
    free(shares);
    free(partial);
    free(final);
    return status;
}
