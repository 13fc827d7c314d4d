/* The table, and the command line. */
#include "cli.h"
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CONFIG_BYTES (1 << 20)

/* What a field's kind and use come to as an option. */
#define KIND_COUNT             OPTION_COUNT
#define KIND_SEED              OPTION_SEED
#define KIND_INT               OPTION_INT
#define KIND_FLAG              OPTION_FLAG
#define KIND_REAL              OPTION_REAL
#define KIND_CHOICE            OPTION_CHOICE
#define KIND_NAMES             OPTION_NAMES
#define ARGUMENT_COUNT(words)  "N"
#define ARGUMENT_SEED(words)   "N"
#define ARGUMENT_INT(words)    "N"
#define ARGUMENT_FLAG(words)   NULL
#define ARGUMENT_REAL(words)   "X"
#define ARGUMENT_CHOICE(words) words
#define ARGUMENT_NAMES(words)  "NAMES"
#define GROUP_FORWARD          GROUP_RECIPE
#define GROUP_UPDATE           GROUP_OPTIMIZER
#define COMMANDS_FORWARD       TPBE
#define COMMANDS_UPDATE        TPB | FOR_BENCH_MEMORY

static const option table[N_OPTIONS] = {
#define ROW(name, kind, field, group, commands, scope, argument, fallback, help)                   \
    [OPT_##name] = {#name,         argument,      fallback, help, NULL, offsetof(options, field),  \
                    OPTION_##kind, GROUP_##group, commands, scope},
    OPTION_LIST(ROW)
#undef ROW
#define ROW(type, field, name, kind, words, value, least, most, use, help)                         \
    [OPT_##field] = {name,           ARGUMENT_##kind(words),                                       \
                     NULL,           help,                                                         \
                     NULL,           offsetof(options, recipe.field),                              \
                     KIND_##kind,    GROUP_##use,                                                  \
                     COMMANDS_##use, OF_RECIPE},
        WF_RECIPE_FIELDS(ROW)
#undef ROW
};

/* What single fields have beside their row: other commands, another argument, a default that
 * depends on other options, and what the help says of it. */
static const struct {
    option_id id;
    unsigned commands;
    const char *argument, *note;
    bool is_open;
} exceptions[] = {
    {OPT_file_dtype, FOR_CONVERT, NULL, "what each tensor is", true},
    {OPT_batch, ALL, NULL, "32; bench model-parallel: 120, --quick: 40; bench ddp: per rank", true},
    {OPT_n_micro, TPB | FOR_SIMULATE | FOR_BENCH_MEMORY, "N|auto",
     "auto: the fastest by simulation with measured times", false},
    {OPT_n_lanes, TPB | FOR_BENCH_MEMORY, NULL, NULL, false},
    {OPT_seed, ALL, NULL, NULL, false},
    {OPT_n_threads, TPBE | RUNS, NULL, "bench ddp, memory: 1", false},
    {OPT_conv, TPBE | RUNS, NULL, NULL, false},
    {OPT_optimizer, TPB | RUNS, NULL, NULL, false},
    {OPT_lr, TPB | RUNS, NULL, "sgd: 0.1, adam and adamw: 0.001", true},
    {OPT_weight_decay, TPB | FOR_BENCH_MEMORY, NULL, "0; adamw: 0.01", true},
    {OPT_schedule_steps, TPB | FOR_BENCH_MEMORY, NULL, "cosine: the last step", true},
};

/* The program takes all cores unless it is told otherwise. */
static wf_recipe initial_recipe(void) {
    wf_recipe recipe = WF_RECIPE_INIT;
    recipe.n_threads = 0;
    return recipe;
}

option option_about(option_id id) {
    option about = table[id];
    if (id == OPT_file_dtype) about.key = "dtype"; /* not the recipe's, which has that name, too */
    for (size_t i = 0; i < sizeof exceptions / sizeof *exceptions; i++) {
        if (exceptions[i].id != id) continue;
        about.commands = exceptions[i].commands;
        about.note = exceptions[i].note;
        about.is_open = exceptions[i].is_open;
        if (exceptions[i].argument) about.argument = exceptions[i].argument;
    }
    return about;
}

const char *option_default(option_id id, char *text) {
    option about = option_about(id);
    if (about.offset < offsetof(options, recipe)) return about.fallback;
    const options initial = {.recipe = initial_recipe()};
    return about.is_open ? NULL : option_text(&initial, id, text);
}

const char *option_value_name(option_id id, int i) {
    if (id == OPT_model) return wf_model_registry(i) ? wf_model_registry(i)->name : NULL;
    if (id == OPT_schedule) return wf_schedule_name(i);
    return id == OPT_algorithm ? wf_group_algorithm_name(i) : NULL;
}

const char *const option_group_names[N_GROUPS] = {
    [GROUP_MODEL] = "Model and data", [GROUP_RECIPE] = "Recipe (what the numbers depend on)",
    [GROUP_OPTIMIZER] = "Optimizer",  [GROUP_PLAN] = "Plan (where and when the work is done)",
    [GROUP_SCHEDULE] = "Schedule",    [GROUP_RUN] = "Run",
};

bool options_fail(options *o, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(o->error, sizeof o->error, format, args);
    va_end(args);
    return false;
}

void options_init(options *o) {
    memset(o, 0, sizeof *o);
    o->recipe = initial_recipe();
    for (option_id id = 0; id < N_OPTIONS; id++)
        if (table[id].fallback) (void)option_set(o, id, table[id].fallback);
    memset(o->given, 0, sizeof o->given);
}

void options_release(options *o) {
    for (option_id id = 0; id < N_OPTIONS; id++)
        if (table[id].kind == OPTION_TEXT) free(*(char **)((char *)o + table[id].offset));
    memset(o, 0, sizeof *o);
}

bool option_is_given(const options *o, option_id id) {
    return o->given[id];
}

char *option_name(char *text, option_id id) {
    snprintf(text, TEXT_BYTES, "--%s", option_about(id).key);
    for (char *c = text; *c; c++)
        if (*c == '_') *c = '-';
    return text;
}

static bool is_name(const char *typed, const char *key) {
    for (; *typed && *key; typed++, key++)
        if (*typed != *key && !(*typed == '-' && *key == '_')) return false;
    return !*typed && !*key;
}

option_id option_find(const char *name, unsigned flags) {
    option_id found = N_OPTIONS;
    for (option_id id = 0; id < N_OPTIONS; id++) {
        option about = option_about(id);
        if (!is_name(name, about.key)) continue;
        if (found == N_OPTIONS || about.commands & flags) found = id;
    }
    return found;
}

option_id option_nearest(const char *name, unsigned flag) {
    option_id best = N_OPTIONS;
    int least = 4; /* further away is no typing mistake */
    for (option_id id = 0; id < N_OPTIONS; id++) {
        char text[TEXT_BYTES];
        int distance = text_distance(name, option_name(text, id) + 2);
        if (!(option_about(id).commands & flag) || distance >= least) continue;
        best = id;
        least = distance;
    }
    return best;
}

static bool unknown_option(options *o, unsigned flag, const char *name) {
    char text[TEXT_BYTES];
    option_id near = option_nearest(name, flag);
    if (near == N_OPTIONS)
        return options_fail(o, "there is no option --%.40s; --help lists those there are", name);
    return options_fail(o, "there is no option --%.40s; did you mean %s?", name,
                        option_name(text, near));
}

/* The option `name` of the command with that flag. */
static bool find_for(options *o, unsigned flag, const char *name, option_id *id_out) {
    char text[TEXT_BYTES];
    option_id id = option_find(name, flag);
    if (id == N_OPTIONS) return unknown_option(o, flag, name);
    if (!(option_about(id).commands & flag)) {
        const char *has = "", *lacks = "this command";
        for (const command *about = commands; about->name; about++) {
            if (about->flag == flag)
                lacks = about->name;
            else if (option_about(id).commands & about->flag && !*has)
                has = about->name;
        }
        return options_fail(o, "weft %s has no option %s; weft %s has", lacks,
                            option_name(text, id), has);
    }
    *id_out = id;
    return true;
}

static bool parse_words(options *o, unsigned flag, int argc, char *const *argv) {
    for (int i = 0; i < argc; i++) {
        char name[TEXT_BYTES], text[TEXT_BYTES];
        option_id id = N_OPTIONS;
        if (!strcmp(argv[i], "--") && i + 1 == argc) return true;
        if (flag == FOR_DRAW && argv[i][0] != '-' && !o->given[OPT_trace]) {
            if (!option_set(o, OPT_trace, argv[i])) return false;
            o->given[OPT_trace] = true;
            continue;
        }
        if (strncmp(argv[i], "--", 2) || !argv[i][2])
            return options_fail(o, "'%.60s' is not an option; options begin with --", argv[i]);
        const char *equals = strchr(argv[i], '=');
        size_t n = equals ? (size_t)(equals - argv[i] - 2) : strlen(argv[i] + 2);
        snprintf(name, sizeof name, "%.*s", (int)(n < TEXT_BYTES ? n : TEXT_BYTES), argv[i] + 2);
        if (!find_for(o, flag, name, &id)) return false;
        const char *value = equals ? equals + 1 : "true";
        if (!equals && table[id].kind != OPTION_FLAG) {
            if (i + 1 == argc)
                return options_fail(o, "%s wants a value: %s", option_name(text, id),
                                    table[id].argument);
            value = argv[++i];
        }
        if (!option_set(o, id, value)) return false;
        o->given[id] = true;
    }
    return true;
}

/* As a stream; NULL after the sentence, why it is no file that can be read. */
static FILE *open_config(options *o, const char *path) {
    wf_context *ctx;
    int fd = -1;
    if (wf_context_create(NULL, &ctx) != WF_OK) {
        options_fail(o, "--config: no memory left");
        return NULL;
    }
    if (wf_file_open(ctx, path, &fd, NULL) != WF_OK)
        options_fail(o, "--config: %.300s", wf_context_error(ctx));
    wf_context_destroy(ctx);
    return fd < 0 ? NULL : fdopen(fd, "rb");
}

static bool read_config(options *o, unsigned flag, const char *path) {
    char *text = malloc(MAX_CONFIG_BYTES + 1);
    FILE *file = text ? open_config(o, path) : NULL;
    size_t n = file ? fread(text, 1, MAX_CONFIG_BYTES + 1, file) : 0;
    bool good = file != NULL;
    if (good && ferror(file))
        good = options_fail(o, "--config: %.200s cannot be read", path);
    else if (n > MAX_CONFIG_BYTES)
        good = options_fail(o, "--config: %.200s has more than %d bytes", path, MAX_CONFIG_BYTES);
    else if (good)
        good = options_read_json(o, flag, text, n, path);
    if (file) fclose(file);
    free(text);
    return good;
}

bool options_parse(options *o, unsigned flag, int argc, char *const *argv) {
    options typed;
    options_init(&typed);
    bool good = parse_words(&typed, flag, argc, argv);
    if (good && typed.config) {
        /* What was typed goes on top of the file. */
        good = read_config(o, flag, typed.config) && parse_words(o, flag, argc, argv);
    } else if (good) {
        options_release(o);
        *o = typed;
        return true;
    } else {
        memcpy(o->error, typed.error, sizeof o->error);
    }
    options_release(&typed);
    return good;
}
