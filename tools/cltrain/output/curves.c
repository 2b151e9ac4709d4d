#include "output/curves.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "output/gnuplot.h"
#include "text/message.h"
#include "text/text.h"

/* --- reading --------------------------------------------------------------------------------- */

/* The epoch being read. The x of its steps is known only when its last step has been read. */
typedef struct reading {
    curves *out;
    double epoch; /* of the steps read last */
    int first;    /* index of the first point of the epoch */
    int steps;    /* of the longest epoch so far */
    /* Steps of an asynchronous run belong to several epochs at a time. x of its points is the step
     * until the file is read. */
    int asynchronous;
    curve epochs; /* of asynchronous runs: x is the epoch, y its number of steps */
} reading;

static int add(curve *c, double x, double y, double weight)
{
    if (c->count == c->room) {
        const int room = c->room ? 2 * c->room : 1024;
        point *points = realloc(c->points, (size_t)room * sizeof *points);
        TRY_MEMORY(points);
        c->points = points;
        c->room = room;
    }
    c->points[c->count++] = (point){x, y, weight, 0};
    return 0;
}

/* Sets x of all steps of the epoch that ended, and adds the mean loss of the epoch. The last epoch
 * may have been cut short, so the distance of steps comes from the longest epoch so far. */
static int place_steps(reading *r)
{
    curve *c = &r->out->loss;
    const int steps = c->count - r->first;
    double sum = 0, weight = 0;
    if (steps > r->steps)
        r->steps = steps;
    for (int i = 0; i < steps; i++) {
        point *p = &c->points[r->first + i];
        p->x = r->epoch - 1 + (double)(i + 1) / r->steps;
        p->partial = i > 0 && i == steps - 1 && p->weight < c->points[r->first].weight;
        sum += p->weight * p->y;
        weight += p->weight;
    }
    r->first = c->count;
    return steps ? add(&r->out->epoch_loss, c->points[c->count - 1].x, sum / weight, weight) : 0;
}

/* Counts a step of an epoch. Few epochs are under way at a time. */
static int count_step(reading *r, double epoch)
{
    curve *c = &r->epochs;
    int i = c->count - 1;
    while (i >= 0 && c->points[i].x != epoch)
        i--;
    if (i >= 0)
        c->points[i].y++;
    else if (add(c, epoch, 1, 1) != 0)
        return EXIT_FAILED;
    const int steps = (int)c->points[i >= 0 ? i : c->count - 1].y;
    r->steps = steps > r->steps ? steps : r->steps;
    return 0;
}

/* Sets x of all points of an asynchronous run: as many steps as the longest epoch has are 1. Each
 * of these parts has a mean loss. */
static int place_asynchronous(reading *r)
{
    curves *out = r->out;
    curve *const placed[] = {&out->loss, &out->test_loss, &out->test_accuracy};
    const double steps = r->steps ? r->steps : 1;
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < placed[c]->count; i++)
            placed[c]->points[i].x /= steps;
    const curve *c = &out->loss;
    for (int i = 0, code = 0; i < c->count && !code;) {
        const double part = ceil(c->points[i].x);
        double sum = 0, weight = 0;
        for (; i < c->count && ceil(c->points[i].x) == part; i++) {
            sum += c->points[i].weight * c->points[i].y;
            weight += c->points[i].weight;
        }
        code = add(&out->epoch_loss, c->points[i - 1].x, sum / weight, weight);
        if (code)
            return code;
    }
    return 0;
}

