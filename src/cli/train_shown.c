/* SPDX-License-Identifier: MIT
 *
 * What is shown of a training run. */
#include "train.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERB "train"

struct train_shown {
    FILE *log;
    const char *path;
    bool csv; /* the log */
    int64_t steps;
    bool live;      /* on a terminal */
    bool line;      /* a live line stands there */
    double seconds; /* of a step, a running mean */
    int64_t count;  /* of steps */
};

/* The step that a line is of; -1: it is no line of a log. */
static long long step_of(const char *line)
{
    static const char json[] = "{\"step\": ";
    char *end;
    if (strncmp(line, json, sizeof json - 1) == 0)
        line += sizeof json - 1;
    long long step = strtoll(line, &end, 10);
    return end > line && *end == ',' ? step : -1;
}

/* Cuts off the lines at the end of a log that are of steps past `done`, and
 * what is left of a line that was never finished: these steps come again. */
static int cut_log(const char *path, int64_t done)
{
    char *line = NULL;
    size_t size = 0;
    long keep = 0, at = 0;
    ssize_t length;
    struct stat about;
    FILE *log = stat(path, &about) == 0 && S_ISREG(about.st_mode)
                    ? fopen(path, "r+")
                    : NULL;
    if (!log)
        return CLI_DONE; /* What cannot be appended to is refused after this. */
    while ((length = getline(&line, &size, log)) > 0) {
        bool whole = line[length - 1] == '\n';
        at += (long)length;
        if (whole && step_of(line) <= done)
            keep = at;
    }
    free(line);
    bool failed = ferror(log) || ftruncate(fileno(log), keep);
    fclose(log);
    return failed ? cli_say(VERB, CLI_FAILED, "cannot cut %.200s back: %s",
                            path, strerror(errno))
                  : CLI_DONE;
}

/* Whether a resumed run continues the log that it had. */
static bool is_same_log(const train_request *asked)
{
    char real[4096];
    const char *had = json_string_value(json_object_get(asked->stored, "log"));
    return had && realpath(asked->log, real) && strcmp(real, had) == 0;
}

static int open_log(const train_request *asked, int64_t done,
                    train_shown *shown)
{
    static const char heads[] =
        "step,loss,norm,rate,seconds,data_s,tokens_per_s,bubble,sequences,"
        "bytes,val_loss,saved\n";
    shown->path = asked->log;
    shown->csv = cli_ends_in(asked->log, ".csv");
    if (done > 0 && is_same_log(asked))
        CLI_TRY(cut_log(asked->log, done));
    shown->log = cli_open_output(asked->log, true);
    if (!shown->log)
        return cli_say_unwritable(VERB, asked->log);
    if (shown->csv && fseek(shown->log, 0, SEEK_END) == 0 &&
        ftell(shown->log) == 0)
        fputs(heads, shown->log);
    return CLI_DONE;
}

int train_show(const train_request *asked, int64_t steps, int64_t done,
               train_shown **out)
{
    train_shown *shown = calloc(1, sizeof *shown);
    if (!shown)
        return cli_say(VERB, CLI_FAILED, "out of memory");
    shown->steps = steps;
    shown->live = isatty(STDERR_FILENO);
    int exit_status = asked->log ? open_log(asked, done, shown) : CLI_DONE;
    if (exit_status) {
        if (shown->log)
            fclose(shown->log);
        free(shown);
        return exit_status;
    }
    *out = shown;
    return CLI_DONE;
}

static void write_log(const train_shown *shown, const sl_train_metrics *metrics)
{
    static const char csv[] = "%lld,%.9g,%.9g,%.9g,%.6f,%.6f,%.1f,%.4f,%lld,"
                              "%lld,";
    static const char json[] =
        "{\"step\": %lld, \"loss\": %.9g, \"norm\": %.9g, \"rate\": %.9g, "
        "\"seconds\": %.6f, \"data_s\": %.6f, \"tokens_per_s\": %.1f, "
        "\"bubble\": %.4f, \"sequences\": %lld, \"bytes\": %lld";
    fprintf(shown->log, shown->csv ? csv : json, (long long)metrics->step,
            metrics->loss, metrics->norm, metrics->rate, metrics->step_s,
            metrics->data_s, metrics->tokens_per_s, metrics->bubble,
            (long long)metrics->sequences, (long long)metrics->bytes);
    if (isfinite(metrics->validation))
        fprintf(shown->log, shown->csv ? "%.9g" : ", \"val_loss\": %.9g",
                metrics->validation);
    fprintf(shown->log, shown->csv ? ",%s\n" : ", \"saved\": %s}\n",
            metrics->saved ? "true" : "false");
    fflush(shown->log);
}

/* Seconds, as people say them. */
static void say_time(double seconds, char *out, size_t size)
{
    long long all = (long long)(seconds + 0.5);
    if (all >= 3600)
        snprintf(out, size, "%lldh%02lldm", all / 3600, all / 60 % 60);
    else if (all >= 60)
        snprintf(out, size, "%lldm%02llds", all / 60, all % 60);
    else
        snprintf(out, size, "%llds", all);
}

void train_print_step(train_shown *shown, const sl_train_metrics *metrics)
{
    char left[32], more[64] = "";
    if (shown->log)
        write_log(shown, metrics);
    shown->seconds = shown->count++
                         ? 0.9 * shown->seconds + 0.1 * metrics->step_s
                         : metrics->step_s;
    bool last = metrics->step == shown->steps;
    bool notable = isfinite(metrics->validation) || metrics->saved || last;
    /* Off a terminal: the first ones, then fewer. */
    bool due = notable || shown->count <= 3 || metrics->step % 10 == 0;
    if (!shown->live && !due)
        return;
    say_time((double)(shown->steps - metrics->step) * shown->seconds, left,
             sizeof left);
    if (isfinite(metrics->validation))
        snprintf(more, sizeof more, "  val %.4f", metrics->validation);
    fprintf(stderr,
            "%sstep %lld/%lld  loss %.4f%s  %.0f tok/s  bubble %.2f  %.0f MB  "
            "%s%s%s",
            shown->live ? "\r" : "", (long long)metrics->step,
            (long long)shown->steps, metrics->loss, more, metrics->tokens_per_s,
            metrics->bubble, (double)metrics->bytes * 1e-6, left,
            metrics->saved ? "  saving" : "", shown->live ? "\033[K" : "\n");
    shown->line = shown->live;
    /* What one may want to read later stays. */
    if (shown->live && notable) {
        fputc('\n', stderr);
        shown->line = false;
    }
}

int train_shown_end(train_shown *shown)
{
    int exit_status = CLI_DONE;
    if (!shown)
        return CLI_DONE;
    if (shown->line)
        fputc('\n', stderr);
    if (shown->log && (ferror(shown->log) | fclose(shown->log)))
        exit_status =
            cli_say(VERB, CLI_FAILED, "cannot write %.200s", shown->path);
    free(shown);
    return exit_status;
}
