/* Pictures of timelines, and weft draw. */
#include "draw/draw.h"
#include "common/output.h"
#include "common/text.h"
#include "draw/gnuplot.h"
#include "draw/timeline_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SPANS_AT_ONCE 64
#define TEXT_COLUMNS  120 /* of a picture in a file */

/* ---- shared by all kinds of pictures ---- */

double draw_width_us(const drawing *d) {
    double width = 0;
    for (int k = 0; k < d->n_parts; k++)
        width = fmax(width, wf_timeline_step_us(d->parts[k].timeline));
    return width;
}

int draw_decimals(double ms) {
    return ms >= 1000 ? 0 : ms >= 100 ? 1 : ms >= 1 ? 2 : 4;
}

void draw_heading(const drawing *d, int part, char *text, size_t bytes) {
    const wf_trace_part *p = &d->parts[part];
    shares s = shares_of(p->timeline);
    char step[TEXT_BYTES];
    if (d->words)
        snprintf(text, bytes, "%s", d->words->heading);
    else
        snprintf(
            text, bytes,
            "%.60s: %s a step; compute %.1f %%, bubble %.1f %%, transfer %.1f %%, wait %.1f %%",
            p->name, text_of_us(step, wf_timeline_step_us(p->timeline)), s.compute, s.bubble,
            s.transfer, s.wait);
}

static double device_bytes(const wf_memory_moment *moment) {
    double bytes = 0;
    for (int k = 0; k < WF_MEMORY_HOST; k++) bytes += (double)moment->bytes[k];
    return bytes;
}

draw_peak draw_find_peak(const wf_timeline *timeline) {
    draw_peak peak = {-1, 0, 0};
    for (int r = 0; r < wf_timeline_n_ranks(timeline); r++) {
        int n = wf_timeline_like(timeline, r) == r ? wf_timeline_n_moments(timeline, r) : 0;
        for (int i = 0; i < n; i++) {
            wf_memory_moment moment = wf_timeline_moment(timeline, r, i);
            double bytes = device_bytes(&moment);
            if (bytes > peak.bytes) peak = (draw_peak){r, i, bytes};
        }
    }
    return peak;
}

static bool rank_has_kind(const wf_timeline *t, int rank, wf_span_kind kind) {
    wf_span some[SPANS_AT_ONCE];
    int64_t end = wf_timeline_first_span(t, rank + 1);
    for (int64_t i = wf_timeline_first_span(t, rank); i < end; i += SPANS_AT_ONCE) {
        int n = wf_timeline_spans(t, i, SPANS_AT_ONCE, some);
        for (int k = 0; k < n && i + k < end; k++)
            if (some[k].kind == kind) return true;
    }
    return false;
}

/* Ranks that do the same as another one have spans of the same kinds. */
static bool has_kind(const wf_timeline *t, wf_span_kind kind) {
    for (int r = 0; r < wf_timeline_n_ranks(t); r++)
        if (wf_timeline_like(t, r) == r && rank_has_kind(t, r, kind)) return true;
    return false;
}

bool draw_is_split(const drawing *d) {
    for (int k = 0; k < d->n_parts; k++)
        if (has_kind(d->parts[k].timeline, WF_SPAN_WEIGHT)) return true;
    return false;
}

int draw_n_chunks(const drawing *d) {
    int n = 1;
    for (int k = 0; k < d->n_parts; k++) {
        int own = wf_timeline_n_chunks(d->parts[k].timeline);
        if (own > n) n = own;
    }
    return n;
}

const char *draw_kind_help(const drawing *d, wf_span_kind kind) {
    static const char *const help[WF_N_SPAN_KINDS] = {"forward",
                                                      "gradient of inputs",
                                                      "gradient of weights",
                                                      "backward (both gradients)",
                                                      "forward again",
                                                      "update and sums",
                                                      "transfer",
                                                      "over replicas",
                                                      "host"};
    if (kind == WF_SPAN_BACKWARD && !draw_is_split(d)) return "backward";
    if (kind == WF_SPAN_BACKWARD_WEIGHT && d->words && d->words->work) return d->words->work;
    return help[kind];
}

/* ---- files ---- */

static const char *const ends[] = {".svg", ".png", ".txt"};
enum { END_SVG, END_PNG, END_TXT, N_ENDS };

static int end_of(const char *path) {
    size_t n = strlen(path);
    for (int k = 0; k < N_ENDS; k++)
        if (n > 4 && !strcmp(path + n - 4, ends[k])) return k;
    return N_ENDS;
}

exit_status draw_check(const char *path) {
    if (end_of(path) != N_ENDS) return EXIT_DONE;
    return complain(EXIT_USAGE, "--draw %.200s: a picture is a file .svg, .png or .txt", path);
}

