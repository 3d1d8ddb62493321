/* SPDX-License-Identifier: MIT
 *
 * `sluice view`: schedules and runs as a page, a picture or a trace. */
#include "costs.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define VERB "view"

typedef enum form { HTML, SVG, PNG, JSON } form;
#define FORMS "html|svg|png|json"

typedef struct request {
    const char *shown[SL_VIEW_MAX_TIMELINES]; /* files and names */
    size_t shown_count;
    const char *run;
    const char *out;
    sl_sizes sizes;
    costs_request costs;
    int reading; /* sl_reading */
    int as;      /* a form; -1: by the name of `out` */
    bool plan;
    bool per_rank;
    bool open;
    sl_picture_options picture;
} request;

#define AT(field) offsetof(request, field)
static const cli_option options[] = {
    CLI_RANKS("Ranks, for schedules given by NAME (4)", sizes),
    CLI_STAGES_PER_RANK(sizes),
    CLI_MICROBATCHES("Microbatches in a step (8)", sizes),
    CLI_VALUED("run", "TRACE", TEXT, run,
               "Draw a measured run, which `sluice train --trace` wrote; "
               "schedules beside it are simulated with the mean times of its "
               "stages, and costs given here are seconds"),
    CLI_SWITCH("plan", plan,
               "With --run: above it, draw its plan, a simulation of the same "
               "order of actions"),
    CLI_HEADED("Simulation:"),
#include "costs.def"
    CLI_SWITCH("per-rank", per_rank,
               "Divide costs and activations by the number of stages per rank, "
               "so that schedules with more or fewer stages do the same work"),
    CLI_VALUED("comm", CLI_COMM_WORDS, CHOICE, reading, CLI_COMM_HELP),
    CLI_HEADED("Output:"),
    CLI_LETTERED(
        'o', "out", "FILE", TEXT, out,
        "Write FILE (timeline.html); its name ends in .html, .svg, .png "
        "or .json (Chrome and Perfetto); - is standard output"),
    CLI_VALUED("as", FORMS, CHOICE, as,
               "Write this form, whatever FILE ends in"),
    CLI_SWITCH("open", open, "Open it in the browser"),
    CLI_VALUED("width", "PIXELS", SIZE, picture.width,
               "Width of a picture (1200)"),
    CLI_SWITCH("beside", picture.beside,
               "In a picture: place timelines side by side, not one above the "
               "other"),
    CLI_SWITCH("dark", picture.dark, "In a picture: dark background"),
    CLI_SWITCH("memory", picture.memory,
               "In a picture: activation memory as a curve under each rank"),
    {0},
};

static error_t take_shown(const char *argument, void *out)
{
    request *asked = out;
    if (asked->shown_count == SL_VIEW_MAX_TIMELINES)
        return cli_refuse("at most %d can be compared; '%.60s' is one more",
                          SL_VIEW_MAX_TIMELINES, argument);
    asked->shown[asked->shown_count++] = argument;
    return 0;
}

static const cli_command command = {
    .options = options,
    .take = take_shown,
    .arguments = "[FILE|NAME[:SIZES]...]",
    .help = "Draw schedules and runs, up to four together. FILE is CSV, "
            "compute-only or lowered, or `-` for standard input; NAME is one "
            "of `sluice schedule --list`. SIZES are for this schedule only, "
            "and override -p, -v and -m: interleaved:v=2, zbv:p=8,m=32.\v"
            "The page is one self-contained file. docs/reading-a-timeline.md "
            "explains how to read it.\n\n"
            "  sluice view zbv -p 4 -m 8 --open\n"
            "  sluice view 1f1b zbv -p 4 -m 8 --per-rank -o compared.html\n"
            "  sluice view 1f1b zbv --per-rank --beside -o compared.svg\n"
            "  sluice view 1f1b interleaved:v=2 interleaved:v=4 -p 4 -m 8\n"
            "  sluice train book.txt -p 4 --trace step.json --out run\n"
            "  sluice view --run step.json --plan -o step.html",
};

