/* Writes the programs of a device: the instructions that each call of a trainer executes. */
#include "train/program/generate.h"

#include "base/vec.h"

typedef clt_program_writer writer;

clt_load clt_load_of(int rounds, int micro_batches)
{
    if (!rounds)
        return CLT_LOAD_NONE;
    if (!micro_batches)
        return rounds == 1 ? CLT_LOAD_EMPTY_ONE : CLT_LOAD_EMPTY_MANY;
    return rounds == 1 ? CLT_LOAD_ONE : CLT_LOAD_MANY;
}

static bool is_empty(clt_load load)
{
    return load == CLT_LOAD_NONE || load == CLT_LOAD_EMPTY_ONE || load == CLT_LOAD_EMPTY_MANY;
}

void clt_write(writer *w, clt_instruction i)
{
    i.ahead = w->ahead;
    if (w->status == CLT_OK)
        w->status = CLT_PUSH(w->out->code, w->out->n, w->out->room, i);
}

void clt_write_plain(writer *w, clt_instruction_kind kind, int micro, int version)
{
    clt_write(w, (clt_instruction){
                     .kind = kind, .item = -1, .micro = micro, .version = version, .peer = -1});
}

static int last_of(const writer *w)
{
    return clt_load_is_many(w->load) ? CLT_MICRO_LAST : 0;
}

static bool reduces(const writer *w)
{
    return clt_input_parts(w->in) > 1;
}

/* Returns the version of means or gradients that are reduced, or are not. */
static int reduced(const writer *w, bool reduces_them)
{
    return reduces_them ? CLT_VERSION_REDUCED : last_of(w);
}

/* --- collectives ----------------------------------------------------------------------------- */

void clt_write_collective(writer *w, int group, clt_instruction_kind kind, clt_operand on, int item,
                          int micro, int version, int peer)
{
    clt_write(w, (clt_instruction){.kind = kind,
                                   .on = on,
                                   .item = item,
                                   .micro = micro,
                                   .version = version,
                                   .group = group,
                                   .peer = peer});
}

/* Adds a collective of the devices that divide the samples. */
static void collective(writer *w, clt_instruction_kind kind, clt_operand on, int item, int micro,
                       int version, int peer)
{
    clt_write_collective(w, clt_group_along(w->in, CLT_AXIS_SAMPLES), kind, on, item, micro,
                         version, peer);
}

void clt_write_start_gradient(writer *w, int bucket)
{
    if (clt_input_reduces(w->in))
        collective(w, CLT_DO_START, CLT_ON_GRADIENT, bucket, last_of(w), last_of(w),
                   clt_input_owner(w->in, bucket));
}

static void start_gradients(writer *w)
{
    for (int r = 0; r < w->in->plan->n_ready; r++)
        clt_write_start_gradient(w, w->in->plan->ready[r]);
}

/* Starts reducing everything that the forward pass produced. These collectives start before the
 * first bucket's. */
static void start_forward(writer *w)
{
    if (clt_input_shares_results(w->in))
        clt_write_collective(w, clt_group_results(w->in), CLT_DO_START, CLT_ON_RESULTS, -1,
                             last_of(w), last_of(w), -1);
    if (w->in->means && reduces(w))
        collective(w, CLT_DO_START, CLT_ON_MEANS, -1, last_of(w), last_of(w), -1);
}

static void complete_results(writer *w)
{
    if (clt_input_shares_results(w->in))
        clt_write_collective(w, clt_group_results(w->in), CLT_DO_COMPLETE, CLT_ON_RESULTS, -1,
                             last_of(w), CLT_VERSION_REDUCED, -1);
}

static void complete_means(writer *w)
{
    if (w->in->means && reduces(w))
        collective(w, CLT_DO_COMPLETE, CLT_ON_MEANS, -1, last_of(w), CLT_VERSION_REDUCED, -1);
}

/* --- micro-batches --------------------------------------------------------------------------- */

static void train_micro(writer *w, int micro, bool reduce)
{
    clt_write_forward(w, micro);
    if (reduce && micro == last_of(w))
        start_forward(w);
    clt_write_backward(w, micro, reduce && !clt_load_is_many(w->load));
}

