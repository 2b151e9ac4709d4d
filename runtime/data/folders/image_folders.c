/* Finds the image files of a split, in one folder for each class. */
#include "data/folders/image_folders.h"

#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/str.h"
#include "base/vec.h"
#include "data/folders/class_names.h"

static bool is_image(const char *name, void *user)
{
    (void)user;
    return clt_ends_in(name, ".jpg") || clt_ends_in(name, ".jpeg") || clt_ends_in(name, ".png");
}

static bool is_folder(const char *name, void *user)
{
    struct stat info;
    clt_str path = {0};
    clt_str_add(&path, "%s/%s", (const char *)user, name);
    const bool folder = stat(clt_str_text(&path), &info) == 0 && S_ISDIR(info.st_mode);
    clt_str_free(&path);
    return folder;
}

/* How the files of a split are chosen. */
typedef struct choosing {
    bool divide, test; /* take the tenths of a split */
    bool described;    /* the classes are given, and need no images */
} choosing;

/* Adds the images of a class. */
static clt_status add_class(clt_image_files *m, const char *folder, int32_t label,
                            const choosing *how)
{
    clt_listing list;
    int64_t first = 0, count;
    clt_status status = clt_listing_read(folder, is_image, NULL, &list);
    count = list.count;
    if (status == CLT_OK && !list.count && !how->described)
        status =
            clt_fail(CLT_FORMAT,
                     "%s: this class is empty: no file's name ends in .jpg, .jpeg or .png", folder);
    if (status == CLT_OK && how->divide && list.count)
        status = clt_data_tenths(folder, list.count, how->test, &first, &count);
    for (int64_t i = first; status == CLT_OK && i < first + count; i++) {
        clt_str path = {0};
        clt_str_add(&path, "%s/%s", folder, list.names[i]);
        char *copy = path.failed ? NULL : clt_strdup(clt_str_text(&path));
        clt_str_free(&path);
        status = copy ? CLT_PUSH(m->list, m->count, m->room, (clt_image_file){copy, label})
                      : CLT_OUT_OF_MEMORY;
        if (status != CLT_OK)
            clt_free(copy);
    }
    clt_listing_free(&list);
    return status;
}

static clt_status fail_unknown(const char *root, const char *folder, const clt_listing *classes)
{
    enum { LISTED = 10 };
    clt_str text = {0};
    const char *near = clt_nearest(folder, (const char *const *)classes->names, classes->count);
    for (int c = 0; c < classes->count && c < LISTED; c++)
        clt_str_add(&text, "%s%s", c ? ", " : "", classes->names[c]);
    if (classes->count > LISTED)
        clt_str_add(&text, " and %d more", classes->count - LISTED);
    clt_fail(CLT_FORMAT,
             "%s/%s: is not a class of the training images, which are %s%s%s%s: rename the folder, "
             "or take it away",
             root, folder, clt_str_text(&text), near ? "; did you mean '" : "", near ? near : "",
             near ? "'?" : "");
    clt_str_free(&text);
    return CLT_FORMAT;
}

/* Returns the class that a folder has the name of, or -1. */
static int class_of(const clt_listing *classes, const char *folder, bool described)
{
    for (int c = 0; c < classes->count; c++)
        if (!strcmp(classes->names[c], folder))
            return c;
    for (int c = 0; described && c < classes->count; c++)
        if (clt_class_has_name(classes->names[c], folder))
            return c;
    return -1;
}

/* Adds the images of the folders of `root`, each of which must be a class. A class may have none.
 */
static clt_status add_classes(clt_image_files *m, const char *root, const clt_listing *found,
                              const clt_listing *classes, const choosing *how)
{
    clt_status status = CLT_OK;
    int *folder_of = clt_alloc((size_t)classes->count * sizeof *folder_of);
    CLT_TRY_MEMORY(folder_of);
    for (int c = 0; c < classes->count; c++)
        folder_of[c] = -1;
    for (int i = 0; status == CLT_OK && i < found->count; i++) {
        const int c = class_of(classes, found->names[i], how->described);
        if (c < 0 || folder_of[c] >= 0)
            status = fail_unknown(root, found->names[i], classes);
        else
            folder_of[c] = i;
    }
    for (int c = 0; status == CLT_OK && c < classes->count; c++) {
        clt_str folder = {0};
        if (folder_of[c] < 0)
            continue;
        clt_str_add(&folder, "%s/%s", root, found->names[folder_of[c]]);
        status = folder.failed ? CLT_OUT_OF_MEMORY : add_class(m, clt_str_text(&folder), c, how);
        clt_str_free(&folder);
    }
    clt_free(folder_of);
    return status;
}

/* Reads the names of the classes from the description, or of the folders of the training images. */
static clt_status find_classes(const clt_data_request *r, const char *root, clt_listing *classes)
{
    if (r->options->description) {
        const clt_status status = clt_class_names_read(r->options->description, classes);
        return status == CLT_OK ? CLT_OK : clt_fail_prefix(status, "%s: ", r->path);
    }
    CLT_TRY(clt_listing_read(root, is_folder, (void *)(uintptr_t)root, classes));
    if (!classes->count)
        return clt_fail(CLT_FORMAT,
                        "%s: has no folders: put the images of each class into a folder of its own",
                        root);
    for (int c = 0; c < classes->count; c++)
        if (strchr(classes->names[c], '\n')) /* it would forge a line of a listing */
            return clt_fail(CLT_FORMAT,
                            "%s: the name of folder %d of %d has a line break: rename the folder",
                            root, c + 1, classes->count);
    return CLT_OK;
}

clt_status clt_image_files_find(const clt_data_request *r, clt_image_files *m, clt_listing *classes)
{
    *m = (clt_image_files){0};
    clt_str train = {0}, root = {0};
    clt_listing found = {0};
    clt_str_add(&train, "%s/train", r->path);
    const bool classes_here = !is_folder("train", (void *)r->path);
    const choosing how = {classes_here && !r->all, r->test, r->options->description != NULL};
    clt_str_add(&root, "%s%s", r->path,
                classes_here                        ? ""
                : !r->test                          ? "/train"
                : is_folder("val", (void *)r->path) ? "/val"
                                                    : "/test");
    clt_status status = train.failed || root.failed ? CLT_OUT_OF_MEMORY : CLT_OK;
    const char *of_classes = classes_here ? r->path : clt_str_text(&train);
    if (status == CLT_OK && r->all && !classes_here)
        status = clt_fail(CLT_INVALID_ARGUMENT,
                          "%s: the split 'all' needs a folder for each class, and this folder has "
                          "train",
                          r->path);
    CLT_NEXT(status, find_classes(r, of_classes, classes));
    const char *at = clt_str_text(&root);
    if (status == CLT_OK && r->test && !classes_here && !is_folder("val", (void *)r->path) &&
        !is_folder("test", (void *)r->path))
        status = clt_fail(CLT_NOT_FOUND,
                          "%s: the test split needs a folder val or test beside train", r->path);
    CLT_NEXT(status, clt_listing_read(at, is_folder, (void *)at, &found));
    CLT_NEXT(status, add_classes(m, at, &found, classes, &how));
    if (status == CLT_OK && !m->count)
        status = clt_fail(CLT_FORMAT, "%s: has no images", at);
    clt_listing_free(&found);
    clt_str_free(&train);
    clt_str_free(&root);
    return status;
}

void clt_image_files_free(clt_image_files *m)
{
    for (int i = 0; i < m->count; i++)
        clt_free(m->list[i].path);
    clt_free(m->list);
    *m = (clt_image_files){0};
}
