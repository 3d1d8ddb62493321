/* SPDX-License-Identifier: MIT
 *
 * Running programs: walks the kernels of a program, turns each (pool, offset)
 * into an address, and enqueues them. Nothing is allocated, looked up or
 * decided here that could have been before. */
#include "tensor/memory.h"

#include "base/arguments.h"
#include "base/try.h"

static sl__run make_run(sl__stream *stream, const microbatch *slot)
{
    return (sl__run){.stream = stream, .block = slot->block};
}

static sl_status run_kernel(const sl__kernel *kernel, void *const *bases,
                            void **pointers, const sl__run *run)
{
    sl__resolve(kernel, bases, pointers);
    return kernel->run(kernel, pointers, run);
}

/* Packs weights, if parameters have changed since they were last packed. */
static sl_status pack_changed(sl_memory *memory, const microbatch *slot,
                              const sl__run *run)
{
    const sl__packs *packs = &memory->stage->packs;
    if (memory->packed_at == memory->owner->written)
        return SL_OK;
    sl__memory_count_discarded(memory, DISCARDED_PACKED, 0);
    for (size_t i = 0; i < packs->count; i++)
        SL__TRY(run_kernel(&packs->data[i]->kernel, slot->bases,
                           memory->pointers, run));
    memory->packed_at = memory->owner->written;
    return SL_OK;
}

/* Runs a kernel of a lane, after what it waits for, and marks its end if others
 * wait for that. */
static sl_status run_in_lane(const sl_stage *stage, sl_memory *memory,
                             const microbatch *slot, size_t at,
                             const sl__run *run)
{
    const sl__lane *own = &stage->lanes[at];
    const sl__buffer_ops *buffers = run->stream->buffers;
    for (int lane = 0; lane < SL__LANES; lane++) {
        if (own->after[lane] != SL__LANE_START)
            SL__TRY(
                buffers->after(run->stream, memory->marks[own->after[lane]]));
    }
    SL__TRY(run_kernel(&stage->kernels[SL_PROGRAM_B][at], slot->bases,
                       memory->pointers, run));
    return own->is_awaited ? buffers->mark(run->stream, &memory->marks[at])
                           : SL_OK;
}

static sl_status walk_lanes(const sl_stage *stage, sl_memory *memory,
                            const microbatch *slot,
                            const sl__run runs[SL__LANES])
{
    for (int lane = 1; lane < SL__LANES; lane++)
        SL__TRY(sl__device_join(runs[lane].stream, runs[0].stream));
    for (size_t i = 0; i < stage->programs[SL_PROGRAM_B].count; i++)
        SL__TRY(
            run_in_lane(stage, memory, slot, i, &runs[stage->lanes[i].lane]));
    return SL_OK;
}

/* Runs B on a stream for each lane; those beside join the first at its end,
 * also after a failure: a recording ends on the stream that began it. */
static sl_status run_lanes(const sl_stage *stage, sl_memory *memory,
                           const microbatch *slot, const sl__run *run)
{
    static const int sides[SL__LANES] = {
        [SL__LANE_PRODUCTS] = SL__SIDE_GIVES_WAY,
        [SL__LANE_SUMS] = SL__SIDE_GIVES_WAY_2};
    const sl__buffer_ops *buffers = run->stream->buffers;
    size_t count = stage->programs[SL_PROGRAM_B].count;
    sl__run runs[SL__LANES];
    for (int lane = 0; lane < SL__LANES; lane++) {
        runs[lane] = *run;
        if (lane != SL__LANE_MAIN)
            SL__TRY(
                buffers->side(run->stream, sides[lane], &runs[lane].stream));
    }
    sl_status status = walk_lanes(stage, memory, slot, runs);
    for (int lane = 1; lane < SL__LANES; lane++) {
        sl_status joined = sl__device_join(run->stream, runs[lane].stream);
        status = status ? status : joined;
    }
    for (size_t i = 0; i < count; i++) {
        if (memory->marks[i])
            buffers->unmark(memory->marks[i]);
        memory->marks[i] = NULL;
    }
    return status;
}

