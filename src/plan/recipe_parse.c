/* Recipe strings: "batch=20,lr=0.001,optimizer=adamw". Input may be hostile: bounded, every word is
 * checked, every error says where.
 */
#include "base/names.h"
#include "plan/recipe_fields.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT  32768
#define MAX_VALUE 63

typedef struct reading {
    wf_context *ctx;
    const wfi_recipe_field *field;
    const char *value;
    int position; /* of the key, counted from 1 */
} reading;

static wf_status refuse(const reading *r, const char *takes) {
    return wfi_fail(r->ctx, WF_INVALID_ARG, "recipe: %s='%.60s' at position %d; it takes %s",
                    r->field->name, r->value, r->position, takes);
}

static wf_status read_whole(const reading *r, void *to) {
    const char *digits = r->value + (*r->value == '-' && r->field->kind != WFI_RECIPE_SEED);
    char *end = NULL;
    errno = 0;
    if (!isdigit((unsigned char)*digits)) return refuse(r, "a whole number");
    if (r->field->kind == WFI_RECIPE_SEED) {
        uint64_t n = strtoull(r->value, &end, 10);
        if (*end || errno) return refuse(r, "a whole number below 2^64");
        memcpy(to, &n, sizeof n);
        return WF_OK;
    }
    int64_t n = strtoll(r->value, &end, 10);
    if (*end || errno) return refuse(r, "a whole number");
    if (r->field->kind == WFI_RECIPE_COUNT) {
        memcpy(to, &n, sizeof n);
        return WF_OK;
    }
    if (n != (int)n) return refuse(r, "a whole number below 2^31");
    memcpy(to, &(int){(int)n}, sizeof(int));
    return WF_OK;
}

static wf_status read_real(const reading *r, void *to) {
    double x;
    if (!wfi_parse_real(r->value, strlen(r->value), &x))
        return refuse(r, "a number such as 0.1 or 1e-3");
    memcpy(to, &x, sizeof x);
    return WF_OK;
}

static wf_status read_word(const reading *r, const char *words, void *to) {
    int place = 0;
    size_t n = strlen(r->value);
    char takes[128];
    for (const char *at = words; *at; place++) {
        size_t length = strcspn(at, "|");
        if (length == n && !strncmp(at, r->value, n)) {
            memcpy(to, &place, sizeof place);
            return WF_OK;
        }
        at += length + (at[length] == '|');
    }
    snprintf(takes, sizeof takes, "one of %s", words);
    return refuse(r, takes);
}

static wf_status read_names(const reading *r, char *to) {
    size_t n = strlen(r->value);
    char takes[64];
    snprintf(takes, sizeof takes, "at most %.0f characters", r->field->most);
    if (n > (size_t)r->field->most) return refuse(r, takes);
    memcpy(to, r->value, n + 1);
    return WF_OK;
}

static wf_status read_value(const reading *r, wf_recipe *recipe) {
    void *to = (char *)recipe + r->field->offset;
    if (r->field->kind == WFI_RECIPE_NAMES) return read_names(r, to);
    if (strlen(r->value) > MAX_VALUE) return refuse(r, "less than 64 characters");
    switch (r->field->kind) {
    case WFI_RECIPE_REAL:
        return read_real(r, to);
    case WFI_RECIPE_CHOICE:
        return read_word(r, r->field->words, to);
    case WFI_RECIPE_FLAG:
        return read_word(r, "0|1", to);
    default:
        return read_whole(r, to);
    }
}

static wf_status refuse_unknown(wf_context *ctx, const char *key, int position) {
    wfi_text names;
    wfi_text_init(&names, ctx);
    for (int k = 0; k < wfi_recipe_n_fields; k++)
        wfi_text_add(&names, "%s%s", k ? ", " : "", wfi_recipe_fields[k].name);
    wf_status status = wfi_text_status(&names);
    if (status == WF_OK)
        status = wfi_fail(ctx, WF_INVALID_ARG,
                          "recipe: unknown key '%s' at position %d; the keys are %s", key, position,
                          names.data);
    wfi_free(ctx, names.data);
    return status;
}

/* `word` is "key=value"; `given`: of the fields so far. */
static wf_status read_field(wf_context *ctx, char *word, int position, bool *given,
                            wf_recipe *recipe) {
    char *equals = strchr(word, '=');
    if (!equals || equals == word)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "recipe: expected key=value at position %d, found '%s'", position, word);
    *equals = 0;
    for (int k = 0; k < wfi_recipe_n_fields; k++) {
        const reading r = {ctx, &wfi_recipe_fields[k], equals + 1, position};
        if (strcmp(r.field->name, word)) continue;
        if (given[k])
            return wfi_fail(ctx, WF_INVALID_ARG, "recipe: %s is given twice, again at position %d",
                            word, position);
        given[k] = true;
        return read_value(&r, recipe);
    }
    return refuse_unknown(ctx, word, position);
}

wf_status wf_recipe_parse(wf_context *ctx, const char *text, wf_recipe *recipe_out) {
    const wf_recipe init = WF_RECIPE_INIT;
    wf_recipe recipe = init;
    if (!text) text = "";
    size_t n = strnlen(text, MAX_TEXT + 1);
    if (n > MAX_TEXT)
        return wfi_fail(ctx, WF_INVALID_ARG, "recipe: longer than %d characters", MAX_TEXT);
    for (size_t i = 0; i < n; i++)
        if (!isprint((unsigned char)text[i]))
            return wfi_fail(ctx, WF_INVALID_ARG, "recipe: byte 0x%02x at position %zu is not text",
                            (unsigned char)text[i], i + 1);
    char *scratch = wfi_strdup(ctx, text);
    bool *given = wfi_alloc(ctx, (size_t)wfi_recipe_n_fields, sizeof *given, "a recipe");
    wf_status status = scratch && given ? WF_OK : WF_NO_MEMORY;
    for (char *at = scratch; status == WF_OK && *at;) {
        char *end = at + strcspn(at, ",");
        bool more = *end == ',';
        *end = 0;
        status = read_field(ctx, at, (int)(at - scratch) + 1, given, &recipe);
        if (status == WF_OK && more && !end[1])
            status =
                wfi_fail(ctx, WF_INVALID_ARG, "recipe: nothing follows the comma at position %d",
                         (int)(end - scratch) + 1);
        at = more ? end + 1 : end;
    }
    wfi_free(ctx, scratch);
    wfi_free(ctx, given);
    if (status == WF_OK) *recipe_out = recipe;
    return status;
}

wf_status wf_recipe_text(wf_context *ctx, const wf_recipe *recipe, char **text_out) {
    WF_TRY(wfi_check_struct(ctx, recipe, sizeof *recipe, "wf_recipe"));
    char value[WFI_RECIPE_TEXT];
    wfi_text text;
    wfi_text_init(&text, ctx);
    for (int k = 0; k < wfi_recipe_n_fields; k++)
        wfi_text_add(&text, "%s%s=%s", k ? "," : "", wfi_recipe_fields[k].name,
                     wfi_recipe_text(recipe, &wfi_recipe_fields[k], value));
    wf_status status = wfi_text_status(&text);
    if (status != WF_OK)
        wfi_free(ctx, text.data);
    else
        *text_out = text.data;
    return status;
}
