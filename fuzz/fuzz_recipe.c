/* Recipe strings. What is accepted must give a text that parses to the same bits. */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>
#include <weft/program.h>
#include <weft/recipe.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static void parse(wf_context *ctx, const char *text) {
    wf_recipe recipe, again;
    char *printed, *reprinted;
    if (wf_recipe_parse(ctx, text, &recipe) != WF_OK) {
        if (!*wf_context_error(ctx)) abort(); /* no refusal without a sentence */
        return;
    }
    if (wf_recipe_text(ctx, &recipe, &printed) != WF_OK) abort();
    if (wf_recipe_parse(ctx, printed, &again) != WF_OK) abort();
    if (wf_recipe_text(ctx, &again, &reprinted) != WF_OK) abort();
    if (strcmp(printed, reprinted) != 0) abort();
    wf_text_free(ctx, printed);
    wf_text_free(ctx, reprinted);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    wf_context *ctx;
    char *text = malloc(n_bytes + 1);
    if (!text || wf_context_create(NULL, &ctx) != WF_OK) {
        free(text);
        return 0;
    }
    memcpy(text, bytes, n_bytes);
    text[n_bytes] = 0;
    parse(ctx, text);
    if (wf_context_memory(ctx).n_live) abort();
    wf_context_destroy(ctx);
    free(text);
    return 0;
}
