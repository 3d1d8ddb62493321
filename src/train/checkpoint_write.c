/* SPDX-License-Identifier: MIT
 *
 * Writes a checkpoint: every rank writes its files, then rank 0 writes the
 * other files and renames the folder. */
#include "train/checkpoint.h"

#include "base/arguments.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "base/try.h"
#include "pipeline/pipeline.h"
#include "tensor/program.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* -------------------------------------------------------- a rank's files -- */

/* What a rank reports to rank 0 about a file that it wrote. */
typedef struct written {
    char name[64];
    int64_t bytes;
    uint64_t sum;
} written;

/* Both files of a rank, and its status, which all ranks must know. */
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

/* The tensors to write to a file, with their names and data. */
typedef struct collection {
    sl__arena arena;
    const sl_model *model;
    sl_dtype dtype; /* that f32 is written in, where it narrows */
    bool narrows;
    sl_safetensor *tensors;
    size_t count;
    size_t capacity;
} collection;

/* Where the bytes of a tensor are, in device memory or in a copy of what
 * callbacks hold; and their dtype there and in the file. */
typedef struct source {
    sl__stream *stream;
    const char *data;
    sl_dtype dtype, written;
} source;

static sl_status read_source(void *context, size_t first, void *out,
                             size_t bytes)
{
    const source *from = context;
    enum { PIECE = 1 << 12 };
    _Alignas(double) char piece[PIECE];
    size_t size = sl_dtype_bytes(from->written);
    size_t held = sl_dtype_bytes(from->dtype), most = PIECE / held;
    if (from->dtype == from->written)
        return sl__device_read(from->stream, out, from->data + first, bytes);
    assert(first % size == 0 && bytes % size == 0);
    for (size_t at = 0; at < bytes; at += most * size) {
        size_t left = (bytes - at) / size, count = left < most ? left : most;
        SL__TRY(sl__device_read(from->stream, piece,
                                from->data + (first + at) / size * held,
                                count * held));
        SL__TRY(sl__convert_floats(from->written, (char *)out + at, from->dtype,
                                   piece, (int64_t)count));
    }
    return SL_OK;
}

/* Adds a source that lives as long as the collection. */
static sl_status add_source(collection *c, sl__stream *stream, const void *data,
                            sl_dtype dtype, source **out)
{
    SL__TRY(SL__TAKE(&c->arena, 1, out));
    **out = (source){stream, data, dtype, dtype};
    if (c->narrows && dtype == SL_F32)
        (*out)->written = c->dtype;
    return SL_OK;
}

static sl_status collect(collection *c, const char *name, const sl_port *port,
                         source *from)
{
    const char *kept;
    SL__TRY(
        sl__grow(&c->tensors, &c->capacity, c->count + 1, sizeof *c->tensors));
    SL__TRY(sl__arena_text(&c->arena, name, strlen(name), &kept));
    sl_safetensor *new = &c->tensors[c->count++];
    *new = (sl_safetensor){.name = kept,
                           .dtype = from->written,
                           .dims = port->dims,
                           .read = read_source,
                           .context = from,
                           .bytes = (size_t)port->bytes /
                                    sl_dtype_bytes(from->dtype) *
                                    sl_dtype_bytes(from->written)};
    memcpy(new->shape, port->shape, sizeof new->shape);
    return SL_OK;
}

static void clear(collection *c)
{
    free(c->tensors);
    sl__arena_clear(&c->arena);
}

/* Gets a copy of a parameter from callbacks. */
static sl_status copy_out(collection *c, const sl__parameter *own, source *out)
{
    char *data;
    size_t bytes = (size_t)own->port.bytes;
    SL__TRY(sl__arena_take(&c->arena, bytes, 1, &data));
    out->stream = &sl__host;
    out->data = data;
    return sl_memory_read(own->memory, &own->port, 0, data, bytes);
}

/* A parameter is written from where it is: a copy of the model would be memory
 * that is not planned. */
static sl_status add_parameter(collection *c, const sl__parameter *own,
                               source **out)
{
    SL__TRY(add_source(c, sl__memory_stream(own->memory),
                       sl__port_memory(own->memory, &own->port, 0),
                       own->port.dtype, out));
    return (*out)->data ? SL_OK : copy_out(c, own, *out);
}

