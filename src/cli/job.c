/* SPDX-License-Identifier: MIT
 *
 * Ranks: on threads, or as processes that a launcher started; and what these
 * exchange before they begin. */
#include "cli.h"

/* Between what pipelines use and what a bench does. */
enum { TAG = SL_COMM_OWN_TAG };

static sl_group everybody(sl_comm *comm, int *ranks)
{
    for (int i = 0; i < sl_comm_size(comm); i++)
        ranks[i] = i;
    return (sl_group){ranks, sl_comm_size(comm)};
}

sl_status cli_run_ranks(sl_comm *comm, int ranks, sl_rank_fn run, void *context)
{
    return comm ? run(comm, context) : sl_threads_run(ranks, run, context);
}

sl_status cli_share(sl_comm *comm, void *data, size_t bytes, double timeout_s)
{
    int ranks[SL_COMM_MAX_RANKS];
    const sl_group all = everybody(comm, ranks);
    return sl_comm_broadcast(comm, &all, TAG, 0, data, bytes, timeout_s);
}

sl_status cli_sum(sl_comm *comm, double *number, double timeout_s)
{
    int ranks[SL_COMM_MAX_RANKS];
    const sl_group all = everybody(comm, ranks);
    return sl_comm_allreduce(comm, &all, TAG, SL_F64, number, 1, timeout_s);
}

sl_status cli_agree(sl_comm *comm, const sl_comm_item *items, int count,
                    double timeout_s)
{
    int ranks[SL_COMM_MAX_RANKS];
    const sl_group all = everybody(comm, ranks);
    return sl_comm_agree(comm, &all, TAG, items, count, timeout_s);
}

int cli_check_vocabulary(const char *verb, const sl_tokens *tokens,
                         const char *data, int vocabulary)
{
    if (!sl_tokens_are_bytes(tokens) || vocabulary == 256)
        return CLI_DONE;
    return cli_say(verb, CLI_WRONG,
                   "%.200s is text, whose tokens are its bytes, and the model "
                   "has a vocabulary of %d: give a .bin file of its own token "
                   "ids",
                   data, vocabulary);
}
