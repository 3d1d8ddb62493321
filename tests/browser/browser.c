/* SPDX-License-Identifier: MIT
 *
 * The driver: starts Chromium with its debugging protocol on two pipes, sends
 * commands, each answered by its number, and notes what the page reports in
 * between. The browser ends when the pipe does, so none is left behind. */
#include "browser.h"
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000 };

struct browser {
    pid_t process;
    int to;
    int from;
    char *heard; /* not yet taken */
    size_t used;
    size_t capacity;
    char folder[TEST_FOLDER_MAX]; /* its own */
    char session[80];
    int number; /* of the latest command */
    int complaints;
    int requests;
    bool loaded;
    char last[400];
};

/* ---------------------------------------------------------------- start -- */

/* Ubuntu's chromium-browser is a script that starts a snap, which may not open
 * files of the tests, or says that there is none. */
static bool is_snap(const char *program)
{
    char text[256] = "";
    FILE *file = fopen(program, "rb");
    if (!file)
        return false;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    return strncmp(text, "#!", 2) == 0 && strstr(text, "/snap/");
}

static const char *find_chromium(void)
{
    static const char *const places[] = {"/usr/bin/chromium",
                                         "/usr/bin/chromium-browser",
                                         "/usr/bin/google-chrome"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (access(places[i], X_OK) == 0 && !is_snap(places[i]))
            return places[i];
    }
    return NULL;
}

static void start_process(browser *b, const char *program)
{
    int down[2], up[2];
    char data[TEST_FOLDER_MAX + 20];
    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    assert_true(test_make_folder(b->folder));
    snprintf(data, sizeof data, "--user-data-dir=%s", b->folder);
    b->process = fork();
    assert_true(b->process >= 0);
    if (b->process == 0) {
        int quiet = open("/dev/null", O_RDWR);
        setpgid(0, 0);
        /* Away from 3 and 4 first, so that neither takes the other's place. */
        int in = fcntl(down[0], F_DUPFD, 10), out = fcntl(up[1], F_DUPFD, 10);
        dup2(in, 3);
        dup2(out, 4);
        dup2(quiet, 0);
        dup2(quiet, 1);
        dup2(quiet, 2);
        for (int fd = 5; fd < 64; fd++)
            close(fd);
        execl(program, program, "--headless", "--remote-debugging-pipe",
              "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
              "--no-first-run", "--disable-background-networking",
              "--disable-component-update", "--disable-extensions",
              "--force-device-scale-factor=1", "--allow-file-access-from-files",
              data, "about:blank", (char *)NULL);
        _exit(127);
    }
    close(down[0]);
    close(up[1]);
    b->to = down[1];
    b->from = up[0];
}

/* ------------------------------------------------------------- messages -- */

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void note(browser *b, int *count, const json_t *what)
{
    char *text = json_dumps(what, JSON_COMPACT);
    (*count)++;
    snprintf(b->last, sizeof b->last, "%s", text ? text : "");
    free(text);
}

static void hear_event(browser *b, const char *method, const json_t *params)
{
    if (strcmp(method, "Page.loadEventFired") == 0)
        b->loaded = true;
    if (strcmp(method, "Runtime.exceptionThrown") == 0 ||
        strcmp(method, "Log.entryAdded") == 0 ||
        strcmp(method, "Page.javascriptDialogOpening") == 0)
        note(b, &b->complaints, params);
    if (strcmp(method, "Runtime.consoleAPICalled") == 0)
        note(b, &b->complaints, params);
    if (strcmp(method, "Network.requestWillBeSent") == 0) {
        const char *kind = json_string_value(json_object_get(params, "type"));
        if (!kind || strcmp(kind, "Document") != 0)
            note(b, &b->requests, params);
    }
}

