/* SPDX-License-Identifier: MIT
 *
 * What is shown of a training run. */
#include "train.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERB "train"

struct train_shown {
    FILE *log;
    const char *path;
    int64_t steps;
    bool live;      /* on a terminal */
    bool line;      /* a live line stands there */
    double seconds; /* mean of late, of a step */
    int64_t told;
};

int train_show(const char *log, int64_t steps, train_shown **out)
{
    train_shown *shown = calloc(1, sizeof *shown);
    if (!shown)
        return cli_say(VERB, CLI_FAILED, "out of memory");
    shown->steps = steps;
    shown->path = log;
    shown->live = isatty(STDERR_FILENO);
    if (log && !(shown->log = fopen(log, "a"))) {
        free(shown);
        return cli_say(VERB, CLI_WRONG, "cannot write %.200s: %s", log,
                       strerror(errno));
    }
    *out = shown;
    return CLI_DONE;
}

static void write_log(train_shown *shown, const sl_train_news *news)
{
    if (!shown->log)
        return;
    fprintf(shown->log,
            "{\"step\": %lld, \"loss\": %.9g, \"norm\": %.9g, \"rate\": %.9g, "
            "\"seconds\": %.6f, \"data_s\": %.6f, \"tokens_per_s\": %.1f, "
            "\"bubble\": %.4f, "
            "\"sequences\": %lld, \"bytes\": %lld",
            (long long)news->step, news->loss, news->norm, news->rate,
            news->seconds, news->reading, news->tokens_per_s, news->bubble,
            (long long)news->sequences, (long long)news->bytes);
    if (isfinite(news->validation))
        fprintf(shown->log, ", \"val_loss\": %.9g", news->validation);
    fprintf(shown->log, ", \"saved\": %s}\n", news->saved ? "true" : "false");
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

void train_tell(train_shown *shown, const sl_train_news *news)
{
    char left[32], more[64] = "";
    write_log(shown, news);
    shown->seconds = shown->told++ ? 0.9 * shown->seconds + 0.1 * news->seconds
                                   : news->seconds;
    bool last = news->step == shown->steps;
    bool notable = isfinite(news->validation) || news->saved || last;
    /* Off a terminal: the first ones, then fewer. */
    bool due = notable || shown->told <= 3 || news->step % 10 == 0;
    if (!shown->live && !due)
        return;
    say_time((double)(shown->steps - news->step) * shown->seconds, left,
             sizeof left);
    if (isfinite(news->validation))
        snprintf(more, sizeof more, "  val %.4f", news->validation);
    fprintf(stderr,
            "%sstep %lld/%lld  loss %.4f%s  %.0f tok/s  bubble %.2f  %.0f MB  "
            "%s%s%s",
            shown->live ? "\r" : "", (long long)news->step,
            (long long)shown->steps, news->loss, more, news->tokens_per_s,
            news->bubble, (double)news->bytes * 1e-6, left,
            news->saved ? "  saved" : "", shown->live ? "\033[K" : "\n");
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
            cli_say(VERB, CLI_WRONG, "cannot write %.200s", shown->path);
    free(shown);
    return exit_status;
}
