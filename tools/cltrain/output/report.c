#include "output/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "output/gnuplot.h"
#include "text/cell.h"
#include "text/message.h"

/* Columns of a class name, and least columns of a class in the confusion matrix. A line of the
 * matrix has LINE columns at most, unless there are many classes. */
enum { NAME = 20, SHORT = 8, LINE = 200, MOST_DRAWN = 200 };

static int read_all(const report *r, clt_metrics_result *all)
{
    clt_metrics_result_init(all);
    return library_failure(clt_metrics_read(r->metrics, all));
}

static int read_class(const report *r, int64_t number, clt_metrics_class *c)
{
    clt_metrics_class_init(c);
    return library_failure(clt_metrics_read_class(r->metrics, number, c));
}

static void print_row(const char *name, double precision, double recall, double f1)
{
    show("  ");
    show_cell(name, NAME, NAME, CELL_LEFT);
    show(" %9.4f %9.4f %9.4f", precision, recall, f1);
}

/* Says why there is no AUC over all classes. */
static void explain_auc(const report *r, double support)
{
    for (int64_t i = 0; i < r->classes; i++) {
        clt_metrics_class c;
        if (read_class(r, i, &c))
            return;
        if (c.support > 0 && c.support < support)
            continue;
        show("  AUC is not defined: %s samples have class ", c.support > 0 ? "all" : "no");
        show_text(r->name(r->user, i));
        show("\n");
        return;
    }
}

static void print_regression(const report *r, const clt_metrics_result *all)
{
    show("  MAE %.6g  MSE %.6g  RMSE %.6g  R2 ", all->mae * r->scale,
         all->mse * r->scale * r->scale, all->rmse * r->scale);
    if (isnan(all->r2))
        show("is not defined: it needs two samples\n");
    else
        show("%.6f\n", all->r2);
}

int report_metrics(const report *r)
{
    clt_metrics_result all;
    TRY(read_all(r, &all));
    if (!r->classes) {
        print_regression(r, &all);
        return 0;
    }
    show("  %-*s %9s %9s %9s", NAME, "class", "precision", "recall", "F1");
    show(r->auc ? " %9s %9s\n" : " %.0s%9s\n", "AUC", "samples");
    for (int64_t i = 0; i < r->classes; i++) {
        clt_metrics_class c;
        TRY(read_class(r, i, &c));
        print_row(r->name(r->user, i), c.precision, c.recall, c.f1);
        if (r->auc && isnan(c.auc))
            show(" %9s", "-");
        else if (r->auc)
            show(" %9.4f", c.auc);
        show(" %9.6g\n", c.support);
    }
    print_row("macro average", all.precision_macro, all.recall_macro, all.f1_macro);
    show("\n");
    print_row("micro average", all.precision_micro, all.recall_micro, all.f1_micro);
    show("\n");
    print_row("weighted average", all.precision_weighted, all.recall_weighted, all.f1_weighted);
    show("\n");
    if (r->top > 1)
        show("  top-%lld accuracy %.4f\n", (long long)r->top, all.top_accuracy);
    if (r->auc && !isnan(all.auc))
        show("  AUC %.6f%s\n", all.auc,
             r->classes > 2 ? " (mean of each class against the rest)" : "");
    else if (r->auc)
        explain_auc(r, all.weight);
    return 0;
}

/* --- the confusion matrix --------------------------------------------------------------------- */

static double *read_matrix(const report *r)
{
    const int64_t room = r->classes * r->classes;
    double *matrix = calloc((size_t)room, sizeof *matrix);
    if (!matrix)
        failure("memory does not suffice");
    else if (library_failure(clt_metrics_confusion(r->metrics, matrix, room))) {
        free(matrix);
        matrix = NULL;
    }
    return matrix;
}

/* Returns the columns of a class: as wide as the longest name, if the lines stay short enough. */
static int matrix_columns(const report *r)
{
    int most = SHORT;
    for (int64_t i = 0; i < r->classes; i++) {
        const int width = cell_width(r->name(r->user, i));
        most = width > most ? width : most;
    }
    most = most < NAME ? most : NAME;
    return NAME + 2 + r->classes * (most + 1) <= LINE ? most : SHORT;
}

int report_confusion(const report *r)
{
    double *matrix = read_matrix(r);
    if (!matrix)
        return EXIT_FAILED;
    const int columns = matrix_columns(r);
    show("  %-*s predicted\n  %-*s", NAME, "label", NAME, "");
    for (int64_t i = 0; i < r->classes; i++) {
        show(" ");
        show_cell(r->name(r->user, i), columns, columns, CELL_RIGHT);
    }
    show("\n");
    for (int64_t i = 0; i < r->classes; i++) {
        show("  ");
        show_cell(r->name(r->user, i), NAME, NAME, CELL_LEFT);
        for (int64_t k = 0; k < r->classes; k++)
            show(" %*.6g", columns, matrix[i * r->classes + k]);
        show("\n");
    }
    free(matrix);
    return 0;
}

typedef struct picture {
    const report *report;
    const double *matrix;
} picture;

