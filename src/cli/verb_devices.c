/* SPDX-License-Identifier: MIT
 *
 * `sluice devices`: what can compute on this machine. */
#include "cli.h"

#include <stdio.h>

#define VERB "devices"

typedef struct request {
    bool json;
} request;

#define AT(field) offsetof(request, field)
static const cli_option options[] = {
    CLI_SWITCH("json", json, "Print JSON"),
    {0},
};

static error_t refuse_argument(const char *argument, void *unused)
{
    (void)unused;
    return cli_refuse("nothing goes with '%.60s'", argument);
}

static const cli_command command = {
    .options = options,
    .take = refuse_argument,
    .help = "List what can compute on this machine, by the name that --device "
            "takes. Where there is no GPU, the reason is said.\v"
            "  sluice devices\n"
            "  sluice train book.txt --device cuda:0 --precision bf16",
};

enum { DEVICES_MAX = 64 };

static void print_gpus(const sl_device *gpus, int count)
{
    const double gib = 1 << 30;
    for (int i = 0; i < count; i++)
        printf("cuda:%d  %s, compute capability %d.%d, %d multiprocessors, "
               "%.1f of %.1f GiB free\n",
               i, gpus[i].name, gpus[i].major, gpus[i].minor,
               gpus[i].processors, (double)gpus[i].free_bytes / gib,
               (double)gpus[i].bytes / gib);
}

static void print_json(const sl_device *cpu, const char *how,
                       const sl_device *gpus, int count, const char *reason)
{
    printf("{\"cpu\": {\"cores\": %d, \"kernels\": \"%s\"}, \"cuda\": [",
           cpu->processors, how);
    for (int i = 0; i < count; i++)
        printf("%s{\"device\": \"cuda:%d\", \"name\": \"%s\", "
               "\"capability\": \"%d.%d\", \"multiprocessors\": %d, "
               "\"bytes\": %lld, \"free_bytes\": %lld}",
               i ? ", " : "", i, gpus[i].name, gpus[i].major, gpus[i].minor,
               gpus[i].processors, (long long)gpus[i].bytes,
               (long long)gpus[i].free_bytes);
    printf("]");
    if (!count)
        printf(", \"no_cuda\": \"%s\"", reason);
    printf("}\n");
}

int verb_devices(int argc, char **argv)
{
    request asked = {0};
    sl_device cpu, gpus[DEVICES_MAX];
    char how[160];
    int count, found = 0;
    CLI_TRY(cli_parse(VERB, &command, argc, argv, &asked));
    CLI_TRY(cli_result(VERB, sl_devices("cpu", &cpu, 1, &count)));
    CLI_TRY(cli_result(VERB,
                       sl_backend_describe("cpu", 0, SL_F32, how, sizeof how)));
    bool usable = sl_devices("cuda", gpus, DEVICES_MAX, &found) == SL_OK;
    int shown = !usable ? 0 : found < DEVICES_MAX ? found : DEVICES_MAX;
    if (asked.json) {
        print_json(&cpu, how, gpus, shown, sl_error_text());
        return cli_flush(VERB, SL_OK);
    }
    printf("cpu     %d core%s, %s\n", cpu.processors,
           cpu.processors == 1 ? "" : "s", how);
    if (usable)
        print_gpus(gpus, shown);
    else
        printf("cuda    none: %s\n", sl_error_text());
    return cli_flush(VERB, SL_OK);
}
