/* SPDX-License-Identifier: MIT
 *
 * The table of element types. */
#include "base/dtype.h"

typedef struct traits {
    const char *text;
    size_t bytes;
    bool is_float;
    sl_dtype accumulator;
} traits;

static const traits table[] = {
#define SL_DTYPE(name, text, bytes, safetensors, is_float, accumulator)        \
    [SL_##name] = {text, bytes, is_float, SL_##accumulator},
#include "sluice/dtypes.def"
#undef SL_DTYPE
};

/* NULL if there is no such dtype. */
static const traits *find(sl_dtype dtype)
{
    size_t count = sizeof table / sizeof *table;
    return (size_t)dtype < count ? &table[dtype] : NULL;
}

const char *sl_dtype_text(sl_dtype dtype)
{
    const traits *found = find(dtype);
    return found ? found->text : "unknown";
}

size_t sl_dtype_bytes(sl_dtype dtype)
{
    const traits *found = find(dtype);
    return found ? found->bytes : 0;
}

bool sl__is_float(sl_dtype dtype)
{
    const traits *found = find(dtype);
    return found && found->is_float;
}

sl_dtype sl__accumulator(sl_dtype dtype)
{
    const traits *found = find(dtype);
    return found ? found->accumulator : dtype;
}

bool sl__is_computed(sl_dtype dtype)
{
    return find(dtype) && dtype != SL_F16;
}

sl_status sl__refuse_dtype(const char *what, sl_dtype dtype)
{
    if (!find(dtype))
        return sl_fail(SL_EINVAL, "%s: there is no dtype %d", what, (int)dtype);
    return sl_fail(SL_EINVAL, "%s: not for %s", what, sl_dtype_text(dtype));
}
