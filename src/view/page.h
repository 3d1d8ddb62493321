/* SPDX-License-Identifier: MIT
 *
 * The files of src/view/page, which the build embeds as UTF-8 strings. */
#ifndef SL_VIEW_PAGE_H
#define SL_VIEW_PAGE_H

extern const unsigned char sl__page_style[];
extern const unsigned char sl__page_body[];
extern const unsigned char sl__page_script[];

#endif
