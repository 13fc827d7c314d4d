/* Words and letters: what the ranks of a group say to each other, and the bytes of its collectives.
 */
#include "comm/courier/parts.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long a failed collective waits for its letters to end, and how often it looks. */
#define RECALL_MS 200
#define LOOK_US   200

/* ---- words ---- */

wf_status wfi_courier_say(wfi_courier *c, uint64_t serial, int to, const void *word, size_t bytes) {
    wfi_courier_sent *sent = wfi_alloc(c->own, 1, sizeof *sent, "a word");
    if (!sent) return wfi_no_memory(c->ctx, sizeof *sent, "a word to another rank");
    sent->note.kind = WFI_NOTE_WORD;
    sent->note.word.serial = serial;
    sent->note.word.n_bytes = bytes;
    memcpy(sent->note.word.bytes, word, bytes);
    wf_status status =
        wfi_courier_give(c, &(wfi_order){.kind = WFI_ORDER_WORD, .peer = to, .word = sent});
    if (status != WF_OK) wfi_free(c->own, sent);
    return status;
}

/* Who is in no such group any more has nothing to hear. */
void wfi_courier_hear_word(wfi_courier *c, int peer, const wfi_courier_note *note) {
    pthread_mutex_lock(&c->groups_lock);
    for (wfi_courier_group *g = c->groups; g; g = g->next)
        if (g->serial == note->word.serial) g->hear(g->self, peer, note->word.bytes);
    pthread_mutex_unlock(&c->groups_lock);
}

/* ---- groups ---- */

wfi_courier_slots *wfi_courier_slots_of(wfi_courier *c) {
    return &c->slots;
}

bool wfi_courier_has_engine(const wfi_courier *c) {
    return c->config.mail.sum != NULL;
}

void wfi_courier_enter(wfi_courier *c, wfi_courier_group *group) {
    pthread_mutex_lock(&c->groups_lock);
    group->next = c->groups;
    c->groups = group;
    pthread_mutex_unlock(&c->groups_lock);
}

void wfi_courier_depart(wfi_courier *c, wfi_courier_group *group) {
    pthread_mutex_lock(&c->groups_lock);
    wfi_courier_group **at = &c->groups;
    while (*at && *at != group) at = &(*at)->next;
    if (*at) *at = group->next;
    pthread_mutex_unlock(&c->groups_lock);
}

void wfi_courier_hurry(wfi_courier *c, bool begins) {
    if (begins)
        __atomic_add_fetch(&c->n_hurried, 1, __ATOMIC_RELAXED);
    else
        __atomic_sub_fetch(&c->n_hurried, 1, __ATOMIC_RELAXED);
}

/* ---- letters ---- */

static void append(wfi_letter **first, wfi_letter **last, wfi_letter *letter) {
    letter->next = NULL;
    if (*first)
        (*last)->next = letter;
    else
        *first = letter;
    *last = letter;
}

void wfi_courier_post(wfi_courier *c, wfi_letter *letters, int32_t n) {
    pthread_mutex_lock(&c->lock);
    for (int32_t i = 0; i < n; i++) append(&c->posted, &c->posted_last, &letters[i]);
    if (n) wfi_courier_wake(c);
    pthread_mutex_unlock(&c->lock);
}

/* The host may forget the letter as soon as it is counted, but not its group, which is told to
 * depart under the lock that we have. */
static void end_letter(wfi_letter *letter) {
    wfi_shared_epoch *done =
        &letter->group
             ->done[letter->kind == WFI_LETTER_SEND ? WFI_LETTERS_SENT : WFI_LETTERS_RECEIVED];
    __atomic_store_n(&letter->is_done, true, __ATOMIC_RELEASE);
    __atomic_add_fetch(&done->epoch, 1, __ATOMIC_SEQ_CST);
    wfi_shared_epoch_wake(done);
}

static wf_status begin(const wfi_mail *mail, wfi_letter *l) {
    switch (l->kind) {
    case WFI_LETTER_SEND:
        return mail->send(mail->self, l->peer, l->tag, l->data, l->bytes, &l->ticket);
    case WFI_LETTER_RECEIVE:
        return mail->receive(mail->self, l->peer, l->tag, l->data, l->bytes, &l->ticket);
    case WFI_LETTER_ENGINE:
        return mail->open_engine(mail->self, l->tag, &l->ticket);
    case WFI_LETTER_SUM:
        return mail->sum(mail->self, l->tag, &l->sum, &l->ticket);
    }
    return WF_BUG;
}

static void dispatch(wfi_courier *c, wfi_letter *letter) {
    wf_status status = begin(&c->config.mail, letter);
    letter->is_under_way = status == WF_OK;
    if (status != WF_OK) wfi_courier_break(c, status);
}