static sl_status run_kernels(const sl_stage *stage, sl_program program,
                             sl_memory *memory, const microbatch *slot,
                             sl__stream *stream)
{
    const sl__kernel *kernel = stage->kernels[program];
    const sl__kernel *end = kernel + stage->programs[program].count;
    const sl__run run = make_run(stream, slot);
    SL__TRY(pack_changed(memory, slot, &run));
    if (program == SL_PROGRAM_B && memory->marks)
        return run_lanes(stage, memory, slot, &run);
    for (; kernel < end; kernel++)
        SL__TRY(run_kernel(kernel, slot->bases, memory->pointers, &run));
    return SL_OK;
}

/* A thread calls these around what it enqueues. */
static sl_status begin(const sl_memory *memory, sl__stream *stream)
{
    return memory->stage->backend->device.begin(stream);
}

static sl_status end(const sl_memory *memory, sl__stream *stream,
                     sl_status status)
{
    sl_status ended = memory->stage->backend->device.end(stream);
    return status ? status : ended;
}

bool sl__memory_needs_packing(const sl_memory *memory)
{
    return memory->packed_at != memory->owner->written &&
           memory->stage->packs.count > 0;
}

sl_status sl__memory_pack(sl_memory *memory)
{
    if (!sl__memory_needs_packing(memory))
        return SL_OK;
    const microbatch *slot = &memory->slots[0];
    const sl__run run = make_run(memory->stream, slot);
    SL__TRY(begin(memory, run.stream));
    return end(memory, run.stream, pack_changed(memory, slot, &run));
}

/* --------------------------------------------------------------- states -- */

static const char program_names[SL_PROGRAM_COUNT + 1] = "FIWB";

static sl_status check_run(const sl_stage *stage, sl_program program,
                           const sl_memory *memory, int slot)
{
    if (program < 0 || program >= SL_PROGRAM_COUNT)
        return sl_fail(SL_EINVAL, "there is no program %d", (int)program);
    char name = program_names[program];
    if (memory->stage != stage)
        return sl_fail(SL_EINVAL, "%c: the memory is of another stage", name);
    if (slot < 0 || slot >= memory->slot_count)
        return sl_fail(SL_EINVAL, "%c: slot %d, expected 0 to %d", name, slot,
                       memory->slot_count - 1);
    if (!stage->programs[program].exists)
        return sl_fail(SL_EINVAL,
                       "%c was not asked for when the stage was "
                       "compiled",
                       name);
    slot_state state = memory->slots[slot].state;
    if (program == SL_PROGRAM_F && state == SLOT_I)
        return sl_fail(SL_EINVAL, "F on slot %d comes before its W", slot);
    if (program == SL_PROGRAM_W && state != SLOT_I)
        return sl_fail(SL_EINVAL, "W on slot %d comes before its I", slot);
    if ((program == SL_PROGRAM_I || program == SL_PROGRAM_B) && state != SLOT_F)
        return sl_fail(SL_EINVAL, "%c on slot %d %s", name, slot,
                       state == SLOT_I ? "comes after its I"
                                       : "comes before its F");
    return SL_OK;
}

sl_status sl__stage_enqueue_on(sl__stream *stream, const sl_stage *stage,
                               sl_program program, sl_memory *memory,
                               int slot_index)
{
    static const slot_state after[SL_PROGRAM_COUNT] = {SLOT_F, SLOT_I,
                                                       SLOT_EMPTY, SLOT_EMPTY};
    SL__TRY(check_run(stage, program, memory, slot_index));
    microbatch *slot = &memory->slots[slot_index];
    if (program != SL_PROGRAM_F)
        sl__memory_count_discarded(memory->owner, DISCARDED_GRADIENTS, 0);
    if (sl__is_callbacks(stage)) {
        sl_status status = sl__run_callbacks(memory, program, slot_index);
        slot->state = status ? SLOT_EMPTY : after[program];
        return status;
    }
    SL__TRY(begin(memory, stream));
    sl_status status =
        end(memory, stream, run_kernels(stage, program, memory, slot, stream));
    /* After a failed run, only F can use the slot. */
    slot->state = status ? SLOT_EMPTY : after[program];
    return status;
}

