/*
 * A library to preload into a test. It appends the names of all kernel files that the test gives to
 * an OpenCL compiler to the file CLT_PROGRAMS. The library under test marks with #line where each
 * file begins in a program. cc -shared -fPIC -o programs.so programs.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *(*create_function)(void *, unsigned, const char **, const size_t *, int *);

static void log_files(const char *text, FILE *file)
{
    while ((text = strstr(text, "#line 1 \""))) {
        text += strlen("#line 1 \"");
        fprintf(file, "%.*s\n", (int)strcspn(text, "\""), text);
    }
}

/* The signature of clCreateProgramWithSource without OpenCL's headers. */
void *clCreateProgramWithSource(void *context, unsigned count, const char **texts,
                                const size_t *lengths, int *error)
{
    const char *path = getenv("CLT_PROGRAMS");
    FILE *file = path ? fopen(path, "a") : NULL;
    for (unsigned i = 0; file && i < count; i++)
        if (!lengths || !lengths[i])
            log_files(texts[i], file);
    if (file)
        fclose(file);
    create_function next;
    *(void **)&next = dlsym(RTLD_NEXT, "clCreateProgramWithSource");
    return next ? next(context, count, texts, lengths, error) : NULL;
}
