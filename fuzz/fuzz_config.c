/* Configuration files. What is accepted gives a recipe that is accepted again, unchanged. */
#include "cli/options.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    options first, again;
    options_init(&first);
    options_init(&again);
    if (options_read_json(&first, FOR_TRAIN, (const char *)bytes, n_bytes, "input")) {
        json_t *recipe = options_recipe(&first), *back;
        char *text = json_dumps(recipe, JSON_COMPACT);
        if (!text || !options_read_json(&again, FOR_TRAIN, text, strlen(text), "recipe")) abort();
        back = options_recipe(&again);
        if (!json_equal(recipe, back)) abort();
        json_decref(back);
        json_decref(recipe);
        free(text);
    } else if (!*first.error) {
        abort(); /* no refusal without a sentence */
    }
    options_release(&again);
    options_release(&first);
    return 0;
}
