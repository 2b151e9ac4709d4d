#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "data/image/resample.h"

enum { BITS = CLT_RESAMPLE_BITS, COLOURS = 3 };

typedef clt_resample_axis axis;

/* Upper bound of the inputs of an output. */
static int taps_of(int from, int to)
{
    const double scale = (double)from / to;
    return 2 * (int)ceil(scale > 1 ? scale : 1) + 2;
}

/* Computes the weights of outputs [first, first + n). `to` is the number of all outputs, `span` the
 * part of the `from` inputs that is resized (0: all). */
static void weigh(axis *a, int from, double inset, double span, int to, int first, int n)
{
    const double scale = (span > 0 ? span : from) / to, width = scale > 1 ? scale : 1;
    for (int i = 0; i < n; i++) {
        const double centre = inset + (first + i + 0.5) * scale;
        int begin = (int)(centre - width + 0.5), end = (int)(centre + width + 0.5);
        begin = centre - width + 0.5 < 0 ? 0 : begin;
        end = end > from ? from : end;
        double sum = 0;
        for (int pass = 0; pass < 2; pass++)
            for (int k = begin; k < end; k++) {
                const double far = fabs((k - centre + 0.5) / width);
                const double weight = far < 1 ? 1 - far : 0;
                if (!pass)
                    sum += weight;
                else
                    a->weights[i * a->taps + k - begin] =
                        (int32_t)floor(0.5 + weight / sum * (1 << BITS));
            }
        a->begin[i] = begin;
        a->count[i] = end - begin;
    }
}

/* Splits the weights of n outputs into groups. All outputs get as many groups as the one with the
 * most inputs, and those near the row's end begin earlier, with weights of 0. */
static void group(axis *a, int from, int n)
{
    enum { GROUP = CLT_RESAMPLE_GROUP, LOW = CLT_RESAMPLE_LOW };
    int most = 0;
    for (int i = 0; i < n; i++)
        most = a->count[i] > most ? a->count[i] : most;
    a->groups = (most + GROUP - 1) / GROUP;
    memset(a->parts, 0, (size_t)n * (size_t)a->groups * 2 * GROUP * sizeof *a->parts);
    for (int i = 0; i < n; i++) {
        const int last = from > GROUP * a->groups ? from - GROUP * a->groups : 0;
        const int begin = a->begin[i] < last ? a->begin[i] : last, skip = a->begin[i] - begin;
        int16_t *parts = a->parts + (size_t)i * (size_t)a->groups * 2 * GROUP;
        a->group_begin[i] = begin;
        for (int k = 0; k < a->count[i]; k++) {
            const int32_t weight = a->weights[i * a->taps + k];
            int16_t *part = parts + (k + skip) / GROUP * 2 * GROUP + (k + skip) % GROUP;
            part[0] = (int16_t)(weight >> LOW);
            part[GROUP] = (int16_t)(weight & ((1 << LOW) - 1));
        }
    }
}

/* Takes a piece of the work's memory. A pass with NULL finds how many bytes all pieces need. */
static void *take(char *memory, size_t *used, size_t bytes)
{
    void *piece = memory ? memory + *used : NULL;
    *used += (bytes + 63) / 64 * 64;
    return piece;
}

static void take_axis(axis *a, char *memory, size_t *used, int from, int to, int n)
{
    a->taps = taps_of(from, to);
    a->begin = take(memory, used, (size_t)n * sizeof *a->begin);
    a->count = take(memory, used, (size_t)n * sizeof *a->count);
    a->weights = take(memory, used, (size_t)n * (size_t)a->taps * sizeof *a->weights);
}

static void take_groups(axis *a, char *memory, size_t *used, int n)
{
    enum { GROUP = CLT_RESAMPLE_GROUP };
    const size_t most = ((size_t)a->taps + GROUP - 1) / GROUP;
    a->group_begin = take(memory, used, (size_t)n * sizeof *a->group_begin);
    a->parts = take(memory, used, (size_t)n * most * 2 * GROUP * sizeof *a->parts);
}

clt_status clt_image_resample(const clt_image *image, const clt_resample *r,
                              clt_resample_work *work, unsigned char *out)
{
    const size_t bytes = (size_t)r->columns * COLOURS;
    axis across = {0}, down = {0};
    unsigned char *middle = NULL;
    const clt_resample_method *method = clt_resample_choose();
    for (int pass = 0; pass < 2; pass++) {
        size_t used = 0;
        take_axis(&across, work->memory, &used, r->width, r->to_width, r->columns);
        if (method->groups)
            take_groups(&across, work->memory, &used, r->columns);
        take_axis(&down, work->memory, &used, r->height, r->to_height, r->rows);
        middle = take(work->memory, &used, bytes * (size_t)r->height);
        if (used <= work->room)
            break;
        clt_resample_work_free(work);
        work->memory = clt_alloc_pages(used);
        CLT_TRY_MEMORY(work->memory);
        work->room = used;
    }
    weigh(&across, r->width, r->inset_x, r->span_x, r->to_width, r->left, r->columns);
    if (method->groups)
        group(&across, r->width, r->columns);
    weigh(&down, r->height, r->inset_y, r->span_y, r->to_height, r->top, r->rows);
    /* Filter only the rows that the window needs. */
    const int first = down.begin[0], last = down.begin[r->rows - 1] + down.count[r->rows - 1];
    for (int y = first; y < last; y++)
        method->along_row(image->rgb +
                              ((size_t)(r->y + y) * (size_t)image->width + (size_t)r->x) * COLOURS,
                          &across, r->columns, middle + (size_t)(y - first) * bytes);
    for (int y = 0; y < r->rows; y++)
        method->along_columns(middle + (size_t)(down.begin[y] - first) * bytes, bytes,
                              down.weights + y * down.taps, down.count[y], out + (size_t)y * bytes);
    return CLT_OK;
}

void clt_resample_work_free(clt_resample_work *work)
{
    clt_free(work->memory);
    *work = (clt_resample_work){0};
}
