/* Data: a data set (wf_data) and an ordered, prefetched stream of its batches
 * (wf_loader).
 *
 *     wf_data_config set = WF_DATA_CONFIG_INIT;
 *     set.name = "fashion-mnist";
 *     wf_data_open(ctx, &set, &data);
 *     wf_loader_config order = WF_LOADER_CONFIG_INIT;
 *     order.batch = 128;
 *     wf_loader_create(data, &order, &loader);
 *     while (!wf_loader_next(loader, &batch)) train(batch->x, batch->y, batch->n_samples);
 *
 * What a batch holds is a pure function of the data set, its seed, the epoch and the
 * place in the epoch; threads and timing cannot change it. A wf_data is read-only once
 * it is open and may feed several loaders; a loader is used by one thread at a time.
 */
#ifndef WEFT_DATA_H
#define WEFT_DATA_H

#include <weft/context.h>
#include <weft/tokenizer.h>
#include <weft/types.h>

typedef struct wf_data wf_data;
typedef struct wf_loader wf_loader;

/* What a sample is: an image, or a run of tokens. */
typedef enum wf_data_kind { WF_DATA_IMAGES, WF_DATA_TOKENS } wf_data_kind;

typedef enum wf_data_split { WF_DATA_TRAIN, WF_DATA_TEST } wf_data_split;

/* What the model is trained towards: class numbers (I32), or rows of 0 and 1 (F32). */
typedef enum wf_data_targets { WF_TARGETS_LABELS, WF_TARGETS_ONE_HOT } wf_data_targets;

/* Pixels become (pixel / 255 - mean) / std, both per channel over the training images
 * (DEFAULT) or the configuration's (GIVEN), as a model was trained with; or pixel / 255 (NONE). */
typedef enum wf_data_normalize {
    WF_NORMALIZE_DEFAULT,
    WF_NORMALIZE_NONE,
    WF_NORMALIZE_GIVEN
} wf_data_normalize;

/* What a token of a text file is. WORDS: between white space, numbered in order of first
 * appearance; the end of a line is the word <eos>; at most 1,048,576 different ones. */
typedef enum wf_data_text { WF_TEXT_BYTES, WF_TEXT_WORDS } wf_data_text;

/* How a folder or file is to be read. AUTO: by what is in it. IMAGES: pictures, a folder a class.
 * TEXT refuses what is no text: other formats by their first bytes, and zero bytes. TOKENS: numbers
 * of tokens as llm.c writes them (headers 20240520 and 20240801) or, without a header, 16 bits
 * each, as nanoGPT does. BYTES: every byte of any file is a token. */
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
     *   "synthetic"       random inputs and random targets, nothing is read;
     *   "fashion-mnist"   the files of Debian's package dataset-fashion-mnist;
     *   a folder          of pictures (JPEG, PNG), train/CLASS/... and perhaps val/CLASS/..., as
     *                     torchvision's ImageFolder reads them (wf_data_open);
     *                     in MNIST's layout (train-images-idx3-ubyte, .gz or not, ...), in
     *                     CIFAR-10's binary one (data_batch_1.bin ..., test_batch.bin), or with
     *                     tokens: one file whose name ends in train.bin, or shards of it
     *                     (train_1.bin and so on), and perhaps the same of val.bin;
     *   a file            a text, or tokens. */
    const char *name;
    wf_data_format format;
    wf_data_kind kind;               /* what the model reads; a set of the other kind is refused */
    int64_t channels, height, width; /* synthetic images; pictures become these: 3 channels or 1,
                                      * and squares, 0 = 224 */
    int64_t n_classes;               /* synthetic: classes, or the vocabulary; 0 = 10 classes, 256
                                      * tokens. MNIST folders: labels are below this; 0 = 10.
                                      * TOKENS: all are below this; 0 = GPT-2's 50,257, or 128,256
                                      * with the header 20240801, Llama 3's */
    int64_t n_tokens;                /* tokens: in a sample */
    int64_t n_synthetic;             /* synthetic: training samples */
    wf_data_targets targets;         /* synthetic images; everything else has labels */
    wf_data_text text;               /* text files, without a tokenizer */
    const wf_tokenizer *tokenizer;   /* of text files; borrowed, outlives the data; or NULL. What
                                      * its words do not have is an error */
    wf_data_normalize normalize;     /* images from files */
    uint64_t seed;                   /* of synthetic samples, order and augmentation */
    double mean[3], std[3];          /* per channel, of WF_NORMALIZE_GIVEN; std above 0 */
    int64_t resized;                 /* pictures: the shorter side, before the centre is cut out of
                                      * what is not augmented; 0 = 256 of 224 parts of the height */
    int unlabelled;     /* the name is a picture, or a folder with some anywhere: all are the test
                         * split, in the order of their folders and names, with label 0. Sets of
                         * MNIST's and CIFAR-10's layout have label 0, too, and n_classes classes */
    int skip_broken;    /* decodes all pictures now, and leaves out those that cannot be, with a
                         * warning each in the log; 0: they are errors when they are read */
    size_t cache_bytes; /* pictures stay decoded in so much memory; 0: each is decoded each time */
    /* Tokens from files: for a recurrent model the split is divided into so many streams of equal
     * length, and batches of as many samples, in the order of the files, go through all of them
     * side by side: sample s of a batch goes on where that of the batch before has ended. What the
     * last batch has not in it is token 0 with the label -1, which does not count; what is left
     * over by the division is left out. By split; 0: samples one after the other. */
    int64_t n_streams[2];
} wf_data_config;

