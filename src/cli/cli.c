/* SPDX-License-Identifier: MIT
 *
 * Messages and documents, for all verbs: one sentence on standard error, the
 * exit status that fits, whole files. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

_Static_assert(SL_ASYNC == 0 && SL_PER_EDGE == 1 && SL_ORDERED == 2 &&
                   SL_BLOCKING == 3,
               "the order of CLI_COMM_WORDS");

int cli_say(const char *verb, int status, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    /* Through sl_fail, which keeps a sentence to one line of plain text. */
    sl_fail(SL_EINVAL, "%s", text);
    fprintf(stderr, "sluice%s%s: %s\n", *verb ? " " : "", verb,
            sl_error_text());
    return status;
}

int cli_result(const char *verb, sl_status status)
{
    if (!status)
        return CLI_DONE;
    bool wrong = status == SL_EINVAL || status == SL_EPARSE ||
                 status == SL_ENOTFOUND || status == SL_EIO;
    if (status == SL_ETIME) {
        /* A report, of several lines. */
        fprintf(stderr, "sluice %s: %s\n", verb, sl_error_text());
        return CLI_FAILED;
    }
    return cli_say(verb, wrong ? CLI_WRONG : CLI_FAILED, "%s", sl_error_text());
}

/* Whether a failure to write standard output was said already. */
static bool said_unwritable;

int cli_flush(const char *verb, sl_status status)
{
    if (status && status != SL_EIO)
        return cli_result(verb, status);
    if (!status && fflush(stdout) == 0 && !ferror(stdout))
        return CLI_DONE;
    said_unwritable = true;
    return cli_say(verb, CLI_WRONG, "cannot write to standard output: %s",
                   strerror(errno ? errno : EIO));
}

void cli_flush_at_exit(void)
{
    /* argp leaves from inside after --help, without looking. */
    if (!said_unwritable && cli_flush("", SL_OK))
        _exit(CLI_WRONG);
}

/* The file that is being written beside its final name; empty: none. */
static char part[4200];

/* Whoever ends the program does not leave half a file behind. */
static void on_end(int number)
{
    if (part[0])
        unlink(part);
    signal(number, SIG_DFL);
    raise(number);
}

static const int ends[] = {SIGINT, SIGTERM, SIGHUP};

/* Watches signals that nobody else does; or no more. */
static void watch_ends(bool on)
{
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        void (*had)(int) = signal(ends[i], on ? on_end : SIG_DFL);
        if (had != (on ? SIG_DFL : on_end))
            signal(ends[i], had);
    }
}

/* Opens what a file of this name will be: a file beside it, whose name is then
 * in `part`; or itself, where it is no plain file of ours alone, or the folder
 * takes no other. */
static FILE *open_part(const char *path)
{
    struct stat info;
    bool there = lstat(path, &info) == 0;
    bool plain = !there || (S_ISREG(info.st_mode) && info.st_nlink == 1 &&
                            info.st_uid == geteuid());
    part[0] = '\0';
    if (there && access(path, W_OK) != 0)
        return NULL;
    char name[sizeof part];
    int length =
        snprintf(name, sizeof name, "%s.%ld.part", path, (long)getpid());
    int fd = plain && (size_t)length < sizeof name
                 ? open(name, O_WRONLY | O_CREAT | O_EXCL, 0666)
                 : -1;
    if (fd < 0)
        return cli_open_output(path, false);
    if (there)
        fchmod(fd, info.st_mode & 07777);
    memcpy(part, name, sizeof part);
    return fdopen(fd, "w");
}

int cli_write_to(const char *verb, const char *path, cli_document document,
                 const void *what)
{
    if (strcmp(path, "-") == 0)
        return cli_flush(verb, document(what, sl_write_stdio, stdout));
    FILE *file = open_part(path);
    if (!file)
        return cli_say_unwritable(verb, path);
    watch_ends(true);
    sl_status status = document(what, sl_write_stdio, file);
    if (fclose(file) != 0 && !status)
        status = sl_fail(SL_EIO, "cannot write: %s", strerror(errno));
    if (!status && part[0] && rename(part, path) != 0)
        status = sl_fail(SL_EIO, "cannot write: %s", strerror(errno));
    int exit_status = CLI_DONE;
    if (status)
        exit_status =
            cli_say(verb, CLI_WRONG, "%.200s: %s", path, sl_error_text());
    if (status && part[0])
        unlink(part);
    part[0] = '\0';
    watch_ends(false);
    return exit_status;
}

