/* SPDX-License-Identifier: MIT
 *
 * A headless Chromium at the other end of a pipe: pages are opened, looked at
 * with scripts, and used with a real mouse and real keys. What goes wrong with
 * the browser itself fails the test. */
#ifndef SL_TESTS_BROWSER_H
#define SL_TESTS_BROWSER_H

#include <jansson.h>
#include <stdbool.h>

typedef struct browser browser;

/* NULL where there is no chromium, or only Ubuntu's snap of it. */
browser *browser_open(void);
void browser_close(browser *b);

/* Opens a file, with what follows # in its address, or NULL, in a window of
 * this size; returns when it is loaded. */
void browser_load(browser *b, const char *path, const char *fragment, int width,
                  int height);

/* The value of an expression, promises waited for; the caller has it. Fails
 * where it throws. */
json_t *browser_value(browser *b, const char *expression);
double browser_number(browser *b, const char *expression);
bool browser_true(browser *b, const char *expression);
/* A string, to be freed. */
char *browser_text(browser *b, const char *expression);

/* Until the next frame has been drawn. */
void browser_settle(browser *b);

void browser_move(browser *b, double x, double y);
void browser_press(browser *b, double x, double y);
void browser_release(browser *b, double x, double y);
void browser_click(browser *b, double x, double y);
/* `modifiers` as in the protocol: 2 Ctrl, 8 Shift. */
void browser_wheel(browser *b, double x, double y, double dy, int modifiers);
/* Two fingers, from so far apart to so far apart around a point. */
void browser_pinch(browser *b, double x, double y, double from, double to);
/* A key by its name: "a", "ArrowLeft", "Enter", "?". */
void browser_key(browser *b, const char *key, int modifiers);
void browser_type(browser *b, const char *text);

/* What the page said since it was loaded: errors and warnings, and requests
 * beyond its own. Texts of the last of them. */
int browser_complaints(const browser *b);
int browser_requests(const browser *b);
const char *browser_last(const browser *b);

void browser_screenshot(browser *b, const char *path);
/* As a sheet of paper, 720 pixels wide, would have it; and back. */
void browser_emulate_paper(browser *b, bool on);
/* Bytes of the page as PDF. */
size_t browser_print(browser *b);

#endif
