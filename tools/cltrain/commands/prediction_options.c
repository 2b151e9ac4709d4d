/* Checks what `cltrain predict` is to predict, and where to. */
#include "commands/prediction_options.h"

#include <string.h>
#include <unistd.h>

#include <cltrain/data.h>

#include "job/job.h"
#include "options/groups.h"
#include "output/predictions.h"
#include "text/message.h"

int prediction_is_array(const settings *s)
{
    return s->n_names && (!strncmp(s->names[0], "npz:", 4) || !strncmp(s->names[0], "hdf5:", 5) ||
                          !strncmp(s->names[0], "csv:", 4));
}

/* Returns whether a name is that of a data set: fashion-mnist, or KIND:PATH. */
static int is_data_set(const char *name)
{
    const char *form;
    const size_t kind = strcspn(name, ":");
    for (int i = 0; (form = clt_dataset_form(i)); i++)
        if (name[kind] ? !strncmp(form, name, kind + 1) : !strcmp(form, name))
            return access(name, F_OK) != 0;
    return 0;
}

int prediction_check(const settings *s)
{
    const int arrays = prediction_is_array(s) || (!s->n_names && s->data);
    const predictions_format format = predictions_format_of(s->output, s->json);
    if (!s->n_names && !s->data)
        return usage_error("which images? Files, or npz:IN.npz -o OUT.npz, or --data SPEC -o "
                           "OUT.npz");
    if (prediction_is_array(s) && s->n_names > 1)
        return usage_error("%s: predict takes one file of arrays at a time", s->names[1]);
    if (s->n_names && !arrays && is_data_set(s->names[0]))
        return usage_error("%s: is a data set, not an image file: give it as --data %s -o OUT.csv, "
                           "which predicts its test samples",
                           s->names[0], s->names[0]);
    if (arrays && !s->output)
        return usage_error("-o is missing: the file to write, .csv or .json with classes, or .npz "
                           "with all outputs");
    if (!arrays && format == PREDICTIONS_ARRAYS)
        return usage_error("-o %s: classes of image files are written to FILE.csv or FILE.json; "
                           "all outputs only of npz:IN.npz or --data",
                           s->output);
    if (s->json && s->output)
        return usage_error("--json is for classes that are printed; -o FILE.json writes them");
    if (s->top > 0 && format == PREDICTIONS_ARRAYS)
        return usage_error("--top is for classes: use it with image files, or -o FILE.csv");
    TRY(check_mesh(s, 0));
    return check_variants(s);
}
