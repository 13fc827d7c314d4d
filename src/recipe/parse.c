/* Recipes as text: "batch=20,lr=0.001,optimizer=adamw". */
#include "base/names.h"
#include "base/pairs.h"
#include "recipe/fields.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT  32768
#define MAX_VALUE 63

static wf_status read_whole(const wfi_pair *pair, wfi_recipe_kind kind, void *to) {
    const char *digits = pair->value + (*pair->value == '-' && kind != WFI_RECIPE_SEED);
    char *end = NULL;
    errno = 0;
    if (!isdigit((unsigned char)*digits)) return wfi_pair_refuse(pair, "a whole number");
    if (kind == WFI_RECIPE_SEED) {
        uint64_t n = strtoull(pair->value, &end, 10);
        if (*end || errno) return wfi_pair_refuse(pair, "a whole number below 2^64");
        memcpy(to, &n, sizeof n);
        return WF_OK;
    }
    int64_t n = strtoll(pair->value, &end, 10);
    if (*end || errno) return wfi_pair_refuse(pair, "a whole number");
    if (kind == WFI_RECIPE_COUNT) {
        memcpy(to, &n, sizeof n);
        return WF_OK;
    }
    if (n != (int)n) return wfi_pair_refuse(pair, "a whole number below 2^31");
    memcpy(to, &(int){(int)n}, sizeof(int));
    return WF_OK;
}

static wf_status read_real(const wfi_pair *pair, void *to) {
    double x;
    if (!wfi_parse_real(pair->value, strlen(pair->value), &x))
        return wfi_pair_refuse(pair, "a number such as 0.1 or 1e-3");
    memcpy(to, &x, sizeof x);
    return WF_OK;
}

static wf_status read_word(const wfi_pair *pair, const char *words, void *to) {
    int place = wfi_word_find(words, pair->value, strlen(pair->value));
    if (place < 0) return wfi_pair_refuse(pair, "one of %s", words);
    memcpy(to, &place, sizeof place);
    return WF_OK;
}

static wf_status read_names(const wfi_pair *pair, const wfi_recipe_field *field, void *to) {
    size_t n = strlen(pair->value);
    if (n > (size_t)field->most)
        return wfi_pair_refuse(pair, "at most %.0f characters", field->most);
    if (field->kind == WFI_RECIPE_TABLE) return wfi_context_keep(pair->ctx, pair->value, to);
    memcpy(to, pair->value, n + 1);
    return WF_OK;
}

static wf_status read_value(const wfi_pair *pair, const wfi_recipe_field *field,
                            wf_recipe *recipe) {
    void *to = (char *)recipe + field->offset;
    if (field->kind >= WFI_RECIPE_NAMES) return read_names(pair, field, to);
    if (strlen(pair->value) > MAX_VALUE) return wfi_pair_refuse(pair, "less than 64 characters");
    switch (field->kind) {
    case WFI_RECIPE_REAL:
        return read_real(pair, to);
    case WFI_RECIPE_CHOICE:
        return read_word(pair, field->words, to);
    case WFI_RECIPE_FLAG:
        return read_word(pair, "0|1", to);
    default:
        return read_whole(pair, field->kind, to);
    }
}

static const char *key_at(int i) {
    return i < wfi_recipe_n_fields ? wfi_recipe_fields[i].name : NULL;
}

typedef struct reading {
    bool *given; /* [wfi_recipe_n_fields] */
    wf_recipe recipe;
} reading;

static wf_status take_pair(void *self, const wfi_pair *pair) {
    reading *r = self;
    int k = 0;
    while (key_at(k) && strcmp(key_at(k), pair->key)) k++;
    if (!pair->value) return wfi_pair_has_no_value(pair);
    if (!key_at(k)) return wfi_pair_is_unknown(pair, key_at);
    if (r->given[k]) return wfi_pair_is_second(pair);
    r->given[k] = true;
    return read_value(pair, &wfi_recipe_fields[k], &r->recipe);
}

wf_status wf_recipe_parse(wf_context *ctx, const char *text, wf_recipe *recipe_out) {
    reading r = {.recipe = WF_RECIPE_INIT};
    r.given = wfi_alloc(ctx, (size_t)wfi_recipe_n_fields, sizeof *r.given, "a recipe");
    if (!r.given) return WF_NO_MEMORY;
    wf_status status = wfi_each_pair(ctx, "recipe", text, MAX_TEXT, take_pair, &r);
    wfi_free(ctx, r.given);
    if (status == WF_OK) *recipe_out = r.recipe;
    return status;
}

wf_status wf_recipe_text(wf_context *ctx, const wf_recipe *recipe, char **text_out) {
    WF_TRY(wfi_check_struct(ctx, recipe, sizeof *recipe, "wf_recipe"));
    char value[WFI_RECIPE_TEXT];
    wfi_text text = {.ctx = ctx};
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
