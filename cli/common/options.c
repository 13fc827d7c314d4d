/* The table, and the command line. */
#include "common/cli.h"
#include "common/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The option's kind and scope for a field's kind and use. */
#define KIND_COUNT             OPTION_COUNT
#define KIND_SEED              OPTION_SEED
#define KIND_INT               OPTION_INT
#define KIND_FLAG              OPTION_FLAG
#define KIND_REAL              OPTION_REAL
#define KIND_CHOICE            OPTION_CHOICE
#define KIND_NAMES             OPTION_NAMES
#define KIND_TABLE             OPTION_NAMES
#define ARGUMENT_COUNT(words)  "N"
#define ARGUMENT_SEED(words)   "N"
#define ARGUMENT_INT(words)    "N"
#define ARGUMENT_FLAG(words)   NULL
#define ARGUMENT_REAL(words)   "X"
#define ARGUMENT_CHOICE(words) words
#define ARGUMENT_NAMES(words)  "NAMES"
#define ARGUMENT_TABLE(words)  "TABLE"
#define GROUP_FORWARD          GROUP_RECIPE
#define GROUP_UPDATE           GROUP_OPTIMIZER
#define COMMANDS_FORWARD       TPBEP
#define COMMANDS_UPDATE        TPB | FOR_BENCH_MEMORY

