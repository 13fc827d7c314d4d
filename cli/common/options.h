/* The option table: the program's own options, and one for each field of the recipe, made from
 * WF_RECIPE_FIELDS. The table parses the command line and the configuration file, prints help, man
 * page and completion, and writes the recipe into reports and checkpoints, so none of them can
 * drift from the others.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <weft/weft.h>

/* The commands but weft run: flag, function run_..., name, summary. */
#define COMMAND_LIST(X)                                                                            \
    X(TRAIN, train, "train", "train a model with checkpoints, a log and a picture")                \
    X(EVAL, eval, "eval", "compute loss and accuracy of saved weights")                            \
    X(PREDICT, predict, "predict", "classify pictures with saved weights")                         \
    X(CONVERT, convert, "convert", "write weights in another type or in shards")                   \
    X(GENERATE, generate, "generate", "continue a text with a language model's weights")           \
    X(PLAN, plan, "plan", "show the cost of a plan without running it")                            \
    X(ADVISE, advise, "advise", "compare the strategies for a model on a cluster")                 \
    X(BENCH, bench, "bench train", "time training steps on synthetic data")                        \
    X(BENCH_PARALLEL, bench_model_parallel, "bench model-parallel",                                \
      "time one device, two in turn, and pipelines")                                               \
    X(BENCH_ALLREDUCE, bench_allreduce, "bench allreduce",                                         \
      "time all-reduces by size, algorithm and wire")                                              \
    X(BENCH_DDP, bench_ddp, "bench ddp", "time data parallelism, with and without overlap")        \
    X(BENCH_MEMORY, bench_memory, "bench memory", "measure memory and time of several plans")      \
    X(BENCH_PRICE, bench_price, "bench price", "measure the cost of the default lanes and slices") \
    X(BENCH_ASYNC, bench_async, "bench async", "time synchronous, asynchronous and local updates") \
    X(BENCH_PUBLISHED, bench_published, "bench published", "predict published runs on clusters")   \
    X(BENCH_PREDICT, bench_predict, "bench predict",                                               \
      "compare predicted and measured steps of plans")                                             \
    X(TUNE, tune, "tune", "find the fastest kernels and write them as a table")                    \
    X(SIMULATE, simulate, "simulate",                                                              \
      "simulate a schedule or asynchronous updates for given times")                               \
    X(DRAW, draw, "draw", "draw a trace of weft train: weft draw TRACE.json")                      \
    X(INFO, info, "info", "show the machine, devices, libraries and variables")

#define COMMAND_PLACE(flag, function, name, summary) COMMAND_##flag,
enum { COMMAND_LIST(COMMAND_PLACE) COMMAND_RUN };
/* Which commands take an option. */
#define COMMAND_FLAG(flag, function, name, summary) FOR_##flag = 1 << COMMAND_##flag,
enum { COMMAND_LIST(COMMAND_FLAG) FOR_RUN = 1 << COMMAND_RUN };
#define TP    (FOR_TRAIN | FOR_PLAN)
#define TPB   (FOR_TRAIN | FOR_PLAN | FOR_BENCH | FOR_TUNE)
#define TPBE  (TPB | FOR_EVAL)
#define TPBEP (TPBE | FOR_PREDICT)
#define ALL   (TPBE | FOR_BENCH_PARALLEL | RUNS | FOR_ADVISE)
#define JOBS  (FOR_TRAIN | FOR_BENCH | FOR_GENERATE | FOR_EVAL | FOR_PREDICT) /* of processes */
/* Rows are runs of bench train, or of train. */
#define RUNS                                                                                       \
    (FOR_BENCH_DDP | FOR_BENCH_MEMORY | FOR_BENCH_PRICE | FOR_BENCH_ASYNC | FOR_BENCH_PREDICT)
/* Models of any size. */
#define SIZES (TPBE | RUNS | FOR_ADVISE)
/* Measured in rounds, with peers beside. */
#define PEER (FOR_BENCH_DDP | FOR_BENCH_MEMORY | FOR_BENCH_ALLREDUCE)

