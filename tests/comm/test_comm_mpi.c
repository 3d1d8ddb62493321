/* SPDX-License-Identifier: MIT
 *
 * The conformance suite on MPI; run it with mpirun. */
#include "conformance.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Runs what ends the transport; ranks leave when all have had time to. */
static int run_last(sl_comm *comm)
{
    for (int i = 0; i < conformance_count; i++) {
        if (conformance_cases[i].ends)
            conformance_cases[i].run(comm);
    }
    puts("heard");
    fflush(stdout);
    nanosleep(&(struct timespec){1, 0}, NULL);
    sl_comm_destroy(comm);
    return 0;
}

int main(int argc, char **argv)
{
    sl_comm *comm;
    if (sl_mpi_create(&comm)) {
        fprintf(stderr, "%s\n", sl_error_text());
        return 1;
    }
    if (argc > 1 && strcmp(argv[1], "abort") == 0)
        return run_last(comm);
    int ranks[SL_COMM_MAX_RANKS], rank = sl_comm_rank(comm);
    for (int i = 0; i < sl_comm_size(comm); i++)
        ranks[i] = i;
    const sl_group all = {ranks, sl_comm_size(comm)};
    for (int i = 0; i < conformance_count; i++) {
        if (conformance_cases[i].ends)
            continue;
        conformance_cases[i].run(comm);
        if (sl_comm_barrier(comm, &all, 100, 60)) {
            fprintf(stderr, "%s\n", sl_error_text());
            return 1;
        }
    }
    if (rank == 0)
        printf("%d ranks\n", all.count);
    sl_comm_destroy(comm);
    return 0;
}
