/* weft bench allreduce: its options, and rounds of it. */
#include "bench/allreduce.h"
#include "checkpoint/checkpoint.h"
#include "common/text.h"
#include "job/report.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_BYTES      "4KiB,64KiB,1MiB,4MiB,16MiB,100MB"
#define DEFAULT_ALGORITHMS "direct,pairwise,tree,ring,root"
#define DEFAULT_WIRES      "inproc,shm"
#define LARGEST            ((int64_t)1 << 36)
#define MAX_ROWS           512

static const char *const wires[] = {"inproc", "shm", "mpi"};

/* ---- lists ---- */

/* The next word of a list a,b,c; false at its end. */
static bool next_word(const char **list, char word[TEXT_BYTES]) {
    size_t n = strcspn(*list, ",");
    if (!**list && !n) return false;
    snprintf(word, TEXT_BYTES, "%.*s", (int)(n < TEXT_BYTES ? n : TEXT_BYTES - 1), *list);
    *list += n + ((*list)[n] == ',');
    return true;
}

/* Words of `known`; their places in it, each once. */
static exit_status read_names(const char *option_name, const char *list, const char *const *known,
                              int n_known, const char **out, int *n_out) {
    char word[TEXT_BYTES], all[200] = "";
    for (int i = 0; i < n_known; i++) TEXT_ADD(all, "%s%s", i ? ", " : "", known[i]);
    if (!*list) return complain(EXIT_USAGE, "%s needs a list of %s", option_name, all);
    while (next_word(&list, word)) {
        int k = 0;
        while (k < n_known && strcmp(known[k], word)) k++;
        if (k == n_known)
            return complain(EXIT_USAGE, "%s: there is no '%s'; there are %s", option_name, word,
                            all);
        for (int i = 0; i < *n_out; i++)
            if (!strcmp(out[i], word))
                return complain(EXIT_USAGE, "%s: %s is listed twice", option_name, word);
        out[(*n_out)++] = known[k];
    }
    return EXIT_DONE;
}

static exit_status read_bytes(bench_allreduce *b, const char *list) {
    char word[TEXT_BYTES];
    size_t bytes;
    if (!*list) return complain(EXIT_USAGE, "--bytes needs a list such as 4KiB,1MiB,100MB");
    while (next_word(&list, word)) {
        if (!text_to_bytes(word, &bytes))
            return complain(EXIT_USAGE, "--bytes: '%s' is not a size such as 4KiB, 100MB or 4096",
                            word);
        if (!bytes || bytes % sizeof(float) || bytes > (size_t)LARGEST)
            return complain(EXIT_USAGE,
                            "--bytes: %s; a buffer holds floats, so its size is a multiple of 4, "
                            "from 4 to 64 GiB",
                            word);
        if (b->n_bytes == REDUCE_MAX_LIST)
            return complain(EXIT_USAGE, "--bytes: more than %d sizes", REDUCE_MAX_LIST);
        for (int i = 0; i < b->n_bytes; i++)
            if (b->bytes[i] == (int64_t)bytes)
                return complain(EXIT_USAGE, "--bytes: %s is listed twice", word);
        int at = b->n_bytes++; /* smaller ones first */
        for (; at > 0 && b->bytes[at - 1] > (int64_t)bytes; at--) b->bytes[at] = b->bytes[at - 1];
        b->bytes[at] = (int64_t)bytes;
    }
    return EXIT_DONE;
}

