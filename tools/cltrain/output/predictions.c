#include "output/predictions.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "text/message.h"

static int ends_in(const char *path, const char *ending)
{
    const size_t length = strlen(path), own = strlen(ending);
    return length > own && !strcmp(path + length - own, ending);
}

predictions_format predictions_format_of(const char *path, int json)
{
    return !path                    ? json ? PREDICTIONS_JSON : PREDICTIONS_TEXT
           : ends_in(path, ".csv")  ? PREDICTIONS_CSV
           : ends_in(path, ".json") ? PREDICTIONS_JSON
                                    : PREDICTIONS_ARRAYS;
}

static int is_blank(char letter)
{
    return letter == ' ' || letter == '\t';
}

/* Writes a field of a CSV file, in quotes if RFC 4180 wants them. Many readers drop outer blanks
 * that have no quotes around them. */
static void field(FILE *csv, const char *text)
{
    const size_t length = strlen(text);
    const int outer = length && (is_blank(text[0]) || is_blank(text[length - 1]));
    if (length && !outer && !text[strcspn(text, ",\"\r\n")]) {
        fputs(text, csv);
        return;
    }
    fputc('"', csv);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', csv);
        fputc(*text, csv);
    }
    fputc('"', csv);
}

static void write_header(const predictions *p)
{
    fputs(p->files ? "file" : "sample", p->csv);
    if (p->targets)
        fputs(p->classes ? ",label" : ",target", p->csv);
    for (int64_t i = 1; p->classes && i <= p->top; i++)
        if (i == 1)
            fputs(",class,probability", p->csv);
        else
            fprintf(p->csv, ",class_%" PRId64 ",probability_%" PRId64, i, i);
    for (int64_t i = 0; !p->classes && i < p->numbers; i++)
        if (p->numbers == 1)
            fputs(",prediction", p->csv);
        else
            fprintf(p->csv, ",prediction_%" PRId64, i);
    fputs("\r\n", p->csv);
}

/* The file is made beside its place, and gets its name when it is complete. */
static int open_file(predictions *p)
{
    const size_t room = strlen(p->path) + 16;
    p->beside = malloc(room);
    TRY_MEMORY(p->beside);
    snprintf(p->beside, room, "%s.XXXXXX", p->path);
    const int fd = mkstemp(p->beside);
    if (fd < 0) {
        free(p->beside);
        p->beside = NULL;
        return failure("%s: cannot be written: %s", p->path, strerror(errno));
    }
    p->csv = fdopen(fd, "w");
    if (p->csv)
        return 0;
    close(fd);
    return failure("%s: cannot be written: %s", p->path, strerror(errno));
}

int predictions_open(predictions *p)
{
    p->top = p->top < 1 ? 1 : p->top > p->classes ? p->classes : p->top;
    p->probability = calloc((size_t)p->classes + 1, sizeof *p->probability);
    p->order = calloc((size_t)p->top + 1, sizeof *p->order);
    TRY_MEMORY(p->probability && p->order);
    if (p->format == PREDICTIONS_JSON)
        TRY_MEMORY(p->records = json_array());
    if (p->path)
        TRY(open_file(p));
    if (p->format == PREDICTIONS_CSV)
        write_header(p);
    return 0;
}

/* Finds the classes with the largest scores, and all probabilities: the softmax in double, unless
 * the model has computed it. */
static int rank_classes(predictions *p, const predicted *s, const char *who)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < p->classes; i++) {
        most = s->scores[i] > most ? (double)s->scores[i] : most;
        if (!isfinite(s->scores[i]))
            return failure("%s: the model's output for class %" PRId64 " is not finite", who, i);
    }
    for (int64_t i = 0; i < p->classes; i++)
        sum += p->probability[i] =
            p->is_softmax ? (double)s->scores[i] : exp((double)s->scores[i] - most);
    for (int64_t k = 0; k < p->top; k++) {
        int64_t best = -1;
        for (int64_t i = 0; i < p->classes; i++) {
            int taken = 0;
            for (int64_t j = 0; j < k; j++)
                taken = taken || p->order[j] == i;
            if (!taken && (best < 0 || p->probability[i] > p->probability[best]))
                best = i;
        }
        p->order[k] = best;
    }
    for (int64_t i = 0; i < p->classes; i++)
        p->probability[i] /= sum;
    return 0;
}

/* Numbers that say all of an f32. A column's own units need more of them where its mean is large
 * beside its deviation. */
static int digits_of(const predictions *p)
{
    const double more = fabs(p->scale) > 0 ? ceil(log10(fabs(p->shift / p->scale))) : 0;
    return 9 + (int)fmin(fmax(more, 0), 8);
}

