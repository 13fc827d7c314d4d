/* The legend: work in one line or more, then memory. */
#include "draw/sheet.h"

#include <string.h>

#define FIRST_Y 46
#define SWATCH  22
#define SPACE   6
#define CHAR    8.0
#define BETWEEN 26

/* Where the next entry goes. `script` NULL: they are only counted. */
typedef struct pen {
    FILE *script;
    int left, height, n_lines;
    double x;
} pen;

static double y_of(const pen *p) {
    return FIRST_Y + (p->n_lines - 1) * SHEET_LEGEND;
}

static void begin_line(pen *p, const char *name) {
    p->x = p->left;
    p->n_lines++;
    if (p->script && name)
        fprintf(p->script, "set label '%s' at screen %.5f,%.5f right textcolor rgb '#666666';\n",
                name, (double)(p->left - 8) / SHEET_WIDTH, 1 - y_of(p) / p->height);
}

/* Room for an entry of that width, on this line or the next. */
static void make_room(pen *p, double width) {
    if (p->x > p->left && p->x + width > SHEET_WIDTH - SHEET_RIGHT) begin_line(p, NULL);
}

static void rectangle(const pen *p, double begin, double end, double top, double bottom,
                      unsigned color) {
    if (p->script)
        fprintf(p->script,
                "set object rectangle from screen %.5f,%.5f to screen %.5f,%.5f fc rgb '#%06x' fs "
                "solid noborder;\n",
                begin / SHEET_WIDTH, 1 - top / p->height, end / SHEET_WIDTH, 1 - bottom / p->height,
                color);
}

static void add_text(pen *p, const char *text) {
    if (p->script)
        fprintf(p->script, "set label '%s' at screen %.5f,%.5f left noenhanced;\n", text,
                p->x / SHEET_WIDTH, 1 - y_of(p) / p->height);
    p->x += CHAR * (double)strlen(text) + BETWEEN;
}

/* Adds an entry of one colour, or of two: `below` is in the lower part. */
static void add_entry(pen *p, const char *text, unsigned color, unsigned below) {
    make_room(p, SWATCH + SPACE + CHAR * (double)strlen(text));
    double y = y_of(p), middle = below == color ? y + 7 : y + 3;
    rectangle(p, p->x, p->x + SWATCH, y - 7, middle, color);
    if (below != color) rectangle(p, p->x, p->x + SWATCH, middle, y + 7, below);
    p->x += SWATCH + SPACE;
    add_text(p, text);
}

/* Pieces from the first chunk's colour to the last one's. */
static void add_chunks(pen *p, const sheet *s) {
    const char *text = "paler: later stages of a rank";
    int n = s->n_chunks < 4 ? s->n_chunks : 4;
    make_room(p, 2 * SWATCH + SPACE + CHAR * (double)strlen(text));
    for (int k = 0; k < n; k++)
        rectangle(p, p->x + 2.0 * SWATCH * k / n, p->x + 2.0 * SWATCH * (k + 1) / n, y_of(p) - 7,
                  y_of(p) + 7, sheet_color(s, WF_SPAN_FORWARD, k * (s->n_chunks - 1) / (n - 1)));
    p->x += 2 * SWATCH + SPACE;
    add_text(p, text);
}

static void add_numbers(pen *p, const sheet *s) {
    bool is_folded = false;
    char text[80];
    for (int k = 0; k < s->d->n_parts; k++) is_folded |= s->rows[k].is_folded;
    snprintf(text, sizeof text, "number: %s%s%s", s->d->words ? s->d->words->number : "microbatch",
             is_folded ? " of the first rank" : "",
             s->numbers == NUMBER_MOST ? ", where it fits" : "");
    const char *entry = s->numbers != NUMBER_NONE ? text
                        : s->d->words             ? "boxes are too narrow for numbers"
                                      : "boxes are too narrow for numbers of microbatches";
    make_room(p, CHAR * (double)strlen(entry));
    add_text(p, entry);
}

int sheet_legend(const sheet *s, int picture_height) {
    pen p = {.script = s->script, .left = s->left, .height = picture_height};
    bool has_memory = false;
    begin_line(&p, "work");
    for (int k = 0; k < WF_N_SPAN_KINDS; k++) {
        wf_span_kind kind = (wf_span_kind)k;
        unsigned color = sheet_color(s, kind, 0);
        if (s->seen[k])
            add_entry(&p, draw_kind_help(s->d, kind), color,
                      kind == WF_SPAN_BACKWARD_WEIGHT ? sheet_color(s, WF_SPAN_WEIGHT, 0) : color);
    }
    if (s->n_chunks > 1) add_chunks(&p, s);
    add_numbers(&p, s);
    for (int k = 0; k < WF_N_MEMORY_KINDS; k++) {
        unsigned color = sheet_memory_color((wf_memory_kind)k);
        if (!s->seen_memory[k]) continue;
        if (!has_memory) begin_line(&p, "memory");
        has_memory = true;
        add_entry(&p, wf_memory_kind_name((wf_memory_kind)k), color, color);
    }
    return p.n_lines;
}
