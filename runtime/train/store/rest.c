#include "train/store/rest.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

/* What a rank does. An idle rank waits. */
typedef enum doing { WAIT, GATHER, CONNECT, TELL, END } doing;

typedef struct notice {
    int32_t doing, status, stop, reserved;
    int64_t bytes, steps;
    char text[512];
} notice;

/* What follows the notices. AGAIN: a rank in TELL gives way to ranks in other exchanges. */
typedef enum verdict { GO, AGAIN, OVER, DIFFER } verdict;

static clt_status gather(void *user, const void *mine, int64_t bytes, void *all);

static clt_rest *rest_of(const clt_world *world)
{
    return world && world->gather == gather ? world->user : NULL;
}

int clt_rest_number(const clt_world *world, int rank)
{
    const clt_rest *r = rest_of(world);
    return r ? r->numbers[rank] : rank;
}

/* --- notices --------------------------------------------------------------------------------- */

/* Returns the first rank that has devices. */
static int first_of(const notice *all, int ranks)
{
    int first = 0;
    while (first < ranks - 1 && all[first].doing == WAIT)
        first++;
    return first;
}

static verdict judge(const notice *all, int ranks)
{
    const notice *first = &all[first_of(all, ranks)];
    bool tells = false, same = true;
    for (int k = 0; k < ranks; k++) {
        if (all[k].doing == WAIT)
            continue;
        if (all[k].doing == END)
            return OVER;
        tells = tells || all[k].doing == TELL;
        same = same && all[k].doing == first->doing;
        if (all[k].doing == GATHER && first->doing == GATHER && all[k].bytes != first->bytes)
            return DIFFER;
    }
    return same ? GO : tells ? AGAIN : DIFFER;
}

/* Returns the rank whose end counts: the first that failed, else the first. */
static int ended(const notice *all, int ranks)
{
    int end = -1;
    for (int k = 0; k < ranks; k++)
        if (all[k].doing == END &&
            (end < 0 || (all[end].status == CLT_OK && all[k].status != CLT_OK)))
            end = k;
    return end;
}

/* Later exchanges fail, with this failure and its message. */
static clt_status close_world(clt_rest *r, clt_status failure)
{
    r->over = true;
    r->status = failure;
    snprintf(r->message, sizeof r->message, "%s", clt_error_message());
    return failure;
}

/* Closes the world because another rank has ended. */
static clt_status close_with(clt_rest *r, const notice *all)
{
    const int k = ended(all, r->root.ranks);
    return close_world(r, clt_fail(CLT_ABORTED, "rank %d failed: %s", k, all[k].text));
}

clt_status clt_rest_check(const clt_rest *r)
{
    return r && r->over ? clt_fail(r->status, "%s", r->message) : CLT_OK;
}

/* Exchanges notices. *all has those of the root's ranks; free it with clt_free. */
static clt_status announce(clt_rest *r, const notice *mine, notice **all, verdict *out)
{
    CLT_TRY(clt_rest_check(r));
    notice *notices = clt_calloc((size_t)r->root.ranks, sizeof *notices);
    clt_status status = notices ? CLT_OK : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, r->root.gather(r->root.user, mine, sizeof *mine, notices));
    if (status == CLT_OK) {
        *out = judge(notices, r->root.ranks);
        if (*out == DIFFER)
            status = clt_fail(CLT_MISMATCH, "the ranks are at different places of the program");
    }
    if (status != CLT_OK) {
        clt_free(notices);
        return close_world(r, status);
    }
    *all = notices;
    return CLT_OK;
}

/* Gathers the root's ranks' bytes. `mine` NULL: zeros. */
static clt_status gather_root(const clt_rest *r, const void *mine, int64_t bytes, char **all)
{
    char *zeros = mine ? NULL : clt_calloc((size_t)bytes + 1, 1);
    *all = clt_calloc((size_t)r->root.ranks * (size_t)bytes + 1, 1);
    clt_status status = *all && (mine || zeros) ? CLT_OK : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, r->root.gather(r->root.user, mine ? mine : zeros, bytes, *all));
    clt_free(zeros);
    if (status != CLT_OK) {
        clt_free(*all);
        *all = NULL;
    }
    return status;
}

