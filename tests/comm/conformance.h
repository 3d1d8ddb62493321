/* SPDX-License-Identifier: MIT
 *
 * What every transport must do, as functions that each rank runs. One that
 * finds a fault ends the process with a sentence. */
#ifndef SL_TEST_CONFORMANCE_H
#define SL_TEST_CONFORMANCE_H

#include "sluice/sluice.h"

typedef struct conformance_case {
    const char *name;
    void (*run)(sl_comm *comm);
    bool ends; /* the transport is of no use afterwards */
} conformance_case;

extern const conformance_case conformance_cases[];
extern const int conformance_count;

#endif
