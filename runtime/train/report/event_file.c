/*
 * Writes TensorBoard's event files. A record is the number of bytes of a message, the message, and
 * a CRC32C of each (TensorFlow's tfrecord format).
 */
#include <cltrain/events.h>

#include "base/error.h"

#if defined(CLT_HAVE_PROTOBUF_C) && defined(CLT_HAVE_ISAL)

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <isa-l/crc.h>

#include "base/alloc.h"
#include <event.pb-c.h>

struct clt_event_file {
    FILE *file;
    char *path;
};

/* The checksum of a record. It is masked, so that data with checksums in them have others. */
static uint32_t checksum(uint8_t *data, size_t bytes)
{
    const uint32_t crc = ~crc32_iscsi(data, (int)bytes, 0xffffffffu);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

/* Stores a number with its least byte first. */
static void put(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> (8 * i));
}

static clt_status io_error(const clt_event_file *file)
{
    return clt_fail(CLT_IO, "cannot write the event file %s: %s", file->path, strerror(errno));
}

/* Returns the message's bytes with its length and checksums. NULL: no memory. */
static uint8_t *record_of(const CltEvents__Event *event, size_t *size)
{
    const size_t bytes = clt_events__event__get_packed_size(event);
    *size = 12 + bytes + 4;
    uint8_t *record = clt_alloc(*size);
    if (!record)
        return NULL;
    put(record, bytes, 8);
    put(record + 8, checksum(record, 8), 4);
    clt_events__event__pack(event, record + 12);
    put(record + 12 + bytes, checksum(record + 12, bytes), 4);
    return record;
}

static clt_status write_event(clt_event_file *file, CltEvents__Event *event)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    event->wall_time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    size_t size;
    uint8_t *record = record_of(event, &size);
    if (!record)
        return CLT_OUT_OF_MEMORY;
    const int written = fwrite(record, size, 1, file->file) == 1;
    clt_free(record);
    return written ? CLT_OK : io_error(file);
}

/* Writes the version, and that a session begins: TensorBoard then drops events of other files at
 * this step and behind it. */
static clt_status write_start(clt_event_file *file, int64_t first_step)
{
    CltEvents__Event version = CLT_EVENTS__EVENT__INIT, start = CLT_EVENTS__EVENT__INIT;
    CltEvents__SessionLog log = CLT_EVENTS__SESSION_LOG__INIT;
    version.file_version = (char[]){"brain.Event:2"};
    CLT_TRY(write_event(file, &version));
    log.status = CLT_EVENTS__SESSION_LOG__STATUS__START;
    start.has_step = 1;
    start.step = first_step;
    start.session_log = &log;
    CLT_TRY(write_event(file, &start));
    return clt_event_file_flush(file);
}

/* Opens a file that nobody else has. TensorBoard reads the files of a folder in the order of their
 * names, so the time comes first. */
static clt_status open_new(clt_event_file *file, const char *folder)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return clt_fail(CLT_IO, "cannot make the folder %s: %s", folder, strerror(errno));
    char host[64] = "host";
    gethostname(host, sizeof host - 1);
    const size_t room = strlen(folder) + sizeof host + 96;
    file->path = clt_alloc(room);
    if (!file->path)
        return CLT_OUT_OF_MEMORY;
    const long long now = (long long)time(NULL);
    for (int i = 0; !file->file; i++) {
        snprintf(file->path, room, "%s/events.out.tfevents.%010lld.%s.%ld.%d", folder, now, host,
                 (long)getpid(), i);
        file->file = fopen(file->path, "wbxe");
        if (!file->file && errno != EEXIST)
            return io_error(file);
    }
    return CLT_OK;
}

clt_status clt_event_file_create(const char *folder, int64_t first_step, clt_event_file **out)
{
    clt_event_file *file = CLT_NEW(clt_event_file);
    if (!file)
        return CLT_OUT_OF_MEMORY;
    clt_status status = open_new(file, folder);
    if (status == CLT_OK)
        status = write_start(file, first_step);
    if (status != CLT_OK) {
        if (file->file)
            fclose(file->file);
        CLT_FREE(file->path, file);
        return status;
    }
    *out = file;
    return CLT_OK;
}

clt_status clt_event_file_scalar(clt_event_file *file, const char *tag, int64_t step, double value)
{
    if (!tag || !*tag)
        return clt_fail(CLT_INVALID_ARGUMENT, "an event of step %lld has no tag: name its curve",
                        (long long)step);
    CltEvents__Value scalar = CLT_EVENTS__VALUE__INIT;
    CltEvents__Summary summary = CLT_EVENTS__SUMMARY__INIT;
    CltEvents__Event event = CLT_EVENTS__EVENT__INIT;
    CltEvents__Value *values[] = {&scalar};
    scalar.tag = (char *)tag; /* only read */
    scalar.simple_value = (float)value;
    summary.n_value = 1;
    summary.value = values;
    event.has_step = 1;
    event.step = step;
    event.summary = &summary;
    return write_event(file, &event);
}

clt_status clt_event_file_flush(clt_event_file *file)
{
    return fflush(file->file) == 0 ? CLT_OK : io_error(file);
}

void clt_event_file_destroy(clt_event_file *file)
{
    if (!file)
        return;
    fclose(file->file);
    CLT_FREE(file->path, file);
}

#else

static clt_status missing(void)
{
    return clt_fail(CLT_UNSUPPORTED, "this cltrain was built without protobuf-c or ISA-L, so it "
                                     "cannot write files of TensorBoard: build it with them");
}

clt_status clt_event_file_create(const char *folder, int64_t first_step, clt_event_file **file)
{
    (void)folder;
    (void)first_step;
    (void)file;
    return missing();
}

clt_status clt_event_file_scalar(clt_event_file *file, const char *tag, int64_t step, double value)
{
    (void)file;
    (void)tag;
    (void)step;
    (void)value;
    return missing();
}

clt_status clt_event_file_flush(clt_event_file *file)
{
    (void)file;
    return missing();
}

void clt_event_file_destroy(clt_event_file *file)
{
    (void)file;
}

#endif
