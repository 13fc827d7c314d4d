/* Data sets, and ordered, prefetched streams of their batches.
 *
 * A wf_data is a data set; a wf_loader is a stream of batches.
 *
 *     wf_data_config set = WF_DATA_CONFIG_INIT;
 *     set.name = "fashion-mnist";
 *     wf_data_open(ctx, &set, &data);
 *     wf_loader_config order = WF_LOADER_CONFIG_INIT;
 *     order.batch = 128;
 *     wf_loader_create(data, &order, &loader);
 *     while (!wf_loader_next(loader, &batch)) train(batch->x, batch->y, batch->n_samples);
 *
 * A batch is a pure function of the data set, its seed, the epoch and the position in the epoch;
 * threads and timing do not affect it. An open wf_data is read-only and may feed several loaders.
 * One thread at a time uses a loader. Programs link libweft-data for this header.
 */
#ifndef WEFT_DATA_H
#define WEFT_DATA_H

#include <weft/context.h>
#include <weft/tokenizer.h>
#include <weft/types.h>

typedef struct wf_data wf_data;
typedef struct wf_loader wf_loader;

/* The kind of a sample: an image, or a sequence of tokens. */
typedef enum wf_data_kind { WF_DATA_IMAGES, WF_DATA_TOKENS } wf_data_kind;

typedef enum wf_data_split { WF_DATA_TRAIN, WF_DATA_TEST } wf_data_split;

/* The training targets: class numbers (I32), or rows of 0 and 1 (F32). */
typedef enum wf_data_targets { WF_TARGETS_LABELS, WF_TARGETS_ONE_HOT } wf_data_targets;

/* Normalization of pixels. DEFAULT: (pixel / 255 - mean) / std with mean and std per channel over
 * the training images. GIVEN: the same with the configuration's mean and std, for a model that was
 * trained with them. NONE: pixel / 255. */
typedef enum wf_data_normalize {
    WF_NORMALIZE_DEFAULT,
    WF_NORMALIZE_NONE,
    WF_NORMALIZE_GIVEN
} wf_data_normalize;

/* Tokens of a text file. BYTES: each byte is a token. WORDS: the text between white space, numbered
 * in order of first appearance; the end of a line is the word <eos>; at most 1,048,576 distinct
 * words. */
typedef enum wf_data_text { WF_TEXT_BYTES, WF_TEXT_WORDS } wf_data_text;

/* The format of a folder or file. AUTO: detected from the contents. IMAGES: pictures, one folder
 * per class. TEXT: refuses other formats by their first bytes, and zero bytes. TOKENS: token
 * numbers as llm.c writes them (headers 20240520 and 20240801), or 16-bit numbers without a header,
 * as nanoGPT writes them. BYTES: each byte of any file is a token. */
typedef enum wf_data_format {
    WF_FORMAT_AUTO,
    WF_FORMAT_IMAGES,
    WF_FORMAT_MNIST,
    WF_FORMAT_CIFAR,
    WF_FORMAT_TEXT,
    WF_FORMAT_TOKENS,
    WF_FORMAT_BYTES
} wf_data_format;

typedef struct wf_data_config {
    size_t struct_size; /* sizeof(wf_data_config), set by WF_DATA_CONFIG_INIT */
    /* One of:
     *   "synthetic"       random inputs and random targets; reads no file;
     *   "fashion-mnist"   the files of Debian's package dataset-fashion-mnist;
     *   a folder          of pictures (JPEG, PNG): train/CLASS/... and optionally val/CLASS/...,
     *                     as in torchvision's ImageFolder (see wf_data_open);
     *                     or in MNIST's layout (train-images-idx3-ubyte, .gz or not, ...);
     *                     or in CIFAR-10's binary layout (data_batch_1.bin ..., test_batch.bin);
     *                     or of tokens: one file *train.bin, or its shards (*train_1.bin and
     *                     so on), and optionally the same for val.bin;
     *   a file            of text or tokens. */
    const char *name;
    wf_data_format format;
    wf_data_kind kind; /* the model's kind of input; a set of the other kind is refused */
    int64_t channels, height, width; /* synthetic images; pictures are converted to these: 3
                                      * channels or 1, height equal to width, 0 = 224 */
    int64_t n_classes;               /* synthetic: classes or vocabulary size; 0 = 10 classes, 256
                                      * tokens. MNIST folders: upper bound of labels; 0 = 10.
                                      * TOKENS: upper bound of tokens; 0 = GPT-2's 50,257, or Llama
                                      * 3's 128,256 with the header 20240801 */
    int64_t n_tokens;                /* tokens per sample */
    int64_t n_synthetic;             /* synthetic: number of training samples */
    wf_data_targets targets;         /* synthetic images; all other sets have labels */
    wf_data_text text;               /* text files without a tokenizer */
    const wf_tokenizer *tokenizer;   /* for text files, or NULL; borrowed, must outlive the data. A
                                      * word that is not in its vocabulary is an error */
    wf_data_normalize normalize;     /* images from files */
    uint64_t seed;                   /* for synthetic samples, order and augmentation */
    double mean[3], std[3];          /* per channel, for WF_NORMALIZE_GIVEN; std must be above 0 */
    int64_t resized;                 /* pictures that are not augmented: length of the shorter side
                                      * before the center crop; 0 = 256/224 of the height */
    int unlabelled;     /* For prediction. `name` is a picture, or a folder that contains
                         * pictures at any depth. All of them form the test split, ordered by folder
                         * and name, with label 0. Sets in MNIST's and CIFAR-10's layout then also
                         * have label 0 and n_classes classes */
    int skip_broken;    /* 1: decodes all pictures when the set is opened and leaves out broken
                         * ones, each with a warning in the log. 0: a broken picture is an error
                         * when a loader reads it */
    size_t cache_bytes; /* memory for a cache of decoded pictures; 0: each use decodes anew */
    /* Per split, for recurrent models on tokens from files: the number of parallel streams. The
     * split is cut into so many streams of equal length; the remainder is left out. A batch has one
     * sample from each stream, and sample s continues where sample s of the previous batch ended.
     * Missing tokens of the last batch are token 0 with label -1, which the loss ignores. 0: no
     * streams; samples follow one another. */
    int64_t n_streams[2];
} wf_data_config;