/* The next message, or NULL when there is none for `wait_ms`. */
static json_t *hear(browser *b, double wait_ms)
{
    double until = now_ms() + wait_ms;
    for (;;) {
        char *end = b->used ? memchr(b->heard, '\0', b->used) : NULL;
        if (end) {
            size_t length = (size_t)(end - b->heard) + 1;
            json_t *message = json_loads(b->heard, 0, NULL);
            memmove(b->heard, end + 1, b->used - length);
            b->used -= length;
            assert_non_null(message);
            return message;
        }
        struct pollfd look = {.fd = b->from, .events = POLLIN};
        int left = (int)(until - now_ms());
        if (left <= 0 || poll(&look, 1, left) <= 0)
            return NULL;
        if (b->capacity - b->used < 1 << 16) {
            b->capacity = b->capacity ? 2 * b->capacity : 1 << 17;
            b->heard = realloc(b->heard, b->capacity);
            assert_non_null(b->heard);
        }
        ssize_t got = read(b->from, b->heard + b->used, b->capacity - b->used);
        if (got <= 0)
            fail_msg("the browser has gone");
        b->used += (size_t)got;
    }
}

/* Sends a command and waits for its answer; takes `params`. */
static json_t *ask(browser *b, const char *method, json_t *params)
{
    json_t *command =
        json_pack("{s:i, s:s, s:o}", "id", ++b->number, "method", method,
                  "params", params ? params : json_object());
    if (b->session[0])
        json_object_set_new(command, "sessionId", json_string(b->session));
    char *text = json_dumps(command, JSON_COMPACT);
    size_t length = strlen(text) + 1;
    for (size_t sent = 0; sent < length;) {
        ssize_t took = write(b->to, text + sent, length - sent);
        if (took < 0 && errno != EINTR)
            fail_msg("the browser does not listen: %s", strerror(errno));
        sent += took > 0 ? (size_t)took : 0;
    }
    free(text);
    json_decref(command);
    for (;;) {
        json_t *message = hear(b, PATIENCE_MS);
        if (!message)
            fail_msg("no answer to %s", method);
        json_t *id = json_object_get(message, "id");
        if (id && json_integer_value(id) == b->number) {
            json_t *result = json_object_get(message, "result");
            if (!result)
                fail_msg("%s: %s", method, json_dumps(message, JSON_COMPACT));
            json_incref(result);
            json_decref(message);
            return result;
        }
        const char *event =
            json_string_value(json_object_get(message, "method"));
        if (event)
            hear_event(b, event, json_object_get(message, "params"));
        json_decref(message);
    }
}

static void tell(browser *b, const char *method, json_t *params)
{
    json_decref(ask(b, method, params));
}

/* ----------------------------------------------------------------- life -- */

