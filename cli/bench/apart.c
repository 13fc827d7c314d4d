#include "bench/apart.h"
#include "common/text.h"
#include "job/job.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- words ---- */

void words_add(words *w, const char *format, ...) {
    char text[4500];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (w->n < APART_MAX_WORDS && (w->word[w->n] = strdup(text)))
        w->n++;
    else
        w->broken = true;
}

void words_add_options(words *w, const options *o, unsigned other) {
    for (option_id id = 0; id < N_OPTIONS; id++) {
        char name[TEXT_BYTES], text[TEXT_BYTES];
        bool is_wanted = option_is_given(o, id) && option_about(id).commands & other;
        if (is_wanted) words_add(w, "%s=%s", option_name(name, id), option_text(o, id, text));
    }
}

void words_release(words *w) {
    while (w->n > 0) free(w->word[--w->n]);
    w->broken = false;
}

/* ---- cores ---- */

int apart_n_cores(void) {
    return wf_info_limits().n_cores;
}

bool cores_take(int n, cpu_set_t *all_out) {
    cpu_set_t some;
    if (sched_getaffinity(0, sizeof *all_out, all_out) || CPU_COUNT(all_out) <= n) return false;
    CPU_ZERO(&some);
    for (int core = CPU_SETSIZE - 1; core >= 0 && n > 0; core--) {
        if (!CPU_ISSET(core, all_out)) continue;
        CPU_SET(core, &some);
        n--;
    }
    return sched_setaffinity(0, sizeof some, &some) == 0;
}

void cores_give_back(const cpu_set_t *all) {
    (void)sched_setaffinity(0, sizeof *all, all);
}

/* ---- benches that train ---- */

exit_status apart_check_counts(const options *o, int64_t least_ranks) {
    if (o->ranks < least_ranks || o->ranks > WF_LAUNCH_MAX_RANKS)
        return complain(EXIT_USAGE, "--ranks %lld: there can be %lld to %d", (long long)o->ranks,
                        (long long)least_ranks, WF_LAUNCH_MAX_RANKS);
    if (o->repeat < 1 || o->repeat > APART_MAX_REPEATS)
        return complain(EXIT_USAGE, "--repeat must be 1 to %d", APART_MAX_REPEATS);
    if (o->python && !o->peers)
        return complain(EXIT_USAGE, "--python has no effect here: it is for --peers");
    return EXIT_DONE;
}

static exit_status check_peers(const options *o) {
    if (o->peers && strncmp(o->model, "resnet", 6) && strcmp(o->model, "gpt2"))
        return complain(
            EXIT_USAGE,
            "--peers: PyTorch's side has resnet18, resnet34, resnet50 and gpt2, but not %.40s",
            o->model);
    if (o->peers && o->recipe.optimizer == WF_ADAM)
        return complain(EXIT_USAGE, "--peers: PyTorch's side has --optimizer sgd and adamw");
    return EXIT_DONE;
}

exit_status apart_resolve(cli *c, int usual) {
    options *o = &c->o;
    TRY(job_check_model(c));
    if (!option_is_given(o, OPT_ranks)) o->ranks = apart_n_cores();
    if (!option_is_given(o, OPT_repeat)) o->repeat = usual;
    if (!option_is_given(o, OPT_steps)) o->steps = usual;
    if (!o->recipe.n_threads) o->recipe.n_threads = 1;
    TRY(apart_check_counts(o, 1));
    if (o->steps < 1 || o->steps > 10000) return complain(EXIT_USAGE, "--steps must be 1 to 10000");
    return check_peers(o);
}

exit_status apart_check_alone(const cli *c) {
    const command *about = commands;
    wf_place place;
    TRY(complain_of(c, wf_launch_place(c->ctx, &place)));
    if (place.n_ranks == 1) return EXIT_DONE;
    while (about->flag != c->command) about++;
    return complain(
        EXIT_USAGE,
        "weft %s starts its ranks itself, but this is rank %d of %d (%s); start it once",
        about->name, place.rank, place.n_ranks, place.source);
}

/* ---- peers ---- */

const char *bench_file(const char *name, char path[4096]) {
    static const char *const places[] = {"../bench", "../share/weft"};
    char self[2048];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return NULL;
    self[n] = 0;
    char *slash = strrchr(self, '/');
    if (slash) *slash = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, 4096, "%s/%s/%s", self, places[i], name);
        if (access(path, R_OK) == 0) return path;
    }
    return NULL;
}

const char *peer_python(const options *o, char path[4096]) {
    const char *parent = getenv("TMPDIR");
    if (o->python) return o->python;
    snprintf(path, 4096, "%.3000s/weft-peers/bin/python", parent && *parent ? parent : "/tmp");
    return access(path, X_OK) == 0 ? path : "python3";
}
