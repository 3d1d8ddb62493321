/* SPDX-License-Identifier: MIT
 *
 * Where every tensor lies. What F saves for backward lies in the slab, one
 * after the other: all of it is alive when F ends. What I leaves for W takes
 * the place of tensors in the slab that have been used for the last time; what
 * does not fit there gets memory of its own, `handed`, which is needed from I
 * to W only. What lives within one program lies in the workspace. Pieces that
 * are never alive together may share memory: they are placed largest first,
 * each at the lowest offset that is free for its whole life. */
#include "tensor/program.h"

#include "base/try.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int sl__find_message(const sl_stage *stage, sl_port_kind kind, int index)
{
    for (int i = 0; i < stage->message_count; i++) {
        if (stage->messages[i].kind == kind &&
            stage->messages[i].index == index)
            return i;
    }
    return -1;
}

/* -------------------------------------------------------------- touches -- */

static void touch(sl__touch *touches, const sl_tensor *tensor, size_t call,
                  bool writes)
{
    if (!tensor)
        return;
    sl__touch *t = &touches[tensor->base->id];
    if (t->first < 0)
        t->first = (int)call;
    t->last = (int)call > t->last ? (int)call : t->last;
    t->writers += writes;
}

/* 8 calls are half of the backward of a layer, and 40 two layers. A lane is
 * seldom farther behind. */
sl__behind sl__lanes_behind = {.much = 8, .little = 40};

/* Until which call the memory of a call is kept: for some more where it runs
 * beside them, so that they need not wait for it; for many more where it is
 * little. What is little, with logits of a few hundred tokens as the largest,
 * lengthens the workspace of a layer by a tenth at most. */
static size_t kept_until(const sl_stage *stage, int p, size_t at)
{
    enum { LITTLE = 26 << 20 };
    const sl__kernel_calls *calls = &stage->programs[p];
    const sl__node *node = calls->data[at].node;
    const sl__kernel *kernel = calls->data[at].kernel;
    int64_t bytes = kernel ? kernel->scratch_bytes : 0;
    if (sl__lane_of(stage, p, &calls->data[at]) == SL__LANE_MAIN)
        return at;
    for (int i = 0; i < node->operand_count; i++)
        bytes += sl__bytes(node->operands[i]);
    size_t end = at + (size_t)(bytes <= LITTLE ? sl__lanes_behind.little
                                               : sl__lanes_behind.much);
    return end < calls->count ? end : calls->count - 1;
}

static void touch_calls(const sl_stage *stage, int p)
{
    const sl__kernel_calls *calls = &stage->programs[p];
    sl__touch *touches = stage->touches[p];
    for (size_t i = 0; i < stage->graph->tensor_count; i++)
        touches[i] = (sl__touch){-1, -1, 0};
    for (size_t i = 0; i < calls->count; i++) {
        const sl__kernel_call *call = &calls->data[i];
        for (int k = 0; k < call->node->operand_count; k++)
            touch(touches, call->node->operands[k], i, false);
        for (int k = 0; k < SL__RESULTS_MAX; k++)
            touch(touches, sl__last_node(call)->results[k], i, true);
        size_t end = kept_until(stage, p, i);
        for (int k = 0; k < call->node->operand_count && end > i; k++)
            touch(touches, call->node->operands[k], end, false);
    }
}

/* Counts writers. A node counts once, however many programs run it. */
static void count_writers(sl_stage *stage, bool *runs)
{
    const sl_graph *graph = stage->graph;
    for (int p = 0; p < SL_PROGRAM_COUNT; p++) {
        for (size_t i = 0; i < stage->programs[p].count; i++) {
            const sl__kernel_call *call = &stage->programs[p].data[i];
            runs[call->node->index] = true;
            runs[sl__last_node(call)->index] = true;
        }
    }
    for (size_t i = 0; i < graph->node_count; i++) {
        for (int k = 0; k < SL__RESULTS_MAX && runs[i]; k++) {
            const sl_tensor *result = graph->nodes[i]->results[k];
            if (result)
                stage->writers[result->base->id]++;
        }
    }
}

sl_status sl__compute_touches(sl_stage *stage)
{
    sl__arena *arena = &stage->graph->arena;
    size_t tensors = stage->graph->tensor_count;
    bool *runs;
    SL__TRY(SL__TAKE(arena, stage->graph->node_count, &runs));
    SL__TRY(SL__TAKE(arena, tensors, &stage->writers));
    for (int p = 0; p < SL_PROGRAM_COUNT; p++) {
        SL__TRY(SL__TAKE(arena, tensors, &stage->touches[p]));
        touch_calls(stage, p);
    }
    count_writers(stage, runs);
    return SL_OK;
}

