/* SPDX-License-Identifier: MIT
 *
 * The run: walks the kernels of a program with operands resolved from (pool,
 * offset). Nothing is allocated, looked up or decided here that could have been
 * before. */
#include "tensor/memory.h"

#include "base/arguments.h"
#include "base/try.h"

static sl__run make_run(const sl_stage *stage, const microbatch *slot,
                        double loss_scale)
{
    return (sl__run){.states = slot->states,
                     .seed = slot->seed,
                     .loss_scale = loss_scale,
                     .threads = stage->options.threads};
}

static sl_status run_kernel(const sl__kernel *kernel, void *const *bases,
                            void **pointers, const sl__run *run)
{
    sl__resolve(kernel, bases, pointers);
    return kernel->run(kernel, pointers, run);
}

static sl_status run_packs(sl_memory *memory, const microbatch *slot,
                           const sl__run *run)
{
    const sl__packs *packs = &memory->stage->packs;
    sl_status status = SL_OK;
    sl__memory_give_back(memory, BACK_PACKED, 0);
    for (size_t i = 0; i < packs->count && !status; i++)
        status = run_kernel(&packs->data[i]->kernel, slot->bases,
                            memory->pointers, run);
    if (!status)
        memory->packed_at = memory->owner->written;
    return status;
}

static sl_status pack_changed(sl_memory *memory, const microbatch *slot,
                              const sl__run *run)
{
    return memory->packed_at == memory->owner->written
               ? SL_OK
               : run_packs(memory, slot, run);
}

static sl_status run_kernels(const sl_stage *stage, sl_program program,
                             sl_memory *memory, const microbatch *slot,
                             const sl__run *run)
{
    const sl__kernel *kernel = stage->kernels[program];
    const sl__kernel *end = kernel + stage->programs[program].count;
    SL__TRY(pack_changed(memory, slot, run));
    for (; kernel < end; kernel++)
        SL__TRY(run_kernel(kernel, slot->bases, memory->pointers, run));
    return SL_OK;
}

sl_status sl__memory_pack(sl_memory *memory)
{
    const sl_stage *stage = memory->stage;
    if (memory->packed_at == memory->owner->written || stage->packs.count == 0)
        return SL_OK;
    const microbatch *slot = &memory->slots[0];
    const sl__run run = make_run(stage, slot, 1);
    sl__saved saved;
    stage->backend->begin(run.threads, &saved);
    sl_status status = run_packs(memory, slot, &run);
    stage->backend->end(&saved);
    return status;
}

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

sl_status sl_stage_run(const sl_stage *stage, sl_program program,
                       sl_memory *memory, int slot_index,
                       const sl_run_options *options)
{
    SL__NEED(stage, memory);
    static const sl_run_options defaults = SL_RUN_OPTIONS_INIT;
    static const slot_state after[SL_PROGRAM_COUNT] = {SLOT_F, SLOT_I,
                                                       SLOT_EMPTY, SLOT_EMPTY};
    sl_status status = check_run(stage, program, memory, slot_index);
    if (status)
        return status;
    if (!options)
        options = &defaults;
    microbatch *slot = &memory->slots[slot_index];
    if (program == SL_PROGRAM_F)
        slot->seed = options->seed;
    else
        sl__memory_give_back(memory->owner, BACK_GRADIENTS, 0);
    const sl__run run = make_run(stage, slot, options->loss_scale);
    sl__saved saved;
    stage->backend->begin(run.threads, &saved);
    status = sl__is_callbacks(stage)
                 ? sl__run_callbacks(stage, program, slot->bases,
                                     memory->pointers, slot_index, &run)
                 : run_kernels(stage, program, memory, slot, &run);
    stage->backend->end(&saved);
    /* A failed run leaves a slot that only F can use again. */
    slot->state = status ? SLOT_EMPTY : after[program];
    return status;
}

/* ---------------------------------------------------------------- groups -- */

/* Everything of W but the kernels that take a group. */
static sl_status run_others(const sl_stage *stage, sl_memory *memory,
                            const int *slots, const sl_run_options *options,
                            int count)
{
    const sl__kernel *kernels = stage->kernels[SL_PROGRAM_W];
    size_t kernel_count = stage->programs[SL_PROGRAM_W].count;
    for (int i = 0; i < count; i++) {
        const microbatch *slot = &memory->slots[slots[i]];
        const sl__run run =
            make_run(stage, slot, options ? options[i].loss_scale : 1);
        SL__TRY(pack_changed(memory, slot, &run));
        for (size_t k = 0; k < kernel_count; k++) {
            if (!kernels[k].groups)
                SL__TRY(run_kernel(&kernels[k], slot->bases, memory->pointers,
                                   &run));
        }
    }
    return SL_OK;
}

/* A kernel that takes a group, on as many slots at a time as there are pointers
 * for. */
static sl_status run_grouped(const sl__kernel *kernel, sl_memory *memory,
                             const int *slots, int count)
{
    const sl_stage *stage = memory->stage;
    int stride = stage->arg_count_max;
    for (int first = 0; first < count; first += SL__GROUP_MAX) {
        int left = count - first;
        sl__run run = make_run(stage, &memory->slots[slots[first]], 1);
        run.group = left < SL__GROUP_MAX ? left : SL__GROUP_MAX;
        run.group_stride = stride;
        for (int i = 0; i < run.group; i++)
            sl__resolve(kernel, memory->slots[slots[first + i]].bases,
                        memory->pointers + i * stride);
        SL__TRY(kernel->run(kernel, memory->pointers, &run));
    }
    return SL_OK;
}

static sl_status run_group(const sl_stage *stage, sl_memory *memory,
                           const int *slots, const sl_run_options *options,
                           int count)
{
    const sl__kernel *kernels = stage->kernels[SL_PROGRAM_W];
    SL__TRY(run_others(stage, memory, slots, options, count));
    for (size_t k = 0; k < stage->programs[SL_PROGRAM_W].count; k++) {
        if (kernels[k].groups)
            SL__TRY(run_grouped(&kernels[k], memory, slots, count));
    }
    return SL_OK;
}

sl_status sl_stage_run_group(const sl_stage *stage, sl_memory *memory,
                             const int *slots, const sl_run_options *options,
                             int count)
{
    SL__NEED(stage, memory, slots);
    bool callbacks = sl__is_callbacks(stage);
    for (int i = 0; i < count; i++) {
        SL__TRY(check_run(stage, SL_PROGRAM_W, memory, slots[i]));
        for (int k = 0; k < i; k++) {
            if (slots[k] == slots[i])
                return sl_fail(SL_EINVAL, "slot %d is twice in a group",
                               slots[i]);
        }
    }
    for (int i = 0; i < count && callbacks; i++)
        SL__TRY(sl_stage_run(stage, SL_PROGRAM_W, memory, slots[i],
                             options ? &options[i] : NULL));
    if (callbacks || count < 1)
        return SL_OK;
    sl__memory_give_back(memory->owner, BACK_GRADIENTS, 0);
    sl__saved saved;
    stage->backend->begin(stage->options.threads, &saved);
    sl_status status = run_group(stage, memory, slots, options, count);
    stage->backend->end(&saved);
    for (int i = 0; i < count; i++)
        memory->slots[slots[i]].state = SLOT_EMPTY;
    return status;
}
