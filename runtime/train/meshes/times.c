#include "train/meshes/times.h"

#include <math.h>

#include "base/alloc.h"

/* Seconds that a kernel takes at least. */
static const double LAUNCH = 3e-6;

/* A sum of two buffers reads both and writes one. */
static const double SUM_PASSES = 3;

static double node_time(const clt_mesh_base *base, const clt_mesh_node *node)
{
    return fmax(node->flops / base->flops, node->bytes / base->bytes) + LAUNCH * node->launches;
}

void clt_mesh_estimate(const clt_mesh_base *base, const clt_mesh_facts *f, int place,
                       double *forward, double *whole)
{
    const clt_mesh_plan *plan = f->places[place].plan;
    *forward = *whole = 0;
    for (int i = 0; i < plan->n_nodes; i++) {
        const double own = node_time(base, &plan->nodes[i]);
        *whole += own;
        *forward += i < plan->n_forward ? own : 0;
    }
}

/* Spreads the times of forward and backward over the nodes, in proportion to the estimates. */
static void spread(const clt_mesh_base *base, const clt_mesh_facts *f, int place)
{
    const clt_mesh_place *p = &f->places[place];
    const clt_mesh_plan *plan = p->plan;
    double forward, whole, at = 0;
    clt_mesh_estimate(base, f, place, &forward, &whole);
    const double ahead = forward > 0 ? p->forward / forward : 0;
    const double back = whole > forward ? fmax(0, p->whole - p->forward) / (whole - forward) : 0;
    for (int i = 0; i < plan->n_nodes; i++) {
        p->nodes[i] = at;
        at += node_time(base, &plan->nodes[i]) * (i < plan->n_forward ? ahead : back);
    }
    p->nodes[plan->n_nodes] = at;
}

int64_t clt_mesh_updated(const clt_mesh_facts *f, int place)
{
    const clt_step_program_input *in = &f->places[place].input;
    const int shards = in->sharded ? clt_input_parts(in) : 1;
    int64_t bytes = 0;
    for (int b = 0; b < in->layout->n_buckets; b++)
        if (!in->layout->buckets[b].state)
            bytes += clt_shard_bytes(&in->layout->buckets[b], shards);
    return bytes;
}

/* Adds the gradients of a micro-batch to the sums in f32: it reads both and writes the sums. */
static double add_time(const clt_mesh_base *base, const clt_mesh_facts *f, int place)
{
    const clt_step_program_input *in = &f->places[place].input;
    double bytes = 0;
    for (int b = 0; b < in->layout->n_buckets; b++)
        if (!in->layout->buckets[b].state)
            bytes += (double)in->layout->buckets[b].bytes;
    return (in->half ? 2.5 : 3) * bytes / base->bytes;
}

/* The bytes of a device's gradients in a type, whoever updates them. */
static double gradient_bytes(const clt_mesh_facts *f, int place, clt_dtype dtype)
{
    const clt_buckets *layout = f->places[place].input.layout;
    double bytes = 0;
    for (int b = 0; b < layout->n_buckets; b++)
        if (!layout->buckets[b].state)
            bytes += (double)clt_bucket_gradient_bytes(&layout->buckets[b], dtype);
    return bytes;
}

/* A device merges sets of gradients, and finds the norm of all of them. */
static void price_shards(const clt_mesh_base *base, const clt_mesh_facts *f, int place,
                         double slower, clt_timeline_device *d)
{
    const double each = SUM_PASSES * slower * base->move;
    d->pairs = clt_memory_accumulates(&f->options);
    d->merge = each * gradient_bytes(f, place, f->options.precision);
    d->add = each * (double)f->places[place].plan->added;
    d->status = slower * base->status * gradient_bytes(f, place, CLT_F32);
}

bool clt_mesh_rounds(const clt_mesh_facts *f)
{
    return f->options.wire != CLT_F32 && clt_candidate_devices(&f->candidate) > 1 &&
           (f->options.precision == CLT_F32 || f->options.accumulate > 1);
}

