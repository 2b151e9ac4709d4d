/* Makes a data set of a table, apart from files, for the test that feeds it random bytes. */
#ifndef CLT_DATA_CSV_CSV_H
#define CLT_DATA_CSV_CSV_H

#include <stdbool.h>

#include "data/core/kinds.h"
#include "data/csv/csv_columns.h"

/* Makes a data set of the rows for which `rows` is 1. `all`: they are to be predicted, so their
 * targets may be missing. Errors: FORMAT (names line and column), OUT_OF_MEMORY. */
clt_status clt_csv_dataset(const clt_csv_table *table, const clt_csv_columns *columns,
                           const unsigned char *rows, bool all, const char *name,
                           clt_dataset **out);

#endif
