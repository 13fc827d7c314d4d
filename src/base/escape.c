/* Text from files and from other processes, as a terminal may show it. */
#include "base/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <weft/context.h>

size_t wfi_utf8_character(const uint8_t *at, size_t n_left) {
    if (!n_left) return 0;
    size_t n = *at < 0x80   ? 1
               : *at < 0xc2 ? 0
               : *at < 0xe0 ? 2
               : *at < 0xf0 ? 3
               : *at < 0xf5 ? 4
                            : 0;
    if (n > n_left) return 0;
    for (size_t i = 1; i < n; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    bool is_overlong = n > 2 && ((*at == 0xe0 && at[1] < 0xa0) || (*at == 0xf0 && at[1] < 0x90));
    bool is_outside = n > 2 && ((*at == 0xed && at[1] > 0x9f) || (*at == 0xf4 && at[1] > 0x8f));
    return is_overlong || is_outside ? 0 : n;
}

size_t wf_text_valid(const void *text, size_t n_bytes) {
    const uint8_t *bytes = text;
    size_t n_done = 0;
    for (size_t n; (n = wfi_utf8_character(bytes + n_done, n_bytes - n_done));) n_done += n;
    return n_done;
}

char *wf_text_escape(const char *text, char *dst, size_t dst_bytes) {
    const uint8_t *at = (const uint8_t *)text, *end = at + strlen(text);
    size_t n_done = 0;
    while (at < end) {
        char shown[8];
        size_t n = wfi_utf8_character(at, (size_t)(end - at)), n_shown = n;
        bool is_c1 = n == 2 && *at == 0xc2 && at[1] < 0xa0; /* terminals obey these as well */
        if (is_c1)
            n_shown = (size_t)snprintf(shown, sizeof shown, "\\u%04x", at[1]);
        else if (!n || *at < 0x20 || *at == 0x7f)
            n_shown = (size_t)snprintf(shown, sizeof shown, "\\x%02x", *at);
        else
            memcpy(shown, at, n);
        if (n_done + n_shown >= dst_bytes) break;
        memcpy(dst + n_done, shown, n_shown);
        n_done += n_shown;
        at += n ? n : 1;
    }
    if (dst_bytes) dst[n_done] = 0;
    return dst;
}
