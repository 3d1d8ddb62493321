/* SPDX-License-Identifier: MIT
 *
 * What the executor uses of batches and merges besides the public header; and
 * slices of contiguous arrays along a dimension, for both. */
#ifndef SL_PIPELINE_BATCH_H
#define SL_PIPELINE_BATCH_H

#include "base/device.h"
#include "sluice/pipeline.h"

/* ---------------------------------------------------------- arrays.c -- */

/* An array seen along one dimension: `outer` times a run of `rows`, each of
 * `row_bytes`. A slice of rows lies in one piece where `outer` is 1. */
typedef struct sl__rows {
    int64_t outer;
    int64_t rows;
    int64_t row_bytes;
} sl__rows;

sl__rows sl__along(const sl_array *array, int dim);
int64_t sl__array_bytes(const sl_array *array);

/* Refuses an invalid dtype, number of dimensions or size; `what` names the
 * array: "argument 'x'". */
sl_status sl__check_array(const sl_array *array, const char *what);

/* Resolves a dimension that may count from the end. */
sl_status sl__check_dim(const sl_array *array, const char *what, int *dim);

/* Copies `count` rows of one array, from row `from` on, to row `to` of another.
 * The arrays differ only in their number of rows. `move` is the stream's
 * operation for the copy: to, from or within memory of its device. */
sl_status sl__copy_rows(sl__stream *stream, sl__move_fn move,
                        const sl__rows *source, const void *from_data,
                        int64_t from, const sl__rows *target, void *to_data,
                        int64_t to, int64_t count);

/* Whether an array has the dtype and shape of another, except in dimension
 * `dim` (negative: no exception). `out_like` gets what it is expected to be. */
bool sl__is_like(const sl_array *array, const sl_array *other, int dim,
                 sl_array *out_like);

/* "f32 (8, 24)"; returns `out`. */
enum { SL__ARRAY_TEXT = 176 };
const char *sl__array_text(const sl_array *array, char out[SL__ARRAY_TEXT]);

/* ----------------------------------------------------------- batch.c -- */

/* Makes a batch use the data of other arguments, if these differ from its own
 * only in their data; else returns false and changes nothing. Allocates
 * nothing. */
bool sl__batch_reuse(sl_batch *batch, const sl_argument *arguments, int count);

/* The dimension that all split arguments are split along; -1 where they are
 * split along several, 0 where nothing is split. */
int sl__batch_dim(const sl_batch *batch);

/* sl_batch_copy into memory of a device. */
sl_status sl__batch_load(const sl_batch *batch, int argument, int microbatch,
                         sl__stream *stream, void *out, size_t bytes);

/* ----------------------------------------------------------- merge.c -- */

/* sl_merge_create. A dry run allocates no memory for the outputs; its merge can
 * only be given to sl__merge_bytes. */
sl_status sl__merge_create(const sl_merge_options *options,
                           const sl_array *parts, const int64_t *rows,
                           int microbatches, bool dry, sl_merge **out);

/* Bytes that a merge holds, or in a dry run would hold. */
int64_t sl__merge_bytes(const sl_merge *merge);

/* sl_merge_put from memory of a device. */
sl_status sl__merge_collect(sl_merge *merge, int microbatch, sl__stream *stream,
                            const void *data, size_t bytes);

#endif
