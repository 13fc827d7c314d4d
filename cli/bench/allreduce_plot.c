/* weft bench allreduce: bus bandwidth against bytes, a picture a wire; and the traffic of each
 * rank. */
#include "bench/allreduce.h"
#include "draw/chart.h"

#include <math.h>
#include <string.h>

typedef struct look {
    const char *algorithm, *title;
    unsigned color;
    int point;
} look;

/* The looks of weft's algorithms, in their order, then of its peers. */
static look look_at(int i) {
    static const look peers[] = {
        {"mpi", "Open MPI", CHART_GREY, 4}, {"gloo", "gloo (PyTorch)", CHART_ORANGE, 6}, {0}};
    static const unsigned colors[] = {CHART_RED,   CHART_SKY,  CHART_PINK,
                                      CHART_GREEN, CHART_BLUE, CHART_BLACK};
    const char *name = wf_group_algorithm_name(i);
    int n = 0;
    if (name) return (look){name, name, colors[i % 6], 5 + i % 9};
    while (wf_group_algorithm_name(n)) n++;
    return peers[i - n];
}

/* ---- bandwidth ---- */

#define WIRE_FIELDS "algorithm,wire,bytes,ranks,time_us,stream_time_us,algbw_gb_s,busbw_gb_s"

/* False if there are none. */
static bool write_series(const bench_allreduce *b, FILE *csv, const char *algorithm,
                         const char *wire) {
    bool has_rows = false;
    for (json_t *row = NULL; (row = next_row(b->all.rows, row));) {
        if (isnan(row_number(row, "time_us")) || strcmp(row_text(row, "algorithm"), algorithm) ||
            (reduce_is_peer(row) ? !strcmp(wire, "inproc") : strcmp(row_text(row, "wire"), wire)))
            continue;
        chart_row(csv, row, WIRE_FIELDS);
        has_rows = true;
    }
    return has_rows;
}

/* All in binary units, also of sizes that were given in others. */
static void write_tics(const bench_allreduce *b, char *tics, size_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    *tics = 0;
    for (int i = 0; i < b->n_bytes; i++) {
        double size = (double)b->bytes[i];
        int u = 0;
        for (; u < 3 && size >= 1024; u++) size /= 1024;
        text_add(tics, bytes, "%s'%.3g %s' %lld", i ? "," : "", size, units[u],
                 (long long)b->bytes[i]);
    }
}

static exit_status plot_wire(const bench_allreduce *b, const char *wire) {
    char name[40], tics[1500], lines[2500] = "";
    double copy = reduce_copy_busbw_gb_s(b), points = 3;
    chart p;
    snprintf(name, sizeof name, "allreduce_%s", wire);
    exit_status bad =
        chart_begin(&p, b->all.c, name, WIRE_FIELDS, "all-reduce of %d ranks, %s", b->n_ranks,
                    !strcmp(wire, "inproc") ? "threads"
                    : !strcmp(wire, "shm")  ? "processes that share memory"
                                            : "processes over MPI");
    if (bad) return bad;
    for (int k = 0; look_at(k).title; k++) {
        look as = look_at(k);
        if (!write_series(b, p.csv, as.algorithm, wire)) continue;
        TEXT_ADD(lines,
                 "csv skip 1 using (strcol(1) eq '%s' ? $3 : NaN):8 with linespoints lw 3 pt "
                 "%d ps %g lc rgb '#%06x' title \"%s\",",
                 as.algorithm, as.point, points, as.color, as.title);
        points = fmax(points - 0.35, 1); /* a lower line keeps a visible edge */
    }
    write_tics(b, tics, sizeof tics);
    return chart_end(
        &p,
        "set ylabel 'bus bandwidth (GB/s)'; set xlabel 'buffer of a rank'; set logscale x 2;"
        "set logscale y; set xtics (%s) scale 0.5; set xrange [%.9g:%.9g];"
        "stats csv skip 1 using 8 nooutput name 'y'; copy=%.9g;"
        "set yrange [y_min/1.6:(y_max>copy?y_max:copy)*1.6];"
        "set key outside right center vertical maxrows 20 Left reverse samplen 2 spacing 1.3; "
        "set rmargin 28;"
        "plot %s copy with lines dt 2 lw 2.5 lc rgb '#333333' title 'copying as many bytes';",
        tics, (double)b->bytes[0] / 1.4, (double)b->bytes[b->n_bytes - 1] * 1.4, copy, lines);
}

