#include "output/gnuplot.h"

#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "text/message.h"

extern char **environ;

/* Runs gnuplot on `script`, with its output in `errors`. Returns gnuplot's exit status, or -1 after
 * a message. */
static int start_gnuplot(FILE *script, FILE *errors)
{
    posix_spawn_file_actions_t actions;
    char *const argv[] = {"gnuplot", NULL};
    pid_t child;
    int status;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fileno(script), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fileno(errors), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fileno(errors), STDERR_FILENO);
    const int error = posix_spawnp(&child, "gnuplot", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error == ENOENT) {
        say("gnuplot was not found; Debian's package gnuplot-nox has it");
        return -1;
    }
    if (error) {
        say("cannot start gnuplot: %s", strerror(error));
        return -1;
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) {
            say("gnuplot: %s", strerror(errno));
            return -1;
        }
    return status;
}

/* Prints gnuplot's first error message, without its place in the script. */
static int gnuplot_failure(FILE *errors, int status)
{
    char line[300] = "", text[300] = "";
    rewind(errors);
    while (fgets(line, sizeof line, errors)) {
        line[strcspn(line, "\n")] = '\0';
        if (strspn(line, " \t^") < strlen(line))
            memcpy(text, line, sizeof text);
        if (strstr(line, "line "))
            break;
    }
    if (*text)
        return failure("gnuplot: %s", text);
    return failure("gnuplot failed with status %d", status);
}

static int draw(FILE *script, FILE *errors)
{
    if (fflush(script) != 0 || lseek(fileno(script), 0, SEEK_SET) != 0)
        return failure("cannot write gnuplot's script: %s", strerror(errno));
    const int status = start_gnuplot(script, errors);
    if (status < 0)
        return EXIT_FAILED;
    return status ? gnuplot_failure(errors, status) : EXIT_DONE;
}

int gnuplot_draw(const char *output, gnuplot_script *write, const void *user)
{
    FILE *script = tmpfile(), *errors = tmpfile();
    char *beside = malloc(strlen(output) + 16);
    int code = EXIT_FAILED, fd = -1;
    if (!script || !errors || !beside) {
        say("cannot make a temporary file: %s", strerror(errno));
        goto done;
    }
    sprintf(beside, "%s.XXXXXX", output);
    fd = mkstemp(beside);
    if (fd < 0) {
        say("cannot write %s: %s", output, strerror(errno));
        goto done;
    }
    write(user, beside, script);
    code = draw(script, errors);
    if (!code && lseek(fd, 0, SEEK_END) == 0)
        code = failure("gnuplot drew nothing into %s", output);
    /* mkstemp makes a private file. The picture gets the permissions that the umask allows. */
    const mode_t mask = umask(0);
    umask(mask);
    if (!code && (fchmod(fd, 0666 & ~mask) != 0 || rename(beside, output) != 0))
        code = failure("cannot write %s: %s", output, strerror(errno));
    if (code)
        unlink(beside);
    close(fd);
done:
    if (script)
        fclose(script);
    if (errors)
        fclose(errors);
    free(beside);
    return code;
}

int gnuplot_check(const char *output)
{
    const size_t length = strlen(output);
    return length < 5 || strcmp(output + length - 4, ".png")
               ? usage_error("-o %s: the picture is a PNG file, its name must end in .png", output)
               : 0;
}

void gnuplot_quoted(const char *text, FILE *script)
{
    fputc('"', script);
    for (; *text; text++) {
        const unsigned char letter = (unsigned char)*text;
        if (letter < ' ')
            fputc('?', script);
        else if (letter == '"' || letter == '\\')
            fprintf(script, "\\%c", letter);
        else
            fputc(letter, script);
    }
    fputc('"', script);
}
