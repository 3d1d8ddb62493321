/* SPDX-License-Identifier: MIT
 *
 * One step that fails, every process a rank: failing_mpi WAY STAGE, where WAY
 * is the program that fails (F, B, I or W), `hang`, `kill` or `absent`; or
 * `beside`, where the rank of that number fails outside of any pipeline. Every
 * rank prints the error that it got, after `heard N: `. */
#include "faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a program of somebody's own does: it reads its data, and waits for others
 * where that is there. */
static sl_status fail_beside(sl_comm *comm, void *context)
{
    const int *failing = context, all[] = {0, 1, 2, 3};
    const sl_group group = {all, 4};
    if (sl_comm_rank(comm) == *failing)
        return sl_fail(SL_ENOTFOUND, "the data is not there");
    return sl_comm_barrier(comm, &group, SL_COMM_OWN_TAG, 30);
}

static int run_beside(int failing)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    sl_status status = sl_run(4, fail_beside, &failing);
    printf("heard %s: %s\n", rank ? rank : "", status ? sl_error_text() : "");
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv)
{
    sl_comm *comm;
    sl_schedule *schedule;
    static job own;
    if (argc == 3 && strcmp(argv[1], "beside") == 0)
        return run_beside(atoi(argv[2]));
    if (argc != 3 || sl_mpi_create(&comm))
        return 1;
    int rank = sl_comm_rank(comm), stage = atoi(argv[2]);
    bool split = argv[1][0] == 'I' || argv[1][0] == 'W';
    bool hangs = strcmp(argv[1], "hang") == 0;
    bool dies = strcmp(argv[1], "kill") == 0;
    bool absent = strcmp(argv[1], "absent") == 0;
    const fault asked = {.stage = absent ? -1 : stage,
                         .program = hangs || dies ? 'F' : argv[1][0],
                         .microbatch = 1,
                         .hangs = hangs,
                         .dies = dies};
    const sl_sizes sizes = {4, 1, MICROBATCHES}, two = {2, 2, MICROBATCHES};
    if (sl_generate(split ? "InterleavedZeroBubble" : "1F1B",
                    split ? &two : &sizes, &schedule))
        return 1;
    own = (job){.asked = &asked,
                .schedule = schedule,
                .timeout_s = hangs || absent || dies ? 1 : 30,
                .wrong_rank = -1,
                .absent_rank = absent ? stage : -1};
    run_faulty_rank(comm, &own);
    printf("heard %d: %s\n", rank, own.ranks[rank].sentence);
    fflush(stdout);
    sl_schedule_destroy(schedule);
    sl_comm_destroy(comm);
    return 0;
}
