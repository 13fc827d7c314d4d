/* libcudnn.so.9 for tests: convolutions and batch norms of F32 and BF16 images as the real library
 * documents them, in plain C, on the driver's stand-in. What does not fit is refused.
 *
 * Its heuristics offer, best first, an algorithm with TF32's numbers, one whose bits differ each
 * time (of the backward), one with a workspace that is too large, one with a workspace, and one
 * without. */
#include "stand_in_library.h"

enum { SUCCESS = 0, NOT_INITIALIZED = 1001, BAD_PARAM = 2000, NOT_SUPPORTED = 3000, FAILED = 5000 };
enum { FORWARD, DATA, FILTER };
enum { DEFAULT_MATH = 0, TENSOR_OP_MATH = 1, FMA_MATH = 3 };
#define TOO_LARGE ((size_t)3 << 30)

typedef struct handle {
    CUcontext context;
    CUstream stream;
} handle;
typedef struct tensor { /* or filter: [out, in / groups, height, width] */
    int dim[4];
    number_type type;
} tensor;
typedef struct conv {
    int pad[2], stride[2], dilation[2], groups, math;
} conv;
typedef struct choice {
    int algo, status;
    float time;
    size_t memory;
    int determinism, math, reserved[3];
} choice;

#define EXPORT STAND_IN_API

size_t cudnnGetVersion(void);
EXPORT size_t cudnnGetVersion(void) {
    return 91900;
}

const char *cudnnGetErrorString(int status);
EXPORT const char *cudnnGetErrorString(int status) {
    return status == SUCCESS           ? "CUDNN_STATUS_SUCCESS"
           : status == NOT_INITIALIZED ? "CUDNN_STATUS_NOT_INITIALIZED"
           : status == BAD_PARAM       ? "CUDNN_STATUS_BAD_PARAM"
           : status == NOT_SUPPORTED   ? "CUDNN_STATUS_NOT_SUPPORTED"
                                       : "CUDNN_STATUS_EXECUTION_FAILED";
}

int cudnnCreate(handle **out);
EXPORT int cudnnCreate(handle **out) {
    CUcontext context = current_context();
    if (!context) return NOT_INITIALIZED;
    *out = calloc(1, sizeof **out);
    (*out)->context = context;
    return SUCCESS;
}

int cudnnDestroy(handle *h);
EXPORT int cudnnDestroy(handle *h) {
    free(h);
    return SUCCESS;
}

int cudnnSetStream(handle *h, CUstream stream);
EXPORT int cudnnSetStream(handle *h, CUstream stream) {
    h->stream = stream;
    return SUCCESS;
}

/* ---- descriptors ---- */

#define MAKE(function, type)                                                                       \
    int cudnnCreate##function(type **out);                                                         \
    EXPORT int cudnnCreate##function(type **out) {                                                 \
        *out = calloc(1, sizeof **out);                                                            \
        return SUCCESS;                                                                            \
    }                                                                                              \
    int cudnnDestroy##function(type *t);                                                           \
    EXPORT int cudnnDestroy##function(type *t) {                                                   \
        free(t);                                                                                   \
        return SUCCESS;                                                                            \
    }
MAKE(TensorDescriptor, tensor)
MAKE(FilterDescriptor, tensor)
MAKE(ConvolutionDescriptor, conv)

static int set_dims(tensor *t, int format, int type, const int dim[4]) {
    if (format != 0 || (type != 0 && type != 9)) return NOT_SUPPORTED;
    for (int i = 0; i < 4; i++)
        if (dim[i] < 1) return BAD_PARAM;
    memcpy(t->dim, dim, sizeof t->dim);
    t->type = type ? NUMBER_BF16 : NUMBER_F32;
    return SUCCESS;
}

int cudnnSetTensor4dDescriptor(tensor *t, int format, int type, int n, int c, int h, int w);
EXPORT int cudnnSetTensor4dDescriptor(tensor *t, int format, int type, int n, int c, int h, int w) {
    return set_dims(t, format, type, (const int[]){n, c, h, w});
}

int cudnnSetFilter4dDescriptor(tensor *t, int type, int format, int k, int c, int h, int w);
EXPORT int cudnnSetFilter4dDescriptor(tensor *t, int type, int format, int k, int c, int h, int w) {
    return set_dims(t, format, type, (const int[]){k, c, h, w});
}

