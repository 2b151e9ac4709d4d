/* --replay: reads the divisions of batches from a file of --metrics. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/message.h"
#include "job/device_split.h"
#include "text/text.h"

typedef struct reading {
    job *job;
    const char *path;
    int n_weights; /* weights in each change; 0 before the first change */
} reading;

/* Takes the bucket size of a change. Files of older versions lack the size, because all runs used
 * the library's default. */
static int take_buckets(reading *r, const json_t *record, int line)
{
    const json_t *bytes = json_object_get(record, "bucket_bytes");
    const int64_t read = bytes ? json_integer_value(bytes) : 0;
    if (bytes && read < 1)
        return failure("%s, line %d: \"bucket_bytes\" must be at least 1", r->path, line);
    if (r->job->changes.count && read != r->job->bucket_bytes)
        return failure("%s, line %d: the size of buckets changed here; only the steps before it "
                       "can be repeated",
                       r->path, line);
    r->job->bucket_bytes = read;
    return 0;
}

static int no_room(void)
{
    return failure("memory does not suffice");
}

static int add_change(reading *r, const json_t *record, const json_t *weights, int line)
{
    const int n = (int)json_array_size(weights), at = r->job->changes.count;
    const json_t *step = json_object_get(record, "step"),
                 *quantum = json_object_get(record, "quantum");
    if (n > 0 && n < r->n_weights && json_is_integer(step))
        return failure("%s, line %d: of %d devices %d were left at step %lld, after one was lost: "
                       "such a run cannot be repeated",
                       r->path, line, r->n_weights, n, (long long)json_integer_value(step));
    if (n < 1 || (r->n_weights && n != r->n_weights) || !json_is_integer(step) ||
        !json_is_integer(quantum) || (at == 0) != (json_integer_value(step) == 1))
        return failure("%s, line %d: its \"weights\", \"step\" and \"quantum\" are no division of "
                       "batches of a run with --rebalance",
                       r->path, line);
    TRY(take_buckets(r, record, line));
    clt_split_change *list = realloc(r->job->changes.list, (size_t)(at + 1) * sizeof *list);
    if (!list)
        return no_room();
    r->job->changes.list = list;
    double *numbers =
        realloc(r->job->changes.numbers, (size_t)(at + 1) * (size_t)n * sizeof *numbers);
    if (!numbers)
        return no_room();
    r->job->changes.numbers = numbers;
    for (int d = 0; d < n; d++)
        numbers[at * n + d] = json_number_value(json_array_get(weights, (size_t)d));
    list[at] = (clt_split_change){.step = json_integer_value(step),
                                  .quantum = json_integer_value(quantum)};
    r->job->changes.count++;
    r->n_weights = n;
    return 0;
}

static int read_lines(reading *r, FILE *file)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    int code = 0;
    for (int number = 1; !code && (length = getline(&line, &room, file)) > 0; number++) {
        json_t *record = json_loadb(line, (size_t)length, 0, NULL);
        const json_t *weights = json_object_get(record, "split");
        /* A run that was killed may have left an incomplete last line. */
        if (!record && line[length - 1] == '\n')
            code =
                failure("%s, line %d: no JSON: the file is damaged, and a division of batches may "
                        "be missing",
                        r->path, number);
        if (weights)
            code = add_change(r, record, weights, number);
        json_decref(record);
    }
    free(line);
    if (!code && ferror(file))
        code = failure("cannot read %s: %s", r->path, strerror(errno));
    return code;
}

int job_replay(job *j, const settings *s)
{
    reading r = {.job = j, .path = s->replay};
    j->options.rebalance = s->rebalance || s->replay;
    if (!s->replay)
        return 0;
    if (s->rebalance || s->split)
        return usage_error("--replay divides as its file says: leave --%s out",
                           s->rebalance ? "rebalance" : "split");
    FILE *file = open_text(s->replay);
    if (!file)
        return EXIT_FAILED;
    int code = read_lines(&r, file);
    fclose(file);
    if (!code && !j->changes.count)
        code =
            failure("%s has no division of batches: it is of a run without --rebalance", s->replay);
    for (int i = 0; i < j->changes.count; i++)
        j->changes.list[i].weights = j->changes.numbers + i * r.n_weights;
    j->changes.n_weights = r.n_weights;
    return code;
}
