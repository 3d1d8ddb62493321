/* SPDX-License-Identifier: MIT
 *
 * `sluice view`: schedules and runs as a page, a picture or a trace. */
#include "costs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#define VERB "view"

typedef enum form { HTML, SVG, PNG, JSON, FORMS } form;

static const char *const form_names[FORMS] = {"html", "svg", "png", "json"};

typedef struct request {
    const char *shown[SL_VIEW_MAX_TIMELINES]; /* files and names */
    size_t shown_count;
    const char *run;
    const char *out;
    sl_sizes sizes;
    costs_request costs;
    sl_reading reading;
    int as; /* a form */
    bool as_given;
    bool comm_given;
    bool plan;
    bool per_rank;
    bool open;
    bool picture_given;
    sl_picture_options picture;
} request;

enum {
    KEY_RUN = 256,
    KEY_PLAN,
    KEY_PER_RANK,
    KEY_COMM,
    KEY_AS,
    KEY_OPEN,
    KEY_WIDTH,
    KEY_BESIDE,
    KEY_DARK,
    KEY_MEMORY
};

static const struct argp_option options[] = {
    {"ranks", 'p', "P", 0, "Ranks, of a NAME (4)", 0},
    {"stages-per-rank", 'v', "V", 0,
     "Stages on each rank (1; 2 for zbv and dualpipev)", 0},
    {"microbatches", 'm', "M", 0, "Microbatches in a step (8)", 0},
    {"run", KEY_RUN, "TRACE", 0,
     "A measured run, as `sluice train --trace` writes it; beside it, "
     "schedules cost what that run took in the mean, and costs that are given "
     "are seconds",
     0},
    {"plan", KEY_PLAN, 0, 0,
     "With --run: above it what was planned, the run's own order simulated", 0},
    {0, 0, 0, 0, "What simulations cost:", 1},
#include "costs.def"
    {"per-rank", KEY_PER_RANK, 0, 0,
     "Costs and activations are of all a rank has: each of its stages has its "
     "part. So schedules with more or fewer stages do the same work",
     1},
    {"comm", KEY_COMM, "READING", 0, CLI_COMM_HELP, 1},
    {0, 0, 0, 0, "What is written:", 2},
    {"out", 'o', "FILE", 0,
     "timeline.html unless given; .html, .svg, .png and .json (Chrome and "
     "Perfetto) by its name; - is standard output",
     2},
    {"as", KEY_AS, "FORM", 0, "html, svg, png or json, whatever the name", 2},
    {"open", KEY_OPEN, 0, 0, "Open it in the browser", 2},
    {"width", KEY_WIDTH, "PIXELS", 0, "Of a picture (1200)", 2},
    {"beside", KEY_BESIDE, 0, 0,
     "In a picture: side by side, not one above the other", 2},
    {"dark", KEY_DARK, 0, 0, "In a picture: on a dark ground", 2},
    {"memory", KEY_MEMORY, 0, 0,
     "In a picture: activations held as a curve under each rank", 2},
    {0},
};

static error_t parse_picture(int key, char *arg, request *asked)
{
    asked->picture_given = true;
    switch (key) {
    case KEY_WIDTH:
        return cli_parse_size("--width", arg, &asked->picture.width);
    case KEY_BESIDE: asked->picture.beside = true; return 0;
    case KEY_DARK: asked->picture.dark = true; return 0;
    default: asked->picture.memory = true; return 0;
    }
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    request *asked = state->input;
    switch (key) {
    case 'p':
    case 'v':
    case 'm': return cli_parse_sizes(key, arg, &asked->sizes);
    case KEY_RUN: asked->run = arg; return 0;
    case KEY_PLAN: asked->plan = true; return 0;
    case KEY_PER_RANK: asked->per_rank = true; return 0;
    case KEY_COMM:
        asked->comm_given = true;
        return cli_parse_reading(arg, &asked->reading);
    case 'o': asked->out = arg; return 0;
    case KEY_AS:
        asked->as_given = true;
        return cli_parse_choice("--as", arg, form_names, FORMS, &asked->as);
    case KEY_OPEN: asked->open = true; return 0;
    case KEY_WIDTH:
    case KEY_BESIDE:
    case KEY_DARK:
    case KEY_MEMORY: return parse_picture(key, arg, asked);
    case ARGP_KEY_ARG:
        if (asked->shown_count == SL_VIEW_MAX_TIMELINES)
            return cli_refuse("at most %d can be compared; '%.60s' is one "
                              "more",
                              SL_VIEW_MAX_TIMELINES, arg);
        asked->shown[asked->shown_count++] = arg;
        return 0;
    default: return costs_parse(key, arg, &asked->costs);
    }
}