typedef enum option_kind {
    OPTION_FLAG,   /* int */
    OPTION_TEXT,   /* char *, owned */
    OPTION_CHOICE, /* int or enum: place in the argument's list a|b|c */
    OPTION_INT,    /* int, 0 or more */
    OPTION_COUNT,  /* int64_t, 0 or more; where the argument is N|auto, also MICRO_AUTO */
    OPTION_SEED,   /* uint64_t */
    OPTION_REAL,   /* double */
    OPTION_SIZE,   /* size_t, bytes */
    OPTION_NAMES   /* wf_names or wf_tuned; typed with commas or + between them */
} option_kind;

typedef enum option_group {
    GROUP_MODEL,
    GROUP_RECIPE,
    GROUP_OPTIMIZER,
    GROUP_PLAN,
    GROUP_SCHEDULE,
    GROUP_WORKERS,
    GROUP_RUN,
    N_GROUPS
} option_group;

enum { STEM_AUTO, STEM_IMAGENET, STEM_SMALL };
enum { MEMORY_SHARED, MEMORY_PLAIN };
enum { COSTS_COMPUTED, COSTS_MEASURED };
enum { ON_NAN_STOP, ON_NAN_SKIP, ON_NAN_REWIND };
#define MICRO_AUTO (-1)

/* The scope of an option in a job of several ranks: all ranks need the same value, except for
 * OF_RANK. OF_ROOT names a file of rank 0; ranks compare only whether it is given. */
typedef enum option_scope { OF_RUN = 0, OF_RECIPE = 1, OF_RANK, OF_ROOT } option_scope;

/* name (with _ for -), kind, group, commands, scope (1: of the recipe, 0: of the run, or
 * OF_RANK, OF_ROOT), argument, default, help */
