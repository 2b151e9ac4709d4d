/*
 * Groups of devices in the table of collectives: the ranks are threads of this program, and random
 * colours divide their devices. Sums and messages stay within a group, requests of several groups
 * are under way at once, and the end of one group ends all.
 */
#include "train/world.h"

#include "device/core/device.h"
#include "train/ranks/connect.h"

enum { DEVICES_MOST = 3, ALL_MOST = RANKS_MOST * DEVICES_MOST, COUNT = 1000, SPLITS = 12 };

/* What the ranks do. */
typedef struct plan {
    int devices[RANKS_MOST];
    uint32_t seed;
} plan;

typedef struct stage {
    rank *self;
    const plan *plan;
    clt_collectives table;
    lab lab;
    int ranks, total, first;
    int colours[SPLITS][ALL_MOST], group[SPLITS];
} stage;

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static float value_of(int participant, int split, int i)
{
    return (float)((participant + 1) * (split + 2) % 13 + i % 7);
}

/* Returns the place of a participant in its group. */
static int place_in(const stage *s, int split, int participant)
{
    int place = 0;
    for (int p = 0; p < participant; p++)
        place += s->colours[split][p] == s->colours[split][participant];
    return place;
}

static int size_of(const stage *s, int split, int participant)
{
    int size = 0;
    for (int p = 0; p < s->total; p++)
        size += s->colours[split][p] == s->colours[split][participant];
    return size;
}

static void draw_colours(stage *s)
{
    uint32_t state = s->plan->seed;
    for (int k = 0; k < SPLITS; k++) {
        const int colours = 1 + (int)(next_random(&state) % (uint32_t)s->total);
        for (int p = 0; p < s->total; p++)
            s->colours[k][p] = (int)(next_random(&state) % (uint32_t)(colours + 1)) - 1;
    }
    for (int p = 0; p < s->total; p++)
        s->colours[0][p] = p % 2; /* crosses the ranks */
}

/* Whether this rank's device has to do with a split. */
static bool is_in(const stage *s, int split, int device)
{
    return s->colours[split][s->first + device] >= 0;
}

/* All-reduces host memory in all groups at once. Ranks complete them in different orders. */
static void add_up(stage *s, float (*data)[DEVICES_MOST][COUNT],
                   clt_collective_request (*requests)[DEVICES_MOST])
{
    for (int k = 0; k < SPLITS; k++)
        for (int d = 0; d < s->plan->devices[s->self->number]; d++) {
            if (!is_in(s, k, d))
                continue;
            for (int i = 0; i < COUNT; i++)
                data[k][d][i] = value_of(s->first + d, k, i);
            const clt_collective what = {.kind = CLT_COLLECTIVE_ALL_REDUCE,
                                         .group = s->group[k],
                                         .host = data[k][d],
                                         .count = COUNT,
                                         .dtype = CLT_F32,
                                         .label = "a sum"};
            HOLDS(s->self,
                  s->table.start(s->table.self, d, &what, 0, NULL, &requests[k][d]) == CLT_OK);
        }
    for (int n = 0; n < SPLITS; n++) {
        const int k = s->self->number % 2 ? SPLITS - 1 - n : n;
        for (int d = 0; d < s->plan->devices[s->self->number]; d++) {
            clt_collective_result result;
            if (is_in(s, k, d))
                HOLDS(s->self,
                      s->table.complete(s->table.self, d, &requests[k][d], &result) == CLT_OK);
        }
    }
}

static void check_sums(stage *s, float (*data)[DEVICES_MOST][COUNT])
{
    for (int k = 0; k < SPLITS; k++)
        for (int d = 0; d < s->plan->devices[s->self->number]; d++)
            for (int i = 0; i < COUNT && is_in(s, k, d); i++) {
                float want = 0;
                for (int p = 0; p < s->total; p++)
                    if (s->colours[k][p] == s->colours[k][s->first + d])
                        want += value_of(p, k, i);
                HOLDS(s->self, data[k][d][i] == want);
            }
}

/* The first device of each group sends to the last one; participants are numbered in the group. */
static void send_on(stage *s, int k)
{
    float data[DEVICES_MOST][COUNT];
    clt_collective_request requests[DEVICES_MOST];
    const int devices = s->plan->devices[s->self->number];
    for (int d = 0; d < devices; d++) {
        const int own = s->first + d, size = size_of(s, k, own), place = place_in(s, k, own);
        if (!is_in(s, k, d))
            continue;
        for (int i = 0; i < COUNT; i++)
            data[d][i] = place ? -1 : (float)(own * 100 + i);
        const bool ends = size > 1 && (place == 0 || place == size - 1);
        const clt_collective what = {.kind = !ends   ? CLT_COLLECTIVE_BARRIER
                                             : place ? CLT_COLLECTIVE_RECEIVE
                                                     : CLT_COLLECTIVE_SEND,
                                     .group = s->group[k],
                                     .host = ends ? data[d] : NULL,
                                     .count = ends ? COUNT : 0,
                                     .peer = place ? 0 : size - 1,
                                     .dtype = CLT_F32,
                                     .label = "a message"};
        HOLDS(s->self, s->table.start(s->table.self, d, &what, 0, NULL, &requests[d]) == CLT_OK);
    }
    for (int d = 0; d < devices; d++) {
        const int own = s->first + d, size = size_of(s, k, own);
        clt_collective_result result;
        int from = 0;
        if (!is_in(s, k, d))
            continue;
        HOLDS(s->self, s->table.complete(s->table.self, d, &requests[d], &result) == CLT_OK);
        while (s->colours[k][from] != s->colours[k][own])
            from++;
        for (int i = 0; i < COUNT && size > 1 && place_in(s, k, own) == size - 1; i++)
            HOLDS(s->self, data[d][i] == (float)(from * 100 + i));
    }
}

