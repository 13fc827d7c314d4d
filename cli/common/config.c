/* Options from a JSON object: a configuration file, or the recipe in a checkpoint.
 * The text is not trusted: duplicate and unknown keys are refused, values go through
 * the same door as those on the command line. */
#include "common/deepspeed.h"
#include "common/text.h"
#include "common/tuned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CONFIG_BYTES (1 << 20)

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
    if (!(option_about(id).commands & command) || id == OPT_config || id == OPT_deepspeed)
        return options_fail(o, "%.200s: option '%.40s' is not allowed here", where, key);
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

static bool read_object(options *o, unsigned command, const json_t *root, const char *where) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)root, key, value) {
        if (!read_member(o, command, key, value, where)) return false;
    }
    return true;
}

/* NULL after a sentence. */
static json_t *parse(options *o, const char *text, size_t n, const char *where) {
    json_error_t error;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        options_fail(o, "%.200s: line %d, column %d: %.160s", where, error.line, error.column,
                     error.text);
    else if (!json_is_object(root))
        options_fail(o, "%.200s: not a JSON object", where);
    if (json_is_object(root)) return root;
    json_decref(root);
    return NULL;
}

bool options_read_json(options *o, unsigned command, const char *text, size_t n,
                       const char *where) {
    json_t *root = parse(o, text, n, where);
    o->names_no_files = true;
    bool good = root && read_object(o, command, root, where);
    o->names_no_files = false;
    json_decref(root);
    return good;
}

/* ---- files ---- */

/* As a stream; NULL after the sentence, why it is no file that can be read. */
static FILE *open_file(options *o, const char *what, const char *path) {
    wf_context *ctx;
    int fd = -1;
    if (wf_context_create(NULL, &ctx) != WF_OK) {
        options_fail(o, "%s: no memory left", what);
        return NULL;
    }
    o->is_unreadable = wf_file_open(ctx, path, &fd, NULL) != WF_OK;
    if (o->is_unreadable) options_fail(o, "%s: %.300s", what, wf_context_error(ctx));
    wf_context_destroy(ctx);
    return fd < 0 ? NULL : fdopen(fd, "rb");
}

/* Their object; NULL after a sentence. */
static json_t *read_file(options *o, const char *what, const char *path) {
    char *text = malloc(MAX_CONFIG_BYTES + 1);
    FILE *file = text ? open_file(o, what, path) : NULL;
    size_t n = file ? fread(text, 1, MAX_CONFIG_BYTES + 1, file) : 0;
    json_t *root = NULL;
    o->is_unreadable |= file && ferror(file);
    if (file && o->is_unreadable)
        options_fail(o, "%s: %.200s cannot be read", what, path);
    else if (n > MAX_CONFIG_BYTES)
        options_fail(o, "%s: %.200s has more than %d bytes", what, path, MAX_CONFIG_BYTES);
    else if (file)
        root = parse(o, text, n, path);
    if (file) fclose(file);
    free(text);
    return root;
}

bool options_read_kernels(options *o, const char *path) {
    json_t *root = read_file(o, "--kernels", path);
    bool good = root && tuned_of_table(o, root, path);
    json_decref(root);
    return good;
}

bool options_read_files(options *o, unsigned command, const options *typed) {
    bool good = true;
    if (typed->config) {
        json_t *root = read_file(o, "--config", typed->config);
        good = root && read_object(o, command, root, typed->config);
        json_decref(root);
    }
    if (good && typed->deepspeed) {
        json_t *root = read_file(o, "--deepspeed", typed->deepspeed);
        json_t *ours = root ? deepspeed_options(o, root, typed) : NULL;
        good = ours && read_object(o, command, ours, typed->deepspeed);
        json_decref(root);
        json_decref(ours);
    }
    return good;
}