bool sl__is_carried_in(const sl_stage *stage, sl_program program,
                       const sl_tensor *base)
{
    const sl__touch *t = &stage->touches[program][base->id];
    return program != SL_PROGRAM_F && base->leaf == SL__RESULT &&
           t->first >= 0 && t->writers < stage->writers[base->id];
}

/* -------------------------------------------------------------- packing -- */

/* A piece of a pool, alive from call `first` to call `last`. */
typedef struct room {
    int64_t bytes;
    int64_t offset;
    int first;
    int last;
    int id;   /* the tensor in it; -1: scratch of a call */
    int pool; /* SL__POOL_NONE while it has no offset */
} room;

/* A list of pieces, with capacity for all tensors and calls. */
typedef struct pieces {
    room *data;
    size_t count;
} pieces;

static const pieces no_pieces;

static void add_piece(pieces *list, int64_t bytes, int first, int last, int id)
{
    assert(first <= last);
    list->data[list->count++] =
        (room){sl__aligned(bytes), 0, first, last, id, SL__POOL_NONE};
}

static int by_bytes(const void *left, const void *right)
{
    const room *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

/* Inserts a piece at the lowest free offset, if it then ends within `limit`;
 * `placed` is sorted by offset. */
static bool place_piece(room **placed, size_t count, room *piece, int64_t limit)
{
    int64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (placed[i]->first > piece->last || placed[i]->last < piece->first)
            continue;
        if (placed[i]->offset - at >= piece->bytes)
            break;
        if (placed[i]->offset + placed[i]->bytes > at)
            at = placed[i]->offset + placed[i]->bytes;
    }
    if (piece->bytes > limit - at)
        return false;
    piece->offset = at;
    size_t slot = count;
    while (slot > 0 && placed[slot - 1]->offset > at) {
        placed[slot] = placed[slot - 1];
        slot--;
    }
    placed[slot] = piece;
    return true;
}

/* Gives pieces without a pool offsets in `pool`, as many as fit between the
 * fixed ones within `limit` bytes, and says how many bytes these need. */
static sl_status pack(sl__arena *scratch, const pieces *fixed, pieces *list,
                      int pool, int64_t limit, int64_t *out_bytes)
{
    room **placed;
    size_t count = 0;
    int64_t bytes = 0;
    SL__TRY(SL__TAKE(scratch, fixed->count + list->count, &placed));
    for (size_t i = 0; i < fixed->count; i++)
        placed[count++] = &fixed->data[i];
    if (list->count)
        qsort(list->data, list->count, sizeof *list->data, by_bytes);
    for (size_t i = 0; i < list->count; i++) {
        room *piece = &list->data[i];
        if (piece->pool != SL__POOL_NONE ||
            !place_piece(placed, count, piece, limit))
            continue;
        piece->pool = pool;
        count++;
        if (piece->offset + piece->bytes > bytes)
            bytes = piece->offset + piece->bytes;
    }
    *out_bytes = bytes;
    return SL_OK;
}

/* --------------------------------------------------------- fixed places -- */

static void fix(sl_stage *stage, int program, const sl_tensor *base, int pool,
                int64_t offset)
{
    stage->places[program][base->id] =
        (sl__place){.pool = pool, .offset = offset};
}

/* Outputs of F and gradients of inputs are written into their messages. */
static void fix_messages(sl_stage *stage, int p)
{
    for (int m = 0; m < stage->message_count; m++) {
        const sl__message *message = &stage->messages[m];
        /* A recomputed output is not sent again. */
        if (message->kind == SL_PORT_OUTPUT && p != SL_PROGRAM_F &&
            stage->options.recompute)
            continue;
        const sl_tensor *tensor =
            sl__message_tensor(stage, message->kind, message->index);
        fix(stage, p, tensor->base, SL__POOL_MESSAGES + m, 0);
    }
}

