/*
 * Synchronisations in 16 bits: what replicas send, what they and the owners of sums keep, and the
 * new parameters are computed again by arithmetic of this file, and are equal to the bit. Ranks are
 * threads.
 */
#include "train/world.h"

#include "support/rounding.h"
#include "train/local/outer_wire.h"

enum { IN = 12, WIDE = 5, CLASSES = 4, FLOATS = 128, RANKS = 2, MOST = 4, SYNCS = 5 };

/* Samples by synchronisation and replica. In two of them a replica has none. */
static const double samples[SYNCS][MOST] = {
    {8, 8, 8, 8}, {5, 3, 7, 1}, {0, 6, 2, 9}, {4, 4, 0, 0}, {1, 2, 3, 4}};

typedef struct plan {
    int ranks, each; /* replicas of a rank */
    clt_dtype wire;
    clt_outer outer;
} plan;

/* What the library has, by synchronisation. Parameters follow each other in the store's order. */
typedef struct record {
    float moved[MOST][FLOATS]; /* parameters before the synchronisation */
    float after[MOST][FLOATS];
    float sent[MOST][FLOATS]; /* residuals of replicas */
    float sums[RANKS][CLT_ROUNDINGS][FLOATS];
    int has[RANKS][CLT_ROUNDINGS];
} record;

static plan now;
static record records[SYNCS];
static float begin[FLOATS];
static int floats;

/* A number of either sign that spans several powers of two. */
static float noise(int sync, int replica, int64_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)(sync * 97 + replica * 31 + 7);
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return ldexpf((float)(int32_t)x, -34 - (int)(x % 9));
}

typedef struct team {
    lab l;
    clt_store *stores[MOST];
    clt_trainer *trainers[MOST];
    clt_local *local;
} team;

static clt_status open_team(rank *self, team *t)
{
    clt_store_options so;
    clt_trainer_options o;
    clt_local_options options;
    clt_store_options_init(&so);
    clt_trainer_options_init(&o);
    clt_local_options_init(&options);
    so.bucket_bytes = 128; /* several buckets */
    o.batch = 4;
    t->l.graph = classifier(IN, WIDE, CLASSES);
    CLT_TRY(clt_devices_open(runtime, "pocl@1,pocl@1,pocl@1", NULL, &t->l.devices, &t->l.n));
    for (int i = 0; i < now.each; i++) {
        so.seed = (uint64_t)(1 + self->number * now.each + i);
        CLT_TRY(clt_store_create_with(t->l.graph, t->l.devices + i, 1, &so, &t->stores[i]));
        CLT_TRY(clt_trainer_create(t->l.graph, t->stores[i], &o, &t->trainers[i]));
    }
    options.wire = now.wire;
    options.outer = now.outer;
    options.world = &self->world;
    options.comm_timeout = 60;
    return clt_local_create(t->trainers, now.each, &options, &t->local);
}

static void close_team(team *t)
{
    clt_local_destroy(t->local);
    for (int i = 0; i < now.each; i++) {
        clt_trainer_destroy(t->trainers[i]);
        clt_store_destroy(t->stores[i]);
    }
    lab_close(&t->l);
}

/* Reads or writes all parameters of a replica. */
static clt_status copy(const team *t, int i, bool set, float *data)
{
    const clt_buckets *layout = &t->stores[i]->layout;
    for (int k = 0; k < layout->n_slots; k++) {
        const clt_slot *s = &layout->slots[k];
        if (s->state)
            continue;
        CLT_TRY(set ? clt_store_set(t->stores[i], s->name, data, (size_t)s->bytes)
                    : clt_store_get(t->stores[i], s->name, data, (size_t)s->bytes));
        data += s->bytes / 4;
    }
    return CLT_OK;
}

/* Reads what the library keeps. */
static clt_status read_residuals(const rank *self, const team *t, record *to)
{
    const clt_buckets *layout = &t->stores[0]->layout;
    const clt_outer_state *o = &t->local->outer;
    int at = 0;
    for (int k = 0; k < layout->n_slots; k++) {
        const clt_slot *s = &layout->slots[k];
        if (s->state)
            continue;
        for (int i = 0; i < now.each; i++)
            memcpy(to->sent[self->number * now.each + i] + at,
                   o->wire.residuals[i] + clt_outer_place(o, s), (size_t)s->bytes);
        for (int r = 0; r < CLT_ROUNDINGS; r++) {
            to->has[self->number][r] = o->collectives.residual_has(o->wire.sums[0], r);
            CLT_TRY(clt_outer_wire_get(t->local, r, s, to->sums[self->number][r] + at));
        }
        at += (int)(s->bytes / 4);
    }
    return CLT_OK;
}