/* Collects a parameter under all of its names, as a state dict has it; for a
 * tied one, those of all stages. */
static sl_status collect_parameter(void *context, const sl__parameter *own)
{
    collection *c = context;
    const sl_port *port = &own->port;
    bool first;
    const sl_tie *tie = sl__find_tie(c->model, own->stage, port->name, &first);
    source *from;
    if (!first)
        return SL_OK;
    SL__TRY(add_parameter(c, own, &from));
    for (int i = 0; tie && i < tie->name_count; i++)
        SL__TRY(collect(c, tie->names[i], port, from));
    const sl__names *names = &own->program_stage->graph->parameters;
    for (size_t i = 0; i < names->count && !tie; i++) {
        if (names->data[i].tensor->leaf_index == port->index)
            SL__TRY(collect(c, names->data[i].name, port, from));
    }
    return SL_OK;
}

/* A parameter in f32, beside a model that is written in less. */
static sl_status collect_master(void *context, const sl__parameter *own)
{
    collection *c = context;
    const sl_port *port = &own->port;
    char name[SL__STATE_NAME_MAX];
    bool first;
    source *from;
    sl__find_tie(c->model, own->stage, port->name, &first);
    if (!first || port->dtype != SL_F32)
        return SL_OK;
    SL__TRY(add_parameter(c, own, &from));
    snprintf(name, sizeof name, SL__MASTER ".%s",
             sl__tied_name(c->model, own->stage, port->name));
    return collect(c, name, port, from);
}

static sl_status collect_optimizer(collection *c, const sl_optimizer *optimizer)
{
    for (int i = 0; i < sl__optimizer_state_count(optimizer); i++) {
        const sl__optimizer_state *state = sl__optimizer_state_at(optimizer, i);
        char name[SL__STATE_NAME_MAX];
        source *from;
        snprintf(name, sizeof name, "%s.%s", state->kind, state->parameter);
        if (!state->first)
            continue;
        SL__TRY(add_source(c, state->stream, state->data, state->port.dtype,
                           &from));
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

/* Fails where a tensor is not finite: such a checkpoint might replace a good
 * one. */
static sl_status check_finite(const collection *c)
{
    for (size_t i = 0; i < c->count; i++)
        SL__TRY(check_tensor(&c->tensors[i]));
    return SL_OK;
}

/* Writes a collection to a file, and records its size and checksum. */
static sl_status write_collection(const collection *c, const char *folder,
                                  written *out)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    char *path;
    sl_status status;
    SL__TRY(sl__join_path(folder, out->name, &path));
    SL__TRY_OR(free_path,
               sl_safetensors_write(path, c->tensors, c->count, metadata));
    status = sl__sum_file(path, &out->bytes, &out->sum);
free_path:
    free(path);
    return status;
}

static sl_status write_share(const sl_pipeline *pipeline,
                             const sl_optimizer *optimizer, sl_dtype dtype,
                             const char *folder, share *out)
{
    collection model = {.model = sl_pipeline_model(pipeline),
                        .dtype = dtype,
                        .narrows = dtype != SL_F32};
    collection state = {.model = model.model};
    const sl__pipeline_info at = sl__pipeline_describe(pipeline);
    name_file("model", at.rank, at.ranks, out->files[0].name,
              sizeof out->files[0].name);
    name_file("optimizer", at.rank, at.ranks, out->files[1].name,
              sizeof out->files[1].name);
    sl_status status;
    SL__TRY_OR(end, sl__each_parameter(pipeline, SL_PORT_PARAMETER,
                                       collect_parameter, &model));
    SL__TRY_OR(end, collect_optimizer(&state, optimizer));
    if (model.narrows)
        SL__TRY_OR(end, sl__each_parameter(pipeline, SL_PORT_PARAMETER,
                                           collect_master, &state));
    SL__TRY_OR(end, check_finite(&model));
    SL__TRY_OR(end, check_finite(&state));
    SL__TRY_OR(end, write_collection(&model, folder, &out->files[0]));
    status = write_collection(&state, folder, &out->files[1]);
end:
    clear(&model);
    clear(&state);
    return status;
}

/* ------------------------------------------------------------------ JSON -- */

/* Writes an object to a file; NULL for `root` means that memory ran out. */
static sl_status write_json(const json_t *root, const char *folder,
                            const char *name)
{
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS);
    if (!text)
        return sl_fail(SL_ENOMEM, "out of memory");
    sl_status status = sl__write_in(folder, name, text, strlen(text));
    free(text);
    return status;
}