#define OPTION_LIST(X)                                                                             \
    X(model, TEXT, MODEL, ALL | FOR_PREDICT | FOR_GENERATE, 1, "NAME", NULL, "model name:")        \
    X(data, TEXT, MODEL, TPBEP | FOR_BENCH_ASYNC, 1, "NAME|PATH", NULL,                            \
      "synthetic, fashion-mnist, a folder of pictures (train/CLASS/..., val/CLASS/...) or of "     \
      "MNIST's or CIFAR-10's files, a text file, or a file of tokens")                             \
    X(data_format, CHOICE, MODEL, TPBEP, 1, "auto|images|mnist|cifar|text|tokens|bytes", "auto",   \
      "format of --data; images: JPEG and PNG; tokens: llm.c's or nanoGPT's .bin; bytes: any "     \
      "file; auto: by contents")                                                                   \
    X(image, COUNT, MODEL, ALL | FOR_PREDICT, 1, "N", NULL,                                        \
      "height and width of images: synthetic (128; mlp: 28), or pictures after the crop (224; "    \
      "mlp: 28)")                                                                                  \
    X(resize, COUNT, MODEL, (TPBEP & ~FOR_TUNE), 1, "N", NULL,                                     \
      "pictures: length of the shorter side in tests, before the centre crop (--image x 256 / "    \
      "224)")                                                                                      \
    X(skip_broken, FLAG, MODEL, (TPBEP & ~FOR_TUNE), 1, NULL, NULL,                                \
      "name pictures that cannot be decoded and leave them out; decodes all once at the start")    \
    X(tokens, COUNT, MODEL, SIZES, 1, "N", NULL,                                                   \
      "tokens per sample (256; gpt2-tiny: 32; lstm: 35; with --init: the model's)")                \
    X(layers, COUNT, MODEL, SIZES | FOR_GENERATE, 1, "N", NULL,                                    \
      "gpt, llama: number of blocks (12); lstm: number of layers (2)")                             \
    X(hidden, COUNT, MODEL, SIZES | FOR_GENERATE, 1, "N", NULL,                                    \
      "gpt, llama: width (768); lstm: width of the hidden state (200)")                            \
    X(embedding, COUNT, MODEL, (SIZES & ~FOR_BENCH_ASYNC) | FOR_GENERATE, 1, "N", NULL,            \
      "lstm: width of the embedding (--hidden)")                                                   \
    X(tied, FLAG, MODEL, (SIZES & ~FOR_BENCH_ASYNC) | FOR_GENERATE, 1, NULL, NULL,                 \
      "lstm, llama: tie the output layer to the embedding; both have the same width")              \
    X(ffn, COUNT, MODEL, TPBE | FOR_ADVISE | FOR_GENERATE, 1, "N", NULL,                           \
      "llama: width of the MLP (8/3 of the width, rounded up)")                                    \
    X(kv_heads, COUNT, MODEL, TPBE | FOR_ADVISE | FOR_GENERATE, 1, "N", NULL,                      \
      "llama: heads of keys and values; they divide the heads (--heads)")                          \
    X(rope_theta, REAL, MODEL, TPBE | FOR_ADVISE | FOR_GENERATE, 1, "X", "500000",                 \
      "llama: base of the angles of rotary positions")                                             \
    X(heads, COUNT, MODEL, SIZES | FOR_GENERATE, 1, "N", NULL,                                     \
      "gpt, llama: attention heads; must divide the width (12, or fewer)")                         \
    X(vocab, COUNT, MODEL, SIZES | FOR_GENERATE, 1, "N", NULL,                                     \
      "gpt, llama, lstm: vocabulary size (default: that of the data; synthetic: 50257, 32000 and " \
      "10000)")                                                                                    \
    X(words, FLAG, MODEL, TPBE, 1, NULL, NULL, "split a text file into words instead of bytes")    \
    X(tokenizer, TEXT, MODEL, TPBE | FOR_GENERATE, OF_RANK, "DIR", NULL,                           \
      "folder with Hugging Face's byte-level BPE for a text file: tokenizer.json, or vocab.json "  \
      "and merges.txt")                                                                            \
    X(normalize, CHOICE, MODEL, TPBEP, 1, "default|none", "default",                               \
      "pixel normalization; default: zero mean and unit variance; none: pixel / 255")              \
    X(no_shuffle, FLAG, MODEL, TPB, 1, NULL, NULL, "keep the order of the files")                  \
    X(no_augment, FLAG, MODEL, TPB, 1, NULL, NULL, "disable random shifts, crops and flips")       \
    X(stem, CHOICE, MODEL, TPBEP, 1, "auto|imagenet|small", "auto",                                \
      "first layers of resnets; imagenet: 7x7, stride 2, and a pool; small: 3x3, stride 1; auto: " \
      "small below 16 pixels")                                                                     \
    X(loss, CHOICE, MODEL, TPBE, 1, "cross-entropy|mse", NULL,                                     \
      "loss function; mse: against one-hot targets, synthetic images only")                        \
    X(dropout, REAL, MODEL, TPB | FOR_BENCH_MEMORY, 1, "P", "0",                                   \
      "gpt2, lstm: dropout probability")                                                           \
    X(label_smoothing, REAL, MODEL, TPB | FOR_BENCH_MEMORY, 1, "X", "0",                           \
      "fraction of the target that all classes share in training")                                 \
    X(mixup, REAL, MODEL, TPB, 1, "ALPHA", "0",                                                    \
      "mix pairs of images; shares from Beta(ALPHA, ALPHA)")                                       \
                                                                                                   \
    X(plan, TEXT, PLAN, TPBEP | FOR_BENCH_DDP | FOR_GENERATE, 0, "PLAN", "",                       \
      "division of work and memory: dp=2,pp=2,cut=layer3,recompute=all; auto: the fastest plan "   \
      "that fits")                                                                                 \
    X(plans, TEXT, PLAN, FOR_BENCH_MEMORY | FOR_BENCH_PREDICT, 0, "LIST", NULL,                    \
      "plans, separated by ; (dp=N; the same with zero=1, 2 and 3, and with breadth)")             \
    X(costs, CHOICE, PLAN, (TPB & ~FOR_TUNE), 0, "computed|measured", "computed",                  \
      "costs used to balance stages and for schedule=auto; computed: from FLOPs and bytes")        \
    X(devices, TEXT, PLAN, TPBEP | FOR_GENERATE | FOR_BENCH_PARALLEL, 0, "LIST", NULL,             \
      "cpu:N: N ranks as threads that share the cores; cuda:N, opencl:N: N GPUs or OpenCL "        \
      "devices; or one by one: cpu:1,cpu:0 (cpu:N for the plan's N ranks)")                        \
    X(rows, TEXT, PLAN, FOR_BENCH_PUBLISHED, 0, "FILE", NULL,                                      \
      "published runs to predict, as in tests/published/ (those that come with weft)")             \
    X(ranks, COUNT, PLAN, FOR_PLAN | FOR_RUN | JOBS | PEER, OF_RANK, "N", "1",                     \
      "number of ranks, as processes on this machine")                                             \
    X(rendezvous, TEXT, PLAN, JOBS, OF_RANK, "URL", NULL,                                          \
      "rendezvous of processes with RANK and WORLD_SIZE: env://, tcp://127.0.0.1:PORT or "         \
      "file:///path")                                                                              \
    X(cluster, TEXT, PLAN, FOR_PLAN | FOR_ADVISE | FOR_BENCH_PUBLISHED, 0, "NAME|FILE", NULL,      \
      "predict times and memory on this cluster:")                                                 \
    X(nodes, COUNT, PLAN, FOR_PLAN | FOR_ADVISE, 0, "N", NULL,                                     \
      "nodes of the cluster (those of its file)")                                                  \
    X(device_memory, SIZE, PLAN, (TPBE & ~FOR_TUNE) | FOR_GENERATE | FOR_PREDICT, 0, "SIZE", NULL, \
      "memory limit per rank: 2GiB, 512MB or bytes; recompute=auto fits into it (default: a "      \
      "rank's share of the control group's limit, or of the GPU's free memory)")                   \
    X(host_memory, SIZE, PLAN, (TPBEP & ~FOR_TUNE), 0, "SIZE", NULL,                               \
      "host memory limit per rank, for tensors of offload=")                                       \
                                                                                                   \
    X(stages, COUNT, SCHEDULE, FOR_SIMULATE, 0, "N", NULL, "number of pipeline stages")            \
    X(forward_ms, TEXT, SCHEDULE, FOR_SIMULATE, 0, "X|X,X,...", NULL,                              \
      "forward time of a microbatch: one for all stages, or one per stage; with --update: of a "   \
      "worker's share of a batch")                                                                 \
    X(backward_ms, TEXT, SCHEDULE, FOR_SIMULATE, 0, "X|X,X,...", NULL,                             \
      "time of the input gradients of a microbatch")                                               \
    X(weight_ms, TEXT, SCHEDULE, FOR_SIMULATE, 0, "X|X,X,...", NULL,                               \
      "time of the weight gradients of a microbatch")                                              \
    X(transfer_ms, REAL, SCHEDULE, FOR_SIMULATE, 0, "X", "0",                                      \
      "transfer time between neighbouring stages; uses no compute; with --update: of all "         \
      "parameters, one way")                                                                       \
    X(schedule, TEXT, SCHEDULE, FOR_SIMULATE, 0, "NAME", "1f1b",                                   \
      "pipeline schedule; auto searches for the best:")                                            \
    X(chunks, COUNT, SCHEDULE, FOR_SIMULATE, 0, "V", NULL,                                         \
      "chunks per stage (interleaved: 2; auto: the best)")                                         \
    X(memory_limit, COUNT, SCHEDULE, FOR_SIMULATE, 0, "N", NULL,                                   \
      "microbatches that a stage may hold at most (any number; auto: 2 stages - 1)")               \
    X(weight_held, REAL, SCHEDULE, FOR_SIMULATE, 0, "X", "1",                                      \
      "fraction of a microbatch's activations needed by the weight gradients")                     \
    X(sim_update, CHOICE, WORKERS, FOR_SIMULATE, 0, "sync|async|local", NULL,                      \
      "simulate workers instead of a pipeline; sync: all-reduce; async: parameter servers; "       \
      "local: local steps, then an all-reduce")                                                    \
    X(sim_workers, COUNT, WORKERS, FOR_SIMULATE, 0, "M", NULL,                                     \
      "number of workers, which share each batch")                                                 \
    X(servers, COUNT, WORKERS, FOR_SIMULATE | FOR_BENCH_ASYNC, 0, "K", "1",                        \
      "async: parameter servers, which divide the parameters")                                     \
    X(sim_staleness, COUNT, WORKERS, FOR_SIMULATE, 0, "N", NULL,                                   \
      "async: highest staleness of a gradient in steps; 0: wait for all workers (default: no "     \
      "limit)")                                                                                    \
    X(slow, REAL, WORKERS, FOR_SIMULATE | FOR_BENCH_ASYNC, 0, "X", "1",                            \
      "worker 0 takes X times as long")                                                            \
    X(target_loss, REAL, WORKERS, FOR_BENCH_ASYNC, 0, "X", NULL,                                   \
      "report the time to this loss (the last loss of sync with even workers)")                    \
    X(sim_local_steps, COUNT, WORKERS, FOR_SIMULATE, 0, "H", NULL,                                 \
      "local: steps between two all-reduces")                                                      \
    X(update_ms, REAL, WORKERS, FOR_SIMULATE, 0, "X", "0",                                         \
      "time of an update of all parameters, on a server or a worker")                              \
                                                                                                   \
    X(prompt, TEXT, RUN, FOR_GENERATE, 0, "TEXT", NULL, "text to continue")                        \
    X(stop, TEXT, RUN, FOR_GENERATE, 0, "TEXT", NULL,                                              \
      "stop at this text (<|endoftext|>, if it is a token)")                                       \
    X(temperature, REAL, RUN, FOR_GENERATE, 0, "X", "0", "sampling temperature; 0: greedy")        \
    X(top_k, COUNT, RUN, FOR_GENERATE | FOR_PREDICT, 0, "N", "0",                                  \
      "sample from the N likeliest tokens; 0: all")                                                \
    X(logits, FLAG, RUN, FOR_PREDICT, 0, NULL, NULL,                                               \
      "add the logits of all classes to each row of --json")                                       \
    X(steps, COUNT, RUN, FOR_TRAIN | FOR_PLAN | RUNS | FOR_GENERATE | FOR_SIMULATE, 0, "N", NULL,  \
      "total optimizer steps, including those before --resume")                                    \
    X(epochs, COUNT, RUN, FOR_TRAIN | FOR_PLAN, 0, "N", NULL, "total epochs (1)")                  \
    X(repeat, COUNT, RUN,                                                                          \
      FOR_BENCH | FOR_BENCH_PARALLEL | PEER | FOR_BENCH_PRICE | FOR_BENCH_ASYNC |                  \
          FOR_BENCH_PREDICT | FOR_TUNE,                                                            \
      0, "N", NULL, "rounds; each round times everything once (5)")                                \
    X(bytes, TEXT, RUN, FOR_BENCH_ALLREDUCE, 0, "LIST", NULL,                                      \
      "buffer sizes (4KiB,64KiB,1MiB,4MiB,16MiB,100MB)")                                           \
    X(algorithm, TEXT, RUN, FOR_BENCH_ALLREDUCE, 0, "LIST", NULL,                                  \
      "all-reduce algorithms (all except engine and auto):")                                       \
    X(wire, TEXT, RUN, JOBS | FOR_PLAN | FOR_BENCH_ALLREDUCE, 0, "WIRE", NULL,                     \
      "transport between processes: shm (shared memory), mpi (messages through an MPI library), "  \
      "nccl (auto, plus NCCL between CUDA GPUs), or auto: mpi on several machines, else shm")      \
    X(memory, CHOICE, RUN, FOR_BENCH_ALLREDUCE, 0, "shared|plain", "shared",                       \
      "buffers; shared: readable by the other ranks; plain: ordinary memory")                      \
    X(init, TEXT, RUN, (TPBE & ~FOR_TUNE) | FOR_CONVERT | FOR_GENERATE | FOR_PREDICT, OF_ROOT,     \
      "FILE", NULL,                                                                                \
      "initial weights: safetensors, an index of shards, or a folder with model.safetensors")      \
    X(init_skip, NAMES, RUN, FOR_TRAIN | FOR_PLAN | FOR_BENCH, 0, "NAMES", NULL,                   \
      "tensors of --init to initialize anew, by name or prefix: fc")                               \
    X(record, TEXT, RUN, FOR_TRAIN, OF_ROOT, "FILE", NULL,                                         \
      "--update async: write the order in which gradients were applied")                           \
    X(replay, TEXT, RUN, FOR_TRAIN, 0, "FILE", NULL,                                               \
      "--update async: repeat the order of a --record; gives the same bits on any number of "      \
      "ranks")                                                                                     \
    X(loader_threads, COUNT, RUN, (TPBEP & ~FOR_TUNE), OF_RANK, "N", NULL,                         \
      "threads that decode pictures ahead (cores not used by ranks, at least 1)")                  \
    X(cache, SIZE, RUN, (TPBE & ~FOR_TUNE), OF_RANK, "SIZE", NULL,                                 \
      "memory for decoded pictures (a quarter of the machine's, shared by the ranks)")             \
    X(other_data, FLAG, RUN, (TPBEP & ~FOR_TUNE) | FOR_GENERATE, 0, NULL, NULL,                    \
      "accept --init weights trained with another normalization, image size, tokenizer or other "  \
      "classes")                                                                                   \
    X(out, TEXT, RUN,                                                                              \
      FOR_TRAIN | FOR_PLAN | FOR_BENCH_PARALLEL | PEER | FOR_BENCH_ASYNC | FOR_BENCH_PREDICT |     \
          FOR_CONVERT | FOR_TUNE,                                                                  \
      OF_ROOT, "DIR", NULL, "folder for checkpoints, log and learning curve")                      \
    X(file_dtype, CHOICE, RUN, FOR_CONVERT, 0, "f16|bf16|f32", NULL,                               \
      "floating-point type of the file; rounds to nearest, ties to even; a number out of range "   \
      "is an error")                                                                               \
    X(save_every, COUNT, RUN, FOR_TRAIN | FOR_PLAN, 0, "N", NULL,                                  \
      "save a checkpoint every N steps instead of every epoch")                                    \
    X(test_every, COUNT, RUN, FOR_TRAIN | FOR_PLAN, 0, "N", NULL,                                  \
      "test every N steps instead of every epoch")                                                 \
    X(patience, COUNT, RUN, FOR_TRAIN | FOR_PLAN, 0, "N", NULL,                                    \
      "stop after N tests without a lower loss")                                                   \
    X(keep, COUNT, RUN, FOR_TRAIN | FOR_PLAN, 0, "N", NULL,                                        \
      "keep the last N checkpoints, in folders step-... of --out")                                 \
    X(keep_best, FLAG, RUN, FOR_TRAIN | FOR_PLAN, 0, NULL, NULL,                                   \
      "keep the checkpoint with the lowest test loss, in the folder best of --out")                \
    X(save_async, FLAG, RUN, FOR_TRAIN | FOR_PLAN, 0, NULL, NULL,                                  \
      "write checkpoints in the background")                                                       \
    X(shard_size, SIZE, RUN, FOR_TRAIN | FOR_CONVERT, 0, "SIZE", NULL,                             \
      "split checkpoints into shards of this size, with an index")                                 \
    X(resume, FLAG, RUN, FOR_TRAIN | FOR_PLAN, 0, NULL, NULL,                                      \
      "continue from the checkpoint in --out")                                                     \
    X(on_nan, CHOICE, RUN, FOR_TRAIN | FOR_PLAN, 0, "stop|skip|rewind", "stop",                    \
      "after a step that is not finite: stop; skip: undo the step and leave its batch out, with "  \
      "a copy of the state in host memory; rewind: go back to the last checkpoint and leave out "  \
      "the batches since then")                                                                    \
    X(verify, COUNT, RUN, FOR_TRAIN | FOR_PLAN, 0, "N", NULL,                                      \
      "compare the state of replicas every N steps and before each checkpoint; a rank that "       \
      "differs is named (exit status 4)")                                                          \
    X(restarts, COUNT, RUN, FOR_TRAIN | FOR_PLAN | FOR_RUN, OF_RANK, "N", "0",                     \
      "after a rank has failed, start all ranks again from the last checkpoint, at most N times")  \
    X(snapshot, COUNT, RUN, FOR_TRAIN | FOR_PLAN, 0, "N", NULL,                                    \
      "with --restarts: copy the state to host memory every N steps; after a failure only the "    \
      "lost ranks start again, and all continue from there")                                       \
    X(strict, FLAG, RUN, FOR_TRAIN, 0, NULL, NULL,                                                 \
      "with --resume: refuse a checkpoint of another processor or other libraries, because bits "  \
      "may change")                                                                                \
    X(profile, FLAG, RUN, (TPB & ~FOR_TUNE), 0, NULL, NULL, "print time by op and by kernel")      \
    X(trace, TEXT, RUN, (TPB & ~FOR_TUNE) | FOR_DRAW, OF_ROOT, "FILE", NULL,                       \
      "write a timeline of the last step with a full batch, for Perfetto and weft draw")           \
    X(draw, TEXT, RUN, FOR_PLAN | FOR_DRAW | FOR_SIMULATE | FOR_ADVISE, 0, "FILE", NULL,           \
      "draw the timeline: .svg, .png or .txt")                                                     \
    X(program, FLAG, RUN, FOR_PLAN, 0, NULL, NULL, "print the program as text")                    \
    X(proof, CHOICE, RUN, FOR_PLAN, 0, "folded|full", "folded",                                    \
      "prove one rank of each class of equal ranks, or every rank")                                \
    X(certificate, TEXT, RUN, FOR_PLAN, 0, "FILE", NULL,                                           \
      "write the certificate for scripts/check-certificate to this file")                          \
    X(json, TEXT, RUN,                                                                             \
      ALL | PEER | FOR_INFO | FOR_SIMULATE | FOR_DRAW | FOR_CONVERT | FOR_GENERATE | FOR_PREDICT | \
          FOR_BENCH_PUBLISHED,                                                                     \
      OF_RANK, "FILE", NULL, "write the report to this file; -: standard output")                  \
    X(csv, TEXT, RUN, FOR_PREDICT, OF_ROOT, "FILE", NULL,                                          \
      "write the rows (input, class, probability) to this file; -: standard output")               \
    X(config, TEXT, RUN, TPBEP, OF_RANK, "FILE", NULL,                                             \
      "read options from a JSON object; the command line overrides it")                            \
    X(deepspeed, TEXT, RUN, TPB, OF_RANK, "FILE", NULL,                                            \
      "read DeepSpeed's configuration as options; refuses keys without a counterpart")             \
    X(timeout, REAL, RUN, FOR_RUN, 0, "SECONDS", NULL,                                             \
      "stop all ranks after this time and exit with status 4")                                     \
    X(grace, REAL, RUN, FOR_TRAIN | FOR_PLAN | FOR_RUN, 0, "SECONDS", NULL,                        \
      "kill ranks that do not stop on request within this time (2); a weft job that still makes "  \
      "progress is killed by a second signal only")                                                \
    X(peers, FLAG, RUN, PEER, 0, NULL, NULL, "measure PyTorch over gloo too, in the same rounds")  \
    X(python, TEXT, RUN, PEER, 0, "PATH", NULL,                                                    \
      "Python with PyTorch, for --peers (the one that bench/setup-peers installs, else python3)")  \
    X(quick, FLAG, RUN, FOR_BENCH_PARALLEL, 0, NULL, NULL,                                         \
      "use fewer and smaller images, splits and repeats: minutes instead of hours")                \
    X(quiet, FLAG, RUN,                                                                            \
      ALL | PEER | FOR_SIMULATE | FOR_DRAW | FOR_CONVERT | FOR_GENERATE | FOR_PREDICT |            \
          FOR_BENCH_PUBLISHED,                                                                     \
      OF_RANK, NULL, NULL, "print errors and the report only")                                     \
    X(verbose, FLAG, RUN, TPBEP, OF_RANK, NULL, NULL,                                              \
      "print the whole recipe; in plan, every rank and part of a unit")                            \
    X(all, FLAG, RUN, FOR_INFO, 0, NULL, NULL, "print all environment variables")                  \
    X(measure, TEXT, RUN, FOR_INFO, 0, "FILE", NULL,                                               \
      "measure this machine and write it as a --cluster file")

