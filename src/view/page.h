/* SPDX-License-Identifier: MIT
 *
 * The parts of the page, from src/view/page: the build makes strings of them,
 * in UTF-8. */
#ifndef SL_VIEW_PAGE_H
#define SL_VIEW_PAGE_H

extern const unsigned char sl__page_style[];
extern const unsigned char sl__page_body[];
extern const unsigned char sl__page_script[];

#endif
