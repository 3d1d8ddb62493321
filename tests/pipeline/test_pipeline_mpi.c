/* SPDX-License-Identifier: MIT
 *
 * Steps on MPI: every schedule computes what the uncut model does, with the
 * bits of ranks on threads. Every process is a rank; run it with mpirun. */
#include "tensor/backends/cpu/cpu.h"
#include "tensor/backends/cpu/gemm/gemm.h"
#include "trials.h"

#include <stdio.h>

/* Whether the gradients of every rank are those that ranks on threads have. */
static int compare_bits(sl_comm *comm, trial *own)
{
    uint64_t here[8] = {0}, threads[8] = {0};
    own->bits = here;
    if (run_trial_rank(comm, own)) {
        fprintf(stderr, "%s\n", sl_error_text());
        return 1;
    }
    own->bits = threads;
    if (sl_threads_run(sl_comm_size(comm), run_trial_rank, own)) {
        fprintf(stderr, "on threads: %s\n", sl_error_text());
        return 1;
    }
    int rank = sl_comm_rank(comm);
    if (here[rank] == threads[rank])
        return 0;
    fprintf(stderr, "rank %d: other bits than on threads\n", rank);
    return 1;
}

/* The same with waits at other places, and receives at others. */
static int compare_forms(sl_comm *comm, const trial *plain,
                         const sl_schedule *order)
{
    static const char *const forms[] = {
        SL_LOWER_DEFAULT_PASSES ",send-budget=0",
        SL_LOWER_DEFAULT_PASSES ",send-budget=1",
        SL_LOWER_DEFAULT_PASSES ",send-budget=4",
        "unshard,reduce-grad,send-recv,defer-recv,wait-send",
        "unshard,reduce-grad,send-recv,defer-recv,wait-send,send-budget=4"};
    uint64_t expected[8] = {0}, found[8] = {0};
    trial own = *plain;
    int rank = sl_comm_rank(comm), failed = 0;
    own.bits = expected;
    failed = run_trial_rank(comm, &own) != SL_OK;
    own.bits = found;
    for (size_t i = 0; i < sizeof forms / sizeof *forms && !failed; i++) {
        sl_schedule *lowered = NULL;
        failed = sl_lower(order, forms[i], NULL, &lowered) != SL_OK;
        own.schedule = lowered;
        if (!failed)
            failed = run_trial_rank(comm, &own) != SL_OK;
        sl_schedule_destroy(lowered);
        if (!failed && found[rank] != expected[rank]) {
            fprintf(stderr, "rank %d: other bits with %s\n", rank, forms[i]);
            return 1;
        }
    }
    if (failed)
        fprintf(stderr, "%s\n", sl_error_text());
    return failed;
}

int main(void)
{
    sl_comm *comm;
    int failed = 0, runs = 0;
    bool ran[32] = {false};
    unsigned way = 0;
    sl__gemm_streamed_from(1); /* As large ones do. */
    if (sl_mpi_create(&comm)) {
        fprintf(stderr, "%s\n", sl_error_text());
        return 1;
    }
    int p = sl_comm_size(comm);
    for (int i = 0; i < 2 * GOLDEN_MODELS && !failed; i++) {
        int g = i / 2;
        sl_safetensors *file = golden_open(golden_models[g].name);
        subject s;
        bool half = i % 2;
        make_subject(g, half ? SL_BF16 : SL_F32, 9, file, &s);
        for (size_t k = 0; sl_generator_at(k) && !failed; k++) {
            for (int v = 1; v <= 2 && !failed; v++) {
                const sl_sizes sizes = {p, v, p == 4 ? 4 : 3};
                const sl_sizes more = {p, v, 2 * p};
                const sl_generator *generator = sl_generator_at(k);
                sl_schedule *order;
                if (sl_generate(generator->name, &sizes, &order) &&
                    sl_generate(generator->name, &more, &order))
                    continue;
                ran[k] = true;
                /* For time's sake, one size of each schedule. */
                if (half || TEST_IS_SANITIZED)
                    v = 2;
                trial t = make_trial(&s, order, way++);
                if (!sl_schedule_extent(order).has_backward)
                    t.steps = 0;
                failed = compare_bits(comm, &t);
                if (!failed && !half && g == GOLDEN_MODELS - 1 && t.steps)
                    failed = compare_forms(comm, &t, order);
                if (failed)
                    fprintf(stderr, "%s, %s, %d stages a rank\n",
                            golden_models[g].name, generator->name, v);
                sl_schedule_destroy(order);
                runs++;
            }
        }
        release_subject(&s);
        sl_safetensors_close(file);
    }
    for (size_t k = 0; sl_generator_at(k) && !failed; k++) {
        failed = !ran[k];
        if (failed)
            fprintf(stderr, "%s never ran\n", sl_generator_at(k)->name);
    }
    if (failed)
        return 1;
    if (sl_comm_rank(comm) == 0)
        printf("%d runs on %d ranks\n", runs, p);
    sl_comm_destroy(comm);
    return 0;
}
