#include "common/tuned.h"
#include "common/cli.h"
#include "common/processor.h"
#include "common/text.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);
    bool is_whole = text && strlen(text) == json_string_length(value) && !text_has_control(text);
    return is_whole ? text : NULL;
}

/* Adds "SHAPE=WAY", or nothing if that is the default. */
static bool add_row(options *o, char *text, const json_t *row, size_t number, const char *where) {
    const char *shape = text_of(row, "shape"), *choice = text_of(row, "choice"),
               *usual = text_of(row, "usual");
    size_t n = strlen(text), room = TUNED_MOST + 1 - n;
    if (!shape || !choice || !usual || strcspn(shape, "=+,") < strlen(shape) ||
        strcspn(choice, "=+,") < strlen(choice) || !*shape || !*choice)
        return options_fail(o, "%.200s: row %zu does not state its shape, choice and usual way",
                            where, number);
    if (!strcmp(choice, usual)) return true;
    if ((size_t)snprintf(text + n, room, "%s%s=%s", n ? "+" : "", shape, choice) < room)
        return true;
    return options_fail(o,
                        "%.200s: its choices are more than the %d characters that a recipe takes",
                        where, TUNED_MOST);
}

static void say_place(char *text, size_t bytes, const tuned_place *p) {
    snprintf(text, bytes, "%.80s, %.80s, %d thread%s", p->library, p->processor, p->n_threads,
             p->n_threads == 1 ? "" : "s");
}

/* Of "2 devices: 0 NAME, 1 NAME; LIBRARY". */
static void read_place(const char *text, tuned_place *out) {
    const char *name = strstr(text, ": 0 "), *library = strstr(text, "; ");
    name = name ? name + 4 : text;
    library = library ? library + 2 : text + strlen(text);
    const char *next = strstr(name, ", 1 "), *end = next && next < library ? next : library - 2;
    snprintf(out->processor, sizeof out->processor, "%.*s", (int)(end - name), name);
    snprintf(out->library, sizeof out->library, "%s", library);
}

wf_status tuned_on(const cli *c, const char *kind, tuned_place *out) {
    char text[600];
    *out = (tuned_place){.n_threads = 1};
    wf_status status = wf_info_devices(c->ctx, kind, text, sizeof text);
    if (status == WF_OK) read_place(text, out);
    return status;
}

wf_status tuned_here(const cli *c, int n_threads, tuned_place *out) {
    char kind[WF_DEVICE_NAME_BYTES] = "cpu";
    if (c->o.devices) {
        TRY(wf_devices_name(c->ctx, c->o.devices, 0, kind));
        kind[strcspn(kind, ":")] = 0;
    }
    if (strcmp(kind, "cpu")) return tuned_on(c, kind, out);
    *out = (tuned_place){.n_threads = n_threads};
    processor_name(out->processor);
    snprintf(out->library, sizeof out->library, "%s", wf_info_library(0));
    return WF_OK;
}

bool tuned_of_table(options *o, const json_t *root, const char *where) {
    const json_t *rows = json_object_get(root, "rows");
    const char *processor = text_of(root, "processor"), *library = text_of(root, "library");
    json_int_t n_threads = json_integer_value(json_object_get(root, "threads"));
    if (json_integer_value(json_object_get(root, "weft_kernels")) != TUNED_VERSION)
        return options_fail(o,
                            "%.200s is not a table of kernels of version %d, as weft tune writes",
                            where, TUNED_VERSION);
    if (!processor || !library || n_threads < 1 || !json_is_array(rows))
        return options_fail(o, "%.200s does not state its processor, library, threads and rows",
                            where);
    char *text = calloc(1, TUNED_MOST + 1);
    if (!options_set_table(o, text)) return false;
    for (size_t k = 0; k < json_array_size(rows); k++)
        if (!add_row(o, text, json_array_get(rows, k), k, where)) return false;
    o->recipe.kernels = WF_KERNELS_FAST;
    o->given[OPT_tuned] = true;
    tuned_place place = {.n_threads = (int)(n_threads < INT_MAX ? n_threads : INT_MAX)};
    snprintf(place.processor, sizeof place.processor, "%s", processor);
    snprintf(place.library, sizeof place.library, "%s", library);
    say_place(o->tuned_for, sizeof o->tuned_for, &place);
    return true;
}

void tuned_warn(const cli *c, const wf_program *program) {
    const options *o = &c->o;
    const wf_recipe *recipe = wf_program_recipe(program);
    tuned_place here;
    char own[sizeof o->tuned_for] = "";
    if (*o->tuned_for && tuned_here(c, recipe->n_threads, &here) == WF_OK)
        say_place(own, sizeof own, &here);
    if (*own && strcmp(o->tuned_for, own))
        complain(EXIT_DONE,
                 "the table of --kernels was measured with %s, and this is %s: its choices may be "
                 "slower than the default, and choices that do not exist here use the default",
                 o->tuned_for, own);
    if (recipe->tuned && *recipe->tuned && !wf_program_n_tuned(program))
        complain(EXIT_DONE, "the table of --kernels has no choice for this model, batch and "
                            "--dtype that exists here: every shape uses its default kernel");
}
