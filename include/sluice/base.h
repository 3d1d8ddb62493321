/* SPDX-License-Identifier: MIT
 *
 * What every layer of Sluice shares: statuses, the text of the last error, and
 * the sinks that text is written to.
 *
 * Everything that can fail returns an `sl_status`; 0 is success. Outputs are
 * written only on success. The library never prints and never exits: the
 * sentence that explains a failure is kept per thread, for `sl_error_text`.
 *
 *     sl_string text = SL_STRING_INIT;
 *     if (sl_schedule_write_csv(schedule, sl_write_string, &text))
 *         fprintf(stderr, "%s\n", sl_error_text());
 *     else
 *         puts(text.data);
 *     sl_string_clear(&text);
 *
 * What a function writes through an `out` pointer belongs to the caller, who
 * destroys or frees it; pointers that are passed or returned are borrowed,
 * unless a function says otherwise. Every function that allocates may fail with
 * SL_ENOMEM.
 *
 * Pointers are required unless a function says that they may be NULL; contexts
 * of callbacks may. NULL for a required one is refused with SL_EINVAL. A
 * function that returns no status then returns 0, false, NULL or an empty text,
 * as it does for an index out of range, and does nothing else.
 */
#ifndef SLUICE_BASE_H
#define SLUICE_BASE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(SL_BUILDING) && defined(__GNUC__)
#define SL_API __attribute__((visibility("default")))
#else
#define SL_API
#endif

typedef enum sl_status {
#define SL_STATUS(name, value, text) SL_##name = value,
#include "sluice/status.def"
#undef SL_STATUS
} sl_status;

/* The version of the library: "0.1.0". */
SL_API const char *sl_version(void);

/* The name of a status, in a few words; never NULL. */
SL_API const char *sl_status_text(sl_status status);

/* The sentence behind a failure: call it right after one, on the same thread.
 * Valid until this thread's next call into the library. */
SL_API const char *sl_error_text(void);

/* Fails with `status` and a printf-style sentence: for callbacks that the
 * library calls. Returns `status`. */
SL_API sl_status sl_fail(sl_status status, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* The type of an element of a tensor. */
typedef enum sl_dtype {
#define SL_DTYPE(name, text, bytes, safetensors, is_float, accumulator)        \
    SL_##name,
#include "sluice/dtypes.def"
#undef SL_DTYPE
} sl_dtype;

/* "f32", "i64", ...; never NULL. */
SL_API const char *sl_dtype_text(sl_dtype dtype);
/* Bytes of an element; 0 if there is no such dtype. */
SL_API size_t sl_dtype_bytes(sl_dtype dtype);

/* A sink for text. Returns SL_OK, or a failure that ends the writing. */
typedef sl_status (*sl_write_fn)(void *context, const char *data,
                                 size_t length);

/* A sink whose context is an open `FILE *`. */
SL_API sl_status sl_write_stdio(void *file, const char *data, size_t length);

/* A sink whose context is an `sl_string *`, kept NUL-terminated. */
typedef struct sl_string {
    char *data;
    size_t length;
    size_t capacity;
} sl_string;
#define SL_STRING_INIT                                                         \
    {                                                                          \
        NULL, 0, 0                                                             \
    }
SL_API sl_status sl_write_string(void *string, const char *data, size_t length);

/* Frees what the string holds and makes it empty again. */
SL_API void sl_string_clear(sl_string *string);

#ifdef __cplusplus
}
#endif
#endif