/* ---- traffic ---- */

/* The largest buffer's row of that algorithm, on whichever wire has it first. */
static const json_t *row_of(const bench_allreduce *b, const char *algorithm) {
    const json_t *found = NULL;
    for (json_t *row = NULL; (row = next_row(b->all.rows, row));)
        if (!isnan(row_number(row, "sent_bytes")) &&
            !strcmp(row_text(row, "algorithm"), algorithm) &&
            (!found || (!strcmp(row_text(row, "wire"), row_text(found, "wire")) &&
                        row_number(row, "bytes") > row_number(found, "bytes"))))
            found = row;
    return found;
}

static double moved_by(const json_t *row, const char *list, int rank) {
    const json_t *bytes = json_array_get(json_object_get(row, list), (size_t)rank);
    return json_number_value(bytes) / row_number(row, "bytes");
}

/* For each algorithm a group of bars, one a rank: bytes sent below bytes received. */
static exit_status plot_traffic(const bench_allreduce *b) {
    char tics[600] = "";
    double x = 0, width = b->n_ranks > 8 ? 8.0 / b->n_ranks : 1;
    chart p;
    exit_status bad = chart_begin(&p, b->all.c, "allreduce_traffic",
                                  "algorithm,rank,sent_x_bytes,received_x_bytes,x",
                                  "buffers moved by each of %d ranks in an all-reduce", b->n_ranks);
    if (bad) return bad;
    for (int k = 0; wf_group_algorithm_name(k); k++) {
        const char *name = wf_group_algorithm_name(k);
        const json_t *r = row_of(b, name);
        if (!r) continue;
        TEXT_ADD(tics, "%s'%s' %.9g", *tics ? "," : "", name, x + width * (b->n_ranks - 1) / 2.0);
        for (int rank = 0; rank < b->n_ranks; rank++, x += width)
            fprintf(p.csv, "%s,%d,%.17g,%.17g,%.17g\n", name, rank, moved_by(r, "sent_bytes", rank),
                    moved_by(r, "received_bytes", rank), x);
        x += 1.2;
    }
    bool is_full = b->n_ranks * b->n_algorithms > 48; /* no room for numbers */
    return chart_end(
        &p,
        "set ylabel 'moved by a rank (buffers)'; set xtics (%s) scale 0 font ',20' offset "
        "0,-0.9; set bmargin 5.5; set boxwidth %.9g; set xrange [-1:%.9g];"
        "stats csv skip 1 using ($3+$4) nooutput name 'top'; set yrange [0:top_max*1.12];"
        "hot(x)=(strcol(1) eq 'root' && $3>1 ? $5 : NaN);" /* the hot device stands out */
        "plot csv skip 1 using 5:($3+$4) with boxes lc rgb '#56b4e9' title "
        "'receives','' skip 1 using 5:3 with boxes lc rgb '#0072b2' title 'sends',"
        "'' skip 1 using (hot(0)):($3+$4) with boxes lc rgb '#f2ae8a' notitle,"
        "'' skip 1 using (hot(0)):3 with boxes lc rgb '#d55e00' notitle,"
        "'' skip 1 using 5:($3+$4):(sprintf('%s',$3+$4)) with labels offset 0,0.7 notitle,"
        "'' skip 1 using 5:(0):(sprintf('%s',$2)) with labels offset 0,-0.7 textcolor rgb "
        "'#777777' font ',14' notitle;",
        tics, 0.9 * width, x - 1.2 + 0.4 * width, is_full ? "" : "%.3g", is_full ? "" : "%d");
}

exit_status reduce_plot(const bench_allreduce *b) {
    exit_status bad = EXIT_DONE;
    for (int w = 0; w < b->n_wires && !bad; w++)
        if (reduce_best(b, b->bytes[0], b->wires[w])) bad = plot_wire(b, b->wires[w]);
    return bad ? bad : plot_traffic(b);
}
