/* The latest error sentence of each thread. Private to src/base.
 *
 * Threads that fail at the same time do not write over each other's sentences. Only so
 * many threads are remembered; the one that failed longest ago is forgotten first.
 */
#pragma once

#include "base/base.h"

#include <pthread.h>

#define WFI_N_SENTENCES 16

typedef struct wfi_sentence {
    pthread_t thread;
    uint64_t number; /* counts all failures from 1; 0: nothing here */
    char text[WFI_SENTENCE_BYTES];
} wfi_sentence;

typedef struct wfi_sentences {
    wfi_sentence of[WFI_N_SENTENCES];
    uint64_t n_failures;
} wfi_sentences;

/* The caller holds the lock of the object that contains `s`. */
void wfi_sentences_put(wfi_sentences *s, const char text[WFI_SENTENCE_BYTES]);
/* The calling thread's latest; if it has none, the latest of any thread; or "". */
const char *wfi_sentences_get(const wfi_sentences *s);
