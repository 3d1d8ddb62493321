/* SPDX-License-Identifier: MIT
 *
 * Iterates over the parameters of a rank, and finds which are tied. */
#include "train/train.h"

#include "base/dtype.h"
#include "base/try.h"
#include "tensor/program.h"

#include <math.h>
#include <string.h>

sl_status sl__each_parameter(const sl_pipeline *pipeline, sl_port_kind kind,
                             sl__parameter_fn act, void *context)
{
    int stages;
    const int *all = sl_pipeline_stages(pipeline, &stages);
    for (int s = 0; s < stages; s++) {
        sl__parameter own = {.stage = all[s]};
        SL__TRY(sl_pipeline_stage(pipeline, all[s], &own.program_stage,
                                  &own.memory));
        int count = sl_stage_port_count(own.program_stage, kind);
        for (int i = 0; i < count; i++) {
            SL__TRY(sl_stage_port_at(own.program_stage, kind, i, &own.port));
            SL__TRY(act(context, &own));
        }
    }
    return SL_OK;
}

bool sl__is_finite(sl_dtype dtype, const void *data, size_t bytes)
{
    bool all = true;
    if (dtype == SL_F32) {
        const float *x = data;
        for (size_t i = 0; i < bytes / sizeof *x; i++)
            all &= isfinite(x[i]) != 0;
    } else if (dtype == SL_BF16 || dtype == SL_F16) {
        /* Halves are finite as f32 as they are by themselves. */
        const char *at = data;
        float wide[512];
        for (size_t left = bytes / 2, now; left > 0;
             left -= now, at += 2 * now) {
            now = left < 512 ? left : 512;
            if (sl__convert_floats(SL_F32, wide, dtype, at, (int64_t)now))
                return false;
            all &= sl__is_finite(SL_F32, wide, now * sizeof *wide);
        }
    } else if (dtype == SL_F64) {
        const double *x = data;
        for (size_t i = 0; i < bytes / sizeof *x; i++)
            all &= isfinite(x[i]) != 0;
    }
    return all;
}

static sl_status check_one(void *context, const sl__parameter *own)
{
    _Alignas(double) char piece[1 << 14];
    size_t bytes = (size_t)own->port.bytes;
    (void)context;
    if (!sl__port_memory(own->memory, &own->port, 0))
        return SL_OK; /* Parameters of callbacks are not checked. */
    for (size_t at = 0; at < bytes; at += sizeof piece) {
        size_t now = bytes - at < sizeof piece ? bytes - at : sizeof piece;
        SL__TRY(sl__memory_read_piece(own->memory, &own->port, at, piece, now));
        if (!sl__is_finite(own->port.dtype, piece, now))
            return sl_fail(SL_EFAIL, "'%.100s' has numbers that are not finite",
                           own->port.name);
    }
    return SL_OK;
}

sl_status sl__check_finite(const sl_pipeline *pipeline)
{
    return sl__each_parameter(pipeline, SL_PORT_PARAMETER, check_one, NULL);
}

const sl_tie *sl__find_tie(const sl_model *model, int stage, const char *name,
                           bool *out_first)
{
    int count;
    const sl_tie *ties = sl_model_ties(model, &count);
    *out_first = true;
    for (int t = 0; t < count; t++) {
        for (int k = 0; k < ties[t].stage_count; k++) {
            if (ties[t].stages[k] != stage ||
                strcmp(ties[t].stage_names[k], name) != 0)
                continue;
            *out_first = k == 0;
            return &ties[t];
        }
    }
    return NULL;
}

const char *sl__tied_name(const sl_model *model, int stage, const char *name)
{
    bool first;
    const sl_tie *tie = sl__find_tie(model, stage, name, &first);
    return tie ? tie->stage_names[0] : name;
}
