/* Pieces of state: what ranks hold of each tensor makes it up exactly, under every plan; parts are
 * drawn as the whole would be; the hash is that of all tensors by name; and no call on the state
 * takes more than a little memory beside it.
 *
 * label: serial
 */
#include "api/trainer.h"
#include "compile/compile.h"
#include "data_folder.h"
#include "small_models.h"
#include "state/pieces.h"

#include <math.h>
#include <sodium.h>

static wf_recipe make_recipe(int n_lanes) {
    wf_recipe recipe = SMALL_RECIPE(.n_micro = n_lanes, .n_lanes = n_lanes, .batch = 2 * n_lanes,
                                    .n_threads = 1, .optimizer = WF_ADAM);
    return recipe;
}

static wf_program *make_program(wf_context *ctx, const wf_model *model, const char *plan_text,
                                int n_lanes) {
    wf_recipe recipe = make_recipe(n_lanes);
    wf_program *program;
    const char *tp = strstr(plan_text, "tp=");
    recipe.n_slices = tp ? tp[3] - '0' : 1;
    wf_plan *plan = test_plan(ctx, plan_text);
    TEST_OK(ctx, wfi_program_create(ctx, model, &recipe, plan, &wfi_backend_cpu, WF_PROGRAM_TRAIN,
                                    WFI_USE_RUN_AND_KEEP, NULL, &program));
    wf_plan_destroy(plan);
    return program;
}

/* Equal pieces lie side by side, and one of each makes up a part of the tensor. */
static void expect_whole(const char *plan, const wfi_state_list *list,
                         const wfi_state_tensor *tensor) {
    const int64_t *begin = tensor->run_begin;
    int64_t end = 0, n_all = wf_shape_n_elem(&list->graph->values[tensor->value].shape), n;
    int32_t part = 0;
    assert_int_equal(n_all % begin[tensor->n_parts], 0);
    n_all /= begin[tensor->n_parts];
    n = begin[1] * n_all;
    for (int32_t k = 0; k < tensor->n_pieces;) {
        const wfi_state_piece *piece = &tensor->pieces[k];
        if (piece->part != part && end == n) {
            end = 0;
            part++;
            n = (begin[part + 1] - begin[part]) * n_all;
        }
        assert_int_equal(piece->part, part);
        int32_t n_equal = wfi_state_n_equal(tensor, piece);
        if (piece->first != end || piece->n < 1)
            fail_msg("plan '%s': %s: a piece of %lld elements from %lld on, after %lld", plan,
                     tensor->name, (long long)piece->n, (long long)piece->first, (long long)end);
        for (int32_t i = 1; i < n_equal; i++)
            if (piece[i].n != piece->n || piece[i].rank <= piece[i - 1].rank)
                fail_msg("plan '%s': %s: equal pieces are not", plan, tensor->name);
        end += piece->n;
        k += n_equal;
    }
    if (end != n || part != tensor->n_parts - 1)
        fail_msg("plan '%s': %s: pieces have %lld of %lld elements", plan, tensor->name,
                 (long long)end, (long long)n);
}

/* No byte of a rank is in two pieces, and all are in its state. Tensors are aligned, so 64 bytes
 * are one's. */
static void expect_apart(const char *plan, const wf_program *p, const wfi_state_list *list) {
    for (int32_t rank = 0; rank < p->n_ranks; rank++) {
        char *used = calloc(1, p->ranks[rank].arenas->state_bytes / WFI_ALIGN_BYTES + 1);
        assert_non_null(used);
        for (int32_t i = 0; i < list->n_tensors; i++)
            for (int32_t k = 0; k < list->tensors[i].n_pieces; k++) {
                const wfi_state_piece *piece = &list->tensors[i].pieces[k];
                size_t size = wfi_state_element_bytes(list, &list->tensors[i]);
                size_t end = piece->at + (size_t)piece->n * size;
                if (piece->rank != rank) continue;
                assert_true(end <= p->ranks[rank].arenas->state_bytes);
                for (size_t b = piece->at / WFI_ALIGN_BYTES; b * WFI_ALIGN_BYTES < end; b++)
                    if (used[b]++)
                        fail_msg("plan '%s': %s: bytes from %zu on of rank %d are another's, too",
                                 plan, list->tensors[i].name, b * WFI_ALIGN_BYTES, rank);
            }
        free(used);
    }
}