/* --- ranks that have devices ---------------------------------------------------------------- */

/* Announces an exchange until all ranks that have devices are in it. Fails if one has ended. */
static clt_status begin(clt_rest *r, const notice *mine)
{
    verdict next = AGAIN;
    while (next == AGAIN) {
        notice *all;
        CLT_TRY(announce(r, mine, &all, &next));
        const clt_status status = next == OVER ? close_with(r, all) : CLT_OK;
        clt_free(all);
        CLT_TRY(status);
    }
    return CLT_OK;
}

static clt_status gather(void *user, const void *mine, int64_t bytes, void *all)
{
    clt_rest *r = user;
    const notice own = {.doing = GATHER, .bytes = bytes};
    char *of_root;
    CLT_TRY(begin(r, &own));
    CLT_TRY(gather_root(r, mine, bytes, &of_root));
    for (int k = 0; k < r->world.ranks; k++)
        memcpy((char *)all + k * bytes, of_root + r->numbers[k] * bytes, (size_t)bytes);
    clt_free(of_root);
    return CLT_OK;
}

static clt_status connect(void *user, int color, const struct clt_comm_device *devices, int count,
                          const struct clt_comm_options *options, struct clt_comm **comm)
{
    clt_rest *r = user;
    const notice own = {.doing = CONNECT};
    CLT_TRY(begin(r, &own));
    return r->root.connect(r->root.user, color, devices, count, options, comm);
}

/* Gives the first rank's data to the idle ranks. */
static clt_status pass_on(const clt_rest *r, const notice *all, const void *data)
{
    const int first = first_of(all, r->root.ranks);
    char *of_root;
    if (!all[first].bytes)
        return CLT_OK;
    CLT_TRY(gather_root(r, r->root.rank == first ? data : NULL, all[first].bytes, &of_root));
    clt_free(of_root);
    return CLT_OK;
}

clt_status clt_rest_tell(clt_rest *r, int64_t steps, const void *data, int64_t bytes, bool *done,
                         bool *stop)
{
    const notice own = {.doing = TELL, .bytes = bytes, .steps = steps};
    notice *all;
    verdict next;
    *done = false;
    CLT_TRY(announce(r, &own, &all, &next));
    clt_status status = CLT_OK;
    if (next == GO)
        status = pass_on(r, all, data);
    else if (next == OVER)
        status = close_with(r, all);
    *done = next == GO && status == CLT_OK;
    for (int k = 0; k < r->root.ranks; k++)
        *stop = *stop || all[k].stop;
    clt_free(all);
    return status;
}

static bool all_end(const notice *all, int ranks)
{
    for (int k = 0; k < ranks; k++)
        if (all[k].doing != END && all[k].doing != WAIT)
            return false;
    return true;
}

void clt_rest_end(clt_rest *r, clt_status status, int64_t steps, const void *data, int64_t bytes)
{
    char message[1024];
    snprintf(message, sizeof message, "%s", clt_error_message());
    notice own = {.doing = END, .status = (int32_t)status, .bytes = bytes, .steps = steps}, *all;
    verdict next;
    if (status != CLT_OK)
        snprintf(own.text, sizeof own.text, "%.511s", message);
    if (!r->over && announce(r, &own, &all, &next) == CLT_OK) {
        if (all_end(all, r->root.ranks))
            pass_on(r, all, data);
        clt_free(all);
    }
    close_world(r, clt_fail(CLT_STATE,
                            "a rank has no device left, and the run in which it lost its last "
                            "device is over: start the ranks again from a checkpoint"));
    clt_error_restore(message);
}

