#include "base/pairs.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static wf_status check_text(wf_context *ctx, const char *what, const char *text, size_t most) {
    size_t n = strnlen(text, most + 1);
    if (n > most)
        return wfi_fail(ctx, WF_INVALID_ARG, "%s: longer than %zu characters", what, most);
    for (size_t i = 0; i < n; i++)
        if (!isprint((unsigned char)text[i]))
            return wfi_fail(ctx, WF_INVALID_ARG, "%s: byte 0x%02x at position %zu is not text",
                            what, (unsigned char)text[i], i + 1);
    return WF_OK;
}

wf_status wfi_each_pair(wf_context *ctx, const char *what, const char *text, size_t most,
                        wf_status (*take)(void *self, const wfi_pair *pair), void *self) {
    if (!text) text = "";
    WF_TRY(check_text(ctx, what, text, most));
    char *scratch = wfi_strdup(ctx, text);
    wf_status status = scratch ? WF_OK : WF_NO_MEMORY;
    bool more = scratch && *scratch;
    for (char *at = scratch; status == WF_OK && more;) {
        char *end = at + strcspn(at, ",");
        more = *end == ',';
        *end = 0;
        char *equals = strchr(at, '=');
        const wfi_pair pair = {ctx, what, at, equals ? equals + 1 : NULL, (int)(at - scratch) + 1};
        status = !*at || equals == at ? wfi_pair_has_no_value(&pair) : WF_OK;
        if (equals) *equals = 0;
        if (status == WF_OK) status = take(self, &pair);
        at = end + 1;
    }
    wfi_free(ctx, scratch);
    return status;
}

wf_status wfi_pair_refuse(const wfi_pair *pair, const char *takes, ...) {
    char rest[WFI_SENTENCE_BYTES / 2];
    va_list args;
    va_start(args, takes);
    vsnprintf(rest, sizeof rest, takes, args);
    va_end(args);
    return wfi_fail(pair->ctx, WF_INVALID_ARG, "%s: %s='%.60s' at position %d; it takes %s%s",
                    pair->what, pair->key, pair->value, pair->position, rest,
                    strchr(pair->value, ' ') ? "; a comma separates two keys" : "");
}

wf_status wfi_pair_has_no_value(const wfi_pair *pair) {
    return wfi_fail(pair->ctx, WF_INVALID_ARG, "%s: expected key=value at position %d, found '%s'",
                    pair->what, pair->position, pair->key);
}

wf_status wfi_pair_is_second(const wfi_pair *pair) {
    return wfi_fail(pair->ctx, WF_INVALID_ARG, "%s: %s is given twice, again at position %d",
                    pair->what, pair->key, pair->position);
}

wf_status wfi_pair_is_unknown(const wfi_pair *pair, const char *(*name)(int i)) {
    return wfi_fail_unknown(pair->ctx, WF_INVALID_ARG, name, pair->key,
                            "%s: unknown key '%.64s' at position %d", pair->what, pair->key,
                            pair->position);
}

int wfi_word_find(const char *words, const char *word, size_t n) {
    for (int k = 0; *words; k++) {
        size_t length = strcspn(words, "|");
        if (length == n && !strncasecmp(words, word, n)) return k;
        words += length + (words[length] == '|');
    }
    return -1;
}