static double number_of(const predictions *p, const predicted *s, int64_t i)
{
    return (double)s->scores[i] * p->scale + p->shift;
}

static json_t *number_json(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static int add_record(predictions *p, const predicted *s)
{
    json_t *record = json_object(), *list = json_array();
    if (s->file && json_object_set_new(record, "file", json_string(s->file))) {
        json_decref(record);
        json_decref(list);
        return failure("%s: its name is not UTF-8, which JSON needs", s->file);
    }
    if (!s->file)
        json_object_set_new(record, "sample", json_integer(s->number));
    if (p->targets && p->classes)
        json_object_set_new(record, "label",
                            json_pack("{s:I, s:o}", "class", (json_int_t)s->target, "name",
                                      json_text(p->name(p->user, (int64_t)s->target))));
    else if (p->targets)
        json_object_set_new(record, "target", number_json(s->target * p->scale + p->shift));
    for (int64_t i = 0; p->classes && i < p->top; i++)
        json_array_append_new(list, json_pack("{s:I, s:o, s:f}", "class", (json_int_t)p->order[i],
                                              "name", json_text(p->name(p->user, p->order[i])),
                                              "probability", p->probability[p->order[i]]));
    for (int64_t i = 0; !p->classes && i < p->numbers; i++)
        json_array_append_new(list, number_json(number_of(p, s, i)));
    json_object_set_new(record, p->classes ? "classes" : "prediction", list);
    return json_array_append_new(p->records, record) ? failure("memory does not suffice") : 0;
}

static void add_line(predictions *p, const predicted *s, const char *who)
{
    FILE *csv = p->csv;
    field(csv, who);
    if (p->targets) {
        fputc(',', csv);
        if (p->classes)
            field(csv, p->name(p->user, (int64_t)s->target));
        else
            fprintf(csv, "%.*g", digits_of(p), s->target * p->scale + p->shift);
    }
    for (int64_t i = 0; p->classes && i < p->top; i++) {
        fputc(',', csv);
        field(csv, p->name(p->user, p->order[i]));
        fprintf(csv, ",%.9g", p->probability[p->order[i]]);
    }
    for (int64_t i = 0; !p->classes && i < p->numbers; i++)
        fprintf(csv, ",%.*g", digits_of(p), number_of(p, s, i));
    fputs("\r\n", csv);
}

int predictions_add(predictions *p, const predicted *s)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, s->number);
    const char *who = s->file ? s->file : text;
    if (p->classes)
        TRY(rank_classes(p, s, who));
    if (p->format == PREDICTIONS_JSON)
        return add_record(p, s);
    if (p->format == PREDICTIONS_CSV) {
        add_line(p, s, who);
        return 0;
    }
    show_text(who);
    for (int64_t i = 0; p->classes && i < p->top; i++) {
        show("  ");
        show_text(p->name(p->user, p->order[i]));
        show(" %.4f", p->probability[p->order[i]]);
    }
    for (int64_t i = 0; !p->classes && i < p->numbers; i++)
        show("  %.*g", digits_of(p) - 3, number_of(p, s, i));
    show("\n");
    return 0;
}

/* Gives the complete file its name and the permissions that the umask allows. */
static int finish_file(predictions *p, int code)
{
    const mode_t mask = umask(0);
    umask(mask);
    const int written = !ferror(p->csv) && !fflush(p->csv) && !fchmod(fileno(p->csv), 0666 & ~mask);
    if (fclose(p->csv) || !written || (!code && rename(p->beside, p->path)))
        NEXT(code, failure("%s: cannot be written: %s", p->path, strerror(errno)));
    if (code)
        unlink(p->beside);
    return code;
}

int predictions_close(predictions *p, int code)
{
    if (p->records) {
        json_t *all = code ? NULL : json_pack("{s:O}", "predictions", p->records);
        if (!code && p->csv)
            code = !all || json_dumpf(all, p->csv, JSON_REAL_PRECISION((size_t)digits_of(p))) ||
                           fputc('\n', p->csv) < 0
                       ? failure("%s: cannot be written", p->path)
                       : 0;
        else if (!code)
            code = print_object(json_incref(all), JSON_REAL_PRECISION((size_t)digits_of(p)));
        json_decref(all);
    }
    if (p->csv)
        code = finish_file(p, code);
    else if (p->beside)
        unlink(p->beside);
    json_decref(p->records);
    free(p->beside);
    free(p->probability);
    free(p->order);
    return code;
}
