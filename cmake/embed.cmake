# SPDX-License-Identifier: MIT
# Writes files, one after the other, into a C source as one string:
#   cmake -DNAME=... -DOUT=... -DFILES="a;b" -P embed.cmake
set(hex "")
foreach(file ${FILES})
  file(READ ${file} part HEX)
  string(APPEND hex "${part}")
endforeach()
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "((0x..,){20})" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "/* Made from ${NAME} by cmake/embed.cmake. */
#include \"view/page.h\"
const unsigned char sl__page_${NAME}[] = {
${bytes}0};
")
