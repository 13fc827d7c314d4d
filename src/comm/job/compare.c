#include "comm/job/compare.h"

#include "base/hash.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Characters of a value in an error message. A longer value is shown from shortly before the
 * difference. */
#define SHOWN  100
#define BEFORE 20

/* ---- statements ---- */

static void add_printable(wfi_text *statement, const char *text) {
    for (; *text; text++)
        if (isprint((unsigned char)*text) || (unsigned char)*text >= 128)
            wfi_text_add(statement, "%c", *text);
        else
            wfi_text_add(statement, "\\x%02x", (unsigned char)*text);
}

void wfi_setting_add(wfi_text *statement, const char *name, const char *format, ...) {
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    char *value = n < 0 ? NULL : wfi_alloc(statement->ctx, (size_t)n + 1, 1, "a setting");
    if (value) {
        vsnprintf(value, (size_t)n + 1, format, again);
        add_printable(statement, name);
        wfi_text_add(statement, "\t");
        add_printable(statement, value);
        wfi_text_add(statement, "\n");
    } else {
        statement->failed = true;
    }
    wfi_free(statement->ctx, value);
    va_end(again);
    va_end(args);
}

typedef struct setting {
    const char *name, *value;
    size_t n_name, n_value;
} setting;

/* Reads the next setting; false at the end. */
static bool setting_next(const char **at, setting *out) {
    if (!**at) return false;
    out->name = *at;
    out->n_name = strcspn(*at, "\t\n");
    out->value = *at + out->n_name + ((*at)[out->n_name] == '\t');
    out->n_value = strcspn(out->value, "\n");
    *at = out->value + out->n_value + (out->value[out->n_value] == '\n');
    return true;
}

static bool is_same(const char *a, size_t n_a, const char *b, size_t n_b) {
    return n_a == n_b && !memcmp(a, b, n_a);
}

static bool setting_find(const char *statement, const setting *like, setting *out) {
    while (setting_next(&statement, out))
        if (is_same(out->name, out->n_name, like->name, like->n_name)) return true;
    return false;
}

/* ---- the error message ---- */

/* "with --steps 5", "with --resume" or "without --resume". Long values are shown from their first
 * difference. */
static void describe_setting(const setting *s, size_t n_common, char *text, size_t bytes) {
    size_t from = n_common > SHOWN - BEFORE ? n_common - BEFORE : 0;
    if (!s->n_value) {
        snprintf(text, bytes, "without %.*s", (int)s->n_name, s->name);
        return;
    }
    if (is_same(s->value, s->n_value, "true", 4)) {
        snprintf(text, bytes, "with %.*s", (int)s->n_name, s->name);
        return;
    }
    size_t n = s->n_value - from;
    snprintf(text, bytes, "with %.*s %s%.*s%s", (int)s->n_name, s->name, from ? "..." : "",
             (int)(n < SHOWN ? n : SHOWN), s->value + from, n > SHOWN ? "..." : "");
}

static void describe_both(const setting *first, const setting *own, int rank, char *text,
                          size_t bytes) {
    char mine[256], theirs[256];
    size_t n_common = 0;
    while (n_common < first->n_value && n_common < own->n_value &&
           first->value[n_common] == own->value[n_common])
        n_common++;
    describe_setting(own, n_common, mine, sizeof mine);
    describe_setting(first, n_common, theirs, sizeof theirs);
    snprintf(text, bytes, "rank %d was started %s, rank 0 %s", rank, mine, theirs);
}

void wfi_difference_describe(const char *first, const char *own, int rank, char *text,
                             size_t bytes) {
    const char *at = first;
    setting theirs, mine;
    while (setting_next(&at, &theirs)) {
        if (!setting_find(own, &theirs, &mine)) mine = (setting){theirs.name, "", theirs.n_name, 0};
        if (is_same(theirs.value, theirs.n_value, mine.value, mine.n_value)) continue;
        describe_both(&theirs, &mine, rank, text, bytes);
        return;
    }
    for (at = own; setting_next(&at, &mine);) {
        if (setting_find(first, &mine, &theirs)) continue;
        theirs = (setting){mine.name, "", mine.n_name, 0};
        describe_both(&theirs, &mine, rank, text, bytes);
        return;
    }
    snprintf(text, bytes, "rank %d was started with the settings of rank 0 in another order", rank);
}

/* ---- all ranks ---- */

/* Broadcasts rank 0's statement. `rank`, the first one with a different statement, reports the
 * first difference. */
static wf_status name_difference(wfi_control *c, const char *own, size_t n_first, int rank) {
    wf_context *ctx = wfi_control_context(c);
    char difference[600];
    char *first = wfi_alloc(ctx, n_first + 1, 1, "a statement");
    if (!first) return wfi_control_fail_all(c, WF_NO_MEMORY);
    if (wf_job_rank(c) == 0) memcpy(first, own, n_first);
    wf_status status = wfi_control_broadcast(c, "receive rank 0's settings", first, n_first);
    if (status == WF_OK && wf_job_rank(c) == rank) {
        wfi_difference_describe(first, own, rank, difference, sizeof difference);
        status = wfi_control_fail_all(
            c, wfi_fail(ctx, WF_REMOTE, "%s: all ranks need the same", difference));
    }
    wfi_free(ctx, first);
    /* The other ranks receive the failure in this barrier, as that rank does not enter it. */
    return status == WF_OK ? wfi_control_barrier(c, "receive the first difference") : status;
}

wf_status wfi_control_compare(wfi_control *c, const wfi_text *statement) {
    wfi_control_numbers own = {0};
    const wfi_control_numbers *all;
    wf_status status = wfi_text_status(statement);
    if (status != WF_OK) return wfi_control_fail_all(c, status);
    const char *text = statement->data ? statement->data : "";
    own[0] = (int64_t)wfi_hash_add(WFI_HASH_INIT, text, statement->n);
    own[1] = (int64_t)statement->n;
    WF_TRY(wfi_control_all_gather(c, "compare how they were started", own, &all));
    for (int r = 1; r < wf_job_n_ranks(c); r++)
        if (memcmp(all[r], all[0], sizeof all[0]) != 0)
            return name_difference(c, text, (size_t)all[0][1], r);
    return WF_OK;
}
