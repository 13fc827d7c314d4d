/* weft: which command, its options, its context. */
#include "common/cli.h"
#include "common/text.h"
#include "job/progress.h"
#include "job/report.h"
#include "restart/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMMAND_ROW(flag, function, name, summary)                                                 \
    {name, summary, FOR_##flag, run_##function, NULL},

const command commands[] = {
    COMMAND_LIST(COMMAND_ROW){"run", "start a program: weft run -n N PROGRAM [ARGUMENTS]", FOR_RUN,
                              NULL, run_run},
    {0},
};

exit_status complain(exit_status status, const char *format, ...) {
    char text[4096], shown[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%s %s\n", has_color(stderr) ? "\033[31mweft:\033[0m" : "weft:",
            wf_text_escape(text, shown, sizeof shown));
    return status;
}

exit_status complain_of(const cli *c, wf_status status) {
    exit_status exit = EXIT_FAILED;
    switch (status) {
    case WF_OK:
        return EXIT_DONE;
    case WF_INVALID_ARG:
    case WF_UNSUPPORTED:
        exit = EXIT_USAGE;
        break;
    case WF_DOES_NOT_FIT:
        exit = EXIT_DOES_NOT_FIT;
        break;
    case WF_TIMEOUT:
    case WF_REMOTE:
        exit = EXIT_RANK;
        break;
    default:
        break;
    }
    const char *sentence = wf_context_error(c->ctx);
    if (!*sentence) sentence = wf_status_meaning(status);
    if (c->lost && exit == EXIT_RANK && !interrupt_status()) {
        snprintf(c->lost, LOST_BYTES, "%s", sentence);
        return exit;
    }
    if (status == WF_REMOTE && !c->has_begun && interrupt_status())
        return complain(interrupt_status(), "interrupted: %s", sentence);
    return complain(exit, "%s", sentence);
}

void say(const cli *c, const char *format, ...) {
    char *text = NULL, shown[4096];
    va_list args;
    if (c->o.quiet) return;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0) return; /* no memory left, which others will say */
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        fputs(wf_text_escape(line, shown, sizeof shown), c->say);
        if (next) fputc('\n', c->say);
    }
    free(text);
    if (fflush(c->say) && c->say == stdout && !*c->say_error) *c->say_error = errno;
}

bool has_color(FILE *file) {
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fileno(file)) && !(no && *no) && term && strcmp(term, "dumb");
}

int columns_of(FILE *file, int least, int most) {
    struct winsize size = {0};
    bool is_known = isatty(fileno(file)) && !ioctl(fileno(file), TIOCGWINSZ, &size) && size.ws_col;
    int n = is_known ? size.ws_col : 80;
    return n < least ? least : n > most ? most : n;
}

/* ---- log ---- */

/* WEFT_LOG=level[:topic,topic] */
static wf_log_level log_level = WF_LOG_WARN;
static const char *log_topics;

static void log_line(void *self, wf_log_level level, const char *topic, const char *line) {
    static const char *const names[] = {"error", "warn", "info", "debug"};
    const cli *c = self;
    if (c->waiting && !strcmp(topic, "progress")) progress_step_of_call(c->waiting, line);
    if (level > log_level) return;
    if (log_topics) {
        size_t n = strlen(topic);
        const char *at = log_topics;
        while (*at && (strncmp(at, topic, n) || (at[n] && at[n] != ','))) {
            at += strcspn(at, ",");
            at += *at == ',';
        }
        if (!*at) return;
    }
    bool is_shown = isatty(STDERR_FILENO) || getenv(WF_LAUNCH_TERMINAL);
    if (is_shown) fputs("\r\033[K", stderr); /* a bar may stand there */
    fprintf(stderr, "weft %s %s: %s\n", names[level], topic, line);
}

static bool configure_log(cli *c, wf_context_config *config) {
    static const char *const names[] = {"error", "warn", "info", "debug"};
    const char *text = wf_info_variable_value("WEFT_LOG");
    config->log = log_line;
    config->log_self = c;
    config->log_level = WF_LOG_INFO; /* progress; log_line filters the other messages */
    if (!text || !*text) return true;
    size_t n = strcspn(text, ":");
    for (int level = WF_LOG_ERROR; level <= WF_LOG_DEBUG; level++) {
        if (strlen(names[level]) != n || strncmp(names[level], text, n)) continue;
        log_level = (wf_log_level)level;
        if (log_level > config->log_level) config->log_level = log_level;
        log_topics = text[n] ? text + n + 1 : NULL;
        return true;
    }
    complain(EXIT_USAGE, "WEFT_LOG='%.60s'; it takes error, warn, info or debug, then :topic,topic",
             text);
    return false;
}

