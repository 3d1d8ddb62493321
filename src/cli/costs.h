/* SPDX-License-Identifier: MIT
 *
 * The options of verbs that simulate: what compute and messages cost. */
#ifndef SL_CLI_COSTS_H
#define SL_CLI_COSTS_H

#include "cli.h"

typedef struct costs_request {
    const char *cost; /* --cost, not yet parsed */
    const char *file; /* --costs */
    double latency;
    double bandwidth;
    double overlap;
    int64_t message_bytes;
    int64_t activation_bytes;
    bool unit;
} costs_request;

/* The parser of --bandwidth; costs.def has the entries of a table. */
error_t costs_parse_bandwidth(const char *text, void *out);

/* Whether any of them was given. */
bool costs_given(void);

/* Puts what is asked for over `costs`, to be cleared; returns 0, or the exit
 * status after saying what is wrong. */
int costs_make(const char *verb, const costs_request *asked, sl_costs *costs);

#endif