/* Calls body(micro-batch) for the first, each further and the last micro-batch. */
static void each_micro(writer *w, void (*body)(writer *w, int micro))
{
    if (w->load == CLT_LOAD_NONE)
        return;
    body(w, 0);
    if (!clt_load_is_many(w->load))
        return;
    w->out->loop_first = w->out->n;
    body(w, CLT_MICRO_EACH);
    w->out->loop_end = w->out->n;
    w->out->behind = 1;
    body(w, CLT_MICRO_LAST);
}

/* Waits first: the caller's inputs may not be written yet, and results may still be read. */
static void wait(writer *w)
{
    clt_write_plain(w, CLT_DO_WAIT, 0, CLT_VERSION_ANY);
}

/* --- a training step ------------------------------------------------------------------------- */

static bool reduces_early(const writer *w)
{
    return reduces(w) && !w->in->deferred;
}

static void step_micro(writer *w, int micro)
{
    train_micro(w, micro, reduces_early(w));
}

/* Rounds without samples write any gradients. With zero 3 they write what the other devices have
 * added up, so the gradients are zeroed before them. */
static bool zeroes_behind(const writer *w)
{
    return is_empty(w->load) && w->in->in_flight && !w->in->mesh.zero;
}

static void flights(writer *w)
{
    clt_write_flights(w);
    if (zeroes_behind(w))
        clt_write_plain(w, CLT_DO_ZERO, last_of(w), CLT_VERSION_ANY);
    if (!w->in->deferred)
        start_forward(w);
}

static void gradients(writer *w)
{
    const bool reduce = reduces_early(w);
    if (w->load == CLT_LOAD_NONE)
        clt_write_idle(w);
    if (is_empty(w->load) && !zeroes_behind(w))
        clt_write_plain(w, CLT_DO_ZERO, 0, CLT_VERSION_ANY);
    if (w->load == CLT_LOAD_NONE && reduce)
        start_forward(w);
    if (w->in->in_flight)
        flights(w);
    else
        each_micro(w, step_micro);
    if (clt_load_is_many(w->load) && w->in->half && !w->in->tree && !zeroes_behind(w))
        clt_write_plain(w, CLT_DO_ROUND, CLT_MICRO_LAST, CLT_MICRO_LAST);
    clt_write_tied(w, last_of(w));
    if (reduce && (w->load == CLT_LOAD_NONE || clt_load_is_many(w->load)))
        start_gradients(w);
}

/* With `streams`, each bucket is updated when its reduction ends. */
static void complete_gradients(writer *w, bool streams)
{
    const clt_step_program_input *in = w->in;
    for (int r = 0; clt_input_reduces(in) && r < in->plan->n_ready; r++) {
        const int bucket = in->plan->ready[r];
        collective(w, CLT_DO_COMPLETE, CLT_ON_GRADIENT, bucket, last_of(w), CLT_VERSION_REDUCED,
                   clt_input_owner(in, bucket));
        if (streams && clt_input_updates(in, bucket))
            clt_write(w, (clt_instruction){.kind = CLT_DO_UPDATE,
                                           .item = bucket,
                                           .micro = last_of(w),
                                           .version = CLT_VERSION_REDUCED,
                                           .peer = -1});
    }
}

/* Adds an instruction that uses the step's norm and votes, and says where they are from. */
static void of_norm(writer *w, clt_instruction_kind kind, int micro, int version, clt_operand from)
{
    clt_write(
        w,
        (clt_instruction){
            .kind = kind, .on = from, .item = -1, .micro = micro, .version = version, .peer = -1});
}

/* Shares the norm and votes of all devices, if they do not come with the reductions. */
static void share_words(writer *w, clt_operand from)
{
    if (from == CLT_ON_NONE)
        return;
    of_norm(w, CLT_DO_WORDS, last_of(w), reduced(w, clt_input_reduces(w->in)), from);
    clt_write_collective(w, CLT_GROUP_ALL, CLT_DO_START, CLT_ON_WORDS, -1, 0, CLT_VERSION_NEW, -1);
    clt_write_collective(w, CLT_GROUP_ALL, CLT_DO_COMPLETE, CLT_ON_WORDS, -1, 0, CLT_VERSION_NEW,
                         -1);
}