/* What a save copies of each rank's. */
static void expect_save_bytes(const char *plan, const wf_program *p, const wfi_state_list *list) {
    for (int32_t r = 0; r < p->n_ranks; r++) {
        size_t bytes = 0, planned = wf_program_save_bytes(p, r);
        for (int32_t i = 0; i < list->n_tensors; i++) {
            const wfi_state_tensor *t = &list->tensors[i];
            for (int32_t k = 0; k < t->n_pieces; k += wfi_state_n_equal(t, &t->pieces[k]))
                if (t->pieces[k].rank == r) /* weights are in two files */
                    bytes += (t->state < 0 ? 2 : 1) * (size_t)t->pieces[k].n *
                             wfi_state_element_bytes(list, t);
        }
        if (bytes != planned)
            fail_msg("%s, rank %d: %zu bytes are saved, %zu planned", plan, r, bytes, planned);
    }
}

static void check_list(const char *plan, const wf_program *p, wfi_state_scope scope) {
    wfi_state_list list;
    TEST_OK(p->ctx, wfi_state_list_create(p, scope, &list));
    assert_true(list.n_tensors > 0);
    for (int32_t i = 0; i < list.n_tensors; i++) {
        const wfi_state_tensor *tensor = &list.tensors[i];
        bool has_gradient = list.graph->values[tensor->value].kind != WFI_VALUE_BUFFER;
        if (i > 0) assert_true(strcmp(tensor[-1].name, tensor->name) < 0);
        assert_ptr_equal(wfi_state_find(&list, tensor->name), tensor);
        if (scope != WFI_STATE_GRADIENTS || has_gradient) expect_whole(plan, &list, tensor);
    }
    assert_null(wfi_state_find(&list, "nothing"));
    if (scope == WFI_STATE_ALL) {
        expect_apart(plan, p, &list);
        expect_save_bytes(plan, p, &list);
    }
    wfi_state_list_release(&list);
}

#define N_MODELS 5

static wf_model *make_model(wf_context *ctx, int number) {
    static const char *const names[] = {"mlp", "resnet18", "gpt2-tiny"};
    wf_model_config config = WF_MODEL_CONFIG_INIT;
    wf_model *model;
    bool has_tokens = number == 4;
    config.height = config.width = has_tokens ? 224 : 32;
    config.n_classes = has_tokens ? 300 : 10;
    config.n_tokens = has_tokens ? 16 : 0;
    config.small_stem = number == 3;
    if (number < 2)
        model = test_model(ctx, "small", number ? plain_net : small_net, NULL, 0);
    else
        model = test_find_model(ctx, names[number - 2], &config);
    return model;
}

TEST(pieces_make_up_all) {
    static const struct {
        const char *text;
        int n_lanes;
    } plans[] = {{"", 1},
                 {"dp=2", 2},
                 {"dp=3", 3},
                 {"dp=4", 4},
                 {"dp=5", 5},
                 {"dp=6", 6},
                 {"dp=7", 7},
                 {"pp=2", 2},
                 {"pp=3", 3},
                 {"dp=2,pp=2", 4},
                 {"dataparallel=4", 4},
                 {"dp=4,zero=1", 4},
                 {"dp=4,zero=3,shard=2", 4},
                 {"dp=2,zero=3", 2},
                 {"tp=2", 1},
                 {"tp=4,dp=2,zero=3", 2}};
    for (int m = 0; m < N_MODELS; m++) {
        scoped_model model = make_model(ctx, m);
        for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
            if (m == 1 && strstr(plans[k].text, "pp=3")) continue;          /* it has two units */
            if (strstr(plans[k].text, "tp=") && m != 2 && m != 4) continue; /* nothing to cut */
            scoped_program p = make_program(ctx, model, plans[k].text, plans[k].n_lanes);
            for (int scope = 0; scope <= WFI_STATE_GRADIENTS; scope++)
                check_list(plans[k].text, p, (wfi_state_scope)scope);
        }
    }
}

/* Strategies that no plan can ask for yet: parts of what replicas keep. */
TEST(parts_make_up_all) {
    static const wfi_strategy rows[] = {
        {"state", WFI_REPLICATE, WFI_SHARD, WFI_SHARD, WFI_REPLICATE, false},
        {"all", WFI_SHARD, WFI_SHARD, WFI_SHARD, WFI_REPLICATE, false},
        {"gradient", WFI_REPLICATE, WFI_REPLICATE, WFI_SHARD, WFI_AT, false}};
    for (int m = 0; m < N_MODELS; m++) {
        scoped_model model = make_model(ctx, m);
        for (int n = 1; n <= 7; n++) {
            char plan[16];
            snprintf(plan, sizeof plan, "dp=%d", n);
            scoped_program p = make_program(ctx, model, plan, n);
            for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
                int64_t n_parts = 0, n_tensors = 0;
                wfi_state_list list;
                for (int32_t s = 0; s < p->n_stages; s++) p->stages[s].strategy = &rows[k];
                for (int scope = 0; scope <= WFI_STATE_GRADIENTS; scope++)
                    check_list(rows[k].name, p, (wfi_state_scope)scope);
                TEST_OK(ctx, wfi_state_list_create(p, WFI_STATE_ALL, &list));
                for (int32_t i = 0; i < list.n_tensors; i++) {
                    if (list.tensors[i].state < 0) continue;
                    n_parts += list.tensors[i].n_pieces;
                    n_tensors++;
                }
                /* What is larger than a block of elements is divided, and held once. Halves of a
                 * unit may each be whole tensors. */
                assert_true(n == 1 ? n_parts == n_tensors : n == 2 || n_parts > n_tensors);
                assert_true(n_parts < n_tensors + p->graph->n_units * 2 * n);
                wfi_state_list_release(&list);
            }
        }
    }
}

