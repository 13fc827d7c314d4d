/* A measurement in processes of its own: each measured program starts fresh every time, with as
 * many cores as it has ranks, and leaves a report. weft and its peers run so.
 */
#pragma once

#include "common/cli.h"

#include <sched.h>

#define APART_MAX_WORDS   256
#define APART_MAX_REPEATS 1000

/* A command that grows word by word; the first that finds no memory makes it `broken`. */
typedef struct words {
    char *word[APART_MAX_WORDS + 1];
    int n;
    bool broken;
} words;

void words_add(words *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Options of this command that were given and that `other`, a command, has, too, as one would type
 * them. */
void words_add_options(words *w, const options *o, unsigned other);
void words_release(words *w);

/* Cores that this process may use, at least 1. */
int apart_n_cores(void);
/* Takes the last n of them for this thread and its children: the first often has the system's own
 * work. False: there are not more, and nothing changes. */
bool cores_take(int n, cpu_set_t *all_out);
void cores_give_back(const cpu_set_t *all);

/* ---- peers: programs that weft is compared with ---- */

/* The command of a bench that trains: its ranks, repeats and steps, `usual` of both where they are
 * not given, and peers that there are. Complains. */
exit_status apart_resolve(cli *c, int usual);
/* Refuses --ranks, --repeat and --python that no bench takes. Complains. */
exit_status apart_check_counts(const options *o, int64_t least_ranks);
/* Refuses to run as one of several ranks, because the bench starts its ranks itself. Complains. */
exit_status apart_check_alone(const cli *c);

/* The file of bench/, wherever this program was built or installed; NULL: there is none. */
const char *bench_file(const char *name, char path[4096]);
/* --python, or the interpreter that bench/setup-peers installs, or python3. */
const char *peer_python(const options *o, char path[4096]);
