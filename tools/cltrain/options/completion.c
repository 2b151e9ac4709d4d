/* `cltrain --print-completion`: a bash script that completes subcommands, options and values. */
#include <stdio.h>
#include <string.h>

#include "options/commands.h"
#include "options/manual.h"
#include "text/message.h"

/* The rest of the script, which does not depend on the tables. */
static const char *const script[] = {
    "# The word at the cursor, whole: bash itself divides it at : and =.",
    "_cltrain()",
    "{",
    "    local line=${COMP_LINE:0:COMP_POINT} words word before prefix= last key",
    "    COMPREPLY=()",
    "    read -ra words <<<\"$line\"",
    "    [[ $line == *[[:space:]] ]] && words+=(\"\")",
    "    while ((${#words[@]} > 1)) && [[ ${words[0]##*/} != cltrain ]]; do",
    "        words=(\"${words[@]:1}\")",
    "    done",
    "    last=$((${#words[@]} - 1))",
    "    ((last > 0)) || return 0",
    "    word=${words[last]} before=${words[last - 1]} key=${words[1]}",
    "    if ((last == 1)); then",
    "        _cltrain_reply \"\" \"$_cltrain_commands\" \"$word\"",
    "        return",
    "    fi",
    "    if [[ -n $(_cltrain_subjects \"$key\") ]]; then",
    "        if ((last == 2)) && [[ $word != -* ]]; then",
    "            _cltrain_reply \"\" \"$(_cltrain_subjects \"$key\")\" \"$word\"",
    "            return",
    "        fi",
    "        key=\"$key ${words[2]}\"",
    "    fi",
    "    if [[ $word == --*=* ]]; then",
    "        before=${word%%=*} prefix=$before= word=${word#*=}",
    "    fi",
    "    if [[ $before == -?* ]] && _cltrain_value \"$before\" \"$prefix\" \"$word\"; then",
    "        return",
    "    fi",
    "    if [[ $word == -* ]]; then",
    "        _cltrain_reply \"\" \"$(_cltrain_options \"$key\")\" \"$word\"",
    "    elif [[ $key == \"data inspect\" ]]; then",
    "        _cltrain_value --data \"\" \"$word\"",
    "    else",
    "        _cltrain_files \"\" \"$word\"",
    "    fi",
    "}",
    "",
    "# Keeps what begins with the word $3 of the list $2, without what stands before the last : =",
    "_cltrain_reply()",
    "{",
    "    local typed=$1$3 candidate",
    "    local divided=${typed%\"${typed##*[:=]}\"}",
    "    while IFS= read -r candidate; do",
    "        COMPREPLY+=(\"${candidate#\"$divided\"}\")",
    "        [[ $candidate != *: ]] || compopt -o nospace 2>/dev/null",
    "    done < <(compgen -P \"$1\" -W \"$2\" -- \"$3\")",
    "}",
    "",
    "# The same of files: $1 stands before the path $2.",
    "_cltrain_files()",
    "{",
    "    local typed=$1$2 candidate",
    "    local divided=${typed%\"${typed##*[:=]}\"}",
    "    compopt -o filenames 2>/dev/null",
    "    while IFS= read -r candidate; do",
    "        candidate=$1$candidate",
    "        COMPREPLY+=(\"${candidate#\"$divided\"}\")",
    "    done < <(compgen -f -- \"$2\")",
    "}",
    "",
    "complete -F _cltrain cltrain",
};

static void put_names(unsigned commands)
{
    option_text o;
    const char *space = "";
    for (int row = 0; settings_next(commands, &row, &o); space = " ")
        printf("%s--%s", space, o.name);
}

static void print_commands(void)
{
    fputs("_cltrain_commands=\"", stdout);
    for (int i = 0; i < command_count; i++)
        printf("%s ", command_rows[i].name);
    fputs("models help --help --version\"\n\n_cltrain_subjects()\n{\n    case $1 in\n", stdout);
    for (int i = 0; i < command_count; i++) {
        subject_text subject;
        if (!command_rows[i].subject)
            continue;
        printf("        %s) echo \"", command_rows[i].name);
        for (int k = 0; command_rows[i].subject(k, &subject); k++)
            printf("%s%s", k ? " " : "", subject.name);
        fputs("\" ;;\n", stdout);
    }
    fputs("        help) echo \"$_cltrain_commands\" ;;\n    esac\n}\n\n", stdout);
}

static void print_options(void)
{
    fputs("_cltrain_options()\n{\n    case $1 in\n", stdout);
    for (int i = 0; i < command_count; i++) {
        const command_row *row = &command_rows[i];
        subject_text subject;
        for (int k = 0; row->subject && row->subject(k, &subject); k++) {
            printf("        \"%s %s\") echo \"", row->name, subject.name);
            put_names(subject.bit);
            fputs("\" ;;\n", stdout);
        }
        printf("        %s*) echo \"", row->name);
        put_names(row->bit);
        fputs("\" ;;\n", stdout);
    }
    fputs("    esac\n}\n\n", stdout);
}

/* Returns whether the argument is the path of a file or folder. */
static int is_path(const option_text *o)
{
    return !strcmp(o->argument, "FILE") || !strcmp(o->argument, "DIR");
}

/* Writes the call that completes words. What the user chooses begins behind ':'. */
static void print_reply(const option_text *o)
{
    fputs("_cltrain_reply \"$2\" \"", stdout);
    if (o->words)
        printf("%s ", o->words);
    for (int i = 0; o->word && o->word(i); i++) {
        const size_t length = strcspn(o->word(i), ":");
        printf("%.*s ", (int)length + (o->word(i)[length] == ':'), o->word(i));
    }
    fputs("\" \"$3\"", stdout);
}

/* Writes the function that completes values. Unknown values complete to nothing: file names would
 * be wrong for a learning rate. */
static void print_values(void)
{
    option_text o;
    fputs("# Completes the value $3 of the option $1; fails if the option has none. $2 stands "
          "before it.\n"
          "_cltrain_value()\n{\n    local path=${3#*:} kind=${3%%:*}\n    case $1 in\n",
          stdout);
    for (int row = 0; settings_next(~0u, &row, &o);) {
        if (!o.argument)
            continue;
        fputs("        ", stdout);
        if (o.letter)
            printf("-%c | ", o.letter);
        printf("--%s) ", o.name);
        if (o.files == FILES_BEHIND_COLON)
            fputs("if [[ $3 == *:* ]]; then _cltrain_files \"$2$kind:\" \"$path\"; else ", stdout);
        if (o.words || o.word)
            print_reply(&o);
        else
            fputs(is_path(&o) ? "_cltrain_files \"$2\" \"$3\"" : ":", stdout);
        if (o.files == FILES_BEHIND_COLON)
            fputs("; fi", stdout);
        if (o.files == FILES_TOO)
            fputs("; ((${#COMPREPLY[@]})) || _cltrain_files \"$2\" \"$3\"", stdout);
        fputs(" ;;\n", stdout);
    }
    fputs("        *) return 1 ;;\n    esac\n    return 0\n}\n\n", stdout);
}

int completion_print(void)
{
    fputs("# Completion of cltrain for bash. Written by cltrain --print-completion.\n\n", stdout);
    print_commands();
    print_options();
    print_values();
    for (size_t i = 0; i < sizeof script / sizeof *script; i++)
        printf("%s\n", script[i]);
    return EXIT_DONE;
}
