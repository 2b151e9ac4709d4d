/* Fields that readers add: their memory belongs to the data set, and their classes may have
 * names. */
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/user_file.h"
#include "data/core/dataset.h"
#include "data/core/kinds.h"

clt_status clt_dataset_add_owned(clt_dataset *d, const char *name, clt_dtype dtype, int rank,
                                 const int64_t *shape, void **data)
{
    clt_data_field field;
    int64_t bytes;
    CLT_TRY(clt_dataset_measure_field(d, name, dtype, rank, shape, &field, &bytes));
    field.owned = clt_alloc_pages((size_t)bytes);
    if (!field.owned)
        return clt_fail_prefix(CLT_OUT_OF_MEMORY, "data set '%s', field '%s': ", d->name, name);
    clt_advise_huge(field.owned, (size_t)bytes);
    field.data = field.owned;
    const clt_status status = clt_dataset_append_field(d, name, &field, NULL);
    if (status == CLT_OK)
        *data = field.owned;
    else
        clt_free(field.owned);
    return status;
}

clt_status clt_dataset_name_classes(clt_dataset *d, int field, const char *const *names)
{
    clt_data_field *f = &d->fields[field];
    f->class_names = clt_calloc((size_t)f->classes, sizeof *f->class_names);
    CLT_TRY_MEMORY(f->class_names);
    for (int64_t i = 0; i < f->classes; i++)
        CLT_TRY_MEMORY(f->class_names[i] = clt_strdup(names[i]));
    return CLT_OK;
}

clt_status clt_dataset_read_class_names(clt_dataset *d, int field, const char *path)
{
    enum { MOST_BYTES = 1 << 24 };
    clt_data_field *f = &d->fields[field];
    if (access(path, F_OK) != 0)
        return CLT_OK;
    char *text;
    size_t bytes;
    CLT_TRY(clt_file_read_all(path, MOST_BYTES, &text, &bytes));
    int64_t n = 0;
    f->class_names = clt_calloc((size_t)f->classes, sizeof *f->class_names);
    clt_status status = f->class_names ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (char *line = text; status == CLT_OK && n < f->classes && *line;) {
        const size_t length = strcspn(line, "\r\n");
        const bool ends = line[length] == '\0';
        line[length] = '\0';
        if (length && !(f->class_names[n++] = clt_strdup(line)))
            status = CLT_OUT_OF_MEMORY;
        line += length + !ends;
    }
    clt_free(text);
    if (status == CLT_OK && n < f->classes)
        return clt_fail(CLT_FORMAT,
                        "%s: names %lld classes, but the data have %lld: one name a line", path,
                        (long long)n, (long long)f->classes);
    return status;
}

const char *clt_dataset_class_name(const clt_dataset *dataset, int field, int64_t number)
{
    if (!dataset || field < 0 || field >= dataset->field_count)
        return NULL;
    const clt_data_field *f = &dataset->fields[field];
    return f->class_names && number >= 0 && number < f->classes ? f->class_names[number] : NULL;
}

clt_status clt_data_tenths(const char *path, int64_t total, bool test, int64_t *first,
                           int64_t *count)
{
    if (total < 2)
        return clt_fail(CLT_FORMAT,
                        "%s: %lld samples are too few to divide: nine tenths are for training, the "
                        "last tenth for tests",
                        path, (long long)total);
    const int64_t tested = (total + 9) / 10;
    *first = test ? total - tested : 0;
    *count = test ? tested : total - tested;
    return CLT_OK;
}
