#include "output/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include <cltrain/local.h>

#include "output/means.h"
#include "output/scalars.h"
#include "text/message.h"

/* Records reach the file at least this often, so a kill loses little. */
#define FLUSH_SECONDS 0.5

/* Pending records are flushed before the stream's buffer is full, so the file always ends with a
 * whole line. */
enum { BUFFER = 1 << 16 };

/* The rate is a mean over this many steps. Two steps are queued at a time, so results arrive in
 * bursts. */
enum { WINDOW = 8 };

struct metrics {
    const char *path;
    FILE *file;        /* NULL: only TensorBoard's files are written */
    const char *board; /* NULL: they are not */
    clt_event_file *events;
    char board_error[512]; /* "": no failure yet */
    int resume, made, begun;
    int scaled; /* losses are scaled, and steps may be skipped */
    int error;  /* errno of the first failure */
    double flushed;
    size_t pending; /* bytes that are not in the file yet */
    double seconds[WINDOW];
    int64_t samples[WINDOW];
    int64_t steps;                /* steps reported so far */
    double epoch_seconds, waited; /* at the report of the previous epoch */
};

static const char *reason(int error)
{
    return error == EPIPE || error == ENXIO ? "nobody reads this pipe" : strerror(error);
}

/* Seconds that a run waits for the reader of a named pipe. */
static const double READER = 30;

/* Opens a pipe for writing only. Otherwise this process would be a reader of the pipe itself, and
 * would wait for ever when the last other reader has ended. */
static int open_pipe(const char *path, int (*asked)(void))
{
    patience p = {.seconds = READER, .asked = asked, .noted = 1};
    int fd;
    do
        fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    while (fd < 0 && errno == ENXIO && patience_left(&p, ""));
    if (fd >= 0)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
}

/* Returns a file descriptor, or -1 with errno set. Sets `there` if the path existed. */
static int open_file(const char *path, int (*asked)(void), int *there)
{
    struct stat info;
    *there = stat(path, &info) == 0;
    if (*there && S_ISFIFO(info.st_mode))
        return open_pipe(path, asked);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    /* A terminal may be write-only. */
    return fd < 0 && *there && !S_ISREG(info.st_mode) ? open(path, O_WRONLY | O_CLOEXEC) : fd;
}

/* Opens the file and locks it. Opens it again if the previous owner of the lock removed the
 * file. */
static int open_and_hold(const char *path, patience *p, int *there, int *fd)
{
    struct stat own, named;
    for (;;) {
        *fd = open_file(path, p->asked, there);
        if (*fd < 0)
            return 0;
        const int code = hold_file(*fd, "metrics file", path, p);
        const int same = fstat(*fd, &own) == 0 && stat(path, &named) == 0 &&
                         own.st_dev == named.st_dev && own.st_ino == named.st_ino;
        if (!code && (same || !S_ISREG(own.st_mode)))
            return 0;
        close(*fd);
        if (code)
            return code;
    }
}

/* Opens the file of --metrics, which is locked then. */
static int open_lines(metrics *m, const char *path, patience *p)
{
    int there, fd;
    const int code = open_and_hold(path, p, &there, &fd);
    if (code)
        return code;
    m->file = fd < 0 ? NULL : fdopen(fd, "r+");
    if (fd >= 0 && !m->file)
        m->file = fdopen(fd, "w");
    if (!m->file) {
        const int error = errno;
        if (fd >= 0)
            close(fd);
        return failure("cannot write the metrics file %s: %s", path, reason(error));
    }
    setvbuf(m->file, NULL, _IOFBF, BUFFER);
    m->path = path;
    m->made = !there;
    return 0;
}

int metrics_open(const char *path, const char *board, int resume, int scaled, patience *p,
                 metrics **out)
{
    metrics *m = calloc(1, sizeof *m);
    TRY_MEMORY(m);
    const int code = path ? open_lines(m, path, p) : 0;
    if (code) {
        free(m);
        return code;
    }
    m->board = board;
    m->resume = resume;
    m->scaled = scaled;
    *out = m;
    return 0;
}

/* Finds where the record of step `first` or of a later step begins. An incomplete last line is not
 * kept either. *late: the records of earlier steps behind that, which asynchronous runs have,
 * because they go on while an epoch is evaluated. Free it with free. */
