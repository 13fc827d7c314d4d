/* Recipe strings. What is accepted must give a text that parses to the same bits. */
#include "fuzz_text.h"

#include <weft/program.h>
#include <weft/recipe.h>

static void parse(wf_context *ctx, char *text, size_t n_bytes) {
    (void)n_bytes;
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
    return fuzz_text(bytes, n_bytes, parse);
}