static const struct argp argp = {
    options,
    parse_option,
    "[FILE|NAME[:SIZES]...]",
    "Draw a schedule, or a run, or up to four beside each other. FILE is CSV, "
    "compute-only or lowered, `-` standard input; NAME is one of `sluice "
    "schedule --list`. SIZES are for this one alone, over -p, -v and -m: "
    "interleaved:v=2, zbv:p=8,m=32.\v"
    "The page needs no network and no other file. docs/reading-a-timeline.md "
    "tells how to read it.\n\n"
    "  sluice view zbv -p 4 -m 8 --open\n"
    "  sluice view 1f1b zbv -p 4 -m 8 --per-rank -o compared.html\n"
    "  sluice view 1f1b zbv --per-rank --beside -o compared.svg\n"
    "  sluice view 1f1b interleaved:v=2 interleaved:v=4 -p 4 -m 8\n"
    "  sluice train book.txt -p 4 --trace step.json --out run\n"
    "  sluice view --run step.json --plan -o step.html",
    NULL,
    NULL,
    NULL};

/* -------------------------------------------------------------- request -- */

static bool ends_in(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length > tail && strcasecmp(name + length - tail, end) == 0;
}

static int choose_form(request *asked)
{
    static char usual[32];
    if (!asked->out) {
        snprintf(usual, sizeof usual, "timeline.%s", form_names[asked->as]);
        asked->out = usual;
    }
    for (int i = 0; i < FORMS && !asked->as_given; i++) {
        char end[8];
        snprintf(end, sizeof end, ".%s", form_names[i]);
        if (ends_in(asked->out, end)) {
            asked->as = i;
            asked->as_given = true;
        }
    }
    if (asked->as_given || strcmp(asked->out, "-") == 0)
        return 0;
    return cli_say(VERB, CLI_WRONG,
                   "%.200s ends in none of .html, .svg, .png and .json; --as "
                   "tells which it is",
                   asked->out);
}

static bool is_stdin(const char *name)
{
    return name && strcmp(name, "-") == 0;
}

/* What is asked of schedules where there are none would be without effect. */
static int refuse_without_schedules(const request *asked)
{
    const sl_sizes *sizes = &asked->sizes;
    if (asked->shown_count == 0 && !asked->run)
        return cli_say(VERB, CLI_WRONG,
                       "what shall be shown? a FILE, a NAME like zbv, or "
                       "--run TRACE");
    if (asked->plan && !asked->run)
        return cli_say(VERB, CLI_WRONG, "--plan goes with --run");
    if (asked->shown_count == 0 &&
        (sizes->ranks || sizes->stages_per_rank || sizes->microbatches ||
         asked->comm_given || costs_given(&asked->costs)))
        return cli_say(VERB, CLI_WRONG,
                       "-p, -v, -m, --comm and costs are for schedules, and "
                       "none is named");
    if (asked->run && asked->costs.unit)
        return cli_say(VERB, CLI_WRONG,
                       "--unit is for simulations, and beside --run time is "
                       "measured");
    if (asked->run && asked->per_rank)
        return cli_say(VERB, CLI_WRONG,
                       "--per-rank divides costs of your own, and beside --run "
                       "they are as measured");
    return 0;
}

static int refuse_contradictions(const request *asked)
{
    size_t count = asked->shown_count + (asked->run != NULL) + asked->plan;
    int inputs = is_stdin(asked->run) + is_stdin(asked->costs.file);
    for (size_t i = 0; i < asked->shown_count; i++)
        inputs += is_stdin(asked->shown[i]);
    if (inputs > 1)
        return cli_say(VERB, CLI_WRONG,
                       "only one thing can come from standard input");
    if (count > SL_VIEW_MAX_TIMELINES)
        return cli_say(VERB, CLI_WRONG, "at most %d can be compared, not %zu",
                       SL_VIEW_MAX_TIMELINES, count);
    if (asked->as == JSON && count > 1)
        return cli_say(VERB, CLI_WRONG,
                       "a trace holds one timeline, not %zu; write one for "
                       "each",
                       count);
    if (asked->picture_given && asked->as != SVG && asked->as != PNG)
        return cli_say(VERB, CLI_WRONG,
                       "--width, --beside, --dark and --memory are for "
                       "pictures: .svg or .png");
    if (asked->open && strcmp(asked->out, "-") == 0)
        return cli_say(VERB, CLI_WRONG,
                       "--open needs a file, and -o - is standard output");
    return refuse_without_schedules(asked);
}

