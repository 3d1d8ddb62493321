/* SPDX-License-Identifier: MIT
 *
 * The conformance suite on threads, for several numbers of ranks. */
#include "conformance.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct job {
    sl_comm *comm;
    const conformance_case *test;
} job;

static void *run_rank(void *argument)
{
    job *own = argument;
    own->test->run(own->comm);
    return NULL;
}

static void run_case(int ranks, const conformance_case *test)
{
    sl_comm *ends[16];
    pthread_t threads[16];
    job jobs[16];
    if (sl_threads_create(ranks, ends)) {
        fprintf(stderr, "%s\n", sl_error_text());
        exit(1);
    }
    for (int i = 0; i < ranks; i++) {
        jobs[i] = (job){ends[i], test};
        if (pthread_create(&threads[i], NULL, run_rank, &jobs[i]))
            exit(1);
    }
    for (int i = 0; i < ranks; i++)
        pthread_join(threads[i], NULL);
    for (int i = ranks; i-- > 0;)
        sl_comm_destroy(ends[i]);
}

int main(void)
{
    static const int sizes[] = {1, 2, 3, 4, 8};
    sl_comm *ends[1];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int i = 0; i < conformance_count; i++)
            run_case(sizes[s], &conformance_cases[i]);
    }
    if (sl_threads_create(0, ends) != SL_EINVAL ||
        sl_threads_create(SL_COMM_MAX_RANKS + 1, ends) != SL_EINVAL)
        return 1;
    sl_comm_destroy(NULL);
    printf("%d cases, up to 8 ranks\n", conformance_count);
    return 0;
}