typedef enum option_id {
#define OPTION_ENUM(name, kind, group, commands, scope, argument, fallback, help) OPT_##name,
    OPTION_LIST(OPTION_ENUM)
#undef OPTION_ENUM
#define RECIPE_ENUM(type, field, name, kind, words, value, least, most, use, help) OPT_##field,
        WF_RECIPE_FIELDS(RECIPE_ENUM)
#undef RECIPE_ENUM
            N_OPTIONS
} option_id;

typedef struct option {
    const char *key; /* with underscores; see option_name. Two commands may have one key */
    const char *argument, *fallback, *help;
    const char *note; /* behind the default in the help, or NULL */
    size_t offset;    /* into struct options */
    option_kind kind;
    option_group group;
    unsigned commands;
    option_scope scope;
    bool is_open; /* the default depends on other options */
} option;

#define TYPE_FLAG   int
#define TYPE_TEXT   char *
#define TYPE_CHOICE int
#define TYPE_COUNT  int64_t
#define TYPE_REAL   double
#define TYPE_SIZE   size_t
#define TYPE_NAMES  wf_names

typedef struct options {
#define OPTION_FIELD(name, kind, group, commands, scope, argument, fallback, help) TYPE_##kind name;
    OPTION_LIST(OPTION_FIELD)
#undef OPTION_FIELD
    int64_t ranks_least; /* of --ranks A:B; 0: --ranks N */
    wf_recipe recipe;    /* behind the program's own fields */
    bool given[N_OPTIONS];
    bool has_pictures;   /* --data is a folder of them: known when it has been looked at */
    bool names_no_files; /* untrusted source of options: must not name files to open */
    char *table;         /* of recipe.tuned, where an option gave it; owned */
    char tuned_for[200]; /* tuned_place where the table of --kernels was measured; "" none */
    bool is_unreadable;  /* the error is that of a file: the run fails */
    char error[600];     /* the sentence, after a function has returned false */
} options;

