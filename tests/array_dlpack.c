/* Arrays go to other libraries and come back by DLPack: the same memory out, any strides in. The
 * structure is written down here once more, from the standard.
 *
 * label: serial
 */
#include "test.h"

typedef struct dl_tensor {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    uint32_t major, minor;
    void *manager_ctx;
    void (*deleter)(struct dl_managed *self);
    uint64_t flags;
    dl_tensor tensor;
} dl_managed;

typedef struct DLManagedTensorVersioned opaque;

static int n_deleted;

static void count_deleted(dl_managed *self) {
    n_deleted++;
}

static const struct {
    wf_dtype dtype;
    int code, bits;
} types[] = {{WF_F32, 2, 32}, {WF_F64, 2, 64}, {WF_BF16, 4, 16},
             {WF_I32, 0, 32}, {WF_I64, 0, 64}, {WF_U8, 1, 8}};
#define N_TYPES (sizeof types / sizeof *types)

TEST(same_memory_goes_out) {
    for (size_t k = 0; k < N_TYPES; k++)
        for (int first = 0; first < 2; first++) {
            unsigned char data[24 * 8];
            wf_array *a;
            opaque *out;
            for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i + k);
            TEST_OK(ctx,
                    wf_array_create(ctx, types[k].dtype, &WF_SHAPE(2, 3, 4), "cpu:1", data, &a));
            TEST_OK(ctx, wf_array_to_dlpack(a, &out));
            const dl_managed *m = (const dl_managed *)out;
            const dl_tensor *t = &m->tensor;
            assert_true(m->major == 1 && m->flags == 1 && t->device_type == 1 && t->lanes == 1);
            assert_true(t->ndim == 3 && t->code == types[k].code && t->bits == types[k].bits);
            assert_true(t->shape[0] == 2 && t->shape[1] == 3 && t->shape[2] == 4);
            assert_true(t->strides[0] == 12 && t->strides[1] == 4 && t->strides[2] == 1);
            assert_memory_equal((char *)t->data + t->byte_offset, data, wf_array_bytes(a));
            if (first) wf_array_destroy(a); /* the tensor keeps its memory */
            assert_memory_equal(t->data, data, 24 * (size_t)types[k].bits / 8);
            m->deleter((dl_managed *)out);
            if (!first) wf_array_destroy(a);
        }
}

/* Two tensors of one array are one memory. */
TEST(shared_by_several) {
    wf_array *a;
    opaque *one, *two;
    TEST_OK(ctx, wf_array_create(ctx, WF_F32, &WF_SCALAR, "cpu", &(float){3}, &a));
    TEST_OK(ctx, wf_array_to_dlpack(a, &one));
    TEST_OK(ctx, wf_array_to_dlpack(a, &two));
    assert_ptr_equal(((dl_managed *)one)->tensor.data, ((dl_managed *)two)->tensor.data);
    ((dl_managed *)one)->deleter((dl_managed *)one);
    wf_array_destroy(a);
    assert_true(*(float *)((dl_managed *)two)->tensor.data == 3);
    ((dl_managed *)two)->deleter((dl_managed *)two);
}