/* ----------------------------------------------------------- timelines -- */

/* What is shown, and whatever it is made from. */
typedef struct shown {
    const request *asked;
    sl_timeline *timelines[SL_VIEW_MAX_TIMELINES];
    size_t count;
    sl_timeline *run;
    char *run_text; /* the trace as it was read */
    size_t run_length;
    /* The latest schedule that was simulated; a trace is written from it. */
    sl_schedule *schedule;
    sl_simulation *simulation;
} shown;

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* Whether a schedule can be made with so many stages per rank. */
static bool admits(const sl_generator *generator, const sl_sizes *asked,
                   int stages_per_rank)
{
    const sl_sizes sizes = {asked->ranks ? asked->ranks : 4, stages_per_rank,
                            asked->microbatches ? asked->microbatches : 8};
    return !generator->admit || generator->admit(&sizes) == SL_OK;
}

/* -v is for every schedule. Where one cannot have it, and without it could,
 * another may have been meant. */
static int refuse_common_stages(const request *asked, const char *what,
                                const sl_generator *generator)
{
    const sl_generator *other;
    int wanted = asked->sizes.stages_per_rank;
    int usual = generator->default_stages_per_rank;
    if (!wanted || admits(generator, &asked->sizes, wanted) ||
        !admits(generator, &asked->sizes, usual))
        return 0;
    for (size_t i = 0; i < asked->shown_count; i++) {
        const char *name = asked->shown[i];
        if (strcmp(name, what) != 0 &&
            sl_generator_find(name, &other) == SL_OK &&
            admits(other, &asked->sizes, wanted))
            return cli_say(VERB, CLI_WRONG,
                           "%s has %d stage%s on each rank, and -v %d is for "
                           "every schedule here; write %.60s:v=%d",
                           generator->name, usual, usual == 1 ? "" : "s",
                           wanted, name, wanted);
    }
    return 0;
}

static int read_one(const request *asked, const char *what,
                    sl_schedule **out_schedule, char title[300])
{
    const sl_generator *generator;
    cli_schedule_name named;
    int wrong = cli_parse_schedule(VERB, what, &named);
    if (wrong)
        return wrong;
    bool known = sl_generator_find(named.name, &generator) == SL_OK;
    sl_sizes usual = {4, known ? generator->default_stages_per_rank : 1, 8};
    snprintf(title, 300, "%.200s%s%.60s",
             is_stdin(what) ? "standard input"
             : known        ? generator->name
                            : base_name(what),
             *named.words ? ", " : "", named.words);
    if (known && !named.sizes.stages_per_rank)
        wrong = refuse_common_stages(asked, what, generator);
    if (wrong)
        return wrong;
    /* What is no name may be a file by any name. */
    if (known || ends_in(what, ".csv") ||
        (!is_stdin(what) && access(what, F_OK) != 0))
        return cli_choose_schedule(VERB, what, &asked->sizes, &usual,
                                   out_schedule);
    int exit_status = cli_read_schedule(VERB, what, out_schedule);
    return exit_status
               ? exit_status
               : cli_check_sizes(VERB, title, &asked->sizes, *out_schedule);
}

/* What stands for one microbatch where activations have no bytes and are
 * divided, as 1 could not be. */
enum { MICROBATCH_BYTES = 1000000 };

/* Whether memory only counts microbatches. */
static bool counts_microbatches(const request *asked, const sl_costs *costs)
{
    return asked->per_rank && !asked->run &&
           !asked->costs.activation_bytes_given &&
           costs->stage.activation_bytes == MICROBATCH_BYTES;
}

