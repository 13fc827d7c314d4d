/* bench/cases: the script that runs the rows of benches, and makes their tables, reports and
 * pictures.
 */
#include "bench/cases.h"
#include "bench/scratch.h"
#include "checkpoint/checkpoint.h"
#include "common/output.h"
#include "common/text.h"
#include "draw/gnuplot.h"
#include "job/report.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a chart: a CSV file and the picture that gnuplot draws from it, in --out ---- */

/* gnuplot's own format begins with a space, which moves labels off their tics; a legend in the plot
 * would cut the lines of the grid. */
#define STYLE                                                                                      \
    "set terminal pngcairo size 1280,720 font 'sans,18' background rgb 'white';"                   \
    "set datafile separator ','; set border 3 lc rgb '#555555'; set tics nomirr out;"              \
    "set grid ytics lt 1 lc rgb '#e0e0e0' lw 1; set bars 1.5; set tmargin 3.5; set rmargin 4;"     \
    "set format '%%g';"                                                                            \
    "set key outside bottom center horizontal Left reverse samplen 1.5 maxrows 3;"                 \
    "set style fill solid 1 noborder;"

/* Writes DIR/name.csv, draws DIR/name.png by `script`, which has the variable `csv`, and says so;
 * or why not, which is no error. Complains if a file could not be written. */
static exit_status chart_draw(const cli *c, const char *name, const char *csv, const char *title,
                              const char *script) {
    char *all, path[4096];
    int status;
    output out;
    snprintf(path, sizeof path, "%s/%s.csv", c->o.out, name);
    TRY(output_begin(&out, c, "--out:", path));
    fprintf(out.stream, "%s\n", csv);
    TRY(output_end(&out));
    if (asprintf(&all, STYLE "csv='%s.csv'; set title \"%s\"; %s", name, title, script) < 0)
        return complain(EXIT_FAILED, "no memory left");
    snprintf(path, sizeof path, "%s/%s.png", c->o.out, name);
    exit_status bad = gnuplot_draw(c, c->o.out, all, path, &status);
    free(all);
    if (bad) return bad;
    if (status == 0)
        say(c, "drawn   %s\n", path);
    else
        say(c, "%s, so there is no %s.png; %s/%s.csv has the numbers\n", gnuplot_meaning(status),
            name, c->o.out, name);
    return EXIT_DONE;
}

#define SCRIPT "cases/__main__.py"
#define SAID   64 /* plus an exit status of weft: the script has said why it fails */
#define NONE   127
/* Python prints a traceback if SIGINT comes before the script can handle it. */
#define START "command -v python3 >/dev/null || exit 127; trap '' INT; exec python3 -BES \"$@\""

/* ---- the script's words ---- */

/* Adds KEY=VALUE for each option of the bench, and the given ones that `child`, the command of the
 * runs, takes as well. */
static void add_options(const cli *c, unsigned child, words *w) {
    for (option_id id = 0; id < N_OPTIONS; id++) {
        char text[TEXT_BYTES];
        const option about = option_about(id);
        bool is_open = id == OPT_target_loss && !option_is_given(&c->o, id);
        if (about.commands & c->command && !is_open)
            words_add(w, "%s=%s", about.key, option_text(&c->o, id, text));
    }
    words_add_options(w, &c->o, child);
}

/* `peer`: PyTorch's script, or NULL. */
static void add_places(const cli *c, const char *peer, words *w) {
    const command *about = commands;
    char self[4096] = "", path[4096], python[4096];
    while (about->flag != c->command) about++;
    words_add(w, "bench=%s", strchr(about->name, ' ') + 1);
    words_add(w, "version=%s", WEFT_VERSION);
    words_add(w, "cores=%d", apart_n_cores());
    words_add(w, "weft=%s", readlink("/proc/self/exe", self, sizeof self - 1) > 0 ? self : "weft");
    if (!peer) return;
    words_add(w, "script_name=%s", strrchr(peer, '/') + 1);
    words_add(w, "script=%s", bench_file(peer, path) ? path : "");
    words_add(w, "peer_python=%s", peer_python(&c->o, python));
}

/* ---- a run of the script ---- */

static exit_status begin_words(words *w) {
    char path[4096];
    if (!bench_file(SCRIPT, path))
        return complain(EXIT_FAILED, "weft bench needs ../share/weft/" SCRIPT
                                     ", seen from weft's folder; run weft where it was installed "
                                     "or built, not a copy of the program");
    words_add(w, "python3");
    words_add(w, "-c");
    words_add(w, START);
    words_add(w, "python3");
    words_add(w, "%s", path);
    return EXIT_DONE;
}