/* Adds the tensors of a file to the map of an index. */
static sl_status map_file(const char *folder, const char *file, json_t *map,
                          int64_t *total)
{
    char *path;
    sl_safetensors *tensors;
    SL__TRY(sl__join_path(folder, file, &path));
    sl_status status = sl_safetensors_open(path, &tensors);
    free(path);
    SL__TRY(status);
    for (size_t i = 0; i < sl_safetensors_count(tensors); i++) {
        const sl_safetensor *tensor = sl_safetensors_at(tensors, i);
        json_object_set_new(map, tensor->name, json_string(file));
        *total += (int64_t)tensor->bytes;
    }
    sl_safetensors_close(tensors);
    return SL_OK;
}

/* Writes which file has which tensor, in the format of Hugging Face. */
static sl_status write_index(const share *shares, int ranks, int which,
                             const char *folder, const char *name)
{
    json_t *map = json_object();
    int64_t total = 0;
    sl_status status = SL_OK;
    for (int r = 0; r < ranks && !status; r++)
        status = map_file(folder, shares[r].files[which].name, map, &total);
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

/* Adds a file to those of training.json, if it exists. */
static sl_status add_file(json_t *files, const char *folder, const char *name)
{
    char *path;
    int64_t bytes;
    uint64_t sum;
    SL__TRY(sl__join_path(folder, name, &path));
    bool there = access(path, F_OK) == 0;
    sl_status status = there ? sl__sum_file(path, &bytes, &sum) : SL_OK;
    free(path);
    if (there && !status)
        add_sum(files, name, bytes, sum);
    return status;
}

/* Adds the files that are not of one rank. */
static sl_status add_rest(json_t *files, const char *folder)
{
    SL__TRY(add_file(files, folder, "config.json"));
    SL__TRY(add_file(files, folder, "model.safetensors.index.json"));
    return add_file(files, folder, "optimizer.safetensors.index.json");
}

/* Adds the checksum of training.json to it, and writes it. */
static sl_status sign_and_write(json_t *root, const char *folder)
{
    char sum[17];
    SL__TRY(sl__sum_json(root, sum));
    json_object_set_new(root, "sum", json_string(sum));
    return write_json(root, folder, "training.json");
}

static sl_status write_training(const share *shares, int ranks,
                                const sl_optimizer *optimizer,
                                const sl_progress *progress, const char *folder)
{
    char text[32];
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
        status = sign_and_write(root, folder);
    json_decref(root);
    return status;
}

/* --------------------------------------------------------------- writing -- */

static sl_status write_config(const sl_gpt2_config *config, const char *folder)
{
    sl_string text = SL_STRING_INIT;
    sl_status status = sl_gpt2_write_config(config, sl_write_string, &text);
    if (!status)
        status = sl__write_in(folder, "config.json", text.data, text.length);
    sl_string_clear(&text);
    return status;
}

static sl_status make_folder(const char *path)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return SL_OK;
    return sl_fail(SL_EFAIL, "cannot make the folder '%.300s': %s", path,
                   strerror(errno));
}

/* The checkpoint that is being written: to `partial`, which is then renamed to
 * `final`. */
typedef struct writing {
    sl_pipeline *pipeline;
    sl__pipeline_info at; /* this rank's position in the pipeline */
    const sl_optimizer *optimizer;
    const sl_gpt2_config *config;
    const sl_progress *progress;
    sl_dtype dtype;
    const char *folder;
    char *partial, *final, *old;
    share *shares; /* by rank */
} writing;

/* Rank 0 renames the folder. A checkpoint of the same step may exist, from
 * before an earlier run was resumed: it is moved away, and moved back if the
 * rename fails. */
static sl_status rename_folder(const writing *w)
{
    sl_status status = SL_OK;
    sl__remove_folder(w->old);
    rename(w->final, w->old);
    if (rename(w->partial, w->final)) {
        status = sl_fail(SL_EFAIL, "cannot rename to '%.300s': %s", w->final,
                         strerror(errno));
        rename(w->old, w->final);
    }
    sl__remove_folder(w->old);
    return status;
}

