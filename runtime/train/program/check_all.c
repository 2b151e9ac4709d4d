/* Checks all programs of training and evaluation for the devices of all ranks. */
#include "base/alloc.h"
#include "train/program/check.h"
#include "train/program/symbolic.h"

/* The data of a check; arrays are by participant. */
typedef struct trial {
    const clt_check_world *world;
    clt_step_program_kind kind;
    bool known; /* the host knows the weights of the losses */
    uint64_t *keys;
    clt_step_program_input *inputs;
    clt_step_program *programs; /* of the first of equal participants */
    clt_check_device *devices;
} trial;

static const clt_step_program_input *inputs_of(const trial *t)
{
    return t->kind == CLT_PROGRAM_OUTSIDE ? t->world->evaluation : t->world->training;
}

/* Returns the number of micro-batches of a part of the batch in a trial. Trials have equal parts, a
 * part without samples, and a part with more micro-batches than the others. */
static int part_tried(int try, int part)
{
    static const int tried[][2] = {{1, 1}, {0, 1}, {1, 0}, {3, 3}, {3, 1}, {0, 3}};
    return tried[try][part != 0];
}

static int micro_batches_tried(const trial *t, int try, int participant)
{
    return part_tried(try,
                      clt_mesh_coordinate(&t->world->training->mesh, CLT_AXIS_DATA, participant));
}

/* With micro-batches in flight, all steps have equally many rounds. A check has a few more than are
 * in flight on any device, so that loops run twice. */
enum { MORE = 3 };

static int flights_tried(const clt_step_program_input *in)
{
    const int most = CLT_SYMBOLIC_ROUNDS - MORE;
    return in->in_flight < most ? in->in_flight : most;
}

/* Returns the rounds of training with micro-batches in flight; 0: none are. */
static int rounds_in_flight(const trial *t)
{
    int most = 0, rounds = 0;
    for (int p = 0; t->kind != CLT_PROGRAM_OUTSIDE && p < t->world->count; p++) {
        const clt_step_program_input *in = &t->world->training[p];
        if (!in->in_flight)
            continue;
        most = flights_tried(in) > most ? flights_tried(in) : most;
        rounds = in->rounds < most + MORE ? in->rounds : most + MORE;
    }
    return rounds;
}

static int rounds_of(const trial *t, int try, int participant)
{
    int most = micro_batches_tried(t, try, participant);
    if (rounds_in_flight(t) && t->kind != CLT_PROGRAM_DIAGNOSE)
        return rounds_in_flight(t);
    if (!clt_outline_joins_data(inputs_of(t)[participant].plan) || t->kind == CLT_PROGRAM_DIAGNOSE)
        return most;
    for (int part = 0; part < 2 && part < t->world->training->mesh.size[CLT_AXIS_DATA]; part++)
        most = part_tried(try, part) > most ? part_tried(try, part) : most;
    return most;
}

/* Returns the program of an earlier device with the same key and number of micro-batches; NULL if
 * there is none. */
static const clt_step_program *same_before(const trial *t, int try, int p)
{
    for (int q = p - 1; q >= 0; q--)
        if (t->keys[q] == t->keys[p] &&
            micro_batches_tried(t, try, q) == micro_batches_tried(t, try, p))
            return t->devices[q].program;
    return NULL;
}

static clt_status check_one(trial *t, int try)
{
    const int n = t->world->count;
    clt_status status = CLT_OK;
    for (int p = 0; status == CLT_OK && p < n; p++) {
        const int rounds = rounds_of(t, try, p), tried = micro_batches_tried(t, try, p);
        const int micro_batches = rounds_in_flight(t) && tried > rounds ? rounds : tried;
        const clt_step_program *program = same_before(t, try, p);
        t->inputs[p] = inputs_of(t)[p];
        t->inputs[p].host_weights = t->known;
        if (rounds_in_flight(t)) {
            t->inputs[p].in_flight = flights_tried(&t->inputs[p]);
            t->inputs[p].rounds = rounds_in_flight(t);
        }
        if (!program) {
            status = clt_step_program_generate(&t->inputs[p], t->kind,
                                               clt_load_of(rounds, micro_batches), &t->programs[p]);
            program = &t->programs[p];
        }
        t->devices[p] = (clt_check_device){&t->inputs[p], program, rounds, micro_batches};
    }
    CLT_NEXT(status, clt_step_programs_check(t->kind, t->devices, n, NULL));
    for (int p = 0; p < n; p++)
        clt_step_program_free(&t->programs[p]);
    return status;
}

/* Whether the program runs for steps of one micro-batch only. */
static bool is_part(clt_step_program_kind kind)
{
    return kind == CLT_PROGRAM_FORWARD || kind == CLT_PROGRAM_BACKWARD ||
           kind == CLT_PROGRAM_BACKWARD_AGAIN || kind == CLT_PROGRAM_REDUCE ||
           kind == CLT_PROGRAM_REDUCED;
}

static clt_status check_kind(trial *t)
{
    if (rounds_in_flight(t) && is_part(t->kind))
        return CLT_OK; /* a step with several micro-batches has no parts */
    /* Steps in parts have one micro-batch. Only a device with all samples in a single micro-batch
     * computes weights by itself. */
    const int tries = t->world->max_micro_batches > 1 && !is_part(t->kind) ? 6 : 3;
    const bool alone = clt_input_parts(t->world->training) == 1 && t->world->max_micro_batches == 1;
    for (int p = 0; p < t->world->count; p++)
        t->keys[p] = clt_check_key(&inputs_of(t)[p]);
    for (int try = 0; try < tries; try++) {
        t->known = true;
        CLT_TRY(check_one(t, try));
        t->known = false;
        if (alone)
            CLT_TRY(check_one(t, try));
    }
    return CLT_OK;
}

static clt_status check_kinds(trial *t)
{
    static const clt_step_program_kind kinds[] = {
        CLT_PROGRAM_STEP,     CLT_PROGRAM_GRADIENTS,      CLT_PROGRAM_FORWARD,
        CLT_PROGRAM_BACKWARD, CLT_PROGRAM_BACKWARD_AGAIN, CLT_PROGRAM_REDUCE,
        CLT_PROGRAM_REDUCED,  CLT_PROGRAM_APPLY,          CLT_PROGRAM_APPLY_GIVEN,
        CLT_PROGRAM_WEIGHTS,  CLT_PROGRAM_OUTSIDE,        CLT_PROGRAM_VERIFY,
        CLT_PROGRAM_DIAGNOSE};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        t->kind = kinds[k];
        if (t->kind != CLT_PROGRAM_VERIFY || t->world->count > 1)
            CLT_TRY(check_kind(t));
    }
    return CLT_OK;
}

clt_status clt_step_programs_check_all(const clt_check_world *world)
{
    const size_t n = (size_t)world->count;
    trial t = {.world = world,
               .keys = clt_calloc(n, sizeof *t.keys),
               .inputs = clt_calloc(n, sizeof *t.inputs),
               .programs = clt_calloc(n, sizeof *t.programs),
               .devices = clt_calloc(n, sizeof *t.devices)};
    const clt_status status =
        t.keys && t.inputs && t.programs && t.devices ? check_kinds(&t) : CLT_OUT_OF_MEMORY;
    CLT_FREE(t.keys, t.inputs, t.programs, t.devices);
    return status;
}