/* ---- what a run begins with ---- */

TEST_CASE(slices_are_drawn_as_the_whole) {
    enum { N = 53 };
    static const wf_init inits[] = {
        {WF_INIT_CONSTANT, 3}, {WF_INIT_UNIFORM, 0.5f}, {WF_INIT_NORMAL, 0.2f}};
    for (int k = 0; k < 4; k++) {
        wfi_value value = {.name = "w", .dtype = k < 3 ? WF_F32 : WF_I64, .init = inits[k % 3]};
        wf_graph g = {.values = &value, .n_values = 1};
        wfi_state_list list = {.graph = &g};
        wfi_state_tensor tensor = {.name = "w", .state = -1};
        size_t size = wf_dtype_bytes(value.dtype);
        char whole[N * 8], slice[N * 8];
        wfi_state_draw(&list, &tensor, 9, 0, N, whole);
        for (int64_t first = 0; first < N; first++)
            for (int64_t n = 0; first + n <= N; n++) {
                wfi_state_draw(&list, &tensor, 9, first, n, slice);
                assert_memory_equal(slice, whole + (size_t)first * size, (size_t)n * size);
            }
        if (k == 1 || k == 2) assert_memory_not_equal(whole, whole + 4, 4);
    }
}

/* PyTorch's defaults, and those that torchvision, GPT-2 and word_language_model set. */
TEST(weights_are_spread_as_in_pytorch) {
    enum { N = 4096 };
    static const struct {
        const char *model, *tensor, *other; /* the latter of the same shape; NULL: none */
        double std;                         /* of normal numbers; 0: they are uniform, ... */
        double limit;                       /* ... between these */
    } cases[] = {
        {"resnet18", "layer4.1.conv2.weight", "layer4.1.conv1.weight", 0.0208333, 0},
        {"resnet18", "layer1.0.conv1.weight", "layer1.0.conv2.weight", 0.0589256, 0},
        {"resnet18", "fc.weight", NULL, 0, 0.0441942},
        {"gpt2-tiny", "wte.weight", NULL, 0.02, 0},
        {"gpt2-tiny", "h.0.attn.c_attn.weight", "h.1.attn.c_attn.weight", 0.02, 0},
        {"gpt2-tiny", "h.1.mlp.c_proj.weight", "h.0.mlp.c_proj.weight", 0.01, 0}, /* 2 layers */
        {"lstm", "rnn.weight_hh_l0", "rnn.weight_ih_l0", 0, 0.125},
        {"lstm", "encoder.weight", "decoder.weight", 0, 0.1},
    };
    static float x[N], other[N];
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        wf_model_config config = WF_MODEL_CONFIG_INIT;
        scoped_model model;
        wfi_state_list list;
        bool is_image = !strcmp(cases[k].model, "resnet18"), is_lstm = cases[k].model[0] == 'l';
        config.n_classes = is_image ? 10 : 300;
        config.n_tokens = is_image ? 0 : 16;
        config.height = config.width = is_image ? 32 : 224;
        if (is_lstm) config.hidden = config.embedding = 64;
        model = test_find_model(ctx, cases[k].model, &config);
        scoped_program p = make_program(ctx, model, "", 1);
        TEST_OK(ctx, wfi_state_list_create(p, WFI_STATE_WEIGHTS, &list));
        wfi_state_draw(&list, wfi_state_find(&list, cases[k].tensor), 5, 0, N, x);
        if (cases[k].other)
            wfi_state_draw(&list, wfi_state_find(&list, cases[k].other), 5, 0, N, other);
        double sum = 0, square = 0, least = 0, most = 0, product = 0;
        for (int i = 0; i < N; i++) {
            sum += x[i];
            square += (double)x[i] * x[i];
            product += (double)x[i] * other[i];
            least = x[i] < least ? x[i] : least;
            most = x[i] > most ? x[i] : most;
        }
        double limit = cases[k].limit, std = limit > 0 ? limit / sqrt(3) : cases[k].std;
        if (!(fabs(sqrt(square / N) / std - 1) < 0.05 && fabs(sum / N) < 0.08 * std))
            fail_msg("%s: mean %g, deviation %g, not %g", cases[k].tensor, sum / N,
                     sqrt(square / N), std);
        bool is_inside = least >= -limit && most <= limit, is_wide = most > 0.99 * limit;
        assert_true(limit > 0 ? is_inside && is_wide && least < -0.99 * limit : most > 3 * std);
        if (cases[k].other && fabs(product / square) > 0.1)
            fail_msg("%s and %s are alike", cases[k].tensor, cases[k].other);
        wfi_state_list_release(&list);
    }
}