static off_t end_of_kept(FILE *file, int64_t first, char **late, size_t *late_bytes)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    off_t kept = 0;
    int later = 0;
    FILE *behind = open_memstream(late, late_bytes);
    while ((length = getline(&line, &room, file)) > 0 && line[length - 1] == '\n') {
        json_t *record = json_loads(line, 0, NULL);
        const json_t *step = json_object_get(record, "step");
        const int has_step = json_is_integer(step);
        const int earlier = has_step && json_integer_value(step) < first;
        json_decref(record);
        later = later || (has_step && !earlier);
        if (!later)
            kept += length;
        else if (earlier && behind)
            fwrite(line, 1, (size_t)length, behind);
    }
    if (behind)
        fclose(behind);
    free(line);
    return kept;
}

static void fail(metrics *m)
{
    if (!m->error)
        m->error = errno ? errno : EIO;
}

/* Keeps the first message of a failure for metrics_close. */
static void check_board(metrics *m, clt_status status)
{
    if (status != CLT_OK && !*m->board_error)
        snprintf(m->board_error, sizeof m->board_error, "%s", clt_error_message());
}

/* Truncates the file before the first record. A resumed run keeps the records of earlier steps. */
static void begin(metrics *m, int64_t first)
{
    struct stat info;
    m->begun = 1;
    if (m->board)
        check_board(m, clt_event_file_create(m->board, first, &m->events));
    if (!m->file || fstat(fileno(m->file), &info) != 0 || !S_ISREG(info.st_mode))
        return;
    char *late = NULL;
    size_t bytes = 0;
    const off_t kept = m->resume ? end_of_kept(m->file, first, &late, &bytes) : 0;
    if (fseeko(m->file, kept, SEEK_SET) != 0 || ftruncate(fileno(m->file), kept) != 0 ||
        (late && fwrite(late, 1, bytes, m->file) != bytes))
        fail(m);
    free(late);
}

static void set_number(json_t *record, const char *name, double value)
{
    json_object_set_new(record, name, isfinite(value) ? json_real(value) : json_null());
}

static void flush_lines(metrics *m, double now)
{
    if (m->file && fflush(m->file) != 0)
        fail(m);
    if (m->events)
        check_board(m, clt_event_file_flush(m->events));
    m->pending = 0;
    m->flushed = now;
}

static int has_failed(const metrics *m)
{
    return m->error || *m->board_error;
}

static void write_line(metrics *m, const json_t *record, double now)
{
    char *text = json_dumps(record, JSON_COMPACT | JSON_REAL_PRECISION(9));
    errno = 0;
    const size_t length = text ? strlen(text) + 1 : 0;
    if (m->pending + length >= BUFFER)
        flush_lines(m, now);
    m->pending += length;
    if (!text || fprintf(m->file, "%s\n", text) < 0)
        fail(m);
    free(text);
}

/* `step`: that of the record, or -1 if the record belongs to no curve. */
static int write_record(metrics *m, json_t *record, int64_t step, double now, int flush)
{
    if (m->file)
        write_line(m, record, now);
    if (m->events && record && step >= 0)
        check_board(m, scalars_add(m->events, record, step));
    json_decref(record);
    if (flush || now - m->flushed > FLUSH_SECONDS)
        flush_lines(m, now);
    return has_failed(m) ? -1 : 0;
}

static double rate_of(metrics *m, const clt_progress *p)
{
    double seconds = 0;
    int64_t samples = 0;
    m->seconds[m->steps % WINDOW] = p->step_seconds;
    m->samples[m->steps++ % WINDOW] = p->samples;
    for (int i = 0; i < WINDOW; i++) {
        seconds += m->seconds[i];
        samples += m->samples[i];
    }
    return seconds > 0 ? (double)samples / seconds : NAN;
}

/* Adds what the replicas have done since the last synchronisation. */
static void add_sync(json_t *record, const clt_sync_report *sync)
{
    json_t *samples = json_array(), *steps = json_array(), *losses = json_array();
    for (int r = 0; r < sync->replicas; r++) {
        json_array_append_new(samples, json_integer(sync->samples[r]));
        json_array_append_new(steps, json_integer(sync->batches[r]));
        json_array_append_new(losses,
                              isfinite(sync->losses[r]) ? json_real(sync->losses[r]) : json_null());
    }
    json_object_set_new(record, "sync", json_integer(sync->number));
    json_object_set_new(record, "sync_steps", json_integer(sync->steps));
    json_object_set_new(record, "sync_bytes", json_integer(sync->bytes));
    set_number(record, "period_seconds", sync->period);
    set_number(record, "sync_seconds", sync->seconds);
    json_object_set_new(record, "replica_samples", samples);
    json_object_set_new(record, "replica_steps", steps);
    json_object_set_new(record, "replica_losses", losses);
}