int cli_check_writable(const char *verb, const char *path)
{
    char folder[4200];
    struct stat info;
    if (!path || strcmp(path, "-") == 0)
        return CLI_DONE;
    size_t length = strlen(path);
    snprintf(folder, sizeof folder, "%s", path);
    if (stat(path, &info) == 0) {
        errno = S_ISDIR(info.st_mode) ? EISDIR : 0;
        if (!errno && access(path, W_OK) == 0)
            return CLI_DONE;
    } else if (length == 0 || path[length - 1] == '/' ||
               lstat(path, &info) == 0) {
        errno = ENOENT; /* no name, or a link to nowhere */
    } else if (access(dirname(folder), W_OK) == 0) {
        return CLI_DONE;
    }
    return cli_say(verb, CLI_WRONG, "cannot write %.200s: %s",
                   length ? path : "a file without a name", strerror(errno));
}

const char *cli_amount(double value, const char *unit, char out[32])
{
    static const char prefixes[][2] = {"", "k", "M", "G", "T", "P", "E"};
    int prefix = 0;
    while (value >= 1000 && prefix < 6) {
        value /= 1000;
        prefix++;
    }
    snprintf(out, 32, value < 10 && prefix ? "%.2f %s%s" : "%.1f %s%s", value,
             prefixes[prefix], unit);
    if (!prefix)
        snprintf(out, 32, "%.0f %s", value, unit);
    return out;
}

double cli_total_cost(const sl_model *model)
{
    double sum = 0;
    for (int s = 0; s < sl_model_stage_count(model); s++)
        sum += sl_model_stage(model, s)->cost;
    return sum;
}

bool cli_ends_in(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length > tail && strcasecmp(name + length - tail, end) == 0;
}

double cli_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

const char *cli_modules(const sl_stage_info *stage, char *out, size_t size)
{
    int count = stage->module_count;
    snprintf(out, size, "%s%s%s", count ? stage->modules[0] : "",
             count > 1 ? " .. " : "",
             count > 1 ? stage->modules[count - 1] : "");
    return out;
}

/* "cuda", or "cuda:N"; false: neither. */
static bool parse_gpu(const char *device, int *out_number)
{
    const char name[] = "cuda";
    size_t length = sizeof name - 1;
    *out_number = SL_DEVICE_BY_RANK;
    if (strncmp(device, name, length) != 0)
        return false;
    if (device[length] == '\0')
        return true;
    char *end;
    errno = 0;
    long number = strtol(device + length + 1, &end, 10);
    *out_number = (int)number;
    return device[length] == ':' && device[length + 1] >= '0' &&
           device[length + 1] <= '9' && *end == '\0' && !errno &&
           number < INT32_MAX;
}

int cli_choose_device(const char *verb, const char *device,
                      sl_stage_options *out)
{
    int count;
    sl_device unused;
    if (!device || strcmp(device, "cpu") == 0)
        return CLI_DONE;
    if (!parse_gpu(device, &out->device))
        return cli_say(verb, CLI_WRONG,
                       "--device is cpu, cuda or cuda:N, not '%.60s'", device);
    if (sl_devices("cuda", &unused, 0, &count))
        return cli_say(verb, CLI_WRONG, "--device %s: %s", device,
                       sl_error_text());
    if (out->device >= count)
        return cli_say(
            verb, CLI_WRONG, "--device %s: there %s %d GPU%s, numbered from 0",
            device, count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
    if (out->threads > 1)
        return cli_say(verb, CLI_WRONG,
                       "--threads is of CPUs, and --device %s computes",
                       device);
    out->backend = "cuda";
    return CLI_DONE;
}

const char *cli_precision_text(cli_precision precision, const char *device,
                               char out[160])
{
    char by[120];
    sl_dtype dtype = cli_dtype(precision);
    bool is_gpu = device && strncmp(device, "cuda", 4) == 0;
    int number = is_gpu && device[4] == ':' ? atoi(device + 5) : 0;
    bool known = !sl_backend_describe(is_gpu ? "cuda" : NULL, number, dtype, by,
                                      sizeof by);
    snprintf(out, 160, "%s%s%s", sl_dtype_text(dtype), known ? " by " : "",
             known ? by : "");
    return out;
}

void cli_number_text(double number, char *out, size_t size)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, size, "%.*g", digits, number);
        if (strtod(out, NULL) == number)
            return;
    }
}

const char *cli_join(const char *const *words, size_t count, char *out,
                     size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < count && used < size; i++) {
        const char *between = i == 0 ? "" : i + 1 == count ? " or " : ", ";
        used += (size_t)snprintf(out + used, size - used, "%s%s", between,
                                 words[i]);
    }
    return out;
}