int cudnnSetConvolution2dDescriptor(conv *c, int pad_h, int pad_w, int down, int across,
                                    int dilation_h, int dilation_w, int mode, int type);
EXPORT int cudnnSetConvolution2dDescriptor(conv *c, int pad_h, int pad_w, int down, int across,
                                           int dilation_h, int dilation_w, int mode, int type) {
    if (pad_h < 0 || pad_w < 0 || down < 1 || across < 1 || dilation_h < 1 || dilation_w < 1)
        return BAD_PARAM;
    if (mode != 1 || type != 0) return NOT_SUPPORTED;
    *c = (conv){{pad_h, pad_w}, {down, across}, {dilation_h, dilation_w}, 1, DEFAULT_MATH};
    return SUCCESS;
}

int cudnnSetConvolutionGroupCount(conv *c, int n);
EXPORT int cudnnSetConvolutionGroupCount(conv *c, int n) {
    c->groups = n;
    return n < 1 ? BAD_PARAM : SUCCESS;
}

int cudnnSetConvolutionMathType(conv *c, int math);
EXPORT int cudnnSetConvolutionMathType(conv *c, int math) {
    c->math = math;
    return math < 0 || math > FMA_MATH ? BAD_PARAM : SUCCESS;
}

/* ---- which algorithms there are ---- */

static bool fit(const tensor *x, const tensor *w, const conv *c, const tensor *y) {
    if (x->dim[0] != y->dim[0] || y->dim[1] != w->dim[0] || x->dim[1] != w->dim[1] * c->groups ||
        w->dim[0] % c->groups || x->type != w->type || x->type != y->type)
        return false;
    for (int i = 0; i < 2; i++) {
        int reach = (w->dim[2 + i] - 1) * c->dilation[i] + 1;
        int room = x->dim[2 + i] + 2 * c->pad[i] - reach;
        if (room < 0 || y->dim[2 + i] != room / c->stride[i] + 1) return false;
    }
    return true;
}

/* By direction, best first. */
static const struct {
    int algo, determinism, math;
} offers[3][5] = {
    {{7, 1, TENSOR_OP_MATH}, {5, 1, FMA_MATH}, {1, 1, FMA_MATH}, {0, 1, DEFAULT_MATH}, {-1, 0, 0}},
    {{5, 1, TENSOR_OP_MATH}, {0, 0, FMA_MATH}, {3, 1, FMA_MATH}, {1, 1, FMA_MATH}, {-1, 0, 0}},
    {{3, 0, FMA_MATH}, {0, 0, FMA_MATH}, {6, 1, FMA_MATH}, {1, 1, FMA_MATH}, {-1, 0, 0}}};

/* The bytes of an algorithm, or SIZE_MAX: there is none such. */
static size_t workspace_of(int direction, int algo, const tensor *w) {
    static const int large[] = {5, 3, 6}, noisy[] = {-1, 0, 0};
    size_t bytes = 256 * (size_t)w->dim[0] * sizeof(float);
    if (algo == large[direction]) return TOO_LARGE;
    if (algo == 1) return bytes;
    return algo == 0 || algo == noisy[direction] ? 0 : SIZE_MAX;
}

static int offer(handle *h, int direction, const tensor *x, const tensor *w, const conv *c,
                 const tensor *y, int wanted, int *n_out, choice *out) {
    if (!h || h->context != current_context()) return NOT_INITIALIZED;
    if (wanted < 1 || !fit(x, w, c, y)) return BAD_PARAM;
    *n_out = 0;
    for (int k = 0; k < wanted && offers[direction][k].algo >= 0; k++) {
        int math = offers[direction][k].math;
        if (math == FMA_MATH && c->math != FMA_MATH) math = TENSOR_OP_MATH; /* where it may be */
        out[(*n_out)++] = (choice){.algo = offers[direction][k].algo,
                                   .determinism = offers[direction][k].determinism,
                                   .math = math};
    }
    return SUCCESS;
}

static int ask(handle *h, int direction, const tensor *x, const tensor *w, const conv *c,
               const tensor *y, int algo, size_t *bytes_out) {
    if (!h || h->context != current_context()) return NOT_INITIALIZED;
    if (!fit(x, w, c, y)) return BAD_PARAM;
    *bytes_out = workspace_of(direction, algo, w);
    return *bytes_out == SIZE_MAX ? NOT_SUPPORTED : SUCCESS;
}

