/* Options from a JSON object: a configuration file, or the recipe in a checkpoint.
 * The text is not trusted: duplicate and unknown keys are refused, values go through
 * the same door as those on the command line. */
#include "options.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

/* A scalar as one would type it; NULL for anything else. */
static const char *scalar_text(const json_t *value, char *text) {
    switch (json_typeof(value)) {
    case JSON_STRING:
        /* A zero byte inside would cut the value short without a word. */
        return strlen(json_string_value(value)) == json_string_length(value)
                   ? json_string_value(value)
                   : NULL;
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_INTEGER:
        snprintf(text, TEXT_BYTES, "%lld", (long long)json_integer_value(value));
        return text;
    case JSON_REAL:
        return text_of_real(text, json_real_value(value));
    default:
        return NULL;
    }
}

static bool read_member(options *o, unsigned command, const char *key, const json_t *value,
                        const char *where) {
    char text[TEXT_BYTES], name[TEXT_BYTES];
    option_id id = option_find(key, command);
    if (text_has_control(key))
        return options_fail(o, "%.200s: an option's name holds a control character", where);
    if (id == N_OPTIONS) {
        option_id near = option_nearest(key, command);
        return options_fail(o, "%.200s: there is no option '%.40s'%s%s%s", where, key,
                            near == N_OPTIONS ? "" : "; did you mean '",
                            near == N_OPTIONS ? "" : option_name(name, near) + 2,
                            near == N_OPTIONS ? "" : "'?");
    }
    if (!(option_about(id).commands & command) || id == OPT_config)
        return options_fail(o, "%.200s: option '%.40s' is not for here", where, key);
    if (option_is_given(o, id))
        return options_fail(o, "%.200s: option '%.40s' is given twice", where, key);
    const char *typed = scalar_text(value, text);
    if (!typed)
        return options_fail(o, "%.200s: '%.40s' is neither text, number, true nor false", where,
                            key);
    if (text_has_control(typed))
        return options_fail(o, "%.200s: '%.40s' holds a control character", where, key);
    if (!option_set(o, id, typed)) {
        char why[sizeof o->error];
        memcpy(why, o->error, sizeof why);
        return options_fail(o, "%.200s: %.300s", where, why);
    }
    o->given[id] = true;
    return true;
}

bool options_read_json(options *o, unsigned command, const char *text, size_t n,
                       const char *where) {
    json_error_t error;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return options_fail(o, "%.200s: line %d, column %d: %.160s", where, error.line,
                            error.column, error.text);
    bool good = json_is_object(root) || options_fail(o, "%.200s: not a JSON object", where);
    const char *key;
    json_t *value;
    if (good) json_object_foreach(root, key, value) {
            good = read_member(o, command, key, value, where);
            if (!good) break;
        }
    json_decref(root);
    return good;
}