static void fix_places(sl_stage *stage, int p)
{
    const sl_graph *graph = stage->graph;
    for (size_t i = 0; i < graph->tensor_count; i++) {
        const sl_tensor *tensor = graph->tensors[i];
        fix(stage, p, tensor, SL__POOL_NONE, 0);
        if (tensor->leaf == SL__PARAMETER)
            fix(stage, p, tensor, SL__POOL_PARAMETERS,
                stage->parameters[tensor->leaf_index].offset);
        if (tensor->leaf == SL__BUFFER)
            fix(stage, p, tensor, SL__POOL_PARAMETERS,
                stage->buffer_offsets[tensor->leaf_index]);
        if (tensor->leaf == SL__PARAMETER_GRADIENT)
            fix(stage, p, tensor, SL__POOL_GRADIENTS,
                stage->gradients[tensor->leaf_index].offset);
    }
    fix_messages(stage, p);
}

static bool is_placed(const sl_stage *stage, int p, const sl_tensor *base)
{
    return stage->places[p][base->id].pool != SL__POOL_NONE;
}

/* ----------------------------------------------------------------- slab -- */

/* The last call in I or W that uses a base; W's calls are numbered after
 * I's. */
static int last_use(const sl_stage *stage, const sl_tensor *base)
{
    int calls = (int)stage->programs[SL_PROGRAM_I].count;
    int in_w = stage->touches[SL_PROGRAM_W][base->id].last;
    return in_w >= 0 ? calls + in_w
                     : stage->touches[SL_PROGRAM_I][base->id].last;
}

static bool made_by_f(const sl_stage *stage, const sl_tensor *base)
{
    return !stage->options.recompute && !base->node->backward;
}

/* Lists the bases that one program computes and a later one of the same
 * microbatch reads: F's if `from_f`, else I's. */
static sl_status list_carried(const sl_stage *stage, sl__arena *scratch,
                              bool from_f, pieces *list)
{
    const sl_graph *graph = stage->graph;
    SL__TRY(SL__TAKE(scratch, graph->tensor_count, &list->data));
    for (size_t i = 0; i < graph->tensor_count; i++) {
        const sl_tensor *base = graph->tensors[i];
        bool carried = sl__is_carried_in(stage, SL_PROGRAM_W, base) ||
                       sl__is_carried_in(stage, SL_PROGRAM_I, base) ||
                       sl__is_carried_in(stage, SL_PROGRAM_B, base);
        if (base->base != base || !carried ||
            made_by_f(stage, base) != from_f ||
            is_placed(stage, SL_PROGRAM_W, base))
            continue;
        int first = from_f ? -1 : stage->touches[SL_PROGRAM_I][base->id].first;
        add_piece(list, sl__bytes(base), first, last_use(stage, base),
                  base->id);
    }
    return SL_OK;
}

static void fix_pieces(sl_stage *stage, const pieces *list, int program)
{
    for (size_t i = 0; i < list->count; i++)
        stage->places[program][list->data[i].id] = (sl__place){
            .pool = list->data[i].pool, .offset = list->data[i].offset};
}

/* Places what F and I leave for later programs. What of I's does not fit
 * between F's goes into slots of its own, which are only occupied from I on. */
static sl_status plan_slab(sl_stage *stage, sl__arena *scratch)
{
    sl_plan *plan = &stage->plan;
    pieces saved = {0}, handed = {0};
    int64_t within;
    SL__TRY(list_carried(stage, scratch, true, &saved));
    for (size_t i = 0; i < saved.count; i++) {
        saved.data[i].pool = SL__POOL_SLAB;
        saved.data[i].offset = plan->slab_bytes;
        plan->slab_bytes += saved.data[i].bytes;
    }
    SL__TRY(list_carried(stage, scratch, false, &handed));
    SL__TRY(pack(scratch, &saved, &handed, SL__POOL_SLAB, plan->slab_bytes,
                 &within));
    SL__TRY(pack(scratch, &no_pieces, &handed, SL__POOL_HANDED, INT64_MAX,
                 &plan->handed_bytes));
    for (int p = 0; p < SL_PROGRAM_COUNT; p++)
        fix_pieces(stage, &saved, p);
    fix_pieces(stage, &handed, SL_PROGRAM_I);
    fix_pieces(stage, &handed, SL_PROGRAM_W);
    stage->slot_bytes[SL__SLOT_SLAB] = plan->slab_bytes;
    stage->slot_bytes[SL__SLOT_HANDED] = plan->handed_bytes;
    return SL_OK;
}

/* ------------------------------------------------------------ workspace -- */

/* Whether the memory of a base is free after a program has read it for the last
 * time: it lies in the workspace, or was saved or handed on, and no later
 * program of the microbatch reads it. */
