#include "split.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cltrain/checkpoint.h>
#include <cltrain/planner.h>

#include "message.h"

/* Room for the answers of the planner; the communicator has no more either. */
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

/* The next weight of --split W,...; negative if there is none. */
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

static int read_weights(job *j, const settings *s)
{
    int count = 0;
    for (const char *at = s->split; *at; count++) {
        const double weight = next_weight(&at);
        if (count < j->n_devices)
            j->weights[count] = weight;
    }
    if (count != j->n_devices)
        return usage_error("--split %s: %d weights for %d devices", s->split, count, j->n_devices);
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

/* The division that a resumed run's checkpoint has. Returns 1 if it is taken. */
static int take_frozen(job *j, const settings *s, int quiet)
{
    clt_checkpoint *checkpoint = NULL;
    int use[MOST_DEVICES], uneven, taken = 0;
    if (!s->resume || !s->checkpoint_dir ||
        clt_checkpoint_open(s->checkpoint_dir, &checkpoint) != CLT_OK)
        return 0; /* one that cannot be read is clt_fit's to report */
    const clt_section *section = clt_checkpoint_section(checkpoint, CLT_SECTION_SPLIT);
    if (section) {
        const clt_status status =
            clt_split_frozen(section->text, j->devices, j->n_devices, use, j->weights,
                             &j->options.quantum, &j->options.per_device, &uneven);
        taken = status == CLT_OK;
        for (int d = 0; taken && d < j->n_devices; d++)
            taken = use[d] || planner_may_choose(s->devices);
        if (taken) {
            j->options.weights = uneven ? j->weights : NULL;
            keep_used(j, use);
        } else if (!quiet) {
            j->options.quantum = 1;
            printf("the checkpoint's division of batches is of other devices: it is made anew, and "
                   "results are equal to rounding\n");
        }
    }
    clt_checkpoint_close(checkpoint);
    return taken;
}

static int measure(job *j, const settings *s, int quiet)
{
    clt_planner_options options;
    clt_planner *planner;
    int use[MOST_DEVICES];
    clt_planner_options_init(&options);
    options.choose = planner_may_choose(s->devices);
    if (!quiet) {
        printf("measuring steps on %d device%s\n", j->n_devices, j->n_devices == 1 ? "" : "s");
        fflush(stdout);
    }
    const clt_status status =
        clt_planner_create(j->graph, j->devices, j->n_devices, &j->options, &options, &planner);
    if (status != CLT_OK)
        return name_failure(status);
    for (int d = 0; d < j->n_devices; d++)
        use[d] = clt_planner_uses(planner, d);
    if (!equal(s) && clt_planner_weights(planner, j->weights, &j->options.quantum))
        j->options.weights = j->weights;
    if (!quiet)
        fputs(clt_planner_text(planner), stdout);
    const clt_status predicted = clt_planner_predict(planner, NULL, equal(s), &j->prediction);
    keep_used(j, use);
    clt_planner_destroy(planner);
    return predicted == CLT_OK ? 0 : library_failure(predicted);
}

/* The first division of --replay. */
static int take_replayed(job *j, const settings *s)
{
    if (j->changes.n_weights != j->n_devices)
        return usage_error("--replay %s: the run had %d devices, not %d", s->replay,
                           j->changes.n_weights, j->n_devices);
    j->options.weights = j->changes.list[0].weights;
    j->options.quantum = j->changes.list[0].quantum;
    return 0;
}

int job_split(job *j, const settings *s, int quiet)
{
    if (s->replay)
        return take_replayed(j, s);
    if (!j->predicts && (j->n_devices == 1 || equal(s)))
        return 0;
    /* Ranks do not know each other's devices here. */
    if (j->ranks.world.ranks > 1)
        return s->split && !measured(s)
                   ? usage_error("--split %s: ranks divide batches equally", s->split)
                   : 0;
    if (j->n_devices > MOST_DEVICES)
        return usage_error("--devices names %d devices; %d is the most", j->n_devices,
                           MOST_DEVICES);
    j->weights = calloc((size_t)j->n_devices, sizeof *j->weights);
    if (!j->weights)
        return failure("memory does not suffice");
    if (!measured(s) && !equal(s))
        return read_weights(j, s);
    return take_frozen(j, s, quiet) ? 0 : measure(j, s, quiet);
}
