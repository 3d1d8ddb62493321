/* SPDX-License-Identifier: MIT
 *
 * Outputs of a pipeline: merges those of all microbatches as the caller says,
 * else along the dimension that the batch was split along. */
#include "pipeline/run/runtime.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/try.h"

#include <string.h>

/* How the caller wants an output merged; NULL: as the batch was split. */
static const sl_merge_options *find_merge_options(const sl_pipeline *pipeline,
                                                  const char *name)
{
    for (int i = 0; i < pipeline->options.merge_count; i++) {
        if (strcmp(pipeline->options.merges[i].name, name) == 0)
            return &pipeline->options.merges[i].how;
    }
    return NULL;
}

sl_status sl__copy_merge_options(sl_pipeline *pipeline)
{
    const sl_output_merge *given = pipeline->options.merges;
    sl_output_merge *own;
    size_t count = (size_t)pipeline->options.merge_count;
    if (pipeline->options.merge_count < 0 || (count && !given))
        return sl_fail(SL_EINVAL, "`merges` is NULL, or merge_count below 0");
    if (count && !pipeline->options.keep_outputs)
        return sl_fail(SL_EINVAL, "`merges` needs keep_outputs");
    SL__TRY(sl__arena_take(&pipeline->arena, count, sizeof *own, &own));
    for (size_t i = 0; i < count; i++) {
        if (!given[i].name)
            return sl_fail(SL_EINVAL, "a merge has no name of an output");
        own[i].how = given[i].how;
        SL__TRY(sl__arena_text(&pipeline->arena, given[i].name,
                               strlen(given[i].name), &own[i].name));
    }
    pipeline->options.merges = own;
    return SL_OK;
}

/* Fails where a merge names an output that does not exist. */
static sl_status check_merge_names(const sl_pipeline *pipeline,
                                   const sl_model *model)
{
    int count;
    const sl_model_port *outputs = sl_model_outputs(model, &count);
    char quoted[SL__QUOTED_MAX];
    for (int i = 0; i < pipeline->options.merge_count; i++) {
        const char *name = pipeline->options.merges[i].name;
        bool found = false;
        for (int k = 0; k < count; k++)
            found |= strcmp(outputs[k].name, name) == 0;
        if (!found)
            return sl_fail(SL_ENOTFOUND, "there is no output '%s' to be merged",
                           sl__quoted(name, strlen(name), quoted));
    }
    return SL_OK;
}

/* The dtype and shape of one part of a merge. A scalar is one row. */
static sl_status describe_part(const sl__binding *binding,
                               const sl_model_port *output, int microbatch,
                               sl_array *out)
{
    sl_port own;
    const sl__variant *variant =
        sl__variant_of(binding, output->stages[0], microbatch);
    SL__TRY(sl_stage_port(variant->program_stage, SL_PORT_OUTPUT, output->name,
                          &own));
    *out = (sl_array){.dtype = own.dtype, .dims = own.dims ? own.dims : 1};
    memcpy(out->shape, own.shape, sizeof out->shape);
    if (own.dims == 0)
        out->shape[0] = 1;
    return SL_OK;
}

/* Whether parts can be joined along the dimension that the batch was split
 * along: each has the rows of its microbatch there. */
static bool is_split_along(const sl__binding *binding, const sl_array *parts,
                           int microbatches, int dim)
{
    for (int m = 0; m < microbatches; m++) {
        if (dim >= parts[m].dims || parts[m].shape[dim] != binding->rows[m])
            return false;
    }
    return true;
}