#define ASK(name, direction, first, second, result, x, w, y)                                       \
    int cudnnGetConvolution##name##Algorithm_v7(handle *h, tensor *first, tensor *second, conv *c, \
                                                tensor *result, int wanted, int *n, choice *out);  \
    EXPORT int cudnnGetConvolution##name##Algorithm_v7(handle *h, tensor *first, tensor *second,   \
                                                       conv *c, tensor *result, int wanted,        \
                                                       int *n, choice *out) {                      \
        return offer(h, direction, x, w, c, y, wanted, n, out);                                    \
    }                                                                                              \
    int cudnnGetConvolution##name##WorkspaceSize(handle *h, tensor *first, tensor *second,         \
                                                 conv *c, tensor *result, int algo, size_t *out);  \
    EXPORT int cudnnGetConvolution##name##WorkspaceSize(handle *h, tensor *first, tensor *second,  \
                                                        conv *c, tensor *result, int algo,         \
                                                        size_t *out) {                             \
        return ask(h, direction, x, w, c, y, algo, out);                                           \
    }
ASK(Forward, FORWARD, first, second, result, first, second, result)
ASK(BackwardData, DATA, first, second, result, result, first, second)
ASK(BackwardFilter, FILTER, first, second, result, first, result, second)

/* ---- convolutions ---- */

typedef struct job {
    int direction, algo;
    tensor x, w, y;
    conv c;
    void *image, *weight, *out; /* x, w, y, or their gradients */
    void *workspace;
    size_t workspace_bytes;
    float alpha, beta;
} job;

static size_t at(const tensor *t, int a, int b, int c, int d) {
    return (((size_t)a * (size_t)t->dim[1] + (size_t)b) * (size_t)t->dim[2] + (size_t)c) *
               (size_t)t->dim[3] +
           (size_t)d;
}

/* One product of the sum that an element of the result is: its place in x, w and y. */
typedef struct term {
    int n, out, in, ky, kx, oy, ox;
} term;

static bool place_of(const job *j, const term *t, size_t *x, size_t *w, size_t *y) {
    int iy = t->oy * j->c.stride[0] + t->ky * j->c.dilation[0] - j->c.pad[0];
    int ix = t->ox * j->c.stride[1] + t->kx * j->c.dilation[1] - j->c.pad[1];
    int group = t->out / (j->w.dim[0] / j->c.groups);
    if (iy < 0 || ix < 0 || iy >= j->x.dim[2] || ix >= j->x.dim[3]) return false;
    *x = at(&j->x, t->n, group * j->w.dim[1] + t->in, iy, ix);
    *w = at(&j->w, t->out, t->in, t->ky, t->kx);
    *y = at(&j->y, t->n, t->out, t->oy, t->ox);
    return true;
}

/* What is multiplied: F32 as TF32, but where all has to be in F32 itself. */
static float factor(const job *j, const void *data, size_t at) {
    float x = number_at(data, j->x.type, at);
    return j->c.math == FMA_MATH ? x : rounded(x, 13);
}

/* Every product is added to the double of its result, in one order. */
static void add_all(const job *j, double *sums) {
    term t;
    size_t x, w, y;
    for (t.n = 0; t.n < j->y.dim[0]; t.n++)
        for (t.out = 0; t.out < j->w.dim[0]; t.out++)
            for (t.in = 0; t.in < j->w.dim[1]; t.in++)
                for (t.ky = 0; t.ky < j->w.dim[2]; t.ky++)
                    for (t.kx = 0; t.kx < j->w.dim[3]; t.kx++)
                        for (t.oy = 0; t.oy < j->y.dim[2]; t.oy++)
                            for (t.ox = 0; t.ox < j->y.dim[3]; t.ox++) {
                                if (!place_of(j, &t, &x, &w, &y)) continue;
                                if (j->direction == FORWARD)
                                    sums[y] +=
                                        (double)factor(j, j->image, x) * factor(j, j->weight, w);
                                if (j->direction == DATA)
                                    sums[x] +=
                                        (double)factor(j, j->out, y) * factor(j, j->weight, w);
                                if (j->direction == FILTER)
                                    sums[w] +=
                                        (double)factor(j, j->out, y) * factor(j, j->image, x);
                            }
}

static size_t size_of(const tensor *t) {
    return (size_t)t->dim[0] * (size_t)t->dim[1] * (size_t)t->dim[2] * (size_t)t->dim[3];
}

