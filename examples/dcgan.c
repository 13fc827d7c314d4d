/* PyTorch's DCGAN tutorial: a generator learns to make pictures which a discriminator cannot tell
 * from real ones. Each is trained by a trainer of its own, whose model has both: the loss of the
 * one goes back through the other, which is frozen there and has the weights of its own trainer.
 *
 *     dcgan [STEPS [DATA [PICTURE]]]    e.g. dcgan 2000 fashion-mnist samples.png
 *
 * DATA is also a folder of pictures, which become 32 x 32, in colour, or "synthetic", which is
 * taken where Fashion-MNIST is not installed. PICTURE shows 64 samples.
 */
#include <math.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

enum { BATCH = 64, NOISE = 64, WIDTH = 32, ACROSS = 8, MOST_PIXELS = 3 * 32 * 32 };

#define RECIPE "batch=64,optimizer=adam,lr=0.0002,beta1=0.5,freeze="
#define TRY(call)                                                                                  \
    if ((status = (call)) != WF_OK) goto end

static const wf_conv2d_shape once = {.stride = 1}, by_two = {.stride = 2, .pad = 1};

/* The tutorial's weights are normal with a deviation of 0.02. */
static wf_tensor weight(wf_graph *g, const char *name, int64_t first, int64_t second, int64_t k) {
    wf_init init = {WF_INIT_NORMAL, 0.02f};
    return wf_parameter(g, name, WF_SHAPE(first, second, k, k), init);
}

static wf_tensor generator(wf_graph *g, const wf_data_description *images) {
    wf_tensor x = wf_input(g, "noise", WF_F32, WF_SHAPE(NOISE, 1, 1));
    wf_scope(g, "generator");
    wf_tensor w = weight(g, "conv1.weight", NOISE, 2 * WIDTH, images->height / 4);
    x = wf_relu(wf_batch_norm(wf_conv_transpose2d_with(x, w, once), "bn1"));
    w = weight(g, "conv2.weight", 2 * WIDTH, WIDTH, 4);
    x = wf_relu(wf_batch_norm(wf_conv_transpose2d_with(x, w, by_two), "bn2"));
    w = weight(g, "conv3.weight", WIDTH, images->channels, 4);
    x = wf_tanh(wf_conv_transpose2d_with(x, w, by_two));
    wf_scope_end(g);
    wf_output(x, "made");
    return wf_next_stage(x, "discriminator");
}

static wf_tensor discriminator(wf_tensor x, const wf_data_description *images) {
    wf_graph *g = x.graph;
    wf_tensor none = {g, -1};
    wf_scope(g, "discriminator");
    wf_tensor w = weight(g, "conv1.weight", WIDTH, images->channels, 4);
    x = wf_leaky_relu(wf_conv2d_with(x, w, none, by_two), 0.2f);
    w = weight(g, "conv2.weight", 2 * WIDTH, WIDTH, 4);
    x = wf_leaky_relu(wf_batch_norm(wf_conv2d_with(x, w, none, by_two), "bn2"), 0.2f);
    x = wf_conv2d_with(x, weight(g, "conv3.weight", 1, 2 * WIDTH, images->height / 4), none, once);
    wf_scope_end(g);
    return x;
}

/* Whether pictures are taken for what they are, "one" real ones or "zero" made ones. */
static wf_tensor loss_of(wf_tensor x, const wf_data_description *images, const char *label) {
    wf_tensor wanted = wf_input(x.graph, label, WF_F32, WF_SHAPE(1, 1, 1));
    return wf_binary_cross_entropy(discriminator(x, images), wanted);
}

static void of_generator(wf_graph *g, const void *images) {
    wf_loss(loss_of(generator(g, images), images, "one"));
}

/* Made pictures and real ones apart, as batch norm takes statistics of each. */
static void of_discriminator(wf_graph *g, const void *config) {
    const wf_data_description *images = config;
    wf_tensor loss = loss_of(generator(g, images), images, "zero");
    wf_tensor real = wf_input(g, "real", WF_F32, images->x_shape);
    loss = wf_cut(loss, "real"); /* weights are used once in a unit */
    wf_loss(wf_add(loss, loss_of(real, images, "one")));
}

