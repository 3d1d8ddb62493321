/* SPDX-License-Identifier: MIT
 *
 * Which instruction sets oneDNN may use. Some CPUs claim AMX and kill the
 * process when it is used (a hypervisor that does not enable the tiles); oneDNN
 * believes the claim. So where AMX is claimed, a child process tries it first:
 * whatever happens to the child, the parent lives and knows. */
#include "tensor/backends/cpu/gemm/product.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

enum { PATIENCE_SECONDS = 20 };

/* Whether the CPU says that it has AMX tiles. */
static bool claims_amx(void)
{
#ifdef __x86_64__
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1);
#else
    return false;
#endif
}

static bool ends_well(pid_t child, int seconds)
{
    const struct timespec pause = {0, 2000000};
    for (int64_t waited_ms = 0; waited_ms < seconds * 1000; waited_ms += 2) {
        int status;
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child)
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (ended < 0)
            return false;
        nanosleep(&pause, NULL);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return false;
}

bool sl__survives_in_child(int (*attempt)(void), int seconds)
{
    pid_t child = fork();
    if (child < 0)
        return false;
    if (child == 0) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGILL, SIG_DFL);
        signal(SIGSEGV, SIG_DFL);
        close(STDERR_FILENO); /* A dying child has nothing to say here. */
        _exit(attempt());
    }
    return ends_well(child, seconds);
}

/* A product in bf16, which oneDNN runs on AMX where it believes in it, against
 * its known result. One thread: a child of fork has no other. */
int sl__dnn_try_amx(void)
{
    enum { SIZE = 64 };
    static uint16_t ones[SIZE * SIZE];
    static float out[SIZE * SIZE];
    static char scratch[1 << 20];
    const sl__product_spec spec = {.batch = 1,
                                   .m = SIZE,
                                   .n = SIZE,
                                   .k = SIZE,
                                   .src = {0, SIZE, 1},
                                   .weights = {0, SIZE, 1},
                                   .dst = {0, SIZE, 1},
                                   .type = dnnl_bf16,
                                   .activation = SL__OP_COUNT};
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    sl__product product;
    for (int i = 0; i < SIZE * SIZE; i++)
        ones[i] = 0x3f80; /* 1 in bf16 */
    sl__set_team((sl__team){1, 0});
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) ||
        dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) ||
        sl__product_create(engine, &spec, &product) ||
        product.scratch_bytes > (int64_t)sizeof scratch)
        return 1;
    const struct {
        int name;
        const sl__md *md;
        void *data;
    } parts[] = {{DNNL_ARG_SRC, &product.src, ones},
                 {DNNL_ARG_WEIGHTS, &product.weights, ones},
                 {DNNL_ARG_DST, &product.dst, out},
                 {DNNL_ARG_SCRATCHPAD, &product.scratch, scratch}};
    dnnl_exec_arg_t args[4];
    int count = product.scratch.set ? 4 : 3;
    for (int i = 0; i < count; i++) {
        args[i].arg = parts[i].name;
        if (dnnl_memory_create(&args[i].memory, sl__md_use(parts[i].md), engine,
                               parts[i].data))
            return 1;
    }
    if (dnnl_primitive_execute(product.primitive, stream, count, args) ||
        dnnl_stream_wait(stream))
        return 1;
    for (int i = 0; i < SIZE * SIZE; i++) {
        if (out[i] != SIZE)
            return 1;
    }
    return 0;
}

sl_status sl__dnn_cap_unless(bool claims, int (*attempt)(void))
{
    if (!claims || sl__survives_in_child(attempt, PATIENCE_SECONDS))
        return SL_OK;
    dnnl_status_t status = dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
    if (!status)
        return SL_OK;
    return sl_fail(SL_EINVAL,
                   "AMX does not work here and oneDNN cannot be kept from it "
                   "(status %d: it may have been used before); set "
                   "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16",
                   (int)status);
}

bool sl__amx_works(int (*attempt)(void))
{
    return claims_amx() && sl__survives_in_child(attempt, PATIENCE_SECONDS);
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value;
}

static sl_status cap_status;
static char cap_text[256];

static void cap_once(void)
{
    /* Who has set a cap in the environment has decided. */
    if (is_set("ONEDNN_MAX_CPU_ISA") || is_set("DNNL_MAX_CPU_ISA"))
        return;
    cap_status = sl__dnn_cap_unless(claims_amx(), sl__dnn_try_amx);
    if (cap_status)
        snprintf(cap_text, sizeof cap_text, "%s", sl_error_text());
}

sl_status sl__dnn_cap_isa(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, cap_once);
    return cap_status ? sl_fail(cap_status, "%s", cap_text) : SL_OK;
}
