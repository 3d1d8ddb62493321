/* SPDX-License-Identifier: MIT
 *
 * Colours can be told apart, also by people who lack one of the three kinds of
 * cones: a kind of action, in each of its shades, from every other that may be
 * beside it in a rank, and labels from their background. */
#include "support.h"
#include "view/palette.h"

#include <math.h>

/* What is seen without one kind of cones, after Machado, Oliveira and Fernandes
 * (2009), in linear light; the first is all three. */
static const double sights[4][3][3] = {
    {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
    {{0.152286, 1.052583, -0.204868},
     {0.114503, 0.786281, 0.099216},
     {-0.003882, -0.048116, 1.051998}},
    {{0.367322, 0.860646, -0.227968},
     {0.280085, 0.672501, 0.047413},
     {-0.011820, 0.042940, 0.968881}},
    {{1.255528, -0.076749, -0.178779},
     {-0.078411, 0.930809, 0.147602},
     {0.004733, 0.691367, 0.303900}},
};

static double linear(double part)
{
    part /= 255;
    return part <= 0.04045 ? part / 12.92 : pow((part + 0.055) / 1.055, 2.4);
}

static double cube(double t)
{
    return t > 0.008856 ? cbrt(t) : 7.787 * t + 16.0 / 116;
}

/* CIE L*a*b* of what is seen. */
static void see(sl__colour colour, int sight, double lab[3])
{
    const double in[3] = {linear(colour.red), linear(colour.green),
                          linear(colour.blue)};
    double out[3];
    for (int i = 0; i < 3; i++) {
        out[i] = 0;
        for (int k = 0; k < 3; k++)
            out[i] += sights[sight][i][k] * in[k];
        out[i] = fmin(1, fmax(0, out[i]));
    }
    double x = (0.4124 * out[0] + 0.3576 * out[1] + 0.1805 * out[2]) / 0.95047;
    double y = 0.2126 * out[0] + 0.7152 * out[1] + 0.0722 * out[2];
    double z = (0.0193 * out[0] + 0.1192 * out[1] + 0.9505 * out[2]) / 1.08883;
    lab[0] = 116 * cube(y) - 16;
    lab[1] = 500 * (cube(x) - cube(y));
    lab[2] = 200 * (cube(y) - cube(z));
}

static double difference(sl__colour a, sl__colour b, int sight)
{
    double first[3], second[3];
    see(a, sight, first);
    see(b, sight, second);
    return sqrt(pow(first[0] - second[0], 2) + pow(first[1] - second[1], 2) +
                pow(first[2] - second[2], 2));
}

/* Ten and more is seen at a glance; blocks get more than that. */
static void kinds_can_be_told_apart(void **state)
{
    (void)state;
    static const sl__look compute[] = {SL__LOOK_FORWARD, SL__LOOK_BACKWARD,
                                       SL__LOOK_INPUT,   SL__LOOK_WEIGHT,
                                       SL__LOOK_STATE,   SL__LOOK_OWN};
    for (int sight = 0; sight < 4; sight++) {
        for (int a = 0; a < 6; a++) {
            for (int b = 0; b < a; b++) {
                for (int shades = 0; shades < SL__SHADES * SL__SHADES;
                     shades++) {
                    sl__colour first =
                        sl__look_colour(compute[a], shades / SL__SHADES);
                    sl__colour second =
                        sl__look_colour(compute[b], shades % SL__SHADES);
                    double apart = difference(first, second, sight);
                    if (apart < 15)
                        fail_msg("%s and %s are %.1f apart to sight %d",
                                 sl__look_text(compute[a]),
                                 sl__look_text(compute[b]), apart, sight);
                }
            }
        }
    }
}

static double contrast(sl__colour a, sl__colour b)
{
    double light[2];
    const sl__colour both[2] = {a, b};
    for (int i = 0; i < 2; i++)
        light[i] = 0.2126 * linear(both[i].red) +
                   0.7152 * linear(both[i].green) +
                   0.0722 * linear(both[i].blue) + 0.05;
    return light[0] > light[1] ? light[0] / light[1] : light[1] / light[0];
}

static void labels_can_be_read(void **state)
{
    (void)state;
    static const sl__colour white = {255, 255, 255}, black = {16, 16, 16};
    for (int look = 0; look < SL__LOOKS; look++) {
        for (int shade = 0; shade < SL__SHADES; shade++) {
            sl__colour ground = sl__look_colour((sl__look)look, shade);
            double found =
                contrast(ground, sl__wants_white(ground) ? white : black);
            if (found < 3)
                fail_msg("%s: contrast %.2f", sl__look_text((sl__look)look),
                         found);
        }
    }
}

/* Reasons of idle time, which are pale, and what a row has where there is none. */
static void reasons_can_be_told_apart(void **state)
{
    (void)state;
    static const sl__colour rows[2] = {{0xf7, 0xf8, 0xf9}, {0x19, 0x1d, 0x22}};
    for (int dark = 0; dark < 2; dark++) {
        for (int sight = 0; sight < 4; sight++) {
            for (int a = SL__IDLE_WARM_UP; a < SL__IDLE_REASONS; a++) {
                sl__colour first = sl__idle_colour((sl__idle_reason)a, dark);
                double apart = difference(first, rows[dark], sight);
                for (int b = SL__IDLE_WARM_UP; b < a; b++)
                    apart = fmin(
                        apart,
                        difference(first,
                                   sl__idle_colour((sl__idle_reason)b, dark),
                                   sight));
                if (apart < 7)
                    fail_msg("%s: %.1f from another, to sight %d",
                             sl__idle_texts[a].text, apart, sight);
            }
        }
        /* Both ends of a step at a glance. */
        assert_true(difference(sl__idle_colour(SL__IDLE_WARM_UP, dark),
                               sl__idle_colour(SL__IDLE_DRAIN, dark), 0) > 15);
    }
}

static void neighbours_differ(void **state)
{
    (void)state;
    for (int look = 0; look < SL__LOOKS; look++) {
        for (int m = 0; m < 8; m++)
            assert_true(difference(sl__look_colour((sl__look)look, m),
                                   sl__look_colour((sl__look)look, m + 1),
                                   0) > 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_can_be_told_apart),
        cmocka_unit_test(labels_can_be_read),
        cmocka_unit_test(reasons_can_be_told_apart),
        cmocka_unit_test(neighbours_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