static bool is_freed(const sl_stage *stage, int p, const sl_tensor *base)
{
    if (!is_placed(stage, p, base))
        return true;
    int pool = stage->places[p][base->id].pool;
    /* A kernel that groups reads it after everything else in W has run. */
    if (p == SL_PROGRAM_W && stage->options.group > 1)
        return false;
    return (pool == SL__POOL_SLAB || pool == SL__POOL_HANDED) &&
           p != SL_PROGRAM_F &&
           (p != SL_PROGRAM_I ||
            stage->touches[SL_PROGRAM_W][base->id].first < 0);
}

/* Whether a call's result may take the memory of operand `k`, if this call is
 * the last to read that. Kernels in place go through their first two operands
 * element by element, but read others, such as a norm's weight, again. */
static bool may_share(const sl_stage *stage, int p, size_t at, int k)
{
    const sl__kernel_call *call = &stage->programs[p].data[at];
    const sl__node *node = call->node;
    const sl_tensor *operand = node->operands[k], *result = node->results[0];
    const sl__touch *touches = stage->touches[p];
    if (call->activation || node->adds || result->base != result ||
        operand->base->leaf != SL__RESULT ||
        !is_freed(stage, p, operand->base) || is_placed(stage, p, result) ||
        touches[operand->base->id].last != (int)at ||
        touches[result->id].first != (int)at ||
        sl__bytes(operand->base) != sl__bytes(result) ||
        operand->dtype != result->dtype || !sl__is_dense(operand))
        return false;
    for (int i = 0; i < node->operand_count; i++) {
        if (node->operands[i]->base == operand->base &&
            (i >= 2 || !sl__is_dense(node->operands[i])))
            return false;
    }
    return true;
}

/* For each base, the base whose memory it takes: its own or an operand's. */
static void share_places(const sl_stage *stage, int p, int *host)
{
    const sl__kernel_calls *calls = &stage->programs[p];
    for (size_t i = 0; i < calls->count; i++) {
        const sl__node *node = calls->data[i].node;
        int traits = sl__ops[node->op].traits;
        for (int k = 0; k < 2 && k < node->operand_count; k++) {
            if (!(traits & (k ? SL__IN_PLACE2 : SL__IN_PLACE)) ||
                !may_share(stage, p, i, k))
                continue;
            host[node->results[0]->id] = host[node->operands[k]->base->id];
            break;
        }
    }
}

/* Forgets an earlier plan of a program's workspace. */
static void forget_workspace(sl_stage *stage, int p)
{
    for (size_t i = 0; i < stage->graph->tensor_count; i++) {
        sl__place *place = &stage->places[p][i];
        if (place->pool == SL__POOL_WORKSPACE || place->shared)
            *place = (sl__place){.pool = SL__POOL_NONE};
    }
}

/* Lists what a program needs workspace for: results that take no operand's
 * memory, alive until the last tensor that shares theirs is; and scratch of
 * kernels. */
static void list_workspace(const sl_stage *stage, int p, const int *host,
                           int *last, pieces *list)
{
    const sl_graph *graph = stage->graph;
    const sl__touch *touches = stage->touches[p];
    const sl__kernel_calls *calls = &stage->programs[p];
    for (size_t i = 0; i < graph->tensor_count; i++) {
        if (touches[i].last > last[host[i]])
            last[host[i]] = touches[i].last;
    }
    for (size_t i = 0; i < graph->tensor_count; i++) {
        const sl_tensor *base = graph->tensors[i];
        if (touches[i].first >= 0 && host[i] == (int)i &&
            !is_placed(stage, p, base))
            add_piece(list, sl__bytes(base), touches[i].first, last[i], (int)i);
    }
    for (size_t i = 0; i < calls->count; i++) {
        assert(calls->data[i].kernel);
        int64_t bytes = calls->data[i].kernel->scratch_bytes;
        if (bytes)
            add_piece(list, bytes, (int)i, (int)kept_until(stage, p, i), -1);
    }
}

