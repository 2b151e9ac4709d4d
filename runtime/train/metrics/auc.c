/* The area under the ROC curve, from sorted scores. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "train/metrics/metrics.h"

typedef struct scored {
    double score, weight;
    bool positive;
} scored;

static int falling(const void *a, const void *b)
{
    const double x = ((const scored *)a)->score, y = ((const scored *)b)->score;
    return (x < y) - (x > y);
}

clt_status clt_metrics_auc(const clt_metrics *m, int64_t number, double *auc)
{
    const int64_t n = m->kept;
    *auc = NAN;
    if (!n)
        return CLT_OK;
    scored *list = clt_calloc((size_t)n, sizeof *list);
    CLT_TRY_MEMORY(list);
    for (int64_t i = 0; i < n; i++) {
        const double own = m->scores[i * m->columns + (m->columns > 1 ? number : 0)];
        /* Of two classes only the scores of class 1 are kept. Those of class 0 rank the other way.
         */
        list[i] = (scored){m->columns == 1 && number == 0 ? -own : own, m->weights[i],
                           (int64_t)m->labels[i] == number};
    }
    qsort(list, (size_t)n, sizeof *list, falling);
    double right = 0, wrong = 0, area = 0;
    for (int64_t i = 0, end; i < n; i = end) {
        double more_right = 0, more_wrong = 0;
        for (end = i; end < n && list[end].score == list[i].score; end++)
            *(list[end].positive ? &more_right : &more_wrong) += list[end].weight;
        area += more_wrong * (right + more_right / 2);
        right += more_right;
        wrong += more_wrong;
    }
    if (right > 0 && wrong > 0)
        *auc = area / (right * wrong);
    clt_free(list);
    return CLT_OK;
}
