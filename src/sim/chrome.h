/* Trace files as Chrome trace JSON. Private.
 *
 * Rank r of part k is process (ranks of the parts before) + r; stream s is thread s. Chrome's
 * format has no fields for some data, which otherData holds: the title, and each part's name, step,
 * and the ranks' time breakdown.
 */
#pragma once

#include "program/program.h"

#include <weft/trace.h>

#define WFI_CHROME_FORMAT "weft-timeline-1"

/* The largest file that the reader accepts; jansson's tree of the text is some ten times as
 * large. */
#define WFI_CHROME_MAX_BYTES (64 << 20)
/* A century: a longer time cannot be that of a step. */
#define WFI_CHROME_MAX_US 3e15
/* Bytes of a kind. */
#define WFI_CHROME_MAX_MEMORY ((int64_t)1 << 50)
#define WFI_CHROME_MAX_RANKS  65536

struct wf_trace {
    wf_context *ctx;
    char *title;
    char *names[WF_TRACE_MAX_PARTS];
    wf_timeline *timelines[WF_TRACE_MAX_PARTS];
    int n_parts;
};

/* Whether byte i of a text would control a terminal; U+0080 to U+009F do, too. */
static inline bool wfi_chrome_is_control(const char *text, size_t i) {
    unsigned char c = (unsigned char)text[i];
    return c < 0x20 || c == 0x7f ||
           (c >= 0x80 && c < 0xa0 && i && (unsigned char)text[i - 1] == 0xc2);
}

/* `path` names the bytes in sentences. */
wf_status wfi_chrome_parse(wf_context *ctx, const char *path, const char *bytes, size_t n_bytes,
                           wf_trace **trace_out);