static sl_status plan_workspace(sl_stage *stage, int p, sl__arena *scratch)
{
    size_t tensors = stage->graph->tensor_count;
    const sl__kernel_calls *calls = &stage->programs[p];
    pieces list = {0};
    int *host, *last;
    SL__TRY(SL__TAKE(scratch, tensors, &host));
    SL__TRY(SL__TAKE(scratch, tensors, &last));
    SL__TRY(SL__TAKE(scratch, tensors + calls->count, &list.data));
    forget_workspace(stage, p);
    for (size_t i = 0; i < tensors; i++)
        host[i] = (int)i;
    share_places(stage, p, host);
    list_workspace(stage, p, host, last, &list);
    SL__TRY(pack(scratch, &no_pieces, &list, SL__POOL_WORKSPACE, INT64_MAX,
                 &stage->plan.program_workspace_bytes[p]));
    for (size_t i = 0; i < list.count; i++) {
        const room *piece = &list.data[i];
        if (piece->id >= 0)
            stage->places[p][piece->id] = (sl__place){
                .pool = SL__POOL_WORKSPACE, .offset = piece->offset};
        else
            calls->data[piece->first].scratch_offset = piece->offset;
    }
    for (size_t i = 0; i < tensors; i++) {
        if (host[i] == (int)i)
            continue;
        stage->places[p][i] = stage->places[p][host[i]];
        stage->places[p][i].shared = true;
    }
    return SL_OK;
}

/* Plans B with its calls in this order. */
static sl_status try_order(sl_stage *stage, const sl__kernel_call *emitted,
                           const int *order, sl__arena *scratch)
{
    sl__kernel_calls *calls = &stage->programs[SL_PROGRAM_B];
    for (size_t i = 0; i < calls->count; i++)
        calls->data[i] = emitted[order[i]];
    touch_calls(stage, SL_PROGRAM_B);
    return plan_workspace(stage, SL_PROGRAM_B, scratch);
}

/* Plans B in every proposed order, and keeps the best. */
static sl_status plan_b(sl_stage *stage, sl__arena *scratch)
{
    const sl__kernel_calls *calls = &stage->programs[SL_PROGRAM_B];
    const int64_t *bytes = &stage->plan.program_workspace_bytes[SL_PROGRAM_B];
    int *orders[SL__ORDER_COUNT], best = 0;
    sl__kernel_call *emitted;
    int64_t least = INT64_MAX;
    SL__TRY(SL__TAKE(scratch, calls->count, &emitted));
    for (int i = 0; i < SL__ORDER_COUNT; i++)
        SL__TRY(SL__TAKE(scratch, calls->count, &orders[i]));
    SL__TRY(sl__propose_orders(stage, scratch, orders));
    if (calls->count)
        memcpy(emitted, calls->data, calls->count * sizeof *emitted);
    for (int i = 0; i < SL__ORDER_COUNT; i++) {
        SL__TRY(try_order(stage, emitted, orders[i], scratch));
        if (*bytes < least) {
            least = *bytes;
            best = i;
        }
    }
    return try_order(stage, emitted, orders[best], scratch);
}

/* ---------------------------------------------------------------- bytes -- */

static bool is_read_by_backward(const sl_stage *stage, const sl_tensor *base)
{
    for (int p = SL_PROGRAM_I; p < SL_PROGRAM_COUNT; p++) {
        if (stage->touches[p][base->id].first >= 0)
            return true;
    }
    return false;
}

static void count_saved(sl_stage *stage)
{
    int64_t saved = stage->plan.slab_bytes;
    for (int m = 0; m < stage->message_count; m++) {
        const sl__message *message = &stage->messages[m];
        bool stays =
            message->kind == SL_PORT_INPUT ||
            (message->kind == SL_PORT_OUTPUT && !stage->options.recompute);
        const sl_tensor *tensor =
            sl__message_tensor(stage, message->kind, message->index);
        if (stays && is_read_by_backward(stage, tensor->base))
            saved += message->bytes;
    }
    stage->plan.saved_bytes = saved;
}

/* Takes the next piece of a pool of which `*bytes` are taken already. */
static sl__piece_of take_piece(const sl_tensor *tensor, sl_dtype dtype,
                               int64_t *bytes)
{
    const sl__piece_of piece = {
        dtype, *bytes, sl__count(tensor) * (int64_t)sl_dtype_bytes(dtype)};
    *bytes += sl__aligned(piece.bytes);
    return piece;
}

static void plan_parameters(sl_stage *stage)
{
    const sl_graph *graph = stage->graph;
    int64_t bytes = 0, gradient_bytes = 0;
    for (size_t i = 0; i < graph->parameters.count; i++) {
        const sl_tensor *tensor = graph->parameters.data[i].tensor;
        if (strcmp(tensor->name, graph->parameters.data[i].name) != 0)
            continue; /* An alias. */
        stage->parameters[tensor->leaf_index] =
            take_piece(tensor, tensor->dtype, &bytes);
        stage->gradients[tensor->leaf_index] =
            take_piece(tensor, tensor->gradient_dtype, &gradient_bytes);
    }
    stage->plan.gradient_bytes =
        stage->options.backward == SL_BACKWARD_NONE ? 0 : gradient_bytes;
    for (size_t i = 0; i < graph->buffers.count; i++) {
        stage->buffer_offsets[i] = bytes;
        bytes += sl__aligned(sl__bytes(graph->buffers.data[i].tensor));
    }
    stage->plan.parameter_bytes = bytes;
}

