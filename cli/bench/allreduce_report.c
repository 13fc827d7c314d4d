/* weft bench allreduce: the rows as a table and as JSON. */
#include "bench/allreduce.h"
#include "report.h"

#include <math.h>
#include <string.h>

const char *reduce_size_text(char text[TEXT_BYTES], int64_t bytes) {
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

static double largest(const double *values, int n) {
    double most = values[0];
    for (int i = 1; i < n; i++) most = fmax(most, values[i]);
    return most;
}

bool reduce_has_traffic(const reduce_row *r) {
    return !r->is_peer && strcmp(r->algorithm, "engine") != 0;
}

/* ---- table ---- */

static void say_row(const bench_allreduce *b, const reduce_row *r, bool begins) {
    char size[TEXT_BYTES] = "", stream[TEXT_BYTES] = "-", traffic[TEXT_BYTES] = "";
    if (begins) reduce_size_text(size, r->bytes);
    if (!r->is_peer) snprintf(stream, sizeof stream, "%.1f", samples_median(&r->stream_us, 0));
    if (reduce_has_traffic(r))
        snprintf(traffic, sizeof traffic, "%10.2f%10.2f",
                 largest(r->sent_bytes, b->n_ranks) / (double)r->bytes,
                 largest(r->received_bytes, b->n_ranks) / (double)r->bytes);
    say(b->c, "%9s  %-10s%-9s%12.1f%12s%9.2f%9.2f%s\n", size, r->algorithm, r->wire,
        reduce_time_us(r), stream, reduce_algbw_gb_s(r), reduce_busbw_gb_s(b, r), traffic);
}

static void say_size(const bench_allreduce *b, int64_t bytes) {
    bool begins = true;
    if (b->n_algorithms > 1 || b->n_wires > 1 || b->c->o.peers) say(b->c, "\n");
    for (const reduce_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        if (r->bytes != bytes || !r->time_us.n) continue;
        say_row(b, r, begins);
        begins = false;
    }
}

/* Peers are processes, so what counts beside them is the fastest of ours in processes. */
static const reduce_row *fastest_processes(const bench_allreduce *b, int64_t bytes) {
    const reduce_row *shm = reduce_best(b, bytes, "shm"), *mpi = reduce_best(b, bytes, "mpi");
    if (shm && mpi) return reduce_time_us(shm) <= reduce_time_us(mpi) ? shm : mpi;
    return shm ? shm : mpi ? mpi : reduce_best(b, bytes, NULL);
}

static double ratio(const bench_allreduce *b, int64_t bytes, const char *peer_wire) {
    const reduce_row *ours = fastest_processes(b, bytes), *peer = reduce_best(b, bytes, peer_wire);
    return ours && peer ? reduce_time_us(peer) / reduce_time_us(ours) : NAN;
}

static void say_ratios(const bench_allreduce *b, int64_t bytes) {
    const reduce_row *ours = fastest_processes(b, bytes);
    char size[TEXT_BYTES], text[100] = "";
    double mpi = ratio(b, bytes, "open-mpi"), gloo = ratio(b, bytes, "gloo");
    if (!isnan(mpi)) snprintf(text, sizeof text, "  %.2f x as fast as Open MPI", mpi);
    if (!isnan(gloo))
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%.2f x as fast as gloo",
                 *text ? ", " : "  ", gloo);
    if (*text)
        say(b->c, "%9s  %s on %s:%s\n", reduce_size_text(size, bytes), ours->algorithm, ours->wire,
            text);
}

/* The first row of each wire and algorithm has what is to be told of all sizes. */
static bool is_left_out(const bench_allreduce *b, const reduce_row *r) {
    return *r->why && r->bytes == b->bytes[0];
}