static const option table[N_OPTIONS] = {
#define ROW(name, kind, group, commands, scope, argument, fallback, help)                          \
    [OPT_##name] = {#name,         argument,      fallback, help, NULL, offsetof(options, name),   \
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

/* Properties of single fields besides their row: other commands, another argument, a default that
 * depends on other options, and the help text. */
static const struct {
    option_id id;
    unsigned commands;
    const char *argument, *note;
    bool is_open;
} exceptions[] = {
    {OPT_file_dtype, FOR_CONVERT, NULL, "the type of each tensor", true},
    {OPT_batch, ALL | FOR_PREDICT, NULL, "32", true},
    {OPT_n_micro, TPB | FOR_SIMULATE | FOR_BENCH_MEMORY | FOR_ADVISE, "N|auto",
     "auto: fastest in a simulation with measured times", false},
    {OPT_n_lanes, TPBEP | FOR_BENCH_MEMORY | FOR_BENCH_ASYNC, NULL, NULL, false},
    {OPT_n_slices, TPBEP | FOR_GENERATE | FOR_BENCH_MEMORY, NULL, NULL, false},
    {OPT_seed, (ALL & ~FOR_ADVISE) | FOR_GENERATE, NULL, NULL, false},
    {OPT_n_threads, TPBEP | RUNS | FOR_GENERATE, NULL, NULL, false},
    {OPT_dtype, TPBEP | FOR_GENERATE | FOR_BENCH_PRICE | FOR_BENCH_PREDICT | FOR_ADVISE, NULL, NULL,
     false},
    {OPT_conv, TPBEP | RUNS, NULL, NULL, false},
    {OPT_matmul_precision, TPBEP | FOR_GENERATE, NULL, NULL, false},
    {OPT_kernels, (TPBEP & ~FOR_TUNE) | FOR_GENERATE, "fast|reference|FILE",
     "FILE: fast, with a table made by weft tune", false},
    {OPT_tuned, (TPBEP & ~FOR_TUNE) | FOR_GENERATE, "SHAPE=WAY", NULL, false},
    {OPT_optimizer, TPB | RUNS | FOR_ADVISE, NULL, NULL, false},
    {OPT_lr, TPB | RUNS, NULL, "sgd: 0.1, adam and adamw: 0.001", true},
    {OPT_momentum, TPB | FOR_BENCH_MEMORY | FOR_BENCH_ASYNC, NULL, NULL, false},
    {OPT_weight_decay, TPB | FOR_BENCH_MEMORY, NULL, "0; adamw: 0.01", true},
    {OPT_schedule_steps, TPB | FOR_BENCH_MEMORY, NULL, "cosine: the last step", true},
    {OPT_update, TP, NULL, NULL, false},
    {OPT_n_workers, TP | FOR_BENCH_ASYNC, NULL, "async: the plan's dp", true},
    {OPT_staleness, TP | FOR_BENCH_ASYNC, NULL, "no bound", true},
    {OPT_staleness_lr, TP, NULL, NULL, false},
    {OPT_n_backup, TP, NULL, NULL, false},
    {OPT_local_steps, TP | FOR_BENCH_ASYNC, NULL, NULL, false},
    {OPT_outer_lr, TP | FOR_BENCH_ASYNC, NULL, NULL, false},
    {OPT_outer_momentum, TP | FOR_BENCH_ASYNC, NULL, NULL, false},
    {OPT_warmup_shape, TPB, NULL, NULL, false},
    {OPT_lr_patience, TPB, NULL, NULL, false},
};

/* Options of single commands that have the name of a field of the recipe. */
static const struct {
    option_id id;
    const char *key;
} shared_keys[] = {
    {OPT_file_dtype, "dtype"},
    {OPT_sim_update, "update"},
    {OPT_sim_workers, "workers"},
    {OPT_sim_staleness, "staleness"},
    {OPT_sim_local_steps, "local_steps"},
};

option option_about(option_id id) {
    option about = table[id];
    for (size_t i = 0; i < sizeof shared_keys / sizeof *shared_keys; i++)
        if (shared_keys[i].id == id) about.key = shared_keys[i].key;
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
    const options initial = {.recipe = WF_RECIPE_INIT};
    bool has_none = about.is_open || about.kind == OPTION_NAMES;
    return has_none ? NULL : option_text(&initial, id, text);
}

const char *option_value_name(option_id id, int i) {
    if (id == OPT_model) return wf_model_registry(i) ? wf_model_registry(i)->name : NULL;
    if (id == OPT_schedule) return wf_schedule_name(i);
    if (id == OPT_cluster) return wf_cluster_shipped(i);
    return id == OPT_algorithm ? wf_group_algorithm_name(i) : NULL;
}

const char *const option_group_names[N_GROUPS] = {
    [GROUP_MODEL] = "Model and data",
    [GROUP_RECIPE] = "Recipe (changes the numbers)",
    [GROUP_OPTIMIZER] = "Optimizer",
    [GROUP_PLAN] = "Plan (where and when the work is done)",
    [GROUP_SCHEDULE] = "Schedule",
    [GROUP_WORKERS] = "Workers",
    [GROUP_RUN] = "Run",
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
    o->recipe = (wf_recipe)WF_RECIPE_INIT;
    for (option_id id = 0; id < N_OPTIONS; id++)
        if (table[id].fallback) (void)option_set(o, id, table[id].fallback);
    memset(o->given, 0, sizeof o->given);
}

void options_release(options *o) {
    for (option_id id = 0; id < N_OPTIONS; id++)
        if (table[id].kind == OPTION_TEXT) free(*(char **)((char *)o + table[id].offset));
    free(o->table);
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
        int distance = wf_text_distance(name, option_name(text, id) + 2);
        if (!(option_about(id).commands & flag) || distance >= least) continue;
        best = id;
        least = distance;
    }
    return best;
}

/* Other programs' names of options. */
static const struct {
    const char *theirs, *ours;
} elsewhere[] = {
    {"learning_rate", "--lr"},
    {"batch_size", "--batch"},
    {"per_device_train_batch_size", "--batch, of all ranks together"},
    {"gradient_accumulation_steps", "--micro, the microbatches of a step"},
    {"device", "--devices, such as cpu:2"},
    {"gpu", "--devices cuda:1"},
    {"gpus", "--devices cuda:N, or cpu:N for cores"},
    {"fp16", "--dtype bf16; weft does not train in f16"},
    {"half", "--dtype bf16; weft does not train in f16"},
    {"amp", "--dtype bf16"},
    {"bf16", "--dtype bf16"},
    {"fp32", "--dtype f32"},
    {"nproc", "--ranks"},
    {"nproc_per_node", "--ranks"},
    {"num_processes", "--ranks"},
    {"world_size", "--ranks"},
    {"num_epochs", "--epochs"},
    {"num_train_epochs", "--epochs"},
    {"max_steps", "--steps"},
    {"max_iters", "--steps"},
    {"wd", "--weight-decay"},
    {"max_grad_norm", "--clip-norm"},
    {"grad_clip", "--clip-norm"},
    {"warmup_steps", "--warmup"},
    {"arch", "--model"},
    {"dataset", "--data"},
    {"pretrained", "--init"},
    {"output", "--out"},
    {"output_dir", "--out"},
    {"save_steps", "--save-every"},
    {"save_total_limit", "--keep"},
    {"eval_every", "--test-every"},
    {"eval_steps", "--test-every"},
    {"early_stopping_patience", "--patience"},
    {"eval_only", "weft eval, a command of its own"},
    {"evaluate", "weft eval, a command of its own"},
    {"block_size", "--tokens"},
    {"seq_len", "--tokens"},
    {"n_layer", "--layers"},
    {"n_head", "--heads"},
    {"n_embd", "--hidden"},
    {"ddp", "--plan dp=N"},
    {"fsdp", "--plan dp=N,zero=3"},
};

/* Writes weft's name of the option, if it is known; else writes nothing. */
static void translate(const char *name, unsigned flag, char *ours, size_t bytes) {
    *ours = 0;
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (is_name(name, elsewhere[i].theirs)) snprintf(ours, bytes, "%s", elsewhere[i].ours);
    if (*ours || !(option_about(OPT_plan).commands & flag)) return;
    for (int i = 0; wf_plan_key(i); i++)
        if (is_name(name, wf_plan_key(i))) snprintf(ours, bytes, "--plan %s=...", wf_plan_key(i));
}

/* `name` begins the name of one option of the command; or there is a sentence. */
static bool find_abbreviated(options *o, unsigned flag, const char *name, option_id *id_out) {
    char text[TEXT_BYTES], all[300] = "";
    int n_found = 0;
    for (option_id id = 0; id < N_OPTIONS; id++) {
        const option about = option_about(id);
        char begin[TEXT_BYTES];
        snprintf(begin, sizeof begin, "%.*s", (int)strlen(name), about.key);
        if (!(about.commands & flag) || !is_name(name, begin)) continue;
        *id_out = id;
        TEXT_ADD(all, "%s%s", n_found++ ? ", " : "", option_name(text, id));
    }
    if (n_found == 1) return true;
    if (n_found) return options_fail(o, "--%.40s may be %s", name, all);
    option_id near = option_nearest(name, flag);
    if (near == N_OPTIONS)
        return options_fail(o, "there is no option --%.40s; --help lists those there are", name);
    return options_fail(o, "there is no option --%.40s; did you mean %s?", name,
                        option_name(text, near));
}

/* The option `name` of the command with that flag. */
static bool find_for(options *o, unsigned flag, const char *name, option_id *id_out) {
    char text[TEXT_BYTES], ours[100];
    option_id id = option_find(name, flag);
    bool is_found = id != N_OPTIONS && option_about(id).commands & flag;
    if (!is_found) translate(name, flag, ours, sizeof ours);
    if (!is_found && *ours)
        return options_fail(o, "there is no option --%.40s; here it is %s", name, ours);
    if (id == N_OPTIONS) return find_abbreviated(o, flag, name, id_out);
    if (!is_found) {
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

/* A word that is no option: the trace to draw. Behind "--" it may begin with a dash. */
static bool take_operand(options *o, unsigned flag, const char *word, bool has_ended) {
    if (flag != FOR_DRAW || o->given[OPT_trace] || (*word == '-' && !has_ended))
        return options_fail(o, "'%.60s' is not an option; options begin with --", word);
    o->given[OPT_trace] = true;
    return option_set(o, OPT_trace, word);
}

static bool parse_words(options *o, unsigned flag, int argc, char *const *argv) {
    bool has_ended = false; /* the options, by "--" */
    for (int i = 0; i < argc; i++) {
        char name[TEXT_BYTES], text[TEXT_BYTES];
        option_id id = N_OPTIONS;
        bool is_option = !has_ended && !strncmp(argv[i], "--", 2);
        if (is_option && !argv[i][2]) {
            has_ended = true;
            continue;
        }
        if (!is_option) {
            if (!take_operand(o, flag, argv[i], has_ended)) return false;
            continue;
        }
        const char *equals = strchr(argv[i], '=');
        size_t n = equals ? (size_t)(equals - argv[i] - 2) : strlen(argv[i] + 2);
        snprintf(name, sizeof name, "%.*s", (int)(n < TEXT_BYTES ? n : TEXT_BYTES), argv[i] + 2);
        if (!find_for(o, flag, name, &id)) return false;
        const char *value = equals ? equals + 1 : "true";
        if (!equals && table[id].kind != OPTION_FLAG) {
            if (i + 1 == argc)
                return options_fail(o, "%s needs a value: %s", option_name(text, id),
                                    table[id].argument);
            value = argv[++i];
        }
        bool may_be_empty = table[id].fallback && !*table[id].fallback;
        if (table[id].kind == OPTION_TEXT && !*value && !may_be_empty)
            return options_fail(o, "%s is empty; it needs a value: %s", option_name(text, id),
                                table[id].argument);
        if (!option_set(o, id, value)) return false;
        o->given[id] = true;
    }
    if (o->ranks_least && !(flag & (FOR_TRAIN | FOR_RUN)))
        return options_fail(o,
                            "--ranks %lld:%lld is for weft train and weft run, which start ranks "
                            "again; here give --ranks %lld, or --ranks %lld for the fewest",
                            (long long)o->ranks_least, (long long)o->ranks, (long long)o->ranks,
                            (long long)o->ranks_least);
    return true;
}

bool options_parse(options *o, unsigned flag, int argc, char *const *argv) {
    options typed;
    options_init(&typed);
    bool good = parse_words(&typed, flag, argc, argv);
    if (good && (typed.config || typed.deepspeed)) {
        /* Typed options override the files. */
        good = options_read_files(o, flag, &typed) && parse_words(o, flag, argc, argv);
    } else if (good) {
        options_release(o);
        *o = typed;
        return true;
    } else {
        memcpy(o->error, typed.error, sizeof o->error);
        o->is_unreadable = typed.is_unreadable;
    }
    options_release(&typed);
    return good;
}
