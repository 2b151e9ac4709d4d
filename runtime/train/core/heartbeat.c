#include "train/core/heartbeat.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"

_Static_assert(offsetof(clt_heartbeat_record, message) == 344 &&
                   sizeof(clt_heartbeat_record) == 600,
               "readers in other languages count the bytes");

struct clt_heartbeat {
    clt_heartbeat_record *record;
    size_t bytes;
    int file; /* stays open: cltrain-launch learns from its closing in which order ranks end */
};

/* Release stores: a reader in another process sees no torn values, and sees them in this order. */
static void set(int64_t *field, int64_t value)
{
    __atomic_store_n(field, value, __ATOMIC_RELEASE);
}

static void set_short(int32_t *field, int32_t value)
{
    __atomic_store_n(field, value, __ATOMIC_RELEASE);
}

static void tick(clt_heartbeat_record *r)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    set(&r->time, now.tv_sec * INT64_C(1000000000) + now.tv_nsec);
    __atomic_fetch_add(&r->beats, 1, __ATOMIC_RELEASE);
}

/* Allocate the file's blocks before mapping the file. Writing into a hole would kill the process if
 * the disk is full. */
static clt_status map_file(const char *path, int fd, size_t bytes, void **memory)
{
    int error = posix_fallocate(fd, 0, (off_t)bytes);
    if (!error) {
        *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        error = *memory == MAP_FAILED ? errno : 0;
    }
    return error ? clt_fail(CLT_IO, "cannot write the heartbeat file %s: %s", path, strerror(error))
                 : CLT_OK;
}

static void fill(clt_heartbeat_record *r, int rank, int ranks, char *const *labels, int n)
{
    char *text = (char *)(r + 1);
    *r = (clt_heartbeat_record){.version = CLT_HEARTBEAT_VERSION,
                                .state = CLT_HEARTBEAT_SETUP,
                                .rank = rank,
                                .ranks = ranks,
                                .pid = getpid(),
                                .started = -1,
                                .completed = -1,
                                .labels = n};
    gethostname(r->host, sizeof r->host - 1);
    for (int i = 0; i < n; i++, text += CLT_HEARTBEAT_TEXT)
        snprintf(text, CLT_HEARTBEAT_TEXT, "%s", labels[i]);
    tick(r);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(r->magic, CLT_HEARTBEAT_MAGIC, sizeof r->magic);
}

clt_status clt_heartbeat_open(const char *path, int rank, int ranks, char *const *labels, int n,
                              clt_heartbeat **out)
{
    const size_t bytes = sizeof(clt_heartbeat_record) + (size_t)n * CLT_HEARTBEAT_TEXT;
    clt_heartbeat *beat = CLT_NEW(clt_heartbeat);
    CLT_TRY_MEMORY(beat);
    /* Replace the file instead of truncating it. Truncation would kill a process that still maps
     * the old file. */
    if (unlink(path) != 0 && errno != ENOENT) {
        clt_free(beat);
        return clt_fail(CLT_IO, "cannot replace the heartbeat file %s: %s", path, strerror(errno));
    }
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    void *memory = NULL;
    clt_status status =
        fd < 0 ? clt_fail(CLT_IO, "cannot make the heartbeat file %s: %s", path, strerror(errno))
               : map_file(path, fd, bytes, &memory);
    if (status != CLT_OK) {
        if (fd >= 0)
            close(fd);
        clt_free(beat);
        return status;
    }
    beat->record = memory;
    beat->bytes = bytes;
    beat->file = fd;
    fill(beat->record, rank, ranks, labels, n);
    *out = beat;
    return CLT_OK;
}

void clt_heartbeat_close(clt_heartbeat *beat)
{
    if (!beat)
        return;
    clt_heartbeat_state_is(beat, CLT_HEARTBEAT_ENDED);
    munmap(beat->record, beat->bytes);
    close(beat->file);
    clt_free(beat);
}

void clt_heartbeat_rank_is(clt_heartbeat *beat, int rank, int ranks)
{
    if (!beat)
        return;
    set_short(&beat->record->rank, rank);
    set_short(&beat->record->ranks, ranks);
    tick(beat->record);
}

void clt_heartbeat_step(clt_heartbeat *beat, int64_t step)
{
    if (!beat)
        return;
    set(&beat->record->step, step);
    set_short(&beat->record->state, CLT_HEARTBEAT_TRAINING);
    tick(beat->record);
}

void clt_heartbeat_start(clt_heartbeat *beat, int bucket)
{
    if (!beat)
        return;
    set_short(&beat->record->started, bucket);
    set(&beat->record->starts, beat->record->starts + 1);
    tick(beat->record);
}

void clt_heartbeat_complete(clt_heartbeat *beat, int bucket)
{
    if (!beat)
        return;
    set_short(&beat->record->completed, bucket);
    set(&beat->record->completes, beat->record->completes + 1);
    tick(beat->record);
}

void clt_heartbeat_state_is(clt_heartbeat *beat, clt_heartbeat_state state)
{
    if (!beat)
        return;
    if (beat->record->state != CLT_HEARTBEAT_FAILED)
        set_short(&beat->record->state, (int32_t)state);
    tick(beat->record);
}

void clt_heartbeat_beat(clt_heartbeat *beat)
{
    if (beat)
        tick(beat->record);
}

void clt_heartbeat_failed(clt_heartbeat *beat, clt_status status, const char *message)
{
    if (!beat)
        return;
    snprintf(beat->record->message, sizeof beat->record->message, "%s", message);
    beat->record->status = (int32_t)status;
    clt_heartbeat_state_is(beat, CLT_HEARTBEAT_FAILED); /* no later state replaces FAILED */
}