/* --- idle ranks ------------------------------------------------------------------------------ */

/* Takes over what the first rank tells. */
static clt_status listen(const clt_rest *r, const notice *all, clt_rest_news *news)
{
    const int first = first_of(all, r->root.ranks);
    char *of_root;
    news->steps = all[first].steps;
    news->bytes = all[first].bytes;
    if (!news->bytes)
        return CLT_OK;
    news->data = clt_alloc((size_t)news->bytes);
    CLT_TRY(gather_root(r, NULL, news->bytes, &of_root));
    if (news->data)
        memcpy(news->data, of_root + first * news->bytes, (size_t)news->bytes);
    clt_free(of_root);
    CLT_TRY_MEMORY(news->data);
    return CLT_OK;
}

static clt_status hear_end(const clt_rest *r, const notice *all, clt_rest_news *news)
{
    const int k = ended(all, r->root.ranks);
    news->over = true;
    news->steps = all[k].steps;
    news->status = (clt_status)all[k].status;
    if (news->status != CLT_OK && news->status != CLT_STOPPED && news->status != CLT_NONFINITE)
        snprintf(news->message, sizeof news->message, "rank %d failed: %.480s", k, all[k].text);
    else
        snprintf(news->message, sizeof news->message, "%s", all[k].text);
    return all_end(all, r->root.ranks) ? listen(r, all, news) : CLT_OK;
}

/* Takes part in an exchange of the other ranks. */
static clt_status take_part(const clt_rest *r, const notice *all)
{
    const notice *first = &all[first_of(all, r->root.ranks)];
    struct clt_comm *comm = NULL;
    char *of_root;
    if (first->doing == CONNECT)
        return r->root.connect(r->root.user, -1, NULL, 0, NULL, &comm);
    CLT_TRY(gather_root(r, NULL, first->bytes, &of_root));
    clt_free(of_root);
    return CLT_OK;
}

clt_status clt_rest_wait(clt_rest *r, bool stop, clt_rest_news *news)
{
    const notice own = {.doing = WAIT, .stop = stop};
    clt_status status = CLT_OK;
    bool heard = false;
    *news = (clt_rest_news){0};
    while (status == CLT_OK && !heard) {
        notice *all;
        verdict next;
        CLT_TRY(announce(r, &own, &all, &next));
        const bool tells = all[first_of(all, r->root.ranks)].doing == TELL;
        heard = next == OVER || (next == GO && tells);
        if (next == OVER)
            status = hear_end(r, all, news);
        else if (next == GO)
            status = tells ? listen(r, all, news) : take_part(r, all);
        clt_free(all);
    }
    return status;
}

/* --- making one ------------------------------------------------------------------------------ */

clt_status clt_rest_create(const clt_world *world, const bool *has, clt_rest **out)
{
    const clt_rest *before = rest_of(world);
    clt_rest *r = CLT_NEW(clt_rest);
    int *numbers = clt_calloc((size_t)world->ranks, sizeof *numbers);
    if (!r || !numbers) {
        CLT_FREE(r, numbers);
        return CLT_OUT_OF_MEMORY;
    }
    r->root = before ? before->root : *world;
    r->numbers = numbers;
    clt_world_init(&r->world);
    r->world.ranks = 0;
    r->world.rank = -1;
    for (int k = 0; k < world->ranks; k++) {
        if (!has[k])
            continue;
        if (k == world->rank)
            r->world.rank = r->world.ranks;
        numbers[r->world.ranks++] = clt_rest_number(world, k);
    }
    /* Only ranks of one node go on without others. */
    r->world.node_rank = r->world.rank;
    r->world.node_ranks = r->world.ranks;
    r->world.gather = gather;
    r->world.connect = connect;
    r->world.user = r;
    *out = r;
    return CLT_OK;
}

void clt_rest_free(clt_rest *r)
{
    if (!r)
        return;
    CLT_FREE(r->numbers, r);
}