int metrics_step(metrics *m, const clt_progress *p)
{
    if (!m->begun)
        begin(m, p->step - (p->sync ? p->sync->steps - 1 : 0));
    json_t *record = json_object();
    json_object_set_new(record, "step", json_integer(p->step));
    json_object_set_new(record, "epoch", json_integer(p->epoch));
    set_number(record, "loss", p->loss);
    json_object_set_new(record, "samples", json_integer(p->samples));
    set_number(record, "samples_per_s", rate_of(m, p));
    set_number(record, "lr", p->lr);
    if (m->scaled) {
        json_object_set_new(record, "loss_scale", json_real(p->loss_scale));
        json_object_set_new(record, "skipped", json_integer(p->skipped));
    }
    if (p->asynchronous) {
        json_object_set_new(record, "worker", json_integer(p->worker));
        json_object_set_new(record, "staleness", json_integer(p->staleness));
        json_object_set_new(record, "discarded", json_integer(p->discarded));
    }
    if (p->split) {
        json_t *weights = json_array();
        for (int d = 0; d < p->n_split; d++)
            json_array_append_new(weights, json_real(p->split[d]));
        json_object_set_new(record, "split", weights);
        json_object_set_new(record, "quantum", json_integer(p->quantum));
        json_object_set_new(record, "bucket_bytes", json_integer(p->bucket_bytes));
    }
    if (p->sync)
        add_sync(record, p->sync);
    return write_record(m, record, p->step, p->seconds, 0);
}

/* Adds SET_loss and further means of a set. */
static void add_means(json_t *record, const clt_graph *graph, const char *set, double loss,
                      const double *means, int count)
{
    char name[128];
    snprintf(name, sizeof name, "%s_loss", set);
    set_number(record, name, loss);
    for (int i = 0; i < mean_count(graph); i++)
        if (mean_name(graph, i)) {
            snprintf(name, sizeof name, "%s_%s", set, mean_name(graph, i));
            set_number(record, name, i < count ? means[i] : NAN);
        }
}

static void add_averages(json_t *record, const clt_graph *graph, const clt_progress *p)
{
    if (p->n_average_val_means)
        add_means(record, graph, "average_val", p->average_val_loss, p->average_val_means,
                  p->n_average_val_means);
    if (p->n_average_test_means)
        add_means(record, graph, "average_test", p->average_test_loss, p->average_test_means,
                  p->n_average_test_means);
}

int metrics_validation(metrics *m, const clt_graph *graph, const clt_progress *p)
{
    if (!m->begun)
        begin(m, p->step + 1);
    json_t *record = json_object();
    json_object_set_new(record, "step", json_integer(p->step));
    json_object_set_new(record, "epoch", json_integer(p->epoch));
    add_means(record, graph, "val", p->val_loss, p->val_means, p->n_val_means);
    add_averages(record, graph, p);
    return write_record(m, record, p->step, p->seconds, 1);
}

int metrics_epoch(metrics *m, const clt_graph *graph, const clt_progress *p)
{
    if (!m->begun)
        begin(m, p->step + 1);
    json_t *record = json_object();
    json_object_set_new(record, "epoch", json_integer(p->epoch));
    if (p->asynchronous)
        json_object_set_new(record, "step", json_integer(p->step));
    if (p->n_val_means)
        add_means(record, graph, "val", p->val_loss, p->val_means, p->n_val_means);
    add_means(record, graph, "test", p->test_loss, p->test_means, p->n_test_means);
    add_averages(record, graph, p);
    set_number(record, "seconds", p->seconds);
    if (p->asynchronous)
        json_object_set_new(record, "discarded", json_integer(p->discarded));
    const double seconds = p->seconds - m->epoch_seconds;
    set_number(record, "wait", seconds > 0 ? (p->wait_seconds - m->waited) / seconds : 0);
    m->epoch_seconds = p->seconds;
    m->waited = p->wait_seconds;
    return write_record(m, record, p->step, p->seconds, 1);
}

int metrics_change(metrics *m, json_t *record, const clt_progress *first)
{
    if (!m->begun)
        begin(m, first->step);
    return write_record(m, record, -1, first->seconds, 1);
}

int metrics_flush(metrics *m)
{
    flush_lines(m, m->flushed);
    return has_failed(m) ? -1 : 0;
}

int metrics_close(metrics *m)
{
    if (!m)
        return 0;
    errno = 0;
    if (m->file && fclose(m->file) != 0)
        fail(m);
    if (m->events)
        check_board(m, clt_event_file_flush(m->events));
    clt_event_file_destroy(m->events);
    if (m->made && !m->begun)
        unlink(m->path);
    int code = 0;
    if (m->error)
        code = failure("cannot write the metrics file %s: %s", m->path, reason(m->error));
    if (*m->board_error)
        code = failure("--tensorboard %s: %s", m->board, m->board_error);
    free(m);
    return code;
}