void reduce_say(const bench_allreduce *b) {
    say(b->c, "\n%9s  %-10s%-9s%12s%12s%9s%9s%10s%10s\n%9s  %-10s%-9s%12s%12s%9s%9s%10s%10s\n", "",
        "", "", "time", "by stream", "algbw", "busbw", "sent", "received", "bytes", "algorithm",
        "wire", "us", "us", "GB/s", "GB/s", "x bytes", "x bytes");
    for (int s = 0; s < b->n_bytes; s++) say_size(b, b->bytes[s]);
    say(b->c,
        "\n"
        "time: of a call, the longest of the ranks', median of %d rounds; by stream: through a "
        "work handle\n"
        "sent, received: by the rank that moves the most\n",
        b->n_repeats);
    say(b->c,
        "memory: copies in all ranks read and write %.1f GB/s; as many bytes move in an all-reduce "
        "past "
        "the caches at a busbw of %.1f GB/s\n",
        b->copy_gb_s, reduce_copy_busbw_gb_s(b));
    say(b->c, "every sum was checked\n");
    for (int s = 0; s < b->n_bytes; s++) say_ratios(b, b->bytes[s]);
    for (const reduce_row *r = b->rows; r < b->rows + b->n_rows; r++)
        if (is_left_out(b, r)) say(b->c, "left out: %s on %s: %s\n", r->algorithm, r->wire, r->why);
    if (*b->mpi_version || *b->gloo_version)
        say(b->c, "beside: %s%s%s\n", b->mpi_version,
            *b->mpi_version && *b->gloo_version ? ", " : "", b->gloo_version);
    if (*b->no_mpi) say(b->c, "no figures of Open MPI's: %s\n", b->no_mpi);
    if (*b->no_gloo) say(b->c, "no figures of gloo's: %s\n", b->no_gloo);
}

/* ---- JSON ---- */

static json_t *list_of(const double *values, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, json_integer((json_int_t)values[i]));
    return list;
}

static json_t *row_json(const bench_allreduce *b, const reduce_row *r) {
    bool has = reduce_has_traffic(r);
    return json_pack("{s:I, s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "bytes",
                     (json_int_t)r->bytes, "ranks", b->n_ranks, "algorithm", r->algorithm, "wire",
                     r->wire, "time_us", json_number(reduce_time_us(r)), "stream_time_us",
                     json_number(samples_median(&r->stream_us, 0)), "algbw_gb_s",
                     json_number(reduce_algbw_gb_s(r)), "busbw_gb_s",
                     json_number(reduce_busbw_gb_s(b, r)), "sent_bytes",
                     has ? list_of(r->sent_bytes, b->n_ranks) : json_null(), "received_bytes",
                     has ? list_of(r->received_bytes, b->n_ranks) : json_null(), "rounds_us",
                     samples_json(&r->time_us));
}

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
    for (const reduce_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        if (r->time_us.n) json_array_append_new(rows, row_json(b, r));
        if (is_left_out(b, r))
            json_array_append_new(left_out, json_pack("{s:s, s:s, s:s}", "algorithm", r->algorithm,
                                                      "wire", r->wire, "why", r->why));
    }
    /* Checked: else the run has failed. */
    json_t *report = json_pack(
        "{s:s, s:i, s:i, s:i, s:s, s:o, s:o, s:b, s:o, s:o}", "weft", WEFT_VERSION, "ranks",
        b->n_ranks, "cores", apart_n_cores(), "repeat", b->n_repeats, "memory",
        b->c->o.memory == MEMORY_SHARED ? "shared" : "plain", "copy_gb_s",
        json_number(b->copy_gb_s), "copy_busbw_gb_s", json_number(reduce_copy_busbw_gb_s(b)),
        "checked", true, "rows", rows, "left_out", left_out);
    effort_report(&b->spent, report);
    if (!b->c->o.peers) return report;
    json_object_set_new(report, "weft_over_peer", ratios_json(b));
    json_object_set_new(report, "open_mpi_version", json_string(b->mpi_version));
    json_object_set_new(report, "gloo_version", json_string(b->gloo_version));
    if (*b->no_mpi) json_object_set_new(report, "no_open_mpi", json_string(b->no_mpi));
    if (*b->no_gloo) json_object_set_new(report, "no_gloo", json_string(b->no_gloo));
    return report;
}
