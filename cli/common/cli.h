/* Shared by all commands: exit statuses, output streams, errors. */
#pragma once

#include "common/options.h"

#include <signal.h>
#include <stdio.h>

typedef enum exit_status {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_DOES_NOT_FIT = 3,
    EXIT_RANK = 4,      /* a rank died, stalled or disagreed */
    EXIT_HUNG_UP = 129, /* 128 and the signal */
    EXIT_INTERRUPTED = 130,
    EXIT_TERMINATED = 143
} exit_status;

/* Passes a failure up: a wf_status, or an exit_status whose message was printed. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        __typeof__(call) tried_ = (call);                                                          \
        if (tried_) return tried_;                                                                 \
    } while (0)

typedef struct cli {
    wf_context *ctx;
    options o;
    unsigned command; /* FOR_TRAIN, ... */
    wf_job *job;      /* of this process, or NULL */
    exit_status stop; /* of a job: how its ranks have agreed to end; EXIT_DONE: to go on */
    bool has_begun;   /* to make steps: there is something to lose */
    bool is_root;     /* the process that talks and writes files: rank 0, or the only one */
    FILE *say;        /* results for people: standard output, unless the report goes there */

    struct history *history;   /* over the restarts of a run (restart.h); NULL: none */
    struct snapshot *snapshot; /* of the state in memory (snapshot.h); NULL: none */
    int image;                 /* of the snapshot to continue from, from 1 on; 0: none */
    int64_t saved_step;        /* of the checkpoint in --out after a restart; -1: none */
    char *lost; /* [LOST_BYTES] the sentence, if the job has lost a rank that is replaced; NULL:
                 * none will be */
    struct progress *waiting; /* shows the library's progress meanwhile; or NULL */
    char memory_cap[200];     /* the limit of a rank's memory that no option gave, and why; or "" */
    int *say_error;           /* why the first of them did not get through: errno, or 0 */
} cli;

#define LOST_BYTES 1024

typedef struct command {
    const char *name, *summary;
    unsigned flag;
    exit_status (*run)(cli *c);
    exit_status (*run_words)(int argc, char *const *argv); /* instead: reads them itself */
} command;

/* The last one has no name. */
extern const command commands[];

#define COMMAND_FUNCTION(flag, function, name, summary) exit_status run_##function(cli *c);
COMMAND_LIST(COMMAND_FUNCTION)
exit_status run_run(int argc, char *const *argv);

/* "weft: " and the sentence, escaped, on standard error. Returns `status`. */
exit_status complain(exit_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same with the context's last error. That another rank is to blame is the interruption's own
 * doing, if this one has been interrupted before there was anything to lose. */
exit_status complain_of(const cli *c, wf_status status);

/* Prints to c->say unless --quiet; all but ends of lines is escaped, so that names out of files
 * cannot command a terminal. */
void say(const cli *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Whether escape codes are wanted there: a terminal, TERM is not dumb, no NO_COLOR. */
bool has_color(FILE *file);
/* How wide the terminal is, within bounds; 80 where there is none. */
int columns_of(FILE *file, int least, int most);

/* argv[1] is the first word; "bench train" has two. How many words there are up to the command's
 * options. NULL: there is none. */
const command *find_command(int argc, char *const *argv, int *n_words_out);

/* ---- complete.c ---- */

/* Prints the completions of the last of the words, one a line. argv[0] is the first word after
 * weft. ":files N" stands for any path, after N characters of the word. */
void complete(int argc, char *const *argv);

/* ---- help.c ---- */

void print_help(FILE *out);
/* The options that matter first, or all. */
void print_command_help(FILE *out, const command *about, bool is_all);
exit_status run_help(int argc, char *const *argv);

/* ---- option_help.c ---- */

/* The words for the help of the command with that flag; 0: of those to which it is the same. */
void option_describe(option_id id, unsigned flag, char *text, size_t bytes);
/* The meaning of the option in this command alone; NULL: the same as in others. */
const char *option_describe_other(option_id id, const command *about);
/* The options in the command's short help, up to N_OPTIONS; NULL: it shows all. */
const option_id *option_shorts(unsigned flag);

/* ---- processes.c ---- */

/* Finds out which rank of which job this process is, and joins it; with --ranks N > 1 and no
 * job, starts itself N times instead: then *done_out, and the run's exit status. */
exit_status processes_begin(cli *c, bool *done_out);

/* ---- launch_self.c ---- */

/* The words this program was called with. */
extern char *const *program_words;
/* Starts this very program, with these words, as --ranks processes, and waits
 * for them. EXIT_RANK if one was killed, else the exit status of the first that failed. */
exit_status launch_self(cli *c);

/* ---- interrupt.c ---- */

/* From now on SIGINT, SIGTERM and SIGHUP are remembered; a second one ends the process. Closed
 * standard output does not end the process early, but the command fails in the end. */
void interrupt_watch(void);
/* From now on they end the process at once, with a sentence: no results are written before its end.
 */
void interrupt_end(void);
/* Also ends the process `seconds` after the first signal, with its exit status, even in the middle
 * of a step. Complains. */
exit_status interrupt_within(double seconds);
/* As if this signal had come. */
void interrupt_assume(int number);
/* From now on they end the process. */
void interrupt_unwatch(void);
/* They wait for wf_launch, interrupt_wait or interrupt_release, so none is lost in between. */
void interrupt_hold(sigset_t *before_out);
/* Returns the held signal that ended the wait, or 0. */
int interrupt_wait(double seconds);
void interrupt_release(const sigset_t *before);
/* EXIT_DONE, or the exit status of the signal that came. */
exit_status interrupt_status(void);
/* The same where ranks train together: of the signal that any of them got, told to all by the
 * last step; this rank's own is told with the next. So all stop at the same place. */
exit_status interrupt_agreed(const cli *c);
