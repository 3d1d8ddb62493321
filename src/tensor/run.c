/* SPDX-License-Identifier: MIT
 *
 * The run: walks the kernels of a program with operands resolved from (pool,
 * offset). Nothing is allocated, looked up or decided here that could have been
 * before. */
#include "tensor/memory.h"

#include "base/arguments.h"

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

/* Makes kernels forget what they hold for gradients that have begun anew, here
 * or by way of another memory. */
static void drop_held(sl_memory *memory)
{
    const sl_stage *stage = memory->stage;
    for (size_t i = 0; i < stage->graph->node_count; i++) {
        if (stage->held_offsets[i] >= 0)
            stage->backend->clear((char *)memory->workspace +
                                      stage->held_offsets[i],
                                  SL__ALIGNMENT);
    }
    memory->held_at = memory->owner->zeroed;
}

static sl_status run_kernels(const sl_stage *stage, sl_program program,
                             sl_memory *memory, const microbatch *slot,
                             const sl__run *run)
{
    sl_status status = SL_OK;
    if (memory->held_at != memory->owner->zeroed)
        drop_held(memory);
    if (memory->packed_at != memory->owner->written)
        status = run_packs(memory, slot, run);
    const sl__kernel *kernel = stage->kernels[program];
    const sl__kernel *end = kernel + stage->programs[program].count;
    for (; kernel < end && !status; kernel++)
        status = run_kernel(kernel, slot->bases, memory->pointers, run);
    return status;
}

sl_status sl__memory_pack(sl_memory *memory)
{
    const sl_stage *stage = memory->stage;
    if (memory->packed_at == memory->owner->written || stage->packs.count == 0)
        return SL_OK;
    const microbatch *slot = &memory->slots[0];
    sl__run run = {slot->states,           0,          1,
                   stage->options.threads, SL_ADD_NOW, false};
    sl__saved saved;
    stage->backend->begin(run.threads, &saved);
    sl_status status = run_packs(memory, slot, &run);
    stage->backend->end(&saved);
    return status;
}

bool sl__stage_waits(const sl_stage *stage)
{
    for (size_t i = 0; stage->held_offsets && i < stage->graph->node_count;
         i++) {
        if (stage->held_offsets[i] >= 0)
            return true;
    }
    return false;
}

bool sl__stage_takes_along(const sl_stage *stage, bool lends)
{
    const sl__turns *weights = &stage->programs[SL_PROGRAM_W];
    bool any = false, all = stage->programs[SL_PROGRAM_B].exists;
    for (size_t i = 0; i < weights->count && all; i++) {
        const sl__kernel *kernel = &stage->kernels[SL_PROGRAM_W][i];
        bool is_product = kernel->node->op == SL__MATMUL;
        any = any || is_product;
        all = !is_product || kernel->holds_all || (kernel->reads_far && lends);
    }
    return weights->exists && any && all;
}

sl_status sl_memory_settle(sl_memory *memory)
{
    SL__NEED(memory);
    const sl_stage *stage = memory->stage;
    bool split = stage->programs[SL_PROGRAM_W].exists;
    int program = split ? SL_PROGRAM_W : SL_PROGRAM_B;
    const microbatch *slot = &memory->slots[0];
    const sl__run run = {slot->states,           0,          1,
                         stage->options.threads, SL_ADD_NOW, true};
    sl_status status = SL_OK;
    sl__saved saved;
    if (memory->held_at != memory->owner->zeroed)
        drop_held(memory);
    stage->backend->begin(run.threads, &saved);
    for (size_t i = 0; i < stage->programs[program].count && !status; i++) {
        const sl__kernel *kernel = &stage->kernels[program][i];
        if (kernel->held_bytes)
            status = run_kernel(kernel, slot->bases, memory->pointers, &run);
    }
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
    sl__run run = {slot->states,           slot->seed,      options->loss_scale,
                   stage->options.threads, options->adding, false};
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
