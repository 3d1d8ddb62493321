/* SPDX-License-Identifier: MIT
 *
 * What fuzz targets share. `must` is an assertion that holds in every build. */
#ifndef SL_FUZZ_H
#define SL_FUZZ_H

#include "sluice/sluice.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define must(condition)                                                        \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
            abort();                                                           \
        }                                                                      \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