static bool open_stage(stage *s, rank *self)
{
    static const char *const lists[] = {"pocl@1", "pocl@1,pocl@1", "pocl@1,pocl@1,pocl@1"};
    *s = (stage){.self = self, .plan = self->argument, .ranks = self->world.ranks};
    for (int r = 0; r < s->ranks; r++) {
        s->first += r < self->number ? s->plan->devices[r] : 0;
        s->total += s->plan->devices[r];
    }
    draw_colours(s);
    bool good = HOLDS(self, clt_devices_open(runtime, lists[s->plan->devices[self->number] - 1],
                                             NULL, &s->lab.devices, &s->lab.n) == CLT_OK) &&
                HOLDS(self, clt_collectives_open(s->lab.devices, s->lab.n, &self->world, 60,
                                                 CLT_CONNECT_AUTO, &s->table) == CLT_OK);
    for (int k = 0; k < SPLITS && good; k++)
        good = HOLDS(self,
                     s->table.split(s->table.self, s->colours[k], false, &s->group[k]) == CLT_OK);
    return good;
}

static void exchange(rank *self)
{
    static float data[RANKS_MOST][SPLITS][DEVICES_MOST][COUNT];
    clt_collective_request requests[SPLITS][DEVICES_MOST];
    stage s;
    if (open_stage(&s, self)) {
        for (int again = 0; again < 3; again++) {
            add_up(&s, data[self->number], requests);
            check_sums(&s, data[self->number]);
        }
        for (int k = 0; k < SPLITS; k++)
            send_on(&s, k);
        HOLDS(self, s.table.finish(s.table.self) == CLT_OK);
    }
    clt_collectives_close(&s.table);
    lab_close(&s.lab);
}

static void random_groups(void **state)
{
    static const int shapes[][RANKS_MOST] = {{3},       {1, 1},       {2, 2},
                                             {1, 2, 1}, {1, 1, 1, 1}, {2, 1, 3, 2}};
    rank ranks[RANKS_MOST];
    (void)state;
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        plan plans[RANKS_MOST];
        int count = 0;
        while (count < RANKS_MOST && shapes[i][count])
            count++;
        for (int r = 0; r < count; r++) {
            plans[r] = (plan){.seed = 77 + i};
            memcpy(plans[r].devices, shapes[i], sizeof plans[r].devices);
        }
        run_ranks(ranks, count, exchange, plans, sizeof *plans);
    }
}

/* Rank 0 is in a group with rank 1, rank 1 in another with rank 2, and so on. Each rank waits for
 * the next one, and the last one gives up. */
static void wait_in_chain(rank *self)
{
    stage s;
    const int last = self->world.ranks - 1;
    int colours[2][ALL_MOST], groups[2];
    float data[COUNT] = {0};
    clt_collective_request request;
    clt_collective_result result;
    if (open_stage(&s, self)) {
        for (int p = 0; p < s.total; p++) {
            colours[0][p] = p / 2;
            colours[1][p] = (p + 1) / 2;
        }
        for (int k = 0; k < 2; k++)
            HOLDS(self, s.table.split(s.table.self, colours[k], false, &groups[k]) == CLT_OK);
        const clt_collective what = {.kind = CLT_COLLECTIVE_ALL_REDUCE,
                                     .group = groups[self->number % 2],
                                     .host = data,
                                     .count = COUNT,
                                     .dtype = CLT_F32,
                                     .label = "a sum"};
        if (self->number == last) {
            s.table.stop(s.table.self, CLT_NONFINITE, "the last rank gives up");
        } else {
            HOLDS(self, s.table.start(s.table.self, 0, &what, 0, NULL, &request) == CLT_OK);
            HOLDS(self, s.table.complete(s.table.self, 0, &request, &result) != CLT_OK);
            snprintf(self->message, sizeof self->message, "%s", clt_error_message());
        }
    }
    clt_collectives_close(&s.table);
    lab_close(&s.lab);
}

static void the_end_of_a_group_ends_all(void **state)
{
    rank ranks[RANKS_MOST];
    plan plans[RANKS_MOST];
    (void)state;
    for (int r = 0; r < RANKS_MOST; r++)
        plans[r] = (plan){.devices = {1, 1, 1, 1}, .seed = 5};
    run_ranks(ranks, RANKS_MOST, wait_in_chain, plans, sizeof *plans);
    for (int r = 0; r + 1 < RANKS_MOST; r++)
        if (!strstr(ranks[r].message, "rank 3: the last rank gives up"))
            fail_msg("rank %d: %s", r, ranks[r].message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_groups),
                                       cmocka_unit_test(the_end_of_a_group_ends_all)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