static exit_status resolve(bench_allreduce *b, const wf_place *place) {
    options *o = &b->all.c->o;
    if (!option_is_given(o, OPT_ranks)) o->ranks = apart_n_cores() < 2 ? 2 : apart_n_cores();
    if (!option_is_given(o, OPT_repeat)) o->repeat = 5;
    b->n_ranks = (int)o->ranks;
    exit_status bad = apart_check_counts(o, 2);
    if (!bad) bad = read_bytes(b, o->bytes ? o->bytes : DEFAULT_BYTES);
    const char *names[REDUCE_MAX_LIST];
    int n_names = 0;
    while (n_names < REDUCE_MAX_LIST && wf_group_algorithm_name(n_names))
        names[n_names] = wf_group_algorithm_name(n_names), n_names++;
    if (!bad)
        bad = read_names("--algorithm", o->algorithm ? o->algorithm : DEFAULT_ALGORITHMS, names,
                         n_names, b->algorithms, &b->n_algorithms);
    bool spans_machines = place->n_local_ranks && place->n_local_ranks < place->n_ranks;
    const char *default_wires = !b->is_worker ? DEFAULT_WIRES : spans_machines ? "mpi" : "shm";
    if (!bad)
        bad = read_names("--wire", o->wire ? o->wire : default_wires, wires,
                         sizeof wires / sizeof *wires, b->wires, &b->n_wires);
    return bad;
}

/* ---- rows ---- */

static exit_status add(bench_allreduce *b, int64_t bytes, const char *algorithm, const char *wire) {
    json_t *row = json_pack("{s:s, s:I, s:i, s:s, s:s, s:n, s:n, s:n, s:n, s:n, s:n, s:n}", ".name",
                            wire, "bytes", (json_int_t)bytes, "ranks", b->n_ranks, "algorithm",
                            algorithm, "wire", wire, "time_us", "stream_time_us", "algbw_gb_s",
                            "busbw_gb_s", "sent_bytes", "received_bytes", "rounds_us");
    return rounds_add(&b->all, row, MAX_ROWS);
}

static exit_status add_rows(bench_allreduce *b) {
    exit_status bad = EXIT_DONE;
    for (int w = 0; w < b->n_wires; w++)
        for (int s = 0; s < b->n_bytes; s++)
            for (int a = 0; a < b->n_algorithms && !bad; a++)
                bad = add(b, b->bytes[s], b->algorithms[a], b->wires[w]);
    return bad;
}

/* ---- rounds ---- */

/* The rows of one wire, from `first` on, once. */
static exit_status run_wire(bench_allreduce *b, int first, int n_rows, int repeat) {
    const json_t *row = json_array_get(b->all.rows, (size_t)first);
    rounds *all = &b->all;
    char text[100];
    snprintf(text, sizeof text, "run %d/%d  %s", all->n_runs_done + 1, all->n_runs,
             row_text(row, "wire"));
    progress_show(&all->bar, (double)all->n_runs_done++ / all->n_runs, text);
    return b->is_worker ? reduce_run_here(b, first, n_rows, repeat)
                        : reduce_run_threads(b, first, n_rows, repeat);
}

/* `repeat` < 0: all rounds. */
static exit_status run_all(bench_allreduce *b, int repeat) {
    const options *o = &b->all.c->o;
    exit_status bad = add_rows(b);
    int n = b->n_bytes * b->n_algorithms, n_rounds = repeat < 0 ? (int)o->repeat : repeat + 1;
    b->all.n_runs = b->n_wires * n_rounds;
    progress_open(&b->all.bar, !o->quiet);
    for (int k = repeat < 0 ? 0 : repeat; k < n_rounds; k++)
        for (int w = 0; w < b->n_wires && !bad; w++) bad = run_wire(b, w * n, n, k);
    progress_clear(&b->all.bar);
    return bad;
}

/* ---- the command ---- */

/* A rank of a job can measure only wires between processes, and cannot start others. */
static exit_status check_worker(const bench_allreduce *b, const wf_place *place) {
    for (int w = 0; w < b->n_wires; w++)
        if (!strcmp(b->wires[w], "inproc"))
            return complain(
                EXIT_USAGE,
                "--wire inproc is for ranks that are threads, but this is rank %d of %d "
                "processes (%s)",
                place->rank, place->n_ranks, place->source);
    if (b->all.c->o.peers)
        return complain(EXIT_USAGE,
                        "--peers are started by weft itself, but this is rank %d of %d (%s); start "
                        "it once",
                        place->rank, place->n_ranks, place->source);
    return EXIT_DONE;
}

