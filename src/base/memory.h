/* SPDX-License-Identifier: MIT
 *
 * Allocation that reports failure as a status, and growable arrays.
 *
 * Invariant: no size computed here can overflow; a request too large for the
 * machine is SL_ENOMEM with a sentence, never a crash. */
#ifndef SL_BASE_MEMORY_H
#define SL_BASE_MEMORY_H

#include "sluice/base.h"

#include <stdlib.h>

/* Allocates `count` zeroed elements of `size` bytes; count 0 gives a valid
 * pointer. Freed with free(). */
sl_status sl__alloc(size_t count, size_t size, void *out_pointer);

/* Makes room for at least `need` elements in the array `*data`, at least
 * doubling its capacity when it must grow. */
sl_status sl__grow(void *data, size_t *capacity, size_t need, size_t size);

#endif
