/* Configuration files. What is accepted gives a recipe that is accepted again, unchanged; read as
 * DeepSpeed's, options that may be refused, with a sentence. */
#include "cli/common/deepspeed.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static void read_as_deepspeed(const char *text, size_t n_bytes) {
    options o, typed;
    json_t *root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, NULL);
    options_init(&o);
    options_init(&typed);
    typed.ranks = 2;
    typed.deepspeed = strdup("input");
    json_t *ours = json_is_object(root) ? deepspeed_options(&o, root, &typed) : NULL;
    if (json_is_object(root) && !ours != !!*o.error) abort();
    json_decref(ours);
    json_decref(root);
    options_release(&typed);
    options_release(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    read_as_deepspeed((const char *)bytes, n_bytes);
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
