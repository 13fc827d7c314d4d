/* What couriers tell each other: states, epochs of streams, failures, farewells. */
#include "comm/courier/parts.h"

#include <stdio.h>
#include <string.h>

#define MAGIC UINT32_C(0x77656603) /* changes with the notes */

static bool is_other(const wfi_courier *c, int rank) {
    return rank != c->config.rank;
}

static size_t note_bytes(const wfi_courier_note *note) {
    switch ((wfi_courier_note_kind)note->kind) {
    case WFI_NOTE_STATE:
        return offsetof(wfi_courier_note, state) + sizeof note->state;
    case WFI_NOTE_EPOCHS:
        return offsetof(wfi_courier_note, streams) + sizeof note->streams;
    case WFI_NOTE_FAILURE:
        return offsetof(wfi_courier_note, failure) + sizeof note->failure;
    case WFI_NOTE_WORD:
        return offsetof(wfi_courier_note, word.bytes) + note->word.n_bytes;
    case WFI_NOTE_BYE:
        break;
    }
    return offsetof(wfi_courier_note, state);
}

/* ---- telling ---- */

bool wfi_courier_tell_sent(wfi_courier *c, int peer, wfi_courier_sent *sent) {
    wfi_peer *p = &c->peers[peer];
    /* Nobody listens to who has said farewell. */
    bool is_mute = c->is_broken || c->is_leaving;
    sent->note.magic = MAGIC;
    wf_status status = is_mute ? WF_OK
                               : c->config.mail.send(c->config.mail.self, peer, 0, &sent->note,
                                                     note_bytes(&sent->note), &sent->ticket);
    if (status != WF_OK) wfi_courier_break(c, status);
    if (is_mute || status != WF_OK) {
        wfi_free(c->own, sent);
        return false;
    }
    if (p->notes_last)
        p->notes_last->next = sent;
    else
        p->notes_first = sent;
    p->notes_last = sent;
    return true;
}

bool wfi_courier_tell(wfi_courier *c, int peer, const wfi_courier_note *note) {
    wfi_courier_sent *sent = wfi_alloc(c->own, 1, sizeof *sent, "a note");
    if (!sent) return false;
    sent->note = *note;
    return wfi_courier_tell_sent(c, peer, sent);
}

bool wfi_courier_tell_all(wfi_courier *c, const wfi_courier_note *note) {
    bool told = false;
    for (int r = 0; r < c->config.n_ranks; r++)
        if (is_other(c, r)) told |= wfi_courier_tell(c, r, note);
    return told;
}

bool wfi_courier_finish_notes(wfi_courier *c) {
    bool worked = false;
    for (int r = 0; r < c->config.n_ranks; r++)
        for (wfi_peer *p = &c->peers[r]; p->notes_first && !c->is_broken;) {
            bool done = false;
            wf_status status =
                c->config.mail.test(c->config.mail.self, &p->notes_first->ticket, &done);
            if (status != WF_OK) wfi_courier_break(c, status);
            if (!done) break;
            wfi_courier_sent *next = p->notes_first->next;
            wfi_free(c->own, p->notes_first);
            p->notes_first = next;
            if (!next) p->notes_last = NULL;
            worked = true;
        }
    return worked;
}

bool wfi_courier_tell_failure(wfi_courier *c) {
    const wfi_failure_entry *first = wfi_failure_first(c->config.failure);
    bool told = false;
    if (!first) return false;
    wfi_courier_note note = {.kind = WFI_NOTE_FAILURE};
    note.failure.status = first->status;
    snprintf(note.failure.sentence, sizeof note.failure.sentence, "%s", first->sentence);
    for (int r = 0; r < c->config.n_ranks; r++)
        if (is_other(c, r) && !c->peers[r].knows_failure) {
            c->peers[r].knows_failure = true;
            told |= wfi_courier_tell(c, r, &note);
        }
    return told;
}

/* ---- promises ---- */

static uint64_t own_epoch(const wfi_courier *c, int trainer, int stream) {
    const wfi_control_part *own = &c->config.ranks[c->config.rank].parts[trainer];
    return __atomic_load_n(&own->epochs[stream].epoch, __ATOMIC_ACQUIRE);
}

/* Kept in the order of epochs; mostly they come so. */
void wfi_courier_add_promise(wfi_courier *c, wfi_order *order) {
    wfi_peer_part *p = &c->peers[order->peer].parts[order->trainer];
    wfi_order_list *list = &p->promises[order->stream];
    if (order->epoch <= p->told[order->stream]) {
        wfi_courier_reuse(c, order);
        return;
    }
    order->next = NULL;
    if (!list->last || list->last->epoch <= order->epoch) {
        wfi_order_put(list, order);
        return;
    }
    wfi_order **at = &list->first;
    while ((*at)->epoch < order->epoch) at = &(*at)->next;
    order->next = *at;
    *at = order;
}