static clt_operand source_of_norm(const writer *w)
{
    return clt_input_has_words(w->in) ? CLT_ON_WORDS : CLT_ON_NONE;
}

/* A rank that cannot read its samples can make all ranks drop the step. */
static void may_leave(writer *w, clt_operand from)
{
    if (w->in->ranks > 1)
        of_norm(w, CLT_DO_LEAVE, 0, CLT_VERSION_REDUCED, from);
}

/* With `leaves`, a rank that cannot read its samples can make all ranks drop the step. Gradients
 * that the caller has `given` are measured, because no reduction has. */
static void status(writer *w, bool leaves, bool given)
{
    const clt_step_program_input *in = w->in;
    const clt_operand from = given ? CLT_ON_GRADIENT : source_of_norm(w);
    if (in->participants == 1) {
        clt_write_plain(w, CLT_DO_STATUS, last_of(w), last_of(w));
        return;
    }
    share_words(w, from);
    if (leaves)
        may_leave(w, from);
    of_norm(w, CLT_DO_STATUS, last_of(w), CLT_VERSION_REDUCED, from);
}

/* States are sent too if steps change them and kernels of other devices round differently. */
static bool ships(const clt_step_program_input *in, int bucket)
{
    return in->layout->buckets[bucket].state ? in->unlike && in->plan->n_assigns > 0 : in->sharded;
}

/* Gathers the shards of parameters, or sends them from their owner. A bucket of states comes from
 * one device. */
static void ship(writer *w)
{
    static const clt_instruction_kind kinds[] = {CLT_DO_START, CLT_DO_COMPLETE};
    for (int k = 0; k < 2; k++)
        for (int b = 0; b < w->in->layout->n_buckets; b++)
            if (ships(w->in, b))
                collective(w, kinds[k], CLT_ON_VALUES, b, 0, CLT_VERSION_NEW,
                           w->in->layout->buckets[b].state ? clt_states_sender(w->in, b)
                                                           : clt_input_owner(w->in, b));
}

static bool updates(const clt_step_program_input *in)
{
    bool any = false;
    for (int b = 0; b < in->layout->n_buckets; b++)
        any = any || clt_input_updates(in, b);
    return any;
}

static void read_results(writer *w)
{
    clt_write_plain(w, CLT_DO_READ_RESULTS, last_of(w),
                    clt_input_shares_results(w->in) ? CLT_VERSION_REDUCED : last_of(w));
    clt_write_plain(w, CLT_DO_FLUSH, 0, CLT_VERSION_ANY);
}

static void commit(writer *w, bool updated)
{
    const clt_step_program_input *in = w->in;
    clt_write_plain(w, CLT_DO_COMMIT, 0, CLT_VERSION_ANY);
    if (!updated && updates(in))
        clt_write_plain(w, CLT_DO_UPDATE, 0, reduced(w, clt_input_reduces(in)));
    if (in->plan->n_assigns)
        clt_write_plain(w, CLT_DO_ASSIGN, in->in_flight ? last_of(w) : 0,
                        reduced(w, in->means && reduces(w)));
    ship(w);
    if (in->averages)
        clt_write_plain(w, CLT_DO_AVERAGE, 0, CLT_VERSION_NEW);
    clt_write_plain(w, CLT_DO_READ_STATUS, 0, CLT_VERSION_ANY);
    read_results(w);
    clt_write_plain(w, CLT_DO_COMMITTED, 0, CLT_VERSION_ANY);
}

/* A step until all gradients are reduced. */
static void reduced_gradients(writer *w, bool streams)
{
    const clt_step_program_input *in = w->in;
    wait(w);
    if (in->measures)
        clt_write_plain(w, CLT_DO_MEASURE, 0, CLT_VERSION_ANY);
    gradients(w);
    if (in->measures)
        clt_write_plain(w, CLT_DO_MEASURED, 0, CLT_VERSION_ANY);
    if (reduces(w) && in->deferred) {
        start_forward(w);
        start_gradients(w);
    }
    complete_results(w);
    complete_means(w);
    complete_gradients(w, streams);
}

static void whole_step(writer *w)
{
    reduced_gradients(w, w->in->streams);
    status(w, true, false);
    commit(w, w->in->streams);
}