static void write_names(const report *r, const char *axis, FILE *script)
{
    fprintf(script, "set %stics (", axis);
    for (int64_t i = 0; i < r->classes; i++) {
        fprintf(script, i ? ", " : "");
        gnuplot_quoted(r->name(r->user, i), script);
        fprintf(script, " %lld", (long long)i);
    }
    fprintf(script, ")\n");
}

/* Colours are shares of a label's samples, numbers are samples. */
static void write_script(const void *user, const char *output, FILE *script)
{
    const picture *p = user;
    const report *r = p->report;
    const int64_t n = r->classes;
    fprintf(script, "$matrix << END\n");
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t k = 0; k < n; k++)
            sum += p->matrix[i * n + k];
        for (int64_t k = 0; k < n; k++)
            fprintf(script, "%lld %lld %.9g %.6g\n", (long long)k, (long long)i,
                    sum > 0 ? p->matrix[i * n + k] / sum : 0, p->matrix[i * n + k]);
        fprintf(script, "\n");
    }
    const int size = 300 + 40 * (int)n < 2400 ? 300 + 40 * (int)n : 2400;
    fprintf(script,
            "END\nset terminal pngcairo noenhanced size %d,%d font \"sans,11\"\nset output ",
            size + 100, size);
    gnuplot_quoted(output, script);
    fprintf(script,
            "\nset xrange [-0.5:%g]\nset yrange [%g:-0.5]\nset cbrange [0:1]\n"
            "set palette defined (0 \"#ffffff\", 1 \"#1f78b4\")\n"
            "set xlabel \"predicted\"\nset ylabel \"label\"\nset cblabel \"share of the label\"\n"
            "set xtics rotate by -45\n",
            (double)n - 0.5, (double)n - 0.5);
    write_names(r, "x", script);
    write_names(r, "y", script);
    fprintf(script, "plot $matrix using 1:2:3 with image notitle");
    if (n <= 30)
        fprintf(script, ", $matrix using 1:2:(sprintf(\"%%g\", $4)) with labels notitle");
    fprintf(script, "\n");
}

int report_picture(const report *r, const char *output)
{
    if (r->classes > MOST_DRAWN)
        return usage_error("-o %s: a picture has at most %d classes, the model %lld", output,
                           MOST_DRAWN, (long long)r->classes);
    double *matrix = read_matrix(r);
    if (!matrix)
        return EXIT_FAILED;
    const picture p = {r, matrix};
    const int code = gnuplot_draw(output, write_script, &p);
    free(matrix);
    return code;
}

/* --- JSON ------------------------------------------------------------------------------------- */

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *averages(double precision, double recall, double f1)
{
    return json_pack("{s:o, s:o, s:o}", "precision", number(precision), "recall", number(recall),
                     "f1", number(f1));
}

static json_t *classes_json(const report *r)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < r->classes; i++) {
        clt_metrics_class c;
        if (read_class(r, i, &c))
            break;
        json_t *one = averages(c.precision, c.recall, c.f1);
        json_object_set_new(one, "class", json_integer(i));
        json_object_set_new(one, "name", json_text(r->name(r->user, i)));
        json_object_set_new(one, "samples", number(c.support));
        if (r->auc)
            json_object_set_new(one, "auc", number(c.auc));
        json_array_append_new(list, one);
    }
    return list;
}

static int matrix_json(const report *r, json_t *metrics)
{
    double *matrix = read_matrix(r);
    json_t *rows = json_array();
    for (int64_t i = 0; matrix && i < r->classes; i++) {
        json_t *row = json_array();
        for (int64_t k = 0; k < r->classes; k++)
            json_array_append_new(row, number(matrix[i * r->classes + k]));
        json_array_append_new(rows, row);
    }
    json_object_set_new(metrics, "confusion", rows);
    free(matrix);
    return matrix ? 0 : EXIT_FAILED;
}

int report_json(const report *r, int confusion, json_t *record)
{
    clt_metrics_result all;
    TRY(read_all(r, &all));
    json_t *m = json_object();
    json_object_set(record, "metrics", m);
    json_decref(m);
    if (!r->classes) {
        json_object_set_new(m, "mae", number(all.mae * r->scale));
        json_object_set_new(m, "mse", number(all.mse * r->scale * r->scale));
        json_object_set_new(m, "rmse", number(all.rmse * r->scale));
        json_object_set_new(m, "r2", number(all.r2));
        return 0;
    }
    json_object_set_new(m, "accuracy", number(all.accuracy));
    if (r->top)
        json_object_set_new(
            m, "top",
            json_pack("{s:I, s:o}", "k", (json_int_t)r->top, "accuracy", number(all.top_accuracy)));
    if (r->auc)
        json_object_set_new(m, "auc", number(all.auc));
    json_object_set_new(m, "macro", averages(all.precision_macro, all.recall_macro, all.f1_macro));
    json_object_set_new(m, "micro", averages(all.precision_micro, all.recall_micro, all.f1_micro));
    json_object_set_new(m, "weighted",
                        averages(all.precision_weighted, all.recall_weighted, all.f1_weighted));
    json_object_set_new(m, "classes", classes_json(r));
    return confusion ? matrix_json(r, m) : 0;
}