/* Costs that are of all a rank has, for each of its stages. */
static int divide(sl_costs *costs, double by)
{
    sl_stage_cost *stage = &costs->stage;
    if (costs->stage_count)
        return cli_say(VERB, CLI_WRONG,
                       "--per-rank divides costs that all stages share, and "
                       "--costs gives them stage by stage");
    if (stage->activation_bytes && (double)stage->activation_bytes < by)
        return cli_say(VERB, CLI_WRONG,
                       "--activation-bytes %lld are too few for --per-rank: a "
                       "rank has %g stages",
                       (long long)stage->activation_bytes, by);
    stage->forward /= by;
    stage->backward_input /= by;
    stage->backward_weight /= by;
    stage->backward /= by;
    stage->reduce_grad /= by;
    stage->activation_bytes =
        (int64_t)((double)stage->activation_bytes / by + 0.5);
    stage->input_freed_bytes =
        (int64_t)((double)stage->input_freed_bytes / by + 0.5);
    costs->unshard /= by;
    costs->reshard /= by;
    return 0;
}

/* What the latest schedule costs: as the run took, or the usual; over that what
 * is asked for. */
static int find_costs(const shown *own, sl_costs *costs, bool *out_counted)
{
    sl_extent extent = sl_schedule_extent(own->schedule);
    if (own->run) {
        sl_status status = sl_timeline_costs(own->run, extent.stages, costs);
        if (status)
            return cli_failed(VERB, status);
    } else if (own->asked->per_rank) {
        costs->stage.activation_bytes = MICROBATCH_BYTES;
    }
    int exit_status = costs_make(VERB, &own->asked->costs, costs);
    *out_counted = counts_microbatches(own->asked, costs);
    if (!exit_status && own->asked->per_rank && extent.stages > 0)
        exit_status = divide(costs, (double)extent.stages / extent.ranks);
    return exit_status;
}

static int show_schedule(shown *own, const char *name, const char *title)
{
    sl_costs costs = SL_COSTS_INIT;
    char text[300];
    bool counted = false;
    int exit_status = find_costs(own, &costs, &counted);
    if (exit_status) {
        sl_costs_clear(&costs);
        return exit_status;
    }
    snprintf(text, sizeof text, "%.250s%s", title, own->run ? ", planned" : "");
    sl_status status = cli_add_messages(own->asked->reading, &own->schedule);
    if (!status)
        status = sl_simulate(own->schedule, &costs, own->asked->reading,
                             &own->simulation);
    if (!status)
        status =
            sl_timeline_simulated(text, own->schedule, &costs, own->simulation,
                                  &own->timelines[own->count]);
    sl_costs_clear(&costs);
    if (status)
        return cli_say(VERB, status == SL_EUNSOUND ? CLI_FAILED : CLI_WRONG,
                       "%.200s: %s", name, sl_error_text());
    if (own->run)
        sl_timeline_set_seconds(own->timelines[own->count]);
    if (counted)
        sl_timeline_set_microbatch_bytes(own->timelines[own->count],
                                         MICROBATCH_BYTES);
    own->count++;
    return 0;
}

static int show_schedules(shown *own)
{
    int exit_status = 0;
    for (size_t i = 0; i < own->asked->shown_count && !exit_status; i++) {
        char title[300];
        const char *name = own->asked->shown[i];
        sl_schedule_destroy(own->schedule);
        sl_simulation_destroy(own->simulation);
        own->schedule = NULL;
        own->simulation = NULL;
        exit_status = read_one(own->asked, name, &own->schedule, title);
        if (!exit_status)
            exit_status = show_schedule(own, name, title);
    }
    return exit_status;
}

static int read_run(shown *own)
{
    const char *path = own->asked->run;
    char title[300];
    int exit_status = cli_read(VERB, path, &own->run_text, &own->run_length);
    if (exit_status)
        return exit_status;
    snprintf(title, sizeof title, "%.250s, measured",
             strcmp(path, "-") == 0 ? "standard input" : base_name(path));
    sl_status status =
        sl_timeline_read(title, own->run_text, own->run_length, &own->run);
    if (status)
        return cli_say(VERB, CLI_WRONG, "%.200s: %s", path, sl_error_text());
    return 0;
}

static int gather(shown *own)
{
    const request *asked = own->asked;
    int exit_status = asked->run ? read_run(own) : 0;
    if (!exit_status)
        exit_status = show_schedules(own);
    if (!exit_status && asked->plan) {
        sl_status status = sl_timeline_planned("planned", own->run,
                                               &own->timelines[own->count]);
        if (status)
            return cli_failed(VERB, status);
        own->count++;
    }
    if (!exit_status && asked->run) {
        own->timelines[own->count++] = own->run;
        own->run = NULL;
    }
    return exit_status;
}