browser *browser_open(void)
{
    const char *program = find_chromium();
    if (!program)
        return NULL;
    signal(SIGPIPE, SIG_IGN);
    browser *b = calloc(1, sizeof *b);
    assert_non_null(b);
    start_process(b, program);
    json_t *target =
        ask(b, "Target.createTarget", json_pack("{s:s}", "url", "about:blank"));
    json_t *attached =
        ask(b, "Target.attachToTarget",
            json_pack("{s:s, s:b}", "targetId",
                      json_string_value(json_object_get(target, "targetId")),
                      "flatten", 1));
    snprintf(b->session, sizeof b->session, "%s",
             json_string_value(json_object_get(attached, "sessionId")));
    json_decref(target);
    json_decref(attached);
    static const char *const parts[] = {"Page.enable", "Runtime.enable",
                                        "Log.enable", "Network.enable"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        tell(b, parts[i], NULL);
    return b;
}

void browser_close(browser *b)
{
    if (!b)
        return;
    close(b->to);
    close(b->from);
    for (int tries = 0; tries < 100; tries++) {
        if (waitpid(b->process, NULL, WNOHANG) == b->process) {
            b->process = 0;
            break;
        }
        usleep(50 * 1000);
    }
    if (b->process) {
        kill(-b->process, SIGKILL); /* its own group, which we made */
        waitpid(b->process, NULL, 0);
    }
    test_remove_folder(b->folder);
    free(b->heard);
    free(b);
}

static void go_to(browser *b, const char *address)
{
    double until = now_ms() + PATIENCE_MS;
    b->loaded = false;
    tell(b, "Page.navigate", json_pack("{s:s}", "url", address));
    while (!b->loaded && now_ms() < until) {
        json_t *message = hear(b, 1000);
        if (!message)
            continue;
        const char *event =
            json_string_value(json_object_get(message, "method"));
        if (event)
            hear_event(b, event, json_object_get(message, "params"));
        json_decref(message);
    }
    if (!b->loaded)
        fail_msg("%s does not load", address);
}

void browser_load(browser *b, const char *path, const char *fragment, int width,
                  int height)
{
    char address[4300];
    char *whole = realpath(path, NULL);
    assert_non_null(whole);
    /* Only paths that need no escapes are ours. */
    assert_null(strpbrk(whole, "#%? "));
    snprintf(address, sizeof address, "file://%s%s%s", whole,
             fragment ? "#" : "", fragment ? fragment : "");
    free(whole);
    tell(b, "Emulation.setDeviceMetricsOverride",
         json_pack("{s:i, s:i, s:i, s:b}", "width", width, "height", height,
                   "deviceScaleFactor", 1, "mobile", 0));
    /* From another page, so that a new fragment alone also loads. */
    go_to(b, "about:blank");
    b->complaints = b->requests = 0;
    b->last[0] = '\0';
    go_to(b, address);
    browser_settle(b);
}

/* ---------------------------------------------------------------- values -- */

json_t *browser_value(browser *b, const char *expression)
{
    json_t *answer =
        ask(b, "Runtime.evaluate",
            json_pack("{s:s, s:b, s:b, s:b}", "expression", expression,
                      "returnByValue", 1, "awaitPromise", 1, "userGesture", 1));
    const json_t *thrown = json_object_get(answer, "exceptionDetails");
    if (thrown)
        fail_msg("%.200s: %s", expression, json_dumps(thrown, JSON_COMPACT));
    json_t *value = json_object_get(json_object_get(answer, "result"), "value");
    if (value)
        json_incref(value);
    json_decref(answer);
    return value ? value : json_null();
}

double browser_number(browser *b, const char *expression)
{
    json_t *value = browser_value(b, expression);
    if (!json_is_number(value))
        fail_msg("%.200s is no number", expression);
    double number = json_number_value(value);
    json_decref(value);
    return number;
}

bool browser_true(browser *b, const char *expression)
{
    json_t *value = browser_value(b, expression);
    bool yes = json_is_true(value);
    json_decref(value);
    return yes;
}

char *browser_text(browser *b, const char *expression)
{
    json_t *value = browser_value(b, expression);
    if (!json_is_string(value))
        fail_msg("%.200s is no text", expression);
    char *text = strdup(json_string_value(value));
    json_decref(value);
    return text;
}

void browser_settle(browser *b)
{
    json_decref(browser_value(
        b, "new Promise(done => requestAnimationFrame(() => "
           "requestAnimationFrame(() => setTimeout(() => done(1), 20))))"));
}

/* ----------------------------------------------------------------- input -- */

static void mouse(browser *b, const char *type, double x, double y, int buttons)
{
    tell(b, "Input.dispatchMouseEvent",
         json_pack("{s:s, s:f, s:f, s:s, s:i, s:i}", "type", type, "x", x, "y",
                   y, "button",
                   strcmp(type, "mouseMoved") != 0 ? "left" : "none", "buttons",
                   buttons, "clickCount", 1));
}

void browser_move(browser *b, double x, double y)
{
    mouse(b, "mouseMoved", x, y, 0);
    browser_settle(b);
}

void browser_press(browser *b, double x, double y)
{
    mouse(b, "mouseMoved", x, y, 0);
    mouse(b, "mousePressed", x, y, 1);
}

void browser_release(browser *b, double x, double y)
{
    mouse(b, "mouseMoved", x, y, 1);
    mouse(b, "mouseReleased", x, y, 0);
    browser_settle(b);
}

void browser_click(browser *b, double x, double y)
{
    browser_press(b, x, y);
    mouse(b, "mouseReleased", x, y, 0);
    browser_settle(b);
}

void browser_wheel(browser *b, double x, double y, double dy, int modifiers)
{
    tell(b, "Input.dispatchMouseEvent",
         json_pack("{s:s, s:f, s:f, s:f, s:f, s:i}", "type", "mouseWheel", "x",
                   x, "y", y, "deltaX", 0.0, "deltaY", dy, "modifiers",
                   modifiers));
    browser_settle(b);
}

static void touch(browser *b, const char *type, double x, double y,
                  double apart)
{
    json_t *points = json_array();
    if (strcmp(type, "touchEnd") != 0) {
        for (int i = 0; i < 2; i++)
            json_array_append_new(points,
                                  json_pack("{s:f, s:f, s:i}", "x",
                                            x + (i ? apart : -apart) / 2, "y",
                                            y, "id", i));
    }
    tell(b, "Input.dispatchTouchEvent",
         json_pack("{s:s, s:o}", "type", type, "touchPoints", points));
}

void browser_pinch(browser *b, double x, double y, double from, double to)
{
    enum { STEPS = 5 };
    touch(b, "touchStart", x, y, from);
    for (int i = 1; i <= STEPS; i++)
        touch(b, "touchMove", x, y, from + (to - from) * i / STEPS);
    touch(b, "touchEnd", x, y, to);
    browser_settle(b);
}

/* Numbers of keys that have no text, as browsers have them. */
static int code_of(const char *key)
{
    static const struct {
        const char *key;
        int code;
    } codes[] = {{"ArrowLeft", 37}, {"ArrowUp", 38}, {"ArrowRight", 39},
                 {"ArrowDown", 40}, {"Enter", 13},   {"Escape", 27},
                 {"Tab", 9},        {"Home", 36},    {"End", 35}};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (strcmp(codes[i].key, key) == 0)
            return codes[i].code;
    }
    return 0;
}

