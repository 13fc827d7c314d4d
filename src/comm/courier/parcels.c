/* Parcels: bytes of arenas, from where they are written to where a task reads them. */
#include "comm/courier/parts.h"

/* So many of a stream's parcels are asked for ahead: more make the mail search long lists. */
#define N_ASKED 16

static bool test(wfi_courier *c, wfi_order *parcel) {
    bool done = false;
    if (c->is_broken) return false;
    wf_status status = c->config.mail.test(c->config.mail.self, &parcel->ticket, &done);
    if (status != WF_OK) wfi_courier_break(c, status);
    return done;
}

/* ---- out ---- */

static bool is_ready(const wfi_courier *c, const wfi_order *parcel) {
    const wfi_control_part *own = &c->config.ranks[c->config.rank].parts[parcel->trainer];
    for (int s = 0; s < WFI_CONTROL_STREAMS; s++)
        if (parcel->need[s] > __atomic_load_n(&own->epochs[s].epoch, __ATOMIC_ACQUIRE))
            return false;
    return true;
}

/* What a stream's tasks need grows from one to the next: if one is not ready, none after it is. */
static bool send_parcels(wfi_courier *c, wfi_order_list *list) {
    bool worked = false;
    for (wfi_order *now = list->first; now && !c->is_broken; now = now->next) {
        if (now->is_under_way) continue;
        if (!is_ready(c, now)) break;
        wf_status status = c->config.mail.send(c->config.mail.self, now->peer, now->tag, now->data,
                                               now->bytes, &now->ticket);
        if (status != WF_OK) wfi_courier_break(c, status);
        now->is_under_way = worked = true;
    }
    return worked;
}

static bool finish_parcels(wfi_courier *c, wfi_order_list *list) {
    bool worked = false;
    while (list->first && list->first->is_under_way && test(c, list->first)) {
        wfi_order *gone = wfi_order_take(list);
        if (gone->stream == WFI_COURIER_HOST)
            __atomic_sub_fetch(&c->n_host_sends, 1, __ATOMIC_RELEASE);
        wfi_courier_reuse(c, gone);
        worked = true;
    }
    return worked;
}

/* ---- in ---- */

static bool ask_for_parcels(wfi_courier *c, wfi_order_list *list) {
    bool worked = false;
    int n = 0;
    for (wfi_order *now = list->first; now && n < N_ASKED && !c->is_broken; now = now->next, n++) {
        if (now->is_under_way) continue;
        wf_status status = c->config.mail.receive(c->config.mail.self, now->peer, now->tag,
                                                  now->data, now->bytes, &now->ticket);
        if (status != WF_OK) wfi_courier_break(c, status);
        now->is_under_way = worked = true;
    }
    return worked;
}

/* Counted in order, whichever comes first: so one number says what is there. */
static bool take_parcels(wfi_courier *c, int stream) {
    wfi_order_list *list = &c->arrivals[stream];
    bool worked = false;
    while (list->first && list->first->is_under_way && test(c, list->first)) {
        wfi_order *here = wfi_order_take(list);
        __atomic_store_n(&c->arrived[stream].epoch, here->epoch, __ATOMIC_SEQ_CST);
        wfi_courier_reuse(c, here);
        worked = true;
    }
    if (list->first)
        __atomic_store_n(&c->awaited_from[stream], list->first->peer, __ATOMIC_RELAXED);
    if (worked) wfi_shared_epoch_wake(&c->arrived[stream]);
    return worked;
}

bool wfi_courier_move_parcels(wfi_courier *c) {
    bool worked = false;
    for (int r = 0; r < c->config.n_ranks; r++)
        for (int s = 0; s < WFI_COURIER_STREAMS; s++) {
            wfi_order_list *list = &c->peers[r].parcels[s];
            if (!list->first) continue;
            worked |= send_parcels(c, list);
            if (!finish_parcels(c, list)) continue;
            worked = true;
            for (int t = 0; t < c->n_parts && s < WFI_CONTROL_STREAMS; t++)
                wfi_courier_show_epochs(c, r, t);
        }
    for (int s = 0; s < WFI_COURIER_STREAMS; s++) {
        worked |= ask_for_parcels(c, &c->arrivals[s]);
        worked |= take_parcels(c, s);
    }
    return worked;
}

bool wfi_courier_has_parcels(const wfi_courier *c) {
    bool has = false;
    for (int s = 0; s < WFI_COURIER_STREAMS && !has; s++) {
        has = c->arrivals[s].first;
        for (int r = 0; r < c->config.n_ranks && !has; r++) has = c->peers[r].parcels[s].first;
    }
    return has;
}

/* What a rank that has left did before is known when our parcels to it are known to be there. */
void wfi_courier_see_off(wfi_courier *c) {
    for (int r = 0; r < c->config.n_ranks; r++) {
        wfi_peer *p = &c->peers[r];
        bool waits = false;
        for (int s = 0; s < WFI_COURIER_STREAMS; s++)
            waits |= p->parcels[s].first && p->parcels[s].first->is_under_way;
        if (!p->has_left || p->is_gone || waits) continue;
        wfi_control_rank *rank = &c->config.ranks[r];
        for (int t = 0; t < c->n_parts; t++) wfi_courier_show_epochs(c, r, t);
        p->is_gone = true;
        __atomic_store_n(&rank->pid, -rank->pid, __ATOMIC_RELEASE); /* as in a shared segment */
        wfi_shared_epoch_wake(&rank->meetings);
        wfi_shared_epoch_wake(&rank->runs);
    }
}

static bool drop(wfi_courier *c, wfi_order_list *list, bool ask) {
    wfi_order_list rest = {NULL, NULL};
    for (wfi_order *now; (now = wfi_order_take(list)) != NULL;) {
        if (now->is_under_way && ask) c->config.mail.cancel(c->config.mail.self, &now->ticket);
        if (now->is_under_way && !test(c, now))
            wfi_order_put(&rest, now);
        else
            wfi_courier_reuse(c, now);
    }
    *list = rest;
    return !rest.first;
}

bool wfi_courier_drop_parcels(wfi_courier *c, bool ask) {
    bool all = true;
    for (int s = 0; s < WFI_COURIER_STREAMS; s++) {
        all &= drop(c, &c->arrivals[s], ask);
        for (int r = 0; r < c->config.n_ranks; r++) all &= drop(c, &c->peers[r].parcels[s], ask);
    }
    return all;
}
