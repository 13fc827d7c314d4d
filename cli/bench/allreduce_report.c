/* weft bench allreduce: the rows as a table and as JSON. */
#include "bench/allreduce.h"

#include <math.h>
#include <string.h>

static const char *size_text(char text[TEXT_BYTES], int64_t bytes) {
    static const struct {
        int64_t bytes;
        const char *name;
    } units[] = {{1 << 30, "GiB"}, {1000000000, "GB"}, {1 << 20, "MiB"}, {1000000, "MB"},
                 {1 << 10, "KiB"}, {1000, "KB"},       {1, "B"}};
    size_t u = 0;
    while (bytes % units[u].bytes) u++;
    snprintf(text, TEXT_BYTES, "%lld %s", (long long)(bytes / units[u].bytes), units[u].name);
    return text;
}

/* ---- results of rows ---- */

bool reduce_is_peer(const json_t *row) {
    return !strcmp(row_text(row, "wire"), "open-mpi") || !strcmp(row_text(row, "wire"), "gloo");
}

/* Each rank reads its slice of all n buffers, and writes it to all: 2 n bytes through memory for
 * one of the buffer, of which busbw counts 2 (n - 1) / n. */
double reduce_copy_busbw_gb_s(const bench_allreduce *b) {
    return b->copy_gb_s * (b->n_ranks - 1) / b->n_ranks / b->n_ranks;
}

json_t *reduce_best(const bench_allreduce *b, int64_t bytes, const char *wire) {
    json_t *best = NULL;
    for (json_t *row = NULL; (row = next_row(b->all.rows, row));) {
        double time_us = row_number(row, "time_us");
        if (row_number(row, "bytes") != (double)bytes || isnan(time_us) ||
            (wire ? strcmp(row_text(row, "wire"), wire) != 0 : reduce_is_peer(row)))
            continue;
        if (!best || time_us < row_number(best, "time_us")) best = row;
    }
    return best;
}

/* busbw is counted as nccl-tests do. */
void reduce_finish_rows(bench_allreduce *b) {
    for (json_t *row = NULL; (row = next_row(b->all.rows, row));) {
        double bytes = row_number(row, "bytes"), us = row_median(row, "rounds_us");
        row_set(row, "time_us", us);
        row_set(row, "stream_time_us", row_median(row, ".streams"));
        row_set(row, "algbw_gb_s", bytes / us / 1e3);
        row_set(row, "busbw_gb_s", bytes / us / 1e3 * 2 * (b->n_ranks - 1) / b->n_ranks);
        row_set(row, ".sent_x", row_number(row, "sent_bytes") / bytes);
        row_set(row, ".received_x", row_number(row, "received_bytes") / bytes);
    }
}

/* ---- table ---- */

/* Rows of one size are together, with a blank line before them if they are several. */
static void say_rows(const bench_allreduce *b) {
    static const column columns[] = {
        {"bytes", ".size", 9, AS_TEXT},         {"algorithm", "algorithm", -10, AS_TEXT},
        {"wire", "wire", -9, AS_TEXT},          {"time us", "time_us", 11, 1},
        {"by stream", "stream_time_us", 11, 1}, {"algbw", "algbw_gb_s", 8, 2},
        {"busbw GB/s", "busbw_gb_s", 10, 2},    {"sent x", ".sent_x", 9, 2},
        {"received x", ".received_x", 10, 2}};
    json_t *sorted = json_array();
    bool has_groups = b->n_algorithms > 1 || b->n_wires > 1 || b->all.c->o.peers;
    for (int s = 0; s < b->n_bytes; s++) {
        char size[TEXT_BYTES];
        size_text(size, b->bytes[s]);
        bool begins = has_groups;
        for (json_t *row = NULL; (row = next_row(b->all.rows, row));) {
            if (row_number(row, "bytes") != (double)b->bytes[s] ||
                isnan(row_number(row, "time_us")))
                continue;
            json_object_set_new(row, ".size", json_string(size));
            if (begins) json_object_set_new(row, ".begins", json_true());
            json_array_append(sorted, row);
            begins = false;
        }
    }
    say(b->all.c, "\n");
    SAY_COLUMNS(b->all.c, sorted, columns);
    json_decref(sorted);
}

/* Peers are processes, so they are compared with the fastest of weft's runs in processes. */
static const json_t *fastest_processes(const bench_allreduce *b, int64_t bytes) {
    const json_t *shm = reduce_best(b, bytes, "shm"), *mpi = reduce_best(b, bytes, "mpi");
    if (shm && mpi) return row_number(shm, "time_us") <= row_number(mpi, "time_us") ? shm : mpi;
    return shm ? shm : mpi ? mpi : reduce_best(b, bytes, NULL);
}

static double ratio(const bench_allreduce *b, int64_t bytes, const char *peer_wire) {
    const json_t *ours = fastest_processes(b, bytes), *peer = reduce_best(b, bytes, peer_wire);
    return row_number(peer, "time_us") / row_number(ours, "time_us");
}

