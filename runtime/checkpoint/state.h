/* state.json: the position of the run, sizes and hashes of the other files, and the sections. */
#ifndef CLT_CHECKPOINT_STATE_H
#define CLT_CHECKPOINT_STATE_H

#include <stdbool.h>

#include <jansson.h>

#include <cltrain/checkpoint.h>

/* The parts from CLT_PART_AVERAGE on may be missing. */
enum { CLT_PART_MODEL, CLT_PART_OPTIMIZER, CLT_PART_AVERAGE, CLT_PARTS };

#define CLT_STATE_FILE "state.json"

extern const char *const clt_part_files[CLT_PARTS];

/* Size and hash that a part's file must have. */
typedef struct clt_part {
    bool there;
    int64_t bytes;
    uint64_t hash; /* XXH3-64 */
} clt_part;

typedef struct clt_state {
    clt_run_state run;
    clt_part parts[CLT_PARTS];
    clt_section *sections;
    int section_count;
    json_t *root; /* owns the names and texts of string sections */
} clt_state;

/* Makes the content of state.json. Free it with free(), since it is jansson's. Errors:
 * INVALID_ARGUMENT, OUT_OF_MEMORY. */
clt_status clt_state_encode(const clt_checkpoint_desc *desc, const clt_part *parts, char **text);

/* Parses state.json. Errors: FORMAT, UNSUPPORTED for another version, OUT_OF_MEMORY; the state is
 * then empty. */
clt_status clt_state_decode(const char *text, size_t bytes, clt_state *out);

void clt_state_free(clt_state *state);

#endif