static float normal(void) {
    double u = (rand() + 1.0) / (RAND_MAX + 1.0), v = (double)rand() / RAND_MAX;
    return (float)(sqrt(-2 * log(u)) * cos(2 * 3.14159265358979 * v));
}

/* Samples of [channels, height, width] from -1 to 1, side by side. */
static int write_picture(const char *path, const float *made, const wf_data_description *images) {
    static unsigned char pixels[BATCH * MOST_PIXELS];
    int size = (int)images->height, n = (int)images->channels, side = ACROSS * size;
    png_image picture = {.version = PNG_IMAGE_VERSION, .width = side, .height = side};
    picture.format = n == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
    for (int i = 0; i < side * side * n; i++) {
        int c = i % n, x = i / n % side, y = i / n / side, k = y / size * ACROSS + x / size;
        float value = made[((k * n + c) * size + y % size) * size + x % size];
        pixels[i] = (unsigned char)((value + 1) * 127.5f);
    }
    return png_image_write_to_file(&picture, path, 0, pixels, 0, NULL);
}

int main(int argc, char **argv) {
    static float noise[BATCH * NOISE], one[BATCH], zero[BATCH], made[BATCH * MOST_PIXELS];
    int n_steps = argc > 1 ? atoi(argv[1]) : 2000;
    const char *path = argc > 3 ? argv[3] : "samples.png";
    wf_context *ctx;
    wf_data *data = NULL;
    wf_loader *loader = NULL;
    wf_trainer *d = NULL, *g = NULL;
    wf_step_result of_d, of_g;
    wf_status status;
    if (wf_context_create(NULL, &ctx)) return 1;
    wf_data_config set = WF_DATA_CONFIG_INIT;
    set.name = argc > 2 ? argv[2] : "fashion-mnist";
    set.height = set.width = 32;
    set.normalize = WF_NORMALIZE_GIVEN; /* from -1 to 1 */
    for (int c = 0; c < 3; c++) set.mean[c] = set.std[c] = 0.5;
    for (int i = 0; i < BATCH; i++) one[i] = 1;
    status = wf_data_open(ctx, &set, &data);
    if (status && argc <= 2) set.name = "synthetic", status = wf_data_open(ctx, &set, &data);
    if (status) goto end;
    const wf_data_description *images = wf_data_describe(data);
    wf_loader_config order = WF_LOADER_CONFIG_INIT;
    order.batch = BATCH;
    order.drop_last = 1;
    TRY(wf_loader_create(data, &order, &loader));
    TRY(wf_trainer_open(ctx, of_discriminator, images, RECIPE "generator", "", &d));
    TRY(wf_trainer_open(ctx, of_generator, images, RECIPE "discriminator", "", &g));
    for (int step = 1; step <= n_steps; step++) {
        const wf_batch *batch;
        TRY(wf_loader_next(loader, &batch));
        for (int i = 0; i < BATCH * NOISE; i++) noise[i] = normal();
        const wf_feed feeds[] = {{"noise", noise, sizeof noise},
                                 {"one", one, sizeof one},
                                 {"zero", zero, sizeof zero},
                                 {"real", batch->x, batch->x_bytes}};
        TRY(wf_trainer_step(d, feeds, 4, BATCH, &of_d));
        TRY(wf_trainer_copy_weights(g, d, "discriminator"));
        TRY(wf_trainer_step(g, feeds, 2, BATCH, &of_g));
        TRY(wf_trainer_copy_weights(d, g, "generator"));
        if (step % 100 && step < n_steps) continue;
        printf("step %d: losses %.4f (discriminator) %.4f (generator)\n", step, of_d.loss,
               of_g.loss);
        TRY(wf_trainer_forward(g, feeds, 1, BATCH, "made", made, BATCH * images->x_bytes));
        if (!write_picture(path, made, images)) fprintf(stderr, "%s is not written\n", path);
    }

end:
    if (status) fprintf(stderr, "%s\n", wf_context_error(ctx));
    wf_trainer_destroy(g);
    wf_trainer_destroy(d);
    wf_loader_destroy(loader);
    wf_data_close(data);
    wf_context_destroy(ctx);
    return status != WF_OK;
}
