#include "recipe/fields.h"

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const wfi_recipe_field wfi_recipe_fields[] = {
#define ROW(type, field, name, kind, words, value, least, most, use, help)                         \
    {name, WFI_RECIPE_##kind, offsetof(wf_recipe, field), words, least, most, help},
    WF_RECIPE_FIELDS(ROW)
#undef ROW
};
const int wfi_recipe_n_fields = (int)WFI_COUNT(wfi_recipe_fields);

/* The type that a row's kind stands for. */
#define COUNT(most)  int64_t
#define SEED(most)   uint64_t
#define INT(most)    int
#define FLAG(most)   int
#define REAL(most)   double
#define CHOICE(most) int
#define NAMES(most)  char[(size_t)(most) + 1]
#define TABLE(most)  const char *
#define CHECK(type, field, name, kind, words, value, least, most, use, help)                       \
    _Static_assert(sizeof(type) == sizeof(kind(most)), "wf_recipe." #field " is of another kind");
WF_RECIPE_FIELDS(CHECK)
#undef CHECK

static const void *value_of(const wf_recipe *recipe, const wfi_recipe_field *field) {
    return (const char *)recipe + field->offset;
}

double wfi_recipe_number(const wf_recipe *recipe, const wfi_recipe_field *field) {
    const void *value = value_of(recipe, field);
    switch (field->kind) {
    case WFI_RECIPE_COUNT:
        return (double)*(const int64_t *)value;
    case WFI_RECIPE_SEED:
        return (double)*(const uint64_t *)value;
    case WFI_RECIPE_REAL:
        return *(const double *)value;
    case WFI_RECIPE_NAMES:
    case WFI_RECIPE_TABLE:
        return 0;
    case WFI_RECIPE_INT:
    case WFI_RECIPE_FLAG:
    case WFI_RECIPE_CHOICE:
        break;
    }
    return *(const int *)value;
}

/* As few digits as give the number again, with a point in every locale. */
static void real_text(double value, char *text) {
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, WFI_RECIPE_TEXT, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    const char *local = localeconv()->decimal_point; /* of several bytes in some */
    char *point = strstr(text, local);
    if (!point) return;
    *point = '.';
    memmove(point + 1, point + strlen(local), strlen(point + strlen(local)) + 1);
}

static bool choice_text(const char *words, int place, char *text) {
    for (; place > 0 && *words; place--) {
        words += strcspn(words, "|");
        words += *words == '|';
    }
    if (place || !*words) return false;
    snprintf(text, WFI_RECIPE_TEXT, "%.*s", (int)strcspn(words, "|"), words);
    return true;
}

const char *wfi_recipe_text(const wf_recipe *recipe, const wfi_recipe_field *field, char *text) {
    const void *value = value_of(recipe, field);
    switch (field->kind) {
    case WFI_RECIPE_COUNT:
        snprintf(text, WFI_RECIPE_TEXT, "%" PRId64, *(const int64_t *)value);
        return text;
    case WFI_RECIPE_SEED:
        snprintf(text, WFI_RECIPE_TEXT, "%" PRIu64, *(const uint64_t *)value);
        return text;
    case WFI_RECIPE_REAL:
        real_text(*(const double *)value, text);
        return text;
    case WFI_RECIPE_CHOICE:
        if (choice_text(field->words, *(const int *)value, text)) return text;
        break;
    case WFI_RECIPE_NAMES:
        return value;
    case WFI_RECIPE_TABLE:
        return *(const char *const *)value ? *(const char *const *)value : "";
    case WFI_RECIPE_INT:
    case WFI_RECIPE_FLAG:
        break;
    }
    snprintf(text, WFI_RECIPE_TEXT, "%d", *(const int *)value);
    return text;
}
