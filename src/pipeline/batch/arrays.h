/* SPDX-License-Identifier: MIT
 *
 * Slices of contiguous arrays along a dimension, for splitting and merging. */
#ifndef SL_PIPELINE_ARRAYS_H
#define SL_PIPELINE_ARRAYS_H

#include "base/device.h"
#include "sluice/pipeline.h"

/* An array seen along one dimension: `outer` times a run of `rows`, each of
 * `row_bytes`. A slice of rows lies in one piece where `outer` is 1. */
typedef struct sl__rows {
    int64_t outer;
    int64_t rows;
    int64_t row_bytes;
} sl__rows;

sl__rows sl__along(const sl_array *array, int dim);
int64_t sl__array_bytes(const sl_array *array);

/* Refuses an array that is none; `what` names it: "argument 'x'". */
sl_status sl__check_array(const sl_array *array, const char *what);

/* Resolves a dimension that may count from the end. */
sl_status sl__check_dim(const sl_array *array, const char *what, int *dim);

/* Copies `count` rows from one array, from its `from`-th on, into another, from
 * its `to`-th on; the two differ in their number of rows alone. `move` is how a
 * stream moves them: to, from or within memory of its device. */
sl_status sl__copy_rows(sl__stream *stream, sl__move_fn move,
                        const sl__rows *source, const void *from_data,
                        int64_t from, const sl__rows *target, void *to_data,
                        int64_t to, int64_t count);

/* Whether an array has dtype and shape of another, but for dimension `dim`
 * (none below 0); what it should be like is in `out_like`. */
bool sl__is_like(const sl_array *array, const sl_array *other, int dim,
                 sl_array *out_like);

/* "f32 (8, 24)"; returns `out`. */
enum { SL__ARRAY_TEXT = 176 };
const char *sl__array_text(const sl_array *array, char out[SL__ARRAY_TEXT]);

#endif
