/* The recipe's fields by name: code that reads, checks or prints all of them uses this list.
 * Private. */
#pragma once

#include "base/base.h"

#include <weft/recipe.h>

typedef enum wfi_recipe_kind {
    WFI_RECIPE_COUNT,
    WFI_RECIPE_SEED,
    WFI_RECIPE_INT,
    WFI_RECIPE_FLAG,
    WFI_RECIPE_REAL,
    WFI_RECIPE_CHOICE,
    WFI_RECIPE_NAMES,
    WFI_RECIPE_TABLE
} wfi_recipe_kind;

typedef struct wfi_recipe_field {
    const char *name;
    wfi_recipe_kind kind;
    size_t offset; /* into wf_recipe */
    const char *words;
    double least, most;
    const char *help;
} wfi_recipe_field;

extern const wfi_recipe_field wfi_recipe_fields[];
extern const int wfi_recipe_n_fields;

/* The field's value; a choice's place in its words; of names 0. */
double wfi_recipe_number(const wf_recipe *recipe, const wfi_recipe_field *field);
/* The same as text, which is returned: another text for every other value, and reading a number
 * gives the same bits. For a name the function returns the recipe's own text. */
#define WFI_RECIPE_TEXT 40
const char *wfi_recipe_text(const wf_recipe *recipe, const wfi_recipe_field *field, char *text);
