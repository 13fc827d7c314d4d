#include "data/bpe.h"

#include <string.h>

/* ---- merges ---- */

static wfi_bpe_merge *find_slot(const wfi_bpe *bpe, int32_t left, int32_t right) {
    uint64_t hash = (uint64_t)left * UINT64_C(0x9E3779B97F4A7C15) +
                    (uint64_t)right * UINT64_C(0xBF58476D1CE4E5B9);
    for (size_t s = (hash ^ hash >> 32) & (bpe->n_slots - 1);; s = (s + 1) & (bpe->n_slots - 1)) {
        wfi_bpe_merge *slot = &bpe->merge[s];
        if (!slot->number || (slot->left == left && slot->right == right)) return slot;
    }
}

/* The merge of the two tokens; NULL: there is none. */
static const wfi_bpe_merge *find_merge(const wfi_bpe *bpe, int32_t left, int32_t right) {
    const wfi_bpe_merge *found = bpe->n_slots ? find_slot(bpe, left, right) : NULL;
    return found && found->number ? found : NULL;
}

static wf_status grow_merges(wfi_bpe *bpe) {
    if (bpe->n_slots > 2 * (bpe->n_merges + 1)) return WF_OK;
    wfi_bpe larger = {.n_slots = bpe->n_slots ? 2 * bpe->n_slots : 1024};
    larger.merge = wfi_alloc(bpe->ctx, larger.n_slots, sizeof *larger.merge, "merges");
    if (!larger.merge) return WF_NO_MEMORY;
    for (size_t s = 0; s < bpe->n_slots; s++)
        if (bpe->merge[s].number)
            *find_slot(&larger, bpe->merge[s].left, bpe->merge[s].right) = bpe->merge[s];
    wfi_free(bpe->ctx, bpe->merge);
    bpe->merge = larger.merge;
    bpe->n_slots = larger.n_slots;
    return WF_OK;
}

wf_status wfi_bpe_add_merge(wfi_bpe *bpe, int32_t left, int32_t right, int32_t token,
                            const wfi_bpe_merge **again_out) {
    WF_TRY(grow_merges(bpe));
    wfi_bpe_merge *slot = find_slot(bpe, left, right);
    *again_out = slot->number ? slot : NULL;
    if (!slot->number) *slot = (wfi_bpe_merge){left, right, token, (int32_t)++bpe->n_merges};
    return WF_OK;
}

/* ---- the whole ---- */

void wfi_bpe_destroy(wfi_bpe *bpe) {
    if (!bpe) return;
    wfi_free(bpe->ctx, bpe->token);
    wfi_free(bpe->ctx, bpe->merge);
    wfi_free(bpe->ctx, bpe->added_token);
    wfi_free(bpe->ctx, bpe->whole_token);
    wfi_strings_release(bpe->ctx, &bpe->added);
    wfi_strings_release(bpe->ctx, &bpe->whole);
    wfi_splitter_destroy(bpe->splitter);
    wfi_pool_release(&bpe->pool);
    wfi_free(bpe->ctx, bpe);
}