static exit_status prepare(bench_allreduce *b, bool is_part) {
    cli *c = b->all.c;
    wf_place place;
    bool done;
    TRY(complain_of(c, wf_launch_place(c->ctx, &place)));
    b->is_worker = place.n_ranks > 1;
    if (b->is_worker && !option_is_given(&c->o, OPT_ranks)) {
        c->o.ranks = place.n_ranks;
        c->o.given[OPT_ranks] = true;
    }
    exit_status bad = resolve(b, &place);
    if (!bad && b->is_worker) bad = check_worker(b, &place);
    if (!bad && b->is_worker) bad = processes_begin(c, &done);
    if (!bad && c->is_root) bad = report_check(c);
    if (!bad && c->is_root && c->o.out) bad = checkpoint_folder(c);
    if (!bad && b->is_worker && c->is_root && !is_part) bad = cases_check(c);
    return bad;
}

/* A round that bench/cases/ has begun: "ROUND FILE", of which the state goes to the file. */
#define PART_ENV "WEFT_BENCH_PART"

static json_t *algorithm_names(void) {
    json_t *names = json_array();
    for (int k = 0; wf_group_algorithm_name(k); k++)
        json_array_append_new(names, json_string(wf_group_algorithm_name(k)));
    return names;
}

static exit_status finish(bench_allreduce *b, const char *part) {
    cli *c = b->all.c;
    effort spent;
    exit_status measured = complain_of(c, effort_since(c, &b->all.begin, &spent));
    if (measured || !c->is_root) return measured;
    json_t *state = json_pack("{s:O, s:o, s:i, s:i, s:f}", "rows", b->all.rows, "algorithms",
                              algorithm_names(), "n_algorithms", b->n_algorithms, "n_wires",
                              b->n_wires, "copy_gb_s", b->copy_gb_s);
    if (!part) return cases_show(c, state, &spent);
    int failed = state ? json_dump_file(state, strchr(part, ' ') + 1, 0) : -1;
    json_decref(state);
    return failed ? complain(EXIT_FAILED, "%s cannot be written", part) : EXIT_DONE;
}

static void add_names(words *w, const char *key, const char *const *names, int n) {
    char text[400] = "";
    for (int k = 0; k < n; k++) TEXT_ADD(text, "%s%s", k ? "," : "", names[k]);
    words_add(w, "%s=%s", key, text);
}

/* bench/cases/ runs the rounds. */
static exit_status run_rounds(const bench_allreduce *b) {
    char path[4096], python[4096];
    words w = {0};
    for (int k = 0; k < b->n_bytes; k++) words_add(&w, "row=%lld", (long long)b->bytes[k]);
    add_names(&w, "wires", b->wires, b->n_wires);
    add_names(&w, "chosen", b->algorithms, b->n_algorithms);
    json_t *names = algorithm_names();
    for (size_t k = 0; k < json_array_size(names); k++)
        words_add(&w, "row=%s", json_string_value(json_array_get(names, k)));
    json_decref(names);
    words_add(&w, "mpi_source=%s", bench_file("peers/mpi_allreduce.c", path) ? path : "");
    words_add(&w, "gloo_script=%s", bench_file("peers/gloo_allreduce.py", path) ? path : "");
    words_add(&w, "peer_python=%s", peer_python(&b->all.c->o, python));
    exit_status bad = cases_run(b->all.c, 0, NULL, &w);
    words_release(&w);
    return bad;
}

exit_status run_bench_allreduce(cli *c) {
    bench_allreduce b = {.all = {.c = c, .rows = json_array()}};
    const char *part = getenv(PART_ENV);
    bool is_part = part && strchr(part, ' ');
    exit_status bad = prepare(&b, is_part);
    if (!bad) {
        interrupt_end();
        say(c, "all-reduce of %d ranks, sums of floats in place, %s memory; %lld rounds\n",
            b.n_ranks, c->o.memory == MEMORY_SHARED ? "shared" : "ordinary",
            (long long)c->o.repeat);
        b.all.begin = effort_now();
        if (b.is_worker || is_part) bad = run_all(&b, is_part ? atoi(part) : -1);
        if (!bad) bad = b.is_worker || is_part ? finish(&b, is_part ? part : NULL) : run_rounds(&b);
    }
    rounds_close(&b.all);
    return bad;
}