/* All ranks know before the caller sees the gradients whether the step is dropped. */
static void gradients_of_step(writer *w)
{
    reduced_gradients(w, false);
    if (w->in->ranks > 1) {
        share_words(w, source_of_norm(w));
        may_leave(w, source_of_norm(w));
    }
    read_results(w);
}

/* --- parts of a step, and other calls -------------------------------------------------------- */

static void share_results(writer *w)
{
    if (clt_input_shares_results(w->in))
        clt_write_collective(w, clt_group_results(w->in), CLT_DO_START, CLT_ON_RESULTS, -1,
                             last_of(w), last_of(w), -1);
    complete_results(w);
}

static void forward_part(writer *w)
{
    wait(w);
    if (w->load == CLT_LOAD_NONE)
        clt_write_idle(w);
    else
        clt_write_forward(w, 0);
    share_results(w);
    read_results(w);
}

static void backward_part(writer *w, bool again)
{
    if (again && w->load != CLT_LOAD_NONE)
        clt_write_forward_again(w);
    clt_write_upstream(w, 0);
    if (w->load != CLT_LOAD_NONE)
        clt_write_backward(w, 0, false);
    if (is_empty(w->load))
        clt_write_plain(w, CLT_DO_ZERO, 0, CLT_VERSION_ANY);
}

/* If the caller has reduced the gradients, only the means of states are left. */
static void reduce_part(writer *w, bool given)
{
    if (!reduces(w))
        return;
    if (w->in->means)
        collective(w, CLT_DO_START, CLT_ON_MEANS, -1, 0, 0, -1);
    if (!given)
        start_gradients(w);
    complete_means(w);
    if (!given)
        complete_gradients(w, false);
}

/* The status is made here, because the caller may set gradients after their reduction. */
static void apply_part(writer *w, bool given)
{
    status(w, false, given);
    commit(w, false);
}

static void weights(writer *w)
{
    wait(w);
    each_micro(w, clt_write_weights);
    share_results(w);
    read_results(w);
}

static void outside(writer *w)
{
    wait(w);
    const bool shared = w->in->shared && clt_input_has_results(w->in);
    each_micro(w, clt_write_outside);
    if (shared)
        share_results(w);
    clt_write_plain(w, CLT_DO_READ_RESULTS, last_of(w), shared ? CLT_VERSION_REDUCED : last_of(w));
    clt_write_plain(w, CLT_DO_FLUSH, 0, CLT_VERSION_ANY);
}

clt_status clt_step_program_generate(const clt_step_program_input *input,
                                     clt_step_program_kind kind, clt_load load,
                                     clt_step_program *program)
{
    writer w = {.in = input, .out = program, .load = load};
    switch (kind) {
    case CLT_PROGRAM_STEP:
        whole_step(&w);
        break;
    case CLT_PROGRAM_GRADIENTS:
        gradients_of_step(&w);
        break;
    case CLT_PROGRAM_FORWARD:
        forward_part(&w);
        break;
    case CLT_PROGRAM_BACKWARD:
    case CLT_PROGRAM_BACKWARD_AGAIN:
        backward_part(&w, kind == CLT_PROGRAM_BACKWARD_AGAIN);
        break;
    case CLT_PROGRAM_REDUCE:
    case CLT_PROGRAM_REDUCED:
        reduce_part(&w, kind == CLT_PROGRAM_REDUCED);
        break;
    case CLT_PROGRAM_APPLY:
    case CLT_PROGRAM_APPLY_GIVEN:
        apply_part(&w, kind == CLT_PROGRAM_APPLY_GIVEN);
        break;
    case CLT_PROGRAM_WEIGHTS:
        weights(&w);
        break;
    case CLT_PROGRAM_VERIFY:
        clt_write_verify(&w);
        break;
    case CLT_PROGRAM_OUTSIDE:
        outside(&w);
        break;
    case CLT_PROGRAM_COPY:
        clt_write_copy(&w);
        break;
    case CLT_PROGRAM_DIAGNOSE:
        each_micro(&w, clt_write_diagnosis);
        break;
    case CLT_PROGRAM_KIND_COUNT:
        break;
    }
    return w.status;
}

void clt_step_program_free(clt_step_program *program)
{
    clt_free(program->code);
    *program = (clt_step_program){0};
}