/* -------------------------------------------------------------- writing -- */

static sl_status write_document(const void *what, sl_write_fn write, void *sink)
{
    const shown *own = what;
    const sl_timeline *const *timelines =
        (const sl_timeline *const *)own->timelines;
    const sl_picture_options *picture = &own->asked->picture;
    switch (own->asked->as) {
    case SVG:
        return sl_view_write_svg(timelines, own->count, picture, write, sink);
    case PNG:
        return sl_view_write_png(timelines, own->count, picture, write, sink);
    case JSON:
        /* A run is such a trace already. */
        return own->run_text ? write(sink, own->run_text, own->run_length)
                             : sl_view_write_trace(
                                   own->schedule, own->simulation, write, sink);
    default: return sl_view_write_html(timelines, own->count, write, sink);
    }
}

static void tell(const shown *own)
{
    fprintf(stderr, "%s:", own->asked->out);
    for (size_t i = 0; i < own->count; i++) {
        sl_timeline_summary sum = sl_timeline_summarize(own->timelines[i]);
        fprintf(stderr, "%s %d ranks, %zu actions, bubble %.1f %%",
                i ? ";" : "", sum.ranks, sum.blocks, 100 * sum.bubble);
    }
    fprintf(stderr, "\n");
}

/* Becomes the first program of $BROWSER, or of the usual, that there is; tells
 * why not where there is none. */
static void become_browser(const char *path, int why)
{
    char programs[1000];
    const char *asked = getenv("BROWSER");
    snprintf(programs, sizeof programs, "%s",
             asked && *asked ? asked : "xdg-open:sensible-browser");
    char here[4200];
    snprintf(here, sizeof here, "%s%s", *path == '-' ? "./" : "", path);
    setsid();
    if (!freopen("/dev/null", "r", stdin) || !freopen("/dev/null", "w", stdout))
        _exit(1);
    for (char *rest = programs, *one; (one = strsep(&rest, ":"));) {
        if (*one)
            execlp(one, one, here, (char *)NULL);
    }
    int reason = errno;
    if (write(why, &reason, sizeof reason) < 0)
        _exit(1);
    _exit(127);
}

/* Starts whatever shows web pages here, and leaves it alone. */
static int open_file(const char *path)
{
    int ends[2], reason = 0;
    fflush(NULL);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return cli_say(VERB, CLI_FAILED, "no pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0) {
        /* Twice, so that nobody has to wait for the browser. */
        if (fork() == 0)
            become_browser(path, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    if (child > 0)
        TEMP_FAILURE_RETRY(waitpid(child, NULL, 0));
    /* The other end closes when the browser is there. */
    bool failed = child < 0 ||
                  TEMP_FAILURE_RETRY(read(ends[0], &reason, sizeof reason)) ==
                      sizeof reason;
    close(ends[0]);
    if (failed)
        return cli_say(VERB, CLI_FAILED,
                       "%.200s is written, but there is no browser to open it "
                       "(%s); set BROWSER, or open it by hand",
                       path, strerror(reason));
    return 0;
}

int verb_view(int argc, char **argv)
{
    request asked = {.reading = SL_ASYNC, .picture = SL_PICTURE_OPTIONS_INIT};
    shown own = {.asked = &asked};
    int exit_status = cli_parse(VERB, &argp, argc, argv, &asked);
    if (!exit_status)
        exit_status = choose_form(&asked);
    if (!exit_status)
        exit_status = refuse_contradictions(&asked);
    if (!exit_status)
        exit_status = gather(&own);
    if (!exit_status)
        exit_status = cli_write_to(VERB, asked.out, write_document, &own);
    if (!exit_status && strcmp(asked.out, "-") != 0)
        tell(&own);
    if (!exit_status && asked.open)
        exit_status = open_file(asked.out);
    for (size_t i = 0; i < own.count; i++)
        sl_timeline_destroy(own.timelines[i]);
    sl_timeline_destroy(own.run);
    sl_simulation_destroy(own.simulation);
    sl_schedule_destroy(own.schedule);
    free(own.run_text);
    return exit_status;
}
