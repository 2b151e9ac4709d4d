#include "options/rows.h"

#include <cltrain/data.h>
#include <cltrain/models.h>
#include <cltrain/train.h>

#define AT(field) offsetof(settings, field)
enum {
    RUNS = FOR_TRAIN | FOR_PLAN | FOR_BENCH_STEPS,
    USES = FOR_PREDICT | FOR_SAMPLE,
    MODELS = RUNS | FOR_EVAL | FOR_TUNE,
    SAMPLES = MODELS | FOR_INSPECT | FOR_DATA_INSPECT | FOR_PREDICT | FOR_EXPORT | FOR_BENCH_LOAD,
    TRAINS = FOR_TRAIN | FOR_PLAN,
    RANKS = FOR_TRAIN | FOR_BENCH_TRAIN | FOR_EVAL,
    KERNELS = MODELS | FOR_KERNELS | USES,
    DEVICES = KERNELS | FOR_BENCH_ALLREDUCE | FOR_EXPORT,
    ALL = DEVICES | FOR_DEVICES | FOR_PLOT | FOR_INSPECT | FOR_DATA
};

static const char *optimizer_word(int index)
{
    const char *name = clt_optimizer_name((clt_optimizer)index);
    return *name != '?' ? name : NULL;
}

/* One row for each option: name, letter, kind, place, least value, subcommands, argument, help. The
 * help says what the option does and ends with the default in parentheses. */