TEST(any_strides_come_in) {
    float data[24], got[6];
    for (int i = 0; i < 24; i++) data[i] = (float)i;
    static const struct {
        int64_t strides[2];
        uint64_t byte_offset;
        float want[6];
    } cases[] = {{{3, 1}, 0, {0, 1, 2, 3, 4, 5}},
                 {{1, 2}, 0, {0, 2, 4, 1, 3, 5}},        /* transposed */
                 {{8, 2}, 4, {1, 3, 5, 9, 11, 13}},      /* a part of more */
                 {{0, 1}, 40, {10, 11, 12, 10, 11, 12}}, /* repeated */
                 {{-3, -1}, 20, {5, 4, 3, 2, 1, 0}}};    /* from the end */
    n_deleted = 0;
    for (int k = -1; k < (int)(sizeof cases / sizeof *cases); k++) {
        int64_t shape[] = {2, 3}, strides[2] = {0, 0};
        dl_managed m = {1, 3, NULL, count_deleted, 0, {data, 1, 0, 2, 2, 32, 1, shape, NULL, 0}};
        scoped_array a;
        if (k >= 0) {
            memcpy(strides, cases[k].strides, sizeof strides);
            m.tensor.strides = strides;
            m.tensor.byte_offset = cases[k].byte_offset;
        }
        TEST_OK(ctx, wf_array_from_dlpack(ctx, (opaque *)&m, "cpu:0", &a));
        TEST_OK(ctx, wf_array_read(a, got, sizeof got));
        assert_memory_equal(got, cases[k < 0 ? 0 : k].want, sizeof got);
    }
    assert_int_equal(n_deleted, 1 + sizeof cases / sizeof *cases);
    /* a scalar, nothing at all, and an array that comes home */
    dl_managed m = {1, 0, NULL, NULL, 0, {data + 7, 1, 0, 0, 2, 32, 1, NULL, NULL, 0}};
    wf_array *a, *back;
    opaque *out;
    TEST_OK(ctx, wf_array_from_dlpack(ctx, (opaque *)&m, "cpu:0", &a));
    TEST_OK(ctx, wf_array_to_dlpack(a, &out));
    wf_array_destroy(a);
    TEST_OK(ctx, wf_array_from_dlpack(ctx, out, "cpu:1", &back));
    TEST_OK(ctx, wf_array_read(back, got, sizeof *got));
    assert_true(*got == 7);
    wf_array_destroy(back);
    int64_t none[] = {0, 5};
    m.tensor = (dl_tensor){NULL, 1, 0, 2, 2, 32, 1, none, NULL, 0};
    TEST_OK(ctx, wf_array_from_dlpack(ctx, (opaque *)&m, "cpu:0", &a));
    assert_int_equal(wf_array_bytes(a), 0);
    wf_array_destroy(a);
}

TEST(refused) {
    float data[6] = {0};
    int64_t shape[8] = {2, 3}, huge[] = {INT64_MAX, INT64_MAX}, below[] = {2, -3};
    const dl_managed good = {
        1, 0, NULL, count_deleted, 0, {data, 1, 0, 2, 2, 32, 1, shape, NULL, 0}};
    wf_array *a;
    n_deleted = 0;
#define REFUSED(change, status, words)                                                             \
    do {                                                                                           \
        dl_managed m = good;                                                                       \
        change;                                                                                    \
        TEST_REFUSED(ctx, wf_array_from_dlpack(ctx, (opaque *)&m, "cpu:0", &a), status, words);    \
    } while (0)
    REFUSED(m.major = 2, WF_UNSUPPORTED, "version 2.0; weft reads 1.x");
    REFUSED(m.tensor.device_type = 2, WF_UNSUPPORTED, "on a device of type 2");
    REFUSED(m.tensor.bits = 16, WF_UNSUPPORTED, "code 2, 16 bits, 1 lanes");
    REFUSED(m.tensor.code = 5, WF_UNSUPPORTED, "code 5, 32 bits");
    REFUSED(m.tensor.lanes = 4, WF_UNSUPPORTED, "4 lanes");
    REFUSED(m.tensor.ndim = 7, WF_INVALID_ARG, "7 dims");
    REFUSED(m.tensor.ndim = -1, WF_INVALID_ARG, "-1 dims");
    REFUSED(m.tensor.shape = NULL, WF_INVALID_ARG, "2 dims");
    REFUSED(m.tensor.shape = huge, WF_INVALID_ARG, "whose dim");
    REFUSED(m.tensor.shape = below, WF_INVALID_ARG, "whose dim 1 is -3");
    dl_managed m = good;
    TEST_REFUSED(ctx, wf_array_from_dlpack(ctx, (opaque *)&m, "gpu", &a), WF_UNSUPPORTED, "gpu");
    assert_int_equal(n_deleted, 0); /* still the caller's */
}