static wfi_cuda_enum run(void *self) {
    job *j = self;
    take_time(j->algo);
    j->image = STAND_IN_MEMORY(j->image);
    j->weight = STAND_IN_MEMORY(j->weight);
    j->out = STAND_IN_MEMORY(j->out);
    j->workspace = STAND_IN_MEMORY(j->workspace);
    bool is_noisy = j->direction != FORWARD && (j->algo == 0 || j->algo == 3);
    void *to = j->direction == FORWARD ? j->out : j->direction == DATA ? j->image : j->weight;
    size_t n = size_of(j->direction == FORWARD ? &j->y : j->direction == DATA ? &j->x : &j->w);
    double *sums = calloc(n, sizeof *sums);
    /* Whatever lies in the workspace is another kernel's, and not needed any more. */
    if (j->workspace_bytes) memset(j->workspace, 0xff, j->workspace_bytes);
    add_all(j, sums);
    for (size_t i = 0; i < n; i++) {
        float sum = (float)sums[i] * (is_noisy ? 1 + noise() : 1);
        float kept = j->beta != 0 ? j->beta * number_at(to, j->x.type, i) : 0;
        put_number(to, j->x.type, i, j->alpha * sum + kept);
    }
    free(sums);
    return 0;
}

static int start(handle *h, job now) {
    size_t bytes = workspace_of(now.direction, now.algo, &now.w);
    if (!h || h->context != current_context()) return NOT_INITIALIZED;
    if (!fit(&now.x, &now.w, &now.c, &now.y)) return BAD_PARAM;
    bool is_narrow = now.x.type == NUMBER_BF16;
    if (bytes == SIZE_MAX || (is_narrow && now.c.math == FMA_MATH)) return NOT_SUPPORTED;
    if (now.workspace_bytes < bytes) return BAD_PARAM;
    if (bytes && !are_there(now.workspace, NUMBER_F32, bytes / sizeof(float), 256))
        return BAD_PARAM;
    if (!are_there(now.image, now.x.type, size_of(&now.x), 16) ||
        !are_there(now.weight, now.w.type, size_of(&now.w), 16) ||
        !are_there(now.out, now.y.type, size_of(&now.y), 16))
        return BAD_PARAM;
    now.workspace_bytes = bytes;
    return stand_in_queue(h->stream, run, &now, sizeof now) ? FAILED : SUCCESS;
}

#define RUN(name, way, first, second, result, ...)                                                 \
    int cudnnConvolution##name(handle *h, const float *alpha, tensor *first##_dims, void *first,   \
                               tensor *second##_dims, void *second, conv *c, int algo,             \
                               void *workspace, size_t bytes, const float *beta,                   \
                               tensor *result##_dims, void *result);                               \
    EXPORT int cudnnConvolution##name(handle *h, const float *alpha, tensor *first##_dims,         \
                                      void *first, tensor *second##_dims, void *second, conv *c,   \
                                      int algo, void *workspace, size_t bytes, const float *beta,  \
                                      tensor *result##_dims, void *result) {                       \
        return start(h, (job){way, algo, *x_dims, *w_dims, *y_dims, *c, x, w, y, workspace, bytes, \
                              *alpha, *beta});                                                     \
    }
RUN(Forward, FORWARD, x, w, y)
RUN(BackwardData, DATA, w, y, x)
RUN(BackwardFilter, FILTER, x, y, w)

/* ---- biases ---- */

typedef struct bias_job {
    tensor image;
    float *bias, *data;
    float alpha, beta;
    bool sums;
} bias_job;

static wfi_cuda_enum run_bias(void *self) {
    bias_job *j = self;
    j->bias = STAND_IN_MEMORY(j->bias);
    j->data = STAND_IN_MEMORY(j->data);
    int n_channels = j->image.dim[1], n_pixels = j->image.dim[2] * j->image.dim[3];
    for (int c = 0; c < n_channels; c++) {
        double sum = 0;
        for (int n = 0; n < j->image.dim[0]; n++)
            for (int p = 0; p < n_pixels; p++) {
                float *one =
                    &j->data[((size_t)n * (size_t)n_channels + (size_t)c) * (size_t)n_pixels +
                             (size_t)p];
                sum += *one;
                if (!j->sums) *one = j->beta * *one + j->alpha * j->bias[c];
            }
        if (j->sums) j->bias[c] = j->alpha * (float)sum + (j->beta != 0 ? j->beta * j->bias[c] : 0);
    }
    return 0;
}