/* Whether nothing of it is under way any more. */
static bool has_ended(wfi_courier *c, wfi_letter *letter, bool is_recalled) {
    const wfi_mail *mail = &c->config.mail;
    bool done = false;
    if (!letter->is_under_way) return is_recalled;
    if (c->is_broken) return false;
    if (is_recalled && !letter->is_asked && letter->kind == WFI_LETTER_RECEIVE)
        mail->cancel(mail->self, &letter->ticket);
    letter->is_asked |= is_recalled;
    wf_status status = mail->test(mail->self, &letter->ticket, &done);
    if (status != WF_OK) wfi_courier_break(c, status);
    return done;
}

static bool take_posted(wfi_courier *c) {
    pthread_mutex_lock(&c->lock);
    wfi_letter *posted = c->posted;
    c->posted = NULL;
    for (wfi_letter *letter = posted, *next; letter; letter = next) {
        next = letter->next;
        append(&c->letters, &c->letters_last, letter);
    }
    pthread_mutex_unlock(&c->lock);
    return posted != NULL;
}

static bool end_letters(wfi_courier *c) {
    wfi_letter *rest = NULL, *last = NULL;
    bool worked = false;
    for (wfi_letter *letter = c->letters, *next; letter; letter = next) {
        bool is_recalled = __atomic_load_n(&letter->group->is_recalled, __ATOMIC_ACQUIRE);
        next = letter->next;
        if (!letter->is_under_way && !is_recalled && !c->is_broken) {
            dispatch(c, letter);
            worked = true;
        }
        if (has_ended(c, letter, is_recalled)) {
            end_letter(letter);
            worked = true;
        } else {
            append(&rest, &last, letter);
        }
    }
    c->letters = rest;
    c->letters_last = last;
    return worked;
}

bool wfi_courier_move_letters(wfi_courier *c) {
    pthread_mutex_lock(&c->groups_lock);
    bool worked = take_posted(c);
    if (c->letters) worked |= end_letters(c);
    pthread_mutex_unlock(&c->groups_lock);
    return worked;
}

/* ---- recalling ---- */

static bool has_letters(wfi_courier *c, const wfi_courier_group *group) {
    bool has = false;
    pthread_mutex_lock(&c->groups_lock);
    pthread_mutex_lock(&c->lock);
    for (const wfi_letter *l = c->posted; l; l = l->next) has |= l->group == group;
    pthread_mutex_unlock(&c->lock);
    for (const wfi_letter *l = c->letters; l; l = l->next) has |= l->group == group;
    pthread_mutex_unlock(&c->groups_lock);
    return has;
}

/* Keeps a copy of what does not end, and takes the letter off the list. */
static void lose(wfi_courier *c, wfi_letter **at) {
    wfi_letter *letter = *at, *copy = NULL;
    *at = letter->next;
    if (letter->is_under_way) copy = wfi_alloc(c->own, 1, sizeof *copy, "a letter");
    if (!copy) return;
    *copy = *letter;
    copy->next = c->lost;
    c->lost = copy;
}

static void lose_all(wfi_courier *c, const wfi_courier_group *group) {
    pthread_mutex_lock(&c->groups_lock);
    (void)take_posted(c);
    for (wfi_letter **at = &c->letters; *at;)
        if ((*at)->group == group)
            lose(c, at);
        else
            at = &(*at)->next;
    c->letters_last = c->letters;
    while (c->letters_last && c->letters_last->next) c->letters_last = c->letters_last->next;
    pthread_mutex_unlock(&c->groups_lock);
}

bool wfi_courier_recall(wfi_courier *c, wfi_courier_group *group) {
    struct timespec time = {0, LOOK_US * 1000};
    int64_t end_ms = wfi_now_ms() + RECALL_MS;
    __atomic_store_n(&group->is_recalled, true, __ATOMIC_RELEASE);
    while (has_letters(c, group)) {
        if (wfi_now_ms() > end_ms) {
            lose_all(c, group);
            return false;
        }
        nanosleep(&time, NULL);
    }
    return true;
}

void wfi_courier_keep(wfi_courier *c, void *block) {
    wfi_courier_kept *kept = wfi_alloc(c->own, 1, sizeof *kept, "what is under way");
    if (!kept) return;
    kept->block = block;
    pthread_mutex_lock(&c->groups_lock);
    kept->next = c->kept;
    c->kept = kept;
    pthread_mutex_unlock(&c->groups_lock);
}

void wfi_courier_free_kept(wfi_courier *c) {
    for (wfi_courier_kept *kept = c->kept, *next; kept; kept = next) {
        next = kept->next;
        free(kept->block);
        wfi_free(c->own, kept);
    }
}

bool wfi_courier_drop_letters(wfi_courier *c, bool ask) {
    const wfi_mail *mail = &c->config.mail;
    wfi_letter *rest = NULL, *next;
    for (wfi_letter *letter = c->lost; letter; letter = next) {
        bool done = false;
        next = letter->next;
        if (ask && letter->peer >= 0) mail->cancel(mail->self, &letter->ticket);
        if (!c->is_broken && mail->test(mail->self, &letter->ticket, &done) == WF_OK && done) {
            wfi_free(c->own, letter);
            continue;
        }
        letter->next = rest;
        rest = letter;
    }
    c->lost = rest;
    return !rest;
}