/* ---- commands ---- */

/* Output may have been lost, for example on a full disk. `code`: the reason, if it is known. */
static exit_status close_output(exit_status status, int code) {
    bool good = !ferror(stdout);
    if (fflush(stdout) && !code) code = errno;
    clearerr(stdout);
    if ((good && !code) || status != EXIT_DONE) return status;
    return complain(EXIT_FAILED, "standard output cannot be written%s%s", code ? ": " : "",
                    code == EBADF ? "it is closed"
                    : code        ? strerror(code)
                                  : "");
}

/* Commands that may join a job check --json when they have joined: only rank 0 writes it. */
static exit_status run_in_context(const command *about, const wf_context_config *config, cli *c) {
    wf_status status = wf_context_create(config, &c->ctx);
    bool joins = about->flag & (JOBS | FOR_BENCH_ALLREDUCE);
    if (!joins) TRY(report_check(c));
    if (status == WF_OK) return about->run(c);
    return complain(EXIT_FAILED, "%s",
                    status == WF_DEVICE
                        ? "libsodium cannot begin: the system gives no random numbers"
                        : "no memory left");
}

static bool is_version(const char *word) {
    return !strcmp(word, "--version") || !strcmp(word, "-V");
}

static exit_status print_version(void) {
    printf("weft %s\n", WEFT_VERSION);
    return EXIT_DONE;
}

/* Runs the command. *lost is "", or the reason to run it again: its job has lost a rank. */
static exit_status run_once(const command *about, int argc, char *const *argv, int *say_error,
                            char *lost) {
    cli c = {.command = about->flag, .say = stdout, .say_error = say_error, .is_root = true};
    char sentence[LOST_BYTES] = "";
    exit_status status = EXIT_DONE;
    options_init(&c.o);
    if (!options_parse(&c.o, about->flag, argc, argv)) {
        status = complain(c.o.is_unreadable ? EXIT_FAILED : EXIT_USAGE, "%s", c.o.error);
    } else {
        wf_context_config config = WF_CONTEXT_CONFIG_INIT;
        if (c.o.json && !strcmp(c.o.json, "-")) c.say = stderr;
        c.history = history_find();
        c.snapshot = c.history ? snapshot_find() : NULL;
        if (c.snapshot && c.history->keeps_ranks) c.lost = sentence;
        if (!configure_log(&c, &config))
            status = EXIT_USAGE;
        else
            status = run_in_context(about, &config, &c);
    }
    options_release(&c.o);
    snapshot_release(c.snapshot);
    history_release(c.history);
    wf_job_leave(c.job);
    wf_context_destroy(c.ctx);
    snprintf(lost, LOST_BYTES, "%s", status == EXIT_RANK ? sentence : "");
    return status;
}

/* A rank of a job that lost another rank stays, and runs the command anew with the replacement. */
static exit_status run_until_whole(const command *about, int argc, char *const *argv,
                                   int *say_error) {
    char lost[LOST_BYTES];
    exit_status status;
    do status = run_once(about, argc, argv, say_error, lost);
    while (*lost);
    return status;
}

static exit_status run_command(const command *about, int argc, char *const *argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        bool is_all = !strcmp(argv[i], "--help=all");
        if (is_all || !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            print_command_help(stdout, about, is_all);
            return EXIT_DONE;
        }
        if (is_version(argv[i])) return print_version();
    }
    int say_error = 0;
    signal(SIGXFSZ, SIG_IGN); /* a file that may grow no more is an error of write() */
    exit_status status = run_until_whole(about, argc, argv, &say_error);
    return close_output(status, say_error);
}

const command *find_command(int argc, char *const *argv, int *n_words_out) {
    for (const command *about = commands; about->name; about++) {
        const char *second = strchr(about->name, ' ');
        size_t n = second ? (size_t)(second - about->name) : strlen(about->name);
        if (strlen(argv[1]) != n || strncmp(argv[1], about->name, n)) continue;
        if (second && (argc < 3 || strcmp(argv[2], second + 1))) continue;
        *n_words_out = second ? 3 : 2;
        return about;
    }
    return NULL;
}

