/* Metadata of images in saved weights: their size, the normalization of pixels, and the classes.
 */
#include "job/about.h"

#include <math.h>
#include <string.h>

/* Weights from elsewhere do not say how many classes they tell apart, but their last layer's shape
 * does, of ResNets. */
static int64_t count_classes(const cli *c, const char *path) {
    wf_safetensors *file;
    if (wf_safetensors_open(c->ctx, path, &file) != WF_OK) return 0; /* the loader reports why */
    int k = wf_safetensors_find(file, "fc.bias");
    const wf_safetensors_entry *bias = k >= 0 ? wf_safetensors_get(file, k) : NULL;
    int64_t n = bias && bias->n_dims == 1 ? bias->dim[0] : 0;
    wf_safetensors_close(file);
    return n;
}

static int64_t size_of(const saved_model *a, const char *key) {
    json_int_t n = json_integer_value(json_object_get(a->all, key));
    return n > 0 ? n : 0;
}

/* One finite number a channel. */
static bool read_numbers(const saved_model *a, const char *key, double numbers_out[3]) {
    const json_t *list = json_object_get(a->all, key);
    size_t n = json_array_size(list);
    if (!n || n > 3 || n != (size_t)a->images.channels) return false;
    for (size_t k = 0; k < n; k++) {
        numbers_out[k] = json_number_value(json_array_get(list, k));
        if (!json_is_number(json_array_get(list, k)) || !isfinite(numbers_out[k])) return false;
    }
    return true;
}

static bool are_names(const json_t *list, int64_t n) {
    if (json_array_size(list) != (size_t)n || !n) return false;
    for (size_t k = 0; k < (size_t)n; k++)
        if (!json_is_string(json_array_get(list, k))) return false;
    return true;
}

exit_status about_take_images(cli *c, saved_model *a) {
    saved_images *images = &a->images;
    const json_t *names = json_object_get(a->all, "class_names");
    *images = (saved_images){.channels = size_of(a, "channels"),
                             .height = size_of(a, "height"),
                             .width = size_of(a, "width"),
                             .n_classes = size_of(a, "classes"),
                             .std = {1, 1, 1}};
    if (!images->n_classes && c->command == FOR_PREDICT)
        images->n_classes = count_classes(c, a->path);
    if (are_names(names, images->n_classes)) images->class_names = names;
    images->is_normalized =
        read_numbers(a, "mean", images->mean) && read_numbers(a, "std", images->std);
    exit_status bad = EXIT_DONE;
    if (!c->o.other_data && !option_no_use(&c->o, OPT_image))
        bad = about_take(c, a, OPT_image, "height");
    if (!bad && !c->o.other_data && !option_no_use(&c->o, OPT_resize))
        bad = about_take(c, a, OPT_resize, "resized");
    if (json_is_string(json_object_get(a->all, "stem")) && c->o.stem == STEM_AUTO)
        c->o.stem = strcmp(json_string_value(json_object_get(a->all, "stem")), "small")
                        ? STEM_IMAGENET
                        : STEM_SMALL;
    return bad;
}

void about_prepare(const cli *c, const saved_model *a, wf_data_config *config) {
    const saved_images *images = &a->images;
    if (c->o.other_data) return;
    if (images->channels == 1) config->channels = 1;
    /* Sets of one size are not cut. */
    if (!config->resized && images->height == config->height) config->resized = images->height;
    if (!images->is_normalized || c->o.normalize == WF_NORMALIZE_NONE) return;
    config->normalize = WF_NORMALIZE_GIVEN;
    memcpy(config->mean, a->images.mean, sizeof config->mean);
    memcpy(config->std, a->images.std, sizeof config->std);
}

/* Whether --init-skip names the classifier, or a part of it: then its classes are new. */
static bool has_new_classes(const cli *c) {
    const char *layer = wf_model_registry_find(c->o.model)->classifier, *word = c->o.init_skip.text;
    size_t n = strlen(layer);
    for (; *word; word += strcspn(word, "+"), word += *word == '+')
        if (!strncmp(word, layer, n) && strchr("+.", word[n])) return true;
    return false;
}

#define GO_ON "--other-data accepts it"

static exit_status check_names(const cli *c, const saved_model *a, const wf_data *data) {
    const saved_images *images = &a->images;
    for (int64_t k = 0; images->class_names && k < images->n_classes; k++) {
        const char *here = wf_data_class_name(data, k);
        const char *there = json_string_value(json_array_get(images->class_names, (size_t)k));
        if (here && strcmp(here, there))
            return complain(EXIT_USAGE,
                            "class %lld is '%.60s' in %s, but '%.60s' to the model in %s: its "
                            "numbers would have another meaning; " GO_ON,
                            (long long)k, here, c->o.data, there, a->path);
    }
    return EXIT_DONE;
}

exit_status about_check_images(const cli *c, const saved_model *a, const wf_data *data) {
    const saved_images *images = &a->images;
    const wf_data_description *here = wf_data_describe(data);
    if (!a->path || c->o.other_data) return EXIT_DONE;
    bool is_sized = images->channels && images->height && images->width;
    if (is_sized && (images->channels != here->channels || images->height != here->height ||
                     images->width != here->width))
        return complain(EXIT_USAGE,
                        "the model in %s was trained on images of %lld x %lld x %lld, and those of "
                        "%s are %lld x %lld x %lld; " GO_ON,
                        a->path, (long long)images->channels, (long long)images->height,
                        (long long)images->width, c->o.data, (long long)here->channels,
                        (long long)here->height, (long long)here->width);
    for (int64_t k = 0; images->is_normalized && k < here->channels; k++)
        if (here->mean[k] != images->mean[k] || here->std[k] != images->std[k])
            return complain(EXIT_USAGE,
                            "the model in %s was trained on pixels normalised by mean %.6g and "
                            "deviation %.6g, not %.6g and %.6g; " GO_ON,
                            a->path, images->mean[k], images->std[k], here->mean[k], here->std[k]);
    if (has_new_classes(c)) return EXIT_DONE;
    if (images->n_classes && images->n_classes != here->n_classes)
        return complain(EXIT_USAGE, "the model in %s has %lld classes, but %s has %lld; " GO_ON,
                        a->path, (long long)images->n_classes, c->o.data,
                        (long long)here->n_classes);
    return check_names(c, a, data);
}

void about_add_images(const cli *c, const wf_model_info *info, const wf_data *data, json_t *all) {
    const wf_data_description *about = wf_data_describe(data);
    bool from_files = strcmp(c->o.data, "synthetic") != 0;
    json_object_set_new(all, "channels", json_integer(about->channels));
    json_object_set_new(all, "height", json_integer(about->height));
    json_object_set_new(all, "width", json_integer(about->width));
    json_object_set_new(all, "classes", json_integer(about->n_classes));
    if (about->resized) json_object_set_new(all, "resized", json_integer(about->resized));
    if (info->has_stem)
        json_object_set_new(all, "stem",
                            json_string(c->o.stem == STEM_SMALL ? "small" : "imagenet"));
    if (wf_data_class_name(data, 0)) {
        json_t *names = json_array();
        for (int64_t k = 0; k < about->n_classes; k++)
            json_array_append_new(names, json_string(wf_data_class_name(data, k)));
        json_object_set_new(all, "class_names", names);
    }
    if (!from_files) return;
    json_t *mean = json_array(), *std = json_array();
    for (int64_t k = 0; k < about->channels; k++) {
        json_array_append_new(mean, json_real(about->mean[k]));
        json_array_append_new(std, json_real(about->std[k]));
    }
    json_object_set_new(all, "mean", mean);
    json_object_set_new(all, "std", std);
}