const option_row option_rows[] = {
    {"model", 0, TEXT, AT(model), 0, MODELS | FOR_INSPECT | USES | FOR_EXPORT, "NAME",
     "model to build (`cltrain models` lists the names), or a model file NAME.json",
     .word = clt_model_name, .files = FILES_TOO},
    {"data", 0, TEXT, AT(data), 0, MODELS | FOR_INSPECT | FOR_PREDICT | FOR_EXPORT | FOR_BENCH_LOAD,
     "SPEC", "data set: $; plan, bench and inspect also take synthetic[:CxHxW[:CLASSES]]",
     .words = "synthetic", .word = clt_dataset_form, .files = FILES_BEHIND_COLON},
    {"val", 0, TEXT, AT(val), 0, FOR_TRAIN | FOR_DATA_INSPECT, "HOW",
     "samples for validation: a fraction of the training samples, as 0.1, a field of the data that "
     "marks them, or another data set, as images:DIR (none)",
     .files = FILES_BEHIND_COLON},
    {"val-every", 0, TEXT, AT(val_every), 0, FOR_TRAIN, "N|epoch",
     "evaluate the validation samples every N steps, or at the end of each epoch (epoch)",
     .words = "epoch"},
    {"keep-best", 0, TEXT, AT(keep_best), 0, FOR_TRAIN, "METRIC",
     "keep the checkpoint with the best val_loss, val_accuracy, test_loss, ... or loss beside the "
     "newest; the link best in --checkpoint-dir leads to it; min:NAME or max:NAME says which "
     "values are better",
     .words = "val_loss val_accuracy test_loss test_accuracy loss"},
    {"patience", 0, WHOLE, AT(patience), 1, FOR_TRAIN, "N",
     "end the run when N evaluations in a row are no better than those before"},
    {"min-delta", 0, NUMBER, AT(min_delta), 0, FOR_TRAIN, "X",
     "with --patience: an evaluation is better if it improves by more than X (0)"},
    {"monitor", 0, TEXT, AT(monitor), 0, FOR_TRAIN, "METRIC",
     "metric that --patience and --schedule plateau watch (that of --keep-best, else val_loss)",
     .words = "val_loss val_accuracy test_loss test_accuracy loss"},
    {"classes", 0, WHOLE, AT(classes), 1, SAMPLES, "N",
     "number of classes, or tokens in the vocabulary, if the data do not say it (largest label "
     "+ 1)"},
    {"seq-len", 0, WHOLE, AT(seq_len), 1, SAMPLES, "T",
     "tokens in a sample of text (the checkpoint's length, else 1024)"},
    {"windows", 0, TEXT, AT(windows), 0, RUNS | FOR_BENCH_LOAD, "HOW",
     "where training samples of text begin: fixed, shifted by another offset each epoch, random, "
     "or "
     "continued where the batch before ended; lstm then keeps its states (shifted)",
     .words = "fixed shifted random continued"},
    {"image-size", 0, WHOLE, AT(image_size), 1, SAMPLES, "N",
     "height and width of the images of images:DIR (the checkpoint's size, else 224)"},
    {"resize", 0, WHOLE, AT(resize), 1, SAMPLES, "N",
     "length of an image's shorter side before the crop, for images:DIR (8/7 of --image-size)"},
    {"augment", 0, TEXT, AT(augment), 0, RUNS | FOR_BENCH_LOAD, "LIST",
     "change training images at random: crop[:PADDING], flip, and for images:DIR "
     "resized-crop[:AREA] (none)",
     .words = "crop flip crop,flip resized-crop,flip"},
    {"class-weights", 0, TEXT, AT(class_weights), 0, FOR_TRAIN, "HOW",
     "weights of the classes in the loss: balanced by their training samples, or w0,w1,... (all 1)",
     .words = "balanced"},
    {"sample-weights", 0, TEXT, AT(sample_weights), 0, FOR_TRAIN, "HOW",
     "draw training samples with replacement, by weights: balanced gives each class the same "
     "chance, or a field with a number for each sample (each sample once an epoch)",
     .words = "balanced"},
    {"tokenizer", 0, TEXT, AT(tokenizer), 0, FOR_TOKENIZE | FOR_SAMPLE, "NAME",
     "tokenizer: bytes, or gpt2:DIR, a folder with vocab.json and merges.txt",
     .words = "bytes gpt2:", .files = FILES_BEHIND_COLON},
    {"prompt", 0, TEXT, AT(prompt), 0, FOR_SAMPLE, "TEXT",
     "beginning of the text (the token between texts; with bytes, a newline)"},
    {"prompt-file", 0, TEXT, AT(prompt_file), 0, FOR_SAMPLE, "FILE",
     "read the beginning of the text from a file"},
    {"tokens", 0, WHOLE, AT(tokens), 1, FOR_SAMPLE, "N", "most tokens to generate (200)"},
    {"samples", 0, WHOLE, AT(samples), 1, FOR_SAMPLE, "N",
     "texts to generate side by side; they are printed at the end, with a line --- between them "
     "(1)"},
    {"raw", 0, FLAG, AT(raw), 0, FOR_SAMPLE, NULL,
     "print the bytes of the text as they are, instead of escaping control characters as \\x1b"},
    {"ids", 0, FLAG, AT(ids), 0, FOR_SAMPLE, NULL,
     "print the numbers of the tokens, one text a line, instead of text"},
    {"greedy", 0, FLAG, AT(greedy), 0, FOR_SAMPLE, NULL, "always take the most probable token"},
    {"temperature", 0, NUMBER, AT(temperature), 0, FOR_SAMPLE, "X",
     "divide the logits by X; 0 is --greedy (1)"},
    {"top-k", 0, WHOLE, AT(top_k), 1, FOR_SAMPLE, "K",
     "draw from the K most probable tokens (from all)"},
    {"top-p", 0, NUMBER, AT(top_p), 0, FOR_SAMPLE, "P",
     "draw from the fewest tokens whose probabilities add up to P (1)"},
    {"top", 0, WHOLE, AT(top), 1, FOR_PREDICT | FOR_EVAL, "N",
     "print the N most probable classes (1); eval --report: the accuracy of the N best"},
    {"report", 0, FLAG, AT(report), 0, FOR_EVAL, NULL,
     "print precision, recall, F1 and AUC of each class and their means; of predicted numbers: "
     "MAE, "
     "MSE, RMSE and R2"},
    {"confusion", 0, FLAG, AT(confusion), 0, FOR_EVAL, NULL,
     "print how often each class was predicted for each label; with -o FILE.png also draw it"},
    {"devices", 0, TEXT, AT(devices), 0, DEVICES, "LIST",
     "devices, separated by commas: all, gpu, cpu, PLATFORM[:INDEX] or INDEX (a row of `cltrain "
     "devices`); /N takes N equal parts of a device, @C takes C of its cores",
     .words = "all gpu cpu"},
    {"batch", 0, WHOLE, AT(batch), 1, MODELS | FOR_PREDICT | FOR_BENCH_LOAD, "N",
     "samples in a batch, over all ranks and devices (256; predict and bench load: 64)"},
    {"global-batch", 0, TEXT, AT(global_batch), 0, FOR_TRAIN, "HOW",
     "batch of a run that resumes on another number of devices: fixed, or scaled with the devices "
     "from --batch at its start, and the rate with it; --steps and --schedule then count steps of "
     "--batch (fixed)",
     .words = "fixed scaled"},
    {"oversubscribe", 0, FLAG, AT(oversubscribe), 0, RANKS | FOR_BENCH_ALLREDUCE, NULL,
     "under mpiexec: every rank uses all of --devices; otherwise the node's ranks share them out"},
    {"mpi", 0, FLAG, AT(mpi), 0, RANKS | FOR_BENCH_ALLREDUCE, NULL,
     "initialise MPI even if no process manager is recognised"},
    {"comm-timeout", 0, NUMBER, AT(comm_timeout), 0, RANKS, "SECONDS",
     "end the run if a device or rank is late for a reduction by so long; 0: wait for ever (60)"},
    {"setup-timeout", 0, NUMBER, AT(setup_timeout), 0, RANKS | FOR_BENCH_ALLREDUCE, "SECONDS",
     "end the run if a rank is late by so long before training or between steps; 0: wait for ever "
     "(600)"},
    {"accumulate", 0, WHOLE, AT(accumulate), 1, RUNS | FOR_TUNE, "K",
     "split each batch into K micro-batches, to save memory (1)"},
    {"virtual-shards", 0, WHOLE, AT(virtual_shards), 1, RUNS | FOR_EVAL, "V",
     "sum over V equal shards of each batch in a fixed order, so that any number of devices and "
     "ranks gives the same bits; V is a power of two, at least the number of devices"},
    {"in-flight", 0, WHOLE, AT(in_flight), 1, FOR_TRAIN | FOR_PLAN | FOR_BENCH_MESHES, "N",
     "micro-batches whose forward pass runs before backward of the first; in a pipeline K of "
     "--accumulate is GPipe (as many as 1F1B needs)"},
    {"epochs", 0, WHOLE, AT(epochs), 0, TRAINS, "N", "end after N epochs in all (1)"},
    {"steps", 0, WHOLE, AT(steps), 1, RUNS, "N",
     "end after N steps in all; bench: steps in each timed block (50; meshes: 5)"},
    {"optimizer", 0, TEXT, AT(optimizer), 0, RUNS, "NAME", "optimizer: $ (sgd)",
     .word = optimizer_word},
    {"lr", 0, NUMBER, AT(lr), 0, RUNS, "X",
     "learning rate (0.1; adam and adamw: 0.001; rmsprop and adagrad: 0.01; lion: 0.0001; "
     "muon: 0.02)"},
    {"momentum", 0, NUMBER, AT(momentum), 0, RUNS, "X",
     "momentum of the optimizers momentum, nesterov, rmsprop and muon (0.9; rmsprop: 0; "
     "muon: 0.95)"},
    {"betas", 0, TEXT, AT(betas), 0, RUNS, "B1,B2",
     "decay rates of the averages of adam, adamw, lion and muon's AdamW (0.9,0.999; "
     "lion: 0.9,0.99; muon: 0.9,0.95)"},
    {"eps", 0, NUMBER, AT(eps), 0, RUNS, "X",
     "epsilon of adam, adamw, rmsprop, adagrad and muon's AdamW (1e-8; adagrad and muon: 1e-10)"},
    {"alpha", 0, NUMBER, AT(alpha), 0, RUNS, "X",
     "rmsprop: part of the mean square that a step keeps (0.99)"},
    {"centered", 0, FLAG, AT(centered), 0, RUNS, NULL,
     "rmsprop: divide by the deviation of gradients instead of their root mean square"},
    {"lr-decay", 0, NUMBER, AT(lr_decay), 0, RUNS, "X",
     "adagrad: step t = 0, 1, ... has the rate lr / (1 + t X) (0)"},
    {"initial-accumulator", 0, NUMBER, AT(initial_accumulator), 0, RUNS, "X",
     "adagrad: with which its sums of squares begin (0)"},
    {"adamw-lr", 0, NUMBER, AT(adamw_lr), 0, RUNS, "X",
     "muon: learning rate of the parameters that it leaves to AdamW (0.0003)"},
    {"muon-adamw", 0, TEXT, AT(muon_adamw), 0, RUNS, "PATTERN",
     "muon: matrices that AdamW updates, by shell patterns of names separated by |; muon updates "
     "all others (embeddings and the last layers)"},
    {"muon-scale", 0, TEXT, AT(muon_scale), 0, RUNS, "NAME",
     "muon: how steps depend on the size of a matrix: original or match_rms_adamw, with which "
     "rates of AdamW suit (original)",
     .words = "original match_rms_adamw"},
    {"weight-decay", 0, NUMBER, AT(weight_decay), 0, RUNS, "X",
     "weight decay of all parameters (0)"},
    {"freeze", 0, EITHER, AT(freeze), 0, RUNS, "PATTERN",
     "do not train the parameters whose names match: shell patterns separated by |, 1d for all of "
     "one dimension; '!fc.*' is all but those of layer fc",
     .words = "1d"},
    {"param-group", 0, LIST, AT(param_group), 0, RUNS, "PATTERN:lr=X,decay=Y",
     "multiply the learning rate of matching parameters by X and give them weight decay Y; "
     "1d:decay=0 exempts biases and norms from decay; can be repeated",
     .words = "1d:decay=0"},
    {"schedule", 0, TEXT, AT(schedule), 0, RUNS, "SPEC",
     "course of the learning rate: constant, step:EVERY:FACTOR, cosine[:MIN], or "
     "plateau:FACTOR:PATIENCE[:MIN], which multiplies it when more than PATIENCE evaluations in a "
     "row are no better; each with ,warmup:STEPS if wanted (constant)",
     .words = "constant step: cosine cosine,warmup: plateau:"},
    {"average", 0, TEXT, AT(average), 0, FOR_TRAIN | FOR_PLAN, "HOW",
     "keep averages of the weights, and evaluate and save them too: ema:DECAY, or "
     "swa:FROM[:EVERY], "
     "the mean after every EVERY steps from step FROM on (none)",
     .words = "ema: swa:"},
    {"averaged", 0, FLAG, AT(averaged), 0, FOR_EVAL | USES, NULL,
     "take the averages of the weights that the checkpoint has (train --average)"},
    {"clip-norm", 0, NUMBER, AT(clip_norm), 0, RUNS, "X",
     "scale the gradient down to norm X if it is larger; 0: never (0)"},
    {"no-guard", 0, FLAG, AT(no_guard), 0, RUNS, NULL,
     "go on after a step whose loss or gradient is not finite"},
    {"parallel", 0, TEXT, AT(parallel), 0, FOR_TRAIN | FOR_PLAN | FOR_EVAL | USES, "MESH",
     "mesh of all ranks' devices, as dp=2,tp=2: dp has other samples, tp parts of layers, pp other "
     "layers, space other rows, time other parts of sequences, local replicas of their own; the "
     "last axis varies fastest; dp=* or local=*: all that are left; auto: the fastest mesh (all "
     "are "
     "dp)",
     .words = "auto dp= tp= pp= space= time= local="},
    {"sync-every", 0, TEXT, AT(sync_every), 0, FOR_TRAIN | FOR_PLAN, "N|SECONDS",
     "needed with local: average replicas every N steps, or every 2s. For plan --simulate: steps "
     "(8)"},
    {"outer", 0, TEXT, AT(outer), 0, FOR_TRAIN, "HOW",
     "with local: average, momentum or nesterov, which take :lr=X,momentum=Y (average; 0.7, 0.9)"},
    {"stages", 0, EITHER, AT(stages), 0, FOR_TRAIN | FOR_PLAN | FOR_EVAL | FOR_BENCH_MESHES | USES,
     "PATTERN",
     "with pp: layers at which stages begin, by shell patterns of names separated by |, one for "
     "each stage but the first; or measured: cuts of the model that balance the measured times "
     "(those that balance the arithmetic)",
     .words = "measured"},
    {"zero", 0, WHOLE, AT(zero), 0, RUNS | FOR_EVAL | USES, "N",
     "1: each device keeps the optimizer's state of its share of the parameters only, with the "
     "same results; 3: of parameters and gradients too it keeps only its share; without training "
     "0 or 3 (0)"},
    {"offload", 0, TEXT, AT(offload), 0, RUNS, "optimizer[:K]",
     "the last of the devices (of each rank's, or the last K), a CPU, has no samples: it keeps the "
     "optimizer's state and updates the parameters of the others",
     .words = "optimizer"},
    {"async", 0, WHOLE, AT(async), 0, FOR_TRAIN, "S",
     "asynchronous training with a parameter server, under cltrain-launch: gradients of parameters "
     "that are at most S versions old are applied, older ones discarded and their samples dealt "
     "again"},
    {"servers", 0, WHOLE, AT(servers), 1, FOR_TRAIN, "N",
     "with --async: processes that hold the parameters, in equal ranges of bytes (1)"},
    {"holder", 0, WHOLE, AT(holder), 0, FOR_TRAIN, "I",
     "with --async: this process is holder I; holder 0 also deals batches, evaluates and saves"},
    {"worker", 0, WHOLE, AT(worker), 0, FOR_TRAIN, "K",
     "with --async: this process is worker K, which replaces an earlier one of this number"},
    {"listen", 0, TEXT, AT(listen), 0, FOR_TRAIN, "ADDRESS:PORT",
     "with --holder: where to listen; port 0: any"},
    {"reach", 0, TEXT, AT(reach), 0, FOR_TRAIN, "HOST",
     "with --holder: the name by which others reach this host (ADDRESS of --listen)"},
    {"join", 0, TEXT, AT(join), 0, FOR_TRAIN, "HOST:PORT",
     "with --worker and --holder: the address of holder 0"},
    {"events", 0, TEXT, AT(events), 0, FOR_TRAIN, "FILE",
     "with --async: JSON lines of every deal, pull and push; holder I writes FILE.I"},
    {"recompute", 0, FLAG, AT(recompute), 0, RUNS, NULL,
     "use the least memory: the backward pass computes activations again instead of keeping them, "
     "with the same bits"},
    {"memory", 0, TEXT, AT(memory), 0, RUNS, "SIZE",
     "most memory on each device, as 8GB or 512MiB; recomputes as few activations as fit into it"},
    {"seed", 0, WHOLE, AT(seed), 0, RUNS | FOR_SAMPLE | FOR_DATA_INSPECT | FOR_BENCH_LOAD, "N",
     "seed of initialisation, order, augmentation, dropout and --val, or of what sample draws (the "
     "run's "
     "with --resume, else 0)"},
    {"shuffle", 0, TEXT, AT(shuffle), 0, FOR_TRAIN, "on|off",
     "read the samples in a new order each epoch (on)", .words = "on off"},
    {"drop-last", 0, FLAG, AT(drop_last), 0, FOR_TRAIN, NULL,
     "leave out an epoch's last batch if it has fewer samples than the others"},
    {"init", 0, TEXT, AT(init), 0, FOR_TRAIN, "PATH",
     "start from the parameters of a .safetensors file, of a checkpoint, or of the newest "
     "checkpoint of a run"},
    {"init-skip", 0, EITHER, AT(init_skip), 0, FOR_TRAIN, "PATTERN",
     "with --init: initialise the parameters anew whose names match, as 'fc.*' for a head with "
     "other classes; patterns as for --freeze",
     .words = "1d"},
    {"lora", 0, LIST, AT(lora), 0, MODELS | USES | FOR_EXPORT, "PATTERN:RANK[:ALPHA]",
     "train low-rank adapters of the linear layers whose names match, and nothing else; their "
     "product counts ALPHA / RANK times (RANK: once); can be repeated; a checkpoint knows its own"},
    {"lora-dropout", 0, NUMBER, AT(lora_dropout), 0, RUNS, "P",
     "probability with which inputs of adapters become zero in training (0)"},
    {"merge-lora", 0, FLAG, AT(merge_lora), 0, FOR_EXPORT, NULL,
     "add the adapters to the weights of their layers"},
    {"adapter", 0, FLAG, AT(adapter), 0, FOR_EXPORT, NULL,
     "write the adapters alone: adapter_model.safetensors and adapter_config.json"},
    {"precision", 0, TEXT, AT(precision), 0, MODELS | FOR_SAMPLE | FOR_BENCH_GEMM, "TYPE",
     "type in which values and gradients of layers are stored, the matrices of sample's gpt2, or "
     "values of samples in a product: f32, bf16 or f16 (f32)",
     .words = "f32 bf16 f16"},
    {"wire", 0, TEXT, AT(wire), 0, RUNS, "TYPE",
     "type in which gradients travel, with error feedback: f32, bf16 or f16 (f32: as they are); "
     "beside local: in which replicas send their parameters",
     .words = "f32 bf16 f16"},
    {"normalize", 0, TEXT, AT(normalize), 0, MODELS | FOR_PREDICT | FOR_BENCH_LOAD, "MEAN,STD",
     "subtract MEAN from image bytes divided by 255, then divide by STD; or give a mean for each "
     "channel, then a deviation for each (0,1)"},
    {"cache-dir", 0, TEXT, AT(cache_dir), 0, DEVICES | FOR_DEVICES, "DIR",
     "folder for compiled kernels and tuning records (~/.cache/cltrain)"},
    {"checkpoint-dir", 0, TEXT, AT(checkpoint_dir), 0, FOR_TRAIN, "DIR",
     "folder to save checkpoints in (none are saved)"},
    {"checkpoint-every", 0, TEXT, AT(checkpoint_every), 0, FOR_TRAIN, "N|epoch",
     "save a checkpoint every N steps, or each epoch (at the end, and if stopped)",
     .words = "epoch"},
    {"resume", 0, FLAG, AT(resume), 0, FOR_TRAIN, NULL,
     "continue from the newest checkpoint in --checkpoint-dir, or start if there is none"},
    {"resume-intact", 0, FLAG, AT(resume_intact), 0, FOR_TRAIN, NULL,
     "as --resume, but pass over damaged checkpoints"},
    {"keep", 0, WHOLE, AT(keep), 0, FOR_TRAIN, "K", "keep the newest K checkpoints; 0: all (3)"},
    {"metrics", 0, TEXT, AT(metrics), 0, FOR_TRAIN, "FILE",
     "write JSON lines: an object for each step and each epoch; --resume appends to the file"},
    {"tensorboard", 0, TEXT, AT(tensorboard), 0, FOR_TRAIN, "DIR",
     "write the numbers of --metrics for TensorBoard too, to a new file in this folder"},
    {"profile", 0, TEXT, AT(profile), 0, FOR_TRAIN, "FILE",
     "write a Chrome trace of every kernel and transfer (chrome://tracing, ui.perfetto.dev)"},
    {"first-step", 0, FLAG, AT(first_step), 0, FOR_TRAIN, NULL,
     "print where the time until the end of the first step went"},
    {"compile-processes", 0, WHOLE, AT(compile_processes), 0, FOR_TRAIN, "N",
     "processes that compile kernels for devices that compile late (PoCL); 0: this one (as many as "
     "cores, at most 8)"},
    {"heartbeat", 0, TEXT, AT(heartbeat), 0, FOR_TRAIN, "DIR",
     "keep a file rank-N that tells where rank N is, for cltrain-launch"},
    {"tune", 0, TEXT, AT(tune), 0, FOR_TRAIN | FOR_BENCH_STEPS | FOR_KERNELS, "off|SECONDS",
     "most time for measuring kernels of new shapes before step 1 (10 before long runs, else after "
     "the run; bench: off)",
     .words = "off"},
    {"variant", 0, TEXT, AT(variant), 0, KERNELS, "OP=NAME,...",
     "kernel variants to use for operators where they accept the shape; see plan --explain"},
    {"merge-launches", 0, TEXT, AT(merge_launches), 0, RUNS | FOR_SAMPLE, "auto|on|off",
     "make one launch of consecutive small ones, on CPUs; auto: where launches take a part of a "
     "step that counts; without this option also only if the run repays compiling (auto; sample: "
     "on)",
     .words = "auto on off"},
    {"check-every", 0, WHOLE, AT(check_every), 0, FOR_TRAIN, "K",
     "compare the replicas on several devices every K steps; 0: never (100)"},
    {"checkpoint", 0, TEXT, AT(checkpoint), 0, FOR_EVAL | USES | FOR_EXPORT, "DIR",
     "folder of a run (its newest checkpoint), folder of a checkpoint, or .safetensors file"},
    {"explain", 0, FLAG, AT(explain), 0, FOR_PLAN, NULL,
     "print why each kernel variant was chosen, and the program of a step"},
    {"split", 0, TEXT, AT(split), 0, FOR_TRAIN | FOR_BENCH_TRAIN, "HOW",
     "division of a batch among devices: measured (by their speed), equal, or weights as 2,1 "
     "(measured)",
     .words = "measured equal"},
    {"rebalance", 0, FLAG, AT(rebalance), 0, FOR_TRAIN | FOR_BENCH_TRAIN, NULL,
     "divide batches anew during training when a device becomes slower or faster"},
    {"replay", 0, TEXT, AT(replay), 0, FOR_TRAIN, "FILE",
     "divide batches as the run did that wrote this file of --metrics"},
    {"simulate", 0, TEXT, AT(simulate), 0, FOR_PLAN, "N,...",
     "predict the time of a step on N ranks, each with these devices and --batch samples; with "
     "--inter: rank the meshes of N devices"},
    {"link", 0, TEXT, AT(link), 0, FOR_PLAN, "RATE,LATENCY",
     "network between the simulated ranks, or with --inter between devices of a node, as "
     "25GB/s,5us"},
    {"inter", 0, TEXT, AT(inter), 0, FOR_PLAN, "RATE,LATENCY",
     "link of a node to others, which its devices share, for --simulate of meshes, as 1GB/s,30us"},
    {"per-node", 0, WHOLE, AT(per_node), 1, FOR_PLAN, "N", "devices of a simulated node (8)"},
    {"blocks", 0, WHOLE, AT(blocks), 1, FOR_BENCH, "N", "timed blocks of each measurement (9)"},
    {"warmup", 0, WHOLE, AT(warmup), 1, FOR_BENCH_STEPS, "N",
     "train: steps before the first block (20); meshes: before each block (1)"},
    {"by-node", 0, FLAG, AT(by_node), 0, FOR_BENCH_TRAIN, NULL,
     "train: print the time of each kernel in a step"},
    {"predict", 0, FLAG, AT(predict), 0, FOR_BENCH_TRAIN, NULL,
     "train: print what the planner predicts beside what is measured"},
    {"budget", 0, NUMBER, AT(budget), 0, FOR_TUNE, "SECONDS",
     "time for measuring on each device (60)"},
    {"export", 0, TEXT, AT(export_file), 0, FOR_TUNE, "FILE",
     "write the device's record, in the form of clkernels/tuning"},
    {"trans", 0, TEXT, AT(trans), 0, FOR_BENCH_GEMM, "NN|NT|TN|TT",
     "gemm: which operands are transposed (NN, NT and TN, one after the other)",
     .words = "NN NT TN TT"},
    {"compare", 0, FLAG, AT(compare), 0, FOR_BENCH_GEMM | FOR_BENCH_ALLREDUCE, NULL,
     "measure another library by turns: OpenBLAS for gemm, MPI_Allreduce for allreduce"},
    {"staged", 0, FLAG, AT(staged), 0, FOR_BENCH_ALLREDUCE, NULL,
     "allreduce: copy through staging buffers even if buffers can be mapped"},
    {"peer", 0, FLAG, AT(peer), 0, FOR_BENCH_ALLREDUCE, NULL,
     "allreduce: copy from device to device, without the host"},
    {"share-context", 0, FLAG, AT(share_context), 0,
     FOR_TRAIN | FOR_BENCH_TRAIN | FOR_BENCH_ALLREDUCE, NULL,
     "make one OpenCL context for all devices of a platform, so that GPUs can copy from each "
     "other"},
    {"stride", 0, WHOLE, AT(stride), 1, FOR_BENCH_CONV, "N", "conv: stride (1)"},
    {"padding", 0, WHOLE, AT(padding), 0, FOR_BENCH_CONV, "N", "conv: padding (0)"},
    {"dilation", 0, WHOLE, AT(dilation), 1, FOR_BENCH_CONV, "N", "conv: dilation (1)"},
    {"groups", 0, WHOLE, AT(groups), 1, FOR_BENCH_CONV, "N", "conv: groups of channels (1)"},
    {"output", 'o', TEXT, AT(output), 0,
     FOR_PLOT | FOR_TOKENIZE | FOR_PREDICT | FOR_EVAL | FOR_EXPORT, "FILE",
     "file to write: plot and eval --confusion: a PNG picture; data tokenize: tokens, .bin; "
     "predict: classes, .csv or .json, or all outputs, .npz; export: a .safetensors file, or the "
     "folder of --adapter"},
    {"json", 0, FLAG, AT(json), 0,
     FOR_DEVICES | FOR_BENCH | FOR_EVAL | FOR_TUNE | FOR_INSPECT | FOR_DATA_INSPECT | FOR_PREDICT,
     NULL, "print JSON"},
    {"quiet", 'q', FLAG, AT(quiet), 0, FOR_TRAIN | FOR_SAMPLE, NULL, "print nothing but failures"},
    {"help", 'h', FLAG, AT(help), 0, ALL, NULL, "print this text"},
};

enum { ROWS = sizeof option_rows / sizeof *option_rows };
_Static_assert((int)ROWS < (int)COMPARED, "ranks compare a number a row, and one more");
const int option_row_count = ROWS;
