/* Completion: lists the possible last words of a line, from the table of options. The shells'
 * scripts in cli/completion/ ask for it, `weft help --complete WORDS...`, and show it in their way.
 */
#include "common/cli.h"
#include "common/text.h"

#include <string.h>

/* Prints the word with its end, from `at` on, completed to `candidate`, if that begins so. */
static void offer(const char *word, const char *at, const char *candidate, size_t n) {
    size_t n_typed = strlen(at);
    if (n_typed <= n && !strncmp(candidate, at, n_typed))
        printf("%.*s%.*s\n", (int)(at - word), word, (int)n, candidate);
}

/* Each of "a|b|c". */
static void offer_list(const char *word, const char *at, const char *list) {
    for (; *list; list += strcspn(list, "|"), list += *list == '|')
        offer(word, at, list, strcspn(list, "|"));
}

/* A path may stand there, behind so many characters of the word. */
static void offer_files(const char *word, const char *at) {
    printf(":files %d\n", (int)(at - word));
}

static void offer_names(const char *word, const char *at, option_id id) {
    const char *name;
    for (int i = 0; (name = option_value_name(id, i)) != NULL; i++)
        offer(word, at, name, strlen(name));
}

/* The values of a plan's keys; + may stand between several. */
static const struct {
    const char *key, *words;
} plan_values[] = {
    {"zero", "1|2|3"},
    {"order", "fixed|free|tp|pp|dp"},
    {"overlap", "on|off"},
    {"allreduce", "auto"},
    {"cut", "balanced"},
    {"recompute", "none|all|selective|auto"},
    {"offload", "state|params|activations"},
};

static void offer_plan(const char *word, const char *at) {
    const char *equals = strchr(at, '=');
    if (!equals) {
        for (int i = 0; wf_plan_key(i); i++) {
            char key[TEXT_BYTES];
            offer(word, at, key, (size_t)snprintf(key, sizeof key, "%s=", wf_plan_key(i)));
        }
        return;
    }
    size_t n = (size_t)(equals - at);
    const char *plus = strrchr(equals, '+'), *value = plus ? plus + 1 : equals + 1;
    for (size_t i = 0; i < sizeof plan_values / sizeof *plan_values; i++)
        if (strlen(plan_values[i].key) == n && !strncmp(plan_values[i].key, at, n))
            offer_list(word, value, plan_values[i].words);
    if (n == 8 && !strncmp(at, "schedule", n)) offer_names(word, value, OPT_schedule);
    if (n == 9 && !strncmp(at, "allreduce", n)) offer_names(word, value, OPT_algorithm);
}

/* The option's value begins at `at`. */
static void offer_value(const char *word, const char *at, option_id id) {
    const option about = option_about(id);
    const char *comma = strrchr(at, ','), *part = comma ? comma + 1 : at;
    if (about.kind == OPTION_CHOICE)
        offer_list(word, at, id == OPT_kernels ? "fast|reference" : about.argument);
    offer_names(word, part, id);
    if (id == OPT_plan) offer_plan(word, part);
    if (id == OPT_plan && part == at) offer_list(word, at, "auto");
    if (id == OPT_devices) offer_list(word, part, "cpu");
    if (id == OPT_wire) offer_list(word, part, "shm|mpi|nccl|auto|inproc");
    if (id == OPT_data) offer_list(word, at, "synthetic|fashion-mnist");
    if (id == OPT_n_micro) offer_list(word, at, "auto");
    bool is_path = strstr(about.argument, "FILE") || strstr(about.argument, "DIR") ||
                   strstr(about.argument, "PATH");
    if (is_path) offer_files(word, at);
}

/* The first words of the commands, each once, or the second words of those that begin with `first`.
 */
static void offer_commands(const char *word, const char *first) {
    size_t n_last = 0;
    const char *last = "";
    for (const command *about = commands; about->name; about++) {
        size_t n = strcspn(about->name, " ");
        bool is_same = n == n_last && !strncmp(about->name, last, n);
        last = about->name;
        n_last = n;
        if (!first && !is_same)
            offer(word, word, about->name, n);
        else if (first && about->name[n] && strlen(first) == n && !strncmp(first, about->name, n))
            offer(word, word, about->name + n + 1, strlen(about->name + n + 1));
    }
}

static void offer_options(const char *word, const command *about) {
    char name[TEXT_BYTES];
    offer_list(word, word, about->flag == FOR_RUN ? "--help|-n" : "--help|--help=all");
    for (option_id id = 0; id < N_OPTIONS; id++)
        if (option_about(id).commands & about->flag)
            offer(word, word, name, strlen(option_name(name, id)));
}

/* The option of the word "--name" or "--name=value"; N_OPTIONS if it has no value. */
static option_id option_of(const char *word, unsigned flag) {
    char name[TEXT_BYTES];
    if (strncmp(word, "--", 2) != 0) return N_OPTIONS;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    option_id id = option_find(name, flag);
    return id < N_OPTIONS && option_about(id).argument ? id : N_OPTIONS;
}

void complete(int argc, char *const *argv) {
    const char *word = argc ? argv[argc - 1] : "";
    int n_words;
    if (argc < 2) {
        offer_commands(word, NULL);
        offer_list(word, word, "help|--help|--version");
        return;
    }
    if (!strcmp(argv[0], "help")) offer_commands(word, NULL);
    const command *about = find_command(argc + 1, argv - 1, &n_words);
    if (argc == 2) offer_commands(word, argv[0]);
    if (!about || argc < n_words) return;
    const char *before = argc > n_words ? argv[argc - 2] : "", *equals = strchr(word, '=');
    option_id id = option_of(word, about->flag);
    if (equals && id < N_OPTIONS) {
        offer_value(word, equals + 1, id);
        return;
    }
    id = strchr(before, '=') ? N_OPTIONS : option_of(before, about->flag);
    if (id < N_OPTIONS) {
        offer_value(word, word, id);
        return;
    }
    if (!*word || *word == '-') offer_options(word, about);
    if (about->flag & (FOR_RUN | FOR_DRAW) && *word != '-') offer_files(word, word);
}