static void say_ratios(const bench_allreduce *b, int64_t bytes) {
    const json_t *ours = fastest_processes(b, bytes);
    char size[TEXT_BYTES], text[100] = "";
    double mpi = ratio(b, bytes, "open-mpi"), gloo = ratio(b, bytes, "gloo");
    if (!isnan(mpi)) TEXT_ADD(text, "  %.2f x as fast as Open MPI", mpi);
    if (!isnan(gloo)) TEXT_ADD(text, "%s%.2f x as fast as gloo", *text ? ", " : "  ", gloo);
    if (*text)
        say(b->all.c, "%9s  %s on %s:%s\n", size_text(size, bytes), row_text(ours, "algorithm"),
            row_text(ours, "wire"), text);
}

/* The first row of each wire and algorithm has the reason for all sizes. */
static bool is_left_out(const bench_allreduce *b, const json_t *row) {
    return *row_text(row, ".why") && row_number(row, "bytes") == (double)b->bytes[0];
}

void reduce_say(const bench_allreduce *b) {
    say_rows(b);
    say(b->all.c,
        "\n"
        "time: of a call, the longest of the ranks', median of %lld rounds; by stream: through a "
        "work handle\n"
        "sent, received: in buffers, by the rank that moves the most\n",
        (long long)b->all.c->o.repeat);
    say(b->all.c,
        "memory: copies in all ranks read and write %.1f GB/s; as many bytes move in an all-reduce "
        "past "
        "the caches at a busbw of %.1f GB/s\n",
        b->copy_gb_s, reduce_copy_busbw_gb_s(b));
    say(b->all.c, "every sum was checked\n");
    for (int s = 0; s < b->n_bytes; s++) say_ratios(b, b->bytes[s]);
    for (json_t *row = NULL; (row = next_row(b->all.rows, row));)
        if (is_left_out(b, row))
            say(b->all.c, "left out: %s on %s: %s\n", row_text(row, "algorithm"),
                row_text(row, "wire"), row_text(row, ".why"));
    if (*b->mpi_version || *b->gloo_version)
        say(b->all.c, "beside: %s%s%s\n", b->mpi_version,
            *b->mpi_version && *b->gloo_version ? ", " : "", b->gloo_version);
    if (*b->no_mpi) say(b->all.c, "no figures of Open MPI's: %s\n", b->no_mpi);
    if (*b->no_gloo) say(b->all.c, "no figures of gloo's: %s\n", b->no_gloo);
}

/* ---- JSON ---- */

static json_t *ratios_json(const bench_allreduce *b) {
    json_t *ratios = json_array();
    for (int s = 0; s < b->n_bytes; s++)
        json_array_append_new(ratios,
                              json_pack("{s:I, s:o, s:o}", "bytes", (json_int_t)b->bytes[s],
                                        "open_mpi", json_number(ratio(b, b->bytes[s], "open-mpi")),
                                        "gloo", json_number(ratio(b, b->bytes[s], "gloo"))));
    return ratios;
}

json_t *reduce_report(const bench_allreduce *b) {
    json_t *rows = json_array(), *left_out = json_array();
    for (json_t *row = NULL; (row = next_row(b->all.rows, row));) {
        if (!isnan(row_number(row, "time_us"))) json_array_append_new(rows, row_public(row));
        if (is_left_out(b, row))
            json_array_append_new(
                left_out, json_pack("{s:s, s:s, s:s}", "algorithm", row_text(row, "algorithm"),
                                    "wire", row_text(row, "wire"), "why", row_text(row, ".why")));
    }
    /* Checked: else the run has failed. */
    json_t *report = json_pack(
        "{s:s, s:i, s:i, s:I, s:s, s:o, s:o, s:b, s:o, s:o}", "weft", WEFT_VERSION, "ranks",
        b->n_ranks, "cores", apart_n_cores(), "repeat", (json_int_t)b->all.c->o.repeat, "memory",
        b->all.c->o.memory == MEMORY_SHARED ? "shared" : "plain", "copy_gb_s",
        json_number(b->copy_gb_s), "copy_busbw_gb_s", json_number(reduce_copy_busbw_gb_s(b)),
        "checked", true, "rows", rows, "left_out", left_out);
    effort_report(&b->all.spent, report);
    if (!b->all.c->o.peers) return report;
    json_object_set_new(report, "weft_over_peer", ratios_json(b));
    json_object_set_new(report, "open_mpi_version", json_string(b->mpi_version));
    json_object_set_new(report, "gloo_version", json_string(b->gloo_version));
    if (*b->no_mpi) json_object_set_new(report, "no_open_mpi", json_string(b->no_mpi));
    if (*b->no_gloo) json_object_set_new(report, "no_gloo", json_string(b->no_gloo));
    return report;
}
