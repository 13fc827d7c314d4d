#include "base/sentence.h"

#include <string.h>

static wfi_sentence *own_or_oldest(wfi_sentences *s) {
    wfi_sentence *oldest = &s->of[0];
    for (int i = 0; i < WFI_N_SENTENCES; i++) {
        wfi_sentence *at = &s->of[i];
        if (at->number && pthread_equal(at->thread, pthread_self())) return at;
        if (at->number < oldest->number) oldest = at;
    }
    return oldest;
}

void wfi_sentences_put(wfi_sentences *s, const char text[WFI_SENTENCE_BYTES]) {
    wfi_sentence *at = own_or_oldest(s);
    at->thread = pthread_self();
    at->number = ++s->n_failures;
    memcpy(at->text, text, WFI_SENTENCE_BYTES);
}

const char *wfi_sentences_get(const wfi_sentences *s) {
    const wfi_sentence *latest = &s->of[0];
    for (int i = 0; i < WFI_N_SENTENCES; i++) {
        const wfi_sentence *at = &s->of[i];
        if (at->number && pthread_equal(at->thread, pthread_self())) return at->text;
        if (at->number > latest->number) latest = at;
    }
    return latest->text;
}
