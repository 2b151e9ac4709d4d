#include "device/program/merge_source.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "device/program/merge_section.h"
#include "device/program/program.h"
#include "device/program/source_tokens.h"

bool clt_merge_accepts(const clt_program_key *key, char *why)
{
    static const char *const refused[] = {"barrier", "get_local_id", "get_group_id",
                                          "get_local_size", "get_num_groups"};
    const char *options = key->options ? key->options : "";
    clt_str text = {0};
    bool accepts = true;
    for (const char *at = options; *at && accepts; at += strcspn(at, " "), at += *at == ' ')
        accepts = !strncmp(at, "-D", 2);
    if (!accepts)
        snprintf(why, CLT_MERGE_WHY, "it has compiler options of its own");
    if (accepts && clt_source_resolve(key->file, NULL, &text) != CLT_OK) {
        accepts = false;
        snprintf(why, CLT_MERGE_WHY, "its source is not known");
    }
    for (size_t i = 0; accepts && i < sizeof refused / sizeof *refused; i++)
        if (clt_has_token(text.text, refused[i])) {
            accepts = false;
            snprintf(why, CLT_MERGE_WHY, "it calls %s", refused[i]);
        }
    clt_str_free(&text);
    return accepts;
}

bool clt_merge_accepts_kernel(const char *file, const char *options, const char *kernel, char *why)
{
    return clt_merge_accepts(&(clt_program_key){file, options, kernel, NULL}, why);
}

/* A work-item is alone in its work-group, so local memory is its own. Launches use memory again for
 * other types, which a compiler may take for other memory: nothing may move across a fence. In PoCL
 * mem_fence does nothing, and barriers are gone before the last optimizations. */
static const char begin[] =
    "#ifdef CLT_BUILTINS\n"
    "#define CLT_MERGE_FENCE __asm__ volatile(\"\" ::: \"memory\")\n"
    "#define CLT_MERGE_COUNT(p) __atomic_fetch_add(p, 1, __ATOMIC_ACQ_REL)\n"
    "#else\n"
    "#define CLT_MERGE_FENCE barrier(CLK_GLOBAL_MEM_FENCE)\n"
    "#define CLT_MERGE_COUNT(p) atomic_inc(p)\n"
    "#endif\n"
    "#define CLT_MERGE_PARAMETERS const int clt_x, const int clt_y, const int clt_z, const int "
    "clt_nx, const "
    "int clt_ny, const int clt_nz\n"
    "#define get_global_id(d) ((size_t)((d) == 0 ? clt_x : (d) == 1 ? clt_y : clt_z))\n"
    "#define get_global_size(d) ((size_t)((d) == 0 ? clt_nx : (d) == 1 ? clt_ny : clt_nz))\n"
    "#define kernel static inline\n"
    "#define local\n"
    "#define reqd_work_group_size(...)\n"
    "#define intel_vec_len_hint(...)\n";

static const char end[] = "#undef get_global_id\n"
                          "#undef get_global_size\n"
                          "#undef kernel\n"
                          "#undef local\n"
                          "#undef reqd_work_group_size\n"
                          "#undef intel_vec_len_hint\n";

static void add_call(const clt_merge_part *part, int section, clt_str *out)
{
    clt_str_add(out,
                "    { /* %s */\n"
                "        const int clt_nx = %s, clt_ny = %s, clt_nz = %s;\n"
                "        for (int clt_z = 0; clt_z < clt_nz; clt_z++)\n"
                "            for (int clt_y = 0; clt_y < clt_ny; clt_y++)\n"
                "                for (int clt_x = 0; clt_x < clt_nx; clt_x++)\n"
                "                    %s_m%d(" CLT_MERGE_PLACE ", %s);\n"
                "    }\n"
                "    CLT_MERGE_FENCE;\n",
                part->comment, part->global[0], part->global[1], part->global[2], part->key.kernel,
                section, part->args);
}

/* What the other work-items wrote must be seen behind the count. Without CLT_BUILTINS the fences
 * are barriers, which are full fences on CPUs. */
static void add_wide_call(const clt_merge_part *part, int section, clt_str *out)
{
    clt_str_add(out,
                "    { /* %s */\n"
                "        const int clt_nx = %s, clt_ny = %s, clt_nz = %s;\n"
                "        const int clt_x = (int)get_global_id(0), clt_y = (int)get_global_id(1), "
                "clt_z = (int)get_global_id(2);\n"
                "        %s_m%d(" CLT_MERGE_PLACE ", %s);\n"
                "        CLT_MERGE_FENCE;\n"
                "        const int clt_before = CLT_MERGE_COUNT(" CLT_MERGE_ENDED ");\n"
                "        CLT_MERGE_FENCE;\n"
                "        if (clt_before + 1 != clt_nx * clt_ny * clt_nz)\n"
                "            return;\n"
                "        *" CLT_MERGE_ENDED " = 0;\n"
                "    }\n",
                part->comment, part->global[0], part->global[1], part->global[2], part->key.kernel,
                section, part->args);
}

clt_status clt_merge_source(const clt_merge_part *parts, int count, bool wide,
                            const char *parameters, const char *first, clt_str *out)
{
    int *section = clt_calloc((size_t)count + 1, sizeof *section);
    CLT_TRY_MEMORY(section);
    clt_status status = CLT_OK;
    clt_str_add(out, "%s", begin);
    for (int i = 0; status == CLT_OK && i < count; i++) {
        section[i] = i;
        for (int j = 0; j < i && section[i] == i; j++)
            if (!strcmp(parts[j].key.kernel, parts[i].key.kernel) &&
                clt_program_keys_equal(&parts[j].key, &parts[i].key))
                section[i] = section[j];
        if (section[i] == i)
            status = clt_merge_section(&parts[i].key, i, out);
    }
    clt_str_add(out,
                "%skernel __attribute__((reqd_work_group_size(1, 1, 1), intel_vec_len_hint(1))) "
                "void " CLT_MERGED_KERNEL "(%s)\n{\n%s",
                end, parameters, first);
    if (wide)
        add_wide_call(&parts[0], section[0], out);
    for (int i = wide; i < count; i++)
        add_call(&parts[i], section[i], out);
    clt_str_add(out, "}\n");
    clt_free(section);
    return status == CLT_OK && out->failed ? CLT_OUT_OF_MEMORY : status;
}