exit_status draw_check_picture(const char *path) {
    if (end_of(path) < END_TXT) return EXIT_DONE;
    return complain(EXIT_USAGE, "--draw %.200s: this picture is a file .svg or .png", path);
}

static exit_status draw_as_text(const cli *c, const char *path, const drawing *d) {
    output out;
    TRY(output_begin(&out, c, "the picture", path));
    if (draw_text(out.stream, d, TEXT_COLUMNS, false)) return output_end(&out);
    output_drop(&out);
    return complain(EXIT_FAILED, "no memory left");
}

static exit_status complain_of_gnuplot(const char *path, int status, const char *advice) {
    if (!status) return EXIT_DONE;
    if (status == GNUPLOT_MISSING || status == 127)
        return complain(EXIT_FAILED, "the picture %.200s needs gnuplot, which is not installed%s",
                        path, advice);
    return complain(EXIT_FAILED, "%s, so there is no %.200s", gnuplot_meaning(status), path);
}

static exit_status draw_by_gnuplot(const cli *c, const char *path, const drawing *d) {
    int n_rows, status;
    char *script = draw_script(d, end_of(path) == END_SVG ? PICTURE_SVG : PICTURE_PNG, &n_rows);
    if (n_rows > DRAW_MAX_ROWS)
        return complain(EXIT_USAGE,
                        "--draw %.200s: %d rows of ranks are too many for a picture, which takes "
                        "%d; a file .txt takes all",
                        path, n_rows, DRAW_MAX_ROWS);
    if (!script) return complain(EXIT_FAILED, "no memory left");
    exit_status bad = gnuplot_draw(c, ".", script, path, &status);
    free(script);
    return bad ? bad : complain_of_gnuplot(path, status, "; --draw with a file .txt does without");
}

exit_status draw_by_script(const cli *c, const char *path, int width, int height,
                           const char *script) {
    bool is_svg = end_of(path) == END_SVG;
    char *all;
    int status,
        n = asprintf(&all, "set terminal %s size %d,%d font '%s,12' background rgb 'white'\n%s",
                     is_svg ? "svg" : "pngcairo", width, height, is_svg ? "sans-serif" : "sans",
                     script);
    if (n < 0) return complain(EXIT_FAILED, "no memory left");
    exit_status bad = gnuplot_draw(c, ".", all, path, &status);
    free(all);
    if (!bad) bad = complain_of_gnuplot(path, status, "");
    if (!bad) say(c, "drawn   %s\n", path);
    return bad;
}

exit_status draw_file(const cli *c, const char *path, const drawing *d) {
    exit_status bad =
        end_of(path) == END_TXT ? draw_as_text(c, path, d) : draw_by_gnuplot(c, path, d);
    if (!bad) say(c, "drawn   %s\n", path);
    return bad;
}

/* ---- weft draw ---- */

/* A title ends with the plan; NULL: this one does not, or with another number of ranks. */
static wf_plan *plan_of_title(const cli *c, const char *title, int n_ranks) {
    const char *space = strrchr(title, ' ');
    wf_plan *plan = NULL;
    if (wf_plan_parse(c->ctx, space ? space + 1 : title, &plan) != WF_OK) return NULL;
    if (wf_plan_n_ranks(plan) == n_ranks) return plan;
    wf_plan_destroy(plan);
    return NULL;
}

exit_status run_draw(cli *c) {
    wf_trace *trace;
    const options *o = &c->o;
    if (!o->trace)
        return complain(EXIT_USAGE, "which trace? weft draw TRACE.json, as weft train --trace "
                                    "writes it");
    if (o->draw) TRY(draw_check(o->draw));
    TRY(complain_of(c, wf_trace_read(c->ctx, o->trace, &trace)));
    wf_trace_part parts[WF_TRACE_MAX_PARTS];
    wf_plan *plan = plan_of_title(c, wf_trace_title(trace),
                                  wf_timeline_n_ranks(wf_trace_get_part(trace, 0).timeline));
    drawing d = {wf_trace_title(trace), plan, parts, wf_trace_n_parts(trace), NULL};
    drawing_words words;
    json_t *report = json_pack("{s:s, s:s}", "weft", WEFT_VERSION, "title", d.title);
    for (int k = 0; k < d.n_parts; k++) {
        parts[k] = wf_trace_get_part(trace, k);
        json_object_set_new(report, parts[k].name, timeline_json(parts[k].timeline));
    }
    const char **names = timeline_words(&parts[0], &words);
    if (names && d.n_parts == 1) d.words = &words;
    timeline_say(c, &d);
    exit_status bad = o->draw ? draw_file(c, o->draw, &d) : EXIT_DONE;
    free((void *)names);
    wf_plan_destroy(plan);
    wf_trace_destroy(trace);
    exit_status written = report_write(c, report);
    return bad ? bad : written;
}
