/* SPDX-License-Identifier: MIT
 *
 * The width of text in DejaVu Sans, the widest of the fonts that pictures name:
 * text that fits in this font fits in the others. */
#include "view/canvas.h"

/* In 1/2048 of the font size, by character, from the space on. */
static const short advances[] = {
    651,  821,  942,  1716, 1303, 1946, 1597, 563,  799,  799,  1024, 1716,
    651,  739,  651,  690,  1303, 1303, 1303, 1303, 1303, 1303, 1303, 1303,
    1303, 1303, 690,  690,  1716, 1716, 1716, 1087, 2048, 1401, 1405, 1430,
    1577, 1294, 1178, 1587, 1540, 604,  604,  1343, 1141, 1767, 1532, 1612,
    1235, 1612, 1423, 1300, 1251, 1499, 1401, 2025, 1403, 1251, 1403, 799,
    690,  799,  1716, 1024, 1024, 1255, 1300, 1126, 1300, 1260, 721,  1300,
    1298, 569,  569,  1186, 569,  1995, 1298, 1253, 1300, 1300, 842,  1067,
    803,  1298, 1212, 1675, 1212, 1212, 1075, 1303, 690,  1303, 1716};

double sl__text_width(const char *text, double size, bool bold)
{
    enum { FIRST = ' ', LAST = '~', WIDEST = 2048 };
    long sum = 0;
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if ((byte & 0xc0) == 0x80)
            continue; /* a UTF-8 continuation byte */
        sum += byte >= FIRST && byte <= LAST ? advances[byte - FIRST] : WIDEST;
    }
    return (double)sum / 2048 * size * (bold ? 1.14 : 1);
}