#define WF_DATA_CONFIG_INIT                                                                        \
    {                                                                                              \
        sizeof(wf_data_config), 0, WF_FORMAT_AUTO, WF_DATA_IMAGES, 3, 224, 224, 0, 0, 3840,        \
            WF_TARGETS_LABELS, WF_TEXT_BYTES, 0, WF_NORMALIZE_DEFAULT, 0, {0}, {0}, 0, 0, 0, 0, {  \
            0                                                                                      \
        }                                                                                          \
    }

/* Properties of an open data set. Shapes are of one sample; a batch prepends dim 0 = samples. */
typedef struct wf_data_description {
    wf_data_kind kind;
    wf_data_targets targets;
    wf_dtype x_dtype, y_dtype;       /* images F32, tokens I32; labels I32, one-hot F32 */
    wf_shape x_shape;                /* [channels, height, width] or [n_tokens] */
    wf_shape y_shape;                /* label: scalar; one-hot: [n_classes]; tokens: [n_tokens] */
    size_t x_bytes, y_bytes;         /* of one sample */
    int64_t channels, height, width; /* images, else 0 */
    int64_t n_classes;               /* number of classes, or vocabulary size */
    int64_t n_tokens;                /* per sample; 0 for images */
    int64_t n_train, n_test;         /* number of samples; n_test is 0 without a test split */
    double mean[3], std[3];          /* of the normalization, per channel; 0 and 1 for none */
    int64_t resized;                 /* as in the configuration; 0 for sets other than pictures */
} wf_data_description;

#define WF_DATA_HASH_BYTES 65

typedef struct wf_loader_config {
    size_t struct_size; /* sizeof(wf_loader_config), set by WF_LOADER_CONFIG_INIT */
    wf_data_split split;
    int64_t batch;  /* samples, over all parts */
    int shuffle;    /* 1: a new order each epoch; 0: the order of the files */
    int augment;    /* images from files: a random shift by up to 4 pixels (2 below 32 x 32) with
                     * black outside, and a random horizontal flip except for digits.
                     * Pictures: see wf_data_open */
    int drop_last;  /* leave out a smaller last batch of an epoch */
    int n_prefetch; /* number of batches filled ahead, 1 to 64 */
    int n_workers;  /* threads that fill them, 1 to 256; they do not affect a bit */
    int64_t first_epoch;  /* start of the stream: the epoch ... */
    int64_t first_sample; /* ... and the position in it, as in wf_batch.first_sample */
    /* For data parallelism. With n_parts > 1 the loader reads only the samples of part `part`, as
     * wf_recipe_part divides a step of n_micro microbatches. The order of samples does not depend
     * on the number of parts. A batch with too few samples for n_micro is left out. */
    int part, n_parts;
    int64_t n_micro; /* 0: n_parts */
    /* Above 0, for images with labels: each image is mixed with a partner from the same batch of
     * all parts (by chance, itself), with shares from Beta(mixup, mixup). Partners and the batch's
     * share are functions of the seed and the position in the data. 0: no mixup; at most
     * WF_MAX_MIXUP, where all shares are about a half. */
    double mixup;
} wf_loader_config;

#define WF_MAX_MIXUP 1000
#define WF_LOADER_CONFIG_INIT                                                                      \
    { sizeof(wf_loader_config), WF_DATA_TRAIN, 32, 1, 0, 0, 2, 1, 0, 0, 0, 1, 0, 0 }