static clt_timeline_device device_of(const clt_mesh_base *base, const clt_mesh_facts *f, int place)
{
    const clt_mesh_place *p = &f->places[place];
    const double updated = (double)clt_mesh_updated(f, place);
    const double slower = base->slower ? base->slower[p->participant] : 1;
    const double move = clt_mesh_rounds(f) ? slower * base->move : 0;
    clt_timeline_device d = {.input = &p->input,
                             .program = &p->program,
                             .rounds = p->rounds,
                             .samples = clt_mesh_samples(f),
                             .nodes = p->nodes,
                             .fixed = base->fixed + base->load * (double)f->options.batch,
                             .add = add_time(base, f, place),
                             .update = slower * base->update * updated,
                             .status = slower * base->status * updated,
                             .round = CLT_MESH_ROUND_BYTES * move,
                             .keep = CLT_MESH_KEEP_BYTES * move};
    if (p->input.tree)
        price_shards(base, f, place, slower, &d);
    return d;
}

/* Returns the bytes of states that replicas average, such as those of batch norm. They travel in
 * f32. */
static int64_t averaged_states(const clt_mesh_facts *f)
{
    const clt_buckets *layout = f->places[0].input.layout;
    int64_t bytes = 0;
    for (int i = 0; i < layout->n_slots; i++)
        if (clt_slot_changes_apart(&layout->slots[i]) && layout->slots[i].type.dtype == CLT_F32)
            bytes += layout->slots[i].bytes;
    return bytes;
}

/* Adds the exchange of replicas that train apart: once in `sync_every` steps they add up their
 * parameters and states, and the outer optimizer updates the parameters. */
static void add_outer(const clt_mesh_base *base, const clt_mesh_links *links,
                      const clt_mesh_facts *f, clt_mesh_step *step)
{
    if (!f->candidate.local)
        return;
    const double bytes =
        (double)clt_mesh_updated(f, 0) / (f->candidate.half ? 2 : 1) + (double)averaged_states(f);
    step->outer =
        (clt_mesh_reduce(links, f->candidate.local, clt_candidate_devices(&f->candidate), bytes) +
         base->update * (double)clt_mesh_updated(f, 0)) /
        (double)base->sync_every;
    step->sent += (int64_t)(bytes / (double)base->sync_every);
}

/* Gradients of 16-bit precision travel as they are. */
static bool halves_gradients(const clt_mesh_facts *f)
{
    return f->options.wire != CLT_F32 && f->options.precision == CLT_F32;
}

static int64_t sum_of(const clt_timeline_bytes *b)
{
    int64_t sum = b->gradients + b->parameters + b->tied + b->shifts;
    for (int a = 0; a < CLT_AXES; a++)
        sum += b->axes[a];
    return sum;
}

static double evenness(const clt_mesh_facts *f)
{
    double sum = 0, most = 0;
    for (int i = 0; i < f->n_places; i++) {
        sum += f->places[i].whole;
        most = fmax(most, f->places[i].whole);
    }
    return most > 0 ? sum / f->n_places / most : 1;
}

clt_status clt_mesh_predict(const clt_mesh_base *base, clt_mesh_links *links,
                            const clt_mesh_facts *f, clt_mesh_step *step)
{
    const size_t n = (size_t)f->n_places;
    clt_timeline_device *devices = clt_calloc(n, sizeof *devices);
    clt_timeline_bytes *bytes = clt_calloc(n, sizeof *bytes);
    *step = (clt_mesh_step){.even = evenness(f)};
    clt_status status = devices && bytes ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int i = 0; status == CLT_OK && i < f->n_places; i++) {
        spread(base, f, i);
        devices[i] = device_of(base, f, i);
    }
    links->half = halves_gradients(f);
    CLT_NEXT(status,
             clt_timeline_run(devices, f->n_places, clt_mesh_price, links, &step->timeline, bytes));
    if (status == CLT_OK) {
        for (int i = 0; i < f->n_places; i++)
            step->sent = sum_of(&bytes[i]) > step->sent ? sum_of(&bytes[i]) : step->sent;
        if (halves_gradients(f))
            step->sent -= (bytes[0].gradients + bytes[0].tied) / 2;
        add_outer(base, links, f, step);
        step->seconds = step->timeline.seconds + step->outer;
    }
    CLT_FREE(devices, bytes);
    return status;
}
