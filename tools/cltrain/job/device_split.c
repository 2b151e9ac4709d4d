#include "job/device_split.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cltrain/checkpoint.h>
#include <cltrain/planner.h>

#include "text/message.h"

/* The planner and the communicator support no more devices. */
enum { MOST_DEVICES = 64 };

static int is_word(const char *at, size_t length)
{
    static const char *const words[] = {"all", "gpu", "cpu"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == length && !strncasecmp(at, words[i], length))
            return 1;
    return 0;
}

int planner_may_choose(const char *list)
{
    for (const char *at = list; at;) {
        const char *end = at + strcspn(at, ","), *next = *end ? end + 1 : NULL;
        while (at < end && *at == ' ')
            at++;
        while (end > at && end[-1] == ' ')
            end--;
        if (!is_word(at, (size_t)(end - at)))
            return 0;
        at = next;
    }
    return 1;
}

static int measured(const settings *s)
{
    return !s->split || !strcmp(s->split, "measured");
}

static int equal(const settings *s)
{
    return s->split && !strcmp(s->split, "equal");
}

/* Reads the next weight of --split W,... Returns -1 if it is not a valid weight. */
static double next_weight(const char **at)
{
    char *end;
    const double value = strtod(*at, &end);
    if (end == *at || !isfinite(value) || value < 0 || (*end && (*end != ',' || !end[1])))
        return -1;
    *at = *end ? end + 1 : end;
    return value;
}

int check_split(const settings *s)
{
    double sum = 0;
    if (measured(s) || equal(s))
        return 0;
    for (const char *at = s->split; *at;) {
        const double weight = next_weight(&at);
        if (weight < 0)
            return usage_error("--split %s: must be measured, equal, or a weight for each device, "
                               "as 2,1",
                               s->split);
        sum += weight;
    }
    return sum > 0 ? 0 : usage_error("--split %s: no device has any weight", s->split);
}

static int read_weights(job *j, const settings *s, int total)
{
    int count = 0;
    for (const char *at = s->split; *at; count++) {
        const double weight = next_weight(&at);
        if (count < total)
            j->weights[count] = weight;
    }
    if (count != total)
        return usage_error("--split %s: %d weights for %d devices", s->split, count, total);
    j->options.weights = j->weights;
    return 0;
}

/* Closes the devices with use[d] 0. */
static void keep_used(job *j, const int *use)
{
    int kept = 0;
    for (int d = 0; d < j->n_devices; d++)
        if (use[d])
            j->devices[kept++] = j->devices[d];
        else
            clt_device_close(j->devices[d]);
    j->n_devices = kept;
}

/* Returns whether any rank refuses. Collective. */
static int refused(const job *j, int own)
{
    int first, all = 0;
    return clt_world_count(&j->ranks.world, own, &first, &all) != CLT_OK || all;
}

/* Returns the division that the checkpoint of a resumed run has. Returns NULL if there is none, or
 * if the checkpoint cannot be read, which clt_fit reports. The caller closes `checkpoint`. */
static const char *open_section(const job *j, clt_checkpoint **checkpoint)
{
    const clt_section *section = NULL;
    *checkpoint = NULL;
    if (j->resumed && clt_checkpoint_open(j->resumed, checkpoint) == CLT_OK)
        section = clt_checkpoint_section(*checkpoint, CLT_SECTION_SPLIT);
    return section ? section->text : NULL;
}

/* Takes the bucket size from the checkpoint of a resumed run. A new plan overrides this size
 * later. */
static int take_buckets(job *j, const settings *s)
{
    clt_checkpoint *checkpoint;
    if (!job_resumes(s) || !s->checkpoint_dir)
        return 0;
    const clt_status status =
        clt_split_frozen_buckets(open_section(j, &checkpoint), &j->ranks.world, &j->bucket_bytes);
    clt_checkpoint_close(checkpoint);
    return status == CLT_OK || status == CLT_NOT_FOUND ? 0 : library_failure(status);
}

/* Takes the division of batches from the checkpoint of a resumed run. Returns 1 if all ranks take
 * it, else 0. */
static int take_frozen(job *j, const settings *s, int quiet)
{
    clt_checkpoint *checkpoint;
    int use[MOST_DEVICES], uneven, named = 0;
    if (!job_resumes(s) || !s->checkpoint_dir)
        return 0;
    const clt_status status =
        clt_split_frozen(open_section(j, &checkpoint), &j->ranks.world, j->devices, j->n_devices,
                         use, j->weights, &j->options.quantum, &j->options.per_device, &uneven);
    clt_checkpoint_close(checkpoint);
    for (int d = 0; status == CLT_OK && d < j->n_devices; d++)
        named |= !use[d] && !planner_may_choose(s->devices);
    if (status == CLT_OK && !refused(j, named)) {
        j->options.weights = uneven ? j->weights : NULL;
        keep_used(j, use);
        return 1;
    }
    j->options.quantum = 1;
    j->options.per_device = 0;
    if (status != CLT_NOT_FOUND && !quiet)
        printf("%s: batches are divided anew, and results are equal to rounding\n",
               status == CLT_OK ? "the checkpoint's division of batches is of other devices"
                                : clt_error_message());
    return 0;
}