/* -------------------------------------------------------------- request -- */

static int choose_form(request *asked)
{
    static const char *const ends[] = {".html", ".svg", ".png", ".json"};
    static char usual[32];
    if (!asked->out) {
        asked->as = asked->as < 0 ? HTML : asked->as;
        snprintf(usual, sizeof usual, "timeline%s", ends[asked->as]);
        asked->out = usual;
    }
    for (int i = 0; i < 4 && asked->as < 0; i++)
        asked->as = cli_ends_in(asked->out, ends[i]) ? i : -1;
    if (asked->as < 0 && strcmp(asked->out, "-") == 0)
        asked->as = HTML;
    if (asked->as >= 0)
        return CLI_DONE;
    return cli_say(VERB, CLI_WRONG,
                   "%.200s ends in none of .html, .svg, .png and .json; --as "
                   "chooses the form",
                   asked->out);
}

static bool is_stdin(const char *name)
{
    return name && strcmp(name, "-") == 0;
}

/* What is asked of schedules where there are none would be without effect. */
static int refuse_without_schedules(const request *asked)
{
    if (asked->shown_count == 0 && !asked->run)
        return cli_say(VERB, CLI_WRONG,
                       "what shall be shown? a FILE, a NAME like zbv, or "
                       "--run TRACE");
    if (asked->plan && !asked->run)
        return cli_say(VERB, CLI_WRONG, "--plan goes with --run");
    if (asked->shown_count == 0 &&
        (costs_given() ||
         CLI_GIVEN("ranks", "stages-per-rank", "microbatches", "comm")))
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
    if (asked->as != SVG && asked->as != PNG &&
        CLI_GIVEN("width", "beside", "dark", "memory"))
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
    CLI_TRY(cli_parse_schedule(VERB, what, &named));
    bool known = sl_generator_find(named.name, &generator) == SL_OK;
    sl_sizes usual = {4, known ? generator->default_stages_per_rank : 1, 8};
    snprintf(title, 300, "%.200s%s%.60s",
             is_stdin(what) ? "standard input"
             : known        ? generator->name
                            : base_name(what),
             *named.words ? ", " : "", named.words);
    if (known && !named.sizes.stages_per_rank)
        CLI_TRY(refuse_common_stages(asked, what, generator));
    /* What is no name may be a file by any name. */
    if (known || cli_ends_in(what, ".csv") ||
        (!is_stdin(what) && access(what, F_OK) != 0))
        return cli_choose_schedule(VERB, what, &asked->sizes, &usual,
                                   out_schedule);
    CLI_TRY(cli_read_schedule(VERB, what, out_schedule));
    return cli_check_sizes(VERB, title, &asked->sizes, *out_schedule);
}

/* What stands for one microbatch where activations have no bytes and are
 * divided, as 1 could not be. */
enum { MICROBATCH_BYTES = 1000000 };

/* Whether memory only counts microbatches. */
static bool counts_microbatches(const request *asked, const sl_costs *costs)
{
    return asked->per_rank && !asked->run && !CLI_GIVEN("activation-bytes") &&
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
    const request *asked = own->asked;
    if (own->run)
        CLI_TRY(cli_result(VERB,
                           sl_timeline_costs(own->run, extent.stages, costs)));
    else if (asked->per_rank)
        costs->stage.activation_bytes = MICROBATCH_BYTES;
    CLI_TRY(costs_make(VERB, &asked->costs, costs));
    *out_counted = counts_microbatches(asked, costs);
    return asked->per_rank && extent.stages > 0
               ? divide(costs, (double)extent.stages / extent.ranks)
               : CLI_DONE;
}