void browser_key(browser *b, const char *key, int modifiers)
{
    bool plain = strlen(key) == 1;
    bool enter = strcmp(key, "Enter") == 0;
    json_t *down = json_pack("{s:s, s:s, s:i, s:i}", "type",
                             plain || enter ? "keyDown" : "rawKeyDown", "key",
                             key, "windowsVirtualKeyCode", code_of(key),
                             "modifiers", modifiers);
    if (plain || enter)
        json_object_set_new(down, "text", json_string(enter ? "\r" : key));
    tell(b, "Input.dispatchKeyEvent", down);
    tell(b, "Input.dispatchKeyEvent",
         json_pack("{s:s, s:s, s:i, s:i}", "type", "keyUp", "key", key,
                   "windowsVirtualKeyCode", code_of(key), "modifiers",
                   modifiers));
    browser_settle(b);
}

void browser_type(browser *b, const char *text)
{
    tell(b, "Input.insertText", json_pack("{s:s}", "text", text));
    browser_settle(b);
}

/* --------------------------------------------------------------- reports -- */

int browser_complaints(const browser *b)
{
    return b->complaints;
}

int browser_requests(const browser *b)
{
    return b->requests;
}

const char *browser_last(const browser *b)
{
    return b->last;
}

static size_t decode(const char *text, FILE *file)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "abcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned bits = 0, held = 0;
    size_t bytes = 0;
    for (; *text && *text != '='; text++) {
        const char *digit = strchr(digits, *text);
        assert_non_null(digit);
        held = held << 6 | (unsigned)(digit - digits);
        bits += 6;
        if (bits < 8)
            continue;
        bits -= 8;
        if (file)
            fputc((int)(held >> bits & 255), file);
        bytes++;
    }
    return bytes;
}

void browser_screenshot(browser *b, const char *path)
{
    json_t *shot =
        ask(b, "Page.captureScreenshot", json_pack("{s:s}", "format", "png"));
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    decode(json_string_value(json_object_get(shot, "data")), file);
    fclose(file);
    json_decref(shot);
}

void browser_emulate_paper(browser *b, bool on)
{
    tell(b, "Emulation.setEmulatedMedia",
         json_pack("{s:s}", "media", on ? "print" : ""));
    tell(b, "Emulation.setDeviceMetricsOverride",
         json_pack("{s:i, s:i, s:i, s:b}", "width", on ? 720 : 1366, "height",
                   960, "deviceScaleFactor", 1, "mobile", 0));
    browser_settle(b);
}

size_t browser_print(browser *b)
{
    json_t *paper =
        ask(b, "Page.printToPDF",
            json_pack("{s:b, s:b}", "landscape", 1, "printBackground", 1));
    size_t bytes =
        decode(json_string_value(json_object_get(paper, "data")), NULL);
    json_decref(paper);
    return bytes;
}