/* The hash covers the results of merges, not their order in the table. */
void wfi_bpe_hash(const wfi_bpe *bpe, wfi_data_hash *hash) {
    wfi_data_hash_number(hash, bpe->n_tokens);
    for (int32_t i = 0; i < bpe->n_tokens; i++) {
        wfi_data_hash_number(hash, (int64_t)bpe->token[i].n);
        wfi_data_hash_add(hash, bpe->token[i].start, bpe->token[i].n);
    }
    uint64_t sum = 0;
    for (size_t s = 0; s < bpe->n_slots; s++) {
        const wfi_bpe_merge *m = &bpe->merge[s];
        uint64_t one =
            ((uint64_t)m->left << 32 | (uint32_t)m->right) + UINT64_C(0x9E3779B97F4A7C15);
        one = (one ^ one >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
        if (m->number) sum += (one ^ one >> 32) * (uint64_t)m->number;
    }
    wfi_data_hash_number(hash, (int64_t)sum);
    if (bpe->whole.n) wfi_data_hash_number(hash, (int64_t)bpe->whole.n);
    wfi_data_hash_add(hash, wfi_splitter_name(bpe->splitter),
                      strlen(wfi_splitter_name(bpe->splitter)));
    for (size_t i = 0; i < bpe->added.n; i++) wfi_data_hash_number(hash, bpe->added_token[i]);
}

/* ---- encoding ---- */

/* A token of the piece at hand, between its neighbours; -1: there is none, or it is merged. */
typedef struct symbol {
    int32_t token, before, after;
} symbol;

/* A possible merge: the symbol at `at` with the next one. */
typedef struct candidate {
    int32_t number, at;
} candidate;

typedef struct encoder {
    const wfi_bpe *bpe;
    wfi_split *split;
    int32_t *tokens;
    symbol *symbols;
    candidate *heap; /* the one with the lowest number, of these the leftmost, on top */
    size_t n_tokens, token_capacity, symbol_capacity, n_heap, heap_capacity;
} encoder;

static wf_status push_token(encoder *e, int32_t token) {
    WF_TRY(WFI_GROW(e->bpe->ctx, e->tokens, e->n_tokens, e->token_capacity, "tokens"));
    e->tokens[e->n_tokens++] = token;
    return WF_OK;
}

static bool comes_before(candidate a, candidate b) {
    return a.number != b.number ? a.number < b.number : a.at < b.at;
}

static wf_status push_candidate(encoder *e, int32_t at) {
    if (at < 0 || e->symbols[at].after < 0) return WF_OK;
    const wfi_bpe_merge *merge =
        find_merge(e->bpe, e->symbols[at].token, e->symbols[e->symbols[at].after].token);
    if (!merge) return WF_OK;
    WF_TRY(WFI_GROW(e->bpe->ctx, e->heap, e->n_heap, e->heap_capacity, "merges"));
    candidate now = {merge->number, at};
    size_t k = e->n_heap++;
    for (; k && comes_before(now, e->heap[(k - 1) / 2]); k = (k - 1) / 2)
        e->heap[k] = e->heap[(k - 1) / 2];
    e->heap[k] = now;
    return WF_OK;
}

static candidate pop_candidate(encoder *e) {
    candidate top = e->heap[0], last = e->heap[--e->n_heap];
    size_t k = 0;
    for (size_t child; (child = 2 * k + 1) < e->n_heap; k = child) {
        if (child + 1 < e->n_heap && comes_before(e->heap[child + 1], e->heap[child])) child++;
        if (!comes_before(e->heap[child], last)) break;
        e->heap[k] = e->heap[child];
    }
    e->heap[k] = last;
    return top;
}

/* Merges the symbol with the one after it, if the candidate is still true. */
static wf_status merge_at(encoder *e, candidate now) {
    symbol *s = &e->symbols[now.at];
    if (s->token < 0 || s->after < 0) return WF_OK;
    symbol *next = &e->symbols[s->after];
    const wfi_bpe_merge *merge = find_merge(e->bpe, s->token, next->token);
    if (!merge || merge->number != now.number) return WF_OK;
    s->token = merge->token;
    next->token = -1;
    s->after = next->after;
    if (s->after >= 0) e->symbols[s->after].before = now.at;
    WF_TRY(push_candidate(e, s->before));
    return push_candidate(e, now.at);
}

static wf_status encode_piece(encoder *e, const uint8_t *bytes, size_t n) {
    int32_t whole = wfi_strings_find(&e->bpe->whole, (wfi_string){bytes, n});
    if (whole >= 0) return push_token(e, e->bpe->whole_token[whole]);
    while (e->symbol_capacity < n) /* as many at once as the piece has bytes */
        WF_TRY(WFI_GROW(e->bpe->ctx, e->symbols, e->symbol_capacity, e->symbol_capacity, "text"));
    int32_t last = (int32_t)n - 1;
    for (int32_t i = 0; i <= last; i++)
        e->symbols[i] = (symbol){e->bpe->byte_token[bytes[i]], i - 1, i < last ? i + 1 : -1};
    e->n_heap = 0;
    for (int32_t i = 0; i < last; i++) WF_TRY(push_candidate(e, i));
    while (e->n_heap) WF_TRY(merge_at(e, pop_candidate(e)));
    for (int32_t i = 0; i >= 0; i = e->symbols[i].after) WF_TRY(push_token(e, e->symbols[i].token));
    return WF_OK;
}

static wf_status encode_part(encoder *e, const uint8_t *text, size_t n) {
    for (size_t at = 0, length; at < n; at += length) {
        WF_TRY(wfi_split_next(e->split, text, n, at, &length));
        if (length >= INT32_MAX)
            return wfi_fail(e->bpe->ctx, WF_UNSUPPORTED, "a single word of %zu bytes", length);
        WF_TRY(encode_piece(e, text + at, length));
    }
    return WF_OK;
}

/* The longest added token that begins here; its length, 0 if none does. */
static size_t find_added(const wfi_bpe *bpe, const uint8_t *at, size_t n_left, int32_t *token_out) {
    if (!bpe->begins_added[*at]) return 0;
    for (size_t n = n_left < WFI_MAX_ADDED_BYTES ? n_left : WFI_MAX_ADDED_BYTES; n; n--) {
        if (!bpe->has_added_length[n]) continue;
        int32_t number = wfi_strings_find(&bpe->added, (wfi_string){at, n});
        if (number < 0) continue;
        *token_out = bpe->added_token[number];
        return n;
    }
    return 0;
}

static wf_status encode_text(encoder *e, const uint8_t *text, size_t n_bytes) {
    size_t begin = 0;
    for (size_t at = 0; at < n_bytes;) {
        int32_t token;
        size_t n = find_added(e->bpe, text + at, n_bytes - at, &token);
        if (n) {
            WF_TRY(encode_part(e, text + begin, at - begin));
            WF_TRY(push_token(e, token));
            begin = at + n;
        }
        at += n ? n : 1;
    }
    return encode_part(e, text + begin, n_bytes - begin);
}

wf_status wfi_bpe_encode(const wfi_bpe *bpe, const char *name, const uint8_t *text, size_t n_bytes,
                         int32_t **tokens_out, int64_t *n_tokens_out) {
    encoder e = {.bpe = bpe};
    size_t n_good = wf_text_valid(text, n_bytes);
    if (n_good < n_bytes)
        return wfi_fail(bpe->ctx, WF_CORRUPT, "%s is not UTF-8 at byte %zu, and BPE needs UTF-8",
                        name, n_good);
    WF_TRY(wfi_split_begin(bpe->splitter, &e.split));
    wf_status status = encode_text(&e, text, n_bytes);
    wfi_split_end(e.split);
    wfi_free(bpe->ctx, e.symbols);
    wfi_free(bpe->ctx, e.heap);
    if (status != WF_OK) {
        wfi_free(bpe->ctx, e.tokens);
        return status;
    }
    *tokens_out = e.tokens;
    *n_tokens_out = (int64_t)e.n_tokens;
    return WF_OK;
}
