/* SPDX-License-Identifier: MIT
 *
 * The options of verbs that lower schedules, and the passes they stand for. */
#ifndef SL_CLI_LOWERING_H
#define SL_CLI_LOWERING_H

#include "cli.h"

typedef struct lowering {
    sl_lower_options options;
    int lookahead[SL_MAX_RANKS]; /* of a LIST */
    int budget;                  /* -1: none */
    bool defers;                 /* --recv defer */
    int before_2_15;             /* --for */
} lowering;
#define LOWERING_INIT                                                          \
    {                                                                          \
        .options = SL_LOWER_OPTIONS_INIT, .budget = -1                         \
    }

/* lowering.def has entries of a table of options; these are its parsers. */
#define LOWERING_RECV        "asap|late|defer"
#define LOWERING_REDUCE_WAIT "now|late"
error_t lowering_parse_recv(const char *text, void *asked);
error_t lowering_parse_budget(const char *text, void *budget);
error_t lowering_parse_reduce_wait(const char *text, void *wait);
error_t lowering_parse_lookahead(const char *text, void *asked);

/* All of them; for CLI_GIVEN. */
#define LOWERING_OPTIONS                                                       \
    "for", "recv", "send-budget", "reduce-wait", "unshard-window",             \
        "unshard-lookahead"

/* Refuses options that contradict each other. */
int lowering_check(const char *verb, const lowering *asked);

/* Lowers a schedule: a compute-only one whole; of one that is lowered already
 * only waits and receives are changed, for the form asked for. */
sl_status lowering_run(const lowering *asked, const sl_schedule *in,
                       sl_schedule **out);

/* Adds messages alone, as `--as comms`. */
sl_status lowering_run_messages(const lowering *asked, const sl_schedule *in,
                                sl_schedule **out);

#endif