static int measure(job *j, const settings *s, int total, int quiet)
{
    const int ranks = j->ranks.world.ranks;
    clt_planner_options options;
    clt_planner *planner;
    int use[MOST_DEVICES];
    clt_planner_options_init(&options);
    /* An equal division needs all ranks, so the planner may not leave devices out. */
    options.choose = planner_may_choose(s->devices) && !(equal(s) && ranks > 1);
    if (!quiet) {
        printf("measuring steps on %d device%s", total, total == 1 ? "" : "s");
        printf(ranks > 1 ? " of %d ranks\n" : "\n", ranks);
        fflush(stdout);
    }
    TRY(name_failure(
        clt_planner_create(j->graph, j->devices, j->n_devices, &j->options, &options, &planner)));
    for (int d = 0; d < j->n_devices; d++)
        use[d] = clt_planner_uses(planner, d);
    if (!equal(s) && clt_planner_weights(planner, j->weights, &j->options.quantum))
        j->options.weights = j->weights;
    j->bucket_bytes = clt_planner_bucket_bytes(planner);
    if (!quiet)
        fputs(clt_planner_text(planner), stdout);
    clt_prediction_init(&j->prediction);
    const clt_status predicted = clt_planner_predict(planner, NULL, equal(s), &j->prediction);
    keep_used(j, use);
    clt_planner_destroy(planner);
    return predicted == CLT_OK ? 0 : library_failure(predicted);
}

/* Takes the first division of --replay. */
static int take_replayed(job *j, const settings *s, int total)
{
    if (j->changes.n_weights != total)
        return usage_error("--replay %s: the run had %d devices, not %d", s->replay,
                           j->changes.n_weights, total);
    j->options.weights = j->changes.list[0].weights;
    j->options.quantum = j->changes.list[0].quantum;
    return 0;
}

/* Compares the settings that decide which collective calls follow. All ranks must make the same
 * calls. */
static int compare_ranks(const job *j, const settings *s)
{
    enum { TEXT = 256 };
    const clt_world *world = &j->ranks.world;
    char own[TEXT] = "", *all = calloc((size_t)world->ranks, TEXT);
    int code = ranks_agree(&j->ranks, all ? 0 : failure("memory does not suffice"));
    snprintf(own, sizeof own, "%d %d %d %d %d %.200s", s->zero == 3, job_owners(s),
             s->replay != NULL, j->predicts, job_resumes(s) && s->checkpoint_dir,
             measured(s) ? "measured" : s->split);
    if (!code && world->gather(world->user, own, sizeof own, all) != CLT_OK)
        code = library_failure(CLT_INTERNAL);
    for (int r = 1; !code && r < world->ranks; r++)
        if (strcmp(all + (size_t)r * TEXT, all))
            code = failure("rank %d has another setting of training (the division of batches) than "
                           "rank 0: start all ranks with the same program, options and data",
                           r);
    free(all);
    return code;
}

/* Counts the devices of all ranks. Returns an exit code, the same on all ranks. */
static int count_devices(const job *j, const settings *s, int *total)
{
    const int ranks = j->ranks.world.ranks;
    int first, code = 0;
    *total = j->n_devices;
    if (j->n_devices > MOST_DEVICES)
        code =
            usage_error("--devices names %d devices; %d is the most", j->n_devices, MOST_DEVICES);
    if (ranks < 2)
        return code;
    code = ranks_agree(&j->ranks, code);
    NEXT(code, compare_ranks(j, s));
    if (!code && clt_world_count(&j->ranks.world, j->n_devices, &first, total) != CLT_OK)
        code = library_failure(CLT_INTERNAL);
    return code;
}

int job_split(job *j, const settings *s, int quiet)
{
    int total, code = count_devices(j, s, &total);
    if (code)
        return code;
    if (s->replay)
        return take_replayed(j, s, total);
    code = take_buckets(j, s);
    if (code || j->options.virtual_shards) /* all shards are equal */
        return code;
    const int planned = !job_is_meshed(s) || !(measured(s) || equal(s));
    if (!j->predicts && (total == 1 || equal(s) || !planned))
        return 0;
    j->weights = calloc((size_t)total, sizeof *j->weights);
    code = ranks_agree(&j->ranks, j->weights ? 0 : failure("memory does not suffice"));
    if (code)
        return code;
    if (!measured(s) && !equal(s))
        return read_weights(j, s, total);
    return take_frozen(j, s, quiet) ? 0 : measure(j, s, total, quiet);
}