static exit_status outcome(const wf_launch_result *result) {
    int said = result->exit_status - SAID;
    if (result->interrupted_by)
        return complain((exit_status)(128 + result->interrupted_by),
                        "interrupted; no results have been written");
    if (result->failed_rank < 0) return EXIT_DONE;
    if (said >= EXIT_FAILED && said <= EXIT_RANK) return (exit_status)said;
    if (result->exit_status == NONE)
        return complain(EXIT_FAILED, "there is no python3 in PATH, which makes the table");
    if (result->signal)
        return complain(EXIT_FAILED, "python3, which makes the table, was killed by signal %d (%s)",
                        result->signal, strsignal(result->signal));
    return complain(EXIT_FAILED, "python3, which makes the table, ended with exit status %d",
                    result->exit_status);
}

static exit_status launch(const cli *c, words *w) {
    wf_launch_config config = WF_LAUNCH_CONFIG_INIT;
    wf_launch_result result;
    if (w->broken) return complain(EXIT_FAILED, "no memory left, or too many options");
    config.program = "/bin/sh";
    config.argv = w->word;
    config.out = fileno(c->say);
    signal(SIGCHLD, SIG_DFL);
    wf_status status = wf_launch(c->ctx, &config, &result);
    return status == WF_OK ? outcome(&result) : complain_of(c, status);
}

exit_status cases_check(const cli *c) {
    words w = {0};
    exit_status bad = begin_words(&w);
    if (!bad) bad = launch(c, &w);
    words_release(&w);
    return bad;
}

/* ---- its run ---- */

static exit_status run_in(const cli *c, const char *folder, const json_t *state, words *w,
                          json_t **result_out) {
    char path[300];
    json_error_t error;
    snprintf(path, sizeof path, "%s/rows.json", folder);
    if (state && json_dump_file(state, path, 0))
        return complain(EXIT_FAILED, "%s cannot be written", path);
    TRY(launch(c, w));
    snprintf(path, sizeof path, "%s/report.json", folder);
    *result_out = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    return *result_out
               ? EXIT_DONE
               : complain(EXIT_FAILED, "the report of python3 cannot be read: %.160s", error.text);
}

/* Signals wait while there is a folder. */
static exit_status make(const cli *c, const json_t *state, unsigned child, const char *peer,
                        const words *more, json_t **result_out) {
    scratch files;
    sigset_t before;
    words w = {0};
    interrupt_hold(&before);
    interrupt_watch();
    exit_status bad = begin_words(&w);
    if (!bad) bad = scratch_open(&files);
    if (!bad) {
        words_add(&w, "%s", files.folder);
        add_options(c, child, &w);
        add_places(c, peer, &w);
        for (int k = 0; more && k < more->n; k++) words_add(&w, "%s", more->word[k]);
        bad = run_in(c, files.folder, state, &w, result_out);
        scratch_close(&files);
    }
    words_release(&w);
    interrupt_release(&before);
    return bad;
}

/* ---- results ---- */

static exit_status draw(const cli *c, const json_t *about) {
    const char *name, *csv, *title, *script;
    if (json_unpack((json_t *)(uintptr_t)about, "{s:s, s:s, s:s, s:s}", "name", &name, "csv", &csv,
                    "title", &title, "script", &script))
        return complain(EXIT_FAILED, "a picture is incomplete");
    return chart_draw(c, name, csv, title, script);
}

static exit_status check_interrupt(void) {
    return interrupt_status()
               ? complain(interrupt_status(), "interrupted; no results have been written")
               : EXIT_DONE;
}

/* Draws the pictures, and writes the report of the script with the effort. */
static exit_status finish(const cli *c, json_t *result, const effort *spent) {
    char path[4096];
    json_t *picture, *report = json_incref(json_object_get(result, "report"));
    exit_status bad = check_interrupt();
    size_t i;
    if (spent) effort_say(c, spent);
    if (spent) effort_report(spent, report);
    json_array_foreach(json_object_get(result, "charts"), i, picture) {
        if (!bad) bad = draw(c, picture);
        if (!bad) bad = check_interrupt();
    }
    json_decref(result);
    snprintf(path, sizeof path, "%s/results.json", c->o.out ? c->o.out : "");
    if (!bad && c->command == FOR_BENCH_PARALLEL) bad = report_put(c, report, "--out:", path);
    if (!bad) return report_write(c, report);
    json_decref(report);
    return bad;
}

exit_status cases_show(const cli *c, json_t *state, const effort *spent) {
    json_t *result;
    exit_status bad =
        state ? make(c, state, 0, NULL, NULL, &result) : complain(EXIT_FAILED, "no memory left");
    json_decref(state);
    return bad ? bad : finish(c, result, spent);
}

exit_status cases_run(const cli *c, unsigned child, const char *peer, const words *more) {
    json_t *result = NULL;
    effort spent, begin = effort_now();
    exit_status bad = apart_check_alone(c);
    if (!bad && c->o.out) bad = checkpoint_folder(c);
    if (!bad) bad = make(c, NULL, child, peer, more, &result);
    if (!bad) bad = complain_of(c, effort_since(c, &begin, &spent));
    if (!bad) return finish(c, result, &spent);
    json_decref(result);
    return bad;
}