static bool is_promise_due(wfi_courier *c, wfi_peer_part *p, int trainer) {
    bool due = false;
    for (int s = 0; s < WFI_CONTROL_STREAMS; s++)
        while (p->promises[s].first && p->promises[s].first->epoch <= own_epoch(c, trainer, s)) {
            due |= p->promises[s].first->epoch > p->told[s];
            wfi_courier_reuse(c, wfi_order_take(&p->promises[s]));
        }
    return due;
}

static bool keep_promises_to(wfi_courier *c, int peer, int trainer, bool all_that_is_new) {
    wfi_peer_part *p = &c->peers[peer].parts[trainer];
    bool due = is_promise_due(c, p, trainer);
    for (int s = 0; s < WFI_CONTROL_STREAMS && all_that_is_new; s++)
        due |= own_epoch(c, trainer, s) > p->told[s];
    if (!due) return false;
    wfi_courier_note note = {.kind = WFI_NOTE_EPOCHS};
    note.streams.trainer = (uint64_t)trainer;
    note.streams.generation = c->generation[trainer];
    for (int s = 0; s < WFI_CONTROL_STREAMS; s++)
        note.streams.epochs[s] = p->told[s] = own_epoch(c, trainer, s);
    return wfi_courier_tell(c, peer, &note);
}

bool wfi_courier_keep_promises(wfi_courier *c, bool all_that_is_new) {
    bool told = false;
    for (int r = 0; r < c->config.n_ranks; r++)
        for (int t = 0; t < c->n_parts && is_other(c, r) && !c->peers[r].has_left; t++)
            told |= keep_promises_to(c, r, t, all_that_is_new);
    return told;
}

/* ---- hearing ---- */

#define STORE(to, from) __atomic_store_n(&(to), (from), __ATOMIC_RELAXED)

static void hear_state(wfi_courier *c, int peer, const wfi_courier_state *state) {
    wfi_control_rank *rank = &c->config.ranks[peer];
    for (int k = 0; k < WFI_CONTROL_DOING; k++) STORE(rank->doing[k], state->doing[k]);
    for (int k = 0; k < 2 * WFI_CONTROL_DOING; k++)
        STORE(rank->purpose[k / WFI_CONTROL_DOING][k % WFI_CONTROL_DOING],
              state->purpose[k / WFI_CONTROL_DOING][k % WFI_CONTROL_DOING]);
    for (int k = 0; k < 2 * WFI_CONTROL_NUMBERS; k++)
        STORE(rank->numbers[k / WFI_CONTROL_NUMBERS][k % WFI_CONTROL_NUMBERS],
              state->numbers[k / WFI_CONTROL_NUMBERS][k % WFI_CONTROL_NUMBERS]);
    for (int k = 0; k < 2; k++) {
        STORE(rank->run[k], state->run[k]);
        STORE(rank->stop[k], state->stop[k]);
        STORE(rank->not_finite[k], state->not_finite[k]);
    }
    for (int t = 0; t < WFI_CONTROL_TRAINERS; t++) {
        STORE(rank->parts[t].peak_bytes, state->parts[t].peak_bytes);
        STORE(rank->parts[t].mirror_bytes, state->parts[t].mirror_bytes);
        STORE(rank->parts[t].arena_bytes, state->parts[t].arena_bytes);
    }
    STORE(rank->host, state->host);
    __atomic_store_n(&rank->pid, state->pid, __ATOMIC_RELEASE);
    __atomic_store_n(&rank->runs.epoch, state->n_runs, __ATOMIC_SEQ_CST);
    wfi_shared_epoch_wake(&rank->runs);
    __atomic_store_n(&rank->meetings.epoch, state->n_meetings, __ATOMIC_SEQ_CST);
    wfi_shared_epoch_wake(&rank->meetings);
}

/* A task that is done has read what we sent to it, but until the mail says so, too, the bytes are
 * its own: the epoch is shown afterwards. */