sl_status sl__stage_enqueue(const sl_stage *stage, sl_program program,
                            sl_memory *memory, int slot)
{
    return sl__stage_enqueue_on(memory->stream, stage, program, memory, slot);
}

/* --------------------------------------------------------------- blocks -- */

sl_status sl__memory_begin_step(sl_memory *memory, const sl__step_block *blocks)
{
    size_t count = (size_t)memory->slot_count;
    for (size_t i = 0; i < count; i++) {
        memory->blocks[i].block = blocks[i];
        memory->blocks[i].block.fault = (sl__fault){0};
    }
    return count ? sl__device_write(memory->stream, memory->slots[0].block,
                                    memory->blocks, count * SL__BLOCK_BYTES)
                 : SL_OK;
}

/* Gives a slot its options. Only F sets the seed: backward uses F's. */
static sl_status begin_run(sl_memory *memory, sl_program program, int slot,
                           const sl_run_options *options)
{
    sl__step_block *block = &memory->blocks[slot].block;
    *block = (sl__step_block){.seed = program == SL_PROGRAM_F ? options->seed
                                                              : block->seed,
                              .loss_scale = options->loss_scale};
    return sl__device_write(memory->stream, memory->slots[slot].block, block,
                            sizeof *block);
}

static sl_status refuse_fault(const sl_stage *stage, const sl__fault *fault,
                              sl_program *out_program)
{
    for (int p = 0; p < SL_PROGRAM_COUNT; p++) {
        for (size_t i = 0; i < stage->programs[p].count; i++) {
            const sl__kernel *kernel = &stage->kernels[p][i];
            *out_program = (sl_program)p;
            if (kernel->number == fault->kernel)
                return sl__refuse_id(kernel, fault);
        }
    }
    return sl_fail(SL_EINVAL, "kernel %lld found %lld at place %lld",
                   (long long)fault->kernel, (long long)fault->value,
                   (long long)fault->place);
}

/* Reads the blocks of some slots, which are adjacent, and fails with the first
 * fault. */
static sl_status check_slots(const sl_memory *memory, int first, int count,
                             int *out_slot, sl_program *out_program)
{
    if (count == 0)
        return SL_OK;
    SL__TRY(sl__device_read(memory->stream, &memory->blocks[first],
                            memory->slots[first].block,
                            (size_t)count * SL__BLOCK_BYTES));
    for (int i = first; i < first + count; i++) {
        const sl__fault *fault = &memory->blocks[i].block.fault;
        *out_slot = i;
        if (fault->kernel)
            return refuse_fault(memory->stage, fault, out_program);
    }
    return SL_OK;
}

sl_status sl__memory_check(const sl_memory *memory, int *out_slot,
                           sl_program *out_program)
{
    return check_slots(memory, 0, memory->slot_count, out_slot, out_program);
}

sl_status sl_stage_run(const sl_stage *stage, sl_program program,
                       sl_memory *memory, int slot,
                       const sl_run_options *options)
{
    SL__NEED(stage, memory);
    static const sl_run_options defaults = SL_RUN_OPTIONS_INIT;
    SL__TRY(check_run(stage, program, memory, slot));
    SL__TRY(begin_run(memory, program, slot, options ? options : &defaults));
    SL__TRY(sl__stage_enqueue(stage, program, memory, slot));
    SL__TRY(stage->backend->device.finish(memory->stream));
    sl_status status = check_slots(memory, slot, 1, &slot, &program);
    if (status)
        memory->slots[slot].state = SLOT_EMPTY;
    return status;
}

/* ---------------------------------------------------------------- groups -- */