static sl_status make_merge(const sl_pipeline *pipeline, sl__binding *binding,
                            const sl_model_port *output, sl_array *parts,
                            sl_merge **out)
{
    int microbatches = pipeline->microbatches, dim = binding->split_dim;
    const sl_merge_options *wanted = find_merge_options(pipeline, output->name);
    sl_merge_options how = SL_MERGE_OPTIONS_INIT;
    for (int m = 0; m < microbatches; m++)
        SL__TRY(describe_part(binding, output, m, &parts[m]));
    if (wanted)
        how = *wanted;
    else if (output->dims > 0 && dim > 0)
        how.dim = dim;
    /* A scalar is one row of each microbatch, however these were split. Another
     * output without their rows is refused only when it is asked for. */
    if (!wanted && output->dims > 0 && dim != 0 &&
        !is_split_along(binding, parts, microbatches,
                        dim < 0 ? SL_DIMS_MAX : dim))
        return SL_OK;
    sl_status status =
        sl__merge_create(&how, parts, binding->rows[0] ? binding->rows : NULL,
                         microbatches, binding->dry, out);
    /* Parts that do not fit together are also refused only then. */
    return status == SL_EINVAL && !wanted ? SL_OK : status;
}

void sl__destroy_merges(sl__binding *binding)
{
    int count = 0;
    if (binding->model)
        sl_model_outputs(binding->model, &count);
    for (int i = 0; i < count && binding->merges; i++) {
        sl_merge_destroy(binding->merges[i]);
        binding->merges[i] = NULL;
    }
    binding->output_bytes = 0;
}

sl_status sl__make_merges(const sl_pipeline *pipeline, sl__binding *binding,
                          int split_dim)
{
    int count;
    const sl_model_port *outputs = sl_model_outputs(binding->model, &count);
    sl_array *parts = NULL;
    if (!pipeline->options.keep_outputs)
        return SL_OK;
    SL__TRY(check_merge_names(pipeline, binding->model));
    sl__destroy_merges(binding);
    binding->split_dim = split_dim;
    SL__TRY(sl__alloc((size_t)pipeline->microbatches, sizeof *parts, &parts));
    sl_status status = SL_OK;
    for (int i = 0; i < count && !status; i++) {
        if (!sl__is_own(pipeline, outputs[i].stages[0]))
            continue;
        status = make_merge(pipeline, binding, &outputs[i], parts,
                            &binding->merges[i]);
        if (!status && binding->merges[i])
            binding->output_bytes += sl__merge_bytes(binding->merges[i]);
    }
    free(parts);
    return status;
}

/* Finds the merge of an output in the latest step. */
static sl_status find_merge(const sl_pipeline *pipeline, const char *name,
                            sl_merge **out)
{
    int count = 0;
    char quoted[SL__QUOTED_MAX];
    const sl__binding *binding = pipeline->last;
    const sl_model_port *outputs =
        binding ? sl_model_outputs(binding->model, &count) : NULL;
    sl__quoted(name, strlen(name), quoted);
    for (int i = 0; i < count; i++) {
        if (strcmp(outputs[i].name, name) != 0)
            continue;
        *out = binding->merges[i];
        if (*out)
            return SL_OK;
        if (pipeline->options.keep_outputs &&
            sl__is_own(pipeline, outputs[i].stages[0]))
            return sl_fail(SL_EINVAL,
                           "output '%s' does not have the rows of its "
                           "microbatch along the dimension that the batch was "
                           "split along: say in `merges` how to put it "
                           "together",
                           quoted);
    }
    return sl_fail(SL_ENOTFOUND, "rank %d has kept no output '%s'",
                   sl_comm_rank(pipeline->comm), quoted);
}

sl_status sl_pipeline_output(sl_pipeline *pipeline, const char *name,
                             sl_array *out)
{
    SL__NEED(pipeline, name, out);
    sl_merge *merge;
    SL__TRY(find_merge(pipeline, name, &merge));
    return sl_merge_finish(merge, out);
}

sl_status sl_pipeline_output_part(const sl_pipeline *pipeline, const char *name,
                                  int microbatch, sl_array *out)
{
    SL__NEED(pipeline, name, out);
    sl_merge *merge;
    SL__TRY(find_merge(pipeline, name, &merge));
    return sl_merge_part(merge, microbatch, out);
}