void sl__plan_messages(sl_stage *stage)
{
    stage->plan.message_bytes = 0;
    stage->plan.control_bytes = SL__ALIGNMENT;
    for (int m = 0; m < stage->message_count; m++) {
        sl__message *message = &stage->messages[m];
        int64_t *used = &stage->slot_bytes[sl__slot_kind_of(message->kind)];
        message->offset = *used;
        *used += sl__aligned(message->bytes);
        stage->plan.message_bytes += sl__aligned(message->bytes);
    }
}

static unsigned kind_bit(const sl_stage *stage, int pool)
{
    if (pool == SL__POOL_SLAB)
        return 1u << SL__SLOT_SLAB;
    if (pool == SL__POOL_HANDED)
        return 1u << SL__SLOT_HANDED;
    if (pool < SL__POOL_MESSAGES)
        return 0;
    const sl__message *message = &stage->messages[pool - SL__POOL_MESSAGES];
    return 1u << sl__slot_kind_of(message->kind);
}

void sl__note_uses(sl_stage *stage)
{
    for (int p = 0; p < SL_PROGRAM_COUNT; p++) {
        for (size_t i = 0; i < stage->programs[p].count; i++) {
            const sl__kernel *kernel = &stage->kernels[p][i];
            for (int k = 0; k < kernel->arg_count; k++)
                stage->uses[p] |= kind_bit(stage, kernel->args[k].pool);
        }
    }
}

static void plan_packs(sl_stage *stage)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < stage->packs.count; i++) {
        sl__pack *pack = stage->packs.data[i];
        pack->args[1].pool = SL__POOL_PACKED;
        pack->args[1].offset = bytes;
        bytes += sl__aligned(pack->bytes);
    }
    stage->plan.packed_bytes = bytes;
}

static sl_status make_tables(sl_stage *stage)
{
    const sl_graph *graph = stage->graph;
    sl__arena *arena = &stage->graph->arena;
    size_t parameters = (size_t)graph->parameter_count;
    SL__TRY(SL__TAKE(arena, parameters, &stage->parameters));
    SL__TRY(SL__TAKE(arena, parameters, &stage->gradients));
    SL__TRY(SL__TAKE(arena, graph->buffers.count, &stage->buffer_offsets));
    for (int p = 0; p < SL_PROGRAM_COUNT; p++)
        SL__TRY(SL__TAKE(arena, graph->tensor_count, &stage->places[p]));
    return SL_OK;
}

/* Everything that a kernel reads or writes has a place. */
static void assert_all_placed(const sl_stage *stage)
{
    for (int p = 0; p < SL_PROGRAM_COUNT; p++) {
        for (size_t i = 0; i < stage->graph->tensor_count; i++)
            assert(stage->touches[p][i].first < 0 ||
                   stage->places[p][i].pool != SL__POOL_NONE);
    }
    (void)stage;
}

static sl_status plan_memory(sl_stage *stage, sl__arena *scratch)
{
    sl_plan *plan = &stage->plan;
    SL__TRY(make_tables(stage));
    plan_parameters(stage);
    sl__plan_messages(stage);
    plan_packs(stage);
    for (int p = 0; p < SL_PROGRAM_COUNT; p++)
        fix_places(stage, p);
    SL__TRY(plan_slab(stage, scratch));
    for (int p = 0; p < SL_PROGRAM_COUNT; p++) {
        sl__arena_clear(scratch);
        SL__TRY(p == SL_PROGRAM_B ? plan_b(stage, scratch)
                                  : plan_workspace(stage, p, scratch));
        if (plan->program_workspace_bytes[p] > plan->workspace_bytes)
            plan->workspace_bytes = plan->program_workspace_bytes[p];
        plan->kernels[p] = (int)stage->programs[p].count;
    }
    count_saved(stage);
    return SL_OK;
}

sl_status sl__plan_memory(sl_stage *stage)
{
    sl__arena scratch = {0};
    sl_status status = plan_memory(stage, &scratch);
    sl__arena_clear(&scratch);
    if (!status)
        assert_all_placed(stage);
    return status;
}