/* Moves the replicas' parameters away from each other, and synchronises them. */
static clt_status synchronise(const rank *self, const team *t, int sync)
{
    const int first = self->number * now.each;
    record *to = &records[sync];
    for (int i = 0; i < now.each; i++) {
        float *moved = to->moved[first + i];
        CLT_TRY(copy(t, i, false, moved));
        for (int e = 0; e < floats; e++)
            moved[e] += noise(sync, first + i, e);
        CLT_TRY(copy(t, i, true, moved));
    }
    CLT_TRY(clt_local_sync(t->local, samples[sync] + first));
    for (int i = 0; i < now.each; i++)
        CLT_TRY(copy(t, i, false, to->after[first + i]));
    return read_residuals(self, t, to);
}

/* Returns the bytes of all buckets of parameters, which have padding. */
static int64_t bytes_of(const team *t)
{
    const clt_buckets *layout = &t->stores[0]->layout;
    int64_t bytes = 0;
    for (int b = 0; b < layout->n_buckets; b++)
        bytes += layout->buckets[b].bytes;
    return bytes;
}

static void train(rank *self)
{
    team t = {.local = NULL};
    if (HOLDS(self, open_team(self, &t) == CLT_OK)) {
        if (!self->number) {
            floats = 0;
            for (int k = 0; k < t.stores[0]->layout.n_slots; k++)
                floats += (int)(t.stores[0]->layout.slots[k].bytes / 4);
            HOLDS(self, floats <= FLOATS && copy(&t, 0, false, begin) == CLT_OK);
        }
        for (int s = 0; s < SYNCS; s++)
            HOLDS(self, synchronise(self, &t, s) == CLT_OK);
        HOLDS(self, clt_local_sync_bytes(t.local) == bytes_of(&t) / 2);
        HOLDS(self, clt_local_finish(t.local) == CLT_OK);
    }
    close_team(&t);
}

/* --- the same by arithmetic of this file ----------------------------------------------------- */

/* Rounds v = fl(value + scale x residual), whose parts add up to v again. */
static float send(float scale, float value, float *residual)
{
    const float v = value + scale * *residual, s = nearest(now.wire, v);
    *residual = (v - s) / scale;
    assert_true(s + scale * *residual == v);
    return s;
}

/* Residuals of an element, and the parameter. */
typedef struct element {
    float anchor, velocity, sent[MOST], rank[RANKS], sum;
} element;

static float sum_of(element *x, const record *r, const double *counts, float scale, int e)
{
    double all = 0;
    float total = 0;
    for (int i = 0; i < now.ranks * now.each; i++)
        all += counts[i];
    for (int n = 0; n < now.ranks; n++) {
        float sum = 0;
        bool any = false;
        for (int i = n * now.each; i < (n + 1) * now.each; i++) {
            const double d = (double)x->anchor - (double)r->moved[i][e];
            if (counts[i] > 0)
                sum += send(scale, (float)((double)scale * (counts[i] / all) * d), &x->sent[i]);
            any = any || counts[i] > 0;
        }
        if (any && now.ranks > 1 && now.each > 1)
            sum = send(scale, sum, &x->rank[n]);
        total += sum;
    }
    return send(scale, total, &x->sum) / scale;
}

static void update(element *x, float d)
{
    const float lr = (float)now.outer.lr, momentum = (float)now.outer.momentum;
    if (now.outer.kind == CLT_OUTER_AVERAGE) {
        x->anchor -= d;
        return;
    }
    x->velocity = momentum * x->velocity + d;
    x->anchor -= lr * (d + momentum * x->velocity);
}

static void same(float got, float want, const char *what, int number, int sync, int e)
{
    if (memcmp(&got, &want, sizeof got) != 0 && !(got == 0 && want == 0))
        fail_msg("%d ranks with %d, %s: %s %d, synchronisation %d, [%d]: %.9g, not %.9g", now.ranks,
                 now.each, clt_dtype_name(now.wire), what, number, sync, e, (double)got,
                 (double)want);
}

