/* Memory in time below the rows: areas on top of each other, of the rank with most memory on its
 * device. */
#include "common/text.h"
#include "draw/sheet.h"

#include <math.h>
#include <string.h>

#define GAP   34 /* above a panel, with its caption */
#define BELOW 10

static double bytes_of(const panel *p, const wf_memory_moment *moment) {
    double bytes = 0;
    for (int k = p->first; k < p->end; k++) bytes += (double)moment->bytes[k];
    return bytes;
}

/* The moment at which the rank has most of these kinds. */
static int find_peak(const panel *p, const wf_timeline *timeline, int rank, double *bytes_out) {
    int at = 0;
    *bytes_out = 0;
    for (int i = 0; i < wf_timeline_n_moments(timeline, rank); i++) {
        wf_memory_moment moment = wf_timeline_moment(timeline, rank, i);
        double bytes = bytes_of(p, &moment);
        if (bytes > *bytes_out) *bytes_out = bytes, at = i;
    }
    return at;
}

void panel_look_at(sheet *s, const wf_timeline *timeline) {
    int rank = draw_find_peak(timeline).rank;
    for (panel *p = s->panels; p < s->panels + 2; p++) {
        double bytes;
        find_peak(p, timeline, rank, &bytes);
        p->peak_bytes = fmax(p->peak_bytes, bytes);
    }
    for (int i = 0; i < wf_timeline_n_moments(timeline, rank); i++) {
        wf_memory_moment moment = wf_timeline_moment(timeline, rank, i);
        for (int k = 0; k < WF_N_MEMORY_KINDS; k++) s->seen_memory[k] |= moment.bytes[k] > 0;
    }
}

int panel_height(const sheet *s, const wf_timeline *timeline) {
    int height = 0;
    for (const panel *p = s->panels; p < s->panels + 2; p++)
        if (p->peak_bytes > 0) height += GAP + p->height;
    return draw_find_peak(timeline).rank < 0 ? 0 : height + BELOW;
}

/* ---- axis ---- */

static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};

/* 0, and two to four round numbers up to the peak, all of one unit. */
static void add_axis(const sheet *s, const panel *p, double bottom) {
    static const double steps[] = {0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500};
    double unit = 1, step = 0, pixels = p->height / p->peak_bytes;
    int u = 0, most = p->height > 100 ? 4 : 2;
    for (; u < 4 && p->peak_bytes >= 1024 * unit; u++) unit *= 1024;
    for (int k = 0; k < 11; k++)
        if (!step && p->peak_bytes / unit <= (most + 0.99) * steps[k]) step = steps[k];
    if (!step) step = 500;
    for (int k = 0; k * step * unit <= p->peak_bytes; k++) {
        double y = bottom - k * step * unit * pixels;
        fprintf(s->tables[TABLE_NAMES].out, "0\t%.1f\t%g%s%s\n", y, k * step, k ? " " : "",
                k ? units[u] : "");
        fprintf(s->script,
                "set arrow from graph 0, first %.1f to graph 1, first %.1f nohead front lw 0.5 "
                "lc rgb '#a0888888';\n",
                y, y);
    }
}

/* ---- areas ---- */

static void add_areas(const sheet *s, const panel *p, const wf_timeline *timeline, int rank,
                      double bottom) {
    int n = wf_timeline_n_moments(timeline, rank);
    double pixels = p->height / p->peak_bytes, step_us = wf_timeline_step_us(timeline);
    for (int i = 0; i < n; i++) {
        wf_memory_moment now = wf_timeline_moment(timeline, rank, i);
        double end_us = i + 1 < n ? wf_timeline_moment(timeline, rank, i + 1).us : step_us;
        /* A little farther, so that no line of the background is between it and the next. */
        double end_ms = fmin(end_us / 1e3 + s->ms_per_pixel, step_us / 1e3), y = bottom;
        for (int k = p->first; k < p->end; k++) {
            double above = y - pixels * (double)now.bytes[k];
            if (now.bytes[k])
                sheet_rectangle(s, TABLE_BOXES, now.us / 1e3, end_ms, above, y,
                                sheet_memory_color((wf_memory_kind)k));
            y = above;
        }
    }
}

static void add_caption(const sheet *s, const panel *p, const wf_timeline *timeline, int rank,
                        double top) {
    char bytes[TEXT_BYTES], role[ROW_NAME_BYTES], number[32];
    double most;
    double ms = wf_timeline_moment(timeline, rank, find_peak(p, timeline, rank, &most)).us / 1e3;
    bool is_device = p == s->panels;
    snprintf(number, sizeof number, "rank %d", rank);
    bool has_role = strcmp(role_of_rank(s->d, rank, role), number) != 0;
    const char *of = is_device                         ? "memory"
                     : !s->seen_memory[WF_MEMORY_DISK] ? "host memory"
                     : !s->seen_memory[WF_MEMORY_HOST] ? "disk"
                                                       : "host memory and disk";
    fprintf(s->script,
            "set label '%s of %s%s%s%s: at most %s, after %.*f ms' at graph 0, first %.1f left "
            "noenhanced;\n",
            of, number, has_role ? " (" : "", has_role ? role : "", has_role ? ")" : "",
            text_of_bytes(bytes, most), draw_decimals(ms), ms, top + GAP / 2.0);
    if (is_device)
        fprintf(s->script,
                "set arrow from first %.6f,%.1f to first %.6f,%.1f nohead front lw 1.5 dt 2 lc rgb "
                "'black';\n",
                ms, top + GAP + p->height * (1 - most / p->peak_bytes) - 5, ms,
                top + GAP + p->height);
}

void panel_add(const sheet *s, const wf_timeline *timeline, double top) {
    int rank = draw_find_peak(timeline).rank;
    for (const panel *p = s->panels; p < s->panels + 2 && rank >= 0; p++) {
        if (!(p->peak_bytes > 0)) continue;
        double bottom = top + GAP + p->height;
        add_areas(s, p, timeline, rank, bottom);
        add_axis(s, p, bottom);
        add_caption(s, p, timeline, rank, top);
        top = bottom;
    }
}