static int start_bias(handle *h, const tensor *bias, bias_job now) {
    if (!h || h->context != current_context()) return NOT_INITIALIZED;
    if (bias->dim[0] != 1 || bias->dim[2] != 1 || bias->dim[3] != 1 ||
        bias->dim[1] != now.image.dim[1] || !are_there(now.bias, NUMBER_F32, size_of(bias), 4) ||
        !are_there(now.data, NUMBER_F32, size_of(&now.image), 4))
        return BAD_PARAM;
    if (bias->type != NUMBER_F32 || now.image.type != NUMBER_F32) return NOT_SUPPORTED;
    return stand_in_queue(h->stream, run_bias, &now, sizeof now) ? FAILED : SUCCESS;
}

int cudnnAddTensor(handle *h, const float *alpha, tensor *bias_dims, float *bias, const float *beta,
                   tensor *y_dims, float *y);
EXPORT int cudnnAddTensor(handle *h, const float *alpha, tensor *bias_dims, float *bias,
                          const float *beta, tensor *y_dims, float *y) {
    return start_bias(h, bias_dims, (bias_job){*y_dims, bias, y, *alpha, *beta, false});
}

int cudnnConvolutionBackwardBias(handle *h, const float *alpha, tensor *dy_dims, float *dy,
                                 const float *beta, tensor *bias_dims, float *bias);
EXPORT int cudnnConvolutionBackwardBias(handle *h, const float *alpha, tensor *dy_dims, float *dy,
                                        const float *beta, tensor *bias_dims, float *bias) {
    return start_bias(h, bias_dims, (bias_job){*dy_dims, bias, dy, *alpha, *beta, true});
}

/* ---- batch norms ---- */

typedef struct norm_job {
    tensor image;
    const void *x, *dy; /* dy NULL: forward */
    void *out;          /* y, dx */
    float *scale, *shift, *dscale, *dshift, *mean, *inverse;
    double epsilon;
} norm_job;

static float pixel_of(const norm_job *j, const void *data, int c, int i) {
    int n_pixels = j->image.dim[2] * j->image.dim[3];
    return number_at(data, j->image.type,
                     at(&j->image, i / n_pixels, c, 0, 0) + (size_t)(i % n_pixels));
}

/* Sums over a channel, of n: of x, of its square from `mean`, of dy, and of dy (x - mean). */
static double sum_channel(const norm_job *j, int c, int which, double mean, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double x = pixel_of(j, j->x, c, i), dy = which > 1 ? pixel_of(j, j->dy, c, i) : 0;
        sum += which == 0   ? x
               : which == 1 ? (x - mean) * (x - mean)
               : which == 2 ? dy
                            : dy * (x - mean);
    }
    return sum;
}

static void norm_channel(const norm_job *j, int c) {
    int n_pixels = j->image.dim[2] * j->image.dim[3], n = j->image.dim[0] * n_pixels;
    double mean, inverse, sum = 0, sum_z = 0;
    if (!j->dy) {
        j->mean[c] = (float)(sum_channel(j, c, 0, 0, n) / n);
        j->inverse[c] = (float)(1 / sqrt(sum_channel(j, c, 1, j->mean[c], n) / n + j->epsilon));
    }
    mean = j->mean[c];
    inverse = j->inverse[c];
    if (j->dy) {
        j->dshift[c] = (float)(sum = sum_channel(j, c, 2, mean, n));
        j->dscale[c] = (float)(sum_z = sum_channel(j, c, 3, mean, n) * inverse);
    }
    for (int i = 0; i < n; i++) {
        double z = (pixel_of(j, j->x, c, i) - mean) * inverse;
        double dy = j->dy ? pixel_of(j, j->dy, c, i) : 0;
        put_number(j->out, j->image.type,
                   at(&j->image, i / n_pixels, c, 0, 0) + (size_t)(i % n_pixels),
                   j->dy ? (float)(j->scale[c] * inverse * (dy - (sum + z * sum_z) / n))
                         : (float)(z * j->scale[c] + j->shift[c]));
    }
}