#define WF_DATA_CONFIG_INIT                                                                        \
    {                                                                                              \
        sizeof(wf_data_config), 0, WF_FORMAT_AUTO, WF_DATA_IMAGES, 3, 224, 224, 0, 0, 3840,        \
            WF_TARGETS_LABELS, WF_TEXT_BYTES, 0, WF_NORMALIZE_DEFAULT, 0, {0}, {0}, 0, 0, 0, 0, {  \
            0                                                                                      \
        }                                                                                          \
    }

/* What was opened. Shapes are of one sample: a batch has dim 0 = samples before them. */
typedef struct wf_data_description {
    wf_data_kind kind;
    wf_data_targets targets;
    wf_dtype x_dtype, y_dtype;       /* images F32, tokens I32; labels I32, one-hot F32 */
    wf_shape x_shape;                /* [channels, height, width] or [n_tokens] */
    wf_shape y_shape;                /* label: scalar; one-hot: [n_classes]; tokens: [n_tokens] */
    size_t x_bytes, y_bytes;         /* of one sample */
    int64_t channels, height, width; /* images, else 0 */
    int64_t n_classes;               /* classes, or the vocabulary */
    int64_t n_tokens;                /* in a sample, 0 for images */
    int64_t n_train, n_test;         /* samples; n_test is 0 where there is no test split */
    double mean[3], std[3];          /* what normalisation took per channel; 0 and 1 for none */
    int64_t resized;                 /* as in the configuration; 0 but for pictures */
} wf_data_description;

#define WF_DATA_HASH_BYTES 65

typedef struct wf_loader_config {
    size_t struct_size; /* sizeof(wf_loader_config), set by WF_LOADER_CONFIG_INIT */
    wf_data_split split;
    int64_t batch;        /* samples */
    int shuffle;          /* a new order each epoch; 0: as in the files */
    int augment;          /* images from files: a random shift by up to 4 pixels (2 below 32 x 32),
                           * black outside, and a random flip left to right unless they are digits */
    int drop_last;        /* leave out the smaller batch at an epoch's end */
    int n_prefetch;       /* batches filled ahead, 1 to 64 ... */
    int n_workers;        /* ... by so many threads, 1 to 256; no bit depends on them */
    int64_t first_epoch;  /* where the stream starts: the epoch ... */
    int64_t first_sample; /* ... and the place in it, as wf_batch counts them */
    /* A process of several reads only its own samples of each batch: with n_parts > 1 those of
     * part `part`, as wf_recipe_part divides a step of n_micro microbatches. All parts have one
     * order, whatever their number. A batch that is too small for n_micro is left out. */
    int part, n_parts;
    int64_t n_micro; /* 0: n_parts */
    /* Above 0, images with labels: each is mixed with a partner, another of the same batch of all
     * parts (or itself, by chance), by shares that are distributed as Beta(mixup, mixup). Partners
     * and the batch's share are functions of the seed and the place in the data. 0: none. */
    double mixup;
} wf_loader_config;

#define WF_LOADER_CONFIG_INIT                                                                      \
    { sizeof(wf_loader_config), WF_DATA_TRAIN, 32, 1, 0, 0, 2, 1, 0, 0, 0, 1, 0, 0 }