bool wfi_courier_show_epochs(wfi_courier *c, int peer, int trainer) {
    const wfi_peer *p = &c->peers[peer];
    bool shown = false;
    for (int s = 0; s < WFI_CONTROL_STREAMS; s++) {
        wfi_shared_epoch *epoch = &c->config.ranks[peer].parts[trainer].epochs[s];
        uint64_t n = p->parts[trainer].heard[s];
        const wfi_order *oldest = p->parcels[s].first;
        while (oldest && oldest->trainer != trainer) oldest = oldest->next;
        if (oldest && oldest->epoch <= n) n = oldest->epoch - 1;
        if (n <= __atomic_load_n(&epoch->epoch, __ATOMIC_RELAXED)) continue;
        __atomic_store_n(&epoch->epoch, n, __ATOMIC_SEQ_CST);
        wfi_shared_epoch_wake(epoch);
        shown = true;
    }
    return shown;
}

static void hear_epochs(wfi_courier *c, int peer, const wfi_courier_note *note) {
    uint64_t trainer = note->streams.trainer;
    if (trainer >= WFI_CONTROL_TRAINERS || note->streams.generation != c->generation[trainer])
        return; /* of an earlier trainer at that place */
    wfi_peer_part *p = &c->peers[peer].parts[trainer];
    for (int s = 0; s < WFI_CONTROL_STREAMS; s++)
        if (note->streams.epochs[s] > p->heard[s]) p->heard[s] = note->streams.epochs[s];
    wfi_courier_show_epochs(c, peer, (int)trainer);
}

static void hear_note(wfi_courier *c, int peer, const wfi_courier_note *note) {
    wfi_peer *p = &c->peers[peer];
    if (note->magic != MAGIC) {
        char sentence[80];
        snprintf(sentence, sizeof sentence, "rank %d runs another version of weft", peer);
        wfi_failure_set(c->config.failure, WF_REMOTE, sentence);
        return;
    }
    switch ((wfi_courier_note_kind)note->kind) {
    case WFI_NOTE_STATE:
        hear_state(c, peer, &note->state);
        break;
    case WFI_NOTE_EPOCHS:
        hear_epochs(c, peer, note);
        break;
    case WFI_NOTE_FAILURE:
        p->knows_failure = true;
        wfi_failure_hear(c->config.failure, note->failure.status, note->failure.sentence);
        break;
    case WFI_NOTE_WORD:
        wfi_courier_hear_word(c, peer, note);
        break;
    case WFI_NOTE_BYE:
        p->has_left = true;
        break;
    }
}

bool wfi_courier_hear(wfi_courier *c) {
    const wfi_mail *mail = &c->config.mail;
    bool heard = false;
    for (int r = 0; r < c->config.n_ranks; r++) {
        wfi_peer *p = &c->peers[r];
        while (is_other(c, r) && !p->has_left && !c->is_broken) {
            bool done = false;
            wf_status status = WF_OK;
            if (p->listens) status = mail->test(mail->self, &p->ticket, &done);
            if (status == WF_OK && p->listens && !done) break;
            if (status == WF_OK && done) hear_note(c, r, &p->incoming);
            heard |= done;
            p->listens = status == WF_OK && !p->has_left;
            if (p->listens)
                status =
                    mail->receive(mail->self, r, 0, &p->incoming, sizeof p->incoming, &p->ticket);
            if (status != WF_OK) wfi_courier_break(c, status);
        }
    }
    return heard;
}

void wfi_courier_forget_streams(wfi_courier *c, int trainer) {
    c->generation[trainer]++;
    if (trainer >= c->n_parts) c->n_parts = trainer + 1;
    for (int r = 0; r < c->config.n_ranks; r++)
        for (int s = 0; s < WFI_CONTROL_STREAMS && is_other(c, r); s++) {
            wfi_peer_part *p = &c->peers[r].parts[trainer];
            wfi_shared_epoch *epoch = &c->config.ranks[r].parts[trainer].epochs[s];
            p->told[s] = p->heard[s] = 0;
            while (p->promises[s].first) wfi_courier_reuse(c, wfi_order_take(&p->promises[s]));
            __atomic_store_n(&epoch->epoch, 0, __ATOMIC_SEQ_CST);
        }
}

bool wfi_courier_drop_notes(wfi_courier *c, bool ask) {
    const wfi_mail *mail = &c->config.mail;
    bool all = true;
    wfi_courier_finish_notes(c);
    for (int r = 0; r < c->config.n_ranks; r++) {
        wfi_peer *p = &c->peers[r];
        bool done = false;
        if (p->listens && ask) mail->cancel(mail->self, &p->ticket);
        if (p->listens && (mail->test(mail->self, &p->ticket, &done) != WF_OK || done))
            p->listens = false;
        for (wfi_courier_sent *note = p->notes_first; note && ask; note = note->next)
            mail->cancel(mail->self, &note->ticket);
        all &= !p->listens && !p->notes_first;
    }
    return all;
}
