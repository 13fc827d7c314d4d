/* weft run: any program as ranks. */
#include "restart/restart.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* -n N --timeout SECONDS --grace SECONDS --restarts N, each twice by mistake */
#define MAX_WORDS 16

/* Everything up to the first word that is no option is ours; -n is short for --ranks. Returns
 * how many words that is, or -1 after a complaint. */
static int take_words(int argc, char *const *argv, char *words[MAX_WORDS], int *n_out) {
    int i = 0, n = 0;
    while (i < argc && argv[i][0] == '-' && strcmp(argv[i], "--") != 0) {
        bool is_short = !strcmp(argv[i], "-n");
        const char *equals = strchr(argv[i], '=');
        if (n + 2 > MAX_WORDS) {
            complain(EXIT_USAGE, "too many options; put the program's own options after its name");
            return -1;
        }
        words[n++] = is_short ? "--ranks" : argv[i];
        i++;
        if (!equals && i < argc) words[n++] = argv[i++]; /* all of ours have a value */
    }
    *n_out = n;
    return i < argc && !strcmp(argv[i], "--") ? i + 1 : i;
}

/* The value of the ranks' launch, as an exit status. */
static exit_status launch(wf_context *ctx, const options *o, wf_launch_config *config) {
    const cli c = {.ctx = ctx, .o = *o};
    wf_launch_result result;
    elastic e;
    if (o->ranks_least) TRY(elastic_open(ctx, o, false, &e));
    unsetenv(HISTORY_ENV);
    TRY(complain_of(&c, restart_launch(&c, config, o->ranks_least ? &e : NULL, &result)));
    if (result.failed_rank >= 0)
        return complain((exit_status)result.exit_status, "%s", result.sentence);
    if (result.interrupted_by)
        return complain((exit_status)(128 + result.interrupted_by), "%s", result.sentence);
    return EXIT_DONE;
}

static exit_status run_program(const options *o, char *const *program) {
    wf_launch_config config = WF_LAUNCH_CONFIG_INIT;
    wf_context *ctx;
    if (!option_is_given(o, OPT_ranks))
        return complain(EXIT_USAGE, "-n is missing, the number of ranks: weft run -n 4 PROGRAM");
    if (o->ranks < 1 || o->ranks > WF_LAUNCH_MAX_RANKS)
        return complain(EXIT_USAGE, "-n %lld: there can be 1 to %d ranks", (long long)o->ranks,
                        WF_LAUNCH_MAX_RANKS);
    if (option_is_given(o, OPT_timeout) && !(o->timeout > 0 && o->timeout < 1e9))
        return complain(EXIT_USAGE, "--timeout %g: it must be more than 0 seconds", o->timeout);
    if (option_is_given(o, OPT_grace) && !(o->grace > 0 && o->grace < 1e9))
        return complain(EXIT_USAGE, "--grace %g: it must be more than 0 seconds", o->grace);
    if (!*program)
        return complain(EXIT_USAGE, "no program is named: weft run -n %lld PROGRAM ARGUMENTS...",
                        (long long)o->ranks);
    config.n_ranks = (int)o->ranks;
    config.timeout_ms = o->timeout > 0 ? (int64_t)(o->timeout * 1000 + 0.999) : 0;
    config.grace_ms = o->grace > 0 ? (int64_t)(o->grace * 1000 + 0.999) : 0;
    config.argv = program;
    if (wf_context_create(NULL, &ctx) != WF_OK) return complain(EXIT_FAILED, "no memory left");
    signal(SIGCHLD, SIG_DFL); /* the parent may have ignored it */
    exit_status status = launch(ctx, o, &config);
    wf_context_destroy(ctx);
    return status;
}

static exit_status print_own_help(void) {
    for (const command *about = commands; about->name; about++)
        if (about->flag == FOR_RUN) print_command_help(stdout, about, true);
    return EXIT_DONE;
}

exit_status run_run(int argc, char *const *argv) {
    char *words[MAX_WORDS];
    int n_words, n_taken = take_words(argc, argv, words, &n_words);
    options o;
    if (n_taken < 0) return EXIT_USAGE;
    for (int i = 0; i < n_taken; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "--help=all") || !strcmp(argv[i], "-h"))
            return print_own_help();
    options_init(&o);
    exit_status status;
    if (options_parse(&o, FOR_RUN, n_words, words))
        status = run_program(&o, argv + n_taken);
    else
        status = complain(EXIT_USAGE, "%s", o.error);
    options_release(&o);
    return status;
}