/* ---- the hash ---- */

TEST(hashes_in_order_of_names) {
    static const char *const plans[] = {"", "dp=2,pp=2", "dataparallel=2"};
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        wf_recipe recipe = make_recipe(4);
        scoped_trainer t = planned_trainer(ctx, small_net, &recipe, plans[k], NULL, 0);
        crypto_hash_sha256_state hash;
        unsigned char digest[crypto_hash_sha256_BYTES];
        char want[65], got[65];
        wfi_state_list list;
        crypto_hash_sha256_init(&hash);
        TEST_OK(ctx, wfi_state_list_create(wf_trainer_program(t), WFI_STATE_WEIGHTS, &list));
        for (int32_t i = 0; i < list.n_tensors; i++) {
            const char *name = list.tensors[i].name;
            size_t bytes = wfi_value_bytes(list.graph, list.tensors[i].value);
            unsigned char *data = malloc(bytes);
            assert_non_null(data);
            TEST_OK(ctx, wf_trainer_read(t, name, data, bytes));
            crypto_hash_sha256_update(&hash, (const unsigned char *)name, strlen(name) + 1);
            crypto_hash_sha256_update(&hash, data, bytes);
            free(data);
        }
        crypto_hash_sha256_final(&hash, digest);
        sodium_bin2hex(want, sizeof want, digest, sizeof digest);
        TEST_OK(ctx, wf_trainer_weights_sha256(t, got));
        assert_string_equal(got, want);
        wfi_state_list_release(&list);
    }
}

/* ---- memory ---- */

/* Most of its state is one tensor of 12 MiB. */
static void wide_net(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(192));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_loss(wf_cross_entropy(wf_linear(wf_linear(x, "wide", 16384), "fc", 10), y));
}

typedef struct counted {
    size_t live, most;
} counted;

static void *counted_alloc(void *self, size_t bytes) {
    counted *c = self;
    size_t *block = NULL;
    if (posix_memalign((void **)&block, 64, bytes + 64)) return NULL;
    *block = bytes;
    size_t live = __atomic_add_fetch(&c->live, bytes, __ATOMIC_RELAXED);
    if (live > c->most) c->most = live;
    return (char *)block + 64;
}

static void counted_free(void *self, void *block) {
    counted *c = self;
    size_t *begin = (size_t *)(void *)((char *)block - 64);
    __atomic_sub_fetch(&c->live, *begin, __ATOMIC_RELAXED);
    free(begin);
}

TEST_IN_FOLDER(state_is_not_copied_as_a_whole) {
    counted count = {0};
    scoped_context ctx;
    wf_context_config config = WF_CONTEXT_CONFIG_INIT;
    config.allocator = (wf_allocator){counted_alloc, counted_free, &count};
    assert_int_equal(wf_context_create(&config, &ctx), WF_OK);
    wf_recipe recipe = make_recipe(2);
    recipe.kernels = WF_KERNELS_REFERENCE;
    scoped_trainer t = planned_trainer(ctx, wide_net, &recipe, "dp=2", NULL, 0);
    char before[65], after[65];
    for (int k = 0; k < 3; k++) {
        size_t live = count.live;
        count.most = live;
        if (k == 0) TEST_OK(ctx, wf_trainer_weights_sha256(t, before));
        if (k == 1) TEST_OK(ctx, wf_trainer_save_state(t, folder_file(f, "state"), NULL, 0));
        if (k == 2) TEST_OK(ctx, wf_trainer_load_state(t, folder_file(f, "state")));
        if (count.most - live > 2 << 20) fail_msg("call %d takes %zu bytes", k, count.most - live);
        assert_int_equal(count.live, live);
    }
    TEST_OK(ctx, wf_trainer_weights_sha256(t, after));
    assert_string_equal(before, after);
}