static double number_of(const json_t *record, const char *name)
{
    const json_t *value = json_object_get(record, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

enum { VALIDATIONS = 4 };

static void list_validations(curves *c, curve *list[VALIDATIONS])
{
    curve *const all[VALIDATIONS] = {&c->val_loss, &c->val_accuracy, &c->average_val_loss,
                                     &c->average_val_accuracy};
    memcpy(list, all, sizeof all);
}

/* Adds a validation at x. NaN: the validation follows the last step that was read. Steps get their
 * x after the last line, so the point keeps the step's index, which place_validations replaces. */
static int add_validation(reading *r, const json_t *record, double x)
{
    static const char *const names[VALIDATIONS] = {"val_loss", "val_accuracy", "average_val_loss",
                                                   "average_val_accuracy"};
    curve *kinds[VALIDATIONS];
    list_validations(r->out, kinds);
    for (int i = 0; i < VALIDATIONS; i++) {
        const int last = r->out->loss.count - 1;
        TRY(add(kinds[i], isnan(x) ? last : x, number_of(record, names[i]), 1));
        kinds[i]->points[kinds[i]->count - 1].partial = isnan(x) && last >= 0;
    }
    return 0;
}

/* Sets x of validations between the ends of epochs. */
static void place_validations(curves *out)
{
    curve *kinds[VALIDATIONS];
    list_validations(out, kinds);
    for (int k = 0; k < VALIDATIONS; k++)
        for (int i = 0; i < kinds[k]->count; i++) {
            point *p = &kinds[k]->points[i];
            if (p->partial)
                p->x = out->loss.points[(int)p->x].x;
            p->partial = 0;
        }
}

static int read_record(reading *r, const json_t *record, int line)
{
    curves *out = r->out;
    const double epoch = number_of(record, "epoch");
    if (json_object_get(record, "after_step")) /* a change of the ranks */
        return 0;
    if (!(epoch >= 1))
        return failure("%s, line %d: no record of --metrics", out->path, line);
    const double samples = number_of(record, "samples"), step = number_of(record, "step");
    if (json_object_get(record, "staleness")) {
        r->asynchronous |= !out->loss.count;
        if (r->asynchronous && count_step(r, epoch) != 0)
            return EXIT_FAILED;
    }
    if (r->asynchronous && json_object_get(record, "loss"))
        return add(&out->loss, step, number_of(record, "loss"), samples > 0 ? samples : 1);
    if (json_object_get(record, "loss")) {
        const int placed = epoch != r->epoch ? place_steps(r) : 0;
        r->epoch = epoch;
        return placed ? placed
                      : add(&out->loss, 0, number_of(record, "loss"), samples > 0 ? samples : 1);
    }
    if (json_object_get(record, "val_loss"))
        TRY(add_validation(r, record, isnan(step) ? epoch : NAN));
    if (!json_object_get(record, "test_loss"))
        return 0;
    const double x = r->asynchronous ? step : epoch;
    int code = add(&out->test_loss, x, number_of(record, "test_loss"), 1);
    NEXT(code, add(&out->test_accuracy, x, number_of(record, "test_accuracy"), 1));
    NEXT(code, add(&out->average_test_loss, x, number_of(record, "average_test_loss"), 1));
    NEXT(code, add(&out->average_test_accuracy, x, number_of(record, "average_test_accuracy"), 1));
    return code;
}

static int read_lines(FILE *file, curves *out)
{
    reading r = {.out = out};
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    int code = 0;
    /* A run that still writes, or that was killed, may have left an incomplete last line. */
    for (int number = 1;
         !code && (length = getline(&line, &room, file)) > 0 && line[length - 1] == '\n';
         number++) {
        json_error_t error;
        json_t *record = json_loadb(line, (size_t)length, 0, &error);
        code = json_is_object(record)
                   ? read_record(&r, record, number)
                   : failure("%s, line %d: not a JSON object", out->path, number);
        json_decref(record);
    }
    free(line);
    NEXT(code, r.asynchronous ? place_asynchronous(&r) : place_steps(&r));
    if (!code)
        place_validations(out);
    free(r.epochs.points);
    if (!code && ferror(file))
        code = failure("cannot read %s: %s", out->path, strerror(errno));
    if (!code && !out->loss.count && !out->test_loss.count && !out->val_loss.count)
        code = failure("%s has no record of --metrics", out->path);
    return code;
}

int curves_read(const char *path, curves *out)
{
    *out = (curves){.path = path};
    FILE *file = open_text(path);
    if (!file)
        return EXIT_FAILED;
    const int code = read_lines(file, out);
    fclose(file);
    return code;
}

void curves_free(curves *c)
{
    free(c->loss.points);
    free(c->epoch_loss.points);
    free(c->test_loss.points);
    free(c->test_accuracy.points);
    free(c->val_loss.points);
    free(c->val_accuracy.points);
    free(c->average_test_loss.points);
    free(c->average_test_accuracy.points);
    free(c->average_val_loss.points);
    free(c->average_val_accuracy.points);
}

/* --- drawing --------------------------------------------------------------------------------- */

/* Parts of the picture of losses, then those of accuracies in the order of TEST to AVERAGE_VAL. */
enum {
    STEPS,
    EPOCHS,
    TEST,
    VAL,
    AVERAGE_TEST,
    AVERAGE_VAL,
    ACCURACY,
    VAL_ACCURACY,
    AVERAGE_ACCURACY,
    AVERAGE_VAL_ACCURACY,
    PARTS
};
enum { SHOWN = 400 };

/* Colours of a file's steps, epoch means, test and validation results. Further files reuse the
 * first colours. */
static const char *const colours[][4] = {{"#a6cee3", "#1f78b4", "#ff7f00", "#8c564b"},
                                         {"#b2df8a", "#33a02c", "#e31a1c", "#7f7f7f"},
                                         {"#cab2d6", "#6a3d9a", "#b15928", "#bcbd22"},
                                         {"#b8e0dc", "#008b8b", "#d0139f", "#17becf"}};

static int colour_of(int part)
{
    const int of_loss = part >= ACCURACY ? part - ACCURACY + TEST : part;
    return of_loss >= AVERAGE_TEST ? of_loss - AVERAGE_TEST + TEST : of_loss;
}

static int is_average(int part)
{
    return part == AVERAGE_TEST || part == AVERAGE_VAL || part >= AVERAGE_ACCURACY;
}

static int is_validation(int part)
{
    return part == VAL || part == AVERAGE_VAL || part == VAL_ACCURACY ||
           part == AVERAGE_VAL_ACCURACY;
}

enum { COLOURS = sizeof colours / sizeof *colours };

static const curve *part_of(const curves *c, int part)
{
    const curve *const parts[PARTS] = {&c->loss,
                                       &c->epoch_loss,
                                       &c->test_loss,
                                       &c->val_loss,
                                       &c->average_test_loss,
                                       &c->average_val_loss,
                                       &c->test_accuracy,
                                       &c->val_accuracy,
                                       &c->average_test_accuracy,
                                       &c->average_val_accuracy};
    return parts[part];
}

/* Returns how many neighbouring points are drawn as their mean. Curves of steps are reduced to
 * about SHOWN points. A mean is drawn at the x of its last point. */
static int window_of(const curve *c, int part)
{
    return part == STEPS ? 1 + (c->count - 1) / SHOWN : 1;
}

/* Returns the weighted mean of the points from i, and sets `end` behind the last of them. */
static double mean_from(const curve *c, int window, int i, int *end)
{
    double sum = 0, weight = 0;
    *end = i + window < c->count ? i + window : c->count;
    *end += *end < c->count && c->points[*end].partial;
    for (int j = i; j < *end; j++) {
        sum += c->points[j].weight * c->points[j].y;
        weight += c->points[j].weight;
    }
    return sum / weight;
}

/* Returns whether a curve has a finite point. gnuplot draws no picture at all if a curve has only
 * gaps, for example the accuracy of a model without accuracy. */
static int has_points(const curves *list, int part)
{
    const curve *c = part_of(list, part);
    const int window = window_of(c, part);
    for (int i = 0, end; i < c->count; i = end)
        if (isfinite(mean_from(c, window, i, &end)))
            return 1;
    return 0;
}

static void write_points(const curve *c, int window, FILE *script)
{
    for (int i = 0, end; i < c->count; i = end) {
        const double mean = mean_from(c, window, i, &end);
        if (isfinite(mean))
            fprintf(script, "%.9g %.9g\n", c->points[end - 1].x, mean);
        else
            fprintf(script, "\n");
    }
}

static void write_curve(const curves *c, int file, int part, const char *what, FILE *script,
                        int *drawn)
{
    if (!has_points(c, part))
        return;
    char name[400];
    const char *base = strrchr(c->path, '/');
    snprintf(name, sizeof name, "%.300s%s", base ? base + 1 : c->path, what);
    fprintf(script, "%s$data_%d_%d with %s lc rgb \"%s\" title ", (*drawn)++ ? ", " : "plot ", file,
            part,
            part == STEPS      ? "lines lw 1"
            : is_average(part) ? "linespoints lw 2 dt 2 pt 4 ps 0.8"
                               : "linespoints lw 2 pt 7 ps 0.8",
            colours[file % COLOURS][colour_of(part)]);
    gnuplot_quoted(name, script);
    if (is_validation(part)) /* a ring around the best */
        fprintf(script, ", $best_%d_%d with points pt 6 ps 2.5 lw 2 lc rgb \"%s\" notitle", file,
                part, colours[file % COLOURS][colour_of(part)]);
}

/* Writes the first of the best validations: its checkpoint is the one that --keep-best of this
 * metric keeps. */
static void write_best(const curve *c, int part, FILE *script)
{
    int best = -1;
    for (int i = 0; i < c->count; i++) {
        const double y = c->points[i].y;
        if (isfinite(y) &&
            (best < 0 || (part >= ACCURACY ? y > c->points[best].y : y < c->points[best].y)))
            best = i;
    }
    fprintf(script, "%.9g %.9g\n", c->points[best].x, c->points[best].y);
}

static int any(const curves *list, int count, int part)
{
    for (int i = 0; i < count; i++)
        if (has_points(&list[i], part))
            return 1;
    return 0;
}

int curves_any(const curves *list, int count)
{
    for (int part = 0; part < PARTS; part++)
        if (any(list, count, part))
            return 1;
    return 0;
}

void curves_script(const curves *list, int count, const char *output, FILE *script)
{
    const int validates = any(list, count, VAL_ACCURACY);
    const int loss = any(list, count, STEPS) || any(list, count, TEST) || any(list, count, VAL),
              accuracy = any(list, count, ACCURACY) || validates;
    int window = 1, drawn = 0;
    for (int i = 0; i < count; i++)
        for (int part = 0; part < PARTS; part++) {
            const curve *c = part_of(&list[i], part);
            if (!has_points(&list[i], part))
                continue;
            const int own = window_of(c, part);
            window = own > window ? own : window;
            fprintf(script, "$data_%d_%d << END\n", i, part);
            write_points(c, own, script);
            fprintf(script, "END\n");
            if (is_validation(part)) {
                fprintf(script, "$best_%d_%d << END\n", i, part);
                write_best(c, part, script);
                fprintf(script, "END\n");
            }
        }
    fprintf(script, "set terminal pngcairo noenhanced size %d,600 font \"sans,11\"\nset output ",
            600 * (loss + accuracy));
    gnuplot_quoted(output, script);
    fprintf(script, "\nset multiplot layout 1,%d\nset grid\nset xlabel \"epoch\"\n",
            loss + accuracy);
    if (loss) {
        fprintf(script, "set title \"Loss\"\nset key top right\nset ylabel \"loss%s\"\n",
                window > 1 ? " (steps: means of neighbours)" : "");
        for (int i = 0; i < count; i++) {
            write_curve(&list[i], i, STEPS, " training, steps", script, &drawn);
            write_curve(&list[i], i, EPOCHS, " training, epochs", script, &drawn);
            write_curve(&list[i], i, TEST, " test", script, &drawn);
            write_curve(&list[i], i, VAL, " validation", script, &drawn);
            write_curve(&list[i], i, AVERAGE_TEST, " test, averages", script, &drawn);
            write_curve(&list[i], i, AVERAGE_VAL, " validation, averages", script, &drawn);
        }
        fprintf(script, "\n");
    }
    if (accuracy) {
        drawn = 0;
        fprintf(script,
                "set title \"Accuracy\"\nset key bottom right\n"
                "set ylabel \"%saccuracy\"\n",
                validates ? "" : "test ");
        for (int i = 0; i < count; i++) {
            write_curve(&list[i], i, ACCURACY, validates ? " test" : "", script, &drawn);
            write_curve(&list[i], i, VAL_ACCURACY, " validation", script, &drawn);
            write_curve(&list[i], i, AVERAGE_ACCURACY, validates ? " test, averages" : " averages",
                        script, &drawn);
            write_curve(&list[i], i, AVERAGE_VAL_ACCURACY, " validation, averages", script, &drawn);
        }
        fprintf(script, "\n");
    }
    fprintf(script, "unset multiplot\nunset output\n");
}