/* The stream goes on at (epoch, first_sample + n_all), or after last_of_epoch at
 * (epoch + 1, 0): give that to a new loader and it continues where this one was. */
typedef struct wf_batch {
    const void *x;           /* [n_samples, x_shape], 64-byte aligned */
    const void *y;           /* [n_samples, y_shape], 64-byte aligned */
    size_t x_bytes, y_bytes; /* of n_samples */
    const int64_t *index;    /* [n_samples], which sample of the split each one is */
    int64_t n_samples;       /* of this part */
    int64_t n_all;           /* of all parts: the batch, or fewer at the end of an epoch */
    int64_t epoch;
    int64_t first_sample; /* place of the first sample of all parts in the epoch's order */
    int last_of_epoch;
    /* With mixup, else NULL: [n_samples], the partners' labels (I32), and the shares of each sample
     * and of its partner in x, which add up to 1; every sample's are the same. */
    const void *y_partner;
    const float *share, *partner_share;
} wf_batch;

#ifdef __cplusplus
extern "C" {
#endif

/* Reads and checks the whole set; it stays in memory as bytes (or words' numbers).
 *
 * Of pictures only the names are read now. Classes are the folders in train/, in the order of their
 * names; links are followed, files are pictures by their suffix (.jpg, .jpeg, .png, in any case),
 * and what has another one is passed over, but for those of other pictures (.bmp, ...), which are
 * errors. A picture is JPEG or PNG by its first bytes, with up to 89,478,485 pixels. To augment
 * is to take a random part of 8 to 100 % of it, 3:4 to 4:3, resized to the image, flipped or not;
 * else it is resized and the centre cut out. Parts and flips are functions of seed, epoch and
 * sample. DEFAULT normalises by ImageNet's mean and deviation. The fingerprint is of names,
 * lengths, and the first and last 4 KiB of each file. Errors: INVALID_ARG (no such set, a field out
 * of range, a set of the other kind; the sentence lists what there is), IO (a file cannot be read;
 * a missing Debian package is named), CORRUPT (the sentence names the file and the value that is
 * wrong), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_data_open(wf_context *ctx, const wf_data_config *config,
                                           wf_data **data_out);

/* After its loaders are destroyed. NULL is allowed. */
WF_API void wf_data_close(wf_data *data);

/* Borrowed; lives as long as `data`. */
WF_API const wf_data_description *wf_data_describe(const wf_data *data);

/* What made a text's tokens: the configuration's tokenizer, or one of bytes, or of the text's own
 * words; borrowed. NULL: images, synthetic samples, files of tokens. */
WF_API const wf_tokenizer *wf_data_tokenizer(const wf_data *data);

/* What class i of images is called; borrowed. NULL: nobody has said it, or there is no such class.
 */
WF_API const char *wf_data_class_name(const wf_data *data, int64_t i);

/* The file of a sample; borrowed. NULL: samples of this set have none, or there is no such one. */
WF_API const char *wf_data_sample_name(const wf_data *data, wf_data_split split, int64_t i);

/* How a path would be read: `wanted`, or what AUTO finds. */
WF_API wf_data_format wf_data_find_format(const char *path, wf_data_format wanted);

/* The set's fingerprint, as 64 hex digits and a zero: equal for two sets if all their samples
 * are, wherever and however packed they lie. Errors: UNSUPPORTED (libsodium does not start). */
WF_API WF_NODISCARD wf_status wf_data_hash(const wf_data *data, char hex_out[WF_DATA_HASH_BYTES]);

/* Allocates n_prefetch + 1 batches and starts the threads that fill them; from then on
 * nothing is allocated but what pictures are decoded into. Errors: INVALID_ARG (a field out of
 * range, an empty split, a dropped batch that would be all there is), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_loader_create(const wf_data *data, const wf_loader_config *config,
                                               wf_loader **loader_out);

/* Waits for the next batch, which stays valid until the following call. The train split
 * has no end. The test split gives NULL after each pass; the call after that starts the
 * next pass. Errors: of pictures, which are read now, IO, CORRUPT (the sentence names the file),
 * NO_MEMORY; the call after that goes on with the next batch. */
WF_API WF_NODISCARD wf_status wf_loader_next(wf_loader *loader, const wf_batch **batch_out);

/* Stops the threads, at the latest after the samples they are filling. NULL is allowed. */
WF_API void wf_loader_destroy(wf_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