/* Runs everything of W but the kernels that group. */
static sl_status run_others(sl_memory *memory, const int *slots, int count)
{
    const sl_stage *stage = memory->stage;
    const sl__kernel *kernels = stage->kernels[SL_PROGRAM_W];
    size_t kernel_count = stage->programs[SL_PROGRAM_W].count;
    for (int i = 0; i < count; i++) {
        const microbatch *slot = &memory->slots[slots[i]];
        const sl__run run = make_run(memory->stream, slot);
        SL__TRY(pack_changed(memory, slot, &run));
        for (size_t k = 0; k < kernel_count; k++) {
            if (!kernels[k].groups)
                SL__TRY(run_kernel(&kernels[k], slot->bases, memory->pointers,
                                   &run));
        }
    }
    return SL_OK;
}

/* Runs a kernel that groups, on as many slots at a time as there are pointers
 * for. */
static sl_status run_grouped(const sl__kernel *kernel, sl_memory *memory,
                             const int *slots, int count)
{
    int stride = memory->stage->arg_count_max;
    for (int first = 0; first < count; first += SL__GROUP_MAX) {
        int left = count - first;
        sl__run run = make_run(memory->stream, &memory->slots[slots[first]]);
        run.group = left < SL__GROUP_MAX ? left : SL__GROUP_MAX;
        run.group_stride = stride;
        for (int i = 0; i < run.group; i++)
            sl__resolve(kernel, memory->slots[slots[first + i]].bases,
                        memory->pointers + i * stride);
        SL__TRY(kernel->run(kernel, memory->pointers, &run));
    }
    return SL_OK;
}

static sl_status run_group(sl_memory *memory, const int *slots, int count)
{
    const sl_stage *stage = memory->stage;
    const sl__kernel *kernels = stage->kernels[SL_PROGRAM_W];
    SL__TRY(run_others(memory, slots, count));
    for (size_t k = 0; k < stage->programs[SL_PROGRAM_W].count; k++) {
        if (kernels[k].groups)
            SL__TRY(run_grouped(&kernels[k], memory, slots, count));
    }
    return SL_OK;
}

static sl_status check_group(const sl_stage *stage, const sl_memory *memory,
                             const int *slots, int count)
{
    for (int i = 0; i < count; i++) {
        SL__TRY(check_run(stage, SL_PROGRAM_W, memory, slots[i]));
        for (int k = 0; k < i; k++) {
            if (slots[k] == slots[i])
                return sl_fail(SL_EINVAL, "slot %d is twice in a group",
                               slots[i]);
        }
    }
    return SL_OK;
}

sl_status sl__stage_enqueue_group(const sl_stage *stage, sl_memory *memory,
                                  const int *slots, int count)
{
    SL__TRY(check_group(stage, memory, slots, count));
    if (sl__is_callbacks(stage)) {
        for (int i = 0; i < count; i++)
            SL__TRY(sl__stage_enqueue(stage, SL_PROGRAM_W, memory, slots[i]));
        return SL_OK;
    }
    sl__memory_count_discarded(memory->owner, DISCARDED_GRADIENTS, 0);
    SL__TRY(begin(memory, memory->stream));
    sl_status status =
        end(memory, memory->stream, run_group(memory, slots, count));
    for (int i = 0; i < count; i++)
        memory->slots[slots[i]].state = SLOT_EMPTY;
    return status;
}

sl_status sl_stage_run_group(const sl_stage *stage, sl_memory *memory,
                             const int *slots, const sl_run_options *options,
                             int count)
{
    SL__NEED(stage, memory, slots);
    static const sl_run_options defaults = SL_RUN_OPTIONS_INIT;
    SL__TRY(check_group(stage, memory, slots, count));
    for (int i = 0; i < count; i++)
        SL__TRY(begin_run(memory, SL_PROGRAM_W, slots[i],
                          options ? &options[i] : &defaults));
    if (count < 1)
        return SL_OK;
    SL__TRY(sl__stage_enqueue_group(stage, memory, slots, count));
    SL__TRY(stage->backend->device.finish(memory->stream));
    for (int i = 0; i < count; i++) {
        sl_program program;
        int slot;
        SL__TRY(check_slots(memory, slots[i], 1, &slot, &program));
    }
    return SL_OK;
}