static void check(void)
{
    const float scale = now.wire == CLT_F16 ? 1024 : 1;
    int kept = 0;
    for (int e = 0; e < floats; e++) {
        element x = {.anchor = begin[e]};
        for (int s = 0; s < SYNCS; s++) {
            const record *r = &records[s];
            update(&x, sum_of(&x, r, samples[s], scale, e));
            for (int i = 0; i < now.ranks * now.each; i++) {
                same(r->after[i][e], x.anchor, "replica", i, s, e);
                same(r->sent[i][e], x.sent[i], "residual of replica", i, s, e);
                kept += x.sent[i] != 0;
            }
            for (int n = 0; n < now.ranks; n++) {
                const bool rounds = now.ranks > 1 && now.each > 1;
                assert_int_equal(r->has[n][CLT_ROUNDS_RANK], rounds);
                assert_int_equal(r->has[n][CLT_ROUNDS_NODE], 0);
                assert_int_equal(r->has[n][CLT_ROUNDS_SUM], n ? 2 : 1);
                same(r->sums[n][CLT_ROUNDS_RANK][e], x.rank[n], "residual of rank", n, s, e);
                same(r->sums[n][CLT_ROUNDS_SUM][e], x.sum, "residual of the sum on rank", n, s, e);
            }
        }
    }
    assert_true(kept > floats); /* the numbers need more than 16 bits */
}

static void residuals_add_up(void **state)
{
    static const plan plans[] = {
        {1, 2, CLT_BF16, {CLT_OUTER_AVERAGE, 0, 0}},
        {1, 3, CLT_F16, {CLT_OUTER_NESTEROV, 0.7, 0.9}},
        {2, 1, CLT_BF16, {CLT_OUTER_NESTEROV, 0.7, 0.9}},
        {2, 2, CLT_BF16, {CLT_OUTER_AVERAGE, 0, 0}},
        {2, 2, CLT_F16, {CLT_OUTER_NESTEROV, 0.5, 0.75}},
    };
    rank ranks[RANKS];
    (void)state;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        now = plans[i];
        run_ranks(ranks, now.ranks, train, NULL, 0);
        check();
    }
}

/* --- limits ---------------------------------------------------------------------------------- */

/* A parameter of replica 0 moves by 100. */
static void move_far(rank *self)
{
    team t = {.local = NULL};
    if (HOLDS(self, open_team(self, &t) == CLT_OK)) {
        float data[FLOATS];
        HOLDS(self, copy(&t, 0, false, data) == CLT_OK);
        data[0] += self->number ? 0 : 200;
        HOLDS(self, copy(&t, 0, true, data) == CLT_OK);
        self->status = clt_local_sync(t.local, (const double[]){1, 1});
        snprintf(self->message, sizeof self->message, "%s", clt_error_message());
    }
    close_team(&t);
}

static void f16_ends_at_64(void **state)
{
    rank ranks[RANKS];
    (void)state;
    for (int half = 0; half < 2; half++) {
        now = (plan){2, 1, half ? CLT_F16 : CLT_BF16, {CLT_OUTER_AVERAGE, 0, 0}};
        run_ranks(ranks, RANKS, move_far, NULL, 0);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(ranks[r].status, half ? CLT_NONFINITE : CLT_OK);
            if (half)
                assert_non_null(strstr(ranks[r].message, "synchronisation 1: a difference of "
                                                         "parameters is not finite in f16"));
        }
    }
}

/* Ranks must agree. */
static void open_other(rank *self)
{
    team t = {.local = NULL};
    (void)self;
    self->status = open_team(self, &t);
    snprintf(self->message, sizeof self->message, "%s", clt_error_message());
    close_team(&t);
}

static void other_types_are_refused(void **state)
{
    rank ranks[1];
    (void)state;
    now = (plan){1, 2, CLT_I32, {CLT_OUTER_AVERAGE, 0, 0}};
    run_ranks(ranks, 1, open_other, NULL, 0);
    assert_int_equal(ranks[0].status, CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(ranks[0].message, "clt_local_options.wire i32"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(residuals_add_up),
        cmocka_unit_test(f16_ends_at_64),
        cmocka_unit_test(other_types_are_refused),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
