#include "common/scores.h"
#include "common/samples.h"

#include <math.h>

scores scores_none(void) {
    return (scores){.best_loss = NAN, .best_step = -1, .last_step = -1};
}

bool scores_add(scores *s, int64_t step, double loss) {
    bool is_best = loss < s->best_loss || (isfinite(loss) && isnan(s->best_loss));
    s->last_step = step;
    s->n_since = is_best ? 0 : s->n_since + 1;
    if (!is_best) return false;
    s->best_loss = loss;
    s->best_step = step;
    return true;
}

json_t *scores_json(const scores *s) {
    return json_pack("{s:o, s:I, s:I, s:I}", "best_loss", json_number(s->best_loss), "best_step",
                     (json_int_t)s->best_step, "since", (json_int_t)s->n_since, "last_step",
                     (json_int_t)s->last_step);
}

bool scores_read(scores *s, const json_t *json) {
    json_int_t best, since, last;
    if (json_unpack((json_t *)json, "{s:I, s:I, s:I}", "best_step", &best, "since", &since,
                    "last_step", &last) ||
        best < -1 || since < 0 || last < -1)
        return false;
    *s = (scores){json_member(json, "best_loss"), best, since, last};
    return true;
}
