/* Numbers as people read and type them. */
#include "common/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <weft/context.h>

static char *scaled(char *text, double n, double base, const char *const *units, int n_units) {
    int u = 0;
    while (u + 1 < n_units && n >= base * 0.99995) n /= base, u++;
    int decimals = u == 0 ? 0 : n < 10 ? 2 : n < 100 ? 1 : 0;
    if (n_units == 5 && u > 0) decimals = u > 2 && n < 100 ? 2 : 1; /* bytes */
    snprintf(text, TEXT_BYTES, "%.*f%s%s", decimals, n, *units[u] ? " " : "", units[u]);
    return text;
}

char *text_of_bytes(char text[TEXT_BYTES], double n) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    return scaled(text, n, 1024, units, 5);
}

char *text_of_count(char text[TEXT_BYTES], double n) {
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};
    return scaled(text, n, 1000, units, 6);
}

char *text_of_us(char text[TEXT_BYTES], double us) {
    static const char *const units[] = {"us", "ms", "s"};
    int u = 0;
    if (!(us > 0)) return strcpy(text, us == 0 ? "0" : "-");
    while (u < 2 && us >= 999.5) us /= 1000, u++;
    snprintf(text, TEXT_BYTES, "%.*f %s", us < 9.995 ? 2 : us < 99.95 ? 1 : 0, us, units[u]);
    return text;
}

char *text_of_seconds(char text[TEXT_BYTES], double s) {
    if (!(s >= 0) || s > 1e9) return strcpy(text, "-");
    long t = lround(s);
    if (t < 3600)
        snprintf(text, TEXT_BYTES, "%ld:%02ld", t / 60, t % 60);
    else
        snprintf(text, TEXT_BYTES, "%ld:%02ld:%02ld", t / 3600, t / 60 % 60, t % 60);
    return text;
}

char *text_of_real(char text[TEXT_BYTES], double value) {
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, TEXT_BYTES, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    return text;
}

char *text_of_thousands(char text[TEXT_BYTES], int64_t n) {
    char digits[TEXT_BYTES];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)n), at = 0;
    for (int i = 0; i < length && at < TEXT_BYTES - 2; i++) {
        text[at++] = digits[i];
        bool is_group_end = isdigit((unsigned char)digits[i]) && (length - 1 - i) % 3 == 0;
        if (is_group_end && i + 1 < length) text[at++] = ',';
    }
    text[at] = 0;
    return text;
}

void text_add(char *text, size_t bytes, const char *format, ...) {
    size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, bytes - n, format, args);
    va_end(args);
}

bool text_to_int(const char *text, int64_t *value_out) {
    char *end;
    errno = 0;
    if (!isdigit((unsigned char)*text) && *text != '-') return false;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end) return false;
    *value_out = value;
    return true;
}

bool text_to_seed(const char *text, uint64_t *value_out) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || !isdigit((unsigned char)*text) || *end) return false;
    *value_out = value;
    return true;
}

bool text_to_real(const char *text, double *value_out) {
    char *end;
    if (!*text || isspace((unsigned char)*text)) return false;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value)) return false;
    *value_out = value;
    return true;
}

bool text_to_bytes(const char *text, size_t *bytes_out) {
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"K", 1024},
                 {"KiB", 1024},
                 {"KB", 1e3},
                 {"M", 1048576},
                 {"MiB", 1048576},
                 {"MB", 1e6},
                 {"G", 1073741824},
                 {"GiB", 1073741824},
                 {"GB", 1e9},
                 {"T", 1099511627776.0},
                 {"TiB", 1099511627776.0},
                 {"TB", 1e12}};
    char *end;
    if (!isdigit((unsigned char)*text)) return false;
    double value = strtod(text, &end);
    while (*end == ' ') end++;
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        if (strcasecmp(units[u].name, end)) continue;
        value *= units[u].bytes;
        if (!(value < 9e18)) return false;
        *bytes_out = (size_t)value;
        return true;
    }
    return false;
}

bool text_has_control(const char *text) {
    for (const unsigned char *at = (const unsigned char *)text; *at; at++)
        if (*at < ' ' || *at == 0x7f || (*at == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0)) return true;
    return false;
}

char *text_repaired(const char *text, size_t n_bytes) {
    static const char replacement[] = "\xef\xbf\xbd";
    const char *end = text + n_bytes;
    char *repaired = malloc(3 * n_bytes + 1), *to = repaired;
    while (repaired && text < end) {
        size_t n = wf_text_valid(text, strnlen(text, (size_t)(end - text)));
        memcpy(to, text, n);
        to += n;
        text += n;
        if (text++ == end) break;
        memcpy(to, replacement, 3);
        to += 3;
    }
    if (repaired) *to = 0;
    return repaired;
}
