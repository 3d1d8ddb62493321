/* SPDX-License-Identifier: MIT
 *
 * Whether AMX may be used. Some CPUs report it and kill the process that uses
 * it (under a hypervisor that does not enable the tiles). So a child process
 * tries it first: whatever happens to the child, the parent goes on and knows
 * the result. */
#include "tensor/backends/cpu/cpu.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

#define VARIABLE "SLUICE_AMX"

enum { PATIENCE_SECONDS = 20 };

/* Whether the CPU reports AMX tiles. */
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
        close(STDERR_FILENO); /* Messages of a crash are of no use. */
        _exit(attempt());
    }
    return ends_well(child, seconds);
}

bool sl__amx_is_asked(const char *value)
{
    const char *asked = getenv(VARIABLE);
    return asked && strcmp(asked, value) == 0;
}

sl_status sl__amx_check_environment(void)
{
    const char *value = getenv(VARIABLE);
    if (!value || !*value || sl__amx_is_asked("always") ||
        sl__amx_is_asked("never"))
        return SL_OK;
    return sl_fail(SL_EINVAL, VARIABLE " is '%s', expected always or never",
                   value);
}

static bool works;

/* The second try is for this process, which needs tiles itself. */
static void try_once(void)
{
    works = claims_amx() &&
            sl__survives_in_child(sl__try_amx, PATIENCE_SECONDS) &&
            sl__try_amx() == 0;
}

bool sl__has_amx(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (sl__amx_is_asked("never"))
        return false;
    pthread_once(&once, try_once);
    return works;
}