static wfi_cuda_enum run_norm(void *self) {
    norm_job *j = self;
    float **of_channels[] = {&j->scale, &j->shift, &j->dscale, &j->dshift, &j->mean, &j->inverse};
    for (size_t i = 0; i < WFI_COUNT(of_channels); i++)
        if (*of_channels[i]) *of_channels[i] = STAND_IN_MEMORY(*of_channels[i]);
    j->x = STAND_IN_MEMORY(j->x);
    if (j->dy) j->dy = STAND_IN_MEMORY(j->dy);
    j->out = STAND_IN_MEMORY(j->out);
    for (int c = 0; c < j->image.dim[1]; c++) norm_channel(j, c);
    return 0;
}

/* Nothing is said of a result that lies over what it is made of. */
static int start_norm(handle *h, int mode, const tensor *second, const tensor *third,
                      const tensor *channels, norm_job now) {
    float *const of_channels[] = {now.scale, now.mean, now.inverse, now.dy ? now.dscale : now.shift,
                                  now.dy ? now.dshift : now.shift};
    if (!h || h->context != current_context()) return NOT_INITIALIZED;
    if (mode != 1 || now.epsilon < 0 || memcmp(&now.image, second, sizeof *second) ||
        memcmp(&now.image, third, sizeof *third) || channels->dim[0] != 1 ||
        channels->dim[1] != now.image.dim[1] || channels->dim[2] != 1 || channels->dim[3] != 1 ||
        channels->type != NUMBER_F32)
        return BAD_PARAM;
    for (size_t i = 0; i < WFI_COUNT(of_channels); i++)
        if (!are_there(of_channels[i], NUMBER_F32, size_of(channels), 4)) return BAD_PARAM;
    const void *const images[] = {now.x, now.out, now.dy ? now.dy : now.x};
    for (size_t i = 0; i < WFI_COUNT(images); i++)
        if (!are_there(images[i], now.image.type, size_of(&now.image), 16)) return BAD_PARAM;
    if (now.out == now.x || now.out == now.dy) return NOT_SUPPORTED;
    return stand_in_queue(h->stream, run_norm, &now, sizeof now) ? FAILED : SUCCESS;
}

int cudnnBatchNormalizationForwardTraining(handle *h, int mode, const float *alpha,
                                           const float *beta, tensor *x_dims, void *x,
                                           tensor *y_dims, void *y, tensor *channels, float *scale,
                                           float *shift, double factor, float *running_mean,
                                           float *running_var, double epsilon, float *mean,
                                           float *inverse);
EXPORT int cudnnBatchNormalizationForwardTraining(handle *h, int mode, const float *alpha,
                                                  const float *beta, tensor *x_dims, void *x,
                                                  tensor *y_dims, void *y, tensor *channels,
                                                  float *scale, float *shift, double factor,
                                                  float *running_mean, float *running_var,
                                                  double epsilon, float *mean, float *inverse) {
    (void)factor;
    if (*alpha != 1 || *beta != 0 || running_mean || running_var) return NOT_SUPPORTED;
    return start_norm(
        h, mode, x_dims, y_dims, channels,
        (norm_job){*x_dims, x, NULL, y, scale, shift, NULL, NULL, mean, inverse, epsilon});
}

int cudnnBatchNormalizationBackward(handle *h, int mode, const float *alpha, const float *beta,
                                    const float *alpha_param, const float *beta_param,
                                    tensor *x_dims, void *x, tensor *dy_dims, void *dy,
                                    tensor *dx_dims, void *dx, tensor *channels, float *scale,
                                    float *dscale, float *dshift, double epsilon, float *mean,
                                    float *inverse);
EXPORT int cudnnBatchNormalizationBackward(handle *h, int mode, const float *alpha,
                                           const float *beta, const float *alpha_param,
                                           const float *beta_param, tensor *x_dims, void *x,
                                           tensor *dy_dims, void *dy, tensor *dx_dims, void *dx,
                                           tensor *channels, float *scale, float *dscale,
                                           float *dshift, double epsilon, float *mean,
                                           float *inverse) {
    if (*alpha != 1 || *beta != 0 || *alpha_param != 1 || *beta_param != 0) return NOT_SUPPORTED;
    if (dx == x || !dy) return BAD_PARAM;
    return start_norm(
        h, mode, dy_dims, dx_dims, channels,
        (norm_job){*x_dims, x, dy, dx, scale, NULL, dscale, dshift, mean, inverse, epsilon});
}
