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
    bool latency_given;
    bool bandwidth_given;
    bool overlap_given;
    bool message_bytes_given;
    bool activation_bytes_given;
} costs_request;

enum {
    COSTS_UNIT = 512,
    COSTS_COST,
    COSTS_COSTS,
    COSTS_LATENCY,
    COSTS_BANDWIDTH,
    COSTS_MESSAGE_BYTES,
    COSTS_ACTIVATION_BYTES,
    COSTS_OVERLAP
};

/* The parser of these keys; costs.def has their entries of a table. */
error_t costs_parse(int key, char *arg, costs_request *asked);

/* Whether any of them was given. */
bool costs_given(const costs_request *asked);

/* Puts what is asked for over `costs`, to be cleared; returns 0, or the exit
 * status after saying what is wrong. */
int costs_make(const char *verb, const costs_request *asked, sl_costs *costs);

#endif