/* The description of an option. */
option option_about(option_id id);
/* Its value if it is not given, as text; NULL: there is none, or it depends on other options.
 * `text` has room for TEXT_BYTES. */
const char *option_default(option_id id, char *text);
/* Name i of those that the option's value is one of, NULL past the last or if it has no such list.
 */
const char *option_value_name(option_id id, int i);
extern const char *const option_group_names[N_GROUPS];

void options_init(options *o);
void options_release(options *o);

/* argv[0] is the first word after the command. Reads --config and --deepspeed, too. */
bool options_parse(options *o, unsigned command, int argc, char *const *argv);
/* A JSON object; untrusted. `where` names it in errors. */
bool options_read_json(options *o, unsigned command, const char *text, size_t n, const char *where);
/* Reads the kernels other than the defaults from the table that weft tune has written there. */
bool options_read_kernels(options *o, const char *path);
/* Reads the files of --config and --deepspeed, which `typed` names. */
bool options_read_files(options *o, unsigned command, const options *typed);
/* Writes o->error; returns false. */
bool options_fail(options *o, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "--lr-step"; `text` has room for TEXT_BYTES. */
char *option_name(char *text, option_id id);
/* The option called `name`, - and _ being the same, if there is one of these commands', else of
 * any; N_OPTIONS if there is none. */
option_id option_find(const char *name, unsigned commands);
bool option_is_given(const options *o, option_id id);
bool option_set(options *o, option_id id, const char *text);
/* The value as one would type it; true, false for flags. Returns `text` or the value itself. */
const char *option_text(const options *o, option_id id, char *text);
/* The recipe's `tuned`; the options free it. NULL: no memory left. */
bool options_set_table(options *o, char *table);
/* Why the option would have no effect beside the others; NULL if it has one. */
const char *option_no_use(const options *o, option_id id);

/* Everything the numbers depend on, by option name with _ for -. */
json_t *options_recipe(const options *o);
/* Whether the numbers depend on it: when tests are, too, where these decide on the learning rate.
 */
bool option_is_of_recipe(const options *o, option_id id);

/* The option of `command` with the name nearest to `name`; N_OPTIONS if none is near. */
option_id option_nearest(const char *name, unsigned command);