static exit_status unknown_command(const char *name) {
    const char *near = NULL;
    int least = 4;
    if (!strcmp(name, "bench")) {
        char benches[200] = "";
        for (const command *about = commands; about->name; about++)
            if (!strncmp(about->name, "bench ", 6))
                TEXT_ADD(benches, "%s%s", *benches ? ", " : "", about->name);
        return complain(EXIT_USAGE, "weft bench: a command is missing; there are %s", benches);
    }
    for (const command *about = commands; about->name; about++) {
        int distance = wf_text_distance(name, about->name);
        if (distance < least) near = about->name, least = distance;
    }
    for (size_t i = 0; i < 2 && *name == '-'; i++) {
        int distance = wf_text_distance(name, i ? "--version" : "--help");
        if (distance < least) near = i ? "--version" : "--help", least = distance;
    }
    if (near)
        return complain(EXIT_USAGE, "there is no command '%.60s'; did you mean %s?", name, near);
    return complain(EXIT_USAGE, "there is no command '%.60s'; weft --help lists those there are",
                    name);
}

static exit_status run_first_word(int argc, char *const *argv) {
    int n_words = 0;
    if (is_version(argv[1])) return print_version();
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        print_help(stdout);
        return EXIT_DONE;
    }
    if (!strcmp(argv[1], "help")) return run_help(argc - 2, argv + 2);
    const command *about = find_command(argc, argv, &n_words);
    if (!about) return unknown_command(argv[1]);
    argc -= n_words;
    argv += n_words;
    return about->run_words ? about->run_words(argc, argv) : run_command(about, argc, argv);
}

typedef struct invocation {
    int argc;
    char **argv;
    exit_status status;
} invocation;

static void *run_invocation(void *self) {
    invocation *now = self;
    now->status = run_first_word(now->argc, now->argv);
    return NULL;
}

/* Where `ulimit -s` gives small stacks, weft runs in a thread with a stack that is large enough,
 * and so do all threads that it starts. That thread gets the signals. */
static exit_status run_on_large_stack(int argc, char **argv) {
    const size_t stack_bytes = 1 << 20;
    invocation now = {argc, argv, EXIT_FAILED};
    struct rlimit limit;
    pthread_attr_t large;
    pthread_t thread;
    if (!getrlimit(RLIMIT_STACK, &limit) && limit.rlim_cur < stack_bytes &&
        !pthread_attr_init(&large) && !pthread_attr_setstacksize(&large, stack_bytes) &&
        !pthread_setattr_default_np(&large) &&
        !pthread_create(&thread, NULL, run_invocation, &now)) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, NULL);
        pthread_join(thread, NULL);
        return now.status;
    }
    return run_first_word(argc, argv);
}

/* A newly opened file must not become one of weft's output streams. Writing to a standard output
 * that was closed still fails, and the error is reported. Messages to a closed standard error are
 * dropped. */
static void hold_closed_streams(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY) < 0) return;
}

/* oneDNN does not survive an allocation that fails: it throws, or reads where nothing is. */
static void report_limit(int number) {
    static const char text[] = "weft: a library has failed, probably because ulimit -v limits the "
                               "memory of this process\n";
    (void)number;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(EXIT_FAILED);
}

static void watch_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY) return;
    signal(SIGABRT, report_limit);
    signal(SIGSEGV, report_limit);
}

/* Ends a process that stops because of other ranks. Where MPI waits for those in a thread of its
 * own, that thread stays in MPI. A regular exit would destroy its libraries while it runs. */
static void end_beside_threads(exit_status status) {
    struct stat threads; /* two links more than there are threads */
    if (status >= EXIT_RANK && stat("/proc/self/task", &threads) == 0 && threads.st_nlink > 3)
        _exit((int)status);
}

int main(int argc, char **argv) {
    program_words = argv;
    signal(SIGINT, SIG_DFL); /* a script that starts weft in the background ignores it */
    hold_closed_streams();
    watch_limit();
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    exit_status status = run_on_large_stack(argc, argv);
    /* Texts such as the man page are printed at a stretch: nothing has failed after the write. */
    status = close_output(status, ferror(stdout) ? errno : 0);
    end_beside_threads(status);
    return (int)status;
}