/* One batch. To resume a stream, create a loader that starts at (epoch, first_sample + n_all), or,
 * after last_of_epoch, at (epoch + 1, 0). */
typedef struct wf_batch {
    const void *x;           /* [n_samples, x_shape], 64-byte aligned */
    const void *y;           /* [n_samples, y_shape], 64-byte aligned */
    size_t x_bytes, y_bytes; /* of n_samples samples */
    const int64_t *index;    /* [n_samples], each sample's index in the split */
    int64_t n_samples;       /* in this part */
    int64_t n_all;           /* in all parts: the batch, or fewer at the end of an epoch */
    int64_t epoch;
    int64_t first_sample; /* position of the first sample of all parts in the epoch's order */
    int last_of_epoch;
    /* With mixup, else NULL: [n_samples] each. The partners' labels (I32), and the shares of each
     * sample and of its partner in x. The two shares add up to 1 and are equal for all samples. */
    const void *y_partner;
    const float *share, *partner_share;
} wf_batch;

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a data set: reads and checks all of it, and keeps it in memory as bytes or word numbers.
 *
 * This call reads only the names of pictures. Classes are the folders in train/, in the order of
 * their names; links are followed. A file with the suffix .jpg, .jpeg or .png, in any case, is a
 * picture. Suffixes of other picture formats (.bmp, ...) are errors; other files are ignored. The
 * first bytes decide between JPEG and PNG. A picture has up to 89,478,485 pixels. With
 * augmentation, a random part of 8 to 100 % of its area, with a ratio of 3:4 to 4:3, is resized to
 * the image and flipped at random; without, the picture is resized and center-cropped. Parts and
 * flips are functions of seed, epoch and sample. WF_NORMALIZE_DEFAULT uses ImageNet's mean and std.
 * The fingerprint (wf_data_hash) covers names, lengths, and the first and last 4 KiB of each file.
 *
 * Errors: INVALID_ARG (an unknown set, a field out of range, a set of the other kind; the sentence
 * lists the sets), IO (a file cannot be read; the sentence names a missing Debian package), CORRUPT
 * (the sentence names the file and the wrong value), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_data_open(wf_context *ctx, const wf_data_config *config,
                                           wf_data **data_out);

/* Closes the data set. Destroy its loaders first. NULL is allowed. */
WF_API void wf_data_close(wf_data *data);

/* The set's properties. Borrowed; valid as long as `data`. */
WF_API const wf_data_description *wf_data_describe(const wf_data *data);

/* The tokenizer that made a text's tokens: the configuration's, or a tokenizer of bytes or of the
 * text's own words. Borrowed. NULL for images, synthetic samples and files of tokens. */
WF_API const wf_tokenizer *wf_data_tokenizer(const wf_data *data);

/* The name of image class i; borrowed. NULL if the set does not name its classes or i is out of
 * range. */
WF_API const char *wf_data_class_name(const wf_data *data, int64_t i);

/* The file name of a sample; borrowed. NULL if samples of this set are not files of their own, or i
 * is out of range. */
WF_API const char *wf_data_sample_name(const wf_data *data, wf_data_split split, int64_t i);

/* The format in which a path would be read: `wanted`, or the detected one if `wanted` is AUTO. */
WF_API wf_data_format wf_data_find_format(const char *path, wf_data_format wanted);

/* Writes the set's fingerprint: 64 hex digits and a zero. Two sets have the same fingerprint if all
 * their samples are equal, wherever and however they are packed. Errors: UNSUPPORTED (libsodium
 * cannot start), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_data_hash(const wf_data *data, char hex_out[WF_DATA_HASH_BYTES]);

/* Creates a loader: allocates n_prefetch + 1 batches and starts the threads that fill them. After
 * that, only the decoding of pictures allocates memory. Errors: INVALID_ARG (a field out of range,
 * an empty split, drop_last with only one, smaller batch), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_loader_create(const wf_data *data, const wf_loader_config *config,
                                               wf_loader **loader_out);

/* Waits for the next batch, which stays valid until the following call. The train split never ends.
 * The test split returns NULL after each pass, and the next call starts a new pass. After an error,
 * the next call continues with the next batch. Errors: IO, CORRUPT (the sentence names the file),
 * NO_MEMORY; only of pictures, which a loader decodes. */
WF_API WF_NODISCARD wf_status wf_loader_next(wf_loader *loader, const wf_batch **batch_out);

/* Destroys the loader. The threads stop after the samples that they are filling. NULL is allowed.
 */
WF_API void wf_loader_destroy(wf_loader *loader);

/* The i-th library that libweft-data uses, such as "zlib 1.2.13". Static; NULL past the last. */
WF_API const char *wf_data_library(int i);

#ifdef __cplusplus
}
#endif
#endif
