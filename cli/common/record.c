/* Numbers of the steps of a run. */
#include "common/record.h"

bool record_add(record *r, double loss, double ms, double items) {
    if (r->ms.n) r->items += items, r->seconds += ms / 1e3;
    return samples_add(&r->loss, loss) && samples_add(&r->ms, ms);
}

void record_release(record *r) {
    samples_release(&r->loss);
    samples_release(&r->ms);
}