/* Rank 0 writes everything except the files of the ranks. */
static sl_status finish(const writing *w)
{
    const char *folder = w->partial;
    int ranks = w->at.ranks;
    SL__TRY(write_config(w->config, folder));
    if (ranks > 1) {
        SL__TRY(write_index(w->shares, ranks, 0, folder,
                            "model.safetensors.index.json"));
        SL__TRY(write_index(w->shares, ranks, 1, folder,
                            "optimizer.safetensors.index.json"));
    }
    SL__TRY(
        write_training(w->shares, ranks, w->optimizer, w->progress, folder));
    SL__TRY(sl__sync_folder(folder));
    SL__TRY(rename_folder(w));
    return sl__sync_folder(w->folder);
}

/* Fails on all ranks if any rank has failed: each sends its status to all
 * others. */
static sl_status agree(const writing *w, sl_status status)
{
    int ranks[SL_COMM_MAX_RANKS];
    share *own = &w->shares[w->at.rank];
    snprintf(own->why, sizeof own->why, "%s", status ? sl_error_text() : "");
    own->status = status;
    const sl_group group = sl__pipeline_group(w->pipeline, ranks);
    SL__TRY(sl_comm_allgather(w->at.comm, &group, SL__TAG_END, sizeof *own,
                              w->shares, (size_t)group.count, w->at.timeout_s));
    if (status)
        return sl_fail(status, "%s", own->why);
    for (int r = 0; r < group.count; r++) {
        if (w->shares[r].status)
            return sl_fail((sl_status)w->shares[r].status, "rank %d: %.290s", r,
                           w->shares[r].why);
    }
    return SL_OK;
}

static sl_status make_folders(const writing *w)
{
    SL__TRY(make_folder(w->folder));
    sl__remove_folder(w->partial);
    return make_folder(w->partial);
}

static sl_status make_room(writing *w)
{
    long long step = (long long)w->progress->step;
    char partial[64], final[64];
    snprintf(partial, sizeof partial, ".step-%08lld.partial", step);
    snprintf(final, sizeof final, "step-%08lld", step);
    SL__TRY(sl__join_path(w->folder, partial, &w->partial));
    SL__TRY(sl__join_path(w->folder, final, &w->final));
    SL__TRY(sl__join_path(w->folder, ".step.old", &w->old));
    return sl__alloc((size_t)w->at.ranks, sizeof *w->shares, &w->shares);
}

/* Every rank takes part in each agree(), whether it has failed or not, unless
 * an earlier one made all ranks fail. */
static sl_status write_all(const writing *w)
{
    int rank = w->at.rank;
    SL__TRY(agree(w, rank == 0 ? make_folders(w) : SL_OK));
    SL__TRY(agree(w, write_share(w->pipeline, w->optimizer, w->dtype,
                                 w->partial, &w->shares[rank])));
    return agree(w, rank == 0 ? finish(w) : SL_OK);
}

sl_status sl__check_save_dtype(sl_dtype dtype)
{
    if (dtype == SL_F32 || dtype == SL_BF16)
        return SL_OK;
    return sl_fail(SL_EINVAL, "models are saved in f32 or bf16, not in %s",
                   sl_dtype_text(dtype));
}

sl_status sl_checkpoint_write(sl_pipeline *pipeline,
                              const sl_optimizer *optimizer,
                              const sl_gpt2_config *config,
                              const sl_progress *progress, sl_dtype dtype,
                              const char *folder)
{
    SL__NEED(pipeline, optimizer, config, progress, folder);
    SL__TRY(sl__check_save_dtype(dtype));
    if (sl__pipeline_describe(pipeline).replica > 0)
        return SL_OK; /* Only the first replica writes: all have the same. */
    writing w = {.pipeline = pipeline,
                 .at = sl__pipeline_describe(pipeline),
                 .optimizer = optimizer,
                 .config = config,
                 .progress = progress,
                 .dtype = dtype,
                 .folder = folder};
    sl_status status = make_room(&w);
    if (!status) {
        status = write_all(&w);
        if (status && w.at.rank == 0)
            sl__remove_folder(w.partial);
    }
    free(w.shares);
    free(w.partial);
    free(w.final);
    free(w.old);
    return status;
}