static sl_status simulate(shown *own, const sl_costs *costs, const char *title,
                          sl_timeline **out)
{
    sl_reading reading = (sl_reading)own->asked->reading;
    CLI_TRY(cli_add_messages(reading, &own->schedule));
    CLI_TRY(sl_simulate(own->schedule, costs, reading, &own->simulation));
    return sl_timeline_simulated(title, own->schedule, costs, own->simulation,
                                 out);
}

static int show_with_costs(shown *own, const char *name, const char *title,
                           sl_costs *costs)
{
    char text[300];
    bool counted;
    assert(own->count < SL_VIEW_MAX_TIMELINES);
    sl_timeline **timeline = &own->timelines[own->count];
    CLI_TRY(find_costs(own, costs, &counted));
    snprintf(text, sizeof text, "%.250s%s", title, own->run ? ", planned" : "");
    sl_status status = simulate(own, costs, text, timeline);
    if (status)
        return cli_say(VERB, status == SL_EUNSOUND ? CLI_FAILED : CLI_WRONG,
                       "%.200s: %s", name, sl_error_text());
    if (own->run)
        sl_timeline_set_seconds(*timeline);
    if (counted)
        sl_timeline_set_microbatch_bytes(*timeline, MICROBATCH_BYTES);
    own->count++;
    return CLI_DONE;
}

static int show_schedule(shown *own, const char *name)
{
    sl_costs costs = SL_COSTS_INIT;
    char title[300];
    sl_schedule_destroy(own->schedule);
    sl_simulation_destroy(own->simulation);
    own->schedule = NULL;
    own->simulation = NULL;
    CLI_TRY(read_one(own->asked, name, &own->schedule, title));
    int exit_status = show_with_costs(own, name, title, &costs);
    sl_costs_clear(&costs);
    return exit_status;
}

static int read_run(shown *own)
{
    const char *path = own->asked->run;
    char title[300];
    CLI_TRY(cli_read(VERB, path, &own->run_text, &own->run_length));
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
    if (asked->run)
        CLI_TRY(read_run(own));
    for (size_t i = 0; i < asked->shown_count; i++)
        CLI_TRY(show_schedule(own, asked->shown[i]));
    if (asked->plan) {
        CLI_TRY(
            cli_result(VERB, sl_timeline_planned("planned", own->run,
                                                 &own->timelines[own->count])));
        own->count++;
    }
    if (asked->run) {
        own->timelines[own->count++] = own->run;
        own->run = NULL;
    }
    return CLI_DONE;
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

static void print_summary(const shown *own)
{
    fprintf(stderr, "%s:", own->asked->out);
    for (size_t i = 0; i < own->count; i++) {
        sl_timeline_summary sum = sl_timeline_summarize(own->timelines[i]);
        fprintf(stderr, "%s %d ranks, %zu actions, bubble %.1f %%",
                i ? ";" : "", sum.ranks, sum.blocks, 100 * sum.bubble);
    }
    fprintf(stderr, "\n");
}

/* Becomes the first program of $BROWSER, or of the usual, that there is;
 * writes errno to `why` where there is none. */
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

static int view(shown *own)
{
    const request *asked = own->asked;
    CLI_TRY(gather(own));
    CLI_TRY(cli_write_to(VERB, asked->out, write_document, own));
    if (strcmp(asked->out, "-") != 0)
        print_summary(own);
    return asked->open ? open_file(asked->out) : CLI_DONE;
}

int verb_view(int argc, char **argv)
{
    request asked = {.as = -1, .picture = SL_PICTURE_OPTIONS_INIT};
    shown own = {.asked = &asked};
    CLI_TRY(cli_parse(VERB, &command, argc, argv, &asked));
    CLI_TRY(choose_form(&asked));
    CLI_TRY(refuse_contradictions(&asked));
    int exit_status = view(&own);
    for (size_t i = 0; i < own.count; i++)
        sl_timeline_destroy(own.timelines[i]);
    sl_timeline_destroy(own.run);
    sl_simulation_destroy(own.simulation);
    sl_schedule_destroy(own.schedule);
    free(own.run_text);
    return exit_status;
}
