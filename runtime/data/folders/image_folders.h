/* The image files of images:DIR. */
#ifndef CLT_DATA_FOLDERS_IMAGE_FOLDERS_H
#define CLT_DATA_FOLDERS_IMAGE_FOLDERS_H

#include "data/core/kinds.h"
#include "data/files/listing.h"

typedef struct clt_image_file {
    char *path;
    int32_t label;
} clt_image_file;

typedef struct clt_image_files {
    clt_image_file *list;
    int count, room;
} clt_image_files;

/* Finds the classes, in the description or in the folder of the training images, and the files of
 * the split. The caller frees both even after a failure. Errors: NOT_FOUND, FORMAT (names the
 * folder), IO, INVALID_ARGUMENT, OUT_OF_MEMORY. */
clt_status clt_image_files_find(const clt_data_request *request, clt_image_files *out,
                                clt_listing *classes);
void clt_image_files_free(clt_image_files *files);

#endif
